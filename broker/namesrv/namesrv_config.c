/* One row per key: reading, checking, changing and printing all come from the table. Keys that only a JVM or netty knows are taken and shown, so that a
 * namesrv.conf written for the Java name server starts ours and its tools find every line they print.
 */
#include "broker/namesrv/namesrv_config.h"

#include <stdio.h>
#include <stdlib.h>

#include "broker/edit_distance.h"
#include "broker/log.h"
#include "proto/java_properties.h"
#include "store/log_sink.h"

enum key_kind { KEY_PORT, KEY_SECONDS, KEY_BOOL, KEY_PATH, KEY_ADDRESS, KEY_LEVEL, KEY_LISTENERS, KEY_NO_EFFECT };

struct key_row {
    const char *name;
    enum key_kind kind;
    size_t offset;     /* of the member */
    size_t size;       /* of a text member */
    const char *shown; /* KEY_NO_EFFECT: RocketMQ's default */
    bool changeable;   /* by 318 */
};

#define MEMBER(name) offsetof(struct namesrv_config, name), sizeof((struct namesrv_config *)0)->name

static const struct key_row rows[] = {
    {"bindAddress", KEY_ADDRESS, MEMBER(bind_address), NULL, false},
    {"configStorePath", KEY_PATH, MEMBER(config_store_path), NULL, false},
    {"kvConfigPath", KEY_PATH, MEMBER(kv_config_path), NULL, false},
    {"listenPort", KEY_PORT, MEMBER(listen_port), NULL, false},
    {"logDir", KEY_PATH, MEMBER(log_dir), NULL, false},
    {"logLevel", KEY_LEVEL, MEMBER(log_level), NULL, false},
    {"namesrvListeners", KEY_LISTENERS, 0, 0, NULL, false},
    {"needWaitForService", KEY_BOOL, MEMBER(need_wait_for_service), NULL, false},
    {"orderMessageEnable", KEY_BOOL, MEMBER(order_message_enable), NULL, true},
    {"rocketmqHome", KEY_PATH, MEMBER(rocketmq_home), NULL, false},
    {"serverChannelMaxIdleTimeSeconds", KEY_SECONDS, MEMBER(max_idle_seconds), NULL, false},
    {"waitSecondsForService", KEY_SECONDS, MEMBER(wait_seconds_for_service), NULL, false},
    {"clusterTest", KEY_NO_EFFECT, 0, 0, "false", false},
    {"productEnvName", KEY_NO_EFFECT, 0, 0, "center", false},
    {"serverAsyncSemaphoreValue", KEY_NO_EFFECT, 0, 0, "64", false},
    {"serverCallbackExecutorThreads", KEY_NO_EFFECT, 0, 0, "0", false},
    {"serverOnewaySemaphoreValue", KEY_NO_EFFECT, 0, 0, "256", false},
    {"serverPooledByteBufAllocatorEnable", KEY_NO_EFFECT, 0, 0, "true", false},
    {"serverSelectorThreads", KEY_NO_EFFECT, 0, 0, "3", false},
    {"serverSocketBacklog", KEY_NO_EFFECT, 0, 0, "1024", false},
    {"serverSocketRcvBufSize", KEY_NO_EFFECT, 0, 0, "0", false},
    {"serverSocketSndBufSize", KEY_NO_EFFECT, 0, 0, "0", false},
    {"serverWorkerThreads", KEY_NO_EFFECT, 0, 0, "8", false},
    {"useEpollNativeSelector", KEY_NO_EFFECT, 0, 0, "false", false},
    {"writeBufferHighWaterMark", KEY_NO_EFFECT, 0, 0, "0", false},
    {"writeBufferLowWaterMark", KEY_NO_EFFECT, 0, 0, "0", false},
};
#define ROW_COUNT (sizeof rows / sizeof rows[0])

void namesrv_config_init(struct namesrv_config *config)
{
    *config = (struct namesrv_config){.listen_port = 9876, .max_idle_seconds = 120, .wait_seconds_for_service = 45};
    strcpy(config->bind_address, "0.0.0.0");
    strcpy(config->log_level, "info");
}

static const struct key_row *row_find(struct slice key)
{
    for (size_t i = 0; i < ROW_COUNT; i++) {
        if (slice_equal_text(key, rows[i].name))
            return &rows[i];
    }
    return NULL;
}

/* NULL when no key is near enough to have been meant. */
static const char *nearest(struct slice key)
{
    const char *best = NULL;
    unsigned least = (unsigned)key.size / 3 + 2;
    for (size_t i = 0; i < ROW_COUNT; i++) {
        unsigned d = edit_distance(key, rows[i].name);
        if (d < least) {
            least = d;
            best = rows[i].name;
        }
    }
    return best;
}

static int wrong(const struct key_row *row, struct slice value, const char *must, struct error *error)
{
    return error_set(error, ERROR_INVALID, "%s=%.*s: must be %s", row->name, (int)(value.size > 200 ? 200 : value.size), (const char *)value.data, must);
}

int namesrv_config_parse_listeners(struct namesrv_config *config, struct slice text, struct error *error)
{
    int count = 0;
    struct namesrv_listener listeners[NAMESRV_LISTENERS_MAX];
    for (size_t at = 0; at < text.size;) {
        const uint8_t *comma = memchr(text.data + at, ',', text.size - at);
        struct slice item = slice_of(text.data + at, comma == NULL ? text.size - at : (size_t)(comma - text.data) - at);
        at += item.size + 1;
        const uint8_t *colon = item.size == 0 ? NULL : memchr(item.data, ':', item.size);
        int32_t port = 0;
        if (colon == NULL || colon == item.data || (size_t)(colon - item.data) >= sizeof listeners[0].name ||
            !slice_to_i32(slice_of(colon + 1, (size_t)(item.data + item.size - colon) - 1), &port) || port < 1 || port > 65535)
            return error_set(error, ERROR_INVALID, "namesrvListeners: `%.*s` is not NAME:PORT", (int)(item.size > 100 ? 100 : item.size),
                             (const char *)item.data);
        if (count == NAMESRV_LISTENERS_MAX)
            return error_set(error, ERROR_INVALID, "namesrvListeners: more than %d listeners", NAMESRV_LISTENERS_MAX);
        memset(&listeners[count], 0, sizeof listeners[count]);
        memcpy(listeners[count].name, item.data, (size_t)(colon - item.data));
        listeners[count].port = port;
        count++;
    }
    memcpy(config->listeners, listeners, (size_t)count * sizeof listeners[0]);
    config->listener_count = count;
    return 0;
}

static int set(struct namesrv_config *config, const struct key_row *row, struct slice value, struct error *error)
{
    char *member = (char *)config + row->offset;
    char text[sizeof config->log_level] = {0};
    enum log_level level;
    int32_t number;
    switch (row->kind) {
    case KEY_PORT:
        if (!slice_to_i32(value, &number) || number < 1 || number > 65535)
            return wrong(row, value, "a port, 1 to 65535", error);
        memcpy(member, &number, sizeof number);
        return 0;
    case KEY_SECONDS:
        if (!slice_to_i32(value, &number) || number < 1 || number > 86400)
            return wrong(row, value, "seconds, 1 to 86400", error);
        memcpy(member, &number, sizeof number);
        return 0;
    case KEY_BOOL: {
        bool flag;
        if (!slice_to_bool(value, &flag))
            return wrong(row, value, "true or false", error);
        memcpy(member, &flag, sizeof flag);
        return 0;
    }
    case KEY_LEVEL:
        if (value.size >= row->size)
            return wrong(row, value, "debug, info, warn or error", error);
        memcpy(text, value.data, value.size);
        if (!log_level_parse(text, &level))
            return wrong(row, value, "debug, info, warn or error", error);
        memcpy(member, text, sizeof text);
        return 0;
    case KEY_PATH:
    case KEY_ADDRESS:
        if (value.size >= row->size || (value.size != 0 && memchr(value.data, 0, value.size) != NULL))
            return wrong(row, value, row->kind == KEY_PATH ? "a path of less than 512 bytes" : "an IP address", error);
        if (value.size != 0)
            memcpy(member, value.data, value.size);
        member[value.size] = 0;
        return 0;
    case KEY_LISTENERS:
        return namesrv_config_parse_listeners(config, value, error);
    case KEY_NO_EFFECT:
        return 0;
    }
    return 0;
}

int namesrv_config_read(struct namesrv_config *config, struct slice text, const char *origin, struct error *error)
{
    struct java_properties_reader reader;
    java_properties_reader_init(&reader, text);
    struct slice key, value;
    int rv = 0;
    while (rv == 0 && java_properties_next(&reader, &key, &value, &rv, error)) {
        const struct key_row *row = row_find(key);
        if (row == NULL) {
            const char *meant = nearest(key);
            LOG_WARN("%s:%u: unknown key %.*s%s%s%s", origin, reader.line, (int)key.size, (const char *)key.data,
                     meant == NULL ? "" : " (did you mean ", meant == NULL ? "" : meant, meant == NULL ? "" : "?)");
        } else
            rv = set(config, row, value, error);
    }
    if (rv != 0)
        error_wrap(error, "%s:%u", origin, reader.line);
    java_properties_reader_close(&reader);
    return rv;
}

int namesrv_config_update(struct namesrv_config *config, struct slice text, struct error *error)
{
    struct namesrv_config changed = *config; /* all or nothing */
    struct java_properties_reader reader;
    java_properties_reader_init(&reader, text);
    struct slice key, value;
    int rv = 0;
    while (rv == 0 && java_properties_next(&reader, &key, &value, &rv, error)) {
        const struct key_row *row = row_find(key);
        if (row == NULL || !row->changeable)
            rv = error_set(error, ERROR_NOT_FOUND, "Can not update config %s", row == NULL ? "key that is unknown" : row->kind == KEY_PATH ? "path" : row->name);
        else
            rv = set(&changed, row, value, error);
    }
    java_properties_reader_close(&reader);
    if (rv == 0)
        *config = changed;
    return rv;
}

int namesrv_config_restore(struct namesrv_config *config, struct slice text, struct error *error)
{
    struct java_properties_reader reader;
    java_properties_reader_init(&reader, text);
    struct slice key, value;
    int rv = 0;
    while (rv == 0 && java_properties_next(&reader, &key, &value, &rv, error)) {
        const struct key_row *row = row_find(key);
        if (row != NULL && row->changeable)
            rv = set(config, row, value, error);
    }
    java_properties_reader_close(&reader);
    return rv;
}

static void write_row(const struct namesrv_config *config, const struct key_row *row, struct buffer *out)
{
    const char *member = (const char *)config + row->offset;
    char text[NAMESRV_LISTENERS_MAX * 48];
    switch (row->kind) {
    case KEY_PORT:
    case KEY_SECONDS: {
        int number;
        memcpy(&number, member, sizeof number);
        snprintf(text, sizeof text, "%d", number);
        break;
    }
    case KEY_BOOL:
        snprintf(text, sizeof text, "%s", *(const bool *)member ? "true" : "false");
        break;
    case KEY_PATH:
    case KEY_ADDRESS:
    case KEY_LEVEL:
        java_properties_append_text(out, row->name, member);
        return;
    case KEY_LISTENERS: {
        size_t size = 0;
        text[0] = 0;
        for (int i = 0; i < config->listener_count; i++)
            size += (size_t)snprintf(text + size, sizeof text - size, "%s%s:%d", i == 0 ? "" : ",", config->listeners[i].name, config->listeners[i].port);
        break;
    }
    case KEY_NO_EFFECT:
        snprintf(text, sizeof text, "%s", row->shown);
        break;
    }
    java_properties_append_text(out, row->name, text);
}

void namesrv_config_write(const struct namesrv_config *config, struct buffer *out)
{
    for (size_t i = 0; i < ROW_COUNT; i++)
        write_row(config, &rows[i], out);
}

void namesrv_config_print(const struct namesrv_config *config, struct buffer *out)
{
    for (size_t i = 0; i < ROW_COUNT; i++) {
        if (rows[i].kind == KEY_NO_EFFECT)
            buffer_append_format(out, "# no effect here, a setting of the Java server: %s\n", rows[i].name);
        else
            write_row(config, &rows[i], out);
    }
}

const char *namesrv_config_listener_name(const struct namesrv_config *config, int port)
{
    for (int i = 0; i < config->listener_count; i++) {
        if (config->listeners[i].port == port)
            return config->listeners[i].name;
    }
    return NULL;
}
