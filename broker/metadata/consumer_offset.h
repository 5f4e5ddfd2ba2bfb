/* How far each consumer group has come in each queue. The table changes only by metadata records; commits are gathered on their way there.
 *
 * Follows org.apache.rocketmq.broker.offset.ConsumerOffsetManager 4.9.8. A group may move an offset backwards; what was stored is what comes back.
 * Loop thread only.
 */
#ifndef LEDGERMQ_BROKER_METADATA_CONSUMER_OFFSET_H
#define LEDGERMQ_BROKER_METADATA_CONSUMER_OFFSET_H

#include "broker/hash_table.h"
#include "proto/buffer.h"
#include "proto/error.h"
#include "proto/metadata.pb-c.h"

struct broker;

#define CONSUMER_OFFSET_KEYS_MAX 262144u    /* (topic, group) pairs */
#define CONSUMER_OFFSET_QUEUES_MAX 65536u   /* queue ids of one pair are below this */
#define CONSUMER_OFFSET_PENDING_MAX 65536u  /* gathered commits; a commit beyond is submitted at once */
#define CONSUMER_OFFSET_GATHER_MS 200u
/* Request of a follower to the leader over the peer link: body is a MetadataRecord with offsets. Not RocketMQ's; no code of its own is near. */
#define CONSUMER_OFFSET_DELTA 990

struct consumer_offset_queue {
    int32_t queue_id;
    int64_t offset;
};

struct consumer_offset_entry {
    char *key; /* "topic@group" */
    struct slice topic; /* both point into key */
    struct slice group;
    struct consumer_offset_queue *queues; /* ascending queue id */
    uint32_t count;
    uint32_t capacity;
    UT_hash_handle hh;
};

struct consumer_offset_table {
    struct consumer_offset_entry *entries; /* uthash by key */
    uint32_t key_count;
    uint64_t changes; /* counts every change in this process, for exports */

    /* private */
    struct consumer_offset_pending *pending;
    uint32_t pending_count;
    uint64_t gathered_us; /* when the first of them came */
    uint64_t term;        /* in which they came */
    struct consumer_offset_batch *open; /* waiters of what is pending */
    struct consumer_offset_batch *newest; /* last record on its way, NULL = none */
    uint32_t in_flight;                 /* records on their way */
    bool unsettled;                     /* the newest one that ended has no known outcome: it may stand in the log */
    struct offset_reset *resets;        /* that clients have not applied yet (offset_reset.h) */
    struct consumer_offset_timer *timer; /* NULL without a loop: tests flush by hand */
    uint64_t dropped; /* gathered commits that could not be kept: counted, the client sends them again */
};

int consumer_offset_table_open(struct broker *broker, struct error *error);
/* Submits nothing more; call consumer_offset_flush before a clean stop. */
void consumer_offset_table_close(struct broker *broker);

/* Committed offset; -1 when none is stored. */
int64_t consumer_offset_find(struct consumer_offset_table *table, struct slice group, struct slice topic, int32_t queue_id);
struct consumer_offset_entry *consumer_offset_find_entry(struct consumer_offset_table *table, struct slice group, struct slice topic);

/* A commit that nobody waits for (one-way 15, commitOffset of a pull). Gathered for CONSUMER_OFFSET_GATHER_MS; what is stored already is skipped; a
 * negative offset (ali-ons sends -1) is ignored, and so is one of a topic that is about to go. On a follower the gathered commits go to the leader. */
void consumer_offset_commit(struct broker *broker, struct slice group, struct slice topic, int32_t queue_id, int64_t offset);

typedef void (*consumer_offset_done)(struct broker *broker, void *context, int code);
/* A commit that somebody waits for, on the leader: goes into the log at the end of this turn. 0: `done` will be called, never inside this call.
 * ERROR_EXISTS: just this value is stored, or a reset overrules it: answer now. ERROR_NOT_FOUND: the topic is about to go. ERROR_INVALID: queue id or offset out
 * of range, or a name too long. Else ERROR_NOT_LEADER, ... */
int consumer_offset_commit_wait(struct broker *broker, struct slice group, struct slice topic, int32_t queue_id, int64_t offset,
                                consumer_offset_done done, void *context);
/* The same for an operator's reset, with ERROR_EXISTS never: old commits of the clients do not undo it while they are told (offset_reset.h). held: somebody of
 * the group is connected. */
int consumer_offset_reset_wait(struct broker *broker, struct slice group, struct slice topic, int32_t queue_id, int64_t offset, bool held,
                               consumer_offset_done done, void *context);
/* Before an offset is read: puts on its way what was gathered for this queue. 0: `done` will be called when all commits on their way have been applied;
 * ERROR_NOT_FOUND: nothing is on its way, read the table now. */
int consumer_offset_settle(struct broker *broker, struct slice group, struct slice topic, int32_t queue_id, consumer_offset_done done,
                           void *context);
/* The role or the term changed. What was gathered before is dropped, and those who wait are told: it may reach the next leader behind a newer commit that
 * was answered there. */
void consumer_offset_role_changed(struct broker *broker, uint64_t term, bool leads);
/* A record that deletes the topic is about to be submitted: what was gathered goes ahead of it, or nowhere. Until it is settled commits for this topic are refused:
 * they would come behind it, and be taken for those of the next topic of that name. */
void consumer_offset_topic_goes(struct broker *broker, struct slice topic);
/* Submits everything gathered. */
void consumer_offset_flush(struct broker *broker);

/* Walks topics of a group / groups of a topic; each may not change the table. */
void consumer_offset_each(struct consumer_offset_table *table, void (*each)(void *argument, struct consumer_offset_entry *entry), void *argument);

/* ---- for metadata.c ---- */

/* ERROR_NO_MEMORY; ERROR_BUSY at the limit; ERROR_INVALID for a queue id or offset out of range. */
int consumer_offset_put(struct consumer_offset_table *table, struct slice group, struct slice topic, int32_t queue_id, int64_t offset);
/* Of a record: as consumer_offset_put; a reset holds its value, a commit ends what a reset before it held. */
int consumer_offset_apply(struct consumer_offset_table *table, const Ledgermq__ConsumerOffset *offset, int64_t time_ms, uint64_t now_us);
void consumer_offset_remove_group(struct consumer_offset_table *table, struct slice group);
void consumer_offset_remove_topic(struct consumer_offset_table *table, struct slice topic);
void consumer_offset_clear(struct consumer_offset_table *table);

#endif
