/* The pull consumer, and reading messages by id and key (DefaultMQPullConsumerImpl, MQAdminImpl 4.9.8). */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <uthash.h>

#include "client/client.h"
#include "client/stored_message.h"
#include "proto/headers.h"
#include "proto/request_code.h"
#include "proto/response_code.h"
#include "proto/topic_validator.h"

#define PULL_SYS_FLAG_SUSPEND 2
#define PULL_SYS_FLAG_SUBSCRIPTION 4
#define PULL_EXTRA_MS 10000 /* what a pull may take beyond the time it is held */
#define PULL_HOLD_MS_MAX 60000
#define PULL_MESSAGES_MAX 1024
#define ASK_AGAIN_MS 30
#define SQL_PREFIX "sql:"
#define SEND_BACK_TIMES_MAX "16"

struct ledgermq_pull_consumer {
    struct ledgermq_client *client;
    struct ledgermq_pull_consumer *next;
    char *group;
    int64_t version_ms;
    uv_mutex_t lock; /* guards topics */
    struct known_topic *topics;
};

/* Topics that heart-beats name already. */
struct known_topic {
    UT_hash_handle hh;
    char name[];
};

const char *ledgermq_pull_status_text(int status)
{
    static const char *const names[] = {"FOUND", "NO_NEW_MSG", "NO_MATCHED_MSG", "OFFSET_ILLEGAL"};
    return status >= 0 && status < 4 ? names[status] : "UNKNOWN";
}

int ledgermq_pull_consumer_new(struct ledgermq_client *client, const char *group,
                               struct ledgermq_pull_consumer **out, struct ledgermq_error *public_error)
{
    struct error error = {0};
    char full_group[NAMESPACED_NAME_MAX] = "";
    if (group != NULL)
        namespace_wrap(client->name_space, group, full_group);
    if (group_validate(slice_of_text(full_group), &error) != 0)
        return client_error(public_error, ERROR_INVALID, 0, &error);
    struct ledgermq_pull_consumer *consumer = calloc(1, sizeof *consumer);
    int rv = ERROR_NO_MEMORY;
    if (consumer == NULL)
        return client_error(public_error, rv, 0, &error);
    consumer->client = client;
    consumer->version_ms = client_clock_ms();
    consumer->group = strdup(full_group);
    if (consumer->group == NULL || uv_mutex_init(&consumer->lock) != 0)
        goto free_consumer;
    rv = client_group_register(client, full_group, true);
    if (rv != 0)
        goto destroy_lock;
    uv_mutex_lock(&client->lock);
    consumer->next = client->pull_consumers;
    client->pull_consumers = consumer;
    uv_mutex_unlock(&client->lock);
    *out = consumer;
    return LEDGERMQ_OK;

destroy_lock:
    uv_mutex_destroy(&consumer->lock);
free_consumer:
    free(consumer->group);
    free(consumer);
    return client_error(public_error, rv, 0, &error);
}

void ledgermq_pull_consumer_free(struct ledgermq_pull_consumer *consumer)
{
    if (consumer == NULL)
        return;
    struct ledgermq_client *client = consumer->client;
    client_group_unregister(client, consumer->group, true);
    uv_mutex_lock(&client->lock);
    struct ledgermq_pull_consumer **at = &client->pull_consumers;
    while (*at != consumer)
        at = &(*at)->next;
    *at = consumer->next;
    uv_mutex_unlock(&client->lock);
    struct known_topic *topic, *next;
    HASH_ITER(hh, consumer->topics, topic, next)
    {
        HASH_DEL(consumer->topics, topic);
        free(topic);
    }
    uv_mutex_destroy(&consumer->lock);
    free(consumer->group);
    free(consumer);
}

/* The heart-beat tells brokers and tools which topics the group reads. */
static void note_topic(struct ledgermq_pull_consumer *consumer, const char *name)
{
    struct known_topic *topic;
    uv_mutex_lock(&consumer->lock);
    HASH_FIND_STR(consumer->topics, name, topic);
    bool fresh = topic == NULL;
    if (fresh && (topic = malloc(sizeof *topic + strlen(name) + 1)) != NULL) {
        memcpy(topic->name, name, strlen(name) + 1);
        HASH_ADD_STR(consumer->topics, name, topic);
    }
    uv_mutex_unlock(&consumer->lock);
    if (fresh)
        client_group_add_topic(consumer->client, consumer->group, name);
}

static int on_loop(struct ledgermq_client *client, struct ledgermq_error *error)
{
    if (!remoting_client_on_loop(client->remoting))
        return LEDGERMQ_OK;
    return client_error_text(error, LEDGERMQ_INVALID, 0, "this function waits, so a call back may not call it");
}

static int refused(struct ledgermq_error *error, const char *address, const struct remoting_command *answer)
{
    const char *name = response_code_name(answer->code);
    int code = answer->code == RESPONSE_QUERY_NOT_FOUND ? LEDGERMQ_NOT_FOUND : LEDGERMQ_REFUSED;
    return client_error_text(error, code, answer->code, "%.100s answers %d %s: %.*s", address, answer->code,
                             name == NULL ? "" : name, (int)(answer->remark.size < 300 ? answer->remark.size : 300),
                             (const char *)answer->remark.data);
}

/* Whether asking again elsewhere may help: nobody there, or a broker that does not lead (any more). */
static bool try_again(int rv, const struct remoting_response *response)
{
    if (rv == 0)
        return response->command.code == RESPONSE_SERVICE_NOT_AVAILABLE ||
               response->command.code == RESPONSE_SYSTEM_BUSY;
    return rv == ERROR_CONNECTION;
}

/* One request to the leader of a queue's broker. Reading is safe to repeat, so a change of leader is waited
 * for as long as other calls may take. 0 with an answer of any code; else a public code. */
static int queue_call(struct ledgermq_client *client, const struct ledgermq_queue *queue, int32_t code,
                      const struct remoting_field *fields, int timeout_ms, char address[REMOTING_ADDRESS_MAX],
                      struct remoting_response *response, struct ledgermq_error *public_error)
{
    struct error error = {0};
    char failed_address[REMOTING_ADDRESS_MAX];
    const char *avoid = NULL;
    int64_t give_up_ms = client_monotonic_ms() + client->call_timeout_ms;
    for (;;) {
        int rv = client_broker_address(client, queue->topic, queue->broker_name, avoid, address, &error);
        if (rv == ERROR_NOT_FOUND)
            return client_error_text(public_error, LEDGERMQ_NO_ROUTE, RESPONSE_TOPIC_NOT_EXIST, "%s", error.message);
        bool again = rv == ERROR_NO_LEADER;
        if (rv == 0) {
            rv = remoting_client_invoke(client->remoting, address, code, fields, slice_of(NULL, 0), timeout_ms,
                                        response, &error);
            again = try_again(rv, response);
            if (rv == 0 && !again)
                return LEDGERMQ_OK;
            snprintf(failed_address, sizeof failed_address, "%s", address);
            avoid = failed_address;
        }
        if (!again || client_monotonic_ms() >= give_up_ms) {
            if (rv != 0)
                return client_error(public_error, rv, 0, &error);
            return LEDGERMQ_OK; /* the refusal is the answer */
        }
        if (rv == 0)
            remoting_response_close(response);
        uv_sleep(ASK_AGAIN_MS);
    }
}

const char *client_expression(const char *given, bool *sql)
{
    *sql = given != NULL && strncmp(given, SQL_PREFIX, strlen(SQL_PREFIX)) == 0;
    return given == NULL ? SUBSCRIPTION_ALL : given + (*sql ? strlen(SQL_PREFIX) : 0);
}

struct ledgermq_queue client_full_queue(const struct ledgermq_client *client, const struct ledgermq_queue *queue)
{
    char topic[NAMESPACED_NAME_MAX];
    struct ledgermq_queue full = *queue;
    namespace_wrap(client->name_space, queue->topic, topic);
    snprintf(full.topic, sizeof full.topic, "%.*s", LEDGERMQ_TOPIC_MAX, topic);
    return full;
}

static int check_queue(const struct ledgermq_queue *queue, struct ledgermq_error *error)
{
    if (queue == NULL || queue->topic[0] == '\0' || queue->broker_name[0] == '\0' || queue->queue_id < 0)
        return client_error_text(error, LEDGERMQ_INVALID, 0,
                                 "the queue has no topic, no broker name or a negative id");
    return LEDGERMQ_OK;
}

int ledgermq_subscribe_queues(struct ledgermq_pull_consumer *consumer, const char *topic,
                              struct ledgermq_queue **queues, size_t *count, struct ledgermq_error *error)
{
    char full_topic[NAMESPACED_NAME_MAX];
    if (on_loop(consumer->client, error) != LEDGERMQ_OK)
        return LEDGERMQ_INVALID;
    int rv = client_queues(consumer->client, topic, false, NULL, 0, queues, count, error);
    if (rv != LEDGERMQ_OK)
        return rv;
    namespace_wrap(consumer->client->name_space, topic, full_topic);
    note_topic(consumer, full_topic);
    return LEDGERMQ_OK;
}

/* --- pull ---- */

static int take_pull(const struct ledgermq_client *client, struct remoting_response *response, const char *address,
                     const struct ledgermq_queue *queue, const char *tags, struct ledgermq_pull_result **result,
                     struct ledgermq_error *public_error)
{
    struct pull_message_response_header header;
    struct error error = {0};
    int status;
    switch (response->command.code) {
    case RESPONSE_SUCCESS:
        status = LEDGERMQ_FOUND;
        break;
    case RESPONSE_PULL_NOT_FOUND:
        status = LEDGERMQ_NO_NEW_MESSAGE;
        break;
    case RESPONSE_PULL_RETRY_IMMEDIATELY:
        status = LEDGERMQ_NO_MATCHED_MESSAGE;
        break;
    case RESPONSE_PULL_OFFSET_MOVED:
        status = LEDGERMQ_OFFSET_ILLEGAL;
        break;
    default:
        refused(public_error, address, &response->command);
        remoting_response_close(response);
        return LEDGERMQ_REFUSED;
    }
    int rv = pull_message_response_header_decode(&response->command, &header, &error);
    struct stored_messages *messages = rv == 0 ? stored_messages_new() : NULL;
    if (messages == NULL) {
        remoting_response_close(response);
        return client_error(public_error, rv == 0 ? ERROR_NO_MEMORY : ERROR_MALFORMED, 0, &error);
    }
    messages->result.status = status;
    messages->result.next_offset = header.next_begin_offset;
    messages->result.min_offset = header.min_offset;
    messages->result.max_offset = header.max_offset;
    if (status == LEDGERMQ_FOUND) {
        rv = stored_messages_add(messages, response, queue->broker_name, tags == NULL ? NULL : stored_message_tag_wanted, tags,
                                 &error);
        if (rv == 0 && !stored_messages_unwrap(messages, client->name_space))
            rv = error_set(&error, ERROR_NO_MEMORY, "out of memory");
        if (messages->result.count == 0)
            messages->result.status = LEDGERMQ_NO_MATCHED_MESSAGE;
    } else {
        remoting_response_close(response);
    }
    if (rv != 0) {
        stored_messages_free(messages);
        error_wrap(&error, "pull of queue %d of topic %s at %s", queue->queue_id, queue->topic, address);
        return client_error(public_error, rv, 0, &error);
    }
    *result = &messages->result;
    return LEDGERMQ_OK;
}

int ledgermq_pull(struct ledgermq_pull_consumer *consumer, const struct ledgermq_queue *queue,
                  const char *expression, int64_t offset, int max_messages, int hold_ms,
                  struct ledgermq_pull_result **result, struct ledgermq_error *error)
{
    char queue_id[16], queue_offset[24], max[16], sys_flag[16], hold[16], version[24], address[REMOTING_ADDRESS_MAX];
    if (check_queue(queue, error) != LEDGERMQ_OK || on_loop(consumer->client, error) != LEDGERMQ_OK)
        return LEDGERMQ_INVALID;
    if (max_messages < 1 || max_messages > PULL_MESSAGES_MAX || hold_ms < 0 || hold_ms > PULL_HOLD_MS_MAX)
        return client_error_text(error, LEDGERMQ_INVALID, 0, "a pull takes 1 to %d messages and is held 0 to %d ms",
                                 PULL_MESSAGES_MAX, PULL_HOLD_MS_MAX);
    bool sql;
    const char *text = client_expression(expression, &sql);
    struct ledgermq_queue full = client_full_queue(consumer->client, queue);
    note_topic(consumer, full.topic);
    snprintf(queue_id, sizeof queue_id, "%d", queue->queue_id);
    snprintf(queue_offset, sizeof queue_offset, "%lld", (long long)offset);
    snprintf(max, sizeof max, "%d", max_messages);
    snprintf(sys_flag, sizeof sys_flag, "%d",
             PULL_SYS_FLAG_SUBSCRIPTION | (hold_ms > 0 ? PULL_SYS_FLAG_SUSPEND : 0));
    snprintf(hold, sizeof hold, "%d", hold_ms);
    snprintf(version, sizeof version, "%lld", (long long)consumer->version_ms);
    const struct remoting_field fields[] = {
        {"consumerGroup", consumer->group},
        {"topic", full.topic},
        {"queueId", queue_id},
        {"queueOffset", queue_offset},
        {"maxMsgNums", max},
        {"sysFlag", sys_flag},
        {"commitOffset", "0"},
        {"suspendTimeoutMillis", hold},
        {"subscription", text},
        {"subVersion", version},
        {"expressionType", sql ? EXPRESSION_TYPE_SQL92 : EXPRESSION_TYPE_TAG},
        {NULL, NULL},
    };
    struct remoting_response response;
    int rv = queue_call(consumer->client, &full, REQUEST_PULL_MESSAGE, fields, hold_ms + PULL_EXTRA_MS, address,
                        &response, error);
    if (rv != LEDGERMQ_OK)
        return rv;
    bool all = sql || strcmp(text, SUBSCRIPTION_ALL) == 0 || text[0] == '\0';
    return take_pull(consumer->client, &response, address, queue, all ? NULL : text, result, error);
}

void ledgermq_pull_result_free(struct ledgermq_pull_result *result)
{
    stored_messages_free((struct stored_messages *)result);
}

/* --- offsets ---- */

int client_offset_call(struct ledgermq_client *client, const struct ledgermq_queue *queue, int32_t code,
                       const char *name, const char *value, const char *name2, const char *value2, int64_t *offset,
                       struct ledgermq_error *error)
{
    char queue_id[16], address[REMOTING_ADDRESS_MAX];
    struct remoting_response response;
    if (check_queue(queue, error) != LEDGERMQ_OK || on_loop(client, error) != LEDGERMQ_OK)
        return LEDGERMQ_INVALID;
    struct ledgermq_queue full = client_full_queue(client, queue);
    snprintf(queue_id, sizeof queue_id, "%d", queue->queue_id);
    const struct remoting_field fields[] = {{"topic", full.topic},
                                            {"queueId", queue_id},
                                            {name != NULL ? name : "", value},
                                            {name2 != NULL ? name2 : "", value2},
                                            {NULL, NULL}};
    int rv = queue_call(client, &full, code, fields, client->call_timeout_ms, address, &response, error);
    if (rv != LEDGERMQ_OK)
        return rv;
    if (response.command.code != RESPONSE_SUCCESS) {
        rv = refused(error, address, &response.command);
    } else if (offset != NULL && !slice_to_i64(remoting_ext(&response.command, "offset"), offset)) {
        rv = client_error_text(error, LEDGERMQ_MALFORMED, 0, "%s answered request %d without an offset", address,
                               code);
    }
    remoting_response_close(&response);
    return rv;
}

int ledgermq_min_offset(struct ledgermq_pull_consumer *consumer, const struct ledgermq_queue *queue, int64_t *offset,
                        struct ledgermq_error *error)
{
    return client_offset_call(consumer->client, queue, REQUEST_GET_MIN_OFFSET, NULL, NULL, NULL, NULL, offset, error);
}

int ledgermq_max_offset(struct ledgermq_pull_consumer *consumer, const struct ledgermq_queue *queue, int64_t *offset,
                        struct ledgermq_error *error)
{
    return client_offset_call(consumer->client, queue, REQUEST_GET_MAX_OFFSET, NULL, NULL, NULL, NULL, offset, error);
}

int ledgermq_search_offset(struct ledgermq_pull_consumer *consumer, const struct ledgermq_queue *queue,
                           int64_t timestamp_ms, int64_t *offset, struct ledgermq_error *error)
{
    char timestamp[24];
    snprintf(timestamp, sizeof timestamp, "%lld", (long long)timestamp_ms);
    return client_offset_call(consumer->client, queue, REQUEST_SEARCH_OFFSET_BY_TIMESTAMP, "timestamp", timestamp, NULL,
                       NULL, offset, error);
}

int ledgermq_fetch_offset(struct ledgermq_pull_consumer *consumer, const struct ledgermq_queue *queue,
                          int64_t *offset, struct ledgermq_error *error)
{
    return client_offset_call(consumer->client, queue, REQUEST_QUERY_CONSUMER_OFFSET, "consumerGroup", consumer->group, NULL,
                       NULL, offset, error);
}

int ledgermq_commit_offset(struct ledgermq_pull_consumer *consumer, const struct ledgermq_queue *queue,
                           int64_t offset, struct ledgermq_error *error)
{
    char text[24];
    if (offset < 0)
        return client_error_text(error, LEDGERMQ_INVALID, 0, "an offset is not negative");
    snprintf(text, sizeof text, "%lld", (long long)offset);
    return client_offset_call(consumer->client, queue, REQUEST_UPDATE_CONSUMER_OFFSET, "consumerGroup", consumer->group,
                       "commitOffset", text, NULL, error);
}

int ledgermq_send_back(struct ledgermq_pull_consumer *consumer, const struct ledgermq_stored_message *message,
                       int delay_level, struct ledgermq_error *error)
{
    char offset[24], level[16], address[REMOTING_ADDRESS_MAX];
    struct remoting_response response;
    if (message == NULL || message->broker_name == NULL)
        return client_error_text(error, LEDGERMQ_INVALID, 0, "only a message of a pull can be sent back");
    if (delay_level < -1 || delay_level > LEDGERMQ_DELAY_LEVELS)
        return client_error_text(error, LEDGERMQ_INVALID, 0, "delay level %d; there are -1 to %d", delay_level,
                                 LEDGERMQ_DELAY_LEVELS);
    if (on_loop(consumer->client, error) != LEDGERMQ_OK)
        return LEDGERMQ_INVALID;
    struct ledgermq_queue queue = {.queue_id = message->queue_id};
    snprintf(queue.topic, sizeof queue.topic, "%s", message->topic);
    snprintf(queue.broker_name, sizeof queue.broker_name, "%s", message->broker_name);
    struct ledgermq_queue full = client_full_queue(consumer->client, &queue);
    snprintf(offset, sizeof offset, "%lld", (long long)message->physical_offset);
    snprintf(level, sizeof level, "%d", delay_level);
    const struct remoting_field fields[] = {{"offset", offset},
                                            {"group", consumer->group},
                                            {"delayLevel", level},
                                            {"originMsgId", message->message_id},
                                            {"originTopic", full.topic},
                                            {"unitMode", "false"},
                                            {"maxReconsumeTimes", SEND_BACK_TIMES_MAX},
                                            {NULL, NULL}};
    int rv = queue_call(consumer->client, &full, REQUEST_CONSUMER_SEND_MSG_BACK, fields,
                        consumer->client->call_timeout_ms, address, &response, error);
    if (rv != LEDGERMQ_OK)
        return rv;
    if (response.command.code != RESPONSE_SUCCESS)
        rv = refused(error, address, &response.command);
    remoting_response_close(&response);
    return rv;
}

/* --- by id and key ---- */

int ledgermq_view_message(struct ledgermq_client *client, const char *offset_message_id,
                          struct ledgermq_pull_result **result, struct ledgermq_error *public_error)
{
    struct message_host host;
    struct error error = {0};
    struct remoting_response response;
    char address[64], offset_text[24];
    int64_t offset;
    if (on_loop(client, public_error) != LEDGERMQ_OK)
        return LEDGERMQ_INVALID;
    if (!message_id_parse(slice_of_text(offset_message_id), &host, &offset))
        return client_error_text(public_error, LEDGERMQ_INVALID, 0,
                                 "'%.60s' is no offset message id: it has 32 (or 56) hexadecimal digits; for "
                                 "a UNIQ_KEY query by key",
                                 offset_message_id == NULL ? "" : offset_message_id);
    message_host_format(&host, address, sizeof address);
    snprintf(offset_text, sizeof offset_text, "%lld", (long long)offset);
    const struct remoting_field fields[] = {{"offset", offset_text}, {NULL, NULL}};
    int rv = remoting_client_invoke(client->remoting, address, REQUEST_VIEW_MESSAGE_BY_ID, fields, slice_of(NULL, 0),
                                    client->call_timeout_ms, &response, &error);
    if (rv != 0) {
        error_wrap(&error, "the broker named in the id");
        return client_error(public_error, rv, 0, &error);
    }
    if (response.command.code != RESPONSE_SUCCESS) {
        refused(public_error, address, &response.command);
        bool missing = response.command.code == RESPONSE_SYSTEM_ERROR;
        remoting_response_close(&response);
        if (missing && public_error != NULL)
            public_error->code = LEDGERMQ_NOT_FOUND;
        return missing ? LEDGERMQ_NOT_FOUND : LEDGERMQ_REFUSED;
    }
    struct stored_messages *messages = stored_messages_new();
    if (messages == NULL) {
        remoting_response_close(&response);
        return client_error(public_error, ERROR_NO_MEMORY, 0, &error);
    }
    rv = stored_messages_add(messages, &response, NULL, NULL, NULL, &error);
    if (rv == 0 && !stored_messages_unwrap(messages, client->name_space))
        rv = error_set(&error, ERROR_NO_MEMORY, "out of memory");
    if (rv == 0 && messages->result.count != 1)
        rv = error_set(&error, ERROR_MALFORMED, "%s answered with %zu messages instead of one", address,
                       messages->result.count);
    if (rv != 0) {
        stored_messages_free(messages);
        return client_error(public_error, rv, 0, &error);
    }
    *result = &messages->result;
    return LEDGERMQ_OK;
}

struct wanted_key {
    const char *topic;
    const char *key;
    bool unique;
};

/* The index compares hashes (and, of other brokers, nothing else), so the texts decide here. */
static bool key_wanted(const struct ledgermq_stored_message *message, const void *context)
{
    const struct wanted_key *wanted = context;
    if (strcmp(message->topic, wanted->topic) != 0)
        return false;
    if (wanted->unique)
        return strcmp(message->message_id, wanted->key) == 0;
    size_t size = strlen(wanted->key);
    for (const char *at = message->keys; at != NULL && *at != '\0';) {
        size_t part = strcspn(at, " ");
        if (part == size && memcmp(at, wanted->key, size) == 0)
            return true;
        at += part + (at[part] == ' ');
    }
    return false;
}

/* Fails only when no broker could be asked. */
static int query_brokers(struct ledgermq_client *client, char (*addresses)[REMOTING_ADDRESS_MAX], size_t count,
                         const struct remoting_field *fields, const struct wanted_key *wanted,
                         struct stored_messages *messages, struct ledgermq_error *public_error)
{
    struct error error = {0};
    int rv = client_error_text(public_error, LEDGERMQ_NO_ROUTE, 0, "topic %s has no live broker", wanted->topic);
    bool asked = false;
    for (size_t i = 0; i < count; i++) {
        struct remoting_response response;
        int status = remoting_client_invoke(client->remoting, addresses[i], REQUEST_QUERY_MESSAGE, fields,
                                            slice_of(NULL, 0), client->call_timeout_ms * 2, &response, &error);
        if (status != 0) {
            rv = client_error(public_error, status, 0, &error);
            continue;
        }
        if (response.command.code == RESPONSE_SUCCESS) {
            status = stored_messages_add(messages, &response, NULL, key_wanted, wanted, &error);
            if (status != 0)
                rv = client_error(public_error, status, 0, &error);
            else
                asked = true;
            continue;
        }
        if (response.command.code == RESPONSE_QUERY_NOT_FOUND)
            asked = true;
        else
            rv = refused(public_error, addresses[i], &response.command);
        remoting_response_close(&response);
    }
    return asked ? LEDGERMQ_OK : rv;
}

int ledgermq_query_messages(struct ledgermq_client *client, const char *topic, const char *key, bool unique,
                            int max_messages, int64_t begin_ms, int64_t end_ms, struct ledgermq_pull_result **result,
                            struct ledgermq_error *public_error)
{
    struct error error = {0};
    char max[16], begin[24], end[24], (*addresses)[REMOTING_ADDRESS_MAX];
    size_t count;
    if (on_loop(client, public_error) != LEDGERMQ_OK)
        return LEDGERMQ_INVALID;
    if (topic_validate(slice_of_text(topic), &error) != 0)
        return client_error(public_error, ERROR_INVALID, 0, &error);
    if (key == NULL || key[0] == '\0' || max_messages < 1)
        return client_error_text(public_error, LEDGERMQ_INVALID, 0,
                                 "a query needs a key and a number of messages above 0");
    char full_topic[NAMESPACED_NAME_MAX];
    namespace_wrap(client->name_space, topic, full_topic);
    int rv = client_topic_brokers(client, full_topic, &addresses, &count, &error);
    if (rv == ERROR_NOT_FOUND)
        return client_error_text(public_error, LEDGERMQ_NO_ROUTE, RESPONSE_TOPIC_NOT_EXIST, "%s", error.message);
    if (rv != 0)
        return client_error(public_error, rv, 0, &error);
    struct stored_messages *messages = stored_messages_new();
    if (messages == NULL) {
        free(addresses);
        return client_error(public_error, ERROR_NO_MEMORY, 0, &error);
    }
    snprintf(max, sizeof max, "%d", max_messages);
    snprintf(begin, sizeof begin, "%lld", (long long)begin_ms);
    snprintf(end, sizeof end, "%lld", end_ms > 0 ? (long long)end_ms : (long long)INT64_MAX);
    const struct remoting_field fields[] = {{"topic", full_topic}, {"key", key},
                                            {"maxNum", max},       {"beginTimestamp", begin},
                                            {"endTimestamp", end}, {"_UNIQUE_KEY_QUERY", unique ? "true" : "false"},
                                            {NULL, NULL}};
    struct wanted_key wanted = {full_topic, key, unique};
    rv = query_brokers(client, addresses, count, fields, &wanted, messages, public_error);
    free(addresses);
    if (rv == LEDGERMQ_OK && messages->result.count == 0)
        rv = client_error_text(public_error, LEDGERMQ_NOT_FOUND, RESPONSE_NO_MESSAGE,
                               "topic %s has no message with %s %s in that time", topic, unique ? "id" : "key", key);
    if (rv == LEDGERMQ_OK && !stored_messages_unwrap(messages, client->name_space))
        rv = client_error_text(public_error, LEDGERMQ_NO_MEMORY, 0, "out of memory");
    if (rv != LEDGERMQ_OK) {
        stored_messages_free(messages);
        return rv;
    }
    messages->result.status = LEDGERMQ_FOUND;
    *result = &messages->result;
    return LEDGERMQ_OK;
}
