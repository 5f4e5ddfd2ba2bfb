#include "proto/producer_table_info.h"

#include "proto/json_body.h"

void producer_table_info_begin(struct buffer *out)
{
    buffer_append_text(out, "{\"data\":{");
}

void producer_table_info_group_begin(struct buffer *out, struct slice group)
{
    struct json_writer writer = json_body_resume(out);
    json_write_key_slice(&writer, group);
    json_write_begin_array(&writer);
}

void producer_table_info_add(struct buffer *out, const struct producer_info *producer)
{
    struct json_writer writer = json_body_resume(out);
    json_write_begin_object(&writer);
    json_write_member_slice(&writer, "clientId", producer->client_id);
    json_write_member_slice(&writer, "language", producer->language);
    json_write_member_i64(&writer, "lastUpdateTimestamp", producer->last_update_timestamp_ms);
    json_write_member_slice(&writer, "remoteIP", producer->remote_ip);
    json_write_member_i64(&writer, "version", producer->version);
    json_write_end_object(&writer);
}

void producer_table_info_group_end(struct buffer *out)
{
    buffer_append_text(out, "]");
}

void producer_table_info_end(struct buffer *out)
{
    buffer_append_text(out, "}}");
}
