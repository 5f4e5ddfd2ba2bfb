#include "proto/lock_batch.h"

#include "proto/json_body.h"

void lock_batch_request_encode(const struct lock_batch_request *request, struct buffer *out)
{
    struct json_writer writer;
    json_writer_init(&writer, out);
    json_write_begin_object(&writer);
    json_write_member_slice(&writer, "clientId", request->client_id);
    json_write_member_slice(&writer, "consumerGroup", request->consumer_group);
    json_write_key(&writer, "mqSet");
    json_write_begin_array(&writer);
    for (size_t i = 0; i < request->queue_count; i++)
        json_body_write_queue(&writer, &request->queues[i]);
    json_write_end_array(&writer);
    json_write_end_object(&writer);
}

static int read_queues(struct arena *arena, struct json_value root, const char *name, struct message_queue **queues,
                       size_t *count, struct error *error)
{
    struct json_iterator iterator;
    struct json_value element;
    int rv = json_body_array(arena, root, name, sizeof **queues, queues, &iterator, error);

    while (rv == 0 && json_next_element(&iterator, &element))
        if (!json_is_null(element))
            rv = json_body_queue(arena, element, &(*queues)[(*count)++], error);
    return rv;
}

int lock_batch_request_decode(struct lock_batch_request *request, struct slice body, struct error *error)
{
    struct json_document document;

    *request = (struct lock_batch_request){0};
    int rv = json_body_open(&document, &request->arena, body, error);
    if (rv != 0)
        return rv;
    struct json_value root = json_root(&document);
    rv = json_body_required_text(&request->arena, root, "clientId", &request->client_id, error);
    if (rv == 0)
        rv = json_body_required_text(&request->arena, root, "consumerGroup", &request->consumer_group, error);
    if (rv == 0)
        rv = read_queues(&request->arena, root, "mqSet", &request->queues, &request->queue_count, error);
    json_close(&document);
    if (rv != 0)
        lock_batch_request_close(request);
    return rv;
}

void lock_batch_request_close(struct lock_batch_request *request)
{
    arena_close(&request->arena);
    *request = (struct lock_batch_request){0};
}

void lock_batch_response_begin(struct buffer *out)
{
    buffer_append_text(out, "{\"lockOKMQSet\":[");
}

void lock_batch_response_add(struct buffer *out, const struct message_queue *queue)
{
    struct json_writer writer = json_body_resume(out);
    json_body_write_queue(&writer, queue);
}

void lock_batch_response_end(struct buffer *out)
{
    buffer_append_text(out, "]}");
}

int lock_batch_response_decode(struct lock_batch_response *response, struct slice body, struct error *error)
{
    struct json_document document;

    *response = (struct lock_batch_response){0};
    int rv = json_body_open(&document, &response->arena, body, error);
    if (rv != 0)
        return rv;
    rv = read_queues(&response->arena, json_root(&document), "lockOKMQSet", &response->queues, &response->queue_count,
                     error);
    json_close(&document);
    if (rv != 0)
        lock_batch_response_close(response);
    return rv;
}

void lock_batch_response_close(struct lock_batch_response *response)
{
    arena_close(&response->arena);
    *response = (struct lock_batch_response){0};
}
