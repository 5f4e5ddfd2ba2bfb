/* Puts one message record into the log: the one place where queue offset, physical offset and store time are stamped.
 *
 * Follows DLedgerCommitLog#asyncPutMessage. Leader only; the callers have checked topic, permission and limits.
 */
#ifndef LEDGERMQ_BROKER_PROCESSOR_MESSAGE_APPEND_H
#define LEDGERMQ_BROKER_PROCESSOR_MESSAGE_APPEND_H

#include "proto/message.h"

struct append_entry_request;
struct broker;
struct consume_queue;

/* record: everything but total_size, magic, body_crc, queue_offset, physical_offset, store_timestamp_ms and store_host, which are set here; topic and
 * queue_id are queue's. trailer: bytes behind the record (Consumed message), may be empty. request: may be NULL (nobody waits).
 * 0, or dledger_commit_log_reserve's code: then nothing was appended and no queue offset used. */
int message_append(struct broker *broker, struct consume_queue *queue, struct message_record *record, struct slice trailer,
                   struct append_entry_request *request);

/* The remark for a refusal by message_append (or by a done callback) with a code that a client may retry: names the cause. */
const char *message_append_remark(struct broker *broker, int code);

#endif
