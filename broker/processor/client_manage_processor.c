/* Requests with which clients say who they are: HEART_BEAT 34, UNREGISTER_CLIENT 35, CHECK_CLIENT_CONFIG 46.
 *
 * Follows org.apache.rocketmq.broker.processor.ClientManageProcessor 4.9.8. Every node takes heart-beats for itself (its own registry). Groups and
 * retry topics are made by the leader alone: all clients send their heart-beats to the address with id 0, so nothing has to be forwarded, and a leader
 * that is new makes up for what it has not seen (client_registry_ensure_groups). A heart-beat is answered when what it needs is in the log, for a client
 * asks the name servers for its retry topic right after.
 */
#include <stdlib.h>

#include "broker/broker.h"
#include "broker/metadata/metadata.h"
#include "broker/metadata/queue_lock.h"
#include "broker/metadata/subscription_group.h"
#include "broker/metadata/topic_config.h"
#include "broker/processor/processor.h"
#include "broker/processor/reply.h"
#include "broker/processor/sql_program.h"
#include "broker/remoting/client_registry.h"
#include "proto/check_client_config.h"
#include "proto/headers.h"
#include "proto/heartbeat_data.h"
#include "proto/request_code.h"
#include "proto/response_code.h"
#include "proto/topic_validator.h"

struct heart_beat_wait {
    struct reply_to reply_to;
    uint32_t left;
};

/* Whether the records came through or not, the client is registered: the next heart-beat tries again. */
static void one_ready(struct broker *broker, void *context, int code)
{
    struct heart_beat_wait *wait = context;
    (void)code;
    if (--wait->left > 0)
        return;
    reply_simple(broker, &wait->reply_to, RESPONSE_SUCCESS, NULL);
    free(wait);
}

static void need_group_and_retry_topic(struct broker *broker, const struct consumer_data *consumer, struct heart_beat_wait *wait)
{
    const struct subscription_group_config *config = subscription_group_find(broker->groups, consumer->group_name);
    int32_t queue_nums = 1;
    if (config != NULL)
        queue_nums = config->retry_queue_nums;
    else if (subscription_group_create(broker, consumer->group_name, one_ready, wait) == 0)
        wait->left++;
    else
        return; /* auto-creation is off, or the name is illegal: registered without settings, as in Java */
    char topic[MESSAGE_TOPIC_MAX + 1];
    int size = snprintf(topic, sizeof topic, "%s%.*s", TOPIC_RETRY_PREFIX, (int)consumer->group_name.size, (const char *)consumer->group_name.data);
    if ((size_t)size >= sizeof topic)
        return;
    if (topic_config_create_in_send_back(broker, slice_of(topic, (size_t)size), queue_nums, PERM_READ | PERM_WRITE,
                                         consumer->unit_mode ? TOPIC_SYS_FLAG_UNIT_SUB : 0, one_ready, wait) == 0) {
        wait->left++;
        client_registry_notify_again(broker, consumer->group_name);
    }
}

static void heart_beat(struct broker *broker, struct request *request)
{
    struct heartbeat_data data;
    struct error error;
    if (heartbeat_data_decode(&data, request->command->body, &error) != 0) {
        reply_body_error(broker, &request->reply_to, &error);
        return;
    }
    int rv = client_registry_heart_beat(broker, request, &data);
    struct heart_beat_wait *wait = calloc(1, sizeof *wait);
    if (rv != 0 || wait == NULL) {
        if (rv == ERROR_INVALID)
            reply_simple(broker, &request->reply_to, RESPONSE_SYSTEM_ERROR, "heart-beat: clientID or groupName is empty or too long");
        else
            reply_not_now(broker, &request->reply_to, rv == 0 ? ERROR_NO_MEMORY : rv);
        free(wait);
    } else {
        wait->reply_to = request->reply_to;
        wait->left = 1;
        for (size_t i = 0; metadata_leads(broker) && i < data.consumer_count; i++)
            need_group_and_retry_topic(broker, &data.consumers[i], wait);
        one_ready(broker, wait, 0);
    }
    heartbeat_data_close(&data);
}

static void unregister_client(struct broker *broker, struct request *request)
{
    struct unregister_client_request_header header;
    struct error error;
    if (unregister_client_request_header_decode(request->command, &header, &error) != 0) {
        reply_error(broker, &request->reply_to, &error);
        return;
    }
    client_registry_unregister(broker, request->reply_to.connection_id, header.producer_group, header.consumer_group);
    /* Also when it was not registered here: a client may lock queues at a new leader, and leave, before its first heart-beat there. */
    struct client_group *group = client_registry_consumer_group(broker->clients, header.consumer_group);
    if (header.consumer_group.size > 0 && (group == NULL || client_registry_channel(group, header.client_id) == NULL))
        queue_lock_release_client(broker, header.consumer_group, header.client_id);
    reply_simple(broker, &request->reply_to, RESPONSE_SUCCESS, NULL);
}

static void check_client_config(struct broker *broker, struct request *request)
{
    struct check_client_config config;
    struct error error;
    if (request->command->body.size == 0) {
        reply_simple(broker, &request->reply_to, RESPONSE_SUCCESS, NULL);
        return;
    }
    if (check_client_config_decode(&config, request->command->body, &error) != 0) {
        reply_body_error(broker, &request->reply_to, &error);
        return;
    }
    const struct subscription_data *subscription = &config.subscription;
    if (!config.has_subscription || subscription_data_is_tag(subscription)) {
        reply_simple(broker, &request->reply_to, RESPONSE_SUCCESS, NULL);
    } else if (broker->config.enable_property_filter && subscription_data_is_sql(subscription)) {
        struct sql92 *program;
        int rv = sql92_compile(subscription->sub_string, &program, &error);
        if (rv == 0)
            reply_simple(broker, &request->reply_to, RESPONSE_SUCCESS, NULL);
        else
            reply_simple(broker, &request->reply_to, rv == ERROR_INVALID ? RESPONSE_SUBSCRIPTION_PARSE_FAILED : error_response_code(rv), "%s",
                         error.message);
        sql92_free(program);
    } else {
        reply_simple(broker, &request->reply_to, RESPONSE_SYSTEM_ERROR, "The broker does not support consumer to filter message by %.*s",
                     subscription->expression_type.size > 64 ? 64 : (int)subscription->expression_type.size,
                     (const char *)subscription->expression_type.data);
    }
    check_client_config_close(&config);
}

const struct processor_row client_manage_processor_rows[] = {
    {REQUEST_HEART_BEAT, "HEART_BEAT", heart_beat, 0},
    {REQUEST_UNREGISTER_CLIENT, "UNREGISTER_CLIENT", unregister_client, 0},
    {REQUEST_CHECK_CLIENT_CONFIG, "CHECK_CLIENT_CONFIG", check_client_config, 0},
    {0, NULL, NULL, 0},
};
