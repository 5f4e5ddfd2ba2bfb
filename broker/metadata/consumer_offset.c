/* 1. A commit is kept as pending under (group, topic, queue); a later one for the same queue replaces it.
 * 2. The timer (200 ms for commits that nobody waits for, the end of the turn for the others) turns all that is pending into records.
 * 3. metadata_apply puts the values into the table, then those who wait are told.
 *
 * What goes wrong on the way (leadership lost, no quorum) is told to those who wait; of the others nobody knows, and clients commit again within
 * five seconds. A follower's pending commits come from pulls (commitOffset); they go to the leader as one one-way frame whose body is the
 * record that they would have become.
 */
#include "broker/metadata/consumer_offset.h"

#include <assert.h>
#include <stdlib.h>
#include <uv.h>

#include "broker/broker.h"
#include "broker/broker_stats.h"
#include "broker/metadata/group_queue_key.h"
#include "broker/metadata/metadata.h"
#include "broker/metadata/offset_reset.h"
#include "broker/metadata/topic_config.h"
#include "store/log_sink.h"
#include "store/seeded_bug.h"

/* A record holds at most this many values: 2000 x (group 255 + topic 127 + numbers and tags some 30) is below METADATA_RECORD_MAX. */
#define OFFSETS_PER_RECORD 2000u
#define FORWARD_MS_MAX 1000 /* commits that a follower gathered longer ago are not passed on */
#define OFFSET_FORGOTTEN (-1) /* what a pending commit is for was removed */

struct consumer_offset_pending {
    char *key; /* group, 0, topic, 0, queue id */
    struct slice group;
    struct slice topic;
    int32_t queue_id;
    int64_t offset;
    bool held; /* it is a reset, from: */
    int64_t held_from;
    UT_hash_handle hh;
};

struct consumer_offset_waiter {
    consumer_offset_done done;
    void *context;
    struct consumer_offset_waiter *next;
};

/* One record on its way, or what will become one. */
struct consumer_offset_batch {
    struct broker *broker;
    struct consumer_offset_waiter *first;
    struct consumer_offset_waiter *last;
};

struct consumer_offset_timer {
    uv_timer_t timer;
    struct broker *broker;
    bool soon; /* set to run at the end of this turn */
};

/* ---- the table ---- */

/* "topic@group" into a buffer of the caller; 0 when it does not fit. No name holds an @. */
static size_t table_key(char *out, size_t room, struct slice topic, struct slice group)
{
    if (topic.size + group.size + 1 > room)
        return 0;
    memcpy(out, topic.data, topic.size);
    out[topic.size] = '@';
    memcpy(out + topic.size + 1, group.data, group.size);
    return topic.size + group.size + 1;
}

struct consumer_offset_entry *consumer_offset_find_entry(struct consumer_offset_table *table, struct slice group, struct slice topic)
{
    char key[2 * GROUP_QUEUE_NAME_MAX + 1];
    size_t size = table_key(key, sizeof key, topic, group);
    if (size == 0)
        return NULL;
    struct consumer_offset_entry *entry;
    HASH_FIND(hh, table->entries, key, size, entry);
    return entry;
}

/* Place of queue_id in an entry, or where it belongs. */
static uint32_t queue_place(const struct consumer_offset_entry *entry, int32_t queue_id)
{
    uint32_t low = 0;
    uint32_t high = entry->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (entry->queues[middle].queue_id < queue_id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int64_t consumer_offset_find(struct consumer_offset_table *table, struct slice group, struct slice topic, int32_t queue_id)
{
    struct consumer_offset_entry *entry = consumer_offset_find_entry(table, group, topic);
    if (entry == NULL)
        return -1;
    uint32_t place = queue_place(entry, queue_id);
    if (place == entry->count || entry->queues[place].queue_id != queue_id)
        return -1;
    return entry->queues[place].offset;
}

static bool in_range(struct slice group, struct slice topic, int32_t queue_id, int64_t offset)
{
    return queue_id >= 0 && (uint32_t)queue_id < CONSUMER_OFFSET_QUEUES_MAX && offset >= 0 && group_queue_name_is_legal(group) &&
           group_queue_name_is_legal(topic);
}

static struct consumer_offset_entry *entry_new(struct slice group, struct slice topic)
{
    struct consumer_offset_entry *entry = calloc(1, sizeof *entry);
    size_t room = topic.size + group.size + 2;
    if (entry == NULL || (entry->key = malloc(room)) == NULL) {
        free(entry);
        return NULL;
    }
    size_t size = table_key(entry->key, room, topic, group);
    entry->key[size] = 0;
    entry->topic = slice_of(entry->key, topic.size);
    entry->group = slice_of(entry->key + topic.size + 1, group.size);
    return entry;
}

int consumer_offset_put(struct consumer_offset_table *table, struct slice group, struct slice topic, int32_t queue_id, int64_t offset)
{
    if (!in_range(group, topic, queue_id, offset))
        return ERROR_INVALID;
    struct consumer_offset_entry *entry = consumer_offset_find_entry(table, group, topic);
    if (entry == NULL) {
        if (table->key_count >= CONSUMER_OFFSET_KEYS_MAX)
            return ERROR_BUSY;
        entry = entry_new(group, topic);
        if (entry == NULL)
            return ERROR_NO_MEMORY;
        HASH_ADD_KEYPTR(hh, table->entries, entry->key, topic.size + group.size + 1, entry);
        table->key_count++;
    }
    uint32_t place = queue_place(entry, queue_id);
    if (place == entry->count || entry->queues[place].queue_id != queue_id) {
        if (entry->count == entry->capacity) {
            uint32_t capacity = entry->capacity == 0 ? 4 : entry->capacity * 2;
            struct consumer_offset_queue *queues = realloc(entry->queues, capacity * sizeof *queues);
            if (queues == NULL)
                return ERROR_NO_MEMORY;
            entry->queues = queues;
            entry->capacity = capacity;
        }
        memmove(entry->queues + place + 1, entry->queues + place, (entry->count - place) * sizeof *entry->queues);
        entry->queues[place].queue_id = queue_id;
        entry->count++;
    }
    entry->queues[place].offset = offset;
    table->changes++;
    return 0;
}

static void entry_drop(struct consumer_offset_table *table, struct consumer_offset_entry *entry)
{
    HASH_DEL(table->entries, entry);
    table->key_count--;
    table->changes++;
    free(entry->queues);
    free(entry->key);
    free(entry);
}

/* A commit that was gathered before the record that removes its queue would come behind it and bring the offset back. It keeps its place, for somebody may
 * wait for it, but says nothing any more. */
static void pending_forget(struct consumer_offset_table *table, struct slice group, struct slice topic)
{
    for (struct consumer_offset_pending *pending = table->pending; pending != NULL; pending = pending->hh.next) {
        if ((group.size == 0 || slice_equal(pending->group, group)) && (topic.size == 0 || slice_equal(pending->topic, topic)))
            pending->offset = OFFSET_FORGOTTEN;
    }
}

void consumer_offset_remove_group(struct consumer_offset_table *table, struct slice group)
{
    struct consumer_offset_entry *entry, *next;
    pending_forget(table, group, slice_of(NULL, 0));
    offset_reset_remove(&table->resets, group, slice_of(NULL, 0));
    HASH_ITER (hh, table->entries, entry, next) {
        if (slice_equal(entry->group, group))
            entry_drop(table, entry);
    }
}

void consumer_offset_remove_topic(struct consumer_offset_table *table, struct slice topic)
{
    struct consumer_offset_entry *entry, *next;
    pending_forget(table, slice_of(NULL, 0), topic);
    offset_reset_remove(&table->resets, slice_of(NULL, 0), topic);
    HASH_ITER (hh, table->entries, entry, next) {
        if (slice_equal(entry->topic, topic))
            entry_drop(table, entry);
    }
}

void consumer_offset_clear(struct consumer_offset_table *table)
{
    struct consumer_offset_entry *entry, *next;
    HASH_ITER (hh, table->entries, entry, next)
        entry_drop(table, entry);
    offset_reset_clear(&table->resets);
}

int consumer_offset_apply(struct consumer_offset_table *table, const Ledgermq__ConsumerOffset *offset, int64_t time_ms, uint64_t now_us)
{
    struct slice group = slice_of_text(offset->group);
    struct slice topic = slice_of_text(offset->topic);
    int rv = consumer_offset_put(table, group, topic, offset->queue_id, offset->offset);
    if (rv != 0)
        return rv;
    if (!offset->held) {
        offset_reset_end(&table->resets, group, topic, offset->queue_id);
        return 0;
    }
    rv = offset_reset_put(&table->resets, group, topic, offset->queue_id, offset->held_from, offset->offset, time_ms, now_us);
    if (rv == ERROR_BUSY) {
        LOG_WARN("offset of group %.*s in %.*s, queue %d, is reset, but commits of its consumers may undo it: too many resets at once", (int)group.size,
                 (const char *)group.data, (int)topic.size, (const char *)topic.data, offset->queue_id);
        rv = 0;
    }
    return rv;
}

void consumer_offset_each(struct consumer_offset_table *table, void (*each)(void *argument, struct consumer_offset_entry *entry), void *argument)
{
    struct consumer_offset_entry *entry, *next;
    HASH_ITER (hh, table->entries, entry, next)
        each(argument, entry);
}

/* ---- gathering ---- */

static struct consumer_offset_pending *pending_find(struct consumer_offset_table *table, struct slice group, struct slice topic,
                                                    int32_t queue_id)
{
    char key[GROUP_QUEUE_KEY_MAX];
    size_t size = group_queue_key(key, group, topic, queue_id);
    struct consumer_offset_pending *pending;
    HASH_FIND(hh, table->pending, key, size, pending);
    return pending;
}

static void pending_clear(struct consumer_offset_table *table)
{
    struct consumer_offset_pending *pending, *next;
    HASH_ITER (hh, table->pending, pending, next) {
        HASH_DEL(table->pending, pending);
        free(pending->key);
        free(pending);
    }
    table->pending_count = 0;
}

/* The newest value for a queue takes the place of an older one that is still pending, in the order of arrival, waited for or not. */
static int pending_put(struct consumer_offset_table *table, struct slice group, struct slice topic, int32_t queue_id, int64_t offset, uint64_t now_us)
{
    struct consumer_offset_pending *pending = pending_find(table, group, topic, queue_id);
    if (pending != NULL) {
        pending->offset = offset;
        pending->held = false;
        return 0;
    }
    if (table->pending_count >= CONSUMER_OFFSET_PENDING_MAX)
        return ERROR_BUSY;
    char key[GROUP_QUEUE_KEY_MAX];
    size_t size = group_queue_key(key, group, topic, queue_id);
    pending = calloc(1, sizeof *pending);
    if (pending == NULL || (pending->key = malloc(size)) == NULL) {
        free(pending);
        return ERROR_NO_MEMORY;
    }
    memcpy(pending->key, key, size);
    pending->group = slice_of(pending->key, group.size);
    pending->topic = slice_of(pending->key + group.size + 1, topic.size);
    pending->queue_id = queue_id;
    pending->offset = offset;
    HASH_ADD_KEYPTR(hh, table->pending, pending->key, size, pending);
    if (table->pending_count++ == 0)
        table->gathered_us = now_us;
    return 0;
}

static void timer_fired(uv_timer_t *handle)
{
    struct consumer_offset_timer *timer = (struct consumer_offset_timer *)handle->data;
    timer->soon = false;
    if (timer->broker != NULL)
        consumer_offset_flush(timer->broker);
}

/* A due time of 0 fires in the next iteration of the loop before it polls, so everything that came in one turn shares a record. */
static void timer_arm(struct consumer_offset_table *table, bool soon)
{
    struct consumer_offset_timer *timer = table->timer;
    if (timer == NULL || timer->soon || (!soon && uv_is_active((uv_handle_t *)&timer->timer)))
        return;
    timer->soon = soon;
    uv_timer_start(&timer->timer, timer_fired, soon ? 0 : CONSUMER_OFFSET_GATHER_MS, 0);
}

/* Nothing to do: this very value is stored and nothing that could change it is on its way. */
static bool is_stored(struct consumer_offset_table *table, struct slice group, struct slice topic, int32_t queue_id, int64_t offset)
{
    return table->in_flight == 0 && !table->unsettled && consumer_offset_find(table, group, topic, queue_id) == offset &&
           pending_find(table, group, topic, queue_id) == NULL;
}

/* What is taken now would come behind the record that deletes the topic. */
static bool is_going(const struct broker *broker, struct slice topic)
{
    return topic_config_is_going(broker->topics, topic) && !SEEDED_BUG(DELETE_OVERTAKEN);
}

void consumer_offset_commit(struct broker *broker, struct slice group, struct slice topic, int32_t queue_id, int64_t offset)
{
    struct consumer_offset_table *table = broker->offsets;
    if (!in_range(group, topic, queue_id, offset) || is_stored(table, group, topic, queue_id, offset))
        return;
    if (offset_reset_overrules(&table->resets, group, topic, queue_id, offset, env_monotonic_us(&broker->env)))
        return;
    if (is_going(broker, topic)) {
        table->dropped++;
        return;
    }
    if (SEEDED_BUG_NOW(ONEWAY_LOST, 100))
        return;
    int rv = pending_put(table, group, topic, queue_id, offset, env_monotonic_us(&broker->env));
    if (rv == ERROR_BUSY) {
        consumer_offset_flush(broker);
        rv = pending_put(table, group, topic, queue_id, offset, env_monotonic_us(&broker->env));
    }
    if (rv == ERROR_BUSY)
        rv = broker_stats_busy(broker->stats, LIMIT_HIT_OFFSETS);
    if (rv != 0)
        table->dropped++;
    else
        timer_arm(table, false);
}

static struct consumer_offset_batch *batch_open(struct broker *broker)
{
    struct consumer_offset_table *table = broker->offsets;
    if (table->open == NULL) {
        table->open = calloc(1, sizeof *table->open);
        if (table->open != NULL)
            table->open->broker = broker;
    }
    return table->open;
}

static int batch_wait(struct consumer_offset_batch *batch, consumer_offset_done done, void *context)
{
    struct consumer_offset_waiter *waiter = calloc(1, sizeof *waiter);
    if (batch == NULL || waiter == NULL) {
        free(waiter);
        return ERROR_NO_MEMORY;
    }
    waiter->done = done;
    waiter->context = context;
    if (batch->last == NULL)
        batch->first = waiter;
    else
        batch->last->next = waiter;
    batch->last = waiter;
    return 0;
}

/* Frees the batch first: what the waiters do may flush again. */
static void batch_finish(struct consumer_offset_batch *batch, int code)
{
    struct broker *broker = batch->broker;
    struct consumer_offset_waiter *waiter = batch->first;
    if (broker->offsets->newest == batch)
        broker->offsets->newest = NULL;
    free(batch);
    while (waiter != NULL) {
        struct consumer_offset_waiter *next = waiter->next;
        waiter->done(broker, waiter->context, code);
        free(waiter);
        waiter = next;
    }
}

static int put_and_wait(struct broker *broker, struct slice group, struct slice topic, int32_t queue_id, int64_t offset, consumer_offset_done done,
                        void *context)
{
    struct consumer_offset_table *table = broker->offsets;
    if (!in_range(group, topic, queue_id, offset))
        return ERROR_INVALID;
    if (!metadata_leads(broker))
        return ERROR_NOT_LEADER;
    if (is_going(broker, topic))
        return ERROR_NOT_FOUND;
    if (table->key_count >= CONSUMER_OFFSET_KEYS_MAX && consumer_offset_find_entry(table, group, topic) == NULL)
        return broker_stats_busy(broker->stats, LIMIT_HIT_OFFSETS);
    if (table->pending_count >= CONSUMER_OFFSET_PENDING_MAX)
        consumer_offset_flush(broker);
    int rv = pending_put(table, group, topic, queue_id, offset, env_monotonic_us(&broker->env));
    if (rv == ERROR_BUSY)
        rv = broker_stats_busy(broker->stats, LIMIT_HIT_OFFSETS);
    if (rv == 0)
        rv = batch_wait(batch_open(broker), done, context);
    if (rv == 0)
        timer_arm(table, true);
    return rv;
}

int consumer_offset_commit_wait(struct broker *broker, struct slice group, struct slice topic, int32_t queue_id, int64_t offset,
                                consumer_offset_done done, void *context)
{
    struct consumer_offset_table *table = broker->offsets;
    if (metadata_leads(broker) && in_range(group, topic, queue_id, offset)) {
        bool in_doubt = broker->log != NULL && dledger_commit_log_in_doubt(broker->log);
        if (!in_doubt && is_stored(table, group, topic, queue_id, offset))
            return ERROR_EXISTS;
        if (offset_reset_overrules(&table->resets, group, topic, queue_id, offset, env_monotonic_us(&broker->env)))
            return ERROR_EXISTS;
    }
    return put_and_wait(broker, group, topic, queue_id, offset, done, context);
}

int consumer_offset_reset_wait(struct broker *broker, struct slice group, struct slice topic, int32_t queue_id, int64_t offset, bool held,
                               consumer_offset_done done, void *context)
{
    struct consumer_offset_table *table = broker->offsets;
    int64_t from = in_range(group, topic, queue_id, offset) ? consumer_offset_find(table, group, topic, queue_id) : -1;
    struct consumer_offset_pending *pending = from < 0 ? NULL : pending_find(table, group, topic, queue_id);
    if (pending != NULL && pending->offset > from)
        from = pending->offset;
    int rv = put_and_wait(broker, group, topic, queue_id, offset, done, context);
    if (rv != 0)
        return rv;
    if (!held || from < 0 || from == offset)
        return 0;
    pending = pending_find(table, group, topic, queue_id);
    pending->held = true;
    pending->held_from = from;
    (void)offset_reset_propose(&table->resets, group, topic, queue_id, from, offset, env_monotonic_us(&broker->env)); /* else it is held once it is logged */
    return 0;
}

int consumer_offset_settle(struct broker *broker, struct slice group, struct slice topic, int32_t queue_id, consumer_offset_done done,
                           void *context)
{
    struct consumer_offset_table *table = broker->offsets;
    /* A leader whose disk is full stores no offsets, but knows those that are stored. */
    if (!in_range(group, topic, queue_id, 0) || !metadata_leads(broker))
        return ERROR_NOT_FOUND;
    if (pending_find(table, group, topic, queue_id) != NULL) {
        int rv = batch_wait(batch_open(broker), done, context);
        if (rv == 0)
            timer_arm(table, true);
        return rv;
    }
    return table->newest == NULL ? ERROR_NOT_FOUND : batch_wait(table->newest, done, context);
}

static void record_done(struct broker *broker, void *context, int code)
{
    struct consumer_offset_batch *batch = context;
    assert(broker->offsets->in_flight > 0);
    broker->offsets->in_flight--;
    broker->offsets->unsettled = code != 0;
    batch_finish(batch, code);
}

/* Up to OFFSETS_PER_RECORD values from `pending` on, borrowed until the next call. Returns the first that did not fit. */
static struct consumer_offset_pending *fill_record(struct consumer_offset_pending *pending, Ledgermq__MetadataRecord *record)
{
    static Ledgermq__ConsumerOffset values[OFFSETS_PER_RECORD];
    static Ledgermq__ConsumerOffset *pointers[OFFSETS_PER_RECORD];
    ledgermq__metadata_record__init(record);
    size_t count = 0;
    for (; pending != NULL && count < OFFSETS_PER_RECORD; pending = pending->hh.next) {
        if (pending->offset == OFFSET_FORGOTTEN)
            continue;
        ledgermq__consumer_offset__init(&values[count]);
        /* Both names are followed by a 0 in the key. */
        values[count].group = (char *)(uintptr_t)pending->group.data;
        values[count].topic = (char *)(uintptr_t)pending->topic.data;
        values[count].queue_id = pending->queue_id;
        values[count].offset = pending->offset;
        values[count].held = pending->held;
        values[count].held_from = pending->held ? pending->held_from : 0;
        pointers[count] = &values[count];
        count++;
    }
    record->n_offsets = count;
    record->offsets = pointers;
    return pending;
}

static void drop_until(struct consumer_offset_table *table, struct consumer_offset_pending *end)
{
    while (table->pending != end) {
        struct consumer_offset_pending *first = table->pending;
        HASH_DEL(table->pending, first);
        table->pending_count--;
        free(first->key);
        free(first);
    }
}

static void flush_leader(struct broker *broker)
{
    struct consumer_offset_table *table = broker->offsets;
    int rv = 0;
    /* Those who wait hang on the last record: the log keeps the order, so it says that all before it are applied too. */
    while (rv == 0 && table->pending != NULL) {
        bool last = table->pending_count <= OFFSETS_PER_RECORD;
        struct consumer_offset_batch *batch = last ? batch_open(broker) : calloc(1, sizeof *batch);
        if (batch == NULL) {
            rv = ERROR_NO_MEMORY;
            break;
        }
        batch->broker = broker;
        if (SEEDED_BUG_NOW(DELTA_LOST, 100))
            table->pending->offset = OFFSET_FORGOTTEN;
        Ledgermq__MetadataRecord record;
        struct consumer_offset_pending *rest = fill_record(table->pending, &record);
        rv = metadata_submit(broker, &record, record_done, batch);
        if (rv == 0) {
            if (last)
                table->open = NULL;
            table->in_flight++;
            table->newest = batch;
            drop_until(table, rest);
        } else if (!last) {
            free(batch);
        }
    }
    if (rv == 0)
        return;
    struct consumer_offset_batch *batch = table->open;
    table->open = NULL;
    if (rv == ERROR_BUSY || rv == ERROR_NO_SPACE || rv == ERROR_NO_MEMORY) {
        timer_arm(table, false);
    } else {
        table->dropped += table->pending_count;
        pending_clear(table);
    }
    if (batch != NULL)
        batch_finish(batch, rv);
}

/* The leader's handler of CONSUMER_OFFSET_DELTA gathers them again. Ids of these frames have bit 62 set: forward.c knows none of them and drops what
 * comes back. */
static int forward_record(struct broker *broker, const Ledgermq__MetadataRecord *record)
{
    static uint64_t next_id = 1ull << 62;
    size_t size = ledgermq__metadata_record__get_packed_size(record);
    struct buffer frame;
    struct remoting_writer writer;
    buffer_init(&frame, REMOTING_FRAME_MAX);
    remoting_writer_begin_request(&writer, &frame, REMOTING_JSON, CONSUMER_OFFSET_DELTA, 0, REMOTING_FLAG_ONEWAY);
    remoting_writer_body(&writer);
    uint8_t *body = buffer_reserve(&frame, size);
    int rv = ERROR_NO_MEMORY;
    if (body != NULL) {
        frame.size += ledgermq__metadata_record__pack(record, body);
        remoting_writer_end(&writer, 0);
        if (!frame.failed)
            rv = dledger_commit_log_forward(broker->log, next_id++, SLICE_LITERAL("127.0.0.1:0"), buffer_slice(&frame), 1000);
    }
    buffer_close(&frame);
    return rv;
}

static void flush_follower(struct broker *broker)
{
    struct consumer_offset_table *table = broker->offsets;
    struct consumer_offset_batch *batch = table->open;
    table->open = NULL;
    /* A process that stood still: the clients may have gone on elsewhere meanwhile. */
    if (env_monotonic_us(&broker->env) - table->gathered_us > FORWARD_MS_MAX * 1000ull) {
        table->dropped += table->pending_count;
        pending_clear(table);
    }
    while (table->pending != NULL) {
        Ledgermq__MetadataRecord record;
        struct consumer_offset_pending *rest = fill_record(table->pending, &record);
        if (forward_record(broker, &record) != 0)
            table->dropped += record.n_offsets;
        drop_until(table, rest);
    }
    if (batch != NULL)
        batch_finish(batch, ERROR_NOT_LEADER);
}

void consumer_offset_role_changed(struct broker *broker, uint64_t term, bool leads)
{
    struct consumer_offset_table *table = broker->offsets;
    if (table == NULL || (leads && term == table->term))
        return;
    table->term = term;
    offset_reset_forget_proposals(&table->resets);
    struct consumer_offset_batch *batch = table->open;
    table->open = NULL;
    table->dropped += table->pending_count;
    pending_clear(table);
    if (batch != NULL)
        batch_finish(batch, ERROR_LEADERSHIP_LOST);
}

void consumer_offset_flush(struct broker *broker)
{
    if (broker->offsets->pending == NULL)
        return;
    if (metadata_leads(broker))
        flush_leader(broker);
    else
        flush_follower(broker);
}

void consumer_offset_topic_goes(struct broker *broker, struct slice topic)
{
    if (SEEDED_BUG(DELETE_OVERTAKEN))
        return;
    consumer_offset_flush(broker);
    pending_forget(broker->offsets, slice_of(NULL, 0), topic);
}

/* ---- life ---- */

int consumer_offset_table_open(struct broker *broker, struct error *error)
{
    struct consumer_offset_table *table = calloc(1, sizeof *table);
    if (table == NULL)
        return error_set(error, ERROR_NO_MEMORY, "consumer offsets: out of memory");
    if (broker->loop != NULL) {
        table->timer = calloc(1, sizeof *table->timer);
        if (table->timer == NULL) {
            free(table);
            return error_set(error, ERROR_NO_MEMORY, "consumer offsets: out of memory");
        }
        uv_timer_init(broker->loop, &table->timer->timer);
        table->timer->timer.data = table->timer;
        table->timer->broker = broker;
    }
    broker->offsets = table;
    return 0;
}

static void timer_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void consumer_offset_table_close(struct broker *broker)
{
    struct consumer_offset_table *table = broker->offsets;
    if (table == NULL)
        return;
    if (table->timer != NULL) {
        table->timer->broker = NULL;
        uv_close((uv_handle_t *)&table->timer->timer, timer_closed);
    }
    struct consumer_offset_batch *batch = table->open;
    table->open = NULL;
    if (batch != NULL)
        batch_finish(batch, ERROR_STOPPED);
    pending_clear(table);
    consumer_offset_clear(table);
    free(table);
    broker->offsets = NULL;
}
