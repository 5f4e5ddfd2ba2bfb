/* What a start does with what was found on the disk:
 *
 *   1 the newest committed entries are checked, the metadata snapshot is restored
 *   2 the store is recovered and what it lacks is applied again
 *   3 the member runs at once, or waits for its group's first start, or is mute because it forgot something
 */
#include "dledger/replica_internal.h"

#include <stdio.h>

#include "dledger/metadata_snapshot.h"
#include "store/log_sink.h"
#include "store/seeded_bug.h"

/* The checkpoint holds the newest one of all that had been applied when it was made, so only entries behind both are looked at: a start does not read the
 * whole log for it. */
int replica_find_configuration(struct replica *replica, raft_index committed, struct error *error)
{
    const struct checkpoint *checkpoint = &replica->checkpoint;
    raft_index from = 1;

    replica->configuration_index = 0;
    buffer_clear(&replica->configuration);
    if (checkpoint->present && checkpoint->configuration_size > 0 && checkpoint->configuration_index + 1 <= committed) {
        replica->configuration_index = checkpoint->configuration_index + 1;
        buffer_append(&replica->configuration, checkpoint->configuration, checkpoint->configuration_size);
        from = replica->configuration_index + 1;
        if ((int64_t)from < replica->checkpoint_committed + 2)
            from = (raft_index)(replica->checkpoint_committed + 2);
    }
    if (from < (raft_index)replica->ledger.begin_index + 1)
        from = (raft_index)replica->ledger.begin_index + 1;
    for (raft_index i = from; i <= committed; i++) {
        struct ledger_entry entry;
        const uint8_t *bytes = ledger_entry(&replica->ledger, i - 1, &entry);
        if (bytes == NULL)
            continue;
        if (entry.kind == LEDGER_ENTRY_CONFIGURATION) {
            replica->configuration_index = i;
            buffer_clear(&replica->configuration);
            buffer_append(&replica->configuration, bytes + LEDGER_ENTRY_HEADER_SIZE, entry.body_size);
        }
        raft_index index;
        struct slice configuration;
        if (entry.kind == LEDGER_ENTRY_TRIM &&
            replica_trim_configuration(slice_of(bytes + LEDGER_ENTRY_HEADER_SIZE, entry.body_size), &index, &configuration) &&
            index > replica->configuration_index) {
            replica->configuration_index = index;
            buffer_clear(&replica->configuration);
            buffer_append_slice(&replica->configuration, configuration);
        }
    }
    if (replica->configuration_index == 0 || replica->configuration.failed)
        return error_set(error, ERROR_DAMAGED, "ledger: no group configuration at or below index %llu", committed - 1);
    return 0;
}

/* At once, on the loop: before the member runs no save is handed out. */
static int save_now(struct replica *replica, struct checkpoint *checkpoint, struct error *error)
{
    char path[512];

    replica_path(replica, "checkpoint", path, sizeof path);
    return checkpoint_save(checkpoint, replica->env, path, error);
}

int replica_save_in_both_slots(struct replica *replica, struct checkpoint *checkpoint, struct error *error)
{
    int rv = 0;

    for (int slot = 0; slot < 2 && rv == 0; slot++)
        rv = save_now(replica, checkpoint, error);
    return rv;
}

bool replica_save_forgot(struct replica *replica)
{
    struct error error;
    int rv;

    replica->checkpoint_dirty = true;
    if (replica->saving)
        return false; /* a job of the pool writes the file */
    replica_fill_checkpoint(replica, &replica->checkpoint);
    rv = replica->checkpoint.forgot ? replica_save_in_both_slots(replica, &replica->checkpoint, &error) : save_now(replica, &replica->checkpoint, &error);
    if (rv != 0)
        LOG_ERROR("checkpoint in %s: %s", replica->dir, error.message);
    else
        replica->checkpoint_dirty = false;
    return rv == 0;
}

int replica_start_driver(struct replica *replica, raft_index committed, struct error *error)
{
    int rv;

    if (committed == 0)
        committed = 1; /* entry 1 is the configuration that every member wrote at the first start */
    rv = replica_find_configuration(replica, committed, error);
    /* A mute member may have fetched entries of a term in which it never voted. */
    if (rv == 0 && replica->phase == REPLICA_MUTE && replica->votes.term < replica->ledger.last_term)
        rv = vote_file_save(&replica->votes, replica->ledger.last_term, 0, error);
    if (rv == 0)
        rv = replica_know_members(replica, committed, true, error);
    if (rv != 0 || replica->phase == REPLICA_REMOVED)
        return rv;
    rv = raft_driver_start(&replica->driver, committed, replica->configuration_index, buffer_slice(&replica->configuration), error);
    if (rv != 0)
        return rv;
    replica->phase = REPLICA_RUNNING;
    replica->mute_reason = PEER_NOT_MUTE;
    if (replica->checkpoint.forgot) {
        /* Else a restart would make it mute again and wait for everybody. */
        replica->checkpoint.forgot = false;
        replica_save_forgot(replica);
    }
    replica_forget_heard(replica);
    raft_driver_persisted(&replica->driver, raft_driver_last(&replica->driver));
    replica->io.hello_changed(replica->io.context);
    return 0;
}

/* The first start of the whole group: every member writes the same first entry. */
int replica_bootstrap(struct replica *replica, struct error *error)
{
    struct buffer run;
    struct buffer configuration;
    int rv;

    buffer_init(&run, 0);
    buffer_init(&configuration, 0);
    rv = replica_first_configuration(replica, &configuration);
    if (rv == 0 && buffer_reserve(&run, LEDGER_ENTRY_HEADER_SIZE + configuration.size) == NULL)
        rv = ERROR_NO_MEMORY;
    if (rv == 0 && replica->ledger.last_index < 0) {
        struct ledger_entry entry = {
            .term = 1,
            .kind = LEDGER_ENTRY_CONFIGURATION,
            .uncommitted = 1,
            .body_size = (uint32_t)configuration.size,
        };
        memcpy(run.data + LEDGER_ENTRY_HEADER_SIZE, configuration.data, configuration.size);
        ledger_entry_seal(&entry, run.data, 0);
        rv = ledger_append(&replica->ledger, run.data, ledger_entry_size(&entry), 1);
    }
    if (rv != 0)
        error_set(error, rv, "first start: %s", error_text(rv));
    if (rv == 0)
        rv = replica_sync_now(replica, error);
    if (rv == 0 && replica->votes.term == 0)
        rv = vote_file_save(&replica->votes, 1, 0, error);
    buffer_close(&run);
    buffer_close(&configuration);
    if (rv == 0)
        rv = replica_start_driver(replica, 0, error);
    if (rv == 0)
        LOG_INFO("first start of group %s with %d members", replica->options.group, replica->listed_count);
    replica->checkpoint_dirty = true;
    return rv;
}

/* Raft index of the first entry that ends behind position, last + 1 when there is none. */
raft_index replica_index_at(const struct replica *replica, uint64_t position)
{
    uint64_t low = (uint64_t)replica->ledger.begin_index;
    uint64_t high = (uint64_t)(replica->ledger.last_index + 1);

    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        uint64_t at, term;
        uint32_t size;
        const struct ledger_hole *hole = ledger_hole_of(&replica->ledger, middle);
        if (hole != NULL && hole->end <= position)
            low = middle + 1;
        else if (!ledger_locate(&replica->ledger, middle, &at, &size, &term) || at + size > position)
            high = middle;
        else
            low = middle + 1;
    }
    return low + 1;
}

static void begin_applying_at(struct replica *replica, raft_index first)
{
    uint64_t end = 0;
    uint32_t chain;

    replica->applied = first - 1;
    if (first > 1 && !ledger_end_of(&replica->ledger, first - 2, &end, &chain))
        end = mapped_file_queue_begin(&replica->ledger.data);
    replica->applied_end = end;
}

/* What opening did not verify because the checkpoint vouches for it, and what is read later without checksums: entries that are applied again, and
 * the newest committed ones. */
static int verify_recent(struct replica *replica, int64_t committed_index, raft_index again, struct error *error)
{
    struct ledger *ledger = &replica->ledger;
    uint64_t end = 0;
    uint32_t chain = 0;
    raft_index first = 1;

    if (committed_index < 0)
        return 0;
    if (ledger_end_of(ledger, (uint64_t)committed_index, &end, &chain) && end > REPLICA_VERIFY_BYTES)
        first = replica_index_at(replica, end - REPLICA_VERIFY_BYTES);
    if (first > again)
        first = again;
    ledger_verify(ledger, first - 1, (uint64_t)committed_index, UINT64_MAX);
    for (uint32_t i = 0; i < ledger->hole_count && (!replica_has_others(replica) || replica->options.force_start); i++) {
        char where[512];
        if (ledger->holes[i].last + 1 < first)
            continue; /* its messages cannot be read, the rest can */
        ledger_describe(ledger, ledger->holes[i].position, where, sizeof where);
        return error_set(error, ERROR_DAMAGED, "%s: committed entry %llu is damaged, and there is no other member to fetch it from: restore a backup (docs/operations.md)",
                         where, (unsigned long long)ledger->holes[i].first);
    }
    return 0;
}

static int save_positions(struct replica *replica, uint64_t limit, struct error *error)
{
    struct checkpoint *found = &replica->checkpoint;
    struct checkpoint *checkpoint = &replica->save.checkpoint;

    if (found->synced_dispatched_position > limit)
        found->synced_dispatched_position = limit;
    if (found->dispatched_position > limit)
        found->dispatched_position = limit;
    *checkpoint = *found;
    ledger_fill_checkpoint(&replica->ledger, found->committed_index, checkpoint);
    /* Damage up to the last committed entry: behind what is left to say about the log it may look like an interrupted write to the next start. */
    if (checkpoint->committed_index < found->committed_index)
        checkpoint->forgot = true;
    int rv = replica_save_in_both_slots(replica, checkpoint, error);
    found->sequence = checkpoint->sequence;
    return rv;
}

/* What is behind position in queues and index is made anew in this run: they do not reach further any more, and nothing behind is durable. Should this
 * process die, or the power fail, before they do again, it must not look so to the next start, which would take short queues for whole ones: the disk is
 * told before they are cut. In both slots, for whichever of them is lost later. */
static int lower_positions(void *context, int64_t position, struct error *error)
{
    struct replica *replica = context;
    const struct checkpoint *found = &replica->checkpoint;
    const uint64_t limit = (uint64_t)position;

    /* How far they were written counts for the boot in which that was. */
    if (found->synced_dispatched_position <= limit && (found->dispatched_position <= limit || !replica->same_boot))
        return 0;
    return save_positions(replica, limit, error);
}

void replica_forget_queues(struct replica *replica)
{
    struct error error;

    if (!replica->queues_unfit || replica->saving)
        return;
    if (save_positions(replica, 0, &error) != 0)
        LOG_ERROR("checkpoint in %s: %s", replica->dir, error.message);
    else
        LOG_WARN("the next start makes all queues anew from the log");
}

/* A checkpoint that is lost, or not the newest, may not reach what the metadata snapshots are of; and where the log's beginning is deleted a start needs
 * them. What they are of had been committed. */
static int believe_snapshots(struct replica *replica, struct error *error)
{
    struct checkpoint *checkpoint = &replica->checkpoint;
    int64_t index;
    int rv;

    if (replica->ledger.begin_index == 0)
        return 0;
    rv = metadata_snapshot_load(replica->env, replica->dir, checkpoint->committed_index, NULL, &index, error);
    if (rv != 0 || index + 1 >= replica->ledger.begin_index)
        return rv;
    rv = metadata_snapshot_load(replica->env, replica->dir, replica->ledger.last_index, NULL, &index, error);
    if (rv == 0 && index > checkpoint->committed_index) {
        LOG_WARN("the checkpoint is lost or old: entries up to %lld are committed, as a metadata snapshot of them tells", (long long)index);
        checkpoint->committed_index = index;
    }
    return rv;
}

int replica_start(struct replica *replica, struct message_store *store, struct error *error)
{
    const struct checkpoint *checkpoint = &replica->checkpoint;
    raft_index committed;
    struct buffer snapshot;
    uint64_t position;
    raft_index first;
    int rv = 0;

    replica->store = store;
    rv = believe_snapshots(replica, error);
    if (rv != 0)
        return rv;
    committed = (raft_index)(checkpoint->committed_index + 1);
    replica->known_committed = checkpoint->committed_index;
    replica->found_last = (raft_index)(replica->ledger.last_index + 1);
    replica->vote_was_due = checkpoint->present && replica->ledger.last_index > 0;
    /* Without a checkpoint nothing tells how the last run ended. */
    replica->started_unclean = checkpoint->forgot || (checkpoint->present && !checkpoint->clean && !replica->same_boot && checkpoint->durability == DURABILITY_A);
    buffer_init(&snapshot, 0);
    if (!replica->same_boot)
        rv = metadata_snapshot_forget(replica->env, replica->dir, checkpoint->committed_index, error);
    if (rv == 0)
        rv = metadata_snapshot_load(replica->env, replica->dir, checkpoint->committed_index, &snapshot, &replica->snapshot_index, error);
    if (rv == 0 && replica->snapshot_index >= 0 && !SEEDED_BUG(SNAPSHOT_IGNORED)) {
        rv = replica->callbacks.restore(replica->callbacks.context, buffer_slice(&snapshot));
        if (rv != 0)
            error_set(error, rv, "metadata snapshot of index %lld in %s is undecodable", (long long)replica->snapshot_index, replica->dir);
        replica->snapshot_position = mapped_file_queue_begin(&replica->ledger.data);
        uint32_t chain;
        ledger_end_of(&replica->ledger, (uint64_t)replica->snapshot_index, &replica->snapshot_position, &chain);
    }
    buffer_close(&snapshot);
    if (rv != 0)
        return rv;
    if (replica->snapshot_index + 1 < replica->ledger.begin_index)
        return error_set(error, ERROR_DAMAGED,
                         "%s: the log begins at entry %lld and no metadata snapshot reaches it (newest good one: %lld): copy metadata.0 and metadata.1 of "
                         "another member that is stopped, or all of its directory but the file vote",
                         replica->dir, (long long)replica->ledger.begin_index, (long long)replica->snapshot_index);

    /* Queues hold what was dispatched before; after a reboot only what was synced with them counts. And nothing behind the last entry that is known
     * to be committed: queues are synced by themselves, so they can hold what a power cut took from the log, in class A for good. */
    position = replica->same_boot ? checkpoint->dispatched_position : checkpoint->synced_dispatched_position;
    if (!checkpoint->present)
        position = 0;
    uint64_t committed_end = 0;
    uint32_t committed_chain;
    if (committed > 0 && !ledger_end_of(&replica->ledger, committed - 1, &committed_end, &committed_chain))
        committed_end = mapped_file_queue_begin(&replica->ledger.data);
    if (position > committed_end)
        position = committed_end;
    /* Older than what remains, from a checkpoint that was not the newest: only making all of it anew joins what there is without a gap. */
    if (position < mapped_file_queue_begin(&replica->ledger.data))
        position = 0;
    rv = lower_positions(replica, (int64_t)position, error);
    if (rv != 0)
        return rv;
    store->before_cut = lower_positions;
    store->before_cut_context = replica;
    store->synced_position = (int64_t)checkpoint->synced_dispatched_position;
    store->records_lost = !replica->same_boot && checkpoint->present && !checkpoint->clean && checkpoint->durability == DURABILITY_A;
    replica->applied_end = position; /* what units say is compared with the log in front of it */
    rv = message_store_recover(store, (int64_t)position, error);
    if (rv != 0)
        return rv;
    if ((uint64_t)message_store_recovered_position(store) < position)
        position = (uint64_t)message_store_recovered_position(store);
    first = replica_index_at(replica, position);
    if (first > (raft_index)(replica->snapshot_index + 2))
        first = (raft_index)(replica->snapshot_index + 2); /* records behind the snapshot are applied again */
    if (first > committed + 1)
        first = committed + 1;
    rv = verify_recent(replica, checkpoint->committed_index, first, error);
    if (rv != 0)
        return rv;
    const struct ledger_hole *hole = first > 1 ? ledger_hole_of(&replica->ledger, first - 2) : NULL;
    if (hole != NULL)
        first = hole->first + 1; /* the place of what comes next is known there */
    begin_applying_at(replica, first);
    if (committed >= first) {
        LOG_INFO("applying index %llu to %lld again", first - 1, (long long)checkpoint->committed_index);
        replica_apply(replica, committed, UINT32_MAX);
        if (replica->phase == REPLICA_FAILED) {
            *error = replica->failure;
            return replica->failure.code;
        }
    }

    replica_start_trim(replica, replica->applied);
    replica->driver_ready = true;
    if (replica->ledger.last_index >= 0) {
        raft_index known = committed == 0 ? 1 : committed; /* every member wrote the first entry */
        rv = replica_find_configuration(replica, known, error);
        if (rv == 0)
            rv = replica_know_members(replica, known, false, error);
        if (rv != 0 && !replica_must_repair(replica))
            return rv;
        rv = 0; /* who belongs to the group may be what is damaged */
        if (replica->phase == REPLICA_REMOVED)
            return 0;
        /* That there are others the log alone told. */
        if (!checkpoint->present && replica_took_part(replica) && replica_group_size(replica) > 1)
            replica->started_unclean = true;
    }
    if (replica_must_repair(replica)) {
        replica->phase = REPLICA_MUTE;
        replica->mute_reason = PEER_MUTE_DAMAGED;
        /* The next start, if this run does not get beyond its repair, cannot tell any more how the last run that voted ended. */
        replica->checkpoint.forgot |= replica->started_unclean;
        LOG_WARN("this member does not vote until its log is whole again");
    } else {
        rv = replica_begin(replica, error);
    }
    if (rv != 0)
        return rv;
    if (replica->ledger.hole_count > 0)
        replica_repair_start(replica);
    /* Before anything is appended or answered the disk must say that this run has begun: a power cut in its first second must not look like
     * what a clean stop left behind. */
    replica->checkpoint.clean = false;
    replica_fill_checkpoint(replica, &replica->checkpoint);
    replica->checkpoint_dirty = true;
    return save_now(replica, &replica->checkpoint, error);
}

int replica_begin(struct replica *replica, struct error *error)
{
    raft_index committed = (raft_index)(replica->known_committed + 1);
    int size = replica_group_size(replica);
    int rv = 0;

    if (replica_generation(replica) > 0)
        LOG_WARN("group %s was made anew by force, %llu time(s): messages that were acknowledged before may be missing", replica->options.group,
                 (unsigned long long)replica_generation(replica));
    replica->mute_reason = PEER_NOT_MUTE;
    if (replica->ledger.last_index < 0 || (size == 1 && replica->ledger.last_index == 0 && !replica->votes.existed)) {
        replica->phase = REPLICA_WAITING;
        replica->mute_reason = PEER_MUTE_EMPTY;
        if (size == 1 && !replica_misses_somebody(replica))
            rv = replica_bootstrap(replica, error);
    } else if (size > 1 && !replica->options.force_start && !SEEDED_BUG(NEVER_MUTE) && (!replica->votes.existed || replica->votes.doubtful || replica->votes.term < replica->ledger.last_term)) {
        replica->phase = REPLICA_MUTE;
        replica->mute_reason = PEER_MUTE_EMPTY;
        replica->only_vote_lost = !replica->checkpoint.forgot && !replica->started_unclean && replica->vote_was_due;
        replica->checkpoint.forgot |= replica->started_unclean; /* the next start, which does not see how the last run ended, must not think that it is only the vote */
        LOG_WARN("the vote file is missing, damaged or older than the log: this member does not vote until it has caught up with a leader");
    } else if (size > 1 && !replica->options.force_start && !SEEDED_BUG(NEVER_MUTE) && replica->started_unclean) {
        /* Not in class B, even if the claims of entries behind the cut tell that more was committed: this member never acknowledged it. */
        replica->phase = REPLICA_MUTE;
        replica->mute_reason = PEER_MUTE_UNCLEAN;
        replica->checkpoint.forgot = true;
        LOG_WARN("what this member acknowledged may be gone from its disk: it does not vote until it has caught up with a leader");
    } else {
        rv = replica_start_driver(replica, committed > replica->applied ? committed : replica->applied, error);
    }
    if (replica->checkpoint.forgot)
        replica->checkpoint_dirty = true;
    return rv;
}
