/* Which client of a group may consume a queue in order (requests 41 and 42).
 *
 * Follows org.apache.rocketmq.broker.client.rebalance.RebalanceLockManager 4.9.8, except that owners are in the replicated log, so that a change of
 * leader never gives one queue to two clients. A lock ends 60 s after its last renewal; 30 s when its owner is not connected any more (clients trust a
 * lock no longer than that); at once when the client unregisters. Time is judged on the leader alone. Loop thread only.
 */
#ifndef LEDGERMQ_BROKER_METADATA_QUEUE_LOCK_H
#define LEDGERMQ_BROKER_METADATA_QUEUE_LOCK_H

#include "broker/hash_table.h"
#include "proto/buffer.h"
#include "proto/error.h"

struct broker;

#define QUEUE_LOCK_TABLE_MAX 262144u      /* when it is full, locks that have expired are released */
#define QUEUE_LOCK_BATCH_MAX 4096u        /* queues in one request */
#define QUEUE_LOCK_EXPIRE_MS 60000
#define QUEUE_LOCK_EXPIRE_OFFLINE_MS 30000
#define QUEUE_LOCK_RENEW_RECORD_MS 10000 /* renewals are recorded at most this often; a new leader allows for that much more */

struct queue_lock {
    char *key; /* group, 0, topic, 0, queue id */
    struct slice group;
    struct slice topic;
    int32_t queue_id;
    char *client_id;    /* NULL: not locked, only a record on its way */
    int64_t renewed_ms; /* as recorded */

    /* This node's own, never in a snapshot. */
    uint64_t applied_us;      /* when the record was applied here, monotonic: the clocks of two leaders need not agree */
    uint64_t renewed_live_us; /* newest renewal that this leader has seen in its term, monotonic; 0 = none */
    char *proposed;          /* owner in the newest record on its way; "" = release */
    uint32_t proposals;      /* records on their way */
    bool unsettled;          /* the outcome of one is unknown: it may still come */
    UT_hash_handle hh;
};

struct queue_lock_table {
    struct queue_lock *entries; /* uthash by key */
    uint32_t count;
    uint64_t term; /* that renewals were seen in */
};

int queue_lock_table_open(struct broker *broker, struct error *error);
void queue_lock_table_close(struct broker *broker);

struct queue_lock_item {
    struct slice topic;
    int32_t queue_id;
    bool granted; /* out */
};
/* code 0: the grants hold. Called once, never inside the call below. */
typedef void (*queue_lock_done)(struct broker *broker, void *context, int code);

/* Tries to lock each item for the client and sets granted. 0: nothing had to be recorded, answer now. 1: records are on their way; answer in `done`
 * (items may be gone by then: keep your answer). Negative: -(error code). */
int queue_lock_try(struct broker *broker, struct slice group, struct slice client_id, struct queue_lock_item *items, uint32_t count,
                   queue_lock_done done, void *context);
/* Releases what this client owns of the items. Returns as above. */
int queue_lock_release(struct broker *broker, struct slice group, struct slice client_id, const struct queue_lock_item *items, uint32_t count,
                       queue_lock_done done, void *context);
/* The client leaves the group (request 35): releases all its locks there. Nothing to wait for; does nothing on a follower. */
void queue_lock_release_client(struct broker *broker, struct slice group, struct slice client_id);

/* Renewals that were seen in an earlier term say nothing of those that another leader saw after them. */
void queue_lock_role_changed(struct queue_lock_table *table, uint64_t term);

/* ---- for metadata.c ---- */

/* Empty client_id: released. ERROR_NO_MEMORY, ERROR_BUSY at the limit. */
int queue_lock_put(struct queue_lock_table *table, struct slice group, struct slice topic, int32_t queue_id, struct slice client_id,
                   int64_t renewed_ms, uint64_t now_us);
void queue_lock_remove_topic(struct queue_lock_table *table, struct slice topic);
void queue_lock_remove_group(struct queue_lock_table *table, struct slice group);
void queue_lock_clear(struct queue_lock_table *table);

#endif
