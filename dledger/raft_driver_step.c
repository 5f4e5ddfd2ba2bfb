/* One event, in order:
 *
 *   1 a message is validated and, where the core would misbehave, split, trimmed or dropped (guards)
 *   2 raft_step()
 *   3 term and vote are synced, and when that takes long the rest is done later; 4 new entries go to the ledger (after a cut if they overlap); 5 state; 6 messages leave; 7 commit index
 *
 * Applying and answering happen outside, at the end of the loop turn, so that no step runs inside another but for configurations.
 */
#include "dledger/raft_driver_internal.h"

#include <assert.h>
#include <stdlib.h>

#include "dledger/ledger_internal.h"
#include "store/log_sink.h"

#define GIVE_WAY_MS 60u
#define GIVE_WAY_PAUSE_MS 250u
#define AGAIN_BYTES (64u << 10)
#define VOTE_SPENT_MAX_MS 2000u

void raft_driver_fail(struct raft_driver *driver, const struct error *error)
{
    if (driver->failed)
        return;
    driver->failed = true;
    driver->io.failed(driver->io.context, error);
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

enum raft_entry_type raft_driver_entry_type(uint8_t kind)
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

struct raft_entry *raft_driver_describe(struct raft_driver *driver, const uint8_t *run, uint32_t count)
{
    struct raft_entry *entries = driver_entries(driver, count);
    if (entries == NULL)
        return NULL;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t size = load_u32(run + 4);
        entries[i].term = load_u64(run + 16);
        entries[i].type = raft_driver_entry_type(run[35]);
        entries[i].buf.base = (void *)(uintptr_t)(run + LEDGER_ENTRY_HEADER_SIZE);
        entries[i].buf.len = size - LEDGER_ENTRY_HEADER_SIZE;
        entries[i].batch = NULL;
        run += size;
    }
    return entries;
}

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
    /* Who does not answer is asked again from the same place at every heart-beat, with all that it lacks: tens of megabytes, which a member that cannot take
     * them reads for nothing. Once is enough; after that a piece, and when this is taken the core sends what follows. */
    raft_index *sent_from = &driver->sent_from[message->server_id % 64];
    bool again = left > 0 && *sent_from == previous + 1;

    if (left > 0)
        *sent_from = previous + 1;
    out.append.term = append->term;
    out.append.commit = append->leader_commit;
    out.append.stamp = raft_driver_stamp(driver);
    do {
        const uint8_t *run = NULL;
        size_t size = 0;
        uint32_t count = 0;
        if (left > 0 && !again && driver->source != NULL && previous + 1 == driver->source_first && left == driver->source_count &&
            driver->source_size <= PEER_RUN_MAX) {
            run = driver->source;
            size = driver->source_size;
            count = left;
        } else if (left > 0) {
            count = ledger_checked_run(driver->ledger, previous, left, again ? AGAIN_BYTES : PEER_RUN_MAX, &run, &size);
            if (count == 0 && (int64_t)previous < driver->ledger->begin_index) {
                driver->io.behind(driver->io.context, message->server_id);
                return;
            }
            if (count == 0) /* the member still hears that we lead */
                driver->io.damaged(driver->io.context, previous + 1);
        }
        out.count = count;
        out.body_size = (uint32_t)size;
        out.append.previous_index = previous;
        out.append.previous_term = previous_term;
        driver->io.send(driver->io.context, message->server_id, &out, run, size);
        previous += count;
        left = count == 0 || again ? 0 : left - count;
        if (left > 0)
            previous_term = raft_driver_term_of(driver, previous);
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
        if (result->rejected > 0 && raft_driver_term_of(driver, result->rejected) != 0 && result->last_log_index > driver->commit &&
            raft_driver_guarded(driver, GUARD_CONFLICT_HINT))
            result->last_log_index = driver->commit;
        out.type = PEER_APPEND_ENTRIES_RESULT;
        out.append_result.term = result->term;
        out.append_result.rejected = result->rejected;
        out.append_result.last_index = result->last_log_index;
        out.append_result.features = result->features;
        out.append_result.capacity = driver->capacity;
        /* What is damaged here has to stay where it is whole. */
        out.flags = driver->disk_high ? PEER_RESULT_DISK_HIGH : 0;
        out.append_result.stored = ledger_whole_until(driver->ledger);
        out.count = (uint32_t)driver->heard_stamp;
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
            raft_driver_guarded(driver, GUARD_PRE_VOTE_TERM))
            result->term = raft_current_term(&driver->raft);
        /* Two that promise each other their votes at the same time would both stand and both lose. Once in a while only: who asks again and again
         * may reach nobody but us. */
        if (result->pre_vote && result->vote_granted && message->server_id < driver->options.id &&
            raft_driver_now(driver) >= driver->give_way_ms + GIVE_WAY_PAUSE_MS)
            driver->give_way_ms = raft_driver_now(driver) + GIVE_WAY_MS;
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
        raft_driver_hand_over(driver, message->server_id, &out);
        return;
    case RAFT_INSTALL_SNAPSHOT:
        /* The trail reaches back to the first retained entry, so this means: that member needs what is deleted here. Nothing was filled in, nothing is owned. */
        driver->io.behind(driver->io.context, message->server_id);
        return;
    }
    if (message->server_id != 0) /* a result for a leader that the core has forgotten meanwhile */
        driver->io.send(driver->io.context, message->server_id, &out, NULL, 0);
}

/* The core decides first: term and vote in its memory are ahead of the disk while a save is out. That a save may take for ever is safe because
 *
 *   - nobody hears of them before: they leave in messages of that very update, which waits, and in hellos, which tell what the file said last;
 *   - no step is made meanwhile: what arrives is lost, as messages may be, and timers stand still. So there is one save at a time, one term or vote never
 *     overtakes another on its way to the disk, and the core's arrays, to which the update points, stay as they are;
 *   - no entry of the new term is in the log: an update that brings one never changes the term (receive_append(), GUARD_SOLE_VOTER);
 *   - a process that dies meanwhile finds what it had told or something newer that nobody was told, and either may be gone on with.
 *
 * Who waits follows or stands for election, so that nobody misses heartbeats of it: who led before has stepped down in that step, and who wins an election
 * saves nothing.
 */
static int vote_is_saved(struct raft_driver *driver)
{
    struct raft *raft = &driver->raft;
    raft_time spent = raft_driver_now(driver) - driver->vote_since_ms;
    struct error error;

    if (vote_save_end(&driver->vote_save, &error) != 0) {
        raft_driver_fail(driver, &error);
        return RAFT_IOERR;
    }
    if (spent == 0)
        return 0;
    /* Our timer ran while the disk took its time, and those whom we ask for their votes will need as long: where syncs take longer than an election
     * may, nobody would ever win one. */
    raft->election_timer_start += spent; /* never ahead of the clock */
    if (raft_state(raft) == RAFT_CANDIDATE)
        raft->candidate_state.randomized_election_timeout += (unsigned)(2 * (spent < VOTE_SPENT_MAX_MS ? spent : VOTE_SPENT_MAX_MS));
    driver->timeout_ms = raft_timeout(raft);
    return 0;
}

static void note_state(struct raft_driver *driver, unsigned flags)
{
    if ((flags & (RAFT_UPDATE_STATE)) != 0) {
        memset(driver->stale_since, 0, sizeof driver->stale_since);
        if (raft_driver_leads(driver))
            driver->patient_ms = 0;
        raft_driver_forget_contacts(driver);
    }
    if ((flags & (RAFT_UPDATE_STATE | RAFT_UPDATE_CURRENT_TERM)) != 0)
        driver->io.state_changed(driver->io.context);
}

int raft_driver_save_vote(struct raft_driver *driver, const struct raft_update *update)
{
    struct raft *raft = &driver->raft;

    assert(raft_state(raft) != RAFT_LEADER);
    driver->vote_since_ms = raft_driver_now(driver);
    vote_save_begin(&driver->vote_save, driver->votes, raft_current_term(raft), raft_voted_for(raft));
    if (driver->io.save_vote(driver->io.context, &driver->vote_save))
        return vote_is_saved(driver);
    driver->waiting = (struct raft_update){0};
    if (update != NULL)
        driver->waiting = *update;
    driver->timeout_ms = UINT64_MAX;
    /* Whoever led leads no more, and its clients hear that now. */
    note_state(driver, driver->waiting.flags);
    LOG_WARN("raft: this disk hangs: term and vote are not stored after %llu ms; until they are, this member takes no part",
             (unsigned long long)(raft_driver_now(driver) - driver->vote_since_ms));
    return RAFT_BUSY;
}

/* All of an update but term and vote. */
static int carry_out(struct raft_driver *driver, const struct raft_update *update)
{
    struct error error;

    if ((update->flags & (RAFT_UPDATE_ENTRIES)) != 0 &&
        store_entries(driver, update->entries.index, update->entries.batch, update->entries.n) != 0) {
        if (driver->ledger->failed)
            error = driver->ledger->failure;
        else
            error_set(&error, ERROR_NO_SPACE, "raft: no room for %u entries at index %llu", update->entries.n, update->entries.index);
        raft_driver_fail(driver, &error);
        return RAFT_IOERR;
    }
    note_state(driver, update->flags);
    if ((update->flags & (RAFT_UPDATE_MESSAGES)) != 0) {
        for (unsigned i = 0; i < update->messages.n; i++)
            send_message(driver, &update->messages.batch[i]);
    }
    if ((update->flags & (RAFT_UPDATE_COMMIT_INDEX)) != 0) {
        raft_index commit = raft_commit_index(&driver->raft);
        if (commit > driver->commit || (commit < driver->commit && !raft_driver_guarded(driver, GUARD_COMMIT_MONOTONIC)))
            driver->commit = commit;
    }
    if (SEEDED_BUG_NOW(COMMIT_EARLY, 50) && raft_driver_leads(driver))
        driver->commit = raft_driver_last(driver);
    return 0;
}

void raft_driver_vote_saved(struct raft_driver *driver)
{
    struct raft_buffer change;
    raft_index index = driver->waiting_change;

    driver->waiting_change = 0;
    if (vote_is_saved(driver) != 0 || driver->failed)
        return;
    driver->timeout_ms = raft_timeout(&driver->raft);
    LOG_INFO("raft: term and vote were stored after %llu ms", (unsigned long long)(raft_driver_now(driver) - driver->vote_since_ms));
    /* Who told us to take over reckons with a vote for us right then, and not after that (raft_driver_contact.c). */
    for (unsigned i = 0; (driver->waiting.flags & (RAFT_UPDATE_MESSAGES)) != 0 && i < driver->waiting.messages.n; i++) {
        if (driver->waiting.messages.batch[i].type == RAFT_REQUEST_VOTE)
            driver->waiting.messages.batch[i].request_vote.disrupt_leader = false;
    }
    if (raft_state(&driver->raft) == RAFT_CANDIDATE)
        driver->raft.candidate_state.disrupt_leader = false;
    if (carry_out(driver, &driver->waiting) == 0 && index != 0 && raft_driver_configuration_at(driver, index, &change))
        raft_driver_apply_configuration(driver, index, slice_of(change.base, change.len));
}

int raft_driver_step(struct raft_driver *driver, struct raft_event *event)
{
    struct raft_update update;
    struct error error;
    int rv;

    assert(!driver->votes->saving);
    event->time = raft_driver_now(driver);
    event->capacity = driver->capacity;
    driver->steps++;
    rv = raft_step(&driver->raft, event, &update);
    driver->timeout_ms = raft_timeout(&driver->raft);
    if (rv != 0) {
        if (rv == RAFT_SHUTDOWN || (rv == RAFT_NOMEM && event->type == RAFT_RECEIVE) || (rv == RAFT_MALFORMED && event->type == RAFT_RECEIVE)) {
            error_set(&error, ERROR_DAMAGED, "raft: %s (%d) at index %llu: this member's log contradicts the leader's committed log",
                      raft_errmsg(&driver->raft), rv, raft_last_index(&driver->raft));
            raft_driver_fail(driver, &error);
        }
        return rv;
    }
    if ((update.flags & (RAFT_UPDATE_CURRENT_TERM | RAFT_UPDATE_VOTED_FOR)) != 0) {
        assert((update.flags & (RAFT_UPDATE_ENTRIES)) == 0);
        rv = raft_driver_save_vote(driver, &update);
        if (rv != 0)
            return rv;
    }
    return carry_out(driver, &update);
}
