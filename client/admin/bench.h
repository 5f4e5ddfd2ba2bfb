/* What the modes of `mqadmin bench` share: options, frames made in advance, connections, figures. One thread, epoll,
 * nothing of the library's loop: the generator must cost less than the broker it measures.
 */
#ifndef LEDGERMQ_CLIENT_ADMIN_BENCH_H
#define LEDGERMQ_CLIENT_ADMIN_BENCH_H

#include "client/admin/admin.h"

#define BENCH_CONNECTIONS_MAX 64
#define BENCH_PIDS_MAX 16
#define BENCH_CODES_MAX 16
#define BENCH_SLOTS 65536u /* unanswered requests of one connection */
#define BENCH_STAMP 24     /* first bytes of a body: run, number, wall clock in ns */

struct bench_options {
    const char *topic, *group;
    int topics;   /* 1: topic; more: topic-00000, topic-00001, ... */
    int queues;   /* of each topic */
    int variants; /* more than 0: in turn tags T0, T1, ... and a property `a` with that number */
    int delay_level;
    int window, connections, size, batch, serialize_type;
    double rate, duration_s, warmup_s; /* rate 0: closed loop */
    int64_t count;                     /* requests; 0: by time */
    bool json, failover;
    bool transaction; /* each message is a half message, and is committed when that is acknowledged */
    bool consume;
    const char *expression, *expression_type; /* of what is consumed */
    int pids[BENCH_PIDS_MAX];
    int pid_count;
};

/* --- frames ---- */

/* One frame per queue and variant, whole but for opaque value, born time, unique keys and stamps, which all have a fixed
 * width. */
struct bench_frames;
struct bench_frames *bench_frames_new(const struct bench_options *options);
void bench_frames_free(struct bench_frames *frames);
/* Appends the frame of request number `number`; queues, topics and variants take turns. opaque is below 2^30. False: no
 * memory. */
bool bench_frames_append(struct bench_frames *frames, struct buffer *out, uint32_t opaque, uint64_t number,
                         int64_t wall_ns);
/* Appends the commit of the half message that `frame` acknowledges. False: no memory, or the answer is none. */
bool bench_frames_commit(struct bench_frames *frames, struct buffer *out, uint32_t opaque, uint64_t number,
                         uint8_t *frame, size_t size);
/* Name of topic number `topic` of options. */
void bench_topic_name(const struct bench_options *options, int topic, char out[LEDGERMQ_NAME_MAX + 1]);
/* Reads an answer (a whole frame): its code, and the opaque value that bench_frames_append() was given. False: a
 * request, or an answer that is none of ours. */
bool bench_answer(const uint8_t *frame, size_t size, int32_t *code, uint32_t *opaque);

/* --- connections ---- */

struct bench_slot {
    int64_t due_ns; /* 0: free */
    uint64_t number;
    bool committing; /* the half message is acknowledged, its commit is under way */
};

struct bench_connection {
    int descriptor; /* -1: closed */
    int epoll;
    uint32_t tag; /* of its epoll events */
    bool connected, wants_room;
    struct buffer in, out;
    size_t in_done, out_done;
    struct bench_slot *slots;
    uint32_t next;
    int outstanding;
};

/* Begins to connect. False, with descriptor -1: it failed at once. */
bool bench_connect(struct bench_connection *connection, int epoll, const char *address, uint32_t tag);
void bench_disconnect(struct bench_connection *connection);
void bench_connection_close(struct bench_connection *connection);
/* Both false when the peer is gone. */
bool bench_flush(struct bench_connection *connection);
bool bench_read(struct bench_connection *connection);
/* The next whole frame that was read: 1; none: 0; bytes that make no sense: -1. */
int bench_next(struct bench_connection *connection, uint8_t **frame, size_t *size);
/* Puts one request into the buffer. */
bool bench_send(struct bench_connection *connection, struct bench_frames *frames, uint64_t number, int64_t due_ns,
                int64_t wall_ns);

/* --- figures ---- */

#define BENCH_BUCKETS 4096
/* Log-linear: exact below 128 ns, then 64 buckets for each doubling (1.6 %). */
struct bench_histogram {
    uint64_t counts[BENCH_BUCKETS];
    uint64_t total;
    int64_t max_ns;
};
void bench_histogram_add(struct bench_histogram *histogram, int64_t ns);
double bench_histogram_us(const struct bench_histogram *histogram, double percentile);

struct bench_codes {
    int count;
    int32_t codes[BENCH_CODES_MAX];
    uint64_t counts[BENCH_CODES_MAX];
};
void bench_codes_add(struct bench_codes *codes, int32_t code);
uint64_t bench_codes_total(const struct bench_codes *codes);
/* {"14":3} */
void bench_codes_print(const struct bench_codes *codes);

int64_t bench_now_ns(void);
int64_t bench_wall_offset_ns(void); /* wall clock minus bench_now_ns() */
double bench_own_cpu_seconds(void);
/* User and system seconds of a process, -1 when it is gone. */
double bench_cpu_seconds(int pid);
/* The same of all watched processes, -1 when one of them is gone. */
double bench_cpu_of_watched(const struct bench_options *options);
/* Seconds from start to end for each million of count; -1 when one of the two is not known. */
double bench_per_million(double start, double end, uint64_t count);
/* A line of /proc/PID/status in MiB (VmRSS, RssAnon, VmHWM), -1 when it is gone. */
double bench_memory_mib(int pid, const char *name);

/* --- modes ---- */

/* address: the leader. Exit status: 0 no error code and nothing unanswered. */
int bench_load(struct admin *admin, const struct bench_options *options, const char *address);
/* Pulls all that the topic holds, one request under way for each queue. 0: everything was read. */
int bench_consume(struct admin *admin, const struct bench_options *options, const char *address);
/* addresses: all brokers. 0 when sends were acknowledged in the last second. */
int bench_failover(struct admin *admin, const struct bench_options *options, const struct admin_targets *brokers);

#endif
