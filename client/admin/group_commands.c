/* Consumer groups and who is connected (org.apache.rocketmq.tools.command.consumer, .connection). */
#include <stdio.h>
#include <stdlib.h>

#include "client/admin/admin.h"
#include "proto/consume_stats.h"
#include "proto/consumer_connection.h"
#include "proto/request_code.h"
#include "proto/response_code.h"
#include "proto/subscription_group_wrapper.h"
#include "proto/topic_list.h"
#include "proto/topic_validator.h"

#define NO_BODY slice_of(NULL, 0)

static const char *word(bool value)
{
    return value ? "true" : "false";
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
    if (group_validate(slice_of_text(group), &error) != 0)
        return admin_usage(admin, "group '%.140s': %s", group, error.message);
    config.retry_queue_nums = (int32_t)retry_queues;
    config.retry_max_times = (int32_t)retry_max;
    config.broker_id = broker_id;
    config.which_broker_when_consume_slowly = slow_broker;
    if (!admin_targets(admin, false, false, &targets, &status))
        return status;
    buffer_init(&body, 0);
    subscription_group_config_encode(&config, &body);
    status = ADMIN_OK;
    for (size_t i = 0; i < targets.count; i++) {
        struct remoting_response response;
        if (!admin_call(admin, targets.all[i].address, REQUEST_UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, NULL,
                        buffer_slice(&body), &response)) {
            status = ADMIN_FAILED;
            continue;
        }
        remoting_response_close(&response);
        printf("create subscription group to %s success.\n", targets.all[i].address);
    }
    if (status == ADMIN_OK)
        printf("SubscriptionGroupConfig [groupName=%s, consumeEnable=%s, consumeFromMinEnable=%s, "
               "consumeBroadcastEnable=%s, retryQueueNums=%d, "
               "retryMaxTimes=%d, brokerId=%lld, whichBrokerWhenConsumeSlowly=%lld, "
               "notifyConsumerIdsChangedEnable=%s]\n",
               group, word(config.consume_enable), word(config.consume_from_min_enable),
               word(config.consume_broadcast_enable), config.retry_queue_nums, config.retry_max_times,
               (long long)config.broker_id, (long long)config.which_broker_when_consume_slowly,
               word(config.notify_consumer_ids_changed_enable));
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
    const struct remoting_field fields[] = {{"topic", topic}, {NULL, NULL}};
    for (size_t i = 0; i < targets->count; i++) {
        struct remoting_response response;
        if (!admin_call(admin, targets->all[i].address, REQUEST_DELETE_TOPIC_IN_BROKER, fields, NO_BODY, &response))
            return false;
        remoting_response_close(&response);
    }
    printf("delete topic [%s] from cluster [%s] success.\n", topic, targets->all[0].cluster);
    if (!admin_each_name_server(admin, REQUEST_DELETE_TOPIC_IN_NAMESRV, fields, NO_BODY, NULL))
        return false;
    printf("delete topic [%s] from NameServer success.\n", topic);
    return true;
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
                                            {"removeOffset", word(remove_offset)},
                                            {"cleanOffset", word(remove_offset)},
                                            {NULL, NULL}};
    status = ADMIN_OK;
    for (size_t i = 0; i < targets.count; i++) {
        struct remoting_response response;
        if (!admin_call(admin, targets.all[i].address, REQUEST_DELETE_SUBSCRIPTIONGROUP, fields, NO_BODY,
                        &response)) {
            status = ADMIN_FAILED;
            continue;
        }
        remoting_response_close(&response);
        printf("delete subscription group [%s] from broker [%s] in cluster [%s] success.\n", group,
               targets.all[i].address, targets.all[i].cluster);
    }
    if (status == ADMIN_OK && admin_has(admin, "clusterName") &&
        (!delete_group_topic(admin, &targets, TOPIC_RETRY_PREFIX, group) ||
         !delete_group_topic(admin, &targets, TOPIC_DLQ_PREFIX, group)))
        status = ADMIN_FAILED;
    admin_targets_free(&targets);
    return status;
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
        struct remoting_response response;
        struct subscription_group_wrapper wrapper;
        struct error error = {0};
        if (!admin_call(admin, targets.all[i].address, REQUEST_GET_ALL_SUBSCRIPTIONGROUP_CONFIG, NULL, NO_BODY,
                        &response)) {
            status = ADMIN_FAILED;
            continue;
        }
        int rv = subscription_group_wrapper_decode(&wrapper, response.command.body, &error);
        remoting_response_close(&response);
        if (rv != 0) {
            status = admin_fail(admin, "%s: %s", targets.all[i].address, error.message);
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
            printf("%-40s=  %s\n", "consumeEnable", word(config->consume_enable));
            printf("%-40s=  %s\n", "consumeFromMinEnable", word(config->consume_from_min_enable));
            printf("%-40s=  %s\n", "consumeBroadcastEnable", word(config->consume_broadcast_enable));
            printf("%-40s=  %d\n", "retryQueueNums", config->retry_queue_nums);
            printf("%-40s=  %d\n", "retryMaxTimes", config->retry_max_times);
            printf("%-40s=  %lld\n", "brokerId", (long long)config->broker_id);
            printf("%-40s=  %lld\n", "whichBrokerWhenConsumeSlowly",
                   (long long)config->which_broker_when_consume_slowly);
            printf("%-40s=  %s\n", "notifyConsumerIdsChangedEnable",
                   word(config->notify_consumer_ids_changed_enable));
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

static int group_progress(struct admin *admin, const char *group)
{
    char retry[LEDGERMQ_TOPIC_MAX + 16], time[32];
    struct admin_targets brokers;
    double tps = 0;
    int64_t total = 0;
    int status = ADMIN_OK;
    snprintf(retry, sizeof retry, "%s%s", TOPIC_RETRY_PREFIX, group);
    const char *topic = admin_text(admin, "topicName");
    if (!admin_topic_leaders(admin, retry, &brokers, false))
        return ADMIN_FAILED;
    printf("%-64s  %-32s  %-4s  %-20s  %-20s  %-20s  %s\n", "#Topic", "#Broker Name", "#QID", "#Broker Offset",
           "#Consumer Offset", "#Diff", "#LastTime");
    for (size_t i = 0; i < brokers.count; i++) {
        struct consume_stats stats;
        if (!admin_consume_stats(admin, brokers.all[i].address, group, topic, &stats, false)) {
            status = ADMIN_FAILED;
            continue;
        }
        if (stats.offset_count > 1)
            qsort(stats.offsets, stats.offset_count, sizeof *stats.offsets, compare_progress);
        for (size_t k = 0; k < stats.offset_count; k++) {
            const struct consume_offset *row = &stats.offsets[k];
            long long diff = (long long)(row->broker_offset - row->consumer_offset);
            printf("%-64.*s  %-32.*s  %-4d  %-20lld  %-20lld  %-20lld  %s\n", ADMIN_SLICE(row->queue.topic),
                   ADMIN_SLICE(row->queue.broker_name), row->queue.queue_id, (long long)row->broker_offset,
                   (long long)row->consumer_offset, diff, admin_time(row->last_timestamp_ms, time));
            total += diff;
        }
        tps += stats.consume_tps;
        consume_stats_close(&stats);
    }
    printf("\nConsume TPS: %.2f\nDiff Total: %lld\n", tps, (long long)total);
    admin_targets_free(&brokers);
    return status;
}

static void group_row(struct admin *admin, const char *group)
{
    char retry[LEDGERMQ_TOPIC_MAX + 16], version[16] = "OFFLINE";
    struct admin_targets brokers;
    double tps = 0;
    int64_t diff = 0;
    size_t count = 0;
    const char *type = "", *model = "";
    snprintf(retry, sizeof retry, "%s%s", TOPIC_RETRY_PREFIX, group);
    if (!admin_topic_leaders(admin, retry, &brokers, true))
        return;
    for (size_t i = 0; i < brokers.count; i++) {
        const struct remoting_field fields[] = {{"consumerGroup", group}, {NULL, NULL}};
        struct consume_stats stats;
        struct remoting_response response;
        struct consumer_connection connection;
        struct error error = {0};
        if (admin_consume_stats(admin, brokers.all[i].address, group, NULL, &stats, true)) {
            for (size_t k = 0; k < stats.offset_count; k++)
                diff += stats.offsets[k].broker_offset - stats.offsets[k].consumer_offset;
            tps += stats.consume_tps;
            consume_stats_close(&stats);
        }
        if (admin_try(admin, brokers.all[i].address, REQUEST_GET_CONSUMER_CONNECTION_LIST, fields, NO_BODY, &response,
                      &error) != 0)
            continue;
        if (consumer_connection_decode(&connection, response.command.body, &error) == 0) {
            count = connection.connection_count > count ? connection.connection_count : count;
            type = connection.consume_type == CONSUME_PASSIVELY ? "PUSH" : "PULL";
            model = connection.consume_type == CONSUME_PASSIVELY ? message_model_names[connection.message_model] : "";
            if (connection.connection_count > 0)
                admin_version(connection.connections[0].version, version);
            consumer_connection_close(&connection);
        }
        remoting_response_close(&response);
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
    struct remoting_response response;
    struct topic_list list;
    struct error error = {0};
    if (!admin_name_server_call(admin, REQUEST_GET_ALL_TOPIC_LIST_FROM_NAMESERVER, NULL, NO_BODY, &response))
        return ADMIN_FAILED;
    int rv = topic_list_decode(&list, response.command.body, &error);
    remoting_response_close(&response);
    if (rv != 0)
        return admin_fail(admin, "topic list: %s", error.message);
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

static int consumer_connection(struct admin *admin)
{
    const char *group = admin_text(admin, "consumerGroup"), *address = admin_text(admin, "brokerAddr");
    const struct remoting_field fields[] = {{"consumerGroup", group}, {NULL, NULL}};
    struct remoting_response response;
    struct consumer_connection connection;
    struct error error = {0};
    char retry[LEDGERMQ_TOPIC_MAX + 16], broker[REMOTING_ADDRESS_MAX], version[16];
    if (address == NULL) {
        struct admin_targets brokers;
        snprintf(retry, sizeof retry, "%s%s", TOPIC_RETRY_PREFIX, group);
        if (!admin_topic_leaders(admin, retry, &brokers, false))
            return ADMIN_FAILED;
        memcpy(broker, brokers.all[0].address, sizeof broker);
        admin_targets_free(&brokers);
        address = broker;
    }
    if (!admin_call(admin, address, REQUEST_GET_CONSUMER_CONNECTION_LIST, fields, NO_BODY, &response))
        return ADMIN_FAILED;
    int rv = consumer_connection_decode(&connection, response.command.body, &error);
    remoting_response_close(&response);
    if (rv != 0)
        return admin_fail(admin, "%s: %s", address, error.message);
    printf("%-36s %-22s %-10s %s\n", "#ClientId", "#ClientAddr", "#Language", "#Version");
    for (size_t i = 0; i < connection.connection_count; i++) {
        const struct client_connection *row = &connection.connections[i];
        printf("%-36.*s %-22.*s %-10.*s %s\n", ADMIN_SLICE(row->client_id), ADMIN_SLICE(row->client_address),
               ADMIN_SLICE(row->language), admin_version(row->version, version));
    }
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
    const char *group = admin_text(admin, "producerGroup");
    const struct remoting_field fields[] = {{"producerGroup", group}, {NULL, NULL}};
    struct remoting_response response;
    struct producer_connection connection;
    struct admin_targets brokers;
    struct error error = {0};
    char version[16];
    if (!admin_topic_leaders(admin, admin_text(admin, "topic"), &brokers, false))
        return ADMIN_FAILED;
    bool ok =
        admin_call(admin, brokers.all[0].address, REQUEST_GET_PRODUCER_CONNECTION_LIST, fields, NO_BODY, &response);
    admin_targets_free(&brokers);
    if (!ok)
        return ADMIN_FAILED;
    int rv = producer_connection_decode(&connection, response.command.body, &error);
    remoting_response_close(&response);
    if (rv != 0)
        return admin_fail(admin, "%s", error.message);
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
