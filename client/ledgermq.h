/* libledgermq: send messages to, and read them from, a cluster that speaks RocketMQ's remoting protocol (LedgerMQ or
 * RocketMQ 4.9/5.x).
 *
 *     struct ledgermq_client_options options;
 *     struct ledgermq_error error;
 *     struct ledgermq_client *client;
 *     ledgermq_client_options_init(&options);
 *     options.name_servers = "10.0.0.1:9876;10.0.0.2:9876;10.0.0.3:9876";
 *     if (ledgermq_client_new(&options, &client, &error) != LEDGERMQ_OK)
 *         errx(1, "%s", error.message);
 *
 *     struct ledgermq_producer *producer;
 *     ledgermq_producer_new(client, NULL, &producer, &error);
 *     struct ledgermq_message message = {.topic = "orders", .body = "hello", .body_size = 5};
 *     struct ledgermq_send_result result;
 *     if (ledgermq_send(producer, &message, &result, &error) != LEDGERMQ_OK)
 *         warnx("%s", error.message);
 *     ledgermq_producer_free(producer);
 *     ledgermq_client_free(client);
 *
 * Threads: a client owns one background thread with an event loop; connections, routes, retries and time-outs live
 * there. Every function may be called from any thread. A call back runs on the background thread: it must not block,
 * and of this library it may call only ledgermq_send_async() and ledgermq_send_oneway(); what it is given is valid
 * until it returns.
 *
 * Errors: a function returns LEDGERMQ_OK or one of enum ledgermq_code and, where `error` is not NULL, says there what
 * went wrong, where, and what to do about it.
 *
 * To change this header: only add; structs that callers fill have an _init function or are zero-initialised, so new
 * members mean "as before" when they are 0.
 */
#ifndef LEDGERMQ_H
#define LEDGERMQ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LEDGERMQ_API __attribute__((visibility("default")))

#define LEDGERMQ_TOPIC_MAX 255     /* bytes of a topic or group name */
#define LEDGERMQ_NAME_MAX 255      /* bytes of a broker name */
#define LEDGERMQ_MESSAGE_ID_MAX 56 /* characters of a message id (IPv6) */
#define LEDGERMQ_DELAY_LEVELS 18   /* 1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h */

enum ledgermq_code {
    LEDGERMQ_OK = 0,
    LEDGERMQ_INVALID, /* an argument is wrong: correct the call */
    LEDGERMQ_NO_MEMORY,
    LEDGERMQ_NO_ROUTE,   /* the name servers know no broker for the topic */
    LEDGERMQ_CONNECTION, /* a broker or name server cannot be reached, or hung up */
    LEDGERMQ_TIMEOUT,    /* no answer in time; a message may have been stored all the same */
    LEDGERMQ_REFUSED,    /* the broker answered with an error: response_code and message hold it */
    LEDGERMQ_MALFORMED,  /* the answer makes no sense */
    LEDGERMQ_BUSY,       /* a limit of this library is reached: wait for call backs, then go on */
    LEDGERMQ_STOPPED,    /* the client or producer is being freed */
    LEDGERMQ_NOT_FOUND,  /* no such message, offset or group */
};

struct ledgermq_error {
    int code;          /* enum ledgermq_code */
    int response_code; /* RocketMQ response code for LEDGERMQ_REFUSED, LEDGERMQ_NO_ROUTE and LEDGERMQ_NOT_FOUND, else
                          0 */
    char message[480];
};

/* "timed out", "refused by the broker", ... */
LEDGERMQ_API const char *ledgermq_code_text(int code);
LEDGERMQ_API const char *ledgermq_version(void);

/* ---------------------------------------------------------------- client ---- */

struct ledgermq_client;

struct ledgermq_client_options {
    /* "host:port" with ';' between; NULL takes the environment's NAMESRV_ADDR. Any of them serves; the others are
     * asked when it fails. */
    const char *name_servers;
    const char *instance_name; /* makes the client id IP@instance; NULL: pid and a clock value, as RocketMQ */
    int call_timeout_ms;       /* route, offset and query requests: 3000 */
    int connect_timeout_ms;    /* 3000 */
    int route_poll_ms;         /* 30000 */
    int heartbeat_ms;          /* 30000 */
};

LEDGERMQ_API void ledgermq_client_options_init(struct ledgermq_client_options *options);
/* Starts the background thread. Connects to nobody yet. options may be NULL. */
LEDGERMQ_API int ledgermq_client_new(const struct ledgermq_client_options *options, struct ledgermq_client **client,
                                     struct ledgermq_error *error);
/* Frees its producers and consumers first if that has not been done, unregisters at the brokers, closes everything.
 * NULL is fine. */
LEDGERMQ_API void ledgermq_client_free(struct ledgermq_client *client);
/* IP@instance, as brokers and mqadmin show it. */
LEDGERMQ_API const char *ledgermq_client_id(const struct ledgermq_client *client);

/* -------------------------------------------------------------- messages ---- */

struct ledgermq_property {
    const char *name; /* not one of RocketMQ's own names (KEYS, TAGS, UNIQ_KEY, ...) */
    const char *value;
};

/* What is sent. Zero-initialise, then fill; only topic and body must be set. Borrowed during the call, copied where
 * it lasts longer. */
struct ledgermq_message {
    const char *topic;
    const void *body;
    size_t body_size;
    const char *tags; /* one tag, for filters */
    const char *keys; /* index keys with one space between, for queries */
    int delay_level;  /* 1..18, 0 none */
    int32_t flag;     /* yours; stored */
    bool no_wait;     /* property WAIT=false; LedgerMQ acknowledges as safely all the same */
    const struct ledgermq_property *properties;
    size_t property_count;
};

struct ledgermq_queue {
    char topic[LEDGERMQ_TOPIC_MAX + 1];
    char broker_name[LEDGERMQ_NAME_MAX + 1];
    int32_t queue_id;
};

/* What is read. All pointers live as long as the result that holds the message. */
struct ledgermq_stored_message {
    const char *topic;
    const void *body; /* uncompressed */
    size_t body_size;
    const char *tags; /* NULL when there is none; keys likewise */
    const char *keys;
    const char *message_id; /* UNIQ_KEY, the id that the producer made; the offset id when there is none */
    const char *offset_message_id;
    const char *broker_name; /* NULL from a query */
    int32_t queue_id;
    int32_t flag;
    int32_t sys_flag;
    int32_t reconsume_times;
    uint32_t body_crc;   /* of the stored body */
    uint32_t store_size; /* bytes of the stored record */
    int64_t queue_offset;
    int64_t physical_offset; /* in the commit log */
    int64_t born_timestamp_ms;
    int64_t store_timestamp_ms;
    int64_t prepared_transaction_offset;
    const char *born_host; /* ip:port */
    const char *store_host;
    const struct ledgermq_property *properties;
    size_t property_count;
};

/* Value of a property, NULL when absent. */
LEDGERMQ_API const char *ledgermq_message_property(const struct ledgermq_stored_message *message, const char *name);

/* -------------------------------------------------------------- producer ---- */

struct ledgermq_producer;

struct ledgermq_producer_options {
    const char *group;            /* DEFAULT_PRODUCER */
    int send_timeout_ms;          /* 3000, over all tries */
    int retries;                  /* 2 more tries for sync and async sends, on another broker where there is one */
    int queues_of_new_topic;      /* 4: what auto-creation asks for */
    const char *create_topic_key; /* TBW102, the topic that new ones are modelled on */
    size_t compress_over;         /* bodies of so many bytes are compressed (zlib): 4096; SIZE_MAX never */
    size_t max_body_size;         /* 4 MiB */
    size_t max_waiting;           /* unanswered sends: 65536; more are refused with LEDGERMQ_BUSY */
    size_t max_waiting_bytes;     /* 128 MiB, likewise */
    bool latency_fault_enable;    /* avoid brokers that were slow or failed for a while (RocketMQ's
                                     sendLatencyFaultEnable): false */
};

enum ledgermq_send_status {
    LEDGERMQ_SEND_OK,
    LEDGERMQ_FLUSH_DISK_TIMEOUT, /* stored, but not as safely as asked: only from RocketMQ's own brokers */
    LEDGERMQ_FLUSH_SLAVE_TIMEOUT,
    LEDGERMQ_SLAVE_NOT_AVAILABLE,
};

struct ledgermq_send_result {
    int status;                                          /* enum ledgermq_send_status */
    char message_id[LEDGERMQ_MESSAGE_ID_MAX + 1];        /* made here (UNIQ_KEY); survives retries */
    char offset_message_id[LEDGERMQ_MESSAGE_ID_MAX + 1]; /* made by the broker: names the place in its log */
    struct ledgermq_queue queue;
    int64_t queue_offset;
    int tries; /* requests it took */
};

LEDGERMQ_API const char *ledgermq_send_status_text(int status); /* "SEND_OK", ... */
LEDGERMQ_API void ledgermq_producer_options_init(struct ledgermq_producer_options *options);
LEDGERMQ_API int ledgermq_producer_new(struct ledgermq_client *client,
                                       const struct ledgermq_producer_options *options,
                                       struct ledgermq_producer **producer, struct ledgermq_error *error);
/* Waits until no send is unanswered (each ends at its time-out at the latest). Not to be called from a call back. */
LEDGERMQ_API void ledgermq_producer_free(struct ledgermq_producer *producer);

/* Returns when the message is stored, or is known not to be, or its time is up. Failures that may pass (the response
 * codes 1, 14, 16, 17, 204, 205, and connections that break) are tried again after a fresh look at the route, so a
 * change of leader costs one gap and no error. After LEDGERMQ_TIMEOUT or LEDGERMQ_CONNECTION the message may be
 * stored; after a retry it may be stored twice, with the same message_id. */
LEDGERMQ_API int ledgermq_send(struct ledgermq_producer *producer, const struct ledgermq_message *message,
                               struct ledgermq_send_result *result, struct ledgermq_error *error);
/* To one queue, for messages that must keep their order. Retries stay on that queue. */
LEDGERMQ_API int ledgermq_send_to(struct ledgermq_producer *producer, const struct ledgermq_message *message,
                                  const struct ledgermq_queue *queue, struct ledgermq_send_result *result,
                                  struct ledgermq_error *error);

/* Exactly one of result and error is not NULL. */
typedef void (*ledgermq_send_done)(void *context, const struct ledgermq_send_result *result,
                                   const struct ledgermq_error *error);
/* Copies the message and returns. Unless it fails at once, done is called later, exactly once. queue may be NULL. */
LEDGERMQ_API int ledgermq_send_async(struct ledgermq_producer *producer, const struct ledgermq_message *message,
                                     const struct ledgermq_queue *queue, ledgermq_send_done done, void *context,
                                     struct ledgermq_error *error);
/* Copies the message and returns; nobody will know whether it arrived. */
LEDGERMQ_API int ledgermq_send_oneway(struct ledgermq_producer *producer, const struct ledgermq_message *message,
                                      struct ledgermq_error *error);
/* The queues that messages of this topic can be sent to, for ledgermq_send_to(). Caller frees *queues with
 * ledgermq_queues_free(). */
LEDGERMQ_API int ledgermq_publish_queues(struct ledgermq_producer *producer, const char *topic,
                                         struct ledgermq_queue **queues, size_t *count, struct ledgermq_error *error);
LEDGERMQ_API void ledgermq_queues_free(struct ledgermq_queue *queues);

/* --------------------------------------------------------- pull consumer ---- */

struct ledgermq_pull_consumer;

enum ledgermq_pull_status {
    LEDGERMQ_FOUND,
    LEDGERMQ_NO_NEW_MESSAGE,     /* the end of the queue */
    LEDGERMQ_NO_MATCHED_MESSAGE, /* messages were there, none passed the filter: go on at next_offset */
    LEDGERMQ_OFFSET_ILLEGAL,     /* before the first or behind the last: next_offset is the nearest legal one */
};

struct ledgermq_pull_result {
    int status;          /* enum ledgermq_pull_status */
    int64_t next_offset; /* where to go on */
    int64_t min_offset;
    int64_t max_offset;
    const struct ledgermq_stored_message *messages;
    size_t count;
};

LEDGERMQ_API const char *
ledgermq_pull_status_text(int status); /* "FOUND", "NO_NEW_MSG", ... as RocketMQ prints them */
/* group: the name that offsets are kept under. */
LEDGERMQ_API int ledgermq_pull_consumer_new(struct ledgermq_client *client, const char *group,
                                            struct ledgermq_pull_consumer **consumer, struct ledgermq_error *error);
LEDGERMQ_API void ledgermq_pull_consumer_free(struct ledgermq_pull_consumer *consumer);

/* The queues of a topic that can be read. Caller frees *queues with ledgermq_queues_free(). */
LEDGERMQ_API int ledgermq_subscribe_queues(struct ledgermq_pull_consumer *consumer, const char *topic,
                                           struct ledgermq_queue **queues, size_t *count,
                                           struct ledgermq_error *error);
/* At most max_messages from offset on. expression: NULL or "*" for all, "TagA || TagB", or "sql:a > 5" for SQL92.
 * hold_ms > 0 waits so long at the broker when the end is reached (at most 60000). Caller frees *result with
 * ledgermq_pull_result_free(). */
LEDGERMQ_API int ledgermq_pull(struct ledgermq_pull_consumer *consumer, const struct ledgermq_queue *queue,
                               const char *expression, int64_t offset, int max_messages, int hold_ms,
                               struct ledgermq_pull_result **result, struct ledgermq_error *error);
LEDGERMQ_API void ledgermq_pull_result_free(struct ledgermq_pull_result *result);

/* Ends of a queue: the first offset that is there, and the one the next message will get. */
LEDGERMQ_API int ledgermq_min_offset(struct ledgermq_pull_consumer *consumer, const struct ledgermq_queue *queue,
                                     int64_t *offset, struct ledgermq_error *error);
LEDGERMQ_API int ledgermq_max_offset(struct ledgermq_pull_consumer *consumer, const struct ledgermq_queue *queue,
                                     int64_t *offset, struct ledgermq_error *error);
/* The offset whose message was stored nearest to that time. */
LEDGERMQ_API int ledgermq_search_offset(struct ledgermq_pull_consumer *consumer, const struct ledgermq_queue *queue,
                                        int64_t timestamp_ms, int64_t *offset, struct ledgermq_error *error);
/* The group's own place in the queue. LEDGERMQ_NOT_FOUND when it has none. */
LEDGERMQ_API int ledgermq_fetch_offset(struct ledgermq_pull_consumer *consumer, const struct ledgermq_queue *queue,
                                       int64_t *offset, struct ledgermq_error *error);
LEDGERMQ_API int ledgermq_commit_offset(struct ledgermq_pull_consumer *consumer, const struct ledgermq_queue *queue,
                                        int64_t offset, struct ledgermq_error *error);

/* ---------------------------------------------------------------- search ---- */

/* By offset message id: asks the broker whose address is in the id. Caller frees with ledgermq_pull_result_free(). */
LEDGERMQ_API int ledgermq_view_message(struct ledgermq_client *client, const char *offset_message_id,
                                       struct ledgermq_pull_result **result, struct ledgermq_error *error);
/* All brokers of the topic are asked. unique: key is a message_id. Times in ms; end 0 = no end. LEDGERMQ_NOT_FOUND
 * when nobody has any. */
LEDGERMQ_API int ledgermq_query_messages(struct ledgermq_client *client, const char *topic, const char *key,
                                         bool unique, int max_messages, int64_t begin_ms, int64_t end_ms,
                                         struct ledgermq_pull_result **result, struct ledgermq_error *error);

#ifdef __cplusplus
}
#endif

#endif
