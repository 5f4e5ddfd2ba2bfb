/* 1 what an earlier try left is opened as a ledger; 2 the leader's manifest says whether that is a part of what is needed, else it goes; 3 the snapshot,
 * then the entries come in pieces, each checked against the chain before it is written; 4 all is made durable, then marked as complete, and a start asked for.
 *
 * Whatever fails on the way (no answer, another leader, a full disk) leads back to 1 or 2: nothing but time is lost.
 */
#include "dledger/replica_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dledger/ledger_internal.h"
#include "dledger/metadata_snapshot.h"
#include "dledger/peer_version.h"
#include "store/log_sink.h"

#define ANSWER_US 2000000u       /* a question without an answer is asked again after this */
#define UNANSWERED_MAX 3u        /* ... so often, then anybody who leads is asked */
#define RETRY_US 1000000u        /* after a failure */
#define PROGRESS_US 5000000u     /* between two lines in the log */
#define SYNC_BYTES (32u << 20)   /* unsynced bytes after which the disk is given time */
#define METADATA_MAX (1ull << 30)

#define BIT(state) (1u << (state))
static const struct {
    const char *name;
    unsigned next;
} states[BULK_STATES] = {
    [BULK_IDLE] = {"idle", BIT(BULK_OPENING)},
    [BULK_OPENING] = {"opening", BIT(BULK_ASKING) | BIT(BULK_OPENING) | BIT(BULK_IDLE)},
    [BULK_ASKING] = {"asking", BIT(BULK_METADATA) | BIT(BULK_OPENING)},
    [BULK_METADATA] = {"metadata", BIT(BULK_ENTRIES) | BIT(BULK_SYNCING) | BIT(BULK_ASKING) | BIT(BULK_OPENING)},
    [BULK_ENTRIES] = {"entries", BIT(BULK_SYNCING) | BIT(BULK_ASKING) | BIT(BULK_OPENING)},
    [BULK_SYNCING] = {"syncing", BIT(BULK_ENTRIES) | BIT(BULK_FINISHING) | BIT(BULK_OPENING)},
    [BULK_FINISHING] = {"finishing", BIT(BULK_COMPLETE) | BIT(BULK_OPENING) | BIT(BULK_FINISHING)},
    [BULK_COMPLETE] = {"complete", 0},
};

const char *bulk_state_name(enum bulk_state state)
{
    return states[state].name;
}

static void enter(struct bulk_fetch *fetch, enum bulk_state state)
{
    assert((states[fetch->state].next & BIT(state)) != 0);
    fetch->state = state;
    fetch->asked_us = 0;
    fetch->unanswered = 0;
    fetch->due_us = replica_now_us(fetch->replica);
}

static void ask_again(struct bulk_fetch *fetch)
{
    enter(fetch, BULK_ASKING);
    fetch->due_us += RETRY_US;
}

static struct bulk_fetch *fetch_of(struct replica_job *job)
{
    return (struct bulk_fetch *)(void *)((char *)job - offsetof(struct bulk_fetch, job));
}

static void start_job(struct bulk_fetch *fetch, void (*run)(struct replica_job *job), void (*done)(struct replica_job *job))
{
    fetch->job.run = run;
    fetch->job.done = done;
    fetch->result = 0;
    replica_job_start(fetch->replica, &fetch->job);
}

/* ---- what was left ---- */

static void open_staging(struct replica_job *job)
{
    struct bulk_fetch *fetch = fetch_of(job);
    struct replica *replica = fetch->replica;
    struct checkpoint none = {.present = false, .committed_index = -1};
    struct ledger_recovery recovery;

    if (fetch->wipe)
        fetch->result = bulk_install_discard(replica->env, replica->dir, &fetch->error);
    for (int i = 0; i < 2 && fetch->result == 0; i++) {
        int rv = replica->env->ops->make_dir(replica->env, fetch->dir);
        if (rv != 0) {
            fetch->result = error_set(&fetch->error, ERROR_IO, "%s: %s", fetch->dir, strerror(-rv));
            return;
        }
        /* As after a power cut: what was not synced may be gone, and is fetched again. */
        rv = ledger_open(&fetch->staging, replica->env, fetch->dir, replica->options.segment_size, replica->options.index_file_size, true, &none, false, NULL,
                         &recovery, &fetch->error);
        if (rv == 0) {
            fetch->opened = true;
            return;
        }
        fetch->result = i == 0 ? bulk_install_discard(replica->env, replica->dir, &fetch->error) : rv;
    }
}

static bool holds_entries(const struct bulk_fetch *fetch)
{
    return fetch->opened && fetch->staging.last_index >= fetch->staging.begin_index;
}

static void close_staging(struct bulk_fetch *fetch)
{
    if (fetch->opened)
        ledger_close(&fetch->staging);
    fetch->opened = false;
}

static void staging_opened(struct replica_job *job)
{
    struct bulk_fetch *fetch = fetch_of(job);

    if (fetch->result != 0) {
        LOG_ERROR("nothing can be fetched: %s; it is tried again", fetch->error.message);
        fetch->due_us = replica_now_us(fetch->replica) + RETRY_US;
        return;
    }
    fetch->wipe = false;
    if (holds_entries(fetch))
        LOG_INFO("entries %lld to %lld were fetched before", (long long)fetch->staging.begin_index, (long long)fetch->staging.last_index);
    enter(fetch, BULK_ASKING);
}

/* From the beginning, with nothing. */
static void start_over(struct bulk_fetch *fetch, const char *why)
{
    if (fetch->opened)
        LOG_WARN("what was fetched so far cannot be used: %s", why);
    close_staging(fetch);
    fetch->wipe = true;
    enter(fetch, BULK_OPENING);
}

/* ---- questions ---- */

static bool is_damaged(const struct replica *replica)
{
    return replica->phase == REPLICA_MUTE && replica->mute_reason == PEER_MUTE_DAMAGED;
}

/* What is fetched from a member takes the place of what was acknowledged here, so all of that must be there: in a log as good as this one, as in an election, is
 * all that was committed with this one's help, and stays. A hello that is old only tells of less. */
static bool holds_ours(const struct replica *replica, const struct peer_hello *hello)
{
    return hello->last_term > replica->ledger.last_term ||
           (hello->last_term == replica->ledger.last_term && hello->last_index >= raft_driver_last(&replica->driver));
}

/* Whoever leads is asked. When nobody does, and this member's log must be whole before somebody can, anybody is who runs and has all that this member has. */
static void ask_manifest(struct bulk_fetch *fetch)
{
    struct replica *replica = fetch->replica;
    struct peer_message message = {.type = PEER_MANIFEST};
    bool anybody = is_damaged(replica) && ++fetch->unanswered > UNANSWERED_MAX, some = false;

    if (holds_entries(fetch)) {
        message.manifest.next_index = (uint64_t)fetch->staging.last_index + 2;
        message.manifest.previous_term = fetch->staging.last_term;
    }
    if (replica_leaderless(replica) != 0)
        message.flags = PEER_FETCH_LEADERLESS;
    for (int i = 0; i < replica->member_count; i++) {
        const struct replica_peer *peer = &replica->peers[i];
        if (!peer->connected || !peer->hello.started || replica->members[i].peer_version < PEER_VERSION_BULK)
            continue;
        replica->io.send(replica->io.context, (uint64_t)i + 1, &message, NULL, 0);
        if (!anybody || !holds_ours(replica, &peer->hello))
            continue;
        struct peer_message leaderless = message;
        leaderless.flags = PEER_FETCH_LEADERLESS;
        replica->io.send(replica->io.context, (uint64_t)i + 1, &leaderless, NULL, 0);
        some = true;
    }
    if (anybody && !some && !fetch->said_waits) {
        LOG_WARN("nobody leads, and no member that is here has all that this one may have acknowledged: it waits for one. When that is lost for good: mqbroker "
                 "--force-new-group, on the member whose log is to count (docs/group.md), or a backup");
        fetch->said_waits = true;
    }
}

static void ask_piece(struct bulk_fetch *fetch)
{
    struct replica *replica = fetch->replica;
    struct peer_message message = {.type = PEER_BULK};

    message.bulk.id = fetch->id;
    message.bulk.kind = fetch->state == BULK_METADATA ? PEER_BULK_METADATA : PEER_BULK_ENTRIES;
    message.bulk.from = fetch->state == BULK_METADATA ? fetch->metadata.size : (uint64_t)fetch->staging.last_index + 2;
    replica->io.send(replica->io.context, fetch->peer, &message, NULL, 0);
}

/* When the next piece may be asked for, so that the rate is kept. */
static void pace(struct bulk_fetch *fetch, size_t bytes)
{
    uint64_t rate = fetch->replica->options.fetch_bytes_per_second;
    uint64_t asked = fetch->asked_us;

    fetch->asked_us = 0;
    fetch->unanswered = 0;
    fetch->due_us = rate == 0 ? replica_now_us(fetch->replica) : asked + bytes * 1000000ull / rate;
}

/* ---- the manifest ---- */

static void take_manifest(struct bulk_fetch *fetch, const struct peer_message *in)
{
    struct error error;
    bool continues = (in->flags & PEER_MANIFEST_CONTINUES) != 0 && holds_entries(fetch) && (uint64_t)fetch->staging.begin_index <= fetch->first;

    if (!continues && holds_entries(fetch)) {
        start_over(fetch, "the leader's log has another beginning");
        return;
    }
    if (!continues && ledger_begin_at(&fetch->staging, fetch->first, fetch->first_position, &error) != 0) {
        start_over(fetch, error.message);
        return;
    }
    uint64_t begin = continues ? mapped_file_queue_begin(&fetch->staging.data) : fetch->first_position;
    uint64_t here = continues ? fetch->staging.end_position - begin : 0;
    LOG_INFO("the log is fetched from member %s: entries %llu to %llu, %llu MiB, of which %llu are here", fetch->replica->members[fetch->peer - 1].id,
             (unsigned long long)fetch->staging.begin_index, (unsigned long long)fetch->last, (unsigned long long)((fetch->end_position - begin) >> 20),
             (unsigned long long)(here >> 20));
    buffer_close(&fetch->metadata);
    buffer_init(&fetch->metadata, METADATA_MAX);
    fetch->begun_us = fetch->told_us = replica_now_us(fetch->replica);
    enter(fetch, BULK_METADATA);
}

void bulk_fetch_manifest(struct bulk_fetch *fetch, uint64_t from, const struct peer_message *in, const uint8_t *body)
{
    struct cursor cursor = cursor_of(slice_of(body, in->body_size));
    struct slice configuration;
    unsigned voters;
    bool is_voter;

    if (fetch->state != BULK_ASKING || fetch->job.out)
        return;
    if ((in->flags & PEER_MANIFEST_BUSY) != 0) {
        fetch->due_us = replica_now_us(fetch->replica) + RETRY_US;
        return;
    }
    fetch->configuration_index = cursor_u64(&cursor);
    uint32_t crc = cursor_u32(&cursor);
    configuration = slice_of(cursor.at, cursor_left(&cursor));
    if (cursor.failed || crc != crc32c(crc32c(0, body, sizeof fetch->configuration_index), configuration.data, configuration.size) || in->manifest_result.first_index == 0 || in->manifest_result.last_index < in->manifest_result.first_index ||
        in->manifest_result.first_position % fetch->replica->options.segment_size != 0 || in->manifest_result.metadata_size > METADATA_MAX ||
        in->manifest_result.end_position <= in->manifest_result.first_position || in->manifest_result.last_index > INT64_MAX / LEDGER_INDEX_UNIT ||
        configuration.size > CHECKPOINT_CONFIGURATION_MAX || fetch->configuration_index == 0 ||
        !raft_driver_configuration_valid(configuration, fetch->replica->id, &voters, &is_voter)) {
        LOG_WARN("a manifest of member %s is malformed", fetch->replica->members[from - 1].id);
        return;
    }
    if (fetch->replica->phase == REPLICA_RUNNING && raft_driver_last(&fetch->replica->driver) >= in->manifest_result.first_index) {
        /* Another leader kept more of the log: the ordinary way will do. */
        fetch->due_us = replica_now_us(fetch->replica) + RETRY_US;
        return;
    }
    fetch->peer = from;
    fetch->id = in->manifest_result.id;
    fetch->first = in->manifest_result.first_index - 1;
    fetch->last = in->manifest_result.last_index - 1;
    fetch->first_position = in->manifest_result.first_position;
    fetch->end_position = in->manifest_result.end_position;
    fetch->first_crc = in->count;
    fetch->metadata_size = in->manifest_result.metadata_size;
    buffer_clear(&fetch->configuration);
    buffer_append_slice(&fetch->configuration, configuration);
    take_manifest(fetch, in);
}

/* ---- the end ---- */

static void finish(struct replica_job *job)
{
    struct bulk_fetch *fetch = fetch_of(job);
    struct env *env = fetch->replica->env;
    const char *dirs[] = {fetch->staging.data.dir, fetch->staging.index.dir, fetch->dir, fetch->replica->dir};

    fetch->result = metadata_snapshot_write(env, fetch->metadata_path, buffer_slice(&fetch->metadata), &fetch->error);
    if (fetch->result == 0)
        fetch->result = checkpoint_save(&fetch->checkpoint, env, fetch->checkpoint_path, &fetch->error);
    for (int i = 0; i < 4 && fetch->result == 0; i++) {
        int rv = env->ops->sync_dir(env, dirs[i]);
        if (rv != 0)
            fetch->result = error_set(&fetch->error, ERROR_IO, "%s: %s", dirs[i], strerror(-rv));
    }
    if (fetch->result == 0)
        fetch->result = bulk_install_mark(env, fetch->mark_path, &fetch->error);
}

static void finished(struct replica_job *job)
{
    struct bulk_fetch *fetch = fetch_of(job);

    if (fetch->result != 0) {
        /* The mark may be there all the same, so nothing may be appended here any more: it is written again. */
        LOG_ERROR("what was fetched cannot be made to count: %s; it is tried again", fetch->error.message);
        fetch->due_us = replica_now_us(fetch->replica) + RETRY_US;
        return;
    }
    enter(fetch, BULK_COMPLETE);
    LOG_INFO("the log is here up to entry %llu, after %llu s: it takes the place of the old one with a start that follows now", (unsigned long long)fetch->last,
             (unsigned long long)((replica_now_us(fetch->replica) - fetch->begun_us) / 1000000));
    fetch->replica->restart_wanted = true;
}

/* Is what the member has still before what was fetched, or damaged where others have deleted it? */
static bool still_needed(const struct bulk_fetch *fetch)
{
    return fetch->replica->ledger.last_index < (int64_t)fetch->staging.begin_index || is_damaged(fetch->replica);
}

static void begin_finishing(struct bulk_fetch *fetch)
{
    struct replica *replica = fetch->replica;
    struct checkpoint *checkpoint = &fetch->checkpoint;

    if (!still_needed(fetch)) {
        start_over(fetch, "this member's own log has gone on meanwhile");
        return;
    }
    *checkpoint = (struct checkpoint){
        .present = true,
        .boot_id = replica->env->ops->boot_id(replica->env),
        .durability = (uint8_t)replica->options.durability,
        .incarnation = replica->checkpoint.incarnation,
        /* It may have acknowledged what it has beyond that. */
        .forgot = replica->checkpoint.forgot || replica->ledger.last_index > (int64_t)fetch->last,
        .snapshot_index = (int64_t)fetch->last,
        .configuration_index = fetch->configuration_index - 1,
        .configuration_size = (uint32_t)fetch->configuration.size,
    };
    memcpy(checkpoint->configuration, fetch->configuration.data, fetch->configuration.size);
    ledger_fill_checkpoint(&fetch->staging, (int64_t)fetch->last, checkpoint);
    fetch->frozen = true;
    enter(fetch, BULK_FINISHING);
    start_job(fetch, finish, finished);
}

static void run_sync(struct replica_job *job)
{
    ledger_sync_run(&fetch_of(job)->sync);
}

static void all_synced(struct bulk_fetch *fetch)
{
    if (fetch->staging.last_index < (int64_t)fetch->last)
        enter(fetch, BULK_ENTRIES);
    else if (!fetch->replica->begins_anew) /* else the vote goes first, with a start of its own: that one goes on with what is here */
        begin_finishing(fetch);
}

static void synced(struct replica_job *job)
{
    struct bulk_fetch *fetch = fetch_of(job);

    ledger_sync_done(&fetch->staging, &fetch->sync);
    if (fetch->staging.failed) {
        LOG_ERROR("%s", fetch->staging.failure.message);
        start_over(fetch, "its files cannot be made durable");
        fetch->due_us += RETRY_US;
    } else if (fetch->staging.synced_index < fetch->staging.last_index) {
        if (ledger_sync_next(&fetch->staging, &fetch->sync))
            start_job(fetch, run_sync, synced);
    } else {
        all_synced(fetch);
    }
}

static void begin_syncing(struct bulk_fetch *fetch)
{
    enter(fetch, BULK_SYNCING);
    if (ledger_sync_next(&fetch->staging, &fetch->sync))
        start_job(fetch, run_sync, synced);
    else
        all_synced(fetch);
}

/* ---- pieces ---- */

/* Goes on when all entries are here. */
static bool take_end(struct bulk_fetch *fetch)
{
    if (fetch->staging.last_index < (int64_t)fetch->last)
        return false;
    if (fetch->staging.end_position != fetch->end_position)
        start_over(fetch, "it ends elsewhere than the manifest says");
    else
        begin_syncing(fetch);
    return true;
}

static void take_metadata(struct bulk_fetch *fetch, const struct peer_message *in, const uint8_t *body)
{
    if (in->body_size == 0 || fetch->metadata.size + in->body_size > fetch->metadata_size)
        return;
    buffer_append(&fetch->metadata, body, in->body_size);
    if (fetch->metadata.failed) {
        LOG_ERROR("no memory for a metadata snapshot of %llu bytes", (unsigned long long)fetch->metadata_size);
        ask_again(fetch);
        return;
    }
    pace(fetch, in->body_size);
    if (fetch->metadata.size < fetch->metadata_size)
        return;
    if (!metadata_snapshot_is_good(buffer_slice(&fetch->metadata), (int64_t)fetch->last)) {
        LOG_WARN("the metadata snapshot of member %s is damaged on its way: it is fetched again", fetch->replica->members[fetch->peer - 1].id);
        ask_again(fetch);
        return;
    }
    if (!take_end(fetch)) /* an earlier run can have fetched all of them */
        enter(fetch, BULK_ENTRIES);
}

/* The chain before the first entry is gone with what was deleted: its header is held against the manifest instead. */
static int check_first(const struct bulk_fetch *fetch, const uint8_t *run, size_t size, struct ledger_entry *entry, struct error *error)
{
    if (size < LEDGER_ENTRY_HEADER_SIZE || crc32c(0, run, LEDGER_ENTRY_HEADER_SIZE) != fetch->first_crc || ledger_entry_decode(entry, run) != 0 ||
        entry->index != fetch->first || entry->position != fetch->first_position || ledger_entry_size(entry) > size ||
        !ledger_entry_body_ok(entry, run + LEDGER_ENTRY_HEADER_SIZE))
        return error_set(error, ERROR_DAMAGED, "entry %llu is not the one that the manifest names", (unsigned long long)fetch->first);
    return 0;
}

static int check_entries(const struct bulk_fetch *fetch, const uint8_t *run, size_t size, uint32_t count, struct error *error)
{
    const struct ledger *staging = &fetch->staging;
    uint64_t index = (uint64_t)staging->last_index + 1, term = staging->last_term, end = staging->end_position;
    uint32_t chain = staging->last_chain;

    if (!holds_entries(fetch)) {
        struct ledger_entry first;
        int rv = check_first(fetch, run, size, &first, error);
        if (rv != 0)
            return rv;
        run += ledger_entry_size(&first);
        size -= ledger_entry_size(&first);
        count--;
        index = first.index + 1;
        term = first.term;
        end = first.position + ledger_entry_size(&first);
        chain = first.chain_crc;
    }
    return ledger_check_run(staging, run, size, count, index, term, end, chain, UINT64_MAX, error);
}

static void tell_progress(struct bulk_fetch *fetch)
{
    uint64_t now = replica_now_us(fetch->replica), bytes, of;

    if (now < fetch->told_us + PROGRESS_US)
        return;
    fetch->told_us = now;
    bulk_fetch_progress(fetch, &bytes, &of);
    LOG_INFO("the log is fetched from member %s: %llu percent, %llu of %llu MiB", fetch->replica->members[fetch->peer - 1].id,
             (unsigned long long)(of == 0 ? 0 : bytes * 100 / of), (unsigned long long)(bytes >> 20), (unsigned long long)(of >> 20));
}

static void take_entries(struct bulk_fetch *fetch, const struct peer_message *in, const uint8_t *run)
{
    struct error error;
    int rv;

    if (in->count == 0 || in->bulk_result.from != (uint64_t)fetch->staging.last_index + 2 ||
        (uint64_t)fetch->staging.last_index + in->count > fetch->last)
        return;
    if (check_entries(fetch, run, in->body_size, in->count, &error) != 0) {
        LOG_WARN("fetched entries are refused: %s", error.message);
        return; /* asked for again */
    }
    rv = ledger_append(&fetch->staging, run, in->body_size, in->count);
    if (rv == ERROR_NO_SPACE) {
        if (fetch->unanswered == 0)
            LOG_ERROR("no room for the log that is fetched, beside the one that is here: %llu MiB are missing",
                      (unsigned long long)((fetch->end_position - fetch->staging.end_position) >> 20));
        fetch->unanswered = 1;
        fetch->asked_us = 0;
        fetch->due_us = replica_now_us(fetch->replica) + RETRY_US;
        return;
    }
    if (rv != 0) {
        LOG_ERROR("%s", fetch->staging.failure.message);
        start_over(fetch, "its files cannot be written");
        fetch->due_us += RETRY_US;
        return;
    }
    pace(fetch, in->body_size);
    tell_progress(fetch);
    if (!take_end(fetch) && fetch->staging.end_position - fetch->staging.synced_position >= SYNC_BYTES)
        begin_syncing(fetch);
}

void bulk_fetch_piece(struct bulk_fetch *fetch, uint64_t from, const struct peer_message *in, const uint8_t *body)
{
    bool metadata = in->bulk_result.kind == PEER_BULK_METADATA;

    if (fetch->job.out || fetch->asked_us == 0 || from != fetch->peer || in->bulk_result.id != fetch->id ||
        fetch->state != (metadata ? BULK_METADATA : BULK_ENTRIES))
        return;
    if ((in->flags & PEER_BULK_REFUSED) != 0) {
        ask_again(fetch);
    } else if (metadata && in->bulk_result.from == fetch->metadata.size) {
        take_metadata(fetch, in, body);
    } else if (!metadata) {
        take_entries(fetch, in, body);
    }
}

/* ---- time ---- */

static void discard(struct replica_job *job)
{
    struct bulk_fetch *fetch = fetch_of(job);
    fetch->result = bulk_install_discard(fetch->replica->env, fetch->replica->dir, &fetch->error);
}

static void discarded(struct replica_job *job)
{
    struct bulk_fetch *fetch = fetch_of(job);
    if (fetch->result != 0)
        LOG_WARN("%s", fetch->error.message);
}

void bulk_fetch_begin(struct bulk_fetch *fetch)
{
    if (fetch->state != BULK_IDLE || fetch->job.out)
        return;
    LOG_WARN("what this member needs next is deleted in the group: it fetches the log from the leader's first entry on");
    enter(fetch, BULK_OPENING);
}

/* Nobody said so again for a while: a leader that kept more of the log has sent what was missing. */
static bool is_over(const struct bulk_fetch *fetch)
{
    return fetch->replica->phase == REPLICA_RUNNING && fetch->leftover_at >= -1 && fetch->replica->ledger.last_index > fetch->leftover_at;
}

void bulk_fetch_tick(struct bulk_fetch *fetch, uint64_t now)
{
    if (fetch->job.out || now < bulk_fetch_deadline_us(fetch))
        return;
    if (is_over(fetch) && (fetch->state == BULK_IDLE || fetch->state == BULK_ASKING || fetch->state == BULK_OPENING)) {
        close_staging(fetch);
        fetch->leftover_at = -2;
        fetch->state = BULK_IDLE;
        start_job(fetch, discard, discarded);
        return;
    }
    switch (fetch->state) {
    case BULK_OPENING:
        if (fetch->leftover_at == -2)
            fetch->leftover_at = fetch->replica->ledger.last_index;
        fetch->due_us = now + RETRY_US;
        start_job(fetch, open_staging, staging_opened);
        break;
    case BULK_ASKING:
        ask_manifest(fetch);
        fetch->due_us = now + RETRY_US;
        break;
    case BULK_METADATA:
    case BULK_ENTRIES:
        if (fetch->asked_us != 0 && ++fetch->unanswered > UNANSWERED_MAX) {
            enter(fetch, BULK_ASKING);
            break;
        }
        fetch->asked_us = now;
        fetch->due_us = now + ANSWER_US;
        ask_piece(fetch);
        break;
    case BULK_FINISHING:
        start_job(fetch, finish, finished);
        break;
    default:
        break;
    }
}

uint64_t bulk_fetch_deadline_us(const struct bulk_fetch *fetch)
{
    if (fetch->job.out || fetch->state == BULK_COMPLETE || fetch->state == BULK_SYNCING)
        return UINT64_MAX;
    if (fetch->state == BULK_IDLE)
        return is_over(fetch) ? 0 : UINT64_MAX;
    return fetch->due_us;
}

void bulk_fetch_progress(const struct bulk_fetch *fetch, uint64_t *bytes, uint64_t *of)
{
    *bytes = *of = 0;
    if (fetch->state < BULK_METADATA || !fetch->opened) /* the state first: a job may be opening what is here */
        return;
    uint64_t begin = fetch->staging.data.count > 0 ? mapped_file_queue_begin(&fetch->staging.data) : fetch->first_position;
    *bytes = fetch->staging.end_position > begin ? fetch->staging.end_position - begin : 0;
    *of = fetch->end_position - begin;
}

/* ---- life ---- */

void bulk_fetch_init(struct bulk_fetch *fetch, struct replica *replica)
{
    fetch->replica = replica;
    fetch->leftover_at = -2;
    buffer_init(&fetch->metadata, METADATA_MAX);
    buffer_init(&fetch->configuration, 0);
    replica_path(replica, "install", fetch->dir, sizeof fetch->dir);
    replica_path(replica, "install/checkpoint", fetch->checkpoint_path, sizeof fetch->checkpoint_path);
    replica_path(replica, "install/metadata.0", fetch->metadata_path, sizeof fetch->metadata_path);
    replica_path(replica, "install/complete", fetch->mark_path, sizeof fetch->mark_path);
}

void bulk_fetch_close(struct bulk_fetch *fetch)
{
    if (fetch->replica == NULL)
        return;
    assert(!fetch->job.out);
    close_staging(fetch);
    buffer_close(&fetch->metadata);
    buffer_close(&fetch->configuration);
    fetch->replica = NULL;
}
