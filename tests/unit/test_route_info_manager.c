/* broker/namesrv_route_info_manager: who is listed where after registrations, closes, silence and leader changes. */
#include <check.h>
#include <stdio.h>

#include "broker/namesrv/namesrv_route_info_manager.h"
#include "proto/topic_route_data.h"
#include "tests/lib/run_suite.h"

static struct route_info_manager manager;

static void set_up(void)
{
    route_info_manager_init(&manager);
}

static void tear_down(void)
{
    route_info_manager_close(&manager);
}

static struct topic_config topic(const char *name, int32_t queues, int32_t perm)
{
    struct topic_config config;
    topic_config_init(&config, slice_of_text(name));
    config.read_queue_nums = config.write_queue_nums = queues;
    config.perm = perm;
    return config;
}

struct registration {
    const char *name, *address, *cluster, *listeners;
    int64_t id, term, counter, now_ms, timeout_ms;
    uint64_t connection;
    const struct topic_config *topics;
    size_t topic_count;
};

static int try_register(struct registration r, struct route_register_result *result)
{
    struct error error;
    struct route_registration registration = {
        .cluster_name = slice_of_text(r.cluster == NULL ? "DefaultCluster" : r.cluster),
        .broker_name = slice_of_text(r.name == NULL ? "broker-a" : r.name),
        .broker_address = slice_of_text(r.address),
        .ha_server_address = SLICE_LITERAL("127.0.0.1:10912"),
        .listeners = slice_of_text(r.listeners),
        .broker_id = r.id,
        .leader_term = r.term == 0 ? -1 : r.term,
        .timeout_ms = r.timeout_ms,
        .connection_id = r.connection,
        .version = {.counter = r.counter, .timestamp_ms = 1700000000000},
        .topics = r.topics,
        .topic_count = r.topic_count,
    };
    return route_info_register(&manager, &registration, r.now_ms, result, &error);
}

#define REGISTER(...)                                                                                        \
    ({                                                                                                       \
        struct route_register_result result_;                                                                \
        ck_assert_int_eq(try_register((struct registration){__VA_ARGS__}, &result_), 0);                     \
        result_;                                                                                             \
    })

static const char *text_of(struct buffer *out)
{
    static char text[65536];
    ck_assert(!out->failed);
    ck_assert_uint_lt(out->size, sizeof text);
    memcpy(text, out->data, out->size);
    text[out->size] = 0;
    buffer_close(out);
    return text;
}

/* NULL when there is none. */
static const char *route_at(const char *name, const char *listener)
{
    struct buffer out;
    buffer_init(&out, 0);
    if (!route_info_topic_route(&manager, slice_of_text(name), listener, true, (struct slice){0}, &out)) {
        ck_assert_uint_eq(out.size, 0);
        buffer_close(&out);
        return NULL;
    }
    return text_of(&out);
}

static const char *route(const char *name)
{
    return route_at(name, NULL);
}

static const char *cluster(void)
{
    struct buffer out;
    buffer_init(&out, 0);
    route_info_cluster(&manager, NULL, &out);
    return text_of(&out);
}

static const char *topics(const char *cluster_name, int32_t mask, int32_t value)
{
    struct buffer out;
    buffer_init(&out, 0);
    route_info_topics(&manager, cluster_name == NULL ? (struct slice){0} : slice_of_text(cluster_name), mask, value, &out);
    return text_of(&out);
}

#define CK_HAS(text, part) ck_assert_msg(strstr((text), (part)) != NULL, "%s not in %s", (part), (text))
#define CK_HAS_NOT(text, part) ck_assert_msg(strstr((text), (part)) == NULL, "%s in %s", (part), (text))

START_TEST(test_route_as_on_the_wire)
{
    struct topic_config table[] = {topic("T", 4, 6)};
    struct route_register_result result = REGISTER(.address = "127.0.0.1:10911", .topics = table, .topic_count = 1);
    ck_assert(result.taken);
    ck_assert_str_eq(route("T"), "{\"brokerDatas\":[{\"brokerAddrs\":{\"0\":\"127.0.0.1:10911\"},\"brokerName\":\"broker-a\",\"cluster\":"
                                 "\"DefaultCluster\"}],\"filterServerTable\":{},\"queueDatas\":[{\"brokerName\":\"broker-a\",\"perm\":6,"
                                 "\"readQueueNums\":4,\"topicSysFlag\":0,\"writeQueueNums\":4}]}");
    ck_assert_str_eq(cluster(), "{\"brokerAddrTable\":{\"broker-a\":{\"brokerAddrs\":{\"0\":\"127.0.0.1:10911\"},\"brokerName\":\"broker-a\","
                                "\"cluster\":\"DefaultCluster\"}},\"clusterAddrTable\":{\"DefaultCluster\":[\"broker-a\"]}}");
    struct buffer out;
    buffer_init(&out, 0);
    ck_assert(route_info_topic_route(&manager, SLICE_LITERAL("T"), NULL, false, SLICE_LITERAL("broker-a:4"), &out));
    const char *text = text_of(&out);
    CK_HAS(text, "{0:\"127.0.0.1:10911\"}");
    CK_HAS(text, "\"orderTopicConf\":\"broker-a:4\"");
    ck_assert_ptr_null(route("Unknown"));
    ck_assert_ptr_null(route(""));
}
END_TEST

START_TEST(test_followers_bring_no_topics)
{
    struct topic_config table[] = {topic("T", 4, 6)};
    struct route_register_result result = REGISTER(.address = "h:1", .id = 2, .topics = table, .topic_count = 1);
    ck_assert(result.taken);
    ck_assert_uint_eq(result.master_address.size, 0);
    ck_assert_ptr_null(route("T"));
    ck_assert(!manager.leader_seen);
    REGISTER(.address = "h:0", .id = 0, .topics = table, .topic_count = 1);
    ck_assert(manager.leader_seen);
    result = REGISTER(.address = "h:1", .id = 2);
    ck_assert(slice_equal_text(result.master_address, "h:0"));
    ck_assert(slice_equal_text(result.master_ha_address, "127.0.0.1:10912"));
    CK_HAS(route("T"), "{\"0\":\"h:0\",\"2\":\"h:1\"}");
}
END_TEST

START_TEST(test_role_change_keeps_an_address_under_one_id)
{
    struct topic_config table[] = {topic("T", 4, 6)};
    REGISTER(.address = "h:0", .id = 0, .term = 3, .connection = 10, .topics = table, .topic_count = 1);
    REGISTER(.address = "h:1", .id = 2, .connection = 11);
    REGISTER(.address = "h:2", .id = 3, .connection = 12);
    REGISTER(.address = "h:1", .id = 0, .term = 4, .connection = 11, .topics = table, .topic_count = 1);
    CK_HAS(route("T"), "{\"0\":\"h:1\",\"3\":\"h:2\"}");
    REGISTER(.address = "h:0", .id = 1, .connection = 10);
    CK_HAS(route("T"), "{\"0\":\"h:1\",\"1\":\"h:0\",\"3\":\"h:2\"}");
}
END_TEST

START_TEST(test_cut_off_leader_is_not_taken)
{
    struct topic_config table[] = {topic("T", 4, 6)}, old_table[] = {topic("Old", 4, 6)};
    REGISTER(.address = "h:0", .term = 3, .connection = 10, .topics = table, .topic_count = 1);
    REGISTER(.address = "h:1", .term = 4, .connection = 11, .topics = table, .topic_count = 1);
    struct route_register_result result = REGISTER(.address = "h:0", .term = 3, .connection = 10, .topics = old_table, .topic_count = 1);
    ck_assert(!result.taken);
    ck_assert(slice_equal_text(result.master_address, "h:1"));
    ck_assert_uint_eq(manager.refused_terms, 1);
    CK_HAS(route("T"), "{\"0\":\"h:1\"}");
    ck_assert_ptr_null(route("Old"));
    /* Closing the connection of the refused one takes nothing from its successor. */
    ck_assert_uint_eq(route_info_connection_closed(&manager, 10), 0);
    CK_HAS(route("T"), "{\"0\":\"h:1\"}");
    /* The same term again is the leader itself, a higher one the next. */
    ck_assert(REGISTER(.address = "h:1", .term = 4, .topics = table, .topic_count = 1).taken);
    ck_assert(REGISTER(.address = "h:0", .term = 5, .topics = table, .topic_count = 1).taken);
    CK_HAS(route("T"), "{\"0\":\"h:0\"}");
}
END_TEST

START_TEST(test_term_is_forgotten_with_the_last_address)
{
    REGISTER(.address = "h:0", .term = 9, .connection = 10);
    ck_assert(!REGISTER(.address = "h:0", .term = 1, .connection = 11).taken);
    ck_assert_uint_eq(route_info_connection_closed(&manager, 10), 1);
    ck_assert(REGISTER(.address = "h:0", .term = 1, .connection = 11).taken);
}
END_TEST

START_TEST(test_broker_without_term_is_taken)
{
    REGISTER(.address = "h:0", .term = 9);
    ck_assert(REGISTER(.address = "java:1").taken);
    CK_HAS(cluster(), "{\"0\":\"java:1\"}");
}
END_TEST

START_TEST(test_two_names_at_one_address)
{
    struct topic_config table[] = {topic("T", 4, 6)};
    REGISTER(.name = "a", .address = "h:0", .connection = 1, .topics = table, .topic_count = 1);
    REGISTER(.name = "b", .address = "h:0", .connection = 1, .topics = table, .topic_count = 1);
    const char *text = route("T");
    CK_HAS(text, "\"brokerName\":\"a\"");
    CK_HAS(text, "\"brokerName\":\"b\"");
    route_info_unregister(&manager, SLICE_LITERAL("a"), SLICE_LITERAL("h:0"));
    text = route("T");
    CK_HAS_NOT(text, "\"brokerName\":\"a\"");
    CK_HAS(text, "\"brokerName\":\"b\"");
    ck_assert_uint_eq(route_info_connection_closed(&manager, 1), 1);
    ck_assert_ptr_null(route("T"));
}
END_TEST

/* N2: the first registration after a name server's start may be of one topic, with the version of the table that follows. */
START_TEST(test_same_version_is_not_skipped)
{
    /* One topic first, which already carries the version of the whole table that follows. */
    struct topic_config one[] = {topic("New", 4, 6)}, all[] = {topic("New", 4, 6), topic("Other", 8, 6)};
    REGISTER(.address = "h:0", .counter = 5, .topics = one, .topic_count = 1);
    REGISTER(.address = "h:0", .counter = 5, .topics = all, .topic_count = 2);
    CK_HAS(route("Other"), "\"readQueueNums\":8");
    all[1].write_queue_nums = 2;
    REGISTER(.address = "h:0", .counter = 5, .topics = all, .topic_count = 2);
    CK_HAS(route("Other"), "\"writeQueueNums\":2");
    /* A topic that is missing stays until it is deleted here: without a term nobody knows whether the table is whole. */
    REGISTER(.address = "h:0", .counter = 6, .topics = one, .topic_count = 1);
    ck_assert_ptr_nonnull(route("Other"));
    route_info_delete_topic(&manager, SLICE_LITERAL("Other"), (struct slice){0});
    ck_assert_ptr_null(route("Other"));
    ck_assert_ptr_nonnull(route("New"));
}
END_TEST

/* N7: wiped at the name server, it stays so whatever is registered, for whatever topic and by whatever leader, until it is added again. */
START_TEST(test_wiped_permission)
{
    struct topic_config table[] = {topic("T", 4, 6), topic("R", 4, 4), topic("New", 4, 6)};
    REGISTER(.address = "h:0", .counter = 1, .topics = table, .topic_count = 2);
    REGISTER(.name = "broker-b", .address = "h:9", .counter = 1, .topics = table, .topic_count = 1);
    ck_assert_int_eq(route_info_wipe_write_perm(&manager, SLICE_LITERAL("broker-a")), 2);
    ck_assert_int_eq(route_info_wipe_write_perm(&manager, SLICE_LITERAL("nobody")), 0);
    CK_HAS(route("T"), "\"brokerName\":\"broker-a\",\"perm\":4");
    CK_HAS(route("T"), "\"brokerName\":\"broker-b\",\"perm\":6");
    REGISTER(.address = "h:0", .counter = 1, .topics = table, .topic_count = 2); /* the periodic one */
    CK_HAS(route("T"), "\"brokerName\":\"broker-a\",\"perm\":4");
    REGISTER(.address = "h:0", .counter = 2, .topics = table, .topic_count = 3); /* a topic was made */
    CK_HAS(route("T"), "\"brokerName\":\"broker-a\",\"perm\":4");
    CK_HAS(route("New"), "\"perm\":4");
    REGISTER(.address = "h:1", .id = 0, .term = 9, .counter = 3, .topics = table, .topic_count = 3); /* another leader */
    CK_HAS(route("New"), "\"perm\":4");
    ck_assert_int_eq(route_info_add_write_perm(&manager, SLICE_LITERAL("broker-a")), 3);
    CK_HAS(route("T"), "\"brokerName\":\"broker-a\",\"perm\":6");
    CK_HAS(route("R"), "\"perm\":4"); /* what its broker says: adding makes no read-only topic writable */
    REGISTER(.address = "h:1", .id = 0, .term = 9, .counter = 4, .topics = table, .topic_count = 3);
    CK_HAS(route("New"), "\"perm\":6");
}
END_TEST

/* N6: a topic that is gone on one broker name only is not routed there any more. */
START_TEST(test_deleted_on_one_broker)
{
    struct topic_config table[] = {topic("Kept", 4, 6), topic("Gone", 4, 6)};
    REGISTER(.name = "broker-a", .address = "h:0", .term = 3, .counter = 1, .topics = table, .topic_count = 2);
    REGISTER(.name = "broker-b", .address = "h:1", .term = 3, .counter = 1, .topics = table, .topic_count = 2);
    CK_HAS(route("Gone"), "broker-a");
    REGISTER(.name = "broker-a", .address = "h:0", .term = 3, .counter = 2, .topics = table, .topic_count = 1);
    CK_HAS(route("Gone"), "broker-b");
    ck_assert_ptr_null(strstr(route("Gone"), "broker-a"));
    CK_HAS(route("Kept"), "broker-a");
    /* A follower's registration says nothing about topics, and neither does one of an older leader. */
    REGISTER(.name = "broker-b", .address = "h:2", .id = 2);
    REGISTER(.name = "broker-b", .address = "h:2", .term = 2, .counter = 9, .topics = table, .topic_count = 1);
    CK_HAS(route("Gone"), "broker-b");
    REGISTER(.name = "broker-b", .address = "h:1", .term = 3, .counter = 2, .topics = table, .topic_count = 1);
    ck_assert_ptr_null(route("Gone"));
    CK_HAS(route("Kept"), "broker-b");
    REGISTER(.name = "broker-b", .address = "h:1", .term = 3, .counter = 3, .topics = table, .topic_count = 2);
    CK_HAS(route("Gone"), "broker-b");
}
END_TEST

/* Z14: clients hash over the order of brokers and queues, so it is the same whoever registered first, left and came back. */
START_TEST(test_order_is_stable)
{
    struct topic_config table[] = {topic("T", 4, 6)};
    char before[4096];
    static const char *const names[] = {"broker-c", "broker-a", "broker-b"}, *const addresses[] = {"h:3", "h:1", "h:2"};
    for (uint64_t i = 0; i < 3; i++)
        REGISTER(.name = names[i], .address = addresses[i], .connection = i + 1, .topics = table, .topic_count = 1);
    snprintf(before, sizeof before, "%s", route("T"));
    ck_assert(strstr(before, "broker-a") < strstr(before, "broker-b") && strstr(before, "broker-b") < strstr(before, "broker-c"));
    for (uint64_t i = 0; i < 100; i++) {
        size_t one = i % 3;
        route_info_connection_closed(&manager, i + 1);
        REGISTER(.name = names[one], .address = addresses[one], .connection = i + 4, .topics = table, .topic_count = 1);
        ck_assert_str_eq(route("T"), before);
    }
}
END_TEST

START_TEST(test_close_of_the_leader_keeps_queues)
{
    struct topic_config table[] = {topic("T", 4, 6)};
    REGISTER(.address = "h:0", .id = 0, .connection = 10, .topics = table, .topic_count = 1);
    REGISTER(.address = "h:1", .id = 2, .connection = 11);
    ck_assert_uint_eq(route_info_connection_closed(&manager, 10), 1);
    CK_HAS(route("T"), "{\"2\":\"h:1\"}");
    ck_assert_uint_eq(route_info_connection_closed(&manager, 11), 1);
    ck_assert_ptr_null(route("T"));
    ck_assert_str_eq(topics(NULL, 0, 0), "{\"topicList\":[]}");
    ck_assert_str_eq(cluster(), "{\"brokerAddrTable\":{},\"clusterAddrTable\":{}}");
}
END_TEST

START_TEST(test_reconnect_before_the_old_close)
{
    REGISTER(.address = "h:0", .connection = 10);
    REGISTER(.address = "h:0", .connection = 20); /* the new connection is faster than the news that the old one is gone */
    ck_assert_uint_eq(route_info_connection_closed(&manager, 10), 0);
    CK_HAS(cluster(), "h:0");
}
END_TEST

static uint64_t expired_ids[8];
static size_t expired_count;
static void on_expired(void *argument, uint64_t connection_id)
{
    ck_assert_ptr_eq(argument, &manager);
    expired_ids[expired_count++] = connection_id;
    route_info_connection_closed(&manager, connection_id);
}

START_TEST(test_silence)
{
    REGISTER(.address = "h:0", .connection = 10, .now_ms = 1000);
    REGISTER(.address = "h:1", .id = 2, .connection = 11, .now_ms = 2000);
    REGISTER(.name = "fast", .address = "h:2", .connection = 12, .now_ms = 1000, .timeout_ms = 500);
    expired_count = 0;
    route_info_scan(&manager, 1500, on_expired, &manager);
    ck_assert_uint_eq(expired_count, 0);
    route_info_scan(&manager, 1501, on_expired, &manager);
    ck_assert_uint_eq(expired_count, 1);
    ck_assert_uint_eq(expired_ids[0], 12);
    route_info_scan(&manager, 1000 + ROUTE_BROKER_EXPIRED_MS, on_expired, &manager);
    ck_assert_uint_eq(expired_count, 1);
    route_info_scan(&manager, 1001 + ROUTE_BROKER_EXPIRED_MS, on_expired, &manager);
    ck_assert_uint_eq(expired_count, 2);
    ck_assert_uint_eq(expired_ids[1], 10);
    CK_HAS(cluster(), "{\"2\":\"h:1\"}");
}
END_TEST

START_TEST(test_version_query_is_a_sign_of_life)
{
    struct data_version same = {.counter = 7, .timestamp_ms = 1700000000000}, other = {.counter = 8, .timestamp_ms = 1700000000000}, stored;
    bool known;
    REGISTER(.address = "h:0", .counter = 7, .now_ms = 0);
    ck_assert(route_info_query_version(&manager, SLICE_LITERAL("broker-a"), SLICE_LITERAL("h:0"), &same, 100000, &stored, &known));
    ck_assert(known);
    ck_assert(!route_info_query_version(&manager, SLICE_LITERAL("broker-a"), SLICE_LITERAL("h:0"), &other, 200000, &stored, &known));
    ck_assert(known);
    ck_assert_int_eq(stored.counter, 7);
    ck_assert(!route_info_query_version(&manager, SLICE_LITERAL("broker-a"), SLICE_LITERAL("h:9"), &same, 0, &stored, &known));
    ck_assert(!known);
    route_info_scan(&manager, 100000 + ROUTE_BROKER_EXPIRED_MS, NULL, NULL);
    CK_HAS(cluster(), "h:0");
    route_info_scan(&manager, 100001 + ROUTE_BROKER_EXPIRED_MS, NULL, NULL);
    CK_HAS_NOT(cluster(), "h:0");
}
END_TEST

/* N4 */
START_TEST(test_unregister_leaves_a_successor)
{
    REGISTER(.address = "h:0", .id = 0);
    REGISTER(.address = "h:1", .id = 0);
    route_info_unregister(&manager, SLICE_LITERAL("broker-a"), SLICE_LITERAL("h:0"));
    CK_HAS(cluster(), "{\"0\":\"h:1\"}");
    route_info_unregister(&manager, SLICE_LITERAL("nobody"), SLICE_LITERAL("h:1"));
    route_info_unregister(&manager, SLICE_LITERAL("broker-a"), SLICE_LITERAL("h:1"));
    CK_HAS_NOT(cluster(), "broker-a");
}
END_TEST

START_TEST(test_address_of_the_asked_listener)
{
    struct topic_config table[] = {topic("T", 4, 6)};
    REGISTER(.address = "n0:10911", .listeners = "host:127.0.0.1:10911,six:[::1]:7", .topics = table, .topic_count = 1);
    REGISTER(.address = "n1:10911", .id = 2, .listeners = "hosted:10.0.0.1:1, host:127.0.0.1:10921");
    REGISTER(.address = "n2:10911", .id = 3);
    CK_HAS(route_at("T", NULL), "{\"0\":\"n0:10911\",\"2\":\"n1:10911\",\"3\":\"n2:10911\"}");
    CK_HAS(route_at("T", "host"), "{\"0\":\"127.0.0.1:10911\",\"2\":\"127.0.0.1:10921\",\"3\":\"n2:10911\"}");
    CK_HAS(route_at("T", "six"), "{\"0\":\"[::1]:7\"");
    CK_HAS(route_at("T", "hos"), "{\"0\":\"n0:10911\"");
    struct buffer out;
    buffer_init(&out, 0);
    route_info_system_topics(&manager, "host", &out);
    ck_assert_str_eq(text_of(&out), "{\"brokerAddr\":\"127.0.0.1:10911\",\"topicList\":[\"DefaultCluster\",\"broker-a\"]}");
}
END_TEST

START_TEST(test_topic_lists)
{
    struct topic_config a[] = {topic("plain", 1, 6), topic("unit", 1, 6), topic("sub", 1, 6), topic("both", 1, 6)};
    a[1].topic_sys_flag = TOPIC_SYS_FLAG_UNIT;
    a[2].topic_sys_flag = TOPIC_SYS_FLAG_UNIT_SUB;
    a[3].topic_sys_flag = TOPIC_SYS_FLAG_UNIT | TOPIC_SYS_FLAG_UNIT_SUB;
    struct topic_config b[] = {topic("elsewhere", 1, 6), topic("plain", 1, 6)};
    REGISTER(.name = "a", .address = "h:0", .topics = a, .topic_count = 4);
    REGISTER(.name = "b", .address = "h:1", .cluster = "Second", .topics = b, .topic_count = 2);
    ck_assert_str_eq(topics(NULL, 0, 0), "{\"topicList\":[\"plain\",\"unit\",\"sub\",\"both\",\"elsewhere\"]}");
    ck_assert_str_eq(topics("Second", 0, 0), "{\"topicList\":[\"plain\",\"elsewhere\"]}");
    ck_assert_str_eq(topics("None", 0, 0), "{\"topicList\":[]}");
    ck_assert_str_eq(topics(NULL, 1, 1), "{\"topicList\":[\"unit\",\"both\"]}");
    ck_assert_str_eq(topics(NULL, 2, 2), "{\"topicList\":[\"sub\",\"both\"]}");
    ck_assert_str_eq(topics(NULL, 3, 2), "{\"topicList\":[\"sub\"]}");
    route_info_delete_topic(&manager, SLICE_LITERAL("plain"), SLICE_LITERAL("Second"));
    ck_assert_str_eq(topics("Second", 0, 0), "{\"topicList\":[\"elsewhere\"]}");
    CK_HAS(topics(NULL, 0, 0), "\"plain\"");
    const char *text = cluster();
    CK_HAS(text, "\"DefaultCluster\":[\"a\"]");
    CK_HAS(text, "\"Second\":[\"b\"]");
}
END_TEST

START_TEST(test_bad_names)
{
    struct route_register_result result;
    char longer[ROUTE_NAME_BYTES_MAX + 2];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    struct topic_config empty[] = {topic("", 1, 6)};
    ck_assert_int_eq(try_register((struct registration){.address = ""}, &result), ERROR_INVALID);
    ck_assert_int_eq(try_register((struct registration){.address = "h:0", .name = ""}, &result), ERROR_INVALID);
    ck_assert_int_eq(try_register((struct registration){.address = "h:0", .cluster = ""}, &result), ERROR_INVALID);
    ck_assert_int_eq(try_register((struct registration){.address = longer}, &result), ERROR_INVALID);
    ck_assert_int_eq(try_register((struct registration){.address = "h:0", .topics = empty, .topic_count = 1}, &result), ERROR_INVALID);
}
END_TEST

START_TEST(test_limits)
{
    struct route_register_result result;
    char text[32];
    for (unsigned i = 0; i < ROUTE_ADDRESSES_MAX; i++) {
        snprintf(text, sizeof text, "h:%u", i);
        REGISTER(.address = text, .id = 1000 - i);
    }
    ck_assert_int_eq(try_register((struct registration){.address = "h:more", .id = 5000}, &result), ERROR_TOO_LARGE);
    REGISTER(.address = "h:0", .id = 5000); /* moves */
    for (unsigned i = 1; i < ROUTE_BROKER_NAMES_MAX; i++) {
        snprintf(text, sizeof text, "name-%u", i);
        REGISTER(.name = text, .address = "h:0");
    }
    ck_assert_int_eq(try_register((struct registration){.name = "more", .address = "h:0"}, &result), ERROR_TOO_LARGE);
    ck_assert_uint_eq(manager.limit_hits, 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("route_info_manager");
    TCase *tcase = tcase_create("route_info_manager");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, test_route_as_on_the_wire);
    tcase_add_test(tcase, test_followers_bring_no_topics);
    tcase_add_test(tcase, test_role_change_keeps_an_address_under_one_id);
    tcase_add_test(tcase, test_cut_off_leader_is_not_taken);
    tcase_add_test(tcase, test_term_is_forgotten_with_the_last_address);
    tcase_add_test(tcase, test_broker_without_term_is_taken);
    tcase_add_test(tcase, test_two_names_at_one_address);
    tcase_add_test(tcase, test_same_version_is_not_skipped);
    tcase_add_test(tcase, test_wiped_permission);
    tcase_add_test(tcase, test_deleted_on_one_broker);
    tcase_add_test(tcase, test_order_is_stable);
    tcase_add_test(tcase, test_close_of_the_leader_keeps_queues);
    tcase_add_test(tcase, test_reconnect_before_the_old_close);
    tcase_add_test(tcase, test_silence);
    tcase_add_test(tcase, test_version_query_is_a_sign_of_life);
    tcase_add_test(tcase, test_unregister_leaves_a_successor);
    tcase_add_test(tcase, test_address_of_the_asked_listener);
    tcase_add_test(tcase, test_topic_lists);
    tcase_add_test(tcase, test_bad_names);
    tcase_add_test(tcase, test_limits);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
