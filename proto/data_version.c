#include "proto/data_version.h"

#include "proto/json_body.h"

void data_version_write(struct json_writer *writer, const struct data_version *version)
{
    json_write_begin_object(writer);
    json_write_member_i64(writer, "counter", version->counter);
    if (version->state_version != 0)
        json_write_member_i64(writer, "stateVersion", version->state_version);
    json_write_member_i64(writer, "timestamp", version->timestamp_ms);
    json_write_end_object(writer);
}

int data_version_read(struct data_version *version, struct json_value object, struct error *error)
{
    *version = (struct data_version){0};
    if (!json_is_null(object) && !json_is_object(object))
        return error_set(error, ERROR_INVALID, "dataVersion is no object");
    int rv = json_read_i64(object, "counter", &version->counter, error);
    if (rv == 0)
        rv = json_read_i64(object, "stateVersion", &version->state_version, error);
    if (rv == 0)
        rv = json_read_i64(object, "timestamp", &version->timestamp_ms, error);
    return rv;
}

void data_version_encode(const struct data_version *version, struct buffer *out)
{
    struct json_writer writer;
    json_writer_init(&writer, out);
    data_version_write(&writer, version);
}

int data_version_decode(struct data_version *version, struct slice body, struct error *error)
{
    struct json_document document;
    int rv = json_body_open(&document, NULL, body, error);
    if (rv != 0)
        return rv;
    rv = data_version_read(version, json_root(&document), error);
    json_close(&document);
    return rv;
}
