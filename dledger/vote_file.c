/* Saving writes the vote to both slots, one after the other, and syncs them together: a torn write leaves one that is whole, and a write that a disk has
 * lost, or done elsewhere, leaves the vote in the other slot. The file appears under its name only when it is whole and durable: no crash while it is
 * made can look like a damaged one. */
#include "dledger/vote_file.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "proto/ledger_entry.h" /* crc32c */
#include "store/format_version.h"
#include "store/log_sink.h"
#include "store/seeded_bug.h"

/* A slot: magic 4 | version 4 | sequence 8 | term 8 | voted_for 8 | crc32c of those 32 bytes 4, zeros up to the slot's size.
 * To change: bump VOTE_VERSION, keep the reader of the old form, add a golden file. */
#define VOTE_MAGIC 0x4C4D5156u /* "LMQV" */
#define VOTE_VERSION 1u
#define SLOT_SIZE 4096u /* the largest unit in which disks write at once */
#define RECORD_SIZE 36u

static void encode(uint8_t slot[RECORD_SIZE], uint64_t sequence, uint64_t term, uint64_t voted_for)
{
    store_u32(slot, VOTE_MAGIC);
    store_u32(slot + 4, VOTE_VERSION);
    store_u64(slot + 8, sequence);
    store_u64(slot + 16, term);
    store_u64(slot + 24, voted_for);
    store_u32(slot + 32, crc32c(0, slot, 32));
}

/* Of a slot that a later version wrote, 0 for any other. */
static uint32_t later_version(const uint8_t slot[RECORD_SIZE])
{
    bool whole = load_u32(slot) == VOTE_MAGIC && load_u32(slot + 32) == crc32c(0, slot, 32);
    return whole && load_u32(slot + 4) > VOTE_VERSION ? load_u32(slot + 4) : 0;
}

static bool decode(const uint8_t slot[RECORD_SIZE], uint64_t *sequence, uint64_t *term, uint64_t *voted_for)
{
    if (load_u32(slot) != VOTE_MAGIC || load_u32(slot + 4) != VOTE_VERSION || load_u32(slot + 32) != crc32c(0, slot, 32))
        return false;
    *sequence = load_u64(slot + 8);
    *term = load_u64(slot + 16);
    *voted_for = load_u64(slot + 24);
    return true;
}

static int create(struct env *env, const char *path, struct error *error)
{
    char unfinished[PATH_MAX], dir[PATH_MAX];
    uint8_t both[2 * SLOT_SIZE] = {0};
    struct env_file *file;
    int n = snprintf(unfinished, sizeof unfinished, "%s.new", path);
    if (n < 0 || n >= (int)sizeof unfinished)
        return error_set(error, ERROR_INVALID, "%s: the path is too long", path);
    encode(both, 1, 0, 0);
    int rv = env_parent(path, dir);
    if (rv == 0)
        rv = env->ops->make_dir(env, dir);
    if (rv == 0)
        rv = env_open(env, unfinished, ENV_WRITE | ENV_CREATE, &file);
    if (rv == 0) {
        rv = env_write(env, file, both, sizeof both, 0);
        if (rv == 0)
            rv = env_sync(env, file);
        env_close(env, file);
    }
    if (rv == 0)
        rv = env->ops->rename(env, unfinished, path);
    if (rv == 0)
        rv = env->ops->sync_dir(env, dir);
    /* The directory may be as new as the file. */
    if (rv == 0)
        rv = env_sync_parent(env, dir);
    if (rv == 0)
        return 0;
    return error_set(error, rv == -ENOSPC || rv == -EDQUOT ? ERROR_NO_SPACE : ERROR_IO, "create vote file %s: %s", path, strerror(-rv));
}

/* The file without a good slot is put aside for study. */
static int replace_damaged(struct vote_file *file, struct env *env, const char *path, struct error *error)
{
    char aside[PATH_MAX];
    int n = snprintf(aside, sizeof aside, "%s.damaged", path);
    env_close(env, file->file);
    if (n < 0 || n >= (int)sizeof aside)
        return error_set(error, ERROR_INVALID, "%s: the path is too long", path);
    LOG_ERROR("vote file %s has no valid slot: it is kept as %s, and this member does not vote before a leader has caught it up", path, aside);
    int rv = env->ops->rename(env, path, aside);
    if (rv != 0)
        return error_set(error, ERROR_IO, "rename %s: %s", path, strerror(-rv));
    rv = create(env, path, error);
    if (rv != 0)
        return rv;
    rv = env_open(env, path, ENV_WRITE, &file->file);
    if (rv != 0)
        return error_set(error, ERROR_IO, "open vote file %s: %s", path, strerror(-rv));
    file->sequence = 1;
    file->doubtful = true;
    return 0;
}

static bool is_zero(const uint8_t *bytes, size_t size)
{
    while (size > 0 && *bytes == 0) {
        bytes++;
        size--;
    }
    return size == 0;
}

/* Into both slots, first the one that does not hold the newest vote. */
static int write_slots(const struct vote_file *file, uint64_t sequence, uint64_t term, uint64_t voted_for)
{
    uint8_t record[RECORD_SIZE];
    int rv = 0;

    encode(record, sequence, term, voted_for);
    for (uint64_t i = 1; i <= (SEEDED_BUG(TERM_FORGOTTEN) ? 1 : 2) && rv == 0; i++)
        rv = env_write(file->env, file->file, record, sizeof record, (sequence + i) % 2 * SLOT_SIZE); /* sequence 1 is in the first slot */
    return rv;
}

int vote_file_open(struct vote_file *file, struct env *env, const char *path, struct error *error)
{
    memset(file, 0, sizeof *file);
    file->env = env;
    int rv = env_open(env, path, ENV_WRITE, &file->file);
    if (rv == -ENOENT) {
        rv = create(env, path, error);
        if (rv != 0)
            return rv;
        rv = env_open(env, path, ENV_WRITE, &file->file);
    }
    if (rv != 0)
        return error_set(error, ERROR_IO, "open vote file %s: %s", path, strerror(-rv));

    uint8_t both[2 * SLOT_SIZE] = {0};
    ssize_t n = env_read(env, file->file, both, sizeof both, 0);
    if (n < 0) {
        env_close(env, file->file);
        return error_set(error, ERROR_IO, "read vote file %s: %s", path, strerror((int)-n));
    }
    for (int i = 0; i < 2; i++) {
        uint32_t later = later_version(both + (size_t)i * SLOT_SIZE);
        if (later != 0) {
            env_close(env, file->file);
            return format_version_unknown(error, path, later, VOTE_VERSION);
        }
    }
    bool good = false, alike = true;
    int bad = 0;
    for (int i = 0; i < 2; i++) {
        uint64_t sequence, term, voted_for;
        if (!decode(both + (size_t)i * SLOT_SIZE, &sequence, &term, &voted_for)) {
            bad++;
        } else if (!good || (SEEDED_BUG(TERM_FORGOTTEN) ? sequence < file->sequence : sequence > file->sequence)) {
            alike = !good;
            good = true;
            file->sequence = sequence;
            file->term = term;
            file->voted_for = voted_for;
        } else {
            alike = sequence == file->sequence;
        }
    }
    if (!good) {
        int code = replace_damaged(file, env, path, error);
        if (code != 0)
            return code;
    } else if (bad > 0 && (file->sequence > 1 || !is_zero(both + SLOT_SIZE, SLOT_SIZE))) {
        /* A record lies within one sector, so no interrupted write leaves half of it. */
        LOG_ERROR("vote file %s has a damaged slot: it may have held a newer vote, so this member does not vote before a leader has caught it up", path);
        file->doubtful = true;
    } else if (!alike) {
        rv = write_slots(file, file->sequence, file->term, file->voted_for);
        if (rv != 0) {
            env_close(env, file->file);
            return error_set(error, ERROR_IO, "write vote file %s: %s", path, strerror(-rv));
        }
    }
    /* A process that died between its write and its sync left a vote in the page cache. What is read here counts as given from now on, and asked
     * again the member repeats it without another save: so it must be on the disk. */
    int sync_rv = env_sync(env, file->file);
    if (sync_rv != 0) {
        env_close(env, file->file);
        return error_set(error, ERROR_IO, "sync vote file %s: %s", path, strerror(-sync_rv));
    }
    file->existed = file->sequence > 1;
    return 0;
}

int vote_file_save(struct vote_file *file, uint64_t term, uint64_t voted_for, struct error *error)
{
    struct vote_save save;
    vote_save_begin(&save, file, term, voted_for);
    vote_save_run(&save);
    return vote_save_end(&save, error);
}

void vote_save_begin(struct vote_save *save, struct vote_file *file, uint64_t term, uint64_t voted_for)
{
    assert(term >= file->term && !file->saving);
    file->saving = true;
    *save = (struct vote_save){.file = file, .sequence = file->sequence + 1, .term = term, .voted_for = voted_for};
}

void vote_save_run(struct vote_save *save)
{
    save->result = write_slots(save->file, save->sequence, save->term, save->voted_for);
    if (save->result == 0 && !SEEDED_BUG(VOTE_NOT_SYNCED))
        save->result = env_sync(save->file->env, save->file->file);
}

int vote_save_end(struct vote_save *save, struct error *error)
{
    struct vote_file *file = save->file;

    file->saving = false;
    if (save->result != 0)
        return error_set(error, ERROR_IO, "store term %llu and vote: %s", (unsigned long long)save->term, strerror(-save->result));
    file->sequence = save->sequence;
    file->doubtful = false;
    file->term = save->term;
    file->voted_for = save->voted_for;
    return 0;
}

void vote_file_close(struct vote_file *file)
{
    env_close(file->env, file->file);
    memset(file, 0, sizeof *file);
}
