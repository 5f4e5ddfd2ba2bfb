/* For each piece:
 *
 * 1. the cursor stands in front of an entry of some file; with the first piece of a pass it is placed there;
 * 2. each key is compared with the entry at the cursor, which goes one further;
 * 3. what differs ends the piece. On the loop the range of the new file is noted, and the log is asked for from its begin on;
 * 4. from then on keys go into the new file instead, until the range ends or the file is full;
 * 5. it is synced and renamed, takes its place on the loop, and comparing goes on behind it.
 *
 * Comparing reads the files and does not touch their mappings: pages would stay in this process, and one that cannot be read would end it.
 */
#include "store/index_compare.h"

#include "proto/ledger_entry.h"
#include "store/index_keys.h"
#include "store/log_sink.h"
#include "store/queue_table.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK (64u << 10)
#define CHUNK_ENTRIES (CHUNK / INDEX_ENTRY_SIZE)
/* The slots of the newest file are looked at when the cursor is so near to its end: the entries behind it are taken as they are, for that one look. */
#define AHEAD_MAX 65536u
/* Nobody but the index would use this room, and it is not worth a full disk. */
#define ROOM_KEPT (64u << 20)

struct index_key {
    int64_t physical_offset;
    int64_t store_timestamp_ms;
    uint32_t hash;
};

/* A file as the loop knew it at begin. */
struct view {
    struct index_file *file; /* pinned */
    int64_t begin;           /* physical offsets of the first and the last entry */
    int64_t end;
    int64_t begin_timestamp_ms;
    int64_t end_timestamp_ms;
    uint32_t count;
    bool open; /* takes more entries: header and slots change while we look */
};

/* The making of a file. */
struct rebuild {
    bool active;
    bool begun;                  /* the first piece of the range has come */
    bool done;                   /* under its final name, or without an entry: to take its place */
    struct index_file *damaged;  /* pinned; NULL: no file covers the range */
    struct index_file *previous; /* pinned; NULL: none is in front of it */
    struct index_file *next;     /* pinned; NULL: none is behind it */
    struct index_file *file;     /* ours alone until it is done */
    char *path;                  /* its final name */
    int64_t limit;               /* without a next one: all records in front of this are in the range */
    /* Keys of the range's first record that stand in the file in front, and of its last record in the file behind. */
    uint32_t before, behind;
    int64_t last_offset; /* the record that was last put in, and how many keys of it */
    uint32_t last_count;
};

struct index_compare {
    struct env *env;
    struct index_service *service;
    const int64_t *dispatched, *recovered; /* as index_compare_new() has them; the loop's */
    struct index_key *keys;
    size_t key_count, key_capacity;
    struct index_compare_counts counts;

    /* ---- the piece ---- */
    uint64_t from, to, log_min;
    bool continues; /* where the last one ended */
    bool goes_back;
    int64_t reaches_at_begin; /* reaches() */
    size_t view_count;
    bool found;     /* damage, in: */
    bool in_file;   /* the file of the view `at`; else in front of it (view_count: behind all) */
    size_t at;
    uint32_t found_number;
    int64_t found_offset;
    const char *found_what;
    uint32_t head_max; /* the largest that a put may have written to a slot of the newest file meanwhile */
    struct error failure; /* of the rebuild; code 0: none */

    /* ---- from piece to piece ---- */
    uint64_t position; /* where the last piece ended, or where the next one is wanted */
    bool wanted;
    int64_t ignored_below; /* physical offset: records in front of it have been seen, or were given up in this pass */
    int64_t placed_from;   /* physical offset: files that begin in front of it are not looked at any more in this pass */
    uint32_t leaps;        /* of this pass, back to where a range begins */
    int64_t skip_offset;   /* of this record the first skip_count keys have been seen */
    uint32_t skip_count;
    struct rebuild rebuild;

    /* ---- the cursor ---- */
    struct index_file *file; /* NULL: not placed */
    struct index_file *held; /* what of it is pinned from piece to piece; pins are the loop's */
    bool jumped;             /* records were left out: so are their entries */
    struct env_file *handle; /* of file */
    uint32_t number;         /* the next entry */
    bool checked;            /* slots and header were looked at, or need not be */
    uint32_t *heads;         /* of each slot the newest entry in front of the cursor */
    int64_t last_offset, last_timestamp_ms; /* of the entry in front; time -1: not known */
    uint32_t chunk_number, chunk_count;

    /* ---- large, and written before they are read: not zero at first ---- */
    struct view views[INDEX_FILES_MAX];
    uint8_t chunk[CHUNK_ENTRIES * INDEX_ENTRY_SIZE];
};

struct index_compare *index_compare_new(struct env *env, struct index_service *service, const int64_t *dispatched, const int64_t *recovered)
{
    struct index_compare *compare = malloc(sizeof *compare);
    if (compare == NULL)
        return NULL;
    memset(compare, 0, offsetof(struct index_compare, views));
    compare->env = env;
    compare->service = service;
    compare->dispatched = dispatched;
    compare->recovered = recovered;
    return compare;
}

/* ---- keys ---- */

int index_compare_add(struct index_compare *compare, const struct message_dispatch *record)
{
    struct index_keys keys;
    uint32_t hash;
    int transaction = record->sys_flag & MESSAGE_TRANSACTION_MASK;
    bool queued = transaction == 0 || transaction == MESSAGE_TRANSACTION_COMMIT;
    /* As in message_store_dispatch(). */
    if (transaction == MESSAGE_TRANSACTION_ROLLBACK || (queued && (!queue_table_is_safe(record->topic) || record->queue_id < 0)))
        return 0;
    index_keys_init(&keys, record, index_keys_seed(record->topic), compare->service->entries);
    while (index_keys_next(&keys, &hash)) {
        if (compare->key_count == compare->key_capacity) {
            size_t capacity = compare->key_capacity == 0 ? 1024 : compare->key_capacity * 2;
            struct index_key *grown = realloc(compare->keys, capacity * sizeof *grown);
            if (grown == NULL)
                return ERROR_NO_MEMORY;
            compare->keys = grown;
            compare->key_capacity = capacity;
        }
        compare->keys[compare->key_count++] = (struct index_key){record->physical_offset, record->store_timestamp_ms, hash};
    }
    return 0;
}

void index_compare_clear(struct index_compare *compare)
{
    compare->key_count = 0;
}

/* ---- reading files ---- */

/* Leaves memory as it was. */
static bool read_at(const struct index_compare *compare, struct env_file *handle, const struct index_file *file, void *out, size_t size, uint64_t offset)
{
    const struct env_ops *ops = compare->env->ops;
    bool stays = ops->resident == NULL || ops->forget == NULL || ops->resident(compare->env, file->map + offset, size);
    bool whole = env_read(compare->env, handle, out, size, offset) == (ssize_t)size;
    if (!stays)
        ops->forget(compare->env, handle, offset, size);
    return whole;
}

/* `number` < count. False: cannot be read. */
static bool read_entry(struct index_compare *compare, const struct view *view, uint32_t number, struct index_entry *entry)
{
    if (number < compare->chunk_number || number - compare->chunk_number >= compare->chunk_count) {
        uint32_t count = view->count - number < CHUNK_ENTRIES ? view->count - number : CHUNK_ENTRIES;
        compare->chunk_count = 0;
        if (!read_at(compare, compare->handle, view->file, compare->chunk, (size_t)count * INDEX_ENTRY_SIZE, index_file_used(view->file, number)))
            return false;
        compare->chunk_number = number;
        compare->chunk_count = count;
    }
    index_entry_decode(compare->chunk + (size_t)(number - compare->chunk_number) * INDEX_ENTRY_SIZE, entry);
    return true;
}

/* ---- the cursor ---- */

static void leave(struct index_compare *compare)
{
    if (compare->handle != NULL)
        env_close(compare->env, compare->handle);
    free(compare->heads);
    compare->handle = NULL;
    compare->file = NULL;
    compare->heads = NULL;
}

static void found(struct index_compare *compare, size_t at, bool in_file, int64_t physical_offset, const char *what)
{
    compare->found = true;
    compare->at = at;
    compare->in_file = in_file;
    compare->found_offset = physical_offset;
    compare->found_number = compare->number;
    compare->found_what = what;
}

/* In front of the file's first entry. False: it is gone, or not now. */
static bool enter(struct index_compare *compare, size_t at, int64_t physical_offset)
{
    const struct view *view = &compare->views[at];
    leave(compare);
    compare->heads = calloc(view->file->slots, sizeof *compare->heads);
    if (compare->heads == NULL)
        return false;
    int rv = env_open(compare->env, view->file->path, ENV_READ, &compare->handle);
    if (rv != 0) {
        compare->handle = NULL;
        leave(compare);
        compare->number = 0;
        if (!env_is_short(rv))
            found(compare, at, true, physical_offset, "cannot be opened");
        return false;
    }
    compare->file = view->file;
    compare->number = 1;
    compare->checked = false;
    compare->last_offset = 0;
    compare->last_timestamp_ms = -1;
    compare->chunk_count = 0;
    return true;
}

/* Over an entry that is right. */
static void step(struct index_compare *compare, const struct index_entry *entry, int64_t store_timestamp_ms)
{
    compare->heads[entry->hash % compare->file->slots] = compare->number++;
    compare->last_offset = entry->physical_offset;
    compare->last_timestamp_ms = store_timestamp_ms;
}

/* Over entries in front of a record; theirs are no longer in the log, or cannot be read now. */
static void pass_over(struct index_compare *compare, size_t at, int64_t physical_offset)
{
    const struct view *view = &compare->views[at];
    struct index_entry entry;
    while (compare->number < view->count) {
        if (!read_entry(compare, view, compare->number, &entry)) {
            found(compare, at, true, physical_offset, "cannot be read");
            return;
        }
        if (entry.physical_offset >= physical_offset)
            return;
        if (entry.physical_offset < compare->last_offset || entry.previous != compare->heads[entry.hash % view->file->slots] || entry.seconds < 0) {
            found(compare, at, true, physical_offset, "is damaged");
            return;
        }
        step(compare, &entry, -1);
    }
}

/* Takes the entries in [number, count) into the heads, or out again: *undo is what they replaced. *last_offset: of the last one. */
static bool look_ahead(struct index_compare *compare, const struct view *view, uint32_t *undo, bool back, int64_t *last_offset)
{
    struct index_entry entry;
    uint32_t ahead = view->count - compare->number;
    for (uint32_t i = 0; i < ahead; i++) {
        uint32_t n = back ? ahead - 1 - i : i;
        if (!read_entry(compare, view, compare->number + n, &entry))
            return false;
        uint32_t *head = &compare->heads[entry.hash % view->file->slots];
        if (back) {
            *head = undo[n];
            continue;
        }
        if (entry.previous != *head || entry.seconds < 0 || entry.physical_offset < *last_offset || entry.physical_offset >= compare->reaches_at_begin)
            return false;
        undo[n] = *head;
        *head = compare->number + n;
        *last_offset = entry.physical_offset;
    }
    return true;
}

static bool slots_are_right(struct index_compare *compare, const struct view *view)
{
    uint8_t bytes[4096];
    uint32_t slots = view->file->slots;
    for (uint32_t slot = 0; slot < slots;) {
        uint32_t count = slots - slot < sizeof bytes / INDEX_SLOT_SIZE ? slots - slot : (uint32_t)(sizeof bytes / INDEX_SLOT_SIZE);
        if (!read_at(compare, compare->handle, view->file, bytes, (size_t)count * INDEX_SLOT_SIZE, INDEX_HEADER_SIZE + (uint64_t)slot * INDEX_SLOT_SIZE))
            return false;
        for (uint32_t i = 0; i < count; i++, slot++) {
            uint32_t head = load_u32(bytes + (size_t)i * INDEX_SLOT_SIZE);
            if (head == compare->heads[slot])
                continue;
            /* Of one that a put has changed since begin the new entry's link tells. */
            if (!view->open || head < view->count)
                return false;
            if (head > compare->head_max)
                compare->head_max = head;
        }
    }
    return true;
}

/* Of a file that takes no more entries. What is not known of its last record's time is not looked at. */
static bool header_is_right(struct index_compare *compare, const struct view *view, int64_t last_offset, int64_t last_timestamp_ms)
{
    uint8_t bytes[INDEX_HEADER_SIZE];
    struct index_header header;
    if (!read_at(compare, compare->handle, view->file, bytes, sizeof bytes, 0))
        return false;
    index_header_decode(bytes, &header);
    /* A start that could not read the last record has rounded up. */
    if (last_timestamp_ms >= 0 && (header.end_timestamp_ms < last_timestamp_ms || header.end_timestamp_ms > last_timestamp_ms + 1000))
        return false;
    return header.count == view->count && header.begin_physical_offset == view->begin && header.end_physical_offset == last_offset && view->end == last_offset && header.begin_timestamp_ms == view->begin_timestamp_ms && header.end_timestamp_ms == view->end_timestamp_ms;
}

/* Slots and header, once the cursor has seen all entries or nearly all. */
static void check_rest(struct index_compare *compare, size_t at)
{
    const struct view *view = &compare->views[at];
    uint32_t ahead = view->count - compare->number;
    uint32_t *undo = NULL;
    int64_t last_offset = compare->last_offset;
    bool right = true;
    if (compare->checked || ahead > AHEAD_MAX)
        return;
    if (ahead > 0) {
        undo = malloc(ahead * sizeof *undo);
        if (undo == NULL)
            return;
        right = look_ahead(compare, view, undo, false, &last_offset);
    }
    right = right && slots_are_right(compare, view) &&
            (view->open || header_is_right(compare, view, last_offset, ahead == 0 ? compare->last_timestamp_ms : -1));
    if (right && ahead > 0)
        right = look_ahead(compare, view, undo, true, &last_offset);
    free(undo);
    compare->checked = true;
    if (!right)
        found(compare, at, true, compare->last_offset, "has wrong slots or a wrong header");
}

/* All records have been compared, and there are files behind the cursor's: they, or the rest of this one, have entries of no record behind it. */
static void check_end(struct index_compare *compare, size_t at)
{
    if (compare->number == compare->views[at].count)
        check_rest(compare, at);
    if (!compare->found)
        found(compare, compare->number < compare->views[at].count ? at : at + 1, true, compare->last_offset, "goes on behind the log's end");
}

static size_t view_of(const struct index_compare *compare, const struct index_file *file)
{
    size_t at = 0;
    while (at < compare->view_count && compare->views[at].file != file)
        at++;
    return at;
}

/* The cursor in front of the entry that this key should have. False: there is none, or not now. */
static bool place(struct index_compare *compare, const struct index_key *key, size_t *at)
{
    size_t i = compare->file == NULL ? 0 : view_of(compare, compare->file);
    if (compare->file == NULL) {
        while (i < compare->view_count && (compare->views[i].end < key->physical_offset || compare->views[i].begin < compare->placed_from))
            i++;
        if (i < compare->view_count && compare->views[i].begin <= key->physical_offset) {
            if (!enter(compare, i, key->physical_offset))
                return false;
            compare->jumped = true;
        }
    }
    for (;;) {
        if (compare->file != NULL) {
            if (compare->jumped) {
                pass_over(compare, i, key->physical_offset);
                if (compare->found)
                    return false;
            }
            if (compare->number < compare->views[i].count) {
                compare->jumped = false;
                *at = i;
                return true;
            }
            check_rest(compare, i);
            if (compare->found)
                return false;
            i++;
        }
        if (i == compare->view_count || compare->views[i].begin > key->physical_offset) {
            found(compare, i, false, key->physical_offset, "");
            return false;
        }
        if (!enter(compare, i, key->physical_offset))
            return false;
    }
}

static void compare_key(struct index_compare *compare, const struct index_key *key)
{
    struct index_entry entry;
    size_t at;
    if (!place(compare, key, &at))
        return;
    const struct view *view = &compare->views[at];
    if (!read_entry(compare, view, compare->number, &entry))
        found(compare, at, true, key->physical_offset, "cannot be read");
    else if (entry.hash != key->hash || entry.physical_offset != key->physical_offset ||
             entry.seconds != index_entry_seconds(view->begin_timestamp_ms, key->store_timestamp_ms) ||
             entry.previous != compare->heads[entry.hash % view->file->slots] ||
             (compare->number == 1 && view->begin_timestamp_ms != key->store_timestamp_ms))
        found(compare, at, true, key->physical_offset, "is damaged");
    else
        step(compare, &entry, key->store_timestamp_ms);
}

/* ---- making a file ---- */

static void fail(struct index_compare *compare, int code, const char *why)
{
    error_set(&compare->failure, code, "%s", why);
}

/* How many entries at the end of a file, or at its begin, are of that record. */
static uint32_t count_entries_of(struct index_compare *compare, const struct view *view, int64_t physical_offset, bool at_end)
{
    uint8_t bytes[INDEX_ENTRY_SIZE];
    struct index_entry entry;
    struct env_file *handle;
    uint32_t same = 0;
    if (env_open(compare->env, view->file->path, ENV_READ, &handle) != 0)
        return 0;
    while (same + 1 < view->count) {
        uint32_t number = at_end ? view->count - 1 - same : 1 + same;
        if (!read_at(compare, handle, view->file, bytes, sizeof bytes, index_file_used(view->file, number)))
            break;
        index_entry_decode(bytes, &entry);
        if (entry.physical_offset != physical_offset)
            break;
        same++;
    }
    env_close(compare->env, handle);
    return same;
}

/* Keys of the record at which the range begins, or ends, that stand in other files. It may be one with so many that they fill some. */
static uint32_t count_elsewhere(struct index_compare *compare, const struct index_file *neighbour, bool in_front)
{
    uint32_t sum = 0;
    for (size_t at = view_of(compare, neighbour); at < compare->view_count; at = in_front ? at - 1 : at + 1) {
        uint32_t count = count_entries_of(compare, &compare->views[at], in_front ? neighbour->end_physical_offset : neighbour->begin_physical_offset, in_front);
        sum += count;
        if (count + 1 < compare->views[at].count)
            break;
    }
    return sum;
}

static void begin_rebuild(struct index_compare *compare)
{
    struct rebuild *rebuild = &compare->rebuild;
    struct index_service *service = compare->service;
    struct error error = {0};
    uint64_t free_bytes, total_bytes;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s" INDEX_REBUILD_SUFFIX, rebuild->path);
    if (compare->env->ops->space(compare->env, service->dir, &free_bytes, &total_bytes) != 0 ||
        free_bytes < index_file_size(service->slots, service->entries) + ROOM_KEPT) {
        fail(compare, ERROR_NO_SPACE, "the disk has too little room");
        return;
    }
    compare->env->ops->unlink(compare->env, path);
    int rv = index_file_create(&rebuild->file, compare->env, path, service->slots, service->entries, &error);
    if (rv != 0) {
        fail(compare, rv, error.message);
        return;
    }
    rebuild->begun = true;
    rebuild->before = rebuild->previous == NULL ? 0 : count_elsewhere(compare, rebuild->previous, true);
    rebuild->behind = rebuild->next == NULL ? 0 : count_elsewhere(compare, rebuild->next, false);
}

static void finish_rebuild(struct index_compare *compare)
{
    struct rebuild *rebuild = &compare->rebuild;
    struct index_file *file = rebuild->file;
    if (file->count > 1) {
        char *name = strdup(rebuild->path);
        int rv = name == NULL ? -ENOMEM : index_file_sync_whole(file) != 0 ? -EIO : compare->env->ops->rename(compare->env, file->path, name);
        if (rv != 0) {
            free(name);
            fail(compare, ERROR_IO, strerror(-rv));
            return;
        }
        /* The name becomes durable with the next sync of all. */
        free(file->path);
        file->path = name;
        file->sealed = true;
    }
    rebuild->done = true;
}

/* The keys of one record, keys[0, count). True: the range has ended, or the file is full. */
static bool rebuild_record(struct index_compare *compare, const struct index_key *keys, uint32_t count)
{
    struct rebuild *rebuild = &compare->rebuild;
    int64_t offset = keys->physical_offset;
    uint32_t first = 0, end = count;
    if (offset < (int64_t)compare->log_min)
        return false;
    if (rebuild->previous != NULL && offset <= rebuild->previous->end_physical_offset) {
        if (offset < rebuild->previous->end_physical_offset)
            return false;
        first = rebuild->before < count ? rebuild->before : count;
    }
    if (rebuild->next != NULL ? offset > rebuild->next->begin_physical_offset : offset >= rebuild->limit)
        return true;
    bool last = rebuild->next != NULL && offset == rebuild->next->begin_physical_offset;
    if (last)
        end = rebuild->behind < count ? count - rebuild->behind : 0;
    for (uint32_t i = first; i < end && !index_file_is_full(rebuild->file); i++) {
        int rv = index_file_reserve(rebuild->file, 1);
        if (rv != 0) {
            fail(compare, rv, rv == ERROR_NO_SPACE ? "the disk is full" : "room for it cannot be had");
            return true;
        }
        index_file_put(rebuild->file, keys[i].hash, offset, keys[i].store_timestamp_ms);
        rebuild->last_offset = offset;
        rebuild->last_count = i + 1;
    }
    return last || index_file_is_full(rebuild->file);
}

static void run_rebuild(struct index_compare *compare)
{
    struct rebuild *rebuild = &compare->rebuild;
    bool ended = false;
    if (!compare->continues && (compare->from > compare->log_min || (rebuild->begun && compare->goes_back))) {
        /* What is between cannot be read now. */
        fail(compare, ERROR_DAMAGED, "part of the log is not read now");
        return;
    }
    if (!rebuild->begun)
        begin_rebuild(compare);
    for (size_t i = 0; i < compare->key_count && !ended && compare->failure.code == 0;) {
        uint32_t count = 1;
        while (i + count < compare->key_count && compare->keys[i + count].physical_offset == compare->keys[i].physical_offset)
            count++;
        ended = rebuild_record(compare, compare->keys + i, count);
        if (!ended)
            i += count;
        else
            compare->position = (uint64_t)compare->keys[i].physical_offset - LEDGER_ENTRY_HEADER_SIZE;
    }
    if (compare->failure.code != 0)
        return;
    int64_t limit = rebuild->next != NULL ? rebuild->next->begin_physical_offset : rebuild->limit;
    if (ended)
        compare->wanted = true; /* from that record on there is something to compare */
    else
        compare->position = compare->to;
    if (ended || compare->to >= (uint64_t)limit)
        finish_rebuild(compare);
}

/* ---- the three steps ---- */

static void pin_all(struct index_compare *compare)
{
    const struct index_service *service = compare->service;
    compare->view_count = service->count;
    for (size_t i = 0; i < service->count; i++) {
        struct index_file *file = service->files[i];
        file->pins++;
        compare->views[i] = (struct view){.file = file,
                                          .begin = file->begin_physical_offset,
                                          .end = file->end_physical_offset,
                                          .begin_timestamp_ms = file->begin_timestamp_ms,
                                          .end_timestamp_ms = file->end_timestamp_ms,
                                          .count = file->count,
                                          .open = i + 1 == service->count && !index_file_is_full(file)};
    }
}

static void unpin_all(struct index_compare *compare)
{
    for (size_t i = 0; i < compare->view_count; i++)
        index_file_unpin(compare->views[i].file);
    compare->view_count = 0;
}

/* In front of this the index has what it will ever get: a start finds it there already, although it dispatches it once more. */
static int64_t reaches(const struct index_compare *compare)
{
    return *compare->dispatched > *compare->recovered ? *compare->dispatched : *compare->recovered;
}

void index_compare_begin(struct index_compare *compare, uint64_t from, uint64_t to, uint64_t log_min)
{
    compare->found = false;
    compare->failure.code = 0;
    compare->head_max = 0;
    compare->log_min = log_min;
    compare->reaches_at_begin = reaches(compare);
    compare->continues = compare->wanted ? from <= compare->position : from == compare->position;
    compare->goes_back = !compare->wanted && from < compare->position;
    compare->jumped = compare->jumped || !compare->continues;
    compare->from = from;
    compare->to = to;
    if (compare->goes_back) {
        leave(compare); /* another pass */
        compare->ignored_below = 0;
        compare->placed_from = 0;
        compare->leaps = 0;
        compare->skip_count = 0;
    }
    compare->wanted = false;
    /* A file that is gone takes the cursor with it. */
    if (compare->file != NULL && compare->file->dropped)
        leave(compare);
    pin_all(compare);
}

void index_compare_run(struct index_compare *compare)
{
    if (compare->rebuild.active) {
        run_rebuild(compare);
        return;
    }
    for (size_t i = 0; i < compare->key_count && !compare->found; i++) {
        const struct index_key *key = &compare->keys[i];
        if (key->physical_offset < compare->ignored_below)
            continue;
        if (key->physical_offset < (int64_t)compare->log_min) {
            compare->jumped = true;
            continue;
        }
        if (compare->skip_count > 0 && key->physical_offset == compare->skip_offset) {
            compare->skip_count--;
            continue;
        }
        compare_key(compare, key);
    }
    compare->position = compare->to;
    if (!compare->found && compare->file != NULL) {
        size_t at = view_of(compare, compare->file);
        if (at + 1 == compare->view_count)
            check_rest(compare, at);
        else if (!compare->jumped && (int64_t)compare->to >= compare->reaches_at_begin)
            check_end(compare, at);
    }
}

static void end_rebuild(struct index_compare *compare)
{
    struct rebuild *rebuild = &compare->rebuild;
    if (rebuild->file != NULL)
        index_file_remove(rebuild->file, NULL);
    if (rebuild->damaged != NULL)
        index_file_unpin(rebuild->damaged);
    if (rebuild->previous != NULL)
        index_file_unpin(rebuild->previous);
    if (rebuild->next != NULL)
        index_file_unpin(rebuild->next);
    free(rebuild->path);
    compare->service->promised = NULL;
    memset(rebuild, 0, sizeof *rebuild);
}

static void hold(struct index_compare *compare, struct index_file *file)
{
    if (file != NULL)
        file->pins++;
    if (compare->held != NULL)
        index_file_unpin(compare->held);
    compare->held = file;
}

static struct index_file *pinned(struct index_file *file)
{
    if (file != NULL)
        file->pins++;
    return file;
}

/* Damage was found. */
static void start_rebuild(struct index_compare *compare)
{
    struct index_service *service = compare->service;
    struct rebuild *rebuild = &compare->rebuild;
    struct index_file *damaged = compare->in_file ? compare->views[compare->at].file : NULL;
    char path[PATH_MAX];
    size_t at = 0;

    leave(compare);
    compare->skip_count = 0;
    /* Where it stands now: the loop has gone on meanwhile. */
    while (at < service->count && (damaged != NULL ? service->files[at] != damaged : service->files[at]->begin_physical_offset <= compare->found_offset))
        at++;
    if (damaged != NULL && at == service->count)
        return; /* retention was faster */
    size_t behind = damaged != NULL ? at + 1 : at;
    struct index_file *next = behind < service->count ? service->files[behind] : NULL;
    if (damaged == NULL && at == 0 && service->count + 2 > INDEX_FILES_MAX) {
        /* The oldest went, as there were too many. */
        compare->ignored_below = next->begin_physical_offset;
        return;
    }
    /* Each file once, and what may have been in the way of others: the rest has time until the next pass. */
    if (++compare->leaps > INDEX_FILES_MAX + service->count) {
        compare->ignored_below = INT64_MAX;
        return;
    }
    if (index_service_rebuild_path(service, damaged, path) != 0 || (rebuild->path = strdup(path)) == NULL)
        return;
    compare->counts.damaged++;
    if (damaged != NULL)
        LOG_ERROR("index file %s %s at entry %u (record at %lld): it is made anew from the log", damaged->path, compare->found_what,
                  (unsigned)compare->found_number, (long long)compare->found_offset);
    else
        LOG_ERROR("no index file in %s has the records from %lld on: %s is made for them from the log", service->dir, (long long)compare->found_offset, path);
    service->promised = rebuild->path;
    rebuild->active = true;
    rebuild->damaged = pinned(damaged);
    rebuild->previous = pinned(at > 0 ? service->files[at - 1] : NULL);
    rebuild->next = pinned(next);
    rebuild->limit = reaches(compare);
    /* From now on new keys go into another file. */
    if (next == NULL && service->count > 0)
        service->files[service->count - 1]->sealed = true;
    compare->position = compare->log_min;
    if (rebuild->previous != NULL && rebuild->previous->end_physical_offset - (int64_t)LEDGER_ENTRY_HEADER_SIZE > (int64_t)compare->log_min)
        compare->position = (uint64_t)rebuild->previous->end_physical_offset - LEDGER_ENTRY_HEADER_SIZE;
    compare->ignored_below = 0;
    compare->placed_from = 0;
    compare->wanted = true;
}

/* The range is left out until the next pass. */
static void give_up(struct index_compare *compare)
{
    struct rebuild *rebuild = &compare->rebuild;
    LOG_WARN("index file %s cannot be made anew now: %s. It is tried again with the next pass over the log", rebuild->path, compare->failure.message);
    /* Of the record that it shares with the next one it is not known which keys are whose. */
    compare->placed_from = rebuild->next != NULL ? rebuild->next->begin_physical_offset : INT64_MAX;
    compare->ignored_below = rebuild->next != NULL ? compare->placed_from + 1 : INT64_MAX;
    end_rebuild(compare);
    compare->position = compare->to;
    compare->wanted = false;
}

/* The new file takes its place, and the cursor stands behind it. */
static void take_over(struct index_compare *compare)
{
    struct rebuild *rebuild = &compare->rebuild;
    struct index_file *file = rebuild->file;
    if (file->count == 1) {
        /* There is nothing that it should have held. */
        if (rebuild->damaged != NULL)
            index_service_leave_out(compare->service, rebuild->damaged);
        compare->counts.rebuilt++;
        compare->ignored_below = compare->wanted ? (int64_t)(compare->position + LEDGER_ENTRY_HEADER_SIZE) : 0;
    } else if (index_service_take_over(compare->service, file, rebuild->damaged)) {
        compare->counts.rebuilt++;
        rebuild->file = NULL;
        compare->file = file;
        compare->number = file->count;
        compare->checked = true;
        if (compare->wanted) {
            compare->ignored_below = (int64_t)(compare->position + LEDGER_ENTRY_HEADER_SIZE);
            compare->skip_offset = rebuild->last_offset;
            compare->skip_count = rebuild->last_offset == compare->ignored_below ? rebuild->last_count : 0;
        }
    }
    end_rebuild(compare);
}

bool index_compare_end(struct index_compare *compare, uint64_t *wanted)
{
    if (!compare->found && compare->head_max > 0 && compare->head_max >= compare->file->count)
        found(compare, view_of(compare, compare->file), true, compare->last_offset, "has wrong slots");
    if (compare->found)
        start_rebuild(compare);
    else if (compare->failure.code != 0)
        give_up(compare);
    else if (compare->rebuild.done)
        take_over(compare);
    hold(compare, compare->file);
    unpin_all(compare);
    compare->key_count = 0;
    *wanted = compare->position;
    return compare->wanted;
}

bool index_compare_hurries(const struct index_compare *compare)
{
    return compare->rebuild.active;
}

struct index_compare_counts index_compare_counts(const struct index_compare *compare)
{
    return compare->counts;
}

void index_compare_free(struct index_compare *compare)
{
    if (compare == NULL)
        return;
    unpin_all(compare);
    leave(compare);
    hold(compare, NULL);
    end_rebuild(compare);
    free(compare->keys);
    free(compare);
}
