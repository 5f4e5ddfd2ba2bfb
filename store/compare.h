/* Comparing queues with the log: whoever has read whole entries and checked them hands their records in, and what the queues say otherwise is mended.
 *
 * In steps, like a sync: add (any thread) takes the records, begin (loop) finds their units and pins the pages, run (pool) looks at these, which may
 * come from the disk, end (loop) mends. Each record is looked at by itself; records[] is there for whatever else is made from records.
 */
#ifndef LEDGERMQ_STORE_COMPARE_H
#define LEDGERMQ_STORE_COMPARE_H

#include "store/message_store.h"

struct message_store_compared {
    struct message_dispatch dispatch; /* slices into what the caller keeps until the end */
    uint64_t index; /* DLedger index of the entry */
    /* Private. */
    struct mapped_file *file; /* pinned; NULL: no queue has to have it */
    const uint8_t *address;
    bool appending; /* the queue's end is near, to which the loop writes */
    bool differs;
};

/* Zero at first. */
struct message_store_compare {
    struct message_store_compared *records;
    size_t count, capacity;
    bool gap; /* a record could not be taken */
    const struct message_store *store; /* private: of which only the settings are looked at by the pool */
};

/* The record of a checked entry of kind message. Returns what it holds, until the next one is added; NULL: it cannot be taken, and is compared the next time. */
const struct message_dispatch *message_store_compare_add(struct message_store_compare *job, uint64_t index, struct slice record);
/* A walk through all of the log: from here on come the records from where the log begins, in its order, and none is left out until message_store_walk_break().
 * The first one of a queue that is retained says where the queue begins, which its units may be too damaged to tell. */
void message_store_walk_begin(struct message_store *store);
void message_store_walk_break(struct message_store *store);
/* All that is committed has come: queues of which nothing did have no message any more. */
void message_store_walk_end(struct message_store *store);

/* Left out are records that no queue has: no longer retained ones, halves, those of deleted topics and of earlier ones of the same name. */
void message_store_compare_begin(struct message_store *store, struct message_store_compare *job);
void message_store_compare_run(struct env *env, struct message_store_compare *job);
/* Returns how many units were mended. The job is empty again. */
uint32_t message_store_compare_end(struct message_store *store, struct message_store_compare *job);
/* Gives the memory back. Between end and add. */
void message_store_compare_free(struct message_store_compare *job);

#endif
