#include "client/admin/message_track.h"

#include <stdio.h>
#include <stdlib.h>

#include "client/admin/admin_ask.h"
#include "client/admin/message_print.h"
#include "client/producer_message.h"
#include "proto/request_code.h"
#include "proto/response_code.h"

static bool is_broker_address(const struct cluster_info *info, struct slice broker_name, const char *address)
{
    for (size_t i = 0; i < info->broker_count; i++)
        for (size_t k = 0; slice_equal(info->brokers[i].broker_name, broker_name) && k < info->brokers[i].address_count; k++)
            if (slice_equal_text(info->brokers[i].addresses[k].address, address))
                return true;
    return false;
}

/* Is the group past the message in the queue that holds it? Java compares with the leader's address alone and is wrong
 * once another node leads. */
static bool is_behind_group(struct admin *admin, const char *address, const char *group, const struct cluster_info *info,
                            const struct ledgermq_stored_message *message)
{
    struct consume_stats stats;
    bool past = false;
    if (!admin_consume_stats(admin, address, group, message->topic, &stats, true))
        return false;
    for (size_t i = 0; i < stats.offset_count; i++) {
        const struct consume_offset *row = &stats.offsets[i];
        past = past || (slice_equal_text(row->queue.topic, message->topic) && row->queue.queue_id == message->queue_id &&
                        is_broker_address(info, row->queue.broker_name, message->store_host) &&
                        row->consumer_offset > message->queue_offset);
    }
    consume_stats_close(&stats);
    return past;
}

static bool is_subscribed(const struct consumer_connection *connection, const struct ledgermq_stored_message *message)
{
    for (size_t i = 0; i < connection->subscription_count; i++) {
        const struct subscription_data *subscription = &connection->subscriptions[i];
        if (!slice_equal_text(subscription->topic, message->topic))
            continue;
        if (subscription->tag_count == 0)
            return true;
        for (size_t k = 0; k < subscription->tag_count; k++)
            if (slice_equal_text(subscription->tags[k], "*") ||
                (message->tags != NULL && slice_equal_text(subscription->tags[k], message->tags)))
                return true;
        return false;
    }
    return true;
}

static const char *track_type(struct admin *admin, const char *address, const char *group, const struct cluster_info *info,
                              const struct consumer_connection *connection,
                              const struct ledgermq_stored_message *message)
{
    if (connection->consume_type != CONSUME_PASSIVELY)
        return "PULL";
    if (connection->message_model == MESSAGE_MODEL_BROADCASTING)
        return "CONSUME_BROADCASTING";
    if (!is_behind_group(admin, address, group, info, message))
        return "NOT_CONSUME_YET";
    return is_subscribed(connection, message) ? "CONSUMED" : "CONSUMED_BUT_FILTERED";
}

static void print_group(struct admin *admin, const char *address, const char *group, const struct cluster_info *info,
                        const struct ledgermq_stored_message *message)
{
    const struct remoting_field fields[] = {{"consumerGroup", group}, {NULL, NULL}};
    struct remoting_response response;
    struct consumer_connection connection;
    struct error error = {0};
    const char *type = "UNKNOWN";
    if (!admin_connect(admin))
        return;
    int rv = remoting_client_invoke(admin->client->remoting, address, REQUEST_GET_CONSUMER_CONNECTION_LIST, fields, NO_BODY,
                                    admin->timeout_ms, &response, &error);
    if (rv == 0 && response.command.code != RESPONSE_SUCCESS) {
        if (response.command.code == RESPONSE_CONSUMER_NOT_ONLINE)
            type = "NOT_ONLINE";
        printf("MessageTrack [consumerGroup=%s, trackType=%s, exceptionDesc=CODE:%d DESC:%.*s]\n", group, type,
               response.command.code, ADMIN_SLICE(response.command.remark));
        remoting_response_close(&response);
        return;
    }
    if (rv == 0) {
        rv = consumer_connection_decode(&connection, response.command.body, &error);
        remoting_response_close(&response);
    }
    if (rv != 0) {
        printf("MessageTrack [consumerGroup=%s, trackType=%s, exceptionDesc=%s]\n", group, type, error.message);
        return;
    }
    type = track_type(admin, address, group, info, &connection, message);
    consumer_connection_close(&connection);
    printf("MessageTrack [consumerGroup=%s, trackType=%s, exceptionDesc=null]\n", group, type);
}

void message_track_print(struct admin *admin, const struct ledgermq_stored_message *message)
{
    struct admin_targets brokers;
    struct group_list groups;
    struct cluster_info info;
    printf("\n\n");
    if (!admin_topic_leaders(admin, message->topic, &brokers, false))
        return;
    const char *address = brokers.all[0].address;
    if (admin_topic_groups(admin, address, message->topic, &groups, false)) {
        if (groups.group_count == 0) {
            printf("WARN: No Consumer\n");
        } else if (admin_clusters(admin, &info)) {
            for (size_t i = 0; i < groups.group_count; i++) {
                char group[300];
                snprintf(group, sizeof group, "%.*s", ADMIN_SLICE(groups.groups[i]));
                print_group(admin, address, group, &info, message);
            }
            cluster_info_close(&info);
        }
        group_list_close(&groups);
    }
    admin_targets_free(&brokers);
}

int message_track_consume(struct admin *admin, const struct ledgermq_stored_message *message)
{
    const char *group = admin_text(admin, "consumerGroup"), *client_id = admin_text(admin, "clientId");
    struct admin_targets brokers;
    struct admin_json answer;
    if (!admin_group_leaders(admin, group, &brokers, false))
        return ADMIN_FAILED;
    /* The broker that holds the message reads it; the group's clients are connected to all. */
    const struct admin_target *target = &brokers.all[0];
    for (size_t i = 0; i < brokers.count; i++)
        if (message->broker_name != NULL && strcmp(brokers.all[i].broker_name, message->broker_name) == 0)
            target = &brokers.all[i];
    bool ok = admin_consume_directly(admin, target->address, group, client_id, message->offset_message_id, &answer);
    admin_targets_free(&brokers);
    if (!ok)
        return ADMIN_FAILED;
    struct json_value result = json_root(&answer.document);
    struct slice outcome = admin_json_text(result, "consumeResult");
    printf("ConsumeMessageDirectlyResult [order=%.*s, autoCommit=%.*s, consumeResult=%.*s, remark=%.*s, "
           "spentTimeMills=%lld]\n",
           ADMIN_SLICE(admin_json_text(result, "order")), ADMIN_SLICE(admin_json_text(result, "autoCommit")),
           ADMIN_SLICE(outcome), ADMIN_SLICE(admin_json_text(result, "remark")), admin_json_count(result, "spentTimeMills"));
    bool consumed = slice_equal_text(outcome, "CR_SUCCESS") || slice_equal_text(outcome, "CR_COMMIT");
    if (!consumed)
        admin_fail(admin, "the client did not consume it: %.*s", ADMIN_SLICE(outcome));
    admin_json_close(&answer);
    return consumed ? ADMIN_OK : ADMIN_FAILED;
}

int message_track_resend(struct admin *admin, const struct ledgermq_stored_message *message)
{
    struct ledgermq_producer_options options;
    struct ledgermq_producer *producer;
    struct ledgermq_send_result result;
    struct ledgermq_error error;
    struct ledgermq_property *properties = calloc(message->property_count + 1, sizeof *properties);
    size_t count = 0;
    if (properties == NULL)
        return admin_fail(admin, "out of memory");
    for (size_t i = 0; i < message->property_count; i++)
        if (!producer_message_is_reserved(message->properties[i].name))
            properties[count++] = message->properties[i];
    const struct ledgermq_message again = {.topic = message->topic,
                                           .body = message->body,
                                           .body_size = message->body_size,
                                           .tags = message->tags,
                                           .keys = message->keys,
                                           .flag = message->flag,
                                           .properties = properties,
                                           .property_count = count};
    int status = ADMIN_FAILED;
    ledgermq_producer_options_init(&options);
    options.group = "ReSendMsgById";
    printf("prepare resend msg. originalMsgId=%s\n", message->offset_message_id);
    if (ledgermq_producer_new(admin->client, &options, &producer, &error) != LEDGERMQ_OK) {
        admin_fail(admin, "%s", error.message);
    } else {
        if (ledgermq_send(producer, &again, &result, &error) != LEDGERMQ_OK) {
            admin_fail(admin, "%s", error.message);
        } else {
            message_print_send_result(&result);
            status = ADMIN_OK;
        }
        ledgermq_producer_free(producer);
    }
    free(properties);
    return status;
}
