/* Consume queues: bytes of the units, padding, growth, truncation at every unit, damage, full disks, syncing. */
#include "store/consume_queue.h"

#include "proto/buffer.h"

#include "../lib/sim_env.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>

#define FILE_UNITS 500
#define FILE_SIZE (FILE_UNITS * CONSUME_QUEUE_UNIT_SIZE)

static struct sim_env sim;
static struct error error;
static struct consume_queue queue;

static void open_queue(void)
{
    ck_assert_msg(consume_queue_open(&queue, &sim.env, "/s/consumequeue/T/3", "T", 3, FILE_SIZE, &error) == 0, "%s", error.message);
}

static void set_up(void)
{
    sim_env_init(&sim, 1, NULL);
    open_queue();
}

static void tear_down(void)
{
    consume_queue_close(&queue);
    ck_assert_uint_eq(sim_env_unreserved_pages(&sim), 0);
    ck_assert_uint_eq(sim.open_files, 0);
    ck_assert_uint_eq(sim.open_maps, 0);
    sim_env_close(&sim);
}

/* As a start does that takes no care of what becomes of it. */
static int recover(struct consume_queue *found, int64_t physical_offset, bool *damaged)
{
    struct consume_queue_end end;
    int rv = consume_queue_look(found, physical_offset, &end, &error);
    *damaged = end.damaged;
    return rv != 0 ? rv : consume_queue_cut(found, &end, &error);
}

static void reopen(void)
{
    consume_queue_close(&queue);
    open_queue();
}

/* Record n lies at 1000 + 100 n and has 90 bytes. */
static struct consume_queue_unit unit_of(int64_t n)
{
    return (struct consume_queue_unit){1000 + 100 * n, 90, 7 * n};
}

static void append(int64_t from, int64_t to)
{
    for (int64_t n = from; n < to; n++) {
        struct consume_queue_unit unit = unit_of(n);
        ck_assert_int_eq(consume_queue_append(&queue, n, &unit), 0);
    }
}

static void check_units(int64_t from, int64_t to)
{
    struct consume_queue_unit unit;
    ck_assert_int_eq(queue.min_offset, from);
    ck_assert_int_eq(queue.max_offset, to);
    ck_assert(!consume_queue_get(&queue, from - 1, &unit));
    ck_assert(!consume_queue_get(&queue, to, &unit));
    ck_assert(!consume_queue_get(&queue, -1, &unit));
    ck_assert(!consume_queue_get(&queue, INT64_MAX, &unit));
    ck_assert(!consume_queue_get(&queue, INT64_MIN, &unit));
    for (int64_t n = from; n < to; n++) {
        struct consume_queue_unit expected = unit_of(n);
        ck_assert(consume_queue_get(&queue, n, &unit));
        ck_assert_int_eq(unit.physical_offset, expected.physical_offset);
        ck_assert_int_eq(unit.size, expected.size);
        ck_assert_int_eq(unit.tags_code, expected.tags_code);
    }
    if (to > from)
        ck_assert_int_eq(queue.max_physical_offset, 1000 + 100 * (to - 1) + 90);
}

/* Invariant 19: the golden unit. */
START_TEST(golden_unit)
{
    static const uint8_t golden[] = {0, 0, 0, 0, 0, 0, 4, 0x18, 0, 0, 0, 0xCE, 0, 0, 0, 0, 0, 0x27, 0xA8, 7};
    struct consume_queue_unit unit = {1048, 206, 2598919};
    uint64_t size;
    ck_assert_int_eq(consume_queue_append(&queue, 0, &unit), 0);
    uint8_t *bytes = sim_env_bytes(&sim, "/s/consumequeue/T/3/00000000000000000000", &size);
    ck_assert_uint_eq(size, FILE_SIZE);
    ck_assert_mem_eq(bytes, golden, sizeof golden);
    ck_assert_int_eq(queue.max_physical_offset, 1254);
}
END_TEST

/* Invariant 20: a first write at queue offset 5 is padded in front. */
START_TEST(first_unit_behind_zero)
{
    static const uint8_t pad[20] = {[8] = 0x7F, [9] = 0xFF, [10] = 0xFF, [11] = 0xFF};
    uint64_t size;
    append(5, 6);
    check_units(5, 6);
    uint8_t *bytes = sim_env_bytes(&sim, "/s/consumequeue/T/3/00000000000000000000", &size);
    for (int i = 0; i < 5; i++)
        ck_assert_mem_eq(bytes + i * 20, pad, 20);
    reopen();
    check_units(5, 6);
    bool damaged;
    ck_assert_int_eq(recover(&queue, INT64_MAX, &damaged), 0);
    ck_assert(!damaged);
    check_units(5, 6);
    /* Without its only unit the queue is empty, and may begin elsewhere. */
    ck_assert_int_eq(recover(&queue, 0, &damaged), 0);
    ck_assert_int_eq(queue.max_offset, 0);
    ck_assert_uint_eq(queue.files.count, 0);
    append(FILE_UNITS * 3 + 7, FILE_UNITS * 3 + 9);
    check_units(FILE_UNITS * 3 + 7, FILE_UNITS * 3 + 9);
    reopen();
    check_units(FILE_UNITS * 3 + 7, FILE_UNITS * 3 + 9);
}
END_TEST

START_TEST(empty_queue_costs_nothing)
{
    ck_assert(!sim_env_exists(&sim, "/s/consumequeue/T/3"));
    ck_assert_uint_eq(sim.used_bytes, 0);
    append(0, 1);
    ck_assert_uint_le(sim.used_bytes, 4096);
    append(1, 200);
    ck_assert_uint_le(sim.used_bytes, 4096);
}
END_TEST

START_TEST(grows_over_files)
{
    struct consume_queue_unit unit = unit_of(9);
    append(0, FILE_UNITS * 2 + 3);
    check_units(0, FILE_UNITS * 2 + 3);
    ck_assert_uint_eq(queue.files.count, 3);
    ck_assert_int_eq(consume_queue_append(&queue, FILE_UNITS * 2 + 4, &unit), ERROR_DAMAGED);
    ck_assert_int_eq(consume_queue_append(&queue, 4, &unit), ERROR_DAMAGED);
    reopen();
    check_units(0, FILE_UNITS * 2 + 3);
    append(FILE_UNITS * 2 + 3, FILE_UNITS * 2 + 9);
    reopen();
    check_units(0, FILE_UNITS * 2 + 9);
}
END_TEST

START_TEST(reopen_at_every_length)
{
    for (int64_t n = 1; n <= FILE_UNITS + 5; n++) {
        append(n - 1, n);
        reopen();
        ck_assert_int_eq(queue.max_offset, n);
        ck_assert_int_eq(queue.max_physical_offset, 1000 + 100 * (n - 1) + 90);
    }
    check_units(0, FILE_UNITS + 5);
}
END_TEST

/* Cut at every unit border, and between; what is cut reads as never written. */
START_TEST(truncate_everywhere)
{
    for (int64_t keep = 0; keep <= 12; keep++) {
        for (int64_t delta = -5; delta <= 0; delta += 5) {
            int64_t base = FILE_UNITS - 6;
            append(queue.max_offset, base + 12);
            ck_assert_int_eq(consume_queue_truncate(&queue, 1000 + 100 * (base + keep) + delta, &error), 0);
            check_units(0, base + keep);
            uint64_t digest = sim_env_digest(&sim, "/s");
            reopen();
            check_units(0, base + keep);
            /* Byte for byte what a queue is that never held more. */
            ck_assert_int_eq(consume_queue_truncate(&queue, 0, &error), 0);
            ck_assert_int_eq(queue.max_offset, 0);
            append(0, base + keep);
            ck_assert_uint_eq(sim_env_digest(&sim, "/s"), digest);
        }
    }
}
END_TEST

START_TEST(minimum_follows_the_log)
{
    append(0, FILE_UNITS * 3);
    ck_assert_int_eq(consume_queue_correct_min(&queue, 1000, &error), 0);
    check_units(0, FILE_UNITS * 3);
    ck_assert_int_eq(consume_queue_correct_min(&queue, 1001, &error), 0);
    check_units(1, FILE_UNITS * 3);
    ck_assert_uint_eq(queue.files.count, 3);
    /* Invariant 22. */
    ck_assert_int_eq(consume_queue_correct_min(&queue, 1000 + 100 * (FILE_UNITS + 3) - 10, &error), 0);
    check_units(FILE_UNITS + 3, FILE_UNITS * 3);
    ck_assert_uint_eq(queue.files.count, 2);
    ck_assert_int_eq(consume_queue_correct_min(&queue, 2000, &error), 0); /* never back */
    check_units(FILE_UNITS + 3, FILE_UNITS * 3);
    /* Everything is gone from the log: the counter stays. */
    ck_assert_int_eq(consume_queue_correct_min(&queue, INT64_MAX, &error), 0);
    ck_assert_int_eq(queue.min_offset, FILE_UNITS * 3);
    ck_assert_int_eq(queue.max_offset, FILE_UNITS * 3);
    ck_assert_uint_eq(queue.files.count, 1);
    reopen();
    ck_assert_int_eq(consume_queue_correct_min(&queue, INT64_MAX, &error), 0);
    ck_assert_int_eq(queue.min_offset, FILE_UNITS * 3);
    append(FILE_UNITS * 3, FILE_UNITS * 3 + 1);
    check_units(FILE_UNITS * 3, FILE_UNITS * 3 + 1);
}
END_TEST

START_TEST(lower_bound)
{
    append(0, 777);
    for (int64_t n = 0; n < 777; n += 31) {
        ck_assert_int_eq(consume_queue_lower_bound(&queue, 1000 + 100 * n), n);
        ck_assert_int_eq(consume_queue_lower_bound(&queue, 1000 + 100 * n + 1), n + 1);
    }
    ck_assert_int_eq(consume_queue_lower_bound(&queue, INT64_MAX), 777);
    ck_assert_int_eq(consume_queue_lower_bound(&queue, 0), 0);
}
END_TEST

/* A unit near the end is broken, whichever and however: the queue ends before it and says so. */
START_TEST(damaged_tail)
{
    static const int64_t sizes[] = {1, 2, 100, 204, 205, 206, 300, FILE_UNITS, FILE_UNITS + 2};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        int64_t total = sizes[s];
        for (int64_t back = 1; back <= 20 && back <= total; back++) {
            for (int kind = 0; kind < 3; kind++) {
                ck_assert_int_eq(consume_queue_truncate(&queue, 0, &error), 0);
                append(0, total);
                int64_t broken = total - back;
                uint64_t page = (uint64_t)(total - 1) * 20 / 4096;
                /* Only the page in which the queue ends is looked at. */
                if ((uint64_t)broken * 20 / 4096 != page || broken / FILE_UNITS != (total - 1) / FILE_UNITS || (uint64_t)broken * 20 % 4096 > 4076)
                    continue;
                uint8_t *p = mapped_file_queue_at(&queue.files, (uint64_t)broken * 20, 20);
                if (kind == 0)
                    memset(p, 0, 20);
                else if (kind == 1)
                    store_u32(p + 8, 0x80000001u);
                else
                    store_u64(p, broken > 0 ? 1 : INT64_MAX - 200); /* out of order */
                reopen();
                bool damaged;
                ck_assert_int_eq(recover(&queue, 1000 + 100 * total, &damaged), 0);
                ck_assert_msg(queue.max_offset <= broken, "%d units, unit %d, kind %d: ends at %d", (int)total, (int)broken, kind,
                              (int)queue.max_offset);
                /* The last unit in zeros, or too far, is a shorter queue: position and log tell the rest. */
                if (back > 1)
                    ck_assert_msg(damaged, "%d units, unit %d, kind %d", (int)total, (int)broken, kind);
                append(queue.max_offset, total);
                check_units(0, total);
            }
        }
    }
}
END_TEST

START_TEST(full_disk)
{
    sim.disk_bytes = 5 * 4096;
    int64_t n = 0;
    int rv = 0;
    while (rv == 0 && n < 10000) {
        struct consume_queue_unit unit = unit_of(n);
        rv = consume_queue_append(&queue, n, &unit);
        if (rv == 0)
            n++;
    }
    ck_assert_int_eq(rv, ERROR_NO_SPACE);
    check_units(0, n);
    ck_assert_int_gt(n, FILE_UNITS);
    /* Again, and again once there is room. */
    struct consume_queue_unit unit = unit_of(n);
    ck_assert_int_eq(consume_queue_append(&queue, n, &unit), ERROR_NO_SPACE);
    sim.disk_bytes = 1 << 20;
    append(n, n + 300);
    check_units(0, n + 300);
}
END_TEST

START_TEST(full_disk_at_first_unit)
{
    struct consume_queue_unit unit = unit_of(0);
    sim_env_fail_at(&sim, SIM_ALLOCATE, 1, ENOSPC, true);
    ck_assert_int_eq(consume_queue_append(&queue, 7, &unit), ERROR_NO_SPACE);
    ck_assert_int_eq(queue.max_offset, 0);
    ck_assert_uint_eq(queue.files.count, 0);
    sim.fault.calls = 0;
    append(0, 3);
    check_units(0, 3);
}
END_TEST

/* Each call that an append makes fails once: the queue goes on afterwards. */
START_TEST(every_call_fails_once)
{
    for (uint64_t n = 1; n < 40; n++) {
        ck_assert_int_eq(consume_queue_truncate(&queue, 0, &error), 0);
        sim_env_fail_at(&sim, SIM_ALL, n, EIO, false);
        for (int64_t i = 0; i < FILE_UNITS + 10; i++) {
            struct consume_queue_unit unit = unit_of(i);
            int rv = consume_queue_append(&queue, i, &unit);
            if (rv != 0) {
                ck_assert_int_eq(rv, ERROR_IO);
                ck_assert_int_eq(consume_queue_append(&queue, i, &unit), 0);
            }
        }
        sim.fault.calls = 0;
        check_units(0, FILE_UNITS + 10);
    }
}
END_TEST

/* A start looks at a page or two of each queue: it maps none, and a read that fails is no reason to think that the queue is shorter. */
START_TEST(start_reads_and_does_not_map)
{
    const int64_t end = 2 * FILE_UNITS + 300;
    const int64_t limit = unit_of(end).physical_offset;
    bool damaged;
    append(0, end);
    ck_assert_int_eq(consume_queue_sync(&queue), 0);
    reopen();
    ck_assert_uint_eq(sim.open_maps, 0);
    ck_assert_uint_eq(sim.open_files, 0);
    uint64_t digest = sim_env_digest(&sim, "/s/consumequeue");
    int opens_failed = 0, looks_failed = 0;
    consume_queue_close(&queue);
    for (uint64_t n = 1; n < 20; n++) {
        sim_env_fail_at(&sim, SIM_READ, n, EIO, false);
        int rv = consume_queue_open(&queue, &sim.env, "/s/consumequeue/T/3", "T", 3, FILE_SIZE, &error);
        sim.fault.calls = 0;
        if (rv == 0) {
            ck_assert_int_eq(queue.max_offset, end);
            ck_assert_int_eq(queue.min_offset, 0);
            consume_queue_close(&queue);
        } else {
            ck_assert_int_eq(rv, ERROR_IO);
            opens_failed++;
        }
        ck_assert_uint_eq(sim.open_files, 0);

        open_queue();
        struct mapped_file_window window;
        consume_queue_begin_look(&queue, &window);
        sim_env_fail_at(&sim, SIM_READ, n, EIO, false);
        rv = recover(&queue, limit, &damaged);
        sim.fault.calls = 0;
        ck_assert_int_eq(consume_queue_end_look(&queue, &error), rv);
        ck_assert(rv == 0 || rv == ERROR_IO);
        looks_failed += rv != 0;
        ck_assert_int_eq(queue.max_offset, end);
        ck_assert_uint_eq(sim.open_maps, 0);
        consume_queue_close(&queue);
        ck_assert_uint_eq(sim_env_digest(&sim, "/s/consumequeue"), digest);
    }
    ck_assert_int_gt(opens_failed, 0);
    ck_assert_int_gt(looks_failed, 0);
    open_queue();
    check_units(0, end);
    append(end, end + 10);
    check_units(0, end + 10);
}
END_TEST

/* What was synced is there after a power cut, whatever else is. */
START_TEST(synced_units_survive_power_cuts)
{
    for (int round = 0; round < 60; round++) {
        int64_t synced = queue.max_offset + (int64_t)sim_env_chance(&sim, 300);
        append(queue.max_offset, synced);
        ck_assert_int_eq(consume_queue_sync(&queue), 0);
        ck_assert_int_eq(sim.env.ops->sync_dir(&sim.env, "/s/consumequeue/T"), 0);
        ck_assert_int_eq(sim.env.ops->sync_dir(&sim.env, "/s/consumequeue"), 0);
        ck_assert_int_eq(sim.env.ops->sync_dir(&sim.env, "/s"), 0);
        ck_assert_int_eq(sim.env.ops->sync_dir(&sim.env, "/"), 0);
        append(synced, synced + (int64_t)sim_env_chance(&sim, 700));
        sim_env_power_cut(&sim);
        consume_queue_close(&queue);
        sim_env_restart(&sim);
        open_queue();
        bool damaged;
        ck_assert_int_eq(recover(&queue, 1000 + 100 * synced, &damaged), 0);
        ck_assert(!damaged);
        check_units(0, synced);
    }
}
END_TEST

static void power_cut(void)
{
    sim_env_power_cut(&sim);
    consume_queue_close(&queue);
    sim_env_restart(&sim);
    open_queue();
}

/* Units that were cut off do not come back, also when they were durable before. */
START_TEST(synced_cut_survives_power_cuts)
{
    for (uint64_t seed = 1; seed <= 10; seed++) {
        consume_queue_close(&queue);
        sim_env_close(&sim);
        sim_env_init(&sim, seed, NULL);
        open_queue();
        append(0, 400);
        ck_assert_int_eq(consume_queue_sync(&queue), 0);
        ck_assert_int_eq(consume_queue_truncate(&queue, 1000 + 100 * 150, &error), 0);
        check_units(0, 150);
        append(150, 160);
        ck_assert_int_eq(consume_queue_sync(&queue), 0);
        power_cut();
        check_units(0, 160);
    }
}
END_TEST

/* A hole that a power cut left, and units behind it of records that are gone. */
START_TEST(tail_is_cleared)
{
    uint64_t size;
    append(0, 480);
    ck_assert_int_eq(consume_queue_sync(&queue), 0);
    memset(sim_env_bytes(&sim, "/s/consumequeue/T/3/00000000000000000000", &size) + 100 * 20, 0, 200 * 20);
    reopen();
    bool damaged;
    ck_assert_int_eq(recover(&queue, 1000 + 100 * 90, &damaged), 0);
    ck_assert_int_eq(consume_queue_clear_tail(&queue, &error), 0);
    check_units(0, 90);
    append(90, 120); /* in front of what was cleared */
    ck_assert_int_eq(consume_queue_sync(&queue), 0);
    power_cut();
    check_units(0, 120);
    const uint8_t *bytes = sim_env_bytes(&sim, "/s/consumequeue/T/3/00000000000000000000", &size);
    for (uint64_t at = 120 * 20; at < size; at++)
        ck_assert_uint_eq(bytes[at], 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("consume_queue");
    TCase *tcase = tcase_create("core");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, golden_unit);
    tcase_add_test(tcase, first_unit_behind_zero);
    tcase_add_test(tcase, empty_queue_costs_nothing);
    tcase_add_test(tcase, grows_over_files);
    tcase_add_test(tcase, reopen_at_every_length);
    tcase_add_test(tcase, truncate_everywhere);
    tcase_add_test(tcase, minimum_follows_the_log);
    tcase_add_test(tcase, lower_bound);
    tcase_add_test(tcase, damaged_tail);
    tcase_add_test(tcase, full_disk);
    tcase_add_test(tcase, full_disk_at_first_unit);
    tcase_add_test(tcase, every_call_fails_once);
    tcase_add_test(tcase, start_reads_and_does_not_map);
    tcase_add_test(tcase, synced_units_survive_power_cuts);
    tcase_add_test(tcase, synced_cut_survives_power_cuts);
    tcase_add_test(tcase, tail_is_cleared);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
