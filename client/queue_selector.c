#include "client/queue_selector.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "proto/hash.h"

/* SelectMessageQueueByHash and SelectMessageQueueByRandom 4.9.8; as there, the one hash that has no absolute
 * value goes to the first queue. */
size_t ledgermq_select_by_hash(const struct ledgermq_queue_view *queues, size_t count, const char *topic,
                               void *argument)
{
    (void)queues;
    (void)topic;
    int32_t hash = java_string_hash(slice_of_text(argument));
    return hash == INT32_MIN ? 0 : (size_t)abs(hash) % count;
}

size_t ledgermq_select_by_random(const struct ledgermq_queue_view *queues, size_t count, const char *topic,
                                 void *argument)
{
    uint32_t number = 0;
    (void)queues;
    (void)topic;
    (void)argument;
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number)
        number = (uint32_t)uv_hrtime();
    return number % count;
}

static const struct route_queue *pick_other_broker(struct topic_route *route, const char *last_broker)
{
    if (last_broker != NULL) {
        for (uint32_t i = 0; i < route->publish_count; i++) {
            const struct route_queue *queue = &route->publish[route->turn++ % route->publish_count];
            if (strcmp(queue->broker->name, last_broker) != 0)
                return queue;
        }
    }
    return &route->publish[route->turn++ % route->publish_count];
}

const struct route_queue *queue_selector_pick(struct topic_route *route, const char *last_broker,
                                              struct latency_fault_tolerance *tolerance, int64_t now_ms)
{
    if (route->publish_count == 0)
        return NULL;
    if (tolerance == NULL)
        return pick_other_broker(route, last_broker);
    for (uint32_t i = 0; i < route->publish_count; i++) {
        const struct route_queue *queue = &route->publish[route->turn++ % route->publish_count];
        if (latency_fault_tolerance_is_available(tolerance, queue->broker->name, now_ms))
            return queue;
    }
    const char *name = latency_fault_tolerance_pick(tolerance, now_ms);
    if (name != NULL) {
        for (uint32_t i = 0; i < route->publish_count; i++) {
            const struct route_queue *queue = &route->publish[route->turn++ % route->publish_count];
            if (strcmp(queue->broker->name, name) == 0)
                return queue;
        }
        latency_fault_tolerance_remove(tolerance, name); /* it has no queue to write any more */
    }
    return pick_other_broker(route, last_broker);
}
