/* Who is connected: producers and consumers by group, their connections, and what each consumer group subscribes to.
 *
 * Follows org.apache.rocketmq.broker.client.ProducerManager, ConsumerManager and ClientHousekeepingService 4.9.8. Every node keeps its own registry;
 * nothing of it is replicated. Loop thread only.
 */
#ifndef LEDGERMQ_BROKER_REMOTING_CLIENT_REGISTRY_H
#define LEDGERMQ_BROKER_REMOTING_CLIENT_REGISTRY_H

#include "broker/hash_table.h"
#include "broker/processor/sql_program.h"
#include "proto/buffer.h"
#include "proto/error.h"
#include "proto/heartbeat_data.h"
#include "proto/subscription_data.h"

struct broker;
struct request;

#define CLIENT_REGISTRY_GROUPS_MAX 65536u         /* producer and consumer groups, each */
#define CLIENT_REGISTRY_CHANNELS_MAX 65536u       /* (group, connection) pairs in all */
#define CLIENT_REGISTRY_SUBSCRIPTIONS_MAX 1024u   /* topics of one group */
#define CLIENT_REGISTRY_EXPIRE_MS 120000
#define CLIENT_REGISTRY_SCAN_MS 10000
#define CLIENT_REGISTRY_NOTIFY_MS 20 /* changes within this time share one round of notices */
#define CLIENT_REGISTRY_NOTIFY_AGAIN_MS 500

/* One client of one group on one connection. */
struct client_channel {
    uint64_t connection_id;
    char *client_id;
    char address[64]; /* ip:port of the client */
    uint8_t language; /* LanguageCode ordinal */
    int32_t version;
    int64_t last_update_ms;   /* wall clock, for tools */
    uint64_t last_update_us;  /* monotonic, for expiry */

    struct client_group *group; /* private from here: list of the group, list of the connection */
    struct client_channel *group_next, *group_previous;
    struct client_channel *connection_next, *connection_previous;
    struct client_producer *producer; /* of a producer group: its client */
    struct client_channel *producer_next, *producer_previous;
};

/* What a consumer group subscribes to in one topic. Members should all say the same; when they do not, the newest version of those that are connected
 * counts for all of them, and what others say is a conflict: logged, and counted in subscription_conflicts. */
struct client_subscription {
    struct subscription_data data; /* lives in arena; subscription_data_match() is the pull filter */
    struct slice client_id;        /* who said it; in arena */
    int64_t conflict_ms;           /* when a conflict over it was logged last, 0 = never */
    struct arena arena;
    struct sql_program *program; /* of an SQL92 expression; NULL when it does not compile */
    int64_t program_version;     /* subVersion of the last expression of this topic that did; 0 = none */
    UT_hash_handle hh;
};

struct client_group {
    char *name;
    bool consumer;
    struct client_channel *channels; /* walk with group_next */
    uint32_t channel_count;

    /* consumer groups only */
    enum consume_type consume_type;
    enum message_model message_model;
    enum consume_from_where consume_from_where;
    struct client_subscription *subscriptions; /* uthash by topic */
    uint32_t subscription_count;
    bool notify; /* 40 is due */
    struct client_group *notify_next;
    uint64_t notify_again_us; /* monotonic time of one more 40; 0 = none */
    UT_hash_handle hh;
};

struct client_registry {
    struct client_group *consumers; /* uthash by name */
    struct client_group *producers;
    struct client_producer *producer_clients; /* private: uthash by client id */
    struct client_registry_connection *connections; /* private: uthash by connection id */
    uint32_t consumer_group_count;
    uint32_t producer_group_count;
    uint32_t channel_count;
    uint64_t subscription_conflicts; /* heart-beats that said something else than another member that is connected */
    struct client_group *notify_first; /* private from here */
    uint64_t notified_us;
    struct client_registry_timers *timers; /* NULL without a loop: tests call _expire and _notify_due */
    /* Seams for unit tests: send one NOTIFY_CONSUMER_IDS_CHANGED (40), close a connection. */
    void (*notify)(struct broker *broker, uint64_t connection_id, const char *group);
    void (*disconnect)(struct broker *broker, uint64_t connection_id);
};

/* Sets broker->clients. */
int client_registry_open(struct broker *broker, struct error *error);
/* Starts the expiry scan. Needs the log. */
int client_registry_start(struct broker *broker, struct error *error);
/* Forgets all; the timers are closed from the loop after it. */
void client_registry_close(struct broker *broker);

/* Hook of the listener: this connection is gone. Its clients leave their groups at once and the groups are told (40). */
void client_registry_connection_closed(struct broker *broker, uint64_t connection_id);

/* NULL when nobody of that group is connected. Valid until control returns to the loop. */
struct client_group *client_registry_consumer_group(struct client_registry *registry, struct slice group);
struct client_group *client_registry_producer_group(struct client_registry *registry, struct slice group);
struct client_subscription *client_registry_subscription(struct client_group *group, struct slice topic);
/* First channel of that client in a group; NULL when it is not connected. */
struct client_channel *client_registry_channel(struct client_group *group, struct slice client_id);

/* ProducerManager#findChannel: the channel of a client that is a producer of any group, the one heard of last; NULL when it is not connected. */
struct client_channel *client_registry_producer(struct client_registry *registry, struct slice client_id);

/* "JAVA", "GO", ... */
const char *client_channel_language(const struct client_channel *channel);

/* Leadership began: groups and retry topics of the consumers that are connected are made if they are missing (they may have sent their heart-beats
 * while nobody led). Also done with every expiry scan. */
void client_registry_ensure_groups(struct broker *broker);

/* ---- for client_manage_processor.c ---- */

/* Takes one heart-beat of this connection. ERROR_BUSY at a limit; what fits is taken. */
int client_registry_heart_beat(struct broker *broker, const struct request *request, const struct heartbeat_data *data);
/* Takes the connection out of both groups (either may be empty). True when it was a consumer there. */
bool client_registry_unregister(struct broker *broker, uint64_t connection_id, struct slice producer_group, struct slice consumer_group);
/* The group's retry topic is being made: one more 40 follows after CLIENT_REGISTRY_NOTIFY_AGAIN_MS. A client that starts looks for the topic's route
 * once and meets it only in its next round, which would be 20 s later. */
void client_registry_notify_again(struct broker *broker, struct slice group);
void client_registry_notify_again_due(struct broker *broker);
/* Removes channels silent for CLIENT_REGISTRY_EXPIRE_MS. */
void client_registry_expire(struct broker *broker);
/* Sends the 40s that are due. */
void client_registry_notify_due(struct broker *broker);

#endif
