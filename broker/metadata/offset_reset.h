/* Offsets that an operator has set while consumers of the group are connected: until a client has taken them over, what it still commits from before must not
 * undo them.
 *
 * A Java client that is told of a reset (220) goes on committing its old offsets for ten seconds before it applies it. A hold is part of the reset's record
 * in the log, and ends with the record of the first commit that counts, so every node has the same ones; when it runs out each leader judges by its own
 * clock. Between a reset and its record the leader holds it on its own account (proposed). Loop thread only.
 */
#ifndef LEDGERMQ_BROKER_METADATA_OFFSET_RESET_H
#define LEDGERMQ_BROKER_METADATA_OFFSET_RESET_H

#include "broker/hash_table.h"
#include "proto/buffer.h"
#include "proto/error.h"

#define OFFSET_RESETS_MAX 16384u /* queues; those beyond are reset without being held */
#define OFFSET_RESET_HOLD_MS 30000u

struct offset_hold {
    bool set;
    int64_t from, to;
    uint64_t end_us; /* on this node's clock */
};

struct offset_reset {
    struct slice group, topic; /* both point into key, each before a 0 */
    int32_t queue_id;
    struct offset_hold proposed; /* by this leader, not in the log yet */
    struct offset_hold logged;
    int64_t logged_ms; /* by the clock of the leader that logged it */
    UT_hash_handle hh;
    char key[]; /* group, 0, topic, 0, queue id */
};

/* The leader is about to log a reset from one offset to another. ERROR_BUSY, ERROR_NO_MEMORY: it is not held meanwhile. */
int offset_reset_propose(struct offset_reset **resets, struct slice group, struct slice topic, int32_t queue_id, int64_t from, int64_t to, uint64_t now_us);
/* What was proposed did not reach the log, for all that is known. */
void offset_reset_forget_proposals(struct offset_reset **resets);
/* A reset with a hold is applied. time_ms: of its record; decides alone which older ones give way when there are too many. As above. */
int offset_reset_put(struct offset_reset **resets, struct slice group, struct slice topic, int32_t queue_id, int64_t from, int64_t to, int64_t time_ms,
                     uint64_t now_us);
/* A commit of this queue, or a reset without a hold, is applied: the hold in the log is over. */
void offset_reset_end(struct offset_reset **resets, struct slice group, struct slice topic, int32_t queue_id);
/* True: this commit comes from before the reset and does not count. One that counts shows that the client has applied what was proposed. */
bool offset_reset_overrules(struct offset_reset **resets, struct slice group, struct slice topic, int32_t queue_id, int64_t offset, uint64_t now_us);
/* What is in the log about this queue, NULL = nothing. */
const struct offset_reset *offset_reset_logged(struct offset_reset *resets, struct slice group, struct slice topic, int32_t queue_id);
/* The group or the topic is removed; an empty one means any. */
void offset_reset_remove(struct offset_reset **resets, struct slice group, struct slice topic);
void offset_reset_clear(struct offset_reset **resets);

#endif
