#include "client/remoting_client.h"

#include <assert.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <uthash.h>

/* A request's way: begin() finds or makes the connection and reserves a slot, the frame is written straight into the
 * connection's buffer, the prepare hook hands all that one loop turn gathered to the kernel in one write, read_cb()
 * cuts answers and finds the slot by the opaque value.
 *
 * An opaque value is {generation, slot}: the slot finds the call without hashing, the generation tells a late answer
 * of a call that timed out from the answer of the one that has the slot now.
 */
#define SLOT_BITS 18u
#define SLOT_MASK ((1u << SLOT_BITS) - 1)
#define GENERATION_MASK 0x1FFFu /* keeps opaque values positive */
#define READ_SIZE 65536u
#define SWEEP_NEVER INT64_MAX

_Static_assert(REMOTING_CLIENT_CALLS_MAX == 1u << SLOT_BITS, "a slot number must fit its bits");

enum connection_state { RESOLVING, CONNECTING, OPEN, CLOSED };

struct remoting_connection {
    struct remoting_client *client;
    char address[REMOTING_ADDRESS_MAX];
    enum connection_state state;
    uv_tcp_t tcp;
    uv_connect_t connect;
    uv_getaddrinfo_t resolve;
    uv_write_t write;
    bool resolving; /* resolve is in libuv's hands */
    bool tcp_open;  /* tcp is in libuv's hands */
    bool write_busy;
    bool dirty;   /* in the list of connections to flush */
    bool failing; /* found broken where no call back may run: the sweep takes it */
    int fail_status;
    struct addrinfo *addresses, *next_address;
    int64_t connect_deadline_ms;
    int64_t last_read_ms;
    struct buffer out;     /* gathered */
    struct buffer writing; /* with the kernel */
    struct buffer in;
    size_t in_done;
    struct remoting_connection *next_dirty;
    UT_hash_handle hh;
};

struct slot {
    struct remoting_call *call; /* NULL: free */
    uint32_t generation;
    uint32_t next_free;
};

struct remoting_client {
    uv_loop_t loop;
    uv_thread_t thread;
    uv_async_t wake;
    uv_prepare_t prepare;
    uv_timer_t sweep;
    int connect_timeout_ms;
    bool stopping;

    uv_mutex_t lock; /* guards tasks */
    struct remoting_task *tasks, **tasks_end;

    /* loop thread only */
    struct remoting_connection *connections; /* by address; closed ones have left */
    struct remoting_connection *dirty;
    struct slot *slots;
    uint32_t slot_count, slot_capacity, free_slot; /* free_slot: UINT32_MAX none */
    int64_t sweep_at_ms;
    struct remoting_delay *delays;
    struct remoting_command command; /* scratch for decoding */
    struct remoting_call *beginning; /* between begin and end */
    struct remoting_connection *beginning_connection;
};

static void connect_next(struct remoting_connection *connection);

int64_t remoting_client_now_ms(struct remoting_client *client)
{
    return (int64_t)uv_now(&client->loop);
}

bool remoting_client_on_loop(const struct remoting_client *client)
{
    uv_thread_t self = uv_thread_self();
    return uv_thread_equal(&self, &client->thread) != 0;
}

/* --- slots ---- */

static int slot_take(struct remoting_client *client, struct remoting_call *call)
{
    if (client->free_slot == UINT32_MAX) {
        if (client->slot_count == client->slot_capacity) {
            uint32_t capacity = client->slot_capacity == 0 ? 256 : client->slot_capacity * 2;
            if (client->slot_capacity == REMOTING_CLIENT_CALLS_MAX)
                return ERROR_BUSY;
            struct slot *slots = realloc(client->slots, capacity * sizeof *slots);
            if (slots == NULL)
                return ERROR_NO_MEMORY;
            client->slots = slots;
            client->slot_capacity = capacity;
        }
        client->slots[client->slot_count] = (struct slot){NULL, 0, UINT32_MAX};
        client->free_slot = client->slot_count++;
    }
    call->slot = client->free_slot;
    struct slot *slot = &client->slots[call->slot];
    client->free_slot = slot->next_free;
    slot->call = call;
    slot->generation = (slot->generation + 1) & GENERATION_MASK;
    call->opaque = (int32_t)(slot->generation << SLOT_BITS | call->slot);
    return 0;
}

static void slot_release(struct remoting_client *client, struct remoting_call *call)
{
    struct slot *slot = &client->slots[call->slot];
    assert(slot->call == call);
    slot->call = NULL;
    slot->next_free = client->free_slot;
    client->free_slot = call->slot;
}

/* --- sweep: time-outs of calls and connects, delays, connections found broken ---- */

static void sweep_cb(uv_timer_t *timer);

static void sweep_by(struct remoting_client *client, int64_t at_ms)
{
    if (at_ms >= client->sweep_at_ms || client->stopping)
        return;
    int64_t now = remoting_client_now_ms(client);
    client->sweep_at_ms = at_ms;
    uv_timer_start(&client->sweep, sweep_cb, at_ms > now ? (uint64_t)(at_ms - now) : 0, 0);
}

/* --- connections ---- */

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

/* The end of a connection: its unanswered calls fail. Only from libuv's call backs. The connection may be freed on
 * return. */
static void connection_fail(struct remoting_connection *connection, int rv, const char *cause)
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
        slot_release(client, call);
        call->maybe_sent = was_open;
        call->done(call, rv, NULL, cause);
    }
    connection_release(connection);
}

static void connection_fail_status(struct remoting_connection *connection, const char *what, int status)
{
    char cause[200];
    if (status == UV_EOF)
        snprintf(cause, sizeof cause, "the peer closed the connection");
    else
        snprintf(cause, sizeof cause, "%s: %s", what, uv_strerror(status));
    connection_fail(connection, ERROR_CONNECTION, cause);
}

static void mark_failing(struct remoting_connection *connection, int status)
{
    connection->failing = true;
    connection->fail_status = status;
    sweep_by(connection->client, remoting_client_now_ms(connection->client));
}

static void mark_dirty(struct remoting_connection *connection)
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
        connection_fail_status(connection, "write", status);
        return;
    }
    if (connection->out.size > 0)
        mark_dirty(connection);
}

static void connection_flush(struct remoting_connection *connection)
{
    if (connection->state != OPEN || connection->write_busy || connection->out.size == 0 || connection->failing)
        return;
    uv_buf_t all = uv_buf_init((char *)connection->out.data, (unsigned)connection->out.size);
    int n = uv_try_write((uv_stream_t *)&connection->tcp, &all, 1);
    if (n < 0 && n != UV_EAGAIN) {
        mark_failing(connection, n);
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
        mark_failing(connection, rv);
    }
}

static void flush_dirty(uv_prepare_t *prepare)
{
    struct remoting_client *client = prepare->data;
    while (client->dirty != NULL) {
        struct remoting_connection *connection = client->dirty;
        client->dirty = connection->next_dirty;
        connection->dirty = false;
        connection_flush(connection);
    }
}

/* A broker's own requests (CHECK_TRANSACTION_STATE, CONSUME_MESSAGE_DIRECTLY, ...) are answered "not supported": a
 * broker that waits for an answer must not wait in vain. */
static void answer_request(struct remoting_connection *connection, const struct remoting_command *request)
{
    struct remoting_writer writer;
    char remark[64];
    if (remoting_is_oneway(request) || connection->out.size + connection->writing.size > REMOTING_CLIENT_OUT_MAX / 2)
        return;
    snprintf(remark, sizeof remark, " request type %d not supported", request->code);
    size_t start = connection->out.size;
    remoting_writer_begin_response(&writer, &connection->out, request->serialize_type, 3, request->opaque, remark);
    remoting_writer_end(&writer, 0);
    if (connection->out.failed) {
        connection->out.failed = false;
        connection->out.size = start;
        return;
    }
    mark_dirty(connection);
}

static void take_answer(struct remoting_connection *connection, const struct remoting_command *answer)
{
    struct remoting_client *client = connection->client;
    uint32_t slot = (uint32_t)answer->opaque & SLOT_MASK;
    if (answer->opaque < 0 || slot >= client->slot_count)
        return;
    struct remoting_call *call = client->slots[slot].call;
    /* An answer nobody waits for any more is dropped, as RocketMQ's client does. */
    if (call == NULL || call->opaque != answer->opaque || call->connection != connection)
        return;
    slot_release(client, call);
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
        connection_fail_status(connection, "read", (int)n);
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
            connection_fail(connection, ERROR_MALFORMED,
                            "what it sent is not RocketMQ's remoting protocol: is this the right port?");
            return;
        }
        connection->in_done += (size_t)size;
        if (remoting_is_response(&client->command))
            take_answer(connection, &client->command);
        else
            answer_request(connection, &client->command);
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
        connection_fail_status(connection, "connect", status);
        return;
    }
    connection->state = OPEN;
    connection->last_read_ms = remoting_client_now_ms(connection->client);
    uv_tcp_nodelay(&connection->tcp, 1);
    int rv = uv_read_start((uv_stream_t *)&connection->tcp, alloc_cb, read_cb);
    if (rv < 0) {
        connection_fail_status(connection, "read", rv);
        return;
    }
    mark_dirty(connection);
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
        mark_failing(connection, rv);
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
        connection_fail_status(connection, "the host name does not resolve", status < 0 ? status : UV_EAI_NONAME);
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

static struct remoting_connection *connection_get(struct remoting_client *client, const char *address, int *rv)
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
    memcpy(connection->address, address, size + 1);
    buffer_init(&connection->out, REMOTING_CLIENT_OUT_MAX);
    buffer_init(&connection->writing, REMOTING_CLIENT_OUT_MAX);
    buffer_init(&connection->in, 2u * REMOTING_FRAME_MAX);
    connection->connect_deadline_ms = remoting_client_now_ms(client) + client->connect_timeout_ms;
    HASH_ADD(hh, client->connections, address, size, connection);
    sweep_by(client, connection->connect_deadline_ms);

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
        mark_failing(connection, status);
    else
        connection->resolving = true;
    return connection;
}

bool remoting_client_is_connected(struct remoting_client *client, const char *address)
{
    struct remoting_connection *connection;
    HASH_FIND(hh, client->connections, address, strlen(address), connection);
    return connection != NULL && connection->state == OPEN && !connection->failing;
}

/* --- requests ---- */

int remoting_client_begin(struct remoting_client *client, const char *address, struct remoting_call *call,
                          int32_t code, int timeout_ms, struct remoting_writer *writer)
{
    int rv = 0;
    assert(client->beginning_connection == NULL);
    if (client->stopping)
        return ERROR_STOPPED;
    struct remoting_connection *connection = connection_get(client, address, &rv);
    if (connection == NULL)
        return rv;
    if (connection->out.size + connection->writing.size > REMOTING_CLIENT_OUT_MAX / 2)
        return ERROR_BUSY;
    int32_t opaque = 0;
    if (call != NULL) {
        rv = slot_take(client, call);
        if (rv != 0)
            return rv;
        opaque = call->opaque;
        call->connection = connection;
        call->sent_ms = remoting_client_now_ms(client);
        call->deadline_ms = call->sent_ms + timeout_ms;
        sweep_by(client, call->deadline_ms);
    }
    client->beginning = call;
    client->beginning_connection = connection;
    remoting_writer_begin_request(writer, &connection->out, REMOTING_JSON, code, opaque,
                                  call == NULL ? REMOTING_FLAG_ONEWAY : 0);
    return 0;
}

int remoting_client_end(struct remoting_client *client, struct remoting_call *call, struct remoting_writer *writer)
{
    struct remoting_connection *connection = client->beginning_connection;
    assert(connection != NULL && client->beginning == call);
    client->beginning_connection = NULL;
    client->beginning = NULL;
    remoting_writer_end(writer, 0);
    if (connection->out.failed || connection->out.size - writer->frame_start > REMOTING_FRAME_MAX) {
        connection->out.failed = false;
        connection->out.size = writer->frame_start;
        if (call != NULL)
            slot_release(client, call);
        return ERROR_NO_MEMORY;
    }
    mark_dirty(connection);
    return 0;
}

void remoting_client_cancel(struct remoting_client *client, struct remoting_call *call)
{
    slot_release(client, call);
}

void remoting_client_delay(struct remoting_client *client, struct remoting_delay *delay, int wait_ms)
{
    remoting_client_delay_cancel(delay);
    delay->due_ms = remoting_client_now_ms(client) + wait_ms;
    delay->armed = true;
    delay->next = client->delays;
    delay->previous = &client->delays;
    if (delay->next != NULL)
        delay->next->previous = &delay->next;
    client->delays = delay;
    sweep_by(client, delay->due_ms);
}

void remoting_client_delay_cancel(struct remoting_delay *delay)
{
    if (!delay->armed)
        return;
    delay->armed = false;
    *delay->previous = delay->next;
    if (delay->next != NULL)
        delay->next->previous = delay->previous;
}

static void expire_connections(struct remoting_client *client, int64_t now)
{
    struct remoting_connection *connection, *next;
    HASH_ITER(hh, client->connections, connection, next)
    {
        if (connection->failing) {
            connection_fail_status(connection, "connection", connection->fail_status);
        } else if (connection->state != OPEN && connection->connect_deadline_ms <= now) {
            char cause[64];
            snprintf(cause, sizeof cause, "no connection within %d ms", client->connect_timeout_ms);
            connection_fail(connection, ERROR_CONNECTION, cause);
        } else {
            continue;
        }
        /* Its calls' call backs may have changed the table under the iterator. */
        next = client->connections;
    }
}

static void expire_calls(struct remoting_client *client, int64_t now)
{
    for (uint32_t i = 0; i < client->slot_count; i++) {
        struct remoting_call *call = client->slots[i].call;
        if (call == NULL || call->deadline_ms > now)
            continue;
        struct remoting_connection *connection = call->connection;
        int64_t sent = call->sent_ms;
        slot_release(client, call);
        call->maybe_sent = connection->state == OPEN;
        /* Silence since the request was sent: the peer may be stopped or cut off without a reset, so the next request
         * gets a new connection. */
        if (connection->state == OPEN && connection->last_read_ms <= sent && !connection->failing)
            mark_failing(connection, UV_ETIMEDOUT);
        call->done(call, ERROR_TIMEOUT, NULL, "no answer in time");
    }
}

static void run_delays(struct remoting_client *client, int64_t now)
{
    for (;;) {
        struct remoting_delay *delay = client->delays;
        while (delay != NULL && delay->due_ms > now)
            delay = delay->next;
        if (delay == NULL)
            return;
        remoting_client_delay_cancel(delay);
        delay->run(delay);
    }
}

static void sweep_cb(uv_timer_t *timer)
{
    struct remoting_client *client = timer->data;
    int64_t now = remoting_client_now_ms(client);
    client->sweep_at_ms = SWEEP_NEVER;
    expire_calls(client, now);
    expire_connections(client, now);
    run_delays(client, now);

    int64_t at = SWEEP_NEVER;
    for (uint32_t i = 0; i < client->slot_count; i++)
        if (client->slots[i].call != NULL && client->slots[i].call->deadline_ms < at)
            at = client->slots[i].call->deadline_ms;
    for (const struct remoting_delay *delay = client->delays; delay != NULL; delay = delay->next)
        at = delay->due_ms < at ? delay->due_ms : at;
    for (const struct remoting_connection *c = client->connections; c != NULL; c = c->hh.next) {
        if (c->failing)
            at = now;
        else if (c->state != OPEN && c->connect_deadline_ms < at)
            at = c->connect_deadline_ms;
    }
    if (at != SWEEP_NEVER)
        sweep_by(client, at);
}

/* --- the thread ---- */

static void wake_cb(uv_async_t *wake)
{
    struct remoting_client *client = wake->data;
    uv_mutex_lock(&client->lock);
    struct remoting_task *task = client->tasks;
    client->tasks = NULL;
    client->tasks_end = &client->tasks;
    uv_mutex_unlock(&client->lock);
    while (task != NULL) {
        struct remoting_task *next = task->next; /* run() may free it */
        task->run(task);
        task = next;
    }
}

void remoting_client_post(struct remoting_client *client, struct remoting_task *task)
{
    task->next = NULL;
    uv_mutex_lock(&client->lock);
    bool first = client->tasks == NULL;
    *client->tasks_end = task;
    client->tasks_end = &task->next;
    uv_mutex_unlock(&client->lock);
    if (first)
        uv_async_send(&client->wake);
}

struct stop_task {
    struct remoting_task task;
    struct remoting_client *client;
};

static void stop_run(struct remoting_task *task)
{
    struct remoting_client *client = ((struct stop_task *)task)->client;
    /* One-way requests that are still in the buffers get their chance to leave. */
    flush_dirty(&client->prepare);
    client->stopping = true;
    while (client->connections != NULL)
        connection_fail(client->connections, ERROR_STOPPED, "the client is being closed");
    uv_close((uv_handle_t *)&client->wake, NULL);
    uv_close((uv_handle_t *)&client->prepare, NULL);
    uv_close((uv_handle_t *)&client->sweep, NULL);
}

static void loop_main(void *argument)
{
    struct remoting_client *client = argument;
    uv_run(&client->loop, UV_RUN_DEFAULT);
}

int remoting_client_new(int connect_timeout_ms, struct remoting_client **out, struct error *error)
{
    struct remoting_client *client = calloc(1, sizeof *client);
    if (client == NULL)
        return error_set(error, ERROR_NO_MEMORY, "out of memory");
    client->connect_timeout_ms = connect_timeout_ms;
    client->tasks_end = &client->tasks;
    client->free_slot = UINT32_MAX;
    client->sweep_at_ms = SWEEP_NEVER;
    const char *what = "the mutex";
    int status = uv_mutex_init(&client->lock);
    if (status < 0)
        goto free_client;
    what = "the event loop";
    status = uv_loop_init(&client->loop);
    if (status < 0)
        goto destroy_lock;
    client->wake.data = client->prepare.data = client->sweep.data = client;
    what = "the wake-up descriptor";
    status = uv_async_init(&client->loop, &client->wake, wake_cb);
    if (status < 0)
        goto close_loop;
    uv_prepare_init(&client->loop, &client->prepare);
    uv_prepare_start(&client->prepare, flush_dirty);
    uv_timer_init(&client->loop, &client->sweep);

    /* A write to a connection that the peer reset raises SIGPIPE in the writing thread; the application's own
     * handling of it stays untouched. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    what = "the thread";
    status = uv_thread_create(&client->thread, loop_main, client);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (status < 0)
        goto close_handles;
    *out = client;
    return 0;

close_handles:
    uv_close((uv_handle_t *)&client->wake, NULL);
    uv_close((uv_handle_t *)&client->prepare, NULL);
    uv_close((uv_handle_t *)&client->sweep, NULL);
    uv_run(&client->loop, UV_RUN_DEFAULT);
close_loop:
    uv_loop_close(&client->loop);
destroy_lock:
    uv_mutex_destroy(&client->lock);
free_client:
    free(client);
    return error_set(error, ERROR_NO_MEMORY, "the client cannot make %s: %s", what, uv_strerror(status));
}

void remoting_client_free(struct remoting_client *client)
{
    if (client == NULL)
        return;
    struct stop_task stop = {.task.run = stop_run, .client = client};
    remoting_client_post(client, &stop.task);
    uv_thread_join(&client->thread);
    int rv = uv_loop_close(&client->loop);
    assert(rv == 0);
    uv_mutex_destroy(&client->lock);
    free(client->slots);
    free(client);
}

/* --- one request, waiting ---- */

struct invocation {
    struct remoting_task task;
    struct remoting_call call;
    struct remoting_client *client;
    const char *address;
    int32_t code;
    const struct remoting_field *fields;
    struct slice body;
    int timeout_ms;
    struct remoting_response *response;
    int rv;
    char cause[240];
    uv_sem_t done;
};

static struct slice move_slice(struct slice slice, const uint8_t *from, uint8_t *to, size_t size)
{
    if (slice.data == NULL)
        return slice;
    assert(slice.data >= from && slice.data + slice.size <= from + size);
    return slice_of(to + (slice.data - from), slice.size);
}

/* The connection's buffer moves on with the next read, so the answer's bytes are copied: all slices lie between the
 * lowest and the highest address. */
static int keep_answer(const struct remoting_command *answer, struct remoting_response *response)
{
    const uint8_t *low = NULL, *high = NULL;
    struct slice all[2 + 2 * REMOTING_EXT_FIELDS_MAX];
    size_t count = 0;
    all[count++] = answer->remark;
    all[count++] = answer->body;
    for (uint32_t i = 0; i < answer->ext_count; i++) {
        all[count++] = answer->ext[i].name;
        all[count++] = answer->ext[i].value;
    }
    for (size_t i = 0; i < count; i++) {
        if (all[i].data == NULL)
            continue;
        low = low == NULL || all[i].data < low ? all[i].data : low;
        high = all[i].data + all[i].size > high ? all[i].data + all[i].size : high;
    }
    size_t size = (size_t)(high - low);
    response->frame = malloc(size + 1);
    if (response->frame == NULL)
        return ERROR_NO_MEMORY;
    if (size > 0)
        memcpy(response->frame, low, size);
    response->frame[size] = 0;
    response->command = *answer;
    response->command.remark = move_slice(answer->remark, low, response->frame, size);
    response->command.body = move_slice(answer->body, low, response->frame, size);
    for (uint32_t i = 0; i < answer->ext_count; i++) {
        response->command.ext[i].name = move_slice(answer->ext[i].name, low, response->frame, size);
        response->command.ext[i].value = move_slice(answer->ext[i].value, low, response->frame, size);
    }
    return 0;
}

static void invocation_done(struct remoting_call *call, int rv, const struct remoting_command *answer,
                            const char *cause)
{
    struct invocation *invocation = call->context;
    invocation->rv = rv == 0 ? keep_answer(answer, invocation->response) : rv;
    snprintf(invocation->cause, sizeof invocation->cause, "%s", cause != NULL ? cause : error_text(invocation->rv));
    uv_sem_post(&invocation->done);
}

static void invocation_run(struct remoting_task *task)
{
    struct invocation *invocation = (struct invocation *)task;
    struct remoting_writer writer;
    int rv = remoting_client_begin(invocation->client, invocation->address, &invocation->call, invocation->code,
                                   invocation->timeout_ms, &writer);
    if (rv == 0) {
        for (const struct remoting_field *field = invocation->fields; field != NULL && field->name != NULL; field++)
            if (field->value != NULL)
                remoting_writer_ext_text(&writer, field->name, field->value);
        remoting_writer_body(&writer);
        buffer_append_slice(writer.out, invocation->body);
        rv = remoting_client_end(invocation->client, &invocation->call, &writer);
    }
    if (rv == 0)
        return;
    invocation->rv = rv;
    snprintf(invocation->cause, sizeof invocation->cause, "%s",
             rv == ERROR_INVALID ? "an address has the form host:port, with a port from 1 to 65535" : error_text(rv));
    uv_sem_post(&invocation->done);
}

int remoting_client_invoke(struct remoting_client *client, const char *address, int32_t code,
                           const struct remoting_field *fields, struct slice body, int timeout_ms,
                           struct remoting_response *response, struct error *error)
{
    struct invocation invocation = {
        .task.run = invocation_run,
        .call.done = invocation_done,
        .client = client,
        .address = address,
        .code = code,
        .fields = fields,
        .body = body,
        .timeout_ms = timeout_ms,
        .response = response,
    };
    assert(!remoting_client_on_loop(client));
    invocation.call.context = &invocation;
    response->frame = NULL;
    if (uv_sem_init(&invocation.done, 0) != 0)
        return error_set(error, ERROR_NO_MEMORY, "out of memory");
    remoting_client_post(client, &invocation.task);
    uv_sem_wait(&invocation.done);
    uv_sem_destroy(&invocation.done);
    if (invocation.rv == ERROR_TIMEOUT)
        return error_set(error, ERROR_TIMEOUT, "%s: no answer to request %d within %d ms", address, code, timeout_ms);
    if (invocation.rv != 0)
        return error_set(error, invocation.rv, "%s: %s", address, invocation.cause);
    return 0;
}

void remoting_response_close(struct remoting_response *response)
{
    free(response->frame);
    response->frame = NULL;
}
