/* Messages that another client reads, or has sent; and a producer that must not notice when brokers die.
 *
 * A message's key is its name, and its body the name and a bar as often as they fit into the size that
 * property `size` says. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "suite.h"

static void fill(char *body, size_t size, const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < size; i++)
        body[i] = i % (length + 1) == length ? '|' : name[i % (length + 1)];
}

static int execute(void *context, const struct ledgermq_message *message, const char *transaction_id, void *argument)
{
    (void)context;
    (void)message;
    (void)transaction_id;
    return *(int *)argument;
}

static int check_back(void *context, const struct ledgermq_stored_message *message)
{
    (void)context;
    (void)message;
    return LEDGERMQ_TRANSACTION_UNKNOWN;
}

struct letter {
    char body[30000], size_text[16];
    struct ledgermq_property size;
    struct ledgermq_message message;
};

static struct ledgermq_message *write_letter(struct letter *letter, const char *topic, const char *name, size_t size)
{
    fill(letter->body, size, name);
    snprintf(letter->size_text, sizeof letter->size_text, "%zu", size);
    letter->size = (struct ledgermq_property){"size", letter->size_text};
    letter->message = (struct ledgermq_message){.topic = topic,
                                                .body = letter->body,
                                                .body_size = size,
                                                .keys = name,
                                                .tags = "letter",
                                                .properties = &letter->size,
                                                .property_count = 1};
    return &letter->message;
}

int exchange_send(const char *topic)
{
    static const char *const names[] = {"zlib", "lz4", "zstd"};
    static const char *const members[] = {"batch-0", "batch-1", "batch-2"};
    static struct letter letters[3];
    struct ledgermq_client *client = new_client(NULL);
    struct ledgermq_transaction_listener listener = {execute, check_back, NULL};
    struct ledgermq_producer_options options;
    struct ledgermq_producer *producer;
    struct ledgermq_error error;
    struct ledgermq_message batch[3];
    ledgermq_producer_options_init(&options);
    options.transaction_listener = &listener;
    for (int type = LEDGERMQ_ZLIB; type <= LEDGERMQ_ZSTD; type++) {
        options.compression = type;
        producer = new_producer(client, &options);
        MUST(ledgermq_send(producer, write_letter(&letters[0], topic, names[type], 30000), NULL, &error));
        ledgermq_producer_free(producer);
    }
    options.trace_enable = true;
    producer = new_producer(client, &options);
    MUST(ledgermq_send(producer, write_letter(&letters[0], topic, "plain", 100), NULL, &error));
    for (int i = 0; i < 3; i++)
        batch[i] = *write_letter(&letters[i], topic, members[i], 200);
    MUST(ledgermq_send_messages(producer, batch, 3, NULL, NULL, &error));
    for (int state = LEDGERMQ_TRANSACTION_COMMIT; state <= LEDGERMQ_TRANSACTION_ROLLBACK; state++) {
        struct ledgermq_transaction_result result;
        const char *name = state == LEDGERMQ_TRANSACTION_COMMIT ? "committed" : "rolled-back";
        MUST(ledgermq_send_transaction(producer, write_letter(&letters[0], topic, name, 5000), &state, &result,
                                       &error));
        CHECK(result.settled);
    }
    ledgermq_client_free(client);
    return 0;
}

static int compare_lines(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Prints names and compression bits, sorted, one a line. */
int exchange_read(const char *topic, size_t count)
{
    static char expected[65536];
    static char lines[64][80];
    struct ledgermq_client *client = new_client(NULL);
    struct inbox inbox;
    read_topic(client, topic, count, 20000, &inbox);
    CHECK(inbox.count <= 64);
    for (size_t i = 0; i < inbox.count; i++) {
        const struct ledgermq_stored_message *message = inbox.messages[i];
        const char *size = ledgermq_message_property(message, "size");
        CHECK(size != NULL && message->keys != NULL);
        if (message->body_size != strtoul(size, NULL, 10) || message->body_size > sizeof expected)
            FAIL("%s: %zu bytes instead of %s (sysFlag %x)", message->keys, message->body_size, size,
                 (unsigned)message->sys_flag);
        fill(expected, message->body_size, message->keys);
        if (memcmp(expected, message->body, message->body_size) != 0)
            FAIL("%s: another body (sysFlag %x)", message->keys, (unsigned)message->sys_flag);
        snprintf(lines[i], sizeof lines[i], "%s %x", message->keys, (unsigned)message->sys_flag & 0x701);
    }
    qsort(lines, inbox.count, sizeof lines[0], compare_lines);
    for (size_t i = 0; i < inbox.count; i++)
        printf("%s\n", lines[i]);
    inbox_close(&inbox);
    ledgermq_client_free(client);
    return 0;
}

/* --- steady ---- */

#define STEADY_THREADS 4
static atomic_bool steady_ends;

struct steady {
    struct ledgermq_producer *producer;
    const char *topic;
    pthread_t thread;
    unsigned sent, failed, on_b, retried;
    int64_t longest_ms;
    char failure[512];
};

static void *steady_main(void *argument)
{
    struct steady *steady = argument;
    struct ledgermq_message message = {.topic = steady->topic, .body = "steady", .body_size = 6};
    while (!steady_ends) {
        struct ledgermq_send_result result;
        struct ledgermq_error error;
        int64_t begin = now_ms();
        if (ledgermq_send(steady->producer, &message, &result, &error) != LEDGERMQ_OK) {
            steady->failed++;
            snprintf(steady->failure, sizeof steady->failure, "%s", error.message);
            continue;
        }
        int64_t took = now_ms() - begin;
        steady->longest_ms = took > steady->longest_ms ? took : steady->longest_ms;
        steady->sent++;
        steady->on_b += strcmp(result.queue.broker_name, "broker-b") == 0;
        steady->retried += result.tries > 1;
        usleep(500);
    }
    return NULL;
}

int steady_sends(const char *topic)
{
    static struct steady threads[STEADY_THREADS];
    struct ledgermq_client *client = new_client(NULL);
    struct ledgermq_producer *producer = new_producer(client, NULL);
    unsigned sent = 0, failed = 0, on_b = 0, retried = 0;
    int64_t longest = 0;
    for (int i = 0; i < STEADY_THREADS; i++) {
        threads[i] = (struct steady){.producer = producer, .topic = topic};
        CHECK(pthread_create(&threads[i].thread, NULL, steady_main, &threads[i]) == 0);
    }
    while (getchar() != EOF)
        ;
    steady_ends = true;
    for (int i = 0; i < STEADY_THREADS; i++) {
        pthread_join(threads[i].thread, NULL);
        sent += threads[i].sent;
        failed += threads[i].failed;
        on_b += threads[i].on_b;
        retried += threads[i].retried;
        longest = threads[i].longest_ms > longest ? threads[i].longest_ms : longest;
        if (threads[i].failed > 0)
            fprintf(stderr, "%s\n", threads[i].failure);
    }
    ledgermq_client_free(client);
    printf("sent %u, failed %u, on broker-b %u, retried %u, longest %lld ms\n", sent, failed, on_b, retried,
           (long long)longest);
    return failed == 0 && sent > 0 ? 0 : 1;
}
