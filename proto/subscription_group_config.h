/* Settings of one consumer group (org.apache.rocketmq.common.subscription.SubscriptionGroupConfig; spec:
 * remoting.md 5.9). */
#ifndef LEDGERMQ_PROTO_SUBSCRIPTION_GROUP_CONFIG_H
#define LEDGERMQ_PROTO_SUBSCRIPTION_GROUP_CONFIG_H

#include "proto/arena.h"
#include "proto/buffer.h"
#include "proto/error.h"

struct json_value;
struct json_writer;

struct subscription_group_config {
    struct slice group_name; /* borrowed: from the arena of what was decoded, or from the owner of the table */
    bool consume_enable;
    bool consume_from_min_enable;
    bool consume_broadcast_enable;
    int32_t retry_queue_nums;
    int32_t retry_max_times;
    int64_t broker_id;
    int64_t which_broker_when_consume_slowly;
    bool notify_consumer_ids_changed_enable;
};

/* What a group gets that nobody configured: all allowed, one retry queue, 16 retries. */
void subscription_group_config_init(struct subscription_group_config *config, struct slice group_name);
void subscription_group_config_encode(const struct subscription_group_config *config, struct buffer *out);
/* Body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200). Absent members take the defaults. The name lives in arena
 * (initialised by the caller). ERROR_MISSING without groupName, or errors of json_body.h. */
int subscription_group_config_decode(struct subscription_group_config *config, struct arena *arena, struct slice body,
                                     struct error *error);

/* The same as part of another body. */
void subscription_group_config_write(struct json_writer *writer, const struct subscription_group_config *config);

/* name is used where groupName is absent (the key of the table it stands in). */
int subscription_group_config_read(struct subscription_group_config *config, struct arena *arena,
                                   struct json_value object, struct slice name, struct error *error);

#endif
