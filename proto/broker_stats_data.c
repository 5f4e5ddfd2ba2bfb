#include "proto/broker_stats_data.h"

#include "proto/json_body.h"

static void write_item(struct json_writer *writer, const char *name, const struct broker_stats_item *item)
{
    json_write_key(writer, name);
    json_write_begin_object(writer);
    json_write_member_double(writer, "avgpt", item->avgpt);
    json_write_member_i64(writer, "sum", item->sum);
    json_write_member_double(writer, "tps", item->tps);
    json_write_end_object(writer);
}

void broker_stats_data_encode(const struct broker_stats_data *data, struct buffer *out)
{
    struct json_writer writer;
    json_writer_init(&writer, out);
    json_write_begin_object(&writer);
    write_item(&writer, "statsDay", &data->day);
    write_item(&writer, "statsHour", &data->hour);
    write_item(&writer, "statsMinute", &data->minute);
    json_write_end_object(&writer);
}

static int read_double(struct json_value object, const char *name, double *out, struct error *error)
{
    struct json_value value = json_get(object, name);
    if (!json_is_null(value) && !json_double(value, out))
        return error_set(error, ERROR_INVALID, "%s is no number", name);
    return 0;
}

static int read_item(struct json_value root, const char *name, struct broker_stats_item *item, struct error *error)
{
    struct json_value object = json_get(root, name);
    int rv = read_double(object, "avgpt", &item->avgpt, error);
    if (rv == 0)
        rv = read_double(object, "tps", &item->tps, error);
    if (rv == 0)
        rv = json_read_i64(object, "sum", &item->sum, error);
    return rv;
}

int broker_stats_data_decode(struct broker_stats_data *data, struct slice body, struct error *error)
{
    struct json_document document;

    *data = (struct broker_stats_data){0};
    int rv = json_body_open(&document, NULL, body, error);
    if (rv != 0)
        return rv;
    rv = read_item(json_root(&document), "statsDay", &data->day, error);
    if (rv == 0)
        rv = read_item(json_root(&document), "statsHour", &data->hour, error);
    if (rv == 0)
        rv = read_item(json_root(&document), "statsMinute", &data->minute, error);
    json_close(&document);
    return rv;
}
