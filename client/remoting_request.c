/* Requests that brokers send over the client's connections (CHECK_TRANSACTION_STATE, NOTIFY_CONSUMER_IDS_CHANGED, ...)
 * and their answers (org.apache.rocketmq.client.impl.ClientRemotingProcessor 4.9.8). */
#include <assert.h>
#include <stdio.h>

#include "client/remoting_connection.h"
#include "proto/response_code.h"

void remoting_client_handle(struct remoting_client *client, int32_t code, remoting_request_handler handler,
                            void *context)
{
    for (uint32_t i = 0; i < client->handler_count; i++)
        assert(client->handlers[i].code != code);
    assert(client->handler_count < REMOTING_CLIENT_HANDLERS_MAX);
    client->handlers[client->handler_count++] = (struct handler){code, handler, context};
}

void remoting_client_watch(struct remoting_client *client, remoting_connected connected, void *context)
{
    client->connected = connected;
    client->connected_context = context;
}

void remoting_request_take(struct remoting_connection *connection, const struct remoting_command *request)
{
    struct remoting_client *client = connection->client;
    struct remoting_origin origin = {connection->id, request->opaque, request->serialize_type,
                                     remoting_is_oneway(request)};
    char address[REMOTING_ADDRESS_MAX], remark[64];
    for (uint32_t i = 0; i < client->handler_count; i++) {
        if (client->handlers[i].code != request->code)
            continue;
        /* The handler may make its own connection fail. */
        memcpy(address, connection->address, sizeof address);
        client->handlers[i].handler(client->handlers[i].context, request, address, &origin);
        return;
    }
    snprintf(remark, sizeof remark, " request type %d not supported", request->code);
    remoting_client_answer(client, &origin, RESPONSE_REQUEST_CODE_NOT_SUPPORTED, remark);
}

bool remoting_client_answer_begin(struct remoting_client *client, const struct remoting_origin *origin, int32_t code,
                                  const char *remark, struct remoting_writer *writer)
{
    assert(client->beginning_connection == NULL);
    if (origin->oneway || client->stopping)
        return false;
    struct remoting_connection *connection = client->connections;
    while (connection != NULL && connection->id != origin->connection)
        connection = connection->hh.next;
    if (connection == NULL || connection->failing ||
        connection->out.size + connection->writing.size > REMOTING_CLIENT_OUT_MAX / 2)
        return false;
    client->beginning_connection = connection;
    remoting_writer_begin_response(writer, &connection->out, origin->serialize_type, code, origin->opaque, remark);
    return true;
}

void remoting_client_answer_end(struct remoting_client *client, struct remoting_writer *writer)
{
    struct remoting_connection *connection = client->beginning_connection;
    assert(connection != NULL && client->beginning == NULL);
    client->beginning_connection = NULL;
    remoting_writer_end(writer, 0);
    if (connection->out.failed || connection->out.size - writer->frame_start > REMOTING_FRAME_MAX) {
        connection->out.failed = false;
        connection->out.size = writer->frame_start;
        return;
    }
    remoting_connection_mark_dirty(connection);
}

void remoting_client_answer(struct remoting_client *client, const struct remoting_origin *origin, int32_t code,
                            const char *remark)
{
    struct remoting_writer writer;
    if (remoting_client_answer_begin(client, origin, code, remark, &writer))
        remoting_client_answer_end(client, &writer);
}
