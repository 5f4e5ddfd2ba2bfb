#include "broker/broker_stats.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "broker/broker.h"
#include "broker/broker_stats_manager.h"
#include "broker/log.h"
#include "broker/memory_budget.h"
#include "broker/metadata/metadata.h"
#include "broker/processor/cold_read.h"
#include "broker/processor/pull_hold.h"
#include "broker/processor/send_message_processor.h"
#include "broker/remoting/client_call.h"
#include "broker/remoting/client_registry.h"
#include "broker/remoting/forward.h"
#include "broker/remoting/listener.h"
#include "broker/service/disk_level.h"
#include "broker/service/retention.h"
#include "broker/service/schedule.h"
#include "broker/service/transaction.h"
#include "proto/topic_validator.h"

#define SLOW_PUT_US 500000u /* DefaultMessageStore#putMessage */
#define SLOW_LINES_PER_SECOND 10
#define SAMPLE_MS 1000u
#define SAMPLES 601u /* ten minutes and the one to subtract from */
#define VERSION_NAME "V4_9_8"

/* StoreStatsService#PUT_MESSAGE_ENTIRE_TIME_MAX_DESC */
static const struct {
    const char *name;
    uint32_t below_ms; /* exclusive */
} distribution_rows[] = {
    {"[<=0ms]", 1},        {"[0~10ms]", 10},      {"[10~50ms]", 50},   {"[50~100ms]", 100}, {"[100~200ms]", 200},
    {"[200~500ms]", 500},  {"[500ms~1s]", 1000},  {"[1~2s]", 2000},    {"[2~3s]", 3000},    {"[3~4s]", 4000},
    {"[4~5s]", 5000},      {"[5~10s]", 10000},    {"[10s~]", UINT32_MAX},
};
#define DISTRIBUTIONS (sizeof distribution_rows / sizeof distribution_rows[0])

/* Latency buckets: 16 to each power of two of microseconds, so that a percentile is within 6 %. */
#define LATENCY_SUB 16u
#define LATENCY_BUCKETS (40u * LATENCY_SUB)

static const struct {
    const char *name, *remark;
} limit_rows[LIMIT_HIT_COUNT] = {
#define X(name, key, text) [LIMIT_HIT_##name] = {key, "limit reached: " text " (" key ")"},
    BROKER_LIMITS(X)
#undef X
};

struct sample {
    uint64_t at_us;
    uint64_t put;
    uint64_t get_found;
    uint64_t get_miss;
    uint64_t transferred;
};

struct broker_stats {
    struct broker *broker;
    uint64_t put_times, put_failed, put_bytes;
    uint64_t put_us_max, get_us_max;
    uint64_t get_found, get_miss, transferred, get_bytes;
    uint64_t limits[LIMIT_HIT_COUNT];
    enum broker_limit last_limit; /* that was met */
    uint64_t distribution[DISTRIBUTIONS];      /* of the minute that runs */
    uint64_t distribution_last[DISTRIBUTIONS]; /* of the one before */
    uint64_t latency[LATENCY_BUCKETS];
    uint64_t latency_last[LATENCY_BUCKETS];
    uint32_t minute_samples;

    struct sample samples[SAMPLES]; /* ring */
    uint32_t sample_count, sample_at;
    uv_timer_t timer;
    struct stats_item *broker_put, *broker_get; /* held; made by their first event */
    struct log_limiter slow_limiter;

    int day; /* of the year, local time; counts at the last midnights */
    uint64_t put_yesterday, put_today, get_yesterday, get_today;
    bool closed;
};

/* ---- counting ---- */

static unsigned latency_bucket(uint64_t microseconds)
{
    if (microseconds < LATENCY_SUB)
        return (unsigned)microseconds;
    unsigned power = 63u - (unsigned)__builtin_clzll(microseconds);
    unsigned bucket = (power - 3) * LATENCY_SUB + (unsigned)(microseconds >> (power - 4) & (LATENCY_SUB - 1));
    return bucket < LATENCY_BUCKETS ? bucket : LATENCY_BUCKETS - 1;
}

/* Smallest value of a bucket. */
static double latency_value(unsigned bucket)
{
    if (bucket < LATENCY_SUB)
        return bucket;
    unsigned power = bucket / LATENCY_SUB + 3;
    return (double)((uint64_t)(LATENCY_SUB + bucket % LATENCY_SUB) << (power - 4));
}

void broker_stats_put(struct broker_stats *stats, uint32_t messages, uint64_t bytes, uint64_t microseconds)
{
    stats->put_times += messages;
    stats->put_bytes += bytes;
    if (microseconds > stats->put_us_max)
        stats->put_us_max = microseconds;
    stats->latency[latency_bucket(microseconds)]++;
    uint64_t ms = microseconds / 1000;
    unsigned i = 0;
    while (i + 1 < DISTRIBUTIONS && ms >= distribution_rows[i].below_ms)
        i++;
    stats->distribution[i]++;
}

static struct stats_item *broker_item(struct broker_stats *stats, enum stats_kind kind, struct stats_item **item)
{
    if (*item == NULL) {
        *item = broker_stats_manager_item(stats->broker->item_stats, kind, slice_of_text(stats->broker->config.broker_cluster_name), 0,
                                          slice_of(NULL, 0));
        stats_item_hold(*item);
    }
    return *item;
}

void broker_stats_put_topic(struct broker_stats *stats, struct stats_item *item, uint32_t messages, uint64_t bytes, uint64_t microseconds)
{
    uint64_t suppressed;
    broker_stats_put(stats, messages, bytes, microseconds);
    stats_item_add(item, messages, bytes);
    stats_item_add(broker_item(stats, STATS_BROKER_PUT, &stats->broker_put), messages, 0);
    if (microseconds > SLOW_PUT_US && log_limiter_pass(&stats->slow_limiter, env_now_ms(&stats->broker->env), &suppressed))
        LOG_WARN("a send to %s took %llu ms, %u messages, %llu bytes (%llu more lines like this left out)",
                 item == NULL ? "a topic that is not counted" : (const char *)stats_item_key(item).data, (unsigned long long)microseconds / 1000,
                 messages, (unsigned long long)bytes, (unsigned long long)suppressed);
}

void broker_stats_put_failed(struct broker_stats *stats)
{
    stats->put_failed++;
}

void broker_stats_get(struct broker_stats *stats, bool found, uint32_t messages, uint64_t bytes, uint64_t microseconds)
{
    if (found)
        stats->get_found++;
    else
        stats->get_miss++;
    if (found)
        stats_item_add(broker_item(stats, STATS_BROKER_GET, &stats->broker_get), messages, 0);
    stats->transferred += messages;
    stats->get_bytes += bytes;
    if (microseconds > stats->get_us_max)
        stats->get_us_max = microseconds;
}

const char *broker_stats_refuse(struct broker_stats *stats, enum broker_limit which)
{
    if (stats != NULL) {
        stats->limits[which]++;
        stats->last_limit = which;
    }
    return limit_rows[which].remark;
}

int broker_stats_busy(struct broker_stats *stats, enum broker_limit which)
{
    (void)broker_stats_refuse(stats, which);
    return ERROR_BUSY;
}

const char *broker_stats_busy_remark(const struct broker_stats *stats)
{
    return limit_rows[stats->last_limit].remark;
}

static void take_sample(struct broker_stats *stats)
{
    struct sample *sample = &stats->samples[stats->sample_at];
    *sample = (struct sample){
        .at_us = env_monotonic_us(&stats->broker->env),
        .put = stats->put_times,
        .get_found = stats->get_found,
        .get_miss = stats->get_miss,
        .transferred = stats->transferred,
    };
    stats->sample_at = (stats->sample_at + 1) % SAMPLES;
    if (stats->sample_count < SAMPLES)
        stats->sample_count++;
}

static int day_of(int64_t now_ms)
{
    time_t seconds = (time_t)(now_ms / 1000);
    struct tm tm;
    localtime_r(&seconds, &tm);
    return tm.tm_yday;
}

static void on_timer(uv_timer_t *timer)
{
    struct broker_stats *stats = timer->data;
    take_sample(stats);
    broker_stats_manager_tick(stats->broker->item_stats);
    if (++stats->minute_samples < 60)
        return;
    stats->minute_samples = 0;
    memcpy(stats->distribution_last, stats->distribution, sizeof stats->distribution);
    memset(stats->distribution, 0, sizeof stats->distribution);
    memcpy(stats->latency_last, stats->latency, sizeof stats->latency);
    memset(stats->latency, 0, sizeof stats->latency);
    int day = day_of(env_now_ms(&stats->broker->env));
    if (day != stats->day) { /* BrokerStats#record: counts as they were this and the last midnight, to the minute */
        stats->day = day;
        stats->put_yesterday = stats->put_today;
        stats->put_today = stats->put_times;
        stats->get_yesterday = stats->get_today;
        stats->get_today = stats->transferred;
    }
}

struct broker_stats *broker_stats_new(struct broker *broker)
{
    struct broker_stats *stats = calloc(1, sizeof *stats);
    if (stats == NULL)
        return NULL;
    stats->broker = broker;
    stats->slow_limiter.burst = SLOW_LINES_PER_SECOND;
    stats->day = day_of(env_now_ms(&broker->env));
    take_sample(stats);
    uv_timer_init(broker->loop, &stats->timer);
    stats->timer.data = stats;
    uv_timer_start(&stats->timer, on_timer, SAMPLE_MS, SAMPLE_MS);
    uv_unref((uv_handle_t *)&stats->timer);
    return stats;
}

void broker_stats_close(struct broker_stats *stats)
{
    if (stats->closed)
        return;
    stats->closed = true;
    uv_close((uv_handle_t *)&stats->timer, NULL);
}

void broker_stats_free(struct broker_stats *stats)
{
    free(stats);
}

/* ---- the table ---- */

static void put(const struct broker_stats_sink *sink, const char *key, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void put(const struct broker_stats_sink *sink, const char *key, const char *format, ...)
{
    char value[512];
    va_list args;
    va_start(args, format);
    vsnprintf(value, sizeof value, format, args);
    va_end(args);
    sink->put(sink->context, key, value);
}

static uint64_t field(const struct sample *sample, size_t offset)
{
    uint64_t value;
    memcpy(&value, (const uint8_t *)sample + offset, sizeof value);
    return value;
}

/* Rates of the last 10, 60 and 600 s with a space between; windows without enough samples are empty. `second`: a field to be added. */
static void put_tps(const struct broker_stats *stats, const struct broker_stats_sink *sink, const char *key, size_t offset, size_t second)
{
    static const uint32_t windows[] = {10, 60, 600};
    char text[128] = "";
    size_t size = 0;
    for (size_t i = 0; i < 3; i++) {
        if (i > 0)
            text[size++] = ' ';
        if (stats->sample_count <= windows[i]) {
            /* Left out, but not its space. Readers split at spaces and want a first number: a broker younger than 10 s says 0. */
            size += (size_t)snprintf(text + size, sizeof text - size, "%s", i == 0 ? "0.0" : "");
            continue;
        }
        const struct sample *newest = &stats->samples[(stats->sample_at + SAMPLES - 1) % SAMPLES];
        const struct sample *oldest = &stats->samples[(stats->sample_at + SAMPLES - 1 - windows[i]) % SAMPLES];
        uint64_t count = field(newest, offset) - field(oldest, offset);
        if (second != offset)
            count += field(newest, second) - field(oldest, second);
        uint64_t us = newest->at_us - oldest->at_us;
        double tps = us == 0 ? 0 : (double)count * 1e6 / (double)us;
        size += (size_t)snprintf(text + size, sizeof text - size, "%.2f", tps);
    }
    text[size] = 0;
    put(sink, key, "%s", text);
}

static double percentile_ms(const struct broker_stats *stats, double part)
{
    /* The running minute alone is too short right after it began. */
    uint64_t total = 0, seen = 0;
    for (unsigned i = 0; i < LATENCY_BUCKETS; i++)
        total += stats->latency[i] + stats->latency_last[i];
    uint64_t rank = (uint64_t)ceil((double)total * part);
    for (unsigned i = 0; i < LATENCY_BUCKETS; i++) {
        seen += stats->latency[i] + stats->latency_last[i];
        if (total > 0 && seen >= rank)
            return latency_value(i) / 1000;
    }
    return 0;
}

static void human_size(uint64_t bytes, char out[32])
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)bytes;
    if (bytes < 1024) {
        snprintf(out, 32, "%llu B", (unsigned long long)bytes);
        return;
    }
    unsigned unit = 0;
    value /= 1024;
    while (value >= 1024 && unit + 1 < sizeof units / sizeof units[0]) {
        value /= 1024;
        unit++;
    }
    snprintf(out, 32, "%.1f %s", value, units[unit]);
}

static void put_traffic(const struct broker_stats *stats, const struct broker_stats_sink *sink)
{
    const struct broker *broker = stats->broker;
    int64_t seconds = (env_now_ms(&stats->broker->env) - broker->boot_ms) / 1000;
    put(sink, "brokerVersionDesc", "%s", VERSION_NAME);
    put(sink, "brokerVersion", "%d", REMOTING_VERSION);
    put(sink, "bootTimestamp", "%lld", (long long)broker->boot_ms);
    put(sink, "runtime", "[ %lld days, %lld hours, %lld minutes, %lld seconds ]", (long long)seconds / 86400,
        (long long)seconds / 3600 % 24, (long long)seconds / 60 % 60, (long long)seconds % 60);
    put(sink, "startAcceptSendRequestTimeStamp", "%lld", (long long)broker->config.start_accept_send_request_time_stamp);

    put(sink, "msgPutTotalYesterdayMorning", "%llu", (unsigned long long)stats->put_yesterday);
    put(sink, "msgPutTotalTodayMorning", "%llu", (unsigned long long)stats->put_today);
    put(sink, "msgPutTotalTodayNow", "%llu", (unsigned long long)stats->put_times);
    put(sink, "msgGetTotalYesterdayMorning", "%llu", (unsigned long long)stats->get_yesterday);
    put(sink, "msgGetTotalTodayMorning", "%llu", (unsigned long long)stats->get_today);
    put(sink, "msgGetTotalTodayNow", "%llu", (unsigned long long)stats->transferred);

    put_tps(stats, sink, "putTps", offsetof(struct sample, put), offsetof(struct sample, put));
    put_tps(stats, sink, "getTotalTps", offsetof(struct sample, get_found), offsetof(struct sample, get_miss));
    put_tps(stats, sink, "getFoundTps", offsetof(struct sample, get_found), offsetof(struct sample, get_found));
    put_tps(stats, sink, "getMissTps", offsetof(struct sample, get_miss), offsetof(struct sample, get_miss));
    put_tps(stats, sink, "getTransferedTps", offsetof(struct sample, transferred), offsetof(struct sample, transferred));
    put_tps(stats, sink, "getTransferredTps", offsetof(struct sample, transferred), offsetof(struct sample, transferred));

    /* 0 is reported as 1, as in Java, whose readers divide by it. */
    put(sink, "putMessageTimesTotal", "%llu", (unsigned long long)(stats->put_times == 0 ? 1 : stats->put_times));
    put(sink, "putMessageFailedTimes", "%llu", (unsigned long long)stats->put_failed);
    put(sink, "putMessageSizeTotal", "%llu", (unsigned long long)stats->put_bytes);
    put(sink, "putMessageAverageSize", "%.2f", stats->put_times == 0 ? 0 : (double)stats->put_bytes / (double)stats->put_times);
    put(sink, "putMessageEntireTimeMax", "%llu", (unsigned long long)stats->put_us_max / 1000);
    put(sink, "getMessageEntireTimeMax", "%llu", (unsigned long long)stats->get_us_max / 1000);
    char text[512];
    size_t size = 0;
    /* Java's last full minute alone says nothing of a new broker, or of a load that has just begun. */
    for (size_t i = 0; i < DISTRIBUTIONS; i++)
        size += (size_t)snprintf(text + size, sizeof text - size, "%s:%llu ", distribution_rows[i].name,
                                 (unsigned long long)(stats->distribution[i] + stats->distribution_last[i]));
    put(sink, "putMessageDistributeTime", "%s", text);
    put(sink, "putLatency99", "%.2f", percentile_ms(stats, 0.99));
    put(sink, "putLatency999", "%.2f", percentile_ms(stats, 0.999));
}

/* Pulls or queries that wait for old records to come from the disk. */
static void put_cold_reads(const struct broker_stats *stats, const struct broker_stats_sink *sink, const char *name, enum cold_read_kind kind)
{
    uint64_t wait_ms;
    uint32_t jobs = cold_reader_jobs(stats->broker->cold_reads, kind, &wait_ms);
    char key[48];
    snprintf(key, sizeof key, "%sThreadPoolQueueSize", name);
    put(sink, key, "%u", jobs);
    snprintf(key, sizeof key, "%sThreadPoolQueueCapacity", name);
    put(sink, key, "%u", LIMIT_COLD_WAITING + LIMIT_COLD_READS);
    snprintf(key, sizeof key, "%sThreadPoolQueueHeadWaitTimeMills", name);
    put(sink, key, "%llu", (unsigned long long)wait_ms);
}

/* This broker has no thread pools; the keys are there because the exporter fails as a whole without them. What waits is shown. */
static void put_queues(const struct broker_stats *stats, const struct broker_stats_sink *sink)
{
    struct broker *broker = stats->broker;
    put(sink, "sendThreadPoolQueueSize", "%u", send_message_processor_pending(broker->sends));
    put(sink, "sendThreadPoolQueueCapacity", "%u", LIMIT_PENDING_SENDS);
    put(sink, "sendThreadPoolQueueHeadWaitTimeMills", "%llu", (unsigned long long)send_message_processor_oldest_ms(broker->sends));
    put_cold_reads(stats, sink, "pull", COLD_READ_PULL);
    put_cold_reads(stats, sink, "query", COLD_READ_QUERY);
    put(sink, "EndTransactionQueueSize", "%u", end_transactions_pending(transaction_ends(broker->transactions)));
    put(sink, "EndTransactionThreadPoolQueueCapacity", "%u", LIMIT_ENDS_IN_FLIGHT);
    put(sink, "remainTransientStoreBufferNumbs", "2147483647"); /* Java's with its pool off: there is none here */
}

static void put_store(const struct broker_stats *stats, const struct broker_stats_sink *sink, const struct dledger_state *state)
{
    struct broker *broker = stats->broker;
    const struct log_view *log = &broker->store.log;
    int64_t min_offset = state->trim_position, max_offset = log->committed_offset(log->context);
    uint64_t free_bytes = 0, total_bytes = 0;
    char total_text[32], free_text[32], key[640];
    (void)broker->env.ops->space(&broker->env, broker->config.store_path_root_dir, &free_bytes, &total_bytes);
    int percent = disk_level_percent(broker);
    double ratio = percent < 0 ? -1 : percent / 100.0;
    put(sink, "commitLogMinOffset", "%lld", (long long)min_offset);
    put(sink, "commitLogMaxOffset", "%lld", (long long)max_offset);
    put(sink, "dispatchMaxBuffer", "0"); /* always, as in Java */
    put(sink, "messagesNotIndexed", "%llu", (unsigned long long)message_store_not_indexed(&broker->store));
    /* Written, but not in the queues yet: it waits for the quorum, or for a start to catch up. */
    int64_t behind = state->end_position - broker->store.dispatched_offset;
    put(sink, "dispatchBehindBytes", "%lld", (long long)(behind > 0 ? behind : 0));
    human_size(total_bytes, total_text);
    human_size(free_bytes, free_text);
    put(sink, "commitLogDirCapacity", "Total : %s, Free : %s.", total_text, free_text);
    put(sink, "commitLogDiskRatio", "%.4f", ratio);
    snprintf(key, sizeof key, "commitLogDiskRatio_%s", broker->config.store_path_root_dir);
    put(sink, key, "%.4f", ratio);
    put(sink, "consumeQueueDiskRatio", "%.4f", ratio);
    put(sink, "diskLevel", "%s", disk_level_name(&broker->config, percent));
    put(sink, "earliestMessageTimeStamp", "%lld", (long long)message_store_earliest_time(&broker->store));
    /* Java's is how long an append holds the lock of the log; here the one thing that can hold it up is the disk. */
    put(sink, "pageCacheLockTimeMills", "%llu", (unsigned long long)state->sync_age_ms);
    int64_t unsynced = state->end_position - state->synced_position;
    human_size((uint64_t)(unsynced > 0 ? unsynced : 0), total_text);
    put(sink, "remainHowManyDataToFlush", "%s", total_text);
    for (int i = 1; i <= broker->config.delay_levels; i++) {
        snprintf(key, sizeof key, "scheduleMessageOffset_%d", i);
        put(sink, key, "%lld,%lld", (long long)metadata_delay_offset(broker->metadata, i),
            (long long)message_store_max_offset(&broker->store, SLICE_LITERAL(TOPIC_SCHEDULE), i - 1));
    }
}

static void put_raft(const struct broker_stats *stats, const struct broker_stats_sink *sink, const struct dledger_state *state)
{
    const struct broker *broker = stats->broker;
    put(sink, "brokerRole", "%s", state->role == DLEDGER_LEADER ? "SYNC_MASTER" : "SLAVE");
    const char *own_role = state->removed ? "REMOVED" : dledger_role_name(state->role);
    for (int i = 0; i < state->member_count; i++) {
        if (state->members[i].self && !state->members[i].voter && state->role == DLEDGER_FOLLOWER)
            own_role = "LEARNER";
    }
    put(sink, "raftRole", "%s", own_role);
    put(sink, "raftAccepting", "%s", state->accepting ? "true" : "false");
    put(sink, "raftTerm", "%llu", (unsigned long long)state->term);
    put(sink, "raftLeader", "%s", state->leader < 0 ? "" : state->members[state->leader].id);
    put(sink, "raftSelf", "%s", broker->config.self_id);
    put(sink, "raftGroup", "%s", broker->config.group);
    put(sink, "raftLastIndex", "%lld", (long long)state->last_index);
    put(sink, "raftCommitIndex", "%lld", (long long)state->commit_index);
    put(sink, "raftAppliedIndex", "%lld", (long long)state->applied_index);
    put(sink, "raftCommittedPosition", "%lld", (long long)state->committed_position);
    put(sink, "raftBeginPosition", "%lld", (long long)state->begin_position);
    put(sink, "raftTrimPosition", "%lld", (long long)state->trim_position);
    put(sink, "segmentsDeleted", "%llu", (unsigned long long)state->trimmed_segments);
    const struct retention_counters *retention = retention_counters(broker->retention);
    put(sink, "retentionLooks", "%llu", (unsigned long long)retention->looks);
    put(sink, "topicExpiries", "%llu", (unsigned long long)retention->expiries);
    put(sink, "messagesDeletedUnread", "%llu", (unsigned long long)retention->unread);
    put(sink, "retentionHeldBack", "%s", retention->held_back[0] != '\0' ? retention->held_back : "nothing");
    put(sink, "raftDurability", "%s", state->durability == DURABILITY_B ? "B" : "A");
    put(sink, "raftUpSince", "%lld", (long long)state->up_since_ms);
    put(sink, "raftFdatasyncCount", "%llu", (unsigned long long)state->fdatasync_count);
    put(sink, "raftTurnMaxMicros", "%llu", (unsigned long long)state->turn_us_max);
    put(sink, "raftFailed", "%s", state->failed ? "true" : "false");
    if (state->fetched_of > 0)
        put(sink, "raftBulkFetch", "%lld percent, %lld of %lld MiB", (long long)(state->fetched_bytes * 100 / state->fetched_of),
            (long long)(state->fetched_bytes >> 20), (long long)(state->fetched_of >> 20));
    else
        put(sink, "raftBulkFetch", "%s", "none");
    put(sink, "raftScrubPasses", "%llu", (unsigned long long)state->scrub_passes);
    put(sink, "queueUnitsMended", "%llu", (unsigned long long)state->mended_units);
    put(sink, "raftScrubPosition", "%lld", (long long)state->scrub_position);
    put(sink, "indexFilesDamaged", "%llu", (unsigned long long)state->index_damaged);
    put(sink, "indexFilesRebuilt", "%llu", (unsigned long long)state->index_rebuilt);
    put(sink, "raftDamagedRanges", "%u", state->damaged_ranges);
    put(sink, "raftRepairedEntries", "%llu", (unsigned long long)state->repaired_entries);
    put(sink, "raftDiskFull", "%s", state->disk_full ? "true" : "false");
    put(sink, "raftForcedRecoveries", "%llu", (unsigned long long)state->forced_recoveries);
    put(sink, "raftDiskSlow", "%s", state->slow_disk ? "true" : "false");
    for (int i = 0; i < state->member_count; i++) {
        const struct dledger_member *member = &state->members[i];
        char key[32];
        bool leads = i == state->leader;
        int64_t match = -1, lag = -1;
        if (member->self)
            match = state->last_index;
        else if (state->role == DLEDGER_LEADER && member->match_index != UINT64_MAX)
            match = (int64_t)member->match_index;
        if (match >= 0 && (state->role == DLEDGER_LEADER || leads))
            lag = state->last_index - match;
        const char *role = leads ? "LEADER" : !member->voter ? "LEARNER" : member->self ? dledger_role_name(state->role) : member->connected ? "FOLLOWER" : "UNKNOWN";
        const char *broker_address = member->self ? broker->address : member->broker_address;
        snprintf(key, sizeof key, "raftMember_%s", member->id);
        char version_key[40];
        snprintf(version_key, sizeof version_key, "raftPeerVersion_%s", member->id);
        put(sink, version_key, "%u", member->peer_version);
        if (member->fetched_percent >= 0) {
            char fetch_key[40];
            snprintf(fetch_key, sizeof fetch_key, "raftBulkFetch_%s", member->id);
            put(sink, fetch_key, "%d percent", member->fetched_percent);
        }
        put(sink, key, "%s,%s,%lld,%lld,%s,%s", member->address, role, (long long)match, (long long)lag,
            member->self || member->connected ? "true" : "false", broker_address);
    }
}

static void put_limits(const struct broker_stats *stats, const struct broker_stats_sink *sink)
{
    struct broker *broker = stats->broker;
    const struct remoting_server_counters *counters = remoting_server_counters(broker->server);
    uint64_t cold_reads, cold_queue_reads;
    put(sink, "connectionCount", "%u", remoting_server_connection_count(broker->server));
    put(sink, "heldPulls", "%u", pull_hold_count(broker->holds));
    put(sink, "parkedRequests", "%u", forward_parked(broker->forward));
    put(sink, "pendingSends", "%u", send_message_processor_pending(broker->sends));
    cold_reader_counts(broker->cold_reads, &cold_reads, &cold_queue_reads);
    put(sink, "coldReads", "%llu", (unsigned long long)cold_reads);
    put(sink, "coldQueueReads", "%llu", (unsigned long long)cold_queue_reads);
    put(sink, "clientCalls", "%u", client_call_count(broker->calls));
    put(sink, "subscriptionConflicts", "%llu", (unsigned long long)broker->clients->subscription_conflicts);
    put(sink, "statsItems", "%u", broker_stats_manager_count(broker->item_stats));
    put(sink, "limit_statsItems", "%llu", (unsigned long long)broker_stats_manager_refused(broker->item_stats));
    for (unsigned i = 0; i < LIMIT_HIT_COUNT; i++)
        put(sink, limit_rows[i].name, "%llu", (unsigned long long)stats->limits[i]);
    put(sink, "limit_connections", "%llu", (unsigned long long)counters->refused);
    put(sink, "limit_unsentBytes", "%llu", (unsigned long long)counters->cut_slow);
    put(sink, "limit_inputBytes", "%llu", (unsigned long long)counters->cut_input);
    put(sink, "limit_frameTime", "%llu", (unsigned long long)counters->cut_frame);
    put(sink, "limit_acceptsTurn", "%llu", (unsigned long long)counters->accepts_deferred);
    put(sink, "limit_turnMicros", "%llu", (unsigned long long)counters->turns_full);
    put(sink, "bufferMemory", "%llu", (unsigned long long)memory_budget_used(broker));
    put(sink, "connectionsIdleClosed", "%llu", (unsigned long long)counters->cut_idle);
    put(sink, "connectionsMalformed", "%llu", (unsigned long long)counters->cut_malformed);
    put(sink, "framesReceived", "%llu", (unsigned long long)counters->frames);
    put(sink, "bytesReceived", "%llu", (unsigned long long)counters->bytes_in);
    put(sink, "bytesSent", "%llu", (unsigned long long)counters->bytes_out);
}

void broker_stats_runtime_table(struct broker *broker, const struct broker_stats_sink *sink)
{
    struct dledger_state state;
    dledger_commit_log_state(broker->log, &state);
    put_traffic(broker->stats, sink);
    put_queues(broker->stats, sink);
    put_store(broker->stats, sink, &state);
    put_raft(broker->stats, sink, &state);
    put_limits(broker->stats, sink);
}
