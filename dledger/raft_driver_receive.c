/* Messages of peers on their way into a step: each is validated and, where the core would misbehave, split, trimmed, mended or dropped. The numbers
 * of the guards are explained in raft_driver.h.
 */
#include "dledger/raft_driver_internal.h"

#include <assert.h>

#include "proto/decimal.h"
#include "store/log_sink.h"

#define UNSEATED_MS 2u

static int step_message(struct raft_driver *driver, struct raft_message *message)
{
    struct raft_event event = {.type = RAFT_RECEIVE};

    event.receive.message = message;
    if (message->type == RAFT_APPEND_ENTRIES && message->append_entries.term >= raft_current_term(&driver->raft))
        driver->heard_stamp = driver->arriving_stamp; /* the answer leaves inside of the step */
    if (message->type == RAFT_APPEND_ENTRIES && message->append_entries.n_entries > 0) {
        /* The core frees `batch` of what it does not keep and never looks at payload: a one-byte token per message stands for it. */
        void *token = raft_malloc(1);
        if (token == NULL)
            return RAFT_NOMEM;
        for (unsigned i = 0; i < message->append_entries.n_entries; i++)
            message->append_entries.entries[i].batch = token;
    }
    return raft_driver_step(driver, &event);
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

    if (raft_state(raft) == RAFT_LEADER && append->term == raft_current_term(raft) && raft_driver_guarded(driver, GUARD_SAME_TERM))
        return;
    if ((previous == 0) != (previous_term == 0) || previous_term > append->term || append->term == 0)
        return;
    append->entries = NULL;
    append->n_entries = 0;
    if (append->term < raft_current_term(raft)) {
        step_message(driver, message);
        return;
    }
    driver->heard_ms = raft_driver_now(driver);
    driver->patient_ms = 0;
    if (previous < driver->commit && count > 0 && raft_driver_guarded(driver, GUARD_TRIM)) {
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
        previous_term = raft_driver_term_of(driver, previous);
        if (previous_term == 0)
            return;
    }
    if (count > 0 && previous != 0 && (previous > raft_driver_last(driver) || raft_driver_term_of(driver, previous) != previous_term)) {
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
    entries = raft_driver_describe(driver, run, count);
    if (entries == NULL)
        return;
    /* A later term is on the disk before an entry of its leader is in the log: the term alone first. */
    if (count > 0 && append->term > raft_current_term(raft)) {
        append->prev_log_index = previous;
        append->prev_log_term = previous_term;
        if (step_message(driver, message) != 0 || driver->failed)
            return;
    }
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
            while (end < count && (entries[end].type != RAFT_CHANGE || SEEDED_GUARD_OFF(GUARD_SPLIT_CHANGE)))
                end++;
            if (entries[position].type == RAFT_CHANGE && raft_driver_guarded(driver, GUARD_SPLIT_CHANGE)) {
                unsigned voters;
                bool is_voter;
                raft_index uncommitted;
                struct raft_buffer body;
                if (!raft_driver_configuration_valid(slice_of(entries[position].buf.base, entries[position].buf.len),
                                                     driver->options.id, &voters, &is_voter))
                    break;
                /* Let the commit index catch up first, so that an earlier configuration is settled before this one. */
                if (step_message(driver, &part) != 0 || raft_driver_term_of(driver, ae->prev_log_index) != ae->prev_log_term)
                    break;
                uncommitted = raft->configuration_uncommitted_index;
                if (uncommitted != 0 && uncommitted < previous + position + 1 && raft_driver_configuration_at(driver, uncommitted, &body) &&
                    raft_driver_guarded(driver, GUARD_SETTLE_CHANGE))
                    raft_driver_apply_configuration(driver, uncommitted, slice_of(body.base, body.len));
            }
            ae->entries = entries + position;
            ae->n_entries = end - position;
        }
        if (step_message(driver, &part) != 0 || driver->failed)
            break;
        if (end > position && raft_driver_term_of(driver, previous + end) != entries[end - 1].term)
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
    /* The core waits for an answer about the very snapshot that it offered, and anchors heartbeats at a newer one: asked about the entry that the member
     * names, it says that it has it, and the core goes on from there. */
    if (result->rejected > result->last_log_index && result->term == raft_current_term(&driver->raft) && raft_driver_leads(driver) &&
        raft_match_index(&driver->raft, message->server_id, &match) == 0 && result->last_log_index > match)
        raft_driver_send_empty(driver, message->server_id, result->last_log_index,
                               driver->commit < result->last_log_index ? driver->commit : result->last_log_index);
    if (result->rejected > 0 && result->term == raft_current_term(&driver->raft) &&
        raft_match_index(&driver->raft, message->server_id, &match) == 0) {
        /* Late, or the peer lost what it had acknowledged; in probe mode the core would believe it and go below the match index. */
        if (result->rejected <= match && raft_driver_guarded(driver, GUARD_STALE_RESULT)) {
            if (driver->stale_since[message->server_id % 64] == 0)
                driver->stale_since[message->server_id % 64] = raft_driver_now(driver);
            return;
        }
        if (result->last_log_index < match && raft_driver_guarded(driver, GUARD_STALE_RESULT))
            result->last_log_index = match;
    }
    if (result->last_log_index > raft_last_index(&driver->raft) && result->rejected == 0 &&
        result->term == raft_current_term(&driver->raft))
        return; /* cannot have stored what we never sent */
    bool led = raft_driver_leads(driver);
    step_message(driver, message);
    /* Somebody stood for election and lost, and is in a later term. The others may believe in us for up to two time-outs more and elect nobody else. */
    if (led && raft_state(&driver->raft) == RAFT_FOLLOWER)
        raft_driver_hurry(driver, UNSEATED_MS);
}

int raft_driver_compare_log(const struct raft_driver *driver, const struct peer_message *request)
{
    raft_term term = driver->ledger->last_term;
    raft_index last = raft_driver_last(driver);

    if (term != request->vote.last_term)
        return term > request->vote.last_term ? 1 : -1;
    return (last > request->vote.last_index) - (last < request->vote.last_index);
}

void raft_driver_forget_leader(struct raft_driver *driver)
{
    driver->raft.follower_state.current_leader.id = 0;
    driver->io.state_changed(driver->io.context);
}

static void step_vote_request(struct raft_driver *driver, struct raft_message *message, const struct peer_message *in)
{
    struct raft *raft = &driver->raft;
    raft_term term = raft_current_term(raft);
    raft_id voted_for = raft_voted_for(raft);
    raft_time now = raft_driver_now(driver);
    struct raft_event event = {.type = RAFT_RECEIVE};

    event.receive.message = message;
    /* Who has our vote in this term leads now, or soon, and we have not heard of it yet: with our promise another one could begin a round that unseats it. */
    if (message->request_vote.pre_vote && voted_for != 0 && voted_for == driver->patient_with && voted_for != message->server_id && now < driver->patient_ms)
        return;
    /* Who asks for votes in a term after the one in which it led leads no more. */
    if (raft_state(raft) == RAFT_FOLLOWER && raft->follower_state.current_leader.id == message->server_id && message->request_vote.term > term)
        raft_driver_forget_leader(driver);
    raft_driver_step_vote_request(driver, &event);
    if (driver->failed || driver->votes->saving || raft_state(raft) == RAFT_LEADER)
        return;
    bool granted = raft_voted_for(raft) == message->server_id && (raft_current_term(raft) != term || voted_for != message->server_id);
    /* Without its vote we may never win, and each new term of ours would be one in which it has to begin anew. */
    bool needed = !granted && raft_driver_stands(driver) && raft_driver_compare_log(driver, in) < 0;
    if (granted || needed) {
        driver->patient_ms = now + RAFT_DRIVER_VOTE_PATIENCE_MS;
        driver->patient_with = message->server_id;
    }
    if (needed) {
        raft->election_timer_start = now;
        driver->timeout_ms = raft_timeout(raft);
    }
}

static bool known_server(const struct raft *raft, uint64_t id)
{
    for (unsigned i = 0; i < raft->configuration.n; i++) {
        if (raft->configuration.servers[i].id == id)
            return true;
    }
    return false;
}

/* Nothing may be taken while term and vote of the last step are not durable. And on a disk of which it is known that it hangs nothing is begun that would
 * wait for them: what would raise our term or take our vote is dropped, while this member goes on following its leader. Messages may be lost in Raft; that
 * there is a later term, and who leads in it, is not forgotten. */
static bool waits_for_vote_file(struct raft_driver *driver, uint64_t from, const struct peer_message *in)
{
    bool saving = driver->votes->saving;
    raft_term current = raft_current_term(&driver->raft);
    raft_term term = in->append.term; /* the first word of all of these */
    uint64_t leader = in->type == PEER_APPEND_ENTRIES ? from : 0;

    if (!saving && (!driver->disk_hangs || in->type == PEER_REQUEST_VOTE_RESULT))
        return driver->disk_hangs;
    if (in->type != PEER_APPEND_ENTRIES && in->type != PEER_APPEND_ENTRIES_RESULT)
        return true;
    if (term < current || (term == current && (!saving || leader == 0)))
        return saving;
    if (term > driver->unsaved_term || (term == driver->unsaved_term && leader != 0 && leader != driver->unsaved_leader)) {
        driver->unsaved_term = term;
        driver->unsaved_leader = leader;
        driver->io.state_changed(driver->io.context);
    }
    return true;
}

void raft_driver_receive(struct raft_driver *driver, uint64_t from, const struct peer_message *in, const uint8_t *run)
{
    struct raft *raft = &driver->raft;
    char name[24];
    struct raft_message message = {.server_id = from, .server_address = name};

    if (!driver->started || driver->failed || from == 0 || from == driver->options.id || waits_for_vote_file(driver, from, in))
        return;
    *decimal_put((uint8_t *)name, (int64_t)from) = '\0';
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
        driver->arriving_stamp = in->append.stamp;
        receive_append(driver, &message, run, in->body_size);
        return;
    case PEER_APPEND_ENTRIES_RESULT:
        if (!known_server(raft, from))
            return;
        raft_driver_note_contact(driver, from, in->append_result.term, in->count);
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
        raft_driver_hand_over_stored(driver, from);
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
        step_vote_request(driver, &message, in);
        return;
    }
    case PEER_REQUEST_VOTE_RESULT: {
        bool pre_vote = (in->flags & PEER_VOTE_PRE) != 0;
        bool granted = (in->flags & PEER_VOTE_GRANTED) != 0;
        if (raft_state(raft) != RAFT_CANDIDATE && raft_driver_guarded(driver, GUARD_VOTE_RESULT))
            return;
        if (!raft_driver_barrier_fits(driver))
            return;
        if (!pre_vote && !granted && in->vote_result.term == raft_current_term(raft))
            driver->refused_term = in->vote_result.term;
        if (pre_vote && granted && raft_driver_now(driver) < driver->give_way_ms) {
            raft_driver_hurry(driver, (uint32_t)(driver->give_way_ms - raft_driver_now(driver))); /* should it not stand */
            return;
        }
        if (!known_server(raft, from) || (pre_vote && granted && in->vote_result.term != raft_current_term(raft) + 1)) /* a late one is for another term */
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
        raft_driver_step_vote_result(driver, &message);
        return;
    }
    case PEER_TIMEOUT_NOW:
        if (raft_driver_voters(raft) == 1 || !raft_driver_barrier_fits(driver))
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
