#include "proto/consumer_connection.h"

#include "proto/json_body.h"

void consumer_connection_encode(const struct consumer_connection *consumer, struct buffer *out)
{
    struct json_writer writer;
    json_writer_init(&writer, out);
    json_write_begin_object(&writer);
    client_connections_write(&writer, consumer->connections, consumer->connection_count);
    json_write_member_text(&writer, "consumeFromWhere", consume_from_where_names[consumer->consume_from_where]);
    json_write_member_text(&writer, "consumeType", consume_type_names[consumer->consume_type]);
    json_write_member_text(&writer, "messageModel", message_model_names[consumer->message_model]);
    json_write_key(&writer, "subscriptionTable");
    json_write_begin_object(&writer);
    for (size_t i = 0; i < consumer->subscription_count; i++) {
        json_write_key_slice(&writer, consumer->subscriptions[i].topic);
        subscription_data_write(&writer, &consumer->subscriptions[i]);
    }
    json_write_end_object(&writer);
    json_write_end_object(&writer);
}

static int read_members(struct consumer_connection *consumer, struct json_value root, struct error *error)
{
    int from_where = CONSUME_FROM_LAST_OFFSET;
    int consume_type = CONSUME_PASSIVELY;
    int message_model = MESSAGE_MODEL_CLUSTERING;
    struct json_iterator iterator;
    struct json_value key;
    struct json_value value;

    int rv =
        client_connections_read(&consumer->connections, &consumer->connection_count, &consumer->arena, root, error);
    if (rv == 0)
        rv =
            json_read_enum(root, "consumeFromWhere", consume_from_where_names, CONSUME_FROM_WHERES, &from_where, error);
    if (rv == 0)
        rv = json_read_enum(root, "consumeType", consume_type_names, CONSUME_TYPES, &consume_type, error);
    if (rv == 0)
        rv = json_read_enum(root, "messageModel", message_model_names, MESSAGE_MODELS, &message_model, error);
    if (rv == 0)
        rv = json_body_map(&consumer->arena, root, "subscriptionTable", sizeof *consumer->subscriptions,
                           &consumer->subscriptions, &iterator, error);
    while (rv == 0 && json_next_member(&iterator, &key, &value))
        if (!json_is_null(value))
            rv = subscription_data_read(&consumer->subscriptions[consumer->subscription_count++], &consumer->arena,
                                        value, error);
    consumer->consume_from_where = (enum consume_from_where)from_where;
    consumer->consume_type = (enum consume_type)consume_type;
    consumer->message_model = (enum message_model)message_model;
    return rv;
}

int consumer_connection_decode(struct consumer_connection *consumer, struct slice body, struct error *error)
{
    struct json_document document;

    *consumer = (struct consumer_connection){0};
    int rv = json_body_open(&document, &consumer->arena, body, error);
    if (rv != 0)
        return rv;
    rv = read_members(consumer, json_root(&document), error);
    json_close(&document);
    if (rv != 0)
        consumer_connection_close(consumer);
    return rv;
}

void consumer_connection_close(struct consumer_connection *consumer)
{
    arena_close(&consumer->arena);
    *consumer = (struct consumer_connection){0};
}
