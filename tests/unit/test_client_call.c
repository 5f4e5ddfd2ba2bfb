/* Calls to clients: answers find their call by connection and opaque, deadlines in order, closed connections, the bound, the stop. */
#include "broker/remoting/client_call.h"

#include <check.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../lib/sim_env.h"
#include "broker/broker.h"
#include "broker/limits.h"
#include "broker/remoting/connection.h"
#include "broker/remoting/listener.h"
#include "proto/request_code.h"
#include "store/log_sink.h"
#include "tests/lib/run_suite.h"

#define CLIENTS 2

static uv_loop_t loop;
static struct sim_env sim;
static struct broker broker;
static int sockets[CLIENTS];
static uint64_t ids[CLIENTS];
static char events[4096]; /* "<name>:<code>[=<answer's code>] " for each callback */

static void quiet(void *context, enum log_level level, const char *text)
{
    (void)context;
    (void)level;
    (void)text;
}

static void on_frame(void *context, struct connection *connection, uint8_t *frame, size_t size)
{
    struct remoting_command command;
    (void)context;
    ck_assert_int_eq(remoting_command_decode(frame, size, &command), 0);
    client_call_answered(broker.calls, connection->id, &command);
}

static void on_closed(void *context, struct connection *connection)
{
    (void)context;
    client_call_connection_closed(broker.calls, connection->id);
}

static uint64_t newest;
static void note_id(void *argument, struct connection *connection)
{
    (void)argument;
    if (connection->id > newest)
        newest = connection->id;
}

static void turn(void)
{
    for (int i = 0; i < 20; i++) {
        uv_run(&loop, UV_RUN_NOWAIT);
        usleep(500);
    }
}

static void set_up(void)
{
    struct error error;
    log_sink_set(quiet, NULL);
    signal(SIGPIPE, SIG_IGN);
    uv_loop_init(&loop);
    memset(&broker, 0, sizeof broker);
    sim_env_init(&sim, 1, NULL);
    sim.clock->monotonic_us = 1000000;
    broker.env = sim.env;
    const struct remoting_server_options options = {.loop = &loop, .name = "test", .on_frame = on_frame, .on_closed = on_closed};
    broker.server = remoting_server_new(&options, &error);
    ck_assert_ptr_nonnull(broker.server);
    broker.calls = client_call_table_new(NULL, &broker); /* no timer: the test's clock decides */
    ck_assert_int_eq(remoting_server_listen(broker.server, "127.0.0.1", 0, &error), 0);
    for (int i = 0; i < CLIENTS; i++) {
        struct sockaddr_in name = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)remoting_server_port(broker.server, 0)),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        sockets[i] = socket(AF_INET, SOCK_STREAM, 0);
        ck_assert_int_eq(connect(sockets[i], (struct sockaddr *)&name, sizeof name), 0);
        newest = 0;
        while (newest == 0 || (i > 0 && newest == ids[i - 1])) {
            turn();
            remoting_server_each(broker.server, note_id, NULL);
        }
        ids[i] = newest;
    }
    events[0] = 0;
}

static void server_closed(void *argument)
{
    *(bool *)argument = true;
}

static void tear_down(void)
{
    bool done = false;
    client_call_table_close(broker.calls);
    remoting_server_close(broker.server, server_closed, &done);
    while (!done)
        uv_run(&loop, UV_RUN_ONCE);
    uv_run(&loop, UV_RUN_DEFAULT);
    remoting_server_free(broker.server);
    client_call_table_free(broker.calls);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    sim_env_close(&sim);
    for (int i = 0; i < CLIENTS; i++)
        close(sockets[i]);
}

static void note(struct broker *of, void *context, int code, const struct remoting_command *answer)
{
    char event[64];
    ck_assert_ptr_eq(of, &broker);
    if (answer != NULL)
        snprintf(event, sizeof event, "%s:%d=%d ", (const char *)context, code, answer->code);
    else
        snprintf(event, sizeof event, "%s:%d ", (const char *)context, code);
    ck_assert_uint_lt(strlen(events) + strlen(event), sizeof events);
    strcat(events, event);
}

static int call(int client, const char *name, uint32_t timeout_ms, client_call_done done)
{
    struct remoting_writer writer;
    int rv = client_call_begin(&broker, ids[client], REQUEST_GET_CONSUMER_RUNNING_INFO, &writer);
    if (rv != 0)
        return rv;
    remoting_writer_ext_text(&writer, "consumerGroup", name);
    client_call_end(&broker, ids[client], &writer, timeout_ms, done, (void *)(uintptr_t)name);
    return 0;
}

/* Reads one request as the client and gives its opaque. */
static int32_t read_request(int client, const char *name)
{
    static uint8_t frame[65536];
    struct remoting_command command;
    size_t have = 0;
    int64_t size = 0;
    turn();
    while (size == 0 || have < (size_t)size) {
        ssize_t got = recv(sockets[client], frame + have, size == 0 ? 4 - have : (size_t)size - have, 0);
        ck_assert_int_gt(got, 0);
        have += (size_t)got;
        if (have == 4)
            size = remoting_frame_size(slice_of(frame, have));
    }
    ck_assert_int_eq(remoting_command_decode(frame, have, &command), 0);
    ck_assert_int_eq(command.code, REQUEST_GET_CONSUMER_RUNNING_INFO);
    ck_assert_int_eq(command.flag, 0);
    ck_assert(slice_equal_text(remoting_ext(&command, "consumerGroup"), name));
    return command.opaque;
}

static void answer(int client, int32_t opaque, int32_t code)
{
    struct remoting_writer writer;
    struct buffer out;
    buffer_init(&out, 0);
    remoting_writer_begin_response(&writer, &out, REMOTING_JSON, code, opaque, NULL);
    remoting_writer_end(&writer, 0);
    ck_assert_int_eq(send(sockets[client], out.data, out.size, 0), (ssize_t)out.size);
    buffer_close(&out);
    turn();
}

static void expect(const char *expected)
{
    ck_assert_str_eq(events, expected);
    events[0] = 0;
}

static void pass(uint64_t ms)
{
    sim.clock->monotonic_us += ms * 1000;
    client_call_expire(broker.calls, sim.clock->monotonic_us);
}

START_TEST(an_answer_belongs_to_its_connection_and_opaque)
{
    ck_assert_int_eq(call(0, "a", 1000, note), 0);
    ck_assert_int_eq(call(0, "b", 1000, note), 0);
    ck_assert_int_eq(call(1, "c", 1000, note), 0);
    ck_assert_uint_eq(client_call_count(broker.calls), 3);
    int32_t a = read_request(0, "a"), b = read_request(0, "b"), c = read_request(1, "c");
    ck_assert_int_ne(a, b);
    answer(1, a, 0); /* not yours */
    answer(0, c, 0);
    answer(0, 12345, 0);
    expect("");
    answer(0, b, 7);
    expect("b:0=7 ");
    answer(0, b, 7); /* once */
    expect("");
    answer(0, a, 0);
    answer(1, c, 1);
    expect("a:0=0 c:0=1 ");
    ck_assert_uint_eq(client_call_count(broker.calls), 0);
}
END_TEST

START_TEST(time_runs_out_in_the_order_of_deadlines)
{
    char text[64];
    ck_assert_int_eq(call(0, "long", 10000, note), 0);
    ck_assert_int_eq(call(0, "short", 4000, note), 0);
    ck_assert_int_eq(call(1, "middle", 5000, note), 0);
    pass(3999);
    expect("");
    pass(1);
    snprintf(text, sizeof text, "short:%d ", ERROR_TIMEOUT);
    expect(text);
    pass(6000);
    snprintf(text, sizeof text, "middle:%d long:%d ", ERROR_TIMEOUT, ERROR_TIMEOUT);
    expect(text);
    answer(0, read_request(0, "long"), 0); /* too late */
    expect("");
}
END_TEST

START_TEST(a_closed_connection_ends_its_calls)
{
    char text[64];
    ck_assert_int_eq(call(0, "a", 10000, note), 0);
    ck_assert_int_eq(call(1, "b", 10000, note), 0);
    close(sockets[0]);
    turn();
    expect(""); /* not from inside the close */
    pass(0);
    snprintf(text, sizeof text, "a:%d ", ERROR_CONNECTION);
    expect(text);
    ck_assert_int_eq(call(0, "again", 1000, note), ERROR_CONNECTION);
    answer(1, read_request(1, "b"), 0);
    expect("b:0=0 ");
    sockets[0] = dup(sockets[1]); /* for tear_down */
}
END_TEST

static unsigned ended;

static void count(struct broker *of, void *context, int code, const struct remoting_command *reply)
{
    (void)of, (void)context, (void)code, (void)reply;
    ended++;
}

START_TEST(the_number_of_calls_is_bounded)
{
    ended = 0;
    for (unsigned i = 0; i < LIMIT_CLIENT_CALLS; i++)
        ck_assert_int_eq(call((int)(i % CLIENTS), "x", 1000 + i % 3, count), 0);
    ck_assert_int_eq(call(0, "y", 1000, note), ERROR_BUSY);
    ck_assert_uint_eq(client_call_count(broker.calls), LIMIT_CLIENT_CALLS);
    answer(0, read_request(0, "x"), 0);
    ck_assert_uint_eq(ended, 1);
    ck_assert_int_eq(call(0, "y", 1000, count), 0);
    ck_assert_int_eq(call(0, "y", 1000, count), ERROR_BUSY);
    pass(1001);
    ck_assert_uint_gt(ended, LIMIT_CLIENT_CALLS / 2);
    pass(1);
    ck_assert_uint_eq(ended, LIMIT_CLIENT_CALLS + 1);
}
END_TEST

static void call_again(struct broker *of, void *context, int code, const struct remoting_command *reply)
{
    note(of, context, code, reply);
    ck_assert_int_eq(call(1, "second", 500, note), code == ERROR_STOPPED ? ERROR_CONNECTION : 0);
}

START_TEST(a_callback_may_call)
{
    char text[64];
    ck_assert_int_eq(call(0, "first", 1000, call_again), 0);
    ck_assert_int_eq(call(0, "other", 1000, note), 0);
    pass(1000);
    snprintf(text, sizeof text, "first:%d other:%d ", ERROR_TIMEOUT, ERROR_TIMEOUT);
    expect(text);
    pass(500);
    snprintf(text, sizeof text, "second:%d ", ERROR_TIMEOUT);
    expect(text);
    ck_assert_int_eq(call(0, "last", 1000, call_again), 0);
    client_call_table_close(broker.calls);
    snprintf(text, sizeof text, "last:%d ", ERROR_STOPPED);
    expect(text);
    ck_assert_uint_eq(client_call_count(broker.calls), 0);
}
END_TEST

/* tear_down closes with calls out. */
START_TEST(a_stop_ends_what_waits)
{
    ck_assert_int_eq(call(0, "a", 1000, note), 0);
    ck_assert_int_eq(call(1, "b", 2000, note), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_call");
    TCase *tcase = tcase_create("all");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, an_answer_belongs_to_its_connection_and_opaque);
    tcase_add_test(tcase, time_runs_out_in_the_order_of_deadlines);
    tcase_add_test(tcase, a_closed_connection_ends_its_calls);
    tcase_add_test(tcase, the_number_of_calls_is_bounded);
    tcase_add_test(tcase, a_callback_may_call);
    tcase_add_test(tcase, a_stop_ends_what_waits);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
