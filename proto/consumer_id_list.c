#include "proto/consumer_id_list.h"

#include "proto/json_body.h"

void consumer_id_list_begin(struct buffer *out)
{
    buffer_append_text(out, "{\"consumerIdList\":[");
}

void consumer_id_list_add(struct buffer *out, struct slice client_id)
{
    struct json_writer writer = json_body_resume(out);
    json_write_slice(&writer, client_id);
}

void consumer_id_list_end(struct buffer *out)
{
    buffer_append_text(out, "]}");
}

int consumer_id_list_decode(struct consumer_id_list *list, struct slice body, struct error *error)
{
    struct json_document document;

    *list = (struct consumer_id_list){0};
    int rv = json_body_open(&document, &list->arena, body, error);
    if (rv != 0)
        return rv;
    rv = json_body_names(&list->arena, json_root(&document), "consumerIdList", &list->ids, &list->id_count, error);
    json_close(&document);
    if (rv != 0)
        consumer_id_list_close(list);
    return rv;
}

void consumer_id_list_close(struct consumer_id_list *list)
{
    arena_close(&list->arena);
    *list = (struct consumer_id_list){0};
}
