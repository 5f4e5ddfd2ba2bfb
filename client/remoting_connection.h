/* What remoting_client.c, remoting_connection.c and remoting_request.c share; private to them. All of it belongs to the loop thread.
 */
#ifndef LEDGERMQ_CLIENT_REMOTING_CONNECTION_H
#define LEDGERMQ_CLIENT_REMOTING_CONNECTION_H

#include <uthash.h>

#include "client/remoting_client.h"

#define REMOTING_SLOT_BITS 18u
#define REMOTING_SLOT_MASK ((1u << REMOTING_SLOT_BITS) - 1)
#define REMOTING_GENERATION_MASK 0x1FFFu /* keeps opaque values positive */

_Static_assert(REMOTING_CLIENT_CALLS_MAX == 1u << REMOTING_SLOT_BITS, "a slot number must fit its bits");

enum connection_state { RESOLVING, CONNECTING, OPEN, CLOSED };

struct remoting_connection {
    struct remoting_client *client;
    char address[REMOTING_ADDRESS_MAX];
    uint64_t id; /* never used again: names the connection to answers that come late */
    enum connection_state state;
    uv_tcp_t tcp;
    uv_connect_t connect;
    uv_getaddrinfo_t resolve;
    uv_write_t write;
    bool resolving; /* resolve is in libuv's hands */
    bool tcp_open;  /* tcp is in libuv's hands */
    bool write_busy;
    bool dirty;   /* in the list of connections to flush */
    bool failing; /* found broken where no call back may run: the sweep takes it */
    int fail_status;
    struct addrinfo *addresses, *next_address;
    int64_t connect_deadline_ms;
    int64_t last_read_ms;
    struct buffer out;     /* gathered */
    struct buffer writing; /* with the kernel */
    struct buffer in;
    size_t in_done;
    struct remoting_connection *next_dirty;
    UT_hash_handle hh;
};

struct slot {
    struct remoting_call *call; /* NULL: free */
    uint32_t generation;
    uint32_t next_free;
};

struct handler {
    int32_t code;
    remoting_request_handler handler;
    void *context;
};

struct remoting_client {
    uv_loop_t loop;
    uv_thread_t thread;
    uv_async_t wake;
    uv_prepare_t prepare;
    uv_timer_t sweep;
    int connect_timeout_ms;
    bool stopping;

    uv_mutex_t lock; /* guards tasks */
    struct remoting_task *tasks, **tasks_end;

    /* set before the first connection */
    struct handler handlers[REMOTING_CLIENT_HANDLERS_MAX];
    uint32_t handler_count;
    remoting_connected connected;
    void *connected_context;

    /* loop thread only */
    struct remoting_connection *connections; /* by address; closed ones have left */
    uint64_t last_connection_id;
    struct remoting_connection *dirty;
    struct slot *slots;
    uint32_t slot_count, slot_capacity, free_slot; /* free_slot: UINT32_MAX none */
    int64_t sweep_at_ms;
    struct remoting_delay *delays;
    struct remoting_command command; /* scratch for decoding */
    struct remoting_call *beginning; /* between begin and end */
    struct remoting_connection *beginning_connection;
};

/* Finds or makes the connection to an address. NULL, with *rv ERROR_INVALID, ERROR_BUSY, ERROR_NO_MEMORY, or
 * ERROR_CONNECTION when the one there is was just found broken. */
struct remoting_connection *remoting_connection_get(struct remoting_client *client, const char *address, int *rv);
/* Has something to send: flushed before the loop waits again. */
void remoting_connection_mark_dirty(struct remoting_connection *connection);
/* Is broken, found where no call back may run: the sweep ends it. */
void remoting_connection_mark_failing(struct remoting_connection *connection, int status);
/* The end of a connection: its unanswered calls fail. Only from libuv's call backs. It may be freed on return. */
void remoting_connection_fail(struct remoting_connection *connection, int rv, const char *cause);
void remoting_connection_fail_status(struct remoting_connection *connection, const char *what, int status);
/* One write for each connection that gathered something. */
void remoting_connections_flush(uv_prepare_t *prepare);

/* Hands a peer's request to its handler. */
void remoting_request_take(struct remoting_connection *connection, const struct remoting_command *request);

/* Frees the slot of a call, which is over. */
void remoting_client_slot_release(struct remoting_client *client, struct remoting_call *call);
/* Sees to it that the sweep runs at that time at the latest. */
void remoting_client_sweep_by(struct remoting_client *client, int64_t at_ms);

#endif
