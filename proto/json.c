#include "proto/json.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "proto/json_string.h"

#define JSMN_STATIC
#define JSMN_PARENT_LINKS
#include <jsmn.h>

/* jsmn fills our tokens. Its own parent links and sizes are of no use afterwards, since an object as key upsets them;
 * structure() below finds the nesting anew from where the tokens start and end, and checks what jsmn's lenient mode
 * lets pass (missing colons, commas in the wrong place). */
_Static_assert(sizeof(struct json_token) == sizeof(jsmntok_t), "token layout");
_Static_assert(offsetof(struct json_token, start) == offsetof(jsmntok_t, start), "token layout");
_Static_assert(offsetof(struct json_token, end) == offsetof(jsmntok_t, end), "token layout");
_Static_assert(offsetof(struct json_token, size) == offsetof(jsmntok_t, size), "token layout");
_Static_assert(offsetof(struct json_token, next) == offsetof(jsmntok_t, parent), "token layout");

#define TOKENS_FIRST 64u

static bool is_space(uint8_t c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* The one mark in from..to, 0 when there is nothing but white space, -1 when there is anything else. */
static int mark_between(const uint8_t *text, int from, int to)
{
    int mark = 0;
    for (int i = from; i < to; i++) {
        if (is_space(text[i]))
            continue;
        if (mark != 0 || (text[i] != ':' && text[i] != ','))
            return -1;
        mark = text[i];
    }
    return mark;
}

static int outer_start(const struct json_token *token)
{
    return token->type == JSMN_STRING ? token->start - 1 : token->start;
}

static int outer_end(const struct json_token *token)
{
    return token->type == JSMN_STRING ? token->end + 1 : token->end;
}

static bool is_letter(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$';
}

/* jsmn takes any run of characters for a primitive. A key may be a bare word or number; a value is a number, true,
 * false or null; both may stand in single quotes. */
static bool word_ok(const uint8_t *text, const struct json_token *token, bool key)
{
    struct slice word = slice_of(text + token->start, (size_t)(token->end - token->start));
    if (word.data[0] == '\'')
        return word.size >= 2 && memchr(word.data + 1, '\'', word.size - 1) == word.data + word.size - 1 &&
               memchr(word.data, '\\', word.size) == NULL; /* jsmn has not looked at escapes there */
    if (!key && is_letter(word.data[0]))
        return slice_equal_text(word, "true") || slice_equal_text(word, "false") || slice_equal_text(word, "null");
    for (size_t i = 0; i < word.size; i++) {
        uint8_t c = word.data[i];
        if (!is_letter(c) && !(c >= '0' && c <= '9') && c != '-' && c != '+' && c != '.')
            return false;
    }
    return true;
}

/* jsmn climbs from its newest token at each closing bracket, so that its time grows with depth times size: look at
 * the depth before. Its strings must be the ones seen here, hence a quote may not stand inside a word. */
static int check_depth(struct slice text, struct error *error)
{
    uint32_t depth = 0;
    uint8_t before = ',';
    for (size_t i = 0; i < text.size; i++) {
        uint8_t c = text.data[i];
        if (c == '"') {
            if (!is_space(before) && strchr("{[,:", before) == NULL)
                return error_set(error, ERROR_MALFORMED, "JSON: unexpected quote at byte %zu", i);
            for (i++; i < text.size && text.data[i] != '"'; i++) {
                if (text.data[i] == '\\')
                    i++;
            }
        } else if (c == '{' || c == '[') {
            if (++depth > JSON_DEPTH_MAX)
                return error_set(error, ERROR_MALFORMED, "JSON: nested deeper than %u", JSON_DEPTH_MAX);
        } else if ((c == '}' || c == ']') && depth > 0) {
            depth--;
        } else if (c == '\0') {
            return error_set(error, ERROR_MALFORMED, "JSON: unexpected text at byte %zu", i);
        }
        before = c;
    }
    return 0;
}

struct open_container {
    int token;
    int children; /* members count twice: key and value */
    int at;       /* behind the last child, or behind the opening bracket */
};

/* Ends the container on top: what stands between its last child and its closing bracket? */
static bool close_container(struct json_token *tokens, const uint8_t *text, struct open_container *open, int next)
{
    struct json_token *token = &tokens[open->token];
    int mark = mark_between(text, open->at, token->end - 1);
    /* fastjson allows one comma behind the last child. */
    if (mark != 0 && (mark != ',' || open->children == 0))
        return false;
    if (token->type == JSMN_OBJECT) {
        if (open->children % 2 != 0)
            return false;
        token->size = open->children / 2;
    } else {
        token->size = open->children;
    }
    token->next = next;
    return true;
}

static int structure(struct json_token *tokens, int count, struct slice slice, struct error *error)
{
    const uint8_t *text = slice.data;
    struct open_container stack[JSON_DEPTH_MAX];
    uint32_t depth = 0;

    for (int i = 0; i < count; i++) {
        struct json_token *token = &tokens[i];
        bool key = false;
        while (depth > 0 && token->start >= tokens[stack[depth - 1].token].end) {
            if (!close_container(tokens, text, &stack[depth - 1], i))
                return error_set(error, ERROR_MALFORMED, "JSON: unexpected text before byte %d", token->start);
            depth--;
            if (depth > 0)
                stack[depth - 1].at = tokens[stack[depth].token].end;
        }
        if (depth == 0) {
            if (i != 0 || mark_between(text, 0, outer_start(token)) != 0)
                return error_set(error, ERROR_MALFORMED, "JSON: unexpected text before byte %d", token->start);
        } else {
            struct open_container *open = &stack[depth - 1];
            int mark = mark_between(text, open->at, outer_start(token));
            bool value = tokens[open->token].type == JSMN_OBJECT && open->children % 2 != 0;
            int expected = open->children == 0 ? 0 : value ? ':' : ',';
            key = tokens[open->token].type == JSMN_OBJECT && !value;
            if (mark != expected)
                return error_set(error, ERROR_MALFORMED, "JSON: %s expected before byte %d",
                                 value ? "colon" : "comma", token->start);
            open->children++;
            open->at = outer_end(token);
        }
        if (token->type == JSMN_OBJECT || token->type == JSMN_ARRAY) {
            assert(depth < JSON_DEPTH_MAX);
            stack[depth++] = (struct open_container){i, 0, token->start + 1};
        } else {
            if (token->type == JSMN_PRIMITIVE && !word_ok(text, token, key))
                return error_set(error, ERROR_MALFORMED, "JSON: unexpected text at byte %d", token->start);
            token->size = 0;
            token->next = i + 1;
        }
    }
    int end = outer_end(&tokens[0]);
    while (depth > 0) {
        if (!close_container(tokens, text, &stack[depth - 1], count))
            return error_set(error, ERROR_MALFORMED, "JSON: unexpected text before byte %d",
                             tokens[stack[depth - 1].token].end);
        depth--;
        if (depth > 0)
            stack[depth - 1].at = tokens[stack[depth].token].end;
    }
    if (mark_between(text, end, (int)slice.size) != 0)
        return error_set(error, ERROR_MALFORMED, "JSON: text behind the end at byte %d", end);
    return 0;
}

static int grow(struct json_document *document, struct error *error)
{
    uint32_t capacity = document->capacity == 0 ? TOKENS_FIRST : document->capacity * 2;
    if (!document->owned || document->capacity >= JSON_TOKENS_MAX)
        return error_set(error, ERROR_TOO_LARGE, "JSON: more than %u tokens", document->capacity);
    struct json_token *tokens = realloc(document->tokens, capacity * sizeof *tokens);
    if (tokens == NULL)
        return error_set(error, ERROR_NO_MEMORY, "JSON: no memory for %u tokens", capacity);
    document->tokens = tokens;
    document->capacity = capacity;
    return 0;
}

int json_parse(struct json_document *document, struct slice text, struct json_token *tokens, uint32_t capacity,
               struct error *error)
{
    jsmn_parser parser;
    int count;
    int rv = 0;

    *document = (struct json_document){.text = text, .tokens = tokens, .capacity = tokens == NULL ? 0 : capacity,
                                       .owned = tokens == NULL};
    if (text.size == 0 || text.size > INT32_MAX / 2)
        return error_set(error, text.size == 0 ? ERROR_MALFORMED : ERROR_TOO_LARGE, "JSON: %zu bytes", text.size);
    rv = check_depth(text, error);
    if (rv == 0 && document->capacity == 0)
        rv = grow(document, error);
    if (rv != 0)
        return rv;
    jsmn_init(&parser);
    /* A parse that ran out of tokens goes on where it stopped. */
    while ((count = jsmn_parse(&parser, (const char *)text.data, text.size, (jsmntok_t *)document->tokens,
                               document->capacity)) == JSMN_ERROR_NOMEM) {
        rv = grow(document, error);
        if (rv != 0)
            goto fail;
    }
    if (count <= 0 || parser.toknext == 0) {
        rv = error_set(error, ERROR_MALFORMED, "JSON: %s at byte %u",
                       count == JSMN_ERROR_PART ? "unfinished" : "unexpected text", parser.pos);
        goto fail;
    }
    document->count = parser.toknext;
    rv = structure(document->tokens, (int)document->count, text, error);
    if (rv != 0)
        goto fail;
    return 0;

fail:
    json_close(document);
    return rv;
}

void json_close(struct json_document *document)
{
    if (document->owned)
        free(document->tokens);
    free(document->unescaped);
    *document = (struct json_document){0};
}

static const struct json_value nowhere = {NULL, 0};

static const struct json_token *token_of(struct json_value value)
{
    return value.document == NULL ? NULL : &value.document->tokens[value.at];
}

struct json_value json_root(struct json_document *document)
{
    return document->count == 0 ? nowhere : (struct json_value){document, 0};
}

static bool is_type(struct json_value value, int type)
{
    const struct json_token *token = token_of(value);
    return token != NULL && token->type == type;
}

bool json_is_object(struct json_value value)
{
    return is_type(value, JSMN_OBJECT);
}

bool json_is_array(struct json_value value)
{
    return is_type(value, JSMN_ARRAY);
}

bool json_is_string(struct json_value value)
{
    return is_type(value, JSMN_STRING);
}

static struct slice inner(struct json_value value)
{
    const struct json_token *token = token_of(value);
    return slice_of(value.document->text.data + token->start, (size_t)(token->end - token->start));
}

bool json_is_null(struct json_value value)
{
    return value.document == NULL || (is_type(value, JSMN_PRIMITIVE) && slice_equal_text(inner(value), "null"));
}

uint32_t json_size(struct json_value value)
{
    const struct json_token *token = token_of(value);
    return token == NULL ? 0 : (uint32_t)token->size;
}

struct slice json_raw(struct json_value value)
{
    const struct json_token *token = token_of(value);
    if (token == NULL)
        return (struct slice){0};
    return slice_of(value.document->text.data + outer_start(token), (size_t)(outer_end(token) - outer_start(token)));
}

bool json_text(struct json_value value, struct slice *out)
{
    const struct json_token *token = token_of(value);
    if (token == NULL || json_is_null(value) || (token->type != JSMN_STRING && token->type != JSMN_PRIMITIVE))
        return false;
    struct slice text = inner(value);
    if (token->type == JSMN_PRIMITIVE && text.data[0] == '\'')
        text = slice_of(text.data + 1, text.size - 2);
    if (text.size == 0 || memchr(text.data, '\\', text.size) == NULL) {
        *out = text;
        return true;
    }
    /* Each string is undone to where it stands in the text, so that asking twice costs no room. */
    struct json_document *document = value.document;
    if (document->unescaped == NULL)
        document->unescaped = malloc(document->text.size);
    if (document->unescaped == NULL)
        return false;
    uint8_t *to = document->unescaped + (text.data - document->text.data);
    uint8_t *end = json_unescape(text.data, text.data + text.size, to);
    if (end == NULL)
        return false;
    *out = slice_of(to, (size_t)(end - to));
    return true;
}

bool json_i64(struct json_value value, int64_t *out)
{
    struct slice text;
    int64_t number;
    if (!json_text(value, &text) || !slice_to_i64(text, &number))
        return false;
    *out = number;
    return true;
}

bool json_i32(struct json_value value, int32_t *out)
{
    struct slice text;
    int32_t number;
    if (!json_text(value, &text) || !slice_to_i32(text, &number))
        return false;
    *out = number;
    return true;
}

bool json_double(struct json_value value, double *out)
{
    struct slice text;
    char copy[64];
    char *end;
    if (!json_text(value, &text) || text.size == 0 || text.size >= sizeof copy || is_letter(text.data[0]))
        return false;
    memcpy(copy, text.data, text.size);
    copy[text.size] = '\0';
    double number = strtod(copy, &end);
    if (end != copy + text.size || is_space(text.data[0]) || !isfinite(number))
        return false;
    *out = number;
    return true;
}

bool json_bool(struct json_value value, bool *out)
{
    struct slice text;
    bool answer;
    if (!json_text(value, &text) || !slice_to_bool(text, &answer))
        return false;
    *out = answer;
    return true;
}

bool json_enum(struct json_value value, const char *const *names, int count, int *ordinal)
{
    struct slice text;
    int64_t number;
    if (!json_text(value, &text))
        return false;
    for (int i = 0; i < count; i++) {
        if (slice_equal_text(text, names[i])) {
            *ordinal = i;
            return true;
        }
    }
    if (!slice_to_i64(text, &number) || number < 0 || number >= count)
        return false;
    *ordinal = (int)number;
    return true;
}

struct json_iterator json_iterate(struct json_value container)
{
    struct json_iterator iterator = {container, container.at + 1, 0};
    if (json_is_object(container) || json_is_array(container))
        iterator.left = json_size(container);
    return iterator;
}

bool json_next_member(struct json_iterator *iterator, struct json_value *name, struct json_value *value)
{
    if (iterator->left == 0 || !json_is_object(iterator->container))
        return false;
    struct json_document *document = iterator->container.document;
    *name = (struct json_value){document, iterator->at};
    *value = (struct json_value){document, document->tokens[iterator->at].next};
    iterator->at = document->tokens[value->at].next;
    iterator->left--;
    return true;
}

bool json_next_element(struct json_iterator *iterator, struct json_value *element)
{
    if (iterator->left == 0 || !json_is_array(iterator->container))
        return false;
    struct json_document *document = iterator->container.document;
    *element = (struct json_value){document, iterator->at};
    iterator->at = document->tokens[iterator->at].next;
    iterator->left--;
    return true;
}

struct json_value json_get(struct json_value object, const char *name)
{
    struct json_iterator iterator = json_iterate(object);
    struct json_value found = nowhere;
    struct json_value key;
    struct json_value value;
    struct slice text;
    while (json_next_member(&iterator, &key, &value)) {
        if (json_text(key, &text) && slice_equal_text(text, name))
            found = value;
    }
    return found;
}

#define READ(function, type, convert, what)                                                                  \
    int function(struct json_value object, const char *name, type *out, struct error *error)                 \
    {                                                                                                        \
        struct json_value value = json_get(object, name);                                                    \
        if (json_is_null(value) || convert(value, out))                                                      \
            return 0;                                                                                        \
        return error_set(error, ERROR_INVALID, "field %s is not " what, name);                               \
    }
READ(json_read_text, struct slice, json_text, "a text")
READ(json_read_i64, int64_t, json_i64, "a number")
READ(json_read_i32, int32_t, json_i32, "a number")
READ(json_read_bool, bool, json_bool, "true or false")

int json_read_enum(struct json_value object, const char *name, const char *const *names, int count, int *ordinal,
                   struct error *error)
{
    struct json_value value = json_get(object, name);
    if (json_is_null(value) || json_enum(value, names, count, ordinal))
        return 0;
    struct slice raw = json_raw(value);
    int shown = raw.size > 64 ? 64 : (int)raw.size;
    return error_set(error, ERROR_INVALID, "field %s has an unknown value: %.*s", name, shown, (const char *)raw.data);
}
