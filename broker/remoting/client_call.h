/* Requests of ours that a client is to answer (307, 309, 221, 326), until it does, its connection closes, or its time is up.
 *
 * Follows org.apache.rocketmq.broker.client.net.Broker2Client#callClient 4.9.8. A call is known by its connection and its opaque together: an answer that
 * comes on another connection is nobody's. Requests that want no answer (39, 40, 220) go through push_begin of processor.h instead. Loop thread only.
 */
#ifndef LEDGERMQ_BROKER_REMOTING_CLIENT_CALL_H
#define LEDGERMQ_BROKER_REMOTING_CLIENT_CALL_H

#include <uv.h>

#include "proto/remoting_command.h"

struct broker;
struct client_call_table;

/* code 0: answer is what the client said, whatever its code; valid during the callback. Else answer is NULL: ERROR_TIMEOUT, ERROR_CONNECTION (closed
 * before it answered), ERROR_STOPPED. Called exactly once, never inside client_call_end. */
typedef void (*client_call_done)(struct broker *broker, void *context, int code, const struct remoting_command *answer);

/* loop NULL: no timer, tests call client_call_expire. NULL: no memory. */
struct client_call_table *client_call_table_new(uv_loop_t *loop, struct broker *broker);
/* All that waits ends with ERROR_STOPPED; the timer is closed by the loop, free after it ran. */
void client_call_table_close(struct client_call_table *table);
void client_call_table_free(struct client_call_table *table);
uint32_t client_call_count(const struct client_call_table *table);

/* Begins a request in the connection's output: ext fields and body go to writer, then client_call_end. 0; ERROR_CONNECTION: it is gone; ERROR_BUSY:
 * LIMIT_CLIENT_CALLS wait; ERROR_NO_MEMORY. After an error nothing is called. */
int client_call_begin(struct broker *broker, uint64_t connection_id, int32_t code, struct remoting_writer *writer);
/* Must follow a client_call_begin that succeeded, with nothing in between. */
void client_call_end(struct broker *broker, uint64_t connection_id, struct remoting_writer *writer, uint32_t timeout_ms, client_call_done done,
                     void *context);

/* ---- hooks ---- */

/* A response came on that connection. False: nobody waits for it. */
bool client_call_answered(struct client_call_table *table, uint64_t connection_id, const struct remoting_command *answer);
void client_call_connection_closed(struct client_call_table *table, uint64_t connection_id);
/* Ends what is due. */
void client_call_expire(struct client_call_table *table, uint64_t now_us);

#endif
