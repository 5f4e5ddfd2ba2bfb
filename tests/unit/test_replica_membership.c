/* Members that lose and get votes, change by change. */
#include <check.h>

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

int main(void)
{
    Suite *suite = suite_create("replica_membership");
    TCase *tcase = tcase_create("replica_membership");

    tcase_add_checked_fixture(tcase, group_set_up, group_tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, test_votes_go_and_come);
    tcase_add_test(tcase, test_refusals);
    tcase_add_test(tcase, test_votes_before_it_knows);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
