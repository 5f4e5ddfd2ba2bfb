#include "proto/delay_offset_serialize_wrapper.h"

#include "proto/json_body.h"

void delay_offset_serialize_wrapper_begin(struct buffer *out)
{
    buffer_append_text(out, "{\"offsetTable\":{");
}

void delay_offset_serialize_wrapper_add(struct buffer *out, int32_t level, int64_t offset)
{
    struct json_writer writer = json_body_resume(out);
    json_write_key_i64(&writer, level);
    json_write_i64(&writer, offset);
}

void delay_offset_serialize_wrapper_end(struct buffer *out)
{
    buffer_append_text(out, "}}");
}

int delay_offset_serialize_wrapper_decode(struct delay_offset_serialize_wrapper *wrapper, struct slice body,
                                          struct error *error)
{
    struct json_document document;
    struct json_iterator iterator;
    struct json_value key;
    struct json_value value;

    *wrapper = (struct delay_offset_serialize_wrapper){0};
    int rv = json_body_open(&document, &wrapper->arena, body, error);
    if (rv != 0)
        return rv;
    rv = json_body_map(&wrapper->arena, json_root(&document), "offsetTable", sizeof *wrapper->offsets,
                       &wrapper->offsets, &iterator, error);
    while (rv == 0 && json_next_member(&iterator, &key, &value)) {
        struct delay_offset *offset = &wrapper->offsets[wrapper->offset_count];
        int64_t level;
        if (json_is_null(value))
            continue;
        rv = json_body_integer_key(key, "offsetTable", &level, error);
        if (rv == 0 && (level < 0 || level > INT32_MAX || !json_i64(value, &offset->offset)))
            rv = error_set(error, ERROR_INVALID, "offsetTable holds a bad level or offset");
        if (rv == 0)
            offset->level = (int32_t)level;
        wrapper->offset_count++;
    }
    json_close(&document);
    if (rv != 0)
        delay_offset_serialize_wrapper_close(wrapper);
    return rv;
}

void delay_offset_serialize_wrapper_close(struct delay_offset_serialize_wrapper *wrapper)
{
    arena_close(&wrapper->arena);
    *wrapper = (struct delay_offset_serialize_wrapper){0};
}
