/* What the files of the send path share: 10, 310, 320 in send_message_processor.c, 36 in consumer_send_back.c.
 *
 * Follows org.apache.rocketmq.broker.processor.SendMessageProcessor and AbstractSendMessageProcessor 4.9.8.
 */
#ifndef LEDGERMQ_BROKER_SEND_MESSAGE_PROCESSOR_H
#define LEDGERMQ_BROKER_SEND_MESSAGE_PROCESSOR_H

#include "broker/processor.h"
#include "proto/error.h"

#define FAQ_SUGGESTION "\nSee http://rocketmq.apache.org/docs/faq/ for further details." /* FAQUrl#suggestTodo */

struct send_message_processor; /* state: waiting sends and scratch memory */

struct send_message_processor *send_message_processor_new(struct broker *broker, struct error *error);
/* All pending sends have been answered (the log has stopped). */
void send_message_processor_free(struct send_message_processor *sends);
uint32_t send_message_processor_pending(const struct send_message_processor *sends);

/* consumer_send_back.c */
void consumer_send_msg_back(struct broker *broker, struct request *request);

#endif
