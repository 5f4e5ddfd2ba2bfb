/* Routes as name servers send them, the choice of a queue, the table of slow brokers, message ids. */
#include <check.h>
#include <stdlib.h>
#include <time.h>

#include "client/message_client_id_setter.h"
#include "client/queue_selector.h"
#include "tests/lib/run_suite.h"

static const char two_brokers[] =
    "{\"brokerDatas\":[{\"brokerAddrs\":{\"0\":\"127.0.0.1:20911\"},\"brokerName\":\"broker-b\",\"cluster\":"
    "\"DefaultCluster\"},"
    "{\"brokerAddrs\":{0:\"127.0.0.1:10911\",1:\"127.0.0.1:10921\"},\"brokerName\":\"broker-a\",\"cluster\":"
    "\"DefaultCluster\"}],"
    "\"filterServerTable\":{},\"queueDatas\":["
    "{\"brokerName\":\"broker-b\",\"perm\":6,\"readQueueNums\":3,\"topicSysFlag\":0,\"writeQueueNums\":1},"
    "{\"brokerName\":\"broker-a\",\"perm\":6,\"readQueueNums\":2,\"topicSysFlag\":0,\"writeQueueNums\":2}]}";

static struct topic_route parse(const char *text, int queues_of_new_topic)
{
    struct topic_route route;
    struct error error = {0};
    ck_assert_msg(topic_route_parse(&route, slice_of_text(text), queues_of_new_topic, &error) == 0, "%s",
                  error.message);
    return route;
}

START_TEST(test_two_brokers)
{
    struct topic_route route = parse(two_brokers, 0);
    ck_assert_uint_eq(route.broker_count, 2);
    ck_assert_str_eq(route.brokers[0].name, "broker-a"); /* sorted */
    ck_assert_str_eq(route_broker_leader(&route.brokers[0]), "127.0.0.1:10911");
    ck_assert_uint_eq(route.publish_count, 3);
    ck_assert_uint_eq(route.subscribe_count, 5);
    ck_assert_str_eq(route.publish[0].broker->name, "broker-a");
    ck_assert_int_eq(route.publish[1].queue_id, 1);
    ck_assert_str_eq(route.publish[2].broker->name, "broker-b");
    ck_assert(!route.from_template);
    topic_route_close(&route);
}
END_TEST

START_TEST(test_no_leader)
{
    struct topic_route route = parse(
        "{\"brokerDatas\":[{\"brokerAddrs\":{\"1\":\"h:1\",\"2\":\"h:2\"},\"brokerName\":\"a\",\"cluster\":\"c\"}],"
        "\"queueDatas\":[{\"brokerName\":\"a\",\"perm\":6,\"readQueueNums\":4,\"writeQueueNums\":4}]}",
        0);
    ck_assert_ptr_null(route_broker_leader(&route.brokers[0]));
    ck_assert_str_eq(route_broker_any(&route.brokers[0]), "h:1");
    ck_assert_uint_eq(route.publish_count, 0);
    ck_assert_uint_eq(route.subscribe_count, 4);
    ck_assert_ptr_null(queue_selector_pick(&route, NULL, NULL, 0));
    topic_route_close(&route);
}
END_TEST

START_TEST(test_permissions)
{
    static const struct {
        int perm;
        uint32_t publish, subscribe;
    } rows[] = {{2, 4, 0}, {4, 0, 4}, {6, 4, 4}, {7, 4, 4}, {1, 0, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[400];
        snprintf(text, sizeof text,
                 "{\"brokerDatas\":[{\"brokerAddrs\":{\"0\":\"h:1\"},\"brokerName\":\"a\",\"cluster\":\"c\"}],"
                 "\"queueDatas\":[{\"brokerName\":\"a\",\"perm\":%d,\"readQueueNums\":4,\"writeQueueNums\":4}]}",
                 rows[i].perm);
        struct topic_route route = parse(text, 0);
        ck_assert_uint_eq(route.publish_count, rows[i].publish);
        ck_assert_uint_eq(route.subscribe_count, rows[i].subscribe);
        topic_route_close(&route);
    }
}
END_TEST

START_TEST(test_template)
{
    struct topic_route route = parse(two_brokers, 2);
    ck_assert(route.from_template);
    ck_assert_uint_eq(route.publish_count, 4); /* two of each broker, whatever it had to write */
    topic_route_close(&route);
}
END_TEST

START_TEST(test_order_conf)
{
    struct topic_route route =
        parse("{\"brokerDatas\":[{\"brokerAddrs\":{\"0\":\"h:1\"},\"brokerName\":\"a\",\"cluster\":\"c\"}],"
              "\"orderTopicConf\":\"aa:9;a:3\","
              "\"queueDatas\":[{\"brokerName\":\"a\",\"perm\":6,\"readQueueNums\":4,\"writeQueueNums\":4}]}",
              0);
    ck_assert_uint_eq(route.publish_count, 3);
    ck_assert_uint_eq(route.subscribe_count, 4);
    topic_route_close(&route);
}
END_TEST

START_TEST(test_bad_routes)
{
    static const struct {
        const char *text;
        int code;
    } rows[] = {
        {"", ERROR_MALFORMED},
        {"[]", 0},
        {"{\"brokerDatas\":7}", 0},
        {"{\"brokerDatas\":[", ERROR_MALFORMED},
        {"{\"brokerDatas\":[{\"brokerAddrs\":{\"0\":\"h:1\"},\"brokerName\":\"a\"}],"
         "\"queueDatas\":[{\"brokerName\":\"a\",\"perm\":6,\"readQueueNums\":2000000000,\"writeQueueNums\":1}]}",
         ERROR_TOO_LARGE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct topic_route route;
        struct error error = {0};
        int rv = topic_route_parse(&route, slice_of_text(rows[i].text), 0, &error);
        ck_assert_msg(rv != 0, "row %zu was taken", i);
        ck_assert(rows[i].code == 0 || rv == rows[i].code);
        ck_assert_str_ne(error.message, "");
    }
}
END_TEST

START_TEST(test_name_server_list)
{
    char servers[ROUTE_NAME_SERVERS_MAX][REMOTING_ADDRESS_MAX];
    struct error error = {0};
    ck_assert_uint_eq(route_split_name_servers(" a:1 ; b:2;", servers, &error), 2);
    ck_assert_str_eq(servers[0], "a:1");
    ck_assert_str_eq(servers[1], "b:2");
    static const char *const bad[] = {"", " ; ", "host", "a:1,b:2", NULL};
    for (size_t i = 0; i < 5; i++) {
        error.message[0] = '\0';
        ck_assert_uint_eq(route_split_name_servers(bad[i], servers, &error), 0);
        ck_assert_str_ne(error.message, "");
    }
    ck_assert_uint_eq(route_split_name_servers("a:1;a:1;a:1;a:1;a:1;a:1;a:1;a:1;a:1;a:1;a:1;a:1;a:1;a:1;a:1;a:1;a:1",
                                               servers, &error),
                      0);
}
END_TEST

START_TEST(test_round_robin)
{
    struct topic_route route = parse(two_brokers, 0);
    int counts[3] = {0};
    route.turn = UINT32_MAX - 4; /* the turn wraps */
    for (int i = 0; i < 300; i++)
        counts[queue_selector_pick(&route, NULL, NULL, 0) - route.publish]++;
    for (int i = 0; i < 3; i++)
        ck_assert_int_ge(counts[i], 99);
    for (int i = 0; i < 30; i++)
        ck_assert_str_eq(queue_selector_pick(&route, "broker-a", NULL, 0)->broker->name, "broker-b");
    topic_route_close(&route);
}
END_TEST

START_TEST(test_only_broker)
{
    struct topic_route route =
        parse("{\"brokerDatas\":[{\"brokerAddrs\":{\"0\":\"h:1\"},\"brokerName\":\"a\",\"cluster\":\"c\"}],"
              "\"queueDatas\":[{\"brokerName\":\"a\",\"perm\":6,\"readQueueNums\":4,\"writeQueueNums\":4}]}",
              0);
    ck_assert_ptr_nonnull(queue_selector_pick(&route, "a", NULL, 0));
    topic_route_close(&route);
}
END_TEST

START_TEST(test_absence)
{
    static const int64_t rows[][2] = {{0, 0},         {49, 0},         {50, 0},         {100, 0},
                                      {549, 0},       {550, 30000},    {1000, 60000},   {2000, 120000},
                                      {3000, 180000}, {14999, 180000}, {15000, 600000}, {900000, 600000}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        ck_assert_int_eq(latency_fault_absence_ms(rows[i][0]), rows[i][1]);
}
END_TEST

START_TEST(test_latency_fault)
{
    struct latency_fault_tolerance tolerance;
    struct topic_route route = parse(two_brokers, 0);
    latency_fault_tolerance_init(&tolerance);
    ck_assert_ptr_null(latency_fault_tolerance_pick(&tolerance, 0));
    latency_fault_tolerance_update(&tolerance, "broker-a", 600, false, 1000);
    ck_assert(!latency_fault_tolerance_is_available(&tolerance, "broker-a", 30999));
    ck_assert(latency_fault_tolerance_is_available(&tolerance, "broker-a", 31000));
    for (int i = 0; i < 12; i++)
        ck_assert_str_eq(queue_selector_pick(&route, NULL, &tolerance, 1001)->broker->name, "broker-b");
    /* Both away: the one with the lower latency. A failure counts as 30 s whatever it took. */
    latency_fault_tolerance_update(&tolerance, "broker-b", 5, true, 1000);
    ck_assert(!latency_fault_tolerance_is_available(&tolerance, "broker-b", 600000));
    latency_fault_tolerance_update(&tolerance, "broker-b", 700, false, 1000);
    ck_assert_str_eq(queue_selector_pick(&route, NULL, &tolerance, 1001)->broker->name, "broker-a");
    latency_fault_tolerance_remove(&tolerance, "broker-a");
    ck_assert(latency_fault_tolerance_is_available(&tolerance, "broker-a", 1001));
    latency_fault_tolerance_close(&tolerance);
    topic_route_close(&route);
}
END_TEST

START_TEST(test_unique_id)
{
    static const uint8_t address[4] = {127, 0, 0, 1};
    struct message_client_id_setter setter;
    char id[MESSAGE_ID_TEXT_MAX], next[MESSAGE_ID_TEXT_MAX];
    setenv("TZ", "UTC", 1);
    tzset();
    message_client_id_setter_init(&setter, address, 4, 0, 0x2A139A55);
    /* 1700000000000 = 2023-11-14 22:13:20 UTC: 13 days, 22:13:20 into the month. */
    message_client_id_setter_make(&setter, 1700000000000, id);
    ck_assert_str_eq(id, "7F00000100002A139A5547B760000000");
    message_client_id_setter_make(&setter, 1700000000000, next);
    ck_assert_int_eq(strncmp(id, next, 28), 0);
    ck_assert_str_eq(next + 28, "0001");
    ck_assert_int_eq(message_client_id_time_ms(id, 1700000001000), 1700000000000);
    /* Asked at the beginning of the next month it must be of the last one. */
    ck_assert_int_eq(message_client_id_time_ms(id, 1701389000000), 1700000000000);
    ck_assert_int_eq(message_client_id_time_ms("short", 1700000001000), 0);
    /* A new month counts from its own beginning: 2023-12-01 00:00:00.005. */
    message_client_id_setter_make(&setter, 1701388800005, next);
    ck_assert_int_eq(strncmp(next + 20, "00000005", 8), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_route");
    TCase *tcase = tcase_create("all");
    tcase_add_test(tcase, test_two_brokers);
    tcase_add_test(tcase, test_no_leader);
    tcase_add_test(tcase, test_permissions);
    tcase_add_test(tcase, test_template);
    tcase_add_test(tcase, test_order_conf);
    tcase_add_test(tcase, test_bad_routes);
    tcase_add_test(tcase, test_name_server_list);
    tcase_add_test(tcase, test_round_robin);
    tcase_add_test(tcase, test_only_broker);
    tcase_add_test(tcase, test_absence);
    tcase_add_test(tcase, test_latency_fault);
    tcase_add_test(tcase, test_unique_id);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
