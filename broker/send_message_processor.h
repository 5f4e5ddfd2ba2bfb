/* What the files of the send path share: 10, 310, 320 in send_message_processor.c, 36 in consumer_send_back.c.
 *
 * Follows org.apache.rocketmq.broker.processor.SendMessageProcessor and AbstractSendMessageProcessor 4.9.8.
 */
#ifndef LEDGERMQ_BROKER_SEND_MESSAGE_PROCESSOR_H
#define LEDGERMQ_BROKER_SEND_MESSAGE_PROCESSOR_H

#include "broker/processor.h"
#include "proto/error.h"

struct send_message_processor; /* state: waiting sends and scratch memory */

struct send_message_processor *send_message_processor_new(struct broker *broker, struct error *error);
/* All pending sends have been answered (the log has stopped). */
void send_message_processor_free(struct send_message_processor *sends);
uint32_t send_message_processor_pending(const struct send_message_processor *sends);

/* consumer_send_back.c */
void consumer_send_msg_back(struct broker *broker, struct request *request);

/* A message with delay level > 0 goes to SCHEDULE_TOPIC_XXXX, queue level - 1, and names its real destination: adds REAL_TOPIC and REAL_QID to the
 * pairs that stand in properties from start on. */
void send_message_append_destination(struct buffer *properties, size_t start, struct slice topic, int32_t queue_id);

/* Fields of a stored property string that decide about a send, and a copy without what the broker stamps itself. */
struct send_properties {
    struct slice delay;
    bool half_message;   /* TRAN_MSG=true */
    bool too_long;
    struct slice text;   /* what is stored; in the scratch buffer */
};
/* Copies `properties` without WAIT and what the tail stamps (CLUSTER, MSG_REGION, TRACE_ON), without DELAY when drop_delay, and appends the tail as far as
 * MESSAGE_PROPERTIES_MAX allows: the client's own 32767 bytes are always taken, CLUSTER is what a longer one fails on. */
void send_properties_make(struct buffer *scratch, struct slice properties, struct slice cluster_tail, struct slice region_tail, bool drop_delay,
                          struct send_properties *out);

#endif
