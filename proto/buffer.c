#include "proto/buffer.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

char *slice_to_text(struct slice slice)
{
    char *text = malloc(slice.size + 1);
    if (text == NULL)
        return NULL;
    if (slice.size > 0)
        memcpy(text, slice.data, slice.size);
    text[slice.size] = '\0';
    return text;
}

struct slice slice_copy(uint8_t **at, struct slice slice)
{
    if (slice.data == NULL)
        return slice;
    uint8_t *copy = *at;
    if (slice.size > 0)
        memcpy(copy, slice.data, slice.size);
    *at += slice.size;
    return slice_of(copy, slice.size);
}

struct slice slice_next_part(struct slice *list, uint8_t separator)
{
    while (list->size > 0) {
        const uint8_t *end = memchr(list->data, separator, list->size);
        struct slice part = slice_of(list->data, end == NULL ? list->size : (size_t)(end - list->data));
        size_t step = part.size + (end != NULL);
        *list = slice_of(list->data + step, list->size - step);
        if (part.size > 0)
            return part;
    }
    return slice_of(NULL, 0);
}

bool slice_to_i64(struct slice slice, int64_t *value)
{
    const uint8_t *at = slice.data;
    const uint8_t *end = slice.data + slice.size;
    bool negative = false;
    uint64_t sum = 0;

    if (at != end && (*at == '-' || *at == '+'))
        negative = *at++ == '-';
    if (at == end || end - at > 19)
        return false;
    for (; at != end; at++) {
        if (*at < '0' || *at > '9')
            return false;
        sum = sum * 10 + (uint64_t)(*at - '0');
    }
    if (sum > (uint64_t)INT64_MAX + (negative ? 1 : 0))
        return false;
    *value = negative ? (int64_t)(0 - sum) : (int64_t)sum;
    return true;
}

bool slice_to_i32(struct slice slice, int32_t *value)
{
    int64_t wide;
    if (!slice_to_i64(slice, &wide) || wide < INT32_MIN || wide > INT32_MAX)
        return false;
    *value = (int32_t)wide;
    return true;
}

bool slice_to_bool(struct slice slice, bool *value)
{
    *value = false;
    if (slice.size == 1 && (slice.data[0] == '0' || slice.data[0] == '1')) {
        *value = slice.data[0] == '1';
        return true;
    }
    if (slice.size == 4 && strncasecmp((const char *)slice.data, "true", 4) == 0) {
        *value = true;
        return true;
    }
    return slice.size == 5 && strncasecmp((const char *)slice.data, "false", 5) == 0;
}

void buffer_init(struct buffer *buffer, size_t limit)
{
    *buffer = (struct buffer){.limit = limit};
}

void buffer_close(struct buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct buffer){0};
}

void buffer_clear(struct buffer *buffer)
{
    buffer->size = 0;
    buffer->failed = false;
}

uint8_t *buffer_reserve(struct buffer *buffer, size_t size)
{
    if (buffer->failed)
        return NULL;
    if (buffer->capacity - buffer->size >= size && buffer->data != NULL)
        return buffer->data + buffer->size;
    size_t need = buffer->size + size;
    if (need < size || (buffer->limit != 0 && need > buffer->limit)) {
        buffer->failed = true;
        return NULL;
    }
    size_t capacity = buffer->capacity < 256 ? 256 : buffer->capacity;
    while (capacity < need)
        capacity *= 2;
    if (buffer->limit != 0 && capacity > buffer->limit)
        capacity = buffer->limit;
    uint8_t *data = realloc(buffer->data, capacity);
    if (data == NULL) {
        buffer->failed = true;
        return NULL;
    }
    buffer->data = data;
    buffer->capacity = capacity;
    return data + buffer->size;
}

void buffer_append(struct buffer *buffer, const void *data, size_t size)
{
    uint8_t *to = buffer_reserve(buffer, size);
    if (to == NULL || size == 0)
        return;
    memcpy(to, data, size);
    buffer->size += size;
}

void buffer_append_text(struct buffer *buffer, const char *text)
{
    buffer_append(buffer, text, strlen(text));
}

void buffer_append_format(struct buffer *buffer, const char *format, ...)
{
    va_list args;
    va_list again;
    va_start(args, format);
    va_copy(again, args);
    int size = vsnprintf(NULL, 0, format, args);
    va_end(args);
    uint8_t *to = size < 0 ? NULL : buffer_reserve(buffer, (size_t)size + 1);
    if (to != NULL) {
        vsnprintf((char *)to, (size_t)size + 1, format, again);
        buffer->size += (size_t)size;
    }
    va_end(again);
}

void buffer_append_u8(struct buffer *buffer, uint8_t value)
{
    buffer_append(buffer, &value, 1);
}

void buffer_append_u16(struct buffer *buffer, uint16_t value)
{
    uint8_t bytes[2];
    store_u16(bytes, value);
    buffer_append(buffer, bytes, sizeof bytes);
}

void buffer_append_u32(struct buffer *buffer, uint32_t value)
{
    uint8_t bytes[4];
    store_u32(bytes, value);
    buffer_append(buffer, bytes, sizeof bytes);
}

void buffer_append_u64(struct buffer *buffer, uint64_t value)
{
    uint8_t bytes[8];
    store_u64(bytes, value);
    buffer_append(buffer, bytes, sizeof bytes);
}

static const uint8_t *cursor_take(struct cursor *cursor, size_t size)
{
    if (cursor->failed || cursor_left(cursor) < size) {
        cursor->failed = true;
        return NULL;
    }
    const uint8_t *at = cursor->at;
    cursor->at += size;
    return at;
}

uint8_t cursor_u8(struct cursor *cursor)
{
    const uint8_t *at = cursor_take(cursor, 1);
    return at == NULL ? 0 : *at;
}

uint16_t cursor_u16(struct cursor *cursor)
{
    const uint8_t *at = cursor_take(cursor, 2);
    return at == NULL ? 0 : load_u16(at);
}

uint32_t cursor_u32(struct cursor *cursor)
{
    const uint8_t *at = cursor_take(cursor, 4);
    return at == NULL ? 0 : load_u32(at);
}

uint64_t cursor_u64(struct cursor *cursor)
{
    const uint8_t *at = cursor_take(cursor, 8);
    return at == NULL ? 0 : load_u64(at);
}

struct slice cursor_slice(struct cursor *cursor, size_t size)
{
    const uint8_t *at = cursor_take(cursor, size);
    return at == NULL ? (struct slice){0} : slice_of(at, size);
}
