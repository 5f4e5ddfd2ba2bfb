/* What the files of the send path share: 10, 310, 320 in send_message_processor.c, 36 in consumer_send_back.c.
 *
 * Follows org.apache.rocketmq.broker.processor.SendMessageProcessor and AbstractSendMessageProcessor 4.9.8.
 */
#ifndef LEDGERMQ_BROKER_PROCESSOR_SEND_MESSAGE_PROCESSOR_H
#define LEDGERMQ_BROKER_PROCESSOR_SEND_MESSAGE_PROCESSOR_H

#include "broker/processor/processor.h"
#include "proto/error.h"

#define FAQ_SUGGESTION "\nSee http://rocketmq.apache.org/docs/faq/ for further details." /* FAQUrl#suggestTodo */

struct send_answers;
struct send_message_request_header;
struct topic_entry;
struct send_message_processor; /* state: waiting sends and scratch memory */

struct send_message_processor *send_message_processor_new(struct broker *broker, struct error *error);
/* All pending sends have been answered (the log has stopped). */
void send_message_processor_free(struct send_message_processor *sends);
uint32_t send_message_processor_pending(const struct send_message_processor *sends);
/* Their places: send_answer.h. */
struct send_answers *send_message_processor_answers(struct send_message_processor *sends);
/* How long the oldest of them has waited. Looks at all: for people, not for every second. */
uint64_t send_message_processor_oldest_ms(const struct send_message_processor *sends);

/* reply_message_processor.c: a send of 324 or 325 whose checks are passed; it is answered there. topic and queue_id: where it is to be stored. */
struct reply_send {
    const struct reply_to *reply_to;
    const struct message_host *peer;
    const struct send_message_request_header *header;
    struct slice body;
    struct topic_entry *topic;
    int32_t queue_id;
    struct slice cluster_tail, region_tail; /* what stored messages carry besides (send_properties_make) */
};
void reply_message_send(struct broker *broker, const struct reply_send *send);
/* MSG_REGION and TRACE_ON, in every answer to a send. */
void send_message_write_region(struct broker *broker, struct remoting_writer *writer);

/* consumer_send_back.c */
void consumer_send_msg_back(struct broker *broker, struct request *request);

#endif
