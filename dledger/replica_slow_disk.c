/* A leader whose disk is much slower than the others' hands over.
 *
 * What it syncs commits without it when the others alone are a majority and were done sooner. That is the measure: a sync that takes long, of entries that the
 * others had made durable in a small part of its time. So a leader stays where its own sync is needed for a majority, and where all disks are slow: there is
 * nobody then who would do better. A row of slow syncs ends with the first one that is not; one that hangs counts while it hangs.
 *
 * A sync that does not come back is also told to the Raft driver, which then keeps away from the vote file.
 *
 * Who handed over for this reason says so in its answers until its syncs have been quick for a while, so that it is not the one who is handed leadership next,
 * as a preferred leader for example.
 */
#include "dledger/replica_internal.h"

#include "store/log_sink.h"

void replica_slow_sync_begins(struct replica *replica)
{
    replica->others_had_us = 0;
    replica_slow_note_commit(replica);
}

void replica_slow_note_commit(struct replica *replica)
{
    /* Ours counts once it has been reported, so a commit index beyond it comes from the others. */
    if (replica->syncing && replica->others_had_us == 0 && replica->driver.commit >= (raft_index)(replica->sync.index + 1))
        replica->others_had_us = replica_now_us(replica);
}

/* Has the sync that is out, or has just come back, been slow? */
static bool sync_is_slow(const struct replica *replica, uint64_t now)
{
    uint64_t took = now - replica->sync_started_us;
    return replica->options.durability == DURABILITY_B && took >= REPLICA_SLOW_SYNC_MS * 1000ull && replica->others_had_us != 0 &&
           (replica->others_had_us - replica->sync_started_us) * REPLICA_SLOW_TIMES <= took;
}

void replica_slow_sync_ends(struct replica *replica)
{
    uint64_t now = replica_now_us(replica);
    uint64_t took = now - replica->sync_started_us;

    replica->driver.disk_hangs = false;
    if (replica->slow_until_us != 0 && took >= REPLICA_SLOW_SYNC_MS * 1000ull)
        replica->slow_until_us = now + REPLICA_SLOW_REST_MS * 1000ull;
    if (replica->accepting && sync_is_slow(replica, now))
        replica->slow_spent_us += took;
    else
        replica->slow_spent_us = 0;
}

bool replica_is_slow(const struct replica *replica)
{
    return replica->slow_until_us != 0;
}

void replica_slow_tick(struct replica *replica, uint64_t now)
{
    uint64_t spent = replica->slow_spent_us;
    uint64_t lag;
    int best;

    replica->driver.disk_hangs = replica->syncing && now >= replica->sync_started_us + REPLICA_HUNG_SYNC_MS * 1000ull;
    if (replica->slow_until_us != 0 && now >= replica->slow_until_us && !replica->syncing)
        replica->slow_until_us = 0;
    if (!replica->accepting) {
        replica->slow_spent_us = 0;
        return;
    }
    if (replica->syncing && sync_is_slow(replica, now))
        spent += now - replica->sync_started_us;
    if (spent < REPLICA_SLOW_SPENT_MS * 1000ull || now < replica->slow_due_us || raft_transferee(&replica->driver.raft) != 0)
        return;
    best = replica_successor(replica, &lag);
    replica->slow_due_us = now + REPLICA_SLOW_RETRY_MS * 1000ull;
    replica->slow_until_us = now + REPLICA_SLOW_REST_MS * 1000ull;
    if (best < 0 || replica->peers[best].slow || lag >= REPLICA_TRANSFER_LAG_MAX || raft_driver_transfer(&replica->driver, (uint64_t)best + 1) != 0)
        return;
    LOG_WARN("this disk is slow: %llu ms went by in syncs that the others were done with long before; leadership is handed to %s",
             (unsigned long long)(spent / 1000), replica->members[best].id);
}
