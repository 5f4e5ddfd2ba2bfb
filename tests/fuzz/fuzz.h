/* What the fuzz targets share. */
#ifndef LEDGERMQ_TESTS_FUZZ_H
#define LEDGERMQ_TESTS_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/buffer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                  \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

/* A slice lies in its frame, or is nowhere. */
static inline void check_inside(struct slice slice, const uint8_t *data, size_t size)
{
    CHECK(slice.data != NULL || slice.size == 0);
    CHECK(slice.data == NULL || (slice.data >= data && slice.size <= size && slice.data <= data + size - slice.size));
}

/* A frame around a header: the first byte says the serialize type, a NUL byte (if any) in a JSON header starts the
 * body. Heap memory of exactly the frame's size. */
static inline uint8_t *frame_around(const uint8_t *data, size_t size, size_t *frame_size)
{
    uint8_t type = size == 0 ? 0 : data[0];
    const uint8_t *header = size == 0 ? data : data + 1;
    size_t left = size == 0 ? 0 : size - 1;
    const uint8_t *body = type == 0 && left > 0 ? memchr(header, 0, left) : NULL;
    size_t header_size = body == NULL ? left : (size_t)(body - header);
    uint8_t *frame = malloc(8 + left);
    CHECK(frame != NULL);
    store_u32(frame, (uint32_t)(4 + left));
    store_u32(frame + 4, (uint32_t)type << 24 | (uint32_t)header_size);
    if (left > 0)
        memcpy(frame + 8, header, left);
    *frame_size = 8 + left;
    return frame;
}

#endif
