#include "dledger/heard_file.h"

#include <limits.h>
#include <stdio.h>

#include "proto/buffer.h"
#include "proto/ledger_entry.h" /* crc32c */
#include "store/format_version.h"
#include "store/log_sink.h"
#include "store/state_file.h"

/* magic 4 | version 4 | term 8 | configuration 8 | crc32c of those 24 bytes 4. */
#define HEARD_MAGIC 0x4C4D5148u /* "LMQH" */
#define HEARD_VERSION 1u
#define HEARD_SIZE 28u
#define HEARD_SIZE_MAX 4096u /* of a later version */

/* Of a later version too: magic, version and the checksum at the end stay where they are. */
static bool is_whole(struct slice content)
{
    return content.size >= 12 && load_u32(content.data) == HEARD_MAGIC &&
           load_u32(content.data + content.size - 4) == crc32c(0, content.data, content.size - 4) &&
           (load_u32(content.data + 4) > HEARD_VERSION || content.size == HEARD_SIZE);
}

int heard_file_load(struct heard_group *heard, struct env *env, const char *path, struct error *error)
{
    struct buffer content;
    char backup[PATH_MAX];

    *heard = (struct heard_group){0};
    if (snprintf(backup, sizeof backup, "%s.bak", path) >= (int)sizeof backup)
        return error_set(error, ERROR_INVALID, "%s: too long", path);
    buffer_init(&content, 0);
    /* The one before says less: it counts only where a save did not come to its end. */
    int rv = state_file_read_whole(env, path, HEARD_SIZE_MAX, &content, error);
    if (rv == ERROR_NOT_FOUND)
        rv = state_file_read_whole(env, backup, HEARD_SIZE_MAX, &content, error);
    if (rv == 0 && !is_whole(buffer_slice(&content)))
        rv = error_set(error, ERROR_DAMAGED, "%s has wrong content", path);
    if (rv == 0 && load_u32(content.data + 4) > HEARD_VERSION) {
        rv = format_version_unknown(error, path, load_u32(content.data + 4), HEARD_VERSION);
    } else if (rv == 0) {
        heard->term = load_u64(content.data + 8);
        heard->configuration = load_u64(content.data + 16);
    } else if (rv == ERROR_NOT_FOUND) {
        rv = 0;
    } else if (rv == ERROR_DAMAGED) {
        LOG_ERROR("%s: while this member is mute it waits for a leader, and elects nobody itself", error->message);
        heard->term = UINT64_MAX;
        rv = 0;
    }
    buffer_close(&content);
    return rv;
}

int heard_file_save(const struct heard_group *heard, struct env *env, const char *path, struct error *error)
{
    uint8_t file[HEARD_SIZE];

    store_u32(file, HEARD_MAGIC);
    store_u32(file + 4, HEARD_VERSION);
    store_u64(file + 8, heard->term);
    store_u64(file + 16, heard->configuration);
    store_u32(file + 24, crc32c(0, file, 24));
    return state_file_write(env, path, slice_of(file, sizeof file), error);
}
