#include "proto/subscription_group_config.h"

#include "proto/json_body.h"

void subscription_group_config_init(struct subscription_group_config *config, struct slice group_name)
{
    *config = (struct subscription_group_config){
        .group_name = group_name,
        .consume_enable = true,
        .consume_from_min_enable = true,
        .consume_broadcast_enable = true,
        .retry_queue_nums = 1,
        .retry_max_times = 16,
        .broker_id = 0,
        .which_broker_when_consume_slowly = 1,
        .notify_consumer_ids_changed_enable = true,
    };
}

void subscription_group_config_write(struct json_writer *writer, const struct subscription_group_config *config)
{
    json_write_begin_object(writer);
    json_write_member_i64(writer, "brokerId", config->broker_id);
    json_write_member_bool(writer, "consumeBroadcastEnable", config->consume_broadcast_enable);
    json_write_member_bool(writer, "consumeEnable", config->consume_enable);
    json_write_member_bool(writer, "consumeFromMinEnable", config->consume_from_min_enable);
    json_write_member_slice(writer, "groupName", config->group_name);
    json_write_member_bool(writer, "notifyConsumerIdsChangedEnable", config->notify_consumer_ids_changed_enable);
    json_write_member_i64(writer, "retryMaxTimes", config->retry_max_times);
    json_write_member_i64(writer, "retryQueueNums", config->retry_queue_nums);
    json_write_member_i64(writer, "whichBrokerWhenConsumeSlowly", config->which_broker_when_consume_slowly);
    json_write_end_object(writer);
}

void subscription_group_config_encode(const struct subscription_group_config *config, struct buffer *out)
{
    struct json_writer writer;
    json_writer_init(&writer, out);
    subscription_group_config_write(&writer, config);
}

int subscription_group_config_read(struct subscription_group_config *config, struct arena *arena,
                                   struct json_value object, struct slice name, struct error *error)
{
    subscription_group_config_init(config, name);
    if (!json_is_object(object))
        return error_set(error, ERROR_INVALID, "group %.*s is no object", (int)(name.size < 255 ? name.size : 255),
                         (const char *)name.data);
    int rv = json_body_text(arena, object, "groupName", &config->group_name, error);
    if (rv == 0)
        rv = json_read_bool(object, "consumeEnable", &config->consume_enable, error);
    if (rv == 0)
        rv = json_read_bool(object, "consumeFromMinEnable", &config->consume_from_min_enable, error);
    if (rv == 0)
        rv = json_read_bool(object, "consumeBroadcastEnable", &config->consume_broadcast_enable, error);
    if (rv == 0)
        rv = json_read_i32(object, "retryQueueNums", &config->retry_queue_nums, error);
    if (rv == 0)
        rv = json_read_i32(object, "retryMaxTimes", &config->retry_max_times, error);
    if (rv == 0)
        rv = json_read_i64(object, "brokerId", &config->broker_id, error);
    if (rv == 0)
        rv = json_read_i64(object, "whichBrokerWhenConsumeSlowly", &config->which_broker_when_consume_slowly, error);
    if (rv == 0)
        rv = json_read_bool(object, "notifyConsumerIdsChangedEnable", &config->notify_consumer_ids_changed_enable,
                            error);
    return rv;
}

int subscription_group_config_decode(struct subscription_group_config *config, struct arena *arena, struct slice body,
                                     struct error *error)
{
    struct json_document document;
    int rv = json_body_open(&document, NULL, body, error);
    if (rv != 0)
        return rv;
    rv = subscription_group_config_read(config, arena, json_root(&document), (struct slice){0}, error);
    json_close(&document);
    if (rv == 0 && config->group_name.size == 0)
        rv = error_set(error, ERROR_MISSING, "groupName is missing");
    return rv;
}
