/* What a tool asks of clients through the broker: running info 307, one message at once 309, offsets reset 222 (220 to the clients) and asked 223 (221).
 *
 * Follows AdminBrokerProcessor#callConsumer, #consumeMessageDirectly and Broker2Client#resetOffset, #getConsumeStatus 4.9.8. Every node relays to the
 * clients that are connected to it; 222 goes to the leader, for it may also store offsets. The shape of 220's body follows the language of the consumer:
 * 4.9 takes the tool's, so that one forgotten option breaks C++ consumers.
 */
#include <stdlib.h>

#include "broker/broker.h"
#include "broker/metadata/consumer_offset.h"
#include "broker/metadata/subscription_group.h"
#include "broker/metadata/topic_config.h"
#include "broker/processor/cold_read.h"
#include "broker/processor/processor.h"
#include "broker/processor/reply.h"
#include "broker/remoting/client_call.h"
#include "broker/remoting/client_registry.h"
#include "proto/headers.h"
#include "proto/json.h"
#include "proto/request_code.h"
#include "proto/reset_offset_body.h"
#include "proto/response_code.h"

#define SLICE_ARG(slice) (int)(slice).size, (const char *)(slice).data
#define VERSION_3_0_7 28  /* V3_0_7_SNAPSHOT: first to know 220 and 221 */
#define VERSION_3_1_8 62  /* V3_1_8_SNAPSHOT: first to know 307 and 309 */
#define VERSION_5_0_0 413
#define LANGUAGE_CPP 1
#define STATUS_WAIT_MS 4000u /* Java's 5 s for each client one by one; a tool waits 5 s in all */
#define REMARK_MAX 512

/* ---- 307 and 309 ---- */

struct relay {
    struct cold_read read; /* of the message for 309, when it is old */
    struct broker *broker;
    struct reply_to reply_to;
    uint64_t connection_id; /* of the client */
    struct slice group, client_id; /* in bytes */
    struct remoting_command request; /* ext fields in bytes; the rest is not used */
    uint8_t bytes[];
};

/* Signatures are between tool and broker. */
static bool is_for_client(struct slice name)
{
    return !slice_equal_text(name, "AccessKey") && !slice_equal_text(name, "Signature") && !slice_equal_text(name, "SecurityToken") &&
           !slice_equal_text(name, "brokerName");
}

static struct relay *relay_new(struct broker *broker, const struct request *request, struct slice group, struct slice client_id)
{
    const struct remoting_command *command = request->command;
    size_t size = 1 + group.size + client_id.size;
    for (uint32_t i = 0; i < command->ext_count; i++)
        size += command->ext[i].name.size + 1 + command->ext[i].value.size;
    struct relay *relay = calloc(1, sizeof *relay + size);
    if (relay == NULL)
        return NULL;
    uint8_t *at = relay->bytes;
    relay->broker = broker;
    relay->reply_to = request->reply_to;
    relay->group = slice_copy(&at, group);
    relay->client_id = slice_copy(&at, client_id);
    for (uint32_t i = 0; i < command->ext_count; i++) {
        if (!is_for_client(command->ext[i].name))
            continue;
        struct remoting_ext_field *field = &relay->request.ext[relay->request.ext_count++];
        field->name = slice_copy(&at, command->ext[i].name);
        *at++ = 0; /* the writer wants names as text */
        field->value = slice_copy(&at, command->ext[i].value);
    }
    return relay;
}

static void relay_free(struct relay *relay)
{
    cold_read_free(&relay->read);
    free(relay);
}

static void on_relayed(struct broker *broker, void *context, int code, const struct remoting_command *answer)
{
    struct relay *relay = context;
    struct remoting_writer writer;
    if (code == ERROR_TIMEOUT) {
        reply_simple(broker, &relay->reply_to, RESPONSE_CONSUME_MSG_TIMEOUT, "consumer <%.*s> <%.*s> Timeout: no answer for %u ms",
                     SLICE_ARG(relay->group), SLICE_ARG(relay->client_id), LIMIT_CLIENT_CALL_MS);
    } else if (code == ERROR_BUSY) {
        reply_not_now(broker, &relay->reply_to, code);
    } else if (code != 0) {
        reply_simple(broker, &relay->reply_to, RESPONSE_SYSTEM_ERROR, "invoke consumer <%.*s> <%.*s> Exception: %s", SLICE_ARG(relay->group),
                     SLICE_ARG(relay->client_id), error_text(code));
    } else {
        char remark[REMARK_MAX];
        snprintf(remark, sizeof remark, "%.*s", SLICE_ARG(answer->remark));
        if (reply_begin(broker, &relay->reply_to, &writer, answer->code, answer->remark.size == 0 ? NULL : remark)) {
            remoting_writer_body(&writer);
            buffer_append_slice(writer.out, answer->body);
            reply_end(broker, &relay->reply_to, &writer);
        }
    }
    relay_free(relay);
}

/* Asks the client and takes relay over. */
static void relay_send(struct relay *relay, int32_t code, struct slice body)
{
    struct broker *broker = relay->broker;
    struct remoting_writer writer;
    int rv = client_call_begin(broker, relay->connection_id, code, &writer);
    if (rv != 0) {
        on_relayed(broker, relay, rv, NULL);
        return;
    }
    for (uint32_t i = 0; i < relay->request.ext_count; i++)
        remoting_writer_ext(&writer, (const char *)relay->request.ext[i].name.data, relay->request.ext[i].value);
    if (code == REQUEST_CONSUME_MESSAGE_DIRECTLY)
        remoting_writer_ext_text(&writer, "brokerName", broker->config.broker_name);
    remoting_writer_body(&writer);
    buffer_append_slice(writer.out, body);
    client_call_end(broker, relay->connection_id, &writer, LIMIT_CLIENT_CALL_MS, on_relayed, relay);
}

/* NULL: answered. */
static struct relay *relay_to(struct broker *broker, const struct request *request, struct slice group_name, struct slice client_id)
{
    struct client_group *group = client_registry_consumer_group(broker->clients, group_name);
    struct client_channel *channel = group == NULL ? NULL : client_registry_channel(group, client_id);
    if (channel == NULL) {
        reply_simple(broker, &request->reply_to, RESPONSE_SYSTEM_ERROR, "The Consumer <%.*s> <%.*s> not online", SLICE_ARG(group_name),
                     SLICE_ARG(client_id));
        return NULL;
    }
    if (channel->version < VERSION_3_1_8) {
        reply_simple(broker, &request->reply_to, RESPONSE_SYSTEM_ERROR,
                     "The Consumer <%.*s> Version <%d> too low to finish, please upgrade it to V3_1_8_SNAPSHOT", SLICE_ARG(client_id),
                     channel->version);
        return NULL;
    }
    struct relay *relay = relay_new(broker, request, group_name, client_id);
    if (relay == NULL)
        reply_not_now(broker, &request->reply_to, ERROR_NO_MEMORY);
    else
        relay->connection_id = channel->connection_id;
    return relay;
}

static void get_consumer_running_info(struct broker *broker, struct request *request)
{
    struct get_consumer_running_info_request_header header;
    struct error error;
    if (get_consumer_running_info_request_header_decode(request->command, &header, &error) != 0) {
        reply_error(broker, &request->reply_to, &error);
        return;
    }
    struct relay *relay = relay_to(broker, request, header.consumer_group, header.client_id);
    if (relay != NULL)
        relay_send(relay, REQUEST_GET_CONSUMER_RUNNING_INFO, request->command->body);
}

static void on_message_read(struct broker *broker, struct cold_read *read, int code)
{
    struct relay *relay = (struct relay *)read;
    if (code == 0) {
        relay_send(relay, REQUEST_CONSUME_MESSAGE_DIRECTLY, slice_of(read->bytes, read->size));
    } else {
        reply_simple(broker, &relay->reply_to, RESPONSE_SYSTEM_ERROR, "reading the message failed: %s", error_text(code));
        relay_free(relay);
    }
}

static void consume_message_directly(struct broker *broker, struct request *request)
{
    struct consume_message_directly_request_header header;
    struct message_host host;
    struct error error;
    int64_t offset = -1;
    if (consume_message_directly_request_header_decode(request->command, &header, &error) != 0) {
        reply_error(broker, &request->reply_to, &error);
        return;
    }
    uint32_t size = 0;
    if (message_id_parse(header.msg_id, &host, &offset) && offset >= 0)
        size = message_store_record_size(&broker->store, offset);
    if (size == 0) {
        reply_simple(broker, &request->reply_to, RESPONSE_SYSTEM_ERROR, "can not find message by the id, %.*s", SLICE_ARG(header.msg_id));
        return;
    }
    struct relay *relay = relay_to(broker, request, header.consumer_group, header.client_id);
    if (relay == NULL)
        return;
    const uint8_t *bytes = cold_read_at_hand(broker, offset, size);
    if (bytes != NULL) {
        relay_send(relay, REQUEST_CONSUME_MESSAGE_DIRECTLY, slice_of(bytes, size));
        return;
    }
    int rv = cold_read_start_one(broker->cold_reads, &relay->read, offset, size, on_message_read);
    if (rv != 0) {
        reply_not_now(broker, &request->reply_to, rv);
        relay_free(relay);
    }
}

/* ---- the channels of a group ---- */

/* What is needed of a channel while writing to others, which may cut them off. */
struct target {
    uint64_t connection_id;
    uint8_t language;
    int32_t version;
    char *client_id; /* only with client_ids */
};

static void targets_free(struct target *targets, uint32_t count)
{
    for (uint32_t i = 0; targets != NULL && i < count; i++)
        free(targets[i].client_id);
    free(targets);
}

/* NULL: no memory. only: this client, empty = all. */
static struct target *targets_of(const struct client_group *group, bool client_ids, struct slice only, uint32_t *count)
{
    struct target *targets = calloc(group->channel_count + 1, sizeof *targets);
    *count = 0;
    for (const struct client_channel *channel = group->channels; targets != NULL && channel != NULL; channel = channel->group_next) {
        if (only.size > 0 && !slice_equal_text(only, channel->client_id))
            continue;
        struct target *target = &targets[(*count)++];
        target->connection_id = channel->connection_id;
        target->language = channel->language;
        target->version = channel->version;
        if (client_ids && (target->client_id = strdup(channel->client_id)) == NULL) {
            targets_free(targets, *count);
            return NULL;
        }
    }
    return targets;
}

/* False: one is too old, and answered. */
static bool all_know(struct broker *broker, const struct reply_to *to, const struct target *targets, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (targets[i].version < VERSION_3_0_7) {
            reply_simple(broker, to, RESPONSE_SYSTEM_ERROR, "the client does not support this feature. version=%d", targets[i].version);
            return false;
        }
    }
    return true;
}

/* ---- 223 ---- */

struct status_wait {
    struct reply_to reply_to;
    uint32_t left;
    struct buffer table; /* "clientId":{{mq}:offset} joined by commas */
    struct target *targets;
    uint32_t count;
};

struct status_call {
    struct status_wait *wait;
    const char *client_id;
};

static void status_done(struct broker *broker, struct status_wait *wait)
{
    struct remoting_writer writer;
    if (--wait->left > 0)
        return;
    if (wait->table.failed) {
        reply_simple(broker, &wait->reply_to, RESPONSE_SYSTEM_ERROR, "the answers of the clients do not fit one frame");
    } else if (reply_body_begin(broker, &wait->reply_to, &writer)) {
        buffer_append_text(writer.out, "{\"consumerTable\":{");
        buffer_append_slice(writer.out, buffer_slice(&wait->table));
        buffer_append_text(writer.out, "}}");
        reply_end(broker, &wait->reply_to, &writer);
    }
    buffer_close(&wait->table);
    targets_free(wait->targets, wait->count);
    free(wait);
}

/* A client that fails is left out, as in Java. */
static void on_status(struct broker *broker, void *context, int code, const struct remoting_command *answer)
{
    struct status_call *call = context;
    struct status_wait *wait = call->wait;
    struct json_document document;
    if (code == 0 && answer->code == RESPONSE_SUCCESS && json_parse(&document, answer->body, NULL, 0, NULL) == 0) {
        struct json_value table = json_get(json_root(&document), "messageQueueTable");
        if (json_is_object(table)) {
            if (wait->table.size > 0)
                buffer_append_u8(&wait->table, ',');
            buffer_append_u8(&wait->table, '"');
            json_append_escaped(&wait->table, slice_of_text(call->client_id));
            buffer_append_text(&wait->table, "\":");
            buffer_append_slice(&wait->table, json_raw(table));
        }
        json_close(&document);
    }
    free(call);
    status_done(broker, wait);
}

static void ask_status(struct broker *broker, struct status_wait *wait, const struct target *target,
                       const struct get_consumer_status_request_header *header)
{
    struct remoting_writer writer;
    struct status_call *call = calloc(1, sizeof *call);
    if (call == NULL)
        return;
    call->wait = wait;
    call->client_id = target->client_id;
    if (client_call_begin(broker, target->connection_id, REQUEST_GET_CONSUMER_STATUS_FROM_CLIENT, &writer) != 0) {
        free(call);
        return;
    }
    wait->left++;
    remoting_writer_ext(&writer, "topic", header->topic);
    remoting_writer_ext(&writer, "group", header->group);
    client_call_end(broker, target->connection_id, &writer, STATUS_WAIT_MS, on_status, call);
}

static void get_consumer_status(struct broker *broker, struct request *request)
{
    struct get_consumer_status_request_header header;
    struct error error;
    if (get_consumer_status_request_header_decode(request->command, &header, &error) != 0) {
        reply_error(broker, &request->reply_to, &error);
        return;
    }
    struct client_group *group = client_registry_consumer_group(broker->clients, header.group);
    if (group == NULL) {
        reply_simple(broker, &request->reply_to, RESPONSE_SYSTEM_ERROR, "No Any Consumer online in the consumer group: [%.*s]",
                     SLICE_ARG(header.group));
        return;
    }
    struct status_wait *wait = calloc(1, sizeof *wait);
    if (wait != NULL)
        wait->targets = targets_of(group, true, header.client_addr, &wait->count);
    if (wait == NULL || wait->targets == NULL) {
        free(wait);
        reply_not_now(broker, &request->reply_to, ERROR_NO_MEMORY);
        return;
    }
    if (!all_know(broker, &request->reply_to, wait->targets, wait->count)) {
        targets_free(wait->targets, wait->count);
        free(wait);
        return;
    }
    wait->reply_to = request->reply_to;
    wait->left = 1;
    buffer_init(&wait->table, REMOTING_FRAME_MAX / 2);
    for (uint32_t i = 0; i < wait->count; i++)
        ask_status(broker, wait, &wait->targets[i], &header);
    status_done(broker, wait);
}

/* ---- 222 ---- */

struct reset {
    struct reply_to reply_to;
    struct buffer body; /* of the answer: map shape */
    uint32_t left;      /* offsets on their way into the log */
    int code;
};

static struct reset *reset_new(const struct reply_to *to)
{
    struct reset *reset = calloc(1, sizeof *reset);
    if (reset == NULL)
        return NULL;
    reset->reply_to = *to;
    reset->left = 1;
    buffer_init(&reset->body, REMOTING_FRAME_MAX / 2);
    return reset;
}

static void reset_free(struct reset *reset)
{
    buffer_close(&reset->body);
    free(reset);
}

static void write_offsets(const struct broker *broker, struct slice topic, const int64_t *offsets, int32_t count, enum reset_offset_shape shape,
                          struct buffer *out)
{
    reset_offset_body_begin(out, shape);
    for (int32_t i = 0; i < count; i++) {
        const struct reset_offset offset = {
            .queue = {.broker_name = slice_of_text(broker->config.broker_name), .topic = topic, .queue_id = i},
            .offset = offsets[i],
        };
        if (offsets[i] >= 0)
            reset_offset_body_add(out, shape, &offset);
    }
    reset_offset_body_end(out, shape);
}

static void reset_done(struct broker *broker, void *context, int code)
{
    struct reset *reset = context;
    struct remoting_writer writer;
    if (code != 0)
        reset->code = code;
    if (--reset->left > 0)
        return;
    if (reset->code != 0) {
        reply_not_now(broker, &reset->reply_to, reset->code);
    } else if (reset->body.failed) {
        reply_not_now(broker, &reset->reply_to, ERROR_NO_MEMORY);
    } else if (reply_body_begin(broker, &reset->reply_to, &writer)) {
        buffer_append_slice(writer.out, buffer_slice(&reset->body));
        reply_end(broker, &reset->reply_to, &writer);
    }
    reset_free(reset);
}

static void push_reset(struct broker *broker, const struct target *target, const struct reset_offset_request_header *header, const int64_t *offsets,
                       int32_t count)
{
    struct remoting_writer writer;
    if (!push_begin(broker, target->connection_id, &writer, REQUEST_RESET_CONSUMER_CLIENT_OFFSET))
        return;
    remoting_writer_ext(&writer, "topic", header->topic);
    remoting_writer_ext(&writer, "group", header->group);
    remoting_writer_ext_i64(&writer, "timestamp", header->timestamp_ms);
    remoting_writer_ext_bool(&writer, "isForce", false); /* as Java leaves it: the offsets have been decided */
    remoting_writer_body(&writer);
    write_offsets(broker, header->topic, offsets, count, target->language == LANGUAGE_CPP ? RESET_OFFSET_LIST : RESET_OFFSET_MAP, writer.out);
    push_end(broker, target->connection_id, &writer);
}

static int64_t offset_at(struct broker *broker, struct slice topic, int32_t queue_id, int64_t timestamp_ms)
{
    int64_t offset = timestamp_ms < 0 ? message_store_max_offset(&broker->store, topic, queue_id)
                                      : message_store_offset_by_time(&broker->store, topic, queue_id, timestamp_ms);
    return offset < 0 ? 0 : offset;
}

/* Broker2Client#resetOffset 4.9.8. False: answered. */
static bool decide_offsets(struct broker *broker, const struct reply_to *to, const struct reset_offset_request_header *header, int64_t *offsets,
                           int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        int64_t stored = consumer_offset_find(broker->offsets, header->group, header->topic, i);
        if (stored < 0) {
            reply_simple(broker, to, RESPONSE_SYSTEM_ERROR, "THe consumer group <%.*s> not exist", SLICE_ARG(header->group));
            return false;
        }
        int64_t wanted = offset_at(broker, header->topic, i, header->timestamp_ms);
        offsets[i] = header->is_force || wanted < stored ? wanted : stored;
    }
    return true;
}

/* AdminBrokerProcessor#resetOffsetInner 5.3.3: one queue or all, an offset or a time, and the group need not have any. False: answered. */
static bool decide_offsets_5(struct broker *broker, const struct reply_to *to, const struct reset_offset_request_header *header, int64_t *offsets,
                             int32_t count)
{
    if (subscription_group_find(broker->groups, header->group) == NULL) {
        reply_simple(broker, to, RESPONSE_SUBSCRIPTION_GROUP_NOT_EXIST, "Group %.*s does not exist", SLICE_ARG(header->group));
        return false;
    }
    if (header->queue_id >= count) {
        reply_simple(broker, to, RESPONSE_SYSTEM_ERROR, "queueId %d is not below the topic's %d queues", header->queue_id, count);
        return false;
    }
    if (header->queue_id >= 0 && header->offset >= 0) {
        int64_t min = message_store_min_offset(&broker->store, header->topic, header->queue_id);
        int64_t max = message_store_max_offset(&broker->store, header->topic, header->queue_id);
        if (header->offset < min || header->offset > max + 1) {
            reply_simple(broker, to, RESPONSE_SYSTEM_ERROR, "Target offset %lld not in consume queue range [%lld-%lld]", (long long)header->offset,
                         (long long)min, (long long)max);
            return false;
        }
    }
    for (int32_t i = 0; i < count; i++) {
        if (header->queue_id >= 0 && i != header->queue_id)
            offsets[i] = -1;
        else
            offsets[i] = header->queue_id >= 0 && header->offset >= 0 ? header->offset : offset_at(broker, header->topic, i, header->timestamp_ms);
    }
    return true;
}

static void store_offsets(struct broker *broker, struct reset *reset, const struct reset_offset_request_header *header, const int64_t *offsets,
                          int32_t count, bool held)
{
    for (int32_t i = 0; i < count; i++) {
        if (offsets[i] < 0)
            continue;
        int rv = consumer_offset_reset_wait(broker, header->group, header->topic, i, offsets[i], held, reset_done, reset);
        if (rv == 0)
            reset->left++;
        else
            reset->code = rv;
    }
}

static void run_reset(struct broker *broker, const struct request *request, const struct reset_offset_request_header *header,
                      const struct topic_config *topic, bool five)
{
    const struct reply_to *to = &request->reply_to;
    struct client_group *group = client_registry_consumer_group(broker->clients, header->group);
    int32_t count = five ? topic->read_queue_nums : topic->write_queue_nums;
    uint32_t target_count = 0;
    struct reset *reset = reset_new(to);
    int64_t *offsets = calloc((size_t)count + 1, sizeof *offsets);
    struct target *targets = group == NULL ? NULL : targets_of(group, false, slice_of(NULL, 0), &target_count);
    if (reset == NULL || offsets == NULL || (group != NULL && targets == NULL)) {
        reply_not_now(broker, to, ERROR_NO_MEMORY);
        goto refused;
    }
    if (!(five ? decide_offsets_5 : decide_offsets)(broker, to, header, offsets, count))
        goto refused;
    if (!five && target_count == 0) {
        reply_simple(broker, to, RESPONSE_CONSUMER_NOT_ONLINE, "Consumer not online, so can not reset offset, Group: %.*s Topic: %.*s Timestamp: %lld",
                     SLICE_ARG(header->group), SLICE_ARG(header->topic), (long long)header->timestamp_ms);
        goto refused;
    }
    if (!all_know(broker, to, targets, target_count))
        goto refused;
    write_offsets(broker, header->topic, offsets, count, RESET_OFFSET_MAP, &reset->body);
    /* 5.3.3 lets a consumer notice at its next pull; telling it does for clients of every version. */
    if (five)
        store_offsets(broker, reset, header, offsets, count, target_count > 0);
    for (uint32_t i = 0; i < target_count; i++)
        push_reset(broker, &targets[i], header, offsets, count);
    reset_done(broker, reset, 0);
    free(offsets);
    targets_free(targets, target_count);
    return;

refused:
    if (reset != NULL)
        reset_free(reset);
    free(offsets);
    targets_free(targets, target_count);
}

static void invoke_broker_to_reset_offset(struct broker *broker, struct request *request)
{
    struct reset_offset_request_header header;
    struct error error;
    if (reset_offset_request_header_decode(request->command, &header, &error) != 0) {
        reply_error(broker, &request->reply_to, &error);
        return;
    }
    bool five = request->command->version >= VERSION_5_0_0;
    struct topic_entry *topic = topic_config_find(broker->topics, header.topic);
    if (topic == NULL && five)
        reply_simple(broker, &request->reply_to, RESPONSE_TOPIC_NOT_EXIST, "Topic %.*s does not exist", SLICE_ARG(header.topic));
    else if (topic == NULL)
        reply_simple(broker, &request->reply_to, RESPONSE_SYSTEM_ERROR, "[reset-offset] reset offset failed, no topic in this broker. topic=%.*s",
                     SLICE_ARG(header.topic));
    else
        run_reset(broker, request, &header, &topic->config, five);
}

const struct processor_row broker2client_rows[] = {
    {REQUEST_GET_CONSUMER_RUNNING_INFO, "GET_CONSUMER_RUNNING_INFO", get_consumer_running_info, 0},
    {REQUEST_CONSUME_MESSAGE_DIRECTLY, "CONSUME_MESSAGE_DIRECTLY", consume_message_directly, 0},
    {REQUEST_INVOKE_BROKER_TO_RESET_OFFSET, "INVOKE_BROKER_TO_RESET_OFFSET", invoke_broker_to_reset_offset, PROCESSOR_FORWARD},
    {REQUEST_INVOKE_BROKER_TO_GET_CONSUMER_STATUS, "INVOKE_BROKER_TO_GET_CONSUMER_STATUS", get_consumer_status, 0},
    {0, NULL, NULL, 0},
};
