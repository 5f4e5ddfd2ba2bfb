/* Bytes: a borrowed slice, a growing output buffer, and a reading cursor that cannot run past the end.
 *
 * All integers on RocketMQ's wire and disk are big-endian; the helpers here convert.
 */
#ifndef LEDGERMQ_PROTO_BUFFER_H
#define LEDGERMQ_PROTO_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Borrowed: valid until the event that its giver names. Not NUL-terminated. */
struct slice {
    const uint8_t *data;
    size_t size;
};

#define SLICE_LITERAL(text) ((struct slice){(const uint8_t *)("" text), sizeof(text) - 1})

static inline struct slice slice_of(const void *data, size_t size)
{
    return (struct slice){(const uint8_t *)data, size};
}

static inline struct slice slice_of_text(const char *text)
{
    return (struct slice){(const uint8_t *)text, text == NULL ? 0 : strlen(text)};
}

static inline bool slice_equal(struct slice a, struct slice b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

static inline bool slice_equal_text(struct slice a, const char *text)
{
    return slice_equal(a, slice_of_text(text));
}

static inline bool slice_starts_with(struct slice a, const char *text)
{
    size_t size = strlen(text);
    return a.size >= size && memcmp(a.data, text, size) == 0;
}

static inline bool slice_holds(struct slice slice, uint8_t byte)
{
    return slice.size > 0 && memchr(slice.data, byte, slice.size) != NULL;
}

/* Heap copy with a NUL behind it; NULL when memory is short. Caller frees. */
char *slice_to_text(struct slice slice);
/* Copies the bytes to *at, which then stands behind them: what outlives a frame keeps its texts in one block. An absent slice stays absent. */
struct slice slice_copy(uint8_t **at, struct slice slice);
/* Takes the next part off a list that `separator` joins; empty parts are skipped, an empty one is returned at the end. */
struct slice slice_next_part(struct slice *list, uint8_t separator);
/* Decimal, optional sign, whole slice. False when it is not a number or does not fit. */
bool slice_to_i64(struct slice slice, int64_t *value);
bool slice_to_i32(struct slice slice, int32_t *value);
/* "true"/"false" in any case, "1"/"0" (the C++ client). Anything else is false with ok = false. */
bool slice_to_bool(struct slice slice, bool *value);

static inline uint16_t load_u16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return __builtin_bswap16(v);
}
static inline uint32_t load_u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return __builtin_bswap32(v);
}
static inline uint64_t load_u64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return __builtin_bswap64(v);
}
static inline void store_u16(uint8_t *p, uint16_t v)
{
    v = __builtin_bswap16(v);
    memcpy(p, &v, sizeof v);
}
static inline void store_u32(uint8_t *p, uint32_t v)
{
    v = __builtin_bswap32(v);
    memcpy(p, &v, sizeof v);
}
static inline void store_u64(uint8_t *p, uint64_t v)
{
    v = __builtin_bswap64(v);
    memcpy(p, &v, sizeof v);
}

/* Output. Grows by doubling up to `limit` bytes (0 = none); a failed growth sets `failed` and all later appends do
 * nothing, so that a writer checks once at its end. */
struct buffer {
    uint8_t *data;
    size_t size;
    size_t capacity;
    size_t limit;
    bool failed;
};

void buffer_init(struct buffer *buffer, size_t limit);
void buffer_close(struct buffer *buffer);
/* Keeps the memory. */
void buffer_clear(struct buffer *buffer);
/* Makes room for `size` more bytes and returns where they go, NULL when it cannot (failed is set). Does not move size. */
uint8_t *buffer_reserve(struct buffer *buffer, size_t size);
void buffer_append(struct buffer *buffer, const void *data, size_t size);
void buffer_append_text(struct buffer *buffer, const char *text);
void buffer_append_format(struct buffer *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buffer_append_u8(struct buffer *buffer, uint8_t value);
void buffer_append_u16(struct buffer *buffer, uint16_t value);
void buffer_append_u32(struct buffer *buffer, uint32_t value);
void buffer_append_u64(struct buffer *buffer, uint64_t value);
static inline void buffer_append_slice(struct buffer *buffer, struct slice slice)
{
    buffer_append(buffer, slice.data, slice.size);
}
static inline struct slice buffer_slice(const struct buffer *buffer)
{
    return slice_of(buffer->data, buffer->size);
}

/* Reading. Running out sets `failed` and yields zeros, so that a decoder is straight-line and checks once. */
struct cursor {
    const uint8_t *at;
    const uint8_t *end;
    bool failed;
};

static inline struct cursor cursor_of(struct slice slice)
{
    return (struct cursor){slice.data, slice.data + slice.size, false};
}
static inline size_t cursor_left(const struct cursor *cursor)
{
    return (size_t)(cursor->end - cursor->at);
}
uint8_t cursor_u8(struct cursor *cursor);
uint16_t cursor_u16(struct cursor *cursor);
uint32_t cursor_u32(struct cursor *cursor);
uint64_t cursor_u64(struct cursor *cursor);
struct slice cursor_slice(struct cursor *cursor, size_t size);

#endif
