/* Which queues of a topic a member of a group reads: each member computes it by itself from the same two lists, so the
 * results must be RocketMQ's own, to the queue.
 *
 * Follows org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely, AllocateMessageQueueAveragelyByCircle
 * and AllocateMessageQueueConsistentHash (ten virtual nodes, MD5) 4.9.8.
 */
#ifndef LEDGERMQ_CLIENT_ALLOCATE_MESSAGE_QUEUE_H
#define LEDGERMQ_CLIENT_ALLOCATE_MESSAGE_QUEUE_H

#include <stddef.h>
#include <stdint.h>

#include "client/ledgermq.h"

#define ALLOCATE_VIRTUAL_NODES 10u

/* Members as brokers list them: sorted here as Java's String sorts (by UTF-16 code unit; client ids are ASCII). */
void allocate_sort_members(const char **members, size_t count);

/* queues: all of the topic, by broker name and id. Marks in mine[] (count bytes) those that member `self` of the sorted
 * members gets. ERROR_NO_MEMORY. */
int allocate_message_queue(enum ledgermq_allocate strategy, const struct ledgermq_queue *queues, size_t count,
                           const char *const *members, size_t member_count, size_t self, uint8_t *mine);

#endif
