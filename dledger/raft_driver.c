/* One event, in order:
 *
 *   1 a message is validated and, where the core would misbehave, split, trimmed or dropped (guards)
 *   2 raft_step()
 *   3 term and vote are synced; 4 new entries go to the ledger (after a cut if they overlap); 5 state; 6 messages leave; 7 commit index
 *
 * Applying and answering happen outside, at the end of the loop turn, so that no step runs inside another but for configurations.
 */
#include "dledger/raft_driver.h"

#include <assert.h>
#include <stdlib.h>

#include "dledger/ledger_internal.h"
#include "store/log_sink.h"

#define ENTRIES_INITIAL 4096u
#define VOTE_PATIENCE_MS 200u

static raft_time driver_now(struct raft_driver *driver)
{
    return env_monotonic_us(driver->env) / 1000;
}

static bool guarded(struct raft_driver *driver, unsigned guard)
{
    if ((driver->options.guards & guard) == 0)
        return false;
    driver->guard_hits[__builtin_ctz(guard)]++;
    return true;
}

static void driver_fail(struct raft_driver *driver, const struct error *error)
{
    if (driver->failed)
        return;
    driver->failed = true;
    driver->io.failed(driver->io.context, error);
}

/* Term of a Raft index: 0 for index 0 and for what is not retained. */
static raft_term term_of(const struct raft_driver *driver, raft_index index)
{
    return index == 0 ? 0 : ledger_term_of(driver->ledger, index - 1);
}

static bool configuration_at(struct raft_driver *driver, raft_index index, struct raft_buffer *buffer)
{
    struct ledger_entry entry;
    const uint8_t *bytes = index == 0 ? NULL : ledger_entry(driver->ledger, index - 1, &entry);
    if (bytes == NULL || entry.kind != LEDGER_ENTRY_CONFIGURATION)
        return false;
    buffer->base = (void *)(uintptr_t)(bytes + LEDGER_ENTRY_HEADER_SIZE);
    buffer->len = entry.body_size;
    return true;
}

static struct raft_entry *driver_entries(struct raft_driver *driver, uint32_t count)
{
    if (count > driver->entry_capacity) {
        uint32_t capacity = driver->entry_capacity;
        while (capacity < count)
            capacity *= 2;
        struct raft_entry *entries = realloc(driver->entries, capacity * sizeof *entries);
        if (entries == NULL)
            return NULL;
        driver->entries = entries;
        driver->entry_capacity = capacity;
    }
    return driver->entries;
}

static enum raft_entry_type entry_type(uint8_t kind)
{
    switch (kind) {
    case LEDGER_ENTRY_BARRIER:
        return RAFT_BARRIER;
    case LEDGER_ENTRY_CONFIGURATION:
        return RAFT_CHANGE;
    default:
        return RAFT_COMMAND;
    }
}

/* Describes a checked run to the core. */
static struct raft_entry *describe_run(struct raft_driver *driver, const uint8_t *run, uint32_t count)
{
    struct raft_entry *entries = driver_entries(driver, count);
    if (entries == NULL)
        return NULL;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t size = load_u32(run + 4);
        entries[i].term = load_u64(run + 16);
        entries[i].type = entry_type(run[35]);
        entries[i].buf.base = (void *)(uintptr_t)(run + LEDGER_ENTRY_HEADER_SIZE);
        entries[i].buf.len = size - LEDGER_ENTRY_HEADER_SIZE;
        entries[i].batch = NULL;
        run += size;
    }
    return entries;
}

/* ---- carrying an update out ---- */

static int store_entries(struct raft_driver *driver, raft_index first, const struct raft_entry *entries, unsigned count)
{
    struct ledger *ledger = driver->ledger;
    uint8_t barrier[LEDGER_ENTRY_HEADER_SIZE + 8] = {0};
    const uint8_t *run;
    size_t size;
    void *batch = entries[0].batch;
    int rv;

    if (first <= raft_driver_last(driver)) {
        assert(first > driver->commit);
        driver->io.cut(driver->io.context);
        rv = ledger_truncate(ledger, first - 1);
        if (rv != 0) {
            raft_free(batch);
            return rv;
        }
    }
    assert(first == raft_driver_last(driver) + 1);
    if (count == 1 && entries[0].type == RAFT_BARRIER && driver->source == NULL) {
        struct ledger_entry entry = {
            .index = first - 1,
            .term = entries[0].term,
            .position = ledger_place(ledger, ledger->end_position, sizeof barrier),
            .kind = LEDGER_ENTRY_BARRIER,
            .uncommitted = (uint32_t)(first - driver->commit < LEDGER_UNCOMMITTED_MAX ? first - driver->commit : LEDGER_UNCOMMITTED_MAX),
            .body_size = 8,
        };
        ledger_entry_seal(&entry, barrier, ledger->last_chain);
        run = barrier;
        size = sizeof barrier;
    } else {
        assert(driver->source != NULL);
        run = (const uint8_t *)entries[0].buf.base - LEDGER_ENTRY_HEADER_SIZE;
        size = (size_t)((const uint8_t *)entries[count - 1].buf.base + entries[count - 1].buf.len - run);
        assert(run >= driver->source && run + size <= driver->source + driver->source_size);
    }
    rv = ledger_append(ledger, run, size, count);
    if (rv == 0 && run == barrier) {
        driver->source_first = 0;
    } else if (rv == 0) {
        driver->source_first = first;
        driver->source_count = count;
    }
    raft_free(batch);
    return rv;
}

static void send_entries(struct raft_driver *driver, const struct raft_message *message)
{
    const struct raft_append_entries *append = &message->append_entries;
    struct peer_message out = {.type = PEER_APPEND_ENTRIES};
    raft_index previous = append->prev_log_index;
    raft_term previous_term = append->prev_log_term;
    unsigned left = append->n_entries;

    out.append.term = append->term;
    out.append.commit = append->leader_commit;
    do {
        const uint8_t *run = NULL;
        size_t size = 0;
        uint32_t count = 0;
        if (left > 0 && driver->source != NULL && previous + 1 == driver->source_first && left == driver->source_count &&
            driver->source_size <= PEER_RUN_MAX) {
            run = driver->source;
            size = driver->source_size;
            count = left;
        } else if (left > 0) {
            count = ledger_run(driver->ledger, previous, left, PEER_RUN_MAX, &run, &size);
            if (count == 0)
                return; /* not retained: the follower stays behind until it fetches */
        }
        out.count = count;
        out.body_size = (uint32_t)size;
        out.append.previous_index = previous;
        out.append.previous_term = previous_term;
        driver->io.send(driver->io.context, message->server_id, &out, run, size);
        previous += count;
        left -= count;
        if (left > 0)
            previous_term = term_of(driver, previous);
    } while (left > 0);
}

static void send_message(struct raft_driver *driver, struct raft_message *message)
{
    struct peer_message out = {0};

    switch (message->type) {
    case RAFT_APPEND_ENTRIES:
        send_entries(driver, message);
        return;
    case RAFT_APPEND_ENTRIES_RESULT: {
        struct raft_append_entries_result *result = &message->append_entries_result;
        raft_index last = raft_last_index(&driver->raft);
        if (result->last_log_index > last) /* not set in the reply to an old term */
            result->last_log_index = last;
        if (result->rejected > 0 && term_of(driver, result->rejected) != 0 && result->last_log_index > driver->commit &&
            guarded(driver, GUARD_CONFLICT_HINT))
            result->last_log_index = driver->commit;
        out.type = PEER_APPEND_ENTRIES_RESULT;
        out.append_result.term = result->term;
        out.append_result.rejected = result->rejected;
        out.append_result.last_index = result->last_log_index;
        out.append_result.features = result->features;
        out.append_result.capacity = driver->capacity;
        break;
    }
    case RAFT_REQUEST_VOTE:
        out.type = PEER_REQUEST_VOTE;
        out.flags = (uint16_t)((message->request_vote.disrupt_leader ? PEER_VOTE_DISRUPT : 0) |
                               (message->request_vote.pre_vote ? PEER_VOTE_PRE : 0));
        out.vote.term = message->request_vote.term;
        out.vote.last_index = message->request_vote.last_log_index;
        out.vote.last_term = message->request_vote.last_log_term;
        break;
    case RAFT_REQUEST_VOTE_RESULT: {
        struct raft_request_vote_result *result = &message->request_vote_result;
        if (result->pre_vote && !result->vote_granted && raft_current_term(&driver->raft) > result->term &&
            guarded(driver, GUARD_PRE_VOTE_TERM))
            result->term = raft_current_term(&driver->raft);
        out.type = PEER_REQUEST_VOTE_RESULT;
        out.flags = (uint16_t)((result->vote_granted ? PEER_VOTE_GRANTED : 0) | (result->pre_vote ? PEER_VOTE_PRE : 0));
        out.vote_result.term = result->term;
        out.vote_result.features = result->features;
        out.vote_result.capacity = result->capacity;
        break;
    }
    case RAFT_TIMEOUT_NOW:
        out.type = PEER_TIMEOUT_NOW;
        out.vote.term = message->timeout_now.term;
        out.vote.last_index = message->timeout_now.last_log_index;
        out.vote.last_term = message->timeout_now.last_log_term;
        break;
    case RAFT_INSTALL_SNAPSHOT:
        /* The trail reaches back to the first retained entry, so this means: that member needs what is deleted here. Nothing was filled in, nothing is owned. */
        LOG_WARN("raft: member %llu needs entries that are not retained", message->server_id);
        return;
    }
    driver->io.send(driver->io.context, message->server_id, &out, NULL, 0);
}

/* Who wins an election appends a barrier in the same step, from which there is no way back: without room for it a member does not stand for
 * election. It still votes and follows. */
static bool barrier_fits(struct raft_driver *driver)
{
    const struct ledger *ledger = driver->ledger;
    uint32_t size = LEDGER_ENTRY_HEADER_SIZE + 8;
    return raft_driver_make_room(driver, ledger_place(ledger, ledger->end_position, size) + size + LEDGER_BLANK_SIZE, 1) == 0;
}

static int driver_step(struct raft_driver *driver, struct raft_event *event)
{
    struct raft_update update;
    struct error error;
    int rv;

    event->time = driver_now(driver);
    event->capacity = driver->capacity;
    driver->steps++;
    rv = raft_step(&driver->raft, event, &update);
    driver->timeout_ms = raft_timeout(&driver->raft);
    if (rv != 0) {
        if (rv == RAFT_SHUTDOWN || (rv == RAFT_NOMEM && event->type == RAFT_RECEIVE) || (rv == RAFT_MALFORMED && event->type == RAFT_RECEIVE)) {
            error_set(&error, ERROR_DAMAGED, "raft: %s (%d) at index %llu: this member's log contradicts the leader's committed log",
                      raft_errmsg(&driver->raft), rv, raft_last_index(&driver->raft));
            driver_fail(driver, &error);
        }
        return rv;
    }
    if ((update.flags & (RAFT_UPDATE_CURRENT_TERM | RAFT_UPDATE_VOTED_FOR)) != 0 &&
        vote_file_save(driver->votes, raft_current_term(&driver->raft), raft_voted_for(&driver->raft), &error) != 0) {
        if ((update.flags & (RAFT_UPDATE_ENTRIES)) != 0)
            raft_free(update.entries.batch[0].batch);
        driver_fail(driver, &error);
        return RAFT_IOERR;
    }
    if ((update.flags & (RAFT_UPDATE_ENTRIES)) != 0 &&
        store_entries(driver, update.entries.index, update.entries.batch, update.entries.n) != 0) {
        if (driver->ledger->failed)
            error = driver->ledger->failure;
        else
            error_set(&error, ERROR_NO_SPACE, "raft: no room for %u entries at index %llu", update.entries.n, update.entries.index);
        driver_fail(driver, &error);
        return RAFT_IOERR;
    }
    if ((update.flags & (RAFT_UPDATE_STATE)) != 0)
        memset(driver->stale_since, 0, sizeof driver->stale_since);
    if ((update.flags & (RAFT_UPDATE_STATE | RAFT_UPDATE_CURRENT_TERM)) != 0)
        driver->io.state_changed(driver->io.context);
    if ((update.flags & (RAFT_UPDATE_MESSAGES)) != 0) {
        for (unsigned i = 0; i < update.messages.n; i++)
            send_message(driver, &update.messages.batch[i]);
    }
    if ((update.flags & (RAFT_UPDATE_COMMIT_INDEX)) != 0) {
        raft_index commit = raft_commit_index(&driver->raft);
        if (commit > driver->commit || (driver->options.guards & GUARD_COMMIT_MONOTONIC) == 0)
            driver->commit = commit;
        else if (commit < driver->commit)
            driver->guard_hits[9]++;
    }
    return 0;
}

/* ---- configurations ---- */

bool raft_driver_configuration_valid(struct slice configuration, uint64_t id, unsigned *voters, bool *is_voter)
{
    const uint8_t *at = configuration.data;
    const uint8_t *end = at + configuration.size;
    uint64_t count;

    *voters = 0;
    *is_voter = false;
    if (configuration.size < 9 || configuration.size > CHECKPOINT_CONFIGURATION_MAX || at[0] != 1)
        return false;
    memcpy(&count, at + 1, sizeof count); /* libraft writes little-endian, we run on it only */
    if (count == 0 || count > 64)
        return false;
    at += 9;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t server;
        if (end - at < 10)
            return false;
        memcpy(&server, at, sizeof server);
        at += 8;
        const uint8_t *zero = memchr(at, 0, (size_t)(end - at));
        if (server == 0 || zero == NULL || zero + 1 >= end || zero[1] > RAFT_VOTER)
            return false;
        *voters += zero[1] == RAFT_VOTER;
        if (server == id)
            *is_voter = zero[1] == RAFT_VOTER;
        at = zero + 2;
    }
    return true;
}

int raft_driver_configuration(unsigned count, struct buffer *out)
{
    struct raft_configuration configuration;
    struct raft_buffer encoded;
    int rv = 0;

    raft_configuration_init(&configuration);
    for (unsigned i = 1; i <= count && rv == 0; i++) {
        char name[16];
        snprintf(name, sizeof name, "%u", i);
        rv = raft_configuration_add(&configuration, i, name, RAFT_VOTER);
    }
    if (rv == 0)
        rv = raft_configuration_encode(&configuration, &encoded);
    raft_configuration_close(&configuration);
    if (rv != 0)
        return ERROR_NO_MEMORY;
    buffer_append(out, encoded.base, encoded.len);
    raft_free(encoded.base);
    return out->failed ? ERROR_NO_MEMORY : 0;
}

static unsigned count_voters(const struct raft *raft)
{
    unsigned voters = 0;
    for (unsigned i = 0; i < raft->configuration.n; i++)
        voters += raft->configuration.servers[i].role == RAFT_VOTER;
    return voters;
}

void raft_driver_apply_configuration(struct raft_driver *driver, raft_index index, struct slice configuration)
{
    struct raft_event event = {.type = RAFT_CONFIGURATION};
    struct raft_buffer buffer = {(void *)(uintptr_t)configuration.data, configuration.size};

    if (!driver->started || index != driver->raft.configuration_uncommitted_index)
        return; /* fed back already, or the one we started with */
    event.configuration.index = index;
    if (raft_configuration_decode(&buffer, &event.configuration.conf) == 0)
        driver_step(driver, &event);
}

/* ---- life ---- */

int raft_driver_init(struct raft_driver *driver, struct env *env, struct ledger *ledger, struct vote_file *votes,
                     const struct raft_driver_io *io, const struct raft_driver_options *options, struct error *error)
{
    char name[24];

    *driver = (struct raft_driver){.env = env, .ledger = ledger, .votes = votes, .io = *io, .options = *options};
    driver->timeout_ms = UINT64_MAX;
    driver->capacity = 0xffff;
    driver->entry_capacity = ENTRIES_INITIAL;
    driver->entries = malloc(ENTRIES_INITIAL * sizeof *driver->entries);
    if (driver->entries == NULL)
        return error_set(error, ERROR_NO_MEMORY, "raft driver");
    snprintf(name, sizeof name, "%llu", (unsigned long long)options->id);
    memset(&driver->raft, 0, sizeof driver->raft); /* raft_init() leaves several fields alone */
    if (raft_init(&driver->raft, NULL, NULL, options->id, name) != 0) {
        free(driver->entries);
        return error_set(error, ERROR_NO_MEMORY, "raft_init");
    }
    driver->raft.tracer = NULL; /* the default one formats every message: 5.8 times the CPU */
    raft_seed(&driver->raft, (unsigned)env_random(env));
    raft_set_election_timeout(&driver->raft, options->election_timeout_ms);
    raft_set_heartbeat_timeout(&driver->raft, options->heartbeat_ms);
    raft_set_pre_vote(&driver->raft, true);
    raft_set_max_inflight_entries(&driver->raft, options->max_inflight_entries);
    raft_set_capacity_threshold(&driver->raft, 0);
    return 0;
}

void raft_driver_close(struct raft_driver *driver)
{
    raft_close(&driver->raft, NULL);
    free(driver->entries);
    driver->entries = NULL;
    driver->started = false;
}

/* The core starts with a trail from `committed` on; the ledger knows the term of every retained entry, so the trail is stretched back to the
 * first of them: a follower that is far behind is then served from files instead of needing a snapshot. */
static int stretch_trail(struct raft_driver *driver)
{
    struct raft_trail *trail = &driver->raft.trail;
    const struct ledger *ledger = driver->ledger;
    unsigned count = (unsigned)ledger->term_count;
    unsigned size = count + 8;

    if (count == 0)
        return 0;
    void *records = raft_calloc(size, sizeof *trail->records);
    if (records == NULL)
        return ERROR_NO_MEMORY;
    raft_free(trail->records);
    trail->records = records;
    trail->size = size;
    trail->front = 0;
    trail->back = count;
    /* The table of terms may begin later than the log: a checkpoint bounds it. */
    trail->offset = (raft_index)ledger->terms[0].first_index;
    for (unsigned i = 0; i < count; i++) {
        /* last Raft index of a term = (first DLedger index of the next term - 1) + 1 */
        trail->records[i].index = i + 1 < count ? ledger->terms[i + 1].first_index : raft_driver_last(driver);
        trail->records[i].term = ledger->terms[i].term;
    }
    return 0;
}

int raft_driver_start(struct raft_driver *driver, raft_index committed, raft_index configuration_index, struct slice configuration,
                      struct error *error)
{
    const struct ledger *ledger = driver->ledger;
    raft_index last = raft_driver_last(driver);
    struct raft_event event = {.type = RAFT_START};
    struct raft_snapshot_metadata metadata;
    struct raft_entry *entries = NULL;
    unsigned voters;
    bool is_voter;
    int rv;

    if (last == 0 || committed > last || (committed > 0 && term_of(driver, committed) == 0))
        return error_set(error, ERROR_INVALID, "raft: commit index %llu is outside the log (last %llu)", committed, last);
    if (driver->votes->term < ledger->last_term)
        return error_set(error, ERROR_DAMAGED, "raft: the log holds an entry of term %llu but the vote file knows term %llu only",
                         (unsigned long long)ledger->last_term, (unsigned long long)driver->votes->term);
    if (!raft_driver_configuration_valid(configuration, driver->options.id, &voters, &is_voter))
        return error_set(error, ERROR_DAMAGED, "raft: the configuration at index %llu is undecodable", configuration_index);

    event.start.term = driver->votes->term;
    event.start.voted_for = driver->votes->voted_for;
    event.start.start_index = 1;
    if (committed > 0) {
        struct raft_buffer buffer = {(void *)(uintptr_t)configuration.data, configuration.size};
        metadata.index = committed;
        metadata.term = term_of(driver, committed);
        metadata.configuration_index = configuration_index;
        if (raft_configuration_decode(&buffer, &metadata.configuration) != 0)
            return error_set(error, ERROR_DAMAGED, "raft: the configuration at index %llu is undecodable", configuration_index);
        event.start.metadata = &metadata;
        event.start.start_index = committed + 1;
    }
    event.start.n_entries = (unsigned)(last - event.start.start_index + 1);
    if (event.start.n_entries > 0) {
        entries = raft_calloc(event.start.n_entries, sizeof *entries);
        if (entries == NULL)
            return error_set(error, ERROR_NO_MEMORY, "raft: %u entries at start", event.start.n_entries);
    }
    for (unsigned i = 0; i < event.start.n_entries; i++) {
        struct ledger_entry entry;
        const uint8_t *bytes = ledger_entry(ledger, event.start.start_index + i - 1, &entry);
        if (bytes == NULL) {
            raft_free(entries);
            return error_set(error, ERROR_DAMAGED, "raft: entry %llu cannot be read", event.start.start_index + i);
        }
        entries[i].term = entry.term;
        entries[i].type = entry_type(entry.kind);
        entries[i].buf.base = (void *)(uintptr_t)(bytes + LEDGER_ENTRY_HEADER_SIZE);
        entries[i].buf.len = entry.body_size;
        if (entries[i].type == RAFT_CHANGE) { /* the newest configuration decides, committed or not (G1) */
            bool voter;
            unsigned number;
            if (!raft_driver_configuration_valid(slice_of(entries[i].buf.base, entries[i].buf.len), driver->options.id, &number, &voter)) {
                raft_free(entries);
                return error_set(error, ERROR_DAMAGED, "raft: the configuration at index %llu is undecodable", event.start.start_index + i);
            }
            voters = number;
            is_voter = voter;
        }
    }
    event.start.entries = entries;
    if (is_voter && voters == 1 && guarded(driver, GUARD_SOLE_VOTER)) {
        event.start.term++;
        event.start.voted_for = driver->options.id;
        if (vote_file_save(driver->votes, event.start.term, event.start.voted_for, error) != 0) {
            raft_free(entries);
            return ERROR_IO;
        }
    }
    driver->started = true;
    driver->commit = committed;
    rv = driver_step(driver, &event);
    raft_free(entries);
    if (rv != 0) {
        driver->started = false;
        return error_set(error, ERROR_DAMAGED, "raft: start failed: %s", raft_errmsg(&driver->raft));
    }
    if (raft_commit_index(&driver->raft) > driver->commit)
        driver->commit = raft_commit_index(&driver->raft);
    return stretch_trail(driver) == 0 ? 0 : error_set(error, ERROR_NO_MEMORY, "raft: trail");
}

/* ---- events ---- */

int raft_driver_submit(struct raft_driver *driver, const uint8_t *run, size_t size, uint32_t count)
{
    struct raft_event event = {.type = RAFT_SUBMIT};
    int rv;

    if (!raft_driver_leads(driver) || driver->failed)
        return ERROR_NOT_LEADER;
    event.submit.entries = describe_run(driver, run, count);
    if (event.submit.entries == NULL)
        return ERROR_NO_MEMORY;
    /* The core wants a batch on the first entry; it frees nothing of a submit, and store_entries() frees this token. */
    event.submit.entries[0].batch = raft_malloc(1);
    if (event.submit.entries[0].batch == NULL)
        return ERROR_NO_MEMORY;
    event.submit.n = count;
    driver->source = run;
    driver->source_size = size;
    driver->source_first = raft_driver_last(driver) + 1;
    driver->source_count = count;
    void *token = event.submit.entries[0].batch;
    rv = driver_step(driver, &event);
    driver->source = NULL;
    if (rv == RAFT_NOTLEADER || rv == RAFT_CANTCHANGE || rv == RAFT_NOSPACE || rv == RAFT_NOMEM || rv == RAFT_MALFORMED)
        raft_free(token);
    return rv == 0 ? 0 : rv == RAFT_NOTLEADER ? ERROR_NOT_LEADER : ERROR_IO;
}

void raft_driver_persisted(struct raft_driver *driver, raft_index index)
{
    struct raft_event event = {.type = RAFT_PERSISTED_ENTRIES};

    if (!driver->started || driver->failed)
        return;
    if (driver->raft.snapshot.installing || index <= driver->raft.last_stored || index > raft_last_index(&driver->raft))
        return;
    event.persisted_entries.index = index;
    driver_step(driver, &event);
}

void raft_driver_tick(struct raft_driver *driver)
{
    struct raft_event event = {.type = RAFT_TIMEOUT};
    struct raft *raft = &driver->raft;
    raft_time now = driver_now(driver);

    if (!driver->started || driver->failed || now < driver->timeout_ms)
        return;
    if (raft_state(raft) == RAFT_LEADER) {
        /* As leader every call judges who has answered since the last one, so it must not come early; and the core may call itself due forever. */
        if (now < driver->leader_tick_ms + driver->options.heartbeat_ms && guarded(driver, GUARD_LEADER_TIMER)) {
            driver->timeout_ms = driver->leader_tick_ms + driver->options.heartbeat_ms;
            return;
        }
        driver->leader_tick_ms = now;
    } else if (!barrier_fits(driver)) {
        driver->timeout_ms = now + driver->options.election_timeout_ms;
        return;
    }
    if (raft_state(raft) == RAFT_FOLLOWER && raft_role(raft) == RAFT_VOTER && count_voters(raft) == 1 &&
        raft_last_index(raft) == raft->last_stored && !raft->snapshot.installing && guarded(driver, GUARD_SOLE_VOTER)) {
        struct error error;
        raft->current_term++;
        raft->voted_for = raft->id;
        if (vote_file_save(driver->votes, raft->current_term, raft->voted_for, &error) != 0) {
            driver_fail(driver, &error);
            return;
        }
    }
    driver_step(driver, &event);
    if (driver->timeout_ms < now + 5)
        driver->timeout_ms = now + 5; /* never spin on a timer that is always due */
}

uint64_t raft_driver_leader(struct raft_driver *driver)
{
    raft_id id;
    const char *address;

    if (!driver->started || driver->failed)
        return 0;
    raft_leader(&driver->raft, &id, &address);
    return id;
}

void raft_driver_hurry(struct raft_driver *driver, uint32_t delay_ms)
{
    struct raft *raft = &driver->raft;
    raft_time now = driver_now(driver);
    unsigned timeout;

    if (!driver->started || driver->failed || raft_state(raft) == RAFT_LEADER || raft_role(raft) != RAFT_VOTER)
        return;
    /* Votes are synced before they are answered: an election under way gets the time that slow disks need. */
    if (raft_state(raft) == RAFT_CANDIDATE && !raft->candidate_state.in_pre_vote && delay_ms < VOTE_PATIENCE_MS)
        delay_ms = VOTE_PATIENCE_MS;
    timeout = raft_state(raft) == RAFT_FOLLOWER ? raft->follower_state.randomized_election_timeout
                                                : raft->candidate_state.randomized_election_timeout;
    if (driver->timeout_ms <= now + delay_ms || now + delay_ms < timeout)
        return;
    /* Only the moment at which our own timer runs out is moved: Raft is safe with any election timeout. */
    raft->election_timer_start = now + delay_ms - timeout;
    driver->timeout_ms = raft_timeout(raft);
}

uint64_t raft_driver_stuck_follower(struct raft_driver *driver)
{
    raft_time now = driver_now(driver);

    if (!raft_driver_leads(driver))
        return 0;
    for (unsigned i = 0; i < driver->raft.configuration.n; i++) {
        raft_id id = driver->raft.configuration.servers[i].id;
        raft_time since = driver->stale_since[id % 64];
        if (since != 0 && now > since + driver->options.election_timeout_ms)
            return id;
    }
    return 0;
}

int raft_driver_transfer(struct raft_driver *driver, uint64_t to)
{
    struct raft_event event = {.type = RAFT_TRANSFER};
    int rv;

    if (!raft_driver_leads(driver))
        return ERROR_NOT_LEADER;
    event.transfer.server_id = to;
    rv = driver_step(driver, &event);
    return rv == 0 ? 0 : rv == RAFT_NOTLEADER ? ERROR_NOT_LEADER : ERROR_NOT_FOUND;
}

void raft_driver_announce_commit(struct raft_driver *driver)
{
    struct raft *raft = &driver->raft;

    if (!raft_driver_leads(driver))
        return;
    for (unsigned i = 0; i < raft->configuration.n; i++) {
        struct peer_message out = {.type = PEER_APPEND_ENTRIES};
        raft_id id = raft->configuration.servers[i].id;
        raft_index match;
        if (id == raft->id || raft_match_index(raft, id, &match) != 0 || match == 0)
            continue;
        out.append.term = raft_current_term(raft);
        out.append.previous_index = match;
        out.append.previous_term = term_of(driver, match);
        out.append.commit = driver->commit;
        if (out.append.previous_term != 0)
            driver->io.send(driver->io.context, id, &out, NULL, 0);
    }
}

void raft_driver_move_trail(struct raft_driver *driver, raft_index index, struct slice configuration, raft_index configuration_index)
{
    struct raft_event event = {.type = RAFT_SNAPSHOT};
    struct raft_trail *trail = &driver->raft.trail;
    struct raft_buffer buffer = {(void *)(uintptr_t)configuration.data, configuration.size};
    raft_index keep_from = (raft_index)driver->ledger->begin_index + 1;

    if (!driver->started || driver->failed || driver->raft.snapshot.installing || index > driver->commit ||
        index > driver->raft.last_stored || index <= trail->offset || index == trail->snapshot.index || term_of(driver, index) == 0)
        return;
    if (trail->offset + 1 >= keep_from && raft_last_index(&driver->raft) - trail->offset < (1ull << 30))
        return; /* nothing was deleted and the count is far from its 32 bits */
    if (index - keep_from + 1 > (1ull << 29))
        keep_from = index - (1ull << 29) + 1;
    event.snapshot.metadata.index = index;
    event.snapshot.metadata.term = term_of(driver, index);
    event.snapshot.metadata.configuration_index = configuration_index;
    if (raft_configuration_decode(&buffer, &event.snapshot.metadata.configuration) != 0)
        return;
    event.snapshot.trailing = (unsigned)(index - keep_from + 1);
    driver_step(driver, &event);
}

/* ---- receiving ---- */

static int step_message(struct raft_driver *driver, struct raft_message *message)
{
    struct raft_event event = {.type = RAFT_RECEIVE};

    event.receive.message = message;
    if (message->type == RAFT_APPEND_ENTRIES && message->append_entries.n_entries > 0) {
        /* The core frees `batch` of what it does not keep and never looks at payload: a one-byte token per message stands for it. */
        void *token = raft_malloc(1);
        if (token == NULL)
            return RAFT_NOMEM;
        for (unsigned i = 0; i < message->append_entries.n_entries; i++)
            message->append_entries.entries[i].batch = token;
    }
    return driver_step(driver, &event);
}

int raft_driver_make_room(struct raft_driver *driver, uint64_t end_position, uint32_t count)
{
    struct ledger *ledger = driver->ledger;
    uint64_t index_end = ((uint64_t)(ledger->last_index + 1) + count) * LEDGER_INDEX_UNIT;
    int rv = 0;

    if (end_position > ledger->reserved_end)
        rv = ledger_reserve_data(ledger, end_position);
    if (rv == 0 && index_end > ledger->index_reserved_end)
        rv = ledger_reserve_index(ledger, index_end);
    if (rv == ERROR_IO)
        driver_fail(driver, &ledger->failure);
    return rv;
}

static uint64_t run_end_position(const uint8_t *run, size_t size, uint32_t count)
{
    const uint8_t *end = run + size;
    const uint8_t *last = run;

    for (uint32_t i = 0; i < count; i++, run += load_u32(run + 4))
        last = run;
    assert(run == end);
    return load_u64(last + 24) + load_u32(last + 4);
}

static void receive_append(struct raft_driver *driver, struct raft_message *message, const uint8_t *run, size_t size)
{
    struct raft *raft = &driver->raft;
    struct raft_append_entries *append = &message->append_entries;
    raft_index previous = append->prev_log_index;
    raft_term previous_term = append->prev_log_term;
    unsigned count = append->n_entries;
    unsigned position = 0;
    struct raft_entry *entries;
    struct error error;
    uint64_t previous_end;
    uint32_t previous_chain;

    if (raft_state(raft) == RAFT_LEADER && append->term == raft_current_term(raft) && guarded(driver, GUARD_SAME_TERM))
        return;
    if ((previous == 0) != (previous_term == 0) || previous_term > append->term || append->term == 0)
        return;
    append->entries = NULL;
    append->n_entries = 0;
    if (append->term < raft_current_term(raft)) {
        step_message(driver, message);
        return;
    }
    if (previous < driver->commit && count > 0 && guarded(driver, GUARD_TRIM)) {
        /* A late duplicate: what is committed here is equal there, so cut that part off and anchor the rest at our commit index. */
        raft_index skip = driver->commit - previous;
        if (skip > count)
            skip = count;
        for (raft_index i = 0; i < skip; i++) {
            struct ledger_entry header;
            if (size < LEDGER_ENTRY_HEADER_SIZE || ledger_entry_decode(&header, run) != 0 || ledger_entry_size(&header) > size) {
                driver->refused_runs++;
                return;
            }
            run += ledger_entry_size(&header);
            size -= ledger_entry_size(&header);
        }
        count -= (unsigned)skip;
        previous = driver->commit;
        previous_term = term_of(driver, previous);
        if (previous_term == 0)
            return;
    }
    if (count > 0 && previous != 0 && (previous > raft_driver_last(driver) || term_of(driver, previous) != previous_term)) {
        /* The core will reject by (index, term) alone: no need to believe the entries. */
        append->prev_log_index = previous;
        append->prev_log_term = previous_term;
        step_message(driver, message);
        return;
    }
    if (count > 0) {
        if (!ledger_end_of(driver->ledger, previous == 0 ? UINT64_MAX : previous - 1, &previous_end, &previous_chain))
            return;
        if (ledger_check_run(driver->ledger, run, size, count, previous, previous_term, previous_end, previous_chain, append->term, &error) != 0) {
            driver->refused_runs++;
            LOG_WARN("raft: entries from member %llu behind index %llu are refused: %s", message->server_id, previous, error.message);
            return;
        }
        /* A run knows its own positions: its last entry says where it ends. */
        if (raft_driver_make_room(driver, run_end_position(run, size, count) + LEDGER_BLANK_SIZE, count) != 0)
            return; /* the leader sends it again */
    }
    entries = describe_run(driver, run, count);
    if (entries == NULL)
        return;
    driver->source = run;
    driver->source_size = size;
    do {
        unsigned end = position;
        struct raft_message part = *message;
        struct raft_append_entries *ae = &part.append_entries;

        ae->prev_log_index = previous + position;
        ae->prev_log_term = position == 0 ? previous_term : entries[position - 1].term;
        ae->entries = NULL;
        ae->n_entries = 0;
        if (position < count) {
            end = position + 1;
            while (end < count && (entries[end].type != RAFT_CHANGE || (driver->options.guards & GUARD_SPLIT_CHANGE) == 0))
                end++;
            if (entries[position].type == RAFT_CHANGE && guarded(driver, GUARD_SPLIT_CHANGE)) {
                unsigned voters;
                bool is_voter;
                raft_index uncommitted;
                struct raft_buffer body;
                if (!raft_driver_configuration_valid(slice_of(entries[position].buf.base, entries[position].buf.len),
                                                     driver->options.id, &voters, &is_voter))
                    break;
                /* Let the commit index catch up first, so that an earlier configuration is settled before this one. */
                if (step_message(driver, &part) != 0 || term_of(driver, ae->prev_log_index) != ae->prev_log_term)
                    break;
                uncommitted = raft->configuration_uncommitted_index;
                if (uncommitted != 0 && uncommitted < previous + position + 1 && configuration_at(driver, uncommitted, &body) &&
                    guarded(driver, GUARD_SETTLE_CHANGE))
                    raft_driver_apply_configuration(driver, uncommitted, slice_of(body.base, body.len));
            }
            ae->entries = entries + position;
            ae->n_entries = end - position;
        }
        if (step_message(driver, &part) != 0 || driver->failed)
            break;
        if (end > position && term_of(driver, previous + end) != entries[end - 1].term)
            break; /* rejected or ignored */
        position = end;
    } while (position < count);
    driver->source = NULL;
}

static void receive_append_result(struct raft_driver *driver, struct raft_message *message)
{
    struct raft_append_entries_result *result = &message->append_entries_result;
    raft_index match;

    if (result->rejected == 0)
        driver->stale_since[message->server_id % 64] = 0;
    if (result->rejected > 0 && result->term == raft_current_term(&driver->raft) &&
        raft_match_index(&driver->raft, message->server_id, &match) == 0) {
        /* Late, or the peer lost what it had acknowledged; in probe mode the core would believe it and go below the match index. */
        if (result->rejected <= match && guarded(driver, GUARD_STALE_RESULT)) {
            if (driver->stale_since[message->server_id % 64] == 0)
                driver->stale_since[message->server_id % 64] = driver_now(driver);
            return;
        }
        if (result->last_log_index < match && guarded(driver, GUARD_STALE_RESULT))
            result->last_log_index = match;
    }
    if (result->last_log_index > raft_last_index(&driver->raft) && result->rejected == 0 &&
        result->term == raft_current_term(&driver->raft))
        return; /* cannot have stored what we never sent */
    step_message(driver, message);
}

static bool known_server(const struct raft *raft, uint64_t id)
{
    for (unsigned i = 0; i < raft->configuration.n; i++) {
        if (raft->configuration.servers[i].id == id)
            return true;
    }
    return false;
}

void raft_driver_receive(struct raft_driver *driver, uint64_t from, const struct peer_message *in, const uint8_t *run)
{
    struct raft *raft = &driver->raft;
    char name[24];
    struct raft_message message = {.server_id = from, .server_address = name};

    if (!driver->started || driver->failed || from == 0 || from == driver->options.id)
        return;
    snprintf(name, sizeof name, "%llu", (unsigned long long)from);
    switch (in->type) {
    case PEER_APPEND_ENTRIES:
        message.type = RAFT_APPEND_ENTRIES;
        message.append_entries = (struct raft_append_entries){
            .version = 0,
            .term = in->append.term,
            .prev_log_index = in->append.previous_index,
            .prev_log_term = in->append.previous_term,
            .leader_commit = in->append.commit,
            .n_entries = in->count,
        };
        receive_append(driver, &message, run, in->body_size);
        return;
    case PEER_APPEND_ENTRIES_RESULT:
        if (!known_server(raft, from))
            return;
        message.type = RAFT_APPEND_ENTRIES_RESULT;
        message.append_entries_result = (struct raft_append_entries_result){
            .version = 2, /* the core looks at it to know which fields are there */
            .term = in->append_result.term,
            .rejected = in->append_result.rejected,
            .last_log_index = in->append_result.last_index,
            .features = (unsigned short)in->append_result.features,
            .capacity = (unsigned short)in->append_result.capacity,
        };
        receive_append_result(driver, &message);
        return;
    case PEER_REQUEST_VOTE: {
        if (in->vote.term == 0 || (in->vote.last_index == 0) != (in->vote.last_term == 0))
            return;
        message.type = RAFT_REQUEST_VOTE;
        message.request_vote = (struct raft_request_vote){
            .version = 2,
            .term = in->vote.term,
            .candidate_id = from,
            .last_log_index = in->vote.last_index,
            .last_log_term = in->vote.last_term,
            .disrupt_leader = (in->flags & PEER_VOTE_DISRUPT) != 0,
            .pre_vote = (in->flags & PEER_VOTE_PRE) != 0,
        };
        step_message(driver, &message);
        return;
    }
    case PEER_REQUEST_VOTE_RESULT: {
        bool pre_vote = (in->flags & PEER_VOTE_PRE) != 0;
        bool granted = (in->flags & PEER_VOTE_GRANTED) != 0;
        if (raft_state(raft) != RAFT_CANDIDATE && guarded(driver, GUARD_VOTE_RESULT))
            return;
        if (!barrier_fits(driver))
            return;
        if (!known_server(raft, from) || (pre_vote && granted && in->vote_result.term > raft_current_term(raft) + 1))
            return;
        message.type = RAFT_REQUEST_VOTE_RESULT;
        message.request_vote_result = (struct raft_request_vote_result){
            .version = 2,
            .term = in->vote_result.term,
            .vote_granted = granted,
            .pre_vote = pre_vote,
            .features = (unsigned short)in->vote_result.features,
            .capacity = (unsigned short)in->vote_result.capacity,
        };
        step_message(driver, &message);
        return;
    }
    case PEER_TIMEOUT_NOW:
        if (count_voters(raft) == 1 || !barrier_fits(driver))
            return; /* a sole voter: the election timer will do it, with a fresh term */
        message.type = RAFT_TIMEOUT_NOW;
        message.timeout_now = (struct raft_timeout_now){
            .version = 0,
            .term = in->vote.term,
            .last_log_index = in->vote.last_index,
            .last_log_term = in->vote.last_term,
        };
        step_message(driver, &message);
        return;
    default:
        return;
    }
}
