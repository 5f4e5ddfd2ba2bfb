/* What the parts of the ledger share: ledger.c (append, read, cut), ledger_reserve.c (room ahead, making durable) and ledger_recover.c (open).
 *
 * Invariant that all three keep: behind end_position every byte of the data files is zero, except while a write is under way. So a filler needs
 * only its 8 bytes, and a non-zero byte behind the last valid entry means an interrupted write, never a leftover of an older log.
 */
#ifndef LEDGERMQ_DLEDGER_LEDGER_INTERNAL_H
#define LEDGERMQ_DLEDGER_LEDGER_INTERNAL_H

#include "dledger/ledger.h"

#define LEDGER_INDEX_UNIT 32u
#define LEDGER_PAGE 4096u

/* The first error stays; always returns ERROR_IO. rv: negative errno. */
int ledger_fail(struct ledger *ledger, int rv, const char *what, const struct mapped_file *file, uint64_t position);

/* Room for index units up to byte `end` of the index files. 0, ERROR_NO_SPACE (nothing changed), ERROR_IO (failed is set). */
int ledger_reserve_index(struct ledger *ledger, uint64_t end);
/* Room for entries up to position `end`, without zeros: the way of an append that is ahead of the pool. As above. */
int ledger_reserve_data(struct ledger *ledger, uint64_t end);
/* Calls off the job that is out, if any; on return it writes no more zeros, and no segment of its making is there or appears. 0 or ERROR_IO. */
int ledger_cancel_reservation(struct ledger *ledger);
/* Zeroes [from, to) of a segment page by page from the back. 0 or -errno. */
int ledger_zero_backwards(struct ledger *ledger, struct mapped_file *file, uint64_t from, uint64_t to);

static inline uint8_t *ledger_index_unit(const struct ledger *ledger, uint64_t index)
{
    return mapped_file_queue_at(&ledger->index, index * LEDGER_INDEX_UNIT, LEDGER_INDEX_UNIT);
}
void ledger_index_unit_encode(uint8_t unit[LEDGER_INDEX_UNIT], const struct ledger_entry *entry);

/* Adds a term that begins at index unless it is the last one already. 0 or ERROR_NO_MEMORY. */
int ledger_terms_add(struct ledger_terms *terms, uint64_t term, uint64_t index);
/* How many rows begin at index or before it: the last of them tells its term. */
size_t ledger_terms_until(const struct ledger_terms *terms, uint64_t index);
/* Completes a table that begins later than the log, from the entries. 0 or ERROR_NO_MEMORY. */
int ledger_find_terms(struct ledger *ledger);
/* Notes that first..last are damaged. */
void ledger_add_hole(struct ledger *ledger, uint64_t first, uint64_t last, uint64_t position, uint64_t end);
/* Entries from `from` on to the hole of `first` are proved by what fills it. */
void ledger_doubt_before(struct ledger *ledger, uint64_t first, uint64_t from);
/* Forgets holes from first_removed on. */
void ledger_cut_holes(struct ledger *ledger, uint64_t first_removed);
/* Forgets holes before position, which has been removed. */
void ledger_trim_holes(struct ledger *ledger, uint64_t position);
/* Makes every segment that should be there whole again, with zeros for what is missing. *lost: where nothing stands behind them, they look like the
 * log's end. */
int ledger_complete_files(struct ledger *ledger, uint64_t segment_size, const struct checkpoint *checkpoint, const struct ledger_repairs *repairs, bool *lost,
                          struct error *error);
/* Last index before segment_end of entries first..last_index, of which the first is before it, and where that one ends. False: damage hides it. */
bool ledger_last_in_segment(const struct ledger *ledger, uint64_t first, uint64_t segment_end, uint64_t *last, uint64_t *end);

extern const uint8_t *const ledger_zeros; /* LEDGER_ZEROS_SIZE of them */
#define LEDGER_ZEROS_SIZE (256u << 10)

#endif
