/* Reads a topic from its first message on, with the other members of the group, until it has had COUNT messages.
 *
 *     NAMESRV_ADDR=127.0.0.1:9876 push_consumer TOPIC [COUNT]
 *
 * Start it several times: the queues are shared.
 */
#include <err.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include <ledgermq.h>

static sem_t enough;
static atomic_int left;

/* Runs on a thread of the consumer's pool, for several messages at a time. */
static int on_messages(void *context, const struct ledgermq_stored_message *messages, size_t count,
                       struct ledgermq_consume_context *how)
{
    (void)context;
    for (size_t i = 0; i < count; i++) {
        printf("queue %d, offset %lld: %.*s\n", how->queue->queue_id, (long long)messages[i].queue_offset,
               (int)messages[i].body_size, (const char *)messages[i].body);
        if (atomic_fetch_sub(&left, 1) == 1)
            sem_post(&enough);
    }
    /* LEDGERMQ_CONSUME_LATER would bring them again after a while. */
    return LEDGERMQ_CONSUME_SUCCESS;
}

int main(int argc, char **argv)
{
    struct ledgermq_client *client;
    struct ledgermq_push_consumer *consumer;
    struct ledgermq_push_consumer_options options;
    struct ledgermq_error error;
    if (argc < 2)
        errx(2, "usage: NAMESRV_ADDR=host:port push_consumer TOPIC [COUNT]");
    int count = argc > 2 ? atoi(argv[2]) : 10;
    atomic_store(&left, count);
    sem_init(&enough, 0, 0);

    if (ledgermq_client_new(NULL, &client, &error) != LEDGERMQ_OK)
        errx(1, "%s", error.message);
    ledgermq_push_consumer_options_init(&options);
    options.group = "example_push_consumer";
    options.consume = on_messages;
    options.consume_from = LEDGERMQ_FROM_FIRST_OFFSET;
    if (ledgermq_push_consumer_new(client, &options, &consumer, &error) != LEDGERMQ_OK ||
        ledgermq_push_consumer_subscribe(consumer, argv[1], "*", &error) != LEDGERMQ_OK ||
        ledgermq_push_consumer_start(consumer, &error) != LEDGERMQ_OK)
        errx(1, "%s", error.message);

    sem_wait(&enough);
    /* Offsets are stored on the way out: the next start goes on from here. */
    ledgermq_push_consumer_free(consumer);
    ledgermq_client_free(client);
    printf("%d messages consumed\n", count);
    return 0;
}
