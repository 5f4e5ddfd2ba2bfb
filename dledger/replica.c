/* A leader's entry, from reserve to answer:
 *
 *   1 replica_reserve() gives the body's place in the gather buffer, replica_append() seals the header in front of it
 *   2 replica_turn() submits what was gathered: one write to the ledger, one message per follower, one sync asked for
 *   3 followers' results (and our own sync) move the commit index
 *   4 the same turn applies: queues and tables first, then the answer, so that a pull right after an OK finds the message
 *
 * Whatever ends a leadership fails all that waits at once with ERROR_LEADERSHIP_LOST; an entry may still commit later (outcome unknown).
 */
#include "dledger/replica.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "dledger/metadata_snapshot.h"
#include "store/log_sink.h"

#define FETCH_RETRY_US 50000u

static uint64_t now_us(const struct replica *replica)
{
    return env_monotonic_us(replica->env);
}

static void replica_fail(struct replica *replica, const struct error *error)
{
    if (replica->phase == REPLICA_FAILED)
        return;
    replica->phase = REPLICA_FAILED;
    replica->failure = *error;
    replica->driver.failed = true;
    LOG_ERROR("this member stops for good: %s", error->message);
    replica->io.hello_changed(replica->io.context);
}

/* ---- pending requests ---- */

static void pending_add(struct replica *replica, struct append_entry_request *request)
{
    request->next = NULL;
    if (replica->pending_tail == NULL)
        replica->pending_head = request;
    else
        replica->pending_tail->next = request;
    replica->pending_tail = request;
}

static void pending_finish_head(struct replica *replica, int code)
{
    struct append_entry_request *request = replica->pending_head;

    replica->pending_head = request->next;
    if (replica->pending_head == NULL)
        replica->pending_tail = NULL;
    request->code = code;
    request->done(request);
}

static void pending_fail_all(struct replica *replica, int code)
{
    struct append_entry_request *last = replica->pending_tail;

    /* done() may append again; only those that wait now are failed. */
    while (replica->pending_head != NULL) {
        bool end = replica->pending_head == last;
        pending_finish_head(replica, code);
        if (end)
            break;
    }
}

static void drop_gathered(struct replica *replica)
{
    buffer_clear(&replica->gather);
    replica->gather_count = 0;
    replica->reserved_size = 0;
}

/* ---- what the driver tells us ---- */

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

/* ---- log view ---- */

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
    if (offset < 0 || (uint64_t)offset + size > replica->applied_end || (uint64_t)offset + size < (uint64_t)offset)
        return NULL;
    return mapped_file_queue_at(&replica->ledger.data, (uint64_t)offset, size);
}

static int view_read(void *context, int64_t offset, void *out, size_t size)
{
    struct replica *replica = context;
    if (offset < 0 || (uint64_t)offset + size > replica->applied_end || (uint64_t)offset + size < (uint64_t)offset)
        return -ENOENT;
    struct mapped_file *file = mapped_file_queue_find(&replica->ledger.data, (uint64_t)offset);
    if (file == NULL || (uint64_t)offset + size > file->start + replica->ledger.data.file_size)
        return -ENOENT;
    ssize_t got = env_read(replica->env, file->file, out, size, (uint64_t)offset - file->start);
    return got < 0 ? (int)got : (size_t)got != size ? -EIO : 0;
}

/* ---- opening ---- */

static int parse_members(struct replica *replica, struct error *error)
{
    const char *at = replica->options.peers;

    if (at == NULL || *at == '\0') {
        snprintf(replica->members[0].id, sizeof replica->members[0].id, "%s", replica->options.self_id);
        replica->member_count = 1;
    }
    while (at != NULL && *at != '\0') {
        const char *end = strchr(at, ';');
        size_t size = end == NULL ? strlen(at) : (size_t)(end - at);
        const char *dash = memchr(at, '-', size);
        struct dledger_member *member = &replica->members[replica->member_count];

        if (size > 0) {
            if (replica->member_count == DLEDGER_MEMBERS_MAX)
                return error_set(error, ERROR_INVALID, "dLegerPeers names more than %d members", DLEDGER_MEMBERS_MAX);
            if (dash == NULL || dash == at || (size_t)(dash - at) >= sizeof member->id ||
                size - (size_t)(dash - at) - 1 >= sizeof member->address || memchr(dash, ':', size - (size_t)(dash - at)) == NULL)
                return error_set(error, ERROR_INVALID, "dLegerPeers: \"%.*s\" is not ID-HOST:PORT", (int)size, at);
            snprintf(member->id, sizeof member->id, "%.*s", (int)(dash - at), at);
            snprintf(member->address, sizeof member->address, "%.*s", (int)(size - (size_t)(dash - at) - 1), dash + 1);
            replica->member_count++;
        }
        at = end == NULL ? NULL : end + 1;
    }
    for (int i = 1; i < replica->member_count; i++) { /* insertion sort: ids decide Raft ids, so all nodes must agree */
        struct dledger_member member = replica->members[i];
        int k = i;
        for (; k > 0 && strcmp(replica->members[k - 1].id, member.id) > 0; k--)
            replica->members[k] = replica->members[k - 1];
        replica->members[k] = member;
    }
    for (int i = 0; i < replica->member_count; i++) {
        struct dledger_member *member = &replica->members[i];
        if (i > 0 && strcmp(member->id, replica->members[i - 1].id) == 0)
            return error_set(error, ERROR_INVALID, "dLegerPeers names %s twice", member->id);
        member->raft_id = (uint64_t)i + 1;
        member->match_index = UINT64_MAX;
        member->self = strcmp(member->id, replica->options.self_id) == 0;
        if (member->self)
            replica->id = member->raft_id;
    }
    if (replica->id == 0)
        return error_set(error, ERROR_INVALID, "dLegerSelfId %s is not in dLegerPeers %s", replica->options.self_id, replica->options.peers);
    return 0;
}

static void path_in(const struct replica *replica, const char *name, char *out, size_t size)
{
    snprintf(out, size, "%s/%s", replica->dir, name);
}

int replica_open(struct replica *replica, struct env *env, const struct dledger_options *options, const struct dledger_callbacks *callbacks,
                 const struct replica_io *io, const char *broker_address, struct log_view *view, struct error *error)
{
    struct ledger_recovery recovery = {0};
    struct raft_driver_options driver_options;
    struct raft_driver_io driver_io = {replica, driver_send, driver_cut, driver_state_changed, driver_failed};
    char path[512];
    int rv;

    memset(replica, 0, sizeof *replica);
    replica->env = env;
    replica->options = *options;
    replica->callbacks = *callbacks;
    replica->io = *io;
    replica->snapshot_index = -1;
    replica->up_since_ms = env_now_ms(env);
    buffer_init(&replica->gather, REPLICA_GATHER_MAX + LEDGER_ENTRY_SIZE_MAX);
    snprintf(replica->broker_address, sizeof replica->broker_address, "%s", broker_address);
    rv = parse_members(replica, error);
    if (rv != 0)
        return rv;
    if ((size_t)snprintf(replica->dir, sizeof replica->dir, "%s/dledger-%s", options->dir, options->self_id) >= sizeof replica->dir)
        return error_set(error, ERROR_INVALID, "storePathRootDir is longer than %zu bytes", sizeof replica->dir - 32);
    rv = env->ops->make_dir(env, replica->dir);
    if (rv != 0)
        return error_set(error, ERROR_IO, "%s: %s", replica->dir, strerror(-rv));
    path_in(replica, "checkpoint", path, sizeof path);
    rv = checkpoint_load(&replica->checkpoint, env, path, error);
    if (rv != 0)
        return rv;
    if (!replica->checkpoint.present) {
        replica->checkpoint.committed_index = -1;
        replica->checkpoint.snapshot_index = -1;
        replica->checkpoint.incarnation = env_random(env) | 1;
    }
    replica->same_boot = replica->checkpoint.present && replica->checkpoint.boot_id == env->ops->boot_id(env);
    rv = ledger_open(&replica->ledger, env, replica->dir, options->segment_size, options->index_file_size,
                     options->durability == DURABILITY_B, &replica->checkpoint, replica->same_boot, &recovery, error);
    if (rv != 0)
        return rv;
    if (recovery.cut)
        LOG_WARN("ledger: %llu bytes of a torn tail behind index %lld were cut; they were never acknowledged by this member",
                 (unsigned long long)recovery.bytes_cut, (long long)replica->ledger.last_index);
    path_in(replica, "vote", path, sizeof path);
    rv = vote_file_open(&replica->votes, env, path, error);
    if (rv != 0)
        goto close_ledger;
    driver_options = (struct raft_driver_options){
        .id = replica->id,
        .election_timeout_ms = options->election_timeout_ms,
        .heartbeat_ms = options->heartbeat_ms,
        .max_inflight_entries = 65536,
        .guards = GUARD_ALL,
    };
    rv = raft_driver_init(&replica->driver, env, &replica->ledger, &replica->votes, &driver_io, &driver_options, error);
    if (rv != 0)
        goto close_votes;
    /* What was proved committed: by the checkpoint, or by the claim that entries carry. */
    replica->checkpoint_committed = replica->checkpoint.present ? replica->checkpoint.committed_index : -1;
    replica->lost_committed = recovery.claim_index > replica->ledger.last_index;
    replica->checkpoint.committed_index = replica->lost_committed ? replica->ledger.last_index : recovery.claim_index;
    *view = (struct log_view){replica, view_min_offset, view_committed_offset, view_at, view_read};
    return 0;

close_votes:
    vote_file_close(&replica->votes);
close_ledger:
    ledger_close(&replica->ledger);
    return rv;
}

/* Newest configuration entry at or below committed. The checkpoint holds the newest one of all that had been applied when it was made, so only
 * entries behind both are looked at: a start does not read the whole log for it. */
static int find_configuration(struct replica *replica, raft_index committed, struct error *error)
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
    }
    if (replica->configuration_index == 0 || replica->configuration.failed)
        return error_set(error, ERROR_DAMAGED, "ledger: no group configuration at or below index %llu", committed - 1);
    return 0;
}

static void fill_checkpoint(struct replica *replica, struct checkpoint *checkpoint);

static int start_driver(struct replica *replica, raft_index committed, struct error *error)
{
    int rv;

    if (committed == 0)
        committed = 1; /* entry 1 is the configuration that every member wrote at the first start */
    rv = find_configuration(replica, committed, error);
    /* A mute member may have fetched entries of a term in which it never voted. */
    if (rv == 0 && replica->phase == REPLICA_MUTE && replica->votes.term < replica->ledger.last_term)
        rv = vote_file_save(&replica->votes, replica->ledger.last_term, 0, error);
    if (rv == 0)
        rv = raft_driver_start(&replica->driver, committed, replica->configuration_index, buffer_slice(&replica->configuration), error);
    if (rv != 0)
        return rv;
    replica->phase = REPLICA_RUNNING;
    replica->mute_reason = PEER_NOT_MUTE;
    if (replica->checkpoint.forgot) {
        /* At once, or a restart within the next second would make it mute again and wait for everybody. */
        struct error ignored;
        char path[512];
        replica->checkpoint.forgot = false;
        fill_checkpoint(replica, &replica->checkpoint);
        path_in(replica, "checkpoint", path, sizeof path);
        if (checkpoint_save(&replica->checkpoint, replica->env, path, &ignored) != 0)
            replica->checkpoint_dirty = true;
    }
    raft_driver_persisted(&replica->driver, raft_driver_last(&replica->driver));
    replica->io.hello_changed(replica->io.context);
    return 0;
}

static int sync_now(struct replica *replica, struct error *error)
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

/* The first start of the whole group: every member writes the same first entry. */
static int bootstrap(struct replica *replica, struct error *error)
{
    struct buffer run;
    struct buffer configuration;
    int rv;

    buffer_init(&run, 0);
    buffer_init(&configuration, 0);
    rv = raft_driver_configuration((unsigned)replica->member_count, &configuration);
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
        rv = sync_now(replica, error);
    if (rv == 0 && replica->votes.term == 0)
        rv = vote_file_save(&replica->votes, 1, 0, error);
    buffer_close(&run);
    buffer_close(&configuration);
    if (rv == 0)
        rv = start_driver(replica, 0, error);
    if (rv == 0)
        LOG_INFO("first start of group %s with %d members", replica->options.group, replica->member_count);
    replica->checkpoint_dirty = true;
    return rv;
}

static bool apply_committed(struct replica *replica, raft_index target, uint32_t count_max);

/* Raft index of the first entry that ends behind position, last + 1 when there is none. */
static raft_index index_at(const struct replica *replica, uint64_t position)
{
    uint64_t low = (uint64_t)replica->ledger.begin_index;
    uint64_t high = (uint64_t)(replica->ledger.last_index + 1);

    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        uint64_t at, term;
        uint32_t size;
        if (!ledger_locate(&replica->ledger, middle, &at, &size, &term) || at + size > position)
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

/* What opening did not verify because the checkpoint vouches for it, and what is read later without checksums: the newest committed entries. */
static int verify_recent(struct replica *replica, int64_t committed_index, struct error *error)
{
    const struct ledger *ledger = &replica->ledger;
    uint64_t end = 0;
    uint32_t chain = 0;
    raft_index first;

    if (committed_index < 0 || !ledger_end_of(ledger, (uint64_t)committed_index, &end, &chain))
        return 0;
    first = index_at(replica, end > REPLICA_VERIFY_BYTES ? end - REPLICA_VERIFY_BYTES : 0);
    if (first > 1 && !ledger_end_of(ledger, first - 2, &end, &chain))
        return 0;
    if (first == 1)
        chain = 0;
    for (raft_index i = first; (int64_t)i - 1 <= committed_index; i++) {
        struct ledger_entry entry = {0};
        uint64_t position = 0, term;
        uint32_t size;
        const uint8_t *bytes = ledger_entry(ledger, i - 1, &entry);
        if (bytes == NULL || ledger_entry_chain(bytes, chain) != entry.chain_crc ||
            !ledger_entry_body_ok(&entry, bytes + LEDGER_ENTRY_HEADER_SIZE)) {
            char name[21];
            if (!ledger_locate(ledger, i - 1, &position, &size, &term))
                position = end;
            mapped_file_name(position - position % ledger->data.file_size, name);
            return error_set(error, ERROR_DAMAGED,
                             "%s/data/%s: committed entry %llu at offset %llu is damaged; move %s away and start again: the node is refilled by its peers",
                             replica->dir, name, (unsigned long long)(i - 1), (unsigned long long)(position % ledger->data.file_size), replica->dir);
        }
        chain = entry.chain_crc;
        end = entry.position + ledger_entry_size(&entry);
    }
    return 0;
}

/* What is behind position in the queues is made anew in this run, so it is not durable any more, and a power cut before the next sync must not make
 * it look so: the disk is told before the queues are cut. */
static int lower_synced_position(struct replica *replica, uint64_t position, struct error *error)
{
    struct checkpoint *checkpoint = &replica->save.checkpoint;
    char path[512];
    int rv;

    if (replica->checkpoint.synced_dispatched_position <= position)
        return 0;
    replica->checkpoint.synced_dispatched_position = position;
    *checkpoint = replica->checkpoint;
    ledger_fill_checkpoint(&replica->ledger, replica->checkpoint.committed_index, checkpoint);
    path_in(replica, "checkpoint", path, sizeof path);
    rv = checkpoint_save(checkpoint, replica->env, path, error);
    replica->checkpoint.sequence = checkpoint->sequence;
    return rv;
}

int replica_start(struct replica *replica, struct message_store *store, struct error *error)
{
    const struct checkpoint *checkpoint = &replica->checkpoint;
    raft_index committed = (raft_index)(checkpoint->committed_index + 1);
    struct buffer snapshot;
    uint64_t position;
    raft_index first;
    int rv;

    replica->store = store;
    rv = verify_recent(replica, checkpoint->committed_index, error);
    if (rv != 0)
        return rv;
    buffer_init(&snapshot, 0);
    if (!replica->same_boot)
        rv = metadata_snapshot_forget(replica->env, replica->dir, checkpoint->committed_index, error);
    if (rv == 0)
        rv = metadata_snapshot_load(replica->env, replica->dir, checkpoint->committed_index, &snapshot, &replica->snapshot_index, error);
    if (rv == 0 && replica->snapshot_index >= 0) {
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
    rv = lower_synced_position(replica, position, error);
    if (rv != 0)
        return rv;
    store->synced_position = (int64_t)checkpoint->synced_dispatched_position;
    store->records_lost = !replica->same_boot && checkpoint->present && !checkpoint->clean && checkpoint->durability == DURABILITY_A;
    rv = message_store_recover(store, (int64_t)position, error);
    if (rv != 0)
        return rv;
    if ((uint64_t)message_store_recovered_position(store) < position)
        position = (uint64_t)message_store_recovered_position(store);
    if (checkpoint->synced_dispatched_position > position)
        replica->checkpoint.synced_dispatched_position = position;
    first = index_at(replica, position);
    if (first > (raft_index)(replica->snapshot_index + 2))
        first = (raft_index)(replica->snapshot_index + 2); /* records behind the snapshot are applied again */
    if (first > committed + 1)
        first = committed + 1;
    begin_applying_at(replica, first);
    if (committed >= first) {
        LOG_INFO("applying index %llu to %lld again", first - 1, (long long)checkpoint->committed_index);
        apply_committed(replica, committed, UINT32_MAX);
        if (replica->phase == REPLICA_FAILED) {
            *error = replica->failure;
            return replica->failure.code;
        }
    }

    replica->driver_ready = true;
    if (replica->ledger.last_index < 0 || (replica->member_count == 1 && replica->ledger.last_index == 0 && !replica->votes.existed)) {
        replica->phase = REPLICA_WAITING;
        replica->mute_reason = PEER_MUTE_EMPTY;
        if (replica->member_count == 1)
            rv = bootstrap(replica, error);
    } else if (replica->member_count > 1 && !replica->options.force_start && !replica->votes.existed) {
        replica->phase = REPLICA_MUTE;
        replica->mute_reason = PEER_MUTE_EMPTY;
        LOG_WARN("the vote file is missing: this member does not vote until it has caught up with a leader");
    } else if (replica->member_count > 1 && !replica->options.force_start && checkpoint->present &&
               (checkpoint->forgot || (!checkpoint->clean && !replica->same_boot && checkpoint->durability == DURABILITY_A))) {
        /* Not in class B, even if the claims of entries behind the cut tell that more was committed: this member never acknowledged it. */
        replica->phase = REPLICA_MUTE;
        replica->mute_reason = PEER_MUTE_UNCLEAN;
        replica->checkpoint.forgot = true;
        LOG_WARN("the machine went down uncleanly in durability class A: this member does not vote until it has caught up with a leader");
    } else {
        rv = start_driver(replica, committed, error);
    }
    if (rv != 0)
        return rv;
    /* Before anything is appended or answered the disk must say that this run has begun: a power cut in its first second must not look like
     * what a clean stop left behind. */
    replica->checkpoint.clean = false;
    fill_checkpoint(replica, &replica->checkpoint);
    char path[512];
    path_in(replica, "checkpoint", path, sizeof path);
    replica->checkpoint_dirty = true;
    return checkpoint_save(&replica->checkpoint, replica->env, path, error);
}

void replica_close(struct replica *replica)
{
    if (replica->env == NULL)
        return;
    raft_driver_close(&replica->driver);
    vote_file_close(&replica->votes);
    ledger_close(&replica->ledger);
    buffer_close(&replica->gather);
    buffer_close(&replica->configuration);
    buffer_close(&replica->save.snapshot);
    free(replica->gather_sizes);
    replica->gather_sizes = NULL;
}

/* ---- applying ---- */

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

    bytes = mapped_file_queue_at(data, position, LEDGER_BLANK_SIZE);
    if (bytes == NULL || ledger_is_blank(bytes))
        position = position - position % data->file_size + (position % data->file_size == 0 ? 0 : data->file_size);
    bytes = mapped_file_queue_at(data, position, LEDGER_ENTRY_HEADER_SIZE);
    if (bytes == NULL || ledger_entry_decode(&entry, bytes) != 0 || entry.index != index - 1 || entry.position != position ||
        mapped_file_queue_at(data, position, ledger_entry_size(&entry)) == NULL) {
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
            replica->apply_retry_us = now_us(replica) + REPLICA_APPLY_RETRY_MS * 1000ull;
            return false;
        }
        if (replica->apply_stalled && rv == 0) {
            LOG_INFO("there is room for queue files under %s again", replica->options.dir);
            replica->apply_stalled = false;
        }
        if (rv != 0) {
            error_set(&error, rv, "entry %llu at position %llu does not fit the queues: %s", (unsigned long long)(index - 1),
                      (unsigned long long)position, error_text(rv));
            replica_fail(replica, &error);
            return false;
        }
        replica->store->dispatched_offset = (int64_t)(position + ledger_entry_size(&entry));
        callbacks->apply_message(callbacks->context, index - 1, &dispatch,
                                 slice_of(body.data + dispatch.size, body.size - dispatch.size), replay);
        break;
    }
    case LEDGER_ENTRY_METADATA:
        callbacks->apply_metadata(callbacks->context, index - 1, body, replay);
        break;
    case LEDGER_ENTRY_CONFIGURATION:
        if (index > replica->configuration_index) {
            replica->configuration_index = index;
            buffer_clear(&replica->configuration);
            buffer_append_slice(&replica->configuration, body);
        }
        raft_driver_apply_configuration(&replica->driver, index, body);
        break;
    default:
        break;
    }
    replica->applied = index;
    replica->applied_end = position + ledger_entry_size(&entry);
    return true;
}

/* Applies up to target, then answers those who wait for it. True when something was applied. */
static bool apply_committed(struct replica *replica, raft_index target, uint32_t count_max)
{
    raft_index before = replica->applied;
    uint32_t count = 0;

    if (target > raft_driver_last(&replica->driver))
        target = raft_driver_last(&replica->driver);
    if (replica->apply_stalled && now_us(replica) < replica->apply_retry_us)
        return false;
    while (replica->applied < target && count < count_max && apply_one(replica))
        count++;
    replica->more_to_apply = replica->applied < target && !replica->apply_stalled && replica->phase != REPLICA_FAILED;
    if (replica->applied == before)
        return false;
    replica->checkpoint_dirty = true;
    while (replica->pending_head != NULL && replica->pending_head->index < replica->applied)
        pending_finish_head(replica, 0);
    return true;
}

/* ---- leading ---- */

static void update_role(struct replica *replica)
{
    struct raft_driver *driver = &replica->driver;
    bool leads = raft_driver_leads(driver) && !driver->failed;
    uint64_t term = driver->started ? raft_current_term(&driver->raft) : replica->votes.term;
    uint64_t leader = raft_driver_leader(driver);

    if (replica->accepting && (!leads || term != replica->leadership_term)) {
        replica->accepting = false;
        drop_gathered(replica);
        pending_fail_all(replica, replica->phase == REPLICA_FAILED ? ERROR_IO : ERROR_LEADERSHIP_LOST);
    }
    if (leads && !replica->accepting && replica->applied >= replica->accept_from && !replica->stopping) {
        replica->accepting = true;
        replica->leadership_term = term;
        replica->round_last = 0;
        drop_gathered(replica);
        message_store_reset_append_offsets(replica->store);
    }
    if (leader != 0)
        replica->hurry_until_us = 0;
    if (leader != replica->known_leader || term != replica->known_term || replica->accepting != replica->known_accepting) {
        replica->known_leader = leader;
        replica->known_term = term;
        replica->known_accepting = replica->accepting;
        replica->callbacks.role_changed(replica->callbacks.context);
    }
}

uint8_t *replica_reserve(struct replica *replica, size_t body_size, int64_t *physical_offset, int *code)
{
    struct ledger *ledger = &replica->ledger;
    uint32_t size = (uint32_t)(LEDGER_ENTRY_HEADER_SIZE + body_size);
    uint8_t *room;

    if (!replica->accepting) {
        *code = replica->phase == REPLICA_FAILED ? ERROR_IO : raft_driver_leader(&replica->driver) == 0 ? ERROR_NO_LEADER : ERROR_NOT_LEADER;
        return NULL;
    }
    if (body_size > LEDGER_ENTRY_SIZE_MAX - LEDGER_ENTRY_HEADER_SIZE || size + LEDGER_BLANK_SIZE > ledger->data.file_size) {
        *code = ERROR_TOO_LARGE;
        return NULL;
    }
    if (replica->apply_stalled) {
        *code = ERROR_NO_SPACE;
        return NULL;
    }
    if (replica->gather.size >= REPLICA_GATHER_MAX || replica->gather_count >= REPLICA_IN_FLIGHT_MAX) {
        *code = ERROR_BUSY;
        return NULL;
    }
    if (replica->gather_count == 0) {
        replica->gather_end = ledger->end_position;
        replica->gather_chain = ledger->last_chain;
    }
    replica->reserved_position = ledger_place(ledger, replica->gather_end, size);
    if (replica->reserve_failed && replica->reserved_position + size + LEDGER_BLANK_SIZE > ledger->reserved_end) {
        *code = ERROR_NO_SPACE;
        return NULL;
    }
    if (replica->gather_count == replica->gather_sizes_capacity) {
        uint32_t capacity = replica->gather_sizes_capacity == 0 ? 1024 : replica->gather_sizes_capacity * 2;
        uint32_t *sizes = realloc(replica->gather_sizes, capacity * sizeof *sizes);
        if (sizes == NULL) {
            *code = ERROR_NO_MEMORY;
            return NULL;
        }
        replica->gather_sizes = sizes;
        replica->gather_sizes_capacity = capacity;
    }
    room = buffer_reserve(&replica->gather, size);
    if (room == NULL) {
        replica->gather.failed = false;
        *code = ERROR_NO_MEMORY;
        return NULL;
    }
    replica->reserved_size = size;
    *physical_offset = (int64_t)(replica->reserved_position + LEDGER_ENTRY_HEADER_SIZE);
    *code = 0;
    return room + LEDGER_ENTRY_HEADER_SIZE;
}

void replica_append(struct replica *replica, enum ledger_entry_kind kind, struct append_entry_request *request)
{
    raft_index index = raft_driver_last(&replica->driver) + 1 + replica->gather_count;
    raft_index uncommitted = index - replica->driver.commit;
    struct ledger_entry entry = {
        .index = index - 1,
        .term = replica->leadership_term,
        .position = replica->reserved_position,
        .kind = (uint8_t)kind,
        .uncommitted = uncommitted < LEDGER_UNCOMMITTED_MAX ? (uint32_t)uncommitted : LEDGER_UNCOMMITTED_MAX,
        .body_size = (uint32_t)(replica->reserved_size - LEDGER_ENTRY_HEADER_SIZE),
    };

    assert(replica->accepting && replica->reserved_size > 0);
    replica->gather_chain = ledger_entry_seal(&entry, replica->gather.data + replica->gather.size, replica->gather_chain);
    replica->gather.size += replica->reserved_size;
    replica->gather_sizes[replica->gather_count++] = (uint32_t)replica->reserved_size;
    replica->gather_end = replica->reserved_position + replica->reserved_size;
    replica->reserved_size = 0;
    if (request != NULL) {
        request->index = index - 1;
        request->term = entry.term;
        request->position = (int64_t)entry.position;
        if (replica->gather_count == 1)
            replica->gather_started_us = now_us(replica); /* one look at the clock for all that gathers with it */
        request->deadline_us = replica->gather_started_us + replica->options.max_wait_ms * 1000ull;
        pending_add(replica, request);
    }
}

/* The rule that lets batches form by themselves: the next round leaves when the one before has committed, unless much has gathered or that
 * one takes long (a far peer, a slow disk). */
static bool may_submit(const struct replica *replica)
{
    raft_index last = raft_driver_last(&replica->driver);
    raft_index in_flight = last - replica->driver.commit;

    if (replica->gather_count == 0 || !replica->accepting)
        return false;
    if (replica->driver.commit >= replica->round_last)
        return true;
    if (in_flight + REPLICA_SUBMIT_MAX > REPLICA_IN_FLIGHT_MAX)
        return false;
    return replica->gather.size >= REPLICA_ROUND_BYTES || now_us(replica) - replica->round_started_us >= REPLICA_ROUND_AGE_US;
}

static void note_room(struct replica *replica)
{
    int result = replica->ledger.reserve_result;

    if (result != 0 && !replica->reserve_failed)
        LOG_ERROR("ledger in %s: no room can be reserved: %s; sends are refused until there is", replica->dir, strerror(-result));
    if (result == 0 && replica->reserve_failed)
        LOG_INFO("ledger in %s: there is room again", replica->dir);
    replica->reserve_failed = result != 0;
    replica->reserve_errno = -result;
}

/* No room for entries, or none for the queues that they would go to. */
static bool is_full(const struct replica *replica)
{
    return replica->apply_stalled ||
           (replica->reserve_failed && replica->ledger.end_position + LEDGER_ENTRY_SIZE_MAX >= replica->ledger.reserved_end);
}

/* A leader without room is no use while another member has some; and a follower that lost what it had acknowledged is repaired only by a leader
 * that does not remember that acknowledgement. */
static void hand_over_when_useful(struct replica *replica, uint64_t now)
{
    uint64_t stuck = raft_driver_stuck_follower(&replica->driver);
    bool full = is_full(replica);
    uint64_t best = 0;
    raft_index best_match = 0;

    /* A stuck follower can keep a leader from accepting: nothing commits, so nothing is applied. */
    if (now < replica->hand_over_due_us || !(stuck != 0 ? raft_transferee(&replica->driver.raft) == 0 : full && replica->accepting))
        return;
    replica->hand_over_due_us = now + REPLICA_HAND_OVER_MS * 1000ull;
    for (int i = 0; i < replica->member_count; i++) {
        const struct replica_peer *peer = &replica->peers[i];
        raft_index match;
        if (peer->connected && peer->hello.started && !peer->full && (uint64_t)i + 1 != stuck &&
            raft_match_index(&replica->driver.raft, (raft_id)i + 1, &match) == 0 && match >= best_match) {
            best = (uint64_t)i + 1;
            best_match = match;
        }
    }
    if (best == 0 && stuck != 0) {
        /* Nobody to hand over to: what we remember of it goes with our term, and another election begins anew. */
        struct peer_message result = {.type = PEER_APPEND_ENTRIES_RESULT};
        result.append_result.term = raft_current_term(&replica->driver.raft) + 1;
        result.append_result.rejected = 1;
        LOG_WARN("member %s lost what it had acknowledged: another election", replica->members[stuck - 1].id);
        raft_driver_receive(&replica->driver, stuck, &result, NULL);
    } else if (best != 0 && raft_driver_transfer(&replica->driver, best) == 0)
        LOG_WARN("%s: leadership is handed to %s", full ? "no room here" : "a follower lost what it had acknowledged", replica->members[best - 1].id);
}

/* What was gathered never reached the log: its requests are refused, and the queue offsets it was given are handed out again. */
static void refuse_gathered(struct replica *replica, int code)
{
    raft_index first = raft_driver_last(&replica->driver); /* DLedger index of the first gathered entry */
    struct append_entry_request **link = &replica->pending_head;
    struct append_entry_request *tail = NULL;
    struct append_entry_request *refused;
    const uint8_t *at = replica->gather.data;

    for (uint32_t i = 0; i < replica->gather_count; i++) {
        struct ledger_entry entry;
        struct message_dispatch dispatch;
        if (ledger_entry_decode(&entry, at) == 0 && entry.kind == LEDGER_ENTRY_MESSAGE &&
            message_dispatch_decode(slice_of(at + LEDGER_ENTRY_HEADER_SIZE, entry.body_size), &dispatch) == 0) {
            struct consume_queue *queue = message_store_queue(replica->store, dispatch.topic, dispatch.queue_id, false, NULL);
            if (queue != NULL && dispatch.queue_offset < queue->append_offset)
                queue->append_offset = dispatch.queue_offset;
        }
        at += replica->gather_sizes[i];
    }
    drop_gathered(replica);
    while (*link != NULL && (*link)->index < first) {
        tail = *link;
        link = &(*link)->next;
    }
    refused = *link;
    *link = NULL;
    replica->pending_tail = tail;
    while (refused != NULL) {
        struct append_entry_request *next = refused->next;
        refused->code = code;
        refused->done(refused);
        refused = next;
    }
}

static bool submit_gathered(struct replica *replica)
{
    size_t size = 0;
    uint32_t count = 0;
    uint64_t end;
    int rv;

    if (replica->gather_count <= REPLICA_SUBMIT_MAX) {
        count = replica->gather_count;
        size = replica->gather.size;
        end = replica->gather_end;
    } else {
        for (; count < REPLICA_SUBMIT_MAX; count++)
            size += replica->gather_sizes[count];
        const uint8_t *last = replica->gather.data + size - replica->gather_sizes[count - 1];
        end = load_u64(last + 24) + replica->gather_sizes[count - 1];
    }
    /* Behind the step there is no way back, so the room must be there before it. */
    if (raft_driver_make_room(&replica->driver, end + LEDGER_BLANK_SIZE, count) != 0) {
        note_room(replica);
        refuse_gathered(replica, ERROR_NO_SPACE);
        return false;
    }
    rv = raft_driver_submit(&replica->driver, replica->gather.data, size, count);
    if (rv != 0) {
        /* Leadership is being transferred or was lost. Queue offsets that were given out behind the log's end are taken back only when the whole
         * log is applied, so that none in flight is used again. */
        drop_gathered(replica);
        replica->accepting = false;
        replica->accept_from = raft_driver_last(&replica->driver);
        pending_fail_all(replica, ERROR_LEADERSHIP_LOST);
        return false;
    }
    if (count < replica->gather_count) {
        memmove(replica->gather.data, replica->gather.data + size, replica->gather.size - size);
        memmove(replica->gather_sizes, replica->gather_sizes + count, (replica->gather_count - count) * sizeof *replica->gather_sizes);
    }
    replica->gather.size -= size;
    replica->gather_count -= count;
    replica->round_last = raft_driver_last(&replica->driver);
    replica->round_started_us = now_us(replica);
    replica->announce_due_us = 0;
    return true;
}

/* ---- background work ---- */

static void start_sync(struct replica *replica)
{
    struct raft_driver *driver = &replica->driver;

    if (replica->syncing || !driver->started || driver->failed)
        return;
    if (replica->options.durability == DURABILITY_A) {
        /* Nobody waits for it: a checkpoint may only claim what is durable, and starts are short when it is young. */
        if (now_us(replica) < replica->lazy_sync_due_us || !ledger_sync_next(&replica->ledger, &replica->sync))
            return;
        replica->lazy_sync_due_us = now_us(replica) + REPLICA_CHECKPOINT_MS * 1000ull;
        replica->syncing = true;
        replica->io.sync(replica->io.context, &replica->sync);
        return;
    }
    if (driver->raft.last_stored >= raft_driver_last(driver))
        return;
    if (!ledger_sync_next(&replica->ledger, &replica->sync)) {
        /* All of it is durable, or the ledger has failed and syncs nothing any more: only what it vouches for counts. */
        raft_driver_persisted(driver, (raft_index)(replica->ledger.synced_index + 1));
        return;
    }
    replica->syncing = true;
    replica->io.sync(replica->io.context, &replica->sync);
}

void replica_synced(struct replica *replica)
{
    int64_t durable;

    replica->syncing = false;
    replica->fdatasync_count += (uint64_t)replica->sync.count;
    durable = ledger_sync_done(&replica->ledger, &replica->sync);
    if (replica->sync.result != 0)
        replica_fail(replica, &replica->ledger.failure);
    else
        raft_driver_persisted(&replica->driver, (raft_index)(durable + 1));
}

static void start_reserve(struct replica *replica)
{
    if (replica->ledger.reserving || replica->phase == REPLICA_FAILED)
        return;
    if (ledger_reservation_next(&replica->ledger, &replica->reservation))
        replica->io.reserve(replica->io.context, &replica->reservation);
    else if (replica->ledger.failed)
        replica_fail(replica, &replica->ledger.failure);
    else
        note_room(replica);
    if (replica->reserve_failed)
        replica->reserve_retry_us = now_us(replica) + 250000;
}

void replica_reserved(struct replica *replica)
{
    ledger_reservation_done(&replica->ledger, &replica->reservation);
    note_room(replica);
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
    }
    if (save->snapshot_path[0] != '\0')
        save->result = metadata_snapshot_write(save->env, save->snapshot_path, buffer_slice(&save->snapshot), &save->error);
    if (save->result == 0) {
        if (save->snapshot_path[0] != '\0')
            save->checkpoint.snapshot_index = save->snapshot_index;
        save->result = checkpoint_save(&save->checkpoint, save->env, save->checkpoint_path, &save->error);
    }
}

static void fill_checkpoint(struct replica *replica, struct checkpoint *checkpoint)
{
    const struct ledger *ledger = &replica->ledger;

    checkpoint->present = true;
    checkpoint->boot_id = replica->env->ops->boot_id(replica->env);
    checkpoint->durability = (uint8_t)replica->options.durability;
    checkpoint->dispatched_position = replica->applied_end;
    ledger_fill_checkpoint(ledger, (int64_t)replica->applied - 1, checkpoint);
    if (replica->configuration_index > 0 && replica->configuration.size <= sizeof checkpoint->configuration) {
        checkpoint->configuration_index = replica->configuration_index - 1;
        checkpoint->configuration_size = (uint32_t)replica->configuration.size;
        memcpy(checkpoint->configuration, replica->configuration.data, replica->configuration.size);
    }
}

/* Hands checkpoint (and snapshot if it is due or asked for) to the pool. */
static void start_save(struct replica *replica, bool with_snapshot)
{
    struct replica_save *save = &replica->save;

    if (replica->saving)
        return;
    fill_checkpoint(replica, &replica->checkpoint);
    save->env = replica->env;
    save->checkpoint = replica->checkpoint;
    path_in(replica, "checkpoint", save->checkpoint_path, sizeof save->checkpoint_path);
    save->snapshot_path[0] = '\0';
    if (with_snapshot && (int64_t)replica->applied - 1 > replica->snapshot_index) {
        save->snapshot_index = (int64_t)replica->applied - 1;
        save->snapshot_position = replica->applied_end;
        buffer_clear(&save->snapshot);
        if (metadata_snapshot_begin(&save->snapshot, save->snapshot_index) == 0 &&
            replica->callbacks.snapshot(replica->callbacks.context, (uint64_t)save->snapshot_index, &save->snapshot) == 0 &&
            metadata_snapshot_end(&save->snapshot) == 0)
            metadata_snapshot_path(replica->env, replica->dir, replica->snapshot_index, save->snapshot_path, sizeof save->snapshot_path);
    }
    /* Making queues durable is for the start after a power cut only: seldom, so that it does not compete with the log's syncs. */
    save->with_sync = !replica->stopping && now_us(replica) >= replica->store_sync_due_us &&
                      message_store_sync_begin(replica->store, &save->sync) == 0;
    save->sync_position = replica->applied_end;
    if (save->with_sync)
        replica->store_sync_due_us = now_us(replica) + REPLICA_STORE_SYNC_MS * 1000ull;
    replica->saving = true;
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
    if (save->result != 0) {
        /* A lost checkpoint costs time at the next start, not data. */
        LOG_ERROR("checkpoint in %s: %s", replica->dir, save->error.message);
        replica->checkpoint_dirty = true;
        return;
    }
    if (save->snapshot_path[0] != '\0') {
        replica->snapshot_index = save->snapshot_index;
        replica->snapshot_position = save->snapshot_position;
        replica->checkpoint.snapshot_index = save->snapshot_index;
        buffer_close(&save->snapshot);
        buffer_init(&save->snapshot, 0);
    }
    if (replica->configuration_index > 0)
        raft_driver_move_trail(&replica->driver, (raft_index)(save->checkpoint.committed_index + 1), buffer_slice(&replica->configuration),
                               replica->configuration_index);
}

/* ---- members ---- */

static struct replica_peer *peer_of(struct replica *replica, uint64_t id)
{
    return id >= 1 && id <= (uint64_t)replica->member_count && id != replica->id ? &replica->peers[id - 1] : NULL;
}

void replica_hello(struct replica *replica, uint64_t to, struct peer_hello *hello)
{
    *hello = (struct peer_hello){
        .version = PEER_PROTOCOL_VERSION,
        .from = replica->id,
        .to = to,
        .incarnation = replica->checkpoint.incarnation,
        .segment_size = replica->options.segment_size,
        .term = replica->votes.term,
        .last_index = raft_driver_last(&replica->driver),
        .last_term = replica->ledger.last_term,
        .mute = (uint8_t)replica->mute_reason,
        .started = replica->phase == REPLICA_RUNNING,
    };
    snprintf(hello->cluster, sizeof hello->cluster, "%s", replica->options.cluster);
    snprintf(hello->group, sizeof hello->group, "%s", replica->options.group);
    snprintf(hello->broker_address, sizeof hello->broker_address, "%s", replica->broker_address);
}

const char *replica_check_hello(struct replica *replica, const struct peer_hello *hello)
{
    char *why = replica->why_not;
    size_t size = sizeof replica->why_not;

    if (hello->version != PEER_PROTOCOL_VERSION)
        snprintf(why, size, "peer protocol version %u, ours is %u", hello->version, PEER_PROTOCOL_VERSION);
    else if (strcmp(hello->cluster, replica->options.cluster) != 0)
        snprintf(why, size, "cluster \"%.64s\", ours is \"%.64s\"", hello->cluster, replica->options.cluster);
    else if (strcmp(hello->group, replica->options.group) != 0)
        snprintf(why, size, "group \"%.64s\", ours is \"%.64s\"", hello->group, replica->options.group);
    else if (hello->from == replica->id)
        snprintf(why, size, "the same id as ours (%s): dLegerSelfId is given twice", replica->options.self_id);
    else if (peer_of(replica, hello->from) == NULL)
        snprintf(why, size, "member number %llu is not in our dLegerPeers", (unsigned long long)hello->from);
    else if (hello->to != replica->id)
        snprintf(why, size, "looks for member number %llu, this is %llu: dLegerPeers differ", (unsigned long long)hello->to,
                 (unsigned long long)replica->id);
    else if (hello->segment_size != replica->options.segment_size)
        snprintf(why, size, "mappedFileSizeCommitLog %llu, ours is %llu: all members need the same", (unsigned long long)hello->segment_size,
                 (unsigned long long)replica->options.segment_size);
    else
        return NULL;
    return why;
}

static bool better_log(const struct peer_hello *a, uint64_t last_term, raft_index last, uint64_t id)
{
    if (a->last_term != last_term || a->last_index != last)
        return a->last_term > last_term || (a->last_term == last_term && a->last_index > last);
    return a->from < id;
}

/* Looks whether a member that waits or is mute may go on. */
static void review_members(struct replica *replica)
{
    struct error error;
    int running = 0;
    int young = 0; /* empty, or holding no more than the first entry of the first term: never took part in an election */
    int missing = 0;
    int better = 0; /* unclean ones that hold more than we do */
    int rv = 0;

    if (replica->phase != REPLICA_WAITING && replica->phase != REPLICA_MUTE)
        return;
    for (int i = 0; i < replica->member_count; i++) {
        const struct replica_peer *peer = &replica->peers[i];
        if ((uint64_t)i + 1 == replica->id)
            continue;
        if (!peer->connected || !peer->greeted) {
            missing++;
            continue;
        }
        if (!peer->hello.started && peer->hello.mute == PEER_NOT_MUTE) {
            missing++; /* stopped for good: what it holds is there again when a person restarts it */
            continue;
        }
        running += peer->hello.started;
        young += peer->hello.last_index <= 1 && peer->hello.term <= 1;
        better += peer->hello.mute == PEER_MUTE_UNCLEAN && better_log(&peer->hello, replica->ledger.last_term, raft_driver_last(&replica->driver), replica->id);
    }
    if (replica->phase == REPLICA_WAITING && young + missing < replica->member_count - 1) {
        replica->phase = REPLICA_MUTE;
        LOG_WARN("this directory is empty among members that are not: mute until it has caught up with a leader");
    }
    if (missing > 0)
        return; /* whoever is missing may know more */
    if (replica->mute_reason == PEER_MUTE_EMPTY && replica->ledger.last_index <= 0 && young == replica->member_count - 1) {
        rv = bootstrap(replica, &error); /* also when a first start was interrupted between the first entry and the vote file */
    } else if (replica->mute_reason == PEER_MUTE_UNCLEAN && running + better < replica->member_count / 2 + 1) {
        /* No more of us vote than a majority needs, those with most of the log first: so the leader has the most of what is left, and the others
         * catch up with it. */
        LOG_ERROR("durability class A: a majority went down uncleanly, so what was acknowledged last may be lost; electing from what is left");
        rv = start_driver(replica, replica->applied, &error);
    }
    if (rv == ERROR_NO_SPACE)
        replica->review_due_us = now_us(replica) + REPLICA_REVIEW_RETRY_MS * 1000ull; /* nothing was written */
    else if (rv != 0)
        replica_fail(replica, &error);
}

void replica_peer_connected(struct replica *replica, uint64_t id, const struct peer_hello *hello)
{
    struct replica_peer *peer = peer_of(replica, id);

    if (peer == NULL)
        return;
    peer->connected = true;
    peer->greeted = true;
    peer->heard = true;
    peer->hello = *hello;
    if (hello->term > replica->heard_term)
        replica->heard_term = hello->term;
    replica->members[id - 1].connected = true;
    snprintf(replica->members[id - 1].broker_address, sizeof replica->members[id - 1].broker_address, "%s", hello->broker_address);
    review_members(replica);
}

void replica_peer_lost(struct replica *replica, uint64_t id)
{
    struct replica_peer *peer = peer_of(replica, id);

    if (peer == NULL)
        return;
    peer->connected = false;
    peer->greeted = false;
    replica->members[id - 1].connected = false;
}

static void hurry(struct replica *replica)
{
    /* Staggered by place, so that two survivors do not split the vote; repeated, since the one asked first may still believe in the old leader. */
    raft_driver_hurry(&replica->driver, (uint32_t)(5 + 15 * (replica->id - 1)));
    replica->hurry_next_us = now_us(replica) + 60000 + 10000 * replica->id;
}

void replica_peer_gone(struct replica *replica, uint64_t id)
{
    if (replica->phase != REPLICA_RUNNING || (raft_driver_leader(&replica->driver) != id && replica->hurry_until_us == 0))
        return;
    if (raft_driver_leader(&replica->driver) == id)
        replica->hurry_until_us = now_us(replica) + 2000000;
    hurry(replica);
}

/* ---- fetching what was forgotten ---- */

static void send_fetch(struct replica *replica)
{
    struct peer_message message = {.type = PEER_FETCH};

    message.fetch.next_index = raft_driver_last(&replica->driver) + 1;
    message.fetch.previous_term = replica->ledger.last_term;
    message.fetch.term = replica->votes.term;
    if (replica->mute_reason == PEER_MUTE_EMPTY && replica->heard_term > message.fetch.term)
        message.fetch.term = replica->heard_term;
    replica->fetch_sent_us = now_us(replica);
    for (int i = 0; i < replica->member_count; i++) {
        if (replica->peers[i].connected && replica->peers[i].greeted && replica->peers[i].hello.started)
            replica->io.send(replica->io.context, (uint64_t)i + 1, &message, NULL, 0);
    }
}

/* As leader: entries for a mute member. Others stay silent. */
static void answer_fetch(struct replica *replica, uint64_t from, const struct peer_message *in)
{
    struct peer_message out = {.type = PEER_FETCH_RESULT};
    raft_index previous = in->fetch.next_index - 1;
    raft_index last = raft_driver_last(&replica->driver);
    raft_index match = 0;
    const uint8_t *run = NULL;
    size_t size = 0;

    if (!raft_driver_leads(&replica->driver) || in->fetch.next_index == 0)
        return;
    if (in->fetch.term > raft_current_term(&replica->driver.raft)) {
        /* It once stood for election in a later term than ours and will not follow us. A member that runs would say so in an answer to our entries,
         * and another election would follow. */
        struct peer_message result = {.type = PEER_APPEND_ENTRIES_RESULT};
        result.append_result.term = in->fetch.term;
        result.append_result.rejected = 1;
        raft_driver_receive(&replica->driver, from, &result, NULL);
        return;
    }
    out.fetch_result.term = raft_current_term(&replica->driver.raft);
    out.fetch_result.commit = replica->driver.commit;
    out.fetch_result.last_index = last;
    /* Until our own term has committed something, the commit index says little; all that ever committed before is in the log we were elected with. */
    if (raft_match_index(&replica->driver.raft, from, &match) != 0 || match < replica->accept_from)
        match = replica->accept_from;
    out.fetch_result.match = match;
    out.fetch_result.previous_index = previous;
    if (previous > last || (previous > 0 && ledger_term_of(&replica->ledger, previous - 1) != in->fetch.previous_term)) {
        out.fetch_result.previous_term = 0;
        out.flags = 1; /* our log has another entry there */
    } else {
        out.fetch_result.previous_term = in->fetch.previous_term;
        if (previous < last)
            out.count = ledger_run(&replica->ledger, previous, REPLICA_SUBMIT_MAX, PEER_RUN_MAX, &run, &size);
        out.body_size = (uint32_t)size;
    }
    replica->io.send(replica->io.context, from, &out, run, size);
}

/* May a leader of this term let us vote again? It must not be older than any term in which we voted for or acknowledged something: a later
 * leader than the one we acknowledged to has what committed thereby, that one itself knows what we acknowledged. Who lost its vote file asks
 * everybody: whoever had our vote, or led us, has stored that term. */
static bool leader_is_recent(const struct replica *replica, uint64_t term)
{
    if (replica->mute_reason == PEER_MUTE_EMPTY) {
        for (int i = 0; i < replica->member_count; i++) {
            if ((uint64_t)i + 1 != replica->id && !replica->peers[i].heard)
                return false;
        }
        return term >= replica->heard_term;
    }
    return true; /* of votes.term at least, or it was not heard at all */
}

static void receive_fetched(struct replica *replica, uint64_t from, const struct peer_message *in, const uint8_t *run)
{
    struct ledger *ledger = &replica->ledger;
    raft_index last = raft_driver_last(&replica->driver);
    raft_index target, committed;
    struct error error;
    int rv = 0;

    if (replica->phase != REPLICA_MUTE || in->fetch_result.previous_index != last || in->fetch_result.term < replica->votes.term)
        return;
    if (in->flags == 1) {
        if (last <= replica->applied) {
            error_set(&error, ERROR_DAMAGED, "the leader's log contradicts entry %llu, which is committed here", last - 1);
            replica_fail(replica, &error);
            return;
        }
        rv = ledger_truncate(ledger, replica->applied);
    } else if (in->count > 0) {
        if (ledger_check_run(ledger, run, in->body_size, in->count, last, ledger->last_term, ledger->end_position, ledger->last_chain,
                             in->fetch_result.term, &error) != 0) {
            LOG_WARN("fetched entries behind index %llu are refused: %s", last, error.message);
            return;
        }
        rv = ledger_append(ledger, run, in->body_size, in->count);
    }
    if (rv == ERROR_NO_SPACE)
        return; /* the timer asks again */
    if (rv != 0) {
        replica_fail(replica, &ledger->failure);
        return;
    }
    last = raft_driver_last(&replica->driver);
    replica->io.hello_changed(replica->io.context);
    target = in->fetch_result.match > in->fetch_result.commit ? in->fetch_result.match : in->fetch_result.commit;
    if (last < target || last == 0 || !leader_is_recent(replica, in->fetch_result.term)) {
        if (last < in->fetch_result.last_index)
            send_fetch(replica);
        return;
    }
    rv = sync_now(replica, &error);
    /* No other vote of ours in its term can matter any more. */
    if (rv == 0 && (replica->votes.term < in->fetch_result.term || !replica->votes.existed))
        rv = vote_file_save(&replica->votes, in->fetch_result.term, from, &error);
    committed = in->fetch_result.commit < last ? in->fetch_result.commit : last;
    if (rv == 0)
        rv = start_driver(replica, committed > replica->applied ? committed : replica->applied, &error);
    if (rv != 0)
        replica_fail(replica, &error);
    else
        LOG_INFO("caught up to index %llu: this member votes again", last - 1);
}

void replica_receive(struct replica *replica, uint64_t from, const struct peer_message *message, const uint8_t *body)
{
    if (replica->phase == REPLICA_FAILED || peer_of(replica, from) == NULL || replica->checkpoint.clean)
        return; /* a clean checkpoint is the last thing that a run writes */
    if (message->type == PEER_FETCH)
        answer_fetch(replica, from, message);
    else if (message->type == PEER_FETCH_RESULT)
        receive_fetched(replica, from, message, body);
    else {
        if (message->type == PEER_APPEND_ENTRIES_RESULT)
            replica->peers[from - 1].full = message->append_result.capacity == 0;
        raft_driver_receive(&replica->driver, from, message, body);
    }
}

/* ---- turn and tick ---- */

bool replica_turn(struct replica *replica)
{
    struct raft_driver *driver = &replica->driver;
    bool applied = false;

    if (!replica->driver_ready || replica->checkpoint.clean)
        return false;
    for (int i = 0; i < 4; i++) {
        bool worked = false;
        /* First of all: who waits at an index where another leader's entry stands now must not be answered by its commit. */
        update_role(replica);
        if (driver->started && replica->options.durability == DURABILITY_A)
            raft_driver_persisted(driver, raft_driver_last(driver));
        if (driver->started && replica->applied < driver->commit)
            worked = apply_committed(replica, driver->commit, REPLICA_APPLY_TURN_MAX);
        applied |= worked;
        update_role(replica);
        if (may_submit(replica))
            worked |= submit_gathered(replica);
        start_sync(replica);
        if (!worked || replica->phase == REPLICA_FAILED)
            break;
    }
    if (replica->phase == REPLICA_FAILED)
        update_role(replica);
    start_reserve(replica);
    if (applied && raft_driver_leads(driver) && driver->commit > replica->announced && replica->member_count > 1)
        replica->announce_due_us = driver->commit >= raft_driver_last(driver) ? now_us(replica) + REPLICA_ANNOUNCE_MS * 1000 : 0;
    if (applied)
        replica->callbacks.applied(replica->callbacks.context);
    return replica->more_to_apply;
}

void replica_tick(struct replica *replica)
{
    uint64_t now = now_us(replica);

    if (!replica->driver_ready)
        return;
    if (replica->phase == REPLICA_RUNNING) {
        raft_driver_tick(&replica->driver);
        if (replica->hurry_until_us != 0 && now >= replica->hurry_next_us) {
            if (now < replica->hurry_until_us && raft_driver_leader(&replica->driver) == 0)
                hurry(replica);
            else if (now >= replica->hurry_until_us)
                replica->hurry_until_us = 0;
            else
                replica->hurry_next_us = now + 60000;
        }
    }
    if (replica->phase == REPLICA_MUTE && now >= replica->fetch_sent_us + FETCH_RETRY_US)
        send_fetch(replica);
    if (replica->review_due_us != 0 && now >= replica->review_due_us) {
        replica->review_due_us = 0;
        review_members(replica);
    }
    while (replica->pending_head != NULL && now >= replica->pending_head->deadline_us)
        pending_finish_head(replica, replica->apply_stalled ? ERROR_DISK_STALLED : ERROR_QUORUM_TIMEOUT);
    if (replica->announce_due_us != 0 && now >= replica->announce_due_us) {
        replica->announce_due_us = 0;
        replica->announced = replica->driver.commit;
        raft_driver_announce_commit(&replica->driver);
    }
    replica->driver.capacity = is_full(replica) ? 0 : 0xffff;
    hand_over_when_useful(replica, now);
    if (now >= replica->checkpoint_due_us && !replica->saving && replica->checkpoint_dirty && replica->phase == REPLICA_RUNNING) {
        start_save(replica, replica->applied_end - replica->snapshot_position >= REPLICA_SNAPSHOT_BYTES);
        replica->checkpoint_due_us = now + REPLICA_CHECKPOINT_MS * 1000;
    }
}

uint64_t replica_deadline_us(const struct replica *replica)
{
    uint64_t due = UINT64_MAX;
#define EARLIER(time) due = (time) < due ? (time) : due
    if (replica->driver.started && !replica->driver.failed && replica->driver.timeout_ms < UINT64_MAX / 1000)
        EARLIER(replica->driver.timeout_ms * 1000);
    if (replica->pending_head != NULL)
        EARLIER(replica->pending_head->deadline_us);
    if (replica->announce_due_us != 0)
        EARLIER(replica->announce_due_us);
    if (replica->gather_count > 0)
        EARLIER(replica->round_started_us + REPLICA_ROUND_AGE_US);
    if (replica->checkpoint_dirty && !replica->saving && replica->phase == REPLICA_RUNNING)
        EARLIER(replica->checkpoint_due_us);
    if (replica->phase == REPLICA_MUTE)
        EARLIER(replica->fetch_sent_us + FETCH_RETRY_US);
    if (replica->review_due_us != 0)
        EARLIER(replica->review_due_us);
    if (replica->reserve_failed)
        EARLIER(replica->reserve_retry_us);
    if (replica->hurry_until_us != 0)
        EARLIER(replica->hurry_next_us);
    if (replica->apply_stalled)
        EARLIER(replica->apply_retry_us);
#undef EARLIER
    return due;
}

bool replica_stop_step(struct replica *replica)
{
    struct error error;

    if (!replica->stopping) {
        replica->stopping = true;
        replica->accepting = false;
        drop_gathered(replica);
        pending_fail_all(replica, ERROR_STOPPED);
    }
    if (replica->syncing || replica->saving || replica->ledger.reserving)
        return false;
    if (replica->phase == REPLICA_FAILED || !replica->driver.started)
        return true;
    while (replica->applied < replica->driver.commit && apply_committed(replica, replica->driver.commit, UINT32_MAX))
        ;
    if (sync_now(replica, &error) != 0 || message_store_sync(replica->store) != 0) {
        LOG_ERROR("clean stop: sync failed; the next start does more work");
        return true;
    }
    replica->checkpoint.synced_dispatched_position = replica->applied_end;
    replica->checkpoint.clean = true;
    start_save(replica, true);
    return true;
}

/* ---- state ---- */

int replica_leader_member(const struct replica *replica)
{
    return (int)replica->known_leader - 1;
}

const char *replica_why_not(const struct replica *replica)
{
    char *why = (char *)(uintptr_t)replica->why_not;
    size_t size = sizeof replica->why_not;

    if (replica->phase == REPLICA_FAILED)
        snprintf(why, size, "this node's log failed: %.200s", replica->failure.message);
    else if (replica->reserve_failed)
        snprintf(why, size, "the broker's disk is full: no room can be reserved for the log (%s)", strerror(replica->reserve_errno));
    else if (replica->apply_stalled)
        snprintf(why, size, "the broker's disk is full: no room for queue files");
    else if (replica->stopping)
        snprintf(why, size, "the broker is shutting down");
    else if (replica->phase == REPLICA_WAITING)
        snprintf(why, size, "no leader yet: waiting for all %d members of group %s at their first start", replica->member_count,
                 replica->options.group);
    else if (replica->phase == REPLICA_MUTE)
        snprintf(why, size, "this node is catching up with the group");
    else if (replica->known_leader == 0)
        snprintf(why, size, "no leader in group %s", replica->options.group);
    else if (replica->known_leader != replica->id)
        snprintf(why, size, "not the leader, the leader is %s", replica->members[replica->known_leader - 1].id);
    else if (!replica->accepting)
        snprintf(why, size, "the leader is applying the log of its predecessor");
    else
        snprintf(why, size, "too many messages wait for the quorum");
    return why;
}

void replica_state(const struct replica *replica, struct dledger_state *state)
{
    struct raft *raft = (struct raft *)(uintptr_t)&replica->driver.raft;

    *state = (struct dledger_state){
        .accepting = replica->accepting && !replica->reserve_failed && !replica->apply_stalled,
        .term = replica->driver.started ? raft_current_term(raft) : replica->votes.term,
        .leader = replica_leader_member(replica),
        .last_index = replica->ledger.last_index,
        .commit_index = (int64_t)replica->driver.commit - 1,
        .applied_index = (int64_t)replica->applied - 1,
        .committed_position = (int64_t)replica->applied_end,
        .begin_position = (int64_t)mapped_file_queue_begin(&replica->ledger.data),
        .durability = replica->options.durability,
        .up_since_ms = replica->up_since_ms,
        .fdatasync_count = replica->fdatasync_count,
        .failed = replica->phase == REPLICA_FAILED,
        .disk_full = replica->reserve_failed || replica->apply_stalled,
        .member_count = replica->member_count,
    };
    switch (replica->driver.started && !replica->driver.failed ? raft_state(raft) : RAFT_UNAVAILABLE) {
    case RAFT_FOLLOWER:
        state->role = DLEDGER_FOLLOWER;
        break;
    case RAFT_CANDIDATE:
        state->role = DLEDGER_CANDIDATE;
        break;
    case RAFT_LEADER:
        state->role = DLEDGER_LEADER;
        break;
    default:
        state->role = DLEDGER_ROLE_UNKNOWN;
        break;
    }
    for (int i = 0; i < replica->member_count; i++) {
        struct dledger_member *member = &state->members[i];
        raft_index match;
        *member = replica->members[i];
        if (state->role == DLEDGER_LEADER && !member->self && raft_match_index(raft, member->raft_id, &match) == 0 && match > 0)
            member->match_index = match - 1;
        if (member->self) {
            member->connected = true;
            member->match_index = replica->ledger.last_index < 0 ? UINT64_MAX : (uint64_t)replica->ledger.last_index;
            snprintf(member->broker_address, sizeof member->broker_address, "%s", replica->broker_address);
        }
    }
}
