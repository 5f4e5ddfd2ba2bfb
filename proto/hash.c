#include "proto/hash.h"

#include "proto/utf8.h"

#define POWER_2 (31u * 31u)
#define POWER_3 (POWER_2 * 31u)
#define POWER_4 (POWER_3 * 31u)

int32_t java_string_hash_continue(int32_t seed, struct slice text)
{
    uint32_t hash = (uint32_t)seed;
    const uint8_t *at = text.data;
    const uint8_t *end = text.data + text.size;

    /* Names are ASCII nearly always; four at a time break the chain of multiplications. */
    while (end - at >= 4 && ((at[0] | at[1] | at[2] | at[3]) & 0x80) == 0) {
        hash = hash * POWER_4 + at[0] * POWER_3 + at[1] * POWER_2 + at[2] * 31u + at[3];
        at += 4;
    }
    while (at != end) {
        uint32_t code = utf8_next(&at, end);
        if (code >= 0x10000) {
            code -= 0x10000;
            hash = hash * 31 + (0xD800 | code >> 10);
            code = 0xDC00 | (code & 0x3FF);
        }
        hash = hash * 31 + code;
    }
    return (int32_t)hash;
}

int32_t java_string_hash(struct slice text)
{
    return java_string_hash_continue(0, text);
}

uint32_t index_key_hash(struct slice topic, struct slice key)
{
    int32_t hash = java_string_hash(topic);
    hash = java_string_hash_continue(hash, SLICE_LITERAL("#"));
    hash = java_string_hash_continue(hash, key);
    /* Math.abs(MIN_VALUE) is negative in Java; IndexFile makes 0 of it. */
    if (hash == INT32_MIN)
        return 0;
    return (uint32_t)(hash < 0 ? -hash : hash);
}

int64_t message_tags_code(struct slice tags)
{
    return tags.size == 0 ? 0 : java_string_hash(tags);
}
