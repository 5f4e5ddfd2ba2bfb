#include "client/producer.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>

#include "client/client.h"
#include "client/queue_selector.h"
#include "proto/headers.h"
#include "proto/request_code.h"
#include "proto/response_code.h"
#include "proto/topic_validator.h"

/* A send's way:
 *
 * 1. The caller's thread checks the message, makes its id and properties, compresses the body, and posts a struct
 * send.
 * 2. On the loop thread transmit() takes a queue from the route (asking for the route first where it is not known)
 * and sends request 310.
 * 3. answered() ends it, or remembers the failure and asks all name servers whether someone else leads by now.
 * 4. reconsider() sends again as soon as there is another address, or, when nothing changes for a while, to the same
 * one. The waits are such that the tries spread over the whole time-out: a leader's death costs one gap and no error.
 *
 * A request that never left, since nobody listened at the address, is not counted as a try.
 */
#define STALE_ROUTE_MS_MAX                                                                                           \
    1000 /* so long a failed address is not tried again while name servers still name it as the leader's */
#define ASK_AGAIN_MS 20
#define QUICK_FAILURES_MAX 3
#define COMPRESS_LEVEL 5
#define COMPRESSION_TYPE_ZLIB 0x300
#define PROPERTY_COUNT_MAX 1024u

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

static void transmit(struct send *send);

bool producer_may_retry(int code)
{
    switch (code) {
    case RESPONSE_SYSTEM_ERROR:
    case RESPONSE_SERVICE_NOT_AVAILABLE:
    case RESPONSE_NO_PERMISSION:
    case RESPONSE_TOPIC_NOT_EXIST:
    case RESPONSE_NO_BUYER_ID:
    case RESPONSE_NOT_IN_CURRENT_UNIT:
        return true;
    default:
        return false;
    }
}

const char *ledgermq_send_status_text(int status)
{
    static const char *const names[] = {"SEND_OK", "FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT",
                                        "SLAVE_NOT_AVAILABLE"};
    return status >= 0 && status < 4 ? names[status] : "UNKNOWN";
}

/* --- the loop thread ---- */

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
    free(send);
    uv_mutex_lock(&producer->lock);
    producer->waiting--;
    producer->waiting_bytes -= charged;
    if (producer->waiting == 0)
        uv_cond_broadcast(&producer->idle);
    uv_mutex_unlock(&producer->lock);
}

/* Fails with what the last try met, or with the error given when there was none. */
static void give_up(struct send *send)
{
    char last[sizeof send->error.message];
    snprintf(last, sizeof last, "%s", send->error.message);
    client_error_text(&send->error, send->error.code, send->error.response_code,
                      "topic %s: not sent after %d %s in %d ms: %.300s", send->topic, send->tries,
                      send->tries == 1 ? "try" : "tries",
                      (int)(now_ms(send) - send->deadline_ms + send->producer->options.send_timeout_ms), last);
    finish(send, NULL, &send->error);
}

static void fail(struct send *send, int code, int response_code, const char *cause)
{
    client_error_text(&send->error, code, response_code, "topic %s: %s", send->topic, cause);
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
             "no name server answered within %d ms: are they running, and is NAMESRV_ADDR right?",
             send->producer->options.send_timeout_ms);
    fail(send, LEDGERMQ_TIMEOUT, 0, cause);
}

static void reconsider(struct send *send);

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

/* wait: the address may stop being the leader's, so look for another one before it is tried again. */
static void failed(struct send *send, bool counted, bool retryable, bool wait)
{
    struct ledgermq_producer *producer = send->producer;
    int64_t now = now_ms(send);
    send->failed_once = true;
    send->quick_failures = counted ? 0 : send->quick_failures + 1;
    if (counted)
        send->tries++;
    if (producer->options.latency_fault_enable)
        latency_fault_tolerance_update(&producer->tolerance, send->broker_name, now - send->sent_ms, true, now);
    int left = producer->options.retries + 1 - send->tries;
    if (!retryable || left <= 0 || now >= send->deadline_ms) {
        give_up(send);
        return;
    }
    int64_t pause = (send->deadline_ms - now) / (left + 1);
    send->give_up_waiting_ms = now + (!wait ? 0 : pause < STALE_ROUTE_MS_MAX ? pause : STALE_ROUTE_MS_MAX);
    ask_route(send, send->address);
}

static void succeeded(struct send *send, const struct remoting_command *answer, int status)
{
    struct ledgermq_producer *producer = send->producer;
    struct send_message_response_header header;
    struct error error;
    send->tries++;
    if (send_message_response_header_decode(answer, &header, &error) != 0) {
        char cause[400];
        snprintf(cause, sizeof cause, "%.100s answered a send without what an answer needs: %.200s", send->address,
                 error.message);
        fail(send, LEDGERMQ_MALFORMED, 0, cause);
        return;
    }
    if (producer->options.latency_fault_enable)
        latency_fault_tolerance_update(&producer->tolerance, send->broker_name, now_ms(send) - send->sent_ms, false,
                                       now_ms(send));
    struct ledgermq_send_result result = {
        .status = status, .tries = send->tries, .queue_offset = header.queue_offset};
    memcpy(result.message_id, send->message_id, sizeof result.message_id);
    snprintf(result.offset_message_id, sizeof result.offset_message_id, "%.*s", (int)header.msg_id.size,
             (const char *)header.msg_id.data);
    snprintf(result.queue.topic, sizeof result.queue.topic, "%s", send->topic);
    memcpy(result.queue.broker_name, send->broker_name, sizeof result.queue.broker_name);
    result.queue.queue_id = header.queue_id;
    finish(send, &result, NULL);
}

static void answered(struct remoting_call *call, int rv, const struct remoting_command *answer, const char *cause)
{
    struct send *send = call->context;
    if (rv != 0) {
        int code = rv == ERROR_TIMEOUT     ? LEDGERMQ_TIMEOUT
                   : rv == ERROR_STOPPED   ? LEDGERMQ_STOPPED
                   : rv == ERROR_MALFORMED ? LEDGERMQ_MALFORMED
                                           : LEDGERMQ_CONNECTION;
        client_error_text(&send->error, code, 0, "%.100s of %.100s: %.200s%s", send->address, send->broker_name,
                          cause, call->maybe_sent ? "; whether the message is stored is not known" : "");
        failed(send, call->maybe_sent, rv == ERROR_CONNECTION || rv == ERROR_TIMEOUT, true);
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
    failed(send, true, producer_may_retry(answer->code), answer->code == RESPONSE_SERVICE_NOT_AVAILABLE);
}

static bool choose_queue(struct send *send, struct topic_route *route)
{
    struct ledgermq_producer *producer = send->producer;
    const struct route_broker *broker;
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

/* The route names no broker that could take the message: there may be no leader at the moment, so ask again until the
 * time is up. */
static void no_leader(struct send *send)
{
    if (!send->failed_once) {
        send->failed_once = true;
        client_error_text(&send->error, LEDGERMQ_NO_ROUTE, 0,
                          "no broker with a leader has a writable queue%s%.100s: see mqadmin topicRoute -t %.127s",
                          send->wanted != NULL ? " on " : "", send->wanted != NULL ? send->wanted->broker_name : "",
                          send->topic);
    }
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

static int write_request(struct send *send, bool oneway)
{
    struct ledgermq_producer *producer = send->producer;
    struct remoting_client *remoting = producer->client->remoting;
    struct remoting_call *call = oneway ? NULL : &send->call;
    struct remoting_writer writer;
    send->sent_ms = now_ms(send);
    int rv = remoting_client_begin(remoting, send->address, call, REQUEST_SEND_MESSAGE_V2,
                                   (int)(send->deadline_ms - send->sent_ms), &writer);
    if (rv != 0)
        return rv;
    struct send_message_request_header header = {
        .producer_group = slice_of_text(producer->options.group),
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
    if (!choose_queue(send, route)) {
        if (not_writable(send, route))
            fail(send, LEDGERMQ_REFUSED, RESPONSE_NO_PERMISSION,
                 "it has no writable queue: set its permission to 6 with mqadmin updateTopicPerm");
        else
            no_leader(send);
        return;
    }
    int rv = write_request(send, send->oneway);
    if (rv == ERROR_CONNECTION) {
        /* The connection was found broken and is about to be dropped. */
        client_error_text(&send->error, LEDGERMQ_CONNECTION, 0, "%.100s of %.100s: the connection broke",
                          send->address, send->broker_name);
        failed(send, false, true, true);
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
    if (send->oneway)
        finish(send, NULL, NULL);
}

static void start(struct remoting_task *task)
{
    struct send *send = (struct send *)task;
    transmit(send);
}

/* --- the caller's thread ---- */

/* Names that RocketMQ keeps for itself (MessageConst.STRING_HASH_SET). */
static const char *const reserved_names[] = {
    "TRACE_ON",
    "MSG_REGION",
    "KEYS",
    "TAGS",
    "WAIT",
    "DELAY",
    "RETRY_TOPIC",
    "REAL_TOPIC",
    "REAL_QID",
    "TRAN_MSG",
    "PGROUP",
    "MIN_OFFSET",
    "MAX_OFFSET",
    "BUYER_ID",
    "ORIGIN_MESSAGE_ID",
    "TRANSFER_FLAG",
    "CORRECTION_FLAG",
    "MQ2_FLAG",
    "RECONSUME_TIME",
    "UNIQ_KEY",
    "MAX_RECONSUME_TIMES",
    "CONSUME_START_TIME",
    "__transactionId__",
    "INSTANCE_ID",
    "CORRELATION_ID",
    "REPLY_TO_CLIENT",
    "TTL",
    "ARRIVE_TIME",
    "PUSH_REPLY_TIME",
    "CLUSTER",
    "MSG_TYPE",
};

static bool has_separator(const char *text)
{
    return strpbrk(text, "\001\002") != NULL;
}

static int check_properties(const struct ledgermq_message *message, struct ledgermq_error *error)
{
    if (message->property_count > PROPERTY_COUNT_MAX)
        return client_error_text(error, LEDGERMQ_INVALID, 0, "more than %u properties", PROPERTY_COUNT_MAX);
    if ((message->tags != NULL && has_separator(message->tags)) ||
        (message->keys != NULL && has_separator(message->keys)))
        return client_error_text(error, LEDGERMQ_INVALID, 0, "tags and keys may not hold the characters 1 and 2");
    for (size_t i = 0; i < message->property_count; i++) {
        const struct ledgermq_property *property = &message->properties[i];
        if (property->name == NULL || property->value == NULL || property->name[0] == '\0' ||
            property->value[0] == '\0')
            return client_error_text(error, LEDGERMQ_INVALID, 0, "property %zu has no name or no value", i);
        if (has_separator(property->name) || has_separator(property->value))
            return client_error_text(error, LEDGERMQ_INVALID, 0,
                                     "property %.100s: name and value may not hold the characters 1 and 2",
                                     property->name);
        for (size_t k = 0; k < sizeof reserved_names / sizeof reserved_names[0]; k++)
            if (strcmp(property->name, reserved_names[k]) == 0)
                return client_error_text(error, LEDGERMQ_INVALID, 0,
                                         "property %s is RocketMQ's own: choose another name", property->name);
    }
    return LEDGERMQ_OK;
}

static int check_message(const struct ledgermq_producer *producer, const struct ledgermq_message *message,
                         struct ledgermq_error *error)
{
    struct error cause = {0};
    if (topic_validate(slice_of_text(message->topic), &cause) != 0)
        return client_error_text(error, LEDGERMQ_INVALID, 0, "topic %.150s: %.250s",
                                 message->topic == NULL ? "" : message->topic, cause.message);
    if (topic_forbids_send(slice_of_text(message->topic)))
        return client_error_text(error, LEDGERMQ_INVALID, 0, "topic %s is the broker's own: nobody may send to it",
                                 message->topic);
    if (message->body == NULL || message->body_size == 0)
        return client_error_text(error, LEDGERMQ_INVALID, 0, "the message has no body");
    if (message->body_size > producer->options.max_body_size)
        return client_error_text(error, LEDGERMQ_INVALID, RESPONSE_MESSAGE_ILLEGAL,
                                 "the body has %zu bytes, max_body_size is %zu", message->body_size,
                                 producer->options.max_body_size);
    if (message->delay_level < 0)
        return client_error_text(error, LEDGERMQ_INVALID, 0, "delay level %d is negative", message->delay_level);
    return check_properties(message, error);
}

static void put_property(struct buffer *out, const char *name, const char *value)
{
    message_property_append(out, 0, slice_of_text(name), slice_of_text(value));
}

static void make_properties(struct buffer *out, const struct ledgermq_message *message, const char *id)
{
    char number[16];
    for (size_t i = 0; i < message->property_count; i++)
        put_property(out, message->properties[i].name, message->properties[i].value);
    if (message->keys != NULL && message->keys[0] != '\0')
        put_property(out, "KEYS", message->keys);
    put_property(out, "UNIQ_KEY", id);
    put_property(out, "WAIT", message->no_wait ? "false" : "true");
    if (message->delay_level > 0) {
        snprintf(number, sizeof number, "%d", message->delay_level);
        put_property(out, "DELAY", number);
    }
    if (message->tags != NULL && message->tags[0] != '\0')
        put_property(out, "TAGS", message->tags);
}

/* Returns the compressed body, NULL (and *size unchanged) when it does not get smaller or memory is short: then it is
 * sent as it is. */
static void *compress_body(const void *body, size_t *size)
{
    uLongf room = compressBound((uLong)*size);
    void *out = malloc(room);
    if (out == NULL || compress2(out, &room, body, (uLong)*size, COMPRESS_LEVEL) != Z_OK || room >= *size) {
        free(out);
        return NULL;
    }
    *size = room;
    return out;
}

static int charge(struct ledgermq_producer *producer, size_t bytes, struct ledgermq_error *error)
{
    int rv = LEDGERMQ_OK;
    uv_mutex_lock(&producer->lock);
    if (producer->closing)
        rv = client_error_text(error, LEDGERMQ_STOPPED, 0, "the producer is being freed");
    else if (producer->waiting >= producer->options.max_waiting)
        rv =
            client_error_text(error, LEDGERMQ_BUSY, 0,
                              "%zu sends are unanswered (max_waiting): wait for their call backs", producer->waiting);
    else if (producer->waiting > 0 && producer->waiting_bytes + bytes > producer->options.max_waiting_bytes)
        rv = client_error_text(error, LEDGERMQ_BUSY, 0,
                               "%zu bytes of sends are unanswered (max_waiting_bytes): wait for their call backs",
                               producer->waiting_bytes);
    if (rv == LEDGERMQ_OK) {
        producer->waiting++;
        producer->waiting_bytes += bytes;
    }
    uv_mutex_unlock(&producer->lock);
    return rv;
}

/* Copies all that a send needs into one block and posts it. */
static int post(struct ledgermq_producer *producer, const struct ledgermq_message *message,
                const struct ledgermq_queue *queue, bool oneway, ledgermq_send_done done, void *context,
                struct ledgermq_error *error)
{
    int rv = check_message(producer, message, error);
    if (rv != LEDGERMQ_OK)
        return rv;
    if (queue != NULL && (queue->queue_id < 0 || queue->broker_name[0] == '\0'))
        return client_error_text(error, LEDGERMQ_INVALID, 0, "the queue has no broker name or a negative id");
    char id[MESSAGE_ID_TEXT_MAX];
    struct buffer properties;
    int64_t now = client_clock_ms();
    message_client_id_setter_make(&producer->client->ids, now, id);
    buffer_init(&properties, 0);
    make_properties(&properties, message, id);
    size_t body_size = message->body_size;
    void *compressed = body_size >= producer->options.compress_over ? compress_body(message->body, &body_size) : NULL;
    size_t topic_size = strlen(message->topic) + 1, queue_size = queue == NULL ? 0 : sizeof *queue;
    size_t total = sizeof(struct send) + queue_size + topic_size + properties.size + body_size;
    rv = LEDGERMQ_INVALID;
    if (properties.size > MESSAGE_PROPERTIES_MAX) {
        client_error_text(error, rv, RESPONSE_MESSAGE_ILLEGAL, "the properties have %zu bytes, %u are the most",
                          properties.size, MESSAGE_PROPERTIES_MAX);
        goto free_parts;
    }
    struct send *send = properties.failed ? NULL : malloc(total);
    rv = LEDGERMQ_NO_MEMORY;
    if (send == NULL) {
        client_error_text(error, rv, 0, "no memory for a message of %zu bytes", total);
        goto free_parts;
    }
    rv = charge(producer, total, error);
    if (rv != LEDGERMQ_OK) {
        free(send);
        goto free_parts;
    }
    *send = (struct send){
        .task.run = start,
        .call.done = answered,
        .producer = producer,
        .done = done,
        .context = context,
        .oneway = oneway,
        .deadline_ms = (int64_t)(uv_hrtime() / 1000000) + producer->options.send_timeout_ms,
        .flag = message->flag,
        .sys_flag = compressed != NULL ? MESSAGE_COMPRESSED | COMPRESSION_TYPE_ZLIB : 0,
        .born_timestamp_ms = now,
        .charged = total,
    };
    send->call.context = send;
    memcpy(send->message_id, id, sizeof send->message_id);
    /* The queue goes first: text is aligned for it. */
    char *at = send->text;
    if (queue != NULL) {
        send->wanted = memcpy(at, queue, sizeof *queue);
        at += sizeof *queue;
    }
    send->topic = memcpy(at, message->topic, topic_size);
    at += topic_size;
    send->properties = slice_of(memcpy(at, properties.data, properties.size), properties.size);
    at += properties.size;
    send->body = slice_of(memcpy(at, compressed != NULL ? compressed : message->body, body_size), body_size);
    remoting_client_post(producer->client->remoting, &send->task);
    rv = LEDGERMQ_OK;

free_parts:
    free(compressed);
    buffer_close(&properties);
    return rv;
}
_Static_assert(_Alignof(struct ledgermq_queue) <= _Alignof(int32_t) &&
                   offsetof(struct send, text) % _Alignof(struct ledgermq_queue) == 0,
               "a queue must fit where struct send's texts begin");

struct sync_send {
    struct ledgermq_send_result *result;
    struct ledgermq_error *error;
    int code;
    uv_sem_t done;
};

static void sync_done(void *context, const struct ledgermq_send_result *result, const struct ledgermq_error *error)
{
    struct sync_send *sync = context;
    if (result != NULL && sync->result != NULL)
        *sync->result = *result;
    if (error != NULL && sync->error != NULL)
        *sync->error = *error;
    sync->code = error == NULL ? LEDGERMQ_OK : error->code;
    uv_sem_post(&sync->done);
}

int ledgermq_send_to(struct ledgermq_producer *producer, const struct ledgermq_message *message,
                     const struct ledgermq_queue *queue, struct ledgermq_send_result *result,
                     struct ledgermq_error *error)
{
    struct sync_send sync = {.result = result, .error = error};
    if (remoting_client_on_loop(producer->client->remoting))
        return client_error_text(error, LEDGERMQ_INVALID, 0,
                                 "a call back may not wait for a send: use ledgermq_send_async");
    if (uv_sem_init(&sync.done, 0) != 0)
        return client_error_text(error, LEDGERMQ_NO_MEMORY, 0, "out of memory");
    int rv = post(producer, message, queue, false, sync_done, &sync, error);
    if (rv == LEDGERMQ_OK) {
        uv_sem_wait(&sync.done);
        rv = sync.code;
    }
    uv_sem_destroy(&sync.done);
    return rv;
}

int ledgermq_send(struct ledgermq_producer *producer, const struct ledgermq_message *message,
                  struct ledgermq_send_result *result, struct ledgermq_error *error)
{
    return ledgermq_send_to(producer, message, NULL, result, error);
}

int ledgermq_send_async(struct ledgermq_producer *producer, const struct ledgermq_message *message,
                        const struct ledgermq_queue *queue, ledgermq_send_done done, void *context,
                        struct ledgermq_error *error)
{
    if (done == NULL)
        return client_error_text(error, LEDGERMQ_INVALID, 0, "an asynchronous send needs a call back");
    return post(producer, message, queue, false, done, context, error);
}

int ledgermq_send_oneway(struct ledgermq_producer *producer, const struct ledgermq_message *message,
                         struct ledgermq_error *error)
{
    return post(producer, message, NULL, true, NULL, NULL, error);
}

int ledgermq_publish_queues(struct ledgermq_producer *producer, const char *topic, struct ledgermq_queue **queues,
                            size_t *count, struct ledgermq_error *public_error)
{
    struct error error = {0};
    if (topic_validate(slice_of_text(topic), &error) != 0)
        return client_error(public_error, ERROR_INVALID, 0, &error);
    int rv = client_queues(producer->client, topic, true, producer->options.create_topic_key,
                           producer->options.queues_of_new_topic, queues, count, &error);
    if (rv == ERROR_NOT_FOUND)
        return client_error_text(public_error, LEDGERMQ_NO_ROUTE, RESPONSE_TOPIC_NOT_EXIST, "%s", error.message);
    return rv == 0 ? LEDGERMQ_OK : client_error(public_error, rv, 0, &error);
}

void ledgermq_queues_free(struct ledgermq_queue *queues)
{
    free(queues);
}

void ledgermq_producer_options_init(struct ledgermq_producer_options *options)
{
    *options = (struct ledgermq_producer_options){
        .group = "DEFAULT_PRODUCER",
        .send_timeout_ms = 3000,
        .retries = 2,
        .queues_of_new_topic = 4,
        .create_topic_key = TOPIC_AUTO_CREATE,
        .compress_over = 4096,
        .max_body_size = 4u * 1024 * 1024,
        .max_waiting = 65536,
        .max_waiting_bytes = 128u * 1024 * 1024,
    };
}

int ledgermq_producer_new(struct ledgermq_client *client, const struct ledgermq_producer_options *given,
                          struct ledgermq_producer **out, struct ledgermq_error *public_error)
{
    struct ledgermq_producer_options options;
    struct error error = {0};
    ledgermq_producer_options_init(&options);
    if (given != NULL)
        options = *given;
    options.group = options.group == NULL ? "DEFAULT_PRODUCER" : options.group;
    options.create_topic_key = options.create_topic_key == NULL ? TOPIC_AUTO_CREATE : options.create_topic_key;
    if (group_validate(slice_of_text(options.group), &error) != 0)
        return client_error(public_error, ERROR_INVALID, 0, &error);
    if (topic_validate(slice_of_text(options.create_topic_key), &error) != 0)
        return client_error(public_error, ERROR_INVALID, 0, &error);
    if (options.send_timeout_ms <= 0 || options.retries < 0 || options.queues_of_new_topic <= 0 ||
        options.max_waiting == 0)
        return client_error_text(
            public_error, LEDGERMQ_INVALID, 0,
            "producer options: time-out, queues and max_waiting must be above 0, retries not negative");
    struct ledgermq_producer *producer = calloc(1, sizeof *producer);
    int rv = ERROR_NO_MEMORY;
    if (producer == NULL)
        return client_error(public_error, rv, 0, &error);
    producer->client = client;
    producer->options = options;
    producer->options.group = strdup(options.group);
    producer->options.create_topic_key = strdup(options.create_topic_key);
    latency_fault_tolerance_init(&producer->tolerance);
    if (producer->options.group == NULL || producer->options.create_topic_key == NULL ||
        uv_mutex_init(&producer->lock) != 0)
        goto free_producer;
    if (uv_cond_init(&producer->idle) != 0)
        goto destroy_lock;
    rv = client_group_register(client, producer->options.group, false);
    if (rv != 0)
        goto destroy_cond;
    uv_mutex_lock(&client->lock);
    producer->next = client->producers;
    client->producers = producer;
    uv_mutex_unlock(&client->lock);
    *out = producer;
    return LEDGERMQ_OK;

destroy_cond:
    uv_cond_destroy(&producer->idle);
destroy_lock:
    uv_mutex_destroy(&producer->lock);
free_producer:
    free((char *)producer->options.group);
    free((char *)producer->options.create_topic_key);
    free(producer);
    return client_error(public_error, rv, 0, &error);
}

void ledgermq_producer_free(struct ledgermq_producer *producer)
{
    if (producer == NULL)
        return;
    struct ledgermq_client *client = producer->client;
    assert(!remoting_client_on_loop(client->remoting));
    uv_mutex_lock(&producer->lock);
    producer->closing = true;
    while (producer->waiting > 0)
        uv_cond_wait(&producer->idle, &producer->lock);
    uv_mutex_unlock(&producer->lock);
    client_group_unregister(client, producer->options.group, false);
    uv_mutex_lock(&client->lock);
    struct ledgermq_producer **at = &client->producers;
    while (*at != producer)
        at = &(*at)->next;
    *at = producer->next;
    uv_mutex_unlock(&client->lock);
    latency_fault_tolerance_close(&producer->tolerance);
    uv_cond_destroy(&producer->idle);
    uv_mutex_destroy(&producer->lock);
    free((char *)producer->options.group);
    free((char *)producer->options.create_topic_key);
    free(producer);
}
