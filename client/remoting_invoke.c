/* One request and its answer, for threads that may wait. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/remoting_client.h"

struct invocation {
    struct remoting_task task;
    struct remoting_call call;
    struct remoting_client *client;
    const char *address;
    int32_t code;
    const struct remoting_field *fields;
    struct slice body;
    int timeout_ms;
    struct remoting_response *response;
    int rv;
    char cause[240];
    uv_sem_t done;
};

static struct slice move_slice(struct slice slice, const uint8_t *from, uint8_t *to, size_t size)
{
    if (slice.data == NULL)
        return slice;
    assert(slice.data >= from && slice.data + slice.size <= from + size);
    return slice_of(to + (slice.data - from), slice.size);
}

/* The connection's buffer moves on with the next read, so the answer's bytes are copied: all slices lie between the
 * lowest and the highest address. */
int remoting_response_keep(const struct remoting_command *answer, struct remoting_response *response)
{
    const uint8_t *low = NULL, *high = NULL;
    struct slice all[2 + 2 * REMOTING_EXT_FIELDS_MAX];
    size_t count = 0;
    all[count++] = answer->remark;
    all[count++] = answer->body;
    for (uint32_t i = 0; i < answer->ext_count; i++) {
        all[count++] = answer->ext[i].name;
        all[count++] = answer->ext[i].value;
    }
    for (size_t i = 0; i < count; i++) {
        if (all[i].data == NULL)
            continue;
        low = low == NULL || all[i].data < low ? all[i].data : low;
        high = all[i].data + all[i].size > high ? all[i].data + all[i].size : high;
    }
    size_t size = (size_t)(high - low);
    response->frame = malloc(size + 1);
    if (response->frame == NULL)
        return ERROR_NO_MEMORY;
    if (size > 0)
        memcpy(response->frame, low, size);
    response->frame[size] = 0;
    response->command = *answer;
    response->command.remark = move_slice(answer->remark, low, response->frame, size);
    response->command.body = move_slice(answer->body, low, response->frame, size);
    for (uint32_t i = 0; i < answer->ext_count; i++) {
        response->command.ext[i].name = move_slice(answer->ext[i].name, low, response->frame, size);
        response->command.ext[i].value = move_slice(answer->ext[i].value, low, response->frame, size);
    }
    return 0;
}

static void invocation_done(struct remoting_call *call, int rv, const struct remoting_command *answer,
                            const char *cause)
{
    struct invocation *invocation = call->context;
    invocation->rv = rv == 0 ? remoting_response_keep(answer, invocation->response) : rv;
    snprintf(invocation->cause, sizeof invocation->cause, "%s", cause != NULL ? cause : error_text(invocation->rv));
    uv_sem_post(&invocation->done);
}

static void invocation_run(struct remoting_task *task)
{
    struct invocation *invocation = (struct invocation *)task;
    struct remoting_writer writer;
    int rv = remoting_client_begin(invocation->client, invocation->address, &invocation->call, invocation->code,
                                   invocation->timeout_ms, &writer);
    if (rv == 0) {
        for (const struct remoting_field *field = invocation->fields; field != NULL && field->name != NULL; field++)
            if (field->value != NULL)
                remoting_writer_ext_text(&writer, field->name, field->value);
        remoting_writer_body(&writer);
        buffer_append_slice(writer.out, invocation->body);
        rv = remoting_client_end(invocation->client, &invocation->call, &writer);
    }
    if (rv == 0)
        return;
    invocation->rv = rv;
    snprintf(invocation->cause, sizeof invocation->cause, "%s",
             rv == ERROR_INVALID ? "an address has the form host:port, with a port from 1 to 65535" : error_text(rv));
    uv_sem_post(&invocation->done);
}

int remoting_client_invoke(struct remoting_client *client, const char *address, int32_t code,
                           const struct remoting_field *fields, struct slice body, int timeout_ms,
                           struct remoting_response *response, struct error *error)
{
    struct invocation invocation = {
        .task.run = invocation_run,
        .call.done = invocation_done,
        .client = client,
        .address = address,
        .code = code,
        .fields = fields,
        .body = body,
        .timeout_ms = timeout_ms,
        .response = response,
    };
    assert(!remoting_client_on_loop(client));
    invocation.call.context = &invocation;
    response->frame = NULL;
    remoting_client_post_and_wait(client, &invocation.task, &invocation.done);
    if (invocation.rv == ERROR_TIMEOUT)
        return error_set(error, ERROR_TIMEOUT, "%s: no answer to request %d within %d ms", address, code, timeout_ms);
    if (invocation.rv != 0)
        return error_set(error, invocation.rv, "%s: %s", address, invocation.cause);
    return 0;
}

void remoting_response_close(struct remoting_response *response)
{
    free(response->frame);
    response->frame = NULL;
}
