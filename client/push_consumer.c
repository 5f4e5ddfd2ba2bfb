/* The push consumer's public functions (DefaultMQPushConsumer 4.9.8). */
#include "client/consumer.h"

#define BATCH_MAX 1024

struct ledgermq_push_consumer {
    struct consumer consumer;
};

static struct consumer *of(struct ledgermq_push_consumer *push)
{
    return &push->consumer;
}

void ledgermq_push_consumer_options_init(struct ledgermq_push_consumer_options *options)
{
    *options = (struct ledgermq_push_consumer_options){
        .message_model = LEDGERMQ_CLUSTERING,
        .consume_from = LEDGERMQ_FROM_LAST_OFFSET,
        .allocate = LEDGERMQ_ALLOCATE_AVERAGELY,
        .consume_threads = 20,
        .consume_batch = 1,
        .pull_batch = 32,
        .cache_messages_max = 1000,
        .cache_mib_max = 100,
        .cache_span_max = 2000,
        .max_reconsume_times = -1,
        .suspend_ms = 1000,
        .consume_timeout_ms = 15 * 60 * 1000,
    };
}

static int check_number(const char *name, int64_t value, int64_t low, int64_t high, struct ledgermq_error *error)
{
    if (value >= low && value <= high)
        return LEDGERMQ_OK;
    return client_error_text(error, LEDGERMQ_INVALID, 0, "%s is %lld; it must be %lld to %lld", name, (long long)value,
                             (long long)low, (long long)high);
}

int consumer_options_check(const struct ledgermq_push_consumer_options *options, struct ledgermq_error *error)
{
    const struct {
        const char *name;
        int64_t value, low, high;
    } numbers[] = {
        {"message_model", options->message_model, LEDGERMQ_CLUSTERING, LEDGERMQ_BROADCASTING},
        {"consume_from", options->consume_from, LEDGERMQ_FROM_LAST_OFFSET, LEDGERMQ_FROM_TIMESTAMP},
        {"consume_timestamp_ms", options->consume_timestamp_ms, 0, INT64_MAX},
        {"allocate", options->allocate, LEDGERMQ_ALLOCATE_AVERAGELY, LEDGERMQ_ALLOCATE_CONSISTENT_HASH},
        {"consume_threads", options->consume_threads, 1, 1000},
        {"consume_batch", options->consume_batch, 1, BATCH_MAX},
        {"pull_batch", options->pull_batch, 1, BATCH_MAX},
        {"pull_interval_ms", options->pull_interval_ms, 0, 65535},
        {"cache_messages_max", options->cache_messages_max, 1, 65535},
        {"cache_mib_max", options->cache_mib_max, 1, 1024},
        {"cache_span_max", options->cache_span_max, 1, 65535},
        {"max_reconsume_times", options->max_reconsume_times, -1, INT32_MAX},
        {"suspend_ms", options->suspend_ms, 10, 30000},
        {"consume_timeout_ms", options->consume_timeout_ms, 1, INT32_MAX},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (check_number(numbers[i].name, numbers[i].value, numbers[i].low, numbers[i].high, error) != LEDGERMQ_OK)
            return LEDGERMQ_INVALID;
    return LEDGERMQ_OK;
}

int ledgermq_push_consumer_new(struct ledgermq_client *client, const struct ledgermq_push_consumer_options *options,
                               struct ledgermq_push_consumer **out, struct ledgermq_error *error)
{
    struct consumer *consumer;
    if (options == NULL || options->group == NULL || options->consume == NULL)
        return client_error_text(error, LEDGERMQ_INVALID, 0, "a push consumer needs a group and a consume function");
    if (consumer_options_check(options, error) != LEDGERMQ_OK)
        return LEDGERMQ_INVALID;
    int rv = consumer_new(client, options->orderly ? CONSUMER_ORDERLY : CONSUMER_CONCURRENT, options, &consumer, error);
    if (rv == LEDGERMQ_OK)
        *out = (struct ledgermq_push_consumer *)consumer;
    return rv;
}

int ledgermq_push_consumer_subscribe(struct ledgermq_push_consumer *consumer, const char *topic,
                                     const char *expression, struct ledgermq_error *error)
{
    return consumer_subscribe(of(consumer), topic, expression, error);
}

int ledgermq_push_consumer_unsubscribe(struct ledgermq_push_consumer *consumer, const char *topic,
                                       struct ledgermq_error *error)
{
    return consumer_unsubscribe(of(consumer), topic, error);
}

int ledgermq_push_consumer_start(struct ledgermq_push_consumer *consumer, struct ledgermq_error *error)
{
    return consumer_start(of(consumer), error);
}

static void suspend_run(struct consumer *consumer, void *argument)
{
    consumer->suspended = *(const bool *)argument;
    for (struct assigned *assigned = consumer->assigned; assigned != NULL; assigned = assigned->hh.next) {
        if (consumer->suspended)
            assigned_halt(assigned);
        else
            assigned_go(assigned);
    }
}

void ledgermq_push_consumer_suspend(struct ledgermq_push_consumer *consumer)
{
    bool suspended = true;
    consumer_run(of(consumer), suspend_run, &suspended);
}

void ledgermq_push_consumer_resume(struct ledgermq_push_consumer *consumer)
{
    bool suspended = false;
    consumer_run(of(consumer), suspend_run, &suspended);
}

int ledgermq_push_consumer_queues(struct ledgermq_push_consumer *consumer, struct ledgermq_queue **queues,
                                  size_t *count, struct ledgermq_error *error)
{
    return consumer_queues(of(consumer), queues, count, error);
}

void ledgermq_push_consumer_free(struct ledgermq_push_consumer *consumer)
{
    if (consumer != NULL)
        consumer_free(of(consumer));
}
