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
    {"guard G1 is off: a sole voter leads twice in a term", BUG_NONE, GUARD_SOLE_VOTER, 0, 1, 50},
    {"guard G9 is off: the commit index goes back", BUG_NONE, GUARD_COMMIT_MONOTONIC, 0, 0, 50},
};

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
        if (runs_of_seeds(&settings, &sum, &failure) > 0) {
            printf("ok %s: found by seed %llu\n    %s\n", proof->name, (unsigned long long)failure.seed, failure.said);
        } else {
            printf("not ok %s: not found within %llu seeds\n", proof->name, (unsigned long long)proof->seeds);
            failed++;
        }
        fflush(stdout);
    }
    return failed;
}

