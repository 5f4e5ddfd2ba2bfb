/* Requests that wait for a reply: matched by their id, whatever else the broker sends, and ended in time. */
#include <check.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/compression.h"
#include "proto/message.h"
#include "proto/request_code.h"
#include "proto/response_code.h"
#include "tests/lib/fake_cluster.h"
#include "tests/lib/run_suite.h"

static struct fake_cluster cluster;
static struct ledgermq_client *client;
static struct ledgermq_producer *producer;
static struct ledgermq_error error;

enum push { NO_REPLY, REPLY, REPLY_TWICE, REPLY_COMPRESSED, REPLY_TO_ANOTHER, REPLY_DAMAGED };

static struct {
    enum push push;
    int send_code;
    atomic_int sends;
    char properties[512], topic[64];
    int code;
} world;

static void append_reply(struct buffer *out, struct slice id, struct slice body, int sys_flag)
{
    struct remoting_writer writer;
    struct buffer properties;
    buffer_init(&properties, 0);
    message_property_append(&properties, 0, SLICE_LITERAL("CORRELATION_ID"), id);
    message_property_append(&properties, 0, SLICE_LITERAL("MSG_TYPE"), SLICE_LITERAL("reply"));
    remoting_writer_begin_request(&writer, out, REMOTING_JSON, REQUEST_PUSH_REPLY_MESSAGE_TO_CLIENT, 1, 0);
    remoting_writer_ext_text(&writer, "producerGroup", "replier");
    remoting_writer_ext_text(&writer, "topic", "c_REPLY_TOPIC");
    remoting_writer_ext_text(&writer, "defaultTopic", "TBW102");
    remoting_writer_ext_i64(&writer, "defaultTopicQueueNums", 4);
    remoting_writer_ext_i64(&writer, "queueId", 0);
    remoting_writer_ext_i64(&writer, "sysFlag", sys_flag);
    remoting_writer_ext_i64(&writer, "bornTimestamp", 17);
    remoting_writer_ext_i64(&writer, "flag", 3);
    remoting_writer_ext(&writer, "properties", buffer_slice(&properties));
    remoting_writer_ext_text(&writer, "bornHost", "127.0.0.1:5");
    remoting_writer_ext_text(&writer, "storeHost", "127.0.0.1:6");
    remoting_writer_ext_i64(&writer, "storeTimestamp", 18);
    remoting_writer_body(&writer);
    buffer_append_slice(out, body);
    remoting_writer_end(&writer, 0);
    buffer_close(&properties);
}

static void append_compressed(struct buffer *out, struct slice id)
{
    static char text[9000];
    size_t size = sizeof text;
    memset(text, 'z', sizeof text);
    void *packed = compression_compress(COMPRESSION_ZSTD, 5, text, &size);
    append_reply(out, id, slice_of(packed, size), 0x201);
    free(packed);
}

static enum fake_reaction script(struct fake_cluster *its, int index, struct remoting_command *request,
                                 struct buffer *out)
{
    struct slice properties = remoting_ext(request, "i"), topic = remoting_ext(request, "b");
    struct slice id = message_property(properties, "CORRELATION_ID"), body = SLICE_LITERAL("the reply");
    (void)its;
    (void)index;
    world.sends++;
    world.code = request->code;
    fake_keep_text(world.properties, sizeof world.properties, properties);
    fake_keep_text(world.topic, sizeof world.topic, topic);
    if (world.send_code != 0) {
        fake_answer(out, request, world.send_code, "told so", slice_of(NULL, 0));
        return FAKE_ANSWER;
    }
    /* The reply may overtake the answer to the send. */
    if (world.push == REPLY || world.push == REPLY_TWICE)
        append_reply(out, id, body, 0);
    if (world.push == REPLY_TWICE)
        append_reply(out, id, body, 0);
    if (world.push == REPLY_COMPRESSED)
        append_compressed(out, id);
    if (world.push == REPLY_TO_ANOTHER)
        append_reply(out, SLICE_LITERAL("nobody"), body, 0);
    if (world.push == REPLY_DAMAGED)
        append_reply(out, id, body, 0x301);
    fake_answer_send(out, request, 0, 5);
    return FAKE_ANSWER;
}

static void set_up(void)
{
    fake_cluster_start(&cluster, 1, script);
    client = fake_cluster_client(&cluster, NULL);
    ck_assert_int_eq(ledgermq_producer_new(client, NULL, &producer, &error), LEDGERMQ_OK);
}

static void tear_down(void)
{
    ledgermq_client_free(client);
    fake_cluster_stop(&cluster);
}

static const struct ledgermq_message plain = {.topic = "Orders", .body = "hello", .body_size = 5};

START_TEST(test_reply)
{
    struct ledgermq_pull_result *reply;
    char wanted[400];
    world.push = _i == 0 ? REPLY : _i == 1 ? REPLY_TWICE : REPLY_COMPRESSED;
    ck_assert_msg(ledgermq_request(producer, &plain, 3000, &reply, &error) == LEDGERMQ_OK, "%s", error.message);
    ck_assert_uint_eq(reply->count, 1);
    if (world.push == REPLY_COMPRESSED) {
        ck_assert_uint_eq(reply->messages[0].body_size, 9000);
    } else {
        ck_assert_uint_eq(reply->messages[0].body_size, 9);
        ck_assert_int_eq(memcmp(reply->messages[0].body, "the reply", 9), 0);
    }
    ck_assert_str_eq(reply->messages[0].topic, "c_REPLY_TOPIC");
    ck_assert_int_eq(reply->messages[0].flag, 3);
    ck_assert_int_eq(reply->messages[0].born_timestamp_ms, 17);
    ck_assert_str_eq(reply->messages[0].born_host, "127.0.0.1:5");
    ck_assert_str_eq(ledgermq_message_property(&reply->messages[0], "MSG_TYPE"), "reply");
    ledgermq_pull_result_free(reply);
    snprintf(wanted, sizeof wanted, "REPLY_TO_CLIENT\001%s", ledgermq_client_id(client));
    ck_assert_ptr_nonnull(strstr(world.properties, wanted));
    ck_assert_ptr_nonnull(strstr(world.properties, "TTL\0013000"));
    ck_assert_int_ge(cluster.heartbeats, 1); /* the broker knows whom to push to */
}
END_TEST

/* What is no answer to this request does not end it. */
START_TEST(test_no_reply)
{
    struct ledgermq_pull_result *reply;
    world.push = _i == 0 ? NO_REPLY : _i == 1 ? REPLY_TO_ANOTHER : REPLY_DAMAGED;
    int64_t begin = fake_cluster_now_ms();
    ck_assert_int_eq(ledgermq_request(producer, &plain, 300, &reply, &error), LEDGERMQ_TIMEOUT);
    ck_assert_int_ge(fake_cluster_now_ms() - begin, 295);
    ck_assert_ptr_nonnull(strstr(error.message, "no reply within 300 ms"));
    ck_assert_int_eq(world.sends, 1);
    /* The broker was told that nobody took it. */
    if (world.push != NO_REPLY)
        ck_assert_int_eq(cluster.brokers[0].last_code, -RESPONSE_SYSTEM_ERROR);
}
END_TEST

START_TEST(test_request_refused)
{
    struct ledgermq_pull_result *reply;
    world.send_code = RESPONSE_MESSAGE_ILLEGAL;
    int64_t begin = fake_cluster_now_ms();
    ck_assert_int_eq(ledgermq_request(producer, &plain, 20000, &reply, &error), LEDGERMQ_REFUSED);
    ck_assert_int_eq(error.response_code, RESPONSE_MESSAGE_ILLEGAL);
    ck_assert_int_lt(fake_cluster_now_ms() - begin, 10000);
}
END_TEST

static atomic_int replies, errors, last_error;

static void done(void *context, const struct ledgermq_stored_message *reply, const struct ledgermq_error *its_error)
{
    (void)context;
    ck_assert((reply == NULL) != (its_error == NULL));
    if (reply != NULL)
        replies++;
    else
        errors++;
    last_error = its_error == NULL ? 0 : its_error->code;
}

START_TEST(test_async)
{
    world.push = REPLY;
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(ledgermq_request_async(producer, &plain, 5000, done, NULL, &error), LEDGERMQ_OK);
    ck_assert(fake_cluster_wait(&replies, 100));
    ck_assert_int_eq(errors, 0);
    ck_assert_int_eq(ledgermq_request_async(producer, &plain, 5000, NULL, NULL, &error), LEDGERMQ_INVALID);
    ck_assert_int_eq(ledgermq_request_async(producer, &plain, -1, done, NULL, &error), LEDGERMQ_INVALID);
}
END_TEST

START_TEST(test_stopped)
{
    for (int i = 0; i < 10; i++)
        ck_assert_int_eq(ledgermq_request_async(producer, &plain, 60000, done, NULL, &error), LEDGERMQ_OK);
    ck_assert(fake_cluster_wait(&world.sends, 10));
    int64_t begin = fake_cluster_now_ms();
    ledgermq_producer_free(producer);
    ck_assert_int_lt(fake_cluster_now_ms() - begin, 5000);
    ck_assert_int_eq(errors, 10);
    ck_assert_int_eq(last_error, LEDGERMQ_STOPPED);
}
END_TEST

static struct ledgermq_property asked[] = {
    {"CLUSTER", "c"}, {"CORRELATION_ID", "id-1"}, {"REPLY_TO_CLIENT", "asker@1"}, {"TTL", "3000"}};

START_TEST(test_replying)
{
    struct ledgermq_stored_message request = {
        .topic = "Orders", .message_id = "M", .properties = asked, .property_count = 4};
    struct ledgermq_message reply = {.body = "fine", .body_size = 4, .tags = "T"};
    struct ledgermq_send_result result;
    ck_assert_msg(ledgermq_reply(producer, &request, &reply, &result, &error) == LEDGERMQ_OK, "%s", error.message);
    ck_assert_int_eq(world.code, REQUEST_SEND_REPLY_MESSAGE_V2);
    ck_assert_str_eq(world.topic, "c_REPLY_TOPIC");
    static const char *const wanted[] = {"MSG_TYPE\001reply", "CORRELATION_ID\001id-1", "REPLY_TO_CLIENT\001asker@1",
                                         "TTL\0013000", "TAGS\001T"};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        ck_assert_ptr_nonnull(strstr(world.properties, wanted[i]));
    /* The requester is away: the reply is stored, and must not be stored twice. */
    world.send_code = RESPONSE_SYSTEM_ERROR;
    int before = world.sends;
    ck_assert_int_eq(ledgermq_reply(producer, &request, &reply, &result, &error), LEDGERMQ_REFUSED);
    ck_assert_int_eq(world.sends - before, 1);
    for (size_t i = 0; i < 4; i++) {
        struct ledgermq_property without[4];
        memcpy(without, asked, sizeof without);
        without[i].name = "other";
        request.properties = without;
        ck_assert_int_eq(ledgermq_reply(producer, &request, &reply, &result, &error), LEDGERMQ_INVALID);
        ck_assert_ptr_nonnull(strstr(error.message, asked[i].name));
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_reply");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 30);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, test_reply, 0, 3);
    tcase_add_loop_test(tcase, test_no_reply, 0, 3);
    tcase_add_test(tcase, test_request_refused);
    tcase_add_test(tcase, test_async);
    tcase_add_test(tcase, test_stopped);
    tcase_add_test(tcase, test_replying);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
