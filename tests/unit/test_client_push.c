/* Push and lite pull consumers against a broker that answers by a script: places, refusals, limits, locks, the end. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/ledgermq.h"
#include "proto/headers.h"
#include "proto/message.h"
#include "proto/request_code.h"
#include "proto/response_code.h"
#include "tests/lib/fake_server.h"
#include "tests/lib/run_suite.h"

#define TRACE_MAX 512

static struct {
    struct fake_server name_server, broker;
    char route[64], dead_route[64]; /* "" none: a broker that nobody is, before the other */
    pthread_mutex_t lock; /* guards the rest */
    int64_t stored;       /* offset that the broker keeps, -1 none */
    int64_t min, max;     /* of the queue */
    int refuse_pulls;     /* so many pulls are answered refusal */
    int refusal;
    int refuse_locks;
    int silent_commits; /* so many are not kept, nor answered: another member is said to have come */
    bool another_member;
    int send_back_code;
    int trace[TRACE_MAX]; /* codes of requests in their order; heart-beats left out */
    int trace_count;
    int heartbeats, send_backs;
    int64_t committed, asked_timestamp, sent_back_offset;
    int delay_level;
    int64_t most_asked;
    char subscription[64];
} world = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct ledgermq_client *client;
static struct ledgermq_error error;

static enum fake_reaction route_script(struct fake_server *server, struct remoting_command *request,
                                       struct buffer *out)
{
    (void)server;
    const char *brokers[] = {world.dead_route[0] != '\0' ? world.dead_route : world.route,
                             world.dead_route[0] != '\0' ? world.route : NULL, NULL};
    if (slice_equal_text(remoting_ext(request, "topic"), "T"))
        fake_answer_route(out, request, brokers, 1, 6);
    else
        fake_answer(out, request, RESPONSE_TOPIC_NOT_EXIST, "no route", slice_of(NULL, 0));
    return FAKE_ANSWER;
}

static void append_record(struct buffer *out, int64_t offset)
{
    char body[16];
    struct message_record record = {.queue_offset = offset,
                                    .physical_offset = 1000 + offset,
                                    .topic = SLICE_LITERAL("T"),
                                    .properties = SLICE_LITERAL("TAGS\001a"),
                                    .born_timestamp_ms = 1};
    record.body = slice_of(body, (size_t)snprintf(body, sizeof body, "m%lld", (long long)offset));
    ck_assert(message_host_parse(SLICE_LITERAL("127.0.0.1:1"), &record.born_host));
    record.store_host = record.born_host;
    uint8_t *at = buffer_reserve(out, message_record_size(&record));
    out->size += message_record_encode(&record, slice_of(NULL, 0), at);
}

static enum fake_reaction answer_pull(struct remoting_command *request, struct buffer *out)
{
    struct remoting_writer writer;
    int64_t offset = fake_number(request, "queueOffset"), count = fake_number(request, "maxMsgNums"), next = offset;
    int code = RESPONSE_SUCCESS;
    fake_keep_text(world.subscription, sizeof world.subscription, remoting_ext(request, "subscription"));
    if (world.refuse_pulls > 0) {
        world.refuse_pulls--;
        fake_answer(out, request, world.refusal, "refused", slice_of(NULL, 0));
        return FAKE_ANSWER;
    }
    if (offset == world.max)
        return FAKE_SILENCE; /* held */
    if (offset < world.min || offset > world.max) {
        code = RESPONSE_PULL_OFFSET_MOVED;
        next = offset < world.min ? world.min : world.max;
    } else {
        next = offset + count < world.max ? offset + count : world.max;
    }
    remoting_writer_begin_response(&writer, out, request->serialize_type, code, request->opaque, NULL);
    const struct pull_message_response_header header = {
        .next_begin_offset = next, .min_offset = world.min, .max_offset = world.max};
    pull_message_response_header_encode(&header, &writer);
    remoting_writer_body(&writer);
    for (; code == RESPONSE_SUCCESS && offset < next; offset++)
        append_record(out, offset);
    remoting_writer_end(&writer, 0);
    world.most_asked = next > world.most_asked ? next : world.most_asked;
    return FAKE_ANSWER;
}

static void answer_offset(struct remoting_command *request, struct buffer *out, int64_t offset)
{
    struct remoting_writer writer;
    remoting_writer_begin_response(&writer, out, request->serialize_type, 0, request->opaque, NULL);
    remoting_writer_ext_i64(&writer, "offset", offset);
    remoting_writer_end(&writer, 0);
}

static enum fake_reaction answer(struct remoting_command *request, struct buffer *out)
{
    char text[512];
    static const char queue[] = "{\"lockOKMQSet\":[{\"brokerName\":\"broker-a\",\"queueId\":0,\"topic\":\"T\"}]}";
    switch (request->code) {
    case REQUEST_PULL_MESSAGE:
        return answer_pull(request, out);
    case REQUEST_GET_CONSUMER_LIST_BY_GROUP:
        snprintf(text, sizeof text, "{\"consumerIdList\":[%s\"%s\"]}", world.another_member ? "\"!\"," : "", ledgermq_client_id(client));
        fake_answer(out, request, 0, NULL, slice_of_text(text));
        return FAKE_ANSWER;
    case REQUEST_QUERY_CONSUMER_OFFSET:
        if (world.stored < 0)
            fake_answer(out, request, RESPONSE_QUERY_NOT_FOUND, "Not found", slice_of(NULL, 0));
        else
            answer_offset(request, out, world.stored);
        return FAKE_ANSWER;
    case REQUEST_UPDATE_CONSUMER_OFFSET:
        if (world.silent_commits-- > 0) {
            struct remoting_writer writer;
            world.another_member = true;
            remoting_writer_begin_request(&writer, out, REMOTING_JSON, REQUEST_NOTIFY_CONSUMER_IDS_CHANGED, 1, REMOTING_FLAG_ONEWAY);
            remoting_writer_ext_text(&writer, "consumerGroup", "g");
            remoting_writer_end(&writer, 0);
            return FAKE_ANSWER;
        }
        world.committed = world.stored = fake_number(request, "commitOffset");
        break;
    case REQUEST_GET_MAX_OFFSET:
        answer_offset(request, out, world.max);
        return FAKE_ANSWER;
    case REQUEST_GET_MIN_OFFSET:
        answer_offset(request, out, world.min);
        return FAKE_ANSWER;
    case REQUEST_SEARCH_OFFSET_BY_TIMESTAMP:
        world.asked_timestamp = fake_number(request, "timestamp");
        answer_offset(request, out, 7);
        return FAKE_ANSWER;
    case REQUEST_CONSUMER_SEND_MSG_BACK:
        world.send_backs++;
        world.sent_back_offset = fake_number(request, "offset");
        world.delay_level = (int)fake_number(request, "delayLevel");
        fake_answer(out, request, world.send_back_code, "", slice_of(NULL, 0));
        return FAKE_ANSWER;
    case REQUEST_LOCK_BATCH_MQ:
        if (world.refuse_locks > 0)
            fake_answer(out, request, 0, NULL, SLICE_LITERAL("{\"lockOKMQSet\":[]}"));
        else
            fake_answer(out, request, 0, NULL, slice_of_text(queue));
        world.refuse_locks--;
        return FAKE_ANSWER;
    default:
        break;
    }
    fake_answer(out, request, 0, NULL, slice_of(NULL, 0));
    return FAKE_ANSWER;
}

/* Answers of 36 may take their time. */
static int send_back_slow_ms;

static enum fake_reaction broker_script(struct fake_server *server, struct remoting_command *request,
                                        struct buffer *out)
{
    (void)server;
    pthread_mutex_lock(&world.lock);
    if (request->code == REQUEST_HEART_BEAT)
        world.heartbeats++;
    else if (world.trace_count < TRACE_MAX)
        world.trace[world.trace_count++] = request->code;
    enum fake_reaction reaction = answer(request, out);
    pthread_mutex_unlock(&world.lock);
    if (request->code == REQUEST_CONSUMER_SEND_MSG_BACK)
        usleep((useconds_t)send_back_slow_ms * 1000);
    return reaction;
}

/* --- what the application gets ---- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t open;
    bool closed; /* calls wait */
    int64_t later; /* offset that is to come again once, -1 none */
    bool later_done;
    int count, last_reconsumed;
    int64_t offsets[256];
    char topic[64];
    int delay_level;
} app = {.lock = PTHREAD_MUTEX_INITIALIZER, .open = PTHREAD_COND_INITIALIZER};

static int on_messages(void *context, const struct ledgermq_stored_message *messages, size_t count,
                       struct ledgermq_consume_context *how)
{
    int status = LEDGERMQ_CONSUME_SUCCESS;
    ck_assert_ptr_eq(context, &app);
    ck_assert_str_eq(how->queue->topic, "T");
    pthread_mutex_lock(&app.lock);
    for (size_t i = 0; i < count; i++) {
        if (app.count < 256)
            app.offsets[app.count++] = messages[i].queue_offset;
        app.last_reconsumed = messages[i].reconsume_times;
        if (messages[i].queue_offset == app.later && !app.later_done) {
            app.later_done = true;
            how->delay_level = app.delay_level;
            status = LEDGERMQ_CONSUME_LATER;
        }
    }
    while (app.closed)
        pthread_cond_wait(&app.open, &app.lock);
    pthread_mutex_unlock(&app.lock);
    return status;
}

static int app_count(void)
{
    pthread_mutex_lock(&app.lock);
    int count = app.count;
    pthread_mutex_unlock(&app.lock);
    return count;
}

static void app_gate(bool closed)
{
    pthread_mutex_lock(&app.lock);
    app.closed = closed;
    pthread_cond_broadcast(&app.open);
    pthread_mutex_unlock(&app.lock);
}

static int64_t world_value(const int64_t *value)
{
    pthread_mutex_lock(&world.lock);
    int64_t now = *value;
    pthread_mutex_unlock(&world.lock);
    return now;
}

static int times(int code)
{
    int count = 0;
    pthread_mutex_lock(&world.lock);
    for (int i = 0; i < world.trace_count; i++)
        count += world.trace[i] == code;
    pthread_mutex_unlock(&world.lock);
    return count;
}

#define WAIT_FOR(condition)                                                                                  \
    do {                                                                                                     \
        for (int wait_ = 0; wait_ < 20000 && !(condition); wait_++)                                          \
            usleep(1000);                                                                                    \
        ck_assert_msg(condition, "not in time: " #condition);                                                \
    } while (0)

static struct ledgermq_push_consumer_options options;
static struct ledgermq_push_consumer *push;

static void set_up(void)
{
    struct ledgermq_client_options client_options;
    fake_server_start(&world.name_server, 0, route_script, NULL);
    fake_server_start(&world.broker, 0, broker_script, NULL);
    snprintf(world.route, sizeof world.route, "broker-a=%s", world.broker.address);
    world.stored = world.committed = world.asked_timestamp = -1;
    world.max = 20;
    ledgermq_client_options_init(&client_options);
    client_options.name_servers = world.name_server.address;
    ck_assert_int_eq(ledgermq_client_new(&client_options, &client, &error), LEDGERMQ_OK);
    app.later = -1;
    ledgermq_push_consumer_options_init(&options);
    options.group = "g";
    options.consume = on_messages;
    options.context = &app;
    options.consume_threads = 2;
    options.consume_from = LEDGERMQ_FROM_FIRST_OFFSET;
}

static void tear_down(void)
{
    ledgermq_client_free(client);
    fake_server_stop(&world.name_server);
    fake_server_stop(&world.broker);
}

static void start(const char *expression)
{
    ck_assert_int_eq(ledgermq_push_consumer_new(client, &options, &push, &error), LEDGERMQ_OK);
    ck_assert_int_eq(ledgermq_push_consumer_subscribe(push, "T", expression, &error), LEDGERMQ_OK);
    ck_assert_msg(ledgermq_push_consumer_start(push, &error) == LEDGERMQ_OK, "%s", error.message);
}

START_TEST(what_is_consumed_is_committed_at_the_end)
{
    options.consume_batch = 3;
    options.pull_batch = 10;
    start("a || b");
    WAIT_FOR(app_count() == 20);
    ck_assert_int_eq(times(REQUEST_GET_MAX_OFFSET), 0);
    struct ledgermq_queue *queues;
    size_t count;
    ck_assert_int_eq(ledgermq_push_consumer_queues(push, &queues, &count, &error), LEDGERMQ_OK);
    ck_assert(count == 1 && strcmp(queues[0].topic, "T") == 0 && strcmp(queues[0].broker_name, "broker-a") == 0);
    ledgermq_queues_free(queues);
    ck_assert_int_eq(ledgermq_push_consumer_start(push, &error), LEDGERMQ_INVALID);
    ledgermq_push_consumer_free(push);
    ck_assert_str_eq(world.subscription, "a || b");
    ck_assert_int_eq(world.committed, 20);
    ck_assert_int_eq(world.trace[world.trace_count - 1], REQUEST_UNREGISTER_CLIENT);
    ck_assert_int_eq(times(REQUEST_CONSUMER_SEND_MSG_BACK), 0);
}
END_TEST

/* An expression that no message passes: the offset moves on all the same. */
START_TEST(what_the_filter_leaves_out_is_committed_too)
{
    start("other");
    WAIT_FOR(world_value(&world.most_asked) == 20);
    usleep(50000);
    ledgermq_push_consumer_free(push);
    ck_assert_int_eq(app.count, 0);
    ck_assert_int_eq(world.committed, 20);
}
END_TEST

START_TEST(a_group_without_offset_begins_where_it_says)
{
    static const int asked[] = {REQUEST_GET_MAX_OFFSET, 0, REQUEST_SEARCH_OFFSET_BY_TIMESTAMP};
    options.consume_from = _i;
    options.consume_timestamp_ms = 1700000000123;
    start(NULL);
    if (asked[_i] != 0)
        WAIT_FOR(times(asked[_i]) == 1);
    WAIT_FOR(times(REQUEST_PULL_MESSAGE) > 0);
    if (_i != LEDGERMQ_FROM_LAST_OFFSET)
        WAIT_FOR(app_count() == (_i == LEDGERMQ_FROM_TIMESTAMP ? 13 : 20));
    ledgermq_push_consumer_free(push);
    ck_assert_int_eq(app.count, _i == LEDGERMQ_FROM_LAST_OFFSET ? 0 : _i == LEDGERMQ_FROM_TIMESTAMP ? 13 : 20);
    ck_assert_int_eq(world.asked_timestamp, _i == LEDGERMQ_FROM_TIMESTAMP ? 1700000000123 : -1);
}
END_TEST

START_TEST(an_offset_outside_the_queue_becomes_a_legal_one)
{
    world.stored = _i == 0 ? 2 : 500;
    world.min = 10;
    start("*");
    if (_i == 0) {
        WAIT_FOR(app_count() == 10);
    } else {
        WAIT_FOR(times(REQUEST_PULL_MESSAGE) == 2);
    }
    ledgermq_push_consumer_free(push);
    for (int i = 0; i < app.count; i++)
        ck_assert_int_ge(app.offsets[i], 10);
    ck_assert_int_eq(world.committed, 20);
}
END_TEST

/* A broker that has just started knows nobody; one that does not lead is asked again. */
START_TEST(refusals_that_pass)
{
    static const int codes[] = {RESPONSE_SUBSCRIPTION_NOT_EXIST, RESPONSE_SUBSCRIPTION_NOT_LATEST,
                                RESPONSE_SERVICE_NOT_AVAILABLE, RESPONSE_SYSTEM_BUSY};
    world.refuse_pulls = 3;
    world.refusal = codes[_i];
    start("*");
    WAIT_FOR(app_count() == 20);
    ck_assert_int_ge(times(REQUEST_PULL_MESSAGE), 4);
    ledgermq_push_consumer_free(push);
    if (_i < 2)
        ck_assert_int_ge(world.heartbeats, 2);
}
END_TEST

/* A topic on two brokers, the first of which is gone: the other one names the members. */
START_TEST(any_broker_names_the_members)
{
    snprintf(world.dead_route, sizeof world.dead_route, "a-broker=127.0.0.1:%d", fake_server_free_port());
    start("*");
    WAIT_FOR(app_count() == 20);
    ledgermq_push_consumer_free(push);
    ck_assert_int_eq(world.committed, 20);
}
END_TEST

START_TEST(a_message_that_is_to_come_later_is_sent_back)
{
    app.later = 5;
    app.delay_level = 2;
    send_back_slow_ms = 100; /* the end waits for it */
    start("*");
    WAIT_FOR(app_count() == 20);
    WAIT_FOR(times(REQUEST_CONSUMER_SEND_MSG_BACK) == 1);
    ledgermq_push_consumer_free(push);
    ck_assert_int_eq(world.sent_back_offset, 1005);
    ck_assert_int_eq(world.delay_level, 2);
    ck_assert_int_eq(world.committed, 20);
}
END_TEST

START_TEST(a_message_that_cannot_be_sent_back_is_consumed_again)
{
    app.later = 5;
    world.send_back_code = RESPONSE_SYSTEM_ERROR;
    start("*");
    WAIT_FOR(app_count() == 21);
    ledgermq_push_consumer_free(push);
    ck_assert_int_eq(app.offsets[20], 5);
    ck_assert_int_eq(app.last_reconsumed, 1);
    ck_assert_int_eq(world.send_backs, 4);
    ck_assert_int_eq(world.committed, 20);
}
END_TEST

START_TEST(reading_pauses_while_enough_waits)
{
    world.max = 200;
    options.cache_messages_max = 20;
    options.pull_batch = 10;
    options.consume_threads = 1;
    app_gate(true);
    start("*");
    WAIT_FOR(app_count() == 1);
    WAIT_FOR(times(REQUEST_PULL_MESSAGE) == 3);
    usleep(100000);
    ck_assert_int_eq(times(REQUEST_PULL_MESSAGE), 3);
    ck_assert_int_eq(world_value(&world.most_asked), 30);
    app_gate(false);
    WAIT_FOR(app_count() == 200);
    ledgermq_push_consumer_free(push);
    ck_assert_int_eq(world.committed, 200);
}
END_TEST

static void *open_later(void *argument)
{
    (void)argument;
    usleep(200000);
    app_gate(false);
    return NULL;
}

/* What is read ahead but not begun is left to the next one; what runs is waited for. */
START_TEST(the_end_waits_for_calls_that_run)
{
    pthread_t opener;
    options.consume_threads = 1;
    app_gate(true);
    start("*");
    WAIT_FOR(app_count() == 1);
    ck_assert_int_eq(pthread_create(&opener, NULL, open_later, NULL), 0);
    ledgermq_push_consumer_free(push);
    ck_assert(!app.closed);
    ck_assert_int_eq(app.count, 1);
    ck_assert_int_eq(world.committed, 1);
    pthread_join(opener, NULL);
}
END_TEST

START_TEST(a_suspended_consumer_reads_nothing)
{
    ck_assert_int_eq(ledgermq_push_consumer_new(client, &options, &push, &error), LEDGERMQ_OK);
    ledgermq_push_consumer_suspend(push);
    ck_assert_int_eq(ledgermq_push_consumer_subscribe(push, "T", "*", &error), LEDGERMQ_OK);
    ck_assert_int_eq(ledgermq_push_consumer_start(push, &error), LEDGERMQ_OK);
    WAIT_FOR(times(REQUEST_GET_CONSUMER_LIST_BY_GROUP) > 0);
    usleep(50000);
    ck_assert_int_eq(times(REQUEST_PULL_MESSAGE), 0);
    ledgermq_push_consumer_resume(push);
    WAIT_FOR(app_count() == 20);
    ledgermq_push_consumer_suspend(push);
    ledgermq_push_consumer_resume(push);
    WAIT_FOR(times(REQUEST_PULL_MESSAGE) >= 3);
    ck_assert_int_eq(ledgermq_push_consumer_unsubscribe(push, "Other", &error), LEDGERMQ_NOT_FOUND);
    ck_assert_int_eq(ledgermq_push_consumer_unsubscribe(push, "T", &error), LEDGERMQ_OK);
    WAIT_FOR(world_value(&world.committed) == 20);
    struct ledgermq_queue *queues;
    size_t count;
    ck_assert_int_eq(ledgermq_push_consumer_queues(push, &queues, &count, &error), LEDGERMQ_OK);
    ck_assert_uint_eq(count, 0);
    ledgermq_queues_free(queues);
    ledgermq_push_consumer_free(push);
    ck_assert_int_eq(app.count, 20);
}
END_TEST

START_TEST(in_order_behind_a_lock)
{
    options.orderly = true;
    options.suspend_ms = 20;
    world.refuse_locks = 2;
    app.later = 5;
    start("*");
    WAIT_FOR(app_count() == 21);
    ck_assert_int_ge(times(REQUEST_LOCK_BATCH_MQ), 3);
    ledgermq_push_consumer_free(push);
    for (int i = 0; i < 21; i++)
        ck_assert_int_eq(app.offsets[i], i <= 5 ? i : i - 1);
    /* The last words: the offset, then the lock, then the group. */
    ck_assert_int_eq(world.committed, 20);
    ck_assert_int_ge(world.trace_count, 3);
    const int *last = &world.trace[world.trace_count - 3];
    ck_assert_int_eq(last[0], REQUEST_UPDATE_CONSUMER_OFFSET);
    ck_assert_int_eq(last[1], REQUEST_UNLOCK_BATCH_MQ);
    ck_assert_int_eq(last[2], REQUEST_UNREGISTER_CLIENT);
    /* No place was asked for before there was a lock. */
    int i = 0;
    while (world.trace[i] != REQUEST_QUERY_CONSUMER_OFFSET && world.trace[i] != REQUEST_LOCK_BATCH_MQ)
        i++;
    ck_assert_int_eq(world.trace[i], REQUEST_LOCK_BATCH_MQ);
}
END_TEST

/* A queue goes to another member while its offset is under way: it is free only once that was answered, or said again. */
START_TEST(an_offset_under_way_is_waited_for)
{
    options.orderly = true;
    world.silent_commits = 1;
    start("*");
    WAIT_FOR(times(REQUEST_UNLOCK_BATCH_MQ) == 1);
    ck_assert_int_eq(app_count(), 20);
    ck_assert_int_eq(world_value(&world.committed), 20);
    ck_assert_int_eq(times(REQUEST_UPDATE_CONSUMER_OFFSET), 2);
    ledgermq_push_consumer_free(push);
}
END_TEST

START_TEST(in_order_a_message_is_given_up_at_last)
{
    options.orderly = true;
    options.max_reconsume_times = 0;
    app.later = 5;
    start("*");
    WAIT_FOR(app_count() == 20);
    ledgermq_push_consumer_free(push);
    ck_assert_int_eq(world.send_backs, 1);
    ck_assert_int_eq(world.delay_level, -1);
    ck_assert_int_eq(world.sent_back_offset, 1005);
    ck_assert_int_eq(world.committed, 20);
}
END_TEST

static int poll_all(struct ledgermq_lite_pull_consumer *lite, int64_t first, int count)
{
    int had = 0;
    while (had < count) {
        struct ledgermq_pull_result *result;
        if (ledgermq_lite_pull_poll(lite, 300, &result, &error) != LEDGERMQ_OK)
            break;
        for (size_t i = 0; i < result->count; i++)
            ck_assert_int_eq(result->messages[i].queue_offset, first + had + (int64_t)i);
        had += (int)result->count;
        ledgermq_pull_result_free(result);
    }
    return had;
}

START_TEST(polls_seek_pause_and_commit)
{
    struct ledgermq_lite_pull_consumer_options lite_options;
    struct ledgermq_lite_pull_consumer *lite;
    struct ledgermq_pull_result *result;
    struct ledgermq_queue queue = {.topic = "T", .broker_name = "broker-a"}, other = {.topic = "T", .broker_name = "b"};
    int64_t offset;
    ledgermq_lite_pull_consumer_options_init(&lite_options);
    lite_options.group = "g";
    lite_options.consume_from = LEDGERMQ_FROM_FIRST_OFFSET;
    lite_options.auto_commit = _i == 1;
    ck_assert_int_eq(ledgermq_lite_pull_consumer_new(client, &lite_options, &lite, &error), LEDGERMQ_OK);
    if (_i == 0) {
        ck_assert_int_eq(ledgermq_lite_pull_subscribe(lite, "T", "*", &error), LEDGERMQ_OK);
        ck_assert_int_eq(ledgermq_lite_pull_assign(lite, &queue, 1, &error), LEDGERMQ_INVALID);
    } else {
        ck_assert_int_eq(ledgermq_lite_pull_assign(lite, &queue, 1, &error), LEDGERMQ_OK);
        ck_assert_int_eq(ledgermq_lite_pull_subscribe(lite, "T", "*", &error), LEDGERMQ_INVALID);
    }
    ck_assert_int_eq(poll_all(lite, 0, 20), 20);
    ck_assert_int_eq(ledgermq_lite_pull_poll(lite, 0, &result, &error), LEDGERMQ_TIMEOUT);
    ck_assert_int_eq(ledgermq_lite_pull_seek(lite, &other, 3, &error), LEDGERMQ_NOT_FOUND);
    ck_assert_int_eq(ledgermq_lite_pull_seek(lite, &queue, -1, &error), LEDGERMQ_INVALID);
    ck_assert_int_eq(ledgermq_lite_pull_seek(lite, &queue, 3, &error), LEDGERMQ_OK);
    ck_assert_int_eq(poll_all(lite, 3, 17), 17);
    ck_assert_int_eq(ledgermq_lite_pull_pause(lite, &queue, &error), LEDGERMQ_OK);
    ck_assert_int_eq(ledgermq_lite_pull_seek_to_begin(lite, &queue, &error), LEDGERMQ_OK);
    ck_assert_int_eq(ledgermq_lite_pull_poll(lite, 50, &result, &error), LEDGERMQ_TIMEOUT);
    ck_assert_int_eq(ledgermq_lite_pull_resume(lite, &queue, &error), LEDGERMQ_OK);
    ck_assert_int_eq(poll_all(lite, 0, 10), 10);
    if (_i == 0)
        ck_assert_int_eq(world_value(&world.committed), -1);
    ck_assert_int_eq(ledgermq_lite_pull_commit(lite, &error), LEDGERMQ_OK);
    ck_assert_int_eq(world_value(&world.committed), 10);
    ck_assert_int_eq(ledgermq_lite_pull_committed(lite, &queue, &offset, &error), LEDGERMQ_OK);
    ck_assert_int_eq(offset, 10);
    ck_assert_int_eq(poll_all(lite, 10, 10), 10);
    ck_assert_int_eq(ledgermq_lite_pull_seek_to_end(lite, &queue, &error), LEDGERMQ_OK);
    ck_assert_int_eq(ledgermq_lite_pull_offset_for_timestamp(lite, &queue, 99, &offset, &error), LEDGERMQ_OK);
    ck_assert_int_eq(offset, 7);
    ck_assert_int_eq(ledgermq_lite_pull_seek(lite, &queue, 15, &error), LEDGERMQ_OK);
    ck_assert_int_eq(poll_all(lite, 15, 5), 5);
    ledgermq_lite_pull_consumer_free(lite);
    ck_assert_int_eq(world.committed, _i == 0 ? 10 : 20);
}
END_TEST

START_TEST(wrong_options)
{
    struct ledgermq_push_consumer *second;
    struct ledgermq_push_consumer_options bad = options;
    bad.group = NULL;
    ck_assert_int_eq(ledgermq_push_consumer_new(client, &bad, &push, &error), LEDGERMQ_INVALID);
    bad = options;
    bad.consume_threads = 0;
    ck_assert_int_eq(ledgermq_push_consumer_new(client, &bad, &push, &error), LEDGERMQ_INVALID);
    ck_assert_str_eq(error.message, "consume_threads is 0; it must be 1 to 1000");
    bad = options;
    bad.group = "a b";
    ck_assert_int_eq(ledgermq_push_consumer_new(client, &bad, &push, &error), LEDGERMQ_INVALID);
    start("*");
    ck_assert_int_eq(ledgermq_push_consumer_subscribe(push, "T", "||", &error), LEDGERMQ_INVALID);
    ck_assert_int_eq(ledgermq_push_consumer_subscribe(push, "a b", "*", &error), LEDGERMQ_INVALID);
    ck_assert_int_eq(ledgermq_push_consumer_subscribe(push, NULL, "*", &error), LEDGERMQ_INVALID);
    ck_assert_int_eq(ledgermq_push_consumer_new(client, &options, &second, &error), LEDGERMQ_OK);
    ck_assert_int_eq(ledgermq_push_consumer_start(second, &error), LEDGERMQ_INVALID);
    ck_assert_ptr_nonnull(strstr(error.message, "has a consumer of group g already"));
    ledgermq_push_consumer_free(second);
    ledgermq_push_consumer_free(NULL);
    ledgermq_lite_pull_consumer_free(NULL);
    WAIT_FOR(app_count() == 20); /* the first one is not disturbed; the client frees it */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_push");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, what_is_consumed_is_committed_at_the_end);
    tcase_add_test(tcase, what_the_filter_leaves_out_is_committed_too);
    tcase_add_loop_test(tcase, a_group_without_offset_begins_where_it_says, 0, 3);
    tcase_add_loop_test(tcase, an_offset_outside_the_queue_becomes_a_legal_one, 0, 2);
    tcase_add_loop_test(tcase, refusals_that_pass, 0, 4);
    tcase_add_test(tcase, any_broker_names_the_members);
    tcase_add_test(tcase, a_message_that_is_to_come_later_is_sent_back);
    tcase_add_test(tcase, a_message_that_cannot_be_sent_back_is_consumed_again);
    tcase_add_test(tcase, reading_pauses_while_enough_waits);
    tcase_add_test(tcase, the_end_waits_for_calls_that_run);
    tcase_add_test(tcase, a_suspended_consumer_reads_nothing);
    tcase_add_test(tcase, in_order_behind_a_lock);
    tcase_add_test(tcase, an_offset_under_way_is_waited_for);
    tcase_add_test(tcase, in_order_a_message_is_given_up_at_last);
    tcase_add_loop_test(tcase, polls_seek_pause_and_commit, 0, 2);
    tcase_add_test(tcase, wrong_options);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
