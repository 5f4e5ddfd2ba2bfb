/* The messages of one queue that are read and not yet consumed, by queue offset.
 *
 * Follows org.apache.rocketmq.client.impl.consumer.ProcessQueue 4.9.8: what is consumed may leave in any order, but the
 * offset that is committed moves only over what has left without a gap. Not thread safe: the loop thread's.
 */
#ifndef LEDGERMQ_CLIENT_PROCESS_QUEUE_H
#define LEDGERMQ_CLIENT_PROCESS_QUEUE_H

#include "client/stored_message.h"

/* One pull's messages, shared by all who still need one of them. */
struct pulled {
    struct stored_messages *messages;
    uint32_t users;
};

/* Takes messages, on failure too (then NULL). The caller is the first user. */
struct pulled *pulled_new(struct stored_messages *messages);
void pulled_release(struct pulled *pulled);

struct queued_message {
    const struct ledgermq_stored_message *message;
    struct pulled *pulled;
    int32_t reconsume_times;
    bool taken; /* somebody consumes it */
    bool again; /* taken, but to be consumed anew after a pause */
    bool done;  /* consumed, waits for those before it to leave */
};

struct process_queue {
    struct queued_message *ring;
    size_t capacity; /* power of 2 */
    size_t head, size; /* size: with those that are done */
    size_t count;      /* not done */
    size_t bytes;      /* bodies of those */
    int64_t next_offset; /* behind the newest that was ever here; -1 none was */
};

struct process_queue_limits {
    size_t messages, bytes;
    int64_t span; /* 0: none */
};

void process_queue_init(struct process_queue *queue);
/* Forgets all. What others have taken stays theirs. */
void process_queue_clear(struct process_queue *queue);
/* Adds all of a pull's messages, which lie behind those that are here. ERROR_NO_MEMORY: none was added.
 * ERROR_MALFORMED: they are not in order, or lie before what is here. */
int process_queue_put(struct process_queue *queue, struct pulled *pulled);
/* NULL when it is not here (any more). Valid until the next call that changes the queue. */
struct queued_message *process_queue_find(const struct process_queue *queue, int64_t offset);
/* The oldest that nobody has taken, NULL when there is none. Mark it before the next call. */
struct queued_message *process_queue_next(const struct process_queue *queue);
/* One marked `again`, NULL when there is none. */
struct queued_message *process_queue_again(const struct process_queue *queue);
/* It is consumed. */
void process_queue_remove(struct process_queue *queue, int64_t offset);
/* All before it are consumed; -1 while there never was a message. */
int64_t process_queue_commit_offset(const struct process_queue *queue);
/* From the oldest to the newest; 0 when there are less than two. */
int64_t process_queue_span(const struct process_queue *queue);
/* Why reading has to pause, NULL when it need not. */
const char *process_queue_full(const struct process_queue *queue, const struct process_queue_limits *limits);

#endif
