/* A call stands in two places: a hash by (connection, opaque) for its answer, and a list in the order of deadlines for the one timer. Calls share few
 * different time-outs, so the place in the list is found from its end.
 *
 * A callback may start calls and close connections: it runs when its call stands in neither place any more, and every walk begins anew after one.
 */
#include "broker/remoting/client_call.h"

#include <assert.h>
#include <bsd/sys/queue.h>
#include <stdlib.h>

#include "broker/broker.h"
#include "broker/broker_stats.h"
#include "broker/hash_table.h"
#include "broker/limits.h"
#include "broker/remoting/connection.h"
#include "broker/remoting/listener.h"

#define DUE_NOW 0 /* deadline of a call whose connection is gone */

struct client_call_key {
    uint64_t connection_id;
    int64_t opaque; /* 64 bits, so that the key has no padding */
};

struct client_call {
    struct client_call_key key;
    uint64_t deadline_us;
    client_call_done done;
    void *context;
    TAILQ_ENTRY(client_call) next;
    UT_hash_handle hh;
};

struct client_call_table {
    struct broker *broker;
    struct client_call *calls; /* uthash by key */
    TAILQ_HEAD(client_call_list, client_call) by_deadline;
    uint32_t count;
    int32_t next_opaque;
    struct client_call *begun; /* between begin and end */
    bool has_timer, closed;
    uv_timer_t timer;
};

struct client_call_table *client_call_table_new(uv_loop_t *loop, struct broker *broker)
{
    struct client_call_table *table = calloc(1, sizeof *table);
    if (table == NULL)
        return NULL;
    table->broker = broker;
    TAILQ_INIT(&table->by_deadline);
    if (loop != NULL) {
        table->has_timer = true;
        uv_timer_init(loop, &table->timer);
        table->timer.data = table;
        uv_unref((uv_handle_t *)&table->timer);
    }
    return table;
}

uint32_t client_call_count(const struct client_call_table *table)
{
    return table->count;
}

static void on_timer(uv_timer_t *timer)
{
    struct client_call_table *table = timer->data;
    client_call_expire(table, env_monotonic_us(&table->broker->env));
}

static void set_timer(struct client_call_table *table)
{
    const struct client_call *first = TAILQ_FIRST(&table->by_deadline);
    if (!table->has_timer || table->closed)
        return;
    if (first == NULL) {
        uv_timer_stop(&table->timer);
        return;
    }
    uint64_t now_us = env_monotonic_us(&table->broker->env);
    uv_timer_start(&table->timer, on_timer, first->deadline_us <= now_us ? 0 : (first->deadline_us - now_us) / 1000 + 1, 0);
}

static void finish(struct client_call_table *table, struct client_call *call, int code, const struct remoting_command *answer)
{
    HASH_DEL(table->calls, call);
    TAILQ_REMOVE(&table->by_deadline, call, next);
    table->count--;
    call->done(table->broker, call->context, code, answer);
    free(call);
}

static struct client_call *find(struct client_call_table *table, struct client_call_key key)
{
    struct client_call *call;
    HASH_FIND(hh, table->calls, &key, sizeof key, call);
    return call;
}

int client_call_begin(struct broker *broker, uint64_t connection_id, int32_t code, struct remoting_writer *writer)
{
    struct client_call_table *table = broker->calls;
    assert(table->begun == NULL);
    struct connection *connection = table->closed ? NULL : remoting_server_find(broker->server, connection_id);
    if (connection == NULL)
        return ERROR_CONNECTION;
    if (table->count >= LIMIT_CLIENT_CALLS)
        return broker_stats_busy(broker->stats, LIMIT_HIT_CLIENT_CALLS);
    struct client_call *call = calloc(1, sizeof *call);
    if (call == NULL)
        return ERROR_NO_MEMORY;
    struct buffer *out = connection_output(connection);
    if (out == NULL) {
        free(call);
        return ERROR_CONNECTION;
    }
    call->key.connection_id = connection_id;
    do { /* when the numbers start anew, old calls may still wait */
        call->key.opaque = table->next_opaque;
        table->next_opaque = table->next_opaque == INT32_MAX ? 0 : table->next_opaque + 1;
    } while (find(table, call->key) != NULL);
    table->begun = call;
    /* JSON: the one form that every client reads. */
    remoting_writer_begin_request(writer, out, REMOTING_JSON, code, (int32_t)call->key.opaque, 0);
    return 0;
}

void client_call_end(struct broker *broker, uint64_t connection_id, struct remoting_writer *writer, uint32_t timeout_ms, client_call_done done,
                     void *context)
{
    struct client_call_table *table = broker->calls;
    struct client_call *call = table->begun, *before = TAILQ_LAST(&table->by_deadline, client_call_list);
    assert(call != NULL && call->key.connection_id == connection_id);
    table->begun = NULL;
    call->done = done;
    call->context = context;
    call->deadline_us = env_monotonic_us(&broker->env) + timeout_ms * 1000ull;
    HASH_ADD(hh, table->calls, key, sizeof call->key, call);
    while (before != NULL && before->deadline_us > call->deadline_us)
        before = TAILQ_PREV(before, client_call_list, next);
    if (before != NULL)
        TAILQ_INSERT_AFTER(&table->by_deadline, before, call, next);
    else
        TAILQ_INSERT_HEAD(&table->by_deadline, call, next);
    table->count++;
    remoting_writer_end(writer, 0);
    /* May cut the client off, which ends the call by the timer. */
    connection_frame_done(remoting_server_find(broker->server, connection_id));
    set_timer(table);
}

bool client_call_answered(struct client_call_table *table, uint64_t connection_id, const struct remoting_command *answer)
{
    struct client_call *call = find(table, (struct client_call_key){.connection_id = connection_id, .opaque = answer->opaque});
    if (call == NULL)
        return false;
    finish(table, call, 0, answer);
    set_timer(table);
    return true;
}

void client_call_connection_closed(struct client_call_table *table, uint64_t connection_id)
{
    /* A close may be the outcome of the very write that makes a call, so callbacks are left to the timer. Calls are few, a walk is cheap. */
    struct client_call *call, *following;
    for (call = TAILQ_FIRST(&table->by_deadline); call != NULL; call = following) {
        following = TAILQ_NEXT(call, next);
        if (call->key.connection_id != connection_id)
            continue;
        call->deadline_us = DUE_NOW;
        TAILQ_REMOVE(&table->by_deadline, call, next);
        TAILQ_INSERT_HEAD(&table->by_deadline, call, next);
    }
    set_timer(table);
}

void client_call_expire(struct client_call_table *table, uint64_t now_us)
{
    struct client_call *call;
    while ((call = TAILQ_FIRST(&table->by_deadline)) != NULL && call->deadline_us <= now_us)
        finish(table, call, call->deadline_us == DUE_NOW ? ERROR_CONNECTION : ERROR_TIMEOUT, NULL);
    set_timer(table);
}

void client_call_table_close(struct client_call_table *table)
{
    struct client_call *call;
    if (table->closed)
        return;
    table->closed = true;
    while ((call = TAILQ_FIRST(&table->by_deadline)) != NULL)
        finish(table, call, ERROR_STOPPED, NULL);
    if (table->has_timer)
        uv_close((uv_handle_t *)&table->timer, NULL);
}

void client_call_table_free(struct client_call_table *table)
{
    if (table == NULL)
        return;
    assert(table->calls == NULL && table->begun == NULL);
    free(table);
}
