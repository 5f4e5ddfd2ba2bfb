/* The newest good checkpoint is found after any crash, and a broken one is as good as none. */
#include "store/checkpoint.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/sim_env.h"
#include "tests/lib/run_suite.h"

#define PATH "/checkpoint"
#define SLOT 73728u

static struct checkpoint *filled(uint64_t n, uint32_t terms, uint32_t configuration)
{
    struct checkpoint *c = calloc(1, sizeof *c);
    ck_assert_ptr_nonnull(c);
    c->committed_index = (int64_t)n * 10;
    c->committed_term = n + 1;
    c->committed_end_position = n * 1000;
    c->committed_chain = (uint32_t)n * 7;
    c->configuration_index = n + 2;
    c->configuration_size = configuration;
    memset(c->configuration, (int)n + 1, configuration);
    c->term_count = terms;
    for (uint32_t i = 0; i < terms; i++)
        c->terms[i] = (struct checkpoint_term){i + 1, i * n};
    c->dispatched_position = n + 3;
    c->synced_dispatched_position = n + 4;
    c->snapshot_index = (int64_t)n + 5;
    c->begin_index = (int64_t)n + 6;
    c->begin_position = n + 7;
    c->boot_id = n + 8;
    c->incarnation = n + 9;
    c->clean = n % 2 == 0;
    c->durability = 1;
    return c;
}

static void check_equal(struct checkpoint *got, struct checkpoint *want)
{
    ck_assert(got->present);
    ck_assert_int_eq(got->committed_index, want->committed_index);
    ck_assert_uint_eq(got->committed_term, want->committed_term);
    ck_assert_uint_eq(got->committed_end_position, want->committed_end_position);
    ck_assert_uint_eq(got->committed_chain, want->committed_chain);
    ck_assert_uint_eq(got->configuration_index, want->configuration_index);
    ck_assert_uint_eq(got->configuration_size, want->configuration_size);
    ck_assert(memcmp(got->configuration, want->configuration, want->configuration_size) == 0);
    ck_assert_uint_eq(got->term_count, want->term_count);
    for (uint32_t i = 0; i < want->term_count; i++) {
        ck_assert_uint_eq(got->terms[i].term, want->terms[i].term);
        ck_assert_uint_eq(got->terms[i].first_index, want->terms[i].first_index);
    }
    ck_assert_uint_eq(got->dispatched_position, want->dispatched_position);
    ck_assert_uint_eq(got->synced_dispatched_position, want->synced_dispatched_position);
    ck_assert_int_eq(got->snapshot_index, want->snapshot_index);
    ck_assert_int_eq(got->begin_index, want->begin_index);
    ck_assert_uint_eq(got->begin_position, want->begin_position);
    ck_assert_uint_eq(got->boot_id, want->boot_id);
    ck_assert_uint_eq(got->incarnation, want->incarnation);
    ck_assert_int_eq(got->clean, want->clean);
    ck_assert_uint_eq(got->durability, want->durability);
}

static struct checkpoint *loaded(struct sim_env *sim)
{
    struct error error = {0};
    struct checkpoint *c = calloc(1, sizeof *c);
    ck_assert_ptr_nonnull(c);
    ck_assert_msg(checkpoint_load(c, &sim->env, PATH, &error) == 0, "%s", error.message);
    return c;
}

START_TEST(test_round_trip)
{
    static const uint32_t terms[] = {0, 1, 3, CHECKPOINT_TERMS_MAX};
    static const uint32_t configurations[] = {0, 1, 100, CHECKPOINT_CONFIGURATION_MAX};
    struct sim_env sim;
    struct error error;
    sim_env_init(&sim, 1, NULL);
    struct checkpoint *c = loaded(&sim);
    ck_assert(!c->present);
    ck_assert_int_eq(c->committed_index, -1);
    ck_assert_int_eq(c->snapshot_index, -1);
    free(c);
    for (uint64_t n = 0; n < 16; n++) {
        struct checkpoint *want = filled(n, terms[n % 4], configurations[n / 4]);
        if (n == 3)
            want->committed_index = -1;
        ck_assert_int_eq(checkpoint_save(want, &sim.env, PATH, &error), 0);
        ck_assert_uint_eq(want->sequence, n + 1);
        struct checkpoint *got = loaded(&sim);
        check_equal(got, want);
        ck_assert_uint_eq(got->sequence, n + 1);
        free(got);
        free(want);
    }
    struct checkpoint *bad = filled(1, 1, 1);
    bad->term_count = CHECKPOINT_TERMS_MAX + 1;
    ck_assert_int_eq(checkpoint_save(bad, &sim.env, PATH, &error), ERROR_INVALID);
    free(bad);
    ck_assert_uint_eq(sim.open_files, 0);
    sim_env_close(&sim);
}
END_TEST

START_TEST(test_golden)
{
    struct sim_env sim;
    struct error error;
    uint64_t size;
    static const uint8_t want[] = {
        'L', 'M', 'Q', 'C', 0, 0, 0, 1, 0, 0, 0, 128, 0, 0, 0, 0, /* magic, version, size, crc (below) */
        0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 7, 0xd0, /* to committed_end_position */
        0, 0, 0, 14, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 7, /* to snapshot_index */
        0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 11, 1, 1, /* to durability */
        0, 0, 0, 2, 0, 0, 0, 1, 3, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0,
    };
    sim_env_init(&sim, 1, NULL);
    struct checkpoint *c = filled(2, 1, 2);
    ck_assert_int_eq(checkpoint_save(c, &sim.env, PATH, &error), 0);
    uint8_t *bytes = sim_env_bytes(&sim, PATH, &size);
    ck_assert_uint_eq(size, 2 * SLOT);
    ck_assert_mem_eq(bytes, want, 12);
    ck_assert_mem_eq(bytes + 16, want + 16, sizeof want - 16);
    ck_assert_uint_eq(load_u32(bytes + 12), 0x97eb43a1u);
    free(c);
    sim_env_close(&sim);
}
END_TEST

START_TEST(test_damage)
{
    struct sim_env sim;
    struct error error;
    sim_env_init(&sim, 1, NULL);
    struct checkpoint *first = filled(1, 2, 10), *second = filled(2, 5, 20);
    ck_assert_int_eq(checkpoint_save(first, &sim.env, PATH, &error), 0);
    ck_assert_int_eq(checkpoint_save(second, &sim.env, PATH, &error), 0);
    for (uint64_t at = 0; at < 16 + 110 + 20 + 5 * 16; at++) {
        sim_env_corrupt(&sim, PATH, SLOT + at, 1);
        struct checkpoint *got = loaded(&sim);
        check_equal(got, first);
        free(got);
        sim_env_corrupt(&sim, PATH, at % 100, 4);
        got = loaded(&sim);
        ck_assert(!got->present);
        ck_assert_int_eq(got->committed_index, -1);
        free(got);
        sim_env_corrupt(&sim, PATH, at % 100, 4);
        sim_env_corrupt(&sim, PATH, SLOT + at, 1);
    }
    struct checkpoint *got = loaded(&sim);
    check_equal(got, second);
    free(got);
    free(first);
    free(second);
    sim_env_close(&sim);
}
END_TEST

START_TEST(test_crash_at_each_call)
{
    for (int power = 0; power < 2; power++) {
        bool crashed = true;
        for (uint64_t n = 1; crashed; n++) {
            struct sim_env sim;
            struct error error;
            uint64_t saved = 0, tried = 0;
            sim_env_init(&sim, n * 2 + (uint64_t)power, NULL);
            sim_env_kill_at(&sim, SIM_ALL, n);
            struct checkpoint *c[4];
            for (uint64_t i = 1; i <= 3; i++) {
                c[i] = filled(i, (uint32_t)i * 300, 4);
                tried = saved == i - 1 ? i : tried;
                if (checkpoint_save(c[i], &sim.env, PATH, &error) == 0)
                    saved = i;
            }
            crashed = sim.dead;
            if (power)
                sim_env_power_cut(&sim);
            sim_env_restart(&sim);
            struct checkpoint *got = loaded(&sim);
            ck_assert(got->present || saved == 0);
            if (got->present) {
                uint64_t which = (uint64_t)got->committed_index / 10;
                ck_assert(which == saved || which == tried);
                check_equal(got, c[which]);
            }
            free(got);
            for (int i = 1; i <= 3; i++)
                free(c[i]);
            sim_env_close(&sim);
        }
    }
}
END_TEST

START_TEST(test_full_disk)
{
    struct sim_env sim;
    struct error error;
    sim_env_init(&sim, 1, NULL);
    struct checkpoint *c = filled(1, 10, 10);
    sim.disk_bytes = 65536;
    ck_assert_int_eq(checkpoint_save(c, &sim.env, PATH, &error), ERROR_NO_SPACE);
    sim.disk_bytes = 1 << 20;
    ck_assert_int_eq(checkpoint_save(c, &sim.env, PATH, &error), 0);
    sim.disk_bytes = sim.used_bytes;
    c->term_count = CHECKPOINT_TERMS_MAX;
    for (uint32_t i = 0; i < 4; i++)
        ck_assert_int_eq(checkpoint_save(c, &sim.env, PATH, &error), 0);
    sim_env_fail_at(&sim, SIM_SYNC, 1, EIO, false);
    ck_assert_int_eq(checkpoint_save(c, &sim.env, PATH, &error), ERROR_IO);
    ck_assert_ptr_nonnull(strstr(error.message, PATH));
    free(c);
    ck_assert_uint_eq(sim.open_files, 0);
    sim_env_close(&sim);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("checkpoint");
    TCase *tcase = tcase_create("checkpoint");
    tcase_add_test(tcase, test_round_trip);
    tcase_add_test(tcase, test_golden);
    tcase_add_test(tcase, test_damage);
    tcase_add_test(tcase, test_crash_at_each_call);
    tcase_add_test(tcase, test_full_disk);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
