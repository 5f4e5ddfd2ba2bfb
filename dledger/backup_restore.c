#include "dledger/backup_restore.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dledger/bulk_fetch.h"
#include "dledger/dledger_commit_log.h"
#include "dledger/metadata_snapshot.h"
#include "dledger/vote_file.h"
#include "proto/backup_manifest.h"
#include "store/checkpoint.h"
#include "store/format_version.h"
#include "store/log_sink.h"
#include "store/mapped_file_queue.h"
#include "store/seeded_bug.h"
#include "store/state_file.h"

#define PIECE (1u << 20)
#define FOLDER_MAX 600
#define PROGRESS_US 5000000u /* between two lines in the log */

struct restore {
    struct env *env;
    const struct dledger_options *options;
    const char *dir;         /* of the member */
    char folder[FOLDER_MAX]; /* where the backup lies */
    struct buffer text;      /* of the manifest */
    struct backup_manifest manifest;
    int64_t segments;
    uint64_t told_us; /* when progress was logged last */
    struct error *error;
};

static void path_of(const struct restore *restore, const char *name, char out[PATH_MAX])
{
    snprintf(out, PATH_MAX, "%s/%s", restore->folder, name);
}

static int io_failed(struct restore *restore, const char *path, int rv)
{
    return error_set(restore->error, ERROR_IO, "%s: %s", path, strerror(-rv));
}

static int refuse(struct restore *restore, const char *path, const char *why)
{
    return error_set(restore->error, ERROR_DAMAGED, "%s: %s: copy the backup again, or take another one. Nothing was changed", path, why);
}

static bool exists(struct env *env, const char *path)
{
    struct env_file *file;
    int rv = env_open(env, path, ENV_READ, &file);
    if (rv == 0)
        env_close(env, file);
    return rv == 0;
}

/* ---- the manifest ---- */

static int read_manifest(struct restore *restore)
{
    struct backup_manifest *manifest = &restore->manifest;
    char path[PATH_MAX];
    uint32_t version;
    int rv;

    path_of(restore, BACKUP_MANIFEST_NAME, path);
    rv = state_file_read_whole(restore->env, path, BACKUP_MANIFEST_MAX, &restore->text, restore->error);
    if (rv == ERROR_NOT_FOUND)
        return refuse(restore, path, "it is missing, so this is no whole backup (one of an earlier version, without this file, is copied to dledger-<dLegerSelfId>)");
    if (rv != 0)
        return rv;
    rv = backup_manifest_read(buffer_slice(&restore->text), manifest, &version);
    if (rv == ERROR_VERSION && version > BACKUP_VERSION)
        return format_version_unknown(restore->error, path, version, BACKUP_VERSION);
    if (rv != 0)
        return refuse(restore, path, "it is damaged");
    if ((uint64_t)manifest->segment_size != restore->options->segment_size)
        return error_set(restore->error, ERROR_INVALID, "%s: its files have %lld bytes: set mappedFileSizeCommitLog=%lld", path, (long long)manifest->segment_size,
                         (long long)manifest->segment_size);
    restore->segments = (manifest->end_position - manifest->first_position + manifest->segment_size - 1) / manifest->segment_size;
    struct slice ids = manifest->members;
    for (;;) {
        struct slice id = slice_next_part(&ids, ';');
        if (id.size == 0)
            break;
        if (slice_equal_text(id, restore->options->self_id))
            return 0;
    }
    return error_set(restore->error, ERROR_INVALID, "%s: it is of a group of %.*s, and dLegerSelfId=%s is none of them", path,
                     manifest->members.size < 200 ? (int)manifest->members.size : 200, (const char *)manifest->members.data, restore->options->self_id);
}

/* ---- its files ---- */

/* Its bytes are what was written, and durable from now on. */
static int check_file(struct restore *restore, const char *path, const struct backup_file *wanted, uint8_t *piece)
{
    struct env_file *file;
    uint64_t size = 0;
    uint32_t crc = 0;
    int rv = env_open(restore->env, path, ENV_READ, &file);

    if (rv == -ENOENT)
        return refuse(restore, path, "it is missing");
    if (rv != 0)
        return io_failed(restore, path, rv);
    rv = restore->env->ops->size(restore->env, file, &size);
    if (rv != 0) {
        rv = io_failed(restore, path, rv);
    } else if (size != wanted->size) {
        char why[96];
        snprintf(why, sizeof why, "it has %llu bytes instead of %llu", (unsigned long long)size, (unsigned long long)wanted->size);
        rv = refuse(restore, path, why);
    }
    for (uint64_t at = 0; rv == 0 && at < wanted->size;) {
        size_t part = wanted->size - at < PIECE ? (size_t)(wanted->size - at) : PIECE;
        ssize_t got = env_read(restore->env, file, piece, part, at);
        if (got != (ssize_t)part)
            rv = io_failed(restore, path, got < 0 ? (int)got : -EIO);
        crc = crc32c(crc, piece, part);
        at += part;
    }
    if (rv == 0 && crc != wanted->crc && !SEEDED_BUG(RESTORE_UNCHECKED))
        rv = refuse(restore, path, "it is damaged: its checksum is not what it was");
    if (rv == 0 && !SEEDED_BUG(RESTORE_NOT_SYNCED)) {
        rv = env_sync(restore->env, file);
        rv = rv == 0 ? 0 : io_failed(restore, path, rv);
    }
    env_close(restore->env, file);
    return rv;
}

static void segment_name(const struct restore *restore, int64_t place, char out[32])
{
    char name[21];
    mapped_file_name((uint64_t)(restore->manifest.first_position + place * restore->manifest.segment_size), name);
    snprintf(out, 32, "data/%s", name);
}

static void tell_progress(struct restore *restore, int64_t segments)
{
    uint64_t now = env_monotonic_us(restore->env);
    if (now < restore->told_us + PROGRESS_US)
        return;
    if (restore->told_us != 0)
        LOG_INFO("the backup in %s is checked: %lld percent", restore->folder, (long long)((segments < restore->segments ? segments : restore->segments) * 100 / restore->segments));
    restore->told_us = now;
}

/* The manifest names segments in order, then the two others: anything else is none of ours. */
static int check_files(struct restore *restore)
{
    static const char *const others[] = {"metadata.0", "checkpoint"};
    struct backup_manifest reader = restore->manifest;
    uint8_t *piece = malloc(PIECE);
    char path[PATH_MAX], name[32], manifest[PATH_MAX];
    int rv = piece == NULL ? error_set(restore->error, ERROR_NO_MEMORY, "%s", error_text(ERROR_NO_MEMORY)) : 0;

    path_of(restore, BACKUP_MANIFEST_NAME, manifest);
    for (int64_t i = 0; rv == 0 && i < restore->segments + 2; i++) {
        struct backup_file file;
        bool segment = i < restore->segments;
        tell_progress(restore, i);
        int64_t start = restore->manifest.first_position + i * restore->manifest.segment_size;
        if (segment)
            segment_name(restore, i, name);
        else
            snprintf(name, sizeof name, "%s", others[i - restore->segments]);
        if (!backup_manifest_next_file(&reader, &file) || !slice_equal_text(file.name, name) ||
            (segment && (int64_t)file.size != backup_manifest_segment_bytes(&restore->manifest, start))) {
            rv = refuse(restore, manifest, "it does not name the files that belong to it");
            break;
        }
        path_of(restore, name, path);
        rv = check_file(restore, path, &file, piece);
    }
    free(piece);
    return rv;
}

struct listing {
    struct restore *restore;
    bool data; /* of the folder data */
    int rv;
};

static bool belongs(const struct restore *restore, const char *name, bool data)
{
    static const char *const names[] = {BACKUP_MANIFEST_NAME, "data", "metadata.0", "checkpoint"};
    if (!data) {
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            if (strcmp(name, names[i]) == 0)
                return true;
        }
        return false;
    }
    char *end;
    unsigned long long start = strtoull(name, &end, 10);
    return *end == '\0' && strlen(name) == 20 && start >= (unsigned long long)restore->manifest.first_position &&
           start < (unsigned long long)restore->manifest.end_position && start % (unsigned long long)restore->manifest.segment_size == 0;
}

static int see_one(void *argument, const char *name, bool is_dir)
{
    struct listing *listing = argument;
    char path[PATH_MAX], relative[300];
    (void)is_dir;
    if (belongs(listing->restore, name, listing->data))
        return 0;
    snprintf(relative, sizeof relative, "%s%.250s", listing->data ? "data/" : "", name);
    path_of(listing->restore, relative, path);
    listing->rv = refuse(listing->restore, path, "it is no part of the backup");
    return 1;
}

/* What does not belong to it would become a part of the log. */
static int check_others(struct restore *restore)
{
    char path[PATH_MAX];
    for (int i = 0; i < 2; i++) {
        struct listing listing = {restore, i == 1, 0};
        snprintf(path, sizeof path, "%s%s", restore->folder, i == 1 ? "/data" : "");
        int rv = restore->env->ops->list(restore->env, path, see_one, &listing);
        if (listing.rv != 0)
            return listing.rv;
        if (rv != 0)
            return io_failed(restore, path, rv);
    }
    return 0;
}

/* They are what a start goes by: of a version that is known here, and of the log's end. */
static int check_start(struct restore *restore)
{
    struct checkpoint *checkpoint = malloc(sizeof *checkpoint);
    char path[PATH_MAX];
    int64_t index = -1;
    path_of(restore, "checkpoint", path);
    int rv = checkpoint == NULL ? error_set(restore->error, ERROR_NO_MEMORY, "%s", error_text(ERROR_NO_MEMORY))
                                : checkpoint_load(checkpoint, restore->env, path, restore->error);
    if (rv == 0 && (!checkpoint->present || checkpoint->committed_index != restore->manifest.last_index))
        rv = refuse(restore, path, "it is no checkpoint of this log's end");
    free(checkpoint);
    if (rv == 0)
        rv = metadata_snapshot_load(restore->env, restore->folder, INT64_MAX, NULL, &index, restore->error);
    path_of(restore, "metadata.0", path);
    if (rv == 0 && index != restore->manifest.last_index)
        rv = refuse(restore, path, "it is no metadata snapshot of this log's end");
    return rv;
}

/* Whoever copied them need not have made their names durable, and after a power cut nobody would miss them: the manifest is not held against the files again. */
static int sync_dirs(struct restore *restore)
{
    static const char *const below[] = {"/data", ""};
    char path[PATH_MAX];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s%s", restore->folder, below[i]);
        int rv = restore->env->ops->sync_dir(restore->env, path);
        if (rv != 0)
            return io_failed(restore, path, rv);
    }
    return 0;
}

static int check_all(struct restore *restore)
{
    int rv;
    LOG_INFO("the backup in %s is read and checked", restore->folder);
    rv = read_manifest(restore);
    if (rv == 0)
        rv = check_files(restore);
    if (rv == 0)
        rv = check_others(restore);
    if (rv == 0)
        rv = check_start(restore);
    return rv == 0 ? sync_dirs(restore) : rv;
}

/* ---- making it this member's ---- */

/* Also of an earlier start, which may have died before that. */
static int sync_move(struct restore *restore)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/restore", restore->options->dir);
    int rv = env_sync_parent(restore->env, restore->folder);
    if (rv == 0)
        rv = env_sync_parent(restore->env, path);
    return rv == 0 ? 0 : io_failed(restore, restore->folder, rv);
}

/* Only the bytes that are used were kept of the last file. */
static int lengthen_last(struct restore *restore)
{
    struct env_file *file;
    char path[PATH_MAX], name[32];
    segment_name(restore, restore->segments - 1, name);
    path_of(restore, name, path);
    int rv = env_open(restore->env, path, ENV_WRITE, &file);
    if (rv == 0) {
        rv = restore->env->ops->truncate(restore->env, file, restore->options->segment_size);
        if (rv == 0)
            rv = env_sync(restore->env, file);
        env_close(restore->env, file);
    }
    return rv == 0 ? 0 : io_failed(restore, path, rv);
}

/* Nobody has voted here: what an interrupted restore left of it may be torn, and would be taken for a vote that is lost. */
static int make_vote(struct restore *restore)
{
    struct vote_file votes;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/vote", restore->dir);
    int rv = restore->env->ops->unlink(restore->env, path);
    if (rv != 0 && rv != -ENOENT)
        return io_failed(restore, path, rv);
    rv = vote_file_open(&votes, restore->env, path, restore->error);
    if (rv != 0)
        return rv;
    if (votes.term < (uint64_t)restore->manifest.term)
        rv = vote_file_save(&votes, (uint64_t)restore->manifest.term, 0, restore->error);
    vote_file_close(&votes);
    return rv;
}

/* Of a backup, which has no name of its own, and of no boot. It is saved as the file is, but for that. */
static int own_checkpoint(struct restore *restore)
{
    struct checkpoint *checkpoint = malloc(sizeof *checkpoint);
    char path[PATH_MAX];
    path_of(restore, "checkpoint", path);
    int rv = checkpoint == NULL ? error_set(restore->error, ERROR_NO_MEMORY, "%s", error_text(ERROR_NO_MEMORY))
                                : checkpoint_load(checkpoint, restore->env, path, restore->error);
    if (rv == 0) {
        checkpoint->incarnation = env_random(restore->env) | 1;
        checkpoint->durability = (uint8_t)restore->options->durability;
        rv = checkpoint_save(checkpoint, restore->env, path, restore->error);
    }
    free(checkpoint);
    return rv;
}

/* As long as the manifest is there, there is something to do before bulk_install() may go on. */
static int remove_manifest(struct restore *restore)
{
    char path[PATH_MAX];
    path_of(restore, BACKUP_MANIFEST_NAME, path);
    int rv = bulk_install_keep_marks(restore->env, restore->folder);
    if (rv == 0)
        rv = restore->env->ops->unlink(restore->env, path);
    if (rv == 0)
        rv = env_sync_parent(restore->env, path);
    return rv == 0 ? 0 : io_failed(restore, path, rv);
}

static int make_own(struct restore *restore)
{
    char path[PATH_MAX];
    int rv = sync_move(restore);
    if (rv == 0)
        rv = lengthen_last(restore);
    if (rv == 0)
        rv = make_vote(restore);
    if (rv == 0)
        rv = own_checkpoint(restore);
    if (rv == 0)
        rv = sync_dirs(restore);
    path_of(restore, "complete", path);
    if (rv == 0)
        rv = bulk_install_mark(restore->env, path, restore->error);
    if (rv == 0)
        rv = remove_manifest(restore);
    if (rv == 0)
        LOG_INFO("the backup of group %.*s, entries %lld to %lld, is the log of this member from now on",
                 restore->manifest.group.size < 200 ? (int)restore->manifest.group.size : 200, (const char *)restore->manifest.group.data,
                 (long long)restore->manifest.first_index, (long long)restore->manifest.last_index);
    return rv;
}

static int stop_at_one(void *argument, const char *name, bool is_dir)
{
    (void)argument, (void)name, (void)is_dir;
    return 1;
}

/* Moves the folder to where a fetched log would be. */
static int take(struct restore *restore)
{
    static const char *const had[] = {"data", "install", "vote", "checkpoint", "heard"};
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof had / sizeof *had; i++) {
        snprintf(path, sizeof path, "%s/%s", restore->dir, had[i]);
        if (i < 2 ? restore->env->ops->list(restore->env, path, stop_at_one, NULL) == 1 : exists(restore->env, path))
            return error_set(restore->error, ERROR_INVALID, "%s is to be restored, but %s is there: a backup goes to a member that has nothing. Move one of them away",
                             restore->folder, path);
    }
    int rv = check_all(restore);
    if (rv != 0)
        return rv;
    snprintf(path, sizeof path, "%s/install", restore->dir);
    rv = restore->env->ops->rename(restore->env, restore->folder, path);
    if (rv != 0)
        return io_failed(restore, restore->folder, rv);
    snprintf(restore->folder, sizeof restore->folder, "%s/install", restore->dir);
    return make_own(restore);
}

static int restore_from(struct restore *restore)
{
    char path[PATH_MAX];
    int rv = restore->env->ops->list(restore->env, restore->folder, stop_at_one, NULL);

    if (rv >= 0)
        return take(restore);
    if (rv != -ENOENT)
        return io_failed(restore, restore->folder, rv);
    snprintf(path, sizeof path, "%s/" BACKUP_MANIFEST_NAME, restore->dir);
    if (exists(restore->env, path))
        return error_set(restore->error, ERROR_INVALID, "%s: this is a backup as it was written: move %s to %s", path, restore->dir, restore->folder);
    snprintf(restore->folder, sizeof restore->folder, "%s/install", restore->dir);
    path_of(restore, BACKUP_MANIFEST_NAME, path);
    if (!exists(restore->env, path))
        return 0;
    if (bulk_install_is_complete(restore->env, restore->folder))
        return remove_manifest(restore);
    rv = read_manifest(restore);
    return rv == 0 ? make_own(restore) : rv;
}

int backup_restore(struct env *env, const struct dledger_options *options, const char *dir, struct error *error)
{
    struct restore restore = {.env = env, .options = options, .dir = dir, .error = error};
    int rv;

    if ((size_t)snprintf(restore.folder, sizeof restore.folder, "%s/restore", options->dir) >= sizeof restore.folder || strlen(dir) >= sizeof restore.folder - 16)
        return error_set(error, ERROR_INVALID, "%s: the path is too long", options->dir);
    buffer_init(&restore.text, 0);
    rv = restore_from(&restore);
    buffer_close(&restore.text);
    return rv;
}
