/* Requests whose answer is a message: who waits for which reply, and replying.
 *
 * Follows org.apache.rocketmq.client.producer.RequestFutureHolder and
 * ClientRemotingProcessor#receiveReplyMessage 4.9.8 (spec: remoting.md 3.4). Unlike there, the brokers that a
 * reply may pass through are greeted before the request leaves, also where the request's own topic is on
 * fewer of them.
 */
#ifndef LEDGERMQ_CLIENT_REQUEST_REPLY_H
#define LEDGERMQ_CLIENT_REQUEST_REPLY_H

#include "client/send.h"

/* Any thread but the loop's: requests of that producer that wait end with LEDGERMQ_STOPPED. */
void request_futures_stop(struct ledgermq_producer *producer);
/* Request 326, on the loop thread. context: the client. */
void request_reply_take(void *context, const struct remoting_command *request, const char *address,
                        const struct remoting_origin *origin);

#endif
