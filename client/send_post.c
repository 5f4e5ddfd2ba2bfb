/* From what a caller wants to a struct send: checks, ids, properties, compression, one block of memory. Runs
 * on the caller's thread. */
#include <stdlib.h>

#include "client/compression.h"
#include "client/namespace_util.h"
#include "client/producer_message.h"
#include "client/send.h"
#include "proto/request_code.h"
#include "proto/response_code.h"
#include "proto/topic_validator.h"

int producer_charge(struct ledgermq_producer *producer, size_t bytes, struct ledgermq_error *error)
{
    int rv = LEDGERMQ_OK;
    uv_mutex_lock(&producer->lock);
    if (producer->closing)
        rv = client_error_text(error, LEDGERMQ_STOPPED, 0, "the producer is being freed");
    else if (producer->waiting >= producer->options.max_waiting)
        rv = client_error_text(error, LEDGERMQ_BUSY, 0,
                               "%zu sends are unanswered (max_waiting): wait for their call backs",
                               producer->waiting);
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

void producer_discharge(struct ledgermq_producer *producer, size_t bytes)
{
    uv_mutex_lock(&producer->lock);
    producer->waiting--;
    producer->waiting_bytes -= bytes;
    if (producer->waiting == 0)
        uv_cond_broadcast(&producer->idle);
    uv_mutex_unlock(&producer->lock);
}

/* What is sent, in parts that live outside the struct send until all is copied into it. */
struct parts {
    char topic[NAMESPACED_NAME_MAX];
    char id[MESSAGE_ID_TEXT_MAX]; /* of the first message */
    int64_t now_ms;
    int32_t sys_flag;
    int32_t request_code;
    struct buffer properties; /* of the request */
    struct buffer batch;      /* the encoded batch */
    void *compressed;
    struct slice body; /* of the request: the message's own bytes, or one of the above */
};

static void parts_close(struct parts *parts)
{
    free(parts->compressed);
    buffer_close(&parts->properties);
    buffer_close(&parts->batch);
}

static int check(struct ledgermq_producer *producer, const struct send_wish *wish, struct parts *parts,
                 struct ledgermq_error *error)
{
    struct error cause = {0};
    if (wish->count == 0)
        return client_error_text(error, LEDGERMQ_INVALID, 0, "there is no message to send");
    for (size_t i = 0; i < wish->count; i++) {
        int rv = producer_message_check(&wish->messages[i], producer->options.max_body_size, error);
        if (rv != LEDGERMQ_OK)
            return rv;
    }
    if (wish->count > 1) {
        int rv = producer_message_check_batch(wish->messages, wish->count, error);
        if (rv != LEDGERMQ_OK)
            return rv;
    }
    namespace_wrap(producer->client->name_space, wish->messages[0].topic, parts->topic);
    if (topic_validate(slice_of_text(parts->topic), &cause) != 0)
        return client_error_text(error, LEDGERMQ_INVALID, 0, "topic %.150s: %.250s", parts->topic, cause.message);
    const struct ledgermq_queue *queue = wish->options == NULL ? NULL : wish->options->queue;
    if (queue != NULL && (queue->queue_id < 0 || queue->broker_name[0] == '\0'))
        return client_error_text(error, LEDGERMQ_INVALID, 0, "the queue has no broker name or a negative id");
    if (wish->options != NULL &&
        (wish->options->timeout_ms < 0 || (queue != NULL && wish->options->selector != NULL)))
        return client_error_text(error, LEDGERMQ_INVALID, 0,
                                 "send options: a time-out is not negative, and a queue excludes a selector");
    return LEDGERMQ_OK;
}

static int too_long(const struct buffer *properties, struct ledgermq_error *error)
{
    if (properties->size <= MESSAGE_PROPERTIES_MAX)
        return LEDGERMQ_OK;
    return client_error_text(error, LEDGERMQ_INVALID, RESPONSE_MESSAGE_ILLEGAL,
                             "the properties have %zu bytes, %u are the most", properties->size,
                             MESSAGE_PROPERTIES_MAX);
}

static void next_id(struct ledgermq_producer *producer, const struct send_wish *wish, struct parts *parts, size_t i,
                    char id[MESSAGE_ID_TEXT_MAX])
{
    message_client_id_setter_make(&producer->client->ids, parts->now_ms, id);
    if (i == 0)
        memcpy(parts->id, id, sizeof parts->id);
    if (wish->options != NULL && wish->options->message_ids != NULL)
        memcpy(wish->options->message_ids[i].text, id, MESSAGE_ID_TEXT_MAX);
}

/* A batch: each member brings its own properties; the request's own say only what holds for all. */
static int encode_batch(struct ledgermq_producer *producer, const struct send_wish *wish, struct parts *parts,
                        const struct ledgermq_property *own, size_t own_count, struct ledgermq_error *error)
{
    struct buffer properties;
    int rv = LEDGERMQ_OK;
    buffer_init(&properties, 0);
    for (size_t i = 0; i < wish->count && rv == LEDGERMQ_OK; i++) {
        const struct ledgermq_message *message = &wish->messages[i];
        char id[MESSAGE_ID_TEXT_MAX];
        next_id(producer, wish, parts, i, id);
        buffer_clear(&properties);
        producer_message_properties(&properties, message, id, own, own_count);
        rv = too_long(&properties, error);
        struct message_batch_member member = {.flag = message->flag,
                                              .body = slice_of(message->body, message->body_size),
                                              .properties = buffer_slice(&properties)};
        if (rv == LEDGERMQ_OK)
            message_batch_append(&parts->batch, &member);
        if (rv == LEDGERMQ_OK && parts->batch.size > producer->options.max_body_size)
            rv = client_error_text(error, LEDGERMQ_INVALID, RESPONSE_MESSAGE_ILLEGAL,
                                   "the batch has more than %zu bytes (max_body_size) from message %zu on: see "
                                   "ledgermq_batch_split()",
                                   producer->options.max_body_size, i);
    }
    parts->batch.failed = parts->batch.failed || properties.failed;
    buffer_close(&properties);
    message_property_append(&parts->properties, 0, SLICE_LITERAL("WAIT"),
                            wish->messages[0].no_wait ? SLICE_LITERAL("false") : SLICE_LITERAL("true"));
    parts->body = buffer_slice(&parts->batch);
    parts->request_code = REQUEST_SEND_BATCH_MESSAGE;
    return rv;
}

static int encode(struct ledgermq_producer *producer, const struct send_wish *wish, struct parts *parts,
                  struct ledgermq_error *error)
{
    static const enum compression_type types[] = {
        [LEDGERMQ_ZLIB] = COMPRESSION_ZLIB, [LEDGERMQ_LZ4] = COMPRESSION_LZ4, [LEDGERMQ_ZSTD] = COMPRESSION_ZSTD};
    const struct ledgermq_message *message = &wish->messages[0];
    const char *name_space = producer->client->name_space;
    struct ledgermq_property own[8] = {{"INSTANCE_ID", name_space}};
    size_t own_count = name_space[0] != '\0' ? 1 : 0, size = message->body_size;
    for (size_t i = 0; i < wish->own_count && own_count < sizeof own / sizeof own[0]; i++)
        own[own_count++] = wish->own[i];
    if (wish->count > 1)
        return encode_batch(producer, wish, parts, own, own_count, error);
    char id[MESSAGE_ID_TEXT_MAX];
    next_id(producer, wish, parts, 0, id);
    producer_message_properties(&parts->properties, message, id, own, own_count);
    if (size >= producer->options.compress_over)
        parts->compressed = compression_compress(types[producer->options.compression],
                                                 producer->options.compression_level, message->body, &size);
    parts->body = slice_of(parts->compressed != NULL ? parts->compressed : message->body, size);
    parts->sys_flag |= parts->compressed != NULL ? MESSAGE_COMPRESSED | types[producer->options.compression] : 0;
    return too_long(&parts->properties, error);
}

static char *put(char **at, const void *data, size_t size)
{
    char *place = memcpy(*at, data, size);
    *at += size;
    return place;
}

static size_t text_size(const char *text)
{
    return text == NULL || text[0] == '\0' ? 0 : strlen(text) + 1;
}

_Static_assert(_Alignof(struct ledgermq_queue) <= _Alignof(int32_t) &&
                   offsetof(struct send, text) % _Alignof(struct ledgermq_queue) == 0,
               "a queue must fit where struct send's texts begin");

static struct send *build(struct ledgermq_producer *producer, const struct send_wish *wish, struct parts *parts,
                          size_t *total)
{
    static const struct ledgermq_send_options none;
    const struct ledgermq_send_options *options = wish->options == NULL ? &none : wish->options;
    const struct ledgermq_message *message = &wish->messages[0];
    size_t tags_size = text_size(message->tags), keys_size = text_size(message->keys);
    size_t queue_size = options->queue != NULL || options->selector != NULL ? sizeof *options->queue : 0;
    size_t topic_size = strlen(parts->topic) + 1;
    *total = sizeof(struct send) + queue_size + topic_size + tags_size + keys_size + parts->properties.size +
             parts->body.size;
    struct send *send = parts->properties.failed || parts->batch.failed ? NULL : malloc(*total);
    if (send == NULL)
        return NULL;
    int timeout_ms = options->timeout_ms > 0 ? options->timeout_ms : producer->options.send_timeout_ms;
    *send = (struct send){
        .task.run = send_start,
        .call.done = send_answered,
        .producer = producer,
        .done = wish->done,
        .context = wish->context,
        .selector = options->selector,
        .selector_argument = options->selector_argument,
        .request_code = parts->request_code,
        .mode = wish->mode,
        .message_type = wish->message_type == LEDGERMQ_NORMAL_MESSAGE && message->delay_level > 0
                            ? LEDGERMQ_DELAYED_MESSAGE
                            : wish->message_type,
        .message_count = wish->count,
        .deadline_ms = client_monotonic_ms() + timeout_ms,
        .timeout_ms = timeout_ms,
        .flag = wish->count > 1 ? 0 : message->flag,
        .sys_flag = parts->sys_flag,
        .born_timestamp_ms = parts->now_ms,
        .charged = *total,
    };
    send->call.context = send;
    memcpy(send->message_id, parts->id, sizeof send->message_id);
    /* The queue goes first: text is aligned for it. */
    char *at = send->text;
    if (options->queue != NULL) {
        send->wanted = (struct ledgermq_queue *)(void *)put(&at, options->queue, queue_size);
    } else if (options->selector != NULL) {
        send->choice = (struct ledgermq_queue *)(void *)at;
        at += queue_size;
    }
    send->topic = put(&at, parts->topic, topic_size);
    send->tags = tags_size == 0 ? NULL : put(&at, message->tags, tags_size);
    send->keys = keys_size == 0 ? NULL : put(&at, message->keys, keys_size);
    send->properties = slice_of(put(&at, parts->properties.data, parts->properties.size), parts->properties.size);
    send->body = slice_of(put(&at, parts->body.data, parts->body.size), parts->body.size);
    return send;
}

int send_make(struct ledgermq_producer *producer, const struct send_wish *wish, struct send **out,
              struct ledgermq_error *error)
{
    struct parts parts = {
        .now_ms = client_clock_ms(),
        .sys_flag = wish->sys_flag,
        .request_code = wish->request_code != 0 ? wish->request_code : REQUEST_SEND_MESSAGE_V2,
    };
    size_t total = 0;
    int rv = check(producer, wish, &parts, error);
    if (rv != LEDGERMQ_OK)
        return rv;
    buffer_init(&parts.properties, 0);
    buffer_init(&parts.batch, 0);
    rv = encode(producer, wish, &parts, error);
    if (rv == LEDGERMQ_OK) {
        struct send *send = build(producer, wish, &parts, &total);
        rv = send == NULL
                 ? client_error_text(error, LEDGERMQ_NO_MEMORY, 0, "no memory for a message of %zu bytes", total)
                 : producer_charge(producer, total, error);
        if (rv != LEDGERMQ_OK)
            free(send);
        else
            *out = send;
    }
    parts_close(&parts);
    return rv;
}

int send_post(struct ledgermq_producer *producer, const struct send_wish *wish, struct ledgermq_error *error)
{
    struct send *send;
    int rv = send_make(producer, wish, &send, error);
    if (rv == LEDGERMQ_OK)
        remoting_client_post(producer->client->remoting, &send->task);
    return rv;
}

struct waiter {
    struct ledgermq_send_result *result;
    struct ledgermq_error *error;
    int code;
    uv_sem_t done;
};

static void wait_done(void *context, const struct ledgermq_send_result *result, const struct ledgermq_error *error)
{
    struct waiter *waiter = context;
    if (result != NULL && waiter->result != NULL)
        *waiter->result = *result;
    if (error != NULL && waiter->error != NULL)
        *waiter->error = *error;
    waiter->code = error == NULL ? LEDGERMQ_OK : error->code;
    uv_sem_post(&waiter->done);
}

int send_and_wait(struct ledgermq_producer *producer, struct send_wish *wish, struct ledgermq_send_result *result,
                  struct ledgermq_error *error)
{
    struct waiter waiter = {.result = result, .error = error};
    if (remoting_client_on_loop(producer->client->remoting))
        return client_error_text(error, LEDGERMQ_INVALID, 0,
                                 "a call back may not wait for a send: use a function whose name ends in _async");
    if (uv_sem_init(&waiter.done, 0) != 0)
        return client_error_text(error, LEDGERMQ_NO_MEMORY, 0, "out of memory");
    wish->mode = LEDGERMQ_SYNC;
    wish->done = wait_done;
    wish->context = &waiter;
    int rv = send_post(producer, wish, error);
    if (rv == LEDGERMQ_OK) {
        uv_sem_wait(&waiter.done);
        rv = waiter.code;
    }
    uv_sem_destroy(&waiter.done);
    return rv;
}
