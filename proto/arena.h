/* Memory that is given back all at once: what one decoded body consists of.
 *
 * Nothing is freed alone. The limit is what keeps a hostile body from costing more memory than its size allows.
 */
#ifndef LEDGERMQ_PROTO_ARENA_H
#define LEDGERMQ_PROTO_ARENA_H

#include "proto/buffer.h"
#include "proto/error.h"

struct arena_chunk;

struct arena {
    struct arena_chunk *chunks; /* newest first */
    size_t used;                /* bytes handed out, rounded up */
    size_t limit;               /* of `used`; 0 = none */
    bool failed;                /* some allocation was refused */
    bool limit_hit;             /* and it was for the limit */
};

void arena_init(struct arena *arena, size_t limit);
/* Gives back everything. May be called again, and on a zeroed struct. */
void arena_close(struct arena *arena);
/* Zeroed and aligned for any type. NULL (and failed) when memory is short or the limit is reached; size 0 gives a valid
 * pointer. */
void *arena_alloc(struct arena *arena, size_t size);
void *arena_array(struct arena *arena, size_t count, size_t size);
/* A copy with a NUL behind it that its size does not count. data is NULL when it failed, and when `slice` has no data.
 */
struct slice arena_copy(struct arena *arena, struct slice slice);
/* Why an allocation failed: ERROR_TOO_LARGE or ERROR_NO_MEMORY; 0 when none did. */
int arena_error(const struct arena *arena, struct error *error);

#endif
