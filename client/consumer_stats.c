#include "client/consumer_stats.h"

#include <string.h>

static void sample(struct consumer_stats *stats, int64_t now_ms)
{
    if (stats->sample_count > 0 && now_ms - stats->samples[stats->newest].at_ms < CONSUMER_STATS_SAMPLE_MS)
        return;
    if (stats->sample_count > 0)
        stats->newest = (stats->newest + 1) % CONSUMER_STATS_SAMPLES;
    if (stats->sample_count < CONSUMER_STATS_SAMPLES)
        stats->sample_count++;
    stats->samples[stats->newest].at_ms = now_ms;
    stats->samples[stats->newest].counters = stats->total;
}

static void move_to_minute(struct consumer_stats *stats, int64_t now_ms)
{
    int64_t minute = now_ms / 60000;
    if (minute - stats->minute >= CONSUMER_STATS_MINUTES)
        memset(stats->failed_of, 0, sizeof stats->failed_of);
    else
        for (int64_t at = stats->minute + 1; at <= minute; at++)
            stats->failed_of[at % CONSUMER_STATS_MINUTES] = 0;
    stats->minute = minute;
}

void consumer_stats_pulled(struct consumer_stats *stats, int64_t now_ms, int64_t took_ms, uint64_t messages)
{
    sample(stats, now_ms);
    stats->total.pulls++;
    stats->total.pull_ms += (uint64_t)took_ms;
    stats->total.pulled += messages;
}

void consumer_stats_consumed(struct consumer_stats *stats, int64_t now_ms, int64_t took_ms, uint64_t consumed,
                             uint64_t failed)
{
    sample(stats, now_ms);
    move_to_minute(stats, now_ms);
    stats->total.batches++;
    stats->total.batch_ms += (uint64_t)took_ms;
    stats->total.consumed += consumed;
    stats->total.failed += failed;
    stats->failed_of[stats->minute % CONSUMER_STATS_MINUTES] += (uint32_t)failed;
}

/* The newest sample that is a minute old, or the oldest there is. */
static uint32_t minute_ago(const struct consumer_stats *stats, int64_t now_ms)
{
    uint32_t best = stats->newest;
    for (uint32_t back = 0; back < stats->sample_count; back++) {
        uint32_t at = (stats->newest + CONSUMER_STATS_SAMPLES - back) % CONSUMER_STATS_SAMPLES;
        best = at;
        if (now_ms - stats->samples[at].at_ms >= 60000)
            break;
    }
    return best;
}

void consumer_stats_read(struct consumer_stats *stats, int64_t now_ms, struct consumer_status *status)
{
    sample(stats, now_ms);
    move_to_minute(stats, now_ms);
    uint32_t at = minute_ago(stats, now_ms);
    const struct consumer_counters *then = &stats->samples[at].counters, *now = &stats->total;
    double seconds = (double)(now_ms - stats->samples[at].at_ms) / 1000;
    *status = (struct consumer_status){0};
    if (now->pulls > then->pulls)
        status->pull_rt_ms = (double)(now->pull_ms - then->pull_ms) / (double)(now->pulls - then->pulls);
    if (now->batches > then->batches)
        status->consume_rt_ms = (double)(now->batch_ms - then->batch_ms) / (double)(now->batches - then->batches);
    if (seconds > 0) {
        status->pull_tps = (double)(now->pulled - then->pulled) / seconds;
        status->consume_ok_tps = (double)(now->consumed - then->consumed) / seconds;
        status->consume_failed_tps = (double)(now->failed - then->failed) / seconds;
    }
    for (int i = 0; i < CONSUMER_STATS_MINUTES; i++)
        status->consume_failed_messages += stats->failed_of[i];
}
