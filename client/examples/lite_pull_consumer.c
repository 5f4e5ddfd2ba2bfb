/* Polls a topic until it has had COUNT messages, then reads the first queue once more from its beginning.
 *
 *     NAMESRV_ADDR=127.0.0.1:9876 lite_pull_consumer TOPIC [COUNT]
 */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>

#include <ledgermq.h>

static struct ledgermq_error error;

static void must(int code)
{
    if (code != LEDGERMQ_OK)
        errx(1, "%s", error.message);
}

/* Polls until there were count messages, or none for 10 s. */
static int poll_messages(struct ledgermq_lite_pull_consumer *consumer, int count)
{
    int had = 0;
    while (had < count) {
        struct ledgermq_pull_result *result;
        int code = ledgermq_lite_pull_poll(consumer, 10000, &result, &error);
        if (code == LEDGERMQ_TIMEOUT)
            break;
        must(code);
        had += (int)result->count;
        ledgermq_pull_result_free(result);
    }
    return had;
}

int main(int argc, char **argv)
{
    struct ledgermq_client *client;
    struct ledgermq_lite_pull_consumer *consumer;
    struct ledgermq_lite_pull_consumer_options options;
    struct ledgermq_queue *queues;
    size_t queue_count;
    if (argc < 2)
        errx(2, "usage: NAMESRV_ADDR=host:port lite_pull_consumer TOPIC [COUNT]");
    int count = argc > 2 ? atoi(argv[2]) : 10;

    must(ledgermq_client_new(NULL, &client, &error));
    ledgermq_lite_pull_consumer_options_init(&options);
    options.group = "example_lite_pull_consumer";
    options.consume_from = LEDGERMQ_FROM_FIRST_OFFSET;
    options.auto_commit = false;
    must(ledgermq_lite_pull_consumer_new(client, &options, &consumer, &error));
    must(ledgermq_lite_pull_subscribe(consumer, argv[1], "*", &error));
    int had = poll_messages(consumer, count);
    /* Only now is what was polled taken as consumed. */
    must(ledgermq_lite_pull_commit(consumer, &error));
    printf("%d of %d messages polled and committed\n", had, count);

    must(ledgermq_lite_pull_assignment(consumer, &queues, &queue_count, &error));
    if (queue_count > 0) {
        must(ledgermq_lite_pull_seek_to_begin(consumer, &queues[0], &error));
        printf("and %d once more\n", poll_messages(consumer, 1));
    }
    ledgermq_queues_free(queues);
    ledgermq_lite_pull_consumer_free(consumer);
    ledgermq_client_free(client);
    return had >= count ? 0 : 1;
}
