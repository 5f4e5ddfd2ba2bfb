/* Topics: make, change, delete, list (org.apache.rocketmq.tools.command.topic). */
#include <stdio.h>

#include "client/admin/admin_ask.h"
#include "proto/request_code.h"
#include "proto/topic_config.h"
#include "proto/topic_validator.h"

#define QUEUES_MAX 65536
#define QUEUES_DEFAULT 8
#define QUEUES_AS_BEFORE (-1)

static const char *perm_text(int64_t perm, char out[4])
{
    snprintf(out, 4, "%c%c%c", perm & PERM_READ ? 'R' : '-', perm & PERM_WRITE ? 'W' : '-',
             perm & PERM_INHERIT ? 'X' : '-');
    return out;
}

/* Request 17 to one broker; prints nothing on success. */
static bool create_topic(struct admin *admin, const char *address, const char *topic, int64_t read, int64_t write,
                         int64_t perm, int64_t sys_flag, const char *attributes)
{
    char read_text[16], write_text[16], perm_number[16], flag_text[16];
    struct remoting_response response;
    snprintf(read_text, sizeof read_text, "%d", (int)read);
    snprintf(write_text, sizeof write_text, "%d", (int)write);
    snprintf(perm_number, sizeof perm_number, "%d", (int)perm);
    snprintf(flag_text, sizeof flag_text, "%d", (int)sys_flag);
    const struct remoting_field fields[] = {{"topic", topic},
                                            {"defaultTopic", TOPIC_AUTO_CREATE},
                                            {"readQueueNums", read_text},
                                            {"writeQueueNums", write_text},
                                            {"perm", perm_number},
                                            {"topicFilterType", "SINGLE_TAG"},
                                            {"topicSysFlag", flag_text},
                                            {"order", "false"},
                                            {attributes == NULL ? NULL : "attributes", attributes},
                                            {NULL, NULL}};
    if (!admin_call(admin, address, REQUEST_UPDATE_AND_CREATE_TOPIC, fields, NO_BODY, &response))
        return false;
    remoting_response_close(&response);
    return true;
}

static bool put_order_conf(struct admin *admin, const char *topic, const char *conf)
{
    const struct remoting_field fields[] = {
        {"namespace", "ORDER_TOPIC_CONFIG"}, {"key", topic}, {"value", conf}, {NULL, NULL}};
    return admin_each_name_server(admin, REQUEST_PUT_KV_CONFIG, fields, NO_BODY, NULL);
}

/* What the route shows of the topic for the broker that this address leads; NULL when it has none of it. */
static const struct queue_data *queue_data_of(const struct topic_route_data *route, const char *address)
{
    for (size_t b = 0; b < route->broker_count; b++) {
        if (!slice_equal_text(broker_data_address(&route->brokers[b], 0), address))
            continue;
        for (size_t q = 0; q < route->queue_count; q++)
            if (slice_equal(route->queues[q].broker_name, route->brokers[b].broker_name))
                return &route->queues[q];
    }
    return NULL;
}

static int update_topic(struct admin *admin)
{
    const char *topic = admin_text(admin, "topic");
    struct admin_targets targets;
    struct topic_route_data route = {0};
    int64_t read, write, perm, read_there = QUEUES_DEFAULT, write_there = QUEUES_DEFAULT;
    bool order, unit, has_unit_sub;
    char perm_letters[4];
    int status;
    struct error error = {0};
    if (!admin_number(admin, "readQueueNums", QUEUES_AS_BEFORE, 0, QUEUES_MAX, &read) ||
        !admin_number(admin, "writeQueueNums", QUEUES_AS_BEFORE, 0, QUEUES_MAX, &write) ||
        !admin_number(admin, "perm", PERM_READ | PERM_WRITE, 0, 7, &perm) ||
        !admin_bool(admin, "order", false, &order) || !admin_bool(admin, "unit", false, &unit) ||
        !admin_bool(admin, "hasUnitSub", false, &has_unit_sub))
        return ADMIN_USAGE;
    if (topic_validate(slice_of_text(topic), &error) != 0)
        return admin_usage(admin, "topic '%.140s': %s", topic, error.message);
    if (!admin_targets(admin, false, false, &targets, &status))
        return status;
    int64_t sys_flag = (unit ? TOPIC_SYS_FLAG_UNIT : 0) | (has_unit_sub ? TOPIC_SYS_FLAG_UNIT_SUB : 0);
    struct buffer conf;
    buffer_init(&conf, 0);
    status = ADMIN_OK;
    /* Numbers that are not given stay as they are where the topic exists; Java sets them to 8. */
    bool exists = (read < 0 || write < 0) && admin_route(admin, topic, &route, true);
    for (size_t i = 0; i < targets.count; i++) {
        const struct queue_data *queue = exists ? queue_data_of(&route, targets.all[i].address) : NULL;
        read_there = read >= 0 ? read : queue != NULL ? queue->read_queue_nums : QUEUES_DEFAULT;
        write_there = write >= 0 ? write : queue != NULL ? queue->write_queue_nums : QUEUES_DEFAULT;
        if (!create_topic(admin, targets.all[i].address, topic, read_there, write_there, perm, sys_flag, admin_text(admin, "attributes"))) {
            status = ADMIN_FAILED;
            continue;
        }
        buffer_append_format(&conf, "%s%s:%d", conf.size > 0 ? ";" : "", targets.all[i].broker_name, (int)write_there);
        printf("create topic to %s success.\n", targets.all[i].address);
    }
    if (order && status == ADMIN_OK) {
        buffer_append_u8(&conf, 0);
        if (targets.all[0].broker_name[0] == '\0')
            status = admin_fail(admin, "an order configuration needs broker names: use -c instead of -b");
        else if (put_order_conf(admin, topic, (const char *)conf.data))
            printf("set cluster orderConf. isOrder=true, orderConf=[%s]\n", (const char *)conf.data);
        else
            status = ADMIN_FAILED;
    }
    if (status == ADMIN_OK)
        printf("TopicConfig [topicName=%s, readQueueNums=%d, writeQueueNums=%d, perm=%s, topicFilterType=SINGLE_TAG, "
               "topicSysFlag=%d, "
               "order=%s]\n",
               topic, (int)read_there, (int)write_there, perm_text(perm, perm_letters), (int)sys_flag, admin_word(order));
    buffer_close(&conf);
    if (exists)
        topic_route_data_close(&route);
    admin_targets_free(&targets);
    return status;
}

static int update_topic_perm(struct admin *admin)
{
    const char *topic = admin_text(admin, "topic");
    struct topic_route_data route;
    struct admin_targets targets;
    int64_t perm;
    char letters[4];
    int status;
    if (!admin_number(admin, "perm", 0, 0, 7, &perm))
        return ADMIN_USAGE;
    if (!admin_has(admin, "brokerAddr") && !admin_has(admin, "clusterName"))
        return admin_usage(admin, "say for which brokers: -b ADDRESS or -c CLUSTER");
    if (!admin_route(admin, topic, &route, false))
        return ADMIN_FAILED;
    if (!admin_targets(admin, false, false, &targets, &status))
        goto close_route;
    status = ADMIN_OK;
    for (size_t i = 0; i < targets.count; i++) {
        const struct queue_data *queue = queue_data_of(&route, targets.all[i].address);
        if (queue == NULL) {
            status = admin_fail(admin, "%s does not lead a broker that has topic %s: see mqadmin topicRoute",
                                targets.all[i].address, topic);
            continue;
        }
        if (queue->perm == perm) {
            printf("new perm equals to the old one!\n");
            continue;
        }
        if (!create_topic(admin, targets.all[i].address, topic, queue->read_queue_nums, queue->write_queue_nums, perm,
                          queue->topic_sys_flag, NULL)) {
            status = ADMIN_FAILED;
            continue;
        }
        printf("update topic perm from %d to %d in %s success.\n", queue->perm, (int)perm, targets.all[i].address);
        printf("TopicConfig [topicName=%s, readQueueNums=%d, writeQueueNums=%d, perm=%s, topicFilterType=SINGLE_TAG, "
               "topicSysFlag=%d, "
               "order=false].\n",
               topic, queue->read_queue_nums, queue->write_queue_nums, perm_text(perm, letters),
               queue->topic_sys_flag);
    }
    admin_targets_free(&targets);
close_route:
    topic_route_data_close(&route);
    return status;
}

bool admin_delete_topic(struct admin *admin, const struct admin_targets *targets, const char *topic)
{
    const char *cluster = targets->all[0].cluster;
    const struct remoting_field fields[] = {
        {"topic", topic}, {"clusterName", cluster[0] == '\0' ? NULL : cluster}, {NULL, NULL}};
    if (!admin_each_target(admin, targets, REQUEST_DELETE_TOPIC_IN_BROKER, fields, NO_BODY, NULL))
        return false;
    printf("delete topic [%s] from cluster [%s] success.\n", topic, cluster);
    if (!admin_each_name_server(admin, REQUEST_DELETE_TOPIC_IN_NAMESRV, fields, NO_BODY, NULL))
        return false;
    printf("delete topic [%s] from NameServer success.\n", topic);
    return true;
}

static int delete_topic(struct admin *admin)
{
    struct admin_targets targets;
    int status;
    if (!admin_targets(admin, false, false, &targets, &status))
        return status;
    bool ok = admin_delete_topic(admin, &targets, admin_text(admin, "topic"));
    admin_targets_free(&targets);
    return ok ? ADMIN_OK : ADMIN_FAILED;
}

static bool topic_in_cluster(struct admin *admin, const char *topic, const char *cluster, struct topic_route_data *route)
{
    if (!admin_route(admin, topic, route, true))
        return false;
    for (size_t i = 0; i < route->broker_count; i++)
        if (slice_equal_text(route->brokers[i].cluster, cluster))
            return true;
    topic_route_data_close(route);
    return false;
}

/* One line per consumer group of the topic; one without, when there is none. */
static void print_topic_groups(struct admin *admin, const char *cluster, const char *topic,
                               const struct topic_route_data *route)
{
    bool printed = false;
    for (size_t i = 0; i < route->broker_count; i++) {
        char address[REMOTING_ADDRESS_MAX];
        struct group_list groups;
        if (route->brokers[i].address_count == 0)
            continue;
        snprintf(address, sizeof address, "%.*s", ADMIN_SLICE(route->brokers[i].addresses[0].address));
        if (!admin_topic_groups(admin, address, topic, &groups, true))
            continue;
        for (size_t g = 0; g < groups.group_count; g++)
            printf("%-20s  %-48s  %-48.*s\n", cluster, topic, ADMIN_SLICE(groups.groups[g]));
        printed = printed || groups.group_count > 0;
        group_list_close(&groups);
    }
    if (!printed)
        printf("%-20s  %-48s  %-48s\n", cluster, topic, "");
}

static int topic_list(struct admin *admin)
{
    struct topic_list list;
    struct cluster_info info = {0};
    bool with_clusters = admin_has(admin, "clusterModel");
    if (!admin_topic_list(admin, &list))
        return ADMIN_FAILED;
    if (with_clusters && !admin_clusters(admin, &info)) {
        topic_list_close(&list);
        return ADMIN_FAILED;
    }
    if (with_clusters)
        printf("%-20s  %-48s  %-48s\n", "#Cluster Name", "#Topic", "#Consumer Group");
    for (size_t i = 0; i < list.topic_count; i++) {
        struct slice name = list.topics[i];
        if (!with_clusters) {
            printf("%.*s\n", ADMIN_SLICE(name));
            continue;
        }
        if (topic_is_retry(name) || topic_is_dead_letter(name))
            continue;
        for (size_t c = 0; c < info.cluster_count; c++) {
            char topic[LEDGERMQ_TOPIC_MAX + 1], cluster[LEDGERMQ_NAME_MAX + 1];
            struct topic_route_data route;
            snprintf(topic, sizeof topic, "%.*s", ADMIN_SLICE(name));
            snprintf(cluster, sizeof cluster, "%.*s", ADMIN_SLICE(info.clusters[c].name));
            if (!topic_in_cluster(admin, topic, cluster, &route))
                continue;
            print_topic_groups(admin, cluster, topic, &route);
            topic_route_data_close(&route);
        }
    }
    if (with_clusters)
        cluster_info_close(&info);
    topic_list_close(&list);
    return ADMIN_OK;
}

static int update_order_conf(struct admin *admin)
{
    const char *topic = admin_text(admin, "topic"), *method = admin_text(admin, "method"),
               *conf = admin_text(admin, "orderConf");
    const struct remoting_field fields[] = {{"namespace", "ORDER_TOPIC_CONFIG"}, {"key", topic}, {NULL, NULL}};
    struct remoting_response response;
    if (strcmp(method, "get") == 0) {
        if (!admin_name_server_call(admin, REQUEST_GET_KV_CONFIG, fields, NO_BODY, &response))
            return ADMIN_FAILED;
        printf("get orderConf success. topic=[%s], orderConf=[%.*s]\n", topic,
               ADMIN_SLICE(remoting_ext(&response.command, "value")));
        remoting_response_close(&response);
        return ADMIN_OK;
    }
    if (strcmp(method, "put") == 0) {
        if (conf == NULL)
            return admin_usage(admin, "-m put needs -v, for example broker-a:4;broker-b:4");
        if (!put_order_conf(admin, topic, conf))
            return ADMIN_FAILED;
        printf("update orderConf success. topic=[%s], orderConf=[%s]\n", topic, conf);
        return ADMIN_OK;
    }
    if (strcmp(method, "delete") == 0) {
        if (!admin_each_name_server(admin, REQUEST_DELETE_KV_CONFIG, fields, NO_BODY, NULL))
            return ADMIN_FAILED;
        printf("delete orderConf success. topic=[%s]\n", topic);
        return ADMIN_OK;
    }
    return admin_usage(admin, "-m takes get, put or delete, not '%s'", method);
}

static const struct admin_option update_topic_options[] = {
    {'t', "topic", "TOPIC", true, "its name"},
    {'b', "brokerAddr", "ADDRESS", false, "make it on this broker"},
    {'c', "clusterName", "CLUSTER", false, "make it on all brokers of the cluster"},
    {'r', "readQueueNums", "N", false, "queues to read: as they are, 8 for a new topic"},
    {'w', "writeQueueNums", "N", false, "queues to write, 0 to drain it: likewise"},
    {'p', "perm", "PERM", false, "2 write, 4 read, 6 both: 6"},
    {'o', "order", "true|false", false, "register it as ordered"},
    {'u', "unit", "true|false", false, "unit topic"},
    {'s', "hasUnitSub", "true|false", false, "has unit subscriptions"},
    {'a', "attributes", "LIST", false, "+reserve.time=HOURS: its messages expire then; -reserve.time: with fileReservedTime"},
    {0, NULL, NULL, false, NULL},
};
static const struct admin_option topic_perm_options[] = {
    {'t', "topic", "TOPIC", true, "its name"},
    {'p', "perm", "PERM", true, "2 write, 4 read, 6 both"},
    {'b', "brokerAddr", "ADDRESS", false, "on this broker"},
    {'c', "clusterName", "CLUSTER", false, "on all brokers of the cluster"},
    {0, NULL, NULL, false, NULL},
};
static const struct admin_option delete_topic_options[] = {
    {'t', "topic", "TOPIC", true, "its name"},
    {'c', "clusterName", "CLUSTER", true, "the cluster it is deleted from"},
    {0, NULL, NULL, false, NULL},
};
static const struct admin_option topic_list_options[] = {
    {'c', "clusterModel", NULL, false, "with clusters and consumer groups"},
    {0, NULL, NULL, false, NULL},
};
static const struct admin_option order_conf_options[] = {
    {'t', "topic", "TOPIC", true, "its name"},
    {'m', "method", "get|put|delete", true, "what to do"},
    {'v', "orderConf", "CONF", false, "broker-a:4;broker-b:4"},
    {0, NULL, NULL, false, NULL},
};

const struct admin_command topic_commands[] = {
    {"updateTopic", "Make a topic, or change its queues and permission", update_topic_options, update_topic, NULL},
    {"deleteTopic", "Delete a topic and its messages", delete_topic_options, delete_topic, NULL},
    {"updateTopicPerm", "Change who may use a topic", topic_perm_options, update_topic_perm, NULL},
    {"topicList", "List all topics", topic_list_options, topic_list, NULL},
    {"updateOrderConf", "Get, put or delete a topic's order configuration", order_conf_options, update_order_conf,
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
