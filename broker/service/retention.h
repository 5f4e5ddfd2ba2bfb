/* Decides, on the leader, how much of the log's beginning is deleted: by age, by size, by how full the disk is, or when an operator asks (329).
 *
 * Follows DefaultMessageStore.CleanCommitLogService, but one decision counts for all members (dledger/replica_trim.c does what it says), and what somebody
 * still needs is never deleted: undelivered delayed messages, unsettled halves, what a member does not have yet. Loop thread only.
 */
#ifndef LEDGERMQ_BROKER_SERVICE_RETENTION_H
#define LEDGERMQ_BROKER_SERVICE_RETENTION_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/error.h"

struct broker;
struct retention;

struct retention_counters {
    uint64_t looks;
    uint64_t expiries;       /* records that say that messages of one topic have expired */
    uint64_t unread;         /* messages that were deleted, in either way, and that a group had not read, counted once for each group */
    char held_back[192];     /* why something that is due stays, "" = nothing does */
};

struct retention *retention_new(struct broker *broker, struct error *error);
void retention_close(struct retention *retention); /* the timer is closed by the loop later; free after the loop ran */
void retention_free(struct retention *retention);

/* Looks now. asked: by an operator, whatever the hour. Does nothing on a follower. 0, or why the decision could not be appended. */
int retention_look(struct retention *retention, bool asked);
const struct retention_counters *retention_counters(const struct retention *retention);

/* "04" or "02;14": hours of the day. False when it is not that. */
bool retention_parse_hours(const char *text, uint32_t *hours);

#endif
