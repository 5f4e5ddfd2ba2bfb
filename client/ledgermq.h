/* libledgermq: send messages to, and read them from, a cluster that speaks RocketMQ's remoting protocol
 * (LedgerMQ or RocketMQ 4.9/5.x).
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
 * Threads: a client owns one background thread with an event loop; connections, routes, retries and time-outs
 * live there. Every function may be called from any thread. A call back runs on the background thread: it
 * must not block, and of this library it may call only functions whose names end in _async or _oneway, and
 * those that ask nobody; what it is given is valid until it returns. Exceptions to this are said where the
 * call back is described.
 *
 * Errors: a function returns LEDGERMQ_OK or one of enum ledgermq_code and, where `error` is not NULL, says
 * there what went wrong, where, and what to do about it.
 *
 * To change this header: only add; structs that callers fill have an _init function or are zero-initialised,
 * so new members mean "as before" when they are 0.
 */
#ifndef LEDGERMQ_H
#define LEDGERMQ_H

#include "ledgermq_common.h"
#include "ledgermq_producer.h"

#ifdef __cplusplus
extern "C" {
#endif

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
/* At most max_messages from offset on. expression: NULL or "*" for all, "TagA || TagB", or "sql:a > 5" for
 * SQL92. hold_ms > 0 waits so long at the broker when the end is reached (at most 60000). Caller frees
 * *result with ledgermq_pull_result_free(). */
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

/* Has the broker deliver a message of a pull again, to whoever reads the group's retry topic %RETRY%group: after the
 * delay of that level (1..18), of one that grows with each time (0), or at once to the dead letter topic %DLQ%group
 * (-1). */
LEDGERMQ_API int ledgermq_send_back(struct ledgermq_pull_consumer *consumer,
                                    const struct ledgermq_stored_message *message, int delay_level,
                                    struct ledgermq_error *error);

/* ---------------------------------------------------------------- search ---- */

/* By offset message id: asks the broker whose address is in the id. Caller frees with
 * ledgermq_pull_result_free(). */
LEDGERMQ_API int ledgermq_view_message(struct ledgermq_client *client, const char *offset_message_id,
                                       struct ledgermq_pull_result **result, struct ledgermq_error *error);
/* All brokers of the topic are asked. unique: key is a message_id. Times in ms; end 0 = no end.
 * LEDGERMQ_NOT_FOUND when nobody has any. */
LEDGERMQ_API int ledgermq_query_messages(struct ledgermq_client *client, const char *topic, const char *key,
                                         bool unique, int max_messages, int64_t begin_ms, int64_t end_ms,
                                         struct ledgermq_pull_result **result, struct ledgermq_error *error);

#ifdef __cplusplus
}
#endif

/* Push and lite pull consumers. */
#include "ledgermq_consumer.h"

#endif
