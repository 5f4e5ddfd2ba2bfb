/* Transactions on the leader: half messages whose producers are silent are checked back (39), and each half is settled once.
 *
 * Follows TransactionalMessageServiceImpl, TransactionalMessageCheckService and AbstractTransactionalMessageCheckListener 4.9.8, but what is settled is
 * replicated state (half_set.h), and a half message keeps its place: Java stores it anew before each check, so that a late decision about the old
 * place delivers twice. Loop thread only.
 */
#ifndef LEDGERMQ_BROKER_SERVICE_TRANSACTION_H
#define LEDGERMQ_BROKER_SERVICE_TRANSACTION_H

#include <stddef.h>
#include <stdint.h>

#include "proto/buffer.h"
#include "proto/error.h"

struct append_entry_request;
struct broker;
struct consume_queue;
struct half;
struct transaction;

#define TRANSACTION_TRAILER_MAX 64

struct transaction *transaction_new(struct broker *broker, struct error *error);
/* Leadership began or ended: rounds start or stop. */
void transaction_role_changed(struct transaction *transaction);
void transaction_close(struct transaction *transaction); /* the timer is closed by the loop later; free after the loop ran */
void transaction_free(struct transaction *transaction);

/* False: as many halves as may be wait for a decision; a further one is to be refused with 14. queue: of the half topic. */
bool transaction_takes_half(const struct broker *broker, const struct consume_queue *queue);
/* Is a half message that was stored at store_ms to be checked back? It may be when it is older than its immunity, or lies so far in the future that
 * the clock cannot be right. */
bool transaction_check_due(int64_t now_ms, int64_t store_ms, int32_t immunity_s, int64_t time_out_ms);
/* The Consumed trailer that settles a half. Returns its size. */
size_t transaction_trailer(int64_t half_offset, bool rolled_back, uint8_t out[TRANSACTION_TRAILER_MAX]);
/* Appends the mark that Java's tools look for (topic RMQ_SYS_TRANS_OP_HALF_TOPIC, tag d). trailer: empty when another entry settles the half. Returns
 * as message_append. */
int transaction_append_mark(struct broker *broker, int64_t half_offset, struct slice trailer, struct append_entry_request *request);
/* An append that was to settle the half has failed. If its entry never reached the log (no room, leadership being handed over) the half is free for
 * the next decision; else that entry may still commit, and only apply or another leader frees it. */
void transaction_append_failed(struct broker *broker, const struct append_entry_request *append, int64_t half_offset);

/* The ends that are under way; belongs to end_transaction_processor.c. */
struct end_transactions *transaction_ends(struct transaction *transaction);
struct end_transactions *end_transactions_new(void);
void end_transactions_free(struct end_transactions *ends);
uint32_t end_transactions_pending(const struct end_transactions *ends);

#endif
