/* The life of a consumer: made, subscribed, started; stopped in this order:
 *
 *     1. nothing is read any more, and jobs that no thread has begun are passed over;
 *     2. the last job and the last call end: offsets are sent (15), then locks are freed (42);
 *     3. the last of these calls ends: the loop thread forgets the consumer, and the thread that frees it goes on to leave the
 *        group (35).
 */
#include "client/consumer.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/check_client_config.h"
#include "proto/request_code.h"
#include "proto/response_code.h"
#include "proto/topic_validator.h"

int consumer_retry_ms(uint32_t failures)
{
    int wait_ms = CONSUMER_RETRY_MS_MIN;
    while (failures-- > 1 && wait_ms < CONSUMER_RETRY_MS_MAX)
        wait_ms *= 2;
    return wait_ms < CONSUMER_RETRY_MS_MAX ? wait_ms : CONSUMER_RETRY_MS_MAX;
}

const char *consumer_broker_address(const struct consumer *consumer, const struct ledgermq_queue *queue, int64_t id)
{
    const struct topic_route *route = route_table_get(consumer->client->routes, queue->topic);
    const struct route_broker *broker = route == NULL ? NULL : topic_route_broker(route, queue->broker_name);
    for (uint32_t i = 0; broker != NULL && id != 0 && i < broker->address_count; i++)
        if (broker->addresses[i].id == id)
            return broker->addresses[i].address;
    return broker == NULL ? NULL : route_broker_any(broker);
}

struct consumer_topic *consumer_topic_find(const struct consumer *consumer, const char *name)
{
    struct consumer_topic *topic = consumer->topics;
    while (topic != NULL && strcmp(topic->name, name) != 0)
        topic = topic->next;
    return topic;
}

/* --- to the loop thread and back ---- */

struct run_task {
    struct remoting_task task;
    struct consumer *consumer;
    void (*run)(struct consumer *consumer, void *argument);
    void *argument;
    uv_sem_t done;
};

static void run_run(struct remoting_task *base)
{
    struct run_task *task = (struct run_task *)base;
    task->run(task->consumer, task->argument);
    uv_sem_post(&task->done);
}

void consumer_run(struct consumer *consumer, void (*run)(struct consumer *consumer, void *argument), void *argument)
{
    struct run_task task = {.task.run = run_run, .consumer = consumer, .run = run, .argument = argument};
    remoting_client_post_and_wait(consumer->client->remoting, &task.task, &task.done);
}

int consumer_may_wait(const struct consumer *consumer, struct ledgermq_error *error)
{
    if (!remoting_client_on_loop(consumer->client->remoting))
        return LEDGERMQ_OK;
    return client_error_text(error, LEDGERMQ_INVALID, 0, "this function waits, so a send's call back may not call it");
}

/* --- making ---- */

static char *default_offset_directory(void)
{
    const char *home = getenv("HOME");
    size_t size = (home == NULL ? 0 : strlen(home)) + sizeof "/.rocketmq_offsets";
    char *text = malloc(size);
    if (text != NULL)
        snprintf(text, size, "%s/.rocketmq_offsets", home == NULL ? "" : home);
    return text;
}

static void consumer_release(struct consumer *consumer)
{
    while (consumer->topics != NULL) {
        struct consumer_topic *topic = consumer->topics;
        consumer->topics = topic->next;
        free(topic->expression);
        free(topic);
    }
    offset_store_close(&consumer->offsets);
    consume_pool_free(consumer->pool);
    uv_cond_destroy(&consumer->ready_some);
    uv_mutex_destroy(&consumer->ready_lock);
    free((char *)consumer->options.group);
    free((char *)consumer->options.offset_directory);
    free(consumer->retry_topic);
    free(consumer);
}

int consumer_new(struct ledgermq_client *client, enum consumer_kind kind,
                 const struct ledgermq_push_consumer_options *options, struct consumer **out,
                 struct ledgermq_error *public_error)
{
    struct error error = {0};
    char group[NAMESPACED_NAME_MAX];
    namespace_wrap(client->name_space, options->group, group);
    if (group_validate(slice_of_text(group), &error) != 0)
        return client_error(public_error, ERROR_INVALID, 0, &error);
    struct consumer *consumer = calloc(1, sizeof *consumer);
    size_t size = strlen(group) + sizeof TOPIC_RETRY_PREFIX;
    if (consumer == NULL)
        return client_error(public_error, ERROR_NO_MEMORY, 0, &error);
    if (uv_mutex_init(&consumer->ready_lock) != 0)
        goto free_consumer;
    if (uv_cond_init(&consumer->ready_some) != 0)
        goto destroy_lock;
    consumer->client = client;
    consumer->kind = kind;
    consumer->options = *options;
    consumer->broadcast = options->message_model == LEDGERMQ_BROADCASTING;
    consumer->start_ms = client_clock_ms();
    consumer->ready_end = &consumer->ready;
    consumer->rebalance.run = consumer_rebalance_run;
    consumer->persist.run = consumer_persist_run;
    consumer->lock.run = consumer_lock_run;
    consumer->expire.run = consume_expire_run;
    consumer->reconsume.run = consume_reconsume_run;
    if (consumer->options.consume_timestamp_ms == 0)
        consumer->options.consume_timestamp_ms = consumer->start_ms - 30 * 60 * 1000;
    offset_store_init(&consumer->offsets);
    consumer->options.group = strdup(group);
    consumer->options.offset_directory =
        options->offset_directory != NULL ? strdup(options->offset_directory) : default_offset_directory();
    consumer->retry_topic = malloc(size);
    if (consumer->options.group == NULL || consumer->options.offset_directory == NULL || consumer->retry_topic == NULL)
        goto release;
    snprintf(consumer->retry_topic, size, "%s%s", TOPIC_RETRY_PREFIX, group);
    if (kind != CONSUMER_LITE &&
        consume_pool_new((unsigned)options->consume_threads, &consumer->pool, &error) != 0)
        goto release;
    uv_mutex_lock(&client->lock);
    consumer->next_made = client->consumers;
    client->consumers = consumer;
    uv_mutex_unlock(&client->lock);
    *out = consumer;
    return LEDGERMQ_OK;

release:
    consumer_release(consumer);
    return client_error(public_error, ERROR_NO_MEMORY, 0, &error);
destroy_lock:
    uv_mutex_destroy(&consumer->ready_lock);
free_consumer:
    free(consumer);
    return client_error(public_error, ERROR_NO_MEMORY, 0, &error);
}

/* --- subscribing ---- */

struct subscribing {
    const char *topic, *expression;
    bool sql;
    int rv;
};

static void subscribe_run(struct consumer *consumer, void *argument)
{
    struct subscribing *asked = argument;
    struct consumer_topic *topic = consumer_topic_find(consumer, asked->topic);
    char *copy = strdup(asked->expression);
    size_t size = strlen(asked->topic) + 1;
    asked->rv = ERROR_NO_MEMORY;
    if (copy == NULL)
        return;
    if (topic == NULL && consumer->topic_count < CLIENT_GROUP_TOPICS_MAX)
        topic = calloc(1, sizeof *topic + size);
    else if (topic == NULL)
        asked->rv = ERROR_BUSY;
    if (topic == NULL) {
        free(copy);
        return;
    }
    if (topic->consumer == NULL) {
        memcpy(topic->name, asked->topic, size);
        topic->consumer = consumer;
        topic->next = consumer->topics;
        consumer->topics = topic;
        consumer->topic_count++;
    }
    free(topic->expression);
    topic->expression = copy;
    topic->sql = asked->sql;
    topic->all = !asked->sql && (copy[0] == '\0' || strcmp(copy, SUBSCRIPTION_ALL) == 0);
    topic->version_ms = client_clock_ms();
    asked->rv = 0;
    if (!consumer->active)
        return;
    asked->rv = client_group_subscribe(consumer->client, consumer->options.group, topic->name, topic->expression,
                                       topic->sql ? EXPRESSION_TYPE_SQL92 : EXPRESSION_TYPE_TAG, topic->version_ms);
    consumer_rebalance(consumer);
}

/* A broker looks at the expression (DefaultMQPushConsumerImpl#checkClientInBroker). A topic that nobody knows yet is
 * checked when it is read. */
static int check_at_broker(struct consumer *consumer, const char *topic, const char *expression,
                           struct ledgermq_error *public_error)
{
    struct ledgermq_client *client = consumer->client;
    char(*addresses)[REMOTING_ADDRESS_MAX];
    struct remoting_response response;
    struct error error = {0};
    struct check_client_config config = {.client_id = slice_of_text(client->id),
                                         .group = slice_of_text(consumer->options.group),
                                         .has_subscription = true};
    struct buffer body;
    size_t count = 0;
    int rv = client_topic_brokers(client, topic, &addresses, &count, &error);
    if (rv != 0)
        return LEDGERMQ_OK;
    buffer_init(&body, 0);
    arena_init(&config.arena, 0);
    rv = subscription_data_build(&config.subscription, &config.arena, slice_of_text(topic), slice_of_text(expression),
                                 SLICE_LITERAL(EXPRESSION_TYPE_SQL92), &error);
    if (rv == 0)
        check_client_config_encode(&config, &body);
    arena_close(&config.arena);
    if (rv != 0 || body.failed || count == 0) {
        rv = rv != 0 ? client_error(public_error, rv, 0, &error) : LEDGERMQ_OK;
        goto close_body;
    }
    rv = remoting_client_invoke(client->remoting, addresses[0], REQUEST_CHECK_CLIENT_CONFIG, NULL, buffer_slice(&body),
                                client->call_timeout_ms, &response, &error);
    if (rv != 0) {
        rv = client_error(public_error, rv, 0, &error);
        goto close_body;
    }
    rv = LEDGERMQ_OK;
    if (response.command.code != RESPONSE_SUCCESS)
        rv = client_error_text(public_error, LEDGERMQ_REFUSED, response.command.code, "%s refuses '%.100s': %.*s",
                               addresses[0], expression,
                               (int)(response.command.remark.size < 250 ? response.command.remark.size : 250),
                               (const char *)response.command.remark.data);
    remoting_response_close(&response);
close_body:
    buffer_close(&body);
    free(addresses);
    return rv;
}

int consumer_subscribe(struct consumer *consumer, const char *name, const char *expression,
                       struct ledgermq_error *public_error)
{
    struct error error = {0};
    char topic[NAMESPACED_NAME_MAX] = "";
    struct subscribing asked = {.topic = topic};
    struct subscription_data data;
    struct arena arena;
    if (consumer_may_wait(consumer, public_error) != LEDGERMQ_OK)
        return LEDGERMQ_INVALID;
    if (name != NULL)
        namespace_wrap(consumer->client->name_space, name, topic);
    if (topic_validate(slice_of_text(topic), &error) != 0)
        return client_error(public_error, ERROR_INVALID, 0, &error);
    asked.expression = client_expression(expression, &asked.sql);
    arena_init(&arena, 0);
    int rv = subscription_data_build(&data, &arena, slice_of_text(topic), slice_of_text(asked.expression),
                                     slice_of_text(asked.sql ? EXPRESSION_TYPE_SQL92 : EXPRESSION_TYPE_TAG), &error);
    arena_close(&arena);
    if (rv != 0)
        return client_error(public_error, rv, 0, &error);
    if (asked.sql && (rv = check_at_broker(consumer, topic, asked.expression, public_error)) != LEDGERMQ_OK)
        return rv;
    consumer_run(consumer, subscribe_run, &asked);
    return asked.rv == 0 ? LEDGERMQ_OK : client_error(public_error, asked.rv, 0, &error);
}

static void unsubscribe_run(struct consumer *consumer, void *argument)
{
    struct subscribing *asked = argument;
    struct consumer_topic **at = &consumer->topics;
    while (*at != NULL && strcmp((*at)->name, asked->topic) != 0)
        at = &(*at)->next;
    struct consumer_topic *topic = *at;
    asked->rv = topic == NULL ? ERROR_NOT_FOUND : 0;
    if (topic == NULL)
        return;
    consumer_topic_cancel(topic);
    consumer_apply(consumer, topic->name, NULL, 0);
    *at = topic->next;
    consumer->topic_count--;
    if (consumer->active)
        client_group_unsubscribe(consumer->client, consumer->options.group, topic->name);
    free(topic->expression);
    free(topic);
}

int consumer_unsubscribe(struct consumer *consumer, const char *name, struct ledgermq_error *public_error)
{
    char topic[NAMESPACED_NAME_MAX];
    struct subscribing asked = {.topic = topic};
    if (name == NULL)
        return client_error_text(public_error, LEDGERMQ_INVALID, 0, "no topic is given");
    namespace_wrap(consumer->client->name_space, name, topic);
    if (consumer_may_wait(consumer, public_error) != LEDGERMQ_OK)
        return LEDGERMQ_INVALID;
    consumer_run(consumer, unsubscribe_run, &asked);
    if (asked.rv == 0)
        return LEDGERMQ_OK;
    return client_error_text(public_error, LEDGERMQ_NOT_FOUND, 0, "topic %.200s is not subscribed", name);
}

/* --- starting ---- */

struct starting {
    int rv;
};

static void start_run(struct consumer *consumer, void *argument)
{
    static const enum consume_from_where from[] = {[LEDGERMQ_FROM_LAST_OFFSET] = CONSUME_FROM_LAST_OFFSET,
                                                   [LEDGERMQ_FROM_FIRST_OFFSET] = CONSUME_FROM_FIRST_OFFSET,
                                                   [LEDGERMQ_FROM_TIMESTAMP] = CONSUME_FROM_TIMESTAMP};
    struct starting *starting = argument;
    struct ledgermq_client *client = consumer->client;
    const struct client_group_consumer data = {
        consumer->kind == CONSUMER_LITE ? CONSUME_ACTIVELY : CONSUME_PASSIVELY,
        consumer->broadcast ? MESSAGE_MODEL_BROADCASTING : MESSAGE_MODEL_CLUSTERING,
        from[consumer->options.consume_from]};
    starting->rv = client_group_join(client, consumer->options.group, &data);
    if (starting->rv != 0)
        return;
    consumer->active = true;
    consumer->next = client->active_consumers;
    client->active_consumers = consumer;
    for (struct consumer_topic *topic = consumer->topics; topic != NULL && starting->rv == 0; topic = topic->next)
        starting->rv = client_group_subscribe(client, consumer->options.group, topic->name, topic->expression,
                                              topic->sql ? EXPRESSION_TYPE_SQL92 : EXPRESSION_TYPE_TAG,
                                              topic->version_ms);
    if (starting->rv != 0)
        return;
    remoting_client_delay(client->remoting, &consumer->persist, CONSUMER_PERSIST_MS);
    if (consumer->kind == CONSUMER_ORDERLY && !consumer->broadcast)
        remoting_client_delay(client->remoting, &consumer->lock, CONSUMER_LOCK_MS);
    if (consumer->kind == CONSUMER_CONCURRENT)
        consume_expire_run(&consumer->expire);
    consumer_rebalance(consumer);
}

int consumer_start(struct consumer *consumer, struct ledgermq_error *public_error)
{
    struct error error = {0};
    struct starting starting = {0};
    struct ledgermq_client *client = consumer->client;
    if (consumer_may_wait(consumer, public_error) != LEDGERMQ_OK)
        return LEDGERMQ_INVALID;
    uv_mutex_lock(&client->lock);
    bool before = consumer->started;
    consumer->started = true;
    uv_mutex_unlock(&client->lock);
    if (before)
        return client_error_text(public_error, LEDGERMQ_INVALID, 0, "this consumer was started before");
    int rv = 0;
    if (consumer->broadcast)
        rv = offset_store_open_file(&consumer->offsets, consumer->options.offset_directory, client->id,
                                    consumer->options.group, &error);
    if (rv != 0)
        return client_error_text(public_error, rv == ERROR_NO_MEMORY ? LEDGERMQ_NO_MEMORY : LEDGERMQ_INVALID, 0, "%s",
                                 error.message);
    /* What could not be delivered is delivered again through the group's own topic. */
    struct subscribing retry = {.topic = consumer->retry_topic, .expression = SUBSCRIPTION_ALL};
    if (!consumer->broadcast && consumer->kind != CONSUMER_LITE)
        consumer_run(consumer, subscribe_run, &retry);
    if (retry.rv == 0)
        consumer_run(consumer, start_run, &starting);
    rv = retry.rv != 0 ? retry.rv : starting.rv;
    if (rv == 0)
        return LEDGERMQ_OK;
    if (rv == ERROR_EXISTS)
        return client_error_text(public_error, LEDGERMQ_INVALID, 0,
                                 "this client has a consumer of group %s already: use another client, or another group",
                                 consumer->options.group);
    return client_error(public_error, rv, 0, &error);
}

/* --- asking ---- */

struct listing {
    struct ledgermq_queue *queues;
    size_t count;
};

static void queues_run(struct consumer *consumer, void *argument)
{
    struct listing *listing = argument;
    listing->queues = calloc(HASH_COUNT(consumer->assigned) + 1, sizeof *listing->queues);
    for (struct assigned *assigned = consumer->assigned; listing->queues != NULL && assigned != NULL;
         assigned = assigned->hh.next)
        listing->queues[listing->count++] = assigned->shown;
}

int consumer_queues(struct consumer *consumer, struct ledgermq_queue **queues, size_t *count,
                    struct ledgermq_error *error)
{
    struct listing listing = {0};
    if (consumer_may_wait(consumer, error) != LEDGERMQ_OK)
        return LEDGERMQ_INVALID;
    consumer_run(consumer, queues_run, &listing);
    if (listing.queues == NULL)
        return client_error_text(error, LEDGERMQ_NO_MEMORY, 0, "out of memory");
    *queues = listing.queues;
    *count = listing.count;
    return LEDGERMQ_OK;
}

/* --- stopping ---- */

static void finish(struct consumer *consumer)
{
    struct error error;
    consumer->finishing = true;
    consumer->pending++; /* keeps the end from coming inside the loop */
    while (consumer->assigned != NULL)
        assigned_drop(consumer->assigned);
    offset_store_save(&consumer->offsets, &error);
    consumer->pending--;
}

void consumer_ended(struct consumer *consumer)
{
    if (consumer->stopped == NULL)
        return;
    /* A message that is being sent back is neither consumed nor left to others before that is answered. */
    if (consumer->jobs == 0 && consumer->pending == 0 && !consumer->finishing)
        finish(consumer);
    if (!consumer->finishing || consumer->jobs > 0 || consumer->pending > 0 || consumer->leaving != NULL)
        return;
    uv_sem_t *stopped = consumer->stopped;
    consumer->stopped = NULL;
    for (struct consumer **at = &consumer->client->active_consumers; *at != NULL; at = &(*at)->next)
        if (*at == consumer) {
            *at = consumer->next;
            break;
        }
    uv_sem_post(stopped);
}

struct stopping {
    struct remoting_task task;
    struct consumer *consumer;
    uv_sem_t done;
};

static void stop_run(struct remoting_task *base)
{
    struct stopping *stopping = (struct stopping *)base;
    struct consumer *consumer = stopping->consumer;
    atomic_store(&consumer->stopping, true);
    remoting_client_delay_cancel(&consumer->rebalance);
    remoting_client_delay_cancel(&consumer->persist);
    remoting_client_delay_cancel(&consumer->lock);
    remoting_client_delay_cancel(&consumer->expire);
    remoting_client_delay_cancel(&consumer->reconsume);
    for (struct consumer_topic *topic = consumer->topics; topic != NULL; topic = topic->next)
        consumer_topic_cancel(topic);
    for (struct assigned *assigned = consumer->assigned; assigned != NULL; assigned = assigned->hh.next)
        assigned_halt(assigned);
    if (consumer->kind == CONSUMER_LITE)
        lite_stop(consumer);
    consumer->stopped = &stopping->done;
    consumer_ended(consumer);
}

void consumer_free(struct consumer *consumer)
{
    struct ledgermq_client *client = consumer->client;
    struct stopping stopping = {.task.run = stop_run, .consumer = consumer};
    assert(!remoting_client_on_loop(client->remoting));
    assert(consumer->pool == NULL || !consume_pool_on_thread(consumer->pool));
    remoting_client_post_and_wait(client->remoting, &stopping.task, &stopping.done);
    /* Its round trip also lets the loop thread leave whatever called consumer_ended(), which may still look at it. */
    if (consumer->active)
        client_group_unregister(client, consumer->options.group, true);
    uv_mutex_lock(&client->lock);
    struct consumer **at = &client->consumers;
    while (*at != consumer)
        at = &(*at)->next_made;
    *at = consumer->next_made;
    uv_mutex_unlock(&client->lock);
    consumer_release(consumer);
}
