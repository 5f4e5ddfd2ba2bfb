/* The file `backup` of a backup: what of the log it holds, and name, size and checksum of each of its files. It is written last, so a folder without it is
 * no backup.
 *
 *     ledgermq-backup 2
 *     group broker-a
 *     ...                                   (the rows of backup_manifest.c)
 *     file <crc32c> <size> <name>           for each file
 *     crc32c <of all bytes before this line>
 *
 * Version 1 had no such file: vote, checkpoint and data/ alone, of a log that begins at 0. First and last line stay as they are in all versions to come.
 * To change: bump BACKUP_VERSION, keep the reader of the old form, add a golden file.
 */
#ifndef LEDGERMQ_PROTO_BACKUP_MANIFEST_H
#define LEDGERMQ_PROTO_BACKUP_MANIFEST_H

#include "proto/buffer.h"

#define BACKUP_VERSION 2u
#define BACKUP_MANIFEST_NAME "backup"
#define BACKUP_MANIFEST_MAX (64u << 20)

struct backup_manifest {
    struct slice group;   /* borrowed */
    struct slice members; /* borrowed: ids, with ; between them */
    int64_t segment_size;
    int64_t first_index, last_index; /* DLedger indexes of the first and the last entry */
    int64_t first_position, end_position;
    int64_t first_header_crc; /* of the first entry's header: the chain before it is gone */
    int64_t term;             /* no member votes in it, or before it, once it was restored */
    struct slice files;       /* borrowed, out: for backup_manifest_next_file() */
};

struct backup_file {
    struct slice name; /* borrowed, in the backup's folder */
    uint64_t size;
    uint32_t crc; /* CRC32C of its bytes */
};

void backup_manifest_begin(struct buffer *out, const struct backup_manifest *manifest);
void backup_manifest_file(struct buffer *out, const char *name, uint64_t size, uint32_t crc);
void backup_manifest_end(struct buffer *out);

/* 0; ERROR_DAMAGED; ERROR_VERSION: whole, of another version, which *version tells. */
int backup_manifest_read(struct slice text, struct backup_manifest *manifest, uint32_t *version);
/* False at the end. */
bool backup_manifest_next_file(struct backup_manifest *manifest, struct backup_file *file);
/* Bytes that the file of the log beginning at `start` has in a backup: the last one ends where the log does. */
int64_t backup_manifest_segment_bytes(const struct backup_manifest *manifest, int64_t start);

#endif
