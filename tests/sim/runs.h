/* Seeds run in processes of their own, some at a time, and their figures are summed. */
#ifndef LEDGERMQ_TESTS_SIM_RUNS_H
#define LEDGERMQ_TESTS_SIM_RUNS_H

#include "tests/sim/world.h"

#define RUNS_JOBS_MAX 64

struct settings {
    uint64_t seed;
    uint64_t runs;   /* 0 = as many as the time allows */
    unsigned jobs;   /* at a time */
    unsigned limit;  /* seconds of real time after which no further run begins, 0 = none */
    struct world_options options;
};

struct runs_failure {
    uint64_t seed;
    char said[400]; /* the line that says what was violated */
};

/* Runs seeds from settings->seed on. first == NULL: all of them, those that fail are printed with what they said. Else stops at the first failure and fills
 * it. Returns the number of failures. */
uint64_t runs_of_seeds(const struct settings *settings, struct world_stats *sum, struct runs_failure *first);
/* One run, nothing printed. False when it failed; schedule and what it said are filled either way. */
bool runs_one(const struct settings *settings, struct world_schedule *schedule, struct runs_failure *failure);

/* Finds which faults of a seed that fails are needed, within so many further runs, and prints them with the command that plays only them. */
void shorten(const struct settings *settings, uint64_t seed, unsigned tries);
/* The command that plays this seed again, without its end of line. */
void print_command(const struct settings *settings, uint64_t seed);

/* Shows that the checker finds each seeded bug. Returns how many it does not. */
int prove(const struct settings *settings);

#endif
