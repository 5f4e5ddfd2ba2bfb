#include "proto/subscription_group_wrapper.h"

#include "proto/json_body.h"

void subscription_group_wrapper_begin(struct buffer *out, const struct data_version *version)
{
    struct json_writer writer;
    json_writer_init(&writer, out);
    json_write_begin_object(&writer);
    json_write_key(&writer, "dataVersion");
    data_version_write(&writer, version);
    json_write_key(&writer, "subscriptionGroupTable");
    json_write_begin_object(&writer);
}

void subscription_group_wrapper_add(struct buffer *out, const struct subscription_group_config *config)
{
    struct json_writer writer = json_body_resume(out);
    json_write_key_slice(&writer, config->group_name);
    subscription_group_config_write(&writer, config);
}

void subscription_group_wrapper_end(struct buffer *out)
{
    buffer_append_text(out, "}}");
}

void subscription_group_wrapper_encode(const struct subscription_group_wrapper *wrapper, struct buffer *out)
{
    subscription_group_wrapper_begin(out, &wrapper->version);
    for (size_t i = 0; i < wrapper->group_count; i++)
        subscription_group_wrapper_add(out, &wrapper->groups[i]);
    subscription_group_wrapper_end(out);
}

static int read_members(struct subscription_group_wrapper *wrapper, struct json_value object, struct error *error)
{
    struct json_iterator iterator;
    struct json_value key;
    struct json_value value;

    int rv = data_version_read(&wrapper->version, json_get(object, "dataVersion"), error);
    if (rv == 0)
        rv = json_body_map(&wrapper->arena, object, "subscriptionGroupTable", sizeof *wrapper->groups, &wrapper->groups,
                           &iterator, error);
    while (rv == 0 && json_next_member(&iterator, &key, &value)) {
        struct slice name;
        if (json_is_null(value))
            continue;
        rv = json_body_copy(&wrapper->arena, key, "subscriptionGroupTable", &name, error);
        if (rv == 0)
            rv = subscription_group_config_read(&wrapper->groups[wrapper->group_count++], &wrapper->arena, value, name,
                                                error);
    }
    return rv;
}

int subscription_group_wrapper_decode(struct subscription_group_wrapper *wrapper, struct slice body,
                                      struct error *error)
{
    struct json_document document;

    *wrapper = (struct subscription_group_wrapper){0};
    int rv = json_body_open(&document, &wrapper->arena, body, error);
    if (rv != 0)
        return rv;
    rv = read_members(wrapper, json_root(&document), error);
    json_close(&document);
    if (rv != 0)
        subscription_group_wrapper_close(wrapper);
    return rv;
}

void subscription_group_wrapper_close(struct subscription_group_wrapper *wrapper)
{
    arena_close(&wrapper->arena);
    *wrapper = (struct subscription_group_wrapper){0};
}
