/* What a copy of the log needs beside it, so that members of a fresh group can start with it. Nothing of it is on the disk: a vote is of its member. */
#include <stdlib.h>

#include "dledger/dledger_commit_log.h"
#include "dledger/replica_internal.h"
#include "store/checkpoint.h"

int replica_backup(struct replica *replica, struct dledger_backup *backup, struct error *error)
{
    struct checkpoint *checkpoint;
    int rv;

    if (mapped_file_queue_begin(&replica->ledger.data) > 0)
        return error_set(error, ERROR_INVALID, "the beginning of the log has been removed, and topics, groups and offsets of then are not part of a backup yet");
    checkpoint = malloc(sizeof *checkpoint);
    if (checkpoint == NULL)
        return error_set(error, ERROR_NO_MEMORY, "%s", error_text(ERROR_NO_MEMORY));
    *checkpoint = replica->checkpoint;
    replica_fill_checkpoint(replica, checkpoint);
    checkpoint->dispatched_position = checkpoint->synced_dispatched_position = 0; /* queues are made anew */
    checkpoint->snapshot_index = -1;
    checkpoint->boot_id = 0; /* of no boot */
    checkpoint->incarnation = env_random(replica->env) | 1;
    checkpoint->clean = true;
    checkpoint->forgot = false;
    backup->end_position = replica->applied_end;
    backup->segment_size = replica->ledger.data.file_size;
    backup->index = (int64_t)replica->applied - 1;
    rv = checkpoint_image(checkpoint, &backup->checkpoint);
    if (rv == 0)
        rv = vote_file_image(replica->ledger.last_term > replica->votes.term ? replica->ledger.last_term : replica->votes.term, &backup->vote);
    free(checkpoint);
    return rv == 0 ? 0 : error_set(error, rv, "%s", error_text(rv));
}
