/* Room ahead of the log's end, and making durable what was written. Both are done piece by piece by other threads; the loop hands out jobs and
 * takes their results.
 *
 * A job of class B writes zeros into room that the loop does not use yet. A follower may be handed more than is reserved while such a job is out:
 * then the loop calls the job off, and must not write before the piece of zeros under way is done. That is what reserve_lock is for.
 *
 * The next segment is created by a job too, since that takes syncs: while one is out, who can wait for it does (ledger_awaits_segment). Who cannot calls it
 * off; then the job leaves nothing behind, whichever of the two comes first, and the loop creates the segment itself. */
#include "dledger/ledger_internal.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "store/seeded_bug.h"

#define INDEX_STEP (1u << 20)            /* 32,768 units */
#define RESERVE_SYNC_STEP (1u << 20)     /* what an append reserves by itself beyond its need */
#define SYNC_EVERY (1u << 20)            /* zeros; more at once would hold up the sync of entries in the same file */
#define RETRY_US 200000u

static uint8_t zeros[LEDGER_ZEROS_SIZE]; /* never written: pages of it cost no memory */
const uint8_t *const ledger_zeros = zeros;

static bool no_room(int rv)
{
    return rv == -ENOSPC || rv == -EDQUOT || env_is_short(rv);
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static int write_zeros(struct env *env, struct env_file *file, uint64_t offset, uint64_t size)
{
    while (size > 0) {
        size_t piece = size < LEDGER_ZEROS_SIZE ? (size_t)size : LEDGER_ZEROS_SIZE;
        int rv = env_write(env, file, zeros, piece, offset);
        if (rv != 0)
            return rv;
        offset += piece;
        size -= piece;
    }
    return 0;
}

/* File systems without fallocate give blocks only to what is written. The range must hold nothing yet. */
static int allocate(struct env *env, struct env_file *file, uint64_t offset, uint64_t size)
{
    int rv = env->ops->allocate(env, file, offset, size);
    return rv == -EOPNOTSUPP || rv == -ENOSYS ? write_zeros(env, file, offset, size) : rv;
}

int ledger_zero_backwards(struct ledger *ledger, struct mapped_file *file, uint64_t from, uint64_t to)
{
    while (to > from) {
        uint64_t page = (to - 1 - file->start) / LEDGER_PAGE * LEDGER_PAGE + file->start;
        uint64_t begin = page > from ? page : from;
        int rv = env_write(ledger->env, file->file, zeros, (size_t)(to - begin), begin - file->start);
        if (rv != 0)
            return rv;
        to = begin;
    }
    return 0;
}

/* A file could not be created. ERROR_NO_SPACE (noted), ERROR_IO (final). */
static int add_failed(struct ledger *ledger, const struct mapped_file_queue *files, int code, const struct error *error)
{
    if (code == ERROR_NO_SPACE || code == ERROR_NO_MEMORY) {
        ledger->reserve_result = files->add_result;
        return ERROR_NO_SPACE;
    }
    if (!ledger->failed) {
        ledger->failed = true;
        ledger->failure = *error;
    }
    return ERROR_IO;
}

/* The file that holds position, unless there is one. */
static int add_file(struct ledger *ledger, struct mapped_file_queue *files, uint64_t position)
{
    struct error error;
    int code = mapped_file_queue_find(files, position) != NULL ? 0 : mapped_file_queue_add(files, position, NULL, &error);
    return code == 0 ? 0 : add_failed(ledger, files, code, &error);
}

static int room_failed(struct ledger *ledger, int rv, const struct mapped_file *file, uint64_t position)
{
    if (!no_room(rv))
        return ledger_fail(ledger, rv, "reserve room in", file, position);
    ledger->reserve_result = rv;
    ledger->reserve_retry_us = env_monotonic_us(ledger->env) + RETRY_US;
    return ERROR_NO_SPACE;
}

int ledger_cancel_reservation(struct ledger *ledger)
{
    struct mapped_file_creation *creation = ledger->reserve_creation;
    int rv = 0;

    if (!ledger->reserving || (ledger->reserve_file == NULL && creation == NULL))
        return 0;
    pthread_mutex_lock(&ledger->reserve_lock);
    ledger->reserve_cancelled = true;
    if (creation != NULL && creation->named)
        rv = mapped_file_creation_drop(creation);
    pthread_mutex_unlock(&ledger->reserve_lock);
    return rv == 0 ? 0 : ledger_fail(ledger, rv, "remove", NULL, 0);
}

bool ledger_awaits_segment(const struct ledger *ledger, uint64_t end)
{
    return ledger->reserve_creation != NULL && end > ledger->reserve_creation->start;
}

int ledger_reserve_data(struct ledger *ledger, uint64_t end)
{
    int code = ledger_cancel_reservation(ledger);
    if (code != 0)
        return code;
    while (ledger->reserved_end < end) {
        struct mapped_file *file = mapped_file_queue_find(&ledger->data, ledger->reserved_end);
        if (file == NULL) {
            code = add_file(ledger, &ledger->data, ledger->reserved_end);
            if (code != 0)
                return code;
            continue;
        }
        uint64_t file_end = file->start + ledger->data.file_size;
        uint64_t to = min_u64(end, file_end);
        uint64_t more = min_u64(end + RESERVE_SYNC_STEP, file_end);
        uint64_t offset = ledger->reserved_end - file->start;
        int rv = allocate(ledger->env, file->file, offset, more - ledger->reserved_end);
        if (no_room(rv)) {
            more = to;
            rv = allocate(ledger->env, file->file, offset, more - ledger->reserved_end);
        }
        if (rv != 0)
            return room_failed(ledger, rv, file, ledger->reserved_end);
        ledger->reserve_result = 0;
        ledger->reserved_end = more;
    }
    return 0;
}

/* The index file's handle, which the queue does not keep. */
static int open_index_file(struct ledger *ledger, uint64_t position, struct env_file **handle)
{
    char path[PATH_MAX], name[21];
    mapped_file_name(position - position % ledger->index.file_size, name);
    int n = snprintf(path, sizeof path, "%s/%s", ledger->index.dir, name);
    if (n < 0 || n >= (int)sizeof path)
        return -ENAMETOOLONG;
    return env_open(ledger->env, path, ENV_WRITE, handle);
}

static uint64_t index_step_end(const struct ledger *ledger)
{
    uint64_t at = ledger->index_reserved_end;
    uint64_t file_end = at - at % ledger->index.file_size + ledger->index.file_size;
    return min_u64(at - at % INDEX_STEP + INDEX_STEP, file_end);
}

int ledger_reserve_index(struct ledger *ledger, uint64_t end)
{
    while (ledger->index_reserved_end < end) {
        int code = add_file(ledger, &ledger->index, ledger->index_reserved_end);
        if (code != 0)
            return code;
        uint64_t from = ledger->index_reserved_end, to = index_step_end(ledger);
        struct env_file *handle;
        int rv = open_index_file(ledger, from, &handle);
        if (rv == 0) {
            rv = allocate(ledger->env, handle, from % ledger->index.file_size, to - from);
            env_close(ledger->env, handle);
        }
        if (rv != 0)
            return room_failed(ledger, rv, NULL, 0);
        ledger->index_reserved_end = to;
    }
    return 0;
}

/* ---- ahead ---- */

uint64_t ledger_entries_ahead(const struct ledger *ledger)
{
    uint64_t room = ledger->index_reserved_end / LEDGER_INDEX_UNIT, used = (uint64_t)(ledger->last_index + 1);
    return room > used ? room - used : 0;
}

static bool has_index_ahead(const struct ledger *ledger)
{
    uint64_t used = (uint64_t)(ledger->last_index + 1) * LEDGER_INDEX_UNIT;
    uint64_t enough = min_u64(INDEX_STEP / 2, ledger->index.file_size);
    return ledger->index_reserved_end > used && ledger->index_reserved_end - used >= enough;
}

static bool index_job(struct ledger *ledger, struct ledger_reservation *job)
{
    uint64_t used = (uint64_t)(ledger->last_index + 1) * LEDGER_INDEX_UNIT;
    if (has_index_ahead(ledger))
        return false;
    if (ledger->index_reserved_end < used || add_file(ledger, &ledger->index, ledger->index_reserved_end) != 0)
        return false;
    uint64_t from = ledger->index_reserved_end;
    struct env_file *handle;
    int rv = open_index_file(ledger, from, &handle);
    if (rv != 0) {
        room_failed(ledger, rv, NULL, 0);
        return false;
    }
    *job = (struct ledger_reservation){
        .env = ledger->env,
        .ledger = ledger,
        .file = handle,
        .offset = from % ledger->index.file_size,
        .size = index_step_end(ledger) - from,
        .end_position = index_step_end(ledger),
        .index = true,
    };
    ledger->reserving = true;
    ledger->reserve_file = NULL;
    return true;
}

static bool creation_job(struct ledger *ledger, struct ledger_reservation *job)
{
    *job = (struct ledger_reservation){.env = ledger->env, .ledger = ledger, .creates = true};
    int rv = mapped_file_creation_begin(&job->creation, &ledger->data, ledger->reserved_end);
    if (rv != 0) {
        ledger_fail(ledger, rv, "create a segment behind", NULL, 0);
        return false;
    }
    ledger->reserve_file = NULL;
    ledger->reserve_creation = &job->creation;
    ledger->reserve_cancelled = false;
    ledger->reserving = true;
    return true;
}

bool ledger_reservation_next(struct ledger *ledger, struct ledger_reservation *job)
{
    if (ledger->failed || ledger->reserving)
        return false;
    uint64_t ahead = min_u64(LEDGER_RESERVE_AHEAD, ledger->data.file_size);
    uint64_t wanted = ledger->end_position + ahead;
    bool data = ledger->reserved_end < wanted;
    if (!data && has_index_ahead(ledger)) {
        ledger->reserve_result = 0; /* whatever could not be had once, nothing is lacking */
        return false;
    }
    if (ledger->reserve_result != 0 && env_monotonic_us(ledger->env) < ledger->reserve_retry_us)
        return false;
    if (index_job(ledger, job))
        return true;
    if (!data || ledger->failed)
        return false;
    struct mapped_file *file = mapped_file_queue_find(&ledger->data, ledger->reserved_end);
    if (file == NULL)
        return creation_job(ledger, job);
    uint64_t file_end = file->start + ledger->data.file_size;
    uint64_t to = min_u64(ledger->reserved_end - ledger->reserved_end % LEDGER_RESERVE_STEP + LEDGER_RESERVE_STEP, file_end);
    *job = (struct ledger_reservation){
        .env = ledger->env,
        .ledger = ledger,
        .file = file->file,
        .offset = ledger->reserved_end - file->start,
        .size = to - ledger->reserved_end,
        .end_position = to,
        .zero = ledger->zero_ahead,
    };
    mapped_file_pin(file);
    ledger->reserve_file = file;
    ledger->reserve_cancelled = false;
    ledger->reserving = true;
    return true;
}

/* One piece of zeros, unless the loop has called the job off. */
static int zero_piece(struct ledger_reservation *job, uint64_t offset, size_t size)
{
    pthread_mutex_lock(&job->ledger->reserve_lock);
    int rv = job->ledger->reserve_cancelled ? -ECANCELED : env_write(job->env, job->file, zeros, size, offset);
    pthread_mutex_unlock(&job->ledger->reserve_lock);
    return rv;
}

static void creation_run(struct ledger_reservation *job)
{
    job->result = mapped_file_creation_make(&job->creation);
    pthread_mutex_lock(&job->ledger->reserve_lock);
    if (job->result == 0)
        job->result = job->ledger->reserve_cancelled ? -ECANCELED : mapped_file_creation_name(&job->creation);
    if (job->result != 0)
        mapped_file_creation_drop(&job->creation);
    pthread_mutex_unlock(&job->ledger->reserve_lock);
    if (job->result == 0)
        job->result = mapped_file_creation_settle(&job->creation);
}

static void creation_done(struct ledger *ledger, struct ledger_reservation *job)
{
    struct error error;
    int rv = job->result;

    ledger->reserve_creation = NULL;
    if (ledger->reserve_cancelled)
        return;
    if (rv == 0) {
        int code = mapped_file_queue_adopt(&ledger->data, &job->creation, &error);
        if (code == 0)
            return;
        add_failed(ledger, &ledger->data, code, &error);
    } else if (no_room(rv)) {
        ledger->reserve_result = rv;
    } else {
        ledger_fail(ledger, rv, "create a segment behind", NULL, 0);
    }
    ledger->reserve_retry_us = env_monotonic_us(ledger->env) + RETRY_US;
    mapped_file_creation_drop(&job->creation);
}

void ledger_reservation_run(struct ledger_reservation *job)
{
    if (job->creates) {
        creation_run(job);
        return;
    }
    uint64_t offset = job->offset, end = job->offset + job->size;
    bool zero = job->zero;
    job->result = job->env->ops->allocate(job->env, job->file, job->offset, job->size);
    if (job->result == -EOPNOTSUPP || job->result == -ENOSYS) {
        job->result = 0;
        zero = true;
    }
    if (job->result != 0 || !zero)
        return;
    uint64_t unsynced = 0;
    while (offset < end && job->result == 0) {
        size_t piece = end - offset < LEDGER_ZEROS_SIZE ? (size_t)(end - offset) : LEDGER_ZEROS_SIZE;
        job->result = zero_piece(job, offset, piece);
        offset += piece;
        unsynced += piece;
        if (job->result == 0 && job->zero && (unsynced >= SYNC_EVERY || offset == end)) {
            job->result = env_sync(job->env, job->file);
            unsynced = 0;
        }
    }
}

void ledger_reservation_done(struct ledger *ledger, struct ledger_reservation *job)
{
    assert(ledger->reserving);
    struct mapped_file *file = ledger->reserve_file;
    ledger->reserving = false;
    ledger->reserve_file = NULL;
    if (job->creates) {
        creation_done(ledger, job);
        return;
    }
    if (job->index) {
        env_close(ledger->env, job->file);
        if (job->result != 0)
            room_failed(ledger, job->result, NULL, 0);
        else if (ledger->index_reserved_end == job->end_position - job->size)
            ledger->index_reserved_end = job->end_position;
        return;
    }
    uint64_t start = job->end_position - job->size;
    if (job->result == 0) {
        if (!ledger->reserve_cancelled && ledger->reserved_end == start) {
            ledger->reserved_end = job->end_position;
            ledger->reserve_result = 0;
        }
    } else if (job->result != -ECANCELED) {
        room_failed(ledger, job->result, file, start);
    }
    mapped_file_unpin(file);
}

/* ---- making durable ---- */

bool ledger_sync_next(struct ledger *ledger, struct ledger_sync *sync)
{
    if (ledger->failed || ledger->sync_out)
        return false;
    if (ledger->synced_index >= ledger->last_index && ledger->synced_position >= ledger->end_position)
        return false;
    uint64_t file_size = ledger->data.file_size;
    uint64_t position = ledger->synced_position;
    if (position < mapped_file_queue_begin(&ledger->data))
        position = mapped_file_queue_begin(&ledger->data);
    memset(sync, 0, sizeof *sync);
    sync->env = ledger->env;
    for (position -= position % file_size; position < ledger->end_position && sync->count < LEDGER_SYNC_FILES; position += file_size) {
        struct mapped_file *file = mapped_file_queue_find(&ledger->data, position);
        assert(file != NULL);
        mapped_file_pin(file);
        ledger->sync_files[sync->count] = file;
        sync->files[sync->count++] = file->file;
    }
    sync->index = ledger->last_index;
    sync->position = ledger->end_position;
    if (position < ledger->end_position) {
        /* More segments than one sync takes: it proves what ends before them. */
        uint64_t first = ledger->synced_index + 1 > ledger->begin_index ? (uint64_t)(ledger->synced_index + 1) : (uint64_t)ledger->begin_index;
        uint64_t last, end;
        /* Where damage hides it, no index is proved before the last sync. */
        sync->index = ledger_last_in_segment(ledger, first, position, &last, &end) ? (int64_t)last : ledger->synced_index;
        /* Not the entry's end: its segment is done, filler and all. */
        sync->position = position;
    }
    ledger->sync_out = true;
    ledger->sync_count = sync->count;
    ledger->sync_cap_index = INT64_MAX;
    ledger->sync_cap_position = UINT64_MAX;
    return true;
}

void ledger_sync_run(struct ledger_sync *sync)
{
    sync->result = 0;
    for (int i = 0; i < sync->count && sync->result == 0; i++) {
        sync->failed_at = i;
        sync->result = SEEDED_BUG(LOG_NOT_SYNCED) ? 0 : env_sync(sync->env, sync->files[i]);
    }
}

int64_t ledger_sync_done(struct ledger *ledger, const struct ledger_sync *sync)
{
    assert(ledger->sync_out && sync->count == ledger->sync_count);
    if (sync->result != 0) {
        struct mapped_file *file = ledger->sync_files[sync->failed_at];
        ledger_fail(ledger, sync->result, "sync of", file, file->start);
    } else {
        int64_t index = sync->index < ledger->sync_cap_index ? sync->index : ledger->sync_cap_index;
        uint64_t position = min_u64(sync->position, ledger->sync_cap_position);
        if (index > ledger->synced_index)
            ledger->synced_index = index;
        if (position > ledger->synced_position)
            ledger->synced_position = position;
    }
    for (int i = 0; i < ledger->sync_count; i++)
        mapped_file_unpin(ledger->sync_files[i]);
    ledger->sync_count = 0;
    ledger->sync_out = false;
    return ledger->synced_index;
}
