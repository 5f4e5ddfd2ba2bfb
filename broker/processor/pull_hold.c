/* A held pull stands in three places: the list of its queue (arrivals), the list of its connection (which may close), and the tree of deadlines.
 * When a message matches it moves from the queue's list to the due list, so that further messages of the turn do not look at it again.
 */
#include "broker/processor/pull_hold.h"

#include <assert.h>
#include <bsd/sys/queue.h>
#include <bsd/sys/tree.h>
#include <stdlib.h>

#include "broker/hash_table.h"
#include "broker/limits.h"

#define TOPIC_BYTES_MAX 255u /* a %RETRY% topic of version 2 records may be that long */

struct held {
    struct pull_hold_request request; /* topic is not used from here on */
    uint64_t deadline_ms;
    uint64_t sequence; /* equal deadlines: first come first served */
    bool due;
    struct held_queue *queue; /* NULL once due */
    struct held_connection *connection;
    TAILQ_ENTRY(held) in_queue; /* or in the due list */
    TAILQ_ENTRY(held) in_connection;
    RB_ENTRY(held) in_tree;
};
TAILQ_HEAD(held_list, held);
RB_HEAD(held_tree, held);

struct held_queue {
    struct held_list list;
    UT_hash_handle hh;
    size_t key_size;
    uint8_t key[]; /* queue id, topic */
};

struct held_connection {
    uint64_t id;
    struct held_list list;
    UT_hash_handle hh;
};

struct pull_hold {
    uv_loop_t *loop;
    struct broker *broker;
    uv_timer_t timer;
    uint64_t timer_ms; /* deadline it is set to, 0 = not running */
    struct held_queue *queues;
    struct held_connection *connections;
    struct held_tree tree;
    struct held_list due;
    uint32_t count, count_max;
    size_t bytes;
    uint64_t next_sequence;
    bool closed;
};

static int held_compare(const struct held *a, const struct held *b)
{
    if (a->deadline_ms != b->deadline_ms)
        return a->deadline_ms < b->deadline_ms ? -1 : 1;
    return a->sequence < b->sequence ? -1 : a->sequence > b->sequence;
}
RB_GENERATE_INTERNAL(held_tree, held, in_tree, held_compare, __attribute__((unused)) static)

struct pull_hold *pull_hold_new(uv_loop_t *loop, struct broker *broker, uint32_t count_max)
{
    struct pull_hold *hold = calloc(1, sizeof *hold);
    if (hold == NULL)
        return NULL;
    hold->loop = loop;
    hold->broker = broker;
    hold->count_max = count_max == 0 || count_max > LIMIT_HELD_PULLS ? LIMIT_HELD_PULLS : count_max;
    RB_INIT(&hold->tree);
    TAILQ_INIT(&hold->due);
    uv_timer_init(loop, &hold->timer);
    hold->timer.data = hold;
    uv_unref((uv_handle_t *)&hold->timer);
    return hold;
}

static size_t make_key(uint8_t key[4 + TOPIC_BYTES_MAX], struct slice topic, int32_t queue_id)
{
    store_u32(key, (uint32_t)queue_id);
    memcpy(key + 4, topic.data, topic.size);
    return 4 + topic.size;
}

static struct held_queue *find_queue(struct pull_hold *hold, struct slice topic, int32_t queue_id)
{
    uint8_t key[4 + TOPIC_BYTES_MAX];
    struct held_queue *queue;
    if (topic.size > TOPIC_BYTES_MAX)
        return NULL;
    size_t size = make_key(key, topic, queue_id);
    HASH_FIND(hh, hold->queues, key, size, queue);
    return queue;
}

static void leave_queue(struct pull_hold *hold, struct held *held)
{
    struct held_queue *queue = held->queue;
    TAILQ_REMOVE(&queue->list, held, in_queue);
    held->queue = NULL;
    if (TAILQ_EMPTY(&queue->list)) {
        HASH_DEL(hold->queues, queue);
        free(queue);
    }
}

/* Out of all places; the request is the caller's. */
static void unlink_held(struct pull_hold *hold, struct held *held)
{
    if (held->due)
        TAILQ_REMOVE(&hold->due, held, in_queue);
    else
        leave_queue(hold, held);
    struct held_connection *connection = held->connection;
    TAILQ_REMOVE(&connection->list, held, in_connection);
    if (TAILQ_EMPTY(&connection->list)) {
        HASH_DEL(hold->connections, connection);
        free(connection);
    }
    RB_REMOVE(held_tree, &hold->tree, held);
    hold->count--;
    hold->bytes -= held->request.bytes;
}

static void set_due(struct pull_hold *hold, struct held *held)
{
    leave_queue(hold, held);
    held->due = true;
    TAILQ_INSERT_TAIL(&hold->due, held, in_queue);
}

static void resume(struct pull_hold *hold, struct held *held)
{
    struct pull_hold_request request = held->request;
    unlink_held(hold, held);
    free(held);
    request.resume(hold->broker, request.context);
}

static void on_timer(uv_timer_t *timer);

static void set_timer(struct pull_hold *hold)
{
    struct held *first = RB_MIN(held_tree, &hold->tree);
    if (first == NULL) {
        if (hold->timer_ms != 0)
            uv_timer_stop(&hold->timer);
        hold->timer_ms = 0;
    } else if (hold->timer_ms == 0 || first->deadline_ms < hold->timer_ms) {
        /* A timer that is too early only looks again: pulls that were answered before their deadline do not move it each time. */
        uint64_t now_ms = uv_now(hold->loop);
        hold->timer_ms = first->deadline_ms;
        uv_timer_start(&hold->timer, on_timer, first->deadline_ms > now_ms ? first->deadline_ms - now_ms : 0, 0);
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct pull_hold *hold = timer->data;
    uint64_t now_ms = uv_now(hold->loop);
    struct held *held;
    hold->timer_ms = 0;
    while ((held = RB_MIN(held_tree, &hold->tree)) != NULL && held->deadline_ms <= now_ms)
        resume(hold, held);
    set_timer(hold);
}

int pull_hold_add(struct pull_hold *hold, const struct pull_hold_request *request)
{
    struct held_queue *queue;
    struct held_connection *connection;
    if (hold->closed || hold->count >= hold->count_max || hold->bytes + request->bytes > LIMIT_HELD_BYTES ||
        request->topic.size > TOPIC_BYTES_MAX)
        return ERROR_BUSY;
    struct held *held = calloc(1, sizeof *held);
    if (held == NULL)
        return ERROR_NO_MEMORY;
    queue = find_queue(hold, request->topic, request->queue_id);
    if (queue == NULL) {
        queue = malloc(sizeof *queue + 4 + request->topic.size);
        if (queue == NULL)
            goto no_memory;
        TAILQ_INIT(&queue->list);
        queue->key_size = make_key(queue->key, request->topic, request->queue_id);
        HASH_ADD_KEYPTR(hh, hold->queues, queue->key, queue->key_size, queue);
    }
    held->request = *request;
    held->queue = queue;
    TAILQ_INSERT_TAIL(&queue->list, held, in_queue);
    HASH_FIND(hh, hold->connections, &request->connection_id, sizeof request->connection_id, connection);
    if (connection == NULL) {
        connection = malloc(sizeof *connection);
        if (connection == NULL) {
            leave_queue(hold, held);
            goto no_memory;
        }
        connection->id = request->connection_id;
        TAILQ_INIT(&connection->list);
        HASH_ADD(hh, hold->connections, id, sizeof connection->id, connection);
    }
    held->connection = connection;
    TAILQ_INSERT_TAIL(&connection->list, held, in_connection);
    held->deadline_ms = uv_now(hold->loop) + (request->timeout_ms > LIMIT_HOLD_MS ? LIMIT_HOLD_MS : request->timeout_ms);
    held->sequence = hold->next_sequence++;
    RB_INSERT(held_tree, &hold->tree, held);
    hold->count++;
    hold->bytes += request->bytes;
    set_timer(hold);
    return 0;

no_memory:
    free(held);
    return ERROR_NO_MEMORY;
}

void pull_hold_arrived(struct pull_hold *hold, struct slice topic, int32_t queue_id, int64_t tags_code, struct slice properties)
{
    struct held *held, *next;
    if (hold->queues == NULL)
        return;
    struct held_queue *queue = find_queue(hold, topic, queue_id);
    if (queue == NULL)
        return;
    for (held = TAILQ_FIRST(&queue->list); held != NULL; held = next) {
        /* The queue goes with its last entry, so the end must be known before. */
        next = TAILQ_NEXT(held, in_queue);
        if (held->request.match == NULL || held->request.match(held->request.context, tags_code, properties))
            set_due(hold, held);
    }
}

void pull_hold_notify_topic(struct pull_hold *hold, struct slice topic, int32_t queue_id)
{
    struct held_queue *queue, *next_queue;
    HASH_ITER(hh, hold->queues, queue, next_queue)
    {
        if (!slice_equal(slice_of(queue->key + 4, queue->key_size - 4), topic) || (queue_id >= 0 && load_u32(queue->key) != (uint32_t)queue_id))
            continue;
        struct held *held = TAILQ_FIRST(&queue->list);
        while (held != NULL) {
            struct held *next = TAILQ_NEXT(held, in_queue);
            set_due(hold, held);
            held = next;
        }
    }
}

void pull_hold_wake(struct pull_hold *hold)
{
    struct held *held;
    while ((held = TAILQ_FIRST(&hold->due)) != NULL)
        resume(hold, held);
}

void pull_hold_connection_closed(struct pull_hold *hold, uint64_t connection_id)
{
    struct held_connection *connection;
    HASH_FIND(hh, hold->connections, &connection_id, sizeof connection_id, connection);
    if (connection == NULL)
        return;
    for (;;) {
        struct held *held = TAILQ_FIRST(&connection->list);
        bool last = TAILQ_NEXT(held, in_connection) == NULL;
        unlink_held(hold, held); /* with the last one, connection is freed */
        held->request.drop(held->request.context);
        free(held);
        if (last)
            break;
    }
}

size_t pull_hold_bytes(const struct pull_hold *hold)
{
    return hold->bytes;
}

uint32_t pull_hold_count(const struct pull_hold *hold)
{
    return hold->count;
}

void pull_hold_close(struct pull_hold *hold)
{
    struct held *held;
    if (hold->closed)
        return;
    hold->closed = true;
    while ((held = RB_MIN(held_tree, &hold->tree)) != NULL) {
        unlink_held(hold, held);
        held->request.drop(held->request.context);
        free(held);
    }
    uv_close((uv_handle_t *)&hold->timer, NULL);
}

void pull_hold_free(struct pull_hold *hold)
{
    if (hold == NULL)
        return;
    assert(hold->closed && hold->count == 0);
    free(hold);
}
