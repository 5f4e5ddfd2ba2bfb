/* Pulls that found nothing and wait: woken by a message that passes their filter, or ended at their deadline.
 *
 * Follows org.apache.rocketmq.broker.longpolling.PullRequestHoldService; there is no sweep, since apply wakes on every node. Bounded by
 * LIMIT_HELD_PULLS and LIMIT_HELD_BYTES. Loop thread only.
 */
#ifndef LEDGERMQ_BROKER_PROCESSOR_PULL_HOLD_H
#define LEDGERMQ_BROKER_PROCESSOR_PULL_HOLD_H

#include <uv.h>

#include "broker/processor/processor.h"

struct pull_hold;

/* True = wake that pull. context is the held pull's; properties are the message's, for SQL92. */
typedef bool (*pull_hold_match)(void *context, int64_t tags_code, struct slice properties);
/* The pull is to be run again, without holding. The memory of context is its owner's again. */
typedef void (*pull_hold_resume)(struct broker *broker, void *context);
typedef void (*pull_hold_drop)(void *context); /* its connection is gone, or the broker stops: free it */

struct pull_hold_request {
    struct slice topic; /* copied */
    int32_t queue_id;
    uint64_t connection_id;
    uint32_t timeout_ms;
    size_t bytes; /* of context, for the bound */
    void *context;
    pull_hold_match match; /* NULL = every message */
    pull_hold_resume resume;
    pull_hold_drop drop;
};

struct pull_hold *pull_hold_new(uv_loop_t *loop, struct broker *broker, uint32_t count_max);
/* 0; ERROR_BUSY or ERROR_NO_MEMORY: not taken, answer now. */
int pull_hold_add(struct pull_hold *hold, const struct pull_hold_request *request);
/* A message of that queue was applied: matching pulls are due, and run by pull_hold_wake. Cheap when nobody waits. */
void pull_hold_arrived(struct pull_hold *hold, struct slice topic, int32_t queue_id, int64_t tags_code, struct slice properties);
/* End of a turn's apply: runs all that are due. */
void pull_hold_wake(struct pull_hold *hold);
/* All of that queue, or with queue_id -1 of that topic, are due (topic deleted, offsets reset): they run at the next pull_hold_wake. */
void pull_hold_notify_topic(struct pull_hold *hold, struct slice topic, int32_t queue_id);
void pull_hold_connection_closed(struct pull_hold *hold, uint64_t connection_id);
uint32_t pull_hold_count(const struct pull_hold *hold);
size_t pull_hold_bytes(const struct pull_hold *hold);
/* Drops all. The timer is closed by the loop later; free after the loop ran. */
void pull_hold_close(struct pull_hold *hold);
void pull_hold_free(struct pull_hold *hold);

#endif
