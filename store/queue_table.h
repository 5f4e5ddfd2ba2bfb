/* All queues of a broker, found by topic and queue id: one hash of the topic's bytes, and mostly not even a walk through a bucket.
 *
 * Part of the message store; nobody else includes it. Follows DefaultMessageStore.consumeQueueTable.
 */
#ifndef LEDGERMQ_STORE_QUEUE_TABLE_H
#define LEDGERMQ_STORE_QUEUE_TABLE_H

#include "proto/buffer.h"
#include "store/consume_queue.h"

#include <uthash.h>

#define QUEUE_TABLE_TOPIC_MAX 255u /* a directory's name; RocketMQ 5's %RETRY% topics may be that long */
#define QUEUE_TABLE_RECENT 256u

struct queue_node {
    struct consume_queue queue;
    UT_hash_handle hh;
    struct queue_node *dirty_next;
    bool listed;      /* stands in the dirty list */
    bool schedule;    /* of SCHEDULE_TOPIC_XXXX */
    int32_t key_seed; /* Java hash of topic + "#", what the index's key hashes begin with */
    unsigned hash;
    uint32_t topic_size;
    uint8_t key[]; /* topic, then the queue id */
};

struct queue_table {
    struct env *env;
    uint64_t file_size;
    char *dir;       /* .../consumequeue */
    bool dir_dirty;  /* a name in it came or went */
    struct queue_node *head;
    struct queue_node *recent[QUEUE_TABLE_RECENT]; /* most records go to a queue that was used a moment ago */
    struct queue_node *dirty; /* queues with something to sync */
};

/* Opens every queue under dir (copied). ERROR_DAMAGED, ERROR_IO, ERROR_NO_MEMORY. Nothing to free after a failure. */
struct queue_table *queue_table_new(struct env *env, const char *dir, uint64_t file_size, struct error *error);
void queue_table_free(struct queue_table *table);

/* A topic is a directory's name: nothing that leads elsewhere. */
bool queue_table_is_safe(struct slice topic);
struct queue_node *queue_table_find(struct queue_table *table, struct slice topic, int32_t queue_id);
/* A queue that is not there yet; its files are made at its first append. NULL with error: ERROR_INVALID, ERROR_NO_MEMORY, ERROR_IO. */
struct queue_node *queue_table_add(struct queue_table *table, struct slice topic, int32_t queue_id, struct error *error);
/* Takes the queue out and closes it. */
void queue_table_remove(struct queue_table *table, struct queue_node *node);
/* To be synced with the next job. */
void queue_table_mark(struct queue_table *table, struct queue_node *node);

#endif
