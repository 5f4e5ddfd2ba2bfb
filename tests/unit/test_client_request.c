/* What brokers ask of a client over its connections, and heart-beats that follow a connection that broke. */
#include <check.h>
#include <stdio.h>
#include <unistd.h>

#include "client/ledgermq.h"
#include "client/remoting_client.h"
#include "proto/request_code.h"
#include "tests/lib/fake_server.h"
#include "tests/lib/run_suite.h"

static struct remoting_client *remoting;
static struct fake_server server;
static struct remoting_origin kept;
static atomic_int asked, one_way, answered;
static char address_seen[REMOTING_ADDRESS_MAX];

static void writes_request(struct buffer *out, int code, int opaque, int flag)
{
    struct remoting_writer writer;
    remoting_writer_begin_request(&writer, out, REMOTING_JSON, code, opaque, flag);
    remoting_writer_ext_text(&writer, "consumerGroup", "g");
    remoting_writer_end(&writer, 0);
}

/* Each question is answered, and brings two requests with it. */
static enum fake_reaction asking_script(struct fake_server *of, struct remoting_command *request, struct buffer *out)
{
    (void)of;
    if (request->code == 999)
        return FAKE_RESET;
    writes_request(out, REQUEST_NOTIFY_CONSUMER_IDS_CHANGED, 1, REMOTING_FLAG_ONEWAY);
    writes_request(out, REQUEST_CONSUME_MESSAGE_DIRECTLY, 7, 0);
    fake_answer(out, request, 0, NULL, slice_of(NULL, 0));
    return FAKE_ANSWER;
}

static void notified(void *context, const struct remoting_command *request, const char *address,
                     const struct remoting_origin *origin)
{
    ck_assert_ptr_eq(context, &one_way);
    ck_assert(origin->oneway && slice_equal_text(remoting_ext(request, "consumerGroup"), "g"));
    struct remoting_writer writer;
    ck_assert(!remoting_client_answer_begin(remoting, origin, 0, NULL, &writer));
    snprintf(address_seen, sizeof address_seen, "%s", address);
    one_way++;
}

static void keeps(void *context, const struct remoting_command *request, const char *address,
                  const struct remoting_origin *origin)
{
    (void)context;
    (void)address;
    ck_assert_int_eq(request->opaque, 7);
    kept = *origin;
    asked++;
}

static void answer_run(struct remoting_task *task)
{
    struct remoting_writer writer;
    (void)task;
    answered = 0;
    if (remoting_client_answer_begin(remoting, &kept, 42, "late", &writer)) {
        remoting_writer_body(&writer);
        buffer_append_text(writer.out, "body");
        remoting_client_answer_end(remoting, &writer);
        answered = 1;
    } else {
        answered = -1;
    }
}

static void wait_for(atomic_int *counter, int value)
{
    for (int i = 0; i < 10000 && *counter != value; i++)
        usleep(1000);
    ck_assert_int_eq(*counter, value);
}

static void ask(int code, int expected)
{
    struct remoting_response response;
    struct error error;
    ck_assert_int_eq(
        remoting_client_invoke(remoting, server.address, code, NULL, slice_of(NULL, 0), 5000, &response, &error),
        expected);
    remoting_response_close(&response);
}

START_TEST(requests_are_answered_now_later_or_not_at_all)
{
    struct error error;
    struct remoting_task task = {.run = answer_run};
    ck_assert_int_eq(remoting_client_new(500, &remoting, &error), 0);
    remoting_client_handle(remoting, REQUEST_NOTIFY_CONSUMER_IDS_CHANGED, notified, &one_way);
    remoting_client_handle(remoting, REQUEST_CONSUME_MESSAGE_DIRECTLY, keeps, NULL);
    fake_server_start(&server, 0, asking_script, NULL);
    ask(105, 0);
    wait_for(&one_way, 1);
    wait_for(&asked, 1);
    ck_assert_str_eq(address_seen, server.address);
    ck_assert_int_eq(server.last_code, 105);
    remoting_client_post(remoting, &task);
    wait_for(&answered, 1);
    wait_for(&server.last_code, -42);
    /* The connection that asked is gone: its answer goes nowhere, not to the one that took its place. */
    ask(999, ERROR_CONNECTION);
    ask(105, 0);
    ck_assert_int_eq(server.connections, 2);
    wait_for(&asked, 2);
    kept.connection--;
    answered = 0;
    remoting_client_post(remoting, &task);
    wait_for(&answered, -1);
    remoting_client_free(remoting);
    fake_server_stop(&server);
}
END_TEST

static atomic_int heartbeats, resets;
static char routed_to[64];

static enum fake_reaction route_script(struct fake_server *of, struct remoting_command *request, struct buffer *out)
{
    (void)of;
    const char *brokers[] = {routed_to, NULL};
    fake_answer_route(out, request, brokers, 1, 6);
    return FAKE_ANSWER;
}

static enum fake_reaction broker_script(struct fake_server *of, struct remoting_command *request, struct buffer *out)
{
    struct remoting_writer writer;
    (void)of;
    if (request->code == REQUEST_HEART_BEAT) {
        heartbeats++;
        fake_answer(out, request, 0, NULL, slice_of(NULL, 0));
        return FAKE_ANSWER;
    }
    if (request->code == REQUEST_GET_MAX_OFFSET && resets > 0) {
        resets--;
        return FAKE_RESET;
    }
    remoting_writer_begin_response(&writer, out, request->serialize_type, 0, request->opaque, NULL);
    remoting_writer_ext_i64(&writer, "offset", 5);
    remoting_writer_end(&writer, 0);
    return FAKE_ANSWER;
}

START_TEST(a_broker_that_lost_the_connection_is_told_again)
{
    struct fake_server name_server;
    struct ledgermq_client_options options;
    struct ledgermq_client *client;
    struct ledgermq_pull_consumer *consumer;
    struct ledgermq_error error;
    const struct ledgermq_queue queue = {.topic = "T", .broker_name = "broker-a"};
    int64_t offset;
    fake_server_start(&name_server, 0, route_script, NULL);
    fake_server_start(&server, 0, broker_script, NULL);
    snprintf(routed_to, sizeof routed_to, "broker-a=%s", server.address);
    ledgermq_client_options_init(&options);
    options.name_servers = name_server.address;
    ck_assert_int_eq(ledgermq_client_new(&options, &client, &error), LEDGERMQ_OK);
    ck_assert_int_eq(ledgermq_pull_consumer_new(client, "g", &consumer, &error), LEDGERMQ_OK);
    ck_assert_int_eq(ledgermq_max_offset(consumer, &queue, &offset, &error), LEDGERMQ_OK);
    wait_for(&heartbeats, 1); /* with the route; the next period is far */
    resets = 1;
    ck_assert_int_eq(ledgermq_max_offset(consumer, &queue, &offset, &error), LEDGERMQ_OK);
    ck_assert_int_eq(offset, 5);
    wait_for(&heartbeats, 2);
    ck_assert_int_eq(server.connections, 2);
    ledgermq_client_free(client);
    fake_server_stop(&server);
    fake_server_stop(&name_server);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_request");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, requests_are_answered_now_later_or_not_at_all);
    tcase_add_test(tcase, a_broker_that_lost_the_connection_is_told_again);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
