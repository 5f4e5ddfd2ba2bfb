#include "proto/reset_offset_body.h"

#include "proto/json_body.h"

void reset_offset_body_begin(struct buffer *out, enum reset_offset_shape shape)
{
    buffer_append_text(out, shape == RESET_OFFSET_MAP ? "{\"offsetTable\":{" : "{\"offsetTable\":[");
}

void reset_offset_body_add(struct buffer *out, enum reset_offset_shape shape, const struct reset_offset *offset)
{
    struct json_writer writer = json_body_resume(out);
    if (shape == RESET_OFFSET_MAP) {
        json_body_write_queue_key(&writer, &offset->queue);
        json_write_i64(&writer, offset->offset);
        return;
    }
    json_write_begin_object(&writer);
    json_write_member_slice(&writer, "brokerName", offset->queue.broker_name);
    json_write_member_i64(&writer, "offset", offset->offset);
    json_write_member_i64(&writer, "queueId", offset->queue.queue_id);
    json_write_member_slice(&writer, "topic", offset->queue.topic);
    json_write_end_object(&writer);
}

void reset_offset_body_end(struct buffer *out, enum reset_offset_shape shape)
{
    buffer_append_text(out, shape == RESET_OFFSET_MAP ? "}}" : "]}");
}

static int read_map(struct reset_offset_body *body, struct json_value root, struct error *error)
{
    struct json_iterator iterator;
    struct json_value key;
    struct json_value value;
    int rv = json_body_map(&body->arena, root, "offsetTable", sizeof *body->offsets, &body->offsets, &iterator, error);

    while (rv == 0 && json_next_member(&iterator, &key, &value)) {
        struct reset_offset *offset = &body->offsets[body->offset_count++];
        rv = json_body_queue_key(&body->arena, key, &offset->queue, error);
        if (rv == 0 && !json_i64(value, &offset->offset))
            rv = error_set(error, ERROR_INVALID, "an offset of offsetTable is no number");
    }
    return rv;
}

static int read_list(struct reset_offset_body *body, struct json_value root, struct error *error)
{
    struct json_iterator iterator;
    struct json_value element;
    int rv =
        json_body_array(&body->arena, root, "offsetTable", sizeof *body->offsets, &body->offsets, &iterator, error);

    while (rv == 0 && json_next_element(&iterator, &element)) {
        struct reset_offset *offset = &body->offsets[body->offset_count++];
        rv = json_body_queue(&body->arena, element, &offset->queue, error);
        if (rv == 0)
            rv = json_read_i64(element, "offset", &offset->offset, error);
    }
    return rv;
}

int reset_offset_body_decode(struct reset_offset_body *body, struct slice bytes, struct error *error)
{
    struct json_document document;

    *body = (struct reset_offset_body){0};
    int rv = json_body_open(&document, &body->arena, bytes, error);
    if (rv != 0)
        return rv;
    struct json_value root = json_root(&document);
    rv = json_is_array(json_get(root, "offsetTable")) ? read_list(body, root, error) : read_map(body, root, error);
    json_close(&document);
    if (rv != 0)
        reset_offset_body_close(body);
    return rv;
}

void reset_offset_body_close(struct reset_offset_body *body)
{
    arena_close(&body->arena);
    *body = (struct reset_offset_body){0};
}
