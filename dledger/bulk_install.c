/* The switch from what a member had to what it fetched, in steps that may be repeated from any point at which a kill or a power cut stopped them:
 *
 *   1 install/complete is there: what the member had goes (queues, index, snapshots, checkpoint, log; not the vote), then install/cleared is written
 *   2 the new files are moved to their places
 *   3 complete goes, then cleared, each durably: with complete alone, step 1 would take the new files for the old ones
 */
#include "dledger/bulk_fetch.h"

#include <limits.h>
#include <stdio.h>

#include "dledger/metadata_snapshot.h"
#include "store/log_sink.h"

#define MARK_MAGIC 0x4C4D5149u /* "LMQI" */
#define MARK_VERSION 1u
#define MARK_SIZE 12u

struct place {
    struct env *env;
    const char *from, *to; /* to: NULL = removal */
    int depth;
};

static int remove_one(void *argument, const char *name, bool is_dir)
{
    struct place *place = argument;
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", place->from, name);

    if (n < 0 || n >= (int)sizeof path)
        return -ENAMETOOLONG;
    if (!is_dir)
        return place->env->ops->unlink(place->env, path);
    struct place inner = {place->env, path, NULL, place->depth + 1};
    int rv = place->depth > 4 ? -ELOOP : place->env->ops->list(place->env, path, remove_one, &inner);
    return rv == 0 ? place->env->ops->remove_dir(place->env, path) : rv;
}

/* What is in a directory; a missing one is empty. */
static int empty_dir(struct env *env, const char *dir)
{
    struct place place = {env, dir, NULL, 0};
    int rv = env->ops->list(env, dir, remove_one, &place);
    return rv == -ENOENT ? 0 : rv == 0 ? env->ops->sync_dir(env, dir) : rv;
}

static int move_one(void *argument, const char *name, bool is_dir)
{
    struct place *place = argument;
    char from[PATH_MAX], to[PATH_MAX];
    int n = snprintf(from, sizeof from, "%s/%s", place->from, name);
    int m = snprintf(to, sizeof to, "%s/%s", place->to, name);

    if (n < 0 || n >= (int)sizeof from || m < 0 || m >= (int)sizeof to)
        return -ENAMETOOLONG;
    return is_dir ? 0 : place->env->ops->rename(place->env, from, to);
}

static int move_dir(struct env *env, const char *install, const char *dir, const char *name)
{
    char from[PATH_MAX], to[PATH_MAX];
    snprintf(from, sizeof from, "%.3000s/%s", install, name);
    snprintf(to, sizeof to, "%.3000s/%s", dir, name);
    struct place place = {env, from, to, 0};
    int rv = env->ops->make_dir(env, to);
    if (rv == 0)
        rv = env->ops->list(env, from, move_one, &place);
    if (rv == 0)
        rv = env->ops->sync_dir(env, to);
    return rv == -ENOENT ? 0 : rv;
}

static int unlink_in(struct env *env, const char *dir, const char *name)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%.3000s/%s", dir, name);
    int rv = env->ops->unlink(env, path);
    return rv == -ENOENT ? 0 : rv;
}

static int move_in(struct env *env, const char *from_dir, const char *to_dir, const char *name)
{
    char from[PATH_MAX], to[PATH_MAX];
    snprintf(from, sizeof from, "%.3000s/%s", from_dir, name);
    snprintf(to, sizeof to, "%.3000s/%s", to_dir, name);
    int rv = env->ops->rename(env, from, to);
    return rv == -ENOENT ? 0 : rv;
}

static int see_one(void *argument, const char *name, bool is_dir)
{
    (void)argument, (void)name, (void)is_dir;
    return 1;
}

/* A torn mark is none. */
static bool marked(struct env *env, const char *dir, const char *name)
{
    char path[PATH_MAX];
    uint8_t mark[MARK_SIZE];
    struct env_file *file;
    snprintf(path, sizeof path, "%.3000s/%s", dir, name);
    if (env_open(env, path, ENV_READ, &file) != 0)
        return false;
    bool good = env_read(env, file, mark, sizeof mark, 0) == (ssize_t)sizeof mark && load_u32(mark) == MARK_MAGIC && load_u32(mark + 4) == MARK_VERSION &&
                load_u32(mark + 8) == crc32c(0, mark, 8);
    env_close(env, file);
    return good;
}

bool bulk_install_is_complete(struct env *env, const char *install)
{
    return marked(env, install, "complete");
}

int bulk_install_mark(struct env *env, const char *path, struct error *error)
{
    uint8_t mark[MARK_SIZE];
    store_u32(mark, MARK_MAGIC);
    store_u32(mark + 4, MARK_VERSION);
    store_u32(mark + 8, crc32c(0, mark, 8));
    return metadata_snapshot_write(env, path, slice_of(mark, sizeof mark), error); /* a file and its name, durable */
}

int bulk_install_keep_marks(struct env *env, const char *install)
{
    static const char *const marks[] = {"complete", "cleared"};
    for (int i = 0; i < 2; i++) {
        char path[PATH_MAX];
        struct env_file *file;
        snprintf(path, sizeof path, "%.3000s/%s", install, marks[i]);
        int rv = env_open(env, path, ENV_READ, &file);
        if (rv == -ENOENT)
            continue;
        if (rv != 0)
            return rv;
        rv = env_sync(env, file);
        env_close(env, file);
        if (rv != 0)
            return rv;
    }
    return env->ops->sync_dir(env, install);
}

static int failed(struct error *error, const char *dir, const char *what, int rv)
{
    return error_set(error, ERROR_IO, "%s: %s of what was fetched: %s; the next start tries again", dir, what, strerror(-rv));
}

static int clear(struct env *env, const char *store_dir, const char *dir)
{
    static const char *const of_store[] = {"consumequeue", "index"}, *const of_member[] = {"data", "index"};
    static const char *const files[] = {"metadata.0", "metadata.1", "checkpoint"};
    char path[PATH_MAX];
    int rv = 0;
    for (int i = 0; i < 2 && rv == 0; i++) {
        snprintf(path, sizeof path, "%.3000s/%s", store_dir, of_store[i]);
        rv = empty_dir(env, path);
    }
    for (int i = 0; i < 2 && rv == 0; i++) {
        snprintf(path, sizeof path, "%.3000s/%s", dir, of_member[i]);
        rv = empty_dir(env, path);
    }
    for (int i = 0; i < 3 && rv == 0; i++)
        rv = unlink_in(env, dir, files[i]);
    return rv == 0 ? env->ops->sync_dir(env, dir) : rv;
}

int bulk_install(struct env *env, const char *store_dir, const char *dir, bool *installed, bool *leftover, struct error *error)
{
    static const char *const dirs[] = {"data", "index"}, *const files[] = {"metadata.0", "checkpoint"}, *const marks[] = {"complete", "cleared"};
    char install[PATH_MAX], path[PATH_MAX];
    int rv = 0;

    *installed = false;
    snprintf(install, sizeof install, "%.3000s/install", dir);
    snprintf(path, sizeof path, "%.3000s/cleared", install);
    if (!bulk_install_is_complete(env, install)) {
        /* Of a switch that is done: with the next complete beside it, step 1 would be left out. That complete is gone need not be durable yet: who removed it
         * may have died, and what a power cut brings back must not be alone. */
        if (marked(env, install, "cleared"))
            rv = env->ops->sync_dir(env, install);
        if (rv == 0)
            rv = unlink_in(env, install, "cleared");
        if (rv != 0)
            return failed(error, dir, "removal of a mark", rv);
        *leftover = env->ops->list(env, install, see_one, NULL) == 1;
        return 0;
    }
    *leftover = false;
    rv = bulk_install_keep_marks(env, install);
    if (rv != 0)
        return failed(error, dir, "sync of the marks", rv);
    if (!marked(env, install, "cleared")) {
        rv = clear(env, store_dir, dir);
        if (rv != 0)
            return failed(error, dir, "the old files could not be removed, for the sake", rv);
        rv = bulk_install_mark(env, path, error);
        if (rv != 0)
            return rv;
    }
    for (int i = 0; i < 2 && rv == 0; i++)
        rv = move_dir(env, install, dir, dirs[i]);
    for (int i = 0; i < 2 && rv == 0; i++)
        rv = move_in(env, install, dir, files[i]);
    if (rv == 0)
        rv = env->ops->sync_dir(env, dir);
    if (rv != 0)
        return failed(error, dir, "move", rv);
    for (int i = 0; i < 2 && rv == 0; i++) {
        rv = unlink_in(env, install, marks[i]);
        if (rv == 0)
            rv = env->ops->sync_dir(env, install);
    }
    if (rv != 0)
        return failed(error, dir, "removal of the marks", rv);
    *installed = true;
    struct error ignored;
    if (bulk_install_discard(env, dir, &ignored) != 0)
        LOG_WARN("%s", ignored.message);
    return 0;
}

int bulk_install_discard(struct env *env, const char *dir, struct error *error)
{
    char install[PATH_MAX];
    snprintf(install, sizeof install, "%.3000s/install", dir);
    int rv = unlink_in(env, install, "complete"); /* first of all */
    if (rv == 0)
        rv = empty_dir(env, install);
    if (rv == 0)
        rv = env->ops->remove_dir(env, install);
    if (rv == 0)
        rv = env->ops->sync_dir(env, dir);
    return rv == 0 || rv == -ENOENT || rv == -ENOTDIR ? 0 : error_set(error, ERROR_IO, "%s: %s", install, strerror(-rv));
}
