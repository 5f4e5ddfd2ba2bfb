/* Who serves what: brokers with their addresses, and the queues each broker name has of each topic.
 *
 * Follows org.apache.rocketmq.namesrv.routeinfo.RouteInfoManager, except where that loses information: an address is known by broker name AND id,
 * a table is never skipped because its version is known, an id 0 of an older leader term is not taken, and a broker name whose write permission was
 * wiped stays so until it is added again. No sockets, no clock: both are told.
 */
#ifndef LEDGERMQ_BROKER_NAMESRV_NAMESRV_ROUTE_INFO_MANAGER_H
#define LEDGERMQ_BROKER_NAMESRV_NAMESRV_ROUTE_INFO_MANAGER_H

#include <stdbool.h>

#include "broker/hash_table.h"
#include "proto/buffer.h"
#include "proto/data_version.h"
#include "proto/error.h"
#include "proto/topic_config.h"

#define ROUTE_BROKER_EXPIRED_MS 120000
#define ROUTE_BROKER_NAMES_MAX 1024u
#define ROUTE_ADDRESSES_MAX 32u   /* ids of one broker name */
#define ROUTE_TOPICS_MAX 262144u  /* of some 150 bytes each: 40 MiB */
#define ROUTE_NAME_BYTES_MAX 255u /* names and addresses */
#define ROUTE_LISTENERS_BYTES_MAX 1024u

/* One REGISTER_BROKER. Slices are copied. */
struct route_registration {
    struct slice cluster_name;
    struct slice broker_name;
    struct slice broker_address;
    struct slice ha_server_address;
    struct slice listeners; /* "NAME:HOST:PORT,...", may be empty */
    int64_t broker_id;
    int64_t leader_term;    /* -1 = not said (a RocketMQ broker); else the table is whole: topics that it does not hold go */
    int64_t timeout_ms;     /* 0 = ROUTE_BROKER_EXPIRED_MS */
    uint64_t connection_id; /* the address goes when this closes */
    struct data_version version;
    const struct topic_config *topics; /* taken from id 0 only */
    size_t topic_count;
};

struct route_register_result {
    bool taken; /* false: an id 0 of an older term; everything stayed as it was */
    struct slice master_address;   /* empty when no id 0 is known; valid until the next change */
    struct slice master_ha_address;
};

struct route_address {
    int64_t id;
    char *address;
    char *ha_address;
    char *listeners;
    uint64_t connection_id;
    int64_t updated_ms;
    int64_t timeout_ms;
    struct data_version version;
};

struct route_broker {
    char *name;
    char *cluster;
    int64_t leader_term; /* highest seen under id 0, -1 = none said; forgotten with the last address */
    bool write_wiped;    /* by 205, until 327 */
    uint32_t tables;     /* that were laid over its queues */
    struct route_address *addresses; /* sorted by id */
    uint32_t address_count;
    uint32_t address_capacity;
    UT_hash_handle hh;
};

/* What one broker name has of one topic. */
struct route_queue {
    struct route_broker *broker;
    int32_t read_queue_nums;
    int32_t write_queue_nums;
    int32_t perm; /* what the broker said last */
    int32_t sys_flag;
    uint32_t table; /* of broker->tables: the last one that held it */
};

struct route_topic {
    struct route_queue *queues; /* sorted by broker name: clients hash over the order of an answer */
    uint32_t queue_count;
    uint32_t queue_capacity;
    UT_hash_handle hh;
    char name[]; /* NUL behind it */
};

struct route_info_manager {
    struct route_broker *brokers; /* hash by name */
    struct route_topic *topics;   /* hash by name */
    bool leader_seen;             /* an id 0 was taken since the start */
    uint64_t refused_terms;       /* registrations of older leaders */
    uint64_t limit_hits;          /* brokers, ids or topics that found no room */
};

void route_info_manager_init(struct route_info_manager *manager);
void route_info_manager_close(struct route_info_manager *manager);

/* ERROR_INVALID (a name that is empty or too long), ERROR_TOO_LARGE (a limit of this header), ERROR_NO_MEMORY. */
int route_info_register(struct route_info_manager *manager, const struct route_registration *registration, int64_t now_ms,
                        struct route_register_result *result, struct error *error);
/* Removes an address; one that has passed to another broker stays. */
void route_info_unregister(struct route_info_manager *manager, struct slice broker_name, struct slice broker_address);
/* QUERY_DATA_VERSION: true when the address is known and its table has this version, which then counts as a sign of life. *stored: what is known. */
bool route_info_query_version(struct route_info_manager *manager, struct slice broker_name, struct slice broker_address,
                              const struct data_version *version, int64_t now_ms, struct data_version *stored, bool *known);
/* Returns how many addresses went. */
size_t route_info_connection_closed(struct route_info_manager *manager, uint64_t connection_id);
/* Removes what was silent too long; `expired` (may be NULL) is told each connection, which should be closed. */
void route_info_scan(struct route_info_manager *manager, int64_t now_ms, void (*expired)(void *argument, uint64_t connection_id), void *argument);

struct route_topic *route_info_find_topic(const struct route_info_manager *manager, struct slice name);
/* What clients may do with the queues: less than the broker said after WIPE_WRITE_PERM_OF_BROKER. */
int32_t route_queue_perm(const struct route_queue *queue);

/* ---- answers: namesrv_route_answer.c ---- */

/* All writers append JSON to out; when memory is short out->failed is set. listener: the kind of address that is wanted, NULL = the default one. */

/* TopicRouteData; false (nothing appended) when the topic or a live broker of it is unknown. quoted_ids: keys of brokerAddrs as strings. */
bool route_info_topic_route(const struct route_info_manager *manager, struct slice topic, const char *listener, bool quoted_ids,
                            struct slice order_topic_conf, struct buffer *out);
/* ClusterInfo. */
void route_info_cluster(const struct route_info_manager *manager, const char *listener, struct buffer *out);

/* TopicList of the topics that pass; sys_flag tests: (flag & mask) == value, mask 0 = all. cluster: only topics with queues on a broker of it,
 * data NULL = all. */
void route_info_topics(const struct route_info_manager *manager, struct slice cluster, int32_t flag_mask, int32_t flag_value, struct buffer *out);
/* Names of clusters and brokers, and any broker's address. */
void route_info_system_topics(const struct route_info_manager *manager, const char *listener, struct buffer *out);

/* WIPE_WRITE_PERM_OF_BROKER and ADD_WRITE_PERM_OF_BROKER; how many topics of the broker name were touched. */
int32_t route_info_wipe_write_perm(struct route_info_manager *manager, struct slice broker_name);
int32_t route_info_add_write_perm(struct route_info_manager *manager, struct slice broker_name);
/* DELETE_TOPIC_IN_NAMESRV; cluster_name empty = everywhere. */
void route_info_delete_topic(struct route_info_manager *manager, struct slice topic, struct slice cluster_name);

#endif
