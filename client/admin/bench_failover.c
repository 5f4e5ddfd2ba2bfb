/* `mqadmin bench --failover`: how long nothing is acknowledged when the leader goes away.
 *
 * Each message is sent once and never again. While some broker acknowledges, it gets the window; while none does,
 * each broker is sent one trial message at a time. The first to acknowledge gets the window.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "client/admin/bench.h"

#define NODES_MAX 16
#define PROBE_NS 10000000LL     /* between two trial messages to one broker */
#define CONNECT_NS 20000000LL   /* between two tries to connect */
#define SILENCE_NS 1000000000LL /* a leader that says nothing for so long is given up */
#define GAP_SHOWN_NS 50000000LL

struct node {
    struct bench_connection connection;
    const char *address;
    int64_t connect_at_ns, probe_at_ns, heard_ns; /* heard: its last answer, or the first request after silence */
};

struct failover {
    struct admin *admin;
    const struct bench_options *options;
    struct bench_frames *frames;
    int epoll;
    struct node nodes[NODES_MAX];
    int count;
    int leader, last_leader; /* -1 none */
    uint64_t sent, acknowledged, unknown;
    int64_t begin_ns, last_ack_ns, longest_ns, longest_at_ns, change_longest_ns;
    int changes;
    struct bench_codes errors;
};

static void node_lost(struct failover *failover, int i, const char *why)
{
    struct node *node = &failover->nodes[i];
    failover->unknown += (uint64_t)node->connection.outstanding;
    bench_disconnect(&node->connection);
    node->connect_at_ns = bench_now_ns() + CONNECT_NS;
    if (failover->leader != i)
        return;
    fprintf(stderr, "%8.3f s  %s %s\n", (double)(bench_now_ns() - failover->begin_ns) / 1e9, node->address, why);
    failover->leader = -1;
}

static void acknowledge(struct failover *failover, int i, int64_t now)
{
    int64_t gap = failover->last_ack_ns == 0 ? 0 : now - failover->last_ack_ns;
    failover->acknowledged++;
    /* Followers hand sends on to the leader, so more than one may answer the trials: the first one keeps the window.
     */
    if (failover->leader < 0)
        failover->leader = i;
    bool change = failover->leader == i && failover->last_leader >= 0 && failover->last_leader != i;
    if (gap > failover->longest_ns) {
        failover->longest_ns = gap;
        failover->longest_at_ns = failover->last_ack_ns;
    }
    if (change) {
        failover->changes++;
        if (gap > failover->change_longest_ns)
            failover->change_longest_ns = gap;
    }
    if (change || failover->last_leader < 0 || gap > GAP_SHOWN_NS)
        fprintf(stderr, "%8.3f s  %s acknowledges after %.3f s\n", (double)(now - failover->begin_ns) / 1e9,
                failover->nodes[i].address, (double)gap / 1e9);
    failover->last_leader = failover->leader;
    failover->last_ack_ns = now;
}

static bool take_answers(struct failover *failover, int i)
{
    struct node *node = &failover->nodes[i];
    uint8_t *frame;
    size_t size;
    int rv;
    int64_t now = bench_now_ns();
    while ((rv = bench_next(&node->connection, &frame, &size)) > 0) {
        int32_t code;
        uint32_t opaque;
        if (!bench_answer(frame, size, &code, &opaque))
            continue;
        struct bench_slot *slot =
            opaque < BENCH_SLOTS && node->connection.slots != NULL ? &node->connection.slots[opaque] : NULL;
        if (slot == NULL || slot->due_ns == 0)
            return false;
        slot->due_ns = 0;
        node->connection.outstanding--;
        node->heard_ns = now;
        if (code == 0) {
            acknowledge(failover, i, now);
            continue;
        }
        bench_codes_add(&failover->errors, code);
        if (failover->leader == i) {
            fprintf(stderr, "%8.3f s  %s answers code %d\n", (double)(now - failover->begin_ns) / 1e9, node->address,
                    code);
            failover->leader = -1;
        }
    }
    return rv == 0;
}

static void send_to(struct failover *failover, int i, int64_t now, int64_t wall_ns)
{
    struct node *node = &failover->nodes[i];
    if (node->connection.outstanding == 0)
        node->heard_ns = now;
    if (bench_send(&node->connection, failover->frames, failover->sent, now, wall_ns))
        failover->sent++;
}

static void turn(struct failover *failover, int64_t *due_ns, int64_t gap_ns, int64_t wall_offset)
{
    const struct bench_options *options = failover->options;
    int64_t now = bench_now_ns();
    for (int i = 0; i < failover->count; i++) {
        struct node *node = &failover->nodes[i];
        struct bench_connection *connection = &node->connection;
        if (connection->descriptor < 0) {
            if (now >= node->connect_at_ns && !bench_connect(connection, failover->epoll, node->address, (uint32_t)i))
                node->connect_at_ns = now + CONNECT_NS;
            continue;
        }
        if (connection->outstanding > 0 && now - node->heard_ns > SILENCE_NS) {
            node_lost(failover, i, "is silent");
            continue;
        }
        if (connection->connected && failover->leader == i) {
            *due_ns = *due_ns < now - SILENCE_NS ? now : *due_ns;
            for (; connection->outstanding < options->window && (gap_ns == 0 || *due_ns <= now); *due_ns += gap_ns)
                send_to(failover, i, now, now + wall_offset);
        } else if (connection->connected && failover->leader < 0 && connection->outstanding == 0 &&
                   now >= node->probe_at_ns) {
            send_to(failover, i, now, now + wall_offset);
            node->probe_at_ns = now + PROBE_NS;
        }
        if (!bench_flush(connection))
            node_lost(failover, i, "cannot be reached");
    }
    struct epoll_event events[NODES_MAX];
    int n = epoll_wait(failover->epoll, events, NODES_MAX, failover->leader >= 0 && gap_ns == 0 ? 20 : 1);
    for (int k = 0; k < n; k++) {
        int i = (int)events[k].data.u32;
        if (failover->nodes[i].connection.descriptor < 0 || !(events[k].events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
            continue;
        if (!bench_read(&failover->nodes[i].connection))
            node_lost(failover, i, "closed the connection");
        else if (!take_answers(failover, i))
            node_lost(failover, i, "sends what makes no sense");
    }
}

static int report(struct failover *failover, int64_t now)
{
    bool recovered = failover->acknowledged > 0 && now - failover->last_ack_ns < SILENCE_NS;
    if (failover->acknowledged > 0 && now - failover->last_ack_ns > failover->longest_ns) {
        failover->longest_ns = now - failover->last_ack_ns;
        failover->longest_at_ns = failover->last_ack_ns;
    }
    for (int i = 0; i < failover->count; i++)
        failover->unknown += (uint64_t)failover->nodes[i].connection.outstanding;
    if (failover->options->json) {
        printf("{\"mode\":\"failover\",\"acked\":%llu,\"sent\":%llu,\"no_answer\":%llu,\"errors\":",
               (unsigned long long)failover->acknowledged, (unsigned long long)failover->sent,
               (unsigned long long)failover->unknown);
        bench_codes_print(&failover->errors);
        printf(",\"changes\":%d,\"gap_s\":%.3f,\"gap_start_s\":%.3f,\"change_gap_s\":%.3f,\"recovered\":%s}\n",
               failover->changes, (double)failover->longest_ns / 1e9,
               (double)(failover->longest_at_ns - failover->begin_ns) / 1e9,
               failover->changes > 0 ? (double)failover->change_longest_ns / 1e9 : -1.0,
               recovered ? "true" : "false");
        return recovered ? ADMIN_OK : ADMIN_FAILED;
    }
    printf("%llu of %llu messages acknowledged, %llu without answer, errors ",
           (unsigned long long)failover->acknowledged, (unsigned long long)failover->sent,
           (unsigned long long)failover->unknown);
    bench_codes_print(&failover->errors);
    printf("\nlongest time without an acknowledgement %.3f s, from %.3f s on; %d change%s of the broker that "
           "acknowledges",
           (double)failover->longest_ns / 1e9, (double)(failover->longest_at_ns - failover->begin_ns) / 1e9,
           failover->changes, failover->changes == 1 ? "" : "s");
    if (failover->changes > 0)
        printf(", longest %.3f s", (double)failover->change_longest_ns / 1e9);
    printf("\n%s\n", recovered ? "recovered" : "NOT RECOVERED");
    return recovered ? ADMIN_OK : ADMIN_FAILED;
}

int bench_failover(struct admin *admin, const struct bench_options *options, const struct admin_targets *brokers)
{
    struct failover *failover = calloc(1, sizeof *failover);
    if (failover == NULL)
        return admin_fail(admin, "out of memory");
    failover->admin = admin;
    failover->options = options;
    failover->leader = failover->last_leader = -1;
    failover->frames = bench_frames_new(options);
    failover->epoll = epoll_create1(EPOLL_CLOEXEC);
    int status = ADMIN_FAILED;
    if (failover->frames == NULL || failover->epoll < 0) {
        admin_fail(admin, "out of memory");
        goto free_all;
    }
    for (size_t i = 0; i < brokers->count && failover->count < NODES_MAX; i++) {
        failover->nodes[failover->count].address = brokers->all[i].address;
        failover->nodes[failover->count++].connection.descriptor = -1;
    }
    int64_t now = bench_now_ns(), due_ns = now, gap_ns = options->rate > 0 ? (int64_t)(1e9 / options->rate) : 0;
    int64_t wall_offset = bench_wall_offset_ns();
    failover->begin_ns = now;
    for (int64_t end = now + (int64_t)(options->duration_s * 1e9); now < end; now = bench_now_ns())
        turn(failover, &due_ns, gap_ns, wall_offset);
    status = report(failover, now);
    for (int i = 0; i < failover->count; i++)
        bench_connection_close(&failover->nodes[i].connection);
free_all:
    if (failover->epoll >= 0)
        close(failover->epoll);
    if (failover->frames != NULL)
        bench_frames_free(failover->frames);
    free(failover);
    return status;
}
