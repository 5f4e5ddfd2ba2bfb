/* Disks that take their time: who leads then, and what clients see of it. Rows of tests/cases.md: E10, E9. */
#include <check.h>

#include "dledger/replica_internal.h"
#include "tests/lib/replica_group.h"
#include "tests/lib/run_suite.h"

static int next_message;

/* A millisecond in which the leader is sent something. */
static void step(bool send)
{
    static struct group_send sends[4096];
    struct group_node *leader = group_leader();

    if (send && leader != NULL) {
        struct group_send *one = &sends[next_message % 4096];
        ck_assert(one->request.done == NULL || one->done); /* none waits for so long */
        group_send(leader, one, next_message);
        next_message++;
    }
    group_step();
}

static struct group_node *begin(void)
{
    struct group_node *leader;

    next_message = 0;
    group_all_up();
    leader = group_wait_leader(3000);
    for (int i = 0; i < 100; i++)
        step(true);
    return leader;
}

static void end(void)
{
    for (int i = 1; i <= GROUP_NODES; i++)
        group.nodes[i].sync_us = 0;
    group_steps(3000);
}

START_TEST(test_slow_leader_hands_over)
{
    struct group_node *slow = begin();
    raft_term term = slow->replica.known_term;
    int steps = 0;

    slow->sync_us = 200000;
    while (group_leader() == slow && steps < 20000) {
        step(true);
        steps++;
    }
    ck_assert_int_ge(steps, REPLICA_SLOW_SPENT_MS - 200);
    ck_assert_int_le(steps, REPLICA_SLOW_SPENT_MS + 2000);
    ck_assert(replica_is_slow(&slow->replica));
    for (int i = 0; i < 30000; i++)
        step(true);
    /* Once, by a transfer, and it stays there: also where the slow one is preferred. */
    for (int i = 1; i <= GROUP_NODES; i++)
        group.nodes[i].replica.options.preferred_leaders = slow->replica.options.self_id;
    for (int i = 0; i < 30000; i++)
        step(true);
    ck_assert_ptr_ne(group_leader(), slow);
    ck_assert_uint_eq(group_leader()->replica.known_term, term + 1);
    ck_assert(group_leader()->replica.peers[slow->id - 1].slow);
    /* Its disk is well again: after a while it is as good as the others. */
    slow->sync_us = 0;
    for (int i = 0; i < (int)REPLICA_SLOW_REST_MS + 15000 && group_leader() != slow; i++)
        step(true);
    ck_assert_ptr_eq(group_leader(), slow);
    ck_assert(!replica_is_slow(&slow->replica));
    end();
}
END_TEST

/* All disks are slow, or the leader is needed for a majority: nobody would do better. */
START_TEST(test_slow_disks_do_not_pass_leadership_around)
{
    struct group_node *leader = begin();
    raft_term term = leader->replica.known_term;

    for (int i = 1; i <= GROUP_NODES; i++)
        group.nodes[i].sync_us = i == (int)leader->id ? 200000 : 120000;
    for (int i = 0; i < 20000; i++)
        step(i % 20 == 0);
    ck_assert_ptr_eq(group_leader(), leader);
    end();
    group_kill(group_other(leader, NULL));
    leader->sync_us = 200000;
    for (int i = 0; i < 20000; i++)
        step(i % 20 == 0);
    ck_assert_ptr_eq(group_leader(), leader);
    ck_assert_uint_eq(leader->replica.known_term, term);
    end();
}
END_TEST

/* E10: a sync that hangs for two seconds holds up no heartbeat, so there is no election, and the others go on. One that hangs for good is as slow as
 * can be: the leader hands over, and nobody waits for an election time-out. */
START_TEST(test_hung_sync)
{
    struct group_node *hung = begin();
    raft_term term = hung->replica.known_term;
    int messages;

    hung->sync_us = 2000000;
    messages = next_message;
    for (int i = 0; i < 1900; i++) {
        step(true);
        ck_assert_ptr_eq(group_leader(), hung);
    }
    ck_assert_int_ge(group_messages(hung), messages + 1800);
    hung->sync_us = hung->vote_sync_us = 1000000000;
    for (int i = 0; i < 6000; i++) {
        step(true);
        ck_assert_uint_le(raft_current_term(&hung->replica.driver.raft), term + 1);
        ck_assert_uint_le(hung->clock.monotonic_us, group.clock.monotonic_us); /* its loop goes round: it waits for no vote file */
        ck_assert(group_leader() == hung || !hung->replica.accepting);
    }
    ck_assert_ptr_nonnull(group_leader());
    ck_assert_ptr_ne(group_leader(), hung);
    ck_assert_ptr_null(hung->replica.pending_head); /* clients heard that it leads no more */
    ck_assert_uint_eq(hung->replica.known_leader, group_leader()->id);
    hung->sync_us = hung->vote_sync_us = 0;
    for (int i = 0; i < 1000; i++)
        step(true);
    ck_assert_uint_eq(hung->replica.known_term, term + 1);
    ck_assert_uint_eq(hung->replica.known_leader, group_leader()->id);
    end();
}
END_TEST

/* A follower's slow disk costs clients nothing: no message waits for it. */
START_TEST(test_slow_follower)
{
    struct group_node *leader = begin();
    struct group_node *slow = group_other(leader, NULL);
    uint64_t worst = 0;

    slow->sync_us = 1000000;
    for (int i = 0; i < 5000; i++) {
        struct group_send send = {0};
        uint64_t begun = group.clock.monotonic_us;
        ck_assert_int_eq(group_send(leader, &send, next_message++), 0);
        while (!send.done)
            step(false);
        ck_assert_int_eq(send.request.code, 0);
        if (group.clock.monotonic_us - begun > worst)
            worst = group.clock.monotonic_us - begun;
    }
    ck_assert_uint_le(worst, 5000);
    ck_assert_ptr_eq(group_leader(), leader);
    end();
    ck_assert_int_eq(group_messages(slow), group_messages(leader));
}
END_TEST

/* E9: who has entries that are not on its disk yet neither stands for election nor takes leadership that it is handed. */
START_TEST(test_unwritten_entries)
{
    struct group_node *leader = begin();
    struct group_node *slow = group_other(leader, NULL);
    struct error error;
    raft_term term;

    slow->sync_us = 1000000000;
    for (int i = 0; i < 50; i++)
        step(true);
    ck_assert_int_lt((int64_t)slow->replica.driver.raft.last_stored, (int64_t)raft_last_index(&slow->replica.driver.raft));
    term = raft_current_term(&slow->replica.driver.raft);
    /* Asked to take over: what it said it has is behind the leader's log, so it is told when it has caught up, which is never. The leader goes on. */
    (void)replica_transfer(&leader->replica, slow->replica.options.self_id, &error);
    for (int i = 0; i < 1000; i++) {
        step(false);
        ck_assert_int_ne(raft_state(&slow->replica.driver.raft), RAFT_CANDIDATE);
    }
    ck_assert_ptr_eq(group_leader(), leader);
    /* Told all the same. */
    ck_assert(!raft_driver_take_over(&slow->replica.driver));
    ck_assert_uint_eq(raft_current_term(&slow->replica.driver.raft), term);
    /* Not without a leader either. */
    group_kill(leader);
    for (int i = 0; i < 1000; i++) {
        step(false);
        ck_assert_int_ne(raft_state(&slow->replica.driver.raft), RAFT_CANDIDATE);
    }
    slow->sync_us = 0;
    group_must_send(group_wait_leader(3000), next_message++);
    end();
}
END_TEST

static raft_term told; /* the highest term or vote that `silent` told anybody of */
static const struct group_node *silent;

static bool listen(uint64_t from, uint64_t to, const struct peer_message *message)
{
    (void)to;
    bool has_term = message->type == PEER_APPEND_ENTRIES || message->type == PEER_APPEND_ENTRIES_RESULT || message->type == PEER_REQUEST_VOTE_RESULT ||
                    (message->type == PEER_REQUEST_VOTE && (message->flags & PEER_VOTE_PRE) == 0);
    if (silent != NULL && from == silent->id && has_term && message->append.term > told)
        told = message->append.term;
    return true;
}

/* The newest term in its vote file. */
static uint64_t term_on_disk(struct group_node *node)
{
    uint64_t size, newest = 0, term = 0;
    const uint8_t *bytes = sim_env_bytes(&node->sim, group_file(node, "vote"), &size);

    for (uint64_t at = 0; at < size; at += 4096) {
        if (load_u64(bytes + at + 8) > newest) {
            newest = load_u64(bytes + at + 8);
            term = load_u64(bytes + at + 16);
        }
    }
    return term;
}

/* No sync is out, so nobody knows that the disk of this member hangs, and its vote is asked for: its loop stands still for a moment, once, and the others
 * elect a leader, whom it names to clients. Nothing of that vote is told before it is durable, and then it takes part again. */
START_TEST(test_hung_vote)
{
    struct group_node *leader = begin();
    uint64_t term = replica_term(&leader->replica);

    group_steps(3000); /* all syncs and checkpoints are done */
    silent = group_other(leader, NULL);
    struct group_node *hung = (struct group_node *)(uintptr_t)silent;
    struct group_node *third = group_other(leader, hung);
    told = 0;
    group.passes = listen;
    hung->sync_us = hung->vote_sync_us = 1000000000;
    /* So that it is asked for a vote that counts: the third one stands, told by the leader. */
    ck_assert_int_eq(replica_transfer(&leader->replica, third->replica.options.self_id, NULL), 0);
    for (int i = 0; i < 400; i++)
        group_step();
    ck_assert_ptr_eq(group_leader(), third);
    ck_assert(hung->replica.votes.saving);
    ck_assert_uint_le(hung->clock.monotonic_us, group.clock.monotonic_us);
    ck_assert_uint_eq(hung->replica.known_leader, third->id);
    /* Whoever runs now is enough for clients, and its loop does not stand still again. */
    for (int i = 0; i < 5000; i++) {
        step(true);
        ck_assert_ptr_eq(group_leader(), third);
        ck_assert_uint_le(hung->clock.monotonic_us, group.clock.monotonic_us);
    }
    ck_assert_uint_le(told, term);
    ck_assert_uint_eq(replica_term(&hung->replica), term); /* what hellos tell */
    ck_assert_uint_eq(term_on_disk(hung), term);
    ck_assert_uint_eq(hung->replica.ledger.last_term, term);
    hung->sync_us = hung->vote_sync_us = 0;
    for (int i = 0; i < 1000; i++)
        step(true);
    ck_assert(!hung->replica.votes.saving);
    ck_assert_uint_eq(replica_term(&hung->replica), term + 1);
    ck_assert_uint_eq(term_on_disk(hung), term + 1);
    ck_assert_uint_eq(told, term + 1);
    end();
    ck_assert_int_eq(group_messages(hung), group_messages(third));
    silent = NULL;
}
END_TEST

/* It leads, idle, and its disk hangs: another member has taken over before it can store that. */
START_TEST(test_hung_vote_of_a_leader)
{
    struct group_node *hung = begin();
    struct group_node *next = group_other(hung, NULL);
    struct group_send lost = {0};
    uint64_t term = replica_term(&hung->replica);

    group_steps(3000);
    silent = hung;
    told = 0;
    group.passes = listen;
    hung->vote_sync_us = 1000000000;
    for (int i = 0; i < 1000; i++) { /* heartbeats need no disk */
        group_step();
        ck_assert_ptr_eq(group_leader(), hung);
    }
    hung->no_sync = true;
    ck_assert_int_eq(group_send(hung, &lost, next_message++), 0);
    hung->no_turn = true;
    ck_assert_int_eq(replica_transfer(&hung->replica, next->replica.options.self_id, NULL), 0);
    for (int i = 0; i < 400; i++) {
        if (i == 50)
            hung->no_turn = false;
        group_step();
    }
    ck_assert_ptr_eq(group_leader(), next);
    ck_assert(hung->replica.votes.saving && !hung->replica.accepting);
    ck_assert(lost.done);
    ck_assert_int_ne(lost.request.code, 0); /* its client heard that it leads no more */
    for (int i = 0; i < 2000; i++) {
        step(true);
        ck_assert_ptr_eq(group_leader(), next);
        ck_assert_uint_eq(hung->replica.known_leader, next->id);
        ck_assert_uint_le(hung->clock.monotonic_us, group.clock.monotonic_us);
    }
    ck_assert_uint_le(told, term);
    hung->vote_sync_us = 0;
    hung->no_sync = false;
    for (int i = 0; i < 1000; i++)
        step(true);
    ck_assert_uint_eq(replica_term(&hung->replica), replica_term(&next->replica));
    end();
    ck_assert_int_eq(group_messages(hung), group_messages(next));
    silent = NULL;
}
END_TEST

/* A process that ends while its vote hangs has told nobody: what it starts with, the vote of before or that one, does for it. */
START_TEST(test_killed_with_a_hung_vote)
{
    for (int written = 0; written < 2; written++) {
        struct group_node *leader = begin();
        struct group_node *hung = group_other(leader, NULL), *third = group_other(leader, hung);

        group_steps(3000);
        hung->vote_sync_us = 1000000000;
        ck_assert_int_eq(replica_transfer(&leader->replica, third->replica.options.self_id, NULL), 0);
        for (int i = 0; i < 400; i++)
            group_step();
        ck_assert(hung->replica.votes.saving);
        if (written) /* nobody hears of it */
            group_kill(hung);
        else
            group_power_cut(hung);
        hung->vote_sync_us = 0;
        group_steps(100);
        group_up(hung);
        group_steps(1000);
        ck_assert_int_eq((int)hung->replica.phase, (int)REPLICA_RUNNING);
        ck_assert_uint_eq(replica_term(&hung->replica), replica_term(&third->replica));
        group_kill(third); /* its vote is needed now */
        group_wait_leader(3000);
        group_must_send(group_leader(), next_message++);
        group_tear_down();
        group_set_up();
    }
}
END_TEST

/* While its disk hung a leader heard of a later term, and whoever told it has died: it gives up when the disk works, for the others still follow it. */
START_TEST(test_later_term_of_one_who_died)
{
    struct group_node *hung = begin();
    struct group_node *gone = group_other(hung, NULL);
    struct peer_message refusal = {.type = PEER_APPEND_ENTRIES_RESULT};

    hung->sync_us = hung->vote_sync_us = 1000000000;
    for (int i = 0; i < (int)REPLICA_HUNG_SYNC_MS + 200; i++)
        step(true);
    ck_assert(hung->replica.driver.disk_hangs && hung->replica.accepting);
    refusal.append_result.term = replica_term(&hung->replica) + 1;
    refusal.append_result.rejected = 1;
    replica_receive(&hung->replica, gone->id, &refusal, NULL);
    group_kill(gone);
    group_steps(20);
    ck_assert(!hung->replica.accepting);
    hung->sync_us = hung->vote_sync_us = 0;
    group_steps(3000);
    ck_assert_ptr_nonnull(group_leader());
    group_must_send(group_leader(), next_message++);
    group_up(gone);
    end();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("replica_slow_disk");
    TCase *tcase = tcase_create("replica_slow_disk");

    tcase_add_checked_fixture(tcase, group_set_up, group_tear_down);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, test_slow_leader_hands_over);
    tcase_add_test(tcase, test_slow_disks_do_not_pass_leadership_around);
    tcase_add_test(tcase, test_hung_sync);
    tcase_add_test(tcase, test_slow_follower);
    tcase_add_test(tcase, test_unwritten_entries);
    tcase_add_test(tcase, test_hung_vote);
    tcase_add_test(tcase, test_hung_vote_of_a_leader);
    tcase_add_test(tcase, test_killed_with_a_hung_vote);
    tcase_add_test(tcase, test_later_term_of_one_who_died);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
