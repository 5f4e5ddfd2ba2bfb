#include "client/request_reply.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <uthash.h>

#include "client/namespace_util.h"
#include "client/stored_message.h"
#include "proto/headers.h"
#include "proto/request_code.h"
#include "proto/response_code.h"
#include "proto/topic_validator.h"

/* A request's way: the future enters the client's table under its correlation id, the routes of the topic and
 * of the cluster's reply topic are made known (which greets their brokers, so that they know this client's
 * connection), and the message is sent. The reply arrives as request 326 over one of the connections. Two
 * hold the future: the table, until it has ended, and the send, until that has. */

#define CORRELATION_ID_SIZE 33u
#define REPLY_ROUTE_AGAIN_MS 30000 /* so long a cluster without a reply topic is not asked for it again */

/* reply is taken; exactly one of the two is not NULL. */
typedef void (*future_done)(void *context, struct stored_messages *reply, const struct ledgermq_error *error);

struct request_future {
    UT_hash_handle hh;
    struct remoting_task task;
    struct remoting_delay deadline;
    struct route_waiter waiter;
    struct ledgermq_producer *producer;
    struct send *send; /* until it is started */
    future_done done;
    void *context;
    int timeout_ms;
    unsigned holders;
    bool ended;
    char id[CORRELATION_ID_SIZE];
    char topic[NAMESPACED_NAME_MAX];
};

static void release(struct request_future *future)
{
    if (--future->holders == 0)
        free(future);
}

static void end(struct request_future *future, struct stored_messages *reply, const struct ledgermq_error *error)
{
    struct ledgermq_producer *producer = future->producer;
    future->ended = true;
    HASH_DEL(producer->client->requests, future);
    remoting_client_delay_cancel(&future->deadline);
    future->done(future->context, reply, error);
    producer_discharge(producer, sizeof *future);
    release(future);
}

static void end_with(struct request_future *future, int code, const char *cause)
{
    struct ledgermq_error error;
    client_error_text(&error, code, 0, "request to topic %s: %s", future->topic, cause);
    end(future, NULL, &error);
}

static void expired(struct remoting_delay *delay)
{
    struct request_future *future =
        (struct request_future *)((char *)delay - offsetof(struct request_future, deadline));
    char cause[120];
    snprintf(cause, sizeof cause, "no reply within %d ms: is a consumer of the topic running that replies?",
             future->timeout_ms);
    end_with(future, LEDGERMQ_TIMEOUT, cause);
}

static void sent(void *context, const struct ledgermq_send_result *result, const struct ledgermq_error *error)
{
    struct request_future *future = context;
    (void)result;
    if (error != NULL && !future->ended)
        end(future, NULL, error);
    release(future);
}

/* --- before it is sent: routes ---- */

static void start_send(struct request_future *future)
{
    struct send *send = future->send;
    future->send = NULL;
    send_start(&send->task);
}

static void reply_topic_routed(struct route_waiter *waiter, int rv, const char *cause)
{
    (void)rv;
    (void)cause; /* without that route the reply can still come through the brokers that are known */
    start_send((struct request_future *)((char *)waiter - offsetof(struct request_future, waiter)));
}

static void greet_reply_brokers(struct request_future *future)
{
    struct ledgermq_client *client = future->producer->client;
    const struct topic_route *route = route_table_get(client->routes, future->topic);
    const char *cluster = route == NULL || route->broker_count == 0 ? NULL : route->brokers[0].cluster;
    char topic[LEDGERMQ_TOPIC_MAX + 1];
    int64_t now = remoting_client_now_ms(client->remoting);
    int size = snprintf(topic, sizeof topic, "%s%s", cluster == NULL ? "" : cluster, TOPIC_REPLY_POSTFIX);
    if (cluster == NULL || size >= (int)sizeof topic || route_table_get(client->routes, topic) != NULL ||
        now < client->reply_route_again_ms) {
        start_send(future);
        return;
    }
    client->reply_route_again_ms = now + REPLY_ROUTE_AGAIN_MS;
    future->waiter.done = reply_topic_routed;
    if (route_table_refresh(client->routes, topic, NULL, 0, NULL, &future->waiter) != 0)
        start_send(future);
}

static void topic_routed(struct route_waiter *waiter, int rv, const char *cause)
{
    (void)rv;
    (void)cause; /* a failure is the send's to tell */
    greet_reply_brokers((struct request_future *)((char *)waiter - offsetof(struct request_future, waiter)));
}

static void request_run(struct remoting_task *task)
{
    struct request_future *future = (struct request_future *)((char *)task - offsetof(struct request_future, task));
    struct ledgermq_producer *producer = future->producer;
    struct ledgermq_client *client = producer->client;
    HASH_ADD_STR(client->requests, id, future);
    future->deadline.run = expired;
    remoting_client_delay(client->remoting, &future->deadline, future->timeout_ms);
    if (route_table_get(client->routes, future->topic) != NULL) {
        greet_reply_brokers(future);
        return;
    }
    future->waiter.done = topic_routed;
    if (route_table_refresh(client->routes, future->topic, producer->options.create_topic_key,
                            producer->options.queues_of_new_topic, NULL, &future->waiter) != 0)
        start_send(future);
}

static int request_post(struct ledgermq_producer *producer, const struct ledgermq_message *message, int timeout_ms,
                        future_done done, void *context, struct ledgermq_error *error)
{
    char ttl[16];
    uint64_t random[2];
    if (timeout_ms < 0)
        return client_error_text(error, LEDGERMQ_INVALID, 0, "a time-out is not negative");
    struct request_future *future = calloc(1, sizeof *future);
    if (future == NULL)
        return client_error_text(error, LEDGERMQ_NO_MEMORY, 0, "out of memory");
    if (getrandom(random, sizeof random, 0) != sizeof random) {
        free(future);
        return client_error_text(error, LEDGERMQ_NO_MEMORY, 0, "the system gives no random numbers");
    }
    snprintf(future->id, sizeof future->id, "%016llx%016llx", (unsigned long long)random[0],
             (unsigned long long)random[1]);
    future->producer = producer;
    future->done = done;
    future->context = context;
    future->timeout_ms = timeout_ms > 0 ? timeout_ms : producer->options.send_timeout_ms;
    future->holders = 2;
    future->task.run = request_run;
    snprintf(ttl, sizeof ttl, "%d", future->timeout_ms);
    const struct ledgermq_property own[] = {
        {"CORRELATION_ID", future->id}, {"REPLY_TO_CLIENT", producer->client->id}, {"TTL", ttl}};
    struct ledgermq_send_options options = {.timeout_ms = future->timeout_ms};
    struct send_wish wish = {.messages = message,
                             .count = 1,
                             .options = &options,
                             .own = own,
                             .own_count = 3,
                             .mode = LEDGERMQ_ASYNC,
                             .done = sent,
                             .context = future};
    int rv = producer_charge(producer, sizeof *future, error);
    if (rv != LEDGERMQ_OK) {
        free(future);
        return rv;
    }
    rv = send_make(producer, &wish, &future->send, error);
    if (rv != LEDGERMQ_OK) {
        producer_discharge(producer, sizeof *future);
        free(future);
        return rv;
    }
    snprintf(future->topic, sizeof future->topic, "%s", future->send->topic);
    remoting_client_post(producer->client->remoting, &future->task);
    return LEDGERMQ_OK;
}

/* --- the public functions ---- */

struct sync_request {
    struct ledgermq_pull_result **reply;
    struct ledgermq_error *error;
    int code;
    uv_sem_t done;
};

static void sync_done(void *context, struct stored_messages *reply, const struct ledgermq_error *error)
{
    struct sync_request *sync = context;
    if (reply != NULL)
        *sync->reply = &reply->result;
    if (error != NULL && sync->error != NULL)
        *sync->error = *error;
    sync->code = error == NULL ? LEDGERMQ_OK : error->code;
    uv_sem_post(&sync->done);
}

int ledgermq_request(struct ledgermq_producer *producer, const struct ledgermq_message *message, int timeout_ms,
                     struct ledgermq_pull_result **reply, struct ledgermq_error *error)
{
    struct sync_request sync = {.reply = reply, .error = error};
    if (remoting_client_on_loop(producer->client->remoting))
        return client_error_text(error, LEDGERMQ_INVALID, 0,
                                 "a call back may not wait for a reply: use ledgermq_request_async");
    if (uv_sem_init(&sync.done, 0) != 0)
        return client_error_text(error, LEDGERMQ_NO_MEMORY, 0, "out of memory");
    int rv = request_post(producer, message, timeout_ms, sync_done, &sync, error);
    if (rv == LEDGERMQ_OK) {
        uv_sem_wait(&sync.done);
        rv = sync.code;
    }
    uv_sem_destroy(&sync.done);
    return rv;
}

struct async_request {
    ledgermq_request_done done;
    void *context;
};

static void async_done(void *context, struct stored_messages *reply, const struct ledgermq_error *error)
{
    struct async_request *async = context;
    async->done(async->context, reply == NULL ? NULL : &reply->result.messages[0], error);
    stored_messages_free(reply);
    free(async);
}

int ledgermq_request_async(struct ledgermq_producer *producer, const struct ledgermq_message *message,
                           int timeout_ms, ledgermq_request_done done, void *context, struct ledgermq_error *error)
{
    if (done == NULL)
        return client_error_text(error, LEDGERMQ_INVALID, 0, "an asynchronous request needs a call back");
    struct async_request *async = malloc(sizeof *async);
    if (async == NULL)
        return client_error_text(error, LEDGERMQ_NO_MEMORY, 0, "out of memory");
    *async = (struct async_request){done, context};
    int rv = request_post(producer, message, timeout_ms, async_done, async, error);
    if (rv != LEDGERMQ_OK)
        free(async);
    return rv;
}

/* What a reply is made of, besides what the application says (MessageUtil#createReplyMessage). */
struct reply_parts {
    char topic[LEDGERMQ_TOPIC_MAX + 1];
    struct ledgermq_property own[4];
    struct ledgermq_message message;
};

static int make_reply(const struct ledgermq_stored_message *request, const struct ledgermq_message *reply,
                      struct reply_parts *parts, struct ledgermq_error *error)
{
    static const char *const names[] = {"CLUSTER", "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL"};
    const char *values[4];
    for (size_t i = 0; i < 4; i++) {
        values[i] = ledgermq_message_property(request, names[i]);
        if (values[i] == NULL)
            return client_error_text(error, LEDGERMQ_INVALID, 0,
                                     "message %s of topic %s is no request: it has no property %s",
                                     request->message_id, request->topic, names[i]);
    }
    if (snprintf(parts->topic, sizeof parts->topic, "%s%s", values[0], TOPIC_REPLY_POSTFIX) >=
        (int)sizeof parts->topic)
        return client_error_text(error, LEDGERMQ_INVALID, 0,
                                 "the cluster name %.60s... is too long for a reply topic", values[0]);
    parts->own[0] = (struct ledgermq_property){"MSG_TYPE", "reply"};
    for (size_t i = 1; i < 4; i++)
        parts->own[i] = (struct ledgermq_property){names[i], values[i]};
    parts->message = *reply;
    parts->message.topic = parts->topic;
    return LEDGERMQ_OK;
}

static struct send_wish reply_wish(const struct reply_parts *parts)
{
    return (struct send_wish){.messages = &parts->message,
                              .count = 1,
                              .own = parts->own,
                              .own_count = 4,
                              .request_code = REQUEST_SEND_REPLY_MESSAGE_V2};
}

int ledgermq_reply(struct ledgermq_producer *producer, const struct ledgermq_stored_message *request,
                   const struct ledgermq_message *reply, struct ledgermq_send_result *result,
                   struct ledgermq_error *error)
{
    struct reply_parts parts;
    int rv = make_reply(request, reply, &parts, error);
    if (rv != LEDGERMQ_OK)
        return rv;
    struct send_wish wish = reply_wish(&parts);
    return send_and_wait(producer, &wish, result, error);
}

int ledgermq_reply_async(struct ledgermq_producer *producer, const struct ledgermq_stored_message *request,
                         const struct ledgermq_message *reply, ledgermq_send_done done, void *context,
                         struct ledgermq_error *error)
{
    struct reply_parts parts;
    if (done == NULL)
        return client_error_text(error, LEDGERMQ_INVALID, 0, "an asynchronous send needs a call back");
    int rv = make_reply(request, reply, &parts, error);
    if (rv != LEDGERMQ_OK)
        return rv;
    struct send_wish wish = reply_wish(&parts);
    wish.mode = LEDGERMQ_ASYNC;
    wish.done = done;
    wish.context = context;
    return send_post(producer, &wish, error);
}

/* --- the reply arrives ---- */

static struct stored_messages *read_reply(const struct ledgermq_client *client,
                                          const struct remoting_command *request)
{
    struct reply_message_request_header header;
    struct remoting_response response;
    struct stored_messages *messages = stored_messages_new();
    if (messages == NULL || remoting_response_keep(request, &response) != 0)
        goto free_messages;
    if (reply_message_request_header_decode(&response.command, &header, NULL) != 0) {
        remoting_response_close(&response);
        goto free_messages;
    }
    struct message_record record = {
        .queue_id = header.queue_id,
        .flag = header.flag,
        .sys_flag = header.sys_flag,
        .born_timestamp_ms = header.born_timestamp_ms,
        .store_timestamp_ms = header.store_timestamp_ms,
        .reconsume_times = header.reconsume_times,
        .body = response.command.body,
        .topic = header.topic,
        .properties = header.properties,
    };
    message_host_parse(header.born_host, &record.born_host);
    message_host_parse(header.store_host, &record.store_host);
    if (stored_messages_add_record(messages, &response, &record) != 0 ||
        !stored_messages_unwrap(messages, client->name_space))
        goto free_messages;
    return messages;

free_messages:
    stored_messages_free(messages);
    return NULL;
}

void request_reply_take(void *context, const struct remoting_command *request, const char *address,
                        const struct remoting_origin *origin)
{
    struct ledgermq_client *client = context;
    struct request_future *future = NULL;
    struct stored_messages *reply = read_reply(client, request);
    const char *remark = "the reply cannot be read";
    (void)address;
    if (reply != NULL) {
        const char *id = ledgermq_message_property(&reply->result.messages[0], "CORRELATION_ID");
        remark = "nobody waits for the reply";
        if (id != NULL)
            HASH_FIND_STR(client->requests, id, future);
    }
    remoting_client_answer(client->remoting, origin, future != NULL ? RESPONSE_SUCCESS : RESPONSE_SYSTEM_ERROR,
                           future != NULL ? NULL : remark);
    if (future != NULL)
        end(future, reply, NULL);
    else
        stored_messages_free(reply);
}

/* --- the end ---- */

struct stop_task {
    struct remoting_task task;
    struct ledgermq_producer *producer;
    uv_sem_t done;
};

static void stop_run(struct remoting_task *task)
{
    struct stop_task *stop = (struct stop_task *)task;
    struct request_future *future, *next;
    HASH_ITER(hh, stop->producer->client->requests, future, next)
    {
        if (future->producer == stop->producer)
            end_with(future, LEDGERMQ_STOPPED, "the producer is being freed");
    }
    uv_sem_post(&stop->done);
}

void request_futures_stop(struct ledgermq_producer *producer)
{
    struct stop_task stop = {.task.run = stop_run, .producer = producer};
    remoting_client_post_and_wait(producer->client->remoting, &stop.task, &stop.done);
}
