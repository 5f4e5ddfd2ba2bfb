/* Java's String.hashCode over UTF-8 and what RocketMQ builds on it (spec: remoting.md 10.5). */
#include "proto/hash.h"

#include <check.h>
#include <stdlib.h>

#include "proto/utf8.h"
#include "tests/lib/run_suite.h"

static int32_t hash(const char *text)
{
    return java_string_hash(slice_of_text(text));
}

START_TEST(test_vectors)
{
    ck_assert_int_eq(hash(""), 0);
    ck_assert_int_eq(hash("a"), 97);
    ck_assert_int_eq(hash("TagA"), 2598919);
    ck_assert_int_eq(hash("polygenelubricants"), INT32_MIN);
    ck_assert_int_eq(hash("中文"), 646394);
    /* U+1F600 is the units D83D DE00 in Java. */
    ck_assert_int_eq(hash("\xF0\x9F\x98\x80"), 0xD83D * 31 + 0xDE00);
    ck_assert_int_eq(hash("\xC3\xA9"), 0xE9);
    /* U+10FFFF: DBFF DFFF */
    ck_assert_int_eq(hash("\xF4\x8F\xBF\xBF"), 0xDBFF * 31 + 0xDFFF);
}
END_TEST

START_TEST(test_every_length_agrees_with_the_definition)
{
    uint8_t text[64];
    for (size_t size = 0; size < sizeof text; size++) {
        uint32_t expected = 0;
        for (size_t i = 0; i < size; i++) {
            text[i] = (uint8_t)(33 + i * 7 % 90);
            expected = expected * 31 + text[i];
        }
        ck_assert_int_eq(java_string_hash(slice_of(text, size)), (int32_t)expected);
    }
}
END_TEST

START_TEST(test_continue)
{
    int32_t first = hash("TopicTest");
    ck_assert_int_eq(java_string_hash_continue(first, SLICE_LITERAL("#key中")), hash("TopicTest#key中"));
    ck_assert_int_eq(java_string_hash_continue(first, SLICE_LITERAL("")), first);
}
END_TEST

START_TEST(test_bytes_that_are_no_utf8)
{
    static const char *const bad[] = {"\x80", "\xC3", "\xC0\xAF", "\xE4\xB8", "\xED\xA0\x80", "\xF8", "\xF4\x90\x80\x80"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint32_t expected = 0;
        for (size_t j = 0; j < strlen(bad[i]); j++)
            expected = expected * 31 + UTF8_REPLACEMENT;
        ck_assert_int_eq(hash(bad[i]), (int32_t)expected);
    }
}
END_TEST

START_TEST(test_index_key)
{
    int32_t plain = hash("VecT#k1");
    ck_assert_uint_eq(index_key_hash(SLICE_LITERAL("VecT"), SLICE_LITERAL("k1")), (uint32_t)abs(plain));
    /* A key that drives the whole below zero. */
    int32_t negative = hash("TopicTest#OrderID001");
    ck_assert_uint_eq(index_key_hash(SLICE_LITERAL("TopicTest"), SLICE_LITERAL("OrderID001")),
                      (uint32_t)(negative < 0 ? -negative : negative));
    /* "" + "#" + key gives MIN_VALUE only by luck: search one. hash("#" + k) = 35 * 31^n + hash(k), all modulo 2^32. */
    uint8_t key[12];
    bool found = false;
    uint32_t rest = 0x80000000u; /* write MIN_VALUE in base 31 with digits from '!' on, last unit free up to U+FFFF */
    for (uint32_t first = 33; first < 127 && !found; first++) {
        for (uint32_t second = 33; second < 127 && !found; second++) {
            for (uint32_t third = 33; third < 127 && !found; third++) {
                uint32_t prefix = (((35u * 31 + first) * 31 + second) * 31 + third) * 31 + 33;
                prefix = (prefix * 31 + 33) * 31;
                uint32_t last = rest - prefix;
                if (last >= 0x800 && last < 0xD800) {
                    key[0] = (uint8_t)first;
                    key[1] = (uint8_t)second;
                    key[2] = (uint8_t)third;
                    key[3] = key[4] = 33;
                    size_t size = 5 + utf8_put(last, key + 5);
                    ck_assert_uint_eq(index_key_hash(SLICE_LITERAL(""), slice_of(key, size)), 0);
                    found = true;
                }
            }
        }
    }
    ck_assert(found);
}
END_TEST

START_TEST(test_tags_code)
{
    ck_assert_int_eq(message_tags_code(SLICE_LITERAL("TagA")), 2598919);
    ck_assert_int_eq(message_tags_code((struct slice){0}), 0);
    ck_assert(message_tags_code(SLICE_LITERAL("polygenelubricants")) == -2147483648LL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("hash");
    TCase *tcase = tcase_create("hash");
    tcase_add_test(tcase, test_vectors);
    tcase_add_test(tcase, test_every_length_agrees_with_the_definition);
    tcase_add_test(tcase, test_continue);
    tcase_add_test(tcase, test_bytes_that_are_no_utf8);
    tcase_add_test(tcase, test_index_key);
    tcase_add_test(tcase, test_tags_code);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
