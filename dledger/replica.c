/* A leader's entry, from reserve to answer:
 *
 *   1 replica_reserve() gives the body's place in the gather buffer, replica_append() seals the header in front of it
 *   2 replica_turn() submits what was gathered: one write to the ledger, one message per follower, one sync asked for
 *   3 followers' results (and our own sync) move the commit index
 *   4 the same turn applies: queues and tables first, then the answer, so that a pull right after an OK finds the message
 *
 * Whatever ends a leadership fails all that waits at once with ERROR_LEADERSHIP_LOST; an entry may still commit later (outcome unknown).
 */
#include "dledger/replica_internal.h"

#include <stdio.h>
#include <string.h>

#include "store/index_compare.h"
#include "store/log_sink.h"
#include "store/seeded_bug.h"

void replica_fail(struct replica *replica, const struct error *error)
{
    if (replica->phase == REPLICA_FAILED)
        return;
    replica->phase = REPLICA_FAILED;
    replica->failure = *error;
    replica->driver.failed = true;
    replica->more_to_apply = false;
    LOG_ERROR("this member stops for good: %s", error->message);
    replica->io.hello_changed(replica->io.context);
}

static void update_role(struct replica *replica)
{
    struct raft_driver *driver = &replica->driver;
    bool leads = raft_driver_leads(driver) && !driver->failed;
    uint64_t term = replica_term(replica);
    uint64_t leader = raft_driver_leader(driver);

    if (replica->accepting && (!leads || term != replica->leadership_term)) {
        replica->accepting = false;
        replica_drop_gathered(replica);
        replica_fail_pending(replica, replica->phase == REPLICA_FAILED ? ERROR_IO : ERROR_LEADERSHIP_LOST);
    }
    /* Nobody answers from tables before he knows that he is followed. And while leadership is handed over the core takes no entry: who began anew then
     * would lose the next ones as well, turn after turn, and tell every name server each time. */
    if (leads && !replica->accepting && (replica->applied >= replica->accept_from || SEEDED_BUG(ACCEPT_EARLY)) && raft_driver_has_followers(driver) &&
        raft_transferee(&driver->raft) == 0 && !replica->stopping) {
        replica->accepting = true;
        replica->accept_count++;
        replica->leadership_term = term;
        replica->trim_asked = replica->ledger.trim_position;
        replica->round_last = 0;
        replica_drop_gathered(replica);
        message_store_reset_append_offsets(replica->store);
    }
    if (leader != 0 && (leader != replica->gone_leader || term != replica->gone_term))
        replica->hurry_until_us = 0;
    /* Also when it stopped accepting and began again between two looks: what was under way then is lost. */
    if (leader != replica->known_leader || term != replica->known_term || replica->accepting != replica->known_accepting ||
        replica->accept_count != replica->known_accept_count) {
        replica->known_accept_count = replica->accept_count;
        replica->known_leader = leader;
        replica->known_term = term;
        replica->known_accepting = replica->accepting;
        replica->callbacks.role_changed(replica->callbacks.context);
    }
}

bool replica_in_doubt(struct replica *replica)
{
    return replica->accepting && replica_group_size(replica) > 1 && !SEEDED_BUG(NO_DOUBT) && !raft_driver_is_certain(&replica->driver);
}

void replica_receive(struct replica *replica, uint64_t from, const struct peer_message *message, const uint8_t *body)
{
    struct replica_peer *peer = replica_peer_of(replica, from);

    if (replica->phase == REPLICA_FAILED || peer == NULL || replica->checkpoint.clean)
        return; /* a clean checkpoint is the last thing that a run writes */
    if (replica->fetch.frozen && (message->type == PEER_APPEND_ENTRIES || message->type == PEER_FETCH_RESULT || message->type == PEER_REPAIR_RESULT))
        return; /* it would go to the log that is about to be replaced */
    if (message->type == PEER_BEHIND)
        replica_receive_behind(replica, from, message);
    else if (message->type == PEER_FORGOT)
        replica_told_forgot(replica, from, message);
    else if (message->type == PEER_MANIFEST)
        replica_answer_manifest(replica, from, message);
    else if (message->type == PEER_MANIFEST_RESULT)
        bulk_fetch_manifest(&replica->fetch, from, message, body);
    else if (message->type == PEER_BULK)
        replica_answer_bulk(replica, from, message);
    else if (message->type == PEER_BULK_RESULT)
        bulk_fetch_piece(&replica->fetch, from, message, body);
    else if (message->type == PEER_FETCH)
        replica_answer_fetch(replica, from, message);
    else if (message->type == PEER_FETCH_RESULT)
        replica_receive_fetched(replica, from, message, body);
    else if (message->type == PEER_REPAIR)
        replica_answer_repair(replica, from, message);
    else if (message->type == PEER_REPAIR_RESULT)
        replica_receive_repaired(replica, from, message, body);
    else {
        if (message->type == PEER_APPEND_ENTRIES_RESULT) {
            peer->disk_high = (message->flags & PEER_RESULT_DISK_HIGH) != 0;
            peer->stored = message->append_result.stored;
            peer->full = message->append_result.capacity == RAFT_DRIVER_CAPACITY_FULL;
            peer->slow = message->append_result.capacity == RAFT_DRIVER_CAPACITY_SLOW;
            if (peer->connected && message->append_result.term > peer->seen_term)
                peer->seen_term = message->append_result.term;
        }
        raft_driver_receive(&replica->driver, from, message, body);
        if (message->type == PEER_APPEND_ENTRIES_RESULT)
            replica_note_seen_of(replica, (int)from - 1);
        /* Who comes first in the list tries again first; but before those who lack what others have, these try. */
        if (message->type == PEER_REQUEST_VOTE_RESULT && replica->hurry_until_us != 0 && raft_driver_vote_refused(&replica->driver))
            raft_driver_hurry(&replica->driver, (uint32_t)(20 + 60 * (replica->id - 1)));
        else if (message->type == PEER_REQUEST_VOTE && raft_driver_is_ahead_of(&replica->driver, message))
            raft_driver_hurry(&replica->driver, (uint32_t)(4 * (replica->id - 1)));
    }
}

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
        replica_review_configuration(replica);
        if (driver->started && (replica->options.durability == DURABILITY_A || SEEDED_BUG(PERSISTED_EARLY)))
            raft_driver_persisted(driver, raft_driver_last(driver));
        raft_index committed = SEEDED_BUG(SERVE_UNCOMMITTED) ? raft_driver_last(driver) : driver->commit;
        if (driver->started && replica->applied < committed)
            worked = replica_apply(replica, committed, REPLICA_APPLY_TURN_MAX);
        replica_slow_note_commit(replica);
        applied |= worked;
        update_role(replica);
        if (replica_may_submit(replica))
            worked |= replica_submit(replica);
        replica_start_sync(replica);
        if (!worked || replica->phase == REPLICA_FAILED)
            break;
    }
    if (replica->phase == REPLICA_FAILED)
        update_role(replica);
    replica_start_reserve(replica);
    if (applied && raft_driver_leads(driver) && driver->commit > replica->announced && replica_group_size(replica) > 1)
        replica->announce_due_us = driver->commit >= raft_driver_last(driver) ? replica_now_us(replica) + REPLICA_ANNOUNCE_MS * 1000 : 0;
    if (applied)
        replica_note_seen(replica);
    if (applied)
        replica->callbacks.applied(replica->callbacks.context);
    return replica->more_to_apply;
}

void replica_tick(struct replica *replica)
{
    uint64_t now = replica_now_us(replica);

    if (!replica->driver_ready)
        return;
    if (replica->phase == REPLICA_RUNNING) {
        raft_driver_tick(&replica->driver);
        if (replica->hurry_until_us != 0 && now >= replica->hurry_next_us) {
            if (now < replica->hurry_until_us)
                replica_hurry(replica);
            else
                replica->hurry_until_us = 0;
        }
    }
    if (replica_scrub_wanted(replica))
        replica_scrub_tick(replica, now);
    if (replica->ledger.hole_count > 0 && now >= replica->repair_due_us)
        replica_repair_tick(replica, now);
    if (replica->phase == REPLICA_MUTE && replica->mute_reason != PEER_MUTE_DAMAGED && now >= replica->fetch_sent_us + REPLICA_FETCH_RETRY_US)
        replica_send_fetch(replica);
    if (!replica->stopping && replica->phase != REPLICA_FAILED)
        bulk_fetch_tick(&replica->fetch, now);
    replica_serve_tick(replica, now);
    replica_backup_tick(replica, now);
    if (replica->review_due_us != 0 && now >= replica->review_due_us) {
        replica->review_due_us = 0;
        replica_review_members(replica);
    }
    while (replica->pending_head != NULL && now >= replica->pending_head->deadline_us)
        replica_finish_first(replica, replica->apply_stalled ? ERROR_DISK_STALLED : ERROR_QUORUM_TIMEOUT);
    if (replica->announce_due_us != 0 && now >= replica->announce_due_us) {
        replica->announce_due_us = 0;
        replica->announced = replica->driver.commit;
        raft_driver_announce_commit(&replica->driver);
    }
    replica_slow_tick(replica, now);
    replica->driver.capacity = replica_is_full(replica) ? RAFT_DRIVER_CAPACITY_FULL : replica_is_slow(replica) ? RAFT_DRIVER_CAPACITY_SLOW : RAFT_DRIVER_CAPACITY;
    replica_hand_over_when_useful(replica, now);
    replica_prefer_leader(replica, now);
    if (replica->idle_sync_us != 0 && now >= replica->idle_sync_us && replica->phase == REPLICA_RUNNING) {
        replica->store_sync_due_us = now;
        replica->checkpoint_dirty = true;
    }
    if (now >= replica->checkpoint_due_us && !replica->saving && replica->checkpoint_dirty && replica->phase == REPLICA_RUNNING) {
        replica_start_save(replica, replica->applied_end - replica->snapshot_position >= REPLICA_SNAPSHOT_BYTES);
        replica->checkpoint_due_us = now + REPLICA_CHECKPOINT_MS * 1000;
    }
}

uint64_t replica_deadline_us(const struct replica *replica)
{
    uint64_t due = UINT64_MAX;
#define EARLIER(time) due = (time) < due ? (time) : due
    if (replica->driver.started && !replica->driver.failed && replica->driver.timeout_ms < UINT64_MAX / 1000)
        EARLIER(replica->driver.timeout_ms * 1000);
    if (replica->driver.look_due_ms != 0 && !replica->driver.failed)
        EARLIER(replica->driver.look_due_ms * 1000);
    if (replica->pending_head != NULL)
        EARLIER(replica->pending_head->deadline_us);
    if (replica->announce_due_us != 0)
        EARLIER(replica->announce_due_us);
    if (replica->gather_count > 0)
        EARLIER(replica->round_started_us + REPLICA_ROUND_AGE_US);
    if (replica->checkpoint_dirty && !replica->saving && replica->phase == REPLICA_RUNNING)
        EARLIER(replica->checkpoint_due_us);
    if (replica->idle_sync_us != 0 && replica->phase == REPLICA_RUNNING)
        EARLIER(replica->idle_sync_us);
    if (replica->phase == REPLICA_RUNNING && !replica->scrub.out && replica_scrub_wanted(replica))
        EARLIER(replica->store->doubt.any && !replica->store->doubt.heeded ? 0 : replica->scrub_due_us);
    if (replica->ledger.hole_count > 0 && replica->phase != REPLICA_FAILED)
        EARLIER(replica->repair_due_us);
    if (replica->phase == REPLICA_MUTE && replica->mute_reason != PEER_MUTE_DAMAGED)
        EARLIER(replica->fetch_sent_us + REPLICA_FETCH_RETRY_US);
    if (replica->review_due_us != 0)
        EARLIER(replica->review_due_us);
    if (!replica->stopping && replica->phase != REPLICA_FAILED)
        EARLIER(bulk_fetch_deadline_us(&replica->fetch));
    if (replica->serve.to != 0 && !replica->serve.job.out)
        EARLIER(replica->serve.used_us + REPLICA_SERVE_IDLE_US);
    if (replica->backup.id != 0)
        EARLIER(replica->backup.used_us + REPLICA_SERVE_IDLE_US);
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
        replica_drop_gathered(replica);
        replica_fail_pending(replica, ERROR_STOPPED);
    }
    if (replica->syncing || replica->saving || replica->votes.saving || replica->ledger.reserving || replica->scrub.out || replica->fetch.job.out ||
        replica->serve.job.out || replica->trim_release.job.out)
        return false;
    if (replica->phase == REPLICA_FAILED || !replica->driver.started)
        return true;
    while (replica->applied < replica->driver.commit && replica_apply(replica, replica->driver.commit, UINT32_MAX))
        ;
    if (replica->phase == REPLICA_FAILED)
        return true;
    if (replica_sync_now(replica, &error) != 0 || message_store_sync(replica->store) != 0) {
        LOG_ERROR("clean stop: sync failed; the next start does more work");
        return true;
    }
    replica->checkpoint.synced_dispatched_position = replica->applied_end;
    replica->checkpoint.clean = true;
    replica_start_save(replica, true);
    return true;
}

const char *dledger_role_name(enum dledger_role role)
{
    static const char *const names[] = {"UNKNOWN", "FOLLOWER", "CANDIDATE", "LEADER"};
    return names[role];
}

int replica_leader_member(const struct replica *replica)
{
    return (int)replica->known_leader - 1;
}

static void say_no_leader(const struct replica *replica, char *why, size_t size)
{
    int voters = 0, up = 0;

    for (int i = 0; i < replica->member_count; i++) {
        const struct dledger_member *member = &replica->members[i];
        voters += member->raft_id != 0 && member->voter;
        up += member->raft_id != 0 && member->voter && (member->self || replica->peers[i].connected);
    }
    if (up > voters / 2)
        snprintf(why, size, "no leader in group %s", replica->options.group);
    else
        snprintf(why, size, "no leader in group %s: %d of its %d voters up, %d needed; when the others are lost for good: mqbroker --force-new-group (docs/group.md)",
                 replica->options.group, up, voters, voters / 2 + 1);
}

static void say_somebody_missing(const struct replica *replica, char *why, size_t size)
{
    char known[32] = "";

    if (replica->heard.term == UINT64_MAX)
        snprintf(known, sizeof known, "unknown which");
    else
        snprintf(known, sizeof known, "%llu", (unsigned long long)replica->heard.term);
    snprintf(why, size, "this node forgot what it had, and heard of a later time of group %s (term %s) than the members here know: one that knows it is "
             "missing; when it is lost for good: mqbroker --force-new-group on another one (docs/group.md)", replica->options.group, known);
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
    else if (replica->phase == REPLICA_REMOVED)
        snprintf(why, size, "this node was removed from group %s: to have it back, empty its directory and run mqadmin member add", replica->options.group);
    else if (replica->not_added && replica_is_stranger(replica))
        snprintf(why, size, "this node is no member of group %s yet: mqadmin member add", replica->options.group);
    else if (replica->phase == REPLICA_WAITING && replica_misses_somebody(replica))
        say_somebody_missing(replica, why, size);
    else if (replica->phase == REPLICA_WAITING)
        snprintf(why, size, "no leader yet: waiting for all %d members of group %s at their first start", replica_group_size(replica),
                 replica->options.group);
    else if (replica->phase == REPLICA_MUTE && replica->mute_reason == PEER_MUTE_DAMAGED)
        snprintf(why, size, "this node's log is damaged and being repaired from the other members");
    else if (replica->phase == REPLICA_MUTE && replica_named_elsewhere(replica) != NULL)
        snprintf(why, size, "this node is catching up, and waits for members that know %s, which dLegerPeers names: if it has left the group, correct dLegerPeers "
                 "and restart this node", replica_named_elsewhere(replica));
    else if (replica->phase == REPLICA_MUTE && replica_misses_somebody(replica))
        say_somebody_missing(replica, why, size);
    else if (replica->phase == REPLICA_MUTE)
        snprintf(why, size, "this node is catching up with the group");
    else if (replica->votes.saving && replica->known_leader == 0)
        snprintf(why, size, "the broker's disk hangs: its vote cannot be stored");
    else if (replica->known_leader == 0)
        say_no_leader(replica, why, size);
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
        .accept_count = replica->accept_count,
        .term = replica_term(replica),
        .leader = replica_leader_member(replica),
        .last_index = replica->ledger.last_index,
        .commit_index = (int64_t)replica->driver.commit - 1,
        .applied_index = (int64_t)replica->applied - 1,
        .next_index = (int64_t)raft_driver_last(&replica->driver) + replica->gather_count,
        .committed_position = (int64_t)replica->applied_end,
        .begin_position = (int64_t)mapped_file_queue_begin(&replica->ledger.data),
        .trim_position = (int64_t)replica->ledger.trim_position,
        .trimmed_segments = replica->trimmed_segments,
        .end_position = (int64_t)replica->ledger.end_position,
        .synced_position = (int64_t)replica->ledger.synced_position,
        .sync_age_ms = replica->syncing ? (replica_now_us(replica) - replica->sync_started_us) / 1000 :
                       replica->votes.saving ? replica_now_us(replica) / 1000 - replica->driver.vote_since_ms : 0,
        .durability = replica->options.durability,
        .up_since_ms = replica->up_since_ms,
        .fdatasync_count = replica->fdatasync_count,
        .failed = replica->phase == REPLICA_FAILED,
        .disk_full = replica->reserve_failed || replica->apply_stalled,
        .scrub_passes = replica->scrub_passes,
        .scrub_position = (int64_t)replica->scrub.position,
        .mended_units = replica->store == NULL ? 0 : replica->store->mended_units,
        .damaged_ranges = replica->ledger.hole_count,
        .repaired_entries = replica->repaired_entries,
        .removed = replica->phase == REPLICA_REMOVED,
        .slow_disk = replica_is_slow(replica),
        .forced_recoveries = replica_generation(replica),
    };
    uint64_t fetched, of;
    bulk_fetch_progress(&replica->fetch, &fetched, &of);
    state->fetched_bytes = (int64_t)fetched;
    state->fetched_of = (int64_t)of;
    if (replica->store != NULL && replica->store->index_compare != NULL) {
        struct index_compare_counts counts = index_compare_counts(replica->store->index_compare);
        state->index_damaged = counts.damaged;
        state->index_rebuilt = counts.rebuilt;
    }
    switch (replica->driver.started && !replica->driver.failed ? raft_state(raft) : RAFT_UNAVAILABLE) {
    case RAFT_FOLLOWER:
        state->role = DLEDGER_FOLLOWER;
        break;
    case RAFT_CANDIDATE:
        state->role = DLEDGER_CANDIDATE;
        break;
    case RAFT_LEADER:
        state->role = raft_driver_leads((struct raft_driver *)(uintptr_t)&replica->driver) ? DLEDGER_LEADER : DLEDGER_FOLLOWER; /* of an older term */
        break;
    default:
        state->role = DLEDGER_ROLE_UNKNOWN;
        break;
    }
    for (int i = 0; i < replica->member_count; i++) {
        struct dledger_member *member = &state->members[state->member_count];
        raft_index match;
        if (replica->members[i].raft_id == 0)
            continue;
        if (replica->known_leader == (uint64_t)i + 1)
            state->leader = state->member_count;
        state->member_count++;
        *member = replica->members[i];
        member->fetched_percent = -1;
        if (replica->serve.to == (uint64_t)i + 1 && replica->serve.manifest.last > replica->serve.manifest.first)
            member->fetched_percent = (int)((replica->serve.next - replica->serve.manifest.first) * 100 / (replica->serve.manifest.last - replica->serve.manifest.first));
        if (state->role == DLEDGER_LEADER && !member->self && raft_match_index(raft, member->raft_id, &match) == 0 && match > 0)
            member->match_index = match - 1;
        if (member->self) {
            member->connected = true;
            member->match_index = replica->ledger.last_index < 0 ? UINT64_MAX : (uint64_t)replica->ledger.last_index;
            snprintf(member->broker_address, sizeof member->broker_address, "%s", replica->broker_address);
        }
    }
}
