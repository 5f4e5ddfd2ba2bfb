#include "client/transaction_check.h"

#include <stdio.h>
#include <stdlib.h>

#include "client/trace_dispatcher.h"
#include "proto/headers.h"
#include "proto/request_code.h"
#include "proto/response_code.h"

#define CHECK_ANSWER_MS 3000

struct check {
    struct check *next;
    struct stored_messages *messages; /* one */
    size_t bytes;
    char address[REMOTING_ADDRESS_MAX];
    int64_t queue_offset, physical_offset;
    char message_id[256], transaction_id[256];
    char topic[LEDGERMQ_TOPIC_MAX + 1]; /* with the namespace */
};

struct check_thread {
    struct ledgermq_producer *producer;
    uv_thread_t thread;
    uv_mutex_t lock; /* guards all below */
    uv_cond_t changed;
    struct check *first, **last;
    size_t count, bytes;
    bool stopping;
};

int transaction_end(struct ledgermq_producer *producer, const char *address, const struct transaction_place *place,
                    int state, int timeout_ms, struct remoting_response *response, struct error *error)
{
    char queue_offset[24], physical_offset[24], decision[16];
    snprintf(queue_offset, sizeof queue_offset, "%lld", (long long)place->queue_offset);
    snprintf(physical_offset, sizeof physical_offset, "%lld", (long long)place->physical_offset);
    snprintf(decision, sizeof decision, "%d",
             state == LEDGERMQ_TRANSACTION_COMMIT ? MESSAGE_TRANSACTION_COMMIT : MESSAGE_TRANSACTION_ROLLBACK);
    const struct remoting_field fields[] = {{"producerGroup", producer->group},
                                            {"tranStateTableOffset", queue_offset},
                                            {"commitLogOffset", physical_offset},
                                            {"commitOrRollback", decision},
                                            {"fromTransactionCheck", place->from_check ? "true" : "false"},
                                            {"msgId", place->message_id},
                                            {"transactionId", place->transaction_id},
                                            {"topic", place->topic},
                                            {NULL, NULL}};
    return remoting_client_invoke(producer->client->remoting, address, REQUEST_END_TRANSACTION, fields,
                                  slice_of(NULL, 0), timeout_ms, response, error);
}

static void check_free(struct check *check)
{
    stored_messages_free(check->messages);
    free(check);
}

static void run_check(struct ledgermq_producer *producer, const struct check *check)
{
    const struct ledgermq_transaction_listener *listener = producer->options.transaction_listener;
    int state = listener->check(listener->context, &check->messages->result.messages[0]);
    if (state != LEDGERMQ_TRANSACTION_COMMIT && state != LEDGERMQ_TRANSACTION_ROLLBACK)
        return; /* an unknown state is no news: the broker asks again */
    struct transaction_place place = {.queue_offset = check->queue_offset,
                                      .physical_offset = check->physical_offset,
                                      .topic = check->topic,
                                      .message_id = check->message_id,
                                      .transaction_id = check->transaction_id,
                                      .from_check = true};
    struct remoting_response response;
    /* When the answer does not arrive the broker asks again. */
    if (transaction_end(producer, check->address, &place, state, CHECK_ANSWER_MS, &response, NULL) != 0)
        return;
    const struct ledgermq_stored_message *message = &check->messages->result.messages[0];
    if (response.command.code == RESPONSE_SUCCESS && producer->trace != NULL)
        trace_dispatcher_ended(producer->trace, producer,
                               &(struct trace_transaction){.topic = message->topic,
                                                           .message_id = check->message_id,
                                                           .tags = message->tags,
                                                           .keys = message->keys,
                                                           .broker_address = check->address,
                                                           .transaction_id = check->transaction_id,
                                                           .state = state,
                                                           .from_check = true});
    remoting_response_close(&response);
}

static void check_main(void *argument)
{
    struct check_thread *thread = argument;
    uv_mutex_lock(&thread->lock);
    for (;;) {
        while (thread->first == NULL && !thread->stopping)
            uv_cond_wait(&thread->changed, &thread->lock);
        if (thread->stopping)
            break;
        struct check *check = thread->first;
        thread->first = check->next;
        if (thread->first == NULL)
            thread->last = &thread->first;
        uv_mutex_unlock(&thread->lock);
        run_check(thread->producer, check);
        uv_mutex_lock(&thread->lock);
        thread->count--;
        thread->bytes -= check->bytes;
        check_free(check);
    }
    uv_mutex_unlock(&thread->lock);
}

int check_thread_new(struct ledgermq_producer *producer, struct check_thread **out, struct error *error)
{
    struct check_thread *thread = calloc(1, sizeof *thread);
    if (thread == NULL)
        return error_set(error, ERROR_NO_MEMORY, "out of memory");
    thread->producer = producer;
    thread->last = &thread->first;
    if (uv_mutex_init(&thread->lock) != 0)
        goto free_thread;
    if (uv_cond_init(&thread->changed) != 0)
        goto destroy_lock;
    if (uv_thread_create(&thread->thread, check_main, thread) != 0)
        goto destroy_cond;
    *out = thread;
    return 0;

destroy_cond:
    uv_cond_destroy(&thread->changed);
destroy_lock:
    uv_mutex_destroy(&thread->lock);
free_thread:
    free(thread);
    return error_set(error, ERROR_NO_MEMORY, "the client cannot make a thread for the transaction listener");
}

void check_thread_free(struct check_thread *thread)
{
    if (thread == NULL)
        return;
    uv_mutex_lock(&thread->lock);
    thread->stopping = true;
    uv_cond_signal(&thread->changed);
    uv_mutex_unlock(&thread->lock);
    uv_thread_join(&thread->thread);
    while (thread->first != NULL) {
        struct check *check = thread->first;
        thread->first = check->next;
        check_free(check);
    }
    uv_cond_destroy(&thread->changed);
    uv_mutex_destroy(&thread->lock);
    free(thread);
}

/* False when the thread has more to do than it keeps. */
static bool hand_over(struct check_thread *thread, struct check *check)
{
    uv_mutex_lock(&thread->lock);
    bool room =
        thread->count < TRANSACTION_CHECKS_MAX && thread->bytes + check->bytes <= TRANSACTION_CHECK_BYTES_MAX;
    if (room) {
        thread->count++;
        thread->bytes += check->bytes;
        *thread->last = check;
        thread->last = &check->next;
        uv_cond_signal(&thread->changed);
    }
    uv_mutex_unlock(&thread->lock);
    return room;
}

static struct check *check_new(const struct ledgermq_client *client, const struct remoting_command *request,
                               const char *address)
{
    struct check_transaction_state_request_header header;
    struct remoting_response response;
    struct check *check = calloc(1, sizeof *check);
    if (check == NULL || check_transaction_state_request_header_decode(request, &header, NULL) != 0)
        goto free_check;
    check->messages = stored_messages_new();
    if (check->messages == NULL || remoting_response_keep(request, &response) != 0 ||
        stored_messages_add(check->messages, &response, NULL, NULL, NULL, NULL) != 0 ||
        check->messages->result.count != 1)
        goto free_check;
    struct ledgermq_stored_message *message = &check->messages->messages[0];
    check->queue_offset = header.tran_state_table_offset;
    check->physical_offset = header.commit_log_offset;
    check->bytes = request->body.size + message->body_size;
    snprintf(check->address, sizeof check->address, "%s", address);
    snprintf(check->message_id, sizeof check->message_id, "%s", message->message_id);
    snprintf(check->transaction_id, sizeof check->transaction_id, "%.*s", (int)header.transaction_id.size,
             (const char *)header.transaction_id.data);
    snprintf(check->topic, sizeof check->topic, "%s", message->topic);
    if (check->transaction_id[0] == '\0')
        memcpy(check->transaction_id, check->message_id, sizeof check->transaction_id);
    if (!stored_messages_unwrap(check->messages, client->name_space))
        goto free_check;
    return check;

free_check:
    if (check != NULL)
        check_free(check);
    return NULL;
}

void transaction_check_take(void *context, const struct remoting_command *request, const char *address,
                            const struct remoting_origin *origin)
{
    struct ledgermq_client *client = context;
    const char *remark = "the check names no message that this client can read";
    struct check *check = check_new(client, request, address);
    const char *group =
        check == NULL ? NULL : ledgermq_message_property(&check->messages->result.messages[0], "PGROUP");
    bool taken = false;
    if (group != NULL) {
        remark = "no producer of this client has the group and a transaction listener with room";
        uv_mutex_lock(&client->lock);
        for (struct ledgermq_producer *at = client->producers; at != NULL && !taken; at = at->next)
            if (at->checks != NULL && strcmp(at->group, group) == 0)
                taken = hand_over(at->checks, check);
        uv_mutex_unlock(&client->lock);
    }
    if (!taken && check != NULL)
        check_free(check);
    /* Brokers send it one-way; one that asks for an answer gets it. */
    remoting_client_answer(client->remoting, origin, taken ? RESPONSE_SUCCESS : RESPONSE_SYSTEM_ERROR,
                           taken ? NULL : remark);
}
