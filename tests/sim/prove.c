/* Proofs of the checker: faults of ours that it must find within some seeds. */
#include <stdio.h>

#include "dledger/raft_driver.h"
#include "tests/sim/runs.h"

struct proof {
    const char *name;
    enum world_bug bug;
    unsigned guards; /* those that are off */
    int durability;
    int nodes;
    uint64_t seeds; /* within which it must be found */
};

static const struct proof proofs[] = {
    {"a vote is not synced", BUG_VOTE_NOT_SYNCED, 0, 0, 0, 20},
    {"the log is not synced", BUG_LOG_NOT_SYNCED, 0, 'B', 0, 20},
    {"entries are reported durable before they are", BUG_PERSISTED_EARLY, 0, 'B', 0, 20},
    {"a member that forgot something votes at once", BUG_NEVER_MUTE, 0, 0, 0, 200},
    {"term and vote are forgotten over a restart", BUG_TERM_IGNORED, 0, 0, 0, 100},
    {"a leader skips a queue offset", BUG_QUEUE_SHIFT, 0, 0, 0, 20},
    {"a send is answered before it has committed", BUG_EARLY_ANSWER, 0, 0, 0, 50},
    {"a metadata record is applied twice", BUG_APPLY_TWICE, 0, 0, 0, 20},
    {"a metadata record is not applied", BUG_RECORD_DROPPED, 0, 0, 0, 50},
    {"a leader counts itself as a majority", BUG_COMMIT_EARLY, 0, 0, 3, 50},
    {"a short write is taken for a whole one", BUG_SHORT_WRITE, 0, 0, 0, 100},
    {"names of files are not made durable", BUG_DIR_NOT_SYNCED, 0, 0, 0, 100},
    {"a queue offset is given out twice", BUG_QUEUE_REUSE, 0, 0, 0, 50},
    {"metadata snapshots are not restored", BUG_SNAPSHOT_IGNORED, 0, 0, 0, 100},
    {"an answered consumer offset is not logged", BUG_DELTA_LOST, 0, 0, 0, 100},
    {"a consumer offset falls back by one", BUG_OFFSET_BACK, 0, 0, 0, 100},
    {"a new leader does not know the queue locks", BUG_LOCKS_FORGOTTEN, 0, 0, 0, 100},
    {"the progress of delayed messages is lost", BUG_DELAY_TWICE, 0, 0, 0, 100},
    {"a delayed message is skipped", BUG_DELAY_SKIPPED, 0, 0, 0, 100},
    {"a settled half message is open again", BUG_SETTLE_TWICE, 0, 0, 0, 100},
    {"a half message is not noted", BUG_HALF_LOST, 0, 0, 0, 100},
    {"guard G1 is off: a sole voter leads twice in a term", BUG_NONE, GUARD_SOLE_VOTER, 0, 1, 50},
    {"guard G9 is off: the commit index goes back", BUG_NONE, GUARD_COMMIT_MONOTONIC, 0, 0, 50},
};

static bool fails_anyway(const struct settings *with_bug)
{
    static struct world_schedule schedule;
    struct runs_failure failure;
    struct settings settings = *with_bug;
    settings.options.bug = BUG_NONE;
    settings.options.guards = GUARD_ALL;
    return !runs_one(&settings, &schedule, &failure);
}

int prove(const struct settings *given)
{
    struct settings settings = *given;
    int failed = 0;
    for (size_t i = 0; i < sizeof proofs / sizeof proofs[0]; i++) {
        const struct proof *proof = &proofs[i];
        struct world_stats sum = {0};
        struct runs_failure failure = {0};
        settings.runs = proof->seeds;
        settings.options.bug = proof->bug;
        settings.options.guards = GUARD_ALL & ~proof->guards;
        settings.options.durability = proof->durability;
        settings.options.nodes = proof->nodes;
        settings.seed = given->seed;
        bool found = runs_of_seeds(&settings, &sum, &failure) > 0;
        settings.seed = failure.seed;
        if (found && fails_anyway(&settings)) {
            printf("not ok %s: seed %llu fails without it too\n", proof->name, (unsigned long long)failure.seed);
            failed++;
        } else if (found) {
            printf("ok %s: found by seed %llu\n    %s\n", proof->name, (unsigned long long)failure.seed, failure.said);
        } else {
            printf("not ok %s: not found within %llu seeds\n", proof->name, (unsigned long long)proof->seeds);
            failed++;
        }
        fflush(stdout);
    }
    return failed;
}

