/* Offsets of each queue of a topic, answer of GET_TOPIC_STATS_INFO (202)
 * (org.apache.rocketmq.common.admin.TopicStatsTable, TopicOffset). */
#ifndef LEDGERMQ_PROTO_TOPIC_STATS_TABLE_H
#define LEDGERMQ_PROTO_TOPIC_STATS_TABLE_H

#include "proto/arena.h"
#include "proto/error.h"
#include "proto/message_queue.h"

struct topic_offset {
    struct message_queue queue;
    int64_t min_offset;
    int64_t max_offset;
    int64_t last_update_timestamp_ms; /* 0 = never */
};

struct topic_stats_table {
    struct arena arena; /* of a decoded one */
    struct topic_offset *offsets;
    size_t offset_count;
};

void topic_stats_table_begin(struct buffer *out);
void topic_stats_table_add(struct buffer *out, const struct topic_offset *offset);
void topic_stats_table_end(struct buffer *out);

/* Errors of json_body.h; then nothing is left to close. */
int topic_stats_table_decode(struct topic_stats_table *table, struct slice body, struct error *error);
void topic_stats_table_close(struct topic_stats_table *table);

#endif
