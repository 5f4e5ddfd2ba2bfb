/* The real env: files, mappings, directories, locks, clocks; and state files, which are replaced whole. */
#include "store/env.h"

#include "store/log_sink.h"
#include "store/state_file.h"

#include "../lib/sim_env.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char root[64];
static struct env env;
static struct error error;

static void be_quiet(void *context, enum log_level level, const char *text)
{
    (void)context, (void)level, (void)text;
}

static void set_up(void)
{
    log_sink_set(be_quiet, NULL);
    env_real_init(&env);
    strcpy(root, "/tmp/ledgermq-env-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
}

static void tear_down(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", root);
    ck_assert_int_eq(system(command), 0);
}

static const char *path_of(const char *name)
{
    static char paths[4][PATH_MAX];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, PATH_MAX, "%s/%s", root, name);
    return path;
}

START_TEST(open_flags)
{
    struct env_file *file;
    ck_assert_int_eq(env_open(&env, path_of("f"), ENV_READ, &file), -ENOENT);
    ck_assert_int_eq(env_open(&env, path_of("f"), ENV_WRITE, &file), -ENOENT);
    ck_assert_int_eq(env_open(&env, path_of("no/f"), ENV_WRITE | ENV_CREATE, &file), -ENOENT);
    ck_assert_int_eq(env_open(&env, path_of("f"), ENV_WRITE | ENV_CREATE | ENV_EXCLUSIVE, &file), 0);
    ck_assert_int_eq(env_write(&env, file, "abc", 3, 0), 0);
    env_close(&env, file);
    ck_assert_int_eq(env_open(&env, path_of("f"), ENV_WRITE | ENV_CREATE | ENV_EXCLUSIVE, &file), -EEXIST);
    ck_assert_int_eq(env_open(&env, path_of("f"), ENV_READ, &file), 0);
    ck_assert_int_eq(env_write(&env, file, "abc", 3, 0), -EBADF);
    env_close(&env, file);
    env_close(&env, NULL);
}
END_TEST

START_TEST(read_and_write)
{
    struct env_file *file;
    uint64_t size;
    char out[64];
    ck_assert_int_eq(env_open(&env, path_of("f"), ENV_WRITE | ENV_CREATE, &file), 0);
    /* More parts than one call takes, some of them empty. */
    struct iovec iov[200];
    static const char digits[] = "0123456789";
    for (int i = 0; i < 200; i++)
        iov[i] = (struct iovec){(void *)(uintptr_t)(digits + i % 10), i % 3 == 0 ? 0 : 1};
    ck_assert_int_eq(env_writev(&env, file, iov, 200, 5), 0);
    ck_assert_int_eq(env.ops->size(&env, file, &size), 0);
    ck_assert_uint_eq(size, 5 + 133);
    ck_assert_int_eq(env_read(&env, file, out, 10, 3), 10);
    ck_assert_mem_eq(out, "\0\0" "12457801", 10);
    ck_assert_int_eq(env_read(&env, file, out, 10, 133), 5);
    ck_assert_int_eq(env_read(&env, file, out, 10, 1000), 0);
    ck_assert_int_eq(env_read(&env, file, out, 10, UINT64_MAX), -EINVAL);
    ck_assert_int_eq(env_write(&env, file, out, 10, UINT64_MAX), -EINVAL);
    ck_assert_int_eq(env_write(&env, file, out, 0, 0), 0);
    ck_assert_int_eq(env_sync(&env, file), 0);
    ck_assert_int_eq(env.ops->truncate(&env, file, 7), 0);
    ck_assert_int_eq(env_read(&env, file, out, 10, 0), 7);
    env_close(&env, file);
}
END_TEST

START_TEST(allocate_keeps_content)
{
    struct env_file *file;
    struct stat st;
    uint64_t size;
    char out[8];
    ck_assert_int_eq(env_open(&env, path_of("f"), ENV_WRITE | ENV_CREATE, &file), 0);
    ck_assert_int_eq(env.ops->truncate(&env, file, 1 << 20), 0);
    ck_assert_int_eq(env_write(&env, file, "hello", 5, 4096), 0);
    ck_assert_int_eq(env.ops->allocate(&env, file, 0, 65536), 0);
    ck_assert_int_eq(env.ops->allocate(&env, file, 0, 0), 0);
    ck_assert_int_eq(env.ops->allocate(&env, file, UINT64_MAX, 5), -EINVAL);
    ck_assert_int_eq(env.ops->size(&env, file, &size), 0);
    ck_assert_uint_eq(size, 1 << 20);
    ck_assert_int_eq(env_read(&env, file, out, 5, 4096), 5);
    ck_assert_mem_eq(out, "hello", 5);
    ck_assert_int_eq(stat(path_of("f"), &st), 0);
    ck_assert_int_ge(st.st_blocks, 65536 / 512);
    ck_assert_int_lt(st.st_blocks, (1 << 20) / 512);
    ck_assert_int_eq(env.ops->allocate(&env, file, 1 << 20, 4096), 0);
    ck_assert_int_eq(env.ops->size(&env, file, &size), 0);
    ck_assert_uint_eq(size, (1 << 20) + 4096);
    env_close(&env, file);
}
END_TEST

START_TEST(mappings)
{
    struct env_file *file;
    int error_number = 0;
    char out[5];
    ck_assert_int_eq(env_open(&env, path_of("f"), ENV_WRITE | ENV_CREATE, &file), 0);
    ck_assert_int_eq(env.ops->truncate(&env, file, 65536), 0);
    uint8_t *writable = env.ops->map(&env, file, 65536, true, &error_number);
    const uint8_t *readable = env.ops->map(&env, file, 65536, false, &error_number);
    ck_assert_ptr_nonnull(writable);
    ck_assert_ptr_nonnull(readable);
    memcpy(writable + 5000, "hello", 5);
    ck_assert_mem_eq(readable + 5000, "hello", 5);
    ck_assert_int_eq(env_read(&env, file, out, 5, 5000), 5);
    ck_assert_mem_eq(out, "hello", 5);
    ck_assert_int_eq(env_write(&env, file, "HELLO", 5, 5000), 0);
    ck_assert_mem_eq(readable + 5000, "HELLO", 5);
    ck_assert_int_eq(env.ops->sync_map(&env, writable + 5000, 5), 0); /* need not begin at a page */
    env_close(&env, file); /* mappings stay */
    ck_assert_mem_eq(readable + 5000, "HELLO", 5);
    env.ops->unmap(&env, writable, 65536);
    env.ops->unmap(&env, (void *)(uintptr_t)readable, 65536);
    ck_assert_int_eq(env_open(&env, path_of("f"), ENV_READ, &file), 0);
    ck_assert_ptr_null(env.ops->map(&env, file, 65536, true, &error_number));
    ck_assert_int_eq(error_number, EACCES);
    env_close(&env, file);
}
END_TEST

struct seen {
    int files, dirs, stop_after;
};

static int each(void *argument, const char *name, bool is_dir)
{
    struct seen *seen = argument;
    ck_assert_str_ne(name, ".");
    ck_assert_str_ne(name, "..");
    *(is_dir ? &seen->dirs : &seen->files) += 1;
    return seen->stop_after > 0 && seen->files + seen->dirs == seen->stop_after ? 77 : 0;
}

START_TEST(memory_of_mappings)
{
    struct env_file *file;
    int error_number = 0;
    const size_t size = 1 << 20; /* more pages than are asked about at a time */
    ck_assert_int_eq(env_open(&env, path_of("f"), ENV_WRITE | ENV_CREATE, &file), 0);
    ck_assert_int_eq(env.ops->truncate(&env, file, size), 0);
    uint8_t *map = env.ops->map(&env, file, size, true, &error_number);
    ck_assert_ptr_nonnull(map);
    memset(map, 7, size);
    ck_assert(env.ops->resident(&env, map, size));
    ck_assert_int_eq(env.ops->sync_map(&env, map, size), 0);
    env.ops->unmap(&env, map, size);
    int descriptor = open(path_of("f"), O_RDONLY);
    ck_assert_int_eq(posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED), 0);
    close(descriptor);
    map = env.ops->map(&env, file, size, true, &error_number);
    ck_assert_ptr_nonnull(map);
    bool evicted = !env.ops->resident(&env, map, size); /* not in a file system that lives in memory */
    env.ops->populate(&env, map + 5000, 300000);
    ck_assert(env.ops->resident(&env, map + 5000, 300000));
    ck_assert_uint_eq(map[5000], 7);
    if (evicted) {
        ck_assert(!env.ops->resident(&env, map + size - 4096, 1));
        ck_assert(!env.ops->resident(&env, map, size));
    }
    map[6000] = 9;
    env.ops->let_go(&env, map + 5000, 300000);
    ck_assert_uint_eq(map[5000], 7);
    ck_assert_uint_eq(map[6000], 9);
    ck_assert_int_eq(env.ops->sync_map(&env, map, size), 0);
    env.ops->let_go(&env, map, size);
    ck_assert_uint_eq(map[size - 1], 7);
    env.ops->forget(&env, file, 5000, 300000);
    if (evicted)
        ck_assert(!env.ops->resident(&env, map + 4096, 1) && !env.ops->resident(&env, map + 304999, 1) && env.ops->resident(&env, map + size - 1, 1));
    env.ops->forget(&env, file, UINT64_MAX, 1);
    env.ops->forget(&env, file, 0, 0); /* not all of it */
    ck_assert(env.ops->resident(&env, map + size - 1, 1));
    ck_assert_uint_eq(map[6000], 9);
    env.ops->unmap(&env, map, size);
    ck_assert_int_eq(env_read(&env, file, &(uint8_t){0}, 1, 6000), 1);
    env_close(&env, file);
}
END_TEST

/* What is asked for, and not the megabytes that the kernel would read ahead of one who reads from the front. */
START_TEST(reads_ahead_are_exact)
{
    struct env_file *file;
    int error_number = 0;
    const size_t size = 16 << 20, piece = 256 << 10;
    uint8_t *bytes = malloc(size);
    ck_assert_ptr_nonnull(bytes);
    memset(bytes, 7, size);
    ck_assert_int_eq(env_open(&env, path_of("f"), ENV_WRITE | ENV_CREATE, &file), 0);
    ck_assert_int_eq(env_write(&env, file, bytes, size, 0), 0);
    ck_assert_int_eq(env_sync(&env, file), 0);
    int descriptor = open(path_of("f"), O_RDONLY);
    ck_assert_int_eq(posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED), 0);
    close(descriptor);
    uint8_t *map = env.ops->map(&env, file, size, true, &error_number);
    ck_assert_ptr_nonnull(map);
    bool evicted = !env.ops->resident(&env, map, size) && !env.ops->resident(&env, map + size - 4096, 1);
    for (size_t at = 0; at < 8 * piece; at += piece) {
        env_prefetch(&env, file, at, piece);
        ck_assert_int_eq(env_read(&env, file, bytes, piece, at), (ssize_t)piece);
        ck_assert_uint_eq(bytes[piece - 1], 7);
    }
    ck_assert(env.ops->resident(&env, map, 8 * piece));
    for (size_t at = 9 * piece; evicted && at < size; at += piece) /* one piece of grace: how large the kernel's pages are is its own business */
        ck_assert(!env.ops->resident(&env, map + at, piece));
    env_prefetch(&env, file, size + 5000, 300000); /* behind the end: nothing happens */
    env_prefetch(&env, file, UINT64_MAX, 1);
    env.ops->unmap(&env, map, size);
    env_close(&env, file);
    free(bytes);
}
END_TEST

START_TEST(directories)
{
    struct env_file *file;
    struct seen seen = {0};
    ck_assert_int_eq(env.ops->make_dir(&env, path_of("a/b/c")), 0);
    ck_assert_int_eq(env.ops->make_dir(&env, path_of("a/b/c")), 0);
    ck_assert_int_eq(env_open(&env, path_of("a/f"), ENV_WRITE | ENV_CREATE, &file), 0);
    env_close(&env, file);
    ck_assert_int_eq(env.ops->make_dir(&env, path_of("a/f")), -ENOTDIR);
    ck_assert_int_lt(env.ops->make_dir(&env, path_of("a/f/g")), 0);
    ck_assert_int_eq(env.ops->list(&env, path_of("a"), each, &seen), 0);
    ck_assert_int_eq(seen.files, 1);
    ck_assert_int_eq(seen.dirs, 1);
    seen = (struct seen){.stop_after = 1};
    ck_assert_int_eq(env.ops->list(&env, path_of("a"), each, &seen), 77);
    ck_assert_int_eq(seen.files + seen.dirs, 1);
    ck_assert_int_eq(env.ops->list(&env, path_of("none"), each, &seen), -ENOENT);
    ck_assert_int_eq(env.ops->rename(&env, path_of("a/f"), path_of("a/g")), 0);
    ck_assert_int_eq(env.ops->rename(&env, path_of("a/f"), path_of("a/g")), -ENOENT);
    ck_assert_int_eq(env.ops->remove_dir(&env, path_of("a/b")), -ENOTEMPTY);
    ck_assert_int_eq(env.ops->remove_dir(&env, path_of("a/b/c")), 0);
    ck_assert_int_eq(env.ops->unlink(&env, path_of("a/g")), 0);
    ck_assert_int_eq(env.ops->unlink(&env, path_of("a/g")), -ENOENT);
    ck_assert_int_eq(env.ops->sync_dir(&env, path_of("a")), 0);
    ck_assert_int_eq(env.ops->sync_dir(&env, path_of("none")), -ENOENT);
    ck_assert_int_eq(env.ops->sync_file_system(&env, root), 0);
    uint64_t free_bytes, total_bytes;
    ck_assert_int_eq(env.ops->space(&env, root, &free_bytes, &total_bytes), 0);
    ck_assert_uint_le(free_bytes, total_bytes);
    ck_assert_uint_gt(total_bytes, 0);
}
END_TEST

/* Invariant 17: a second process on the same directory is refused; when the first one dies the lock is free. */
START_TEST(lock)
{
    struct env_file *file, *again;
    ck_assert_int_eq(env_open(&env, path_of("lock"), ENV_WRITE | ENV_CREATE | ENV_LOCK, &file), 0);
    ck_assert_int_eq(env_open(&env, path_of("lock"), ENV_WRITE | ENV_CREATE | ENV_LOCK, &again), -EWOULDBLOCK);
    pid_t child = fork();
    if (child == 0)
        _exit(env_open(&env, path_of("lock"), ENV_WRITE | ENV_LOCK, &again) == -EWOULDBLOCK ? 0 : 1);
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    env_close(&env, file);
    child = fork();
    if (child == 0)
        _exit(env_open(&env, path_of("lock"), ENV_WRITE | ENV_LOCK, &again) == 0 ? 0 : 1); /* dies with it */
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(env_open(&env, path_of("lock"), ENV_WRITE | ENV_LOCK, &file), 0);
    env_close(&env, file);
}
END_TEST

START_TEST(clocks_and_chance)
{
    uint64_t before = env_monotonic_us(&env);
    ck_assert_int_gt(env_now_ms(&env), 1700000000000);
    ck_assert_uint_ge(env_monotonic_us(&env), before);
    ck_assert_uint_ne(env_random(&env), env_random(&env));
    ck_assert_uint_ne(env.ops->boot_id(&env), 0);
    ck_assert_uint_eq(env.ops->boot_id(&env), env.ops->boot_id(&env));
}
END_TEST

/* ---- state files ---- */

static int begins_with_x(void *argument, struct slice content)
{
    (void)argument;
    return slice_starts_with(content, "x") ? 0 : ERROR_MALFORMED;
}

static int read_state(struct env *e, const char *path, struct buffer *out)
{
    return state_file_read(e, path, 100, begins_with_x, NULL, out, &error);
}

START_TEST(state_file)
{
    struct buffer out;
    struct env_file *file;
    buffer_init(&out, 0);
    char path[PATH_MAX];
    strcpy(path, path_of("config/topics.json"));
    ck_assert_int_eq(read_state(&env, path, &out), ERROR_NOT_FOUND);
    ck_assert_int_eq(state_file_write(&env, path, SLICE_LITERAL("x1"), &error), 0); /* makes the directory */
    ck_assert_int_eq(state_file_write(&env, path, SLICE_LITERAL("x2"), &error), 0);
    ck_assert_int_eq(read_state(&env, path, &out), 0);
    ck_assert(slice_equal_text(buffer_slice(&out), "x2"));
    ck_assert_int_eq(access(path_of("config/topics.json.tmp"), F_OK), -1);
    /* Cut short, refused by the check, too long, missing: the one before counts. */
    ck_assert_int_eq(truncate(path, 0), 0);
    ck_assert_int_eq(read_state(&env, path, &out), 0);
    ck_assert(slice_equal_text(buffer_slice(&out), "x1"));
    ck_assert_int_eq(env_open(&env, path, ENV_WRITE, &file), 0);
    ck_assert_int_eq(env_write(&env, file, "bad", 3, 0), 0);
    env_close(&env, file);
    ck_assert_int_eq(read_state(&env, path, &out), 0);
    ck_assert(slice_equal_text(buffer_slice(&out), "x1"));
    ck_assert_int_eq(truncate(path, 101), 0);
    ck_assert_int_eq(read_state(&env, path, &out), 0);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(read_state(&env, path, &out), 0);
    ck_assert(slice_equal_text(buffer_slice(&out), "x1"));
    /* None is good. */
    ck_assert_int_eq(truncate(path_of("config/topics.json.bak"), 0), 0);
    ck_assert_int_eq(read_state(&env, path, &out), ERROR_DAMAGED);
    ck_assert_uint_eq(out.size, 0);
    ck_assert_int_eq(state_file_write(&env, path, SLICE_LITERAL(""), &error), 0);
    ck_assert_int_eq(state_file_read(&env, path, 0, NULL, NULL, &out, &error), 0);
    ck_assert_int_eq(state_file_remove(&env, path, &error), 0);
    ck_assert_int_eq(state_file_remove(&env, path, &error), 0);
    ck_assert_int_eq(read_state(&env, path, &out), ERROR_NOT_FOUND);
    buffer_close(&out);
}
END_TEST

/* Killed or cut off inside any call: the old content or the new one, and the new one once write has returned. */
START_TEST(state_file_under_faults)
{
    struct buffer out;
    buffer_init(&out, 0);
    for (int power = 0; power < 3; power++) {
        for (uint64_t n = 1; n < 14; n++) {
            struct sim_env sim;
            sim_env_init(&sim, n * 3 + (uint64_t)power, NULL);
            ck_assert_int_eq(sim.env.ops->make_dir(&sim.env, "/s"), 0);
            ck_assert_int_eq(sim.env.ops->sync_dir(&sim.env, "/"), 0);
            ck_assert_int_eq(state_file_write(&sim.env, "/s/f", SLICE_LITERAL("xold"), &error), 0);
            ck_assert_int_eq(state_file_write(&sim.env, "/s/f", SLICE_LITERAL("xOLD"), &error), 0);
            int rv;
            if (power == 2) {
                sim_env_fail_at(&sim, SIM_ALL, n, EIO, false);
                rv = state_file_write(&sim.env, "/s/f", SLICE_LITERAL("xnew"), &error);
            } else {
                sim_env_kill_at(&sim, SIM_ALL, n);
                rv = state_file_write(&sim.env, "/s/f", SLICE_LITERAL("xnew"), &error);
                if (power == 1)
                    sim_env_power_cut(&sim);
                else
                    sim_env_kill(&sim);
                sim_env_restart(&sim);
            }
            sim.fault.calls = 0;
            ck_assert_msg(read_state(&sim.env, "/s/f", &out) == 0, "%s", error.message);
            bool is_new = slice_equal_text(buffer_slice(&out), "xnew");
            ck_assert(is_new || slice_equal_text(buffer_slice(&out), "xOLD"));
            if (rv == 0)
                ck_assert(is_new);
            sim_env_close(&sim);
        }
    }
    buffer_close(&out);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("env");
    TCase *tcase = tcase_create("core");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, open_flags);
    tcase_add_test(tcase, read_and_write);
    tcase_add_test(tcase, allocate_keeps_content);
    tcase_add_test(tcase, mappings);
    tcase_add_test(tcase, memory_of_mappings);
    tcase_add_test(tcase, reads_ahead_are_exact);
    tcase_add_test(tcase, directories);
    tcase_add_test(tcase, lock);
    tcase_add_test(tcase, clocks_and_chance);
    tcase_add_test(tcase, state_file);
    tcase_add_test(tcase, state_file_under_faults);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
