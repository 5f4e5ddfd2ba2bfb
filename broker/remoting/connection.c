/* A frame's way in and out:
 *  1. on_alloc gives the server's shared read buffer, behind what this connection already had of a frame; only frames too large for
 *     that get a buffer of their own, which grows with what really arrives.
 *  2. on_read cuts whole frames out of it, without copies, and hands them up; what is left is kept in `input`.
 *  3. Answers are appended to `filling`; connection_frame_done puts the connection on the server's list.
 *  4. The server's hook calls connection_flush: one writev. What the socket does not take moves to `sending`, libuv waits for room.
 *  5. While much is unsent, requests that came already wait in `input` and reading stops; on_written goes on with them.
 *
 * Closing: the id is forgotten at once, the memory lives until libuv has closed the handle.
 */
#include "broker/remoting/connection.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "broker/remoting/remoting_server.h"
#include "proto/remoting_command.h"

#define FLUSH_PARTS 512

/* ---- output ---- */

static size_t output_size(const struct connection_output *output)
{
    return output->owned.size + output->slice_bytes;
}

static void output_release(struct connection *connection, struct connection_output *output, size_t keep)
{
    struct remoting_server *server = connection->server;
    for (uint32_t i = 0; i < output->slice_count; i++) {
        if (output->slices[i].pinned != NULL)
            server->options.unpin(server->options.context, output->slices[i].pinned);
    }
    output->slice_count = 0;
    output->slice_bytes = 0;
    if (output->owned.capacity > keep) {
        buffer_close(&output->owned);
        buffer_init(&output->owned, LIMIT_UNSENT_BYTES + 2 * REMOTING_FRAME_MAX);
        free(output->slices);
        output->slices = NULL;
        output->slice_capacity = 0;
    } else {
        buffer_clear(&output->owned);
    }
}

/* Parts of output behind its first `skip` bytes, at most FLUSH_PARTS. */
static unsigned output_parts(const struct connection_output *output, size_t skip, uv_buf_t parts[FLUSH_PARTS], size_t *bytes)
{
    unsigned count = 0;
    size_t owned_at = 0;
    *bytes = 0;
    for (uint32_t i = 0; i <= output->slice_count && count + 2 <= FLUSH_PARTS; i++) {
        bool last = i == output->slice_count;
        size_t owned_end = last ? output->owned.size : output->slices[i].at;
        const uint8_t *data[2] = {output->owned.data + owned_at, last ? NULL : output->slices[i].data};
        size_t size[2] = {owned_end - owned_at, last ? 0 : output->slices[i].size};
        for (int k = 0; k < 2; k++) {
            if (skip >= size[k]) {
                skip -= size[k];
                continue;
            }
            parts[count++] = uv_buf_init((char *)(uintptr_t)(data[k] + skip), (unsigned)(size[k] - skip));
            *bytes += size[k] - skip;
            skip = 0;
        }
        owned_at = owned_end;
    }
    return count;
}

size_t connection_unsent(const struct connection *connection)
{
    return output_size(&connection->filling) + output_size(&connection->sending) - connection->sent;
}

static void cut(struct connection *connection, uint64_t *counter, const char *why)
{
    struct remoting_server *server = connection->server;
    uint64_t suppressed;
    (*counter)++;
    if (log_limiter_pass(&server->cut_limiter, (int64_t)uv_now(server->options.loop), &suppressed)) {
        char peer[64];
        connection_peer_text(connection, peer);
        LOG_WARN("%s: client %s is cut off: %s (%llu more lines like this left out)", server->options.name, peer, why,
                 (unsigned long long)suppressed);
    }
    connection_close(connection);
}

static void flush_output(struct connection *connection);

struct buffer *connection_output(struct connection *connection)
{
    if (connection->closing)
        return NULL;
    if (connection_unsent(connection) > LIMIT_UNSENT_BYTES) {
        cut(connection, &connection->server->counters.cut_slow, "it does not read its answers");
        return NULL;
    }
    return &connection->filling.owned;
}

void connection_append_pinned(struct connection *connection, const uint8_t *data, size_t size, struct mapped_file *pinned)
{
    struct remoting_server *server = connection->server;
    struct connection_output *output = &connection->filling;
    if (connection->closing)
        goto refuse;
    if (output->slice_count == output->slice_capacity) {
        uint32_t capacity = output->slice_capacity == 0 ? 32 : output->slice_capacity * 2;
        struct connection_slice *slices = realloc(output->slices, capacity * sizeof *slices);
        if (slices == NULL) {
            connection_close(connection);
            goto refuse;
        }
        output->slices = slices;
        output->slice_capacity = capacity;
    }
    output->slices[output->slice_count++] =
        (struct connection_slice){.at = output->owned.size, .data = data, .size = size, .pinned = pinned};
    output->slice_bytes += size;
    return;

refuse:
    if (pinned != NULL)
        server->options.unpin(server->options.context, pinned);
}

void connection_frame_done(struct connection *connection)
{
    struct remoting_server *server = connection->server;
    if (connection->closing)
        return;
    server->owned_bytes += connection->filling.owned.size - connection->owned_counted;
    connection->owned_counted = connection->filling.owned.size;
    if (connection->filling.owned.failed || !remoting_server_add_dirty(server, connection)) {
        cut(connection, &server->counters.cut_slow, "no memory for its answers");
    } else if (server->owned_bytes > LIMIT_UNSENT_TOTAL_BYTES) {
        /* Most of it may be writable at once: only what sockets do not take counts. */
        flush_output(connection);
        if (!connection->closing && server->owned_bytes > LIMIT_UNSENT_TOTAL_BYTES && connection_unsent(connection) > 0)
            cut(connection, &server->counters.cut_slow, "unsent bytes of all clients reached the limit");
    }
}

void connection_send(struct connection *connection, struct slice frame)
{
    struct buffer *out = connection_output(connection);
    if (out != NULL) {
        buffer_append_slice(out, frame);
        connection_frame_done(connection);
    }
}

static void sent_all(struct connection *connection)
{
    struct remoting_server *server = connection->server;
    server->owned_bytes -= connection->sending.owned.size;
    output_release(connection, &connection->sending, LIMIT_OUTPUT_BUSY_BYTES);
    connection->sent = 0;
    connection->writing = false;
}

static void on_written(uv_write_t *request, int status);

/* Hands the rest of `sending` to libuv. */
static void write_rest(struct connection *connection)
{
    uv_buf_t parts[FLUSH_PARTS];
    unsigned count = output_parts(&connection->sending, connection->sent, parts, &connection->write_bytes);
    connection->writing = true;
    int rv = uv_write(&connection->write, (uv_stream_t *)&connection->tcp, parts, count, on_written);
    if (rv != 0)
        connection_close(connection);
}

static void on_written(uv_write_t *request, int status)
{
    struct connection *connection = request->data;
    struct remoting_server *server = connection->server;
    if (connection->closing)
        return;
    if (status != 0) {
        connection_close(connection);
        return;
    }
    server->counters.bytes_out += connection->write_bytes;
    connection->last_activity_ms = uv_now(server->options.loop);
    connection->sent += connection->write_bytes;
    if (connection->sent < output_size(&connection->sending)) {
        write_rest(connection);
        return;
    }
    sent_all(connection);
    connection_flush(connection);
}

/* Does not go on with paused input: it may run inside a handler of another connection. */
static void flush_output(struct connection *connection)
{
    struct remoting_server *server = connection->server;
    struct connection_output *output = &connection->filling;
    size_t size = output_size(output), sent = 0;
    if (connection->closing || connection->writing)
        return;
    while (sent < size) {
        uv_buf_t parts[FLUSH_PARTS];
        size_t bytes;
        unsigned count = output_parts(output, sent, parts, &bytes);
        int rv = uv_try_write((uv_stream_t *)&connection->tcp, parts, count);
        if (rv < 0 && rv != UV_EAGAIN) {
            connection_close(connection);
            return;
        }
        if (rv > 0) {
            sent += (size_t)rv;
            server->counters.bytes_out += (uint64_t)rv;
            connection->last_activity_ms = uv_now(server->options.loop);
        }
        if (rv < 0 || (size_t)rv < bytes)
            break;
    }
    if (size > 0) {
        /* filling becomes sending, so that new answers do not move bytes libuv still reads. */
        struct connection_output empty = connection->sending;
        connection->sending = *output;
        *output = empty;
        connection->sent = sent;
        server->owned_bytes += connection->sending.owned.size - connection->owned_counted;
        connection->owned_counted = 0;
        if (sent < size) {
            connection->write_started_ms = uv_now(server->options.loop);
            write_rest(connection);
        } else {
            sent_all(connection);
        }
    }
}

static void resume(struct connection *connection);

void connection_flush(struct connection *connection)
{
    flush_output(connection);
    if (connection->paused && !connection->writing && !connection->closing && connection_unsent(connection) <= LIMIT_UNSENT_PAUSE_BYTES / 2)
        resume(connection);
}

/* ---- input ---- */

static void input_free(struct connection *connection)
{
    connection->server->input_bytes -= connection->input_capacity;
    free(connection->input);
    connection->input = NULL;
    connection->input_size = connection->input_capacity = 0;
}

/* Cuts off whoever holds much of a frame that began longest ago. A client that works sends a frame in one go. False: there is none but `but`. */
static bool cut_slowest_frame(struct remoting_server *server, const struct connection *but)
{
    struct connection *slowest = NULL;
    for (uint32_t i = 0; i < server->slot_count; i++) {
        struct connection *connection = server->slots[i];
        if (connection != NULL && connection != but && connection->input_capacity > LIMIT_INPUT_KEEP_BYTES && connection->frame_started_ms != 0 &&
            (slowest == NULL || connection->frame_started_ms < slowest->frame_started_ms))
            slowest = connection;
    }
    if (slowest == NULL)
        return false;
    cut(slowest, &server->counters.cut_input, "unfinished requests of all clients reached the limit, and its own is the oldest");
    input_free(slowest);
    return true;
}

/* Keeps data[0, size) (which may lie in input itself) with room for `capacity` bytes. */
static void input_keep(struct connection *connection, const uint8_t *data, size_t size, size_t capacity)
{
    struct remoting_server *server = connection->server;
    bool inside = connection->input != NULL && data >= connection->input && data < connection->input + connection->input_capacity;
    if (inside && data != connection->input)
        memmove(connection->input, data, size);
    if (connection->input_capacity < capacity) {
        while (server->input_bytes - connection->input_capacity + capacity > LIMIT_INPUT_TOTAL_BYTES) {
            if (cut_slowest_frame(server, connection))
                continue;
            cut(connection, &server->counters.cut_input, "unfinished requests of all clients reached the limit");
            return;
        }
        uint8_t *input = realloc(connection->input, capacity);
        if (input == NULL) {
            cut(connection, &server->counters.cut_input, "no memory for its request");
            return;
        }
        server->input_bytes += capacity - connection->input_capacity;
        connection->input = input;
        connection->input_capacity = capacity;
    }
    if (!inside)
        memcpy(connection->input, data, size);
    connection->input_size = size;
}

static void not_silent(struct connection *connection)
{
    connection->silent = false;
    TAILQ_REMOVE(&connection->server->silent, connection, silent_next);
}

/* Cuts frames out of data, which is the shared buffer or input, and keeps the rest. */
static void consume_input(struct connection *connection, uint8_t *data, size_t size)
{
    struct remoting_server *server = connection->server;
    size_t at = 0;
    int64_t frame_size = 0;
    while (at < size) {
        frame_size = remoting_frame_size(slice_of(data + at, size - at));
        if (frame_size < 0) {
            connection_close_malformed(connection, "length field out of range");
            return;
        }
        if (frame_size == 0 || (size_t)frame_size > size - at)
            break;
        if (connection_unsent(connection) > LIMIT_UNSENT_PAUSE_BYTES) {
            connection->paused = true;
            break;
        }
        server->counters.frames++;
        if (connection->silent)
            not_silent(connection);
        connection->frame_started_ms = 0;
        server->options.on_frame(server->options.context, connection, data + at, (size_t)frame_size);
        if (connection->closing)
            return;
        at += (size_t)frame_size;
    }
    size_t left = size - at;
    if (left == 0 || connection->paused)
        connection->frame_started_ms = 0;
    else if (connection->frame_started_ms == 0)
        connection->frame_started_ms = uv_now(server->options.loop);
    if (left == 0) {
        connection->input_size = 0;
        if (connection->input_capacity > LIMIT_INPUT_KEEP_BYTES)
            input_free(connection);
        return;
    }
    /* Room grows with the bytes that arrive, not with what the length field promises. */
    size_t capacity = LIMIT_INPUT_KEEP_BYTES;
    if (left > LIMIT_INPUT_KEEP_BYTES || connection->paused) {
        capacity = left * 2;
        if (frame_size > 0 && capacity > (size_t)frame_size)
            capacity = (size_t)frame_size;
        if (capacity < left)
            capacity = left;
    }
    input_keep(connection, data + at, left, capacity);
}

static bool is_crowded(const struct remoting_server *server)
{
    return server->turn_started_us < server->crowded_until_us;
}

static uint64_t crowded_turn_us(const struct remoting_server *server)
{
    return server->turn_started_us < server->light_until_us ? LIMIT_CROWDED_TURN_US : LIMIT_CROWDED_HEAVY_TURN_US;
}

/* Is it this connection's turn? A flood must not keep the loop from the peers' sockets and timers, nor those who ask for little from their answers: these are
 * not counted among the many that share a turn of a crowded port. */
static bool may_read(struct remoting_server *server, struct connection *connection)
{
    uint64_t now_us = uv_hrtime() / 1000;
    if (server->turn_started_us == 0) {
        server->turn_started_us = now_us;
        server->turn_first = connection;
    }
    server->turn_shared |= connection != server->turn_first;
    bool crowded = is_crowded(server), light = crowded && !connection->heavy;
    struct remoting_round *round = light ? &server->light_round : &server->round;
    if ((crowded && connection->served_turn == server->turn) || (round->somebody_waits && connection->served_turn >= round->first_turn)) {
        server->turn_held = true;
        return false;
    }
    if (light)
        server->light_until_us = now_us + LIMIT_CROWDED_LIGHT_US;
    if (now_us - server->turn_started_us > (crowded && !light ? crowded_turn_us(server) : LIMIT_TURN_US)) {
        server->turn_held = server->turn_full = true;
        round->somebody_waits = round->goes_on = true;
        return false;
    }
    connection->served_turn = server->turn;
    connection->read_started_us = now_us;
    return true;
}

/* What a read of a crowded port has cost decides how much the next one may bring. all: something may be left in the socket. */
static void note_share(struct connection *connection, bool all)
{
    struct remoting_server *server = connection->server;
    uint64_t took_us = uv_hrtime() / 1000 - connection->read_started_us;
    uint64_t share_us = crowded_turn_us(server) / (server->heavy_before > 0 ? server->heavy_before : 1);
    if (share_us < LIMIT_CROWDED_SHARE_MIN_US)
        share_us = LIMIT_CROWDED_SHARE_MIN_US;
    /* Once may be because the processor was somebody else's meanwhile. */
    bool slow = took_us > share_us, slow_again = slow && connection->slow;
    connection->slow = slow;
    connection->heavy = all || slow_again;
    server->heavy_count += connection->heavy;
    if (slow && connection->heavy && connection->share_bytes > LIMIT_CROWDED_READ_MIN_BYTES)
        connection->share_bytes /= 2;
    else if (all && took_us < share_us / 2 && connection->share_bytes < LIMIT_READ_BYTES)
        connection->share_bytes *= 2;
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct connection *connection = handle->data;
    struct remoting_server *server = connection->server;
    (void)suggested;
    if (!may_read(server, connection)) {
        *buf = uv_buf_init(NULL, 0); /* on_read hears of it; the socket stays readable */
        return;
    }
    if (connection->input_size <= LIMIT_INPUT_KEEP_BYTES) {
        /* libuv reads right behind this call, so nobody else uses the shared buffer in between. */
        if (connection->input_size > 0)
            memcpy(server->read_buffer, connection->input, connection->input_size);
        size_t room = LIMIT_READ_BYTES - connection->input_size;
        if (is_crowded(server) && room > connection->share_bytes)
            room = connection->share_bytes;
        *buf = uv_buf_init((char *)server->read_buffer + connection->input_size, (unsigned)room);
        return;
    }
    if (connection->input_size == connection->input_capacity) {
        size_t capacity = connection->input_capacity * 2;
        int64_t frame_size = remoting_frame_size(slice_of(connection->input, connection->input_size));
        if (frame_size > 0 && (size_t)frame_size > connection->input_size && capacity > (size_t)frame_size)
            capacity = (size_t)frame_size;
        input_keep(connection, connection->input, connection->input_size, capacity);
        if (connection->closing) {
            *buf = uv_buf_init(NULL, 0);
            return;
        }
    }
    *buf = uv_buf_init((char *)connection->input + connection->input_size, (unsigned)(connection->input_capacity - connection->input_size));
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buf)
{
    struct connection *connection = stream->data;
    struct remoting_server *server = connection->server;
    if (connection->closing || count == 0 || count == UV_ENOBUFS)
        return;
    if (count < 0) {
        connection_close(connection);
        return;
    }
    server->counters.bytes_in += (uint64_t)count;
    connection->last_activity_ms = uv_now(server->options.loop);
    bool shared = (uint8_t *)buf->base >= server->read_buffer && (uint8_t *)buf->base < server->read_buffer + LIMIT_READ_BYTES;
    size_t size = connection->input_size + (size_t)count;
    connection->input_size = shared ? 0 : size;
    consume_input(connection, shared ? server->read_buffer : connection->input, size);
    if (is_crowded(server) && !connection->closing)
        note_share(connection, (size_t)count == buf->len);
    if (connection->paused && !connection->closing) {
        uv_read_stop(stream);
        connection_flush(connection);
    }
}

static void resume(struct connection *connection)
{
    connection->paused = false;
    size_t size = connection->input_size;
    connection->input_size = 0;
    if (size > 0)
        consume_input(connection, connection->input, size);
    if (connection->closing)
        return;
    if (connection->paused) {
        /* Filled up again: the hook flushes and comes back here. */
        remoting_server_add_dirty(connection->server, connection);
    } else {
        uv_read_start((uv_stream_t *)&connection->tcp, on_alloc, on_read);
    }
}

/* ---- life ---- */

static bool take_slot(struct remoting_server *server, uint32_t *slot)
{
    if (server->free_count > 0) {
        *slot = server->free_slots[--server->free_count];
        return true;
    }
    uint32_t count = server->slot_count == 0 ? 64 : server->slot_count * 2;
    if (count > server->options.connections_max)
        count = server->options.connections_max;
    if (count <= server->slot_count)
        return false;
    struct connection **slots = realloc(server->slots, count * sizeof *slots);
    if (slots == NULL)
        return false;
    server->slots = slots;
    uint32_t *free_slots = realloc(server->free_slots, count * sizeof *free_slots);
    if (free_slots == NULL)
        return false;
    server->free_slots = free_slots;
    for (uint32_t i = count; i > server->slot_count; i--) {
        server->slots[i - 1] = NULL;
        server->free_slots[server->free_count++] = i - 1;
    }
    server->slot_count = count;
    *slot = server->free_slots[--server->free_count];
    return true;
}

static void set_peer(struct message_host *host, const struct sockaddr_storage *name)
{
    if (name->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)name;
        host->address_size = 4;
        memcpy(host->address, &in->sin_addr, 4);
        host->port = ntohs(in->sin_port);
        return;
    }
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)name;
    static const uint8_t mapped[12] = {[10] = 0xFF, [11] = 0xFF};
    const uint8_t *bytes = in6->sin6_addr.s6_addr;
    host->port = ntohs(in6->sin6_port);
    if (memcmp(bytes, mapped, sizeof mapped) == 0) { /* an IPv4 client of a socket for both */
        host->address_size = 4;
        memcpy(host->address, bytes + 12, 4);
    } else {
        host->address_size = 16;
        memcpy(host->address, bytes, 16);
    }
}

static void on_closed(uv_handle_t *handle)
{
    struct connection *connection = handle->data;
    struct remoting_server *server = connection->server;
    output_release(connection, &connection->filling, 0);
    output_release(connection, &connection->sending, 0);
    buffer_close(&connection->filling.owned);
    buffer_close(&connection->sending.owned);
    free(connection->filling.slices);
    free(connection->sending.slices);
    input_free(connection);
    free(connection);
    remoting_server_handle_closed(server);
}

static void on_refused_closed(uv_handle_t *handle)
{
    struct remoting_server *server = handle->data;
    free(handle);
    remoting_server_handle_closed(server);
}

/* Full: the connection is taken and closed, so that the client learns at once. */
static void refuse(struct remoting_server *server, struct remoting_listener *listener)
{
    uint64_t suppressed;
    server->counters.refused++;
    if (log_limiter_pass(&server->cut_limiter, (int64_t)uv_now(server->options.loop), &suppressed))
        LOG_WARN("%s: a client is refused: %u connections are the limit", server->options.name, server->options.connections_max);
    uv_tcp_t *tcp = malloc(sizeof *tcp);
    if (tcp == NULL)
        return;
    uv_tcp_init(server->options.loop, tcp);
    tcp->data = server;
    server->handles++;
    (void)uv_accept((uv_stream_t *)&listener->tcp, (uv_stream_t *)tcp);
    uv_close((uv_handle_t *)tcp, on_refused_closed);
}

/* A flood of connections that say nothing keeps nobody out who speaks. */
static void make_room(struct remoting_server *server)
{
    struct connection *silent = TAILQ_FIRST(&server->silent);
    if (silent != NULL && uv_now(server->options.loop) - silent->accepted_ms > LIMIT_SILENT_MS)
        cut(silent, &server->counters.refused, "connectionsMax is reached, and it has sent nothing yet");
}

struct connection *connection_accept(struct remoting_server *server, struct remoting_listener *listener)
{
    uint32_t slot;
    if (server->connection_count >= server->options.connections_max)
        make_room(server);
    if (server->connection_count >= server->options.connections_max || !take_slot(server, &slot)) {
        refuse(server, listener);
        return NULL;
    }
    struct connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL) {
        server->free_slots[server->free_count++] = slot;
        refuse(server, listener);
        return NULL;
    }
    connection->id = server->next_serial++ << REMOTING_SLOT_BITS | slot;
    connection->server = server;
    connection->local_port = listener->port;
    connection->last_activity_ms = connection->accepted_ms = uv_now(server->options.loop);
    connection->share_bytes = LIMIT_CROWDED_READ_FIRST_BYTES;
    connection->silent = true;
    TAILQ_INSERT_TAIL(&server->silent, connection, silent_next);
    connection->write.data = connection;
    buffer_init(&connection->filling.owned, LIMIT_UNSENT_BYTES + 2 * REMOTING_FRAME_MAX);
    buffer_init(&connection->sending.owned, LIMIT_UNSENT_BYTES + 2 * REMOTING_FRAME_MAX);
    uv_tcp_init(server->options.loop, &connection->tcp);
    connection->tcp.data = connection;
    server->handles++;
    server->slots[slot] = connection;
    server->connection_count++;

    struct sockaddr_storage name;
    int name_size = sizeof name;
    if (uv_accept((uv_stream_t *)&listener->tcp, (uv_stream_t *)&connection->tcp) != 0 ||
        uv_tcp_getpeername(&connection->tcp, (struct sockaddr *)&name, &name_size) != 0 ||
        uv_read_start((uv_stream_t *)&connection->tcp, on_alloc, on_read) != 0) {
        connection_close(connection);
        return NULL;
    }
    set_peer(&connection->peer, &name);
    uv_tcp_nodelay(&connection->tcp, 1);
    server->counters.accepted++;
    return connection;
}

void connection_close(struct connection *connection)
{
    struct remoting_server *server = connection->server;
    if (connection->closing)
        return;
    connection->closing = true;
    uint32_t slot = (uint32_t)(connection->id & ((1u << REMOTING_SLOT_BITS) - 1));
    assert(server->slots[slot] == connection);
    server->slots[slot] = NULL;
    server->free_slots[server->free_count++] = slot;
    server->connection_count--;
    server->owned_bytes -= connection->owned_counted + connection->sending.owned.size;
    connection->owned_counted = 0;
    if (connection->dirty_at != 0)
        server->dirty[connection->dirty_at - 1] = NULL;
    connection->dirty_at = 0;
    if (connection->silent)
        not_silent(connection);
    if (server->options.on_closed != NULL)
        server->options.on_closed(server->options.context, connection);
    uv_close((uv_handle_t *)&connection->tcp, on_closed);
}

void connection_close_malformed(struct connection *connection, const char *why)
{
    struct remoting_server *server = connection->server;
    uint64_t suppressed;
    if (connection->closing)
        return;
    server->counters.cut_malformed++;
    if (log_limiter_pass(&server->malformed_limiter, (int64_t)uv_now(server->options.loop), &suppressed)) {
        char peer[64];
        connection_peer_text(connection, peer);
        LOG_WARN("%s: %s sent no remoting frame (%s), its connection is closed (%llu more lines like this left out)", server->options.name,
                 peer, why, (unsigned long long)suppressed);
    }
    connection_close(connection);
}

void connection_sweep(struct connection *connection, uint64_t now_ms)
{
    struct remoting_server *server = connection->server;
    if (connection->writing && now_ms - connection->write_started_ms > LIMIT_STALLED_WRITE_MS) {
        cut(connection, &server->counters.cut_slow, "an answer could not be written for 30 s");
        return;
    }
    if (connection->frame_started_ms != 0 && connection->input_size > 0 &&
        now_ms - connection->frame_started_ms > server->options.frame_timeout_ms + connection->input_size / LIMIT_FRAME_BYTES_PER_MS) {
        cut(connection, &server->counters.cut_frame, "its request does not come to an end");
        return;
    }
    if (now_ms - connection->last_activity_ms > server->options.idle_ms) {
        server->counters.cut_idle++;
        connection_close(connection);
        return;
    }
    if (now_ms - connection->last_activity_ms > REMOTING_SWEEP_MS && !connection->writing) {
        if (output_size(&connection->filling) == 0)
            output_release(connection, &connection->filling, LIMIT_OUTPUT_KEEP_BYTES);
        output_release(connection, &connection->sending, LIMIT_OUTPUT_KEEP_BYTES);
        if (connection->input_size == 0)
            input_free(connection);
    }
}

void connection_peer_text(const struct connection *connection, char out[64])
{
    message_host_format(&connection->peer, out, 64);
}
