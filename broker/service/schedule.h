/* Delay levels: a message with DELAY waits in SCHEDULE_TOPIC_XXXX, queue level - 1, and the leader stores it again under its real topic when due.
 *
 * Follows org.apache.rocketmq.store.schedule.ScheduleMessageService, but exactly once: the entry that delivers names the schedule-queue offset it
 * consumed (Consumed trailer), and applying it moves the progress on every node. Never early by the leader's clock. Loop thread only.
 */
#ifndef LEDGERMQ_BROKER_SERVICE_SCHEDULE_H
#define LEDGERMQ_BROKER_SERVICE_SCHEDULE_H

#include "broker/limits.h"
#include "proto/buffer.h"
#include "proto/error.h"

struct broker;
struct message_dispatch;
struct schedule;

#define SCHEDULE_TOPIC "SCHEDULE_TOPIC_XXXX"

/* messageDelayLevel: "1s 5s 10s ..." with units s m h d. level_ms[1..*count]; [0] = 0. ERROR_INVALID names the bad part. */
int schedule_parse_levels(const char *text, int64_t level_ms[LIMIT_DELAY_LEVELS + 1], int *count, struct error *error);
/* What DELAY's value asks for: 0 = none (absent, no number, not positive), else clamped to the highest level. */
int schedule_level(struct slice delay, int level_count);
/* When a message whose unit says deliver_at_ms is due, by the wall clock of now, waited_ms (of real time) after it was seen first. A clock that was set
 * back, before that or since, and a new leader's that lags, must neither deliver early, as Java does, nor wait longer than the level's delay. */
int64_t schedule_due_ms(int64_t deliver_at_ms, int64_t now_ms, int64_t waited_ms, int64_t delay_ms);

/* Since when this leader has seen what waits in a level. Messages that wait do so together: else, after a clock was set back, each of them would begin its
 * delay only when the one before it is delivered. */
struct schedule_sight {
    int64_t end;      /* offsets below were in the queue then */
    uint64_t seen_us; /* monotonic, for the wall clock may be set meanwhile */
};
/* For how long the message at offset, the level's next one, has been in the queue for certain. end: behind the queue's last one. */
int64_t schedule_waited_ms(struct schedule_sight *sight, int64_t offset, int64_t end, uint64_t now_us);

struct schedule *schedule_new(struct broker *broker, struct error *error);
/* Leadership began or ended: takes the replicated progress, or stops. */
void schedule_role_changed(struct schedule *schedule);
/* Apply met a message of SCHEDULE_TOPIC_XXXX: its level may be idle. */
void schedule_arrived(struct schedule *schedule, const struct message_dispatch *dispatch);
void schedule_close(struct schedule *schedule); /* timers are closed by the loop later; free after the loop ran */
void schedule_free(struct schedule *schedule);

#endif
