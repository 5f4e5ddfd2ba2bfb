/* Routes and clusters, with the texts of remoting.md 5.2 and 5.3. */
#include "proto/topic_route_data.h"

#include <check.h>
#include <stdlib.h>

#include "proto/cluster_info.h"
#include "tests/lib/run_suite.h"

#define assert_slice(slice, text)                                                                                      \
    ck_assert_msg(slice_equal_text(slice, text), "is '%.*s'", (int)(slice).size, (const char *)(slice).data)

static const char quoted[] = "{\"brokerDatas\":[{\"brokerAddrs\":{\"0\":\"127.0.0.1:10911\",\"1\":\"127.0.0.1:20911\"},"
                             "\"brokerName\":\"broker-a\",\"cluster\":\"DefaultCluster\"}],"
                             "\"filterServerTable\":{},\"orderTopicConf\":\"broker-a:4\",\"queueDatas\":[{"
                             "\"brokerName\":\"broker-a\",\"perm\":6,\"readQueueNums\":4,"
                             "\"topicSysFlag\":0,\"writeQueueNums\":4}]}";
static const char bare[] = "{\"brokerDatas\":[{\"brokerAddrs\":{0:\"127.0.0.1:10911\",1:\"127.0.0.1:20911\"},"
                           "\"brokerName\":\"broker-a\",\"cluster\":\"DefaultCluster\"}],"
                           "\"filterServerTable\":{},\"orderTopicConf\":\"broker-a:4\",\"queueDatas\":[{\"brokerName\":"
                           "\"broker-a\",\"perm\":6,\"readQueueNums\":4,"
                           "\"topicSysFlag\":0,\"writeQueueNums\":4}]}";

static struct topic_route_data route;
static struct error error;

START_TEST(decodes_and_encodes)
{
    const char *text = _i == 0 ? quoted : bare;
    struct buffer out;
    ck_assert_msg(topic_route_data_decode(&route, slice_of_text(text), &error) == 0, "%s", error.message);
    ck_assert_uint_eq(route.broker_count, 1);
    assert_slice(route.brokers[0].broker_name, "broker-a");
    assert_slice(route.brokers[0].cluster, "DefaultCluster");
    ck_assert_uint_eq(route.brokers[0].address_count, 2);
    assert_slice(broker_data_address(&route.brokers[0], 0), "127.0.0.1:10911");
    assert_slice(broker_data_address(&route.brokers[0], 1), "127.0.0.1:20911");
    ck_assert_ptr_null(broker_data_address(&route.brokers[0], 2).data);
    ck_assert_uint_eq(route.queue_count, 1);
    ck_assert_int_eq(route.queues[0].perm, 6);
    ck_assert_int_eq(route.queues[0].read_queue_nums, 4);
    ck_assert_int_eq(route.queues[0].write_queue_nums, 4);
    assert_slice(route.order_topic_conf, "broker-a:4");
    buffer_init(&out, 0);
    topic_route_data_encode(&route, true, &out);
    assert_slice(buffer_slice(&out), quoted);
    buffer_clear(&out);
    topic_route_data_encode(&route, false, &out);
    assert_slice(buffer_slice(&out), bare);
    buffer_close(&out);
    topic_route_data_close(&route);
}
END_TEST

START_TEST(without_order_conf)
{
    struct buffer out;
    buffer_init(&out, 0);
    topic_route_data_encode(&(struct topic_route_data){0}, true, &out);
    assert_slice(buffer_slice(&out), "{\"brokerDatas\":[],\"filterServerTable\":{},\"queueDatas\":[]}");
    buffer_close(&out);
}
END_TEST

START_TEST(what_version_5_adds_is_skipped)
{
    ck_assert_int_eq(
        topic_route_data_decode(
            &route,
            SLICE_LITERAL(
                "{\"brokerDatas\":[{\"brokerAddrs\":{\"0\":\"h:1\"},\"brokerName\":\"b\",\"cluster\":\"c\","
                "\"enableActingMaster\":false,\"zoneName\":\"z\"}],\"filterServerTable\":{},\"queueDatas\":[],"
                "\"topicQueueMappingByBroker\":{}}"),
            &error),
        0);
    assert_slice(broker_data_address(&route.brokers[0], 0), "h:1");
    topic_route_data_close(&route);
}
END_TEST

START_TEST(wrong_routes)
{
    static const struct {
        const char *text;
        int code;
    } rows[] = {
        {"", ERROR_MALFORMED},
        {"{\"brokerDatas\":{}}", ERROR_INVALID},
        {"{\"brokerDatas\":[{}]}", ERROR_MISSING},
        {"{\"brokerDatas\":[{\"brokerName\":\"b\",\"brokerAddrs\":{\"x\":\"h\"}}]}", ERROR_INVALID},
        {"{\"brokerDatas\":[{\"brokerName\":\"b\",\"brokerAddrs\":{0:[]}}]}", ERROR_INVALID},
        {"{\"queueDatas\":[1]}", ERROR_INVALID},
        {"{\"queueDatas\":[{\"brokerName\":\"b\",\"perm\":\"six\"}]}", ERROR_INVALID},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ck_assert_msg(topic_route_data_decode(&route, slice_of_text(rows[i].text), &error) == rows[i].code,
                      "row %zu: %s", i, error.message);
        ck_assert_ptr_null(route.arena.chunks);
    }
    for (size_t cut = 0; cut < sizeof bare - 1; cut++) {
        uint8_t *part = malloc(cut == 0 ? 1 : cut);
        memcpy(part, bare, cut);
        ck_assert_int_ne(topic_route_data_decode(&route, slice_of(part, cut), &error), 0);
        free(part);
    }
}
END_TEST

START_TEST(cluster)
{
    static const char text[] = "{\"brokerAddrTable\":{\"broker-a\":{\"brokerAddrs\":{0:\"127.0.0.1:10911\"},"
                               "\"brokerName\":\"broker-a\",\"cluster\":"
                               "\"DefaultCluster\"}},\"clusterAddrTable\":{\"DefaultCluster\":[\"broker-a\"]}}";
    struct cluster_info info;
    struct buffer out;
    ck_assert_msg(cluster_info_decode(&info, slice_of_text(text), &error) == 0, "%s", error.message);
    ck_assert_uint_eq(info.broker_count, 1);
    assert_slice(info.brokers[0].broker_name, "broker-a");
    ck_assert_uint_eq(info.cluster_count, 1);
    assert_slice(info.clusters[0].name, "DefaultCluster");
    ck_assert_uint_eq(info.clusters[0].broker_name_count, 1);
    assert_slice(info.clusters[0].broker_names[0], "broker-a");
    buffer_init(&out, 0);
    cluster_info_encode(&info, false, &out);
    assert_slice(buffer_slice(&out), text);
    buffer_clear(&out);
    cluster_info_encode(&info, true, &out);
    ck_assert_ptr_nonnull(memmem(out.data, out.size, "{\"0\":", 5));
    buffer_close(&out);
    cluster_info_close(&info);
    ck_assert_int_eq(cluster_info_decode(&info, SLICE_LITERAL("{\"clusterAddrTable\":{\"c\":1}}"), &error),
                     ERROR_INVALID);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("topic_route_data");
    TCase *tcase = tcase_create("all");
    tcase_add_loop_test(tcase, decodes_and_encodes, 0, 2);
    tcase_add_test(tcase, without_order_conf);
    tcase_add_test(tcase, what_version_5_adds_is_skipped);
    tcase_add_test(tcase, wrong_routes);
    tcase_add_test(tcase, cluster);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
