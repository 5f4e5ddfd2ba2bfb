/* The producer behind ledgermq_send(): choosing a queue, and what a failure leads to.
 *
 * Follows org.apache.rocketmq.client.impl.producer.DefaultMQProducerImpl#sendDefaultImpl 4.9.8.
 */
#ifndef LEDGERMQ_CLIENT_PRODUCER_H
#define LEDGERMQ_CLIENT_PRODUCER_H

#include "client/ledgermq.h"

struct ledgermq_producer;

/* The response codes after which a send is tried again (DefaultMQProducer.retryResponseCodes). */
bool producer_may_retry(int response_code);

#endif
