/* The producer: what ledgermq_send() and its relatives do on the caller's thread (DefaultMQProducer 4.9.8).
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/namespace_util.h"
#include "client/request_reply.h"
#include "client/send.h"
#include "client/trace_dispatcher.h"
#include "client/transaction_check.h"
#include "proto/response_code.h"
#include "proto/topic_validator.h"

#define COMPRESSION_LEVEL 5

const char *ledgermq_send_status_text(int status)
{
    static const char *const names[] = {"SEND_OK", "FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT",
                                        "SLAVE_NOT_AVAILABLE"};
    return status >= 0 && status < 4 ? names[status] : "UNKNOWN";
}

int ledgermq_send_messages(struct ledgermq_producer *producer, const struct ledgermq_message *messages, size_t count,
                           const struct ledgermq_send_options *options, struct ledgermq_send_result *result,
                           struct ledgermq_error *error)
{
    struct send_wish wish = {.messages = messages, .count = count, .options = options};
    return send_and_wait(producer, &wish, result, error);
}

int ledgermq_send_messages_async(struct ledgermq_producer *producer, const struct ledgermq_message *messages,
                                 size_t count, const struct ledgermq_send_options *options, ledgermq_send_done done,
                                 void *context, struct ledgermq_error *error)
{
    struct send_wish wish = {.messages = messages,
                             .count = count,
                             .options = options,
                             .mode = LEDGERMQ_ASYNC,
                             .done = done,
                             .context = context};
    if (done == NULL)
        return client_error_text(error, LEDGERMQ_INVALID, 0, "an asynchronous send needs a call back");
    return send_post(producer, &wish, error);
}

int ledgermq_send_messages_oneway(struct ledgermq_producer *producer, const struct ledgermq_message *messages,
                                  size_t count, const struct ledgermq_send_options *options,
                                  struct ledgermq_error *error)
{
    struct send_wish wish = {.messages = messages, .count = count, .options = options, .mode = LEDGERMQ_ONEWAY};
    return send_post(producer, &wish, error);
}

int ledgermq_send(struct ledgermq_producer *producer, const struct ledgermq_message *message,
                  struct ledgermq_send_result *result, struct ledgermq_error *error)
{
    return ledgermq_send_messages(producer, message, 1, NULL, result, error);
}

int ledgermq_send_to(struct ledgermq_producer *producer, const struct ledgermq_message *message,
                     const struct ledgermq_queue *queue, struct ledgermq_send_result *result,
                     struct ledgermq_error *error)
{
    struct ledgermq_send_options options = {.queue = queue};
    return ledgermq_send_messages(producer, message, 1, &options, result, error);
}

int ledgermq_send_select(struct ledgermq_producer *producer, const struct ledgermq_message *message,
                         ledgermq_queue_selector selector, void *argument, struct ledgermq_send_result *result,
                         struct ledgermq_error *error)
{
    struct ledgermq_send_options options = {.selector = selector, .selector_argument = argument};
    return ledgermq_send_messages(producer, message, 1, &options, result, error);
}

int ledgermq_send_async(struct ledgermq_producer *producer, const struct ledgermq_message *message,
                        const struct ledgermq_queue *queue, ledgermq_send_done done, void *context,
                        struct ledgermq_error *error)
{
    struct ledgermq_send_options options = {.queue = queue};
    return ledgermq_send_messages_async(producer, message, 1, &options, done, context, error);
}

int ledgermq_send_oneway(struct ledgermq_producer *producer, const struct ledgermq_message *message,
                         struct ledgermq_error *error)
{
    return ledgermq_send_messages_oneway(producer, message, 1, NULL, error);
}

int ledgermq_publish_queues(struct ledgermq_producer *producer, const char *topic, struct ledgermq_queue **queues,
                            size_t *count, struct ledgermq_error *error)
{
    if (remoting_client_on_loop(producer->client->remoting))
        return client_error_text(error, LEDGERMQ_INVALID, 0, "this function waits, so a call back may not call it");
    return client_queues(producer->client, topic, true, producer->options.create_topic_key,
                         producer->options.queues_of_new_topic, queues, count, error);
}

void ledgermq_queues_free(struct ledgermq_queue *queues)
{
    free(queues);
}

static const int standard_retry_codes[] = {RESPONSE_SYSTEM_ERROR,  RESPONSE_SERVICE_NOT_AVAILABLE,
                                           RESPONSE_NO_PERMISSION, RESPONSE_TOPIC_NOT_EXIST,
                                           RESPONSE_NO_BUYER_ID,   RESPONSE_NOT_IN_CURRENT_UNIT};

void ledgermq_producer_options_init(struct ledgermq_producer_options *options)
{
    *options = (struct ledgermq_producer_options){
        .group = "DEFAULT_PRODUCER",
        .send_timeout_ms = 3000,
        .retries = 2,
        .queues_of_new_topic = 4,
        .create_topic_key = TOPIC_AUTO_CREATE,
        .compress_over = 4096,
        .max_body_size = 4u * 1024 * 1024,
        .max_waiting = 65536,
        .max_waiting_bytes = 128u * 1024 * 1024,
        .compression = LEDGERMQ_ZLIB,
        .compression_level = COMPRESSION_LEVEL,
    };
}

static int check_options(const struct ledgermq_producer_options *options, const char *group, struct error *error)
{
    if (group_validate(slice_of_text(group), error) != 0)
        return ERROR_INVALID;
    if (topic_validate(slice_of_text(options->create_topic_key), error) != 0)
        return ERROR_INVALID;
    if (options->send_timeout_ms <= 0 || options->retries < 0 || options->queues_of_new_topic <= 0 ||
        options->max_waiting == 0)
        return error_set(error, ERROR_INVALID,
                         "producer options: time-out, queues and max_waiting must be above 0, retries not negative");
    if (options->compression < LEDGERMQ_ZLIB || options->compression > LEDGERMQ_ZSTD)
        return error_set(error, ERROR_INVALID,
                         "producer options: compression %d is none of enum ledgermq_compression",
                         options->compression);
    int most = options->compression == LEDGERMQ_ZSTD ? 22 : 9;
    if (options->compression_level < 1 || options->compression_level > most)
        return error_set(error, ERROR_INVALID, "producer options: compression_level %d is not from 1 to %d",
                         options->compression_level, most);
    if (options->trace_topic != NULL && topic_validate(slice_of_text(options->trace_topic), error) != 0)
        return ERROR_INVALID;
    for (size_t i = 0; i < options->check_forbidden_hook_count; i++)
        if (options->check_forbidden_hooks[i].allows == NULL)
            return error_set(error, ERROR_INVALID, "producer options: check-forbidden hook %zu has no function", i);
    if (options->transaction_listener != NULL &&
        (options->transaction_listener->execute == NULL || options->transaction_listener->check == NULL))
        return error_set(error, ERROR_INVALID, "producer options: a transaction listener needs execute and check");
    return 0;
}

/* Heap copy of a list; false when memory is short. An empty one becomes NULL. */
static bool copy_list(const void **list, size_t count, size_t size)
{
    void *copy = count == 0 || *list == NULL ? NULL : malloc(count * size);
    bool good = copy != NULL || count == 0 || *list == NULL;
    if (copy != NULL)
        memcpy(copy, *list, count * size);
    *list = copy;
    return good;
}

/* Makes what the options point to the producer's own. On failure producer_options_close() frees what there
 * is. */
static bool take_options(struct ledgermq_producer *producer, const char *group)
{
    struct ledgermq_producer_options *options = &producer->options;
    const void *codes = options->retry_response_codes, *sends = options->send_hooks,
               *checks = options->check_forbidden_hooks, *listener = options->transaction_listener;
    options->group = strdup(options->group);
    options->create_topic_key = strdup(options->create_topic_key);
    producer->group = strdup(group);
    bool good = copy_list(&codes, options->retry_response_code_count, sizeof *options->retry_response_codes);
    good &= copy_list(&sends, options->send_hook_count, sizeof *options->send_hooks);
    good &= copy_list(&checks, options->check_forbidden_hook_count, sizeof *options->check_forbidden_hooks);
    good &= copy_list(&listener, 1, sizeof *options->transaction_listener);
    options->retry_response_codes = codes;
    options->send_hooks = sends;
    options->check_forbidden_hooks = checks;
    options->transaction_listener = listener;
    options->trace_topic = NULL; /* the dispatcher has it */
    return good && options->group != NULL && options->create_topic_key != NULL && producer->group != NULL;
}

static void options_close(struct ledgermq_producer *producer)
{
    free((void *)(uintptr_t)producer->options.group);
    free((void *)(uintptr_t)producer->options.create_topic_key);
    free((void *)(uintptr_t)producer->options.retry_response_codes);
    free((void *)(uintptr_t)producer->options.send_hooks);
    free((void *)(uintptr_t)producer->options.check_forbidden_hooks);
    free((void *)(uintptr_t)producer->options.transaction_listener);
    free(producer->group);
}

/* Frees what nobody uses any more: it is in no list, and no send is under way. */
static void producer_discard(struct ledgermq_producer *producer)
{
    check_thread_free(producer->checks);
    trace_dispatcher_free(producer->trace);
    latency_fault_tolerance_close(&producer->tolerance);
    uv_cond_destroy(&producer->idle);
    uv_mutex_destroy(&producer->lock);
    options_close(producer);
    free(producer);
}

int ledgermq_producer_new(struct ledgermq_client *client, const struct ledgermq_producer_options *given,
                          struct ledgermq_producer **out, struct ledgermq_error *public_error)
{
    struct ledgermq_producer_options options;
    struct error error = {0};
    char group[NAMESPACED_NAME_MAX];
    ledgermq_producer_options_init(&options);
    if (given != NULL)
        options = *given;
    options.group = options.group == NULL ? "DEFAULT_PRODUCER" : options.group;
    options.create_topic_key = options.create_topic_key == NULL ? TOPIC_AUTO_CREATE : options.create_topic_key;
    options.compression_level = options.compression_level == 0 ? COMPRESSION_LEVEL : options.compression_level;
    if (options.retry_response_codes == NULL) {
        options.retry_response_codes = standard_retry_codes;
        options.retry_response_code_count = sizeof standard_retry_codes / sizeof standard_retry_codes[0];
    }
    options.send_hook_count = options.send_hooks == NULL ? 0 : options.send_hook_count;
    options.check_forbidden_hook_count =
        options.check_forbidden_hooks == NULL ? 0 : options.check_forbidden_hook_count;
    namespace_wrap(client->name_space, options.group, group);
    int rv = check_options(&options, group, &error);
    if (rv != 0)
        return client_error(public_error, rv, 0, &error);
    struct ledgermq_producer *producer = calloc(1, sizeof *producer);
    rv = ERROR_NO_MEMORY;
    if (producer == NULL)
        return client_error(public_error, rv, 0, &error);
    producer->client = client;
    producer->options = options;
    latency_fault_tolerance_init(&producer->tolerance);
    if (!take_options(producer, group) || uv_mutex_init(&producer->lock) != 0)
        goto free_producer;
    if (uv_cond_init(&producer->idle) != 0)
        goto destroy_lock;
    if (producer->options.transaction_listener != NULL) {
        rv = check_thread_new(producer, &producer->checks, &error);
        if (rv != 0)
            goto discard;
    }
    int traced = producer->options.trace_enable
                     ? trace_dispatcher_new(client, producer->options.group, options.trace_topic, &producer->trace,
                                            public_error)
                     : LEDGERMQ_OK;
    if (traced != LEDGERMQ_OK) {
        producer_discard(producer);
        return traced;
    }
    rv = client_group_register(client, producer->group, false);
    if (rv != 0)
        goto discard;
    uv_mutex_lock(&client->lock);
    producer->next = client->producers;
    client->producers = producer;
    uv_mutex_unlock(&client->lock);
    *out = producer;
    return LEDGERMQ_OK;

discard:
    producer_discard(producer);
    return client_error(public_error, rv, 0, &error);
destroy_lock:
    uv_mutex_destroy(&producer->lock);
free_producer:
    options_close(producer);
    free(producer);
    return client_error(public_error, rv, 0, &error);
}

void ledgermq_producer_free(struct ledgermq_producer *producer)
{
    if (producer == NULL)
        return;
    struct ledgermq_client *client = producer->client;
    assert(!remoting_client_on_loop(client->remoting));
    uv_mutex_lock(&producer->lock);
    producer->closing = true;
    uv_mutex_unlock(&producer->lock);
    request_futures_stop(producer);
    uv_mutex_lock(&producer->lock);
    while (producer->waiting > 0)
        uv_cond_wait(&producer->idle, &producer->lock);
    uv_mutex_unlock(&producer->lock);
    client_group_unregister(client, producer->group, false);
    uv_mutex_lock(&client->lock);
    struct ledgermq_producer **at = &client->producers;
    while (*at != producer)
        at = &(*at)->next;
    *at = producer->next;
    uv_mutex_unlock(&client->lock);
    producer_discard(producer);
}
