/* Locks of queues that are read in order: taken before the first message, renewed every 20 s, trusted for 30 s.
 *
 * Follows RebalanceImpl#lockAll and ConsumeMessageOrderlyService 4.9.8. Unlike there, a lock that was refused is asked
 * for again soon and not only at the next rebalance.
 */
#include <stdlib.h>

#include "client/consumer.h"
#include "proto/lock_batch.h"
#include "proto/request_code.h"
#include "proto/response_code.h"

#define LOCK_BATCH_MAX 1024u

struct lock_call {
    struct remoting_call call;
    struct consumer *consumer;
    int64_t asked_ms; /* monotonic */
    size_t count;
    struct ledgermq_queue queues[];
};

bool assigned_lock_valid(const struct assigned *assigned)
{
    return assigned->locked &&
           client_monotonic_ms() - atomic_load(&assigned->last_lock_ms) <= CONSUMER_LOCK_EXPIRE_MS;
}

static int lock_request(struct consumer *consumer, int32_t code, const struct ledgermq_queue *queues, size_t count,
                        struct remoting_call *call)
{
    struct remoting_client *remoting = consumer->client->remoting;
    struct remoting_writer writer;
    const char *address = consumer_broker_address(consumer, &queues[0], 0);
    if (address == NULL)
        return ERROR_NO_LEADER;
    struct message_queue *list = malloc(count * sizeof *list);
    if (list == NULL)
        return ERROR_NO_MEMORY;
    for (size_t i = 0; i < count; i++)
        list[i] = message_queue_of(&queues[i]);
    const struct lock_batch_request request = {.client_id = slice_of_text(consumer->client->id),
                                               .consumer_group = slice_of_text(consumer->options.group),
                                               .queues = list,
                                               .queue_count = count};
    int rv = remoting_client_begin(remoting, address, call, code, consumer->client->call_timeout_ms, &writer);
    if (rv == 0) {
        remoting_writer_body(&writer);
        lock_batch_request_encode(&request, writer.out);
        rv = remoting_client_end(remoting, call, &writer);
    }
    free(list);
    return rv;
}

void consumer_unlock(struct consumer *consumer, const struct ledgermq_queue *queue)
{
    lock_request(consumer, REQUEST_UNLOCK_BATCH_MQ, queue, 1, NULL);
}

/* Its owner may be leaving: then it is free in some milliseconds. Or dead: then it takes up to 30 s. */
static void lock_soon(struct consumer *consumer)
{
    if (!atomic_load(&consumer->stopping))
        remoting_client_delay_by(consumer->client->remoting, &consumer->lock,
                                 consumer_retry_ms(consumer->lock_refusals));
}

static void granted(struct assigned *assigned, int64_t asked_ms)
{
    bool fresh = !assigned->locked;
    assigned->locked = true;
    atomic_store(&assigned->last_lock_ms, asked_ms);
    /* Whoever had the queue in between may have moved its offset. */
    if (fresh)
        assigned_jump(assigned, -1);
    consume_next(assigned);
}

static bool in_answer(const struct lock_batch_response *response, const struct ledgermq_queue *queue)
{
    struct message_queue wanted = message_queue_of(queue);
    for (size_t i = 0; i < response->queue_count; i++)
        if (response->queues[i].queue_id == wanted.queue_id && slice_equal(response->queues[i].topic, wanted.topic) &&
            slice_equal(response->queues[i].broker_name, wanted.broker_name))
            return true;
    return false;
}

static void locks_known(struct remoting_call *base, int rv, const struct remoting_command *answer, const char *cause)
{
    struct lock_call *call = base->context;
    struct consumer *consumer = call->consumer;
    struct lock_batch_response response = {0};
    struct error error;
    (void)cause;
    bool refused = rv != 0 || answer->code != RESPONSE_SUCCESS ||
                   lock_batch_response_decode(&response, answer->body, &error) != 0;
    if (refused)
        route_table_refresh(consumer->client->routes, call->queues[0].topic, NULL, 0,
                            consumer_broker_address(consumer, &call->queues[0], 0), NULL);
    uint32_t refusals = consumer->lock_refusals + 1;
    consumer->lock_refusals = 0;
    for (size_t i = 0; i < call->count; i++) {
        struct assigned *assigned = consumer_assigned(consumer, &call->queues[i]);
        if (assigned == NULL) {
            if (!refused && in_answer(&response, &call->queues[i]) && !consumer_leaving(consumer, &call->queues[i]))
                consumer_unlock(consumer, &call->queues[i]);
            continue;
        }
        if (!refused && in_answer(&response, &call->queues[i])) {
            granted(assigned, call->asked_ms);
            continue;
        }
        /* No answer: the lock is trusted until its time is up. A refusal: it is somebody else's. */
        if (!refused && assigned->locked) {
            assigned->locked = false;
            atomic_store(&assigned->last_lock_ms, INT64_MIN / 2);
            assigned_halt(assigned);
        }
        consumer->lock_refusals = refusals;
        lock_soon(consumer);
    }
    lock_batch_response_close(&response);
    free(call);
    consumer->pending--;
    consumer_ended(consumer);
}

static void lock_send(struct consumer *consumer, struct lock_call *call)
{
    call->consumer = consumer;
    call->asked_ms = client_monotonic_ms();
    call->call.done = locks_known;
    call->call.context = call;
    if (lock_request(consumer, REQUEST_LOCK_BATCH_MQ, call->queues, call->count, &call->call) == 0) {
        consumer->pending++;
        return;
    }
    route_table_refresh(consumer->client->routes, call->queues[0].topic, NULL, 0, NULL, NULL);
    consumer->lock_refusals++;
    lock_soon(consumer);
    free(call);
}

void consumer_lock_queues(struct consumer *consumer, bool all)
{
    for (struct assigned *assigned = consumer->assigned; assigned != NULL; assigned = assigned->hh.next)
        assigned->asked_for = false;
    /* One request for each broker name, more when there are very many. */
    for (struct assigned *first = consumer->assigned; first != NULL; first = first->hh.next) {
        if (first->asked_for || (!all && assigned_lock_valid(first)))
            continue;
        struct lock_call *call = calloc(1, sizeof *call + LOCK_BATCH_MAX * sizeof call->queues[0]);
        if (call == NULL) {
            lock_soon(consumer);
            return;
        }
        for (struct assigned *at = first; at != NULL && call->count < LOCK_BATCH_MAX; at = at->hh.next) {
            if (at->asked_for || (!all && assigned_lock_valid(at)) ||
                strcmp(at->queue.broker_name, first->queue.broker_name) != 0)
                continue;
            at->asked_for = true;
            call->queues[call->count++] = at->queue;
        }
        lock_send(consumer, call);
    }
}

void consumer_lock_run(struct remoting_delay *delay)
{
    struct consumer *consumer = (struct consumer *)((char *)delay - offsetof(struct consumer, lock));
    int64_t now = client_monotonic_ms();
    bool due = now - consumer->last_lock_all_ms >= CONSUMER_LOCK_MS - CONSUMER_RETRY_MS_MAX;
    if (due)
        consumer->last_lock_all_ms = now;
    remoting_client_delay(consumer->client->remoting, delay,
                          (int)(CONSUMER_LOCK_MS - (now - consumer->last_lock_all_ms)));
    consumer_lock_queues(consumer, due);
}
