/* The groups of a client, and the heart-beats that tell brokers of them. */
#include <stdio.h>
#include <stdlib.h>
#include <uthash.h>

#include "client/client.h"
#include "proto/request_code.h"

#define HEARTBEAT_TIMEOUT_MS 3000
#define UNREGISTER_TIMEOUT_MS 1000

struct client_topic {
    struct client_topic *next;
    const char *expression_type;
    char *expression;
    int64_t version_ms;
    char name[];
};

struct client_group {
    struct client_group *next;
    bool consumer;
    bool exclusive;
    struct client_group_consumer data; /* of a consumer */
    unsigned users;
    uint32_t topic_count;
    struct client_topic *topics;
    char name[];
};

/* pending: a heart-beat is on its way. */
struct client_seen {
    UT_hash_handle hh;
    bool pending;
    char address[];
};

struct heartbeat_call {
    struct remoting_call call;
    struct ledgermq_client *client;
    char address[REMOTING_ADDRESS_MAX];
};

static void heartbeat_body(struct ledgermq_client *client, struct buffer *out)
{
    struct arena arena;
    struct heartbeat_data data = {.client_id = slice_of_text(client->id)};
    size_t groups = 0;
    arena_init(&arena, 0);
    for (struct client_group *group = client->groups; group != NULL; group = group->next)
        groups++;
    data.consumers = arena_array(&arena, groups, sizeof *data.consumers);
    data.producers = arena_array(&arena, groups, sizeof *data.producers);
    for (struct client_group *group = client->groups; group != NULL && !arena.failed; group = group->next) {
        if (!group->consumer) {
            data.producers[data.producer_count++].group_name = slice_of_text(group->name);
            continue;
        }
        struct consumer_data *consumer = &data.consumers[data.consumer_count++];
        consumer->group_name = slice_of_text(group->name);
        consumer->consume_type = group->data.consume_type;
        consumer->message_model = group->data.message_model;
        consumer->consume_from_where = group->data.consume_from_where;
        consumer->subscriptions = arena_array(&arena, group->topic_count, sizeof *consumer->subscriptions);
        if (consumer->subscriptions == NULL)
            break;
        for (struct client_topic *topic = group->topics; topic != NULL; topic = topic->next) {
            struct subscription_data *subscription = &consumer->subscriptions[consumer->subscription_count++];
            if (subscription_data_build(subscription, &arena, slice_of_text(topic->name),
                                        slice_of_text(topic->expression), slice_of_text(topic->expression_type),
                                        NULL) != 0)
                consumer->subscription_count--;
            else
                subscription->sub_version = topic->version_ms;
        }
    }
    if (arena.failed)
        out->failed = true;
    else
        heartbeat_data_encode(&data, out);
    arena_close(&arena);
}

static void heartbeat_done(struct remoting_call *base, int rv, const struct remoting_command *answer,
                           const char *cause)
{
    struct heartbeat_call *call = (struct heartbeat_call *)base;
    struct client_seen *seen;
    (void)rv;
    (void)answer;
    (void)cause;
    HASH_FIND_STR(call->client->seen, call->address, seen);
    if (seen != NULL)
        seen->pending = false;
    free(call);
}

static void heartbeat_send(struct ledgermq_client *client, struct client_seen *seen)
{
    struct heartbeat_call *call = calloc(1, sizeof *call);
    struct remoting_writer writer;
    if (call == NULL)
        return;
    call->call.done = heartbeat_done;
    call->client = client;
    snprintf(call->address, sizeof call->address, "%s", seen->address);
    int rv = remoting_client_begin(client->remoting, seen->address, &call->call, REQUEST_HEART_BEAT,
                                   HEARTBEAT_TIMEOUT_MS, &writer);
    if (rv == 0) {
        remoting_writer_body(&writer);
        heartbeat_body(client, writer.out);
        rv = remoting_client_end(client->remoting, &call->call, &writer);
    }
    if (rv != 0)
        free(call);
    else
        seen->pending = true;
}

/* A slave needs to know of consumers, which may read from it, and of nobody else
 * (MQClientInstance#sendHeartbeatToAllBroker). */
static void heartbeat_visit(void *context, const struct route_broker *broker)
{
    struct ledgermq_client *client = context;
    bool consumes = false;
    for (struct client_group *group = client->groups; group != NULL; group = group->next)
        consumes = consumes || group->consumer;
    for (uint32_t i = 0; i < broker->address_count; i++) {
        const char *address = broker->addresses[i].address;
        struct client_seen *seen;
        if (broker->addresses[i].id != 0 && !consumes)
            continue;
        HASH_FIND_STR(client->seen, address, seen);
        if (seen != NULL)
            continue;
        size_t size = strlen(address);
        seen = calloc(1, sizeof *seen + size + 1);
        if (seen == NULL)
            return;
        memcpy(seen->address, address, size + 1);
        HASH_ADD_STR(client->seen, address, seen);
        heartbeat_send(client, seen);
    }
}

/* A broker forgets its clients when a connection breaks or it starts anew. */
void client_group_greet_again(void *context, const char *address)
{
    struct ledgermq_client *client = context;
    struct client_seen *seen;
    HASH_FIND_STR(client->seen, address, seen);
    if (seen != NULL && !seen->pending && client->groups != NULL && !client->stopping)
        heartbeat_send(client, seen);
}

void client_group_greet(void *context)
{
    struct ledgermq_client *client = context;
    if (client->groups != NULL && !client->stopping)
        route_table_each_broker(client->routes, heartbeat_visit, client);
}

void client_group_forget_greeted(struct ledgermq_client *client)
{
    struct client_seen *seen, *next;
    HASH_ITER(hh, client->seen, seen, next)
    {
        HASH_DEL(client->seen, seen);
        free(seen);
    }
}

void client_group_heartbeat(struct remoting_delay *delay)
{
    struct ledgermq_client *client =
        (struct ledgermq_client *)((char *)delay - offsetof(struct ledgermq_client, heartbeat));
    client_group_forget_greeted(client);
    client_group_greet(client);
    remoting_client_delay(client->remoting, &client->heartbeat, client->heartbeat_ms);
}

/* --- groups ---- */

struct group_task {
    struct remoting_task task;
    struct ledgermq_client *client;
    const char *group;
    const char *topic;
    bool consumer;
    int rv;
    uint32_t pending; /* calls of an unregistration */
    uv_sem_t done;
};

struct group_call {
    struct remoting_call call;
    struct group_task *task;
};

static void group_task_wait(struct group_task *task, void (*run)(struct remoting_task *))
{
    task->task.run = run;
    remoting_client_post_and_wait(task->client->remoting, &task->task, &task->done);
}

static struct client_group **group_find(struct ledgermq_client *client, const char *name, bool consumer)
{
    struct client_group **at = &client->groups;
    while (*at != NULL && ((*at)->consumer != consumer || strcmp((*at)->name, name) != 0))
        at = &(*at)->next;
    return at;
}

static void group_free(struct client_group *group)
{
    while (group->topics != NULL) {
        struct client_topic *topic = group->topics;
        group->topics = topic->next;
        free(topic->expression);
        free(topic);
    }
    free(group);
}

/* To all brokers, since what they know of this client is not true any more. */
static void announce(struct ledgermq_client *client)
{
    if (!client->heartbeat.armed)
        remoting_client_delay(client->remoting, &client->heartbeat, client->heartbeat_ms);
    client_group_forget_greeted(client);
    client_group_greet(client);
}

static int group_join(struct ledgermq_client *client, const char *name, const struct client_group_consumer *consumer,
                      bool exclusive)
{
    struct client_group **at = group_find(client, name, consumer != NULL);
    if (*at != NULL && (exclusive || (*at)->exclusive))
        return ERROR_EXISTS;
    if (*at == NULL) {
        size_t size = strlen(name), count = 0;
        for (struct client_group *group = client->groups; group != NULL; group = group->next)
            count++;
        if (count >= CLIENT_GROUPS_MAX)
            return ERROR_BUSY;
        struct client_group *group = calloc(1, sizeof *group + size + 1);
        if (group == NULL)
            return ERROR_NO_MEMORY;
        memcpy(group->name, name, size + 1);
        group->consumer = consumer != NULL;
        group->exclusive = exclusive;
        if (consumer != NULL)
            group->data = *consumer;
        *at = group;
    }
    (*at)->users++;
    return 0;
}

int client_group_join(struct ledgermq_client *client, const char *group, const struct client_group_consumer *consumer)
{
    return group_join(client, group, consumer, true);
}

static void register_run(struct remoting_task *base)
{
    static const struct client_group_consumer reader = {CONSUME_ACTIVELY, MESSAGE_MODEL_CLUSTERING,
                                                        CONSUME_FROM_LAST_OFFSET};
    struct group_task *task = (struct group_task *)base;
    task->rv = group_join(task->client, task->group, task->consumer ? &reader : NULL, false);
    if (task->rv == 0)
        announce(task->client);
    uv_sem_post(&task->done);
}

int client_group_register(struct ledgermq_client *client, const char *group, bool consumer)
{
    struct group_task task = {.client = client, .group = group, .consumer = consumer};
    group_task_wait(&task, register_run);
    return task.rv;
}

static void unregister_done(struct remoting_call *call, int rv, const struct remoting_command *answer,
                            const char *cause)
{
    struct group_call *group_call = (struct group_call *)call;
    struct group_task *task = group_call->task;
    (void)rv;
    (void)answer;
    (void)cause;
    free(group_call);
    if (--task->pending == 0)
        uv_sem_post(&task->done);
}

static void unregister_send(struct group_task *task, const char *address)
{
    struct group_call *call = calloc(1, sizeof *call);
    struct remoting_writer writer;
    if (call == NULL)
        return;
    call->call.done = unregister_done;
    call->task = task;
    int rv = remoting_client_begin(task->client->remoting, address, &call->call, REQUEST_UNREGISTER_CLIENT,
                                   UNREGISTER_TIMEOUT_MS, &writer);
    if (rv == 0) {
        remoting_writer_ext_text(&writer, "clientID", task->client->id);
        remoting_writer_ext_text(&writer, task->consumer ? "consumerGroup" : "producerGroup", task->group);
        rv = remoting_client_end(task->client->remoting, &call->call, &writer);
    }
    if (rv != 0)
        free(call);
    else
        task->pending++;
}

static void unregister_run(struct remoting_task *base)
{
    struct group_task *task = (struct group_task *)base;
    struct client_group **at = group_find(task->client, task->group, task->consumer);
    struct client_group *group = *at;
    task->pending = 1; /* keeps answers that come at once from ending the wait */
    if (group != NULL && --group->users == 0) {
        *at = group->next;
        group_free(group);
        for (struct client_seen *seen = task->client->seen; seen != NULL; seen = seen->hh.next)
            if (remoting_client_is_connected(task->client->remoting, seen->address))
                unregister_send(task, seen->address);
    }
    if (--task->pending == 0)
        uv_sem_post(&task->done);
}

void client_group_unregister(struct ledgermq_client *client, const char *group, bool consumer)
{
    struct group_task task = {.client = client, .group = group, .consumer = consumer};
    group_task_wait(&task, unregister_run);
}

static struct client_topic **topic_find(struct client_group *group, const char *name)
{
    struct client_topic **at = &group->topics;
    while (*at != NULL && strcmp((*at)->name, name) != 0)
        at = &(*at)->next;
    return at;
}

int client_group_subscribe(struct ledgermq_client *client, const char *name, const char *topic_name,
                           const char *expression, const char *expression_type, int64_t version_ms)
{
    struct client_group *group = *group_find(client, name, true);
    if (group == NULL)
        return ERROR_NOT_FOUND;
    struct client_topic **at = topic_find(group, topic_name), *topic = *at;
    char *copy = strdup(expression);
    size_t size = strlen(topic_name);
    if (copy == NULL)
        return ERROR_NO_MEMORY;
    if (topic == NULL) {
        topic = group->topic_count < CLIENT_GROUP_TOPICS_MAX ? calloc(1, sizeof *topic + size + 1) : NULL;
        if (topic == NULL) {
            free(copy);
            return group->topic_count < CLIENT_GROUP_TOPICS_MAX ? ERROR_NO_MEMORY : ERROR_BUSY;
        }
        memcpy(topic->name, topic_name, size + 1);
        *at = topic;
        group->topic_count++;
    }
    free(topic->expression);
    topic->expression = copy;
    topic->expression_type = expression_type;
    topic->version_ms = version_ms;
    announce(client);
    return 0;
}

void client_group_unsubscribe(struct ledgermq_client *client, const char *name, const char *topic_name)
{
    struct client_group *group = *group_find(client, name, true);
    struct client_topic **at = group == NULL ? NULL : topic_find(group, topic_name), *topic = at == NULL ? NULL : *at;
    if (topic == NULL)
        return;
    *at = topic->next;
    group->topic_count--;
    free(topic->expression);
    free(topic);
    announce(client);
}

static void add_topic_run(struct remoting_task *base)
{
    struct group_task *task = (struct group_task *)base;
    struct client_group *group = *group_find(task->client, task->group, true);
    if (group != NULL && *topic_find(group, task->topic) == NULL)
        client_group_subscribe(task->client, task->group, task->topic, SUBSCRIPTION_ALL, EXPRESSION_TYPE_TAG,
                               client_clock_ms());
    uv_sem_post(&task->done);
}

void client_group_add_topic(struct ledgermq_client *client, const char *group, const char *topic)
{
    struct group_task task = {.client = client, .group = group, .topic = topic, .consumer = true};
    group_task_wait(&task, add_topic_run);
}

void client_groups_free(struct ledgermq_client *client)
{
    client_group_forget_greeted(client);
    while (client->groups != NULL) {
        struct client_group *group = client->groups;
        client->groups = group->next;
        group_free(group);
    }
}
