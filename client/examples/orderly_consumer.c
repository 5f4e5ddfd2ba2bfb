/* Consumes what the example `ordered` sent: the steps of an order one after the other, orders side by side. Ends after
 * COUNT messages, and says how many came in order.
 *
 *     NAMESRV_ADDR=127.0.0.1:9876 orderly_consumer TOPIC [COUNT]
 */
#include <err.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include <ledgermq.h>

#define QUEUES_MAX 1024

static sem_t enough;
static atomic_int left, in_order;
static int64_t next_offset[QUEUES_MAX];

/* Messages of one queue come here one call after the other, so what belongs to a queue needs no lock. */
static int on_messages(void *context, const struct ledgermq_stored_message *messages, size_t count,
                       struct ledgermq_consume_context *how)
{
    (void)context;
    int64_t *next = &next_offset[how->queue->queue_id % QUEUES_MAX];
    for (size_t i = 0; i < count; i++) {
        if (messages[i].queue_offset >= *next)
            atomic_fetch_add(&in_order, 1);
        *next = messages[i].queue_offset + 1;
        if (atomic_fetch_sub(&left, 1) == 1)
            sem_post(&enough);
    }
    /* LEDGERMQ_CONSUME_LATER would make the queue wait and bring the same messages again. */
    return LEDGERMQ_CONSUME_SUCCESS;
}

int main(int argc, char **argv)
{
    struct ledgermq_client *client;
    struct ledgermq_push_consumer *consumer;
    struct ledgermq_push_consumer_options options;
    struct ledgermq_error error;
    if (argc < 2)
        errx(2, "usage: NAMESRV_ADDR=host:port orderly_consumer TOPIC [COUNT]");
    int count = argc > 2 ? atoi(argv[2]) : 32;
    atomic_store(&left, count);
    sem_init(&enough, 0, 0);

    if (ledgermq_client_new(NULL, &client, &error) != LEDGERMQ_OK)
        errx(1, "%s", error.message);
    ledgermq_push_consumer_options_init(&options);
    options.group = "example_orderly_consumer";
    options.consume = on_messages;
    options.orderly = true;
    options.consume_from = LEDGERMQ_FROM_FIRST_OFFSET;
    if (ledgermq_push_consumer_new(client, &options, &consumer, &error) != LEDGERMQ_OK ||
        ledgermq_push_consumer_subscribe(consumer, argv[1], "*", &error) != LEDGERMQ_OK ||
        ledgermq_push_consumer_start(consumer, &error) != LEDGERMQ_OK)
        errx(1, "%s", error.message);

    sem_wait(&enough);
    ledgermq_client_free(client); /* with its consumer */
    printf("%d of %d messages came in order\n", atomic_load(&in_order), count);
    return atomic_load(&in_order) == count ? 0 : 1;
}
