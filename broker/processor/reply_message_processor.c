/* Request-reply: a reply (324, 325) is handed to the requester that waits for it (326) and stored in its topic.
 *
 *  1. The checks of a send have been passed (send_message_processor); the requester is the producer whose client id is in REPLY_TO_CLIENT.
 *  2. The reply goes to it and, with storeReplyMessageEnable, into the log at the same time.
 *  3. When both are known the answer is sent: its code tells whether the requester took the reply, its ids where it is stored. A store that fails changes
 *     no code, and a requester that is gone does not keep the reply from being stored.
 *
 * Follows org.apache.rocketmq.broker.processor.ReplyMessageProcessor 4.9.8, which stores only after the push was answered.
 */
#include <stdlib.h>

#include "broker/broker.h"
#include "broker/broker_stats.h"
#include "broker/broker_stats_manager.h"
#include "broker/limits.h"
#include "broker/metadata/topic_config.h"
#include "broker/processor/message_append.h"
#include "broker/processor/send_message_processor.h"
#include "broker/processor/send_properties.h"
#include "broker/remoting/client_call.h"
#include "broker/remoting/client_registry.h"
#include "proto/headers.h"
#include "proto/request_code.h"
#include "proto/response_code.h"

#define REPLY_TO_CLIENT "REPLY_TO_CLIENT"
#define REMARK_MAX 384

struct reply_message {
    struct append_entry_request append; /* first */
    struct broker *broker;
    struct reply_to reply_to;
    uint32_t left; /* of push and store, and this handler */
    bool pushed;
    bool stored;
    int32_t queue_id;
    int64_t queue_offset, physical_offset;
    struct stats_item *stats; /* of the topic; held */
    uint64_t bytes, started_us;
    char remark[REMARK_MAX]; /* why it was not pushed */
};

static void answer(struct reply_message *reply)
{
    struct broker *broker = reply->broker;
    struct remoting_writer writer;
    char id[MESSAGE_ID_TEXT_MAX] = "0";
    size_t id_size = 1;
    if (!reply_begin(broker, &reply->reply_to, &writer, reply->pushed ? RESPONSE_SUCCESS : RESPONSE_SYSTEM_ERROR, reply->pushed ? NULL : reply->remark))
        return;
    if (reply->stored)
        id_size = message_id_format(&broker->store_host, reply->physical_offset, id);
    if (reply->stored || reply->pushed) {
        remoting_writer_ext(&writer, "msgId", slice_of(id, id_size));
        remoting_writer_ext_i64(&writer, "queueId", reply->queue_id);
        remoting_writer_ext_i64(&writer, "queueOffset", reply->stored ? reply->queue_offset : 0);
    }
    send_message_write_region(broker, &writer);
    reply_end(broker, &reply->reply_to, &writer);
}

static void part_done(struct reply_message *reply)
{
    if (--reply->left > 0)
        return;
    answer(reply);
    stats_item_release(reply->stats);
    free(reply);
}

/* ---- the push ---- */

static void on_pushed(struct broker *broker, void *context, int code, const struct remoting_command *reply_answer)
{
    struct reply_message *reply = context;
    (void)broker;
    reply->pushed = code == 0 && reply_answer->code == RESPONSE_SUCCESS;
    part_done(reply);
}

/* The properties of the reply, and when it was pushed. */
static void push_properties(struct broker *broker, struct slice properties, struct buffer *out)
{
    static const char *const replaced[] = {"PUSH_REPLY_TIME", NULL};
    char number[24];
    int size = snprintf(number, sizeof number, "%lld", (long long)env_now_ms(&broker->env));
    message_properties_copy(out, 0, properties, replaced);
    message_property_append(out, 0, SLICE_LITERAL("PUSH_REPLY_TIME"), slice_of(number, (size_t)size));
}

static void push(struct reply_message *reply, const struct reply_send *send)
{
    struct broker *broker = reply->broker;
    const struct send_message_request_header *from = send->header;
    struct slice requester = message_property(from->properties, REPLY_TO_CLIENT);
    if (requester.data == NULL) {
        snprintf(reply->remark, sizeof reply->remark, "reply message properties[" REPLY_TO_CLIENT "] is null");
        return;
    }
    int shown = requester.size > 255 ? 255 : (int)requester.size;
    struct client_channel *channel = client_registry_producer(broker->clients, requester);
    if (channel == NULL) {
        snprintf(reply->remark, sizeof reply->remark, "push reply message fail, channel of <%.*s> not found.", shown,
                 (const char *)requester.data);
        return;
    }
    snprintf(reply->remark, sizeof reply->remark, "push reply message to %.*sfail.", shown, (const char *)requester.data);

    struct remoting_writer writer;
    struct buffer properties;
    char born_host[64], store_host[64];
    uint64_t connection_id = channel->connection_id;
    message_host_format(send->peer, born_host, sizeof born_host);
    message_host_format(&broker->store_host, store_host, sizeof store_host);
    buffer_init(&properties, 0);
    push_properties(broker, from->properties, &properties);
    if (!properties.failed && client_call_begin(broker, connection_id, REQUEST_PUSH_REPLY_MESSAGE_TO_CLIENT, &writer) == 0) {
        const struct reply_message_request_header header = {
            .producer_group = from->producer_group,
            .topic = from->topic,
            .default_topic = from->default_topic,
            .default_topic_queue_nums = from->default_topic_queue_nums,
            .queue_id = from->queue_id,
            .sys_flag = from->sys_flag,
            .born_timestamp_ms = from->born_timestamp_ms,
            .flag = from->flag,
            .properties = buffer_slice(&properties),
            .reconsume_times = from->reconsume_times,
            .has_reconsume_times = true,
            .unit_mode = from->unit_mode,
            .has_unit_mode = true,
            .born_host = slice_of_text(born_host),
            .store_host = slice_of_text(store_host),
            .store_timestamp_ms = env_now_ms(&broker->env),
        };
        reply_message_request_header_encode(&header, &writer);
        remoting_writer_body(&writer);
        buffer_append_slice(writer.out, send->body);
        reply->left++;
        client_call_end(broker, connection_id, &writer, LIMIT_CLIENT_CALL_MS, on_pushed, reply);
    }
    buffer_close(&properties);
}

/* ---- the store ---- */

static void on_stored(struct append_entry_request *append)
{
    struct reply_message *reply = (struct reply_message *)append;
    struct broker *broker = reply->broker;
    reply->stored = append->code == 0;
    if (reply->stored)
        broker_stats_put_topic(broker->stats, reply->stats, 1, reply->bytes, env_monotonic_us(&broker->env) - reply->started_us);
    else
        broker_stats_put_failed(broker->stats);
    part_done(reply);
}

/* Its answer does not hang on it: what cannot be stored is left out. */
static void store(struct reply_message *reply, const struct reply_send *send)
{
    struct broker *broker = reply->broker;
    const struct send_message_request_header *from = send->header;
    struct consume_queue *queue = topic_config_queue(send->topic, &broker->store, send->queue_id);
    struct send_properties properties;
    struct buffer scratch;
    buffer_init(&scratch, 4 * MESSAGE_PROPERTIES_MAX);
    send_properties_make(&scratch, from->properties, send->cluster_tail, send->region_tail, true, &properties);
    int rv = ERROR_TOO_LARGE;
    if (queue != NULL && !properties.too_long && !scratch.failed && send->body.size <= (size_t)broker->config.max_message_size) {
        struct message_record record = {
            .flag = from->flag,
            .sys_flag = (from->sys_flag & ~MESSAGE_TRANSACTION_MASK) | (send->topic->config.multi_tag ? MESSAGE_MULTI_TAGS : 0),
            .born_timestamp_ms = from->born_timestamp_ms,
            .born_host = *send->peer,
            .reconsume_times = from->reconsume_times,
            .body = send->body,
            .topic = send->topic->config.name,
            .properties = properties.text,
        };
        reply->append.done = on_stored;
        rv = message_append(broker, queue, &record, slice_of(NULL, 0), &reply->append);
        reply->queue_offset = record.queue_offset;
        reply->physical_offset = record.physical_offset;
        reply->bytes = record.total_size;
    }
    if (rv == 0) {
        reply->left++;
        reply->stats = broker_stats_manager_item(broker->item_stats, STATS_TOPIC_PUT, send->topic->config.name, 0, slice_of(NULL, 0));
        stats_item_hold(reply->stats);
    } else {
        broker_stats_put_failed(broker->stats);
    }
    buffer_close(&scratch);
}

void reply_message_send(struct broker *broker, const struct reply_send *send)
{
    struct reply_message *reply = calloc(1, sizeof *reply);
    if (reply == NULL) {
        reply_simple(broker, send->reply_to, RESPONSE_SERVICE_NOT_AVAILABLE, "%s", error_text(ERROR_NO_MEMORY));
        return;
    }
    reply->broker = broker;
    reply->reply_to = *send->reply_to;
    reply->left = 1;
    reply->queue_id = send->queue_id;
    reply->started_us = env_monotonic_us(&broker->env);
    push(reply, send);
    if (broker->config.store_reply_message_enable)
        store(reply, send);
    part_done(reply);
}
