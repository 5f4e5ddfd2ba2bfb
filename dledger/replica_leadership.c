/* Who leads: a transfer that somebody asked for, and preferred leaders, to whom a leader hands over once they have kept up for a while. */
#include "dledger/replica_internal.h"

#include <stdio.h>

#include "store/log_sink.h"

uint64_t replica_lag_of(struct replica *replica, int place)
{
    const struct replica_peer *peer = &replica->peers[place];
    raft_index last = raft_driver_last(&replica->driver);
    raft_index match;

    if (!peer->connected || !peer->hello.started || peer->full || peer->disk_high || !raft_driver_is_voter(&replica->driver, (uint64_t)place + 1) ||
        raft_match_index(&replica->driver.raft, (raft_id)place + 1, &match) != 0)
        return UINT64_MAX;
    return match > last ? 0 : last - match;
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
        uint64_t lag = replica_lag_of(replica, place);
        if (lag == UINT64_MAX)
            return error_set(error, ERROR_BUSY, "%s cannot lead now: it is down, catches up, has no vote or no room", to_id);
        if (lag >= REPLICA_TRANSFER_LAG_MAX)
            return error_set(error, ERROR_BUSY, "%s is %llu entries behind, fewer than %u are needed", to_id, (unsigned long long)lag,
                             REPLICA_TRANSFER_LAG_MAX);
    } else {
        uint64_t best = UINT64_MAX;
        for (int i = 0; i < replica->member_count; i++) {
            uint64_t lag = (uint64_t)i + 1 == replica->id ? UINT64_MAX : replica_lag_of(replica, i);
            if (lag != UINT64_MAX && (place < 0 || replica->peers[i].slow < replica->peers[place].slow ||
                                      (replica->peers[i].slow == replica->peers[place].slow && lag < best))) {
                best = lag;
                place = i;
            }
        }
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
        if (replica->peers[place].slow || replica_lag_of(replica, place) >= REPLICA_TRANSFER_LAG_MAX)
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
