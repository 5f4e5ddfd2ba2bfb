/* The producer: what ledgermq_send() and its relatives do on the caller's thread (DefaultMQProducer 4.9.8). */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/producer_message.h"
#include "client/send.h"
#include "proto/response_code.h"
#include "proto/topic_validator.h"

#define COMPRESSION_TYPE_ZLIB 0x300

const char *ledgermq_send_status_text(int status)
{
    static const char *const names[] = {"SEND_OK", "FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT",
                                        "SLAVE_NOT_AVAILABLE"};
    return status >= 0 && status < 4 ? names[status] : "UNKNOWN";
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
    int rv = producer_message_check(message, producer->options.max_body_size, error);
    if (rv != LEDGERMQ_OK)
        return rv;
    if (queue != NULL && (queue->queue_id < 0 || queue->broker_name[0] == '\0'))
        return client_error_text(error, LEDGERMQ_INVALID, 0, "the queue has no broker name or a negative id");
    char id[MESSAGE_ID_TEXT_MAX];
    struct buffer properties;
    int64_t now = client_clock_ms();
    message_client_id_setter_make(&producer->client->ids, now, id);
    buffer_init(&properties, 0);
    producer_message_properties(&properties, message, id);
    size_t body_size = message->body_size;
    void *compressed =
        body_size >= producer->options.compress_over ? producer_message_compress(message->body, &body_size) : NULL;
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
        .task.run = send_start,
        .call.done = send_answered,
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
