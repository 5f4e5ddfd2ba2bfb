/* Compressed bodies: back and forth, damaged, cut off, and larger than allowed. */
#include <check.h>
#include <stdlib.h>

#include "client/compression.h"
#include "tests/lib/run_suite.h"

static const enum compression_type types[] = {COMPRESSION_ZLIB, COMPRESSION_LZ4, COMPRESSION_ZSTD};
static uint8_t text[300000];

static void set_up(void)
{
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (uint8_t)("abcdefgh"[i % 8] + (i * i >> 8) % 3);
}

START_TEST(test_round_trip)
{
    static const size_t sizes[] = {5000, 65536, 65537, sizeof text};
    for (size_t i = 0; i < 4; i++) {
        size_t size = sizes[i];
        struct buffer out;
        void *packed = compression_compress(types[_i], 5, text, &size);
        ck_assert_ptr_nonnull(packed);
        ck_assert_uint_lt(size, sizes[i]);
        buffer_init(&out, sizeof text);
        ck_assert_int_eq(compression_expand(types[_i] | 1, slice_of(packed, size), &out), 0);
        ck_assert_uint_eq(out.size, sizes[i]);
        ck_assert_int_eq(memcmp(out.data, text, out.size), 0);
        /* Clients that know only zlib do not say so. */
        buffer_clear(&out);
        if (types[_i] == COMPRESSION_ZLIB)
            ck_assert_int_eq(compression_expand(1, slice_of(packed, size), &out), 0);
        buffer_close(&out);
        free(packed);
    }
}
END_TEST

START_TEST(test_does_not_shrink)
{
    uint32_t state = 1;
    size_t size = 5000;
    for (size_t i = 0; i < size; i++)
        text[i] = (uint8_t)((state = state * 1103515245 + 12345) >> 16);
    ck_assert_ptr_null(compression_compress(types[_i], 5, text, &size));
    ck_assert_uint_eq(size, 5000);
}
END_TEST

/* Whatever bytes come, the answer is the original or an error, within the limit. */
START_TEST(test_damage)
{
    size_t size = 20000;
    struct buffer out;
    uint8_t *packed = compression_compress(types[_i], 5, text, &size);
    ck_assert_ptr_nonnull(packed);
    buffer_init(&out, 100000);
    for (size_t cut = 0; cut < size; cut += 1 + size / 40) {
        buffer_clear(&out);
        ck_assert_msg(compression_expand(types[_i], slice_of(packed, cut), &out) == ERROR_MALFORMED, "%zu of %zu",
                      cut, size);
    }
    for (size_t at = 0; at < size; at += 1 + size / 200) {
        packed[at] ^= 0x55;
        buffer_clear(&out);
        int rv = compression_expand(types[_i], slice_of(packed, size), &out);
        ck_assert(rv == 0 || rv == ERROR_MALFORMED || rv == ERROR_NO_MEMORY);
        ck_assert_uint_le(out.size, 100000);
        packed[at] ^= 0x55;
    }
    buffer_close(&out);
    free(packed);
}
END_TEST

START_TEST(test_limit)
{
    size_t size = sizeof text;
    struct buffer out;
    void *packed = compression_compress(types[_i], 5, text, &size);
    buffer_init(&out, sizeof text - 1);
    ck_assert_int_eq(compression_expand(types[_i], slice_of(packed, size), &out), ERROR_NO_MEMORY);
    buffer_close(&out);
    buffer_init(&out, sizeof text);
    ck_assert_int_eq(compression_expand(types[_i], slice_of(packed, size), &out), 0);
    buffer_close(&out);
    free(packed);
}
END_TEST

/* Java's writers may put several frames behind each other. */
START_TEST(test_frames)
{
    size_t size = 10000;
    struct buffer out, two;
    void *packed = compression_compress(types[_i], 5, text, &size);
    buffer_init(&two, 0);
    buffer_append(&two, packed, size);
    buffer_append(&two, packed, size);
    buffer_init(&out, sizeof text);
    ck_assert_int_eq(compression_expand(types[_i], buffer_slice(&two), &out), 0);
    ck_assert_uint_eq(out.size, 20000);
    ck_assert_int_eq(memcmp(out.data + 10000, text, 10000), 0);
    buffer_close(&out);
    buffer_close(&two);
    free(packed);
}
END_TEST

START_TEST(test_known)
{
    ck_assert(compression_is_known(0x001) && compression_is_known(0x101) && compression_is_known(0x201));
    ck_assert(compression_is_known(0x301) && !compression_is_known(0x401) && !compression_is_known(0x701));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("compression");
    TCase *tcase = tcase_create("all");
    tcase_add_checked_fixture(tcase, set_up, NULL);
    tcase_add_loop_test(tcase, test_round_trip, 0, 3);
    tcase_add_loop_test(tcase, test_does_not_shrink, 0, 3);
    tcase_add_loop_test(tcase, test_damage, 0, 3);
    tcase_add_loop_test(tcase, test_limit, 0, 3);
    tcase_add_loop_test(tcase, test_frames, 1, 3); /* zlib has no frames */
    tcase_add_test(tcase, test_known);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
