#include "store/index_file.h"

#include "proto/buffer.h"
#include "store/log_sink.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 4096u
/* Entries get disk blocks in steps of 4 MiB (210,000 entries), the next step while half of one is left, so that dispatching what the ledger
 * promised room for does not wait for the index when the disk becomes full. */
#define RESERVE_STEP (4u << 20)
#define RESERVE_AGAIN 4096u
#define RESERVE_LOW (RESERVE_STEP / 2 / INDEX_ENTRY_SIZE)

/* Files and chains run forward in time but where a new leader's clock lies behind the old one's. */
#define CLOCK_SLACK_MS 60000

enum { HEADER_BEGIN_TIME = 0, HEADER_END_TIME = 8, HEADER_BEGIN_OFFSET = 16, HEADER_END_OFFSET = 24, HEADER_SLOT_COUNT = 32, HEADER_COUNT = 36 };
enum { ENTRY_HASH = 0, ENTRY_OFFSET = 4, ENTRY_SECONDS = 12, ENTRY_PREVIOUS = 16 };
enum { MARK_BOOT = 0, MARK_WHOLE = 8 };

static uint8_t *slot_at(const struct index_file *file, uint32_t slot)
{
    return file->map + INDEX_HEADER_SIZE + (uint64_t)slot * INDEX_SLOT_SIZE;
}

static uint64_t entries_begin(const struct index_file *file)
{
    return INDEX_HEADER_SIZE + (uint64_t)file->slots * INDEX_SLOT_SIZE;
}

static uint8_t *entry_at(const struct index_file *file, uint32_t number)
{
    return file->map + entries_begin(file) + (uint64_t)number * INDEX_ENTRY_SIZE;
}

/* kill -9 stops a process between two instructions, and what was stored before stays: stores must not be moved across this line. */
static void order_stores(void)
{
    atomic_signal_fence(memory_order_seq_cst);
}

void index_header_decode(const uint8_t bytes[INDEX_HEADER_SIZE], struct index_header *header)
{
    header->begin_timestamp_ms = (int64_t)load_u64(bytes + HEADER_BEGIN_TIME);
    header->end_timestamp_ms = (int64_t)load_u64(bytes + HEADER_END_TIME);
    header->begin_physical_offset = (int64_t)load_u64(bytes + HEADER_BEGIN_OFFSET);
    header->end_physical_offset = (int64_t)load_u64(bytes + HEADER_END_OFFSET);
    header->slot_count = load_u32(bytes + HEADER_SLOT_COUNT);
    header->count = load_u32(bytes + HEADER_COUNT);
}

void index_entry_decode(const uint8_t bytes[INDEX_ENTRY_SIZE], struct index_entry *entry)
{
    entry->hash = load_u32(bytes + ENTRY_HASH);
    entry->physical_offset = (int64_t)load_u64(bytes + ENTRY_OFFSET);
    entry->seconds = (int32_t)load_u32(bytes + ENTRY_SECONDS);
    entry->previous = load_u32(bytes + ENTRY_PREVIOUS);
}

int32_t index_entry_seconds(int64_t begin_timestamp_ms, int64_t store_timestamp_ms)
{
    int64_t seconds = begin_timestamp_ms > 0 ? (store_timestamp_ms - begin_timestamp_ms) / 1000 : 0;
    return seconds < 0 ? 0 : seconds > INT32_MAX ? INT32_MAX : (int32_t)seconds;
}

static void write_header(struct index_file *file)
{
    uint8_t *p = file->map;
    store_u64(p + HEADER_BEGIN_TIME, (uint64_t)file->begin_timestamp_ms);
    store_u64(p + HEADER_END_TIME, (uint64_t)file->end_timestamp_ms);
    store_u64(p + HEADER_BEGIN_OFFSET, (uint64_t)file->begin_physical_offset);
    store_u64(p + HEADER_END_OFFSET, (uint64_t)file->end_physical_offset);
    store_u32(p + HEADER_SLOT_COUNT, file->slot_count);
    order_stores();
    store_u32(p + HEADER_COUNT, file->count);
}

static int fail(struct error *error, int rv, const char *what, const char *path)
{
    int code = rv == -ENOSPC || rv == -EDQUOT ? ERROR_NO_SPACE
               : rv == -EEXIST                ? ERROR_EXISTS
               : env_is_short(rv)             ? ERROR_NO_MEMORY
                                              : ERROR_IO;
    return error_set(error, code, "%s %s: %s", what, path, strerror(-rv));
}

static struct index_file *allocate(struct env *env, const char *path, uint32_t slots, uint32_t entries)
{
    struct index_file *file = calloc(1, sizeof *file);
    if (file == NULL)
        return NULL;
    file->path = strdup(path);
    if (file->path == NULL) {
        free(file);
        return NULL;
    }
    file->env = env;
    file->slots = slots;
    file->entries = entries;
    file->size = index_file_size(slots, entries);
    file->count = 1;
    file->synced = 1;
    return file;
}

void index_file_close(struct index_file *file)
{
    if (file == NULL)
        return;
    if (file->map != NULL)
        file->env->ops->unmap(file->env, file->map, file->size);
    free(file->path);
    free(file);
}

int index_file_create(struct index_file **out, struct env *env, const char *path, uint32_t slots, uint32_t entries, struct error *error)
{
    assert(slots > 0 && entries > 1 && entries <= INT32_MAX);
    struct env_file *handle;
    char *unfinished = NULL;
    int error_number = 0;
    struct index_file *file = allocate(env, path, slots, entries);
    size_t size = strlen(path) + sizeof ".new";
    if (file != NULL)
        unfinished = malloc(size);
    if (unfinished == NULL) {
        index_file_close(file);
        return error_set(error, ERROR_NO_MEMORY, "create %s: out of memory", path);
    }
    strcpy(unfinished, path);
    strcat(unfinished, ".new");

    /* A name that is taken is another file of the same millisecond. */
    int rv = env_open(env, path, ENV_READ, &handle);
    if (rv == 0) {
        env_close(env, handle);
        rv = -EEXIST;
    } else if (rv == -ENOENT) {
        rv = env_open(env, unfinished, ENV_WRITE | ENV_CREATE, &handle);
    }
    if (rv != 0)
        goto free_file;
    rv = env->ops->truncate(env, handle, file->size);
    /* Header, slots and the mark in entry 0 are written all over from the first key on. Reserving 20 MB is one extent and well below a
     * millisecond; zeroing happens when a page is first touched. */
    if (rv == 0)
        rv = env->ops->allocate(env, handle, 0, entries_begin(file) + INDEX_ENTRY_SIZE);
    if (rv == 0)
        rv = env->ops->rename(env, unfinished, path);
    if (rv != 0)
        goto unlink_file;
    file->map = env->ops->map(env, handle, file->size, true, &error_number);
    if (file->map == NULL) {
        rv = -error_number;
        env->ops->unlink(env, path);
        goto close_file;
    }
    env_close(env, handle);
    free(unfinished);
    store_u64(entry_at(file, 0) + MARK_BOOT, env->ops->boot_id(env));
    write_header(file);
    file->reserved = 1;
    file->slots_dirty = true;
    file->dir_dirty = true;
    *out = file;
    return 0;

unlink_file:
    env->ops->unlink(env, unfinished);
close_file:
    env_close(env, handle);
free_file:
    free(unfinished);
    index_file_close(file);
    return fail(error, rv, "create", path);
}

static int64_t entry_offset(const struct index_file *file, uint32_t number)
{
    return (int64_t)load_u64(entry_at(file, number) + ENTRY_OFFSET);
}

/* Far in the future, and far from where sums overflow. */
#define TIME_MAX ((int64_t)1 << 53)

static int64_t sound_time(int64_t time_ms)
{
    return time_ms < 0 || time_ms > TIME_MAX ? 0 : time_ms;
}

/* How many entries there are when the header does not say: they have offsets, what is behind them is zero. */
static uint32_t halve_for_count(const struct index_file *file)
{
    uint32_t low = 0;
    uint32_t high = file->entries;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (entry_offset(file, middle) > 0)
            low = middle;
        else
            high = middle;
    }
    return low + 1;
}

/* Header and first entry both tell where the file begins. Right is who is not behind the second entry, and then the later one: what is too early would
 * put the file in front of others. */
static int64_t choose_begin(const struct index_file *file, int64_t said)
{
    int64_t first = entry_offset(file, 1);
    int64_t second = file->count > 2 ? entry_offset(file, 2) : INT64_MAX;
    if (second <= 0)
        second = INT64_MAX;
    if (said <= 0 || said > second)
        return first > 0 ? first : 0;
    return first > said && first <= second ? first : said;
}

/* The file lay on a disk, maybe for a year: three of its pages are looked at. */
static void read_header(struct index_file *file)
{
    struct index_header header;
    index_header_decode(file->map, &header);
    file->begin_timestamp_ms = sound_time(header.begin_timestamp_ms);
    file->end_timestamp_ms = sound_time(header.end_timestamp_ms);
    file->slot_count = header.slot_count;
    file->count = header.count == 0 ? 1 : header.count;
    /* A process may have died inside a put, with end and entry written and not yet counted. */
    bool fits = file->count <= file->entries && header.end_physical_offset >= 0;
    if (fits && file->count > 1)
        fits = header.end_physical_offset > 0 && (entry_offset(file, file->count - 1) == header.end_physical_offset ||
                                                  (file->count < file->entries && entry_offset(file, file->count) == header.end_physical_offset));
    else if (fits)
        fits = entry_offset(file, 1) == 0 || file->entries == 2 || entry_offset(file, 2) == 0;
    if (!fits)
        file->count = halve_for_count(file);
    file->begin_physical_offset = file->count > 1 ? choose_begin(file, header.begin_physical_offset) : header.begin_physical_offset;
    file->end_physical_offset = file->count > 1 ? entry_offset(file, file->count - 1) : header.end_physical_offset;
    if (file->count > 1)
        file->doubtful = file->begin_physical_offset != header.begin_physical_offset || file->end_physical_offset != header.end_physical_offset ||
                         file->count != header.count || file->begin_timestamp_ms != header.begin_timestamp_ms ||
                         file->end_timestamp_ms != header.end_timestamp_ms;
    if (file->begin_physical_offset < 0)
        file->begin_physical_offset = 0;
    if (file->end_physical_offset < file->begin_physical_offset)
        file->end_physical_offset = file->begin_physical_offset;
}

int index_file_open(struct index_file **out, struct env *env, const char *path, uint32_t slots, uint32_t entries, struct error *error)
{
    assert(slots > 0 && entries > 1 && entries <= INT32_MAX);
    struct env_file *handle;
    uint64_t size;
    int error_number = 0;
    struct index_file *file = allocate(env, path, slots, entries);
    if (file == NULL)
        return error_set(error, ERROR_NO_MEMORY, "open %s: out of memory", path);
    int rv = env_open(env, path, ENV_WRITE, &handle);
    if (rv != 0)
        goto free_file;
    rv = env->ops->size(env, handle, &size);
    if (rv != 0)
        goto close_file;
    if (size != file->size) {
        env_close(env, handle);
        uint64_t expected = file->size;
        index_file_close(file);
        return error_set(error, ERROR_DAMAGED,
                         "%s has %llu bytes, expected %llu: were maxHashSlotNum or maxIndexNum changed? Put them back, or remove the directory: the "
                         "index is then built anew",
                         path, (unsigned long long)size, (unsigned long long)expected);
    }
    file->map = env->ops->map(env, handle, file->size, true, &error_number);
    if (file->map == NULL) {
        rv = -error_number;
        goto close_file;
    }
    env_close(env, handle);
    read_header(file);
    /* What another process left may be in the page cache only, its name too. */
    file->synced = 1;
    file->slots_dirty = true;
    file->dir_dirty = true;
    *out = file;
    return 0;

close_file:
    env_close(env, handle);
free_file:
    index_file_close(file);
    return fail(error, rv, "open", path);
}

void index_file_drop(struct index_file *file)
{
    file->dropped = true;
    if (file->pins == 0)
        index_file_close(file);
}

int index_file_remove(struct index_file *file, struct error *error)
{
    int rv = file->env->ops->unlink(file->env, file->path);
    int code = rv == 0 || rv == -ENOENT ? 0 : fail(error, rv, "remove", file->path);
    index_file_drop(file);
    return code;
}

void index_file_unpin(struct index_file *file)
{
    assert(file->pins > 0);
    if (--file->pins == 0 && file->dropped)
        index_file_close(file);
}

void index_file_inherit(struct index_file *file, const struct index_file *previous)
{
    file->begin_physical_offset = file->end_physical_offset = previous->end_physical_offset;
    file->begin_timestamp_ms = file->end_timestamp_ms = previous->end_timestamp_ms;
    write_header(file);
}

/* Gives entries [file->reserved, to) disk blocks. */
static int reserve_entries(struct index_file *file, uint64_t to)
{
    struct env_file *handle;
    struct env *env = file->env;
    uint64_t begin = (entries_begin(file) + (uint64_t)file->reserved * INDEX_ENTRY_SIZE) / PAGE * PAGE;
    uint64_t end = entries_begin(file) + to * INDEX_ENTRY_SIZE;
    int rv = env_open(env, file->path, ENV_WRITE, &handle);
    if (rv != 0)
        return rv;
    rv = env->ops->allocate(env, handle, begin, end - begin);
    env_close(env, handle);
    if (rv == 0)
        file->reserved = (uint32_t)to;
    return rv;
}

uint64_t index_file_used(const struct index_file *file, uint32_t count)
{
    return entries_begin(file) + (uint64_t)count * INDEX_ENTRY_SIZE;
}

int index_file_reserve(struct index_file *file, uint32_t count)
{
    if (file->whole) {
        /* Must be on disk before the first change: see index_file_recover. */
        store_u32(entry_at(file, 0) + MARK_WHOLE, 0);
        if (file->env->ops->sync_map(file->env, entry_at(file, 0), INDEX_ENTRY_SIZE) != 0)
            return ERROR_IO;
        file->whole = false;
    }
    uint64_t need = (uint64_t)file->count + count;
    if (need > file->entries)
        need = file->entries;
    uint64_t low = need + RESERVE_LOW < file->entries ? need + RESERVE_LOW : file->entries;
    if (file->reserved >= low || (file->reserved >= need && file->count < file->reserve_at))
        return 0;
    uint64_t want = need + RESERVE_STEP / INDEX_ENTRY_SIZE;
    if (want > file->entries)
        want = file->entries;
    int rv = reserve_entries(file, want);
    /* Asking a full disk for more with every record would be slow. */
    file->reserve_at = rv == 0 ? 0 : file->count + RESERVE_AGAIN;
    if (rv == 0 || file->reserved >= need)
        return 0;
    if (rv == -ENOSPC)
        rv = reserve_entries(file, need);
    return rv == 0 ? 0 : rv == -ENOSPC || rv == -EDQUOT ? ERROR_NO_SPACE : ERROR_IO;
}

void index_file_put(struct index_file *file, uint32_t key_hash, int64_t physical_offset, int64_t store_timestamp_ms)
{
    uint32_t number = file->count;
    assert(number < file->reserved && number < file->entries);
    if (number == 1) {
        file->begin_physical_offset = physical_offset;
        file->begin_timestamp_ms = store_timestamp_ms;
    }
    uint8_t *slot = slot_at(file, key_hash % file->slots);
    uint32_t previous = load_u32(slot);
    if (previous == 0 || previous >= number)
        previous = 0;
    int32_t seconds = index_entry_seconds(file->begin_timestamp_ms, store_timestamp_ms);

    uint8_t *entry = entry_at(file, number);
    store_u32(entry + ENTRY_HASH, key_hash);
    store_u64(entry + ENTRY_OFFSET, (uint64_t)physical_offset);
    store_u32(entry + ENTRY_SECONDS, (uint32_t)seconds);
    store_u32(entry + ENTRY_PREVIOUS, previous);
    order_stores();
    store_u32(slot, number);
    order_stores();
    if (previous == 0)
        file->slot_count++;
    file->count = number + 1;
    file->end_physical_offset = physical_offset;
    file->end_timestamp_ms = store_timestamp_ms;
    file->slots_dirty = true;
    write_header(file);
}

/* The last entry's second is what the header's times say, or the one in front of it: see restore_header(). */
static bool times_fit(const struct index_file *file)
{
    int32_t seconds = (int32_t)load_u32(entry_at(file, file->count - 1) + ENTRY_SECONDS);
    int32_t said = index_entry_seconds(file->begin_timestamp_ms, file->end_timestamp_ms);
    return seconds == said || seconds + 1ll == said;
}

/* Header fields after entries were removed: what the last one left says. */
static void restore_header(struct index_file *file, int64_t (*time_of)(void *argument, int64_t physical_offset), void *argument)
{
    if (file->count == 1) {
        /* Without a first entry the begin is what the next one sets; the service sets both if a file stands before this one. */
        file->begin_physical_offset = file->end_physical_offset = 0;
        file->begin_timestamp_ms = file->end_timestamp_ms = 0;
    } else {
        int64_t seconds = (int32_t)load_u32(entry_at(file, file->count - 1) + ENTRY_SECONDS);
        file->begin_physical_offset = choose_begin(file, file->begin_physical_offset);
        file->end_physical_offset = entry_offset(file, file->count - 1);
        int64_t begin = time_of(argument, file->begin_physical_offset);
        int64_t end = time_of(argument, file->end_physical_offset);
        if (begin <= 0 && end > 0 && index_entry_seconds(file->begin_timestamp_ms, end) != seconds)
            begin = end - seconds * 1000;
        if (begin > 0)
            file->begin_timestamp_ms = begin;
        /* The record is gone: the entry's second, rounded up, so that a search by time does not leave the file out. */
        if (end <= 0)
            end = file->begin_timestamp_ms + (seconds + 1) * 1000;
        file->end_timestamp_ms = end;
    }
    write_header(file);
}

/* Chains are last in, first out: taking the newest entry away gives its slot back to the one before. False when slots and entries do not fit together. */
static bool undo_to(struct index_file *file, int64_t physical_offset)
{
    if (file->count > file->entries)
        return false;
    /* The process may have died inside a put: the entry is whole and its slot points to it, only the header does not count it yet. */
    if (file->count < file->entries) {
        const uint8_t *entry = entry_at(file, file->count);
        if (entry_offset(file, file->count) > 0) {
            uint8_t *slot = slot_at(file, load_u32(entry + ENTRY_HASH) % file->slots);
            if (load_u32(slot) == file->count)
                store_u32(slot, load_u32(entry + ENTRY_PREVIOUS));
            memset(entry_at(file, file->count), 0, INDEX_ENTRY_SIZE);
        }
    }
    while (file->count > 1) {
        uint32_t number = file->count - 1;
        uint8_t *entry = entry_at(file, number);
        int64_t at = entry_offset(file, number);
        if (at > 0 && at < physical_offset)
            break;
        uint32_t previous = load_u32(entry + ENTRY_PREVIOUS);
        uint8_t *slot = slot_at(file, load_u32(entry + ENTRY_HASH) % file->slots);
        if (at <= 0 || load_u32(slot) != number || previous >= number)
            return false;
        store_u32(slot, previous);
        if (previous == 0 && file->slot_count > 0)
            file->slot_count--;
        file->count = number;
        order_stores();
        store_u32(file->map + HEADER_COUNT, number);
        order_stores();
        memset(entry, 0, INDEX_ENTRY_SIZE);
    }
    return true;
}

/* After a power cut pages of different age lie side by side. Entries up to the synced position are all there and in log order, what follows is
 * zero or belongs to later records: so halving finds where they end. */
static uint32_t find_count(const struct index_file *file, int64_t physical_offset, bool *damaged)
{
    uint32_t low = 0;
    uint32_t high = file->entries;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        int64_t at = entry_offset(file, middle);
        if (at > 0 && at < physical_offset)
            low = middle;
        else
            high = middle;
    }
    for (uint32_t number = low + 1; number < file->count && !*damaged; number++) {
        int64_t at = entry_offset(file, number);
        *damaged = at > 0 && at < physical_offset;
    }
    return low + 1;
}

/* Slots and links follow from the entries. */
static void rebuild_to(struct index_file *file, uint32_t count)
{
    for (uint32_t number = count; number < file->count; number++)
        memset(entry_at(file, number), 0, INDEX_ENTRY_SIZE);
    memset(file->map + INDEX_HEADER_SIZE, 0, (size_t)file->slots * INDEX_SLOT_SIZE);
    file->slot_count = 0;
    for (uint32_t number = 1; number < count; number++) {
        uint8_t *entry = entry_at(file, number);
        uint8_t *slot = slot_at(file, load_u32(entry + ENTRY_HASH) % file->slots);
        uint32_t previous = load_u32(slot);
        if (load_u32(entry + ENTRY_PREVIOUS) != previous)
            store_u32(entry + ENTRY_PREVIOUS, previous);
        store_u32(slot, number);
        if (previous == 0)
            file->slot_count++;
    }
    file->count = count;
}

int index_file_recover(struct index_file *file, int64_t physical_offset, int64_t (*time_of)(void *argument, int64_t physical_offset),
                       void *argument, bool cut, bool *damaged, int64_t *last_good, struct error *error)
{
    struct env *env = file->env;
    uint8_t *mark = entry_at(file, 0);
    uint64_t boot = env->ops->boot_id(env);
    bool whole = load_u32(mark + MARK_WHOLE) == 1;
    bool same_boot = boot != 0 && load_u64(mark + MARK_BOOT) == boot;
    uint32_t old_count = file->count;
    bool rebuilt = false;
    *damaged = false;

    /* Blocks first: a file of unknown history may be sparse where we are going to write. */
    struct env_file *handle;
    int rv = env_open(env, file->path, ENV_WRITE, &handle);
    if (rv != 0)
        return fail(error, rv, "open", file->path);
    rv = env->ops->allocate(env, handle, 0, index_file_used(file, file->count));
    env_close(env, handle);
    if (rv != 0)
        return fail(error, rv, "reserve room in", file->path);

    if ((!whole && !same_boot) || !undo_to(file, physical_offset)) {
        uint32_t count = find_count(file, physical_offset, damaged);
        *last_good = count > 1 ? entry_offset(file, count - 1) : -1;
        if (*damaged && !cut)
            return 0;
        rebuild_to(file, count);
        rebuilt = true;
        LOG_WARN("index file %s: slots built anew from %u entries", file->path, file->count - 1);
    }
    if (rebuilt || file->count != old_count || file->doubtful || (file->count > 1 && !times_fit(file)))
        restore_header(file, time_of, argument);
    file->doubtful = false;
    file->reserved = file->count;
    file->whole = false;
    /* From now on this boot writes to the file. That must be on disk before the first change, or a power cut could leave the word of an
     * earlier clean stop, or of an earlier boot, beside newer slots. */
    if (whole || !same_boot) {
        rv = rebuilt ? env->ops->sync_map(env, file->map, index_file_used(file, file->count)) : 0;
        if (rv == 0) {
            store_u64(mark + MARK_BOOT, boot);
            store_u32(mark + MARK_WHOLE, 0);
            rv = env->ops->sync_map(env, mark, INDEX_ENTRY_SIZE);
        }
        if (rv != 0)
            return fail(error, rv, "sync", file->path);
    }
    return 0;
}

void index_file_check_header(struct index_file *file, int64_t (*time_of)(void *argument, int64_t physical_offset), void *argument)
{
    if (file->count <= 1 || (!file->doubtful && times_fit(file)))
        return;
    LOG_ERROR("index file %s: its header is damaged and made anew from its entries", file->path);
    restore_header(file, time_of, argument);
    file->doubtful = false;
}

bool index_file_overlaps(const struct index_file *file, int64_t begin_ms, int64_t end_ms)
{
    return file->count > 1 && begin_ms <= file->end_timestamp_ms + CLOCK_SLACK_MS && end_ms >= file->begin_timestamp_ms - CLOCK_SLACK_MS;
}

bool index_file_next(const struct index_file *file, uint32_t key_hash, int64_t begin_ms, int64_t end_ms, uint32_t *at, uint32_t *steps,
                     int64_t *physical_offset)
{
    uint32_t number;
    if (*at == 0) {
        number = load_u32(slot_at(file, key_hash % file->slots));
        if (number >= file->count)
            number = 0;
    } else {
        uint32_t previous = load_u32(entry_at(file, *at) + ENTRY_PREVIOUS);
        number = previous < *at ? previous : 0;
    }
    while (number != 0 && *steps > 0) {
        const uint8_t *entry = entry_at(file, number);
        int64_t seconds = (int32_t)load_u32(entry + ENTRY_SECONDS);
        /* The record was stored within this second: [time, time + 999]. */
        int64_t time = file->begin_timestamp_ms + seconds * 1000;
        (*steps)--;
        if (seconds < 0)
            break;
        if (time + CLOCK_SLACK_MS < begin_ms)
            break;
        if (load_u32(entry + ENTRY_HASH) == key_hash && time <= end_ms && time + 999 >= begin_ms) {
            *physical_offset = (int64_t)load_u64(entry + ENTRY_OFFSET);
            *at = number;
            return true;
        }
        uint32_t previous = load_u32(entry + ENTRY_PREVIOUS);
        number = previous < number ? previous : 0;
    }
    *at = 0;
    return false;
}

int index_file_sync_whole(struct index_file *file)
{
    struct env *env = file->env;
    int rv = env->ops->sync_map(env, file->map, index_file_used(file, file->count));
    /* The mark says that all of the file is on disk, so it may only follow. */
    if (rv == 0) {
        store_u32(entry_at(file, 0) + MARK_WHOLE, 1);
        rv = env->ops->sync_map(env, entry_at(file, 0), INDEX_ENTRY_SIZE);
    }
    if (rv != 0)
        return ERROR_IO;
    file->whole = true;
    file->synced = file->count;
    file->slots_dirty = false;
    return 0;
}
