/* How long a group is without a leader when its process ends, in virtual time. MEASURE=1 prints the distribution. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/lib/replica_group.h"
#include "tests/lib/run_suite.h"

static uint64_t chance_state;

static uint64_t chance(uint64_t below)
{
    chance_state = chance_state * 6364136223846793005u + 1442695040888963407u;
    return (chance_state >> 33) % below;
}

static uint64_t latency_max_us;

static uint64_t latency(uint64_t from, uint64_t to)
{
    (void)from;
    (void)to;
    return chance(latency_max_us);
}

static int compare(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static const struct {
    const char *name;
    uint64_t latency_max_us;
    uint64_t stall_max_us; /* a process waits so long for a processor, now and then */
    uint64_t vote_sync_us;
    enum durability_class durability;
    int worst_ms;
} worlds[] = {
    {"idle", 1000, 0, 0, DURABILITY_A, 100},
    {"busy", 5000, 30000, 0, DURABILITY_A, 200},
    {"busy, class B", 5000, 30000, 0, DURABILITY_B, 200},
    {"very busy", 20000, 100000, 0, DURABILITY_B, 600},
    {"slow disks", 2000, 0, 150000, DURABILITY_B, 600},
    {"disks that hang", 2000, 0, 1000000, DURABILITY_B, 5000},
};

START_TEST(test_failover)
{
    enum { ROUNDS = 60, SENDS = 20 };
    struct group_send *sends = calloc(ROUNDS * SENDS, sizeof *sends);
    int times[ROUNDS];

    chance_state = (uint64_t)_i + 1;
    latency_max_us = worlds[_i].latency_max_us;
    group.latency_us = latency;
    group.durability = worlds[_i].durability;
    for (int i = 1; i <= GROUP_NODES; i++)
        group.nodes[i].vote_sync_us = worlds[_i].vote_sync_us;
    group_all_up();
    for (int round = 0; round < ROUNDS; round++) {
        struct group_node *leader = group_wait_leader(10000);
        group_steps(400 + (int)chance(200));
        leader = group_wait_leader(10000);
        for (int i = 0; i < SENDS; i++)
            group_send(leader, &sends[round * SENDS + i], i);
        group_steps((int)chance(5));
        group_kill(leader);
        for (times[round] = 0; times[round] < 10000 && group_leader() == NULL; times[round]++) {
            for (int i = 1; i <= GROUP_NODES && worlds[_i].stall_max_us > 0; i++) {
                if (chance(100) == 0)
                    group.nodes[i].stall_until_us = group.clock.monotonic_us + chance(worlds[_i].stall_max_us);
            }
            group_step();
        }
        group_up(leader);
        group_steps(100);
    }
    qsort(times, ROUNDS, sizeof times[0], compare);
    if (getenv("MEASURE") != NULL)
        printf("%s: median %d ms, 90 of 100 %d ms, worst %d, %d, %d ms\n", worlds[_i].name, times[ROUNDS / 2], times[ROUNDS * 9 / 10],
               times[ROUNDS - 3], times[ROUNDS - 2], times[ROUNDS - 1]);
    ck_assert_int_le(times[ROUNDS - 1], worlds[_i].worst_ms);
    group_tear_down(); /* nobody answers the sends any more */
    group_set_up();
    free(sends);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("replica_failover");
    TCase *tcase = tcase_create("replica_failover");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, group_set_up, group_tear_down);
    tcase_add_loop_test(tcase, test_failover, 0, (int)(sizeof worlds / sizeof worlds[0]));
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
