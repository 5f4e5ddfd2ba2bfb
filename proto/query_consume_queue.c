#include "proto/query_consume_queue.h"

#include "proto/json_body.h"

void query_consume_queue_begin(struct buffer *out, struct slice filter_data, int64_t max_queue_index,
                               int64_t min_queue_index)
{
    struct json_writer writer;
    json_writer_init(&writer, out);
    json_write_begin_object(&writer);
    json_write_member_slice(&writer, "filterData", filter_data);
    json_write_member_i64(&writer, "maxQueueIndex", max_queue_index);
    json_write_member_i64(&writer, "minQueueIndex", min_queue_index);
    json_write_key(&writer, "queueData");
    json_write_begin_array(&writer);
}

void query_consume_queue_add(struct buffer *out, const struct consume_queue_data *data)
{
    struct json_writer writer = json_body_resume(out);
    json_write_begin_object(&writer);
    json_write_member_bool(&writer, "eval", data->eval);
    json_write_member_slice(&writer, "msg", data->msg);
    json_write_member_i64(&writer, "physicOffset", data->physic_offset);
    json_write_member_i64(&writer, "physicSize", data->physic_size);
    json_write_member_i64(&writer, "tagsCode", data->tags_code);
    json_write_end_object(&writer);
}

void query_consume_queue_end(struct buffer *out, const struct subscription_data *subscription)
{
    buffer_append_text(out, "]");
    struct json_writer writer = json_body_resume(out);
    if (subscription != NULL) {
        json_write_key(&writer, "subscriptionData");
        subscription_data_write(&writer, subscription);
    }
    json_write_end_object(&writer);
}
