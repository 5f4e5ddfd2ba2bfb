/* What `mqadmin backup` reads: the manifest that a member would get which has nothing (replica_serve.c), and beside it what a first start needs to know.
 * The log's beginning may be decided to go meanwhile: minimums advance as ever, only its files stay here until they were read, or nobody has asked for
 * REPLICA_SERVE_IDLE_US. Another leader, or this one after a restart, knows nothing of it; what was removed before it was read fails the backup.
 */
#include <stdlib.h>

#include "dledger/dledger_commit_log.h"
#include "dledger/replica_internal.h"
#include "store/checkpoint.h"
#include "store/log_sink.h"

static void let_go_of_metadata(struct replica_backup *of)
{
    buffer_close(&of->metadata);
    buffer_init(&of->metadata, 0);
}

static void end(struct replica_backup *of)
{
    of->id = 0;
    let_go_of_metadata(of);
}

static int fill_checkpoint(struct replica *replica, const struct replica_manifest *manifest, struct buffer *file)
{
    struct checkpoint *checkpoint = malloc(sizeof *checkpoint);
    int rv;

    if (checkpoint == NULL)
        return ERROR_NO_MEMORY;
    *checkpoint = replica->checkpoint;
    replica_fill_checkpoint(replica, checkpoint);
    ledger_fill_checkpoint_of_copy(&replica->ledger, (int64_t)manifest->last, checkpoint);
    rv = checkpoint->committed_index == (int64_t)manifest->last ? 0 : ERROR_DAMAGED;
    checkpoint->dispatched_position = checkpoint->synced_dispatched_position = 0; /* queues are made anew */
    checkpoint->snapshot_index = (int64_t)manifest->last;
    checkpoint->begin_index = (int64_t)manifest->first;
    checkpoint->begin_position = manifest->first_position;
    checkpoint->boot_id = 0; /* of no boot */
    checkpoint->incarnation = 0;
    checkpoint->clean = true;
    checkpoint->forgot = false;
    if (rv == 0)
        rv = checkpoint_image(checkpoint, file);
    free(checkpoint);
    return rv;
}

int replica_backup_begin(struct replica *replica, struct dledger_backup *backup, struct error *error)
{
    struct replica_backup *of = &replica->backup;
    struct replica_manifest manifest;
    uint64_t now = replica_now_us(replica);

    if (of->id != 0 && now < of->used_us + REPLICA_SERVE_BUSY_US)
        return error_set(error, ERROR_BUSY, "another backup is being read: try again when it is done");
    end(of);
    if (!replica_make_manifest(replica, &manifest, &of->metadata)) {
        end(of);
        return error_set(error, ERROR_DAMAGED, "the first entry of the log cannot be read, or memory is short for a metadata snapshot: try again in a while");
    }
    *of = (struct replica_backup){
        .id = (++replica->serve_ids ^ (env_random(replica->env) << 16)) & INT64_MAX,
        .position = manifest.first_position,
        .end_position = manifest.end_position,
        .used_us = now,
        .metadata = of->metadata,
    };
    backup->id = of->id;
    backup->segment_size = replica->ledger.data.file_size;
    backup->first_position = manifest.first_position;
    backup->end_position = manifest.end_position;
    backup->first_index = (int64_t)manifest.first;
    backup->last_index = (int64_t)manifest.last;
    backup->first_header_crc = manifest.first_crc;
    backup->term = replica->ledger.last_term > replica->votes.term ? replica->ledger.last_term : replica->votes.term;
    backup->metadata_size = of->metadata.size;
    backup->metadata_crc = crc32c(0, of->metadata.data, of->metadata.size);
    if (!replica_append_member_ids(replica, &backup->members)) { /* every restore would refuse a backup of nobody */
        end(of);
        return error_set(error, ERROR_NO_MEMORY, "memory is short for the list of members: try again in a while");
    }
    int rv = fill_checkpoint(replica, &manifest, &backup->checkpoint);
    if (rv != 0) {
        end(of);
        return error_set(error, rv, "%s", error_text(rv));
    }
    LOG_INFO("a backup of entries %llu to %llu begins", (unsigned long long)manifest.first, (unsigned long long)manifest.last);
    return 0;
}

int replica_backup_metadata(struct replica *replica, uint64_t id, uint64_t offset, size_t size, struct slice *piece)
{
    struct replica_backup *of = &replica->backup;

    if (id == 0 || of->id != id || offset >= of->metadata.size)
        return ERROR_NOT_FOUND;
    of->used_us = replica_now_us(replica);
    *piece = slice_of(of->metadata.data + offset, size < of->metadata.size - offset ? size : of->metadata.size - offset);
    return 0;
}

void replica_backup_has_read(struct replica *replica, uint64_t id, uint64_t position)
{
    struct replica_backup *of = &replica->backup;

    if (id == 0 || of->id != id)
        return;
    let_go_of_metadata(of); /* it is read first */
    of->used_us = replica_now_us(replica);
    if (position > of->position)
        of->position = position;
    if (of->position >= of->end_position) {
        LOG_INFO("the backup was read up to its end, position %llu", (unsigned long long)of->end_position);
        end(of);
    }
}

void replica_backup_give_up(struct replica *replica, uint64_t id)
{
    if (id == 0 || replica->backup.id != id)
        return;
    LOG_WARN("a backup was given up by who made it, at position %llu of %llu", (unsigned long long)replica->backup.position,
             (unsigned long long)replica->backup.end_position);
    end(&replica->backup);
}

bool replica_backup_holds(const struct replica *replica, uint64_t position)
{
    return replica->backup.id != 0 && replica->backup.position < position;
}

void replica_backup_tick(struct replica *replica, uint64_t now)
{
    if (replica->backup.id == 0 || now < replica->backup.used_us + REPLICA_SERVE_IDLE_US)
        return;
    LOG_WARN("a backup was given up: nothing of it was read for %u s", REPLICA_SERVE_IDLE_US / 1000000);
    end(&replica->backup);
}

void replica_backup_close(struct replica *replica)
{
    end(&replica->backup);
}
