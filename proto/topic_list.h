/* A list of topic names (org.apache.rocketmq.common.protocol.body.TopicList):
 * {"brokerAddr"?:"ip:port","topicList":["t"]}. */
#ifndef LEDGERMQ_PROTO_TOPIC_LIST_H
#define LEDGERMQ_PROTO_TOPIC_LIST_H

#include "proto/arena.h"
#include "proto/buffer.h"
#include "proto/error.h"

struct topic_list {
    struct arena arena;          /* of a decoded one */
    struct slice broker_address; /* data NULL when absent */
    struct slice *topics;
    size_t topic_count;
};

/* Writing without a copy of the table: begin (broker_address empty = left out), add each, end. */
void topic_list_begin(struct buffer *out, struct slice broker_address);
void topic_list_add(struct buffer *out, struct slice topic);
void topic_list_end(struct buffer *out);

/* Errors of json_body.h; then nothing is left to close. */
int topic_list_decode(struct topic_list *list, struct slice body, struct error *error);
void topic_list_close(struct topic_list *list);

#endif
