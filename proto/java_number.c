#include "proto/java_number.h"

#include <math.h>
#include <stdlib.h>

#include "proto/utf8.h"

/* The zeros of the decimal digits beyond ASCII that Character.digit knows in the basic plane (Unicode 13, JDK
 * 17). Its callers go by UTF-16 unit, so that digits of other planes are none. */
static const uint16_t zeros[] = {
    0x0660, 0x06F0, 0x07C0, 0x0966, 0x09E6, 0x0A66, 0x0AE6, 0x0B66, 0x0BE6, 0x0C66, 0x0CE6, 0x0D66,
    0x0DE6, 0x0E50, 0x0ED0, 0x0F20, 0x1040, 0x1090, 0x17E0, 0x1810, 0x1946, 0x19D0, 0x1A80, 0x1A90,
    0x1B50, 0x1BB0, 0x1C40, 0x1C50, 0xA620, 0xA8D0, 0xA900, 0xA9D0, 0xA9F0, 0xAA50, 0xABF0, 0xFF10,
};

static int digit_of(uint32_t code)
{
    for (size_t i = 0; i < sizeof zeros / sizeof zeros[0]; i++)
        if (code >= zeros[i] && code <= zeros[i] + 9u)
            return (int)(code - zeros[i]);
    return -1;
}

bool java_integer_parse(struct slice text, int64_t min, int64_t max, int64_t *value)
{
    const uint8_t *at = text.data;
    const uint8_t *end = text.data + text.size;
    bool negative = false;
    uint64_t sum = 0;

    if (text.size > 0 && (*at == '-' || *at == '+'))
        negative = *at++ == '-';
    if (at == end)
        return false;
    uint64_t limit = negative ? 0 - (uint64_t)min : (uint64_t)max;
    while (at != end) {
        int digit = *at >= '0' && *at <= '9' ? *at++ - '0' : *at < 0x80 ? -1 : digit_of(utf8_next(&at, end));
        if (digit < 0 || sum > (limit - (unsigned)digit) / 10)
            return false;
        sum = sum * 10 + (unsigned)digit;
    }
    *value = negative ? (int64_t)(0 - sum) : (int64_t)sum;
    return true;
}

static bool is_digit(uint8_t c)
{
    return c >= '0' && c <= '9';
}

static bool is_hex_digit(uint8_t c)
{
    return is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
}

/* Optional sign and digits, the rest of the text but for one suffix letter. Values beyond any exponent that
 * matters are cut. */
static bool exponent_parse(const uint8_t *at, const uint8_t *end, int *exponent)
{
    bool negative = false;
    int sum = 0;

    if (at != end && (*at == '-' || *at == '+'))
        negative = *at++ == '-';
    if (at == end || !is_digit(*at))
        return false;
    for (; at != end && is_digit(*at); at++)
        if (sum < 1000000)
            sum = sum * 10 + (*at - '0');
    if (at != end && (*at | 0x20) != 'f' && (*at | 0x20) != 'd')
        return false;
    if (at != end && at + 1 != end)
        return false;
    *exponent = negative ? -sum : sum;
    return true;
}

/* strtod rounds correctly, as Java does, but takes the decimal point from the locale and text that Java
 * refuses: it gets the digits without a point, and the exponent that makes up for it. */
static double digits_to_double(char *digits, size_t size, char mark, int exponent)
{
    char *to = digits + size;
    *to++ = mark;
    if (exponent < 0)
        *to++ = '-';
    for (unsigned left = (unsigned)abs(exponent), unit = 10000000; unit > 0; unit /= 10) {
        *to++ = (char)('0' + left / unit % 10);
        left %= unit;
    }
    *to = '\0';
    return strtod(digits, NULL);
}

/* From the digits on, without sign. Hexadecimal when `hex`, then from behind 0x. */
static bool unsigned_parse(const uint8_t *at, const uint8_t *end, bool hex, double *value)
{
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    char digits[2 + JAVA_DOUBLE_TEXT_MAX + 16];
    size_t size = hex ? 2 : 0;
    bool any = false;
    bool point = false;
    int scale = 0; /* digits behind the point */
    int exponent = 0;
    uint64_t sum = 0;

    memcpy(digits, "0x", 2);
    for (; at != end; at++) {
        if (*at == '.') {
            if (point)
                return false;
            point = true;
            continue;
        }
        if (!(hex ? is_hex_digit(*at) : is_digit(*at)))
            break;
        any = true;
        scale += point;
        digits[size++] = (char)*at;
        if (!hex && size <= 18)
            sum = sum * 10 + (unsigned)(*at - '0');
    }
    if (!any)
        return false;
    if (at != end && (*at | 0x20) == (hex ? 'p' : 'e')) {
        if (!exponent_parse(at + 1, end, &exponent))
            return false;
    } else if (hex || (at != end && (at + 1 != end || ((*at | 0x20) != 'f' && (*at | 0x20) != 'd')))) {
        return false;
    }
    exponent -= hex ? 4 * scale : scale;
    /* Both factors are exact then, and so is the rounding of their one product or quotient. */
    if (!hex && size <= 18 && sum <= 1ull << 53 && exponent >= -22 && exponent <= 22)
        *value = exponent < 0 ? (double)sum / powers[-exponent] : (double)sum * powers[exponent];
    else
        *value = digits_to_double(digits, size, hex ? 'p' : 'e', exponent);
    return true;
}

bool java_double_parse(struct slice text, double *value)
{
    const uint8_t *at = text.data;
    const uint8_t *end = text.data + text.size;
    bool negative = false;

    while (at != end && *at <= ' ')
        at++;
    while (at != end && end[-1] <= ' ')
        end--;
    if (at != end && (*at == '-' || *at == '+'))
        negative = *at++ == '-';
    if (at == end || (size_t)(end - at) > JAVA_DOUBLE_TEXT_MAX)
        return false;
    struct slice rest = slice_of(at, (size_t)(end - at));
    if (slice_equal_text(rest, "NaN"))
        *value = (double)NAN;
    else if (slice_equal_text(rest, "Infinity"))
        *value = (double)INFINITY;
    else if (rest.size > 2 && at[0] == '0' && (at[1] | 0x20) == 'x') {
        if (!unsigned_parse(at + 2, end, true, value))
            return false;
    } else if (!unsigned_parse(at, end, false, value)) {
        return false;
    }
    if (negative)
        *value = -*value;
    return true;
}

int java_double_compare(double a, double b)
{
    if (isnan(a) || isnan(b))
        return (isnan(a) ? 1 : 0) - (isnan(b) ? 1 : 0);
    if (a != b)
        return a < b ? -1 : 1;
    return (signbit(b) ? 1 : 0) - (signbit(a) ? 1 : 0);
}
