/* Raft drivers with their logs and nothing else, on a network that also reorders and doubles messages, which no connection of ours does: what each guard of
 * raft_driver.h is for. A run is one play, drawn by the seed.
 */
#ifndef LEDGERMQ_TESTS_SIM_DRIVERS_H
#define LEDGERMQ_TESTS_SIM_DRIVERS_H

#include "tests/sim/world.h"

enum drivers_play {
    PLAY_NONE,
    PLAY_MIXED,     /* cuts, power cuts, transfers, changes of the group, deletions */
    PLAY_LATE,      /* the same, and messages are late, doubled and lost */
    PLAY_CHANGES,   /* a member hears of two changes at once, and the second one is lost */
    PLAY_FROM_ZERO, /* the beginning of the log comes once more when it has been deleted */
    PLAY_TWICE,     /* a member gives its vote twice, so two lead in one term */
    PLAY_OLD_COPY,  /* an old copy of a follower's disk is put back */
    PLAY_CONFLICT,  /* a deposed leader holds many entries that nobody else has */
    PLAYS
};
extern const char *const drivers_play_names[PLAYS];

/* The world is set up with seed, chance and clock. Returns only when nothing was violated. */
void drivers_run(enum drivers_play play);

#endif
