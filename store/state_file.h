/* A small file that is replaced whole: the new content is written and synced beside it, then takes its name; the old one stays as .bak.
 *
 * Follows org.apache.rocketmq.common.ConfigManager (names .tmp and .bak), with the syncs that it leaves out.
 */
#ifndef LEDGERMQ_STORE_STATE_FILE_H
#define LEDGERMQ_STORE_STATE_FILE_H

#include "proto/buffer.h"
#include "proto/error.h"
#include "store/env.h"

/* Durable on return; on failure the old content is still there under the name or as .bak. Makes the directory when it is missing. Blocks: large
 * files belong on the pool. ERROR_IO, ERROR_NO_SPACE. */
int state_file_write(struct env *env, const char *path, struct slice content, struct error *error);

/* Appends the content to `out` (cleared first). Falls back to .bak when the file is missing, larger than size_max, or refused by `check` (0 = good;
 * may be NULL; error says why when both are refused). ERROR_NOT_FOUND: there is neither. ERROR_IO, ERROR_DAMAGED (none is good), ERROR_NO_MEMORY. */
int state_file_read(struct env *env, const char *path, uint64_t size_max, int (*check)(void *argument, struct slice content), void *argument,
                    struct buffer *out, struct error *error);

/* One file without a .bak, appended to `out` (cleared first). ERROR_NOT_FOUND, ERROR_DAMAGED (larger than size_max), ERROR_IO, ERROR_NO_MEMORY. */
int state_file_read_whole(struct env *env, const char *path, uint64_t size_max, struct buffer *out, struct error *error);

/* Removes the file and its .bak and .tmp; a missing one is fine. */
int state_file_remove(struct env *env, const char *path, struct error *error);

#endif
