/* A server that speaks remoting: ports, the connections accepted on them, and the hook that writes their answers once per loop turn.
 *
 * Follows org.apache.rocketmq.remoting.netty.NettyRemotingServer. Serves the broker's ports and the name server's alike: frames are handed
 * to one callback. Loop thread only.
 *
 * The write hook is a uv_prepare handle that must run after those that make answers: libuv runs the one started last first, so make the
 * server before the parts that have hooks of their own (dledger), and listen when the rest is open.
 */
#ifndef LEDGERMQ_BROKER_REMOTING_LISTENER_H
#define LEDGERMQ_BROKER_REMOTING_LISTENER_H

#include <uv.h>

#include "proto/buffer.h"
#include "proto/error.h"

struct connection;
struct mapped_file;
struct remoting_server;

struct remoting_server_options {
    uv_loop_t *loop;
    const char *name;         /* for the log: "broker", "namesrv"; borrowed for the server's life */
    uint32_t connections_max; /* 0 = LIMIT_CONNECTIONS */
    uint32_t idle_ms;         /* 0 = LIMIT_IDLE_MS */
    uint32_t frame_timeout_ms; /* a frame that began so long ago is not waited for; 0 = 30 s */
    void *context;
    /* One whole frame (length field included), mutable, valid during the call. It may write to connection_output() and may close the
     * connection. Decoding is the callee's: a malformed frame is closed with connection_close_malformed(). */
    void (*on_frame)(void *context, struct connection *connection, uint8_t *frame, size_t size);
    /* May be NULL. The connection is no longer found by its id; its fields are still readable. */
    void (*on_closed)(void *context, struct connection *connection);
    /* Gives a segment back that connection_append_pinned() took. May be NULL when that is never called. */
    void (*unpin)(void *context, struct mapped_file *pinned);
};

struct remoting_server_counters {
    uint64_t accepted;
    uint64_t refused;         /* at connections_max: new ones turned away, and silent ones that made room */
    uint64_t cut_slow;        /* unsent bytes or an old write */
    uint64_t cut_idle;
    uint64_t cut_malformed;
    uint64_t cut_input;       /* partial frames of all clients over LIMIT_INPUT_TOTAL_BYTES */
    uint64_t cut_frame;       /* frames that did not come to their end in time */
    uint64_t accepts_deferred; /* turns that left connections in the backlog */
    uint64_t turns_full;       /* turns that left sockets unread */
    uint64_t frames;
    uint64_t bytes_in;
    uint64_t bytes_out;
};

/* NULL with error. */
struct remoting_server *remoting_server_new(const struct remoting_server_options *options, struct error *error);
/* Binds and accepts; may be called for several ports. address: numeric, "0.0.0.0", "::", ... port 0 picks one. ERROR_IO naming the
 * address: nothing is left behind. */
int remoting_server_listen(struct remoting_server *server, const char *address, int port, struct error *error);
/* The port of the nth listen (for port 0). */
int remoting_server_port(const struct remoting_server *server, unsigned nth);
/* Writes what can be written at once, closes all connections and ports; `closed` is called from the loop, once. */
void remoting_server_close(struct remoting_server *server, void (*closed)(void *argument), void *argument);
void remoting_server_free(struct remoting_server *server); /* after closed; NULL is fine */

/* NULL when that connection is gone. Ids are never reused. */
struct connection *remoting_server_find(struct remoting_server *server, uint64_t connection_id);
uint32_t remoting_server_connection_count(const struct remoting_server *server);
void remoting_server_each(struct remoting_server *server, void (*each)(void *argument, struct connection *connection), void *argument);
/* Of partial frames, and of answers that are not sent yet. */
uint64_t remoting_server_buffered(const struct remoting_server *server);
const struct remoting_server_counters *remoting_server_counters(const struct remoting_server *server);

#endif
