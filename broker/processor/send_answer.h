/* What a send is answered: at once when it is refused, else when it has been committed and applied. Until then it waits in a struct pending_send,
 * from a free list that takes no malloc once it has grown; at most LIMIT_PENDING_SENDS wait.
 */
#ifndef LEDGERMQ_BROKER_PROCESSOR_SEND_ANSWER_H
#define LEDGERMQ_BROKER_PROCESSOR_SEND_ANSWER_H

#include "broker/processor/processor.h"
#include "dledger/dledger_commit_log.h"

struct pending_slab;
struct stats_item;

struct send_answers {
    struct broker *broker;
    struct pending_slab *slabs;
    struct pending_send *free_sends;
    uint32_t waiting;
    uint32_t allocated;
    struct buffer ids; /* scratch: msgId of a batch */
};

struct pending_send {
    struct append_entry_request append; /* first; hand it to the append of the last entry, then the answer comes by itself */
    struct send_answers *answers;
    struct pending_send *next_free;
    struct reply_to reply_to;
    int32_t queue_id; /* as answered: the real one, not the schedule queue */
    int64_t queue_offset;
    int64_t physical_offset;
    uint64_t started_us; /* 0: free */
    uint64_t bytes;
    uint32_t messages;
    struct stats_item *stats; /* of the topic as stored; held */
    int32_t schedule_queue;   /* that it was stored in, -1 = none */
    int64_t *batch_offsets; /* physical offsets of a batch's members, NULL for a single message */
};

void send_answer_init(struct send_answers *answers, struct broker *broker);
/* Nothing waits any more. */
void send_answer_close(struct send_answers *answers);
/* How long the oldest has waited. Looks at all: for people, not for every second. */
uint64_t send_answer_oldest_ms(const struct send_answers *answers);

/* NULL: too many wait, of all clients or of this one, or there is no memory: the refusal has been answered. The caller fills in what is answered,
 * before or right after the append; then it is not his any more. */
struct pending_send *send_answer_take(struct send_answers *answers, const struct reply_to *to);
/* Gives back what was not appended. */
void send_answer_give(struct pending_send *pending);
/* The item is found while the topic's name is at hand; the event counts when it is answered. */
void send_answer_count_for(struct pending_send *pending, struct slice topic);

void send_answer_refuse(struct broker *broker, const struct reply_to *to, int32_t code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* code: of append or reserve. */
void send_answer_code(struct broker *broker, const struct reply_to *to, int code);
void send_answer_illegal(struct broker *broker, const struct reply_to *to);

#endif
