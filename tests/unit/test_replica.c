/* The replica: the path from reserve to answer, a lost leader, a follower that lags, a restart, a member that forgot. */
#include <check.h>
#include <stdlib.h>

#include "dledger/replica_internal.h"
#include "tests/lib/replica_group.h"
#include "tests/lib/run_suite.h"

static void expect_all_queues(int total)
{
    for (int i = 1; i <= GROUP_NODES; i++)
        ck_assert_int_eq(group_messages(&group.nodes[i]), total);
}

START_TEST(test_send_and_restart)
{
    enum { COUNT = 3000 };
    struct group_send *sends = calloc(COUNT, sizeof *sends);
    struct group_node *node;
    struct group_node *old;

    group.durability = _i == 0 ? DURABILITY_A : DURABILITY_B;
    group_all_up();
    node = group_wait_leader(2000);
    for (int i = 0; i < COUNT; i++) {
        if (i == 1000 || i == 2000) { /* the leader dies with everything acknowledged */
            group_steps(20);
            ck_assert(sends[i - 1].done);
            old = node;
            group_kill(old);
            node = group_wait_leader(2000);
            ck_assert_ptr_ne(node, old);
            group_up(old);
        }
        ck_assert_int_eq(group_send(node, &sends[i], i), 0);
        if (i % 37 == 0)
            group_step();
    }
    group_steps(300);
    for (int i = 0; i < COUNT; i++) {
        ck_assert(sends[i].done);
        ck_assert_int_eq(sends[i].request.code, 0);
        ck_assert_int_eq(sends[i].queue_offset, i / 4); /* queues go on without a gap over every leader */
    }
    expect_all_queues(COUNT);
    for (int i = 2; i <= GROUP_NODES; i++) {
        ck_assert_uint_eq(group.nodes[i].replica.ledger.last_chain, group.nodes[1].replica.ledger.last_chain);
        ck_assert_uint_eq(group.nodes[i].replica.ledger.end_position, group.nodes[1].replica.ledger.end_position);
    }
    /* All at once, then from disk. */
    for (int i = 1; i <= GROUP_NODES; i++)
        group_kill(&group.nodes[i]);
    group_all_up();
    node = group_wait_leader(3000);
    group_steps(300);
    expect_all_queues(COUNT);
    ck_assert_int_eq(group_send(node, &sends[0], 0), 0);
    group_steps(20);
    ck_assert(sends[0].done);
    ck_assert_int_eq(sends[0].queue_offset, COUNT / 4);
    free(sends);
}
END_TEST

/* G11: class B, syncs take long: until a majority has its sync behind it nothing is acknowledged, and no queue shows what would be lost by a power cut. */
START_TEST(test_slow_sync_shows_nothing)
{
    struct group_send sends[8] = {0};

    group.durability = DURABILITY_B;
    group_all_up();
    struct group_node *node = group_wait_leader(2000);
    group_steps(20);
    for (int i = 1; i <= GROUP_NODES; i++)
        group.nodes[i].no_sync = true;
    for (int i = 0; i < 8; i++)
        ck_assert_int_eq(group_send(node, &sends[i], i), 0);
    for (int k = 0; k < 100; k++) {
        group_step();
        expect_all_queues(0);
    }
    /* One of three, the leader or a follower, is no majority. */
    group.nodes[_i + 1].no_sync = false;
    for (int k = 0; k < 100; k++) {
        group_step();
        expect_all_queues(0);
    }
    for (int i = 0; i < 8; i++)
        ck_assert(!sends[i].done);
    group.nodes[(_i + 1) % GROUP_NODES + 1].no_sync = false;
    group_steps(200);
    expect_all_queues(8);
    for (int i = 0; i < 8; i++) {
        ck_assert(sends[i].done);
        ck_assert_int_eq(sends[i].request.code, 0);
    }
    for (int i = 1; i <= GROUP_NODES; i++)
        group.nodes[i].no_sync = false;
}
END_TEST

/* Nobody waits for the first members of a batch; who waits for the last one has all of max_wait_ms, at a new leader and after any pause. */
START_TEST(test_deadline_of_a_batch)
{
    struct group_send last = {0};

    group.durability = DURABILITY_A;
    group_all_up();
    for (int turn = 0; turn < 3; turn++) {
        group_steps(4000);
        struct group_node *node = group_wait_leader(2000);
        ck_assert_int_eq(group_send(node, NULL, 0), 0);
        ck_assert_int_eq(group_send(node, &last, 4), 0);
        for (int k = 0; k < 50 && !last.done; k++)
            group_step();
        ck_assert(last.done);
        ck_assert_int_eq(last.request.code, 0);
    }
}
END_TEST

START_TEST(test_no_quorum)
{
    struct group_send send = {0};
    struct group_node *node;

    group.durability = DURABILITY_A;
    group_all_up();
    node = group_wait_leader(2000);
    for (int i = 1; i <= GROUP_NODES; i++) {
        if (&group.nodes[i] != node)
            group_kill(&group.nodes[i]);
    }
    ck_assert_int_eq(group_send(node, &send, 1), 0);
    for (int k = 0; k < 3000 && !send.done; k++)
        group_step();
    ck_assert(send.done);
    ck_assert(send.request.code == ERROR_LEADERSHIP_LOST || send.request.code == ERROR_QUORUM_TIMEOUT);
    ck_assert_int_eq(message_store_max_offset(&node->store, SLICE_LITERAL("T"), 1), 0);
    group_steps(1000);
    ck_assert_ptr_null(group_leader()); /* a leader without a majority steps down */
    ck_assert_int_ne(group_send(node, &send, 2), 0);
}
END_TEST

START_TEST(test_lagging_follower)
{
    enum { COUNT = 20000 };
    struct group_send *sends = calloc(COUNT, sizeof *sends);
    struct group_node *node;
    struct group_node *lagging = NULL;

    group.durability = DURABILITY_A;
    group_all_up();
    node = group_wait_leader(2000);
    for (int i = 1; i <= GROUP_NODES; i++) {
        if (&group.nodes[i] != node)
            lagging = &group.nodes[i];
    }
    group_kill(lagging);
    for (int i = 0; i < COUNT; i++) {
        ck_assert_int_eq(group_send(node, &sends[i], i), 0);
        if (i % 100 == 0)
            group_step();
    }
    group_steps(100);
    ck_assert(sends[COUNT - 1].done);
    group_up(lagging);
    group_steps(1000);
    expect_all_queues(COUNT);
    ck_assert_uint_eq(lagging->replica.ledger.last_chain, node->replica.ledger.last_chain);
    free(sends);
}
END_TEST

/* An emptied directory never helps to elect; it fetches, and votes again afterwards. */
START_TEST(test_wiped_member)
{
    struct group_send send = {0};
    struct group_node *node;
    struct group_node *wiped = NULL;

    group.durability = DURABILITY_B;
    group_all_up();
    node = group_wait_leader(2000);
    for (int i = 0; i < 50; i++) {
        ck_assert_int_eq(group_send(node, &send, 0), 0);
        group_steps(5);
        ck_assert(send.done);
    }
    for (int i = 1; i <= GROUP_NODES; i++) {
        if (&group.nodes[i] != node)
            wiped = &group.nodes[i];
    }
    group_kill(wiped);
    group_wipe(wiped);
    group_up(wiped);
    ck_assert_int_eq(wiped->replica.phase, REPLICA_MUTE);
    group_steps(2000);
    ck_assert_int_eq(wiped->replica.phase, REPLICA_RUNNING);
    expect_all_queues(50);

    /* Two of three wiped: nobody leads, whatever time passes, until the third is there and has brought back what it holds. */
    for (int i = 1; i <= GROUP_NODES; i++)
        group_kill(&group.nodes[i]);
    group_wipe(&group.nodes[1]);
    group_wipe(&group.nodes[2]);
    group_up(&group.nodes[1]);
    group_up(&group.nodes[2]);
    for (int k = 0; k < 5000; k++) {
        group_step();
        ck_assert_ptr_null(group_leader());
    }
    group_up(&group.nodes[3]);
    group_wait_leader(5000);
    group_steps(2000);
    expect_all_queues(50);
    for (int i = 1; i <= GROUP_NODES; i++)
        ck_assert_int_eq(group.nodes[i].replica.phase, REPLICA_RUNNING);
}
END_TEST

static struct group_node *other_leader(const struct group_node *old)
{
    for (int i = 1; i <= GROUP_NODES; i++) {
        if (group.nodes[i].up && &group.nodes[i] != old && group.nodes[i].replica.accepting)
            return &group.nodes[i];
    }
    return NULL;
}

/* A leader that is cut off with entries that nobody else has; *old: that one. Returns its successor, which has committed `count` entries. */
static struct group_node *deposed(struct group_node **old, struct group_send *lost, struct group_send *sends, int count)
{
    struct group_node *node = NULL;
    group.durability = DURABILITY_A;
    group_all_up();
    *old = group_wait_leader(2000);
    group_steps(20);
    (*old)->cut = true;
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(group_send(*old, &lost[i], i), 0);
    (*old)->no_turn = false;
    group_steps(10);
    (*old)->no_turn = true;
    for (int k = 0; k < 3000 && node == NULL; k++) {
        group_step();
        node = other_leader(*old);
    }
    ck_assert_ptr_nonnull(node);
    for (int i = 0; i < count; i++) {
        ck_assert_int_eq(group_send(node, &sends[i], i), 0);
        group_steps(10);
        ck_assert(sends[i].done);
        ck_assert_int_eq(sends[i].request.code, 0);
    }
    return node;
}

/* Other entries come to stand, and to be committed, where its own stood, all before its loop turn ends: nobody is told that he succeeded. */
START_TEST(test_deposed_leader_answers)
{
    struct group_send lost[3] = {0};
    struct group_send sends[10] = {0};
    struct group_node *old;
    deposed(&old, lost, sends, 10);
    for (int i = 0; i < 3; i++)
        lost[i].request.deadline_us = UINT64_MAX;
    old->cut = false;
    group_steps(200);
    ck_assert_uint_gt(old->replica.driver.commit, lost[2].request.index + 1);
    ck_assert_uint_eq(old->replica.ledger.last_chain, other_leader(old)->replica.ledger.last_chain);
    old->no_turn = false;
    group_steps(5);
    for (int i = 0; i < 3; i++) {
        ck_assert(lost[i].done);
        ck_assert_int_eq(lost[i].request.code, ERROR_LEADERSHIP_LOST);
    }
    expect_all_queues(10);
}
END_TEST

/* A member that has cut its log counts again, without a restart. */
START_TEST(test_counts_after_cut)
{
    struct group_send lost[3] = {0};
    struct group_send sends[10] = {0};
    struct group_send send = {0};
    struct group_node *old;
    struct group_node *node = deposed(&old, lost, sends, 10);
    old->no_turn = old->cut = false;
    group_steps(500);
    for (int i = 1; i <= GROUP_NODES; i++) {
        if (&group.nodes[i] != node && &group.nodes[i] != old)
            group_kill(&group.nodes[i]);
    }
    ck_assert_int_eq(group_send(node, &send, 10), 0);
    for (int k = 0; k < 100 && !send.done; k++)
        group_step();
    ck_assert(send.done);
    ck_assert_int_eq(send.request.code, 0);
}
END_TEST

/* M8: a disk that fails while room is made for what comes next proves nothing durable any more. */
START_TEST(test_failed_ledger)
{
    enum { COUNT = 20000 };
    struct group_send *sends = calloc(COUNT, sizeof *sends);
    struct group_node *node;

    group.durability = DURABILITY_B;
    group_all_up();
    node = group_wait_leader(2000);
    group_steps(20);
    node->broken = node->may_fail = true;
    for (int i = 0; i < COUNT && node->replica.phase == REPLICA_RUNNING; i++) {
        /* Entries must wait for a sync when it happens. */
        node->no_sync = node->replica.ledger.end_position > GROUP_SEGMENT - 50000 && !node->replica.ledger.failed;
        if (node->replica.accepting && !node->replica.ledger.failed)
            group_send(node, &sends[i], 0);
        if (i % 50 == 0)
            group_step();
        ck_assert_uint_le(node->replica.driver.raft.last_stored, (uint64_t)(node->replica.ledger.synced_index + 1));
    }
    ck_assert_int_eq(node->replica.phase, REPLICA_FAILED);
    ck_assert_ptr_nonnull(strstr(node->replica.failure.message, "/store/dledger-n"));
    group_kill(node);
    free(sends);
}
END_TEST

/* A first start that was interrupted between the first entry and the vote file goes on. */
START_TEST(test_interrupted_first_start)
{
    group.durability = DURABILITY_B;
    group_all_up();
    for (int i = 1; i <= GROUP_NODES; i++)
        group_kill(&group.nodes[i]);
    sim_env_remove(&group.nodes[2].sim, "/store/dledger-n1/vote");
    sim_env_remove(&group.nodes[3].sim, "/store/dledger-n2/vote");
    group_all_up();
    group_wait_leader(3000);
}
END_TEST

/* The same of a group of one. */
START_TEST(test_interrupted_first_start_alone)
{
    group.alone = true;
    group_up(&group.nodes[1]);
    group_kill(&group.nodes[1]);
    sim_env_remove(&group.nodes[1].sim, "/store/dledger-n0/vote");
    group_up(&group.nodes[1]);
    group_must_send(group_wait_leader(3000), 0);
}
END_TEST

/* A transfer to a member that has just gone comes to nothing. What the leader gathered meanwhile never reaches the log, and it leads on in the same term:
 * whoever counts on what he appended (delayed deliveries, decisions of transactions) is told that it begins anew. */
START_TEST(test_transfer_to_nobody)
{
    struct dledger_state before, after;
    struct group_send send;
    group_all_up();
    struct group_node *leader = group_wait_leader(5000);
    group_must_send(leader, 1);
    replica_state(&leader->replica, &before);
    ck_assert_uint_eq(before.accept_count, 1);
    struct group_node *other = group_other(leader, NULL);
    other->cut = true;
    ck_assert_int_eq(raft_driver_transfer(&leader->replica.driver, other->id), 0);
    ck_assert_int_eq(before.next_index, before.last_index + 1);
    ck_assert_int_eq(group_send(leader, &send, 2), 0);
    replica_state(&leader->replica, &after);
    ck_assert_int_eq(after.next_index, before.last_index + 2); /* it has a place, and is not in the log */
    group_steps(5);
    ck_assert(send.done);
    ck_assert_int_eq(send.request.code, ERROR_LEADERSHIP_LOST);
    replica_state(&leader->replica, &after);
    ck_assert_int_eq(after.next_index, before.next_index);
    for (int i = 0; i < 5000 && raft_transferee(&leader->replica.driver.raft) != 0; i++)
        group_step();
    ck_assert_ptr_eq(group_wait_leader(5000), leader);
    replica_state(&leader->replica, &after);
    ck_assert_uint_eq(after.term, before.term);
    ck_assert_uint_gt(after.accept_count, before.accept_count);
    group_must_send(leader, 3);
}
END_TEST

/* A member whose disk has failed applies nothing any more: what is committed is for its next start to apply. */
START_TEST(test_failed_member_applies_nothing)
{
    static uint8_t record[] = {0x40, 0x01}; /* a MetadataRecord: time_ms 1 */
    struct error error;
    int64_t offset;
    int code;
    group_all_up();
    struct group_node *leader = group_wait_leader(5000);
    struct group_node *follower = group_other(leader, NULL);
    group_must_send(leader, 1);
    group_steps(100);
    int applied = follower->metadata_applied;
    follower->no_turn = true;
    uint8_t *room = replica_reserve(&leader->replica, sizeof record, &offset, &code);
    ck_assert_ptr_nonnull(room);
    memcpy(room, record, sizeof record);
    replica_append(&leader->replica, LEDGER_ENTRY_METADATA, NULL);
    group_steps(100);
    ck_assert_uint_eq(follower->replica.driver.commit, leader->replica.driver.commit);
    error_set(&error, ERROR_IO, "as after a failed sync");
    follower->may_fail = true;
    replica_fail(&follower->replica, &error);
    follower->no_turn = false;
    group_steps(50);
    ck_assert_int_eq(follower->metadata_applied, applied);
    group_kill(follower);
    follower->may_fail = false;
    group_up(follower);
    group_steps(100);
    ck_assert_int_eq(follower->metadata_applied, applied + 1);
}
END_TEST

/* Some seconds after the last message all of it is on the disk, the checkpoint says so, and then nothing is written any more. */
START_TEST(test_idle)
{
    group.durability = _i == 0 ? DURABILITY_A : DURABILITY_B;
    group_all_up();
    group_wait_leader(2000);
    for (int i = 0; i < 3000; i++) {
        ck_assert_int_eq(group_send(group_leader(), NULL, i), 0);
        group_step();
    }
    group_steps(6000);
    expect_all_queues(3000);
    uint64_t calls[GROUP_NODES + 1];
    for (int i = 1; i <= GROUP_NODES; i++) {
        struct group_node *node = &group.nodes[i];
        static struct checkpoint found;
        struct error error;
        ck_assert_int_eq(checkpoint_load(&found, &node->sim.env, group_file(node, "checkpoint"), &error), 0);
        ck_assert_uint_eq(found.dispatched_position, node->replica.ledger.end_position);
        ck_assert_uint_eq(found.synced_dispatched_position, node->replica.ledger.end_position);
        ck_assert_int_eq(found.committed_index, node->replica.ledger.last_index);
        calls[i] = sim_env_calls(&node->sim, SIM_CHANGES);
    }
    group_steps(40000);
    for (int i = 1; i <= GROUP_NODES; i++)
        ck_assert_uint_eq(sim_env_calls(&group.nodes[i].sim, SIM_CHANGES), calls[i]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("replica");
    TCase *tcase = tcase_create("replica");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, group_set_up, group_tear_down);
    tcase_add_loop_test(tcase, test_send_and_restart, 0, 2);
    tcase_add_loop_test(tcase, test_slow_sync_shows_nothing, 0, GROUP_NODES);
    tcase_add_test(tcase, test_failed_member_applies_nothing);
    tcase_add_test(tcase, test_transfer_to_nobody);
    tcase_add_test(tcase, test_deadline_of_a_batch);
    tcase_add_test(tcase, test_no_quorum);
    tcase_add_test(tcase, test_lagging_follower);
    tcase_add_test(tcase, test_wiped_member);
    tcase_add_test(tcase, test_deposed_leader_answers);
    tcase_add_test(tcase, test_counts_after_cut);
    tcase_add_test(tcase, test_failed_ledger);
    tcase_add_test(tcase, test_interrupted_first_start);
    tcase_add_test(tcase, test_interrupted_first_start_alone);
    tcase_add_loop_test(tcase, test_idle, 0, 2);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
