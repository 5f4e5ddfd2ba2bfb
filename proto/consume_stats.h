/* How far a group is in each queue, answer of GET_CONSUME_STATS (208) (org.apache.rocketmq.common.admin.ConsumeStats,
 * OffsetWrapper). */
#ifndef LEDGERMQ_PROTO_CONSUME_STATS_H
#define LEDGERMQ_PROTO_CONSUME_STATS_H

#include "proto/arena.h"
#include "proto/error.h"
#include "proto/message_queue.h"

struct consume_offset {
    struct message_queue queue;
    int64_t broker_offset;
    int64_t consumer_offset;
    int64_t last_timestamp_ms; /* store time of the message last consumed; 0 = unknown */
};

struct consume_stats {
    struct arena arena; /* of a decoded one */
    double consume_tps;
    struct consume_offset *offsets;
    size_t offset_count;
};

void consume_stats_begin(struct buffer *out, double consume_tps);
void consume_stats_add(struct buffer *out, const struct consume_offset *offset);
void consume_stats_end(struct buffer *out);

/* Errors of json_body.h; then nothing is left to close. */
int consume_stats_decode(struct consume_stats *stats, struct slice body, struct error *error);
void consume_stats_close(struct consume_stats *stats);

#endif
