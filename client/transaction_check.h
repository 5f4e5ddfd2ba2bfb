/* Transactions of a producer: telling the broker how one ended, and answering when the broker asks.
 *
 * Follows org.apache.rocketmq.client.impl.producer.DefaultMQProducerImpl#checkTransactionState and
 * #endTransaction 4.9.8 (spec: remoting.md 3.7). Unlike there, the broker's answer to a decision is waited
 * for, so that a change of leader between half message and decision does not leave the transaction to the
 * next check.
 */
#ifndef LEDGERMQ_CLIENT_TRANSACTION_CHECK_H
#define LEDGERMQ_CLIENT_TRANSACTION_CHECK_H

#include "client/send.h"
#include "client/stored_message.h"

#define TRANSACTION_CHECKS_MAX 2000u /* that wait for the listener; the broker asks again for others */
#define TRANSACTION_CHECK_BYTES_MAX (64u * 1024 * 1024) /* of their messages */

struct check_thread;

/* What names a half message at its broker. */
struct transaction_place {
    int64_t queue_offset;    /* in the half topic */
    int64_t physical_offset; /* of the half message */
    const char *topic;       /* with the namespace */
    const char *message_id;  /* UNIQ_KEY */
    const char *transaction_id;
    bool from_check;
};

/* Any thread but the loop's: request 37 to one address. 0 when the broker has taken the decision (a commit or
 * a rollback). */
int transaction_end(struct ledgermq_producer *producer, const char *address, const struct transaction_place *place,
                    int state, int timeout_ms, struct remoting_response *response, struct error *error);

/* The thread that runs a producer's transaction listener, waiting for checks. */
int check_thread_new(struct ledgermq_producer *producer, struct check_thread **thread, struct error *error);
/* Checks that wait are dropped (the broker asks again); one that is under way is waited for. NULL is fine. */
void check_thread_free(struct check_thread *thread);

/* Request 39, on the loop thread. context: the client. */
void transaction_check_take(void *context, const struct remoting_command *request, const char *address,
                            const struct remoting_origin *origin);

#endif
