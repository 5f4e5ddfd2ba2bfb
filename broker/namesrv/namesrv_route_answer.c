/* What a name server answers about routes, as JSON in RocketMQ's order of members (TopicRouteData, ClusterInfo, TopicList).
 *
 * A broker may be reachable at several addresses, one per kind of listener ("NAME:HOST:PORT,..." in its registration); the port that was asked
 * says which kind is wanted. An address without that kind is shown as it is: it is the better guess.
 */
#include "broker/namesrv/namesrv_route_info_manager.h"

#include "proto/arena.h"
#include "proto/cluster_info.h"
#include "proto/topic_list.h"
#include "proto/topic_route_data.h"

/* host:port of a listener in "NAME:HOST:PORT,...", data NULL when it is not there. HOST may be an IPv6 address in brackets. */
static struct slice listener_address(const char *listeners, const char *name)
{
    size_t name_size = strlen(name);
    for (const char *at = listeners; at != NULL && *at != 0;) {
        const char *end = strchrnul(at, ',');
        while (at < end && *at == ' ')
            at++;
        if ((size_t)(end - at) > name_size + 1 && memcmp(at, name, name_size) == 0 && at[name_size] == ':')
            return slice_of(at + name_size + 1, (size_t)(end - at) - name_size - 1);
        at = *end == 0 ? NULL : end + 1;
    }
    return (struct slice){0};
}

static struct slice address_for(const struct route_address *address, const char *listener)
{
    struct slice wanted = {0};
    if (listener != NULL && address->listeners != NULL)
        wanted = listener_address(address->listeners, listener);
    return wanted.data != NULL ? wanted : slice_of_text(address->address);
}

/* False when memory is short. */
static bool fill_broker(struct arena *arena, const struct route_broker *broker, const char *listener, struct broker_data *data)
{
    *data = (struct broker_data){.cluster = slice_of_text(broker->cluster), .broker_name = slice_of_text(broker->name)};
    data->addresses = arena_array(arena, broker->address_count, sizeof data->addresses[0]);
    if (data->addresses == NULL)
        return false;
    data->address_count = broker->address_count;
    for (uint32_t i = 0; i < broker->address_count; i++)
        data->addresses[i] = (struct broker_address){broker->addresses[i].id, address_for(&broker->addresses[i], listener)};
    return true;
}

bool route_info_topic_route(const struct route_info_manager *manager, struct slice topic_name, const char *listener, bool quoted_ids,
                            struct slice order_topic_conf, struct buffer *out)
{
    /* Every broker name that is known has an address, and every topic a broker name: a topic that is known has a route. */
    const struct route_topic *topic = route_info_find_topic(manager, topic_name);
    if (topic == NULL)
        return false;
    struct arena arena;
    arena_init(&arena, 0);
    struct topic_route_data route = {.order_topic_conf = order_topic_conf};
    route.brokers = arena_array(&arena, topic->queue_count, sizeof route.brokers[0]);
    route.queues = arena_array(&arena, topic->queue_count, sizeof route.queues[0]);
    for (uint32_t i = 0; i < topic->queue_count && !arena.failed; i++) {
        const struct route_queue *queue = &topic->queues[i];
        if (!fill_broker(&arena, queue->broker, listener, &route.brokers[i]))
            break;
        route.queues[i] = (struct queue_data){
            .broker_name = slice_of_text(queue->broker->name),
            .read_queue_nums = queue->read_queue_nums,
            .write_queue_nums = queue->write_queue_nums,
            .perm = route_queue_perm(queue),
            .topic_sys_flag = queue->sys_flag,
        };
        route.broker_count = route.queue_count = i + 1;
    }
    if (arena.failed)
        out->failed = true;
    else
        topic_route_data_encode(&route, quoted_ids, out);
    arena_close(&arena);
    return true;
}

/* Adds a broker to its cluster; clusters have no table of their own, there are a handful of broker names. */
static bool add_to_cluster(struct arena *arena, struct cluster_info *info, const struct route_broker *broker, size_t broker_names)
{
    size_t i = 0;
    while (i < info->cluster_count && !slice_equal_text(info->clusters[i].name, broker->cluster))
        i++;
    if (i == info->cluster_count) {
        info->clusters[i].name = slice_of_text(broker->cluster);
        info->clusters[i].broker_names = arena_array(arena, broker_names, sizeof info->clusters[i].broker_names[0]);
        if (info->clusters[i].broker_names == NULL)
            return false;
        info->cluster_count++;
    }
    info->clusters[i].broker_names[info->clusters[i].broker_name_count++] = slice_of_text(broker->name);
    return true;
}

static bool fill_cluster(struct arena *arena, const struct route_info_manager *manager, const char *listener, struct cluster_info *info)
{
    size_t count = HASH_COUNT(manager->brokers);
    info->brokers = arena_array(arena, count, sizeof info->brokers[0]);
    info->clusters = arena_array(arena, count, sizeof info->clusters[0]);
    if (arena->failed)
        return false;
    for (const struct route_broker *broker = manager->brokers; broker != NULL; broker = broker->hh.next) {
        if (!fill_broker(arena, broker, listener, &info->brokers[info->broker_count++]) || !add_to_cluster(arena, info, broker, count))
            return false;
    }
    return true;
}

/* Java 4.9 writes bare integer keys here whoever asks; everyone reads quoted ones, and some tools read nothing else. */
void route_info_cluster(const struct route_info_manager *manager, const char *listener, struct buffer *out)
{
    struct arena arena;
    arena_init(&arena, 0);
    struct cluster_info info = {0};
    if (fill_cluster(&arena, manager, listener, &info))
        cluster_info_encode(&info, true, out);
    else
        out->failed = true;
    arena_close(&arena);
}

static bool topic_passes(const struct route_topic *topic, struct slice cluster, int32_t flag_mask, int32_t flag_value)
{
    for (uint32_t i = 0; i < topic->queue_count; i++) {
        const struct route_queue *queue = &topic->queues[i];
        if ((queue->sys_flag & flag_mask) == flag_value && (cluster.data == NULL || slice_equal_text(cluster, queue->broker->cluster)))
            return true;
    }
    return false;
}

void route_info_topics(const struct route_info_manager *manager, struct slice cluster, int32_t flag_mask, int32_t flag_value, struct buffer *out)
{
    topic_list_begin(out, (struct slice){0});
    for (const struct route_topic *topic = manager->topics; topic != NULL; topic = topic->hh.next) {
        if (topic_passes(topic, cluster, flag_mask, flag_value))
            topic_list_add(out, slice_of_text(topic->name));
    }
    topic_list_end(out);
}

static bool first_of_cluster(const struct route_info_manager *manager, const struct route_broker *broker)
{
    for (const struct route_broker *other = manager->brokers; other != broker; other = other->hh.next) {
        if (strcmp(other->cluster, broker->cluster) == 0)
            return false;
    }
    return true;
}

void route_info_system_topics(const struct route_info_manager *manager, const char *listener, struct buffer *out)
{
    struct slice any = {0};
    if (manager->brokers != NULL)
        any = address_for(&manager->brokers->addresses[0], listener);
    topic_list_begin(out, any);
    for (const struct route_broker *broker = manager->brokers; broker != NULL; broker = broker->hh.next) {
        if (first_of_cluster(manager, broker))
            topic_list_add(out, slice_of_text(broker->cluster));
        topic_list_add(out, slice_of_text(broker->name));
    }
    topic_list_end(out);
}
