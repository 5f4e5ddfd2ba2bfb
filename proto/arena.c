#include "proto/arena.h"

#include <stdalign.h>
#include <stdlib.h>

#define CHUNK_SIZE_MIN 4096u
#define ALIGNMENT alignof(max_align_t)

struct arena_chunk {
    struct arena_chunk *next;
    size_t used;
    size_t size;
    alignas(max_align_t) uint8_t bytes[];
};

void arena_init(struct arena *arena, size_t limit)
{
    *arena = (struct arena){.limit = limit};
}

void arena_close(struct arena *arena)
{
    while (arena->chunks != NULL) {
        struct arena_chunk *next = arena->chunks->next;
        free(arena->chunks);
        arena->chunks = next;
    }
    *arena = (struct arena){.limit = arena->limit};
}

void *arena_alloc(struct arena *arena, size_t size)
{
    struct arena_chunk *chunk = arena->chunks;
    size_t rounded = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;

    if (arena->failed)
        return NULL;
    if (rounded < size || (arena->limit != 0 && rounded > arena->limit - arena->used)) {
        arena->failed = true;
        arena->limit_hit = true;
        return NULL;
    }
    if (chunk == NULL || rounded > chunk->size - chunk->used) {
        size_t bytes = rounded > CHUNK_SIZE_MIN ? rounded : CHUNK_SIZE_MIN;
        chunk = bytes > SIZE_MAX - sizeof *chunk ? NULL : calloc(1, sizeof *chunk + bytes);
        if (chunk == NULL) {
            arena->failed = true;
            return NULL;
        }
        chunk->size = bytes;
        chunk->next = arena->chunks;
        arena->chunks = chunk;
    }
    void *result = chunk->bytes + chunk->used;
    chunk->used += rounded;
    arena->used += rounded;
    return result;
}

void *arena_array(struct arena *arena, size_t count, size_t size)
{
    return arena_alloc(arena, size != 0 && count > SIZE_MAX / size ? SIZE_MAX : count * size);
}

struct slice arena_copy(struct arena *arena, struct slice slice)
{
    if (slice.data == NULL || slice.size == SIZE_MAX)
        return (struct slice){0};
    uint8_t *copy = arena_alloc(arena, slice.size + 1);
    if (copy == NULL)
        return (struct slice){0};
    memcpy(copy, slice.data, slice.size);
    return slice_of(copy, slice.size);
}

int arena_error(const struct arena *arena, struct error *error)
{
    if (!arena->failed)
        return 0;
    if (arena->limit_hit)
        return error_set(error, ERROR_TOO_LARGE, "more than %zu bytes when decoded", arena->limit);
    return error_set(error, ERROR_NO_MEMORY, "out of memory");
}
