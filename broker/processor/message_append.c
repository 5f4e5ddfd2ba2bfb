#include "broker/processor/message_append.h"

#include <assert.h>

#include "broker/broker.h"
#include "broker/broker_stats.h"
#include "store/seeded_bug.h"

int message_append(struct broker *broker, struct consume_queue *queue, struct message_record *record, struct slice trailer,
                   struct append_entry_request *request)
{
    int code = 0;
    record->store_host = broker->store_host;
    size_t size = message_record_size(record);
    uint8_t *body = dledger_commit_log_reserve(broker->log, size + trailer.size, &record->physical_offset, &code);
    if (body == NULL) {
        if (code == ERROR_BUSY)
            code = broker_stats_busy(broker->stats, LIMIT_HIT_LOG_BUSY);
        return code;
    }
    record->queue_id = queue->queue_id;
    record->queue_offset = queue->append_offset;
    record->store_timestamp_ms = env_now_ms(&broker->env);
    size_t written = message_record_encode(record, slice_of(NULL, 0), body);
    assert(written == size);
    if (trailer.size > 0)
        memcpy(body + size, trailer.data, trailer.size);
    dledger_commit_log_append(broker->log, LEDGER_ENTRY_MESSAGE, request);
    /* Taken only now: a refused append leaves no hole. */
    if (!SEEDED_BUG_NOW(QUEUE_REUSE, 20))
        queue->append_offset++;
    if (SEEDED_BUG_NOW(QUEUE_SHIFT, 20))
        queue->append_offset++;
    return 0;
}

const char *message_append_remark(struct broker *broker, int code)
{
    switch (code) {
    case ERROR_NOT_LEADER:
    case ERROR_NO_LEADER:
    case ERROR_NO_SPACE:
    case ERROR_IO:
        return dledger_commit_log_why_not(broker->log);
    case ERROR_BUSY:
        return broker_stats_busy_remark(broker->stats);
    case ERROR_QUORUM_TIMEOUT:
        return "the quorum did not answer in time, outcome unknown";
    case ERROR_LEADERSHIP_LOST:
        return "leadership lost, outcome unknown";
    case ERROR_STOPPED:
        return "this broker stops, outcome unknown";
    default:
        return error_text(code);
    }
}
