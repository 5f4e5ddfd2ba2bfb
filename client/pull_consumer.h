/* The pull consumer, and reading messages by id and key. Follows DefaultMQPullConsumerImpl and MQAdminImpl 4.9.8. */
#ifndef LEDGERMQ_CLIENT_PULL_CONSUMER_H
#define LEDGERMQ_CLIENT_PULL_CONSUMER_H

#include "client/client.h"

struct ledgermq_pull_consumer;

#endif
