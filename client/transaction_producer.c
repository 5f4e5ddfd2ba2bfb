/* ledgermq_send_transaction(): half message, local transaction, decision
 * (DefaultMQProducerImpl#sendMessageInTransaction 4.9.8). */
#include <stdio.h>

#include "client/namespace_util.h"
#include "client/trace_dispatcher.h"
#include "client/transaction_check.h"
#include "proto/response_code.h"

#define ASK_AGAIN_MS 20

/* Tells the decision to whoever leads the half message's broker name, until the time is up: a new leader has
 * the half message too. False leaves the transaction to the broker's check. */
static bool settle(struct ledgermq_producer *producer, const char *topic, const struct ledgermq_send_result *half,
                   int64_t physical_offset, int state, char address[REMOTING_ADDRESS_MAX])
{
    struct ledgermq_client *client = producer->client;
    struct transaction_place place = {.queue_offset = half->queue_offset,
                                      .physical_offset = physical_offset,
                                      .topic = topic,
                                      .message_id = half->message_id,
                                      .transaction_id = half->message_id};
    char failed[REMOTING_ADDRESS_MAX];
    const char *avoid = NULL;
    int64_t give_up_ms = client_monotonic_ms() + producer->options.send_timeout_ms;
    for (int64_t left; (left = give_up_ms - client_monotonic_ms()) > 0; uv_sleep(ASK_AGAIN_MS)) {
        struct remoting_response response;
        int rv = client_broker_address(client, topic, half->queue.broker_name, avoid, address, NULL);
        if (rv != 0)
            continue;
        rv = transaction_end(producer, address, &place, state, (int)left, &response, NULL);
        if (rv == 0) {
            int code = response.command.code;
            remoting_response_close(&response);
            if (code != RESPONSE_SERVICE_NOT_AVAILABLE && code != RESPONSE_SYSTEM_BUSY)
                return code == RESPONSE_SUCCESS;
        }
        snprintf(failed, sizeof failed, "%s", address);
        avoid = failed;
    }
    return false;
}

/* The half message is stored: the local transaction, and what the broker is told of it. */
static int decide(struct ledgermq_producer *producer, const struct ledgermq_message *message, void *argument,
                  struct ledgermq_transaction_result *done, struct ledgermq_error *error)
{
    const struct ledgermq_transaction_listener *listener = producer->options.transaction_listener;
    struct message_host host;
    int64_t physical_offset;
    char topic[NAMESPACED_NAME_MAX], address[REMOTING_ADDRESS_MAX];
    if (!message_id_parse(slice_of_text(done->send.offset_message_id), &host, &physical_offset))
        return client_error_text(error, LEDGERMQ_MALFORMED, 0, "%s answered a half message for %s with the id '%s'",
                                 done->send.queue.broker_name, message->topic, done->send.offset_message_id);
    if (done->send.status == LEDGERMQ_SEND_OK)
        done->state = listener->execute(listener->context, message, done->send.message_id, argument);
    if (done->state != LEDGERMQ_TRANSACTION_COMMIT && done->state != LEDGERMQ_TRANSACTION_ROLLBACK)
        done->state = LEDGERMQ_TRANSACTION_UNKNOWN;
    namespace_wrap(producer->client->name_space, message->topic, topic);
    if (done->state != LEDGERMQ_TRANSACTION_UNKNOWN)
        done->settled = settle(producer, topic, &done->send, physical_offset, done->state, address);
    if (done->settled && producer->trace != NULL)
        trace_dispatcher_ended(producer->trace, producer,
                               &(struct trace_transaction){.topic = done->send.queue.topic,
                                                           .message_id = done->send.message_id,
                                                           .tags = message->tags,
                                                           .keys = message->keys,
                                                           .broker_address = address,
                                                           .transaction_id = done->send.message_id,
                                                           .state = done->state});
    return LEDGERMQ_OK;
}

int ledgermq_send_transaction(struct ledgermq_producer *producer, const struct ledgermq_message *message,
                              void *argument, struct ledgermq_transaction_result *result,
                              struct ledgermq_error *error)
{
    if (producer->options.transaction_listener == NULL)
        return client_error_text(error, LEDGERMQ_INVALID, 0,
                                 "the producer has no transaction_listener: set it in its options");
    if (message->delay_level > 0)
        return client_error_text(error, LEDGERMQ_INVALID, 0, "a message of a transaction cannot be delayed");
    const struct ledgermq_property own[] = {{"TRAN_MSG", "true"}, {"PGROUP", producer->group}};
    struct send_wish wish = {.messages = message,
                             .count = 1,
                             .own = own,
                             .own_count = 2,
                             .sys_flag = MESSAGE_TRANSACTION_PREPARED,
                             .message_type = LEDGERMQ_HALF_MESSAGE};
    struct ledgermq_transaction_result done = {.state = LEDGERMQ_TRANSACTION_ROLLBACK};
    /* The producer must live until the decision is told, not only until the half message is stored. */
    int rv = producer_charge(producer, 0, error);
    if (rv != LEDGERMQ_OK)
        return rv;
    rv = send_and_wait(producer, &wish, &done.send, error);
    if (rv == LEDGERMQ_OK)
        rv = decide(producer, message, argument, &done, error);
    producer_discharge(producer, 0);
    if (rv == LEDGERMQ_OK && result != NULL)
        *result = done;
    return rv;
}
