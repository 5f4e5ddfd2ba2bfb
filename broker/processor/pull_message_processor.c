/* A pull (11, and 361 of 5.x):
 *  1. Checks in RocketMQ's order (store.md 5.2); the filter comes from the request or from the group's heart-beat.
 *  2. message_store_get_message says which records, or which status. Where it would wait for the disk, the pool reads what it looks at first.
 *  3. Found: recent records go out by reference to the mapped segment (small ones are copied, an iovec costs more), older ones are read
 *     by the pool first, so that no cold page stalls the loop.
 *  4. Nothing new: held (pull_hold) until a message that passes the filter is applied, or the deadline; then it runs once more, answered
 *     whatever it finds.
 *
 * Tags are looked up in the queue's units; an SQL92 expression needs the records' properties, and clients do not look at them again.
 *
 * Any node serves reads. A follower must not call a leader's offset illegal, for it may lag or have trimmed more: what is beyond its own maximum is "nothing
 * new" there, what is below its minimum is 20 with the same offset, never 21. With slaveReadEnable those that read far behind are pointed at a follower.
 *
 * Follows org.apache.rocketmq.broker.processor.PullMessageProcessor 4.9.8.
 */
#include <stdio.h>
#include <stdlib.h>

#include "broker/broker.h"
#include "broker/broker_stats.h"
#include "broker/broker_stats_manager.h"
#include "broker/limits.h"
#include "broker/log.h"
#include "broker/metadata/consumer_offset.h"
#include "broker/metadata/subscription_group.h"
#include "broker/metadata/topic_config.h"
#include "broker/processor/cold_read.h"
#include "broker/processor/message_append.h"
#include "broker/processor/pull_hold.h"
#include "broker/processor/reply.h"
#include "broker/processor/send_message_processor.h"
#include "broker/processor/sql_program.h"
#include "broker/remoting/client_registry.h"
#include "broker/remoting/connection.h"
#include "broker/remoting/listener.h"
#include "proto/headers.h"
#include "proto/offset_moved_event.h"
#include "proto/response_code.h"
#include "proto/topic_validator.h"

enum pull_sys_flag {
    PULL_COMMIT_OFFSET = 1,
    PULL_SUSPEND = 2,
    PULL_SUBSCRIPTION = 4,
};

#define OFFSET_MOVED_EVENTS_PER_SECOND 100

struct pull_filter {
    bool all;
    uint32_t count;
    const int32_t *codes;
    struct sql_program *program; /* decides alone when it is there */
};

struct pull {
    struct reply_to reply_to;
    struct message_host peer;
    uint64_t started_us;
    struct pull_message_request_header header;
    bool first; /* may be held and commits its offset */
    bool units_ahead;       /* the units it looks at were brought into memory */
    uint32_t records_ahead; /* and so many records, for an SQL92 expression */
    int64_t broker_id, slow_broker_id; /* of the group: where to read, and where when it is far behind */
    int64_t suggested_id; /* what the answer says */
    struct sql_program *program; /* of the request's own expression, once it was held with it; borrowed */
};

/* A pull that waits. Its slices and codes stand behind it. */
struct held_pull {
    struct broker *broker;
    struct pull pull;
    struct pull_filter filter; /* owns its program */
    bool beyond; /* asked for what is behind this node's maximum */
    _Alignas(int32_t) uint8_t bytes[];
};

struct cold_pull {
    struct cold_read read; /* first */
    struct reply_to reply_to;
    uint64_t started_us;
    int64_t suggested_id;
    struct stats_item *queue_stats; /* STATS_GROUP_QUEUE; held */
    struct get_message_result result;
    int32_t queue_id;
    int64_t queue_offset; /* that was asked for */
    struct slice topic;   /* the bytes behind */
    uint8_t bytes[];
};

static bool tags_match(void *context, int64_t tags_code)
{
    const struct pull_filter *filter = context;
    if (filter->all)
        return true;
    for (uint32_t i = 0; i < filter->count; i++) {
        if (filter->codes[i] == (int32_t)tags_code)
            return true;
    }
    return false;
}

static bool record_match(void *context, struct slice record)
{
    const struct pull_filter *filter = context;
    struct message_dispatch dispatch;
    return message_dispatch_decode(record, &dispatch) == 0 && sql92_match(filter->program->code, dispatch.properties);
}

static struct pull_filter tag_filter_of(const struct subscription_data *data)
{
    bool all = data->class_filter_mode || data->sub_string.size == 0 || slice_equal_text(data->sub_string, SUBSCRIPTION_ALL);
    return (struct pull_filter){.all = all, .count = (uint32_t)data->code_count, .codes = data->codes};
}

/* ---- answers ---- */

/* The four fields that clients unbox without a test. */
static bool begin_answer(struct broker *broker, const struct reply_to *to, struct remoting_writer *writer, int32_t code,
                         const struct get_message_result *result, int64_t next_offset, int64_t suggested_id)
{
    if (!reply_begin(broker, to, writer, code, get_message_status_name(result->status)))
        return false;
    remoting_writer_ext_i64(writer, "suggestWhichBrokerId", suggested_id);
    remoting_writer_ext_i64(writer, "nextBeginOffset", next_offset);
    remoting_writer_ext_i64(writer, "minOffset", result->min_offset);
    remoting_writer_ext_i64(writer, "maxOffset", result->max_offset);
    return true;
}

static void answer_empty(struct broker *broker, const struct reply_to *to, int32_t code, const struct get_message_result *result,
                         int64_t next_offset, int64_t suggested_id)
{
    struct remoting_writer writer;
    if (begin_answer(broker, to, &writer, code, result, next_offset, suggested_id))
        reply_end(broker, to, &writer);
}

/* A follower that is there and has the log; -1 = any. 0: none. */
static int64_t follower_id(const struct dledger_state *state, int64_t wanted)
{
    for (int i = 0; i < state->member_count; i++) {
        const struct dledger_member *member = &state->members[i];
        int64_t id = strtoll(member->id + 1, NULL, 10) + 1;
        if (!member->self && member->connected && member->match_index != UINT64_MAX && member->broker_address[0] != 0 && (wanted < 0 || wanted == id))
            return id;
    }
    return 0;
}

/* PullMessageProcessor's choice, with ids that the route has: a client that is given another one asks the leader for ever. Java's group default for slow
 * readers is 1, and here 1 may be the leader, or away. */
static int64_t suggest_broker(struct broker *broker, const struct pull *pull, const struct get_message_result *result)
{
    const struct log_view *log = &broker->store.log;
    if (!broker->config.slave_read_enable)
        return 0;
    bool slow = result->last_physical_offset > 0 &&
                log->committed_offset(log->context) - result->last_physical_offset > broker->config.message_memory_bytes;
    int64_t wanted = slow ? pull->slow_broker_id : pull->broker_id;
    if (wanted == 0)
        return 0;
    struct dledger_state state;
    dledger_commit_log_state(broker->log, &state);
    if (state.role != DLEDGER_LEADER) /* knows of no other one that it has the log */
        return slow || wanted == broker->config.slave_id ? broker->config.slave_id : 0;
    int64_t id = follower_id(&state, wanted);
    return id == 0 && slow ? follower_id(&state, -1) : id;
}

/* queue_stats: NULL when nothing was found. */
static void count_get(struct broker *broker, const struct get_message_result *result, struct stats_item *queue_stats, uint64_t started_us)
{
    bool found = result->status == GET_MESSAGE_FOUND;
    uint64_t took_us = env_monotonic_us(&broker->env) - started_us;
    broker_stats_get(broker->stats, found, found ? result->count : 0, found ? result->total_size : 0, took_us);
    stats_item_add(queue_stats, took_us / 1000, 0);
}

/* What the group is given, and how far it stays behind the log's end. Returns the item that counts how long it took. */
static struct stats_item *count_found(struct broker *broker, const struct pull_message_request_header *header,
                                      const struct get_message_result *result)
{
    struct broker_stats_manager *items = broker->item_stats;
    const struct log_view *log = &broker->store.log;
    stats_item_add(broker_stats_manager_item(items, STATS_GROUP_GET, header->topic, 0, header->consumer_group), result->count,
                   result->total_size);
    struct stats_item *queue = broker_stats_manager_item(items, STATS_GROUP_QUEUE, header->topic, header->queue_id, header->consumer_group);
    int64_t behind = 0, late_ms = 0;
    if (result->next_begin_offset < result->max_offset) {
        behind = log->committed_offset(log->context) - result->last_physical_offset;
        /* The time of what must come from the disk first is looked at when it is there. */
        if (!cold_read_needed(broker, result->last_physical_offset))
            late_ms = env_now_ms(&broker->env) - message_store_record_time(&broker->store, result->last_physical_offset);
    }
    stats_item_set_fall(queue, behind < 0 ? 0 : (uint64_t)behind, late_ms < 0 ? 0 : (uint64_t)late_ms);
    return queue;
}

static void answer_damaged(struct broker *broker, const struct reply_to *to, int32_t queue_id, int64_t queue_offset)
{
    reply_simple(broker, to, RESPONSE_SYSTEM_ERROR,
                 "the message at offset %lld of queue %d is damaged on this broker's disk; it is fetched from the group's other members, or its queue made again",
                 (long long)queue_offset, queue_id);
}

/* No record is where a unit points. True: it should be, so that the unit is damaged. */
static bool is_wrong_unit(struct broker *broker, struct slice topic, int32_t queue_id, const struct get_message_result *result, uint32_t item)
{
    const struct log_view *log = &broker->store.log;
    const int64_t physical_offset = result->items[item].physical_offset;
    if (dledger_commit_log_damaged(broker->log, physical_offset, result->items[item].size) || physical_offset < log->min_offset(log->context))
        return false;
    message_store_distrust(&broker->store, topic, queue_id, result->items[item].queue_offset);
    return true;
}

static void answer_hot(struct broker *broker, const struct pull *pull, const struct get_message_result *result, struct stats_item *queue_stats)
{
    const struct reply_to *to = &pull->reply_to;
    const struct log_view *log = &broker->store.log;
    const uint8_t *data[GET_MESSAGE_BATCH_MAX];
    struct mapped_file *pins[GET_MESSAGE_BATCH_MAX] = {0};
    struct remoting_writer writer;
    uint32_t i;
    size_t external = 0;
    for (i = 0; i < result->count; i++) {
        if (result->items[i].size >= LIMIT_COPY_RECORD_BYTES)
            data[i] = dledger_commit_log_pin(broker->log, result->items[i].physical_offset, result->items[i].size, &pins[i]);
        else
            data[i] = log->at(log->context, result->items[i].physical_offset, result->items[i].size);
        if (data[i] == NULL)
            break;
    }
    const uint32_t bad = i;
    bool complete = i == result->count;
    if (!complete || !begin_answer(broker, to, &writer, RESPONSE_SUCCESS, result, result->next_begin_offset, pull->suggested_id)) {
        while (i-- > 0) {
            if (pins[i] != NULL)
                dledger_commit_log_unpin(broker->log, pins[i]);
        }
        if (!complete && is_wrong_unit(broker, pull->header.topic, pull->header.queue_id, result, bad))
            answer_damaged(broker, to, pull->header.queue_id, result->items[bad].queue_offset);
        else if (!complete) /* removed between the look-up and here: the next pull learns the new minimum */
            answer_empty(broker, to, RESPONSE_PULL_RETRY_IMMEDIATELY, result, pull->header.queue_offset, pull->suggested_id);
        return;
    }
    struct connection *connection = remoting_server_find(broker->server, to->connection_id);
    remoting_writer_body(&writer);
    for (i = 0; i < result->count; i++) {
        if (pins[i] != NULL) {
            connection_append_pinned(connection, data[i], result->items[i].size, pins[i]);
            external += result->items[i].size;
        } else {
            buffer_append(writer.out, data[i], result->items[i].size);
        }
    }
    remoting_writer_end(&writer, external);
    connection_frame_done(connection);
    count_get(broker, result, queue_stats, pull->started_us);
}

/* What was read are the messages of the queue: only now it can be told. Cuts the answer in front of one that is not; false: it is the first. */
static bool are_messages(struct broker *broker, struct cold_pull *cold)
{
    struct get_message_result *result = &cold->result;
    size_t at = 0;
    for (uint32_t i = 0; i < result->count; i++) {
        if (!message_record_is(slice_of(cold->read.bytes + at, result->items[i].size), cold->topic, cold->queue_id, result->items[i].queue_offset,
                               result->items[i].physical_offset)) {
            message_store_distrust(&broker->store, cold->topic, cold->queue_id, result->items[i].queue_offset);
            result->next_begin_offset = result->items[i].queue_offset;
            result->count = i;
            cold->read.size = at;
        } else {
            at += result->items[i].size;
        }
    }
    return result->count > 0;
}

static void on_cold_read(struct broker *broker, struct cold_read *read, int code)
{
    struct cold_pull *cold = (struct cold_pull *)read;
    struct remoting_writer writer;
    /* Where a damaged unit points there is no record, or none that is whole. */
    if ((code == ERROR_NOT_FOUND || code == ERROR_DAMAGED) && is_wrong_unit(broker, cold->topic, cold->queue_id, &cold->result, read->bad))
        code = ERROR_DAMAGED;
    if (code == 0 && !are_messages(broker, cold)) {
        answer_damaged(broker, &cold->reply_to, cold->queue_id, cold->result.items[0].queue_offset);
    } else if (code == ERROR_NOT_FOUND) {
        answer_empty(broker, &cold->reply_to, RESPONSE_PULL_RETRY_IMMEDIATELY, &cold->result, cold->queue_offset, cold->suggested_id);
    } else if (code == ERROR_DAMAGED) {
        answer_damaged(broker, &cold->reply_to, cold->queue_id, cold->result.items[read->bad].queue_offset);
    } else if (code != 0) {
        reply_simple(broker, &cold->reply_to, RESPONSE_SYSTEM_ERROR, "reading the log failed: %s", error_text(code));
    } else if (begin_answer(broker, &cold->reply_to, &writer, RESPONSE_SUCCESS, &cold->result, cold->result.next_begin_offset, cold->suggested_id)) {
        remoting_writer_body(&writer);
        buffer_append(writer.out, read->bytes, read->size);
        reply_end(broker, &cold->reply_to, &writer);
        count_get(broker, &cold->result, cold->queue_stats, cold->started_us);
        struct message_dispatch first;
        if (message_dispatch_decode(slice_of(read->bytes, read->size), &first) == 0) {
            int64_t behind = broker->store.log.committed_offset(broker->store.log.context) - first.physical_offset;
            int64_t late_ms = env_now_ms(&broker->env) - first.store_timestamp_ms;
            stats_item_set_fall(cold->queue_stats, behind < 0 ? 0 : (uint64_t)behind, late_ms < 0 ? 0 : (uint64_t)late_ms);
        }
    }
    stats_item_release(cold->queue_stats);
    cold_read_free(read);
    free(cold);
}

static void answer_cold(struct broker *broker, const struct pull *pull, const struct get_message_result *result, struct stats_item *queue_stats)
{
    struct cold_pull *cold = calloc(1, sizeof *cold + pull->header.topic.size);
    int rv = ERROR_NO_MEMORY;
    if (cold != NULL) {
        uint8_t *at = cold->bytes;
        cold->topic = slice_copy(&at, pull->header.topic);
        cold->queue_id = pull->header.queue_id;
        cold->queue_offset = pull->header.queue_offset;
        cold->reply_to = pull->reply_to;
        cold->started_us = pull->started_us;
        cold->suggested_id = pull->suggested_id;
        cold->result = *result;
        cold->queue_stats = queue_stats;
        stats_item_hold(queue_stats);
        cold->read.kind = COLD_READ_PULL;
        cold->read.done = on_cold_read;
        cold->read.count = result->count;
        for (uint32_t i = 0; i < result->count; i++) {
            cold->read.items[i].physical_offset = result->items[i].physical_offset;
            cold->read.items[i].size = result->items[i].size;
        }
        rv = cold_read_start(broker->cold_reads, &cold->read);
    }
    if (rv != 0) {
        if (cold != NULL)
            stats_item_release(queue_stats);
        free(cold);
        reply_not_now(broker, &pull->reply_to, rv);
    }
}

/* ---- OFFSET_MOVED_EVENT ---- */

/* Only `mqadmin startMonitoring` reads it. Nobody waits, and a consumer that asks in a loop must not fill the log. */
static void record_offset_moved(struct broker *broker, const struct pull *pull, int64_t next_offset)
{
    static struct log_limiter limiter = {.burst = OFFSET_MOVED_EVENTS_PER_SECOND};
    uint64_t suppressed;
    int64_t now_ms = env_now_ms(&broker->env);
    struct topic_entry *topic = topic_config_find(broker->topics, SLICE_LITERAL(TOPIC_OFFSET_MOVED_EVENT));
    struct consume_queue *queue = topic == NULL ? NULL : topic_config_queue(topic, &broker->store, 0);
    if (queue == NULL || !log_limiter_pass(&limiter, now_ms, &suppressed))
        return;
    struct offset_moved_event event = {
        .consumer_group = pull->header.consumer_group,
        .offset_request = pull->header.queue_offset,
        .offset_new = next_offset,
    };
    event.queue.broker_name = slice_of_text(broker->config.broker_name);
    event.queue.topic = pull->header.topic;
    event.queue.queue_id = pull->header.queue_id;
    struct buffer body, properties;
    buffer_init(&body, 0);
    buffer_init(&properties, 0);
    offset_moved_event_encode(&event, &body);
    message_property_append(&properties, 0, SLICE_LITERAL("KEYS"), pull->header.consumer_group);
    message_property_append(&properties, 0, SLICE_LITERAL("TAGS"), pull->header.consumer_group);
    if (!body.failed && !properties.failed) {
        struct message_record record = {
            .born_timestamp_ms = now_ms,
            .born_host = broker->store_host,
            .body = buffer_slice(&body),
            .topic = topic->config.name,
            .properties = buffer_slice(&properties),
        };
        (void)message_append(broker, queue, &record, slice_of(NULL, 0), NULL);
    }
    buffer_close(&body);
    buffer_close(&properties);
}

/* ---- holding ---- */

static void run_pull(struct broker *broker, struct pull *pull);

static bool held_match(void *context, int64_t tags_code, struct slice properties)
{
    struct held_pull *held = context;
    const struct pull_message_request_header *header = &held->pull.header;
    /* A follower that catches up meets many messages before the offset that is asked for. */
    if (held->beyond && message_store_max_offset(&held->broker->store, header->topic, header->queue_id) <= header->queue_offset)
        return false;
    if (held->filter.program != NULL)
        return sql92_match(held->filter.program->code, properties);
    return tags_match(&held->filter, tags_code);
}

static void held_free(void *context)
{
    struct held_pull *held = context;
    sql_program_release(held->filter.program);
    free(held);
}

static void held_resume(struct broker *broker, void *context)
{
    struct held_pull *held = context;
    struct connection *connection = remoting_server_find(broker->server, held->pull.reply_to.connection_id);
    if (connection != NULL && connection_unsent(connection) > LIMIT_UNSENT_PAUSE_BYTES) {
        /* All of a slow reader's queues woke at once: it asks again when it has read what is there. */
        struct get_message_result result = {.status = GET_MESSAGE_OFFSET_OVERFLOW_ONE};
        result.min_offset = message_store_min_offset(&broker->store, held->pull.header.topic, held->pull.header.queue_id);
        result.max_offset = message_store_max_offset(&broker->store, held->pull.header.topic, held->pull.header.queue_id);
        answer_empty(broker, &held->pull.reply_to, RESPONSE_PULL_NOT_FOUND, &result, held->pull.header.queue_offset,
                     held->pull.suggested_id);
    } else if (connection != NULL) {
        held->pull.first = false;
        held->pull.units_ahead = false;
        held->pull.records_ahead = 0;
        held->pull.started_us = env_monotonic_us(&broker->env);
        run_pull(broker, &held->pull);
    }
    held_free(held);
}

/* A copy that outlives the request's frame; *size: its bytes. NULL: no memory. */
static struct held_pull *held_new(struct broker *broker, const struct pull *pull, const struct pull_filter *filter, bool beyond, size_t *size)
{
    const struct pull_message_request_header *header = &pull->header;
    size_t codes_size = filter->all ? 0 : filter->count * sizeof *filter->codes;
    *size = sizeof(struct held_pull) + codes_size + header->consumer_group.size + header->topic.size + header->subscription.size +
            header->expression_type.size;
    struct held_pull *held = malloc(*size + 1);
    if (held == NULL)
        return NULL;
    held->broker = broker;
    held->pull = *pull;
    held->filter = *filter;
    held->beyond = beyond;
    uint8_t *at = held->bytes;
    if (codes_size > 0)
        memcpy(at, filter->codes, codes_size);
    held->filter.codes = (const int32_t *)(const void *)at;
    at += codes_size;
    held->pull.header.consumer_group = slice_copy(&at, header->consumer_group);
    held->pull.header.topic = slice_copy(&at, header->topic);
    held->pull.header.subscription = slice_copy(&at, header->subscription);
    held->pull.header.expression_type = slice_copy(&at, header->expression_type);
    sql_program_hold(filter->program);
    held->pull.program = (header->sys_flag & PULL_SUBSCRIPTION) != 0 ? filter->program : NULL;
    return held;
}

/* True: it waits. */
static bool hold(struct broker *broker, const struct pull *pull, const struct pull_filter *filter, bool beyond)
{
    const struct pull_message_request_header *header = &pull->header;
    int64_t timeout_ms = broker->config.long_polling_enable ? header->suspend_timeout_ms : broker->config.short_polling_time_mills;
    if (timeout_ms <= 0)
        return false;
    size_t size;
    struct held_pull *held = held_new(broker, pull, filter, beyond, &size);
    if (held == NULL)
        return false;
    struct pull_hold_request request = {
        .topic = held->pull.header.topic,
        .queue_id = header->queue_id,
        .connection_id = pull->reply_to.connection_id,
        .timeout_ms = timeout_ms > LIMIT_HOLD_MS ? LIMIT_HOLD_MS : (uint32_t)timeout_ms,
        .bytes = size,
        .context = held,
        .match = filter->all && !beyond ? NULL : held_match,
        .resume = held_resume,
        .drop = held_free,
    };
    if (pull_hold_add(broker->holds, &request) == 0)
        return true;
    (void)broker_stats_refuse(broker->stats, LIMIT_HIT_HELD_PULLS); /* answered at once instead */
    held_free(held);
    return false;
}

/* ---- what is read before a pull can look ---- */

struct pull_ahead {
    struct cold_read read; /* first */
    struct held_pull *held;
};

static void on_read_ahead(struct broker *broker, struct cold_read *read, int code)
{
    struct pull_ahead *ahead = (struct pull_ahead *)read;
    struct held_pull *held = ahead->held;
    /* Whatever became of it: the pull meets what is there. When all stops nobody is answered any more. */
    if (code != ERROR_STOPPED && remoting_server_find(broker->server, held->pull.reply_to.connection_id) != NULL) {
        held->pull.units_ahead = true;
        held->pull.records_ahead = read->count;
        run_pull(broker, &held->pull);
    }
    cold_read_free(read);
    held_free(held);
    free(ahead);
}

/* An expression that only records can answer, or tags of units that are not believed yet. */
static bool reads_records(struct broker *broker, const struct pull_message_request_header *header, const struct pull_filter *filter)
{
    const struct consume_queue *queue = message_store_queue(&broker->store, header->topic, header->queue_id, false, NULL);
    return filter->program != NULL || (!filter->all && queue != NULL && !consume_queue_trusts(queue, header->queue_offset));
}

/* Is the record that the pull begins with old? Looks at the queue: after its units were brought into memory. */
static bool begins_cold(struct broker *broker, const struct pull_message_request_header *header)
{
    const struct consume_queue *queue = message_store_queue(&broker->store, header->topic, header->queue_id, false, NULL);
    struct consume_queue_unit unit;
    return queue != NULL && consume_queue_get(queue, header->queue_offset, &unit) && cold_read_needed(broker, unit.physical_offset);
}

/* The units of the queue, and where old records have to be seen (reads_records) these too, are brought into memory by the pool: a page fault here would
 * stall everybody. True: the pull goes on when they are there. */
static bool read_ahead(struct broker *broker, const struct pull *pull, const struct pull_filter *filter)
{
    const struct pull_message_request_header *header = &pull->header;
    struct message_store_pages pages = {0};
    struct get_message_result records = {0};
    bool cold = !pull->units_ahead && message_store_is_cold(&broker->store, header->topic, header->queue_id, header->queue_offset, &pages);
    if (!cold && pull->records_ahead == 0 && reads_records(broker, header, filter) && begins_cold(broker, header)) {
        message_store_get_message(&broker->store, header->topic, header->queue_id, header->queue_offset, GET_MESSAGE_BATCH_MAX, NULL, &records);
        if (records.status != GET_MESSAGE_FOUND || !cold_read_needed(broker, records.items[0].physical_offset))
            records.count = 0;
    }
    if (!cold && records.count == 0)
        return false;
    size_t size;
    struct pull_ahead *ahead = calloc(1, sizeof *ahead);
    if (ahead == NULL || (ahead->held = held_new(broker, pull, filter, false, &size)) == NULL)
        goto read_it_here;
    ahead->read.done = on_read_ahead;
    ahead->read.kind = COLD_READ_PULL;
    ahead->read.pages = pages;
    ahead->read.count = records.count;
    for (uint32_t i = 0; i < records.count; i++) {
        ahead->read.items[i].physical_offset = records.items[i].physical_offset;
        ahead->read.items[i].size = records.items[i].size;
    }
    if (cold_read_start(broker->cold_reads, &ahead->read) == 0)
        return true;
    held_free(ahead->held);

read_it_here:
    free(ahead);
    if (pages.file != NULL)
        message_store_release_pages(&pages);
    return false;
}

/* ---- the pull itself ---- */

/* Records that are read through the mapping for their properties: few where that may wait for the disk. */
static uint32_t records_max(struct broker *broker, const struct pull *pull)
{
    if (pull->records_ahead != 0)
        return pull->records_ahead;
    return begins_cold(broker, &pull->header) ? LIMIT_FILTER_COLD_RECORDS : LIMIT_FILTER_HOT_RECORDS;
}

static void finish_pull(struct broker *broker, struct pull *pull, struct pull_filter *filter)
{
    const struct pull_message_request_header *header = &pull->header;
    const struct reply_to *to = &pull->reply_to;
    struct get_message_result result;
    if (read_ahead(broker, pull, filter))
        return;
    const struct message_filter tag_filter = {
        .context = filter,
        .match_tags = tags_match,
        .records_max = reads_records(broker, header, filter) ? records_max(broker, pull) : LIMIT_FILTER_COLD_RECORDS,
    };
    const struct message_filter sql_filter = {
        .context = filter,
        .match_record = record_match,
        .records_max = filter->program == NULL ? 0 : records_max(broker, pull),
    };
    const struct message_filter *store_filter = filter->program != NULL ? &sql_filter : filter->all ? NULL : &tag_filter;
    int32_t count = header->max_msg_nums < 1 ? 1 : header->max_msg_nums; /* Go asks for 0 and gets one */
    message_store_get_message(&broker->store, header->topic, header->queue_id, header->queue_offset, count, store_filter, &result);

    bool leads = dledger_commit_log_accepting(broker->log);
    bool decides = leads && !dledger_commit_log_in_doubt(broker->log); /* else it may only be behind, as a follower */
    bool beyond = false;
    pull->suggested_id = suggest_broker(broker, pull, &result);
    int32_t code = RESPONSE_PULL_NOT_FOUND;
    int64_t next_offset = result.next_begin_offset;
    switch (result.status) {
    case GET_MESSAGE_FOUND:
        code = RESPONSE_SUCCESS;
        break;
    case GET_MESSAGE_NO_MATCHED_MESSAGE:
    case GET_MESSAGE_WAS_REMOVING:
        code = RESPONSE_PULL_RETRY_IMMEDIATELY;
        break;
    case GET_MESSAGE_OFFSET_FOUND_NULL:
    case GET_MESSAGE_OFFSET_OVERFLOW_ONE:
        break;
    case GET_MESSAGE_NO_MATCHED_LOGIC_QUEUE:
    case GET_MESSAGE_NO_MESSAGE_IN_QUEUE:
    case GET_MESSAGE_OFFSET_OVERFLOW_BADLY:
        beyond = header->queue_offset > result.max_offset;
        if (decides && header->queue_offset != result.max_offset)
            code = RESPONSE_PULL_OFFSET_MOVED;
        else
            next_offset = header->queue_offset;
        break;
    case GET_MESSAGE_DAMAGED:
        answer_damaged(broker, to, header->queue_id, header->queue_offset);
        return;
    case GET_MESSAGE_OFFSET_TOO_SMALL:
        code = decides ? RESPONSE_PULL_OFFSET_MOVED : RESPONSE_PULL_RETRY_IMMEDIATELY;
        if (!decides)
            next_offset = header->queue_offset;
        break;
    }
    bool commit = pull->first && leads && (header->sys_flag & PULL_COMMIT_OFFSET) != 0;
    if (commit)
        consumer_offset_commit(broker, header->consumer_group, header->topic, header->queue_id, header->commit_offset);
    if (code == RESPONSE_SUCCESS) {
        if (to->oneway)
            return;
        struct stats_item *queue_stats = count_found(broker, header, &result);
        if (result.count > 0 && cold_read_needed(broker, result.items[0].physical_offset))
            answer_cold(broker, pull, &result, queue_stats);
        else
            answer_hot(broker, pull, &result, queue_stats);
        return;
    }
    count_get(broker, &result, NULL, pull->started_us);
    if (next_offset >= result.max_offset)
        stats_item_set_fall(broker_stats_manager_find(broker->item_stats, STATS_GROUP_QUEUE, header->topic, header->queue_id, header->consumer_group), 0, 0);
    if (code == RESPONSE_PULL_NOT_FOUND && pull->first && (header->sys_flag & PULL_SUSPEND) != 0 && !to->oneway &&
        hold(broker, pull, filter, beyond))
        return;
    if (code == RESPONSE_PULL_OFFSET_MOVED)
        record_offset_moved(broker, pull, next_offset);
    answer_empty(broker, to, code, &result, next_offset, pull->suggested_id);
}

static void refuse_expression(struct broker *broker, const struct reply_to *to, const struct subscription_data *data)
{
    reply_simple(broker, to, RESPONSE_SYSTEM_ERROR, "The broker does not support consumer to filter message by %.*s",
                 data->expression_type.size > 64 ? 64 : (int)data->expression_type.size, (const char *)data->expression_type.data);
}

/* The group's program for that text, or a new one; one more owner. NULL with error filled. */
static struct sql_program *program_of_text(struct broker *broker, const struct pull *pull, struct slice text, struct error *error)
{
    struct client_group *clients = client_registry_consumer_group(broker->clients, pull->header.consumer_group);
    struct client_subscription *stored = clients == NULL ? NULL : client_registry_subscription(clients, pull->header.topic);
    struct sql_program *program = pull->program;
    if (program == NULL && stored != NULL && slice_equal(stored->data.sub_string, text))
        program = stored->program;
    if (program == NULL)
        return sql_program_new(text, error);
    sql_program_hold(program);
    return program;
}

static void finish_with_sql_text(struct broker *broker, struct pull *pull, struct slice text)
{
    struct error error;
    struct pull_filter filter = {.program = program_of_text(broker, pull, text, &error)};
    if (filter.program == NULL) {
        if (error.code == ERROR_BUSY)
            reply_simple(broker, &pull->reply_to, RESPONSE_SERVICE_NOT_AVAILABLE, "%s", broker_stats_refuse(broker->stats, LIMIT_HIT_SQL_BYTES));
        else
            reply_simple(broker, &pull->reply_to, error.code == ERROR_INVALID ? RESPONSE_SUBSCRIPTION_PARSE_FAILED : error_response_code(error.code),
                         "parse the consumer's subscription failed: %s", error.message);
        return;
    }
    finish_pull(broker, pull, &filter);
    sql_program_release(filter.program);
}

static void finish_with_text(struct broker *broker, struct pull *pull)
{
    const struct pull_message_request_header *header = &pull->header;
    struct subscription_data data;
    struct arena arena;
    struct error error;
    arena_init(&arena, LIMIT_HELD_BYTES / 8);
    int rv = subscription_data_build(&data, &arena, header->topic, header->subscription, header->expression_type, &error);
    if (rv != 0) {
        reply_simple(broker, &pull->reply_to, RESPONSE_SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed");
    } else if (subscription_data_is_sql(&data) && broker->config.enable_property_filter) {
        finish_with_sql_text(broker, pull, data.sub_string);
    } else if (!subscription_data_is_tag(&data)) {
        refuse_expression(broker, &pull->reply_to, &data);
    } else {
        struct pull_filter filter = tag_filter_of(&data);
        finish_pull(broker, pull, &filter);
    }
    arena_close(&arena);
}

static void finish_with_heart_beat(struct broker *broker, struct pull *pull, const struct subscription_group_config *group)
{
    const struct pull_message_request_header *header = &pull->header;
    const struct reply_to *to = &pull->reply_to;
    struct slice name = header->consumer_group;
    struct client_group *clients = client_registry_consumer_group(broker->clients, name);
    if (clients == NULL) {
        reply_simple(broker, to, RESPONSE_SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist" FAQ_SUGGESTION);
        return;
    }
    if (clients->message_model == MESSAGE_MODEL_BROADCASTING && !group->consume_broadcast_enable) {
        reply_simple(broker, to, RESPONSE_NO_PERMISSION, "the consumer group[%.*s] can not consume by broadcast way", (int)name.size,
                     (const char *)name.data);
        return;
    }
    const struct client_subscription *subscription = client_registry_subscription(clients, header->topic);
    if (subscription == NULL) {
        reply_simple(broker, to, RESPONSE_SUBSCRIPTION_NOT_EXIST, "the consumer's subscription not exist" FAQ_SUGGESTION);
        return;
    }
    const struct subscription_data *data = &subscription->data;
    if (data->sub_version < header->sub_version) {
        /* Java clients raise their version whenever their queues change and skip the heart-beat when another one is under way: 25 would stop them
         * until the next, 30 s later. They look at tags themselves, so until we know the new expression they get everything. A pull that brings its
         * own text says so with PULL_SUBSCRIPTION and never gets here; SQL is the broker's work alone. */
        bool tags = header->expression_type.size == 0 || slice_equal_text(header->expression_type, EXPRESSION_TYPE_TAG);
        if (tags && header->subscription.size == 0 && subscription_data_is_tag(data)) {
            struct pull_filter all = {.all = true};
            finish_pull(broker, pull, &all);
            return;
        }
        reply_simple(broker, to, RESPONSE_SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest");
        return;
    }
    bool sql = subscription_data_is_sql(data);
    if (sql && subscription->program == NULL) {
        /* Its heart-beat was taken, so that one expression that is wrong does not stop the group's other topics. */
        if (subscription->program_version == 0 || subscription->program_version >= header->sub_version)
            reply_simple(broker, to, RESPONSE_FILTER_DATA_NOT_EXIST, "The consumer's filter data not exist!" FAQ_SUGGESTION);
        else
            reply_simple(broker, to, RESPONSE_FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest");
        return;
    }
    if (sql ? !broker->config.enable_property_filter : !subscription_data_is_tag(data)) {
        refuse_expression(broker, to, data);
        return;
    }
    struct pull_filter filter = sql ? (struct pull_filter){.program = subscription->program} : tag_filter_of(data);
    finish_pull(broker, pull, &filter);
}

static void run_pull(struct broker *broker, struct pull *pull)
{
    const struct pull_message_request_header *header = &pull->header;
    const struct reply_to *to = &pull->reply_to;
    struct slice group_name = header->consumer_group, name = header->topic;
    if ((broker->config.broker_permission & BROKER_PERM_READ) == 0) {
        reply_simple(broker, to, RESPONSE_NO_PERMISSION, "the broker[%s] pulling message is forbidden", broker->config.broker_ip1);
        return;
    }
    const struct subscription_group_config *group = subscription_group_need(broker, group_name);
    if (group == NULL) {
        reply_simple(broker, to, RESPONSE_SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group [%.*s] does not exist, " FAQ_SUGGESTION,
                     (int)group_name.size, (const char *)group_name.data);
        return;
    }
    if (!group->consume_enable) {
        reply_simple(broker, to, RESPONSE_NO_PERMISSION, "subscription group no permission, %.*s", (int)group_name.size,
                     (const char *)group_name.data);
        return;
    }
    pull->broker_id = group->broker_id;
    pull->slow_broker_id = group->which_broker_when_consume_slowly;
    const struct topic_entry *topic = topic_config_find(broker->topics, name);
    if (topic == NULL) {
        reply_simple(broker, to, RESPONSE_TOPIC_NOT_EXIST, "topic[%.*s] not exist, apply first please!" FAQ_SUGGESTION, (int)name.size,
                     (const char *)name.data);
        return;
    }
    if ((topic->config.perm & PERM_READ) == 0) {
        reply_simple(broker, to, RESPONSE_NO_PERMISSION, "the topic[%.*s] pulling message is forbidden", (int)name.size,
                     (const char *)name.data);
        return;
    }
    if (header->queue_id < 0 || header->queue_id >= topic->config.read_queue_nums) {
        char peer[64];
        message_host_format(&pull->peer, peer, sizeof peer);
        reply_simple(broker, to, RESPONSE_SYSTEM_ERROR, "queueId[%d] is illegal, topic:[%.*s] topicConfig.readQueueNums:[%d] consumer:[%s]",
                     header->queue_id, (int)name.size, (const char *)name.data, topic->config.read_queue_nums, peer);
        return;
    }
    if ((header->sys_flag & PULL_SUBSCRIPTION) != 0)
        finish_with_text(broker, pull);
    else
        finish_with_heart_beat(broker, pull, group);
}

static void pull_message(struct broker *broker, struct request *request)
{
    struct pull pull;
    struct error error;
    if (pull_message_request_header_decode(request->command, &pull.header, &error) != 0) {
        reply_simple(broker, &request->reply_to, RESPONSE_SYSTEM_ERROR, "%s", error.message);
        return;
    }
    pull.reply_to = request->reply_to;
    pull.peer = request->peer;
    pull.started_us = env_monotonic_us(&broker->env);
    pull.first = true;
    pull.units_ahead = false;
    pull.records_ahead = 0;
    pull.suggested_id = 0;
    pull.program = NULL;
    run_pull(broker, &pull);
}

const struct processor_row pull_message_processor_rows[] = {
    {11, "PULL_MESSAGE", pull_message, PROCESSOR_BUFFERS},
    {361, "LITE_PULL_MESSAGE", pull_message, PROCESSOR_BUFFERS},
    {0, NULL, NULL, 0},
};
