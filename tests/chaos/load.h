/* The load of tests/chaos and what it remembers of each message, for the check at the end. */
#ifndef LEDGERMQ_TESTS_CHAOS_LOAD_H
#define LEDGERMQ_TESTS_CHAOS_LOAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/ledgermq.h"

#define QUEUES_MAX 64
#define EPOCHS_MAX 4096
#define TOPIC "chaos"
#define GROUP "chaos-consumer"

/* Of a message number. 0: no acknowledgement, not consumed; else the queue offset + 1. floor: the highest of its queue that was acknowledged when it was
 * sent; it must get a higher one. */
struct sent {
    _Atomic int64_t acknowledged, consumed;
    int64_t floor;
};

/* What lies between two marks; one for each fault. */
struct epoch {
    char name[64];
    int64_t first; /* message number */
    _Atomic int64_t acknowledged, refused, worst_gap_ns;
    int64_t lost, twice; /* the check says */
};

struct load {
    int queues, size, rate;
    int64_t capacity;
    struct sent *sent; /* by number; number % queues is its queue */
    _Atomic int64_t number;
    _Atomic int64_t highest[QUEUES_MAX]; /* queue offset + 1 that was acknowledged */
    _Atomic int64_t last_ack_ns;
    struct epoch epochs[EPOCHS_MAX];
    _Atomic int epoch;
    atomic_bool stop_sending, stop_consuming;
    _Atomic int64_t consumed;
    _Atomic int64_t committed[QUEUES_MAX]; /* offsets whose commit was answered; by queue */
    _Atomic int64_t commit_tried[QUEUES_MAX];
    _Atomic int64_t problems; /* each is a line on stdout */
    struct ledgermq_client *client;
};

int64_t now_ns(void);
/* A finding: one line on stdout; only the first of them are printed. */
void problem(struct load *load, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Fills body with what message `number` holds; size bytes. */
void body_fill(char *body, int size, int64_t number);
/* Reads every queue at each of the addresses (`host:port;host:port`) and compares all with what was acknowledged, consumed and committed. */
void load_verify(struct load *load, const char *addresses);
/* The offsets alone, at the node that leads now: after load_verify(). */
void load_verify_offsets(struct load *load, const char *address);

#endif
