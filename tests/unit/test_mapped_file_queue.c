/* Mapped file queues on real files: names, lookup, add, cut, trim, pins, and what open refuses. */
#include "store/mapped_file_queue.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIZE 8192u

static char root[64];
static struct env env;
static struct error error;

static void set_up(void)
{
    env_real_init(&env);
    strcpy(root, "/tmp/ledgermq-mfq-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    memset(&error, 0, sizeof error);
}

static void tear_down(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", root);
    ck_assert_int_eq(system(command), 0);
}

static const char *path_of(const char *name)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", root, name);
    return path;
}

static void make_file(const char *name, off_t size)
{
    FILE *f = fopen(path_of(name), "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(ftruncate(fileno(f), size), 0);
    fclose(f);
}

static int count_descriptors(void)
{
    int count = 0;
    for (int fd = 0; fd < 512; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            count++;
    return count;
}

START_TEST(names)
{
    char name[21];
    mapped_file_name(1073741824, name);
    ck_assert_str_eq(name, "00000000001073741824");
    mapped_file_name(0, name);
    ck_assert_str_eq(name, "00000000000000000000");
    mapped_file_name(UINT64_MAX, name);
    ck_assert_str_eq(name, "18446744073709551615");
}
END_TEST

START_TEST(add_find_and_reopen)
{
    struct mapped_file_queue queue;
    struct mapped_file *file;
    int before = count_descriptors();
    ck_assert_int_eq(mapped_file_queue_open(&queue, &env, path_of("q/0"), SIZE, true, &error), 0);
    ck_assert_ptr_null(mapped_file_queue_find(&queue, 0));
    ck_assert_int_ne(access(path_of("q/0"), F_OK), 0); /* nothing on disk before the first append */
    ck_assert_int_eq(mapped_file_queue_add(&queue, 3 * SIZE + 100, &file, &error), 0);
    ck_assert_uint_eq(file->start, 3 * SIZE);
    ck_assert_int_eq(mapped_file_queue_add(&queue, 4 * SIZE, &file, &error), 0);
    ck_assert_uint_eq(mapped_file_queue_begin(&queue), 3 * SIZE);
    ck_assert_uint_eq(mapped_file_queue_end(&queue), 5 * SIZE);
    ck_assert_ptr_null(mapped_file_queue_at(&queue, 3 * SIZE - 1, 1));
    ck_assert_ptr_nonnull(mapped_file_queue_at(&queue, 4 * SIZE - 4, 4));
    ck_assert_ptr_null(mapped_file_queue_at(&queue, 4 * SIZE - 4, 5)); /* would straddle */
    ck_assert_ptr_null(mapped_file_queue_at(&queue, 5 * SIZE, 1));
    ck_assert_ptr_null(mapped_file_queue_at(&queue, 4 * SIZE, SIZE_MAX));
    memcpy(mapped_file_queue_at(&queue, 4 * SIZE + 8, 5), "hello", 5);
    ck_assert_int_eq(count_descriptors(), before); /* descriptors are closed once mapped */
    ck_assert(queue.dir_dirty);
    ck_assert_int_eq(mapped_file_queue_sync_dir(&queue), 0);
    ck_assert(!queue.dir_dirty);
    mapped_file_queue_close(&queue);

    struct stat st;
    ck_assert_int_eq(stat(path_of("q/0/00000000000000032768"), &st), 0);
    ck_assert_int_eq(st.st_size, SIZE);

    /* Written through one mapping, read through a read-only one that keeps its descriptor. */
    ck_assert_int_eq(mapped_file_queue_open(&queue, &env, path_of("q/0"), SIZE, false, &error), 0);
    ck_assert_uint_eq(queue.count, 2);
    ck_assert_mem_eq(mapped_file_queue_at(&queue, 4 * SIZE + 8, 5), "hello", 5);
    ck_assert_int_eq(count_descriptors(), before + 2);
    ck_assert_int_eq(env_write(&env, queue.files[1]->file, "HELLO", 5, 8), 0);
    ck_assert_mem_eq(mapped_file_queue_at(&queue, 4 * SIZE + 8, 5), "HELLO", 5);
    mapped_file_queue_close(&queue);
    ck_assert_int_eq(count_descriptors(), before);
}
END_TEST

START_TEST(cut_and_trim)
{
    struct mapped_file_queue queue;
    ck_assert_int_eq(mapped_file_queue_open(&queue, &env, path_of("q"), SIZE, false, &error), 0);
    for (uint64_t i = 0; i < 6; i++)
        ck_assert_int_eq(mapped_file_queue_add(&queue, i * SIZE, NULL, &error), 0);
    /* The file that holds the position stays. */
    ck_assert_int_eq(mapped_file_queue_cut(&queue, 4 * SIZE + 1, &error), 0);
    ck_assert_uint_eq(queue.count, 5);
    ck_assert_int_eq(mapped_file_queue_cut(&queue, 4 * SIZE, &error), 0);
    ck_assert_uint_eq(queue.count, 4);
    ck_assert_int_eq(mapped_file_queue_trim(&queue, 2 * SIZE - 1, &error), 0);
    ck_assert_uint_eq(mapped_file_queue_begin(&queue), SIZE);
    ck_assert_int_eq(mapped_file_queue_trim(&queue, 100 * SIZE, &error), 0);
    ck_assert_uint_eq(queue.count, 1);
    ck_assert_uint_eq(mapped_file_queue_begin(&queue), 3 * SIZE);
    ck_assert_int_eq(mapped_file_queue_destroy(&queue, &error), 0);
    ck_assert_int_ne(access(path_of("q"), F_OK), 0);
}
END_TEST

START_TEST(pinned_files_outlive_removal)
{
    struct mapped_file_queue queue;
    ck_assert_int_eq(mapped_file_queue_open(&queue, &env, path_of("q"), SIZE, false, &error), 0);
    ck_assert_int_eq(mapped_file_queue_add(&queue, 0, NULL, &error), 0);
    ck_assert_int_eq(mapped_file_queue_add(&queue, SIZE, NULL, &error), 0);
    struct mapped_file *file = mapped_file_queue_find(&queue, 0);
    ck_assert_int_eq(env_write(&env, file->file, "abc", 3, 0), 0);
    mapped_file_pin(file);
    mapped_file_pin(file);
    ck_assert_int_eq(mapped_file_queue_trim(&queue, SIZE, &error), 0);
    ck_assert_int_ne(access(path_of("q/00000000000000000000"), F_OK), 0);
    ck_assert_mem_eq(file->map, "abc", 3);
    mapped_file_unpin(file);
    ck_assert_mem_eq(file->map, "abc", 3);
    mapped_file_unpin(file); /* ASan sees a leak if this does not free it */
    mapped_file_queue_close(&queue);
}
END_TEST

/* Invariant 16: a file of another length makes open fail and nothing is deleted. */
START_TEST(open_refuses)
{
    struct mapped_file_queue queue;
    make_file("00000000000000000000", SIZE);
    make_file("00000000000000008192", SIZE);
    make_file("notes.txt", 5);
    make_file("00000000000000016384.new", 0); /* a creation that died */
    ck_assert_int_eq(mapped_file_queue_open(&queue, &env, root, SIZE, true, &error), 0);
    ck_assert_uint_eq(queue.count, 2);
    mapped_file_queue_close(&queue);
    ck_assert_int_ne(access(path_of("00000000000000016384.new"), F_OK), 0);
    ck_assert_int_eq(access(path_of("notes.txt"), F_OK), 0);

    static const char *const file_names[] = {"00000000000000000000", "00000000000000008192"};
    for (int i = 0; i < 2; i++) { /* what is mapped for reading is never made longer, of what is mapped for writing only the newest file */
        ck_assert_int_eq(truncate(path_of(file_names[i]), SIZE - 1), 0);
        ck_assert_int_eq(mapped_file_queue_open(&queue, &env, root, SIZE, i == 0, &error), ERROR_DAMAGED);
        ck_assert_ptr_nonnull(strstr(error.message, file_names[i]));
        ck_assert_int_eq(access(path_of(file_names[i]), F_OK), 0);
        ck_assert_int_eq(truncate(path_of(file_names[i]), SIZE), 0);
    }
    ck_assert_int_eq(truncate(path_of(file_names[1]), SIZE + 1), 0);
    ck_assert_int_eq(mapped_file_queue_open(&queue, &env, root, SIZE, true, &error), ERROR_DAMAGED);
    ck_assert_int_eq(truncate(path_of(file_names[1]), SIZE - 1), 0);
    ck_assert_int_eq(mapped_file_queue_open(&queue, &env, root, SIZE, true, &error), 0);
    ck_assert_uint_eq(queue.count, 2);
    ck_assert_uint_eq(queue.files[1]->map[SIZE - 1], 0);
    mapped_file_queue_close(&queue);

    make_file("00000000000000024576", SIZE); /* gap */
    ck_assert_int_eq(mapped_file_queue_open(&queue, &env, root, SIZE, true, &error), ERROR_DAMAGED);
    unlink(path_of("00000000000000024576"));
    make_file("0000000000000001638x", SIZE);
    ck_assert_int_eq(mapped_file_queue_open(&queue, &env, root, SIZE, true, &error), ERROR_DAMAGED);
    unlink(path_of("0000000000000001638x"));
    make_file("00000000000000016385", SIZE);
    ck_assert_int_eq(mapped_file_queue_open(&queue, &env, root, SIZE, true, &error), ERROR_DAMAGED);
    unlink(path_of("00000000000000016385"));
    /* Another file size in the settings. */
    ck_assert_int_eq(mapped_file_queue_open(&queue, &env, root, 2 * SIZE, true, &error), ERROR_DAMAGED);
    ck_assert_int_eq(mapped_file_queue_open(&queue, &env, root, SIZE, true, &error), 0);
    mapped_file_queue_close(&queue);
}
END_TEST

/* An env whose Nth call of some kinds fails: every failure must leave a queue that works on. */
static struct env_ops failing_ops;
static int calls_left;

static int fail_now(void)
{
    return calls_left-- == 0 ? -ENOSPC : 0;
}
static int failing_truncate(struct env *e, struct env_file *file, uint64_t size)
{
    int rv = fail_now();
    struct env real;
    env_real_init(&real);
    (void)e;
    return rv != 0 ? rv : real.ops->truncate(&real, file, size);
}
static int failing_rename(struct env *e, const char *from, const char *to)
{
    int rv = fail_now();
    struct env real;
    env_real_init(&real);
    (void)e;
    return rv != 0 ? rv : real.ops->rename(&real, from, to);
}
static void *failing_map(struct env *e, struct env_file *file, size_t size, bool writable, int *error_number)
{
    int rv = fail_now();
    struct env real;
    env_real_init(&real);
    (void)e;
    if (rv != 0) {
        *error_number = -rv;
        return NULL;
    }
    return real.ops->map(&real, file, size, writable, error_number);
}
static int failing_sync_dir(struct env *e, const char *path)
{
    int rv = fail_now();
    struct env real;
    env_real_init(&real);
    (void)e;
    return rv != 0 ? rv : real.ops->sync_dir(&real, path);
}

START_TEST(failed_add_leaves_nothing)
{
    struct mapped_file_queue queue;
    int before = count_descriptors();
    failing_ops = *env.ops;
    failing_ops.truncate = failing_truncate;
    failing_ops.rename = failing_rename;
    failing_ops.map = failing_map;
    failing_ops.sync_dir = failing_sync_dir;
    struct env failing = {&failing_ops, NULL};
    calls_left = -1;
    ck_assert_int_eq(mapped_file_queue_open(&queue, &failing, path_of("q"), SIZE, false, &error), 0);
    for (int n = 0; n < 4; n++) {
        calls_left = n;
        ck_assert_int_eq(mapped_file_queue_add(&queue, 0, NULL, &error), ERROR_NO_SPACE);
        ck_assert_uint_eq(queue.count, 0);
        ck_assert_int_eq(count_descriptors(), before);
        ck_assert_int_eq(rmdir(path_of("q")), 0); /* empty */
        ck_assert_int_eq(mkdir(path_of("q"), 0755), 0);
    }
    calls_left = -1;
    ck_assert_int_eq(mapped_file_queue_add(&queue, 0, NULL, &error), 0);
    mapped_file_queue_close(&queue);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mapped_file_queue");
    TCase *tcase = tcase_create("core");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, names);
    tcase_add_test(tcase, add_find_and_reopen);
    tcase_add_test(tcase, cut_and_trim);
    tcase_add_test(tcase, pinned_files_outlive_removal);
    tcase_add_test(tcase, open_refuses);
    tcase_add_test(tcase, failed_add_leaves_nothing);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
