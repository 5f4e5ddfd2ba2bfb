/* What the application's hooks are told of each try. Loop thread only. */
#include "client/namespace_util.h"
#include "client/send.h"

static void describe(const struct send *send, struct ledgermq_send_context *context, char topic[NAMESPACED_NAME_MAX])
{
    const struct ledgermq_producer *producer = send->producer;
    namespace_unwrap(producer->client->name_space, send->topic, topic);
    *context = (struct ledgermq_send_context){
        .group = producer->options.group,
        .topic = topic,
        .message_id = send->message_id,
        .tags = send->tags,
        .keys = send->keys,
        .message_count = send->message_count,
        .body = send->body.data,
        .body_size = send->body.size,
        .broker_name = send->broker_name,
        .broker_address = send->address,
        .queue_id = send->queue_id,
        .mode = send->mode,
        .message_type = send->message_type,
        .try_number = send->tries + 1,
    };
}

bool send_hooks_before(struct send *send)
{
    const struct ledgermq_producer_options *options = &send->producer->options;
    struct ledgermq_send_context context;
    char topic[NAMESPACED_NAME_MAX], reason[240] = "";
    if (options->check_forbidden_hook_count == 0 && options->send_hook_count == 0)
        return true;
    describe(send, &context, topic);
    for (size_t i = 0; i < options->check_forbidden_hook_count; i++) {
        const struct ledgermq_check_forbidden_hook *hook = &options->check_forbidden_hooks[i];
        if (hook->allows(hook->context, &context, reason, sizeof reason))
            continue;
        client_error_text(&send->error, LEDGERMQ_FORBIDDEN, 0, "a hook forbids sending to %.100s of %.100s%s%.*s",
                          send->address, send->broker_name, reason[0] == '\0' ? "" : ": ", (int)sizeof reason - 1,
                          reason);
        return false;
    }
    for (size_t i = 0; i < options->send_hook_count; i++)
        if (options->send_hooks[i].before != NULL)
            options->send_hooks[i].before(options->send_hooks[i].context, &context);
    send->hooked = true;
    return true;
}

void send_hooks_after(struct send *send, const struct ledgermq_send_result *result,
                      const struct ledgermq_error *error)
{
    const struct ledgermq_producer *producer = send->producer;
    struct ledgermq_send_context context;
    char topic[NAMESPACED_NAME_MAX];
    if (!send->hooked)
        return;
    send->hooked = false;
    describe(send, &context, topic);
    context.result = result;
    context.error = error;
    context.try_number = result != NULL ? result->tries : send->tries + 1;
    context.elapsed_ms = remoting_client_now_ms(producer->client->remoting) - send->sent_ms;
    for (size_t i = 0; i < producer->options.send_hook_count; i++)
        if (producer->options.send_hooks[i].after != NULL)
            producer->options.send_hooks[i].after(producer->options.send_hooks[i].context, &context);
}
