/* Did this process stand still for so long that another member may lead without our knowing? A leader wakes up for each heartbeat, at least twice in an
 * election time-out; one that did not answers nothing from its tables until an entry behind its last one has committed, or check-quorum has decided.
 */
#ifndef LEDGERMQ_DLEDGER_PAUSE_WATCH_H
#define LEDGERMQ_DLEDGER_PAUSE_WATCH_H

#include <stdbool.h>
#include <stdint.h>

struct replica;

struct pause_watch {
    uint64_t seen_ms;        /* when the loop waited for events last */
    uint64_t doubt_until_ms; /* it had stood still: whether we still lead is open until then, */
    int64_t doubt_index;     /* or until an entry behind this one is committed */
};

/* At each turn of the loop; the clock goes on while the process stands. */
void pause_watch_turn(struct pause_watch *watch, const struct replica *replica, uint64_t now_ms);
/* What is read from the tables may be old. */
bool pause_watch_doubts(const struct pause_watch *watch, const struct replica *replica, uint64_t now_ms);

#endif
