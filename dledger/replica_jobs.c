/* Work that blocks, handed out through replica_io and taken back when it has been done: syncs of the log, room ahead of its end, checkpoints
 * with their metadata snapshots. At most one of each kind is out.
 */
#include "dledger/replica_internal.h"

#include <stdio.h>
#include <string.h>

#include "dledger/metadata_snapshot.h"
#include "store/log_sink.h"

int replica_sync_now(struct replica *replica, struct error *error)
{
    struct ledger_sync sync;

    while (ledger_sync_next(&replica->ledger, &sync)) {
        ledger_sync_run(&sync);
        replica->fdatasync_count += (uint64_t)sync.count;
        ledger_sync_done(&replica->ledger, &sync);
        if (sync.result != 0) {
            *error = replica->ledger.failure;
            return ERROR_IO;
        }
    }
    return 0;
}

static void hand_to_sync(struct replica *replica)
{
    replica->syncing = true;
    replica->sync_started_us = replica_now_us(replica);
    replica_slow_sync_begins(replica);
    replica->io.sync(replica->io.context, &replica->sync);
}

void replica_start_sync(struct replica *replica)
{
    struct raft_driver *driver = &replica->driver;

    if (replica->syncing || !driver->started || driver->failed)
        return;
    if (replica->options.durability == DURABILITY_A) {
        /* Nobody waits for it: a checkpoint may only claim what is durable, and starts are short when it is young. */
        if (replica_now_us(replica) < replica->lazy_sync_due_us || !ledger_sync_next(&replica->ledger, &replica->sync))
            return;
        replica->lazy_sync_due_us = replica_now_us(replica) + REPLICA_CHECKPOINT_MS * 1000ull;
        hand_to_sync(replica);
        return;
    }
    if (driver->raft.last_stored >= raft_driver_last(driver))
        return;
    if (!ledger_sync_next(&replica->ledger, &replica->sync)) {
        /* All of it is durable, or the ledger has failed and syncs nothing any more: only what it vouches for counts. */
        raft_driver_persisted(driver, (raft_index)(replica->ledger.synced_index + 1));
        return;
    }
    hand_to_sync(replica);
}

void replica_synced(struct replica *replica)
{
    int64_t durable;

    replica_slow_sync_ends(replica);
    replica->syncing = false;
    replica->fdatasync_count += (uint64_t)replica->sync.count;
    durable = ledger_sync_done(&replica->ledger, &replica->sync);
    if (replica->sync.result != 0)
        replica_fail(replica, &replica->ledger.failure);
    else
        raft_driver_persisted(&replica->driver, (raft_index)(durable + 1));
}

void replica_note_room(struct replica *replica)
{
    int result = replica->ledger.reserve_result;

    if (result != 0 && !replica->reserve_failed)
        LOG_ERROR("ledger in %s: no room can be reserved: %s; sends are refused until there is", replica->dir, strerror(-result));
    if (result == 0 && replica->reserve_failed)
        LOG_INFO("ledger in %s: there is room again", replica->dir);
    replica->reserve_failed = result != 0;
    replica->reserve_errno = -result;
}

bool replica_is_full(const struct replica *replica)
{
    /* Entries that are small use up the index before the data. */
    return replica->apply_stalled ||
           (replica->reserve_failed && (replica->ledger.end_position + LEDGER_ENTRY_SIZE_MAX + replica_kept_for_trim(replica) >= replica->ledger.reserved_end ||
                                        ledger_entries_ahead(&replica->ledger) < REPLICA_SUBMIT_MAX));
}

void replica_start_reserve(struct replica *replica)
{
    if (replica->ledger.reserving || replica->phase == REPLICA_FAILED)
        return;
    if (ledger_reservation_next(&replica->ledger, &replica->reservation))
        replica->io.reserve(replica->io.context, &replica->reservation);
    else if (replica->ledger.failed)
        replica_fail(replica, &replica->ledger.failure);
    else
        replica_note_room(replica);
    if (replica->reserve_failed)
        replica->reserve_retry_us = replica_now_us(replica) + 250000;
}

void replica_reserved(struct replica *replica)
{
    ledger_reservation_done(&replica->ledger, &replica->reservation);
    replica_note_room(replica);
    if (replica->ledger.failed)
        replica_fail(replica, &replica->ledger.failure);
}

void replica_save_run(struct replica_save *save)
{
    save->result = 0;
    if (save->with_sync) {
        message_store_sync_run(&save->sync);
        if (save->sync.result == 0)
            save->checkpoint.synced_dispatched_position = save->sync_position;
    } else {
        message_store_sum_run(&save->sync);
    }
    if (save->with_snapshot) {
        char path[512];
        metadata_snapshot_path(save->env, save->dir, save->snapshot_before, path, sizeof path);
        save->result = metadata_snapshot_write(save->env, path, buffer_slice(&save->snapshot), &save->error);
    }
    if (save->result == 0) {
        if (save->with_snapshot)
            save->checkpoint.snapshot_index = save->snapshot_index;
        save->result = checkpoint_save(&save->checkpoint, save->env, save->checkpoint_path, &save->error);
    }
    if (save->result == 0 && save->trim_path[0] != '\0')
        replica_trim_run(save);
}

void replica_fill_checkpoint(struct replica *replica, struct checkpoint *checkpoint)
{
    const struct ledger *ledger = &replica->ledger;
    int64_t committed = (int64_t)replica->applied - 1;

    /* What a start knows to be committed stays known while damage keeps it from being applied: else the next start would take the damage for a write that
     * was interrupted, and cut it. */
    if (committed < replica->known_committed)
        committed = replica->known_committed;
    if (committed > ledger->last_index)
        committed = ledger->last_index;
    checkpoint->present = true;
    checkpoint->boot_id = replica->env->ops->boot_id(replica->env);
    checkpoint->durability = (uint8_t)replica->options.durability;
    checkpoint->dispatched_position = replica->applied_end;
    uint64_t known_position = checkpoint->begin_position;
    int64_t known_index = checkpoint->begin_index;
    ledger_fill_checkpoint(ledger, committed, checkpoint);
    replica_fill_begin(replica, known_position, known_index, checkpoint);
    /* Damage up to the last committed entry: behind what is left to say about the log it may look like such a write too. */
    bool less = ledger_hole_of(ledger, (uint64_t)committed) != NULL || (checkpoint->committed_index < 0 && committed >= ledger->begin_index && ledger->synced_index >= ledger->begin_index);
    if (replica->phase == REPLICA_RUNNING && !replica->begins_anew)
        checkpoint->forgot = less;
    else
        checkpoint->forgot = checkpoint->forgot || less;
    if (replica->configuration_index > 0 && replica->configuration.size <= sizeof checkpoint->configuration && !replica->ends_early) {
        checkpoint->configuration_index = replica->configuration_index - 1;
        checkpoint->configuration_size = (uint32_t)replica->configuration.size;
        memcpy(checkpoint->configuration, replica->configuration.data, replica->configuration.size);
    }
}

/* Hands checkpoint (and snapshot if it is due or asked for) to the pool. */
void replica_start_save(struct replica *replica, bool with_snapshot)
{
    struct replica_save *save = &replica->save;

    if (replica->saving)
        return;
    replica_fill_checkpoint(replica, &replica->checkpoint);
    save->env = replica->env;
    checkpoint_copy(&save->checkpoint, &replica->checkpoint);
    replica_path(replica, "checkpoint", save->checkpoint_path, sizeof save->checkpoint_path);
    save->dir = replica->dir;
    save->with_snapshot = false;
    /* A second one of the same entry goes to the other file: either of them has to do for a start. */
    bool again = replica_trim_wants_snapshot(replica);
    /* Whoever applies what the others have may be ahead of its own disk. The older one gives way when the newer one is of what would survive a power cut. */
    bool may = replica->snapshot_index <= replica->ledger.synced_index;
    if (may && ((with_snapshot && (int64_t)replica->applied - 1 > replica->snapshot_index) || again)) {
        save->snapshot_index = (int64_t)replica->applied - 1;
        save->snapshot_position = replica->applied_end;
        save->snapshot_before = replica->snapshot_index;
        buffer_clear(&save->snapshot);
        save->with_snapshot = metadata_snapshot_begin(&save->snapshot, save->snapshot_index) == 0 &&
                              replica->callbacks.snapshot(replica->callbacks.context, (uint64_t)save->snapshot_index, &save->snapshot) == 0 &&
                              metadata_snapshot_end(&save->snapshot) == 0;
    }
    /* Making queues durable is for the start after a power cut only: seldom, so that it does not compete with the log's syncs. */
    save->with_sync = !replica->stopping && replica_now_us(replica) >= replica->store_sync_due_us &&
                      message_store_sync_begin(replica->store, &save->sync) == 0;
    save->sync_position = replica->applied_end;
    if (!save->with_sync)
        message_store_sum_begin(replica->store, &save->sync);
    if (save->with_sync)
        replica->store_sync_due_us = replica_now_us(replica) + REPLICA_STORE_SYNC_MS * 1000ull;
    replica_trim_plan(replica, save);
    replica->saving = true;
    replica->idle_sync_us = 0;
    replica->checkpoint_dirty = false;
    replica->io.save(replica->io.context, save);
}

void replica_saved(struct replica *replica)
{
    struct replica_save *save = &replica->save;

    replica->saving = false;
    replica->checkpoint.sequence = save->checkpoint.sequence;
    replica->checkpoint.synced_dispatched_position = save->checkpoint.synced_dispatched_position;
    if (save->with_sync)
        message_store_sync_end(replica->store, &save->sync);
    save->with_sync = false;
    replica_forget_queues(replica);
    replica_trim_queues(replica);
    if (save->result != 0) {
        /* A lost checkpoint costs time at the next start, not data. */
        LOG_ERROR("checkpoint in %s: %s", replica->dir, save->error.message);
        replica->checkpoint_dirty = true;
        return;
    }
    bool log_behind = save->checkpoint.committed_index + 1 < (int64_t)replica->applied && replica->ledger.hole_count == 0;
    if (!replica->stopping && !replica->store->sync_broken && (save->checkpoint.synced_dispatched_position < replica->applied_end || log_behind))
        replica->idle_sync_us = replica_now_us(replica) + REPLICA_IDLE_MS * 1000ull;
    if (save->with_snapshot) {
        replica->older_snapshot_index = replica->snapshot_index;
        replica->snapshot_index = save->snapshot_index;
        replica->snapshot_position = save->snapshot_position;
        replica->checkpoint.snapshot_index = save->snapshot_index;
        buffer_close(&save->snapshot);
        buffer_init(&save->snapshot, 0);
    }
    replica->durable_committed = save->checkpoint.committed_index;
    if (save->trim_path[0] != '\0')
        replica_trimmed(replica, save);
    if (replica_trim_pending(replica))
        replica->checkpoint_dirty = true;
    if (replica->configuration_index > 0)
        raft_driver_move_trail(&replica->driver, (raft_index)(save->checkpoint.committed_index + 1), buffer_slice(&replica->configuration),
                               replica->configuration_index);
}
