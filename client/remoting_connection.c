#include "client/remoting_connection.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>

#define READ_SIZE 65536u

static void connect_next(struct remoting_connection *connection);

static void connection_release(struct remoting_connection *connection)
{
    if (connection->state != CLOSED || connection->tcp_open || connection->resolving)
        return;
    if (connection->addresses != NULL)
        uv_freeaddrinfo(connection->addresses);
    buffer_close(&connection->out);
    buffer_close(&connection->writing);
    buffer_close(&connection->in);
    free(connection);
}

static void closed_cb(uv_handle_t *handle)
{
    struct remoting_connection *connection = handle->data;
    connection->tcp_open = false;
    connection_release(connection);
}

void remoting_connection_fail(struct remoting_connection *connection, int rv, const char *cause)
{
    struct remoting_client *client = connection->client;
    if (connection->state == CLOSED)
        return;
    bool was_open = connection->state == OPEN;
    connection->state = CLOSED;
    HASH_DEL(client->connections, connection);
    if (connection->dirty)
        for (struct remoting_connection **at = &client->dirty; *at != NULL; at = &(*at)->next_dirty)
            if (*at == connection) {
                *at = connection->next_dirty;
                break;
            }
    if (connection->resolving)
        uv_cancel((uv_req_t *)&connection->resolve);
    if (connection->tcp_open && !uv_is_closing((uv_handle_t *)&connection->tcp))
        uv_close((uv_handle_t *)&connection->tcp, closed_cb);
    /* A call back may begin new calls, which take free slots and move the table: hence the index, and the connection
     * as the mark. */
    for (uint32_t i = 0; i < client->slot_count; i++) {
        struct remoting_call *call = client->slots[i].call;
        if (call == NULL || call->connection != connection)
            continue;
        remoting_client_slot_release(client, call);
        call->maybe_sent = was_open;
        call->done(call, rv, NULL, cause);
    }
    connection_release(connection);
}

void remoting_connection_fail_status(struct remoting_connection *connection, const char *what, int status)
{
    char cause[200];
    if (status == UV_EOF)
        snprintf(cause, sizeof cause, "the peer closed the connection");
    else
        snprintf(cause, sizeof cause, "%s: %s", what, uv_strerror(status));
    remoting_connection_fail(connection, ERROR_CONNECTION, cause);
}

void remoting_connection_mark_failing(struct remoting_connection *connection, int status)
{
    connection->failing = true;
    connection->fail_status = status;
    remoting_client_sweep_by(connection->client, remoting_client_now_ms(connection->client));
}

void remoting_connection_mark_dirty(struct remoting_connection *connection)
{
    if (connection->dirty)
        return;
    connection->dirty = true;
    connection->next_dirty = connection->client->dirty;
    connection->client->dirty = connection;
}

static void written_cb(uv_write_t *write, int status)
{
    struct remoting_connection *connection = write->data;
    connection->write_busy = false;
    buffer_clear(&connection->writing);
    if (connection->state != OPEN)
        return;
    if (status < 0) {
        remoting_connection_fail_status(connection, "write", status);
        return;
    }
    if (connection->out.size > 0)
        remoting_connection_mark_dirty(connection);
}

static void connection_flush(struct remoting_connection *connection)
{
    if (connection->state != OPEN || connection->write_busy || connection->out.size == 0 || connection->failing)
        return;
    uv_buf_t all = uv_buf_init((char *)connection->out.data, (unsigned)connection->out.size);
    int n = uv_try_write((uv_stream_t *)&connection->tcp, &all, 1);
    if (n < 0 && n != UV_EAGAIN) {
        remoting_connection_mark_failing(connection, n);
        return;
    }
    size_t done = n > 0 ? (size_t)n : 0;
    if (done == connection->out.size) {
        buffer_clear(&connection->out);
        return;
    }
    struct buffer swap = connection->writing;
    connection->writing = connection->out;
    connection->out = swap;
    uv_buf_t rest = uv_buf_init((char *)connection->writing.data + done, (unsigned)(connection->writing.size - done));
    connection->write.data = connection;
    connection->write_busy = true;
    int rv = uv_write(&connection->write, (uv_stream_t *)&connection->tcp, &rest, 1, written_cb);
    if (rv < 0) {
        connection->write_busy = false;
        remoting_connection_mark_failing(connection, rv);
    }
}

void remoting_connections_flush(uv_prepare_t *prepare)
{
    struct remoting_client *client = prepare->data;
    while (client->dirty != NULL) {
        struct remoting_connection *connection = client->dirty;
        client->dirty = connection->next_dirty;
        connection->dirty = false;
        connection_flush(connection);
    }
}

static void take_answer(struct remoting_connection *connection, const struct remoting_command *answer)
{
    struct remoting_client *client = connection->client;
    uint32_t slot = (uint32_t)answer->opaque & REMOTING_SLOT_MASK;
    if (answer->opaque < 0 || slot >= client->slot_count)
        return;
    struct remoting_call *call = client->slots[slot].call;
    /* An answer nobody waits for any more is dropped, as RocketMQ's client does. */
    if (call == NULL || call->opaque != answer->opaque || call->connection != connection)
        return;
    remoting_client_slot_release(client, call);
    call->done(call, 0, answer, NULL);
}

static void alloc_cb(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct remoting_connection *connection = handle->data;
    struct buffer *in = &connection->in;
    (void)suggested;
    if (connection->in_done > 0) {
        memmove(in->data, in->data + connection->in_done, in->size - connection->in_done);
        in->size -= connection->in_done;
        connection->in_done = 0;
    }
    int64_t frame = remoting_frame_size(buffer_slice(in));
    size_t wanted =
        frame > (int64_t)in->size && (size_t)frame - in->size > READ_SIZE ? (size_t)frame - in->size : READ_SIZE;
    uint8_t *at = buffer_reserve(in, wanted);
    in->failed = false;
    *buf = uv_buf_init((char *)at, at == NULL ? 0 : (unsigned)(in->capacity - in->size));
}

static void read_cb(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct remoting_connection *connection = stream->data;
    struct remoting_client *client = connection->client;
    (void)buf;
    if (n == 0)
        return;
    if (n < 0) {
        remoting_connection_fail_status(connection, "read", (int)n);
        return;
    }
    connection->in.size += (size_t)n;
    connection->last_read_ms = remoting_client_now_ms(client);
    while (connection->state == OPEN) {
        struct slice rest =
            slice_of(connection->in.data + connection->in_done, connection->in.size - connection->in_done);
        int64_t size = remoting_frame_size(rest);
        if (size == 0 || (size > 0 && (size_t)size > rest.size))
            return;
        if (size < 0 ||
            remoting_command_decode(connection->in.data + connection->in_done, (size_t)size, &client->command) != 0) {
            remoting_connection_fail(connection, ERROR_MALFORMED,
                                     "what it sent is not RocketMQ's remoting protocol: is this the right port?");
            return;
        }
        connection->in_done += (size_t)size;
        if (remoting_is_response(&client->command))
            take_answer(connection, &client->command);
        else
            remoting_request_take(connection, &client->command);
    }
}

static void connected_cb(uv_connect_t *connect, int status)
{
    struct remoting_connection *connection = connect->data;
    if (connection->state == CLOSED)
        return;
    if (status < 0) {
        if (connection->next_address != NULL) {
            connect_next(connection);
            return;
        }
        remoting_connection_fail_status(connection, "connect", status);
        return;
    }
    connection->state = OPEN;
    connection->last_read_ms = remoting_client_now_ms(connection->client);
    uv_tcp_nodelay(&connection->tcp, 1);
    int rv = uv_read_start((uv_stream_t *)&connection->tcp, alloc_cb, read_cb);
    if (rv < 0) {
        remoting_connection_fail_status(connection, "read", rv);
        return;
    }
    remoting_connection_mark_dirty(connection);
    if (connection->client->connected != NULL)
        connection->client->connected(connection->client->connected_context, connection->address);
}

static void retry_address_cb(uv_handle_t *handle)
{
    struct remoting_connection *connection = handle->data;
    connection->tcp_open = false;
    if (connection->state == CLOSED)
        connection_release(connection);
    else
        connect_next(connection);
}

static void connect_start(struct remoting_connection *connection, const struct sockaddr *address)
{
    struct remoting_client *client = connection->client;
    connection->state = CONNECTING;
    int rv = uv_tcp_init(&client->loop, &connection->tcp);
    if (rv == 0) {
        connection->tcp_open = true;
        connection->tcp.data = connection;
        connection->connect.data = connection;
        rv = uv_tcp_connect(&connection->connect, &connection->tcp, address, connected_cb);
    }
    if (rv < 0)
        remoting_connection_mark_failing(connection, rv);
}

static void connect_next(struct remoting_connection *connection)
{
    if (connection->tcp_open) {
        uv_close((uv_handle_t *)&connection->tcp, retry_address_cb);
        return;
    }
    struct addrinfo *address = connection->next_address;
    connection->next_address = address->ai_next;
    connect_start(connection, address->ai_addr);
}

static void resolved_cb(uv_getaddrinfo_t *resolve, int status, struct addrinfo *addresses)
{
    struct remoting_connection *connection = resolve->data;
    connection->resolving = false;
    connection->addresses = addresses;
    if (connection->state == CLOSED) {
        connection_release(connection);
        return;
    }
    if (status < 0 || addresses == NULL) {
        remoting_connection_fail_status(connection, "the host name does not resolve",
                                        status < 0 ? status : UV_EAI_NONAME);
        return;
    }
    connection->next_address = addresses;
    connect_next(connection);
}

/* "host:port" and "[v6]:port"; a plain v6 address is split at its last colon. */
static bool split_address(const char *address, char host[REMOTING_ADDRESS_MAX], int *port)
{
    const char *colon = strrchr(address, ':');
    if (colon == NULL || colon == address || strlen(address) >= REMOTING_ADDRESS_MAX)
        return false;
    int32_t number;
    if (!slice_to_i32(slice_of_text(colon + 1), &number) || number < 1 || number > 65535)
        return false;
    size_t size = (size_t)(colon - address);
    if (size > 2 && address[0] == '[' && address[size - 1] == ']') {
        address++;
        size -= 2;
    }
    memcpy(host, address, size);
    host[size] = '\0';
    *port = number;
    return true;
}

struct remoting_connection *remoting_connection_get(struct remoting_client *client, const char *address, int *rv)
{
    struct remoting_connection *connection;
    size_t size = strlen(address);
    HASH_FIND(hh, client->connections, address, size, connection);
    if (connection != NULL && !connection->failing)
        return connection;
    if (connection != NULL) {
        *rv = ERROR_CONNECTION;
        return NULL;
    }
    char host[REMOTING_ADDRESS_MAX];
    int port;
    if (!split_address(address, host, &port)) {
        *rv = ERROR_INVALID;
        return NULL;
    }
    if (HASH_COUNT(client->connections) >= REMOTING_CLIENT_CONNECTIONS_MAX) {
        *rv = ERROR_BUSY;
        return NULL;
    }
    connection = calloc(1, sizeof *connection);
    if (connection == NULL) {
        *rv = ERROR_NO_MEMORY;
        return NULL;
    }
    connection->client = client;
    connection->id = ++client->last_connection_id;
    memcpy(connection->address, address, size + 1);
    buffer_init(&connection->out, REMOTING_CLIENT_OUT_MAX);
    buffer_init(&connection->writing, REMOTING_CLIENT_OUT_MAX);
    buffer_init(&connection->in, 2u * REMOTING_FRAME_MAX);
    connection->connect_deadline_ms = remoting_client_now_ms(client) + client->connect_timeout_ms;
    HASH_ADD(hh, client->connections, address, size, connection);
    remoting_client_sweep_by(client, connection->connect_deadline_ms);

    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } numeric;
    if (uv_ip4_addr(host, port, &numeric.v4) == 0 || uv_ip6_addr(host, port, &numeric.v6) == 0) {
        connect_start(connection, &numeric.any);
        return connection;
    }
    char service[8];
    snprintf(service, sizeof service, "%d", port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    connection->resolve.data = connection;
    int status = uv_getaddrinfo(&client->loop, &connection->resolve, resolved_cb, host, service, &hints);
    if (status < 0)
        remoting_connection_mark_failing(connection, status);
    else
        connection->resolving = true;
    return connection;
}
