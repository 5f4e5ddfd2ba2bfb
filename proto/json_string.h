/* The letters inside JSON strings, shared by the header codec (remoting_command.c) and the body codec (json.c): escapes undone and made as fastjson
 * does. */
#ifndef LEDGERMQ_PROTO_JSON_STRING_H
#define LEDGERMQ_PROTO_JSON_STRING_H

#include "proto/buffer.h"

/* Undoes the escape at *at (a backslash) and moves *at behind it. Takes all that fastjson takes: the short forms, \uXXXX with surrogate pairs, \xXX,
 * \0 to \7, \v. A lone surrogate becomes '?', as it does when Java encodes one. What is written is shorter than the escape, so `to` may be the
 * text itself. Returns the end of what was written, NULL for an unknown or unfinished escape. */
uint8_t *json_unescape_one(const uint8_t **at, const uint8_t *end, uint8_t *to);

/* The same for a whole string, the text between the quotes. */
uint8_t *json_unescape(const uint8_t *from, const uint8_t *end, uint8_t *to);

/* 1 for bytes that cannot stand in a JSON string as they are or that start a character which may not: ", \, below 0x20, 0x7F, 0xC2, 0xE2. */
extern const uint8_t json_special[256];

#define JSON_ESCAPE_MAX 6u /* bytes that one byte of text can become */
/* Writes text with its escapes; `to` has room for JSON_ESCAPE_MAX * size. Returns the end. */
uint8_t *json_escape(const uint8_t *from, const uint8_t *end, uint8_t *to);

#endif
