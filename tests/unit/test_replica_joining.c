/* Members that begin empty, or with part of a log: whom they believe about the group, and when they begin one themselves. */
#include <check.h>
#include <errno.h>
#include <stdio.h>

#include "dledger/replica_internal.h"
#include "tests/lib/replica_group.h"
#include "tests/lib/run_suite.h"

/* Those of the ids, by number, "n0" first. */
static void put_configuration(struct peer_hello *hello, raft_index index, int members)
{
    struct raft_configuration configuration;
    struct raft_buffer encoded;

    raft_configuration_init(&configuration);
    for (int i = 0; i < members; i++) {
        char address[32];
        snprintf(address, sizeof address, "n%d-127.0.0.1:%d", i, i + 1);
        ck_assert_int_eq(raft_configuration_add(&configuration, (raft_id)i + 1, address, RAFT_VOTER), 0);
    }
    ck_assert_int_eq(raft_configuration_encode(&configuration, &encoded), 0);
    raft_configuration_close(&configuration);
    memcpy(hello->configuration, encoded.base, encoded.len);
    hello->configuration_size = (uint32_t)encoded.len;
    hello->configuration_index = index;
    raft_free(encoded.base);
}

/* What an empty member says. */
static void say_as(struct replica *replica, uint64_t from, struct peer_hello *hello)
{
    replica_hello(replica, from, hello);
    hello->from = from;
    hello->to = replica->id;
    hello->run = from;
    snprintf(hello->self_id, sizeof hello->self_id, "n%d", (int)from - 1);
}

/* What one says that runs, with a log that ends there, in a group of the first so many. */
static void say_as_running(struct replica *replica, uint64_t from, uint64_t term, raft_index last, raft_index configuration, int members, struct peer_hello *hello)
{
    say_as(replica, from, hello);
    hello->started = true;
    hello->mute = PEER_NOT_MUTE;
    hello->last_index = last;
    hello->last_term = hello->term = term;
    put_configuration(hello, configuration, members);
}

static void hear(struct replica *replica, struct peer_hello *hello)
{
    replica_hear_configuration(replica, hello);
    ck_assert_ptr_null(replica_check_hello(replica, hello));
    replica_peer_connected(replica, hello->from, hello);
}

/* Empty nodes whose dLegerPeers differ would write different first entries, however alike the numbers are that these lists give them. */
START_TEST(test_first_start_of_one_list)
{
    struct replica *replica = &group.nodes[1].replica;
    struct peer_hello hello;

    group_up(&group.nodes[1]);
    for (uint64_t from = 2; from <= GROUP_NODES; from++) {
        say_as(replica, from, &hello);
        put_configuration(&hello, 0, GROUP_NODES + 1);
        hear(replica, &hello);
    }
    ck_assert_int_eq(replica->phase, REPLICA_WAITING);
    say_as(replica, 2, &hello);
    hear(replica, &hello);
    ck_assert_int_eq(replica->phase, REPLICA_WAITING);
    say_as(replica, 3, &hello);
    if (_i == 0)
        hello.configuration_size = 0; /* an older version, which does not say */
    hear(replica, &hello);
    ck_assert_int_eq(replica->phase, REPLICA_RUNNING);
}
END_TEST

/* Two have begun with each other alone. They are as good as empty, but to begin a group besides theirs is wrong. */
START_TEST(test_no_first_start_besides_another)
{
    struct replica *replica = &group.nodes[1].replica;
    struct peer_hello hello;

    group_up(&group.nodes[1]);
    for (uint64_t from = 2; from <= GROUP_NODES; from++) {
        say_as_running(replica, from, 1, 1, 1, GROUP_NODES + 1, &hello);
        hear(replica, &hello);
    }
    ck_assert_int_eq(replica->phase, REPLICA_MUTE);
    ck_assert_int_eq(replica->ledger.last_index, -1);
}
END_TEST

/* Members that left the group without knowing it take a node whose directory was emptied for one of theirs, and with its vote they would be a majority once more.
 * Its dLegerPeers names a member that they do not know of. */
START_TEST(test_group_of_yesterday)
{
    struct replica *replica = &group.nodes[1].replica;
    struct peer_hello hello;

    for (int start = 0; start < 2; start++) { /* the next start knows that it forgot */
        group_up(&group.nodes[1]);
        say_as_running(replica, 2, 5, 100, 50, 2, &hello);
        hear(replica, &hello);
        group_steps(20);
        ck_assert_int_eq(replica->phase, REPLICA_MUTE);
        ck_assert_int_eq(replica_group_size(replica), 2);
        ck_assert_uint_eq(replica_leaderless(replica), 0);
        ck_assert_ptr_nonnull(strstr(replica_why_not(replica), "n2"));
        if (start == 0)
            group_kill(&group.nodes[1]);
    }
    /* That one, or another that knows it, tells of the group of today. */
    say_as_running(replica, 3, 7, 200, 150, 3, &hello);
    hear(replica, &hello);
    ck_assert_int_eq(replica_group_size(replica), 3);
    ck_assert_ptr_null(replica_named_elsewhere(replica));
}
END_TEST

/* It began the group alone, was emptied when there were others, and is killed when its log is filled up to where it was alone: it does not lead with that. */
START_TEST(test_fills_up_to_where_it_was_alone)
{
    struct group_node *node = group_was_alone(10);
    struct checkpoint checkpoint;
    struct error error;

    group.alone = false;
    sim_env_remove(&node->sim, group_file(node, "vote"));
    ck_assert_int_eq(checkpoint_load(&checkpoint, &node->sim.env, group_file(node, "checkpoint"), &error), 0);
    checkpoint.forgot = true;
    ck_assert_int_eq(checkpoint_save(&checkpoint, &node->sim.env, group_file(node, "checkpoint"), &error), 0);

    group_up(node);
    ck_assert_int_eq(node->replica.phase, REPLICA_MUTE);
    ck_assert_int_eq(replica_group_size(&node->replica), GROUP_NODES);
    group_steps(2000);
    ck_assert_int_eq(node->replica.phase, REPLICA_MUTE);
}
END_TEST

/* A log that is damaged does not tell who else belongs to the group and could mend it; dLegerPeers of who began alone names nobody. So a change is in the checkpoint
 * as soon as it is committed. */
START_TEST(test_checkpoint_knows_the_change)
{
    group_all_up();
    struct group_node *leader = group_wait_leader(3000);
    group_must_send(leader, 0);
    group_steps(1500);
    group_take_vote(leader, group_other(leader, NULL));
    for (int i = 1; i <= GROUP_NODES; i++) {
        struct group_node *node = &group.nodes[i];
        struct checkpoint checkpoint;
        struct error error;
        ck_assert_int_eq(checkpoint_load(&checkpoint, &node->sim.env, group_file(node, "checkpoint"), &error), 0);
        ck_assert_uint_gt(checkpoint.configuration_index, 0);
        ck_assert_uint_eq(checkpoint.configuration_index + 1, leader->replica.driver.raft.configuration_committed_index);
    }
}
END_TEST

/* An empty member fetches nothing before its disk says that it forgot: what a power cut leaves of it would look like all that it ever had, and like the log of one
 * that was removed where it ends before the change that brought it in. */
START_TEST(test_fetches_nothing_before_it_is_known_to_forget)
{
    struct group_node *empty = &group.nodes[1];
    struct checkpoint checkpoint;
    struct error error;

    group_all_up();
    group_must_send(group_wait_leader(3000), 0);
    group_kill(empty);
    group_wipe(empty);
    group_part(empty, &group.nodes[2]);
    group_part(empty, &group.nodes[3]);
    group_up(empty);
    sim_env_fail_at(&empty->sim, SIM_SYNC, 1, EIO, true);
    group_join(empty, &group.nodes[2]);
    group_join(empty, &group.nodes[3]);
    group_steps(1000);
    ck_assert_int_eq(empty->replica.phase, REPLICA_WAITING);
    ck_assert_int_eq(empty->replica.ledger.last_index, -1);
    sim_env_fail_at(&empty->sim, 0, 0, 0, false);
    for (int i = 0; i < 2000 && empty->replica.ledger.last_index < 0; i++) {
        ck_assert_int_eq(checkpoint_load(&checkpoint, &empty->sim.env, group_file(empty, "checkpoint"), &error), 0);
        if (empty->replica.phase == REPLICA_MUTE)
            ck_assert(checkpoint.forgot);
        group_step();
    }
    group_steps(200);
    ck_assert_int_eq(empty->replica.phase, REPLICA_RUNNING);
    ck_assert_int_eq(group_messages(empty), 1);
}
END_TEST

/* It began the group alone, and damage took the end of its log from the time before another one had a vote. Its checkpoint still knows who belongs to the group: it
 * neither leads alone nor elects anybody with that log, now and after another start, but takes what that one has. */
START_TEST(test_log_ends_before_the_others_came)
{
    struct group_node *node = group_was_alone(10);
    struct checkpoint checkpoint;
    struct peer_hello hello;
    struct error error;

    put_configuration(&hello, 0, 2);
    ck_assert_int_eq(checkpoint_load(&checkpoint, &node->sim.env, group_file(node, "checkpoint"), &error), 0);
    checkpoint.forgot = true;
    checkpoint.configuration_index = 50;
    checkpoint.configuration_size = hello.configuration_size;
    memcpy(checkpoint.configuration, hello.configuration, hello.configuration_size);
    ck_assert_int_eq(checkpoint_save(&checkpoint, &node->sim.env, group_file(node, "checkpoint"), &error), 0);

    for (int start = 0; start < 2; start++) {
        group_up(node);
        group_steps(1000);
        ck_assert_int_eq(node->replica.phase, REPLICA_MUTE);
        ck_assert_int_eq(replica_group_size(&node->replica), 2);
        if (start == 0)
            group_kill(node);
    }
    say_as_running(&node->replica, 2, 9, 100, 51, 2, &hello);
    if (_i == 1) { /* that one went down with its machine, too */
        hello.started = false;
        hello.mute = PEER_MUTE_UNCLEAN;
    }
    hear(&node->replica, &hello);
    group_steps(20);
    ck_assert_int_eq(node->replica.phase, REPLICA_MUTE);
    ck_assert_uint_eq(replica_leaderless(&node->replica), _i == 1 ? 0 : 2);
}
END_TEST

/* It was added without a vote to a group that another one leads by now, heard of that, and lost all that it had fetched in a power cut. Its dLegerPeers names only
 * one that lags, by whose log it is the only voter. With that one it begins nothing (0), not even when that one knows the term from the leader (1); when the leader
 * is there it goes on (2). */
START_TEST(test_remembers_of_whom_it_heard)
{
    struct group_node *node = &group.nodes[1];
    struct replica *replica = &node->replica;
    struct raft_configuration early;
    struct raft_buffer encoded;
    struct peer_hello hello;

    group.peers = "n0-127.0.0.1:1;n1-127.0.0.1:2";
    group_up(node);
    say_as_running(replica, 3, 9, 311, 203, 3, &hello);
    hear(replica, &hello);
    ck_assert_int_eq(replica->phase, REPLICA_MUTE);
    group_power_cut(node);

    for (int start = 0; start < 2; start++) {
        group_up(node);
        ck_assert_int_eq(replica->ledger.last_index, -1);
        raft_configuration_init(&early);
        ck_assert_int_eq(raft_configuration_add(&early, 1, "n0-127.0.0.1:1", RAFT_VOTER), 0);
        ck_assert_int_eq(raft_configuration_add(&early, 2, "n1-127.0.0.1:2", RAFT_STANDBY), 0);
        ck_assert_int_eq(raft_configuration_encode(&early, &encoded), 0);
        raft_configuration_close(&early);
        say_as_running(replica, 2, 3, 29, 2, 2, &hello);
        memcpy(hello.configuration, encoded.base, encoded.len);
        hello.configuration_size = (uint32_t)encoded.len;
        raft_free(encoded.base);
        hello.voters = 1;
        hello.term = _i == 0 ? 3 : 9;
        hear(replica, &hello);
        group_steps(20);
        ck_assert_int_eq(replica->phase, REPLICA_MUTE);
        ck_assert_uint_eq(replica_leaderless(replica), 0);
        ck_assert_ptr_nonnull(strstr(replica_why_not(replica), "(term 9)"));
        ck_assert_ptr_nonnull(strstr(replica_why_not(replica), "--force-new-group"));
        if (_i == 2) {
            say_as_running(replica, 3, 9, 311, 203, 3, &hello);
            hear(replica, &hello);
            ck_assert_ptr_null(strstr(replica_why_not(replica), "(term 9)"));
        }
        if (start == 0)
            group_kill(node);
    }
}
END_TEST

/* Whatever call its process dies in (0), or its machine (1), the file says the one or the other. */
START_TEST(test_heard_file)
{
    static struct sim_env sim;
    const char *path = "/d/heard";
    struct heard_group heard;
    struct error error;
    uint64_t before = 0;
    bool whole = false;

    sim_env_init(&sim, 1, NULL);
    ck_assert_int_eq(heard_file_load(&heard, &sim.env, path, &error), 0);
    ck_assert_uint_eq(heard.term, 0);
    for (uint64_t call = 1; !whole; call++) {
        ck_assert_uint_lt(call, 100);
        heard = (struct heard_group){.term = 100 + call, .configuration = 200 + call};
        sim_env_kill_at(&sim, SIM_CHANGES, call);
        whole = heard_file_save(&heard, &sim.env, path, &error) == 0;
        if (_i == 0)
            sim_env_kill(&sim);
        else
            sim_env_power_cut(&sim);
        sim_env_restart(&sim);
        ck_assert_int_eq(heard_file_load(&heard, &sim.env, path, &error), 0);
        ck_assert(heard.term == before || heard.term == 100 + call);
        ck_assert(!whole || heard.term == 100 + call);
        ck_assert_uint_eq(heard.configuration, heard.term == 0 ? 0 : heard.term + 100);
        before = heard.term;
    }
    /* Damage is not taken for a group of which nothing was heard, nor for what was heard before. */
    sim_env_corrupt(&sim, path, 10, 1);
    ck_assert_int_eq(heard_file_load(&heard, &sim.env, path, &error), 0);
    ck_assert_uint_eq(heard.term, UINT64_MAX);
    sim_env_remove(&sim, path); /* a save that did not come to its end: the one before counts */
    ck_assert_int_eq(heard_file_load(&heard, &sim.env, path, &error), 0);
    ck_assert(heard.term > 100 && heard.term < before);
    sim_env_corrupt(&sim, "/d/heard.bak", 10, 1);
    ck_assert_int_eq(heard_file_load(&heard, &sim.env, path, &error), 0);
    ck_assert_uint_eq(heard.term, UINT64_MAX);
    sim_env_close(&sim);
}
END_TEST

/* Nothing is taken from a leader before the disk says that it was heard of; once it has caught up, its log and vote file say more than that file. */
START_TEST(test_heard_is_kept_until_caught_up)
{
    struct group_node *node = &group.nodes[3];
    char path[200];
    uint64_t size;

    group_all_up();
    group_wait_leader(2000);
    for (int i = 0; i < 20; i++)
        group_must_send(group_leader(), i);
    group_kill(node);
    group_wipe(node);
    group_up(node);
    snprintf(path, sizeof path, "%s", group_file(node, "heard"));
    group.passes = group_without_fetched;
    group_steps(100);
    ck_assert_int_eq(node->replica.phase, REPLICA_MUTE);
    ck_assert_ptr_nonnull(sim_env_bytes(&node->sim, path, &size));
    ck_assert_uint_ge(node->replica.heard.term, group_leader()->replica.ledger.last_term);
    group.passes = NULL;
    for (int i = 0; i < 3000 && node->replica.phase != REPLICA_RUNNING; i++)
        group_step();
    ck_assert_int_eq(node->replica.phase, REPLICA_RUNNING);
    ck_assert_ptr_null(sim_env_bytes(&node->sim, path, &size));
    ck_assert_uint_eq(node->replica.heard.term, 0);
}
END_TEST

/* Of three one forgot, one runs, and the leader is wiped. The first has more than the second once said, and less than that one has by now: it votes again with what
 * it has, and the second leads. */
START_TEST(test_votes_again_by_an_old_hello)
{
    struct checkpoint checkpoint;
    struct error error;

    group_all_up();
    struct group_node *leader = group_wait_leader(3000), *node = group_other(leader, NULL), *more = group_other(leader, node);
    for (int i = 0; i < 10; i++)
        group_must_send(leader, i);
    group_steps(100);
    group_kill(node);
    sim_env_remove(&node->sim, group_file(node, "vote"));
    ck_assert_int_eq(checkpoint_load(&checkpoint, &node->sim.env, group_file(node, "checkpoint"), &error), 0);
    checkpoint.forgot = true;
    ck_assert_int_eq(checkpoint_save(&checkpoint, &node->sim.env, group_file(node, "checkpoint"), &error), 0);
    group.passes = group_without_fetched;
    group_up(node);
    group_steps(100);
    ck_assert_int_eq(node->replica.phase, REPLICA_MUTE);
    struct peer_hello *old = &node->replica.peers[more->id - 1].hello;
    old->last_index = raft_driver_last(&node->replica.driver) - 1;
    for (int i = 10; i < 20; i++)
        group_must_send(leader, i);
    ck_assert_uint_lt(old->last_index, raft_driver_last(&node->replica.driver));
    ck_assert_uint_lt(raft_driver_last(&node->replica.driver), raft_driver_last(&more->replica.driver));
    group_kill(leader);
    group_wipe(leader);
    group_up(leader);
    ck_assert_int_eq(node->replica.phase, REPLICA_RUNNING);
    ck_assert_uint_lt(raft_driver_last(&node->replica.driver), raft_driver_last(&more->replica.driver));
    ck_assert_ptr_eq(group_wait_leader(5000), more);
    group.passes = NULL;
    group_must_send(more, 20);
    for (int i = 0; i < 3000 && group_messages(leader) < 21; i++)
        group_step();
    for (int i = 1; i <= GROUP_NODES; i++)
        ck_assert_int_eq(group_messages(&group.nodes[i]), 21);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("replica_joining");
    TCase *tcase = tcase_create("replica_joining");

    tcase_add_checked_fixture(tcase, group_set_up, group_tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, test_first_start_of_one_list, 0, 2);
    tcase_add_test(tcase, test_no_first_start_besides_another);
    tcase_add_test(tcase, test_group_of_yesterday);
    tcase_add_test(tcase, test_fills_up_to_where_it_was_alone);
    tcase_add_test(tcase, test_checkpoint_knows_the_change);
    tcase_add_loop_test(tcase, test_log_ends_before_the_others_came, 0, 2);
    tcase_add_test(tcase, test_fetches_nothing_before_it_is_known_to_forget);
    tcase_add_loop_test(tcase, test_remembers_of_whom_it_heard, 0, 3);
    tcase_add_loop_test(tcase, test_heard_file, 0, 2);
    tcase_add_test(tcase, test_heard_is_kept_until_caught_up);
    tcase_add_test(tcase, test_votes_again_by_an_old_hello);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
