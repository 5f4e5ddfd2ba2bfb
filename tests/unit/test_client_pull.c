/* The pull consumer and queries against servers that answer by a script: requests, statuses, records, errors. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "client/ledgermq.h"
#include "client/remoting_client.h"
#include "proto/message.h"
#include "proto/request_code.h"
#include "proto/response_code.h"
#include "tests/lib/fake_server.h"
#include "tests/lib/run_suite.h"

static struct {
    struct fake_server name_server, broker, other;
    const char *brokers[3], *later_brokers[3];
    bool later; /* name_server answers later_brokers */
    int code;
    atomic_int busy; /* so many requests are answered 14 */
    struct buffer records;
    char last[20][80]; /* ext fields of the last request, "name=value" */
    int last_count;
    atomic_int reads, heartbeats;
    char heartbeat[2048];
    pthread_mutex_t lock;
} world = {.lock = PTHREAD_MUTEX_INITIALIZER};

static char names[4][96];

static const char *broker_at(int slot, const char *name, const char *address)
{
    snprintf(names[slot], sizeof names[slot], "%s=%s", name, address);
    return names[slot];
}

static enum fake_reaction route_script(struct fake_server *server, struct remoting_command *request,
                                       struct buffer *out)
{
    (void)server;
    if (slice_equal_text(remoting_ext(request, "topic"), "Unknown"))
        fake_answer(out, request, RESPONSE_TOPIC_NOT_EXIST, "No topic route info", slice_of(NULL, 0));
    else
        fake_answer_route(out, request, world.later ? world.later_brokers : world.brokers, 3, 6);
    return FAKE_ANSWER;
}

static bool asked(const char *text)
{
    for (int i = 0; i < world.last_count; i++)
        if (strcmp(world.last[i], text) == 0)
            return true;
    return false;
}

static void answer_read(const struct remoting_command *request, struct buffer *out)
{
    struct remoting_writer writer;
    remoting_writer_begin_response(&writer, out, request->serialize_type, world.code, request->opaque, "REMARK");
    switch (request->code) {
    case REQUEST_PULL_MESSAGE:
        remoting_writer_ext_i64(&writer, "suggestWhichBrokerId", 0);
        remoting_writer_ext_i64(&writer, "nextBeginOffset", 12);
        remoting_writer_ext_i64(&writer, "minOffset", 3);
        remoting_writer_ext_i64(&writer, "maxOffset", 99);
        break;
    default:
        remoting_writer_ext_i64(&writer, "offset", 4711);
        break;
    }
    remoting_writer_body(&writer);
    buffer_append_slice(out, buffer_slice(&world.records));
    remoting_writer_end(&writer, 0);
}

static enum fake_reaction broker_script(struct fake_server *server, struct remoting_command *request,
                                        struct buffer *out)
{
    (void)server;
    if (request->code == REQUEST_HEART_BEAT || request->code == REQUEST_UNREGISTER_CLIENT) {
        pthread_mutex_lock(&world.lock);
        if (request->code == REQUEST_HEART_BEAT)
            fake_keep_text(world.heartbeat, sizeof world.heartbeat, request->body);
        pthread_mutex_unlock(&world.lock);
        world.heartbeats += request->code == REQUEST_HEART_BEAT;
        fake_answer(out, request, 0, NULL, slice_of(NULL, 0));
        return FAKE_ANSWER;
    }
    world.reads++;
    world.last_count = 0;
    for (uint32_t i = 0; i < request->ext_count && i < 20; i++)
        snprintf(world.last[world.last_count++], sizeof world.last[0], "%.*s=%.*s", (int)request->ext[i].name.size,
                 (const char *)request->ext[i].name.data, (int)request->ext[i].value.size,
                 (const char *)request->ext[i].value.data);
    if (world.busy > 0) {
        world.busy--;
        fake_answer(out, request, RESPONSE_SERVICE_NOT_AVAILABLE, "no leader", slice_of(NULL, 0));
        return FAKE_ANSWER;
    }
    answer_read(request, out);
    return FAKE_ANSWER;
}

static void add_record(const char *topic, const char *properties, const void *body, size_t body_size, int sys_flag,
                       int64_t offset)
{
    struct message_record record = {
        .queue_id = 2,
        .flag = 5,
        .queue_offset = offset,
        .physical_offset = 1000 + offset,
        .sys_flag = sys_flag,
        .born_timestamp_ms = 1700000000000,
        .store_timestamp_ms = 1700000000001,
        .reconsume_times = 1,
        .body = slice_of(body, body_size),
        .topic = slice_of_text(topic),
        .properties = slice_of_text(properties),
    };
    ck_assert(message_host_parse(SLICE_LITERAL("127.0.0.1:40000"), &record.born_host));
    ck_assert(message_host_parse(slice_of_text(world.broker.address), &record.store_host));
    uint8_t *at = buffer_reserve(&world.records, message_record_size(&record));
    world.records.size += message_record_encode(&record, slice_of(NULL, 0), at);
}

static struct ledgermq_client *client;
static struct ledgermq_pull_consumer *consumer;
static const struct ledgermq_queue queue = {.topic = "Orders", .broker_name = "broker-a", .queue_id = 2};

static void set_up(void)
{
    struct ledgermq_client_options options;
    struct ledgermq_error error;
    buffer_init(&world.records, 0);
    fake_server_start(&world.name_server, 0, route_script, NULL);
    fake_server_start(&world.broker, 0, broker_script, NULL);
    fake_server_start(&world.other, 0, broker_script, NULL);
    world.brokers[0] = broker_at(0, "broker-a", world.broker.address);
    ledgermq_client_options_init(&options);
    options.name_servers = world.name_server.address;
    options.call_timeout_ms = 1000;
    ck_assert_msg(ledgermq_client_new(&options, &client, &error) == LEDGERMQ_OK, "%s", error.message);
    ck_assert_msg(ledgermq_pull_consumer_new(client, "TestGroup", &consumer, &error) == LEDGERMQ_OK, "%s",
                  error.message);
}

static void tear_down(void)
{
    ledgermq_client_free(client);
    fake_server_stop(&world.name_server);
    fake_server_stop(&world.broker);
    fake_server_stop(&world.other);
    buffer_close(&world.records);
}

START_TEST(test_pull)
{
    struct ledgermq_pull_result *result;
    struct ledgermq_error error = {0};
    add_record("Orders", "KEYS\001k1\002UNIQ_KEY\001ABC\002TAGS\001TagA\002color\001red", "hello", 5, 0, 10);
    add_record("Orders", "", "", 0, 0, 11);
    ck_assert_msg(ledgermq_pull(consumer, &queue, NULL, 10, 32, 0, &result, &error) == LEDGERMQ_OK, "%s",
                  error.message);
    ck_assert_int_eq(result->status, LEDGERMQ_FOUND);
    ck_assert_int_eq(result->next_offset, 12);
    ck_assert_int_eq(result->min_offset, 3);
    ck_assert_int_eq(result->max_offset, 99);
    ck_assert_uint_eq(result->count, 2);
    const struct ledgermq_stored_message *message = &result->messages[0];
    ck_assert_str_eq(message->topic, "Orders");
    ck_assert_uint_eq(message->body_size, 5);
    ck_assert_int_eq(memcmp(message->body, "hello", 5), 0);
    ck_assert_str_eq(message->message_id, "ABC");
    ck_assert_str_eq(message->tags, "TagA");
    ck_assert_str_eq(message->keys, "k1");
    ck_assert_str_eq(ledgermq_message_property(message, "color"), "red");
    ck_assert_ptr_null(ledgermq_message_property(message, "none"));
    ck_assert_str_eq(message->broker_name, "broker-a");
    ck_assert_int_eq(message->queue_offset, 10);
    ck_assert_int_eq(message->physical_offset, 1010);
    ck_assert_int_eq(message->flag, 5);
    ck_assert_int_eq(message->reconsume_times, 1);
    ck_assert_str_eq(message->born_host, "127.0.0.1:40000");
    ck_assert_str_eq(message->store_host, world.broker.address);
    message = &result->messages[1];
    ck_assert_uint_eq(message->body_size, 0);
    ck_assert_str_eq(message->message_id, message->offset_message_id);
    ck_assert_ptr_null(message->tags);
    ledgermq_pull_result_free(result);
    ck_assert(asked("consumerGroup=TestGroup") && asked("topic=Orders") && asked("queueId=2") &&
              asked("queueOffset=10"));
    ck_assert(asked("maxMsgNums=32") && asked("sysFlag=4") && asked("subscription=*") && asked("expressionType=TAG"));
}
END_TEST

START_TEST(test_long_poll_and_filters)
{
    struct ledgermq_pull_result *result;
    world.code = RESPONSE_PULL_NOT_FOUND;
    ck_assert_int_eq(ledgermq_pull(consumer, &queue, "TagA || TagB", 10, 1, 500, &result, NULL), LEDGERMQ_OK);
    ck_assert_int_eq(result->status, LEDGERMQ_NO_NEW_MESSAGE);
    ck_assert_uint_eq(result->count, 0);
    ledgermq_pull_result_free(result);
    ck_assert(asked("sysFlag=6") && asked("suspendTimeoutMillis=500") && asked("subscription=TagA || TagB"));
    ck_assert_int_eq(ledgermq_pull(consumer, &queue, "sql:a > 5", 10, 1, 0, &result, NULL), LEDGERMQ_OK);
    ledgermq_pull_result_free(result);
    ck_assert(asked("subscription=a > 5") && asked("expressionType=SQL92"));
}
END_TEST

/* What has the right hash but another text is left out. */
START_TEST(test_tags_by_text)
{
    struct ledgermq_pull_result *result;
    add_record("Orders", "TAGS\001Aa", "x", 1, 0, 10);
    add_record("Orders", "TAGS\001BB", "y", 1, 0, 11); /* "Aa" and "BB" have the same Java hash */
    ck_assert_int_eq(ledgermq_pull(consumer, &queue, " BB || C", 10, 32, 0, &result, NULL), LEDGERMQ_OK);
    ck_assert_uint_eq(result->count, 1);
    ck_assert_str_eq(result->messages[0].tags, "BB");
    ledgermq_pull_result_free(result);
    ck_assert_int_eq(ledgermq_pull(consumer, &queue, "C", 10, 32, 0, &result, NULL), LEDGERMQ_OK);
    ck_assert_int_eq(result->status, LEDGERMQ_NO_MATCHED_MESSAGE);
    ck_assert_int_eq(result->next_offset, 12);
    ledgermq_pull_result_free(result);
}
END_TEST

START_TEST(test_statuses)
{
    static const int rows[][2] = {{0, LEDGERMQ_NO_MATCHED_MESSAGE},
                                  {19, LEDGERMQ_NO_NEW_MESSAGE},
                                  {20, LEDGERMQ_NO_MATCHED_MESSAGE},
                                  {21, LEDGERMQ_OFFSET_ILLEGAL}};
    struct ledgermq_pull_result *result;
    struct ledgermq_error error;
    for (int i = 0; i < 4; i++) {
        world.code = rows[i][0];
        ck_assert_int_eq(ledgermq_pull(consumer, &queue, "*", 10, 32, 0, &result, &error), LEDGERMQ_OK);
        ck_assert_int_eq(result->status, rows[i][1]);
        ledgermq_pull_result_free(result);
    }
    world.code = 26;
    ck_assert_int_eq(ledgermq_pull(consumer, &queue, "*", 10, 32, 0, &result, &error), LEDGERMQ_REFUSED);
    ck_assert_int_eq(error.response_code, 26);
    ck_assert_ptr_nonnull(strstr(error.message, "SUBSCRIPTION_GROUP_NOT_EXIST"));
}
END_TEST

START_TEST(test_compressed_body)
{
    static char text[300000];
    static unsigned char packed[300000];
    uLongf size = sizeof packed;
    struct ledgermq_pull_result *result;
    struct ledgermq_error error = {0};
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)('a' + i * i % 23);
    ck_assert_int_eq(compress2(packed, &size, (const unsigned char *)text, sizeof text, 5), Z_OK);
    add_record("Orders", "", packed, size, 0x1, 10);
    add_record("Orders", "", packed, size, 0x301, 11);
    add_record("Orders", "", "new?", 4, 0x401, 12);
    ck_assert_msg(ledgermq_pull(consumer, &queue, "*", 10, 32, 0, &result, &error) == LEDGERMQ_OK, "%s",
                  error.message);
    for (int i = 0; i < 2; i++) {
        ck_assert_uint_eq(result->messages[i].body_size, sizeof text);
        ck_assert_int_eq(memcmp(result->messages[i].body, text, sizeof text), 0);
    }
    ck_assert_uint_eq(result->messages[2].body_size, 4); /* left as it is */
    ledgermq_pull_result_free(result);
    buffer_clear(&world.records);
    packed[size / 2] ^= 0x55;
    add_record("Orders", "", packed, size, 0x1, 13);
    ck_assert_int_eq(ledgermq_pull(consumer, &queue, "*", 10, 32, 0, &result, &error), LEDGERMQ_MALFORMED);
    ck_assert_ptr_nonnull(strstr(error.message, "offset 13"));
}
END_TEST

START_TEST(test_broken_records)
{
    struct ledgermq_pull_result *result;
    struct ledgermq_error error = {0};
    add_record("Orders", "", "x", 1, 0, 10);
    world.records.size -= 3;
    ck_assert_int_eq(ledgermq_pull(consumer, &queue, "*", 10, 32, 0, &result, &error), LEDGERMQ_MALFORMED);
    ck_assert_ptr_nonnull(strstr(error.message, "Orders"));
}
END_TEST

/* A change of leader is waited for. */
START_TEST(test_new_leader)
{
    struct ledgermq_pull_result *result;
    struct ledgermq_error error = {0};
    world.code = RESPONSE_PULL_NOT_FOUND;
    ck_assert_int_eq(ledgermq_pull(consumer, &queue, "*", 10, 32, 0, &result, &error), LEDGERMQ_OK);
    ledgermq_pull_result_free(result);
    world.busy = 2;
    ck_assert_msg(ledgermq_pull(consumer, &queue, "*", 10, 32, 0, &result, &error) == LEDGERMQ_OK, "%s",
                  error.message);
    ledgermq_pull_result_free(result);
    world.later_brokers[0] = broker_at(1, "broker-a", world.other.address);
    world.later = true;
    fake_server_stop(&world.broker);
    ck_assert_msg(ledgermq_pull(consumer, &queue, "*", 10, 32, 0, &result, &error) == LEDGERMQ_OK, "%s",
                  error.message);
    ledgermq_pull_result_free(result);
    fake_server_start(&world.broker, 0, broker_script, NULL);
}
END_TEST

START_TEST(test_offsets)
{
    int64_t offset = 0;
    struct ledgermq_error error = {0};
    ck_assert_int_eq(ledgermq_min_offset(consumer, &queue, &offset, &error), LEDGERMQ_OK);
    ck_assert_int_eq(offset, 4711);
    ck_assert_int_eq(world.broker.last_code, REQUEST_GET_MIN_OFFSET);
    ck_assert_int_eq(ledgermq_max_offset(consumer, &queue, &offset, &error), LEDGERMQ_OK);
    ck_assert_int_eq(world.broker.last_code, REQUEST_GET_MAX_OFFSET);
    ck_assert(asked("topic=Orders") && asked("queueId=2"));
    ck_assert_int_eq(ledgermq_search_offset(consumer, &queue, 123456, &offset, &error), LEDGERMQ_OK);
    ck_assert(asked("timestamp=123456"));
    ck_assert_int_eq(ledgermq_fetch_offset(consumer, &queue, &offset, &error), LEDGERMQ_OK);
    ck_assert(asked("consumerGroup=TestGroup"));
    ck_assert_int_eq(ledgermq_commit_offset(consumer, &queue, 33, &error), LEDGERMQ_OK);
    ck_assert_int_eq(world.broker.last_code, REQUEST_UPDATE_CONSUMER_OFFSET);
    ck_assert(asked("commitOffset=33"));
    ck_assert_int_eq(ledgermq_commit_offset(consumer, &queue, -1, &error), LEDGERMQ_INVALID);
    world.code = RESPONSE_QUERY_NOT_FOUND;
    ck_assert_int_eq(ledgermq_fetch_offset(consumer, &queue, &offset, &error), LEDGERMQ_NOT_FOUND);
    ck_assert_int_eq(error.response_code, 22);
}
END_TEST

START_TEST(test_send_back)
{
    struct ledgermq_pull_result *result;
    struct ledgermq_error error = {0};
    add_record("Orders", "UNIQ_KEY\001U1", "x", 1, 0, 5);
    ck_assert_int_eq(ledgermq_pull(consumer, &queue, NULL, 5, 1, 0, &result, &error), LEDGERMQ_OK);
    ck_assert_int_eq(ledgermq_send_back(consumer, &result->messages[0], 19, &error), LEDGERMQ_INVALID);
    world.busy = 1; /* a leader is waited for */
    ck_assert_int_eq(ledgermq_send_back(consumer, &result->messages[0], 3, &error), LEDGERMQ_OK);
    ck_assert_int_eq(world.broker.last_code, REQUEST_CONSUMER_SEND_MSG_BACK);
    ck_assert(asked("offset=1005") && asked("group=TestGroup") && asked("delayLevel=3") && asked("originMsgId=U1") &&
              asked("originTopic=Orders") && asked("maxReconsumeTimes=16"));
    world.code = RESPONSE_SUBSCRIPTION_GROUP_NOT_EXIST;
    ck_assert_int_eq(ledgermq_send_back(consumer, &result->messages[0], 0, &error), LEDGERMQ_REFUSED);
    ck_assert_int_eq(error.response_code, 26);
    ledgermq_pull_result_free(result);
}
END_TEST

START_TEST(test_queues_and_heartbeat)
{
    struct ledgermq_queue *queues;
    struct ledgermq_error error = {0};
    size_t count;
    ck_assert_int_eq(ledgermq_subscribe_queues(consumer, "Orders", &queues, &count, &error), LEDGERMQ_OK);
    ck_assert_uint_eq(count, 3);
    ck_assert_str_eq(queues[2].broker_name, "broker-a");
    ck_assert_int_eq(queues[2].queue_id, 2);
    ledgermq_queues_free(queues);
    ck_assert_int_eq(ledgermq_subscribe_queues(consumer, "Unknown", &queues, &count, &error), LEDGERMQ_NO_ROUTE);
    ck_assert_int_eq(error.response_code, 17);
    pthread_mutex_lock(&world.lock);
    for (int i = 0; i < 10000 && strstr(world.heartbeat, "\"topic\":\"Orders\"") == NULL; i++) {
        pthread_mutex_unlock(&world.lock);
        usleep(1000);
        pthread_mutex_lock(&world.lock);
    }
    ck_assert_ptr_nonnull(strstr(world.heartbeat, "\"groupName\":\"TestGroup\""));
    ck_assert_ptr_nonnull(strstr(world.heartbeat, "CONSUME_ACTIVELY"));
    ck_assert_ptr_nonnull(strstr(world.heartbeat, "\"topic\":\"Orders\""));
    pthread_mutex_unlock(&world.lock);
}
END_TEST

START_TEST(test_view)
{
    struct ledgermq_pull_result *result;
    struct ledgermq_error error = {0};
    struct message_host host;
    char id[MESSAGE_ID_TEXT_MAX];
    add_record("Orders", "UNIQ_KEY\001ABC", "hello", 5, 0, 10);
    ck_assert(message_host_parse(slice_of_text(world.broker.address), &host));
    message_id_format(&host, 1010, id);
    ck_assert_msg(ledgermq_view_message(client, id, &result, &error) == LEDGERMQ_OK, "%s", error.message);
    ck_assert_uint_eq(result->count, 1);
    ck_assert_str_eq(result->messages[0].offset_message_id, id);
    ledgermq_pull_result_free(result);
    ck_assert(asked("offset=1010"));
    world.code = 1;
    ck_assert_int_eq(ledgermq_view_message(client, id, &result, &error), LEDGERMQ_NOT_FOUND);
    ck_assert_int_eq(ledgermq_view_message(client, "xyz", &result, &error), LEDGERMQ_INVALID);
    ck_assert_ptr_nonnull(strstr(error.message, "32"));
}
END_TEST

START_TEST(test_query)
{
    struct ledgermq_pull_result *result;
    struct ledgermq_error error = {0};
    add_record("Orders", "KEYS\001k1 k2\002UNIQ_KEY\001ABC", "a", 1, 0, 10);
    add_record("Orders", "KEYS\001k22", "b", 1, 0, 11);
    add_record("Other", "KEYS\001k2", "c", 1, 0, 12);
    ck_assert_msg(ledgermq_query_messages(client, "Orders", "k2", false, 10, 0, 0, &result, &error) == LEDGERMQ_OK,
                  "%s", error.message);
    ck_assert_uint_eq(result->count, 1);
    ck_assert_int_eq(result->messages[0].queue_offset, 10);
    ledgermq_pull_result_free(result);
    ck_assert(asked("key=k2") && asked("maxNum=10") && asked("_UNIQUE_KEY_QUERY=false") &&
              asked("endTimestamp=9223372036854775807"));
    ck_assert_int_eq(ledgermq_query_messages(client, "Orders", "ABC", true, 10, 0, 0, &result, &error), LEDGERMQ_OK);
    ck_assert_uint_eq(result->count, 1);
    ledgermq_pull_result_free(result);
    ck_assert_int_eq(ledgermq_query_messages(client, "Orders", "k3", false, 10, 0, 0, &result, &error),
                     LEDGERMQ_NOT_FOUND);
    world.code = RESPONSE_QUERY_NOT_FOUND;
    ck_assert_int_eq(ledgermq_query_messages(client, "Orders", "k2", false, 10, 0, 0, &result, &error),
                     LEDGERMQ_NOT_FOUND);
    ck_assert_int_eq(ledgermq_query_messages(client, "Orders", "", false, 10, 0, 0, &result, &error),
                     LEDGERMQ_INVALID);
}
END_TEST

START_TEST(test_bad_arguments)
{
    struct ledgermq_pull_result *result;
    struct ledgermq_pull_consumer *none;
    struct ledgermq_error error = {0};
    struct ledgermq_queue bad = queue;
    ck_assert_int_eq(ledgermq_pull(consumer, &queue, "*", 0, 0, 0, &result, &error), LEDGERMQ_INVALID);
    ck_assert_int_eq(ledgermq_pull(consumer, &queue, "*", 0, 1, 70000, &result, &error), LEDGERMQ_INVALID);
    bad.queue_id = -1;
    ck_assert_int_eq(ledgermq_pull(consumer, &bad, "*", 0, 1, 0, &result, &error), LEDGERMQ_INVALID);
    ck_assert_int_eq(ledgermq_pull_consumer_new(client, "bad group", &none, &error), LEDGERMQ_INVALID);
    ck_assert_int_eq(ledgermq_pull_consumer_new(client, "", &none, &error), LEDGERMQ_INVALID);
    snprintf(bad.broker_name, sizeof bad.broker_name, "broker-x");
    bad.queue_id = 0;
    ck_assert_int_eq(ledgermq_pull(consumer, &bad, "*", 0, 1, 0, &result, &error), LEDGERMQ_NO_ROUTE);
    ck_assert_ptr_nonnull(strstr(error.message, "broker-x"));
}
END_TEST

/* --- the layer below ---- */

static struct remoting_client *remoting;

static enum fake_reaction rubbish_script(struct fake_server *server, struct remoting_command *request,
                                         struct buffer *out)
{
    (void)server;
    (void)request;
    buffer_append_text(out, "HTTP/1.1 400 Bad Request\r\n\r\n");
    return FAKE_ANSWER;
}

static enum fake_reaction large_script(struct fake_server *server, struct remoting_command *request,
                                       struct buffer *out)
{
    struct buffer body;
    struct remoting_writer writer;
    (void)server;
    buffer_init(&body, 0);
    for (int i = 0; i < 3000000; i++)
        buffer_append_u8(&body, (uint8_t)(i * 7));
    /* First an answer to nothing, and a request of the server's own: both must not disturb. */
    struct remoting_command other = *request;
    other.opaque = request->opaque + 1;
    fake_answer(out, &other, 0, NULL, slice_of(NULL, 0));
    remoting_writer_begin_request(&writer, out, REMOTING_JSON, REQUEST_GET_CONSUMER_RUNNING_INFO, 1, 0);
    remoting_writer_end(&writer, 0);
    fake_answer(out, request, 0, "fine", buffer_slice(&body));
    buffer_close(&body);
    return FAKE_ANSWER;
}

START_TEST(test_remoting)
{
    struct fake_server server;
    struct remoting_response response;
    struct error error = {0};
    char dead[32];
    ck_assert_int_eq(remoting_client_new(500, &remoting, &error), 0);
    static const char *const bad[] = {"nonsense", "host:", ":1", "host:0", "host:65536", "host:12x"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ck_assert_int_eq(
            remoting_client_invoke(remoting, bad[i], 105, NULL, slice_of(NULL, 0), 500, &response, &error),
            ERROR_INVALID);
        ck_assert_ptr_nonnull(strstr(error.message, "host:port"));
    }
    snprintf(dead, sizeof dead, "127.0.0.1:%d", fake_server_free_port());
    ck_assert_int_eq(remoting_client_invoke(remoting, dead, 105, NULL, slice_of(NULL, 0), 500, &response, &error),
                     ERROR_CONNECTION);
    ck_assert_ptr_nonnull(strstr(error.message, dead));
    ck_assert_int_eq(remoting_client_invoke(remoting, "no.such.host.invalid:1", 105, NULL, slice_of(NULL, 0), 2000,
                                            &response, &error),
                     ERROR_CONNECTION);
    fake_server_start(&server, 0, rubbish_script, NULL);
    ck_assert_int_eq(
        remoting_client_invoke(remoting, server.address, 105, NULL, slice_of(NULL, 0), 500, &response, &error),
        ERROR_MALFORMED);
    ck_assert_ptr_nonnull(strstr(error.message, "right port"));
    fake_server_stop(&server);
    fake_server_start(&server, 0, large_script, NULL);
    char by_name[32];
    snprintf(by_name, sizeof by_name, "%s:%d", fake_server_host_name(), server.port);
    for (int i = 0; i < 3; i++) {
        ck_assert_msg(
            remoting_client_invoke(remoting, by_name, 105, NULL, slice_of(NULL, 0), 5000, &response, &error) == 0,
            "%s", error.message);
        ck_assert_uint_eq(response.command.body.size, 3000000);
        for (int k = 0; k < 3000000; k += 997)
            ck_assert_uint_eq(response.command.body.data[k], (uint8_t)(k * 7));
        ck_assert(slice_equal_text(response.command.remark, "fine"));
        remoting_response_close(&response);
    }
    for (int i = 0; i < 10000 && server.last_code != -3; i++)
        usleep(1000);
    ck_assert_int_eq(server.last_code, -3); /* the server's request was answered "not supported" */
    remoting_client_free(remoting);
    fake_server_stop(&server);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_pull");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 30);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, test_pull);
    tcase_add_test(tcase, test_long_poll_and_filters);
    tcase_add_test(tcase, test_tags_by_text);
    tcase_add_test(tcase, test_statuses);
    tcase_add_test(tcase, test_compressed_body);
    tcase_add_test(tcase, test_broken_records);
    tcase_add_test(tcase, test_new_leader);
    tcase_add_test(tcase, test_offsets);
    tcase_add_test(tcase, test_send_back);
    tcase_add_test(tcase, test_queues_and_heartbeat);
    tcase_add_test(tcase, test_view);
    tcase_add_test(tcase, test_query);
    tcase_add_test(tcase, test_bad_arguments);
    suite_add_tcase(suite, tcase);
    TCase *below = tcase_create("remoting");
    tcase_set_timeout(below, 30);
    tcase_add_test(below, test_remoting);
    suite_add_tcase(suite, below);
    return run_suite(suite);
}
