/* A vote that was saved is there after any crash; a file that may hide one refuses to open. */
#include "dledger/vote_file.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/sim_env.h"
#include "tests/lib/run_suite.h"

#define PATH "/store/dledger-n0/vote"

static void must_open(struct vote_file *file, struct sim_env *sim)
{
    struct error error = {0};
    int rv = vote_file_open(file, &sim->env, PATH, &error);
    ck_assert_msg(rv == 0, "%s", error.message);
}

START_TEST(test_save_and_open)
{
    struct sim_env sim;
    struct vote_file file;
    struct error error;
    sim_env_init(&sim, 1, NULL);
    must_open(&file, &sim);
    ck_assert(!file.existed);
    ck_assert_uint_eq(file.term + file.voted_for, 0);
    vote_file_close(&file);
    must_open(&file, &sim);
    ck_assert(!file.existed); /* nothing was ever saved */
    for (uint64_t term = 1; term <= 5; term++)
        ck_assert_int_eq(vote_file_save(&file, term, term % 3, &error), 0);
    vote_file_close(&file);
    must_open(&file, &sim);
    ck_assert(file.existed);
    ck_assert_uint_eq(file.term, 5);
    ck_assert_uint_eq(file.voted_for, 2);
    vote_file_close(&file);
    sim_env_close(&sim);
}
END_TEST

/* A save in pieces: until its end the file says what it said before, and after a kill or a power cut in between a start finds the one vote or the other. */
START_TEST(test_save_in_pieces)
{
    for (int pieces = 1; pieces <= 2; pieces++) {
        for (int power = 0; power < 2; power++) {
            struct sim_env sim;
            struct vote_file file;
            struct vote_save save;
            struct error error;
            sim_env_init(&sim, 1, NULL);
            must_open(&file, &sim);
            ck_assert_int_eq(vote_file_save(&file, 4, 1, &error), 0);
            vote_save_begin(&save, &file, 5, 2);
            if (pieces == 2)
                vote_save_run(&save);
            ck_assert(file.saving);
            ck_assert_uint_eq(file.term, 4);
            ck_assert_uint_eq(file.voted_for, 1);
            if (power)
                sim_env_power_cut(&sim);
            vote_file_close(&file);
            sim_env_restart(&sim);
            must_open(&file, &sim);
            ck_assert(!file.doubtful && !file.saving);
            ck_assert_uint_eq(file.term, pieces == 2 ? 5 : 4);
            ck_assert_uint_eq(file.voted_for, pieces == 2 ? 2 : 1);
            vote_save_begin(&save, &file, 6, 3);
            vote_save_run(&save);
            ck_assert_int_eq(vote_save_end(&save, &error), 0);
            ck_assert_uint_eq(file.term, 6);
            vote_file_close(&file);
            must_open(&file, &sim);
            ck_assert_uint_eq(file.term, 6);
            ck_assert_uint_eq(file.voted_for, 3);
            vote_file_close(&file);
            sim_env_close(&sim);
        }
    }
}
END_TEST

/* The bytes, once and for all. */
START_TEST(test_golden)
{
    static const uint8_t want[36] = {'L', 'M', 'Q', 'V', 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0,
                                     0,   0,   0,   0,   1, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0x10, 0x95, 0x1f, 0x8d};
    struct sim_env sim;
    struct vote_file file;
    struct error error;
    uint64_t size;
    sim_env_init(&sim, 1, NULL);
    must_open(&file, &sim);
    ck_assert_int_eq(vote_file_save(&file, 0x102, 3, &error), 0);
    vote_file_close(&file);
    uint8_t *bytes = sim_env_bytes(&sim, PATH, &size);
    ck_assert_uint_eq(size, 8192);
    ck_assert_mem_eq(bytes + 4096, want, sizeof want);
    sim_env_close(&sim);
}
END_TEST

/* Any byte of a slot may be wrong: what the other says is not believed to be the newest. Both wrong: put aside. */
START_TEST(test_damage)
{
    struct sim_env sim;
    struct vote_file file;
    struct error error;
    sim_env_init(&sim, 1, NULL);
    must_open(&file, &sim);
    ck_assert_int_eq(vote_file_save(&file, 7, 1, &error), 0); /* second slot */
    ck_assert_int_eq(vote_file_save(&file, 8, 2, &error), 0); /* first slot */
    vote_file_close(&file);
    for (uint64_t at = 0; at < 36; at++) {
        for (uint64_t slot = 0; slot < 2; slot++) {
            sim_env_corrupt(&sim, PATH, slot * 4096 + at, 0x10);
            must_open(&file, &sim);
            ck_assert_uint_eq(file.term, 8);
            ck_assert(file.doubtful);
            vote_file_close(&file);
            sim_env_corrupt(&sim, PATH, slot * 4096 + at, 0x10);
        }
    }
    must_open(&file, &sim);
    ck_assert_uint_eq(file.term, 8);
    ck_assert(!file.doubtful);
    vote_file_close(&file);
    sim_env_corrupt(&sim, PATH, 3, 1);
    sim_env_corrupt(&sim, PATH, 4096 + 20, 1);
    must_open(&file, &sim);
    ck_assert(file.doubtful && !file.existed);
    ck_assert(sim_env_exists(&sim, PATH ".damaged"));
    ck_assert_int_eq(vote_file_save(&file, 9, 1, &error), 0);
    ck_assert(!file.doubtful);
    vote_file_close(&file);
    must_open(&file, &sim);
    ck_assert_uint_eq(file.term, 9);
    ck_assert(!file.doubtful);
    vote_file_close(&file);
    sim_env_close(&sim);
}
END_TEST

/* A write that a disk lost, or did elsewhere, leaves a slot that is whole and old: the vote is in the other one. */
START_TEST(test_lost_write)
{
    struct sim_env sim;
    struct vote_file file;
    struct error error;
    uint8_t old[8192];
    uint64_t size;
    sim_env_init(&sim, 1, NULL);
    must_open(&file, &sim);
    for (uint64_t term = 1; term <= 6; term++) {
        memcpy(old, sim_env_bytes(&sim, PATH, &size), sizeof old);
        ck_assert_int_eq(vote_file_save(&file, term, 1 + term % 3, &error), 0);
        vote_file_close(&file);
        ck_assert(sim_env_at_rest(&sim, PATH, 0, sizeof old));
        sim_env_put(&sim, PATH, (uint64_t)_i * 4096, old + (size_t)_i * 4096, 4096);
        must_open(&file, &sim);
        ck_assert_uint_eq(file.term, term);
        ck_assert_uint_eq(file.voted_for, 1 + term % 3);
    }
    vote_file_close(&file);
    sim_env_close(&sim);
}
END_TEST

/* Kill or power cut inside each call of a first start and five saves. */
START_TEST(test_crash_at_each_call)
{
    for (int power = 0; power < 2; power++) {
        for (uint64_t n = 1;; n++) {
            bool crashed = false;
            for (uint64_t seed = 0; seed < 8; seed++) {
                struct sim_env sim;
                struct vote_file file;
                struct error error;
                uint64_t saved = 0, tried = 0;
                sim_env_init(&sim, seed * 1000 + n, NULL);
                sim_env_kill_at(&sim, SIM_ALL, n);
                if (vote_file_open(&file, &sim.env, PATH, &error) == 0) {
                    for (uint64_t term = 1; term <= 5; term++) {
                        tried = term;
                        if (vote_file_save(&file, term, term, &error) != 0)
                            break;
                        saved = term;
                    }
                    vote_file_close(&file);
                }
                crashed = crashed || sim.dead;
                if (power)
                    sim_env_power_cut(&sim);
                sim_env_restart(&sim);
                must_open(&file, &sim);
                ck_assert(file.term == saved || file.term == tried);
                ck_assert_uint_eq(file.voted_for, file.term);
                ck_assert(saved == 0 || file.existed);
                vote_file_close(&file);
                sim_env_close(&sim);
            }
            if (!crashed)
                break;
        }
    }
}
END_TEST

/* What a start finds may be in the page cache only, from a process that died before its sync: found once, it stays. */
START_TEST(test_found_is_durable)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct sim_env sim;
        struct vote_file file;
        struct error error;
        sim_env_init(&sim, seed, NULL);
        must_open(&file, &sim);
        ck_assert_int_eq(vote_file_save(&file, 1, 1, &error), 0);
        sim_env_kill_at(&sim, SIM_SYNC, 1);
        ck_assert_int_ne(vote_file_save(&file, 2, 3, &error), 0);
        vote_file_close(&file);
        sim_env_restart(&sim);
        must_open(&file, &sim);
        uint64_t term = file.term, voted_for = file.voted_for;
        sim_env_power_cut(&sim);
        vote_file_close(&file);
        sim_env_restart(&sim);
        must_open(&file, &sim);
        ck_assert_uint_eq(file.term, term);
        ck_assert_uint_eq(file.voted_for, voted_for);
        vote_file_close(&file);
        sim_env_close(&sim);
    }
}
END_TEST

START_TEST(test_errors)
{
    struct sim_env sim;
    struct vote_file file;
    struct error error;
    sim_env_init(&sim, 1, NULL);
    sim.disk_bytes = 4096;
    ck_assert_int_eq(vote_file_open(&file, &sim.env, PATH, &error), ERROR_NO_SPACE);
    sim.disk_bytes = 1 << 20;
    must_open(&file, &sim);
    /* Room is there from creation on: a full disk takes votes. */
    sim.disk_bytes = sim.used_bytes;
    for (uint64_t term = 1; term < 5; term++)
        ck_assert_int_eq(vote_file_save(&file, term, 1, &error), 0);
    sim_env_fail_at(&sim, SIM_SYNC, 1, EIO, false);
    ck_assert_int_eq(vote_file_save(&file, 9, 1, &error), ERROR_IO);
    ck_assert_ptr_nonnull(strstr(error.message, "Input/output"));
    vote_file_close(&file);
    ck_assert_uint_eq(sim.open_files, 0);
    sim_env_close(&sim);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("vote_file");
    TCase *tcase = tcase_create("vote_file");
    tcase_add_test(tcase, test_save_and_open);
    tcase_add_test(tcase, test_save_in_pieces);
    tcase_add_test(tcase, test_golden);
    tcase_add_test(tcase, test_damage);
    tcase_add_loop_test(tcase, test_lost_write, 0, 2);
    tcase_add_test(tcase, test_crash_at_each_call);
    tcase_add_test(tcase, test_found_is_durable);
    tcase_add_test(tcase, test_errors);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
