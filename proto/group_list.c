#include "proto/group_list.h"

#include "proto/json_body.h"

void group_list_begin(struct buffer *out)
{
    buffer_append_text(out, "{\"groupList\":[");
}

void group_list_add(struct buffer *out, struct slice group)
{
    struct json_writer writer = json_body_resume(out);
    json_write_slice(&writer, group);
}

void group_list_end(struct buffer *out)
{
    buffer_append_text(out, "]}");
}

int group_list_decode(struct group_list *list, struct slice body, struct error *error)
{
    struct json_document document;

    *list = (struct group_list){0};
    int rv = json_body_open(&document, &list->arena, body, error);
    if (rv != 0)
        return rv;
    rv = json_body_names(&list->arena, json_root(&document), "groupList", &list->groups, &list->group_count, error);
    json_close(&document);
    if (rv != 0)
        group_list_close(list);
    return rv;
}

void group_list_close(struct group_list *list)
{
    arena_close(&list->arena);
    *list = (struct group_list){0};
}
