/* A server on loopback that speaks remoting frames and does what a test's script says: answers, silence, resets,
 * rubbish. */
#ifndef LEDGERMQ_TESTS_LIB_FAKE_SERVER_H
#define LEDGERMQ_TESTS_LIB_FAKE_SERVER_H

#include <pthread.h>
#include <stdatomic.h>

#include "proto/remoting_command.h"

enum fake_reaction {
    FAKE_ANSWER,  /* send what the script wrote to out */
    FAKE_SILENCE, /* keep the connection, say nothing */
    FAKE_RESET,   /* close the connection with a reset */
};

struct fake_server;
/* Runs on the server's thread, one request at a time. */
typedef enum fake_reaction (*fake_script)(struct fake_server *server, struct remoting_command *request,
                                          struct buffer *out);

struct fake_server {
    char address[32]; /* 127.0.0.1:port */
    int port;
    fake_script script;
    void *context;
    atomic_int requests; /* all that came */
    atomic_int last_code;
    atomic_int connections;
    /* the rest is the server's own */
    pthread_t thread;
    int listener;
    int stop_pipe[2];
};

/* port 0: any. Aborts the test when it cannot listen. */
void fake_server_start(struct fake_server *server, int port, fake_script script, void *context);
/* Closes the listener and all connections. */
void fake_server_stop(struct fake_server *server);
/* A port that nobody listens on. */
int fake_server_free_port(void);
/* A listener on that port that lets nobody in: connects to it are neither accepted nor refused. Returns its descriptor;
 * the two fillers are to be closed too. */
int fake_server_full_backlog(int port, int fillers[2]);
/* A name of this machine that must be looked up; its address where there is none (a bare system has no /etc/hosts). */
const char *fake_server_host_name(void);

/* For scripts. */

/* A field of the request: -1 when it is none, or not there. */
int64_t fake_number(const struct remoting_command *request, const char *name);
void fake_keep_text(char *out, size_t size, struct slice text);
void fake_answer(struct buffer *out, const struct remoting_command *request, int code, const char *remark,
                 struct slice body);
/* Success header of a send; queueId and topic are taken from the request. */
void fake_answer_send(struct buffer *out, const struct remoting_command *request, int code, int64_t queue_offset);
/* Route of one topic over brokers "name=address" (a broker with an empty address has only a follower). Each has
 * `queues` queues. */
void fake_answer_route(struct buffer *out, const struct remoting_command *request, const char *const *brokers,
                       int queues, int perm);

#endif
