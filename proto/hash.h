/* Hashes that RocketMQ's formats depend on. */
#ifndef LEDGERMQ_PROTO_HASH_H
#define LEDGERMQ_PROTO_HASH_H

#include "proto/buffer.h"

/* java.lang.String.hashCode of UTF-8 text: 31*h + c over UTF-16 code units (surrogate pairs for 4-byte sequences). */
int32_t java_string_hash(struct slice text);
/* The same, continued: hash of (what gave `seed`) + text. */
int32_t java_string_hash_continue(int32_t seed, struct slice text);
/* Key of an index file: abs(hash of topic + "#" + key), abs(MIN_VALUE) = 0. */
uint32_t index_key_hash(struct slice topic, struct slice key);
/* tagsCode of a TAGS property: Java hash sign-extended, 0 for none. */
int64_t message_tags_code(struct slice tags);

#endif
