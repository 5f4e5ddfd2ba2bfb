/* Connections between machines as TCP gives them: one per pair, bytes in order or not at all, in both directions at once. What is in flight may be
 * late by seconds; a connection breaks with the loss of a last part of what was unsent; its ends learn of it at different times, or only when they
 * send. Follows dledger/peer.c in who dials, knocks, greets, refuses,
 * replaces and asks.
 */
#ifndef LEDGERMQ_TESTS_SIM_NETWORK_H
#define LEDGERMQ_TESTS_SIM_NETWORK_H

#include <stdbool.h>
#include <stdint.h>

struct machine;
struct peer_message;
struct connection;

struct network_link { /* of one machine to one other */
    struct connection *connection; /* greeted */
    struct connection *dialing;
    uint64_t backoff_us;
    uint64_t dial_at; /* UINT64_MAX = not planned */
    bool packet_lost; /* ... and then because the first packet was lost */
    uint64_t seen_at; /* when a connection was there last */
};

/* A process begins: nothing is connected, members with higher numbers are dialled. */
void network_begin(struct machine *machine);
/* A process ends. silent: the machine lost power, so nobody is told. */
void network_end(struct machine *machine, bool silent);

void network_send(struct machine *machine, uint64_t to, const struct peer_message *message, const uint8_t *body, uint32_t size);
void network_cut_unsent(struct machine *machine);
void network_greet(struct machine *machine);
/* Members came, went or got other numbers. */
void network_members_changed(struct machine *machine);

/* Something has arrived: handles one thing of a random connection. False: there is nothing. */
bool network_handle_one(struct machine *machine);

/* A packet that opens a connection is sent again after so long (us) when nobody said that it came. */
#define NETWORK_RETRANSMIT_US 1000000ull

/* ---- chaos ---- */
void network_break(int a, int b);
void network_delay(int a, int b, uint64_t us);
/* world.cut changed. */
void network_cuts_changed(void);
/* The network works again: what is on its way late arrives as it should, ends of broken and of half-open connections learn of it. */
void network_calm(void);
/* Frees everything. */
void network_close(void);

#endif
