#include "broker/processor/cold_read.h"

#include <assert.h>
#include <stdlib.h>

#include "broker/broker.h"
#include "broker/broker_stats.h"
#include "broker/limits.h"
#include "store/seeded_bug.h"

STAILQ_HEAD(cold_read_list, cold_read);

struct cold_reader {
    struct broker *broker;
    struct cold_read_list waiting;
    uint32_t waiting_count;
    uint32_t running;
    uint64_t jobs, jobs_of_queues;
    size_t bytes; /* at the pool */
    struct cold_read *at_pool[LIMIT_COLD_READS]; /* NULL: a free place */
    bool stopped;
    void (*idle)(void *argument);
    void *idle_argument;
};

struct cold_reader *cold_reader_new(struct broker *broker)
{
    struct cold_reader *reader = calloc(1, sizeof *reader);
    if (reader == NULL)
        return NULL;
    reader->broker = broker;
    STAILQ_INIT(&reader->waiting);
    return reader;
}

bool cold_read_needed(struct broker *broker, int64_t physical_offset)
{
    const struct log_view *log = &broker->store.log;
    return physical_offset < log->committed_offset(log->context) - (int64_t)LIMIT_HOT_BYTES; /* which may be that of a damaged unit: any number */
}

const uint8_t *cold_read_at_hand(struct broker *broker, int64_t physical_offset, size_t size)
{
    const struct log_view *log = &broker->store.log;
    int64_t position = physical_offset - (int64_t)LEDGER_ENTRY_HEADER_SIZE;
    struct ledger_entry entry;
    if (cold_read_needed(broker, physical_offset))
        return NULL;
    const uint8_t *header = log->at(log->context, position, LEDGER_ENTRY_HEADER_SIZE);
    if (header == NULL)
        return NULL;
    /* Its page may have left memory and come back from the disk since it was written. */
    if (ledger_entry_decode(&entry, header) == 0 && entry.position == (uint64_t)position && entry.body_size >= size) {
        const uint8_t *body = log->at(log->context, physical_offset, entry.body_size);
        if (body != NULL && ledger_entry_body_ok(&entry, body))
            return body;
    }
    dledger_commit_log_note_damage(broker->log, physical_offset);
    return NULL;
}

/* Nobody has looked at these bytes for long: are they what was written? The record may be followed by a trailer in its entry. */
static bool is_sound(struct env *env, struct mapped_file *file, uint64_t offset, const uint8_t *record, uint32_t size)
{
    uint8_t header[LEDGER_ENTRY_HEADER_SIZE], trailer[512];
    struct ledger_entry entry;
    if (offset < sizeof header || env_read(env, file->file, header, sizeof header, offset - sizeof header) != (ssize_t)sizeof header ||
        ledger_entry_decode(&entry, header) != 0 || entry.position + sizeof header != file->start + offset || entry.body_size < size)
        return false;
    uint32_t crc = crc32c(0, record, size);
    for (uint64_t at = size; at < entry.body_size;) {
        size_t piece = entry.body_size - at < sizeof trailer ? (size_t)(entry.body_size - at) : sizeof trailer;
        if (env_read(env, file->file, trailer, piece, offset + at) != (ssize_t)piece)
            return false;
        crc = crc32c(crc, trailer, piece);
        at += piece;
    }
    return crc == entry.body_crc;
}

/* Records that are close together come with one request to the disk, and with what is behind them up to a whole block: who reads a log from some point on
 * will want that next. A record that stands alone comes alone. */
static void prefetch(struct cold_read *read)
{
    for (uint32_t i = 0; i < read->count;) {
        struct mapped_file *file = read->items[i].pinned;
        uint64_t begin = (uint64_t)read->items[i].physical_offset - file->start;
        uint64_t end = begin + read->items[i].size;
        uint32_t first = i;
        for (i++; i < read->count && read->items[i].pinned == file; i++) {
            uint64_t next = (uint64_t)read->items[i].physical_offset - file->start;
            if (next < end || next - end > LIMIT_COLD_GAP_BYTES)
                break;
            end = next + read->items[i].size;
        }
        begin = begin > LEDGER_ENTRY_HEADER_SIZE ? begin - LEDGER_ENTRY_HEADER_SIZE : 0;
        if (i > first + 1)
            end = (end + LIMIT_COLD_BLOCK_BYTES - 1) / LIMIT_COLD_BLOCK_BYTES * LIMIT_COLD_BLOCK_BYTES;
        env_prefetch(&read->reader->broker->env, file->file, begin, end - begin);
    }
}

/* Pool thread. The files stay because they are pinned; the list of files may change meanwhile and is not looked at. */
static void run(uv_work_t *work)
{
    struct cold_read *read = work->data;
    size_t at = 0;
    if (read->pages.file != NULL)
        message_store_read_pages(&read->pages);
    if (read->code == 0)
        prefetch(read);
    for (uint32_t i = 0; i < read->count && read->code == 0; i++) {
        struct mapped_file *file = read->items[i].pinned;
        uint32_t size = read->items[i].size;
        uint64_t offset = (uint64_t)read->items[i].physical_offset - file->start;
        ssize_t got = env_read(&read->reader->broker->env, file->file, read->bytes + at, size, offset);
        if (got < 0 || (size_t)got != size)
            read->code = ERROR_IO;
        else if (!read->raw && !(read->kind == COLD_READ_PULL && SEEDED_BUG(SERVE_DAMAGED)) &&
                 !is_sound(&read->reader->broker->env, file, offset, read->bytes + at, size))
            read->code = ERROR_DAMAGED;
        if (read->code != 0)
            read->bad = i;
        at += size;
    }
}

static void release_pages(struct cold_read *read)
{
    if (read->pages.file != NULL)
        message_store_release_pages(&read->pages);
}

static void unpin(struct cold_read *read)
{
    release_pages(read);
    for (uint32_t i = 0; i < read->count && read->items[i].pinned != NULL; i++) {
        dledger_commit_log_unpin(read->reader->broker->log, read->items[i].pinned);
        read->items[i].pinned = NULL;
    }
}

/* What the pool needs: memory, and files that do not go. */
static void prepare(struct cold_read *read)
{
    read->reader->bytes += read->size;
    read->bytes = malloc(read->size == 0 ? 1 : read->size);
    if (read->bytes == NULL)
        read->code = ERROR_NO_MEMORY;
    for (uint32_t i = 0; i < read->count; i++)
        read->items[i].pinned = NULL;
    for (uint32_t i = 0; i < read->count && read->code == 0; i++) {
        read->bad = i;
        if (dledger_commit_log_pin(read->reader->broker->log, read->items[i].physical_offset, read->items[i].size, &read->items[i].pinned) == NULL)
            read->code = dledger_commit_log_damaged(read->reader->broker->log, read->items[i].physical_offset, read->items[i].size)
                             ? ERROR_DAMAGED
                             : ERROR_NOT_FOUND;
    }
}

static void after(uv_work_t *work, int status);

/* Puts `to` where `from` stands: NULL takes a free place, or frees one. */
static void note_at_pool(struct cold_reader *reader, const struct cold_read *from, struct cold_read *to)
{
    uint32_t i = 0;
    while (reader->at_pool[i] != from)
        i++;
    reader->at_pool[i] = to;
}

static void start_next(struct cold_reader *reader)
{
    while (reader->running < LIMIT_COLD_READS && !STAILQ_EMPTY(&reader->waiting)) {
        struct cold_read *read = STAILQ_FIRST(&reader->waiting);
        STAILQ_REMOVE_HEAD(&reader->waiting, next);
        reader->waiting_count--;
        reader->running++;
        note_at_pool(reader, NULL, read);
        /* Only those at the pool have memory: LIMIT_COLD_WAITING of them would be too much. */
        prepare(read);
        read->work.data = read;
        int rv = uv_queue_work(reader->broker->loop, &read->work, run, after);
        assert(rv == 0); /* it only fails without a work callback */
    }
}

static void after(uv_work_t *work, int status)
{
    struct cold_read *read = work->data;
    struct cold_reader *reader = read->reader;
    reader->running--;
    reader->bytes -= read->size;
    note_at_pool(reader, read, NULL);
    if (!read->raw && read->count > 0 && (read->code == ERROR_DAMAGED || read->code == ERROR_IO))
        dledger_commit_log_note_damage(reader->broker->log, read->items[read->bad].physical_offset);
    unpin(read);
    read->done(reader->broker, read, status != 0 || reader->stopped ? ERROR_STOPPED : read->code);
    start_next(reader);
    if (reader->stopped && reader->running == 0 && reader->idle != NULL) {
        void (*idle)(void *argument) = reader->idle;
        reader->idle = NULL;
        idle(reader->idle_argument);
    }
}

int cold_read_start(struct cold_reader *reader, struct cold_read *read)
{
    if (reader->stopped)
        return ERROR_STOPPED;
    if (reader->waiting_count >= LIMIT_COLD_WAITING)
        return broker_stats_busy(reader->broker->stats, LIMIT_HIT_COLD_READS);
    read->reader = reader;
    read->queued_us = env_monotonic_us(&reader->broker->env);
    read->code = 0;
    read->size = 0;
    for (uint32_t i = 0; i < read->count; i++)
        read->size += read->items[i].size;
    read->bytes = NULL;
    reader->jobs++;
    reader->jobs_of_queues += read->pages.file != NULL;
    STAILQ_INSERT_TAIL(&reader->waiting, read, next);
    reader->waiting_count++;
    start_next(reader);
    return 0;
}

int cold_read_start_one(struct cold_reader *reader, struct cold_read *read, int64_t physical_offset, uint32_t size,
                        void (*done)(struct broker *broker, struct cold_read *read, int code))
{
    read->count = 1;
    read->items[0].physical_offset = physical_offset;
    read->items[0].size = size;
    read->done = done;
    return cold_read_start(reader, read);
}

void cold_reader_counts(const struct cold_reader *reader, uint64_t *jobs, uint64_t *of_queues)
{
    *jobs = reader->jobs;
    *of_queues = reader->jobs_of_queues;
}

size_t cold_reader_bytes(const struct cold_reader *reader)
{
    return reader->bytes;
}

uint32_t cold_reader_jobs(const struct cold_reader *reader, enum cold_read_kind kind, uint64_t *head_wait_ms)
{
    uint64_t now_us = env_monotonic_us(&reader->broker->env), first_us = now_us;
    const struct cold_read *read;
    uint32_t jobs = 0;
    for (uint32_t i = 0; i < LIMIT_COLD_READS; i++) {
        read = reader->at_pool[i];
        if (read == NULL || read->kind != kind)
            continue;
        jobs++;
        first_us = read->queued_us < first_us ? read->queued_us : first_us;
    }
    STAILQ_FOREACH(read, &reader->waiting, next) {
        if (read->kind != kind)
            continue;
        jobs++;
        first_us = read->queued_us < first_us ? read->queued_us : first_us;
    }
    *head_wait_ms = (now_us - first_us) / 1000;
    return jobs;
}

void cold_read_free(struct cold_read *read)
{
    free(read->bytes);
    read->bytes = NULL;
}

void cold_reader_stop(struct cold_reader *reader, void (*idle)(void *argument), void *argument)
{
    reader->stopped = true;
    while (!STAILQ_EMPTY(&reader->waiting)) {
        struct cold_read *read = STAILQ_FIRST(&reader->waiting);
        STAILQ_REMOVE_HEAD(&reader->waiting, next);
        reader->waiting_count--;
        release_pages(read);
        read->done(reader->broker, read, ERROR_STOPPED);
    }
    if (reader->running == 0) {
        idle(argument);
        return;
    }
    reader->idle = idle;
    reader->idle_argument = argument;
}

void cold_reader_free(struct cold_reader *reader)
{
    assert(reader == NULL || (reader->running == 0 && STAILQ_EMPTY(&reader->waiting)));
    free(reader);
}
