/* Slices, the growing buffer and its limit, the cursor that cannot run past the end. */
#include "proto/buffer.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/decimal.h"
#include "tests/lib/hex.h"
#include "tests/lib/run_suite.h"

START_TEST(test_slice_holds)
{
    ck_assert(slice_holds(slice_of("a\0b", 3), '\0') && slice_holds(slice_of("a\0b", 3), 'b') && !slice_holds(slice_of("a\0b", 2), 'b'));
    ck_assert(!slice_holds(slice_of(NULL, 0), '\0'));
}
END_TEST

START_TEST(test_slice)
{
    struct slice slice = SLICE_LITERAL("DefaultCluster");
    ck_assert_uint_eq(slice.size, 14);
    ck_assert(slice_equal_text(slice, "DefaultCluster"));
    ck_assert(!slice_equal_text(slice, "DefaultCluste"));
    ck_assert(slice_starts_with(slice, "Default"));
    ck_assert(!slice_starts_with(SLICE_LITERAL("Def"), "Default"));
    ck_assert(slice_equal((struct slice){0}, SLICE_LITERAL("")));
    ck_assert_uint_eq(slice_of_text(NULL).size, 0);
    char *text = slice_to_text(slice_of("abc", 2));
    ck_assert_str_eq(text, "ab");
    free(text);
    text = slice_to_text((struct slice){0});
    ck_assert_str_eq(text, "");
    free(text);
}
END_TEST

START_TEST(test_copy)
{
    uint8_t block[5] = "xxxxx";
    uint8_t *at = block;
    struct slice copied = slice_copy(&at, SLICE_LITERAL("ab"));
    ck_assert(slice_equal_text(copied, "ab") && copied.data == block && at == block + 2);
    ck_assert(slice_copy(&at, (struct slice){0}).data == NULL && at == block + 2);
    ck_assert(slice_copy(&at, SLICE_LITERAL("")).data == at);
    ck_assert_mem_eq(block, "abxxx", 5);
}
END_TEST

START_TEST(test_next_part)
{
    struct slice list = SLICE_LITERAL(";;a;bc;;");
    ck_assert(slice_equal_text(slice_next_part(&list, ';'), "a"));
    ck_assert(slice_equal_text(slice_next_part(&list, ';'), "bc"));
    ck_assert_uint_eq(slice_next_part(&list, ';').size, 0);
    ck_assert_uint_eq(slice_next_part(&list, ';').size, 0);
    list = SLICE_LITERAL("a;b");
    ck_assert(slice_equal_text(slice_next_part(&list, ' '), "a;b"));
    ck_assert_uint_eq(list.size, 0);
    list = (struct slice){0};
    ck_assert_uint_eq(slice_next_part(&list, ';').size, 0);
}
END_TEST

START_TEST(test_numbers)
{
    static const struct {
        const char *text;
        bool ok;
        int64_t value;
    } rows[] = {
        {"0", true, 0}, {"-1", true, -1}, {"+7", true, 7}, {"007", true, 7}, {"1700000000000", true, 1700000000000},
        {"9223372036854775807", true, INT64_MAX}, {"-9223372036854775808", true, INT64_MIN},
        {"9223372036854775808", false, 0}, {"-9223372036854775809", false, 0}, {"99999999999999999999", false, 0},
        {"", false, 0}, {"-", false, 0}, {"+", false, 0}, {"1 ", false, 0}, {" 1", false, 0}, {"1.0", false, 0},
        {"0x10", false, 0}, {"abc", false, 0}, {"--1", false, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int64_t value = 0;
        ck_assert_msg(slice_to_i64(slice_of_text(rows[i].text), &value) == rows[i].ok, "%s", rows[i].text);
        if (rows[i].ok)
            ck_assert_int_eq(value, rows[i].value);
    }
    int32_t narrow = 5;
    ck_assert(slice_to_i32(SLICE_LITERAL("-2147483648"), &narrow) && narrow == INT32_MIN);
    ck_assert(slice_to_i32(SLICE_LITERAL("2147483647"), &narrow) && narrow == INT32_MAX);
    ck_assert(!slice_to_i32(SLICE_LITERAL("2147483648"), &narrow));
    ck_assert_int_eq(narrow, INT32_MAX);
}
END_TEST

START_TEST(test_bool)
{
    bool value;
    ck_assert(slice_to_bool(SLICE_LITERAL("true"), &value) && value);
    ck_assert(slice_to_bool(SLICE_LITERAL("TRUE"), &value) && value);
    ck_assert(slice_to_bool(SLICE_LITERAL("1"), &value) && value);
    ck_assert(slice_to_bool(SLICE_LITERAL("False"), &value) && !value);
    ck_assert(slice_to_bool(SLICE_LITERAL("0"), &value) && !value);
    value = true;
    ck_assert(!slice_to_bool(SLICE_LITERAL("yes"), &value) && !value);
    ck_assert(!slice_to_bool((struct slice){0}, &value));
}
END_TEST

START_TEST(test_big_endian)
{
    uint8_t bytes[8];
    store_u64(bytes, 0x0102030405060708u);
    ck_assert_uint_eq(bytes[0], 1);
    ck_assert_uint_eq(bytes[7], 8);
    ck_assert_uint_eq(load_u32(bytes), 0x01020304u);
    ck_assert_uint_eq(load_u16(bytes + 6), 0x0708u);
    ck_assert(load_u64(bytes) == 0x0102030405060708u);
}
END_TEST

START_TEST(test_append)
{
    struct buffer buffer;
    buffer_init(&buffer, 0);
    buffer_append_u8(&buffer, 1);
    buffer_append_u16(&buffer, 0x0203);
    buffer_append_u32(&buffer, 0x04050607);
    buffer_append_u64(&buffer, 0x08090A0B0C0D0E0Fu);
    buffer_append_text(&buffer, "ab");
    buffer_append_format(&buffer, "%d-%s", 12, "x");
    buffer_append(&buffer, NULL, 0);
    struct slice expected = hex_bytes("0102030405060708090a0b0c0d0e0f 6162 31322d78");
    ck_assert(slice_equal(buffer_slice(&buffer), expected));
    hex_free(expected);
    for (int i = 0; i < 1000; i++)
        buffer_append_format(&buffer, "%04d", i);
    ck_assert_uint_eq(buffer.size, 21 + 4000);
    ck_assert(memcmp(buffer.data + buffer.size - 4, "0999", 4) == 0);
    ck_assert(!buffer.failed);
    buffer_clear(&buffer);
    ck_assert_uint_eq(buffer.size, 0);
    ck_assert_uint_ge(buffer.capacity, 4021);
    buffer_close(&buffer);
}
END_TEST

START_TEST(test_limit)
{
    struct buffer buffer;
    buffer_init(&buffer, 10);
    buffer_append(&buffer, "12345678", 8);
    buffer_append(&buffer, "90", 2);
    ck_assert(!buffer.failed);
    buffer_append_u8(&buffer, 'x');
    /* Room that the doubling left must not lift the limit, nor may a smaller append slip in behind a refused one. */
    ck_assert(buffer.failed);
    ck_assert_uint_eq(buffer.size, 10);
    ck_assert_ptr_null(buffer_reserve(&buffer, 0));
    buffer_clear(&buffer);
    ck_assert(!buffer.failed);
    ck_assert_ptr_null(buffer_reserve(&buffer, SIZE_MAX));
    ck_assert(buffer.failed);
    buffer_close(&buffer);
}
END_TEST

START_TEST(test_cursor)
{
    struct slice bytes = hex_bytes("01 0203 04050607 08090a0b0c0d0e0f aabb");
    struct cursor cursor = cursor_of(bytes);
    ck_assert_uint_eq(cursor_u8(&cursor), 1);
    ck_assert_uint_eq(cursor_u16(&cursor), 0x0203);
    ck_assert_uint_eq(cursor_u32(&cursor), 0x04050607);
    ck_assert(cursor_u64(&cursor) == 0x08090A0B0C0D0E0Fu);
    ck_assert_uint_eq(cursor_left(&cursor), 2);
    struct slice rest = cursor_slice(&cursor, 2);
    ck_assert_uint_eq(rest.data[1], 0xbb);
    ck_assert(!cursor.failed);
    ck_assert_uint_eq(cursor_u8(&cursor), 0);
    ck_assert(cursor.failed);
    /* Once failed it stays so, also for reads that would fit. */
    cursor = cursor_of(bytes);
    ck_assert_ptr_null(cursor_slice(&cursor, 18).data);
    ck_assert_uint_eq(cursor_u8(&cursor), 0);
    ck_assert(cursor.failed);
    hex_free(bytes);
}
END_TEST

START_TEST(test_decimal)
{
    static const int64_t values[] = {0, 1, 9, 10, 99, 100, 101, 12345, 1700000000000, -1, -10, -99, -100, INT32_MIN, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        char expected[32];
        uint8_t text[DECIMAL_MAX];
        snprintf(expected, sizeof expected, "%lld", (long long)values[i]);
        uint8_t *end = decimal_put(text, values[i]);
        ck_assert_slice_eq(slice_of(text, (size_t)(end - text)), expected);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("buffer");
    TCase *tcase = tcase_create("buffer");
    tcase_add_test(tcase, test_slice_holds);
    tcase_add_test(tcase, test_slice);
    tcase_add_test(tcase, test_copy);
    tcase_add_test(tcase, test_next_part);
    tcase_add_test(tcase, test_numbers);
    tcase_add_test(tcase, test_bool);
    tcase_add_test(tcase, test_big_endian);
    tcase_add_test(tcase, test_append);
    tcase_add_test(tcase, test_limit);
    tcase_add_test(tcase, test_cursor);
    tcase_add_test(tcase, test_decimal);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
