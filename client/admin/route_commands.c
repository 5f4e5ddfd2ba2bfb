/* Where topics are, how far their queues go, and who would read which (org.apache.rocketmq.tools.command.topic). */
#include <stdio.h>
#include <stdlib.h>

#include "client/admin/admin_ask.h"

static void print_route_json(const struct topic_route_data *route)
{
    printf("{\n\t\"brokerDatas\":[");
    for (size_t i = 0; i < route->broker_count; i++) {
        const struct broker_data *broker = &route->brokers[i];
        printf("%s\n\t\t{\n\t\t\t\"brokerAddrs\":{", i > 0 ? "," : "");
        for (size_t k = 0; k < broker->address_count; k++)
            printf("%s\"%lld\":\"%.*s\"", k > 0 ? "," : "", (long long)broker->addresses[k].id,
                   ADMIN_SLICE(broker->addresses[k].address));
        printf("},\n\t\t\t\"brokerName\":\"%.*s\",\n\t\t\t\"cluster\":\"%.*s\"\n\t\t}",
               ADMIN_SLICE(broker->broker_name), ADMIN_SLICE(broker->cluster));
    }
    printf("\n\t],\n\t\"filterServerTable\":{},\n");
    if (route->order_topic_conf.size > 0)
        printf("\t\"orderTopicConf\":\"%.*s\",\n", ADMIN_SLICE(route->order_topic_conf));
    printf("\t\"queueDatas\":[");
    for (size_t i = 0; i < route->queue_count; i++) {
        const struct queue_data *queue = &route->queues[i];
        printf("%s\n\t\t{\n\t\t\t\"brokerName\":\"%.*s\",\n\t\t\t\"perm\":%d,\n\t\t\t\"readQueueNums\":%d,"
               "\n\t\t\t\"topicSysFlag\":%d,\n"
               "\t\t\t\"writeQueueNums\":%d\n\t\t}",
               i > 0 ? "," : "", ADMIN_SLICE(queue->broker_name), queue->perm, queue->read_queue_nums,
               queue->topic_sys_flag, queue->write_queue_nums);
    }
    printf("\n\t]\n}\n");
}

static void print_route_list(const struct topic_route_data *route)
{
    int read = 0, write = 0;
    printf("%-45s %-32s %-50s %-10s %-11s %-5s\n", "#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue",
           "#WriteQueue", "#Perm");
    for (size_t i = 0; i < route->queue_count; i++) {
        const struct queue_data *queue = &route->queues[i];
        char addresses[1024] = "{";
        struct slice cluster = slice_of(NULL, 0);
        size_t used = 1;
        for (size_t b = 0; b < route->broker_count; b++) {
            const struct broker_data *broker = &route->brokers[b];
            if (!slice_equal(broker->broker_name, queue->broker_name))
                continue;
            cluster = broker->cluster;
            for (size_t k = 0; k < broker->address_count && used < sizeof addresses - 320; k++)
                used +=
                    (size_t)snprintf(addresses + used, sizeof addresses - used, "%s%lld=%.*s", k > 0 ? ", " : "",
                                     (long long)broker->addresses[k].id, ADMIN_SLICE(broker->addresses[k].address));
        }
        snprintf(addresses + used, sizeof addresses - used, "}");
        printf("%-45.*s %-32.*s %-50s %-10d %-11d %-5d\n", ADMIN_SLICE(cluster), ADMIN_SLICE(queue->broker_name),
               addresses, queue->read_queue_nums, queue->write_queue_nums, queue->perm);
        read += queue->read_queue_nums;
        write += queue->write_queue_nums;
    }
    for (int i = 0; i < 158; i++)
        putchar('-');
    printf("\n%-45s %-32zu %-50s %-10d %-11d\n", "Total:", route->queue_count, "", read, write);
}

static int topic_route(struct admin *admin)
{
    struct topic_route_data route;
    if (!admin_route(admin, admin_text(admin, "topic"), &route, false))
        return ADMIN_FAILED;
    if (admin_has(admin, "list"))
        print_route_list(&route);
    else
        print_route_json(&route);
    topic_route_data_close(&route);
    return ADMIN_OK;
}

static int compare_offsets(const void *a, const void *b)
{
    const struct topic_offset *left = a, *right = b;
    return (left->queue.queue_id > right->queue.queue_id) - (left->queue.queue_id < right->queue.queue_id);
}

static int topic_status(struct admin *admin)
{
    const char *topic = admin_text(admin, "topic");
    struct topic_route_data route;
    int status = ADMIN_OK;
    size_t rows = 0;
    if (!admin_route(admin, topic, &route, false))
        return ADMIN_FAILED;
    printf("%-32s  %-4s  %-20s  %-20s    %s\n", "#Broker Name", "#QID", "#Min Offset", "#Max Offset",
           "#Last Updated");
    for (size_t i = 0; i < route.broker_count; i++) {
        struct slice leader = broker_data_address(&route.brokers[i], 0);
        char address[REMOTING_ADDRESS_MAX], time[32];
        struct topic_stats_table table;
        if (leader.data == NULL && route.brokers[i].address_count > 0)
            leader = route.brokers[i].addresses[0].address;
        snprintf(address, sizeof address, "%.*s", ADMIN_SLICE(leader));
        if (!admin_topic_stats(admin, address, topic, &table)) {
            status = ADMIN_FAILED;
            continue;
        }
        if (table.offset_count > 1)
            qsort(table.offsets, table.offset_count, sizeof *table.offsets, compare_offsets);
        for (size_t k = 0; k < table.offset_count; k++) {
            const struct topic_offset *row = &table.offsets[k];
            printf("%-32.*s  %-4d  %-20lld  %-20lld    %s\n", ADMIN_SLICE(row->queue.broker_name),
                   row->queue.queue_id, (long long)row->min_offset, (long long)row->max_offset,
                   row->last_update_timestamp_ms > 0 ? admin_time(row->last_update_timestamp_ms, time) : "");
        }
        rows += table.offset_count;
        topic_stats_table_close(&table);
    }
    topic_route_data_close(&route);
    if (rows == 0 && status == ADMIN_OK)
        status = admin_fail(admin, "topic %s has no queue on any broker", topic);
    return status;
}

static int topic_cluster_list(struct admin *admin)
{
    struct topic_route_data route;
    if (!admin_route(admin, admin_text(admin, "topic"), &route, false))
        return ADMIN_FAILED;
    for (size_t i = 0; i < route.broker_count; i++) {
        bool before = false;
        for (size_t k = 0; k < i; k++)
            before = before || slice_equal(route.brokers[k].cluster, route.brokers[i].cluster);
        if (!before)
            printf("%.*s\n", ADMIN_SLICE(route.brokers[i].cluster));
    }
    topic_route_data_close(&route);
    return ADMIN_OK;
}

/* --- allocateMQ ---- */

#define ADDRESSES_MAX 1024

/* AllocateMessageQueueAveragely: the first get one more when it does not come out even. */
static size_t share_of(size_t queues, size_t members, size_t index, size_t *first)
{
    size_t more = queues % members, share = queues / members + (index < more ? 1 : 0);
    *first = index * (queues / members) + (index < more ? index : more);
    return share;
}

static int compare_queues(const void *a, const void *b)
{
    const struct message_queue *left = a, *right = b;
    size_t size = left->broker_name.size < right->broker_name.size ? left->broker_name.size : right->broker_name.size;
    int order = memcmp(left->broker_name.data, right->broker_name.data, size);
    if (order == 0)
        order = (left->broker_name.size > right->broker_name.size) - (left->broker_name.size < right->broker_name.size);
    return order != 0 ? order : (left->queue_id > right->queue_id) - (left->queue_id < right->queue_id);
}

static struct message_queue *readable_queues(const struct topic_route_data *route, struct slice topic, size_t *count)
{
    size_t total = 0;
    *count = 0;
    for (size_t i = 0; i < route->queue_count; i++)
        total += (route->queues[i].perm & PERM_READ) && route->queues[i].read_queue_nums > 0 ? (size_t)route->queues[i].read_queue_nums : 0;
    struct message_queue *queues = calloc(total + 1, sizeof *queues);
    if (queues == NULL)
        return NULL;
    for (size_t i = 0; i < route->queue_count; i++)
        for (int32_t id = 0; (route->queues[i].perm & PERM_READ) && id < route->queues[i].read_queue_nums; id++)
            queues[(*count)++] = (struct message_queue){route->queues[i].broker_name, topic, id};
    qsort(queues, *count, sizeof *queues, compare_queues);
    return queues;
}

static int allocate_mq(struct admin *admin)
{
    const char *topic = admin_text(admin, "topic");
    struct topic_route_data route;
    struct slice members[ADDRESSES_MAX];
    size_t member_count = 0, queue_count;
    for (const char *at = admin_text(admin, "ipList"); *at != '\0';) {
        size_t size = strcspn(at, ",");
        if (size > 0 && member_count == ADDRESSES_MAX)
            return admin_usage(admin, "-i takes at most %d addresses", ADDRESSES_MAX);
        if (size > 0)
            members[member_count++] = slice_of(at, size);
        at += size + (at[size] == ',');
    }
    if (member_count == 0)
        return admin_usage(admin, "-i takes addresses with ',' between");
    if (!admin_route(admin, topic, &route, false))
        return ADMIN_FAILED;
    struct message_queue *queues = readable_queues(&route, slice_of_text(topic), &queue_count);
    struct buffer out;
    struct json_writer writer;
    buffer_init(&out, 0);
    json_writer_init(&writer, &out);
    json_write_begin_object(&writer);
    json_write_key(&writer, "result");
    json_write_begin_object(&writer);
    for (size_t i = 0; queues != NULL && i < member_count; i++) {
        size_t first, share = share_of(queue_count, member_count, i, &first);
        json_write_key_slice(&writer, members[i]);
        json_write_begin_array(&writer);
        for (size_t k = first; k < first + share; k++) {
            struct buffer queue;
            buffer_init(&queue, 0);
            message_queue_encode(&queues[k], &queue);
            json_write_raw(&writer, buffer_slice(&queue));
            buffer_close(&queue);
        }
        json_write_end_array(&writer);
    }
    json_write_end_object(&writer);
    json_write_end_object(&writer);
    bool failed = queues == NULL || out.failed;
    if (!failed)
        printf("%.*s\n", (int)out.size, (const char *)out.data);
    buffer_close(&out);
    free(queues);
    topic_route_data_close(&route);
    return failed ? admin_fail(admin, "out of memory") : ADMIN_OK;
}

static const struct admin_option topic_route_options[] = {
    {'t', "topic", "TOPIC", true, "its name"},
    {'l', "list", NULL, false, "as a table"},
    {0, NULL, NULL, false, NULL},
};
static const struct admin_option topic_options[] = {
    {'t', "topic", "TOPIC", true, "its name"},
    {0, NULL, NULL, false, NULL},
};
static const struct admin_option allocate_options[] = {
    {'t', "topic", "TOPIC", true, "its name"},
    {'i', "ipList", "ADDRESSES", true, "the consumers, ',' between"},
    {0, NULL, NULL, false, NULL},
};

const struct admin_command route_commands[] = {
    {"topicRoute", "Show the brokers and queues of a topic", topic_route_options, topic_route, NULL},
    {"topicStatus", "Show the offsets of a topic's queues", topic_options, topic_status, NULL},
    {"topicClusterList", "Show the clusters that have a topic", topic_options, topic_cluster_list, NULL},
    {"allocateMQ", "Show which consumer would get which queues", allocate_options, allocate_mq, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
