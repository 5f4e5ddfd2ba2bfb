/* A message that is to be delivered again later, or never again (36): the broker copies it to the group's retry topic
 * with a delay, or to its dead letter topic (DefaultMQPushConsumerImpl#sendMessageBack 4.9.8). */
#include <stdlib.h>

#include "client/consumer.h"
#include "proto/headers.h"
#include "proto/request_code.h"
#include "proto/response_code.h"

struct send_back {
    struct remoting_call call;
    struct remoting_delay delay;
    struct assigned *assigned; /* counts as a job of it */
    const struct ledgermq_stored_message *message;
    struct pulled *pulled;
    unsigned generation;
    int delay_level, max_reconsume_times;
    uint32_t tries;
    send_back_done done;
    void *context;
};

static int transmit(struct send_back *back);

static void back_end(struct send_back *back, bool sent)
{
    struct assigned *assigned = back->assigned;
    struct consumer *consumer = assigned->consumer;
    back->done(assigned, back->message, back->generation, back->context, sent);
    pulled_release(back->pulled);
    free(back);
    consumer->pending--;
    assigned->jobs--;
    assigned_left(assigned);
    consumer_ended(consumer);
}

static void failed(struct send_back *back)
{
    struct consumer *consumer = back->assigned->consumer;
    struct ledgermq_client *client = consumer->client;
    if (++back->tries >= CONSUMER_SEND_BACK_TRIES || atomic_load(&consumer->stopping)) {
        back_end(back, false);
        return;
    }
    route_table_refresh(client->routes, back->assigned->queue.topic, NULL, 0,
                        consumer_broker_address(consumer, &back->assigned->queue, 0), NULL);
    remoting_client_delay(client->remoting, &back->delay, consumer_retry_ms(back->tries + 1));
}

static void answered(struct remoting_call *call, int rv, const struct remoting_command *answer, const char *cause)
{
    struct send_back *back = call->context;
    (void)cause;
    if (rv == 0 && answer->code == RESPONSE_SUCCESS)
        back_end(back, true);
    else
        failed(back);
}

static void transmit_later(struct remoting_delay *delay)
{
    struct send_back *back = (struct send_back *)((char *)delay - offsetof(struct send_back, delay));
    if (transmit(back) != 0)
        failed(back);
}

static int transmit(struct send_back *back)
{
    struct consumer *consumer = back->assigned->consumer;
    struct remoting_client *remoting = consumer->client->remoting;
    struct remoting_writer writer;
    const char *address = consumer_broker_address(consumer, &back->assigned->queue, 0);
    if (address == NULL)
        return ERROR_NO_LEADER;
    back->call.done = answered;
    back->call.context = back;
    int rv = remoting_client_begin(remoting, address, &back->call, REQUEST_CONSUMER_SEND_MSG_BACK,
                                   consumer->client->call_timeout_ms, &writer);
    if (rv != 0)
        return rv;
    const struct consumer_send_msg_back_request_header header = {
        .offset = back->message->physical_offset,
        .group = slice_of_text(consumer->options.group),
        .delay_level = back->delay_level,
        .origin_msg_id = slice_of_text(back->message->message_id),
        .origin_topic = slice_of_text(back->message->topic),
        .has_unit_mode = true,
        .max_reconsume_times = back->max_reconsume_times,
        .has_max_reconsume_times = true,
    };
    consumer_send_msg_back_request_header_encode(&header, &writer);
    return remoting_client_end(remoting, &back->call, &writer);
}

void consumer_send_back(struct assigned *assigned, const struct ledgermq_stored_message *message,
                        struct pulled *pulled, int delay_level, int max_reconsume_times, send_back_done done,
                        void *context)
{
    struct send_back *back = calloc(1, sizeof *back);
    if (back == NULL) {
        done(assigned, message, atomic_load(&assigned->generation), context, false);
        return;
    }
    *back = (struct send_back){.delay.run = transmit_later,
                               .assigned = assigned,
                               .message = message,
                               .pulled = pulled,
                               .generation = atomic_load(&assigned->generation),
                               .delay_level = delay_level,
                               .max_reconsume_times = max_reconsume_times,
                               .done = done,
                               .context = context};
    pulled->users++;
    assigned->jobs++;
    assigned->consumer->pending++;
    if (transmit(back) != 0)
        remoting_client_delay(assigned->consumer->client->remoting, &back->delay, 0);
}
