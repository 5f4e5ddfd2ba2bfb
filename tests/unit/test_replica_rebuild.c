/* A start that makes queues or index anew, and dies before it is done: the one after it must not take what that left for whole. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "dledger/replica_internal.h"
#include "store/index_service.h"
#include "tests/lib/replica_group.h"
#include "tests/lib/run_suite.h"

#define MESSAGES 1600 /* 400 in each queue, on two pages */
#define QUEUE_FILE "/store/consumequeue/T/%d/00000000000000000000"
#define INDEX_DIR "/store/index"
#define LAST_PAGE 4096u /* of a queue's two */

enum damage {
    DAMAGE_ALL_QUEUES,    /* no queue file is there */
    DAMAGE_QUEUE_TAIL,    /* a unit in the page in which a queue ends */
    DAMAGE_QUEUE_HEAD,    /* a queue's first unit, where it ends on its first page */
    DAMAGE_NO_INDEX,      /* the index's directory is gone */
    DAMAGE_QUEUE_END,     /* the newest units of a queue are gone */
    DAMAGE_NO_QUEUE,      /* a queue is gone */
    DAMAGE_INDEX_ENTRIES, /* in the middle of the file, seen on another boot only */
    DAMAGES
};

static int messages(enum damage damage)
{
    return damage == DAMAGE_QUEUE_HEAD ? 400 : MESSAGES;
}

/* Of the index: the only file. */
static const char *index_path(struct group_node *node)
{
    const char *path = sim_env_file(&node->sim, INDEX_DIR "/", 0);
    ck_assert_ptr_nonnull(path);
    return path;
}

static void spoil(struct group_node *node, enum damage damage)
{
    static const uint8_t zeros[200];
    char path[100];

    switch (damage) {
    case DAMAGE_ALL_QUEUES:
        for (int q = 0; q < 4; q++) {
            snprintf(path, sizeof path, QUEUE_FILE, q);
            sim_env_remove(&node->sim, path);
        }
        break;
    case DAMAGE_QUEUE_TAIL:
        snprintf(path, sizeof path, QUEUE_FILE, 2);
        sim_env_put(&node->sim, path, LAST_PAGE + 20 * 20, zeros, 20);
        break;
    case DAMAGE_QUEUE_HEAD:
        snprintf(path, sizeof path, QUEUE_FILE, 2);
        sim_env_put(&node->sim, path, 0, zeros, 20);
        break;
    case DAMAGE_QUEUE_END:
        snprintf(path, sizeof path, QUEUE_FILE, 1);
        sim_env_put(&node->sim, path, 390 * 20, zeros, 10 * 20);
        break;
    case DAMAGE_NO_QUEUE:
        snprintf(path, sizeof path, QUEUE_FILE, 3);
        sim_env_remove(&node->sim, path);
        ck_assert_int_eq(node->sim.env.ops->remove_dir(&node->sim.env, "/store/consumequeue/T/3"), 0);
        break;
    case DAMAGE_NO_INDEX:
        snprintf(path, sizeof path, "%s", index_path(node));
        sim_env_remove(&node->sim, path);
        ck_assert_int_eq(node->sim.env.ops->remove_dir(&node->sim.env, INDEX_DIR), 0);
        break;
    default: /* 4,000 entries: halving looks at number 1,000 */
        sim_env_put(&node->sim, index_path(node), INDEX_HEADER_SIZE + 1000 * INDEX_SLOT_SIZE + 999 * INDEX_ENTRY_SIZE, zeros, 3 * INDEX_ENTRY_SIZE);
        break;
    }
}

/* Member 1, down again, alone with so many messages, all dispatched and synced, as its checkpoint says. */
static struct group_node *was_alone(int count, bool power)
{
    static struct checkpoint found;
    struct error error;
    struct group_node *node = group_was_alone(count);

    group_up(node);
    group_steps(8000);
    replica_start_save(&node->replica, true); /* with a snapshot: else all is applied again anyhow */
    group_step();
    ck_assert_int_eq(node->replica.snapshot_index + 1, (int64_t)node->replica.applied);
    if (power)
        group_power_cut(node);
    else
        group_kill(node);
    ck_assert_int_eq(checkpoint_load(&found, &node->sim.env, group_file(node, "checkpoint"), &error), 0);
    ck_assert_uint_gt(found.dispatched_position, (uint64_t)count * 100);
    ck_assert_uint_eq(found.synced_dispatched_position, found.dispatched_position);
    return node;
}

static void expect_unit(struct group_node *node, int q, int64_t at, int64_t *before)
{
    struct consume_queue *queue = message_store_queue(&node->store, SLICE_LITERAL("T"), q, false, NULL);
    struct consume_queue_unit unit;
    ck_assert_ptr_nonnull(queue);
    ck_assert_msg(consume_queue_get(queue, at, &unit), "queue %d has no unit %lld", q, (long long)at);
    ck_assert_int_gt(unit.physical_offset, *before);
    ck_assert_uint_eq(message_store_record_size(&node->store, unit.physical_offset), (uint32_t)unit.size);
    *before = unit.physical_offset;
}

static void expect_whole(struct group_node *node, int count)
{
    uint32_t indexed = 0;
    for (int q = 0; q < 4; q++) {
        int64_t before = 0;
        ck_assert_int_eq(message_store_min_offset(&node->store, SLICE_LITERAL("T"), q), 0);
        ck_assert_int_eq(message_store_max_offset(&node->store, SLICE_LITERAL("T"), q), (count + 3 - q) / 4);
        for (int64_t at = 0; at < (count + 3 - q) / 4; at++)
            expect_unit(node, q, at, &before);
    }
    for (size_t i = 0; i < node->store.index->count; i++)
        indexed += node->store.index->files[i]->count - 1;
    ck_assert_uint_eq(indexed, (uint32_t)count);
}

/* Whole, and the next message gets the next offset. */
static void expect_goes_on(struct group_node *node, int count)
{
    group_wait_leader(3000);
    for (int i = 0; i < 1000 && group_messages(node) < count; i++)
        group_step(); /* a leader learns of the newest that they are committed */
    expect_whole(node, count);
    for (int i = 0; i < 4; i++)
        group_must_send(node, count + i);
    expect_whole(node, count + 4);
}

/* The start dies in any of its calls of the disk. */
START_TEST(test_dies_while_it_rebuilds)
{
    const enum damage damage = (enum damage)(_i / 4);
    const bool power = (_i & 1) != 0;
    const int count = messages(damage);
    int deaths = 0;

    group.keyed = true;
    group.durability = (_i & 2) != 0 ? DURABILITY_A : DURABILITY_B;
    struct group_node *node = was_alone(count, power || damage == DAMAGE_INDEX_ENTRIES);
    spoil(node, damage);
    const uint64_t boot_id = node->sim.boot_id;
    struct sim_copy *copy = sim_env_copy(&node->sim);
    for (uint64_t n = 1;; n += 1 + sim_env_chance(&node->sim, group.durability == DURABILITY_A ? 24 : 6)) {
        sim_env_put_back(&node->sim, copy);
        node->sim.boot_id = boot_id;
        node->sim.writeback_per_mille = power ? 300 : 0;
        bool died = group_dies_at_start(node, SIM_CHANGES, n, power);
        node->sim.writeback_per_mille = 0;
        if (died)
            group_up(node);
        deaths += died;
        expect_goes_on(node, count);
        /* What this run made anew, and what it says of that, survives a power cut, whenever that comes. */
        group_steps(n % 2 == 0 || group.durability == DURABILITY_A ? 1100 : 1);
        group_power_cut(node);
        group_up(node);
        expect_goes_on(node, count + 4);
        group_kill(node);
        if (!died)
            break;
    }
    sim_env_copy_free(copy);
    ck_assert_int_gt(deaths, 1);
}
END_TEST

/* ... and every start after it too, for some time. */
START_TEST(test_dies_again_and_again)
{
    const enum damage damage = (enum damage)_i;
    const int count = messages(damage);
    group.keyed = true;
    struct group_node *node = was_alone(count, damage == DAMAGE_INDEX_ENTRIES);

    spoil(node, damage);
    for (int i = 0; i < 40; i++) {
        bool power = sim_env_chance(&node->sim, 3) == 0;
        node->sim.writeback_per_mille = 100;
        if (!group_dies_at_start(node, SIM_CHANGES, 1 + sim_env_chance(&node->sim, 60), power))
            group_kill(node);
    }
    node->sim.writeback_per_mille = 0;
    group_up(node);
    expect_goes_on(node, count);
}
END_TEST

/* A queue lost its end and nothing tells, until a message does not fit it: no number is given out again, and the next start makes it anew. */
START_TEST(test_what_does_not_fit_is_made_anew)
{
    group_all_up();
    for (int i = 0; i < MESSAGES; i++)
        group_must_send(group_wait_leader(3000), i);
    struct group_node *leader = group_wait_leader(3000), *follower = group_other(leader, NULL);
    group_steps(8000);
    replica_start_save(&follower->replica, true);
    group_step();
    group_kill(follower);
    spoil(follower, DAMAGE_QUEUE_END);
    sim_env_remove(&follower->sim, "/store/queuesums");
    group_up(follower);
    follower->may_fail = true;
    for (int i = MESSAGES; i < MESSAGES + 4; i++)
        group_must_send(leader, i);
    for (int i = 0; i < 2000 && follower->replica.phase != REPLICA_FAILED; i++)
        group_step();
    ck_assert_int_eq(follower->replica.phase, REPLICA_FAILED);
    ck_assert_ptr_nonnull(strstr(follower->replica.failure.message, "does not fit the queues"));
    ck_assert_int_eq(message_store_max_offset(&follower->store, SLICE_LITERAL("T"), 1), 390);
    group_kill(follower);
    follower->may_fail = false;
    group_up(follower);
    group_steps(200);
    ck_assert_int_eq(follower->store.recovered_position, 0);
    for (int q = 0; q < 4; q++)
        ck_assert_int_eq(message_store_max_offset(&follower->store, SLICE_LITERAL("T"), q), MESSAGES / 4 + 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("replica_rebuild");
    TCase *tcase = tcase_create("replica_rebuild");
    tcase_set_timeout(tcase, 300);
    tcase_add_checked_fixture(tcase, group_set_up, group_tear_down);
    tcase_add_loop_test(tcase, test_dies_while_it_rebuilds, 0, DAMAGES * 4);
    tcase_add_loop_test(tcase, test_dies_again_and_again, 0, DAMAGES);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("unfit");
    tcase_add_checked_fixture(tcase, group_set_up, group_tear_down);
    tcase_add_test(tcase, test_what_does_not_fit_is_made_anew);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
