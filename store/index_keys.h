/* The keys of a record that the index holds, in the order in which they stand there: UNIQ_KEY, then the words of KEYS. Any thread. */
#ifndef LEDGERMQ_STORE_INDEX_KEYS_H
#define LEDGERMQ_STORE_INDEX_KEYS_H

#include "proto/hash.h"
#include "proto/message.h"

struct index_keys {
    int32_t seed; /* Java hash of topic + "#" */
    uint32_t left;
    struct slice unique;
    struct slice rest;
};

static inline int32_t index_keys_seed(struct slice topic)
{
    return java_string_hash_continue(java_string_hash(topic), SLICE_LITERAL("#"));
}

/* entries: places of an index file, entry 0 included; a record gets no more keys than one file can hold. */
static inline void index_keys_init(struct index_keys *keys, const struct message_dispatch *dispatch, int32_t seed, uint32_t entries)
{
    *keys = (struct index_keys){.seed = seed, .left = dispatch->uniq_key.size > 0 ? 1 : 0, .unique = dispatch->uniq_key, .rest = dispatch->keys};
    struct slice rest = dispatch->keys;
    if (rest.data != NULL)
        while (slice_next_part(&rest, ' ').size > 0)
            keys->left++;
    if (keys->left >= entries)
        keys->left = entries - 1;
}

static inline bool index_keys_next(struct index_keys *keys, uint32_t *hash)
{
    if (keys->left == 0)
        return false;
    keys->left--;
    struct slice key = keys->unique;
    keys->unique = slice_of(NULL, 0);
    if (key.size == 0)
        key = slice_next_part(&keys->rest, ' ');
    int32_t signed_hash = java_string_hash_continue(keys->seed, key);
    *hash = signed_hash == INT32_MIN ? 0 : (uint32_t)(signed_hash < 0 ? -signed_hash : signed_hash);
    return true;
}

#endif
