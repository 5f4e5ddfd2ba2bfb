/* 1. The leader judges each queue by the newest record on its way, else by the applied owner and his last renewal.
 * 2. A new owner, a release, and a renewal when the recorded one is 10 s old become one record for the whole request.
 * 3. The answer goes out when the record is applied, so a grant that a client has seen survives any change of leader.
 *
 * A renewal within these 10 s only moves the leader's own clock. A later leader does not know of it and therefore lets every lock live 10 s longer than
 * recorded: no lock ends before its owner stops trusting it.
 */
#include "broker/metadata/queue_lock.h"

#include <assert.h>
#include <stdlib.h>

#include "broker/broker.h"
#include "broker/broker_stats.h"
#include "broker/metadata/group_queue_key.h"
#include "broker/metadata/metadata.h"
#include "broker/remoting/client_registry.h"
#include "store/seeded_bug.h"

#define CLIENT_ID_MAX_BYTES 1024u
#define RELEASES_PER_RECORD 1024u /* x some 600 bytes at the worst */

static struct queue_lock *lock_find(struct queue_lock_table *table, struct slice group, struct slice topic, int32_t queue_id)
{
    char key[GROUP_QUEUE_KEY_MAX];
    struct queue_lock *lock;
    size_t size = group_queue_key(key, group, topic, queue_id);
    HASH_FIND(hh, table->entries, key, size, lock);
    return lock;
}

static struct queue_lock *lock_make(struct queue_lock_table *table, struct slice group, struct slice topic, int32_t queue_id, int *code)
{
    char key[GROUP_QUEUE_KEY_MAX];
    struct queue_lock *lock;
    size_t size = group_queue_key(key, group, topic, queue_id);
    HASH_FIND(hh, table->entries, key, size, lock);
    if (lock != NULL)
        return lock;
    if (table->count >= QUEUE_LOCK_TABLE_MAX) {
        *code = ERROR_BUSY;
        return NULL;
    }
    lock = calloc(1, sizeof *lock);
    if (lock == NULL || (lock->key = malloc(size)) == NULL) {
        free(lock);
        *code = ERROR_NO_MEMORY;
        return NULL;
    }
    memcpy(lock->key, key, size);
    lock->group = slice_of(lock->key, group.size);
    lock->topic = slice_of(lock->key + group.size + 1, topic.size);
    lock->queue_id = queue_id;
    HASH_ADD_KEYPTR(hh, table->entries, lock->key, size, lock);
    table->count++;
    return lock;
}

static void lock_drop(struct queue_lock_table *table, struct queue_lock *lock)
{
    HASH_DEL(table->entries, lock);
    table->count--;
    free(lock->proposed);
    free(lock->client_id);
    free(lock->key);
    free(lock);
}

static void lock_drop_if_idle(struct queue_lock_table *table, struct queue_lock *lock)
{
    if (lock->client_id == NULL && lock->proposals == 0)
        lock_drop(table, lock);
}

int queue_lock_put(struct queue_lock_table *table, struct slice group, struct slice topic, int32_t queue_id, struct slice client_id,
                   int64_t renewed_ms, uint64_t now_us)
{
    int code = 0;
    if (!group_queue_name_is_legal(group) || !group_queue_name_is_legal(topic))
        return ERROR_INVALID;
    if (client_id.size == 0) {
        struct queue_lock *held = lock_find(table, group, topic, queue_id);
        if (held != NULL) {
            free(held->client_id);
            held->client_id = NULL;
            held->renewed_ms = 0;
            held->renewed_live_us = 0;
            lock_drop_if_idle(table, held);
        }
        return 0;
    }
    char *owner = slice_to_text(client_id);
    struct queue_lock *lock = owner == NULL ? NULL : lock_make(table, group, topic, queue_id, &code);
    if (lock == NULL) {
        free(owner);
        return code != 0 ? code : ERROR_NO_MEMORY;
    }
    /* A record of ours: our own clock counts on. Else it may come from another leader, and what we saw ourselves is old. */
    if (lock->proposals == 0 || strcmp(lock->proposed, owner) != 0)
        lock->renewed_live_us = 0;
    free(lock->client_id);
    lock->client_id = owner;
    lock->renewed_ms = renewed_ms;
    lock->applied_us = now_us;
    return 0;
}

void queue_lock_role_changed(struct queue_lock_table *table, uint64_t term)
{
    struct queue_lock *lock, *next;
    if (table == NULL || term == table->term)
        return;
    table->term = term;
    if (SEEDED_BUG(LOCKS_FORGOTTEN))
        queue_lock_clear(table);
    HASH_ITER (hh, table->entries, lock, next)
        lock->renewed_live_us = 0;
}

void queue_lock_remove_topic(struct queue_lock_table *table, struct slice topic)
{
    struct queue_lock *lock, *next;
    HASH_ITER (hh, table->entries, lock, next) {
        if (slice_equal(lock->topic, topic))
            lock_drop(table, lock);
    }
}

void queue_lock_remove_group(struct queue_lock_table *table, struct slice group)
{
    struct queue_lock *lock, *next;
    HASH_ITER (hh, table->entries, lock, next) {
        if (slice_equal(lock->group, group))
            lock_drop(table, lock);
    }
}

void queue_lock_clear(struct queue_lock_table *table)
{
    struct queue_lock *lock, *next;
    HASH_ITER (hh, table->entries, lock, next)
        lock_drop(table, lock);
}

/* ---- one record on its way ---- */

struct proposal {
    queue_lock_done done;
    void *context;
    uint32_t count;
    uint32_t capacity;
    struct proposal_item {
        char key[GROUP_QUEUE_KEY_MAX]; /* the lock may be gone when the record is done */
        size_t key_size;
    } * items;
    Ledgermq__QueueLock *locks;
    Ledgermq__QueueLock **pointers;
};

static void proposal_free(struct proposal *proposal)
{
    if (proposal == NULL)
        return;
    free(proposal->items);
    free(proposal->locks);
    free(proposal->pointers);
    free(proposal);
}

static struct proposal *proposal_new(uint32_t capacity)
{
    struct proposal *proposal = calloc(1, sizeof *proposal);
    if (proposal == NULL)
        return NULL;
    proposal->capacity = capacity;
    proposal->items = calloc(capacity, sizeof *proposal->items);
    proposal->locks = calloc(capacity, sizeof *proposal->locks);
    proposal->pointers = calloc(capacity, sizeof *proposal->pointers);
    if (proposal->items != NULL && proposal->locks != NULL && proposal->pointers != NULL)
        return proposal;
    proposal_free(proposal);
    return NULL;
}

/* `owner` is NUL-terminated and lives until the record is submitted. */
static int proposal_add(struct proposal *proposal, struct queue_lock *lock, const char *owner, int64_t now_ms)
{
    char *copy = strdup(owner);
    if (copy == NULL)
        return ERROR_NO_MEMORY;
    assert(proposal->count < proposal->capacity);
    free(lock->proposed);
    lock->proposed = copy;
    lock->proposals++;
    Ledgermq__QueueLock *entry = &proposal->locks[proposal->count];
    ledgermq__queue_lock__init(entry);
    /* The key ends both names with a 0. */
    entry->group = (char *)(uintptr_t)lock->group.data;
    entry->topic = (char *)(uintptr_t)lock->topic.data;
    entry->queue_id = lock->queue_id;
    entry->client_id = (char *)(uintptr_t)owner;
    entry->renewed_ms = now_ms;
    proposal->pointers[proposal->count] = entry;
    struct proposal_item *item = &proposal->items[proposal->count];
    item->key_size = group_queue_key(item->key, lock->group, lock->topic, lock->queue_id);
    proposal->count++;
    return 0;
}

/* Nobody waits for the record any more. */
static void proposal_settle(struct queue_lock_table *table, struct proposal *proposal)
{
    for (uint32_t i = 0; i < proposal->count; i++) {
        struct queue_lock *lock;
        HASH_FIND(hh, table->entries, proposal->items[i].key, proposal->items[i].key_size, lock);
        /* The topic may have been deleted meanwhile, and the lock made anew. */
        if (lock == NULL || lock->proposals == 0)
            continue;
        if (--lock->proposals == 0) {
            free(lock->proposed);
            lock->proposed = NULL;
        }
        lock_drop_if_idle(table, lock);
    }
}

static void proposal_done(struct broker *broker, void *context, int code)
{
    struct proposal *proposal = context;
    /* One that was answered too late stands in the log and may commit yet, before whatever is proposed from now on. */
    for (uint32_t i = 0; i < proposal->count; i++) {
        struct queue_lock *lock;
        HASH_FIND(hh, broker->locks->entries, proposal->items[i].key, proposal->items[i].key_size, lock);
        if (lock != NULL)
            lock->unsettled = code != 0;
    }
    proposal_settle(broker->locks, proposal);
    if (proposal->done != NULL)
        proposal->done(broker, proposal->context, code);
    proposal_free(proposal);
}

/* Takes the proposal. 1 on its way, 0 nothing in it, -(code). */
static int proposal_submit(struct broker *broker, struct proposal *proposal, queue_lock_done done, void *context)
{
    if (proposal->count == 0) {
        proposal_free(proposal);
        return 0;
    }
    Ledgermq__MetadataRecord record = LEDGERMQ__METADATA_RECORD__INIT;
    record.n_locks = proposal->count;
    record.locks = proposal->pointers;
    proposal->done = done;
    proposal->context = context;
    int rv = metadata_submit(broker, &record, proposal_done, proposal);
    if (rv == 0)
        return 1;
    proposal_settle(broker->locks, proposal);
    proposal_free(proposal);
    return -rv;
}

/* ---- the leader's judgement ---- */

/* When the lock was last renewed, on the monotonic clock. A leader that has not seen a renewal itself goes by the record: by its wall-clock time, but not
 * further back than it was applied here, since that clock was another node's. */
static uint64_t renewed_us(struct queue_lock *lock, int64_t now_ms, uint64_t now_us)
{
    if (lock->renewed_live_us == 0) {
        int64_t age_ms = now_ms - lock->renewed_ms;
        uint64_t age_us = age_ms <= 0 ? 0 : (uint64_t)age_ms * 1000;
        uint64_t since_us = now_us > age_us ? now_us - age_us : 1;
        if (since_us < lock->applied_us)
            since_us = lock->applied_us;
        since_us += QUEUE_LOCK_RENEW_RECORD_MS * 1000ull;
        lock->renewed_live_us = since_us > now_us ? now_us : since_us;
    }
    return lock->renewed_live_us;
}

static bool is_expired(struct broker *broker, struct queue_lock *lock, int64_t now_ms, uint64_t now_us)
{
    struct client_group *group = broker->clients == NULL ? NULL : client_registry_consumer_group(broker->clients, lock->group);
    bool online = group != NULL && client_registry_channel(group, slice_of_text(lock->client_id)) != NULL;
    uint64_t limit_us = (online ? QUEUE_LOCK_EXPIRE_MS : QUEUE_LOCK_EXPIRE_OFFLINE_MS) * 1000ull;
    uint64_t since_us = renewed_us(lock, now_ms, now_us);
    return now_us > since_us && now_us - since_us > limit_us;
}

/* Nobody releases the locks of an owner that was killed, and nobody may want the queues: when the table is full they make room for those that do. */
static void release_expired(struct broker *broker, int64_t now_ms, uint64_t now_us)
{
    struct proposal *proposal = proposal_new(RELEASES_PER_RECORD);
    struct queue_lock *lock, *next;
    HASH_ITER (hh, broker->locks->entries, lock, next) {
        if (proposal == NULL || proposal->count == proposal->capacity)
            break;
        if (lock->client_id != NULL && lock->proposals == 0 && is_expired(broker, lock, now_ms, now_us) && proposal_add(proposal, lock, "", 0) != 0)
            break;
    }
    if (proposal != NULL)
        proposal_submit(broker, proposal, NULL, NULL);
}

enum verdict { DENY, GRANT, GRANT_AND_RECORD };

static enum verdict judge(struct broker *broker, struct queue_lock *lock, struct slice client_id, int64_t now_ms, uint64_t now_us)
{
    if (lock->proposals > 0) {
        /* What is on its way will be the truth, or the leadership is lost and no answer counts. */
        return lock->proposed[0] == 0 || slice_equal_text(client_id, lock->proposed) ? GRANT_AND_RECORD : DENY;
    }
    if (lock->client_id == NULL)
        return GRANT_AND_RECORD;
    if (slice_equal_text(client_id, lock->client_id)) {
        int64_t age_ms = now_ms - lock->renewed_ms;
        return age_ms >= 0 && age_ms < QUEUE_LOCK_RENEW_RECORD_MS && !lock->unsettled ? GRANT : GRANT_AND_RECORD;
    }
    return is_expired(broker, lock, now_ms, now_us) ? GRANT_AND_RECORD : DENY;
}

int queue_lock_try(struct broker *broker, struct slice group, struct slice client_id, struct queue_lock_item *items, uint32_t count,
                   queue_lock_done done, void *context)
{
    if (!metadata_leads(broker))
        return -ERROR_NOT_LEADER;
    if (count > QUEUE_LOCK_BATCH_MAX || client_id.size == 0 || client_id.size > CLIENT_ID_MAX_BYTES || !group_queue_name_is_legal(group))
        return -ERROR_INVALID;
    for (uint32_t i = 0; i < count; i++) {
        items[i].granted = false;
        if (!group_queue_name_is_legal(items[i].topic))
            return -ERROR_INVALID;
    }
    struct proposal *proposal = proposal_new(count == 0 ? 1 : count);
    char *owner = slice_to_text(client_id);
    int64_t now_ms = env_now_ms(&broker->env);
    uint64_t now_us = env_monotonic_us(&broker->env);
    int rv = proposal == NULL || owner == NULL ? ERROR_NO_MEMORY : 0;
    for (uint32_t i = 0; rv == 0 && i < count; i++) {
        struct queue_lock *lock = lock_make(broker->locks, group, items[i].topic, items[i].queue_id, &rv);
        if (lock == NULL) {
            if (rv == ERROR_BUSY)
                rv = broker_stats_busy(broker->stats, LIMIT_HIT_QUEUE_LOCKS);
            break;
        }
        enum verdict verdict = judge(broker, lock, client_id, now_ms, now_us);
        /* Another leader may have given it away: only the log can tell. */
        if (verdict == GRANT && broker->log != NULL && dledger_commit_log_in_doubt(broker->log))
            verdict = GRANT_AND_RECORD;
        items[i].granted = verdict != DENY;
        if (verdict != DENY)
            lock->renewed_live_us = now_us;
        if (verdict == GRANT_AND_RECORD && (rv = proposal_add(proposal, lock, owner, now_ms)) != 0)
            lock_drop_if_idle(broker->locks, lock);
    }
    if (rv == 0) {
        rv = proposal_submit(broker, proposal, done, context);
    } else {
        if (proposal != NULL)
            proposal_settle(broker->locks, proposal);
        proposal_free(proposal);
        if (rv == ERROR_BUSY)
            release_expired(broker, now_ms, now_us);
        rv = -rv;
    }
    free(owner);
    return rv;
}

static bool owns(const struct queue_lock *lock, struct slice client_id)
{
    const char *owner = lock->proposals > 0 ? lock->proposed : lock->client_id;
    return owner != NULL && owner[0] != 0 && slice_equal_text(client_id, owner);
}

int queue_lock_release(struct broker *broker, struct slice group, struct slice client_id, const struct queue_lock_item *items, uint32_t count,
                       queue_lock_done done, void *context)
{
    if (!metadata_leads(broker))
        return -ERROR_NOT_LEADER;
    if (count > QUEUE_LOCK_BATCH_MAX || !group_queue_name_is_legal(group))
        return -ERROR_INVALID;
    struct proposal *proposal = proposal_new(count == 0 ? 1 : count);
    int rv = proposal == NULL ? ERROR_NO_MEMORY : 0;
    for (uint32_t i = 0; rv == 0 && i < count; i++) {
        struct queue_lock *lock = group_queue_name_is_legal(items[i].topic) ? lock_find(broker->locks, group, items[i].topic, items[i].queue_id) : NULL;
        if (lock != NULL && owns(lock, client_id))
            rv = proposal_add(proposal, lock, "", 0);
    }
    if (rv == 0)
        return proposal_submit(broker, proposal, done, context);
    if (proposal != NULL)
        proposal_settle(broker->locks, proposal);
    proposal_free(proposal);
    return -rv;
}

void queue_lock_release_client(struct broker *broker, struct slice group, struct slice client_id)
{
    if (!metadata_leads(broker) || !group_queue_name_is_legal(group))
        return;
    struct proposal *proposal = NULL;
    struct queue_lock *lock, *next;
    HASH_ITER (hh, broker->locks->entries, lock, next) {
        if (!slice_equal(lock->group, group) || !owns(lock, client_id))
            continue;
        if (proposal == NULL && (proposal = proposal_new(RELEASES_PER_RECORD)) == NULL)
            return;
        if (proposal_add(proposal, lock, "", 0) != 0)
            break;
        if (proposal->count == proposal->capacity) {
            proposal_submit(broker, proposal, NULL, NULL);
            proposal = NULL;
        }
    }
    if (proposal != NULL)
        proposal_submit(broker, proposal, NULL, NULL);
}

/* ---- life ---- */

int queue_lock_table_open(struct broker *broker, struct error *error)
{
    broker->locks = calloc(1, sizeof *broker->locks);
    if (broker->locks == NULL)
        return error_set(error, ERROR_NO_MEMORY, "queue locks: out of memory");
    return 0;
}

void queue_lock_table_close(struct broker *broker)
{
    if (broker->locks == NULL)
        return;
    queue_lock_clear(broker->locks);
    free(broker->locks);
    broker->locks = NULL;
}
