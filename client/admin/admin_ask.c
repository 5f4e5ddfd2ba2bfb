/* Whom a command asks, and the questions that several commands ask. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/admin/admin.h"
#include "client/admin/admin_ask.h"
#include "proto/request_code.h"
#include "proto/response_code.h"
#include "proto/topic_validator.h"

/* --- one request ---- */

static bool need_name_servers(struct admin *admin)
{
    struct error error = {0};
    if (admin->name_server_count > 0)
        return true;
    admin->name_servers = calloc(ROUTE_NAME_SERVERS_MAX, sizeof *admin->name_servers);
    if (admin->name_servers == NULL)
        abort();
    admin->name_server_count = route_split_name_servers(admin->name_server_text, admin->name_servers, &error);
    if (admin->name_server_count > 0)
        return true;
    admin_fail(admin, "%s; option -n does that too", error.message);
    free(admin->name_servers);
    admin->name_servers = NULL;
    return false;
}

bool admin_connect(struct admin *admin)
{
    struct ledgermq_client_options options;
    struct ledgermq_error error;
    if (admin->client != NULL)
        return true;
    ledgermq_client_options_init(&options);
    options.name_servers = admin->name_server_text;
    options.call_timeout_ms = admin->timeout_ms;
    /* A command that is told a broker's address needs no name server, the client always wants one. */
    if (options.name_servers == NULL || options.name_servers[0] == '\0')
        options.name_servers = "127.0.0.1:9876";
    if (ledgermq_client_new(&options, &admin->client, &error) == LEDGERMQ_OK)
        return true;
    admin_fail(admin, "%s", error.message);
    return false;
}

int admin_try(struct admin *admin, const char *address, int32_t code, const struct remoting_field *fields,
              struct slice body, struct remoting_response *response, struct error *error)
{
    if (!admin_connect(admin))
        return error_set(error, ERROR_INVALID, "no client");
    int rv = remoting_client_invoke(admin->client->remoting, address, code, fields, body, admin->timeout_ms, response,
                                    error);
    if (rv != 0 || response->command.code == RESPONSE_SUCCESS)
        return rv;
    const char *name = response_code_name(response->command.code);
    error_set(error, ERROR_NOT_LEADER, "CODE: %d %s DESC: %.*s BROKER: %s", response->command.code,
              name == NULL ? "" : name,
              (int)(response->command.remark.size < 300 ? response->command.remark.size : 300),
              (const char *)response->command.remark.data, address);
    remoting_response_close(response);
    return ERROR_NOT_LEADER;
}

bool admin_call(struct admin *admin, const char *address, int32_t code, const struct remoting_field *fields,
                struct slice body, struct remoting_response *response)
{
    struct error error = {0};
    if (admin_try(admin, address, code, fields, body, response, &error) == 0)
        return true;
    admin_fail(admin, "%s", error.message);
    return false;
}

/* The one that answers is asked first from now on. When none does, what the first said that was there says more than that another was not. */
static int try_name_servers(struct admin *admin, int32_t code, const struct remoting_field *fields, struct slice body,
                            struct remoting_response *response, struct error *error)
{
    int rv = ERROR_INVALID;
    bool refused = false;
    for (uint32_t i = 0; i < admin->name_server_count; i++) {
        struct error cause = {0};
        rv = admin_try(admin, admin->name_servers[i], code, fields, body, response, &cause);
        if (rv != 0) {
            if (!refused)
                *error = cause;
            refused = refused || rv == ERROR_NOT_LEADER;
            continue;
        }
        char first[REMOTING_ADDRESS_MAX];
        memcpy(first, admin->name_servers[0], sizeof first);
        memmove(admin->name_servers[0], admin->name_servers[i], sizeof first);
        if (i > 0)
            memcpy(admin->name_servers[i], first, sizeof first);
        break;
    }
    return rv;
}

bool admin_name_server_call(struct admin *admin, int32_t code, const struct remoting_field *fields, struct slice body,
                            struct remoting_response *response)
{
    struct error error = {0};
    if (!need_name_servers(admin))
        return false;
    if (try_name_servers(admin, code, fields, body, response, &error) == 0)
        return true;
    admin_fail(admin, "name server %s", error.message);
    return false;
}

bool admin_each_name_server(struct admin *admin, int32_t code, const struct remoting_field *fields, struct slice body,
                            void (*done)(const char *address, const struct remoting_command *answer))
{
    bool all = true;
    if (!need_name_servers(admin))
        return false;
    for (uint32_t i = 0; i < admin->name_server_count; i++) {
        struct remoting_response response;
        if (!admin_call(admin, admin->name_servers[i], code, fields, body, &response)) {
            all = false;
            continue;
        }
        if (done != NULL)
            done(admin->name_servers[i], &response.command);
        remoting_response_close(&response);
    }
    return all;
}

/* --- brokers ---- */

static bool leads(const struct cluster_info *info)
{
    for (size_t i = 0; i < info->broker_count; i++)
        for (size_t k = 0; k < info->brokers[i].address_count; k++)
            if (info->brokers[i].addresses[k].id == 0)
                return true;
    return false;
}

/* True when some name server answers and none of those that answer knows a leader. */
static bool starting(struct admin *admin)
{
    bool answered = false;
    for (uint32_t i = 0; i < admin->name_server_count; i++) {
        struct remoting_response response;
        struct cluster_info info;
        struct error error = {0};
        if (admin_try(admin, admin->name_servers[i], REQUEST_GET_BROKER_CLUSTER_INFO, NULL, NO_BODY,
                      &response, &error) != 0)
            continue;
        int rv = cluster_info_decode(&info, response.command.body, &error);
        remoting_response_close(&response);
        if (rv != 0)
            return false;
        bool led = leads(&info);
        cluster_info_close(&info);
        if (led)
            return false;
        answered = true;
    }
    return answered;
}

void admin_await_leader(struct admin *admin)
{
    if (!need_name_servers(admin))
        return;
    int64_t until = client_clock_ms() + ADMIN_START_SECONDS * 1000;
    for (bool told = false; starting(admin) && client_clock_ms() < until; told = true) {
        if (!told)
            fprintf(stderr, "mqadmin %s: no broker leads yet; waiting up to %d s\n", admin->command->name,
                    ADMIN_START_SECONDS);
        uv_sleep(100);
    }
}

static bool add_target(struct admin_targets *targets, struct slice address, struct slice name, struct slice cluster,
                       int64_t id)
{
    if (targets->count == ADMIN_NODES_MAX || address.size >= REMOTING_ADDRESS_MAX)
        return false;
    struct admin_target *target = &targets->all[targets->count++];
    snprintf(target->address, sizeof target->address, "%.*s", ADMIN_SLICE(address));
    snprintf(target->broker_name, sizeof target->broker_name, "%.*s", ADMIN_SLICE(name));
    snprintf(target->cluster, sizeof target->cluster, "%.*s", ADMIN_SLICE(cluster));
    target->broker_id = id;
    return true;
}

static bool in_cluster(const struct cluster_info *info, struct slice broker_name, const char *cluster)
{
    for (size_t i = 0; i < info->cluster_count; i++) {
        if (!slice_equal_text(info->clusters[i].name, cluster))
            continue;
        for (size_t k = 0; k < info->clusters[i].broker_name_count; k++)
            if (slice_equal(info->clusters[i].broker_names[k], broker_name))
                return true;
    }
    return false;
}

static int compare_targets(const void *a, const void *b)
{
    const struct admin_target *left = a, *right = b;
    int order = strcmp(left->broker_name, right->broker_name);
    return order != 0 ? order : (left->broker_id > right->broker_id) - (left->broker_id < right->broker_id);
}

bool admin_targets(struct admin *admin, bool everyone, bool any_cluster, struct admin_targets *targets, int *status)
{
    const char *address = admin_text(admin, "brokerAddr"), *cluster = admin_text(admin, "clusterName");
    *targets = (struct admin_targets){.all = calloc(ADMIN_NODES_MAX, sizeof *targets->all)};
    *status = ADMIN_FAILED;
    if (targets->all == NULL)
        abort();
    if (address != NULL)
        return add_target(targets, slice_of_text(address), slice_of(NULL, 0), slice_of(NULL, 0), 0);
    if (cluster == NULL && !any_cluster) {
        *status = admin_usage(admin, "say for which brokers: -b ADDRESS or -c CLUSTER");
        admin_targets_free(targets);
        return false;
    }
    struct cluster_info info;
    if (!admin_clusters(admin, &info)) {
        admin_targets_free(targets);
        return false;
    }
    for (size_t i = 0; i < info.broker_count; i++) {
        const struct broker_data *broker = &info.brokers[i];
        if (cluster != NULL && !in_cluster(&info, broker->broker_name, cluster))
            continue;
        for (size_t k = 0; k < broker->address_count; k++)
            if (everyone || broker->addresses[k].id == 0)
                add_target(targets, broker->addresses[k].address, broker->broker_name, broker->cluster,
                           broker->addresses[k].id);
    }
    cluster_info_close(&info);
    if (targets->count > 0) {
        qsort(targets->all, targets->count, sizeof *targets->all, compare_targets);
        return true;
    }
    if (cluster != NULL)
        admin_fail(admin, "cluster %s has no broker%s: see mqadmin clusterList", cluster,
                   everyone ? "" : " with a leader");
    else
        admin_fail(admin, "the name server knows no broker%s", everyone ? "" : " with a leader");
    admin_targets_free(targets);
    return false;
}

void admin_targets_free(struct admin_targets *targets)
{
    free(targets->all);
    *targets = (struct admin_targets){0};
}

struct parallel_call {
    pthread_t thread;
    bool started;
    struct admin *admin;
    const char *address;
    int32_t code;
    int timeout_ms;
    struct admin_answer *answer;
};

static void *parallel_main(void *argument)
{
    struct parallel_call *call = argument;
    struct admin_answer *answer = call->answer;
    int rv = remoting_client_invoke(call->admin->client->remoting, call->address, call->code, NULL, slice_of(NULL, 0),
                                    call->timeout_ms, &answer->response, &answer->error);
    answer->ok = rv == 0 && answer->response.command.code == RESPONSE_SUCCESS;
    if (rv == 0 && !answer->ok) {
        error_set(&answer->error, ERROR_INVALID, "CODE: %d DESC: %.*s", answer->response.command.code,
                  (int)(answer->response.command.remark.size < 200 ? answer->response.command.remark.size : 200),
                  (const char *)answer->response.command.remark.data);
        remoting_response_close(&answer->response);
    }
    return NULL;
}

void admin_call_all(struct admin *admin, const struct admin_targets *targets, int32_t code, int timeout_ms,
                    struct admin_answer *answers)
{
    struct parallel_call calls[ADMIN_NODES_MAX];
    if (!admin_connect(admin)) {
        for (size_t i = 0; i < targets->count; i++)
            answers[i] = (struct admin_answer){.error = {.message = "no client"}};
        return;
    }
    for (size_t i = 0; i < targets->count; i++) {
        answers[i] = (struct admin_answer){0};
        calls[i] = (struct parallel_call){.admin = admin,
                                          .address = targets->all[i].address,
                                          .code = code,
                                          .timeout_ms = timeout_ms,
                                          .answer = &answers[i]};
        calls[i].started = pthread_create(&calls[i].thread, NULL, parallel_main, &calls[i]) == 0;
        if (!calls[i].started)
            parallel_main(&calls[i]);
    }
    for (size_t i = 0; i < targets->count; i++)
        if (calls[i].started)
            pthread_join(calls[i].thread, NULL);
}

bool admin_each_target(struct admin *admin, const struct admin_targets *targets, int32_t code,
                       const struct remoting_field *fields, struct slice body,
                       void (*done)(struct admin *admin, const struct admin_target *target))
{
    bool all = true;
    for (size_t i = 0; i < targets->count; i++) {
        struct remoting_response response;
        if (!admin_call(admin, targets->all[i].address, code, fields, body, &response)) {
            all = false;
            continue;
        }
        remoting_response_close(&response);
        if (done != NULL)
            done(admin, &targets->all[i]);
    }
    return all;
}

bool admin_topic_leaders(struct admin *admin, const char *topic, struct admin_targets *targets, bool silent)
{
    struct topic_route_data route;
    *targets = (struct admin_targets){0};
    if (!admin_route(admin, topic, &route, silent))
        return false;
    targets->all = calloc(route.broker_count + 1, sizeof *targets->all);
    for (size_t i = 0; targets->all != NULL && i < route.broker_count; i++) {
        struct slice address = broker_data_address(&route.brokers[i], 0);
        if (address.data == NULL && route.brokers[i].address_count > 0)
            address = route.brokers[i].addresses[0].address;
        struct admin_target *target = &targets->all[targets->count++];
        snprintf(target->address, sizeof target->address, "%.*s", ADMIN_SLICE(address));
        snprintf(target->broker_name, sizeof target->broker_name, "%.*s", ADMIN_SLICE(route.brokers[i].broker_name));
    }
    topic_route_data_close(&route);
    if (targets->count > 0)
        return true;
    admin_targets_free(targets);
    if (!silent)
        admin_fail(admin, "no broker has topic %s", topic);
    return false;
}

bool admin_group_leaders(struct admin *admin, const char *group, struct admin_targets *targets, bool silent)
{
    char retry[LEDGERMQ_TOPIC_MAX + 300];
    snprintf(retry, sizeof retry, "%s%s", TOPIC_RETRY_PREFIX, group);
    return admin_topic_leaders(admin, retry, targets, silent);
}

bool admin_group_broker(struct admin *admin, const char *group, char address[REMOTING_ADDRESS_MAX])
{
    struct admin_targets brokers;
    const char *given = admin_text(admin, "brokerAddr");
    if (given != NULL) {
        snprintf(address, REMOTING_ADDRESS_MAX, "%s", given);
        return true;
    }
    if (!admin_group_leaders(admin, group, &brokers, false))
        return false;
    memcpy(address, brokers.all[0].address, REMOTING_ADDRESS_MAX);
    admin_targets_free(&brokers);
    return true;
}

/* --- answers that are decoded ---- */

typedef int (*decode_body)(void *out, struct slice body, struct error *error);

#define DECODER(type)                                                                                        \
    static int decode_##type(void *out, struct slice body, struct error *error)                              \
    {                                                                                                        \
        return type##_decode(out, body, error);                                                              \
    }
DECODER(cluster_info)
DECODER(topic_route_data)
DECODER(topic_list)
DECODER(topic_stats_table)
DECODER(group_list)
DECODER(kv_table)
DECODER(consume_stats)
DECODER(consumer_connection)
DECODER(producer_connection)
DECODER(subscription_group_wrapper)
DECODER(topic_config_serialize_wrapper)
DECODER(broker_stats_data)

/* address NULL: the name servers. */
static bool ask(struct admin *admin, const char *address, int32_t code, const struct remoting_field *fields,
                decode_body decode, void *out, bool silent)
{
    struct remoting_response response;
    struct error error = {0};
    if (address == NULL && !need_name_servers(admin))
        return false;
    int rv = address == NULL ? try_name_servers(admin, code, fields, NO_BODY, &response, &error)
                             : admin_try(admin, address, code, fields, NO_BODY, &response, &error);
    if (rv == 0) {
        rv = decode(out, response.command.body, &error);
        remoting_response_close(&response);
        if (rv != 0)
            error_wrap(&error, "answer of %s", address == NULL ? admin->name_servers[0] : address);
    }
    if (rv != 0 && !silent)
        admin_fail(admin, "%s%s", address == NULL ? "name server " : "", error.message);
    return rv == 0;
}

bool admin_clusters(struct admin *admin, struct cluster_info *info)
{
    return ask(admin, NULL, REQUEST_GET_BROKER_CLUSTER_INFO, NULL, decode_cluster_info, info, false);
}

bool admin_route(struct admin *admin, const char *topic, struct topic_route_data *route, bool silent)
{
    const struct remoting_field fields[] = {{"topic", topic}, {NULL, NULL}};
    return ask(admin, NULL, REQUEST_GET_ROUTEINFO_BY_TOPIC, fields, decode_topic_route_data, route, silent);
}

bool admin_topic_list(struct admin *admin, struct topic_list *list)
{
    return ask(admin, NULL, REQUEST_GET_ALL_TOPIC_LIST_FROM_NAMESERVER, NULL, decode_topic_list, list, false);
}

bool admin_system_topics(struct admin *admin, const char *address, struct topic_list *list)
{
    return ask(admin, address, REQUEST_GET_SYSTEM_TOPIC_LIST_FROM_BROKER, NULL, decode_topic_list, list, false);
}

bool admin_topic_configs(struct admin *admin, const char *address, struct topic_config_serialize_wrapper *topics)
{
    return ask(admin, address, REQUEST_GET_ALL_TOPIC_CONFIG, NULL, decode_topic_config_serialize_wrapper, topics,
               false);
}

bool admin_group_configs(struct admin *admin, const char *address, struct subscription_group_wrapper *groups)
{
    return ask(admin, address, REQUEST_GET_ALL_SUBSCRIPTIONGROUP_CONFIG, NULL, decode_subscription_group_wrapper, groups,
               false);
}

bool admin_topic_stats(struct admin *admin, const char *address, const char *topic, struct topic_stats_table *table)
{
    const struct remoting_field fields[] = {{"topic", topic}, {NULL, NULL}};
    return ask(admin, address, REQUEST_GET_TOPIC_STATS_INFO, fields, decode_topic_stats_table, table, false);
}

bool admin_topic_groups(struct admin *admin, const char *address, const char *topic, struct group_list *groups,
                        bool silent)
{
    const struct remoting_field fields[] = {{"topic", topic}, {NULL, NULL}};
    return ask(admin, address, REQUEST_QUERY_TOPIC_CONSUME_BY_WHO, fields, decode_group_list, groups, silent);
}

bool admin_runtime_table(struct admin *admin, const char *address, struct kv_table *table)
{
    return ask(admin, address, REQUEST_GET_BROKER_RUNTIME_INFO, NULL, decode_kv_table, table, false);
}

bool admin_stats(struct admin *admin, const char *address, const char *name, const char *key,
                 struct broker_stats_data *data)
{
    const struct remoting_field fields[] = {{"statsName", name}, {"statsKey", key}, {NULL, NULL}};
    return ask(admin, address, REQUEST_VIEW_BROKER_STATS_DATA, fields, decode_broker_stats_data, data, true);
}

int64_t admin_stats_day(const struct broker_stats_data *data)
{
    return data->day.sum != 0 ? data->day.sum : data->hour.sum != 0 ? data->hour.sum : data->minute.sum;
}

bool admin_consume_stats(struct admin *admin, const char *address, const char *group, const char *topic,
                         struct consume_stats *stats, bool silent)
{
    const struct remoting_field fields[] = {{"consumerGroup", group}, {"topic", topic}, {NULL, NULL}};
    return ask(admin, address, REQUEST_GET_CONSUME_STATS, fields, decode_consume_stats, stats, silent);
}

bool admin_consumer_connection(struct admin *admin, const char *address, const char *group,
                               struct consumer_connection *connection, bool silent)
{
    const struct remoting_field fields[] = {{"consumerGroup", group}, {NULL, NULL}};
    return ask(admin, address, REQUEST_GET_CONSUMER_CONNECTION_LIST, fields, decode_consumer_connection, connection,
               silent);
}

bool admin_producer_connection(struct admin *admin, const char *address, const char *group,
                               struct producer_connection *connection)
{
    const struct remoting_field fields[] = {{"producerGroup", group}, {NULL, NULL}};
    return ask(admin, address, REQUEST_GET_PRODUCER_CONNECTION_LIST, fields, decode_producer_connection, connection,
               false);
}

/* --- answers that are walked over ---- */

static bool open_json(struct admin *admin, const char *address, int rv, struct error *error, struct admin_json *answer,
                      bool silent)
{
    if (rv == 0) {
        rv = json_parse(&answer->document, answer->response.command.body, NULL, 0, error);
        if (rv != 0) {
            error_wrap(error, "answer of %s", address);
            remoting_response_close(&answer->response);
        }
    }
    if (rv != 0 && !silent)
        admin_fail(admin, "%s", error->message);
    return rv == 0;
}

bool admin_json(struct admin *admin, const char *address, int32_t code, const struct remoting_field *fields,
                struct admin_json *answer)
{
    struct error error = {0};
    int rv = admin_try(admin, address, code, fields, NO_BODY, &answer->response, &error);
    return open_json(admin, address, rv, &error, answer, false);
}

/* The broker waits 10 s for the client. */
static bool relayed(struct admin *admin, const char *address, int32_t code, const struct remoting_field *fields,
                    struct admin_json *answer, bool silent)
{
    struct error error = {0};
    int timeout_ms = admin->timeout_ms;
    admin->timeout_ms = timeout_ms * 3;
    int rv = admin_try(admin, address, code, fields, NO_BODY, &answer->response, &error);
    admin->timeout_ms = timeout_ms;
    return open_json(admin, address, rv, &error, answer, silent);
}

bool admin_running_info(struct admin *admin, const char *address, const char *group, const char *client_id, bool jstack,
                        struct admin_json *info, bool silent)
{
    const struct remoting_field fields[] = {{"consumerGroup", group},
                                            {"clientId", client_id},
                                            {"jstackEnable", admin_word(jstack)},
                                            {NULL, NULL}};
    return relayed(admin, address, REQUEST_GET_CONSUMER_RUNNING_INFO, fields, info, silent);
}

bool admin_consume_directly(struct admin *admin, const char *address, const char *group, const char *client_id,
                            const char *offset_message_id, struct admin_json *result)
{
    const struct remoting_field fields[] = {
        {"consumerGroup", group}, {"clientId", client_id}, {"msgId", offset_message_id}, {NULL, NULL}};
    return relayed(admin, address, REQUEST_CONSUME_MESSAGE_DIRECTLY, fields, result, false);
}

void admin_json_close(struct admin_json *answer)
{
    json_close(&answer->document);
    remoting_response_close(&answer->response);
}

struct slice admin_json_text(struct json_value object, const char *name)
{
    struct slice text = SLICE_LITERAL("null");
    (void)json_text(json_get(object, name), &text);
    return text;
}

long long admin_json_count(struct json_value object, const char *name)
{
    int64_t count = 0;
    (void)json_i64(json_get(object, name), &count);
    return count;
}
