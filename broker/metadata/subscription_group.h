/* The consumer groups of this group of nodes: settings by name, made on first use, changed only by metadata records.
 *
 * Follows org.apache.rocketmq.broker.subscription.SubscriptionGroupManager 4.9.8. Loop thread only.
 */
#ifndef LEDGERMQ_BROKER_METADATA_SUBSCRIPTION_GROUP_H
#define LEDGERMQ_BROKER_METADATA_SUBSCRIPTION_GROUP_H

#include "broker/hash_table.h"
#include "proto/data_version.h"
#include "proto/subscription_group_config.h"

struct broker;

#define SUBSCRIPTION_GROUP_TABLE_MAX 65536u
#define SUBSCRIPTION_GROUP_NAME_MAX 255u

struct subscription_group_entry {
    struct subscription_group_config config;
    bool built_in;
    bool overridden; /* built in, but a record has changed it */

    /* private */
    struct subscription_group_config preset; /* of a built-in group */
    char *name;
    UT_hash_handle hh;
};

struct subscription_group_table {
    struct subscription_group_entry *entries; /* uthash by name */
    uint32_t count;
    struct data_version version;
    uint64_t changes; /* counts every change in this process, for exports */

    /* private */
    struct subscription_group_creation *creations; /* by name: records on their way */
};

int subscription_group_table_open(struct broker *broker, struct error *error);
void subscription_group_table_close(struct broker *broker);

/* NULL when unknown. Valid until control returns to the loop. */
struct subscription_group_config *subscription_group_find(struct subscription_group_table *table, struct slice name);
/* The group's settings as SubscriptionGroupManager#findSubscriptionGroupConfig gives them: an unknown group is made with default settings when
 * autoCreateSubscriptionGroup is on (or it is a CID_RMQ_SYS_ group) and its name is legal; the leader puts the record on its way and the defaults count
 * at once, so nobody has to wait. A follower only gives the defaults: the consumer's heart-beat reaches the leader as well. NULL: answer 26. */
const struct subscription_group_config *subscription_group_need(struct broker *broker, struct slice name);

typedef void (*subscription_group_ready)(struct broker *broker, void *context, int code);
/* Makes the group with default settings (leader only). 0: `ready` (may be NULL) will be called when the record is applied or has failed, never inside
 * this call. ERROR_EXISTS; ERROR_NOT_FOUND: auto-creation is off or the name is illegal; else ERROR_NOT_LEADER, ERROR_BUSY, ... */
int subscription_group_create(struct broker *broker, struct slice name, subscription_group_ready ready, void *context);

/* ---- for metadata.c ---- */

int subscription_group_put(struct subscription_group_table *table, const struct subscription_group_config *config);
/* Built-in groups go back to their defaults instead. False when unknown. */
bool subscription_group_remove(struct subscription_group_table *table, struct slice name);

#endif
