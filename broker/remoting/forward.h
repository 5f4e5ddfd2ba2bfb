/* Requests that need the leader, received by a node that is not: handed on once over the peer link, or parked shortly while there is no leader.
 *
 * Nothing of RocketMQ does this (a slave refuses). Rules (design 14): deadline 1 s; the leader answers whole and never hands on; what may have
 * reached a leader is never sent twice; an offset question is never answered with an error, its connection is closed instead. Loop thread only.
 */
#ifndef LEDGERMQ_BROKER_REMOTING_FORWARD_H
#define LEDGERMQ_BROKER_REMOTING_FORWARD_H

#include "broker/processor/processor.h"

struct forward;

struct forward *forward_new(struct broker *broker, struct error *error);
/* Takes over the request (answers it sooner or later). request->raw_frame is copied. False: we lead, handle it here. */
bool forward_request(struct forward *forward, const struct request *request, const struct processor_row *row);
/* Someone leads now, or no longer: parked requests are tried. */
void forward_role_changed(struct forward *forward);

/* ---- dledger's callbacks ---- */
void forward_answered(struct forward *forward, uint64_t request_id, int code, struct slice frame);
/* At the leader: runs a follower's frame. */
void forward_received(struct forward *forward, uint64_t forward_id, struct slice client_address, uint8_t *frame, size_t size);
/* A connection id, with REPLY_FORWARDED, that a handler's answer goes to dledger_commit_log_forward_answer() by; 0: no place is left. */
uint64_t forward_take(struct forward *forward, uint64_t forward_id);

/* ---- processor.c: answering a forwarded request (reply_to.connection_id has REPLY_FORWARDED) ---- */
struct buffer *forward_reply_buffer(struct forward *forward, uint64_t connection_id); /* NULL when unknown or already answered */
void forward_reply_done(struct forward *forward, uint64_t connection_id);
/* Ends it without a frame (one-way requests; questions that cannot be answered). Nothing happens when it was answered. */
void forward_reply_none(struct forward *forward, uint64_t connection_id);

uint32_t forward_parked(const struct forward *forward);
size_t forward_parked_bytes(const struct forward *forward);
void forward_close(struct forward *forward); /* timer is closed by the loop later; free after the loop ran */
void forward_free(struct forward *forward);

#endif
