/* The route of one topic: its brokers, and the queues that can be written and read.
 *
 * Follows org.apache.rocketmq.client.impl.factory.MQClientInstance#topicRouteData2TopicPublishInfo 4.9.8
 * (spec: remoting.md 5.2).
 */
#ifndef LEDGERMQ_CLIENT_TOPIC_ROUTE_H
#define LEDGERMQ_CLIENT_TOPIC_ROUTE_H

#include "client/ledgermq.h"
#include "client/remoting_client.h"
#include "proto/topic_route_data.h"

#define ROUTE_NAME_SERVERS_MAX 16u
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
    struct route_queue *publish; /* queues that may be written: permission W, and a broker with a leader */
    struct ledgermq_queue_view *publish_views; /* the same, as the application's selectors see them */
    struct route_queue *subscribe;             /* queues that may be read */
    uint32_t turn;                             /* of the selector; kept when a newer route takes this one's place */
    bool from_template; /* the topic is not there yet: the queues are what auto-creation will make */
};

/* Reads the body of an answer to 105. queues_of_new_topic > 0: it is the template's route, cut to so many
 * queues a broker. ERROR_MALFORMED, ERROR_TOO_LARGE, ERROR_NO_MEMORY: nothing to close. */
int topic_route_parse(struct topic_route *route, struct slice json, int queues_of_new_topic, struct error *error);
void topic_route_close(struct topic_route *route);
const struct route_broker *topic_route_broker(const struct topic_route *route, const char *broker_name);
/* The leader's address, NULL while there is none. */
const char *route_broker_leader(const struct route_broker *broker);
/* The leader's address, or any other. */
const char *route_broker_any(const struct route_broker *broker);

/* Splits "a:1;b:2" (blanks around are dropped). Returns the number, 0 when there is none or one has no port;
 * error says so. */
uint32_t route_split_name_servers(const char *list, char servers[ROUTE_NAME_SERVERS_MAX][REMOTING_ADDRESS_MAX],
                                  struct error *error);

#endif
