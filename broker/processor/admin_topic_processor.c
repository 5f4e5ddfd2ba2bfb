/* Topics as tools and clients manage and ask them: 17, 215, 21, 351, 202, 300, 305, and the offset questions 29 to 32.
 *
 * Follows AdminBrokerProcessor 4.9.8. A change is answered when it is applied on the leader, so a question that follows (202 after 17) sees it. The
 * questions of 29 and 30 count as "how far may this consumer skip": without a leader they are not answered at all (remoting.md 3.15).
 */
#include <stdlib.h>

#include "broker/broker.h"
#include "broker/broker_stats.h"
#include "broker/metadata/consumer_offset.h"
#include "broker/metadata/metadata.h"
#include "broker/metadata/topic_config.h"
#include "broker/processor/processor.h"
#include "broker/processor/reply.h"
#include "broker/remoting/client_registry.h"
#include "broker/service/retention.h"
#include "proto/group_list.h"
#include "proto/headers.h"
#include "proto/request_code.h"
#include "proto/response_code.h"
#include "proto/topic_config_serialize_wrapper.h"
#include "proto/topic_list.h"
#include "proto/topic_stats_table.h"
#include "proto/topic_validator.h"
#include "store/log_sink.h"

#define SLICE_ARG(slice) (int)(slice).size, (const char *)(slice).data
#define TOPIC_BYTES_MAX 200u /* of a topic's settings, beside its name twice */

/* Name of `command`'s only field. False: answered. */
static bool topic_of(struct broker *broker, struct request *request, struct slice *topic)
{
    struct topic_request_header header;
    struct error error;
    if (topic_request_header_decode(request->command, &header, &error) != 0) {
        reply_error(broker, &request->reply_to, &error);
        return false;
    }
    *topic = header.topic;
    return true;
}

/* Beyond the fixed names: topics called after the cluster and the broker, and the reply topic. */
static bool is_system(const struct broker *broker, struct slice topic)
{
    const char *cluster = broker->config.broker_cluster_name;
    size_t cluster_size = strlen(cluster);
    return topic_is_system(topic) || slice_equal_text(topic, cluster) || slice_equal_text(topic, broker->config.broker_name) ||
           (topic.size > cluster_size && slice_starts_with(topic, cluster) &&
            slice_equal_text(slice_of(topic.data + cluster_size, topic.size - cluster_size), TOPIC_REPLY_POSTFIX));
}

/* The checks that 17 and 215 share. False: answered. */
static bool may_change(struct broker *broker, struct request *request, struct slice topic)
{
    struct error error;
    if (topic_validate(topic, &error) != 0) {
        reply_error(broker, &request->reply_to, &error);
        return false;
    }
    if (is_system(broker, topic)) {
        reply_simple(broker, &request->reply_to, RESPONSE_SYSTEM_ERROR, "The topic[%.*s] is conflict with system topic.", SLICE_ARG(topic));
        return false;
    }
    return true;
}

static void copy_name(char out[MESSAGE_TOPIC_MAX + 1], struct slice name)
{
    memcpy(out, name.data, name.size);
    out[name.size] = 0;
}

/* ---- changes ---- */

/* RocketMQ 5's form, "+reserve.time=24,-other": + sets, - takes away. Others mean nothing here, as to RocketMQ 4. */
static bool read_attributes(struct slice text, int32_t *reserved_hours)
{
    static const char set[] = "+reserve.time=";
    struct slice one;

    while ((one = slice_next_part(&text, ',')).size > 0) {
        struct slice bare = slice_of(one.data + 1, one.size - 1);
        int32_t hours;
        if (slice_equal_text(one, "-reserve.time")) {
            *reserved_hours = 0;
        } else if (slice_starts_with(one, set)) {
            if (!slice_to_i32(slice_of(one.data + sizeof set - 1, one.size - (sizeof set - 1)), &hours) || hours < 1 || hours > TOPIC_RESERVED_HOURS_MAX)
                return false;
            *reserved_hours = hours;
        } else if (slice_starts_with(bare, "reserve.time=") || slice_equal_text(bare, "reserve.time") || slice_starts_with(one, "reserve.time")) {
            return false; /* also without a sign: it would be taken for set */
        }
    }
    return true;
}

static void update_and_create_topic(struct broker *broker, struct request *request)
{
    struct create_topic_request_header header;
    struct error error;
    if (create_topic_request_header_decode(request->command, &header, &error) != 0) {
        reply_error(broker, &request->reply_to, &error);
        return;
    }
    if (!may_change(broker, request, header.topic))
        return;
    bool multi_tag = slice_equal_text(header.topic_filter_type, "MULTI_TAG");
    if (!multi_tag && !slice_equal_text(header.topic_filter_type, "SINGLE_TAG")) {
        reply_simple(broker, &request->reply_to, RESPONSE_SYSTEM_ERROR, "field topicFilterType is neither SINGLE_TAG nor MULTI_TAG: %.*s",
                     SLICE_ARG(header.topic_filter_type));
        return;
    }
    /* Java takes any number; a topic of more queues than this could never be listed. */
    if (header.read_queue_nums < 0 || header.read_queue_nums > (int32_t)TOPIC_CONFIG_QUEUES_MAX || header.write_queue_nums < 0 ||
        header.write_queue_nums > (int32_t)TOPIC_CONFIG_QUEUES_MAX) {
        reply_simple(broker, &request->reply_to, RESPONSE_SYSTEM_ERROR, "readQueueNums and writeQueueNums must be between 0 and %u",
                     TOPIC_CONFIG_QUEUES_MAX);
        return;
    }
    if (broker->topics->count >= TOPIC_CONFIG_TABLE_MAX && topic_config_find(broker->topics, header.topic) == NULL) {
        reply_simple(broker, &request->reply_to, RESPONSE_SERVICE_NOT_AVAILABLE, "%s", broker_stats_refuse(broker->stats, LIMIT_HIT_TOPICS));
        return;
    }
    char name[MESSAGE_TOPIC_MAX + 1];
    struct topic_config config;
    copy_name(name, header.topic);
    topic_config_init(&config, header.topic);
    config.read_queue_nums = header.read_queue_nums;
    config.write_queue_nums = header.write_queue_nums;
    config.perm = header.perm;
    config.multi_tag = multi_tag;
    config.topic_sys_flag = header.topic_sys_flag;
    /* header.order is ignored, as in Java: the order of a topic is told by the name server's KV table. */
    const struct topic_entry *entry = topic_config_find(broker->topics, header.topic);
    config.order = entry != NULL && entry->config.order;
    config.reserved_hours = entry == NULL ? 0 : entry->config.reserved_hours;
    if (!read_attributes(header.attributes, &config.reserved_hours)) {
        reply_simple(broker, &request->reply_to, RESPONSE_SYSTEM_ERROR, "attributes: +reserve.time=HOURS from 1 to %d, or -reserve.time, is needed: %.*s",
                     TOPIC_RESERVED_HOURS_MAX, SLICE_ARG(header.attributes));
        return;
    }
    Ledgermq__TopicConfig put;
    Ledgermq__TopicConfig *puts[1] = {&put};
    Ledgermq__MetadataRecord record = LEDGERMQ__METADATA_RECORD__INIT;
    metadata_topic_message(&config, name, &put);
    record.n_put_topics = 1;
    record.put_topics = puts;
    reply_after_record(broker, &request->reply_to, &record, NULL, name);
}

static void deletion_settled(struct broker *broker, const char *name, int code)
{
    struct dledger_state state = {0};
    if (broker->log != NULL)
        dledger_commit_log_state(broker->log, &state);
    topic_config_deletion_settled(broker->topics, slice_of_text(name), code, state.next_index);
}

static void delete_topic(struct broker *broker, struct request *request)
{
    struct slice topic;
    if (!topic_of(broker, request, &topic) || !may_change(broker, request, topic))
        return;
    if (topic_config_find(broker->topics, topic) == NULL && !topic_config_is_coming(broker->topics, topic)) {
        reply_simple(broker, &request->reply_to, RESPONSE_SUCCESS, NULL);
        return;
    }
    char name[MESSAGE_TOPIC_MAX + 1];
    char *names[1] = {name};
    Ledgermq__MetadataRecord record = LEDGERMQ__METADATA_RECORD__INIT;
    copy_name(name, topic);
    record.n_delete_topics = 1;
    record.delete_topics = names;
    /* From here on no send may follow the record into the log: it would be a message of the old topic behind its end. */
    int rv = topic_config_deletion_begins(broker, topic);
    if (rv != 0) {
        reply_not_now(broker, &request->reply_to, rv);
        return;
    }
    reply_after_record(broker, &request->reply_to, &record, deletion_settled, name);
}

/* ---- cleaning ---- */

struct cleaning {
    struct broker *broker;
    char **topics;
    size_t count, capacity;
    bool failed;
};

static void note_if_unused(void *argument, struct consume_queue *queue)
{
    struct cleaning *cleaning = argument;
    struct slice topic = slice_of_text(queue->topic);
    if (cleaning->failed || is_system(cleaning->broker, topic) || topic_config_find(cleaning->broker->topics, topic) != NULL ||
        topic_config_is_coming(cleaning->broker->topics, topic))
        return;
    for (size_t i = 0; i < cleaning->count; i++) {
        if (strcmp(cleaning->topics[i], queue->topic) == 0)
            return;
    }
    if (cleaning->count == cleaning->capacity) {
        size_t capacity = cleaning->capacity == 0 ? 16 : 2 * cleaning->capacity;
        char **topics = realloc(cleaning->topics, capacity * sizeof *topics);
        if (topics == NULL) {
            cleaning->failed = true;
            return;
        }
        cleaning->topics = topics;
        cleaning->capacity = capacity;
    }
    char *copy = strdup(queue->topic);
    if (copy == NULL)
        cleaning->failed = true;
    else
        cleaning->topics[cleaning->count++] = copy;
}

/* 306 and 316. A topic's queues go where its deletion stands in the log, so only files that could not be removed then are found here. Each node cleans its
 * own, once all it knows to be committed is applied: before, a queue may be of a topic whose deletion is still to come. */
static void clean_queues(struct broker *broker, struct request *request)
{
    struct dledger_state state;
    dledger_commit_log_state(broker->log, &state);
    if (state.applied_index != state.commit_index || state.leader < 0) {
        reply_simple(broker, &request->reply_to, RESPONSE_SERVICE_NOT_AVAILABLE, "this node has not applied all of the log yet, or hears no leader");
        return;
    }
    struct cleaning cleaning = {.broker = broker};
    int code = 0;
    message_store_each_queue(&broker->store, note_if_unused, &cleaning);
    for (size_t i = 0; i < cleaning.count; i++) {
        int rv = message_store_delete_topic(&broker->store, slice_of_text(cleaning.topics[i]));
        LOG_INFO("queues of topic %s, which does not exist, are removed: %s", cleaning.topics[i], error_text(rv));
        if (rv != 0)
            code = rv;
        free(cleaning.topics[i]);
    }
    free(cleaning.topics);
    if (cleaning.failed)
        code = ERROR_NO_MEMORY;
    dledger_commit_log_trim_queues(broker->log);
    if (code == 0)
        reply_simple(broker, &request->reply_to, RESPONSE_SUCCESS, NULL);
    else
        reply_simple(broker, &request->reply_to, RESPONSE_SYSTEM_ERROR, "queue files could not be removed: %s", error_text(code));
}

/* Java says success and leaves the rest to its cleaning thread, as happens here; but when something that is due cannot go, that is said. */
static void delete_expired_commit_log(struct broker *broker, struct request *request)
{
    int code = retention_look(broker->retention, true);
    const char *held_back = retention_counters(broker->retention)->held_back;
    if (code != 0)
        reply_simple(broker, &request->reply_to, RESPONSE_SYSTEM_ERROR, "nothing was deleted: %s", error_text(code));
    else if (held_back[0] != '\0')
        reply_simple(broker, &request->reply_to, RESPONSE_SYSTEM_ERROR, "%s", held_back);
    else
        reply_simple(broker, &request->reply_to, RESPONSE_SUCCESS, NULL);
}

/* ---- questions ---- */

static void get_all_topic_config(struct broker *broker, struct request *request)
{
    struct remoting_writer writer;
    size_t size = 0;
    for (const struct topic_entry *entry = broker->topics->entries; entry != NULL; entry = entry->hh.next)
        size += TOPIC_BYTES_MAX + 2 * entry->config.name.size;
    if (size > REMOTING_FRAME_MAX) {
        reply_simple(broker, &request->reply_to, RESPONSE_SYSTEM_ERROR, "the settings of %u topics do not fit a frame; ask for single ones (351)",
                     broker->topics->count);
        return;
    }
    if (!reply_body_begin(broker, &request->reply_to, &writer))
        return;
    topic_config_serialize_wrapper_begin(writer.out, &broker->topics->version);
    for (struct topic_entry *entry = broker->topics->entries; entry != NULL; entry = entry->hh.next)
        topic_config_serialize_wrapper_add(writer.out, &entry->config);
    topic_config_serialize_wrapper_end(writer.out);
    reply_end(broker, &request->reply_to, &writer);
}

static void get_topic_config(struct broker *broker, struct request *request)
{
    struct slice topic;
    struct remoting_writer writer;
    if (!topic_of(broker, request, &topic))
        return;
    struct topic_entry *entry = topic_config_find(broker->topics, topic);
    if (entry == NULL) {
        reply_simple(broker, &request->reply_to, RESPONSE_TOPIC_NOT_EXIST, "No topic in this broker. topic: %.*s", SLICE_ARG(topic));
    } else if (reply_body_begin(broker, &request->reply_to, &writer)) {
        topic_config_encode(&entry->config, writer.out);
        reply_end(broker, &request->reply_to, &writer);
    }
}

static void get_topic_stats(struct broker *broker, struct request *request)
{
    struct slice topic;
    struct remoting_writer writer;
    if (!topic_of(broker, request, &topic))
        return;
    struct topic_entry *entry = topic_config_find(broker->topics, topic);
    if (entry == NULL) {
        reply_simple(broker, &request->reply_to, RESPONSE_TOPIC_NOT_EXIST, "topic[%.*s] not exist", SLICE_ARG(topic));
        return;
    }
    if (!reply_body_begin(broker, &request->reply_to, &writer))
        return;
    topic_stats_table_begin(writer.out);
    for (int32_t queue_id = 0; queue_id < entry->config.write_queue_nums; queue_id++) {
        struct topic_offset offset = {
            .queue = {.broker_name = slice_of_text(broker->config.broker_name), .topic = topic, .queue_id = queue_id},
            .min_offset = message_store_min_offset(&broker->store, topic, queue_id),
            .max_offset = message_store_max_offset(&broker->store, topic, queue_id),
        };
        if (offset.max_offset > 0) {
            int64_t time_ms = message_store_store_time(&broker->store, topic, queue_id, offset.max_offset - 1);
            offset.last_update_timestamp_ms = time_ms < 0 ? 0 : time_ms;
        }
        topic_stats_table_add(writer.out, &offset);
    }
    topic_stats_table_end(writer.out);
    reply_end(broker, &request->reply_to, &writer);
}

static void query_topic_consume_by_who(struct broker *broker, struct request *request)
{
    struct slice topic;
    struct remoting_writer writer;
    if (!topic_of(broker, request, &topic) || !reply_body_begin(broker, &request->reply_to, &writer))
        return;
    group_list_begin(writer.out);
    for (struct client_group *group = broker->clients->consumers; group != NULL; group = group->hh.next) {
        if (client_registry_subscription(group, topic) != NULL)
            group_list_add(writer.out, slice_of_text(group->name));
    }
    for (struct consumer_offset_entry *entry = broker->offsets->entries; entry != NULL; entry = entry->hh.next) {
        if (!slice_equal(entry->topic, topic))
            continue;
        struct client_group *group = client_registry_consumer_group(broker->clients, entry->group);
        if (group == NULL || client_registry_subscription(group, topic) == NULL)
            group_list_add(writer.out, entry->group);
    }
    group_list_end(writer.out);
    reply_end(broker, &request->reply_to, &writer);
}

static void get_system_topic_list(struct broker *broker, struct request *request)
{
    struct remoting_writer writer;
    if (!reply_body_begin(broker, &request->reply_to, &writer))
        return;
    topic_list_begin(writer.out, slice_of(NULL, 0));
    for (const char *const *name = topic_system_names(); *name != NULL; name++)
        topic_list_add(writer.out, slice_of_text(*name));
    for (struct topic_entry *entry = broker->topics->entries; entry != NULL; entry = entry->hh.next) {
        if (entry->built_in && !topic_is_system(entry->config.name))
            topic_list_add(writer.out, entry->config.name);
    }
    topic_list_end(writer.out);
    reply_end(broker, &request->reply_to, &writer);
}

static void reply_number(struct broker *broker, const struct reply_to *to, const char *name, int64_t value)
{
    struct remoting_writer writer;
    if (!reply_begin(broker, to, &writer, RESPONSE_SUCCESS, NULL))
        return;
    remoting_writer_ext_i64(&writer, name, value);
    reply_end(broker, to, &writer);
}

static void search_offset_by_timestamp(struct broker *broker, struct request *request)
{
    struct search_offset_request_header header;
    struct error error;
    if (search_offset_request_header_decode(request->command, &header, &error) != 0)
        reply_error(broker, &request->reply_to, &error);
    else
        reply_number(broker, &request->reply_to, "offset",
                     message_store_offset_by_time(&broker->store, header.topic, header.queue_id, header.timestamp_ms));
}

static void get_offset(struct broker *broker, struct request *request)
{
    struct get_offset_request_header header;
    struct error error;
    if (get_offset_request_header_decode(request->command, &header, &error) != 0) {
        reply_error(broker, &request->reply_to, &error);
        return;
    }
    int64_t min = message_store_min_offset(&broker->store, header.topic, header.queue_id);
    switch (request->command->code) {
    case REQUEST_GET_MAX_OFFSET:
        reply_number(broker, &request->reply_to, "offset", message_store_max_offset(&broker->store, header.topic, header.queue_id));
        break;
    case REQUEST_GET_MIN_OFFSET:
        reply_number(broker, &request->reply_to, "offset", min);
        break;
    default: /* GET_EARLIEST_MSG_STORETIME */
        reply_number(broker, &request->reply_to, "timestamp", message_store_store_time(&broker->store, header.topic, header.queue_id, min));
        break;
    }
}

const struct processor_row admin_topic_processor_rows[] = {
    {REQUEST_UPDATE_AND_CREATE_TOPIC, "UPDATE_AND_CREATE_TOPIC", update_and_create_topic, PROCESSOR_FORWARD},
    {REQUEST_DELETE_TOPIC_IN_BROKER, "DELETE_TOPIC_IN_BROKER", delete_topic, PROCESSOR_FORWARD},
    {REQUEST_CLEAN_EXPIRED_CONSUMEQUEUE, "CLEAN_EXPIRED_CONSUMEQUEUE", clean_queues, 0},
    {REQUEST_CLEAN_UNUSED_TOPIC, "CLEAN_UNUSED_TOPIC", clean_queues, 0},
    {REQUEST_DELETE_EXPIRED_COMMITLOG, "DELETE_EXPIRED_COMMITLOG", delete_expired_commit_log, PROCESSOR_FORWARD},
    {REQUEST_GET_ALL_TOPIC_CONFIG, "GET_ALL_TOPIC_CONFIG", get_all_topic_config, 0},
    {REQUEST_GET_TOPIC_CONFIG, "GET_TOPIC_CONFIG", get_topic_config, 0},
    {REQUEST_GET_TOPIC_STATS_INFO, "GET_TOPIC_STATS_INFO", get_topic_stats, 0},
    {REQUEST_QUERY_TOPIC_CONSUME_BY_WHO, "QUERY_TOPIC_CONSUME_BY_WHO", query_topic_consume_by_who, 0},
    {REQUEST_GET_SYSTEM_TOPIC_LIST_FROM_BROKER, "GET_SYSTEM_TOPIC_LIST_FROM_BROKER", get_system_topic_list, 0},
    {REQUEST_SEARCH_OFFSET_BY_TIMESTAMP, "SEARCH_OFFSET_BY_TIMESTAMP", search_offset_by_timestamp, PROCESSOR_FORWARD | PROCESSOR_QUESTION},
    {REQUEST_GET_MAX_OFFSET, "GET_MAX_OFFSET", get_offset, PROCESSOR_FORWARD | PROCESSOR_QUESTION},
    {REQUEST_GET_MIN_OFFSET, "GET_MIN_OFFSET", get_offset, 0},
    {REQUEST_GET_EARLIEST_MSG_STORETIME, "GET_EARLIEST_MSG_STORETIME", get_offset, 0},
    {0, NULL, NULL, 0},
};
