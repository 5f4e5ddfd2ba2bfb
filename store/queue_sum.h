/* What all queues together held at positions of the log, so that a start sees when one of them has lost its end, its last file or all of itself: what is
 * left of it looks like a shorter queue, or like none.
 *
 * A hint, and a file of its own beside the queues: two sums of what was durable, and two newer ones that count while the machine has not lost power. None of
 * them is believed after the queues changed by something that is no message in the log (a topic that was deleted): then the mark is another one. Where no sum can
 * be believed nothing is known, and the next one is a second away.
 *
 * Part of the message store. To change: bump QUEUE_SUM_VERSION; slots of other versions say nothing.
 */
#ifndef LEDGERMQ_STORE_QUEUE_SUM_H
#define LEDGERMQ_STORE_QUEUE_SUM_H

#include "proto/buffer.h"
#include "store/env.h"

#define QUEUE_SUM_VERSION 1u
#define QUEUE_SUM_SLOTS 4u
#define QUEUE_SUM_FILE "queuesums"
#define QUEUE_SUM_MARK_SIZE 48u /* bytes at its beginning, which say the mark */

struct queue_sum {
    int64_t position; /* of the log: of all messages before it; 0 = nothing is said */
    uint64_t count;   /* queues that hold, or held, any */
    uint64_t sum;     /* of queue_sum_term() of each */
    uint64_t mark;
    uint32_t slot;    /* where it stands in the file */
    bool sync;        /* the mark has to be durable: what was removed before it may be */
};

struct queue_sums {
    uint64_t mark;       /* sums with another one say nothing */
    bool mark_unwritten; /* the file has another one */
    bool mark_unsynced;  /* ... on the disk */
    bool mark_used;      /* a sum with it was made */
    struct queue_sum found[QUEUE_SUM_SLOTS]; /* in the file, when it was read */
    uint32_t turn[2];    /* which slot is next: of sums, of durable sums */
    struct queue_sum taken[2]; /* the newest one of each */
    /* The queues now, as far as they were looked at: message_store_sum(). */
    bool counted;
    uint64_t count, sum;
};

/* Of one queue; max_offset > 0. */
uint64_t queue_sum_term(struct slice topic, int32_t queue_id, int64_t max_offset);

/* path: the directory of the queues; the file lies beside it. What cannot be read says nothing. */
void queue_sums_load(struct queue_sums *sums, struct env *env, const char *dir);
/* The newest one of positions in [from, to]; NULL: none. */
const struct queue_sum *queue_sums_newest(const struct queue_sums *sums, int64_t from, int64_t to);
/* At a start: those behind the position are forgotten, or all of them. Waits for the disk. */
void queue_sums_forget(struct queue_sums *sums, struct env *env, const char *dir, int64_t behind);
/* The queues are about to change: no sum that was made until now is believed any more. Does not wait for the disk: the next save does. */
void queue_sums_void(struct queue_sums *sums, struct env *env, const char *dir);
/* The sum of the queues as they are counted, to be saved; says nothing when the one before said the same. */
struct queue_sum queue_sums_take(struct queue_sums *sums, struct env *env, const char *dir, int64_t position, bool durable);
/* Any thread, one at a time. durable, or where the mark asks for it: waits for the disk. 0 or -errno: a start compares with an older one, or with none. */
int queue_sum_save(const struct queue_sum *sum, struct env *env, const char *dir, bool durable);

#endif
