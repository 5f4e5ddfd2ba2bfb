/* UTF-8 one code point at a time, as Java's decoder and encoder see it. */
#ifndef LEDGERMQ_PROTO_UTF8_H
#define LEDGERMQ_PROTO_UTF8_H

#include <stddef.h>
#include <stdint.h>

#define UTF8_REPLACEMENT 0xFFFDu

/* Reads the code point at `at` (at < end) and moves on. A byte that starts no well-formed sequence is one
 * UTF8_REPLACEMENT: overlong forms, surrogates and values above U+10FFFF included. */
static inline uint32_t utf8_next(const uint8_t **at, const uint8_t *end)
{
    const uint8_t *p = *at;
    uint32_t first = *p;
    int more = first < 0x80 ? 0 : first < 0xC2 ? -1 : first < 0xE0 ? 1 : first < 0xF0 ? 2 : first < 0xF5 ? 3 : -1;

    *at = p + 1;
    if (more <= 0)
        return more == 0 ? first : UTF8_REPLACEMENT;
    if (end - p <= more)
        return UTF8_REPLACEMENT;
    uint32_t code = first & (0x3Fu >> more);
    for (int i = 1; i <= more; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return UTF8_REPLACEMENT;
        code = code << 6 | (p[i] & 0x3Fu);
    }
    if ((more == 2 && (code < 0x800 || (code >= 0xD800 && code <= 0xDFFF))) ||
        (more == 3 && (code < 0x10000 || code > 0x10FFFF)))
        return UTF8_REPLACEMENT;
    *at = p + more + 1;
    return code;
}

/* Writes 1 to 4 bytes and returns how many. code is a scalar value. */
static inline size_t utf8_put(uint32_t code, uint8_t *out)
{
    if (code < 0x80) {
        out[0] = (uint8_t)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (uint8_t)(0xC0 | code >> 6);
        out[1] = (uint8_t)(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (uint8_t)(0xE0 | code >> 12);
        out[1] = (uint8_t)(0x80 | (code >> 6 & 0x3F));
        out[2] = (uint8_t)(0x80 | (code & 0x3F));
        return 3;
    }
    out[0] = (uint8_t)(0xF0 | code >> 18);
    out[1] = (uint8_t)(0x80 | (code >> 12 & 0x3F));
    out[2] = (uint8_t)(0x80 | (code >> 6 & 0x3F));
    out[3] = (uint8_t)(0x80 | (code & 0x3F));
    return 4;
}

/* Value of a hexadecimal digit, -1 for another character. */
static inline int hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Four hexadecimal digits at p, -1 when they are not all that. */
static inline int32_t hex4(const uint8_t *p)
{
    int a = hex_digit(p[0]), b = hex_digit(p[1]), c = hex_digit(p[2]), d = hex_digit(p[3]);
    return (a | b | c | d) < 0 ? -1 : a << 12 | b << 8 | c << 4 | d;
}

#endif
