/* Which queue the next message goes to.
 *
 * Follows org.apache.rocketmq.client.impl.producer.TopicPublishInfo#selectOneMessageQueue and MQFaultStrategy 4.9.8.
 * Loop thread only.
 */
#ifndef LEDGERMQ_CLIENT_QUEUE_SELECTOR_H
#define LEDGERMQ_CLIENT_QUEUE_SELECTOR_H

#include "client/latency_fault_tolerance.h"
#include "client/route.h"

/* The next queue in turn, not of last_broker (NULL none) while another broker has one. tolerance (NULL: not used)
 * leaves out brokers that are slow or failed; when all are, one of the less bad ones is taken. NULL when the topic
 * has no queue that can be written. */
const struct route_queue *queue_selector_pick(struct topic_route *route, const char *last_broker,
                                              struct latency_fault_tolerance *tolerance, int64_t now_ms);

#endif
