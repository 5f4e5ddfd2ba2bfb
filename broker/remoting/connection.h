/* One client connection: cuts frames out of its stream, gathers its answers and writes them once per loop turn.
 *
 * Nothing is written from a handler: answers are appended to the output and the server's hook sends them with one writev, bytes that
 * belong to the log by reference. A client that does not read is cut off. Connections are made by listener.c.
 */
#ifndef LEDGERMQ_BROKER_REMOTING_CONNECTION_H
#define LEDGERMQ_BROKER_REMOTING_CONNECTION_H

#include <sys/queue.h>
#include <uv.h>

#include "proto/buffer.h"
#include "proto/message.h"

struct mapped_file;
struct remoting_server;

/* Bytes of the log that stand behind owned bytes [0, at) in an answer. */
struct connection_slice {
    size_t at;
    const uint8_t *data;
    size_t size;
    struct mapped_file *pinned; /* NULL: a later slice holds the same pin, or none is needed */
};

struct connection_output {
    struct buffer owned;
    struct connection_slice *slices;
    uint32_t slice_count, slice_capacity;
    size_t slice_bytes;
};

struct connection {
    /* for all */
    uint64_t id;
    struct remoting_server *server;
    struct message_host peer;
    int local_port; /* that was asked */
    void *user;     /* of the server's owner; NULL at first */
    uint32_t pending_sends; /* that wait for the quorum: kept by send_answer */

    /* private to connection.c and listener.c */
    uv_tcp_t tcp;
    bool closing;
    bool paused;               /* too much unsent: what was read waits in input, and reading stopped */
    uint64_t last_activity_ms; /* loop time of the last read or finished write */
    uint64_t accepted_ms;
    uint64_t frame_started_ms; /* the first bytes of an unfinished frame came then; 0 = none, or we do not read */
    uint64_t served_turn;      /* the server's turn in which it was read last */
    uint64_t read_started_us;
    uint32_t share_bytes;      /* that one read may bring while the port is crowded */
    bool slow;                 /* its last read on a crowded port took more time than its share */
    bool heavy;                /* ... and so did the one before, or something was left in the socket */
    bool silent;               /* sent no whole frame yet: in the server's list of those */
    TAILQ_ENTRY(connection) silent_next;
    uint8_t *input;            /* bytes that are no whole frame yet */
    size_t input_size, input_capacity;
    struct connection_output filling; /* of this turn */
    struct connection_output sending; /* libuv has it; empty when no write is under way */
    size_t sent;         /* of sending */
    size_t write_bytes;  /* of the request that is out */
    size_t owned_counted; /* of filling.owned, in the server's sum */
    bool writing;
    uint64_t write_started_ms;
    uv_write_t write;
    uint32_t dirty_at; /* place in the server's list + 1, 0 = not in it */
};

/* Where to append the next frame, whole: remoting_writer_begin_..., remoting_writer_end, then connection_append_pinned() for an external
 * body, then connection_frame_done(). NULL when the connection is closing. */
struct buffer *connection_output(struct connection *connection);
/* size bytes at data follow what was appended so far; `pinned` (may be NULL) is given back by the server's unpin once they are written or the
 * connection is gone. The pin is the connection's from here on, also when it fails (it is then closed). */
void connection_append_pinned(struct connection *connection, const uint8_t *data, size_t size, struct mapped_file *pinned);
/* Marks it for the write hook; cuts the client off when too much is unsent or memory was short. */
void connection_frame_done(struct connection *connection);
/* Copies one finished frame. */
void connection_send(struct connection *connection, struct slice frame);
/* Bytes that wait to be written. */
size_t connection_unsent(const struct connection *connection);

/* Closes soon, without writing what is still gathered. Its id is not found any more at once. */
void connection_close(struct connection *connection);
/* The same, with one rate-limited line in the log: what the peer sent was no frame. */
void connection_close_malformed(struct connection *connection, const char *why);
/* "1.2.3.4:5678" into out (64 bytes). */
void connection_peer_text(const struct connection *connection, char out[64]);

#endif
