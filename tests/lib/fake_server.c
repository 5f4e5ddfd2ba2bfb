#include "tests/lib/fake_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS_MAX 32

struct fake_connection {
    int descriptor;
    struct buffer in;
};

static void die(const char *what)
{
    perror(what);
    abort();
}

static void send_all(int descriptor, struct slice bytes)
{
    while (bytes.size > 0) {
        ssize_t n = send(descriptor, bytes.data, bytes.size, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return;
        bytes.data += n;
        bytes.size -= (size_t)n;
    }
}

static void close_with_reset(struct fake_connection *connection)
{
    struct linger linger = {1, 0};
    setsockopt(connection->descriptor, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    close(connection->descriptor);
    connection->descriptor = -1;
    buffer_close(&connection->in);
}

static void serve(struct fake_server *server, struct fake_connection *connection)
{
    uint8_t *at = buffer_reserve(&connection->in, 65536);
    ssize_t n = at == NULL ? -1 : recv(connection->descriptor, at, 65536, 0);
    if (n <= 0) {
        close_with_reset(connection);
        return;
    }
    connection->in.size += (size_t)n;
    for (;;) {
        int64_t size = remoting_frame_size(buffer_slice(&connection->in));
        struct remoting_command command;
        struct buffer out;
        if (size <= 0 || (size_t)size > connection->in.size)
            return;
        if (remoting_command_decode(connection->in.data, (size_t)size, &command) != 0)
            abort();
        buffer_init(&out, 0);
        enum fake_reaction reaction = FAKE_SILENCE;
        if (!remoting_is_response(&command)) {
            server->last_code = command.code;
            server->requests++;
            reaction = server->script(server, &command, &out);
        } else {
            server->last_code = -command.code;
        }
        if (reaction == FAKE_ANSWER && !remoting_is_oneway(&command))
            send_all(connection->descriptor, buffer_slice(&out));
        buffer_close(&out);
        if (reaction == FAKE_RESET) {
            close_with_reset(connection);
            return;
        }
        memmove(connection->in.data, connection->in.data + size, connection->in.size - (size_t)size);
        connection->in.size -= (size_t)size;
    }
}

static void *server_main(void *argument)
{
    struct fake_server *server = argument;
    struct fake_connection connections[CONNECTIONS_MAX];
    for (int i = 0; i < CONNECTIONS_MAX; i++)
        connections[i].descriptor = -1;
    for (;;) {
        struct pollfd polls[CONNECTIONS_MAX + 2] = {{server->stop_pipe[0], POLLIN, 0}, {server->listener, POLLIN, 0}};
        for (int i = 0; i < CONNECTIONS_MAX; i++)
            polls[i + 2] = (struct pollfd){connections[i].descriptor, POLLIN, 0};
        if (poll(polls, CONNECTIONS_MAX + 2, -1) < 0 && errno != EINTR)
            die("poll");
        if (polls[0].revents != 0)
            break;
        if (polls[1].revents & POLLIN) {
            int descriptor = accept(server->listener, NULL, NULL), i = 0;
            while (i < CONNECTIONS_MAX && connections[i].descriptor >= 0)
                i++;
            if (descriptor >= 0 && i == CONNECTIONS_MAX)
                die("too many connections");
            if (descriptor >= 0) {
                connections[i].descriptor = descriptor;
                buffer_init(&connections[i].in, 0);
                server->connections++;
            }
        }
        for (int i = 0; i < CONNECTIONS_MAX; i++)
            if (polls[i + 2].fd >= 0 && polls[i + 2].revents != 0)
                serve(server, &connections[i]);
    }
    for (int i = 0; i < CONNECTIONS_MAX; i++)
        if (connections[i].descriptor >= 0)
            close_with_reset(&connections[i]);
    return NULL;
}

void fake_server_start(struct fake_server *server, int port, fake_script script, void *context)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int one = 1;
    *server = (struct fake_server){.script = script, .context = context};
    server->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(server->listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(server->listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(server->listener, 64) < 0)
        die("listen");
    getsockname(server->listener, (struct sockaddr *)&address, &size);
    server->port = ntohs(address.sin_port);
    snprintf(server->address, sizeof server->address, "127.0.0.1:%d", server->port);
    if (pipe(server->stop_pipe) < 0 || pthread_create(&server->thread, NULL, server_main, server) != 0)
        die("thread");
}

void fake_server_stop(struct fake_server *server)
{
    if (write(server->stop_pipe[1], "x", 1) != 1)
        die("write");
    pthread_join(server->thread, NULL);
    close(server->listener);
    close(server->stop_pipe[0]);
    close(server->stop_pipe[1]);
}

const char *fake_server_host_name(void)
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
    if (getaddrinfo("localhost", NULL, &hints, &found) != 0)
        return "127.0.0.1";
    freeaddrinfo(found);
    return "localhost";
}

int fake_server_free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(descriptor, (struct sockaddr *)&address, sizeof address) < 0)
        die("bind");
    getsockname(descriptor, (struct sockaddr *)&address, &size);
    close(descriptor);
    return ntohs(address.sin_port);
}

int fake_server_full_backlog(int port, int fillers[2])
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(listener, 0) < 0)
        die("listen");
    /* A backlog of 0 holds one connection; the next ones' handshakes stay unanswered. */
    for (int i = 0; i < 2; i++) {
        fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (connect(fillers[i], (struct sockaddr *)&address, sizeof address) < 0 && errno != EINPROGRESS)
            die("connect");
    }
    return listener;
}

int64_t fake_number(const struct remoting_command *request, const char *name)
{
    int64_t number = -1;
    slice_to_i64(remoting_ext(request, name), &number);
    return number;
}

void fake_keep_text(char *out, size_t size, struct slice text)
{
    snprintf(out, size, "%.*s", (int)text.size, (const char *)text.data);
}

void fake_answer(struct buffer *out, const struct remoting_command *request, int code, const char *remark,
                 struct slice body)
{
    struct remoting_writer writer;
    remoting_writer_begin_response(&writer, out, request->serialize_type, code, request->opaque, remark);
    remoting_writer_body(&writer);
    buffer_append_slice(out, body);
    remoting_writer_end(&writer, 0);
}

void fake_answer_send(struct buffer *out, const struct remoting_command *request, int code, int64_t queue_offset)
{
    struct remoting_writer writer;
    remoting_writer_begin_response(&writer, out, request->serialize_type, code, request->opaque, NULL);
    remoting_writer_ext_text(&writer, "msgId", "7F00000100002A9F0000000000003302");
    remoting_writer_ext(&writer, "queueId", remoting_ext(request, "e"));
    remoting_writer_ext_i64(&writer, "queueOffset", queue_offset);
    remoting_writer_end(&writer, 0);
}

void fake_answer_route(struct buffer *out, const struct remoting_command *request, const char *const *brokers,
                       int queues, int perm)
{
    struct buffer body;
    buffer_init(&body, 0);
    buffer_append_text(&body, "{\"brokerDatas\":[");
    for (int i = 0; brokers[i] != NULL; i++) {
        const char *address = strchr(brokers[i], '=');
        buffer_append_format(&body, "%s{\"brokerAddrs\":{\"%d\":\"%s\"},\"brokerName\":\"%.*s\",\"cluster\":\"c\"}",
                             i > 0 ? "," : "", address[1] == '\0' ? 1 : 0,
                             address[1] == '\0' ? "127.0.0.1:1" : address + 1, (int)(address - brokers[i]),
                             brokers[i]);
    }
    buffer_append_text(&body, "],\"filterServerTable\":{},\"queueDatas\":[");
    for (int i = 0; brokers[i] != NULL; i++)
        buffer_append_format(
            &body,
            "%s{\"brokerName\":\"%.*s\",\"perm\":%d,\"readQueueNums\":%d,\"topicSysFlag\":0,\"writeQueueNums\":%d}",
            i > 0 ? "," : "", (int)(strchr(brokers[i], '=') - brokers[i]), brokers[i], perm, queues, queues);
    buffer_append_text(&body, "]}");
    fake_answer(out, request, 0, NULL, buffer_slice(&body));
    buffer_close(&body);
}
