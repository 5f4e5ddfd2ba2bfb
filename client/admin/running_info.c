#include "client/admin/running_info.h"

#include <time.h>

#include "client/admin/admin_ask.h"
#include "proto/topic_validator.h"

#define BLOCKED_MS 60000

static double number_of(struct json_value object, const char *name)
{
    double number = 0;
    (void)json_double(json_get(object, name), &number);
    return number;
}

/* UtilAll#timeMillisToHumanString */
static const char *human_time(int64_t ms, char out[32])
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm local;
    localtime_r(&seconds, &local);
    size_t size = strftime(out, 24, "%Y%m%d%H%M%S", &local);
    snprintf(out + size, 32 - size, "%03d", (int)(ms % 1000));
    return out;
}

static void print_process_queue(FILE *out, struct json_value queue)
{
    static const char *const counts[] = {"commitOffset", "cachedMsgMinOffset", "cachedMsgMaxOffset", "cachedMsgCount", "cachedMsgSizeInMiB",
                                         "transactionMsgMinOffset", "transactionMsgMaxOffset", "transactionMsgCount"};
    char locked[32], pulled[32], consumed[32];
    fprintf(out, "ProcessQueueInfo [");
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        fprintf(out, "%s=%lld, ", counts[i], admin_json_count(queue, counts[i]));
    fprintf(out, "locked=%.*s, tryUnlockTimes=%lld, lastLockTimestamp=%s, droped=%.*s, lastPullTimestamp=%s, lastConsumeTimestamp=%s]\n",
            ADMIN_SLICE(admin_json_text(queue, "locked")), admin_json_count(queue, "tryUnlockTimes"),
            human_time(admin_json_count(queue, "lastLockTimestamp"), locked), ADMIN_SLICE(admin_json_text(queue, "droped")),
            human_time(admin_json_count(queue, "lastPullTimestamp"), pulled), human_time(admin_json_count(queue, "lastConsumeTimestamp"), consumed));
}

/* mqTable has whole objects for keys. */
static void print_queue_key(FILE *out, struct json_value key)
{
    fprintf(out, "%-64.*s  %-32.*s  %-4lld  ", ADMIN_SLICE(admin_json_text(key, "topic")), ADMIN_SLICE(admin_json_text(key, "brokerName")),
            admin_json_count(key, "queueId"));
}

void running_info_print(FILE *out, struct json_value info)
{
    struct json_value name, value;
    struct slice text;
    fprintf(out, "#Consumer Properties#\n");
    for (struct json_iterator at = json_iterate(json_get(info, "properties")); json_next_member(&at, &name, &value);) {
        struct slice key = SLICE_LITERAL(""), shown = SLICE_LITERAL("");
        (void)json_text(name, &key);
        (void)json_text(value, &shown);
        fprintf(out, "%-40.*s: %.*s\n", ADMIN_SLICE(key), ADMIN_SLICE(shown));
    }
    fprintf(out, "\n\n#Consumer Subscription#\n");
    int number = 1;
    for (struct json_iterator at = json_iterate(json_get(info, "subscriptionSet")); json_next_element(&at, &value);)
        fprintf(out, "%03d Topic: %-40.*s ClassFilter: %-8.*s SubExpression: %.*s\n", number++, ADMIN_SLICE(admin_json_text(value, "topic")),
                ADMIN_SLICE(admin_json_text(value, "classFilterMode")), ADMIN_SLICE(admin_json_text(value, "subString")));
    fprintf(out, "\n\n#Consumer Offset#\n%-64s  %-32s  %-4s  %-20s\n", "#Topic", "#Broker Name", "#QID", "#Consumer Offset");
    for (struct json_iterator at = json_iterate(json_get(info, "mqTable")); json_next_member(&at, &name, &value);) {
        print_queue_key(out, name);
        fprintf(out, "%-20lld\n", admin_json_count(value, "commitOffset"));
    }
    fprintf(out, "\n\n#Consumer MQ Detail#\n%-64s  %-32s  %-4s  %-20s\n", "#Topic", "#Broker Name", "#QID", "#ProcessQueueInfo");
    for (struct json_iterator at = json_iterate(json_get(info, "mqTable")); json_next_member(&at, &name, &value);) {
        print_queue_key(out, name);
        print_process_queue(out, value);
    }
    fprintf(out, "\n\n#Consumer RT&TPS#\n%-64s  %14s %14s %14s %14s %18s %25s\n", "#Topic", "#Pull RT", "#Pull TPS", "#Consume RT",
            "#ConsumeOK TPS", "#ConsumeFailed TPS", "#ConsumeFailedMsgsInHour");
    for (struct json_iterator at = json_iterate(json_get(info, "statusTable")); json_next_member(&at, &name, &value);) {
        struct slice topic = SLICE_LITERAL("");
        (void)json_text(name, &topic);
        fprintf(out, "%-64.*s  %14.2f %14.2f %14.2f %14.2f %18.2f %25lld\n", ADMIN_SLICE(topic), number_of(value, "pullRT"),
                number_of(value, "pullTPS"), number_of(value, "consumeRT"), number_of(value, "consumeOKTPS"), number_of(value, "consumeFailedTPS"),
                admin_json_count(value, "consumeFailedMsgs"));
    }
    if (json_text(json_get(info, "jstack"), &text))
        fprintf(out, "\n\n#Consumer jstack#\n%.*s", ADMIN_SLICE(text));
}

void running_info_subscription(struct json_value info, struct buffer *out)
{
    struct json_value value;
    buffer_clear(out);
    for (struct json_iterator at = json_iterate(json_get(info, "subscriptionSet")); json_next_element(&at, &value);) {
        struct slice topic = admin_json_text(value, "topic");
        if (topic_is_retry(topic))
            continue;
        buffer_append_slice(out, topic);
        buffer_append_u8(out, ':');
        buffer_append_slice(out, admin_json_text(value, "subString"));
        buffer_append_u8(out, ';');
    }
}

static bool says(struct json_value object, const char *name, const char *text)
{
    return slice_equal_text(admin_json_text(object, name), text);
}

void running_info_trouble(struct json_value info, const char *client_id, int64_t now_ms, struct buffer *out)
{
    struct json_value properties = json_get(info, "properties"), queue, state;
    bool ordered = says(properties, "PROP_CONSUMEORDERLY", "true");
    buffer_clear(out);
    if (!says(properties, "PROP_CONSUME_TYPE", "CONSUME_PASSIVELY"))
        return;
    for (struct json_iterator at = json_iterate(json_get(info, "mqTable")); json_next_member(&at, &queue, &state);) {
        char name[640];
        long long unlocks = admin_json_count(state, "tryUnlockTimes");
        long long since_lock = now_ms - admin_json_count(state, "lastLockTimestamp");
        long long since_consumed = now_ms - admin_json_count(state, "lastConsumeTimestamp");
        snprintf(name, sizeof name, "%s MessageQueue [topic=%.*s, brokerName=%.*s, queueId=%lld]", client_id,
                 ADMIN_SLICE(admin_json_text(queue, "topic")), ADMIN_SLICE(admin_json_text(queue, "brokerName")),
                 admin_json_count(queue, "queueId"));
        if (ordered && !says(state, "locked", "true"))
            buffer_append_format(out, "%s can't lock for a while, %lldms\n", name, since_lock);
        else if (ordered && says(state, "droped", "true") && unlocks > 0)
            buffer_append_format(out, "%s unlock %lld times, still failed\n", name, unlocks);
        else if (!ordered && since_consumed > BLOCKED_MS && admin_json_count(state, "cachedMsgCount") > 0)
            buffer_append_format(out, "%s can't consume for a while, maybe blocked, %lldms\n", name, since_consumed);
    }
}
