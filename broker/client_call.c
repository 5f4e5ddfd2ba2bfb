#include "broker/client_call.h"

#include <bsd/sys/queue.h>
#include <stdlib.h>
#include <uv.h>

#include "broker/broker.h"
#include "broker/client_registry.h"
#include "broker/connection.h"
#include "broker/limits.h"
#include "broker/listener.h"
#include "proto/headers.h"
#include "proto/request_code.h"
#include "proto/response_code.h"

#define VERSION_3_1_8 62 /* older clients do not know these requests */

struct client_call {
    TAILQ_ENTRY(client_call) next;
    struct reply_to reply_to;
    uint64_t connection_id; /* of the client that was asked */
    int32_t opaque;
    uint64_t deadline_ms; /* loop time */
    char *group, *client_id;
};

struct client_calls {
    struct broker *broker;
    uv_timer_t timer;
    TAILQ_HEAD(client_call_list, client_call) waiting; /* oldest first, so the first is due first */
    uint32_t count;
    int32_t next_opaque;
};

struct client_calls *client_calls_new(struct broker *broker, struct error *error)
{
    struct client_calls *calls = calloc(1, sizeof *calls);
    if (calls == NULL) {
        error_set(error, ERROR_NO_MEMORY, "client calls: %s", error_text(ERROR_NO_MEMORY));
        return NULL;
    }
    calls->broker = broker;
    TAILQ_INIT(&calls->waiting);
    uv_timer_init(broker->loop, &calls->timer);
    uv_unref((uv_handle_t *)&calls->timer);
    calls->timer.data = calls;
    return calls;
}

static void call_free(struct client_calls *calls, struct client_call *call)
{
    TAILQ_REMOVE(&calls->waiting, call, next);
    calls->count--;
    free(call->group);
    free(call->client_id);
    free(call);
}

static void timer_set(struct client_calls *calls);

static void timer_fired(uv_timer_t *timer)
{
    struct client_calls *calls = timer->data;
    uint64_t now_ms = uv_now(timer->loop);
    struct client_call *call;
    while ((call = TAILQ_FIRST(&calls->waiting)) != NULL && call->deadline_ms <= now_ms) {
        reply_simple(calls->broker, &call->reply_to, RESPONSE_CONSUME_MSG_TIMEOUT, "consumer <%s> <%s> Timeout: no answer within %u ms",
                     call->group, call->client_id, LIMIT_CLIENT_CALL_MS);
        call_free(calls, call);
    }
    timer_set(calls);
}

static void timer_set(struct client_calls *calls)
{
    const struct client_call *first = TAILQ_FIRST(&calls->waiting);
    uint64_t now_ms = uv_now(calls->timer.loop);
    if (first == NULL)
        uv_timer_stop(&calls->timer);
    else
        uv_timer_start(&calls->timer, timer_fired, first->deadline_ms > now_ms ? first->deadline_ms - now_ms : 0, 0);
}

static struct client_call *call_new(struct client_calls *calls, const struct reply_to *to, const struct client_channel *channel)
{
    struct client_call *call = calloc(1, sizeof *call);
    if (call == NULL)
        return NULL;
    call->reply_to = *to;
    call->connection_id = channel->connection_id;
    call->opaque = calls->next_opaque++;
    call->deadline_ms = uv_now(calls->timer.loop) + LIMIT_CLIENT_CALL_MS;
    call->group = strdup(channel->group->name);
    call->client_id = strdup(channel->client_id);
    TAILQ_INSERT_TAIL(&calls->waiting, call, next);
    calls->count++;
    if (call->group == NULL || call->client_id == NULL) {
        call_free(calls, call);
        return NULL;
    }
    return call;
}

bool client_call_begin(struct broker *broker, const struct reply_to *to, struct slice group, struct slice client_id, int32_t code,
                       struct remoting_writer *writer)
{
    struct client_calls *calls = broker->calls;
    struct client_group *clients = client_registry_consumer_group(broker->clients, group);
    const struct client_channel *channel = clients == NULL ? NULL : client_registry_channel(clients, client_id);
    struct connection *connection = channel == NULL ? NULL : remoting_server_find(broker->server, channel->connection_id);
    if (connection == NULL) {
        reply_simple(broker, to, RESPONSE_SYSTEM_ERROR, "The Consumer <%.*s> <%.*s> not online", (int)group.size, (const char *)group.data,
                     (int)client_id.size, (const char *)client_id.data);
        return false;
    }
    if (channel->version < VERSION_3_1_8) {
        reply_simple(broker, to, RESPONSE_SYSTEM_ERROR, "The Consumer <%s> Version <%d> too low to finish, please upgrade it to V3_1_8_SNAPSHOT",
                     channel->client_id, channel->version);
        return false;
    }
    struct buffer *out = calls->count >= LIMIT_CLIENT_CALLS ? NULL : connection_output(connection);
    struct client_call *call = out == NULL ? NULL : call_new(calls, to, channel);
    if (call == NULL) {
        reply_simple(broker, to, RESPONSE_SERVICE_NOT_AVAILABLE, "too many requests wait for answers of clients (limit %u)", LIMIT_CLIENT_CALLS);
        return false;
    }
    if (call == TAILQ_FIRST(&calls->waiting))
        timer_set(calls);
    remoting_writer_begin_request(writer, out, REMOTING_JSON, code, call->opaque, 0);
    return true;
}

void client_call_end(struct broker *broker, struct remoting_writer *writer)
{
    const struct client_call *call = TAILQ_LAST(&broker->calls->waiting, client_call_list);
    remoting_writer_end(writer, 0);
    connection_frame_done(remoting_server_find(broker->server, call->connection_id));
}

void client_call_answered(struct broker *broker, const struct connection *connection, const struct remoting_command *response)
{
    struct client_calls *calls = broker->calls;
    struct client_call *call;
    TAILQ_FOREACH (call, &calls->waiting, next) {
        if (call->opaque == response->opaque && call->connection_id == connection->id)
            break;
    }
    if (call == NULL)
        return;
    char remark[1024];
    snprintf(remark, sizeof remark, "%.*s", (int)(response->remark.size < sizeof remark ? response->remark.size : sizeof remark - 1),
             response->remark.data == NULL ? "" : (const char *)response->remark.data);
    struct remoting_writer writer;
    if (reply_begin(broker, &call->reply_to, &writer, response->code, response->remark.data == NULL ? NULL : remark)) {
        remoting_writer_body(&writer);
        buffer_append(writer.out, response->body.data, response->body.size);
        reply_end(broker, &call->reply_to, &writer);
    }
    call_free(calls, call);
    timer_set(calls);
}

void client_call_connection_closed(struct broker *broker, uint64_t connection_id)
{
    struct client_calls *calls = broker->calls;
    struct client_call *call, *next;
    for (call = TAILQ_FIRST(&calls->waiting); call != NULL; call = next) {
        next = TAILQ_NEXT(call, next);
        if (call->connection_id != connection_id)
            continue;
        reply_simple(broker, &call->reply_to, RESPONSE_SYSTEM_ERROR, "invoke consumer <%s> <%s> Exception: its connection was closed", call->group,
                     call->client_id);
        call_free(calls, call);
    }
    timer_set(calls);
}

uint32_t client_calls_waiting(const struct client_calls *calls)
{
    return calls->count;
}

void client_calls_close(struct client_calls *calls)
{
    if (calls == NULL)
        return;
    while (!TAILQ_EMPTY(&calls->waiting))
        call_free(calls, TAILQ_FIRST(&calls->waiting));
    uv_close((uv_handle_t *)&calls->timer, NULL);
}

void client_calls_free(struct client_calls *calls)
{
    free(calls);
}

/* ---- GET_CONSUMER_RUNNING_INFO ---- */

static void get_consumer_running_info(struct broker *broker, struct request *request)
{
    struct get_consumer_running_info_request_header header;
    struct remoting_writer writer;
    struct error error;
    if (get_consumer_running_info_request_header_decode(request->command, &header, &error) != 0) {
        reply_simple(broker, &request->reply_to, RESPONSE_SYSTEM_ERROR, "%s", error.message);
        return;
    }
    if (!client_call_begin(broker, &request->reply_to, header.consumer_group, header.client_id, REQUEST_GET_CONSUMER_RUNNING_INFO, &writer))
        return;
    remoting_writer_ext(&writer, "consumerGroup", header.consumer_group);
    remoting_writer_ext(&writer, "clientId", header.client_id);
    remoting_writer_ext_bool(&writer, "jstackEnable", header.jstack_enable);
    client_call_end(broker, &writer);
}

const struct processor_row client_call_rows[] = {
    {REQUEST_GET_CONSUMER_RUNNING_INFO, "GET_CONSUMER_RUNNING_INFO", get_consumer_running_info, 0},
    {0, NULL, NULL, 0},
};
