/* What a message needs before it is sent: checks, properties, compression.
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
/* The property string of a checked message; id becomes UNIQ_KEY. */
void producer_message_properties(struct buffer *out, const struct ledgermq_message *message, const char *id);
/* Returns the compressed body, to be freed, and its size; NULL, with *size as it was, when it does not get smaller or
 * memory is short: then the body is sent as it is. */
void *producer_message_compress(const void *body, size_t *size);

#endif
