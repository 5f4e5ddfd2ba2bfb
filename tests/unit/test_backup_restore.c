/* A restore that is interrupted at any call, and gone on with by the next start. */
#include "dledger/backup_restore.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dledger/bulk_fetch.h"
#include "dledger/dledger_commit_log.h"
#include "dledger/metadata_snapshot.h"
#include "dledger/vote_file.h"
#include "proto/backup_manifest.h"
#include "store/checkpoint.h"
#include "tests/lib/run_suite.h"
#include "tests/lib/sim_env.h"

#define SEGMENT 4096u
#define FIRST 8192u /* the log begins at the third segment */
#define TERM 5u

static struct env env;
static struct env_ops odd;
static const struct env_ops *real;
static int calls_left; /* of those that change something; then all fail, as for a process that died */

static char root[40], store[80], member[120];
static const struct dledger_options *options;

static bool dies(void)
{
    return calls_left == 0 || calls_left-- == 0;
}

static int odd_write(struct env *of, struct env_file *file, const struct iovec *iov, int count, uint64_t offset)
{
    return dies() ? -EIO : real->write(of, file, iov, count, offset);
}

static int odd_sync(struct env *of, struct env_file *file)
{
    return dies() ? -EIO : real->sync(of, file);
}

static int odd_truncate(struct env *of, struct env_file *file, uint64_t size)
{
    return dies() ? -EIO : real->truncate(of, file, size);
}

static int odd_rename(struct env *of, const char *from, const char *to)
{
    return dies() ? -EIO : real->rename(of, from, to);
}

static int odd_unlink(struct env *of, const char *path)
{
    return dies() ? -EIO : real->unlink(of, path);
}

static int odd_make_dir(struct env *of, const char *path)
{
    return dies() ? -EIO : real->make_dir(of, path);
}

static int odd_remove_dir(struct env *of, const char *path)
{
    return dies() ? -EIO : real->remove_dir(of, path);
}

static int odd_sync_dir(struct env *of, const char *path)
{
    return dies() ? -EIO : real->sync_dir(of, path);
}

static void path_in(const char *dir, const char *name, char out[1000])
{
    snprintf(out, 1000, "%.700s/%.200s", dir, name);
}

static bool is_there(const char *dir, const char *name)
{
    char path[1000];
    path_in(dir, name, path);
    return access(path, F_OK) == 0;
}

static void write_file(struct buffer *manifest, const char *dir, const char *name, struct slice content)
{
    char path[1000];
    path_in(dir, name, path);
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(content.data, 1, content.size, file), content.size);
    ck_assert_int_eq(fclose(file), 0);
    if (manifest != NULL)
        backup_manifest_file(manifest, name, content.size, crc32c(0, content.data, content.size));
}

/* One entry, number 7. */
static void write_backup(void)
{
    uint8_t bytes[LEDGER_ENTRY_HEADER_SIZE + 100] = {0};
    struct ledger_entry entry = {.index = 7, .term = TERM, .position = FIRST, .kind = LEDGER_ENTRY_BARRIER, .body_size = 100};
    struct checkpoint *checkpoint = calloc(1, sizeof *checkpoint);
    struct buffer text, small;
    char dir[1000], data[1000];

    ck_assert_ptr_nonnull(checkpoint);
    ledger_entry_seal(&entry, bytes, 0x1234);
    struct backup_manifest manifest = {
        .group = slice_of_text("g"), .members = slice_of_text("n0;n1"), .segment_size = SEGMENT, .first_index = 7, .last_index = 7, .first_position = FIRST,
        .end_position = FIRST + sizeof bytes, .first_header_crc = crc32c(0, bytes, LEDGER_ENTRY_HEADER_SIZE), .term = TERM,
    };
    path_in(store, "restore", dir);
    path_in(dir, "data", data);
    ck_assert_int_eq(real->make_dir(&env, data), 0);
    buffer_init(&text, 0);
    buffer_init(&small, 0);
    backup_manifest_begin(&text, &manifest);
    write_file(&text, dir, "data/00000000000000008192", slice_of(bytes, sizeof bytes));
    ck_assert_int_eq(metadata_snapshot_begin(&small, 7), 0);
    ck_assert_int_eq(metadata_snapshot_end(&small), 0);
    write_file(&text, dir, "metadata.0", buffer_slice(&small));
    buffer_clear(&small);
    checkpoint->committed_index = 7;
    checkpoint->committed_term = TERM;
    checkpoint->clean = true;
    ck_assert_int_eq(checkpoint_image(checkpoint, &small), 0);
    write_file(&text, dir, "checkpoint", buffer_slice(&small));
    backup_manifest_end(&text);
    write_file(NULL, dir, BACKUP_MANIFEST_NAME, buffer_slice(&text));
    buffer_close(&text);
    buffer_close(&small);
    free(checkpoint);
}

/* What a start does before it opens the log. */
static int start(struct error *error)
{
    bool installed, leftover;
    int rv = backup_restore(&env, options, member, error);
    return rv == 0 ? bulk_install(&env, store, member, &installed, &leftover, error) : rv;
}

static void check_restored(void)
{
    struct checkpoint *checkpoint = calloc(1, sizeof *checkpoint);
    struct vote_file votes;
    struct stat status;
    struct error error;
    char path[1000];

    ck_assert_ptr_nonnull(checkpoint);
    path_in(member, "data/00000000000000008192", path);
    ck_assert_int_eq(stat(path, &status), 0);
    ck_assert_int_eq(status.st_size, SEGMENT);
    ck_assert(is_there(member, "metadata.0"));
    /* A folder of that name without the mark is no more than rubbish. */
    ck_assert(!is_there(store, "restore") && !is_there(member, "install/complete") && !is_there(member, "install/" BACKUP_MANIFEST_NAME));
    path_in(member, "checkpoint", path);
    ck_assert_int_eq(checkpoint_load(checkpoint, &env, path, &error), 0);
    ck_assert(checkpoint->present && checkpoint->clean && !checkpoint->forgot);
    ck_assert_int_eq(checkpoint->committed_index, 7);
    ck_assert_uint_ne(checkpoint->incarnation, 0);
    free(checkpoint);
    path_in(member, "vote", path);
    ck_assert_int_eq(vote_file_open(&votes, &env, path, &error), 0);
    ck_assert(votes.existed && !votes.doubtful);
    ck_assert_uint_eq(votes.term, TERM);
    vote_file_close(&votes);
}

static void begin(struct dledger_options *of)
{
    env_real_init(&env);
    real = env.ops;
    odd = *real;
    odd.write = odd_write;
    odd.sync = odd_sync;
    odd.truncate = odd_truncate;
    odd.rename = odd_rename;
    odd.unlink = odd_unlink;
    odd.make_dir = odd_make_dir;
    odd.remove_dir = odd_remove_dir;
    odd.sync_dir = odd_sync_dir;
    snprintf(root, sizeof root, "/tmp/backup_restore_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    *of = (struct dledger_options){.cluster = "c", .group = "g", .self_id = "n1", .segment_size = SEGMENT, .durability = DURABILITY_B};
    options = of;
}

static void fresh_store(struct dledger_options *of, int number)
{
    snprintf(store, sizeof store, "%s/%d", root, number);
    snprintf(member, sizeof member, "%s/dledger-n1", store);
    ck_assert_int_eq(real->make_dir(&env, member), 0);
    of->dir = store;
    write_backup();
}

static void end(void)
{
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", root);
    ck_assert_int_eq(system(command), 0);
}

START_TEST(a_restore_is_gone_on_with)
{
    struct dledger_options of;
    struct error error;
    bool whole = false;

    begin(&of);
    for (int n = 0; !whole; n++) {
        fresh_store(&of, n);
        env.ops = &odd;
        calls_left = n;
        int rv = start(&error);
        whole = calls_left > 0;
        ck_assert(whole ? rv == 0 : true);
        env.ops = real;
        ck_assert_msg(start(&error) == 0, "after %d calls: %s", n, error.message);
        check_restored();
        ck_assert_int_eq(start(&error), 0); /* nothing is left to do */
        check_restored();
        ck_assert_int_lt(n, 200);
        ck_assert(!whole || n > 15);
    }
    end();
}
END_TEST

static const char *const names[] = {BACKUP_MANIFEST_NAME, "checkpoint", "metadata.0", "data/00000000000000008192"};

/* cp -r: nothing is durable. */
static void copy_to(struct sim_env *sim)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        static uint8_t bytes[1 << 16];
        char from[1000], to[100];
        struct env_file *file;
        snprintf(from, sizeof from, "%s/restore/%s", store, names[i]);
        snprintf(to, sizeof to, "/s/restore/%s", names[i]);
        FILE *source = fopen(from, "rb");
        ck_assert_ptr_nonnull(source);
        size_t size = fread(bytes, 1, sizeof bytes, source);
        fclose(source);
        ck_assert_int_eq(env_open(&sim->env, to, ENV_WRITE | ENV_CREATE, &file), 0);
        ck_assert_int_eq(env_write(&sim->env, file, bytes, size, 0), 0);
        env_close(&sim->env, file);
    }
}

static int start_in(struct sim_env *sim, const struct dledger_options *of, struct error *error)
{
    bool installed, leftover;
    int rv = backup_restore(&sim->env, of, "/s/dledger-n1", error);
    return rv == 0 ? bulk_install(&sim->env, "/s", "/s/dledger-n1", &installed, &leftover, error) : rv;
}

/* Whoever copied it made nothing durable. The process dies at any call of the restore, then the machine loses power at any call of the next one: it is gone on with,
 * or what is missing is named. */
START_TEST(power_is_lost_within_a_restore)
{
    struct dledger_options of;
    struct error error;
    unsigned taken = 0, refused = 0;

    begin(&of);
    fresh_store(&of, 0);
    of.dir = "/s";
    for (unsigned round = 0; round < 30000; round++) {
        struct sim_env sim;
        uint64_t size = 0;
        sim_env_init(&sim, round, NULL);
        ck_assert_int_eq(sim.env.ops->make_dir(&sim.env, "/s/dledger-n1"), 0);
        ck_assert_int_eq(sim.env.ops->make_dir(&sim.env, "/s/restore/data"), 0);
        copy_to(&sim);
        for (int i = 0; i < 2; i++) {
            sim_env_kill_at(&sim, SIM_CHANGES, 1 + (i == 0 ? round % 100 : round / 100 % 30));
            start_in(&sim, &of, &error);
            if (i == 1)
                sim_env_power_cut(&sim);
            sim_env_restart(&sim);
        }
        int rv = start_in(&sim, &of, &error);
        ck_assert_msg(rv == 0 || rv == ERROR_DAMAGED, "round %u: %s", round, error.message);
        if (rv == 0) {
            ck_assert_msg(sim_env_bytes(&sim, "/s/dledger-n1/data/00000000000000008192", &size) != NULL && size == SEGMENT, "round %u: the log is gone", round);
            ck_assert(sim_env_exists(&sim, "/s/dledger-n1/checkpoint") && sim_env_exists(&sim, "/s/dledger-n1/metadata.0"));
            /* It votes at once: who does not may wait for a leader that there never is. */
            struct vote_file votes;
            ck_assert_int_eq(vote_file_open(&votes, &sim.env, "/s/dledger-n1/vote", &error), 0);
            ck_assert_msg(votes.existed && !votes.doubtful && votes.term == TERM, "round %u: it does not vote", round);
            vote_file_close(&votes);
        }
        taken += rv == 0;
        refused += rv != 0;
        sim_env_close(&sim);
    }
    ck_assert_uint_gt(taken, 1000);
    ck_assert_uint_gt(refused, 100);
    end();
}
END_TEST

START_TEST(who_may_not_take_it)
{
    struct dledger_options of;
    struct error error;
    char path[1000];

    begin(&of);
    fresh_store(&of, 0);
    of.self_id = "n2";
    ck_assert_int_eq(start(&error), ERROR_INVALID);
    ck_assert_ptr_nonnull(strstr(error.message, "it is of a group of n0;n1"));
    of.self_id = "n1";
    of.segment_size = 2 * SEGMENT;
    ck_assert_int_eq(start(&error), ERROR_INVALID);
    ck_assert_ptr_nonnull(strstr(error.message, "set mappedFileSizeCommitLog=4096"));
    of.segment_size = SEGMENT;
    path_in(member, "vote", path);
    write_file(NULL, member, "vote", slice_of_text("x"));
    ck_assert_int_eq(start(&error), ERROR_INVALID);
    ck_assert_ptr_nonnull(strstr(error.message, "/vote is there"));
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(start(&error), 0);
    check_restored();
    end();
}
END_TEST

START_TEST(a_later_version_is_named)
{
    struct dledger_options of;
    struct error error;
    struct buffer text;
    char path[1000];

    begin(&of);
    fresh_store(&of, 0);
    buffer_init(&text, 0);
    buffer_append_text(&text, "ledgermq-backup 3\n");
    backup_manifest_end(&text);
    path_in(store, "restore", path);
    write_file(NULL, path, BACKUP_MANIFEST_NAME, buffer_slice(&text));
    buffer_close(&text);
    ck_assert_int_eq(start(&error), ERROR_VERSION);
    ck_assert_ptr_nonnull(strstr(error.message, "restore/backup is of version 3"));
    ck_assert(is_there(path, "checkpoint"));
    end();
}
END_TEST

static Suite *suite(void)
{
    Suite *suite = suite_create("backup_restore");
    TCase *test = tcase_create("backup_restore");
    tcase_set_timeout(test, 60);
    tcase_add_test(test, a_restore_is_gone_on_with);
    tcase_add_test(test, power_is_lost_within_a_restore);
    tcase_add_test(test, who_may_not_take_it);
    tcase_add_test(test, a_later_version_is_named);
    suite_add_tcase(suite, test);
    return suite;
}

int main(void)
{
    return run_suite(suite());
}
