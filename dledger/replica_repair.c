/* Damaged entries are fetched from the other members, one run at a time, whatever phase either side is in: members that are damaged at different
 * places mend each other before anybody leads.
 *
 * Whose log has our term at the hole's anchor has our entries before it (log matching), committed or not. Who knows that other entries are committed
 * there says so: then what stands behind the hole is not the log's, and goes.
 */
#include "dledger/replica_internal.h"

#include <limits.h>

#include "store/log_sink.h"

static uint32_t all_others(const struct replica *replica)
{
    uint32_t others = 0;
    for (int i = 0; i < replica->member_count; i++) {
        if (replica_is_other(replica, i))
            others |= 1u << i;
    }
    return others;
}

bool replica_must_repair(const struct replica *replica)
{
    for (uint32_t i = 0; i < replica->ledger.hole_count; i++) {
        const struct ledger_hole *hole = &replica->ledger.holes[i];
        if (!ledger_hole_is_trimmed(&replica->ledger, hole) && (hole->last >= replica->applied || hole->refused != all_others(replica)))
            return true;
    }
    return false;
}

void replica_repair_start(struct replica *replica)
{
    if (replica->repair_due_us < replica_now_us(replica))
        replica->repair_due_us = replica_now_us(replica);
}

static void begin_when_whole(struct replica *replica)
{
    struct error error;

    if (replica->phase != REPLICA_MUTE || replica->mute_reason != PEER_MUTE_DAMAGED || replica_must_repair(replica) || replica->fetch.frozen)
        return;
    if (replica->ledger.hole_count == 0)
        LOG_INFO("the log is whole again: %llu entries were fetched", (unsigned long long)replica->repaired_entries);
    /* Who belongs to the group may be what was damaged. */
    raft_index known = replica->known_committed < 0 ? 1 : (raft_index)(replica->known_committed + 1);
    int rv = replica_find_configuration(replica, known, &error);
    if (rv == 0)
        rv = replica_know_members(replica, known, false, &error);
    if (rv == 0 && replica->phase != REPLICA_REMOVED)
        rv = replica_begin(replica, &error);
    if (rv != 0) {
        replica_fail(replica, &error);
        return;
    }
    replica->io.hello_changed(replica->io.context);
    replica_review_members(replica);
}

void replica_repair_tick(struct replica *replica, uint64_t now)
{
    struct ledger *ledger = &replica->ledger;
    struct peer_message message = {.type = PEER_REPAIR};
    struct ledger_hole *hole = NULL;
    uint64_t term;

    if (replica->phase == REPLICA_FAILED)
        return;
    if (now < replica->repair_paced_us) {
        replica->repair_due_us = replica->repair_paced_us;
        return;
    }
    replica->repair_due_us = now + REPLICA_REPAIR_RETRY_MS * 1000ull;
    for (uint32_t i = 0; i < ledger->hole_count && hole == NULL; i++) {
        if (!ledger_hole_is_trimmed(ledger, &ledger->holes[i]) && ledger->holes[i].refused != all_others(replica))
            hole = &ledger->holes[i];
    }
    if (hole == NULL) {
        for (uint32_t i = 0; i < ledger->hole_count; i++) { /* a member that was damaged too may have been mended */
            ledger->holes[i].refused = 0;
            ledger->holes[i].narrow = false;
        }
        replica->repair_due_us = now + REPLICA_REPAIR_REFUSED_MS * 1000ull;
        return;
    }
    message.repair.first_index = hole->first + 1;
    message.repair.previous_term = hole->first == 0 ? 0 : ledger_term_of(ledger, hole->first - 1); /* 0: the log begins here, or it is not known */
    message.repair.anchor_index = ledger_hole_anchor(ledger, hole, &term) + 1;
    message.repair.anchor_term = term;
    for (int i = 0; i < replica->member_count; i++) {
        int place = (replica->repair_peer + i) % replica->member_count;
        if ((uint64_t)place + 1 == replica->id || !replica->peers[place].connected || (hole->refused & 1u << place) != 0)
            continue;
        replica->repair_peer = (place + 1) % replica->member_count; /* unless it answers, the next one */
        replica->io.send(replica->io.context, (uint64_t)place + 1, &message, NULL, 0);
        return;
    }
}

void replica_answer_repair(struct replica *replica, uint64_t from, const struct peer_message *in)
{
    struct ledger *ledger = &replica->ledger;
    raft_index first = in->repair.first_index, anchor = in->repair.anchor_index;
    raft_index commit = replica->driver.started ? replica->driver.commit : 0;
    struct peer_message out = {.type = PEER_REPAIR_RESULT};
    const uint8_t *run = NULL;
    size_t size = 0;

    if (first == 0 || anchor < first)
        return;
    /* What is deleted, or damaged, on either side contradicts nothing. */
    uint64_t previous = first == 1 ? 0 : ledger_term_of(ledger, first - 2);
    out.repair_result.first_index = first;
    out.repair_result.anchor_index = anchor;
    out.flags = (int64_t)first <= ledger->begin_index ? PEER_REPAIR_GONE : PEER_REPAIR_REFUSED;
    if (commit >= anchor ? ledger_term_of(ledger, anchor - 1) != in->repair.anchor_term && ledger_term_of(ledger, anchor - 1) != 0
                         : commit >= first && ledger_term_of(ledger, commit - 1) > in->repair.anchor_term) {
        out.flags = PEER_REPAIR_CONFLICT;
    } else if (anchor <= raft_driver_last(&replica->driver) && ledger_term_of(ledger, anchor - 1) == in->repair.anchor_term &&
               (previous == 0 || in->repair.previous_term == 0 || previous == in->repair.previous_term)) {
        uint64_t count_max = anchor - first + 1 < REPLICA_SUBMIT_MAX ? anchor - first + 1 : REPLICA_SUBMIT_MAX;
        out.count = ledger_checked_run(ledger, first - 1, (uint32_t)count_max, PEER_RUN_MAX, &run, &size);
        if (out.count > 0)
            out.flags = 0;
        else
            replica_look_at_entry(replica, first);
    }
    out.body_size = out.count > 0 ? (uint32_t)size : 0;
    replica->io.send(replica->io.context, from, &out, out.count > 0 ? run : NULL, out.body_size);
}

/* Entries that no other member has as they are here: they were never committed, or are not what was written. False: not now. */
static bool resolve_conflict(struct replica *replica, struct ledger_hole *hole)
{
    struct ledger *ledger = &replica->ledger;
    char where[PATH_MAX];

    if ((int64_t)hole->last + 1 < ledger->last_index) {
        ledger_distrust_anchor(ledger, hole->first);
    } else if (hole->first < replica->applied || replica->driver.started || (hole->first > 0 && (int64_t)hole->first == ledger->begin_index)) {
        hole->refused = all_others(replica); /* it is committed here: two truths, and no way to tell */
    } else {
        uint64_t first = hole->first;
        replica->checkpoint.forgot = true;
        replica->started_unclean = true;
        if (!replica_save_forgot(replica)) /* a start that finds the shorter log must not take it for all that was acknowledged */
            return false;
        ledger_describe(ledger, hole->position, where, sizeof where);
        LOG_WARN("%s: entries from %llu on are none of the group's any more, and are cut", where, (unsigned long long)first);
        if (ledger_truncate(ledger, first) != 0)
            replica_fail(replica, &ledger->failure);
    }
    return true;
}

void replica_receive_repaired(struct replica *replica, uint64_t from, const struct peer_message *in, const uint8_t *run)
{
    struct ledger *ledger = &replica->ledger;
    struct ledger_hole *hole = NULL;
    uint64_t now = replica_now_us(replica);
    uint64_t term, first, last, position;
    char where[PATH_MAX];
    struct error error;

    for (uint32_t i = 0; i < ledger->hole_count; i++) {
        if (ledger->holes[i].first + 1 == in->repair_result.first_index)
            hole = &ledger->holes[i];
    }
    if (hole == NULL || ledger_hole_anchor(ledger, hole, &term) + 1 != in->repair_result.anchor_index)
        return; /* late */
    first = hole->first;
    last = hole->last;
    position = hole->position;
    ledger_describe(ledger, position, where, sizeof where);
    if (in->flags == PEER_REPAIR_CONFLICT && !hole->narrow) { /* else the term was a guess */
        if (!resolve_conflict(replica, hole)) {
            replica->repair_due_us = now + REPLICA_REVIEW_RETRY_MS * 1000ull;
            return;
        }
    } else if (in->count == 0) {
        hole->refused |= 1u << (from - 1);
        hole->gone |= in->flags == PEER_REPAIR_GONE;
        if (hole->refused == all_others(replica) && ledger_narrow_anchor(ledger, first))
            LOG_INFO("%s: nobody has the entry behind entry %llu: whose log ends there is asked for what is before", where, (unsigned long long)last);
        else if (hole->refused == all_others(replica) && ledger_widen_into_doubt(ledger, first))
            LOG_WARN("%s: nobody has entry %llu behind what stands before it here: that is fetched too", where, (unsigned long long)first);
        else if (hole->refused == all_others(replica) && hole->gone && replica->phase == REPLICA_MUTE && last >= replica->applied)
            bulk_fetch_begin(&replica->fetch); /* nobody needs them: with the leader's tables this member does not, either */
        else if (hole->refused == all_others(replica))
            LOG_ERROR("%s: entries %llu to %llu cannot be fetched from any member: %s", where, (unsigned long long)first, (unsigned long long)last,
                      last < replica->applied ? "what they hold cannot be read, the rest can"
                                              : "they are to be applied yet, so this member waits for one that has them; when that is lost for good: mqbroker "
                                                "--force-new-group, on the member whose log is to count (docs/group.md), or a backup");
    } else {
        int rv = ledger_repair(ledger, first, run, in->body_size, in->count, &error);
        if (rv == ERROR_IO) {
            replica_fail(replica, &ledger->failure);
            return;
        }
        if (rv == 0) {
            replica->repaired_entries += in->count;
            replica->repair_peer = (int)from - 1;
            replica->repair_paced_us = now + in->body_size * 1000000ull / REPLICA_REPAIR_RATE;
            if (ledger_hole_of(ledger, last) == NULL)
                LOG_INFO("%s: entries up to %llu are repaired", where, (unsigned long long)last);
        } else if (rv != ERROR_BUSY) {
            LOG_WARN("%s: entries from member %s do not fit: %s", where, replica->members[from - 1].id, error.message);
            hole = (struct ledger_hole *)(uintptr_t)ledger_hole_of(ledger, first);
            if (hole != NULL && hole->first == first)
                hole->refused |= 1u << (from - 1);
        }
    }
    replica->repair_due_us = now;
    begin_when_whole(replica);
}
