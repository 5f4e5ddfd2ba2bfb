/* Which brokers and queues a topic has: the name servers' answers, kept, and asked for again when they are old or
 * proved wrong.
 *
 * Follows org.apache.rocketmq.client.impl.factory.MQClientInstance#updateTopicRouteInfoFromNameServer 4.9.8 (spec:
 * remoting.md 5.2, 6.1). Unlike there, no single name server is believed when another one may know better: an address
 * that just failed makes all of them be asked at once.
 */
#ifndef LEDGERMQ_CLIENT_ROUTE_H
#define LEDGERMQ_CLIENT_ROUTE_H

#include "client/remoting_client.h"
#include "proto/topic_route_data.h"

#define ROUTE_NAME_SERVERS_MAX 16u
#define ROUTE_TOPICS_MAX 65536u
#define ROUTE_QUEUES_MAX 65536u /* of one topic over all brokers */

struct route_address {
    int64_t id; /* 0 the leader */
    const char *address;
};

struct route_broker {
    const char *name;
    const char *cluster;
    uint32_t address_count;
    struct route_address *addresses; /* by id */
};

struct route_queue_data {
    const char *broker_name;
    int32_t read_queues, write_queues, perm, sys_flag;
};

struct route_queue {
    const struct route_broker *broker;
    int32_t queue_id;
};

/* A route with the lists that choosing a queue needs. Texts are data's, the rest is the arena's. */
struct topic_route {
    struct topic_route_data data;
    struct arena arena;
    uint32_t broker_count, queue_data_count;
    struct route_broker *brokers;        /* by name */
    struct route_queue_data *queue_data; /* by broker name */
    const char *order_conf;              /* "broker-a:4;broker-b:4", NULL when none */
    uint32_t publish_count, subscribe_count;
    struct route_queue *publish;   /* queues that may be written: permission W, and a broker with a leader */
    struct route_queue *subscribe; /* queues that may be read */
    uint32_t turn;                 /* of the selector; kept when a newer route takes this one's place */
    bool from_template;            /* the topic is not there yet: the queues are what auto-creation will make */
};

/* Reads the body of an answer to 105. queues_of_new_topic > 0: it is the template's route, cut to so many queues a
 * broker. ERROR_MALFORMED, ERROR_TOO_LARGE, ERROR_NO_MEMORY: nothing to close. */
int topic_route_parse(struct topic_route *route, struct slice json, int queues_of_new_topic, struct error *error);
void topic_route_close(struct topic_route *route);
const struct route_broker *topic_route_broker(const struct topic_route *route, const char *broker_name);
/* The leader's address, NULL while there is none. */
const char *route_broker_leader(const struct route_broker *broker);
/* The leader's address, or any other. */
const char *route_broker_any(const struct route_broker *broker);

/* Splits "a:1;b:2" (blanks around are dropped). Returns the number, 0 when there is none or one has no port; error
 * says so. */
uint32_t route_split_name_servers(const char *list, char servers[ROUTE_NAME_SERVERS_MAX][REMOTING_ADDRESS_MAX],
                                  struct error *error);

/* --- the table; loop thread only, except new and free ---- */

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
