/* QUERY_MESSAGE 12 (by key) and VIEW_MESSAGE_BY_ID 33 (by physical offset).
 *
 * Follows org.apache.rocketmq.broker.processor.QueryMessageProcessor 4.9.8. Recent records are copied from the mapping; when one is so old that its pages
 * may be gone, all of the answer is read on the pool. A physical offset means the same on every node, so any node answers.
 */
#include <assert.h>
#include <stdlib.h>

#include "broker/broker.h"
#include "broker/processor/cold_read.h"
#include "broker/processor/processor.h"
#include "broker/processor/reply.h"
#include "proto/headers.h"
#include "proto/request_code.h"
#include "proto/response_code.h"

/* Records of one answer: a client shows them one by one, and the frame must stay far below 16 MiB. One record always fits. */
#define QUERY_BYTES_MAX (4u * 1024 * 1024)

struct record_query {
    struct cold_read read; /* its items are what the answer holds, pool or not */
    struct reply_to reply_to;
    bool by_key;
    int64_t offset; /* asked for, 33 */
    struct query_message_response_header header; /* 12 */
};

static bool begin(struct broker *broker, const struct record_query *query, struct remoting_writer *writer, bool found)
{
    char remark[96];
    const char *text = NULL;
    int32_t code = RESPONSE_SUCCESS;
    if (!found && query->by_key) {
        code = RESPONSE_QUERY_NOT_FOUND;
        text = "can not find message, maybe time range not correct";
    } else if (!found) {
        code = RESPONSE_SYSTEM_ERROR;
        snprintf(remark, sizeof remark, "can not find message by the offset, %lld", (long long)query->offset);
        text = remark;
    }
    if (!reply_begin(broker, &query->reply_to, writer, code, text))
        return false;
    if (query->by_key)
        query_message_response_header_encode(&query->header, writer);
    remoting_writer_body(writer); /* ends the header while the remark is alive */
    return true;
}

static void answer_not_found(struct broker *broker, const struct record_query *query)
{
    struct remoting_writer writer;
    if (begin(broker, query, &writer, false))
        reply_end(broker, &query->reply_to, &writer);
}

static void cold_done(struct broker *broker, struct cold_read *read, int code)
{
    struct record_query *query = (struct record_query *)(void *)((char *)read - offsetof(struct record_query, read));
    struct remoting_writer writer;
    if (code == ERROR_NOT_FOUND) {
        answer_not_found(broker, query);
    } else if (code != 0) {
        reply_simple(broker, &query->reply_to, error_response_code(code), "%s", error_text(code));
    } else if (begin(broker, query, &writer, true)) {
        buffer_append(writer.out, read->bytes, read->size);
        reply_end(broker, &query->reply_to, &writer);
    }
    cold_read_free(read);
    free(query);
}

/* Copies what is still retained. */
static void answer_hot(struct broker *broker, const struct record_query *query)
{
    struct remoting_writer writer;
    uint32_t found = 0;
    for (uint32_t i = 0; i < query->read.count; i++) {
        struct mapped_file *pinned;
        const uint8_t *bytes = dledger_commit_log_pin(broker->log, query->read.items[i].physical_offset, query->read.items[i].size, &pinned);
        if (bytes == NULL)
            continue;
        if (found++ > 0 || begin(broker, query, &writer, true))
            buffer_append(writer.out, bytes, query->read.items[i].size);
        else
            found = UINT32_MAX; /* the client is gone */
        dledger_commit_log_unpin(broker->log, pinned);
        if (found == UINT32_MAX)
            return;
    }
    if (found == 0)
        answer_not_found(broker, query);
    else
        reply_end(broker, &query->reply_to, &writer);
}

static void answer(struct broker *broker, struct record_query *query)
{
    bool cold = false;
    for (uint32_t i = 0; i < query->read.count; i++)
        cold = cold || cold_read_needed(broker, query->read.items[i].physical_offset);
    if (query->read.count == 0) {
        answer_not_found(broker, query);
    } else if (!cold) {
        answer_hot(broker, query);
    } else {
        struct record_query *kept = malloc(sizeof *kept);
        int rv = ERROR_NO_MEMORY;
        if (kept != NULL) {
            *kept = *query;
            kept->read.kind = COLD_READ_QUERY;
            kept->read.done = cold_done;
            rv = cold_read_start(broker->cold_reads, &kept->read);
        }
        if (rv == 0)
            return;
        free(kept);
        reply_not_now(broker, &query->reply_to, rv);
    }
}

static void add(struct record_query *query, int64_t physical_offset, uint32_t size, uint64_t *total)
{
    uint32_t count = query->read.count;
    if (size == 0 || count == GET_MESSAGE_BATCH_MAX || (count > 0 && *total + size > QUERY_BYTES_MAX))
        return;
    query->read.items[count].physical_offset = physical_offset;
    query->read.items[count].size = size;
    query->read.count++;
    *total += size;
}

static void query_message(struct broker *broker, struct request *request)
{
    struct query_message_request_header header;
    struct error error;
    if (query_message_request_header_decode(request->command, &header, &error) != 0) {
        reply_error(broker, &request->reply_to, &error);
        return;
    }
    int32_t limit = broker->config.max_msgs_num_batch < GET_MESSAGE_BATCH_MAX ? broker->config.max_msgs_num_batch : GET_MESSAGE_BATCH_MAX;
    int32_t max = header.unique_key ? broker->config.default_query_max_num : header.max_num;
    if (max > limit)
        max = limit;
    struct record_query query = {.reply_to = request->reply_to, .by_key = true};
    int64_t offsets[GET_MESSAGE_BATCH_MAX];
    uint64_t total = 0;
    uint32_t count = message_store_query(&broker->store, header.topic, header.key, max < 0 ? 0 : (uint32_t)max, header.begin_timestamp_ms,
                                         header.end_timestamp_ms, offsets, &query.header.index_last_update_timestamp_ms,
                                         &query.header.index_last_update_physical_offset);
    assert(count <= GET_MESSAGE_BATCH_MAX);
    for (uint32_t i = 0; i < count; i++)
        add(&query, offsets[i], message_store_record_size(&broker->store, offsets[i]), &total);
    answer(broker, &query);
}

static void view_message(struct broker *broker, struct request *request)
{
    struct view_message_request_header header;
    struct error error;
    if (view_message_request_header_decode(request->command, &header, &error) != 0) {
        reply_error(broker, &request->reply_to, &error);
        return;
    }
    struct record_query query = {.reply_to = request->reply_to, .offset = header.offset};
    uint64_t total = 0;
    if (header.offset >= 0)
        add(&query, header.offset, message_store_record_size(&broker->store, header.offset), &total);
    answer(broker, &query);
}

const struct processor_row query_message_processor_rows[] = {
    {REQUEST_QUERY_MESSAGE, "QUERY_MESSAGE", query_message, PROCESSOR_BUFFERS},
    {REQUEST_VIEW_MESSAGE_BY_ID, "VIEW_MESSAGE_BY_ID", view_message, PROCESSOR_BUFFERS},
    {0, NULL, NULL, 0},
};
