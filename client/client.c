#include "client/client.h"

#include <arpa/inet.h>
#include <assert.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
#include <uthash.h>

#include "client/producer.h"
#include "client/pull_consumer.h"
#include "proto/heartbeat_data.h"
#include "proto/request_code.h"
#include "proto/response_code.h"

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

/* --- errors ---- */

static const struct {
    int code;
    const char *text;
} code_texts[] = {
    [LEDGERMQ_OK] = {LEDGERMQ_OK, "success"},
    [LEDGERMQ_INVALID] = {LEDGERMQ_INVALID, "invalid argument"},
    [LEDGERMQ_NO_MEMORY] = {LEDGERMQ_NO_MEMORY, "out of memory"},
    [LEDGERMQ_NO_ROUTE] = {LEDGERMQ_NO_ROUTE, "no route to the topic"},
    [LEDGERMQ_CONNECTION] = {LEDGERMQ_CONNECTION, "connection failed"},
    [LEDGERMQ_TIMEOUT] = {LEDGERMQ_TIMEOUT, "timed out"},
    [LEDGERMQ_REFUSED] = {LEDGERMQ_REFUSED, "refused by the broker"},
    [LEDGERMQ_MALFORMED] = {LEDGERMQ_MALFORMED, "malformed answer"},
    [LEDGERMQ_BUSY] = {LEDGERMQ_BUSY, "limit reached"},
    [LEDGERMQ_STOPPED] = {LEDGERMQ_STOPPED, "stopped"},
    [LEDGERMQ_NOT_FOUND] = {LEDGERMQ_NOT_FOUND, "not found"},
};

const char *ledgermq_code_text(int code)
{
    if (code < 0 || (size_t)code >= sizeof code_texts / sizeof code_texts[0])
        return "unknown code";
    return code_texts[code].text;
}

const char *ledgermq_version(void)
{
    return "0.1.0";
}

static int public_code(int rv)
{
    switch (rv) {
    case ERROR_OK:
        return LEDGERMQ_OK;
    case ERROR_NO_MEMORY:
        return LEDGERMQ_NO_MEMORY;
    case ERROR_CONNECTION:
        return LEDGERMQ_CONNECTION;
    case ERROR_TIMEOUT:
        return LEDGERMQ_TIMEOUT;
    case ERROR_BUSY:
        return LEDGERMQ_BUSY;
    case ERROR_STOPPED:
        return LEDGERMQ_STOPPED;
    case ERROR_NOT_FOUND:
        return LEDGERMQ_NOT_FOUND;
    case ERROR_NO_LEADER:
        return LEDGERMQ_NO_ROUTE;
    case ERROR_MALFORMED:
    case ERROR_MISSING:
    case ERROR_DAMAGED:
        return LEDGERMQ_MALFORMED;
    case ERROR_NOT_LEADER:
        return LEDGERMQ_REFUSED;
    default:
        return LEDGERMQ_INVALID;
    }
}

int client_error_text(struct ledgermq_error *out, int code, int response_code, const char *format, ...)
{
    if (out == NULL)
        return code;
    va_list arguments;
    out->code = code;
    out->response_code = response_code;
    va_start(arguments, format);
    vsnprintf(out->message, sizeof out->message, format, arguments);
    va_end(arguments);
    return code;
}

int client_error(struct ledgermq_error *out, int rv, int response_code, const struct error *error)
{
    return client_error_text(out, public_code(rv), response_code, "%s",
                             error->message[0] != '\0' ? error->message : error_text(rv));
}

int64_t client_clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* --- waiting for the loop ---- */

/* A question to the loop thread whose answer the caller waits for. */
struct question {
    struct remoting_task task;
    struct route_waiter waiter;
    struct ledgermq_client *client;
    const char *topic, *create_key, *avoid;
    int queues_of_new_topic;
    int (*use)(struct question *question, const struct topic_route *route, struct error *error);
    void *context;
    int rv;
    struct error error;
    uv_sem_t done;
};

static void question_use(struct question *question)
{
    const struct topic_route *route = route_table_get(question->client->routes, question->topic);
    assert(route != NULL);
    question->rv = question->use(question, route, &question->error);
    uv_sem_post(&question->done);
}

static void question_routed(struct route_waiter *waiter, int rv, const char *cause)
{
    struct question *question = (struct question *)((char *)waiter - offsetof(struct question, waiter));
    if (rv == 0) {
        question_use(question);
        return;
    }
    /* An old answer is better than none when the name servers are away. */
    if (rv != ERROR_NOT_FOUND && question->avoid == NULL &&
        route_table_get(question->client->routes, question->topic) != NULL) {
        question_use(question);
        return;
    }
    question->rv = rv;
    error_set(&question->error, rv, "topic %s: %s", question->topic, cause);
    uv_sem_post(&question->done);
}

static void question_run(struct remoting_task *task)
{
    struct question *question = (struct question *)task;
    struct route_table *routes = question->client->routes;
    if (question->avoid == NULL && route_table_get(routes, question->topic) != NULL) {
        question_use(question);
        return;
    }
    question->waiter.done = question_routed;
    int rv = route_table_refresh(routes, question->topic, question->create_key, question->queues_of_new_topic,
                                 question->avoid, &question->waiter);
    if (rv != 0) {
        question->rv = rv;
        error_set(&question->error, rv, "topic %s: %s", question->topic, error_text(rv));
        uv_sem_post(&question->done);
    }
}

static int question_ask(struct question *question, struct error *error)
{
    question->task.run = question_run;
    if (uv_sem_init(&question->done, 0) != 0)
        return error_set(error, ERROR_NO_MEMORY, "out of memory");
    remoting_client_post(question->client->remoting, &question->task);
    uv_sem_wait(&question->done);
    uv_sem_destroy(&question->done);
    if (question->rv != 0 && error != NULL)
        *error = question->error;
    return question->rv;
}

struct broker_question {
    const char *broker_name;
    char *address;
};

static int use_broker(struct question *question, const struct topic_route *route, struct error *error)
{
    struct broker_question *asked = question->context;
    const struct route_broker *broker = topic_route_broker(route, asked->broker_name);
    const char *address = broker == NULL ? NULL : route_broker_any(broker);
    if (address == NULL)
        return error_set(error, ERROR_NO_LEADER, "topic %s has no live broker named %s: see mqadmin topicRoute -t %s",
                         question->topic, asked->broker_name, question->topic);
    snprintf(asked->address, REMOTING_ADDRESS_MAX, "%s", address);
    return 0;
}

int client_broker_address(struct ledgermq_client *client, const char *topic, const char *broker_name,
                          const char *avoid, char address[REMOTING_ADDRESS_MAX], struct error *error)
{
    struct broker_question asked = {broker_name, address};
    struct question question = {
        .client = client, .topic = topic, .avoid = avoid, .use = use_broker, .context = &asked};
    return question_ask(&question, error);
}

struct queues_question {
    bool publish;
    struct ledgermq_queue **queues;
    size_t *count;
};

static int use_queues(struct question *question, const struct topic_route *route, struct error *error)
{
    struct queues_question *asked = question->context;
    uint32_t count = asked->publish ? route->publish_count : route->subscribe_count;
    const struct route_queue *list = asked->publish ? route->publish : route->subscribe;
    struct ledgermq_queue *queues = calloc(count == 0 ? 1 : count, sizeof *queues);
    if (queues == NULL)
        return error_set(error, ERROR_NO_MEMORY, "no memory for %u queues", count);
    for (uint32_t i = 0; i < count; i++) {
        snprintf(queues[i].topic, sizeof queues[i].topic, "%s", question->topic);
        snprintf(queues[i].broker_name, sizeof queues[i].broker_name, "%s", list[i].broker->name);
        queues[i].queue_id = list[i].queue_id;
    }
    *asked->queues = queues;
    *asked->count = count;
    return 0;
}

int client_queues(struct ledgermq_client *client, const char *topic, bool publish, const char *create_key,
                  int queues_of_new_topic, struct ledgermq_queue **queues, size_t *count, struct error *error)
{
    struct queues_question asked = {publish, queues, count};
    struct question question = {.client = client,
                                .topic = topic,
                                .create_key = create_key,
                                .queues_of_new_topic = queues_of_new_topic,
                                .use = use_queues,
                                .context = &asked};
    return question_ask(&question, error);
}

struct brokers_question {
    char (**addresses)[REMOTING_ADDRESS_MAX];
    size_t *count;
};

static int use_brokers(struct question *question, const struct topic_route *route, struct error *error)
{
    struct brokers_question *asked = question->context;
    char(*addresses)[REMOTING_ADDRESS_MAX] = calloc(route->broker_count + 1, sizeof *addresses);
    size_t count = 0;
    if (addresses == NULL)
        return error_set(error, ERROR_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < route->broker_count; i++) {
        const char *address = route_broker_any(&route->brokers[i]);
        if (address != NULL)
            snprintf(addresses[count++], sizeof addresses[0], "%s", address);
    }
    *asked->addresses = addresses;
    *asked->count = count;
    return 0;
}

int client_topic_brokers(struct ledgermq_client *client, const char *topic, char (**addresses)[REMOTING_ADDRESS_MAX],
                         size_t *count, struct error *error)
{
    struct brokers_question asked = {addresses, count};
    struct question question = {.client = client, .topic = topic, .use = use_brokers, .context = &asked};
    return question_ask(&question, error);
}

/* --- heart-beats ---- */

static struct slice text_slice(const char *text)
{
    return slice_of_text(text);
}

static void heartbeat_body(struct ledgermq_client *client, struct buffer *out)
{
    struct arena arena;
    struct heartbeat_data data = {.client_id = text_slice(client->id)};
    size_t groups = 0;
    arena_init(&arena, 0);
    for (struct client_group *group = client->groups; group != NULL; group = group->next)
        groups++;
    data.consumers = arena_array(&arena, groups, sizeof *data.consumers);
    data.producers = arena_array(&arena, groups, sizeof *data.producers);
    for (struct client_group *group = client->groups; group != NULL && !arena.failed; group = group->next) {
        if (!group->consumer) {
            data.producers[data.producer_count++].group_name = text_slice(group->name);
            continue;
        }
        struct consumer_data *consumer = &data.consumers[data.consumer_count++];
        consumer->group_name = text_slice(group->name);
        consumer->consume_type = CONSUME_ACTIVELY;
        consumer->message_model = MESSAGE_MODEL_CLUSTERING;
        consumer->consume_from_where = CONSUME_FROM_LAST_OFFSET;
        consumer->subscriptions = arena_array(&arena, group->topic_count, sizeof *consumer->subscriptions);
        if (consumer->subscriptions == NULL)
            break;
        for (struct client_topic *topic = group->topics; topic != NULL; topic = topic->next) {
            struct subscription_data *subscription = &consumer->subscriptions[consumer->subscription_count++];
            if (subscription_data_build(subscription, &arena, text_slice(topic->name),
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

static void heartbeat_new_brokers(void *context)
{
    struct ledgermq_client *client = context;
    if (client->groups != NULL && !client->stopping)
        route_table_each_broker(client->routes, heartbeat_visit, client);
}

static void forget_seen(struct ledgermq_client *client)
{
    struct client_seen *seen, *next;
    HASH_ITER(hh, client->seen, seen, next)
    {
        HASH_DEL(client->seen, seen);
        free(seen);
    }
}

static void heartbeat_run(struct remoting_delay *delay)
{
    struct ledgermq_client *client =
        (struct ledgermq_client *)((char *)delay - offsetof(struct ledgermq_client, heartbeat));
    forget_seen(client);
    heartbeat_new_brokers(client);
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
    forget_seen(client);
    heartbeat_new_brokers(client);
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
        forget_seen(task->client);
        heartbeat_new_brokers(task->client);
    }
    uv_sem_post(&task->done);
}

void client_group_add_topic(struct ledgermq_client *client, const char *group, const char *topic)
{
    struct group_task task = {.client = client, .group = group, .topic = topic, .consumer = true};
    group_task_wait(&task, add_topic_run);
}

/* --- the instance ---- */

/* The first address of an interface that is up, IPv4 before IPv6, loopback only when there is nothing else. Returns
 * its size. */
static size_t local_address(uint8_t out[16])
{
    static const uint8_t loopback[4] = {127, 0, 0, 1};
    struct ifaddrs *all;
    size_t size = 4;
    memcpy(out, loopback, 4);
    if (getifaddrs(&all) != 0)
        return size;
    for (const struct ifaddrs *at = all; at != NULL; at = at->ifa_next) {
        if (at->ifa_addr == NULL || !(at->ifa_flags & IFF_UP) || at->ifa_flags & IFF_LOOPBACK)
            continue;
        if (at->ifa_addr->sa_family == AF_INET) {
            size = 4;
            memcpy(out, &((const struct sockaddr_in *)(const void *)at->ifa_addr)->sin_addr, 4);
            break;
        }
        const struct sockaddr_in6 *v6 = (const void *)at->ifa_addr;
        if (at->ifa_addr->sa_family == AF_INET6 && size == 4 && !IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) {
            size = 16;
            memcpy(out, &v6->sin6_addr, 16);
        }
    }
    freeifaddrs(all);
    return size;
}

static void make_ids(struct ledgermq_client *client, const char *instance_name)
{
    uint8_t address[16];
    char ip[INET6_ADDRSTRLEN], instance[64];
    uint32_t number = 0;
    size_t size = local_address(address);
    inet_ntop(size == 4 ? AF_INET : AF_INET6, address, ip, sizeof ip);
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number)
        number = (uint32_t)uv_hrtime();
    message_client_id_setter_init(&client->ids, address, size, (int)getpid(), number);
    if (instance_name == NULL) {
        snprintf(instance, sizeof instance, "%d#%llu", (int)getpid(), (unsigned long long)uv_hrtime());
        instance_name = instance;
    }
    snprintf(client->id, sizeof client->id, "%s@%.255s", ip, instance_name);
}

void ledgermq_client_options_init(struct ledgermq_client_options *options)
{
    *options = (struct ledgermq_client_options){
        .call_timeout_ms = 3000, .connect_timeout_ms = 3000, .route_poll_ms = 30000, .heartbeat_ms = 30000};
}

static int or_default(int value, int otherwise)
{
    return value > 0 ? value : otherwise;
}

int ledgermq_client_new(const struct ledgermq_client_options *given, struct ledgermq_client **out,
                        struct ledgermq_error *public_error)
{
    struct ledgermq_client_options defaults;
    struct error error = {0};
    ledgermq_client_options_init(&defaults);
    const struct ledgermq_client_options *options = given == NULL ? &defaults : given;
    char(*servers)[REMOTING_ADDRESS_MAX] = calloc(ROUTE_NAME_SERVERS_MAX, sizeof *servers);
    struct ledgermq_client *client = calloc(1, sizeof *client);
    int rv = ERROR_NO_MEMORY;
    if (servers == NULL || client == NULL)
        goto free_client;
    const char *list = options->name_servers != NULL ? options->name_servers : getenv("NAMESRV_ADDR");
    uint32_t count = route_split_name_servers(list, servers, &error);
    rv = ERROR_INVALID;
    if (count == 0)
        goto free_client;
    client->call_timeout_ms = or_default(options->call_timeout_ms, defaults.call_timeout_ms);
    client->heartbeat_ms = or_default(options->heartbeat_ms, defaults.heartbeat_ms);
    client->heartbeat.run = heartbeat_run;
    make_ids(client, options->instance_name);
    rv = ERROR_NO_MEMORY;
    if (uv_mutex_init(&client->lock) != 0)
        goto free_client;
    rv = remoting_client_new(or_default(options->connect_timeout_ms, defaults.connect_timeout_ms), &client->remoting,
                             &error);
    if (rv != 0)
        goto destroy_lock;
    struct route_table_options routes = {
        .name_servers = servers,
        .name_server_count = count,
        .call_timeout_ms = client->call_timeout_ms,
        .poll_ms = or_default(options->route_poll_ms, defaults.route_poll_ms),
        .changed = heartbeat_new_brokers,
        .context = client,
    };
    rv = route_table_new(client->remoting, &routes, &client->routes, &error);
    if (rv != 0)
        goto free_remoting;
    free(servers);
    *out = client;
    return LEDGERMQ_OK;

free_remoting:
    remoting_client_free(client->remoting);
destroy_lock:
    uv_mutex_destroy(&client->lock);
free_client:
    free(client);
    free(servers);
    return client_error(public_error, rv, 0, &error);
}

struct stop_task {
    struct remoting_task task;
    struct ledgermq_client *client;
    uv_sem_t done;
};

static void stop_run(struct remoting_task *base)
{
    struct stop_task *stop = (struct stop_task *)base;
    stop->client->stopping = true;
    remoting_client_delay_cancel(&stop->client->heartbeat);
    route_table_stop(stop->client->routes);
    uv_sem_post(&stop->done);
}

void ledgermq_client_free(struct ledgermq_client *client)
{
    if (client == NULL)
        return;
    while (client->producers != NULL)
        ledgermq_producer_free(client->producers);
    while (client->pull_consumers != NULL)
        ledgermq_pull_consumer_free(client->pull_consumers);
    struct stop_task stop = {.task.run = stop_run, .client = client};
    int rv = uv_sem_init(&stop.done, 0);
    assert(rv == 0);
    remoting_client_post(client->remoting, &stop.task);
    uv_sem_wait(&stop.done);
    uv_sem_destroy(&stop.done);
    remoting_client_free(client->remoting);
    route_table_free(client->routes);
    forget_seen(client);
    while (client->groups != NULL) {
        struct client_group *group = client->groups;
        client->groups = group->next;
        group_free(group);
    }
    uv_mutex_destroy(&client->lock);
    free(client);
}

const char *ledgermq_client_id(const struct ledgermq_client *client)
{
    return client->id;
}
