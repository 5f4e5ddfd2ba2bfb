/* Heart-beats as the Java, Go and C++ clients send them (remoting.md 5.5, 7.13). */
#include "proto/heartbeat_data.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#define assert_slice(slice, text)                                                                                      \
    ck_assert_msg(slice_equal_text(slice, text), "is '%.*s'", (int)(slice).size, (const char *)(slice).data)

static const char java[] = "{\"clientID\":\"10.0.0.1@1666#1252415232051\",\"consumerDataSet\":[{\"consumeFromWhere\":"
                           "\"CONSUME_FROM_LAST_OFFSET\","
                           "\"consumeType\":\"CONSUME_PASSIVELY\",\"groupName\":\"g\",\"messageModel\":\"CLUSTERING\","
                           "\"subscriptionDataSet\":["
                           "{\"classFilterMode\":false,\"codeSet\":[],\"expressionType\":\"TAG\",\"subString\":\"*\","
                           "\"subVersion\":1700000000000,\"tagsSet\":[],"
                           "\"topic\":\"%RETRY%g\"},{\"classFilterMode\":false,\"codeSet\":[2598919],"
                           "\"expressionType\":\"TAG\",\"subString\":\"TagA\","
                           "\"subVersion\":1700000000001,\"tagsSet\":[\"TagA\"],\"topic\":\"T\"}],\"unitMode\":false}],"
                           "\"producerDataSet\":[{\"groupName\":\"p\"},"
                           "{\"groupName\":\"CLIENT_INNER_PRODUCER\"}]}";

static struct heartbeat_data data;
static struct error error;

static void decode(const char *text)
{
    /* Of exactly the size, so that the sanitizer sees a read behind it. */
    size_t size = strlen(text);
    uint8_t *copy = malloc(size);
    memcpy(copy, text, size);
    int rv = heartbeat_data_decode(&data, slice_of(copy, size), &error);
    free(copy);
    ck_assert_msg(rv == 0, "%s", error.message);
}

START_TEST(java_client)
{
    struct buffer out;
    decode(java);
    assert_slice(data.client_id, "10.0.0.1@1666#1252415232051");
    ck_assert_uint_eq(data.consumer_count, 1);
    const struct consumer_data *consumer = &data.consumers[0];
    assert_slice(consumer->group_name, "g");
    ck_assert_int_eq(consumer->consume_type, CONSUME_PASSIVELY);
    ck_assert_int_eq(consumer->message_model, MESSAGE_MODEL_CLUSTERING);
    ck_assert_int_eq(consumer->consume_from_where, CONSUME_FROM_LAST_OFFSET);
    ck_assert(!consumer->unit_mode);
    ck_assert_uint_eq(consumer->subscription_count, 2);
    assert_slice(consumer->subscriptions[0].topic, "%RETRY%g");
    assert_slice(consumer->subscriptions[1].topic, "T");
    ck_assert(subscription_data_match(&consumer->subscriptions[1], 2598919));
    ck_assert_uint_eq(data.producer_count, 2);
    assert_slice(data.producers[1].group_name, "CLIENT_INNER_PRODUCER");
    ck_assert(!data.without_sub);
    ck_assert_int_eq(data.heartbeat_fingerprint, 0);

    buffer_init(&out, 0);
    heartbeat_data_encode(&data, &out);
    assert_slice(buffer_slice(&out), java);
    buffer_close(&out);
    heartbeat_data_close(&data);
}
END_TEST

START_TEST(cpp_client)
{
    decode(
        "{\"clientID\":\"10.0.0.2@17#2\",\"consumerDataSet\":[{\"consumeFromWhere\":0,\"consumeType\":1,\"groupName\":"
        "\"g\",\"messageModel\":1,"
        "\"subscriptionDataSet\":[{\"subString\":\"TagA || TagB\",\"subVersion\":\"1700000000000\",\"topic\":\"T\"}]},"
        "{\"consumeFromWhere\":4,\"consumeType\":0,\"groupName\":\"h\",\"messageModel\":0}]}\n");
    ck_assert_uint_eq(data.producer_count, 0);
    ck_assert_uint_eq(data.consumer_count, 2);
    ck_assert_int_eq(data.consumers[0].consume_type, CONSUME_PASSIVELY);
    ck_assert_int_eq(data.consumers[0].message_model, MESSAGE_MODEL_CLUSTERING);
    const struct subscription_data *subscription = &data.consumers[0].subscriptions[0];
    ck_assert_int_eq(subscription->sub_version, 1700000000000);
    ck_assert(subscription_data_match(subscription, 2598919));
    ck_assert(subscription_data_match(subscription, 2598920));
    ck_assert(!subscription_data_match(subscription, 0));
    ck_assert_int_eq(data.consumers[1].consume_type, CONSUME_ACTIVELY);
    ck_assert_int_eq(data.consumers[1].message_model, MESSAGE_MODEL_BROADCASTING);
    ck_assert_int_eq(data.consumers[1].consume_from_where, CONSUME_FROM_FIRST_OFFSET);
    ck_assert_uint_eq(data.consumers[1].subscription_count, 0);
    heartbeat_data_close(&data);
}
END_TEST

START_TEST(go_client)
{
    decode("{\"clientID\":\"10.0.0.3@DEFAULT\",\"producerDataSet\":[],\"consumerDataSet\":[{\"groupName\":\"g\","
           "\"consumeType\":\"CONSUME_PASSIVELY\","
           "\"messageModel\":\"CLUSTERING\",\"consumeFromWhere\":\"CONSUME_FROM_FIRST_OFFSET\",\"subscriptionDataSet\":"
           "[{\"classFilterMode\":false,"
           "\"topic\":\"T\",\"subString\":\"TagA\",\"tagsSet\":[\"TagA\"],\"codeSet\":[\"2598919\"],\"subVersion\":"
           "1700000000000,"
           "\"expressionType\":\"TAG\"}],\"unitMode\":false}]}");
    ck_assert_int_eq(data.consumers[0].consume_from_where, CONSUME_FROM_FIRST_OFFSET);
    ck_assert_int_eq(data.consumers[0].subscriptions[0].codes[0], 2598919);
    heartbeat_data_close(&data);
}
END_TEST

START_TEST(client_of_version_5)
{
    decode("{\"clientID\":\"c\",\"consumerDataSet\":[{\"consumeFromWhere\":\"CONSUME_FROM_LAST_OFFSET\","
           "\"consumeType\":\"CONSUME_POP\",\"groupName\":\"g\","
           "\"messageModel\":\"CLUSTERING\",\"subscriptionDataSet\":[],\"unitMode\":true}],\"heartbeatFingerprint\":-"
           "123456,\"producerDataSet\":null,"
           "\"somethingNew\":{\"deep\":[1,{}]},\"withoutSub\":true}");
    ck_assert(data.without_sub);
    ck_assert_int_eq(data.heartbeat_fingerprint, -123456);
    ck_assert_int_eq(data.consumers[0].consume_type, CONSUME_POP);
    ck_assert(data.consumers[0].unit_mode);
    ck_assert_uint_eq(data.producer_count, 0);
    heartbeat_data_close(&data);
}
END_TEST

START_TEST(only_a_client_id)
{
    struct buffer out;
    decode("{\"clientID\":\"c\",\"consumerDataSet\":null}");
    ck_assert_uint_eq(data.consumer_count + data.producer_count, 0);
    buffer_init(&out, 0);
    heartbeat_data_encode(&data, &out);
    assert_slice(buffer_slice(&out), "{\"clientID\":\"c\",\"consumerDataSet\":[],\"producerDataSet\":[]}");
    buffer_close(&out);
    heartbeat_data_close(&data);
}
END_TEST

START_TEST(what_is_wrong_is_named)
{
    static const struct {
        const char *text;
        int code;
        const char *name;
    } rows[] = {
        {"", ERROR_MALFORMED, ""},
        {"{", ERROR_MALFORMED, ""},
        {"[]", ERROR_INVALID, "object"},
        {"{}", ERROR_MISSING, "clientID"},
        {"{\"clientID\":\"\"}", ERROR_MISSING, "clientID"},
        {"{\"clientID\":{}}", ERROR_INVALID, "clientID"},
        {"{\"clientID\":\"c\",\"producerDataSet\":[{}]}", ERROR_MISSING, "groupName"},
        {"{\"clientID\":\"c\",\"producerDataSet\":{}}", ERROR_INVALID, "producerDataSet"},
        {"{\"clientID\":\"c\",\"consumerDataSet\":[1]}", ERROR_MISSING, "groupName"},
        {"{\"clientID\":\"c\",\"consumerDataSet\":[{\"groupName\":\"g\",\"consumeType\":{}}]}", ERROR_INVALID,
         "consumeType"},
        {"{\"clientID\":\"c\",\"consumerDataSet\":[{\"groupName\":\"g\",\"messageModel\":[1]}]}", ERROR_INVALID,
         "messageModel"},
        {"{\"clientID\":\"c\",\"consumerDataSet\":[{\"groupName\":\"g\",\"subscriptionDataSet\":[{}]}]}", ERROR_MISSING,
         "topic"},
        {"{\"clientID\":\"c\",\"withoutSub\":\"maybe\"}", ERROR_INVALID, "withoutSub"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ck_assert_msg(heartbeat_data_decode(&data, slice_of_text(rows[i].text), &error) == rows[i].code, "row %zu: %s",
                      i, error.message);
        ck_assert_msg(strstr(error.message, rows[i].name) != NULL, "row %zu: %s", i, error.message);
        ck_assert_ptr_null(data.arena.chunks);
    }
}
END_TEST

/* Z4: other spellings and words that are not known. */
START_TEST(other_spellings)
{
    static const struct {
        const char *members;
        enum consume_type type;
        enum message_model model;
        enum consume_from_where where;
    } rows[] = {
        {"\"consumeType\":\"Consume_Actively\",\"messageModel\":\"BroadCasting\",\"consumeFromWhere\":\"consume-from-timestamp\"", CONSUME_ACTIVELY,
         MESSAGE_MODEL_BROADCASTING, CONSUME_FROM_TIMESTAMP},
        {"\"consumeType\":0,\"messageModel\":0,\"consumeFromWhere\":4", CONSUME_ACTIVELY, MESSAGE_MODEL_BROADCASTING, CONSUME_FROM_FIRST_OFFSET},
        {"\"consumeType\":\"NEW\",\"messageModel\":\"\",\"consumeFromWhere\":\"CONSUME_FROM_LAST_OFFSETS\"", CONSUME_PASSIVELY,
         MESSAGE_MODEL_CLUSTERING, CONSUME_FROM_LAST_OFFSET},
        {"\"consumeType\":9,\"messageModel\":-1,\"consumeFromWhere\":\"CONSUME_FROM\"", CONSUME_PASSIVELY, MESSAGE_MODEL_CLUSTERING,
         CONSUME_FROM_LAST_OFFSET},
        {"\"consumeType\":null,\"newMember\":{\"a\":[1]}", CONSUME_PASSIVELY, MESSAGE_MODEL_CLUSTERING, CONSUME_FROM_LAST_OFFSET},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[400];
        snprintf(text, sizeof text, "{\"clientID\":\"c\",\"consumerDataSet\":[{\"groupName\":\"g\",%s}]}", rows[i].members);
        ck_assert_msg(heartbeat_data_decode(&data, slice_of_text(text), &error) == 0, "row %zu: %s", i, error.message);
        ck_assert_msg(data.consumers[0].consume_type == rows[i].type && data.consumers[0].message_model == rows[i].model &&
                          data.consumers[0].consume_from_where == rows[i].where,
                      "row %zu", i);
        heartbeat_data_close(&data);
    }
}
END_TEST

START_TEST(every_prefix_is_an_error)
{
    for (size_t cut = 0; cut < sizeof java - 1; cut++) {
        uint8_t *part = malloc(cut == 0 ? 1 : cut);
        memcpy(part, java, cut);
        ck_assert_int_ne(heartbeat_data_decode(&data, slice_of(part, cut), &error), 0);
        free(part);
    }
}
END_TEST

/* Many tiny elements must not cost memory without end. */
START_TEST(memory_follows_the_size_of_the_text)
{
    struct buffer text;
    buffer_init(&text, 0);
    buffer_append_text(&text, "{\"clientID\":\"c\",\"consumerDataSet\":[");
    for (int i = 0; i < 100000; i++)
        buffer_append_text(&text, i == 0 ? "1" : ",1");
    buffer_append_text(&text, "]}");
    ck_assert_int_eq(heartbeat_data_decode(&data, buffer_slice(&text), &error), ERROR_TOO_LARGE);
    buffer_close(&text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("heartbeat_data");
    TCase *tcase = tcase_create("all");
    tcase_add_test(tcase, java_client);
    tcase_add_test(tcase, cpp_client);
    tcase_add_test(tcase, go_client);
    tcase_add_test(tcase, client_of_version_5);
    tcase_add_test(tcase, only_a_client_id);
    tcase_add_test(tcase, what_is_wrong_is_named);
    tcase_add_test(tcase, other_spellings);
    tcase_add_test(tcase, every_prefix_is_an_error);
    tcase_add_test(tcase, memory_follows_the_size_of_the_text);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
