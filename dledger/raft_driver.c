/* Life of a driver, and the events that are not messages: start, submit, timers, what was persisted, what became of a snapshot. */
#include "dledger/raft_driver_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dledger/ledger_internal.h"

#define ENTRIES_INITIAL 4096u
#define LATE_MS 10u
#define READ_MS 5u

int raft_driver_init(struct raft_driver *driver, struct env *env, struct ledger *ledger, struct vote_file *votes,
                     const struct raft_driver_io *io, const struct raft_driver_options *options, struct error *error)
{
    char name[24];

    *driver = (struct raft_driver){.env = env, .ledger = ledger, .votes = votes, .io = *io, .options = *options};
    driver->timeout_ms = UINT64_MAX;
    driver->capacity = RAFT_DRIVER_CAPACITY;
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
    raft_set_capacity_threshold(&driver->raft, SEEDED_GUARD_OFF(GUARD_CAPACITY) ? 1 : 0);
    return 0;
}

void raft_driver_rename(struct raft_driver *driver, uint64_t id)
{
    driver->options.id = id;
    driver->raft.id = id;
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
    unsigned count = (unsigned)ledger->terms.count;
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
    trail->offset = (raft_index)ledger->terms.rows[0].first_index;
    for (unsigned i = 0; i < count; i++) {
        /* last Raft index of a term = (first DLedger index of the next term - 1) + 1 */
        trail->records[i].index = i + 1 < count ? ledger->terms.rows[i + 1].first_index : raft_driver_last(driver);
        trail->records[i].term = ledger->terms.rows[i].term;
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

    if (last == 0 || committed > last || (committed > 0 && raft_driver_term_of(driver, committed) == 0))
        return error_set(error, ERROR_INVALID, "raft: commit index %llu is outside the log (last %llu)", committed, last);
    if (driver->votes->term < ledger->last_term)
        return error_set(error, ERROR_DAMAGED, "raft: the log holds an entry of term %llu but the vote file knows term %llu only: it is lost or an old one; if this member is the whole group, "
                         "mqbroker --force-new-group goes on with it in a later term",
                         (unsigned long long)ledger->last_term, (unsigned long long)driver->votes->term);
    if (!raft_driver_configuration_valid(configuration, driver->options.id, &voters, &is_voter))
        return error_set(error, ERROR_DAMAGED, "raft: the configuration at index %llu is undecodable", configuration_index);

    event.start.term = driver->votes->term;
    event.start.voted_for = driver->votes->voted_for;
    event.start.start_index = 1;
    if (committed > 0) {
        metadata.index = committed;
        metadata.term = raft_driver_term_of(driver, committed);
        metadata.configuration_index = configuration_index;
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
        entries[i].type = raft_driver_entry_type(entry.kind);
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
    if (is_voter && voters == 1 && raft_driver_guarded(driver, GUARD_SOLE_VOTER)) {
        event.start.term++;
        event.start.voted_for = driver->options.id;
        if (vote_file_save(driver->votes, event.start.term, event.start.voted_for, error) != 0) {
            raft_free(entries);
            return ERROR_IO;
        }
    }
    if (event.start.metadata != NULL) { /* last of all: the core takes it */
        struct raft_buffer buffer = {(void *)(uintptr_t)configuration.data, configuration.size};
        if (raft_configuration_decode(&buffer, &metadata.configuration) != 0) {
            raft_free(entries);
            return error_set(error, ERROR_DAMAGED, "raft: the configuration at index %llu is undecodable", configuration_index);
        }
    }
    driver->started = true;
    driver->commit = committed;
    rv = raft_driver_step(driver, &event);
    raft_free(entries);
    if (rv != 0) {
        driver->started = false;
        return error_set(error, ERROR_DAMAGED, "raft: start failed: %s", raft_errmsg(&driver->raft));
    }
    if (raft_commit_index(&driver->raft) > driver->commit)
        driver->commit = raft_commit_index(&driver->raft);
    return stretch_trail(driver) == 0 ? 0 : error_set(error, ERROR_NO_MEMORY, "raft: trail");
}

int raft_driver_submit(struct raft_driver *driver, const uint8_t *run, size_t size, uint32_t count)
{
    struct raft_event event = {.type = RAFT_SUBMIT};
    int rv;

    if (!raft_driver_leads(driver) || driver->failed)
        return ERROR_NOT_LEADER;
    event.submit.entries = raft_driver_describe(driver, run, count);
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
    rv = raft_driver_step(driver, &event);
    driver->source = NULL;
    if (rv == RAFT_NOTLEADER || rv == RAFT_CANTCHANGE || rv == RAFT_NOSPACE || rv == RAFT_NOMEM || rv == RAFT_MALFORMED)
        raft_free(token);
    return rv == 0 ? 0 : rv == RAFT_NOTLEADER ? ERROR_NOT_LEADER : rv == RAFT_CANTCHANGE ? ERROR_BUSY : ERROR_IO;
}

void raft_driver_restart_quorum_check(struct raft_driver *driver)
{
    if (raft_driver_leads(driver))
        driver->raft.election_timer_start = raft_driver_now(driver);
}

void raft_driver_persisted(struct raft_driver *driver, raft_index index)
{
    struct raft_event event = {.type = RAFT_PERSISTED_ENTRIES};

    if (!driver->started || driver->failed || driver->votes->saving) /* the caller says it again */
        return;
    if (driver->raft.snapshot.installing || index <= driver->raft.last_stored || index > raft_last_index(&driver->raft))
        return;
    event.persisted_entries.index = index;
    raft_driver_step(driver, &event);
}

int raft_driver_make_room(struct raft_driver *driver, uint64_t end_position, uint32_t count)
{
    struct ledger *ledger = driver->ledger;
    uint64_t index_end = ((uint64_t)(ledger->last_index + 1) + count) * LEDGER_INDEX_UNIT;
    int rv = 0;

    if (end_position > ledger->reserved_end)
        rv = ledger_awaits_segment(ledger, end_position) ? ERROR_BUSY : ledger_reserve_data(ledger, end_position);
    if (rv == 0 && index_end > ledger->index_reserved_end)
        rv = ledger_reserve_index(ledger, index_end);
    if (rv == ERROR_IO)
        raft_driver_fail(driver, &ledger->failure);
    return rv;
}

/* Who wins an election appends a barrier in the same step, from which there is no way back: without room for it a member does not stand for
 * election. It still votes and follows. */
bool raft_driver_barrier_fits(struct raft_driver *driver)
{
    const struct ledger *ledger = driver->ledger;
    uint32_t size = LEDGER_ENTRY_HEADER_SIZE + 8;
    return raft_driver_make_room(driver, ledger_place(ledger, ledger->end_position, size) + size + LEDGER_BLANK_SIZE, 1) == 0;
}

/* Of a later term that was heard while the disk hung nothing is left to be heard when whoever told it has died, and the others may go on following us. */
static void heed_unsaved_term(struct raft_driver *driver)
{
    const struct raft *raft = &driver->raft;
    raft_term term = driver->unsaved_term;

    if (driver->disk_hangs || term <= raft_current_term(&driver->raft))
        return;
    driver->unsaved_term = 0; /* a follower hears it again, from its leader */
    for (unsigned i = 0; i < raft->configuration.n && raft_state(&driver->raft) == RAFT_LEADER; i++) {
        if (raft->configuration.servers[i].id != driver->options.id) {
            raft_driver_step_down(driver, raft->configuration.servers[i].id, term);
            break;
        }
    }
}

void raft_driver_tick(struct raft_driver *driver)
{
    struct raft_event event = {.type = RAFT_TIMEOUT};
    struct raft *raft = &driver->raft;
    raft_time now = raft_driver_now(driver);

    if (!driver->started || driver->failed || driver->votes->saving)
        return;
    heed_unsaved_term(driver);
    if (driver->failed || driver->votes->saving)
        return;
    /* Who may not stand for election never stops believing in its leader, and refuses its vote to all others for ever. */
    if (raft_state(raft) == RAFT_FOLLOWER && !raft_driver_may_stand(driver) && raft->follower_state.current_leader.id != 0 &&
        now >= driver->heard_ms + driver->options.election_timeout_ms && raft_driver_guarded(driver, GUARD_NON_VOTER))
        raft_driver_forget_leader(driver);
    if (driver->look_due_ms != 0 && now >= driver->look_due_ms)
        raft_driver_look_for_majority(driver);
    if (now < driver->timeout_ms)
        return;
    if (raft_state(raft) == RAFT_LEADER) {
        /* As leader every call judges who has answered since the last one, so it must not come early; and the core may call itself due forever. */
        if (now < driver->leader_tick_ms + driver->options.heartbeat_ms && raft_driver_guarded(driver, GUARD_LEADER_TIMER)) {
            driver->timeout_ms = driver->leader_tick_ms + driver->options.heartbeat_ms;
            return;
        }
        driver->leader_tick_ms = now;
    } else if (now > driver->timeout_ms + LATE_MS && !driver->read_first) {
        driver->read_first = true;
        driver->timeout_ms = now + READ_MS;
        return;
    } else if (!raft_driver_barrier_fits(driver)) {
        driver->timeout_ms = now + driver->options.election_timeout_ms;
        return;
    }
    driver->read_first = false;
    if (raft_state(raft) == RAFT_FOLLOWER && raft_role(raft) == RAFT_VOTER && raft_driver_voters(raft) == 1 &&
        raft_last_index(raft) == raft->last_stored && !raft->snapshot.installing && raft_driver_guarded(driver, GUARD_SOLE_VOTER)) {
        /* When that takes long the timer runs out once more afterwards. */
        if (raft->current_term != driver->sole_term) {
            driver->sole_term = ++raft->current_term;
            raft->voted_for = raft->id;
            if (raft_driver_save_vote(driver, NULL) != 0)
                return;
        }
        driver->sole_term = 0;
    }
    /* Who was told to take over is voted for though the others have a leader. In its first round only: the leader reckons with no more than that
     * (raft_driver_contact.c), and one that hears nobody would unseat each leader that the others elect. */
    if (raft_state(raft) == RAFT_CANDIDATE)
        raft->candidate_state.disrupt_leader = false;
    raft_driver_step_timeout(driver, &event);
    if (driver->timeout_ms < now + 5 && !driver->votes->saving)
        driver->timeout_ms = now + 5; /* never spin on a timer that is always due */
}

uint64_t raft_driver_leader(struct raft_driver *driver)
{
    raft_id id;
    const char *address;

    if (!driver->started || driver->failed)
        return 0;
    if (driver->unsaved_term > raft_current_term(&driver->raft) || (driver->votes->saving && driver->unsaved_term == raft_current_term(&driver->raft)))
        return driver->unsaved_leader;
    raft_leader(&driver->raft, &id, &address);
    return id;
}

bool raft_driver_vote_refused(struct raft_driver *driver)
{
    return driver->started && !driver->failed && raft_driver_stands(driver) && driver->refused_term == raft_current_term(&driver->raft);
}

bool raft_driver_is_ahead_of(struct raft_driver *driver, const struct peer_message *request)
{
    return driver->started && !driver->failed && raft_driver_leader(driver) == 0 && raft_driver_compare_log(driver, request) > 0;
}

void raft_driver_hurry(struct raft_driver *driver, uint32_t delay_ms)
{
    struct raft *raft = &driver->raft;
    raft_time now = raft_driver_now(driver);
    unsigned timeout;

    if (!driver->started || driver->failed || driver->votes->saving || raft_state(raft) == RAFT_LEADER || !raft_driver_may_stand(driver))
        return;
    /* An election under way gets the time that slow disks need, unless it is lost: ours, and that of somebody else. */
    if (raft_driver_stands(driver) && delay_ms < RAFT_DRIVER_VOTE_PATIENCE_MS && !raft_driver_vote_refused(driver))
        delay_ms = RAFT_DRIVER_VOTE_PATIENCE_MS;
    if (now + delay_ms < driver->patient_ms)
        delay_ms = (uint32_t)(driver->patient_ms - now);
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
    raft_time now = raft_driver_now(driver);

    if (!raft_driver_leads(driver) || SEEDED_GUARD_OFF(GUARD_STUCK_FOLLOWER))
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
    rv = raft_driver_step(driver, &event);
    return rv == 0 ? 0 : rv == RAFT_NOTLEADER ? ERROR_NOT_LEADER : ERROR_NOT_FOUND;
}

void raft_driver_hand_over_stored(struct raft_driver *driver, uint64_t from)
{
    struct raft *raft = &driver->raft;
    raft_index match;

    if (driver->hand_over.type == 0 || driver->hand_over_to != from)
        return;
    if (!raft_driver_leads(driver) || raft_transferee(raft) != from || driver->hand_over.vote.term != raft_current_term(raft)) {
        driver->hand_over.type = 0; /* it took too long, or somebody else leads */
        return;
    }
    if (raft_match_index(raft, from, &match) != 0 || match < raft_last_index(raft))
        return;
    driver->handed_over_ms = raft_driver_now(driver);
    driver->handed_over_to = from;
    driver->io.send(driver->io.context, from, &driver->hand_over, NULL, 0);
    driver->hand_over.type = 0;
}

/* The core takes what was sent for what arrived, and a member that is still storing entries does not stand: the word would be lost, and with it the time
 * that the core gives a transfer, in which nobody accepts anything. */
void raft_driver_hand_over(struct raft_driver *driver, uint64_t to, const struct peer_message *message)
{
    driver->hand_over = *message;
    driver->hand_over_to = to;
    raft_driver_hand_over_stored(driver, to);
}

void raft_driver_step_down(struct raft_driver *driver, uint64_t from, uint64_t term)
{
    struct peer_message result = {.type = PEER_APPEND_ENTRIES_RESULT};

    result.append_result.term = term;
    result.append_result.rejected = 1;
    raft_driver_receive(driver, from, &result, NULL);
}

bool raft_driver_take_over(struct raft_driver *driver)
{
    struct peer_message message = {.type = PEER_TIMEOUT_NOW};
    uint64_t leader = raft_driver_leader(driver);
    raft_term term = driver->started ? raft_current_term(&driver->raft) : 0;

    if (leader == 0 || leader == driver->options.id)
        return false;
    message.vote.term = term;
    message.vote.last_index = raft_driver_last(driver);
    message.vote.last_term = driver->ledger->last_term;
    raft_driver_receive(driver, leader, &message, NULL);
    return raft_current_term(&driver->raft) > term;
}

void raft_driver_send_empty(struct raft_driver *driver, uint64_t to, raft_index previous, raft_index commit)
{
    struct peer_message out = {.type = PEER_APPEND_ENTRIES};

    out.append.term = raft_current_term(&driver->raft);
    out.append.previous_index = previous;
    out.append.previous_term = raft_driver_term_of(driver, previous);
    out.append.commit = commit;
    out.append.stamp = raft_driver_stamp(driver);
    if (out.append.previous_term != 0)
        driver->io.send(driver->io.context, to, &out, NULL, 0);
}

void raft_driver_announce_commit(struct raft_driver *driver)
{
    struct raft *raft = &driver->raft;

    if (!raft_driver_leads(driver))
        return;
    for (unsigned i = 0; i < raft->configuration.n; i++) {
        raft_id id = raft->configuration.servers[i].id;
        raft_index match;
        if (id != raft->id && raft_match_index(raft, id, &match) == 0 && match != 0)
            raft_driver_send_empty(driver, id, match, driver->commit);
    }
}

void raft_driver_move_trail(struct raft_driver *driver, raft_index index, struct slice configuration, raft_index configuration_index)
{
    struct raft_event event = {.type = RAFT_SNAPSHOT};
    struct raft_trail *trail = &driver->raft.trail;
    struct raft_buffer buffer = {(void *)(uintptr_t)configuration.data, configuration.size};
    raft_index keep_from = (raft_index)driver->ledger->begin_index + 1;

    if (!driver->started || driver->failed || driver->votes->saving || driver->raft.snapshot.installing || index > driver->commit || index > driver->raft.last_stored)
        return;
    if (trail->offset + 1 >= keep_from && raft_last_index(&driver->raft) - trail->offset < (1ull << 30))
        return; /* nothing was deleted and the count is far from its 32 bits */
    if (index == trail->snapshot.index)
        index--; /* the core does not take the same one again, and deletions go on where nothing is appended */
    if (index <= trail->offset || index < keep_from || raft_driver_term_of(driver, index) == 0)
        return;
    if (index - keep_from + 1 > (1ull << 29))
        keep_from = index - (1ull << 29) + 1;
    event.snapshot.metadata.index = index;
    event.snapshot.metadata.term = raft_driver_term_of(driver, index);
    event.snapshot.metadata.configuration_index = configuration_index;
    if (raft_configuration_decode(&buffer, &event.snapshot.metadata.configuration) != 0)
        return;
    event.snapshot.trailing = (unsigned)(index - keep_from + 1);
    raft_driver_step(driver, &event);
}
