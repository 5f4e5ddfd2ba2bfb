#include "client/remoting_connection.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

/* A request's way: begin() finds or makes the connection and reserves a slot, the frame is written straight into the
 * connection's buffer, the prepare hook hands all that one loop turn gathered to the kernel in one write, read_cb()
 * cuts answers and finds the slot by the opaque value.
 *
 * An opaque value is {generation, slot}: the slot finds the call without hashing, the generation tells a late answer
 * of a call that timed out from the answer of the one that has the slot now.
 */
#define SWEEP_NEVER INT64_MAX

int64_t remoting_client_now_ms(struct remoting_client *client)
{
    return (int64_t)uv_now(&client->loop);
}

bool remoting_client_on_loop(const struct remoting_client *client)
{
    uv_thread_t self = uv_thread_self();
    return uv_thread_equal(&self, &client->thread) != 0;
}

/* --- slots ---- */

static int slot_take(struct remoting_client *client, struct remoting_call *call)
{
    if (client->free_slot == UINT32_MAX) {
        if (client->slot_count == client->slot_capacity) {
            uint32_t capacity = client->slot_capacity == 0 ? 256 : client->slot_capacity * 2;
            if (client->slot_capacity == REMOTING_CLIENT_CALLS_MAX)
                return ERROR_BUSY;
            struct slot *slots = realloc(client->slots, capacity * sizeof *slots);
            if (slots == NULL)
                return ERROR_NO_MEMORY;
            client->slots = slots;
            client->slot_capacity = capacity;
        }
        client->slots[client->slot_count] = (struct slot){NULL, 0, UINT32_MAX};
        client->free_slot = client->slot_count++;
    }
    call->slot = client->free_slot;
    struct slot *slot = &client->slots[call->slot];
    client->free_slot = slot->next_free;
    slot->call = call;
    slot->generation = (slot->generation + 1) & REMOTING_GENERATION_MASK;
    call->opaque = (int32_t)(slot->generation << REMOTING_SLOT_BITS | call->slot);
    return 0;
}

void remoting_client_slot_release(struct remoting_client *client, struct remoting_call *call)
{
    struct slot *slot = &client->slots[call->slot];
    assert(slot->call == call);
    slot->call = NULL;
    slot->next_free = client->free_slot;
    client->free_slot = call->slot;
}

/* --- sweep: time-outs of calls and connects, delays, connections found broken ---- */

static void sweep_cb(uv_timer_t *timer);

void remoting_client_sweep_by(struct remoting_client *client, int64_t at_ms)
{
    if (at_ms >= client->sweep_at_ms || client->stopping)
        return;
    int64_t now = remoting_client_now_ms(client);
    client->sweep_at_ms = at_ms;
    uv_timer_start(&client->sweep, sweep_cb, at_ms > now ? (uint64_t)(at_ms - now) : 0, 0);
}

/* --- requests ---- */

bool remoting_client_is_connected(struct remoting_client *client, const char *address)
{
    struct remoting_connection *connection;
    HASH_FIND(hh, client->connections, address, strlen(address), connection);
    return connection != NULL && connection->state == OPEN && !connection->failing;
}

int remoting_client_begin(struct remoting_client *client, const char *address, struct remoting_call *call,
                          int32_t code, int timeout_ms, struct remoting_writer *writer)
{
    int rv = 0;
    assert(client->beginning_connection == NULL);
    if (client->stopping)
        return ERROR_STOPPED;
    struct remoting_connection *connection = remoting_connection_get(client, address, &rv);
    if (connection == NULL)
        return rv;
    if (connection->out.size + connection->writing.size > REMOTING_CLIENT_OUT_MAX / 2)
        return ERROR_BUSY;
    int32_t opaque = 0;
    if (call != NULL) {
        rv = slot_take(client, call);
        if (rv != 0)
            return rv;
        opaque = call->opaque;
        call->connection = connection;
        call->sent_ms = remoting_client_now_ms(client);
        call->deadline_ms = call->sent_ms + timeout_ms;
        remoting_client_sweep_by(client, call->deadline_ms);
    }
    client->beginning = call;
    client->beginning_connection = connection;
    remoting_writer_begin_request(writer, &connection->out, REMOTING_JSON, code, opaque,
                                  call == NULL ? REMOTING_FLAG_ONEWAY : 0);
    return 0;
}

int remoting_client_end(struct remoting_client *client, struct remoting_call *call, struct remoting_writer *writer)
{
    struct remoting_connection *connection = client->beginning_connection;
    assert(connection != NULL && client->beginning == call);
    client->beginning_connection = NULL;
    client->beginning = NULL;
    remoting_writer_end(writer, 0);
    if (connection->out.failed || connection->out.size - writer->frame_start > REMOTING_FRAME_MAX) {
        connection->out.failed = false;
        connection->out.size = writer->frame_start;
        if (call != NULL)
            remoting_client_slot_release(client, call);
        return ERROR_NO_MEMORY;
    }
    if (call != NULL) {
        call->frame_start = writer->frame_start;
        call->frame_size = connection->out.size - writer->frame_start;
    }
    remoting_connection_mark_dirty(connection);
    return 0;
}

/* Takes the request of a call that is over out of the buffer of a connection that is not made yet: it may have gone to
 * somebody else by the time that this one is. */
static void drop_unsent(struct remoting_client *client, const struct remoting_call *call)
{
    struct remoting_connection *connection = call->connection;
    struct buffer *out = &connection->out;
    if (connection->state == OPEN || connection->state == CLOSED)
        return;
    size_t end = call->frame_start + call->frame_size;
    assert(client->beginning_connection != connection && end <= out->size);
    memmove(out->data + call->frame_start, out->data + end, out->size - end);
    out->size -= call->frame_size;
    for (uint32_t i = 0; i < client->slot_count; i++) {
        struct remoting_call *other = client->slots[i].call;
        if (other != NULL && other->connection == connection && other->frame_start > call->frame_start)
            other->frame_start -= call->frame_size;
    }
}

void remoting_client_cancel(struct remoting_client *client, struct remoting_call *call)
{
    drop_unsent(client, call);
    remoting_client_slot_release(client, call);
}

void remoting_client_delay(struct remoting_client *client, struct remoting_delay *delay, int wait_ms)
{
    remoting_client_delay_cancel(delay);
    delay->due_ms = remoting_client_now_ms(client) + wait_ms;
    delay->armed = true;
    delay->next = client->delays;
    delay->previous = &client->delays;
    if (delay->next != NULL)
        delay->next->previous = &delay->next;
    client->delays = delay;
    remoting_client_sweep_by(client, delay->due_ms);
}

void remoting_client_delay_by(struct remoting_client *client, struct remoting_delay *delay, int wait_ms)
{
    if (!delay->armed || delay->due_ms > remoting_client_now_ms(client) + wait_ms)
        remoting_client_delay(client, delay, wait_ms);
}

void remoting_client_delay_cancel(struct remoting_delay *delay)
{
    if (!delay->armed)
        return;
    delay->armed = false;
    *delay->previous = delay->next;
    if (delay->next != NULL)
        delay->next->previous = delay->previous;
}

static void expire_connections(struct remoting_client *client, int64_t now)
{
    struct remoting_connection *connection, *next;
    HASH_ITER(hh, client->connections, connection, next)
    {
        if (connection->failing) {
            remoting_connection_fail_status(connection, "connection", connection->fail_status);
        } else if (connection->state != OPEN && connection->connect_deadline_ms <= now) {
            char cause[64];
            snprintf(cause, sizeof cause, "no connection within %d ms", client->connect_timeout_ms);
            remoting_connection_fail(connection, ERROR_CONNECTION, cause);
        } else {
            continue;
        }
        /* Its calls' call backs may have changed the table under the iterator. */
        next = client->connections;
    }
}

static void expire_calls(struct remoting_client *client, int64_t now)
{
    for (uint32_t i = 0; i < client->slot_count; i++) {
        struct remoting_call *call = client->slots[i].call;
        if (call == NULL || call->deadline_ms > now)
            continue;
        struct remoting_connection *connection = call->connection;
        int64_t sent = call->sent_ms;
        drop_unsent(client, call);
        remoting_client_slot_release(client, call);
        call->maybe_sent = connection->state == OPEN;
        /* Silence since the request was sent: the peer may be stopped or cut off without a reset, so the next request
         * gets a new connection. */
        if (connection->state == OPEN && connection->last_read_ms <= sent && !connection->failing)
            remoting_connection_mark_failing(connection, UV_ETIMEDOUT);
        call->done(call, ERROR_TIMEOUT, NULL, "no answer in time");
    }
}

static void run_delays(struct remoting_client *client, int64_t now)
{
    for (;;) {
        struct remoting_delay *delay = client->delays;
        while (delay != NULL && delay->due_ms > now)
            delay = delay->next;
        if (delay == NULL)
            return;
        remoting_client_delay_cancel(delay);
        delay->run(delay);
    }
}

static void sweep_cb(uv_timer_t *timer)
{
    struct remoting_client *client = timer->data;
    int64_t now = remoting_client_now_ms(client);
    client->sweep_at_ms = SWEEP_NEVER;
    expire_calls(client, now);
    expire_connections(client, now);
    run_delays(client, now);

    int64_t at = SWEEP_NEVER;
    for (uint32_t i = 0; i < client->slot_count; i++)
        if (client->slots[i].call != NULL && client->slots[i].call->deadline_ms < at)
            at = client->slots[i].call->deadline_ms;
    for (const struct remoting_delay *delay = client->delays; delay != NULL; delay = delay->next)
        at = delay->due_ms < at ? delay->due_ms : at;
    for (const struct remoting_connection *c = client->connections; c != NULL; c = c->hh.next) {
        if (c->failing)
            at = now;
        else if (c->state != OPEN && c->connect_deadline_ms < at)
            at = c->connect_deadline_ms;
    }
    if (at != SWEEP_NEVER)
        remoting_client_sweep_by(client, at);
}

/* --- the thread ---- */

static void wake_cb(uv_async_t *wake)
{
    struct remoting_client *client = wake->data;
    uv_mutex_lock(&client->lock);
    struct remoting_task *task = client->tasks;
    client->tasks = NULL;
    client->tasks_end = &client->tasks;
    uv_mutex_unlock(&client->lock);
    while (task != NULL) {
        struct remoting_task *next = task->next; /* run() may free it */
        task->run(task);
        task = next;
    }
}

void remoting_client_post(struct remoting_client *client, struct remoting_task *task)
{
    task->next = NULL;
    uv_mutex_lock(&client->lock);
    bool first = client->tasks == NULL;
    *client->tasks_end = task;
    client->tasks_end = &task->next;
    uv_mutex_unlock(&client->lock);
    if (first)
        uv_async_send(&client->wake);
}

void remoting_client_post_and_wait(struct remoting_client *client, struct remoting_task *task, uv_sem_t *done)
{
    int rv = uv_sem_init(done, 0);
    assert(rv == 0);
    remoting_client_post(client, task);
    uv_sem_wait(done);
    uv_sem_destroy(done);
}

struct stop_task {
    struct remoting_task task;
    struct remoting_client *client;
};

static void stop_run(struct remoting_task *task)
{
    struct remoting_client *client = ((struct stop_task *)task)->client;
    /* One-way requests that are still in the buffers get their chance to leave. */
    remoting_connections_flush(&client->prepare);
    client->stopping = true;
    while (client->connections != NULL)
        remoting_connection_fail(client->connections, ERROR_STOPPED, "the client is being closed");
    uv_close((uv_handle_t *)&client->wake, NULL);
    uv_close((uv_handle_t *)&client->prepare, NULL);
    uv_close((uv_handle_t *)&client->sweep, NULL);
}

static void loop_main(void *argument)
{
    struct remoting_client *client = argument;
    uv_run(&client->loop, UV_RUN_DEFAULT);
}

int remoting_client_new(int connect_timeout_ms, struct remoting_client **out, struct error *error)
{
    struct remoting_client *client = calloc(1, sizeof *client);
    if (client == NULL)
        return error_set(error, ERROR_NO_MEMORY, "out of memory");
    client->connect_timeout_ms = connect_timeout_ms;
    client->tasks_end = &client->tasks;
    client->free_slot = UINT32_MAX;
    client->sweep_at_ms = SWEEP_NEVER;
    const char *what = "the mutex";
    int status = uv_mutex_init(&client->lock);
    if (status < 0)
        goto free_client;
    what = "the event loop";
    status = uv_loop_init(&client->loop);
    if (status < 0)
        goto destroy_lock;
    client->wake.data = client->prepare.data = client->sweep.data = client;
    what = "the wake-up descriptor";
    status = uv_async_init(&client->loop, &client->wake, wake_cb);
    if (status < 0)
        goto close_loop;
    uv_prepare_init(&client->loop, &client->prepare);
    uv_prepare_start(&client->prepare, remoting_connections_flush);
    uv_timer_init(&client->loop, &client->sweep);

    /* A write to a connection that the peer reset raises SIGPIPE in the writing thread; the application's own
     * handling of it stays untouched. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    what = "the thread";
    status = uv_thread_create(&client->thread, loop_main, client);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (status < 0)
        goto close_handles;
    *out = client;
    return 0;

close_handles:
    uv_close((uv_handle_t *)&client->wake, NULL);
    uv_close((uv_handle_t *)&client->prepare, NULL);
    uv_close((uv_handle_t *)&client->sweep, NULL);
    uv_run(&client->loop, UV_RUN_DEFAULT);
close_loop:
    uv_loop_close(&client->loop);
destroy_lock:
    uv_mutex_destroy(&client->lock);
free_client:
    free(client);
    return error_set(error, ERROR_NO_MEMORY, "the client cannot make %s: %s", what, uv_strerror(status));
}

void remoting_client_free(struct remoting_client *client)
{
    if (client == NULL)
        return;
    struct stop_task stop = {.task.run = stop_run, .client = client};
    remoting_client_post(client, &stop.task);
    uv_thread_join(&client->thread);
    int rv = uv_loop_close(&client->loop);
    assert(rv == 0);
    uv_mutex_destroy(&client->lock);
    free(client->slots);
    free(client);
}
