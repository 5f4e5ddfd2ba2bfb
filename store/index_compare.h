/* Whether the key index holds what the log says; what does not is made anew from the log.
 *
 * Whoever reads through the committed log (dledger/replica_scrub.c) gives the records here, piece by piece and in log order, and goes to another position when
 * it is told so. An index file is the same bytes whoever makes it from the same records. So the n-th key of the log must be the n-th entry, linked to
 * what its slot last pointed to; behind a file's last entry its slots must be what all its entries together say, and its header too. That needs one
 * look at each byte of the file, in order, however long its chains are.
 *
 * What differs is not mended in place: the keys of the range, from the end of the file in front to the begin of the file behind, go into a new file beside
 * it, "<name>.rebuild", which is synced and renamed over the damaged one. Queries go on with that one meanwhile: it may hide records, but a query looks
 * at each record itself, so it shows no wrong ones. A range that no file covers (a file is lost, or could not be made when its records came) is
 * filled in the same way.
 *
 * A piece goes through three steps: index_compare_begin() and index_compare_end() on the loop, index_compare_run() on any thread in between.
 */
#ifndef LEDGERMQ_STORE_INDEX_COMPARE_H
#define LEDGERMQ_STORE_INDEX_COMPARE_H

#include "proto/message.h"
#include "store/index_service.h"

struct index_compare; /* index_compare.c */

/* dispatched: the physical offset in front of which all records have been dispatched; recovered: ... were when this process began, which dispatches some of them
 * once more. Both are looked at on the loop. NULL: out of memory. */
struct index_compare *index_compare_new(struct env *env, struct index_service *service, const int64_t *dispatched, const int64_t *recovered);
/* Nobody may be in index_compare_run(). What was being made is removed. Before index_service_close(). */
void index_compare_free(struct index_compare *compare);

/* A record of the next piece, in log order. Any thread, before begin. 0, ERROR_NO_MEMORY. Records that dispatching gives no keys get none here. */
int index_compare_add(struct index_compare *compare, const struct message_dispatch *record);
/* Forgets the records that were added. */
void index_compare_clear(struct index_compare *compare);

/* The records that were added are all messages in [from, to), positions in the log; log_min: where it begins, what lies in front of that
 * need not be indexed any more. A piece that does not begin where the one
 * before it ended is fine. */
void index_compare_begin(struct index_compare *compare, uint64_t from, uint64_t to, uint64_t log_min);
/* May wait for the disk, some seconds when a file is synced. */
void index_compare_run(struct index_compare *compare);
/* True: the next piece should begin at *wanted, or at the begin of the entry that it lies in. Any other one is fine too, but then nothing is mended. */
bool index_compare_end(struct index_compare *compare, uint64_t *wanted);

/* A file is being made anew: the sooner the pieces come the better. */
bool index_compare_hurries(const struct index_compare *compare);
struct index_compare_counts {
    uint64_t damaged; /* files, and ranges without one, that were found so */
    uint64_t rebuilt; /* of those */
};
struct index_compare_counts index_compare_counts(const struct index_compare *compare);

#endif
