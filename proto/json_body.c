#include "proto/json_body.h"

/* What a text of n bytes may become: short strings in a list grow most, by a slice and a copy for every four bytes. */
#define ARENA_SIZE_BASE 65536u
#define ARENA_SIZE_FACTOR 16u

int json_body_open(struct json_document *document, struct arena *arena, struct slice body, struct error *error)
{
    int rv = json_parse(document, body, NULL, 0, error);
    if (rv != 0)
        return rv;
    if (!json_is_object(json_root(document))) {
        json_close(document);
        return error_set(error, ERROR_INVALID, "the body is no JSON object");
    }
    if (arena != NULL)
        arena_init(arena, ARENA_SIZE_BASE + ARENA_SIZE_FACTOR * body.size);
    return 0;
}

int json_body_copy(struct arena *arena, struct json_value value, const char *name, struct slice *out,
                   struct error *error)
{
    struct slice text;
    if (!json_text(value, &text))
        return error_set(error, ERROR_INVALID, "%s is no text", name);
    /* arena_copy gives no data for no data: an empty string is not an absent one. */
    if (text.data == NULL)
        text = SLICE_LITERAL("");
    *out = arena_copy(arena, text);
    return arena_error(arena, error);
}

int json_body_text(struct arena *arena, struct json_value object, const char *name, struct slice *out,
                   struct error *error)
{
    struct json_value value = json_get(object, name);
    return json_is_null(value) ? 0 : json_body_copy(arena, value, name, out, error);
}

int json_body_required_text(struct arena *arena, struct json_value object, const char *name, struct slice *out,
                            struct error *error)
{
    *out = (struct slice){0};
    int rv = json_body_text(arena, object, name, out, error);
    if (rv == 0 && out->size == 0)
        return error_set(error, ERROR_MISSING, "%s is missing", name);
    return rv;
}

static int walk(struct arena *arena, struct json_value value, size_t item_size, void *items,
                struct json_iterator *iterator, struct error *error)
{
    *iterator = json_iterate(value);
    void *room = arena_array(arena, json_size(value), item_size);
    /* items is the address of a pointer to whatever type item_size is the size of. */
    memcpy(items, &room, sizeof room);
    return arena_error(arena, error);
}

int json_body_array(struct arena *arena, struct json_value object, const char *name, size_t item_size, void *items,
                    struct json_iterator *iterator, struct error *error)
{
    struct json_value value = json_get(object, name);
    if (!json_is_null(value) && !json_is_array(value))
        return error_set(error, ERROR_INVALID, "%s is no list", name);
    return walk(arena, value, item_size, items, iterator, error);
}

int json_body_map(struct arena *arena, struct json_value object, const char *name, size_t item_size, void *items,
                  struct json_iterator *iterator, struct error *error)
{
    struct json_value value = json_get(object, name);
    if (!json_is_null(value) && !json_is_object(value))
        return error_set(error, ERROR_INVALID, "%s is no object", name);
    return walk(arena, value, item_size, items, iterator, error);
}

int json_body_names(struct arena *arena, struct json_value object, const char *name, struct slice **names,
                    size_t *count, struct error *error)
{
    struct json_iterator iterator;
    struct json_value element;
    int rv = json_body_array(arena, object, name, sizeof **names, names, &iterator, error);

    *count = 0;
    while (rv == 0 && json_next_element(&iterator, &element))
        if (!json_is_null(element))
            rv = json_body_copy(arena, element, name, &(*names)[(*count)++], error);
    return rv;
}

int json_body_queue(struct arena *arena, struct json_value object, struct message_queue *queue, struct error *error)
{
    *queue = (struct message_queue){0};
    if (!json_is_object(object))
        return error_set(error, ERROR_INVALID, "a message queue is no object");
    int rv = json_body_text(arena, object, "brokerName", &queue->broker_name, error);
    if (rv == 0)
        rv = json_body_text(arena, object, "topic", &queue->topic, error);
    if (rv == 0)
        rv = json_read_i32(object, "queueId", &queue->queue_id, error);
    return rv;
}

int json_body_queue_key(struct arena *arena, struct json_value key, struct message_queue *queue, struct error *error)
{
    struct json_token tokens[32];
    struct json_document inner;
    struct slice text;

    if (json_is_object(key))
        return json_body_queue(arena, key, queue, error);
    if (!json_text(key, &text))
        return error_set(error, ERROR_INVALID, "a key is no message queue");
    int rv = json_parse(&inner, text, tokens, sizeof tokens / sizeof tokens[0], error);
    if (rv != 0) {
        error_wrap(error, "message queue in a key");
        return rv;
    }
    rv = json_body_queue(arena, json_root(&inner), queue, error);
    json_close(&inner);
    return rv;
}

int json_body_integer_key(struct json_value key, const char *name, int64_t *out, struct error *error)
{
    if (!json_i64(key, out))
        return error_set(error, ERROR_INVALID, "a key of %s is no integer", name);
    return 0;
}

struct json_writer json_body_resume(struct buffer *out)
{
    struct json_writer writer;
    json_writer_init(&writer, out);
    if (!out->failed && out->size > 0) {
        uint8_t last = out->data[out->size - 1];
        writer.comma = last != '{' && last != '[' && last != ':';
    }
    return writer;
}

static void write_queue_members(struct json_writer *writer, const struct message_queue *queue)
{
    json_write_member_slice(writer, "brokerName", queue->broker_name);
    json_write_member_i64(writer, "queueId", queue->queue_id);
    json_write_member_slice(writer, "topic", queue->topic);
}

void json_body_write_queue(struct json_writer *writer, const struct message_queue *queue)
{
    json_write_begin_object(writer);
    write_queue_members(writer, queue);
    json_write_end_object(writer);
}

void json_body_write_queue_key(struct json_writer *writer, const struct message_queue *queue)
{
    json_write_begin_key_object(writer);
    write_queue_members(writer, queue);
    json_write_end_key_object(writer);
}

void json_body_write_names(struct json_writer *writer, const char *key, const struct slice *names, size_t count)
{
    json_write_key(writer, key);
    json_write_begin_array(writer);
    for (size_t i = 0; i < count; i++)
        json_write_slice(writer, names[i]);
    json_write_end_array(writer);
}
