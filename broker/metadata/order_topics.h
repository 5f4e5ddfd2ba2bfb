/* Which topics are order topics: the name server's table of them (namespace ORDER_TOPIC_CONFIG), as each answer to a registration brings it.
 *
 * Follows TopicConfigManager#updateOrderTopicConfig 4.9.8. The flag decides who may send while the broker is closed for writes (16), and what 317 shows.
 */
#ifndef LEDGERMQ_BROKER_METADATA_ORDER_TOPICS_H
#define LEDGERMQ_BROKER_METADATA_ORDER_TOPICS_H

#include "proto/buffer.h"

struct broker;

/* Body of an answer to 103. The leader puts what differs into the log; others, and an answer without a table, change nothing. */
void order_topics_take(struct broker *broker, struct slice body);

#endif
