/* Damage on the disks of members: found at a start, mended from the others, never served, never voted on. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "dledger/replica_internal.h"
#include "store/index_compare.h"
#include "tests/lib/replica_group.h"
#include "tests/lib/run_suite.h"

#define MESSAGES 60

static char segment[128];

static const char *segment_of(const struct group_node *node)
{
    snprintf(segment, sizeof segment, "%s/data/%020d", group_dir(node), 0);
    return segment;
}

/* MESSAGES acknowledged, everybody has everything; then all are killed. */
static void fill_and_kill(bool with_checkpoint, bool with_snapshot)
{
    if (group_leader() == NULL)
        group_all_up();
    group_wait_leader(2000);
    for (int i = 0; i < MESSAGES; i++)
        group_must_send(group_leader(), i);
    group_steps(with_checkpoint ? 1500 : 100);
    for (int i = 1; i <= GROUP_NODES && with_snapshot; i++)
        replica_start_save(&group.nodes[i].replica, true);
    group_steps(10);
    for (int i = 1; i <= GROUP_NODES; i++)
        group_kill(&group.nodes[i]);
}

static uint64_t log_size(struct group_node *node)
{
    uint64_t size;
    const uint8_t *bytes = sim_env_bytes(&node->sim, segment_of(node), &size);
    while (size > 0 && bytes[size - 1] == 0)
        size--;
    return size;
}

static void expect_whole(void)
{
    for (int i = 0; i < 5000; i++) {
        bool whole = group_leader() != NULL;
        for (int n = 1; n <= GROUP_NODES; n++) {
            const struct replica *replica = &group.nodes[n].replica;
            whole = whole && replica->phase == REPLICA_RUNNING && replica->ledger.hole_count == 0 &&
                    replica->ledger.last_index == group_leader()->replica.ledger.last_index && replica->applied == group_leader()->replica.applied;
        }
        if (whole)
            break;
        group_step();
    }
    ck_assert_ptr_nonnull(group_leader());
    group_must_send(group_leader(), MESSAGES);
    group_steps(100);
    for (int n = 1; n <= GROUP_NODES; n++) {
        struct group_node *node = &group.nodes[n];
        ck_assert_int_eq(node->replica.phase, REPLICA_RUNNING);
        ck_assert_uint_eq(node->replica.ledger.hole_count, 0);
        ck_assert_uint_eq(node->replica.ledger.last_chain, group.nodes[1].replica.ledger.last_chain);
        ck_assert_int_eq(group_messages(node), MESSAGES + 1);
        uint64_t last = (uint64_t)node->replica.ledger.last_index;
        ck_assert_uint_eq(ledger_verify(&node->replica.ledger, 0, last, UINT64_MAX), last + 1);
        ck_assert_uint_eq(node->replica.ledger.hole_count, 0);
        uint64_t size, other_size;
        const uint8_t *bytes = sim_env_bytes(&node->sim, segment_of(node), &size);
        const uint8_t *other = sim_env_bytes(&group.nodes[1].sim, segment_of(&group.nodes[1]), &other_size);
        ck_assert_uint_eq(size, other_size);
        ck_assert_int_eq(memcmp(bytes, other, size), 0);
    }
}

/* One bit anywhere in the log of one member. */
START_TEST(test_a_flip)
{
    fill_and_kill(_i % 2 == 1, _i % 4 == 3);
    struct group_node *node = &group.nodes[1 + _i % 3];
    uint64_t size = log_size(node);
    sim_env_corrupt(&node->sim, segment_of(node), (uint64_t)_i * 7919 % size, (uint8_t)(1u << _i % 8));
    group_all_up();
    expect_whole();
}
END_TEST

/* Stretches of zeros at another place on each member: nobody has a whole log, all together have. */
START_TEST(test_disjoint_on_all)
{
    fill_and_kill(_i % 2 == 1, _i % 4 == 3);
    for (int n = 0; n < GROUP_NODES; n++) {
        struct group_node *node = &group.nodes[1 + (n + _i) % GROUP_NODES];
        uint64_t size, third = log_size(node) / 3;
        uint8_t *bytes = sim_env_bytes(&node->sim, segment_of(node), &size);
        uint64_t at = (uint64_t)n * third + 300 + (uint64_t)_i * 37 % 500;
        for (uint64_t i = at; i < at + 700; i++)
            sim_env_corrupt(&node->sim, segment_of(node), i, bytes[i]);
    }
    group_all_up();
    ck_assert_int_eq(group.nodes[1].replica.phase, REPLICA_MUTE);
    expect_whole();
}
END_TEST

/* Class A, power cut and damage: a kill on the way to the whole log does not take with it that the log's end may be gone. */
START_TEST(test_kill_between_power_cut_and_repair)
{
    group.durability = DURABILITY_A;
    group_all_up();
    group_wait_leader(2000);
    for (int i = 0; i < MESSAGES; i++)
        group_must_send(group_leader(), i);
    group_steps(4000); /* synced, and a checkpoint says so */
    group_power_cut(&group.nodes[2]);
    group_kill(&group.nodes[1]);
    group_kill(&group.nodes[3]);
    sim_env_corrupt(&group.nodes[2].sim, segment_of(&group.nodes[2]), 400, 4); /* early enough that a checkpoint says it was committed */
    for (int starts = 0; starts < 2; starts++) {
        group_up(&group.nodes[2]);
        ck_assert_int_eq(group.nodes[2].replica.mute_reason, PEER_MUTE_DAMAGED);
        ck_assert(group.nodes[2].replica.checkpoint.forgot);
        group_kill(&group.nodes[2]);
    }
    group_up(&group.nodes[2]);
    group_up(&group.nodes[1]); /* repairs it, and cannot lead alone */
    for (int i = 0; i < 1000 && group.nodes[2].replica.mute_reason == PEER_MUTE_DAMAGED; i++)
        group_step();
    group_steps(500);
    ck_assert_int_eq(group.nodes[2].replica.mute_reason, PEER_MUTE_UNCLEAN);
    group_up(&group.nodes[3]);
    expect_whole();
}
END_TEST

static uint64_t cuts;

static bool up_to_the_cut(uint64_t from, uint64_t to, const struct peer_message *message)
{
    (void)from;
    return to != cuts || message->type != PEER_FETCH_RESULT || message->flags == 1; /* another entry stands there in the leader's log */
}

/* Without its vote file, and with a tail that the others replaced: it cuts what it may have acknowledged in order to fetch it again. When it dies then, the next
 * start must not take its log for all that it had. */
START_TEST(test_killed_behind_the_cut_of_a_fetch)
{
    struct group_node *node;
    int64_t last;

    group_all_up();
    node = group_wait_leader(2000);
    for (int i = 0; i < MESSAGES; i++)
        group_must_send(node, i);
    group_steps(1500);
    node->cut = true;
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(group_send(node, NULL, i), 0);
    group_steps(100);
    last = node->replica.ledger.last_index;
    group_kill(node);
    node->cut = false;
    group_must_send(group_wait_leader(5000), 0);
    sim_env_remove(&node->sim, group_file(node, "vote"));
    cuts = node->id;
    group.passes = up_to_the_cut;
    group_up(node);
    for (int i = 0; i < 1000 && node->replica.ledger.last_index == last; i++)
        group_step();
    ck_assert_int_eq(node->replica.phase, REPLICA_MUTE);
    ck_assert_int_lt(node->replica.ledger.last_index, last);
    group_kill(node);
    group_up(node);
    ck_assert_int_eq(node->replica.phase, REPLICA_MUTE);
    ck_assert(node->replica.checkpoint.forgot && !node->replica.only_vote_lost);
}
END_TEST

static struct group_node *spoils_disk; /* of whom somebody tells that its entries are none of the group's: its disk opens nothing just then */
static bool conflict;

static bool with_conflict(uint64_t from, uint64_t to, const struct peer_message *message)
{
    (void)from;
    if (to == spoils_disk->id && message->type == PEER_REPAIR_RESULT && message->flags == PEER_REPAIR_CONFLICT) {
        sim_env_fail_at(&spoils_disk->sim, SIM_OPEN, 1, EIO, true);
        conflict = true;
    }
    return true;
}

/* An entry that the others replaced is damaged, so nobody can tell what it was: it is cut when the disk says that this member forgot, and not before. */
START_TEST(test_conflict_with_a_failing_checkpoint)
{
    struct group_node *node;
    int64_t last;
    uint64_t at, term;
    uint32_t size;
    int conflicts = 0;

    group_all_up();
    node = group_wait_leader(2000);
    for (int i = 0; i < MESSAGES; i++)
        group_must_send(node, i);
    group_steps(1500);
    node->cut = true;
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(group_send(node, NULL, i), 0);
    group_steps(100);
    last = node->replica.ledger.last_index;
    ck_assert(ledger_locate(&node->replica.ledger, (uint64_t)last - 1, &at, &size, &term));
    group_kill(node);
    node->cut = false;
    for (int i = 0; i < 10; i++)
        group_must_send(group_wait_leader(5000), i);
    sim_env_corrupt(&node->sim, segment_of(node), at + size - 1, 4);
    spoils_disk = node;
    group.passes = with_conflict;
    group_up(node);
    ck_assert_int_eq(node->replica.mute_reason, PEER_MUTE_DAMAGED);
    ck_assert_int_eq(node->replica.ledger.last_index, last);
    for (int i = 0; i < 1000; i++) {
        conflict = false;
        group_step();
        node->sim.fault.calls = 0;
        conflicts += conflict;
        ck_assert_int_eq(node->replica.ledger.last_index, last);
    }
    ck_assert_int_gt(conflicts, 1);
    ck_assert_int_lt(conflicts, 20); /* asked again now and then */
    group.passes = up_to_the_cut;
    cuts = node->id;
    for (int i = 0; i < 1000 && node->replica.ledger.last_index == last; i++)
        group_step();
    ck_assert_int_lt(node->replica.ledger.last_index, last);
    group_kill(node);
    group_up(node);
    ck_assert_int_eq(node->replica.phase, REPLICA_MUTE);
    ck_assert(node->replica.checkpoint.forgot);
    group.passes = NULL;
    group_steps(1000);
    ck_assert_int_eq(node->replica.phase, REPLICA_RUNNING);
}
END_TEST

/* The last entries that a member acknowledged are damaged, or cut off with their file, and no checkpoint knows of them yet; or there is none, and all but the
 * first entry is damaged. Whenever its start dies in cutting them off, the next one does not take what is left for all that there was. */
START_TEST(test_killed_in_the_cut_of_a_start)
{
    bool power = _i > 2; /* not with a flip: it would look like a torn write */
    int kind = power ? _i - 2 : _i;
    struct group_node *node;
    struct sim_copy *spoilt;
    uint64_t n = 1, at, size;
    uint32_t entry_size;
    struct env_file *file;

    group_all_up();
    node = group_other(group_wait_leader(2000), NULL);
    for (int i = 0; i < MESSAGES; i++) {
        group_must_send(group_leader(), i);
        group_steps(i == MESSAGES / 2 ? 1500 : 0);
    }
    group_steps(20);
    uint64_t last = (uint64_t)node->replica.ledger.last_index, term;
    ck_assert_int_lt(node->replica.durable_committed, (int64_t)last);
    ck_assert(ledger_locate(&node->replica.ledger, kind == 2 ? 1 : last, &at, &entry_size, &term));
    for (int i = 1; i <= GROUP_NODES; i++)
        group_kill(&group.nodes[i]);
    switch (kind) {
    case 0:
        sim_env_corrupt(&node->sim, segment_of(node), at + entry_size - 1, 4);
        break;
    case 1:
        ck_assert_int_eq(env_open(&node->sim.env, segment_of(node), ENV_WRITE, &file), 0);
        ck_assert_int_eq(node->sim.env.ops->truncate(&node->sim.env, file, at), 0);
        ck_assert_int_eq(env_sync(&node->sim.env, file), 0);
        env_close(&node->sim.env, file);
        break;
    default:
        sim_env_remove(&node->sim, group_file(node, "checkpoint"));
        size = log_size(node);
        for (; at < size; at++)
            sim_env_corrupt(&node->sim, segment_of(node), at, 0x80);
        break;
    }
    spoilt = sim_env_copy(&node->sim);
    for (; group_dies_at_start(node, SIM_CHANGES, n, power); n++) {
        group_up(node);
        ck_assert_msg(node->replica.phase == REPLICA_MUTE && node->replica.checkpoint.forgot, "died in call %llu: all is believed to be there up to entry %lld of %llu",
                      (unsigned long long)n, (long long)node->replica.ledger.last_index, (unsigned long long)last);
        group_kill(node);
        sim_env_put_back(&node->sim, spoilt);
    }
    ck_assert_uint_gt(n, 5);
    ck_assert_int_eq(node->replica.phase, REPLICA_MUTE);
    sim_env_copy_free(spoilt);
    for (int i = 1; i <= GROUP_NODES; i++) {
        if (!group.nodes[i].up)
            group_up(&group.nodes[i]);
    }
    expect_whole();
}
END_TEST

/* A member that began alone, so that its dLegerPeers names nobody else, has others to mend its log all the same. */
START_TEST(test_others_known_from_the_log)
{
    fill_and_kill(true, false);
    sim_env_corrupt(&group.nodes[1].sim, segment_of(&group.nodes[1]), log_size(&group.nodes[1]) / 4, 4);
    sim_env_corrupt(&group.nodes[1].sim, segment_of(&group.nodes[1]), log_size(&group.nodes[1]) * 3 / 4, 4);
    group.alone = true;
    group_up(&group.nodes[1]);
    ck_assert_int_eq(group.nodes[1].replica.mute_reason, PEER_MUTE_DAMAGED);
    group.alone = false;
    group_up(&group.nodes[2]);
    group_up(&group.nodes[3]);
    expect_whole();
}
END_TEST

/* The power fails before anything could be fetched: the next start knows as well as the one before that this was no interrupted write. */
START_TEST(test_power_cut_before_repair)
{
    fill_and_kill(true, false);
    struct group_node *node = &group.nodes[2];
    uint64_t size = log_size(node);
    sim_env_corrupt(&node->sim, segment_of(node), _i == 4 ? size - 1 : size * (uint64_t)(1 + _i) / 5, 4);
    sim_env_corrupt(&node->sim, segment_of(node), size / 9, 4);
    for (int starts = 0; starts < 3; starts++) {
        group_up(node);
        ck_assert_int_eq(node->replica.phase, REPLICA_MUTE);
        if (_i < 4)
            ck_assert_int_ge(node->replica.ledger.last_index, MESSAGES);
        group_steps(20 + 1500 * (starts % 2));
        group_power_cut(node);
    }
    group_all_up();
    ck_assert_int_eq(node->replica.phase, REPLICA_MUTE);
    expect_whole();
}
END_TEST

/* Class A: what the power cut took may have been acknowledged, and a kill before the log is whole again does not make that undone. */
START_TEST(test_killed_before_repair)
{
    struct group_node *node = &group.nodes[2];
    struct error error;

    group.durability = DURABILITY_A;
    group_all_up();
    group_wait_leader(2000);
    for (int i = 0; i < MESSAGES; i++)
        group_must_send(group_leader(), i);
    ck_assert_int_eq(replica_sync_now(&node->replica, &error), 0); /* so that there is something to be damaged */
    group_steps(1500);
    group_power_cut(node);
    sim_env_corrupt(&node->sim, segment_of(node), log_size(node) / 4, 4);
    node->cut = true;
    group_up(node);
    ck_assert_int_eq(node->replica.mute_reason, PEER_MUTE_DAMAGED);
    group_steps(50);
    group_kill(node);
    node->cut = false;
    group.passes = group_without_fetched;
    group_up(node);
    for (int i = 0; i < 2000 && node->replica.mute_reason == PEER_MUTE_DAMAGED; i++)
        group_step();
    ck_assert_uint_eq(node->replica.ledger.hole_count, 0);
    ck_assert_int_eq(node->replica.phase, REPLICA_MUTE);
    group.passes = NULL;
    expect_whole();
}
END_TEST

/* The end of its log is damaged, and it goes down again before anybody mends it. */
static void forget_the_end(struct group_node *node)
{
    sim_env_corrupt(&node->sim, segment_of(node), log_size(node) - 1, 4);
    group_up(node);
    group_steps(1500);
    ck_assert_int_eq(node->replica.phase, REPLICA_MUTE);
    group_power_cut(node);
}

/* Two vote, and the end of one's log is damaged; it goes down again before anybody can mend it. It cannot tell any more what it acknowledged, but without it
 * nobody is elected, and the other one has all that was: it votes when all have been heard. Who has no vote does not make a majority with that one. */
START_TEST(test_power_cut_of_one_that_must_vote)
{
    struct group_node *leader, *node, *third;

    group_all_up();
    leader = group_wait_leader(2000);
    node = group_other(leader, NULL);
    third = group_other(leader, node);
    group_take_vote(leader, third);
    fill_and_kill(true, false);
    forget_the_end(node);
    group_all_up();
    expect_whole();
}
END_TEST

/* Three vote. One has everything and runs, or lost its checkpoint and so is mute at first; one lost the end of its log and cannot tell any more what it had
 * acknowledged; the third lags and lost its vote. Too few are left to elect, but who lost acknowledged messages does not vote without them: with the third one it
 * would elect somebody who does not have them either. It takes them from the one that has them. */
START_TEST(test_votes_with_what_it_had_acknowledged)
{
    struct group_node *leader, *node, *third;

    group_all_up();
    leader = group_wait_leader(2000);
    node = group_other(leader, NULL);
    third = group_other(leader, node);
    for (int i = 0; i < MESSAGES; i++) {
        if (i == MESSAGES / 2) {
            group_steps(50);
            group_kill(third);
        }
        group_must_send(leader, i);
    }
    int64_t last = leader->replica.ledger.last_index;
    group_steps(1500);
    group_kill(leader);
    group_kill(node);
    forget_the_end(node);
    if (_i == 1)
        sim_env_remove(&leader->sim, group_file(leader, "checkpoint"));
    sim_env_remove(&third->sim, group_file(third, "vote"));
    group.passes = group_without_fetched;
    group_all_up();
    ck_assert_int_lt(node->replica.ledger.last_index, last);
    for (int i = 0; i < 3000; i++) {
        group_step();
        ck_assert_int_eq(node->replica.phase, REPLICA_MUTE);
        ck_assert_int_eq(third->replica.phase, REPLICA_MUTE);
    }
    ck_assert_int_eq(leader->replica.phase, REPLICA_RUNNING);
    ck_assert_int_eq(node->replica.mute_reason, PEER_MUTE_UNCLEAN);
    group.passes = NULL;
    for (int i = 0; i < 1000 && node->replica.phase == REPLICA_MUTE; i++)
        group_step();
    ck_assert_int_eq(node->replica.phase, REPLICA_RUNNING);
    ck_assert_int_ge(node->replica.ledger.last_index, last);
    expect_whole();
}
END_TEST

/* Entries that were whole at the start, and wait for those before them to be repaired, are damaged meanwhile: they are not applied as they are. */
START_TEST(test_damage_while_waiting)
{
    fill_and_kill(true, false);
    struct group_node *node = &group.nodes[2];
    uint64_t size = log_size(node);
    sim_env_corrupt(&node->sim, segment_of(node), size / 9, 4);
    group_up(node);
    ck_assert_int_eq(node->replica.phase, REPLICA_MUTE);
    sim_env_corrupt(&node->sim, segment_of(node), size * (uint64_t)(5 + _i) / 12, 0x40);
    group_up(&group.nodes[1]);
    group_up(&group.nodes[3]);
    expect_whole();
}
END_TEST

/* And entries before the hole, headers and all: what comes from the others is checked against none of them. */
START_TEST(test_damage_before_the_hole)
{
    fill_and_kill(true, false);
    struct group_node *node = &group.nodes[2];
    sim_env_corrupt(&node->sim, segment_of(node), log_size(node) / 2, 4);
    group_up(node);
    ck_assert_uint_eq(node->replica.ledger.hole_count, 1);
    uint64_t position = node->replica.ledger.holes[0].position;
    for (uint64_t i = 0; i < (_i == 0 ? 500 : UINT64_MAX) && i < position; i++)
        sim_env_corrupt(&node->sim, segment_of(node), position - 1 - i, 0x40);
    group_up(&group.nodes[1]);
    group_up(&group.nodes[3]);
    expect_whole();
}
END_TEST

static struct {
    uint8_t bytes[1 << 16]; /* of the segment, with entries that were cut since */
    uint64_t from, to;      /* of those that were replaced, whole sectors */
} stale;

/* A leader with 20 messages, and 10 more that nobody else has; another one has taken over. */
static struct group_node *begin_stale(void)
{
    uint64_t size;

    group_all_up();
    struct group_node *node = group_wait_leader(2000);
    for (int i = 0; i < 20; i++)
        group_must_send(node, i);
    group_steps(20);
    node->cut = true;
    for (int i = 20; i < 30; i++)
        ck_assert_int_eq(group_send(node, NULL, i), 0);
    group_steps(20);
    stale.to = log_size(node) & ~511ull;
    memcpy(stale.bytes, sim_env_bytes(&node->sim, segment_of(node), &size), sizeof stale.bytes);
    group_steps(2000);
    return node;
}

static void find_stale(struct group_node *node)
{
    uint64_t size;
    const uint8_t *bytes = sim_env_bytes(&node->sim, segment_of(node), &size);

    stale.from = 0;
    while (bytes[stale.from] == stale.bytes[stale.from])
        stale.from++;
    stale.from &= ~511ull;
    ck_assert_uint_lt(stale.from, stale.to);
}

static void put_stale_back(struct group_node *node)
{
    ck_assert(sim_env_at_rest(&node->sim, segment_of(node), stale.from, stale.to - stale.from));
    sim_env_put(&node->sim, segment_of(node), stale.from, stale.bytes + stale.from, stale.to - stale.from);
}

/* Sectors hold again what was in them before: entries that were cut since, each of them whole, and in a chain of their own. */
START_TEST(test_stale_entries)
{
    struct group_node *node = begin_stale();
    struct group_node *leader = group_other(node, NULL);
    if (!leader->replica.accepting)
        leader = group_other(node, leader);
    for (int i = 20; i < MESSAGES; i++)
        group_must_send(leader, i);
    node->cut = false;
    group_steps(2500);
    find_stale(node);
    if (_i > 0)
        group_kill(node);
    put_stale_back(node);
    if (_i > 1) /* behind what its checkpoint knows, too */
        sim_env_remove(&node->sim, group_file(node, "checkpoint"));
    if (_i > 0) {
        if (_i == 3) {
            sim_env_power_cut(&node->sim);
            sim_env_restart(&node->sim);
        }
        group_up(node);
        ck_assert_int_eq(node->replica.phase, REPLICA_MUTE);
    }
    group_steps(5000);
    expect_whole();
}
END_TEST

/* As above, in a stretch in which a later term begins; and the start that finds it cannot be helped: nobody else is up. The ones after it, which have only
 * what that one noted, see no more than it did. 1: the power is cut too. 2: the checkpoint tells the last term alone, so that the rest of the table is made from
 * the entries, those that were cut among them. */
START_TEST(test_stale_entries_at_the_second_start)
{
    struct group_node *node = begin_stale();
    for (int i = 20; i < MESSAGES; i++) {
        group_must_send(group_wait_leader(2000), i);
        node->cut = false;
        if (i == 21) {
            group_steps(1000);
            struct group_node *leader = group_wait_leader(2000);
            group_kill(leader);
            group_steps(2000);
            group_up(leader);
        }
    }
    group_steps(2500);
    find_stale(node);
    for (int n = 1; n <= GROUP_NODES; n++)
        group_kill(&group.nodes[n]);
    put_stale_back(node);
    if (_i == 2) {
        static struct checkpoint checkpoint;
        char path[128];
        struct error error;
        snprintf(path, sizeof path, "%s", group_file(node, "checkpoint"));
        ck_assert_int_eq(checkpoint_load(&checkpoint, &node->sim.env, path, &error), 0);
        ck_assert_uint_gt(checkpoint.term_count, 2);
        checkpoint.term_count = 1;
        checkpoint.terms[0] = (struct checkpoint_term){checkpoint.committed_term, (uint64_t)checkpoint.committed_index};
        ck_assert_int_eq(checkpoint_save(&checkpoint, &node->sim.env, path, &error), 0);
    }
    raft_index applied = 0;
    for (int start = 0; start < 3; start++) {
        if (_i == 1) {
            sim_env_power_cut(&node->sim);
            sim_env_restart(&node->sim);
        }
        group_up(node);
        const struct ledger *ledger = &node->replica.ledger;
        ck_assert_int_eq(node->replica.phase, REPLICA_MUTE);
        ck_assert_uint_eq(ledger->hole_count, 1);
        ck_assert_int_lt((int64_t)ledger->holes[0].last, node->replica.known_committed);
        if (start == 0) {
            applied = node->replica.applied;
            ck_assert_uint_le(applied, 22); /* the configuration, the leader's barrier, 20 messages */
            ck_assert_uint_gt(ledger->terms.rows[ledger->terms.count - 1].first_index, ledger->holes[0].first);
            ck_assert_uint_le(ledger->terms.rows[ledger->terms.count - 1].first_index, ledger->holes[0].last + 1);
        }
        ck_assert_uint_le(node->replica.applied, applied);
        group_steps(2500);
        ck_assert_uint_le(node->replica.applied, applied);
        group_kill(node);
    }
    group_all_up();
    expect_whole();
}
END_TEST

/* A segment is gone, or cut short, on one member; its checkpoint is newer than its data, and it never begins anew over its old state (V8). */
START_TEST(test_missing_segment)
{
    fill_and_kill(true, false);
    struct group_node *node = &group.nodes[2];
    if (_i == 0)
        sim_env_remove(&node->sim, segment_of(node));
    else {
        struct env_file *file;
        ck_assert_int_eq(env_open(&node->sim.env, segment_of(node), ENV_WRITE, &file), 0);
        ck_assert_int_eq(node->sim.env.ops->truncate(&node->sim.env, file, _i == 1 ? 0 : log_size(node) / 2 + 13), 0);
        env_close(&node->sim.env, file);
    }
    group_all_up();
    expect_whole();
}
END_TEST

/* While the only member that has an entry is away nobody makes one up; the member with the damage takes no part. */
START_TEST(test_waits_for_who_has_it)
{
    fill_and_kill(true, false);
    for (int n = 2; n <= 3; n++) {
        struct group_node *node = &group.nodes[n];
        sim_env_corrupt(&node->sim, segment_of(node), log_size(node) / 2, 1);
    }
    group_up(&group.nodes[2]);
    group_up(&group.nodes[3]);
    for (int i = 0; i < 3000; i++) {
        group_step();
        ck_assert_ptr_null(group_leader());
    }
    group_up(&group.nodes[1]);
    expect_whole();
}
END_TEST

/* The same entry is damaged everywhere. It was applied, so the group goes on; whoever reads it learns that it cannot be read. */
START_TEST(test_damaged_on_all)
{
    fill_and_kill(true, true);
    uint64_t at = log_size(&group.nodes[1]) / 2;
    for (int n = 1; n <= 3; n++)
        sim_env_corrupt(&group.nodes[n].sim, segment_of(&group.nodes[n]), at, 1);
    group_all_up();
    struct group_node *leader = group_wait_leader(8000);
    group_must_send(leader, MESSAGES);
    group_steps(100);
    for (int n = 1; n <= 3; n++) {
        struct replica *replica = &group.nodes[n].replica;
        uint8_t byte;
        ck_assert_uint_eq(replica->ledger.hole_count, 1);
        ck_assert_uint_eq(replica->ledger.holes[0].first, replica->ledger.holes[0].last);
        ck_assert_ptr_null(group.nodes[n].view.at(replica, (int64_t)at, 1));
        ck_assert_int_eq(group.nodes[n].view.read(replica, (int64_t)at, &byte, 1), -EIO);
        ck_assert_ptr_nonnull(group.nodes[n].view.at(replica, (int64_t)replica->ledger.holes[0].end, 48));
        ck_assert_int_eq(group_messages(&group.nodes[n]), MESSAGES + 1);
    }
}
END_TEST

/* A damaged or missing vote file, on so many members: mute until caught up, or until everybody has been heard. Nobody sends anything. */
START_TEST(test_vote_files)
{
    fill_and_kill(true, false);
    for (int n = 1; n <= 1 + _i % 3; n++) {
        struct group_node *node = &group.nodes[n];
        const char *path = group_file(node, "vote");
        if (_i / 3 == 0) {
            sim_env_remove(&node->sim, path);
        } else {
            sim_env_corrupt(&node->sim, path, (uint64_t)(_i % 36), 4);
            if (_i / 3 == 2)
                sim_env_corrupt(&node->sim, path, 4096 + (uint64_t)(_i % 36), 4);
        }
    }
    group_all_up();
    if (_i % 3 == 0) /* else it may have heard all others at once */
        ck_assert_int_eq(group.nodes[1].replica.phase, REPLICA_MUTE);
    expect_whole();
}
END_TEST

/* V10: both checkpoints, both snapshots: made again from the log. */
START_TEST(test_hints)
{
    static const char *const names[] = {"checkpoint", "metadata.0", "metadata.1"};
    fill_and_kill(true, false);
    for (int n = 1; n <= 3; n++) {
        struct group_node *node = &group.nodes[n];
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
            const char *path = group_file(node, names[i]);
            uint64_t size;
            if (!sim_env_exists(&node->sim, path))
                continue;
            sim_env_bytes(&node->sim, path, &size);
            for (uint64_t at = (uint64_t)_i; at < size; at += 64)
                sim_env_corrupt(&node->sim, path, at, 2);
        }
    }
    group_all_up();
    expect_whole();
}
END_TEST

/* ... and when it must be applied again at a start nobody pretends that it was not there. */
START_TEST(test_damaged_on_all_and_needed)
{
    fill_and_kill(true, false);
    uint64_t at = log_size(&group.nodes[1]) / 2;
    for (int n = 1; n <= 3; n++)
        sim_env_corrupt(&group.nodes[n].sim, segment_of(&group.nodes[n]), at, 1);
    group_all_up();
    for (int i = 0; i < 3000; i++) {
        group_step();
        ck_assert_ptr_null(group_leader());
    }
    for (int n = 1; n <= 3; n++) {
        ck_assert_ptr_nonnull(strstr(replica_why_not(&group.nodes[n].replica), "damaged"));
        sim_env_corrupt(&group.nodes[n].sim, segment_of(&group.nodes[n]), at, n == 2 ? 1 : 0);
    }
    group_kill(&group.nodes[2]);
    group_up(&group.nodes[2]);
    expect_whole();
}
END_TEST

/* The entry behind the damaged one nobody else has: one member's log ends with the damaged one, the other is wiped. The chain of checksums on both sides proves
 * whose entry it is; also where the next term begins behind it, and where all from the log's first entry on is damaged. */
START_TEST(test_whose_log_ends_in_the_hole)
{
    struct group_node *node, *shorter, *wiped;
    uint64_t last, at, term, places[128];
    size_t entries = 0;
    uint32_t size;

    group_all_up();
    node = group_wait_leader(2000);
    shorter = group_other(node, NULL);
    wiped = group_other(node, shorter);
    for (int i = 0; i < MESSAGES; i++) {
        if (i == MESSAGES / 2) {
            group_steps(50);
            shorter->cut = true;
            if (_i % 4 > 1) {
                node->cut = true;
                group_steps(2000);
                node->cut = false;
                node = group_wait_leader(5000);
                wiped = node->id == wiped->id ? group_other(node, shorter) : wiped;
            }
        }
        group_must_send(node, i);
    }
    group_steps(1500);
    last = (uint64_t)shorter->replica.ledger.last_index;
    ck_assert_uint_lt(last + 5, (uint64_t)node->replica.ledger.last_index);
    ck_assert(ledger_locate(&node->replica.ledger, last, &at, &size, &term));
    for (uint64_t index = 0; _i >= 4 && index <= last; index++, entries++) {
        uint64_t position;
        ck_assert(entries < sizeof places / sizeof places[0] && ledger_locate(&node->replica.ledger, index, &position, &size, &term));
        places[entries] = position + (_i % 2 == 0 ? size - 1 : 16);
    }
    for (int n = 1; n <= GROUP_NODES; n++)
        group_kill(&group.nodes[n]);
    shorter->cut = false;
    group_wipe(wiped);
    if (_i < 4)
        sim_env_corrupt(&node->sim, segment_of(node), at + (_i % 2 == 0 ? size - 1 : 16), 4);
    for (size_t i = 0; i < entries; i++)
        sim_env_corrupt(&node->sim, segment_of(node), places[i], 4);
    group_all_up();
    ck_assert_int_eq(node->replica.mute_reason, PEER_MUTE_DAMAGED);
    expect_whole();
}
END_TEST

/* Damage while everybody runs, that nobody reads. */
START_TEST(test_scrub)
{
    group.scrub_bytes_per_second = 1u << 20;
    group_all_up();
    group_wait_leader(2000);
    for (int i = 0; i < MESSAGES; i++)
        group_must_send(group_leader(), i);
    struct group_node *node = _i % 2 == 0 ? group_leader() : group_other(group_leader(), NULL);
    sim_env_corrupt(&node->sim, segment_of(node), log_size(node) * (uint64_t)(1 + _i) / 10, 0x20);
    uint64_t passes = node->replica.scrub_passes;
    for (int i = 0; i < 5000 && node->replica.scrub_passes < passes + 3; i++)
        group_step();
    ck_assert_uint_eq(node->replica.damage_found, 1);
    ck_assert_uint_ge(node->replica.repaired_entries, 1);
    expect_whole();
}
END_TEST

/* A unit of a queue is damaged: the scrub finds it. Without one, and faster than it, a reader that meets the unit gets nothing and has it mended. */
START_TEST(test_scrub_mends_queues)
{
    bool read = _i >= 2;
    group.scrub_bytes_per_second = _i == 3 ? 0 : 1u << 20;
    group_all_up();
    group_wait_leader(2000);
    for (int i = 0; i < MESSAGES; i++)
        group_must_send(group_leader(), i);
    group_steps(200);
    struct group_node *node = _i % 2 == 0 ? group_leader() : group_other(group_leader(), NULL);
    struct consume_queue *queue = message_store_queue(&node->store, SLICE_LITERAL("T"), 2, false, NULL);
    struct consume_queue_unit right, found;
    static struct get_message_result result;
    int64_t at = queue->max_offset / 2;
    ck_assert(consume_queue_get(queue, at, &right));
    uint8_t *bytes = mapped_file_queue_at(&queue->files, (uint64_t)at * CONSUME_QUEUE_UNIT_SIZE, CONSUME_QUEUE_UNIT_SIZE);
    memset(bytes + (_i % 2 == 0 ? 0 : 3), 0x11, 6);
    if (read) {
        message_store_get_message(&node->store, SLICE_LITERAL("T"), 2, at, 32, NULL, &result);
        ck_assert_int_eq(result.status, GET_MESSAGE_DAMAGED);
        ck_assert_int_eq(result.next_begin_offset, at);
    }
    for (int i = 0; i < 5000 && node->store.mended_units == 0; i++)
        group_step();
    ck_assert_uint_eq(node->store.mended_units, 1);
    ck_assert(!node->store.doubt.any);
    ck_assert(consume_queue_get(queue, at, &found));
    ck_assert_int_eq(found.physical_offset, right.physical_offset);
    ck_assert_int_eq(found.size, right.size);
    ck_assert_int_eq(found.tags_code, right.tags_code);
    message_store_get_message(&node->store, SLICE_LITERAL("T"), 2, at, 32, NULL, &result);
    ck_assert_int_eq(result.status, GET_MESSAGE_FOUND);
    expect_whole();
}
END_TEST

static uint64_t never(void *context, struct slice topic)
{
    (void)context, (void)topic;
    return UINT64_MAX;
}

/* No record is found for a damaged unit: its readers wait, but the log is not read again and again for them, and the member rests. */
START_TEST(test_unit_without_a_record)
{
    group.scrub_bytes_per_second = 0;
    group_all_up();
    group_wait_leader(2000);
    for (int i = 0; i < MESSAGES; i++)
        group_must_send(group_leader(), i);
    group_steps(200);
    struct group_node *node = group_leader();
    struct consume_queue *queue = message_store_queue(&node->store, SLICE_LITERAL("T"), 2, false, NULL);
    static struct get_message_result result;
    int64_t at = queue->max_offset / 2;
    memset(mapped_file_queue_at(&queue->files, (uint64_t)at * CONSUME_QUEUE_UNIT_SIZE, CONSUME_QUEUE_UNIT_SIZE), 0, CONSUME_QUEUE_UNIT_SIZE);
    node->store.topic_since = never;
    message_store_get_message(&node->store, SLICE_LITERAL("T"), 2, at, 32, NULL, &result);
    ck_assert_int_eq(result.status, GET_MESSAGE_DAMAGED);
    ck_assert(message_store_doubt_is_searched(&node->store.doubt));
    for (int i = 0; i < 5000 && message_store_doubt_is_searched(&node->store.doubt); i++)
        group_step();
    ck_assert(!message_store_doubt_is_searched(&node->store.doubt));
    for (int i = 0; i < 100; i++) {
        message_store_get_message(&node->store, SLICE_LITERAL("T"), 2, at - 3, 32, NULL, &result);
        ck_assert_int_eq(result.next_begin_offset, at); /* what is before it is served */
        message_store_get_message(&node->store, SLICE_LITERAL("T"), 2, at, 32, NULL, &result);
        ck_assert_int_eq(result.status, GET_MESSAGE_DAMAGED);
        group_step();
        ck_assert(!message_store_doubt_is_searched(&node->store.doubt));
    }
    ck_assert_uint_eq(node->store.mended_units, 0);
    /* Later it is looked for again. */
    node->store.topic_since = NULL;
    node->store.doubt.missing_until_us = 1;
    message_store_get_message(&node->store, SLICE_LITERAL("T"), 2, at, 32, NULL, &result);
    for (int i = 0; i < 5000 && node->store.mended_units == 0; i++)
        group_step();
    ck_assert_uint_eq(node->store.mended_units, 1);
    ck_assert(!node->store.doubt.any);
}
END_TEST

/* An index file is made anew, many pieces long, while readers doubt units again and again: units near the begin, in the middle and near the end, and one that
 * has no record, so that each doubt is a walk through the whole log. Both get what they need, and no key is missing or doubled. */
START_TEST(test_index_is_made_anew_while_readers_doubt)
{
    enum { COUNT = 300 };
    group.scrub_bytes_per_second = 1u << 20;
    group.keyed = true;
    group.segment_size = 4096; /* a piece ends where a segment does */
    group_all_up();
    group_wait_leader(2000);
    for (int i = 0; i < COUNT; i++)
        group_must_send(group_leader(), i);
    group_steps(200);
    struct group_node *node = _i % 2 == 0 ? group_leader() : group_other(group_leader(), NULL);
    struct message_store *store = &node->store;
    struct consume_queue *queue = message_store_queue(store, SLICE_LITERAL("T"), 2, false, NULL);
    uint64_t passes = node->replica.scrub_passes, doubts = 0;
    for (int i = 0; i < 5000 && node->replica.scrub_passes < passes + 2; i++)
        group_step();
    ck_assert_uint_eq(index_compare_counts(store->index_compare).damaged, 0);
    ck_assert_uint_eq(store->index->count, 1);
    const struct index_file *file = store->index->files[0];
    sim_env_corrupt(&node->sim, file->path, index_file_used(file, COUNT * 9 / 10), 0x20);
    passes = node->replica.scrub_passes;
    for (int i = 0; i < 40000 && (node->replica.scrub_passes < passes + 3 || index_compare_counts(store->index_compare).rebuilt == 0); i++) {
        if (_i < 6 && !store->doubt.any) {
            message_store_distrust(store, SLICE_LITERAL("T"), 2, queue->max_offset * (1 + _i / 2 * 4) / 10);
            doubts++;
        } else if (!message_store_doubt_is_searched(&store->doubt)) {
            store->doubt = (struct message_store_doubt){.any = true, .everything = _i % 2 == 0, .topic = "T", .queue_id = 2, .queue_offset = INT64_MAX};
            doubts++;
        }
        group_step();
    }
    ck_assert_uint_gt(doubts, 3);
    ck_assert_uint_ge(node->replica.scrub_passes, passes + 3);
    ck_assert_uint_eq(index_compare_counts(store->index_compare).damaged, 1);
    ck_assert_uint_eq(index_compare_counts(store->index_compare).rebuilt, 1);
    ck_assert_uint_eq(store->mended_units, 0);
    for (int i = 0; i < COUNT; i++) {
        char key[24];
        int64_t found[4], last_time, last_offset;
        snprintf(key, sizeof key, "%d", i);
        ck_assert_uint_eq(message_store_query(store, SLICE_LITERAL("T"), slice_of_text(key), 4, 0, INT64_MAX, found, &last_time, &last_offset), 1);
    }
    store->doubt.any = false;
}
END_TEST

static bool nobody_helps;
static int elections_of; /* member */
static int elections;

static bool count_elections(uint64_t from, uint64_t to, const struct peer_message *message)
{
    if (message->type == PEER_REPAIR && nobody_helps)
        return false;
    (void)to;
    elections += (int)from == elections_of && message->type == PEER_REQUEST_VOTE;
    return true;
}

/* A leader meets damage in what a follower needs next. It has it mended, and as long as nobody can help the follower still hears that it leads. */
START_TEST(test_leader_damaged_where_a_follower_is)
{
    group_all_up();
    struct group_node *leader = group_wait_leader(2000);
    struct group_node *behind = group_other(leader, NULL);
    for (int i = 0; i < MESSAGES / 2; i++)
        group_must_send(leader, i);
    group_steps(100);
    group_kill(behind);
    uint64_t from = leader->replica.ledger.end_position;
    for (int i = MESSAGES / 2; i < MESSAGES; i++)
        group_must_send(leader, i);
    group_steps(1500);
    for (uint64_t i = 10; i < 300; i++)
        sim_env_corrupt(&leader->sim, segment_of(leader), from + i, 0x40);
    nobody_helps = true;
    elections_of = (int)behind->id;
    elections = 0;
    group.passes = count_elections;
    group_up(behind);
    group_steps(5000);
    ck_assert_int_eq(elections, 0);
    ck_assert_ptr_eq(group_leader(), leader);
    ck_assert_uint_eq(raft_driver_leader(&behind->replica.driver), leader->id);
    nobody_helps = false;
    expect_whole();
    ck_assert_ptr_eq(group_leader(), leader);
}
END_TEST

/* A member that was stopped halfway and lost its vote file: it will be mute. Its log ends with index *last, in front of position *from of the leader's. */
static struct group_node *lose_a_vote(struct group_node **leader, raft_index *last, uint64_t *from)
{
    group_all_up();
    *leader = group_wait_leader(2000);
    struct group_node *mute = group_other(*leader, NULL);
    for (int i = 0; i < MESSAGES / 2; i++)
        group_must_send(*leader, i);
    group_steps(1500); /* its checkpoint knows that all of it is committed */
    group_kill(mute);
    sim_env_remove(&mute->sim, group_file(mute, "vote"));
    *last = raft_driver_last(&(*leader)->replica.driver);
    *from = (*leader)->replica.ledger.end_position;
    for (int i = MESSAGES / 2; i < MESSAGES; i++)
        group_must_send(*leader, i);
    group_steps(1500);
    return mute;
}

/* A leader whose log is damaged where a mute member's log ends does not know what stands there: it says nothing of that, least of all that its log has another entry,
 * by which the member would stop for good. Once it is mended it helps. */
START_TEST(test_leader_damaged_where_a_mute_member_ends)
{
    raft_index last;
    uint64_t from;
    struct group_node *leader, *mute = lose_a_vote(&leader, &last, &from);
    sim_env_corrupt(&leader->sim, segment_of(leader), from - 10, 0x40);
    nobody_helps = true;
    elections_of = (int)mute->id;
    group.passes = count_elections;
    replica_look_at_entry(&leader->replica, last);
    ck_assert_ptr_nonnull(ledger_hole_of(&leader->replica.ledger, last - 1));
    group_up(mute);
    group_steps(1000);
    ck_assert_int_eq(mute->replica.phase, REPLICA_MUTE);
    nobody_helps = false;
    expect_whole();
}
END_TEST

static uint64_t deliver_later(uint64_t from, uint64_t to)
{
    (void)from, (void)to;
    return 1000;
}

static int questions;

static bool count_questions(uint64_t from, uint64_t to, const struct peer_message *message)
{
    (void)to;
    questions += (int)from == elections_of && message->type == PEER_FETCH;
    return message->type != PEER_REPAIR || !nobody_helps;
}

/* ... or just behind where that one ends: there is nothing to send, and the member asks again at times, and not as fast as it is answered. */
START_TEST(test_leader_damaged_behind_where_a_mute_member_ends)
{
    raft_index last;
    uint64_t from;
    struct group_node *leader, *mute = lose_a_vote(&leader, &last, &from);
    sim_env_corrupt(&leader->sim, segment_of(leader), from + 10, 0x40);
    replica_look_at_entry(&leader->replica, last + 1);
    ck_assert_ptr_nonnull(ledger_hole_of(&leader->replica.ledger, last));
    nobody_helps = true;
    elections_of = (int)mute->id;
    group.passes = count_questions;
    group.latency_us = deliver_later;
    group_up(mute);
    group_steps(500);
    questions = 0;
    group_steps(1000);
    ck_assert_int_eq(mute->replica.phase, REPLICA_MUTE);
    ck_assert_int_ge(questions, 1000000 / REPLICA_FETCH_RETRY_US);
    ck_assert_int_le(questions, 3 * 1000000 / REPLICA_FETCH_RETRY_US); /* two are asked each time */
    nobody_helps = false;
    expect_whole();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("replica_repair");
    TCase *tcase = tcase_create("replica_repair");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, group_set_up, group_tear_down);
    tcase_add_loop_test(tcase, test_a_flip, 0, 60);
    tcase_add_loop_test(tcase, test_disjoint_on_all, 0, 12);
    tcase_add_test(tcase, test_kill_between_power_cut_and_repair);
    tcase_add_test(tcase, test_killed_behind_the_cut_of_a_fetch);
    tcase_add_test(tcase, test_conflict_with_a_failing_checkpoint);
    tcase_add_loop_test(tcase, test_killed_in_the_cut_of_a_start, 0, 5);
    tcase_add_test(tcase, test_others_known_from_the_log);
    tcase_add_loop_test(tcase, test_whose_log_ends_in_the_hole, 0, 8);
    tcase_add_loop_test(tcase, test_power_cut_before_repair, 0, 5);
    tcase_add_test(tcase, test_killed_before_repair);
    tcase_add_test(tcase, test_power_cut_of_one_that_must_vote);
    tcase_add_loop_test(tcase, test_votes_with_what_it_had_acknowledged, 0, 2);
    tcase_add_test(tcase, test_leader_damaged_where_a_follower_is);
    tcase_add_test(tcase, test_leader_damaged_where_a_mute_member_ends);
    tcase_add_test(tcase, test_leader_damaged_behind_where_a_mute_member_ends);
    tcase_add_loop_test(tcase, test_damage_while_waiting, 0, 6);
    tcase_add_loop_test(tcase, test_damage_before_the_hole, 0, 2);
    tcase_add_loop_test(tcase, test_stale_entries, 1, 4);
    tcase_add_loop_test(tcase, test_stale_entries_at_the_second_start, 0, 3);
    tcase_add_loop_test(tcase, test_missing_segment, 0, 3);
    tcase_add_test(tcase, test_waits_for_who_has_it);
    tcase_add_test(tcase, test_damaged_on_all);
    tcase_add_test(tcase, test_damaged_on_all_and_needed);
    tcase_add_loop_test(tcase, test_scrub, 0, 8);
    tcase_add_loop_test(tcase, test_scrub_mends_queues, 0, 4);
    tcase_add_test(tcase, test_unit_without_a_record);
    tcase_add_loop_test(tcase, test_index_is_made_anew_while_readers_doubt, 0, 8);
    tcase_add_loop_test(tcase, test_vote_files, 0, 9);
    tcase_add_loop_test(tcase, test_hints, 0, 4);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
