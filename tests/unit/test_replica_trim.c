/* Deleting the log's beginning: what all members agree on, what each removes and when, and starts from what remains. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dledger/metadata_snapshot.h"
#include "dledger/replica_internal.h"
#include "tests/lib/replica_group.h"
#include "tests/lib/run_suite.h"

enum { FIRST = 24000 };

/* Several segments, on stable storage everywhere. */
static struct group_node *fill(int from, int count)
{
    struct group_node *leader = group_wait_leader(3000);
    for (int i = from; i < from + count; i++) {
        ck_assert_int_eq(group_send(leader, NULL, i), 0);
        if (i % 200 == 199)
            group_step();
    }
    group_steps(300);
    return leader;
}

static void expect_begin(uint64_t position)
{
    for (int i = 1; i <= GROUP_NODES; i++) {
        const struct replica *replica = &group.nodes[i].replica;
        ck_assert_uint_eq(replica->ledger.trim_position, position);
        ck_assert_uint_eq(mapped_file_queue_begin(&replica->ledger.data), position);
        ck_assert_int_gt(replica->ledger.begin_index, 0);
    }
}

static void expect_queues(int total)
{
    for (int i = 1; i <= GROUP_NODES; i++) {
        struct group_node *node = &group.nodes[i];
        for (int queue_id = 0; queue_id < 4; queue_id++) {
            struct error error;
            struct consume_queue_unit unit;
            struct consume_queue *queue = message_store_queue(&node->store, SLICE_LITERAL("T"), queue_id, false, &error);
            ck_assert_ptr_nonnull(queue);
            ck_assert_int_eq(queue->max_offset, total / 4);
            ck_assert_int_eq(queue->min_offset, message_store_min_offset(&group.nodes[1].store, SLICE_LITERAL("T"), queue_id));
            ck_assert_int_gt(queue->min_offset, 0);
            ck_assert(consume_queue_get(queue, queue->min_offset, &unit));
            ck_assert_int_ge(unit.physical_offset, (int64_t)node->replica.ledger.trim_position);
            ck_assert(!consume_queue_get_any(queue, queue->min_offset - 1, &unit) || unit.physical_offset < (int64_t)node->replica.ledger.trim_position);
        }
    }
}

START_TEST(all_members_begin_at_the_same_place)
{
    group.durability = _i == 0 ? DURABILITY_A : DURABILITY_B;
    group_all_up();
    struct group_node *leader = fill(0, FIRST);
    int held_by;
    group_steps(1500); /* class A syncs once a second, heartbeats tell */
    uint64_t limit = replica_trim_limit(&leader->replica, &held_by);
    ck_assert_uint_ge(limit, 2 * GROUP_SEGMENT);
    ck_assert_int_eq(replica_trim(&leader->replica, GROUP_SEGMENT / 2), ERROR_INVALID);
    ck_assert_int_eq(replica_trim(&leader->replica, limit + GROUP_SEGMENT), ERROR_INVALID);
    ck_assert_int_eq(replica_trim(&leader->replica, 2 * GROUP_SEGMENT), 0);
    ck_assert_int_eq(replica_trim(&leader->replica, 2 * GROUP_SEGMENT), ERROR_INVALID); /* asked for */
    ck_assert_int_eq(replica_trim(&group_other(leader, NULL)->replica, 2 * GROUP_SEGMENT), ERROR_NOT_LEADER);
    group_steps(20);
    for (int i = 1; i <= GROUP_NODES; i++) { /* minimums at once, files later */
        ck_assert_uint_eq(group.nodes[i].replica.ledger.trim_position, 2 * GROUP_SEGMENT);
        ck_assert_uint_eq(mapped_file_queue_begin(&group.nodes[i].replica.ledger.data), 0);
    }
    expect_queues(FIRST);
    group_steps(6000);
    expect_begin(2 * GROUP_SEGMENT);
    ck_assert_uint_eq(leader->replica.trimmed_segments, 2);

    for (int way = 0; way < 2; way++) {
        for (int i = 1; i <= GROUP_NODES; i++) {
            if (way == 0 || group.durability == DURABILITY_A)
                group_kill(&group.nodes[i]);
            else
                group_power_cut(&group.nodes[i]);
        }
        group_all_up();
        group_wait_leader(3000);
        group_steps(300);
        expect_begin(2 * GROUP_SEGMENT);
        expect_queues(FIRST + 400 * way);
        fill(FIRST + 400 * way, 400);
        expect_queues(FIRST + 400 * (way + 1));
    }
}
END_TEST

static struct {
    struct group_node *node;
    uint64_t names_synced; /* directories of segments */
    uint64_t last_let_go;  /* unlinked segments that nobody has open any more when the loop's mapping goes */
} seen;

static int sync_dir_seen(struct env *env, const char *path)
{
    struct group_node *node = seen.node;
    size_t size = strlen(path);
    seen.names_synced += size > 5 && strcmp(path + size - 5, "/data") == 0;
    return node->sim_ops->sync_dir(env, path);
}

static void unmap_seen(struct env *env, void *address, size_t size)
{
    struct group_node *node = seen.node;
    seen.last_let_go += size == GROUP_SEGMENT && node->replica.save.trim_file == NULL;
    node->sim_ops->unmap(env, address, size);
}

/* The loop neither syncs the directory once more nor frees a segment's blocks: both have hung. */
START_TEST(the_loop_does_not_wait_for_a_removal)
{
    group_all_up();
    struct group_node *leader = fill(0, FIRST);
    uint32_t open = leader->sim.open_files;
    group_steps(1500);
    memset(&seen, 0, sizeof seen);
    seen.node = leader;
    leader->ops.sync_dir = sync_dir_seen; /* of this member alone */
    leader->ops.unmap = unmap_seen;
    ck_assert_int_eq(replica_trim(&leader->replica, 2 * GROUP_SEGMENT), 0);
    group_steps(6000);
    ck_assert_ptr_eq(group_leader(), leader);
    expect_begin(2 * GROUP_SEGMENT);
    ck_assert_uint_eq(leader->replica.trimmed_segments, 2);
    leader->ops.sync_dir = leader->sim_ops->sync_dir;
    leader->ops.unmap = leader->sim_ops->unmap;
    ck_assert_uint_eq(seen.names_synced, 2); /* by the job */
    ck_assert_uint_eq(seen.last_let_go, 0);
    ck_assert_ptr_null(leader->replica.save.trim_file);
    ck_assert_ptr_null(leader->replica.trim_release.file);
    ck_assert_uint_le(leader->sim.open_files, open - 2);
}
END_TEST

/* Nobody is left behind: what a member does not have on its disk stays on the others'. */
START_TEST(a_member_that_is_away_holds_the_log)
{
    group_all_up();
    struct group_node *leader = fill(0, 4000);
    struct group_node *away = group_other(leader, NULL);
    uint64_t has = away->replica.ledger.end_position;
    int held_by;
    group_kill(away);
    fill(4000, 20000);
    group_steps(200);
    ck_assert_uint_le(replica_trim_limit(&leader->replica, &held_by), has);
    ck_assert_int_eq(held_by, (int)away->id - 1);
    group_up(away);
    group_steps(500);
    uint64_t limit = replica_trim_limit(&leader->replica, &held_by);
    ck_assert_uint_ge(limit, 2 * GROUP_SEGMENT);
    /* Emptied: until it is refilled nothing is deleted. */
    group_kill(away);
    group_wipe(away);
    group_up(away);
    group_steps(5);
    ck_assert_uint_eq(replica_trim_limit(&leader->replica, &held_by), 0);
    ck_assert_int_eq(held_by, (int)away->id - 1);
    group_steps(2000);
    ck_assert_int_eq(away->replica.phase, REPLICA_RUNNING);
    ck_assert_uint_ge(replica_trim_limit(&leader->replica, &held_by), limit);
}
END_TEST

/* What it needs is gone: it fetches what there is, and votes again. */
START_TEST(an_emptied_member_after_a_trim)
{
    group_all_up();
    struct group_node *leader = fill(0, FIRST);
    ck_assert_int_eq(replica_trim(&leader->replica, GROUP_SEGMENT), 0);
    group_steps(5000);
    expect_begin(GROUP_SEGMENT);
    struct group_node *emptied = group_other(leader, NULL);
    group_kill(emptied);
    group_wipe(emptied);
    group_up(emptied);
    group_steps(10);
    ck_assert_int_eq(emptied->replica.phase, REPLICA_MUTE);
    for (int i = 0; i < 5000 && emptied->replica.phase != REPLICA_RUNNING; i++)
        group_step();
    group_steps(1000);
    ck_assert_int_eq(emptied->replica.phase, REPLICA_RUNNING);
    ck_assert_int_eq(emptied->restarts, 1);
    ck_assert_ptr_eq(group_leader(), leader);
    expect_begin(GROUP_SEGMENT);
    expect_queues(FIRST);
    group_must_send(leader, FIRST);
}
END_TEST

/* No checkpoint: everything is made anew from what remains, the configuration too. */
START_TEST(a_lost_checkpoint)
{
    group_all_up();
    struct group_node *leader = fill(0, FIRST);
    ck_assert_int_eq(replica_trim(&leader->replica, 2 * GROUP_SEGMENT), 0);
    group_steps(6000);
    expect_begin(2 * GROUP_SEGMENT);
    for (int i = 1; i <= GROUP_NODES; i++) {
        struct group_node *node = &group.nodes[i];
        group_kill(node);
        sim_env_remove(&node->sim, group_file(node, "checkpoint"));
    }
    group_all_up();
    group_wait_leader(3000);
    group_steps(300);
    expect_begin(2 * GROUP_SEGMENT);
    expect_queues(FIRST);
    fill(FIRST, 400);
    expect_queues(FIRST + 400);
}
END_TEST

/* Before a segment goes a start could still do without the metadata snapshots. They rot on the disk just then: they are made again first. */
START_TEST(rotten_snapshots)
{
    char name[] = "metadata.0";
    group_all_up();
    struct group_node *leader = fill(0, FIRST);
    struct group_node *node = group_other(leader, NULL);
    ck_assert_int_eq(replica_trim(&leader->replica, 2 * GROUP_SEGMENT), 0);
    group_steps(20);
    for (int i = 0; i < 6000 && replica_trim_wants_snapshot(&node->replica); i++)
        group_step();
    ck_assert(replica_trim_pending(&node->replica));
    ck_assert_uint_eq(mapped_file_queue_begin(&node->replica.ledger.data), 0);
    for (int i = 0; i < 2; i++) {
        name[sizeof name - 2] = (char)('0' + i);
        if (_i == i || _i == 2)
            sim_env_corrupt(&node->sim, group_file(node, name), 20, 4);
    }
    group_steps(8000);
    expect_begin(2 * GROUP_SEGMENT);
    ck_assert(metadata_snapshot_both_reach(&node->sim.env, node->replica.dir, node->replica.ledger.begin_index - 1));
    group_kill(node);
    group_up(node);
    group_steps(300);
    expect_begin(2 * GROUP_SEGMENT);
    expect_queues(FIRST);
}
END_TEST

/* What a member applies because the others have it may be far ahead of what its own disk has. Tables of that alone are worth nothing to the next start: the log
 * ends before them and begins behind what could make them anew. */
START_TEST(tables_ahead_of_the_disk)
{
    group_all_up();
    struct group_node *leader = fill(0, FIRST);
    struct group_node *node = group_other(leader, NULL);
    ck_assert_int_eq(replica_trim(&leader->replica, 2 * GROUP_SEGMENT), 0);
    group_steps(8000);
    expect_begin(2 * GROUP_SEGMENT);
    node->no_sync = true;
    fill(FIRST, FIRST);
    leader->replica.options.follower_lag_bytes_max = GROUP_SEGMENT; /* nothing is kept for it any longer */
    ck_assert_int_eq(replica_trim(&leader->replica, 4 * GROUP_SEGMENT), 0);
    group_steps(5000);
    ck_assert_int_gt((int64_t)node->replica.applied - 1, node->replica.ledger.synced_index);
    ck_assert_uint_eq(node->replica.ledger.trim_position, 4 * GROUP_SEGMENT);
    group_power_cut(node);
    group_up(node);
    for (int i = 0; i < 30000 && mapped_file_queue_begin(&node->replica.ledger.data) < 4 * GROUP_SEGMENT; i++)
        group_step();
    group_steps(300);
    expect_begin(4 * GROUP_SEGMENT);
    expect_queues(2 * FIRST);
}
END_TEST

/* A record that lets go more than there was when it was written is none: whoever meets it stops, and the log stays. */
START_TEST(a_record_that_deletes_itself)
{
    int64_t offset;
    int code;
    group_all_up();
    struct group_node *leader = fill(0, FIRST);
    uint64_t end = leader->replica.ledger.end_position;
    uint8_t *room = replica_reserve_for_trim(&leader->replica, 28, &offset, &code);
    ck_assert_ptr_nonnull(room);
    memset(room, 0, 28);
    store_u32(room, 1);
    store_u64(room + 4, end - end % GROUP_SEGMENT + GROUP_SEGMENT);
    replica_append(&leader->replica, LEDGER_ENTRY_TRIM, NULL);
    for (int i = 1; i <= GROUP_NODES; i++)
        group.nodes[i].may_fail = true;
    group_steps(3000);
    for (int i = 1; i <= GROUP_NODES; i++) {
        const struct replica *replica = &group.nodes[i].replica;
        ck_assert_uint_eq(replica->ledger.trim_position, 0);
        ck_assert_uint_eq(mapped_file_queue_begin(&replica->ledger.data), 0);
    }
    ck_assert_int_eq(leader->replica.phase, REPLICA_FAILED);
    ck_assert_ptr_nonnull(strstr(leader->replica.failure.message, "which says where the log begins"));
}
END_TEST

enum { MANY = 1500 };

static struct slice long_topic(int i)
{
    static char name[128];
    snprintf(name, sizeof name, "%0120d", i);
    return slice_of_text(name);
}

/* Entries that go to no queue until clients get no more room. */
static void fill_disks(void)
{
    int64_t offset;
    int code = 0;

    for (int i = 1; i <= GROUP_NODES; i++)
        group.nodes[i].sim.disk_bytes = group.nodes[i].sim.used_bytes;
    for (int full = 0; full < 200; group_step()) {
        struct group_node *leader = group_leader();
        uint8_t *room = leader == NULL ? NULL : replica_reserve(&leader->replica, 1000, &offset, &code);
        full = room != NULL ? 0 : full + (leader != NULL && code == ERROR_NO_SPACE);
        if (room == NULL)
            continue;
        memset(room, 0, 1000);
        replica_append(&leader->replica, LEDGER_ENTRY_METADATA, NULL);
    }
}

/* So many queues have no message left that one record cannot list them, or no longer when the disk is full. Where they end is known everywhere all the same, also to
 * who makes all of them anew. */
START_TEST(many_emptied_queues)
{
    group_all_up();
    for (int n = 1; n <= GROUP_NODES; n++) {
        for (int i = 0; i < MANY; i++)
            ck_assert_int_eq(message_store_reached(&group.nodes[n].store, long_topic(i), i % 3, 5 + i), 0);
    }
    fill(0, FIRST);
    struct group_node *leader = group_wait_leader(3000);
    if (_i == 1) {
        fill_disks();
        leader = group_wait_leader(3000);
    }
    raft_index before = raft_driver_last(&leader->replica.driver);
    ck_assert_int_eq(replica_trim(&leader->replica, 2 * GROUP_SEGMENT), 0);
    group_steps(100);
    ck_assert_uint_gt(raft_driver_last(&leader->replica.driver), before + 1);
    group_steps(6000);
    expect_begin(2 * GROUP_SEGMENT);
    for (int n = 1; n <= GROUP_NODES; n++)
        group.nodes[n].sim.disk_bytes = 0;
    group_must_send(group_wait_leader(3000), 0);
    for (int n = 1; n <= GROUP_NODES; n++) {
        group_kill(&group.nodes[n]);
        sim_env_remove(&group.nodes[n].sim, group_file(&group.nodes[n], "checkpoint"));
    }
    group_all_up();
    group_must_send(group_wait_leader(3000), 1);
    group_steps(300);
    for (int n = 1; n <= GROUP_NODES; n++) {
        for (int i = 0; i < MANY; i++) {
            struct consume_queue *queue = message_store_queue(&group.nodes[n].store, long_topic(i), i % 3, false, NULL);
            ck_assert_ptr_nonnull(queue);
            ck_assert_int_eq(queue->max_offset, 5 + i);
            ck_assert_int_eq(queue->min_offset, 5 + i);
        }
    }
}
END_TEST

/* ---- damage at the very place where the log begins ---- */

enum { HEADER_ZEROED, INDEX_FLIPPED, TERM_FLIPPED, PLACE_FLIPPED, SIZE_FLIPPED, CHAIN_FLIPPED, BODY_FLIPPED, BLOCK_ZEROED, SECOND_CHAIN_FLIPPED, BEGIN_DAMAGES };

static void spoil_begin(struct group_node *node, uint64_t begin, int damage)
{
    static const uint64_t fields[] = {[INDEX_FLIPPED] = 13, [TERM_FLIPPED] = 22, [PLACE_FLIPPED] = 30, [SIZE_FLIPPED] = 6, [CHAIN_FLIPPED] = 38, [BODY_FLIPPED] = 70};
    char name[40];
    uint64_t size;
    snprintf(name, sizeof name, "data/%020llu", (unsigned long long)begin);
    const char *path = group_file(node, name);
    const uint8_t *bytes = sim_env_bytes(&node->sim, path, &size);
    if (damage == SECOND_CHAIN_FLIPPED) {
        sim_env_corrupt(&node->sim, path, load_u32(bytes + 4) + 38, 4);
        return;
    }
    if (damage != HEADER_ZEROED && damage != BLOCK_ZEROED) {
        sim_env_corrupt(&node->sim, path, fields[damage], 0x10);
        return;
    }
    for (uint64_t at = 0; at < (damage == HEADER_ZEROED ? LEDGER_ENTRY_HEADER_SIZE : 4096); at++)
        sim_env_corrupt(&node->sim, path, at, bytes[at]);
}

static void expect_alike(uint64_t begin)
{
    for (int i = 1; i <= GROUP_NODES; i++) {
        struct replica *replica = &group.nodes[i].replica;
        uint64_t first = (uint64_t)replica->ledger.begin_index, last = (uint64_t)replica->ledger.last_index;
        ck_assert_int_eq(replica->phase, REPLICA_RUNNING);
        ck_assert_uint_eq(replica->ledger.hole_count, 0);
        ck_assert_uint_eq(ledger_verify(&replica->ledger, first, last, UINT64_MAX), last + 1);
        ck_assert_uint_eq(replica->ledger.hole_count, 0);
        const uint8_t *bytes = mapped_file_queue_at(&replica->ledger.data, begin, GROUP_SEGMENT);
        ck_assert_int_eq(memcmp(bytes, mapped_file_queue_at(&group.nodes[1].replica.ledger.data, begin, GROUP_SEGMENT), GROUP_SEGMENT), 0);
    }
}

static void expect_mended(uint64_t begin)
{

    for (int i = 0; i < 6000; i++) {
        bool whole = group_leader() != NULL;
        for (int n = 1; n <= GROUP_NODES; n++) {
            const struct replica *replica = &group.nodes[n].replica;
            whole = whole && replica->phase == REPLICA_RUNNING && replica->ledger.hole_count == 0 && mapped_file_queue_begin(&replica->ledger.data) == begin;
        }
        if (whole)
            break;
        group_step();
    }
    group_wait_leader(3000);
    group_steps(300);
    expect_begin(begin);
    expect_alike(begin);
}

/* Members whose logs begin there. */
static uint64_t begin_trimmed(void)
{
    const uint64_t begin = 2 * GROUP_SEGMENT;
    group_all_up();
    ck_assert_int_eq(replica_trim(&fill(0, FIRST)->replica, begin), 0);
    group_steps(6000);
    return begin;
}

/* Nothing before it tells whether its header is right: what is behind it, its index unit and the checkpoint do. One member, with one witness less each time. */
START_TEST(a_damaged_beginning)
{
    enum { ALL_WITNESSES, NO_CHECKPOINT, NO_INDEX, WAYS };
    uint64_t begin = begin_trimmed();
    int sent = FIRST;
    expect_begin(begin);
    for (int damage = 0; damage < BEGIN_DAMAGES; damage++) {
        for (int way = 0; way < WAYS; way++) {
            /* Without a checkpoint whatever breaks the chain may be an interrupted write. */
            if (way == NO_CHECKPOINT && (damage == CHAIN_FLIPPED || damage == SECOND_CHAIN_FLIPPED))
                continue;
            struct group_node *node = &group.nodes[1 + (damage + way) % GROUP_NODES];
            if (damage % 2 == 0 || way == NO_CHECKPOINT) /* a power cut takes the index, too */
                group_kill(node);
            else
                group_power_cut(node);
            spoil_begin(node, begin, damage);
            if (way == NO_CHECKPOINT)
                sim_env_remove(&node->sim, group_file(node, "checkpoint"));
            const char *path;
            while (way == NO_INDEX && (path = sim_env_file(&node->sim, group_file(node, "index/"), 0)) != NULL)
                sim_env_remove(&node->sim, path);
            group_up(node);
            expect_mended(begin);
            fill(sent, 8);
            sent += 8;
            expect_queues(sent);
        }
    }
}
END_TEST

/* All members at once, each at another place: the first entry of one is whole on the others. */
START_TEST(beginnings_damaged_on_all)
{
    uint64_t begin = begin_trimmed();
    for (int i = 1; i <= GROUP_NODES; i++)
        group_kill(&group.nodes[i]);
    spoil_begin(&group.nodes[1], begin, HEADER_ZEROED);
    spoil_begin(&group.nodes[2], begin, SECOND_CHAIN_FLIPPED);
    spoil_begin(&group.nodes[3], begin + GROUP_SEGMENT, HEADER_ZEROED);
    group_all_up();
    expect_mended(begin);
    expect_queues(FIRST);
}
END_TEST

/* Found by the scrub, while the member runs. */
START_TEST(a_beginning_that_rots)
{
    group.scrub_bytes_per_second = 4u << 20;
    uint64_t begin = begin_trimmed();
    struct replica *replica = &group.nodes[2].replica;
    for (int damage = 0; damage < BEGIN_DAMAGES; damage++) {
        uint64_t found = replica->damage_found;
        spoil_begin(&group.nodes[2], begin, damage);
        for (int i = 0; i < 6000 && replica->damage_found == found; i++)
            group_step();
        ck_assert_msg(replica->damage_found > found, "damage %d", damage);
        expect_mended(begin);
    }
    expect_queues(FIRST);
}
END_TEST

/* Down, with damage in entries that it would have to apply again. */
static void spoil_applied(struct group_node *node)
{
    const char *path;
    spoil_begin(node, GROUP_SEGMENT, BLOCK_ZEROED);
    while ((path = sim_env_file(&node->sim, group_file(node, "metadata."), 0)) != NULL)
        sim_env_remove(&node->sim, path);
    while ((path = sim_env_file(&node->sim, "/store/consumequeue/", 0)) != NULL)
        sim_env_remove(&node->sim, path);
}

/* Before it was found the others deleted all up to there: the first entry that they have left is the last one of the damage, or what is damaged is gone. */
START_TEST(damage_that_others_have_deleted)
{
    uint64_t begin = 2 * GROUP_SEGMENT;
    group_all_up();
    struct group_node *leader = fill(0, FIRST);
    struct group_node *node = group_other(leader, NULL);
    group_kill(node);
    leader = group_wait_leader(3000);
    leader->replica.options.follower_lag_bytes_max = 1; /* nothing is kept for it */
    fill(FIRST, 4000); /* the trim record is behind what it has */
    ck_assert_int_eq(replica_trim(&leader->replica, begin), 0);
    group_steps(6000);
    ck_assert_uint_eq(mapped_file_queue_begin(&leader->replica.ledger.data), begin);
    spoil_begin(node, _i == 0 ? begin : 0, HEADER_ZEROED);
    if (_i == 0) {
        spoil_begin(node, begin, BLOCK_ZEROED);
    } else {
        spoil_applied(node);
    }
    group_up(node);
    ck_assert_int_eq(node->replica.phase, REPLICA_MUTE);
    ck_assert_int_eq(node->replica.mute_reason, PEER_MUTE_DAMAGED);
    expect_mended(begin);
    ck_assert_int_eq(node->restarts, _i);
    expect_queues(FIRST + 4000);
}
END_TEST

/* It starts once more, with the log that it fetched, and all members hold so many messages. */
static void expect_fetched_anew(struct group_node *node, uint64_t begin, int messages)
{
    for (int i = 0; i < 20000 && node->restarts == 0; i++)
        group_step();
    ck_assert_int_eq(node->restarts, 1);
    expect_mended(begin);
    expect_queues(messages);
}

static void expect_waits(const struct group_node *node, int steps)
{
    for (int i = 0; i < steps; i++) {
        group_step();
        ck_assert_ptr_null(group_leader());
        ck_assert_int_eq(node->replica.phase, REPLICA_MUTE);
        ck_assert_int_eq(node->replica.mute_reason, PEER_MUTE_DAMAGED);
        ck_assert_int_eq(node->restarts, 0);
    }
}

/* ... and the third member is wiped, so that nobody leads whom it could ask, and nobody will before it has a whole log. The one that runs has all that this one may
 * have acknowledged. As long as the third is away, it may have what is damaged, and is waited for; it may be whole, too. */
START_TEST(damage_that_others_have_deleted_beside_an_empty_one)
{
    uint64_t begin = 2 * GROUP_SEGMENT;
    group_all_up();
    struct group_node *leader = fill(0, FIRST);
    struct group_node *node = group_other(leader, NULL), *third = group_other(leader, node);
    group_kill(node);
    leader = group_wait_leader(3000);
    leader->replica.options.follower_lag_bytes_max = 1;
    fill(FIRST, 4000);
    ck_assert_int_eq(replica_trim(&leader->replica, begin), 0);
    group_steps(6000);
    spoil_applied(node);
    group_kill(leader);
    group_kill(third);
    if (_i == 0)
        group_wipe(third);
    group_up(leader);
    group_up(node);
    expect_waits(node, 6000);
    group_up(third);
    expect_fetched_anew(node, begin, FIRST + 4000);
}
END_TEST

/* ... but it has acknowledged with the third what the one that runs lacks: it does not give that up, and waits until somebody is there who has as much. */
START_TEST(damage_that_others_have_deleted_and_acknowledged_messages)
{
    uint64_t begin = 2 * GROUP_SEGMENT;
    group_all_up();
    struct group_node *leader = fill(0, FIRST);
    struct group_node *node = group_other(leader, NULL), *less = group_other(leader, node);
    group_kill(node);
    leader->replica.options.follower_lag_bytes_max = 1;
    fill(FIRST, 4000);
    ck_assert_int_eq(replica_trim(&leader->replica, begin), 0);
    group_steps(6000);
    less->cut = true;
    group_up(node);
    for (int i = 0; i < 8; i++)
        group_must_send(leader, FIRST + 4000 + i);
    ck_assert_int_gt(node->replica.ledger.last_index, less->replica.ledger.last_index);
    group_kill(node);
    spoil_applied(node);
    group_kill(leader);
    group_kill(less);
    less->cut = false;
    struct sim_copy *copy = sim_env_copy(&leader->sim);
    group_wipe(leader);
    group_up(less);
    group_up(node);
    group_up(leader);
    expect_waits(node, 12000);
    group_kill(leader);
    sim_env_put_back(&leader->sim, copy);
    sim_env_copy_free(copy);
    group_up(leader);
    expect_fetched_anew(node, begin, FIRST + 4008);
}
END_TEST

/* A group of one: nobody has the entry. What a checkpoint vouches for is opened, but nothing of the hole is given out; without one the log is refused. */
START_TEST(a_damaged_beginning_of_one_alone)
{
    struct group_node *node = group_was_alone(FIRST);
    struct ledger *ledger = &node->replica.ledger;
    uint64_t begin = 2 * GROUP_SEGMENT;
    struct ledger_recovery recovery;
    struct ledger_entry entry;
    struct error error;
    group_up(node);
    group_wait_leader(3000);
    ck_assert_int_eq(replica_trim(&node->replica, begin), 0);
    group_steps(8000);
    ck_assert_uint_eq(mapped_file_queue_begin(&ledger->data), begin);
    int64_t first = ledger->begin_index;
    group_kill(node);
    spoil_begin(node, begin, _i);
    struct checkpoint *checkpoint = &node->replica.checkpoint;
    ck_assert_int_eq(ledger_open(ledger, &node->sim.env, group_dir(node), GROUP_SEGMENT, 1u << 20, true, checkpoint, true, NULL, &recovery, &error), 0);
    ck_assert_int_eq(ledger->begin_index, first);
    ck_assert_uint_eq(ledger->hole_count, 1);
    ck_assert(ledger_is_damaged(ledger, begin, LEDGER_ENTRY_HEADER_SIZE));
    ck_assert_ptr_null(ledger_entry(ledger, (uint64_t)first, &entry));
    ck_assert_ptr_nonnull(ledger_entry(ledger, (uint64_t)first + 1, &entry));
    ledger_close(ledger);
    checkpoint->present = false;
    int rv = ledger_open(ledger, &node->sim.env, group_dir(node), GROUP_SEGMENT, 1u << 20, true, checkpoint, false, NULL, &recovery, &error);
    ck_assert_int_eq(rv, ERROR_DAMAGED);
    ck_assert_msg(strstr(error.message, "data/00000000000002097152 at offset 0") != NULL && strstr(error.message, "restore a backup") != NULL, "%s", error.message);
}
END_TEST

/* The last unit of a queue without messages says that there is one further on: where it ends is known all the same to who makes the queue anew. */
START_TEST(an_emptied_queue_that_looks_full)
{
    char path[256];
    group_all_up();
    for (int n = 1; n <= GROUP_NODES; n++)
        ck_assert_int_eq(message_store_reached(&group.nodes[n].store, long_topic(1), 0, 7), 0);
    fill(0, FIRST);
    group_steps(6000); /* checkpoints */
    for (int n = 1; n <= GROUP_NODES; n++) {
        struct group_node *node = &group.nodes[n];
        const struct consume_queue_unit last = {(int64_t)2 * GROUP_SEGMENT + 1000, 10, 0};
        uint8_t bytes[CONSUME_QUEUE_UNIT_SIZE];
        consume_queue_encode(bytes, &last);
        snprintf(path, sizeof path, "%s/%020d", message_store_queue(&node->store, long_topic(1), 0, false, NULL)->files.dir, 0);
        group_kill(node);
        sim_env_put(&node->sim, path, sizeof bytes * 6, bytes, sizeof bytes);
    }
    group_all_up();
    struct group_node *leader = group_wait_leader(3000);
    group_steps(1500);
    ck_assert_int_eq(message_store_max_offset(&leader->store, long_topic(1), 0), 7);
    ck_assert_int_eq(replica_trim(&leader->replica, 2 * GROUP_SEGMENT), 0);
    group_steps(6000);
    expect_begin(2 * GROUP_SEGMENT);
    for (int n = 1; n <= GROUP_NODES; n++) {
        group_kill(&group.nodes[n]);
        sim_env_remove(&group.nodes[n].sim, path);
        sim_env_remove(&group.nodes[n].sim, group_file(&group.nodes[n], "checkpoint"));
    }
    group_all_up();
    group_must_send(group_wait_leader(3000), 1);
    group_steps(300);
    for (int n = 1; n <= GROUP_NODES; n++)
        ck_assert_int_eq(message_store_max_offset(&group.nodes[n].store, long_topic(1), 0), 7);
}
END_TEST

static uint64_t never_another(void *context, struct slice topic)
{
    (void)context, (void)topic;
    return 0;
}

/* Units at the place where the log begins are damaged while their node is down: the minimums are those of the others when the scrub has been there, or, where none is
 * set, when a reader has asked for the message that seems to be the first. */
START_TEST(damaged_first_units)
{
    static struct get_message_result result;
    char path[256];
    int64_t min[4];

    group_all_up();
    struct group_node *leader = fill(0, FIRST);
    ck_assert_int_eq(replica_trim(&leader->replica, 2 * GROUP_SEGMENT), 0);
    group_steps(6000);
    expect_begin(2 * GROUP_SEGMENT);
    struct group_node *node = group_other(leader, NULL);
    group_kill(node);
    for (int q = 0; q < 4; q++) {
        const struct consume_queue *queue = message_store_queue(&leader->store, SLICE_LITERAL("T"), q, false, NULL);
        struct consume_queue_unit unit = {0};
        /* Zeros at the minimum, or in front of it; or it says that it lies in front of the log. */
        int count = _i % 3 == 2 ? 1 : 3;
        min[q] = queue->min_offset;
        if (count == 1)
            unit = (struct consume_queue_unit){(int64_t)2 * GROUP_SEGMENT - 60, 10, 0};
        for (int64_t at = _i % 3 == 1 ? min[q] - 2 : min[q]; count > 0; at++, count--) {
            uint8_t bytes[CONSUME_QUEUE_UNIT_SIZE];
            uint64_t byte = (uint64_t)at * CONSUME_QUEUE_UNIT_SIZE;
            consume_queue_encode(bytes, &unit);
            snprintf(path, sizeof path, "%s/%020llu", queue->files.dir, (unsigned long long)(byte - byte % queue->files.file_size));
            sim_env_put(&node->sim, path, byte % queue->files.file_size, bytes, sizeof bytes);
        }
    }
    group.scrub_bytes_per_second = _i < 3 ? 1u << 20 : 0;
    group_up(node);
    node->store.topic_since = never_another;
    if (_i % 3 == 2) {
        for (int q = 0; q < 4; q++)
            ck_assert_int_eq(message_store_min_offset(&node->store, SLICE_LITERAL("T"), q), min[q] + 1);
    }
    for (int q = 0; _i >= 3 && q < 4; q++) {
        int64_t first = message_store_min_offset(&node->store, SLICE_LITERAL("T"), q);
        if (first == min[q] && _i % 3 == 1)
            continue; /* it lies right */
        message_store_get_message(&node->store, SLICE_LITERAL("T"), q, first, 32, NULL, &result);
        ck_assert(result.status == GET_MESSAGE_DAMAGED || q > 0); /* others are mended on the way */
        for (int i = 0; i < 5000 && node->store.doubt.any; i++)
            group_step();
    }
    for (int i = 0; i < 20000 && _i < 3 && node->replica.scrub_passes == 0; i++)
        group_step();
    group_steps(300);
    ck_assert(!node->store.doubt.any);
    expect_queues(FIRST);
    for (int q = 0; q < 4; q++) {
        message_store_get_message(&node->store, SLICE_LITERAL("T"), q, min[q], 32, NULL, &result);
        ck_assert_int_eq(result.status, GET_MESSAGE_FOUND);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("replica_trim");
    TCase *tcase = tcase_create("trim");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, group_set_up, group_tear_down);
    tcase_add_loop_test(tcase, all_members_begin_at_the_same_place, 0, 2);
    tcase_add_test(tcase, a_member_that_is_away_holds_the_log);
    tcase_add_test(tcase, an_emptied_member_after_a_trim);
    tcase_add_test(tcase, a_lost_checkpoint);
    tcase_add_loop_test(tcase, rotten_snapshots, 0, 3);
    tcase_add_test(tcase, tables_ahead_of_the_disk);
    tcase_add_test(tcase, a_record_that_deletes_itself);
    tcase_add_loop_test(tcase, many_emptied_queues, 0, 2);
    tcase_add_test(tcase, a_damaged_beginning);
    tcase_add_test(tcase, beginnings_damaged_on_all);
    tcase_add_test(tcase, a_beginning_that_rots);
    tcase_add_loop_test(tcase, damage_that_others_have_deleted, 0, 2);
    tcase_add_loop_test(tcase, damage_that_others_have_deleted_beside_an_empty_one, 0, 2);
    tcase_add_test(tcase, damage_that_others_have_deleted_and_acknowledged_messages);
    tcase_add_loop_test(tcase, a_damaged_beginning_of_one_alone, HEADER_ZEROED, INDEX_FLIPPED + 1);
    tcase_add_test(tcase, an_emptied_queue_that_looks_full);
    tcase_add_loop_test(tcase, damaged_first_units, 0, 5); /* no scrub for what nothing contradicts: not found */
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("loop");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, group_set_up, group_tear_down);
    tcase_add_test(tcase, the_loop_does_not_wait_for_a_removal);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
