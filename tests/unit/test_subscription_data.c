/* Tag expressions by FilterAPI's rules, matching, and the JSON of the different clients (remoting.md 3.6, 5.6). */
#include "proto/subscription_data.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#define assert_slice(slice, text)                                                                                      \
    ck_assert_msg(slice_equal_text(slice, text), "is '%.*s'", (int)(slice).size, (const char *)(slice).data)

#define TAG_A 2598919
#define TAG_B 2598920

static struct arena arena;
static struct subscription_data data;
static struct error error;

static void set_up(void)
{
    arena_init(&arena, 0);
}

static void tear_down(void)
{
    arena_close(&arena);
}

static int build(const char *expression, const char *type)
{
    return subscription_data_build(&data, &arena, SLICE_LITERAL("T"), slice_of_text(expression), slice_of_text(type),
                                   &error);
}

static void decode(const char *json)
{
    ck_assert_msg(subscription_data_decode(&data, &arena, slice_of_text(json), &error) == 0, "%s", error.message);
}

START_TEST(expressions_are_split)
{
    static const struct {
        const char *text;
        size_t count;
        const char *tags[3];
    } rows[] = {
        {"TagA", 1, {"TagA"}},
        {"TagA || TagB", 2, {"TagA", "TagB"}},
        {"TagA||TagB||TagA", 2, {"TagA", "TagB"}},
        {"  TagA\t", 1, {"TagA"}},
        {"||TagA||", 1, {"TagA"}},
        {"|| ||TagA", 1, {"TagA"}},
        {"|||", 1, {"|"}},
        {"a|b", 1, {"a|b"}},
        {"* || TagA", 2, {"*", "TagA"}},
        {" ", 0, {0}},
        {"|| ||", 0, {0}},
        {" || ", 0, {0}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ck_assert_int_eq(build(rows[i].text, NULL), 0);
        assert_slice(data.topic, "T");
        assert_slice(data.sub_string, rows[i].text);
        assert_slice(data.expression_type, "TAG");
        ck_assert_uint_eq(data.tag_count, rows[i].count);
        ck_assert_uint_eq(data.code_count, rows[i].count);
        for (size_t j = 0; j < rows[i].count; j++)
            assert_slice(data.tags[j], rows[i].tags[j]);
    }
    ck_assert_int_eq(build("TagA || TagB", "TAG"), 0);
    ck_assert_int_eq(data.codes[0], TAG_A);
    ck_assert_int_eq(data.codes[1], TAG_B);
}
END_TEST

START_TEST(all_is_written_as_a_star)
{
    static const char *const texts[] = {NULL, "", "*"};
    for (size_t i = 0; i < 3; i++) {
        ck_assert_int_eq(build(texts[i], ""), 0);
        assert_slice(data.sub_string, "*");
        ck_assert_uint_eq(data.tag_count, 0);
        ck_assert(subscription_data_match(&data, 0));
        ck_assert(subscription_data_match(&data, TAG_A));
    }
}
END_TEST

START_TEST(only_bars_are_an_error)
{
    ck_assert_int_eq(build("||", NULL), ERROR_INVALID);
    ck_assert_str_eq(error.message, "subString split error");
    ck_assert_int_eq(build("||||", "TAG"), ERROR_INVALID);
    ck_assert_int_eq(build("", "SQL92"), ERROR_INVALID);
    ck_assert_int_eq(build(NULL, "SQL92"), ERROR_INVALID);
}
END_TEST

START_TEST(too_many_tags_are_refused)
{
    size_t count = 5000;
    char *text = calloc(count, 8);
    for (size_t i = 0; i < count; i++)
        snprintf(text + strlen(text), 9, "%05zu||", i);
    ck_assert_int_eq(build(text, NULL), ERROR_TOO_LARGE);
    free(text);
}
END_TEST

START_TEST(sql_is_kept_as_it_is)
{
    ck_assert_int_eq(build("a > 3 || b", "SQL92"), 0);
    assert_slice(data.sub_string, "a > 3 || b");
    assert_slice(data.expression_type, "SQL92");
    ck_assert_uint_eq(data.tag_count, 0);
    ck_assert(!subscription_data_is_tag(&data));
    ck_assert(subscription_data_match(&data, 1));
}
END_TEST

START_TEST(codes_are_matched)
{
    ck_assert_int_eq(build("TagA || PaySuccess", NULL), 0);
    ck_assert(subscription_data_match(&data, TAG_A));
    ck_assert(!subscription_data_match(&data, TAG_B));
    ck_assert(!subscription_data_match(&data, 0));
    /* The queue holds the code with its sign extended. */
    ck_assert(subscription_data_match(&data, (int64_t)0xFFFFFFFF923D765Bu));
    /* Only the lower half counts, as in Java. */
    ck_assert(subscription_data_match(&data, TAG_A + (INT64_C(1) << 32)));
    data.class_filter_mode = true;
    ck_assert(subscription_data_match(&data, TAG_B));

    ck_assert_int_eq(build(" ", NULL), 0);
    ck_assert(!subscription_data_match(&data, 0));
    ck_assert(!subscription_data_match(&data, TAG_A));
}
END_TEST

START_TEST(json_of_java)
{
    static const char text[] = "{\"classFilterMode\":false,\"codeSet\":[2598919,2598920],\"expressionType\":\"TAG\","
                               "\"subString\":\"TagA || TagB\","
                               "\"subVersion\":1700000000000,\"tagsSet\":[\"TagA\",\"TagB\"],\"topic\":\"T\"}";
    struct buffer out;
    buffer_init(&out, 0);
    ck_assert_int_eq(build("TagA || TagB", "TAG"), 0);
    data.sub_version = 1700000000000;
    subscription_data_encode(&data, &out);
    assert_slice(buffer_slice(&out), text);

    decode(text);
    ck_assert_int_eq(data.sub_version, 1700000000000);
    ck_assert_uint_eq(data.code_count, 2);
    ck_assert_uint_eq(data.tag_count, 2);
    ck_assert(subscription_data_match(&data, TAG_B));
    buffer_clear(&out);
    subscription_data_encode(&data, &out);
    assert_slice(buffer_slice(&out), text);

    decode("{\"codeSet\":[],\"filterClassSource\":\"\",\"subString\":\"*\",\"tagsSet\":[],\"topic\":\"T\"}");
    buffer_clear(&out);
    subscription_data_encode(&data, &out);
    assert_slice(buffer_slice(&out), "{\"classFilterMode\":false,\"codeSet\":[],\"expressionType\":\"TAG\","
                                     "\"filterClassSource\":\"\",\"subString\":\"*\","
                                     "\"subVersion\":0,\"tagsSet\":[],\"topic\":\"T\"}");
    buffer_close(&out);
}
END_TEST

START_TEST(json_of_go_has_codes_as_text)
{
    decode("{\"classFilterMode\":false,\"topic\":\"T\",\"subString\":\"TagA\",\"tagsSet\":[\"TagA\"],\"codeSet\":["
           "\"2598919\"],"
           "\"subVersion\":1700000000001,\"expressionType\":\"TAG\"}");
    ck_assert_uint_eq(data.code_count, 1);
    ck_assert_int_eq(data.codes[0], TAG_A);
}
END_TEST

START_TEST(json_of_cpp_has_version_as_text_and_no_sets)
{
    decode("{\"subString\":\"TagA||TagB\",\"subVersion\":\"1700000000002\",\"topic\":\"T\"}\n");
    ck_assert_int_eq(data.sub_version, 1700000000002);
    assert_slice(data.expression_type, "TAG");
    ck_assert_uint_eq(data.code_count, 2);
    ck_assert(subscription_data_match(&data, TAG_A));
    ck_assert(!subscription_data_match(&data, 0));
}
END_TEST

START_TEST(sets_that_are_null_or_in_parts)
{
    decode("{\"subString\":\"TagA\",\"codeSet\":null,\"tagsSet\":[\"TagA\"],\"expressionType\":null,\"topic\":\"T\"}");
    ck_assert_int_eq(data.codes[0], TAG_A);
    decode("{\"subString\":null,\"topic\":\"T\"}");
    assert_slice(data.sub_string, "*");
    ck_assert(subscription_data_match(&data, TAG_A));
    /* Nothing passes, but the heart-beat that holds it is taken. */
    decode("{\"subString\":\"||\",\"topic\":\"T\"}");
    ck_assert(!subscription_data_match(&data, 0));
    decode("{\"subString\":\"a = 1\",\"expressionType\":\"SQL92\",\"topic\":\"T\"}");
    ck_assert_uint_eq(data.code_count, 0);
}
END_TEST

START_TEST(bad_json_is_named)
{
    ck_assert_int_eq(subscription_data_decode(&data, &arena, SLICE_LITERAL("{\"subString\":\"*\"}"), &error),
                     ERROR_MISSING);
    ck_assert_ptr_nonnull(strstr(error.message, "topic"));
    ck_assert_int_eq(
        subscription_data_decode(&data, &arena, SLICE_LITERAL("{\"topic\":\"T\",\"codeSet\":[4294967296]}"), &error),
        ERROR_INVALID);
    ck_assert_ptr_nonnull(strstr(error.message, "codeSet"));
    ck_assert_int_eq(subscription_data_decode(&data, &arena, SLICE_LITERAL("{\"topic\":\"T\",\"tagsSet\":1}"), &error),
                     ERROR_INVALID);
    ck_assert_ptr_nonnull(strstr(error.message, "tagsSet"));
    ck_assert_int_eq(subscription_data_decode(&data, &arena, SLICE_LITERAL("[]"), &error), ERROR_INVALID);
    ck_assert_int_eq(subscription_data_decode(&data, &arena, SLICE_LITERAL(""), &error), ERROR_MALFORMED);
}
END_TEST

START_TEST(a_copy_lives_alone)
{
    struct arena other;
    struct subscription_data copy;
    arena_init(&other, 0);
    decode("{\"subString\":\"TagA||TagB\",\"subVersion\":7,\"topic\":\"T\"}");
    ck_assert_int_eq(subscription_data_copy(&copy, &other, &data), 0);
    arena_close(&arena);
    assert_slice(copy.topic, "T");
    assert_slice(copy.sub_string, "TagA||TagB");
    assert_slice(copy.tags[1], "TagB");
    ck_assert_int_eq(copy.sub_version, 7);
    ck_assert(subscription_data_match(&copy, TAG_B));
    ck_assert_ptr_null(copy.filter_class_source.data);
    arena_close(&other);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("subscription_data");
    TCase *tcase = tcase_create("all");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, expressions_are_split);
    tcase_add_test(tcase, all_is_written_as_a_star);
    tcase_add_test(tcase, only_bars_are_an_error);
    tcase_add_test(tcase, too_many_tags_are_refused);
    tcase_add_test(tcase, sql_is_kept_as_it_is);
    tcase_add_test(tcase, codes_are_matched);
    tcase_add_test(tcase, json_of_java);
    tcase_add_test(tcase, json_of_go_has_codes_as_text);
    tcase_add_test(tcase, json_of_cpp_has_version_as_text_and_no_sets);
    tcase_add_test(tcase, sets_that_are_null_or_in_parts);
    tcase_add_test(tcase, bad_json_is_named);
    tcase_add_test(tcase, a_copy_lives_alone);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
