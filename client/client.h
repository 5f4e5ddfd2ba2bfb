/* One client instance: what its producers and consumers share. Follows
 * org.apache.rocketmq.client.impl.factory.MQClientInstance 4.9.8. */
#ifndef LEDGERMQ_CLIENT_CLIENT_H
#define LEDGERMQ_CLIENT_CLIENT_H

#include "client/ledgermq.h"
#include "client/message_client_id_setter.h"
#include "client/namespace_util.h"
#include "client/remoting_client.h"
#include "client/route.h"
#include "proto/heartbeat_data.h"

#define CLIENT_GROUPS_MAX 4096u
#define CLIENT_GROUP_TOPICS_MAX 4096u

struct client_group;
struct consumer;
struct client_seen;
struct request_future;

struct ledgermq_client {
    struct remoting_client *remoting;
    struct route_table *routes;
    struct message_client_id_setter ids;
    char id[320];
    char name_space[NAMESPACE_MAX + 1]; /* "" none */
    char *name_servers; /* as given */
    int call_timeout_ms;
    int heartbeat_ms;

    uv_mutex_t lock; /* guards the lists of what ledgermq_client_free() has to free */
    struct ledgermq_producer *producers;
    struct ledgermq_pull_consumer *pull_consumers;
    struct consumer *consumers;

    /* loop thread only */
    struct client_group *groups; /* that heart-beats announce */
    struct consumer *active_consumers; /* that read */
    struct client_seen *seen;    /* addresses that got one in this period */
    struct request_future *requests; /* that wait for a reply, by correlation id */
    int64_t reply_route_again_ms;    /* before then the reply topic's route is not asked for again */
    struct remoting_delay heartbeat;
    bool stopping;
};

/* Fills the public error from an internal one; returns the public code. response_code 0 when the broker had no part
 * in it. */
int client_error(struct ledgermq_error *out, int rv, int response_code, const struct error *error);
int client_error_text(struct ledgermq_error *out, int code, int response_code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
int64_t client_clock_ms(void);     /* wall clock */
int64_t client_monotonic_ms(void); /* what remoting_client_now_ms() counts too, on any thread */

/* Any thread but the loop's: announces a group, waits until the loop knows it. consumer: a pull consumer, with the
 * topics it reads. ERROR_BUSY, ERROR_NO_MEMORY, ERROR_EXISTS when client_group_join() has it. */
int client_group_register(struct ledgermq_client *client, const char *group, bool consumer);
/* Unregisters it at the brokers it was announced to (35), waiting a second at most. */
void client_group_unregister(struct ledgermq_client *client, const char *group, bool consumer);
void client_group_add_topic(struct ledgermq_client *client, const char *group, const char *topic);

/* Any thread but the loop's: the address to ask for a broker's queues, the leader if there is one. avoid: an address
 * that just failed, NULL none. */
int client_broker_address(struct ledgermq_client *client, const char *topic, const char *broker_name,
                          const char *avoid, char address[REMOTING_ADDRESS_MAX], struct error *error);
/* All queues that can be written or read, of a topic as the application knows it; so they name it too. create_key: as
 * route_table_refresh(). Returns a public code: LEDGERMQ_NO_ROUTE when the topic is unknown. */
int client_queues(struct ledgermq_client *client, const char *topic, bool publish, const char *create_key,
                  int queues_of_new_topic, struct ledgermq_queue **queues, size_t *count,
                  struct ledgermq_error *error);
/* The queue as brokers know it: its topic with the namespace. */
struct ledgermq_queue client_full_queue(const struct ledgermq_client *client, const struct ledgermq_queue *queue);
/* What of an application's expression goes to brokers: all of it, or what follows "sql:". NULL is all messages. */
const char *client_expression(const char *given, bool *sql);
/* Requests of {topic, queueId, name, name2} that answer with {offset}: returns a public code. name, name2, offset may be
 * NULL. Not from the loop thread: says so. */
int client_offset_call(struct ledgermq_client *client, const struct ledgermq_queue *queue, int32_t code,
                       const char *name, const char *value, const char *name2, const char *value2, int64_t *offset,
                       struct ledgermq_error *error);
/* One address per broker name of the topic. Caller frees *addresses (one block). */
int client_topic_brokers(struct ledgermq_client *client, const char *topic, char (**addresses)[REMOTING_ADDRESS_MAX],
                         size_t *count, struct error *error);

/* What heart-beats say of a consumer group. */
struct client_group_consumer {
    enum consume_type consume_type;
    enum message_model message_model;
    enum consume_from_where consume_from_where;
};
/* Loop thread, for a consumer that has the group to itself in this client. ERROR_EXISTS, ERROR_BUSY, ERROR_NO_MEMORY.
 * client_group_unregister() ends it. */
int client_group_join(struct ledgermq_client *client, const char *group, const struct client_group_consumer *consumer);
/* Loop thread: replaces or adds a subscription and tells all brokers. expression_type: a constant. ERROR_BUSY,
 * ERROR_NO_MEMORY, ERROR_NOT_FOUND without the group. */
int client_group_subscribe(struct ledgermq_client *client, const char *group, const char *topic,
                           const char *expression, const char *expression_type, int64_t version_ms);
void client_group_unsubscribe(struct ledgermq_client *client, const char *group, const char *topic);

/* Loop thread: heart-beats, each of which carries all groups of the client, to brokers of known routes that got none in
 * this period; to one broker that has forgotten this client; the period's end; the end of all. */
void client_group_greet(void *client);
void client_group_greet_again(void *client, const char *address);
void client_group_forget_greeted(struct ledgermq_client *client);
void client_group_heartbeat(struct remoting_delay *delay);
void client_groups_free(struct ledgermq_client *client);

#endif
