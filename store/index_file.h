/* One file of the key index: a hash table of slots whose chains run through entries in the order of arrival.
 *
 * Follows org.apache.rocketmq.store.index.IndexFile and IndexHeader 4.9.8 (spec: store.md 3.3):
 *
 *     0 header 40 | 40 slots x 4 | entry 0 (unused by Java) | entry 1 | entry 2 ...   20 bytes each
 *
 * Unlike Java: the first entry of a file has time difference 0 also when the file took its begin time over from the one before (Java adds the gap
 * between both to it), and entry 0 holds {boot id 8, whole 4, zero 8}: who wrote last to this file, so that a start knows whether slots and header
 * can be believed (same boot, or a clean stop) or have to be made anew from the entries.
 * To change this: it is RocketMQ's format, so do not; the mark in entry 0 may change when recovery takes an unknown one for "not to be believed".
 */
#ifndef LEDGERMQ_STORE_INDEX_FILE_H
#define LEDGERMQ_STORE_INDEX_FILE_H

#include "proto/error.h"
#include "store/env.h"

#define INDEX_HEADER_SIZE 40u
#define INDEX_SLOT_SIZE 4u
#define INDEX_ENTRY_SIZE 20u

struct index_file {
    struct env *env;
    char *path;
    uint8_t *map;
    uint64_t size;
    uint32_t slots;   /* hash slots */
    uint32_t entries; /* places, entry 0 included: the capacity is one less */

    /* The header's fields; written through on every put. */
    int64_t begin_timestamp_ms;
    int64_t end_timestamp_ms;
    int64_t begin_physical_offset;
    int64_t end_physical_offset;
    uint32_t slot_count; /* slots ever used */
    uint32_t count;      /* number of the next entry, starts at 1 */

    uint32_t reserved;   /* entries before this one have disk blocks */
    uint32_t reserve_at; /* the disk was full: no reservation ahead before this entry */
    uint32_t synced;     /* entries before this one are durable */
    bool slots_dirty;    /* slots changed since the whole file was last synced */
    bool whole;          /* marked as whole on disk: taken back before the next put */
    bool dir_dirty;      /* the name is not durable yet */
    bool sealed;         /* takes no more entries, though it is not full */
    bool doubtful;       /* its header did not fit its entries when it was opened */
    uint32_t pins;       /* jobs that hold the mapping */
    bool dropped;
};

static inline uint64_t index_file_size(uint32_t slots, uint32_t entries)
{
    return INDEX_HEADER_SIZE + (uint64_t)slots * INDEX_SLOT_SIZE + (uint64_t)entries * INDEX_ENTRY_SIZE;
}
static inline bool index_file_is_full(const struct index_file *file)
{
    return file->sealed || file->count >= file->entries;
}

/* Makes a file: full length, sparse, blocks of the slots reserved. ERROR_NO_SPACE, ERROR_IO, ERROR_EXISTS, ERROR_NO_MEMORY. */
int index_file_create(struct index_file **file, struct env *env, const char *path, uint32_t slots, uint32_t entries, struct error *error);
/* Opens one; where the header does not fit the entries its fields are taken from those, as far as they tell. Of the newest nothing else is believed
 * before index_file_recover(). ERROR_DAMAGED: another size. ERROR_IO, ERROR_NO_MEMORY. */
int index_file_open(struct index_file **file, struct env *env, const char *path, uint32_t slots, uint32_t entries, struct error *error);
void index_file_close(struct index_file *file);
/* Closes; the mapping goes with the last pin. */
void index_file_drop(struct index_file *file);
/* The same, and unlinks. */
int index_file_remove(struct index_file *file, struct error *error);
void index_file_unpin(struct index_file *file);

/* Newest file after a start: removes all entries whose record is at or behind physical_offset, exactly, and leaves header and slots whole. Undoes
 * the newest entries one by one when slots can be believed, else builds the slots anew. time_of gives a record's store time, -1 when unknown.
 * *damaged: entries in the middle are broken, so records before physical_offset are lacking behind *last_good (-1: all of them). With `cut` the file now
 * ends there, else those entries stay: call again. */
int index_file_recover(struct index_file *file, int64_t physical_offset, int64_t (*time_of)(void *argument, int64_t physical_offset),
                       void *argument, bool cut, bool *damaged, int64_t *last_good, struct error *error);

/* An older file after a start: writes the header anew when it cannot be right. Reads two records at the most. */
void index_file_check_header(struct index_file *file, int64_t (*time_of)(void *argument, int64_t physical_offset), void *argument);

/* Takes begin and end over from the file before it. */
void index_file_inherit(struct index_file *file, const struct index_file *previous);
/* Makes sure that the next `count` puts cannot meet a full disk (at most up to the capacity). 0, ERROR_NO_SPACE, ERROR_IO. */
int index_file_reserve(struct index_file *file, uint32_t count);
/* Adds one entry. The caller has reserved it, and the file is not full. */
void index_file_put(struct index_file *file, uint32_t key_hash, int64_t physical_offset, int64_t store_timestamp_ms);

/* What an entry holds. */
struct index_entry {
    uint32_t hash;
    int64_t physical_offset;
    int32_t seconds; /* store time behind the file's begin */
    uint32_t previous;
};
void index_entry_decode(const uint8_t bytes[INDEX_ENTRY_SIZE], struct index_entry *entry);
int32_t index_entry_seconds(int64_t begin_timestamp_ms, int64_t store_timestamp_ms);
/* The header as it lies on the disk: {begin, end} times and offsets, and count. */
struct index_header {
    int64_t begin_timestamp_ms, end_timestamp_ms;
    int64_t begin_physical_offset, end_physical_offset;
    uint32_t slot_count, count;
};
void index_header_decode(const uint8_t bytes[INDEX_HEADER_SIZE], struct index_header *header);

/* True when records between the two times may be in here. */
bool index_file_overlaps(const struct index_file *file, int64_t begin_ms, int64_t end_ms);
/* Walks the chain of a key from the newest entry on. Start with *at = 0; false at the end (*at is then 0 again). Times are whole seconds after the file's begin: what
 * may lie between begin_ms and end_ms is returned, the caller looks at the record. steps counts entries looked at, down to 0. */
bool index_file_next(const struct index_file *file, uint32_t key_hash, int64_t begin_ms, int64_t end_ms, uint32_t *at, uint32_t *steps,
                     int64_t *physical_offset);

/* Marks the file as whole and syncs all of it (clean stop, or a full file). Blocks. */
int index_file_sync_whole(struct index_file *file);
/* Bytes of the map that hold something: header, slots and the entries in front of `count`. */
uint64_t index_file_used(const struct index_file *file, uint32_t count);

#endif
