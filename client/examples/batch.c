/* Sends many small messages in few requests.
 *
 *     NAMESRV_ADDR=127.0.0.1:9876 batch TOPIC [COUNT]
 */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>

#include <ledgermq.h>

int main(int argc, char **argv)
{
    struct ledgermq_client *client;
    struct ledgermq_producer *producer;
    struct ledgermq_error error;
    if (argc < 2)
        errx(2, "usage: NAMESRV_ADDR=host:port batch TOPIC [COUNT]");
    size_t count = argc > 2 ? strtoul(argv[2], NULL, 10) : 1000, requests = 0;
    struct ledgermq_message *messages = calloc(count + 1, sizeof *messages);
    char(*bodies)[32] = calloc(count + 1, sizeof *bodies);
    if (messages == NULL || bodies == NULL)
        errx(1, "out of memory");
    for (size_t i = 0; i < count; i++) {
        int size = snprintf(bodies[i], sizeof bodies[i], "message %zu", i);
        messages[i] = (struct ledgermq_message){
            .topic = argv[1], .body = bodies[i], .body_size = (size_t)size, .tags = "batch"};
    }

    if (ledgermq_client_new(NULL, &client, &error) != LEDGERMQ_OK ||
        ledgermq_producer_new(client, NULL, &producer, &error) != LEDGERMQ_OK)
        errx(1, "%s", error.message);
    /* 32 KiB a batch here, so that there are several; 0 means 1 MiB. */
    for (size_t at = 0, n; at < count; at += n, requests++) {
        struct ledgermq_send_result result;
        n = ledgermq_batch_split(messages + at, count - at, 32768);
        if (ledgermq_send_messages(producer, messages + at, n, NULL, &result, &error) != LEDGERMQ_OK)
            errx(1, "%s", error.message);
        printf("%zu messages in queue %d from offset %lld on\n", n, result.queue.queue_id,
               (long long)result.queue_offset);
    }
    ledgermq_client_free(client);
    printf("%zu messages in %zu requests\n", count, requests);
    free(messages);
    free(bodies);
    return 0;
}
