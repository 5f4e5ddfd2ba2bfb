/* The topics of this group, in memory: found by one hash, made on a first send, changed only by metadata records.
 *
 * Follows org.apache.rocketmq.broker.topic.TopicConfigManager 4.9.8. The table is the same on every node; built-in topics are made at start
 * without a record. Nothing but metadata_apply and metadata_restore may call topic_config_put and topic_config_remove. Loop thread only.
 */
#ifndef LEDGERMQ_BROKER_METADATA_TOPIC_CONFIG_H
#define LEDGERMQ_BROKER_METADATA_TOPIC_CONFIG_H

#include "broker/hash_table.h"
#include "proto/data_version.h"
#include "proto/topic_config.h"

struct broker;
struct consume_queue;
struct message_store;

#define TOPIC_CONFIG_TABLE_MAX 131072u   /* topics in all; more are refused */
#define TOPIC_CONFIG_QUEUES_MAX 65536u  /* queue ids that an entry caches */
#define TOPIC_CONFIG_WAITERS_MAX 4096u  /* sends that wait for topics to be made, in all */

struct topic_entry {
    struct topic_config config;
    uint64_t incarnation; /* index of the record that made it; 0 = built in */
    bool built_in;        /* is made at start, cannot be deleted */
    bool overridden;      /* built in, but a record has changed it */
    int64_t expired_position; /* its messages before this physical offset have expired (reserve.time) */
    bool deleting;        /* leader: a record that deletes it is on its way, or may yet commit; no send may follow it into the log */

    /* private */
    int64_t made_at;            /* physical offset of that record, 0 = not looked up or not retained */
    struct topic_config preset; /* of a built-in topic */
    char *name;
    struct consume_queue **queues; /* opened lazily by topic_config_queue */
    uint32_t queue_slots;
    UT_hash_handle hh;
};

struct topic_config_table {
    struct topic_entry *entries; /* uthash by name; walk with HASH_ITER or for (e = entries; e != NULL; e = e->hh.next) */
    uint32_t count;
    struct data_version version;
    uint64_t changes; /* counts every change in this process, for exports */

    /* private */
    struct topic_creation *creations; /* by name: records on their way and who waits */
    uint32_t waiters;
    struct topic_deletion *deletions; /* by name: records on their way, answered or not */
    uint64_t accept_count;            /* of the log, when the leadership began that they are of */
};

/* Makes the table with the built-in topics of broker->config (store.md 7.2); sets broker->topics. ERROR_NO_MEMORY. */
int topic_config_table_open(struct broker *broker, struct error *error);
void topic_config_table_close(struct broker *broker);
/* autoCreateTopicEnable was turned on while running: TBW102 is there from now on. */
void topic_config_need_auto_create_model(struct broker *broker);

/* One hash; NULL when unknown. Valid until control returns to the loop. An entry that is `deleting` must not take sends (answer 17). */
struct topic_entry *topic_config_find(struct topic_config_table *table, struct slice name);
/* The topic that a record at this physical offset was sent to, under the name it carries: a delayed or half message may wait while its topic is deleted, and
 * another of the same name is not its destination. NULL when it is gone or about to go. */
struct topic_entry *topic_config_destination(struct broker *broker, struct slice name, int64_t physical_offset);
/* Queue of the topic, opened (and made) at the first call; NULL when queue_id is negative or too large or the queue cannot be made. */
struct consume_queue *topic_config_queue(struct topic_entry *entry, struct message_store *store, int32_t queue_id);

/* Called once, from the loop, never inside the call that took it. code 0: the topic exists now (look it up again). Else why not: ERROR_LEADERSHIP_LOST,
 * ERROR_QUORUM_TIMEOUT, ... which answer 14. */
typedef void (*topic_config_ready)(struct broker *broker, void *context, int code);

/* A send to an unknown topic, by the rules of TopicConfigManager#createTopicInSendMessageMethod. `topic` must be a legal name (topic_validator).
 * 0: a record is on its way (one per topic however many wait), `ready` will be called. ERROR_EXISTS: it is there already. ERROR_NOT_FOUND: the rules do
 * not allow it (default topic missing or not inheritable, auto-creation off): answer 17. ERROR_BUSY, ERROR_NOT_LEADER, ...: answer 14. In these
 * cases `ready` is not called. */
int topic_config_create_in_send(struct broker *broker, struct slice topic, struct slice default_topic, int32_t default_queue_nums,
                                int32_t topic_sys_flag, topic_config_ready ready, void *context);
/* `%RETRY%group`, `%DLQ%group` and other topics that the broker itself needs: made whatever autoCreateTopicEnable says. Returns as above. ready may be
 * NULL. */
int topic_config_create_in_send_back(struct broker *broker, struct slice topic, int32_t queue_nums, int32_t perm, int32_t topic_sys_flag,
                                     topic_config_ready ready, void *context);

/* Of message_store: DLedger index from which on messages belong to the topic of that name that there is now. context: struct broker. */
uint64_t topic_config_since(void *context, struct slice topic);
/* A record that makes it is on its way. */
bool topic_config_is_coming(struct topic_config_table *table, struct slice topic);

/* Leader: a record that deletes this topic is about to be submitted. From now on the topic is `deleting`, and so is one of that name that is made by a record
 * which stands before that one. Offsets that were gathered for it go ahead. ERROR_NO_MEMORY: nothing is changed. */
int topic_config_deletion_begins(struct broker *broker, struct slice name);
/* The same without a table entry: is a record that deletes it on its way, or may it yet commit? */
bool topic_config_is_going(struct topic_config_table *table, struct slice name);
/* What became of the record, for the one who submitted it. Where the outcome is unknown it may stand in the log: the topic stays `deleting` until the log has come
 * past it. next_index: dledger_state's. */
void topic_config_deletion_settled(struct topic_config_table *table, struct slice name, int code, int64_t next_index);
/* The log is applied up to there, and its next entry would be that one (dledger_state's): which records that nobody answered for are applied, or will never be? */
void topic_config_log_reached(struct topic_config_table *table, int64_t applied_index, int64_t next_index);
/* The same, now. */
void topic_config_settle(struct broker *broker);
/* accept_count: dledger_state's. When the log begins to accept, all records of the leadership before are applied or gone. */
void topic_config_role_changed(struct topic_config_table *table, uint64_t accept_count);

/* ---- for metadata.c ---- */

/* Creates or changes. The incarnation of an existing topic stays. ERROR_NO_MEMORY. */
int topic_config_put(struct topic_config_table *table, const struct topic_config *config, uint64_t incarnation);
/* Built-in topics go back to their defaults instead. False when unknown. */
bool topic_config_remove(struct topic_config_table *table, struct slice name);
/* Drops cached queue pointers (the queues were deleted from the store). */
void topic_config_forget_queues(struct topic_entry *entry);

#endif
