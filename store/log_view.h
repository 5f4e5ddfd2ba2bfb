/* How store reads the committed log without knowing who keeps it (dledger implements it).
 *
 * Offsets are physical offsets (entry position + 48). Nothing at or behind committed_offset() is ever returned.
 */
#ifndef LEDGERMQ_STORE_LOG_VIEW_H
#define LEDGERMQ_STORE_LOG_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct log_view {
    void *context;
    int64_t (*min_offset)(void *context);       /* first retained byte (a file start) */
    int64_t (*committed_offset)(void *context); /* end of the committed bytes */
    /* Pointer into the mapping, valid until control returns to the loop; NULL when not readable. May fault pages in: use for recent data. */
    const uint8_t *(*at)(void *context, int64_t offset, size_t size);
    /* Copies; blocks on a cold page. 0 or a negative errno (-ENOENT: outside the committed log). */
    int (*read)(void *context, int64_t offset, void *out, size_t size);
    /* Bytes of the committed entry of kind message whose body begins at offset; 0 when there is none: bytes that look like a record may stand
     * anywhere, in bodies and in raw entries. Blocks on a cold page. */
    uint32_t (*message_at)(void *context, int64_t offset);
    /* Known to be damaged on this disk: cannot be read until it has been repaired. May be NULL: nothing ever is. */
    bool (*damaged)(void *context, int64_t offset, size_t size);
};

#endif
