/* How long sends take (org.apache.rocketmq.tools.command.broker.SendMsgStatusCommand, .message.CheckMsgSendRTCommand,
 * .cluster.CLusterSendMsgRTCommand). */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "client/admin/admin_ask.h"
#include "client/admin/message_print.h"

#define BODY_MAX (4 * 1024 * 1024)

struct probe {
    struct admin *admin;
    struct ledgermq_producer *producer;
    struct ledgermq_message message;
    char *body;
    int64_t amount;
};

/* Reads -a or -c (the number) and -s, and makes the producer. pattern fills the body. */
static int probe_open(struct probe *probe, const char *amount, int64_t amount_default, const char *size_name,
                      const char *pattern)
{
    struct admin *admin = probe->admin;
    struct ledgermq_producer_options options;
    struct ledgermq_error error;
    int64_t size;
    if (!admin_number(admin, amount, amount_default, 1, INT32_MAX, &probe->amount) ||
        !admin_number(admin, size_name, 128, 1, BODY_MAX, &size))
        return ADMIN_USAGE;
    if (!admin_connect(admin))
        return ADMIN_FAILED;
    probe->body = malloc((size_t)size);
    if (probe->body == NULL)
        return admin_fail(admin, "out of memory");
    for (size_t i = 0, length = strlen(pattern); i < (size_t)size; i++)
        probe->body[i] = pattern[i % length];
    probe->message.body = probe->body;
    probe->message.body_size = (size_t)size;
    ledgermq_producer_options_init(&options);
    options.compress_over = SIZE_MAX; /* what is asked for is what travels */
    if (ledgermq_producer_new(admin->client, &options, &probe->producer, &error) == LEDGERMQ_OK)
        return ADMIN_OK;
    free(probe->body);
    return admin_fail(admin, "%s", error.message);
}

static void probe_close(struct probe *probe)
{
    ledgermq_producer_free(probe->producer);
    free(probe->body);
}

/* queue may be NULL. Milliseconds it took; *ok tells whether it was stored. */
static double timed_send(struct probe *probe, const struct ledgermq_queue *queue, struct ledgermq_send_result *result,
                         struct ledgermq_error *error, bool *ok)
{
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    *ok = ledgermq_send_to(probe->producer, &probe->message, queue, result, error) == LEDGERMQ_OK;
    clock_gettime(CLOCK_MONOTONIC, &end);
    return (double)(end.tv_sec - begin.tv_sec) * 1e3 + (double)(end.tv_nsec - begin.tv_nsec) / 1e6;
}

/* The first send finds the route and opens the connection: it does not count, unless it is the only one. */
static double mean_of(double total, double first, int64_t amount)
{
    return amount == 1 ? first : total / (double)(amount - 1);
}

static int send_msg_status(struct admin *admin)
{
    struct probe probe = {.admin = admin, .message.topic = admin_text(admin, "brokerName")};
    struct ledgermq_send_result result;
    struct ledgermq_error error;
    bool ok;
    int status = probe_open(&probe, "count", 50, "messageSize", "hello jodie");
    if (status != ADMIN_OK)
        return status;
    (void)timed_send(&probe, NULL, &result, &error, &ok);
    for (int64_t i = 0; ok && i < probe.amount; i++) {
        double ms = timed_send(&probe, NULL, &result, &error, &ok);
        if (!ok)
            break;
        printf("rt=%.0fms, SendResult=", ms);
        message_print_send_result(&result);
    }
    if (!ok)
        status = admin_fail(admin, "%s", error.message);
    probe_close(&probe);
    return status;
}

static int check_msg_send_rt(struct admin *admin)
{
    struct probe probe = {.admin = admin, .message.topic = admin_text(admin, "topic")};
    struct ledgermq_queue *queues;
    struct ledgermq_error error;
    size_t count;
    double total = 0, first = 0;
    int64_t failed = 0;
    int status = probe_open(&probe, "amount", 100, "size", "a");
    if (status != ADMIN_OK)
        return status;
    if (ledgermq_publish_queues(probe.producer, probe.message.topic, &queues, &count, &error) != LEDGERMQ_OK) {
        probe_close(&probe);
        return admin_fail(admin, "%s", error.message);
    }
    printf("%-32s  %-4s  %-20s    %s\n", "#Broker Name", "#QID", "#Send Result", "#RT");
    for (int64_t i = 0; i < probe.amount; i++) {
        const struct ledgermq_queue *queue = &queues[(size_t)i % count];
        struct ledgermq_send_result result;
        bool ok;
        double ms = timed_send(&probe, queue, &result, &error, &ok);
        if (i == 0)
            first = ms;
        else
            total += ms;
        printf("%-32s  %-4d  %-20s    %.0f\n", queue->broker_name, queue->queue_id, admin_word(ok), ms);
        if (!ok && failed++ == 0)
            status = admin_fail(admin, "%s", error.message);
    }
    printf("Avg RT: %.2f\n", mean_of(total, first, probe.amount));
    if (failed > 1)
        status = admin_fail(admin, "%lld of %lld sends failed", (long long)failed, (long long)probe.amount);
    ledgermq_queues_free(queues);
    probe_close(&probe);
    return status;
}

static bool probe_broker(struct probe *probe, const char *cluster, const char *broker, bool as_log, const char *room)
{
    struct ledgermq_send_result result;
    struct ledgermq_error error;
    double total = 0, first = 0;
    int64_t good = 0;
    probe->message.topic = broker;
    for (int64_t i = 0; i < probe->amount; i++) {
        bool ok;
        double ms = timed_send(probe, NULL, &result, &error, &ok);
        if (i == 0)
            first = ms;
        else
            total += ms;
        if (ok)
            good++;
        else if (i == good)
            admin_fail(probe->admin, "%s: %s", broker, error.message);
    }
    double mean = mean_of(total, first, probe->amount);
    char time[32];
    if (as_log)
        printf("%s|%s|%s|%s|%.0f\n", admin_time_seconds(client_clock_ms(), time), room, cluster, broker, mean);
    else
        printf("%-24s  %-24s  %-8.2f  %-16lld  %-16lld\n", cluster, broker, mean, (long long)good,
               (long long)(probe->amount - good));
    return good == probe->amount;
}

/* One round over the brokers of a cluster, or of all. */
static int probe_clusters(struct probe *probe, bool as_log, const char *room)
{
    struct admin *admin = probe->admin;
    const char *wanted = admin_text(admin, "cluster");
    struct cluster_info info;
    int status = ADMIN_OK;
    size_t found = 0;
    if (!admin_clusters(admin, &info))
        return ADMIN_FAILED;
    for (size_t i = 0; i < info.cluster_count; i++) {
        char cluster[LEDGERMQ_NAME_MAX + 1], broker[LEDGERMQ_NAME_MAX + 1];
        snprintf(cluster, sizeof cluster, "%.*s", ADMIN_SLICE(info.clusters[i].name));
        for (size_t k = 0; (wanted == NULL || strcmp(cluster, wanted) == 0) && k < info.clusters[i].broker_name_count; k++) {
            snprintf(broker, sizeof broker, "%.*s", ADMIN_SLICE(info.clusters[i].broker_names[k]));
            found++;
            if (!probe_broker(probe, cluster, broker, as_log, room))
                status = ADMIN_FAILED;
        }
    }
    cluster_info_close(&info);
    if (found == 0)
        return wanted != NULL ? admin_fail(admin, "cluster [%s] not exist", wanted)
                              : admin_fail(admin, "the name server knows no broker");
    return status;
}

static int cluster_rt(struct admin *admin)
{
    struct probe probe = {.admin = admin};
    const char *room = admin_has(admin, "machineRoom") ? admin_text(admin, "machineRoom") : "noname";
    int64_t interval, rounds;
    bool as_log;
    if (!admin_bool(admin, "printLog", false, &as_log) || !admin_number(admin, "interval", 10, 1, 86400, &interval) ||
        !admin_number(admin, "rounds", 0, 1, INT64_MAX, &rounds))
        return ADMIN_USAGE;
    int status = probe_open(&probe, "amount", 100, "size", "a");
    if (status != ADMIN_OK)
        return status;
    if (!as_log)
        printf("%-24s  %-24s  %-4s  %-8s  %-8s\n", "#Cluster Name", "#Broker Name", "#RT", "#successCount", "#failCount");
    for (int64_t round = 1;; round++) {
        status = probe_clusters(&probe, as_log, room);
        if (round == rounds || (status != ADMIN_OK && rounds == 0 && round == 1))
            break;
        fflush(stdout);
        sleep((unsigned)interval);
    }
    probe_close(&probe);
    return status;
}

static const struct admin_option status_options[] = {
    {'b', "brokerName", "NAME", true, "the broker, whose name is also its topic's"},
    {'s', "messageSize", "BYTES", false, "of a body: 128"},
    {'c', "count", "N", false, "so many: 50"},
    {0, NULL, NULL, false, NULL},
};
static const struct admin_option check_options[] = {
    {'t', "topic", "TOPIC", true, "where to"},
    {'a', "amount", "N", false, "so many, over all queues: 100"},
    {'s', "size", "BYTES", false, "of a body: 128"},
    {0, NULL, NULL, false, NULL},
};
static const struct admin_option cluster_rt_options[] = {
    {'a', "amount", "N", false, "so many to each broker: 100"},
    {'s', "size", "BYTES", false, "of a body: 128"},
    {'c', "cluster", "CLUSTER", false, "this cluster only"},
    {'p', "printLog", "true|false", false, "one line as for a log: false"},
    {'m', "machineRoom", "NAME", false, "named in such a line: noname"},
    {'i', "interval", "SECONDS", false, "from one round to the next: 10"},
    {0, "rounds", "N", false, "end after so many rounds"},
    {0, NULL, NULL, false, NULL},
};

const struct admin_command probe_commands[] = {
    {"sendMsgStatus", "Send messages to a broker and show each result", status_options, send_msg_status, NULL},
    {"checkMsgSendRT", "Send messages to a topic and show how long each took", check_options, check_msg_send_rt, NULL},
    {"clusterRT", "Show how long sends to each broker take, again and again", cluster_rt_options, cluster_rt, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
