/* The lite pull consumer: queues are shared and read ahead as the push consumer's, and polls take what is there
 * (DefaultLitePullConsumerImpl 4.9.8).
 *
 * Between the loop thread and polls lies one list of batches, each of one queue. A poll takes a batch off the list, and
 * then asks the loop thread whether it still counts: after a seek, or when the queue went to another member, it does
 * not. What a poll returned is consumed when the next one begins.
 */
#include <stdio.h>
#include <stdlib.h>

#include "client/consumer.h"
#include "proto/request_code.h"
#include "proto/topic_validator.h"

enum { MODE_NONE, MODE_SUBSCRIBE, MODE_ASSIGN };

struct ready_batch {
    struct ready_batch *next;
    const struct assigned *assigned; /* to compare only */
    struct ledgermq_queue queue;
    unsigned generation;
    bool paused;
    size_t bytes;
    int64_t next_offset;
    struct stored_messages *messages;
};

struct ledgermq_lite_pull_consumer {
    struct consumer consumer;
};

static struct consumer *of(struct ledgermq_lite_pull_consumer *lite)
{
    return &lite->consumer;
}

/* --- loop thread ---- */

bool lite_full(const struct assigned *assigned)
{
    const struct consumer *consumer = assigned->consumer;
    return assigned->ready_count > (size_t)consumer->options.cache_messages_max ||
           assigned->ready_bytes > (size_t)consumer->options.cache_mib_max << 20 ||
           consumer->ready_total > consumer->messages_all_max;
}

void lite_skipped(struct assigned *assigned, int64_t next_offset)
{
    if (assigned->ready_count == 0)
        assigned->polled_offset = next_offset;
}

int lite_ready(struct assigned *assigned, struct stored_messages *messages, int64_t next_offset)
{
    struct consumer *consumer = assigned->consumer;
    struct ready_batch *batch = calloc(1, sizeof *batch);
    if (batch == NULL) {
        stored_messages_free(messages);
        return ERROR_NO_MEMORY;
    }
    batch->assigned = assigned;
    batch->queue = assigned->queue;
    batch->generation = atomic_load(&assigned->generation);
    batch->next_offset = next_offset;
    batch->messages = messages;
    messages->result.status = LEDGERMQ_FOUND;
    messages->result.next_offset = next_offset;
    for (size_t i = 0; i < messages->result.count; i++)
        batch->bytes += messages->messages[i].body_size;
    assigned->ready_count += messages->result.count;
    assigned->ready_bytes += batch->bytes;
    consumer->ready_total += messages->result.count;
    uv_mutex_lock(&consumer->ready_lock);
    *consumer->ready_end = batch;
    consumer->ready_end = &batch->next;
    uv_cond_signal(&consumer->ready_some);
    uv_mutex_unlock(&consumer->ready_lock);
    return 0;
}

static void batch_free(struct ready_batch *batch)
{
    stored_messages_free(batch->messages);
    free(batch);
}

void lite_forget(struct assigned *assigned)
{
    struct consumer *consumer = assigned->consumer;
    uv_mutex_lock(&consumer->ready_lock);
    for (struct ready_batch **at = &consumer->ready; *at != NULL;) {
        struct ready_batch *batch = *at;
        if (batch->assigned != assigned) {
            at = &batch->next;
            continue;
        }
        *at = batch->next;
        batch_free(batch);
    }
    consumer->ready_end = &consumer->ready;
    while (*consumer->ready_end != NULL)
        consumer->ready_end = &(*consumer->ready_end)->next;
    uv_mutex_unlock(&consumer->ready_lock);
    consumer->ready_total -= assigned->ready_count;
    assigned->ready_count = assigned->ready_bytes = 0;
    assigned->polled_offset = -1;
}

static void go_all(struct consumer *consumer)
{
    for (struct assigned *assigned = consumer->assigned; assigned != NULL; assigned = assigned->hh.next)
        assigned_go(assigned);
}

struct taking {
    struct ready_batch *batch;
    bool counts;
};

static void taken_run(struct consumer *consumer, void *argument)
{
    struct taking *taking = argument;
    const struct ready_batch *batch = taking->batch;
    struct assigned *assigned = consumer_assigned(consumer, &batch->queue);
    /* One that was dropped or has jumped was counted out by lite_forget(). */
    if (assigned == NULL || assigned != batch->assigned || atomic_load(&assigned->generation) != batch->generation)
        return;
    taking->counts = true;
    bool full = consumer->ready_total > consumer->messages_all_max;
    assigned->ready_count -= batch->messages->result.count;
    assigned->ready_bytes -= batch->bytes;
    consumer->ready_total -= batch->messages->result.count;
    assigned->polled_offset = batch->next_offset;
    assigned->last_consume_ms = client_clock_ms();
    if (full)
        go_all(consumer);
    else
        assigned_go(assigned);
}

static void note_polled(struct consumer *consumer)
{
    for (struct assigned *assigned = consumer->assigned; assigned != NULL; assigned = assigned->hh.next)
        if (assigned->polled_offset >= 0)
            offset_store_update(&consumer->offsets, &assigned->queue, assigned->polled_offset, false);
}

static void poll_begins(struct consumer *consumer, void *argument)
{
    (void)argument;
    int64_t now = client_monotonic_ms();
    if (!consumer->auto_commit)
        return;
    note_polled(consumer);
    if (now < consumer->next_commit_ms)
        return;
    consumer->next_commit_ms = now + consumer->auto_commit_ms;
    consumer_commit_all(consumer, NULL);
}

/* --- polls ---- */

static struct ready_batch *take(struct consumer *consumer)
{
    for (struct ready_batch **at = &consumer->ready; *at != NULL; at = &(*at)->next) {
        struct ready_batch *batch = *at;
        if (batch->paused)
            continue;
        *at = batch->next;
        if (batch->next == NULL)
            consumer->ready_end = at;
        return batch;
    }
    return NULL;
}

int ledgermq_lite_pull_poll(struct ledgermq_lite_pull_consumer *lite, int timeout_ms,
                            struct ledgermq_pull_result **result, struct ledgermq_error *error)
{
    struct consumer *consumer = of(lite);
    uint64_t deadline_ns = uv_hrtime() + (uint64_t)(timeout_ms > 0 ? timeout_ms : 0) * 1000000;
    if (consumer_may_wait(consumer, error) != LEDGERMQ_OK)
        return LEDGERMQ_INVALID;
    consumer_run(consumer, poll_begins, NULL);
    for (;;) {
        uint64_t now_ns = uv_hrtime();
        uv_mutex_lock(&consumer->ready_lock);
        struct taking taking = {.batch = take(consumer)};
        while (taking.batch == NULL && now_ns < deadline_ns) {
            uv_cond_timedwait(&consumer->ready_some, &consumer->ready_lock, deadline_ns - now_ns);
            now_ns = uv_hrtime();
            taking.batch = take(consumer);
        }
        uv_mutex_unlock(&consumer->ready_lock);
        if (taking.batch == NULL)
            return client_error_text(error, LEDGERMQ_TIMEOUT, 0, "no message within %d ms", timeout_ms);
        consumer_run(consumer, taken_run, &taking);
        if (!taking.counts) {
            batch_free(taking.batch);
            continue;
        }
        *result = &taking.batch->messages->result;
        free(taking.batch);
        return LEDGERMQ_OK;
    }
}

struct placing {
    const struct ledgermq_queue *queue;
    int64_t offset;
    bool paused;
    bool found;
};

static void seek_run(struct consumer *consumer, void *argument)
{
    struct placing *placing = argument;
    struct assigned *assigned = consumer_assigned(consumer, placing->queue);
    placing->found = assigned != NULL;
    if (assigned != NULL)
        assigned_jump(assigned, placing->offset);
}

static void pause_run(struct consumer *consumer, void *argument)
{
    struct placing *placing = argument;
    struct assigned *assigned = consumer_assigned(consumer, placing->queue);
    placing->found = assigned != NULL;
    if (assigned == NULL)
        return;
    assigned->paused = placing->paused;
    uv_mutex_lock(&consumer->ready_lock);
    for (struct ready_batch *batch = consumer->ready; batch != NULL; batch = batch->next)
        if (batch->assigned == assigned)
            batch->paused = placing->paused;
    uv_cond_broadcast(&consumer->ready_some);
    uv_mutex_unlock(&consumer->ready_lock);
    if (assigned->paused)
        assigned_halt(assigned);
    else
        assigned_go(assigned);
}

static int place(struct consumer *consumer, void (*run)(struct consumer *, void *), struct placing *placing,
                 struct ledgermq_error *error)
{
    if (placing->queue == NULL)
        return client_error_text(error, LEDGERMQ_INVALID, 0, "no queue is given");
    if (consumer_may_wait(consumer, error) != LEDGERMQ_OK)
        return LEDGERMQ_INVALID;
    const struct ledgermq_queue *shown = placing->queue;
    struct ledgermq_queue full = client_full_queue(consumer->client, shown);
    placing->queue = &full;
    consumer_run(consumer, run, placing);
    placing->queue = shown;
    if (placing->found)
        return LEDGERMQ_OK;
    return client_error_text(error, LEDGERMQ_NOT_FOUND, 0, "queue %d of topic %s at %s is not assigned to this consumer",
                             placing->queue->queue_id, placing->queue->topic, placing->queue->broker_name);
}

int ledgermq_lite_pull_seek(struct ledgermq_lite_pull_consumer *lite, const struct ledgermq_queue *queue,
                            int64_t offset, struct ledgermq_error *error)
{
    struct placing placing = {.queue = queue, .offset = offset};
    if (offset < 0)
        return client_error_text(error, LEDGERMQ_INVALID, 0, "an offset is not negative");
    return place(of(lite), seek_run, &placing, error);
}

static int seek_to_end_of(struct consumer *consumer, const struct ledgermq_queue *queue, int32_t code,
                          struct ledgermq_error *error)
{
    struct placing placing = {.queue = queue};
    int rv = client_offset_call(consumer->client, queue, code, NULL, NULL, NULL, NULL, &placing.offset, error);
    return rv == LEDGERMQ_OK ? place(consumer, seek_run, &placing, error) : rv;
}

int ledgermq_lite_pull_seek_to_begin(struct ledgermq_lite_pull_consumer *lite, const struct ledgermq_queue *queue,
                                     struct ledgermq_error *error)
{
    return seek_to_end_of(of(lite), queue, REQUEST_GET_MIN_OFFSET, error);
}

int ledgermq_lite_pull_seek_to_end(struct ledgermq_lite_pull_consumer *lite, const struct ledgermq_queue *queue,
                                   struct ledgermq_error *error)
{
    return seek_to_end_of(of(lite), queue, REQUEST_GET_MAX_OFFSET, error);
}

int ledgermq_lite_pull_offset_for_timestamp(struct ledgermq_lite_pull_consumer *lite,
                                            const struct ledgermq_queue *queue, int64_t timestamp_ms, int64_t *offset,
                                            struct ledgermq_error *error)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)timestamp_ms);
    return client_offset_call(of(lite)->client, queue, REQUEST_SEARCH_OFFSET_BY_TIMESTAMP, "timestamp", text, NULL,
                              NULL, offset, error);
}

int ledgermq_lite_pull_pause(struct ledgermq_lite_pull_consumer *lite, const struct ledgermq_queue *queue,
                             struct ledgermq_error *error)
{
    struct placing placing = {.queue = queue, .paused = true};
    return place(of(lite), pause_run, &placing, error);
}

int ledgermq_lite_pull_resume(struct ledgermq_lite_pull_consumer *lite, const struct ledgermq_queue *queue,
                              struct ledgermq_error *error)
{
    struct placing placing = {.queue = queue};
    return place(of(lite), pause_run, &placing, error);
}

/* --- offsets ---- */

static void commit_run(struct consumer *consumer, void *argument)
{
    struct commit_wait *wait = argument;
    note_polled(consumer);
    consumer_commit_all(consumer, wait);
    if (--wait->pending == 0)
        uv_sem_post(&wait->done);
}

int ledgermq_lite_pull_commit(struct ledgermq_lite_pull_consumer *lite, struct ledgermq_error *error)
{
    struct commit_wait wait = {.pending = 1, .error = error};
    if (consumer_may_wait(of(lite), error) != LEDGERMQ_OK)
        return LEDGERMQ_INVALID;
    if (uv_sem_init(&wait.done, 0) != 0)
        return client_error_text(error, LEDGERMQ_NO_MEMORY, 0, "out of memory");
    consumer_run(of(lite), commit_run, &wait);
    uv_sem_wait(&wait.done);
    uv_sem_destroy(&wait.done);
    return wait.code;
}

static void committed_run(struct consumer *consumer, void *argument)
{
    struct placing *placing = argument;
    placing->offset = offset_store_read(&consumer->offsets, placing->queue);
}

int ledgermq_lite_pull_committed(struct ledgermq_lite_pull_consumer *lite, const struct ledgermq_queue *queue,
                                 int64_t *offset, struct ledgermq_error *error)
{
    struct consumer *consumer = of(lite);
    struct placing placing = {0};
    if (queue == NULL || consumer_may_wait(consumer, error) != LEDGERMQ_OK)
        return LEDGERMQ_INVALID;
    struct ledgermq_queue full = client_full_queue(consumer->client, queue);
    placing.queue = &full;
    if (!consumer->broadcast)
        return client_offset_call(consumer->client, queue, REQUEST_QUERY_CONSUMER_OFFSET, "consumerGroup",
                                  consumer->options.group, NULL, NULL, offset, error);
    consumer_run(consumer, committed_run, &placing);
    if (placing.offset < 0)
        return client_error_text(error, LEDGERMQ_NOT_FOUND, 0, "no offset is stored for this queue");
    *offset = placing.offset;
    return LEDGERMQ_OK;
}

/* --- queues ---- */

static int set_mode(struct consumer *consumer, int mode, struct ledgermq_error *error)
{
    uv_mutex_lock(&consumer->client->lock);
    bool other = consumer->mode != MODE_NONE && consumer->mode != mode;
    if (!other)
        consumer->mode = mode;
    uv_mutex_unlock(&consumer->client->lock);
    return !other ? LEDGERMQ_OK
                  : client_error_text(error, LEDGERMQ_INVALID, 0,
                                      "a consumer either subscribes to topics or has queues assigned, not both");
}

int ledgermq_lite_pull_subscribe(struct ledgermq_lite_pull_consumer *lite, const char *topic, const char *expression,
                                 struct ledgermq_error *error)
{
    int rv = set_mode(of(lite), MODE_SUBSCRIBE, error);
    return rv == LEDGERMQ_OK ? consumer_subscribe(of(lite), topic, expression, error) : rv;
}

int ledgermq_lite_pull_unsubscribe(struct ledgermq_lite_pull_consumer *lite, const char *topic,
                                   struct ledgermq_error *error)
{
    return consumer_unsubscribe(of(lite), topic, error);
}

struct assigning {
    const struct ledgermq_queue *queues;
    size_t count;
};

static void assign_run(struct consumer *consumer, void *argument)
{
    const struct assigning *assigning = argument;
    consumer_apply(consumer, NULL, assigning->queues, assigning->count);
}

int ledgermq_lite_pull_assign(struct ledgermq_lite_pull_consumer *lite, const struct ledgermq_queue *queues,
                              size_t count, struct ledgermq_error *error)
{
    struct ledgermq_queue *full = malloc((count + 1) * sizeof *full);
    struct assigning assigning = {full, count};
    struct error cause = {0};
    int rv = LEDGERMQ_INVALID;
    if (full == NULL)
        return client_error_text(error, LEDGERMQ_NO_MEMORY, 0, "no memory for %zu queues", count);
    for (size_t i = 0; i < count; i++) {
        full[i] = client_full_queue(of(lite)->client, &queues[i]);
        if (topic_validate(slice_of_text(full[i].topic), &cause) == 0 && queues[i].broker_name[0] != '\0' &&
            queues[i].queue_id >= 0)
            continue;
        client_error_text(error, rv, 0, "queue %zu of the list is none: %s", i,
                          cause.message[0] != '\0' ? cause.message : "it has no broker name or a negative id");
        goto free_full;
    }
    if (consumer_may_wait(of(lite), error) != LEDGERMQ_OK || set_mode(of(lite), MODE_ASSIGN, error) != LEDGERMQ_OK)
        goto free_full;
    consumer_run(of(lite), assign_run, &assigning);
    rv = LEDGERMQ_OK;

free_full:
    free(full);
    return rv;
}

int ledgermq_lite_pull_assignment(struct ledgermq_lite_pull_consumer *lite, struct ledgermq_queue **queues,
                                  size_t *count, struct ledgermq_error *error)
{
    return consumer_queues(of(lite), queues, count, error);
}

int ledgermq_lite_pull_topic_queues(struct ledgermq_lite_pull_consumer *lite, const char *topic,
                                    struct ledgermq_queue **queues, size_t *count, struct ledgermq_error *error)
{
    if (consumer_may_wait(of(lite), error) != LEDGERMQ_OK)
        return LEDGERMQ_INVALID;
    return client_queues(of(lite)->client, topic, false, NULL, 0, queues, count, error);
}

/* --- life ---- */

void ledgermq_lite_pull_consumer_options_init(struct ledgermq_lite_pull_consumer_options *options)
{
    *options = (struct ledgermq_lite_pull_consumer_options){
        .pull_batch = 10,
        .cache_messages_max = 1000,
        .cache_mib_max = 100,
        .cache_messages_all_max = 10000,
        .auto_commit = true,
        .auto_commit_ms = 5000,
    };
}

int ledgermq_lite_pull_consumer_new(struct ledgermq_client *client,
                                    const struct ledgermq_lite_pull_consumer_options *given,
                                    struct ledgermq_lite_pull_consumer **out, struct ledgermq_error *error)
{
    struct ledgermq_push_consumer_options options;
    struct consumer *consumer;
    if (given == NULL || given->group == NULL)
        return client_error_text(error, LEDGERMQ_INVALID, 0, "a lite pull consumer needs a group");
    if (given->cache_messages_all_max < 1 || given->auto_commit_ms < 1)
        return client_error_text(error, LEDGERMQ_INVALID, 0,
                                 "cache_messages_all_max and auto_commit_ms must be above 0");
    ledgermq_push_consumer_options_init(&options);
    options.group = given->group;
    options.message_model = given->message_model;
    options.consume_from = given->consume_from;
    options.consume_timestamp_ms = given->consume_timestamp_ms;
    options.allocate = given->allocate;
    options.pull_batch = given->pull_batch;
    options.cache_messages_max = given->cache_messages_max;
    options.cache_mib_max = given->cache_mib_max;
    options.offset_directory = given->offset_directory;
    if (consumer_options_check(&options, error) != LEDGERMQ_OK)
        return LEDGERMQ_INVALID;
    int rv = consumer_new(client, CONSUMER_LITE, &options, &consumer, error);
    if (rv != LEDGERMQ_OK)
        return rv;
    consumer->messages_all_max = (size_t)given->cache_messages_all_max;
    consumer->auto_commit = given->auto_commit;
    consumer->auto_commit_ms = given->auto_commit_ms;
    consumer->next_commit_ms = client_monotonic_ms() + given->auto_commit_ms;
    rv = consumer_start(consumer, error);
    if (rv != LEDGERMQ_OK)
        consumer_free(consumer);
    else
        *out = (struct ledgermq_lite_pull_consumer *)consumer;
    return rv;
}

void lite_stop(struct consumer *consumer)
{
    if (consumer->auto_commit)
        note_polled(consumer);
}

void ledgermq_lite_pull_consumer_free(struct ledgermq_lite_pull_consumer *lite)
{
    if (lite != NULL)
        consumer_free(of(lite));
}
