/* What listener.c and connection.c share of a server. Private to these two. */
#ifndef LEDGERMQ_BROKER_REMOTING_REMOTING_SERVER_H
#define LEDGERMQ_BROKER_REMOTING_REMOTING_SERVER_H

#include <uv.h>

#include "broker/limits.h"
#include "broker/log.h"
#include "broker/remoting/listener.h"

#define REMOTING_FRAME_TIMEOUT_MS 30000u
#define REMOTING_SWEEP_MS 5000u /* idle and stalled connections are looked for this often, while there are any */

struct remoting_listener {
    uv_tcp_t tcp;
    struct remoting_server *server;
    int port;
    bool open;
    uint32_t accepts;  /* in this turn */
    bool deferred;     /* libuv has accepted one more that was not taken: it waits for us */
};

/* Turns that come to everybody: whom one did not come to is first in the next, and who was read waits until then. A round ends with a turn that came to all. */
struct remoting_round {
    uint64_t first_turn;
    bool somebody_waits;
    bool goes_on; /* with the next turn */
};

struct remoting_server {
    struct remoting_server_options options;
    struct remoting_listener listeners[LIMIT_LISTENERS];
    unsigned listener_count;
    uv_prepare_t prepare;
    uv_timer_t sweep;
    uint32_t sweep_ms;
    uint32_t handles; /* open libuv handles, connections included: closed is called when it falls to 0 */
    bool closing;
    void (*closed)(void *argument);
    void *closed_argument;

    /* Connection with id (serial << 20 | slot) stands in slots[slot]. */
    struct connection **slots;
    uint32_t slot_count;
    uint32_t *free_slots;
    uint32_t free_count;
    uint64_t next_serial;
    uint32_t connection_count;
    TAILQ_HEAD(silent_connections, connection) silent; /* sent no whole frame yet, the oldest first */

    /* A turn reads from sockets for LIMIT_TURN_US, that of a crowded port for LIMIT_CROWDED_TURN_US. */
    uint64_t turn;
    uint64_t turn_started_us; /* 0: nothing was read in this turn */
    const struct connection *turn_first; /* that was read in this turn; only compared */
    bool turn_shared; /* another one was to be read, too */
    bool turn_held;   /* somebody was left with something to read */
    bool turn_full;   /* because the time was over */
    struct remoting_round round, light_round; /* of all; of those on a crowded port that ask for little */
    uint32_t heavy_count, heavy_before; /* connections that had their whole share in this round, in the last one */
    uint64_t crowded_until_us, light_until_us; /* ... and somebody asks for little */
    struct connection **dirty; /* to be flushed by the hook; NULL = closed meanwhile */
    uint32_t dirty_count, dirty_capacity;

    uint8_t *read_buffer; /* LIMIT_READ_BYTES, of whichever connection is being read */
    uint64_t input_bytes; /* capacities of all input buffers */
    uint64_t owned_bytes; /* unsent, of all connections */
    struct remoting_server_counters counters;
    struct log_limiter malformed_limiter;
    struct log_limiter cut_limiter;
};

#define REMOTING_SLOT_BITS 20u

struct connection *connection_accept(struct remoting_server *server, struct remoting_listener *listener);
void connection_flush(struct connection *connection);
void connection_sweep(struct connection *connection, uint64_t now_ms);
void remoting_server_handle_closed(struct remoting_server *server);
/* Into the list of the hook. False: no memory. */
bool remoting_server_add_dirty(struct remoting_server *server, struct connection *connection);

#endif
