#include "proto/java_properties.h"

#include "proto/utf8.h"

void java_properties_reader_init(struct java_properties_reader *reader, struct slice text)
{
    *reader = (struct java_properties_reader){.text = text, .next_line = 1};
    buffer_init(&reader->pair, 0);
}

void java_properties_reader_close(struct java_properties_reader *reader)
{
    buffer_close(&reader->pair);
}

static bool is_blank(uint8_t c)
{
    return c == ' ' || c == '\t' || c == '\f';
}

static bool is_line_end(uint8_t c)
{
    return c == '\n' || c == '\r';
}

static bool at_end(const struct java_properties_reader *reader)
{
    return reader->at >= reader->text.size;
}

static uint8_t look(const struct java_properties_reader *reader)
{
    return reader->text.data[reader->at];
}

/* Takes \n, \r or \r\n. */
static void take_line_end(struct java_properties_reader *reader)
{
    if (at_end(reader))
        return;
    bool cr = look(reader) == '\r';
    reader->at++;
    if (cr && !at_end(reader) && look(reader) == '\n')
        reader->at++;
    reader->next_line++;
}

static void skip_blanks(struct java_properties_reader *reader)
{
    while (!at_end(reader) && is_blank(look(reader)))
        reader->at++;
}

/* To the first character of the next pair: over blank lines and comments. False at the end. */
static bool find_pair(struct java_properties_reader *reader)
{
    for (;;) {
        skip_blanks(reader);
        if (at_end(reader))
            return false;
        uint8_t c = look(reader);
        if (c == '#' || c == '!') {
            /* A backslash does not continue a comment. */
            while (!at_end(reader) && !is_line_end(look(reader)))
                reader->at++;
        } else if (!is_line_end(c)) {
            return true;
        }
        take_line_end(reader);
    }
}

static int take_unicode(struct java_properties_reader *reader, struct error *error)
{
    const uint8_t *from = reader->text.data + reader->at;
    size_t left = reader->text.size - reader->at;
    int32_t code = left >= 4 ? hex4(from) : -1;
    if (code < 0)
        return error_set(error, ERROR_MALFORMED, "line %u: \\u needs four hexadecimal digits", reader->next_line);
    reader->at += 4;
    if (code >= 0xD800 && code <= 0xDFFF) {
        int32_t low = code < 0xDC00 && left >= 10 && from[4] == '\\' && from[5] == 'u' ? hex4(from + 6) : -1;
        if (low >= 0xDC00 && low <= 0xDFFF) {
            reader->at += 6;
            code = 0x10000 + ((code - 0xD800) << 10 | (low - 0xDC00));
        } else {
            code = '?'; /* half a pair: what Java writes for it */
        }
    }
    uint8_t bytes[4];
    buffer_append(&reader->pair, bytes, utf8_put((uint32_t)code, bytes));
    return 0;
}

/* Behind a backslash. */
static int take_escape(struct java_properties_reader *reader, struct error *error)
{
    if (at_end(reader))
        return 0;
    uint8_t c = look(reader);
    if (is_line_end(c)) {
        take_line_end(reader);
        skip_blanks(reader);
        return 0;
    }
    reader->at++;
    switch (c) {
    case 'u':
        return take_unicode(reader, error);
    case 't':
        c = '\t';
        break;
    case 'n':
        c = '\n';
        break;
    case 'r':
        c = '\r';
        break;
    case 'f':
        c = '\f';
        break;
    }
    buffer_append_u8(&reader->pair, c);
    return 0;
}

/* Copies the key or the value with its escapes undone, up to the line's end; a key also ends at a separator. */
static int take_part(struct java_properties_reader *reader, bool key, struct error *error)
{
    while (!at_end(reader)) {
        uint8_t c = look(reader);
        if (is_line_end(c) || (key && (is_blank(c) || c == '=' || c == ':')))
            return 0;
        reader->at++;
        if (c != '\\') {
            buffer_append_u8(&reader->pair, c);
            continue;
        }
        int rv = take_escape(reader, error);
        if (rv != 0)
            return rv;
    }
    return 0;
}

/* Blanks, at most one = or :, blanks; a continued line may break them. */
static void skip_separator(struct java_properties_reader *reader)
{
    bool mark = false;
    while (!at_end(reader)) {
        uint8_t c = look(reader);
        if (is_blank(c)) {
            reader->at++;
        } else if ((c == '=' || c == ':') && !mark) {
            mark = true;
            reader->at++;
        } else if (c == '\\' && reader->at + 1 < reader->text.size && is_line_end(reader->text.data[reader->at + 1])) {
            reader->at++;
            take_line_end(reader);
        } else {
            return;
        }
    }
}

bool java_properties_next(struct java_properties_reader *reader, struct slice *key, struct slice *value, int *rv,
                          struct error *error)
{
    buffer_clear(&reader->pair);
    *rv = 0;
    if (!find_pair(reader))
        return false;
    reader->line = reader->next_line;
    *rv = take_part(reader, true, error);
    if (*rv != 0)
        return false;
    size_t key_size = reader->pair.size;
    skip_separator(reader);
    *rv = take_part(reader, false, error);
    if (*rv != 0)
        return false;
    take_line_end(reader);
    if (reader->pair.failed) {
        *rv = error_set(error, ERROR_NO_MEMORY, "line %u: no memory", reader->line);
        return false;
    }
    /* "" of an empty part still needs an address: NULL means absent elsewhere. */
    const uint8_t *data = reader->pair.data != NULL ? reader->pair.data : (const uint8_t *)"";
    *key = slice_of(data, key_size);
    *value = slice_of(data + key_size, reader->pair.size - key_size);
    return true;
}

static void append_unicode(struct buffer *out, uint32_t unit)
{
    static const char digits[] = "0123456789ABCDEF";
    const char text[] = {'\\', 'u', digits[unit >> 12 & 15], digits[unit >> 8 & 15], digits[unit >> 4 & 15], digits[unit & 15]};
    buffer_append(out, text, sizeof text);
}

static void append_part(struct buffer *out, struct slice part, bool key)
{
    const uint8_t *at = part.data;
    const uint8_t *end = part.data + part.size;
    while (at != end) {
        bool first = at == part.data;
        uint32_t code = utf8_next(&at, end);
        switch (code) {
        case ' ':
            buffer_append_text(out, key || first ? "\\ " : " ");
            break;
        case '\t':
            buffer_append_text(out, "\\t");
            break;
        case '\n':
            buffer_append_text(out, "\\n");
            break;
        case '\r':
            buffer_append_text(out, "\\r");
            break;
        case '\f':
            buffer_append_text(out, "\\f");
            break;
        case '\\':
            buffer_append_text(out, "\\\\");
            break;
        case '=':
        case ':':
        case '#':
        case '!':
            /* Harmless in a value: addresses stay as RocketMQ's properties2String writes them. */
            if (key)
                buffer_append_u8(out, '\\');
            buffer_append_u8(out, (uint8_t)code);
            break;
        default:
            if (code >= 0x10000) {
                append_unicode(out, 0xD800 | (code - 0x10000) >> 10);
                append_unicode(out, 0xDC00 | (code & 0x3FF));
            } else if (code < 0x20 || code > 0x7E) {
                append_unicode(out, code);
            } else {
                buffer_append_u8(out, (uint8_t)code);
            }
        }
    }
}

void java_properties_append(struct buffer *out, struct slice key, struct slice value)
{
    append_part(out, key, true);
    buffer_append_u8(out, '=');
    append_part(out, value, false);
    buffer_append_u8(out, '\n');
}

void java_properties_append_text(struct buffer *out, const char *key, const char *value)
{
    java_properties_append(out, slice_of_text(key), slice_of_text(value));
}
