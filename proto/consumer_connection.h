/* Clients of a consumer group and what it subscribes to, answer of GET_CONSUMER_CONNECTION_LIST (203)
 * (org.apache.rocketmq.common.protocol.body.ConsumerConnection).
 */
#ifndef LEDGERMQ_PROTO_CONSUMER_CONNECTION_H
#define LEDGERMQ_PROTO_CONSUMER_CONNECTION_H

#include "proto/heartbeat_data.h"
#include "proto/producer_connection.h"

struct consumer_connection {
    struct arena arena; /* of a decoded one */
    struct client_connection *connections;
    size_t connection_count;
    /* All three are always written: tools switch on them. */
    enum consume_from_where consume_from_where;
    enum consume_type consume_type;
    enum message_model message_model;
    struct subscription_data *subscriptions; /* by topic */
    size_t subscription_count;
};

void consumer_connection_encode(const struct consumer_connection *consumer, struct buffer *out);
/* Errors of json_body.h; then nothing is left to close. */
int consumer_connection_decode(struct consumer_connection *consumer, struct slice body, struct error *error);
void consumer_connection_close(struct consumer_connection *consumer);

#endif
