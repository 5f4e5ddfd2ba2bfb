/* The smaller bodies, with the texts of remoting.md 3.14, 3.17, 3.21 and 5.7 to 5.14: what is written is read again and
 * written alike. */
#include <check.h>
#include <stdlib.h>

#include "proto/broker_stats_data.h"
#include "proto/check_client_config.h"
#include "proto/consume_stats.h"
#include "proto/consumer_connection.h"
#include "proto/consumer_id_list.h"
#include "proto/consumer_offset_serialize_wrapper.h"
#include "proto/data_version.h"
#include "proto/delay_offset_serialize_wrapper.h"
#include "proto/group_list.h"
#include "proto/kv_table.h"
#include "proto/lock_batch.h"
#include "proto/offset_moved_event.h"
#include "proto/producer_connection.h"
#include "proto/producer_table_info.h"
#include "proto/query_consume_queue.h"
#include "proto/query_consume_time_span.h"
#include "proto/reset_offset_body.h"
#include "proto/subscription_group_wrapper.h"
#include "proto/topic_list.h"
#include "proto/topic_stats_table.h"
#include "tests/lib/run_suite.h"

#define assert_slice(slice, text)                                                                                      \
    ck_assert_msg(slice_equal_text(slice, text), "is '%.*s'", (int)(slice).size, (const char *)(slice).data)
#define assert_out(text) assert_slice(buffer_slice(&out), text)
#define assert_ok(call) ck_assert_msg((call) == 0, "%s", error.message)

static struct buffer out;
static struct arena arena;
static struct error error;
static const struct message_queue queue = {SLICE_LITERAL("b"), SLICE_LITERAL("T"), 0};
static const struct message_queue next_queue = {SLICE_LITERAL("b"), SLICE_LITERAL("T"), 1};

static void set_up(void)
{
    buffer_init(&out, 0);
    arena_init(&arena, 0);
}

static void tear_down(void)
{
    buffer_close(&out);
    arena_close(&arena);
}

static void assert_queue(const struct message_queue *found, int32_t queue_id)
{
    assert_slice(found->broker_name, "b");
    assert_slice(found->topic, "T");
    ck_assert_int_eq(found->queue_id, queue_id);
}

START_TEST(lists)
{
    struct topic_list topics;
    struct group_list groups;
    struct consumer_id_list ids;

    topic_list_begin(&out, (struct slice){0});
    topic_list_end(&out);
    assert_out("{\"topicList\":[]}");
    buffer_clear(&out);
    topic_list_begin(&out, SLICE_LITERAL("h:1"));
    topic_list_add(&out, SLICE_LITERAL("t"));
    topic_list_add(&out, SLICE_LITERAL("u"));
    topic_list_end(&out);
    assert_out("{\"brokerAddr\":\"h:1\",\"topicList\":[\"t\",\"u\"]}");
    assert_ok(topic_list_decode(&topics, buffer_slice(&out), &error));
    assert_slice(topics.broker_address, "h:1");
    ck_assert_uint_eq(topics.topic_count, 2);
    assert_slice(topics.topics[1], "u");
    topic_list_close(&topics);

    buffer_clear(&out);
    group_list_begin(&out);
    group_list_add(&out, SLICE_LITERAL("g"));
    group_list_end(&out);
    assert_out("{\"groupList\":[\"g\"]}");
    assert_ok(group_list_decode(&groups, buffer_slice(&out), &error));
    ck_assert_uint_eq(groups.group_count, 1);
    assert_slice(groups.groups[0], "g");
    group_list_close(&groups);

    buffer_clear(&out);
    consumer_id_list_begin(&out);
    consumer_id_list_add(&out, SLICE_LITERAL("10.0.0.1@1\"2"));
    consumer_id_list_end(&out);
    assert_out("{\"consumerIdList\":[\"10.0.0.1@1\\\"2\"]}");
    assert_ok(consumer_id_list_decode(&ids, buffer_slice(&out), &error));
    assert_slice(ids.ids[0], "10.0.0.1@1\"2");
    consumer_id_list_close(&ids);
    assert_ok(consumer_id_list_decode(&ids, SLICE_LITERAL("{}"), &error));
    ck_assert_uint_eq(ids.id_count, 0);
    consumer_id_list_close(&ids);
    ck_assert_int_eq(consumer_id_list_decode(&ids, SLICE_LITERAL("{\"consumerIdList\":[[]]}"), &error), ERROR_INVALID);
    ck_assert_int_eq(consumer_id_list_decode(&ids, SLICE_LITERAL("{\"consumerIdList\":3}"), &error), ERROR_INVALID);
}
END_TEST

/* A body stands behind a frame's header: what comes before it must not put a comma in front. */
START_TEST(a_body_behind_other_bytes)
{
    buffer_append_text(&out, "header}");
    kv_table_begin(&out);
    kv_table_add_text(&out, "a", "1");
    kv_table_end(&out);
    assert_out("header}{\"table\":{\"a\":\"1\"}}");
    buffer_clear(&out);
    buffer_append_text(&out, "header}");
    data_version_encode(&(struct data_version){5, 6, 0}, &out);
    assert_out("header}{\"counter\":6,\"timestamp\":5}");
}
END_TEST

START_TEST(kv_tables)
{
    struct kv_table table;
    kv_table_begin(&out);
    kv_table_add_text(&out, "k", "v");
    kv_table_add_i64(&out, "n", -5);
    kv_table_add(&out, SLICE_LITERAL("e"), (struct slice){0});
    kv_table_end(&out);
    assert_out("{\"table\":{\"k\":\"v\",\"n\":\"-5\",\"e\":\"\"}}");
    assert_ok(kv_table_decode(&table, buffer_slice(&out), &error));
    ck_assert_uint_eq(table.pair_count, 3);
    assert_slice(kv_table_get(&table, "n"), "-5");
    assert_slice(kv_table_get(&table, "e"), "");
    ck_assert_ptr_null(kv_table_get(&table, "x").data);
    kv_table_close(&table);
    assert_ok(kv_table_decode(&table, SLICE_LITERAL("{\"table\":{\"a\":1,\"b\":null,\"a\":true}}"), &error));
    assert_slice(kv_table_get(&table, "a"), "true");
    ck_assert_ptr_null(kv_table_get(&table, "b").data);
    kv_table_close(&table);
}
END_TEST

START_TEST(data_versions)
{
    struct data_version version;
    assert_ok(data_version_decode(&version, SLICE_LITERAL("{\"counter\":3,\"timestamp\":1700000000000}"), &error));
    ck_assert(data_version_equal(&version, &(struct data_version){1700000000000, 3, 0}));
    assert_ok(
        data_version_decode(&version, SLICE_LITERAL("{\"counter\":\"3\",\"stateVersion\":4,\"timestamp\":5}"), &error));
    ck_assert(data_version_equal(&version, &(struct data_version){5, 3, 4}));
    ck_assert(!data_version_equal(&version, &(struct data_version){5, 3, 0}));
    data_version_encode(&version, &out);
    assert_out("{\"counter\":3,\"stateVersion\":4,\"timestamp\":5}");
    ck_assert_int_eq(data_version_decode(&version, SLICE_LITERAL("{\"counter\":{}}"), &error), ERROR_INVALID);
}
END_TEST

START_TEST(subscription_groups)
{
    static const char text[] = "{\"dataVersion\":{\"counter\":1,\"timestamp\":2},\"subscriptionGroupTable\":{\"g\":{"
                               "\"brokerId\":0,\"consumeBroadcastEnable\":true,"
                               "\"consumeEnable\":true,\"consumeFromMinEnable\":true,\"groupName\":\"g\","
                               "\"notifyConsumerIdsChangedEnable\":true,\"retryMaxTimes\":16,"
                               "\"retryQueueNums\":1,\"whichBrokerWhenConsumeSlowly\":1}}}";
    struct subscription_group_wrapper wrapper;
    struct subscription_group_config config;

    subscription_group_config_init(&config, SLICE_LITERAL("g"));
    subscription_group_wrapper_begin(&out, &(struct data_version){2, 1, 0});
    subscription_group_wrapper_add(&out, &config);
    subscription_group_wrapper_end(&out);
    assert_out(text);
    assert_ok(subscription_group_wrapper_decode(&wrapper, buffer_slice(&out), &error));
    ck_assert_uint_eq(wrapper.group_count, 1);
    buffer_clear(&out);
    subscription_group_wrapper_encode(&wrapper, &out);
    assert_out(text);
    subscription_group_wrapper_close(&wrapper);

    assert_ok(subscription_group_config_decode(
        &config, &arena,
        SLICE_LITERAL("{\"groupName\":\"h\",\"consumeBroadcastEnable\":false,\"retryMaxTimes\":3,"
                      "\"groupRetryPolicy\":{\"type\":\"CUSTOMIZED\"},\"attributes\":{}}"),
        &error));
    assert_slice(config.group_name, "h");
    ck_assert(!config.consume_broadcast_enable);
    ck_assert(config.consume_enable && config.consume_from_min_enable && config.notify_consumer_ids_changed_enable);
    ck_assert_int_eq(config.retry_max_times, 3);
    ck_assert_int_eq(config.retry_queue_nums, 1);
    ck_assert_int_eq(config.which_broker_when_consume_slowly, 1);
    ck_assert_int_eq(subscription_group_config_decode(&config, &arena, SLICE_LITERAL("{\"retryMaxTimes\":3}"), &error),
                     ERROR_MISSING);
    ck_assert_int_eq(subscription_group_config_decode(
                         &config, &arena, SLICE_LITERAL("{\"groupName\":\"h\",\"retryMaxTimes\":\"x\"}"), &error),
                     ERROR_INVALID);
    ck_assert_ptr_nonnull(strstr(error.message, "retryMaxTimes"));
}
END_TEST

START_TEST(lock_batches)
{
    static const char text[] =
        "{\"clientId\":\"c\",\"consumerGroup\":\"g\",\"mqSet\":[{\"brokerName\":\"b\",\"queueId\":0,\"topic\":\"T\"},"
        "{\"brokerName\":\"b\",\"queueId\":1,\"topic\":\"T\"}]}";
    struct lock_batch_request request;
    struct lock_batch_response response;

    assert_ok(lock_batch_request_decode(&request, slice_of_text(text), &error));
    assert_slice(request.client_id, "c");
    assert_slice(request.consumer_group, "g");
    ck_assert_uint_eq(request.queue_count, 2);
    assert_queue(&request.queues[1], 1);
    lock_batch_request_encode(&request, &out);
    assert_out(text);
    lock_batch_request_close(&request);
    assert_ok(lock_batch_request_decode(
        &request, SLICE_LITERAL("{\"clientId\":\"c\",\"consumerGroup\":\"g\",\"mqSet\":null,\"onlyThisBroker\":false}"),
        &error));
    ck_assert_uint_eq(request.queue_count, 0);
    lock_batch_request_close(&request);
    ck_assert_int_eq(lock_batch_request_decode(&request, SLICE_LITERAL("{\"clientId\":\"c\"}"), &error), ERROR_MISSING);
    ck_assert_int_eq(lock_batch_request_decode(
                         &request, SLICE_LITERAL("{\"clientId\":\"c\",\"consumerGroup\":\"g\",\"mqSet\":[1]}"), &error),
                     ERROR_INVALID);

    buffer_clear(&out);
    lock_batch_response_begin(&out);
    lock_batch_response_add(&out, &queue);
    lock_batch_response_add(&out, &next_queue);
    lock_batch_response_end(&out);
    assert_out("{\"lockOKMQSet\":[{\"brokerName\":\"b\",\"queueId\":0,\"topic\":\"T\"},{\"brokerName\":\"b\","
               "\"queueId\":1,\"topic\":\"T\"}]}");
    assert_ok(lock_batch_response_decode(&response, buffer_slice(&out), &error));
    ck_assert_uint_eq(response.queue_count, 2);
    assert_queue(&response.queues[0], 0);
    lock_batch_response_close(&response);
    buffer_clear(&out);
    message_queue_encode(&queue, &out);
    assert_out("{\"brokerName\":\"b\",\"queueId\":0,\"topic\":\"T\"}");
}
END_TEST

START_TEST(topic_stats)
{
    struct topic_stats_table table;
    topic_stats_table_begin(&out);
    topic_stats_table_add(&out, &(struct topic_offset){queue, 0, 10, 1700000000000});
    topic_stats_table_add(&out, &(struct topic_offset){next_queue, 1, 2, 0});
    topic_stats_table_end(&out);
    assert_out("{\"offsetTable\":{{\"brokerName\":\"b\",\"queueId\":0,\"topic\":\"T\"}:{\"lastUpdateTimestamp\":"
               "1700000000000,\"maxOffset\":10,"
               "\"minOffset\":0},{\"brokerName\":\"b\",\"queueId\":1,\"topic\":\"T\"}:{\"lastUpdateTimestamp\":0,"
               "\"maxOffset\":2,\"minOffset\":1}}}");
    assert_ok(topic_stats_table_decode(&table, buffer_slice(&out), &error));
    ck_assert_uint_eq(table.offset_count, 2);
    assert_queue(&table.offsets[1].queue, 1);
    ck_assert_int_eq(table.offsets[0].max_offset, 10);
    ck_assert_int_eq(table.offsets[1].min_offset, 1);
    ck_assert_int_eq(table.offsets[0].last_update_timestamp_ms, 1700000000000);
    topic_stats_table_close(&table);
    /* The key may also be a string that holds the object. */
    assert_ok(topic_stats_table_decode(
        &table,
        SLICE_LITERAL("{\"offsetTable\":{\"{\\\"brokerName\\\":\\\"b\\\",\\\"queueId\\\":7,\\\"topic\\\":\\\"T\\\"}\":"
                      "{\"maxOffset\":3}},\"topicPutTps\":1.5}"),
        &error));
    assert_queue(&table.offsets[0].queue, 7);
    ck_assert_int_eq(table.offsets[0].max_offset, 3);
    topic_stats_table_close(&table);
    ck_assert_int_eq(topic_stats_table_decode(&table, SLICE_LITERAL("{\"offsetTable\":{\"no queue\":{}}}"), &error),
                     ERROR_MALFORMED);
    ck_assert_int_ne(topic_stats_table_decode(&table, SLICE_LITERAL("{\"offsetTable\":{5:{}}}"), &error), 0);
}
END_TEST

START_TEST(consume_statistics)
{
    struct consume_stats stats;
    consume_stats_begin(&out, 0);
    consume_stats_add(&out, &(struct consume_offset){queue, 10, 8, 1700000000000});
    consume_stats_end(&out);
    assert_out("{\"consumeTps\":0.0,\"offsetTable\":{{\"brokerName\":\"b\",\"queueId\":0,\"topic\":\"T\"}:{"
               "\"brokerOffset\":10,\"consumerOffset\":8,"
               "\"lastTimestamp\":1700000000000}}}");
    assert_ok(consume_stats_decode(&stats, buffer_slice(&out), &error));
    ck_assert_uint_eq(stats.offset_count, 1);
    assert_queue(&stats.offsets[0].queue, 0);
    ck_assert_int_eq(stats.offsets[0].broker_offset, 10);
    ck_assert_int_eq(stats.offsets[0].consumer_offset, 8);
    ck_assert_int_eq(stats.offsets[0].last_timestamp_ms, 1700000000000);
    consume_stats_close(&stats);
    buffer_clear(&out);
    consume_stats_begin(&out, 12.5);
    consume_stats_end(&out);
    assert_out("{\"consumeTps\":12.5,\"offsetTable\":{}}");
    assert_ok(consume_stats_decode(&stats, buffer_slice(&out), &error));
    ck_assert_double_eq(stats.consume_tps, 12.5);
    consume_stats_close(&stats);
    ck_assert_int_eq(consume_stats_decode(&stats, SLICE_LITERAL("{\"consumeTps\":\"fast\"}"), &error), ERROR_INVALID);
}
END_TEST

START_TEST(connections)
{
    static const char consumers[] = "{\"connectionSet\":[{\"clientAddr\":\"10.0.0.1:5\",\"clientId\":\"c\","
                                    "\"language\":\"JAVA\",\"version\":409}],\"consumeFromWhere\":"
                                    "\"CONSUME_FROM_LAST_OFFSET\",\"consumeType\":\"CONSUME_PASSIVELY\","
                                    "\"messageModel\":\"CLUSTERING\",\"subscriptionTable\":{\"T\":{"
                                    "\"classFilterMode\":false,\"codeSet\":[],\"expressionType\":\"TAG\",\"subString\":"
                                    "\"*\",\"subVersion\":7,\"tagsSet\":[],\"topic\":\"T\"}}}";
    static const char producers[] =
        "{\"connectionSet\":[{\"clientAddr\":\"10.0.0.1:5\",\"clientId\":\"c\",\"language\":\"GO\",\"version\":317}]}";
    struct consumer_connection consumer;
    struct producer_connection producer;

    assert_ok(consumer_connection_decode(&consumer, slice_of_text(consumers), &error));
    ck_assert_uint_eq(consumer.connection_count, 1);
    assert_slice(consumer.connections[0].client_address, "10.0.0.1:5");
    ck_assert_int_eq(consumer.connections[0].version, 409);
    ck_assert_int_eq(consumer.consume_type, CONSUME_PASSIVELY);
    ck_assert_uint_eq(consumer.subscription_count, 1);
    consumer_connection_encode(&consumer, &out);
    assert_out(consumers);
    consumer_connection_close(&consumer);
    ck_assert_int_eq(consumer_connection_decode(&consumer, SLICE_LITERAL("{\"messageModel\":\"NEW\"}"), &error),
                     ERROR_INVALID);

    assert_ok(producer_connection_decode(&producer, slice_of_text(producers), &error));
    ck_assert_uint_eq(producer.connection_count, 1);
    assert_slice(producer.connections[0].language, "GO");
    buffer_clear(&out);
    producer_connection_encode(&producer, &out);
    assert_out(producers);
    producer_connection_close(&producer);

    struct producer_info info = {SLICE_LITERAL("c"), SLICE_LITERAL("/10.0.0.1:5"), SLICE_LITERAL("JAVA"), 409,
                                 1700000000000};
    buffer_clear(&out);
    producer_table_info_begin(&out);
    producer_table_info_group_begin(&out, SLICE_LITERAL("p"));
    producer_table_info_add(&out, &info);
    producer_table_info_add(&out, &info);
    producer_table_info_group_end(&out);
    producer_table_info_group_begin(&out, SLICE_LITERAL("q"));
    producer_table_info_group_end(&out);
    producer_table_info_end(&out);
    assert_out("{\"data\":{\"p\":[{\"clientId\":\"c\",\"language\":\"JAVA\",\"lastUpdateTimestamp\":1700000000000,"
               "\"remoteIP\":\"/10.0.0.1:5\","
               "\"version\":409},{\"clientId\":\"c\",\"language\":\"JAVA\",\"lastUpdateTimestamp\":1700000000000,"
               "\"remoteIP\":\"/10.0.0.1:5\","
               "\"version\":409}],\"q\":[]}}");
}
END_TEST

START_TEST(consumer_offsets)
{
    static const char text[] = "{\"offsetTable\":{\"T@G\":{0:5,1:7},\"%RETRY%G@G\":{0:0}}}";
    struct consumer_offset_serialize_wrapper wrapper;

    consumer_offset_serialize_wrapper_begin(&out);
    consumer_offset_serialize_wrapper_group_begin(&out, SLICE_LITERAL("T"), SLICE_LITERAL("G"));
    consumer_offset_serialize_wrapper_add(&out, 0, 5);
    consumer_offset_serialize_wrapper_add(&out, 1, 7);
    consumer_offset_serialize_wrapper_group_end(&out);
    consumer_offset_serialize_wrapper_group_begin(&out, SLICE_LITERAL("%RETRY%G"), SLICE_LITERAL("G"));
    consumer_offset_serialize_wrapper_add(&out, 0, 0);
    consumer_offset_serialize_wrapper_group_end(&out);
    consumer_offset_serialize_wrapper_end(&out);
    assert_out(text);
    assert_ok(consumer_offset_serialize_wrapper_decode(&wrapper, buffer_slice(&out), &error));
    ck_assert_uint_eq(wrapper.offset_count, 3);
    assert_slice(wrapper.offsets[1].topic, "T");
    assert_slice(wrapper.offsets[1].group, "G");
    ck_assert_int_eq(wrapper.offsets[1].queue_id, 1);
    ck_assert_int_eq(wrapper.offsets[1].offset, 7);
    assert_slice(wrapper.offsets[2].topic, "%RETRY%G");
    consumer_offset_serialize_wrapper_close(&wrapper);
    /* Pretty-printed with quoted keys, as a file may be. */
    assert_ok(consumer_offset_serialize_wrapper_decode(
        &wrapper,
        SLICE_LITERAL("{\n\t\"offsetTable\":{\n\t\t\"T@G\":{\"3\":9\n\t\t},\"odd\":{\"0\":1},\"N@N\":null\n\t}\n}"),
        &error));
    ck_assert_uint_eq(wrapper.offset_count, 1);
    ck_assert_int_eq(wrapper.offsets[0].queue_id, 3);
    ck_assert_int_eq(wrapper.offsets[0].offset, 9);
    consumer_offset_serialize_wrapper_close(&wrapper);
    ck_assert_int_eq(consumer_offset_serialize_wrapper_decode(
                         &wrapper, SLICE_LITERAL("{\"offsetTable\":{\"T@G\":{\"x\":1}}}"), &error),
                     ERROR_INVALID);
    ck_assert_int_eq(
        consumer_offset_serialize_wrapper_decode(&wrapper, SLICE_LITERAL("{\"offsetTable\":{\"T@G\":{-1:1}}}"), &error),
        ERROR_INVALID);
    ck_assert_int_eq(
        consumer_offset_serialize_wrapper_decode(&wrapper, SLICE_LITERAL("{\"offsetTable\":{\"T@G\":[1]}}"), &error),
        ERROR_INVALID);
}
END_TEST

START_TEST(delay_offsets)
{
    struct delay_offset_serialize_wrapper wrapper;
    delay_offset_serialize_wrapper_begin(&out);
    delay_offset_serialize_wrapper_add(&out, 1, 0);
    delay_offset_serialize_wrapper_add(&out, 2, 35);
    delay_offset_serialize_wrapper_end(&out);
    assert_out("{\"offsetTable\":{1:0,2:35}}");
    assert_ok(delay_offset_serialize_wrapper_decode(&wrapper, buffer_slice(&out), &error));
    ck_assert_uint_eq(wrapper.offset_count, 2);
    ck_assert_int_eq(wrapper.offsets[1].level, 2);
    ck_assert_int_eq(wrapper.offsets[1].offset, 35);
    delay_offset_serialize_wrapper_close(&wrapper);
}
END_TEST

START_TEST(time_spans)
{
    query_consume_time_span_begin(&out);
    query_consume_time_span_add(&out, &(struct queue_time_span){queue, 1, 3, 2, 4});
    query_consume_time_span_end(&out);
    assert_out("{\"consumeTimeSpanSet\":[{\"consumeTimeStamp\":2,\"delayTime\":4,\"maxTimeStamp\":3,\"messageQueue\":{"
               "\"brokerName\":\"b\",\"queueId\":0,"
               "\"topic\":\"T\"},\"minTimeStamp\":1}]}");
}
END_TEST

START_TEST(consume_queue_units)
{
    struct subscription_data subscription;
    query_consume_queue_begin(&out, (struct slice){0}, 10, 0);
    query_consume_queue_add(&out, &(struct consume_queue_data){.physic_size = 182, .tags_code = 2598919});
    query_consume_queue_add(&out, &(struct consume_queue_data){
                                      .physic_offset = 182, .physic_size = 1, .eval = true, .msg = SLICE_LITERAL("m")});
    query_consume_queue_end(&out, NULL);
    assert_out("{\"maxQueueIndex\":10,\"minQueueIndex\":0,\"queueData\":[{\"eval\":false,\"physicOffset\":0,"
               "\"physicSize\":182,\"tagsCode\":2598919},"
               "{\"eval\":true,\"msg\":\"m\",\"physicOffset\":182,\"physicSize\":1,\"tagsCode\":0}]}");
    buffer_clear(&out);
    assert_ok(subscription_data_build(&subscription, &arena, SLICE_LITERAL("T"), SLICE_LITERAL("*"), (struct slice){0},
                                      &error));
    query_consume_queue_begin(&out, SLICE_LITERAL("f"), 10, 0);
    query_consume_queue_end(&out, &subscription);
    assert_out("{\"filterData\":\"f\",\"maxQueueIndex\":10,\"minQueueIndex\":0,\"queueData\":[],\"subscriptionData\":{"
               "\"classFilterMode\":false,"
               "\"codeSet\":[],\"expressionType\":\"TAG\",\"subString\":\"*\",\"subVersion\":0,\"tagsSet\":[],"
               "\"topic\":\"T\"}}");
}
END_TEST

START_TEST(broker_statistics)
{
    static const char text[] =
        "{\"statsDay\":{\"avgpt\":1.0,\"sum\":10,\"tps\":0.1},\"statsHour\":{\"avgpt\":0.0,\"sum\":0,\"tps\":0.0},"
        "\"statsMinute\":{\"avgpt\":0.0,\"sum\":1,\"tps\":0.0}}";
    struct broker_stats_data data;
    broker_stats_data_encode(&(struct broker_stats_data){.day = {10, 0.1, 1.0}, .minute = {.sum = 1}}, &out);
    assert_out(text);
    assert_ok(broker_stats_data_decode(&data, buffer_slice(&out), &error));
    ck_assert_int_eq(data.day.sum, 10);
    ck_assert_double_eq(data.day.tps, 0.1);
    ck_assert_int_eq(data.minute.sum, 1);
    ck_assert_int_eq(broker_stats_data_decode(&data, SLICE_LITERAL("{\"statsDay\":{\"tps\":[]}}"), &error),
                     ERROR_INVALID);
}
END_TEST

START_TEST(moved_offsets)
{
    static const char text[] = "{\"consumerGroup\":\"g\",\"messageQueue\":{\"brokerName\":\"b\",\"queueId\":1,"
                               "\"topic\":\"T\"},\"offsetNew\":0,\"offsetRequest\":5}";
    struct offset_moved_event event;
    assert_ok(offset_moved_event_decode(&event, &arena, slice_of_text(text), &error));
    assert_slice(event.consumer_group, "g");
    assert_queue(&event.queue, 1);
    ck_assert_int_eq(event.offset_request, 5);
    offset_moved_event_encode(&event, &out);
    assert_out(text);
}
END_TEST

START_TEST(reset_offsets)
{
    static const char *const texts[] = {
        "{\"offsetTable\":{{\"brokerName\":\"b\",\"queueId\":0,\"topic\":\"T\"}:5,"
        "{\"brokerName\":\"b\",\"queueId\":1,\"topic\":\"T\"}:-1}}",
        "{\"offsetTable\":[{\"brokerName\":\"b\",\"offset\":5,\"queueId\":0,\"topic\":\"T\"},"
        "{\"brokerName\":\"b\",\"offset\":-1,\"queueId\":1,\"topic\":\"T\"}]}"};
    enum reset_offset_shape shape = _i == 0 ? RESET_OFFSET_MAP : RESET_OFFSET_LIST;
    struct reset_offset_body body;
    reset_offset_body_begin(&out, shape);
    reset_offset_body_add(&out, shape, &(struct reset_offset){queue, 5});
    reset_offset_body_add(&out, shape, &(struct reset_offset){next_queue, -1});
    reset_offset_body_end(&out, shape);
    assert_out(texts[_i]);
    assert_ok(reset_offset_body_decode(&body, buffer_slice(&out), &error));
    ck_assert_uint_eq(body.offset_count, 2);
    assert_queue(&body.offsets[1].queue, 1);
    ck_assert_int_eq(body.offsets[0].offset, 5);
    ck_assert_int_eq(body.offsets[1].offset, -1);
    reset_offset_body_close(&body);
    ck_assert_int_eq(reset_offset_body_decode(&body, SLICE_LITERAL("{\"offsetTable\":[5]}"), &error), ERROR_INVALID);
    ck_assert_int_eq(
        reset_offset_body_decode(&body, SLICE_LITERAL("{\"offsetTable\":{{\"queueId\":0}:\"x\"}}"), &error),
        ERROR_INVALID);
}
END_TEST

START_TEST(client_checks)
{
    struct check_client_config config;
    assert_ok(check_client_config_decode(
        &config,
        SLICE_LITERAL(
            "{\"clientId\":\"c\",\"group\":\"g\",\"namespace\":\"n\",\"subscriptionData\":{\"classFilterMode\":false,"
            "\"codeSet\":[],\"expressionType\":\"SQL92\",\"subString\":\"a > 1\",\"subVersion\":1,\"tagsSet\":[],"
            "\"topic\":\"T\"}}"),
        &error));
    assert_slice(config.client_id, "c");
    assert_slice(config.group, "g");
    assert_slice(config.name_space, "n");
    ck_assert(config.has_subscription);
    assert_slice(config.subscription.sub_string, "a > 1");
    ck_assert(!subscription_data_is_tag(&config.subscription));
    check_client_config_close(&config);
    assert_ok(check_client_config_decode(&config, SLICE_LITERAL("{\"subscriptionData\":null}"), &error));
    ck_assert(!config.has_subscription);
    check_client_config_close(&config);
    ck_assert_int_eq(check_client_config_decode(&config, SLICE_LITERAL("{\"subscriptionData\":{}}"), &error),
                     ERROR_MISSING);
}
END_TEST

START_TEST(arenas)
{
    struct arena small;
    arena_init(&small, 100);
    uint8_t *a = arena_alloc(&small, 1);
    uint8_t *b = arena_alloc(&small, 0);
    ck_assert_ptr_nonnull(a);
    ck_assert_ptr_nonnull(b);
    ck_assert_uint_eq((uintptr_t)a % 16, 0);
    ck_assert_ptr_null(arena_alloc(&small, 100));
    ck_assert_int_eq(arena_error(&small, &error), ERROR_TOO_LARGE);
    ck_assert_ptr_null(arena_alloc(&small, 1)); /* stays failed */
    arena_close(&small);
    arena_close(&small);
    ck_assert_int_eq(arena_error(&small, NULL), 0);
    ck_assert_ptr_null(arena_array(&arena, SIZE_MAX / 2, 4));
    arena_close(&arena);
    for (size_t size = 1; size < 20000; size += 997) {
        uint8_t *p = arena_alloc(&arena, size);
        for (size_t i = 0; i < size; i++)
            ck_assert_msg(p[i] == 0, "not zeroed");
        memset(p, 0xFF, size);
    }
    struct slice copy = arena_copy(&arena, SLICE_LITERAL("abc"));
    ck_assert_str_eq((const char *)copy.data, "abc");
    ck_assert_ptr_null(arena_copy(&arena, (struct slice){0}).data);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bodies");
    TCase *tcase = tcase_create("all");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, lists);
    tcase_add_test(tcase, a_body_behind_other_bytes);
    tcase_add_test(tcase, kv_tables);
    tcase_add_test(tcase, data_versions);
    tcase_add_test(tcase, subscription_groups);
    tcase_add_test(tcase, lock_batches);
    tcase_add_test(tcase, topic_stats);
    tcase_add_test(tcase, consume_statistics);
    tcase_add_test(tcase, connections);
    tcase_add_test(tcase, consumer_offsets);
    tcase_add_test(tcase, delay_offsets);
    tcase_add_test(tcase, time_spans);
    tcase_add_test(tcase, consume_queue_units);
    tcase_add_test(tcase, broker_statistics);
    tcase_add_test(tcase, moved_offsets);
    tcase_add_loop_test(tcase, reset_offsets, 0, 2);
    tcase_add_test(tcase, client_checks);
    tcase_add_test(tcase, arenas);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
