/* DLedger's own protocol on the peer port: the JSON bodies of its requests and answers.
 *
 * Follows io.openmessaging.storage.dledger.protocol.* 0.3 (spec: store.md 8.8): METADATA, APPEND, GET and
 * LEADERSHIP_TRANSFER, which DLedger's command line sends. The remoting code of an answer is always DLEDGER_SUCCESS;
 * what happened stands in the body.
 */
#ifndef LEDGERMQ_PROTO_DLEDGER_JSON_H
#define LEDGERMQ_PROTO_DLEDGER_JSON_H

#include "proto/arena.h"
#include "proto/buffer.h"
#include "proto/error.h"
#include "proto/ledger_entry.h"

enum dledger_request_code {
    DLEDGER_METADATA = 50000,
    DLEDGER_APPEND = 50001,
    DLEDGER_GET = 50002,
    DLEDGER_LEADERSHIP_TRANSFER = 51005,
};

/* io.openmessaging.storage.dledger.protocol.DLedgerResponseCode */
enum dledger_response_code {
    DLEDGER_UNKNOWN = -1,
    DLEDGER_SUCCESS = 200,
    DLEDGER_TIMEOUT = 300,
    DLEDGER_METADATA_ERROR = 301,
    DLEDGER_NETWORK_ERROR = 302,
    DLEDGER_UNSUPPORTED = 303,
    DLEDGER_UNKNOWN_GROUP = 400,
    DLEDGER_UNKNOWN_MEMBER = 401,
    DLEDGER_UNEXPECTED_MEMBER = 402,
    DLEDGER_EXPIRED_TERM = 403,
    DLEDGER_NOT_LEADER = 404,
    DLEDGER_NOT_FOLLOWER = 405,
    DLEDGER_INCONSISTENT_STATE = 406,
    DLEDGER_INCONSISTENT_TERM = 407,
    DLEDGER_INCONSISTENT_INDEX = 408,
    DLEDGER_INCONSISTENT_LEADER = 409,
    DLEDGER_INDEX_OUT_OF_RANGE = 410,
    DLEDGER_UNEXPECTED_ARGUMENT = 411,
    DLEDGER_DISK_ERROR = 414,
    DLEDGER_DISK_FULL = 415,
    DLEDGER_TERM_NOT_READY = 416,
    DLEDGER_FALL_BEHIND_TOO_MUCH = 417,
    DLEDGER_TAKE_LEADERSHIP_FAILED = 418,
    DLEDGER_INDEX_LESS_THAN_LOCAL_BEGIN = 419,
    DLEDGER_REQUEST_WITH_EMPTY_BODYS = 420,
    DLEDGER_INTERNAL_ERROR = 500,
    DLEDGER_TERM_CHANGED = 501,
    DLEDGER_WAIT_QUORUM_ACK_TIMEOUT = 502,
    DLEDGER_LEADER_PENDING_FULL = 503,
    DLEDGER_ILLEGAL_MEMBER_STATE = 504,
    DLEDGER_LEADER_NOT_READY = 505,
    DLEDGER_LEADER_TRANSFERRING = 506,
};

/* Any of the four requests; members of the others are absent (data NULL, numbers as said). */
struct dledger_request {
    struct arena arena;
    struct slice group;
    struct slice remote_id; /* of the node that is asked */
    struct slice local_id;  /* of the node that asks */
    struct slice leader_id;
    int64_t term;                         /* -1 when absent */
    struct slice body;                    /* APPEND; Base64 undone */
    int64_t begin_index;                  /* GET; -1 when absent */
    struct slice transfer_id;             /* LEADERSHIP_TRANSFER: from */
    struct slice transferee_id;           /* to */
    int64_t take_leadership_ledger_index; /* -1 when absent */
};

/* Errors of json_body.h; then nothing is left to close. */
int dledger_request_decode(struct dledger_request *request, struct slice body, struct error *error);
void dledger_request_close(struct dledger_request *request);

struct dledger_peer {
    struct slice id;
    struct slice address; /* host:port */
};

/* What every answer carries; slices without data are left out, as Java leaves out null. */
struct dledger_response {
    int32_t code; /* enum dledger_response_code */
    struct slice group;
    struct slice remote_id;
    struct slice local_id;
    struct slice leader_id;
    int64_t term;
};

void dledger_metadata_response_encode(const struct dledger_response *response, const struct dledger_peer *peers,
                                      size_t peer_count, struct buffer *out);
/* index and position of the entry; -1 when it was not appended. */
void dledger_append_response_encode(const struct dledger_response *response, int64_t index, int64_t position,
                                    struct buffer *out);
/* entry NULL: no entries. body: entry->body_size bytes. */
void dledger_get_response_encode(const struct dledger_response *response, const struct ledger_entry *entry,
                                 const uint8_t *body, struct buffer *out);
void dledger_transfer_response_encode(const struct dledger_response *response, struct buffer *out);

#endif
