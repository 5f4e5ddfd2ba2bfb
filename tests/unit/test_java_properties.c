/* Properties text as java.util.Properties.load reads it, and back. */
#include "proto/java_properties.h"

#include <check.h>
#include <stdlib.h>

#include "tests/lib/hex.h"
#include "tests/lib/run_suite.h"

/* All pairs as "line key=[value];". */
static void check_load(const char *text, const char *expected)
{
    struct java_properties_reader reader;
    struct buffer out;
    struct error error;
    struct slice key;
    struct slice value;
    int rv;

    buffer_init(&out, 0);
    java_properties_reader_init(&reader, slice_of_text(text));
    while (java_properties_next(&reader, &key, &value, &rv, &error))
        buffer_append_format(&out, "%u %.*s=[%.*s];", reader.line, (int)key.size, (const char *)key.data, (int)value.size,
                             (const char *)value.data);
    ck_assert_int_eq(rv, 0);
    ck_assert_slice_eq(buffer_slice(&out), expected);
    java_properties_reader_close(&reader);
    buffer_close(&out);
}

START_TEST(test_load)
{
    check_load("", "");
    check_load("a=1", "1 a=[1];");
    check_load("a=1\nb = 2\r\nc:3\rd 4\n", "1 a=[1];2 b=[2];3 c=[3];4 d=[4];");
    check_load("# comment\n! other\n  # third \\\n a=b # no comment\n\n\n", "4 a=[b # no comment];");
    check_load("key\nkey2=\nkey3 \n", "1 key=[];2 key2=[];3 key3=[];");
    check_load("a==b\nc::d\ne = : f\n", "1 a=[=b];2 c=[:d];3 e=[: f];");
    check_load("=x\n", "1 =[x];");
    check_load("path=C:\\\\temp\ntab=a\\tb\\q\n", "1 path=[C:\\temp];2 tab=[a\tbq];");
    check_load("fruits=apple, \\\n   banana, \\\r\n\tpear\nnext=1\n", "1 fruits=[apple, banana, pear];4 next=[1];");
    check_load("a\\=b\\ c\\:d=e\n", "1 a=b c:d=[e];");
    check_load("value=trailing blanks  \n", "1 value=[trailing blanks  ];");
    check_load("last=no line end\\", "1 last=[no line end];");
    check_load("a\\\n  =b", "1 a=[b];");
    check_load("a=\\u4e2d\\u6587\\u00e9\n", "1 a=[中文é];");
    check_load("a=\\uD83D\\uDE00\\ud83dx\n", "1 a=[\xF0\x9F\x98\x80?x];");
    check_load("raw=中文\n", "1 raw=[中文];");
    check_load("dLegerPeers=n0-127.0.0.1:40911;n1-127.0.0.1:40912\n", "1 dLegerPeers=[n0-127.0.0.1:40911;n1-127.0.0.1:40912];");
    check_load("messageDelayLevel=1s 5s 10s\n", "1 messageDelayLevel=[1s 5s 10s];");
    check_load("\n\n\t\f a=1", "3 a=[1];");
}
END_TEST

START_TEST(test_broken_unicode)
{
    static const char *const bad[] = {"a=1\nb=\\u12", "a=1\nb=\\u12g4\n", "a=1\nb\\u=x", "a=1\n\\uzzzz=1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct java_properties_reader reader;
        struct error error;
        struct slice key;
        struct slice value;
        int rv;
        java_properties_reader_init(&reader, slice_of_text(bad[i]));
        ck_assert(java_properties_next(&reader, &key, &value, &rv, &error));
        ck_assert(!java_properties_next(&reader, &key, &value, &rv, &error));
        ck_assert_int_eq(rv, ERROR_MALFORMED);
        ck_assert_ptr_nonnull(strstr(error.message, "line 2"));
        java_properties_reader_close(&reader);
    }
}
END_TEST

START_TEST(test_store)
{
    struct buffer out;
    buffer_init(&out, 0);
    java_properties_append_text(&out, "namesrvAddr", "127.0.0.1:9876;127.0.0.1:9877");
    java_properties_append_text(&out, "a key", " lead # = : ! tail ");
    java_properties_append_text(&out, "中", "\\ \t\n\xF0\x9F\x98\x80");
    java_properties_append_text(&out, "empty", "");
    ck_assert_slice_eq(buffer_slice(&out), "namesrvAddr=127.0.0.1:9876;127.0.0.1:9877\n"
                                           "a\\ key=\\ lead # = : ! tail \n"
                                           "\\u4E2D=\\\\ \\t\\n\\uD83D\\uDE00\n"
                                           "empty=\n");
    buffer_close(&out);
}
END_TEST

/* Every pair of texts comes back as it was. */
START_TEST(test_round_trip)
{
    static const char *const texts[] = {"a",    " a ",      "=",     ":x",    "#x",      "!x",   "\\",          "\\u0041",
                                        "a\\n", "a\nb\r\n", "\t",    "中 文", "\x7F\x01", "a\f",  "  two  words ", "a=b:c",
                                        "\xC2\x85", "\xF0\x9F\x98\x80", "x\\"};
    size_t count = sizeof texts / sizeof texts[0];
    for (size_t i = 0; i < count * count; i++) {
        const char *first = texts[i % count];
        const char *second = texts[i / count];
        struct java_properties_reader reader;
        struct buffer out;
        struct error error;
        struct slice key;
        struct slice value;
        int rv;
        buffer_init(&out, 0);
        java_properties_append_text(&out, first, second);
        java_properties_append_text(&out, "z", "z");
        java_properties_reader_init(&reader, buffer_slice(&out));
        ck_assert(java_properties_next(&reader, &key, &value, &rv, &error));
        ck_assert_slice_eq(key, first);
        ck_assert_slice_eq(value, second);
        ck_assert(java_properties_next(&reader, &key, &value, &rv, &error));
        ck_assert_slice_eq(key, "z");
        ck_assert(!java_properties_next(&reader, &key, &value, &rv, &error));
        ck_assert_int_eq(rv, 0);
        java_properties_reader_close(&reader);
        buffer_close(&out);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("java_properties");
    TCase *tcase = tcase_create("java_properties");
    tcase_add_test(tcase, test_load);
    tcase_add_test(tcase, test_broken_unicode);
    tcase_add_test(tcase, test_store);
    tcase_add_test(tcase, test_round_trip);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
