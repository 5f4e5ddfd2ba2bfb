/* The log on its way to the followers: late, lost, unmatched and repeated messages, disks that fail or are slow. Ids are those of the failures known from
 * the field (tests/cases.md). */
#include <check.h>
#include <errno.h>
#include <stdlib.h>

#include "dledger/replica_internal.h"
#include "tests/lib/replica_group.h"
#include "tests/lib/run_suite.h"

#define TIMEOUT 300 /* steps of 1 ms: the election time-out of these groups */

static uint64_t chance_state;

static uint64_t chance(uint64_t below)
{
    chance_state = chance_state * 6364136223846793005u + 1442695040888963407u;
    return (chance_state >> 33) % below;
}

static struct group_node *start_group(enum durability_class durability)
{
    group.durability = durability;
    chance_state = (uint64_t)durability + 1;
    group_all_up();
    struct group_node *leader = group_wait_leader(2000);
    group_must_send(leader, 0);
    group_steps(20);
    return leader;
}

static raft_index last_of(const struct group_node *node)
{
    return raft_driver_last(&node->replica.driver);
}

static raft_index match_of(struct group_node *leader, const struct group_node *follower)
{
    raft_index match = 0;
    raft_match_index(&leader->replica.driver.raft, follower->id, &match);
    return match;
}

static void expect_level(int steps)
{
    for (int i = 0; i < steps; i++) {
        bool level = true;
        for (int k = 2; k <= GROUP_NODES; k++)
            level = level && group.nodes[k].replica.ledger.last_chain == group.nodes[1].replica.ledger.last_chain &&
                    group.nodes[k].replica.driver.commit == group.nodes[1].replica.driver.commit;
        if (level && last_of(&group.nodes[1]) == group.nodes[1].replica.driver.commit)
            return;
        group_step();
    }
    ck_abort_msg("the logs do not become equal");
}

/* ---- lost and late messages ---- */

static uint64_t late_from; /* its answers take up to two seconds; 0 = nobody's */

/* A push of what was pushed before. */
static unsigned repeats;
static uint64_t pushed;

static bool count_repeats(uint64_t from, uint64_t to, const struct peer_message *message)
{
    (void)from;
    if (to != late_from || message->type != PEER_APPEND_ENTRIES || message->count == 0)
        return true;
    repeats += message->append.previous_index < pushed;
    pushed = message->append.previous_index + message->count;
    return true;
}

static uint64_t late_answers(uint64_t from, uint64_t to)
{
    (void)to;
    return from == late_from ? chance(2000000) : 0;
}

/* L1: for a minute the answers of a follower come later than any time-out, so that the leader pushes again what is there already. What is known of it moves on
 * all the time, and its lag is 0 soon afterwards. */
START_TEST(l1_answers_later_than_the_push_time_out)
{
    enum { SENDS = 60 * 20 };
    struct group_send *sends = calloc(SENDS, sizeof *sends);
    struct group_node *leader = start_group(DURABILITY_B);
    struct group_node *late = group_other(leader, NULL);
    raft_index before = match_of(leader, late);

    late_from = late->id;
    group.latency_us = late_answers;
    group.passes = count_repeats;
    repeats = 0;
    pushed = 0;
    for (int i = 0; i < SENDS; i++) {
        ck_assert_int_eq(group_send(leader, &sends[i], i), 0);
        group_steps(50);
        if (i % 200 == 199) {
            ck_assert_uint_gt(match_of(leader, late), before);
            before = match_of(leader, late);
        }
    }
    ck_assert_uint_gt(repeats, 20);
    group.latency_us = NULL;
    for (int i = 0; i < 2500 && match_of(leader, late) < last_of(leader); i++)
        group_step();
    ck_assert_uint_eq(match_of(leader, late), last_of(leader));
    ck_assert_ptr_eq(group_leader(), leader);
    expect_level(100);
    for (int i = 0; i < SENDS; i++)
        ck_assert(sends[i].done && sends[i].request.code == 0);
    free(sends);
}
END_TEST

static uint64_t answers_of;

/* Every push arrives, and half the answers are lost. */
static bool half_the_answers(uint64_t from, uint64_t to, const struct peer_message *message)
{
    (void)to;
    return from != answers_of || message->type != PEER_APPEND_ENTRIES_RESULT || chance(2) == 0;
}

/* L1 again: answers that never come. */
START_TEST(l1_answers_that_are_lost)
{
    struct group_node *leader = start_group(DURABILITY_A);
    struct group_node *follower = group_other(leader, NULL);

    answers_of = follower->id;
    group.passes = half_the_answers;
    for (int i = 0; i < 200; i++) {
        group_must_send(leader, i);
        group_steps(20);
        ck_assert_uint_le(last_of(leader) - match_of(leader, follower), 40);
    }
    group.passes = NULL;
    group_steps(TIMEOUT);
    ck_assert_uint_eq(match_of(leader, follower), last_of(leader));
    ck_assert_ptr_eq(group_leader(), leader);
}
END_TEST

static struct peer_message answer_seen;
static unsigned answers_seen;

static bool note_answers(uint64_t from, uint64_t to, const struct peer_message *message)
{
    (void)to;
    if (from == answers_of && message->type == PEER_APPEND_ENTRIES_RESULT) {
        answer_seen = *message;
        answers_seen++;
    }
    return true;
}

static unsigned pushes_to_lose;

static bool lose_pushes(uint64_t from, uint64_t to, const struct peer_message *message)
{
    (void)from;
    return to != answers_of || message->type != PEER_APPEND_ENTRIES || message->count == 0 || pushes_to_lose == 0 || pushes_to_lose-- == 0;
}

/* L2: a push with a gap before it is answered with an inconsistency that says where this log ends, and the leader goes back to there. */
START_TEST(l2_a_push_with_a_gap)
{
    struct group_node *leader = start_group(DURABILITY_B);
    struct group_node *follower = group_other(leader, NULL);
    struct peer_message push = {.type = PEER_APPEND_ENTRIES};
    raft_index last = last_of(follower);

    answers_of = follower->id;
    answers_seen = 0;
    group.passes = note_answers;
    push.append.term = raft_current_term(&leader->replica.driver.raft);
    push.append.previous_index = last + 10;
    push.append.previous_term = push.append.term;
    push.append.commit = last + 10;
    replica_receive(&follower->replica, leader->id, &push, NULL);
    ck_assert_uint_eq(answers_seen, 1);
    ck_assert_uint_eq(answer_seen.append_result.rejected, last + 10);
    ck_assert_uint_eq(answer_seen.append_result.last_index, last);
    ck_assert_uint_le(follower->replica.driver.commit, last);

    for (int lose = 1; lose <= 5; lose++) {
        group.passes = lose_pushes;
        pushes_to_lose = (unsigned)lose;
        for (int i = 0; i < lose + 3; i++)
            group_must_send(leader, i);
        ck_assert_uint_eq(pushes_to_lose, 0);
        expect_level(TIMEOUT);
        ck_assert_ptr_eq(group_leader(), leader);
    }
    group.passes = NULL;
}
END_TEST

/* ---- what is committed ---- */

/* A follower with entries that nobody else has, and a leader that has committed others behind the same place. The follower is cut off still. */
static struct group_node *diverge(struct group_node **old, struct group_send *sends, int count)
{
    struct group_node *leader = NULL;
    *old = start_group(DURABILITY_A);
    (*old)->cut = true;
    for (int i = 0; i < count; i++)
        ck_assert_int_eq(group_send(*old, &sends[i], i), 0);
    for (int i = 0; i < 3000 && (leader == NULL || leader == *old); i++) {
        group_step();
        for (int k = 1; k <= GROUP_NODES; k++) {
            if (&group.nodes[k] != *old && group.nodes[k].replica.accepting)
                leader = &group.nodes[k];
        }
    }
    ck_assert_ptr_nonnull(leader);
    return leader;
}

/* L6: a heart-beat with a high commit position, anchored before the place where the logs part: commit goes no further than what was compared. */
START_TEST(l6_commit_is_capped_at_what_matches)
{
    struct group_send lost[20] = {0};
    struct group_node *old;
    struct group_node *leader = diverge(&old, lost, 20);
    struct peer_message beat = {.type = PEER_APPEND_ENTRIES};
    raft_index same = 0;
    int64_t messages = group_messages(old);

    for (int i = 0; i < 30; i++)
        group_must_send(leader, i);
    while (same < last_of(old) && ledger_term_of(&old->replica.ledger, same) == ledger_term_of(&leader->replica.ledger, same))
        same++; /* Raft's number of the last one that both have */
    ck_assert_uint_lt(same, last_of(old));
    beat.append.term = raft_current_term(&leader->replica.driver.raft);
    beat.append.previous_index = same;
    beat.append.previous_term = ledger_term_of(&leader->replica.ledger, same - 1);
    beat.append.commit = leader->replica.driver.commit;
    ck_assert_uint_gt(beat.append.commit, same);
    for (int i = 0; i < 3; i++) {
        replica_receive(&old->replica, leader->id, &beat, NULL);
        group_step();
        ck_assert_uint_le(old->replica.driver.commit, same);
        ck_assert_int_eq(group_messages(old), messages);
    }
    old->cut = false;
    expect_level(10 * TIMEOUT);
    for (int i = 1; i <= GROUP_NODES; i++)
        ck_assert_int_eq(group_messages(&group.nodes[i]), 1 + 30);
}
END_TEST

static void expect_commit_within_log(void)
{
    for (int i = 1; i <= GROUP_NODES; i++) {
        if (!group.nodes[i].up)
            continue;
        ck_assert_uint_le(group.nodes[i].replica.driver.commit, last_of(&group.nodes[i]));
        ck_assert_uint_le(group.nodes[i].replica.applied, group.nodes[i].replica.driver.commit);
    }
}

/* L11: a follower whose log was cut becomes the leader: its commit position is never behind its log's end, and it serves. */
START_TEST(l11_a_cut_follower_leads)
{
    struct group_send lost[50] = {0};
    struct group_node *old;
    struct group_node *leader = diverge(&old, lost, 50);
    struct error error;

    group_must_send(leader, 0);
    ck_assert_uint_gt(last_of(old), last_of(leader));
    old->cut = false;
    for (int i = 0; i < 3 * TIMEOUT; i++) {
        group_step();
        expect_commit_within_log();
    }
    ck_assert_uint_eq(last_of(old), last_of(leader));
    ck_assert_int_eq(replica_transfer(&leader->replica, old->replica.options.self_id, &error), 0);
    for (int i = 0; i < TIMEOUT && group_leader() != old; i++) {
        group_step();
        expect_commit_within_log();
    }
    ck_assert_ptr_eq(group_leader(), old);
    group_kill(leader);
    for (int i = 0; i < 10; i++) {
        group_must_send(old, i);
        expect_commit_within_log();
    }
    group_up(leader);
    expect_level(10 * TIMEOUT);
    for (int i = 1; i <= GROUP_NODES; i++)
        ck_assert_int_eq(group_messages(&group.nodes[i]), 1 + 1 + 10);
}
END_TEST

/* Two entries with one index and term have one chain value, on whichever disks they are. */
static void expect_no_double(void)
{
    for (int a = 1; a <= GROUP_NODES; a++) {
        for (int b = a + 1; b <= GROUP_NODES; b++) {
            const struct ledger *one = &group.nodes[a].replica.ledger, *other = &group.nodes[b].replica.ledger;
            for (uint64_t index = 0; (int64_t)index <= one->last_index && (int64_t)index <= other->last_index; index++) {
                uint64_t end;
                uint32_t chain_one, chain_other;
                if (ledger_term_of(one, index) != ledger_term_of(other, index))
                    break;
                ck_assert(ledger_end_of(one, index, &end, &chain_one) && ledger_end_of(other, index, &end, &chain_other));
                ck_assert_uint_eq(chain_one, chain_other);
            }
        }
    }
}

/* L7: a write of the leader fails, once. It stops for good, and its place in the log is given to nobody else in that term. */
START_TEST(l7_the_leaders_write_fails)
{
    struct group_send sends[40] = {0};
    struct group_node *leader = start_group(DURABILITY_B);
    raft_term term = raft_current_term(&leader->replica.driver.raft);

    for (int i = 0; i < 10; i++)
        group_must_send(leader, i);
    leader->may_fail = true;
    sim_env_fail_at(&leader->sim, SIM_WRITE, (uint64_t)_i + 1, EIO, false);
    for (int i = 0; i < 40; i++) {
        if (leader->replica.accepting)
            group_send(leader, &sends[i], i);
        group_steps(i % 3);
    }
    struct group_node *next = NULL;
    for (int i = 0; i < 10 * TIMEOUT && (next == NULL || next == leader); i++) {
        group_step();
        next = group_leader();
    }
    ck_assert_ptr_nonnull(next);
    ck_assert_ptr_ne(next, leader);
    ck_assert_int_eq(leader->replica.phase, REPLICA_FAILED);
    ck_assert_uint_gt(raft_current_term(&next->replica.driver.raft), term);
    int64_t acknowledged = 11;
    for (int i = 0; i < 40; i++) {
        ck_assert(sends[i].done || sends[i].request.done == NULL);
        acknowledged += sends[i].done && sends[i].request.code == 0;
    }
    for (int i = 0; i < 50; i++)
        group_must_send(next, i);
    ck_assert_int_ge(group_messages(next), acknowledged + 50);
    expect_no_double();
    group_kill(leader);
    leader->may_fail = false;
    group_up(leader);
    expect_level(10 * TIMEOUT);
    expect_no_double();
    ck_assert_int_eq(group_messages(leader), group_messages(next));
}
END_TEST

/* ---- acknowledgements ---- */

/* L18: single messages, one every two seconds: each is acknowledged in the time of a round trip, and soon applied on all nodes. */
START_TEST(l18_the_last_entry_of_a_burst)
{
    struct group_node *leader = start_group(_i == 0 ? DURABILITY_A : DURABILITY_B);

    for (int i = 0; i < 20; i++) {
        struct group_send send = {0};
        group_steps(2000);
        ck_assert_ptr_eq(group_leader(), leader);
        ck_assert_int_eq(group_send(leader, &send, i), 0);
        for (int k = 0; k < 5 && !send.done; k++)
            group_step();
        ck_assert(send.done);
        ck_assert_int_eq(send.request.code, 0);
        group_steps(10);
        for (int k = 1; k <= GROUP_NODES; k++)
            ck_assert_int_eq(group_messages(&group.nodes[k]), i + 2);
    }
}
END_TEST

/* L21: the nodes lose power with everything that was not synced, one of them or all, while messages come in: what was acknowledged is there. */
START_TEST(l21_power_cuts_lose_nothing_acknowledged)
{
    enum { ROUNDS = 12, SENDS = 60 };
    struct group_send *sends = calloc(ROUNDS * SENDS, sizeof *sends);
    int64_t acknowledged = 1;

    chance_state = (uint64_t)_i + 1;
    start_group(DURABILITY_B);
    chance_state += (uint64_t)_i;
    for (int round = 0; round < ROUNDS; round++) {
        struct group_node *leader = group_wait_leader(20 * TIMEOUT);
        struct group_node *victim = &group.nodes[1 + chance(GROUP_NODES)];
        bool slow = chance(2) == 0; /* its syncs take until the power goes */
        victim->no_sync = slow;
        for (int i = 0; i < SENDS; i++) {
            if (leader->replica.accepting)
                group_send(leader, &sends[round * SENDS + i], i);
            if (chance(3) == 0)
                group_step();
        }
        for (int i = 0; i < SENDS; i++)
            acknowledged += sends[round * SENDS + i].done && sends[round * SENDS + i].request.code == 0;
        for (int i = 1; i <= GROUP_NODES; i++) {
            if (_i % 2 == 1 || &group.nodes[i] == victim)
                group_power_cut(&group.nodes[i]);
        }
        for (int i = 1; i <= GROUP_NODES; i++) {
            if (!group.nodes[i].up)
                group_up(&group.nodes[i]);
        }
        group_wait_leader(20 * TIMEOUT);
        expect_level(20 * TIMEOUT);
        ck_assert_int_ge(group_messages(group_leader()), acknowledged);
        acknowledged = group_messages(group_leader()); /* and what was stored without an answer */
    }
    ck_assert_int_gt(acknowledged, ROUNDS * SENDS / 10);
    group_tear_down(); /* nobody answers the sends any more */
    group_set_up();
    free(sends);
}
END_TEST

/* L23: messages without a pause while the leader's own disk does not finish a sync: the commit position moves as the other two write. */
START_TEST(l23_commit_moves_with_a_slow_leader)
{
    enum { STEPS = 2000 };
    struct group_send *sends = calloc(STEPS, sizeof *sends);
    struct group_node *leader = start_group(DURABILITY_B);
    raft_index before = leader->replica.driver.commit;
    int sent = 0;

    leader->no_sync = true;
    for (int i = 0; i < STEPS; i++) {
        sent += group_send(leader, &sends[i], i) == 0;
        group_step();
        if (i % 100 == 99) {
            ck_assert_uint_ge(leader->replica.driver.commit, before + 90);
            before = leader->replica.driver.commit;
            ck_assert_uint_lt(leader->replica.driver.raft.last_stored, leader->replica.driver.commit);
        }
    }
    ck_assert_int_eq(sent, STEPS);
    ck_assert_ptr_eq(group_leader(), leader);
    group_steps(20);
    leader->no_sync = false;
    for (int i = 0; i < STEPS; i++)
        ck_assert(sends[i].done && sends[i].request.code == 0);
    free(sends);
}
END_TEST

static bool no_answers(uint64_t from, uint64_t to, const struct peer_message *message)
{
    (void)to;
    return from != answers_of || message->type != PEER_APPEND_ENTRIES_RESULT;
}

/* An answer names what is durable where it comes from and the same as at the leader it goes to. */
static bool honest_answers(uint64_t from, uint64_t to, const struct peer_message *message)
{
    struct group_node *node = &group.nodes[from], *leader = &group.nodes[to];
    raft_index index = message->append_result.last_index;

    if (message->type != PEER_APPEND_ENTRIES_RESULT || message->append_result.rejected != 0 || index == 0 || !leader->replica.accepting ||
        message->append_result.term != raft_current_term(&leader->replica.driver.raft))
        return true;
    answers_seen++;
    ck_assert_uint_le(index, (raft_index)(node->replica.ledger.synced_index + 1));
    ck_assert_uint_le(index, last_of(leader));
    ck_assert_uint_eq(ledger_term_of(&node->replica.ledger, index - 1), ledger_term_of(&leader->replica.ledger, index - 1));
    return true;
}

/* L25: wrong previous terms are rejected and never acknowledged; an acknowledgement names only entries that match and are on stable storage, so they are
 * there after a power cut. */
START_TEST(l25_an_acknowledgement_is_true)
{
    static struct group_send sends[400];
    struct group_node *leader = start_group(DURABILITY_B);
    struct group_node *follower = group_other(leader, NULL);
    struct peer_message push = {.type = PEER_APPEND_ENTRIES};
    struct group_send send[2];
    const uint8_t *run;
    size_t size;

    /* The follower's last entry is not committed, and the leader has one more. */
    answers_of = follower->id;
    group_other(leader, follower)->cut = true;
    group.passes = no_answers;
    ck_assert_int_eq(group_send(leader, &send[0], 0), 0);
    group_steps(3);
    raft_index last = last_of(follower);
    ck_assert_uint_eq(last, follower->replica.driver.commit + 1);
    follower->cut = true;
    ck_assert_int_eq(group_send(leader, &send[1], 1), 0);
    group_steps(10);
    follower->cut = false;
    answers_seen = 0;
    group.passes = note_answers;
    push.count = ledger_run(&leader->replica.ledger, last, 1, PEER_RUN_MAX, &run, &size);
    ck_assert_uint_eq(push.count, 1);
    push.body_size = (uint32_t)size;
    push.append.term = raft_current_term(&leader->replica.driver.raft) + 1;
    push.append.previous_index = last;
    push.append.previous_term = push.append.term; /* not what stands there */
    push.append.commit = last + 1;
    replica_receive(&follower->replica, leader->id, &push, run);
    ck_assert_uint_eq(answers_seen, 1);
    ck_assert_uint_eq(answer_seen.append_result.rejected, last);
    ck_assert_uint_eq(last_of(follower), last);
    ck_assert_uint_lt(follower->replica.driver.commit, last);
    group_other(leader, follower)->cut = false;
    group_steps(3 * TIMEOUT);
    ck_assert(send[0].done && send[1].done);

    /* And under way, with syncs that take their time, a leader that is cut off, and power cuts. */
    group.passes = honest_answers;
    answers_seen = 0;
    chance_state = 25;
    int sent = 0;
    for (int step = 0; step < 12000 && sent < 400; step++) {
        struct group_node *now = group_leader();
        for (int i = 1; i <= GROUP_NODES; i++)
            group.nodes[i].no_sync = chance(3) == 0;
        if (now != NULL && group_send(now, &sends[sent], sent) == 0)
            sent++;
        if (step % 900 == 450 && now != NULL)
            now->cut = true;
        if (step % 900 == 899) {
            for (int i = 1; i <= GROUP_NODES; i++)
                group.nodes[i].cut = false;
        }
        if (step % 1300 == 1299) {
            struct group_node *victim = &group.nodes[1 + chance(GROUP_NODES)];
            int64_t synced = victim->replica.ledger.synced_index;
            uint64_t term = ledger_term_of(&victim->replica.ledger, (uint64_t)synced);
            group_power_cut(victim);
            group_up(victim);
            ck_assert_int_ge(victim->replica.ledger.last_index, synced);
            ck_assert_uint_eq(ledger_term_of(&victim->replica.ledger, (uint64_t)synced), term);
        }
        group_step();
    }
    ck_assert_int_eq(sent, 400);
    ck_assert_uint_gt(answers_seen, 200);
    group.passes = NULL;
    for (int i = 1; i <= GROUP_NODES; i++)
        group.nodes[i].no_sync = group.nodes[i].cut = false;
    group_wait_leader(10 * TIMEOUT);
    group_must_send(group_leader(), 0);
    expect_level(10 * TIMEOUT);
    group_tear_down();
    group_set_up();
}
END_TEST

static uint64_t silent, sent_to_silent; /* entries */

static bool count_entries(uint64_t from, uint64_t to, const struct peer_message *message)
{
    if (to == silent && message->type == PEER_APPEND_ENTRIES)
        sent_to_silent += message->count;
    return from != silent && to != silent;
}

/* A follower that answers nothing, as one whose log failed, does not get all that it lacks with every heart-beat: its leader would do little else. When it
 * answers again it is level soon. */
START_TEST(test_a_silent_follower_costs_little)
{
    enum { SENDS = 10000, BEATS = 200 };
    struct group_node *leader = start_group(DURABILITY_B);

    silent = group_other(leader, NULL)->id;
    sent_to_silent = 0;
    group.passes = count_entries;
    for (int i = 0; i < SENDS; i++) {
        ck_assert_int_eq(group_send(leader, NULL, i), 0);
        if (i % 5 == 4)
            group_step();
    }
    group_steps(BEATS * 50 - SENDS / 5);
    ck_assert_uint_gt(sent_to_silent, BEATS / 2); /* it is still asked */
    ck_assert_msg(sent_to_silent < SENDS * BEATS / 20, "%llu entries were sent", (unsigned long long)sent_to_silent);
    group.passes = NULL;
    expect_level(500);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("replica_replication");
    TCase *tcase = tcase_create("group");

    tcase_add_checked_fixture(tcase, group_set_up, group_tear_down);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, l1_answers_later_than_the_push_time_out);
    tcase_add_test(tcase, l1_answers_that_are_lost);
    tcase_add_test(tcase, test_a_silent_follower_costs_little);
    tcase_add_test(tcase, l2_a_push_with_a_gap);
    tcase_add_test(tcase, l6_commit_is_capped_at_what_matches);
    tcase_add_loop_test(tcase, l7_the_leaders_write_fails, 0, 6);
    tcase_add_test(tcase, l11_a_cut_follower_leads);
    tcase_add_loop_test(tcase, l18_the_last_entry_of_a_burst, 0, 2);
    tcase_add_loop_test(tcase, l21_power_cuts_lose_nothing_acknowledged, 0, 8);
    tcase_add_test(tcase, l23_commit_moves_with_a_slow_leader);
    tcase_add_test(tcase, l25_an_acknowledgement_is_true);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
