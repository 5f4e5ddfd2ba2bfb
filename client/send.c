#include "client/send.h"

#include <stdio.h>
#include <stdlib.h>

#include "client/namespace_util.h"
#include "client/queue_selector.h"
#include "client/trace_dispatcher.h"
#include "proto/headers.h"
#include "proto/request_code.h"
#include "proto/response_code.h"

/* A send's way:
 *
 * 1. The caller's thread checks the message, makes its id and properties, compresses the body, and posts a
 * struct send.
 * 2. On the loop thread transmit() takes a queue from the route (asking for the route first where it is not
 * known) and sends request 310.
 * 3. send_answered() ends it, or remembers the failure and asks all name servers whether someone else leads
 * by now.
 * 4. reconsider() sends again as soon as there is another address, or, when nothing changes for a while, to
 * the same one. The waits are such that the tries spread over the whole time-out: a leader's death costs one
 * gap and no error.
 *
 * A request that never left, since nobody listened at the address, is not counted as a try.
 */
/* So long a failed address is not tried again while name servers still name it as the leader's. */
#define STALE_ROUTE_MS_MAX 1000
#define ASK_AGAIN_MS 20
#define QUICK_FAILURES_MAX 3

static void transmit(struct send *send);

bool send_may_retry(const struct ledgermq_producer *producer, int code)
{
    const struct ledgermq_producer_options *options = &producer->options;
    for (size_t i = 0; i < options->retry_response_code_count; i++)
        if (options->retry_response_codes[i] == code)
            return true;
    return false;
}

static int64_t now_ms(const struct send *send)
{
    return remoting_client_now_ms(send->producer->client->remoting);
}

/* Ends a send: exactly one of result and error is given on. */
static void finish(struct send *send, const struct ledgermq_send_result *result, const struct ledgermq_error *error)
{
    struct ledgermq_producer *producer = send->producer;
    size_t charged = send->charged;
    if (send->done != NULL)
        send->done(send->context, result, error);
    free(send->kept);
    free(send);
    producer_discharge(producer, charged);
}

/* Ends with what a try brought that stored the message, if not as safely as asked; else fails with what the
 * last try met. */
static void give_up(struct send *send)
{
    if (send->kept != NULL) {
        finish(send, send->kept, NULL);
        return;
    }
    char last[sizeof send->error.message];
    snprintf(last, sizeof last, "%s", send->error.message);
    client_error_text(&send->error, send->error.code, send->error.response_code,
                      "topic %s: not sent after %d %s in %d ms: %.300s", send->topic, send->tries,
                      send->tries == 1 ? "try" : "tries", (int)(now_ms(send) - send->deadline_ms + send->timeout_ms),
                      last);
    finish(send, NULL, &send->error);
}

static void fail(struct send *send, int code, int response_code, const char *cause)
{
    client_error_text(&send->error, code, response_code, "topic %s: %s", send->topic, cause);
    send_hooks_after(send, NULL, &send->error);
    if (send->kept != NULL)
        finish(send, send->kept, NULL);
    else
        finish(send, NULL, &send->error);
}

static struct topic_route *route_of(struct send *send)
{
    return route_table_get(send->producer->client->routes, send->topic);
}

/* True when the route offers a leader other than the address that failed. */
static bool other_leader(struct send *send)
{
    const struct topic_route *route = route_of(send);
    for (uint32_t i = 0; route != NULL && i < route->publish_count; i++) {
        const struct route_broker *broker = route->publish[i].broker;
        if (send->wanted != NULL && strcmp(send->wanted->broker_name, broker->name) != 0)
            continue;
        const char *leader = route_broker_leader(broker);
        if (leader != NULL && strcmp(leader, send->address) != 0)
            return true;
    }
    return false;
}

static void timed_out(struct remoting_delay *delay)
{
    struct send *send = (struct send *)((char *)delay - offsetof(struct send, delay));
    if (send->waiting_for_route)
        route_table_cancel(send->producer->client->routes, send->topic, &send->waiter);
    if (send->failed_once) {
        give_up(send);
        return;
    }
    char cause[120];
    snprintf(cause, sizeof cause,
             "no name server answered within %d ms: are they running, and is NAMESRV_ADDR right?", send->timeout_ms);
    fail(send, LEDGERMQ_TIMEOUT, 0, cause);
}

static void reconsider(struct send *send);
static void wait_for_leader(struct send *send);

static void routed(struct route_waiter *waiter, int rv, const char *cause)
{
    struct send *send = (struct send *)((char *)waiter - offsetof(struct send, waiter));
    send->waiting_for_route = false;
    remoting_client_delay_cancel(&send->delay);
    if (send->failed_once) {
        reconsider(send);
        return;
    }
    if (rv == 0) {
        transmit(send);
        return;
    }
    if (rv == ERROR_NO_LEADER) {
        /* A name server that has just started is not ready before brokers have registered there. */
        client_error_text(&send->error, LEDGERMQ_NO_ROUTE, 0, "no route: %.300s", cause);
        wait_for_leader(send);
        return;
    }
    char text[400];
    if (rv == ERROR_NOT_FOUND)
        snprintf(text, sizeof text,
                 "no name server knows this topic (%.200s): create it with mqadmin updateTopic, or set "
                 "autoCreateTopicEnable=true at the broker",
                 cause);
    else
        snprintf(text, sizeof text, "no route: %.300s", cause);
    fail(send,
         rv == ERROR_TIMEOUT      ? LEDGERMQ_TIMEOUT
         : rv == ERROR_CONNECTION ? LEDGERMQ_CONNECTION
         : rv == ERROR_STOPPED    ? LEDGERMQ_STOPPED
                                  : LEDGERMQ_NO_ROUTE,
         rv == ERROR_NOT_FOUND ? RESPONSE_TOPIC_NOT_EXIST : 0, text);
}

static void ask_route(struct send *send, const char *avoid)
{
    const struct ledgermq_producer_options *options = &send->producer->options;
    int64_t left = send->deadline_ms - now_ms(send);
    send->delay.run = timed_out;
    if (left <= 0) {
        timed_out(&send->delay);
        return;
    }
    send->waiter.done = routed;
    int rv = route_table_refresh(send->producer->client->routes, send->topic, options->create_topic_key,
                                 options->queues_of_new_topic, avoid, &send->waiter);
    if (rv != 0) {
        fail(send, rv == ERROR_STOPPED ? LEDGERMQ_STOPPED : LEDGERMQ_BUSY, 0, error_text(rv));
        return;
    }
    send->waiting_for_route = true;
    remoting_client_delay(send->producer->client->remoting, &send->delay, (int)left);
}

static void ask_again(struct remoting_delay *delay)
{
    struct send *send = (struct send *)((char *)delay - offsetof(struct send, delay));
    ask_route(send, send->address);
}

static void transmit_later(struct remoting_delay *delay)
{
    transmit((struct send *)((char *)delay - offsetof(struct send, delay)));
}

/* After a failure and a fresh look at the route. */
static void reconsider(struct send *send)
{
    int64_t now = now_ms(send);
    if (now >= send->deadline_ms) {
        give_up(send);
        return;
    }
    bool again = other_leader(send) || now >= send->give_up_waiting_ms;
    if (again && send->quick_failures <= QUICK_FAILURES_MAX) {
        transmit(send);
        return;
    }
    /* Nobody listens anywhere: going round at once would burn CPU until the time is up. */
    send->delay.run = again ? transmit_later : ask_again;
    remoting_client_delay(send->producer->client->remoting, &send->delay, ASK_AGAIN_MS);
}

enum failure {
    COUNTED = 1,   /* the request may have arrived: it was a try */
    RETRYABLE = 2, /* trying again may help */
    WAIT = 4,      /* the address may stop being the leader's, so look for another one before it is tried again */
    BLAMED = 8,    /* the broker is at fault */
};

static void failed(struct send *send, unsigned how)
{
    struct ledgermq_producer *producer = send->producer;
    int64_t now = now_ms(send);
    send_hooks_after(send, NULL, &send->error);
    send->failed_once = true;
    send->quick_failures = how & COUNTED ? 0 : send->quick_failures + 1;
    if (how & COUNTED)
        send->tries++;
    if (producer->options.latency_fault_enable && how & BLAMED)
        latency_fault_tolerance_update(&producer->tolerance, send->broker_name, now - send->sent_ms, true, now);
    int left = producer->options.retries + 1 - send->tries;
    if (!(how & RETRYABLE) || left <= 0 || now >= send->deadline_ms) {
        give_up(send);
        return;
    }
    int64_t pause = (send->deadline_ms - now) / (left + 1);
    send->give_up_waiting_ms = now + (!(how & WAIT) ? 0 : pause < STALE_ROUTE_MS_MAX ? pause : STALE_ROUTE_MS_MAX);
    ask_route(send, send->address);
}

/* True when the route has a queue of another broker name than the last try's. */
static bool other_broker(struct send *send)
{
    const struct topic_route *route = route_of(send);
    for (uint32_t i = 0; send->wanted == NULL && route != NULL && i < route->publish_count; i++)
        if (strcmp(route->publish[i].broker->name, send->broker_name) != 0)
            return true;
    return false;
}

/* Stored, but not as safely as asked. True when another broker is to be tried, with the result kept. */
static bool try_another_broker(struct send *send, const struct ledgermq_send_result *result)
{
    const struct ledgermq_producer_options *options = &send->producer->options;
    if (!options->retry_another_broker_when_not_store_ok || result->tries > options->retries ||
        now_ms(send) >= send->deadline_ms || !other_broker(send))
        return false;
    if (send->kept == NULL)
        send->kept = malloc(sizeof *send->kept);
    if (send->kept == NULL)
        return false;
    *send->kept = *result;
    client_error_text(&send->error, LEDGERMQ_REFUSED, 0, "%.100s of %.100s answers %s", send->address,
                      send->broker_name, ledgermq_send_status_text(result->status));
    return true;
}

static void succeeded(struct send *send, const struct remoting_command *answer, int status)
{
    struct ledgermq_producer *producer = send->producer;
    struct send_message_response_header header;
    char topic[NAMESPACED_NAME_MAX];
    struct error error;
    if (send_message_response_header_decode(answer, &header, &error) != 0) {
        char cause[400];
        snprintf(cause, sizeof cause, "%.100s answered a send without what an answer needs: %.200s", send->address,
                 error.message);
        fail(send, LEDGERMQ_MALFORMED, 0, cause);
        return;
    }
    send->tries++;
    if (producer->options.latency_fault_enable)
        latency_fault_tolerance_update(&producer->tolerance, send->broker_name, now_ms(send) - send->sent_ms, false,
                                       now_ms(send));
    struct ledgermq_send_result result = {
        .status = status, .tries = send->tries, .queue_offset = header.queue_offset};
    memcpy(result.message_id, send->message_id, sizeof result.message_id);
    /* A batch's ids come as one text with commas between. */
    const uint8_t *comma = memchr(header.msg_id.data, ',', header.msg_id.size);
    snprintf(result.offset_message_id, sizeof result.offset_message_id, "%.*s",
             (int)(comma == NULL ? header.msg_id.size : (size_t)(comma - header.msg_id.data)),
             (const char *)header.msg_id.data);
    namespace_unwrap(producer->client->name_space, send->topic, topic);
    snprintf(result.queue.topic, sizeof result.queue.topic, "%.*s", (int)sizeof result.queue.topic - 1, topic);
    memcpy(result.queue.broker_name, send->broker_name, sizeof result.queue.broker_name);
    result.queue.queue_id = header.queue_id;
    send_hooks_after(send, &result, NULL);
    if (producer->trace != NULL)
        trace_dispatcher_sent(producer->trace, send, &result, answer);
    if (status != LEDGERMQ_SEND_OK && try_another_broker(send, &result)) {
        send->failed_once = true;
        send->quick_failures = 0;
        transmit(send);
        return;
    }
    finish(send, &result, NULL);
}

void send_answered(struct remoting_call *call, int rv, const struct remoting_command *answer, const char *cause)
{
    struct send *send = call->context;
    if (rv != 0) {
        int code = rv == ERROR_TIMEOUT     ? LEDGERMQ_TIMEOUT
                   : rv == ERROR_STOPPED   ? LEDGERMQ_STOPPED
                   : rv == ERROR_MALFORMED ? LEDGERMQ_MALFORMED
                                           : LEDGERMQ_CONNECTION;
        client_error_text(&send->error, code, 0, "%.100s of %.100s: %.200s%s", send->address, send->broker_name,
                          cause, call->maybe_sent ? "; whether the message is stored is not known" : "");
        failed(send, (call->maybe_sent ? COUNTED : 0u) |
                         (rv == ERROR_CONNECTION || rv == ERROR_TIMEOUT ? RETRYABLE : 0u) | WAIT | BLAMED);
        return;
    }
    switch (answer->code) {
    case RESPONSE_SUCCESS:
        succeeded(send, answer, LEDGERMQ_SEND_OK);
        return;
    case RESPONSE_FLUSH_DISK_TIMEOUT:
        succeeded(send, answer, LEDGERMQ_FLUSH_DISK_TIMEOUT);
        return;
    case RESPONSE_FLUSH_SLAVE_TIMEOUT:
        succeeded(send, answer, LEDGERMQ_FLUSH_SLAVE_TIMEOUT);
        return;
    case RESPONSE_SLAVE_NOT_AVAILABLE:
        succeeded(send, answer, LEDGERMQ_SLAVE_NOT_AVAILABLE);
        return;
    default:
        break;
    }
    const char *name = response_code_name(answer->code);
    client_error_text(&send->error, LEDGERMQ_REFUSED, answer->code, "%.100s of %.100s answers %d %s: %.*s",
                      send->address, send->broker_name, answer->code, name == NULL ? "" : name,
                      (int)(answer->remark.size < 240 ? answer->remark.size : 240),
                      (const char *)answer->remark.data);
    /* A reply that could not be handed over is stored all the same: sending it again would store it again. */
    bool again = send_may_retry(send->producer, answer->code) &&
                 !(send->request_code == REQUEST_SEND_REPLY_MESSAGE_V2 && answer->code == RESPONSE_SYSTEM_ERROR);
    failed(send, COUNTED | BLAMED | (again ? RETRYABLE : 0u) |
                     (answer->code == RESPONSE_SERVICE_NOT_AVAILABLE ? WAIT : 0u));
}

/* Runs the selector, whose choice then stays. False when the choice is none: the send has ended. */
static bool run_selector(struct send *send, const struct topic_route *route)
{
    size_t i = send->selector(route->publish_views, route->publish_count, send->topic, send->selector_argument);
    if (i >= route->publish_count) {
        char cause[100];
        snprintf(cause, sizeof cause, "the selector chose queue %zu of %u (they count from 0)", i,
                 route->publish_count);
        fail(send, LEDGERMQ_INVALID, 0, cause);
        return false;
    }
    send->selector = NULL;
    send->wanted = send->choice;
    snprintf(send->wanted->topic, sizeof send->wanted->topic, "%.*s", LEDGERMQ_TOPIC_MAX, send->topic);
    snprintf(send->wanted->broker_name, sizeof send->wanted->broker_name, "%s", route->publish[i].broker->name);
    send->wanted->queue_id = route->publish[i].queue_id;
    return true;
}

static bool choose_queue(struct send *send, struct topic_route *route)
{
    struct ledgermq_producer *producer = send->producer;
    const struct route_broker *broker;
    if (send->selector != NULL)
        return false; /* there was nothing to choose from */
    if (send->wanted != NULL) {
        broker = topic_route_broker(route, send->wanted->broker_name);
        send->queue_id = send->wanted->queue_id;
    } else {
        const struct route_queue *queue =
            queue_selector_pick(route, send->failed_once ? send->broker_name : NULL,
                                producer->options.latency_fault_enable ? &producer->tolerance : NULL, now_ms(send));
        broker = queue == NULL ? NULL : queue->broker;
        send->queue_id = queue == NULL ? 0 : queue->queue_id;
    }
    const char *leader = broker == NULL ? NULL : route_broker_leader(broker);
    if (leader == NULL)
        return false;
    snprintf(send->address, sizeof send->address, "%s", leader);
    snprintf(send->broker_name, sizeof send->broker_name, "%s", broker->name);
    return true;
}

/* True when brokers lead but none takes messages of this topic: time does not cure that. */
static bool not_writable(const struct send *send, const struct topic_route *route)
{
    bool led = false;
    for (uint32_t i = 0; i < route->broker_count; i++)
        led = led || route_broker_leader(&route->brokers[i]) != NULL;
    return send->wanted == NULL && route->publish_count == 0 && led;
}

/* There may be no leader at the moment, so ask again until the time is up. The error is what is said then. */
static void wait_for_leader(struct send *send)
{
    send->failed_once = true;
    send->address[0] = '\0';
    send->give_up_waiting_ms = send->deadline_ms;
    send->delay.run = ask_again;
    int64_t left = send->deadline_ms - now_ms(send);
    if (left <= 0) {
        give_up(send);
        return;
    }
    remoting_client_delay(send->producer->client->remoting, &send->delay,
                          left < ASK_AGAIN_MS ? (int)left : ASK_AGAIN_MS);
}

/* The route names no broker that could take the message. */
static void no_leader(struct send *send)
{
    if (!send->failed_once)
        client_error_text(&send->error, LEDGERMQ_NO_ROUTE, 0,
                          "no broker with a leader has a writable queue%s%.100s: see mqadmin topicRoute -t %.127s",
                          send->wanted != NULL ? " on " : "", send->wanted != NULL ? send->wanted->broker_name : "",
                          send->topic);
    wait_for_leader(send);
}

/* How long this try may take. A machine that is off does not refuse connections, it is silent: while another
 * broker could take the message, a connection that is not there yet is waited for only a part of the time. */
static int try_timeout_ms(struct send *send)
{
    int64_t left = send->deadline_ms - send->sent_ms;
    int tries_left = send->producer->options.retries + 1 - send->tries;
    if (send->mode != LEDGERMQ_ONEWAY && tries_left > 1 && other_broker(send) &&
        !remoting_client_is_connected(send->producer->client->remoting, send->address))
        left = left / tries_left;
    return left < 1 ? 1 : (int)left;
}

static int write_request(struct send *send)
{
    struct ledgermq_producer *producer = send->producer;
    struct remoting_client *remoting = producer->client->remoting;
    struct remoting_call *call = send->mode == LEDGERMQ_ONEWAY ? NULL : &send->call;
    struct remoting_writer writer;
    int rv = remoting_client_begin(remoting, send->address, call, send->request_code, try_timeout_ms(send), &writer);
    if (rv != 0)
        return rv;
    struct send_message_request_header header = {
        .producer_group = slice_of_text(producer->group),
        .topic = slice_of_text(send->topic),
        .default_topic = slice_of_text(producer->options.create_topic_key),
        .default_topic_queue_nums = producer->options.queues_of_new_topic,
        .queue_id = send->queue_id,
        .sys_flag = send->sys_flag,
        .born_timestamp_ms = send->born_timestamp_ms,
        .flag = send->flag,
        .properties = send->properties,
        .has_reconsume_times = true,
        .has_unit_mode = true,
        .has_batch = true,
        .batch = send->message_count > 1,
    };
    send_message_request_header_encode_v2(&header, &writer);
    remoting_writer_body(&writer);
    buffer_append_slice(writer.out, send->body);
    return remoting_client_end(remoting, call, &writer);
}

static void transmit(struct send *send)
{
    struct topic_route *route = route_of(send);
    if (route == NULL) {
        ask_route(send, NULL);
        return;
    }
    if (now_ms(send) >= send->deadline_ms) {
        if (!send->failed_once)
            client_error_text(&send->error, LEDGERMQ_TIMEOUT, 0, "the time was up before the message could be sent");
        give_up(send);
        return;
    }
    if (send->selector != NULL && route->publish_count > 0 && !run_selector(send, route))
        return;
    if (!choose_queue(send, route)) {
        if (not_writable(send, route))
            fail(send, LEDGERMQ_REFUSED, RESPONSE_NO_PERMISSION,
                 "it has no writable queue: set its permission to 6 with mqadmin updateTopicPerm");
        else
            no_leader(send);
        return;
    }
    send->sent_ms = now_ms(send);
    if (!send_hooks_before(send)) {
        failed(send, COUNTED | RETRYABLE);
        return;
    }
    int rv = write_request(send);
    if (rv == ERROR_CONNECTION) {
        /* The connection was found broken and is about to be dropped. */
        client_error_text(&send->error, LEDGERMQ_CONNECTION, 0, "%.100s of %.100s: the connection broke",
                          send->address, send->broker_name);
        failed(send, RETRYABLE | WAIT | BLAMED);
        return;
    }
    if (rv != 0) {
        fail(send,
             rv == ERROR_STOPPED   ? LEDGERMQ_STOPPED
             : rv == ERROR_INVALID ? LEDGERMQ_MALFORMED
                                   : LEDGERMQ_BUSY,
             0,
             rv == ERROR_INVALID ? "the route holds an address that is none"
                                 : "more waits for the connection than this client keeps");
        return;
    }
    if (send->mode == LEDGERMQ_ONEWAY) {
        send_hooks_after(send, NULL, NULL);
        finish(send, NULL, NULL);
    }
}

void send_start(struct remoting_task *task)
{
    struct send *send = (struct send *)task;
    transmit(send);
}
