/* What tools ask about the broker as a whole, its consumer groups and its clients.
 *
 * Follows AdminBrokerProcessor 4.9.8. All but the changes (200, 207, 314) are answered by any node from its own tables; 25 changes this node alone.
 */
#include <stdlib.h>

#include "broker/broker.h"
#include "broker/broker_stats.h"
#include "broker/metadata/metadata.h"
#include "broker/metadata/subscription_group.h"
#include "broker/metadata/topic_config.h"
#include "broker/namesrv/registrar.h"
#include "broker/processor/admin_consume_stats.h"
#include "broker/processor/processor.h"
#include "broker/processor/reply.h"
#include "broker/remoting/client_registry.h"
#include "proto/consumer_connection.h"
#include "proto/data_version.h"
#include "proto/headers.h"
#include "proto/java_properties.h"
#include "proto/kv_table.h"
#include "proto/producer_table_info.h"
#include "proto/request_code.h"
#include "proto/response_code.h"
#include "proto/subscription_group_wrapper.h"
#include "proto/topic_validator.h"
#include "store/log_sink.h"

#define SLICE_ARG(slice) (int)(slice).size, (const char *)(slice).data

/* ---- configuration and runtime ---- */

static const char *const black_list[] = {"brokerConfigPath", "rocketmqHome", "configBlackList", NULL};

/* Of this node's configuration: shown by 26, moved by 25. The boot time stands for "not changed since". */
static struct data_version config_version;

static bool is_black_listed(struct slice key)
{
    for (const char *const *name = black_list; *name != NULL; name++) {
        if (slice_equal_text(key, *name))
            return true;
    }
    return false;
}

/* apply: changes, which has been checked before; else only looks. The first error ends it. */
static int walk_config(struct broker *broker, struct slice body, bool apply, struct error *error)
{
    struct java_properties_reader reader;
    struct slice key, value;
    int rv = 0;
    java_properties_reader_init(&reader, body);
    while (rv == 0 && java_properties_next(&reader, &key, &value, &rv, error)) {
        if (!apply) {
            rv = is_black_listed(key) ? error_set(error, ERROR_EXISTS, "Can not update config in black list.")
                                      : broker_config_may_change(key, value, error);
            if (rv == ERROR_NOT_FOUND)
                rv = 0; /* keys that nobody knows are ignored, as in Java */
            continue;
        }
        rv = broker_config_change(&broker->config, key, value, error);
        if (rv == ERROR_NOT_FOUND)
            rv = 0;
        else if (rv == 0)
            LOG_INFO("configuration: %.*s = %.*s", SLICE_ARG(key), SLICE_ARG(value));
    }
    java_properties_reader_close(&reader);
    return rv;
}

static void update_broker_config(struct broker *broker, struct request *request)
{
    struct slice body = request->command->body;
    struct error error;
    int32_t permission = broker->config.broker_permission;
    bool auto_create = broker->config.auto_create_topic_enable;
    int rv = walk_config(broker, body, false, &error);
    if (rv == ERROR_EXISTS) {
        reply_simple(broker, &request->reply_to, RESPONSE_NO_PERMISSION, "%s", error.message);
        return;
    }
    if (rv == 0)
        rv = walk_config(broker, body, true, &error);
    if (body.size > 0) {
        config_version.timestamp_ms = env_now_ms(&broker->env);
        config_version.counter++;
    }
    if (!auto_create && broker->config.auto_create_topic_enable)
        topic_config_need_auto_create_model(broker);
    if (broker->config.broker_permission != permission || broker->config.auto_create_topic_enable != auto_create)
        registrar_topics_changed(broker);
    if (rv == 0)
        reply_simple(broker, &request->reply_to, RESPONSE_SUCCESS, NULL);
    else
        reply_error(broker, &request->reply_to, &error);
}

static void get_broker_config(struct broker *broker, struct request *request)
{
    struct remoting_writer writer;
    struct buffer version;
    if (!reply_begin(broker, &request->reply_to, &writer, RESPONSE_SUCCESS, NULL))
        return;
    if (config_version.timestamp_ms == 0)
        config_version.timestamp_ms = broker->boot_ms;
    buffer_init(&version, 256);
    data_version_encode(&config_version, &version);
    remoting_writer_ext(&writer, "version", buffer_slice(&version));
    buffer_close(&version);
    remoting_writer_body(&writer);
    struct dledger_state state;
    dledger_commit_log_state(broker->log, &state);
    broker_config_properties(&broker->config, state.role == DLEDGER_LEADER, writer.out);
    reply_end(broker, &request->reply_to, &writer);
}

static void put_runtime(void *context, const char *key, const char *value)
{
    kv_table_add_text(context, key, value);
}

static void get_broker_runtime_info(struct broker *broker, struct request *request)
{
    struct remoting_writer writer;
    if (!reply_body_begin(broker, &request->reply_to, &writer))
        return;
    struct broker_stats_sink sink = {.context = writer.out, .put = put_runtime};
    kv_table_begin(writer.out);
    broker_stats_runtime_table(broker, &sink);
    kv_table_end(writer.out);
    reply_end(broker, &request->reply_to, &writer);
}

/* ---- groups ---- */

static void update_and_create_subscription_group(struct broker *broker, struct request *request)
{
    struct subscription_group_config config;
    struct arena arena;
    struct error error;
    arena_init(&arena, 64 * 1024);
    int rv = subscription_group_config_decode(&config, &arena, request->command->body, &error);
    if (rv != 0) {
        reply_body_error(broker, &request->reply_to, &error);
        arena_close(&arena);
        return;
    }
    rv = consumer_group_validate(config.group_name, &error);
    if (rv != 0) {
        reply_error(broker, &request->reply_to, &error);
    } else if (broker->groups->count >= SUBSCRIPTION_GROUP_TABLE_MAX && subscription_group_find(broker->groups, config.group_name) == NULL) {
        reply_simple(broker, &request->reply_to, RESPONSE_SERVICE_NOT_AVAILABLE, "%s", broker_stats_refuse(broker->stats, LIMIT_HIT_GROUPS));
    } else {
        char name[SUBSCRIPTION_GROUP_NAME_MAX + 1];
        Ledgermq__SubscriptionGroup put;
        Ledgermq__SubscriptionGroup *puts[1] = {&put};
        Ledgermq__MetadataRecord record = LEDGERMQ__METADATA_RECORD__INIT;
        memcpy(name, config.group_name.data, config.group_name.size);
        name[config.group_name.size] = 0;
        metadata_group_message(&config, name, &put);
        record.n_put_groups = 1;
        record.put_groups = puts;
        reply_after_record(broker, &request->reply_to, &record, NULL, name);
    }
    arena_close(&arena);
}

static void delete_subscription_group(struct broker *broker, struct request *request)
{
    struct delete_subscription_group_request_header header;
    struct error error;
    int rv = delete_subscription_group_request_header_decode(request->command, &header, &error);
    if (rv == 0)
        rv = group_validate(header.group_name, &error);
    if (rv != 0) {
        reply_error(broker, &request->reply_to, &error);
        return;
    }
    bool offsets = header.remove_offset || header.clean_offset;
    if (!offsets && subscription_group_find(broker->groups, header.group_name) == NULL) {
        reply_simple(broker, &request->reply_to, RESPONSE_SUCCESS, NULL);
        return;
    }
    char name[SUBSCRIPTION_GROUP_NAME_MAX + 1];
    char *names[1] = {name};
    Ledgermq__MetadataRecord record = LEDGERMQ__METADATA_RECORD__INIT;
    memcpy(name, header.group_name.data, header.group_name.size);
    name[header.group_name.size] = 0;
    record.n_delete_groups = 1;
    record.delete_groups = names;
    record.delete_group_offsets = offsets;
    reply_after_record(broker, &request->reply_to, &record, NULL, name);
}

static void get_all_subscription_group_config(struct broker *broker, struct request *request)
{
    struct remoting_writer writer;
    if (!reply_body_begin(broker, &request->reply_to, &writer))
        return;
    subscription_group_wrapper_begin(writer.out, &broker->groups->version);
    for (struct subscription_group_entry *entry = broker->groups->entries; entry != NULL; entry = entry->hh.next)
        subscription_group_wrapper_add(writer.out, &entry->config);
    subscription_group_wrapper_end(writer.out);
    reply_end(broker, &request->reply_to, &writer);
}

static void get_subscription_group_config(struct broker *broker, struct request *request)
{
    struct slice group;
    struct remoting_writer writer;
    if (!request_text(broker, request, "group", &group))
        return;
    struct subscription_group_config *config = subscription_group_find(broker->groups, group);
    if (config == NULL) {
        reply_simple(broker, &request->reply_to, RESPONSE_SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker. group: %.*s", SLICE_ARG(group));
    } else if (reply_body_begin(broker, &request->reply_to, &writer)) {
        subscription_group_config_encode(config, writer.out);
        reply_end(broker, &request->reply_to, &writer);
    }
}

/* ---- clients ---- */

/* The group's channels as tools see them; slices point into the registry. NULL when memory is short. */
static struct client_connection *connections_of(const struct client_group *group)
{
    struct client_connection *connections = calloc(group->channel_count, sizeof *connections);
    size_t count = 0;
    for (struct client_channel *channel = group->channels; connections != NULL && channel != NULL; channel = channel->group_next) {
        connections[count].client_id = slice_of_text(channel->client_id);
        connections[count].client_address = slice_of_text(channel->address);
        connections[count].language = slice_of_text(client_channel_language(channel));
        connections[count].version = channel->version;
        count++;
    }
    return connections;
}

static void get_consumer_connection_list(struct broker *broker, struct request *request)
{
    struct consumer_group_request_header header;
    struct remoting_writer writer;
    struct error error;
    if (consumer_group_request_header_decode(request->command, &header, &error) != 0) {
        reply_error(broker, &request->reply_to, &error);
        return;
    }
    struct client_group *group = client_registry_consumer_group(broker->clients, header.consumer_group);
    if (group == NULL) {
        reply_simple(broker, &request->reply_to, RESPONSE_CONSUMER_NOT_ONLINE, "the consumer group[%.*s] not online",
                     SLICE_ARG(header.consumer_group));
        return;
    }
    struct consumer_connection body = {
        .connections = connections_of(group),
        .connection_count = group->channel_count,
        .consume_from_where = group->consume_from_where,
        .consume_type = group->consume_type,
        .message_model = group->message_model,
        .subscriptions = calloc(group->subscription_count + 1, sizeof *body.subscriptions),
    };
    if (body.connections == NULL || body.subscriptions == NULL) {
        reply_not_now(broker, &request->reply_to, ERROR_NO_MEMORY);
    } else if (reply_body_begin(broker, &request->reply_to, &writer)) {
        for (struct client_subscription *subscription = group->subscriptions; subscription != NULL; subscription = subscription->hh.next)
            body.subscriptions[body.subscription_count++] = subscription->data;
        consumer_connection_encode(&body, writer.out);
        reply_end(broker, &request->reply_to, &writer);
    }
    free(body.connections);
    free(body.subscriptions);
}

static void get_producer_connection_list(struct broker *broker, struct request *request)
{
    struct producer_group_request_header header;
    struct remoting_writer writer;
    struct error error;
    if (producer_group_request_header_decode(request->command, &header, &error) != 0) {
        reply_error(broker, &request->reply_to, &error);
        return;
    }
    struct client_group *group = client_registry_producer_group(broker->clients, header.producer_group);
    if (group == NULL) {
        reply_simple(broker, &request->reply_to, RESPONSE_SYSTEM_ERROR, "the producer group[%.*s] not exist", SLICE_ARG(header.producer_group));
        return;
    }
    struct producer_connection body = {.connections = connections_of(group), .connection_count = group->channel_count};
    if (body.connections == NULL) {
        reply_not_now(broker, &request->reply_to, ERROR_NO_MEMORY);
    } else if (reply_body_begin(broker, &request->reply_to, &writer)) {
        producer_connection_encode(&body, writer.out);
        reply_end(broker, &request->reply_to, &writer);
    }
    free(body.connections);
}

static void get_all_producer_info(struct broker *broker, struct request *request)
{
    struct remoting_writer writer;
    if (!reply_body_begin(broker, &request->reply_to, &writer))
        return;
    producer_table_info_begin(writer.out);
    for (struct client_group *group = broker->clients->producers; group != NULL; group = group->hh.next) {
        producer_table_info_group_begin(writer.out, slice_of_text(group->name));
        for (struct client_channel *channel = group->channels; channel != NULL; channel = channel->group_next) {
            char address[sizeof channel->address + 1];
            snprintf(address, sizeof address, "/%s", channel->address);
            struct producer_info info = {
                .client_id = slice_of_text(channel->client_id),
                .remote_ip = slice_of_text(address),
                .language = slice_of_text(client_channel_language(channel)),
                .version = channel->version,
                .last_update_timestamp_ms = channel->last_update_ms,
            };
            producer_table_info_add(writer.out, &info);
        }
        producer_table_info_group_end(writer.out);
    }
    producer_table_info_end(writer.out);
    reply_end(broker, &request->reply_to, &writer);
}

const struct processor_row admin_broker_processor_rows[] = {
    {REQUEST_UPDATE_BROKER_CONFIG, "UPDATE_BROKER_CONFIG", update_broker_config, 0},
    {REQUEST_GET_BROKER_CONFIG, "GET_BROKER_CONFIG", get_broker_config, 0},
    {REQUEST_GET_BROKER_RUNTIME_INFO, "GET_BROKER_RUNTIME_INFO", get_broker_runtime_info, 0},
    {REQUEST_GET_ALL_CONSUMER_OFFSET, "GET_ALL_CONSUMER_OFFSET", admin_get_all_consumer_offset, 0},
    {REQUEST_GET_ALL_DELAY_OFFSET, "GET_ALL_DELAY_OFFSET", admin_get_all_delay_offset, 0},
    {REQUEST_UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP", update_and_create_subscription_group,
     PROCESSOR_FORWARD},
    {REQUEST_GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "GET_ALL_SUBSCRIPTIONGROUP_CONFIG", get_all_subscription_group_config, 0},
    {REQUEST_GET_SUBSCRIPTIONGROUP_CONFIG, "GET_SUBSCRIPTIONGROUP_CONFIG", get_subscription_group_config, 0},
    {REQUEST_DELETE_SUBSCRIPTIONGROUP, "DELETE_SUBSCRIPTIONGROUP", delete_subscription_group, PROCESSOR_FORWARD},
    {REQUEST_GET_CONSUMER_CONNECTION_LIST, "GET_CONSUMER_CONNECTION_LIST", get_consumer_connection_list, 0},
    {REQUEST_GET_PRODUCER_CONNECTION_LIST, "GET_PRODUCER_CONNECTION_LIST", get_producer_connection_list, 0},
    {REQUEST_GET_ALL_PRODUCER_INFO, "GET_ALL_PRODUCER_INFO", get_all_producer_info, 0},
    {REQUEST_GET_CONSUME_STATS, "GET_CONSUME_STATS", admin_get_consume_stats, 0},
    {REQUEST_GET_BROKER_CONSUME_STATS, "GET_BROKER_CONSUME_STATS", admin_get_broker_consume_stats, 0},
    {REQUEST_VIEW_BROKER_STATS_DATA, "VIEW_BROKER_STATS_DATA", admin_view_broker_stats_data, 0},
    {REQUEST_QUERY_CONSUME_TIME_SPAN, "QUERY_CONSUME_TIME_SPAN", admin_query_consume_time_span, 0},
    {REQUEST_QUERY_CORRECTION_OFFSET, "QUERY_CORRECTION_OFFSET", admin_query_correction_offset, 0},
    {REQUEST_QUERY_CONSUME_QUEUE, "QUERY_CONSUME_QUEUE", admin_query_consume_queue, 0},
    {REQUEST_CLONE_GROUP_OFFSET, "CLONE_GROUP_OFFSET", admin_clone_group_offset, PROCESSOR_FORWARD},
    {0, NULL, NULL, 0},
};
