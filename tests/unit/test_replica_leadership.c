/* Who leads: transfers, preferred leaders. */
#include <check.h>

#include "tests/lib/replica_group.h"
#include "tests/lib/run_suite.h"

static struct group_node *node_of(const struct group_node *not_this)
{
    return group_other(not_this, NULL);
}

static const char *name_of(const struct group_node *node)
{
    return node->replica.options.self_id;
}

START_TEST(test_transfer_to_each)
{
    struct error error;

    group_all_up();
    for (int round = 0; round < 6; round++) {
        struct group_node *leader = group_wait_leader(3000);
        struct group_node *target = round % 2 == 0 ? node_of(leader) : group_other(leader, node_of(leader));
        uint64_t term = leader->replica.known_term;
        group_must_send(leader, round);
        group_steps(20);
        ck_assert_int_eq(replica_transfer(&leader->replica, name_of(target), &error), 0);
        ck_assert_int_eq(replica_transfer(&leader->replica, name_of(target), &error), ERROR_BUSY);
        for (int i = 0; i < 100 && !target->replica.accepting; i++)
            group_step();
        ck_assert_ptr_eq(group_leader(), target);
        ck_assert_uint_eq(target->replica.known_term, term + 1);
        ck_assert_int_eq(replica_transfer(&leader->replica, name_of(leader), &error), ERROR_NOT_LEADER);
    }
}
END_TEST

/* Whoever is to take over has what the leader wrote last, and is still storing it when it says that it stored what was before. */
START_TEST(test_transfer_while_it_stores)
{
    struct error error;

    group.durability = DURABILITY_B;
    group_all_up();
    struct group_node *leader = group_wait_leader(3000), *target = node_of(leader);
    group_must_send(leader, 0);
    group_steps(20);
    target->sync_us = 30000;
    ck_assert_int_eq(group_send(leader, NULL, 1), 0);
    group_steps(5);
    ck_assert_int_eq(group_send(leader, NULL, 2), 0);
    group_steps(5);
    ck_assert_int_eq(replica_transfer(&leader->replica, name_of(target), &error), 0);
    for (int i = 0; i < 200 && !target->replica.accepting; i++)
        group_step();
    ck_assert_ptr_eq(group_leader(), target);
    target->sync_us = 0;
    group_must_send(target, 3);
}
END_TEST

START_TEST(test_transfer_refusals)
{
    struct group_node *leader, *follower;
    struct error error;

    group_all_up();
    leader = group_wait_leader(3000);
    follower = node_of(leader);
    ck_assert_int_eq(replica_transfer(&leader->replica, "n7", &error), ERROR_NOT_FOUND);
    ck_assert_int_eq(replica_transfer(&leader->replica, name_of(leader), &error), ERROR_EXISTS);
    group_kill(follower);
    group_steps(10);
    ck_assert_int_eq(replica_transfer(&leader->replica, name_of(follower), &error), ERROR_BUSY);
    /* One that is far behind: connected again, but what it lacks has not reached it. */
    for (int i = 0; i < (int)REPLICA_TRANSFER_LAG_MAX; i++)
        ck_assert_int_eq(group_send(leader, NULL, i), 0);
    group_steps(50);
    group_up(follower);
    ck_assert_int_eq(replica_transfer(&leader->replica, name_of(follower), &error), ERROR_BUSY);
    ck_assert_ptr_nonnull(strstr(error.message, "behind"));
    group_steps(500);
    ck_assert_int_eq(replica_transfer(&leader->replica, NULL, &error), 0);
    group_steps(100);
    ck_assert_ptr_nonnull(group_leader());
    ck_assert_ptr_ne(group_leader(), leader);
}
END_TEST

/* E4: a transferee that does not answer costs an election time-out, then the old leader goes on. */
START_TEST(test_transfer_to_the_deaf)
{
    struct group_node *leader, *target;
    struct error error;

    group_all_up();
    leader = group_wait_leader(3000);
    group_must_send(leader, 0);
    group_steps(20);
    target = node_of(leader);
    target->cut = true;
    ck_assert_int_eq(replica_transfer(&leader->replica, name_of(target), &error), 0);
    group_steps(400);
    ck_assert_ptr_eq(group_leader(), leader);
    group_must_send(leader, 1);
}
END_TEST

static struct replica *watched;
static uint64_t told_count;
static int times_told;

static void note_role(void *context)
{
    (void)context;
    times_told++;
    told_count = watched->accept_count;
}

static struct group_node *begin_transfer_to_the_deaf(void)
{
    struct error error;

    group_all_up();
    struct group_node *leader = group_wait_leader(3000), *target = node_of(leader);
    group_must_send(leader, 0);
    group_steps(20);
    watched = &leader->replica;
    told_count = watched->accept_count;
    times_told = 0;
    watched->callbacks.role_changed = note_role;
    ck_assert_int_eq(replica_transfer(watched, name_of(target), &error), 0);
    target->cut = true;
    return leader;
}

/* While a transfer is under way the core takes no entries: what was gathered is lost, and the leader accepts anew when it is over. Those who append by
 * themselves (delayed messages) must hear of it, or wait for ever for what was lost, and deliver it twice when they hear too late. */
START_TEST(test_begins_anew_after_transfer)
{
    struct group_send send = {0};

    struct group_node *leader = begin_transfer_to_the_deaf();
    uint64_t count = watched->accept_count;
    for (int i = 0; i < 400 && watched->accept_count == count; i++) {
        group_step();
        ck_assert_uint_eq(told_count, watched->accept_count);
        if (i == 5)
            ck_assert_int_eq(group_send(leader, &send, 1), 0);
    }
    ck_assert_uint_gt(watched->accept_count, count);
    ck_assert_int_eq(send.request.code, ERROR_LEADERSHIP_LOST);
    ck_assert_uint_eq(told_count, watched->accept_count);
    group_must_send(leader, 2);
}
END_TEST

/* Nobody is told of a new beginning for each send that comes meanwhile: all name servers would be, and the log of it. */
START_TEST(test_sends_during_transfer)
{
    struct group_node *leader = begin_transfer_to_the_deaf();
    uint64_t count = watched->accept_count;
    int refused = 0;
    for (int i = 0; i < 400 && watched->accept_count == count; i++) {
        int rv = group_send(leader, NULL, i);
        ck_assert_msg(rv == 0 || rv == ERROR_NOT_LEADER || rv == ERROR_NO_LEADER, "%d", rv);
        refused += rv != 0;
        group_step();
    }
    ck_assert_int_gt(refused, 10);
    ck_assert_uint_eq(watched->accept_count, count + 1);
    ck_assert_int_le(times_told, 4);
    group_must_send(leader, 2);
}
END_TEST

START_TEST(test_preferred_leader)
{
    struct group_node *preferred = &group.nodes[2];
    struct group_node *leader;
    int steps;

    group.preferred_leaders = "n9;n1";
    group_all_up();
    leader = group_wait_leader(3000);
    if (leader == preferred) { /* let another one lead first */
        group_kill(preferred);
        leader = group_wait_leader(3000);
        group_up(preferred);
    }
    for (steps = 0; steps < 8000 && group_leader() != preferred; steps++)
        group_step();
    ck_assert_ptr_eq(group_leader(), preferred);
    ck_assert_int_ge(steps, REPLICA_PREFERRED_STEADY_MS - 500);
    ck_assert_int_le(steps, REPLICA_PREFERRED_STEADY_MS + 500);
    /* It stays there. */
    group_steps(6000);
    ck_assert_ptr_eq(group_leader(), preferred);
}
END_TEST

static int timeouts_told;

static bool without_timeout_now(uint64_t from, uint64_t to, const struct peer_message *message)
{
    (void)from;
    (void)to;
    timeouts_told += message->type == PEER_TIMEOUT_NOW;
    return message->type != PEER_TIMEOUT_NOW;
}

/* A leader whose disk is nearly full goes on only when nobody else has more room. */
START_TEST(test_nearly_full_disk)
{
    group_all_up();
    struct group_node *leader = group_wait_leader(3000);
    struct group_node *other = group_other(leader, NULL), *third = group_other(leader, other);
    group_must_send(leader, 0);
    leader->replica.driver.disk_high = other->replica.driver.disk_high = true;
    for (int i = 0; i < 3000 && !third->replica.accepting; i++)
        group_step();
    ck_assert_ptr_eq(group_leader(), third);
    third->replica.driver.disk_high = true;
    group_steps(3000);
    ck_assert_ptr_eq(group_leader(), third);
    group_must_send(third, 1);
}
END_TEST

/* A try that fails is repeated no sooner than after half a minute. */
START_TEST(test_preferred_leader_is_tried_seldom)
{
    struct group_node *leader;

    timeouts_told = 0;
    group_all_up();
    leader = group_wait_leader(3000);
    for (int i = 1; i <= GROUP_NODES; i++)
        group.nodes[i].replica.options.preferred_leaders = name_of(node_of(leader));
    group.passes = without_timeout_now;
    group_steps(30000);
    ck_assert_ptr_eq(group_leader(), leader);
    ck_assert_int_eq(timeouts_told, 1);
    group_steps(20000);
    ck_assert_int_eq(timeouts_told, 2);
    group.passes = NULL;
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("replica_leadership");
    TCase *group_case = tcase_create("group");

    tcase_add_checked_fixture(group_case, group_set_up, group_tear_down);
    tcase_set_timeout(group_case, 60);
    tcase_add_test(group_case, test_transfer_to_each);
    tcase_add_test(group_case, test_transfer_while_it_stores);
    tcase_add_test(group_case, test_transfer_refusals);
    tcase_add_test(group_case, test_transfer_to_the_deaf);
    tcase_add_test(group_case, test_begins_anew_after_transfer);
    tcase_add_test(group_case, test_sends_during_transfer);
    tcase_add_test(group_case, test_preferred_leader);
    tcase_add_test(group_case, test_nearly_full_disk);
    tcase_add_test(group_case, test_preferred_leader_is_tried_seldom);
    suite_add_tcase(suite, group_case);
    return run_suite(suite);
}
