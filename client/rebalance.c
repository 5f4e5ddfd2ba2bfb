/* Which queues are this member's, and their coming and going.
 *
 * A topic's way: its route gives the queues, a broker the members of the group (38), both sorted lists the strategy,
 * and the strategy the queues that are ours. It is gone every 20 s, when a broker says that members came or went (40),
 * when a route changes, and soon again when something was missing.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/allocate_message_queue.h"
#include "client/consumer.h"
#include "proto/consumer_id_list.h"
#include "proto/request_code.h"
#include "proto/response_code.h"

static void rebalance_topic(struct consumer_topic *topic);

/* --- queues that come and go ---- */

struct assigned *consumer_assigned(const struct consumer *consumer, const struct ledgermq_queue *queue)
{
    struct assigned *assigned;
    char key[QUEUE_KEY_MAX];
    queue_key(queue, key);
    HASH_FIND_STR(consumer->assigned, key, assigned);
    return assigned;
}

static void pause_over(struct remoting_delay *delay)
{
    consume_next((struct assigned *)((char *)delay - offsetof(struct assigned, pause)));
}

static bool assigned_add(struct consumer *consumer, const struct ledgermq_queue *queue)
{
    struct assigned *assigned = calloc(1, sizeof *assigned);
    if (assigned == NULL)
        return false;
    assigned->consumer = consumer;
    assigned->queue = assigned->shown = *queue;
    char topic[NAMESPACED_NAME_MAX];
    namespace_unwrap(consumer->client->name_space, queue->topic, topic);
    snprintf(assigned->shown.topic, sizeof assigned->shown.topic, "%.*s", LEDGERMQ_TOPIC_MAX, topic);
    assigned->next_offset = -1;
    assigned->polled_offset = -1;
    atomic_store(&assigned->generation, ++consumer->last_generation);
    atomic_store(&assigned->last_lock_ms, INT64_MIN / 2);
    assigned->pause.run = pause_over;
    process_queue_init(&assigned->messages);
    queue_key(queue, assigned->key);
    HASH_ADD_STR(consumer->assigned, key, assigned);
    return true;
}

/* Its lock stays ours until its last job has ended, and its offset is stored before the lock is freed: so the next owner
 * goes on where this one stopped. Without locks the next owner does not wait, so neither does the offset. */
void assigned_drop(struct assigned *assigned)
{
    struct consumer *consumer = assigned->consumer;
    HASH_DEL(consumer->assigned, assigned);
    assigned->next_leaving = consumer->leaving;
    consumer->leaving = assigned;
    atomic_store(&assigned->dropped, true);
    assigned_halt(assigned);
    remoting_client_delay_cancel(&assigned->pause);
    assigned->jobs++; /* keeps it until the end of this function */
    if (consumer->kind == CONSUMER_LITE)
        lite_forget(assigned);
    if (consumer->kind != CONSUMER_ORDERLY && !consumer->broadcast) {
        assigned->finished = true;
        consumer_commit_last(assigned);
    }
    assigned->jobs--;
    assigned_left(assigned);
}

void assigned_left(struct assigned *assigned)
{
    struct consumer *consumer = assigned->consumer;
    if (!atomic_load(&assigned->dropped) || assigned->jobs > 0)
        return;
    if (!assigned->finished && !consumer->broadcast) {
        assigned->finished = true;
        assigned->jobs++;
        consumer_commit_last(assigned);
        assigned->jobs--;
        if (assigned->jobs > 0)
            return;
    }
    struct assigned **at = &consumer->leaving;
    while (*at != assigned)
        at = &(*at)->next_leaving;
    *at = assigned->next_leaving;
    process_queue_clear(&assigned->messages);
    free(assigned);
    consumer_ended(consumer);
}

/* A queue that comes back before it has left would be read by two. */
bool consumer_leaving(const struct consumer *consumer, const struct ledgermq_queue *queue)
{
    char key[QUEUE_KEY_MAX];
    queue_key(queue, key);
    for (const struct assigned *assigned = consumer->leaving; assigned != NULL; assigned = assigned->next_leaving)
        if (consumer->kind == CONSUMER_ORDERLY && strcmp(assigned->key, key) == 0)
            return true;
    return false;
}

void consumer_apply(struct consumer *consumer, const char *topic, const struct ledgermq_queue *queues, size_t count)
{
    struct assigned *assigned, *next;
    struct offset_store wanted; /* serves as a set */
    bool changed = false;
    offset_store_init(&wanted);
    for (size_t i = 0; i < count; i++)
        if (!offset_store_update(&wanted, &queues[i], 0, false))
            goto close_set;
    HASH_ITER(hh, consumer->assigned, assigned, next)
    {
        if ((topic != NULL && strcmp(assigned->queue.topic, topic) != 0) ||
            offset_store_find(&wanted, &assigned->queue) != NULL)
            continue;
        assigned_drop(assigned);
        changed = true;
    }
    for (size_t i = 0; i < count; i++) {
        if (consumer_assigned(consumer, &queues[i]) != NULL)
            continue;
        if (consumer_leaving(consumer, &queues[i]))
            consumer_rebalance_soon(consumer, CONSUMER_REBALANCE_SOON_MS);
        else
            changed = assigned_add(consumer, &queues[i]) || changed;
    }
    if (changed && consumer->kind == CONSUMER_ORDERLY && !consumer->broadcast)
        consumer_lock_queues(consumer, false);
    else if (changed)
        for (assigned = consumer->assigned; assigned != NULL; assigned = assigned->hh.next)
            assigned_go(assigned);
close_set:
    offset_store_close(&wanted);
}

/* --- who gets what ---- */

static void rebalance_again(struct consumer_topic *topic)
{
    consumer_rebalance_soon(topic->consumer, CONSUMER_REBALANCE_SOON_MS);
}

static struct ledgermq_queue *queues_of(const struct consumer_topic *topic, const struct topic_route *route)
{
    struct ledgermq_queue *queues = calloc(route->subscribe_count + 1, sizeof *queues);
    for (uint32_t i = 0; queues != NULL && i < route->subscribe_count; i++) {
        snprintf(queues[i].topic, sizeof queues[i].topic, "%s", topic->name);
        snprintf(queues[i].broker_name, sizeof queues[i].broker_name, "%s", route->subscribe[i].broker->name);
        queues[i].queue_id = route->subscribe[i].queue_id;
    }
    return queues;
}

/* members NULL: all queues are ours. */
static void share(struct consumer_topic *topic, const char **members, size_t member_count)
{
    struct consumer *consumer = topic->consumer;
    const struct topic_route *route = route_table_get(consumer->client->routes, topic->name);
    assert(route != NULL);
    size_t count = route->subscribe_count, kept = 0, self = 0;
    struct ledgermq_queue *queues = queues_of(topic, route);
    uint8_t *mine = malloc(count + 1);
    if (queues == NULL || mine == NULL)
        goto again;
    topic->queue_count = route->subscribe_count;
    memset(mine, 1, count);
    if (members != NULL) {
        allocate_sort_members(members, member_count);
        while (self < member_count && strcmp(members[self], consumer->client->id) != 0)
            self++;
        /* A broker that does not know this member (any more) has no say about its queues. */
        if (self == member_count) {
            client_group_forget_greeted(consumer->client);
            client_group_greet(consumer->client);
            goto again;
        }
        if (allocate_message_queue((enum ledgermq_allocate)consumer->options.allocate, queues, count, members,
                                   member_count, self, mine) != 0)
            goto again;
    }
    for (size_t i = 0; i < count; i++)
        if (mine[i])
            queues[kept++] = queues[i];
    consumer_apply(consumer, topic->name, queues, kept);
    free(mine);
    free(queues);
    return;

again:
    rebalance_again(topic);
    free(mine);
    free(queues);
}

static void take_members(struct consumer_topic *topic, struct slice body)
{
    struct consumer_id_list list;
    struct error error;
    if (consumer_id_list_decode(&list, body, &error) != 0) {
        rebalance_again(topic);
        return;
    }
    const char **members = calloc(list.id_count + 1, sizeof *members);
    for (size_t i = 0; members != NULL && i < list.id_count; i++)
        members[i] = list.ids[i].data == NULL ? "" : (const char *)list.ids[i].data;
    if (members != NULL)
        share(topic, members, list.id_count);
    free(members);
    consumer_id_list_close(&list);
}

static void members_known(struct remoting_call *call, int rv, const struct remoting_command *answer,
                          const char *cause)
{
    struct consumer_topic *topic = call->context;
    struct ledgermq_client *client = topic->consumer->client;
    (void)cause;
    topic->asking = false;
    topic->turn += rv != 0 || answer->code != RESPONSE_SUCCESS;
    if (rv != 0) {
        route_table_refresh(client->routes, topic->name, NULL, 0, NULL, NULL);
        rebalance_again(topic);
    } else if (answer->code != RESPONSE_SUCCESS) {
        client_group_forget_greeted(client);
        client_group_greet(client);
        rebalance_again(topic);
    } else {
        take_members(topic, answer->body);
    }
    if (topic->again) {
        topic->again = false;
        rebalance_topic(topic);
    }
}

static int ask_members(struct consumer_topic *topic, const struct topic_route *route)
{
    struct remoting_client *remoting = topic->consumer->client->remoting;
    struct remoting_writer writer;
    const char *address = NULL;
    /* Each broker knows all members, so one that is gone is passed over with the next try. */
    for (uint32_t i = 0; i < route->broker_count && address == NULL; i++)
        address = route_broker_any(&route->brokers[(topic->turn + i) % route->broker_count]);
    if (address == NULL)
        return ERROR_NO_LEADER;
    topic->call.done = members_known;
    topic->call.context = topic;
    int rv = remoting_client_begin(remoting, address, &topic->call, REQUEST_GET_CONSUMER_LIST_BY_GROUP,
                                   topic->consumer->client->call_timeout_ms, &writer);
    if (rv != 0)
        return rv;
    remoting_writer_ext_text(&writer, "consumerGroup", topic->consumer->options.group);
    rv = remoting_client_end(remoting, &topic->call, &writer);
    topic->asking = rv == 0;
    return rv;
}

static void routed(struct route_waiter *waiter, int rv, const char *cause)
{
    struct consumer_topic *topic = (struct consumer_topic *)((char *)waiter - offsetof(struct consumer_topic, waiter));
    (void)cause;
    topic->routing = false;
    if (rv == 0)
        rebalance_topic(topic);
    else
        rebalance_again(topic);
}

static void rebalance_topic(struct consumer_topic *topic)
{
    struct consumer *consumer = topic->consumer;
    if (atomic_load(&consumer->stopping) || topic->routing)
        return;
    if (topic->asking) {
        topic->again = true;
        return;
    }
    const struct topic_route *route = route_table_get(consumer->client->routes, topic->name);
    if (route == NULL) {
        topic->waiter.done = routed;
        topic->routing =
            route_table_refresh(consumer->client->routes, topic->name, NULL, 0, NULL, &topic->waiter) == 0;
        if (!topic->routing)
            rebalance_again(topic);
        return;
    }
    if (consumer->broadcast)
        share(topic, NULL, 0);
    else if (ask_members(topic, route) != 0) {
        topic->turn++;
        route_table_refresh(consumer->client->routes, topic->name, NULL, 0, NULL, NULL);
        rebalance_again(topic);
    }
}

void consumer_topic_cancel(struct consumer_topic *topic)
{
    struct ledgermq_client *client = topic->consumer->client;
    if (topic->asking)
        remoting_client_cancel(client->remoting, &topic->call);
    if (topic->routing)
        route_table_cancel(client->routes, topic->name, &topic->waiter);
    topic->asking = topic->routing = topic->again = false;
}

/* --- when ---- */

void consumer_rebalance(struct consumer *consumer)
{
    if (!consumer->active || atomic_load(&consumer->stopping))
        return;
    remoting_client_delay(consumer->client->remoting, &consumer->rebalance, CONSUMER_REBALANCE_MS);
    for (struct consumer_topic *topic = consumer->topics; topic != NULL; topic = topic->next)
        rebalance_topic(topic);
}

void consumer_rebalance_soon(struct consumer *consumer, int wait_ms)
{
    if (consumer->active && !atomic_load(&consumer->stopping))
        remoting_client_delay_by(consumer->client->remoting, &consumer->rebalance, wait_ms);
}

void consumer_rebalance_run(struct remoting_delay *delay)
{
    consumer_rebalance((struct consumer *)((char *)delay - offsetof(struct consumer, rebalance)));
}

void consumer_route_changed(struct consumer *consumer)
{
    if (atomic_load(&consumer->stopping))
        return;
    for (const struct consumer_topic *topic = consumer->topics; topic != NULL; topic = topic->next) {
        const struct topic_route *route = route_table_get(consumer->client->routes, topic->name);
        if (route != NULL && topic->queue_count > 0 && route->subscribe_count != topic->queue_count)
            consumer_rebalance_soon(consumer, 0);
    }
    /* What is read from a broker that does not lead any more is read from its successor, at once: a parked request would
     * be answered only when its time is up. */
    for (struct assigned *assigned = consumer->assigned; assigned != NULL; assigned = assigned->hh.next) {
        if (assigned->state != ASSIGNED_PULLING || assigned->suggested_id != 0)
            continue;
        const char *address = consumer_broker_address(consumer, &assigned->queue, 0);
        if (address == NULL || strcmp(address, assigned->address) == 0)
            continue;
        assigned_halt(assigned);
        assigned_go_later(assigned, 0);
    }
}
