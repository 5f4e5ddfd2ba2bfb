#include "proto/topic_config.h"

#include <stdio.h>

#include "proto/json_body.h"

static const char *const filter_types[] = {"SINGLE_TAG", "MULTI_TAG"};

void topic_config_init(struct topic_config *config, struct slice name)
{
    *config = (struct topic_config){
        .name = name,
        .read_queue_nums = TOPIC_QUEUE_NUMS_DEFAULT,
        .write_queue_nums = TOPIC_QUEUE_NUMS_DEFAULT,
        .perm = PERM_READ | PERM_WRITE,
    };
}

void topic_config_write(struct json_writer *writer, const struct topic_config *config)
{
    json_write_begin_object(writer);
    if (config->reserved_hours > 0) {
        char hours[16];
        snprintf(hours, sizeof hours, "%d", (int)config->reserved_hours);
        json_write_key(writer, "attributes");
        json_write_begin_object(writer);
        json_write_member_text(writer, "reserve.time", hours);
        json_write_end_object(writer);
    }
    json_write_member_bool(writer, "order", config->order);
    json_write_member_i64(writer, "perm", config->perm);
    json_write_member_i64(writer, "readQueueNums", config->read_queue_nums);
    json_write_member_text(writer, "topicFilterType", filter_types[config->multi_tag ? 1 : 0]);
    json_write_member_slice(writer, "topicName", config->name);
    json_write_member_i64(writer, "topicSysFlag", config->topic_sys_flag);
    json_write_member_i64(writer, "writeQueueNums", config->write_queue_nums);
    json_write_end_object(writer);
}

void topic_config_encode(const struct topic_config *config, struct buffer *out)
{
    struct json_writer writer;
    json_writer_init(&writer, out);
    topic_config_write(&writer, config);
}

static int read_members(struct topic_config *config, struct arena *arena, struct json_value object, struct error *error)
{
    int filter_type = 0;
    int rv = json_body_text(arena, object, "topicName", &config->name, error);
    if (rv == 0)
        rv = json_read_i32(object, "readQueueNums", &config->read_queue_nums, error);
    if (rv == 0)
        rv = json_read_i32(object, "writeQueueNums", &config->write_queue_nums, error);
    if (rv == 0)
        rv = json_read_i32(object, "perm", &config->perm, error);
    if (rv == 0)
        rv = json_read_enum(object, "topicFilterType", filter_types, 2, &filter_type, error);
    if (rv == 0)
        rv = json_read_i32(object, "topicSysFlag", &config->topic_sys_flag, error);
    if (rv == 0)
        rv = json_read_bool(object, "order", &config->order, error);
    config->multi_tag = filter_type == 1;
    return rv;
}

int topic_config_read(struct topic_config *config, struct arena *arena, struct json_value object, struct slice name,
                      struct error *error)
{
    topic_config_init(config, name);
    if (!json_is_object(object))
        return error_set(error, ERROR_INVALID, "topic %.*s is no object", (int)(name.size < 255 ? name.size : 255),
                         (const char *)name.data);
    int rv = read_members(config, arena, object, error);
    if (rv != 0)
        error_wrap(error, "topic %.*s", (int)(name.size < 255 ? name.size : 255), (const char *)name.data);
    return rv;
}
