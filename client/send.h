/* One message, or one batch, on its way: made on the caller's thread, then choosing a queue, sending, and
 * what a failure leads to, on the loop thread.
 *
 * Follows org.apache.rocketmq.client.impl.producer.DefaultMQProducerImpl#sendDefaultImpl 4.9.8.
 */
#ifndef LEDGERMQ_CLIENT_SEND_H
#define LEDGERMQ_CLIENT_SEND_H

#include "client/client.h"
#include "client/latency_fault_tolerance.h"
#include "proto/message.h"

struct send {
    struct remoting_task task;
    struct remoting_call call;
    struct route_waiter waiter;
    struct remoting_delay delay; /* the time-out while waiting for a route, or the pause before asking again */
    struct ledgermq_producer *producer;
    ledgermq_send_done done;
    void *context;
    ledgermq_queue_selector selector; /* NULL: none, or it has chosen */
    void *selector_argument;
    int32_t request_code; /* 310, 320 (a batch) or 325 (a reply) */
    int mode;             /* enum ledgermq_send_mode */
    int message_type;
    size_t message_count;
    bool waiting_for_route;
    bool failed_once;
    bool hooked;                       /* the hooks' `before` ran for this try */
    struct ledgermq_queue *wanted;     /* NULL: any queue */
    struct ledgermq_queue *choice;     /* room for what the selector chooses */
    struct ledgermq_send_result *kept; /* stored, but not as safely as asked; NULL none */
    int64_t deadline_ms;
    int timeout_ms;             /* which gave the deadline */
    int64_t give_up_waiting_ms; /* then the failed address is tried again */
    int64_t sent_ms;
    int tries;
    int quick_failures; /* in a row, of requests that never left */
    int32_t queue_id;
    int32_t sys_flag;
    int32_t flag;
    int64_t born_timestamp_ms;
    size_t charged; /* bytes of the producer's budget */
    char address[REMOTING_ADDRESS_MAX];
    char broker_name[LEDGERMQ_NAME_MAX + 1];
    struct ledgermq_error error; /* of the last failure */
    char message_id[MESSAGE_ID_TEXT_MAX];
    const char *topic;       /* with the namespace */
    const char *tags, *keys; /* NULL none */
    struct slice properties;
    struct slice body;
    char text[]; /* queue, topic, tags, keys, properties, body */
};

struct check_thread;
struct trace_dispatcher;

struct ledgermq_producer {
    struct ledgermq_client *client;
    struct ledgermq_producer *next;
    struct ledgermq_producer_options options; /* texts and lists are ours; group without the namespace */
    char *group;                              /* with the namespace */
    struct check_thread *checks;              /* NULL: no transaction listener */
    struct trace_dispatcher *trace;           /* NULL: none */
    uv_mutex_t lock;
    uv_cond_t idle;
    bool closing;
    size_t waiting, waiting_bytes;
    /* loop thread only */
    struct latency_fault_tolerance tolerance;
};

/* What a caller wants to be sent. Zero-initialise. */
struct send_wish {
    const struct ledgermq_message *messages;
    size_t count;
    const struct ledgermq_send_options *options; /* NULL: none */
    const struct ledgermq_property *own;         /* RocketMQ's own properties, of a single message */
    size_t own_count;
    int32_t request_code; /* 0: by count */
    int32_t sys_flag;
    int message_type; /* LEDGERMQ_NORMAL_MESSAGE: or delayed, as the message says */
    int mode;
    ledgermq_send_done done;
    void *context;
};

/* Any thread: checks and copies all that a send needs, and takes its part of the producer's budget. Public
 * codes; after LEDGERMQ_OK the send must be started, and done is called exactly once. */
int send_make(struct ledgermq_producer *producer, const struct send_wish *wish, struct send **send,
              struct ledgermq_error *error);
/* The same, and starts it. */
int send_post(struct ledgermq_producer *producer, const struct send_wish *wish, struct ledgermq_error *error);
/* The same, and waits; not on the loop thread. mode, done and context of the wish are set here. */
int send_and_wait(struct ledgermq_producer *producer, struct send_wish *wish, struct ledgermq_send_result *result,
                  struct ledgermq_error *error);
/* Takes from the producer's budget of what is unanswered. */
int producer_charge(struct ledgermq_producer *producer, size_t bytes, struct ledgermq_error *error);
void producer_discharge(struct ledgermq_producer *producer, size_t bytes);

/* A task on the loop thread: begins to send, and ends with one call of done. */
void send_start(struct remoting_task *task);
void send_answered(struct remoting_call *call, int rv, const struct remoting_command *answer, const char *cause);
/* Whether a send is tried again after that response code (DefaultMQProducer.retryResponseCodes). */
bool send_may_retry(const struct ledgermq_producer *producer, int response_code);

/* Asks the check-forbidden hooks (false: the reason is in send->error), then runs the hooks' `before`. */
bool send_hooks_before(struct send *send);
/* Ends what send_hooks_before() began; nothing when it did not. One of result and error, or none for one-way
 * sends. */
void send_hooks_after(struct send *send, const struct ledgermq_send_result *result,
                      const struct ledgermq_error *error);

#endif
