#include "proto/query_consume_time_span.h"

#include "proto/json_body.h"

void query_consume_time_span_begin(struct buffer *out)
{
    buffer_append_text(out, "{\"consumeTimeSpanSet\":[");
}

void query_consume_time_span_add(struct buffer *out, const struct queue_time_span *span)
{
    struct json_writer writer = json_body_resume(out);
    json_write_begin_object(&writer);
    json_write_member_i64(&writer, "consumeTimeStamp", span->consume_timestamp_ms);
    json_write_member_i64(&writer, "delayTime", span->delay_time_ms);
    json_write_member_i64(&writer, "maxTimeStamp", span->max_timestamp_ms);
    json_write_key(&writer, "messageQueue");
    json_body_write_queue(&writer, &span->queue);
    json_write_member_i64(&writer, "minTimeStamp", span->min_timestamp_ms);
    json_write_end_object(&writer);
}

void query_consume_time_span_end(struct buffer *out)
{
    buffer_append_text(out, "]}");
}
