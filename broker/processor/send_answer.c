#include "broker/processor/send_answer.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "broker/broker.h"
#include "broker/broker_stats.h"
#include "broker/broker_stats_manager.h"
#include "broker/limits.h"
#include "broker/processor/message_append.h"
#include "broker/processor/send_message_processor.h"
#include "broker/remoting/connection.h"
#include "broker/remoting/listener.h"
#include "broker/service/disk_level.h"
#include "proto/message.h"
#include "proto/response_code.h"
#include "proto/topic_validator.h"

#define PENDING_SLAB 256u

struct pending_slab {
    struct pending_slab *next;
    struct pending_send sends[PENDING_SLAB];
};

void send_answer_init(struct send_answers *answers, struct broker *broker)
{
    *answers = (struct send_answers){.broker = broker};
    buffer_init(&answers->ids, 0);
}

void send_answer_close(struct send_answers *answers)
{
    assert(answers->waiting == 0);
    while (answers->slabs != NULL) {
        struct pending_slab *next = answers->slabs->next;
        free(answers->slabs);
        answers->slabs = next;
    }
    buffer_close(&answers->ids);
}

uint64_t send_answer_oldest_ms(const struct send_answers *answers)
{
    uint64_t now_us = env_monotonic_us(&answers->broker->env), oldest_us = now_us;
    for (const struct pending_slab *slab = answers->slabs; slab != NULL && answers->waiting > 0; slab = slab->next) {
        for (uint32_t i = 0; i < PENDING_SLAB; i++) {
            if (slab->sends[i].started_us != 0 && slab->sends[i].started_us < oldest_us)
                oldest_us = slab->sends[i].started_us;
        }
    }
    return (now_us - oldest_us) / 1000;
}

/* ---- refusals ---- */

/* Every answer to a send carries these two, errors too: Go takes a missing TRACE_ON for "off". */
void send_message_write_region(struct broker *broker, struct remoting_writer *writer)
{
    remoting_writer_ext_text(writer, "MSG_REGION", broker->config.region_id);
    remoting_writer_ext_text(writer, "TRACE_ON", broker->config.trace_on ? "true" : "false");
}

void send_answer_refuse(struct broker *broker, const struct reply_to *to, int32_t code, const char *format, ...)
{
    struct remoting_writer writer;
    char remark[512];
    va_list args;
    broker_stats_put_failed(broker->stats);
    if (to->oneway)
        return;
    va_start(args, format);
    vsnprintf(remark, sizeof remark, format, args);
    va_end(args);
    if (!reply_begin(broker, to, &writer, code, remark))
        return;
    send_message_write_region(broker, &writer);
    reply_end(broker, to, &writer);
}

void send_answer_code(struct broker *broker, const struct reply_to *to, int code)
{
    if (code == ERROR_TOO_LARGE)
        send_answer_refuse(broker, to, RESPONSE_MESSAGE_ILLEGAL, "the message is illegal: it does not fit an entry of the log");
    else
        send_answer_refuse(broker, to, RESPONSE_SERVICE_NOT_AVAILABLE, "%s", message_append_remark(broker, code));
}

void send_answer_illegal(struct broker *broker, const struct reply_to *to)
{
    send_answer_refuse(broker, to, RESPONSE_MESSAGE_ILLEGAL,
           "the message is illegal, maybe msg body or properties length not matched. msg body length limit %dB, msg properties length limit "
           "32KB.",
           broker->config.max_message_size);
}

/* ---- pending sends ---- */

void send_answer_give(struct pending_send *pending)
{
    struct send_answers *answers = pending->answers;
    struct connection *connection = remoting_server_find(answers->broker->server, pending->reply_to.connection_id);
    if (connection != NULL)
        connection->pending_sends--;
    free(pending->batch_offsets);
    stats_item_release(pending->stats);
    pending->stats = NULL;
    pending->batch_offsets = NULL;
    pending->started_us = 0;
    pending->next_free = answers->free_sends;
    answers->free_sends = pending;
    answers->waiting--;
}

void send_answer_count_for(struct pending_send *pending, struct slice topic)
{
    pending->stats = broker_stats_manager_item(pending->answers->broker->item_stats, STATS_TOPIC_PUT, topic, 0, slice_of(NULL, 0));
    stats_item_hold(pending->stats);
}

static void answer_success(struct send_answers *answers, const struct pending_send *pending)
{
    struct broker *broker = answers->broker;
    struct remoting_writer writer;
    char id[MESSAGE_ID_TEXT_MAX];
    if (!reply_begin(broker, &pending->reply_to, &writer, RESPONSE_SUCCESS, NULL))
        return;
    if (pending->batch_offsets == NULL) {
        size_t size = message_id_format(&broker->store_host, pending->physical_offset, id);
        remoting_writer_ext(&writer, "msgId", slice_of(id, size));
    } else {
        buffer_clear(&answers->ids);
        for (uint32_t i = 0; i < pending->messages; i++) {
            if (i > 0)
                buffer_append_u8(&answers->ids, ',');
            buffer_append(&answers->ids, id, message_id_format(&broker->store_host, pending->batch_offsets[i], id));
        }
        remoting_writer_ext(&writer, "msgId", buffer_slice(&answers->ids));
    }
    remoting_writer_ext_i64(&writer, "queueId", pending->queue_id);
    remoting_writer_ext_i64(&writer, "queueOffset", pending->queue_offset);
    send_message_write_region(broker, &writer);
    reply_end(broker, &pending->reply_to, &writer);
}

static void on_appended(struct append_entry_request *append)
{
    struct pending_send *pending = (struct pending_send *)append;
    struct send_answers *answers = pending->answers;
    struct broker *broker = answers->broker;
    if (append->code == 0) {
        answer_success(answers, pending);
        broker_stats_put_topic(broker->stats, pending->stats, pending->messages, pending->bytes,
                               env_monotonic_us(&broker->env) - pending->started_us);
        if (pending->schedule_queue >= 0)
            stats_item_add(broker_stats_manager_item(broker->item_stats, STATS_QUEUE_PUT, SLICE_LITERAL(TOPIC_SCHEDULE), pending->schedule_queue,
                                                     slice_of(NULL, 0)),
                           pending->messages, pending->bytes);
    } else {
        send_answer_code(broker, &pending->reply_to, append->code);
    }
    send_answer_give(pending);
}

static bool grow(struct send_answers *answers)
{
    if (answers->allocated + PENDING_SLAB > LIMIT_PENDING_SENDS)
        return false;
    struct pending_slab *slab = malloc(sizeof *slab);
    if (slab == NULL)
        return false;
    slab->next = answers->slabs;
    answers->slabs = slab;
    answers->allocated += PENDING_SLAB;
    for (uint32_t i = 0; i < PENDING_SLAB; i++) {
        slab->sends[i].started_us = 0;
        slab->sends[i].next_free = answers->free_sends;
        answers->free_sends = &slab->sends[i];
    }
    return true;
}

struct pending_send *send_answer_take(struct send_answers *answers, const struct reply_to *to)
{
    struct broker *broker = answers->broker;
    struct connection *connection = remoting_server_find(broker->server, to->connection_id);
    const char *refusal = disk_level_refusal(broker->disk);
    if (refusal != NULL) {
        send_answer_refuse(broker, to, RESPONSE_SERVICE_NOT_AVAILABLE, "%s: %s", broker_stats_refuse(broker->stats, LIMIT_HIT_DISK), refusal);
        return NULL;
    }
    if (connection != NULL && connection->pending_sends >= LIMIT_PENDING_SENDS_CONNECTION) {
        send_answer_refuse(broker, to, RESPONSE_SERVICE_NOT_AVAILABLE, "%s", broker_stats_refuse(broker->stats, LIMIT_HIT_CONNECTION_SENDS));
        return NULL;
    }
    if (answers->free_sends == NULL && !grow(answers)) {
        send_answer_refuse(broker, to, RESPONSE_SERVICE_NOT_AVAILABLE, "%s", broker_stats_refuse(broker->stats, LIMIT_HIT_PENDING_SENDS));
        return NULL;
    }
    if (connection != NULL)
        connection->pending_sends++;
    struct pending_send *pending = answers->free_sends;
    answers->free_sends = pending->next_free;
    answers->waiting++;
    pending->reply_to = *to;
    pending->append.done = on_appended;
    pending->answers = answers;
    pending->batch_offsets = NULL;
    pending->stats = NULL;
    pending->schedule_queue = -1;
    return pending;
}
