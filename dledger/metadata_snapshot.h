/* The metadata snapshot on disk: two files that are written in turn, the newest good one counts.
 *
 *     0 magic 4 | 4 version 4 | 8 DLedger index 8 | 16 size of the body 8 | 24 CRC32C of bytes 0-23 and the body 4 | 28 body (MetadataSnapshot)
 *
 * To change: bump METADATA_SNAPSHOT_VERSION, keep the reader of the old form.
 */
#ifndef LEDGERMQ_DLEDGER_METADATA_SNAPSHOT_H
#define LEDGERMQ_DLEDGER_METADATA_SNAPSHOT_H

#include "proto/buffer.h"
#include "proto/error.h"
#include "store/env.h"

#define METADATA_SNAPSHOT_VERSION 1u

/* Begins a file in `file`; the body is appended by the caller; _end fixes size and CRC. ERROR_NO_MEMORY. */
int metadata_snapshot_begin(struct buffer *file, int64_t index);
int metadata_snapshot_end(struct buffer *file);
/* Is this a whole and good file of that index? */
bool metadata_snapshot_is_good(struct slice file, int64_t index);
/* Path of the file to be written next: one that is missing or bad, else that which does not hold the snapshot of current_index. Reads both files. */
void metadata_snapshot_path(struct env *env, const char *dir, int64_t current_index, char *out, size_t size);
/* Writes a whole file and syncs it. Any thread. */
int metadata_snapshot_write(struct env *env, const char *path, struct slice file, struct error *error);
/* Do both files, as they are read now, hold good snapshots that reach index? Any thread. */
bool metadata_snapshot_both_reach(struct env *env, const char *dir, int64_t index);
/* Removes snapshots of entries behind index_max. After a power cut they can be all that is left of entries that the log has lost; in class A others
 * may come to stand at their indexes, and what the snapshot says would pass for theirs. ERROR_IO. */
int metadata_snapshot_forget(struct env *env, const char *dir, int64_t index_max, struct error *error);
/* Loads the body of the newest good snapshot whose index is at most index_max; *index = -1 when there is none. ERROR_IO. */
int metadata_snapshot_load(struct env *env, const char *dir, int64_t index_max, struct buffer *body, int64_t *index, struct error *error);

#endif
