/* Handing messages to the application's function on the pool's threads, and taking what it says.
 *
 * A job's way: made on the loop thread from messages that nobody has, run by a thread of the pool, brought back as a
 * task to the loop thread, which alone looks at its result. A thread passes over a job that does not count any more.
 *
 * Follows org.apache.rocketmq.client.impl.consumer.ConsumeMessageConcurrentlyService and ConsumeMessageOrderlyService
 * 4.9.8.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/consumer.h"
#include "proto/json.h"

#define EXPIRED_DELAY_LEVEL 3
#define EXPIRE_CHECK_MS_MAX 60000
#define DEAD_LETTER_LEVEL (-1)

struct consume_job {
    struct pool_job pool_job;
    struct remoting_task task;
    struct consume_job *next, **previous; /* of the consumer; loop thread */
    struct consumer *consumer;
    struct assigned *assigned; /* NULL: for a tool */
    unsigned generation;
    bool expired; /* loop thread: its messages were sent back, its result does not count */
    _Atomic int64_t begun_ms;
    /* the pool's thread, then the loop's */
    bool skipped;
    int status;
    int64_t took_ms;
    struct ledgermq_consume_context how;
    /* for a tool */
    struct stored_messages *owned;
    struct remoting_origin origin;
    struct ledgermq_queue queue;

    size_t count;
    struct pulled **pulled; /* of each message; behind them */
    struct ledgermq_stored_message messages[];
};

static void job_done(struct remoting_task *task);

/* --- the pool's thread ---- */

static bool counts(const struct consume_job *job)
{
    const struct assigned *assigned = job->assigned;
    const struct consumer *consumer = job->consumer;
    if (atomic_load(&consumer->stopping))
        return false;
    if (assigned == NULL)
        return true;
    if (atomic_load(&assigned->dropped) || atomic_load(&assigned->generation) != job->generation)
        return false;
    return consumer->kind != CONSUMER_ORDERLY || consumer->broadcast ||
           client_monotonic_ms() - atomic_load(&assigned->last_lock_ms) <= CONSUMER_LOCK_EXPIRE_MS;
}

static void job_run(struct pool_job *base)
{
    struct consume_job *job = (struct consume_job *)base;
    const struct ledgermq_push_consumer_options *options = &job->consumer->options;
    job->skipped = !counts(job);
    if (!job->skipped) {
        int64_t begun_ms = client_monotonic_ms();
        job->how = (struct ledgermq_consume_context){
            .queue = job->assigned != NULL ? &job->assigned->shown : &job->queue,
            .ack_count = job->count,
            .suspend_ms = options->suspend_ms,
        };
        atomic_store(&job->begun_ms, begun_ms);
        job->status = options->consume(options->context, job->messages, job->count, &job->how);
        job->took_ms = client_monotonic_ms() - begun_ms;
    }
    job->task.run = job_done;
    remoting_client_post(job->consumer->client->remoting, &job->task);
}

/* --- jobs ---- */

static struct consume_job *job_new(struct consumer *consumer, struct assigned *assigned, size_t capacity)
{
    size_t messages = capacity * sizeof(struct ledgermq_stored_message);
    struct consume_job *job = calloc(1, sizeof *job + messages + capacity * sizeof(struct pulled *));
    if (job == NULL)
        return NULL;
    job->pulled = (struct pulled **)(void *)((char *)job->messages + messages);
    job->consumer = consumer;
    job->assigned = assigned;
    job->generation = assigned == NULL ? 0 : atomic_load(&assigned->generation);
    job->pool_job.run = job_run;
    return job;
}

static void job_add(struct consume_job *job, struct queued_message *queued)
{
    queued->taken = true;
    queued->pulled->users++;
    job->pulled[job->count] = queued->pulled;
    job->messages[job->count] = *queued->message;
    job->messages[job->count++].reconsume_times = queued->reconsume_times;
}

static void job_submit(struct consume_job *job)
{
    struct consumer *consumer = job->consumer;
    job->next = consumer->job_list;
    job->previous = &consumer->job_list;
    if (job->next != NULL)
        job->next->previous = &job->next;
    consumer->job_list = job;
    consumer->jobs++;
    if (job->assigned != NULL) {
        job->assigned->jobs++;
        job->assigned->last_consume_ms = client_clock_ms();
    }
    consume_pool_submit(consumer->pool, &job->pool_job);
}

static void job_free(struct consume_job *job)
{
    for (size_t i = 0; i < job->count && job->owned == NULL; i++)
        pulled_release(job->pulled[i]);
    stored_messages_free(job->owned);
    free(job);
}

/* --- concurrent ---- */

static void sent_back(struct assigned *assigned, const struct ledgermq_stored_message *message, unsigned generation,
                      void *context, bool sent)
{
    struct consumer *consumer = assigned->consumer;
    (void)context;
    if (generation != atomic_load(&assigned->generation) || atomic_load(&assigned->dropped))
        return;
    struct queued_message *queued = process_queue_find(&assigned->messages, message->queue_offset);
    if (queued == NULL)
        return;
    if (sent) {
        process_queue_remove(&assigned->messages, message->queue_offset);
        assigned_advance(assigned);
        return;
    }
    /* Not even the broker wants it now: consumed again from here. */
    queued->reconsume_times++;
    queued->again = true;
    if (!consumer->reconsume.armed && !atomic_load(&consumer->stopping))
        remoting_client_delay(consumer->client->remoting, &consumer->reconsume, CONSUMER_RECONSUME_MS);
}

static int max_reconsume_times(const struct consumer *consumer)
{
    int max = consumer->options.max_reconsume_times;
    return max >= 0 ? max : consumer->kind == CONSUMER_ORDERLY ? INT32_MAX : CONSUMER_RECONSUME_TIMES_MAX;
}

static void concurrent_done(struct consume_job *job)
{
    struct assigned *assigned = job->assigned;
    struct consumer *consumer = job->consumer;
    size_t acknowledged = job->status != LEDGERMQ_CONSUME_SUCCESS ? 0
                          : job->how.ack_count < job->count       ? job->how.ack_count
                                                                  : job->count;
    for (size_t i = 0; i < job->count; i++) {
        if (i < acknowledged || consumer->broadcast)
            process_queue_remove(&assigned->messages, job->messages[i].queue_offset);
        else
            consumer_send_back(assigned, process_queue_find(&assigned->messages, job->messages[i].queue_offset)->message,
                               job->pulled[i], job->how.delay_level, max_reconsume_times(consumer), sent_back, NULL);
    }
    assigned_advance(assigned);
}

/* Jobs of the messages that are marked: those of one pull, or those that come again. */
static void submit_range(struct assigned *assigned, const struct ledgermq_stored_message *messages, size_t count)
{
    struct consumer *consumer = assigned->consumer;
    size_t batch = (size_t)consumer->options.consume_batch;
    for (size_t i = 0; i < count;) {
        size_t n = count - i < batch ? count - i : batch;
        struct consume_job *job = job_new(consumer, assigned, n);
        for (size_t k = 0; k < n; k++, i++) {
            struct queued_message *queued = process_queue_find(&assigned->messages, messages[i].queue_offset);
            assert(queued != NULL);
            if (job != NULL) {
                job_add(job, queued);
            } else {
                queued->taken = queued->again = true;
                if (!consumer->reconsume.armed)
                    remoting_client_delay(consumer->client->remoting, &consumer->reconsume, CONSUMER_RECONSUME_MS);
            }
        }
        if (job != NULL)
            job_submit(job);
    }
}

void consume_reconsume_run(struct remoting_delay *delay)
{
    struct consumer *consumer = (struct consumer *)((char *)delay - offsetof(struct consumer, reconsume));
    for (struct assigned *assigned = consumer->assigned; assigned != NULL; assigned = assigned->hh.next)
        for (struct queued_message *queued; (queued = process_queue_again(&assigned->messages)) != NULL;) {
            queued->again = false;
            submit_range(assigned, queued->message, 1);
            if (queued->again) /* memory is short; the delay is armed anew */
                return;
        }
}

void consume_expire_run(struct remoting_delay *delay)
{
    struct consumer *consumer = (struct consumer *)((char *)delay - offsetof(struct consumer, expire));
    int64_t now = client_monotonic_ms();
    int timeout_ms = consumer->options.consume_timeout_ms;
    for (struct consume_job *job = consumer->job_list; job != NULL; job = job->next) {
        int64_t begun_ms = atomic_load(&job->begun_ms);
        if (job->assigned == NULL || job->expired || begun_ms == 0 || now - begun_ms < timeout_ms ||
            consumer->broadcast || atomic_load(&job->assigned->dropped) ||
            job->generation != atomic_load(&job->assigned->generation))
            continue;
        job->expired = true;
        for (size_t i = 0; i < job->count; i++) {
            struct queued_message *queued = process_queue_find(&job->assigned->messages, job->messages[i].queue_offset);
            if (queued != NULL)
                consumer_send_back(job->assigned, queued->message, job->pulled[i], EXPIRED_DELAY_LEVEL,
                                   max_reconsume_times(consumer), sent_back, NULL);
        }
    }
    int check_ms = timeout_ms / 4 + 1;
    remoting_client_delay(consumer->client->remoting, delay,
                          check_ms < EXPIRE_CHECK_MS_MAX ? check_ms : EXPIRE_CHECK_MS_MAX);
}

/* --- orderly ---- */

void consume_next(struct assigned *assigned)
{
    struct consumer *consumer = assigned->consumer;
    if (consumer->kind != CONSUMER_ORDERLY || assigned->consuming || assigned->pause.armed ||
        atomic_load(&assigned->dropped) || atomic_load(&consumer->stopping) || assigned->messages.count == 0 ||
        (!consumer->broadcast && !assigned_lock_valid(assigned)))
        return;
    size_t batch = (size_t)consumer->options.consume_batch;
    size_t count = assigned->messages.count < batch ? assigned->messages.count : batch;
    struct consume_job *job = job_new(consumer, assigned, count);
    if (job == NULL) {
        remoting_client_delay(consumer->client->remoting, &assigned->pause, CONSUMER_RETRY_MS_MAX);
        return;
    }
    for (struct queued_message *queued;
         job->count < count && (queued = process_queue_next(&assigned->messages)) != NULL;)
        job_add(job, queued);
    assert(job->count > 0);
    assigned->consuming = true;
    job_submit(job);
}

/* What is left of a job's messages comes again after the pause; or the next ones come at once. */
static void orderly_go_on(struct assigned *assigned)
{
    struct remoting_client *remoting = assigned->consumer->client->remoting;
    assigned->consuming = false;
    if (assigned->pause_ms > 0 && !atomic_load(&assigned->dropped))
        remoting_client_delay(remoting, &assigned->pause, assigned->pause_ms);
    else
        consume_next(assigned);
}

static void dead_letter_sent(struct assigned *assigned, const struct ledgermq_stored_message *message,
                             unsigned generation, void *context, bool sent)
{
    (void)context;
    struct queued_message *queued = generation != atomic_load(&assigned->generation)
                                        ? NULL
                                        : process_queue_find(&assigned->messages, message->queue_offset);
    if (queued != NULL && sent) {
        process_queue_remove(&assigned->messages, message->queue_offset);
        assigned_advance(assigned);
    } else if (queued != NULL) {
        queued->taken = false;
        assigned->pause_ms = CONSUMER_RETRY_MS_MAX;
    }
    if (--assigned->dying == 0)
        orderly_go_on(assigned);
}

static int clamp(int value, int low, int high)
{
    return value < low ? low : value > high ? high : value;
}

static void orderly_later(struct consume_job *job)
{
    struct assigned *assigned = job->assigned;
    struct consumer *consumer = job->consumer;
    assigned->pause_ms = 0;
    assigned->dying = 1; /* keeps the queue until all are on their way */
    for (size_t i = 0; i < job->count; i++) {
        struct queued_message *queued = process_queue_find(&assigned->messages, job->messages[i].queue_offset);
        if (queued->reconsume_times >= max_reconsume_times(consumer) && consumer->broadcast) {
            process_queue_remove(&assigned->messages, job->messages[i].queue_offset);
        } else if (queued->reconsume_times >= max_reconsume_times(consumer)) {
            assigned->dying++;
            consumer_send_back(assigned, queued->message, job->pulled[i], DEAD_LETTER_LEVEL,
                               max_reconsume_times(consumer), dead_letter_sent, NULL);
        } else {
            queued->reconsume_times++;
            queued->taken = false;
            assigned->pause_ms = clamp(job->how.suspend_ms, 10, 30000);
        }
    }
    if (--assigned->dying == 0) {
        assigned_advance(assigned);
        orderly_go_on(assigned);
    }
}

static void orderly_done(struct consume_job *job)
{
    struct assigned *assigned = job->assigned;
    if (job->generation != atomic_load(&assigned->generation)) {
        assigned->consuming = false;
        consume_next(assigned);
        return;
    }
    if (!job->skipped && job->status != LEDGERMQ_CONSUME_SUCCESS) {
        orderly_later(job);
        return;
    }
    for (size_t i = 0; i < job->count; i++) {
        if (job->skipped)
            process_queue_find(&assigned->messages, job->messages[i].queue_offset)->taken = false;
        else
            process_queue_remove(&assigned->messages, job->messages[i].queue_offset);
    }
    assigned->consuming = false;
    if (job->skipped)
        return; /* goes on with the next lock */
    consume_next(assigned);
    assigned_advance(assigned);
}

/* --- for a tool (CONSUME_MESSAGE_DIRECTLY) ---- */

void consume_directly(struct consumer *consumer, struct stored_messages *messages, const struct remoting_origin *origin)
{
    struct consume_job *job = messages->result.count != 1 ? NULL : job_new(consumer, NULL, 1);
    if (job == NULL || atomic_load(&consumer->stopping)) {
        remoting_client_answer(consumer->client->remoting, origin, 1, "the consumer cannot take the message now");
        stored_messages_free(messages);
        free(job);
        return;
    }
    const struct ledgermq_stored_message *message = &messages->result.messages[0];
    job->owned = messages;
    job->origin = *origin;
    job->messages[job->count++] = *message;
    snprintf(job->queue.topic, sizeof job->queue.topic, "%s", message->topic);
    snprintf(job->queue.broker_name, sizeof job->queue.broker_name, "%s",
             message->broker_name == NULL ? "" : message->broker_name);
    job->queue.queue_id = message->queue_id;
    job_submit(job);
}

static void direct_done(const struct consume_job *job)
{
    struct consumer *consumer = job->consumer;
    struct remoting_writer writer;
    struct json_writer json;
    if (job->skipped) {
        remoting_client_answer(consumer->client->remoting, &job->origin, 1, "the consumer is being stopped");
        return;
    }
    if (!consumer_answer_begin(consumer->client, &job->origin, &writer, &json))
        return;
    json_write_member_bool(&json, "autoCommit", true);
    json_write_member_text(&json, "consumeResult",
                           job->status == LEDGERMQ_CONSUME_SUCCESS ? "CR_SUCCESS" : "CR_LATER");
    json_write_member_bool(&json, "order", consumer->kind == CONSUMER_ORDERLY);
    json_write_member_i64(&json, "spentTimeMills", job->took_ms);
    consumer_answer_end(consumer->client, &writer, &json);
}

/* --- back on the loop thread ---- */

static void note(const struct consume_job *job)
{
    struct consumer *consumer = job->consumer;
    struct consumer_topic *topic = consumer_topic_find(consumer, job->assigned->queue.topic);
    size_t consumed = job->status == LEDGERMQ_CONSUME_SUCCESS ? job->count : 0;
    if (topic != NULL && !job->skipped)
        consumer_stats_consumed(&topic->stats, remoting_client_now_ms(consumer->client->remoting), job->took_ms,
                                consumed, job->count - consumed);
}

static void job_done(struct remoting_task *task)
{
    struct consume_job *job = (struct consume_job *)((char *)task - offsetof(struct consume_job, task));
    struct consumer *consumer = job->consumer;
    struct assigned *assigned = job->assigned;
    *job->previous = job->next;
    if (job->next != NULL)
        job->next->previous = job->previous;
    if (assigned == NULL) {
        direct_done(job);
    } else {
        note(job);
        if (consumer->kind == CONSUMER_ORDERLY)
            orderly_done(job);
        else if (!job->skipped && !job->expired && job->generation == atomic_load(&assigned->generation) &&
                 !atomic_load(&assigned->dropped))
            concurrent_done(job);
        assigned->jobs--;
    }
    job_free(job);
    consumer->jobs--;
    if (assigned != NULL)
        assigned_left(assigned);
    consumer_ended(consumer);
}

void consume_added(struct assigned *assigned, const struct pulled *pulled)
{
    const struct ledgermq_pull_result *result = &pulled->messages->result;
    if (assigned->consumer->kind == CONSUMER_ORDERLY)
        consume_next(assigned);
    else
        submit_range(assigned, result->messages, result->count);
}
