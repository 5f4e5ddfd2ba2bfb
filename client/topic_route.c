#include "client/topic_route.h"

#include <ctype.h>
#include <stdlib.h>

#include "proto/topic_config.h"

#define ROUTE_ARENA_MAX (64u * 1024 * 1024)

static int compare_brokers(const void *a, const void *b)
{
    return strcmp(((const struct route_broker *)a)->name, ((const struct route_broker *)b)->name);
}

static int compare_addresses(const void *a, const void *b)
{
    const struct route_address *left = a, *right = b;
    return (left->id > right->id) - (left->id < right->id);
}

static int compare_queue_data(const void *a, const void *b)
{
    return strcmp(((const struct route_queue_data *)a)->broker_name,
                  ((const struct route_queue_data *)b)->broker_name);
}

/* Decoded texts have a NUL behind them (arena_copy). */
static const char *text_of(struct slice slice)
{
    return slice.data == NULL ? "" : (const char *)slice.data;
}

static bool take_broker(struct arena *arena, const struct broker_data *data, struct route_broker *broker)
{
    broker->name = text_of(data->broker_name);
    broker->cluster = text_of(data->cluster);
    broker->addresses = arena_array(arena, data->address_count, sizeof *broker->addresses);
    if (broker->addresses == NULL)
        return false;
    for (size_t i = 0; i < data->address_count; i++) {
        const char *address = text_of(data->addresses[i].address);
        if (address[0] != '\0' && strlen(address) < REMOTING_ADDRESS_MAX)
            broker->addresses[broker->address_count++] = (struct route_address){data->addresses[i].id, address};
    }
    if (broker->address_count > 1)
        qsort(broker->addresses, broker->address_count, sizeof *broker->addresses, compare_addresses);
    return true;
}

/* An ordered topic's queue count per broker stands in its configuration: "broker-a:4;broker-b:4". */
static int32_t ordered_queues(const char *order_conf, const char *broker_name)
{
    size_t size = strlen(broker_name);
    for (const char *at = order_conf; at != NULL && *at != '\0'; at = strchr(at, ';')) {
        at += *at == ';';
        if (strncmp(at, broker_name, size) == 0 && at[size] == ':')
            return (int32_t)strtol(at + size + 1, NULL, 10);
    }
    return -1;
}

/* Fills the list of queues that may be written (or read); with list NULL only counts. */
static uint64_t list_queues(const struct topic_route *route, bool write, struct route_queue *list)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < route->queue_data_count; i++) {
        const struct route_queue_data *data = &route->queue_data[i];
        const struct route_broker *broker = topic_route_broker(route, data->broker_name);
        int32_t queues = write ? data->write_queues : data->read_queues;
        if (broker == NULL || !(data->perm & (write ? PERM_WRITE : PERM_READ)))
            continue;
        if (write && route_broker_leader(broker) == NULL)
            continue;
        if (write && route->order_conf != NULL && ordered_queues(route->order_conf, broker->name) >= 0)
            queues = ordered_queues(route->order_conf, broker->name);
        if (queues <= 0)
            continue;
        if (list == NULL) {
            count += (uint64_t)queues;
            continue;
        }
        for (int32_t queue = 0; queue < queues; queue++)
            list[count++] = (struct route_queue){broker, queue};
    }
    return count;
}

static void cut_to_template(struct topic_route *route, int queues_of_new_topic)
{
    for (uint32_t i = 0; i < route->queue_data_count; i++) {
        struct route_queue_data *data = &route->queue_data[i];
        int32_t queues = data->read_queues < queues_of_new_topic ? data->read_queues : queues_of_new_topic;
        data->read_queues = data->write_queues = queues;
    }
    route->from_template = true;
}

int topic_route_parse(struct topic_route *route, struct slice text, int queues_of_new_topic, struct error *error)
{
    *route = (struct topic_route){0};
    int rv = topic_route_data_decode(&route->data, text, error);
    if (rv != 0) {
        error_wrap(error, "route data");
        return rv;
    }
    struct topic_route_data *data = &route->data;
    arena_init(&route->arena, ROUTE_ARENA_MAX);
    route->brokers = arena_array(&route->arena, data->broker_count, sizeof *route->brokers);
    route->queue_data = arena_array(&route->arena, data->queue_count, sizeof *route->queue_data);
    if (route->brokers == NULL || route->queue_data == NULL)
        goto no_memory;
    for (size_t i = 0; i < data->broker_count; i++)
        if (!take_broker(&route->arena, &data->brokers[i], &route->brokers[route->broker_count++]))
            goto no_memory;
    for (size_t i = 0; i < data->queue_count; i++)
        route->queue_data[route->queue_data_count++] = (struct route_queue_data){
            .broker_name = text_of(data->queues[i].broker_name),
            .read_queues = data->queues[i].read_queue_nums,
            .write_queues = data->queues[i].write_queue_nums,
            .perm = data->queues[i].perm,
            .sys_flag = data->queues[i].topic_sys_flag,
        };
    route->order_conf = data->order_topic_conf.size > 0 ? text_of(data->order_topic_conf) : NULL;
    if (route->broker_count > 1)
        qsort(route->brokers, route->broker_count, sizeof *route->brokers, compare_brokers);
    if (route->queue_data_count > 1)
        qsort(route->queue_data, route->queue_data_count, sizeof *route->queue_data, compare_queue_data);
    if (queues_of_new_topic > 0)
        cut_to_template(route, queues_of_new_topic);

    uint64_t publish = list_queues(route, true, NULL), subscribe = list_queues(route, false, NULL);
    if (publish > ROUTE_QUEUES_MAX || subscribe > ROUTE_QUEUES_MAX) {
        rv = error_set(error, ERROR_TOO_LARGE, "route data names more than %u queues", ROUTE_QUEUES_MAX);
        goto close_all;
    }
    route->publish = arena_array(&route->arena, publish, sizeof *route->publish);
    route->publish_views = arena_array(&route->arena, publish, sizeof *route->publish_views);
    route->subscribe = arena_array(&route->arena, subscribe, sizeof *route->subscribe);
    if (route->publish == NULL || route->publish_views == NULL || route->subscribe == NULL)
        goto no_memory;
    route->publish_count = (uint32_t)list_queues(route, true, route->publish);
    for (uint32_t i = 0; i < route->publish_count; i++)
        route->publish_views[i] =
            (struct ledgermq_queue_view){route->publish[i].broker->name, route->publish[i].queue_id};
    route->subscribe_count = (uint32_t)list_queues(route, false, route->subscribe);
    return 0;

no_memory:
    rv = error_set(error, ERROR_NO_MEMORY, "no memory for route data of %zu bytes", text.size);
close_all:
    topic_route_close(route);
    return rv;
}

void topic_route_close(struct topic_route *route)
{
    arena_close(&route->arena);
    topic_route_data_close(&route->data);
    *route = (struct topic_route){0};
}

const struct route_broker *topic_route_broker(const struct topic_route *route, const char *broker_name)
{
    for (uint32_t i = 0; i < route->broker_count; i++)
        if (strcmp(route->brokers[i].name, broker_name) == 0)
            return &route->brokers[i];
    return NULL;
}

const char *route_broker_leader(const struct route_broker *broker)
{
    for (uint32_t i = 0; i < broker->address_count; i++)
        if (broker->addresses[i].id == 0)
            return broker->addresses[i].address;
    return NULL;
}

const char *route_broker_any(const struct route_broker *broker)
{
    const char *leader = route_broker_leader(broker);
    return leader != NULL ? leader : broker->address_count > 0 ? broker->addresses[0].address : NULL;
}

uint32_t route_split_name_servers(const char *list, char servers[ROUTE_NAME_SERVERS_MAX][REMOTING_ADDRESS_MAX],
                                  struct error *error)
{
    uint32_t count = 0;
    const char *at = list == NULL ? "" : list;
    while (*at != '\0') {
        size_t size = strcspn(at, ";");
        const char *start = at, *end = at + size;
        at += size + (at[size] == ';');
        while (start < end && isspace((unsigned char)*start))
            start++;
        while (end > start && isspace((unsigned char)end[-1]))
            end--;
        if (start == end)
            continue;
        size = (size_t)(end - start);
        if (size >= REMOTING_ADDRESS_MAX || memchr(start, ':', size) == NULL || memchr(start, ',', size) != NULL) {
            error_set(error, ERROR_INVALID,
                      "'%.*s' is no name server address: use host:port, and ';' between several", (int)size, start);
            return 0;
        }
        if (count == ROUTE_NAME_SERVERS_MAX) {
            error_set(error, ERROR_INVALID, "more than %u name servers", ROUTE_NAME_SERVERS_MAX);
            return 0;
        }
        memcpy(servers[count], start, size);
        servers[count++][size] = '\0';
    }
    if (count == 0)
        error_set(error, ERROR_INVALID,
                  "no name server: set NAMESRV_ADDR, or name it (host:port, ';' between several)");
    return count;
}
