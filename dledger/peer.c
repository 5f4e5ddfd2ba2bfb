/* Life of a connection: dial or accept -> magic and hello both ways -> messages. A second connection of the same member replaces the first.
 *
 * What a network lost is sent again by the kernel after pauses that double, so after a cut of seconds it would be silent for as long again. When what was sent
 * is not confirmed by the other end's kernel, who dials makes a second connection beside the first, each try with a first packet of its own; it replaces the first
 * when its hello is answered. A process that stands still or is busy is none of that: its kernel confirms, or says that it has no room.
 */
#include "dledger/peer.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "dledger/peer_address.h"
#include "dledger/peer_version.h"
#include "proto/remoting_command.h"
#include "store/log_sink.h"

#define HELLO_DEADLINE_MS 5000u
#define KEEPALIVE_S 5       /* of silence before the kernel asks whether the other end is there */
#define UNANSWERED_MS 10000u /* sent and not confirmed so long: the connection is given up */
#define DIAL_BACKOFF_MIN_MS 20u
#define DIAL_BACKOFF_MAX_MS 500u
#define TIMER_MS 20u
#define WATCH_MS 200u        /* between two looks at whether the others' kernels confirm */
#define UNCONFIRMED_TIMES 2u /* sent again in vain so often: 600 ms, where an answer takes less than 200 */
#define CONNECT_MS 300u      /* a connect without an answer is begun anew after that, and four times what an answer took last: its first packet is lost */
#define LONG_GONE_MS 60000u  /* ... and not so soon when nobody was there for so long: the way may be another one */
#define PROBE_MS 1000u
#define KNOCK_MS 1000u
#define YOUNG_MS 200u
#define REFUSAL_AGAIN_MS 10000u /* between two lines in the log about strangers that are refused for the same reason */

enum connection_mode { MODE_UNKNOWN, MODE_PEER, MODE_DLEDGER };

struct peer_connection {
    uv_tcp_t tcp;
    uv_connect_t connect;
    uv_getaddrinfo_t resolve;
    struct peer_network *network;
    struct peer_connection *next;
    uint64_t id;       /* never used again: answers that come later find their connection, or nothing */
    uint64_t member;   /* Raft id once known, 0 = stranger */
    bool dialled;
    bool probe;        /* to be closed as soon as it is decided */
    bool tcp_open;
    bool closing;
    bool resolving;
    bool told;         /* our hello went out on it */
    bool greeted;
    uint8_t version;   /* that both ends speak, once greeted */
    enum connection_mode mode;
    uint64_t born_ms;
    uint64_t connecting_ms; /* when the connect began, 0 = it has an answer, or has not begun */
    uint64_t used_ms;  /* DLedger's requests: when the last one came */
    uint8_t *input;
    size_t input_size, input_capacity;
};

struct peer_write {
    uv_write_t request;
    struct mapped_file *pinned;
    uint8_t header[PEER_HEADER_SIZE];
    uint8_t copy[];
};

static struct peer_link *link_of(struct peer_network *network, uint64_t id)
{
    return id >= 1 && id <= DLEDGER_MEMBERS_MAX ? &network->links[id - 1] : NULL;
}

/* Somebody else is there. */
static bool link_used(const struct peer_network *network, const struct peer_link *link)
{
    return link->id != network->replica->id && network->replica->members[link->id - 1].raft_id != 0;
}


static void network_maybe_closed(struct peer_network *network)
{
    if (network->closing && network->open_handles == 0 && network->closed != NULL) {
        void (*closed)(void *) = network->closed;
        network->closed = NULL;
        closed(network->closed_argument);
    }
}

static void connection_free(struct peer_connection *connection)
{
    struct peer_network *network = connection->network;
    struct peer_connection **at = &network->connections;

    while (*at != connection)
        at = &(*at)->next;
    *at = connection->next;
    free(connection->input);
    free(connection);
    network->open_handles--;
    network_maybe_closed(network);
}

static void on_connection_closed(uv_handle_t *handle)
{
    struct peer_connection *connection = handle->data;
    connection->tcp_open = false;
    if (!connection->resolving)
        connection_free(connection);
}

static void start_dial(struct peer_network *network, struct peer_link *link, bool probe);
static void on_timer(uv_timer_t *timer);

static void connection_close(struct peer_connection *connection)
{
    struct peer_network *network = connection->network;
    struct peer_link *link = link_of(network, connection->member);
    bool was_greeted;

    if (connection->closing)
        return;
    connection->closing = true;
    was_greeted = connection->greeted && link != NULL && link->connection == connection;
    if (link != NULL) {
        if (link->dialing == connection)
            link->dialing = NULL;
        if (link->probe == connection)
            link->probe = NULL;
        if (link->connection == connection)
            link->connection = NULL;
    }
    if (connection->member == 0 && !connection->dialled)
        network->strangers--;
    if (connection->mode == MODE_DLEDGER)
        network->dledger_connections--;
    if (connection->resolving)
        uv_cancel((uv_req_t *)&connection->resolve);
    uv_close((uv_handle_t *)&connection->tcp, on_connection_closed);
    if (was_greeted && !network->closing) {
        uint64_t id = connection->member;
        replica_peer_lost(network->replica, id);
        network->callbacks.lost(network->callbacks.context, id);
        link->next_dial_ms = 0;
        link->backoff_ms = DIAL_BACKOFF_MIN_MS;
        link->probe_until_ms = uv_now(network->loop) + PROBE_MS;
        uv_timer_start(&network->timer, on_timer, TIMER_MS, 0);
        if (uv_now(network->loop) - connection->born_ms < YOUNG_MS) {
            link->next_dial_ms = uv_now(network->loop) + DIAL_BACKOFF_MIN_MS; /* it was hardly made: the other end may not want us yet */
            return;
        }
        /* Is its process gone? The dialler's own reconnect tells; the other side asks with a connect of its own. */
        if (network->replica->id < id)
            start_dial(network, link, false);
        else
            start_dial(network, link, true);
    }
}

static struct peer_connection *connection_new(struct peer_network *network)
{
    struct peer_connection *connection = calloc(1, sizeof *connection);

    if (connection == NULL)
        return NULL;
    connection->network = network;
    connection->id = ++network->connection_ids;
    connection->born_ms = uv_now(network->loop);
    if (uv_tcp_init(network->loop, &connection->tcp) != 0) {
        free(connection);
        return NULL;
    }
    connection->tcp.data = connection;
    connection->tcp_open = true;
    connection->next = network->connections;
    network->connections = connection;
    network->open_handles++;
    return connection;
}

/* ---- sending ---- */

static void on_written(uv_write_t *request, int status)
{
    struct peer_write *write = request->data;
    struct peer_connection *connection = request->handle->data;

    if (write->pinned != NULL)
        mapped_file_unpin(write->pinned);
    free(write);
    if (status < 0)
        connection_close(connection);
}

static void connection_send(struct peer_connection *connection, const uint8_t header[PEER_HEADER_SIZE], const uint8_t *body, size_t size)
{
    struct peer_network *network = connection->network;
    struct mapped_file_queue *data = &network->replica->ledger.data;
    uv_stream_t *stream = (uv_stream_t *)&connection->tcp;
    uv_buf_t buffers[2] = {uv_buf_init((char *)(uintptr_t)header, PEER_HEADER_SIZE),
                           uv_buf_init((char *)(uintptr_t)body, (unsigned)size)};
    unsigned count = size > 0 ? 2 : 1;
    size_t written = 0;
    struct peer_write *write;
    struct mapped_file *file = NULL;
    int rv;

    rv = uv_try_write(stream, buffers, count);
    if (rv < 0 && rv != UV_EAGAIN) {
        connection_close(connection);
        return;
    }
    if (rv > 0)
        written = (size_t)rv;
    if (written == PEER_HEADER_SIZE + size)
        return;
    /* The rest waits for the socket: by reference when it stands in a segment's mapping, else copied. */
    if (size > 0) {
        uint64_t position = size >= LEDGER_ENTRY_HEADER_SIZE ? load_u64(body + 24) : 0;
        if (mapped_file_queue_at(data, position, size) == body)
            file = mapped_file_queue_find(data, position);
    }
    size_t body_done = written > PEER_HEADER_SIZE ? written - PEER_HEADER_SIZE : 0;
    write = malloc(sizeof *write + (file == NULL ? size - body_done : 0));
    if (write == NULL) {
        connection_close(connection);
        return;
    }
    write->request.data = write;
    write->pinned = file;
    if (file != NULL)
        mapped_file_pin(file);
    else if (size > body_done)
        memcpy(write->copy, body + body_done, size - body_done);
    count = 0;
    if (written < PEER_HEADER_SIZE) {
        memcpy(write->header, header + written, PEER_HEADER_SIZE - written);
        buffers[count++] = uv_buf_init((char *)write->header, (unsigned)(PEER_HEADER_SIZE - written));
    }
    if (size > body_done)
        buffers[count++] = uv_buf_init((char *)(uintptr_t)(file != NULL ? body + body_done : write->copy), (unsigned)(size - body_done));
    if (uv_write(&write->request, stream, buffers, count, on_written) != 0) {
        if (file != NULL)
            mapped_file_unpin(file);
        free(write);
        connection_close(connection);
    }
}

bool peer_network_send(struct peer_network *network, uint64_t to, const struct peer_message *message, const uint8_t *body, size_t body_size)
{
    struct peer_link *link = link_of(network, to);
    uint8_t header[PEER_HEADER_SIZE];
    struct peer_message copy = *message;

    if (link == NULL || link->connection == NULL)
        return false;
    if (body_size > 0 && uv_stream_get_write_queue_size((uv_stream_t *)&link->connection->tcp) > PEER_UNSENT_MAX) {
        network->dropped_messages++;
        return false;
    }
    copy.body_size = (uint32_t)body_size;
    copy.version = link->connection->version;
    peer_message_encode(&copy, header);
    connection_send(link->connection, header, body, body_size);
    return true;
}

void peer_network_cut(struct peer_network *network)
{
    for (int i = 0; i < DLEDGER_MEMBERS_MAX; i++) {
        struct peer_connection *connection = network->links[i].connection;
        if (connection != NULL && uv_stream_get_write_queue_size((uv_stream_t *)&connection->tcp) > 0)
            connection_close(connection);
    }
}

static void send_hello(struct peer_connection *connection)
{
    struct peer_hello hello;
    struct peer_message message;
    struct buffer body;
    uint8_t header[PEER_HEADER_SIZE];

    replica_hello(connection->network->replica, connection->member, &hello);
    buffer_init(&body, 0);
    peer_hello_encode(&hello, &message, &body);
    if (body.failed) {
        buffer_close(&body);
        connection_close(connection);
        return;
    }
    connection->told = true;
    peer_message_encode(&message, header);
    connection_send(connection, header, body.data, body.size);
    buffer_close(&body);
}

/* Also on a connection whose other end has not answered yet: when it does, it goes by the hello that it had. */
void peer_network_greet(struct peer_network *network)
{
    for (struct peer_connection *connection = network->connections; connection != NULL; connection = connection->next) {
        if (connection->told && !connection->closing)
            send_hello(connection);
    }
}

/* ---- receiving ---- */

static void note_members(struct peer_network *network, bool first);

static void refuse(struct peer_connection *connection, const char *why)
{
    struct sockaddr_storage address;
    int size = sizeof address;
    char text[64] = "?";
    int port = 0;

    if (uv_tcp_getpeername(&connection->tcp, (struct sockaddr *)&address, &size) == 0) {
        if (address.ss_family == AF_INET) {
            uv_ip4_name((struct sockaddr_in *)&address, text, sizeof text);
            port = ntohs(((struct sockaddr_in *)&address)->sin_port);
        } else {
            uv_ip6_name((struct sockaddr_in6 *)&address, text, sizeof text);
            port = ntohs(((struct sockaddr_in6 *)&address)->sin6_port);
        }
    }
    struct peer_network *network = connection->network;
    struct peer_link *link = link_of(network, connection->member);
    char *told = link != NULL ? link->refusal : network->refusal;
    bool again = strncmp(told, why, sizeof link->refusal - 1) == 0;
    if (link == NULL && uv_now(network->loop) - network->refusal_ms > REFUSAL_AGAIN_MS)
        again = false; /* of somebody else, maybe */
    if (!again)
        LOG_ERROR("peer at %s:%d is refused: %s", text, port, why);
    if (!again && link == NULL)
        network->refusal_ms = uv_now(network->loop);
    snprintf(told, sizeof link->refusal, "%s", why);
    bool greeted = connection->greeted;
    connection_close(connection);
    if (link != NULL && !greeted) { /* else it is dialled as one that was lost */
        link->backoff_ms = DIAL_BACKOFF_MAX_MS;
        link->next_dial_ms = uv_now(network->loop) + link->backoff_ms;
    }
}

static void receive_hello(struct peer_connection *connection, const struct peer_message *message, const uint8_t *body)
{
    struct peer_network *network = connection->network;
    struct peer_hello hello;
    const char *why;
    struct peer_link *link;
    bool first = !connection->greeted;

    if (peer_hello_decode(&hello, message, slice_of(body, message->body_size)) != 0) {
        refuse(connection, "its hello is undecodable");
        return;
    }
    replica_hear_configuration(network->replica, &hello);
    note_members(network, false); /* before this connection is one of a member */
    if (connection->closing)
        return;
    why = replica_check_hello(network->replica, &hello);
    if (why != NULL && first && !connection->dialled)
        send_hello(connection); /* who is no member hears it from us */
    if (connection->closing)
        return;
    if (why == NULL && connection->member != 0 && connection->member != hello.from)
        why = "another member answers at this address: dLegerPeers differ";
    if (why != NULL) {
        refuse(connection, why);
        return;
    }
    link = link_of(network, hello.from);
    if (first) {
        if (connection->member == 0)
            network->strangers--;
        connection->member = hello.from;
        connection->greeted = true;
        connection->version = (uint8_t)peer_version_common(hello.newest);
        if (link->connection != NULL && link->connection != connection) {
            struct peer_connection *old = link->connection;
            old->greeted = false; /* it is not dialled again */
            connection_close(old);
            /* What was on its way there is lost all the same, and who greets may be another process. */
            replica_peer_lost(network->replica, hello.from);
            network->callbacks.lost(network->callbacks.context, hello.from);
        }
        link->connection = connection;
        if (link->dialing == connection)
            link->dialing = NULL;
        link->refusal[0] = '\0';
        link->backoff_ms = DIAL_BACKOFF_MIN_MS;
        if (!connection->dialled)
            send_hello(connection);
        if (connection->closing)
            return;
        network->callbacks.connected(network->callbacks.context, hello.from);
    }
    replica_peer_connected(network->replica, hello.from, &hello);
}

/* ---- DLedger's own protocol ---- */

bool peer_network_is_member_host(const struct peer_network *network, const struct sockaddr_storage *address)
{
    const struct replica *replica = network->replica;
    struct sockaddr_storage other;
    char host[128];
    char port[16];

    if (peer_address_is_loopback(address))
        return true;
    for (int i = 0; i < replica->member_count; i++) {
        const struct peer_connection *member = network->links[i].connection;
        int size = sizeof other;
        if (peer_address_split(replica->members[i].address, host, sizeof host, port, sizeof port) &&
            peer_address_numeric(host, port, &other) && peer_address_same_host(address, &other))
            return true;
        if (member != NULL && uv_tcp_getpeername(&member->tcp, (struct sockaddr *)&other, &size) == 0 && peer_address_same_host(address, &other))
            return true;
    }
    return false;
}

static bool may_use_dledger(const struct peer_connection *connection)
{
    struct sockaddr_storage from, own;
    int size = sizeof from;

    if (uv_tcp_getpeername(&connection->tcp, (struct sockaddr *)&from, &size) != 0)
        return false;
    size = sizeof own;
    return (uv_tcp_getsockname(&connection->tcp, (struct sockaddr *)&own, &size) == 0 && peer_address_same_host(&from, &own)) ||
           peer_network_is_member_host(connection->network, &from);
}

/* False: close the connection. */
static bool write_dledger(struct peer_connection *connection, struct slice frame)
{
    struct peer_write *write = malloc(sizeof *write + frame.size);
    uv_buf_t buffer;

    if (write == NULL)
        return false;
    buffer = uv_buf_init((char *)write->copy, (unsigned)frame.size);
    memcpy(write->copy, frame.data, frame.size);
    write->request.data = write;
    write->pinned = NULL;
    if (uv_write(&write->request, (uv_stream_t *)&connection->tcp, &buffer, 1, on_written) != 0) {
        free(write);
        return false;
    }
    return uv_stream_get_write_queue_size((uv_stream_t *)&connection->tcp) <= REMOTING_FRAME_MAX;
}

static bool take_dledger_frame(struct peer_connection *connection, uint8_t *frame, size_t size)
{
    struct peer_network *network = connection->network;
    struct buffer out;
    bool good;

    connection->used_ms = uv_now(network->loop);
    buffer_init(&out, REMOTING_FRAME_MAX);
    good = network->callbacks.dledger_frame(network->callbacks.context, connection->id, frame, size, &out) && !out.failed;
    if (good && out.size > 0)
        good = write_dledger(connection, buffer_slice(&out));
    buffer_close(&out);
    return good;
}

void peer_network_answer_dledger(struct peer_network *network, uint64_t id, struct slice frame)
{
    for (struct peer_connection *connection = network->connections; connection != NULL; connection = connection->next) {
        if (connection->id != id || connection->closing)
            continue;
        if (!write_dledger(connection, frame))
            connection_close(connection);
        return;
    }
}

/* Takes whole units off the front; returns bytes used, -1 when the connection was closed. */
static ssize_t take_input(struct peer_connection *connection, uint8_t *data, size_t size)
{
    struct peer_network *network = connection->network;
    struct peer_message message;
    size_t used = 0;

    if (connection->mode == MODE_UNKNOWN) {
        if (size < 4)
            return 0;
        if (load_u32(data) == PEER_MAGIC) {
            connection->mode = MODE_PEER;
            used = 4;
        } else if (data[0] <= 1 && !connection->dialled) {
            if (!may_use_dledger(connection)) {
                refuse(connection, "DLedger's requests are for loopback and members' addresses");
                return -1;
            }
            if (network->dledger_connections >= PEER_DLEDGER_CONNECTIONS_MAX) {
                refuse(connection, "too many connections with DLedger's requests");
                return -1;
            }
            connection->mode = MODE_DLEDGER;
            network->dledger_connections++;
        } else {
            connection_close(connection);
            return -1;
        }
    }
    while (connection->mode == MODE_PEER && size - used >= PEER_HEADER_SIZE) {
        int rv = peer_message_decode(&message, data + used);
        if (rv == ERROR_VERSION) {
            char why[128];
            snprintf(why, sizeof why, "it speaks version %u of the peer protocol, this program %u to %u", message.version, PEER_VERSION_OLDEST,
                     peer_version_newest);
            refuse(connection, why);
            return -1;
        }
        if (rv != 0 || (!connection->greeted && message.type != PEER_HELLO) ||
            (message.type == PEER_HELLO && message.body_size > 4096)) {
            refuse(connection, "malformed message");
            return -1;
        }
        if (size - used < PEER_HEADER_SIZE + (size_t)message.body_size)
            break;
        const uint8_t *body = data + used + PEER_HEADER_SIZE;
        used += PEER_HEADER_SIZE + message.body_size;
        if (message.type == PEER_HELLO)
            receive_hello(connection, &message, body);
        else
            network->callbacks.message(network->callbacks.context, connection->member, &message, body);
        if (connection->closing)
            return -1;
    }
    while (connection->mode == MODE_DLEDGER) {
        int64_t frame = remoting_frame_size(slice_of(data + used, size - used));
        if (frame == 0 || (frame > 0 && frame <= PEER_DLEDGER_FRAME_MAX && (uint64_t)frame > size - used))
            break;
        if (frame < 0 || frame > PEER_DLEDGER_FRAME_MAX || !take_dledger_frame(connection, data + used, (size_t)frame)) {
            connection_close(connection);
            return -1;
        }
        used += (size_t)frame;
    }
    return (ssize_t)used;
}

/* Bytes that the unit at the front of the input needs in all. */
static size_t wanted(const struct peer_connection *connection)
{
    if (connection->mode == MODE_PEER && connection->input_size >= PEER_HEADER_SIZE)
        return PEER_HEADER_SIZE + (size_t)load_u32(connection->input);
    if (connection->mode == MODE_DLEDGER && connection->input_size >= 4)
        return 4 + (size_t)load_u32(connection->input);
    return 0;
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    struct peer_connection *connection = handle->data;
    size_t capacity = connection->input_capacity == 0 ? PEER_INPUT_INITIAL : connection->input_capacity;
    size_t need = wanted(connection);

    (void)suggested;
    if (connection->mode != MODE_PEER && connection->input_capacity == 0)
        capacity = 4096; /* strangers cost little */
    while (capacity < need || capacity == connection->input_size)
        capacity *= 2;
    if (capacity > connection->input_capacity) {
        uint8_t *input = realloc(connection->input, capacity);
        if (input == NULL) {
            *buffer = uv_buf_init(NULL, 0);
            return;
        }
        connection->input = input;
        connection->input_capacity = capacity;
    }
    *buffer = uv_buf_init((char *)connection->input + connection->input_size, (unsigned)(connection->input_capacity - connection->input_size));
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
    struct peer_connection *connection = stream->data;
    ssize_t used;

    (void)buffer;
    if (count < 0) {
        connection_close(connection);
        return;
    }
    connection->input_size += (size_t)count;
    used = take_input(connection, connection->input, connection->input_size);
    if (used < 0)
        return;
    connection->input_size -= (size_t)used;
    if (used > 0 && connection->input_size > 0)
        memmove(connection->input, connection->input + used, connection->input_size);
    if (connection->input_size == 0 && connection->input_capacity > PEER_INPUT_INITIAL) {
        free(connection->input);
        connection->input = NULL;
        connection->input_capacity = 0;
    }
}

/* A machine that lost power says nothing: an end that never sends would keep the old connection for ever, and its peer, back again, wait for it
 * to dial. And what a cut network held up must not wait for a retransmission that has backed off to minutes. */
static void notice_silence(uv_tcp_t *tcp)
{
    uv_os_fd_t fd;
    int on = 1;
    int idle_s = KEEPALIVE_S;
    int count = 3;
    unsigned unanswered_ms = UNANSWERED_MS;

    if (uv_fileno((uv_handle_t *)tcp, &fd) != 0)
        return;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_ms, sizeof unanswered_ms);
}

static void connection_begin(struct peer_connection *connection)
{
    uv_tcp_nodelay(&connection->tcp, 1);
    notice_silence(&connection->tcp);
    if (uv_read_start((uv_stream_t *)&connection->tcp, on_alloc, on_read) != 0)
        connection_close(connection);
}

static void on_accept(uv_stream_t *server, int status)
{
    struct peer_network *network = server->data;
    struct peer_connection *connection;

    if (status < 0 || network->closing)
        return;
    connection = connection_new(network);
    if (connection == NULL)
        return;
    network->strangers++;
    if (uv_accept(server, (uv_stream_t *)&connection->tcp) != 0 || network->strangers > PEER_CONNECTIONS_MAX) {
        connection_close(connection);
        return;
    }
    connection_begin(connection);
}

/* ---- dialling ---- */

static void dial_failed(struct peer_connection *connection, int status)
{
    struct peer_network *network = connection->network;
    struct peer_link *link = link_of(network, connection->member);

    if (connection->closing)
        return;
    if (!connection->probe && connection->connecting_ms != 0 && status == UV_ETIMEDOUT) {
        link->next_dial_ms = uv_now(network->loop); /* it has waited long enough */
    } else if (!connection->probe) {
        link->next_dial_ms = uv_now(network->loop) + link->backoff_ms;
        link->backoff_ms = link->backoff_ms * 2 > DIAL_BACKOFF_MAX_MS ? DIAL_BACKOFF_MAX_MS : link->backoff_ms * 2;
    }
    connection_close(connection);
    if (status == UV_ECONNREFUSED) {
        if (link->connection != NULL)
            connection_close(link->connection); /* that one was silent */
        replica_peer_gone(network->replica, link->id);
    }
}

static void on_connect(uv_connect_t *request, int status)
{
    struct peer_connection *connection = request->data;
    uint8_t magic[4];
    uv_buf_t buffer = uv_buf_init((char *)magic, sizeof magic);

    if (connection->closing)
        return;
    if (status < 0) {
        dial_failed(connection, status);
        return;
    }
    connection->connecting_ms = 0;
    if (connection->probe) { /* it is there */
        connection_close(connection);
        return;
    }
    store_u32(magic, PEER_MAGIC);
    if (uv_try_write((uv_stream_t *)&connection->tcp, &buffer, 1) != (int)sizeof magic) {
        dial_failed(connection, UV_EIO);
        return;
    }
    connection->mode = MODE_PEER;
    connection_begin(connection);
    if (!connection->closing)
        send_hello(connection);
}

static void connect_to(struct peer_connection *connection, const struct sockaddr *address)
{
    connection->connect.data = connection;
    connection->connecting_ms = uv_now(connection->network->loop);
    int rv = uv_tcp_connect(&connection->connect, &connection->tcp, address, on_connect);
    if (rv != 0)
        dial_failed(connection, rv);
}

static void on_resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *result)
{
    struct peer_connection *connection = request->data;

    connection->resolving = false;
    if (connection->closing) {
        uv_freeaddrinfo(result);
        if (!connection->tcp_open)
            connection_free(connection);
        return;
    }
    if (status < 0 || result == NULL)
        dial_failed(connection, status < 0 ? status : UV_EAI_NONAME);
    else
        connect_to(connection, result->ai_addr);
    uv_freeaddrinfo(result);
}

static void start_dial(struct peer_network *network, struct peer_link *link, bool probe)
{
    const char *address = network->replica->members[link->id - 1].address;
    struct peer_connection *connection;
    struct sockaddr_storage numeric;
    char host[128];
    char port[16];

    if (network->closing || (probe ? link->probe : link->dialing) != NULL || !peer_address_split(address, host, sizeof host, port, sizeof port))
        return;
    connection = connection_new(network);
    if (connection == NULL)
        return;
    connection->dialled = true;
    connection->probe = probe;
    connection->member = link->id;
    if (probe)
        link->probe = connection;
    else
        link->dialing = connection;
    if (peer_address_numeric(host, port, &numeric)) {
        connect_to(connection, (const struct sockaddr *)&numeric);
        return;
    }
    /* A name is resolved at every connect: containers change addresses. */
    connection->resolve.data = connection;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    connection->resolving = true;
    if (uv_getaddrinfo(network->loop, &connection->resolve, on_resolved, host, port, &hints) != 0) {
        connection->resolving = false;
        dial_failed(connection, UV_EAI_FAIL);
    }
}

/* What was sent is not confirmed, though it was sent again. */
static bool is_unconfirmed(struct peer_link *link)
{
    struct tcp_info info;
    socklen_t size = sizeof info;
    uv_os_fd_t fd;

    memset(&info, 0, sizeof info);
    if (uv_fileno((uv_handle_t *)&link->connection->tcp, &fd) != 0 || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
        return false;
    if (info.tcpi_retransmits == 0)
        link->answer_ms = info.tcpi_rtt / 1000;
    return info.tcpi_retransmits >= UNCONFIRMED_TIMES;
}

/* Makes a second connection beside one that is silent; and leaves it when that one is not so any more. */
static void watch(struct peer_network *network, struct peer_link *link, uint64_t now)
{
    bool silent = is_unconfirmed(link);

    if (silent && link->dialing == NULL && now >= link->next_dial_ms)
        start_dial(network, link, false);
    else if (!silent && link->dialing != NULL && !link->dialing->told) /* else the other end may have left the first one already */
        connection_close(link->dialing);
}

static uint64_t connect_deadline_ms(const struct peer_network *network, const struct peer_connection *connection)
{
    const struct peer_link *link = &network->links[connection->member - 1];
    uint64_t patience = CONNECT_MS + 4 * (uint64_t)link->answer_ms;

    if (patience > HELLO_DEADLINE_MS || connection->connecting_ms > link->seen_ms + LONG_GONE_MS)
        patience = HELLO_DEADLINE_MS;
    return connection->connecting_ms + patience;
}

static void on_timer(uv_timer_t *timer)
{
    struct peer_network *network = timer->data;
    uint64_t now = uv_now(network->loop);
    struct peer_connection *next;
    for (int i = 0; i < DLEDGER_MEMBERS_MAX; i++) {
        struct peer_link *link = &network->links[i];
        if (!link_used(network, link))
            continue;
        if (link->connection != NULL)
            link->seen_ms = now;
        if (link->connection != NULL && link->id > network->replica->id)
            watch(network, link, now);
        /* Those before us dial us, but may not think of it: an empty node may stand at another place of the list than it has in the group, and one that was
         * removed while it was down hears so only if it asks, be it that others who were removed elect it. */
        bool knocks = now - link->seen_ms > KNOCK_MS;
        if (network->replica->phase != REPLICA_REMOVED && (link->id > network->replica->id || knocks) && link->connection == NULL && link->dialing == NULL && now >= link->next_dial_ms)
            start_dial(network, link, false);
        if (link->id < network->replica->id && link->connection == NULL && link->probe == NULL && now < link->probe_until_ms)
            start_dial(network, link, true);
    }
    for (struct peer_connection *connection = network->connections; connection != NULL; connection = next) {
        next = connection->next;
        if (!connection->closing && !connection->greeted && connection->mode != MODE_DLEDGER && now - connection->born_ms > HELLO_DEADLINE_MS) {
            if (connection->dialled)
                dial_failed(connection, UV_ETIMEDOUT);
            else
                connection_close(connection);
        } else if (!connection->closing && connection->connecting_ms != 0 && now > connect_deadline_ms(network, connection)) {
            dial_failed(connection, UV_ETIMEDOUT);
        } else if (!connection->closing && connection->mode == MODE_DLEDGER && now - connection->used_ms > PEER_DLEDGER_IDLE_MS) {
            connection_close(connection);
        }
    }
    /* Only while something is missing does this timer run fast: an idle group costs next to nothing. */
    bool missing = false, watched = false;
    for (int i = 0; i < DLEDGER_MEMBERS_MAX; i++) {
        const struct peer_link *link = &network->links[i];
        missing |= link_used(network, link) && (link->connection == NULL || link->dialing != NULL);
        watched |= link->connection != NULL && link->id > network->replica->id;
    }
    uv_timer_start(&network->timer, on_timer, missing || network->strangers > network->dledger_connections ? TIMER_MS : watched ? WATCH_MS : 1000, 0);
}

/* Whoever has this number now is not the one that our connections are with. */
static void forget_member(struct peer_network *network, struct peer_link *link)
{
    struct peer_connection *next;
    bool had = link->connection != NULL;

    for (struct peer_connection *connection = network->connections; connection != NULL; connection = next) {
        next = connection->next;
        if (connection->member == link->id && !connection->closing) {
            connection->greeted = false; /* replaced, not lost */
            connection_close(connection);
        }
    }
    if (had)
        network->callbacks.lost(network->callbacks.context, link->id);
    link->refusal[0] = '\0';
    link->next_dial_ms = 0;
    link->seen_ms = uv_now(network->loop);
    link->probe_until_ms = 0;
    link->backoff_ms = DIAL_BACKOFF_MIN_MS;
}

static void note_members(struct peer_network *network, bool first)
{
    for (int i = 0; i < DLEDGER_MEMBERS_MAX; i++) {
        const struct dledger_member *member = &network->replica->members[i];
        struct peer_link *link = &network->links[i];
        if (strcmp(link->member_id, member->id) == 0 && strcmp(link->member_address, member->address) == 0)
            continue;
        if (!first && link->member_id[0] != '\0')
            forget_member(network, link);
        snprintf(link->member_id, sizeof link->member_id, "%s", member->id);
        snprintf(link->member_address, sizeof link->member_address, "%s", member->address);
    }
}

void peer_network_members_changed(struct peer_network *network)
{
    if (network->closing)
        return;
    note_members(network, false);
    if (network->listening)
        uv_timer_start(&network->timer, on_timer, 0, 0);
}

/* ---- life ---- */

int peer_network_open(struct peer_network *network, uv_loop_t *loop, struct replica *replica,
                      const struct peer_network_callbacks *callbacks, struct error *error)
{
    const struct dledger_member *self = &replica->self_listed;
    struct sockaddr_storage any;
    char host[128];
    char port[16];
    int rv;

    *network = (struct peer_network){.loop = loop, .replica = replica, .callbacks = *callbacks};
    for (int i = 0; i < DLEDGER_MEMBERS_MAX; i++) {
        network->links[i].network = network;
        network->links[i].id = (uint64_t)i + 1;
        network->links[i].backoff_ms = DIAL_BACKOFF_MIN_MS;
        network->links[i].seen_ms = uv_now(loop);
    }
    note_members(network, true);
    uv_timer_init(loop, &network->timer);
    network->timer.data = network;
    network->open_handles = 1;
    if (self->address[0] == '\0')
        return 0; /* a group of one that never meant to be more */
    if (!peer_address_split(self->address, host, sizeof host, port, sizeof port))
        return error_set(error, ERROR_INVALID, "dLegerPeers: %s is not HOST:PORT", self->address);
    /* A numeric loopback or local address is bound as given; a name means "this port on every address", as containers need. */
    if (!peer_address_numeric(host, port, &any) && !peer_address_numeric("0.0.0.0", port, &any))
        return error_set(error, ERROR_INVALID, "dLegerPeers: %s is not a port", port);
    uv_tcp_init(loop, &network->listener);
    network->listener.data = network;
    network->listening = true;
    network->open_handles++;
    rv = uv_tcp_bind(&network->listener, (const struct sockaddr *)&any, 0);
    if (rv == 0)
        rv = uv_listen((uv_stream_t *)&network->listener, 128, on_accept);
    if (rv != 0)
        return error_set(error, ERROR_CONNECTION, "peer port %s: %s", self->address, uv_strerror(rv));
    uv_timer_start(&network->timer, on_timer, 0, 0);
    return 0;
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct peer_network *network = handle->data;
    network->open_handles--;
    network_maybe_closed(network);
}

void peer_network_close(struct peer_network *network, void (*closed)(void *argument), void *argument)
{
    struct peer_connection *next;

    network->closing = true;
    network->closed = closed;
    network->closed_argument = argument;
    for (struct peer_connection *connection = network->connections; connection != NULL; connection = next) {
        next = connection->next;
        connection_close(connection);
    }
    if (network->listening)
        uv_close((uv_handle_t *)&network->listener, on_handle_closed);
    uv_close((uv_handle_t *)&network->timer, on_handle_closed);
}
