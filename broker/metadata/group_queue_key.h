/* The key of a queue as one consumer group sees it, for the tables that hold something of each: pending offsets, resets, locks. */
#ifndef LEDGERMQ_BROKER_METADATA_GROUP_QUEUE_KEY_H
#define LEDGERMQ_BROKER_METADATA_GROUP_QUEUE_KEY_H

#include "proto/buffer.h"

#define GROUP_QUEUE_NAME_MAX 255u /* longer topic or group names cannot exist */
#define GROUP_QUEUE_KEY_MAX (2 * GROUP_QUEUE_NAME_MAX + 2 + sizeof(int32_t))

bool group_queue_name_is_legal(struct slice name);
/* Group, 0, topic, 0, queue id: both names can be borrowed from it as texts. Its size; 0 when a name is empty or too long: such a queue is in no table. */
size_t group_queue_key(char out[GROUP_QUEUE_KEY_MAX], struct slice group, struct slice topic, int32_t queue_id);

#endif
