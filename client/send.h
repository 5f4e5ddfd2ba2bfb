/* One message on its way: choosing a queue, sending, and what a failure leads to. All on the loop thread.
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
    bool oneway;
    bool waiting_for_route;
    bool failed_once;
    struct ledgermq_queue *wanted; /* NULL: any queue */
    int64_t deadline_ms;
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
    const char *topic;
    struct slice properties;
    struct slice body;
    char text[]; /* wanted, topic, properties, body */
};

struct ledgermq_producer {
    struct ledgermq_client *client;
    struct ledgermq_producer *next;
    struct ledgermq_producer_options options; /* texts are ours */
    uv_mutex_t lock;
    uv_cond_t idle;
    bool closing;
    size_t waiting, waiting_bytes;
    /* loop thread only */
    struct latency_fault_tolerance tolerance;
};

/* A task: begins to send, and ends with one call of done. */
void send_start(struct remoting_task *task);
void send_answered(struct remoting_call *call, int rv, const struct remoting_command *answer, const char *cause);
/* The response codes after which a send is tried again (DefaultMQProducer.retryResponseCodes). */
bool send_may_retry(int response_code);

#endif
