/* What a broker stores besides the log: consume queues, the key index, and how both are read.
 *
 * Follows org.apache.rocketmq.store.DefaultMessageStore; the log itself belongs to dledger and is read through a log_view. Only committed
 * entries get here, so nothing that this module answers is ever ahead of the commit position. Loop thread only, except where noted.
 */
#ifndef LEDGERMQ_STORE_MESSAGE_STORE_H
#define LEDGERMQ_STORE_MESSAGE_STORE_H

#include "proto/message.h"
#include "store/consume_queue.h"
#include "store/log_view.h"
#include "store/queue_sum.h"

#define GET_MESSAGE_BATCH_MAX 64

struct index_service; /* store/index_service.h */
struct index_compare; /* store/index_compare.h */
struct queue_table;   /* message_store.c */

struct message_store_config {
    const char *root; /* storePathRootDir: consumequeue/ and index/ are made in it */
    uint64_t consume_queue_file_size;  /* bytes, rounded up to a multiple of 20; default 6000000 */
    uint32_t index_slots;              /* default 5000000 */
    uint32_t index_entries;            /* default 20000000 */
    bool index_enable;                 /* messageIndexEnable */
    const int64_t *delay_level_ms;     /* [1..delay_levels], for the tags code of SCHEDULE_TOPIC_XXXX; borrowed */
    int delay_levels;
    uint32_t transfer_bytes_max;  /* maxTransferBytesOnMessageInMemory 262144 */
    uint32_t transfer_count_max;  /* maxTransferCountOnMessageInMemory 32 */
    uint64_t hot_bytes; /* so much in front of the log's end is taken to be in memory; 0 = all is. Reading what is behind it would make the loop wait */
};

/* A unit that a reader found wrong. One at a time: the next one is met when this one is right again. */
struct message_store_doubt {
    bool any;
    bool heeded;      /* the log is being read from position on */
    bool everything;  /* ... which is where the log begins */
    uint64_t missing_until_us; /* the log was read and has no record of it: it is not read again for that before this time; 0 = it is being read */
    int64_t position; /* of the log: its record lies behind it */
    char topic[256];
    int32_t queue_id;
    int64_t queue_offset;
};

static inline bool message_store_doubt_is_searched(const struct message_store_doubt *doubt)
{
    return doubt->any && doubt->missing_until_us == 0;
}

struct message_store {
    struct env *env;
    struct message_store_config config;
    struct log_view log;
    struct index_service *index; /* NULL: messageIndexEnable=false */
    struct index_compare *index_compare; /* as index; for whoever reads through the log */
    struct queue_table *queues; /* private */
    struct queue_sums sums;     /* private */
    int64_t dispatched_offset; /* all committed entries before this position have been dispatched */
    int64_t recovered_position;
    bool from_beginning; /* private: it was where the log began, so that the first record of each queue that is dispatched says where that begins */
    bool lost_ends; /* message_store_recover() found that queues did not hold what they held */
    /* Set by the caller before message_store_recover(): what a sync of an earlier run made durable (the checkpoint's synced_dispatched_position).
     * Units behind it count as not synced, whoever wrote them. 0: nothing is known, the first sync covers everything. */
    int64_t synced_position;
    /* Set by the caller before message_store_recover(): records that queues know may be gone for good (class A after a power cut). */
    bool records_lost;
    /* Set by the caller before message_store_recover(), NULL: nobody asks. Called before anything in front of the position given there is cut or made
     * anew: when it returns 0, stable storage must say of no later position than this one that queues and index reach it, for the process may die
     * before they do again, and what it leaves looks sound. Maybe more than once, each time with an earlier position. */
    int (*before_cut)(void *context, int64_t position, struct error *error);
    void *before_cut_context;
    int64_t earliest_time_ms; /* of earliest_min_offset, -1 = not looked up; private */
    int64_t earliest_min_offset;
    struct message_store_doubt doubt; /* the log is to be compared with the queues now (store/compare.h) */
    uint64_t mended_units; /* in this run */
    uint64_t walks, walk; /* private: of store/compare.h: so many were begun; the one that goes on, 0 = none does */
    bool files_to_go; /* queues' minimums were found to be further than their units could tell: the caller may message_store_trim() once more */
    /* DLedger index of the entry that made the topic that there is now: what was sent to one of that name before belongs to none. NULL: never was another. */
    uint64_t (*topic_since)(void *context, struct slice topic);
    void *topic_since_context;
    bool sync_broken; /* a sync failed: nothing is promised durable any more in this run */
};

/* Opens what is on disk. The caller then says where valid data ends: message_store_recover(). */
int message_store_open(struct message_store *store, struct env *env, const struct message_store_config *config,
                       const struct log_view *log, struct error *error);
/* Cuts queues and index back to `position`, or further (everything at or behind it will be dispatched again). Sets min offsets from the log. */
int message_store_recover(struct message_store *store, int64_t position, struct error *error);
/* Where dispatching must start again after message_store_recover() so that queues and index are complete: the position given there, or an earlier
 * one (the start of an entry, or the begin of the log) when something on disk was lost or damaged. Nothing at or behind it is in the queues. */
static inline int64_t message_store_recovered_position(const struct message_store *store)
{
    return store->recovered_position;
}
/* Right after message_store_sync() the index is also marked as whole, which spares the next start a rebuild of its slots when the machine stops
 * meanwhile. Without a sync before, files stay as they are. No sync job may be out. */
void message_store_close(struct message_store *store);

/* ---- reput: called by dledger for each committed entry of kind message, in log order ---- */

/* Adds the unit and the index entries of one record (record.size >= total size; a trailer may follow). Fills dispatch (slices into record).
 * The unit's queue offset must equal the queue's maximum: a difference is ERROR_DAMAGED (the caller stops the node); never skips or shifts.
 * Repeating what was dispatched before is fine: a unit that is there already, or whose topic was deleted and made anew since (seen only before
 * the recovered position), is left as it is.
 * PREPARED and ROLLBACK records get no unit. ERROR_NO_SPACE: nothing was added, call again later. */
int message_store_dispatch(struct message_store *store, struct slice record, struct message_dispatch *dispatch);
/* Makes queues and index durable up to what was dispatched. Blocks: for a clean stop, before message_store_close(). 0, ERROR_IO (final: see
 * sync_broken), ERROR_NO_MEMORY. */
int message_store_sync(struct message_store *store);

/* The same in three steps, for a running node: begin (loop) notes what is dirty, run (pool) makes it durable while the loop goes on with
 * everything, dispatching included, end (loop) gives the memory back. What was dispatched before begin is durable when job->result is 0. One
 * job at a time. */
struct message_store_sync_job {
    struct env *env;
    const char *root; /* on the file system where all of it lies */
    struct message_store_sync_item *items;
    size_t count, capacity;
    char **dirs; /* directories with new or removed names */
    size_t dir_count, dir_capacity;
    int64_t dispatched_offset; /* at begin */
    struct queue_sum sum;      /* then */
    int sum_result;            /* 0 or -errno */
    int result; /* 0 or ERROR_IO, set by run */
};
/* 0, ERROR_NO_MEMORY, ERROR_IO (an earlier sync failed). After a failure there is nothing to run or end. */
int message_store_sync_begin(struct message_store *store, struct message_store_sync_job *job);
void message_store_sync_run(struct message_store_sync_job *job);
void message_store_sync_end(struct message_store *store, struct message_store_sync_job *job);
/* With a checkpoint without a sync: what all queues hold together is noted (loop), then written (pool), for a start on the same boot to compare with what they
 * hold then. After a sync that is done already. */
void message_store_sum_begin(struct message_store *store, struct message_store_sync_job *job);
void message_store_sum_run(struct message_store_sync_job *job);
/* Removes all queues of a topic and their files (deletion of a topic, where reput meets its record). */
int message_store_delete_topic(struct message_store *store, struct slice topic);
/* Log files before physical offset are gone: advances queue minimums, drops files. */
int message_store_trim(struct message_store *store, int64_t physical_offset);
/* Messages of one topic before physical offset have expired: advances its queues' minimums. Files go with the next message_store_trim(); *emptied: some could. */
int message_store_trim_topic(struct message_store *store, struct slice topic, int64_t physical_offset, bool *emptied);
/* A queue whose messages are all gone reached max_offset: makes it so again where it was lost. Nothing when it is there. 0, ERROR_NO_SPACE,
 * ERROR_INVALID, ERROR_IO, ERROR_NO_MEMORY. */
int message_store_reached(struct message_store *store, struct slice topic, int32_t queue_id, int64_t max_offset);
/* Messages that got no entry in the key index since the start, as its files could not be made. */
uint64_t message_store_not_indexed(const struct message_store *store);

/* ---- queues ---- */

/* NULL when it does not exist and create is false, or when it cannot be made (error filled). Pointers stay valid until the topic is deleted. */
struct consume_queue *message_store_queue(struct message_store *store, struct slice topic, int32_t queue_id, bool create,
                                          struct error *error);
/* Leadership begins: sets every queue's append_offset to its max_offset. */
void message_store_reset_append_offsets(struct message_store *store);
/* Size of a list of all queues: their topics, and `each` bytes more for every queue. */
uint64_t message_store_list_size(const struct message_store *store, uint32_t each);
void message_store_each_queue(struct message_store *store, void (*each)(void *argument, struct consume_queue *queue), void *argument);

/* ---- reading (spec: store.md 5.1) ---- */

enum get_message_status {
    GET_MESSAGE_FOUND,
    GET_MESSAGE_NO_MATCHED_MESSAGE,
    GET_MESSAGE_WAS_REMOVING,
    GET_MESSAGE_OFFSET_FOUND_NULL,
    GET_MESSAGE_OFFSET_OVERFLOW_BADLY,
    GET_MESSAGE_OFFSET_OVERFLOW_ONE,
    GET_MESSAGE_OFFSET_TOO_SMALL,
    GET_MESSAGE_NO_MATCHED_LOGIC_QUEUE,
    GET_MESSAGE_NO_MESSAGE_IN_QUEUE,
    GET_MESSAGE_DAMAGED, /* ours: the message asked for cannot be read now */
};
/* RocketMQ's name: "FOUND", "OFFSET_OVERFLOW_ONE", ... */
const char *get_message_status_name(enum get_message_status status);

/* True = deliver. match_tags sees the unit's tags code, match_record the record's bytes; either may be NULL. */
struct message_filter {
    void *context;
    bool (*match_tags)(void *context, int64_t tags_code);
    bool (*match_record)(void *context, struct slice record);
    uint32_t records_max; /* that are read in one call, for match_record or to believe a unit, 0 = no such bound: where reading one may wait for the disk */
};

struct get_message_result {
    enum get_message_status status;
    int64_t next_begin_offset;
    int64_t min_offset;
    int64_t max_offset;
    uint32_t count;
    uint64_t total_size;
    int64_t last_physical_offset; /* last unit looked at, for fall-behind figures */
    struct {
        int64_t physical_offset;
        int64_t queue_offset;
        uint32_t size;
    } items[GET_MESSAGE_BATCH_MAX];
};

/* Finds which records to send. Those in memory (hot_bytes) are the messages asked for; of older ones only their units say so: whoever has read them must ask
 * message_record_is(), and message_store_distrust() what is not. Reads of records no more than their heads, but for match_record and for units that
 * were on the disk before this process and have not been compared with the log. filter may be NULL. Never creates a queue. */
void message_store_get_message(struct message_store *store, struct slice topic, int32_t queue_id, int64_t offset, int32_t max_count,
                               const struct message_filter *filter, struct get_message_result *result);

/* Physical offset of a queue's first message, INT64_MAX = there is none; -1 = it cannot be told now: its unit is wrong, or has to be compared with its record
 * first, for which `look` allows to wait for the disk. */
int64_t message_store_first_physical(struct message_store *store, struct consume_queue *queue, bool look);

/* The unit of that message is wrong, or cannot be believed: said once, and mended soon. */
void message_store_distrust(struct message_store *store, struct slice topic, int32_t queue_id, int64_t offset);
/* consume_queue_get() of what is right for sure: a unit that may say anything is compared with its record first, which blocks on a cold page. False also
 * when it is wrong. */
bool message_store_unit(struct message_store *store, struct consume_queue *queue, int64_t offset, struct consume_queue_unit *unit);
/* Nobody has to look any more for a message that is no longer retained. After minimums moved. */
void message_store_drop_doubt(struct message_store *store);
/* The same for who has read the record where the unit says, whatever is there: is it that message's, and the unit all right? */
bool message_store_unit_is_of(struct message_store *store, struct consume_queue *queue, int64_t offset, struct slice record);
/* Does it name a record of that message? Blocks on a cold page. */
bool message_store_unit_names(const struct message_store *store, const struct consume_queue *queue, int64_t offset, const struct consume_queue_unit *unit);
/* Is it the record's? */
bool message_store_unit_fits(const struct message_store *store, const struct message_dispatch *dispatch, const struct consume_queue_unit *unit);
/* The unit that a record gets. */
struct consume_queue_unit message_store_unit_of(const struct message_store *store, const struct message_dispatch *dispatch);

/* Pages of a queue's file, pinned. */
struct message_store_pages {
    struct mapped_file *file;
    uint8_t *address;
    size_t size;
};
/* True: message_store_get_message() from offset on would wait for the disk. *pages is what to read before, any thread: message_store_read_pages(),
 * then on the loop message_store_release_pages(). */
bool message_store_is_cold(struct message_store *store, struct slice topic, int32_t queue_id, int64_t offset, struct message_store_pages *pages);
void message_store_read_pages(const struct message_store_pages *pages);
void message_store_release_pages(struct message_store_pages *pages);

int64_t message_store_min_offset(struct message_store *store, struct slice topic, int32_t queue_id); /* 0 when unknown */
int64_t message_store_max_offset(struct message_store *store, struct slice topic, int32_t queue_id); /* 0 when unknown */
/* Store time of the record at a queue offset, -1 when there is none. */
int64_t message_store_store_time(struct message_store *store, struct slice topic, int32_t queue_id, int64_t offset);
/* SEARCH_OFFSET_BY_TIMESTAMP by 4.9's rule (nearest neighbour, ties left; beyond the last: max - 1). */
int64_t message_store_offset_by_time(struct message_store *store, struct slice topic, int32_t queue_id, int64_t timestamp_ms);
/* Store time of the oldest retained message, -1 when the log is empty. */
int64_t message_store_earliest_time(struct message_store *store);
/* Store time of the record at a physical offset, -1 when it cannot be read. */
int64_t message_store_record_time(struct message_store *store, int64_t physical_offset);
/* Size of the message record at a physical offset (0 when there is no record that starts there or it is not committed). Reads the header only. */
uint32_t message_store_record_size(struct message_store *store, int64_t physical_offset);

/* QUERY_MESSAGE: ascending physical offsets of at most max_count records whose UNIQ_KEY or KEYS really hold `key`, between the two store times.
 * Returns how many. last_update_*: of the newest index file. */
uint32_t message_store_query(struct message_store *store, struct slice topic, struct slice key, uint32_t max_count, int64_t begin_ms,
                             int64_t end_ms, int64_t *physical_offsets, int64_t *last_update_timestamp, int64_t *last_update_offset);

#endif
