/* The error list and the message that grows on its way up. */
#include "proto/error.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

START_TEST(test_set_and_wrap)
{
    struct error error;
    ck_assert_int_eq(error_set(&error, ERROR_IO, "write of %d bytes", 7), ERROR_IO);
    ck_assert_int_eq(error.code, ERROR_IO);
    ck_assert_str_eq(error.message, "write of 7 bytes");
    error_wrap(&error, "ledger in %s", "/data");
    ck_assert_str_eq(error.message, "ledger in /data: write of 7 bytes");
    ck_assert_int_eq(error_set(NULL, ERROR_BUSY, "x"), ERROR_BUSY);
    error_wrap(NULL, "x");
}
END_TEST

/* Whatever the lengths, the text ends inside the array and its end, which is the cause, survives. */
START_TEST(test_long_texts)
{
    struct error error;
    char text[1000];
    for (size_t size = 0; size < sizeof text - 1; size += 7) {
        memset(text, 'a', size);
        text[size] = '\0';
        error_set(&error, ERROR_INVALID, "%s", "cause");
        error_wrap(&error, "%s", text);
        size_t length = strlen(error.message);
        ck_assert_uint_lt(length, sizeof error.message);
        ck_assert_str_eq(error.message + length - 7, ": cause");
        error_set(&error, ERROR_INVALID, "%s", text);
        error_wrap(&error, "%s", "where");
        ck_assert_int_eq(strncmp(error.message, "where", size < 400 ? 5 : 0), 0);
        ck_assert_uint_lt(strlen(error.message), sizeof error.message);
    }
}
END_TEST

START_TEST(test_rows)
{
    ck_assert_str_eq(error_text(ERROR_OK), "success");
    ck_assert_str_eq(error_text(ERROR_CONNECTION), "connection failed");
    ck_assert_str_eq(error_text(-1), "unknown error");
    ck_assert_str_eq(error_text(ERROR_CONNECTION + 1), "unknown error");
    ck_assert_int_eq(error_response_code(ERROR_OK), 0);
    ck_assert_int_eq(error_response_code(ERROR_MISSING), 1);
    ck_assert_int_eq(error_response_code(ERROR_NO_LEADER), 14);
    ck_assert_int_eq(error_response_code(ERROR_NOT_FOUND), 22);
    ck_assert_int_eq(error_response_code(9999), 1);
    ck_assert(error_may_retry(ERROR_LEADERSHIP_LOST));
    ck_assert(!error_may_retry(ERROR_TOO_LARGE));
    ck_assert(!error_may_retry(-1));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("error");
    TCase *tcase = tcase_create("error");
    tcase_add_test(tcase, test_set_and_wrap);
    tcase_add_test(tcase, test_long_texts);
    tcase_add_test(tcase, test_rows);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
