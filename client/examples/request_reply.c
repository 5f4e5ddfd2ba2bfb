/* Asks a question through a topic and gets the answer; the one who answers is a thread of the same program
 * here, and would be another program elsewhere.
 *
 *     NAMESRV_ADDR=127.0.0.1:9876 request_reply TOPIC
 */
#include <err.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <ledgermq.h>

static struct ledgermq_client *client;
static struct ledgermq_producer *producer;
static struct ledgermq_queue *queues;
static size_t queue_count;
static int64_t offsets[64];
static atomic_bool done;

static void answer(const struct ledgermq_stored_message *question)
{
    char text[128];
    int size = snprintf(text, sizeof text, "you said '%.*s'",
                        (int)(question->body_size < 80 ? question->body_size : 80), (const char *)question->body);
    struct ledgermq_message reply = {.body = text, .body_size = (size_t)size};
    struct ledgermq_error error;
    if (ledgermq_reply(producer, question, &reply, NULL, &error) != LEDGERMQ_OK)
        warnx("%s", error.message);
}

static void *replier(void *argument)
{
    struct ledgermq_pull_consumer *consumer = argument;
    struct ledgermq_error error;
    while (!done) {
        for (size_t i = 0; i < queue_count; i++) {
            struct ledgermq_pull_result *result;
            if (ledgermq_pull(consumer, &queues[i], NULL, offsets[i], 32, 50, &result, &error) != LEDGERMQ_OK)
                errx(1, "%s", error.message);
            for (size_t k = 0; k < result->count; k++)
                if (ledgermq_message_property(&result->messages[k], "REPLY_TO_CLIENT") != NULL)
                    answer(&result->messages[k]);
            offsets[i] = result->next_offset;
            ledgermq_pull_result_free(result);
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    struct ledgermq_pull_consumer *consumer;
    struct ledgermq_pull_result *reply;
    struct ledgermq_error error;
    pthread_t thread;
    if (argc < 2)
        errx(2, "usage: NAMESRV_ADDR=host:port request_reply TOPIC");
    struct ledgermq_message first = {.topic = argv[1], .body = "makes the topic", .body_size = 15};
    struct ledgermq_message question = {.topic = argv[1], .body = "hello", .body_size = 5};
    if (ledgermq_client_new(NULL, &client, &error) != LEDGERMQ_OK ||
        ledgermq_producer_new(client, NULL, &producer, &error) != LEDGERMQ_OK ||
        ledgermq_pull_consumer_new(client, "example_replier", &consumer, &error) != LEDGERMQ_OK ||
        ledgermq_send(producer, &first, NULL, &error) != LEDGERMQ_OK ||
        ledgermq_subscribe_queues(consumer, argv[1], &queues, &queue_count, &error) != LEDGERMQ_OK)
        errx(1, "%s", error.message);
    queue_count = queue_count < 64 ? queue_count : 64;
    /* Only what is asked from now on is answered. */
    for (size_t i = 0; i < queue_count; i++)
        if (ledgermq_max_offset(consumer, &queues[i], &offsets[i], &error) != LEDGERMQ_OK)
            errx(1, "%s", error.message);
    if (pthread_create(&thread, NULL, replier, consumer) != 0)
        errx(1, "no thread");
    int code = ledgermq_request(producer, &question, 5000, &reply, &error);
    done = true;
    pthread_join(thread, NULL);
    if (code != LEDGERMQ_OK)
        errx(1, "%s", error.message);
    printf("the reply: %.*s\n", (int)reply->messages[0].body_size, (const char *)reply->messages[0].body);
    bool good = reply->messages[0].body_size == strlen("you said 'hello'");
    ledgermq_pull_result_free(reply);
    ledgermq_queues_free(queues);
    ledgermq_client_free(client);
    return good ? 0 : 1;
}
