/* What a consumer did with a topic in the last minute (and failed in the last hour), for CONSUMER_RUNNING_INFO.
 *
 * Follows org.apache.rocketmq.client.stat.ConsumerStatsManager 4.9.8: totals are sampled every ten seconds, and a rate
 * is what a minute's samples differ by. Not thread safe: the loop thread's.
 */
#ifndef LEDGERMQ_CLIENT_CONSUMER_STATS_H
#define LEDGERMQ_CLIENT_CONSUMER_STATS_H

#include <stdint.h>

#define CONSUMER_STATS_SAMPLE_MS 10000
#define CONSUMER_STATS_SAMPLES 7
#define CONSUMER_STATS_MINUTES 60

struct consumer_counters {
    uint64_t pulls, pull_ms, pulled;
    uint64_t batches, batch_ms, consumed, failed;
};

struct consumer_stats {
    struct consumer_counters total;
    struct {
        int64_t at_ms;
        struct consumer_counters counters;
    } samples[CONSUMER_STATS_SAMPLES]; /* newest at `newest` */
    uint32_t newest, sample_count;
    int64_t minute;                          /* of failed_of[minute % 60] */
    uint32_t failed_of[CONSUMER_STATS_MINUTES];
};

/* RocketMQ's ConsumeStatus. */
struct consumer_status {
    double pull_rt_ms, pull_tps, consume_rt_ms, consume_ok_tps, consume_failed_tps;
    uint64_t consume_failed_messages; /* in the last hour */
};

/* now_ms: any clock that does not jump. */
void consumer_stats_pulled(struct consumer_stats *stats, int64_t now_ms, int64_t took_ms, uint64_t messages);
void consumer_stats_consumed(struct consumer_stats *stats, int64_t now_ms, int64_t took_ms, uint64_t consumed,
                             uint64_t failed);
void consumer_stats_read(struct consumer_stats *stats, int64_t now_ms, struct consumer_status *status);

#endif
