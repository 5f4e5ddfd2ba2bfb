/* Messages of one order go to one queue, so that they are consumed in the order in which they were sent; then
 * reads them back and says whether they were.
 *
 *     NAMESRV_ADDR=127.0.0.1:9876 ordered TOPIC
 */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ledgermq.h>

#define ORDERS 8
static const char *const steps[] = {"created", "paid", "shipped", "delivered"};
#define STEPS (sizeof steps / sizeof steps[0])

static struct ledgermq_error error;

static void must(int code)
{
    if (code != LEDGERMQ_OK)
        errx(1, "%s", error.message);
}

/* Reads a queue to its end and counts the steps that come in order. */
static size_t read_queue(struct ledgermq_pull_consumer *consumer, const struct ledgermq_queue *queue, int64_t offset,
                         const char *run, size_t next_step[ORDERS])
{
    size_t good = 0;
    for (;;) {
        struct ledgermq_pull_result *result;
        must(ledgermq_pull(consumer, queue, NULL, offset, 32, 0, &result, &error));
        for (size_t i = 0; i < result->count; i++) {
            const struct ledgermq_stored_message *message = &result->messages[i];
            const char *number = ledgermq_message_property(message, "order");
            const char *its_run = ledgermq_message_property(message, "run");
            if (number == NULL || its_run == NULL || strcmp(its_run, run) != 0)
                continue;
            size_t *next = &next_step[atoi(number) % ORDERS];
            if (*next < STEPS && strlen(steps[*next]) == message->body_size &&
                memcmp(steps[*next], message->body, message->body_size) == 0) {
                good++;
                (*next)++;
            }
        }
        bool end = result->status == LEDGERMQ_NO_NEW_MESSAGE || result->next_offset == offset;
        offset = result->next_offset;
        ledgermq_pull_result_free(result);
        if (end)
            return good;
    }
}

int main(int argc, char **argv)
{
    struct ledgermq_client *client;
    struct ledgermq_producer *producer;
    struct ledgermq_pull_consumer *consumer;
    struct ledgermq_queue *queues;
    size_t count, good = 0, next_step[ORDERS] = {0};
    char run[64] = "";
    if (argc < 2)
        errx(2, "usage: NAMESRV_ADDR=host:port ordered TOPIC");
    must(ledgermq_client_new(NULL, &client, &error));
    must(ledgermq_producer_new(client, NULL, &producer, &error));
    must(ledgermq_pull_consumer_new(client, "example_ordered", &consumer, &error));
    snprintf(run, sizeof run, "%.63s", strchr(ledgermq_client_id(client), '@'));

    for (size_t step = 0; step < STEPS; step++) {
        for (int order = 0; order < ORDERS; order++) {
            char number[16];
            struct ledgermq_property properties[] = {{"order", number}, {"run", run}};
            struct ledgermq_message message = {.topic = argv[1],
                                               .body = steps[step],
                                               .body_size = strlen(steps[step]),
                                               .properties = properties,
                                               .property_count = 2};
            snprintf(number, sizeof number, "%d", order);
            must(ledgermq_send_select(producer, &message, ledgermq_select_by_hash, number, NULL, &error));
        }
    }

    must(ledgermq_subscribe_queues(consumer, argv[1], &queues, &count, &error));
    for (size_t i = 0; i < count; i++) {
        int64_t offset;
        must(ledgermq_min_offset(consumer, &queues[i], &offset, &error));
        good += read_queue(consumer, &queues[i], offset, run, next_step);
    }
    ledgermq_queues_free(queues);
    ledgermq_client_free(client); /* with its producer and consumer */
    printf("%zu of %zu steps came in order\n", good, ORDERS * STEPS);
    return good == ORDERS * STEPS ? 0 : 1;
}
