/* Decimal text of an integer: two digits a step, as it stands in every answer's header. */
#ifndef LEDGERMQ_PROTO_DECIMAL_H
#define LEDGERMQ_PROTO_DECIMAL_H

#include <stdint.h>
#include <string.h>

#define DECIMAL_MAX 20u /* sign and 19 digits */

static inline uint8_t *decimal_put(uint8_t *to, int64_t value)
{
    static const char pairs[] = "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
                                "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
                                "8081828384858687888990919293949596979899";
    uint8_t digits[DECIMAL_MAX];
    uint8_t *end = digits + sizeof digits;
    uint8_t *at = end;
    uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;

    while (left >= 100) {
        at -= 2;
        memcpy(at, pairs + left % 100 * 2, 2);
        left /= 100;
    }
    if (left >= 10) {
        at -= 2;
        memcpy(at, pairs + left * 2, 2);
    } else {
        *--at = (uint8_t)('0' + left);
    }
    if (value < 0)
        *to++ = '-';
    memcpy(to, at, (size_t)(end - at));
    return to + (end - at);
}

#endif
