/* A group that is made anew by force. */
#include <check.h>

#include "dledger/new_group.h"
#include "dledger/replica_internal.h"
#include "tests/lib/replica_group.h"
#include "tests/lib/run_suite.h"

#define PEERS "n0-127.0.0.1:1;n1-127.0.0.1:2;n2-127.0.0.1:3" /* as in replica_group.c; nobody listens there */

static const char *peers = PEERS;

static int force(struct group_node *node, struct error *error)
{
    static const char *const ids[] = {"n0", "n1", "n2"};
    const struct dledger_options options = {
        .cluster = "C", .group = "g", .self_id = ids[node->id - 1], .peers = peers, .dir = "/store", .segment_size = GROUP_SEGMENT,
        .index_file_size = 1u << 20, .durability = DURABILITY_B, .election_timeout_ms = 300, .heartbeat_ms = 50,
    };
    struct buffer told;

    buffer_init(&told, 0);
    int rv = new_group_force(&node->sim.env, &options, &told, error);
    if (rv == 0) {
        buffer_append_u8(&told, 0);
        ck_assert_ptr_nonnull(strstr((char *)told.data, "is its only member"));
        ck_assert_ptr_nonnull(strstr((char *)told.data, "Lost is"));
    }
    buffer_close(&told);
    return rv;
}

/* Messages 0 to 9 on all disks, nobody up. */
static void send_and_stop(void)
{
    group_all_up();
    for (int i = 0; i < 10; i++)
        group_must_send(group_wait_leader(3000), i);
    group_steps(1500);
    for (int i = 1; i <= GROUP_NODES; i++)
        group_kill(&group.nodes[i]);
}

static void must_force(struct group_node *node)
{
    struct error error = {0};
    ck_assert_msg(force(node, &error) == 0, "%s", error.message);
}

START_TEST(test_one_goes_on)
{
    struct group_node *node = &group.nodes[2];
    raft_term term;

    send_and_stop();
    group_up(node);
    group_steps(3000);
    ck_assert_ptr_null(group_leader());
    ck_assert_ptr_nonnull(strstr(replica_why_not(&node->replica), "--force-new-group"));
    ck_assert_ptr_nonnull(strstr(replica_why_not(&node->replica), "1 of its 3 voters up, 2 needed"));
    group_kill(node);
    must_force(node);
    for (int round = 0; round < 3; round++) {
        group_up(node);
        ck_assert_ptr_eq(group_wait_leader(3000), node);
        ck_assert_int_eq(replica_group_size(&node->replica), 1);
        ck_assert_int_eq(group_messages(node), 10 + round);
        ck_assert_uint_eq(replica_generation(&node->replica), 1);
        group_must_send(node, 10 + round);
        if (round == 0)
            group_kill(node);
        else
            group_power_cut(node);
    }
    must_force(node);
    group_up(node);
    ck_assert_ptr_eq(group_wait_leader(3000), node);
    term = node->replica.known_term;
    ck_assert_uint_eq(term >> REPLICA_GENERATION_SHIFT, 2);
    ck_assert_int_eq(group_messages(node), 13);
}
END_TEST

/* Interrupted at any call that changes something, and given again. */
START_TEST(test_interrupted)
{
    struct group_node *node = &group.nodes[1];

    send_and_stop();
    for (uint64_t n = 1;; n++) {
        struct error error;
        ck_assert_uint_lt(n, 100);
        sim_env_kill_at(&node->sim, SIM_CHANGES, n);
        bool done = force(node, &error) == 0 && !node->sim.dead;
        bool cut = n % 2 == 0 && node->sim.dead;
        if (cut)
            sim_env_power_cut(&node->sim);
        sim_env_restart(&node->sim);
        group_up(node); /* with the old group, or the new one */
        group_steps(1000);
        ck_assert_int_eq(node->replica.phase, REPLICA_RUNNING);
        ck_assert_int_ge(node->replica.ledger.last_index, 10);
        bool leads = group_leader() == node;
        group_kill(node);
        if (done) {
            ck_assert(leads);
            break;
        }
    }
    group_up(node);
    ck_assert_ptr_eq(group_wait_leader(3000), node);
    ck_assert_int_eq(group_messages(node), 10);
    ck_assert_int_eq(replica_group_size(&node->replica), 1);
}
END_TEST

/* A group of one that has lost its vote file does not know in which term it led last. Made anew it leads in none of those. */
START_TEST(test_alone_without_its_vote)
{
    static struct replica replica;
    struct group_node *node = group_was_alone(10);
    struct error error;

    sim_env_remove(&node->sim, group_file(node, "vote"));
    group_open_unstarted(node, &replica);
    ck_assert_int_eq(raft_driver_start(&replica.driver, 1, 1, buffer_slice(&replica.configuration), &error), ERROR_DAMAGED);
    ck_assert_ptr_nonnull(strstr(error.message, "--force-new-group"));
    replica_close(&replica);

    must_force(node);
    group_up(node);
    ck_assert_ptr_eq(group_wait_leader(3000), node);
    ck_assert_uint_eq(replica_generation(&node->replica), 1);
    group_must_send(node, 10);
    ck_assert_int_eq(group_messages(node), 11);
}
END_TEST

START_TEST(test_refusals)
{
    struct error error;
    uint64_t digest;

    ck_assert_int_eq(force(&group.nodes[1], &error), ERROR_INVALID);
    ck_assert_ptr_nonnull(strstr(error.message, "is empty"));
    /* A damaged log: named, and nothing is changed. Behind what the checkpoint vouches for, and yet in the middle. */
    group_all_up();
    for (int i = 0; i < 10; i++)
        group_must_send(group_wait_leader(3000), i);
    uint64_t position, term;
    uint32_t size;
    ck_assert(ledger_locate(&group.nodes[1].replica.ledger, 8, &position, &size, &term));
    for (int i = 1; i <= GROUP_NODES; i++)
        group_kill(&group.nodes[i]);
    sim_env_corrupt(&group.nodes[1].sim, "/store/dledger-n0/data/00000000000000000000", position + size - 3, 1);
    digest = sim_env_digest(&group.nodes[1].sim, "/store/dledger-n0/data");
    ck_assert_int_eq(force(&group.nodes[1], &error), ERROR_DAMAGED);
    ck_assert_uint_eq(sim_env_digest(&group.nodes[1].sim, "/store/dledger-n0/data"), digest);
}
END_TEST

/* Nobody knows whether a member runs whose address says nothing. */
START_TEST(test_unknown_address)
{
    struct error error;
    uint64_t digest;

    send_and_stop();
    digest = sim_env_digest(&group.nodes[1].sim, "/store/dledger-n0/data");
    peers = "n0-127.0.0.1:1;n1-127.0.0.1:no-such-service;n2-127.0.0.1:3";
    ck_assert_int_eq(force(&group.nodes[1], &error), ERROR_INVALID);
    ck_assert_ptr_nonnull(strstr(error.message, "member n1 still runs cannot be told"));
    ck_assert_ptr_nonnull(strstr(error.message, "IP address in dLegerPeers"));
    ck_assert_uint_eq(sim_env_digest(&group.nodes[1].sim, "/store/dledger-n0/data"), digest);
    peers = _i == 0 ? PEERS : "n0-127.0.0.1:1"; /* of the others no address at all is known: a backup, restored elsewhere */
    must_force(&group.nodes[1]);
}
END_TEST

static void hello_of(struct group_node *from, struct group_node *to, struct peer_hello *hello)
{
    replica_hello(&from->replica, to->id, hello);
    replica_hear_configuration(&to->replica, hello);
}

/* Those who were members before take no part, even if their log and its configurations go further; and what they say changes nothing in the new group. */
START_TEST(test_old_members_hear_of_it)
{
    struct group_node *node = &group.nodes[1], *old = &group.nodes[2];
    struct peer_hello hello;

    send_and_stop();
    group_up(&group.nodes[2]);
    group_up(&group.nodes[3]);
    for (int i = 10; i < 50; i++)
        group_must_send(group_wait_leader(3000), i);
    group_steps(1500);
    group_kill(&group.nodes[2]);
    group_kill(&group.nodes[3]);
    must_force(node);
    group_up(node);
    ck_assert_ptr_eq(group_wait_leader(3000), node);
    node->up = false; /* who is no member is not connected */
    group_up(old);
    node->up = true;
    ck_assert_int_gt(old->replica.ledger.last_index, node->replica.ledger.last_index);
    hello_of(old, node, &hello);
    ck_assert_ptr_nonnull(replica_check_hello(&node->replica, &hello));
    hello.configuration_index = 1000000; /* a change that this member never heard of */
    replica_hear_configuration(&node->replica, &hello);
    ck_assert_int_eq(node->replica.phase, REPLICA_RUNNING);
    hello_of(node, old, &hello);
    ck_assert_int_eq(old->replica.phase, REPLICA_REMOVED);
    ck_assert_ptr_eq(group_leader(), node);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("new_group");
    TCase *tcase = tcase_create("new_group");

    tcase_add_checked_fixture(tcase, group_set_up, group_tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, test_one_goes_on);
    tcase_add_test(tcase, test_interrupted);
    tcase_add_test(tcase, test_alone_without_its_vote);
    tcase_add_test(tcase, test_refusals);
    tcase_add_loop_test(tcase, test_unknown_address, 0, 2);
    tcase_add_test(tcase, test_old_members_hear_of_it);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
