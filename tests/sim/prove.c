/* Proofs of the checker: each seeded bug must be found within so many seeds that pass without it. */
#include <stdio.h>
#include <string.h>

#include "tests/sim/bugs.h"
#include "tests/sim/drivers.h"
#include "tests/sim/runs.h"

#define SEEDS_MAX 2000u

#define KIND(name) (1ull << CHAOS_##name)

/* What a bug needs to show itself, else the seed decides. */
static const struct proof {
    int durability;
    int nodes;
    uint64_t kinds; /* of faults: few, so that many of them meet */
    bool backup;
    enum drivers_play play; /* the whole member keeps away what this guard is for: shown by drivers alone */
} proofs[SEEDED_BUGS] = {
    [SEEDED_LOG_NOT_SYNCED] = {.durability = 'B'},
    [SEEDED_PERSISTED_EARLY] = {.durability = 'B'},
    [SEEDED_COMMIT_EARLY] = {.nodes = 3}, /* of five members three may well have an entry that is committed too early */
    [SEEDED_SUMS_NOT_COMPARED] = {.kinds = KIND(QUEUE_LOST) | KIND(TRANSFER)},
    [SEEDED_SERVE_DAMAGED] = {.nodes = 3, .kinds = KIND(FLIP)},
    [SEEDED_PULL_PASSES] = {.nodes = 3, .kinds = KIND(FLIP)},
    [SEEDED_NO_DOUBT] = {.nodes = 3, .kinds = KIND(PAUSE) | KIND(DELAY)}, /* what waited in the sockets of one that stood still is asked of a deposed leader */
    [SEEDED_BACKUP_UNPROVED] = {.durability = 'B', .backup = true},
    [SEEDED_RESTORE_UNCHECKED] = {.backup = true},
    [SEEDED_RESTORE_NOT_SYNCED] = {.durability = 'B', .backup = true},
    [SEEDED_GUARD_1] = {.nodes = 1},
    /* a member gets a change behind entries of the same message, and a broken connection has it sent anew */
    [SEEDED_GUARD_2] = {.durability = 'B', .nodes = 3, .kinds = KIND(MEMBER_ADDED) | KIND(MEMBER_REMOVED) | KIND(BREAK)},
    [SEEDED_GUARD_3] = {.play = PLAY_CHANGES},
    [SEEDED_GUARD_4] = {.play = PLAY_LATE},
    [SEEDED_GUARD_5] = {.play = PLAY_FROM_ZERO},
    [SEEDED_GUARD_6] = {.durability = 'B', .nodes = 3, .kinds = KIND(ISOLATE) | KIND(POWER_IN_CALL)},
    [SEEDED_GUARD_7] = {.play = PLAY_LATE},
    [SEEDED_GUARD_8] = {.play = PLAY_MIXED},
    [SEEDED_GUARD_10] = {.durability = 'B', .nodes = 5, .kinds = KIND(FULL_DISK) | KIND(TRANSFER)},
    [SEEDED_GUARD_11] = {.durability = 'B', .nodes = 1, .kinds = KIND(MEMBER_ADDED) | KIND(MEMBER_REMOVED) | KIND(MEMBER_REPLACED)},
    [SEEDED_GUARD_13] = {.play = PLAY_TWICE},
    [SEEDED_GUARD_14] = {.play = PLAY_OLD_COPY},
    [SEEDED_GUARD_15] = {.play = PLAY_CONFLICT},
    /* a change that some know and others do not yet, when all come back at once */
    [SEEDED_GUARD_16] = {.durability = 'B', .nodes = 3, .kinds = KIND(MEMBER_ADDED) | KIND(MEMBER_REMOVED) | KIND(POWER_ALL) | KIND(POWER_IN_CALL)},
};

static bool passes_without(const struct settings *with_bug)
{
    static struct world_schedule schedule;
    struct runs_failure failure;
    struct settings settings = *with_bug;
    settings.options.bug = SEEDED_NONE;
    return runs_one(&settings, &schedule, &failure);
}

/* The rule alone: neither seed nor time. */
static const char *rule_of(const char *said)
{
    const char *mark = strstr(said, "VIOLATION at ");
    const char *rule = mark == NULL ? NULL : strstr(mark, ", ");
    return rule == NULL ? said : rule + 2;
}

static bool prove_one(const struct settings *given, enum seeded_bug bug)
{
    struct settings settings = *given;
    struct world_stats sum = {0};
    struct runs_failure failure = {0};

    settings.options.bug = bug;
    if (proofs[bug].durability != 0)
        settings.options.durability = proofs[bug].durability;
    if (proofs[bug].nodes != 0)
        settings.options.nodes = proofs[bug].nodes;
    if (proofs[bug].kinds != 0)
        settings.options.kinds = proofs[bug].kinds;
    settings.options.backup = settings.options.backup || proofs[bug].backup;
    settings.options.drivers = settings.options.drivers || proofs[bug].play != PLAY_NONE;
    settings.options.play = proofs[bug].play;
    uint64_t first = settings.seed;
    for (uint64_t end = settings.seed + SEEDS_MAX; settings.seed < end; settings.seed = failure.seed + 1) {
        settings.runs = end - settings.seed;
        if (runs_of_seeds(&settings, &sum, &failure) == 0)
            break;
        settings.seed = failure.seed;
        if (!passes_without(&settings))
            continue; /* proves nothing */
        unsigned long long seeds = failure.seed - first + 1;
        printf("ok %s (%s): %llu seed%s, then: %s\n", seeded_bug_names[bug], seeded_bug_texts[bug], seeds, seeds == 1 ? "" : "s", rule_of(failure.said));
        return true;
    }
    printf("not ok %s (%s): not found within %u seeds that pass without it\n", seeded_bug_names[bug], seeded_bug_texts[bug], SEEDS_MAX);
    return false;
}

int prove(const struct settings *given)
{
    int failed = 0;
    for (int bug = SEEDED_NONE + 1; bug < SEEDED_BUGS; bug++) {
        if (given->options.bug != SEEDED_NONE && given->options.bug != (enum seeded_bug)bug)
            continue;
        failed += !prove_one(given, (enum seeded_bug)bug);
        fflush(stdout);
    }
    return failed;
}
