/* Counters of the traffic, and the runtime table of request 28.
 *
 * Follows org.apache.rocketmq.store.StoreStatsService, broker.stats.BrokerStats and AdminBrokerProcessor#prepareRuntimeInfo (spec: remoting.md 4.7).
 * Loop thread only; counting is an addition, never a call into the clock.
 *
 * Keys of ours in the runtime table, read by `mqadmin leader`:
 *     raftRole             LEADER, FOLLOWER, CANDIDATE, UNKNOWN
 *     raftAccepting        true for a leader that takes appends
 *     raftTerm             number
 *     raftLeader           id of the leader ("n0"), empty while none is known
 *     raftSelf             id of this node
 *     raftGroup            dLegerGroup
 *     raftLastIndex, raftCommitIndex, raftAppliedIndex   DLedger indexes, -1 = none
 *     raftCommittedPosition, raftBeginPosition           bytes
 *     raftTrimPosition     where the log begins for readers; raftBeginPosition: the first byte that is on this disk
 *     retentionLooks, segmentsDeleted, topicExpiries, messagesDeletedUnread, retentionHeldBack, diskLevel   what retention did and why not more
 *     raftBulkFetch        how much of a log that is being fetched is there, or none; raftBulkFetch_<id>: what the leader knows of a member's
 *     raftDurability       A or B
 *     raftUpSince          ms
 *     raftFdatasyncCount   calls since the start
 *     raftTurnMaxMicros    longest turn of the loop, callbacks of sockets and timers too
 *     raftFailed, raftDiskFull, raftDiskSlow   true/false; slow: it handed leadership over for that reason lately
 *     raftForcedRecoveries number: how often the group was made anew with mqbroker --force-new-group
 *     raftMember_<id>      address,role,matchIndex,lag,connected,brokerAddress  (role: LEADER, FOLLOWER, UNKNOWN as this node sees it; matchIndex and
 *                          lag -1 where this node cannot know: only a leader does, and everyone of itself)
 *     coldReads, coldQueueReads    jobs that read old records, or pages of a queue that had left memory, on the pool
 *     connectionCount, heldPulls, parkedRequests, pendingSends, limit_<name>   fill and how often a bound was hit
 */
#ifndef LEDGERMQ_BROKER_BROKER_STATS_H
#define LEDGERMQ_BROKER_BROKER_STATS_H

#include <stdbool.h>
#include <stdint.h>

struct broker;
struct broker_stats;
struct stats_item;

enum broker_limit_counter {
    LIMIT_HIT_PENDING_SENDS,
    LIMIT_HIT_LOG_BUSY,      /* dledger refused: too much in flight */
    LIMIT_HIT_HELD_PULLS,
    LIMIT_HIT_COLD_READS,
    LIMIT_HIT_PARKED,
    LIMIT_HIT_FORWARDED,
    LIMIT_HIT_CONNECTION_SENDS,
    LIMIT_HIT_MEMORY,
    LIMIT_HIT_DISK, /* above diskSpaceWarningLevelRatio */
    LIMIT_HIT_HALVES,
    LIMIT_HIT_TRANSACTION_ENDS,
    LIMIT_HIT_RESUMED_CHECKS,
    LIMIT_HIT_SQL_BYTES,
    LIMIT_HIT_METADATA,      /* records that are not committed yet */
    LIMIT_HIT_TOPICS,
    LIMIT_HIT_GROUPS,
    LIMIT_HIT_OFFSETS,
    LIMIT_HIT_QUEUE_LOCKS,
    LIMIT_HIT_CLIENTS,       /* a heart-beat found no room for its client */
    LIMIT_HIT_CLIENT_CALLS,
    LIMIT_HIT_COUNT
};

struct broker_stats_sink {
    void *context;
    void (*put)(void *context, const char *key, const char *value);
};

struct broker_stats *broker_stats_new(struct broker *broker); /* NULL: no memory */
/* A send was answered with success (messages of it, stored bytes, microseconds from its frame to its answer). */
void broker_stats_put(struct broker_stats *stats, uint32_t messages, uint64_t bytes, uint64_t microseconds);
/* The same, counted also for its topic (item: STATS_TOPIC_PUT, may be NULL) and for the broker; one that took over 500 ms is logged. */
void broker_stats_put_topic(struct broker_stats *stats, struct stats_item *item, uint32_t messages, uint64_t bytes, uint64_t microseconds);
void broker_stats_put_failed(struct broker_stats *stats);
/* A pull was looked up: found or not, how many messages, microseconds. */
void broker_stats_get(struct broker_stats *stats, bool found, uint32_t messages, uint64_t bytes, uint64_t microseconds);
void broker_stats_limit_hit(struct broker_stats *stats, enum broker_limit_counter which);
/* The same; returns ERROR_BUSY. */
int broker_stats_busy(struct broker_stats *stats, enum broker_limit_counter which);
void broker_stats_runtime_table(struct broker *broker, const struct broker_stats_sink *sink);
void broker_stats_close(struct broker_stats *stats); /* timer is closed by the loop later; free after the loop ran */
void broker_stats_free(struct broker_stats *stats);

#endif
