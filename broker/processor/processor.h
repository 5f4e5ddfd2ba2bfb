/* A request on its way through the broker, and how it is answered.
 *
 * A handler answers now, or keeps the reply_to (a value, no pointers) and answers later: the connection may be gone by then, which reply_begin
 * tells. Requests that a follower forwarded to us look the same: their reply_to leads back over the peer link.
 */
#ifndef LEDGERMQ_BROKER_PROCESSOR_PROCESSOR_H
#define LEDGERMQ_BROKER_PROCESSOR_PROCESSOR_H

#include "proto/message.h"
#include "proto/remoting_command.h"

struct broker;
struct connection;
struct remoting_server; /* listener.h: a server that speaks remoting (broker port, name server port) */

struct reply_to {
    uint64_t connection_id; /* never reused; REPLY_FORWARDED is set in ids of forwarded requests */
    int32_t opaque;
    int32_t code; /* of the request */
    uint8_t serialize_type;
    bool oneway;
};
#define REPLY_FORWARDED (1ull << 63)

struct request {
    struct reply_to reply_to;
    struct connection *connection;           /* NULL when forwarded */
    const struct remoting_command *command;  /* slices are valid during the handler only */
    struct slice raw_frame;                  /* exact copy for forwarding; only set for rows with PROCESSOR_FORWARD on a follower */
    struct message_host peer;                /* address of the client (born host) */
    int local_port;                          /* port that was asked (fast port or main) */
    bool forwarded;
};

typedef void (*processor_handler)(struct broker *broker, struct request *request);

enum processor_flag {
    PROCESSOR_FORWARD = 1,  /* needs the leader: a follower forwards it, once and bounded (broker/remoting/forward.c) */
    PROCESSOR_QUESTION = 2, /* with FORWARD: an offset question; without a leader the connection is closed instead of a wrong answer */
    PROCESSOR_BUFFERS = 4,  /* what it takes or answers may be large and may wait: refused with 14 while memory is short (memory_budget.h) */
};

struct processor_row {
    int32_t code;
    const char *name; /* RocketMQ's constant */
    processor_handler handler;
    unsigned flags;
};
/* Each *_processor.c exports one table ended by a row with handler NULL. processor.c joins them. */
extern const struct processor_row send_message_processor_rows[];
extern const struct processor_row pull_message_processor_rows[];
extern const struct processor_row query_message_processor_rows[];
extern const struct processor_row client_manage_processor_rows[];
extern const struct processor_row consumer_manage_processor_rows[];
extern const struct processor_row admin_broker_processor_rows[];
extern const struct processor_row admin_topic_processor_rows[];
extern const struct processor_row broker2client_rows[];
extern const struct processor_row end_transaction_processor_rows[];
extern const struct processor_row resume_check_rows[];
extern const struct processor_row backup_processor_rows[];
extern const struct processor_row group_processor_rows[];

/* Did the request come from this machine or a member's? Only these may change the group or read all of it. */
bool group_processor_from_member_host(struct broker *broker, const struct message_host *peer);

/* False when the peer is gone or the request was one-way: then write nothing and do not call reply_end. */
bool reply_begin(struct broker *broker, const struct reply_to *to, struct remoting_writer *writer, int32_t code, const char *remark);
void reply_end(struct broker *broker, const struct reply_to *to, struct remoting_writer *writer);
/* Whole answer without ext fields or body. */
void reply_simple(struct broker *broker, const struct reply_to *to, int32_t code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Required field of a request. False: an answer 1 naming the field has been sent; the handler returns. */
bool request_text(struct broker *broker, struct request *request, const char *name, struct slice *value);
bool request_i32(struct broker *broker, struct request *request, const char *name, int32_t *value);
bool request_i64(struct broker *broker, struct request *request, const char *name, int64_t *value);
/* Optional: keeps *value when absent; false (answered) when present and wrong. */
bool request_optional_i32(struct broker *broker, struct request *request, const char *name, int32_t *value);
bool request_optional_i64(struct broker *broker, struct request *request, const char *name, int64_t *value);
bool request_optional_bool(struct broker *broker, struct request *request, const char *name, bool *value);

/* Sends a one-way request of ours to a client (40 NOTIFY_CONSUMER_IDS_CHANGED, 39, ...). begin is false when the connection is gone. */
bool push_begin(struct broker *broker, uint64_t connection_id, struct remoting_writer *writer, int32_t code);
void push_end(struct broker *broker, uint64_t connection_id, struct remoting_writer *writer);

#endif
