#include "proto/topic_list.h"

#include "proto/json_body.h"

void topic_list_begin(struct buffer *out, struct slice broker_address)
{
    struct json_writer writer;
    json_writer_init(&writer, out);
    json_write_begin_object(&writer);
    if (broker_address.size > 0)
        json_write_member_slice(&writer, "brokerAddr", broker_address);
    json_write_key(&writer, "topicList");
    json_write_begin_array(&writer);
}

void topic_list_add(struct buffer *out, struct slice topic)
{
    struct json_writer writer = json_body_resume(out);
    json_write_slice(&writer, topic);
}

void topic_list_end(struct buffer *out)
{
    buffer_append_text(out, "]}");
}

int topic_list_decode(struct topic_list *list, struct slice body, struct error *error)
{
    struct json_document document;

    *list = (struct topic_list){0};
    int rv = json_body_open(&document, &list->arena, body, error);
    if (rv != 0)
        return rv;
    rv = json_body_text(&list->arena, json_root(&document), "brokerAddr", &list->broker_address, error);
    if (rv == 0)
        rv = json_body_names(&list->arena, json_root(&document), "topicList", &list->topics, &list->topic_count, error);
    json_close(&document);
    if (rv != 0)
        topic_list_close(list);
    return rv;
}

void topic_list_close(struct topic_list *list)
{
    arena_close(&list->arena);
    *list = (struct topic_list){0};
}
