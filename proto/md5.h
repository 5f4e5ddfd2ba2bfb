/* MD5 (RFC 1321): where RocketMQ spreads keys with it. Not for anything that must resist an attacker. */
#ifndef LEDGERMQ_PROTO_MD5_H
#define LEDGERMQ_PROTO_MD5_H

#include "proto/buffer.h"

#define MD5_SIZE 16u

void md5(struct slice bytes, uint8_t digest[MD5_SIZE]);

#endif
