/* uthash with XXH3 as its hash function: include this instead of uthash.h, so that every file that touches a table hashes alike. */
#ifndef LEDGERMQ_BROKER_HASH_TABLE_H
#define LEDGERMQ_BROKER_HASH_TABLE_H

#ifndef XXH_INLINE_ALL
#define XXH_INLINE_ALL
#endif
#include <xxhash.h>

#define HASH_FUNCTION(key, length, hash) (hash) = (unsigned)XXH3_64bits((key), (length))
#include <uthash.h>

#endif
