/* The metadata snapshot: two files in turn, damage, and what power cuts may and may not leave of them. */
#include "dledger/metadata_snapshot.h"

#include <check.h>

#include "tests/lib/run_suite.h"
#include "tests/lib/sim_env.h"

#define DIR "/d"

static struct sim_env sim;

static void begin(uint64_t seed)
{
    sim_env_init(&sim, seed, NULL);
    ck_assert_int_eq(sim.env.ops->make_dir(&sim.env, DIR), 0);
    ck_assert_int_eq(sim.env.ops->sync_dir(&sim.env, "/"), 0);
}

static int write_snapshot(int64_t current, int64_t index, const char *text)
{
    struct buffer file;
    struct error error;
    char path[64];
    int rv;

    buffer_init(&file, 0);
    ck_assert_int_eq(metadata_snapshot_begin(&file, index), 0);
    buffer_append_text(&file, text);
    ck_assert_int_eq(metadata_snapshot_end(&file), 0);
    metadata_snapshot_path(&sim.env, DIR, current, path, sizeof path);
    rv = metadata_snapshot_write(&sim.env, path, buffer_slice(&file), &error);
    buffer_close(&file);
    return rv;
}

static void expect(int64_t index_max, int64_t index, const char *text)
{
    struct buffer body;
    struct error error;
    int64_t found;

    buffer_init(&body, 0);
    ck_assert_int_eq(metadata_snapshot_load(&sim.env, DIR, index_max, &body, &found, &error), 0);
    ck_assert_int_eq(found, index);
    ck_assert(slice_equal_text(buffer_slice(&body), text));
    buffer_close(&body);
}

static void power_cut(void)
{
    sim_env_power_cut(&sim);
    sim_env_restart(&sim);
}

START_TEST(test_two_in_turn)
{
    begin(1);
    expect(INT64_MAX, -1, "");
    ck_assert_int_eq(write_snapshot(-1, 10, "ten"), 0);
    ck_assert_int_eq(write_snapshot(10, 20, "twenty"), 0);
    expect(INT64_MAX, 20, "twenty");
    expect(19, 10, "ten");
    expect(9, -1, "");
    ck_assert_int_eq(write_snapshot(20, 30, "thirty"), 0);
    expect(29, 20, "twenty");
    expect(19, -1, "");
    sim_env_close(&sim);
}
END_TEST

START_TEST(test_damage)
{
    begin(1);
    ck_assert_int_eq(write_snapshot(-1, 10, "ten"), 0);
    ck_assert_int_eq(write_snapshot(10, 20, "twenty"), 0);
    for (uint64_t at = 0; at < 28 + 6; at++) { /* each byte of header and body */
        sim_env_corrupt(&sim, DIR "/metadata.1", at, 0x10);
        expect(INT64_MAX, 10, "ten");
        sim_env_corrupt(&sim, DIR "/metadata.1", at, 0x10);
    }
    expect(INT64_MAX, 20, "twenty");
    ck_assert(metadata_snapshot_both_reach(&sim.env, DIR, 10));
    ck_assert(!metadata_snapshot_both_reach(&sim.env, DIR, 11));
    for (int i = 0; i < 2; i++) { /* the bad one is written anew, whichever it is, and the good one stays */
        sim_env_corrupt(&sim, i == 0 ? DIR "/metadata.1" : DIR "/metadata.0", 5, 0x10);
        ck_assert(!metadata_snapshot_both_reach(&sim.env, DIR, 0));
        ck_assert_int_eq(write_snapshot(20 + 10 * i, 30 + 10 * i, "new"), 0);
        ck_assert(metadata_snapshot_both_reach(&sim.env, DIR, i == 0 ? 10 : 30));
        expect(29, i == 0 ? 10 : -1, i == 0 ? "ten" : "");
    }
    sim_env_close(&sim);
}
END_TEST

/* Of a process that died before its sync the page cache may have it all: found once, it stays. */
START_TEST(test_found_is_durable)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        begin(seed);
        ck_assert_int_eq(write_snapshot(-1, 10, "ten"), 0);
        ck_assert_int_eq(write_snapshot(10, 15, "fifteen"), 0);
        ck_assert_int_eq(sim.env.ops->sync_dir(&sim.env, DIR), 0);
        sim_env_kill_at(&sim, SIM_SYNC, 1);
        ck_assert_int_ne(write_snapshot(15, 20, "twenty"), 0);
        sim_env_restart(&sim);
        expect(INT64_MAX, 20, "twenty");
        power_cut();
        expect(INT64_MAX, 20, "twenty");
        sim_env_close(&sim);
    }
}
END_TEST

/* The first one of each file makes its name, which a power cut must not take either: a checkpoint that is written next speaks of it. */
START_TEST(test_names_are_durable)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        begin(seed);
        ck_assert_int_eq(write_snapshot(-1, 10, "ten"), 0);
        power_cut();
        expect(INT64_MAX, 10, "ten");
        ck_assert_int_eq(write_snapshot(10, 20, "twenty"), 0);
        power_cut();
        expect(INT64_MAX, 20, "twenty");
        sim_env_close(&sim);
    }
}
END_TEST

/* What the log lost its snapshot loses too, for good. */
START_TEST(test_forget)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct error error;
        begin(seed);
        ck_assert_int_eq(write_snapshot(-1, 10, "ten"), 0);
        ck_assert_int_eq(write_snapshot(10, 20, "twenty"), 0);
        ck_assert_int_eq(sim.env.ops->sync_dir(&sim.env, DIR), 0);
        ck_assert_int_eq(metadata_snapshot_forget(&sim.env, DIR, 20, &error), 0);
        expect(INT64_MAX, 20, "twenty");
        ck_assert_int_eq(metadata_snapshot_forget(&sim.env, DIR, 19, &error), 0);
        power_cut();
        expect(INT64_MAX, 10, "ten");
        sim_env_close(&sim);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("metadata_snapshot");
    TCase *tcase = tcase_create("metadata_snapshot");
    tcase_add_test(tcase, test_two_in_turn);
    tcase_add_test(tcase, test_damage);
    tcase_add_test(tcase, test_found_is_durable);
    tcase_add_test(tcase, test_names_are_durable);
    tcase_add_test(tcase, test_forget);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
