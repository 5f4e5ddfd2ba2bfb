/* One member of a consumer group, for tests that start, end and kill several of them: prints what it gets.
 *
 *     consumer_member [--option value]...
 *
 * Name servers come from NAMESRV_ADDR. Ends cleanly when its input ends or says something. Lines:
 *
 *     Q <ms> <count> <broker/queue>...                                  its queues, whenever they change
 *     M <ms> <topic> <broker> <queue> <offset> <reconsumed> <thread> <body>   a message, before it is consumed
 *     D <ms> <broker> <queue> <offset> <status>                         after it was
 *     E <text>                                                          what went wrong
 *     C <ms>                                                            closed
 */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/ledgermq.h"

static struct {
    const char *group, *topic, *expression, *allocate, *from, *directory, *instance, *mode, *name_space;
    int threads, batch, later, level, sleep_ms, max, suspend_ms, timeout_ms, slow_once_ms, commit;
    bool orderly, broadcast, retry_all;
} options = {.group = "g", .topic = "T", .expression = "*", .allocate = "average", .from = "first", .mode = "push",
             .threads = 4, .batch = 1, .max = -1, .suspend_ms = 1000, .timeout_ms = 900000, .commit = 1};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static long long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static void print_message(const struct ledgermq_stored_message *message)
{
    printf("M %lld %s %s %d %lld %d %lx %.*s\n", now_ms(), message->topic, message->broker_name, message->queue_id,
           (long long)message->queue_offset, message->reconsume_times, (unsigned long)pthread_self(),
           (int)message->body_size, (const char *)message->body);
}

static int on_messages(void *context, const struct ledgermq_stored_message *messages, size_t count,
                       struct ledgermq_consume_context *how)
{
    static int slow_left = 1;
    (void)context;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count; i++)
        print_message(&messages[i]);
    fflush(stdout);
    int sleep_ms = options.sleep_ms;
    if (options.slow_once_ms > 0 && slow_left > 0) {
        slow_left = 0;
        sleep_ms = options.slow_once_ms;
    }
    pthread_mutex_unlock(&lock);
    if (sleep_ms > 0)
        usleep((useconds_t)sleep_ms * 1000);
    int status = LEDGERMQ_CONSUME_SUCCESS;
    for (size_t i = 0; i < count; i++)
        if (messages[i].reconsume_times < options.later &&
            (options.retry_all || memchr(messages[i].body, '!', messages[i].body_size) != NULL))
            status = LEDGERMQ_CONSUME_LATER;
    how->delay_level = options.level;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count; i++)
        printf("D %lld %s %d %lld %d\n", now_ms(), messages[i].broker_name, messages[i].queue_id,
               (long long)messages[i].queue_offset, status);
    fflush(stdout);
    pthread_mutex_unlock(&lock);
    return status;
}

static void print_queues(const struct ledgermq_queue *queues, size_t count)
{
    static char last[65536];
    char text[65536];
    size_t at = 0;
    for (size_t i = 0; i < count && at < sizeof text - 600; i++)
        if (strncmp(queues[i].topic, "%RETRY%", 7) != 0)
            at += (size_t)snprintf(text + at, sizeof text - at, " %s/%d", queues[i].broker_name, queues[i].queue_id);
    text[at] = '\0';
    if (strcmp(text, last) == 0)
        return;
    memcpy(last, text, at + 1);
    pthread_mutex_lock(&lock);
    printf("Q %lld%s\n", now_ms(), text);
    fflush(stdout);
    pthread_mutex_unlock(&lock);
}

static void die(const char *what, const struct ledgermq_error *error)
{
    printf("E %s: %s\n", what, error->message);
    fflush(stdout);
    exit(1);
}

static bool input_ended(int wait_ms)
{
    struct pollfd input = {STDIN_FILENO, POLLIN, 0};
    return poll(&input, 1, wait_ms) > 0;
}

static int from_of(const char *text)
{
    return strcmp(text, "last") == 0    ? LEDGERMQ_FROM_LAST_OFFSET
           : strcmp(text, "first") == 0 ? LEDGERMQ_FROM_FIRST_OFFSET
                                        : LEDGERMQ_FROM_TIMESTAMP;
}

static int allocate_of(const char *text)
{
    return strcmp(text, "circle") == 0 ? LEDGERMQ_ALLOCATE_AVERAGELY_BY_CIRCLE
           : strcmp(text, "hash") == 0 ? LEDGERMQ_ALLOCATE_CONSISTENT_HASH
                                       : LEDGERMQ_ALLOCATE_AVERAGELY;
}

static void push(struct ledgermq_client *client)
{
    struct ledgermq_push_consumer_options push;
    struct ledgermq_push_consumer *consumer;
    struct ledgermq_error error = {0};
    ledgermq_push_consumer_options_init(&push);
    push.group = options.group;
    push.consume = on_messages;
    push.orderly = options.orderly;
    push.message_model = options.broadcast ? LEDGERMQ_BROADCASTING : LEDGERMQ_CLUSTERING;
    push.consume_from = from_of(options.from);
    push.consume_timestamp_ms = push.consume_from == LEDGERMQ_FROM_TIMESTAMP ? atoll(options.from) : 0;
    push.allocate = allocate_of(options.allocate);
    push.consume_threads = options.threads;
    push.consume_batch = options.batch;
    push.max_reconsume_times = options.max;
    push.suspend_ms = options.suspend_ms;
    push.consume_timeout_ms = options.timeout_ms;
    push.offset_directory = options.directory;
    if (ledgermq_push_consumer_new(client, &push, &consumer, &error) != LEDGERMQ_OK)
        die("new", &error);
    if (ledgermq_push_consumer_subscribe(consumer, options.topic, options.expression, &error) != LEDGERMQ_OK)
        die("subscribe", &error);
    if (ledgermq_push_consumer_start(consumer, &error) != LEDGERMQ_OK)
        die("start", &error);
    while (!input_ended(20)) {
        struct ledgermq_queue *queues;
        size_t count;
        if (ledgermq_push_consumer_queues(consumer, &queues, &count, &error) == LEDGERMQ_OK) {
            print_queues(queues, count);
            ledgermq_queues_free(queues);
        }
    }
    ledgermq_push_consumer_free(consumer);
}

static void lite(struct ledgermq_client *client)
{
    struct ledgermq_lite_pull_consumer_options lite;
    struct ledgermq_lite_pull_consumer *consumer;
    struct ledgermq_error error = {0};
    ledgermq_lite_pull_consumer_options_init(&lite);
    lite.group = options.group;
    lite.message_model = options.broadcast ? LEDGERMQ_BROADCASTING : LEDGERMQ_CLUSTERING;
    lite.consume_from = from_of(options.from);
    lite.allocate = allocate_of(options.allocate);
    lite.auto_commit = options.commit;
    lite.offset_directory = options.directory;
    if (ledgermq_lite_pull_consumer_new(client, &lite, &consumer, &error) != LEDGERMQ_OK)
        die("new", &error);
    if (ledgermq_lite_pull_subscribe(consumer, options.topic, options.expression, &error) != LEDGERMQ_OK)
        die("subscribe", &error);
    while (!input_ended(0)) {
        struct ledgermq_pull_result *result;
        struct ledgermq_queue *queues;
        size_t count;
        if (ledgermq_lite_pull_poll(consumer, 20, &result, &error) == LEDGERMQ_OK) {
            for (size_t i = 0; i < result->count; i++)
                print_message(&result->messages[i]);
            fflush(stdout);
            ledgermq_pull_result_free(result);
        }
        if (ledgermq_lite_pull_assignment(consumer, &queues, &count, &error) == LEDGERMQ_OK) {
            print_queues(queues, count);
            ledgermq_queues_free(queues);
        }
    }
    ledgermq_lite_pull_consumer_free(consumer);
}

int main(int argc, char **argv)
{
    struct {
        const char *name;
        const char **text;
        int *number;
        bool *flag;
    } names[] = {
        {"group", &options.group, NULL, NULL},
        {"topic", &options.topic, NULL, NULL},
        {"expression", &options.expression, NULL, NULL},
        {"allocate", &options.allocate, NULL, NULL},
        {"from", &options.from, NULL, NULL},
        {"directory", &options.directory, NULL, NULL},
        {"instance", &options.instance, NULL, NULL},
        {"mode", &options.mode, NULL, NULL},
        {"namespace", &options.name_space, NULL, NULL},
        {"threads", NULL, &options.threads, NULL},
        {"batch", NULL, &options.batch, NULL},
        {"later", NULL, &options.later, NULL},
        {"level", NULL, &options.level, NULL},
        {"sleep", NULL, &options.sleep_ms, NULL},
        {"max", NULL, &options.max, NULL},
        {"suspend", NULL, &options.suspend_ms, NULL},
        {"timeout", NULL, &options.timeout_ms, NULL},
        {"slow-once", NULL, &options.slow_once_ms, NULL},
        {"commit", NULL, &options.commit, NULL},
        {"orderly", NULL, NULL, &options.orderly},
        {"broadcast", NULL, NULL, &options.broadcast},
        {"retry-all", NULL, NULL, &options.retry_all},
    };
    struct ledgermq_client_options client_options;
    struct ledgermq_client *client;
    struct ledgermq_error error = {0};
    for (int i = 1; i < argc; i++) {
        size_t k = 0, count = sizeof names / sizeof names[0];
        while (k < count && (strncmp(argv[i], "--", 2) != 0 || strcmp(argv[i] + 2, names[k].name) != 0))
            k++;
        if (k == count || (names[k].flag == NULL && i + 1 == argc)) {
            printf("E option %s\n", argv[i]);
            return 2;
        }
        if (names[k].flag != NULL)
            *names[k].flag = true;
        else if (names[k].text != NULL)
            *names[k].text = argv[++i];
        else
            *names[k].number = atoi(argv[++i]);
    }
    ledgermq_client_options_init(&client_options);
    client_options.instance_name = options.instance;
    client_options.name_space = options.name_space;
    if (ledgermq_client_new(&client_options, &client, &error) != LEDGERMQ_OK)
        die("client", &error);
    if (strcmp(options.mode, "lite") == 0)
        lite(client);
    else
        push(client);
    ledgermq_client_free(client);
    printf("C %lld\n", now_ms());
    return 0;
}
