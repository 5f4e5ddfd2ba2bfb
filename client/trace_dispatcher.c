#include "client/trace_dispatcher.h"

#include <stdio.h>
#include <stdlib.h>

#include "proto/topic_validator.h"

#define CONTENT_SEPARATOR "\001"
#define RECORD_SEPARATOR "\002"
#define DEFAULT_REGION "DefaultRegion"
/* A message of the trace topic takes so much at most, and what is gathered leaves so soon. */
#define TRACE_RECORDS_MAX 100u
#define TRACE_BODY_MAX 120000u
#define TRACE_KEYS_MAX 8192u
#define TRACE_FLUSH_MS 20
#define TRACE_WAITING_MAX 2048u

struct trace_dispatcher {
    struct ledgermq_producer *producer; /* sends the traces */
    char *topic;
    /* loop thread only */
    struct remoting_delay flush;
    struct buffer body, keys;
    unsigned count;
};

/* A text as one field: the separators may not come in. */
static void append_field(struct buffer *out, const char *text)
{
    buffer_append_text(out, text == NULL ? "" : text);
    buffer_append_text(out, CONTENT_SEPARATOR);
}

static void dropped(void *context, const struct ledgermq_send_result *result, const struct ledgermq_error *error)
{
    (void)context;
    (void)result;
    (void)error;
}

static void flush(struct trace_dispatcher *dispatcher)
{
    remoting_client_delay_cancel(&dispatcher->flush);
    if (dispatcher->count > 0 && !dispatcher->body.failed && !dispatcher->keys.failed) {
        buffer_append_u8(&dispatcher->keys, 0);
        struct ledgermq_message message = {.topic = dispatcher->topic,
                                           .body = dispatcher->body.data,
                                           .body_size = dispatcher->body.size,
                                           .keys = dispatcher->keys.failed ? NULL : (char *)dispatcher->keys.data};
        ledgermq_send_async(dispatcher->producer, &message, NULL, dropped, NULL, NULL);
    }
    buffer_clear(&dispatcher->body);
    buffer_clear(&dispatcher->keys);
    dispatcher->body.failed = dispatcher->keys.failed = false;
    dispatcher->count = 0;
}

static void flush_due(struct remoting_delay *delay)
{
    flush((struct trace_dispatcher *)((char *)delay - offsetof(struct trace_dispatcher, flush)));
}

/* A record was added. */
static void gathered(struct trace_dispatcher *dispatcher)
{
    dispatcher->count++;
    if (dispatcher->count >= TRACE_RECORDS_MAX || dispatcher->body.size >= TRACE_BODY_MAX ||
        dispatcher->keys.size >= TRACE_KEYS_MAX)
        flush(dispatcher);
    else if (!dispatcher->flush.armed)
        remoting_client_delay(dispatcher->producer->client->remoting, &dispatcher->flush, TRACE_FLUSH_MS);
}

void trace_dispatcher_sent(struct trace_dispatcher *dispatcher, const struct send *send,
                           const struct ledgermq_send_result *result, const struct remoting_command *answer)
{
    struct slice region = remoting_ext(answer, "MSG_REGION");
    struct remoting_client *remoting = dispatcher->producer->client->remoting;
    int64_t took = remoting_client_now_ms(remoting) - send->sent_ms;
    if (slice_equal_text(remoting_ext(answer, "TRACE_ON"), "false"))
        return;
    if (region.size == 0)
        region = SLICE_LITERAL(DEFAULT_REGION);
    struct buffer *body = &dispatcher->body, *keys = &dispatcher->keys;
    append_field(body, "Pub");
    buffer_append_format(body, "%lld" CONTENT_SEPARATOR, (long long)(client_clock_ms() - took));
    buffer_append_slice(body, region);
    buffer_append_text(body, CONTENT_SEPARATOR);
    append_field(body, send->producer->options.group);
    append_field(body, result->queue.topic);
    append_field(body, result->message_id);
    append_field(body, send->tags);
    append_field(body, send->keys);
    append_field(body, send->address);
    buffer_append_format(body, "%zu" CONTENT_SEPARATOR "%lld" CONTENT_SEPARATOR "%d" CONTENT_SEPARATOR,
                         send->body.size, (long long)took, send->message_type);
    append_field(body, result->offset_message_id);
    buffer_append_text(body,
                       result->status == LEDGERMQ_SEND_OK ? "true" RECORD_SEPARATOR : "false" RECORD_SEPARATOR);
    buffer_append_format(keys, "%s%s%s%s", keys->size > 0 ? " " : "", result->message_id,
                         send->keys == NULL ? "" : " ", send->keys == NULL ? "" : send->keys);
    gathered(dispatcher);
}

struct ended_task {
    struct remoting_task task;
    struct trace_dispatcher *dispatcher;
    struct buffer body, keys;
};

static void ended_free(struct ended_task *ended)
{
    buffer_close(&ended->body);
    buffer_close(&ended->keys);
    free(ended);
}

static void ended_run(struct remoting_task *task)
{
    struct ended_task *ended = (struct ended_task *)task;
    struct trace_dispatcher *dispatcher = ended->dispatcher;
    if (dispatcher->keys.size > 0)
        buffer_append_text(&dispatcher->keys, " ");
    buffer_append_slice(&dispatcher->body, buffer_slice(&ended->body));
    buffer_append_slice(&dispatcher->keys, buffer_slice(&ended->keys));
    ended_free(ended);
    gathered(dispatcher);
}

void trace_dispatcher_ended(struct trace_dispatcher *dispatcher, const struct ledgermq_producer *producer,
                            const struct trace_transaction *transaction)
{
    struct ended_task *ended = calloc(1, sizeof *ended);
    if (ended == NULL)
        return;
    ended->task.run = ended_run;
    ended->dispatcher = dispatcher;
    buffer_init(&ended->body, 0);
    buffer_init(&ended->keys, 0);
    append_field(&ended->body, "EndTransaction");
    buffer_append_format(&ended->body, "%lld" CONTENT_SEPARATOR, (long long)client_clock_ms());
    append_field(&ended->body, DEFAULT_REGION);
    append_field(&ended->body, producer->options.group);
    append_field(&ended->body, transaction->topic);
    append_field(&ended->body, transaction->message_id);
    append_field(&ended->body, transaction->tags);
    append_field(&ended->body, transaction->keys);
    append_field(&ended->body, transaction->broker_address);
    buffer_append_format(&ended->body, "%d" CONTENT_SEPARATOR, LEDGERMQ_COMMIT_MESSAGE);
    append_field(&ended->body, transaction->transaction_id);
    append_field(&ended->body,
                 transaction->state == LEDGERMQ_TRANSACTION_COMMIT ? "COMMIT_MESSAGE" : "ROLLBACK_MESSAGE");
    buffer_append_text(&ended->body, transaction->from_check ? "true" RECORD_SEPARATOR : "false" RECORD_SEPARATOR);
    buffer_append_format(&ended->keys, "%s%s%s", transaction->message_id, transaction->keys == NULL ? "" : " ",
                         transaction->keys == NULL ? "" : transaction->keys);
    if (ended->body.failed || ended->keys.failed)
        ended_free(ended);
    else
        remoting_client_post(dispatcher->producer->client->remoting, &ended->task);
}

int trace_dispatcher_new(struct ledgermq_client *client, const char *group, const char *topic,
                         struct trace_dispatcher **out, struct ledgermq_error *error)
{
    struct ledgermq_producer_options options;
    char name[LEDGERMQ_TOPIC_MAX + 1];
    struct trace_dispatcher *dispatcher = calloc(1, sizeof *dispatcher);
    if (dispatcher == NULL)
        return client_error_text(error, LEDGERMQ_NO_MEMORY, 0, "out of memory");
    snprintf(name, sizeof name, "_INNER_TRACE_PRODUCER-%.*s-PRODUCE", (int)sizeof name - 40, group);
    ledgermq_producer_options_init(&options);
    options.group = name;
    options.send_timeout_ms = 5000;
    options.max_waiting = TRACE_WAITING_MAX;
    dispatcher->topic = strdup(topic == NULL ? TOPIC_TRACE : topic);
    dispatcher->flush.run = flush_due;
    buffer_init(&dispatcher->body, 2u * TRACE_BODY_MAX + MESSAGE_PROPERTIES_MAX);
    buffer_init(&dispatcher->keys, TRACE_KEYS_MAX + 2u * MESSAGE_PROPERTIES_MAX);
    int rv = dispatcher->topic == NULL ? client_error_text(error, LEDGERMQ_NO_MEMORY, 0, "out of memory")
                                       : ledgermq_producer_new(client, &options, &dispatcher->producer, error);
    if (rv != LEDGERMQ_OK) {
        free(dispatcher->topic);
        free(dispatcher);
        return rv;
    }
    *out = dispatcher;
    return LEDGERMQ_OK;
}

struct flush_task {
    struct remoting_task task;
    struct trace_dispatcher *dispatcher;
    uv_sem_t done;
};

static void flush_run(struct remoting_task *task)
{
    struct flush_task *last = (struct flush_task *)task;
    flush(last->dispatcher);
    uv_sem_post(&last->done);
}

void trace_dispatcher_free(struct trace_dispatcher *dispatcher)
{
    if (dispatcher == NULL)
        return;
    struct flush_task last = {.task.run = flush_run, .dispatcher = dispatcher};
    remoting_client_post_and_wait(dispatcher->producer->client->remoting, &last.task, &last.done);
    ledgermq_producer_free(dispatcher->producer);
    buffer_close(&dispatcher->body);
    buffer_close(&dispatcher->keys);
    free(dispatcher->topic);
    free(dispatcher);
}
