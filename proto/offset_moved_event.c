#include "proto/offset_moved_event.h"

#include "proto/json_body.h"

void offset_moved_event_encode(const struct offset_moved_event *event, struct buffer *out)
{
    struct json_writer writer;
    json_writer_init(&writer, out);
    json_write_begin_object(&writer);
    json_write_member_slice(&writer, "consumerGroup", event->consumer_group);
    json_write_key(&writer, "messageQueue");
    json_body_write_queue(&writer, &event->queue);
    json_write_member_i64(&writer, "offsetNew", event->offset_new);
    json_write_member_i64(&writer, "offsetRequest", event->offset_request);
    json_write_end_object(&writer);
}

int offset_moved_event_decode(struct offset_moved_event *event, struct arena *arena, struct slice body,
                              struct error *error)
{
    struct json_document document;

    *event = (struct offset_moved_event){0};
    int rv = json_body_open(&document, NULL, body, error);
    if (rv != 0)
        return rv;
    struct json_value root = json_root(&document);
    rv = json_body_text(arena, root, "consumerGroup", &event->consumer_group, error);
    if (rv == 0 && !json_is_null(json_get(root, "messageQueue")))
        rv = json_body_queue(arena, json_get(root, "messageQueue"), &event->queue, error);
    if (rv == 0)
        rv = json_read_i64(root, "offsetNew", &event->offset_new, error);
    if (rv == 0)
        rv = json_read_i64(root, "offsetRequest", &event->offset_request, error);
    json_close(&document);
    return rv;
}
