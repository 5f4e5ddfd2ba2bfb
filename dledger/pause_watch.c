#include "dledger/pause_watch.h"

#include "dledger/replica.h"

static bool stands_still(const struct pause_watch *watch, const struct replica *replica, uint64_t now_ms)
{
    return replica_group_size(replica) > 1 && watch->seen_ms != 0 && replica->accepting &&
           now_ms - watch->seen_ms >= replica->options.election_timeout_ms;
}

void pause_watch_turn(struct pause_watch *watch, const struct replica *replica, uint64_t now_ms)
{
    if (stands_still(watch, replica, now_ms)) {
        watch->doubt_until_ms = now_ms + 2 * (uint64_t)replica->options.election_timeout_ms; /* then check-quorum has decided */
        watch->doubt_index = replica->ledger.last_index;
    }
    watch->seen_ms = now_ms;
}

bool pause_watch_doubts(const struct pause_watch *watch, const struct replica *replica, uint64_t now_ms)
{
    return stands_still(watch, replica, now_ms) ||
           (now_ms < watch->doubt_until_ms && (int64_t)replica->driver.commit <= watch->doubt_index + 1);
}
