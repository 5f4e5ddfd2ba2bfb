/* Connections between the members of a group: one per pair, used in both directions, with a hello before anything else.
 *
 * The member with the lower Raft id dials, and dials again beside a connection on which nothing is confirmed any more. The listening port also takes DLedger's
 * own protocol (remoting frames), handed on to its callback. When a connection to the leader breaks, a connect that is refused tells that its process is gone (a
 * reset alone is innocent).
 */
#ifndef LEDGERMQ_DLEDGER_PEER_H
#define LEDGERMQ_DLEDGER_PEER_H

#include <uv.h>

#include "dledger/replica.h"

#define PEER_UNSENT_MAX (64u << 20) /* bytes waiting for one peer; entries beyond it are dropped, Raft sends them again */
#define PEER_INPUT_INITIAL (1u << 20)
#define PEER_CONNECTIONS_MAX 64     /* accepted and not (yet) a member: strangers, DLedger clients */
#define PEER_DLEDGER_CONNECTIONS_MAX 32
#define PEER_DLEDGER_FRAME_MAX (8 << 20) /* an entry of the largest size in Base64, and its JSON */
#define PEER_DLEDGER_IDLE_MS 120000u

struct peer_connection;

struct peer_network_callbacks {
    void *context;
    /* Any message but the hello. */
    void (*message)(void *context, uint64_t from, const struct peer_message *message, const uint8_t *body);
    void (*connected)(void *context, uint64_t id);
    void (*lost)(void *context, uint64_t id);
    /* A whole remoting frame of DLedger's own protocol, from loopback or a member's address; answer by appending frames to out, or later with
     * peer_network_answer_dledger(). False closes the connection. */
    bool (*dledger_frame)(void *context, uint64_t connection, uint8_t *frame, size_t size, struct buffer *out);
};

struct peer_link {
    struct peer_network *network;
    uint64_t id;
    struct peer_connection *connection; /* greeted */
    struct peer_connection *dialing;    /* maybe beside one that is silent */
    struct peer_connection *probe;      /* connect that only asks whether the process is there */
    uint64_t probe_until_ms;            /* ask again until then: a dying process may close its port last */
    uint64_t next_dial_ms;              /* uv_now() */
    uint64_t seen_ms;                   /* when it was connected last */
    uint32_t backoff_ms;
    uint32_t answer_ms;                 /* how long the other end's kernel took to confirm, when it last did */
    char member_id[16];                 /* whose link it is; the table of members may change */
    char member_address[128];
    char refusal[128];                  /* last reason logged, so that a retry loop does not fill the log */
};

struct peer_network {
    uv_loop_t *loop;
    struct replica *replica;
    struct peer_network_callbacks callbacks;
    uv_tcp_t listener;
    bool listening;
    uv_timer_t timer; /* redials, hello deadlines */
    struct peer_link links[DLEDGER_MEMBERS_MAX];
    struct peer_connection *connections; /* all */
    unsigned strangers;
    unsigned dledger_connections; /* of these */
    uint64_t connection_ids;
    bool closing;
    unsigned open_handles;
    void (*closed)(void *argument);
    void *closed_argument;
    char refusal[128]; /* last reason logged of those who are not known yet ... */
    uint64_t refusal_ms; /* ... and when */
    uint64_t dropped_messages;
};

/* Listens on our own member's address (none for a group of one) and begins to dial. ERROR_CONNECTION: the port cannot be bound (says which). */
int peer_network_open(struct peer_network *network, uv_loop_t *loop, struct replica *replica,
                      const struct peer_network_callbacks *callbacks, struct error *error);
void peer_network_close(struct peer_network *network, void (*closed)(void *argument), void *argument);
/* Fills body_size's frame in: header and run leave in one write when the socket takes them. May drop (not connected, too much unsent). */
bool peer_network_send(struct peer_network *network, uint64_t to, const struct peer_message *message, const uint8_t *body, size_t body_size);
/* Closes connections that have unsent bytes. */
void peer_network_cut(struct peer_network *network);
/* Does nothing when that connection is gone. */
void peer_network_answer_dledger(struct peer_network *network, uint64_t connection, struct slice frame);
/* The address is this machine's or a member's. A member that is named by a name counts while it is connected. */
bool peer_network_is_member_host(const struct peer_network *network, const struct sockaddr_storage *address);
/* The table of members is another one: connections to those who left it, or have another number, end. */
void peer_network_members_changed(struct peer_network *network);
/* Sends our hello again. */
void peer_network_greet(struct peer_network *network);

#endif
