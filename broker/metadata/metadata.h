/* The one door through which topics, groups, offsets, queue locks, delay and transaction progress change: records in the log, applied in its order.
 *
 * metadata_submit puts a record on its way (leader); metadata_apply is dledger's callback on every node and uses no clock, no chance and no node id, so
 * that equal logs give equal tables. The snapshot is the authority at start; config/ *.json are exports for people and tools. Loop thread only.
 */
#ifndef LEDGERMQ_BROKER_METADATA_METADATA_H
#define LEDGERMQ_BROKER_METADATA_METADATA_H

#include "broker/metadata/half_set.h"
#include "proto/buffer.h"
#include "proto/error.h"
#include "proto/metadata.pb-c.h"

struct append_entry_request;
struct broker;
struct message_dispatch;
struct subscription_group_config;
struct topic_config;

#define METADATA_RECORD_MAX 1048576u       /* bytes of one record */
#define METADATA_IN_FLIGHT_MAX 16384u      /* records submitted and not yet done */
#define METADATA_DELAY_LEVELS_MAX 64
#define METADATA_EXPORT_MS 5000            /* config/ *.json are written at most this often */

struct metadata {
    int64_t delay_offset[METADATA_DELAY_LEVELS_MAX + 1]; /* [level]: next offset of its schedule queue; -1 = nothing delivered yet */
    struct half_set halves;                              /* transactions */
    uint64_t applied_index;                              /* of the last record in the tables */
    uint64_t delay_changes;
    uint32_t in_flight;
    struct metadata_export *export_state; /* private */
    uint8_t *scratch; /* private: a record is packed here */
    size_t scratch_size;

    /* Seam for unit tests: dledger_commit_log_append_copy and dledger_commit_log_accepting of broker->log in the real program. */
    int (*append)(struct broker *broker, struct slice record, struct append_entry_request *request);
    bool (*leads)(const struct broker *broker);
};

/* Sets broker->metadata. Opens the tables (topics, groups, offsets, locks) too; needs broker->config, env and loop, not yet the log. */
int metadata_open(struct broker *broker, struct error *error);
/* Starts the timers: gathered offsets, exports. Needs the log. */
int metadata_start(struct broker *broker, struct error *error);
/* Writes the exports a last time (blocking) and closes all tables; the timers are closed from the loop after it. */
void metadata_close(struct broker *broker);

typedef void (*metadata_done)(struct broker *broker, void *context, int code);
/* Appends the record; time_ms is stamped when 0. 0: `done` (may be NULL) is called once when it is committed and applied (code 0) or has failed, never
 * inside this call. Else ERROR_NOT_LEADER, ERROR_BUSY, ERROR_NO_SPACE, ERROR_TOO_LARGE, ...: nothing was appended. */
int metadata_submit(struct broker *broker, Ledgermq__MetadataRecord *record, metadata_done done, void *context);

/* Fills a protobuf message from settings. name: NUL-terminated, borrowed. */
void metadata_topic_message(const struct topic_config *config, const char *name, Ledgermq__TopicConfig *message);
void metadata_group_message(const struct subscription_group_config *config, const char *name, Ledgermq__SubscriptionGroup *message);

/* dledger's callbacks: the context is struct broker. */
void metadata_apply(struct broker *broker, uint64_t index, struct slice record, bool replay);
/* Trailer (Consumed) of a committed message entry; brokercore calls it from apply_message. Does nothing when empty or replayed. */
void metadata_apply_consumed(struct broker *broker, struct slice trailer, bool replay);
/* A committed message of RMQ_SYS_TRANS_HALF_TOPIC. */
void metadata_apply_half(struct broker *broker, const struct message_dispatch *dispatch, bool replay);
int metadata_snapshot(struct broker *broker, uint64_t index, struct buffer *out);
int metadata_restore(struct broker *broker, struct slice snapshot);
/* Queues were opened or made anew: the minimums of topics whose messages have expired are what they were. */
void metadata_trim_expired(struct broker *broker);

/* This node leads and accepts records. */
bool metadata_leads(const struct broker *broker);

/* Next offset of the schedule queue of a level (1-based) to be delivered; 0 when nothing was. */
int64_t metadata_delay_offset(const struct metadata *metadata, int level);

#endif
