/* Connections of `mqadmin bench`: non-blocking sockets on one epoll set. */
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/admin/bench.h"

#define READ_SIZE 262144u
#define OUT_MAX (256u * 1024 * 1024)

bool bench_connect(struct bench_connection *connection, int epoll, const char *address, uint32_t tag)
{
    char host[REMOTING_ADDRESS_MAX];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    connection->descriptor = -1;
    connection->epoll = epoll;
    connection->tag = tag;
    connection->connected = false;
    connection->in_done = connection->out_done = 0;
    connection->in.limit = connection->out.limit = OUT_MAX;
    buffer_clear(&connection->in);
    buffer_clear(&connection->out);
    snprintf(host, sizeof host, "%s", address);
    char *colon = strrchr(host, ':'), *name = host;
    if (colon == NULL)
        return false;
    *colon = '\0';
    if (host[0] == '[' && colon[-1] == ']') {
        colon[-1] = '\0';
        name++;
    }
    if (getaddrinfo(name, colon + 1, &hints, &found) != 0)
        return false;
    int one = 1, descriptor = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int rv = descriptor < 0 ? -1 : connect(descriptor, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    if (descriptor < 0)
        return false;
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.u32 = tag};
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if ((rv < 0 && errno != EINPROGRESS) || epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) < 0) {
        close(descriptor);
        return false;
    }
    connection->descriptor = descriptor;
    connection->wants_room = true;
    return true;
}

void bench_disconnect(struct bench_connection *connection)
{
    if (connection->descriptor >= 0)
        close(connection->descriptor);
    connection->descriptor = -1;
    connection->connected = false;
    connection->outstanding = 0;
    if (connection->slots != NULL)
        memset(connection->slots, 0, BENCH_SLOTS * sizeof *connection->slots);
}

void bench_connection_close(struct bench_connection *connection)
{
    if (connection->descriptor >= 0)
        close(connection->descriptor);
    buffer_close(&connection->in);
    buffer_close(&connection->out);
    free(connection->slots);
}

static bool still_connecting(struct bench_connection *connection, bool *failed)
{
    struct sockaddr_storage peer;
    socklen_t peer_size = sizeof peer, error_size = sizeof(int);
    int error = 0;
    getsockopt(connection->descriptor, SOL_SOCKET, SO_ERROR, &error, &error_size);
    *failed = error != 0;
    if (error != 0)
        return false;
    if (getpeername(connection->descriptor, (struct sockaddr *)&peer, &peer_size) < 0)
        return true;
    connection->connected = true;
    return false;
}

bool bench_flush(struct bench_connection *connection)
{
    bool failed = false;
    if (!connection->connected && still_connecting(connection, &failed))
        return true;
    if (failed)
        return false;
    while (connection->out_done < connection->out.size) {
        ssize_t n = send(connection->descriptor, connection->out.data + connection->out_done,
                         connection->out.size - connection->out_done, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            return false;
        if (n < 0)
            break;
        connection->out_done += (size_t)n;
    }
    bool room = connection->out_done < connection->out.size;
    if (!room) {
        buffer_clear(&connection->out);
        connection->out_done = 0;
    }
    if (room != connection->wants_room) {
        struct epoll_event event = {.events = EPOLLIN | (room ? (uint32_t)EPOLLOUT : 0u),
                                    .data.u32 = connection->tag};
        epoll_ctl(connection->epoll, EPOLL_CTL_MOD, connection->descriptor, &event);
        connection->wants_room = room;
    }
    return true;
}

bool bench_read(struct bench_connection *connection)
{
    struct buffer *in = &connection->in;
    if (connection->in_done > 0) {
        memmove(in->data, in->data + connection->in_done, in->size - connection->in_done);
        in->size -= connection->in_done;
        connection->in_done = 0;
    }
    uint8_t *at = buffer_reserve(in, READ_SIZE);
    if (at == NULL)
        return false;
    ssize_t n = recv(connection->descriptor, at, in->capacity - in->size, 0);
    if (n > 0)
        in->size += (size_t)n;
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

int bench_next(struct bench_connection *connection, uint8_t **frame, size_t *size)
{
    struct slice rest =
        slice_of(connection->in.data + connection->in_done, connection->in.size - connection->in_done);
    int64_t wanted = remoting_frame_size(rest);
    if (wanted < 0)
        return -1;
    if (wanted == 0 || (size_t)wanted > rest.size)
        return 0;
    *frame = connection->in.data + connection->in_done;
    *size = (size_t)wanted;
    connection->in_done += (size_t)wanted;
    return 1;
}

bool bench_send(struct bench_connection *connection, struct bench_frames *frames, uint64_t number, int64_t due_ns,
                int64_t wall_ns)
{
    if (connection->slots == NULL)
        connection->slots = calloc(BENCH_SLOTS, sizeof *connection->slots);
    if (connection->slots == NULL || connection->outstanding >= (int)BENCH_SLOTS - 1)
        return false;
    while (connection->slots[connection->next % BENCH_SLOTS].due_ns != 0)
        connection->next++;
    uint32_t slot = connection->next++ % BENCH_SLOTS;
    if (!bench_frames_append(frames, &connection->out, slot, number, wall_ns))
        return false;
    connection->slots[slot] = (struct bench_slot){due_ns, number, false};
    connection->outstanding++;
    return true;
}
