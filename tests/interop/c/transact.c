/* Transactions without a pause while brokers come and go; then every one must have ended as its producer said. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "suite.h"

#define THREADS 4
#define PER_THREAD_MAX 20000

/* What was asked for, and what the answer was: the number of a transaction is its place here. */
enum outcome { NOT_SENT, UNSURE, STORED_ONCE, STORED_BY_RETRY };
static _Atomic(char) outcomes[THREADS * PER_THREAD_MAX];
static unsigned char seen[THREADS * PER_THREAD_MAX];
static atomic_int checks, settled_later;

/* Of three, one commits, one is rolled back, and one is left to the broker's question, which commits it. */
static int state_of(int number, bool asked)
{
    if (number % 3 == 1)
        return LEDGERMQ_TRANSACTION_ROLLBACK;
    return number % 3 == 0 || asked ? LEDGERMQ_TRANSACTION_COMMIT : LEDGERMQ_TRANSACTION_UNKNOWN;
}

static int execute(void *context, const struct ledgermq_message *message, const char *transaction_id, void *argument)
{
    (void)context;
    (void)message;
    (void)transaction_id;
    return state_of(*(int *)argument, false);
}

static int check_back(void *context, const struct ledgermq_stored_message *message)
{
    (void)context;
    checks++;
    return state_of(atoi(ledgermq_message_property(message, "number")), true);
}

struct worker {
    struct ledgermq_producer *producer;
    const char *topic;
    int first;
    int64_t end_ms;
    pthread_t thread;
    int sent, failed;
};

static void *worker_main(void *argument)
{
    struct worker *worker = argument;
    for (int i = 0; i < PER_THREAD_MAX && now_ms() < worker->end_ms; i++) {
        int number = worker->first + i;
        char text[16];
        struct ledgermq_property property = {"number", text};
        struct ledgermq_message message = {
            .topic = worker->topic, .body = text, .properties = &property, .property_count = 1};
        struct ledgermq_transaction_result result;
        message.body_size = (size_t)snprintf(text, sizeof text, "%d", number);
        outcomes[number] = UNSURE; /* a half message without an answer may be there, and is then settled by a check */
        if (ledgermq_send_transaction(worker->producer, &message, &number, &result, NULL) != LEDGERMQ_OK) {
            worker->failed++;
            continue;
        }
        outcomes[number] = result.send.tries == 1 ? STORED_ONCE : STORED_BY_RETRY;
        worker->sent++;
        settled_later += !result.settled && state_of(number, false) != LEDGERMQ_TRANSACTION_UNKNOWN;
        usleep(1000);
    }
    return NULL;
}

/* Counts what is in the topic. Fails at once on what must never be there; returns how much is still missing. */
static int missing(struct ledgermq_client *client, const char *topic)
{
    struct inbox inbox;
    int count = 0;
    memset(seen, 0, sizeof seen);
    read_topic(client, topic, 0, 1000, &inbox);
    for (size_t i = 0; i < inbox.count; i++) {
        const char *text = ledgermq_message_property(inbox.messages[i], "number");
        int number = text == NULL ? -1 : atoi(text);
        CHECK(number >= 0 && number < THREADS * PER_THREAD_MAX && outcomes[number] != NOT_SENT);
        if (state_of(number, true) != LEDGERMQ_TRANSACTION_COMMIT)
            FAIL("transaction %d was rolled back, and is there", number);
        /* A half message that was sent again for want of an answer may be there twice, and so may what it becomes. */
        if (++seen[number] > 1 && outcomes[number] == STORED_ONCE)
            FAIL("transaction %d is there twice", number);
    }
    for (int number = 0; number < THREADS * PER_THREAD_MAX; number++)
        count += outcomes[number] >= STORED_ONCE && state_of(number, true) == LEDGERMQ_TRANSACTION_COMMIT && seen[number] == 0;
    inbox_close(&inbox);
    return count;
}

int steady_transactions(const char *topic, int seconds)
{
    static struct worker workers[THREADS];
    struct ledgermq_client *client = new_client(NULL);
    struct ledgermq_transaction_listener listener = {execute, check_back, NULL};
    struct ledgermq_producer_options options;
    struct ledgermq_producer *producer;
    int sent = 0, failed = 0, left = 0;
    ledgermq_producer_options_init(&options);
    options.group = "libledgermq_suite_transact";
    options.transaction_listener = &listener;
    producer = new_producer(client, &options);
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){
            .producer = producer, .topic = topic, .first = i * PER_THREAD_MAX, .end_ms = now_ms() + seconds * 1000};
        CHECK(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        sent += workers[i].sent;
        failed += workers[i].failed;
    }
    for (int64_t end = now_ms() + stretched_ms(40000); (left = missing(client, topic)) > 0 && now_ms() < end;)
        usleep(200000);
    printf("sent %d, failed %d, decided late %d, asked by the broker %d, missing %d\n", sent, failed, settled_later,
           checks, left);
    ledgermq_client_free(client);
    return left == 0 && failed == 0 && sent > 0 ? 0 : 1;
}
