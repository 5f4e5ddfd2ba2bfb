/* Message trace of a producer: which message went where, when and how long it took, as messages of the trace topic.
 *
 * Follows org.apache.rocketmq.client.trace.AsyncTraceDispatcher, TraceDataEncoder and SendMessageTraceHookImpl 4.9.8
 * (spec: remoting.md 7.12). What cannot be sent is dropped: tracing never holds up what it traces.
 */
#ifndef LEDGERMQ_CLIENT_TRACE_DISPATCHER_H
#define LEDGERMQ_CLIENT_TRACE_DISPATCHER_H

#include "client/send.h"

struct trace_dispatcher;

/* group: of the producer that is traced. topic NULL: RMQ_SYS_TRACE_TOPIC. Makes a producer of its own. Public codes.
 */
int trace_dispatcher_new(struct ledgermq_client *client, const char *group, const char *topic,
                         struct trace_dispatcher **dispatcher, struct ledgermq_error *error);
/* Loop thread: a message was stored; the answer says whether its broker wants traces. */
void trace_dispatcher_sent(struct trace_dispatcher *dispatcher, const struct send *send,
                           const struct ledgermq_send_result *result, const struct remoting_command *answer);
/* How a transaction ended; topic without the namespace. */
struct trace_transaction {
    const char *topic, *message_id, *tags, *keys, *broker_address, *transaction_id;
    int state; /* LEDGERMQ_TRANSACTION_COMMIT or _ROLLBACK */
    bool from_check;
};
/* Any thread: the broker was told. */
void trace_dispatcher_ended(struct trace_dispatcher *dispatcher, const struct ledgermq_producer *producer,
                            const struct trace_transaction *transaction);
/* Sends what is gathered and waits for it. Any thread but the loop's. NULL is fine. */
void trace_dispatcher_free(struct trace_dispatcher *dispatcher);

#endif
