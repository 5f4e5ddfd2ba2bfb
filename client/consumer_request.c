/* What brokers ask of consumers: members changed (40), offsets are to be reset (220), where are you (221, 307), consume
 * this one now (309). Follows org.apache.rocketmq.client.impl.ClientRemotingProcessor 4.9.8. */
#include <stdio.h>
#include <stdlib.h>

#include "client/consumer.h"
#include "proto/headers.h"
#include "proto/json_body.h"
#include "proto/request_code.h"
#include "proto/reset_offset_body.h"
#include "proto/response_code.h"

static struct consumer *consumer_of(struct ledgermq_client *client, struct slice group)
{
    struct consumer *consumer = client->active_consumers;
    while (consumer != NULL &&
           (!slice_equal_text(group, consumer->options.group) || atomic_load(&consumer->stopping)))
        consumer = consumer->next;
    return consumer;
}

static void no_such_group(struct ledgermq_client *client, const struct remoting_origin *origin, struct slice group)
{
    char remark[LEDGERMQ_TOPIC_MAX + 80];
    snprintf(remark, sizeof remark, "The Consumer Group <%.*s> not exist in the consumer",
             (int)(group.size < LEDGERMQ_TOPIC_MAX ? group.size : LEDGERMQ_TOPIC_MAX), (const char *)group.data);
    remoting_client_answer(client->remoting, origin, RESPONSE_SYSTEM_ERROR, remark);
}

/* The consumer of the group that the request names; NULL when there is none, which is answered. */
static struct consumer *consumer_asked(struct ledgermq_client *client, const struct remoting_command *request,
                                       const char *group_field, const struct remoting_origin *origin)
{
    struct slice group = remoting_ext(request, group_field);
    struct consumer *consumer = consumer_of(client, group);
    if (consumer == NULL)
        no_such_group(client, origin, group);
    return consumer;
}

bool consumer_answer_begin(struct ledgermq_client *client, const struct remoting_origin *origin,
                           struct remoting_writer *writer, struct json_writer *json)
{
    if (!remoting_client_answer_begin(client->remoting, origin, RESPONSE_SUCCESS, NULL, writer))
        return false;
    remoting_writer_body(writer);
    json_writer_init(json, writer->out);
    json_write_begin_object(json);
    return true;
}

void consumer_answer_end(struct ledgermq_client *client, struct remoting_writer *writer, struct json_writer *json)
{
    json_write_end_object(json);
    remoting_client_answer_end(client->remoting, writer);
}

/* --- 40 ---- */

static void members_changed(void *context, const struct remoting_command *request, const char *address,
                            const struct remoting_origin *origin)
{
    struct ledgermq_client *client = context;
    struct consumer *consumer = consumer_of(client, remoting_ext(request, "consumerGroup"));
    (void)address;
    if (consumer != NULL)
        consumer_rebalance(consumer);
    remoting_client_answer(client->remoting, origin, RESPONSE_SUCCESS, NULL);
}

/* --- 220 ---- */

static void reset_queue(struct consumer *consumer, const struct reset_offset *reset)
{
    for (struct assigned *assigned = consumer->assigned; assigned != NULL; assigned = assigned->hh.next) {
        if (assigned->queue.queue_id != reset->queue.queue_id ||
            !slice_equal_text(reset->queue.topic, assigned->queue.topic) ||
            !slice_equal_text(reset->queue.broker_name, assigned->queue.broker_name))
            continue;
        assigned_jump(assigned, reset->offset);
        return;
    }
}

static void offsets_reset(void *context, const struct remoting_command *request, const char *address,
                          const struct remoting_origin *origin)
{
    struct ledgermq_client *client = context;
    struct consumer *consumer = consumer_asked(client, request, "group", origin);
    struct reset_offset_body body;
    struct error error = {0};
    (void)address;
    if (consumer == NULL)
        return;
    if (reset_offset_body_decode(&body, request->body, &error) != 0) {
        remoting_client_answer(client->remoting, origin, RESPONSE_SYSTEM_ERROR, error.message);
        return;
    }
    /* Each member gets all queues and moves those that it reads. */
    for (size_t i = 0; i < body.offset_count; i++)
        if (body.offsets[i].offset >= 0)
            reset_queue(consumer, &body.offsets[i]);
    reset_offset_body_close(&body);
    consumer_commit_all(consumer, NULL);
    remoting_client_answer(client->remoting, origin, RESPONSE_SUCCESS, NULL);
}

/* --- 221 ---- */

static void status_asked(void *context, const struct remoting_command *request, const char *address,
                         const struct remoting_origin *origin)
{
    struct ledgermq_client *client = context;
    struct consumer *consumer = consumer_asked(client, request, "group", origin);
    struct slice topic = remoting_ext(request, "topic");
    struct remoting_writer writer;
    struct json_writer json;
    (void)address;
    if (consumer == NULL || !consumer_answer_begin(client, origin, &writer, &json))
        return;
    json_write_key(&json, "messageQueueTable");
    json_write_begin_object(&json);
    for (const struct offset_entry *entry = consumer->offsets.entries; entry != NULL; entry = entry->hh.next) {
        struct message_queue queue = message_queue_of(&entry->queue);
        if (topic.size > 0 && !slice_equal(queue.topic, topic))
            continue;
        json_body_write_queue_key(&json, &queue);
        json_write_i64(&json, entry->offset);
    }
    json_write_end_object(&json);
    consumer_answer_end(client, &writer, &json);
}

/* --- 307 ---- */

/* ProcessQueueInfo. The clocks of locks are monotonic; what is shown is wall clock. */
static void write_queue_info(struct json_writer *json, const struct assigned *assigned)
{
    const struct process_queue *messages = &assigned->messages;
    const struct consumer *consumer = assigned->consumer;
    bool lite = consumer->kind == CONSUMER_LITE;
    size_t count = lite ? assigned->ready_count : messages->count;
    size_t bytes = lite ? assigned->ready_bytes : messages->bytes;
    int64_t lock_ms = atomic_load(&assigned->last_lock_ms);
    bool any = !lite && messages->count > 0;
    json_write_begin_object(json);
    json_write_member_i64(json, "cachedMsgCount", (int64_t)count);
    json_write_member_i64(json, "cachedMsgMaxOffset", any ? messages->next_offset - 1 : 0);
    json_write_member_i64(json, "cachedMsgMinOffset", any ? process_queue_commit_offset(messages) : 0);
    json_write_member_i64(json, "cachedMsgSizeInMiB", (int64_t)(bytes >> 20));
    json_write_member_i64(json, "commitOffset", offset_store_read(&consumer->offsets, &assigned->queue));
    json_write_member_bool(json, "droped", false);
    json_write_member_i64(json, "lastConsumeTimestamp", assigned->last_consume_ms);
    json_write_member_i64(json, "lastLockTimestamp",
                          lock_ms < 0 ? 0 : client_clock_ms() - (client_monotonic_ms() - lock_ms));
    json_write_member_i64(json, "lastPullTimestamp", assigned->last_pull_ms);
    json_write_member_bool(json, "locked", assigned->locked);
    json_write_member_i64(json, "transactionMsgCount", assigned->consuming ? 1 : 0);
    json_write_member_i64(json, "transactionMsgMaxOffset", 0);
    json_write_member_i64(json, "transactionMsgMinOffset", 0);
    json_write_member_i64(json, "tryUnlockTimes", 0);
    json_write_end_object(json);
}

static void write_properties(struct json_writer *json, const struct consumer *consumer)
{
    static const char *const models[] = {"CLUSTERING", "BROADCASTING"};
    static const char *const strategies[] = {"AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"};
    const struct ledgermq_push_consumer_options *options = &consumer->options;
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {
        {"PROP_CONSUMER_START_TIMESTAMP", consumer->start_ms},
        {"PROP_THREADPOOL_CORE_SIZE", consumer->kind == CONSUMER_LITE ? 0 : options->consume_threads},
        {"consumeConcurrentlyMaxSpan", options->cache_span_max},
        {"consumeMessageBatchMaxSize", options->consume_batch},
        {"maxReconsumeTimes", options->max_reconsume_times},
        {"pullBatchSize", options->pull_batch},
        {"pullInterval", options->pull_interval_ms},
        {"pullThresholdForQueue", options->cache_messages_max},
        {"pullThresholdSizeForQueue", options->cache_mib_max},
        {"suspendCurrentQueueTimeMillis", options->suspend_ms},
    };
    char text[24];
    json_write_begin_object(json);
    json_write_member_text(json, "PROP_CLIENT_VERSION", "V4_9_8");
    json_write_member_text(json, "PROP_CONSUMEORDERLY", consumer->kind == CONSUMER_ORDERLY ? "true" : "false");
    json_write_member_text(json, "PROP_CONSUME_TYPE",
                           consumer->kind == CONSUMER_LITE ? "CONSUME_ACTIVELY" : "CONSUME_PASSIVELY");
    json_write_member_text(json, "PROP_NAMESERVER_ADDR", consumer->client->name_servers);
    json_write_member_text(json, "allocateMessageQueueStrategy", strategies[options->allocate]);
    json_write_member_text(json, "consumerGroup", options->group);
    json_write_member_text(json, "instanceName", consumer->client->id);
    json_write_member_text(json, "messageModel", models[options->message_model]);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        snprintf(text, sizeof text, "%lld", (long long)numbers[i].value);
        json_write_member_text(json, numbers[i].name, text);
    }
    json_write_end_object(json);
}

static void write_statuses(struct json_writer *json, struct consumer *consumer)
{
    json_write_begin_object(json);
    for (struct consumer_topic *topic = consumer->topics; topic != NULL; topic = topic->next) {
        struct consumer_status status;
        consumer_stats_read(&topic->stats, remoting_client_now_ms(consumer->client->remoting), &status);
        json_write_key(json, topic->name);
        json_write_begin_object(json);
        json_write_member_i64(json, "consumeFailedMsgs", (int64_t)status.consume_failed_messages);
        json_write_member_double(json, "consumeFailedTPS", status.consume_failed_tps);
        json_write_member_double(json, "consumeOKTPS", status.consume_ok_tps);
        json_write_member_double(json, "consumeRT", status.consume_rt_ms);
        json_write_member_double(json, "pullRT", status.pull_rt_ms);
        json_write_member_double(json, "pullTPS", status.pull_tps);
        json_write_end_object(json);
    }
    json_write_end_object(json);
}

static void write_subscriptions(struct json_writer *json, const struct consumer *consumer)
{
    struct arena arena;
    arena_init(&arena, 0);
    json_write_begin_array(json);
    for (const struct consumer_topic *topic = consumer->topics; topic != NULL; topic = topic->next) {
        struct subscription_data data;
        if (subscription_data_build(&data, &arena, slice_of_text(topic->name), slice_of_text(topic->expression),
                                    slice_of_text(topic->sql ? EXPRESSION_TYPE_SQL92 : EXPRESSION_TYPE_TAG), NULL) != 0)
            continue;
        data.sub_version = topic->version_ms;
        subscription_data_write(json, &data);
    }
    json_write_end_array(json);
    arena_close(&arena);
}

/* ConsumerRunningInfo. A C program has no stack traces to give away; what jstackEnable asks for is who is busy. */
static void info_asked(void *context, const struct remoting_command *request, const char *address,
                       const struct remoting_origin *origin)
{
    struct ledgermq_client *client = context;
    struct consumer *consumer = consumer_asked(client, request, "consumerGroup", origin);
    struct get_consumer_running_info_request_header header;
    struct remoting_writer writer;
    struct json_writer json;
    struct error error;
    (void)address;
    if (consumer == NULL)
        return;
    if (get_consumer_running_info_request_header_decode(request, &header, &error) != 0) {
        remoting_client_answer(client->remoting, origin, RESPONSE_SYSTEM_ERROR, error.message);
        return;
    }
    if (!consumer_answer_begin(client, origin, &writer, &json))
        return;
    if (header.jstack_enable && consumer->pool != NULL) {
        struct buffer text;
        buffer_init(&text, 0);
        consume_pool_describe(consumer->pool, &text);
        json_write_member_slice(&json, "jstack", buffer_slice(&text));
        buffer_close(&text);
    }
    json_write_key(&json, "mqTable");
    json_write_begin_object(&json);
    for (const struct assigned *assigned = consumer->assigned; assigned != NULL; assigned = assigned->hh.next) {
        struct message_queue queue = message_queue_of(&assigned->queue);
        json_body_write_queue_key(&json, &queue);
        write_queue_info(&json, assigned);
    }
    json_write_end_object(&json);
    json_write_key(&json, "properties");
    write_properties(&json, consumer);
    json_write_key(&json, "statusTable");
    write_statuses(&json, consumer);
    json_write_key(&json, "subscriptionSet");
    write_subscriptions(&json, consumer);
    consumer_answer_end(client, &writer, &json);
}

/* --- 309 ---- */

static void message_given(void *context, const struct remoting_command *request, const char *address,
                          const struct remoting_origin *origin)
{
    struct ledgermq_client *client = context;
    struct consumer *consumer = consumer_of(client, remoting_ext(request, "consumerGroup"));
    struct slice broker = remoting_ext(request, "brokerName");
    struct stored_messages *messages = stored_messages_new();
    struct remoting_response response;
    struct error error = {0};
    char broker_name[LEDGERMQ_NAME_MAX + 1];
    (void)address;
    if (consumer == NULL || consumer->pool == NULL) {
        stored_messages_free(messages);
        no_such_group(client, origin, remoting_ext(request, "consumerGroup"));
        return;
    }
    snprintf(broker_name, sizeof broker_name, "%.*s", (int)(broker.size < LEDGERMQ_NAME_MAX ? broker.size : LEDGERMQ_NAME_MAX),
             (const char *)broker.data);
    int rv = messages == NULL ? ERROR_NO_MEMORY : remoting_response_keep(request, &response);
    if (rv == 0)
        rv = stored_messages_add(messages, &response, broker_name, NULL, NULL, &error);
    if (rv == 0 && !stored_messages_unwrap(messages, client->name_space))
        rv = ERROR_NO_MEMORY;
    if (rv != 0) {
        remoting_client_answer(client->remoting, origin, RESPONSE_SYSTEM_ERROR,
                               error.message[0] != '\0' ? error.message : error_text(rv));
        stored_messages_free(messages);
        return;
    }
    consume_directly(consumer, messages, origin);
}

void consumer_requests_handle(struct ledgermq_client *client)
{
    remoting_client_handle(client->remoting, REQUEST_NOTIFY_CONSUMER_IDS_CHANGED, members_changed, client);
    remoting_client_handle(client->remoting, REQUEST_RESET_CONSUMER_CLIENT_OFFSET, offsets_reset, client);
    remoting_client_handle(client->remoting, REQUEST_GET_CONSUMER_STATUS_FROM_CLIENT, status_asked, client);
    remoting_client_handle(client->remoting, REQUEST_GET_CONSUMER_RUNNING_INFO, info_asked, client);
    remoting_client_handle(client->remoting, REQUEST_CONSUME_MESSAGE_DIRECTLY, message_given, client);
}
