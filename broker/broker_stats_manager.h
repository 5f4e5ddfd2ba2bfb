/* Counters per topic, group and queue, with what they counted in the last minute, hour and day: request 315, and the consumeTps of 208 and 317.
 *
 * Follows org.apache.rocketmq.store.stats.BrokerStatsManager and common.stats.StatsItem 4.9.8 (spec: store.md 9.2). Unlike there a window ends now and not at
 * the last sample, so that traffic shows at once. An item that nothing moved for a day is dropped; tools take a missing one for 0. Loop thread only.
 */
#ifndef LEDGERMQ_BROKER_BROKER_STATS_MANAGER_H
#define LEDGERMQ_BROKER_BROKER_STATS_MANAGER_H

#include "proto/broker_stats_data.h"
#include "proto/buffer.h"

struct env;

/* What the items of a kind count, and what their keys are made of (`@` between the parts). */
enum stats_kind {
    STATS_TOPIC_PUT,   /* TOPIC_PUT_NUMS, TOPIC_PUT_SIZE: topic */
    STATS_GROUP_GET,   /* GROUP_GET_NUMS, GROUP_GET_SIZE: topic, group */
    STATS_GROUP_QUEUE, /* GROUP_GET_LATENCY, GROUP_GET_FALL_SIZE, GROUP_GET_FALL_TIME: queueId, topic, group */
    STATS_SNDBCK_PUT,  /* SNDBCK_PUT_NUMS: topic, group */
    STATS_QUEUE_PUT,   /* QUEUE_PUT_NUMS, QUEUE_PUT_SIZE: topic, queueId */
    STATS_QUEUE_GET,   /* QUEUE_GET_NUMS, QUEUE_GET_SIZE: topic, queueId, group */
    STATS_BROKER_PUT,  /* BROKER_PUT_NUMS: cluster */
    STATS_BROKER_GET,  /* BROKER_GET_NUMS: cluster */
    STATS_KIND_COUNT
};

#define STATS_MINUTE_SAMPLES 7 /* every 10 s */
#define STATS_HOUR_SAMPLES 7   /* every 10 minutes */
#define STATS_DAY_SAMPLES 25   /* every hour */
#define STATS_SAMPLES (STATS_MINUTE_SAMPLES + STATS_HOUR_SAMPLES + STATS_DAY_SAMPLES)

struct stats_item; /* private to broker_stats_manager.c but for its key */
struct broker_stats_manager;

struct broker_stats_manager *broker_stats_manager_new(struct env *env); /* NULL: no memory */
void broker_stats_manager_free(struct broker_stats_manager *manager);

/* Finds or makes an item: parts that its kind's key does not have are ignored. NULL: LIMIT_STATS_ITEMS are there, or no memory; nothing is counted then.
 * Valid until control returns to the loop, or as long as it is held. */
struct stats_item *broker_stats_manager_item(struct broker_stats_manager *manager, enum stats_kind kind, struct slice topic, int32_t queue_id,
                                             struct slice group);
/* The same without making one. */
struct stats_item *broker_stats_manager_find(struct broker_stats_manager *manager, enum stats_kind kind, struct slice topic, int32_t queue_id,
                                             struct slice group);
/* The functions on items take NULL. */
void stats_item_hold(struct stats_item *item);
void stats_item_release(struct stats_item *item);
/* One event. nums: messages (of a GROUP_QUEUE item the milliseconds a pull took). */
void stats_item_add(struct stats_item *item, uint64_t nums, uint64_t size);
/* How far a reader was behind at its last pull. */
void stats_item_set_fall(struct stats_item *item, uint64_t bytes, uint64_t ms);
struct slice stats_item_key(const struct stats_item *item); /* ends with NUL */

/* Once a second. */
void broker_stats_manager_tick(struct broker_stats_manager *manager);

/* Request 315. False: no such item. */
bool broker_stats_manager_view(struct broker_stats_manager *manager, struct slice name, struct slice key, struct broker_stats_data *data);
/* One of the names that 315 may ask for. */
bool broker_stats_manager_has_name(struct slice name);
/* BrokerStatsManager#tpsGroupGetNums; 0 for what nobody pulled. */
double broker_stats_manager_get_tps(struct broker_stats_manager *manager, struct slice group, struct slice topic);

uint32_t broker_stats_manager_count(const struct broker_stats_manager *manager);
uint64_t broker_stats_manager_refused(const struct broker_stats_manager *manager); /* at the limit */

#endif
