/* Names one queue of one broker (org.apache.rocketmq.common.message.MessageQueue); also the key of many tables. */
#ifndef LEDGERMQ_PROTO_MESSAGE_QUEUE_H
#define LEDGERMQ_PROTO_MESSAGE_QUEUE_H

#include "proto/buffer.h"

struct message_queue {
    struct slice broker_name;
    struct slice topic;
    int32_t queue_id;
};

/* {"brokerName":"b","queueId":0,"topic":"t"}: the order of keys matters where the object is itself a key. */
void message_queue_encode(const struct message_queue *queue, struct buffer *out);

#endif
