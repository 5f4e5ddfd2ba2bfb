/* The letters inside JSON strings, shared by the header codec (remoting_command.c) and the body codec (json.c):
 * escapes undone and made as fastjson does. */
#ifndef LEDGERMQ_PROTO_JSON_STRING_H
#define LEDGERMQ_PROTO_JSON_STRING_H

#include "proto/buffer.h"

/* Undoes the escape at *at (a backslash) and moves *at behind it. Takes all that fastjson takes: the short forms,
 * \uXXXX with surrogate pairs, \xXX, \0 to \7, \v. A lone surrogate becomes '?', as it does when Java encodes one.
 * What is written is shorter than the escape, so `to` may be the text itself. Returns the end of what was written,
 * NULL for an unknown or unfinished escape. */
uint8_t *json_unescape_one(const uint8_t **at, const uint8_t *end, uint8_t *to);

/* The same for a whole string, the text between the quotes. */
uint8_t *json_unescape(const uint8_t *from, const uint8_t *end, uint8_t *to);

/* 1 for bytes that cannot stand in a JSON string as they are or that start a character which may not: ", \, below
 * 0x20, 0x7F, 0xC2, 0xE2. */
extern const uint8_t json_special[256];

#define JSON_ESCAPE_MAX 6u /* bytes that one byte of text can become */
/* Writes text with its escapes; `to` has room for JSON_ESCAPE_MAX * size. Returns the end. */
uint8_t *json_escape(const uint8_t *from, const uint8_t *end, uint8_t *to);

/* Eight letters at a time, as one number in memory order (the low byte is the first letter). */
#define JSON_ONES 0x0101010101010101ull
#define JSON_HIGHS 0x8080808080808080ull

static inline uint64_t json_zero_bytes(uint64_t word)
{
    /* Exact up to and including the first zero byte, which is all that is asked. */
    return (word - JSON_ONES) & ~word & JSON_HIGHS;
}

static inline uint64_t json_quote_or_escape(uint64_t word, uint64_t quotes)
{
    return json_zero_bytes(word ^ quotes) | json_zero_bytes(word ^ JSON_ONES * '\\');
}

static inline unsigned json_first_byte(uint64_t marks)
{
    return (unsigned)__builtin_ctzll(marks) / 8;
}

/* Does text go into a JSON string as it is? Anything but plain ASCII says no and is looked at letter by letter. */
static inline bool json_is_plain(const uint8_t *at, size_t size)
{
    while (size >= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        /* A byte below 0x20 or above 0x7F, 0x7F itself, a quote, a backslash. */
        uint64_t odd = ((word - JSON_ONES * 0x20) | word | (word + JSON_ONES)) & JSON_HIGHS;
        if ((odd | json_quote_or_escape(word, JSON_ONES * '"')) != 0)
            return false;
        at += 8;
        size -= 8;
    }
    for (; size > 0; at++, size--) {
        if (json_special[*at] || *at >= 0x80)
            return false;
    }
    return true;
}

#endif
