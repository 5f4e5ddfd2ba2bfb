/* DLedger's own protocol, as its command line and its client speak it on the peer port: who leads, append, get, hand leadership over.
 *
 * Follows io.openmessaging.storage.dledger.DLedgerRpcNettyService and the handlers of DLedgerServer 0.3 (spec: store.md 8.7, 8.8). Three things
 * are ours: GET gives committed entries only; a body without bytes is refused, since readers of Java would take what follows for it; and what is
 * appended becomes an entry of kind raw. A raw entry has an index and takes its room in the log like any other, so physical offsets behind it are
 * higher by it; but it is no message whatever its bytes look like: no queue offset, no key, and reading it as a message fails.
 *
 * No sockets: frames in, frames out. Loop thread only.
 */
#ifndef LEDGERMQ_DLEDGER_DLEDGER_RPC_SERVICE_H
#define LEDGERMQ_DLEDGER_DLEDGER_RPC_SERVICE_H

#include "dledger/replica.h"

#define DLEDGER_RPC_APPENDS_MAX 1024u         /* raw entries that wait for their quorum */
#define DLEDGER_RPC_FALL_BEHIND_MAX 1000u     /* entries: who lacks more is no leader yet (maxLeadershipTransferWaitIndex) */
#define DLEDGER_RPC_TRANSFER_MS 2000u         /* until a transfer has come to an end */

struct dledger_rpc_append;

struct dledger_rpc_service {
    struct replica *replica;
    void *context;
    /* An answer that had to wait; the connection may be gone. */
    void (*answer)(void *context, uint64_t connection, struct slice frame);

    /* ---- private ---- */
    struct dledger_rpc_append *appends; /* not yet committed */
    unsigned append_count;
    struct {
        bool out;            /* one at a time */
        uint64_t connection;
        int32_t opaque;
        uint8_t serialize_type;
        uint64_t target;     /* Raft id; our own: we were told to take over */
        uint64_t term;       /* in which it was asked for */
        int64_t wait_index;  /* DLedger index that we must have before we take over */
        bool asked;          /* the election has been started */
        uint64_t due_us;
    } transfer;
};

void dledger_rpc_service_init(struct dledger_rpc_service *service, struct replica *replica, void *context,
                              void (*answer)(void *context, uint64_t connection, struct slice frame));
/* What waits is not answered any more. The replica must not run any more. */
void dledger_rpc_service_close(struct dledger_rpc_service *service);
/* One frame of a connection. Its answer is appended to out, or comes later through `answer`. False: not a remoting frame, close the connection. */
bool dledger_rpc_service_request(struct dledger_rpc_service *service, uint64_t connection, uint8_t *frame, size_t size, struct buffer *out);
/* End of a loop turn: whether a transfer has come to its end. */
void dledger_rpc_service_turn(struct dledger_rpc_service *service);
/* When the next turn is due at the latest, on env's monotonic clock; UINT64_MAX = no matter. */
uint64_t dledger_rpc_service_deadline_us(const struct dledger_rpc_service *service);

#endif
