/* A group that nobody made works with default settings at once; the record that makes it follows. Nothing waits for it but a heart-beat, whose
 * answer tells the client that its retry topic exists.
 */
#include "broker/metadata/subscription_group.h"

#include <stdlib.h>

#include "broker/broker.h"
#include "broker/broker_stats.h"
#include "broker/metadata/metadata.h"
#include "proto/topic_validator.h"

struct group_waiter {
    subscription_group_ready ready;
    void *context;
    struct group_waiter *next;
};

struct subscription_group_creation {
    char *name;
    struct group_waiter *first; /* order does not matter */
    uint32_t waiters;
    UT_hash_handle hh;
};

#define WAITERS_MAX 4096u /* of one group; heart-beats of its consumers */
#define CREATIONS_MAX 4096u

static const char *const built_in_names[] = {
    "TOOLS_CONSUMER",  "FILTERSRV_CONSUMER",    "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER",  "CID_RMQ_SYS_TRANS",
};

static struct subscription_group_entry *entry_find(struct subscription_group_table *table, struct slice name)
{
    struct subscription_group_entry *entry;
    if (name.size == 0)
        return NULL;
    HASH_FIND(hh, table->entries, name.data, name.size, entry);
    return entry;
}

struct subscription_group_config *subscription_group_find(struct subscription_group_table *table, struct slice name)
{
    struct subscription_group_entry *entry = entry_find(table, name);
    return entry == NULL ? NULL : &entry->config;
}

static struct subscription_group_entry *entry_make(struct subscription_group_table *table, struct slice name)
{
    struct subscription_group_entry *entry = calloc(1, sizeof *entry);
    if (entry == NULL || (entry->name = slice_to_text(name)) == NULL) {
        free(entry);
        return NULL;
    }
    subscription_group_config_init(&entry->config, slice_of(entry->name, name.size));
    HASH_ADD_KEYPTR(hh, table->entries, entry->name, name.size, entry);
    table->count++;
    return entry;
}

static void entry_set(struct subscription_group_entry *entry, const struct subscription_group_config *config)
{
    struct slice name = entry->config.group_name;
    entry->config = *config;
    entry->config.group_name = name;
}

static void entry_drop(struct subscription_group_table *table, struct subscription_group_entry *entry)
{
    HASH_DEL(table->entries, entry);
    table->count--;
    free(entry->name);
    free(entry);
}

int subscription_group_put(struct subscription_group_table *table, const struct subscription_group_config *config)
{
    struct subscription_group_entry *entry = entry_find(table, config->group_name);
    if (entry == NULL) {
        if (table->count >= SUBSCRIPTION_GROUP_TABLE_MAX)
            return ERROR_BUSY;
        entry = entry_make(table, config->group_name);
        if (entry == NULL)
            return ERROR_NO_MEMORY;
    }
    entry_set(entry, config);
    entry->overridden = entry->built_in;
    table->changes++;
    return 0;
}

bool subscription_group_remove(struct subscription_group_table *table, struct slice name)
{
    struct subscription_group_entry *entry = entry_find(table, name);
    if (entry == NULL)
        return false;
    if (entry->built_in) {
        entry_set(entry, &entry->preset);
        entry->overridden = false;
    } else {
        entry_drop(table, entry);
    }
    table->changes++;
    return true;
}

/* ---- on first use ---- */

static bool may_create(const struct broker *broker, struct slice name)
{
    return (broker->config.auto_create_subscription_group || group_is_system(name)) && consumer_group_validate(name, NULL) == 0;
}

static void creation_drop(struct subscription_group_table *table, struct subscription_group_creation *creation)
{
    HASH_DEL(table->creations, creation);
    while (creation->first != NULL) {
        struct group_waiter *waiter = creation->first;
        creation->first = waiter->next;
        free(waiter);
    }
    free(creation->name);
    free(creation);
}

static int creation_wait(struct broker *broker, struct subscription_group_creation *creation, subscription_group_ready ready, void *context)
{
    if (ready == NULL)
        return 0;
    if (creation->waiters >= WAITERS_MAX)
        return broker_stats_busy(broker->stats, LIMIT_HIT_GROUPS);
    struct group_waiter *waiter = calloc(1, sizeof *waiter);
    if (waiter == NULL)
        return ERROR_NO_MEMORY;
    waiter->ready = ready;
    waiter->context = context;
    waiter->next = creation->first;
    creation->first = waiter;
    creation->waiters++;
    return 0;
}

static void creation_done(struct broker *broker, void *context, int code)
{
    struct subscription_group_creation *creation = context;
    struct group_waiter *waiter = creation->first;
    creation->first = NULL;
    creation_drop(broker->groups, creation);
    while (waiter != NULL) {
        struct group_waiter *next = waiter->next;
        waiter->ready(broker, waiter->context, code);
        free(waiter);
        waiter = next;
    }
}

int subscription_group_create(struct broker *broker, struct slice name, subscription_group_ready ready, void *context)
{
    struct subscription_group_table *table = broker->groups;
    if (entry_find(table, name) != NULL)
        return ERROR_EXISTS;
    if (!may_create(broker, name))
        return ERROR_NOT_FOUND;
    struct subscription_group_creation *creation;
    HASH_FIND(hh, table->creations, name.data, name.size, creation);
    if (creation != NULL)
        return creation_wait(broker, creation, ready, context);
    if (table->count >= SUBSCRIPTION_GROUP_TABLE_MAX || HASH_COUNT(table->creations) >= CREATIONS_MAX)
        return broker_stats_busy(broker->stats, LIMIT_HIT_GROUPS);
    creation = calloc(1, sizeof *creation);
    if (creation == NULL || (creation->name = slice_to_text(name)) == NULL) {
        free(creation);
        return ERROR_NO_MEMORY;
    }
    HASH_ADD_KEYPTR(hh, table->creations, creation->name, name.size, creation);
    struct subscription_group_config config;
    Ledgermq__SubscriptionGroup put;
    Ledgermq__SubscriptionGroup *puts[1] = {&put};
    Ledgermq__MetadataRecord record = LEDGERMQ__METADATA_RECORD__INIT;
    subscription_group_config_init(&config, name);
    metadata_group_message(&config, creation->name, &put);
    record.n_put_groups = 1;
    record.put_groups = puts;
    int rv = creation_wait(broker, creation, ready, context);
    if (rv == 0)
        rv = metadata_submit(broker, &record, creation_done, creation);
    if (rv != 0)
        creation_drop(table, creation);
    return rv;
}

const struct subscription_group_config *subscription_group_need(struct broker *broker, struct slice name)
{
    /* The defaults with a name of their own: the caller looks at them within its handler. */
    static struct subscription_group_config passing;
    static char passing_name[SUBSCRIPTION_GROUP_NAME_MAX];
    struct subscription_group_entry *entry = entry_find(broker->groups, name);
    if (entry != NULL)
        return &entry->config;
    if (!may_create(broker, name) || name.size > sizeof passing_name)
        return NULL;
    if (metadata_leads(broker))
        subscription_group_create(broker, name, NULL, NULL);
    memcpy(passing_name, name.data, name.size);
    subscription_group_config_init(&passing, slice_of(passing_name, name.size));
    return &passing;
}

/* ---- life ---- */

int subscription_group_table_open(struct broker *broker, struct error *error)
{
    struct subscription_group_table *table = calloc(1, sizeof *table);
    if (table == NULL)
        return error_set(error, ERROR_NO_MEMORY, "groups: out of memory");
    broker->groups = table;
    for (size_t i = 0; i < sizeof built_in_names / sizeof built_in_names[0]; i++) {
        struct subscription_group_entry *entry = entry_make(table, slice_of_text(built_in_names[i]));
        if (entry == NULL) {
            subscription_group_table_close(broker);
            return error_set(error, ERROR_NO_MEMORY, "groups: out of memory");
        }
        entry->built_in = true;
        entry->preset = entry->config;
    }
    return 0;
}

void subscription_group_table_close(struct broker *broker)
{
    struct subscription_group_table *table = broker->groups;
    if (table == NULL)
        return;
    struct subscription_group_creation *creation, *next_creation;
    HASH_ITER (hh, table->creations, creation, next_creation)
        creation_drop(table, creation);
    struct subscription_group_entry *entry, *next;
    HASH_ITER (hh, table->entries, entry, next)
        entry_drop(table, entry);
    free(table);
    broker->groups = NULL;
}
