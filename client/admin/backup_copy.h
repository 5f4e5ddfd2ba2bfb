/* What `mqadmin backup` does, over any broker and any disk: a group's log is copied into a new folder.
 *
 *  1. The leader says where the copy begins and ends, and gives the checkpoint of its end.
 *  2. Its metadata snapshot is read, then the log, from the oldest entry on, a portion at a time, into files like the broker's.
 *  3. Every entry is checked as a start would check it: place, chain and checksum.
 *  4. The manifest is written. What has none is no backup: when something fails, all that was written is removed.
 *
 * Answers are waited for, and what may be cured by trying again is tried again.
 */
#ifndef LEDGERMQ_CLIENT_ADMIN_BACKUP_COPY_H
#define LEDGERMQ_CLIENT_ADMIN_BACKUP_COPY_H

#include "client/admin/backup_files.h"
#include "client/remoting_client.h"
#include "proto/backup_manifest.h"
#include "proto/error.h"

#define BACKUP_PORTION_MAX (1u << 20) /* bytes that a broker gives at a time */

struct backup_source {
    void *context;
    const char *address; /* for what is told */
    /* One request to that broker. 0: *answer, of any code, is there until the next call. Else error says why nothing came. */
    int (*invoke)(void *context, int32_t code, const struct remoting_field *fields, struct remoting_command *answer, struct error *error);
    void (*pause)(void *context, int ms);
};

struct backup_copy {
    const struct backup_files *files;
    const struct backup_source *source;
    const char *folder; /* a new one */
    uint32_t portion;   /* up to BACKUP_PORTION_MAX */

    /* ---- private, but for what the manifest says when it is done ---- */
    struct backup_manifest manifest;
    int64_t id, metadata_size, metadata_crc;
    struct buffer text;  /* the manifest as it is written */
    struct buffer names; /* of the group and its members, to which the manifest points */
    struct error *error;
};

/* 0: the backup is whole, checked and durable. Else there is none; what of it cannot be removed is told too. */
int backup_copy_make(struct backup_copy *copy, struct error *error);
void backup_copy_close(struct backup_copy *copy);

#endif
