/* 1. metadata_submit packs a record and appends it to the log as an entry of kind metadata.
 * 2. When it is committed, dledger calls metadata_apply on every node, in log order, and then `done` where it was submitted.
 * 3. Every some MiB of log dledger asks for a snapshot; a start, or a follower that lags far, restores it and applies what lies behind.
 *
 * A record that cannot be applied because memory is short ends the process: going on would leave this node with other tables than the rest. A record that
 * breaks a limit is skipped, which every node does alike.
 */
#include "broker/metadata/metadata.h"

#include <assert.h>
#include <stdlib.h>

#include "broker/broker.h"
#include "broker/broker_stats.h"
#include "broker/metadata/consumer_offset.h"
#include "broker/metadata/metadata_export.h"
#include "broker/metadata/offset_reset.h"
#include "broker/metadata/queue_lock.h"
#include "broker/metadata/subscription_group.h"
#include "broker/metadata/topic_config.h"
#include "broker/namesrv/registrar.h"
#include "broker/processor/pull_hold.h"
#include "store/log_sink.h"
#include "store/seeded_bug.h"

struct metadata_request {
    struct append_entry_request entry;
    struct broker *broker;
    metadata_done done;
    void *context;
};

/* ---- submitting ---- */

static int append_to_log(struct broker *broker, struct slice record, struct append_entry_request *request)
{
    return dledger_commit_log_append_copy(broker->log, LEDGER_ENTRY_METADATA, record, request);
}

static bool log_accepts(const struct broker *broker)
{
    return broker->log != NULL && dledger_commit_log_accepting(broker->log);
}

bool metadata_leads(const struct broker *broker)
{
    return broker->metadata->leads(broker);
}

static void record_done(struct append_entry_request *entry)
{
    struct metadata_request *request = (struct metadata_request *)(void *)((char *)entry - offsetof(struct metadata_request, entry));
    struct broker *broker = request->broker;
    assert(broker->metadata->in_flight > 0);
    broker->metadata->in_flight--;
    if (request->done != NULL)
        request->done(broker, request->context, entry->code);
    free(request);
}

static uint8_t *scratch_of(struct metadata *metadata, size_t size)
{
    if (metadata->scratch_size < size) {
        uint8_t *scratch = realloc(metadata->scratch, size);
        if (scratch == NULL)
            return NULL;
        metadata->scratch = scratch;
        metadata->scratch_size = size;
    }
    return metadata->scratch;
}

int metadata_submit(struct broker *broker, Ledgermq__MetadataRecord *record, metadata_done done, void *context)
{
    struct metadata *metadata = broker->metadata;
    if (!metadata_leads(broker))
        return ERROR_NOT_LEADER;
    if (metadata->in_flight >= METADATA_IN_FLIGHT_MAX)
        return broker_stats_busy(broker->stats, LIMIT_HIT_METADATA);
    if (record->time_ms == 0)
        record->time_ms = env_now_ms(&broker->env);
    size_t size = ledgermq__metadata_record__get_packed_size(record);
    if (size > METADATA_RECORD_MAX)
        return ERROR_TOO_LARGE;
    uint8_t *scratch = scratch_of(metadata, size);
    struct metadata_request *request = scratch == NULL ? NULL : calloc(1, sizeof *request);
    if (request == NULL)
        return ERROR_NO_MEMORY;
    request->broker = broker;
    request->done = done;
    request->context = context;
    request->entry.done = record_done;
    ledgermq__metadata_record__pack(record, scratch);
    int rv = metadata->append(broker, slice_of(scratch, size), &request->entry);
    if (rv != 0) {
        free(request);
        return rv == ERROR_BUSY ? broker_stats_busy(broker->stats, LIMIT_HIT_LOG_BUSY) : rv;
    }
    metadata->in_flight++;
    return 0;
}

void metadata_topic_message(const struct topic_config *config, const char *name, Ledgermq__TopicConfig *message)
{
    ledgermq__topic_config__init(message);
    message->name = (char *)(uintptr_t)name;
    message->read_queue_nums = (uint32_t)config->read_queue_nums;
    message->write_queue_nums = (uint32_t)config->write_queue_nums;
    message->perm = (uint32_t)config->perm;
    message->multi_tag = config->multi_tag;
    message->sys_flag = (uint32_t)config->topic_sys_flag;
    message->order = config->order;
    message->reserved_hours = (uint32_t)config->reserved_hours;
}

void metadata_group_message(const struct subscription_group_config *config, const char *name, Ledgermq__SubscriptionGroup *message)
{
    ledgermq__subscription_group__init(message);
    message->name = (char *)(uintptr_t)name;
    message->consume_enable = config->consume_enable;
    message->consume_from_min_enable = config->consume_from_min_enable;
    message->consume_broadcast_enable = config->consume_broadcast_enable;
    message->retry_queue_nums = config->retry_queue_nums;
    message->retry_max_times = config->retry_max_times;
    message->broker_id = config->broker_id;
    message->which_broker_when_consume_slowly = config->which_broker_when_consume_slowly;
    message->notify_consumer_ids_changed_enable = config->notify_consumer_ids_changed_enable;
}

static struct topic_config topic_of(const Ledgermq__TopicConfig *message)
{
    struct topic_config config;
    topic_config_init(&config, slice_of_text(message->name));
    config.read_queue_nums = (int32_t)message->read_queue_nums;
    config.write_queue_nums = (int32_t)message->write_queue_nums;
    config.perm = (int32_t)message->perm;
    config.multi_tag = message->multi_tag;
    config.topic_sys_flag = (int32_t)message->sys_flag;
    config.order = message->order;
    config.reserved_hours = message->reserved_hours > INT32_MAX ? INT32_MAX : (int32_t)message->reserved_hours;
    return config;
}

static struct subscription_group_config group_of(const Ledgermq__SubscriptionGroup *message)
{
    struct subscription_group_config config;
    subscription_group_config_init(&config, slice_of_text(message->name));
    config.consume_enable = message->consume_enable;
    config.consume_from_min_enable = message->consume_from_min_enable;
    config.consume_broadcast_enable = message->consume_broadcast_enable;
    config.retry_queue_nums = message->retry_queue_nums;
    config.retry_max_times = message->retry_max_times;
    config.broker_id = message->broker_id;
    config.which_broker_when_consume_slowly = message->which_broker_when_consume_slowly;
    config.notify_consumer_ids_changed_enable = message->notify_consumer_ids_changed_enable;
    return config;
}

/* ---- applying ---- */

static void check(int rv, const char *what)
{
    if (rv == 0)
        return;
    if (rv == ERROR_NO_MEMORY) {
        LOG_ERROR("metadata: out of memory while applying %s: this node would differ from the others, ending", what);
        abort();
    }
    LOG_WARN("metadata: %s is left out: %s", what, error_text(rv));
}

/* Where files stay the record must count as not applied: what is left would be served by a topic of the same name, and be in the way of its messages. The
 * start repeats it. */
static void delete_queues(struct broker *broker, struct slice topic)
{
    int rv = SEEDED_BUG(DELETED_STAYS) ? 0 : message_store_delete_topic(&broker->store, topic);
    if (rv == ERROR_INVALID) {
        LOG_WARN("metadata: topic %.*s, which is deleted, cannot have had queues", (int)topic.size, (const char *)topic.data);
    } else if (rv != 0) {
        struct error error;
        error_set(&error, rv, "the queues of topic %.*s, which is deleted, cannot be removed below %s/consumequeue (%s): look at the disk, then start again", (int)topic.size,
                  (const char *)topic.data, broker->config.store_path_root_dir, error_text(rv));
        dledger_commit_log_give_up(broker->log, &error);
    }
    struct topic_entry *entry = topic_config_find(broker->topics, topic);
    if (entry != NULL)
        topic_config_forget_queues(entry);
    if (broker->holds != NULL)
        pull_hold_notify_topic(broker->holds, topic, -1);
}

static void apply_topics(struct broker *broker, uint64_t index, const Ledgermq__MetadataRecord *record)
{
    struct topic_config_table *table = broker->topics;
    for (size_t i = 0; i < record->n_put_topics; i++) {
        struct topic_config config = topic_of(record->put_topics[i]);
        if (config.name.size == 0 || config.name.size > MESSAGE_TOPIC_MAX)
            check(ERROR_INVALID, "a topic without a legal name");
        else
            check(topic_config_put(table, &config, index), "a topic");
    }
    for (size_t i = 0; i < record->n_delete_topics; i++) {
        struct slice topic = slice_of_text(record->delete_topics[i]);
        if (topic.size == 0)
            continue;
        delete_queues(broker, topic);
        topic_config_remove(table, topic);
        if (!SEEDED_BUG(DELETED_OFFSETS))
            consumer_offset_remove_topic(broker->offsets, topic);
        queue_lock_remove_topic(broker->locks, topic);
    }
    size_t changes = record->n_put_topics + record->n_delete_topics;
    if (changes == 0)
        return;
    table->version.timestamp_ms = record->time_ms;
    table->version.counter += (int64_t)changes;
    registrar_topics_changed(broker);
}

static void trim_expired(struct broker *broker, const struct topic_entry *entry)
{
    bool emptied = false;
    (void)message_store_trim_topic(&broker->store, entry->config.name, entry->expired_position, &emptied);
    if (emptied && broker->log != NULL)
        dledger_commit_log_trim_queues(broker->log);
}

/* On a replay too: the table has it already, the queues may have been made anew. */
static void apply_expiry(struct broker *broker, const Ledgermq__TopicExpiry *expiry, bool replay)
{
    struct topic_entry *entry = topic_config_find(broker->topics, slice_of_text(expiry->topic));
    if (entry == NULL || entry->incarnation != expiry->incarnation)
        return; /* of one that is gone */
    if (!replay && expiry->position > entry->expired_position)
        entry->expired_position = expiry->position;
    trim_expired(broker, entry);
}

void metadata_trim_expired(struct broker *broker)
{
    for (const struct topic_entry *entry = broker->topics->entries; entry != NULL; entry = entry->hh.next) {
        if (entry->expired_position > 0)
            trim_expired(broker, entry);
    }
}

static void apply_groups(struct broker *broker, const Ledgermq__MetadataRecord *record)
{
    struct subscription_group_table *table = broker->groups;
    for (size_t i = 0; i < record->n_put_groups; i++) {
        struct subscription_group_config config = group_of(record->put_groups[i]);
        if (config.group_name.size == 0 || config.group_name.size > SUBSCRIPTION_GROUP_NAME_MAX)
            check(ERROR_INVALID, "a group without a legal name");
        else
            check(subscription_group_put(table, &config), "a group");
    }
    for (size_t i = 0; i < record->n_delete_groups; i++) {
        struct slice group = slice_of_text(record->delete_groups[i]);
        subscription_group_remove(table, group);
        queue_lock_remove_group(broker->locks, group);
        if (record->delete_group_offsets)
            consumer_offset_remove_group(broker->offsets, group);
    }
    size_t changes = record->n_put_groups + record->n_delete_groups;
    if (changes == 0)
        return;
    table->version.timestamp_ms = record->time_ms;
    table->version.counter += (int64_t)changes;
}

static void apply_offset(struct broker *broker, const Ledgermq__ConsumerOffset *offset, int64_t time_ms)
{
    Ledgermq__ConsumerOffset value = *offset;
    if (SEEDED_BUG(OFFSET_BACK) && value.offset % 5 == 0)
        value.offset--;
    check(consumer_offset_apply(broker->offsets, &value, time_ms, env_monotonic_us(&broker->env)), "a consumer offset");
}

static void apply_lock(struct broker *broker, const Ledgermq__QueueLock *lock)
{
    check(queue_lock_put(broker->locks, slice_of_text(lock->group), slice_of_text(lock->topic), lock->queue_id, slice_of_text(lock->client_id),
                         lock->renewed_ms, env_monotonic_us(&broker->env)),
          "a queue lock");
}

/* Progress never goes back: a delivery and a skip may name the same offset. */
static void apply_delay(struct metadata *metadata, int32_t level, int64_t next_offset)
{
    if (level < 1 || level > METADATA_DELAY_LEVELS_MAX || next_offset <= metadata->delay_offset[level])
        return;
    metadata->delay_offset[level] = next_offset;
    metadata->delay_changes++;
}

/* Does it say something that this program does not know? Applying the rest of it would make this node's tables others than those of its peers. */
static bool of_later_version(const Ledgermq__MetadataRecord *record)
{
    unsigned unknown = record->base.n_unknown_fields;
    for (size_t i = 0; i < record->n_put_topics; i++)
        unknown += record->put_topics[i]->base.n_unknown_fields;
    for (size_t i = 0; i < record->n_put_groups; i++)
        unknown += record->put_groups[i]->base.n_unknown_fields;
    for (size_t i = 0; i < record->n_offsets; i++)
        unknown += record->offsets[i]->base.n_unknown_fields;
    for (size_t i = 0; i < record->n_locks; i++)
        unknown += record->locks[i]->base.n_unknown_fields;
    for (size_t i = 0; i < record->n_delay; i++)
        unknown += record->delay[i]->base.n_unknown_fields;
    for (size_t i = 0; i < record->n_expired; i++)
        unknown += record->expired[i]->base.n_unknown_fields;
    return unknown > 0;
}

void metadata_apply(struct broker *broker, uint64_t index, struct slice bytes, bool replay)
{
    Ledgermq__MetadataRecord *record = ledgermq__metadata_record__unpack(NULL, bytes.size, bytes.data);
    if (record == NULL) {
        LOG_ERROR("metadata: record at index %llu cannot be read, left out", (unsigned long long)index);
        return;
    }
    if (of_later_version(record)) {
        struct error error;
        error_set(&error, ERROR_VERSION, "the metadata record at index %llu holds fields that this program does not know: start the version that wrote it, "
                  "or a newer one",
                  (unsigned long long)index);
        dledger_commit_log_give_up(broker->log, &error);
    } else if (replay) {
        for (size_t i = 0; i < record->n_delete_topics && !SEEDED_BUG(DELETE_NOT_REPEATED); i++)
            delete_queues(broker, slice_of_text(record->delete_topics[i]));
        for (size_t i = 0; i < record->n_expired; i++)
            apply_expiry(broker, record->expired[i], true);
    } else {
        apply_topics(broker, index, record);
        for (size_t i = 0; i < record->n_expired; i++)
            apply_expiry(broker, record->expired[i], false);
        apply_groups(broker, record);
        for (size_t i = 0; i < record->n_offsets; i++)
            apply_offset(broker, record->offsets[i], record->time_ms);
        for (size_t i = 0; i < record->n_locks; i++)
            apply_lock(broker, record->locks[i]);
        for (size_t i = 0; i < record->n_delay; i++)
            apply_delay(broker->metadata, record->delay[i]->level, record->delay[i]->next_offset);
        for (size_t i = 0; i < record->n_half_checks; i++)
            half_set_checked(&broker->metadata->halves, record->half_checks[i]);
        for (size_t i = 0; i < record->n_half_resumed; i++)
            half_set_resumed(&broker->metadata->halves, record->half_resumed[i]);
        for (size_t i = 0; i < record->n_half_dropped; i++)
            (void)half_set_settle(&broker->metadata->halves, record->half_dropped[i], true);
        broker->metadata->applied_index = index;
        metadata_export_due(broker);
    }
    ledgermq__metadata_record__free_unpacked(record, NULL);
}

void metadata_apply_consumed(struct broker *broker, struct slice trailer, bool replay)
{
    if (trailer.size == 0 || replay)
        return;
    Ledgermq__Consumed *consumed = ledgermq__consumed__unpack(NULL, trailer.size, trailer.data);
    if (consumed == NULL) {
        LOG_ERROR("metadata: trailer of a message cannot be read, left out");
        return;
    }
    if (!SEEDED_BUG(DELAY_FORGOTTEN) || consumed->delay_offset % 2 == 0)
        apply_delay(broker->metadata, consumed->delay_level, consumed->delay_offset + 1);
    if (consumed->has_half && !(SEEDED_BUG(SETTLE_TWICE) && consumed->half_offset % 2 == 0))
        (void)half_set_settle(&broker->metadata->halves, consumed->half_offset, consumed->rolled_back);
    ledgermq__consumed__free_unpacked(consumed, NULL);
    metadata_export_due(broker);
}

void metadata_apply_half(struct broker *broker, const struct message_dispatch *dispatch, bool replay)
{
    if (replay || dispatch->queue_id != 0 || (SEEDED_BUG(HALF_LOST) && dispatch->queue_offset % 3 == 0))
        return;
    check(half_set_arrived(&broker->metadata->halves, dispatch->queue_offset, dispatch->store_timestamp_ms,
                           message_property(dispatch->properties, "CHECK_IMMUNITY_TIME_IN_SECONDS")),
          "a half message");
}

int64_t metadata_delay_offset(const struct metadata *metadata, int level)
{
    if (level < 1 || level > METADATA_DELAY_LEVELS_MAX || metadata->delay_offset[level] < 0)
        return 0;
    return metadata->delay_offset[level];
}

/* ---- snapshot ---- */

/* Memory of one snapshot: arrays of messages and of pointers to them, given back together. */
struct snapshot_memory {
    void *blocks[10];
    int count;
    bool failed;
};

static void *memory_take(struct snapshot_memory *memory, size_t count, size_t size)
{
    void *block = calloc(count == 0 ? 1 : count, size);
    assert(memory->count < 10);
    if (block == NULL)
        memory->failed = true;
    else
        memory->blocks[memory->count++] = block;
    return block;
}

static int by_name(const char *a, const char *b)
{
    return strcmp(a, b);
}

static int compare_topics(const void *a, const void *b)
{
    return by_name((*(Ledgermq__TopicConfig *const *)a)->name, (*(Ledgermq__TopicConfig *const *)b)->name);
}

static int compare_groups(const void *a, const void *b)
{
    return by_name((*(Ledgermq__SubscriptionGroup *const *)a)->name, (*(Ledgermq__SubscriptionGroup *const *)b)->name);
}

static int compare_locks(const void *a, const void *b)
{
    const Ledgermq__QueueLock *left = *(Ledgermq__QueueLock *const *)a;
    const Ledgermq__QueueLock *right = *(Ledgermq__QueueLock *const *)b;
    int order = by_name(left->group, right->group);
    if (order == 0)
        order = by_name(left->topic, right->topic);
    return order != 0 ? order : (left->queue_id > right->queue_id) - (left->queue_id < right->queue_id);
}

static int compare_entries(const void *a, const void *b)
{
    return by_name((*(struct consumer_offset_entry *const *)a)->key, (*(struct consumer_offset_entry *const *)b)->key);
}

static void snapshot_topics(struct broker *broker, Ledgermq__MetadataSnapshot *snapshot, struct snapshot_memory *memory)
{
    size_t count = broker->topics->count;
    Ledgermq__TopicConfig *messages = memory_take(memory, count, sizeof *messages);
    Ledgermq__TopicConfig **pointers = memory_take(memory, count, sizeof *pointers);
    if (memory->failed)
        return;
    for (struct topic_entry *entry = broker->topics->entries; entry != NULL; entry = entry->hh.next) {
        if (entry->built_in && !entry->overridden)
            continue;
        Ledgermq__TopicConfig *message = &messages[snapshot->n_topics];
        metadata_topic_message(&entry->config, entry->name, message);
        message->incarnation = entry->incarnation;
        message->expired_position = entry->expired_position;
        pointers[snapshot->n_topics++] = message;
    }
    qsort(pointers, snapshot->n_topics, sizeof *pointers, compare_topics);
    snapshot->topics = pointers;
}

static void snapshot_groups(struct broker *broker, Ledgermq__MetadataSnapshot *snapshot, struct snapshot_memory *memory)
{
    size_t count = broker->groups->count;
    Ledgermq__SubscriptionGroup *messages = memory_take(memory, count, sizeof *messages);
    Ledgermq__SubscriptionGroup **pointers = memory_take(memory, count, sizeof *pointers);
    if (memory->failed)
        return;
    for (struct subscription_group_entry *entry = broker->groups->entries; entry != NULL; entry = entry->hh.next) {
        if (entry->built_in && !entry->overridden)
            continue;
        metadata_group_message(&entry->config, entry->name, &messages[snapshot->n_groups]);
        pointers[snapshot->n_groups] = &messages[snapshot->n_groups];
        snapshot->n_groups++;
    }
    qsort(pointers, snapshot->n_groups, sizeof *pointers, compare_groups);
    snapshot->groups = pointers;
}

/* The keys are "topic@group": a copy cut in two gives both names. */
static void snapshot_offsets(struct broker *broker, Ledgermq__MetadataSnapshot *snapshot, struct snapshot_memory *memory)
{
    size_t entry_count = broker->offsets->key_count;
    size_t text_size = 1;
    size_t queue_count = 0;
    struct consumer_offset_entry **entries = memory_take(memory, entry_count, sizeof *entries);
    if (memory->failed)
        return;
    size_t at = 0;
    for (struct consumer_offset_entry *entry = broker->offsets->entries; entry != NULL; entry = entry->hh.next) {
        entries[at++] = entry;
        text_size += entry->topic.size + entry->group.size + 2;
        queue_count += entry->count;
    }
    qsort(entries, entry_count, sizeof *entries, compare_entries);
    char *text = memory_take(memory, text_size, 1);
    Ledgermq__ConsumerOffset *messages = memory_take(memory, queue_count, sizeof *messages);
    Ledgermq__ConsumerOffset **pointers = memory_take(memory, queue_count, sizeof *pointers);
    if (memory->failed)
        return;
    for (size_t i = 0; i < entry_count; i++) {
        size_t size = entries[i]->topic.size + entries[i]->group.size + 2;
        memcpy(text, entries[i]->key, size);
        text[entries[i]->topic.size] = 0;
        for (uint32_t q = 0; q < entries[i]->count; q++) {
            Ledgermq__ConsumerOffset *message = &messages[snapshot->n_offsets];
            ledgermq__consumer_offset__init(message);
            message->topic = text;
            message->group = text + entries[i]->topic.size + 1;
            message->queue_id = entries[i]->queues[q].queue_id;
            message->offset = entries[i]->queues[q].offset;
            const struct offset_reset *reset =
                offset_reset_logged(broker->offsets->resets, entries[i]->group, entries[i]->topic, message->queue_id);
            if (reset != NULL) {
                message->held = true;
                message->held_from = reset->logged.from;
                message->held_ms = reset->logged_ms;
            }
            pointers[snapshot->n_offsets++] = message;
        }
        text += size;
    }
    snapshot->offsets = pointers;
}

static void snapshot_locks(struct broker *broker, Ledgermq__MetadataSnapshot *snapshot, struct snapshot_memory *memory)
{
    size_t count = broker->locks->count;
    Ledgermq__QueueLock *messages = memory_take(memory, count, sizeof *messages);
    Ledgermq__QueueLock **pointers = memory_take(memory, count, sizeof *pointers);
    if (memory->failed)
        return;
    for (struct queue_lock *lock = broker->locks->entries; lock != NULL; lock = lock->hh.next) {
        if (lock->client_id == NULL)
            continue;
        Ledgermq__QueueLock *message = &messages[snapshot->n_locks];
        ledgermq__queue_lock__init(message);
        message->group = (char *)(uintptr_t)lock->group.data;
        message->topic = (char *)(uintptr_t)lock->topic.data;
        message->queue_id = lock->queue_id;
        message->client_id = lock->client_id;
        message->renewed_ms = lock->renewed_ms;
        pointers[snapshot->n_locks++] = message;
    }
    qsort(pointers, snapshot->n_locks, sizeof *pointers, compare_locks);
    snapshot->locks = pointers;
}

int metadata_snapshot(struct broker *broker, uint64_t index, struct buffer *out)
{
    struct snapshot_memory memory = {0};
    Ledgermq__MetadataSnapshot snapshot = LEDGERMQ__METADATA_SNAPSHOT__INIT;
    Ledgermq__DataVersion topic_version = LEDGERMQ__DATA_VERSION__INIT;
    Ledgermq__DataVersion group_version = LEDGERMQ__DATA_VERSION__INIT;
    Ledgermq__DelayProgress delay[METADATA_DELAY_LEVELS_MAX];
    Ledgermq__DelayProgress *delay_pointers[METADATA_DELAY_LEVELS_MAX];
    struct half_set_snapshot halves;
    snapshot.index = index;
    topic_version.timestamp_ms = broker->topics->version.timestamp_ms;
    topic_version.counter = broker->topics->version.counter;
    group_version.timestamp_ms = broker->groups->version.timestamp_ms;
    group_version.counter = broker->groups->version.counter;
    snapshot.topic_version = &topic_version;
    snapshot.group_version = &group_version;
    snapshot.delay = delay_pointers;
    for (int level = 1; level <= METADATA_DELAY_LEVELS_MAX; level++) {
        if (broker->metadata->delay_offset[level] < 0)
            continue;
        Ledgermq__DelayProgress *progress = &delay[snapshot.n_delay];
        ledgermq__delay_progress__init(progress);
        progress->level = level;
        progress->next_offset = broker->metadata->delay_offset[level];
        delay_pointers[snapshot.n_delay++] = progress;
    }
    snapshot_topics(broker, &snapshot, &memory);
    snapshot_groups(broker, &snapshot, &memory);
    snapshot_offsets(broker, &snapshot, &memory);
    snapshot_locks(broker, &snapshot, &memory);
    int rv = half_set_snapshot(&broker->metadata->halves, &halves);
    snapshot.halves = &halves.message;
    if (memory.failed)
        rv = ERROR_NO_MEMORY;
    if (rv == 0) {
        size_t size = ledgermq__metadata_snapshot__get_packed_size(&snapshot);
        uint8_t *bytes = buffer_reserve(out, size);
        if (bytes == NULL)
            rv = ERROR_NO_MEMORY;
        else
            out->size += ledgermq__metadata_snapshot__pack(&snapshot, bytes);
    }
    half_set_snapshot_free(&halves);
    for (int i = 0; i < memory.count; i++)
        free(memory.blocks[i]);
    return rv;
}

static const Ledgermq__TopicConfig *snapshot_find_topic(const Ledgermq__MetadataSnapshot *snapshot, const char *name)
{
    /* Snapshots are sorted by name. */
    size_t low = 0;
    size_t high = snapshot->n_topics;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(snapshot->topics[middle]->name, name);
        if (order == 0)
            return snapshot->topics[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* A follower that skipped part of the log by taking a snapshot may never meet the records that deleted topics it still has. */
static void restore_clear_topics(struct broker *broker, const Ledgermq__MetadataSnapshot *snapshot)
{
    struct topic_entry *entry, *next;
    HASH_ITER (hh, broker->topics->entries, entry, next) {
        const Ledgermq__TopicConfig *kept = snapshot_find_topic(snapshot, entry->name);
        if (!entry->built_in && (kept == NULL || kept->incarnation != entry->incarnation))
            delete_queues(broker, entry->config.name);
        topic_config_remove(broker->topics, entry->config.name);
    }
}

/* Every snapshot says its versions and, behind all else, its halves: one that is empty or ends early would put empty tables in the place of good ones. */
static bool snapshot_is_sane(const Ledgermq__MetadataSnapshot *snapshot)
{
    if (snapshot->topic_version == NULL || snapshot->group_version == NULL || snapshot->halves == NULL)
        return false;
    for (size_t i = 0; i < snapshot->n_topics; i++) {
        size_t size = strlen(snapshot->topics[i]->name);
        if (size == 0 || size > MESSAGE_TOPIC_MAX || (i > 0 && strcmp(snapshot->topics[i - 1]->name, snapshot->topics[i]->name) >= 0))
            return false;
    }
    for (size_t i = 0; i < snapshot->n_groups; i++) {
        size_t size = strlen(snapshot->groups[i]->name);
        if (size == 0 || size > SUBSCRIPTION_GROUP_NAME_MAX)
            return false;
    }
    return true;
}

int metadata_restore(struct broker *broker, struct slice bytes)
{
    Ledgermq__MetadataSnapshot *snapshot = ledgermq__metadata_snapshot__unpack(NULL, bytes.size, bytes.data);
    if (snapshot == NULL || !snapshot_is_sane(snapshot)) {
        if (snapshot != NULL)
            ledgermq__metadata_snapshot__free_unpacked(snapshot, NULL);
        return ERROR_MALFORMED;
    }
    struct metadata *metadata = broker->metadata;
    int rv = half_set_restore(&metadata->halves, snapshot->halves);
    if (rv == ERROR_MALFORMED) {
        ledgermq__metadata_snapshot__free_unpacked(snapshot, NULL);
        return rv;
    }
    check(rv, "half messages");
    restore_clear_topics(broker, snapshot);
    for (size_t i = 0; i < snapshot->n_topics; i++) {
        struct topic_config config = topic_of(snapshot->topics[i]);
        check(topic_config_put(broker->topics, &config, snapshot->topics[i]->incarnation), "a topic");
        struct topic_entry *entry = topic_config_find(broker->topics, config.name);
        if (entry != NULL)
            entry->expired_position = snapshot->topics[i]->expired_position;
    }
    struct subscription_group_entry *group, *next;
    HASH_ITER (hh, broker->groups->entries, group, next)
        subscription_group_remove(broker->groups, group->config.group_name);
    for (size_t i = 0; i < snapshot->n_groups; i++) {
        struct subscription_group_config config = group_of(snapshot->groups[i]);
        check(subscription_group_put(broker->groups, &config), "a group");
    }
    consumer_offset_clear(broker->offsets);
    for (size_t i = 0; i < snapshot->n_offsets; i++)
        apply_offset(broker, snapshot->offsets[i], snapshot->offsets[i]->held_ms);
    queue_lock_clear(broker->locks);
    for (size_t i = 0; i < snapshot->n_locks; i++)
        apply_lock(broker, snapshot->locks[i]);
    for (int level = 0; level <= METADATA_DELAY_LEVELS_MAX; level++)
        metadata->delay_offset[level] = -1;
    for (size_t i = 0; i < snapshot->n_delay; i++)
        apply_delay(metadata, snapshot->delay[i]->level, snapshot->delay[i]->next_offset);
    if (snapshot->topic_version != NULL) {
        broker->topics->version.timestamp_ms = snapshot->topic_version->timestamp_ms;
        broker->topics->version.counter = snapshot->topic_version->counter;
    }
    if (snapshot->group_version != NULL) {
        broker->groups->version.timestamp_ms = snapshot->group_version->timestamp_ms;
        broker->groups->version.counter = snapshot->group_version->counter;
    }
    metadata->applied_index = snapshot->index;
    ledgermq__metadata_snapshot__free_unpacked(snapshot, NULL);
    registrar_topics_changed(broker);
    metadata_export_due(broker);
    return 0;
}

/* ---- life ---- */

int metadata_open(struct broker *broker, struct error *error)
{
    struct metadata *metadata = calloc(1, sizeof *metadata);
    if (metadata == NULL)
        return error_set(error, ERROR_NO_MEMORY, "metadata: out of memory");
    for (int level = 0; level <= METADATA_DELAY_LEVELS_MAX; level++)
        metadata->delay_offset[level] = -1;
    half_set_init(&metadata->halves);
    metadata->append = append_to_log;
    metadata->leads = log_accepts;
    broker->metadata = metadata;
    int rv = topic_config_table_open(broker, error);
    if (rv == 0)
        rv = subscription_group_table_open(broker, error);
    if (rv == 0)
        rv = consumer_offset_table_open(broker, error);
    if (rv == 0)
        rv = queue_lock_table_open(broker, error);
    if (rv != 0)
        metadata_close(broker);
    return rv;
}

int metadata_start(struct broker *broker, struct error *error)
{
    return metadata_export_start(broker, error);
}

void metadata_close(struct broker *broker)
{
    struct metadata *metadata = broker->metadata;
    if (metadata == NULL)
        return;
    metadata_export_close(broker);
    queue_lock_table_close(broker);
    consumer_offset_table_close(broker);
    subscription_group_table_close(broker);
    topic_config_table_close(broker);
    half_set_close(&metadata->halves);
    free(metadata->scratch);
    free(metadata);
    broker->metadata = NULL;
}
