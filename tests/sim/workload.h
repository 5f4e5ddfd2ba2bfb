/* The clients: they send requests as RocketMQ's clients do, frames to whoever says that it leads, and each answer is remembered. Plain, delayed and half
 * messages, decisions of transactions, pulls from leaders and followers, consumer offsets, queue locks, topics and groups.
 */
#ifndef LEDGERMQ_TESTS_SIM_WORKLOAD_H
#define LEDGERMQ_TESTS_SIM_WORKLOAD_H

#include "tests/sim/checker.h"

#define WORKLOAD_TARGETS 7 /* queues that clients send to */
#define WORKLOAD_DELAY_LEVELS 3
#define WORKLOAD_SCHEDULE WORKLOAD_TARGETS /* + level - 1 */
#define WORKLOAD_HALF (WORKLOAD_SCHEDULE + WORKLOAD_DELAY_LEVELS)
#define WORKLOAD_MARKS (WORKLOAD_HALF + 1)
#define WORKLOAD_GIVEN_UP (WORKLOAD_HALF + 2)
#define WORKLOAD_QUEUES (WORKLOAD_HALF + 3)
#define WORKLOAD_GROUPS 3
#define WORKLOAD_SLOTS (WORKLOAD_GROUPS * WORKLOAD_TARGETS) /* of consumer offsets: group x target */

struct workload_queue {
    const char *topic;
    int32_t id;
    bool deleted; /* now and then, in use, and made again */
};
extern const struct workload_queue workload_queues[WORKLOAD_QUEUES];
extern const int64_t workload_delay_level_ms[WORKLOAD_DELAY_LEVELS + 1];

void workload_init(void);
void workload_close(void);
void workload_begin(void);
void workload_end(void); /* no further calls */

/* The loop of a machine takes one waiting call. */
void workload_call(struct machine *machine);
/* A machine answers: an empty frame when it answers nothing. */
void workload_answer(struct machine *machine, uint64_t call, struct slice frame);

/* backup.h: a backup begins: what was acknowledged up to now is in it. And the group has gone back to it; newest: the last queue offset of each queue. */
void workload_backup_begins(void);
void workload_group_restored(const int64_t newest[WORKLOAD_QUEUES]);

size_t workload_count(void);
struct client_call *workload_at(size_t number); /* NULL: no such call */
uint64_t workload_acknowledged(void);
/* The call whose message this is, NULL when its body was never sent. */
struct client_call *workload_of_message(struct slice record);
void workload_key(uint64_t number, char out[24]);
int workload_queue_of(struct slice topic, int32_t id); /* -1 */
int workload_slot_of(const char *group, int queue);    /* -1 */
/* The topic was deleted by what was committed just now: its offsets are gone, and who reads it begins anew. */
void workload_topic_deleted(const char *topic);

/* Newest offset that a two-way commit of this slot was acknowledged with, and when; and the newest that was ever sent. */
int64_t workload_offset_floor(int slot, uint64_t *acknowledged_at);
int64_t workload_offset_sent(int slot);
/* What the leader took from a one-way commit of this slot in its present term and process, so long ago that it must be in the log; 0 = nothing. */
int64_t workload_offset_oneway(const struct machine *leader, int slot);
const char *workload_group(int slot);

#endif
