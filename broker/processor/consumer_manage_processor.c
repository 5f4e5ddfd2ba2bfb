/* What consumers ask about their group: offsets 14 and 15, member list 38, queue locks 41 and 42.
 *
 * Follows ConsumerManageProcessor and AdminBrokerProcessor#lockBatchMQ of RocketMQ 4.9.8. Clients take any error of 14 as "no offset" and skip to the
 * end of the queue, so 14 is answered 0 or 22 or not at all.
 */
#include <stdlib.h>

#include "broker/broker.h"
#include "broker/metadata/consumer_offset.h"
#include "broker/metadata/metadata.h"
#include "broker/metadata/queue_lock.h"
#include "broker/processor/processor.h"
#include "broker/processor/reply.h"
#include "broker/remoting/client_registry.h"
#include "broker/remoting/connection.h"
#include "broker/remoting/forward.h"
#include "broker/remoting/listener.h"
#include "proto/consumer_id_list.h"
#include "proto/headers.h"
#include "proto/lock_batch.h"
#include "proto/request_code.h"
#include "proto/response_code.h"

#define NAME_MAX_BYTES 255u

/* ---- QUERY_CONSUMER_OFFSET ---- */

struct offset_question {
    struct reply_to reply_to;
    bool zero_if_not_found;
    int32_t queue_id;
    size_t group_size;
    size_t topic_size;
    uint8_t names[]; /* group, topic */
};

/* No answer at all: the connection is closed, and the client asks again on a new one. */
static void question_fail(struct broker *broker, const struct reply_to *to)
{
    if ((to->connection_id & REPLY_FORWARDED) != 0) {
        forward_reply_none(broker->forward, to->connection_id);
        return;
    }
    struct connection *connection = remoting_server_find(broker->server, to->connection_id);
    if (connection != NULL && !to->oneway)
        connection_close(connection);
}

/* MessageStore#checkInDiskByConsumeOffset: the first message lies further behind than what counts as memory. */
static bool first_is_in_disk(struct broker *broker, struct slice topic, int32_t queue_id)
{
    struct consume_queue *queue = message_store_queue(&broker->store, topic, queue_id, false, NULL);
    struct consume_queue_unit unit;
    if (queue == NULL || !message_store_unit(&broker->store, queue, 0, &unit))
        return false;
    return broker->store.log.committed_offset(broker->store.log.context) - unit.physical_offset > broker->config.message_memory_bytes;
}

static void answer_offset(struct broker *broker, const struct reply_to *to, struct slice group, struct slice topic, int32_t queue_id,
                          bool zero_if_not_found)
{
    struct remoting_writer writer;
    int64_t offset = consumer_offset_find(broker->offsets, group, topic, queue_id);
    /* A group that is new on a young topic begins at its first message: LAST_OFFSET would skip what was sent while the group started. */
    if (offset < 0 && zero_if_not_found && message_store_min_offset(&broker->store, topic, queue_id) <= 0 &&
        !first_is_in_disk(broker, topic, queue_id))
        offset = 0;
    if (offset < 0) {
        reply_simple(broker, to, RESPONSE_QUERY_NOT_FOUND, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first");
    } else if (reply_begin(broker, to, &writer, RESPONSE_SUCCESS, NULL)) {
        remoting_writer_ext_i64(&writer, "offset", offset);
        reply_end(broker, to, &writer);
    }
}

static void question_settled(struct broker *broker, void *context, int code)
{
    struct offset_question *question = context;
    if (code == 0)
        answer_offset(broker, &question->reply_to, slice_of(question->names, question->group_size),
                      slice_of(question->names + question->group_size, question->topic_size), question->queue_id, question->zero_if_not_found);
    else
        question_fail(broker, &question->reply_to);
    free(question);
}

static void query_consumer_offset(struct broker *broker, struct request *request)
{
    struct query_consumer_offset_request_header header;
    struct error error;
    if (query_consumer_offset_request_header_decode(request->command, &header, &error) != 0) {
        reply_error(broker, &request->reply_to, &error);
        return;
    }
    struct slice group = header.consumer_group;
    struct slice topic = header.topic;
    struct offset_question *question = NULL;
    int rv = ERROR_NOT_FOUND;
    if (group.size <= NAME_MAX_BYTES && topic.size <= NAME_MAX_BYTES) {
        question = calloc(1, sizeof *question + group.size + topic.size);
        rv = ERROR_NO_MEMORY;
    }
    if (question != NULL) {
        question->reply_to = request->reply_to;
        question->zero_if_not_found = header.set_zero_if_not_found;
        question->queue_id = header.queue_id;
        question->group_size = group.size;
        question->topic_size = topic.size;
        memcpy(question->names, group.data, group.size);
        memcpy(question->names + group.size, topic.data, topic.size);
        rv = consumer_offset_settle(broker, group, topic, header.queue_id, question_settled, question);
    }
    if (rv == 0)
        return;
    free(question);
    if (rv == ERROR_NOT_FOUND)
        answer_offset(broker, &request->reply_to, group, topic, header.queue_id, header.set_zero_if_not_found);
    else
        question_fail(broker, &request->reply_to);
}

/* ---- UPDATE_CONSUMER_OFFSET ---- */

struct reply_wait {
    struct reply_to reply_to;
};

static void offset_stored(struct broker *broker, void *context, int code)
{
    struct reply_wait *wait = context;
    reply_settled(broker, &wait->reply_to, code);
    free(wait);
}

static void update_consumer_offset(struct broker *broker, struct request *request)
{
    struct update_consumer_offset_request_header header;
    struct error error;
    if (update_consumer_offset_request_header_decode(request->command, &header, &error) != 0) {
        reply_error(broker, &request->reply_to, &error);
        return;
    }
    if (request->reply_to.oneway) {
        consumer_offset_commit(broker, header.consumer_group, header.topic, header.queue_id, header.commit_offset);
        return;
    }
    /* ali-ons commits -1 before it has consumed anything. */
    if (header.commit_offset < 0) {
        reply_simple(broker, &request->reply_to, RESPONSE_SUCCESS, NULL);
        return;
    }
    struct reply_wait *wait = calloc(1, sizeof *wait);
    int rv = ERROR_NO_MEMORY;
    if (wait != NULL) {
        wait->reply_to = request->reply_to;
        rv = consumer_offset_commit_wait(broker, header.consumer_group, header.topic, header.queue_id, header.commit_offset, offset_stored, wait);
    }
    if (rv == 0)
        return;
    free(wait);
    if (rv == ERROR_EXISTS)
        reply_simple(broker, &request->reply_to, RESPONSE_SUCCESS, NULL);
    else if (rv == ERROR_NOT_FOUND)
        reply_simple(broker, &request->reply_to, RESPONSE_TOPIC_NOT_EXIST, "the topic[%.*s] is being deleted", (int)header.topic.size,
                     (const char *)header.topic.data);
    else if (rv == ERROR_INVALID)
        reply_simple(broker, &request->reply_to, RESPONSE_SYSTEM_ERROR, "consumerGroup, topic or queueId is out of range");
    else
        reply_not_now(broker, &request->reply_to, rv);
}

/* What a follower gathered from its pulls. */
static void offset_delta(struct broker *broker, struct request *request)
{
    if (!request->forwarded) {
        reply_simple(broker, &request->reply_to, RESPONSE_REQUEST_CODE_NOT_SUPPORTED, " request type %d not supported", request->reply_to.code);
        return;
    }
    struct slice body = request->command->body;
    Ledgermq__MetadataRecord *record = ledgermq__metadata_record__unpack(NULL, body.size, body.data);
    for (size_t i = 0; record != NULL && i < record->n_offsets; i++)
        consumer_offset_commit(broker, slice_of_text(record->offsets[i]->group), slice_of_text(record->offsets[i]->topic),
                               record->offsets[i]->queue_id, record->offsets[i]->offset);
    if (record != NULL)
        ledgermq__metadata_record__free_unpacked(record, NULL);
}

/* ---- GET_CONSUMER_LIST_BY_GROUP ---- */

static void get_consumer_list(struct broker *broker, struct request *request)
{
    struct consumer_group_request_header header;
    struct error error;
    if (consumer_group_request_header_decode(request->command, &header, &error) != 0) {
        reply_error(broker, &request->reply_to, &error);
        return;
    }
    struct client_group *group = client_registry_consumer_group(broker->clients, header.consumer_group);
    if (group == NULL) {
        reply_simple(broker, &request->reply_to, RESPONSE_SYSTEM_ERROR, "no consumer for this group, %.*s", (int)header.consumer_group.size,
                     (const char *)header.consumer_group.data);
        return;
    }
    struct remoting_writer writer;
    if (!reply_body_begin(broker, &request->reply_to, &writer))
        return;
    consumer_id_list_begin(writer.out);
    for (struct client_channel *channel = group->channels; channel != NULL; channel = channel->group_next) {
        /* A client that came back before its old connection was seen to close stands there twice: its members divide queues by this list. */
        if (client_registry_channel(group, slice_of_text(channel->client_id)) == channel)
            consumer_id_list_add(writer.out, slice_of_text(channel->client_id));
    }
    consumer_id_list_end(writer.out);
    reply_end(broker, &request->reply_to, &writer);
}

/* ---- LOCK_BATCH_MQ, UNLOCK_BATCH_MQ ---- */

struct lock_wait {
    struct reply_to reply_to;
    struct buffer body; /* empty for an unlock */
};

static void lock_wait_free(struct lock_wait *wait)
{
    if (wait == NULL)
        return;
    buffer_close(&wait->body);
    free(wait);
}

static void locks_recorded(struct broker *broker, void *context, int code)
{
    struct lock_wait *wait = context;
    struct remoting_writer writer;
    if (code != 0) {
        reply_not_now(broker, &wait->reply_to, code);
    } else if (reply_begin(broker, &wait->reply_to, &writer, RESPONSE_SUCCESS, NULL)) {
        if (wait->body.size > 0) {
            remoting_writer_body(&writer);
            buffer_append_slice(writer.out, buffer_slice(&wait->body));
        }
        reply_end(broker, &wait->reply_to, &writer);
    }
    lock_wait_free(wait);
}

static void granted_body(struct buffer *out, const struct lock_batch_request *batch, const struct queue_lock_item *items)
{
    lock_batch_response_begin(out);
    for (size_t i = 0; i < batch->queue_count; i++) {
        if (items[i].granted)
            lock_batch_response_add(out, &batch->queues[i]);
    }
    lock_batch_response_end(out);
}

static void lock_or_unlock(struct broker *broker, struct request *request, bool lock)
{
    struct lock_batch_request batch;
    struct error error;
    if (lock_batch_request_decode(&batch, request->command->body, &error) != 0) {
        reply_body_error(broker, &request->reply_to, &error);
        return;
    }
    if (batch.queue_count > QUEUE_LOCK_BATCH_MAX) {
        reply_simple(broker, &request->reply_to, RESPONSE_SYSTEM_ERROR, "mqSet holds more than %u queues", QUEUE_LOCK_BATCH_MAX);
        lock_batch_request_close(&batch);
        return;
    }
    uint32_t count = (uint32_t)batch.queue_count;
    struct queue_lock_item *items = calloc(count == 0 ? 1 : count, sizeof *items);
    struct lock_wait *wait = calloc(1, sizeof *wait);
    int rv = -ERROR_NO_MEMORY;
    if (items != NULL && wait != NULL) {
        wait->reply_to = request->reply_to;
        buffer_init(&wait->body, REMOTING_FRAME_MAX);
        for (uint32_t i = 0; i < count; i++) {
            items[i].topic = batch.queues[i].topic;
            items[i].queue_id = batch.queues[i].queue_id;
        }
        rv = lock ? queue_lock_try(broker, batch.consumer_group, batch.client_id, items, count, locks_recorded, wait)
                  : queue_lock_release(broker, batch.consumer_group, batch.client_id, items, count, locks_recorded, wait);
        if (rv >= 0 && lock)
            granted_body(&wait->body, &batch, items);
    }
    if (rv == 0) {
        locks_recorded(broker, wait, 0);
    } else if (rv < 0) {
        if (rv == -ERROR_INVALID)
            reply_simple(broker, &request->reply_to, RESPONSE_SYSTEM_ERROR, "clientId, consumerGroup or a topic of mqSet is empty or illegal");
        else
            reply_not_now(broker, &request->reply_to, -rv);
        lock_wait_free(wait);
    }
    free(items);
    lock_batch_request_close(&batch);
}

static void lock_batch(struct broker *broker, struct request *request)
{
    lock_or_unlock(broker, request, true);
}

static void unlock_batch(struct broker *broker, struct request *request)
{
    lock_or_unlock(broker, request, false);
}

const struct processor_row consumer_manage_processor_rows[] = {
    {REQUEST_QUERY_CONSUMER_OFFSET, "QUERY_CONSUMER_OFFSET", query_consumer_offset, PROCESSOR_FORWARD | PROCESSOR_QUESTION},
    {REQUEST_UPDATE_CONSUMER_OFFSET, "UPDATE_CONSUMER_OFFSET", update_consumer_offset, PROCESSOR_FORWARD},
    {REQUEST_GET_CONSUMER_LIST_BY_GROUP, "GET_CONSUMER_LIST_BY_GROUP", get_consumer_list, 0},
    {REQUEST_LOCK_BATCH_MQ, "LOCK_BATCH_MQ", lock_batch, PROCESSOR_FORWARD},
    {REQUEST_UNLOCK_BATCH_MQ, "UNLOCK_BATCH_MQ", unlock_batch, PROCESSOR_FORWARD},
    {CONSUMER_OFFSET_DELTA, "CONSUMER_OFFSET_DELTA", offset_delta, PROCESSOR_FORWARD},
    {0, NULL, NULL, 0},
};
