/* Questions about routes from threads that may wait: asked on the loop thread, answered with copies. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/client.h"
#include "proto/response_code.h"
#include "proto/topic_validator.h"

#define ASK_AGAIN_MS 30

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
    bool not_ready; /* name servers answered, with neither a route nor "unknown" */
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
    question->not_ready = rv == ERROR_NO_LEADER;
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
    int64_t give_up_ms = client_monotonic_ms() + question->client->call_timeout_ms;
    question->task.run = question_run;
    for (;;) {
        question->not_ready = false;
        remoting_client_post_and_wait(question->client->remoting, &question->task, &question->done);
        /* A name server that has just started is not ready before brokers have registered there. */
        if (!question->not_ready || client_monotonic_ms() >= give_up_ms)
            break;
        uv_sleep(ASK_AGAIN_MS);
    }
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
                  int queues_of_new_topic, struct ledgermq_queue **queues, size_t *count,
                  struct ledgermq_error *public_error)
{
    struct error error = {0};
    char full[NAMESPACED_NAME_MAX];
    if (topic_validate(slice_of_text(topic), &error) != 0)
        return client_error(public_error, ERROR_INVALID, 0, &error);
    namespace_wrap(client->name_space, topic, full);
    struct queues_question asked = {publish, queues, count};
    struct question question = {.client = client,
                                .topic = full,
                                .create_key = create_key,
                                .queues_of_new_topic = queues_of_new_topic,
                                .use = use_queues,
                                .context = &asked};
    int rv = question_ask(&question, &error);
    if (rv == ERROR_NOT_FOUND)
        return client_error_text(public_error, LEDGERMQ_NO_ROUTE, RESPONSE_TOPIC_NOT_EXIST, "%s", error.message);
    if (rv != 0)
        return client_error(public_error, rv, 0, &error);
    for (size_t i = 0; i < *count; i++)
        snprintf((*queues)[i].topic, sizeof(*queues)[i].topic, "%s", topic);
    return LEDGERMQ_OK;
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
