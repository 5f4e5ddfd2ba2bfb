#include "client/process_queue.h"

#include <assert.h>
#include <stdlib.h>

#define FIRST_CAPACITY 64u

struct pulled *pulled_new(struct stored_messages *messages)
{
    struct pulled *pulled = malloc(sizeof *pulled);
    if (pulled == NULL) {
        stored_messages_free(messages);
        return NULL;
    }
    *pulled = (struct pulled){messages, 1};
    return pulled;
}

void pulled_release(struct pulled *pulled)
{
    assert(pulled->users > 0);
    if (--pulled->users > 0)
        return;
    stored_messages_free(pulled->messages);
    free(pulled);
}

void process_queue_init(struct process_queue *queue)
{
    *queue = (struct process_queue){.next_offset = -1};
}

static struct queued_message *at(const struct process_queue *queue, size_t place)
{
    return &queue->ring[(queue->head + place) & (queue->capacity - 1)];
}

void process_queue_clear(struct process_queue *queue)
{
    for (size_t i = 0; i < queue->size; i++)
        pulled_release(at(queue, i)->pulled);
    free(queue->ring);
    process_queue_init(queue);
}

static int make_room(struct process_queue *queue, size_t more)
{
    size_t capacity = queue->capacity == 0 ? FIRST_CAPACITY : queue->capacity;
    while (capacity < queue->size + more)
        capacity *= 2;
    if (capacity == queue->capacity)
        return 0;
    struct queued_message *ring = malloc(capacity * sizeof *ring);
    if (ring == NULL)
        return ERROR_NO_MEMORY;
    for (size_t i = 0; i < queue->size; i++)
        ring[i] = *at(queue, i);
    free(queue->ring);
    queue->ring = ring;
    queue->capacity = capacity;
    queue->head = 0;
    return 0;
}

int process_queue_put(struct process_queue *queue, struct pulled *pulled)
{
    const struct ledgermq_pull_result *result = &pulled->messages->result;
    int64_t next = queue->next_offset;
    for (size_t i = 0; i < result->count; i++) {
        if (result->messages[i].queue_offset < next)
            return ERROR_MALFORMED;
        next = result->messages[i].queue_offset + 1;
    }
    int rv = make_room(queue, result->count);
    if (rv != 0)
        return rv;
    for (size_t i = 0; i < result->count; i++) {
        const struct ledgermq_stored_message *message = &result->messages[i];
        *at(queue, queue->size++) = (struct queued_message){
            .message = message, .pulled = pulled, .reconsume_times = message->reconsume_times};
        queue->bytes += message->body_size;
        pulled->users++;
    }
    queue->count += result->count;
    queue->next_offset = next;
    return 0;
}

struct queued_message *process_queue_find(const struct process_queue *queue, int64_t offset)
{
    size_t low = 0, high = queue->size;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (at(queue, middle)->message->queue_offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    struct queued_message *found = low < queue->size ? at(queue, low) : NULL;
    return found != NULL && found->message->queue_offset == offset && !found->done ? found : NULL;
}

struct queued_message *process_queue_next(const struct process_queue *queue)
{
    for (size_t i = 0; i < queue->size; i++)
        if (!at(queue, i)->taken && !at(queue, i)->done)
            return at(queue, i);
    return NULL;
}

struct queued_message *process_queue_again(const struct process_queue *queue)
{
    for (size_t i = 0; i < queue->size; i++)
        if (at(queue, i)->again && !at(queue, i)->done)
            return at(queue, i);
    return NULL;
}

void process_queue_remove(struct process_queue *queue, int64_t offset)
{
    struct queued_message *message = process_queue_find(queue, offset);
    if (message == NULL)
        return;
    message->done = true;
    queue->count--;
    queue->bytes -= message->message->body_size;
    while (queue->size > 0 && at(queue, 0)->done) {
        pulled_release(at(queue, 0)->pulled);
        queue->head = (queue->head + 1) & (queue->capacity - 1);
        queue->size--;
    }
}

int64_t process_queue_commit_offset(const struct process_queue *queue)
{
    return queue->size > 0 ? at(queue, 0)->message->queue_offset : queue->next_offset;
}

int64_t process_queue_span(const struct process_queue *queue)
{
    return queue->size == 0 ? 0 : queue->next_offset - 1 - at(queue, 0)->message->queue_offset;
}

const char *process_queue_full(const struct process_queue *queue, const struct process_queue_limits *limits)
{
    if (queue->count > limits->messages)
        return "messages";
    if (queue->bytes > limits->bytes)
        return "bytes";
    if (limits->span > 0 && process_queue_span(queue) > limits->span)
        return "span";
    return NULL;
}
