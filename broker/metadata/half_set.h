/* Which half messages are not settled yet, and how the others were: replicated state, moved by apply alone and equal on all nodes.
 *
 * A half message enters when apply meets it in RMQ_SYS_TRANS_HALF_TOPIC and leaves with the entry that settles it (Consumed trailer), so that nothing has
 * to be searched or guessed after a change of leader. Stands for the op messages that TransactionalMessageServiceImpl reads in Java.
 */
#ifndef LEDGERMQ_BROKER_METADATA_HALF_SET_H
#define LEDGERMQ_BROKER_METADATA_HALF_SET_H

#include "proto/buffer.h"
#include "proto/error.h"
#include "proto/metadata.pb-c.h"

/* Decisions are known for the newest halves only; one bit each, 128 KiB once there was a half message. */
#define HALF_SET_REMEMBERED (1 << 20)
#define HALF_SET_CHECKS_MAX 65535

struct half {
    int64_t offset;      /* of the half queue */
    int64_t store_ms;
    int32_t immunity_s;  /* CHECK_IMMUNITY_TIME_IN_SECONDS; negative = not given */
    uint16_t checks;     /* check-backs that were sent */
    bool settled;        /* private: its place is given back later */
    bool settling;       /* leader only, not replicated: an entry that settles it is in the log */
};

struct half_set {
    struct half *entries; /* ascending offsets; [first, end) are used, settled ones among them */
    uint32_t first, end, capacity;
    uint32_t unsettled;
    int64_t next;         /* half-queue offset that comes next */
    uint8_t *rolled_back; /* bit (offset % HALF_SET_REMEMBERED) */
    size_t rolled_back_size; /* grows with the offsets */
};

enum half_state {
    HALF_NOT_SEEN,    /* at or behind next */
    HALF_UNSETTLED,
    HALF_COMMITTED,
    HALF_ROLLED_BACK, /* or given up */
    HALF_FORGOTTEN,   /* settled, but too long ago to know how */
};

void half_set_init(struct half_set *set);
void half_set_close(struct half_set *set);

/* ---- for metadata.c: apply ---- */

/* The half message at `offset` was applied. Known ones are left as they are. ERROR_NO_MEMORY. */
int half_set_arrived(struct half_set *set, int64_t offset, int64_t store_ms, struct slice immunity);
/* False when it was settled already (or never came): nothing changes then. */
bool half_set_settle(struct half_set *set, int64_t offset, bool rolled_back);
void half_set_checked(struct half_set *set, int64_t offset);
void half_set_resumed(struct half_set *set, int64_t offset); /* counts its check-backs from 0 again */

/* Memory of a message filled by half_set_snapshot. */
struct half_set_snapshot {
    Ledgermq__HalfSet message;
    void *memory;
};
/* ERROR_NO_MEMORY. The message borrows from the set. */
int half_set_snapshot(const struct half_set *set, struct half_set_snapshot *snapshot);
void half_set_snapshot_free(struct half_set_snapshot *snapshot);
/* Replaces everything; message may be NULL (a snapshot of before there were transactions). ERROR_MALFORMED, ERROR_NO_MEMORY: the set is as before. */
int half_set_restore(struct half_set *set, const Ledgermq__HalfSet *message);

/* ---- for the leader ---- */

enum half_state half_set_state(const struct half_set *set, int64_t offset);
/* NULL when it is settled or not seen. Valid until the next change. */
struct half *half_set_find(const struct half_set *set, int64_t offset);
/* First unsettled half at or behind offset; NULL at the end. */
struct half *half_set_from(const struct half_set *set, int64_t offset);
/* Leadership begins: whatever was in the log before is applied. */
void half_set_forget_settling(struct half_set *set);

#endif
