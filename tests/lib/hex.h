/* Bytes of the specs' vectors: hexadecimal text to bytes and back. */
#ifndef LEDGERMQ_TESTS_HEX_H
#define LEDGERMQ_TESTS_HEX_H

#include <check.h>
#include <stdlib.h>

#include "proto/buffer.h"
#include "proto/utf8.h"

/* Blanks are skipped. Caller frees the data. */
static inline struct slice hex_bytes(const char *text)
{
    uint8_t *bytes = malloc(strlen(text) / 2 + 1);
    size_t size = 0;
    ck_assert_ptr_nonnull(bytes);
    for (const uint8_t *at = (const uint8_t *)text; *at != 0;) {
        if (*at == ' ' || *at == '\n') {
            at++;
            continue;
        }
        ck_assert_int_ge(hex_digit(at[0]), 0);
        ck_assert_int_ge(hex_digit(at[1]), 0);
        bytes[size++] = (uint8_t)(hex_digit(at[0]) << 4 | hex_digit(at[1]));
        at += 2;
    }
    return slice_of(bytes, size);
}

static inline void hex_free(struct slice bytes)
{
    free((void *)(uintptr_t)bytes.data);
}

#define ck_assert_slice_eq(actual, text)                                                                     \
    do {                                                                                                     \
        struct slice checked_ = (actual);                                                                    \
        if (!slice_equal_text(checked_, text))                                                               \
            ck_abort_msg("%s is \"%.*s\", not \"%s\"", #actual, (int)checked_.size, (const char *)checked_.data, text); \
    } while (0)

#endif
