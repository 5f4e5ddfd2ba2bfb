/* RESUME_CHECK_HALF_MESSAGE 323: an operator has a transaction checked back again.
 *
 * Follows AdminBrokerProcessor#resumeCheckHalfMessage 4.9.8, which stores the message once more as a half. Here that is done for one that was given up
 * (its record in TRANS_CHECK_MAX_TIME_TOPIC is named); a half that still waits keeps its place, as the producer knows it by that, and only its
 * count of check-backs begins anew.
 *
 *  1. The record is read (by the pool when old).
 *  2. It waits: a metadata record sets its count to 0.  It was given up: it is appended to the half topic, with count 0.
 *  3. The answer leaves when that is committed.
 */
#include <stdlib.h>

#include "broker/broker.h"
#include "broker/broker_stats.h"
#include "broker/metadata/metadata.h"
#include "broker/processor/cold_read.h"
#include "broker/processor/message_append.h"
#include "broker/processor/processor.h"
#include "broker/processor/reply.h"
#include "broker/service/transaction.h"
#include "proto/headers.h"
#include "proto/request_code.h"
#include "proto/response_code.h"
#include "proto/topic_validator.h"

#define RESUMES_AT_ONCE 64u

struct resume {
    struct append_entry_request append; /* first: on_appended finds the rest by it */
    struct cold_read read;
    struct broker *broker;
    struct reply_to reply_to;
};

static uint32_t resumes; /* under way */

static void give(struct resume *resume)
{
    cold_read_free(&resume->read);
    free(resume);
    resumes--;
}

static void refuse(struct resume *resume, int32_t code, const char *why)
{
    reply_simple(resume->broker, &resume->reply_to, code, "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed: %s", why);
    give(resume);
}

static void on_appended(struct append_entry_request *append)
{
    struct resume *resume = (struct resume *)append;
    if (append->code != 0) {
        refuse(resume, RESPONSE_SERVICE_NOT_AVAILABLE, message_append_remark(resume->broker, append->code));
        return;
    }
    reply_simple(resume->broker, &resume->reply_to, RESPONSE_SUCCESS, NULL);
    give(resume);
}

static void append_again(struct resume *resume, struct message_record *record)
{
    static const char *const replaced[] = {"TRANSACTION_CHECK_TIMES", NULL};
    struct broker *broker = resume->broker;
    struct consume_queue *queue = message_store_queue(&broker->store, SLICE_LITERAL(TOPIC_TRANS_HALF), 0, true, NULL);
    struct buffer properties;
    if (queue == NULL || !transaction_takes_half(broker, queue)) {
        refuse(resume, RESPONSE_SERVICE_NOT_AVAILABLE, queue == NULL ? "the queue's files cannot be made" : broker_stats_refuse(broker->stats, LIMIT_HIT_HALVES));
        return;
    }
    buffer_init(&properties, 0);
    message_properties_copy(&properties, 0, record->properties, replaced);
    message_property_append(&properties, 0, SLICE_LITERAL("TRANSACTION_CHECK_TIMES"), SLICE_LITERAL("0"));
    int rv = properties.failed ? ERROR_NO_MEMORY : 0;
    if (rv == 0 && properties.size <= MESSAGE_PROPERTIES_MAX) /* else it goes without the number */
        record->properties = buffer_slice(&properties);
    record->topic = SLICE_LITERAL(TOPIC_TRANS_HALF);
    resume->append.done = on_appended;
    if (rv == 0)
        rv = message_append(broker, queue, record, slice_of(NULL, 0), &resume->append);
    buffer_close(&properties);
    if (rv != 0)
        refuse(resume, RESPONSE_SERVICE_NOT_AVAILABLE, message_append_remark(broker, rv));
}

static void decide(struct resume *resume, struct slice bytes)
{
    struct broker *broker = resume->broker;
    struct message_record record;
    if (message_record_decode(bytes, false, &record) != 0 || message_property(record.properties, "REAL_TOPIC").data == NULL ||
        message_property(record.properties, "PGROUP").data == NULL) {
        refuse(resume, RESPONSE_SYSTEM_ERROR, "this is no message of a transaction");
        return;
    }
    if (slice_equal_text(record.topic, TOPIC_TRANS_CHECK_MAX_TIME)) {
        append_again(resume, &record);
        return;
    }
    struct half *half = slice_equal_text(record.topic, TOPIC_TRANS_HALF) ? half_set_find(&broker->metadata->halves, record.queue_offset) : NULL;
    if (half == NULL) {
        refuse(resume, RESPONSE_SYSTEM_ERROR,
               "the transaction is settled; one that was given up is resumed by the id of its message in TRANS_CHECK_MAX_TIME_TOPIC");
        return;
    }
    int64_t offset = record.queue_offset;
    Ledgermq__MetadataRecord note = LEDGERMQ__METADATA_RECORD__INIT;
    note.n_half_resumed = 1;
    note.half_resumed = &offset;
    reply_after_record(broker, &resume->reply_to, &note, NULL, "half message");
    give(resume);
}

static void on_read(struct broker *broker, struct cold_read *read, int code)
{
    struct resume *resume = (struct resume *)(void *)((uint8_t *)read - offsetof(struct resume, read));
    if (code == ERROR_NOT_FOUND)
        refuse(resume, RESPONSE_SYSTEM_ERROR, "there is no message of this id");
    else if (code != 0)
        refuse(resume, error_response_code(code), error_text(code));
    else if (!dledger_commit_log_accepting(broker->log))
        refuse(resume, RESPONSE_SERVICE_NOT_AVAILABLE, dledger_commit_log_why_not(broker->log));
    else
        decide(resume, slice_of(read->bytes, read->size));
}

static void resume_check_half_message(struct broker *broker, struct request *request)
{
    struct resume_check_half_message_request_header header;
    struct message_host host;
    struct error error;
    int64_t offset;
    if (resume_check_half_message_request_header_decode(request->command, &header, &error) != 0) {
        reply_error(broker, &request->reply_to, &error);
        return;
    }
    struct resume *resume = resumes < RESUMES_AT_ONCE ? calloc(1, sizeof *resume) : NULL;
    if (resume == NULL) {
        reply_simple(broker, &request->reply_to, RESPONSE_SERVICE_NOT_AVAILABLE, "%s", broker_stats_refuse(broker->stats, LIMIT_HIT_RESUMED_CHECKS));
        return;
    }
    resumes++;
    resume->broker = broker;
    resume->reply_to = request->reply_to;
    uint32_t size = 0;
    if (header.msg_id.data != NULL && message_id_parse(header.msg_id, &host, &offset) && offset >= 0)
        size = message_store_record_size(&broker->store, offset);
    if (size == 0) {
        refuse(resume, RESPONSE_SYSTEM_ERROR, "there is no message of this id");
        return;
    }
    const uint8_t *bytes = cold_read_at_hand(broker, offset, size);
    if (bytes != NULL) {
        decide(resume, slice_of(bytes, size));
        return;
    }
    int rv = cold_read_start_one(broker->cold_reads, &resume->read, offset, size, on_read);
    if (rv != 0)
        refuse(resume, RESPONSE_SERVICE_NOT_AVAILABLE, message_append_remark(broker, rv));
}

const struct processor_row resume_check_rows[] = {
    {REQUEST_RESUME_CHECK_HALF_MESSAGE, "RESUME_CHECK_HALF_MESSAGE", resume_check_half_message, PROCESSOR_FORWARD},
    {0, NULL, NULL, 0},
};
