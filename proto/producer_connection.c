#include "proto/producer_connection.h"

#include "proto/json_body.h"

static void write_connection(struct json_writer *writer, const struct client_connection *connection)
{
    json_write_begin_object(writer);
    json_write_member_slice(writer, "clientAddr", connection->client_address);
    json_write_member_slice(writer, "clientId", connection->client_id);
    json_write_member_slice(writer, "language", connection->language);
    json_write_member_i64(writer, "version", connection->version);
    json_write_end_object(writer);
}

void client_connections_write(struct json_writer *writer, const struct client_connection *connections, size_t count)
{
    json_write_key(writer, "connectionSet");
    json_write_begin_array(writer);
    for (size_t i = 0; i < count; i++)
        write_connection(writer, &connections[i]);
    json_write_end_array(writer);
}

void producer_connection_encode(const struct producer_connection *producer, struct buffer *out)
{
    struct json_writer writer;
    json_writer_init(&writer, out);
    json_write_begin_object(&writer);
    client_connections_write(&writer, producer->connections, producer->connection_count);
    json_write_end_object(&writer);
}

static int read_connection(struct client_connection *connection, struct arena *arena, struct json_value object,
                           struct error *error)
{
    int rv = json_body_text(arena, object, "clientAddr", &connection->client_address, error);
    if (rv == 0)
        rv = json_body_text(arena, object, "clientId", &connection->client_id, error);
    if (rv == 0)
        rv = json_body_text(arena, object, "language", &connection->language, error);
    if (rv == 0)
        rv = json_read_i32(object, "version", &connection->version, error);
    return rv;
}

int client_connections_read(struct client_connection **connections, size_t *count, struct arena *arena,
                            struct json_value root, struct error *error)
{
    struct json_iterator iterator;
    struct json_value element;
    int rv = json_body_array(arena, root, "connectionSet", sizeof **connections, connections, &iterator, error);

    *count = 0;
    while (rv == 0 && json_next_element(&iterator, &element))
        if (!json_is_null(element))
            rv = read_connection(&(*connections)[(*count)++], arena, element, error);
    return rv;
}

int producer_connection_decode(struct producer_connection *producer, struct slice body, struct error *error)
{
    struct json_document document;

    *producer = (struct producer_connection){0};
    int rv = json_body_open(&document, &producer->arena, body, error);
    if (rv != 0)
        return rv;
    rv = client_connections_read(&producer->connections, &producer->connection_count, &producer->arena,
                                 json_root(&document), error);
    json_close(&document);
    if (rv != 0)
        producer_connection_close(producer);
    return rv;
}

void producer_connection_close(struct producer_connection *producer)
{
    arena_close(&producer->arena);
    *producer = (struct producer_connection){0};
}
