#include "proto/check_client_config.h"

#include "proto/json_body.h"

static int read_members(struct check_client_config *config, struct json_value root, struct error *error)
{
    struct json_value subscription = json_get(root, "subscriptionData");
    int rv = json_body_text(&config->arena, root, "clientId", &config->client_id, error);
    if (rv == 0)
        rv = json_body_text(&config->arena, root, "group", &config->group, error);
    if (rv == 0)
        rv = json_body_text(&config->arena, root, "namespace", &config->name_space, error);
    config->has_subscription = !json_is_null(subscription);
    if (rv == 0 && config->has_subscription)
        rv = subscription_data_read(&config->subscription, &config->arena, subscription, error);
    return rv;
}

int check_client_config_decode(struct check_client_config *config, struct slice body, struct error *error)
{
    struct json_document document;

    *config = (struct check_client_config){0};
    int rv = json_body_open(&document, &config->arena, body, error);
    if (rv != 0)
        return rv;
    rv = read_members(config, json_root(&document), error);
    json_close(&document);
    if (rv != 0)
        check_client_config_close(config);
    return rv;
}

void check_client_config_close(struct check_client_config *config)
{
    arena_close(&config->arena);
    *config = (struct check_client_config){0};
}

void check_client_config_encode(const struct check_client_config *config, struct buffer *out)
{
    struct json_writer writer;
    json_writer_init(&writer, out);
    json_write_begin_object(&writer);
    json_write_member_slice(&writer, "clientId", config->client_id);
    json_write_member_slice(&writer, "group", config->group);
    json_write_member_slice(&writer, "namespace", config->name_space);
    if (config->has_subscription) {
        json_write_key(&writer, "subscriptionData");
        subscription_data_write(&writer, &config->subscription);
    }
    json_write_end_object(&writer);
}
