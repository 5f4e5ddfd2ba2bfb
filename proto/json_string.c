#include "proto/json_string.h"

#include "proto/utf8.h"

const uint8_t json_special[256] = {
    [0x00 ... 0x1F] = 1, ['"'] = 1, ['\\'] = 1, [0x7F] = 1,
    [0xC2] = 1, /* U+0080 to U+009F */
    [0xE2] = 1, /* U+2028, U+2029 */
};

/* One \u escape at from (behind the u), with its second half when it is a pair. Moves from on; -1 when broken. */
static int32_t unicode_escape(const uint8_t **from, const uint8_t *end)
{
    if (end - *from < 4)
        return -1;
    int32_t code = hex4(*from);
    if (code < 0)
        return -1;
    *from += 4;
    if (code < 0xD800 || code > 0xDFFF)
        return code;
    if (code < 0xDC00 && end - *from >= 6 && (*from)[0] == '\\' && (*from)[1] == 'u') {
        int32_t low = hex4(*from + 2);
        if (low >= 0xDC00 && low <= 0xDFFF) {
            *from += 6;
            return 0x10000 + ((code - 0xD800) << 10 | (low - 0xDC00));
        }
    }
    return '?';
}

uint8_t *json_unescape_one(const uint8_t **at, const uint8_t *end, uint8_t *to)
{
    static const uint8_t short_form[256] = {
        ['b'] = '\b', ['t'] = '\t', ['n'] = '\n', ['v'] = '\v',   ['f'] = '\f', ['F'] = '\f',
        ['r'] = '\r', ['"'] = '"',  ['/'] = '/',  ['\''] = '\'', ['\\'] = '\\',
    };
    const uint8_t *from = *at + 1;
    int32_t code;

    if (from >= end)
        return NULL;
    uint8_t c = *from++;
    if (c == 'u') {
        code = unicode_escape(&from, end);
    } else if (short_form[c] != 0) {
        code = short_form[c];
    } else if (c >= '0' && c <= '7') {
        code = c - '0';
    } else if (c == 'x' && end - from >= 2 && hex_digit(from[0]) >= 0 && hex_digit(from[1]) >= 0) {
        code = hex_digit(from[0]) << 4 | hex_digit(from[1]);
        from += 2;
    } else {
        return NULL;
    }
    if (code < 0)
        return NULL;
    *at = from;
    return to + utf8_put((uint32_t)code, to);
}

uint8_t *json_unescape(const uint8_t *from, const uint8_t *end, uint8_t *to)
{
    while (from != end) {
        if (*from != '\\') {
            *to++ = *from++;
            continue;
        }
        to = json_unescape_one(&from, end, to);
        if (to == NULL)
            return NULL;
    }
    return to;
}

static uint8_t *escape_u(uint8_t *to, uint32_t code)
{
    static const char digits[] = "0123456789ABCDEF";
    to[0] = '\\';
    to[1] = 'u';
    to[2] = (uint8_t)digits[code >> 12 & 15];
    to[3] = (uint8_t)digits[code >> 8 & 15];
    to[4] = (uint8_t)digits[code >> 4 & 15];
    to[5] = (uint8_t)digits[code & 15];
    return to + 6;
}

uint8_t *json_escape(const uint8_t *from, const uint8_t *end, uint8_t *to)
{
    static const uint8_t short_form[256] = {
        ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r', ['"'] = '"', ['\\'] = '\\',
    };
    while (from != end) {
        uint8_t c = *from;
        if (!json_special[c]) {
            *to++ = *from++;
        } else if (short_form[c] != 0) {
            *to++ = '\\';
            *to++ = short_form[c];
            from++;
        } else if (c < 0x20 || c == 0x7F) {
            to = escape_u(to, c);
            from++;
        } else if (c == 0xC2 && end - from >= 2 && from[1] >= 0x80 && from[1] < 0xA0) {
            to = escape_u(to, from[1]);
            from += 2;
        } else if (c == 0xE2 && end - from >= 3 && from[1] == 0x80 && (from[2] == 0xA8 || from[2] == 0xA9)) {
            to = escape_u(to, 0x2000u | (from[2] & 0x3Fu));
            from += 3;
        } else {
            *to++ = *from++;
        }
    }
    return to;
}
