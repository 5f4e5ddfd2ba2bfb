/* libledgermq's consumers that share a topic's queues among the members of a group. Included by ledgermq.h; not to be
 * included alone.
 *
 * Push consumer: the library reads ahead and calls your function with each message.
 *
 *     static int on_messages(void *context, const struct ledgermq_stored_message *messages, size_t count,
 *                            struct ledgermq_consume_context *how)
 *     {
 *         for (size_t i = 0; i < count; i++)
 *             printf("%.*s\n", (int)messages[i].body_size, (const char *)messages[i].body);
 *         return LEDGERMQ_CONSUME_SUCCESS;
 *     }
 *
 *     struct ledgermq_push_consumer_options options;
 *     struct ledgermq_push_consumer *consumer;
 *     ledgermq_push_consumer_options_init(&options);
 *     options.group = "printers";
 *     options.consume = on_messages;
 *     if (ledgermq_push_consumer_new(client, &options, &consumer, &error) != LEDGERMQ_OK ||
 *         ledgermq_push_consumer_subscribe(consumer, "orders", "*", &error) != LEDGERMQ_OK ||
 *         ledgermq_push_consumer_start(consumer, &error) != LEDGERMQ_OK)
 *         errx(1, "%s", error.message);
 *     ...
 *     ledgermq_push_consumer_free(consumer);
 *
 * Lite pull consumer: the same, but you ask for messages with ledgermq_lite_pull_poll().
 *
 * Threads. All of a client's reading, rebalancing, locking and committing is done by the client's one background
 * thread; there is no thread per queue. A push consumer has a pool of consume_threads threads of its own that do nothing
 * but call your function. It may block, and may call every function of this library but the _free functions of its own
 * consumer and client. Concurrent mode: calls run side by side, also for messages of one queue. Orderly mode: for one
 * queue at most one call runs at a time, over all members of the group; different queues run side by side. A lite pull
 * consumer has no thread: poll, seek, pause and commit may be called from any thread but the library's own background
 * thread (the one of send call backs), also several at a time.
 *
 * Delivery is at least once. A message is taken as consumed when your function returned success (push), or when the next
 * poll begins or a commit is called after the poll that returned it (lite pull). After a crash, a lost connection or a
 * change of members some messages come again.
 *
 * Time limits that other members see: a member that leaves by _free gives up its queues at once. One that dies keeps the
 * others waiting until brokers notice its closed connections (at once), and in orderly mode until its locks end (30 s
 * after their last renewal).
 */
#ifndef LEDGERMQ_CONSUMER_H
#define LEDGERMQ_CONSUMER_H

#ifdef __cplusplus
extern "C" {
#endif

enum ledgermq_message_model {
    LEDGERMQ_CLUSTERING,   /* the members of a group share the queues */
    LEDGERMQ_BROADCASTING, /* each member reads all; offsets are kept in files, nothing is retried */
};

/* Where a group begins in a queue it has no offset for. RocketMQ's brokers let a new group begin at 0 in a queue that
 * is still young enough to hold its first message, whatever is said here. */
enum ledgermq_consume_from {
    LEDGERMQ_FROM_LAST_OFFSET,  /* behind the last message there is */
    LEDGERMQ_FROM_FIRST_OFFSET, /* at the first one */
    LEDGERMQ_FROM_TIMESTAMP,    /* at the one stored nearest to consume_timestamp_ms */
};

/* How queues are shared. All members of a group must use the same; RocketMQ's clients have them under these names. */
enum ledgermq_allocate {
    LEDGERMQ_ALLOCATE_AVERAGELY, /* neighbouring queues: RocketMQ's default */
    LEDGERMQ_ALLOCATE_AVERAGELY_BY_CIRCLE,
    LEDGERMQ_ALLOCATE_CONSISTENT_HASH, /* few queues move when members come and go */
};

/* --------------------------------------------------------- push consumer ---- */

struct ledgermq_push_consumer;

enum ledgermq_consume_status {
    LEDGERMQ_CONSUME_SUCCESS,
    LEDGERMQ_CONSUME_LATER, /* concurrent: sent back to the broker, which delivers it again after a growing delay and
                               gives it up to the dead letter topic %DLQ%group when max_reconsume_times is reached.
                               Orderly: the queue waits for suspend_ms, then the same messages come again. Broadcast:
                               dropped. */
};

/* What a call of the consume function may say beside its return value. */
struct ledgermq_consume_context {
    const struct ledgermq_queue *queue; /* where the messages come from */
    int delay_level; /* of messages to be consumed later: 0 the broker decides (grows with each try), 1..18 that level,
                        -1 at once to the dead letter topic. Begins as 0. Concurrent mode only. */
    size_t ack_count; /* how many of the messages, from the first on, are consumed when SUCCESS is returned; the others
                         are treated as LATER. Begins as count. Concurrent mode only. */
    int suspend_ms; /* how long the queue waits after LATER, 10..30000. Begins as the option of that name. Orderly mode
                       only. */
};

/* Called on a thread of the consumer's pool. messages are valid until it returns; 1..consume_batch of one queue, in its
 * order. A message on its way again has reconsume_times above 0 and its original topic. */
typedef int (*ledgermq_consume)(void *context, const struct ledgermq_stored_message *messages, size_t count,
                                struct ledgermq_consume_context *how);

struct ledgermq_push_consumer_options {
    const char *group;        /* must be set */
    ledgermq_consume consume; /* must be set */
    void *context;
    bool orderly;                 /* false: concurrent */
    int message_model;            /* enum ledgermq_message_model: CLUSTERING */
    int consume_from;             /* enum ledgermq_consume_from: LAST_OFFSET */
    int64_t consume_timestamp_ms; /* wall clock; 0: half an hour before the consumer was made */
    int allocate;                 /* enum ledgermq_allocate: AVERAGELY */
    int consume_threads;          /* of the pool: 20 */
    int consume_batch;            /* messages in one call: 1, at most 1024 */
    int pull_batch;               /* messages in one request: 32, at most 1024 */
    int pull_interval_ms;         /* pause between requests for one queue: 0 */
    int cache_messages_max;       /* read ahead per queue; above, its reading pauses: 1000 */
    int cache_mib_max;            /* likewise in MiB of bodies: 100 */
    int cache_span_max;           /* likewise, distance from the oldest to the newest message not yet consumed, concurrent
                                     mode: 2000 */
    int max_reconsume_times;      /* -1: 16 in concurrent mode, no limit in orderly mode */
    int suspend_ms;               /* orderly: 1000 */
    int consume_timeout_ms;       /* concurrent: what takes longer is sent back as well, so that its queue's offset can
                                     move on: 900000 */
    const char *offset_directory; /* broadcast: DIRECTORY/CLIENT_ID/GROUP/offsets.json, as RocketMQ. NULL:
                                     $HOME/.rocketmq_offsets. Give the client an instance_name, otherwise its id is new
                                     each time and so is the file. */
};

LEDGERMQ_API void ledgermq_push_consumer_options_init(struct ledgermq_push_consumer_options *options);
/* Starts the pool; nothing is read before _start. A client can have one consumer of a group. LEDGERMQ_INVALID,
 * LEDGERMQ_NO_MEMORY. */
LEDGERMQ_API int ledgermq_push_consumer_new(struct ledgermq_client *client,
                                            const struct ledgermq_push_consumer_options *options,
                                            struct ledgermq_push_consumer **consumer, struct ledgermq_error *error);
/* Before or after _start; replaces an earlier subscription of that topic. expression: NULL or "*" for all, "TagA ||
 * TagB", or "sql:a > 5" for SQL92, which the broker is asked to check (LEDGERMQ_REFUSED with its reason). Members of a
 * group must subscribe to the same. LEDGERMQ_INVALID, LEDGERMQ_NO_MEMORY, LEDGERMQ_BUSY (4096 topics). */
LEDGERMQ_API int ledgermq_push_consumer_subscribe(struct ledgermq_push_consumer *consumer, const char *topic,
                                                  const char *expression, struct ledgermq_error *error);
/* The topic's queues are given up, offsets stored. Calls that run go on. LEDGERMQ_NOT_FOUND. */
LEDGERMQ_API int ledgermq_push_consumer_unsubscribe(struct ledgermq_push_consumer *consumer, const char *topic,
                                                    struct ledgermq_error *error);
/* Announces the group and begins to read; returns without waiting for queues. Topics that do not exist yet are looked
 * for again. LEDGERMQ_INVALID when it was started before, when the client has a consumer of this group already, or when
 * the broadcast offset file is damaged; LEDGERMQ_NO_MEMORY. */
LEDGERMQ_API int ledgermq_push_consumer_start(struct ledgermq_push_consumer *consumer, struct ledgermq_error *error);
/* Reads no more until _resume; what is read ahead is still consumed. */
LEDGERMQ_API void ledgermq_push_consumer_suspend(struct ledgermq_push_consumer *consumer);
LEDGERMQ_API void ledgermq_push_consumer_resume(struct ledgermq_push_consumer *consumer);
/* The queues this member reads at the moment, those of the group's retry topic (%RETRY%group) among them. Caller frees
 * *queues with ledgermq_queues_free(). LEDGERMQ_NO_MEMORY. */
LEDGERMQ_API int ledgermq_push_consumer_queues(struct ledgermq_push_consumer *consumer, struct ledgermq_queue **queues,
                                               size_t *count, struct ledgermq_error *error);
/* Waits for the calls that run, drops what is read ahead, stores offsets, frees locks, leaves the group. Not from the
 * consume function. NULL is fine. */
LEDGERMQ_API void ledgermq_push_consumer_free(struct ledgermq_push_consumer *consumer);

/* ---------------------------------------------------- lite pull consumer ---- */

struct ledgermq_lite_pull_consumer;

struct ledgermq_lite_pull_consumer_options {
    const char *group;            /* must be set */
    int message_model;            /* as above */
    int consume_from;             /* as above */
    int64_t consume_timestamp_ms; /* as above */
    int allocate;                 /* as above */
    int pull_batch;               /* messages in one request, and the most that one poll returns: 10 */
    int cache_messages_max;       /* per queue: 1000 */
    int cache_mib_max;            /* per queue: 100 */
    int cache_messages_all_max;   /* over all queues: 10000 */
    bool auto_commit;             /* what earlier polls returned is stored in the background: true */
    int auto_commit_ms;           /* 5000 */
    const char *offset_directory; /* as above */
};

LEDGERMQ_API void ledgermq_lite_pull_consumer_options_init(struct ledgermq_lite_pull_consumer_options *options);
/* LEDGERMQ_INVALID (also when the client has a consumer of this group already, or the broadcast offset file is
 * damaged), LEDGERMQ_NO_MEMORY. */
LEDGERMQ_API int ledgermq_lite_pull_consumer_new(struct ledgermq_client *client,
                                                 const struct ledgermq_lite_pull_consumer_options *options,
                                                 struct ledgermq_lite_pull_consumer **consumer,
                                                 struct ledgermq_error *error);
/* Shares the topic's queues with the other members of the group; begins at once. Expression and errors as the push
 * consumer's; also LEDGERMQ_INVALID after _assign: a consumer does one or the other. */
LEDGERMQ_API int ledgermq_lite_pull_subscribe(struct ledgermq_lite_pull_consumer *consumer, const char *topic,
                                              const char *expression, struct ledgermq_error *error);
LEDGERMQ_API int ledgermq_lite_pull_unsubscribe(struct ledgermq_lite_pull_consumer *consumer, const char *topic,
                                                struct ledgermq_error *error);
/* Reads exactly these queues, whoever else does; replaces what was assigned before. LEDGERMQ_INVALID after _subscribe,
 * LEDGERMQ_NO_MEMORY. */
LEDGERMQ_API int ledgermq_lite_pull_assign(struct ledgermq_lite_pull_consumer *consumer,
                                           const struct ledgermq_queue *queues, size_t count,
                                           struct ledgermq_error *error);
/* The queues read at the moment; those a topic has. Caller frees *queues with ledgermq_queues_free(). */
LEDGERMQ_API int ledgermq_lite_pull_assignment(struct ledgermq_lite_pull_consumer *consumer,
                                               struct ledgermq_queue **queues, size_t *count,
                                               struct ledgermq_error *error);
LEDGERMQ_API int ledgermq_lite_pull_topic_queues(struct ledgermq_lite_pull_consumer *consumer, const char *topic,
                                                 struct ledgermq_queue **queues, size_t *count,
                                                 struct ledgermq_error *error);
/* Messages of one queue, in its order. LEDGERMQ_TIMEOUT when there were none for timeout_ms (0 does not wait). Caller
 * frees *result with ledgermq_pull_result_free(). */
LEDGERMQ_API int ledgermq_lite_pull_poll(struct ledgermq_lite_pull_consumer *consumer, int timeout_ms,
                                         struct ledgermq_pull_result **result, struct ledgermq_error *error);
/* The next poll that returns messages of this queue begins there. An offset that the queue does not have becomes the
 * nearest one it has. LEDGERMQ_NOT_FOUND when the queue is not assigned (any more), LEDGERMQ_INVALID. */
LEDGERMQ_API int ledgermq_lite_pull_seek(struct ledgermq_lite_pull_consumer *consumer,
                                         const struct ledgermq_queue *queue, int64_t offset,
                                         struct ledgermq_error *error);
/* To the first message the queue has; behind its last. Errors as _seek's and of the request that asks. */
LEDGERMQ_API int ledgermq_lite_pull_seek_to_begin(struct ledgermq_lite_pull_consumer *consumer,
                                                  const struct ledgermq_queue *queue, struct ledgermq_error *error);
LEDGERMQ_API int ledgermq_lite_pull_seek_to_end(struct ledgermq_lite_pull_consumer *consumer,
                                                const struct ledgermq_queue *queue, struct ledgermq_error *error);
/* The offset whose message was stored nearest to that time. */
LEDGERMQ_API int ledgermq_lite_pull_offset_for_timestamp(struct ledgermq_lite_pull_consumer *consumer,
                                                         const struct ledgermq_queue *queue, int64_t timestamp_ms,
                                                         int64_t *offset, struct ledgermq_error *error);
/* Polls return nothing of a paused queue, and it is not read ahead. LEDGERMQ_NOT_FOUND when it is not assigned. */
LEDGERMQ_API int ledgermq_lite_pull_pause(struct ledgermq_lite_pull_consumer *consumer,
                                          const struct ledgermq_queue *queue, struct ledgermq_error *error);
LEDGERMQ_API int ledgermq_lite_pull_resume(struct ledgermq_lite_pull_consumer *consumer,
                                           const struct ledgermq_queue *queue, struct ledgermq_error *error);
/* Stores how far polls have come, in all queues; returns when brokers have answered. LEDGERMQ_CONNECTION,
 * LEDGERMQ_TIMEOUT, LEDGERMQ_REFUSED: some queues' offsets are not stored; they are tried again with the next commit. */
LEDGERMQ_API int ledgermq_lite_pull_commit(struct ledgermq_lite_pull_consumer *consumer, struct ledgermq_error *error);
/* What is stored. LEDGERMQ_NOT_FOUND when nothing is. */
LEDGERMQ_API int ledgermq_lite_pull_committed(struct ledgermq_lite_pull_consumer *consumer,
                                              const struct ledgermq_queue *queue, int64_t *offset,
                                              struct ledgermq_error *error);
/* Stores, with auto_commit, how far polls have come; leaves the group. NULL is fine. No other call may be under way. */
LEDGERMQ_API void ledgermq_lite_pull_consumer_free(struct ledgermq_lite_pull_consumer *consumer);

#ifdef __cplusplus
}
#endif

#endif
