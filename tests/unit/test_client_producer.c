/* The producer against servers that answer by a script: what is sent, what is tried again, and what a caller is told.
 */
#include <check.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "client/ledgermq.h"
#include "client/send.h"
#include "proto/message.h"
#include "proto/request_code.h"
#include "proto/response_code.h"
#include "tests/lib/fake_server.h"
#include "tests/lib/run_suite.h"

/* What the servers of one test share. Scripts run on the servers' threads. */
static struct {
    struct fake_server name_server, second_name_server, broker, other;
    const char *brokers[4]; /* what name_server answers */
    const char *second_brokers[4];
    int perm;
    bool unknown_topic; /* name servers know TBW102 only */
    bool nothing_known;
    atomic_int not_ready; /* so many questions are answered with 1 */
    atomic_int code;     /* what broker answers */
    atomic_int failures; /* so many requests get `code`, then success; -1: all */
    atomic_int reaction; /* of a failing request */
    atomic_int sends, heartbeats, unregisters, oneways;
    pthread_mutex_t lock;
    char topic[64], properties[512], body[20000];
    size_t body_size;
    int sys_flag, queue_id, flag;
    char heartbeat[1024];
} world = {.lock = PTHREAD_MUTEX_INITIALIZER};

static char names[8][96];

static const char *broker_at(int slot, const char *name, const char *address)
{
    snprintf(names[slot], sizeof names[slot], "%s=%s", name, address);
    return names[slot];
}

static enum fake_reaction route_script(struct fake_server *server, struct remoting_command *request,
                                       struct buffer *out)
{
    struct slice topic = remoting_ext(request, "topic");
    ck_assert_int_eq(request->code, REQUEST_GET_ROUTEINFO_BY_TOPIC);
    if (world.not_ready > 0) {
        world.not_ready--;
        fake_answer(out, request, RESPONSE_SYSTEM_ERROR, "name server not ready", slice_of(NULL, 0));
        return FAKE_ANSWER;
    }
    if (world.nothing_known || (world.unknown_topic && !slice_equal_text(topic, "TBW102"))) {
        fake_answer(out, request, RESPONSE_TOPIC_NOT_EXIST, "No topic route info", slice_of(NULL, 0));
        return FAKE_ANSWER;
    }
    pthread_mutex_lock(&world.lock);
    fake_answer_route(out, request, server == &world.name_server ? world.brokers : world.second_brokers, 2,
                      world.perm);
    pthread_mutex_unlock(&world.lock);
    return FAKE_ANSWER;
}

static void keep_send(const struct remoting_command *request)
{
    pthread_mutex_lock(&world.lock);
    fake_keep_text(world.topic, sizeof world.topic, remoting_ext(request, "b"));
    fake_keep_text(world.properties, sizeof world.properties, remoting_ext(request, "i"));
    world.body_size = request->body.size < sizeof world.body ? request->body.size : sizeof world.body;
    memcpy(world.body, request->body.data, world.body_size);
    world.sys_flag = (int)fake_number(request, "f");
    world.queue_id = (int)fake_number(request, "e");
    world.flag = (int)fake_number(request, "h");
    pthread_mutex_unlock(&world.lock);
}

static enum fake_reaction broker_script(struct fake_server *server, struct remoting_command *request,
                                        struct buffer *out)
{
    switch (request->code) {
    case REQUEST_HEART_BEAT:
        pthread_mutex_lock(&world.lock);
        fake_keep_text(world.heartbeat, sizeof world.heartbeat, request->body);
        world.heartbeats++;
        pthread_mutex_unlock(&world.lock);
        fake_answer(out, request, 0, NULL, slice_of(NULL, 0));
        return FAKE_ANSWER;
    case REQUEST_UNREGISTER_CLIENT:
        world.unregisters++;
        fake_answer(out, request, 0, NULL, slice_of(NULL, 0));
        return FAKE_ANSWER;
    default:
        break;
    }
    ck_assert_int_eq(request->code, REQUEST_SEND_MESSAGE_V2);
    world.sends++;
    world.oneways += remoting_is_oneway(request);
    keep_send(request);
    if (server == &world.broker && world.failures != 0) {
        if (world.failures > 0)
            world.failures--;
        if (world.reaction == FAKE_ANSWER)
            fake_answer(out, request, world.code, "told so", slice_of(NULL, 0));
        return (enum fake_reaction)world.reaction;
    }
    fake_answer_send(out, request, server == &world.broker ? world.code : 0, 41 + world.sends);
    return FAKE_ANSWER;
}

static struct ledgermq_client *client;
static struct ledgermq_producer *producer;
static struct ledgermq_producer_options options;

static void set_up(void)
{
    world.perm = 6;
    fake_server_start(&world.name_server, 0, route_script, NULL);
    fake_server_start(&world.second_name_server, 0, route_script, NULL);
    fake_server_start(&world.broker, 0, broker_script, NULL);
    fake_server_start(&world.other, 0, broker_script, NULL);
    world.brokers[0] = world.second_brokers[0] = broker_at(0, "broker-a", world.broker.address);
    ledgermq_producer_options_init(&options);
    options.group = "TestProducer";
}

static void connect_client(bool both)
{
    struct ledgermq_client_options client_options;
    struct ledgermq_error error;
    char list[96];
    ledgermq_client_options_init(&client_options);
    snprintf(list, sizeof list, "%s%s%s", world.name_server.address, both ? ";" : "",
             both ? world.second_name_server.address : "");
    client_options.name_servers = list;
    ck_assert_msg(ledgermq_client_new(&client_options, &client, &error) == LEDGERMQ_OK, "%s", error.message);
    ck_assert_msg(ledgermq_producer_new(client, &options, &producer, &error) == LEDGERMQ_OK, "%s", error.message);
}

static void tear_down(void)
{
    ledgermq_client_free(client); /* with its producer */
    fake_server_stop(&world.name_server);
    fake_server_stop(&world.second_name_server);
    fake_server_stop(&world.broker);
    fake_server_stop(&world.other);
}

static const struct ledgermq_message plain = {.topic = "Orders", .body = "hello", .body_size = 5};

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static bool wait_for(atomic_int *value, int wanted)
{
    for (int64_t end = now_ms() + 5000; now_ms() < end; usleep(1000))
        if (*value >= wanted)
            return true;
    return false;
}

START_TEST(test_send)
{
    struct ledgermq_send_result result;
    struct ledgermq_error error = {0};
    static const struct ledgermq_property properties[] = {{"color", "red"}};
    struct ledgermq_message message = {.topic = "Orders",
                                       .body = "hello",
                                       .body_size = 5,
                                       .tags = "TagA",
                                       .keys = "k1 k2",
                                       .delay_level = 3,
                                       .flag = 77,
                                       .properties = properties,
                                       .property_count = 1};
    connect_client(false);
    ck_assert_msg(ledgermq_send(producer, &message, &result, &error) == LEDGERMQ_OK, "%s", error.message);
    ck_assert_int_eq(result.status, LEDGERMQ_SEND_OK);
    ck_assert_int_eq(result.tries, 1);
    ck_assert_str_eq(result.offset_message_id, "7F00000100002A9F0000000000003302");
    ck_assert_int_eq(result.queue_offset, 42);
    ck_assert_str_eq(result.queue.broker_name, "broker-a");
    ck_assert_str_eq(result.queue.topic, "Orders");
    ck_assert_int_eq(result.queue.queue_id, world.queue_id);
    ck_assert_uint_eq(strlen(result.message_id), 32);
    struct slice stored = slice_of_text(world.properties);
    ck_assert(slice_equal_text(message_property(stored, "UNIQ_KEY"), result.message_id));
    ck_assert(slice_equal_text(message_property(stored, "KEYS"), "k1 k2"));
    ck_assert(slice_equal_text(message_property(stored, "TAGS"), "TagA"));
    ck_assert(slice_equal_text(message_property(stored, "DELAY"), "3"));
    ck_assert(slice_equal_text(message_property(stored, "WAIT"), "true"));
    ck_assert(slice_equal_text(message_property(stored, "color"), "red"));
    ck_assert_uint_eq(world.body_size, 5);
    ck_assert_int_eq(memcmp(world.body, "hello", 5), 0);
    ck_assert_int_eq(world.sys_flag, 0);
    ck_assert_int_eq(world.flag, 77);
    /* All queues in turn. */
    int first = result.queue.queue_id;
    ck_assert_int_eq(ledgermq_send(producer, &message, &result, &error), LEDGERMQ_OK);
    ck_assert_int_eq(result.queue.queue_id, 1 - first);
}
END_TEST

START_TEST(test_heartbeat)
{
    char wanted[200];
    connect_client(false);
    ck_assert_int_eq(ledgermq_send(producer, &plain, NULL, NULL), LEDGERMQ_OK);
    ck_assert(wait_for(&world.heartbeats, 1));
    snprintf(wanted, sizeof wanted, "\"clientID\":\"%s\"", ledgermq_client_id(client));
    ck_assert_ptr_nonnull(strstr(world.heartbeat, wanted));
    ck_assert_ptr_nonnull(strstr(world.heartbeat, "\"producerDataSet\":[{\"groupName\":\"TestProducer\"}]"));
    ledgermq_producer_free(producer);
    ck_assert_int_eq(world.unregisters, 1);
}
END_TEST

/* The codes after which RocketMQ's producer tries again, and some after which it does not. */
static const struct {
    int code;
    bool again;
} code_rows[] = {{1, true},   {14, true}, {16, true},  {17, true}, {204, true},
                 {205, true}, {2, false}, {13, false}, {3, false}, {215, false}};

START_TEST(test_retry_codes)
{
    struct ledgermq_send_result result;
    struct ledgermq_error error = {0};
    world.code = code_rows[_i].code;
    world.failures = -1;
    world.brokers[1] = broker_at(1, "broker-b", world.other.address);
    connect_client(false);
    ck_assert(send_may_retry(producer, code_rows[_i].code) == code_rows[_i].again);
    /* Both brokers in turn: two sends meet the bad one at least once. */
    for (int i = 0; i < 4; i++) {
        int rv = ledgermq_send(producer, &plain, &result, &error);
        if (code_rows[_i].again) {
            ck_assert_msg(rv == LEDGERMQ_OK, "%s", error.message);
            ck_assert_str_eq(result.queue.broker_name, "broker-b");
        } else if (rv != LEDGERMQ_OK) {
            ck_assert_int_eq(rv, LEDGERMQ_REFUSED);
            ck_assert_int_eq(error.response_code, code_rows[_i].code);
            ck_assert_ptr_nonnull(strstr(error.message, "told so"));
            ck_assert_ptr_nonnull(strstr(error.message, "1 try"));
        }
    }
}
END_TEST

START_TEST(test_gives_up)
{
    struct ledgermq_error error = {0};
    world.code = 1;
    world.failures = -1;
    connect_client(false);
    ck_assert_int_eq(ledgermq_send(producer, &plain, NULL, &error), LEDGERMQ_REFUSED);
    ck_assert_int_eq(error.response_code, 1);
    ck_assert_int_eq(world.sends, 3);
    ck_assert_ptr_nonnull(strstr(error.message, "3 tries"));
}
END_TEST

/* The old leader answers 14; only the second name server knows the new one. */
START_TEST(test_leader_change)
{
    struct ledgermq_send_result result;
    struct ledgermq_error error = {0};
    world.code = 14;
    world.failures = -1;
    world.second_brokers[0] = broker_at(1, "broker-a", world.other.address);
    connect_client(true);
    for (int i = 0; i < 6; i++) {
        int64_t begin = now_ms();
        ck_assert_msg(ledgermq_send(producer, &plain, &result, &error) == LEDGERMQ_OK, "%s", error.message);
        ck_assert_int_le(result.tries, 2);
        ck_assert_int_lt(now_ms() - begin, 2000);
    }
    ck_assert_int_ge(world.sends, 6);
    ck_assert_int_le(world.sends, 7); /* the old leader was asked once at most */
}
END_TEST

static void *change_route(void *argument)
{
    usleep(300000);
    pthread_mutex_lock(&world.lock);
    world.brokers[0] = argument;
    pthread_mutex_unlock(&world.lock);
    return NULL;
}

/* Nobody listens at the old address, and the name server learns of the new leader only later: one gap, no error, no
 * counted try. */
START_TEST(test_dead_leader)
{
    struct ledgermq_send_result result;
    struct ledgermq_error error = {0};
    pthread_t thread;
    char dead[32];
    snprintf(dead, sizeof dead, "127.0.0.1:%d", fake_server_free_port());
    world.brokers[0] = broker_at(0, "broker-a", dead);
    connect_client(false);
    int64_t begin = now_ms();
    pthread_create(&thread, NULL, change_route, (void *)(uintptr_t)broker_at(1, "broker-a", world.other.address));
    ck_assert_msg(ledgermq_send(producer, &plain, &result, &error) == LEDGERMQ_OK, "%s", error.message);
    ck_assert_int_ge(now_ms() - begin, 250);
    ck_assert_int_lt(now_ms() - begin, 2500);
    ck_assert_int_eq(result.tries, 1);
    pthread_join(thread, NULL);
}
END_TEST

/* The same while the route names no leader at all. */
START_TEST(test_no_leader)
{
    struct ledgermq_send_result result;
    struct ledgermq_error error = {0};
    pthread_t thread;
    world.brokers[0] = broker_at(0, "broker-a", "");
    connect_client(false);
    pthread_create(&thread, NULL, change_route, (void *)(uintptr_t)broker_at(1, "broker-a", world.other.address));
    ck_assert_msg(ledgermq_send(producer, &plain, &result, &error) == LEDGERMQ_OK, "%s", error.message);
    ck_assert_int_eq(result.tries, 1);
    pthread_join(thread, NULL);
}
END_TEST

START_TEST(test_no_leader_at_all)
{
    struct ledgermq_error error = {0};
    options.send_timeout_ms = 300;
    world.brokers[0] = broker_at(0, "broker-a", "");
    connect_client(false);
    int64_t begin = now_ms();
    ck_assert_int_eq(ledgermq_send(producer, &plain, NULL, &error), LEDGERMQ_NO_ROUTE);
    ck_assert_int_lt(now_ms() - begin, 2500);
    ck_assert_ptr_nonnull(strstr(error.message, "leader"));
}
END_TEST

START_TEST(test_reset)
{
    struct ledgermq_send_result result;
    struct ledgermq_error error = {0};
    world.reaction = FAKE_RESET;
    world.failures = 1;
    connect_client(false);
    ck_assert_msg(ledgermq_send(producer, &plain, &result, &error) == LEDGERMQ_OK, "%s", error.message);
    ck_assert_int_eq(result.tries, 2);
    ck_assert_int_eq(world.sends, 2);
}
END_TEST

START_TEST(test_all_reset)
{
    struct ledgermq_error error = {0};
    world.reaction = FAKE_RESET;
    world.failures = -1;
    options.send_timeout_ms = 10000; /* all three tries, on a busy machine too */
    connect_client(false);
    ck_assert_int_eq(ledgermq_send(producer, &plain, NULL, &error), LEDGERMQ_CONNECTION);
    ck_assert_int_eq(world.sends, 3);
    ck_assert_ptr_nonnull(strstr(error.message, "not known"));
}
END_TEST

START_TEST(test_timeout)
{
    struct ledgermq_error error = {0};
    options.send_timeout_ms = 2000;
    connect_client(false);
    /* The heart-beat's answer must not break the silence: it came before that of a send that followed it. */
    ck_assert_msg(ledgermq_send(producer, &plain, NULL, &error) == LEDGERMQ_OK, "%s", error.message);
    ck_assert(wait_for(&world.heartbeats, 1));
    ck_assert_msg(ledgermq_send(producer, &plain, NULL, &error) == LEDGERMQ_OK, "%s", error.message);
    world.reaction = FAKE_SILENCE;
    world.failures = -1;
    int64_t begin = now_ms();
    ck_assert_int_eq(ledgermq_send(producer, &plain, NULL, &error), LEDGERMQ_TIMEOUT);
    ck_assert_int_ge(now_ms() - begin, 1990);
    ck_assert_int_lt(now_ms() - begin, 10000);
    ck_assert_int_eq(world.sends, 3);
    /* Silence makes the next request use a new connection. */
    int connections = world.broker.connections;
    world.failures = 0;
    ck_assert_msg(ledgermq_send(producer, &plain, NULL, &error) == LEDGERMQ_OK, "%s", error.message);
    ck_assert_int_gt(world.broker.connections, connections);
}
END_TEST

START_TEST(test_statuses)
{
    static const int rows[][2] = {{0, LEDGERMQ_SEND_OK},
                                  {10, LEDGERMQ_FLUSH_DISK_TIMEOUT},
                                  {12, LEDGERMQ_FLUSH_SLAVE_TIMEOUT},
                                  {11, LEDGERMQ_SLAVE_NOT_AVAILABLE}};
    struct ledgermq_send_result result;
    connect_client(false);
    for (int i = 0; i < 4; i++) {
        world.code = rows[i][0];
        ck_assert_int_eq(ledgermq_send(producer, &plain, &result, NULL), LEDGERMQ_OK);
        ck_assert_int_eq(result.status, rows[i][1]);
    }
    ck_assert_str_eq(ledgermq_send_status_text(LEDGERMQ_FLUSH_SLAVE_TIMEOUT), "FLUSH_SLAVE_TIMEOUT");
}
END_TEST

START_TEST(test_unknown_topic)
{
    struct ledgermq_error error = {0};
    world.nothing_known = true;
    connect_client(true);
    ck_assert_int_eq(ledgermq_send(producer, &plain, NULL, &error), LEDGERMQ_NO_ROUTE);
    ck_assert_int_eq(error.response_code, 17);
    ck_assert_ptr_nonnull(strstr(error.message, "updateTopic"));
    ck_assert_int_eq(world.sends, 0);
}
END_TEST

/* A name server that has just started knows no brokers yet, which is no reason to fail. */
START_TEST(test_name_server_not_ready)
{
    struct ledgermq_error error = {0};
    struct ledgermq_queue *queues;
    size_t count;
    world.not_ready = 6;
    connect_client(false);
    ck_assert_msg(ledgermq_send(producer, &plain, NULL, &error) == LEDGERMQ_OK, "%s", error.message);
    ck_assert_int_eq(world.not_ready, 0);
    world.not_ready = 6;
    struct ledgermq_message other = {.topic = "Other", .body = "x", .body_size = 1};
    ck_assert_msg(ledgermq_publish_queues(producer, "Third", &queues, &count, &error) == LEDGERMQ_OK, "%s",
                  error.message);
    ledgermq_queues_free(queues);
    ck_assert_int_eq(world.not_ready, 0);
    world.not_ready = 1000000;
    options.send_timeout_ms = 300;
    struct ledgermq_producer *impatient;
    ck_assert_int_eq(ledgermq_producer_new(client, &options, &impatient, &error), LEDGERMQ_OK);
    ck_assert_int_eq(ledgermq_send(impatient, &other, NULL, &error), LEDGERMQ_NO_ROUTE);
    ck_assert_ptr_nonnull(strstr(error.message, "not ready"));
}
END_TEST

START_TEST(test_template)
{
    struct ledgermq_queue *queues;
    size_t count;
    struct ledgermq_error error = {0};
    world.unknown_topic = true;
    options.queues_of_new_topic = 1;
    connect_client(true);
    ck_assert_msg(ledgermq_send(producer, &plain, NULL, &error) == LEDGERMQ_OK, "%s", error.message);
    ck_assert_str_eq(world.topic, "Orders");
    ck_assert_int_eq(ledgermq_publish_queues(producer, "Orders", &queues, &count, &error), LEDGERMQ_OK);
    ck_assert_uint_eq(count, 1);
    ledgermq_queues_free(queues);
}
END_TEST

START_TEST(test_not_writable)
{
    struct ledgermq_error error = {0};
    world.perm = 4;
    connect_client(false);
    int64_t begin = now_ms();
    ck_assert_int_eq(ledgermq_send(producer, &plain, NULL, &error), LEDGERMQ_REFUSED);
    ck_assert_int_eq(error.response_code, RESPONSE_NO_PERMISSION);
    ck_assert_int_lt(now_ms() - begin, 2500);
}
END_TEST

START_TEST(test_no_name_server)
{
    struct ledgermq_client_options client_options;
    struct ledgermq_error error = {0};
    char dead[32];
    snprintf(dead, sizeof dead, "127.0.0.1:%d", fake_server_free_port());
    ledgermq_client_options_init(&client_options);
    client_options.name_servers = dead;
    ck_assert_int_eq(ledgermq_client_new(&client_options, &client, &error), LEDGERMQ_OK);
    ck_assert_int_eq(ledgermq_producer_new(client, NULL, &producer, &error), LEDGERMQ_OK);
    ck_assert_int_eq(ledgermq_send(producer, &plain, NULL, &error), LEDGERMQ_CONNECTION);
    ck_assert_ptr_nonnull(strstr(error.message, dead));
    client_options.name_servers = "nonsense";
    struct ledgermq_client *none;
    ck_assert_int_eq(ledgermq_client_new(&client_options, &none, &error), LEDGERMQ_INVALID);
    ck_assert_ptr_nonnull(strstr(error.message, "host:port"));
}
END_TEST

START_TEST(test_one_queue)
{
    struct ledgermq_send_result result;
    struct ledgermq_error error = {0};
    struct ledgermq_queue queue = {.topic = "Orders", .broker_name = "broker-b", .queue_id = 1};
    world.brokers[1] = broker_at(1, "broker-b", world.other.address);
    connect_client(false);
    for (int i = 0; i < 4; i++) {
        ck_assert_msg(ledgermq_send_to(producer, &plain, &queue, &result, &error) == LEDGERMQ_OK, "%s",
                      error.message);
        ck_assert_str_eq(result.queue.broker_name, "broker-b");
        ck_assert_int_eq(result.queue.queue_id, 1);
    }
    options.send_timeout_ms = 300;
    snprintf(queue.broker_name, sizeof queue.broker_name, "broker-x");
    struct ledgermq_producer *impatient;
    ck_assert_int_eq(ledgermq_producer_new(client, &options, &impatient, &error), LEDGERMQ_OK);
    ck_assert_int_eq(ledgermq_send_to(impatient, &plain, &queue, &result, &error), LEDGERMQ_NO_ROUTE);
    ck_assert_ptr_nonnull(strstr(error.message, "broker-x"));
}
END_TEST

START_TEST(test_oneway)
{
    connect_client(false);
    ck_assert_int_eq(ledgermq_send_oneway(producer, &plain, NULL), LEDGERMQ_OK);
    ck_assert(wait_for(&world.oneways, 1));
}
END_TEST

#define ASYNC_COUNT 2000
static atomic_int async_good, async_bad;

static void async_done(void *context, const struct ledgermq_send_result *result, const struct ledgermq_error *error)
{
    (void)context;
    ck_assert((result == NULL) != (error == NULL));
    if (result != NULL)
        async_good++;
    else
        async_bad++;
}

START_TEST(test_async)
{
    struct ledgermq_error error = {0};
    connect_client(false);
    for (int i = 0; i < ASYNC_COUNT; i++)
        ck_assert_msg(ledgermq_send_async(producer, &plain, NULL, async_done, NULL, &error) == LEDGERMQ_OK, "%s",
                      error.message);
    ledgermq_producer_free(producer); /* waits for all */
    ck_assert_int_eq(async_good, ASYNC_COUNT);
    ck_assert_int_eq(async_bad, 0);
    ck_assert_int_eq(world.sends, ASYNC_COUNT);
}
END_TEST

/* A call back may send the next one. */
static void chain_done(void *context, const struct ledgermq_send_result *result, const struct ledgermq_error *error)
{
    ck_assert_ptr_nonnull(result);
    ck_assert_ptr_null(error);
    struct ledgermq_error refused;
    ck_assert_int_eq(ledgermq_send(producer, &plain, NULL, &refused), LEDGERMQ_INVALID); /* would wait for itself */
    if (++async_good < 10)
        ck_assert_int_eq(ledgermq_send_async(producer, &plain, NULL, chain_done, context, NULL), LEDGERMQ_OK);
}

START_TEST(test_chain)
{
    connect_client(false);
    ck_assert_int_eq(ledgermq_send_async(producer, &plain, NULL, chain_done, NULL, NULL), LEDGERMQ_OK);
    ck_assert(wait_for(&async_good, 10));
}
END_TEST

START_TEST(test_limit)
{
    struct ledgermq_error error = {0};
    options.max_waiting = 3;
    options.send_timeout_ms = 300;
    world.reaction = FAKE_SILENCE;
    world.failures = -1;
    connect_client(false);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(ledgermq_send_async(producer, &plain, NULL, async_done, NULL, &error), LEDGERMQ_OK);
    ck_assert_int_eq(ledgermq_send_async(producer, &plain, NULL, async_done, NULL, &error), LEDGERMQ_BUSY);
    ck_assert_ptr_nonnull(strstr(error.message, "max_waiting"));
    ledgermq_producer_free(producer);
    ck_assert_int_eq(async_bad, 3);
}
END_TEST

START_TEST(test_compression)
{
    static char text[10000];
    static unsigned char plain_text[20000];
    uLongf size = sizeof plain_text;
    struct ledgermq_message message = {.topic = "Orders", .body = text, .body_size = sizeof text};
    memset(text, 'x', sizeof text);
    connect_client(false);
    ck_assert_int_eq(ledgermq_send(producer, &message, NULL, NULL), LEDGERMQ_OK);
    ck_assert_int_eq(world.sys_flag, 0x301);
    ck_assert_uint_lt(world.body_size, 1000);
    ck_assert_int_eq(uncompress(plain_text, &size, (const unsigned char *)world.body, world.body_size), Z_OK);
    ck_assert_uint_eq(size, sizeof text);
    message.body_size = 4095;
    ck_assert_int_eq(ledgermq_send(producer, &message, NULL, NULL), LEDGERMQ_OK);
    ck_assert_int_eq(world.sys_flag, 0);
    ck_assert_uint_eq(world.body_size, 4095);
}
END_TEST

START_TEST(test_bad_messages)
{
    static const struct ledgermq_property reserved[] = {{"KEYS", "x"}}, separator[] = {{"a", "b\001c"}},
                                          empty[] = {{"a", ""}};
    static const struct {
        struct ledgermq_message message;
        const char *says;
    } rows[] = {
        {{.topic = NULL, .body = "x", .body_size = 1}, "blank"},
        {{.topic = "", .body = "x", .body_size = 1}, "blank"},
        {{.topic = "a b", .body = "x", .body_size = 1}, "illegal"},
        {{.topic = "SCHEDULE_TOPIC_XXXX", .body = "x", .body_size = 1}, "broker's own"},
        {{.topic = "T", .body = NULL, .body_size = 1}, "no body"},
        {{.topic = "T", .body = "x", .body_size = 0}, "no body"},
        {{.topic = "T", .body = "x", .body_size = 5u * 1024 * 1024}, "max_body_size"},
        {{.topic = "T", .body = "x", .body_size = 1, .delay_level = -1}, "delay"},
        {{.topic = "T", .body = "x", .body_size = 1, .tags = "a\002b"}, "characters 1 and 2"},
        {{.topic = "T", .body = "x", .body_size = 1, .properties = reserved, .property_count = 1}, "KEYS"},
        {{.topic = "T", .body = "x", .body_size = 1, .properties = separator, .property_count = 1},
         "characters 1 and 2"},
        {{.topic = "T", .body = "x", .body_size = 1, .properties = empty, .property_count = 1}, "no value"},
    };
    struct ledgermq_error error;
    connect_client(false);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        error.message[0] = '\0';
        ck_assert_int_eq(ledgermq_send(producer, &rows[i].message, NULL, &error), LEDGERMQ_INVALID);
        ck_assert_msg(strstr(error.message, rows[i].says) != NULL, "row %zu: %s", i, error.message);
    }
    static char long_value[40000];
    memset(long_value, 'v', sizeof long_value - 1);
    struct ledgermq_property large = {"a", long_value};
    struct ledgermq_message message = {
        .topic = "T", .body = "x", .body_size = 1, .properties = &large, .property_count = 1};
    ck_assert_int_eq(ledgermq_send(producer, &message, NULL, &error), LEDGERMQ_INVALID);
    ck_assert_ptr_nonnull(strstr(error.message, "32767"));
    ck_assert_int_eq(world.sends, 0);
}
END_TEST

/* With fault-latency avoidance a broker that failed is left alone even though it would work again. */
START_TEST(test_fault_latency)
{
    struct ledgermq_send_result result;
    options.latency_fault_enable = true;
    world.brokers[1] = broker_at(1, "broker-b", world.other.address);
    world.code = 1;
    world.failures = 1;
    connect_client(false);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(ledgermq_send(producer, &plain, &result, NULL), LEDGERMQ_OK);
    ck_assert_int_eq(world.failures, 0);
    world.code = 0;
    for (int i = 0; i < 8; i++) {
        ck_assert_int_eq(ledgermq_send(producer, &plain, &result, NULL), LEDGERMQ_OK);
        ck_assert_str_eq(result.queue.broker_name, "broker-b");
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_producer");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 30);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, test_send);
    tcase_add_test(tcase, test_heartbeat);
    tcase_add_loop_test(tcase, test_retry_codes, 0, sizeof code_rows / sizeof code_rows[0]);
    tcase_add_test(tcase, test_gives_up);
    tcase_add_test(tcase, test_leader_change);
    tcase_add_test(tcase, test_dead_leader);
    tcase_add_test(tcase, test_no_leader);
    tcase_add_test(tcase, test_no_leader_at_all);
    tcase_add_test(tcase, test_reset);
    tcase_add_test(tcase, test_all_reset);
    tcase_add_test(tcase, test_timeout);
    tcase_add_test(tcase, test_statuses);
    tcase_add_test(tcase, test_unknown_topic);
    tcase_add_test(tcase, test_name_server_not_ready);
    tcase_add_test(tcase, test_template);
    tcase_add_test(tcase, test_not_writable);
    tcase_add_test(tcase, test_no_name_server);
    tcase_add_test(tcase, test_one_queue);
    tcase_add_test(tcase, test_oneway);
    tcase_add_test(tcase, test_async);
    tcase_add_test(tcase, test_chain);
    tcase_add_test(tcase, test_limit);
    tcase_add_test(tcase, test_compression);
    tcase_add_test(tcase, test_bad_messages);
    tcase_add_test(tcase, test_fault_latency);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
