/* Topic names: rules, texts and sets of remoting.md 7.9 and 7.10. */
#include "proto/topic_validator.h"
#include "tests/lib/run_suite.h"

#include <check.h>

static struct error error;

START_TEST(topics)
{
    static char longest[128];
    memset(longest, 't', sizeof longest);
    ck_assert_int_eq(topic_validate(SLICE_LITERAL("TopicTest"), &error), 0);
    ck_assert_int_eq(topic_validate(SLICE_LITERAL("%RETRY%g|x_Y-9"), &error), 0);
    ck_assert_int_eq(topic_validate(slice_of(longest, 127), &error), 0);
    ck_assert_int_eq(topic_validate(slice_of(longest, 128), &error), ERROR_INVALID);
    ck_assert_str_eq(error.message, "The specified topic is longer than topic max length.");
    ck_assert_int_eq(topic_validate(SLICE_LITERAL("a b"), &error), ERROR_INVALID);
    ck_assert_str_eq(error.message,
                     "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$");
    ck_assert_int_eq(topic_validate(SLICE_LITERAL("topic.with.dots"), &error), ERROR_INVALID);
    ck_assert_int_eq(topic_validate(SLICE_LITERAL("\xe4\xb8\xad"), &error), ERROR_INVALID);
    ck_assert_int_eq(topic_validate(slice_of("a\0b", 3), &error), ERROR_INVALID);
    ck_assert_int_eq(topic_validate((struct slice){0}, &error), ERROR_INVALID);
    ck_assert_str_eq(error.message, "The specified topic is blank.");
    ck_assert_int_eq(topic_validate(SLICE_LITERAL(" \t"), &error), ERROR_INVALID);
    ck_assert_str_eq(error.message, "The specified topic is blank.");
    ck_assert_int_eq(topic_validate(SLICE_LITERAL("a b"), NULL), ERROR_INVALID);
}
END_TEST

START_TEST(groups)
{
    static char longest[256];
    memset(longest, 'g', sizeof longest);
    ck_assert_int_eq(group_validate(slice_of(longest, 255), &error), 0);
    ck_assert_int_eq(group_validate(slice_of(longest, 256), &error), ERROR_INVALID);
    ck_assert_int_eq(consumer_group_validate(slice_of(longest, 120), &error), 0);
    ck_assert_int_eq(consumer_group_validate(slice_of(longest, 121), &error), ERROR_INVALID);
    ck_assert_int_eq(consumer_group_validate(SLICE_LITERAL("a@b"), &error), ERROR_INVALID);
    ck_assert_int_eq(group_validate(SLICE_LITERAL("a@b"), &error), ERROR_INVALID);
    ck_assert_int_eq(group_validate(SLICE_LITERAL(""), &error), ERROR_INVALID);
    ck_assert(group_is_system(SLICE_LITERAL("CID_RMQ_SYS_TRANS")));
    ck_assert(!group_is_system(SLICE_LITERAL("CID_x")));
}
END_TEST

START_TEST(sets)
{
    static const char *const names[] = {"TBW102",
                                        "SCHEDULE_TOPIC_XXXX",
                                        "BenchmarkTest",
                                        "RMQ_SYS_TRANS_HALF_TOPIC",
                                        "RMQ_SYS_TRACE_TOPIC",
                                        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
                                        "TRANS_CHECK_MAX_TIME_TOPIC",
                                        "SELF_TEST_TOPIC",
                                        "OFFSET_MOVED_EVENT"};
    size_t count = 0;
    while (topic_system_names()[count] != NULL)
        count++;
    ck_assert_uint_eq(count, sizeof names / sizeof names[0]);
    for (size_t i = 0; i < count; i++) {
        bool open = i == 0 || i == 2 || i == 4; /* TBW102, BenchmarkTest and the trace topic take messages */
        ck_assert(topic_is_system(slice_of_text(names[i])));
        ck_assert_msg(topic_forbids_send(slice_of_text(names[i])) == !open, "%s", names[i]);
    }
    ck_assert(topic_is_system(SLICE_LITERAL("rmq_sys_wheel_timer")));
    ck_assert(!topic_forbids_send(SLICE_LITERAL("rmq_sys_wheel_timer")));
    ck_assert(!topic_is_system(SLICE_LITERAL("TopicTest")));
    ck_assert(!topic_is_system(SLICE_LITERAL("TBW1022")));
    ck_assert(topic_is_retry(SLICE_LITERAL("%RETRY%g")));
    ck_assert(topic_is_dead_letter(SLICE_LITERAL("%DLQ%g")));
    ck_assert(!topic_is_retry(SLICE_LITERAL("%DLQ%g")));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("topic_validator");
    TCase *tcase = tcase_create("all");
    tcase_add_test(tcase, topics);
    tcase_add_test(tcase, groups);
    tcase_add_test(tcase, sets);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
