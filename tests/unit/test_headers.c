/* Typed headers: every field of every list there and back in both forms, the keys on the wire, and what is said of missing and wrong fields
 * (spec: remoting.md 3). */
#include "proto/headers.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/request_code.h"
#include "tests/lib/hex.h"
#include "tests/lib/run_suite.h"

static struct remoting_command command;
static struct buffer frame;
static struct remoting_writer writer;
static struct error error;

static void begin(uint8_t type, int32_t code)
{
    buffer_clear(&frame);
    remoting_writer_begin_request(&writer, &frame, type, code, 1, 0);
}

static void end(void)
{
    remoting_writer_end(&writer, 0);
    ck_assert(!frame.failed);
    ck_assert_int_eq(remoting_command_decode(frame.data, frame.size, &command), 0);
}

static void tear_down(void)
{
    buffer_close(&frame);
}

/* Fills a header: each row gets a value of its own, so that a mixed-up key or offset shows. */
#define FILL_TEXT(member, row) header.member = slice_of_text(texts[row]);
#define FILL_I32(member, row)                                                                                \
    header.member = -1000 - (row);                                                                           \
    header.has_##member = true;
#define FILL_I64(member, row)                                                                                \
    header.member = 5000000000LL + (row);                                                                    \
    header.has_##member = true;
#define FILL_BOOL(member, row)                                                                               \
    header.member = (row) % 2 == 0;                                                                          \
    header.has_##member = true;
#define FILL(kind, member, key, required, fallback)                                                          \
    FILL_##kind(member, row);                                                                                \
    row++;
#define SAME_TEXT(member, row) ck_assert_slice_eq(back.member, texts[row]);
#define SAME_I32(member, row)                                                                                \
    ck_assert_int_eq(back.member, -1000 - (row));                                                            \
    ck_assert(back.has_##member);
#define SAME_I64(member, row)                                                                                \
    ck_assert_int_eq(back.member, 5000000000LL + (row));                                                     \
    ck_assert(back.has_##member);
#define SAME_BOOL(member, row)                                                                               \
    ck_assert(back.member == ((row) % 2 == 0));                                                              \
    ck_assert(back.has_##member);
#define SAME(kind, member, key, required, fallback)                                                          \
    SAME_##kind(member, row);                                                                                \
    row++;
#define ON_WIRE(kind, member, key, required, fallback)                                                       \
    ck_assert_msg(remoting_ext(&command, key).data != NULL, "%s", key);

static const char *const texts[] = {"text0", "text1", "text2", "text3", "text4", "text5", "text6", "text7", "text8", "text9",
                                    "text10", "text11", "text12", "text13", "text14", "text15"};

#define ROUND_TRIP(name, FIELDS)                                                                             \
    for (uint8_t type = REMOTING_JSON; type <= REMOTING_BINARY; type++) {                                    \
        struct name header;                                                                                  \
        struct name back;                                                                                    \
        int row = 0;                                                                                         \
        memset(&back, 0xAA, sizeof back);                                                                    \
        FIELDS(FILL)                                                                                         \
        begin(type, REQUEST_SEND_MESSAGE);                                                                   \
        name##_encode(&header, &writer);                                                                     \
        end();                                                                                               \
        ck_assert_uint_eq(command.ext_count, (uint32_t)row);                                                 \
        FIELDS(ON_WIRE)                                                                                      \
        ck_assert_int_eq(name##_decode(&command, &back, &error), 0);                                         \
        row = 0;                                                                                             \
        FIELDS(SAME)                                                                                         \
    }

START_TEST(test_round_trip)
{
    HEADERS(ROUND_TRIP)
    HOT_HEADERS(ROUND_TRIP)
}
END_TEST

/* Only what is required is there: the rest has its default; without one of the required, that one is named. */
#define WITHOUT_TEXT(member) header.member = SLICE_LITERAL("x");
#define WITHOUT_I32(member) header.has_##member = false;
#define WITHOUT_I64(member) header.has_##member = false;
#define WITHOUT_BOOL(member) header.has_##member = false;
#define CLEAR_TEXT(member) header.member = (struct slice){0};
#define CLEAR_I32(member)
#define CLEAR_I64(member)
#define CLEAR_BOOL(member)
#define ONLY_REQUIRED(kind, member, key, required, fallback)                                                 \
    WITHOUT_##kind(member) if (!(required)) { CLEAR_##kind(member) }
#define DEFAULT_TEXT(member, fallback) ck_assert_ptr_null(back.member.data);
#define DEFAULT_I32(member, fallback) ck_assert(back.member == (fallback) && !back.has_##member);
#define DEFAULT_I64(member, fallback) ck_assert(back.member == (fallback) && !back.has_##member);
#define DEFAULT_BOOL(member, fallback) ck_assert(back.member == (fallback) && !back.has_##member);
#define DEFAULTS(kind, member, key, required, fallback)                                                      \
    if (!(required)) {                                                                                       \
        DEFAULT_##kind(member, fallback)                                                                     \
    } else {                                                                                                 \
        ck_assert_ptr_nonnull(remoting_ext(&command, key).data);                                             \
    }
#define REMOVE_EACH(kind, member, key, required, fallback)                                                   \
    if (required) {                                                                                          \
        without(key);                                                                                        \
        ck_assert_int_eq(decode_again(&command, &back, &error), ERROR_MISSING);                              \
        ck_assert_str_eq(error.message, "field " key " is missing");                                         \
        restore();                                                                                           \
    }

static uint32_t removed;

static void without(const char *key)
{
    for (removed = 0; !slice_equal_text(command.ext[removed].name, key); removed++)
        ck_assert_uint_lt(removed, command.ext_count);
    command.ext[removed].name.size--;
}

static void restore(void)
{
    command.ext[removed].name.size++;
}

#define REQUIRED_ONLY(name, FIELDS)                                                                          \
    {                                                                                                        \
        struct name header = {0};                                                                            \
        struct name back;                                                                                    \
        int (*decode_again)(const struct remoting_command *, struct name *, struct error *) = name##_decode; \
        memset(&back, 0xAA, sizeof back);                                                                    \
        FIELDS(ONLY_REQUIRED)                                                                                \
        begin(REMOTING_JSON, REQUEST_SEND_MESSAGE);                                                          \
        name##_encode(&header, &writer);                                                                     \
        end();                                                                                               \
        ck_assert_int_eq(name##_decode(&command, &back, &error), 0);                                         \
        FIELDS(DEFAULTS)                                                                                     \
        (void)decode_again;                                                                                  \
        FIELDS(REMOVE_EACH)                                                                                  \
    }

START_TEST(test_required_and_defaults)
{
    HEADERS(REQUIRED_ONLY)
    HOT_HEADERS(REQUIRED_ONLY)
}
END_TEST

/* The hot headers' switches, key by key: a wrong number is told with its key. */
#define WRONG_TEXT(key)
#define WRONG_I32(key) wrong_number(key);
#define WRONG_I64(key) wrong_number(key);
#define WRONG_BOOL(key)
#define WRONG(kind, member, key, required, fallback) WRONG_##kind(key)

static int (*decoder)(const struct remoting_command *command, void *header, struct error *error);

static void wrong_number(const char *key)
{
    char expected[128];
    uint8_t header[512];
    snprintf(expected, sizeof expected, "field %s is not a number: abc", key);
    begin(REMOTING_JSON, REQUEST_SEND_MESSAGE);
    remoting_writer_ext_text(&writer, key, "abc");
    end();
    int rv = decoder(&command, header, &error);
    ck_assert_msg(rv == ERROR_INVALID, "%s: %d %s", key, rv, error.message);
    ck_assert_str_eq(error.message, expected);
}

static int decode_send(const struct remoting_command *from, void *header, struct error *why)
{
    return send_message_request_header_decode(from, header, why);
}

static int decode_pull(const struct remoting_command *from, void *header, struct error *why)
{
    return pull_message_request_header_decode(from, header, why);
}

START_TEST(test_wrong_numbers)
{
    decoder = decode_send;
    SEND_MESSAGE_REQUEST_HEADER(WRONG)
    decoder = decode_pull;
    PULL_MESSAGE_REQUEST_HEADER(WRONG)
    /* The others read row by row, so what stands before the wrong one must be right. */
    struct update_consumer_offset_request_header header;
    begin(REMOTING_JSON, REQUEST_UPDATE_CONSUMER_OFFSET);
    remoting_writer_ext_text(&writer, "consumerGroup", "g");
    remoting_writer_ext_text(&writer, "topic", "t");
    remoting_writer_ext_text(&writer, "queueId", "3000000000");
    remoting_writer_ext_text(&writer, "commitOffset", "5");
    end();
    ck_assert_int_eq(update_consumer_offset_request_header_decode(&command, &header, &error), ERROR_INVALID);
    ck_assert_str_eq(error.message, "field queueId is not a number: 3000000000");
    ck_assert_int_eq(update_consumer_offset_request_header_decode(&command, &header, NULL), ERROR_INVALID);
}
END_TEST

START_TEST(test_send_v2)
{
    /* As the Java client writes it, with 5.x's n, an unknown key and C++'s "1" for true. */
    begin(REMOTING_JSON, REQUEST_SEND_MESSAGE_V2);
    static const char *const pairs[][2] = {
        {"a", "PG"}, {"b", "VecT"}, {"c", "TBW102"}, {"d", "4"}, {"e", "-1"}, {"f", "0"}, {"g", "1700000000000"}, {"h", "7"},
        {"i", "KEYS\001k1\002TAGS\001TagA"}, {"j", "2"}, {"k", "false"}, {"l", "16"}, {"m", "1"}, {"n", "broker-a"}, {"o", "x"}, {"ReqT", "0"},
        {"topic", "not this"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        remoting_writer_ext_text(&writer, pairs[i][0], pairs[i][1]);
    end();
    struct send_message_request_header header;
    static const int32_t codes[] = {REQUEST_SEND_MESSAGE_V2, REQUEST_SEND_BATCH_MESSAGE, REQUEST_SEND_REPLY_MESSAGE_V2};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        command.code = codes[i];
        ck_assert_int_eq(send_message_request_header_decode(&command, &header, &error), 0);
        ck_assert_slice_eq(header.producer_group, "PG");
        ck_assert_slice_eq(header.topic, "VecT");
        ck_assert_slice_eq(header.default_topic, "TBW102");
        ck_assert_int_eq(header.default_topic_queue_nums, 4);
        ck_assert_int_eq(header.queue_id, -1);
        ck_assert_int_eq(header.sys_flag, 0);
        ck_assert_int_eq(header.born_timestamp_ms, 1700000000000);
        ck_assert_int_eq(header.flag, 7);
        ck_assert_slice_eq(header.properties, "KEYS\001k1\002TAGS\001TagA");
        ck_assert_int_eq(header.reconsume_times, 2);
        ck_assert(!header.unit_mode);
        ck_assert(header.has_max_reconsume_times && header.max_reconsume_times == 16);
        ck_assert(header.batch);
        ck_assert_slice_eq(header.broker_name, "broker-a");
    }
    /* The long form of the same code sees another topic and misses the rest. */
    command.code = REQUEST_SEND_MESSAGE;
    ck_assert_int_eq(send_message_request_header_decode(&command, &header, &error), ERROR_MISSING);
    ck_assert_str_eq(error.message, "field producerGroup is missing");
    command.code = REQUEST_SEND_MESSAGE_V2;
    without("e");
    ck_assert_int_eq(send_message_request_header_decode(&command, &header, &error), ERROR_MISSING);
    ck_assert_str_eq(error.message, "field queueId is missing");
    restore();
    /* ours, and back */
    ck_assert_int_eq(send_message_request_header_decode(&command, &header, &error), 0);
    struct buffer first;
    buffer_init(&first, 0);
    struct remoting_writer again;
    remoting_writer_begin_request(&again, &first, REMOTING_JSON, REQUEST_SEND_MESSAGE_V2, 1, 0);
    send_message_request_header_encode_v2(&header, &again);
    remoting_writer_end(&again, 0);
    ck_assert_slice_eq(slice_of(first.data + 8, 60), "{\"code\":310,\"extFields\":{\"a\":\"PG\",\"b\":\"VecT\",\"c\":\"TBW102\",\"d");
    struct send_message_request_header back;
    ck_assert_int_eq(remoting_command_decode(first.data, first.size, &command), 0);
    ck_assert_uint_eq(command.ext_count, 14);
    ck_assert_int_eq(send_message_request_header_decode(&command, &back, &error), 0);
    ck_assert_int_eq(back.born_timestamp_ms, 1700000000000);
    ck_assert_slice_eq(back.properties, "KEYS\001k1\002TAGS\001TagA");
    ck_assert(back.batch && !back.unit_mode && back.has_unit_mode);
    buffer_close(&first);
}
END_TEST

/* Keys that share length and first letters with known ones are not taken for them. */
START_TEST(test_unknown_keys)
{
    static const char *const keys[] = {"flat", "topix", "bnamx", "batcx", "quexeId", "sysFlax", "xxxxxxx", "unitModx", "propertiex", "defaultTopix",
                                       "producerGroux", "bornTimestamx", "xroducerGroup", "reconsumeTimex", "maxReconsumeTimex",
                                       "defaultTopicQueueNumx", "subVersiox", "xubVersion", "maxMsgNumx", "queueOffsex", "maxMsgBytex",
                                       "subscriptiox", "commitOffsex", "consumerGroux", "expressionTypx", "suspendTimeoutMillix", "", "A", "`", "o", "ab"};
    struct send_message_request_header send;
    struct pull_message_request_header pull;
    begin(REMOTING_JSON, REQUEST_SEND_MESSAGE);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        remoting_writer_ext_text(&writer, keys[i], "1");
    end();
    ck_assert_int_eq(send_message_request_header_decode(&command, &send, &error), ERROR_MISSING);
    ck_assert_str_eq(error.message, "field producerGroup is missing");
    ck_assert(send.topic.data == NULL && send.properties.data == NULL && send.broker_name.data == NULL && send.default_topic.data == NULL);
    ck_assert(!send.has_flag && !send.has_queue_id && !send.has_sys_flag && !send.has_batch && !send.has_unit_mode && !send.has_reconsume_times &&
              !send.has_max_reconsume_times && !send.has_default_topic_queue_nums && !send.has_born_timestamp_ms);
    ck_assert_int_eq(pull_message_request_header_decode(&command, &pull, &error), ERROR_MISSING);
    ck_assert(pull.topic.data == NULL && pull.subscription.data == NULL && pull.expression_type.data == NULL);
    ck_assert(!pull.has_queue_id && !pull.has_queue_offset && !pull.has_max_msg_nums && !pull.has_sys_flag && !pull.has_commit_offset &&
              !pull.has_suspend_timeout_ms && !pull.has_sub_version && !pull.has_max_msg_bytes);
    command.code = REQUEST_SEND_MESSAGE_V2;
    ck_assert_int_eq(send_message_request_header_decode(&command, &send, &error), ERROR_MISSING);
}
END_TEST

/* Numbers as JSON numbers, a key twice, a long wrong value. */
START_TEST(test_odd_values)
{
    static const char json[] = "{\"code\":11,\"extFields\":{\"consumerGroup\":\"g\",\"topic\":\"t\",\"queueId\":1,\"queueId\":2,\"queueOffset\":-5,"
                               "\"maxMsgNums\":32,\"sysFlag\":0,\"commitOffset\":0,\"suspendTimeoutMillis\":20000,\"subVersion\":0,\"subscription\":\"\"}}";
    buffer_clear(&frame);
    buffer_append_u32(&frame, 4 + sizeof json - 1);
    buffer_append_u32(&frame, sizeof json - 1);
    buffer_append_text(&frame, json);
    struct pull_message_request_header pull;
    ck_assert_int_eq(remoting_command_decode(frame.data, frame.size, &command), 0);
    ck_assert_int_eq(pull_message_request_header_decode(&command, &pull, &error), 0);
    ck_assert_int_eq(pull.queue_id, 2);
    ck_assert_int_eq(pull.queue_offset, -5);
    ck_assert_int_eq(pull.suspend_timeout_ms, 20000);
    ck_assert_ptr_nonnull(pull.subscription.data);
    ck_assert_uint_eq(pull.subscription.size, 0);
    ck_assert_ptr_null(pull.expression_type.data);
    char text[2000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    begin(REMOTING_BINARY, REQUEST_PULL_MESSAGE);
    remoting_writer_ext_text(&writer, "queueId", text);
    end();
    ck_assert_int_eq(pull_message_request_header_decode(&command, &pull, &error), ERROR_INVALID);
    ck_assert_uint_lt(strlen(error.message), 120);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("headers");
    TCase *tcase = tcase_create("headers");
    tcase_add_checked_fixture(tcase, NULL, tear_down);
    tcase_add_test(tcase, test_round_trip);
    tcase_add_test(tcase, test_required_and_defaults);
    tcase_add_test(tcase, test_wrong_numbers);
    tcase_add_test(tcase, test_send_v2);
    tcase_add_test(tcase, test_unknown_keys);
    tcase_add_test(tcase, test_odd_values);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
