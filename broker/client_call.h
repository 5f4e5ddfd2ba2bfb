/* Requests that an operator's tool has us put to a client: the client's answer goes back to who asked.
 *
 * Follows AdminBrokerProcessor#callConsumer and Broker2Client#callClient of RocketMQ 4.9.8. Every node asks the clients that are connected to itself.
 * Bounded by LIMIT_CLIENT_CALLS. Loop thread only.
 */
#ifndef LEDGERMQ_BROKER_CLIENT_CALL_H
#define LEDGERMQ_BROKER_CLIENT_CALL_H

#include "broker/processor.h"
#include "proto/error.h"

struct client_calls;
struct connection;

struct client_calls *client_calls_new(struct broker *broker, struct error *error);

/* Finds the client among the consumers of that group and begins request `code` to it. False: it cannot be asked, `to` has been answered. True: write
 * the ext fields, and a body if there is one, then call client_call_end; nothing else may come between. */
bool client_call_begin(struct broker *broker, const struct reply_to *to, struct slice group, struct slice client_id, int32_t code,
                       struct remoting_writer *writer);
void client_call_end(struct broker *broker, struct remoting_writer *writer);

/* A response came on a client's connection; one that nobody waits for is ignored. */
void client_call_answered(struct broker *broker, const struct connection *connection, const struct remoting_command *response);
/* Its calls are answered at once. */
void client_call_connection_closed(struct broker *broker, uint64_t connection_id);
uint32_t client_calls_waiting(const struct client_calls *calls);

/* Forgets all. The timer is closed by the loop later; free after the loop ran. NULL is fine. */
void client_calls_close(struct client_calls *calls);
void client_calls_free(struct client_calls *calls);

#endif
