/* Opening: what is on the disk is verified, and where it ends is decided, before anything is changed.
 *
 *   1. The checkpoint names a committed entry. If the log holds just that one, everything up to it was verified before; else start at the first.
 *   2. Walk: header, place, term, chain, body of each entry, until one is not good. Zeros are the normal end.
 *   3. Look behind the stop: a valid entry there, where no process can have written one without the one before, tells damage from a torn write.
 *   4. Decide (design 14). Damage: nothing on disk is touched. Else zero what is behind the end, and only then
 *   5. rewrite index units, take the terms, sync, reserve a first piece of room.
 */
#include "dledger/ledger_internal.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/format_version.h"
#include "store/log_sink.h"
#include "store/seeded_bug.h"

/* How far behind a stop, and behind each valid entry found there, a further one is looked for: several times the largest entry, and not all that may
 * be reserved, since reading reserved room fills the page cache with zeros. */
#define LOOK_BEHIND (LEDGER_RESERVE_STEP + (uint64_t)LEDGER_ENTRY_SIZE_MAX)
/* A process writes from front to back, so what it leaves behind the last whole entry is a part of one entry, or a filler. */
#define TORN_MAX ((uint64_t)LEDGER_ENTRY_SIZE_MAX + LEDGER_BLANK_SIZE)
#define SWEEP_PIECE (1u << 20)

struct walk {
    int64_t index; /* of the last valid entry */
    uint64_t term;
    uint32_t chain;
    bool chain_known; /* false only before the first entry of a log whose beginning was removed */
    uint64_t end;     /* behind the last valid entry */
    uint64_t stop;    /* where the next one should stand */
    uint64_t look_from; /* first place where another entry may begin */
    const char *why;  /* it stopped */
    uint32_t later;   /* there is an entry of this later version at the stop; 0 = none */
    bool nothing;     /* there is nothing at the stop: zeros, or no segment */
    uint64_t count;
    int64_t claim;
};

static int damaged(const struct ledger *ledger, uint64_t position, bool repairable, struct error *error, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

static int damaged(const struct ledger *ledger, uint64_t position, bool repairable, struct error *error, const char *format, ...)
{
    char why[240];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    uint64_t offset = position % ledger->data.file_size;
    return error_set(error, ERROR_DAMAGED, "%s/data/%020llu at offset %llu: %s. Nothing was changed: move %s away and %s", ledger->dir,
                     (unsigned long long)(position - offset), (unsigned long long)offset, why, ledger->dir,
                     repairable ? "let the node refill from its peers" : "let the node refill from its peers, or restore a backup when there are none");
}

/* An entry whose header is in its place and in the chain, and yet none of ours: a later version wrote it. It is neither torn nor damaged, and must not be
 * cut. 0: no such entry. */
static uint32_t later_entry(const struct walk *walk, const uint8_t *header)
{
    uint8_t copy[LEDGER_ENTRY_HEADER_SIZE];
    struct ledger_entry entry;
    memcpy(copy, header, sizeof copy);
    store_u32(copy, LEDGER_ENTRY_MAGIC);
    copy[35] = LEDGER_ENTRY_MESSAGE; /* the kind: lowest byte of channel */
    bool later = load_u32(header) > LEDGER_ENTRY_MAGIC || header[35] >= LEDGER_ENTRY_KINDS;
    if (!later || !walk->chain_known || ledger_entry_decode(&entry, copy) != 0 || (int64_t)entry.index != walk->index + 1 ||
        entry.position != walk->stop || ledger_entry_chain(header, walk->chain) != entry.chain_crc)
        return 0;
    return load_u32(header) > LEDGER_ENTRY_MAGIC ? load_u32(header) : LEDGER_ENTRY_MAGIC + 1;
}

static void note_claim(int64_t *claim, const struct ledger_entry *entry)
{
    if (entry->uncommitted == LEDGER_UNCOMMITTED_MAX || entry->uncommitted > entry->index)
        return;
    int64_t committed = (int64_t)(entry->index - entry->uncommitted);
    if (committed > *claim)
        *claim = committed;
}

/* Moves over one valid entry; false: walk->stop, why and look_from tell where it ended. */
static bool walk_entry(const struct ledger *ledger, struct walk *walk, struct ledger_entry *entry)
{
    uint64_t position = walk->end;
    struct mapped_file *file = mapped_file_queue_find(&ledger->data, position);
    walk->stop = walk->look_from = position;
    walk->why = "the log ends here";
    walk->nothing = true;
    if (file == NULL)
        return false;
    const uint8_t *bytes = file->map + (position - file->start);
    uint64_t left = file->start + ledger->data.file_size - position;
    assert(left >= LEDGER_BLANK_SIZE); /* the check of each size sees to it */
    if (ledger_is_blank(bytes)) {
        if (load_u32(bytes + 4) != left || left == ledger->data.file_size) {
            walk->why = "a filler has a wrong length";
            walk->nothing = false;
            walk->look_from++;
            return false;
        }
        position += left;
        file = mapped_file_queue_find(&ledger->data, position);
        walk->stop = walk->look_from = position;
        if (file == NULL)
            return false;
        bytes = file->map;
        left = ledger->data.file_size;
    }
    if (left < LEDGER_ENTRY_HEADER_SIZE + LEDGER_BLANK_SIZE || ledger_entry_decode(entry, bytes) != 0) {
        size_t look = left < LEDGER_ENTRY_HEADER_SIZE ? (size_t)left : LEDGER_ENTRY_HEADER_SIZE;
        if (memcmp(bytes, ledger_zeros, look) != 0) {
            walk->later = look == LEDGER_ENTRY_HEADER_SIZE ? later_entry(walk, bytes) : 0;
            walk->why = "a header is not valid";
            walk->nothing = false;
            walk->look_from++;
        }
        return false;
    }
    walk->nothing = false;
    walk->look_from++; /* a bad entry is not its own witness */
    uint32_t size = ledger_entry_size(entry);
    if ((int64_t)entry->index != walk->index + 1)
        walk->why = "a header has the wrong index";
    else if (entry->position != position || position != ledger_place(ledger, walk->end, size) || (uint64_t)size + LEDGER_BLANK_SIZE > left)
        walk->why = "an entry is not where it belongs";
    else if (entry->term < walk->term || entry->term == 0)
        walk->why = "the term goes backwards";
    else if (walk->chain_known && ledger_entry_chain(bytes, walk->chain) != entry->chain_crc)
        walk->why = "the chain of checksums breaks";
    else if (!SEEDED_BUG(TORN_TAIL_TRUSTED) && !ledger_entry_body_ok(entry, bytes + LEDGER_ENTRY_HEADER_SIZE)) {
        walk->why = "the checksum of a body is wrong";
        /* Its header is sound: whatever its body looks like, the next entry begins behind it. */
        if (walk->chain_known)
            walk->look_from = position + size;
    } else {
        walk->index = (int64_t)entry->index;
        walk->term = entry->term;
        walk->chain = entry->chain_crc;
        walk->chain_known = true;
        walk->end = position + size;
        walk->count++;
        note_claim(&walk->claim, entry);
        return true;
    }
    return false;
}

static bool valid_at(const struct ledger *ledger, const struct mapped_file *file, uint64_t offset, int64_t index_min, struct ledger_entry *entry)
{
    const uint8_t *bytes = file->map + offset;
    uint64_t left = ledger->data.file_size - offset;
    return left >= LEDGER_ENTRY_HEADER_SIZE + LEDGER_BLANK_SIZE && load_u64(bytes + 24) == file->start + offset &&
           ledger_entry_decode(entry, bytes) == 0 && (int64_t)entry->index >= index_min && entry->term > 0 &&
           (uint64_t)ledger_entry_size(entry) + LEDGER_BLANK_SIZE <= left && ledger_entry_body_ok(entry, bytes + LEDGER_ENTRY_HEADER_SIZE);
}

/* A damaged log is looked at as far as it went, however much of it is gone. */
static bool may_follow(const struct ledger *ledger, const struct walk *walk, const struct ledger_entry *entry)
{
    uint64_t missing = entry->index - (uint64_t)(walk->index + 1);
    if (entry->term < walk->term || entry->position < walk->end)
        return false;
    if (missing == 0)
        return ledger_place(ledger, walk->end, ledger_entry_size(entry)) == entry->position;
    return missing <= (entry->position - walk->end) / LEDGER_ENTRY_HEADER_SIZE;
}

/* The nearest valid entry behind a stop, in a log that went to look_to at the least; any: also one that cannot follow what is before the stop. */
static bool next_valid(const struct ledger *ledger, const struct walk *walk, uint64_t look_to, bool any, struct ledger_entry *entry)
{
    if (look_to < walk->look_from + LOOK_BEHIND)
        look_to = walk->look_from + LOOK_BEHIND;
    for (size_t i = 0; i < ledger->data.count; i++) {
        const struct mapped_file *file = ledger->data.files[i];
        uint64_t file_end = file->start + ledger->data.file_size;
        if (file_end <= walk->look_from)
            continue;
        uint64_t at = file->start > walk->look_from ? 0 : walk->look_from - file->start;
        uint64_t to = look_to >= file_end ? ledger->data.file_size : look_to > file->start ? look_to - file->start : 1;
        if (to > ledger->data.file_size - LEDGER_ENTRY_HEADER_SIZE)
            to = ledger->data.file_size - LEDGER_ENTRY_HEADER_SIZE;
        while (at < to) {
            const uint8_t *one = memchr(file->map + at + 3, LEDGER_ENTRY_MAGIC, (size_t)(to - at));
            if (one == NULL)
                break;
            at = (uint64_t)(one - file->map) - 3;
            if (load_u32(file->map + at) == LEDGER_ENTRY_MAGIC && valid_at(ledger, file, at, walk->index + 1, entry) &&
                (any || may_follow(ledger, walk, entry)))
                return true;
            at++;
        }
    }
    return false;
}

/* Passes over damage to the next valid entry. Nothing but a filler may have to be written for it. */
static int pass_damage(struct ledger *ledger, struct walk *walk, int64_t walk_from, const struct ledger_entry *next, struct error *error)
{
    if (next->index == (uint64_t)(walk->index + 1)) {
        /* Nothing but the filler between two segments is damaged, and what it says is known. */
        struct mapped_file *file = mapped_file_queue_find(&ledger->data, walk->end);
        uint8_t blank[LEDGER_BLANK_SIZE];
        if (file == NULL || next->position == walk->end)
            return error_set(error, ERROR_DAMAGED, "%s: entry %llu is damaged", ledger->dir, (unsigned long long)next->index);
        ledger_blank_encode(blank, (uint32_t)(file->start + ledger->data.file_size - walk->end));
        int rv = env_write(ledger->env, file->file, blank, sizeof blank, walk->end - file->start);
        if (rv == 0)
            rv = env_sync(ledger->env, file->file);
        if (rv != 0) {
            ledger_fail(ledger, rv, "repair of", file, walk->end);
            return error_set(error, ERROR_IO, "%s", ledger->failure.message);
        }
        return 0;
    }
    ledger_add_hole(ledger, (uint64_t)(walk->index + 1), next->index - 1, walk->end, next->position);
    /* An old version of some blocks holds entries that were cut since, as whole as others: where it ends looks like damage. */
    ledger_doubt_before(ledger, (uint64_t)(walk->index + 1), (uint64_t)walk_from);
    walk->index = (int64_t)next->index - 1;
    walk->end = next->position;
    walk->chain_known = false;
    return 0;
}

/* Is there a valid entry behind a stop? Looks at every byte as far as a process can have written, and at the beginning of every later segment.
 * *claim: the newest commit claim of those found. */
static bool valid_behind(const struct ledger *ledger, const struct walk *walk, uint64_t *found_at, int64_t *claim)
{
    bool found = false;
    uint64_t look_to = walk->look_from + LOOK_BEHIND;
    struct ledger_entry entry;
    for (size_t i = 0; i < ledger->data.count; i++) {
        const struct mapped_file *file = ledger->data.files[i];
        uint64_t file_end = file->start + ledger->data.file_size;
        if (file_end <= walk->look_from)
            continue;
        uint64_t at = file->start > walk->look_from ? 0 : walk->look_from - file->start;
        /* A header begins with 00 00 00 01: its fourth byte is what to look for. */
        for (;;) {
            uint64_t to = look_to >= file_end ? ledger->data.file_size : look_to > file->start ? look_to - file->start : 1;
            if (to > ledger->data.file_size - LEDGER_ENTRY_HEADER_SIZE)
                to = ledger->data.file_size - LEDGER_ENTRY_HEADER_SIZE;
            if (at >= to)
                break;
            const uint8_t *one = memchr(file->map + at + 3, LEDGER_ENTRY_MAGIC, (size_t)(to - at));
            if (one == NULL)
                break;
            at = (uint64_t)(one - file->map) - 3;
            if (load_u32(file->map + at) == LEDGER_ENTRY_MAGIC && valid_at(ledger, file, at, walk->index + 1, &entry)) {
                if (!found)
                    *found_at = entry.position;
                found = true;
                note_claim(claim, &entry);
                at += ledger_entry_size(&entry);
                look_to = file->start + at + LOOK_BEHIND;
            } else {
                at++;
            }
        }
    }
    return found;
}

/* ---- where to start ---- */

/* The entry that ends at end_position, looked for backwards: its index unit may be lost. */
static bool find_backwards(const struct ledger *ledger, const struct checkpoint *checkpoint, struct ledger_entry *entry)
{
    uint64_t end = checkpoint->committed_end_position;
    uint64_t start = (end - 1) - (end - 1) % ledger->data.file_size;
    struct mapped_file *file = mapped_file_queue_find(&ledger->data, start);
    if (file == NULL || end - start < LEDGER_ENTRY_HEADER_SIZE)
        return false;
    uint64_t lowest = end - start > LEDGER_ENTRY_SIZE_MAX ? end - start - LEDGER_ENTRY_SIZE_MAX : 0;
    for (uint64_t at = end - start - LEDGER_ENTRY_HEADER_SIZE;; at--) {
        const uint8_t *bytes = file->map + at;
        if (load_u32(bytes) == LEDGER_ENTRY_MAGIC && load_u64(bytes + 24) == start + at && ledger_entry_decode(entry, bytes) == 0 &&
            entry->index == (uint64_t)checkpoint->committed_index && start + at + ledger_entry_size(entry) == end)
            return true;
        if (at == lowest)
            return false;
    }
}

static bool entry_by_unit(const struct ledger *ledger, uint64_t index, struct ledger_entry *entry)
{
    const uint8_t *unit = ledger_index_unit(ledger, index);
    if (unit == NULL)
        return false;
    uint64_t position = load_u64(unit + 4);
    const uint8_t *bytes = mapped_file_queue_at(&ledger->data, position, LEDGER_ENTRY_HEADER_SIZE);
    return bytes != NULL && ledger_entry_decode(entry, bytes) == 0 && entry->index == index && entry->position == position;
}

static bool checkpoint_terms_good(const struct checkpoint *checkpoint)
{
    if (checkpoint->term_count == 0 || checkpoint->term_count > CHECKPOINT_TERMS_MAX)
        return false;
    for (uint32_t i = 1; i < checkpoint->term_count; i++) {
        if (checkpoint->terms[i].term <= checkpoint->terms[i - 1].term || checkpoint->terms[i].first_index <= checkpoint->terms[i - 1].first_index)
            return false;
    }
    const struct checkpoint_term *last = &checkpoint->terms[checkpoint->term_count - 1];
    return last->term == checkpoint->committed_term && last->first_index <= (uint64_t)checkpoint->committed_index;
}

/* Does the log hold the checkpoint's committed entry, and do index files lead to what is before it? Then the walk may begin behind it. */
static bool checkpoint_matches(const struct ledger *ledger, const struct checkpoint *checkpoint)
{
    uint64_t index = (uint64_t)checkpoint->committed_index;
    uint64_t end = checkpoint->committed_end_position;
    if (!checkpoint->present || checkpoint->committed_index < ledger->begin_index || index >= UINT64_MAX / LEDGER_INDEX_UNIT - 1 ||
        !checkpoint_terms_good(checkpoint) || end == 0)
        return false;
    if (ledger->index.count == 0 || mapped_file_queue_begin(&ledger->index) > (uint64_t)ledger->begin_index * LEDGER_INDEX_UNIT ||
        mapped_file_queue_end(&ledger->index) < (index + 1) * LEDGER_INDEX_UNIT)
        return false;
    struct ledger_entry entry;
    if (!entry_by_unit(ledger, index, &entry) && !find_backwards(ledger, checkpoint, &entry))
        return false;
    uint32_t size = ledger_entry_size(&entry);
    const uint8_t *bytes = mapped_file_queue_at(&ledger->data, entry.position, size);
    if (bytes == NULL || entry.term != checkpoint->committed_term || entry.position + size != end || entry.chain_crc != checkpoint->committed_chain ||
        !ledger_entry_body_ok(&entry, bytes + LEDGER_ENTRY_HEADER_SIZE))
        return false;
    /* Its header is covered by the chain, for which the entry before it is needed: not at hand when that one's unit is lost. */
    struct ledger_entry previous;
    if (index == 0)
        return ledger_entry_chain(bytes, 0) == entry.chain_crc;
    if ((int64_t)index > ledger->begin_index && entry_by_unit(ledger, index - 1, &previous))
        return ledger_entry_chain(bytes, previous.chain_crc) == entry.chain_crc;
    return true;
}

/* ---- a log whose beginning was deleted ---- */

/* What is at `position` as the first entry of such a log: with nothing before it no chain proves its header. */
static bool decode_first(const struct ledger *ledger, uint64_t position, struct ledger_entry *first)
{
    const uint8_t *bytes = mapped_file_queue_at(&ledger->data, position, LEDGER_ENTRY_HEADER_SIZE);
    return bytes != NULL && ledger_entry_decode(first, bytes) == 0 && first->position == position && first->index > 0 && first->index < UINT64_MAX / LEDGER_INDEX_UNIT &&
           first->term > 0 && (uint64_t)ledger_entry_size(first) + LEDGER_BLANK_SIZE <= ledger->data.file_size;
}

/* What stands behind the first entry, if its chain continues that one's; its index tells the other. */
static bool find_second(const struct ledger *ledger, const struct ledger_entry *first, struct ledger_entry *second)
{
    uint64_t end = first->position + ledger_entry_size(first);
    const uint8_t *bytes = mapped_file_queue_at(&ledger->data, end, LEDGER_ENTRY_HEADER_SIZE);
    if (bytes == NULL || ledger_is_blank(bytes))
        bytes = mapped_file_queue_at(&ledger->data, first->position + ledger->data.file_size, LEDGER_ENTRY_HEADER_SIZE);
    return bytes != NULL && ledger_entry_decode(second, bytes) == 0 && second->position == ledger_place(ledger, end, ledger_entry_size(second)) &&
           ledger_entry_chain(bytes, first->chain_crc) == second->chain_crc;
}

static bool checkpoint_names_first(const struct checkpoint *checkpoint, uint64_t position)
{
    return checkpoint->present && checkpoint->begin_position == position && checkpoint->begin_index > 0;
}

/* Is the first header what was written? Who bears witness: the checkpoint or its index unit for its index, and the next entry for that and for its chain. */
static bool first_is_proved(const struct ledger *ledger, const struct checkpoint *checkpoint, const struct ledger_entry *first)
{
    struct ledger_entry by_unit, second;
    if (find_second(ledger, first, &second))
        return second.index == first->index + 1 && second.term >= first->term;
    if (entry_by_unit(ledger, first->index, &by_unit) && by_unit.position == first->position)
        return true;
    return checkpoint_names_first(checkpoint, first->position) && checkpoint->begin_index == (int64_t)first->index;
}

/* The index of the entry at `position` as its unit has it, 0 when none has. */
static uint64_t index_by_units(const struct ledger *ledger, uint64_t position)
{
    if (ledger->index.count == 0)
        return 0;
    uint64_t end = mapped_file_queue_end(&ledger->index) / LEDGER_INDEX_UNIT;
    for (uint64_t index = mapped_file_queue_begin(&ledger->index) / LEDGER_INDEX_UNIT; index < end; index++) {
        const uint8_t *unit = ledger_index_unit(ledger, index);
        if (unit != NULL && load_u32(unit) == LEDGER_ENTRY_MAGIC && load_u64(unit + 4) == position && load_u64(unit + 16) == index)
            return index;
    }
    return 0;
}

/* May the first entry have that index, given what is behind it? */
static bool index_fits(const struct ledger *ledger, uint64_t position, uint64_t index)
{
    struct walk walk = {.index = -1, .end = position, .look_from = position + 1};
    struct ledger_entry next;
    if (index == 0 || index >= INT64_MAX / LEDGER_INDEX_UNIT)
        return false;
    if (!next_valid(ledger, &walk, 0, true, &next))
        return true;
    walk.index = (int64_t)index - 1;
    return may_follow(ledger, &walk, &next);
}

/* Where that header is damaged, but segments behind it had been let go too when the machine went down, the first of those that begins as it should is the
 * log's beginning, if a metadata snapshot reaches it: the checkpoint says what no start needs any more. True: they are removed. */
static bool begin_later(struct ledger *ledger, const struct checkpoint *checkpoint, uint64_t start, struct ledger_entry *first, struct error *error)
{
    if (!checkpoint->present)
        return false;
    for (uint64_t at = start + ledger->data.file_size; at <= checkpoint->begin_position; at += ledger->data.file_size) {
        if (at >= checkpoint->committed_end_position || !decode_first(ledger, at, first) || !first_is_proved(ledger, checkpoint, first) ||
            (int64_t)first->index > checkpoint->snapshot_index + 1)
            continue;
        LOG_WARN("%s/data/%020llu: the first header is damaged, and what is before position %llu was let go: it is removed", ledger->dir,
                 (unsigned long long)start, (unsigned long long)at);
        return mapped_file_queue_trim(&ledger->data, at, error) == 0;
    }
    return false;
}

/* Where the log begins. *whole: its first header is what was written, as far as can be known; else it is damaged, and only its index is known. */
static int find_begin(struct ledger *ledger, const struct checkpoint *checkpoint, bool repairable, bool *whole, struct error *error)
{
    uint64_t start = mapped_file_queue_begin(&ledger->data), index;
    struct ledger_entry first, second;

    *whole = true;
    if (start == 0)
        return 0;
    bool decoded = decode_first(ledger, start, &first);
    if (decoded && first_is_proved(ledger, checkpoint, &first)) {
        ledger->begin_index = (int64_t)first.index;
        return 0;
    }
    error->code = 0;
    if (begin_later(ledger, checkpoint, start, &first, error)) {
        ledger->begin_index = (int64_t)first.index;
        return 0;
    }
    if (error->code != 0)
        return error->code;
    index = checkpoint_names_first(checkpoint, start) ? (uint64_t)checkpoint->begin_index : 0;
    if (decoded && find_second(ledger, &first, &second))
        index = second.index - 1;
    if (!index_fits(ledger, start, index))
        index = index_by_units(ledger, start);
    if (index_fits(ledger, start, index)) {
        *whole = false;
        ledger->begin_index = (int64_t)index;
        return 0;
    }
    if (decoded && index_fits(ledger, start, first.index)) { /* nobody says otherwise */
        ledger->begin_index = (int64_t)first.index;
        return 0;
    }
    return damaged(ledger, start, repairable, error, "the log begins here, its header is not valid, and neither the checkpoint nor the index tells which entry it was");
}

/* ---- changing the disk ---- */

/* Zeroes what is not zero in [from, to) of a segment, page by page from the back, for the reason given at ledger_truncate(). */
static int sweep(struct ledger *ledger, struct mapped_file *file, uint64_t from, uint64_t to, uint64_t *bytes_cut)
{
    uint8_t *piece = malloc(SWEEP_PIECE);
    if (piece == NULL)
        return -ENOMEM;
    bool written = false;
    int rv = 0;
    uint64_t low = from - file->start;
    uint64_t high = to - file->start;
    while (high > low && rv == 0) {
        uint64_t begin = (high - 1) / SWEEP_PIECE * SWEEP_PIECE;
        if (begin < low)
            begin = low;
        ssize_t n = env_read(ledger->env, file->file, piece, (size_t)(high - begin), begin);
        if (n != (ssize_t)(high - begin)) {
            rv = n < 0 ? (int)n : -EIO;
            break;
        }
        while (high > begin && rv == 0) {
            uint64_t page = (high - 1) / LEDGER_PAGE * LEDGER_PAGE;
            if (page < begin)
                page = begin;
            if (memcmp(piece + (page - begin), ledger_zeros, (size_t)(high - page)) != 0) {
                if (*bytes_cut == 0)
                    *bytes_cut = high - low;
                rv = env_write(ledger->env, file->file, ledger_zeros, (size_t)(high - page), page);
                written = true;
            }
            high = page;
        }
    }
    free(piece);
    if (rv == 0 && written)
        rv = env_sync(ledger->env, file->file);
    return rv;
}

/* May a killed process have left what stands at the stop? It writes, and a cut zeroes, whole pages: so the end of the entry is missing from a page
 * boundary on. Anything else was whole once, and may have been acknowledged. */
static bool may_be_torn(const struct ledger *ledger, const struct walk *walk)
{
    const struct mapped_file *file = mapped_file_queue_find(&ledger->data, walk->stop);
    if (walk->nothing || file == NULL)
        return true;
    uint64_t offset = walk->stop - file->start, left = ledger->data.file_size - offset;
    uint64_t size = LEDGER_ENTRY_HEADER_SIZE;
    struct ledger_entry entry;
    if (left >= LEDGER_ENTRY_HEADER_SIZE && ledger_entry_decode(&entry, file->map + offset) == 0)
        size = ledger_entry_size(&entry);
    if (size > left)
        size = left;
    uint64_t last_page = (offset + size - 1) / LEDGER_PAGE * LEDGER_PAGE;
    return last_page > offset && memcmp(file->map + last_page, ledger_zeros, (size_t)(offset + size - last_page)) == 0;
}

static bool segment_is_empty(const struct ledger *ledger, const struct mapped_file *file)
{
    uint64_t look = ledger->data.file_size < LEDGER_PAGE ? ledger->data.file_size : LEDGER_PAGE;
    return memcmp(file->map, ledger_zeros, (size_t)look) == 0;
}

/* Makes everything behind the end zero. After a reboot the whole segment is looked at, which reads up to its size in holes: what a power cut let
 * through may lie anywhere, and a mark of a clean stop may be older than the process that was running then. */
static int clear_tail(struct ledger *ledger, const struct walk *walk, bool same_boot, struct ledger_recovery *recovery, struct error *error)
{
    struct mapped_file *file = mapped_file_queue_find(&ledger->data, walk->end);
    if (file == NULL)
        return 0;
    uint64_t file_end = file->start + ledger->data.file_size;
    /* Later segments: made ahead and empty, unless something was torn there. After a power cut any part of them may have been written. */
    bool drop = !same_boot || recovery->lost;
    for (size_t i = 0; i < ledger->data.count && !drop; i++)
        drop = ledger->data.files[i]->start >= file_end && !segment_is_empty(ledger, ledger->data.files[i]);
    if (drop) {
        int code = mapped_file_queue_cut(&ledger->data, file_end, error);
        if (code != 0)
            return code;
        if (walk->stop >= file_end && !walk->nothing)
            recovery->cut = true;
    }
    uint64_t to = file_end;
    if (same_boot && to - walk->end > TORN_MAX)
        to = walk->end + TORN_MAX;
    if (recovery->lost)
        to = file_end;
    int rv = sweep(ledger, file, walk->end, to, &recovery->bytes_cut);
    if (rv != 0) {
        ledger_fail(ledger, rv, "cut of", file, walk->end);
        return error_set(error, rv == -ENOMEM ? ERROR_NO_MEMORY : ERROR_IO, "%s", ledger->failure.message);
    }
    /* A filler alone, without the entry that made it necessary, is not worth a word. */
    if (recovery->bytes_cut > LEDGER_BLANK_SIZE)
        recovery->cut = true;
    return 0;
}

static int unlink_index_file(void *argument, const char *name, bool is_dir)
{
    struct ledger *ledger = argument;
    char path[PATH_MAX];
    if (is_dir || strlen(name) < 20)
        return 0;
    int n = snprintf(path, sizeof path, "%s/index/%s", ledger->dir, name);
    if (n < 0 || n >= (int)sizeof path)
        return -ENAMETOOLONG;
    return ledger->env->ops->unlink(ledger->env, path);
}

/* Index files that cannot be used (wrong size, a gap, not from the beginning) go: all that is in them is in the entries. */
static int reset_index(struct ledger *ledger, uint64_t index_file_size, bool opened, struct error *error)
{
    char dir[PATH_MAX];
    if (opened)
        return mapped_file_queue_cut(&ledger->index, 0, error);
    int n = snprintf(dir, sizeof dir, "%s/index", ledger->dir);
    if (n < 0 || n >= (int)sizeof dir)
        return error_set(error, ERROR_INVALID, "%s: the path is too long", ledger->dir);
    int rv = ledger->env->ops->list(ledger->env, dir, unlink_index_file, ledger);
    if (rv != 0 && rv != -ENOENT)
        return error_set(error, ERROR_IO, "clear %s: %s", dir, strerror(-rv));
    return mapped_file_queue_open(&ledger->index, ledger->env, dir, index_file_size, true, error);
}

/* Brings index units and terms of the entries first..last up to date; the first one stands at `position`, or in the next segment. */
static int take_entries(struct ledger *ledger, uint64_t first, uint64_t position, struct ledger_recovery *recovery, struct error *error)
{
    bool writing = false;
    uint64_t end = position;
    ledger->index_reserved_end = first * LEDGER_INDEX_UNIT;
    for (uint64_t index = first; (int64_t)index <= ledger->last_index; index++) {
        struct ledger_entry entry;
        const struct ledger_hole *hole = ledger_hole_of(ledger, index);
        int rv;
        if (!writing && hole != NULL) {
            /* Its units will be written when its entries are: their blocks may be missing. */
            writing = true;
            ledger->index_reserved_end = index * LEDGER_INDEX_UNIT;
            rv = ledger_reserve_index(ledger, ((uint64_t)ledger->last_index + 1) * LEDGER_INDEX_UNIT);
            if (rv != 0)
                return error_set(error, rv, "%s/index: no room for index units", ledger->dir);
        }
        if (hole != NULL) {
            index = hole->last;
            end = hole->end;
            continue;
        }
        const uint8_t *bytes = mapped_file_queue_at(&ledger->data, end, LEDGER_BLANK_SIZE);
        if (bytes == NULL || ledger_is_blank(bytes))
            bytes = mapped_file_queue_at(&ledger->data, end - end % ledger->data.file_size + ledger->data.file_size, LEDGER_ENTRY_HEADER_SIZE);
        rv = bytes == NULL ? ERROR_MALFORMED : ledger_entry_decode(&entry, bytes);
        if (rv != 0 || entry.index != index)
            return error_set(error, ERROR_DAMAGED, "%s: entry %llu changed while it was being read", ledger->dir, (unsigned long long)index);
        uint8_t unit[LEDGER_INDEX_UNIT];
        ledger_index_unit_encode(unit, &entry);
        uint8_t *old = ledger_index_unit(ledger, index);
        if (!writing && (old == NULL || memcmp(old, unit, sizeof unit) != 0)) {
            /* From here on units are written: into blocks that exist. */
            writing = true;
            ledger->index_reserved_end = index * LEDGER_INDEX_UNIT;
            rv = ledger_reserve_index(ledger, ((uint64_t)ledger->last_index + 1) * LEDGER_INDEX_UNIT);
            if (rv != 0)
                return error_set(error, rv, "%s/index: no room for index units: %s", ledger->dir,
                                 rv == ERROR_IO ? ledger->failure.message : strerror(-ledger->reserve_result));
        }
        if (writing) {
            memcpy(ledger_index_unit(ledger, index), unit, sizeof unit);
            recovery->index_units_rewritten++;
        } else {
            ledger->index_reserved_end = (index + 1) * LEDGER_INDEX_UNIT;
        }
        rv = ledger_terms_add(&ledger->terms, entry.term, index);
        if (rv != 0)
            return error_set(error, rv, "%s: no memory for the table of terms", ledger->dir);
        end = entry.position + ledger_entry_size(&entry);
    }
    return 0;
}

static int take_checkpoint_terms(struct ledger *ledger, const struct checkpoint *checkpoint, struct error *error)
{
    for (uint32_t i = 0; i < checkpoint->term_count; i++) {
        uint64_t first = checkpoint->terms[i].first_index;
        /* Its last entry was removed with the log's beginning. */
        if (i + 1 < checkpoint->term_count && checkpoint->terms[i + 1].first_index <= (uint64_t)ledger->begin_index)
            continue;
        if (first < (uint64_t)ledger->begin_index)
            first = (uint64_t)ledger->begin_index;
        if (ledger_terms_add(&ledger->terms, checkpoint->terms[i].term, first) != 0)
            return error_set(error, ERROR_NO_MEMORY, "%s: no memory for the table of terms", ledger->dir);
    }
    return 0;
}

/* A new node must start at once, so only a little is made ready here; the pool does the rest. Want of room is no reason not to start. */
static int reserve_first(struct ledger *ledger, struct error *error)
{
    uint64_t end = ledger->end_position;
    uint64_t file_end = end - end % ledger->data.file_size + ledger->data.file_size;
    uint64_t to = end + LEDGER_RESERVE_FIRST < file_end ? end + LEDGER_RESERVE_FIRST : file_end;
    ledger->reserved_end = end;
    int code = ledger_reserve_data(ledger, to);
    struct mapped_file *file = mapped_file_queue_find(&ledger->data, end);
    if (code == 0 && ledger->zero_ahead) {
        int rv = 0;
        for (uint64_t at = end; at < to && rv == 0;) {
            size_t piece = to - at < LEDGER_ZEROS_SIZE ? (size_t)(to - at) : LEDGER_ZEROS_SIZE;
            rv = env_write(ledger->env, file->file, ledger_zeros, piece, at - file->start);
            at += piece;
        }
        if (rv == 0)
            rv = env_sync(ledger->env, file->file);
        if (rv == -ENOSPC || rv == -EDQUOT) {
            ledger->reserve_result = rv;
            ledger->reserved_end = end;
        } else if (rv != 0) {
            code = ledger_fail(ledger, rv, "zeroing of", file, end);
        }
    }
    if (code == ERROR_IO)
        return error_set(error, ERROR_IO, "%s", ledger->failure.message);
    return 0;
}

static int recover(struct ledger *ledger, const struct checkpoint *checkpoint, bool same_boot, const struct ledger_repairs *repairs, uint64_t index_file_size,
                   bool index_opened, struct ledger_recovery *recovery, struct error *error)
{
    const bool repairable = repairs != NULL;
    int64_t committed = checkpoint->present ? checkpoint->committed_index : -1;
    struct walk walk = {.index = -1, .chain_known = true, .claim = -1};
    bool from_checkpoint = false;
    recovery->claim_index = committed;
    bool begins_whole = true;
    int code = ledger->data.count == 0 ? 0 : find_begin(ledger, checkpoint, repairable, &begins_whole, error);
    if (code != 0)
        return code;
    if (ledger->begin_index > 0) {
        walk.index = ledger->begin_index - 1;
        walk.end = mapped_file_queue_begin(&ledger->data);
        walk.chain_known = false;
    }
    /* Something behind it said that what was before it goes. */
    if (ledger->begin_index > 0 && committed < ledger->begin_index)
        committed = ledger->begin_index;
    if (checkpoint_matches(ledger, checkpoint)) {
        from_checkpoint = true;
        walk.index = checkpoint->committed_index;
        walk.term = checkpoint->committed_term;
        walk.chain = checkpoint->committed_chain;
        walk.chain_known = true;
        walk.end = checkpoint->committed_end_position;
    }
    int64_t walk_from = walk.index + 1;
    uint64_t walk_start = walk.end;
    struct ledger_entry entry;
    for (;;) {
        bool passes = begins_whole || walk.index >= ledger->begin_index;
        if (!passes) {
            walk.stop = walk.end;
            walk.look_from = walk.end + 1;
            walk.why = "the log begins here, and its header is not valid";
        }
        while (passes && !(SEEDED_BUG(COMMITTED_CUT) && from_checkpoint) && walk_entry(ledger, &walk, &entry))
            ;
        if (!repairable || (walk.index >= committed && !same_boot) ||
            !next_valid(ledger, &walk, checkpoint->present ? checkpoint->committed_end_position : 0, false, &entry))
            break;
        code = pass_damage(ledger, &walk, walk_from, &entry, error);
        if (code != 0)
            return code;
        if (entry.index == (uint64_t)(walk.index + 1) && walk.chain_known)
            continue; /* a filler */
        /* A header that no longer fits what is behind it is found out when the hole before it has been filled. */
    }
    recovery->entries_checked = walk.count;

    /* The decision. Nothing has been changed so far. */
    if (walk.later != 0) {
        char what[600];
        uint64_t offset = walk.stop % ledger->data.file_size;
        snprintf(what, sizeof what, "%s/data/%020llu: the entry at offset %llu", ledger->dir, (unsigned long long)(walk.stop - offset),
                 (unsigned long long)offset);
        return format_version_unknown(error, what, walk.later, LEDGER_ENTRY_MAGIC);
    }
    /* Newest segments without bytes were never used when the log ends before the one in front of them does. */
    const bool bytes_lost = ledger->data.unborn > 0 && (walk.stop >= mapped_file_queue_end(&ledger->data) || !may_be_torn(ledger, &walk));
    if (bytes_lost && !repairable)
        return error_set(error, ERROR_DAMAGED,
                         "%s/data/%020llu has no bytes, and the log goes on up to it: what was in it is lost. Nothing was changed: restore a backup, or remove "
                         "this file to go on without that",
                         ledger->dir, (unsigned long long)mapped_file_queue_end(&ledger->data));
    if (bytes_lost) {
        LOG_ERROR("%s/data/%020llu has no bytes: what was in it is fetched from the other members", ledger->dir,
                  (unsigned long long)mapped_file_queue_end(&ledger->data));
        recovery->lost = true;
    }
    uint64_t found_at = 0;
    if (walk.claim > recovery->claim_index)
        recovery->claim_index = walk.claim;
    recovery->proved_index = recovery->claim_index < walk.index ? recovery->claim_index : walk.index;
    if (repairable && same_boot && walk.index >= committed && !may_be_torn(ledger, &walk)) {
        char where[PATH_MAX];
        ledger_describe(ledger, walk.stop, where, sizeof where);
        LOG_ERROR("%s: %s, and no interrupted write leaves that; entry %lld is fetched from the other members", where, walk.why,
                  (long long)(walk.index + 1));
        recovery->lost = true;
    }
    if (walk.index < committed && repairable) {
        char where[PATH_MAX];
        ledger_describe(ledger, walk.stop, where, sizeof where);
        LOG_ERROR("%s: %s, but everything up to entry %lld is committed; what is missing is fetched from the other members", where, walk.why,
                  (long long)committed);
        recovery->lost = true;
    } else if (walk.index < committed)
        return damaged(ledger, walk.stop, repairable, error, "%s, but entry %lld is needed: everything up to %lld is committed", walk.why,
                       (long long)(walk.index + 1), (long long)committed);
    if (valid_behind(ledger, &walk, &found_at, &recovery->claim_index) && same_boot && !repairable)
        return damaged(ledger, walk.stop, repairable, error, "%s (entry %lld), but a valid entry stands behind it at position %llu: this is no interrupted write",
                       walk.why, (long long)(walk.index + 1), (unsigned long long)found_at);
    if (walk.index < ledger->begin_index && ledger->begin_index > 0)
        return damaged(ledger, walk.stop, repairable, error, "%s: the first retained entry is not valid", walk.why);

    /* Behind a cut nothing tells any more that there was something: what is left looks like all that there ever was. */
    int rv = recovery->lost ? repairs->before_cut(repairs->context, error) : 0;
    if (rv == 0)
        rv = mapped_file_queue_remove_unborn(&ledger->data, error);
    if (rv == 0)
        rv = clear_tail(ledger, &walk, same_boot, recovery, error);
    if (rv != 0)
        return rv;
    ledger->last_index = walk.index;
    ledger->last_term = walk.term;
    ledger->last_chain = walk.index < ledger->begin_index ? 0 : walk.chain;
    ledger->end_position = walk.end;
    ledger->index_verified_from = walk_from;
    if (from_checkpoint) {
        ledger->known_index = checkpoint->committed_index;
        ledger->known_end = checkpoint->committed_end_position;
        ledger->known_chain = checkpoint->committed_chain;
    }

    bool index_usable = index_opened && (ledger->index.count == 0 || mapped_file_queue_begin(&ledger->index) <=
                                                                         (uint64_t)ledger->begin_index * LEDGER_INDEX_UNIT);
    if (index_usable && ledger->index.count > 0 && mapped_file_queue_end(&ledger->index) < (uint64_t)walk_from * LEDGER_INDEX_UNIT)
        index_usable = false;
    if (!index_usable)
        rv = reset_index(ledger, index_file_size, index_opened, error);
    else
        rv = mapped_file_queue_cut(&ledger->index, (uint64_t)(walk.index + 1) * LEDGER_INDEX_UNIT, error);
    if (rv == 0 && from_checkpoint)
        rv = take_checkpoint_terms(ledger, checkpoint, error);
    if (rv == 0 && from_checkpoint && ledger->terms.count > 0)
        ledger->terms_from = ledger->terms.rows[0].first_index;
    if (rv == 0 && from_checkpoint && checkpoint->term_count < CHECKPOINT_TERMS_MAX && ledger_find_terms(ledger) != 0)
        rv = error_set(error, ERROR_NO_MEMORY, "%s: no memory for the table of terms", ledger->dir);
    if (rv == 0)
        rv = take_entries(ledger, (uint64_t)walk_from, walk_start, recovery, error);
    if (rv != 0)
        return rv;
    if (!begins_whole && from_checkpoint)
        ledger_verify(ledger, (uint64_t)ledger->begin_index, (uint64_t)ledger->begin_index, 1);

    /* A process that died between giving a segment its name and syncing the directory left a name that a power cut can still take, entries synced
     * later and all. */
    int dir_rv = ledger->env->ops->sync_dir(ledger->env, ledger->data.dir);
    if (dir_rv == 0)
        dir_rv = ledger->env->ops->sync_dir(ledger->env, ledger->dir);
    if (dir_rv != 0) {
        ledger_fail(ledger, dir_rv, "sync of the directory of", NULL, 0);
        return error_set(error, ERROR_IO, "%s", ledger->failure.message);
    }
    /* Class B: what is here will be counted as acknowledged by this node, so it must be durable now; after a kill it may be in the page cache
     * alone. Class A: no such promise; the flush thread goes on behind what was durable when the checkpoint was saved. (A cut that the kill
     * interrupted may then be undone by a power cut, but not once anything behind it has been reported durable: it is in the same segments.) */
    if (ledger->zero_ahead) {
        for (size_t i = 0; i < ledger->data.count; i++) {
            int sync_rv = env_sync(ledger->env, ledger->data.files[i]->file);
            if (sync_rv != 0) {
                ledger_fail(ledger, sync_rv, "sync of", ledger->data.files[i], ledger->data.files[i]->start);
                return error_set(error, ERROR_IO, "%s", ledger->failure.message);
            }
        }
    }
    bool durable = ledger->zero_ahead || !same_boot;
    ledger->synced_index = durable ? ledger->last_index : walk_from - 1;
    ledger->synced_position = durable ? ledger->end_position : walk_start;
    return reserve_first(ledger, error);
}

int ledger_open(struct ledger *ledger, struct env *env, const char *dir, uint64_t segment_size, uint64_t index_file_size, bool zero_ahead,
                const struct checkpoint *checkpoint, bool same_boot, const struct ledger_repairs *repairs, struct ledger_recovery *recovery,
                struct error *error)
{
    char path[PATH_MAX];
    memset(ledger, 0, sizeof *ledger);
    memset(recovery, 0, sizeof *recovery);
    if (segment_size < LEDGER_PAGE || segment_size % LEDGER_PAGE != 0 || segment_size > UINT32_MAX)
        return error_set(error, ERROR_INVALID, "segment size %llu: must be a multiple of %u, below 4 GiB", (unsigned long long)segment_size,
                         LEDGER_PAGE);
    if (index_file_size < LEDGER_INDEX_UNIT || index_file_size % LEDGER_INDEX_UNIT != 0)
        return error_set(error, ERROR_INVALID, "index file size %llu: must be a multiple of %u", (unsigned long long)index_file_size,
                         LEDGER_INDEX_UNIT);
    if (strlen(dir) + 40 > sizeof path)
        return error_set(error, ERROR_INVALID, "%s: the path is too long", dir);
    ledger->env = env;
    ledger->zero_ahead = zero_ahead;
    ledger->last_index = -1;
    ledger->synced_index = -1;
    ledger->known_index = -1;
    ledger->dir = strdup(dir);
    if (ledger->dir == NULL)
        return error_set(error, ERROR_NO_MEMORY, "open %s: out of memory", dir);
    pthread_mutex_init(&ledger->reserve_lock, NULL);

    int rv = repairs != NULL ? ledger_complete_files(ledger, segment_size, checkpoint, repairs, &recovery->lost, error) : 0;
    if (rv != 0)
        goto free_ledger;
    snprintf(path, sizeof path, "%s/data", dir);
    rv = mapped_file_queue_open(&ledger->data, env, path, segment_size, false, error);
    if (rv != 0)
        goto free_ledger;
    snprintf(path, sizeof path, "%s/index", dir);
    bool index_opened = true;
    rv = mapped_file_queue_open(&ledger->index, env, path, index_file_size, true, error);
    if (rv == ERROR_DAMAGED) {
        index_opened = false;
        rv = 0;
    }
    if (rv != 0)
        goto close_data;
    rv = recover(ledger, checkpoint, same_boot, repairs, index_file_size, index_opened, recovery, error);
    if (rv != 0)
        goto close_index;
    return 0;

close_index:
    mapped_file_queue_close(&ledger->index);
close_data:
    mapped_file_queue_close(&ledger->data);
free_ledger:
    pthread_mutex_destroy(&ledger->reserve_lock);
    free(ledger->terms.rows);
    free(ledger->dir);
    memset(ledger, 0, sizeof *ledger);
    return rv;
}
