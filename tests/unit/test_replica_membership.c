/* Members that lose and get votes, change by change. */
#include <check.h>
#include <stdio.h>

#include "dledger/raft_driver_internal.h"
#include "dledger/replica_internal.h"
#include "tests/lib/replica_group.h"
#include "tests/lib/run_suite.h"

static struct append_entry_request request;
static int done_code; /* -1: not yet */

static void on_done(struct append_entry_request *done)
{
    done_code = done->code;
}

static const char *name_of(const struct group_node *node)
{
    return node->replica.options.self_id;
}

static int begin_change(struct group_node *leader, enum dledger_member_action action, const struct group_node *node)
{
    struct error error;
    request = (struct append_entry_request){.done = on_done};
    done_code = -1;
    return replica_change_member(&leader->replica, action, name_of(node), "", &request, &error);
}

static void must_change(struct group_node *leader, enum dledger_member_action action, const struct group_node *node)
{
    int rv = ERROR_BUSY;
    for (int i = 0; i < 200 && rv == ERROR_BUSY; i++) { /* a leader that has just begun, a member that is not heard yet */
        rv = begin_change(leader, action, node);
        group_step();
    }
    ck_assert_int_eq(rv, 0);
    for (int i = 0; i < 200 && done_code == -1; i++)
        group_step();
    ck_assert_int_eq(done_code, 0);
}

/* 3 voters, 1, 3 again; nobody has to be elected for it, and each change is known on every node. */
START_TEST(test_votes_go_and_come)
{
    struct group_node *leader, *b, *c;
    uint64_t term;

    group_all_up();
    leader = group_wait_leader(3000);
    b = group_other(leader, NULL);
    c = group_other(leader, b);
    term = leader->replica.known_term;
    for (int round = 0; round < 3; round++) {
        group_must_send(leader, round);
        must_change(leader, DLEDGER_MEMBER_DEMOTE, b);
        ck_assert_int_eq(begin_change(leader, DLEDGER_MEMBER_DEMOTE, b), ERROR_EXISTS);
        must_change(leader, DLEDGER_MEMBER_DEMOTE, c);
        group_steps(1500); /* a sole voter does not look who answers; the next changes must not cost it its leadership */
        ck_assert(!leader->replica.members[b->id - 1].voter && !leader->replica.members[c->id - 1].voter);
        must_change(leader, DLEDGER_MEMBER_PROMOTE, b);
        must_change(leader, DLEDGER_MEMBER_PROMOTE, c);
        ck_assert_int_eq(begin_change(leader, DLEDGER_MEMBER_PROMOTE, c), ERROR_EXISTS);
        group_steps(100);
        for (int i = 1; i <= GROUP_NODES; i++) {
            for (int k = 1; k <= GROUP_NODES; k++)
                ck_assert(group.nodes[i].replica.members[k - 1].voter);
        }
    }
    ck_assert_ptr_eq(group_leader(), leader);
    ck_assert_uint_eq(leader->replica.known_term, term);
    /* All three count: any two are a group. */
    group_kill(leader);
    leader = group_wait_leader(3000);
    group_must_send(leader, 100);
}
END_TEST

START_TEST(test_refusals)
{
    struct group_node *leader, *b, *c;
    struct error error;

    group_all_up();
    leader = group_wait_leader(3000);
    b = group_other(leader, NULL);
    c = group_other(leader, b);
    group_must_send(leader, 0);
    must_change(leader, DLEDGER_MEMBER_DEMOTE, b);
    must_change(leader, DLEDGER_MEMBER_PROMOTE, b);
    ck_assert_int_eq(begin_change(leader, DLEDGER_MEMBER_REMOVE, b), ERROR_INVALID);
    ck_assert_int_eq(begin_change(b, DLEDGER_MEMBER_DEMOTE, c), ERROR_NOT_LEADER);
    /* Two at a time. */
    b->cut = c->cut = true;
    ck_assert_int_eq(begin_change(leader, DLEDGER_MEMBER_DEMOTE, b), 0);
    ck_assert_int_eq(replica_change_member(&leader->replica, DLEDGER_MEMBER_DEMOTE, name_of(c), "", &request, &error), ERROR_BUSY);
    b->cut = c->cut = false;
    for (int i = 0; i < 3000 && done_code == -1; i++)
        group_step();
    leader = group_wait_leader(3000);
    /* A change that would leave too few that are up. */
    struct group_node *other = group_other(leader, NULL), *third = group_other(leader, other);
    group_steps(500);
    if (!leader->replica.members[other->id - 1].voter)
        must_change(leader, DLEDGER_MEMBER_PROMOTE, other);
    if (!leader->replica.members[third->id - 1].voter)
        must_change(leader, DLEDGER_MEMBER_PROMOTE, third);
    group_kill(third);
    group_steps(10);
    ck_assert_int_eq(begin_change(leader, DLEDGER_MEMBER_DEMOTE, other), ERROR_BUSY);
    group_must_send(leader, 1);
}
END_TEST

static uint64_t deaf;

static bool without_entries(uint64_t from, uint64_t to, const struct peer_message *message)
{
    (void)from;
    return to != deaf || message->type != PEER_APPEND_ENTRIES || message->count == 0;
}

/* The leader's log gives a member a vote, and the member does not know yet: without its vote nobody could ever lead again. */
START_TEST(test_votes_before_it_knows)
{
    struct group_node *leader, *b, *c;

    group_all_up();
    leader = group_wait_leader(3000);
    b = group_other(leader, NULL);
    c = group_other(leader, b);
    group_must_send(leader, 0);
    must_change(leader, DLEDGER_MEMBER_DEMOTE, b);
    must_change(leader, DLEDGER_MEMBER_DEMOTE, c);
    group_steps(100);
    deaf = b->id;
    group.passes = without_entries;
    ck_assert_int_eq(begin_change(leader, DLEDGER_MEMBER_PROMOTE, b), 0);
    group_steps(20); /* on the leader's disk */
    ck_assert(!b->replica.members[b->id - 1].voter);
    group_kill(leader);
    group_kill(c);
    group.passes = NULL;
    group_up(leader);
    ck_assert_ptr_eq(group_wait_leader(3000), leader);
    group_must_send(leader, 1);
    ck_assert(b->replica.members[b->id - 1].voter);
}
END_TEST

/* The leader has lost the change with which it took a member's vote, and more: that member has the longest log, so it must lead until the others have what it
 * has. It needs the votes of those who keep theirs; its own does not count. */
START_TEST(test_the_longest_log_loses_its_vote)
{
    struct group_node *leader, *b, *c;

    group_all_up();
    leader = group_wait_leader(3000);
    b = group_other(leader, NULL);
    c = group_other(leader, b);
    group_must_send(leader, 0);
    if (_i == 0)
        must_change(leader, DLEDGER_MEMBER_DEMOTE, c);
    group_steps(100);
    leader->no_sync = true;
    group.passes = without_entries;
    deaf = _i == 0 ? 0 : c->id;
    ck_assert_int_eq(begin_change(leader, DLEDGER_MEMBER_DEMOTE, b), 0);
    group_steps(20); /* on the disk of b, and of c where that has no vote */
    ck_assert(!b->replica.members[b->id - 1].voter);
    group_power_cut(leader);
    group.passes = NULL;
    if (_i == 1) { /* of those who keep theirs both are needed */
        group_steps(3000);
        ck_assert_ptr_null(group_leader());
        ck_assert(!raft_driver_leads(&b->replica.driver));
    }
    group_up(leader);
    leader = group_wait_leader(3000);
    group_must_send(leader, 1);
    group_steps(1000);
    leader = group_wait_leader(3000);
    group_must_send(leader, 2);
    group_steps(100);
    if (_i == 0)
        ck_assert(!b->replica.members[b->id - 1].voter && leader != b); /* the change has committed */
    for (int i = 1; i <= GROUP_NODES; i++) {
        ck_assert_int_eq(group.nodes[i].replica.members[b->id - 1].voter, b->replica.members[b->id - 1].voter);
        ck_assert_int_eq(group_messages(&group.nodes[i]), 3);
    }
}
END_TEST

/* L13: a leader whose log was all committed when it was elected has no entry of its own term. Asked for a change at once it refuses, appends a barrier, and
 * makes the change when that has committed, not before: two leaders' changes could else each have a majority that does not meet the other's. */
START_TEST(test_barrier_before_a_change)
{
    struct group_node *leader, *next, *third;
    struct ledger_entry entry = {0};
    struct error error;
    raft_index last, barrier;

    group_all_up();
    leader = group_wait_leader(3000);
    group_must_send(leader, 0);
    group_steps(50); /* all know that it is committed */
    next = group_other(leader, NULL);
    third = group_other(leader, next);
    ck_assert_int_eq(replica_transfer(&leader->replica, name_of(next), &error), 0);
    for (int i = 0; i < 500 && group_leader() != next; i++)
        group_step();
    ck_assert_ptr_eq(group_leader(), next);
    last = raft_driver_last(&next->replica.driver);
    ck_assert_uint_eq(next->replica.driver.commit, last);
    ck_assert_uint_lt(next->replica.ledger.last_term, raft_current_term(&next->replica.driver.raft));
    third->cut = leader->cut = true; /* its barrier cannot commit */
    for (int i = 0; i < 100; i++) {
        int rv = begin_change(next, DLEDGER_MEMBER_DEMOTE, third);
        ck_assert(rv == ERROR_BUSY || rv == ERROR_NOT_LEADER);
        group_step();
    }
    barrier = raft_driver_last(&next->replica.driver);
    ck_assert_uint_gt(barrier, last);
    for (raft_index i = last; i < barrier; i++) {
        ck_assert_ptr_nonnull(ledger_entry(&next->replica.ledger, i, &entry));
        ck_assert_int_eq(entry.kind, LEDGER_ENTRY_BARRIER);
        ck_assert_uint_eq(entry.term, next->replica.ledger.last_term);
    }
    third->cut = leader->cut = false;
    must_change(group_wait_leader(3000), DLEDGER_MEMBER_DEMOTE, third);
    group_steps(500);
    ck_assert(ledger_entry(&third->replica.ledger, request.index, &entry) != NULL && entry.kind == LEDGER_ENTRY_CONFIGURATION);
    ck_assert_uint_eq(ledger_term_of(&third->replica.ledger, request.index - 1), entry.term);
}
END_TEST

static void all_agree(void)
{
    struct group_node *leader;

    group_steps(1500);
    leader = group_wait_leader(5000);
    group_must_send(leader, 0);
    group_steps(500);
    for (int i = 1; i <= GROUP_NODES; i++) {
        const struct replica *replica = &group.nodes[i].replica;
        ck_assert_int_eq(replica->phase, REPLICA_RUNNING);
        ck_assert_uint_eq(replica->ledger.last_chain, leader->replica.ledger.last_chain);
        for (int k = 0; k < GROUP_NODES; k++)
            ck_assert_int_eq(replica->members[k].voter, leader->replica.members[k].voter);
    }
}

/* L16: a member dies inside each call that changes its disk while a vote is taken or given; then all read the same set from their logs. */
START_TEST(test_kill_at_each_step_of_a_change)
{
    bool leader_dies = _i % 2 == 0;
    enum dledger_member_action action = _i / 2 == 0 ? DLEDGER_MEMBER_DEMOTE : DLEDGER_MEMBER_PROMOTE;
    bool hit = true;

    group_all_up();
    for (uint64_t n = 1; hit; n++) {
        struct group_node *leader = group_wait_leader(5000), *subject = group_other(leader, NULL);
        struct group_node *victim = leader_dies ? leader : subject;
        int steps, rv = ERROR_BUSY;

        group_must_send(leader, 0);
        if (leader->replica.members[subject->id - 1].voter != (action == DLEDGER_MEMBER_DEMOTE))
            must_change(leader, action == DLEDGER_MEMBER_DEMOTE ? DLEDGER_MEMBER_PROMOTE : DLEDGER_MEMBER_DEMOTE, subject);
        group_steps(1500); /* checkpoints are written, so that those calls are the change's */
        leader = group_wait_leader(3000);
        if (leader != (leader_dies ? victim : leader))
            continue;
        victim->may_fail = true;
        sim_env_kill_at(&victim->sim, SIM_CHANGES, n);
        for (steps = 0; steps < 200 && rv == ERROR_BUSY && !victim->sim.dead; steps++) {
            rv = begin_change(leader, action, subject);
            group_step();
        }
        for (steps = 0; steps < 1200 && !victim->sim.dead; steps++)
            group_step();
        hit = victim->sim.dead && n < 12;
        if (n % 2 == 0)
            group_power_cut(victim);
        else
            group_kill(victim);
        victim->may_fail = false;
        group_up(victim);
        all_agree();
    }
}
END_TEST

#define L14_SENDS 4000
static struct group_send sends[L14_SENDS];
static struct append_entry_request change_requests[12000 / 50 + 1]; /* the log of a member that was killed keeps them */

/* L14: votes are taken and given, leadership is handed over, members are cut off, killed, lose power, all by chance and under load: nothing that was
 * acknowledged is missing or elsewhere. */
START_TEST(test_chance_of_changes_loses_nothing)
{
    struct sim_env *chance = &group.nodes[1].sim;
    int count = 0, acknowledged = 0, changes = 0;

    memset(sends, 0, sizeof sends);
    group_all_up();
    group_wait_leader(3000);
    for (int i = 0; i < _i * 7; i++)
        sim_env_chance(chance, 2); /* another course each time */
    for (int step = 0; step < 12000; step++) {
        struct group_node *node = &group.nodes[1 + sim_env_chance(chance, GROUP_NODES)], *leader = group_leader();
        struct error error;
        if (leader != NULL && count < L14_SENDS && step % 4 == 0 && group_send(leader, &sends[count], count) == 0)
            count++;
        switch (sim_env_chance(chance, 1000)) {
        case 0:
            if (node->up && group_other(node, NULL) != NULL && group_other(node, group_other(node, NULL)) != NULL)
                group_kill(node);
            break;
        case 1:
            if (node->up && group_other(node, NULL) != NULL && group_other(node, group_other(node, NULL)) != NULL)
                group_power_cut(node);
            break;
        case 2:
        case 3:
            node->cut = !node->cut;
            break;
        case 4:
        case 5:
        case 6:
        case 7:
        case 8:
            if (node->up)
                node->cut = false;
            else
                group_up(node);
            break;
        case 9:
            if (leader != NULL)
                (void)replica_transfer(&leader->replica, NULL, &error);
            break;
        default:
            if (leader != NULL && step % 50 == 0) {
                bool votes = leader->replica.members[node->id - 1].voter;
                change_requests[changes] = (struct append_entry_request){.done = on_done};
                changes += replica_change_member(&leader->replica, votes ? DLEDGER_MEMBER_DEMOTE : DLEDGER_MEMBER_PROMOTE, name_of(node), "",
                                                 &change_requests[changes], &error) == 0;
            }
            break;
        }
        group_step();
    }
    for (int i = 1; i <= GROUP_NODES; i++) {
        group.nodes[i].cut = false;
        if (!group.nodes[i].up)
            group_up(&group.nodes[i]);
    }
    all_agree();
    for (int i = 0; i < count; i++) {
        char text[32];
        struct ledger_entry entry;
        if (!sends[i].done || sends[i].request.code != 0)
            continue;
        acknowledged++;
        const uint8_t *bytes = ledger_entry(&group_leader()->replica.ledger, sends[i].request.index, &entry);
        ck_assert_ptr_nonnull(bytes);
        snprintf(text, sizeof text, "message %d", i);
        ck_assert_msg(memmem(bytes, ledger_entry_size(&entry), text, strlen(text)) != NULL, "%s was acknowledged and is not at index %llu", text,
                      (unsigned long long)sends[i].request.index);
    }
    ck_assert_int_gt(acknowledged, 200);
    ck_assert_int_gt(changes, 5);
}
END_TEST

/* ---- one that fills its log ---- */

static uint64_t filled; /* gets no more than one run */
static int runs;

static bool one_run(uint64_t from, uint64_t to, const struct peer_message *message)
{
    (void)from;
    return to != filled || message->type != PEER_FETCH_RESULT || message->count == 0 || runs++ == 0;
}

/* A log that one run does not hold, and a configuration early in it. */
static raft_index long_log(struct group_node *leader, struct group_node *joins)
{
    raft_index changed;

    group_must_send(leader, 0);
    must_change(leader, DLEDGER_MEMBER_DEMOTE, joins);
    changed = request.index + 1; /* as Raft counts */
    for (uint32_t i = 1; i <= REPLICA_SUBMIT_MAX + 100; i++) {
        ck_assert_int_eq(group_send(leader, NULL, (int)i), 0);
        if (i % 100 == 0)
            group_step();
    }
    group_must_send(leader, 0);
    group_steps(1500); /* what is committed is in checkpoints */
    return changed;
}

/* What a member says whose newest committed configuration is at index, with itself in it and nobody else. */
static void hear_sole(struct group_node *from, struct group_node *to, raft_index index)
{
    struct peer_hello hello;
    struct buffer sole;

    replica_hello(&from->replica, to->id, &hello);
    buffer_init(&sole, sizeof hello.configuration);
    ck_assert_int_eq(replica_sole_configuration(&from->replica, &sole), 0);
    memcpy(hello.configuration, sole.data, sole.size);
    hello.configuration_size = (uint32_t)sole.size;
    hello.configuration_index = index;
    buffer_close(&sole);
    replica_hear_configuration(&to->replica, &hello);
}

static void told_of(struct group_node *leader, struct group_node *joins, raft_index index)
{
    struct peer_hello hello;

    replica_hello(&leader->replica, joins->id, &hello);
    hello.configuration_index = index;
    replica_hear_configuration(&joins->replica, &hello);
}

/* Emptied, and told that it became a member at this index. It gets one run of entries, if it has had none. */
static void begin_to_fill(struct group_node *leader, struct group_node *joins, int had, raft_index index)
{
    group_kill(joins);
    group_wipe(joins);
    filled = joins->id;
    runs = had;
    group.passes = one_run;
    group_up(joins);
    told_of(leader, joins, index);
}

static void fills_up(struct group_node *joins)
{
    group.passes = NULL;
    for (int i = 0; i < 3000 && joins->replica.phase == REPLICA_MUTE; i++)
        group_step();
    ck_assert_int_eq(joins->replica.phase, REPLICA_RUNNING);
}

/* A member that has just started knows less to be committed than the one that told a joining node of its group: its word does not mean that the node was removed
 * meanwhile. A later configuration does. */
START_TEST(test_a_late_word_removes_nobody)
{
    struct group_node *leader, *joins;
    raft_index changed;

    group_all_up();
    leader = group_wait_leader(3000);
    joins = group_other(leader, NULL);
    changed = long_log(leader, joins);
    begin_to_fill(leader, joins, 0, leader->replica.driver.raft.configuration_committed_index);
    group_steps(200);
    ck_assert_int_eq(joins->replica.phase, REPLICA_MUTE);
    ck_assert_uint_gt(raft_driver_last(&joins->replica.driver), 1000);
    ck_assert_uint_lt(raft_driver_last(&joins->replica.driver), raft_driver_last(&leader->replica.driver));
    hear_sole(leader, joins, changed - 1);
    ck_assert_int_eq(joins->replica.phase, REPLICA_MUTE);
    fills_up(joins);
    hear_sole(leader, joins, changed - 1);
    ck_assert_int_eq(joins->replica.phase, REPLICA_RUNNING);
    hear_sole(leader, joins, changed + 1);
    ck_assert_int_eq(joins->replica.phase, REPLICA_REMOVED);
}
END_TEST

static bool no_results(uint64_t from, uint64_t to, const struct peer_message *message)
{
    (void)from;
    return to != filled || message->type != PEER_FETCH_RESULT;
}

/* Killed with a log that ends with the change that made it a member, and does not say that this is committed. */
START_TEST(test_a_late_word_after_a_restart)
{
    struct group_node *leader, *joins;
    raft_index changed;

    group_all_up();
    leader = group_wait_leader(3000);
    joins = group_other(leader, NULL);
    group_must_send(leader, 0);
    must_change(leader, DLEDGER_MEMBER_DEMOTE, joins);
    changed = request.index + 1;
    group_steps(1500);
    group_kill(joins);
    group_wipe(joins);
    group_up(joins);
    told_of(leader, joins, changed + 100); /* does not begin before it has that */
    group_steps(200);
    ck_assert_uint_eq(raft_driver_last(&joins->replica.driver), changed);
    filled = joins->id;
    group.passes = no_results;
    group_kill(joins);
    group_up(joins);
    group_steps(100);
    ck_assert_int_eq(joins->replica.phase, REPLICA_MUTE);
    ck_assert_uint_lt(joins->replica.configuration_index, changed);
    hear_sole(leader, joins, changed - 1);
    ck_assert_int_eq(joins->replica.phase, REPLICA_MUTE);
    fills_up(joins);
}
END_TEST

/* Who leads without knowing that it has a successor may not have the change that made a node a member: the node would take that log for one it was removed from. */
START_TEST(test_fills_up_to_what_it_was_told)
{
    struct group_node *leader, *joins;
    raft_index told;

    group_all_up();
    leader = group_wait_leader(3000);
    joins = group_other(leader, NULL);
    long_log(leader, joins);
    told = raft_driver_last(&leader->replica.driver) + 20;
    begin_to_fill(leader, joins, 1, told);
    group.passes = NULL;
    group_steps(1000);
    ck_assert_int_eq(joins->replica.phase, REPLICA_MUTE);
    ck_assert_uint_eq(raft_driver_last(&joins->replica.driver), raft_driver_last(&leader->replica.driver));
    while (raft_driver_last(&leader->replica.driver) < told)
        group_must_send(leader, 1);
    fills_up(joins);
}
END_TEST

/* Back without its vote file and its checkpoint: nothing tells what else it lost. */
static void up_without_memory(struct group_node *node)
{
    ck_assert_int_eq(node->sim.env.ops->unlink(&node->sim.env, group_file(node, "vote")), 0);
    ck_assert_int_eq(node->sim.env.ops->unlink(&node->sim.env, group_file(node, "checkpoint")), 0);
    group_up(node);
    ck_assert_int_eq(node->replica.phase, REPLICA_MUTE);
}

/* Its log says that one member has no vote, and meanwhile that one got it. As its log has it too few run to elect a leader; but there is one, and it need not be
 * asked for what it would give if there were none. */
START_TEST(test_mute_with_voters_of_yesterday)
{
    struct group_node *leader, *mute, *third;

    group_all_up();
    leader = group_wait_leader(3000);
    mute = group_other(leader, NULL);
    third = group_other(leader, mute);
    group_must_send(leader, 0);
    must_change(leader, DLEDGER_MEMBER_DEMOTE, third);
    group_steps(100);
    group_kill(mute);
    must_change(leader, DLEDGER_MEMBER_PROMOTE, third);
    group_must_send(leader, 1);
    up_without_memory(mute);
    ck_assert(mute->replica.members[third->id - 1].voter);
    ck_assert_uint_eq(replica_leaderless(&mute->replica), 0);
    fills_up(mute);
}
END_TEST

/* ... and it is a change that was never committed, so that no hello tells of a newer one. */
START_TEST(test_mute_with_a_change_that_was_cut)
{
    struct group_node *mute, *leader, *third;
    int rv = ERROR_BUSY;

    group_all_up();
    mute = group_wait_leader(3000);
    third = group_other(mute, NULL);
    for (int i = 0; i < 200 && rv == ERROR_BUSY; i++) {
        group_must_send(mute, i);
        mute->cut = true;
        rv = begin_change(mute, DLEDGER_MEMBER_DEMOTE, third);
        mute->cut = rv == 0;
    }
    ck_assert_int_eq(rv, 0);
    group_steps(20); /* on its disk */
    group_kill(mute);
    mute->cut = false;
    leader = group_wait_leader(3000);
    group_must_send(leader, 300);
    up_without_memory(mute);
    fills_up(mute);
    ck_assert(mute->replica.members[third->id - 1].voter);
}
END_TEST

/* What `from` says, with this configuration: ids by number, NULL = nobody. */
static void hear_of(struct group_node *from, struct group_node *to, raft_index index, const char *const ids[DLEDGER_MEMBERS_MAX])
{
    struct raft_configuration configuration;
    struct raft_buffer encoded;
    struct peer_hello hello;

    raft_configuration_init(&configuration);
    for (int i = 0; i < DLEDGER_MEMBERS_MAX; i++) {
        char address[32];
        snprintf(address, sizeof address, "%s-h:%d", ids[i], i);
        if (ids[i] != NULL)
            ck_assert_int_eq(raft_configuration_add(&configuration, (raft_id)i + 1, address, RAFT_VOTER), 0);
    }
    ck_assert_int_eq(raft_configuration_encode(&configuration, &encoded), 0);
    raft_configuration_close(&configuration);
    replica_hello(&from->replica, to->id, &hello);
    memcpy(hello.configuration, encoded.base, encoded.len);
    hello.configuration_size = (uint32_t)encoded.len;
    hello.configuration_index = index;
    raft_free(encoded.base);
    replica_hear_configuration(&to->replica, &hello);
}

/* NULL: it is let in, as that member. */
static const char *greet(struct group_node *to, struct group_node *like, const char *id, uint64_t from, uint64_t its_number)
{
    struct peer_hello hello;

    replica_hello(&like->replica, to->replica.id, &hello);
    snprintf(hello.self_id, sizeof hello.self_id, "%s", id);
    hello.from = from;
    const char *why = replica_check_hello(&to->replica, &hello);
    ck_assert(why != NULL || hello.from == its_number);
    return why;
}

/* A member that was away knows neither who came meanwhile nor who left and came again under another number. One of these leads, and only it can send the entries
 * that say so. */
START_TEST(test_lets_in_who_came_meanwhile)
{
    struct group_node *leader, *lags;

    group_all_up();
    leader = group_wait_leader(3000);
    lags = group_other(leader, NULL);
    group_must_send(leader, 0);
    lags->cut = true; /* its log stays as it is */
    const char *again = group_other(leader, lags)->replica.options.self_id;
    uint64_t old_number = group_other(leader, lags)->id;
    const char *ids[DLEDGER_MEMBERS_MAX] = {NULL};
    ids[leader->id - 1] = name_of(leader);
    ids[lags->id - 1] = name_of(lags);
    ids[3] = "n7";
    ids[4] = again;
    ck_assert_ptr_nonnull(greet(lags, leader, "n7", 4, 0));
    ck_assert_ptr_nonnull(greet(lags, leader, again, 5, 0));
    hear_of(leader, lags, 1000, ids);
    ck_assert_ptr_null(greet(lags, leader, "n7", 4, 4));
    ck_assert_ptr_null(greet(lags, leader, again, 5, 5));
    ck_assert_ptr_nonnull(greet(lags, leader, again, old_number, 0));
    /* An older word changes nothing, and what votes count is for its own log to say. */
    ids[3] = NULL;
    hear_of(leader, lags, 999, ids);
    ck_assert_ptr_null(greet(lags, leader, "n7", 4, 4));
    ck_assert(!raft_driver_is_voter(&lags->replica.driver, 4) && raft_driver_is_voter(&lags->replica.driver, old_number));
}
END_TEST

/* The only one that votes added a node and lost its vote file before it could say so. Mute it waits for that node, which lets nobody in as long as it does not know
 * that it is a member: it hears that from the mute one, too. */
START_TEST(test_joiner_hears_from_a_mute_member)
{
    struct group_node *leader, *joins, *other;
    const char *ids[DLEDGER_MEMBERS_MAX] = {NULL};
    struct peer_hello hello;
    raft_index changed;

    group_all_up();
    leader = group_wait_leader(3000);
    joins = group_other(leader, NULL);
    other = group_other(leader, joins);
    must_change(leader, DLEDGER_MEMBER_DEMOTE, joins);
    must_change(leader, DLEDGER_MEMBER_DEMOTE, other);
    group_must_send(leader, 0);
    group_steps(1500); /* a checkpoint knows the change */
    changed = leader->replica.driver.raft.configuration_committed_index;
    group_kill(joins);
    group_wipe(joins);
    group_part(joins, leader);
    group_part(joins, other);
    group_up(joins);
    ids[leader->id - 1] = name_of(leader);
    ids[other->id - 1] = name_of(other);
    hear_of(leader, joins, changed - 1, ids);
    ck_assert_ptr_nonnull(greet(joins, leader, name_of(leader), leader->id, leader->id));
    group_kill(leader);
    sim_env_remove(&leader->sim, group_file(leader, "vote"));
    group_up(leader);
    group_steps(100);
    ck_assert_int_eq(leader->replica.phase, REPLICA_MUTE);

    /* That it is none it would have to hear from somebody who runs. */
    ids[joins->id - 1] = name_of(joins);
    hear_of(leader, joins, changed - 2, ids); /* older */
    ck_assert_ptr_nonnull(greet(joins, leader, name_of(leader), leader->id, leader->id));
    replica_hello(&leader->replica, joins->id, &hello);
    ck_assert(!hello.started);
    replica_hear_configuration(&joins->replica, &hello);
    ck_assert_ptr_null(greet(joins, leader, name_of(leader), leader->id, leader->id));
    ids[joins->id - 1] = NULL;
    hear_of(leader, joins, changed + 1, ids);
    ck_assert_ptr_null(greet(joins, leader, name_of(leader), leader->id, leader->id));
    hear_of(leader, other, changed + 1, ids); /* who runs hears nothing from it at all */
    ck_assert_uint_eq(other->replica.told_index, 0);

    group_join(joins, other);
    group_join(joins, leader);
    ck_assert_ptr_eq(group_wait_leader(3000), leader);
    group_must_send(leader, 1);
    group_steps(500);
    ck_assert_int_eq(group_messages(joins), 2);
}
END_TEST

static bool one_is_away(uint64_t from, uint64_t to, const struct peer_message *message)
{
    (void)message;
    return from != filled && to != filled;
}

/* A new leader has heard nothing of a member but its hello, and knows not what it holds. */
START_TEST(test_no_vote_before_an_answer)
{
    struct group_node *leader, *waits;

    group_all_up();
    leader = group_wait_leader(3000);
    waits = group_other(leader, NULL);
    must_change(leader, DLEDGER_MEMBER_DEMOTE, waits);
    group_steps(100);
    filled = waits->id;
    group.passes = one_is_away;
    group_kill(leader);
    group_up(leader);
    leader = group_wait_leader(3000);
    group_must_send(leader, 0);
    group_steps(500);
    ck_assert(leader->replica.peers[waits->id - 1].connected);
    for (int i = 0; i < 20; i++) {
        ck_assert_int_eq(begin_change(leader, DLEDGER_MEMBER_PROMOTE, waits), ERROR_BUSY);
        group_step();
    }
    group.passes = NULL;
    must_change(leader, DLEDGER_MEMBER_PROMOTE, waits);
}
END_TEST

/* A directory of the time before its member was removed and added again under another number: an old copy that was put back, or one that nobody moved away. Who
 * has the old number now is somebody else. */
START_TEST(test_directory_of_an_earlier_membership)
{
    struct group_node *leader, *old;
    const char *ids[DLEDGER_MEMBERS_MAX] = {NULL};

    group_all_up();
    leader = group_wait_leader(3000);
    old = group_other(leader, NULL);
    group_must_send(leader, 0);
    group_steps(100);
    for (int i = 1; i <= GROUP_NODES; i++)
        ids[i - 1] = name_of(&group.nodes[i]);
    ids[old->id - 1] = "n7";
    ids[3] = name_of(old);
    old->no_restart = true;
    hear_of(leader, old, 1, ids); /* older than its own log */
    ck_assert(!old->replica.restart_wanted);
    hear_of(leader, old, 1000, ids);
    ck_assert(old->replica.restart_wanted);
    ck_assert(old->replica.driver.failed);
    group_kill(old);
    group_up(old);
    ck_assert_int_eq(old->replica.phase, REPLICA_MUTE);
    ck_assert_int_eq(old->replica.mute_reason, PEER_MUTE_EMPTY);
    hear_of(leader, old, 1000, ids);
    ck_assert_uint_eq(old->replica.id, 4);
    ck_assert_ptr_null(greet(old, leader, "n7", old->id, old->id));
}
END_TEST

/* Its log ends with the change that removes it, as one that was fetched can, and no leader sends it anything any more: that this is committed it hears from
 * others' hellos alone. */
START_TEST(test_removed_by_its_last_entry)
{
    struct peer_message append = {.type = PEER_APPEND_ENTRIES};
    struct group_node *leader, *goes, *third;
    const char *ids[DLEDGER_MEMBERS_MAX] = {NULL};
    const uint8_t *run;
    size_t size;

    group_all_up();
    leader = group_wait_leader(3000);
    goes = group_other(leader, NULL);
    third = group_other(leader, goes);
    must_change(leader, DLEDGER_MEMBER_DEMOTE, goes);
    group_steps(100);
    group_part(goes, leader);
    group_part(goes, third);
    must_change(leader, DLEDGER_MEMBER_REMOVE, goes);
    raft_index last = raft_driver_last(&goes->replica.driver), removed = request.index + 1;
    ck_assert_uint_eq(removed, last + 1);
    append.count = ledger_run(&leader->replica.ledger, last, 1, PEER_RUN_MAX, &run, &size);
    ck_assert_uint_eq(append.count, 1);
    append.body_size = (uint32_t)size;
    append.append.term = leader->replica.votes.term;
    append.append.previous_index = append.append.commit = last;
    append.append.previous_term = goes->replica.ledger.last_term;
    replica_receive(&goes->replica, leader->id, &append, run);
    group_steps(20);
    ck_assert_uint_eq(goes->replica.driver.raft.configuration_uncommitted_index, removed);
    ck_assert_int_eq(goes->replica.phase, REPLICA_RUNNING);

    ids[leader->id - 1] = name_of(leader);
    ids[third->id - 1] = name_of(third);
    hear_of(leader, goes, removed - 1, ids); /* what is no newer than our own log's changes nothing */
    ck_assert_int_eq(goes->replica.phase, REPLICA_RUNNING);
    hear_of(leader, goes, removed, ids);
    ck_assert_int_eq(goes->replica.phase, REPLICA_REMOVED);
}
END_TEST

/* Empty nodes agree on a first start only if each of them counts all: one that answers so as to say who does not belong does not. */
START_TEST(test_no_first_start_with_who_does_not_know_us)
{
    struct replica *replica = &group.nodes[1].replica;
    struct peer_hello hello;

    group_up(&group.nodes[1]);
    for (uint64_t to = 0; to <= 1; to++) {
        for (uint64_t from = 2; from <= GROUP_NODES; from++) {
            replica_hello(replica, from, &hello);
            hello.from = from;
            hello.to = to;
            snprintf(hello.self_id, sizeof hello.self_id, "n%d", (int)from - 1);
            ck_assert_ptr_null(replica_check_hello(replica, &hello));
            replica_peer_connected(replica, from, &hello);
            ck_assert_int_eq(replica->phase, to == 1 && from == GROUP_NODES ? REPLICA_RUNNING : REPLICA_WAITING);
        }
    }
}
END_TEST

/* A member that gets a vote forgets before the change is committed: its vote file is gone before it heard of the change (0) or after it (1), its log as well (2), or
 * nothing tells how it went down (3). The only one that votes needs it now, and what is committed does not say so. */
START_TEST(test_forgets_while_it_gets_a_vote)
{
    struct group_node *leader, *other, *gets;

    group_all_up();
    leader = group_wait_leader(3000);
    gets = group_other(leader, NULL);
    other = group_other(leader, gets);
    must_change(leader, DLEDGER_MEMBER_DEMOTE, gets);
    must_change(leader, DLEDGER_MEMBER_DEMOTE, other);
    group_must_send(leader, 0);
    group_steps(1500); /* a checkpoint of all */
    gets->no_sync = true;
    ck_assert_int_eq(begin_change(leader, DLEDGER_MEMBER_PROMOTE, gets), 0);
    if (_i == 1 || _i == 2)
        group_steps(20);
    ck_assert_int_eq(gets->replica.driver.raft.configuration_uncommitted_index != 0, _i == 1 || _i == 2);
    gets->cut = true; /* what it says of that sync is lost with it */
    group_kill(gets);
    gets->cut = false;
    if (_i == 2)
        group_wipe(gets);
    else
        sim_env_remove(&gets->sim, group_file(gets, _i == 3 ? "checkpoint" : "vote"));
    group_steps(1000);
    ck_assert(!raft_driver_leads(&leader->replica.driver));
    group_part(gets, other);
    group_up(gets);
    group_steps(1000);
    ck_assert_int_eq(gets->replica.phase, REPLICA_MUTE); /* the other one may know more */
    group_join(gets, other);
    leader = group_wait_leader(3000);
    group_must_send(leader, 1);
    group_steps(200);
    for (int i = 1; i <= GROUP_NODES; i++) {
        ck_assert_int_eq(group_messages(&group.nodes[i]), 2);
        ck_assert_int_eq(group.nodes[i].replica.phase, REPLICA_RUNNING);
    }
    ck_assert(raft_driver_is_voter(&leader->replica.driver, gets->id));
}
END_TEST

/* By what is committed it has no vote, but it had got one, had led with it, and is empty now. A leader that has been succeeded and does not know does not give it the
 * vote that it gave already: both leaders would have a majority. */
START_TEST(test_had_a_vote_before_it_was_committed)
{
    struct group_node *old, *third, *led;

    group_all_up();
    old = group_wait_leader(3000);
    led = group_other(old, NULL);
    third = group_other(old, led);
    must_change(old, DLEDGER_MEMBER_DEMOTE, led);
    group_must_send(old, 0);
    group_steps(100);
    third->cut = true;
    led->no_sync = true;
    ck_assert_int_eq(begin_change(old, DLEDGER_MEMBER_PROMOTE, led), 0);
    group_steps(5);
    ck_assert_uint_ne(led->replica.driver.raft.configuration_uncommitted_index, 0);
    old->stall_until_us = UINT64_MAX;
    old->cut = true;
    led->no_sync = third->cut = false;
    for (int i = 0; i < 3000 && !led->replica.accepting; i++)
        group_step();
    ck_assert(led->replica.accepting);
    group_must_send(led, 1);
    group_kill(led);
    group_wipe(led);
    group_part(third, led);
    group_part(third, old);
    old->stall_until_us = 0;
    old->cut = false;
    ck_assert(raft_driver_leads(&old->replica.driver));
    group_up(led);
    group_steps(1000);
    ck_assert_int_eq(led->replica.phase, REPLICA_MUTE);
    ck_assert_uint_ne(old->replica.driver.raft.configuration_uncommitted_index, 0);
    group_join(third, led);
    group_join(third, old);
    group_must_send(group_wait_leader(3000), 2);
    group_steps(500);
    for (int i = 1; i <= GROUP_NODES; i++)
        ck_assert_int_eq(group_messages(&group.nodes[i]), 3);
}
END_TEST

static uint64_t stands, agrees, silent; /* one asks for votes, one gives his, one hears only whether he would */

static bool one_candidate(uint64_t from, uint64_t to, const struct peer_message *message)
{
    return message->type != PEER_REQUEST_VOTE || (from == stands && (to != silent || (message->flags & PEER_VOTE_PRE) != 0));
}

static uint64_t late_votes(uint64_t from, uint64_t to)
{
    return from == agrees && to == stands ? 3000 : 0;
}

/* Behind with applying, a member does not know that it lost its vote for good, though it knows the commit index. It stands for election, and before the votes
 * arrive it has applied the change: its table of votes is one of four, and there are three. One vote is no majority of these. */
START_TEST(test_applies_the_loss_of_its_vote_as_a_candidate)
{
    struct group_node *leader, *loses = &group.nodes[1];
    struct error error;

    group.size = 5;
    group_all_up();
    leader = group_wait_leader(3000);
    group_must_send(leader, 0);
    if (leader == loses) {
        for (int i = 0; i < 500 && replica_transfer(&leader->replica, name_of(&group.nodes[2]), &error) == ERROR_BUSY; i++)
            group_step();
        for (int i = 0; i < 500 && group_leader() != &group.nodes[2]; i++)
            group_step();
        leader = group_wait_leader(3000);
    }
    ck_assert_ptr_ne(leader, loses);
    must_change(leader, DLEDGER_MEMBER_DEMOTE, &group.nodes[leader->id == 5 ? 4 : 5]);
    group_steps(100);
    ck_assert_int_eq(begin_change(leader, DLEDGER_MEMBER_DEMOTE, loses), 0);
    struct raft_driver *driver = &loses->replica.driver;
    for (int i = 0; i < 100 && (driver->raft.configuration_uncommitted_index == 0 || driver->raft.last_stored < raft_driver_last(driver)); i++)
        group_step();
    raft_index changed = driver->raft.configuration_uncommitted_index;
    ck_assert(changed != 0 && driver->commit < changed);
    loses->no_turn = true;
    for (int i = 0; i < 200 && driver->commit < changed; i++)
        group_step();
    ck_assert_uint_ge(driver->commit, changed);
    ck_assert_uint_lt(loses->replica.applied, changed);

    stands = loses->id;
    agrees = leader->id == 4 || !leader->replica.members[3].voter ? 3 : 4;
    for (silent = 2; silent == leader->id; silent++)
        ;
    ck_assert_uint_ne(agrees, silent);
    group.passes = one_candidate;
    group.latency_us = late_votes;
    group_kill(leader);
    for (int i = 0; i < 2000 && !raft_driver_stands(driver); i++)
        group_step();
    loses->no_turn = false;
    for (int i = 0; i < 2000; i++) {
        group_step();
        ck_assert(!raft_driver_leads(driver));
    }
    ck_assert_uint_ge(loses->replica.applied, changed);
    group.passes = NULL;
    group.latency_us = NULL;
    group_up(leader);
    group_must_send(group_wait_leader(3000), 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("replica_membership");
    TCase *tcase = tcase_create("replica_membership");

    tcase_add_checked_fixture(tcase, group_set_up, group_tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, test_votes_go_and_come);
    tcase_add_test(tcase, test_refusals);
    tcase_add_test(tcase, test_votes_before_it_knows);
    tcase_add_loop_test(tcase, test_the_longest_log_loses_its_vote, 0, 2);
    tcase_add_test(tcase, test_barrier_before_a_change);
    tcase_add_test(tcase, test_a_late_word_removes_nobody);
    tcase_add_test(tcase, test_a_late_word_after_a_restart);
    tcase_add_test(tcase, test_fills_up_to_what_it_was_told);
    tcase_add_test(tcase, test_mute_with_voters_of_yesterday);
    tcase_add_test(tcase, test_mute_with_a_change_that_was_cut);
    tcase_add_loop_test(tcase, test_forgets_while_it_gets_a_vote, 0, 4);
    tcase_add_test(tcase, test_had_a_vote_before_it_was_committed);
    tcase_add_test(tcase, test_applies_the_loss_of_its_vote_as_a_candidate);
    tcase_add_test(tcase, test_lets_in_who_came_meanwhile);
    tcase_add_test(tcase, test_joiner_hears_from_a_mute_member);
    tcase_add_test(tcase, test_directory_of_an_earlier_membership);
    tcase_add_test(tcase, test_no_vote_before_an_answer);
    tcase_add_test(tcase, test_removed_by_its_last_entry);
    tcase_add_test(tcase, test_no_first_start_with_who_does_not_know_us);
    tcase_add_loop_test(tcase, test_kill_at_each_step_of_a_change, 0, 4);
    tcase_add_loop_test(tcase, test_chance_of_changes_loses_nothing, 0, 10);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
