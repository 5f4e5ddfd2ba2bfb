#include "client/route.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <uthash.h>

#include "proto/request_code.h"
#include "proto/response_code.h"

/* A question's way: route_table_refresh() makes a struct question for the topic (or joins the one that is there), it
 * asks one name server, and the others too when that one fails, is slow, says "unknown", or when the caller knows
 * that the present answer is wrong. The first answer that helps is stored and the waiters are called. If all say
 * "unknown" and there is a template topic, the same is done for the template's name.
 */
#define HEDGE_MS 300 /* a name server that is silent so long gets company */

struct entry {
    struct route_table *table;
    char *topic;
    bool known;
    struct topic_route route;
    struct question *question; /* under way, or NULL */
    UT_hash_handle hh;
};

struct ask {
    struct remoting_call call;
    struct question *question;
    bool begun;
};

struct question {
    struct entry *entry;
    char *create_key; /* NULL: no template */
    int queues_of_new_topic;
    bool asking_template;
    bool answered; /* the waiters are gone; waits only for calls to end */
    bool all_at_once;
    uint32_t unknown_count; /* name servers that said so */
    uint32_t begun, pending;
    uint32_t first;
    char avoid[REMOTING_ADDRESS_MAX]; /* "" none */
    bool have_stale;
    struct topic_route stale; /* serves when nobody knows better */
    int rv;                   /* of the last failure */
    char cause[200];
    struct route_waiter *waiters, **waiters_end;
    struct remoting_delay hedge;
    struct ask asks[ROUTE_NAME_SERVERS_MAX];
};

struct route_table {
    struct remoting_client *client;
    struct route_table_options options;
    char name_servers[ROUTE_NAME_SERVERS_MAX][REMOTING_ADDRESS_MAX];
    uint32_t preferred; /* the name server that answered last */
    bool stopped;
    struct entry *entries;
    struct remoting_delay poll;
};

static void ask_next(struct question *question);

static void question_free(struct question *question)
{
    if (question->have_stale)
        topic_route_close(&question->stale);
    free(question->create_key);
    free(question);
}

/* Calls the waiters. The question lives on until its calls have ended, but nobody can join it any more. */
static void question_finish(struct question *question, int rv, const char *cause)
{
    struct route_waiter *waiter = question->waiters;
    struct entry *entry = question->entry;
    struct route_table *table = entry->table;
    question->answered = true;
    question->waiters = NULL;
    entry->question = NULL;
    remoting_client_delay_cancel(&question->hedge);
    if (question->pending == 0)
        question_free(question);
    if (rv == 0 && table->options.changed != NULL && !table->stopped)
        table->options.changed(table->options.context);
    while (waiter != NULL) {
        struct route_waiter *next = waiter->next;
        waiter->done(waiter, rv, cause);
        waiter = next;
    }
}

static void store(struct question *question, struct topic_route *route)
{
    struct entry *entry = question->entry;
    /* Clients that start together must not all begin at the same queue. */
    route->turn = entry->known ? entry->route.turn : (uint32_t)(uv_hrtime() >> 10);
    if (entry->known)
        topic_route_close(&entry->route);
    entry->route = *route;
    entry->known = true;
    question_finish(question, 0, NULL);
}

/* Nobody is left to ask and nobody's answer helped. */
static void question_exhausted(struct question *question)
{
    uint32_t count = question->entry->table->options.name_server_count;
    if (question->have_stale) {
        struct topic_route route = question->stale;
        question->have_stale = false;
        store(question, &route);
        return;
    }
    if (question->unknown_count > 0 && !question->asking_template && question->create_key != NULL) {
        question->asking_template = true;
        question->unknown_count = 0;
        question->begun = 0;
        for (uint32_t i = 0; i < count; i++)
            question->asks[i].begun = false;
        ask_next(question);
        return;
    }
    if (question->unknown_count > 0)
        question->rv = ERROR_NOT_FOUND;
    char cause[sizeof question->cause];
    memcpy(cause, question->cause, sizeof cause);
    question_finish(question, question->rv, cause);
}

/* True when some leader of the route is not the address that just failed. */
static bool route_helps(const struct topic_route *route, const char *avoid)
{
    if (avoid[0] == '\0')
        return true;
    for (uint32_t i = 0; i < route->broker_count; i++) {
        const char *leader = route_broker_leader(&route->brokers[i]);
        if (leader != NULL && strcmp(leader, avoid) != 0)
            return true;
    }
    return false;
}

static void asked(struct remoting_call *call, int rv, const struct remoting_command *answer, const char *cause)
{
    struct ask *ask = call->context;
    struct question *question = ask->question;
    struct route_table *table = question->entry->table;
    uint32_t server = (uint32_t)(ask - question->asks);
    struct topic_route route;
    struct error error = {0};
    question->pending--;
    if (question->answered) {
        if (question->pending == 0)
            question_free(question);
        return;
    }
    if (rv != 0) {
        question->rv = rv;
        snprintf(question->cause, sizeof question->cause, "name server %.100s: %.80s", table->name_servers[server],
                 cause);
    } else if (answer->code == RESPONSE_SUCCESS) {
        rv = topic_route_parse(&route, answer->body, question->asking_template ? question->queues_of_new_topic : 0,
                               &error);
        if (rv == 0 && route_helps(&route, question->avoid)) {
            table->preferred = server;
            store(question, &route);
            return;
        }
        if (rv == 0) {
            if (question->have_stale)
                topic_route_close(&question->stale);
            question->stale = route;
            question->have_stale = true;
        } else {
            question->rv = rv;
            snprintf(question->cause, sizeof question->cause, "name server %.80s: %.100s",
                     table->name_servers[server], error.message);
        }
    } else {
        if (answer->code == RESPONSE_TOPIC_NOT_EXIST)
            question->unknown_count++;
        question->rv = ERROR_NO_LEADER;
        snprintf(question->cause, sizeof question->cause, "name server %.80s answers %d %.*s",
                 table->name_servers[server], answer->code,
                 (int)(answer->remark.size < 90 ? answer->remark.size : 90), (const char *)answer->remark.data);
    }
    ask_next(question);
}

/* Asks the next name server (or all that are left). Ends the question when nothing is under way any more. */
static void ask_next(struct question *question)
{
    struct route_table *table = question->entry->table;
    uint32_t count = table->options.name_server_count;
    while (question->begun < count && !table->stopped) {
        uint32_t server = (question->first + question->begun++) % count;
        struct ask *ask = &question->asks[server];
        struct remoting_writer writer;
        ask->call.done = asked;
        ask->call.context = ask;
        ask->question = question;
        int rv = remoting_client_begin(table->client, table->name_servers[server], &ask->call,
                                       REQUEST_GET_ROUTEINFO_BY_TOPIC, table->options.call_timeout_ms, &writer);
        if (rv == 0) {
            remoting_writer_ext_text(&writer, "topic",
                                     question->asking_template ? question->create_key : question->entry->topic);
            rv = remoting_client_end(table->client, &ask->call, &writer);
        }
        if (rv != 0) {
            question->rv = rv;
            snprintf(question->cause, sizeof question->cause, "name server %.100s: %s", table->name_servers[server],
                     error_text(rv));
            continue;
        }
        question->pending++;
        if (!question->all_at_once) {
            if (question->begun < count)
                remoting_client_delay(table->client, &question->hedge, HEDGE_MS);
            return;
        }
    }
    if (question->pending == 0)
        question_exhausted(question);
}

static void hedge_run(struct remoting_delay *delay)
{
    struct question *question = (struct question *)((char *)delay - offsetof(struct question, hedge));
    ask_next(question);
}

static struct entry *entry_get(struct route_table *table, const char *topic, int *rv)
{
    struct entry *entry;
    HASH_FIND_STR(table->entries, topic, entry);
    if (entry != NULL)
        return entry;
    *rv = ERROR_BUSY;
    if (HASH_COUNT(table->entries) >= ROUTE_TOPICS_MAX)
        return NULL;
    *rv = ERROR_NO_MEMORY;
    entry = calloc(1, sizeof *entry);
    if (entry == NULL)
        return NULL;
    entry->topic = strdup(topic);
    if (entry->topic == NULL) {
        free(entry);
        return NULL;
    }
    entry->table = table;
    HASH_ADD_KEYPTR(hh, table->entries, entry->topic, strlen(entry->topic), entry);
    return entry;
}

int route_table_refresh(struct route_table *table, const char *topic, const char *create_key, int queues_of_new_topic,
                        const char *avoid, struct route_waiter *waiter)
{
    int rv = ERROR_STOPPED;
    if (table->stopped)
        return rv;
    struct entry *entry = entry_get(table, topic, &rv);
    if (entry == NULL)
        return rv;
    struct question *question = entry->question;
    bool fresh = question == NULL;
    if (fresh) {
        question = calloc(1, sizeof *question);
        if (question == NULL)
            return ERROR_NO_MEMORY;
        question->entry = entry;
        question->first = table->preferred;
        question->waiters_end = &question->waiters;
        entry->question = question;
    }
    if (create_key != NULL && question->create_key == NULL) {
        question->create_key = strdup(create_key);
        question->queues_of_new_topic = queues_of_new_topic > 0 ? queues_of_new_topic : 1;
    }
    if (waiter != NULL) {
        waiter->next = NULL;
        *question->waiters_end = waiter;
        question->waiters_end = &waiter->next;
    }
    if (avoid != NULL && question->avoid[0] == '\0') {
        snprintf(question->avoid, sizeof question->avoid, "%s", avoid);
        question->all_at_once = true;
    }
    /* The questions go out by a delay of no length, since no call back may come from inside this call. */
    if (fresh || (question->all_at_once && question->begun < table->options.name_server_count)) {
        question->hedge.run = hedge_run;
        remoting_client_delay(table->client, &question->hedge, 0);
    }
    return 0;
}

void route_table_cancel(struct route_table *table, const char *topic, struct route_waiter *waiter)
{
    struct entry *entry;
    HASH_FIND_STR(table->entries, topic, entry);
    if (entry == NULL || entry->question == NULL)
        return;
    for (struct route_waiter **at = &entry->question->waiters; *at != NULL; at = &(*at)->next) {
        if (*at != waiter)
            continue;
        *at = waiter->next;
        if (*at == NULL)
            entry->question->waiters_end = at;
        return;
    }
}

struct topic_route *route_table_get(struct route_table *table, const char *topic)
{
    struct entry *entry;
    HASH_FIND_STR(table->entries, topic, entry);
    return entry != NULL && entry->known ? &entry->route : NULL;
}

void route_table_each_broker(struct route_table *table,
                             void (*visit)(void *context, const struct route_broker *broker), void *context)
{
    for (struct entry *entry = table->entries; entry != NULL; entry = entry->hh.next)
        for (uint32_t i = 0; entry->known && i < entry->route.broker_count; i++)
            visit(context, &entry->route.brokers[i]);
}

static void poll_run(struct remoting_delay *delay)
{
    struct route_table *table = (struct route_table *)((char *)delay - offsetof(struct route_table, poll));
    for (struct entry *entry = table->entries; entry != NULL; entry = entry->hh.next)
        if (entry->known)
            route_table_refresh(table, entry->topic, NULL, 0, NULL, NULL);
    remoting_client_delay(table->client, &table->poll, table->options.poll_ms);
}

struct poll_task {
    struct remoting_task task;
    struct route_table *table;
};

static void poll_start(struct remoting_task *task)
{
    struct route_table *table = ((struct poll_task *)task)->table;
    free(task);
    if (!table->stopped)
        remoting_client_delay(table->client, &table->poll, table->options.poll_ms);
}

int route_table_new(struct remoting_client *client, const struct route_table_options *options,
                    struct route_table **out, struct error *error)
{
    struct route_table *table = calloc(1, sizeof *table);
    struct poll_task *start = malloc(sizeof *start);
    if (table == NULL || start == NULL) {
        free(table);
        free(start);
        return error_set(error, ERROR_NO_MEMORY, "out of memory");
    }
    assert(options->name_server_count > 0 && options->name_server_count <= ROUTE_NAME_SERVERS_MAX);
    table->client = client;
    table->options = *options;
    memcpy(table->name_servers, options->name_servers, options->name_server_count * sizeof table->name_servers[0]);
    table->options.name_servers = table->name_servers;
    /* Many clients that start together must not all begin at the same server. */
    table->preferred = (uint32_t)(uv_hrtime() / 1000 % options->name_server_count);
    table->poll.run = poll_run;
    start->task.run = poll_start;
    start->table = table;
    remoting_client_post(client, &start->task);
    *out = table;
    return 0;
}

void route_table_stop(struct route_table *table)
{
    table->stopped = true;
    remoting_client_delay_cancel(&table->poll);
    for (struct entry *entry = table->entries, *next; entry != NULL; entry = next) {
        next = entry->hh.next;
        if (entry->question != NULL)
            question_finish(entry->question, ERROR_STOPPED, "the client is being closed");
    }
}

void route_table_free(struct route_table *table)
{
    struct entry *entry, *next;
    HASH_ITER(hh, table->entries, entry, next)
    {
        HASH_DEL(table->entries, entry);
        if (entry->known)
            topic_route_close(&entry->route);
        free(entry->topic);
        free(entry);
    }
    free(table);
}
