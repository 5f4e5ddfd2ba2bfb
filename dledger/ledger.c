/* Append, step by step: (1) room for entries and index units is made sure of, so that nothing below can run out of it; (2) the headers are walked
 * once, index units written on the way through the mapping; (3) where the run goes on in the next segment, what belongs to the old one is written
 * with its filler in one call; (4) the end moves. Failing in (1) changes nothing; failing later is final, since the file's state is then unknown. */
#include "dledger/ledger_internal.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/seeded_bug.h"

#define WALK_BACK_MAX 256u   /* two pages of units: where a unit seems good, its entry is rather what is damaged, and many of them may be */
#define TERMS_MAX (1u << 20) /* 16 MiB; an election per second for twelve days without a trim */

int ledger_fail(struct ledger *ledger, int rv, const char *what, const struct mapped_file *file, uint64_t position)
{
    if (!ledger->failed) {
        char name[21];
        ledger->failed = true;
        if (file != NULL) {
            mapped_file_name(file->start, name);
            error_set(&ledger->failure, ERROR_IO, "%s %s/data/%s at offset %llu: %s (errno %d)", what, ledger->dir, name,
                      (unsigned long long)(position - file->start), strerror(-rv), -rv);
        } else {
            error_set(&ledger->failure, ERROR_IO, "%s %s: %s (errno %d)", what, ledger->dir, strerror(-rv), -rv);
        }
    }
    return ERROR_IO;
}

void ledger_index_unit_encode(uint8_t unit[LEDGER_INDEX_UNIT], const struct ledger_entry *entry)
{
    store_u32(unit, LEDGER_ENTRY_MAGIC);
    store_u64(unit + 4, entry->position);
    store_u32(unit + 12, ledger_entry_size(entry));
    store_u64(unit + 16, entry->index);
    store_u64(unit + 24, entry->term);
}

int ledger_terms_add(struct ledger_terms *terms, uint64_t term, uint64_t index)
{
    if (terms->count > 0 && terms->rows[terms->count - 1].term == term)
        return 0;
    if (terms->count == terms->capacity) {
        size_t capacity = terms->capacity == 0 ? 64 : terms->capacity * 2;
        struct ledger_term *rows = capacity > TERMS_MAX ? NULL : realloc(terms->rows, capacity * sizeof *rows);
        if (rows == NULL)
            return ERROR_NO_MEMORY;
        terms->rows = rows;
        terms->capacity = capacity;
    }
    terms->rows[terms->count++] = (struct ledger_term){term, index};
    return 0;
}

size_t ledger_terms_until(const struct ledger_terms *terms, uint64_t index)
{
    size_t low = 0, high = terms->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (terms->rows[middle].first_index <= index)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint64_t ledger_place(const struct ledger *ledger, uint64_t end_position, uint32_t size)
{
    uint64_t left = ledger->data.file_size - end_position % ledger->data.file_size;
    return (uint64_t)size + LEDGER_BLANK_SIZE > left ? end_position + left : end_position;
}

int ledger_check_run(const struct ledger *ledger, const uint8_t *run, size_t size, uint32_t count, uint64_t first_index, uint64_t previous_term,
                     uint64_t previous_end, uint32_t previous_chain, uint64_t term_max, struct error *error)
{
    size_t at = 0;
    for (uint32_t n = 0; n < count; n++) {
        struct ledger_entry entry;
        uint64_t want = first_index + n;
        if (size - at < LEDGER_ENTRY_HEADER_SIZE || ledger_entry_decode(&entry, run + at) != 0)
            return error_set(error, ERROR_MALFORMED, "entry %llu of a run has a bad header", (unsigned long long)want);
        uint32_t entry_size = ledger_entry_size(&entry);
        if (entry_size > size - at)
            return error_set(error, ERROR_MALFORMED, "entry %llu of a run is longer than the run", (unsigned long long)want);
        if (entry.index != want)
            return error_set(error, ERROR_MALFORMED, "a run holds index %llu where %llu belongs", (unsigned long long)entry.index,
                             (unsigned long long)want);
        if (entry.term == 0 || entry.term < previous_term || entry.term > term_max)
            return error_set(error, ERROR_MALFORMED, "entry %llu of a run has term %llu, not within %llu..%llu", (unsigned long long)want,
                             (unsigned long long)entry.term, (unsigned long long)previous_term, (unsigned long long)term_max);
        if ((uint64_t)entry_size + LEDGER_BLANK_SIZE > ledger->data.file_size)
            return error_set(error, ERROR_MALFORMED, "entry %llu of a run is larger than a segment", (unsigned long long)want);
        if (entry.position != ledger_place(ledger, previous_end, entry_size))
            return error_set(error, ERROR_MALFORMED, "entry %llu of a run has position %llu, its place here is %llu", (unsigned long long)want,
                             (unsigned long long)entry.position, (unsigned long long)ledger_place(ledger, previous_end, entry_size));
        if (ledger_entry_chain(run + at, previous_chain) != entry.chain_crc)
            return error_set(error, ERROR_DAMAGED, "entry %llu of a run breaks the chain of checksums", (unsigned long long)want);
        if (!SEEDED_BUG(RUN_UNCHECKED) && !ledger_entry_body_ok(&entry, run + at + LEDGER_ENTRY_HEADER_SIZE))
            return error_set(error, ERROR_DAMAGED, "entry %llu of a run has a wrong body checksum", (unsigned long long)want);
        previous_chain = entry.chain_crc;
        previous_term = entry.term;
        previous_end = entry.position + entry_size;
        at += entry_size;
    }
    if (at != size)
        return error_set(error, ERROR_MALFORMED, "%zu bytes follow the last entry of a run", size - at);
    return 0;
}

/* Where the last entry of a run ends. One segment: at a glance; else the fillers have to be found. */
static uint64_t end_of_run(const struct ledger *ledger, const uint8_t *run, size_t size)
{
    uint64_t file_size = ledger->data.file_size;
    uint64_t position = load_u64(run + 24);
    if (position % file_size + size + LEDGER_BLANK_SIZE <= file_size)
        return position + size;
    uint64_t end = position;
    for (size_t at = 0; at < size; at += load_u32(run + at + 4))
        end = load_u64(run + at + 24) + load_u32(run + at + 4);
    return end;
}

/* One pwritev: bytes for one segment, and the filler behind them when the next entry goes to the next segment. */
static int write_part(struct ledger *ledger, uint64_t position, const uint8_t *data, size_t size, bool fill)
{
    struct mapped_file *file = mapped_file_queue_find(&ledger->data, position);
    assert(file != NULL);
    uint64_t offset = position - file->start;
    uint8_t blank[LEDGER_BLANK_SIZE];
    struct iovec iov[2];
    int count = 0;
    if (size > 1 && SEEDED_BUG_NOW(SHORT_WRITE, 10)) {
        size /= 2;
        fill = false;
    }
    if (size > 0)
        iov[count++] = (struct iovec){(void *)(uintptr_t)data, size};
    if (fill) {
        uint64_t left = ledger->data.file_size - offset - size;
        assert(left >= LEDGER_BLANK_SIZE && left <= UINT32_MAX);
        ledger_blank_encode(blank, (uint32_t)left);
        iov[count++] = (struct iovec){blank, sizeof blank};
    }
    int rv = env_writev(ledger->env, file->file, iov, count, offset);
    return rv == 0 ? 0 : ledger_fail(ledger, rv, "write to", file, position);
}

int ledger_append(struct ledger *ledger, const uint8_t *run, size_t size, uint32_t count)
{
    if (ledger->failed)
        return ERROR_IO;
    if (count == 0)
        return 0;
    assert(size >= LEDGER_ENTRY_HEADER_SIZE);
    uint64_t end = end_of_run(ledger, run, size);
    uint64_t first = (uint64_t)(ledger->last_index + 1);
    if (end > ledger->reserved_end) {
        int rv = ledger_reserve_data(ledger, end);
        if (rv != 0)
            return rv;
    }
    if ((first + count) * LEDGER_INDEX_UNIT > ledger->index_reserved_end) {
        int rv = ledger_reserve_index(ledger, (first + count) * LEDGER_INDEX_UNIT);
        if (rv != 0)
            return rv;
    }

    struct ledger_entry entry = {.term = ledger->last_term};
    uint64_t previous_end = ledger->end_position;
    uint64_t part_position = previous_end; /* where the bytes from part_at on go */
    size_t part_at = 0, at = 0;
    for (uint32_t n = 0; n < count; n++) {
        uint64_t term = entry.term;
        int rv = size - at < LEDGER_ENTRY_HEADER_SIZE ? ERROR_MALFORMED : ledger_entry_decode(&entry, run + at);
        uint32_t entry_size = ledger_entry_size(&entry);
        assert(rv == 0 && entry_size <= size - at);
        assert(entry.index == first + n && entry.term >= term);
        assert(entry.position == ledger_place(ledger, previous_end, entry_size));
        if (entry.position != previous_end) {
            rv = write_part(ledger, part_position, run + part_at, at - part_at, true);
            if (rv != 0)
                return rv;
            part_position = entry.position;
            part_at = at;
        }
        if (ledger_terms_add(&ledger->terms, entry.term, entry.index) != 0)
            return ledger_fail(ledger, -ENOMEM, "table of terms of", NULL, 0);
        ledger_index_unit_encode(ledger_index_unit(ledger, entry.index), &entry);
        previous_end = entry.position + entry_size;
        at += entry_size;
    }
    assert(at == size && previous_end == end);
    int rv = write_part(ledger, part_position, run + part_at, at - part_at, false);
    if (rv != 0)
        return rv;
    ledger->last_index = (int64_t)entry.index;
    ledger->last_term = entry.term;
    ledger->last_chain = entry.chain_crc;
    ledger->end_position = end;
    return 0;
}

int ledger_begin_at(struct ledger *ledger, uint64_t index, uint64_t position, struct error *error)
{
    assert(ledger->last_index < ledger->begin_index || ledger->last_index < 0);
    assert(position % ledger->data.file_size == 0 && !ledger->reserving && !ledger->sync_out);
    int rv = mapped_file_queue_cut(&ledger->data, 0, error);
    if (rv == 0)
        rv = mapped_file_queue_cut(&ledger->index, 0, error);
    if (rv != 0)
        return rv;
    ledger->walked = false;
    ledger->begin_index = (int64_t)index;
    ledger->last_index = (int64_t)index - 1;
    ledger->last_term = 0;
    ledger->last_chain = 0;
    ledger->terms.count = 0;
    ledger->terms_from = index;
    ledger->end_position = ledger->reserved_end = position;
    ledger->index_reserved_end = index * LEDGER_INDEX_UNIT;
    ledger->index_verified_from = (int64_t)index;
    ledger->synced_index = ledger->last_index;
    ledger->synced_position = position;
    return 0;
}

bool ledger_last_in_segment(const struct ledger *ledger, uint64_t first, uint64_t segment_end, uint64_t *last, uint64_t *end)
{
    uint64_t low = first, high = (uint64_t)ledger->last_index;
    uint64_t position, term;
    uint32_t size;
    while (low < high) {
        uint64_t middle = low + (high - low + 1) / 2;
        if (!ledger_locate(ledger, middle, &position, &size, &term))
            return false;
        if (position < segment_end)
            low = middle;
        else
            high = middle - 1;
    }
    if (!ledger_locate(ledger, low, &position, &size, &term) || position >= segment_end)
        return false;
    *last = low;
    *end = position + size;
    return true;
}

/* The order makes every state that a kill can leave a valid log, maybe with a torn last entry: the segments behind go first, from the last one;
 * then the rest of the segment of the cut is zeroed from the back, in pieces that a kill cannot split. So no valid entry is ever seen behind a
 * bad one, which recovery would have to take for damage. After a power cut some of it may be undone until the sync: then the removed entries
 * are still a valid log, or a log with a hole, which is cut after a reboot; nobody has been told of the cut before it is durable. */
int ledger_truncate(struct ledger *ledger, uint64_t first_removed)
{
    if (ledger->failed)
        return ERROR_IO;
    if ((int64_t)first_removed > ledger->last_index)
        return 0;
    assert((int64_t)first_removed >= ledger->begin_index);
    assert((int64_t)first_removed > ledger->begin_index || first_removed == 0);

    uint64_t new_end = 0, new_term = 0;
    uint32_t new_chain = 0;
    if (first_removed > 0) {
        if (!ledger_end_of(ledger, first_removed - 1, &new_end, &new_chain)) /* damaged, and to be the last one: the next start fetches it */
            return ledger_fail(ledger, -EIO, "cut of", NULL, 0);
        new_term = ledger_term_of(ledger, first_removed - 1);
    }
    struct mapped_file *file = mapped_file_queue_find(&ledger->data, new_end);
    assert(file != NULL);
    uint64_t file_end = file->start + ledger->data.file_size;
    uint64_t old_end = ledger->end_position;
    if (old_end > file_end) {
        /* The log goes on in later segments, so this one ends with a filler: behind its last entry, or at the cut itself. */
        uint64_t position, last, term;
        uint32_t size;
        bool holes = ledger->hole_count > 0 && ledger->holes[ledger->hole_count - 1].last >= first_removed;
        if (!holes && ledger_locate(ledger, first_removed, &position, &size, &term) && position >= file_end)
            old_end = new_end;
        else if (holes || !ledger_last_in_segment(ledger, first_removed, file_end, &last, &old_end))
            old_end = file_end - LEDGER_BLANK_SIZE; /* where its last entry ends is not known */
        old_end += LEDGER_BLANK_SIZE;
    }

    int rv = ledger_cancel_reservation(ledger);
    if (rv != 0)
        return rv;
    struct error error;
    if (mapped_file_queue_cut(&ledger->data, file_end, &error) != 0) {
        if (!ledger->failed) {
            ledger->failed = true;
            ledger->failure = error;
        }
        return ERROR_IO;
    }
    rv = ledger_zero_backwards(ledger, file, new_end, old_end);
    if (rv != 0)
        return ledger_fail(ledger, rv, "cut of", file, new_end);
    rv = env_sync(ledger->env, file->file);
    if (rv != 0)
        return ledger_fail(ledger, rv, "sync of", file, new_end);

    ledger->walked = false;
    ledger_cut_holes(ledger, first_removed);
    for (int64_t index = (int64_t)first_removed; index <= ledger->last_index; index++) {
        if (index >= ledger->index_verified_from)
            memset(ledger_index_unit(ledger, (uint64_t)index), 0, LEDGER_INDEX_UNIT);
    }
    ledger->last_index = (int64_t)first_removed - 1;
    ledger->last_term = new_term;
    ledger->last_chain = new_chain;
    ledger->end_position = new_end;
    if (ledger->reserved_end > file_end)
        ledger->reserved_end = file_end;
    while (ledger->terms.count > 0 && ledger->terms.rows[ledger->terms.count - 1].first_index >= first_removed)
        ledger->terms.count--;
    if (ledger->terms_from > first_removed)
        ledger->terms_from = first_removed;
    if (ledger->index_verified_from > ledger->last_index + 1)
        ledger->index_verified_from = ledger->last_index + 1;
    if (ledger->known_index > ledger->last_index)
        ledger->known_index = -1;
    if (ledger->synced_index > ledger->last_index)
        ledger->synced_index = ledger->last_index;
    if (ledger->synced_position > new_end)
        ledger->synced_position = new_end;
    if (ledger->sync_out && ledger->sync_cap_index > ledger->last_index) {
        ledger->sync_cap_index = ledger->last_index;
        ledger->sync_cap_position = new_end;
    }
    return 0;
}

/* ---- reading ---- */

/* The header at position as entry `index`; false when there is another one or none. */
static bool header_is(const struct ledger *ledger, uint64_t index, uint64_t position, struct ledger_entry *entry)
{
    const uint8_t *header = mapped_file_queue_at(&ledger->data, position, LEDGER_ENTRY_HEADER_SIZE);
    return header != NULL && ledger_entry_decode(entry, header) == 0 && entry->index == index && entry->position == position &&
           position + ledger_entry_size(entry) <= ledger->end_position;
}

/* From an entry on, whose header is `entry`, to that of index. */
static bool walk(const struct ledger *ledger, uint64_t from, uint64_t index, struct ledger_entry *entry)
{
    while (from < index) {
        uint64_t end = entry->position + ledger_entry_size(entry);
        uint64_t next_file = end - end % ledger->data.file_size + ledger->data.file_size;
        from++;
        if (!header_is(ledger, from, end, entry) && !header_is(ledger, from, next_file, entry))
            return false;
        /* Its blocks may be missing too, and a store into a hole of a full disk is a SIGBUS: the unit is left as it is. */
    }
    struct ledger *hint = (struct ledger *)(uintptr_t)ledger;
    hint->walked = true;
    hint->walked_index = index;
    hint->walked_position = entry->position;
    return true;
}

/* Index files are never synced: after a power cut a unit older than what recovery rewrote may be gone or old, and a disk may change any. The entry
 * itself decides; a lost unit is found again by walking the headers from the nearest good one of back_max before it. Where many are lost they are mostly
 * wanted one after the other: so the entry that the last walk came to is as good as a unit. */
static bool locate_checked(const struct ledger *ledger, uint64_t index, uint64_t back_max, struct ledger_entry *entry)
{
    const uint8_t *unit = ledger_index_unit(ledger, index);
    if (unit != NULL && header_is(ledger, index, load_u64(unit + 4), entry))
        return true;
    uint64_t from = index;
    uint64_t position = ledger->data.files[0]->start;
    bool found = false;
    if (ledger->walked && index == ledger->walked_index + 1 && index > (uint64_t)ledger->begin_index &&
        header_is(ledger, ledger->walked_index, ledger->walked_position, entry) && walk(ledger, ledger->walked_index, index, entry))
        return true;
    while (!found && from > (uint64_t)ledger->begin_index && index - from < back_max) {
        from--;
        unit = ledger_index_unit(ledger, from);
        found = unit != NULL && header_is(ledger, from, load_u64(unit + 4), entry);
    }
    if (!found && (from > (uint64_t)ledger->begin_index || !header_is(ledger, from, position, entry)))
        return false;
    return walk(ledger, from, index, entry);
}

enum place_known { PLACE_UNKNOWN, PLACE_OF_DAMAGED, PLACE_OF_ENTRY };

/* PLACE_OF_ENTRY: *entry is its header, which has been looked at. PLACE_OF_DAMAGED: its unit alone, which this run wrote, tells where it lies. */
static enum place_known find_place(const struct ledger *ledger, uint64_t index, struct ledger_entry *entry, const uint8_t **unit)
{
    if (index > INT64_MAX || (int64_t)index < ledger->begin_index || (int64_t)index > ledger->last_index)
        return PLACE_UNKNOWN;
    if (ledger->hole_count > 0 && ledger_hole_of(ledger, index) != NULL)
        return PLACE_UNKNOWN;
    *unit = (int64_t)index < ledger->index_verified_from ? NULL : ledger_index_unit(ledger, index);
    if (*unit != NULL && (load_u32(*unit) != LEDGER_ENTRY_MAGIC || load_u64(*unit + 16) != index))
        *unit = NULL;
    if (locate_checked(ledger, index, *unit != NULL ? WALK_BACK_MAX : UINT64_MAX, entry))
        return PLACE_OF_ENTRY;
    uint64_t position = *unit == NULL ? 0 : load_u64(*unit + 4);
    uint32_t size = *unit == NULL ? 0 : load_u32(*unit + 12);
    return size >= LEDGER_ENTRY_HEADER_SIZE && size <= LEDGER_ENTRY_SIZE_MAX && position < ledger->end_position && size <= ledger->end_position - position
               ? PLACE_OF_DAMAGED
               : PLACE_UNKNOWN;
}

bool ledger_locate(const struct ledger *ledger, uint64_t index, uint64_t *position, uint32_t *size, uint64_t *term)
{
    struct ledger_entry entry;
    const uint8_t *unit;
    switch (find_place(ledger, index, &entry, &unit)) {
    case PLACE_OF_ENTRY:
        *position = entry.position;
        *size = ledger_entry_size(&entry);
        *term = entry.term;
        return true;
    case PLACE_OF_DAMAGED:
        *position = load_u64(unit + 4);
        *size = load_u32(unit + 12);
        *term = load_u64(unit + 24);
        return true;
    default:
        return false;
    }
}

const uint8_t *ledger_entry(const struct ledger *ledger, uint64_t index, struct ledger_entry *entry)
{
    const uint8_t *unit;
    enum place_known known = find_place(ledger, index, entry, &unit);
    if (known == PLACE_OF_ENTRY)
        return mapped_file_queue_at(&ledger->data, entry->position, ledger_entry_size(entry));
    if (known == PLACE_UNKNOWN)
        return NULL;
    uint32_t size = load_u32(unit + 12);
    const uint8_t *bytes = mapped_file_queue_at(&ledger->data, load_u64(unit + 4), size);
    if (bytes == NULL || ledger_entry_decode(entry, bytes) != 0 || entry->index != index || entry->position != load_u64(unit + 4) ||
        ledger_entry_size(entry) != size)
        return NULL;
    return bytes;
}

uint64_t ledger_term_of(const struct ledger *ledger, uint64_t index)
{
    if (index > INT64_MAX || (int64_t)index < ledger->begin_index || (int64_t)index > ledger->last_index)
        return 0;
    if (ledger->hole_count > 0 && (int64_t)index >= ledger->index_verified_from && ledger_hole_of(ledger, index) != NULL)
        return 0; /* the table was made from headers */
    size_t rows = ledger_terms_until(&ledger->terms, index);
    if (rows > 0)
        return ledger->terms.rows[rows - 1].term;
    /* Older than the table, which a checkpoint bounds. */
    uint64_t position, term;
    uint32_t size;
    return ledger_locate(ledger, index, &position, &size, &term) ? term : 0;
}

bool ledger_end_of(const struct ledger *ledger, uint64_t index, uint64_t *end_position, uint32_t *chain)
{
    if (index == UINT64_MAX) {
        *end_position = 0;
        *chain = 0;
        return true;
    }
    if ((int64_t)index == ledger->last_index && ledger->last_index >= ledger->begin_index) {
        *end_position = ledger->end_position;
        *chain = ledger->last_chain;
        return true;
    }
    struct ledger_entry entry;
    if (ledger_entry(ledger, index, &entry) != NULL) {
        *end_position = entry.position + ledger_entry_size(&entry);
        *chain = entry.chain_crc;
        return true;
    }
    if ((int64_t)index != ledger->known_index || ledger->known_index < ledger->begin_index || ledger_hole_of(ledger, index) != NULL)
        return false;
    *end_position = ledger->known_end;
    *chain = ledger->known_chain;
    return true;
}

uint32_t ledger_run(const struct ledger *ledger, uint64_t first_index, uint32_t max_count, size_t max_bytes, const uint8_t **run, size_t *size)
{
    uint64_t first_position, position, term;
    uint32_t entry_size;
    if (max_count == 0 || !ledger_locate(ledger, first_index, &first_position, &entry_size, &term))
        return 0;
    uint64_t file_end = first_position - first_position % ledger->data.file_size + ledger->data.file_size;
    uint64_t left = (uint64_t)ledger->last_index - first_index;
    for (uint32_t i = 0; i < ledger->hole_count; i++) {
        if (ledger->holes[i].first > first_index && ledger->holes[i].first - 1 - first_index < left)
            left = ledger->holes[i].first - 1 - first_index;
    }
    /* Ends grow with the index, and entries of one segment are dense: the longest run is found by halving. Most often all of it fits. */
    uint64_t low = 0, high = left < max_count - 1 ? left : max_count - 1;
    uint64_t end = first_position + entry_size;
    uint64_t middle = high;
    while (low < high) {
        if (!ledger_locate(ledger, first_index + middle, &position, &entry_size, &term))
            return 0;
        if (position < file_end && position + entry_size - first_position <= max_bytes) {
            low = middle;
            end = position + entry_size;
        } else {
            high = middle - 1;
        }
        middle = low + (high - low + 1) / 2;
    }
    *run = mapped_file_queue_at(&ledger->data, first_position, (size_t)(end - first_position));
    *size = (size_t)(end - first_position);
    return *run == NULL ? 0 : (uint32_t)(low + 1);
}

void ledger_fill_checkpoint(const struct ledger *ledger, int64_t committed_index, struct checkpoint *checkpoint)
{
    ledger_fill_checkpoint_of_copy(ledger, committed_index < ledger->synced_index ? committed_index : ledger->synced_index, checkpoint);
}

void ledger_fill_checkpoint_of_copy(const struct ledger *ledger, int64_t committed_index, struct checkpoint *checkpoint)
{
    const struct ledger_hole *hole = committed_index < 0 ? NULL : ledger_hole_of(ledger, (uint64_t)committed_index);
    if (hole != NULL)
        committed_index = (int64_t)hole->doubt - 1;
    /* The next start must not take for known what the entries alone tell. */
    if (committed_index < (int64_t)ledger->terms_from)
        committed_index = -1;
    uint64_t committed_end = 0;
    uint32_t committed_chain = 0;
    if (committed_index >= 0 && !ledger_end_of(ledger, (uint64_t)committed_index, &committed_end, &committed_chain))
        committed_index = -1; /* damaged, and not known yet: the next start looks at everything */
    if (committed_index < ledger->begin_index)
        committed_index = -1;
    checkpoint->committed_index = committed_index;
    checkpoint->committed_term = 0;
    checkpoint->committed_end_position = 0;
    checkpoint->committed_chain = 0;
    checkpoint->term_count = 0;
    checkpoint->begin_index = ledger->begin_index;
    checkpoint->begin_position = mapped_file_queue_begin(&ledger->data);
    if (committed_index < 0)
        return;
    checkpoint->committed_term = ledger_term_of(ledger, (uint64_t)committed_index);
    checkpoint->committed_end_position = committed_end;
    checkpoint->committed_chain = committed_chain;
    size_t end = ledger_terms_until(&ledger->terms, (uint64_t)committed_index);
    size_t begin = end > CHECKPOINT_TERMS_MAX ? end - CHECKPOINT_TERMS_MAX : 0;
    /* Where a term begins behind damage is not known, unless a checkpoint told: the next start looks at the entries. */
    for (size_t i = begin; i < end; i++) {
        uint64_t first = ledger->terms.rows[i].first_index;
        bool told = first >= ledger->terms_from && (int64_t)first < ledger->index_verified_from;
        bool before = i + 1 < end && ledger->terms.rows[i + 1].first_index <= ledger->terms_from;
        if (before || (!told && first > (uint64_t)ledger->begin_index && first >= ledger->terms_from && ledger_hole_of(ledger, first - 1) != NULL))
            begin = i + 1;
    }
    if (begin == end)
        checkpoint->terms[checkpoint->term_count++] = (struct checkpoint_term){checkpoint->committed_term, (uint64_t)committed_index};
    for (size_t i = begin; i < end; i++) {
        uint64_t first = ledger->terms.rows[i].first_index;
        checkpoint->terms[checkpoint->term_count++] =
            (struct checkpoint_term){ledger->terms.rows[i].term, first < ledger->terms_from ? ledger->terms_from : first};
    }
}

int ledger_trim(struct ledger *ledger, uint64_t position, struct error *error)
{
    if (ledger->failed)
        return error_set(error, ERROR_IO, "%s", ledger->failure.message);
    if (ledger->last_index < ledger->begin_index)
        return 0;
    /* The segment of the newest entry stays, even when one behind it has been made already: its header says where the log begins. */
    uint64_t last_position, term;
    uint32_t size;
    if (!ledger_locate(ledger, (uint64_t)ledger->last_index, &last_position, &size, &term))
        return error_set(error, ERROR_DAMAGED, "%s: the newest entry cannot be found", ledger->dir);
    if (position > last_position)
        position = last_position;
    /* The first header that is left has to tell its index. A damaged one is passed over where what is behind it may go as well. */
    struct ledger_entry first;
    uint64_t begin = position - position % ledger->data.file_size;
    if (begin < mapped_file_queue_begin(&ledger->data))
        begin = mapped_file_queue_begin(&ledger->data);
    uint64_t last_begin = ledger->trim_position < last_position ? ledger->trim_position : begin;
    for (;; begin += ledger->data.file_size) {
        const uint8_t *header = mapped_file_queue_at(&ledger->data, begin, LEDGER_ENTRY_HEADER_SIZE);
        if (header != NULL && ledger_entry_decode(&first, header) == 0 && first.position == begin && (int64_t)first.index >= ledger->begin_index &&
            (int64_t)first.index <= ledger->last_index)
            break;
        if (begin + ledger->data.file_size > last_begin)
            return error_set(error, ERROR_DAMAGED, "%s/data/%020llu: the first header is damaged", ledger->dir, (unsigned long long)begin);
    }
    int rv = mapped_file_queue_trim(&ledger->data, begin, error);
    if (mapped_file_queue_begin(&ledger->data) != begin) { /* a name could not be removed */
        begin = mapped_file_queue_begin(&ledger->data);
        const uint8_t *header = mapped_file_queue_at(&ledger->data, begin, LEDGER_ENTRY_HEADER_SIZE);
        if (ledger_entry_decode(&first, header) != 0 || first.position != begin)
            return rv;
    }
    ledger->begin_index = (int64_t)first.index;
    ledger_trim_holes(ledger, begin);
    size_t gone = 0;
    while (gone + 1 < ledger->terms.count && ledger->terms.rows[gone + 1].first_index <= first.index)
        gone++;
    if (gone > 0) {
        ledger->terms.count -= gone;
        memmove(ledger->terms.rows, ledger->terms.rows + gone, ledger->terms.count * sizeof ledger->terms.rows[0]);
    }
    if (ledger->terms.count > 0 && ledger->terms.rows[0].first_index < first.index)
        ledger->terms.rows[0].first_index = first.index;
    if (rv != 0)
        return rv;
    return mapped_file_queue_trim(&ledger->index, first.index * LEDGER_INDEX_UNIT, error);
}

void ledger_close(struct ledger *ledger)
{
    assert(!ledger->reserving);
    for (int i = 0; i < ledger->sync_count; i++)
        mapped_file_unpin(ledger->sync_files[i]);
    mapped_file_queue_close(&ledger->data);
    mapped_file_queue_close(&ledger->index);
    pthread_mutex_destroy(&ledger->reserve_lock);
    free(ledger->terms.rows);
    free(ledger->dir);
    memset(ledger, 0, sizeof *ledger);
}
