#include "proto/topic_config_serialize_wrapper.h"

#include "proto/json_body.h"

void topic_config_serialize_wrapper_begin(struct buffer *out, const struct data_version *version)
{
    struct json_writer writer;
    json_writer_init(&writer, out);
    json_write_begin_object(&writer);
    json_write_key(&writer, "dataVersion");
    data_version_write(&writer, version);
    json_write_key(&writer, "topicConfigTable");
    json_write_begin_object(&writer);
}

void topic_config_serialize_wrapper_add(struct buffer *out, const struct topic_config *config)
{
    struct json_writer writer = json_body_resume(out);
    json_write_key_slice(&writer, config->name);
    topic_config_write(&writer, config);
}

void topic_config_serialize_wrapper_end(struct buffer *out)
{
    buffer_append_text(out, "}}");
}

void topic_config_serialize_wrapper_encode(const struct topic_config_serialize_wrapper *wrapper, struct buffer *out)
{
    topic_config_serialize_wrapper_begin(out, &wrapper->version);
    for (size_t i = 0; i < wrapper->topic_count; i++)
        topic_config_serialize_wrapper_add(out, &wrapper->topics[i]);
    topic_config_serialize_wrapper_end(out);
}

int topic_config_serialize_wrapper_read(struct topic_config_serialize_wrapper *wrapper, struct json_value object,
                                        struct error *error)
{
    struct json_iterator iterator;
    struct json_value key;
    struct json_value value;

    int rv = data_version_read(&wrapper->version, json_get(object, "dataVersion"), error);
    if (rv == 0)
        rv = json_body_map(&wrapper->arena, object, "topicConfigTable", sizeof *wrapper->topics, &wrapper->topics,
                           &iterator, error);
    while (rv == 0 && json_next_member(&iterator, &key, &value)) {
        struct slice name;
        if (json_is_null(value))
            continue;
        rv = json_body_copy(&wrapper->arena, key, "topicConfigTable", &name, error);
        if (rv == 0)
            rv = topic_config_read(&wrapper->topics[wrapper->topic_count++], &wrapper->arena, value, name, error);
    }
    return rv;
}

int topic_config_serialize_wrapper_decode(struct topic_config_serialize_wrapper *wrapper, struct slice body,
                                          struct error *error)
{
    struct json_document document;

    *wrapper = (struct topic_config_serialize_wrapper){0};
    int rv = json_body_open(&document, &wrapper->arena, body, error);
    if (rv != 0)
        return rv;
    rv = topic_config_serialize_wrapper_read(wrapper, json_root(&document), error);
    json_close(&document);
    if (rv != 0)
        topic_config_serialize_wrapper_close(wrapper);
    return rv;
}

void topic_config_serialize_wrapper_close(struct topic_config_serialize_wrapper *wrapper)
{
    arena_close(&wrapper->arena);
    *wrapper = (struct topic_config_serialize_wrapper){0};
}
