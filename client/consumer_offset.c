/* Telling brokers how far the group is (15), or the file how far a broadcast consumer is.
 *
 * Unlike RocketMQ's client, which sends one-way, each offset stays dirty until it is answered, so that none is lost with
 * a connection or a leader. And of one queue only one is under way: a broker with several threads would serve two in any
 * order, and the lower one would stay.
 */
#include <stdio.h>
#include <stdlib.h>

#include "client/consumer.h"
#include "proto/headers.h"
#include "proto/request_code.h"
#include "proto/response_code.h"

#define COMMIT_LAST_TRIES 5
#define COMMIT_TURN_MS 2 /* between two looks at whether the offset before it is answered */

struct commit_call {
    struct remoting_call call;
    struct remoting_delay delay;
    struct consumer *consumer;
    struct assigned *leaving;  /* NULL: the queue stays */
    struct commit_wait *wait;
    struct ledgermq_queue queue;
    int64_t offset;
    bool told; /* it is the one that is under way */
    unsigned tries;
};

static int commit_send(struct commit_call *commit);

static void commit_end(struct commit_call *commit, int rv, int response_code, const char *cause)
{
    struct consumer *consumer = commit->consumer;
    struct commit_wait *wait = commit->wait;
    struct offset_entry *entry = offset_store_find(&consumer->offsets, &commit->queue);
    if (entry != NULL && entry->teller == commit) {
        entry->teller = NULL;
        entry->dirty = entry->dirty || rv != 0;
    }
    if (wait != NULL && rv != 0 && wait->code == LEDGERMQ_OK) {
        struct error error = {0};
        error_set(&error, rv, "offset %lld of queue %d of topic %s at %s is not stored: %s", (long long)commit->offset,
                  commit->queue.queue_id, commit->queue.topic, commit->queue.broker_name, cause);
        wait->code = response_code == 0 ? client_error(wait->error, rv, 0, &error)
                                        : client_error_text(wait->error, LEDGERMQ_REFUSED, response_code, "%s",
                                                            error.message);
    }
    struct assigned *leaving = commit->leaving;
    free(commit);
    consumer->pending--;
    if (leaving != NULL) {
        if (leaving->locked)
            consumer_unlock(consumer, &leaving->queue);
        leaving->jobs--;
        /* A queue that came back meanwhile goes on from what it asked for itself. */
        if (consumer_assigned(consumer, &leaving->queue) == NULL)
            offset_store_remove(&consumer->offsets, &leaving->queue);
        assigned_left(leaving);
    }
    if (wait != NULL && --wait->pending == 0)
        uv_sem_post(&wait->done);
    consumer_ended(consumer);
}

/* The last word about a queue is worth some tries: a change of leader takes a moment. */
static bool try_again(struct commit_call *commit)
{
    struct ledgermq_client *client = commit->consumer->client;
    if ((commit->leaving == NULL && commit->wait == NULL) || ++commit->tries >= COMMIT_LAST_TRIES)
        return false;
    const char *address = consumer_broker_address(commit->consumer, &commit->queue, 0);
    route_table_refresh(client->routes, commit->queue.topic, NULL, 0, address, NULL);
    remoting_client_delay(client->remoting, &commit->delay, consumer_retry_ms(commit->tries));
    return true;
}

static void committed(struct remoting_call *call, int rv, const struct remoting_command *answer, const char *cause)
{
    struct commit_call *commit = call->context;
    if (rv == ERROR_CONNECTION || rv == ERROR_TIMEOUT ||
        (rv == 0 && (answer->code == RESPONSE_SERVICE_NOT_AVAILABLE || answer->code == RESPONSE_SYSTEM_BUSY)))
        if (try_again(commit))
            return;
    if (rv != 0) {
        commit_end(commit, rv, 0, cause);
    } else if (answer->code != RESPONSE_SUCCESS) {
        char text[200];
        snprintf(text, sizeof text, "it answers %d %.*s", answer->code,
                 (int)(answer->remark.size < 150 ? answer->remark.size : 150), (const char *)answer->remark.data);
        commit_end(commit, ERROR_INVALID, answer->code, text);
    } else {
        commit_end(commit, 0, 0, NULL);
    }
}

static void commit_take(struct commit_call *commit, struct offset_entry *entry)
{
    commit->told = true;
    commit->offset = entry->offset;
    entry->teller = commit;
    entry->dirty = false;
}

static void commit_later(struct remoting_delay *delay)
{
    struct commit_call *commit = (struct commit_call *)((char *)delay - offsetof(struct commit_call, delay));
    if (!commit->told) {
        struct offset_entry *entry = offset_store_find(&commit->consumer->offsets, &commit->queue);
        if (entry != NULL && entry->teller != NULL) {
            remoting_client_delay(commit->consumer->client->remoting, delay, COMMIT_TURN_MS);
            return;
        }
        if (entry == NULL || !entry->dirty) {
            commit_end(commit, 0, 0, NULL); /* whoever was before it told all there is */
            return;
        }
        commit_take(commit, entry);
    }
    int rv = commit_send(commit);
    if (rv != 0 && !try_again(commit))
        commit_end(commit, rv, 0, error_text(rv));
}

static int commit_send(struct commit_call *commit)
{
    struct consumer *consumer = commit->consumer;
    struct remoting_writer writer;
    const char *address = consumer_broker_address(consumer, &commit->queue, 0);
    if (address == NULL)
        return ERROR_NO_LEADER;
    commit->call.done = committed;
    commit->call.context = commit;
    int rv = remoting_client_begin(consumer->client->remoting, address, &commit->call, REQUEST_UPDATE_CONSUMER_OFFSET,
                                   consumer->client->call_timeout_ms, &writer);
    if (rv != 0)
        return rv;
    const struct update_consumer_offset_request_header header = {.consumer_group = slice_of_text(consumer->options.group),
                                                                 .topic = slice_of_text(commit->queue.topic),
                                                                 .queue_id = commit->queue.queue_id,
                                                                 .commit_offset = commit->offset};
    update_consumer_offset_request_header_encode(&header, &writer);
    return remoting_client_end(consumer->client->remoting, &commit->call, &writer);
}

static void commit_begin(struct consumer *consumer, struct offset_entry *entry, struct assigned *leaving,
                         struct commit_wait *wait)
{
    struct commit_call *commit = calloc(1, sizeof *commit);
    if (commit == NULL)
        return;
    commit->consumer = consumer;
    commit->leaving = leaving;
    commit->wait = wait;
    commit->queue = entry->queue;
    commit->delay.run = commit_later;
    consumer->pending++;
    if (leaving != NULL)
        leaving->jobs++;
    if (wait != NULL)
        wait->pending++;
    if (entry->teller == NULL)
        commit_take(commit, entry);
    /* Whatever happens comes later: the caller may be in the middle of a walk over the queues. */
    if (!commit->told || commit_send(commit) != 0)
        remoting_client_delay(consumer->client->remoting, &commit->delay, 0);
}

void consumer_commit_all(struct consumer *consumer, struct commit_wait *wait)
{
    struct error error = {0};
    if (consumer->broadcast) {
        int rv = offset_store_save(&consumer->offsets, &error);
        if (rv != 0 && wait != NULL)
            wait->code = client_error(wait->error, rv, 0, &error);
        return;
    }
    for (struct offset_entry *entry = consumer->offsets.entries; entry != NULL; entry = entry->hh.next)
        if (entry->dirty)
            commit_begin(consumer, entry, NULL, wait);
}

void consumer_commit_last(struct assigned *assigned)
{
    struct consumer *consumer = assigned->consumer;
    struct offset_entry *entry = offset_store_find(&consumer->offsets, &assigned->queue);
    if (entry != NULL && (entry->dirty || entry->teller != NULL)) {
        commit_begin(consumer, entry, assigned, NULL);
        return;
    }
    if (assigned->locked)
        consumer_unlock(consumer, &assigned->queue);
    offset_store_remove(&consumer->offsets, &assigned->queue);
}

void consumer_persist_run(struct remoting_delay *delay)
{
    struct consumer *consumer = (struct consumer *)((char *)delay - offsetof(struct consumer, persist));
    if (consumer->kind != CONSUMER_LITE || consumer->broadcast)
        consumer_commit_all(consumer, NULL);
    remoting_client_delay(consumer->client->remoting, delay, CONSUMER_PERSIST_MS);
}
