/* Brokers and clusters (org.apache.rocketmq.tools.command.broker, .cluster). */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/admin/admin_ask.h"
#include "proto/java_properties.h"
#include "proto/request_code.h"

static int compare_pairs(const void *a, const void *b)
{
    return strcmp((const char *)((const struct kv_pair *)a)->name.data,
                  (const char *)((const struct kv_pair *)b)->name.data);
}

static int broker_status(struct admin *admin)
{
    struct admin_targets targets;
    int status;
    if (!admin_targets(admin, true, false, &targets, &status))
        return status;
    status = ADMIN_OK;
    for (size_t i = 0; i < targets.count; i++) {
        struct kv_table table;
        if (!admin_runtime_table(admin, targets.all[i].address, &table)) {
            status = ADMIN_FAILED;
            continue;
        }
        if (table.pair_count > 1)
            qsort(table.pairs, table.pair_count, sizeof *table.pairs, compare_pairs);
        for (size_t k = 0; k < table.pair_count; k++) {
            if (admin_has(admin, "clusterName"))
                printf("%-24s %-32.*s: %.*s\n", targets.all[i].address, ADMIN_SLICE(table.pairs[k].name),
                       ADMIN_SLICE(table.pairs[k].value));
            else
                printf("%-32.*s: %.*s\n", ADMIN_SLICE(table.pairs[k].name), ADMIN_SLICE(table.pairs[k].value));
        }
        kv_table_close(&table);
    }
    admin_targets_free(&targets);
    return status;
}

static int64_t number_of(const struct kv_table *table, const char *name)
{
    int64_t value = 0;
    slice_to_i64(kv_table_get(table, name), &value);
    return value;
}

/* The first of the up to three figures of a rate. */
static double rate_of(const struct kv_table *table, const char *name)
{
    char text[64];
    struct slice value = kv_table_get(table, name);
    snprintf(text, sizeof text, "%.*s", ADMIN_SLICE(value));
    return strtod(text, NULL);
}

static void cluster_row(const struct admin_target *target, const struct kv_table *table)
{
    char in[64], out[64], hour[16] = "", space[16], rate[64];
    int64_t earliest = number_of(table, "earliestMessageTimeStamp");
    double transferred = kv_table_get(table, "getTransferredTps").data != NULL ? rate_of(table, "getTransferredTps")
                                                                               : rate_of(table, "getTransferedTps");
    snprintf(in, sizeof in, "%.2f(%lld,%lldms)", rate_of(table, "putTps"),
             (long long)number_of(table, "sendThreadPoolQueueSize"),
             (long long)number_of(table, "sendThreadPoolQueueHeadWaitTimeMills"));
    snprintf(out, sizeof out, "%.2f(%lld,%lldms)", transferred,
             (long long)number_of(table, "pullThreadPoolQueueSize"),
             (long long)number_of(table, "pullThreadPoolQueueHeadWaitTimeMills"));
    if (earliest > 0)
        snprintf(hour, sizeof hour, "%.2f", (double)(client_clock_ms() - earliest) / 3600000.0);
    snprintf(rate, sizeof rate, "%.*s", ADMIN_SLICE(kv_table_get(table, "commitLogDiskRatio")));
    snprintf(space, sizeof space, "%.4f", strtod(rate, NULL));
    printf("%-16s  %-22s  %-4lld  %-22s %-16.*s  %19s  %19s %10lld %9s %6s\n", target->cluster, target->broker_name,
           (long long)target->broker_id, target->address, ADMIN_SLICE(kv_table_get(table, "brokerVersionDesc")), in,
           out, (long long)number_of(table, "pageCacheLockTimeMills"), hour, space);
}

static void more_row(const struct admin_target *target, const struct kv_table *table)
{
    int64_t in_yesterday =
        number_of(table, "msgPutTotalTodayMorning") - number_of(table, "msgPutTotalYesterdayMorning");
    int64_t out_yesterday =
        number_of(table, "msgGetTotalTodayMorning") - number_of(table, "msgGetTotalYesterdayMorning");
    int64_t in_today = number_of(table, "msgPutTotalTodayNow") - number_of(table, "msgPutTotalTodayMorning");
    int64_t out_today = number_of(table, "msgGetTotalTodayNow") - number_of(table, "msgGetTotalTodayMorning");
    printf("%-16s  %-32s %14lld %14lld %14lld %14lld\n", target->cluster, target->broker_name,
           (long long)in_yesterday, (long long)out_yesterday, (long long)in_today, (long long)out_today);
}

static int cluster_list_once(struct admin *admin)
{
    struct admin_targets targets;
    bool more = admin_has(admin, "moreStats");
    int status;
    if (!admin_targets(admin, true, true, &targets, &status))
        return status;
    struct admin_answer *answers = calloc(targets.count, sizeof *answers);
    if (answers == NULL)
        abort();
    admin_call_all(admin, &targets, REQUEST_GET_BROKER_RUNTIME_INFO, admin->timeout_ms, answers);
    if (more)
        printf("%-16s  %-32s %14s %14s %14s %14s\n", "#Cluster Name", "#Broker Name", "#InTotalYest", "#OutTotalYest",
               "#InTotalToday", "#OutTotalToday");
    else
        printf("%-16s  %-22s  %-4s  %-22s %-16s  %19s  %19s %10s %9s %6s\n", "#Cluster Name", "#Broker Name", "#BID",
               "#Addr", "#Version", "#InTPS(LOAD)", "#OutTPS(LOAD)", "#PCWait(ms)", "#Hour", "#SPACE");
    status = ADMIN_OK;
    for (size_t i = 0; i < targets.count; i++) {
        struct kv_table table = {0};
        struct error error = {0};
        bool ok = answers[i].ok;
        if (ok) {
            ok = kv_table_decode(&table, answers[i].response.command.body, &error) == 0;
            remoting_response_close(&answers[i].response);
        } else {
            error = answers[i].error;
        }
        if (more)
            more_row(&targets.all[i], &table);
        else
            cluster_row(&targets.all[i], &table);
        if (ok)
            kv_table_close(&table);
        else
            status = admin_fail(admin, "%s: %s", targets.all[i].address, error.message);
    }
    free(answers);
    admin_targets_free(&targets);
    return status;
}

static int cluster_list(struct admin *admin)
{
    int64_t interval;
    if (!admin_number(admin, "interval", 0, 1, 86400, &interval))
        return ADMIN_USAGE;
    for (;;) {
        int status = cluster_list_once(admin);
        if (interval == 0)
            return status;
        printf("\n");
        fflush(stdout);
        sleep((unsigned)interval);
    }
}

static int compare_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Java properties as sorted "key = value" lines. */
static int print_properties(struct admin *admin, struct slice text)
{
    struct java_properties_reader reader;
    struct slice key, value;
    struct error error = {0};
    char *lines[4096];
    size_t count = 0;
    int rv = 0;
    java_properties_reader_init(&reader, text);
    while (count < 4096 && java_properties_next(&reader, &key, &value, &rv, &error)) {
        size_t size = key.size + value.size + 64;
        lines[count] = malloc(size);
        if (lines[count] == NULL)
            break;
        snprintf(lines[count++], size, "%-50.*s=  %.*s", ADMIN_SLICE(key), ADMIN_SLICE(value));
    }
    java_properties_reader_close(&reader);
    qsort(lines, count, sizeof lines[0], compare_text);
    for (size_t i = 0; i < count; i++) {
        printf("%s\n", lines[i]);
        free(lines[i]);
    }
    return rv == 0 ? ADMIN_OK : admin_fail(admin, "configuration: %s", error.message);
}

static int get_broker_config(struct admin *admin)
{
    struct admin_targets targets;
    int status;
    if (!admin_targets(admin, true, false, &targets, &status))
        return status;
    status = ADMIN_OK;
    for (size_t i = 0; i < targets.count; i++) {
        struct remoting_response response;
        if (!admin_call(admin, targets.all[i].address, REQUEST_GET_BROKER_CONFIG, NULL, NO_BODY, &response)) {
            status = ADMIN_FAILED;
            continue;
        }
        const char *role = admin_has(admin, "brokerAddr") ? "" : targets.all[i].broker_id == 0 ? "Master: " : "Slave: ";
        printf("============%s%s============\n", role, targets.all[i].address);
        if (print_properties(admin, response.command.body) != ADMIN_OK)
            status = ADMIN_FAILED;
        remoting_response_close(&response);
    }
    admin_targets_free(&targets);
    return status;
}

static void config_updated(struct admin *admin, const struct admin_target *target)
{
    (void)admin;
    printf("update broker config success, %s\n", target->address);
}

static int update_broker_config(struct admin *admin)
{
    struct admin_targets targets;
    struct buffer body;
    int status;
    if (!admin_targets(admin, false, false, &targets, &status))
        return status;
    buffer_init(&body, 0);
    java_properties_append_text(&body, admin_text(admin, "key"), admin_text(admin, "value"));
    bool ok = admin_each_target(admin, &targets, REQUEST_UPDATE_BROKER_CONFIG, NULL, buffer_slice(&body), config_updated);
    buffer_close(&body);
    admin_targets_free(&targets);
    return ok ? ADMIN_OK : ADMIN_FAILED;
}

static int clean(struct admin *admin, int32_t code)
{
    struct admin_targets targets;
    int status;
    if (!admin_targets(admin, true, true, &targets, &status))
        return status;
    bool ok = admin_each_target(admin, &targets, code, NULL, NO_BODY, NULL);
    admin_targets_free(&targets);
    if (ok)
        printf("success\n");
    return ok ? ADMIN_OK : ADMIN_FAILED;
}

static int clean_expired_cq(struct admin *admin)
{
    return clean(admin, REQUEST_CLEAN_EXPIRED_CONSUMEQUEUE);
}

static int clean_unused_topic(struct admin *admin)
{
    return clean(admin, REQUEST_CLEAN_UNUSED_TOPIC);
}

static int delete_expired_commit_log(struct admin *admin)
{
    return clean(admin, REQUEST_DELETE_EXPIRED_COMMITLOG);
}

static const struct admin_option broker_options[] = {
    {'b', "brokerAddr", "ADDRESS", false, "this broker"},
    {'c', "clusterName", "CLUSTER", false, "all brokers of the cluster"},
    {0, NULL, NULL, false, NULL},
};
static const struct admin_option broker_config_options[] = {
    {'b', "brokerAddr", "ADDRESS", false, "this broker"},
    {'c', "clusterName", "CLUSTER", false, "the leaders of the cluster's brokers"},
    {'k', "key", "KEY", true, "key of broker.conf"},
    {'v', "value", "VALUE", true, "its new value"},
    {0, NULL, NULL, false, NULL},
};
static const struct admin_option cluster_list_options[] = {
    {'m', "moreStats", NULL, false, "messages of yesterday and today instead"},
    {'i', "interval", "SECONDS", false, "again and again"},
    {0, NULL, NULL, false, NULL},
};

const struct admin_command broker_commands[] = {
    {"clusterList", "List all brokers with their load", cluster_list_options, cluster_list, NULL},
    {"brokerStatus", "Show a broker's runtime figures", broker_options, broker_status, NULL},
    {"getBrokerConfig", "Show a broker's configuration", broker_options, get_broker_config, NULL},
    {"updateBrokerConfig", "Change one key of a broker's configuration", broker_config_options, update_broker_config,
     NULL},
    {"cleanExpiredCQ", "Remove consume queues that point nowhere", broker_options, clean_expired_cq, NULL},
    {"cleanUnusedTopic", "Remove files of topics that are gone", broker_options, clean_unused_topic, NULL},
    {"deleteExpiredCommitLog", "Remove commit log files that are past their time", broker_options,
     delete_expired_commit_log, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
