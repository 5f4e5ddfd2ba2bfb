/* What a message needs before it is sent: checks and properties.
 *
 * Follows org.apache.rocketmq.client.Validators and DefaultMQProducerImpl#sendKernelImpl 4.9.8.
 */
#ifndef LEDGERMQ_CLIENT_PRODUCER_MESSAGE_H
#define LEDGERMQ_CLIENT_PRODUCER_MESSAGE_H

#include "client/ledgermq.h"
#include "proto/buffer.h"

/* LEDGERMQ_INVALID with the reason, or LEDGERMQ_OK. */
int producer_message_check(const struct ledgermq_message *message, size_t max_body_size,
                           struct ledgermq_error *error);
/* One of the names that RocketMQ keeps for itself. */
bool producer_message_is_reserved(const char *name);
/* What else a batch needs, of messages that have been checked. */
int producer_message_check_batch(const struct ledgermq_message *messages, size_t count,
                                 struct ledgermq_error *error);
/* The property string of a checked message; id becomes UNIQ_KEY. own: RocketMQ's own ones, in front. */
void producer_message_properties(struct buffer *out, const struct ledgermq_message *message, const char *id,
                                 const struct ledgermq_property *own, size_t own_count);

#endif
