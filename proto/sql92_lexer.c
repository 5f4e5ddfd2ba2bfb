/* Tokens of SQL92 selectors, as org.apache.rocketmq.filter.parser.SelectorParserTokenManager 4.9 cuts them:
 * always the longest one that is possible, so that 0L is 0 and a property L, and a -- comment without a line
 * end is two minus signs.
 */
#include "proto/sql92_program.h"

#include <stdio.h>

#include "proto/sql92_grammar.h"
#include "proto/utf8.h"

static const struct {
    const char *word;
    int kind;
} words[] = {
    {"not", SQL92_TOKEN_NOT},   {"and", SQL92_TOKEN_AND},     {"or", SQL92_TOKEN_OR},
    {"in", SQL92_TOKEN_IN},     {"is", SQL92_TOKEN_IS},       {"between", SQL92_TOKEN_BETWEEN},
    {"true", SQL92_TOKEN_TRUE}, {"false", SQL92_TOKEN_FALSE}, {"null", SQL92_TOKEN_NULL},
};

/* The byte at `at`, NUL behind the end (NUL starts no token and continues only strings and comments). */
static uint8_t look(const struct sql92_lexer *lexer, size_t at)
{
    return at < lexer->text.size ? lexer->text.data[at] : 0;
}

static bool is_digit(uint8_t c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(uint8_t c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$';
}

static size_t skip_digits(const struct sql92_lexer *lexer, size_t at)
{
    while (is_digit(look(lexer, at)))
        at++;
    return at;
}

/* Behind the comment that starts at `at`; `at` when there is none. */
static size_t skip_comment(const struct sql92_lexer *lexer, size_t at)
{
    const uint8_t *text = lexer->text.data;
    size_t size = lexer->text.size;
    size_t end = at + 2;

    if (look(lexer, at) == '-' && look(lexer, at + 1) == '-') {
        while (end < size && text[end] != '\n' && text[end] != '\r')
            end++;
        return end < size ? end + 1 : at;
    }
    if (look(lexer, at) == '/' && look(lexer, at + 1) == '*') {
        const uint8_t *stop = memmem(text + end, size - end, "*/", 2);
        return stop == NULL ? at : (size_t)(stop - text) + 2;
    }
    return at;
}

static size_t skip_blanks(const struct sql92_lexer *lexer, size_t at)
{
    for (;;) {
        uint8_t c = look(lexer, at);
        if (c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f') {
            at++;
            continue;
        }
        size_t end = skip_comment(lexer, at);
        if (end == at)
            return at;
        at = end;
    }
}

/* Behind a number that starts at `at`, `at` when none does. */
static size_t skip_number(const struct sql92_lexer *lexer, size_t at, int *kind)
{
    size_t end = skip_digits(lexer, at);
    bool whole = end > at;

    *kind = SQL92_TOKEN_FLOAT;
    if (look(lexer, end) == '.' && (whole || is_digit(look(lexer, end + 1)))) {
        end = skip_digits(lexer, end + 1);
        whole = false;
    } else if (!whole) {
        return at;
    }
    if ((look(lexer, end) | 0x20) == 'e') {
        uint8_t next = look(lexer, end + 1);
        size_t digits = end + 1 + (next == '+' || next == '-');
        if (is_digit(look(lexer, digits)))
            return skip_digits(lexer, digits);
    }
    if (!whole)
        return end;
    *kind = SQL92_TOKEN_INTEGER;
    if (look(lexer, at) == '0')
        return at + 1;
    return end + ((look(lexer, end) | 0x20) == 'l');
}

/* Behind a string that starts at `at`. A doubled quote continues it, but ends it where no other quote
 * follows. `at` when it has no end at all. */
static size_t skip_string(const struct sql92_lexer *lexer, size_t at)
{
    size_t found = at;

    for (size_t end = at + 1; end < lexer->text.size; end++) {
        if (lexer->text.data[end] != '\'')
            continue;
        found = end + 1;
        if (look(lexer, end + 1) != '\'')
            break;
        end++;
    }
    return found;
}

static int word_kind(struct slice word)
{
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strlen(words[i].word) == word.size &&
            strncasecmp(words[i].word, (const char *)word.data, word.size) == 0)
            return words[i].kind;
    return SQL92_TOKEN_ID;
}

/* As TokenMgrError says it: where the character stands that cannot be part of a token, and what of a token
 * was in front of it. JavaCC says <EOF> already when that character is the last one. */
static int lexical_error(const struct sql92_lexer *lexer, size_t start, struct error *error)
{
    const uint8_t *text = lexer->text.data;
    size_t size = lexer->text.size;
    bool open = text[start] == '\'' || (text[start] == '/' && look(lexer, start + 1) == '*');
    const uint8_t *at = open ? text + size : text + start + (text[start] == '/' || text[start] == '.');
    size_t bad = (size_t)(at - text);
    uint32_t code = 0;
    uint32_t line;
    uint32_t column;
    char after[160];

    if (bad < size)
        code = utf8_next(&at, text + size);
    if (at != text + size) {
        char seen[16];
        sql92_place(lexer->text, (uint32_t)bad, &line, &column);
        sql92_escape(slice_of(text + bad, (size_t)(at - text) - bad), seen, sizeof seen);
        if (code > 0xFFFF) { /* Java sees the first of two units */
            code = 0xD800 + ((code - 0x10000) >> 10);
            seen[6] = '\0';
        }
        sql92_escape(slice_of(text + start, bad - start), after, sizeof after);
        error_set(error, ERROR_INVALID,
                  "org.apache.rocketmq.filter.parser.TokenMgrError: Lexical error at line %u, column %u.  "
                  "Encountered: "
                  "\"%s\" (%u), after : \"%s\"",
                  line, column, seen, code, after);
    } else {
        /* One character alone is not shown. */
        bool alone = bad == start || size - start == 1;
        sql92_place(lexer->text, (uint32_t)(size - 1), &line, &column);
        sql92_escape(slice_of(text + start, alone ? 0 : size - start), after, sizeof after);
        if (text[size - 1] == '\n' || text[size - 1] == '\r') {
            line++;
            column = 0;
        } else {
            column++;
        }
        error_set(error, ERROR_INVALID,
                  "org.apache.rocketmq.filter.parser.TokenMgrError: Lexical error at line %u, column %u.  "
                  "Encountered: "
                  "<EOF> after : \"%s\"",
                  line, column, after);
    }
    return SQL92_LEXICAL_ERROR;
}

int sql92_lexer_next(struct sql92_lexer *lexer, struct sql92_token *token, struct error *error)
{
    size_t start = skip_blanks(lexer, lexer->at);
    uint8_t c = look(lexer, start);
    uint8_t next = look(lexer, start + 1);
    size_t end = start + 1;
    int kind = 0;

    if (start >= lexer->text.size) {
        *token = (struct sql92_token){(uint32_t)start, (uint32_t)start};
        lexer->at = (uint32_t)start;
        return 0;
    }
    switch (c) {
    case '(':
        kind = SQL92_TOKEN_LP;
        break;
    case ')':
        kind = SQL92_TOKEN_RP;
        break;
    case ',':
        kind = SQL92_TOKEN_COMMA;
        break;
    case '+':
        kind = SQL92_TOKEN_PLUS;
        break;
    case '-':
        kind = SQL92_TOKEN_MINUS;
        break;
    case '=':
        kind = SQL92_TOKEN_EQ;
        break;
    case '>':
        kind = next == '=' ? SQL92_TOKEN_GE : SQL92_TOKEN_GT;
        end += next == '=';
        break;
    case '<':
        kind = next == '=' ? SQL92_TOKEN_LE : next == '>' ? SQL92_TOKEN_NE : SQL92_TOKEN_LT;
        end += next == '=' || next == '>';
        break;
    case '\'':
        kind = SQL92_TOKEN_STRING;
        end = skip_string(lexer, start);
        break;
    default:
        if (is_digit(c) || c == '.') {
            end = skip_number(lexer, start, &kind);
        } else if (is_word(c)) {
            while (is_word(look(lexer, end)))
                end++;
            kind = word_kind(slice_of(lexer->text.data + start, end - start));
        } else {
            end = start;
        }
    }
    if (end == start)
        return lexical_error(lexer, start, error);
    *token = (struct sql92_token){(uint32_t)start, (uint32_t)end};
    lexer->at = (uint32_t)end;
    return kind;
}

void sql92_place(struct slice text, uint32_t at, uint32_t *line, uint32_t *column)
{
    const uint8_t *byte = text.data;
    const uint8_t *end = text.data + text.size;
    bool new_line = false;
    bool after_cr = false;

    *line = text.size == 0 ? 0 : 1;
    *column = 0;
    while (byte < end && byte <= text.data + at) {
        uint8_t c = *byte;
        /* A line feed behind a carriage return belongs to that line's end. */
        if (new_line && !(after_cr && c == '\n')) {
            ++*line;
            *column = 0;
        }
        new_line = c == '\n' || c == '\r';
        after_cr = c == '\r';
        bool last = byte == text.data + at;
        *column += utf8_next(&byte, end) > 0xFFFF && !last ? 2 : 1;
        if (c == '\t')
            *column = (*column - 1) / 8 * 8 + 8;
    }
}

void sql92_escape(struct slice text, char *out, size_t size)
{
    static const char special[] = "\b\t\n\f\r\"'\\";
    static const char letters[] = "btnfr\"'\\";
    const uint8_t *at = text.data;
    const uint8_t *end = text.data + text.size;
    char *last = out + size - 13; /* room for the longest step: two units and NUL */

    while (at < end && out < last) {
        uint32_t code = utf8_next(&at, end);
        const char *found = code == 0 || code > 0x7F ? NULL : memchr(special, (int)code, sizeof special - 1);
        if (found != NULL)
            out += sprintf(out, "\\%c", letters[found - special]);
        else if (code > 0xFFFF)
            out += sprintf(out, "\\u%04x\\u%04x", 0xD800 + ((code - 0x10000) >> 10), 0xDC00 + (code & 0x3FF));
        else if (code < 0x20 || code > 0x7E)
            out += code == 0 ? 0 : sprintf(out, "\\u%04x", code);
        else
            *out++ = (char)code;
    }
    *out = '\0';
}
