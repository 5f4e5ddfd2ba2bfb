#include <assert.h>

#include "proto/decimal.h"
#include "proto/json.h"
#include "proto/json_string.h"
#include "proto/remoting_command.h"

#define PREFIX_SIZE 8u            /* length field and header word */
#define HEADER_SIZE_MAX 0xFFFFFFu /* 24 bits of the header word */

static inline uint8_t *room(struct buffer *out, size_t size)
{
    if (out->capacity - out->size >= size && !out->failed && out->data != NULL)
        return out->data + out->size;
    return buffer_reserve(out, size);
}

static inline void advance(struct buffer *out, const uint8_t *to)
{
    out->size = (size_t)(to - out->data);
}

#define PUT_LITERAL(to, text) (memcpy(to, text, sizeof(text) - 1), (to) + sizeof(text) - 1)

static inline uint8_t *put_bytes(uint8_t *to, const void *data, size_t size)
{
    memcpy(to, data, size);
    return to + size;
}

static void begin(struct remoting_writer *writer, struct buffer *out, uint8_t serialize_type, int32_t code,
                  int32_t opaque,
                  int32_t flag, const char *remark)
{
    *writer = (struct remoting_writer){.out = out, .frame_start = out->size, .header_start = out->size + PREFIX_SIZE,
                                       .serialize_type = serialize_type, .code = code, .opaque = opaque,
                                       .flag = flag, .remark = remark};
    size_t remark_size = remark == NULL ? 0 : strlen(remark);
    uint8_t *to = room(out, PREFIX_SIZE + 32 + (serialize_type == REMOTING_BINARY ? remark_size : 0));
    if (to == NULL)
        return;
    to += PREFIX_SIZE;
    if (serialize_type == REMOTING_BINARY) {
        store_u16(to, (uint16_t)code);
        to[2] = REMOTING_LANGUAGE_JAVA;
        store_u16(to + 3, REMOTING_VERSION);
        store_u32(to + 5, (uint32_t)opaque);
        store_u32(to + 9, (uint32_t)flag);
        store_u32(to + 13, (uint32_t)remark_size);
        to = put_bytes(to + 17, remark_size == 0 ? "" : remark, remark_size);
        writer->ext_start = (size_t)(to - out->data);
        to += 4;
    } else {
        to = PUT_LITERAL(to, "{\"code\":");
        to = decimal_put(to, code);
    }
    advance(out, to);
}

void remoting_writer_begin_response(struct remoting_writer *writer, struct buffer *out, uint8_t serialize_type,
                                    int32_t code,
                                    int32_t opaque, const char *remark)
{
    begin(writer, out, serialize_type, code, opaque, REMOTING_FLAG_RESPONSE, remark);
}

void remoting_writer_begin_request(struct remoting_writer *writer, struct buffer *out, uint8_t serialize_type,
                                   int32_t code,
                                   int32_t opaque, int32_t flag)
{
    begin(writer, out, serialize_type, code, opaque, flag, NULL);
}

static void ext_json(struct remoting_writer *writer, const char *name, size_t name_size, struct slice value)
{
    struct buffer *out = writer->out;
    bool plain = json_is_plain(value.data, value.size);
    uint8_t *to = room(out, name_size + (plain ? value.size : 0) + 24);
    if (to == NULL)
        return;
    to = writer->ext_count == 0 ? PUT_LITERAL(to, ",\"extFields\":{\"") : PUT_LITERAL(to, ",\"");
    to = put_bytes(to, name, name_size);
    to = PUT_LITERAL(to, "\":\"");
    if (plain) {
        to = put_bytes(to, value.data, value.size);
        *to++ = '"';
        advance(out, to);
        return;
    }
    advance(out, to);
    json_append_escaped(out, value);
    buffer_append_u8(out, '"');
}

static void ext_binary(struct remoting_writer *writer, const char *name, size_t name_size, struct slice value)
{
    struct buffer *out = writer->out;
    assert(name_size <= INT16_MAX);
    uint8_t *to = value.size > REMOTING_FRAME_MAX ? NULL : room(out, name_size + value.size + 6);
    if (to == NULL) {
        out->failed = true;
        return;
    }
    store_u16(to, (uint16_t)name_size);
    to = put_bytes(to + 2, name, name_size);
    store_u32(to, (uint32_t)value.size);
    to = put_bytes(to + 4, value.data, value.size);
    advance(out, to);
}

void remoting_writer_ext(struct remoting_writer *writer, const char *name, struct slice value)
{
    assert(!writer->header_done);
    if (value.data == NULL)
        return;
    if (writer->serialize_type == REMOTING_BINARY)
        ext_binary(writer, name, strlen(name), value);
    else
        ext_json(writer, name, strlen(name), value);
    writer->ext_count++;
}

void remoting_writer_ext_text(struct remoting_writer *writer, const char *name, const char *value)
{
    remoting_writer_ext(writer, name, slice_of_text(value));
}

void remoting_writer_ext_i64(struct remoting_writer *writer, const char *name, int64_t value)
{
    uint8_t digits[DECIMAL_MAX];
    uint8_t *end = decimal_put(digits, value);
    remoting_writer_ext(writer, name, slice_of(digits, (size_t)(end - digits)));
}

void remoting_writer_ext_bool(struct remoting_writer *writer, const char *name, bool value)
{
    remoting_writer_ext(writer, name, value ? SLICE_LITERAL("true") : SLICE_LITERAL("false"));
}

static void finish_json(struct remoting_writer *writer)
{
    struct buffer *out = writer->out;
    uint8_t *to = room(out, 160);
    if (to == NULL)
        return;
    if (writer->ext_count > 0)
        *to++ = '}';
    to = PUT_LITERAL(to, ",\"flag\":");
    to = decimal_put(to, writer->flag);
    to = PUT_LITERAL(to, ",\"language\":\"JAVA\",\"opaque\":");
    to = decimal_put(to, writer->opaque);
    if (writer->remark != NULL) {
        to = PUT_LITERAL(to, ",\"remark\":\"");
        advance(out, to);
        json_append_escaped(out, slice_of_text(writer->remark));
        to = room(out, 80);
        if (to == NULL)
            return;
        *to++ = '"';
    }
    _Static_assert(REMOTING_VERSION == 409, "the text below");
    to = PUT_LITERAL(to, ",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":409}");
    advance(out, to);
}

void remoting_writer_body(struct remoting_writer *writer)
{
    struct buffer *out = writer->out;
    if (writer->header_done)
        return;
    writer->header_done = true;
    if (writer->serialize_type == REMOTING_JSON)
        finish_json(writer);
    if (out->failed)
        return;
    size_t header_size = out->size - writer->header_start;
    if (header_size > HEADER_SIZE_MAX) {
        out->failed = true;
        return;
    }
    if (writer->serialize_type == REMOTING_BINARY)
        store_u32(out->data + writer->ext_start, (uint32_t)(out->size - writer->ext_start - 4));
    store_u32(out->data + writer->frame_start + 4, (uint32_t)writer->serialize_type << 24 | (uint32_t)header_size);
}

void remoting_writer_end(struct remoting_writer *writer, size_t external_body_size)
{
    struct buffer *out = writer->out;
    remoting_writer_body(writer);
    size_t size = out->size - writer->frame_start;
    if (!out->failed && (external_body_size > REMOTING_FRAME_MAX || size + external_body_size > REMOTING_FRAME_MAX))
        out->failed = true;
    if (out->failed) {
        /* Only whole frames stay in the buffer. */
        out->size = writer->frame_start;
        return;
    }
    store_u32(out->data + writer->frame_start, (uint32_t)(size - 4 + external_body_size));
}
