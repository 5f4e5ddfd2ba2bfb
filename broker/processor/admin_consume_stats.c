/* Follows AdminBrokerProcessor#getConsumeStats, #fetchAllConsumeStatsInBroker, #queryConsumeTimeSpan, #queryCorrectionOffset, #queryConsumeQueue,
 * #getAllConsumerOffset, #getAllDelayOffset, #cloneGroupOffset 4.9.8. Which kind of queues is walked differs by request, as in Java: 208 read
 * queues, 317 and 303 write queues.
 */
#include "broker/processor/admin_consume_stats.h"

#include <stdlib.h>

#include "broker/broker.h"
#include "broker/broker_stats_manager.h"
#include "broker/metadata/consumer_offset.h"
#include "broker/metadata/metadata.h"
#include "broker/metadata/subscription_group.h"
#include "broker/metadata/topic_config.h"
#include "broker/processor/reply.h"
#include "broker/remoting/client_registry.h"
#include "proto/consume_stats.h"
#include "proto/consumer_offset_serialize_wrapper.h"
#include "proto/delay_offset_serialize_wrapper.h"
#include "proto/headers.h"
#include "proto/json.h"
#include "proto/query_consume_queue.h"
#include "proto/query_consume_time_span.h"
#include "proto/response_code.h"

#define SLICE_ARG(slice) (int)(slice).size, (const char *)(slice).data
#define UNITS_MAX 1024 /* of one 321 */

static struct message_queue queue_of(const struct broker *broker, struct slice topic, int32_t queue_id)
{
    return (struct message_queue){.broker_name = slice_of_text(broker->config.broker_name), .topic = topic, .queue_id = queue_id};
}

/* The group is online, but does not want this topic any more: its old offsets are nobody's progress. */
static bool left_topic(struct broker *broker, struct slice group_name, struct slice topic)
{
    struct client_group *group = client_registry_consumer_group(broker->clients, group_name);
    return group != NULL && group->subscription_count > 0 && client_registry_subscription(group, topic) == NULL;
}

/* One entry per queue. Returns the messages that are left to consume. */
static int64_t add_topic(struct broker *broker, struct slice group, const struct topic_config *topic, int32_t queues, struct buffer *out)
{
    int64_t behind = 0;
    for (int32_t queue_id = 0; queue_id < queues; queue_id++) {
        struct consume_offset offset = {
            .queue = queue_of(broker, topic->name, queue_id),
            .broker_offset = message_store_max_offset(&broker->store, topic->name, queue_id),
            .consumer_offset = consumer_offset_find(broker->offsets, group, topic->name, queue_id),
        };
        if (offset.consumer_offset < 0)
            offset.consumer_offset = 0;
        if (offset.consumer_offset > 0) {
            int64_t time_ms = message_store_store_time(&broker->store, topic->name, queue_id, offset.consumer_offset - 1);
            offset.last_timestamp_ms = time_ms > 0 ? time_ms : 0;
        }
        behind += offset.broker_offset - offset.consumer_offset;
        consume_stats_add(out, &offset);
    }
    return behind;
}

static bool is_read(struct broker *broker, struct slice group, struct slice topic)
{
    return topic_config_find(broker->topics, topic) != NULL && !left_topic(broker, group, topic);
}

static void add_topic_if_read(struct broker *broker, struct slice group, struct slice topic, struct buffer *out)
{
    struct topic_entry *entry = topic_config_find(broker->topics, topic);
    if (entry != NULL && !left_topic(broker, group, topic))
        add_topic(broker, group, &entry->config, entry->config.read_queue_nums, out);
}

/* Messages that the group pulled in the last minute, per second, over the topics asked for. */
static double group_tps(struct broker *broker, const struct get_consume_stats_request_header *header)
{
    struct slice group = header->consumer_group, list = header->topic_list, part;
    double tps = 0;
    if (header->topic.size > 0)
        return is_read(broker, group, header->topic) ? broker_stats_manager_get_tps(broker->item_stats, group, header->topic) : 0;
    if (list.size > 0) {
        while ((part = slice_next_part(&list, ';')).size > 0)
            tps += is_read(broker, group, part) ? broker_stats_manager_get_tps(broker->item_stats, group, part) : 0;
        return tps;
    }
    for (struct consumer_offset_entry *entry = broker->offsets->entries; entry != NULL; entry = entry->hh.next) {
        if (slice_equal(entry->group, group) && is_read(broker, group, entry->topic))
            tps += broker_stats_manager_get_tps(broker->item_stats, group, entry->topic);
    }
    return tps;
}

void admin_get_consume_stats(struct broker *broker, struct request *request)
{
    struct get_consume_stats_request_header header;
    struct remoting_writer writer;
    struct error error;
    if (get_consume_stats_request_header_decode(request->command, &header, &error) != 0) {
        reply_error(broker, &request->reply_to, &error);
        return;
    }
    if (!reply_body_begin(broker, &request->reply_to, &writer))
        return;
    struct slice group = header.consumer_group;
    consume_stats_begin(writer.out, group_tps(broker, &header));
    if (header.topic.size > 0) {
        add_topic_if_read(broker, group, header.topic, writer.out);
    } else if (header.topic_list.size > 0) {
        struct slice part;
        while ((part = slice_next_part(&header.topic_list, ';')).size > 0)
            add_topic_if_read(broker, group, part, writer.out);
    } else {
        for (struct consumer_offset_entry *entry = broker->offsets->entries; entry != NULL; entry = entry->hh.next) {
            if (slice_equal(entry->group, group))
                add_topic_if_read(broker, group, entry->topic, writer.out);
        }
    }
    consume_stats_end(writer.out);
    reply_end(broker, &request->reply_to, &writer);
}

void admin_get_broker_consume_stats(struct broker *broker, struct request *request)
{
    struct get_broker_consume_stats_request_header header;
    struct remoting_writer writer;
    struct json_writer json;
    struct error error;
    if (get_broker_consume_stats_request_header_decode(request->command, &header, &error) != 0) {
        reply_error(broker, &request->reply_to, &error);
        return;
    }
    if (!reply_body_begin(broker, &request->reply_to, &writer))
        return;
    int64_t behind = 0;
    json_writer_init(&json, writer.out);
    json_write_begin_object(&json);
    json_write_member_text(&json, "brokerAddr", broker->address);
    json_write_key(&json, "consumeStatsList");
    json_write_begin_array(&json);
    for (struct subscription_group_entry *group = broker->groups->entries; group != NULL; group = group->hh.next) {
        json_write_begin_object(&json);
        json_write_key_slice(&json, group->config.group_name);
        json_write_begin_array(&json);
        bool first = true;
        for (struct consumer_offset_entry *entry = broker->offsets->entries; entry != NULL; entry = entry->hh.next) {
            struct topic_entry *topic = topic_config_find(broker->topics, entry->topic);
            if (!slice_equal(entry->group, group->config.group_name) || topic == NULL || (header.is_order && !topic->config.order) ||
                left_topic(broker, entry->group, entry->topic))
                continue;
            if (!first)
                buffer_append_u8(writer.out, ',');
            first = false;
            consume_stats_begin(writer.out, broker_stats_manager_get_tps(broker->item_stats, entry->group, entry->topic));
            behind += add_topic(broker, entry->group, &topic->config, topic->config.write_queue_nums, writer.out);
            consume_stats_end(writer.out);
        }
        json_write_end_array(&json);
        json_write_end_object(&json);
    }
    json_write_end_array(&json);
    json_write_member_i64(&json, "totalDiff", behind);
    json_write_end_object(&json);
    reply_end(broker, &request->reply_to, &writer);
}

/* Whether all that a key names is there: this cluster, or topics, groups and queue numbers. */
static bool stats_key_is_there(struct broker *broker, struct slice key)
{
    if (slice_equal_text(key, broker->config.broker_cluster_name))
        return true;
    while (key.size != 0) {
        const uint8_t *at = memchr(key.data, '@', key.size);
        struct slice part = slice_of(key.data, at == NULL ? key.size : (size_t)(at - key.data));
        int32_t queue_id;
        if (!slice_to_i32(part, &queue_id) && topic_config_find(broker->topics, part) == NULL && subscription_group_find(broker->groups, part) == NULL)
            return false;
        if (at == NULL)
            return true;
        key = slice_of(at + 1, key.size - part.size - 1);
    }
    return false;
}

/* What is there and did not move yet counts 0; in Java it is not there, and an exporter that asks a fresh broker ends its round. */
void admin_view_broker_stats_data(struct broker *broker, struct request *request)
{
    struct view_broker_stats_data_request_header header;
    struct broker_stats_data data;
    struct remoting_writer writer;
    struct error error;
    if (view_broker_stats_data_request_header_decode(request->command, &header, &error) != 0) {
        reply_error(broker, &request->reply_to, &error);
        return;
    }
    bool found = broker_stats_manager_view(broker->item_stats, header.stats_name, header.stats_key, &data);
    if (!found && broker_stats_manager_has_name(header.stats_name) && stats_key_is_there(broker, header.stats_key)) {
        data = (struct broker_stats_data){0};
        found = true;
    }
    if (!found) {
        reply_simple(broker, &request->reply_to, RESPONSE_SYSTEM_ERROR, "The stats <%.*s> <%.*s> not exist", SLICE_ARG(header.stats_name),
                     SLICE_ARG(header.stats_key));
    } else if (reply_body_begin(broker, &request->reply_to, &writer)) {
        broker_stats_data_encode(&data, writer.out);
        reply_end(broker, &request->reply_to, &writer);
    }
}

void admin_query_consume_time_span(struct broker *broker, struct request *request)
{
    struct query_consume_time_span_request_header header;
    struct remoting_writer writer;
    struct error error;
    if (query_consume_time_span_request_header_decode(request->command, &header, &error) != 0) {
        reply_error(broker, &request->reply_to, &error);
        return;
    }
    struct topic_entry *entry = topic_config_find(broker->topics, header.topic);
    if (entry == NULL) {
        reply_simple(broker, &request->reply_to, RESPONSE_TOPIC_NOT_EXIST, "topic[%.*s] not exist", SLICE_ARG(header.topic));
        return;
    }
    if (!reply_body_begin(broker, &request->reply_to, &writer))
        return;
    query_consume_time_span_begin(writer.out);
    for (int32_t queue_id = 0; queue_id < entry->config.write_queue_nums; queue_id++) {
        int64_t min = message_store_min_offset(&broker->store, header.topic, queue_id);
        int64_t max = message_store_max_offset(&broker->store, header.topic, queue_id);
        int64_t consumed = consumer_offset_find(broker->offsets, header.group, header.topic, queue_id);
        struct queue_time_span span = {
            .queue = queue_of(broker, header.topic, queue_id),
            .min_timestamp_ms = message_store_store_time(&broker->store, header.topic, queue_id, min),
            .max_timestamp_ms = message_store_store_time(&broker->store, header.topic, queue_id, max - 1),
        };
        span.consume_timestamp_ms =
            consumed > 0 ? message_store_store_time(&broker->store, header.topic, queue_id, consumed - 1) : span.min_timestamp_ms;
        int64_t next_ms = consumed < max ? message_store_store_time(&broker->store, header.topic, queue_id, consumed < 0 ? min : consumed) : -1;
        span.delay_time_ms = next_ms < 0 ? 0 : env_now_ms(&broker->env) - next_ms;
        query_consume_time_span_add(writer.out, &span);
    }
    query_consume_time_span_end(writer.out);
    reply_end(broker, &request->reply_to, &writer);
}

static bool is_listed(struct slice list, struct slice name)
{
    struct slice part;
    while ((part = slice_next_part(&list, ',')).size > 0) {
        if (slice_equal(part, name))
            return true;
    }
    return false;
}

/* Least offset of all groups in a queue that is still retained, -1 when no group has one. filterGroups are left out (Java also forgets their offsets
 * while it answers; we do not). */
static int64_t least_offset(struct broker *broker, struct slice topic, int32_t queue_id, struct slice without)
{
    int64_t least = -1;
    int64_t min = message_store_min_offset(&broker->store, topic, queue_id);
    for (struct consumer_offset_entry *entry = broker->offsets->entries; entry != NULL; entry = entry->hh.next) {
        if (!slice_equal(entry->topic, topic) || is_listed(without, entry->group))
            continue;
        int64_t offset = consumer_offset_find(broker->offsets, entry->group, topic, queue_id);
        if (offset >= min && (least < 0 || offset < least))
            least = offset;
    }
    return least;
}

void admin_query_correction_offset(struct broker *broker, struct request *request)
{
    struct query_correction_offset_request_header header;
    struct remoting_writer writer;
    struct json_writer json;
    struct error error;
    if (query_correction_offset_request_header_decode(request->command, &header, &error) != 0) {
        reply_error(broker, &request->reply_to, &error);
        return;
    }
    struct topic_entry *topic = topic_config_find(broker->topics, header.topic);
    if (!reply_body_begin(broker, &request->reply_to, &writer))
        return;
    json_writer_init(&json, writer.out);
    json_write_begin_object(&json);
    json_write_key(&json, "correctionOffsets");
    json_write_begin_object(&json);
    for (int32_t queue_id = 0; topic != NULL && queue_id < topic->config.read_queue_nums; queue_id++) {
        int64_t least = least_offset(broker, header.topic, queue_id, header.filter_groups);
        int64_t compare = consumer_offset_find(broker->offsets, header.compare_group, header.topic, queue_id);
        if (least < 0)
            continue;
        json_write_key_i64(&json, queue_id);
        json_write_i64(&json, compare >= 0 && least > compare ? INT64_MAX : least);
    }
    json_write_end_object(&json);
    json_write_end_object(&json);
    reply_end(broker, &request->reply_to, &writer);
}

void admin_query_consume_queue(struct broker *broker, struct request *request)
{
    struct query_consume_queue_request_header header;
    struct remoting_writer writer;
    struct error error;
    if (query_consume_queue_request_header_decode(request->command, &header, &error) != 0) {
        reply_error(broker, &request->reply_to, &error);
        return;
    }
    struct consume_queue *queue = message_store_queue(&broker->store, header.topic, header.queue_id, false, NULL);
    if (queue == NULL) {
        reply_simple(broker, &request->reply_to, RESPONSE_SYSTEM_ERROR, "%d@%.*s is not exist!", header.queue_id, SLICE_ARG(header.topic));
        return;
    }
    if (header.index < queue->min_offset || header.index >= queue->max_offset) {
        reply_simple(broker, &request->reply_to, RESPONSE_SUCCESS, "Index %lld of %d@%.*s is not exist!", (long long)header.index,
                     header.queue_id, SLICE_ARG(header.topic));
        return;
    }
    if (!reply_body_begin(broker, &request->reply_to, &writer))
        return;
    const struct subscription_data *filter = NULL;
    char remark[600];
    struct slice filter_data = slice_of(NULL, 0);
    if (header.consumer_group.size > 0) {
        struct client_group *group = client_registry_consumer_group(broker->clients, header.consumer_group);
        struct client_subscription *subscription = group == NULL ? NULL : client_registry_subscription(group, header.topic);
        if (subscription != NULL) {
            filter = &subscription->data;
            filter_data = SLICE_LITERAL("null"); /* no bloom filter; the tool prints what stands here */
        } else {
            int size = snprintf(remark, sizeof remark, "%.*s@%.*s is not online!", SLICE_ARG(header.consumer_group), SLICE_ARG(header.topic));
            filter_data = slice_of(remark, (size_t)size < sizeof remark ? (size_t)size : sizeof remark - 1);
        }
    }
    query_consume_queue_begin(writer.out, filter_data, queue->max_offset, queue->min_offset);
    int32_t count = header.count > UNITS_MAX ? UNITS_MAX : header.count;
    struct consume_queue_unit unit;
    for (int32_t i = 0; i < count && consume_queue_get(queue, header.index + i, &unit); i++) {
        struct consume_queue_data data = {
            .physic_offset = unit.physical_offset,
            .physic_size = unit.size,
            .tags_code = unit.tags_code,
            .eval = filter != NULL && subscription_data_match(filter, unit.tags_code),
        };
        query_consume_queue_add(writer.out, &data);
    }
    query_consume_queue_end(writer.out, filter);
    reply_end(broker, &request->reply_to, &writer);
}

static void add_offsets(void *argument, struct consumer_offset_entry *entry)
{
    struct buffer *out = argument;
    consumer_offset_serialize_wrapper_group_begin(out, entry->topic, entry->group);
    for (uint32_t i = 0; i < entry->count; i++)
        consumer_offset_serialize_wrapper_add(out, entry->queues[i].queue_id, entry->queues[i].offset);
    consumer_offset_serialize_wrapper_group_end(out);
}

void admin_get_all_consumer_offset(struct broker *broker, struct request *request)
{
    struct remoting_writer writer;
    if (!reply_body_begin(broker, &request->reply_to, &writer))
        return;
    consumer_offset_serialize_wrapper_begin(writer.out);
    consumer_offset_each(broker->offsets, add_offsets, writer.out);
    consumer_offset_serialize_wrapper_end(writer.out);
    reply_end(broker, &request->reply_to, &writer);
}

void admin_get_all_delay_offset(struct broker *broker, struct request *request)
{
    struct remoting_writer writer;
    if (!reply_body_begin(broker, &request->reply_to, &writer))
        return;
    delay_offset_serialize_wrapper_begin(writer.out);
    for (int level = 1; level <= METADATA_DELAY_LEVELS_MAX; level++) {
        if (broker->metadata->delay_offset[level] >= 0)
            delay_offset_serialize_wrapper_add(writer.out, level, broker->metadata->delay_offset[level]);
    }
    delay_offset_serialize_wrapper_end(writer.out);
    reply_end(broker, &request->reply_to, &writer);
}

struct clone_wait {
    struct reply_to reply_to;
    uint32_t left;
    int code;
};

static void clone_done(struct broker *broker, void *context, int code)
{
    struct clone_wait *wait = context;
    if (code != 0)
        wait->code = code;
    if (--wait->left > 0)
        return;
    reply_settled(broker, &wait->reply_to, wait->code);
    free(wait);
}

void admin_clone_group_offset(struct broker *broker, struct request *request)
{
    struct clone_group_offset_request_header header;
    struct error error;
    if (clone_group_offset_request_header_decode(request->command, &header, &error) != 0) {
        reply_error(broker, &request->reply_to, &error);
        return;
    }
    struct clone_wait *wait = calloc(1, sizeof *wait);
    if (wait == NULL) {
        reply_not_now(broker, &request->reply_to, ERROR_NO_MEMORY);
        return;
    }
    wait->reply_to = request->reply_to;
    wait->left = 1;
    for (struct consumer_offset_entry *entry = broker->offsets->entries; entry != NULL; entry = entry->hh.next) {
        if (!slice_equal(entry->group, header.src_group) || (header.topic.size > 0 && !slice_equal(entry->topic, header.topic)) ||
            topic_config_find(broker->topics, entry->topic) == NULL || (!header.offline && left_topic(broker, entry->group, entry->topic)))
            continue;
        for (uint32_t i = 0; i < entry->count; i++) {
            int rv = consumer_offset_commit_wait(broker, header.dest_group, entry->topic, entry->queues[i].queue_id, entry->queues[i].offset,
                                                 clone_done, wait);
            if (rv == 0)
                wait->left++;
            else if (rv != ERROR_EXISTS)
                wait->code = rv;
        }
    }
    clone_done(broker, wait, 0);
}
