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

/* What is refused by a bound: its counter, and what the client is told ahead of the counter's name. To add one: a row here and in docs/operations.md, and a
 * test that drives it (tests/unit/limits_named). */
#define BROKER_LIMITS(X)                                                                       \
    X(PENDING_SENDS, "limit_pendingSends", "too many messages wait for the quorum")            \
    X(CONNECTION_SENDS, "limit_connectionSends", "too many messages of this connection wait for the quorum") \
    X(LOG_BUSY, "limit_logBusy", "too many messages wait to be submitted to the log")          \
    X(HELD_PULLS, "limit_heldPulls", "too many pulls wait for messages")                       \
    X(COLD_READS, "limit_coldReads", "too many old messages are being read from the disk")     \
    X(PARKED, "limit_parkedRequests", "too many requests wait for a leader")                   \
    X(FORWARDED, "limit_forwardedRequests", "too many requests are on their way to the leader") \
    X(MEMORY, "limit_bufferMemory", "buffers of clients hold more than bufferMemoryMax")       \
    X(DISK, "limit_diskSpace", "the disk is used above diskSpaceWarningLevelRatio")            \
    X(HALVES, "limit_halfMessages", "too many half messages wait for a decision")              \
    X(TRANSACTION_ENDS, "limit_transactionEnds", "too many transactions are being ended")      \
    X(RESUMED_CHECKS, "limit_resumedChecks", "too many transactions are being resumed")        \
    X(SQL_BYTES, "limit_sqlBytes", "compiled SQL92 expressions take too much memory")          \
    X(METADATA, "limit_metadataRecords", "too many changes of tables are not committed yet")   \
    X(TOPICS, "limit_topics", "this broker holds as many topics as it takes")                  \
    X(GROUPS, "limit_groups", "this broker holds as many groups as it takes")                  \
    X(OFFSETS, "limit_offsets", "this broker holds as many consumer offsets as it takes")      \
    X(QUEUE_LOCKS, "limit_queueLocks", "this broker holds as many queue locks as it takes")    \
    X(CLIENTS, "limit_clients", "this broker holds as many clients and subscriptions as it takes") \
    X(CLIENT_CALLS, "limit_clientCalls", "too many requests to clients wait for their answers")

enum broker_limit {
#define X(name, key, text) LIMIT_HIT_##name,
    BROKER_LIMITS(X)
#undef X
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
/* Counts a refusal and gives the remark of its answer, which names the limit. stats may be NULL: tables are tested without the rest of a broker. */
const char *broker_stats_refuse(struct broker_stats *stats, enum broker_limit which);
/* The same for who does not answer himself: returns ERROR_BUSY. */
int broker_stats_busy(struct broker_stats *stats, enum broker_limit which);
/* The remark for an ERROR_BUSY: it is answered in the call that counted it, so the limit that was met last is its limit. */
const char *broker_stats_busy_remark(const struct broker_stats *stats);
void broker_stats_runtime_table(struct broker *broker, const struct broker_stats_sink *sink);
void broker_stats_close(struct broker_stats *stats); /* timer is closed by the loop later; free after the loop ran */
void broker_stats_free(struct broker_stats *stats);

#endif
