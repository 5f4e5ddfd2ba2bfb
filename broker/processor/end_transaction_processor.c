/* END_TRANSACTION (37): a producer says what becomes of its half message.
 *
 *  1. The half record is found by its physical offset and compared with what the request says of it.
 *  2. Settled already: the same decision answers 0 and writes nothing, the other one is refused. On its way: this one waits behind the first.
 *  3. Commit: the message is appended under its real topic. Rollback: the mark alone. The first entry carries the trailer that settles the half, so
 *     that applying it decides on every node.
 *  4. The answer waits for the commit; so do those that came second.
 *
 * Follows EndTransactionProcessor 4.9.8. Java delivers again for each repeated commit, and marks the half as done in a second step that a failover can
 * lose. On a follower the request is handed to the leader, where Java's slave refuses with 11: clients send it one-way and never again.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "broker/broker.h"
#include "broker/broker_stats.h"
#include "broker/hash_table.h"
#include "broker/log.h"
#include "broker/metadata/metadata.h"
#include "broker/metadata/topic_config.h"
#include "broker/processor/cold_read.h"
#include "broker/processor/message_append.h"
#include "broker/processor/reply.h"
#include "broker/remoting/forward.h"
#include "broker/service/transaction.h"
#include "proto/headers.h"
#include "proto/response_code.h"
#include "proto/topic_validator.h"

#define ENDS_KEPT 1024u /* of those that are done, for the next ones */

struct end_transaction {
    struct append_entry_request append; /* first */
    struct broker *broker;
    struct reply_to reply_to;
    int64_t queue_offset;    /* as the request says */
    int64_t physical_offset;
    bool rollback;
    bool group_too_long;
    struct cold_read *read;  /* of an old record */
    int64_t half_offset;     /* key: it settles this half */
    UT_hash_handle hh;
    struct end_transaction *waiting; /* came while this one was on its way */
    struct end_transaction *next;    /* of a waiting list or the free list */
    char group[GROUP_NAME_MAX + 1];
};

struct end_transactions {
    struct end_transaction *by_half; /* uthash: on their way through the log */
    struct end_transaction *free_ends;
    uint32_t free_count;
    uint32_t count;
};

struct end_transactions *end_transactions_new(void)
{
    return calloc(1, sizeof(struct end_transactions));
}

uint32_t end_transactions_pending(const struct end_transactions *ends)
{
    return ends->count;
}

void end_transactions_free(struct end_transactions *ends)
{
    if (ends == NULL)
        return;
    while (ends->free_ends != NULL) {
        struct end_transaction *next = ends->free_ends->next;
        free(ends->free_ends);
        ends->free_ends = next;
    }
    free(ends);
}

static struct end_transaction *take_end(struct end_transactions *ends)
{
    struct end_transaction *end = ends->free_ends;
    if (ends->count >= LIMIT_ENDS_IN_FLIGHT)
        return NULL;
    if (end != NULL) {
        ends->free_ends = end->next;
        ends->free_count--;
    } else if ((end = malloc(sizeof *end)) == NULL) {
        return NULL;
    }
    ends->count++;
    end->read = NULL;
    end->waiting = NULL;
    return end;
}

static void give_end(struct end_transaction *end)
{
    struct end_transactions *ends = transaction_ends(end->broker->transactions);
    if (end->read != NULL) {
        cold_read_free(end->read);
        free(end->read);
    }
    ends->count--;
    if (ends->free_count >= ENDS_KEPT) {
        free(end);
        return;
    }
    end->next = ends->free_ends;
    ends->free_ends = end;
    ends->free_count++;
}

/* ---- answers ---- */

static void finish(struct end_transaction *end, int32_t code, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void finish(struct end_transaction *end, int32_t code, const char *format, ...)
{
    char remark[512];
    if (format != NULL) {
        va_list args;
        va_start(args, format);
        vsnprintf(remark, sizeof remark, format, args);
        va_end(args);
    }
    reply_simple(end->broker, &end->reply_to, code, format == NULL ? NULL : "%s", remark);
    give_end(end);
}

static void finish_code(struct end_transaction *end, int code)
{
    finish(end, RESPONSE_SERVICE_NOT_AVAILABLE, "%s", message_append_remark(end->broker, code));
}

static void step(struct end_transaction *end);

static void on_appended(struct append_entry_request *append)
{
    struct end_transaction *end = (struct end_transaction *)append;
    struct end_transaction *waiting = end->waiting;
    int code = append->code;
    HASH_DEL(transaction_ends(end->broker->transactions)->by_half, end);
    if (code == 0) {
        finish(end, RESPONSE_SUCCESS, NULL);
    } else {
        transaction_append_failed(end->broker, append, end->half_offset);
        finish_code(end, code);
    }
    while (waiting != NULL) {
        struct end_transaction *next = waiting->next;
        if (code == 0)
            step(waiting);
        else
            finish_code(waiting, code);
        waiting = next;
    }
}

/* ---- deciding ---- */

/* Puts it on its way. Nothing was appended when it fails. */
static int append_commit(struct end_transaction *end, const struct message_record *half, struct topic_entry *topic, int32_t queue_id,
                         struct slice trailer)
{
    struct broker *broker = end->broker;
    struct consume_queue *queue = topic_config_queue(topic, &broker->store, queue_id);
    if (queue == NULL)
        return ERROR_NO_SPACE;
    /* The property string stays as it is: consumers see REAL_TOPIC, TRAN_MSG and so on, as from Java's broker. */
    struct message_record record = *half;
    record.topic = topic->config.name;
    record.sys_flag = (record.sys_flag & ~MESSAGE_TRANSACTION_MASK) | MESSAGE_TRANSACTION_COMMIT;
    record.prepared_transaction_offset = half->physical_offset;
    int rv = message_append(broker, queue, &record, trailer, &end->append);
    /* Nothing of ours depends on the mark; without room for it the commit stands. */
    if (rv == 0 && transaction_append_mark(broker, half->queue_offset, slice_of(NULL, 0), NULL) != 0)
        LOG_DEBUG("no mark for the committed half message at offset %lld", (long long)half->queue_offset);
    return rv;
}

static void settle(struct end_transaction *end, const struct message_record *half)
{
    struct broker *broker = end->broker;
    struct end_transactions *ends = transaction_ends(broker->transactions);
    uint8_t bytes[TRANSACTION_TRAILER_MAX];
    struct slice trailer = slice_of(bytes, transaction_trailer(half->queue_offset, end->rollback, bytes));
    int rv;
    end->half_offset = half->queue_offset;
    end->append.done = on_appended;
    if (end->rollback) {
        rv = transaction_append_mark(broker, half->queue_offset, trailer, &end->append);
    } else {
        struct slice name = message_property(half->properties, "REAL_TOPIC");
        struct topic_entry *topic = topic_config_destination(broker, name, half->physical_offset);
        int32_t queue_id;
        if (topic == NULL || !slice_to_i32(message_property(half->properties, "REAL_QID"), &queue_id) || queue_id < 0) {
            finish(end, RESPONSE_SYSTEM_ERROR, "topic[%.*s] not exist", (int)name.size, (const char *)name.data);
            return;
        }
        rv = append_commit(end, half, topic, queue_id, trailer);
    }
    if (rv != 0) {
        finish_code(end, rv);
        return;
    }
    half_set_find(&broker->metadata->halves, half->queue_offset)->settling = true;
    HASH_ADD(hh, ends->by_half, half_offset, sizeof end->half_offset, end);
}

static void decide(struct end_transaction *end, struct slice bytes)
{
    struct broker *broker = end->broker;
    struct end_transactions *ends = transaction_ends(broker->transactions);
    struct message_record half;
    if (message_record_decode(bytes, false, &half) != 0) {
        finish(end, RESPONSE_SYSTEM_ERROR, "Find prepared transaction message failed");
        return;
    }
    struct slice group = message_property(half.properties, "PGROUP");
    if (group.data == NULL) {
        finish(end, RESPONSE_SYSTEM_ERROR, "the message has no property PGROUP: it is no half message");
        return;
    }
    if (end->group_too_long || !slice_equal_text(group, end->group)) {
        finish(end, RESPONSE_SYSTEM_ERROR, "The producer group wrong");
        return;
    }
    if (half.queue_offset != end->queue_offset) {
        finish(end, RESPONSE_SYSTEM_ERROR, "The transaction state table offset wrong");
        return;
    }
    /* A committed message looks almost like its half. */
    if (half.physical_offset != end->physical_offset || half.queue_id != 0 || !slice_equal_text(half.topic, TOPIC_TRANS_HALF)) {
        finish(end, RESPONSE_SYSTEM_ERROR, "The commit log offset wrong");
        return;
    }
    struct end_transaction *first;
    switch (half_set_state(&broker->metadata->halves, half.queue_offset)) {
    case HALF_NOT_SEEN:
        finish(end, RESPONSE_SYSTEM_ERROR, "Find prepared transaction message failed");
        return;
    case HALF_COMMITTED:
        if (end->rollback)
            finish(end, RESPONSE_SYSTEM_ERROR, "the transaction is committed already");
        else
            finish(end, RESPONSE_SUCCESS, NULL);
        return;
    case HALF_ROLLED_BACK:
        if (end->rollback)
            finish(end, RESPONSE_SUCCESS, NULL);
        else
            finish(end, RESPONSE_SYSTEM_ERROR, "the transaction is rolled back already");
        return;
    case HALF_FORGOTTEN:
        finish(end, RESPONSE_SYSTEM_ERROR, "the transaction was settled long ago");
        return;
    case HALF_UNSETTLED:
        break;
    }
    if (!half_set_find(&broker->metadata->halves, half.queue_offset)->settling) {
        settle(end, &half);
        return;
    }
    HASH_FIND(hh, ends->by_half, &half.queue_offset, sizeof half.queue_offset, first);
    if (first == NULL) { /* its quorum was late, or the check service gives the half up */
        finish(end, RESPONSE_SERVICE_NOT_AVAILABLE, "another decision is on its way, outcome unknown");
        return;
    }
    /* In any order: what was decided is decided. To look for the end would take a client's repetitions the square of their number. */
    end->next = first->waiting;
    first->waiting = end;
}

/* ---- the half record ---- */

static void on_read(struct broker *broker, struct cold_read *read, int code);

static void start_read(struct end_transaction *end, uint32_t size)
{
    struct broker *broker = end->broker;
    end->read = calloc(1, sizeof *end->read);
    if (end->read == NULL) {
        finish_code(end, ERROR_NO_MEMORY);
        return;
    }
    end->read->context = end;
    int rv = cold_read_start_one(broker->cold_reads, end->read, end->physical_offset, size, on_read);
    if (rv != 0)
        finish_code(end, rv);
}

static void on_read(struct broker *broker, struct cold_read *read, int code)
{
    struct end_transaction *end = read->context;
    (void)broker;
    if (code == 0)
        step(end);
    else if (code == ERROR_NOT_FOUND)
        finish(end, RESPONSE_SYSTEM_ERROR, "Find prepared transaction message failed");
    else
        finish_code(end, code);
}

/* Runs from the start after each wait. */
static void step(struct end_transaction *end)
{
    struct broker *broker = end->broker;
    if (!dledger_commit_log_accepting(broker->log)) {
        finish_code(end, ERROR_NOT_LEADER);
        return;
    }
    if (end->read != NULL) {
        decide(end, slice_of(end->read->bytes, end->read->size));
        return;
    }
    uint32_t size = message_store_record_size(&broker->store, end->physical_offset);
    if (size == 0) {
        finish(end, RESPONSE_SYSTEM_ERROR, "Find prepared transaction message failed");
        return;
    }
    const uint8_t *bytes = cold_read_at_hand(broker, end->physical_offset, size);
    if (bytes != NULL)
        decide(end, slice_of(bytes, size));
    else
        start_read(end, size);
}

static void end_transaction(struct broker *broker, struct request *request)
{
    struct end_transaction_request_header header;
    struct error error;
    if (end_transaction_request_header_decode(request->command, &header, &error) != 0) {
        reply_error(broker, &request->reply_to, &error);
        return;
    }
    if (header.commit_or_rollback == 0) { /* unknown: the check service asks again; nobody is answered */
        if ((request->reply_to.connection_id & REPLY_FORWARDED) != 0)
            forward_reply_none(broker->forward, request->reply_to.connection_id);
        return;
    }
    if (header.commit_or_rollback != MESSAGE_TRANSACTION_COMMIT && header.commit_or_rollback != MESSAGE_TRANSACTION_ROLLBACK) {
        reply_simple(broker, &request->reply_to, RESPONSE_SYSTEM_ERROR, "commitOrRollback field wrong");
        return;
    }
    struct end_transaction *end = take_end(transaction_ends(broker->transactions));
    if (end == NULL) {
        reply_simple(broker, &request->reply_to, RESPONSE_SERVICE_NOT_AVAILABLE, "%s", broker_stats_refuse(broker->stats, LIMIT_HIT_TRANSACTION_ENDS));
        return;
    }
    end->broker = broker;
    end->reply_to = request->reply_to;
    end->queue_offset = header.tran_state_table_offset;
    end->physical_offset = header.commit_log_offset;
    end->rollback = header.commit_or_rollback == MESSAGE_TRANSACTION_ROLLBACK;
    end->group_too_long = header.producer_group.size > GROUP_NAME_MAX;
    size_t size = end->group_too_long ? 0 : header.producer_group.size;
    if (size > 0)
        memcpy(end->group, header.producer_group.data, size);
    end->group[size] = '\0';
    step(end);
}

const struct processor_row end_transaction_processor_rows[] = {
    {37, "END_TRANSACTION", end_transaction, PROCESSOR_FORWARD},
    {0, NULL, NULL, 0},
};
