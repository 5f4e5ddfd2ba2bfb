/* Elections in bad networks: who may lead, for how long, and that somebody does. Ids are those of the failures known from the field (tests/cases.md). */
#include <check.h>

#include "dledger/raft_driver_internal.h"
#include "dledger/replica_internal.h"
#include "tests/lib/replica_group.h"
#include "tests/lib/run_suite.h"

#define TIMEOUT 300 /* steps of 1 ms: the election time-out of these groups */

static bool lost[GROUP_NODES + 1][GROUP_NODES + 1]; /* [from][to] */

static bool passes(uint64_t from, uint64_t to, const struct peer_message *message)
{
    (void)message;
    return !lost[from][to];
}

static void set_up(void)
{
    group_set_up();
    memset(lost, 0, sizeof lost);
    group.passes = passes;
}

static struct group_node *start_group(void)
{
    struct group_node *leader;
    group_all_up();
    leader = group_wait_leader(2000);
    for (int i = 0; i < 5; i++)
        group_must_send(leader, i);
    group_steps(20);
    return leader;
}

static raft_term term_of(struct group_node *node)
{
    return raft_current_term(&node->replica.driver.raft);
}

static bool level(const struct group_node *a, const struct group_node *b)
{
    return a->replica.ledger.last_index == b->replica.ledger.last_index && a->replica.ledger.last_chain == b->replica.ledger.last_chain &&
           a->replica.driver.commit == b->replica.driver.commit;
}

static void expect_level(int steps)
{
    for (int i = 0; i < steps && !(level(&group.nodes[1], &group.nodes[2]) && level(&group.nodes[1], &group.nodes[3])); i++)
        group_step();
    ck_assert(level(&group.nodes[1], &group.nodes[2]));
    ck_assert(level(&group.nodes[1], &group.nodes[3]));
}

/* Which of the six ways are lost, for each row: L leader, A and B the others. */
static const char *const losses[] = {"LA", "AL", "LB", "AB", "BA", "LA LB", "AL BL", "AB BA", "LA AB", "AL BA"};

static struct group_node *named(char name, struct group_node *leader)
{
    struct group_node *a = group_other(leader, NULL);
    return name == 'L' ? leader : name == 'A' ? a : group_other(leader, a);
}

/* E2: packets are lost in one direction only. Within a few time-outs somebody leads, and then nobody disturbs him though the loss goes on. */
START_TEST(e2_one_way_loss)
{
    struct group_node *leader = start_group();

    for (const char *pair = losses[_i]; *pair != 0; pair += pair[2] == ' ' ? 3 : 2)
        lost[named(pair[0], leader)->id][named(pair[1], leader)->id] = true;
    group_steps(6 * TIMEOUT);
    struct group_node *stable = group_wait_leader(4 * TIMEOUT);
    raft_term term = term_of(stable);
    for (int i = 0; i < 20; i++) {
        group_steps(500);
        ck_assert_msg(stable->replica.accepting && term_of(stable) == term, "%s: term %llu after %llu", losses[_i], term_of(stable), term);
        group_must_send(stable, i);
    }
    memset(lost, 0, sizeof lost);
    expect_level(10 * TIMEOUT);
}
END_TEST

/* Nobody hears anybody for a while. When the connections are there again, nobody waits for the rest of an election time-out. */
START_TEST(a_cut_ends)
{
    start_group();
    for (int round = 0; round < 30; round++) {
        for (int i = 1; i <= GROUP_NODES; i++) {
            for (int k = i + 1; k <= GROUP_NODES; k++) {
                group_part(&group.nodes[i], &group.nodes[k]);
                replica_peer_lost(&group.nodes[i].replica, (uint64_t)k);
                replica_peer_lost(&group.nodes[k].replica, (uint64_t)i);
            }
        }
        group_steps(3000 + 37 * round);
        ck_assert_ptr_null(group_leader());
        for (int i = 1; i <= GROUP_NODES; i++) {
            for (int k = i + 1; k <= GROUP_NODES; k++)
                group_join(&group.nodes[i], &group.nodes[k]);
        }
        group_wait_leader(250);
    }
    expect_level(10 * TIMEOUT);
}
END_TEST

/* E3: a follower that nobody hears for a minute stands for election all the time; when it is heard again the leader keeps its place. */
START_TEST(e3_a_healed_follower_unseats_nobody)
{
    struct group_node *leader = start_group();
    struct group_node *follower = group_other(leader, NULL);
    raft_term term = term_of(leader);

    follower->cut = true;
    for (int i = 0; i < 60; i++) {
        group_steps(1000);
        group_must_send(leader, i);
    }
    ck_assert_int_ne(raft_state(&follower->replica.driver.raft), RAFT_FOLLOWER);
    follower->cut = false;
    for (int i = 0; i < 10 * TIMEOUT; i++) {
        group_step();
        ck_assert(leader->replica.accepting);
    }
    ck_assert_uint_eq(term_of(leader), term);
    ck_assert_uint_eq(term_of(follower), term);
    expect_level(1);
}
END_TEST

/* E5: one whose term grew while it was alone comes back, and has all that was acknowledged meanwhile, without a restart. */
START_TEST(e5_an_isolated_follower_with_a_later_term)
{
    struct group_node *leader = start_group();
    struct group_node *follower = group_other(leader, NULL);
    raft_term term = term_of(leader);

    follower->cut = true;
    raft_set_pre_vote(&follower->replica.driver.raft, false); /* who had the first votes already asks for the second ones again and again */
    for (int i = 0; i < 60; i++) {
        group_steps(500);
        group_must_send(leader, i);
    }
    ck_assert_uint_gt(term_of(follower), term + 10);
    raft_set_pre_vote(&follower->replica.driver.raft, true);
    follower->cut = false;
    expect_level(10 * TIMEOUT);
    group_must_send(group_wait_leader(10 * TIMEOUT), 60);
    group_steps(100);
    for (int i = 1; i <= GROUP_NODES; i++)
        ck_assert_int_eq(group_messages(&group.nodes[i]), 5 + 61);
}
END_TEST

/* E6: a member that lags and is quick to stand for election does not raise the term while it hears of better logs, and does not keep one of these from
 * leading when the leader is gone. */
START_TEST(e6_a_candidate_with_a_shorter_log)
{
    struct group_node *leader = start_group();
    struct group_node *lagging = group_other(leader, NULL);
    struct group_node *better = group_other(leader, lagging);
    raft_term term = term_of(leader);

    raft_set_election_timeout(&lagging->replica.driver.raft, 50);
    lost[leader->id][lagging->id] = true; /* it hears the other follower alone */
    for (int i = 0; i < 40; i++) {
        group_steps(500);
        group_must_send(leader, i);
    }
    ck_assert_uint_lt(lagging->replica.driver.commit, leader->replica.driver.commit);
    ck_assert_uint_eq(term_of(leader), term);
    ck_assert_uint_eq(term_of(lagging), term);
    group_kill(leader);
    lost[leader->id][lagging->id] = false;
    ck_assert_ptr_eq(group_wait_leader(10 * TIMEOUT), better);
    ck_assert_uint_le(term_of(better), term + 2);
    group_must_send(better, 40);
    group_steps(200);
    ck_assert(level(better, lagging));
}
END_TEST

static uint64_t chance_state;

static uint64_t some_ms(uint64_t from, uint64_t to)
{
    (void)from;
    (void)to;
    chance_state = chance_state * 6364136223846793005u + 1442695040888963407u;
    return (chance_state >> 33) % 20000;
}

/* Another one than `old` leads: then `old` answers nothing from its tables. */
static bool succeeded(struct group_node *old)
{
    for (int i = 1; i <= GROUP_NODES; i++) {
        if (&group.nodes[i] != old && group.nodes[i].replica.accepting) {
            ck_assert(!old->replica.accepting || replica_in_doubt(&old->replica));
            return true;
        }
    }
    return false;
}

/* E7: a leader that is cut off acknowledges nothing, gives up within an election time-out (and the heart-beats that it takes to notice), and never answers from
 * what it knew when another one may lead. _i: when in its round of heart-beats; the last ones stand still instead, as after SIGSTOP. */
START_TEST(e7_a_leader_that_is_cut_off)
{
    struct group_send sends[40] = {0};
    struct group_node *leader = start_group();
    bool stands = _i >= 24;
    bool over = false;
    int sent = 0, gave_up = -1, doubted = -1;

    chance_state = (uint64_t)_i + 1;
    group.latency_us = some_ms;
    for (int i = 0; i < 1000 + 13 * _i; i++) {
        group_step();
        ck_assert_msg(leader->replica.accepting && !replica_in_doubt(&leader->replica), "a leader that all follow doubts");
    }
    if (stands)
        leader->stall_until_us = group.clock.monotonic_us + 3000000;
    else
        leader->cut = true;
    for (int i = 0; i < 2900; i++) {
        if (!stands && i % 20 == 0 && sent < 40)
            sent += group_send(leader, &sends[sent], i) == 0;
        group_step();
        over |= succeeded(leader);
        if (doubted < 0 && replica_in_doubt(&leader->replica))
            doubted = i;
        if (gave_up < 0 && !leader->replica.accepting)
            gave_up = i;
    }
    ck_assert(over);
    if (!stands) {
        ck_assert_int_gt(sent, 5);
        ck_assert_int_ge(doubted, 0);
        ck_assert_int_le(doubted, TIMEOUT);
        ck_assert_int_le(gave_up, TIMEOUT + 2 * 50 + 10);
        ck_assert_int_eq(raft_state(&leader->replica.driver.raft) == RAFT_LEADER, false);
        for (int i = 0; i < sent; i++)
            ck_assert(sends[i].done && sends[i].request.code == ERROR_LEADERSHIP_LOST);
    }
    leader->cut = false;
    for (int i = 0; i < 1000; i++) {
        group_step();
        succeeded(leader);
    }
    group_must_send(group_wait_leader(10 * TIMEOUT), 0); /* where what only it has stands */
    expect_level(10 * TIMEOUT);
    for (int i = 0; i < sent; i++)
        ck_assert(sends[i].request.code != 0);
}
END_TEST

/* The one whose log is the longest loses the first round, to one that the third voted for, and tries again at once, while the news of the winner is on its way.
 * That unseats the winner at most for as long as another round takes: nobody waits for a time-out. */
START_TEST(test_a_candidate_that_comes_too_late)
{
    struct group_send send = {0};
    struct group_node *ahead = start_group();
    struct group_node *first = group_other(ahead, NULL);
    int without = 0;

    ahead->cut = true;
    ck_assert_int_eq(group_send(ahead, &send, 5), 0);
    group_steps(20); /* on its disk */
    for (int i = 1; i <= GROUP_NODES; i++)
        group_kill(&group.nodes[i]);
    ahead->cut = false;
    chance_state = (uint64_t)_i + 1;
    group.latency_us = some_ms;
    group_all_up();
    group_steps(TIMEOUT); /* no timer of theirs runs before that */
    raft_driver_hurry(&first->replica.driver, 1);
    for (int i = 0; i < 4 * TIMEOUT; i++) {
        group_step();
        without += group_leader() == NULL;
    }
    ck_assert_int_gt(without, 0);
    ck_assert_int_lt(without, TIMEOUT - 50);
}
END_TEST

static uint64_t late_to;

static uint64_t late_answers(uint64_t from, uint64_t to)
{
    (void)from;
    return to == late_to ? 270000 : 0;
}

/* E7: what counts is when it sent what was taken, not when it hears of that. It falls silent, and the answers to what it sent before come for a while yet. */
START_TEST(e7_answers_that_come_late)
{
    struct group_node *leader = start_group();
    bool over = false;

    late_to = leader->id;
    group.latency_us = late_answers;
    group_steps(1000 + 13 * _i);
    ck_assert(leader->replica.accepting);
    for (int i = 1; i <= GROUP_NODES; i++) {
        lost[leader->id][i] = true;
        if (&group.nodes[i] != leader) /* the shortest that may be drawn, so that the successor comes as soon as one can */
            group.nodes[i].replica.driver.raft.follower_state.randomized_election_timeout = TIMEOUT + 10 * (unsigned)i;
    }
    for (int i = 0; i < 4 * TIMEOUT; i++) {
        group_step();
        over |= succeeded(leader);
    }
    ck_assert(over);
}
END_TEST

/* E7: the member that it told to take over leads at once, and it hears nothing of that. */
START_TEST(e7_a_leader_that_has_handed_over)
{
    struct group_node *leader = start_group();
    struct group_node *next = group_other(leader, NULL);
    struct error error;

    group_steps(3 * TIMEOUT);
    for (int i = 1; i <= GROUP_NODES; i++)
        lost[i][leader->id] = true;
    ck_assert_int_eq(replica_transfer(&leader->replica, next->replica.options.self_id, &error), 0);
    for (int i = 0; i < 20; i++) {
        group_step();
        succeeded(leader);
    }
    ck_assert(next->replica.accepting);
    ck_assert_int_eq(raft_state(&leader->replica.driver.raft), RAFT_LEADER);
    for (int i = 0; i < 4 * TIMEOUT; i++) {
        group_step();
        succeeded(leader);
    }
}
END_TEST

/* E7: told to take over, a member is voted for though its leader is heard; and after a transfer that came to nothing all is as before. */
START_TEST(e7_a_leader_that_hands_over)
{
    struct group_node *leader = start_group();
    struct error error;

    for (int round = 0; round < 20; round++) {
        struct group_node *old = group_wait_leader(10 * TIMEOUT);
        chance_state = (uint64_t)round;
        group.latency_us = round % 2 == 0 ? some_ms : NULL;
        group_steps(3 * TIMEOUT + round);
        ck_assert_int_eq(replica_transfer(&old->replica, NULL, &error), 0);
        if (round % 4 == 3) {
            group_steps(2);
            old->cut = true;
        }
        for (int i = 0; i < 3 * TIMEOUT; i++) {
            group_step();
            succeeded(old);
        }
        old->cut = false;
        group.latency_us = NULL;
        group_steps(3 * TIMEOUT);
    }
    leader = group_wait_leader(10 * TIMEOUT);
    struct group_node *deaf = group_other(leader, NULL);
    for (int i = 1; i <= GROUP_NODES; i++)
        lost[leader->id][i] = i == (int)deaf->id;
    ck_assert_int_eq(replica_transfer(&leader->replica, deaf->replica.options.self_id, &error), 0);
    group_steps(2 * TIMEOUT);
    memset(lost, 0, sizeof lost);
    group_steps(2 * TIMEOUT);
    leader = group_wait_leader(10 * TIMEOUT);
    group_steps(TIMEOUT);
    ck_assert(!replica_in_doubt(&leader->replica));
}
END_TEST

static bool only_the_word(uint64_t from, uint64_t to, const struct peer_message *message)
{
    return message->type == PEER_TIMEOUT_NOW || passes(from, to, message);
}

/* A member that is told to take over, and hears nothing else from then on, stands for election again and again. Only at once the others vote for it though
 * they have a leader: they elect another one, and that one stays. */
START_TEST(test_told_to_take_over_and_deaf)
{
    struct group_node *leader = start_group();
    struct group_node *next = group_other(leader, NULL);
    struct error error;

    for (int i = 1; i <= GROUP_NODES; i++)
        lost[i][next->id] = true;
    group.passes = only_the_word;
    ck_assert_int_eq(replica_transfer(&leader->replica, next->replica.options.self_id, &error), 0);
    group_steps(1);
    ck_assert(raft_driver_stands(&next->replica.driver));
    group_steps(6 * TIMEOUT);
    struct group_node *stable = group_wait_leader(4 * TIMEOUT);
    raft_term term = term_of(stable);
    for (int i = 0; i < 20; i++) {
        group_steps(500);
        ck_assert_msg(stable->replica.accepting && term_of(stable) == term, "term %llu after %llu", term_of(stable), term);
        group_must_send(stable, i);
    }
    memset(lost, 0, sizeof lost);
    expect_level(10 * TIMEOUT);
}
END_TEST

static uint64_t late_from;

static uint64_t late_news(uint64_t from, uint64_t to)
{
    return from == late_from && to == late_to ? 100000 : 0;
}

/* E7: it is heard again long after its leader has given the transfer up, by the third, whose news come late: a leader that is certain has no successor. */
START_TEST(e7_a_transfer_that_comes_late)
{
    struct group_node *leader = start_group();
    struct group_node *next = group_other(leader, NULL);
    struct group_node *third = group_other(leader, next);
    struct error error;

    for (int i = 1; i <= GROUP_NODES; i++)
        lost[i][next->id] = lost[next->id][i] = true;
    group.passes = only_the_word;
    late_from = third->id;
    late_to = leader->id;
    group.latency_us = late_news;
    group_steps(TIMEOUT);
    ck_assert_int_eq(replica_transfer(&leader->replica, next->replica.options.self_id, &error), 0);
    group_steps(1);
    ck_assert(raft_driver_stands(&next->replica.driver));
    replica_peer_lost(&leader->replica, next->id);
    group_steps(4 * TIMEOUT + 30 * _i);
    ck_assert(leader->replica.accepting && !replica_in_doubt(&leader->replica));
    lost[next->id][third->id] = lost[third->id][next->id] = false;
    for (int i = 0; i < 4 * TIMEOUT; i++) {
        group_step();
        succeeded(leader);
    }
}
END_TEST

/* E7: the same, because its disk hung when it was to store its vote for itself. */
START_TEST(e7_a_vote_for_a_transfer_that_hangs)
{
    struct group_node *leader = start_group();
    struct group_node *next = group_other(leader, NULL);
    struct group_node *third = group_other(leader, next);
    struct error error;

    group_steps(3000);
    next->vote_sync_us = 1000000000;
    ck_assert_int_eq(replica_transfer(&leader->replica, next->replica.options.self_id, &error), 0);
    group_steps(1);
    for (int i = 0; i < TIMEOUT / 2 && !next->replica.votes.saving; i++)
        group_step();
    ck_assert(next->replica.votes.saving);
    for (int i = 1; i <= GROUP_NODES; i++)
        lost[i][next->id] = lost[next->id][i] = true;
    group.passes = passes;
    late_from = third->id;
    late_to = leader->id;
    group.latency_us = late_news;
    replica_peer_lost(&leader->replica, next->id);
    group_steps(4 * TIMEOUT + 30 * _i);
    ck_assert(leader->replica.accepting && !replica_in_doubt(&leader->replica));
    lost[next->id][third->id] = lost[third->id][next->id] = false;
    next->vote_sync_us = 0;
    for (int i = 0; i < 4 * TIMEOUT; i++) {
        group_step();
        succeeded(leader);
    }
}
END_TEST

/* E11: terms that differ, the best log with the lowest one, and one member that does not hear, or is not heard by, another. There is a leader within ten
 * time-outs. _i: which way is lost (both ways in the upper half), and who knows later terms. */
START_TEST(e11_mixed_terms_with_one_partly_cut_off)
{
    static const int ways[6][2] = {{1, 2}, {2, 1}, {1, 3}, {3, 1}, {2, 3}, {3, 2}};
    struct group_node *leader = start_group();
    struct group_node *a = group_other(leader, NULL);
    struct group_node *b = group_other(leader, a);
    raft_term term = term_of(leader);
    const int *way = ways[_i % 6];

    a->cut = true; /* the leader and b have more than a */
    for (int i = 0; i < 10; i++)
        group_must_send(leader, i);
    group_steps(1500);
    a->cut = false;
    for (int i = 1; i <= GROUP_NODES; i++)
        group_kill(&group.nodes[i]);
    group_save_vote(a, term + 7, 0);
    group_save_vote(b, term + 3, 0);
    lost[way[0]][way[1]] = true;
    lost[way[1]][way[0]] = _i >= 6;
    group_all_up();
    struct group_node *next = group_wait_leader(10 * TIMEOUT);
    group_must_send(next, 10);
    memset(lost, 0, sizeof lost);
    expect_level(10 * TIMEOUT);
    group_steps(100);
    for (int i = 1; i <= GROUP_NODES; i++)
        ck_assert_int_eq(group_messages(&group.nodes[i]), 16);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("replica_election");
    TCase *tcase = tcase_create("group");

    tcase_add_checked_fixture(tcase, set_up, group_tear_down);
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, e2_one_way_loss, 0, (int)(sizeof losses / sizeof losses[0]));
    tcase_add_test(tcase, e3_a_healed_follower_unseats_nobody);
    tcase_add_test(tcase, e5_an_isolated_follower_with_a_later_term);
    tcase_add_test(tcase, e6_a_candidate_with_a_shorter_log);
    tcase_add_loop_test(tcase, test_a_candidate_that_comes_too_late, 0, 100);
    tcase_add_loop_test(tcase, e7_a_leader_that_is_cut_off, 0, 28);
    tcase_add_loop_test(tcase, e7_answers_that_come_late, 0, 12);
    tcase_add_test(tcase, e7_a_leader_that_has_handed_over);
    tcase_add_test(tcase, e7_a_leader_that_hands_over);
    tcase_add_loop_test(tcase, e11_mixed_terms_with_one_partly_cut_off, 0, 12);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("cut");
    tcase_add_checked_fixture(tcase, set_up, group_tear_down);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, a_cut_ends);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("take_over");
    tcase_add_checked_fixture(tcase, set_up, group_tear_down);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, test_told_to_take_over_and_deaf);
    tcase_add_loop_test(tcase, e7_a_transfer_that_comes_late, 0, 10);
    tcase_add_loop_test(tcase, e7_a_vote_for_a_transfer_that_hangs, 0, 10);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
