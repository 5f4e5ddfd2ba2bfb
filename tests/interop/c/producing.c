/* Sends of all kinds, each read back from its queue. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "suite.h"

static struct ledgermq_message message_of(const char *topic, const char *body)
{
    return (struct ledgermq_message){.topic = topic, .body = body, .body_size = strlen(body)};
}

static void check_place(const struct inbox *inbox, const struct ledgermq_send_result *result, const char *body)
{
    const struct ledgermq_stored_message *message = inbox_find(inbox, body);
    if (message == NULL)
        FAIL("'%s' is not there", body);
    CHECK(message->queue_offset == result->queue_offset && message->queue_id == result->queue.queue_id);
    CHECK(strcmp(message->message_id, result->message_id) == 0);
    CHECK(strcmp(message->offset_message_id, result->offset_message_id) == 0);
}

static struct ledgermq_send_result async_result;
static atomic_int async_calls;

static void async_done(void *context, const struct ledgermq_send_result *result, const struct ledgermq_error *error)
{
    (void)context;
    (void)error;
    if (result != NULL)
        async_result = *result;
    async_calls++;
}

static void one_message(void)
{
    char topic[64];
    struct ledgermq_client *client = new_client(NULL);
    struct ledgermq_producer *producer = new_producer(client, NULL);
    struct ledgermq_property properties[] = {{"colour", "gr\xc3\xbcn \"{}\\"}};
    struct ledgermq_send_result sync;
    struct ledgermq_error error;
    struct inbox inbox;
    struct ledgermq_message message = message_of(fresh_topic("one-message", topic), "sync");
    message.tags = "TagA";
    message.keys = "k1 k2";
    message.flag = 7;
    message.properties = properties;
    message.property_count = 1;
    MUST(ledgermq_send(producer, &message, &sync, &error));
    CHECK(sync.status == LEDGERMQ_SEND_OK && sync.tries == 1);
    message = message_of(topic, "async");
    async_calls = 0;
    MUST(ledgermq_send_async(producer, &message, NULL, async_done, NULL, &error));
    message = message_of(topic, "oneway");
    MUST(ledgermq_send_oneway(producer, &message, &error));
    ledgermq_producer_free(producer);
    CHECK(async_calls == 1);
    read_topic(client, topic, 3, 5000, &inbox);
    CHECK(inbox.count == 3 && inbox_find(&inbox, "oneway") != NULL);
    check_place(&inbox, &sync, "sync");
    check_place(&inbox, &async_result, "async");
    const struct ledgermq_stored_message *stored = inbox_find(&inbox, "sync");
    CHECK(strcmp(stored->tags, "TagA") == 0 && strcmp(stored->keys, "k1 k2") == 0 && stored->flag == 7);
    CHECK(strcmp(ledgermq_message_property(stored, "colour"), "gr\xc3\xbcn \"{}\\") == 0);
    inbox_close(&inbox);
    ledgermq_client_free(client);
}

static size_t last_queue(const struct ledgermq_queue_view *queues, size_t count, const char *topic, void *argument)
{
    (void)queues;
    *(char *)argument = topic[0];
    return count - 1;
}

static void selected_queues(void)
{
    char topic[64], first = 0;
    struct ledgermq_client *client = new_client(NULL);
    struct ledgermq_producer *producer = new_producer(client, NULL);
    struct ledgermq_send_result result;
    struct ledgermq_error error;
    int32_t queue_of[6];
    struct ledgermq_message message = message_of(fresh_topic("selected-queues", topic), "x");
    MUST(ledgermq_send(producer, &message, NULL, &error)); /* makes the topic */
    for (int i = 0; i < 18; i++) {
        char key[16];
        snprintf(key, sizeof key, "order-%d", i % 6);
        MUST(ledgermq_send_select(producer, &message, ledgermq_select_by_hash, key, &result, &error));
        if (i < 6)
            queue_of[i] = result.queue.queue_id;
        CHECK(result.queue.queue_id == queue_of[i % 6]);
    }
    MUST(ledgermq_send_select(producer, &message, ledgermq_select_by_random, NULL, &result, &error));
    MUST(ledgermq_send_select(producer, &message, last_queue, &first, &result, &error));
    CHECK(result.queue.queue_id == 3 && first == 'C');
    ledgermq_client_free(client);
}

#define BATCH_COUNT 500
static void batch(void)
{
    static char bodies[BATCH_COUNT][32];
    static struct ledgermq_message messages[BATCH_COUNT];
    static struct ledgermq_message_id ids[BATCH_COUNT];
    char topic[64];
    struct ledgermq_client *client = new_client(NULL);
    struct ledgermq_producer *producer = new_producer(client, NULL);
    struct ledgermq_error error;
    struct inbox inbox;
    size_t requests = 0;
    fresh_topic("batch", topic);
    for (int i = 0; i < BATCH_COUNT; i++) {
        snprintf(bodies[i], sizeof bodies[i], "batch-%04d", i);
        messages[i] = message_of(topic, bodies[i]);
        messages[i].tags = i % 2 == 0 ? "even" : "odd";
        messages[i].flag = i;
    }
    for (size_t at = 0, n; at < BATCH_COUNT; at += n, requests++) {
        struct ledgermq_send_options options = {.message_ids = &ids[at]};
        struct ledgermq_send_result result;
        n = ledgermq_batch_split(messages + at, BATCH_COUNT - at, 16384);
        CHECK(n > 20 && n < 200);
        MUST(ledgermq_send_messages(producer, messages + at, n, &options, &result, &error));
        CHECK(strcmp(result.message_id, ids[at].text) == 0);
    }
    CHECK(requests > 2);
    read_topic(client, topic, BATCH_COUNT, 5000, &inbox);
    CHECK(inbox.count == BATCH_COUNT);
    for (size_t i = 0; i < BATCH_COUNT; i++) {
        const struct ledgermq_stored_message *message = inbox_find(&inbox, bodies[i]);
        CHECK(message != NULL);
        CHECK(message->flag == (int32_t)i && strcmp(message->tags, i % 2 == 0 ? "even" : "odd") == 0);
        CHECK(strcmp(message->message_id, ids[i].text) == 0);
    }
    inbox_close(&inbox);
    ledgermq_client_free(client);
}

static void compression(void)
{
    static const int flags[] = {[LEDGERMQ_ZLIB] = 0x301, [LEDGERMQ_LZ4] = 0x101, [LEDGERMQ_ZSTD] = 0x201};
    static char body[200000];
    char topic[64];
    struct ledgermq_client *client = new_client(NULL);
    struct ledgermq_error error;
    struct inbox inbox;
    fresh_topic("compression", topic);
    for (size_t i = 0; i < sizeof body; i++)
        body[i] = "abcdefghij"[i % 7 + i / 1000 % 3];
    for (int type = LEDGERMQ_ZLIB; type <= LEDGERMQ_ZSTD; type++) {
        struct ledgermq_producer_options options;
        ledgermq_producer_options_init(&options);
        options.compression = type;
        struct ledgermq_producer *producer = new_producer(client, &options);
        struct ledgermq_message message = {.topic = topic, .body = body, .body_size = sizeof body, .flag = type};
        MUST(ledgermq_send(producer, &message, NULL, &error));
        ledgermq_producer_free(producer);
    }
    read_topic(client, topic, 3, 5000, &inbox);
    for (size_t i = 0; i < inbox.count; i++) {
        const struct ledgermq_stored_message *message = inbox.messages[i];
        CHECK(message->body_size == sizeof body && memcmp(message->body, body, sizeof body) == 0);
        CHECK((message->sys_flag & 0x701) == flags[message->flag]);
        CHECK(message->store_size < sizeof body / 10);
    }
    inbox_close(&inbox);
    ledgermq_client_free(client);
}

static void namespaces(void)
{
    char topic[64], full[80];
    struct ledgermq_client *tenant = new_client("tenant"), *landlord = new_client(NULL);
    struct ledgermq_producer *producer = new_producer(tenant, NULL);
    struct ledgermq_send_result result;
    struct ledgermq_error error;
    struct inbox inbox;
    struct ledgermq_message message = message_of(fresh_topic("namespaces", topic), "mine");
    MUST(ledgermq_send(producer, &message, &result, &error));
    CHECK(strcmp(result.queue.topic, topic) == 0);
    MUST(ledgermq_send_to(producer, &message, &result.queue, &result, &error));
    snprintf(full, sizeof full, "tenant%%%s", topic);
    read_topic(landlord, full, 2, 5000, &inbox);
    CHECK(strcmp(inbox.messages[0]->topic, full) == 0);
    CHECK(strcmp(ledgermq_message_property(inbox.messages[0], "INSTANCE_ID"), "tenant") == 0);
    inbox_close(&inbox);
    read_topic(tenant, topic, 2, 5000, &inbox);
    CHECK(strcmp(inbox.messages[0]->topic, topic) == 0);
    inbox_close(&inbox);
    ledgermq_client_free(tenant);
    ledgermq_client_free(landlord);
}

static atomic_int befores, afters, good_afters;

static void count_before(void *context, const struct ledgermq_send_context *send)
{
    (void)context;
    befores += send->result == NULL && send->error == NULL;
}

static void count_after(void *context, const struct ledgermq_send_context *send)
{
    (void)context;
    afters++;
    good_afters += send->result != NULL;
}

static bool allow_even_queues(void *context, const struct ledgermq_send_context *send, char *reason, size_t size)
{
    (void)context;
    snprintf(reason, size, "odd queue");
    return send->queue_id % 2 == 0;
}

static void hooks(void)
{
    static const struct ledgermq_send_hook hook = {count_before, count_after, NULL};
    static const struct ledgermq_check_forbidden_hook guard = {allow_even_queues, NULL};
    char topic[64];
    struct ledgermq_client *client = new_client(NULL);
    struct ledgermq_producer_options options;
    struct ledgermq_send_result result;
    struct ledgermq_error error;
    ledgermq_producer_options_init(&options);
    options.send_hooks = &hook;
    options.send_hook_count = 1;
    options.check_forbidden_hooks = &guard;
    options.check_forbidden_hook_count = 1;
    struct ledgermq_producer *producer = new_producer(client, &options);
    struct ledgermq_message message = message_of(fresh_topic("hooks", topic), "x");
    for (int i = 0; i < 4; i++) {
        MUST(ledgermq_send(producer, &message, &result, &error));
        CHECK(result.queue.queue_id % 2 == 0);
    }
    CHECK(befores == 4 && afters == 4 && good_afters == 4);
    result.queue.queue_id = 1;
    CHECK(ledgermq_send_to(producer, &message, &result.queue, &result, &error) == LEDGERMQ_FORBIDDEN);
    CHECK(strstr(error.message, "odd queue") != NULL && befores == 4);
    ledgermq_client_free(client);
}

static void refusals(void)
{
    char topic[64];
    struct ledgermq_client *client = new_client(NULL);
    struct ledgermq_producer *producer = new_producer(client, NULL);
    struct ledgermq_send_result result;
    struct ledgermq_error error;
    struct ledgermq_message message = message_of(fresh_topic("refusals", topic), "x");
    MUST(ledgermq_send(producer, &message, &result, &error));
    result.queue.queue_id = 99;
    CHECK(ledgermq_send_to(producer, &message, &result.queue, NULL, &error) == LEDGERMQ_REFUSED);
    CHECK(error.response_code == 1 || error.response_code == 29); /* of RocketMQ 5 */
    snprintf(result.queue.broker_name, sizeof result.queue.broker_name, "broker-nobody");
    struct ledgermq_send_options options = {.queue = &result.queue, .timeout_ms = 300};
    CHECK(ledgermq_send_messages(producer, &message, 1, &options, NULL, &error) == LEDGERMQ_NO_ROUTE);
    ledgermq_client_free(client);
}

static void delayed(void)
{
    char topic[64];
    struct ledgermq_client *client = new_client(NULL);
    struct ledgermq_producer *producer = new_producer(client, NULL);
    struct ledgermq_error error;
    struct inbox inbox;
    struct ledgermq_message message = message_of(fresh_topic("delayed", topic), "later");
    message.delay_level = 1;
    int64_t begin = now_ms();
    MUST(ledgermq_send(producer, &message, NULL, &error));
    read_topic(client, topic, 1, 10000, &inbox);
    CHECK(now_ms() - begin >= 990);
    inbox_close(&inbox);
    ledgermq_client_free(client);
}

const struct scenario producing_scenarios[] = {
    {"one-message", one_message},
    {"selected-queues", selected_queues},
    {"batch", batch},
    {"compression", compression},
    {"namespaces", namespaces},
    {"hooks", hooks},
    {"refusals", refusals},
    {"delayed", delayed},
    {NULL, NULL},
};
