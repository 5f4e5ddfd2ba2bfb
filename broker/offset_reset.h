/* Offsets that an operator has set while consumers of the group are connected: until a client has taken them over, what it still commits from before must not
 * undo them.
 *
 * A Java client that is told of a reset (220) goes on committing its old offsets for ten seconds before it applies it. Leader only, not replicated: after a
 * failover within these seconds such a commit counts again, until the client applies the reset. Loop thread only.
 */
#ifndef LEDGERMQ_BROKER_OFFSET_RESET_H
#define LEDGERMQ_BROKER_OFFSET_RESET_H

#include "proto/buffer.h"
#include "proto/error.h"

struct offset_reset;

#define OFFSET_RESETS_MAX 16384u /* queues; those beyond are reset without being held */
#define OFFSET_RESET_HOLD_MS 30000u

/* Holds a reset from one offset to another. Takes the place of an earlier one of the same queue. ERROR_BUSY, ERROR_NO_MEMORY: it is not held. */
int offset_reset_put(struct offset_reset **resets, struct slice group, struct slice topic, int32_t queue_id, int64_t from, int64_t to, uint64_t now_us);
void offset_reset_drop(struct offset_reset **resets, struct slice group, struct slice topic, int32_t queue_id);
/* True: this commit comes from before the reset and does not count. The first one that shows that the client has applied the reset ends the hold. */
bool offset_reset_overrules(struct offset_reset **resets, struct slice group, struct slice topic, int32_t queue_id, int64_t offset, uint64_t now_us);
void offset_reset_clear(struct offset_reset **resets);

#endif
