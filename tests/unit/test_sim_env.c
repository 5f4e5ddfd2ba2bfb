/* The machine in memory keeps its promises: what was synced survives, what was not may be lost or torn, a dead process changes nothing. */
#include "tests/lib/sim_env.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct env_file *must_open(struct sim_env *sim, const char *path, unsigned flags)
{
    struct env_file *file = NULL;
    ck_assert_int_eq(env_open(&sim->env, path, flags, &file), 0);
    return file;
}

static void reopen(struct sim_env *sim)
{
    sim_env_restart(sim);
}

START_TEST(test_files)
{
    struct sim_env sim;
    uint8_t out[64];
    uint64_t size;
    sim_env_init(&sim, 1, NULL);
    struct env *env = &sim.env;
    struct env_file *file;
    ck_assert_int_eq(env_open(env, "/a/b/f", ENV_WRITE | ENV_CREATE, &file), -ENOENT);
    ck_assert_int_eq(env->ops->make_dir(env, "/a/b"), 0);
    ck_assert_int_eq(env_open(env, "/a/b/f", ENV_WRITE, &file), -ENOENT);
    file = must_open(&sim, "/a/b/f", ENV_WRITE | ENV_CREATE | ENV_LOCK);
    struct env_file *second;
    ck_assert_int_eq(env_open(env, "/a/b/f", ENV_WRITE | ENV_LOCK, &second), -EWOULDBLOCK);
    ck_assert_int_eq(env_open(env, "/a/b/f", ENV_WRITE | ENV_CREATE | ENV_EXCLUSIVE, &second), -EEXIST);
    struct iovec parts[2] = {{"hello ", 6}, {"world", 5}};
    ck_assert_int_eq(env_writev(env, file, parts, 2, 4090), 0);
    ck_assert_int_eq(env->ops->size(env, file, &size), 0);
    ck_assert_uint_eq(size, 4101);
    ck_assert_int_eq(env_read(env, file, out, sizeof out, 4090), 11);
    ck_assert_mem_eq(out, "hello world", 11);
    int error_number;
    uint8_t *map = env->ops->map(env, file, 8192, true, &error_number);
    ck_assert_ptr_nonnull(map);
    ck_assert_mem_eq(map + 4090, "hello world", 11);
    map[0] = 'x';
    ck_assert_int_eq(env_read(env, file, out, 1, 0), 1);
    ck_assert_uint_eq(out[0], 'x');
    env_close(env, file);
    ck_assert_int_eq(env->ops->unlink(env, "/a/b/f"), 0);
    ck_assert_uint_eq(map[0], 'x'); /* a mapping outlives file and name */
    env->ops->unmap(env, map, 8192);
    ck_assert_int_eq(env->ops->remove_dir(env, "/a"), -ENOTEMPTY);
    ck_assert_int_eq(env->ops->remove_dir(env, "/a/b"), 0);
    ck_assert_uint_eq(sim.open_files + sim.open_maps, 0);
    sim_env_close(&sim);
}
END_TEST

static int count_names(void *argument, const char *name, bool is_dir)
{
    int *counts = argument;
    counts[is_dir ? 1 : 0]++;
    ck_assert(strchr(name, '/') == NULL);
    return 0;
}

START_TEST(test_list)
{
    struct sim_env sim;
    int counts[2] = {0, 0};
    sim_env_init(&sim, 1, NULL);
    sim.env.ops->make_dir(&sim.env, "/d/e/f");
    env_close(&sim.env, must_open(&sim, "/d/1", ENV_WRITE | ENV_CREATE));
    env_close(&sim.env, must_open(&sim, "/d/2", ENV_WRITE | ENV_CREATE));
    env_close(&sim.env, must_open(&sim, "/d/e/3", ENV_WRITE | ENV_CREATE));
    ck_assert_int_eq(sim.env.ops->list(&sim.env, "/d", count_names, counts), 0);
    ck_assert_int_eq(counts[0], 2);
    ck_assert_int_eq(counts[1], 1);
    ck_assert_int_eq(sim.env.ops->list(&sim.env, "/x", count_names, counts), -ENOENT);
    sim_env_close(&sim);
}
END_TEST

/* Synced bytes and names hold at every power cut; of unsynced ones each state is seen. */
START_TEST(test_power_cut)
{
    int kept = 0, lost = 0, torn = 0, name_kept = 0, name_lost = 0, short_file = 0;
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct sim_env sim;
        uint8_t old[SIM_PAGE], new[SIM_PAGE];
        memset(old, 1, sizeof old);
        memset(new, 2, sizeof new);
        sim_env_init(&sim, seed, NULL);
        struct env *env = &sim.env;
        uint64_t boot = env->ops->boot_id(env);
        env->ops->make_dir(env, "/d");
        struct env_file *file = must_open(&sim, "/d/f", ENV_WRITE | ENV_CREATE);
        env_write(env, file, old, sizeof old, 0);
        env_write(env, file, old, sizeof old, SIM_PAGE);
        ck_assert_int_eq(env_sync(env, file), 0);
        ck_assert_int_eq(env->ops->sync_dir(env, "/d"), 0);
        env_write(env, file, new, sizeof new, SIM_PAGE);
        env_write(env, file, new, sizeof new, 2 * SIM_PAGE);
        env_close(env, file);
        env_close(env, must_open(&sim, "/d/g", ENV_WRITE | ENV_CREATE));
        sim_env_power_cut(&sim);
        ck_assert_int_eq(env_open(env, "/d/f", ENV_READ, &file), -EIO);
        reopen(&sim);
        ck_assert(env->ops->boot_id(env) != boot);
        uint64_t size;
        uint8_t *bytes = sim_env_bytes(&sim, "/d/f", &size);
        ck_assert_ptr_nonnull(bytes);
        ck_assert_mem_eq(bytes, old, sizeof old);
        ck_assert(size == 2 * SIM_PAGE || size == 3 * SIM_PAGE);
        if (memcmp(bytes + SIM_PAGE, old, sizeof old) == 0)
            lost++;
        else if (memcmp(bytes + SIM_PAGE, new, sizeof new) == 0)
            kept++;
        else
            torn++;
        for (size_t i = 0; i < SIM_PAGE; i += SIM_SECTOR)
            ck_assert(memcmp(bytes + SIM_PAGE + i, old, SIM_SECTOR) == 0 || memcmp(bytes + SIM_PAGE + i, new, SIM_SECTOR) == 0);
        short_file += size == 2 * SIM_PAGE;
        if (sim_env_exists(&sim, "/d/g"))
            name_kept++;
        else
            name_lost++;
        sim_env_close(&sim);
    }
    ck_assert(kept > 20 && lost > 20 && torn > 5 && name_kept > 20 && name_lost > 20 && short_file > 20);
}
END_TEST

START_TEST(test_rename_undone)
{
    int old = 0, new = 0;
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct sim_env sim;
        sim_env_init(&sim, seed, NULL);
        struct env *env = &sim.env;
        struct env_file *file = must_open(&sim, "/f", ENV_WRITE | ENV_CREATE);
        env_write(env, file, "old", 3, 0);
        env_sync(env, file);
        env_close(env, file);
        env->ops->sync_dir(env, "/");
        file = must_open(&sim, "/f.new", ENV_WRITE | ENV_CREATE);
        env_write(env, file, "new", 3, 0);
        env_sync(env, file);
        env_close(env, file);
        ck_assert_int_eq(env->ops->rename(env, "/f.new", "/f"), 0);
        sim_env_power_cut(&sim);
        reopen(&sim);
        uint64_t size;
        uint8_t *bytes = sim_env_bytes(&sim, "/f", &size);
        ck_assert_ptr_nonnull(bytes);
        ck_assert_uint_eq(size, 3);
        old += memcmp(bytes, "old", 3) == 0;
        new += memcmp(bytes, "new", 3) == 0;
        sim_env_close(&sim);
    }
    ck_assert_int_eq(old + new, 100);
    ck_assert(old > 10 && new > 10);
}
END_TEST

/* With what is in it: all of it is in the one place or in the other. */
START_TEST(test_directory_renamed)
{
    int moved = 0, back = 0, lost = 0;
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct sim_env sim;
        sim_env_init(&sim, seed, NULL);
        struct env *env = &sim.env;
        ck_assert_int_eq(env->ops->make_dir(env, "/a/data"), 0);
        ck_assert_int_eq(env->ops->make_dir(env, "/b"), 0);
        struct env_file *file = must_open(&sim, "/a/data/f", ENV_WRITE | ENV_CREATE);
        env_write(env, file, "old", 3, 0);
        env_sync(env, file);
        env_close(env, file);
        if (seed % 2 == 0)
            ck_assert_int_eq(env->ops->sync_dir(env, "/a/data"), 0);
        ck_assert_int_eq(env->ops->rename(env, "/a", "/b/c"), 0);
        ck_assert(sim_env_exists(&sim, "/b/c/data/f") && !sim_env_exists(&sim, "/a/data/f") && !sim_env_exists(&sim, "/a"));
        if (seed % 4 == 0)
            ck_assert_int_eq(env->ops->sync_dir(env, "/b"), 0);
        sim_env_power_cut(&sim);
        reopen(&sim);
        bool there = sim_env_exists(&sim, "/b/c");
        ck_assert(there != sim_env_exists(&sim, "/a") && (there || seed % 4 != 0));
        bool has = sim_env_exists(&sim, there ? "/b/c/data/f" : "/a/data/f");
        ck_assert(has || seed % 2 != 0);
        moved += there;
        back += !there;
        lost += !has;
        sim_env_close(&sim);
    }
    ck_assert(moved > 20 && back > 10 && lost > 5);
}
END_TEST

/* Its parent is synced after it was made again under its old name: that the first one went is durable by then, and what was in it does not come back. */
START_TEST(test_directory_made_again)
{
    int back = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct sim_env sim;
        struct env *env = &sim.env;
        bool synced = seed % 2 == 0;
        sim_env_init(&sim, seed, NULL);
        env->ops->make_dir(env, "/d/t/0");
        struct env_file *file = must_open(&sim, "/d/t/0/f", ENV_WRITE | ENV_CREATE);
        ck_assert_int_eq(env_write(env, file, "old", 3, 0), 0);
        ck_assert_int_eq(env_sync(env, file), 0);
        env_close(env, file);
        ck_assert_int_eq(env->ops->sync_dir(env, "/d/t/0"), 0);
        ck_assert_int_eq(env->ops->unlink(env, "/d/t/0/f"), 0);
        ck_assert_int_eq(env->ops->remove_dir(env, "/d/t/0"), 0);
        ck_assert_int_eq(env->ops->remove_dir(env, "/d/t"), 0);
        env->ops->make_dir(env, "/d/t/0");
        env_close(env, must_open(&sim, "/d/t/0/f", ENV_WRITE | ENV_CREATE));
        ck_assert_int_eq(env->ops->sync_dir(env, synced ? "/d" : "/d/t"), 0);
        sim_env_power_cut(&sim);
        sim_env_restart(&sim);
        uint64_t size = 0;
        const uint8_t *bytes = sim_env_bytes(&sim, "/d/t/0/f", &size);
        ck_assert(!synced || bytes == NULL || size == 0);
        back += bytes != NULL && size == 3;
        sim_env_close(&sim);
    }
    ck_assert_int_gt(back, 0);
}
END_TEST

START_TEST(test_kill)
{
    int none = 0, part = 0, whole = 0;
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct sim_env sim;
        uint8_t data[3 * SIM_PAGE];
        memset(data, 7, sizeof data);
        sim_env_init(&sim, seed, NULL);
        struct env *env = &sim.env;
        struct env_file *file = must_open(&sim, "/f", ENV_WRITE | ENV_CREATE);
        env_write(env, file, "a", 1, 0);
        sim_env_kill_at(&sim, SIM_WRITE, 1);
        ck_assert_int_eq(env_write(env, file, data, sizeof data, 100), -EIO);
        ck_assert(sim.dead);
        ck_assert_int_eq(env_write(env, file, "b", 1, 0), -EIO);
        env_close(env, file);
        reopen(&sim);
        uint64_t size;
        uint8_t *bytes = sim_env_bytes(&sim, "/f", &size);
        ck_assert_uint_eq(bytes[0], 'a');
        ck_assert(size == 1 || size == 100 + sizeof data || size % SIM_PAGE == 0);
        none += size == 1;
        whole += size == 100 + sizeof data;
        part += size % SIM_PAGE == 0;
        sim_env_close(&sim);
    }
    ck_assert(none > 5 && part > 5 && whole > 5);
}
END_TEST

START_TEST(test_faults_and_space)
{
    struct sim_env sim;
    uint8_t data[2 * SIM_PAGE];
    uint64_t size, total;
    memset(data, 3, sizeof data);
    sim_env_init(&sim, 5, NULL);
    struct env *env = &sim.env;
    struct env_file *file = must_open(&sim, "/f", ENV_WRITE | ENV_CREATE);
    sim_env_fail_at(&sim, SIM_WRITE | SIM_SYNC, 2, EIO, false);
    ck_assert_int_eq(env_write(env, file, data, 10, 0), 0);
    ck_assert_int_eq(env_sync(env, file), -EIO);
    ck_assert_int_eq(env_sync(env, file), 0);
    sim_env_fail_at(&sim, SIM_SYNC, 1, EIO, true);
    ck_assert_int_eq(env_sync(env, file), -EIO);
    ck_assert_int_eq(env_sync(env, file), -EIO);
    sim.fault.calls = 0;

    sim.disk_bytes = 4 * SIM_PAGE;
    ck_assert_int_eq(env->ops->allocate(env, file, 0, 5 * SIM_PAGE), -ENOSPC);
    ck_assert_uint_eq(sim.used_bytes, SIM_PAGE);
    ck_assert_int_eq(env->ops->allocate(env, file, 0, 3 * SIM_PAGE), 0);
    ck_assert_int_eq(env_write(env, file, data, sizeof data, 3 * SIM_PAGE), -ENOSPC); /* one page fits */
    ck_assert_int_eq(env->ops->size(env, file, &size), 0);
    ck_assert_uint_eq(size, 4 * SIM_PAGE);
    ck_assert_int_eq(env_write(env, file, data, sizeof data, 0), 0); /* reserved room always works */
    ck_assert_int_eq(env->ops->space(env, "/", &size, &total), 0);
    ck_assert_uint_eq(size, 0);
    ck_assert_int_eq(env->ops->truncate(env, file, SIM_PAGE), 0);
    ck_assert_uint_eq(sim.used_bytes, SIM_PAGE);
    env_close(env, file);
    env->ops->unlink(env, "/f");
    env->ops->sync_dir(env, "/");
    ck_assert_uint_eq(sim.used_bytes, 0);
    sim_env_close(&sim);
}
END_TEST

/* Stores through a mapping are page cache: lost by a power cut unless synced, and counted when they have no blocks. */
START_TEST(test_mapped_stores)
{
    int lost = 0;
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct sim_env sim;
        int error_number;
        sim_env_init(&sim, seed, NULL);
        struct env *env = &sim.env;
        struct env_file *file = must_open(&sim, "/f", ENV_WRITE | ENV_CREATE);
        env->ops->truncate(env, file, 4 * SIM_PAGE);
        env_sync(env, file);
        env->ops->sync_dir(env, "/");
        env->ops->allocate(env, file, 0, SIM_PAGE);
        uint8_t *map = env->ops->map(env, file, 4 * SIM_PAGE, true, &error_number);
        env_close(env, file);
        map[1] = 1;
        ck_assert_uint_eq(sim_env_unreserved_pages(&sim), 0);
        ck_assert_int_eq(env->ops->sync_map(env, map, SIM_PAGE), 0);
        map[SIM_PAGE] = 2;
        ck_assert_uint_eq(sim_env_unreserved_pages(&sim), 1);
        sim_env_power_cut(&sim);
        env->ops->unmap(env, map, 4 * SIM_PAGE);
        reopen(&sim);
        uint64_t size;
        uint8_t *bytes = sim_env_bytes(&sim, "/f", &size);
        ck_assert_uint_eq(bytes[1], 1);
        lost += bytes[SIM_PAGE] == 0;
        sim_env_close(&sim);
    }
    ck_assert(lost > 10 && lost < 50);
}
END_TEST

/* What a disk does to bytes at rest, and a whole disk put back. */
START_TEST(test_at_rest)
{
    struct sim_env sim;
    uint64_t size;
    sim_env_init(&sim, 1, NULL);
    struct env_file *file = must_open(&sim, "/f", ENV_WRITE | ENV_CREATE);
    struct iovec part = {"hello", 5};
    ck_assert_int_eq(env_writev(&sim.env, file, &part, 1, 0), 0);
    ck_assert(!sim_env_at_rest(&sim, "/f", 0, 5));
    ck_assert_int_eq(env_sync(&sim.env, file), 0);
    ck_assert(sim_env_at_rest(&sim, "/f", 0, 5));
    ck_assert(!sim_env_at_rest(&sim, "/f", 1, 5));
    ck_assert(!sim_env_at_rest(&sim, "/g", 0, 1));
    env_close(&sim.env, file);
    ck_assert_int_eq(sim.env.ops->sync_dir(&sim.env, "/"), 0);
    struct sim_copy *copy = sim_env_copy(&sim);
    sim_env_put(&sim, "/f", 1, "a", 1);
    ck_assert(sim_env_at_rest(&sim, "/f", 0, 5));
    sim_env_power_cut(&sim);
    ck_assert_mem_eq(sim_env_bytes(&sim, "/f", &size), "hallo", 5);
    sim_env_restart(&sim);
    file = must_open(&sim, "/g", ENV_WRITE | ENV_CREATE);
    env_close(&sim.env, file);
    ck_assert_str_eq(sim_env_file(&sim, "/", 1), "/g");
    ck_assert_ptr_null(sim_env_file(&sim, "/", 2));
    sim_env_put_back(&sim, copy);
    sim_env_copy_free(copy);
    ck_assert_mem_eq(sim_env_bytes(&sim, "/f", &size), "hello", 5);
    ck_assert_uint_eq(size, 5);
    ck_assert(!sim_env_exists(&sim, "/g"));
    sim_env_power_cut(&sim);
    ck_assert_mem_eq(sim_env_bytes(&sim, "/f", &size), "hello", 5);
    sim_env_close(&sim);
}
END_TEST

START_TEST(test_digest_and_clock)
{
    struct sim_env one, two;
    struct sim_clock clock = {1000, 5};
    sim_env_init(&one, 9, &clock);
    sim_env_init(&two, 9, &clock);
    ck_assert_uint_eq(env_random(&one.env), env_random(&two.env));
    clock.wall_ms = 2000;
    clock.monotonic_us = 6;
    ck_assert_int_eq(env_now_ms(&one.env), 2000);
    ck_assert_uint_eq(env_monotonic_us(&two.env), 6);
    struct env_file *a = must_open(&one, "/x", ENV_WRITE | ENV_CREATE), *b = must_open(&two, "/x", ENV_WRITE | ENV_CREATE);
    env_write(&one.env, a, "12", 2, 0);
    env_write(&two.env, b, "1", 1, 0);
    ck_assert(sim_env_digest(&one, "/") != sim_env_digest(&two, "/"));
    env_write(&two.env, b, "2", 1, 1);
    ck_assert_uint_eq(sim_env_digest(&one, "/"), sim_env_digest(&two, "/"));
    env_close(&one.env, a);
    env_close(&two.env, b);
    sim_env_corrupt(&two, "/x", 1, 1);
    ck_assert(sim_env_digest(&one, "/") != sim_env_digest(&two, "/"));
    sim_env_close(&one);
    sim_env_close(&two);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sim_env");
    TCase *tcase = tcase_create("sim_env");
    tcase_add_test(tcase, test_files);
    tcase_add_test(tcase, test_list);
    tcase_add_test(tcase, test_power_cut);
    tcase_add_test(tcase, test_directory_made_again);
    tcase_add_test(tcase, test_rename_undone);
    tcase_add_test(tcase, test_directory_renamed);
    tcase_add_test(tcase, test_kill);
    tcase_add_test(tcase, test_faults_and_space);
    tcase_add_test(tcase, test_mapped_stores);
    tcase_add_test(tcase, test_at_rest);
    tcase_add_test(tcase, test_digest_and_clock);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
