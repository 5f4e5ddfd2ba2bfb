/* Bodies made smaller, and back, in the formats that RocketMQ's clients read: zlib, LZ4 frames, Zstandard.
 *
 * Follows org.apache.rocketmq.common.compression 4.9.8. Which one it is stands in three bits of a message's
 * sysFlag; 0 is zlib too, from clients that know no other.
 */
#ifndef LEDGERMQ_CLIENT_COMPRESSION_H
#define LEDGERMQ_CLIENT_COMPRESSION_H

#include "proto/buffer.h"
#include "proto/error.h"

enum compression_type {
    COMPRESSION_NONE_SAID = 0x000,
    COMPRESSION_LZ4 = 0x100,
    COMPRESSION_ZSTD = 0x200,
    COMPRESSION_ZLIB = 0x300,
};

/* Whether compression_expand() knows the type in these flags. */
bool compression_is_known(int sys_flag);
/* Returns the compressed body, to be freed, and its size; NULL, with *size as it was, when it does not get
 * smaller or memory is short: then the body is sent as it is. level is not used by LZ4. */
void *compression_compress(enum compression_type type, int level, const void *body, size_t *size);
/* Appends the original to out, whose limit bounds it. ERROR_MALFORMED: damaged or cut off. ERROR_NO_MEMORY:
 * also when it is larger than the limit. */
int compression_expand(int sys_flag, struct slice body, struct buffer *out);

#endif
