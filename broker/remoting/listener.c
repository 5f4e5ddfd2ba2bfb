#include "broker/remoting/listener.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "broker/remoting/connection.h"
#include "broker/remoting/remoting_server.h"

static void accept_deferred(struct remoting_server *server);

static bool round_ends(struct remoting_round *round, uint64_t next_turn)
{
    bool ends = !round->goes_on;
    round->goes_on = false;
    if (ends) {
        round->first_turn = next_turn;
        round->somebody_waits = false;
    }
    return ends;
}

static void begin_turn(struct remoting_server *server)
{
    server->turn++;
    if (round_ends(&server->round, server->turn)) {
        server->heavy_before = server->heavy_count;
        server->heavy_count = 0;
    }
    round_ends(&server->light_round, server->turn);
    if (server->turn_held && server->turn_shared)
        server->crowded_until_us = uv_hrtime() / 1000 + LIMIT_CROWDED_US;
    server->counters.turns_full += server->turn_full;
    server->turn_started_us = 0;
    server->turn_shared = server->turn_held = server->turn_full = false;
    if (!server->closing)
        accept_deferred(server);
}

static void flush_dirty(uv_prepare_t *prepare)
{
    struct remoting_server *server = prepare->data;
    /* A flush may fail and close its connection, which may make answers for others: the list can grow while it is walked. */
    for (uint32_t i = 0; i < server->dirty_count; i++) {
        struct connection *connection = server->dirty[i];
        if (connection == NULL)
            continue;
        connection->dirty_at = 0;
        server->dirty[i] = NULL;
        connection_flush(connection);
    }
    server->dirty_count = 0;
    begin_turn(server);
}

static void sweep(uv_timer_t *timer)
{
    struct remoting_server *server = timer->data;
    uint64_t now_ms = uv_now(server->options.loop);
    for (uint32_t i = 0; i < server->slot_count; i++) {
        if (server->slots[i] != NULL)
            connection_sweep(server->slots[i], now_ms);
    }
    if (server->connection_count == 0)
        uv_timer_stop(timer);
}

struct remoting_server *remoting_server_new(const struct remoting_server_options *options, struct error *error)
{
    struct remoting_server *server = calloc(1, sizeof *server);
    if (server == NULL)
        goto no_memory;
    server->options = *options;
    if (server->options.connections_max == 0)
        server->options.connections_max = LIMIT_CONNECTIONS;
    if (server->options.connections_max > (1u << REMOTING_SLOT_BITS))
        server->options.connections_max = 1u << REMOTING_SLOT_BITS;
    if (server->options.idle_ms == 0)
        server->options.idle_ms = LIMIT_IDLE_MS;
    if (server->options.frame_timeout_ms == 0)
        server->options.frame_timeout_ms = REMOTING_FRAME_TIMEOUT_MS;
    server->sweep_ms = server->options.frame_timeout_ms / 4 < REMOTING_SWEEP_MS ? server->options.frame_timeout_ms / 4 : REMOTING_SWEEP_MS;
    server->next_serial = 1;
    server->turn = server->round.first_turn = server->light_round.first_turn = 1;
    TAILQ_INIT(&server->silent);
    server->malformed_limiter.burst = 1;
    server->cut_limiter.burst = 5;
    server->read_buffer = malloc(LIMIT_READ_BYTES);
    if (server->read_buffer == NULL)
        goto no_memory;
    uv_prepare_init(options->loop, &server->prepare);
    server->prepare.data = server;
    uv_prepare_start(&server->prepare, flush_dirty);
    uv_unref((uv_handle_t *)&server->prepare);
    uv_timer_init(options->loop, &server->sweep);
    server->sweep.data = server;
    uv_unref((uv_handle_t *)&server->sweep);
    server->handles = 2;
    return server;

no_memory:
    error_set(error, ERROR_NO_MEMORY, "server %s: %s", options->name, error_text(ERROR_NO_MEMORY));
    free(server);
    return NULL;
}

static void on_connection(uv_stream_t *stream, int status)
{
    struct remoting_listener *listener = stream->data;
    struct remoting_server *server = listener->server;
    if (status < 0 || server->closing)
        return;
    if (listener->accepts == LIMIT_ACCEPTS_TURN) {
        /* Not taken: libuv holds it and does not look at the port until it is. */
        listener->deferred = true;
        server->counters.accepts_deferred++;
        return;
    }
    listener->accepts++;
    if (connection_accept(server, listener) != NULL && !uv_is_active((uv_handle_t *)&server->sweep))
        uv_timer_start(&server->sweep, sweep, server->sweep_ms, server->sweep_ms);
}

static void accept_deferred(struct remoting_server *server)
{
    for (unsigned i = 0; i < server->listener_count; i++) {
        struct remoting_listener *listener = &server->listeners[i];
        listener->accepts = 0;
        if (!listener->deferred || !listener->open)
            continue;
        listener->deferred = false;
        on_connection((uv_stream_t *)&listener->tcp, 0);
    }
}

static void on_listener_closed(uv_handle_t *handle)
{
    struct remoting_listener *listener = handle->data;
    remoting_server_handle_closed(listener->server);
}

int remoting_server_listen(struct remoting_server *server, const char *address, int port, struct error *error)
{
    struct sockaddr_storage name;
    assert(!server->closing);
    if (server->listener_count == LIMIT_LISTENERS)
        return error_set(error, ERROR_BUSY, "more than %u ports", LIMIT_LISTENERS);
    if (uv_ip4_addr(address, port, (struct sockaddr_in *)&name) != 0 && uv_ip6_addr(address, port, (struct sockaddr_in6 *)&name) != 0)
        return error_set(error, ERROR_INVALID, "%s is no numeric address", address);
    struct remoting_listener *listener = &server->listeners[server->listener_count];
    memset(listener, 0, sizeof *listener);
    listener->server = server;
    uv_tcp_init(server->options.loop, &listener->tcp);
    listener->tcp.data = listener;
    int rv = uv_tcp_bind(&listener->tcp, (struct sockaddr *)&name, 0);
    if (rv == 0)
        rv = uv_listen((uv_stream_t *)&listener->tcp, 1024, on_connection);
    int name_size = sizeof name;
    if (rv == 0)
        rv = uv_tcp_getsockname(&listener->tcp, (struct sockaddr *)&name, &name_size);
    /* The struct is libuv's until its close callback, also after a failure: the place is not used again. */
    server->listener_count++;
    server->handles++;
    if (rv != 0) {
        uv_close((uv_handle_t *)&listener->tcp, on_listener_closed);
        return error_set(error, ERROR_IO, "cannot listen on %s port %d: %s", address, port, uv_strerror(rv));
    }
    listener->open = true;
    listener->port = ntohs(name.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&name)->sin6_port : ((struct sockaddr_in *)&name)->sin_port);
    return 0;
}

int remoting_server_port(const struct remoting_server *server, unsigned nth)
{
    for (unsigned i = 0; i < server->listener_count; i++) {
        if (server->listeners[i].open && nth-- == 0)
            return server->listeners[i].port;
    }
    return -1;
}

void remoting_server_handle_closed(struct remoting_server *server)
{
    assert(server->handles > 0);
    if (--server->handles == 0 && server->closing && server->closed != NULL)
        server->closed(server->closed_argument);
}

static void on_own_closed(uv_handle_t *handle)
{
    remoting_server_handle_closed(handle->data);
}

void remoting_server_close(struct remoting_server *server, void (*closed)(void *argument), void *argument)
{
    assert(!server->closing);
    flush_dirty(&server->prepare);
    server->closing = true;
    server->closed = closed;
    server->closed_argument = argument;
    for (unsigned i = 0; i < server->listener_count; i++) {
        if (server->listeners[i].open)
            uv_close((uv_handle_t *)&server->listeners[i].tcp, on_listener_closed);
        server->listeners[i].open = false;
    }
    for (uint32_t i = 0; i < server->slot_count; i++) {
        if (server->slots[i] != NULL)
            connection_close(server->slots[i]);
    }
    uv_close((uv_handle_t *)&server->prepare, on_own_closed);
    uv_close((uv_handle_t *)&server->sweep, on_own_closed);
}

void remoting_server_free(struct remoting_server *server)
{
    if (server == NULL)
        return;
    assert(server->handles == 0 && server->connection_count == 0);
    free(server->slots);
    free(server->free_slots);
    free(server->dirty);
    free(server->read_buffer);
    free(server);
}

struct connection *remoting_server_find(struct remoting_server *server, uint64_t connection_id)
{
    uint32_t slot = (uint32_t)(connection_id & ((1u << REMOTING_SLOT_BITS) - 1));
    if (slot >= server->slot_count)
        return NULL;
    struct connection *connection = server->slots[slot];
    return connection != NULL && connection->id == connection_id ? connection : NULL;
}

uint32_t remoting_server_connection_count(const struct remoting_server *server)
{
    return server->connection_count;
}

void remoting_server_each(struct remoting_server *server, void (*each)(void *argument, struct connection *connection), void *argument)
{
    for (uint32_t i = 0; i < server->slot_count; i++) {
        if (server->slots[i] != NULL)
            each(argument, server->slots[i]);
    }
}

uint64_t remoting_server_buffered(const struct remoting_server *server)
{
    return server->input_bytes + server->owned_bytes;
}

const struct remoting_server_counters *remoting_server_counters(const struct remoting_server *server)
{
    return &server->counters;
}

bool remoting_server_add_dirty(struct remoting_server *server, struct connection *connection)
{
    if (connection->dirty_at != 0)
        return true;
    if (server->dirty_count == server->dirty_capacity) {
        uint32_t capacity = server->dirty_capacity == 0 ? 64 : server->dirty_capacity * 2;
        struct connection **dirty = realloc(server->dirty, capacity * sizeof *dirty);
        if (dirty == NULL)
            return false;
        server->dirty = dirty;
        server->dirty_capacity = capacity;
    }
    server->dirty[server->dirty_count++] = connection;
    connection->dirty_at = server->dirty_count;
    return true;
}
