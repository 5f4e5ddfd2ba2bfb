/* Sends at a rate through whatever happens to a cluster, each message once and never again; consumes and commits offsets meanwhile; in the end reads
 * everything back from every node.
 *
 *     chaos_load --rate 6000 --queues 8 --size 200 --max 10000000 [--connections N] [--window N]
 *
 * Name servers come from NAMESRV_ADDR; the topic "chaos" has that many queues already. The rate is a schedule: a send that is due while `window` are not answered,
 * of all connections, is left out, not made up for. Takes lines:
 *
 *     mark NAME       ends what is measured under the last name and begins NAME
 *     count           how many acknowledgements there are, what was sent, and offered: due, whether it was sent or left out; the time of sending
 *     stop            no more sends; consumers go on to the end
 *     verify LIST     of broker addresses, `host:port;host:port`: the check
 *     offsets ADDRESS   of the broker that leads: the part of the check that is about the group's offsets, after a verify
 *     spoil           what is remembered becomes wrong in SPOILED ways; the next check must find each
 *
 * and answers each with a line of JSON. Lines that begin with "problem" say what must not be. A message without an acknowledgement may be stored once
 * or not at all.
 */
#include "tests/chaos/load.h"

#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define CONNECTIONS_MAX 16
#define CONSUMERS 2
#define COMMIT_EVERY_NS 200000000LL
#define PROBLEMS_PRINTED 50

static struct load load;
static _Atomic int64_t unanswered, offered, sending_ns;
static int64_t began_ns;
static int connections = 1, window = 8192;
static struct ledgermq_producer *producers[CONNECTIONS_MAX]; /* each on a connection of its own; a queue's sends all on the same */
static pthread_mutex_t output = PTHREAD_MUTEX_INITIALIZER;

int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void sleep_ns(int64_t ns)
{
    nanosleep(&(struct timespec){ns / 1000000000, ns % 1000000000}, NULL);
}

void problem(struct load *of, const char *format, ...)
{
    va_list arguments;
    if (of->problems++ >= PROBLEMS_PRINTED)
        return;
    pthread_mutex_lock(&output);
    printf("problem: ");
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    fflush(stdout);
    pthread_mutex_unlock(&output);
}

void body_fill(char *body, int size, int64_t number)
{
    int head = snprintf(body, (size_t)size, "%016llx", (unsigned long long)number);
    for (int i = head; i < size; i++)
        body[i] = (char)('a' + (number * 7 + i) % 26);
}

/* ---- sending ---- */

static void sent(void *context, const struct ledgermq_send_result *result, const struct ledgermq_error *error)
{
    int64_t number = (int64_t)(intptr_t)context, now = now_ns();
    struct epoch *epoch = &load.epochs[load.epoch];
    unanswered--;
    if (error != NULL || result->status != LEDGERMQ_SEND_OK) {
        epoch->refused++;
        return;
    }
    if (result->queue.queue_id != number % load.queues)
        problem(&load, "message %lld for queue %lld is acknowledged in queue %d", (long long)number, (long long)(number % load.queues),
                result->queue.queue_id);
    int64_t place = result->queue_offset + 1;
    load.sent[number].acknowledged = place;
    if (place > load.highest[number % load.queues]) /* acknowledgements of a queue come on one thread */
        load.highest[number % load.queues] = place;
    int64_t gap = now - atomic_exchange(&load.last_ack_ns, now), worst = epoch->worst_gap_ns;
    while (gap > worst && !atomic_compare_exchange_weak(&epoch->worst_gap_ns, &worst, gap))
        ;
    epoch->acknowledged++;
}

static void *send_all(void *argument)
{
    struct ledgermq_queue queue = {.topic = TOPIC, .broker_name = "broker-a"};
    char *body = malloc((size_t)load.size);
    int64_t due = now_ns(), step = 1000000000LL / load.rate;
    (void)argument;
    if (body == NULL)
        abort();
    while (!load.stop_sending && load.number < load.capacity) {
        int64_t now = now_ns();
        sending_ns = now - began_ns;
        if (due > now) {
            sleep_ns(due - now > 500000 ? 500000 : due - now);
            continue;
        }
        due += step;
        if (now - due > 200000000) /* what could not be sent is not made up for */
            due = now;
        offered++;
        if (unanswered >= window) {
            if (due > now - step)
                sleep_ns(50000); /* it is due that often, and goes on to be left out */
            continue;
        }
        int64_t number = load.number++;
        queue.queue_id = (int32_t)(number % load.queues);
        load.sent[number].floor = load.highest[queue.queue_id];
        body_fill(body, load.size, number);
        struct ledgermq_message message = {.topic = TOPIC, .body = body, .body_size = (size_t)load.size};
        unanswered++;
        if (ledgermq_send_async(producers[queue.queue_id % connections], &message, &queue, sent, (void *)(intptr_t)number, NULL) != LEDGERMQ_OK) {
            unanswered--;
            load.epochs[load.epoch].refused++;
        }
    }
    free(body);
    return NULL;
}

/* ---- consuming ---- */

static void take(int queue, int64_t expected, const struct ledgermq_stored_message *message)
{
    char head[17] = "", *end;
    if (message->queue_offset != expected)
        problem(&load, "a consumer of queue %d at %lld got %lld", queue, (long long)expected, (long long)message->queue_offset);
    if (message->body_size == (size_t)load.size)
        memcpy(head, message->body, 16);
    int64_t number = (int64_t)strtoull(head, &end, 16);
    if (head[0] == '\0' || *end != '\0' || number >= load.number || number % load.queues != queue) {
        problem(&load, "a consumer of queue %d got at %lld what was never sent there", queue, (long long)expected);
        return;
    }
    int64_t before = atomic_exchange(&load.sent[number].consumed, expected + 1);
    if (before != 0)
        problem(&load, "message %lld is consumed twice: at %lld and %lld", (long long)number, (long long)before - 1, (long long)expected);
    load.consumed++;
}

/* Every CONSUMERS-th queue. */
static void *consume(void *argument)
{
    int first = (int)(intptr_t)argument;
    struct ledgermq_pull_consumer *consumer;
    struct ledgermq_queue queue = {.topic = TOPIC, .broker_name = "broker-a"};
    int64_t next[QUEUES_MAX] = {0}, commit_ns[QUEUES_MAX] = {0};
    if (ledgermq_pull_consumer_new(load.client, GROUP, &consumer, NULL) != LEDGERMQ_OK)
        abort();
    while (!load.stop_consuming) {
        bool found = false;
        for (int i = first; i < load.queues && !load.stop_consuming; i += CONSUMERS) {
            struct ledgermq_pull_result *result;
            queue.queue_id = i;
            if (ledgermq_pull(consumer, &queue, NULL, next[i], 64, 0, &result, NULL) != LEDGERMQ_OK)
                continue;
            if (result->status == LEDGERMQ_FOUND) {
                for (size_t k = 0; k < result->count; k++)
                    take(i, next[i]++, &result->messages[k]);
                found = true;
            } else if (result->status == LEDGERMQ_OFFSET_ILLEGAL) {
                problem(&load, "queue %d: offset %lld, which was consumed up to, is illegal; the nearest is %lld", i, (long long)next[i],
                        (long long)result->next_offset);
            }
            ledgermq_pull_result_free(result);
            int64_t now = now_ns();
            if (now - commit_ns[i] > COMMIT_EVERY_NS && next[i] > 0) {
                commit_ns[i] = now;
                load.commit_tried[i] = next[i];
                if (ledgermq_commit_offset(consumer, &queue, next[i], NULL) == LEDGERMQ_OK)
                    load.committed[i] = next[i];
            }
        }
        if (!found)
            sleep_ns(5000000);
    }
    ledgermq_pull_consumer_free(consumer);
    return NULL;
}

/* ---- the lines ---- */

static void print_epoch(const struct epoch *epoch)
{
    pthread_mutex_lock(&output);
    printf("{\"name\":\"%s\",\"acknowledged\":%lld,\"refused\":%lld,\"worst_gap_ms\":%.1f,\"lost\":%lld,\"twice\":%lld}\n", epoch->name,
           (long long)epoch->acknowledged, (long long)epoch->refused, (double)epoch->worst_gap_ns / 1e6, (long long)epoch->lost, (long long)epoch->twice);
    fflush(stdout);
    pthread_mutex_unlock(&output);
}

static void mark(const char *name)
{
    if (load.epoch + 1 == EPOCHS_MAX) {
        problem(&load, "more than %d marks", EPOCHS_MAX);
        return;
    }
    struct epoch *old = &load.epochs[load.epoch], *next = old + 1;
    /* A gap that lasts is the old epoch's so far, and the new one's in full when it ends. */
    int64_t gap = now_ns() - load.last_ack_ns;
    if (gap > old->worst_gap_ns)
        old->worst_gap_ns = gap;
    snprintf(next->name, sizeof next->name, "%.60s", name);
    next->first = load.number;
    load.epoch++;
    print_epoch(old);
}

static void print_count(void)
{
    int64_t acknowledged = 0;
    for (int i = 0; i <= load.epoch; i++)
        acknowledged += load.epochs[i].acknowledged;
    pthread_mutex_lock(&output);
    printf("{\"acknowledged\":%lld,\"sent\":%lld,\"offered\":%lld,\"seconds\":%.3f,\"consumed\":%lld}\n", (long long)acknowledged, (long long)load.number,
           (long long)offered, (double)sending_ns / 1e9, (long long)load.consumed);
    fflush(stdout);
    pthread_mutex_unlock(&output);
}

#define SPOILED 3

/* One message was acknowledged that nobody has, one at another place than it is at, and one commit of an offset that never was. */
static void spoil(void)
{
    int64_t number = load.number++, other = number - 1;
    load.sent[number].acknowledged = 1;
    while (other > 0 && load.sent[other].acknowledged == 0)
        other--;
    load.sent[other].acknowledged++;
    load.committed[0] += (int64_t)1 << 40;
    pthread_mutex_lock(&output);
    printf("{\"spoiled\":%d}\n", SPOILED);
    fflush(stdout);
    pthread_mutex_unlock(&output);
}

static int number_of(const char *text, int max)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (*end != '\0' || value < 1 || value > max) {
        fprintf(stderr, "chaos_load: '%s' is not between 1 and %d\n", text, max);
        exit(2);
    }
    return (int)value;
}

static void obey(pthread_t sender)
{
    char line[4096];
    bool sending = true;
    while (fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "mark ", 5) == 0) {
            mark(line + 5);
        } else if (strcmp(line, "count") == 0) {
            print_count();
        } else if (strcmp(line, "stop") == 0 && sending) {
            sending = false;
            load.stop_sending = true;
            pthread_join(sender, NULL);
            for (int64_t end = now_ns() + 20000000000LL; unanswered > 0 && now_ns() < end;)
                sleep_ns(5000000);
            print_epoch(&load.epochs[load.epoch]);
        } else if (strncmp(line, "verify ", 7) == 0 && !sending) {
            load_verify(&load, line + 7);
            for (int i = 0; i <= load.epoch; i++)
                print_epoch(&load.epochs[i]);
            printf("{\"problems\":%lld}\n", (long long)load.problems);
            fflush(stdout);
        } else if (strncmp(line, "offsets ", 8) == 0 && !sending) {
            load_verify_offsets(&load, line + 8);
            printf("{\"problems\":%lld}\n", (long long)load.problems);
            fflush(stdout);
        } else if (strcmp(line, "spoil") == 0 && !sending) {
            spoil();
        } else {
            fprintf(stderr, "chaos_load: '%s' is none of its lines, or not now\n", line);
            exit(2);
        }
    }
}

int main(int argc, char **argv)
{
    static const struct option names[] = {{"rate", required_argument, NULL, 'r'}, {"queues", required_argument, NULL, 'q'},
                                          {"size", required_argument, NULL, 's'}, {"max", required_argument, NULL, 'm'},
                                          {"connections", required_argument, NULL, 'c'}, {"window", required_argument, NULL, 'w'}, {0}};
    int option;
    load = (struct load){.rate = 6000, .queues = 8, .size = 200, .capacity = 10000000};
    while ((option = getopt_long(argc, argv, "", names, NULL)) != -1) {
        switch (option) {
        case 'r': load.rate = number_of(optarg, 1000000); break;
        case 'q': load.queues = number_of(optarg, QUEUES_MAX); break;
        case 's': load.size = number_of(optarg, 65536); break;
        case 'm': load.capacity = number_of(optarg, 1000000000); break;
        case 'c': connections = number_of(optarg, CONNECTIONS_MAX); break;
        case 'w': window = number_of(optarg, 1000000); break;
        default: return 2;
        }
    }
    if (load.size < 32)
        load.size = 32;
    if (load.queues % connections != 0) {
        fprintf(stderr, "chaos_load: %d queues cannot be shared out among %d connections\n", load.queues, connections);
        return 2;
    }
    load.sent = mmap(NULL, (size_t)load.capacity * sizeof *load.sent, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (load.sent == MAP_FAILED) {
        fprintf(stderr, "chaos_load: no memory for %lld messages: %s\n", (long long)load.capacity, strerror(errno));
        return 1;
    }
    struct ledgermq_client_options client_options;
    struct ledgermq_producer_options producer_options;
    struct ledgermq_error error;
    ledgermq_client_options_init(&client_options);
    /* A send is never repeated, so nothing but the poll tells who leads now. */
    client_options.route_poll_ms = 50;
    client_options.connect_timeout_ms = 500;
    client_options.call_timeout_ms = 1000;
    ledgermq_producer_options_init(&producer_options);
    producer_options.group = "chaos-producer";
    producer_options.retries = 0;
    struct ledgermq_client *clients[CONNECTIONS_MAX];
    for (int i = 0; i < connections; i++) {
        if (ledgermq_client_new(&client_options, &clients[i], &error) != LEDGERMQ_OK ||
            ledgermq_producer_new(clients[i], &producer_options, &producers[i], &error) != LEDGERMQ_OK) {
            fprintf(stderr, "chaos_load: %s\n", error.message);
            return 1;
        }
    }
    load.client = clients[0];
    snprintf(load.epochs[0].name, sizeof load.epochs[0].name, "start");
    load.last_ack_ns = began_ns = now_ns();
    pthread_t sender, consumers[CONSUMERS];
    if (pthread_create(&sender, NULL, send_all, NULL) != 0)
        abort();
    for (int i = 0; i < CONSUMERS; i++)
        if (pthread_create(&consumers[i], NULL, consume, (void *)(intptr_t)i) != 0)
            abort();
    obey(sender);
    load.stop_sending = load.stop_consuming = true;
    for (int i = 0; i < CONSUMERS; i++)
        pthread_join(consumers[i], NULL);
    for (int i = 0; i < connections; i++) {
        ledgermq_producer_free(producers[i]);
        ledgermq_client_free(clients[i]);
    }
    return load.problems > 0;
}
