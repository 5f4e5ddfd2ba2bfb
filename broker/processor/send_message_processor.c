/* A send:
 *  1. The header is read into a struct on the stack (proto/headers), the checks follow in RocketMQ's order (store.md 6.1).
 *  2. A topic that is not there yet is made by a record in the log; the send waits for it as a copy (struct deferred_send).
 *  3. Delay and dead letters are rewritten, the record is encoded straight into the log's append buffer (message_append).
 *  4. The answer waits in a pending_send (send_answer) until the entry is committed and applied, or has failed: 14.
 * One-way sends wait for nobody. A refusal that a retry can cure is 14 with the cause.
 */
#include "broker/processor/send_message_processor.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "broker/broker.h"
#include "broker/broker_stats.h"
#include "broker/limits.h"
#include "broker/metadata/subscription_group.h"
#include "broker/metadata/topic_config.h"
#include "broker/processor/message_append.h"
#include "broker/processor/send_answer.h"
#include "broker/processor/send_properties.h"
#include "broker/service/schedule.h"
#include "broker/service/transaction.h"
#include "proto/headers.h"
#include "proto/request_code.h"
#include "proto/response_code.h"
#include "proto/topic_validator.h"
#include "store/log_sink.h"

#define DEFERRALS_MAX 3  /* %RETRY%group, %DLQ%group, and one that was deleted meanwhile */
#define VERSION_3_4_9 121 /* from here on a client's maxReconsumeTimes counts */

struct send_message_processor {
    struct broker *broker;
    struct send_answers answers;
    struct buffer properties; /* scratch: the stored property string */
    struct buffer tail;       /* "CLUSTER" pair, then MSG_REGION and TRACE_ON */
    size_t cluster_tail_size;
    bool deliver_time_seen;   /* the warning about it is out */
};

/* One send, wherever its bytes are. */
struct send_context {
    struct reply_to reply_to;
    struct message_host peer;
    int32_t version; /* of the client */
    uint64_t started_us;
    struct send_message_request_header header;
    struct slice body;
    int deferrals; /* times it has waited for a topic to be made */
};

struct deferred_send {
    struct send_context context; /* its slices point into bytes */
    uint8_t bytes[];
};

struct send_message_processor *send_message_processor_new(struct broker *broker, struct error *error)
{
    struct send_message_processor *sends = calloc(1, sizeof *sends);
    if (sends == NULL) {
        error_set(error, ERROR_NO_MEMORY, "sends: %s", error_text(ERROR_NO_MEMORY));
        return NULL;
    }
    sends->broker = broker;
    buffer_init(&sends->properties, 4 * MESSAGE_PROPERTIES_MAX);
    buffer_init(&sends->tail, 0);
    send_answer_init(&sends->answers, broker);
    message_property_append(&sends->tail, 0, SLICE_LITERAL("CLUSTER"), slice_of_text(broker->config.broker_cluster_name));
    sends->cluster_tail_size = sends->tail.size;
    size_t start = sends->tail.size;
    message_property_append(&sends->tail, start, SLICE_LITERAL("MSG_REGION"), slice_of_text(broker->config.region_id));
    message_property_append(&sends->tail, start, SLICE_LITERAL("TRACE_ON"), slice_of_text(broker->config.trace_on ? "true" : "false"));
    return sends;
}

void send_message_processor_free(struct send_message_processor *sends)
{
    if (sends == NULL)
        return;
    send_answer_close(&sends->answers);
    buffer_close(&sends->properties);
    buffer_close(&sends->tail);
    free(sends);
}

struct send_answers *send_message_processor_answers(struct send_message_processor *sends)
{
    return &sends->answers;
}

uint32_t send_message_processor_pending(const struct send_message_processor *sends)
{
    return sends->answers.waiting;
}

uint64_t send_message_processor_oldest_ms(const struct send_message_processor *sends)
{
    return send_answer_oldest_ms(&sends->answers);
}

/* ---- waiting for a topic ---- */

static void run_send(struct broker *broker, struct send_context *context);

static struct deferred_send *copy_send(const struct send_context *context)
{
    const struct send_message_request_header *header = &context->header;
    struct deferred_send *deferred =
        malloc(sizeof *deferred + 1 + header->producer_group.size + header->topic.size + header->default_topic.size +
               header->properties.size + header->broker_name.size + context->body.size);
    if (deferred == NULL)
        return NULL;
    deferred->context = *context;
    uint8_t *at = deferred->bytes;
    deferred->context.header.producer_group = slice_copy(&at, header->producer_group);
    deferred->context.header.topic = slice_copy(&at, header->topic);
    deferred->context.header.default_topic = slice_copy(&at, header->default_topic);
    deferred->context.header.properties = slice_copy(&at, header->properties);
    deferred->context.header.broker_name = slice_copy(&at, header->broker_name);
    deferred->context.body = slice_copy(&at, context->body);
    deferred->context.deferrals++;
    return deferred;
}

static void on_topic_ready(struct broker *broker, void *argument, int code)
{
    struct deferred_send *deferred = argument;
    if (code == 0)
        run_send(broker, &deferred->context);
    else
        send_answer_code(broker, &deferred->context.reply_to, code);
    free(deferred);
}

static void refuse_unknown_topic(struct broker *broker, const struct reply_to *to, struct slice topic)
{
    send_answer_refuse(broker, to, RESPONSE_TOPIC_NOT_EXIST, "topic[%.*s] not exist, apply first please!" FAQ_SUGGESTION, (int)topic.size,
           (const char *)topic.data);
}

/* The topic is to be made before this send can go on: the whole request is kept and run again. internal: %RETRY% and %DLQ%. */
static void defer(struct broker *broker, const struct send_context *context, struct slice topic, bool internal)
{
    const struct send_message_request_header *header = &context->header;
    int32_t sys_flag = header->unit_mode ? (internal ? TOPIC_SYS_FLAG_UNIT_SUB : TOPIC_SYS_FLAG_UNIT) : 0;
    struct deferred_send *deferred = context->deferrals >= DEFERRALS_MAX ? NULL : copy_send(context);
    if (deferred == NULL) {
        /* Made and gone again, over and over. */
        send_answer_refuse(broker, &context->reply_to, RESPONSE_SERVICE_NOT_AVAILABLE, "topic[%.*s] is being created", (int)topic.size,
               (const char *)topic.data);
        return;
    }
    int rv;
    if (internal) {
        rv = topic_config_create_in_send_back(broker, topic, 1, PERM_READ | PERM_WRITE, sys_flag, on_topic_ready, deferred);
    } else {
        rv = topic_config_create_in_send(broker, topic, header->default_topic, header->default_topic_queue_nums, sys_flag, on_topic_ready,
                                         deferred);
        if (rv == ERROR_NOT_FOUND && topic_is_retry(topic))
            rv = topic_config_create_in_send_back(broker, topic, 1, PERM_READ | PERM_WRITE, sys_flag, on_topic_ready, deferred);
    }
    if (rv == 0)
        return;
    if (rv == ERROR_EXISTS)
        run_send(broker, &deferred->context);
    else if (rv == ERROR_NOT_FOUND || rv == ERROR_INVALID)
        refuse_unknown_topic(broker, &context->reply_to, topic);
    else
        send_answer_code(broker, &context->reply_to, rv);
    free(deferred);
}

/* ---- batches ---- */

/* One entry per member; the answer waits for the last. A batch that fails in the middle (the log is full of waiting sends) leaves members that may
 * commit, and is refused: their queue offsets are not used again. */
static void send_batch(struct send_message_processor *sends, const struct send_context *context, struct topic_entry *topic, int32_t queue_id)
{
    struct broker *broker = sends->broker;
    const struct send_message_request_header *header = &context->header;
    const struct reply_to *to = &context->reply_to;
    struct message_batch_member member;
    struct cursor cursor = cursor_of(context->body);
    uint32_t count = 0;
    int rv;
    while ((rv = message_batch_next(&cursor, &member)) == 1) {
        if (member.properties.size > MESSAGE_PROPERTIES_MAX || ++count > LIMIT_BATCH_MEMBERS)
            break;
    }
    if (rv < 0) {
        send_answer_refuse(broker, to, RESPONSE_SYSTEM_ERROR, "the members of the batch do not add up to its body");
        return;
    }
    if (rv != 0 || count == 0 || context->body.size > (size_t)broker->config.max_message_size ||
        (header->sys_flag & MESSAGE_TRANSACTION_MASK) != 0 ||
        schedule_level(message_property(header->properties, "DELAY"), broker->config.delay_levels) > 0) {
        send_answer_illegal(broker, to);
        return;
    }
    struct consume_queue *queue = topic_config_queue(topic, &broker->store, queue_id);
    if (queue == NULL) {
        send_answer_refuse(broker, to, RESPONSE_SERVICE_NOT_AVAILABLE, "the queue's files cannot be made");
        return;
    }
    struct pending_send *pending = send_answer_take(&sends->answers, to);
    if (pending == NULL)
        return;
    pending->batch_offsets = malloc(count * sizeof *pending->batch_offsets);
    if (pending->batch_offsets == NULL) {
        send_answer_give(pending);
        send_answer_code(broker, to, ERROR_NO_MEMORY);
        return;
    }
    pending->queue_id = queue_id;
    pending->started_us = context->started_us;
    pending->bytes = 0;
    pending->messages = count;
    send_answer_count_for(pending, topic->config.name);

    cursor = cursor_of(context->body);
    for (uint32_t i = 0; i < count; i++) {
        (void)message_batch_next(&cursor, &member);
        struct message_record record = {
            .flag = member.flag,
            .sys_flag = header->sys_flag | (topic->config.multi_tag ? MESSAGE_MULTI_TAGS : 0),
            .born_timestamp_ms = header->born_timestamp_ms,
            .born_host = context->peer,
            .reconsume_times = header->reconsume_times,
            .body = member.body,
            .topic = topic->config.name,
            .properties = member.properties,
        };
        rv = message_append(broker, queue, &record, slice_of(NULL, 0), i + 1 == count ? &pending->append : NULL);
        if (rv != 0) {
            send_answer_give(pending);
            send_answer_code(broker, to, rv);
            return;
        }
        pending->batch_offsets[i] = record.physical_offset;
        pending->bytes += record.total_size;
        if (i == 0)
            pending->queue_offset = record.queue_offset;
    }
}

/* ---- one message ---- */

/* A send to %RETRY%group that was tried too often goes to %DLQ%group. True: *topic is what to send to; false: answered or deferred. */
static bool check_retry(struct broker *broker, struct send_context *context, struct topic_entry **topic, int32_t *queue_id, bool *dead)
{
    const struct send_message_request_header *header = &context->header;
    struct slice name = (*topic)->config.name;
    size_t prefix = sizeof TOPIC_RETRY_PREFIX - 1;
    struct slice group = slice_of(name.data + prefix, name.size - prefix);
    const struct subscription_group_config *config = subscription_group_need(broker, group);
    if (config == NULL) {
        send_answer_refuse(broker, &context->reply_to, RESPONSE_SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group not exist, %.*s" FAQ_SUGGESTION,
               (int)group.size, (const char *)group.data);
        return false;
    }
    int32_t times_max = config->retry_max_times;
    if (context->version >= VERSION_3_4_9 && header->has_max_reconsume_times)
        times_max = header->max_reconsume_times;
    if (header->reconsume_times < times_max)
        return true;
    char dead_name[MESSAGE_TOPIC_MAX + 1];
    int size = snprintf(dead_name, sizeof dead_name, "%s%.*s", TOPIC_DLQ_PREFIX, (int)group.size, (const char *)group.data);
    if (size < 0 || (size_t)size >= sizeof dead_name) {
        send_answer_illegal(broker, &context->reply_to);
        return false;
    }
    struct topic_entry *entry = topic_config_find(broker->topics, slice_of(dead_name, (size_t)size));
    if (entry == NULL) {
        defer(broker, context, slice_of(dead_name, (size_t)size), true);
        return false;
    }
    *topic = entry;
    *queue_id = 0;
    *dead = true;
    return true;
}

static void send_one(struct send_message_processor *sends, struct send_context *context, struct topic_entry *topic, int32_t queue_id)
{
    struct broker *broker = sends->broker;
    const struct send_message_request_header *header = &context->header;
    const struct reply_to *to = &context->reply_to;
    struct send_properties properties;
    bool dead = false;
    if (topic_is_retry(topic->config.name) && !check_retry(broker, context, &topic, &queue_id, &dead))
        return;
    struct slice tail = buffer_slice(&sends->tail);
    send_properties_make(&sends->properties, header->properties, slice_of(tail.data, sends->cluster_tail_size),
                         slice_of(tail.data + sends->cluster_tail_size, tail.size - sends->cluster_tail_size), dead, &properties);
    if (properties.deliver_time && !sends->deliver_time_seen) {
        char client[64];
        sends->deliver_time_seen = true;
        message_host_format(&context->peer, client, sizeof client);
        LOG_WARN("a message to topic %.*s from %s asks with __STARTDELIVERTIME to be delivered at a certain time, which this broker cannot do: such "
                 "messages are delivered at once; use a delay level. This is said once",
                 (int)topic->config.name.size, (const char *)topic->config.name.data, client);
    }
    int level = dead ? 0 : schedule_level(properties.delay, broker->config.delay_levels);
    /* Old clients leave TRAN_MSG in what they send back for a retry; that is no half message. */
    bool half = properties.half_message && !(header->reconsume_times > 0 && level > 0);
    int32_t sys_flag = header->sys_flag | (topic->config.multi_tag ? MESSAGE_MULTI_TAGS : 0);
    if (half && broker->config.reject_transaction_message) {
        send_answer_refuse(broker, to, RESPONSE_NO_PERMISSION, "the broker[%s] sending transaction message is forbidden", broker->config.broker_ip1);
        return;
    }
    if ((sys_flag & MESSAGE_TRANSACTION_PREPARED) != 0 && !properties.half_message) {
        send_answer_refuse(broker, to, RESPONSE_MESSAGE_ILLEGAL, "the message is illegal: sysFlag says half message, but TRAN_MSG=true is missing");
        return;
    }
    if (properties.half_message)
        sys_flag &= ~MESSAGE_TRANSACTION_MASK; /* a record with these bits would never reach a queue */
    if (half && level > 0) { /* half messages are not delayed; official clients leave DELAY out */
        level = 0;
        send_properties_make(&sends->properties, header->properties, slice_of(tail.data, sends->cluster_tail_size),
                             slice_of(tail.data + sends->cluster_tail_size, tail.size - sends->cluster_tail_size), true, &properties);
    }
    if (properties.too_long || context->body.size > (size_t)broker->config.max_message_size) {
        send_answer_illegal(broker, to);
        return;
    }
    struct topic_entry *stored = topic;
    int32_t stored_queue = queue_id;
    if (level > 0 || half) {
        struct slice stored_name = half ? SLICE_LITERAL(TOPIC_TRANS_HALF) : SLICE_LITERAL(TOPIC_SCHEDULE);
        stored = topic_config_find(broker->topics, stored_name);
        stored_queue = half ? 0 : level - 1;
        if (half && stored == NULL) {
            defer(broker, context, stored_name, true);
            return;
        }
        send_properties_add_destination(&sends->properties, 0, topic->config.name, queue_id);
        properties.text = buffer_slice(&sends->properties);
        if (properties.text.size > MESSAGE_PROPERTIES_MAX) {
            send_answer_illegal(broker, to);
            return;
        }
    }
    struct consume_queue *queue = stored == NULL ? NULL : topic_config_queue(stored, &broker->store, stored_queue);
    if (queue == NULL || sends->properties.failed) {
        send_answer_refuse(broker, to, RESPONSE_SERVICE_NOT_AVAILABLE, "the queue's files cannot be made");
        return;
    }
    if (half && !transaction_takes_half(broker, queue)) {
        send_answer_refuse(broker, to, RESPONSE_SERVICE_NOT_AVAILABLE, "%s", broker_stats_refuse(broker->stats, LIMIT_HIT_HALVES));
        return;
    }
    struct message_record record = {
        .flag = header->flag,
        .sys_flag = sys_flag,
        .born_timestamp_ms = header->born_timestamp_ms,
        .born_host = context->peer,
        .reconsume_times = header->reconsume_times,
        .body = context->body,
        .topic = stored->config.name,
        .properties = properties.text,
    };
    struct pending_send *pending = send_answer_take(&sends->answers, to);
    if (pending == NULL)
        return;
    pending->batch_offsets = NULL;
    int rv = message_append(broker, queue, &record, slice_of(NULL, 0), &pending->append);
    if (rv != 0) {
        send_answer_give(pending);
        send_answer_code(broker, to, rv);
        return;
    }
    pending->queue_id = queue_id;
    pending->queue_offset = record.queue_offset;
    pending->physical_offset = record.physical_offset;
    pending->started_us = context->started_us;
    pending->bytes = record.total_size;
    pending->messages = 1;
    pending->schedule_queue = level > 0 ? stored_queue : -1;
    send_answer_count_for(pending, stored->config.name);
}

static void send_reply(struct send_message_processor *sends, const struct send_context *context, struct topic_entry *topic, int32_t queue_id)
{
    struct slice tail = buffer_slice(&sends->tail);
    reply_message_send(sends->broker, &(struct reply_send){
                                          .reply_to = &context->reply_to,
                                          .peer = &context->peer,
                                          .header = &context->header,
                                          .body = context->body,
                                          .topic = topic,
                                          .queue_id = queue_id,
                                          .cluster_tail = slice_of(tail.data, sends->cluster_tail_size),
                                          .region_tail = slice_of(tail.data + sends->cluster_tail_size, tail.size - sends->cluster_tail_size),
                                      });
}

/* With the topic as TopicConfig#toString shows it. */
static void refuse_queue(struct broker *broker, const struct send_context *context, const struct topic_config *config)
{
    char peer[64];
    message_host_format(&context->peer, peer, sizeof peer);
    send_answer_refuse(broker, &context->reply_to, RESPONSE_SYSTEM_ERROR,
           "request queueId[%d] is illegal, TopicConfig [topicName=%.*s, readQueueNums=%d, writeQueueNums=%d, perm=%c%c%c, topicFilterType=%s, "
           "topicSysFlag=%d, order=%s] Producer: %s",
           context->header.queue_id, (int)config->name.size, (const char *)config->name.data, config->read_queue_nums, config->write_queue_nums,
           config->perm & PERM_READ ? 'R' : '-', config->perm & PERM_WRITE ? 'W' : '-', config->perm & PERM_INHERIT ? 'X' : '-',
           config->multi_tag ? "MULTI_TAG" : "SINGLE_TAG", config->topic_sys_flag, config->order ? "true" : "false", peer);
}

/* The time as UtilAll#timeMillisToHumanString2 writes it. */
static void refuse_until(struct broker *broker, const struct reply_to *to, int64_t open_ms)
{
    time_t seconds = (time_t)(open_ms / 1000);
    struct tm time;
    char text[32] = "";
    if (localtime_r(&seconds, &time) != NULL)
        (void)strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &time);
    send_answer_refuse(broker, to, RESPONSE_SYSTEM_ERROR, "broker unable to service, until %s,%03d", text, (int)(open_ms % 1000));
}

static void run_send(struct broker *broker, struct send_context *context)
{
    const struct send_message_request_header *header = &context->header;
    const struct reply_to *to = &context->reply_to;
    struct slice name = header->topic;

    int64_t open_ms = broker->config.start_accept_send_request_time_stamp;
    if (open_ms > 0 && env_now_ms(&broker->env) < open_ms) {
        refuse_until(broker, to, open_ms);
        return;
    }
    struct topic_entry *topic = topic_config_find(broker->topics, name);
    if ((broker->config.broker_permission & BROKER_PERM_WRITE) == 0 && topic != NULL && topic->config.order) {
        send_answer_refuse(broker, to, RESPONSE_NO_PERMISSION, "the broker[%s] sending message is forbidden", broker->config.broker_ip1);
        return;
    }
    if (topic == NULL) { /* a topic of the table has a legal name */
        struct error error;
        if (topic_validate(name, &error) != 0) {
            send_answer_refuse(broker, to, RESPONSE_SYSTEM_ERROR, "%s", error.message);
            return;
        }
    }
    if (topic_forbids_send(name)) {
        send_answer_refuse(broker, to, RESPONSE_NO_PERMISSION, "Sending message to topic[%.*s] is forbidden.", (int)name.size,
                           (const char *)name.data);
        return;
    }
    if (header->batch && topic_is_retry(name)) {
        send_answer_refuse(broker, to, RESPONSE_MESSAGE_ILLEGAL, "batch request does not support retry group");
        return;
    }
    if (topic == NULL) {
        defer(broker, context, name, false);
        return;
    }
    if (topic->deleting) {
        refuse_unknown_topic(broker, to, name);
        return;
    }
    int32_t write_queues = topic->config.write_queue_nums, read_queues = topic->config.read_queue_nums;
    int32_t queue_id = header->queue_id;
    if (write_queues <= 0) { /* Java stores it where consumers may or may not look */
        send_answer_refuse(broker, to, RESPONSE_NO_PERMISSION, "topic[%.*s] has no queue to write: it is being drained", (int)name.size,
                           (const char *)name.data);
        return;
    }
    if (queue_id >= (write_queues > read_queues ? write_queues : read_queues)) {
        refuse_queue(broker, context, &topic->config);
        return;
    }
    if (queue_id < 0)
        queue_id = (int32_t)(env_random(&broker->env) % (uint64_t)write_queues);
    if (to->code == REQUEST_SEND_REPLY_MESSAGE || to->code == REQUEST_SEND_REPLY_MESSAGE_V2)
        send_reply(broker->sends, context, topic, queue_id);
    else if (header->batch)
        send_batch(broker->sends, context, topic, queue_id);
    else
        send_one(broker->sends, context, topic, queue_id);
}

static void send_message(struct broker *broker, struct request *request)
{
    struct send_context context;
    struct error error;
    context.reply_to = request->reply_to;
    context.peer = request->peer;
    context.version = request->command->version;
    context.started_us = env_monotonic_us(&broker->env);
    context.body = request->command->body;
    context.deferrals = 0;
    if (send_message_request_header_decode(request->command, &context.header, &error) != 0) {
        send_answer_refuse(broker, &request->reply_to, RESPONSE_SYSTEM_ERROR, "%s", error.message);
        return;
    }
    run_send(broker, &context);
}

const struct processor_row send_message_processor_rows[] = {
    {10, "SEND_MESSAGE", send_message, PROCESSOR_FORWARD | PROCESSOR_BUFFERS},
    {310, "SEND_MESSAGE_V2", send_message, PROCESSOR_FORWARD | PROCESSOR_BUFFERS},
    {320, "SEND_BATCH_MESSAGE", send_message, PROCESSOR_FORWARD | PROCESSOR_BUFFERS},
    {REQUEST_SEND_REPLY_MESSAGE, "SEND_REPLY_MESSAGE", send_message, PROCESSOR_FORWARD | PROCESSOR_BUFFERS},
    {REQUEST_SEND_REPLY_MESSAGE_V2, "SEND_REPLY_MESSAGE_V2", send_message, PROCESSOR_FORWARD | PROCESSOR_BUFFERS},
    {36, "CONSUMER_SEND_MSG_BACK", consumer_send_msg_back, PROCESSOR_FORWARD | PROCESSOR_BUFFERS},
    {0, NULL, NULL, 0},
};
