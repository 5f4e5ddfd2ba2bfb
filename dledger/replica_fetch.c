/* A mute member catches up: it asks whoever leads for the entries behind its own, and votes again when it has all that it may have acknowledged
 * once.
 */
#include "dledger/replica_internal.h"

#include "store/log_sink.h"
#include "store/seeded_bug.h"

/* The newest term that is known here for certain. Its own log tells as well as the vote file, which may be lost. */
static uint64_t known_term(const struct replica *replica)
{
    return replica->votes.term > replica->ledger.last_term ? replica->votes.term : replica->ledger.last_term;
}

void replica_send_fetch(struct replica *replica)
{
    struct peer_message message = {.type = PEER_FETCH};

    message.fetch.next_index = raft_driver_last(&replica->driver) + 1;
    message.fetch.previous_term = replica->ledger.last_term;
    message.fetch.term = known_term(replica);
    if (replica->mute_reason == PEER_MUTE_EMPTY && replica->heard_term > message.fetch.term)
        message.fetch.term = replica->heard_term;
    replica->fetch_sent_us = replica_now_us(replica);
    uint64_t only = replica_leaderless(replica);
    if (only == replica->id)
        return; /* it starts with what it has */
    for (int i = 0; i < replica->member_count; i++) {
        if (replica->peers[i].connected && replica->peers[i].hello.started)
            replica->io.send(replica->io.context, (uint64_t)i + 1, &message, NULL, 0);
    }
    /* Besides: who votes may be another matter than our log says, and then somebody leads. */
    if (only != 0) {
        message.flags = PEER_FETCH_LEADERLESS;
        replica->io.send(replica->io.context, only, &message, NULL, 0);
    }
}

/* As leader: entries for a mute member. Others stay silent. */
void replica_answer_fetch(struct replica *replica, uint64_t from, const struct peer_message *in)
{
    struct peer_message out = {.type = PEER_FETCH_RESULT};
    raft_index previous = in->fetch.next_index - 1;
    raft_index last = raft_driver_last(&replica->driver);
    raft_index match = 0;
    const uint8_t *run = NULL;
    size_t size = 0;

    if (in->fetch.next_index == 0 || !replica->driver.started || replica->driver.failed)
        return;
    if ((in->flags & PEER_FETCH_LEADERLESS) == 0 ? !raft_driver_leads(&replica->driver) : raft_driver_leader(&replica->driver) != 0)
        return;
    if (raft_driver_leads(&replica->driver) && in->fetch.term > raft_current_term(&replica->driver.raft)) {
        /* It once stood for election in a later term than ours and will not follow us. A member that runs would say so in an answer to our entries,
         * and another election would follow. */
        raft_driver_step_down(&replica->driver, from, in->fetch.term);
        return;
    }
    out.fetch_result.term = replica_term(replica);
    out.fetch_result.commit = replica->driver.commit;
    out.fetch_result.last_index = last;
    /* Until our own term has committed something, the commit index says little; all that ever committed before is in the log we were elected with. */
    if (!raft_driver_leads(&replica->driver))
        match = last; /* all that there is */
    else if (raft_match_index(&replica->driver.raft, from, &match) != 0 || match < replica->accept_from)
        match = replica->accept_from;
    out.fetch_result.match = match;
    out.fetch_result.previous_index = previous;
    if (replica->ledger.begin_index > 0 && (int64_t)previous <= replica->ledger.begin_index && previous <= last) {
        out.fetch_result.previous_term = 0;
        out.flags = 2;
    } else if (previous > 0 && ledger_hole_of(&replica->ledger, previous - 1) != NULL) {
        return; /* damaged here: what we do not know contradicts nobody */
    } else if (previous > last || (previous > 0 && ledger_term_of(&replica->ledger, previous - 1) != in->fetch.previous_term)) {
        out.fetch_result.previous_term = 0;
        out.flags = 1; /* our log has another entry there */
    } else {
        out.fetch_result.previous_term = in->fetch.previous_term;
        if (previous < last)
            out.count = ledger_checked_run(&replica->ledger, previous, REPLICA_SUBMIT_MAX, PEER_RUN_MAX, &run, &size);
        if (previous < last && out.count == 0)
            replica_look_at_entry(replica, previous + 1);
        out.body_size = (uint32_t)size;
    }
    out.flags |= in->flags & PEER_FETCH_LEADERLESS;
    replica->io.send(replica->io.context, from, &out, run, size);
}

/* Who was added without a vote never had one to forget. It may have got one by a change that is not committed. */
static bool may_have_voted(const struct replica *replica)
{
    bool voted = replica->members[replica->id - 1].voter;
    for (int i = 0; i < replica->member_count; i++)
        voted = voted || (replica->peers[i].hello.voters >> (replica->id - 1) & 1) != 0;
    return voted;
}

/* May a leader of this term let us vote again? It must not be older than any term in which we voted for or acknowledged something: a later
 * leader than the one we acknowledged to has what committed thereby, that one itself knows what we acknowledged. Who lost its vote file asks
 * everybody: whoever had our vote, or led us, has stored that term. */
static bool leader_is_recent(const struct replica *replica, uint64_t term)
{
    if (replica->mute_reason == PEER_MUTE_EMPTY && may_have_voted(replica)) {
        for (int i = 0; i < replica->member_count; i++) {
            if (replica_is_other(replica, i) && !replica->peers[i].heard)
                return false;
        }
        return term >= replica->heard_term;
    }
    return true; /* of votes.term at least, or it was not heard at all */
}

void replica_receive_fetched(struct replica *replica, uint64_t from, const struct peer_message *in, const uint8_t *run)
{
    struct ledger *ledger = &replica->ledger;
    raft_index last = raft_driver_last(&replica->driver);
    raft_index target, committed;
    struct error error;
    bool leaderless = (in->flags & PEER_FETCH_LEADERLESS) != 0;
    uint64_t term = in->fetch_result.term;
    unsigned what = in->flags & ~PEER_FETCH_LEADERLESS;
    int rv = 0;

    if (replica->phase != REPLICA_MUTE || replica->mute_reason == PEER_MUTE_DAMAGED || in->fetch_result.previous_index != last)
        return;
    /* Who led before our newest entries were made has been succeeded, whether it knows or not, and may lack what is committed here. */
    if (leaderless ? replica_leaderless(replica) != from : term < known_term(replica))
        return;
    /* Its hello was of the time when it connected. */
    if (term > replica->peers[from - 1].hello.term && !leaderless) {
        replica->peers[from - 1].hello.term = term;
        replica->heard_term = term > replica->heard_term ? term : replica->heard_term;
    }
    if (!replica_remember_heard(replica))
        return; /* the timer asks again */
    if (what == 2) {
        bulk_fetch_begin(&replica->fetch);
        return;
    }
    if (what == 1) {
        if (last <= replica->applied) {
            error_set(&error, ERROR_DAMAGED, "the leader's log contradicts entry %llu, which is committed here", last - 1);
            replica_fail(replica, &error);
            return;
        }
        /* It may have acknowledged what is cut: if it dies before it has that again, its log is not all that it ever had. */
        replica->checkpoint.forgot = true;
        if (!replica_save_forgot(replica))
            return;
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
    if (leaderless) {
        /* It may have gone on since its hello: until its end is here ours does not pass for the better log. It has our last entry now. */
        struct peer_hello *hello = &replica->peers[from - 1].hello;
        hello->last_index = in->fetch_result.last_index;
        if (what == 0 && last > 0 && hello->last_term < ledger->last_term)
            hello->last_term = ledger->last_term;
    }
    replica->io.hello_changed(replica->io.context);
    target = in->fetch_result.match > in->fetch_result.commit ? in->fetch_result.match : in->fetch_result.commit;
    if (!leaderless && target < replica->group_index)
        target = replica->group_index; /* a leader that has been succeeded and does not know may not have the change that made us a member */
    if ((last < target && !SEEDED_BUG(WIPED_COUNTS)) || last == 0 || (!leaderless && !leader_is_recent(replica, term))) {
        if (last < in->fetch_result.last_index && (in->count > 0 || what == 1)) /* else what comes next is damaged there: the timer asks again */
            replica_send_fetch(replica);
        return;
    }
    rv = replica_sync_now(replica, &error);
    if (leaderless) {
        if (replica->mute_reason == PEER_MUTE_UNCLEAN)
            LOG_ERROR("too few others vote to elect a leader, and all have been heard: voting again with what member %s has, which is the most of what is left",
                      replica->members[from - 1].id);
        else
            LOG_ERROR("members whose votes are needed forgot what they had, and all have been heard: what was acknowledged by those alone is lost; voting again with "
                      "what member %s has",
                      replica->members[from - 1].id);
        term = replica_unheard_term(replica, term);
        from = 0;
    }
    /* No other vote of ours in its term can matter any more. */
    if (rv == 0 && (replica->votes.term < term || !replica->votes.existed || replica->votes.doubtful))
        rv = vote_file_save(&replica->votes, term, from, &error);
    committed = in->fetch_result.commit < last ? in->fetch_result.commit : last;
    if (rv == 0)
        rv = replica_start_driver(replica, committed > replica->applied ? committed : replica->applied, &error);
    if (rv != 0)
        replica_fail(replica, &error);
    else
        LOG_INFO("caught up to index %llu: this member votes again", last - 1);
}

void replica_receive_behind(struct replica *replica, uint64_t from, const struct peer_message *in)
{
    /* Late words of an earlier leader do not count: the next one may have kept more. */
    if (replica->phase == REPLICA_RUNNING && raft_driver_leader(&replica->driver) == from && in->behind.term == raft_current_term(&replica->driver.raft) &&
        in->behind.first_index > raft_driver_last(&replica->driver))
        bulk_fetch_begin(&replica->fetch);
}
