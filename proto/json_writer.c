#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/decimal.h"
#include "proto/json.h"
#include "proto/json_string.h"

void json_writer_init(struct json_writer *writer, struct buffer *out)
{
    *writer = (struct json_writer){.out = out};
}

static void separate(struct json_writer *writer)
{
    if (writer->comma)
        buffer_append_u8(writer->out, ',');
    writer->comma = true;
}

static void open_bracket(struct json_writer *writer, char bracket)
{
    separate(writer);
    buffer_append_u8(writer->out, (uint8_t)bracket);
    writer->comma = false;
}

static void close_bracket(struct json_writer *writer, char bracket)
{
    buffer_append_u8(writer->out, (uint8_t)bracket);
    writer->comma = true;
}

void json_write_begin_object(struct json_writer *writer)
{
    open_bracket(writer, '{');
}

void json_write_end_object(struct json_writer *writer)
{
    close_bracket(writer, '}');
}

void json_write_begin_array(struct json_writer *writer)
{
    open_bracket(writer, '[');
}

void json_write_end_array(struct json_writer *writer)
{
    close_bracket(writer, ']');
}

void json_append_escaped(struct buffer *out, struct slice text)
{
    const uint8_t *at = text.data;
    const uint8_t *end = text.data + text.size;
    while (at != end) {
        const uint8_t *plain = at;
        while (at != end && !json_special[*at])
            at++;
        buffer_append(out, plain, (size_t)(at - plain));
        if (at == end)
            return;
        /* A special character is up to three bytes long. */
        uint8_t escaped[3 * JSON_ESCAPE_MAX];
        const uint8_t *stop = at + (*at == 0xE2 && end - at >= 3 ? 3 : *at == 0xC2 && end - at >= 2 ? 2 : 1);
        buffer_append(out, escaped, (size_t)(json_escape(at, stop, escaped) - escaped));
        at = stop;
    }
}

static void quoted(struct json_writer *writer, struct slice text)
{
    buffer_append_u8(writer->out, '"');
    json_append_escaped(writer->out, text);
    buffer_append_u8(writer->out, '"');
}

static void colon(struct json_writer *writer)
{
    buffer_append_u8(writer->out, ':');
    writer->comma = false;
}

void json_write_key_slice(struct json_writer *writer, struct slice key)
{
    separate(writer);
    quoted(writer, key);
    colon(writer);
}

void json_write_key(struct json_writer *writer, const char *key)
{
    json_write_key_slice(writer, slice_of_text(key));
}

void json_write_key_i64(struct json_writer *writer, int64_t key)
{
    json_write_i64(writer, key);
    colon(writer);
}

void json_write_key_i64_quoted(struct json_writer *writer, int64_t key)
{
    separate(writer);
    buffer_append_format(writer->out, "\"%lld\"", (long long)key);
    colon(writer);
}

void json_write_begin_key_object(struct json_writer *writer)
{
    json_write_begin_object(writer);
}

void json_write_end_key_object(struct json_writer *writer)
{
    json_write_end_object(writer);
    colon(writer);
}

void json_write_null(struct json_writer *writer)
{
    separate(writer);
    buffer_append_text(writer->out, "null");
}

void json_write_slice(struct json_writer *writer, struct slice text)
{
    if (text.data == NULL) {
        json_write_null(writer);
        return;
    }
    separate(writer);
    quoted(writer, text);
}

void json_write_text(struct json_writer *writer, const char *text)
{
    json_write_slice(writer, slice_of_text(text));
}

void json_write_i64(struct json_writer *writer, int64_t value)
{
    uint8_t digits[DECIMAL_MAX];
    separate(writer);
    buffer_append(writer->out, digits, (size_t)(decimal_put(digits, value) - digits));
}

void json_write_double(struct json_writer *writer, double value)
{
    char digits[32];
    if (!isfinite(value)) {
        json_write_null(writer);
        return;
    }
    /* The fewest digits that read back as the same number. */
    int precision = 0;
    do
        snprintf(digits, sizeof digits, "%.*e", precision, value);
    while (strtod(digits, NULL) != value && ++precision < 17);
    int exponent = atoi(strchr(digits, 'e') + 1);
    separate(writer);
    if (value == 0 || (exponent >= -3 && exponent < 7)) {
        int decimals = precision - exponent;
        buffer_append_format(writer->out, "%.*f", decimals > 1 ? decimals : 1, value);
        return;
    }
    *strchr(digits, 'e') = '\0';
    buffer_append_format(writer->out, "%s%sE%d", digits, precision == 0 ? ".0" : "", exponent);
}

void json_write_bool(struct json_writer *writer, bool value)
{
    separate(writer);
    buffer_append_text(writer->out, value ? "true" : "false");
}

void json_write_raw(struct json_writer *writer, struct slice json)
{
    separate(writer);
    buffer_append_slice(writer->out, json);
}

void json_write_member_slice(struct json_writer *writer, const char *key, struct slice text)
{
    if (text.data == NULL)
        return;
    json_write_key(writer, key);
    json_write_slice(writer, text);
}

void json_write_member_text(struct json_writer *writer, const char *key, const char *text)
{
    json_write_member_slice(writer, key, slice_of_text(text));
}

void json_write_member_i64(struct json_writer *writer, const char *key, int64_t value)
{
    json_write_key(writer, key);
    json_write_i64(writer, value);
}

void json_write_member_double(struct json_writer *writer, const char *key, double value)
{
    json_write_key(writer, key);
    json_write_double(writer, value);
}

void json_write_member_bool(struct json_writer *writer, const char *key, bool value)
{
    json_write_key(writer, key);
    json_write_bool(writer, value);
}
