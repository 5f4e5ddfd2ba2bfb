/* JSON as RocketMQ's peers write it: a reader over jsmn and a writer whose bytes equal those of fastjson.
 *
 * The reader takes what fastjson, jsoncpp and Go produce: bare integer keys ({0:"a"}), whole objects as keys
 * ({{"brokerName":"b"}:1}), numbers and booleans as strings and the other way round, enums as names or ordinals,
 * unquoted and simple single-quoted words, trailing commas. Names and values stay slices of the text; a string with
 * escapes is undone into memory of the document. For request headers see remoting_command.h, which does without
 * tokens.
 */
#ifndef LEDGERMQ_PROTO_JSON_H
#define LEDGERMQ_PROTO_JSON_H

#include "proto/buffer.h"
#include "proto/error.h"

#define JSON_DEPTH_MAX 32u
#define JSON_TOKENS_MAX (1u << 21) /* a 16 MiB frame of ordinary bodies stays below a quarter of this */

/* Layout of jsmn's token, which it is while parsing; `next` then takes the place of jsmn's parent link. */
struct json_token {
    int type;  /* 1 object, 2 array, 3 string, 4 primitive */
    int start; /* strings: behind the quote */
    int end;
    int size; /* object: members, array: elements */
    int next; /* token behind this one and all below it */
};

struct json_document {
    struct slice text; /* borrowed: must outlive the document */
    struct json_token *tokens;
    uint32_t count;
    uint32_t capacity;
    bool owned;         /* tokens are ours to grow and free */
    uint8_t *unescaped; /* as large as text, made at the first string with escapes; each string has its own place */
};

/* A place in a document, or nowhere (document NULL), for which all functions answer as for an absent member. */
struct json_value {
    struct json_document *document;
    int at;
};

/* Parses text. tokens NULL: grown on the heap up to JSON_TOKENS_MAX; else the caller's array, no heap but for
 * escapes. ERROR_MALFORMED (syntax, deeper than JSON_DEPTH_MAX), ERROR_TOO_LARGE (too many tokens), ERROR_NO_MEMORY.
 * After an error there is nothing to close. */
int json_parse(struct json_document *document, struct slice text, struct json_token *tokens, uint32_t capacity,
               struct error *error);
void json_close(struct json_document *document);

struct json_value json_root(struct json_document *document);
/* Member of that name (the last one wins), nowhere when absent or when object is none. */
struct json_value json_get(struct json_value object, const char *name);

bool json_is_object(struct json_value value);
bool json_is_array(struct json_value value);
bool json_is_string(struct json_value value); /* quoted */
/* True for null and for nowhere: RocketMQ's Java leaves null members out, others write them. */
bool json_is_null(struct json_value value);
/* Members or elements; 0 for all else. */
uint32_t json_size(struct json_value value);
/* Bytes of the value as they stand, with the quotes of a string: to keep or relay a part untouched. */
struct slice json_raw(struct json_value value);

/* Each answers false when the value is nowhere, null or of another kind, and then leaves *out alone. */
/* A string, undone, or the letters of a number or boolean; lives as long as the document. */
bool json_text(struct json_value value, struct slice *out);
bool json_i64(struct json_value value, int64_t *out);       /* number or quoted number */
bool json_i32(struct json_value value, int32_t *out);
bool json_double(struct json_value value, double *out);
bool json_bool(struct json_value value, bool *out); /* true, false, 1, 0, also quoted */
/* Name or ordinal of an enum whose names are given in order. */
bool json_enum(struct json_value value, const char *const *names, int count, int *ordinal);

/* Walks members or elements. name of a member: a string, a bare word or integer, or an object. */
struct json_iterator {
    struct json_value container;
    int at;
    uint32_t left;
};
struct json_iterator json_iterate(struct json_value container);
bool json_next_member(struct json_iterator *iterator, struct json_value *name, struct json_value *value);
bool json_next_element(struct json_iterator *iterator, struct json_value *element);

/* Members of a bean. Absent and null keep *out as the caller set it; a wrong kind is ERROR_INVALID naming the field. */
int json_read_text(struct json_value object, const char *name, struct slice *out, struct error *error);
int json_read_i64(struct json_value object, const char *name, int64_t *out, struct error *error);
int json_read_i32(struct json_value object, const char *name, int32_t *out, struct error *error);
int json_read_bool(struct json_value object, const char *name, bool *out, struct error *error);
int json_read_enum(struct json_value object, const char *name, const char *const *names, int count, int *ordinal,
                   struct error *error);

/* Writing: fastjson's bytes (no spaces, short escapes or \u00XX for control characters, U+2028 and U+2029 escaped,
 * `/` and other letters as they are). Commas come by themselves. Members are in the order of the calls: RocketMQ's is
 * alphabetical. A failed growth shows in out->failed. */
struct json_writer {
    struct buffer *out;
    bool comma; /* something stands before the next member or element */
};

void json_writer_init(struct json_writer *writer, struct buffer *out);
void json_write_begin_object(struct json_writer *writer);
void json_write_end_object(struct json_writer *writer);
void json_write_begin_array(struct json_writer *writer);
void json_write_end_array(struct json_writer *writer);
void json_write_key(struct json_writer *writer, const char *key);
void json_write_key_slice(struct json_writer *writer, struct slice key);
void json_write_key_i64(struct json_writer *writer, int64_t key);        /* 0: for Integer and Long keys */
void json_write_key_i64_quoted(struct json_writer *writer, int64_t key); /* "0": for readers of standard JSON */
/* The key is a whole object: begin, members of the key, end, then the value. */
void json_write_begin_key_object(struct json_writer *writer);
void json_write_end_key_object(struct json_writer *writer);
void json_write_text(struct json_writer *writer, const char *text); /* NULL: null */
void json_write_slice(struct json_writer *writer, struct slice text); /* data NULL: null */
void json_write_i64(struct json_writer *writer, int64_t value);
void json_write_double(struct json_writer *writer, double value); /* as Double.toString; NaN and infinity: null */
void json_write_bool(struct json_writer *writer, bool value);
void json_write_null(struct json_writer *writer);
void json_write_raw(struct json_writer *writer, struct slice json); /* a value that is JSON already */
/* Key and value in one. text and slice leave the member out when NULL, as fastjson does. */
void json_write_member_text(struct json_writer *writer, const char *key, const char *text);
void json_write_member_slice(struct json_writer *writer, const char *key, struct slice text);
void json_write_member_i64(struct json_writer *writer, const char *key, int64_t value);
void json_write_member_double(struct json_writer *writer, const char *key, double value);
void json_write_member_bool(struct json_writer *writer, const char *key, bool value);

/* Text of a JSON string without its quotes: the escapes of the writer, also for hand-made JSON. */
void json_append_escaped(struct buffer *out, struct slice text);

#endif
