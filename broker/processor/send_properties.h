/* The property string of a send: what decides about it, and what is stored.
 *
 * Follows SendMessageProcessor#asyncSendMessage and CommitLog#asyncPutMessage 4.9.8 (spec: store.md 1.10, 6.7).
 */
#ifndef LEDGERMQ_BROKER_PROCESSOR_SEND_PROPERTIES_H
#define LEDGERMQ_BROKER_PROCESSOR_SEND_PROPERTIES_H

#include "proto/buffer.h"

struct send_properties {
    struct slice delay; /* value of DELAY, data NULL when absent */
    bool half_message;  /* TRAN_MSG=true */
    bool deliver_time;  /* __STARTDELIVERTIME is there: delay by any time, of other brokers */
    bool too_long;
    struct slice text; /* what is stored; in the scratch buffer */
};

/* Copies `properties` to scratch without WAIT and what the broker stamps itself (CLUSTER, MSG_REGION, TRACE_ON), without DELAY when drop_delay, and
 * appends the two tails as far as MESSAGE_PROPERTIES_MAX allows: a client's own 32767 bytes are always taken. */
void send_properties_make(struct buffer *scratch, struct slice properties, struct slice cluster_tail, struct slice region_tail, bool drop_delay,
                          struct send_properties *out);
/* Where a delayed message goes in the end: adds REAL_TOPIC and REAL_QID to the pairs that stand in properties from start on. */
void send_properties_add_destination(struct buffer *properties, size_t start, struct slice topic, int32_t queue_id);

#endif
