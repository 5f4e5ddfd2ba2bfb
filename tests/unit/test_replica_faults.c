/* Faults of which the simulator found that a replica answered them wrongly, each in the smallest group that shows it. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>

#include "dledger/replica_internal.h"
#include "tests/lib/replica_group.h"
#include "tests/lib/run_suite.h"

static struct group_node *start_group(enum durability_class durability)
{
    struct group_node *leader;
    group.durability = durability;
    group_all_up();
    leader = group_wait_leader(2000);
    group_steps(20);
    return leader;
}

/* Kills the leader and starts it again: a later term. */
static struct group_node *next_leader(struct group_node *old)
{
    struct group_node *leader;
    group_kill(old);
    leader = group_wait_leader(3000);
    group_up(old);
    group_steps(200);
    ck_assert_ptr_eq(group_leader(), leader);
    return leader;
}

static raft_term term_of(struct group_node *node)
{
    return raft_current_term(&node->replica.driver.raft);
}

static void expect_equal_logs(void)
{
    for (int i = 2; i <= group.size; i++) {
        ck_assert_int_eq(group.nodes[i].replica.ledger.last_index, group.nodes[1].replica.ledger.last_index);
        ck_assert_uint_eq(group.nodes[i].replica.ledger.last_chain, group.nodes[1].replica.ledger.last_chain);
    }
}

static void expect_nobody_leads(int steps)
{
    for (int i = 0; i < steps; i++) {
        group_step();
        ck_assert_ptr_null(group_leader());
    }
}

/* Takes the last entries off the log of a member that is down, as a disk does that lies about its syncs. */
static void lose_entries(struct group_node *node, uint64_t count)
{
    struct checkpoint none = {.committed_index = -1, .snapshot_index = -1};
    struct ledger_recovery recovery;
    struct ledger ledger;
    struct error error = {0};

    ck_assert_msg(ledger_open(&ledger, &node->sim.env, group_dir(node), GROUP_SEGMENT, 1u << 20, false, &none, true, NULL, &recovery, &error) == 0, "%s", error.message);
    ck_assert_int_eq(ledger_truncate(&ledger, (uint64_t)ledger.last_index + 1 - count), 0);
    ledger_close(&ledger);
}

/* What a member has on its disk is known to the leader also when it says so last of all, with nothing to come behind it: an old copy of that disk is
 * recognised by it. */
START_TEST(test_slow_member_is_known_as_well)
{
    struct group_node *leader = start_group(DURABILITY_B);
    struct group_node *node = group_other(leader, NULL);

    group_must_send(leader, 0);
    node->no_sync = true;
    for (int i = 1; i < 4; i++)
        group_must_send(leader, i);
    group_steps(100);
    raft_index last = raft_driver_last(&leader->replica.driver);
    ck_assert_uint_eq(leader->replica.driver.commit, last);
    ck_assert_uint_eq(leader->replica.applied, last);
    ck_assert_uint_lt(leader->replica.peers[node->id - 1].seen_index, last);
    node->no_sync = false;
    group_steps(100);
    ck_assert_uint_eq(raft_driver_last(&leader->replica.driver), last);
    ck_assert_uint_eq(leader->replica.peers[node->id - 1].seen_index, last);
}
END_TEST

/* Somebody said in the name of a running member that it has a higher term. That does not make an old copy of the directory that it runs on, neither when it
 * connects again nor, once it did, after its next start. */
START_TEST(test_running_member_is_no_old_copy)
{
    struct group_node *leader = start_group(DURABILITY_B);
    struct group_node *node = group_other(leader, NULL), *third = group_other(leader, node);
    struct peer_hello hello;

    group_must_send(leader, 0);
    replica_hello(&node->replica, third->id, &hello);
    replica_peer_lost(&third->replica, node->id);
    hello.term += 1000;
    replica_peer_connected(&third->replica, node->id, &hello);
    ck_assert_uint_eq(third->replica.peers[node->id - 1].seen_term, hello.term);
    replica_peer_lost(&third->replica, node->id);
    group_join(node, third);
    group_steps(100);
    ck_assert_int_eq(node->restarts, 0);
    ck_assert_int_eq(node->replica.phase, REPLICA_RUNNING);
    group_kill(node);
    group_up(node);
    group_steps(100);
    ck_assert_int_eq(node->restarts, 0);
    ck_assert_int_eq(node->replica.phase, REPLICA_RUNNING);
}
END_TEST

/* Told that its directory is an old copy, a member begins anew without its vote file, and knows then that it is not only the vote that it forgot: also when a
 * checkpoint was being saved just then, or none can be. */
START_TEST(test_old_copy_knows_that_it_is_one)
{
    struct group_node *node = group_other(start_group(DURABILITY_B), NULL), *third = group_other(group_leader(), node);
    struct peer_message message = {.type = PEER_FORGOT};

    for (int i = 0; i < 5; i++)
        group_must_send(group_leader(), i);
    group_steps(1500);
    message.forgot.term = node->replica.votes.term + 1000;
    node->no_restart = true;
    if (_i == 1)
        replica_start_save(&node->replica, false);
    if (_i == 2)
        sim_env_fail_at(&node->sim, SIM_OPEN, 1, EIO, true);
    replica_told_forgot(&node->replica, third->id, &message);
    ck_assert_int_eq(node->replica.restart_wanted, _i == 0);
    ck_assert_int_eq(sim_env_exists(&node->sim, group_file(node, "vote")), _i != 0);
    group_steps(100);
    ck_assert_int_eq(node->replica.phase, REPLICA_RUNNING);
    node->sim.fault.calls = 0;
    group_steps(300);
    ck_assert(node->replica.restart_wanted);
    ck_assert(!sim_env_exists(&node->sim, group_file(node, "vote")));
    group_kill(node);
    node->cut = true;
    group_up(node);
    ck_assert_int_eq(node->replica.phase, REPLICA_MUTE);
    ck_assert(node->replica.checkpoint.forgot && !node->replica.only_vote_lost);
    group_kill(node);
    node->cut = false;
    group_up(node);
    group_steps(1000);
    ck_assert_int_eq(node->replica.phase, REPLICA_RUNNING);
    group_must_send(group_leader(), 5);
    group_steps(100);
    expect_equal_logs();
}
END_TEST

/* Class A: a power cut took its log's end, and its vote file is gone as well. Killed before a leader has caught it up, it still knows of both. */
START_TEST(test_killed_after_power_cut_and_lost_vote)
{
    struct group_node *node = group_other(start_group(DURABILITY_A), NULL);

    for (int i = 0; i < 5; i++)
        group_must_send(group_leader(), i);
    group_steps(1500);
    group_power_cut(node);
    sim_env_remove(&node->sim, group_file(node, "vote"));
    node->cut = true;
    for (int starts = 0; starts < 2; starts++) {
        group_up(node);
        ck_assert_int_eq(node->replica.mute_reason, PEER_MUTE_EMPTY);
        ck_assert(!node->replica.only_vote_lost);
        group_kill(node);
    }
    node->cut = false;
    group_up(node);
    group_steps(1000);
    expect_equal_logs();
}
END_TEST

/* A wiped member is not led back by whoever led before the leader that it had acknowledged to. */
START_TEST(test_older_leader_frees_nobody)
{
    struct group_node *older = start_group(DURABILITY_B);
    struct group_node *leader, *wiped;
    struct peer_message answer = {.type = PEER_FETCH_RESULT};
    raft_term term = term_of(older);
    const uint8_t *run;
    size_t size;

    for (int i = 0; i < 5; i++)
        group_must_send(older, i);
    leader = next_leader(older);
    wiped = group_other(older, leader);
    group_must_send(leader, 5);
    group_kill(wiped);
    group_wipe(wiped);
    wiped->cut = true;
    group_up(wiped);
    group_step();
    ck_assert_int_eq(wiped->replica.phase, REPLICA_MUTE);

    /* What the older one would have said, had it still led: all of its log at once. */
    answer.count = ledger_run(&older->replica.ledger, 0, 5, PEER_RUN_MAX, &run, &size);
    ck_assert_uint_eq(answer.count, 5);
    answer.body_size = (uint32_t)size;
    answer.fetch_result.term = term;
    answer.fetch_result.commit = answer.fetch_result.match = answer.fetch_result.last_index = 5;
    replica_receive(&wiped->replica, older->id, &answer, run);
    ck_assert_int_eq(wiped->replica.ledger.last_index, 4);
    ck_assert_int_eq(wiped->replica.phase, REPLICA_MUTE);

    wiped->cut = false;
    group_steps(1000);
    ck_assert_int_eq(wiped->replica.phase, REPLICA_RUNNING);
    expect_equal_logs();
}
END_TEST

/* Nor one whose vote file is older than its log: who led before its newest entries were made may lack what is committed there. */
START_TEST(test_older_leader_cuts_nothing)
{
    struct group_node *older = start_group(DURABILITY_B);
    struct group_node *leader, *mute;
    struct peer_message answer = {.type = PEER_FETCH_RESULT};
    raft_term term = term_of(older);

    leader = next_leader(older);
    mute = group_other(older, leader);
    for (int i = 0; i < 5; i++)
        group_must_send(leader, i);
    group_steps(1500); /* a checkpoint says that they are committed */
    group_kill(mute);
    ck_assert_int_eq(mute->sim.env.ops->unlink(&mute->sim.env, group_file(mute, "vote")), 0);
    group_save_vote(mute, term, 0);
    mute->cut = true;
    group_up(mute);
    group_step();
    ck_assert_int_eq(mute->replica.phase, REPLICA_MUTE);
    int64_t last = mute->replica.ledger.last_index;

    /* What the older one would have said, had it still led with a log of its own. */
    answer.flags = 1;
    answer.fetch_result.previous_index = (raft_index)last + 1;
    answer.fetch_result.term = term;
    answer.fetch_result.commit = answer.fetch_result.match = 1;
    answer.fetch_result.last_index = 2;
    replica_receive(&mute->replica, older->id, &answer, NULL);
    ck_assert_int_eq(mute->replica.phase, REPLICA_MUTE);
    ck_assert_int_eq(mute->replica.ledger.last_index, last);

    mute->cut = false;
    group_steps(1000);
    ck_assert_int_eq(mute->replica.phase, REPLICA_RUNNING);
    expect_equal_logs();
}
END_TEST

/* A mute member that once stood for election in a later term is not left alone by a leader of an earlier one. */
START_TEST(test_mute_with_later_term)
{
    struct group_node *leader = start_group(DURABILITY_A);
    struct group_node *mute = group_other(leader, NULL);

    for (int i = 0; i < 5; i++)
        group_must_send(leader, i);
    raft_term later = term_of(leader) + 5;
    group_power_cut(mute);
    group_save_vote(mute, later, mute->id);
    group_up(mute);
    ck_assert_int_eq(mute->replica.phase, REPLICA_MUTE);
    group_steps(3000);
    ck_assert_int_eq(mute->replica.phase, REPLICA_RUNNING);
    ck_assert_uint_gt(term_of(group_leader()), later);
    group_must_send(group_leader(), 5);
    group_steps(20);
    expect_equal_logs();
}
END_TEST

static unsigned fetches_left;

static bool few_fetches(uint64_t from, uint64_t to, const struct peer_message *message)
{
    (void)from;
    (void)to;
    if (message->type != PEER_FETCH_RESULT || message->count == 0)
        return true;
    return fetches_left > 0 && fetches_left--;
}

/* Fetched entries can be of a term in which this member never voted; when it then elects from what is left its term is at least theirs. */
START_TEST(test_term_of_what_was_fetched)
{
    enum { COUNT = 6000 }; /* more than one answer holds */
    struct group_send *sends = calloc(COUNT, sizeof *sends);
    struct group_node *older = start_group(DURABILITY_A);
    struct group_node *leader, *fetching = group_other(older, NULL);

    group_must_send(older, 0);
    group_steps(1500); /* a checkpoint that is on the disk */
    group_power_cut(fetching);
    leader = group_other(older, fetching);
    group_kill(older);
    group_up(older);
    while (group_leader() != leader) { /* a later term, which `fetching` does not hear of */
        struct group_node *now = group_wait_leader(3000);
        if (now != leader) {
            group_kill(now);
            group_up(now);
        }
        group_steps(100);
    }
    for (int i = 0; i < COUNT; i++) {
        ck_assert_int_eq(group_send(leader, &sends[i], 0), 0);
        if (i % 500 == 0)
            group_step();
    }
    group_steps(1500);
    ck_assert(sends[COUNT - 1].done);
    fetches_left = 1;
    group.passes = few_fetches;
    group_up(fetching);
    group_steps(300);
    ck_assert_int_eq(fetching->replica.phase, REPLICA_MUTE);
    ck_assert_uint_eq(fetching->replica.ledger.last_term, term_of(leader));
    ck_assert_uint_lt(fetching->replica.votes.term, term_of(leader));

    /* A majority goes down uncleanly, one of it for good. */
    group_power_cut(leader);
    group_kill(older);
    group_wipe(older);
    group_up(leader);
    group_up(older);
    group_wait_leader(3000);
    ck_assert_int_eq(fetching->replica.phase, REPLICA_RUNNING);
    group.passes = NULL;
    group_steps(1000);
    expect_equal_logs();
    free(sends);
}
END_TEST

/* Who waits in class A for all members also waits for one that has stopped for good: what it holds is there again when a person restarts it. */
START_TEST(test_stopped_member_is_missing)
{
    struct group_node *leader = start_group(DURABILITY_A);
    struct group_node *a = group_other(leader, NULL);
    struct group_node *b = group_other(leader, a);

    for (int i = 0; i < 5; i++)
        group_must_send(leader, i);
    group_steps(1500);
    sim_env_fail_at(&leader->sim, SIM_SYNC, 1, EIO, true);
    leader->may_fail = true;
    for (int i = 0; i < 3000 && leader->replica.phase != REPLICA_FAILED; i++) {
        struct group_send send = {0};
        if (leader->replica.accepting)
            ck_assert_int_eq(group_send(leader, &send, 0), 0);
        group_steps(20);
        ck_assert(send.done || send.request.done == NULL);
    }
    ck_assert_int_eq(leader->replica.phase, REPLICA_FAILED);
    group_power_cut(a);
    group_power_cut(b);
    group_up(a);
    group_up(b);
    expect_nobody_leads(3000);
    ck_assert_int_eq(a->replica.phase, REPLICA_MUTE);
    ck_assert_int_eq(b->replica.phase, REPLICA_MUTE);
    group_kill(leader);
    leader->may_fail = false;
    group_up(leader);
    group_wait_leader(3000);
    group_steps(1000);
    expect_equal_logs();
}
END_TEST

/* Class A: all lose power, and one's vote file is damaged on top. It forgot more than the others do, but as many as a majority needs must go on, and its log may
 * be the best. Nobody sends anything. */
START_TEST(test_power_cut_and_lost_vote)
{
    struct group_node *leader = start_group(DURABILITY_A);
    struct group_node *node = &group.nodes[1 + _i % GROUP_NODES];
    const char *path = group_file(node, "vote");

    for (int i = 0; i < 5; i++)
        group_must_send(leader, i);
    group_steps(1500);
    for (int i = 1; i <= GROUP_NODES; i++)
        group_power_cut(&group.nodes[i]);
    if (_i < GROUP_NODES) {
        sim_env_remove(&node->sim, path);
    } else {
        sim_env_corrupt(&node->sim, path, 20, 4);
        sim_env_corrupt(&node->sim, path, 4096 + 20, 4);
    }
    group_all_up();
    leader = group_wait_leader(5000);
    group_must_send(leader, 5);
    group_steps(1000);
    expect_equal_logs();
}
END_TEST

/* Of the last entry, which a follower lacked, only one member is left, and that one lost its vote. A wiped member that hears it does not fill itself from the
 * follower and elect it. The other way round as well: where the follower has as much, nobody waits for a member that has no more. */
START_TEST(test_mute_member_has_one_entry_more)
{
    struct group_node *leader = start_group(DURABILITY_B);
    struct group_node *less = group_other(leader, NULL);
    struct group_node *more = group_other(leader, less);
    bool lacks = _i == 0;

    for (int i = 0; i < 5; i++)
        group_must_send(leader, i);
    group_steps(1500); /* a checkpoint of both */
    less->cut = lacks;
    group_must_send(leader, 5);
    if (!lacks)
        group_steps(100);
    ck_assert_int_eq(more->replica.ledger.last_index, less->replica.ledger.last_index + lacks);
    for (int i = 1; i <= GROUP_NODES; i++)
        group_kill(&group.nodes[i]);
    less->cut = false;
    group_wipe(leader);
    sim_env_remove(&more->sim, group_file(more, "vote"));
    group_part(less, more);
    group_all_up();
    if (lacks)
        expect_nobody_leads(3000);
    else
        group_wait_leader(3000);
    group_join(less, more);
    group_must_send(group_wait_leader(3000), 6);
    group_steps(1000);
    expect_equal_logs();
    for (int i = 1; i <= GROUP_NODES; i++)
        ck_assert_int_eq(group_messages(&group.nodes[i]), 7);
}
END_TEST

/* The only one that votes comes back with less than it had, or empty, and those without a vote have all there was: it takes that from them, and leads. */
START_TEST(test_sole_voter_forgot)
{
    struct group_node *leader = start_group(_i == 0 ? DURABILITY_A : DURABILITY_B);
    struct group_node *a = group_other(leader, NULL);
    struct group_node *b = group_other(leader, a);
    int64_t last;

    group_take_vote(leader, a);
    group_take_vote(leader, b);
    group_must_send(leader, 0);
    group_steps(1500);
    for (int i = 1; i <= 5; i++)
        group_must_send(leader, i);
    group_steps(20);
    last = a->replica.ledger.last_index;
    ck_assert_int_eq(last, leader->replica.ledger.last_index);
    if (_i == 0) {
        group_power_cut(leader);
        lose_entries(leader, 3);
    } else {
        group_kill(leader);
        group_wipe(leader);
    }
    group_steps(20);
    group_up(leader);
    ck_assert_int_lt(leader->replica.ledger.last_index, last);
    ck_assert_int_eq(leader->replica.phase, REPLICA_MUTE);
    ck_assert_ptr_eq(group_wait_leader(5000), leader);
    group_must_send(leader, 6);
    group_steps(1000);
    expect_equal_logs();
    ck_assert_int_eq(group_messages(leader), 7);
}
END_TEST

/* Five members, two without a vote. Two of those who vote know all there was and can elect a leader when they hear each other: one that went down uncleanly does
 * not elect the one that knows less instead. That members without a vote are empty is no reason for it. */
START_TEST(test_enough_voters_run)
{
    struct group_node *more, *less, *unclean, *leader;

    group.size = 5;
    more = start_group(DURABILITY_A);
    less = group_other(more, NULL);
    unclean = group_other(more, less);
    for (int i = 1; i <= group.size; i++) {
        struct group_node *node = &group.nodes[i];
        if (node != more && node != less && node != unclean)
            group_take_vote(more, node);
    }
    group_must_send(more, 0);
    group_steps(1500);
    less->cut = true;
    group_must_send(more, 1);
    for (int i = 1; i <= group.size; i++) {
        struct group_node *node = &group.nodes[i];
        bool votes = node == more || node == less || node == unclean;
        if (node == unclean)
            group_power_cut(node);
        else
            group_kill(node);
        if (!votes)
            group_wipe(node);
    }
    lose_entries(unclean, 1);
    less->cut = false;
    group_part(more, less);
    group_all_up();
    ck_assert_int_eq(unclean->replica.phase, REPLICA_MUTE);
    ck_assert_int_lt(unclean->replica.ledger.last_index, more->replica.ledger.last_index);
    expect_nobody_leads(3000);
    group_join(more, less);
    leader = group_wait_leader(3000);
    group_must_send(leader, 2);
    group_steps(1000);
    expect_equal_logs();
    ck_assert_int_eq(group_messages(leader), 3);
}
END_TEST

/* A metadata entry of so many bytes; 0 or a code. May take what is kept for deletions and elections, too. */
static int append_bytes(struct group_node *leader, size_t size, bool all)
{
    int64_t offset;
    int code;
    uint8_t *room = all ? replica_reserve_for_trim(&leader->replica, size, &offset, &code) : replica_reserve(&leader->replica, size, &offset, &code);

    if (room == NULL)
        return code;
    memset(room, 0, size);
    replica_append(&leader->replica, LEDGER_ENTRY_METADATA, NULL);
    return 0;
}

/* Entries to whoever leads until no disk takes more: what clients may use, or all there is. */
static void fill_all_disks(size_t body_size, bool all)
{
    int64_t last = -1;

    for (int i = 1; i <= GROUP_NODES; i++)
        group.nodes[i].sim.disk_bytes = group.nodes[i].sim.used_bytes;
    /* A full leader hands over to one with room. What does not take the large ones may still take small ones, as an election needs. */
    for (int idle = 0; idle < (int)REPLICA_HAND_OVER_MS + 500; idle++) {
        struct group_node *leader = group_leader();
        for (int i = 0; leader != NULL && i < 200 && append_bytes(leader, idle < 100 ? body_size : 8, all) == 0; i++)
            ;
        group_step();
        if (leader != NULL && leader->replica.ledger.last_index > last) {
            last = leader->replica.ledger.last_index;
            idle = 0;
        }
    }
    ck_assert(replica_is_full(&group_wait_leader(3000)->replica));
}

static const size_t sizes[] = {8, 4000}; /* index units run out first, or data */

/* Without room for the entry that a winner begins with nobody stands for election, and nobody stops for good. */
START_TEST(test_election_on_full_disks)
{
    struct group_node *roomy;

    start_group(DURABILITY_B);
    fill_all_disks(sizes[_i], true);
    roomy = &group.nodes[1];
    for (int i = 2; i <= GROUP_NODES; i++) {
        const struct ledger *a = &group.nodes[i].replica.ledger, *b = &roomy->replica.ledger;
        if (a->reserved_end + a->index_reserved_end > b->reserved_end + b->index_reserved_end)
            roomy = &group.nodes[i];
    }
    group_kill(roomy); /* what the other two could take they have */
    if (group_leader() != NULL) {
        struct peer_message later = {.type = PEER_APPEND_ENTRIES_RESULT};
        later.append_result.term = term_of(group_leader()) + 1;
        later.append_result.rejected = 1;
        replica_receive(&group_leader()->replica, group_other(group_leader(), NULL)->id, &later, NULL);
        group_step();
    }
    if (_i == 1)
        expect_nobody_leads(1500);
    else
        group_steps(1500); /* an index page may have room for one more: all that counts is that they run, at which group_step() looks */
    for (int i = 1; i <= GROUP_NODES; i++)
        group.nodes[i].sim.disk_bytes = 0;
    group_steps(500); /* room is asked for now and then */
    group_must_send(group_wait_leader(3000), 0);
    group_up(roomy);
    group_steps(1000);
    expect_equal_logs();
}
END_TEST

/* Clients leave so much of full disks that leaders can still be elected, and decide that the log's beginning is deleted. */
START_TEST(test_room_kept_on_full_disks)
{
    struct group_node *leader;

    start_group(DURABILITY_B);
    fill_all_disks(sizes[_i], false);
    for (int i = 0; i < 5; i++) {
        leader = group_wait_leader(3000);
        ck_assert_int_eq(append_bytes(leader, 8, false), ERROR_NO_SPACE);
        group_kill(leader);
        group_wait_leader(3000);
        group_up(leader);
        group_steps(100);
    }
    leader = group_wait_leader(3000);
    raft_index last = raft_driver_last(&leader->replica.driver);
    ck_assert_int_eq(append_bytes(leader, 4000, true), 0);
    for (int i = 0; i < 1000 && leader->replica.applied <= last; i++)
        group_step();
    ck_assert_uint_gt(leader->replica.applied, last);
}
END_TEST

/* A leader that has room for data, but none for the index of more entries, hands over to one that has both. */
START_TEST(test_full_index_hands_over)
{
    struct group_node *full;

    group.segment_size = 32u << 20;
    full = start_group(DURABILITY_A);
    group_steps(100);
    full->sim.disk_bytes = full->sim.used_bytes;
    for (int i = 0; i < 6000 && group_leader() == full; i++) {
        for (int k = 0; k < 200 && append_bytes(full, 8, false) == 0; k++)
            ;
        group_step();
    }
    ck_assert_uint_gt(full->replica.ledger.reserved_end, full->replica.ledger.end_position + LEDGER_ENTRY_SIZE_MAX);
    ck_assert_ptr_ne(group_wait_leader(3000), full);
    group_must_send(group_leader(), 0);
}
END_TEST

/* A full leader looks for another one, but a member that is mute does nothing with leadership. */
START_TEST(test_no_leadership_for_the_mute)
{
    struct group_node *leader, *mute;

    start_group(DURABILITY_B);
    fetches_left = 0;
    group.passes = few_fetches;
    fill_all_disks(sizes[1], false);
    leader = group_wait_leader(3000);
    mute = group_other(leader, NULL);
    /* The last that the leader hears of it is that it has room. */
    leader->replica.hand_over_due_us = UINT64_MAX;
    mute->sim.disk_bytes = 0;
    group_steps(1000);
    ck_assert_ptr_eq(group_leader(), leader);
    ck_assert(!leader->replica.peers[mute->id - 1].full);
    group_kill(mute);
    group_wipe(mute);
    group_up(mute);
    leader->replica.hand_over_due_us = 0;
    for (int i = 0; i < 4 * (int)REPLICA_HAND_OVER_MS; i++) {
        group_step();
        ck_assert_int_eq(mute->replica.phase, REPLICA_MUTE);
        for (int k = 1; k <= GROUP_NODES; k++) {
            if (raft_driver_leads(&group.nodes[k].replica.driver))
                ck_assert_uint_ne(raft_transferee(&group.nodes[k].replica.driver.raft), mute->id);
        }
    }
}
END_TEST

/* A follower that lost what it had acknowledged is told so (class B), or repaired by a leader that does not remember it: by another one, or, when there
 * is none, after another election (class A, where members may begin with less by themselves). */
START_TEST(test_lost_acknowledged_entries)
{
    bool class_b = _i == 2 || _i == 3 || _i == 5;
    struct group_node *leader = start_group(class_b ? DURABILITY_B : DURABILITY_A);
    struct group_node *follower = group_other(leader, NULL);
    struct group_node *third = group_other(leader, follower);
    raft_term term = term_of(leader);
    bool alone = _i < 4 && _i % 2 == 1;

    if (_i >= 4) { /* no other member has a vote */
        group_take_vote(leader, follower);
        group_take_vote(leader, third);
    }
    group_must_send(leader, 0);
    group_steps(1200); /* a checkpoint that does not know what follows */
    for (int i = 1; i <= 10; i++)
        group_must_send(leader, i);
    group_kill(follower);
    if (alone) {
        third->cut = true;
        replica_peer_lost(&leader->replica, third->id);
    }
    lose_entries(follower, 5);
    group_up(follower);
    for (int i = 0; i < 5000 && (group_leader() == NULL || follower->replica.ledger.last_index != group_leader()->replica.ledger.last_index); i++)
        group_step();
    ck_assert_ptr_nonnull(group_leader());
    if (class_b)
        ck_assert_int_eq(follower->restarts, 1);
    else
        ck_assert_uint_gt(term_of(group_leader()), term);
    group_must_send(group_leader(), 11);
    third->cut = false;
    group_steps(1000);
    expect_equal_logs();
    for (int i = 1; i <= GROUP_NODES; i++)
        ck_assert_int_eq(group_messages(&group.nodes[i]), 12);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("replica_faults");
    TCase *tcase = tcase_create("replica_faults");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, group_set_up, group_tear_down);
    tcase_add_test(tcase, test_slow_member_is_known_as_well);
    tcase_add_test(tcase, test_running_member_is_no_old_copy);
    tcase_add_loop_test(tcase, test_old_copy_knows_that_it_is_one, 0, 3);
    tcase_add_test(tcase, test_killed_after_power_cut_and_lost_vote);
    tcase_add_test(tcase, test_older_leader_frees_nobody);
    tcase_add_test(tcase, test_older_leader_cuts_nothing);
    tcase_add_test(tcase, test_mute_with_later_term);
    tcase_add_test(tcase, test_term_of_what_was_fetched);
    tcase_add_test(tcase, test_stopped_member_is_missing);
    tcase_add_loop_test(tcase, test_power_cut_and_lost_vote, 0, 2 * GROUP_NODES);
    tcase_add_loop_test(tcase, test_mute_member_has_one_entry_more, 0, 2);
    tcase_add_loop_test(tcase, test_sole_voter_forgot, 0, 2);
    tcase_add_test(tcase, test_enough_voters_run);
    tcase_add_loop_test(tcase, test_election_on_full_disks, 0, 2);
    tcase_add_loop_test(tcase, test_room_kept_on_full_disks, 0, 2);
    tcase_add_test(tcase, test_full_index_hands_over);
    tcase_add_test(tcase, test_no_leadership_for_the_mute);
    tcase_add_loop_test(tcase, test_lost_acknowledged_entries, 0, 6);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
