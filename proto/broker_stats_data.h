/* One statistics item, answer of VIEW_BROKER_STATS_DATA (315)
 * (org.apache.rocketmq.common.protocol.body.BrokerStatsData, BrokerStatsItem). */
#ifndef LEDGERMQ_PROTO_BROKER_STATS_DATA_H
#define LEDGERMQ_PROTO_BROKER_STATS_DATA_H

#include "proto/arena.h"
#include "proto/buffer.h"
#include "proto/error.h"

struct broker_stats_item {
    int64_t sum;
    double tps;
    double avgpt; /* mean of one event */
};

struct broker_stats_data {
    struct broker_stats_item minute;
    struct broker_stats_item hour;
    struct broker_stats_item day;
};

void broker_stats_data_encode(const struct broker_stats_data *data, struct buffer *out);
/* Absent members are 0. Errors of json_body.h. */
int broker_stats_data_decode(struct broker_stats_data *data, struct slice body, struct error *error);

#endif
