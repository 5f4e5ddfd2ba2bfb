/* What a broker asks of a producer: how a transaction ended; and what producers ask of consumers. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "suite.h"

/* --- transactions ---- */

struct decision {
    int state;
    int executed;
};

static atomic_int checks;

static int execute(void *context, const struct ledgermq_message *message, const char *transaction_id, void *argument)
{
    struct decision *decision = argument;
    (void)context;
    (void)message;
    decision->executed += transaction_id[0] != '\0';
    return decision->state;
}

static int check_back(void *context, const struct ledgermq_stored_message *message)
{
    const char *expected = context;
    const char *half = ledgermq_message_property(message, "TRAN_MSG");
    if (strcmp(message->topic, expected) != 0 || half == NULL || message->body_size < 9 ||
        memcmp(message->body, "undecided", 9) != 0)
        return LEDGERMQ_TRANSACTION_UNKNOWN;
    /* The first answer is "not yet", so that the broker asks twice. */
    return ++checks == 1 ? LEDGERMQ_TRANSACTION_UNKNOWN : LEDGERMQ_TRANSACTION_COMMIT;
}

static void transactions(void)
{
    char topic[64];
    struct ledgermq_client *client = new_client(NULL);
    struct ledgermq_producer_options options;
    struct ledgermq_producer *producer;
    struct ledgermq_error error;
    struct inbox inbox;
    static const char *const bodies[] = {"undecided", "committed", "rolled back"};
    fresh_topic("transactions", topic);
    struct ledgermq_transaction_listener listener = {execute, check_back, topic};
    char group[80];
    snprintf(group, sizeof group, "%s-group", topic);
    ledgermq_producer_options_init(&options);
    options.group = group;
    options.transaction_listener = &listener;
    checks = 0;
    producer = new_producer(client, &options);
    for (int state = LEDGERMQ_TRANSACTION_UNKNOWN; state <= LEDGERMQ_TRANSACTION_ROLLBACK; state++) {
        struct decision decision = {state, 0};
        struct ledgermq_transaction_result result;
        struct ledgermq_message message = {
            .topic = topic, .body = bodies[state], .body_size = strlen(bodies[state]), .keys = bodies[state]};
        MUST(ledgermq_send_transaction(producer, &message, &decision, &result, &error));
        CHECK(decision.executed == 1 && result.state == state && result.send.status == LEDGERMQ_SEND_OK);
        CHECK(result.settled == (state != LEDGERMQ_TRANSACTION_UNKNOWN));
    }
    read_topic(client, topic, 1, 5000, &inbox);
    CHECK(inbox_find(&inbox, "committed") != NULL && inbox_find(&inbox, "rolled back") == NULL);
    inbox_close(&inbox);
    read_topic(client, topic, 2, 60000, &inbox);
    CHECK(inbox.count == 2 && inbox_find(&inbox, "undecided") != NULL && checks == 2);
    CHECK((inbox_find(&inbox, "undecided")->sys_flag & 0xC) == 8);
    inbox_close(&inbox);
    ledgermq_client_free(client);
}

/* --- requests and replies ---- */

struct replier {
    struct ledgermq_client *client;
    struct ledgermq_producer *producer;
    char topic[64];
    pthread_t thread;
    atomic_bool stop;
    atomic_int replies, failures;
    char failure[512];
    struct ledgermq_queue *queues;
    int64_t offsets[64];
    size_t queue_count;
};

static void reply_to(struct replier *replier, const struct ledgermq_stored_message *request)
{
    char body[256];
    struct ledgermq_error error;
    int size = snprintf(body, sizeof body, "re: %.*s", (int)(request->body_size < 200 ? request->body_size : 200),
                        (const char *)request->body);
    struct ledgermq_message reply = {.body = body, .body_size = (size_t)size, .tags = "reply-tag"};
    if (ledgermq_reply(replier->producer, request, &reply, NULL, &error) == LEDGERMQ_OK) {
        replier->replies++;
    } else {
        snprintf(replier->failure, sizeof replier->failure, "%s", error.message);
        replier->failures++;
    }
}

static void *replier_main(void *argument)
{
    struct replier *replier = argument;
    struct ledgermq_pull_consumer *consumer;
    struct ledgermq_error error;
    if (ledgermq_pull_consumer_new(replier->client, "libledgermq_suite_replier", &consumer, &error) != LEDGERMQ_OK)
        abort();
    while (!replier->stop) {
        for (size_t i = 0; i < replier->queue_count; i++) {
            struct ledgermq_pull_result *result;
            if (ledgermq_pull(consumer, &replier->queues[i], NULL, replier->offsets[i], 32, 0, &result, &error) !=
                LEDGERMQ_OK)
                continue;
            for (size_t k = 0; k < result->count; k++) {
                const struct ledgermq_stored_message *message = &result->messages[k];
                bool silent = message->tags != NULL && strcmp(message->tags, "no-reply") == 0;
                if (ledgermq_message_property(message, "CORRELATION_ID") != NULL && !silent)
                    reply_to(replier, message);
            }
            replier->offsets[i] = result->next_offset;
            ledgermq_pull_result_free(result);
        }
        usleep(2000);
    }
    ledgermq_pull_consumer_free(consumer);
    return NULL;
}

/* Replies to what is asked from now on. The topic must be there. */
static void replier_start(struct replier *replier, const char *topic)
{
    struct ledgermq_error error;
    struct ledgermq_pull_consumer *consumer;
    replier->client = new_client(NULL);
    snprintf(replier->topic, sizeof replier->topic, "%s", topic);
    replier->producer = new_producer(replier->client, NULL);
    MUST(ledgermq_pull_consumer_new(replier->client, "libledgermq_suite_replier", &consumer, &error));
    MUST(ledgermq_subscribe_queues(consumer, topic, &replier->queues, &replier->queue_count, &error));
    CHECK(replier->queue_count <= 64);
    for (size_t i = 0; i < replier->queue_count; i++)
        MUST(ledgermq_max_offset(consumer, &replier->queues[i], &replier->offsets[i], &error));
    ledgermq_pull_consumer_free(consumer);
    CHECK(pthread_create(&replier->thread, NULL, replier_main, replier) == 0);
}

static void replier_stop(struct replier *replier)
{
    replier->stop = true;
    pthread_join(replier->thread, NULL);
    ledgermq_queues_free(replier->queues);
    ledgermq_client_free(replier->client);
}

static atomic_int async_replies, async_errors;

static void reply_done(void *context, const struct ledgermq_stored_message *reply,
                       const struct ledgermq_error *error)
{
    (void)context;
    if (error == NULL && reply->body_size == 9 && memcmp(reply->body, "re: async", 9) == 0)
        async_replies++;
    else
        async_errors++;
}

static void requests(void)
{
    static struct replier replier;
    char topic[64];
    struct ledgermq_client *client = new_client(NULL);
    struct ledgermq_producer *producer = new_producer(client, NULL);
    struct ledgermq_pull_result *reply;
    struct ledgermq_error error;
    struct ledgermq_message message = {.topic = fresh_topic("requests", topic), .body = "ask", .body_size = 3};
    struct inbox inbox;
    MUST(ledgermq_send(producer, &message, NULL, &error)); /* makes the topic */
    read_topic(client, topic, 1, 5000, &inbox);            /* and it is routed */
    inbox_close(&inbox);
    replier_start(&replier, topic);
    for (int i = 0; i < 3; i++) {
        MUST(ledgermq_request(producer, &message, stretched_ms(5000), &reply, &error));
        CHECK(reply->count == 1 && reply->messages[0].body_size == 7);
        CHECK(memcmp(reply->messages[0].body, "re: ask", 7) == 0);
        CHECK(strcmp(reply->messages[0].tags, "reply-tag") == 0);
        ledgermq_pull_result_free(reply);
    }
    message.body = "async";
    message.body_size = 5;
    for (int i = 0; i < 20; i++)
        MUST(ledgermq_request_async(producer, &message, stretched_ms(5000), reply_done, NULL, &error));
    for (int64_t end = now_ms() + stretched_ms(6000); now_ms() < end && async_replies + async_errors < 20;)
        usleep(5000);
    CHECK(async_replies == 20 && async_errors == 0);
    message.tags = "no-reply";
    int64_t begin = now_ms();
    CHECK(ledgermq_request(producer, &message, 400, &reply, &error) == LEDGERMQ_TIMEOUT);
    CHECK(now_ms() - begin >= 395 && strstr(error.message, "no reply within 400 ms") != NULL);
    replier_stop(&replier);
    if (replier.failures != 0)
        FAIL("a reply failed: %s", replier.failure);
    CHECK(replier.replies == 23);
    ledgermq_client_free(client);
}

const struct scenario asking_scenarios[] = {
    {"transactions", transactions},
    {"requests", requests},
    {NULL, NULL},
};

int exchange_reply(const char *topic, int count)
{
    static struct replier replier;
    replier_start(&replier, topic);
    printf("ready\n");
    fflush(stdout);
    for (int64_t end = now_ms() + stretched_ms(30000);
         now_ms() < end && replier.replies < count && replier.failures == 0;)
        usleep(5000);
    replier_stop(&replier);
    if (replier.failures != 0)
        fprintf(stderr, "%s\n", replier.failure);
    return replier.replies == count ? 0 : 1;
}

int exchange_ask(const char *topic, const char *text)
{
    struct ledgermq_client *client = new_client(NULL);
    struct ledgermq_producer *producer = new_producer(client, NULL);
    struct ledgermq_pull_result *reply;
    struct ledgermq_error error;
    struct ledgermq_message message = {.topic = topic, .body = text, .body_size = strlen(text)};
    MUST(ledgermq_request(producer, &message, stretched_ms(5000), &reply, &error));
    printf("%.*s\n", (int)reply->messages[0].body_size, (const char *)reply->messages[0].body);
    ledgermq_pull_result_free(reply);
    ledgermq_client_free(client);
    return 0;
}
