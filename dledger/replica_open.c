/* A replica from its options: who the members are, what lies on the disk, what the driver and the store call. */
#include "dledger/replica_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "dledger/backup_restore.h"
#include "store/log_sink.h"

static void driver_send(void *context, uint64_t to, struct peer_message *message, const uint8_t *run, size_t run_size)
{
    struct replica *replica = context;
    replica->io.send(replica->io.context, to, message, run, run_size);
}

static void driver_cut(void *context)
{
    struct replica *replica = context;
    replica->io.cut(replica->io.context);
}

static void driver_state_changed(void *context)
{
    struct replica *replica = context;
    /* Called inside the step that made us leader, right after its barrier went to the log. */
    if (raft_driver_leads(&replica->driver))
        replica->accept_from = raft_last_index(&replica->driver.raft);
}

static void driver_failed(void *context, const struct error *error)
{
    replica_fail(context, error);
}

static void driver_behind(void *context, uint64_t to)
{
    replica_tell_behind(context, to);
}

static void driver_damaged(void *context, raft_index index)
{
    replica_look_at_entry(context, index);
}

static bool driver_save_vote(void *context, struct vote_save *save)
{
    struct replica *replica = context;
    if (replica->io.save_vote != NULL)
        return replica->io.save_vote(replica->io.context, save);
    vote_save_run(save);
    return true;
}

static int64_t view_min_offset(void *context)
{
    struct replica *replica = context;
    return (int64_t)mapped_file_queue_begin(&replica->ledger.data);
}

static int64_t view_committed_offset(void *context)
{
    struct replica *replica = context;
    return (int64_t)replica->applied_end;
}

static const uint8_t *view_at(void *context, int64_t offset, size_t size)
{
    struct replica *replica = context;
    if (offset < 0 || (uint64_t)offset + size > replica->applied_end || (uint64_t)offset + size < (uint64_t)offset ||
        ledger_is_damaged(&replica->ledger, (uint64_t)offset, size))
        return NULL;
    return mapped_file_queue_at(&replica->ledger.data, (uint64_t)offset, size);
}

const uint8_t *replica_pin(struct replica *replica, int64_t physical_offset, size_t size, struct mapped_file **pinned)
{
    const uint8_t *bytes = view_at(replica, physical_offset, size);

    if (bytes == NULL)
        return NULL;
    *pinned = mapped_file_queue_find(&replica->ledger.data, (uint64_t)physical_offset);
    mapped_file_pin(*pinned);
    return bytes;
}

static int view_read(void *context, int64_t offset, void *out, size_t size)
{
    struct replica *replica = context;
    if (offset < 0 || (uint64_t)offset + size > replica->applied_end || (uint64_t)offset + size < (uint64_t)offset)
        return -ENOENT;
    if (ledger_is_damaged(&replica->ledger, (uint64_t)offset, size))
        return -EIO;
    struct mapped_file *file = mapped_file_queue_find(&replica->ledger.data, (uint64_t)offset);
    if (file == NULL || (uint64_t)offset + size > file->start + replica->ledger.data.file_size)
        return -ENOENT;
    ssize_t got = env_read(replica->env, file->file, out, size, (uint64_t)offset - file->start);
    return got < 0 ? (int)got : (size_t)got != size ? -EIO : 0;
}

static bool view_damaged(void *context, int64_t offset, size_t size)
{
    struct replica *replica = context;
    return ledger_is_damaged(&replica->ledger, (uint64_t)offset, size);
}

static uint32_t view_message_at(void *context, int64_t offset)
{
    struct replica *replica = context;
    int64_t position = offset - (int64_t)LEDGER_ENTRY_HEADER_SIZE;
    uint8_t header[LEDGER_ENTRY_HEADER_SIZE];
    struct ledger_entry entry;
    uint64_t at, term;
    uint32_t size;

    if (view_read(replica, position, header, sizeof header) != 0 || ledger_entry_decode(&entry, header) != 0 ||
        entry.kind != LEDGER_ENTRY_MESSAGE || entry.position != (uint64_t)position || entry.index >= replica->applied)
        return 0;
    /* A header may be imitated too; where that entry is says the index. */
    if (!ledger_locate(&replica->ledger, entry.index, &at, &size, &term) || at != (uint64_t)position || size != ledger_entry_size(&entry))
        return 0;
    return entry.body_size;
}

void replica_path(const struct replica *replica, const char *name, char *out, size_t size)
{
    snprintf(out, size, "%s/%s", replica->dir, name);
}

/* The log is shorter than it was, and the next start will not see it: all that it can go by is here. Without a checkpoint that alone tells, and the first one that
 * is saved says so. */
static int before_cut(void *context, struct error *error)
{
    struct replica *replica = context;

    if (!replica->checkpoint.present)
        return 0;
    replica->checkpoint.forgot = true;
    return replica_save_in_both_slots(replica, &replica->checkpoint, error);
}

int replica_open(struct replica *replica, struct env *env, const struct dledger_options *options, const struct dledger_callbacks *callbacks,
                 const struct replica_io *io, const char *broker_address, struct log_view *view, struct error *error)
{
    struct ledger_recovery recovery = {0};
    const struct ledger_repairs repairs = {replica, before_cut};
    struct raft_driver_options driver_options;
    struct raft_driver_io driver_io = {replica, driver_send, driver_cut, driver_state_changed, driver_failed, driver_behind, driver_damaged, driver_save_vote};
    char path[512];
    int rv;

    memset(replica, 0, sizeof *replica);
    replica->env = env;
    replica->options = *options;
    replica->callbacks = *callbacks;
    replica->io = *io;
    replica->snapshot_index = -1;
    replica->older_snapshot_index = -1;
    replica->durable_committed = -1;
    replica->up_since_ms = env_now_ms(env);
    buffer_init(&replica->gather, REPLICA_GATHER_MAX + REPLICA_TRIM_LIST_MAX + LEDGER_ENTRY_SIZE_MAX);
    buffer_init(&replica->backup.metadata, 0);
    snprintf(replica->broker_address, sizeof replica->broker_address, "%s", broker_address);
    rv = replica_list_members(replica, error);
    if (rv != 0)
        return rv;
    if ((size_t)snprintf(replica->dir, sizeof replica->dir, "%s/dledger-%s", options->dir, options->self_id) >= sizeof replica->dir)
        return error_set(error, ERROR_INVALID, "storePathRootDir is longer than %zu bytes", sizeof replica->dir - 32);
    rv = env->ops->make_dir(env, replica->dir);
    if (rv != 0)
        return error_set(error, ERROR_IO, "%s: %s", replica->dir, strerror(-rv));
    bool installed, leftover;
    rv = backup_restore(env, options, replica->dir, error);
    if (rv != 0)
        return rv;
    rv = bulk_install(env, options->dir, replica->dir, &installed, &leftover, error);
    if (rv != 0)
        return rv;
    replica_path(replica, "checkpoint", path, sizeof path);
    rv = checkpoint_load(&replica->checkpoint, env, path, error);
    if (rv != 0)
        return rv;
    if (!replica->checkpoint.present) {
        replica->checkpoint.committed_index = -1;
        replica->checkpoint.snapshot_index = -1;
        replica->checkpoint.incarnation = env_random(env) | 1;
    }
    replica->run = env_random(env) | 1;
    replica->same_boot = replica->checkpoint.present && replica->checkpoint.boot_id == env->ops->boot_id(env);
    rv = ledger_open(&replica->ledger, env, replica->dir, options->segment_size, options->index_file_size,
                     options->durability == DURABILITY_B, &replica->checkpoint, replica->same_boot,
                     replica_has_others(replica) && !options->force_start ? &repairs : NULL, &recovery, error);
    if (rv != 0)
        return rv;
    bulk_fetch_init(&replica->fetch, replica);
    if (leftover)
        replica->fetch.leftover_at = replica->ledger.last_index;
    if (installed)
        LOG_INFO("the log that was fetched has taken the place of the old one: entries %lld to %lld", (long long)replica->ledger.begin_index,
                 (long long)replica->ledger.last_index);
    if (recovery.cut)
        LOG_WARN("ledger: %llu bytes of a torn tail behind index %lld were cut; they were never acknowledged by this member",
                 (unsigned long long)recovery.bytes_cut, (long long)replica->ledger.last_index);
    replica_path(replica, "vote", path, sizeof path);
    rv = vote_file_open(&replica->votes, env, path, error);
    if (rv != 0)
        goto close_ledger;
    replica_path(replica, "heard", path, sizeof path);
    rv = heard_file_load(&replica->heard, env, path, error);
    if (rv != 0)
        goto close_votes;
    if (replica->heard.term != UINT64_MAX)
        replica->heard_term = replica->heard.term;
    /* In class B too: it may have acknowledged them. And without a checkpoint damage at the end of the log cannot be told from a torn write. */
    if (recovery.lost || (!replica->checkpoint.present && replica_has_others(replica) && replica_took_part(replica)))
        replica->checkpoint.forgot = true;
    driver_options = (struct raft_driver_options){
        .id = replica->id,
        .election_timeout_ms = options->election_timeout_ms,
        .heartbeat_ms = options->heartbeat_ms,
        .max_inflight_entries = 65536,
    };
    rv = raft_driver_init(&replica->driver, env, &replica->ledger, &replica->votes, &driver_io, &driver_options, error);
    if (rv != 0)
        goto close_votes;
    /* What was proved committed: by the checkpoint, or by the claim that entries carry. */
    replica->checkpoint_committed = replica->checkpoint.present ? replica->checkpoint.committed_index : -1;
    bool lost_committed = recovery.claim_index > replica->ledger.last_index;
    replica->checkpoint.committed_index = lost_committed ? recovery.proved_index : recovery.claim_index;
    *view = (struct log_view){replica, view_min_offset, view_committed_offset, view_at, view_read, view_message_at, view_damaged};
    return 0;

close_votes:
    vote_file_close(&replica->votes);
close_ledger:
    ledger_close(&replica->ledger);
    return rv;
}

void replica_close(struct replica *replica)
{
    if (replica->env == NULL)
        return;
    bulk_fetch_close(&replica->fetch);
    replica_serve_close(replica);
    replica_backup_close(replica);
    replica_scrub_close(&replica->scrub);
    raft_driver_close(&replica->driver);
    vote_file_close(&replica->votes);
    ledger_close(&replica->ledger);
    buffer_close(&replica->gather);
    buffer_close(&replica->configuration);
    buffer_close(&replica->told);
    buffer_close(&replica->save.snapshot);
    replica_trim_drop_file(&replica->save);
    free(replica->gather_sizes);
    replica->gather_sizes = NULL;
}
