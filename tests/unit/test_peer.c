/* Connections between members over real sockets: this program is member n1, as rude as it likes, to a member n0 with the product's network. */
#include "dledger/peer.h"

#include <arpa/inet.h>
#include <check.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "dledger/peer_version.h"
#include "proto/ledger_entry.h"
#include "tests/lib/replica_group.h"
#include "tests/lib/run_suite.h"

#define WAIT_NS 20000000000ull

static uv_loop_t loop;
static struct peer_network network;
static struct replica *replica; /* n0's */
static int listener;            /* n1's */
static int n0_port;

static uint8_t resent; /* so often, says the kernel, it sent again in vain; 0: the truth */
static int lost;       /* connections, as n0 sees it */
static int connected;

/* A network that loses everything cannot be had without rights. */
int getsockopt(int fd, int level, int name, void *value, socklen_t *size)
{
    static int (*real)(int, int, int, void *, socklen_t *);
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "getsockopt");
    int rv = real(fd, level, name, value, size);
    if (rv == 0 && level == IPPROTO_TCP && name == TCP_INFO && resent > 0)
        ((struct tcp_info *)value)->tcpi_retransmits = resent;
    return rv;
}

static int listen_anywhere(int *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    ck_assert_int_eq(listen(fd, 8), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    *port = ntohs(at.sin_port);
    return fd;
}

static void on_message(void *context, uint64_t from, const struct peer_message *message, const uint8_t *body)
{
    (void)context, (void)from, (void)message, (void)body;
}

static void on_connected(void *context, uint64_t id)
{
    (void)context, (void)id;
    connected++;
}

static void on_lost(void *context, uint64_t id)
{
    (void)context, (void)id;
    lost++;
}

static void set_up(void)
{
    struct peer_network_callbacks callbacks = {NULL, on_message, on_connected, on_lost, NULL};
    struct error error;
    int port;

    resent = 0;
    lost = connected = 0;
    group_set_up();
    group_up(&group.nodes[1]);
    replica = &group.nodes[1].replica;
    close(listen_anywhere(&n0_port)); /* a free one */
    listener = listen_anywhere(&port);
    snprintf(replica->self_listed.address, sizeof replica->self_listed.address, "127.0.0.1:%d", n0_port);
    snprintf(replica->members[1].address, sizeof replica->members[1].address, "127.0.0.1:%d", port);
    replica->members[2].address[0] = '\0'; /* n2 is nowhere */
    uv_loop_init(&loop);
    ck_assert_msg(peer_network_open(&network, &loop, replica, &callbacks, &error) == 0, "%s", error.message);
}

static void on_network_closed(void *argument)
{
    *(bool *)argument = true;
}

static void tear_down(void)
{
    bool closed = false;
    close(listener);
    peer_network_close(&network, on_network_closed, &closed);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert(closed);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    group_tear_down();
}

/* n0 dials. */
static int accepted(void)
{
    uint64_t began = uv_hrtime();
    int fd;
    while ((fd = accept(listener, NULL, NULL)) < 0 && uv_hrtime() - began < WAIT_NS)
        uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert_int_ge(fd, 0);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static void receive(int fd, void *out, size_t size)
{
    uint64_t began = uv_hrtime();
    for (size_t got = 0; got < size;) {
        ssize_t n = read(fd, (uint8_t *)out + got, size - got);
        ck_assert_msg(n > 0 || (n < 0 && errno == EAGAIN), "n0 closes the connection");
        ck_assert_msg(uv_hrtime() - began < WAIT_NS, "n0 says nothing");
        got += n > 0 ? (size_t)n : 0;
        uv_run(&loop, UV_RUN_NOWAIT);
    }
}

static uint64_t receive_hello(int fd)
{
    uint8_t header[PEER_HEADER_SIZE], body[8192];
    struct peer_message message;
    struct peer_hello hello;

    receive(fd, header, sizeof header);
    ck_assert_int_eq(peer_message_decode(&message, header), 0);
    ck_assert_int_eq(message.type, PEER_HELLO);
    ck_assert_uint_le(message.body_size, sizeof body);
    receive(fd, body, message.body_size);
    ck_assert_int_eq(peer_hello_decode(&hello, &message, slice_of(body, message.body_size)), 0);
    return hello.term;
}

static void receive_magic(int fd)
{
    uint8_t magic[4];
    receive(fd, magic, sizeof magic);
    ck_assert_uint_eq(load_u32(magic), PEER_MAGIC);
}

static void send_hello_in(int fd, const char *group_name, uint32_t version)
{
    uint8_t header[PEER_HEADER_SIZE];
    struct peer_message message;
    struct peer_hello hello;
    struct buffer body;

    replica_hello(replica, 1, &hello); /* one more empty member of the same group */
    hello.from = 2;
    hello.run++;
    snprintf(hello.self_id, sizeof hello.self_id, "n1");
    snprintf(hello.group, sizeof hello.group, "%s", group_name);
    if (version != 0)
        hello.version = version;
    buffer_init(&body, 0);
    peer_hello_encode(&hello, &message, &body);
    peer_message_encode(&message, header);
    ck_assert_int_eq(write(fd, header, sizeof header), (ssize_t)sizeof header);
    ck_assert_int_eq(write(fd, body.data, body.size), (ssize_t)body.size);
    buffer_close(&body);
}

static void send_hello_of(int fd, const char *group_name)
{
    send_hello_in(fd, group_name, 0);
}

static void send_hello(int fd)
{
    send_hello_of(fd, replica->options.group);
}

/* n0 dials once more, and takes this program for n1. */
static int linked_again(void)
{
    uint64_t began = uv_hrtime();
    int fd = accepted();
    receive_magic(fd);
    receive_hello(fd);
    send_hello(fd);
    while (network.links[1].connection == NULL && uv_hrtime() - began < WAIT_NS)
        uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert_ptr_nonnull(network.links[1].connection);
    return fd;
}

/* Somebody else answers at a member's address. It is asked again now and then, and not as fast as it answers. */
START_TEST(test_refused_is_dialled_again_later)
{
    int dialled = accepted(), again = -1;
    uint64_t began = uv_hrtime();

    send_hello_of(dialled, "another");
    while (uv_hrtime() - began < 300000000ull && again < 0) {
        uv_run(&loop, UV_RUN_NOWAIT);
        again = accept(listener, NULL, NULL);
    }
    ck_assert_int_lt(again, 0);
    close(linked_again());
    close(dialled);
}
END_TEST

/* Each of the two has dialled. n0 takes the answer to its own dial last, so that connection stays, and on it n0 spoke before it had something new to say;
 * what it said on the other one may have gone with it. */
START_TEST(test_news_on_a_connection_without_an_answer)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)n0_port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    uint8_t magic[4];
    int dialled = accepted();

    receive_magic(dialled);
    ck_assert_uint_eq(receive_hello(dialled), 0);
    int knock = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(connect(knock, (struct sockaddr *)&to, sizeof to), 0);
    fcntl(knock, F_SETFL, O_NONBLOCK);
    store_u32(magic, PEER_MAGIC);
    ck_assert_int_eq(write(knock, magic, sizeof magic), (ssize_t)sizeof magic);
    send_hello(knock);
    ck_assert_uint_eq(receive_hello(knock), 0);

    replica->votes.term = 7;
    peer_network_greet(&network);
    send_hello(dialled);
    ck_assert_uint_eq(receive_hello(dialled), 7);
    close(knock);
    close(dialled);
}
END_TEST

/* The version is a byte of each message, and what a hello must be understood in. Neither is answered, n0 says why, and looks for the member again. */
START_TEST(test_an_unknown_version_is_refused)
{
    uint8_t header[PEER_HEADER_SIZE];
    struct peer_message message = {.type = PEER_HELLO};
    int dialled = accepted();
    uint64_t began = uv_hrtime();

    receive_magic(dialled);
    receive_hello(dialled);
    if (_i == 0) {
        peer_message_encode(&message, header);
        header[5] = 99;
        store_u32(header + 12, 0);
        store_u32(header + 12, crc32c(0, header, sizeof header));
        ck_assert_int_eq(write(dialled, header, sizeof header), (ssize_t)sizeof header);
    } else {
        send_hello_in(dialled, replica->options.group, peer_version_newest + 1);
    }
    while (network.links[1].refusal[0] == '\0' && uv_hrtime() - began < WAIT_NS)
        uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert_msg(strstr(network.links[1].refusal, _i == 0 ? "it speaks version 99 of the peer protocol" : "of the peer protocol and none before") != NULL, "\"%s\"",
                  network.links[1].refusal);
    ck_assert_ptr_null(network.links[1].connection);
    close(dialled);
    close(linked_again());
}
END_TEST

static void run_for(uint64_t ms)
{
    uint64_t began = uv_hrtime();
    while (uv_hrtime() - began < ms * 1000000)
        uv_run(&loop, UV_RUN_NOWAIT);
}

static bool is_closed(int fd)
{
    uint8_t byte;
    ssize_t n;
    while ((n = read(fd, &byte, 1)) > 0)
        ;
    return n == 0 || errno == ECONNRESET;
}

/* What n0 sends is not confirmed. It makes one more connection, which takes the place of the first when it is answered, and not before. */
START_TEST(test_a_second_connection_beside_a_silent_one)
{
    int first = linked_again(), second, third;

    run_for(600);
    ck_assert_int_lt(accept(listener, NULL, NULL), 0);
    resent = 2;
    second = accepted();
    receive_magic(second);
    receive_hello(second);
    for (int i = 0; i < 20; i++) { /* one, however long it takes to answer */
        run_for(100);
        ck_assert_int_lt(accept(listener, NULL, NULL), 0);
    }
    ck_assert(!is_closed(first));
    ck_assert_int_eq(lost, 0);
    ck_assert(replica->peers[1].connected);
    send_hello(second);
    for (int i = 0; i < 200 && !is_closed(first); i++)
        run_for(20);
    ck_assert(is_closed(first));
    ck_assert(!is_closed(second));
    ck_assert_int_eq(lost, 1); /* who waits for an answer on the first one waits in vain */
    ck_assert_int_eq(connected, 2);
    ck_assert(replica->peers[1].connected);
    /* The new one is silent, too, and its successor is refused: the process is gone. */
    third = accepted();
    receive_magic(third);
    close(listener);
    close(third);
    for (int i = 0; i < 500 && replica->peers[1].connected; i++)
        run_for(20);
    ck_assert(!replica->peers[1].connected);
    ck_assert_int_eq(lost, 2);
    close(first);
    close(second);
}
END_TEST

/* The first one is heard again while the second has not got through. */
START_TEST(test_a_second_connection_is_given_up)
{
    struct sockaddr_in at;
    socklen_t size = sizeof at;
    int first = linked_again(), full[3];

    /* No connect gets through any more: the queue is full. */
    ck_assert_int_eq(listen(listener, 0), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&at, &size), 0);
    for (int i = 0; i < 3; i++) {
        full[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        connect(full[i], (struct sockaddr *)&at, sizeof at);
    }
    run_for(100);
    resent = 2;
    uint64_t before = network.connection_ids;
    run_for(4000);
    /* Each try has a first packet of its own; the kernel alone would have sent two more, after 1 and 3 s. */
    ck_assert_uint_ge(network.connection_ids - before, 3);
    ck_assert_uint_le(network.connection_ids - before, 16);
    resent = 0;
    run_for(500);
    ck_assert_ptr_null(network.links[1].dialing);
    before = network.connection_ids;
    run_for(1000);
    ck_assert_uint_eq(network.connection_ids, before);
    ck_assert(!is_closed(first));
    ck_assert_int_eq(lost, 0);
    for (int i = 0; i < 3; i++)
        close(full[i]);
    close(first);
}
END_TEST

/* A process that stands still takes nothing: its kernel says so, and no connection is made that would wait with the first. */
START_TEST(test_who_stands_still_is_not_dialled)
{
    static const uint8_t body[1 << 20];
    struct peer_message message = {.type = PEER_APPEND_ENTRIES};
    int first = linked_again();

    for (int i = 0; i < 16; i++)
        peer_network_send(&network, 2, &message, body, sizeof body);
    run_for(4000);
    ck_assert_int_lt(accept(listener, NULL, NULL), 0);
    ck_assert_int_eq(lost, 0);
    close(first);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("peer");
    TCase *tcase = tcase_create("sockets");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, test_news_on_a_connection_without_an_answer);
    tcase_add_test(tcase, test_refused_is_dialled_again_later);
    tcase_add_loop_test(tcase, test_an_unknown_version_is_refused, 0, 2);
    tcase_add_test(tcase, test_a_second_connection_beside_a_silent_one);
    tcase_add_test(tcase, test_a_second_connection_is_given_up);
    tcase_add_test(tcase, test_who_stands_still_is_not_dialled);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
