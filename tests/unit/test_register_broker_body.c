/* Registrations in both forms (remoting.md 5.4). */
#include "proto/register_broker_body.h"

#include <check.h>
#include <stdlib.h>
#include <zlib.h>

#include "proto/topic_config_serialize_wrapper.h"
#include "tests/lib/run_suite.h"

#define assert_slice(slice, text)                                                                                      \
    ck_assert_msg(slice_equal_text(slice, text), "is '%.*s'", (int)(slice).size, (const char *)(slice).data)

static const char json[] = "{\"filterServerList\":[],\"topicConfigSerializeWrapper\":{\"dataVersion\":{\"counter\":3,"
                           "\"timestamp\":1700000000000},\"topicConfigTable\":{"
                           "\"T\":{\"order\":false,\"perm\":6,\"readQueueNums\":4,\"topicFilterType\":\"SINGLE_TAG\","
                           "\"topicName\":\"T\",\"topicSysFlag\":0,\"writeQueueNums\":4},"
                           "\"TBW102\":{\"order\":false,\"perm\":7,\"readQueueNums\":8,\"topicFilterType\":\"MULTI_"
                           "TAG\",\"topicName\":\"TBW102\",\"topicSysFlag\":1,"
                           "\"writeQueueNums\":9}}}}";

static struct register_broker_body body;
static struct error error;

static struct slice compress_text(struct buffer *plain, struct buffer *out)
{
    uLongf size = compressBound(plain->size);
    buffer_clear(out);
    ck_assert_ptr_nonnull(buffer_reserve(out, size));
    ck_assert_int_eq(compress2(out->data, &size, plain->data, plain->size, 5), Z_OK);
    out->size = size;
    return buffer_slice(out);
}

static void append_part(struct buffer *out, const char *text)
{
    buffer_append_u32(out, (uint32_t)strlen(text));
    buffer_append_text(out, text);
}

START_TEST(plain_form)
{
    struct buffer out;
    buffer_init(&out, 0);
    ck_assert_msg(register_broker_body_decode(&body, slice_of_text(json), false, &error) == 0, "%s", error.message);
    ck_assert_int_eq(body.version.counter, 3);
    ck_assert_int_eq(body.version.timestamp_ms, 1700000000000);
    ck_assert_uint_eq(body.topic_count, 2);
    assert_slice(body.topics[1].name, "TBW102");
    ck_assert_int_eq(body.topics[1].perm, 7);
    ck_assert_int_eq(body.topics[1].read_queue_nums, 8);
    ck_assert_int_eq(body.topics[1].write_queue_nums, 9);
    ck_assert_int_eq(body.topics[1].topic_sys_flag, 1);
    ck_assert(body.topics[1].multi_tag && !body.topics[0].multi_tag);
    register_broker_body_encode(&body, false, &out);
    assert_slice(buffer_slice(&out), json);

    buffer_clear(&out);
    register_broker_body_begin(&out, &body.version);
    for (size_t i = 0; i < body.topic_count; i++)
        register_broker_body_add(&out, &body.topics[i]);
    register_broker_body_end(&out);
    assert_slice(buffer_slice(&out), json);
    buffer_close(&out);
    register_broker_body_close(&body);
}
END_TEST

START_TEST(compressed_form)
{
    struct buffer out;
    struct slice servers[] = {SLICE_LITERAL("10.0.0.1:1")};
    buffer_init(&out, 0);
    ck_assert_int_eq(register_broker_body_decode(&body, slice_of_text(json), false, &error), 0);
    body.filter_servers = servers;
    body.filter_server_count = 1;
    register_broker_body_encode(&body, true, &out);
    ck_assert(!out.failed);
    register_broker_body_close(&body);

    ck_assert_msg(register_broker_body_decode(&body, buffer_slice(&out), true, &error) == 0, "%s", error.message);
    ck_assert_int_eq(body.version.counter, 3);
    ck_assert_int_eq(body.version.timestamp_ms, 1700000000000);
    ck_assert_uint_eq(body.topic_count, 2);
    assert_slice(body.topics[0].name, "T");
    ck_assert_int_eq(body.topics[0].read_queue_nums, 4);
    ck_assert(!body.topics[0].multi_tag);
    assert_slice(body.topics[1].name, "TBW102");
    ck_assert_int_eq(body.topics[1].read_queue_nums, 8);
    ck_assert_int_eq(body.topics[1].write_queue_nums, 9);
    ck_assert_int_eq(body.topics[1].perm, 7);
    ck_assert(body.topics[1].multi_tag);
    ck_assert_uint_eq(body.filter_server_count, 1);
    assert_slice(body.filter_servers[0], "10.0.0.1:1");
    register_broker_body_close(&body);

    for (size_t cut = 0; cut < out.size; cut++) {
        uint8_t *part = malloc(cut == 0 ? 1 : cut);
        memcpy(part, out.data, cut);
        ck_assert_int_eq(register_broker_body_decode(&body, slice_of(part, cut), true, &error), ERROR_MALFORMED);
        free(part);
    }
    for (size_t at = 0; at < out.size; at++) {
        out.data[at] ^= 0x55;
        if (register_broker_body_decode(&body, buffer_slice(&out), true, &error) == 0)
            register_broker_body_close(&body);
        out.data[at] ^= 0x55;
    }
    buffer_close(&out);
}
END_TEST

/* The bytes as RegisterBrokerBody#encode lays them out, built by hand, with what 5.x adds. */
START_TEST(compressed_form_of_java)
{
    struct buffer plain;
    struct buffer out;
    buffer_init(&plain, 0);
    buffer_init(&out, 0);
    append_part(&plain, "{\"counter\":1,\"stateVersion\":2,\"timestamp\":1700000000000}");
    buffer_append_u32(&plain, 2);
    append_part(&plain, "A 4 5 6 SINGLE_TAG");
    append_part(&plain, "B 1 1 2 MULTI_TAG {\"+delete.policy\":\"compact\"}");
    append_part(&plain, "[]");
    buffer_append_u32(&plain, 1);
    append_part(&plain, "{\"bname\":\"b\"}");
    ck_assert_msg(register_broker_body_decode(&body, compress_text(&plain, &out), true, &error) == 0, "%s",
                  error.message);
    ck_assert_int_eq(body.version.state_version, 2);
    ck_assert_uint_eq(body.topic_count, 2);
    assert_slice(body.topics[0].name, "A");
    ck_assert_int_eq(body.topics[0].read_queue_nums, 4);
    ck_assert_int_eq(body.topics[0].write_queue_nums, 5);
    ck_assert_int_eq(body.topics[0].perm, 6);
    ck_assert(body.topics[1].multi_tag);
    register_broker_body_close(&body);

    /* Parts that end early, whatever the counts say. */
    for (size_t size = 0; size < plain.size - 21; size++) {
        struct buffer part = {.data = plain.data, .size = size};
        int rv = register_broker_body_decode(&body, compress_text(&part, &out), true, &error);
        ck_assert_msg(rv != 0, "%zu of %zu bytes were taken", size, plain.size);
    }
    buffer_close(&plain);
    buffer_close(&out);
}
END_TEST

START_TEST(wrong_parts)
{
    static const char *const lines[] = {
        "", "A", "A 1 1 6", "A x 1 6 SINGLE_TAG", "A 1 1 6 OTHER", " 1 1 6 SINGLE_TAG", "A  1 1 6 SINGLE_TAG"};
    struct buffer plain;
    struct buffer out;
    buffer_init(&plain, 0);
    buffer_init(&out, 0);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        buffer_clear(&plain);
        append_part(&plain, "{}");
        buffer_append_u32(&plain, 1);
        append_part(&plain, lines[i]);
        append_part(&plain, "[]                                ");
        ck_assert_msg(register_broker_body_decode(&body, compress_text(&plain, &out), true, &error) == ERROR_MALFORMED,
                      "'%s' was taken", lines[i]);
    }
    buffer_clear(&plain);
    append_part(&plain, "{}");
    buffer_append_u32(&plain, 0xFFFFFFFF);
    ck_assert_int_eq(register_broker_body_decode(&body, compress_text(&plain, &out), true, &error), ERROR_MALFORMED);
    ck_assert_int_eq(register_broker_body_decode(&body, slice_of_text(json), true, &error), ERROR_MALFORMED);
    ck_assert_int_eq(
        register_broker_body_decode(
            &body, SLICE_LITERAL("{\"topicConfigSerializeWrapper\":{\"topicConfigTable\":{\"T\":1}}}"), false, &error),
        ERROR_INVALID);
    ck_assert_ptr_nonnull(strstr(error.message, "topic T"));
    buffer_close(&plain);
    buffer_close(&out);
}
END_TEST

START_TEST(a_bomb_is_refused)
{
    struct buffer plain;
    struct buffer out;
    buffer_init(&plain, 0);
    buffer_init(&out, 0);
    plain.size = (size_t)REGISTER_BROKER_BODY_INFLATED_MAX + 1;
    plain.data = calloc(1, plain.size);
    struct slice bomb = compress_text(&plain, &out);
    ck_assert_uint_lt(bomb.size, 65536);
    ck_assert_int_eq(register_broker_body_decode(&body, bomb, true, &error), ERROR_TOO_LARGE);
    buffer_close(&plain);
    buffer_close(&out);
}
END_TEST

START_TEST(crc)
{
    ck_assert_int_eq(register_broker_body_crc(SLICE_LITERAL("123456789")), 0x4BF43926);
    ck_assert(register_broker_body_crc_ok(SLICE_LITERAL("123456789"), 0x4BF43926));
    ck_assert(register_broker_body_crc_ok(SLICE_LITERAL("123456789"), 0));
    ck_assert(!register_broker_body_crc_ok(SLICE_LITERAL("123456789"), 1));
}
END_TEST

/* Brokers before V3_0_11 send the wrapper alone. */
START_TEST(wrapper_alone)
{
    static const char text[] = "{\"dataVersion\":{\"counter\":3,\"timestamp\":1700000000000},\"topicConfigTable\":{"
                               "\"T\":{\"order\":false,\"perm\":6,"
                               "\"readQueueNums\":4,\"topicFilterType\":\"SINGLE_TAG\",\"topicName\":\"T\","
                               "\"topicSysFlag\":0,\"writeQueueNums\":4}}}";
    struct topic_config_serialize_wrapper wrapper;
    struct buffer out;
    buffer_init(&out, 0);
    ck_assert_int_eq(topic_config_serialize_wrapper_decode(&wrapper, slice_of_text(text), &error), 0);
    topic_config_serialize_wrapper_encode(&wrapper, &out);
    assert_slice(buffer_slice(&out), text);
    topic_config_serialize_wrapper_close(&wrapper);

    ck_assert_int_eq(
        topic_config_serialize_wrapper_decode(
            &wrapper, SLICE_LITERAL("{\"topicConfigTable\":{\"D\":{\"attributes\":{}},\"N\":null}}"), &error),
        0);
    ck_assert_uint_eq(wrapper.topic_count, 1);
    assert_slice(wrapper.topics[0].name, "D");
    ck_assert_int_eq(wrapper.topics[0].read_queue_nums, 16);
    ck_assert_int_eq(wrapper.topics[0].write_queue_nums, 16);
    ck_assert_int_eq(wrapper.topics[0].perm, 6);
    topic_config_serialize_wrapper_close(&wrapper);
    buffer_close(&out);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("register_broker_body");
    TCase *tcase = tcase_create("all");
    tcase_add_test(tcase, plain_form);
    tcase_add_test(tcase, compressed_form);
    tcase_add_test(tcase, compressed_form_of_java);
    tcase_add_test(tcase, wrong_parts);
    tcase_add_test(tcase, a_bomb_is_refused);
    tcase_add_test(tcase, crc);
    tcase_add_test(tcase, wrapper_alone);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
