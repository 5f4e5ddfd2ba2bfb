/* Each transactionCheckInterval the leader walks over the halves that are not settled, oldest first. For one that is old enough:
 *  1. Its record is read (by the pool when old).
 *  2. Checked often enough, or older than fileReservedTime: it goes to TRANS_CHECK_MAX_TIME_TOPIC, by an entry that settles it.
 *  3. Else, if a producer of its group is connected: one more check is noted in the log, and when that is applied the producer is asked (39).
 *
 * Only checks that are sent count, and they are counted before they are sent, so that no failover makes them more than transactionCheckMax.
 */
#include "broker/service/transaction.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "broker/broker.h"
#include "broker/log.h"
#include "broker/metadata/metadata.h"
#include "broker/metadata/topic_config.h"
#include "broker/processor/cold_read.h"
#include "broker/processor/message_append.h"
#include "broker/processor/processor.h"
#include "broker/remoting/client_registry.h"
#include "broker/service/leadership.h"
#include "proto/request_code.h"
#include "proto/topic_validator.h"

#define LOOKS_PER_TURN 4096
#define ROUND_MS_MIN 100
#define HOUR_MS 3600000ll

struct check_job {
    struct append_entry_request append; /* first */
    struct cold_read read;
    struct transaction *transaction;
    struct check_job *next_free;
    uint64_t epoch;
    int64_t offset; /* of the half queue */
    bool counted;
    bool topic_asked;
};

struct transaction {
    struct broker *broker;
    struct end_transactions *ends;
    uv_timer_t timer;
    struct leadership leadership;
    bool in_round;
    int64_t cursor, round_end; /* half-queue offsets */
    uint64_t round_started_ms; /* loop time */
    struct check_job *jobs;    /* LIMIT_CHECKS_IN_FLIGHT, made with the first */
    struct check_job *free_jobs;
    struct log_limiter limiter;
    bool closed;
};

/* ---- small parts ---- */

bool transaction_check_due(int64_t now_ms, int64_t store_ms, int32_t immunity_s, int64_t time_out_ms)
{
    int64_t immunity_ms = immunity_s >= 0 ? immunity_s * 1000ll : time_out_ms;
    int64_t age_ms = now_ms - store_ms;
    return age_ms > immunity_ms || age_ms < -immunity_ms;
}

bool transaction_takes_half(const struct broker *broker, const struct consume_queue *queue)
{
    uint64_t coming = (uint64_t)(queue->append_offset - queue->max_offset);
    return broker->metadata->halves.unsettled + coming < LIMIT_UNSETTLED_HALVES;
}

size_t transaction_trailer(int64_t half_offset, bool rolled_back, uint8_t out[TRANSACTION_TRAILER_MAX])
{
    Ledgermq__Consumed consumed = LEDGERMQ__CONSUMED__INIT;
    consumed.has_half = true;
    consumed.half_offset = half_offset;
    consumed.rolled_back = rolled_back;
    assert(ledgermq__consumed__get_packed_size(&consumed) <= TRANSACTION_TRAILER_MAX);
    return ledgermq__consumed__pack(&consumed, out);
}

int transaction_append_mark(struct broker *broker, int64_t half_offset, struct slice trailer, struct append_entry_request *request)
{
    struct consume_queue *queue = message_store_queue(&broker->store, SLICE_LITERAL(TOPIC_TRANS_OP_HALF), 0, true, NULL);
    if (queue == NULL)
        return ERROR_NO_SPACE;
    struct dledger_state state;
    dledger_commit_log_state(broker->log, &state);
    char body[24], key[33], properties[80];
    int body_size = snprintf(body, sizeof body, "%lld", (long long)half_offset);
    const uint8_t *address = broker->store_host.address;
    snprintf(key, sizeof key, "%02X%02X%02X%02X%04X%04X%016llX", address[0], address[1], address[2], address[3],
             (unsigned)broker->store_host.port & 0xffff, (unsigned)(state.term & 0xffff), (unsigned long long)half_offset);
    int properties_size = snprintf(properties, sizeof properties, "TAGS%cd%cUNIQ_KEY%c%s", MESSAGE_PROPERTY_NAME_SEPARATOR,
                                   MESSAGE_PROPERTY_SEPARATOR, MESSAGE_PROPERTY_NAME_SEPARATOR, key);
    struct message_record record = {
        .born_timestamp_ms = env_now_ms(&broker->env),
        .born_host = broker->store_host,
        .body = slice_of(body, (size_t)body_size),
        .topic = SLICE_LITERAL(TOPIC_TRANS_OP_HALF),
        .properties = slice_of(properties, (size_t)properties_size),
    };
    return message_append(broker, queue, &record, trailer, request);
}

void transaction_append_failed(struct broker *broker, const struct append_entry_request *append, int64_t half_offset)
{
    struct dledger_state state;
    struct half *half = half_set_find(&broker->metadata->halves, half_offset);
    dledger_commit_log_state(broker->log, &state);
    /* Only a refusal says for certain that it is not in the log and never will be. */
    if (half != NULL && append->code == ERROR_NO_SPACE && state.last_index < (int64_t)append->index)
        half->settling = false;
}

struct end_transactions *transaction_ends(struct transaction *transaction)
{
    return transaction->ends;
}

/* ---- jobs ---- */

static struct check_job *take_job(struct transaction *transaction)
{
    if (transaction->jobs == NULL) {
        transaction->jobs = calloc(LIMIT_CHECKS_IN_FLIGHT, sizeof *transaction->jobs);
        if (transaction->jobs == NULL)
            return NULL;
        for (uint32_t i = 0; i < LIMIT_CHECKS_IN_FLIGHT; i++) {
            transaction->jobs[i].next_free = transaction->free_jobs;
            transaction->free_jobs = &transaction->jobs[i];
        }
    }
    struct check_job *job = transaction->free_jobs;
    if (job == NULL)
        return NULL;
    transaction->free_jobs = job->next_free;
    memset(job, 0, sizeof *job);
    job->transaction = transaction;
    job->epoch = transaction->leadership.epoch;
    return job;
}

static void on_timer(uv_timer_t *timer);

static void end_job(struct check_job *job)
{
    struct transaction *transaction = job->transaction;
    bool was_full = transaction->free_jobs == NULL;
    cold_read_free(&job->read);
    job->next_free = transaction->free_jobs;
    transaction->free_jobs = job;
    if (was_full && transaction->in_round && !transaction->closed)
        uv_timer_start(&transaction->timer, on_timer, 0, 0);
}

static void step(struct check_job *job);

static void on_appended(struct append_entry_request *append)
{
    struct check_job *job = (struct check_job *)append;
    if (append->code != 0)
        transaction_append_failed(job->transaction->broker, append, job->offset);
    end_job(job);
}

static void on_noted(struct broker *broker, void *context, int code)
{
    struct check_job *job = context;
    (void)broker;
    job->counted = true;
    if (code == 0)
        step(job);
    else
        end_job(job);
}

static void on_dropped(struct broker *broker, void *context, int code)
{
    (void)broker;
    (void)code;
    end_job(context);
}

static void on_topic_ready(struct broker *broker, void *context, int code)
{
    (void)broker;
    if (code == 0)
        step(context);
    else
        end_job(context);
}

static void on_read(struct broker *broker, struct cold_read *read, int code);

/* Settles a half whose record cannot be used. */
static void drop(struct check_job *job, const char *why)
{
    Ledgermq__MetadataRecord record = LEDGERMQ__METADATA_RECORD__INIT;
    record.n_half_dropped = 1;
    record.half_dropped = &job->offset;
    if (metadata_submit(job->transaction->broker, &record, on_dropped, job) != 0) {
        end_job(job);
        return;
    }
    LOG_WARN("half message at offset %lld is given up: %s", (long long)job->offset, why);
}

/* The record as its own topic's, with the number of checks. properties: to be closed by the caller. */
static bool restore_record(struct message_record *record, uint32_t checks, struct buffer *properties)
{
    static const char *const replaced[] = {"TRANSACTION_CHECK_TIMES", NULL};
    char text[12];
    int size = snprintf(text, sizeof text, "%u", checks);
    message_properties_copy(properties, 0, record->properties, replaced);
    message_property_append(properties, 0, SLICE_LITERAL("TRANSACTION_CHECK_TIMES"), slice_of(text, (size_t)size));
    if (properties->failed)
        return false;
    if (properties->size <= MESSAGE_PROPERTIES_MAX) /* else it goes without the number */
        record->properties = buffer_slice(properties);
    return true;
}

static void give_up(struct check_job *job, struct half *half, struct message_record *record)
{
    struct broker *broker = job->transaction->broker;
    struct slice name = SLICE_LITERAL(TOPIC_TRANS_CHECK_MAX_TIME);
    struct topic_entry *topic = topic_config_find(broker->topics, name);
    if (topic == NULL) {
        int rv = job->topic_asked ? ERROR_BUSY
                                  : topic_config_create_in_send_back(broker, name, 1, PERM_READ | PERM_WRITE, 0, on_topic_ready, job);
        job->topic_asked = true;
        if (rv != 0)
            end_job(job);
        return;
    }
    struct consume_queue *queue = topic->deleting ? NULL : topic_config_queue(topic, &broker->store, 0);
    struct buffer properties;
    buffer_init(&properties, 0);
    if (queue == NULL || !restore_record(record, half->checks, &properties)) {
        buffer_close(&properties);
        end_job(job);
        return;
    }
    uint8_t trailer[TRANSACTION_TRAILER_MAX];
    size_t trailer_size = transaction_trailer(job->offset, true, trailer);
    record->topic = topic->config.name;
    job->append.done = on_appended;
    int rv = message_append(broker, queue, record, slice_of(trailer, trailer_size), &job->append);
    buffer_close(&properties);
    if (rv != 0) {
        end_job(job);
        return;
    }
    half->settling = true;
    uint64_t left_out;
    if (log_limiter_pass(&job->transaction->limiter, (int64_t)uv_now(broker->loop), &left_out))
        LOG_WARN("half message at offset %lld is given up after %u checks and goes to %s; %llu more like it", (long long)job->offset,
                 half->checks, TOPIC_TRANS_CHECK_MAX_TIME, (unsigned long long)left_out);
}

/* ---- asking the producer ---- */

static bool push_check(struct broker *broker, uint64_t connection_id, struct message_record *record)
{
    struct remoting_writer writer;
    char id[MESSAGE_ID_TEXT_MAX];
    if (!push_begin(broker, connection_id, &writer, REQUEST_CHECK_TRANSACTION_STATE))
        return false;
    struct slice key = message_property(record->properties, "UNIQ_KEY");
    remoting_writer_ext_i64(&writer, "tranStateTableOffset", record->queue_offset);
    remoting_writer_ext_i64(&writer, "commitLogOffset", record->physical_offset);
    if (key.data != NULL) {
        remoting_writer_ext(&writer, "msgId", key);
        remoting_writer_ext(&writer, "transactionId", key);
    }
    remoting_writer_ext(&writer, "offsetMsgId", slice_of(id, message_id_format(&record->store_host, record->physical_offset, id)));
    remoting_writer_body(&writer);
    /* As it was sent: topic and queue are those the application named, the body stays compressed and its flag says so. */
    size_t size = message_record_size(record);
    uint8_t *out = buffer_reserve(writer.out, size);
    if (out != NULL)
        writer.out->size += message_record_encode(record, slice_of(NULL, 0), out);
    push_end(broker, connection_id, &writer);
    return true;
}

static struct client_group *producers_of(struct broker *broker, const struct message_record *record)
{
    struct slice name = message_property(record->properties, "PGROUP");
    struct client_group *group = name.data == NULL ? NULL : client_registry_producer_group(broker->clients, name);
    return group == NULL || group->channel_count == 0 ? NULL : group;
}

/* One check goes to one producer, the next to another: a connection may be dead without our knowing. */
static void ask(struct check_job *job, const struct half *half, struct message_record *record)
{
    struct broker *broker = job->transaction->broker;
    struct client_group *group = producers_of(broker, record);
    int32_t queue_id;
    struct buffer properties;
    buffer_init(&properties, 0);
    if (group != NULL && slice_to_i32(message_property(record->properties, "REAL_QID"), &queue_id) &&
        restore_record(record, half->checks, &properties)) {
        record->topic = message_property(record->properties, "REAL_TOPIC");
        record->queue_id = queue_id;
        uint64_t turn = (uint64_t)job->offset + half->checks;
        uint32_t skip = (uint32_t)(turn % group->channel_count);
        struct client_channel *channel = group->channels;
        for (uint32_t i = 0; i < skip && channel->group_next != NULL; i++)
            channel = channel->group_next;
        for (uint32_t tries = group->channel_count; tries > 0 && !push_check(broker, channel->connection_id, record); tries--)
            channel = channel->group_next == NULL ? group->channels : channel->group_next;
    }
    buffer_close(&properties);
}

/* ---- one half ---- */

static void check_record(struct check_job *job, struct half *half, struct slice bytes)
{
    struct broker *broker = job->transaction->broker;
    struct message_record record;
    if (message_record_decode(bytes, false, &record) != 0 || record.queue_offset != job->offset ||
        message_property(record.properties, "REAL_TOPIC").data == NULL) {
        drop(job, "its record cannot be read");
        return;
    }
    if (topic_config_destination(broker, message_property(record.properties, "REAL_TOPIC"), record.physical_offset) == NULL) {
        drop(job, "its topic is gone");
        return;
    }
    if (job->counted) {
        ask(job, half, &record);
        end_job(job);
        return;
    }
    int64_t age_ms = env_now_ms(&broker->env) - half->store_ms;
    if (half->checks >= broker->config.transaction_check_max || age_ms > broker->config.file_reserved_time * HOUR_MS) {
        give_up(job, half, &record);
        return;
    }
    if (producers_of(broker, &record) == NULL) {
        end_job(job);
        return;
    }
    Ledgermq__MetadataRecord note = LEDGERMQ__METADATA_RECORD__INIT;
    note.n_half_checks = 1;
    note.half_checks = &job->offset;
    if (metadata_submit(broker, &note, on_noted, job) != 0)
        end_job(job);
}

/* Runs from the start after each wait: the half may be settled meanwhile. */
static void step(struct check_job *job)
{
    struct transaction *transaction = job->transaction;
    struct broker *broker = transaction->broker;
    struct half *half = half_set_find(&broker->metadata->halves, job->offset);
    if (!leadership_lasts(&transaction->leadership, job->epoch) || half == NULL || half->settling) {
        end_job(job);
        return;
    }
    struct consume_queue *queue = message_store_queue(&broker->store, SLICE_LITERAL(TOPIC_TRANS_HALF), 0, false, NULL);
    struct consume_queue_unit unit;
    if (job->read.bytes != NULL) {
        if (queue == NULL || !message_store_unit_is_of(&broker->store, queue, job->offset, slice_of(job->read.bytes, job->read.size))) {
            end_job(job);
            return;
        }
        check_record(job, half, slice_of(job->read.bytes, job->read.size));
        return;
    }
    if (queue == NULL || job->offset < queue->min_offset) {
        drop(job, "it is no longer retained");
        return;
    }
    /* A unit that may say anything is compared with its record when that has been read. */
    bool cold = consume_queue_get(queue, job->offset, &unit) && unit.size > 0 && cold_read_needed(broker, unit.physical_offset);
    if (!cold && !message_store_unit(&broker->store, queue, job->offset, &unit)) { /* it is made again */
        end_job(job);
        return;
    }
    const uint8_t *bytes = cold_read_at_hand(broker, unit.physical_offset, (size_t)unit.size);
    if (bytes != NULL) {
        check_record(job, half, slice_of(bytes, (size_t)unit.size));
        return;
    }
    if (cold_read_start_one(broker->cold_reads, &job->read, unit.physical_offset, (uint32_t)unit.size, on_read) != 0)
        end_job(job);
}

/* Where a damaged unit points there may be nothing. Says so when it is one. */
static bool is_believed(struct check_job *job)
{
    struct message_store *store = &job->transaction->broker->store;
    struct consume_queue *queue = message_store_queue(store, SLICE_LITERAL(TOPIC_TRANS_HALF), 0, false, NULL);
    struct consume_queue_unit unit;
    return queue == NULL || job->offset < queue->min_offset || consume_queue_trusts(queue, job->offset) || message_store_unit(store, queue, job->offset, &unit);
}

static void on_read(struct broker *broker, struct cold_read *read, int code)
{
    struct check_job *job = (struct check_job *)(void *)((uint8_t *)read - offsetof(struct check_job, read));
    (void)broker;
    if (code == 0)
        step(job);
    else if ((code == ERROR_NOT_FOUND || code == ERROR_DAMAGED) && leadership_lasts(&job->transaction->leadership, job->epoch) && is_believed(job) && code == ERROR_NOT_FOUND)
        drop(job, "it is no longer retained");
    else
        end_job(job);
}

/* ---- rounds ---- */

static void run(struct transaction *transaction)
{
    struct broker *broker = transaction->broker;
    struct half_set *halves = &broker->metadata->halves;
    int64_t now_ms = env_now_ms(&broker->env);
    if (!transaction->leadership.leading || transaction->closed)
        return;
    if (!transaction->in_round) {
        transaction->in_round = true;
        transaction->round_started_ms = uv_now(broker->loop);
        transaction->cursor = 0;
        transaction->round_end = halves->next;
    }
    for (int looks = 0; dledger_commit_log_accepting(broker->log); looks++) {
        struct half *half = half_set_from(halves, transaction->cursor);
        if (half == NULL || half->offset >= transaction->round_end)
            break;
        if (looks == LOOKS_PER_TURN) {
            uv_timer_start(&transaction->timer, on_timer, 1, 0);
            return;
        }
        transaction->cursor = half->offset + 1;
        if (half->settling || !transaction_check_due(now_ms, half->store_ms, half->immunity_s, broker->config.transaction_time_out))
            continue;
        struct check_job *job = take_job(transaction);
        if (job == NULL) {
            transaction->cursor = half->offset;
            if (transaction->jobs != NULL) /* goes on when one ends */
                return;
            break;
        }
        job->offset = half->offset;
        step(job);
    }
    transaction->in_round = false;
    uint64_t interval_ms = (uint64_t)broker->config.transaction_check_interval;
    uint64_t spent_ms = uv_now(broker->loop) - transaction->round_started_ms;
    if (interval_ms < ROUND_MS_MIN)
        interval_ms = ROUND_MS_MIN;
    uv_timer_start(&transaction->timer, on_timer, spent_ms >= interval_ms ? ROUND_MS_MIN : interval_ms - spent_ms, 0);
}

static void on_timer(uv_timer_t *timer)
{
    run(timer->data);
}

void transaction_role_changed(struct transaction *transaction)
{
    struct broker *broker = transaction->broker;
    /* Halves whose decisions were lost with what was gathered are free again. */
    if (transaction->closed || !leadership_changed(&transaction->leadership, broker->log))
        return;
    transaction->in_round = false;
    uv_timer_stop(&transaction->timer);
    if (!transaction->leadership.leading)
        return;
    half_set_forget_settling(&broker->metadata->halves);
    uv_timer_start(&transaction->timer, on_timer, (uint64_t)broker->config.transaction_check_interval, 0);
}

/* ---- life ---- */

struct transaction *transaction_new(struct broker *broker, struct error *error)
{
    struct transaction *transaction = calloc(1, sizeof *transaction);
    struct end_transactions *ends = end_transactions_new();
    if (transaction == NULL || ends == NULL) {
        free(transaction);
        end_transactions_free(ends);
        error_set(error, ERROR_NO_MEMORY, "transactions: %s", error_text(ERROR_NO_MEMORY));
        return NULL;
    }
    transaction->broker = broker;
    transaction->ends = ends;
    uv_timer_init(broker->loop, &transaction->timer);
    transaction->timer.data = transaction;
    uv_unref((uv_handle_t *)&transaction->timer);
    return transaction;
}

void transaction_close(struct transaction *transaction)
{
    if (transaction->closed)
        return;
    transaction->closed = true;
    leadership_end(&transaction->leadership);
    uv_close((uv_handle_t *)&transaction->timer, NULL);
}

void transaction_free(struct transaction *transaction)
{
    if (transaction == NULL)
        return;
    assert(transaction->closed);
    end_transactions_free(transaction->ends);
    free(transaction->jobs);
    free(transaction);
}
