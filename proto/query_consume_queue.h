/* Units of a consume queue, answer of QUERY_CONSUME_QUEUE (321)
 * (org.apache.rocketmq.common.protocol.body.QueryConsumeQueueResponseBody, ConsumeQueueData).
 */
#ifndef LEDGERMQ_PROTO_QUERY_CONSUME_QUEUE_H
#define LEDGERMQ_PROTO_QUERY_CONSUME_QUEUE_H

#include "proto/subscription_data.h"

struct consume_queue_data {
    int64_t physic_offset;
    int32_t physic_size;
    int64_t tags_code;
    bool eval;        /* passes the group's filter */
    struct slice msg; /* what an evaluation had to say; data NULL = left out */
};

/* filter_data: data NULL = left out. */
void query_consume_queue_begin(struct buffer *out, struct slice filter_data, int64_t max_queue_index,
                               int64_t min_queue_index);
void query_consume_queue_add(struct buffer *out, const struct consume_queue_data *data);
/* subscription: NULL = left out. */
void query_consume_queue_end(struct buffer *out, const struct subscription_data *subscription);

#endif
