/* Sends messages one after the other, with and without waiting.
 *
 *     NAMESRV_ADDR=127.0.0.1:9876 producer TOPIC [COUNT]
 */
#include <err.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include <ledgermq.h>

static atomic_int arrived, lost;

static void sent(void *context, const struct ledgermq_send_result *result, const struct ledgermq_error *error)
{
    (void)context;
    (void)result;
    if (error == NULL)
        arrived++;
    else
        lost++;
}

int main(int argc, char **argv)
{
    struct ledgermq_client *client;
    struct ledgermq_producer *producer;
    struct ledgermq_producer_options options;
    struct ledgermq_error error;
    if (argc < 2)
        errx(2, "usage: NAMESRV_ADDR=host:port producer TOPIC [COUNT]");
    int count = argc > 2 ? atoi(argv[2]) : 10;

    if (ledgermq_client_new(NULL, &client, &error) != LEDGERMQ_OK)
        errx(1, "%s", error.message);
    ledgermq_producer_options_init(&options);
    options.group = "example_producer";
    options.compression = LEDGERMQ_ZSTD;
    if (ledgermq_producer_new(client, &options, &producer, &error) != LEDGERMQ_OK)
        errx(1, "%s", error.message);

    for (int i = 0; i < count; i++) {
        char body[64], key[32];
        struct ledgermq_property color = {"color", i % 2 == 0 ? "red" : "blue"};
        struct ledgermq_message message = {.topic = argv[1],
                                           .body = body,
                                           .body_size = (size_t)snprintf(body, sizeof body, "message %d", i),
                                           .tags = "example",
                                           .keys = key,
                                           .properties = &color,
                                           .property_count = 1};
        struct ledgermq_send_result result;
        snprintf(key, sizeof key, "key-%d", i);
        if (ledgermq_send(producer, &message, &result, &error) != LEDGERMQ_OK)
            errx(1, "%s", error.message);
        printf("%s %s: %s queue %d, offset %lld\n", ledgermq_send_status_text(result.status), result.message_id,
               result.queue.broker_name, result.queue.queue_id, (long long)result.queue_offset);
        if (ledgermq_send_async(producer, &message, NULL, sent, NULL, &error) != LEDGERMQ_OK)
            errx(1, "%s", error.message);
    }
    ledgermq_producer_free(producer); /* waits for the call backs */
    ledgermq_client_free(client);
    printf("%d of %d asynchronous sends arrived\n", arrived, count);
    return lost == 0 ? 0 : 1;
}
