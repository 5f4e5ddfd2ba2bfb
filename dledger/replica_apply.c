/* Committed entries, in log order, on every node: into queues and tables, then the answers to those who wait for them. */
#include "dledger/replica_internal.h"

#include "store/log_sink.h"
#include "store/seeded_bug.h"

/* False: stop (nothing could be applied now). */
static bool apply_one(struct replica *replica)
{
    struct mapped_file_queue *data = &replica->ledger.data;
    raft_index index = replica->applied + 1;
    uint64_t position = replica->applied_end;
    bool replay = (int64_t)index - 1 <= replica->snapshot_index;
    struct dledger_callbacks *callbacks = &replica->callbacks;
    struct ledger_entry entry;
    struct error error;
    const uint8_t *bytes;
    struct slice body;

    if (index <= replica->found_last && replica->driver_ready && replica_group_size(replica) > 1) {
        /* Damage kept it from being applied at the start, and that is some time ago. */
        ledger_verify(&replica->ledger, index - 1, index - 1, 1);
        if (ledger_hole_of(&replica->ledger, index - 1) != NULL) {
            replica_repair_start(replica);
            return false;
        }
    }
    bytes = mapped_file_queue_at(data, position, LEDGER_BLANK_SIZE);
    if (bytes == NULL || ledger_is_blank(bytes))
        position = position - position % data->file_size + (position % data->file_size == 0 ? 0 : data->file_size);
    bytes = mapped_file_queue_at(data, position, LEDGER_ENTRY_HEADER_SIZE);
    if (bytes == NULL || ledger_entry_decode(&entry, bytes) != 0 || entry.index != index - 1 || entry.position != position ||
        mapped_file_queue_at(data, position, ledger_entry_size(&entry)) == NULL) {
        if (replica_group_size(replica) > 1 && bytes != NULL) {
            ledger_verify(&replica->ledger, index - 1, index - 1, 1);
            if (ledger_hole_of(&replica->ledger, index - 1) != NULL) {
                replica_repair_start(replica);
                return false;
            }
        }
        error_set(&error, ERROR_DAMAGED, "ledger in %s: committed entry %llu at position %llu cannot be read", replica->dir,
                  (unsigned long long)(index - 1), (unsigned long long)position);
        replica_fail(replica, &error);
        return false;
    }
    body = slice_of(bytes + LEDGER_ENTRY_HEADER_SIZE, entry.body_size);
    switch (entry.kind) {
    case LEDGER_ENTRY_MESSAGE: {
        struct message_dispatch dispatch;
        int rv = message_store_dispatch(replica->store, body, &dispatch);
        if (rv == ERROR_NO_SPACE) {
            if (!replica->apply_stalled)
                LOG_ERROR("no room for queue files under %s: sends are refused until there is", replica->options.dir);
            replica->apply_stalled = true;
            replica->apply_retry_us = replica_now_us(replica) + REPLICA_APPLY_RETRY_MS * 1000ull;
            return false;
        }
        if (replica->apply_stalled && rv == 0) {
            LOG_INFO("there is room for queue files under %s again", replica->options.dir);
            replica->apply_stalled = false;
        }
        if (rv != 0) {
            replica->queues_unfit = rv == ERROR_DAMAGED;
            error_set(&error, rv, "entry %llu at position %llu does not fit the queues: %s%s", (unsigned long long)(index - 1), (unsigned long long)position,
                      error_text(rv), replica->queues_unfit ? "; start this node again, which makes all queues anew from the log" : "");
            replica_fail(replica, &error);
            replica_forget_queues(replica);
            return false;
        }
        callbacks->apply_message(callbacks->context, index - 1, &dispatch,
                                 slice_of(body.data + dispatch.size, body.size - dispatch.size), replay);
        break;
    }
    case LEDGER_ENTRY_METADATA:
        if (!SEEDED_BUG_NOW(RECORD_DROPPED, 20))
            callbacks->apply_metadata(callbacks->context, index - 1, body, replay);
        if (SEEDED_BUG_NOW(APPLY_TWICE, 20))
            callbacks->apply_metadata(callbacks->context, index - 1, body, replay);
        if (replica->phase == REPLICA_FAILED)
            return false; /* it is of a later version: it counts as not applied */
        break;
    case LEDGER_ENTRY_CONFIGURATION:
        if (index > replica->configuration_index) {
            replica->configuration_index = index;
            buffer_clear(&replica->configuration);
            buffer_append_slice(&replica->configuration, body);
        }
        raft_driver_apply_configuration(&replica->driver, index, body);
        break;
    case LEDGER_ENTRY_TRIM: {
        int rv = replica_apply_trim(replica, index, position, body);
        if (rv == ERROR_NO_SPACE) {
            replica->apply_stalled = true;
            replica->apply_retry_us = replica_now_us(replica) + REPLICA_APPLY_RETRY_MS * 1000ull;
            return false;
        }
        if (rv != 0) {
            error_set(&error, rv, "entry %llu at position %llu, which says where the log begins, cannot be applied: %s",
                      (unsigned long long)(index - 1), (unsigned long long)position, error_text(rv));
            replica_fail(replica, &error);
            return false;
        }
        replica->apply_stalled = false;
        break;
    }
    default: /* barriers, and raw entries: they have an index and their room in the log, and nothing else */
        break;
    }
    replica->applied = index;
    replica->applied_end = position + ledger_entry_size(&entry);
    replica->store->dispatched_offset = (int64_t)replica->applied_end;
    return true;
}

/* Applies up to target, then answers those who wait for it. True when something was applied. */
bool replica_apply(struct replica *replica, raft_index target, uint32_t count_max)
{
    raft_index before = replica->applied;
    uint32_t count = 0;

    if (target > raft_driver_last(&replica->driver))
        target = raft_driver_last(&replica->driver);
    for (uint32_t i = 0; i < replica->ledger.hole_count; i++) {
        if (replica->ledger.holes[i].last >= replica->applied && target > replica->ledger.holes[i].doubt)
            target = replica->ledger.holes[i].doubt; /* the one before it, in Raft's numbers */
    }
    if (replica->apply_stalled && replica_now_us(replica) < replica->apply_retry_us)
        return false;
    while (replica->applied < target && count < count_max && replica->phase != REPLICA_FAILED && apply_one(replica))
        count++;
    replica->more_to_apply = replica->applied < target && !replica->apply_stalled && ledger_hole_of(&replica->ledger, replica->applied) == NULL && replica->phase != REPLICA_FAILED;
    if (replica->applied == before)
        return false;
    replica->checkpoint_dirty = true;
    raft_index answered = SEEDED_BUG(EARLY_ANSWER) ? raft_driver_last(&replica->driver) : replica->applied;
    while (replica->pending_head != NULL && replica->pending_head->index < answered)
        replica_finish_first(replica, 0);
    return true;
}
