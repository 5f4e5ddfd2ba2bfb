/* Clients of a producer group, answer of GET_PRODUCER_CONNECTION_LIST (204)
 * (org.apache.rocketmq.common.protocol.body.ProducerConnection, Connection).
 */
#ifndef LEDGERMQ_PROTO_PRODUCER_CONNECTION_H
#define LEDGERMQ_PROTO_PRODUCER_CONNECTION_H

#include "proto/arena.h"
#include "proto/buffer.h"
#include "proto/error.h"

struct json_value;
struct json_writer;

/* RocketMQ's class is called Connection. */
struct client_connection {
    struct slice client_id;
    struct slice client_address; /* ip:port */
    struct slice language;       /* name of a LanguageCode */
    int32_t version;
};

struct producer_connection {
    struct arena arena; /* of a decoded one */
    struct client_connection *connections;
    size_t connection_count;
};

void producer_connection_encode(const struct producer_connection *producer, struct buffer *out);
/* Errors of json_body.h; then nothing is left to close. */
int producer_connection_decode(struct producer_connection *producer, struct slice body, struct error *error);
void producer_connection_close(struct producer_connection *producer);

/* The member connectionSet of this body and of consumer_connection's. */
void client_connections_write(struct json_writer *writer, const struct client_connection *connections, size_t count);
int client_connections_read(struct client_connection **connections, size_t *count, struct arena *arena,
                            struct json_value root, struct error *error);

#endif
