/* Consumer groups and who is connected (org.apache.rocketmq.tools.command.consumer, .connection). */
#include <stdio.h>
#include <stdlib.h>

#include "client/admin/admin_ask.h"
#include "proto/request_code.h"
#include "proto/topic_validator.h"

static void group_made(struct admin *admin, const struct admin_target *target)
{
    (void)admin;
    printf("create subscription group to %s success.\n", target->address);
}

static int update_sub_group(struct admin *admin)
{
    const char *group = admin_text(admin, "groupName");
    struct subscription_group_config config;
    struct admin_targets targets;
    struct error error = {0};
    struct buffer body;
    int64_t retry_queues, retry_max, broker_id, slow_broker;
    int status;
    subscription_group_config_init(&config, slice_of_text(group));
    if (!admin_bool(admin, "consumeEnable", true, &config.consume_enable) ||
        !admin_bool(admin, "consumeFromMinEnable", false, &config.consume_from_min_enable) ||
        !admin_bool(admin, "consumeBroadcastEnable", false, &config.consume_broadcast_enable) ||
        !admin_number(admin, "retryQueueNums", 1, 0, 65536, &retry_queues) ||
        !admin_number(admin, "retryMaxTimes", 16, 0, INT32_MAX, &retry_max) ||
        !admin_number(admin, "brokerId", 0, 0, INT64_MAX, &broker_id) ||
        !admin_number(admin, "whichBrokerWhenConsumeSlowly", 1, 0, INT64_MAX, &slow_broker) ||
        !admin_bool(admin, "notifyConsumerIdsChanged", true, &config.notify_consumer_ids_changed_enable))
        return ADMIN_USAGE;
    if (consumer_group_validate(slice_of_text(group), &error) != 0)
        return admin_usage(admin, "group '%.140s': %s", group, error.message);
    config.retry_queue_nums = (int32_t)retry_queues;
    config.retry_max_times = (int32_t)retry_max;
    config.broker_id = broker_id;
    config.which_broker_when_consume_slowly = slow_broker;
    if (!admin_targets(admin, false, false, &targets, &status))
        return status;
    buffer_init(&body, 0);
    subscription_group_config_encode(&config, &body);
    status = admin_each_target(admin, &targets, REQUEST_UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, NULL, buffer_slice(&body),
                               group_made)
                 ? ADMIN_OK
                 : ADMIN_FAILED;
    if (status == ADMIN_OK)
        printf("SubscriptionGroupConfig [groupName=%s, consumeEnable=%s, consumeFromMinEnable=%s, "
               "consumeBroadcastEnable=%s, retryQueueNums=%d, "
               "retryMaxTimes=%d, brokerId=%lld, whichBrokerWhenConsumeSlowly=%lld, "
               "notifyConsumerIdsChangedEnable=%s]\n",
               group, admin_word(config.consume_enable), admin_word(config.consume_from_min_enable),
               admin_word(config.consume_broadcast_enable), config.retry_queue_nums, config.retry_max_times,
               (long long)config.broker_id, (long long)config.which_broker_when_consume_slowly,
               admin_word(config.notify_consumer_ids_changed_enable));
    buffer_close(&body);
    admin_targets_free(&targets);
    return status;
}

/* The retry and dead letter topics go with the group; brokers that never had them agree too. */
static bool delete_group_topic(struct admin *admin, const struct admin_targets *targets, const char *prefix,
                               const char *group)
{
    char topic[LEDGERMQ_TOPIC_MAX + 16];
    snprintf(topic, sizeof topic, "%s%s", prefix, group);
    return admin_delete_topic(admin, targets, topic);
}

static void group_deleted(struct admin *admin, const struct admin_target *target)
{
    printf("delete subscription group [%s] from broker [%s]", admin_text(admin, "groupName"), target->address);
    if (target->cluster[0] != '\0')
        printf(" in cluster [%s]", target->cluster);
    printf(" success.\n");
}

static int delete_sub_group(struct admin *admin)
{
    const char *group = admin_text(admin, "groupName");
    struct admin_targets targets;
    bool remove_offset;
    int status;
    if (!admin_bool(admin, "removeOffset", false, &remove_offset))
        return ADMIN_USAGE;
    if (!admin_targets(admin, false, false, &targets, &status))
        return status;
    const struct remoting_field fields[] = {{"groupName", group},
                                            {"removeOffset", admin_word(remove_offset)},
                                            {"cleanOffset", admin_word(remove_offset)},
                                            {NULL, NULL}};
    bool ok = admin_each_target(admin, &targets, REQUEST_DELETE_SUBSCRIPTIONGROUP, fields, NO_BODY, group_deleted);
    if (ok && admin_has(admin, "clusterName"))
        ok = delete_group_topic(admin, &targets, TOPIC_RETRY_PREFIX, group) &&
             delete_group_topic(admin, &targets, TOPIC_DLQ_PREFIX, group);
    admin_targets_free(&targets);
    return ok ? ADMIN_OK : ADMIN_FAILED;
}

static int get_consumer_config(struct admin *admin)
{
    const char *group = admin_text(admin, "groupName");
    struct admin_targets targets;
    int status, found = 0;
    if (!admin_targets(admin, false, true, &targets, &status))
        return status;
    status = ADMIN_OK;
    for (size_t i = 0; i < targets.count; i++) {
        struct subscription_group_wrapper wrapper;
        if (!admin_group_configs(admin, targets.all[i].address, &wrapper)) {
            status = ADMIN_FAILED;
            continue;
        }
        for (size_t k = 0; k < wrapper.group_count; k++) {
            const struct subscription_group_config *config = &wrapper.groups[k];
            if (!slice_equal_text(config->group_name, group))
                continue;
            found++;
            printf("=============================%s:%s=============================\n", targets.all[i].cluster,
                   targets.all[i].broker_name);
            printf("%-40s=  %s\n", "groupName", group);
            printf("%-40s=  %s\n", "consumeEnable", admin_word(config->consume_enable));
            printf("%-40s=  %s\n", "consumeFromMinEnable", admin_word(config->consume_from_min_enable));
            printf("%-40s=  %s\n", "consumeBroadcastEnable", admin_word(config->consume_broadcast_enable));
            printf("%-40s=  %d\n", "retryQueueNums", config->retry_queue_nums);
            printf("%-40s=  %d\n", "retryMaxTimes", config->retry_max_times);
            printf("%-40s=  %lld\n", "brokerId", (long long)config->broker_id);
            printf("%-40s=  %lld\n", "whichBrokerWhenConsumeSlowly",
                   (long long)config->which_broker_when_consume_slowly);
            printf("%-40s=  %s\n", "notifyConsumerIdsChangedEnable",
                   admin_word(config->notify_consumer_ids_changed_enable));
        }
        subscription_group_wrapper_close(&wrapper);
    }
    admin_targets_free(&targets);
    if (status == ADMIN_OK && found == 0)
        status = admin_fail(admin, "no broker has a group %s", group);
    return status;
}

static int compare_progress(const void *a, const void *b)
{
    const struct consume_offset *left = a, *right = b;
    size_t size = left->queue.topic.size < right->queue.topic.size ? left->queue.topic.size : right->queue.topic.size;
    int order = memcmp(left->queue.topic.data, right->queue.topic.data, size);
    if (order == 0)
        order =
            (left->queue.topic.size > right->queue.topic.size) - (left->queue.topic.size < right->queue.topic.size);
    return order != 0
               ? order
               : (left->queue.queue_id > right->queue.queue_id) - (left->queue.queue_id < right->queue.queue_id);
}

/* Whose queue it is: "topic@broker@id" -> IP, from what the clients say of themselves. */
struct owner {
    char key[2 * LEDGERMQ_TOPIC_MAX + 16];
    char ip[64];
};
struct owners {
    struct owner *all;
    size_t count;
};

static void owner_key(struct slice topic, struct slice broker, long long queue_id, char out[2 * LEDGERMQ_TOPIC_MAX + 16])
{
    snprintf(out, 2 * LEDGERMQ_TOPIC_MAX + 16, "%.*s@%.*s@%lld", ADMIN_SLICE(topic), ADMIN_SLICE(broker), queue_id);
}

static void add_owners(struct owners *owners, struct json_value info, const char *client_id)
{
    struct json_value queue, value;
    for (struct json_iterator at = json_iterate(json_get(info, "mqTable")); json_next_member(&at, &queue, &value);) {
        struct owner *all = realloc(owners->all, (owners->count + 1) * sizeof *all);
        if (all == NULL)
            return;
        owners->all = all;
        struct owner *owner = &all[owners->count++];
        owner_key(admin_json_text(queue, "topic"), admin_json_text(queue, "brokerName"), admin_json_count(queue, "queueId"),
                  owner->key);
        snprintf(owner->ip, sizeof owner->ip, "%.*s", (int)strcspn(client_id, "@"), client_id); /* a client id is IP@instance */
    }
}

static void find_owners(struct admin *admin, const char *group, struct owners *owners)
{
    char address[REMOTING_ADDRESS_MAX];
    struct consumer_connection connection;
    if (!admin_group_broker(admin, group, address) || !admin_consumer_connection(admin, address, group, &connection, true))
        return;
    for (size_t i = 0; i < connection.connection_count; i++) {
        char client_id[300];
        struct admin_json info;
        snprintf(client_id, sizeof client_id, "%.*s", ADMIN_SLICE(connection.connections[i].client_id));
        if (!admin_running_info(admin, address, group, client_id, false, &info, true))
            continue;
        add_owners(owners, json_root(&info.document), client_id);
        admin_json_close(&info);
    }
    consumer_connection_close(&connection);
}

static const char *owner_of(const struct owners *owners, const struct message_queue *queue)
{
    char key[2 * LEDGERMQ_TOPIC_MAX + 16];
    owner_key(queue->topic, queue->broker_name, queue->queue_id, key);
    for (size_t i = 0; i < owners->count; i++)
        if (strcmp(owners->all[i].key, key) == 0)
            return owners->all[i].ip;
    return "N/A";
}

static void progress_row(const struct consume_offset *row, const char *client_ip)
{
    char time[32], client[72] = "";
    if (client_ip != NULL)
        snprintf(client, sizeof client, "%-20s  ", client_ip);
    printf("%-64.*s  %-32.*s  %-4d  %-20lld  %-20lld  %s%-20lld  %s\n", ADMIN_SLICE(row->queue.topic),
           ADMIN_SLICE(row->queue.broker_name), row->queue.queue_id, (long long)row->broker_offset,
           (long long)row->consumer_offset, client, (long long)(row->broker_offset - row->consumer_offset),
           admin_time_seconds(row->last_timestamp_ms, time));
}

static int group_progress(struct admin *admin, const char *group)
{
    struct admin_targets brokers;
    struct owners owners = {0};
    bool show_client;
    double tps = 0;
    int64_t total = 0;
    int status = ADMIN_OK;
    if (!admin_bool(admin, "showClientIP", false, &show_client))
        return ADMIN_USAGE;
    if (!admin_group_leaders(admin, group, &brokers, false))
        return ADMIN_FAILED;
    if (show_client)
        find_owners(admin, group, &owners);
    printf("%-64s  %-32s  %-4s  %-20s  %-20s  %s%-20s  %s\n", "#Topic", "#Broker Name", "#QID", "#Broker Offset",
           "#Consumer Offset", show_client ? "#Client IP            " : "", "#Diff", "#LastTime");
    for (size_t i = 0; i < brokers.count; i++) {
        struct consume_stats stats;
        if (!admin_consume_stats(admin, brokers.all[i].address, group, admin_text(admin, "topicName"), &stats, false)) {
            status = ADMIN_FAILED;
            continue;
        }
        if (stats.offset_count > 1)
            qsort(stats.offsets, stats.offset_count, sizeof *stats.offsets, compare_progress);
        for (size_t k = 0; k < stats.offset_count; k++) {
            const struct consume_offset *row = &stats.offsets[k];
            progress_row(row, show_client ? owner_of(&owners, &row->queue) : NULL);
            total += row->broker_offset - row->consumer_offset;
        }
        tps += stats.consume_tps;
        consume_stats_close(&stats);
    }
    printf("\nConsume TPS: %.2f\nDiff Total: %lld\n", tps, (long long)total);
    free(owners.all);
    admin_targets_free(&brokers);
    return status;
}

static void group_row(struct admin *admin, const char *group)
{
    char version[16] = "OFFLINE";
    struct admin_targets brokers;
    double tps = 0;
    int64_t diff = 0;
    size_t count = 0;
    const char *type = "", *model = "";
    if (!admin_group_leaders(admin, group, &brokers, true))
        return;
    for (size_t i = 0; i < brokers.count; i++) {
        struct consume_stats stats;
        struct consumer_connection connection;
        if (admin_consume_stats(admin, brokers.all[i].address, group, NULL, &stats, true)) {
            for (size_t k = 0; k < stats.offset_count; k++)
                diff += stats.offsets[k].broker_offset - stats.offsets[k].consumer_offset;
            tps += stats.consume_tps;
            consume_stats_close(&stats);
        }
        if (!admin_consumer_connection(admin, brokers.all[i].address, group, &connection, true))
            continue;
        count = connection.connection_count > count ? connection.connection_count : count;
        type = connection.consume_type == CONSUME_PASSIVELY ? "PUSH" : "PULL";
        model = connection.consume_type == CONSUME_PASSIVELY ? message_model_names[connection.message_model] : "";
        if (connection.connection_count > 0)
            admin_version(connection.connections[0].version, version);
        consumer_connection_close(&connection);
    }
    printf("%-64s  %-6zu  %-24s %-5s  %-14s  %-7.0f  %lld\n", group, count, version, type, model, tps,
           (long long)diff);
    admin_targets_free(&brokers);
}

static int consumer_progress(struct admin *admin)
{
    const char *group = admin_text(admin, "groupName");
    if (group != NULL)
        return group_progress(admin, group);
    struct topic_list list;
    if (!admin_topic_list(admin, &list))
        return ADMIN_FAILED;
    printf("%-64s  %-6s  %-24s %-5s  %-14s  %-7s  %s\n", "#Group", "#Count", "#Version", "#Type", "#Model", "#TPS",
           "#Diff Total");
    for (size_t i = 0; i < list.topic_count; i++) {
        char name[LEDGERMQ_TOPIC_MAX + 1];
        if (!topic_is_retry(list.topics[i]))
            continue;
        snprintf(name, sizeof name, "%.*s", ADMIN_SLICE(list.topics[i]));
        group_row(admin, name + strlen(TOPIC_RETRY_PREFIX));
    }
    topic_list_close(&list);
    return ADMIN_OK;
}

static void print_connection(const struct client_connection *row)
{
    char version[16];
    printf("%-36.*s %-22.*s %-10.*s %s\n", ADMIN_SLICE(row->client_id), ADMIN_SLICE(row->client_address),
           ADMIN_SLICE(row->language), admin_version(row->version, version));
}

static int consumer_connection(struct admin *admin)
{
    const char *group = admin_text(admin, "consumerGroup");
    struct consumer_connection connection;
    char address[REMOTING_ADDRESS_MAX];
    if (!admin_group_broker(admin, group, address) ||
        !admin_consumer_connection(admin, address, group, &connection, false))
        return ADMIN_FAILED;
    printf("%-36s %-22s %-10s %s\n", "#ClientId", "#ClientAddr", "#Language", "#Version");
    for (size_t i = 0; i < connection.connection_count; i++)
        print_connection(&connection.connections[i]);
    printf("\nBelow is subscription:\n%-20s %s\n", "#Topic", "#SubExpression");
    for (size_t i = 0; i < connection.subscription_count; i++)
        printf("%-20.*s %.*s\n", ADMIN_SLICE(connection.subscriptions[i].topic),
               ADMIN_SLICE(connection.subscriptions[i].sub_string));
    printf("\nConsumeType: %s\nMessageModel: %s\nConsumeFromWhere: %s\n", consume_type_names[connection.consume_type],
           message_model_names[connection.message_model], consume_from_where_names[connection.consume_from_where]);
    consumer_connection_close(&connection);
    return ADMIN_OK;
}

static int producer_connection(struct admin *admin)
{
    struct producer_connection connection;
    struct admin_targets brokers;
    char version[16];
    if (!admin_topic_leaders(admin, admin_text(admin, "topic"), &brokers, false))
        return ADMIN_FAILED;
    bool ok = admin_producer_connection(admin, brokers.all[0].address, admin_text(admin, "producerGroup"), &connection);
    admin_targets_free(&brokers);
    if (!ok)
        return ADMIN_FAILED;
    for (size_t i = 0; i < connection.connection_count; i++) {
        const struct client_connection *row = &connection.connections[i];
        printf("%04zu  %-32.*s %-22.*s %-8.*s %s\n", i + 1, ADMIN_SLICE(row->client_id),
               ADMIN_SLICE(row->client_address), ADMIN_SLICE(row->language), admin_version(row->version, version));
    }
    producer_connection_close(&connection);
    return ADMIN_OK;
}

static const struct admin_option update_sub_group_options[] = {
    {'g', "groupName", "GROUP", true, "its name"},
    {'b', "brokerAddr", "ADDRESS", false, "on this broker"},
    {'c', "clusterName", "CLUSTER", false, "on all brokers of the cluster"},
    {'s', "consumeEnable", "true|false", false, "may consume: true"},
    {'m', "consumeFromMinEnable", "true|false", false, "may start at the first message: false"},
    {'d', "consumeBroadcastEnable", "true|false", false, "may consume as broadcast: false"},
    {'q', "retryQueueNums", "N", false, "queues of its retry topic: 1"},
    {'r', "retryMaxTimes", "N", false, "retries before a message becomes a dead letter: 16"},
    {'i', "brokerId", "ID", false, "broker to read from: 0"},
    {'w', "whichBrokerWhenConsumeSlowly", "ID", false, "broker to read from when far behind: 1"},
    {'a', "notifyConsumerIdsChanged", "true|false", false, "tell consumers when one comes or goes: true"},
    {0, NULL, NULL, false, NULL},
};
static const struct admin_option delete_sub_group_options[] = {
    {'g', "groupName", "GROUP", true, "its name"},
    {'b', "brokerAddr", "ADDRESS", false, "on this broker"},
    {'c', "clusterName", "CLUSTER", false, "on all brokers of the cluster, with its retry and dead letter topics"},
    {'r', "removeOffset", "true|false", false, "forget its offsets too: false"},
    {0, NULL, NULL, false, NULL},
};
static const struct admin_option group_options[] = {
    {'g', "groupName", "GROUP", true, "its name"},
    {0, NULL, NULL, false, NULL},
};
static const struct admin_option consumer_progress_options[] = {
    {'g', "groupName", "GROUP", false, "its name; without, all groups"},
    {'t', "topicName", "TOPIC", false, "this topic only"},
    {'s', "showClientIP", "true|false", false, "with the address of each queue's owner: false"},
    {0, NULL, NULL, false, NULL},
};
static const struct admin_option consumer_connection_options[] = {
    {'g', "consumerGroup", "GROUP", true, "its name"},
    {'b', "brokerAddr", "ADDRESS", false, "ask this broker"},
    {0, NULL, NULL, false, NULL},
};
static const struct admin_option producer_connection_options[] = {
    {'g', "producerGroup", "GROUP", true, "its name"},
    {'t', "topic", "TOPIC", true, "a topic it sends to"},
    {0, NULL, NULL, false, NULL},
};

const struct admin_command group_commands[] = {
    {"updateSubGroup", "Make or change a consumer group", update_sub_group_options, update_sub_group, NULL},
    {"deleteSubGroup", "Delete a consumer group", delete_sub_group_options, delete_sub_group, NULL},
    {"getConsumerConfig", "Show a consumer group's settings", group_options, get_consumer_config, NULL},
    {"consumerProgress", "Show how far consumer groups are", consumer_progress_options, consumer_progress, NULL},
    {"consumerConnection", "Show a consumer group's clients", consumer_connection_options, consumer_connection, NULL},
    {"producerConnection", "Show a producer group's clients", producer_connection_options, producer_connection, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
