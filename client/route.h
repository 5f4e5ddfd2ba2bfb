/* Which brokers and queues a topic has: the name servers' answers, kept, and asked for again when they are old or
 * proved wrong.
 *
 * Follows org.apache.rocketmq.client.impl.factory.MQClientInstance#updateTopicRouteInfoFromNameServer 4.9.8 (spec:
 * remoting.md 5.2, 6.1). Unlike there, no single name server is believed when another one may know better: an address
 * that just failed makes all of them be asked at once.
 */
#ifndef LEDGERMQ_CLIENT_ROUTE_H
#define LEDGERMQ_CLIENT_ROUTE_H

#include "client/topic_route.h"

#define ROUTE_TOPICS_MAX 65536u

/* Loop thread only, except new and free. */

struct route_table;

struct route_table_options {
    char (*name_servers)[REMOTING_ADDRESS_MAX];
    uint32_t name_server_count;
    int call_timeout_ms;
    int poll_ms;
    /* A route was stored. */
    void (*changed)(void *context);
    void *context;
};

struct route_waiter;
/* rv 0: route_table_get() has an answer now. ERROR_NOT_FOUND: all say the topic is unknown. Else as
 * remoting_call_done. */
typedef void (*route_waiter_done)(struct route_waiter *waiter, int rv, const char *cause);
struct route_waiter {
    route_waiter_done done;
    struct route_waiter *next;
};

int route_table_new(struct remoting_client *client, const struct route_table_options *options,
                    struct route_table **table, struct error *error);
/* On the loop thread, before remoting_client_free(): waiters get ERROR_STOPPED, no request is begun after it. */
void route_table_stop(struct route_table *table);
/* After remoting_client_free(). */
void route_table_free(struct route_table *table);
/* NULL when not known. Valid until the next return to the loop. */
struct topic_route *route_table_get(struct route_table *table, const char *topic);
/* Asks the name servers; joins a question that is under way. create_key: topic whose route serves when the topic is
 * unknown, NULL none. avoid: an address that just failed: an answer with no other leader than this one is taken only
 * when no name server has a better one. waiter may be NULL. Fails with ERROR_BUSY, ERROR_NO_MEMORY: done is not
 * called. */
int route_table_refresh(struct route_table *table, const char *topic, const char *create_key, int queues_of_new_topic,
                        const char *avoid, struct route_waiter *waiter);
/* Forgets a waiter; done is not called. */
void route_table_cancel(struct route_table *table, const char *topic, struct route_waiter *waiter);
/* Calls visit with each broker of each route (a broker may come more than once). */
void route_table_each_broker(struct route_table *table,
                             void (*visit)(void *context, const struct route_broker *broker), void *context);

#endif
