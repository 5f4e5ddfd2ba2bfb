#include "proto/remoting_command.h"

#include "proto/json_string.h"

#define PREFIX_SIZE 8u              /* length field and header word */
#define HEADER_SIZE_MAX 0xFFFFFFu   /* 24 bits of the header word */
#define NESTING_MAX 60u             /* of values that are skipped */

int64_t remoting_frame_size(struct slice data)
{
    if (data.size < 4)
        return 0;
    uint32_t length = load_u32(data.data);
    if (length < 4 || length > REMOTING_FRAME_MAX - 4)
        return -1;
    return (int64_t)length + 4;
}

/* ---- JSON header: one pass over the bytes, which are changed where a string has escapes ---- */

struct scan {
    uint8_t *at;
    uint8_t *end;
};

static inline uint8_t peek(const struct scan *scan)
{
    return scan->at < scan->end ? *scan->at : 0;
}

static bool skip_comment(struct scan *scan)
{
    if (scan->end - scan->at < 2)
        return false;
    if (scan->at[1] == '/') {
        uint8_t *line = memchr(scan->at, '\n', (size_t)(scan->end - scan->at));
        scan->at = line == NULL ? scan->end : line + 1;
        return true;
    }
    if (scan->at[1] != '*')
        return false;
    uint8_t *stop = memmem(scan->at + 2, (size_t)(scan->end - scan->at - 2), "*/", 2);
    if (stop == NULL)
        return false;
    scan->at = stop + 2;
    return true;
}

/* White space, and comments as fastjson takes them. Returns the character behind, 0 at the end or at a broken
 * comment. */
static uint8_t skip_space_slowly(struct scan *scan)
{
    for (;;) {
        uint8_t c = peek(scan);
        if (c == ' ' || c == '\n' || c == '\r' || c == '\t' || c == '\f' || c == '\b')
            scan->at++;
        else if (c != '/')
            return c;
        else if (!skip_comment(scan))
            return 0;
    }
}

static inline uint8_t skip_space(struct scan *scan)
{
    uint8_t c = peek(scan);
    return c > ' ' && c != '/' ? c : skip_space_slowly(scan);
}

/* The rest of a string from its first escape on: undoes it inside the frame. `to` never overtakes `at`, so that what
 * is stored has been read. */
static bool unescape_rest(struct scan *scan, uint8_t *start, uint8_t quote, struct slice *out)
{
    uint8_t *at = scan->at;
    uint8_t *to = scan->at;
    uint64_t quotes = JSON_ONES * quote;

    for (;;) {
        while (scan->end - at >= 8) {
            uint64_t word;
            memcpy(&word, at, 8);
            if (json_quote_or_escape(word, quotes) != 0)
                break;
            memcpy(to, &word, 8);
            to += 8;
            at += 8;
        }
        while (at != scan->end && *at != quote && *at != '\\')
            *to++ = *at++;
        if (at == scan->end)
            return false;
        if (*at == quote)
            break;
        /* Property strings are full of \u0001 and \u0002. */
        if (scan->end - at >= 6 && memcmp(at, "\\u000", 5) == 0 && (unsigned)at[5] - '0' < 10) {
            *to++ = (uint8_t)(at[5] - '0');
            at += 6;
            continue;
        }
        /* An escape that reached over the closing quote would have no hexadecimal digit there and fails. */
        const uint8_t *next = at;
        to = json_unescape_one(&next, scan->end, to);
        if (to == NULL)
            return false;
        at += next - at;
    }
    *out = slice_of(start, (size_t)(to - start));
    scan->at = at + 1;
    return true;
}

/* At the opening quote. */
static inline bool read_string(struct scan *scan, struct slice *out)
{
    uint8_t quote = *scan->at++;
    uint8_t *start = scan->at;
    uint8_t *at = start;
    uint64_t quotes = JSON_ONES * quote;

    while (scan->end - at >= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        uint64_t marks = json_quote_or_escape(word, quotes);
        if (marks != 0) {
            at += json_first_byte(marks);
            break;
        }
        at += 8;
    }
    while (at != scan->end && *at != quote && *at != '\\')
        at++;
    if (at == scan->end)
        return false;
    if (*at == '\\') {
        scan->at = at;
        return unescape_rest(scan, start, quote, out);
    }
    *out = slice_of(start, (size_t)(at - start));
    scan->at = at + 1;
    return true;
}

static bool is_word(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' ||
           c == '-' || c == '+' || c == '.';
}

static bool read_word(struct scan *scan, struct slice *out)
{
    uint8_t *start = scan->at;
    while (is_word(peek(scan)))
        scan->at++;
    *out = slice_of(start, (size_t)(scan->at - start));
    return out->size > 0;
}

/* At a bracket: the text up to the one that closes it. Its content is of no interest, so only brackets and strings
 * are looked at. */
static bool read_nested(struct scan *scan, struct slice *out)
{
    uint8_t *start = scan->at;
    uint64_t objects = 0; /* a bit per open bracket: is it an object? */
    unsigned depth = 0;
    do {
        uint8_t c = peek(scan);
        switch (c) {
        case '{':
        case '[':
            if (++depth > NESTING_MAX)
                return false;
            objects = objects << 1 | (c == '{');
            break;
        case '}':
        case ']':
            if ((objects & 1) != (c == '}'))
                return false;
            objects >>= 1;
            depth--;
            break;
        case '"':
        case '\'':
            for (scan->at++; peek(scan) != c; scan->at++) {
                if (peek(scan) == '\\')
                    scan->at++;
                if (scan->at >= scan->end)
                    return false;
            }
            break;
        default:
            if (scan->at >= scan->end)
                return false;
        }
        scan->at++;
    } while (depth > 0);
    *out = slice_of(start, (size_t)(scan->at - start));
    return true;
}

static bool is_null(struct slice word)
{
    return word.size == 4 && memcmp(word.data, "null", 4) == 0;
}

static bool word_is_value(struct slice word)
{
    uint8_t c = word.data[0];
    return (c >= '0' && c <= '9') || c == '-' || slice_equal_text(word, "true") || slice_equal_text(word, "false");
}

/* Any value as text: a string undone, a number or boolean by its letters, a container as it stands. data NULL for
 * null. */
static bool read_text(struct scan *scan, struct slice *out)
{
    uint8_t c = skip_space(scan);
    if (c == '"' || c == '\'')
        return read_string(scan, out);
    if (c == '{' || c == '[')
        return read_nested(scan, out);
    if (!read_word(scan, out))
        return false;
    if (is_null(*out)) {
        *out = (struct slice){0};
        return true;
    }
    return word_is_value(*out);
}

/* A number, plain or quoted. null and "" leave it as it is. */
static bool read_i32(struct scan *scan, int32_t *out)
{
    struct slice text;
    uint8_t c = skip_space(scan);
    if (c >= '0' && c <= '9') {
        uint8_t *start = scan->at;
        uint32_t sum = 0;
        while (scan->at - start < 9 && (c = peek(scan)) >= '0' && c <= '9') {
            sum = sum * 10 + (c - '0');
            scan->at++;
        }
        if (!is_word(peek(scan))) {
            *out = (int32_t)sum;
            return true;
        }
        scan->at = start;
    }
    if (!read_text(scan, &text))
        return false;
    return text.size == 0 || is_null(text) || slice_to_i32(text, out);
}

static const char *const language_names[] = {"JAVA",  "CPP",  "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY",
                                             "OTHER", "HTTP", "GO",     "PHP",    "OMS",    "RUST",   "NODE_JS"};
#define LANGUAGES (sizeof language_names / sizeof language_names[0])

static bool read_language(struct scan *scan, uint8_t *out)
{
    struct slice text;
    int32_t ordinal;
    bool string = skip_space(scan) == '"';

    *out = REMOTING_LANGUAGE_JAVA;
    if (!read_text(scan, &text))
        return false;
    if (text.size == 0)
        return true;
    if (!string) {
        if (!slice_to_i32(text, &ordinal))
            return false;
        *out = ordinal < 0 || ordinal >= (int32_t)LANGUAGES ? REMOTING_LANGUAGE_OTHER : (uint8_t)ordinal;
        return true;
    }
    *out = REMOTING_LANGUAGE_OTHER;
    for (uint8_t i = 0; i < LANGUAGES; i++) {
        if (slice_equal_text(text, language_names[i])) {
            *out = i;
            break;
        }
    }
    return true;
}

/* Behind a member: a comma (maybe the last thing before the bracket) or the closing bracket. *more says which. */
static inline bool read_separator(struct scan *scan, bool *more)
{
    uint8_t c = skip_space(scan);
    scan->at++;
    if (c == ',') {
        c = skip_space(scan);
        *more = c != '}';
        if (!*more)
            scan->at++;
        return true;
    }
    *more = false;
    return c == '}';
}

static inline bool read_key(struct scan *scan, struct slice *key)
{
    uint8_t c = skip_space(scan);
    if (!(c == '"' || c == '\'' ? read_string(scan, key) : read_word(scan, key)))
        return false;
    if (skip_space(scan) != ':')
        return false;
    scan->at++;
    return true;
}

static int read_ext_fields(struct scan *scan, struct remoting_command *command)
{
    uint8_t c = skip_space(scan);
    uint32_t count = 0;
    bool more = true;

    command->ext_count = 0;
    if (c != '{') {
        struct slice word;
        return read_word(scan, &word) && is_null(word) ? 0 : ERROR_MALFORMED;
    }
    scan->at++;
    if (skip_space(scan) == '}') {
        scan->at++;
        return 0;
    }
    while (more) {
        struct remoting_ext_field field;
        if (!read_key(scan, &field.name))
            return ERROR_MALFORMED;
        c = skip_space(scan);
        if (!(c == '"' ? read_string(scan, &field.value) : read_text(scan, &field.value)))
            return ERROR_MALFORMED;
        if (field.value.data != NULL) {
            if (count == REMOTING_EXT_FIELDS_MAX)
                return ERROR_TOO_LARGE;
            command->ext[count++] = field;
        }
        if (!read_separator(scan, &more))
            return ERROR_MALFORMED;
    }
    command->ext_count = count;
    return 0;
}

#define KEY_IS(key, text) ((key).size == sizeof(text) - 1 && memcmp((key).data, text, sizeof(text) - 1) == 0)

static int read_member(struct scan *scan, struct slice key, struct remoting_command *command)
{
    struct slice ignored;
    bool ok;

    if (KEY_IS(key, "extFields"))
        return read_ext_fields(scan, command);
    if (KEY_IS(key, "code")) {
        ok = read_i32(scan, &command->code);
    } else if (KEY_IS(key, "flag")) {
        ok = read_i32(scan, &command->flag);
    } else if (KEY_IS(key, "opaque")) {
        command->has_opaque = skip_space(scan) != 'n';
        ok = read_i32(scan, &command->opaque);
    } else if (KEY_IS(key, "version")) {
        ok = read_i32(scan, &command->version);
    } else if (KEY_IS(key, "language")) {
        ok = read_language(scan, &command->language);
    } else if (KEY_IS(key, "remark")) {
        ok = read_text(scan, &command->remark);
    } else {
        ok = read_text(scan, &ignored);
    }
    return ok ? 0 : ERROR_MALFORMED;
}

static int decode_json(uint8_t *header, size_t size, struct remoting_command *command)
{
    struct scan scan = {header, header + size};
    struct slice key;
    bool more = true;

    if (skip_space(&scan) != '{')
        return ERROR_MALFORMED;
    scan.at++;
    if (skip_space(&scan) == '}') {
        scan.at++;
        more = false;
    }
    while (more) {
        if (!read_key(&scan, &key))
            return ERROR_MALFORMED;
        int rv = read_member(&scan, key, command);
        if (rv != 0)
            return rv;
        if (!read_separator(&scan, &more))
            return ERROR_MALFORMED;
    }
    skip_space(&scan);
    return scan.at == scan.end ? 0 : ERROR_MALFORMED;
}

/* ---- binary header ---- */

static int decode_binary_ext(struct cursor *cursor, struct remoting_command *command)
{
    uint32_t count = 0;
    while (cursor->at != cursor->end) {
        if (cursor_left(cursor) < 2)
            return ERROR_MALFORMED;
        size_t name_size = load_u16(cursor->at);
        if (name_size > INT16_MAX || cursor_left(cursor) < 2 + name_size + 4)
            return ERROR_MALFORMED;
        struct slice name = slice_of(cursor->at + 2, name_size);
        size_t value_size = load_u32(name.data + name_size);
        if (cursor_left(cursor) - 2 - name_size - 4 < value_size)
            return ERROR_MALFORMED;
        struct slice value = slice_of(name.data + name_size + 4, value_size);
        cursor->at = value.data + value_size;
        /* Java reads an empty string as null, and a null field is an absent one. */
        if (name_size == 0 || value_size == 0)
            continue;
        if (count == REMOTING_EXT_FIELDS_MAX)
            return ERROR_TOO_LARGE;
        command->ext[count++] = (struct remoting_ext_field){name, value};
    }
    command->ext_count = count;
    return 0;
}

static int decode_binary(const uint8_t *header, size_t size, struct remoting_command *command)
{
    struct cursor cursor = cursor_of(slice_of(header, size));

    command->code = (int16_t)cursor_u16(&cursor);
    command->language = cursor_u8(&cursor);
    command->version = (int16_t)cursor_u16(&cursor);
    command->opaque = (int32_t)cursor_u32(&cursor);
    command->has_opaque = true;
    command->flag = (int32_t)cursor_u32(&cursor);
    struct slice remark = cursor_slice(&cursor, cursor_u32(&cursor));
    if (remark.size > 0)
        command->remark = remark;
    size_t ext_size = cursor_u32(&cursor);
    if (cursor.failed || ext_size != cursor_left(&cursor))
        return ERROR_MALFORMED;
    return decode_binary_ext(&cursor, command);
}

int remoting_command_decode(uint8_t *frame, size_t size, struct remoting_command *command)
{
    if (size < PREFIX_SIZE || size > REMOTING_FRAME_MAX || load_u32(frame) != size - 4)
        return ERROR_MALFORMED;
    uint32_t word = load_u32(frame + 4);
    uint32_t header_size = word & HEADER_SIZE_MAX;
    if (header_size == 0 || header_size > size - PREFIX_SIZE)
        return ERROR_MALFORMED;

    /* Not a memset: the ext array is 3 KiB and most of it stays unused. */
    command->code = 0;
    command->version = 0;
    command->opaque = 0;
    command->flag = 0;
    command->language = REMOTING_LANGUAGE_JAVA;
    command->serialize_type = (uint8_t)(word >> 24);
    command->has_opaque = false;
    command->remark = (struct slice){0};
    command->body = slice_of(frame + PREFIX_SIZE + header_size, size - PREFIX_SIZE - header_size);
    command->ext_count = 0;
    switch (command->serialize_type) {
    case REMOTING_JSON:
        return decode_json(frame + PREFIX_SIZE, header_size, command);
    case REMOTING_BINARY:
        return decode_binary(frame + PREFIX_SIZE, header_size, command);
    default:
        return ERROR_MALFORMED;
    }
}

struct slice remoting_ext(const struct remoting_command *command, const char *name)
{
    size_t size = strlen(name);
    for (uint32_t i = command->ext_count; i > 0; i--) {
        const struct remoting_ext_field *field = &command->ext[i - 1];
        if (field->name.size == size && memcmp(field->name.data, name, size) == 0)
            return field->value;
    }
    return (struct slice){0};
}
