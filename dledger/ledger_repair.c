/* Damage in the middle of the log: holes, and how they are filled.
 *
 * A hole is filled from its front with entries that another member holds behind the same term at the hole's anchor, so by Raft's log matching they
 * are the entries that stood here. Each is checked as one from a leader would be: place, chain, checksums. What stands behind the hole must then
 * continue the chain; if it does not, it was damaged too, and becomes a hole of its own.
 */
#include "dledger/ledger_internal.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/log_sink.h"

void ledger_describe(const struct ledger *ledger, uint64_t position, char *out, size_t size)
{
    uint64_t offset = position % ledger->data.file_size;
    snprintf(out, size, "%s/data/%020llu at offset %llu", ledger->dir, (unsigned long long)(position - offset), (unsigned long long)offset);
}

/* ---- the list ---- */

const struct ledger_hole *ledger_hole_of(const struct ledger *ledger, uint64_t index)
{
    for (uint32_t i = 0; i < ledger->hole_count; i++) {
        if (index >= ledger->holes[i].first && index <= ledger->holes[i].last)
            return &ledger->holes[i];
    }
    return NULL;
}

static struct ledger_hole *hole_to_change(struct ledger *ledger, uint64_t index)
{
    const struct ledger_hole *hole = ledger_hole_of(ledger, index);
    return hole == NULL ? NULL : &ledger->holes[hole - ledger->holes];
}

bool ledger_is_damaged(const struct ledger *ledger, uint64_t position, uint64_t size)
{
    for (uint32_t i = 0; i < ledger->hole_count; i++) {
        if (position < ledger->holes[i].end && position + size > ledger->holes[i].position)
            return true;
    }
    return false;
}

/* Where the table was made from the entries it cannot tell those that were cut since: only what fills the hole proves any of those before it. */
static uint64_t doubt_of(const struct ledger *ledger, uint64_t first)
{
    return first < ledger->terms_from ? (uint64_t)ledger->begin_index : first;
}

void ledger_add_hole(struct ledger *ledger, uint64_t first, uint64_t last, uint64_t position, uint64_t end)
{
    struct ledger_hole *holes = ledger->holes;
    uint32_t at = 0;
    char where[PATH_MAX];

    ledger_describe(ledger, position, where, sizeof where);
    LOG_ERROR("%s: entries %llu to %llu are damaged; they are fetched from the other members", where, (unsigned long long)first,
              (unsigned long long)last);
    while (at < ledger->hole_count && holes[at].last + 1 < first)
        at++;
    if (at == ledger->hole_count && at == LEDGER_HOLES_MAX)
        at--;
    if (at < ledger->hole_count && (holes[at].first <= last + 1 || ledger->hole_count == LEDGER_HOLES_MAX)) {
        struct ledger_hole *hole = &holes[at];
        if (first < hole->first) {
            hole->first = first;
            hole->position = position;
            if (hole->doubt > doubt_of(ledger, first))
                hole->doubt = doubt_of(ledger, first);
        }
        if (last > hole->last) {
            hole->last = last;
            hole->end = end;
        }
        while (at + 1 < ledger->hole_count && holes[at + 1].first <= hole->last + 1) {
            if (holes[at + 1].last > hole->last) {
                hole->last = holes[at + 1].last;
                hole->end = holes[at + 1].end;
            }
            if (holes[at + 1].doubt < hole->doubt)
                hole->doubt = holes[at + 1].doubt;
            memmove(hole + 1, hole + 2, (ledger->hole_count - at - 2) * sizeof *hole);
            ledger->hole_count--;
        }
        hole->refused = 0;
        hole->narrow = false;
        return;
    }
    memmove(holes + at + 1, holes + at, (ledger->hole_count - at) * sizeof *holes);
    holes[at] = (struct ledger_hole){.first = first, .last = last, .position = position, .end = end, .doubt = doubt_of(ledger, first)};
    ledger->hole_count++;
}

const struct ledger_hole *ledger_first_hole(const struct ledger *ledger)
{
    for (uint32_t i = 0; i < ledger->hole_count; i++) {
        if (!ledger_hole_is_trimmed(ledger, &ledger->holes[i]))
            return &ledger->holes[i];
    }
    return NULL;
}

uint64_t ledger_whole_until(const struct ledger *ledger)
{
    const struct ledger_hole *hole = ledger_first_hole(ledger);
    uint64_t synced = (uint64_t)(ledger->synced_index + 1);

    return hole != NULL && hole->first < synced ? hole->first : synced;
}

void ledger_trim_holes(struct ledger *ledger, uint64_t position)
{
    uint32_t gone = 0;

    while (gone < ledger->hole_count && ledger->holes[gone].end <= position)
        gone++;
    ledger->hole_count -= gone;
    memmove(ledger->holes, ledger->holes + gone, ledger->hole_count * sizeof *ledger->holes);
}

void ledger_cut_holes(struct ledger *ledger, uint64_t first_removed)
{
    while (ledger->hole_count > 0 && ledger->holes[ledger->hole_count - 1].first >= first_removed)
        ledger->hole_count--;
    if (ledger->hole_count > 0 && ledger->holes[ledger->hole_count - 1].last >= first_removed)
        ledger->holes[ledger->hole_count - 1].last = first_removed - 1;
}

uint64_t ledger_hole_anchor(const struct ledger *ledger, const struct ledger_hole *hole, uint64_t *term)
{
    uint64_t anchor = (int64_t)hole->last < ledger->last_index && !hole->narrow ? hole->last + 1 : hole->last;
    *term = (int64_t)anchor == ledger->last_index ? ledger->last_term : ledger_term_of(ledger, anchor);
    return anchor;
}

/* ---- looking ---- */

/* An old version of a block may hold entries that were cut since, each as whole as the ones that replaced them, and in a chain of their own. But index and
 * term say which entry it is, and the table of terms does not come from there. */
static bool term_fits(const struct ledger *ledger, uint64_t index, uint64_t term)
{
    size_t rows = ledger_terms_until(&ledger->terms, index);
    return rows == 0 || ledger->terms.rows[rows - 1].term == term;
}

/* Entry `index` as its index unit tells, with a body that is whole; its header is not proved. */
static bool sound_at(const struct ledger *ledger, uint64_t index, struct ledger_entry *entry)
{
    const uint8_t *bytes = ledger_entry(ledger, index, entry);
    return bytes != NULL && entry->position + ledger_entry_size(entry) <= ledger->end_position && term_fits(ledger, index, entry->term) &&
           ledger_entry_body_ok(entry, bytes + LEDGER_ENTRY_HEADER_SIZE);
}

/* The first sound entry from index on, last_index + 1 when there is none. *position: where it begins, or the log ends. */
static uint64_t next_sound(const struct ledger *ledger, uint64_t index, uint64_t *position)
{
    struct ledger_entry entry;
    while ((int64_t)index <= ledger->last_index && !sound_at(ledger, index, &entry))
        index++;
    *position = (int64_t)index <= ledger->last_index ? entry.position : ledger->end_position;
    return index;
}

/* From the end of the segment's last entry: what an append would have left there. */
static int write_filler(struct ledger *ledger, uint64_t position)
{
    struct mapped_file *file = mapped_file_queue_find(&ledger->data, position);
    uint64_t offset = position - file->start;
    uint64_t left = ledger->data.file_size - offset;
    uint8_t blank[LEDGER_BLANK_SIZE];
    int rv;

    ledger_blank_encode(blank, (uint32_t)left);
    rv = env_write(ledger->env, file->file, blank, sizeof blank, offset);
    for (uint64_t at = offset + LEDGER_BLANK_SIZE; rv == 0 && at < ledger->data.file_size;) {
        uint64_t piece = ledger->data.file_size - at < LEDGER_ZEROS_SIZE ? ledger->data.file_size - at : LEDGER_ZEROS_SIZE;
        rv = env_write(ledger->env, file->file, ledger_zeros, (size_t)piece, at);
        at += piece;
    }
    if (rv == 0)
        rv = env_sync(ledger->env, file->file);
    return rv == 0 ? 0 : ledger_fail(ledger, rv, "repair of", file, position);
}

/* What a filler says is known, so a damaged one is written again at once. */
static void check_filler(struct ledger *ledger, uint64_t position)
{
    const uint8_t *bytes = mapped_file_queue_at(&ledger->data, position, LEDGER_BLANK_SIZE);
    char where[PATH_MAX];

    if (bytes == NULL || (ledger_is_blank(bytes) && load_u32(bytes + 4) == ledger->data.file_size - position % ledger->data.file_size))
        return;
    ledger_describe(ledger, position, where, sizeof where);
    LOG_ERROR("%s: the filler at the segment's end is damaged, and is written again", where);
    write_filler(ledger, position);
}

uint64_t ledger_verify(struct ledger *ledger, uint64_t index, uint64_t last, uint64_t max_bytes)
{
    uint64_t end = 0, read = 0, joined; /* the first one of the chain that is being followed */
    uint32_t chain = 0;
    bool chain_known;

    if (last > (uint64_t)ledger->last_index)
        last = (uint64_t)ledger->last_index;
    if (ledger->last_index < 0 || index > last)
        return index;
    if ((int64_t)index < ledger->begin_index)
        index = (uint64_t)ledger->begin_index;
    chain_known = index == 0 || ledger_end_of(ledger, index - 1, &end, &chain);
    if ((int64_t)index == ledger->begin_index)
        end = mapped_file_queue_begin(&ledger->data);
    joined = index;
    while (index <= last && read < max_bytes) {
        const struct ledger_hole *hole = ledger_hole_of(ledger, index);
        struct ledger_entry entry = {0};
        const uint8_t *bytes;

        if (hole != NULL) {
            index = hole->last + 1;
            end = hole->end;
            chain_known = false;
            continue;
        }
        bytes = ledger_entry(ledger, index, &entry);
        if (bytes != NULL && entry.position == (chain_known ? ledger_place(ledger, end, ledger_entry_size(&entry)) : entry.position) &&
            (!chain_known || ledger_entry_chain(bytes, chain) == entry.chain_crc) && term_fits(ledger, index, entry.term) &&
            ledger_entry_body_ok(&entry, bytes + LEDGER_ENTRY_HEADER_SIZE)) {
            if (chain_known && entry.position != end)
                check_filler(ledger, end);
            if (!chain_known)
                joined = index;
            /* What an entry that the checkpoint tells continues is the log, and each of it fits the table. */
            if (index >= ledger->terms_from && joined < ledger->terms_from)
                ledger->terms_from = joined;
            chain = entry.chain_crc;
            chain_known = true;
            end = entry.position + ledger_entry_size(&entry);
            read += ledger_entry_size(&entry);
            index++;
            continue;
        }
        /* The chain breaks at the header that was changed, or behind it when that was the first one looked at; each is its own witness with its body
         * alone, so the one before is written again as well when it was not proved. */
        uint64_t first = index;
        if (!chain_known)
            end = bytes != NULL ? entry.position : end;
        struct ledger_entry before;
        while (first > (uint64_t)ledger->begin_index && ledger_hole_of(ledger, first - 1) == NULL && ledger_entry(ledger, first - 1, &before) != NULL &&
               !term_fits(ledger, first - 1, before.term)) {
            first--;
            end = before.position;
        }
        uint64_t hole_end;
        index = next_sound(ledger, index + 1, &hole_end);
        ledger_add_hole(ledger, first, index - 1, end, hole_end);
        chain_known = false;
    }
    return index;
}

uint32_t ledger_checked_run(const struct ledger *ledger, uint64_t first_index, uint32_t max_count, size_t max_bytes, const uint8_t **run, size_t *size)
{
    uint32_t count = ledger_run(ledger, first_index, max_count, max_bytes, run, size);
    uint32_t chain = 0, good = 0;
    uint64_t end;
    size_t at = 0;
    bool chain_known = first_index == 0 || ledger_end_of(ledger, first_index - 1, &end, &chain);

    for (uint32_t i = 0; i < ledger->hole_count; i++) { /* what is in doubt must not mend others */
        if (first_index < ledger->holes[i].first && ledger->holes[i].doubt < first_index + count)
            count = ledger->holes[i].doubt > first_index ? (uint32_t)(ledger->holes[i].doubt - first_index) : 0;
    }
    for (; good < count; good++) {
        struct ledger_entry entry;
        if (*size - at < LEDGER_ENTRY_HEADER_SIZE || ledger_entry_decode(&entry, *run + at) != 0 || entry.index != first_index + good ||
            ledger_entry_size(&entry) > *size - at || !term_fits(ledger, entry.index, entry.term) || (chain_known && ledger_entry_chain(*run + at, chain) != entry.chain_crc) ||
            !ledger_entry_body_ok(&entry, *run + at + LEDGER_ENTRY_HEADER_SIZE))
            break;
        chain = entry.chain_crc;
        chain_known = true;
        at += ledger_entry_size(&entry);
    }
    *size = at;
    return good;
}

/* ---- terms that a checkpoint could not tell ---- */

static bool sound_term_at(const struct ledger *ledger, uint64_t index, uint64_t *term)
{
    struct ledger_entry entry;
    const uint8_t *run;
    size_t size;
    if (ledger_checked_run(ledger, index, 1, LEDGER_ENTRY_SIZE_MAX, &run, &size) == 0 || ledger_entry_decode(&entry, run) != 0)
        return false;
    *term = entry.term;
    return true;
}

/* Adds the terms that begin behind low and up to high: of both the terms are known. */
static int add_terms_between(struct ledger_terms *found, const struct ledger *ledger, uint64_t low, uint64_t low_term, uint64_t high, uint64_t high_term)
{
    uint64_t middle = low + (high - low) / 2, at = middle, term = 0;
    if (low_term >= high_term)
        return 0;
    while (at > low && at < high && !sound_term_at(ledger, at, &term))
        at++;
    if (at == high) {
        for (at = middle - 1; at > low && !sound_term_at(ledger, at, &term);)
            at--;
    }
    if (at <= low || at >= high)
        return ledger_terms_add(found, high_term, high);
    int rv = add_terms_between(found, ledger, low, low_term, at, term);
    return rv == 0 ? add_terms_between(found, ledger, at, term, high, high_term) : rv;
}

int ledger_find_terms(struct ledger *ledger)
{
    struct ledger_terms known = ledger->terms, found = {0};
    uint64_t first = (uint64_t)ledger->begin_index, term;
    int rv = 0;

    if (known.count == 0 || known.rows[0].first_index <= first)
        return 0;
    ledger->terms.count = 0; /* entries are not measured by a table that is being made from them */
    while (first < known.rows[0].first_index && !sound_term_at(ledger, first, &term))
        first++;
    if (first < known.rows[0].first_index) {
        rv = ledger_terms_add(&found, term, first);
        if (rv == 0)
            rv = add_terms_between(&found, ledger, first, term, known.rows[0].first_index, known.rows[0].term);
    }
    for (size_t i = 0; i < known.count && rv == 0; i++)
        rv = ledger_terms_add(&found, known.rows[i].term, known.rows[i].first_index);
    ledger->terms = found;
    free(known.rows);
    return rv;
}

/* ---- writing ---- */

/* The entries of a hole may be of terms that the table does not have: it was made from headers. */
static int set_term(struct ledger *ledger, uint64_t index, uint64_t term)
{
    size_t at = ledger_terms_until(&ledger->terms, index);
    /* Below the table, which a checkpoint bounds, entries tell their terms themselves: a row for one of them would speak for all up to the table. */
    if (at == 0 && ledger->terms.count > 0 && index >= (uint64_t)ledger->begin_index && ledger->terms.rows[0].term != term)
        return 0;
    if (at > 0 && ledger->terms.rows[at - 1].first_index == index && ledger->terms.rows[at - 1].term != term) {
        /* A row that was made from what stood here before. */
        struct ledger_term *row = &ledger->terms.rows[at - 1];
        uint64_t next = at < ledger->terms.count ? ledger->terms.rows[at].first_index : (uint64_t)ledger->last_index + 1;
        bool of_next = at < ledger->terms.count && ledger->terms.rows[at].term == term;
        bool of_previous = at > 1 && ledger->terms.rows[at - 2].term == term;
        if (of_next)
            ledger->terms.rows[at].first_index = index;
        if (of_next || (of_previous && index + 1 == next)) {
            memmove(row, row + 1, (ledger->terms.count - at) * sizeof *row);
            ledger->terms.count--;
        } else if (of_previous) {
            row->first_index = index + 1;
        } else {
            row->term = term;
        }
        return 0;
    }
    if (at == 0 || ledger->terms.rows[at - 1].term != term) {
        if (at < ledger->terms.count && ledger->terms.rows[at].term == term) {
            ledger->terms.rows[at].first_index = index;
        } else if (at < ledger->terms.count) {
            struct ledger_term last = ledger->terms.rows[ledger->terms.count - 1];
            /* Makes room: the last row twice, until it is moved. */
            if (ledger_terms_add(&ledger->terms, last.term + 1, last.first_index) != 0)
                return ERROR_NO_MEMORY;
            memmove(ledger->terms.rows + at + 1, ledger->terms.rows + at, (ledger->terms.count - 1 - at) * sizeof *ledger->terms.rows);
            ledger->terms.rows[at] = (struct ledger_term){term, index};
        } else {
            return ledger_terms_add(&ledger->terms, term, index);
        }
    }
    return 0;
}

static int write_entry(struct ledger *ledger, const struct ledger_entry *entry, const uint8_t *bytes)
{
    struct mapped_file *file = mapped_file_queue_find(&ledger->data, entry->position);
    uint8_t *unit = ledger_index_unit(ledger, entry->index);
    int rv;

    if (file == NULL)
        return ledger_fail(ledger, -ENOENT, "repair of", NULL, 0);
    rv = env_write(ledger->env, file->file, bytes, ledger_entry_size(entry), entry->position - file->start);
    if (rv != 0)
        return ledger_fail(ledger, rv, "repair of", file, entry->position);
    /* Older units are checked against the entry when read, and their blocks may be missing. */
    if (unit != NULL && (int64_t)entry->index >= ledger->index_verified_from)
        ledger_index_unit_encode(unit, entry);
    return set_term(ledger, entry->index, entry->term);
}

void ledger_doubt_before(struct ledger *ledger, uint64_t first, uint64_t from)
{
    struct ledger_hole *hole = hole_to_change(ledger, first);
    if (hole != NULL && from < hole->doubt)
        hole->doubt = from;
}

bool ledger_narrow_anchor(struct ledger *ledger, uint64_t first)
{
    struct ledger_hole *hole = hole_to_change(ledger, first);
    if (hole == NULL || hole->narrow || (int64_t)hole->last >= ledger->last_index || (ledger->begin_index > 0 && (int64_t)first <= ledger->begin_index) ||
        ledger_term_of(ledger, hole->last) == 0)
        return false;
    hole->narrow = true;
    hole->refused = 0;
    return true;
}

/* Does the entry behind a hole continue what a run ends with? */
static bool continues(const struct ledger *ledger, const struct ledger_hole *hole, const uint8_t *last_of_run)
{
    struct ledger_entry last, behind;
    const uint8_t *bytes = mapped_file_queue_at(&ledger->data, hole->end, LEDGER_ENTRY_HEADER_SIZE);
    return ledger_entry_decode(&last, last_of_run) == 0 && bytes != NULL && ledger_entry_decode(&behind, bytes) == 0 && behind.index == last.index + 1 &&
           ledger_entry_chain(bytes, last.chain_crc) == behind.chain_crc;
}

bool ledger_widen_into_doubt(struct ledger *ledger, uint64_t first)
{
    struct ledger_hole *hole = hole_to_change(ledger, first);
    uint64_t end = 0;
    uint32_t chain;
    if (hole == NULL || hole->doubt >= hole->first)
        return false;
    /* All of it may be the whole log: twice as much each time. */
    uint64_t count = hole->last - hole->first + 1;
    uint64_t from = hole->first - hole->doubt > count ? hole->first - count : hole->doubt;
    if (from == (uint64_t)ledger->begin_index)
        end = mapped_file_queue_begin(&ledger->data);
    else if (!ledger_end_of(ledger, from - 1, &end, &chain))
        return false;
    ledger_add_hole(ledger, from, hole->last, end, hole->end);
    return true;
}

void ledger_distrust_anchor(struct ledger *ledger, uint64_t first)
{
    struct ledger_hole *hole = hole_to_change(ledger, first);
    uint64_t index, end;

    if (hole == NULL || (int64_t)hole->last >= ledger->last_index)
        return;
    index = next_sound(ledger, hole->last + 2, &end);
    ledger_add_hole(ledger, hole->first, index - 1, hole->position, end);
}

/* What is before a hole has been damaged since it was found: as far back as nothing is sound, entries are fetched as well. */
static void widen_back(struct ledger *ledger, const struct ledger_hole *hole)
{
    uint64_t first = hole->first - 1, end = mapped_file_queue_begin(&ledger->data);
    struct ledger_entry before;

    while ((int64_t)first > ledger->begin_index && !sound_at(ledger, first - 1, &before))
        first--;
    if ((int64_t)first > ledger->begin_index)
        end = before.position + ledger_entry_size(&before);
    ledger_add_hole(ledger, first, hole->last, end, hole->end);
}

/* The chain before the first entry of a log whose beginning was deleted is gone: its own checksum and place have to do, and that what is behind it continues. */
static int check_from_begin(const struct ledger *ledger, const uint8_t *run, size_t size, uint32_t count, uint64_t term_max, struct error *error)
{
    struct ledger_entry first;
    uint64_t begin = mapped_file_queue_begin(&ledger->data);
    if (size < LEDGER_ENTRY_HEADER_SIZE || ledger_entry_decode(&first, run) != 0 || (int64_t)first.index != ledger->begin_index || first.position != begin ||
        first.term == 0 || first.term > term_max || ledger_entry_size(&first) > size || (uint64_t)ledger_entry_size(&first) + LEDGER_BLANK_SIZE > ledger->data.file_size)
        return error_set(error, ERROR_MALFORMED, "a run does not begin with entry %lld at position %llu, where the log begins", (long long)ledger->begin_index,
                         (unsigned long long)begin);
    if (!ledger_entry_body_ok(&first, run + LEDGER_ENTRY_HEADER_SIZE))
        return error_set(error, ERROR_DAMAGED, "entry %llu of a run has a wrong body checksum", (unsigned long long)first.index);
    return ledger_check_run(ledger, run + ledger_entry_size(&first), size - ledger_entry_size(&first), count - 1, first.index + 1, first.term,
                            begin + ledger_entry_size(&first), first.chain_crc, term_max, error);
}

int ledger_repair(struct ledger *ledger, uint64_t first, const uint8_t *run, size_t size, uint32_t count, struct error *error)
{
    struct ledger_hole *hole = hole_to_change(ledger, first);
    uint64_t end = 0, anchor_term;
    uint32_t chain = 0;
    struct mapped_file *dirty = NULL;
    const uint8_t *last_of_run = run;
    size_t at = 0;
    int rv;

    if (ledger->failed)
        return error_set(error, ERROR_IO, "%s", ledger->failure.message);
    if (hole == NULL || hole->first != first || count == 0)
        return error_set(error, ERROR_MALFORMED, "entry %llu is not the first of a hole", (unsigned long long)first);
    uint64_t anchor = ledger_hole_anchor(ledger, hole, &anchor_term);
    if (first + count - 1 > anchor)
        return error_set(error, ERROR_MALFORMED, "entries behind %llu were not asked for", (unsigned long long)anchor);
    bool from_begin = first > 0 && (int64_t)first == ledger->begin_index;
    if (from_begin) {
        end = mapped_file_queue_begin(&ledger->data);
    } else if (first > 0 && !ledger_end_of(ledger, first - 1, &end, &chain)) {
        widen_back(ledger, hole);
        return error_set(error, ERROR_BUSY, "the entry before %llu is damaged too", (unsigned long long)first);
    }
    rv = from_begin ? check_from_begin(ledger, run, size, count, anchor_term, error)
                    : ledger_check_run(ledger, run, size, count, first, first > 0 ? ledger_term_of(ledger, first - 1) : 0, end, chain, anchor_term, error);
    if (rv == ERROR_DAMAGED && ledger->begin_index > 0 && (int64_t)first == ledger->begin_index + 1) {
        /* No chain proves the header of the log's first entry, so it may be that one. */
        ledger_add_hole(ledger, first - 1, hole->last, mapped_file_queue_begin(&ledger->data), hole->end);
        return error_set(error, ERROR_BUSY, "the entry before %llu may be damaged too", (unsigned long long)first);
    }
    if (rv != 0) {
        /* The one before it may be what breaks the chain: its header was never compared with the one before that. */
        if (rv == ERROR_DAMAGED && first > 0)
            ledger_verify(ledger, first - 1, first - 1, 1);
        return rv;
    }
    for (uint32_t n = 0; n < count; n++) {
        struct ledger_entry entry;
        last_of_run = run + at;
        rv = ledger_entry_decode(&entry, run + at);
        assert(rv == 0);
        at += ledger_entry_size(&entry);
        if (entry.index <= hole->last ? entry.position + ledger_entry_size(&entry) > hole->end : entry.position != hole->end) {
            /* What stands behind the hole is none of the log's entries, whatever it looks like. */
            bool last = (int64_t)hole->last >= ledger->last_index;
            ledger_distrust_anchor(ledger, first);
            return error_set(error, last ? ERROR_DAMAGED : ERROR_BUSY, "entry %llu of another member does not end where it should",
                             (unsigned long long)entry.index);
        }
    }
    /* Nothing of it is proved before that fits. */
    if (hole->narrow && (first + count - 1 != hole->last || !continues(ledger, hole, last_of_run)))
        return error_set(error, ERROR_DAMAGED, "what stands behind entry %llu does not continue that", (unsigned long long)hole->last);
    at = 0;
    for (uint32_t n = 0; n < count && rv == 0; n++) {
        struct ledger_entry entry;
        rv = ledger_entry_decode(&entry, run + at);
        assert(rv == 0);
        if (entry.position != end)
            rv = write_filler(ledger, end);
        struct mapped_file *file = mapped_file_queue_find(&ledger->data, entry.position);
        if (rv == 0 && dirty != NULL && file != dirty && env_sync(ledger->env, dirty->file) != 0)
            rv = ledger_fail(ledger, -EIO, "sync of", dirty, dirty->start);
        if (rv == 0)
            rv = write_entry(ledger, &entry, run + at);
        dirty = file;
        end = entry.position + ledger_entry_size(&entry);
        at += ledger_entry_size(&entry);
    }
    if (rv == 0 && dirty != NULL) {
        int sync_rv = env_sync(ledger->env, dirty->file);
        if (sync_rv != 0)
            rv = ledger_fail(ledger, sync_rv, "sync of", dirty, dirty->start);
    }
    if (rv != 0)
        return error_set(error, rv, "%s", rv == ERROR_IO ? ledger->failure.message : error_text(rv));

    uint64_t next = first + count;
    if (next <= hole->last) {
        hole->first = hole->doubt = next;
        hole->position = end;
        hole->refused = 0;
        return 0;
    }
    uint64_t behind = hole->last + 1;
    uint64_t hole_end = hole->end;
    /* A run does not reach into the next segment: what leads there has to be written too. */
    if (next == behind && end != hole_end && (int64_t)behind <= ledger->last_index) {
        if (hole_end % ledger->data.file_size != 0 || hole_end - end >= ledger->data.file_size) {
            ledger_distrust_anchor(ledger, first);
            return error_set(error, ERROR_BUSY, "entry %llu is not where it belongs", (unsigned long long)behind);
        }
        rv = write_filler(ledger, end);
        if (rv != 0)
            return error_set(error, rv, "%s", ledger->failure.message);
    }
    ledger->hole_count--;
    memmove(hole, hole + 1, (size_t)(ledger->holes + ledger->hole_count - hole) * sizeof *hole);
    /* Does what stands behind continue the chain? */
    if ((int64_t)behind <= ledger->last_index)
        ledger_verify(ledger, behind, behind + 1, UINT64_MAX);
    return 0;
}

/* ---- whole files ---- */

#define SIZE_STEP (1u << 20) /* segment sizes that people set are multiples of it */

struct segment_names {
    uint64_t start_min, start_max;
    uint64_t count;
};

static int each_segment(void *argument, const char *name, bool is_dir)
{
    struct segment_names *names = argument;
    uint64_t start = 0;
    if (is_dir || strlen(name) != 20 || strspn(name, "0123456789") != 20)
        return 0;
    start = strtoull(name, NULL, 10);
    if (names->count == 0 || start < names->start_min)
        names->start_min = start;
    if (names->count == 0 || start > names->start_max)
        names->start_max = start;
    names->count++;
    return 0;
}

static bool begins_with_entry(const struct ledger *ledger, uint64_t start)
{
    char path[PATH_MAX];
    uint8_t header[LEDGER_ENTRY_HEADER_SIZE];
    struct ledger_entry entry;
    struct env_file *file;

    snprintf(path, sizeof path, "%s/data/%020llu", ledger->dir, (unsigned long long)start);
    if (env_open(ledger->env, path, ENV_READ, &file) != 0)
        return false;
    bool found = env_read(ledger->env, file, header, sizeof header, 0) == (ssize_t)sizeof header && ledger_entry_decode(&entry, header) == 0 &&
                 entry.position == start;
    env_close(ledger->env, file);
    return found;
}

static bool has_no_bytes(const struct ledger *ledger, uint64_t start)
{
    char path[PATH_MAX];
    struct env_file *file;
    uint64_t size = 1;

    snprintf(path, sizeof path, "%s/data/%020llu", ledger->dir, (unsigned long long)start);
    if (env_open(ledger->env, path, ENV_READ, &file) != 0)
        return false;
    bool none = ledger->env->ops->size(ledger->env, file, &size) == 0 && size == 0;
    env_close(ledger->env, file);
    return none;
}

int ledger_complete_files(struct ledger *ledger, uint64_t segment_size, const struct checkpoint *checkpoint, const struct ledger_repairs *repairs, bool *lost,
                          struct error *error)
{
    struct env *env = ledger->env;
    struct segment_names names = {0};
    char path[PATH_MAX];
    bool made = false;

    snprintf(path, sizeof path, "%s/data", ledger->dir);
    int rv = env->ops->list(env, path, each_segment, &names);
    if (rv == -ENOENT || (rv == 0 && names.count == 0))
        return 0;
    if (rv == 0 && checkpoint->present && checkpoint->committed_index >= 0 && checkpoint->begin_position < names.start_min &&
        checkpoint->begin_position % segment_size == 0)
        names.start_min = checkpoint->begin_position;
    if (names.start_min % segment_size != 0 || (names.start_max - names.start_min) % segment_size != 0)
        return 0; /* another segment size: opening says so */
    /* Newest ones without bytes: whether there was anything in them is seen when the log has been walked to its end. */
    while (names.start_max > names.start_min && has_no_bytes(ledger, names.start_max))
        names.start_max -= segment_size;
    for (uint64_t start = names.start_min; rv == 0 && start <= names.start_max; start += segment_size) {
        struct env_file *file;
        uint64_t size = 0;
        snprintf(path, sizeof path, "%s/data/%020llu", ledger->dir, (unsigned long long)start);
        rv = env_open(env, path, ENV_WRITE | ENV_CREATE, &file);
        if (rv != 0)
            break;
        rv = env->ops->size(env, file, &size);
        /* The only file, of a size that a setting may have had: that the setting was changed is more likely. */
        if (rv == 0 && size < segment_size && (names.count > 1 || size == 0 || size % SIZE_STEP != 0)) {
            LOG_ERROR("%s has %llu of %llu bytes: what is missing is fetched from the other members", path, (unsigned long long)size,
                      (unsigned long long)segment_size);
            if (!begins_with_entry(ledger, start + segment_size)) { /* else it is a hole, and stays one */
                int code = repairs->before_cut(repairs->context, error);
                if (code != 0) {
                    env_close(env, file);
                    return code;
                }
                *lost = true;
            }
            rv = env->ops->truncate(env, file, segment_size);
            if (rv == 0)
                rv = env->ops->allocate(env, file, size, segment_size - size);
            made = true;
        }
        env_close(env, file);
    }
    snprintf(path, sizeof path, "%s/data", ledger->dir);
    if (rv == 0 && made)
        rv = env->ops->sync_dir(env, path);
    if (rv != 0)
        return error_set(error, rv == -ENOSPC || rv == -EDQUOT ? ERROR_NO_SPACE : ERROR_IO, "segments in %s: %s", path, strerror(-rv));
    return 0;
}
