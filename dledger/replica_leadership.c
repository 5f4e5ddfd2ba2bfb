/* Who leads: a transfer that somebody asked for, preferred leaders, to whom a leader hands over once they have kept up for a while, and what to do when a
 * leader is no use any more.
 */
#include "dledger/replica_internal.h"

#include <stdio.h>

#include "store/log_sink.h"

/* False: it is this one, is away, catches up, has no vote or no room. *match: how much of our log it has. */
static bool can_lead(struct replica *replica, int place, raft_index *match)
{
    const struct replica_peer *peer = &replica->peers[place];

    return (uint64_t)place + 1 != replica->id && peer->connected && peer->hello.started && !peer->full &&
           raft_driver_is_voter(&replica->driver, (uint64_t)place + 1) && raft_match_index(&replica->driver.raft, (raft_id)place + 1, match) == 0;
}

/* How far a member is behind our log's end; UINT64_MAX: it cannot lead now, or not for long. */
static uint64_t lag_of(struct replica *replica, int place)
{
    raft_index last = raft_driver_last(&replica->driver);
    raft_index match;

    if (replica->peers[place].disk_high || !can_lead(replica, place, &match))
        return UINT64_MAX;
    return match > last ? 0 : last - match;
}

int replica_successor(struct replica *replica, uint64_t *lag)
{
    int best = -1;

    *lag = UINT64_MAX;
    for (int i = 0; i < replica->member_count; i++) {
        uint64_t behind = lag_of(replica, i);
        if (behind != UINT64_MAX && (best < 0 || replica->peers[i].slow < replica->peers[best].slow ||
                                     (replica->peers[i].slow == replica->peers[best].slow && behind < *lag))) {
            *lag = behind;
            best = i;
        }
    }
    return best;
}

int replica_transfer(struct replica *replica, const char *to_id, struct error *error)
{
    int place = -1;

    if (!raft_driver_leads(&replica->driver))
        return error_set(error, ERROR_NOT_LEADER, "%s", replica_why_not(replica));
    if (raft_transferee(&replica->driver.raft) != 0)
        return error_set(error, ERROR_BUSY, "leadership is being handed over already");
    if (to_id != NULL) {
        place = replica_place_of(replica, slice_of_text(to_id));
        if (place < 0)
            return error_set(error, ERROR_NOT_FOUND, "%s is no member of group %s", to_id, replica->options.group);
        if ((uint64_t)place + 1 == replica->id)
            return error_set(error, ERROR_EXISTS, "%s leads already", to_id);
        uint64_t lag = lag_of(replica, place);
        if (lag == UINT64_MAX)
            return error_set(error, ERROR_BUSY, "%s cannot lead now: it is down, catches up, has no vote or no room", to_id);
        if (lag >= REPLICA_TRANSFER_LAG_MAX)
            return error_set(error, ERROR_BUSY, "%s is %llu entries behind, fewer than %u are needed", to_id, (unsigned long long)lag,
                             REPLICA_TRANSFER_LAG_MAX);
    } else {
        uint64_t lag;
        place = replica_successor(replica, &lag);
        if (place < 0)
            return error_set(error, ERROR_NOT_FOUND, "no other member can lead now");
    }
    if (raft_driver_transfer(&replica->driver, (uint64_t)place + 1) != 0)
        return error_set(error, ERROR_BUSY, "leadership cannot be handed to %s now", replica->members[place].id);
    return 0;
}

void replica_prefer_leader(struct replica *replica, uint64_t now)
{
    struct slice list = slice_of_text(replica->options.preferred_leaders == NULL ? "" : replica->options.preferred_leaders);
    struct cursor cursor = cursor_of(list);
    int best = -1;

    if (list.size == 0)
        return;
    if (!replica->accepting) {
        memset(replica->preferred_since_us, 0, sizeof replica->preferred_since_us);
        return;
    }
    /* The first of the list that is able; members behind ourselves in it are no better than we are. */
    while (best < 0 && cursor_left(&cursor) > 0) {
        const uint8_t *end = memchr(cursor.at, ';', cursor_left(&cursor));
        struct slice id = cursor_slice(&cursor, end == NULL ? cursor_left(&cursor) : (size_t)(end - cursor.at));
        if (end != NULL)
            cursor_slice(&cursor, 1);
        int place = replica_place_of(replica, id);
        if (place < 0)
            continue;
        if ((uint64_t)place + 1 == replica->id)
            break;
        if (replica->peers[place].slow || lag_of(replica, place) >= REPLICA_TRANSFER_LAG_MAX)
            replica->preferred_since_us[place] = 0;
        else if (replica->preferred_since_us[place] == 0)
            replica->preferred_since_us[place] = now;
        else if (now >= replica->preferred_since_us[place] + REPLICA_PREFERRED_STEADY_MS * 1000ull)
            best = place;
    }
    if (best < 0 || now < replica->preferred_due_us || raft_transferee(&replica->driver.raft) != 0)
        return;
    replica->preferred_due_us = now + REPLICA_PREFERRED_RETRY_MS * 1000ull;
    LOG_INFO("leadership is handed to %s, a preferred leader", replica->members[best].id);
    raft_driver_transfer(&replica->driver, (uint64_t)best + 1);
}

/* A leader without room is no use while another member has some; and a follower that lost what it had acknowledged is repaired only by a leader
 * that does not remember that acknowledgement. */
void replica_hand_over_when_useful(struct replica *replica, uint64_t now)
{
    uint64_t stuck = raft_driver_stuck_follower(&replica->driver);
    bool full = replica_is_full(replica), high = !full && replica->driver.disk_high;
    uint64_t best = 0;
    raft_index best_match = 0;

    /* A stuck follower can keep a leader from accepting: nothing commits, so nothing is applied. */
    if (now < replica->hand_over_due_us || !(stuck != 0 ? raft_transferee(&replica->driver.raft) == 0 : (full || high) && replica->accepting))
        return;
    replica->hand_over_due_us = now + REPLICA_HAND_OVER_MS * 1000ull;
    for (int i = 0; i < replica->member_count; i++) {
        raft_index match;
        if (can_lead(replica, i, &match) && !(high && stuck == 0 && replica->peers[i].disk_high) && (uint64_t)i + 1 != stuck && match >= best_match) {
            best = (uint64_t)i + 1;
            best_match = match;
        }
    }
    if (best == 0 && stuck != 0) {
        /* Nobody to hand over to: what we remember of it goes with our term, and another election begins anew. */
        LOG_WARN("member %s lost what it had acknowledged: another election", replica->members[stuck - 1].id);
        raft_driver_step_down(&replica->driver, stuck, raft_current_term(&replica->driver.raft) + 1);
    } else if (best != 0 && raft_driver_transfer(&replica->driver, best) == 0)
        LOG_WARN("%s: leadership is handed to %s", stuck == 0 ? "no room here" : "a follower lost what it had acknowledged", replica->members[best - 1].id);
}
