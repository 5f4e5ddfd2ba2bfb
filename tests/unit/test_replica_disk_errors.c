/* What a member does whose disk fails: rows K1 and K6 of tests/cases.md. */
#include <check.h>
#include <errno.h>

#include "dledger/replica_internal.h"
#include "tests/lib/replica_group.h"
#include "tests/lib/run_suite.h"

/* K1, K6: the first sync fails, all later ones succeed. Nothing that it was to make durable is acknowledged for it, nothing is synced again, and the
 * member is out until a start reads what is on the disk. */
START_TEST(test_first_sync_fails)
{
    struct group_node *leader, *next;
    struct group_send send = {0};
    raft_index stored;
    uint64_t syncs;

    group_all_up();
    leader = group_wait_leader(3000);
    for (int i = 0; i < 10; i++)
        group_must_send(leader, i);
    group_steps(100);
    leader->may_fail = true;
    for (int i = 1; i <= GROUP_NODES; i++)
        group.nodes[i].no_turn = &group.nodes[i] != leader; /* only its own sync could make it durable */
    stored = leader->replica.driver.raft.last_stored;
    syncs = sim_env_calls(&leader->sim, SIM_SYNC);
    sim_env_fail_at(&leader->sim, SIM_SYNC, 1, EIO, false);
    ck_assert_int_eq(group_send(leader, &send, 10), 0);
    for (int i = 0; i < 20 && leader->replica.phase != REPLICA_FAILED; i++)
        group_step();
    ck_assert_int_eq(leader->replica.phase, REPLICA_FAILED);
    ck_assert(send.done);
    ck_assert_int_eq(send.request.code, ERROR_IO);
    ck_assert_ptr_nonnull(strstr(replica_why_not(&leader->replica), "log failed"));
    ck_assert_uint_eq(leader->replica.driver.raft.last_stored, stored);
    ck_assert_uint_eq(sim_env_calls(&leader->sim, SIM_SYNC), syncs + 1);

    /* It says so, and nobody waits for an election time-out. */
    for (int i = 1; i <= GROUP_NODES; i++)
        group.nodes[i].no_turn = false;
    group_step();
    next = group_wait_leader(150);
    ck_assert_ptr_ne(next, leader);
    group_must_send(next, 11);
    group_steps(1000);
    ck_assert_int_eq(leader->replica.phase, REPLICA_FAILED);
    ck_assert_uint_eq(sim_env_calls(&leader->sim, SIM_SYNC), syncs + 1);

    group_kill(leader);
    leader->may_fail = false;
    group_up(leader);
    group_steps(1000);
    ck_assert_int_eq(leader->replica.phase, REPLICA_RUNNING);
    for (int i = 1; i <= GROUP_NODES; i++)
        ck_assert_uint_eq(group.nodes[i].replica.ledger.last_chain, group.nodes[1].replica.ledger.last_chain);
}
END_TEST

/* On a disk that is full to the last page votes are still kept: they are written over room that is theirs from the beginning. */
START_TEST(test_votes_on_full_disks)
{
    struct group_node *leader, *next;
    raft_term term;

    group_all_up();
    leader = group_wait_leader(3000);
    group_must_send(leader, 0);
    group_steps(1500);
    for (int i = 1; i <= GROUP_NODES; i++)
        group.nodes[i].sim.disk_bytes = group.nodes[i].sim.used_bytes;
    group_kill(leader);
    next = group_wait_leader(3000);
    group_must_send(next, 4); /* to a queue that has its files; the log's room is reserved ahead as well */
    term = raft_current_term(&next->replica.driver.raft);
    group_power_cut(next);
    group_up(next);
    ck_assert_uint_ge(next->replica.votes.term, term);
    group_up(leader);
    group_steps(1000);
    group_must_send(group_wait_leader(3000), 8);
}
END_TEST

/* An error of the disk while a message enters its queue: the member is out, and what had half happened is not tried again over what is there. Its next start
 * does it from a known place. */
START_TEST(test_queue_fails_once)
{
    struct group_node *leader, *follower;
    int applied;

    group_all_up();
    leader = group_wait_leader(3000);
    follower = group_other(leader, NULL);
    group_must_send(leader, 0);
    group_steps(100);
    applied = follower->messages_applied;
    follower->may_fail = true;
    sim_env_fail_at(&follower->sim, SIM_MAKE_DIR, 1, EIO, false);
    group_must_send(leader, 1);
    group_must_send(leader, 2);
    group_steps(100);
    ck_assert_int_eq(follower->replica.phase, REPLICA_FAILED);
    ck_assert_ptr_nonnull(strstr(follower->replica.failure.message, "does not fit the queues"));
    ck_assert_int_eq(follower->messages_applied, applied);
    ck_assert_int_eq(group_messages(follower), 1);

    group_kill(follower);
    follower->may_fail = false;
    group_up(follower);
    group_steps(200);
    ck_assert_int_eq(group_messages(follower), 3);
}
END_TEST

/* A group of one takes a new term at each start. When that cannot be stored it does not start, and gives back what it had made ready (for builds that look for
 * leaks). */
START_TEST(test_term_of_a_start_fails)
{
    static struct replica replica;
    struct group_node *node = group_was_alone(1);
    struct error error;

    group_open_unstarted(node, &replica);
    uint64_t term = replica.votes.term;
    sim_env_fail_at(&node->sim, SIM_SYNC, 1, EIO, false);
    ck_assert_int_eq(raft_driver_start(&replica.driver, 1, 1, buffer_slice(&replica.configuration), &error), ERROR_IO);
    ck_assert(!replica.driver.started);
    replica_close(&replica);
    group_up(node);
    ck_assert_uint_gt(node->replica.votes.term, term);
    group_must_send(group_wait_leader(3000), 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("replica_disk_errors");
    TCase *tcase = tcase_create("replica_disk_errors");

    tcase_add_checked_fixture(tcase, group_set_up, group_tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, test_first_sync_fails);
    tcase_add_test(tcase, test_votes_on_full_disks);
    tcase_add_test(tcase, test_queue_fails_once);
    tcase_add_test(tcase, test_term_of_a_start_fails);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
