/* The groups of a client, and the heart-beats that tell brokers of them. */
#include <assert.h>
#include <stdlib.h>
#include <uthash.h>

#include "client/client.h"
#include "proto/heartbeat_data.h"
#include "proto/request_code.h"

#define HEARTBEAT_TIMEOUT_MS 3000
#define UNREGISTER_TIMEOUT_MS 1000

struct client_topic {
    struct client_topic *next;
    char name[];
};

struct client_group {
    struct client_group *next;
    bool consumer;
    unsigned users;
    int64_t version_ms; /* of the subscription */
    uint32_t topic_count;
    struct client_topic *topics;
    char name[];
};

struct client_seen {
    UT_hash_handle hh;
    char address[];
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
        consumer->consume_type = CONSUME_ACTIVELY;
        consumer->message_model = MESSAGE_MODEL_CLUSTERING;
        consumer->consume_from_where = CONSUME_FROM_LAST_OFFSET;
        consumer->subscriptions = arena_array(&arena, group->topic_count, sizeof *consumer->subscriptions);
        if (consumer->subscriptions == NULL)
            break;
        for (struct client_topic *topic = group->topics; topic != NULL; topic = topic->next) {
            struct subscription_data *subscription = &consumer->subscriptions[consumer->subscription_count++];
            if (subscription_data_build(subscription, &arena, slice_of_text(topic->name),
                                        SLICE_LITERAL(SUBSCRIPTION_ALL), SLICE_LITERAL(EXPRESSION_TYPE_TAG),
                                        NULL) != 0)
                consumer->subscription_count--;
            subscription->sub_version = group->version_ms;
        }
    }
    if (arena.failed)
        out->failed = true;
    else
        heartbeat_data_encode(&data, out);
    arena_close(&arena);
}

static void heartbeat_done(struct remoting_call *call, int rv, const struct remoting_command *answer,
                           const char *cause)
{
    (void)rv;
    (void)answer;
    (void)cause;
    free(call);
}

static void heartbeat_send(struct ledgermq_client *client, const char *address)
{
    struct remoting_call *call = calloc(1, sizeof *call);
    struct remoting_writer writer;
    if (call == NULL)
        return;
    call->done = heartbeat_done;
    int rv =
        remoting_client_begin(client->remoting, address, call, REQUEST_HEART_BEAT, HEARTBEAT_TIMEOUT_MS, &writer);
    if (rv == 0) {
        remoting_writer_body(&writer);
        heartbeat_body(client, writer.out);
        rv = remoting_client_end(client->remoting, call, &writer);
    }
    if (rv != 0)
        free(call);
}

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
        seen = malloc(sizeof *seen + size + 1);
        if (seen == NULL)
            return;
        memcpy(seen->address, address, size + 1);
        HASH_ADD_STR(client->seen, address, seen);
        heartbeat_send(client, address);
    }
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
    int rv = uv_sem_init(&task->done, 0);
    assert(rv == 0);
    remoting_client_post(task->client->remoting, &task->task);
    uv_sem_wait(&task->done);
    uv_sem_destroy(&task->done);
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
        free(topic);
    }
    free(group);
}

static void register_run(struct remoting_task *base)
{
    struct group_task *task = (struct group_task *)base;
    struct ledgermq_client *client = task->client;
    struct client_group **at = group_find(client, task->group, task->consumer);
    if (*at == NULL) {
        size_t size = strlen(task->group), count = 0;
        for (struct client_group *group = client->groups; group != NULL; group = group->next)
            count++;
        struct client_group *group = count < CLIENT_GROUPS_MAX ? calloc(1, sizeof *group + size + 1) : NULL;
        task->rv = count < CLIENT_GROUPS_MAX ? ERROR_NO_MEMORY : ERROR_BUSY;
        if (group == NULL) {
            uv_sem_post(&task->done);
            return;
        }
        memcpy(group->name, task->group, size + 1);
        group->consumer = task->consumer;
        group->version_ms = client_clock_ms();
        *at = group;
    }
    (*at)->users++;
    task->rv = 0;
    if (!client->heartbeat.armed)
        remoting_client_delay(client->remoting, &client->heartbeat, client->heartbeat_ms);
    client_group_forget_greeted(client);
    client_group_greet(client);
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

static void add_topic_run(struct remoting_task *base)
{
    struct group_task *task = (struct group_task *)base;
    struct client_group *group = *group_find(task->client, task->group, true);
    struct client_topic *topic = group == NULL ? NULL : group->topics;
    while (topic != NULL && strcmp(topic->name, task->topic) != 0)
        topic = topic->next;
    size_t size = strlen(task->topic);
    if (group != NULL && topic == NULL && group->topic_count < CLIENT_GROUP_TOPICS_MAX &&
        (topic = malloc(sizeof *topic + size + 1)) != NULL) {
        memcpy(topic->name, task->topic, size + 1);
        topic->next = group->topics;
        group->topics = topic;
        group->topic_count++;
        group->version_ms = client_clock_ms();
        client_group_forget_greeted(task->client);
        client_group_greet(task->client);
    }
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
