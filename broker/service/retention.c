/* A look, step by step: (1) what is due: whole segments from the begin on, as long as a reason holds for each; (2) what stays all the same: the segment of
 * the oldest delayed or half message that waits, and that of the newest entry that all members have; (3) the record that says where the log begins. */
#include "broker/service/retention.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <uv.h>

#include "broker/broker.h"
#include "broker/metadata/consumer_offset.h"
#include "broker/metadata/metadata.h"
#include "broker/metadata/topic_config.h"
#include "broker/service/disk_level.h"
#include "dledger/dledger_commit_log.h"
#include "proto/topic_validator.h"
#include "store/log_sink.h"

#define HOUR_MS 3600000ll
#define TOLD_AGAIN_MS 60000ll
#define LOOKED_MAX 64 /* messages behind the one that is nearest in time */
#define FIRST_READS_MAX 100u /* queues whose first unit, and maybe its record, is read in a look; the others have their turn later */

struct retention {
    struct broker *broker;
    uv_timer_t timer;
    struct retention_counters counters;
    int64_t told_ms; /* when held_back was last logged */
    bool expiring;       /* a record of expire_one_topic() is on its way */
    uint64_t topic_turn; /* grows with each look: which topic's messages are looked at */
    uint64_t asked_at;   /* the segment whose first message was read last; 0 = none */
    int64_t asked_ms;    /* ... and when that was stored */
};

struct due {
    uint64_t position; /* everything before it is due */
    const char *why;
};

static uint64_t segment_begin(const struct broker *broker, uint64_t position)
{
    return position - position % (uint64_t)broker->config.mapped_file_size_commit_log;
}

bool retention_parse_hours(const char *text, uint32_t *hours)
{
    *hours = 0;
    do {
        char *end;
        long hour = strtol(text, &end, 10);
        if (end == text || hour < 0 || hour > 23 || (*end != '\0' && *end != ';'))
            return false;
        *hours |= 1u << hour;
        text = *end == ';' ? end + 1 : end;
    } while (*text != '\0');
    return true;
}

static bool is_hour(struct broker *broker)
{
    uint32_t hours;
    time_t now = (time_t)(env_now_ms(&broker->env) / 1000);
    struct tm local;
    return retention_parse_hours(broker->config.delete_when, &hours) && localtime_r(&now, &local) != NULL && (hours >> local.tm_hour & 1) != 0;
}

/* Begin of the last segment before which every message is older than fileReservedTime. Times grow with positions, so the first one of a segment tells about
 * those before; a segment that begins with many entries that are none tells nothing, and the next one is asked. */
static uint64_t old_until(struct retention *retention, uint64_t begin, uint64_t last)
{
    struct broker *broker = retention->broker;
    uint64_t segment = (uint64_t)broker->config.mapped_file_size_commit_log, until = begin;
    int64_t now_ms = env_now_ms(&broker->env);

    for (uint64_t at = begin + segment; at <= last; at += segment) {
        /* Mostly it is the one that was too young at the look before: the loop does not read it from the disk again. */
        int64_t time_ms = retention->asked_ms;
        if (at != retention->asked_at || time_ms < 0) {
            int64_t first = dledger_commit_log_first_message(broker->log, at);
            time_ms = first < 0 ? -1 : message_store_record_time(&broker->store, first);
            retention->asked_at = at;
            retention->asked_ms = time_ms;
        }
        if (time_ms >= 0 && now_ms - time_ms <= broker->config.file_reserved_time * HOUR_MS)
            break;
        if (time_ms >= 0)
            until = at;
    }
    return until;
}

/* Physical offset of the first message of a queue that waits at or behind `offset`; INT64_MAX = none. */
static int64_t waits_at(struct broker *broker, struct slice topic, int32_t queue_id, int64_t offset)
{
    struct error error;
    struct consume_queue_unit unit;
    struct consume_queue *queue = message_store_queue(&broker->store, topic, queue_id, false, &error);
    if (queue == NULL)
        return INT64_MAX;
    if (offset < queue->min_offset)
        offset = queue->min_offset;
    if (offset >= queue->max_offset)
        return INT64_MAX;
    /* Where its unit is damaged nothing goes until that is mended. */
    return message_store_unit(&broker->store, queue, offset, &unit) ? unit.physical_offset : 0;
}

static int64_t oldest_that_waits(struct broker *broker, const char **what)
{
    int64_t oldest = INT64_MAX;
    for (int level = 1; level <= METADATA_DELAY_LEVELS_MAX; level++) {
        int64_t at = waits_at(broker, SLICE_LITERAL(TOPIC_SCHEDULE), level - 1, metadata_delay_offset(broker->metadata, level));
        if (at < oldest) {
            oldest = at;
            *what = "a delayed message that is not delivered yet";
        }
    }
    const struct half *half = half_set_from(&broker->metadata->halves, 0);
    int64_t at = half == NULL ? INT64_MAX : waits_at(broker, SLICE_LITERAL(TOPIC_TRANS_HALF), 0, half->offset);
    if (at < oldest) {
        oldest = at;
        *what = "a half message that is not settled yet";
    }
    return oldest;
}

/* A record that deletes a topic is on its way. The list of queues that the trim record carries must not bring it back. */
static bool topic_is_deleted(struct broker *broker)
{
    for (const struct topic_entry *entry = broker->topics->entries; entry != NULL; entry = entry->hh.next) {
        if (entry->deleting)
            return true;
    }
    return false;
}

/* Messages before `position`, of one topic or (size 0) of all, that groups with an offset have not read. */
static uint64_t count_unread(struct broker *broker, struct slice topic, uint64_t position)
{
    uint64_t unread = 0;
    for (const struct consumer_offset_entry *entry = broker->offsets->entries; entry != NULL; entry = entry->hh.next) {
        for (uint32_t i = 0; i < entry->count && (topic.size == 0 || slice_equal(topic, entry->topic)); i++) {
            struct error error;
            const struct consume_queue *queue = message_store_queue(&broker->store, entry->topic, entry->queues[i].queue_id, false, &error);
            if (queue == NULL || entry->queues[i].offset >= queue->max_offset)
                continue;
            int64_t from = entry->queues[i].offset > queue->min_offset ? entry->queues[i].offset : queue->min_offset;
            int64_t to = consume_queue_lower_bound(queue, (int64_t)position);
            if (to > from)
                unread += (uint64_t)(to - from);
        }
    }
    return unread;
}

/* ---- topics whose messages expire after a time of their own (reserve.time) ---- */

static struct topic_entry *next_own(struct topic_entry *entry)
{
    while (entry != NULL && (entry->config.reserved_hours == 0 || entry->deleting))
        entry = entry->hh.next;
    return entry;
}

static uint32_t queues_of(const struct topic_entry *entry)
{
    int32_t read = entry->config.read_queue_nums, write = entry->config.write_queue_nums;
    return (uint32_t)(read > write ? read : write);
}

/* Physical offset of the first message of a queue that is younger than that; INT64_MAX = none, -1 = cannot be told now. */
static int64_t first_younger(struct broker *broker, struct slice topic, struct consume_queue *queue, int64_t oldest_ms)
{
    /* The nearest in time: it, or the one behind it, is the first one. Where the clock was put back a few more may be old; what is behind those stays. */
    int64_t offset = message_store_offset_by_time(&broker->store, topic, queue->queue_id, oldest_ms);
    struct consume_queue_unit unit;

    for (int looked = 0; offset < queue->max_offset; offset++, looked++) {
        if (!message_store_unit(&broker->store, queue, offset, &unit))
            return -1;
        int64_t time_ms = message_store_record_time(&broker->store, unit.physical_offset);
        if (time_ms < 0)
            return -1;
        if (time_ms > oldest_ms || looked == LOOKED_MAX)
            return unit.physical_offset;
    }
    return INT64_MAX;
}

/* Physical offset before which all messages of the topic are older than its hours; 0 = none is. */
static int64_t expired_until(struct broker *broker, const struct topic_entry *entry)
{
    int64_t oldest_ms = env_now_ms(&broker->env) - entry->config.reserved_hours * HOUR_MS;
    int64_t kept = INT64_MAX, end = 0;
    bool any = false;

    for (uint32_t id = 0; id < queues_of(entry); id++) {
        struct error error;
        struct consume_queue *queue = message_store_queue(&broker->store, entry->config.name, (int32_t)id, false, &error);
        int64_t first = queue == NULL ? INT64_MAX : message_store_first_physical(&broker->store, queue, true);
        if (first == INT64_MAX)
            continue;
        int64_t time_ms = first < 0 ? -1 : message_store_record_time(&broker->store, first);
        if (time_ms < 0)
            return 0; /* not now */
        if (time_ms <= oldest_ms) {
            any = true;
            first = first_younger(broker, entry->config.name, queue, oldest_ms);
            if (first < 0)
                return 0; /* not now */
        }
        if (first < kept)
            kept = first;
        if (queue->max_physical_offset > end)
            end = queue->max_physical_offset;
    }
    return !any ? 0 : kept == INT64_MAX ? end : kept;
}

static void on_expired(struct broker *broker, void *context, int code)
{
    struct retention *retention = context;
    (void)broker, (void)code; /* a record that was lost is made again */
    retention->expiring = false;
}

static void expire_one_topic(struct retention *retention)
{
    struct broker *broker = retention->broker;
    uint64_t count = 0, turn;
    struct topic_entry *entry;

    for (entry = next_own(broker->topics->entries); entry != NULL; entry = next_own(entry->hh.next))
        count++;
    if (count == 0 || retention->expiring)
        return;
    turn = retention->topic_turn++ % count;
    for (entry = next_own(broker->topics->entries); turn > 0; turn--)
        entry = next_own(entry->hh.next);
    int64_t position = expired_until(broker, entry);
    if (position <= entry->expired_position)
        return;
    Ledgermq__TopicExpiry expiry = LEDGERMQ__TOPIC_EXPIRY__INIT;
    Ledgermq__TopicExpiry *all[1] = {&expiry};
    Ledgermq__MetadataRecord record = LEDGERMQ__METADATA_RECORD__INIT;
    expiry.topic = entry->name;
    expiry.incarnation = entry->incarnation;
    expiry.position = position;
    record.n_expired = 1;
    record.expired = all;
    uint64_t unread = count_unread(broker, entry->config.name, (uint64_t)position);
    int rv = metadata_submit(broker, &record, on_expired, retention);
    if (rv != 0) {
        LOG_WARN("retention: expired messages of topic %s stay: %s", entry->name, error_text(rv));
        return;
    }
    retention->expiring = true;
    retention->counters.unread += unread;
    retention->counters.expiries++;
    LOG_INFO("retention: messages of topic %s before position %lld have expired; groups had not read %llu of them", entry->name, (long long)position,
             (unsigned long long)unread);
}

struct first_message {
    struct message_store *store;
    int64_t position; /* of the oldest that is there, in any queue */
    uint32_t reads;   /* left for this look */
    bool all_known;
};

/* -1: not known yet. Finding it out may wait for the disk, so no look does so for many queues; it is remembered. */
static int64_t first_of(struct first_message *first, struct consume_queue *queue)
{
    int64_t at = message_store_first_physical(first->store, queue, false);
    if (at < 0 && first->reads > 0) {
        first->reads--;
        at = message_store_first_physical(first->store, queue, true);
    }
    return at;
}

static void note_first(void *argument, struct consume_queue *queue)
{
    struct first_message *first = argument;
    int64_t at = first_of(first, queue);
    first->all_known = first->all_known && at >= 0;
    if (at >= 0 && at < first->position)
        first->position = at;
}

/* Topics with a time of their own: those with a longer one hold back what is older than fileReservedTime; and where nothing but expired messages of them
 * remains a segment goes before that. */
static uint64_t heed_topics(struct broker *broker, uint64_t old, uint64_t begin, uint64_t last)
{
    struct first_message first = {.store = &broker->store, .position = INT64_MAX, .reads = FIRST_READS_MAX, .all_known = true};
    bool shorter = false;

    for (struct topic_entry *entry = next_own(broker->topics->entries); entry != NULL; entry = next_own(entry->hh.next)) {
        shorter = shorter || entry->config.reserved_hours < broker->config.file_reserved_time;
        for (uint32_t id = 0; id < queues_of(entry) && entry->config.reserved_hours > broker->config.file_reserved_time; id++) {
            struct error error;
            struct consume_queue *queue = message_store_queue(&broker->store, entry->config.name, (int32_t)id, false, &error);
            int64_t position = queue == NULL ? INT64_MAX : first_of(&first, queue);
            if (position < (int64_t)begin) /* or it is not known yet */
                return begin;
            if ((uint64_t)position < old)
                old = segment_begin(broker, (uint64_t)position);
        }
    }
    if (!shorter)
        return old;
    message_store_each_queue(&broker->store, note_first, &first);
    uint64_t unused = first.position == INT64_MAX ? last : segment_begin(broker, (uint64_t)first.position);
    if (unused > last)
        unused = last;
    return first.all_known && unused > old ? unused : old;
}

static struct due find_due(struct retention *retention, const struct dledger_state *state, bool asked)
{
    struct broker *broker = retention->broker;
    uint64_t segment = (uint64_t)broker->config.mapped_file_size_commit_log;
    uint64_t begin = (uint64_t)state->trim_position;
    uint64_t last = segment_begin(broker, (uint64_t)state->committed_position); /* the segment of the newest entry stays */
    uint64_t size_max = (uint64_t)broker->config.log_bytes_max;
    int percent = disk_level_percent(broker);
    bool high = percent > broker->config.disk_max_used_space_ratio, higher = percent > broker->config.disk_space_clean_forcibly_ratio;
    struct due due = {begin, ""};
    while (size_max > 0 && due.position + segment <= last && (uint64_t)state->committed_position - due.position > size_max)
        due = (struct due){due.position + segment, "logBytesMax"};
    uint64_t old = asked || high || is_hour(broker) ? old_until(retention, due.position, last) : due.position;
    uint64_t heeded = heed_topics(broker, old, due.position, last);
    if (heeded > due.position)
        due = (struct due){heeded, heeded > old ? "reserve.time" : "fileReservedTime"};
    /* One segment a look, and the disk is asked again. */
    if (higher && broker->config.clean_file_forcibly_enable && due.position == begin && begin == (uint64_t)state->begin_position &&
        begin + segment <= last)
        due = (struct due){begin + segment, "diskSpaceCleanForciblyRatio"};
    return due;
}

static void tell_held_back(struct retention *retention, const char *text)
{
    int64_t now_ms = env_now_ms(&retention->broker->env);
    if (text[0] != '\0' && (strcmp(text, retention->counters.held_back) != 0 || now_ms - retention->told_ms >= TOLD_AGAIN_MS)) {
        LOG_WARN("retention: %s", text);
        retention->told_ms = now_ms;
    }
    snprintf(retention->counters.held_back, sizeof retention->counters.held_back, "%s", text);
}

int retention_look(struct retention *retention, bool asked)
{
    struct broker *broker = retention->broker;
    struct dledger_state state;
    char held[sizeof retention->counters.held_back] = "";
    retention->counters.looks++;
    if (broker->log == NULL || !dledger_commit_log_accepting(broker->log)) {
        tell_held_back(retention, "");
        return 0;
    }
    topic_config_settle(broker);
    dledger_commit_log_state(broker->log, &state);
    expire_one_topic(retention);
    struct due due = find_due(retention, &state, asked);
    uint64_t position = due.position;
    if (position <= (uint64_t)state.trim_position) {
        tell_held_back(retention, "");
        return 0;
    }
    const char *what = NULL;
    int64_t oldest = oldest_that_waits(broker, &what);
    if (oldest != INT64_MAX && segment_begin(broker, (uint64_t)oldest) < position) {
        position = segment_begin(broker, (uint64_t)oldest);
        snprintf(held, sizeof held, "the log is kept from position %llu on, though more is due: %s lies there", (unsigned long long)position, what);
    }
    int member;
    uint64_t limit = dledger_commit_log_trim_limit(broker->log, &member);
    if (limit < position) {
        position = limit;
        snprintf(held, sizeof held, "the log is kept from position %llu on, though more is due: member %s has no more on its disk, as far as is known",
                 (unsigned long long)position, member < 0 ? broker->config.self_id : state.members[member].id);
    }
    tell_held_back(retention, held);
    if (position <= (uint64_t)state.trim_position || topic_is_deleted(broker))
        return 0;
    uint64_t unread = count_unread(broker, slice_of(NULL, 0), position);
    int rv = dledger_commit_log_trim(broker->log, position);
    if (rv == ERROR_INVALID) /* the same was asked for and is not committed yet */
        return 0;
    if (rv != 0) {
        LOG_WARN("retention: the log cannot be trimmed to position %llu: %s", (unsigned long long)position, error_text(rv));
        return rv;
    }
    retention->counters.unread += unread;
    LOG_INFO("retention: the log's beginning up to position %llu is to go (%s); groups had not read %llu messages of it", (unsigned long long)position,
             asked ? "asked for" : due.why, (unsigned long long)unread);
    return 0;
}

static void on_timer(uv_timer_t *timer)
{
    struct retention *retention = timer->data;
    retention_look(retention, false);
    uv_timer_start(timer, on_timer, (uint64_t)retention->broker->config.clean_resource_interval, 0);
}

const struct retention_counters *retention_counters(const struct retention *retention)
{
    return &retention->counters;
}

struct retention *retention_new(struct broker *broker, struct error *error)
{
    struct retention *retention = calloc(1, sizeof *retention);
    if (retention == NULL) {
        error_set(error, ERROR_NO_MEMORY, "retention: out of memory");
        return NULL;
    }
    retention->broker = broker;
    uv_timer_init(broker->loop, &retention->timer);
    retention->timer.data = retention;
    uv_unref((uv_handle_t *)&retention->timer);
    uv_timer_start(&retention->timer, on_timer, (uint64_t)broker->config.clean_resource_interval, 0);
    return retention;
}

void retention_close(struct retention *retention)
{
    if (retention != NULL && !uv_is_closing((uv_handle_t *)&retention->timer))
        uv_close((uv_handle_t *)&retention->timer, NULL);
}

void retention_free(struct retention *retention)
{
    free(retention);
}
