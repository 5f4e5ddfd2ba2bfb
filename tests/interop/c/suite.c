/* libledgermq against a running cluster, LedgerMQ's or RocketMQ's: the same program, the same demands.
 *
 *     NAMESRV_ADDR=host:port libledgermq_suite [SCENARIO...]
 *
 * prints a line for each scenario, then `N passed, N failed, N skipped`.
 *
 *     libledgermq_suite send TOPIC | read TOPIC COUNT | reply TOPIC COUNT | ask TOPIC TEXT
 *
 * is the other end of another client.
 *
 *     libledgermq_suite steady TOPIC
 *
 * sends from several threads until its input ends, and fails when one send fails.
 *
 *     libledgermq_suite transact TOPIC SECONDS
 *
 * does the same with transactions and fails when one does not end as it was decided.
 *
 * The cluster needs autoCreateTopicEnable=true, transactionTimeOut=1000 and a transactionCheckInterval of some seconds.
 * SLOWNESS: factor on time limits.
 */
#include "suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static jmp_buf end_of_scenario;
static char failure[1024];

void fail_at(const char *file, int line, const char *format, ...)
{
    va_list arguments;
    const char *slash = strrchr(file, '/');
    int size = snprintf(failure, sizeof failure, "%s:%d: ", slash == NULL ? file : slash + 1, line);
    va_start(arguments, format);
    vsnprintf(failure + size, sizeof failure - (size_t)size, format, arguments);
    va_end(arguments);
    longjmp(end_of_scenario, 1);
}

int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int stretched_ms(int ms)
{
    const char *slowness = getenv("SLOWNESS");
    int factor = slowness == NULL ? 1 : atoi(slowness);
    return ms * (factor < 1 ? 1 : factor);
}

const char *fresh_topic(const char *scenario, char out[64])
{
    static int64_t run;
    if (run == 0)
        run = (int64_t)time(NULL) * 1000 + getpid() % 1000;
    snprintf(out, 64, "C%llx-%s", (unsigned long long)run, scenario);
    return out;
}

struct ledgermq_client *new_client(const char *name_space)
{
    struct ledgermq_client *client;
    struct ledgermq_client_options options;
    struct ledgermq_error error;
    ledgermq_client_options_init(&options);
    options.name_space = name_space;
    options.route_poll_ms = 1000;
    MUST(ledgermq_client_new(&options, &client, &error));
    return client;
}

struct ledgermq_producer *new_producer(struct ledgermq_client *client,
                                       const struct ledgermq_producer_options *options)
{
    struct ledgermq_producer *producer;
    struct ledgermq_producer_options stretched;
    struct ledgermq_error error;
    if (options == NULL)
        ledgermq_producer_options_init(&stretched);
    else
        stretched = *options;
    stretched.send_timeout_ms = stretched_ms(stretched.send_timeout_ms);
    MUST(ledgermq_producer_new(client, &stretched, &producer, &error));
    return producer;
}

static void keep(struct inbox *inbox, struct ledgermq_pull_result *result)
{
    inbox->results = realloc(inbox->results, (inbox->result_count + 1) * sizeof *inbox->results);
    inbox->messages = realloc(inbox->messages, (inbox->count + result->count + 1) * sizeof *inbox->messages);
    if (inbox->results == NULL || inbox->messages == NULL)
        abort();
    inbox->results[inbox->result_count++] = result;
    for (size_t i = 0; i < result->count; i++)
        inbox->messages[inbox->count++] = &result->messages[i];
}

void inbox_close(struct inbox *inbox)
{
    for (size_t i = 0; i < inbox->result_count; i++)
        ledgermq_pull_result_free(inbox->results[i]);
    free(inbox->results);
    free(inbox->messages);
    *inbox = (struct inbox){0};
}

static void read_once(struct ledgermq_pull_consumer *consumer, const char *topic, struct inbox *inbox)
{
    struct ledgermq_queue *queues;
    struct ledgermq_error error;
    size_t count;
    int rv = ledgermq_subscribe_queues(consumer, topic, &queues, &count, &error);
    /* A broker may tell the name server of a topic that a send made only after it has answered the send, as RocketMQ's does. */
    if (rv == LEDGERMQ_NO_ROUTE && error.response_code == 17)
        return;
    MUST(rv);
    for (size_t i = 0; i < count; i++) {
        for (int64_t offset = 0;;) {
            struct ledgermq_pull_result *result;
            MUST(ledgermq_pull(consumer, &queues[i], NULL, offset, 32, 0, &result, &error));
            offset = result->next_offset;
            bool found = result->status == LEDGERMQ_FOUND;
            keep(inbox, result);
            if (!found)
                break;
        }
    }
    ledgermq_queues_free(queues);
}

void read_topic(struct ledgermq_client *client, const char *topic, size_t wanted, int timeout_ms,
                struct inbox *inbox)
{
    struct ledgermq_pull_consumer *consumer;
    struct ledgermq_error error;
    *inbox = (struct inbox){0};
    MUST(ledgermq_pull_consumer_new(client, "libledgermq_suite_reader", &consumer, &error));
    for (int64_t end = now_ms() + stretched_ms(timeout_ms);;) {
        read_once(consumer, topic, inbox);
        if (inbox->count >= wanted)
            break;
        if (now_ms() > end)
            FAIL("topic %s holds %zu messages instead of %zu", topic, inbox->count, wanted);
        inbox_close(inbox);
        usleep(20000);
    }
    ledgermq_pull_consumer_free(consumer);
}

const struct ledgermq_stored_message *inbox_find(const struct inbox *inbox, const char *body)
{
    for (size_t i = 0; i < inbox->count; i++)
        if (inbox->messages[i]->body_size == strlen(body) &&
            memcmp(inbox->messages[i]->body, body, strlen(body)) == 0)
            return inbox->messages[i];
    return NULL;
}

static int passed, failed;

static bool run_one(void (*run)(void))
{
    if (setjmp(end_of_scenario) != 0)
        return false;
    run();
    return true;
}

static void run_list(const struct scenario *scenario, int argc, char **argv)
{
    for (; scenario->name != NULL; scenario++) {
        bool wanted = argc < 2;
        for (int i = 1; i < argc; i++)
            wanted = wanted || strcmp(argv[i], scenario->name) == 0;
        if (!wanted)
            continue;
        int64_t begin = now_ms();
        if (run_one(scenario->run)) {
            passed++;
            printf("ok %s (%.1f s)\n", scenario->name, (double)(now_ms() - begin) / 1000);
        } else {
            failed++;
            printf("not ok %s: %s\n", scenario->name, failure);
        }
        fflush(stdout);
    }
}

static int other_end(int argc, char **argv)
{
    if (strcmp(argv[1], "send") == 0)
        return exchange_send(argv[2]);
    if (strcmp(argv[1], "read") == 0 && argc > 3)
        return exchange_read(argv[2], strtoul(argv[3], NULL, 10));
    if (strcmp(argv[1], "reply") == 0 && argc > 3)
        return exchange_reply(argv[2], atoi(argv[3]));
    if (strcmp(argv[1], "ask") == 0 && argc > 3)
        return exchange_ask(argv[2], argv[3]);
    if (strcmp(argv[1], "steady") == 0)
        return steady_sends(argv[2]);
    if (strcmp(argv[1], "transact") == 0 && argc > 3)
        return steady_transactions(argv[2], atoi(argv[3]));
    return -1;
}

int main(int argc, char **argv)
{
    if (argc > 2) {
        if (setjmp(end_of_scenario) != 0) {
            fprintf(stderr, "%s\n", failure);
            return 1;
        }
        int status = other_end(argc, argv);
        if (status >= 0)
            return status;
    }
    run_list(producing_scenarios, argc, argv);
    run_list(asking_scenarios, argc, argv);
    printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    return failed == 0 && passed > 0 ? 0 : 1;
}
