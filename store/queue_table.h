/* All queues of a broker, found by topic and queue id. With thousands of queues in turn each look-up finds nothing in the processor's caches, so it
 * touches as little as can be: a slot, and the lines of the queue itself that an append needs anyway.
 *
 * Part of the message store; nobody else includes it. Follows DefaultMessageStore.consumeQueueTable.
 */
#ifndef LEDGERMQ_STORE_QUEUE_TABLE_H
#define LEDGERMQ_STORE_QUEUE_TABLE_H

#include "proto/buffer.h"
#include "store/consume_queue.h"
#include "store/queue_sum.h"

#define QUEUE_TABLE_SCHEDULE_TOPIC "SCHEDULE_TOPIC_XXXX" /* its units have the time of delivery in place of the tags code */
#define QUEUE_TABLE_TOPIC_MAX 255u /* a directory's name; RocketMQ 5's %RETRY% topics may be that long */

struct queue_node {
    unsigned hash;
    int32_t key_seed; /* Java hash of topic + "#", what the index's key hashes begin with */
    uint16_t topic_size;
    bool listed;   /* stands in the dirty list */
    bool schedule; /* of SCHEDULE_TOPIC_XXXX */
    bool damaged;  /* a start found it so, and has not cut it yet */
    int64_t cut_at; /* while a start cuts: where it is to end */
    int64_t summed; /* the maximum that the sum over all queues holds of it, 0 = none */
    struct consume_queue queue;
    uint64_t walk; /* of store/compare.h: the last one that met a message of it */
    struct queue_node *next, *previous; /* all of them, in the order in which they came */
    struct queue_node *dirty_next;
    uint8_t topic[];
};

/* Open addressing: a queue stands in the slot of its hash or, if that is taken, in the next free one behind it. */
struct queue_slot {
    unsigned hash;
    struct queue_node *node; /* NULL: free */
};

/* Of the some 65,000 mappings that a process may have. */
#define QUEUE_TABLE_MAPPED_MAX 32768u

struct queue_table {
    struct env *env;
    struct mapped_file_pool pool;
    uint64_t file_size;
    char *dir;       /* .../consumequeue */
    bool dir_dirty;  /* a name in it came or went */
    struct queue_node *head, *last;
    struct queue_slot *slots;
    size_t slot_count; /* a power of two, at least twice as many as queues */
    size_t count;
    uint64_t names_size; /* of all queues' topics together */
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
/* The sum over all queues has that maximum of this one from now on; 0: it has nothing of it. */
void queue_table_sum(struct queue_sums *sums, struct queue_node *node, int64_t max_offset);
/* To be synced with the next job. */
void queue_table_mark(struct queue_table *table, struct queue_node *node);

#endif
