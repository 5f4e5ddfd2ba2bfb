/* Says no to bytes that another version of this program wrote.
 *
 * Every file and every message between members carries a version, at a place and under a checksum that never change, so that an older program can tell
 * "newer than I am" from "damaged". What a next version may do is in docs/architecture.md.
 */
#ifndef LEDGERMQ_STORE_FORMAT_VERSION_H
#define LEDGERMQ_STORE_FORMAT_VERSION_H

#include <stdint.h>

#include "proto/error.h"
#include "store/env.h"

/* Fills error and returns ERROR_VERSION. what: the file, and whatever else tells where. */
int format_version_unknown(struct error *error, const char *what, uint32_t found, uint32_t newest);

#define STORE_FORMAT_VERSION 1u
/* The file `format` of a store's root says how everything below it is laid out, also what has no version of its own because RocketMQ's has none
 * (consumequeue, index, config). Made when it is missing: that is version 1. ERROR_VERSION, ERROR_IO, ERROR_NO_SPACE. */
int format_version_check(struct env *env, const char *root, struct error *error);

#endif
