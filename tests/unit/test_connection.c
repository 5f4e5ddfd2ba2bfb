/* Server and connections over loopback: frames however they are cut, answers gathered and by reference, bad frames, slow readers, limits. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/limits.h"
#include "broker/remoting/connection.h"
#include "broker/remoting/listener.h"
#include "proto/remoting_command.h"
#include "store/log_sink.h"
#include "store/mapped_file_queue.h"
#include "tests/lib/run_suite.h"

static uv_loop_t loop;
static struct remoting_server *server;
static int frames;
static size_t frame_bytes;
static uint64_t last_id;
static int closed_connections;
static int unpins;
static enum { DO_ECHO, DO_FLOOD, DO_PIN, DO_CLOSE, DO_WORK } behaviour;
#define HEAVY 30
static int frames_of[HEAVY + 1]; /* DO_WORK, by a frame's first byte */
static uint8_t pinned_bytes[300000];
static struct mapped_file pinned_file;

static void quiet(void *context, enum log_level level, const char *text)
{
    (void)context;
    (void)level;
    (void)text;
}

static void on_frame(void *context, struct connection *connection, uint8_t *frame, size_t size)
{
    struct buffer *out;
    (void)context;
    frames++;
    frame_bytes += size;
    last_id = connection->id;
    ck_assert_uint_eq(load_u32(frame) + 4, size);
    switch (behaviour) {
    case DO_ECHO:
        connection_send(connection, slice_of(frame, size));
        break;
    case DO_FLOOD:
        for (int i = 0; i < 40 && (out = connection_output(connection)) != NULL; i++) {
            uint8_t *room = buffer_reserve(out, 1u << 20);
            ck_assert_ptr_nonnull(room);
            memset(room, 0, 1u << 20);
            out->size += 1u << 20;
            connection_frame_done(connection);
        }
        break;
    case DO_PIN:
        out = connection_output(connection);
        ck_assert_ptr_nonnull(out);
        buffer_append(out, "head", 4);
        connection_append_pinned(connection, pinned_bytes, sizeof pinned_bytes, &pinned_file);
        buffer_append(out, "mid", 3);
        connection_append_pinned(connection, pinned_bytes + 5, 10, &pinned_file);
        buffer_append(out, "tail", 4);
        connection_frame_done(connection);
        break;
    case DO_CLOSE:
        connection_close(connection);
        break;
    case DO_WORK:
        for (uint64_t began = uv_hrtime(); uv_hrtime() - began < 10000;)
            ;
        frames_of[frame[4]]++;
        break;
    }
}

static void on_closed(void *context, struct connection *connection)
{
    (void)context;
    ck_assert_ptr_null(remoting_server_find(server, connection->id));
    closed_connections++;
}

static void on_unpin(void *context, struct mapped_file *file)
{
    (void)context;
    ck_assert_ptr_eq(file, &pinned_file);
    unpins++;
}

static void open_server(uint32_t connections_max)
{
    struct error error;
    log_sink_set(quiet, NULL);
    signal(SIGPIPE, SIG_IGN);
    uv_loop_init(&loop);
    struct remoting_server_options options = {
        .loop = &loop, .name = "test", .connections_max = connections_max, .on_frame = on_frame, .on_closed = on_closed, .unpin = on_unpin};
    server = remoting_server_new(&options, &error);
    ck_assert_ptr_nonnull(server);
    ck_assert_int_eq(remoting_server_listen(server, "127.0.0.1", 0, &error), 0);
    frames = closed_connections = unpins = 0;
    frame_bytes = 0;
    last_id = 0;
    behaviour = DO_ECHO;
    for (size_t i = 0; i < sizeof pinned_bytes; i++)
        pinned_bytes[i] = (uint8_t)(i * 7);
}

static void set_up(void)
{
    open_server(3);
}

static void set_up_crowd(void)
{
    open_server(HEAVY + 1);
}

static void on_server_closed(void *argument)
{
    *(bool *)argument = true;
}

static void tear_down(void)
{
    bool done = false;
    remoting_server_close(server, on_server_closed, &done);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert(done);
    remoting_server_free(server);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

static int dial(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)remoting_server_port(server, 0))};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static void turn(void)
{
    for (int i = 0; i < 20; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
}

/* Reads what comes until `want` bytes are there or the peer closes; the loop runs meanwhile. */
static ssize_t receive(int fd, uint8_t *out, size_t want)
{
    size_t got = 0;
    uint64_t began = uv_hrtime();
    while (got < want && uv_hrtime() - began < 10000000000ull) {
        uv_run(&loop, UV_RUN_NOWAIT);
        ssize_t n = read(fd, out + got, want - got);
        if (n == 0 || (n < 0 && errno != EAGAIN))
            return n == 0 ? (ssize_t)got : -1;
        if (n > 0)
            got += (size_t)n;
    }
    return (ssize_t)got;
}

static void deliver(int fd, const uint8_t *data, size_t size)
{
    size_t at = 0;
    uint64_t began = uv_hrtime();
    while (at < size) {
        ssize_t n = write(fd, data + at, size - at);
        if (n > 0)
            at += (size_t)n;
        uv_run(&loop, UV_RUN_NOWAIT);
        ck_assert_msg(uv_hrtime() - began < 10000000000ull, "the server does not read");
    }
}

static uint8_t *make_frame(size_t size, uint8_t fill)
{
    uint8_t *frame = malloc(size);
    memset(frame, fill, size);
    store_u32(frame, (uint32_t)size - 4);
    return frame;
}

START_TEST(byte_by_byte)
{
    uint8_t *frame = make_frame(50, 3), back[50];
    int fd = dial();
    for (size_t i = 0; i < 50; i++) {
        ck_assert_int_eq(write(fd, frame + i, 1), 1);
        turn();
        ck_assert_int_eq(frames, i == 49);
    }
    ck_assert_int_eq(receive(fd, back, 50), 50);
    ck_assert_mem_eq(back, frame, 50);
    free(frame);
    close(fd);
}
END_TEST

START_TEST(many_at_once)
{
    const size_t count = 5000, size = 100;
    uint8_t *all = malloc(count * size), *back = malloc(count * size);
    for (size_t i = 0; i < count; i++) {
        uint8_t *frame = make_frame(size, (uint8_t)i);
        memcpy(all + i * size, frame, size);
        free(frame);
    }
    int fd = dial();
    deliver(fd, all, count * size);
    ck_assert_int_eq(receive(fd, back, count * size), (ssize_t)(count * size));
    ck_assert_mem_eq(back, all, count * size);
    ck_assert_int_eq(frames, (int)count);
    free(all);
    free(back);
    close(fd);
}
END_TEST

START_TEST(large_and_small)
{
    /* Frames of all sizes around the shared buffer and the kept one, one behind the other. */
    static const size_t sizes[] = {8, 9, 16384, 16385, 262143, 262144, 262145, 1000000, 10, 4200000, 60000, 8};
    size_t total = 0, at = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        total += sizes[i];
    uint8_t *all = malloc(total), *back = malloc(total);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint8_t *frame = make_frame(sizes[i], (uint8_t)(i + 1));
        memcpy(all + at, frame, sizes[i]);
        at += sizes[i];
        free(frame);
    }
    int fd = dial();
    size_t sent = 0, got = 0;
    uint64_t began = uv_hrtime();
    while (got < total && uv_hrtime() - began < 20000000000ull) {
        ssize_t n = sent < total ? write(fd, all + sent, total - sent) : 0;
        if (n > 0)
            sent += (size_t)n;
        uv_run(&loop, UV_RUN_NOWAIT);
        n = read(fd, back + got, total - got);
        if (n > 0)
            got += (size_t)n;
    }
    ck_assert_uint_eq(got, total);
    ck_assert_mem_eq(back, all, total);
    ck_assert_int_eq(frames, (int)(sizeof sizes / sizeof sizes[0]));
    free(all);
    free(back);
    close(fd);
}
END_TEST

START_TEST(bad_lengths_close)
{
    static const uint32_t lengths[] = {0, 0xFFFFFFFFu, REMOTING_FRAME_MAX, 0x80000000u, 3};
    uint8_t byte, bytes[4];
    store_u32(bytes, lengths[_i]);
    int fd = dial(), other = dial();
    ck_assert_int_eq(write(fd, bytes, 4), 4);
    ck_assert_int_eq(receive(fd, &byte, 1), 0);
    ck_assert_int_eq(frames, 0);
    ck_assert_uint_eq(remoting_server_counters(server)->cut_malformed, 1);
    /* Others are not disturbed. */
    uint8_t *frame = make_frame(20, 1), back[20];
    deliver(other, frame, 20);
    ck_assert_int_eq(receive(other, back, 20), 20);
    free(frame);
    close(fd);
    close(other);
}
END_TEST

START_TEST(slices_by_reference)
{
    const size_t total = 4 + sizeof pinned_bytes + 3 + 10 + 4;
    uint8_t *back = malloc(total), *frame = make_frame(10, 0);
    behaviour = DO_PIN;
    int fd = dial();
    deliver(fd, frame, 10);
    ck_assert_int_eq(receive(fd, back, total), (ssize_t)total);
    ck_assert_mem_eq(back, "head", 4);
    ck_assert_mem_eq(back + 4, pinned_bytes, sizeof pinned_bytes);
    ck_assert_mem_eq(back + 4 + sizeof pinned_bytes, "mid", 3);
    ck_assert_mem_eq(back + 7 + sizeof pinned_bytes, pinned_bytes + 5, 10);
    ck_assert_mem_eq(back + 17 + sizeof pinned_bytes, "tail", 4);
    turn();
    ck_assert_int_eq(unpins, 2);
    free(back);
    free(frame);
    close(fd);
}
END_TEST

START_TEST(pins_end_with_the_connection)
{
    uint8_t *frame = make_frame(10, 0);
    behaviour = DO_PIN;
    int fd = dial();
    /* Nobody reads: the socket fills, the rest stays pinned. */
    for (int i = 0; i < 60; i++) {
        if (write(fd, frame, 10) < 0)
            break;
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    turn();
    int made = frames * 2;
    ck_assert_int_gt(made, 0);
    ck_assert_msg(unpins < made, "%d of %d, %d closed", unpins, made, closed_connections);
    close(fd);
    turn();
    ck_assert_int_eq(closed_connections, 1);
    ck_assert_int_eq(unpins, made);
    free(frame);
}
END_TEST

START_TEST(a_client_that_does_not_read_is_cut)
{
    uint8_t *frame = make_frame(10, 0);
    behaviour = DO_FLOOD;
    int fd = dial();
    deliver(fd, frame, 10);
    turn();
    ck_assert_int_eq(closed_connections, 1);
    ck_assert_uint_eq(remoting_server_counters(server)->cut_slow, 1);
    ck_assert_ptr_null(remoting_server_find(server, last_id));
    free(frame);
    close(fd);
}
END_TEST

START_TEST(a_client_that_reads_slowly_is_not_cut)
{
    /* 30 requests of 1 MiB at once: the server stops reading them while much is unsent, and goes on as the client reads. */
    const size_t size = 1u << 20, count = 30;
    uint8_t *frame = make_frame(size, 9), *back = malloc(size);
    int fd = dial();
    size_t sent = 0, got = 0;
    uint64_t began = uv_hrtime();
    while (got < size * count && uv_hrtime() - began < 30000000000ull) {
        while (sent < size * count) {
            ssize_t n = write(fd, frame + sent % size, size - sent % size);
            if (n <= 0)
                break;
            sent += (size_t)n;
        }
        turn();
        ssize_t n = read(fd, back, 200000);
        ck_assert_msg(n != 0, "cut after %zu bytes", got);
        if (n > 0)
            got += (size_t)n;
        struct connection *connection = remoting_server_find(server, last_id);
        if (connection != NULL)
            ck_assert_uint_le(connection_unsent(connection), LIMIT_UNSENT_PAUSE_BYTES + size);
    }
    ck_assert_uint_eq(got, size * count);
    free(frame);
    free(back);
    close(fd);
}
END_TEST

START_TEST(closing_inside_a_frame)
{
    uint8_t *frame = make_frame(10, 0), byte;
    behaviour = DO_CLOSE;
    int fd = dial();
    uint8_t two[20];
    memcpy(two, frame, 10);
    memcpy(two + 10, frame, 10);
    deliver(fd, two, 20);
    ck_assert_int_eq(receive(fd, &byte, 1), 0);
    ck_assert_msg(frames == 1, "a frame behind the close was handled");
    free(frame);
    close(fd);
}
END_TEST

START_TEST(ids_and_limit)
{
    uint8_t *frame = make_frame(10, 0), back[10], byte;
    uint64_t ids[10];
    behaviour = DO_ECHO;
    for (int i = 0; i < 10; i++) {
        int fd = dial();
        deliver(fd, frame, 10);
        ck_assert_int_eq(receive(fd, back, 10), 10);
        ids[i] = last_id;
        for (int k = 0; k < i; k++)
            ck_assert_uint_ne(ids[k], ids[i]);
        ck_assert_ptr_nonnull(remoting_server_find(server, last_id));
        close(fd);
        turn();
        ck_assert_ptr_null(remoting_server_find(server, last_id));
    }
    int fds[4];
    for (int i = 0; i < 4; i++)
        fds[i] = dial();
    turn();
    ck_assert_uint_eq(remoting_server_connection_count(server), 3);
    ck_assert_uint_eq(remoting_server_counters(server)->refused, 1);
    ck_assert_int_eq(receive(fds[3], &byte, 1), 0);
    for (int i = 0; i < 4; i++)
        close(fds[i]);
    free(frame);
}
END_TEST

START_TEST(port_in_use)
{
    struct error error;
    int port = remoting_server_port(server, 0);
    ck_assert_int_eq(remoting_server_listen(server, "127.0.0.1", port, &error), ERROR_IO);
    char text[16];
    snprintf(text, sizeof text, "%d", port);
    ck_assert(strstr(error.message, text) != NULL);
    ck_assert_int_eq(remoting_server_listen(server, "not an address", 0, &error), ERROR_INVALID);
}
END_TEST

/* Thirty ask for as much as goes in, one for a frame at a time: this one is served in nearly every turn, and each of the thirty in turn. */
START_TEST(who_asks_for_little_need_not_queue)
{
    enum { SIZE = 50, MANY = 1000, TIMES = 300 };
    static uint8_t all[HEAVY + 1][MANY * SIZE];
    int fds[HEAVY + 1], turns = 0, most = 0, least = INT32_MAX;
    size_t sent[HEAVY + 1] = {0};
    behaviour = DO_WORK;
    memset(frames_of, 0, sizeof frames_of);
    for (int i = 0; i <= HEAVY; i++) {
        uint8_t *frame = make_frame(SIZE, (uint8_t)i);
        for (int k = 0; k < MANY; k++)
            memcpy(all[i] + k * SIZE, frame, SIZE);
        free(frame);
        fds[i] = dial();
        turn();
    }
    for (int i = 0; i < TIMES; i++) {
        for (int k = 0; k < HEAVY; k++) {
            ssize_t n;
            while ((n = write(fds[k], all[k] + sent[k], sizeof all[k] - sent[k])) > 0)
                sent[k] = (sent[k] + (size_t)n) % sizeof all[k];
        }
        if (i == TIMES / 3)
            turns = 0; /* they are known by now */
        int before = frames_of[HEAVY];
        ck_assert_int_eq(write(fds[HEAVY], all[HEAVY], SIZE), SIZE);
        while (frames_of[HEAVY] == before) {
            uv_run(&loop, UV_RUN_NOWAIT);
            ck_assert_int_lt(++turns, 100 * TIMES);
        }
    }
    /* A turn in which this process had to wait for the processor may have been full. */
    ck_assert_int_le(turns, 2 * TIMES);
    for (int i = 0; i < HEAVY; i++) {
        most = frames_of[i] > most ? frames_of[i] : most;
        least = frames_of[i] < least ? frames_of[i] : least;
    }
    ck_assert_msg(least > most / 8, "one of those that ask for much had %d requests served, another one %d", least, most);
    ck_assert_uint_gt(remoting_server_counters(server)->turns_full, 0);
    for (int i = 0; i <= HEAVY; i++)
        close(fds[i]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("connection");
    TCase *tcase = tcase_create("connection");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, byte_by_byte);
    tcase_add_test(tcase, many_at_once);
    tcase_add_test(tcase, large_and_small);
    tcase_add_loop_test(tcase, bad_lengths_close, 0, 5);
    tcase_add_test(tcase, slices_by_reference);
    tcase_add_test(tcase, pins_end_with_the_connection);
    tcase_add_test(tcase, a_client_that_does_not_read_is_cut);
    tcase_add_test(tcase, a_client_that_reads_slowly_is_not_cut);
    tcase_add_test(tcase, closing_inside_a_frame);
    tcase_add_test(tcase, ids_and_limit);
    tcase_add_test(tcase, port_in_use);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("crowd");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, set_up_crowd, tear_down);
    tcase_add_test(tcase, who_asks_for_little_need_not_queue);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
