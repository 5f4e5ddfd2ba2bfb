/* Part of ledgermq.h, which is the header to include: sending messages.
 *
 * - ledgermq_send() sends one message and waits; _async() calls back; of _oneway() nobody will know.
 * - ledgermq_send_to() and _select() send to a queue of one's choice, for messages that must keep their order.
 * - ledgermq_send_messages() and its relatives do all that for several messages at once, with a time-out of its own.
 * - ledgermq_send_transaction() sends what consumers see only when a local transaction has committed.
 * - ledgermq_request() asks a consumer, ledgermq_reply() answers.
 *
 * A producer may be used by any number of threads at once. All times are milliseconds, all sizes bytes. A function
 * whose name ends in _async or _oneway may be called from a call back; the others wait, may not, and return
 * LEDGERMQ_INVALID there. `error` may be NULL everywhere.
 */
#ifndef LEDGERMQ_PRODUCER_H
#define LEDGERMQ_PRODUCER_H

#include "ledgermq_common.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ledgermq_producer;
struct ledgermq_pull_result;

/* --------------------------------------------------------------- results ---- */

enum ledgermq_send_status {
    LEDGERMQ_SEND_OK,
    LEDGERMQ_FLUSH_DISK_TIMEOUT, /* stored, but not as safely as asked: only from RocketMQ's own brokers */
    LEDGERMQ_FLUSH_SLAVE_TIMEOUT,
    LEDGERMQ_SLAVE_NOT_AVAILABLE,
};

struct ledgermq_message_id {
    char text[LEDGERMQ_MESSAGE_ID_MAX + 1];
};

/* Of a batch: message_id, offset_message_id and queue_offset are the first message's; the others follow it in
 * the same queue, without a gap. */
struct ledgermq_send_result {
    int status;                                          /* enum ledgermq_send_status */
    char message_id[LEDGERMQ_MESSAGE_ID_MAX + 1];        /* made here (UNIQ_KEY); survives retries */
    char offset_message_id[LEDGERMQ_MESSAGE_ID_MAX + 1]; /* made by the broker: names the place in its log */
    struct ledgermq_queue queue;
    int64_t queue_offset;
    int tries; /* requests it took */
};

/* "SEND_OK", ...; "UNKNOWN" for anything that is no status. */
LEDGERMQ_API const char *ledgermq_send_status_text(int status);

/* Exactly one of result and error is not NULL. */
typedef void (*ledgermq_send_done)(void *context, const struct ledgermq_send_result *result,
                                   const struct ledgermq_error *error);

/* ----------------------------------------------------------------- hooks ---- */

enum ledgermq_send_mode { LEDGERMQ_SYNC, LEDGERMQ_ASYNC, LEDGERMQ_ONEWAY };

enum ledgermq_message_type {
    LEDGERMQ_NORMAL_MESSAGE,
    LEDGERMQ_HALF_MESSAGE, /* of a transaction */
    LEDGERMQ_COMMIT_MESSAGE,
    LEDGERMQ_DELAYED_MESSAGE,
};

/* One try to send, as hooks see it. Everything is valid until the hook returns. */
struct ledgermq_send_context {
    const char *group;
    const char *topic; /* group and topic as the application calls them, without the namespace */
    const char *message_id;
    const char *tags, *keys; /* NULL: none. Of a batch: the first message's, as message_id */
    size_t message_count;    /* above 1: a batch */
    const void *body;        /* as it is sent: compressed, or the encoded batch */
    size_t body_size;
    const char *broker_name, *broker_address;
    int32_t queue_id;
    int mode;         /* enum ledgermq_send_mode */
    int message_type; /* enum ledgermq_message_type */
    int try_number;   /* from 1 */
    /* For `after` only: */
    const struct ledgermq_send_result *result; /* NULL when the try failed, and for one-way sends */
    const struct ledgermq_error *error;        /* NULL when it did not fail */
    int64_t elapsed_ms;                        /* since the request was handed over */
};

/* Called on the background thread for every try: `before` when the request is about to be written, `after`
 * when its answer is there or it has failed (of a one-way send: when it was handed over). Each before is
 * followed by exactly one after. Either may be NULL. They must not block. */
struct ledgermq_send_hook {
    void (*before)(void *context, const struct ledgermq_send_context *send);
    void (*after)(void *context, const struct ledgermq_send_context *send);
    void *context;
};

/* Asked on the background thread before every try, before the send hooks: return false to forbid it, with the
 * reason in `reason` (of `size` bytes). Another broker is then tried while there are tries left; when there
 * are none, the send ends with LEDGERMQ_FORBIDDEN and that reason. Must not block. */
struct ledgermq_check_forbidden_hook {
    bool (*allows)(void *context, const struct ledgermq_send_context *send, char *reason, size_t size);
    void *context;
};

/* ---------------------------------------------------------- transactions ---- */

enum ledgermq_transaction_state {
    LEDGERMQ_TRANSACTION_UNKNOWN, /* not decided yet: the broker will ask the listener's check */
    LEDGERMQ_TRANSACTION_COMMIT,
    LEDGERMQ_TRANSACTION_ROLLBACK,
};

struct ledgermq_transaction_listener {
    /* The local transaction. Runs on the thread that called ledgermq_send_transaction(), after the broker has
     * stored the message where consumers cannot see it; may block. transaction_id is the message's id.
     * argument is the caller's. Returns enum ledgermq_transaction_state. */
    int (*execute)(void *context, const struct ledgermq_message *message, const char *transaction_id,
                   void *argument);
    /* Asked when the broker does not know how a transaction of the group ended: its producer may have been
     * another process, or have died. Runs on a thread that belongs to this producer and to nothing else, one
     * message at a time; may block. message is valid until return. Returns enum ledgermq_transaction_state;
     * after UNKNOWN the broker asks again later. */
    int (*check)(void *context, const struct ledgermq_stored_message *message);
    void *context;
};

struct ledgermq_transaction_result {
    struct ledgermq_send_result send; /* of the half message */
    int state;                        /* enum ledgermq_transaction_state: what was decided here */
    /* The broker has confirmed the decision. False after LEDGERMQ_TRANSACTION_UNKNOWN, and when the broker
     * could not be reached in time: then it will ask the listener's check, and settles the transaction by its
     * answer. */
    bool settled;
};

/* --------------------------------------------------------------- options ---- */

enum ledgermq_compression { LEDGERMQ_ZLIB, LEDGERMQ_LZ4, LEDGERMQ_ZSTD };

struct ledgermq_producer_options {
    const char *group;            /* DEFAULT_PRODUCER */
    int send_timeout_ms;          /* 3000, over all tries */
    int retries;                  /* 2 more tries for sync and async sends, on another broker where there is one */
    int queues_of_new_topic;      /* 4: what auto-creation asks for */
    const char *create_topic_key; /* TBW102, the topic that new ones are modelled on */
    size_t compress_over;         /* bodies of so many bytes are compressed: 4096; SIZE_MAX never */
    size_t max_body_size;         /* 4 MiB; of a batch: all bodies together, as encoded */
    /* Unanswered sends: 65536; more are refused with LEDGERMQ_BUSY. A request that waits for its reply and a transaction
     * that is not decided count too, next to their sends. */
    size_t max_waiting;
    size_t max_waiting_bytes;     /* 128 MiB, likewise */
    bool latency_fault_enable;    /* avoid brokers that were slow or failed for a while (RocketMQ's
                                     sendLatencyFaultEnable): false */
    /* A message that was stored, but answered with another status than LEDGERMQ_SEND_OK, is sent again to
     * another broker, where the topic has one and tries are left: false. When no try brings LEDGERMQ_SEND_OK,
     * the result is the last one that said the message is stored. */
    bool retry_another_broker_when_not_store_ok;
    /* The response codes after which a send is tried again: NULL means 1, 14, 16, 17, 204 and 205. Copied. */
    const int *retry_response_codes;
    size_t retry_response_code_count;
    int compression;       /* enum ledgermq_compression: LEDGERMQ_ZLIB, which every consumer can read; the others
                              need RocketMQ's client 4.9.4 or newer */
    int compression_level; /* 5; of zlib 1 to 9, of zstd 1 to 22; LZ4 has none */
    const struct ledgermq_send_hook *send_hooks; /* copied, called in this order */
    size_t send_hook_count;
    const struct ledgermq_check_forbidden_hook *check_forbidden_hooks; /* likewise */
    size_t check_forbidden_hook_count;
    const struct ledgermq_transaction_listener *transaction_listener; /* copied; NULL: no transactions */
    /* Writes of each message that is stored, in the trace topic, when and where it was sent and how long that took, for
     * mqadmin queryMsgTraceById and its like, where the broker's traceOn is set; and of each transaction how it was
     * decided: false. Traces go out in the background, from a group of their own; those that fail are dropped. */
    bool trace_enable;
    const char *trace_topic; /* NULL: RMQ_SYS_TRACE_TOPIC */
};

/* Fills in the defaults that are named above; to be called before members are set. */
LEDGERMQ_API void ledgermq_producer_options_init(struct ledgermq_producer_options *options);
/* Texts and lists of options are copied; NULL takes the defaults. Errors: LEDGERMQ_INVALID,
 * LEDGERMQ_NO_MEMORY, LEDGERMQ_BUSY (too many groups of one client). Not to be called from a call back. */
LEDGERMQ_API int ledgermq_producer_new(struct ledgermq_client *client,
                                       const struct ledgermq_producer_options *options,
                                       struct ledgermq_producer **producer, struct ledgermq_error *error);
/* Waits until no send is unanswered (each ends at its time-out at the latest); requests that still wait for a
 * reply end with LEDGERMQ_STOPPED. Waits for a check of the transaction listener that is under way. Not to be
 * called from a call back. NULL is fine. */
LEDGERMQ_API void ledgermq_producer_free(struct ledgermq_producer *producer);

/* ------------------------------------------------------------ one message ---- */

/* Returns when the message is stored, or is known not to be, or its time is up. Failures that may pass (the
 * response codes of the options, and connections that break) are tried again after a fresh look at the route,
 * so a change of leader costs one gap and no error. After LEDGERMQ_TIMEOUT or LEDGERMQ_CONNECTION the message
 * may be stored; after a retry it may be stored twice, with the same message_id. result and error may be
 * NULL. */
LEDGERMQ_API int ledgermq_send(struct ledgermq_producer *producer, const struct ledgermq_message *message,
                               struct ledgermq_send_result *result, struct ledgermq_error *error);
/* The same, to one queue, for messages that must keep their order: of queue, the broker name and the id count. Retries
 * stay on that queue, so while its broker is away the send waits, and then fails (LEDGERMQ_NO_ROUTE when no name server
 * knows a broker of that name). */
LEDGERMQ_API int ledgermq_send_to(struct ledgermq_producer *producer, const struct ledgermq_message *message,
                                  const struct ledgermq_queue *queue, struct ledgermq_send_result *result,
                                  struct ledgermq_error *error);
/* Copies the message and returns. Unless it fails at once (LEDGERMQ_INVALID, LEDGERMQ_NO_MEMORY, LEDGERMQ_BUSY,
 * LEDGERMQ_STOPPED), done is called later on the background thread, exactly once, with what ledgermq_send() would have
 * said. queue may be NULL. */
LEDGERMQ_API int ledgermq_send_async(struct ledgermq_producer *producer, const struct ledgermq_message *message,
                                     const struct ledgermq_queue *queue, ledgermq_send_done done, void *context,
                                     struct ledgermq_error *error);
/* Copies the message and returns, failing as ledgermq_send_async(); after that nobody will know whether it arrived. */
LEDGERMQ_API int ledgermq_send_oneway(struct ledgermq_producer *producer, const struct ledgermq_message *message,
                                      struct ledgermq_error *error);

/* -------------------------------------------------------- choosing queues ---- */

/* The queues that messages of this topic can be sent to at the moment, for ledgermq_send_to(); of a topic that is not
 * there yet, those that the first send will make. Caller frees *queues with ledgermq_queues_free(). LEDGERMQ_NO_ROUTE
 * when no name server knows the topic, LEDGERMQ_CONNECTION or LEDGERMQ_TIMEOUT when none answers. */
LEDGERMQ_API int ledgermq_publish_queues(struct ledgermq_producer *producer, const char *topic,
                                         struct ledgermq_queue **queues, size_t *count,
                                         struct ledgermq_error *error);
/* NULL is fine. */
LEDGERMQ_API void ledgermq_queues_free(struct ledgermq_queue *queues);

struct ledgermq_queue_view {
    const char *broker_name;
    int32_t queue_id;
};

/* Chooses one of the queues that can be written at the moment (by broker name, then id; count is at least 1)
 * and returns its index. Runs on the background thread, once for each send: retries stay on the queue.
 * argument is the caller's; for an asynchronous or one-way send it must stay valid until the selector has
 * run. An index that is too large ends the send with LEDGERMQ_INVALID. */
typedef size_t (*ledgermq_queue_selector)(const struct ledgermq_queue_view *queues, size_t count, const char *topic,
                                          void *argument);
/* argument: a text (const char *). Equal texts go to the same queue as long as the number of queues stays the
 * same; the hash is that of java.lang.String, so that Java's SelectMessageQueueByHash chooses alike. */
LEDGERMQ_API size_t ledgermq_select_by_hash(const struct ledgermq_queue_view *queues, size_t count,
                                            const char *topic, void *argument);
/* argument is not used. */
LEDGERMQ_API size_t ledgermq_select_by_random(const struct ledgermq_queue_view *queues, size_t count,
                                              const char *topic, void *argument);
/* ledgermq_send() to the queue that the selector chooses. */
LEDGERMQ_API int ledgermq_send_select(struct ledgermq_producer *producer, const struct ledgermq_message *message,
                                      ledgermq_queue_selector selector, void *argument,
                                      struct ledgermq_send_result *result, struct ledgermq_error *error);

/* ----------------------------------------------------- several at a time ---- */

/* How to send. Zero-initialise, then fill; NULL in its place means all zero. */
struct ledgermq_send_options {
    const struct ledgermq_queue *queue; /* to this queue */
    ledgermq_queue_selector selector;   /* or to the one it chooses */
    void *selector_argument;
    int timeout_ms; /* over all tries; 0: the producer's send_timeout_ms */
    /* NULL, or room for as many ids as there are messages: filled before the function returns, whatever comes
     * then. */
    struct ledgermq_message_id *message_ids;
};

/* One message, or several of one topic as a batch: one request, one answer, all stored one behind the other
 * in one queue, or none of them. A batch may not be delayed, be part of a transaction, or go to a retry
 * topic, and all its messages have the same no_wait; its bodies are not compressed. LEDGERMQ_INVALID says
 * what is wrong with it. */
LEDGERMQ_API int ledgermq_send_messages(struct ledgermq_producer *producer, const struct ledgermq_message *messages,
                                        size_t count, const struct ledgermq_send_options *options,
                                        struct ledgermq_send_result *result, struct ledgermq_error *error);
/* What ledgermq_send_async() and ledgermq_send_oneway() are to ledgermq_send(). Messages and options are copied; what
 * options->message_ids points to is filled at once. */
LEDGERMQ_API int ledgermq_send_messages_async(struct ledgermq_producer *producer,
                                              const struct ledgermq_message *messages, size_t count,
                                              const struct ledgermq_send_options *options, ledgermq_send_done done,
                                              void *context, struct ledgermq_error *error);
LEDGERMQ_API int ledgermq_send_messages_oneway(struct ledgermq_producer *producer,
                                               const struct ledgermq_message *messages, size_t count,
                                               const struct ledgermq_send_options *options,
                                               struct ledgermq_error *error);
/* How many of the messages, from the first on, fit into one batch of max_bytes (0: 1 MiB; at most the
 * producer's max_body_size makes sense). At least 1 when count is: a message that is too large alone is for
 * the send to refuse.
 *
 *     for (size_t at = 0, n; at < count; at += n) {
 *         n = ledgermq_batch_split(messages + at, count - at, 0);
 *         ledgermq_send_messages(producer, messages + at, n, NULL, &result, &error) ...
 *     }
 */
LEDGERMQ_API size_t ledgermq_batch_split(const struct ledgermq_message *messages, size_t count, size_t max_bytes);

/* ----------------------------------------------------------- transactions ---- */

/* Stores the message where consumers cannot see it, runs the listener's execute, and tells the broker what it
 * decided. A message that is not stored (or not as safely as asked) is not executed: then the state is
 * ROLLBACK. Needs the transaction_listener of the options, and a group that all producers with the same check
 * share. Not for delayed messages. Not to be called from a call back.
 *
 * LEDGERMQ_OK: the half message was stored; result->state says what was decided. Else nothing was executed, and the
 * errors are those of ledgermq_send(); a half message that was stored all the same is settled by the listener's check.
 * result may be NULL.
 */
LEDGERMQ_API int ledgermq_send_transaction(struct ledgermq_producer *producer,
                                           const struct ledgermq_message *message, void *argument,
                                           struct ledgermq_transaction_result *result, struct ledgermq_error *error);

/* ---------------------------------------------------------- request, reply ---- */

/* Exactly one of reply and error is not NULL; reply is valid until return. */
typedef void (*ledgermq_request_done)(void *context, const struct ledgermq_stored_message *reply,
                                      const struct ledgermq_error *error);
/* Sends the message and waits for the reply of the consumer that gets it; timeout_ms (0: the producer's
 * send_timeout_ms) is over both. Caller frees *reply, which holds one message, with
 * ledgermq_pull_result_free(). LEDGERMQ_TIMEOUT: nobody replied in time; whether a consumer got the message
 * is not known. */
LEDGERMQ_API int ledgermq_request(struct ledgermq_producer *producer, const struct ledgermq_message *message,
                                  int timeout_ms, struct ledgermq_pull_result **reply, struct ledgermq_error *error);
/* Copies the message and returns. Unless it fails at once, done is called later on the background thread, exactly once:
 * with the reply, with what made the send fail, with LEDGERMQ_TIMEOUT, or with LEDGERMQ_STOPPED. */
LEDGERMQ_API int ledgermq_request_async(struct ledgermq_producer *producer, const struct ledgermq_message *message,
                                        int timeout_ms, ledgermq_request_done done, void *context,
                                        struct ledgermq_error *error);
/* For consumers: answers a message that came from ledgermq_request(), of this library or another. Of `reply`
 * all but the topic is used. LEDGERMQ_INVALID when the message is no request; LEDGERMQ_REFUSED when the
 * requester could not be reached (the reply is stored in the cluster's reply topic all the same). */
LEDGERMQ_API int ledgermq_reply(struct ledgermq_producer *producer, const struct ledgermq_stored_message *request,
                                const struct ledgermq_message *reply, struct ledgermq_send_result *result,
                                struct ledgermq_error *error);
/* Copies what it needs and returns. done as for ledgermq_send_async(). */
LEDGERMQ_API int ledgermq_reply_async(struct ledgermq_producer *producer,
                                      const struct ledgermq_stored_message *request,
                                      const struct ledgermq_message *reply, ledgermq_send_done done, void *context,
                                      struct ledgermq_error *error);

#ifdef __cplusplus
}
#endif

#endif
