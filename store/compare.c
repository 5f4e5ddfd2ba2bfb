#include "store/compare.h"

#include "store/log_sink.h"
#include "store/queue_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AROUND 65536u /* so much the kernel maps around a page that is touched, as far as it is in memory */

static const struct message_dispatch *add(struct message_store_compare *job, uint64_t index, struct slice record)
{
    if (job->count == job->capacity) {
        size_t capacity = job->capacity == 0 ? 64 : job->capacity * 2;
        struct message_store_compared *grown = realloc(job->records, capacity * sizeof *grown);
        if (grown == NULL)
            return NULL;
        job->records = grown;
        job->capacity = capacity;
    }
    struct message_store_compared *one = &job->records[job->count];
    memset(one, 0, sizeof *one);
    one->index = index;
    if (message_dispatch_decode(record, &one->dispatch) != 0)
        return NULL;
    job->count++;
    return &one->dispatch;
}

const struct message_dispatch *message_store_compare_add(struct message_store_compare *job, uint64_t index, struct slice record)
{
    const struct message_dispatch *dispatch = add(job, index, record);

    job->gap = job->gap || dispatch == NULL;
    return dispatch;
}

/* DLedger index of the entry that made the topic; UINT64_MAX: nobody knows one of that name. */
static uint64_t made_at(const struct message_store *store, struct slice topic)
{
    return store->topic_since == NULL ? 0 : store->topic_since(store->topic_since_context, topic);
}

/* The queue that the message belongs to; NULL: none that there is now. */
static struct queue_node *node_of(struct message_store *store, const struct message_store_compared *one)
{
    const struct message_dispatch *dispatch = &one->dispatch;
    int transaction = dispatch->sys_flag & MESSAGE_TRANSACTION_MASK;
    if (transaction != 0 && transaction != MESSAGE_TRANSACTION_COMMIT)
        return NULL;
    struct queue_node *node = queue_table_find(store->queues, dispatch->topic, dispatch->queue_id);
    return node != NULL && one->index < made_at(store, dispatch->topic) ? NULL : node;
}

static bool has_to_have(const struct message_store *store, const struct queue_node *node, const struct message_dispatch *dispatch)
{
    return node != NULL && dispatch->queue_offset >= node->queue.min_offset && dispatch->queue_offset < node->queue.max_offset &&
           dispatch->physical_offset >= store->log.min_offset(store->log.context);
}

/* ---- where queues begin ---- */

void message_store_walk_begin(struct message_store *store)
{
    store->walk = ++store->walks;
}

void message_store_walk_break(struct message_store *store)
{
    store->walk = 0;
}

static bool is_retained(const struct message_store *store, const struct queue_node *node, int64_t physical_offset)
{
    return physical_offset >= node->queue.retained_from && physical_offset >= store->log.min_offset(store->log.context);
}

static void settle_min(struct message_store *store, struct queue_node *node, int64_t queue_offset)
{
    struct consume_queue *queue = &node->queue;
    struct consume_queue_unit first;
    int64_t before = queue->min_offset;

    /* A message that is there is not passed over, whatever topic of that name it was sent to. */
    if (queue_offset > before && consume_queue_get(queue, before, &first) && is_retained(store, node, first.physical_offset) &&
        message_store_unit_names(store, queue, before, &first))
        return;
    if (consume_queue_settle_min(queue, queue_offset)) {
        LOG_WARN("queue %s %d begins with message %lld, as the log says; damaged units had said %lld", queue->topic, (int)queue->queue_id,
                 (long long)queue_offset, (long long)before);
        store->earliest_time_ms = -1;
        message_store_drop_doubt(store);
    }
    store->files_to_go = store->files_to_go || consume_queue_has_files_to_go(queue);
}

/* The first message of its queue that the walk meets. */
static void meet(struct message_store *store, struct queue_node *node, const struct message_dispatch *dispatch)
{
    if (store->walk == 0 || node->walk == store->walk || !is_retained(store, node, dispatch->physical_offset))
        return;
    node->walk = store->walk;
    /* Where nobody can tell when a topic was made it may be one of an earlier one, of which the numbers began anew. */
    if (store->topic_since != NULL && dispatch->queue_offset < node->queue.max_offset)
        settle_min(store, node, dispatch->queue_offset);
}

void message_store_walk_end(struct message_store *store)
{
    const struct log_view *log = &store->log;
    /* After a start queues reach further than what is applied, and was read. */
    bool whole = store->walk != 0 && store->topic_since != NULL && log->committed_offset(log->context) >= store->recovered_position;

    for (struct queue_node *node = store->queues->head; whole && node != NULL; node = node->next) {
        if (node->walk != store->walk && made_at(store, slice_of(node->topic, node->topic_size)) != UINT64_MAX)
            settle_min(store, node, node->queue.max_offset);
    }
    store->walk = 0;
}

/* ---- what units say ---- */

void message_store_compare_begin(struct message_store *store, struct message_store_compare *job)
{
    /* While a start dispatches again, queues are ahead of it, and may be of topics that the tables do not know yet: made behind deletions that are still to come. */
    const bool ahead = store->dispatched_offset < store->recovered_position;

    job->store = store;
    if (job->gap || ahead)
        message_store_walk_break(store);
    job->gap = false;
    for (size_t i = 0; i < job->count && !ahead; i++) {
        struct message_store_compared *one = &job->records[i];
        struct queue_node *node = node_of(store, one);
        if (node != NULL)
            meet(store, node, &one->dispatch);
        if (!has_to_have(store, node, &one->dispatch))
            continue;
        uint64_t byte = (uint64_t)one->dispatch.queue_offset * CONSUME_QUEUE_UNIT_SIZE;
        struct mapped_file *file = mapped_file_queue_find(&node->queue.files, byte);
        if (file == NULL || mapped_file_queue_map(&node->queue.files, file) != 0)
            continue; /* the next time */
        one->appending = node->queue.tail != NULL && byte / AROUND == (uint64_t)node->queue.max_offset * CONSUME_QUEUE_UNIT_SIZE / AROUND;
        mapped_file_pin(file);
        one->file = file;
        one->address = file->map + (byte - file->start);
    }
}

/* What was looked at goes from this process again: it would stay in memory longer than what others need, and nobody could make it go. */
static void let_go(struct env *env, const struct message_store_compared *one)
{
    if (one == NULL || one->appending || env->ops->let_go == NULL)
        return;
    uint64_t from = (uint64_t)(one->address - one->file->map) / AROUND * AROUND;
    env->ops->let_go(env, one->file->map + from, one->file->size - from < AROUND ? one->file->size - from : AROUND);
}

void message_store_compare_run(struct env *env, struct message_store_compare *job)
{
    const struct message_store_compared *last = NULL;

    for (size_t i = 0; i < job->count; i++) {
        struct message_store_compared *one = &job->records[i];
        struct consume_queue_unit unit;
        if (one->file == NULL)
            continue;
        if (last != NULL && (last->file != one->file || (last->address - last->file->map) / AROUND != (one->address - one->file->map) / AROUND))
            let_go(env, last);
        last = one;
        consume_queue_decode(one->address, &unit);
        one->differs = !message_store_unit_fits(job->store, &one->dispatch, &unit);
    }
    let_go(env, last);
}

static void settle(struct message_store *store, const struct message_store_compared *one)
{
    struct message_store_doubt *doubt = &store->doubt;
    if (doubt->any && doubt->queue_offset == one->dispatch.queue_offset && doubt->queue_id == one->dispatch.queue_id &&
        slice_equal_text(one->dispatch.topic, doubt->topic))
        doubt->any = false;
}

/* True: it was another one, and is right now. */
static bool finish(struct message_store *store, struct queue_node *node, const struct message_store_compared *one)
{
    const struct message_dispatch *dispatch = &one->dispatch;
    const struct consume_queue_unit unit = message_store_unit_of(store, dispatch);
    struct consume_queue_unit found;
    /* There was another message of that number later on, in a topic of that name that was made anew. */
    if (one->differs && consume_queue_get(&node->queue, dispatch->queue_offset, &found) && found.physical_offset > dispatch->physical_offset &&
        message_store_unit_names(store, &node->queue, dispatch->queue_offset, &found))
        return false;
    if (one->differs) {
        int rv = consume_queue_mend(&node->queue, dispatch->queue_offset, &unit);
        if (rv != 0) {
            LOG_ERROR("queue %s %d: the unit of message %lld cannot be made again: %s", node->queue.topic, (int)node->queue.queue_id,
                      (long long)dispatch->queue_offset, error_text(rv));
            return false;
        }
        queue_table_mark(store->queues, node);
    }
    if (dispatch->queue_offset < node->queue.appended_from)
        consume_queue_compared(&node->queue, dispatch->queue_offset);
    settle(store, one);
    return one->differs;
}

uint32_t message_store_compare_end(struct message_store *store, struct message_store_compare *job)
{
    uint32_t mended = 0;
    char first[1024] = "";

    for (size_t i = 0; i < job->count; i++) {
        struct message_store_compared *one = &job->records[i];
        if (one->file == NULL)
            continue;
        /* The topic may have been deleted meanwhile, and made anew. */
        struct queue_node *node = node_of(store, one);
        if (has_to_have(store, node, &one->dispatch) && finish(store, node, one) && mended++ == 0) {
            char where[512];
            consume_queue_describe(&node->queue, one->dispatch.queue_offset, where, sizeof where);
            snprintf(first, sizeof first, "queue %s %d, message %lld (%s)", node->queue.topic, (int)node->queue.queue_id,
                     (long long)one->dispatch.queue_offset, where);
        }
        mapped_file_unpin(one->file);
        one->file = NULL;
    }
    job->count = 0;
    store->mended_units += mended;
    if (mended > 0) {
        store->earliest_time_ms = -1;
        LOG_WARN("%u damaged units of queues were made again from the log; the first: %s", mended, first);
    }
    return mended;
}

void message_store_compare_free(struct message_store_compare *job)
{
    free(job->records);
    *job = (struct message_store_compare){0};
}
