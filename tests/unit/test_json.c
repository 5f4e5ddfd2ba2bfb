/* The JSON reader with the forms that RocketMQ's peers write (spec: remoting.md 1.2, 5), and the writer's bytes. */
#include "proto/json.h"

#include <check.h>
#include <stdlib.h>

#include "tests/lib/hex.h"
#include "tests/lib/run_suite.h"

static struct json_document document;
static struct error error;

static struct json_value parse(const char *text)
{
    int rv = json_parse(&document, slice_of_text(text), NULL, 0, &error);
    ck_assert_msg(rv == 0, "%s: %s", text, error.message);
    return json_root(&document);
}

static struct slice text_of(struct json_value value)
{
    struct slice text = {0};
    ck_assert(json_text(value, &text));
    return text;
}

static int64_t number_of(struct json_value value)
{
    int64_t number = 0;
    ck_assert(json_i64(value, &number));
    return number;
}

START_TEST(test_bean)
{
    struct json_value root = parse("{\"clientID\":\"10.0.0.1@1666\",\"n\":-5,\"on\":true,\"off\":\"false\",\"none\":null,"
                                   "\"list\":[1,\"2\",{\"a\":[]}],\"nested\":{\"deep\":{\"x\":1.5}}}");
    bool flag = false;
    int32_t small = 0;
    double real = 0;
    ck_assert(json_is_object(root));
    ck_assert_uint_eq(json_size(root), 7);
    ck_assert_slice_eq(text_of(json_get(root, "clientID")), "10.0.0.1@1666");
    ck_assert_int_eq(number_of(json_get(root, "n")), -5);
    ck_assert(json_i32(json_get(root, "n"), &small) && small == -5);
    ck_assert(json_bool(json_get(root, "on"), &flag) && flag);
    ck_assert(json_bool(json_get(root, "off"), &flag) && !flag);
    ck_assert(json_is_null(json_get(root, "none")));
    ck_assert(json_is_null(json_get(root, "absent")));
    ck_assert(!json_is_null(json_get(root, "n")));
    ck_assert(json_is_string(json_get(root, "off")));
    ck_assert(!json_is_string(json_get(root, "on")));
    struct json_value list = json_get(root, "list");
    ck_assert(json_is_array(list));
    ck_assert_uint_eq(json_size(list), 3);
    struct json_iterator iterator = json_iterate(list);
    struct json_value element;
    ck_assert(json_next_element(&iterator, &element) && number_of(element) == 1);
    ck_assert(json_next_element(&iterator, &element) && number_of(element) == 2);
    ck_assert(json_next_element(&iterator, &element) && json_size(json_get(element, "a")) == 0);
    ck_assert_slice_eq(json_raw(element), "{\"a\":[]}");
    ck_assert(!json_next_element(&iterator, &element));
    ck_assert(json_double(json_get(json_get(json_get(root, "nested"), "deep"), "x"), &real) && real == 1.5);
    /* Wrong kinds answer false and change nothing. */
    int64_t number = 77;
    ck_assert(!json_i64(json_get(root, "clientID"), &number) && !json_i64(list, &number) && !json_i64(root, &number));
    ck_assert(!json_i64(json_get(root, "none"), &number) && !json_i64(json_get(root, "absent"), &number));
    ck_assert_int_eq(number, 77);
    ck_assert(!json_bool(json_get(root, "clientID"), &flag));
    ck_assert_uint_eq(json_size(json_get(root, "n")), 0);
    ck_assert_uint_eq(json_iterate(json_get(root, "n")).left, 0);
    json_close(&document);
}
END_TEST

START_TEST(test_integer_keys)
{
    struct json_value root = parse("{\"offsetTable\":{\"T@G\":{0:5,1:7},\"U@G\":{\"2\":9}}}");
    struct json_iterator tables = json_iterate(json_get(root, "offsetTable"));
    struct json_value name;
    struct json_value table;
    struct json_value key;
    struct json_value value;
    ck_assert(json_next_member(&tables, &name, &table));
    ck_assert_slice_eq(text_of(name), "T@G");
    struct json_iterator offsets = json_iterate(table);
    ck_assert(json_next_member(&offsets, &key, &value) && number_of(key) == 0 && number_of(value) == 5);
    ck_assert(json_next_member(&offsets, &key, &value) && number_of(key) == 1 && number_of(value) == 7);
    ck_assert(!json_next_member(&offsets, &key, &value));
    ck_assert(json_next_member(&tables, &name, &table));
    offsets = json_iterate(table);
    ck_assert(json_next_member(&offsets, &key, &value) && number_of(key) == 2 && number_of(value) == 9);
    ck_assert(!json_next_member(&tables, &name, &table));
    json_close(&document);
}
END_TEST

START_TEST(test_object_keys)
{
    struct json_value root = parse("{\"offsetTable\":{{\"brokerName\":\"b\",\"queueId\":0,\"topic\":\"t\"}:5,"
                                   "{\"brokerName\":\"b\",\"queueId\":1,\"topic\":\"t\"}:{\"max\":6,\"min\":[{}]} , {}:7},\"x\":1}");
    struct json_value table = json_get(root, "offsetTable");
    ck_assert_uint_eq(json_size(table), 3);
    struct json_iterator iterator = json_iterate(table);
    struct json_value key;
    struct json_value value;
    ck_assert(json_next_member(&iterator, &key, &value));
    ck_assert_slice_eq(text_of(json_get(key, "topic")), "t");
    ck_assert_int_eq(number_of(json_get(key, "queueId")), 0);
    ck_assert_int_eq(number_of(value), 5);
    ck_assert(json_next_member(&iterator, &key, &value));
    ck_assert_int_eq(number_of(json_get(key, "queueId")), 1);
    ck_assert_int_eq(number_of(json_get(value, "max")), 6);
    ck_assert(json_next_member(&iterator, &key, &value));
    ck_assert_int_eq(number_of(value), 7);
    ck_assert(!json_next_member(&iterator, &key, &value));
    ck_assert_int_eq(number_of(json_get(root, "x")), 1);
    json_close(&document);
}
END_TEST

START_TEST(test_lenient_forms)
{
    struct json_value root = parse(" {a:1, 'b' : 'x' ,\n\"c\":[1,2,],\"a\":\"2\", $d_1:true,} \r\n\t");
    ck_assert_int_eq(number_of(json_get(root, "a")), 2); /* the last one wins */
    ck_assert_slice_eq(text_of(json_get(root, "b")), "x");
    ck_assert_uint_eq(json_size(json_get(root, "c")), 2);
    ck_assert(!json_is_null(json_get(root, "$d_1")));
    json_close(&document);
    ck_assert(json_is_null(parse("null")));
    json_close(&document);
    ck_assert_int_eq(number_of(parse(" 17 ")), 17);
    json_close(&document);
    ck_assert_uint_eq(json_size(parse("[]")), 0);
    json_close(&document);
}
END_TEST

START_TEST(test_strings)
{
    struct json_value root = parse("{\"p\":\"KEYS\\u0001k1\\u0002TAGS\\u0001\\u4E2D\\u6587\",\"s\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\","
                                   "\"pair\":\"\\ud83d\\ude00\",\"lone\":\"\\ud83dx\",\"raw\":\"中\x7f/\",\"k\\u0065y\":1,\"e\":\"\"}");
    ck_assert_slice_eq(text_of(json_get(root, "p")), "KEYS\001k1\002TAGS\001中文");
    ck_assert_slice_eq(text_of(json_get(root, "p")), "KEYS\001k1\002TAGS\001中文");
    ck_assert_slice_eq(text_of(json_get(root, "s")), "\"\\/\b\f\n\r\t");
    ck_assert_slice_eq(text_of(json_get(root, "pair")), "\xF0\x9F\x98\x80");
    ck_assert_slice_eq(text_of(json_get(root, "lone")), "?x");
    ck_assert_slice_eq(text_of(json_get(root, "raw")), "中\x7f/");
    ck_assert_slice_eq(text_of(json_get(root, "e")), "");
    ck_assert_int_eq(number_of(json_get(root, "key")), 1);
    json_close(&document);
}
END_TEST

START_TEST(test_enum)
{
    static const char *const types[] = {"CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP"};
    struct json_value root = parse("{\"a\":\"CONSUME_PASSIVELY\",\"b\":2,\"c\":\"1\",\"d\":3,\"e\":-1,\"f\":\"OTHER\",\"g\":null}");
    int ordinal = -7;
    ck_assert(json_enum(json_get(root, "a"), types, 3, &ordinal) && ordinal == 1);
    ck_assert(json_enum(json_get(root, "b"), types, 3, &ordinal) && ordinal == 2);
    ck_assert(json_enum(json_get(root, "c"), types, 3, &ordinal) && ordinal == 1);
    ck_assert(!json_enum(json_get(root, "d"), types, 3, &ordinal));
    ck_assert(!json_enum(json_get(root, "e"), types, 3, &ordinal));
    ck_assert_int_eq(json_read_enum(root, "f", types, 3, &ordinal, &error), ERROR_INVALID);
    ck_assert_str_eq(error.message, "field f has an unknown value: \"OTHER\"");
    ck_assert_int_eq(json_read_enum(root, "g", types, 3, &ordinal, &error), 0);
    ck_assert_int_eq(ordinal, 1);
    json_close(&document);
}
END_TEST

START_TEST(test_read_members)
{
    struct json_value root = parse("{\"perm\":6,\"name\":\"T\",\"order\":false,\"bad\":\"x\",\"none\":null,\"big\":3000000000}");
    int32_t perm = 1;
    int64_t big = 1;
    bool order = true;
    struct slice name = SLICE_LITERAL("default");
    ck_assert_int_eq(json_read_i32(root, "perm", &perm, &error), 0);
    ck_assert_int_eq(perm, 6);
    ck_assert_int_eq(json_read_i32(root, "absent", &perm, &error), 0);
    ck_assert_int_eq(json_read_i32(root, "none", &perm, &error), 0);
    ck_assert_int_eq(perm, 6);
    ck_assert_int_eq(json_read_i32(root, "bad", &perm, &error), ERROR_INVALID);
    ck_assert_str_eq(error.message, "field bad is not a number");
    ck_assert_int_eq(json_read_i32(root, "big", &perm, &error), ERROR_INVALID);
    ck_assert_int_eq(json_read_i64(root, "big", &big, &error), 0);
    ck_assert_int_eq(big, 3000000000);
    ck_assert_int_eq(json_read_bool(root, "order", &order, &error), 0);
    ck_assert(!order);
    ck_assert_int_eq(json_read_bool(root, "name", &order, &error), ERROR_INVALID);
    ck_assert_int_eq(json_read_text(root, "none", &name, &error), 0);
    ck_assert_slice_eq(name, "default");
    ck_assert_int_eq(json_read_text(root, "name", &name, &error), 0);
    ck_assert_slice_eq(name, "T");
    json_close(&document);
}
END_TEST

START_TEST(test_malformed)
{
    static const char *const bad[] = {
        "",           " ",          "{",           "}",          "[",          "{\"a\"}",     "{\"a\":}",    "{:1}",
        "{\"a\":1",   "{\"a\" 1}",  "{\"a\":1 2}", "{\"a\",1}",  "{\"a\":1]",  "[1 2]",       "[,]",         "[1,,2]",
        "{,}",        "{\"a\":1,,}", "[:]",        "[1:2]",      "{} {}",      "{}x",         "{}}",         "1 2",
        "\"a",        "\"\\u12g4\"", "\"\\q\"",    "{\"a\":b}",  "{\"a\":tru}", "{\"a\":nul}", "{a\"b:1}",    "{\"a\":\"b\"c}",
        "{\"a\":'b}", "[1}",        "{{\"a\":1}}", "{{\"a\":1}:}", "{\"a\"::1}", "/* */{}",    "{\"a\":1}//", "{\"a\":'b'c'}",
        "{\"a\":\"b\"\"c\"}", "a\"[",  "{}:}",       "{\"a\":'\\u0'}", "'\\n'",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int rv = json_parse(&document, slice_of_text(bad[i]), NULL, 0, &error);
        ck_assert_msg(rv == ERROR_MALFORMED, "%s: %d", bad[i], rv);
        ck_assert_uint_gt(strlen(error.message), 0);
    }
    ck_assert_int_eq(json_parse(&document, slice_of("{\"a\":1}\0", 8), NULL, 0, &error), ERROR_MALFORMED);
    ck_assert_int_eq(json_parse(&document, slice_of("{\"a\0\":1}", 8), NULL, 0, NULL), ERROR_MALFORMED);
}
END_TEST

START_TEST(test_limits)
{
    struct buffer text;
    buffer_init(&text, 0);
    for (unsigned depth = JSON_DEPTH_MAX; depth <= JSON_DEPTH_MAX + 1; depth++) {
        buffer_clear(&text);
        for (unsigned i = 0; i < depth; i++)
            buffer_append_u8(&text, '[');
        for (unsigned i = 0; i < depth; i++)
            buffer_append_u8(&text, ']');
        int rv = json_parse(&document, buffer_slice(&text), NULL, 0, &error);
        ck_assert_int_eq(rv, depth <= JSON_DEPTH_MAX ? 0 : ERROR_MALFORMED);
        if (rv == 0)
            json_close(&document);
    }
    /* A caller's array is never left. */
    struct json_token tokens[4];
    ck_assert_int_eq(json_parse(&document, SLICE_LITERAL("[1,2,3]"), tokens, 4, &error), 0);
    ck_assert_uint_eq(json_size(json_root(&document)), 3);
    json_close(&document);
    ck_assert_int_eq(json_parse(&document, SLICE_LITERAL("[1,2,3,4]"), tokens, 4, &error), ERROR_TOO_LARGE);
    /* Growing keeps what was parsed before. */
    buffer_clear(&text);
    buffer_append_u8(&text, '{');
    for (int i = 0; i < 10000; i++)
        buffer_append_format(&text, "%s\"key%d\":{\"v\":[%d]}", i == 0 ? "" : ",", i, i);
    buffer_append_u8(&text, '}');
    ck_assert_int_eq(json_parse(&document, buffer_slice(&text), NULL, 0, &error), 0);
    struct json_iterator iterator = json_iterate(json_root(&document));
    struct json_value key;
    struct json_value value;
    struct json_value element;
    int count = 0;
    while (json_next_member(&iterator, &key, &value)) {
        struct json_iterator inner = json_iterate(json_get(value, "v"));
        ck_assert(json_next_element(&inner, &element));
        ck_assert_int_eq(number_of(element), count++);
    }
    ck_assert_int_eq(count, 10000);
    json_close(&document);
    buffer_close(&text);
}
END_TEST

static struct buffer out;
static struct json_writer writer;

static void begin(void)
{
    buffer_init(&out, 0);
    json_writer_init(&writer, &out);
}

static void check_written(const char *expected)
{
    ck_assert(!out.failed);
    ck_assert_slice_eq(buffer_slice(&out), expected);
    buffer_close(&out);
}

START_TEST(test_write)
{
    begin();
    json_write_begin_object(&writer);
    json_write_key(&writer, "brokerDatas");
    json_write_begin_array(&writer);
    json_write_begin_object(&writer);
    json_write_key(&writer, "brokerAddrs");
    json_write_begin_object(&writer);
    json_write_key_i64_quoted(&writer, 0);
    json_write_text(&writer, "127.0.0.1:10911");
    json_write_key_i64(&writer, 1);
    json_write_text(&writer, "a/b");
    json_write_end_object(&writer);
    json_write_member_text(&writer, "brokerName", "broker-a");
    json_write_member_text(&writer, "zoneName", NULL);
    json_write_end_object(&writer);
    json_write_i64(&writer, -7);
    json_write_null(&writer);
    json_write_text(&writer, NULL);
    json_write_end_array(&writer);
    json_write_key(&writer, "filterServerTable");
    json_write_begin_object(&writer);
    json_write_end_object(&writer);
    json_write_key(&writer, "list");
    json_write_begin_array(&writer);
    json_write_end_array(&writer);
    json_write_member_bool(&writer, "order", false);
    json_write_member_i64(&writer, "perm", 6);
    json_write_member_double(&writer, "tps", 0);
    json_write_key(&writer, "raw");
    json_write_raw(&writer, SLICE_LITERAL("{\"x\":1}"));
    json_write_end_object(&writer);
    check_written("{\"brokerDatas\":[{\"brokerAddrs\":{\"0\":\"127.0.0.1:10911\",1:\"a/b\"},\"brokerName\":\"broker-a\"},-7,null,null],"
                  "\"filterServerTable\":{},\"list\":[],\"order\":false,\"perm\":6,\"tps\":0.0,\"raw\":{\"x\":1}}");
}
END_TEST

START_TEST(test_write_object_keys)
{
    begin();
    json_write_begin_object(&writer);
    json_write_key(&writer, "offsetTable");
    json_write_begin_object(&writer);
    for (int i = 0; i < 2; i++) {
        json_write_begin_key_object(&writer);
        json_write_member_text(&writer, "brokerName", "b");
        json_write_member_i64(&writer, "queueId", i);
        json_write_member_text(&writer, "topic", "t");
        json_write_end_key_object(&writer);
        json_write_i64(&writer, 5 + i);
    }
    json_write_end_object(&writer);
    json_write_end_object(&writer);
    check_written("{\"offsetTable\":{{\"brokerName\":\"b\",\"queueId\":0,\"topic\":\"t\"}:5,"
                  "{\"brokerName\":\"b\",\"queueId\":1,\"topic\":\"t\"}:6}}");
}
END_TEST

START_TEST(test_write_escapes)
{
    begin();
    json_write_slice(&writer, SLICE_LITERAL("a\001\002\037\"\\/\b\f\n\r\t\013\x7f"));
    check_written("\"a\\u0001\\u0002\\u001F\\\"\\\\/\\b\\f\\n\\r\\t\\u000B\\u007F\"");
    begin();
    json_write_text(&writer, "中\xE2\x80\xA8|\xE2\x80\xA9|\xE2\x80\xA7|\xC2\x85|\xC2\xA0|\xF0\x9F\x98\x80|\xE2\x80");
    check_written("\"中\\u2028|\\u2029|\xE2\x80\xA7|\\u0085|\xC2\xA0|\xF0\x9F\x98\x80|\xE2\x80\"");
    begin();
    json_write_begin_object(&writer);
    json_write_key_slice(&writer, SLICE_LITERAL("k\n"));
    json_write_slice(&writer, SLICE_LITERAL(""));
    json_write_end_object(&writer);
    check_written("{\"k\\n\":\"\"}");
}
END_TEST

START_TEST(test_write_double)
{
    static const struct {
        double value;
        const char *text;
    } rows[] = {
        {0, "0.0"}, {1, "1.0"}, {-1.5, "-1.5"}, {0.1, "0.1"}, {0.27, "0.27"}, {100, "100.0"}, {1234567.25, "1234567.25"},
        {9999999, "9999999.0"}, {1e7, "1.0E7"}, {1.25e10, "1.25E10"}, {0.001, "0.001"}, {0.00025, "2.5E-4"},
        {1.0 / 3, "0.3333333333333333"}, {-0.0, "-0.0"}, {1e300, "1.0E300"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        begin();
        json_write_double(&writer, rows[i].value);
        check_written(rows[i].text);
    }
    begin();
    json_write_double(&writer, 0.0 / (double)(rows[0].value));
    check_written("null");
}
END_TEST

/* What is written reads back, whatever the letters. */
START_TEST(test_round_trip)
{
    uint8_t text[64];
    for (unsigned seed = 0; seed < 2000; seed++) {
        size_t size = seed % sizeof text;
        for (size_t i = 0; i < size; i++)
            text[i] = (uint8_t)((seed * 2654435761u + i * 40503u) >> 7);
        begin();
        json_write_slice(&writer, slice_of(text, size));
        ck_assert_int_eq(json_parse(&document, buffer_slice(&out), NULL, 0, &error), 0);
        ck_assert(slice_equal(text_of(json_root(&document)), slice_of(text, size)));
        json_close(&document);
        buffer_close(&out);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("json");
    TCase *tcase = tcase_create("json");
    tcase_add_test(tcase, test_bean);
    tcase_add_test(tcase, test_integer_keys);
    tcase_add_test(tcase, test_object_keys);
    tcase_add_test(tcase, test_lenient_forms);
    tcase_add_test(tcase, test_strings);
    tcase_add_test(tcase, test_enum);
    tcase_add_test(tcase, test_read_members);
    tcase_add_test(tcase, test_malformed);
    tcase_add_test(tcase, test_limits);
    tcase_add_test(tcase, test_write);
    tcase_add_test(tcase, test_write_object_keys);
    tcase_add_test(tcase, test_write_escapes);
    tcase_add_test(tcase, test_write_double);
    tcase_add_test(tcase, test_round_trip);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
