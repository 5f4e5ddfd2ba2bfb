/* CONSUMER_SEND_MSG_BACK (36): a message that a consumer could not handle comes again later, or goes to the dead letters.
 *
 *  1. Group and retry topic (or dead letter topic) are looked up; a topic that is missing is made first.
 *  2. The record is found by its physical offset, through the mapping or, when old, by the pool.
 *  3. It is appended again with one more reconsumeTimes: into SCHEDULE_TOPIC_XXXX with its delay level, or into %DLQ%group.
 *  4. The answer waits for the commit.
 *
 * Follows SendMessageProcessor#asyncConsumerSendMsgBack 4.9.8.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "broker/broker.h"
#include "broker/broker_stats.h"
#include "broker/broker_stats_manager.h"
#include "broker/metadata/subscription_group.h"
#include "broker/metadata/topic_config.h"
#include "broker/processor/cold_read.h"
#include "broker/processor/message_append.h"
#include "broker/processor/send_message_processor.h"
#include "broker/processor/send_properties.h"
#include "broker/remoting/forward.h"
#include "broker/service/schedule.h"
#include "proto/headers.h"
#include "proto/response_code.h"
#include "proto/topic_validator.h"

#define VERSION_3_4_9 121
#define LANGUAGE_GO 9
#define STEPS_MAX 8 /* waits of one request: two topics, a read, and some that had to be done again */

struct send_back {
    struct append_entry_request append; /* first */
    struct cold_read read;
    struct broker *broker;
    struct reply_to reply_to;
    bool go_client;
    int64_t physical_offset;
    uint32_t size; /* of the record */
    int32_t delay_level;
    int32_t times_max; /* of the request; -1 = the group's */
    bool unit_mode;
    uint64_t started_us;
    int steps;
    struct stats_item *stats; /* SNDBCK_PUT_NUMS; held */
    int32_t schedule_queue; /* that it was stored in, -1 = none */
    char group[GROUP_NAME_MAX + 1];
};

static void finish(struct send_back *back, int32_t code, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void finish(struct send_back *back, int32_t code, const char *format, ...)
{
    char remark[512];
    if (code != RESPONSE_SUCCESS) {
        va_list args;
        broker_stats_put_failed(back->broker->stats);
        va_start(args, format);
        vsnprintf(remark, sizeof remark, format, args);
        va_end(args);
    }
    /* The Go client takes an error for "handled" and loses the message; without an answer it times out and tries again. */
    if (code != RESPONSE_SERVICE_NOT_AVAILABLE || !back->go_client)
        reply_simple(back->broker, &back->reply_to, code, code == RESPONSE_SUCCESS ? NULL : "%s", remark);
    else if ((back->reply_to.connection_id & REPLY_FORWARDED) != 0)
        forward_reply_none(back->broker->forward, back->reply_to.connection_id);
    stats_item_release(back->stats);
    cold_read_free(&back->read);
    free(back);
}

static void finish_code(struct send_back *back, int code)
{
    finish(back, RESPONSE_SERVICE_NOT_AVAILABLE, "%s", message_append_remark(back->broker, code));
}

static void on_appended(struct append_entry_request *append)
{
    struct send_back *back = (struct send_back *)append;
    if (append->code != 0) {
        finish_code(back, append->code);
        return;
    }
    struct broker_stats_manager *items = back->broker->item_stats;
    broker_stats_put(back->broker->stats, 1, back->size, env_monotonic_us(&back->broker->env) - back->started_us);
    stats_item_add(back->stats, 1, 0);
    if (back->schedule_queue >= 0) { /* dead letters are counted for no topic, as in Java */
        struct slice schedule = SLICE_LITERAL(TOPIC_SCHEDULE), none = slice_of(NULL, 0);
        stats_item_add(broker_stats_manager_item(items, STATS_TOPIC_PUT, schedule, 0, none), 1, back->size);
        stats_item_add(broker_stats_manager_item(items, STATS_QUEUE_PUT, schedule, back->schedule_queue, none), 1, back->size);
    }
    finish(back, RESPONSE_SUCCESS, "success");
}

static void step(struct send_back *back);

static void on_topic_ready(struct broker *broker, void *argument, int code)
{
    struct send_back *back = argument;
    (void)broker;
    if (code == 0)
        step(back);
    else
        finish_code(back, code);
}

/* NULL: it is being made and `step` runs again, or the request has been answered. */
static struct topic_entry *need_topic(struct send_back *back, const char *prefix, int32_t queues)
{
    struct broker *broker = back->broker;
    char name[GROUP_NAME_MAX + 16];
    snprintf(name, sizeof name, "%s%s", prefix, back->group);
    struct topic_entry *topic = topic_config_find(broker->topics, slice_of_text(name));
    if (topic != NULL && topic->deleting) {
        finish(back, RESPONSE_SERVICE_NOT_AVAILABLE, "the topic[%s] is being deleted", name);
        return NULL;
    }
    if (topic != NULL && (topic->config.perm & PERM_WRITE) == 0) {
        finish(back, RESPONSE_NO_PERMISSION, "the topic[%s] sending message is forbidden", name);
        return NULL;
    }
    if (topic != NULL)
        return topic;
    int rv;
    if (++back->steps >= STEPS_MAX) {
        rv = broker_stats_busy(broker->stats, LIMIT_HIT_TOPICS); /* it is made, and gone again, each time */
    } else {
        rv = topic_config_create_in_send_back(broker, slice_of_text(name), queues, PERM_READ | PERM_WRITE,
                                              back->unit_mode ? TOPIC_SYS_FLAG_UNIT_SUB : 0, on_topic_ready, back);
    }
    if (rv == ERROR_NOT_FOUND || rv == ERROR_INVALID)
        finish(back, RESPONSE_SYSTEM_ERROR, "topic[%s] not exist", name);
    else if (rv == ERROR_EXISTS)
        step(back);
    else if (rv != 0)
        finish_code(back, rv);
    return NULL;
}

static void write_properties(struct send_back *back, struct buffer *out, const struct message_record *record, int level,
                             const struct topic_entry *retry, int32_t retry_queue)
{
    static const char *const replaced[] = {"WAIT", "DELAY", "REAL_TOPIC", "REAL_QID", "ORIGIN_MESSAGE_ID", NULL};
    char text[MESSAGE_ID_TEXT_MAX];
    message_properties_copy(out, 0, record->properties, replaced);
    if (message_property(record->properties, "RETRY_TOPIC").data == NULL)
        message_property_append(out, 0, SLICE_LITERAL("RETRY_TOPIC"), record->topic);
    struct slice origin = message_property(record->properties, "ORIGIN_MESSAGE_ID");
    if (origin.data == NULL)
        origin = slice_of(text, message_id_format(&record->store_host, back->physical_offset, text));
    message_property_append(out, 0, SLICE_LITERAL("ORIGIN_MESSAGE_ID"), origin);
    message_property_append(out, 0, SLICE_LITERAL("WAIT"), SLICE_LITERAL("false"));
    if (level > 0) {
        char level_text[12];
        int size = snprintf(level_text, sizeof level_text, "%d", level);
        message_property_append(out, 0, SLICE_LITERAL("DELAY"), slice_of(level_text, (size_t)size));
        send_properties_add_destination(out, 0, retry->config.name, retry_queue);
    }
}

/* origin: the topic that the consumer subscribed to. */
static void count_for(struct send_back *back, struct slice origin, int32_t schedule_queue)
{
    back->stats = broker_stats_manager_item(back->broker->item_stats, STATS_SNDBCK_PUT, origin, 0, slice_of_text(back->group));
    stats_item_hold(back->stats);
    back->schedule_queue = schedule_queue;
}

/* The group may have got more retry queues since its retry topic was made; nobody would read what is stored in those (Java stores it there). */
static int32_t random_queue(struct send_back *back, const struct subscription_group_config *group, const struct topic_entry *retry)
{
    int32_t count = group->retry_queue_nums;
    if (count > retry->config.read_queue_nums)
        count = retry->config.read_queue_nums;
    return count <= 1 ? 0 : (int32_t)(env_random(&back->broker->env) % (uint64_t)count);
}

/* The record's bytes are here. retry: the group's retry topic. */
static void append_again(struct send_back *back, struct slice bytes, const struct subscription_group_config *group, struct topic_entry *retry)
{
    struct broker *broker = back->broker;
    struct message_record record;
    int rv = message_record_decode(bytes, false, &record);
    if (rv != 0) {
        finish(back, RESPONSE_SYSTEM_ERROR, "look message by offset failed, %lld", (long long)back->physical_offset);
        return;
    }
    int32_t times_max = back->times_max >= 0 ? back->times_max : group->retry_max_times;
    bool dead = record.reconsume_times >= times_max || back->delay_level < 0;
    struct topic_entry *topic = dead ? need_topic(back, TOPIC_DLQ_PREFIX, 1) : retry;
    if (topic == NULL)
        return;
    int32_t queue_id = dead ? 0 : random_queue(back, group, retry);
    int level = 0;
    if (!dead) {
        level = back->delay_level == 0 ? 3 + record.reconsume_times : back->delay_level;
        level = level > broker->config.delay_levels ? broker->config.delay_levels : level;
    }
    struct topic_entry *stored = level > 0 ? topic_config_find(broker->topics, SLICE_LITERAL(TOPIC_SCHEDULE)) : topic;
    struct consume_queue *queue =
        stored == NULL ? NULL : topic_config_queue(stored, &broker->store, level > 0 ? level - 1 : queue_id);
    struct buffer properties;
    buffer_init(&properties, 0);
    write_properties(back, &properties, &record, level, topic, queue_id);
    if (queue == NULL || properties.failed || properties.size > MESSAGE_PROPERTIES_MAX) {
        buffer_close(&properties);
        finish(back, RESPONSE_SYSTEM_ERROR, "%s", queue == NULL ? "the queue's files cannot be made" : "PROPERTIES_SIZE_EXCEEDED");
        return;
    }
    struct slice origin = message_property(record.properties, "RETRY_TOPIC");
    count_for(back, origin.data != NULL ? origin : record.topic, level > 0 ? level - 1 : -1);
    record.topic = stored->config.name;
    record.properties = buffer_slice(&properties);
    record.reconsume_times++;
    record.prepared_transaction_offset = 0;
    back->append.done = on_appended;
    rv = message_append(broker, queue, &record, slice_of(NULL, 0), &back->append);
    buffer_close(&properties);
    if (rv != 0)
        finish_code(back, rv);
}

static void on_read(struct broker *broker, struct cold_read *read, int code)
{
    struct send_back *back = (struct send_back *)((uint8_t *)read - offsetof(struct send_back, read));
    (void)broker;
    if (code == 0)
        step(back);
    else if (code == ERROR_NOT_FOUND)
        finish(back, RESPONSE_SYSTEM_ERROR, "look message by offset failed, %lld", (long long)back->physical_offset);
    else
        finish_code(back, code);
}

/* Runs from the start after each wait: what it found before may have changed. */
static void step(struct send_back *back)
{
    struct broker *broker = back->broker;
    if (!dledger_commit_log_accepting(broker->log)) {
        finish_code(back, ERROR_NOT_LEADER);
        return;
    }
    const struct subscription_group_config *group = subscription_group_need(broker, slice_of_text(back->group));
    if (group == NULL) {
        finish(back, RESPONSE_SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group not exist, %s" FAQ_SUGGESTION, back->group);
        return;
    }
    if ((broker->config.broker_permission & BROKER_PERM_WRITE) == 0) {
        finish(back, RESPONSE_NO_PERMISSION, "the broker[%s] sending message is forbidden", broker->config.broker_ip1);
        return;
    }
    if (group->retry_queue_nums <= 0) {
        finish(back, RESPONSE_SUCCESS, "success");
        return;
    }
    struct topic_entry *retry = need_topic(back, TOPIC_RETRY_PREFIX, group->retry_queue_nums);
    if (retry == NULL)
        return;
    if (back->read.bytes != NULL) {
        append_again(back, slice_of(back->read.bytes, back->read.size), group, retry);
        return;
    }
    back->size = message_store_record_size(&broker->store, back->physical_offset);
    if (back->size == 0) {
        finish(back, RESPONSE_SYSTEM_ERROR, "look message by offset failed, %lld", (long long)back->physical_offset);
        return;
    }
    const uint8_t *bytes = cold_read_at_hand(broker, back->physical_offset, back->size);
    if (bytes != NULL) {
        append_again(back, slice_of(bytes, back->size), group, retry);
        return;
    }
    int rv = ++back->steps >= STEPS_MAX ? broker_stats_busy(broker->stats, LIMIT_HIT_COLD_READS)
                                        : cold_read_start_one(broker->cold_reads, &back->read, back->physical_offset, back->size, on_read);
    if (rv != 0)
        finish_code(back, rv);
}

void consumer_send_msg_back(struct broker *broker, struct request *request)
{
    struct consumer_send_msg_back_request_header header;
    struct error error;
    if (consumer_send_msg_back_request_header_decode(request->command, &header, &error) != 0) {
        reply_simple(broker, &request->reply_to, RESPONSE_SYSTEM_ERROR, "%s", error.message);
        return;
    }
    if (consumer_group_validate(header.group, &error) != 0) {
        reply_simple(broker, &request->reply_to, RESPONSE_SYSTEM_ERROR, "%s", error.message);
        return;
    }
    struct send_back *back = calloc(1, sizeof *back);
    if (back == NULL) {
        reply_simple(broker, &request->reply_to, RESPONSE_SERVICE_NOT_AVAILABLE, "%s", error_text(ERROR_NO_MEMORY));
        return;
    }
    back->broker = broker;
    back->reply_to = request->reply_to;
    back->go_client = request->command->language == LANGUAGE_GO;
    back->physical_offset = header.offset;
    back->delay_level = header.delay_level;
    bool counts = request->command->version >= VERSION_3_4_9 && header.has_max_reconsume_times && header.max_reconsume_times >= 0;
    back->times_max = counts ? header.max_reconsume_times : -1;
    back->unit_mode = header.unit_mode;
    back->started_us = env_monotonic_us(&broker->env);
    memcpy(back->group, header.group.data, header.group.size);
    step(back);
}
