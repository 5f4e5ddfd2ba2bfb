/* Reading a queue: one request at a time, which waits at the broker while there is nothing new.
 *
 *     assigned_go() ── next_offset unknown ──▶ 14 ── none stored ──▶ 30 or 29 ──┐
 *          ▲  └──────── known, room for more ──▶ 11 ◀──────────────────────────┘
 *          └──── answer taken, a failure's pause over, a lock granted, messages consumed, resumed
 *
 * Follows DefaultMQPushConsumerImpl#pullMessage and RebalancePushImpl#computePullFromWhereWithException 4.9.8. Unlike
 * there nothing polls: a queue that reads no more because enough waits is woken by the consumption, and a failure leads
 * to a fresh look at the route at once.
 */
#include <stdio.h>
#include <stdlib.h>

#include "client/consumer.h"
#include "proto/headers.h"
#include "proto/request_code.h"
#include "proto/response_code.h"

#define SYS_FLAG_COMMIT_OFFSET 1
#define SYS_FLAG_SUSPEND 2
#define SYS_FLAG_SUBSCRIPTION 4
#define SYS_FLAG_LITE_PULL 16

static struct remoting_client *remoting_of(const struct assigned *assigned)
{
    return assigned->consumer->client->remoting;
}

static bool is_retry_topic(const struct assigned *assigned)
{
    return strcmp(assigned->queue.topic, assigned->consumer->retry_topic) == 0;
}

/* --- waiting ---- */

static void delay_over(struct remoting_delay *delay)
{
    struct assigned *assigned = (struct assigned *)((char *)delay - offsetof(struct assigned, delay));
    assigned->state = ASSIGNED_IDLE;
    assigned_go(assigned);
}

void assigned_go_later(struct assigned *assigned, int wait_ms)
{
    assigned->state = ASSIGNED_DELAYED;
    assigned->delay.run = delay_over;
    remoting_client_delay(remoting_of(assigned), &assigned->delay, wait_ms);
}

static void routed(struct route_waiter *waiter, int rv, const char *cause)
{
    struct assigned *assigned = (struct assigned *)((char *)waiter - offsetof(struct assigned, waiter));
    (void)cause;
    const char *address = consumer_broker_address(assigned->consumer, &assigned->queue, 0);
    /* A new leader is asked at once, the old one after a pause. */
    bool other = rv == 0 && address != NULL && strcmp(address, assigned->address) != 0;
    assigned_go_later(assigned, other && assigned->failures < 3 ? 0 : consumer_retry_ms(assigned->failures));
}

/* The broker cannot be reached, or does not lead. */
static void look_for_broker(struct assigned *assigned)
{
    struct consumer *consumer = assigned->consumer;
    assigned->failures++;
    assigned->suggested_id = 0;
    assigned->waiter.done = routed;
    assigned->state = ASSIGNED_ROUTING;
    if (route_table_refresh(consumer->client->routes, assigned->queue.topic, NULL, 0,
                            assigned->address[0] == '\0' ? NULL : assigned->address, &assigned->waiter) != 0)
        assigned_go_later(assigned, consumer_retry_ms(assigned->failures));
}

void assigned_halt(struct assigned *assigned)
{
    switch (assigned->state) {
    case ASSIGNED_ASKING:
    case ASSIGNED_PULLING:
        remoting_client_cancel(remoting_of(assigned), &assigned->call);
        break;
    case ASSIGNED_ROUTING:
        route_table_cancel(assigned->consumer->client->routes, assigned->queue.topic, &assigned->waiter);
        break;
    case ASSIGNED_DELAYED:
        remoting_client_delay_cancel(&assigned->delay);
        break;
    case ASSIGNED_IDLE:
        break;
    }
    assigned->state = ASSIGNED_IDLE;
}

void assigned_jump(struct assigned *assigned, int64_t offset)
{
    assigned_halt(assigned);
    atomic_store(&assigned->generation, ++assigned->consumer->last_generation);
    process_queue_clear(&assigned->messages);
    if (assigned->consumer->kind == CONSUMER_LITE)
        lite_forget(assigned);
    assigned->next_offset = offset;
    /* A poll has yet to see what is there. */
    if (offset >= 0 && assigned->consumer->kind != CONSUMER_LITE)
        offset_store_update(&assigned->consumer->offsets, &assigned->queue, offset, false);
    assigned_go(assigned);
}

/* Begins a request to the queue's broker. False: the state says what happens instead. */
static bool begin(struct assigned *assigned, int32_t code, int64_t id, int timeout_ms, struct remoting_writer *writer)
{
    const char *address = consumer_broker_address(assigned->consumer, &assigned->queue, id);
    if (address == NULL) {
        assigned->address[0] = '\0';
        look_for_broker(assigned);
        return false;
    }
    snprintf(assigned->address, sizeof assigned->address, "%s", address);
    int rv = remoting_client_begin(remoting_of(assigned), assigned->address, &assigned->call, code, timeout_ms, writer);
    if (rv == 0)
        return true;
    if (rv != ERROR_STOPPED)
        look_for_broker(assigned);
    return false;
}

static void end(struct assigned *assigned, struct remoting_writer *writer, enum assigned_state state)
{
    if (remoting_client_end(remoting_of(assigned), &assigned->call, writer) == 0)
        assigned->state = state;
    else
        assigned_go_later(assigned, CONSUMER_RETRY_MS_MAX);
}

/* --- where to begin ---- */

static void begin_at(struct assigned *assigned, int64_t offset)
{
    assigned->failures = 0;
    assigned->next_offset = offset;
    assigned_go(assigned);
}

static void ask_place(struct assigned *assigned, int32_t code);

/* The group has no offset for the queue. */
static void begin_anywhere(struct assigned *assigned)
{
    const struct ledgermq_push_consumer_options *options = &assigned->consumer->options;
    /* Messages in the retry topic are there because this group asked for them. */
    if (options->consume_from == LEDGERMQ_FROM_LAST_OFFSET && is_retry_topic(assigned))
        begin_at(assigned, 0);
    else if (options->consume_from == LEDGERMQ_FROM_FIRST_OFFSET)
        begin_at(assigned, 0);
    else if (options->consume_from == LEDGERMQ_FROM_TIMESTAMP && !is_retry_topic(assigned))
        ask_place(assigned, REQUEST_SEARCH_OFFSET_BY_TIMESTAMP);
    else
        ask_place(assigned, REQUEST_GET_MAX_OFFSET);
}

static void place_known(struct remoting_call *call, int rv, const struct remoting_command *answer, const char *cause)
{
    struct assigned *assigned = call->context;
    struct offset_response_header header;
    struct error error;
    (void)cause;
    assigned->state = ASSIGNED_IDLE;
    if (rv != 0) {
        look_for_broker(assigned);
        return;
    }
    if (answer->code == RESPONSE_QUERY_NOT_FOUND && assigned->asking_code == REQUEST_QUERY_CONSUMER_OFFSET) {
        begin_anywhere(assigned);
        return;
    }
    if (answer->code != RESPONSE_SUCCESS || offset_response_header_decode(answer, &header, &error) != 0 ||
        header.offset < 0) {
        look_for_broker(assigned);
        return;
    }
    if (assigned->asking_code == REQUEST_QUERY_CONSUMER_OFFSET) {
        offset_store_update(&assigned->consumer->offsets, &assigned->queue, header.offset, false);
        struct offset_entry *entry = offset_store_find(&assigned->consumer->offsets, &assigned->queue);
        if (entry != NULL)
            entry->dirty = false;
    }
    begin_at(assigned, header.offset);
}

static void ask_place(struct assigned *assigned, int32_t code)
{
    struct consumer *consumer = assigned->consumer;
    struct remoting_writer writer;
    assigned->call.done = place_known;
    assigned->call.context = assigned;
    assigned->asking_code = code;
    if (!begin(assigned, code, 0, consumer->client->call_timeout_ms, &writer))
        return;
    remoting_writer_ext_text(&writer, "topic", assigned->queue.topic);
    remoting_writer_ext_i64(&writer, "queueId", assigned->queue.queue_id);
    if (code == REQUEST_QUERY_CONSUMER_OFFSET)
        remoting_writer_ext_text(&writer, "consumerGroup", consumer->options.group);
    if (code == REQUEST_SEARCH_OFFSET_BY_TIMESTAMP)
        remoting_writer_ext_i64(&writer, "timestamp", consumer->options.consume_timestamp_ms);
    end(assigned, &writer, ASSIGNED_ASKING);
}

static void ask_where(struct assigned *assigned)
{
    int64_t stored = offset_store_read(&assigned->consumer->offsets, &assigned->queue);
    if (!assigned->consumer->broadcast)
        ask_place(assigned, REQUEST_QUERY_CONSUMER_OFFSET);
    else if (stored >= 0)
        begin_at(assigned, stored);
    else
        begin_anywhere(assigned);
}

/* --- reading ---- */

/* All that was read is consumed: what the filter left out counts as consumed too (correctTagsOffset). */
static void note_skipped(struct assigned *assigned, int64_t next_offset)
{
    struct consumer *consumer = assigned->consumer;
    if (consumer->kind == CONSUMER_LITE)
        lite_skipped(assigned, next_offset);
    else if (assigned->messages.count == 0)
        offset_store_update(&consumer->offsets, &assigned->queue, next_offset, true);
}

/* A message on its way again shows the topic it was sent to. */
static void restore_topics(struct assigned *assigned, struct stored_messages *messages)
{
    for (size_t i = 0; is_retry_topic(assigned) && i < messages->result.count; i++) {
        const char *topic = ledgermq_message_property(&messages->messages[i], "RETRY_TOPIC");
        if (topic != NULL)
            messages->messages[i].topic = topic;
    }
}

static int take_messages(struct assigned *assigned, const struct remoting_command *answer, int64_t next_offset,
                         size_t *count)
{
    struct consumer *consumer = assigned->consumer;
    const struct consumer_topic *topic = consumer_topic_find(consumer, assigned->queue.topic);
    bool all = topic == NULL || topic->all || topic->sql;
    struct stored_messages *messages = stored_messages_new();
    struct remoting_response response;
    struct error error;
    int rv = messages == NULL ? ERROR_NO_MEMORY : remoting_response_keep(answer, &response);
    if (rv != 0) {
        stored_messages_free(messages);
        return rv;
    }
    rv = stored_messages_add(messages, &response, assigned->queue.broker_name, all ? NULL : stored_message_tag_wanted,
                             all ? NULL : topic->expression, &error);
    *count = messages->result.count;
    if (rv != 0 || messages->result.count == 0) {
        stored_messages_free(messages);
        return rv;
    }
    restore_topics(assigned, messages);
    if (!stored_messages_unwrap(messages, consumer->client->name_space)) {
        stored_messages_free(messages);
        return ERROR_NO_MEMORY;
    }
    if (consumer->kind == CONSUMER_LITE)
        return lite_ready(assigned, messages, next_offset);
    struct pulled *pulled = pulled_new(messages);
    if (pulled == NULL)
        return ERROR_NO_MEMORY;
    rv = process_queue_put(&assigned->messages, pulled);
    if (rv == 0)
        consume_added(assigned, pulled);
    pulled_release(pulled);
    return rv;
}

static void found(struct assigned *assigned, const struct remoting_command *answer,
                  const struct pull_message_response_header *header, int64_t took_ms)
{
    struct consumer *consumer = assigned->consumer;
    struct consumer_topic *topic = consumer_topic_find(consumer, assigned->queue.topic);
    int64_t from = assigned->next_offset;
    size_t count = 0;
    assigned->next_offset = header->next_begin_offset;
    int rv = answer->code == RESPONSE_SUCCESS ? take_messages(assigned, answer, header->next_begin_offset, &count) : 0;
    if (rv != 0) {
        /* Short memory passes; a damaged record does not, but another replica may have a good one. */
        assigned->next_offset = from;
        assigned_go_later(assigned, CONSUMER_RETRY_MS_MAX);
        return;
    }
    if (topic != NULL)
        consumer_stats_pulled(&topic->stats, remoting_client_now_ms(remoting_of(assigned)), took_ms, count);
    if (count == 0)
        note_skipped(assigned, header->next_begin_offset);
    if (assigned->state != ASSIGNED_IDLE || atomic_load(&assigned->dropped))
        return;
    if (consumer->options.pull_interval_ms > 0 && count > 0)
        assigned_go_later(assigned, consumer->options.pull_interval_ms);
    else
        assigned_go(assigned);
}

static void pull_done(struct remoting_call *call, int rv, const struct remoting_command *answer, const char *cause)
{
    struct assigned *assigned = call->context;
    struct ledgermq_client *client = assigned->consumer->client;
    struct pull_message_response_header header;
    struct error error;
    int64_t took_ms = remoting_client_now_ms(client->remoting) - call->sent_ms;
    (void)cause;
    assigned->state = ASSIGNED_IDLE;
    if (rv != 0) {
        look_for_broker(assigned);
        return;
    }
    switch (answer->code) {
    case RESPONSE_SUCCESS:
    case RESPONSE_PULL_NOT_FOUND:
    case RESPONSE_PULL_RETRY_IMMEDIATELY:
    case RESPONSE_PULL_OFFSET_MOVED:
        break;
    case RESPONSE_SERVICE_NOT_AVAILABLE:
    case RESPONSE_SYSTEM_BUSY:
        look_for_broker(assigned);
        return;
    case RESPONSE_SUBSCRIPTION_NOT_EXIST:
    case RESPONSE_SUBSCRIPTION_NOT_LATEST:
    case RESPONSE_FILTER_DATA_NOT_EXIST:
    case RESPONSE_FILTER_DATA_NOT_LATEST:
        /* A broker that has just started knows of nobody. */
        client_group_greet_again(client, assigned->address);
        assigned->failures++;
        assigned_go_later(assigned, consumer_retry_ms(assigned->failures));
        return;
    default:
        assigned_go_later(assigned, CONSUMER_PULL_REFUSED_MS);
        return;
    }
    if (pull_message_response_header_decode(answer, &header, &error) != 0 || header.next_begin_offset < 0) {
        assigned_go_later(assigned, CONSUMER_PULL_REFUSED_MS);
        return;
    }
    if (answer->code != RESPONSE_PULL_OFFSET_MOVED) {
        assigned->failures = 0;
        assigned->suggested_id = header.suggest_which_broker_id;
        found(assigned, answer, &header, took_ms);
        return;
    }
    /* Only the leader knows where the queue ends. */
    if (!assigned->from_leader) {
        look_for_broker(assigned);
        return;
    }
    assigned->failures = 0;
    /* The offset lies outside the queue. An answer that names the same place again, or a queue that is empty, must not
     * make this a loop without pauses. */
    if (header.next_begin_offset == assigned->next_offset) {
        assigned_go_later(assigned, CONSUMER_RETRY_MS_MAX);
        return;
    }
    assigned_jump(assigned, header.next_begin_offset);
}

static void pull(struct assigned *assigned)
{
    struct consumer *consumer = assigned->consumer;
    const struct consumer_topic *topic = consumer_topic_find(consumer, assigned->queue.topic);
    struct offset_entry *entry = offset_store_find(&consumer->offsets, &assigned->queue);
    struct remoting_writer writer;
    int64_t commit = consumer->broadcast || consumer->kind == CONSUMER_LITE || entry == NULL ? 0 : entry->offset;
    assigned->call.done = pull_done;
    assigned->call.context = assigned;
    if (!begin(assigned, REQUEST_PULL_MESSAGE, assigned->suggested_id, CONSUMER_PULL_TIMEOUT_MS, &writer))
        return;
    struct pull_message_request_header header = {
        .consumer_group = slice_of_text(consumer->options.group),
        .topic = slice_of_text(assigned->queue.topic),
        .queue_id = assigned->queue.queue_id,
        .queue_offset = assigned->next_offset,
        .max_msg_nums = consumer->options.pull_batch,
        .sys_flag = SYS_FLAG_SUSPEND | (commit > 0 ? SYS_FLAG_COMMIT_OFFSET : 0) |
                    (consumer->kind == CONSUMER_LITE ? SYS_FLAG_LITE_PULL : 0),
        .commit_offset = commit > 0 ? commit : 0,
        .suspend_timeout_ms = CONSUMER_PULL_HOLD_MS,
        .sub_version = topic == NULL ? 0 : topic->version_ms,
        .expression_type = slice_of_text(topic != NULL && topic->sql ? EXPRESSION_TYPE_SQL92 : EXPRESSION_TYPE_TAG),
    };
    /* Tags go with each request, so that a broker that has just started can serve it. An SQL92 expression is compiled
     * once, from the heart-beat. A topic without subscription was assigned. */
    if (topic == NULL || !topic->sql) {
        header.sys_flag |= SYS_FLAG_SUBSCRIPTION;
        header.subscription = slice_of_text(topic == NULL ? SUBSCRIPTION_ALL : topic->expression);
    }
    pull_message_request_header_encode(&header, &writer);
    assigned->last_pull_ms = client_clock_ms();
    const struct topic_route *route = route_table_get(consumer->client->routes, assigned->queue.topic);
    const struct route_broker *broker = route == NULL ? NULL : topic_route_broker(route, assigned->queue.broker_name);
    const char *leader = broker == NULL ? NULL : route_broker_leader(broker);
    assigned->from_leader = leader != NULL && strcmp(leader, assigned->address) == 0;
    end(assigned, &writer, ASSIGNED_PULLING);
}

void assigned_go(struct assigned *assigned)
{
    struct consumer *consumer = assigned->consumer;
    if (assigned->state != ASSIGNED_IDLE || atomic_load(&assigned->dropped) || atomic_load(&consumer->stopping) ||
        consumer->suspended || assigned->paused)
        return;
    if (consumer->kind == CONSUMER_ORDERLY && !consumer->broadcast && !assigned->locked)
        return;
    if (assigned->next_offset < 0) {
        ask_where(assigned);
        return;
    }
    const struct process_queue_limits limits = {
        .messages = (size_t)consumer->options.cache_messages_max,
        .bytes = (size_t)consumer->options.cache_mib_max << 20,
        .span = consumer->kind == CONSUMER_ORDERLY ? 0 : consumer->options.cache_span_max,
    };
    if (consumer->kind == CONSUMER_LITE ? lite_full(assigned) : process_queue_full(&assigned->messages, &limits) != NULL)
        return;
    pull(assigned);
}

void assigned_advance(struct assigned *assigned)
{
    int64_t offset = process_queue_commit_offset(&assigned->messages);
    if (offset >= 0)
        offset_store_update(&assigned->consumer->offsets, &assigned->queue, offset, true);
    assigned_go(assigned);
}
