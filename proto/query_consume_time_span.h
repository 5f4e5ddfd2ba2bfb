/* Store times of a group's queues, answer of QUERY_CONSUME_TIME_SPAN (303)
 * (org.apache.rocketmq.common.protocol.body.QueryConsumeTimeSpanBody, QueueTimeSpan). The ...Str members are derived
 * from the numbers by every reader and are not written.
 */
#ifndef LEDGERMQ_PROTO_QUERY_CONSUME_TIME_SPAN_H
#define LEDGERMQ_PROTO_QUERY_CONSUME_TIME_SPAN_H

#include "proto/message_queue.h"

struct queue_time_span {
    struct message_queue queue;
    int64_t min_timestamp_ms;
    int64_t max_timestamp_ms;
    int64_t consume_timestamp_ms;
    int64_t delay_time_ms;
};

void query_consume_time_span_begin(struct buffer *out);
void query_consume_time_span_add(struct buffer *out, const struct queue_time_span *span);
void query_consume_time_span_end(struct buffer *out);

#endif
