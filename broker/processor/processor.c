#include "broker/processor/processor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "broker/broker.h"
#include "broker/broker_stats.h"
#include "broker/memory_budget.h"
#include "broker/processor/processor_table.h"
#include "broker/remoting/client_call.h"
#include "broker/remoting/connection.h"
#include "broker/remoting/forward.h"
#include "broker/remoting/listener.h"
#include "proto/response_code.h"

#define CODES 1024 /* POP codes (200050...) are above: not supported */
#define REMARK_MAX 1024
#define RAW_KEEP_BYTES (64u * 1024)

struct processor_table {
    const struct processor_row *rows[CODES];
    struct buffer raw; /* on a node that does not lead: the frame as it came, since reading a JSON header changes it */
    int32_t next_opaque; /* of our own requests to clients */
};

static const struct processor_row *const all_rows[] = {
    send_message_processor_rows,    pull_message_processor_rows,  query_message_processor_rows, client_manage_processor_rows,
    consumer_manage_processor_rows, admin_broker_processor_rows, admin_topic_processor_rows,
    end_transaction_processor_rows, backup_processor_rows, resume_check_rows,
    broker2client_rows,             group_processor_rows,
};

struct processor_table *processor_table_new(struct error *error)
{
    struct processor_table *table = calloc(1, sizeof *table);
    if (table == NULL) {
        error_set(error, ERROR_NO_MEMORY, "processor table: %s", error_text(ERROR_NO_MEMORY));
        return NULL;
    }
    buffer_init(&table->raw, REMOTING_FRAME_MAX);
    for (size_t i = 0; i < sizeof all_rows / sizeof all_rows[0]; i++) {
        for (const struct processor_row *row = all_rows[i]; row->handler != NULL; row++) {
            if (row->code < 0 || row->code >= CODES || table->rows[row->code] != NULL) {
                error_set(error, ERROR_EXISTS, "request code %d (%s) has two handlers or is out of range", row->code, row->name);
                processor_table_free(table);
                return NULL;
            }
            table->rows[row->code] = row;
        }
    }
    return table;
}

void processor_table_free(struct processor_table *table)
{
    if (table == NULL)
        return;
    buffer_close(&table->raw);
    free(table);
}

const struct processor_row *processor_table_row(const struct processor_table *table, int32_t code)
{
    return code < 0 || code >= CODES ? NULL : table->rows[code];
}

static void fill_request(struct request *request, const struct remoting_command *command)
{
    request->command = command;
    request->reply_to.opaque = command->opaque;
    request->reply_to.code = command->code;
    request->reply_to.serialize_type = command->serialize_type;
    request->reply_to.oneway = remoting_is_oneway(command);
}

static void reply_not_supported(struct broker *broker, const struct request *request)
{
    reply_simple(broker, &request->reply_to, RESPONSE_REQUEST_CODE_NOT_SUPPORTED, " request type %d not supported", request->reply_to.code);
}

/* raw: the frame's copy when it may have to be handed on, else empty. */
static void run_frame(struct broker *broker, struct connection *connection, uint8_t *frame, size_t size, struct slice raw)
{
    struct remoting_command command;
    struct request request;
    int rv = remoting_command_decode(frame, size, &command);
    if (rv != 0) {
        connection_close_malformed(connection, rv == ERROR_TOO_LARGE ? "too many ext fields" : "header cannot be read");
        return;
    }
    if (remoting_is_response(&command)) {
        /* Some clients answer one-way requests (40) too: nobody waits for that. */
        (void)client_call_answered(broker->calls, connection->id, &command);
        return;
    }
    memset(&request, 0, sizeof request);
    request.reply_to.connection_id = connection->id;
    fill_request(&request, &command);
    request.connection = connection;
    request.raw_frame = raw;
    request.peer = connection->peer;
    request.local_port = connection->local_port;

    const struct processor_row *row = processor_table_row(broker->processors, command.code);
    /* The fast port serves all but pulls (BrokerController#registerProcessor). */
    bool pull = command.code == 11 || command.code == 361;
    if (row == NULL || (pull && connection->local_port == broker->config.listen_port - 2)) {
        reply_not_supported(broker, &request);
        return;
    }
    if ((row->flags & PROCESSOR_BUFFERS) != 0 && memory_budget_exceeded(broker)) {
        reply_simple(broker, &request.reply_to, RESPONSE_SERVICE_NOT_AVAILABLE, "%s", broker_stats_refuse(broker->stats, LIMIT_HIT_MEMORY));
        return;
    }
    bool unanswerable = (row->flags & PROCESSOR_QUESTION) != 0 && dledger_commit_log_in_doubt(broker->log);
    if (raw.size > 0 && (row->flags & PROCESSOR_FORWARD) != 0 && (unanswerable || !dledger_commit_log_accepting(broker->log)) &&
        forward_request(broker->forward, &request, row))
        return;
    if (unanswerable) {
        connection_close(connection); /* as without a leader: asked again, by then it shows who leads */
        return;
    }
    row->handler(broker, &request);
}

void processor_on_frame(void *context, struct connection *connection, uint8_t *frame, size_t size)
{
    struct broker *broker = context;
    struct slice raw = slice_of(NULL, 0);
    if (!dledger_commit_log_accepting(broker->log) || dledger_commit_log_in_doubt(broker->log)) {
        struct buffer *copy = &broker->processors->raw;
        if (copy->capacity > RAW_KEEP_BYTES && size <= RAW_KEEP_BYTES) {
            buffer_close(copy);
            buffer_init(copy, REMOTING_FRAME_MAX);
        }
        buffer_clear(copy);
        copy->failed = false;
        buffer_append(copy, frame, size);
        if (copy->failed) {
            connection_close(connection);
            return;
        }
        raw = buffer_slice(copy);
    }
    run_frame(broker, connection, frame, size, raw);
}

void processor_run_parked(struct broker *broker, struct connection *connection, uint8_t *frame, size_t size)
{
    run_frame(broker, connection, frame, size, slice_of(NULL, 0));
}

bool processor_run_forwarded(struct broker *broker, uint64_t forward_connection_id, const struct message_host *client, uint8_t *frame,
                             size_t size)
{
    struct remoting_command command;
    struct request request;
    if (remoting_command_decode(frame, size, &command) != 0 || remoting_is_response(&command))
        return false;
    memset(&request, 0, sizeof request);
    request.reply_to.connection_id = forward_connection_id;
    fill_request(&request, &command);
    request.peer = *client;
    request.local_port = broker->config.listen_port;
    request.forwarded = true;

    const struct processor_row *row = processor_table_row(broker->processors, command.code);
    if (request.reply_to.oneway)
        forward_reply_none(broker->forward, forward_connection_id);
    if (row == NULL || (row->flags & PROCESSOR_FORWARD) == 0) {
        reply_not_supported(broker, &request);
    } else if ((row->flags & PROCESSOR_QUESTION) != 0 &&
               (!dledger_commit_log_accepting(broker->log) || dledger_commit_log_in_doubt(broker->log))) {
        forward_reply_none(broker->forward, forward_connection_id);
    } else if (dledger_commit_log_accepting(broker->log)) {
        row->handler(broker, &request);
    } else {
        reply_simple(broker, &request.reply_to, RESPONSE_SERVICE_NOT_AVAILABLE, "%s", dledger_commit_log_why_not(broker->log));
    }
    return true;
}

/* ---- answering ---- */

bool reply_begin(struct broker *broker, const struct reply_to *to, struct remoting_writer *writer, int32_t code, const char *remark)
{
    struct buffer *out;
    if (to->oneway)
        return false;
    if ((to->connection_id & REPLY_FORWARDED) != 0) {
        out = forward_reply_buffer(broker->forward, to->connection_id);
    } else {
        struct connection *connection = remoting_server_find(broker->server, to->connection_id);
        out = connection == NULL ? NULL : connection_output(connection);
    }
    if (out == NULL)
        return false;
    remoting_writer_begin_response(writer, out, to->serialize_type, code, to->opaque, remark);
    return true;
}

void reply_end(struct broker *broker, const struct reply_to *to, struct remoting_writer *writer)
{
    remoting_writer_end(writer, 0);
    if ((to->connection_id & REPLY_FORWARDED) != 0)
        forward_reply_done(broker->forward, to->connection_id);
    else
        connection_frame_done(remoting_server_find(broker->server, to->connection_id));
}

void reply_simple(struct broker *broker, const struct reply_to *to, int32_t code, const char *format, ...)
{
    struct remoting_writer writer;
    char remark[REMARK_MAX];
    if (to->oneway)
        return;
    if (format != NULL) {
        va_list args;
        va_start(args, format);
        vsnprintf(remark, sizeof remark, format, args);
        va_end(args);
    }
    if (reply_begin(broker, to, &writer, code, format == NULL ? NULL : remark))
        reply_end(broker, to, &writer);
}

/* ---- request fields ---- */

static bool refuse_missing(struct broker *broker, struct request *request, const char *name)
{
    reply_simple(broker, &request->reply_to, RESPONSE_SYSTEM_ERROR, "field %s is missing", name);
    return false;
}

static bool refuse_wrong(struct broker *broker, struct request *request, const char *name, struct slice value, const char *what)
{
    int size = value.size > 64 ? 64 : (int)value.size;
    reply_simple(broker, &request->reply_to, RESPONSE_SYSTEM_ERROR, "field %s is no %s: %.*s", name, what, size, (const char *)value.data);
    return false;
}

bool request_text(struct broker *broker, struct request *request, const char *name, struct slice *value)
{
    *value = remoting_ext(request->command, name);
    return value->data != NULL ? true : refuse_missing(broker, request, name);
}

bool request_optional_i32(struct broker *broker, struct request *request, const char *name, int32_t *value)
{
    struct slice text = remoting_ext(request->command, name);
    return text.data == NULL || slice_to_i32(text, value) ? true : refuse_wrong(broker, request, name, text, "32-bit number");
}

bool request_optional_i64(struct broker *broker, struct request *request, const char *name, int64_t *value)
{
    struct slice text = remoting_ext(request->command, name);
    return text.data == NULL || slice_to_i64(text, value) ? true : refuse_wrong(broker, request, name, text, "number");
}

bool request_optional_bool(struct broker *broker, struct request *request, const char *name, bool *value)
{
    struct slice text = remoting_ext(request->command, name);
    return text.data == NULL || slice_to_bool(text, value) ? true : refuse_wrong(broker, request, name, text, "boolean");
}

bool request_i32(struct broker *broker, struct request *request, const char *name, int32_t *value)
{
    if (remoting_ext(request->command, name).data == NULL)
        return refuse_missing(broker, request, name);
    return request_optional_i32(broker, request, name, value);
}

bool request_i64(struct broker *broker, struct request *request, const char *name, int64_t *value)
{
    if (remoting_ext(request->command, name).data == NULL)
        return refuse_missing(broker, request, name);
    return request_optional_i64(broker, request, name, value);
}

/* ---- our own requests to clients ---- */

bool push_begin(struct broker *broker, uint64_t connection_id, struct remoting_writer *writer, int32_t code)
{
    struct connection *connection = remoting_server_find(broker->server, connection_id);
    struct buffer *out = connection == NULL ? NULL : connection_output(connection);
    if (out == NULL)
        return false;
    /* JSON: the one form that every client reads. */
    remoting_writer_begin_request(writer, out, REMOTING_JSON, code, broker->processors->next_opaque++, REMOTING_FLAG_ONEWAY);
    return true;
}

void push_end(struct broker *broker, uint64_t connection_id, struct remoting_writer *writer)
{
    remoting_writer_end(writer, 0);
    connection_frame_done(remoting_server_find(broker->server, connection_id));
}
