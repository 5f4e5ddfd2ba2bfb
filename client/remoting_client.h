/* Connections to name servers and brokers, requests and their answers, on one background loop thread.
 *
 * Follows org.apache.rocketmq.remoting.netty.NettyRemotingClient 4.9.8. A connection is made by the first request to
 * its address and shared by all that follow; when it breaks, its unanswered requests fail and the next request makes
 * a new one. Nothing is retried here.
 */
#ifndef LEDGERMQ_CLIENT_REMOTING_CLIENT_H
#define LEDGERMQ_CLIENT_REMOTING_CLIENT_H

#include <uv.h>

#include "proto/remoting_command.h"

#define REMOTING_ADDRESS_MAX 280u                    /* 255 characters of a host name, colon, port */
#define REMOTING_CLIENT_CALLS_MAX 262144u            /* unanswered requests of one client */
#define REMOTING_CLIENT_OUT_MAX (128u * 1024 * 1024) /* bytes not yet taken by the kernel, per connection */
#define REMOTING_CLIENT_CONNECTIONS_MAX 1024u
#define REMOTING_CLIENT_HANDLERS_MAX 16u

struct remoting_client;
struct remoting_connection;

/* Work for the loop thread. Memory is the poster's until run is called. */
struct remoting_task {
    void (*run)(struct remoting_task *task);
    struct remoting_task *next;
};

struct remoting_call;
/* rv 0: answer is valid until return. Else ERROR_TIMEOUT, ERROR_CONNECTION, ERROR_MALFORMED or ERROR_STOPPED, and
 * `cause` says why. The call's memory is the caller's again. */
typedef void (*remoting_call_done)(struct remoting_call *call, int rv, const struct remoting_command *answer,
                                   const char *cause);

/* One request and the wait for its answer; embedded in the caller's object. */
struct remoting_call {
    remoting_call_done done;
    void *context;
    bool maybe_sent; /* to be read in done, on a failure: the peer may have got the request */
    /* the rest belongs to remoting_client.c */
    struct remoting_connection *connection;
    int32_t opaque;
    int64_t sent_ms;
    int64_t deadline_ms;
    uint32_t slot; /* in the table of unanswered requests */
    size_t frame_start, frame_size; /* in the connection's buffer, while the connection is being made */
};

/* A delay on the loop thread; embedded likewise. */
struct remoting_delay {
    void (*run)(struct remoting_delay *delay);
    int64_t due_ms;
    bool armed;
    struct remoting_delay *next, **previous;
};

/* Where the answer to a peer's request goes: plain data, kept as long as the answer takes. */
struct remoting_origin {
    uint64_t connection;
    int32_t opaque;
    uint8_t serialize_type;
    bool oneway;
};
/* A request that a peer sent over a connection of ours, on the loop thread. request and address (the peer's) are valid
 * until return. Whoever takes a request that is not one-way answers it, now or later: see
 * remoting_client_answer_begin(). */
typedef void (*remoting_request_handler)(void *context, const struct remoting_command *request, const char *address,
                                         const struct remoting_origin *origin);
/* A connection was made, on the loop thread; requests that began it leave right behind what this one begins. */
typedef void (*remoting_connected)(void *context, const char *address);

/* Starts the thread. */
int remoting_client_new(int connect_timeout_ms, struct remoting_client **out, struct error *error);
/* Ends all calls with ERROR_STOPPED and the thread. Delays that are still armed and tasks posted later never run. Not
 * from the loop thread. */
void remoting_client_free(struct remoting_client *client);

/* Any thread. Tasks run in the order they were posted. */
void remoting_client_post(struct remoting_client *client, struct remoting_task *task);
/* Any thread but the loop's: posts the task and waits until it, or what it began, posts done, which the task's owner has
 * beside it and this function makes and destroys. */
void remoting_client_post_and_wait(struct remoting_client *client, struct remoting_task *task, uv_sem_t *done);
/* Any thread: true when called on the loop thread. */
bool remoting_client_on_loop(const struct remoting_client *client);

/* Before the first request (connections are made by requests): requests of that code go to the handler. One handler a
 * code; all other requests are answered "not supported" (3), so that a peer never waits in vain. */
void remoting_client_handle(struct remoting_client *client, int32_t code, remoting_request_handler handler,
                            void *context);
void remoting_client_watch(struct remoting_client *client, remoting_connected connected, void *context);

/* Loop thread only, from here.
 * ------------------------------------------------------------------------------------------------------- */

/* Begins a request frame to address ("host:port"). Between begin and end: ext fields and body through the writer.
 * call NULL: one-way. Fails with ERROR_BUSY (a limit), ERROR_INVALID (no such address form), ERROR_NO_MEMORY,
 * ERROR_STOPPED: then done is not called. */
int remoting_client_begin(struct remoting_client *client, const char *address, struct remoting_call *call,
                          int32_t code, int timeout_ms, struct remoting_writer *writer);
/* Takes the frame. On failure (ERROR_NO_MEMORY: the frame outgrew REMOTING_CLIENT_OUT_MAX) it is undone and done is
 * not called. */
int remoting_client_end(struct remoting_client *client, struct remoting_call *call, struct remoting_writer *writer);
/* Forgets an unanswered call; done is not called. Its request does not leave any more if its connection is not made
 * yet. */
void remoting_client_cancel(struct remoting_client *client, struct remoting_call *call);

/* Begins the answer to a peer's request; ext fields and body follow through the writer, then remoting_client_answer_end.
 * False, and nothing to do, when nobody waits: it was one-way, its connection is gone or takes no more. remark NULL:
 * none; lives until end. */
bool remoting_client_answer_begin(struct remoting_client *client, const struct remoting_origin *origin, int32_t code,
                                  const char *remark, struct remoting_writer *writer);
void remoting_client_answer_end(struct remoting_client *client, struct remoting_writer *writer);
/* Both in one, without fields and body. */
void remoting_client_answer(struct remoting_client *client, const struct remoting_origin *origin, int32_t code,
                            const char *remark);

int64_t remoting_client_now_ms(struct remoting_client *client);
void remoting_client_delay(struct remoting_client *client, struct remoting_delay *delay, int wait_ms);
/* The same, unless it is armed for an earlier time. */
void remoting_client_delay_by(struct remoting_client *client, struct remoting_delay *delay, int wait_ms);
void remoting_client_delay_cancel(struct remoting_delay *delay);
bool remoting_client_is_connected(struct remoting_client *client, const char *address);

/* Any thread but the loop's: one request, waiting for its answer.
 * ------------------------------------------------------------------------- */

struct remoting_field {
    const char *name;
    const char *value; /* NULL: left out */
};

struct remoting_response {
    struct remoting_command command; /* slices point into frame */
    uint8_t *frame;
};

/* fields end with a name of NULL; may be NULL. 0: *response holds an answer of any code, to be closed. Else as
 * remoting_call_done; error names the address and the cause. */
int remoting_client_invoke(struct remoting_client *client, const char *address, int32_t code,
                           const struct remoting_field *fields, struct slice body, int timeout_ms,
                           struct remoting_response *response, struct error *error);
void remoting_response_close(struct remoting_response *response);
/* Any thread: a copy of an answer that outlives its call back. ERROR_NO_MEMORY. */
int remoting_response_keep(const struct remoting_command *answer, struct remoting_response *response);

#endif
