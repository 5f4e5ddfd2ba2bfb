/* Delivery, on the leader:
 *  1. Each level has a cursor into its schedule queue; the unit's tags code says when that message is due. One timer waits for the earliest.
 *  2. Messages that are due are read (by the pool when old) and appended under their real topic, with the Consumed trailer.
 *  3. Applying such an entry moves the replicated progress, here and on the followers.
 *
 * Once in the log, an entry is never appended a second time by the same leader, also when its quorum is late: it will commit, or this
 * leader falls. A new leader starts at the progress that stands when its barrier is applied, so everything of its predecessors is counted.
 */
#include "broker/service/schedule.h"

#include <assert.h>
#include <stdlib.h>

#include "broker/broker.h"
#include "broker/broker_stats.h"
#include "broker/broker_stats_manager.h"
#include "broker/log.h"
#include "broker/metadata/metadata.h"
#include "broker/metadata/topic_config.h"
#include "broker/processor/cold_read.h"
#include "broker/processor/message_append.h"
#include "broker/service/leadership.h"
#include "proto/topic_validator.h"
#include "store/seeded_bug.h"

#define RETRY_MS 100
#define LOOK_AGAIN_MS 5000 /* a wall clock that was set does not move the loop's timers */
#define TRAILER_BYTES_MAX 64
#define DELAY_UNKNOWN_MS (100ll * 366 * 24 * 3600 * 1000) /* of a level that is configured no longer: its units say when they are due */

struct delivery {
    struct append_entry_request append; /* first */
    struct schedule *schedule;
    struct delivery *next_free;
    struct stats_item *stats; /* of the real topic; held */
    int level;
    int64_t offset; /* of the schedule queue */
    uint64_t epoch;
    uint32_t bytes; /* of the record */
    uint64_t started_us;
};

struct schedule_read {
    struct cold_read read; /* first */
    struct schedule *schedule;
    uint64_t epoch;
    int level;
    int64_t first_offset;
    bool due; /* what was asked for is */
};

struct schedule_level {
    int64_t next;   /* schedule-queue offset to deliver next */
    int64_t due_ms; /* wall clock; INT64_MAX = nothing waits */
    struct schedule_sight sight;
    bool reading;   /* the pool reads the records at next */
};

struct schedule {
    struct broker *broker;
    uv_timer_t timer;
    bool timer_set;
    int64_t timer_due_ms;
    struct leadership leadership;
    /* All levels that there can be: messages may wait in one that the configuration no longer has. */
    struct schedule_level levels[LIMIT_DELAY_LEVELS + 1];
    uint32_t in_flight;
    struct delivery *deliveries; /* LIMIT_DELAY_IN_FLIGHT, made at the first delivery */
    struct delivery *free_deliveries;
    bool closed;
};

/* ---- arithmetic ---- */

int schedule_parse_levels(const char *text, int64_t level_ms[LIMIT_DELAY_LEVELS + 1], int *count, struct error *error)
{
    const char *at = text;
    int n = 0;
    level_ms[0] = 0;
    for (;;) {
        at += strspn(at, " \t");
        if (*at == '\0')
            break;
        size_t size = strcspn(at, " \t");
        int64_t number, unit;
        switch (at[size - 1]) {
        case 's':
            unit = 1000;
            break;
        case 'm':
            unit = 60 * 1000;
            break;
        case 'h':
            unit = 3600 * 1000;
            break;
        case 'd':
            unit = 24 * 3600 * 1000;
            break;
        default:
            unit = 0;
        }
        if (unit == 0 || !slice_to_i64(slice_of(at, size - 1), &number) || number < 0 || number > 36500)
            return error_set(error, ERROR_INVALID, "\"%.*s\" is no delay: a number and s, m, h or d", size > 32 ? 32 : (int)size, at);
        if (n == (int)LIMIT_DELAY_LEVELS)
            return error_set(error, ERROR_INVALID, "more than %u delay levels", LIMIT_DELAY_LEVELS);
        level_ms[++n] = number * unit;
        at += size;
    }
    if (n == 0)
        return error_set(error, ERROR_INVALID, "no delay level");
    *count = n;
    return 0;
}

int schedule_level(struct slice delay, int level_count)
{
    int32_t level;
    if (delay.data == NULL || !slice_to_i32(delay, &level) || level <= 0)
        return 0;
    return level > level_count ? level_count : level;
}

int64_t schedule_due_ms(int64_t deliver_at_ms, int64_t now_ms, int64_t waited_ms, int64_t delay_ms)
{
    int64_t at_last_ms = now_ms - waited_ms + delay_ms;
    return deliver_at_ms < at_last_ms ? deliver_at_ms : at_last_ms;
}

int64_t schedule_waited_ms(struct schedule_sight *sight, int64_t offset, int64_t end, uint64_t now_us)
{
    if (offset >= sight->end)
        *sight = (struct schedule_sight){end, now_us};
    return (int64_t)(now_us - sight->seen_us) / 1000;
}

static void set_timer(struct schedule *schedule, int64_t due_ms, int64_t now_ms);

/* ---- one delivery ---- */

/* With enableScheduleMessageStats, as ScheduleMessageService#recordMessageStats: read by SCHEDULE_CONSUMER, stored again in the real topic. */
static void count_delivery(struct broker *broker, const struct delivery *delivery)
{
    struct slice topic = SLICE_LITERAL(TOPIC_SCHEDULE), group = SLICE_LITERAL("SCHEDULE_CONSUMER");
    struct broker_stats_manager *items = broker->item_stats;
    broker_stats_put_topic(broker->stats, delivery->stats, 1, delivery->bytes, env_monotonic_us(&broker->env) - delivery->started_us);
    stats_item_add(broker_stats_manager_item(items, STATS_QUEUE_GET, topic, delivery->level - 1, group), 1, delivery->bytes);
    stats_item_add(broker_stats_manager_item(items, STATS_GROUP_GET, topic, 0, group), 1, delivery->bytes);
}

static void on_appended(struct append_entry_request *append)
{
    struct delivery *delivery = (struct delivery *)append;
    struct schedule *schedule = delivery->schedule;
    if (append->code == 0)
        count_delivery(schedule->broker, delivery);
    /* Refused after it was gathered: it is certainly not in the log, so the level goes back to it. Whatever else failed may still commit, and the
     * next leader knows what did. */
    if (append->code == ERROR_NO_SPACE && leadership_lasts(&schedule->leadership, delivery->epoch)) {
        struct schedule_level *level = &schedule->levels[delivery->level];
        int64_t retry_ms = env_now_ms(&schedule->broker->env) + RETRY_MS;
        if (level->next > delivery->offset)
            level->next = delivery->offset;
        if (level->due_ms > retry_ms)
            level->due_ms = retry_ms;
        set_timer(schedule, level->due_ms, env_now_ms(&schedule->broker->env));
    }
    stats_item_release(delivery->stats);
    delivery->stats = NULL;
    delivery->next_free = schedule->free_deliveries;
    schedule->free_deliveries = delivery;
    schedule->in_flight--;
}

static struct delivery *take_delivery(struct schedule *schedule)
{
    if (schedule->deliveries == NULL) {
        schedule->deliveries = calloc(LIMIT_DELAY_IN_FLIGHT, sizeof *schedule->deliveries);
        if (schedule->deliveries == NULL)
            return NULL;
        for (uint32_t i = 0; i < LIMIT_DELAY_IN_FLIGHT; i++) {
            schedule->deliveries[i].next_free = schedule->free_deliveries;
            schedule->free_deliveries = &schedule->deliveries[i];
        }
    }
    struct delivery *delivery = schedule->free_deliveries;
    if (delivery != NULL) {
        schedule->free_deliveries = delivery->next_free;
        schedule->in_flight++;
    }
    return delivery;
}

/* Moves the replicated progress without a delivery. */
static int skip_to(struct schedule *schedule, int level, int64_t next_offset)
{
    Ledgermq__MetadataRecord record = LEDGERMQ__METADATA_RECORD__INIT;
    Ledgermq__DelayProgress progress = LEDGERMQ__DELAY_PROGRESS__INIT;
    Ledgermq__DelayProgress *progresses[1] = {&progress};
    progress.level = level;
    progress.next_offset = next_offset;
    record.delay = progresses;
    record.n_delay = 1;
    return metadata_submit(schedule->broker, &record, NULL, NULL);
}

/* 0: appended, or skipped because it can never be delivered. Else try later. */
static int deliver(struct schedule *schedule, int level, int64_t offset, struct slice bytes)
{
    struct broker *broker = schedule->broker;
    struct message_record record;
    int32_t queue_id = -1;
    const char *why = NULL;
    struct topic_entry *topic = NULL;
    struct consume_queue *queue = NULL;
    if (message_record_decode(bytes, false, &record) != 0) {
        why = "its record cannot be read";
    } else {
        struct slice name = message_property(record.properties, "REAL_TOPIC");
        topic = name.data == NULL ? NULL : topic_config_destination(broker, name, SEEDED_BUG(DELETED_DELAYED) ? INT64_MAX : record.physical_offset);
        if (!slice_to_i32(message_property(record.properties, "REAL_QID"), &queue_id))
            queue_id = -1;
        if (topic == NULL || queue_id < 0)
            why = "its topic is gone";
        else if (slice_equal_text(name, TOPIC_TRANS_HALF))
            why = "it is a half message";
    }
    if (why != NULL) {
        int rv = skip_to(schedule, level, offset + 1);
        if (rv == 0)
            LOG_WARN("delay level %d: message at offset %lld is discarded: %s", level, (long long)offset, why);
        return rv;
    }
    queue = topic_config_queue(topic, &broker->store, queue_id);
    if (queue == NULL)
        return ERROR_NO_SPACE;
    struct delivery *delivery = take_delivery(schedule);
    if (delivery == NULL)
        return ERROR_BUSY;

    Ledgermq__Consumed consumed = LEDGERMQ__CONSUMED__INIT;
    uint8_t trailer[TRAILER_BYTES_MAX];
    consumed.delay_level = level;
    consumed.delay_offset = offset;
    assert(ledgermq__consumed__get_packed_size(&consumed) <= sizeof trailer);
    size_t trailer_size = ledgermq__consumed__pack(&consumed, trailer);

    /* The property string stays as it is: consumers see DELAY, REAL_TOPIC and REAL_QID, as from Java's broker. */
    record.topic = topic->config.name;
    delivery->schedule = schedule;
    delivery->append.done = on_appended;
    delivery->level = level;
    delivery->offset = offset;
    delivery->epoch = schedule->leadership.epoch;
    delivery->started_us = env_monotonic_us(&broker->env);
    delivery->stats = broker_stats_manager_item(broker->item_stats, STATS_TOPIC_PUT, topic->config.name, 0, slice_of(NULL, 0));
    stats_item_hold(delivery->stats);
    int rv = message_append(broker, queue, &record, slice_of(trailer, trailer_size), &delivery->append);
    if (rv != 0) {
        delivery->append.code = rv;
        on_appended(&delivery->append);
        return rv;
    }
    delivery->bytes = record.total_size;
    return 0;
}

/* ---- reading old records ---- */

static void run(struct schedule *schedule);

static void on_read(struct broker *broker, struct cold_read *read, int code)
{
    struct schedule_read *job = (struct schedule_read *)read;
    struct schedule *schedule = job->schedule;
    struct schedule_level *level = &schedule->levels[job->level];
    int64_t now_ms = env_now_ms(&broker->env);
    int refused = 0;
    if (leadership_lasts(&schedule->leadership, job->epoch)) {
        level->reading = false;
        bool behind = job->first_offset != level->next; /* what was gathered before it was refused meanwhile, and comes first */
        size_t at = 0;
        struct consume_queue *queue = message_store_queue(&broker->store, SLICE_LITERAL(TOPIC_SCHEDULE), job->level - 1, false, NULL);
        struct consume_queue_unit unit = {0};
        if (!behind && code != 0 && queue != NULL && !consume_queue_trusts(queue, job->first_offset + read->bad)) /* where a damaged unit points is nothing */
            code = message_store_unit(&broker->store, queue, job->first_offset + read->bad, &unit) ? code : ERROR_DAMAGED;
        for (uint32_t i = 0; i < read->count && code == 0 && !behind; i++) {
            struct slice record = slice_of(read->bytes + at, read->items[i].size);
            if (queue == NULL || !message_store_unit_is_of(&broker->store, queue, job->first_offset + i, record))
                code = ERROR_DAMAGED;
            if (code != 0 || !job->due)
                break;
            refused = deliver(schedule, job->level, job->first_offset + i, record);
            if (refused != 0)
                break;
            level->next++;
            at += read->items[i].size;
        }
        if (code == ERROR_NOT_FOUND && !behind) {
            refused = skip_to(schedule, job->level, job->first_offset + 1);
            if (refused == 0) {
                LOG_WARN("delay level %d: message at offset %lld is discarded: it is no longer retained", job->level, (long long)job->first_offset);
                level->next++;
            }
        }
        if (behind || (refused == 0 && (code == 0 || code == ERROR_NOT_FOUND))) {
            run(schedule);
        } else {
            if (refused == 0) /* damaged: it is being repaired */
                LOG_WARN("delay level %d: message at offset %lld waits: %s", job->level, (long long)job->first_offset, error_text(code));
            level->due_ms = now_ms + (refused == ERROR_BUSY ? 1 : RETRY_MS);
            set_timer(schedule, level->due_ms, now_ms);
        }
    }
    cold_read_free(read);
    free(job);
}

/* Reads the due messages from level->next on by the pool; or (not `due`) the one that is there, to see when it is. */
static int start_read(struct schedule *schedule, int number, struct consume_queue *queue, int64_t now_ms, bool due)
{
    struct schedule_level *level = &schedule->levels[number];
    struct schedule_read *job = calloc(1, sizeof *job);
    struct consume_queue_unit unit;
    size_t bytes = 0;
    if (job == NULL)
        return ERROR_NO_MEMORY;
    job->schedule = schedule;
    job->epoch = schedule->leadership.epoch;
    job->level = number;
    job->first_offset = level->next;
    job->read.done = on_read;
    job->due = due;
    while (job->read.count < (due ? GET_MESSAGE_BATCH_MAX : 1) && consume_queue_get(queue, level->next + job->read.count, &unit) && unit.size > 0) {
        if (job->read.count > 0 && (unit.tags_code > now_ms || bytes + (size_t)unit.size > LIMIT_DELAY_READ_BYTES))
            break;
        job->read.items[job->read.count].physical_offset = unit.physical_offset;
        job->read.items[job->read.count++].size = (uint32_t)unit.size;
        bytes += (size_t)unit.size;
    }
    int rv = job->read.count == 0 ? ERROR_DAMAGED : cold_read_start(schedule->broker->cold_reads, &job->read);
    if (rv != 0)
        free(job);
    else
        level->reading = true;
    return rv;
}

/* ---- the levels ---- */

static void run_level(struct schedule *schedule, int number, int64_t now_ms)
{
    struct broker *broker = schedule->broker;
    struct schedule_level *level = &schedule->levels[number];
    int64_t delay_ms = number <= broker->config.delay_levels ? broker->config.delay_level_ms[number] : DELAY_UNKNOWN_MS;
    uint64_t now_us = env_monotonic_us(&broker->env);
    uint32_t delivered = 0;
    level->due_ms = INT64_MAX;
    if (level->reading)
        return;
    struct consume_queue *queue = message_store_queue(&broker->store, SLICE_LITERAL(TOPIC_SCHEDULE), number - 1, false, NULL);
    if (queue == NULL)
        return;
    if (level->next < queue->min_offset) {
        if (skip_to(schedule, number, queue->min_offset) != 0) {
            level->due_ms = now_ms + RETRY_MS;
            return;
        }
        LOG_WARN("delay level %d: messages %lld to %lld are no longer retained", number, (long long)level->next,
                 (long long)queue->min_offset - 1);
        level->next = queue->min_offset;
    }
    struct consume_queue_unit unit;
    while (level->next < queue->max_offset) {
        /* When it is due says the unit, if that can be believed; else its record, which has to be read first when it is old. */
        bool believed = consume_queue_trusts(queue, level->next);
        if (!believed && consume_queue_get(queue, level->next, &unit) && unit.size > 0 && cold_read_needed(broker, unit.physical_offset)) {
            if (start_read(schedule, number, queue, now_ms, false) != 0)
                level->due_ms = now_ms + RETRY_MS;
            return;
        }
        if (!message_store_unit(&broker->store, queue, level->next, &unit)) { /* it is made again */
            level->due_ms = now_ms + RETRY_MS;
            return;
        }
        int64_t waited_ms = schedule_waited_ms(&level->sight, level->next, queue->max_offset, now_us);
        int64_t due_ms = schedule_due_ms(unit.tags_code, now_ms, waited_ms, delay_ms);
        if (due_ms > now_ms) {
            level->due_ms = due_ms;
            return;
        }
        int rv;
        if (delivered == LIMIT_DELAY_IN_FLIGHT / 2) { /* the others' turn */
            level->due_ms = now_ms;
            return;
        }
        const uint8_t *bytes = cold_read_at_hand(broker, unit.physical_offset, (size_t)unit.size);
        rv = bytes == NULL ? start_read(schedule, number, queue, now_ms, true)
                           : deliver(schedule, number, level->next, slice_of(bytes, (size_t)unit.size));
        if (rv == 0 && bytes == NULL)
            return;
        if (rv != 0) {
            level->due_ms = now_ms + (rv == ERROR_BUSY ? 1 : RETRY_MS);
            return;
        }
        if (!SEEDED_BUG_NOW(DELAY_TWICE, 50))
            level->next++;
        if (SEEDED_BUG_NOW(DELAY_SKIPPED, 50))
            level->next++;
        delivered++;
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct schedule *schedule = timer->data;
    schedule->timer_set = false;
    run(schedule);
}

static void set_timer(struct schedule *schedule, int64_t due_ms, int64_t now_ms)
{
    if (schedule->closed || (schedule->timer_set && schedule->timer_due_ms <= due_ms))
        return;
    int64_t wait_ms = due_ms > now_ms ? due_ms - now_ms : 0;
    if (wait_ms > LOOK_AGAIN_MS)
        wait_ms = LOOK_AGAIN_MS;
    schedule->timer_set = true;
    schedule->timer_due_ms = due_ms;
    uv_timer_start(&schedule->timer, on_timer, (uint64_t)wait_ms, 0);
}

static void run(struct schedule *schedule)
{
    int64_t first_ms = INT64_MAX;
    if (!schedule->leadership.leading || schedule->closed)
        return;
    int64_t now_ms = env_now_ms(&schedule->broker->env);
    if (!dledger_commit_log_accepting(schedule->broker->log)) { /* the disk takes nothing for now */
        set_timer(schedule, now_ms + RETRY_MS, now_ms);
        return;
    }
    for (int i = 1; i <= (int)LIMIT_DELAY_LEVELS; i++) {
        run_level(schedule, i, now_ms);
        if (schedule->levels[i].due_ms < first_ms)
            first_ms = schedule->levels[i].due_ms;
    }
    if (first_ms != INT64_MAX)
        set_timer(schedule, first_ms, now_ms);
}

void schedule_arrived(struct schedule *schedule, const struct message_dispatch *dispatch)
{
    int number = dispatch->queue_id + 1;
    if (!schedule->leadership.leading || number < 1 || number > (int)LIMIT_DELAY_LEVELS || schedule->levels[number].reading ||
        schedule->levels[number].due_ms != INT64_MAX)
        return;
    /* Not from inside apply: the timer runs in the next turn. All messages of a level wait equally long, so the first is due first. */
    int64_t now_ms = env_now_ms(&schedule->broker->env);
    schedule->levels[number].due_ms = now_ms;
    set_timer(schedule, now_ms, now_ms);
}

void schedule_role_changed(struct schedule *schedule)
{
    struct broker *broker = schedule->broker;
    /* The replicated progress says what is still to be delivered. */
    if (!leadership_changed(&schedule->leadership, broker->log))
        return;
    uv_timer_stop(&schedule->timer);
    schedule->timer_set = false;
    if (!schedule->leadership.leading)
        return;
    for (int i = 1; i <= (int)LIMIT_DELAY_LEVELS; i++) {
        schedule->levels[i] = (struct schedule_level){
            .next = metadata_delay_offset(broker->metadata, i), .due_ms = INT64_MAX};
    }
    int64_t now_ms = env_now_ms(&broker->env);
    set_timer(schedule, now_ms, now_ms);
}

struct schedule *schedule_new(struct broker *broker, struct error *error)
{
    struct schedule *schedule = calloc(1, sizeof *schedule);
    if (schedule == NULL) {
        error_set(error, ERROR_NO_MEMORY, "delay levels: %s", error_text(ERROR_NO_MEMORY));
        return NULL;
    }
    schedule->broker = broker;
    uv_timer_init(broker->loop, &schedule->timer);
    schedule->timer.data = schedule;
    uv_unref((uv_handle_t *)&schedule->timer);
    return schedule;
}

void schedule_close(struct schedule *schedule)
{
    if (schedule->closed)
        return;
    schedule->closed = true;
    leadership_end(&schedule->leadership);
    uv_close((uv_handle_t *)&schedule->timer, NULL);
}

void schedule_free(struct schedule *schedule)
{
    if (schedule == NULL)
        return;
    assert(schedule->closed && schedule->in_flight == 0);
    free(schedule->deliveries);
    free(schedule);
}
