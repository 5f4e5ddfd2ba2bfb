/* What becomes of a send's property string. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "broker/processor/send_properties.h"
#include "proto/message.h"
#include "tests/lib/run_suite.h"

#define CLUSTER SLICE_LITERAL("CLUSTER\001c1")
#define REGION SLICE_LITERAL("MSG_REGION\001r1\002TRACE_ON\001true")

static struct buffer scratch;
static struct send_properties made;

static void set_up(void)
{
    buffer_init(&scratch, 4 * MESSAGE_PROPERTIES_MAX);
}

static void tear_down(void)
{
    buffer_close(&scratch);
}

static void check_made(const char *properties, bool drop_delay, const char *expected)
{
    send_properties_make(&scratch, slice_of_text(properties), CLUSTER, REGION, drop_delay, &made);
    ck_assert(!made.too_long && !scratch.failed);
    ck_assert_msg(slice_equal_text(made.text, expected), "%.*s", (int)made.text.size, (const char *)made.text.data);
}

#define TAIL "CLUSTER\001c1\002MSG_REGION\001r1\002TRACE_ON\001true"

START_TEST(stored_text)
{
    check_made("", false, TAIL);
    check_made("TAGS\001A", false, "TAGS\001A\002" TAIL);
    check_made("TAGS\001A\002", false, "TAGS\001A\002" TAIL);
    check_made("WAIT\001true\002TAGS\001A", false, "TAGS\001A\002" TAIL);
    check_made("KEYS\001k\002WAIT\001false\002TAGS\001A", false, "KEYS\001k\002TAGS\001A\002" TAIL);
    check_made("WAIT\001true", false, TAIL);
    /* What a client claims about the broker's own properties is replaced. */
    check_made("CLUSTER\001x\002MSG_REGION\001y\002TRACE_ON\001false\002a\001b", false, "a\001b\002" TAIL);
    /* Names that only look alike stay; broken segments go, as in Java's decoder. */
    check_made("WAIX\001t\002DELAX\0013\002\001v\002k\001\002no separator\002a\001b", false, "WAIX\001t\002DELAX\0013\002a\001b\002" TAIL);
}
END_TEST

START_TEST(what_decides)
{
    check_made("DELAY\0013\002a\001b", false, "DELAY\0013\002a\001b\002" TAIL);
    ck_assert(slice_equal_text(made.delay, "3"));
    check_made("DELAY\0013\002a\001b", true, "a\001b\002" TAIL);
    ck_assert(slice_equal_text(made.delay, "3"));
    ck_assert(!made.half_message && !made.deliver_time);
    check_made("__STARTDELIVERTIME\0015", false, "__STARTDELIVERTIME\0015\002" TAIL);
    ck_assert(made.deliver_time);
    check_made("__STARTDELIVERTIMX\0015", false, "__STARTDELIVERTIMX\0015\002" TAIL);
    ck_assert(!made.deliver_time);
    check_made("a\001b", false, "a\001b\002" TAIL);
    ck_assert_ptr_null(made.delay.data);
    check_made("TRAN_MSG\001true", false, "TRAN_MSG\001true\002" TAIL);
    ck_assert(made.half_message);
    check_made("TRAN_MSG\001false", false, "TRAN_MSG\001false\002" TAIL);
    ck_assert(!made.half_message);
}
END_TEST

static struct slice long_properties(char *out, size_t size)
{
    memset(out, 'v', size);
    memcpy(out, "name\001", 5);
    return slice_of(out, size);
}

START_TEST(limits)
{
    static char text[40000];
    /* All of a client's 32767 bytes are taken; then the broker's own do not fit and are left out. */
    send_properties_make(&scratch, long_properties(text, 32767), CLUSTER, REGION, false, &made);
    ck_assert(!made.too_long);
    ck_assert_uint_eq(made.text.size, 32767);
    send_properties_make(&scratch, long_properties(text, 32768), CLUSTER, REGION, false, &made);
    ck_assert(made.too_long);
    size_t cluster = CLUSTER.size + 1;
    send_properties_make(&scratch, long_properties(text, 32767 - cluster), CLUSTER, REGION, false, &made);
    ck_assert(!made.too_long);
    ck_assert_uint_eq(made.text.size, 32767);
    ck_assert(slice_equal_text(message_property(made.text, "CLUSTER"), "c1"));
    ck_assert_ptr_null(message_property(made.text, "MSG_REGION").data);
}
END_TEST

START_TEST(destination)
{
    check_made("DELAY\0013", false, "DELAY\0013\002" TAIL);
    send_properties_add_destination(&scratch, 0, SLICE_LITERAL("%RETRY%g"), 2147483647);
    ck_assert(slice_equal_text(buffer_slice(&scratch), "DELAY\0013\002" TAIL "\002REAL_TOPIC\001%RETRY%g\002REAL_QID\0012147483647"));
    buffer_clear(&scratch);
    send_properties_add_destination(&scratch, 0, SLICE_LITERAL("T"), 0);
    ck_assert(slice_equal_text(buffer_slice(&scratch), "REAL_TOPIC\001T\002REAL_QID\0010"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("send_properties");
    TCase *tcase = tcase_create("send_properties");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, stored_text);
    tcase_add_test(tcase, what_decides);
    tcase_add_test(tcase, limits);
    tcase_add_test(tcase, destination);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
