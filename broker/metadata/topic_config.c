/* 1. A send to an unknown topic asks for it: one record per topic goes on its way, however many sends wait.
 * 2. metadata_apply puts it into the table on every node.
 * 3. The sends that waited go on, in the order in which they came.
 *
 * Java makes the topic in memory, answers, and tells other brokers later; here a topic that a client has seen exists on a majority.
 */
#include "broker/metadata/topic_config.h"

#include <assert.h>
#include <stdlib.h>

#include "broker/broker.h"
#include "broker/broker_stats.h"
#include "broker/metadata/consumer_offset.h"
#include "broker/metadata/metadata.h"
#include "proto/topic_validator.h"

struct topic_waiter {
    topic_config_ready ready;
    void *context;
    struct topic_waiter *next;
};

struct topic_creation {
    char *name;
    struct topic_waiter *first;
    struct topic_waiter *last;
    UT_hash_handle hh;
};

struct topic_deletion {
    char *name;
    uint32_t count;      /* of records that are not applied and may be */
    uint32_t unanswered; /* of those whose outcome was not told yet */
    int64_t doubtful_before; /* index that is behind those whose outcome was told to be unknown */
    UT_hash_handle hh;
};

/* ---- the table ---- */

struct topic_entry *topic_config_find(struct topic_config_table *table, struct slice name)
{
    struct topic_entry *entry;
    if (name.size == 0)
        return NULL;
    HASH_FIND(hh, table->entries, name.data, name.size, entry);
    return entry;
}

uint64_t topic_config_since(void *context, struct slice topic)
{
    const struct broker *broker = context;
    const struct topic_entry *entry = topic_config_find(broker->topics, topic);
    return entry == NULL ? UINT64_MAX : entry->incarnation;
}

struct topic_entry *topic_config_destination(struct broker *broker, struct slice name, int64_t physical_offset)
{
    struct topic_entry *entry = topic_config_find(broker->topics, name);
    if (entry != NULL && entry->deleting)
        topic_config_settle(broker);
    if (entry == NULL || entry->deleting)
        return NULL;
    if (entry->made_at == 0 && !entry->built_in) {
        int64_t made_at = dledger_commit_log_physical_offset(broker->log, entry->incarnation);
        /* No longer retained: then every record that still is came later. */
        entry->made_at = made_at < 0 ? 0 : made_at;
    }
    return physical_offset < entry->made_at ? NULL : entry;
}

struct consume_queue *topic_config_queue(struct topic_entry *entry, struct message_store *store, int32_t queue_id)
{
    if (queue_id < 0 || (uint32_t)queue_id >= TOPIC_CONFIG_QUEUES_MAX)
        return NULL;
    uint32_t slot = (uint32_t)queue_id;
    if (slot < entry->queue_slots && entry->queues[slot] != NULL)
        return entry->queues[slot];
    if (slot >= entry->queue_slots) {
        uint32_t slots = entry->queue_slots == 0 ? 4 : entry->queue_slots;
        while (slots <= slot)
            slots *= 2;
        struct consume_queue **queues = realloc(entry->queues, slots * sizeof(struct consume_queue *));
        if (queues == NULL)
            return NULL;
        memset(queues + entry->queue_slots, 0, (slots - entry->queue_slots) * sizeof(struct consume_queue *));
        entry->queues = queues;
        entry->queue_slots = slots;
    }
    entry->queues[slot] = message_store_queue(store, entry->config.name, queue_id, true, NULL);
    return entry->queues[slot];
}

void topic_config_forget_queues(struct topic_entry *entry)
{
    free(entry->queues);
    entry->queues = NULL;
    entry->queue_slots = 0;
}

/* ---- deletions on their way ---- */

static struct topic_deletion *deletion_find(struct topic_config_table *table, struct slice name)
{
    struct topic_deletion *deletion;
    HASH_FIND(hh, table->deletions, name.data, name.size, deletion);
    return deletion;
}

static void deletion_drop(struct topic_config_table *table, struct topic_deletion *deletion)
{
    HASH_DEL(table->deletions, deletion);
    free(deletion->name);
    free(deletion);
}

bool topic_config_is_going(struct topic_config_table *table, struct slice name)
{
    struct topic_deletion *deletion = deletion_find(table, name);
    return deletion != NULL && deletion->count > 0;
}

/* One of its records is applied, or will never be. */
static void deletion_ends(struct topic_config_table *table, struct slice name)
{
    struct topic_deletion *deletion = deletion_find(table, name);
    if (deletion != NULL && deletion->count > 0)
        deletion->count--;
    if (deletion != NULL && deletion->count == 0 && deletion->unanswered == 0)
        deletion_drop(table, deletion);
}

int topic_config_deletion_begins(struct broker *broker, struct slice name)
{
    struct topic_config_table *table = broker->topics;
    struct topic_entry *entry = topic_config_find(table, name);
    struct topic_deletion *deletion = deletion_find(table, name);
    if (deletion == NULL) {
        deletion = calloc(1, sizeof *deletion);
        if (deletion == NULL || (deletion->name = slice_to_text(name)) == NULL) {
            free(deletion);
            return ERROR_NO_MEMORY;
        }
        HASH_ADD_KEYPTR(hh, table->deletions, deletion->name, name.size, deletion);
    }
    consumer_offset_topic_goes(broker, name);
    deletion->count++;
    deletion->unanswered++;
    if (entry != NULL)
        entry->deleting = true;
    return 0;
}

void topic_config_deletion_settled(struct topic_config_table *table, struct slice name, int code, int64_t next_index)
{
    struct topic_deletion *deletion = deletion_find(table, name);
    if (deletion == NULL)
        return;
    if (deletion->unanswered > 0)
        deletion->unanswered--;
    if (code == ERROR_QUORUM_TIMEOUT || code == ERROR_DISK_STALLED || code == ERROR_LEADERSHIP_LOST) {
        deletion->doubtful_before = next_index; /* it may stand in the log */
        return;
    }
    /* The log keeps the order: when the last one is applied, those before it are, or never will be. */
    if (code == 0 && deletion->unanswered == 0)
        deletion->count = 0;
    if (code != 0 || deletion->count == 0)
        deletion_ends(table, name);
    struct topic_entry *entry = topic_config_find(table, name);
    if (entry != NULL)
        entry->deleting = topic_config_is_going(table, name);
}

/* What waited for its place and was refused when nobody waited for the answer any more never came into the log. Either others stand by now where it would, or
 * nothing is behind what is applied. */
void topic_config_log_reached(struct topic_config_table *table, int64_t applied_index, int64_t next_index)
{
    struct topic_deletion *deletion, *next;
    HASH_ITER (hh, table->deletions, deletion, next) {
        if (deletion->unanswered > 0 || (applied_index + 1 < deletion->doubtful_before && applied_index + 1 < next_index))
            continue;
        struct topic_entry *entry = topic_config_find(table, slice_of_text(deletion->name));
        if (entry != NULL)
            entry->deleting = false;
        deletion_drop(table, deletion);
    }
}

void topic_config_settle(struct broker *broker)
{
    struct dledger_state state;
    if (broker->topics->deletions == NULL || broker->log == NULL)
        return;
    dledger_commit_log_state(broker->log, &state);
    topic_config_log_reached(broker->topics, state.applied_index, state.next_index);
}

static void drop_deletions(struct topic_config_table *table)
{
    struct topic_deletion *deletion, *next;
    HASH_ITER (hh, table->deletions, deletion, next)
        deletion_drop(table, deletion);
}

void topic_config_role_changed(struct topic_config_table *table, uint64_t accept_count)
{
    if (table == NULL || accept_count == table->accept_count)
        return;
    table->accept_count = accept_count;
    if (table->deletions == NULL)
        return;
    drop_deletions(table);
    for (struct topic_entry *entry = table->entries; entry != NULL; entry = entry->hh.next)
        entry->deleting = false;
}

static struct topic_entry *entry_make(struct topic_config_table *table, struct slice name)
{
    struct topic_entry *entry = calloc(1, sizeof *entry);
    if (entry == NULL || (entry->name = slice_to_text(name)) == NULL) {
        free(entry);
        return NULL;
    }
    topic_config_init(&entry->config, slice_of(entry->name, name.size));
    HASH_ADD_KEYPTR(hh, table->entries, entry->name, name.size, entry);
    table->count++;
    entry->deleting = topic_config_is_going(table, name);
    return entry;
}

static void entry_set(struct topic_entry *entry, const struct topic_config *config)
{
    struct slice name = entry->config.name;
    entry->config = *config;
    entry->config.name = name;
}

static void entry_drop(struct topic_config_table *table, struct topic_entry *entry)
{
    HASH_DEL(table->entries, entry);
    table->count--;
    topic_config_forget_queues(entry);
    free(entry->name);
    free(entry);
}

int topic_config_put(struct topic_config_table *table, const struct topic_config *config, uint64_t incarnation)
{
    struct topic_entry *entry = topic_config_find(table, config->name);
    if (entry == NULL) {
        if (table->count >= TOPIC_CONFIG_TABLE_MAX)
            return ERROR_BUSY;
        entry = entry_make(table, config->name);
        if (entry == NULL)
            return ERROR_NO_MEMORY;
        entry->incarnation = incarnation;
    }
    entry_set(entry, config);
    entry->overridden = entry->built_in;
    table->changes++;
    return 0;
}

bool topic_config_remove(struct topic_config_table *table, struct slice name)
{
    struct topic_entry *entry = topic_config_find(table, name);
    deletion_ends(table, name);
    if (entry == NULL)
        return false;
    if (entry->built_in) {
        entry_set(entry, &entry->preset);
        entry->overridden = false;
        entry->deleting = false;
        topic_config_forget_queues(entry);
    } else {
        entry_drop(table, entry);
    }
    table->changes++;
    return true;
}

/* ---- built-in topics (TopicConfigManager's constructor) ---- */

static int add_built_in(struct topic_config_table *table, const char *name, int32_t queue_nums, int32_t perm)
{
    struct slice text = slice_of_text(name);
    struct topic_entry *entry = topic_config_find(table, text);
    if (entry == NULL)
        entry = entry_make(table, text);
    if (entry == NULL)
        return ERROR_NO_MEMORY;
    entry->built_in = true;
    entry->config.read_queue_nums = queue_nums;
    entry->config.write_queue_nums = queue_nums;
    entry->config.perm = perm;
    entry->preset = entry->config;
    return 0;
}

static int add_all_built_in(struct topic_config_table *table, const struct broker_config *config)
{
    const int32_t all = PERM_INHERIT | PERM_READ | PERM_WRITE;
    const int32_t read_write = PERM_READ | PERM_WRITE;
    char reply[MESSAGE_TOPIC_MAX + 1];
    if ((size_t)snprintf(reply, sizeof reply, "%s" TOPIC_REPLY_POSTFIX, config->broker_cluster_name) >= sizeof reply)
        return ERROR_INVALID;
    int rv = add_built_in(table, TOPIC_SELF_TEST, 1, read_write);
    if (rv == 0 && config->auto_create_topic_enable)
        rv = add_built_in(table, TOPIC_AUTO_CREATE, config->default_topic_queue_nums, all);
    if (rv == 0)
        rv = add_built_in(table, TOPIC_BENCHMARK, 1024, read_write);
    if (rv == 0)
        rv = add_built_in(table, config->broker_cluster_name, 16, config->cluster_topic_enable ? all : PERM_INHERIT);
    if (rv == 0)
        rv = add_built_in(table, config->broker_name, 1, config->broker_topic_enable ? all : PERM_INHERIT);
    if (rv == 0)
        rv = add_built_in(table, TOPIC_OFFSET_MOVED_EVENT, 1, read_write);
    if (rv == 0)
        rv = add_built_in(table, TOPIC_SCHEDULE, config->delay_levels > 0 ? config->delay_levels : 18, read_write);
    if (rv == 0 && config->trace_topic_enable)
        rv = add_built_in(table, config->msg_trace_topic_name, 1, read_write);
    if (rv == 0)
        rv = add_built_in(table, reply, 1, read_write);
    return rv;
}

int topic_config_table_open(struct broker *broker, struct error *error)
{
    struct topic_config_table *table = calloc(1, sizeof *table);
    if (table == NULL)
        return error_set(error, ERROR_NO_MEMORY, "topics: out of memory");
    broker->topics = table;
    int rv = add_all_built_in(table, &broker->config);
    if (rv == 0)
        return 0;
    topic_config_table_close(broker);
    return error_set(error, rv, rv == ERROR_INVALID ? "topics: brokerClusterName is too long to name a topic after it" : "topics: out of memory");
}

void topic_config_need_auto_create_model(struct broker *broker)
{
    struct topic_config_table *table = broker->topics;
    if (topic_config_find(table, SLICE_LITERAL(TOPIC_AUTO_CREATE)) == NULL &&
        add_built_in(table, TOPIC_AUTO_CREATE, broker->config.default_topic_queue_nums, PERM_INHERIT | PERM_READ | PERM_WRITE) == 0)
        table->changes++;
}

static void creation_drop(struct topic_config_table *table, struct topic_creation *creation)
{
    HASH_DEL(table->creations, creation);
    free(creation->name);
    free(creation);
}

void topic_config_table_close(struct broker *broker)
{
    struct topic_config_table *table = broker->topics;
    if (table == NULL)
        return;
    struct topic_creation *creation, *next_creation;
    HASH_ITER (hh, table->creations, creation, next_creation) {
        while (creation->first != NULL) {
            struct topic_waiter *waiter = creation->first;
            creation->first = waiter->next;
            free(waiter);
        }
        creation_drop(table, creation);
    }
    drop_deletions(table);
    struct topic_entry *entry, *next;
    HASH_ITER (hh, table->entries, entry, next)
        entry_drop(table, entry);
    free(table);
    broker->topics = NULL;
}

/* ---- creation ---- */

static int creation_wait(struct broker *broker, struct topic_creation *creation, topic_config_ready ready, void *context)
{
    struct topic_config_table *table = broker->topics;
    if (ready == NULL)
        return 0;
    if (table->waiters >= TOPIC_CONFIG_WAITERS_MAX)
        return broker_stats_busy(broker->stats, LIMIT_HIT_TOPICS);
    struct topic_waiter *waiter = calloc(1, sizeof *waiter);
    if (waiter == NULL)
        return ERROR_NO_MEMORY;
    waiter->ready = ready;
    waiter->context = context;
    if (creation->last == NULL)
        creation->first = waiter;
    else
        creation->last->next = waiter;
    creation->last = waiter;
    table->waiters++;
    return 0;
}

static void creation_done(struct broker *broker, void *context, int code)
{
    struct topic_config_table *table = broker->topics;
    struct topic_creation *creation = context;
    struct topic_waiter *waiter = creation->first;
    /* Applied, yet not there: the table is full. */
    if (code == 0 && topic_config_find(table, slice_of_text(creation->name)) == NULL)
        code = broker_stats_busy(broker->stats, LIMIT_HIT_TOPICS);
    creation_drop(table, creation);
    while (waiter != NULL) {
        struct topic_waiter *next = waiter->next;
        table->waiters--;
        waiter->ready(broker, waiter->context, code);
        free(waiter);
        waiter = next;
    }
}

static int create(struct broker *broker, const struct topic_config *config, topic_config_ready ready, void *context)
{
    struct topic_config_table *table = broker->topics;
    struct topic_creation *creation;
    HASH_FIND(hh, table->creations, config->name.data, config->name.size, creation);
    if (creation != NULL)
        return creation_wait(broker, creation, ready, context);
    if (table->count >= TOPIC_CONFIG_TABLE_MAX)
        return broker_stats_busy(broker->stats, LIMIT_HIT_TOPICS);
    creation = calloc(1, sizeof *creation);
    if (creation == NULL || (creation->name = slice_to_text(config->name)) == NULL) {
        free(creation);
        return ERROR_NO_MEMORY;
    }
    HASH_ADD_KEYPTR(hh, table->creations, creation->name, config->name.size, creation);
    int rv = creation_wait(broker, creation, ready, context);
    if (rv == 0) {
        Ledgermq__TopicConfig put;
        Ledgermq__TopicConfig *puts[1] = {&put};
        Ledgermq__MetadataRecord record = LEDGERMQ__METADATA_RECORD__INIT;
        metadata_topic_message(config, creation->name, &put);
        record.n_put_topics = 1;
        record.put_topics = puts;
        rv = metadata_submit(broker, &record, creation_done, creation);
    }
    if (rv != 0) {
        if (creation->first != NULL) {
            table->waiters--;
            free(creation->first);
        }
        creation_drop(table, creation);
    }
    return rv;
}

bool topic_config_is_coming(struct topic_config_table *table, struct slice topic)
{
    struct topic_creation *creation;
    HASH_FIND(hh, table->creations, topic.data, topic.size, creation);
    return creation != NULL;
}

/* A topic that is being deleted is made anew behind the record that deletes it. */
static bool is_there(struct topic_config_table *table, struct slice topic)
{
    struct topic_entry *entry = topic_config_find(table, topic);
    return entry != NULL && !entry->deleting;
}

int topic_config_create_in_send(struct broker *broker, struct slice topic, struct slice default_topic, int32_t default_queue_nums,
                                int32_t topic_sys_flag, topic_config_ready ready, void *context)
{
    if (is_there(broker->topics, topic))
        return ERROR_EXISTS;
    if (topic_validate(topic, NULL) != 0)
        return ERROR_NOT_FOUND;
    struct topic_entry *model = topic_config_find(broker->topics, default_topic);
    /* autoCreateTopicEnable=false takes the inherit bit from TBW102 only; other topics may still be named as the model. */
    if (model == NULL || model->deleting || (model->config.perm & PERM_INHERIT) == 0 ||
        (slice_equal_text(default_topic, TOPIC_AUTO_CREATE) && !broker->config.auto_create_topic_enable))
        return ERROR_NOT_FOUND;
    struct topic_config config = model->config;
    config.name = topic;
    int32_t queue_nums = default_queue_nums < config.write_queue_nums ? default_queue_nums : config.write_queue_nums;
    config.read_queue_nums = queue_nums < 0 ? 0 : queue_nums;
    config.write_queue_nums = config.read_queue_nums;
    config.perm &= ~PERM_INHERIT;
    config.topic_sys_flag = topic_sys_flag;
    config.order = false;
    return create(broker, &config, ready, context);
}

int topic_config_create_in_send_back(struct broker *broker, struct slice topic, int32_t queue_nums, int32_t perm, int32_t topic_sys_flag,
                                     topic_config_ready ready, void *context)
{
    if (is_there(broker->topics, topic))
        return ERROR_EXISTS;
    if (topic_validate(topic, NULL) != 0)
        return ERROR_NOT_FOUND;
    struct topic_config config;
    topic_config_init(&config, topic);
    config.read_queue_nums = queue_nums;
    config.write_queue_nums = queue_nums;
    config.perm = perm;
    config.topic_sys_flag = topic_sys_flag;
    return create(broker, &config, ready, context);
}
