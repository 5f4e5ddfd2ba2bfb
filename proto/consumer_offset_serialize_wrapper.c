#include "proto/consumer_offset_serialize_wrapper.h"

#include "proto/json_body.h"

#define TOPIC_GROUP_SEPARATOR '@'

void consumer_offset_serialize_wrapper_begin(struct buffer *out)
{
    buffer_append_text(out, "{\"offsetTable\":{");
}

void consumer_offset_serialize_wrapper_group_begin(struct buffer *out, struct slice topic, struct slice group)
{
    struct json_writer writer = json_body_resume(out);
    /* The key is put together here rather than copied first; names have no letters that need an escape, and get one if
     * they do. */
    buffer_append_text(out, writer.comma ? ",\"" : "\"");
    json_append_escaped(out, topic);
    buffer_append_u8(out, TOPIC_GROUP_SEPARATOR);
    json_append_escaped(out, group);
    buffer_append_text(out, "\":{");
}

void consumer_offset_serialize_wrapper_add(struct buffer *out, int32_t queue_id, int64_t offset)
{
    struct json_writer writer = json_body_resume(out);
    json_write_key_i64(&writer, queue_id);
    json_write_i64(&writer, offset);
}

void consumer_offset_serialize_wrapper_group_end(struct buffer *out)
{
    buffer_append_text(out, "}");
}

void consumer_offset_serialize_wrapper_end(struct buffer *out)
{
    buffer_append_text(out, "}}");
}

/* All queues of one "topic@group". */
static int read_group(struct consumer_offset *offsets, size_t *count, struct arena *arena, struct slice key,
                      struct json_value table, struct error *error)
{
    struct json_iterator iterator = json_iterate(table);
    struct json_value queue;
    struct json_value value;
    const uint8_t *separator = memchr(key.data, TOPIC_GROUP_SEPARATOR, key.size);

    if (!json_is_object(table))
        return error_set(error, ERROR_INVALID, "an entry of offsetTable is no object");
    if (separator == NULL)
        return 0;
    struct slice topic = slice_of(key.data, (size_t)(separator - key.data));
    struct slice group = slice_of(separator + 1, key.size - topic.size - 1);
    topic = arena_copy(arena, topic);
    group = arena_copy(arena, group);
    int rv = arena_error(arena, error);
    while (rv == 0 && json_next_member(&iterator, &queue, &value)) {
        struct consumer_offset *offset = &offsets[*count];
        int64_t queue_id;
        if (json_is_null(value))
            continue;
        rv = json_body_integer_key(queue, "offsetTable", &queue_id, error);
        if (rv == 0 && (queue_id < 0 || queue_id > INT32_MAX || !json_i64(value, &offset->offset)))
            rv = error_set(error, ERROR_INVALID, "offsetTable holds a bad queue or offset");
        if (rv != 0)
            break;
        offset->topic = topic;
        offset->group = group;
        offset->queue_id = (int32_t)queue_id;
        ++*count;
    }
    return rv;
}

static int read_table(struct consumer_offset_serialize_wrapper *wrapper, struct json_value root, struct error *error)
{
    struct json_value table = json_get(root, "offsetTable");
    struct json_iterator iterator = json_iterate(table);
    struct json_value key;
    struct json_value value;
    size_t total = 0;

    if (!json_is_null(table) && !json_is_object(table))
        return error_set(error, ERROR_INVALID, "offsetTable is no object");
    while (json_next_member(&iterator, &key, &value))
        total += json_size(value);
    wrapper->offsets = arena_array(&wrapper->arena, total, sizeof *wrapper->offsets);
    int rv = arena_error(&wrapper->arena, error);
    iterator = json_iterate(table);
    while (rv == 0 && json_next_member(&iterator, &key, &value)) {
        struct slice text;
        if (json_is_null(value))
            continue;
        if (!json_text(key, &text))
            return error_set(error, ERROR_INVALID, "a key of offsetTable is no text");
        rv = read_group(wrapper->offsets, &wrapper->offset_count, &wrapper->arena, text, value, error);
    }
    return rv;
}

int consumer_offset_serialize_wrapper_decode(struct consumer_offset_serialize_wrapper *wrapper, struct slice body,
                                             struct error *error)
{
    struct json_document document;

    *wrapper = (struct consumer_offset_serialize_wrapper){0};
    int rv = json_body_open(&document, &wrapper->arena, body, error);
    if (rv != 0)
        return rv;
    rv = read_table(wrapper, json_root(&document), error);
    json_close(&document);
    if (rv != 0)
        consumer_offset_serialize_wrapper_close(wrapper);
    return rv;
}

void consumer_offset_serialize_wrapper_close(struct consumer_offset_serialize_wrapper *wrapper)
{
    arena_close(&wrapper->arena);
    *wrapper = (struct consumer_offset_serialize_wrapper){0};
}
