#include "broker/broker_config.h"

#include <assert.h>
#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>
#include <uv.h>

#include "broker/edit_distance.h"
#include "broker/log.h"
#include "broker/service/retention.h"
#include "broker/service/schedule.h"
#include "dledger/dledger_commit_log.h"
#include "proto/java_properties.h"
#include "proto/topic_validator.h"
#include "store/env.h"

#define CONFIG_NO_FIELD SIZE_MAX

enum config_type { CONFIG_TEXT, CONFIG_INT, CONFIG_LONG, CONFIG_BOOL, CONFIG_CHOICE };

struct config_row {
    const char *key;
    enum config_type type;
    size_t offset; /* of the field, CONFIG_NO_FIELD */
    const char *fallback;
    int64_t min, max;
    const char *choices; /* "A|B" */
    bool changeable;     /* while running */
    const char *reported; /* what request 26 says of something that is not built */
    const char *no_effect;
    const char *doc;
};

#include "broker/broker_config_rows.h"

#define ROWS (sizeof rows / sizeof rows[0])
static_assert(ROWS <= BROKER_CONFIG_KEYS_MAX, "struct broker_config has room for every row");

/* ---- one value ---- */

static bool choice_known(const char *choices, const char *text)
{
    size_t size = strlen(text);
    for (const char *at = choices; *at != '\0';) {
        size_t part = strcspn(at, "|");
        if (part == size && memcmp(at, text, size) == 0)
            return true;
        at += part + (at[part] == '|');
    }
    return false;
}

/* Checks text and writes the field. */
static int apply(struct broker_config *config, const struct config_row *row, const char *text, struct error *error)
{
    void *field = row->offset == CONFIG_NO_FIELD ? NULL : (uint8_t *)config + row->offset;
    int64_t number;
    switch (row->type) {
    case CONFIG_TEXT:
        if (field != NULL)
            memcpy(field, &text, sizeof text);
        return 0;
    case CONFIG_CHOICE:
        if (!choice_known(row->choices, text))
            return error_set(error, ERROR_INVALID, "%s=%s: allowed is one of %s", row->key, text, row->choices);
        if (field != NULL)
            memcpy(field, &text, sizeof text);
        return 0;
    case CONFIG_BOOL: {
        bool value = strcasecmp(text, "true") == 0;
        if (!value && strcasecmp(text, "false") != 0)
            return error_set(error, ERROR_INVALID, "%s=%s: allowed is true or false", row->key, text);
        if (field != NULL)
            memcpy(field, &value, sizeof value);
        return 0;
    }
    case CONFIG_INT:
    case CONFIG_LONG:
        if (!slice_to_i64(slice_of_text(text), &number))
            return error_set(error, ERROR_INVALID, "%s=%s: a number is needed", row->key, text);
        if (number < row->min || number > row->max)
            return error_set(error, ERROR_INVALID, "%s=%s: allowed is %lld to %lld", row->key, text, (long long)row->min,
                             (long long)row->max);
        if (field != NULL && row->type == CONFIG_INT) {
            int32_t narrow = (int32_t)number;
            memcpy(field, &narrow, sizeof narrow);
        } else if (field != NULL) {
            memcpy(field, &number, sizeof number);
        }
        return 0;
    }
    return 0;
}

/* A copy of the value as text, the caller's to free. */
static int text_of(const struct config_row *row, struct slice value, char **text, struct error *error)
{
    if (value.size > BROKER_CONFIG_VALUE_MAX)
        return error_set(error, ERROR_INVALID, "%s: its value has more than %d characters", row->key, BROKER_CONFIG_VALUE_MAX);
    /* Java's Properties keep blanks at the end of a value; nobody means them. */
    while (value.size > 0 && isspace(value.data[value.size - 1]))
        value.size--;
    if (slice_holds(value, '\0'))
        return error_set(error, ERROR_INVALID, "%s: its value holds a NUL character", row->key);
    *text = slice_to_text(value);
    return *text != NULL ? 0 : error_set(error, ERROR_NO_MEMORY, "%s: %s", row->key, error_text(ERROR_NO_MEMORY));
}

static int set_row(struct broker_config *config, size_t at, struct slice value, struct error *error)
{
    char *text;
    int rv = text_of(&rows[at], value, &text, error);
    if (rv != 0)
        return rv;
    rv = apply(config, &rows[at], text, error);
    if (rv != 0) {
        free(text);
        return rv;
    }
    free(config->texts[at]);
    config->texts[at] = text;
    return 0;
}

static size_t find_row(struct slice key)
{
    size_t at = 0;
    while (at < ROWS && !slice_equal_text(key, rows[at].key))
        at++;
    return at;
}

int broker_config_set(struct broker_config *config, const char *key, struct slice value, struct error *error)
{
    size_t at = find_row(slice_of_text(key));
    if (at == ROWS)
        return error_set(error, ERROR_NOT_FOUND, "unknown key %s", key);
    int rv = set_row(config, at, value, error);
    if (rv == 0)
        config->given[at] = true;
    return rv;
}

static int find_changeable(struct slice key, size_t *row, struct error *error)
{
    size_t at = find_row(key);
    int key_size = key.size > 128 ? 128 : (int)key.size;
    if (at == ROWS)
        return error_set(error, ERROR_NOT_FOUND, "unknown key %.*s", key_size, (const char *)key.data);
    if (rows[at].no_effect != NULL)
        return error_set(error, ERROR_INVALID, "%s has no effect: %s", rows[at].key, rows[at].no_effect);
    if (!rows[at].changeable)
        return error_set(error, ERROR_INVALID, "%s cannot be changed while the broker runs: change broker.conf and restart", rows[at].key);
    *row = at;
    return 0;
}

int broker_config_may_change(struct slice key, struct slice value, struct error *error)
{
    char *text;
    size_t at;
    int rv = find_changeable(key, &at, error);
    if (rv != 0)
        return rv;
    struct config_row row = rows[at];
    row.offset = CONFIG_NO_FIELD;
    rv = text_of(&row, value, &text, error);
    if (rv != 0)
        return rv;
    rv = apply(NULL, &row, text, error);
    free(text);
    return rv;
}

int broker_config_change(struct broker_config *config, struct slice key, struct slice value, struct error *error)
{
    size_t at;
    int rv = find_changeable(key, &at, error);
    return rv == 0 ? set_row(config, at, value, error) : rv;
}

/* ---- nearest key ---- */

const char *broker_config_nearest(struct slice key)
{
    const char *nearest = NULL;
    unsigned best = (unsigned)(key.size / 3 < 2 ? 2 : key.size / 3) + 1;
    for (size_t i = 0; i < ROWS; i++) {
        unsigned distance = edit_distance(key, rows[i].key);
        if (distance < best) {
            best = distance;
            nearest = rows[i].key;
        }
    }
    return nearest;
}

/* ---- reading ---- */

int broker_config_read(struct broker_config *config, struct slice text, const char *origin, struct error *error)
{
    struct java_properties_reader reader;
    struct slice key, value;
    int rv = 0;
    java_properties_reader_init(&reader, text);
    while (java_properties_next(&reader, &key, &value, &rv, error)) {
        size_t at = find_row(key);
        if (at < ROWS) {
            rv = set_row(config, at, value, error);
            config->given[at] = true;
        } else {
            const char *nearest = broker_config_nearest(key);
            int size = key.size > 128 ? 128 : (int)key.size;
            LOG_WARN("%s line %u: unknown key %.*s is ignored%s%s%s", origin, reader.line, size, (const char *)key.data,
                     nearest == NULL ? "" : ", did you mean ", nearest == NULL ? "" : nearest, nearest == NULL ? "" : "?");
        }
        if (rv != 0) {
            error_wrap(error, "%s line %u", origin, reader.line);
            break;
        }
    }
    if (rv == ERROR_MALFORMED)
        error_wrap(error, "%s", origin);
    java_properties_reader_close(&reader);
    return rv;
}

int broker_config_read_file(struct broker_config *config, const char *path, struct error *error)
{
    struct env env;
    struct env_file *file;
    uint64_t size = 0;
    env_real_init(&env);
    int rv = env_open(&env, path, ENV_READ, &file);
    if (rv != 0)
        return error_set(error, ERROR_IO, "%s: %s", path, strerror(-rv));
    uint8_t *text = NULL;
    rv = env.ops->size(&env, file, &size);
    if (rv == 0 && size > BROKER_CONFIG_FILE_MAX)
        rv = error_set(error, ERROR_TOO_LARGE, "%s: more than %u bytes", path, BROKER_CONFIG_FILE_MAX);
    else if (rv != 0)
        rv = error_set(error, ERROR_IO, "%s: %s", path, strerror(-rv));
    else if ((text = malloc(size + 1)) == NULL)
        rv = error_set(error, ERROR_NO_MEMORY, "%s: %s", path, error_text(ERROR_NO_MEMORY));
    if (rv == 0) {
        ssize_t got = env_read(&env, file, text, size, 0);
        if (got < 0)
            rv = error_set(error, ERROR_IO, "%s: %s", path, strerror((int)-got));
        else
            rv = broker_config_read(config, slice_of(text, (size_t)got), path, error);
    }
    free(text);
    env_close(&env, file);
    return rv;
}

/* ---- defaults of this machine ---- */

static void first_address(char out[64])
{
    uv_interface_address_t *addresses = NULL;
    int count = 0;
    strcpy(out, "127.0.0.1");
    if (uv_interface_addresses(&addresses, &count) != 0)
        return;
    for (int i = 0; i < count; i++) {
        if (!addresses[i].is_internal && addresses[i].address.address4.sin_family == AF_INET) {
            uv_ip4_name(&addresses[i].address.address4, out, 64);
            break;
        }
    }
    uv_free_interface_addresses(addresses, count);
}

static int set_default(struct broker_config *config, const char *key, const char *text, struct error *error)
{
    size_t at = find_row(slice_of_text(key));
    assert(at < ROWS);
    return config->texts[at] != NULL && config->texts[at][0] != '\0' ? 0 : set_row(config, at, slice_of_text(text), error);
}

int broker_config_init(struct broker_config *config, struct error *error)
{
    memset(config, 0, sizeof *config);
    for (size_t i = 0; i < ROWS; i++) {
        int rv = set_row(config, i, slice_of_text(rows[i].fallback), error);
        if (rv != 0) {
            broker_config_close(config);
            return rv;
        }
    }
    config->group = config->self_id = "";
    return 0;
}

void broker_config_close(struct broker_config *config)
{
    for (size_t i = 0; i < ROWS; i++) {
        free(config->texts[i]);
        config->texts[i] = NULL;
    }
}

/* ---- what keys say together ---- */

static bool valid_id(struct slice id)
{
    if (id.size < 2 || id.size > 10 || !isalpha(id.data[0]))
        return false;
    for (size_t i = 1; i < id.size; i++) {
        if (!isdigit(id.data[i]))
            return false;
    }
    return true;
}

/* Port behind the last colon of "host:port", 0 when it is none. */
static int port_of(struct slice address)
{
    int32_t port;
    size_t colon = address.size;
    while (colon > 0 && address.data[colon - 1] != ':')
        colon--;
    if (colon < 2 || !slice_to_i32(slice_of(address.data + colon, address.size - colon), &port) || port < 1 || port > 65535)
        return 0;
    return port;
}

static int check_peers(struct broker_config *config, int *own_port, struct error *error)
{
    struct slice ids[DLEDGER_MEMBERS_MAX];
    const char *text = config->dleger_peers;
    int count = 0;
    *own_port = 0;
    if (text[0] == '\0')
        return error_set(error, ERROR_INVALID,
                         "enableDLegerCommitLog=true needs dLegerPeers=n0-host:port;n1-host:port;... (or false: a group of one)");
    for (const char *at = text; *at != '\0';) {
        size_t size = strcspn(at, ";");
        struct slice peer = slice_of(at, size);
        at += size + (at[size] == ';');
        while (peer.size > 0 && isspace(peer.data[0]))
            peer = slice_of(peer.data + 1, peer.size - 1);
        while (peer.size > 0 && isspace(peer.data[peer.size - 1]))
            peer.size--;
        if (peer.size == 0)
            continue;
        const uint8_t *dash = memchr(peer.data, '-', peer.size);
        struct slice id = slice_of(peer.data, dash == NULL ? 0 : (size_t)(dash - peer.data));
        int port = dash == NULL ? 0 : port_of(slice_of(dash + 1, peer.size - id.size - 1));
        if (!valid_id(id) || port == 0)
            return error_set(error, ERROR_INVALID, "dLegerPeers: \"%.*s\" is no member: one letter and a number, -, host:port", (int)peer.size,
                             (const char *)peer.data);
        for (int i = 0; i < count; i++) {
            if (slice_equal(ids[i], id))
                return error_set(error, ERROR_INVALID, "dLegerPeers: id %.*s is there twice", (int)id.size, (const char *)id.data);
        }
        if (count == DLEDGER_MEMBERS_MAX)
            return error_set(error, ERROR_INVALID, "dLegerPeers: more than %d members", DLEDGER_MEMBERS_MAX);
        ids[count++] = id;
        if (slice_equal_text(id, config->dleger_self_id))
            *own_port = port;
    }
    if (*own_port == 0)
        return error_set(error, ERROR_INVALID, "dLegerSelfId=%s is not among dLegerPeers=%s", config->dleger_self_id, text);
    return 0;
}

static int parse_listeners(struct broker_config *config, struct error *error)
{
    config->listener_count = 0;
    for (const char *at = config->advertised_listeners; *at != '\0';) {
        size_t size = strcspn(at, ",");
        struct slice part = slice_of(at, size);
        at += size + (at[size] == ',');
        while (part.size > 0 && isspace(part.data[0]))
            part = slice_of(part.data + 1, part.size - 1);
        if (part.size == 0)
            continue;
        const uint8_t *colon = memchr(part.data, ':', part.size);
        int port = port_of(part);
        size_t name_size = colon == NULL ? 0 : (size_t)(colon - part.data);
        size_t host_end = part.size;
        while (host_end > 0 && part.data[host_end - 1] != ':')
            host_end--;
        size_t host_size = colon == NULL || host_end < name_size + 2 ? 0 : host_end - name_size - 2;
        if (config->listener_count == BROKER_LISTENERS_MAX)
            return error_set(error, ERROR_INVALID, "advertisedListeners: more than %d", BROKER_LISTENERS_MAX);
        struct broker_listener *listener = &config->listeners[config->listener_count];
        if (port == 0 || name_size == 0 || name_size >= sizeof listener->name || host_size == 0 || host_size >= sizeof listener->host)
            return error_set(error, ERROR_INVALID, "advertisedListeners: \"%.*s\" is not NAME:HOST:PORT", (int)part.size,
                             (const char *)part.data);
        memset(listener, 0, sizeof *listener);
        memcpy(listener->name, part.data, name_size);
        memcpy(listener->host, colon + 1, host_size);
        listener->port = port;
        config->listener_count++;
    }
    return 0;
}

static int check_ports(const struct broker_config *config, int own_port, struct error *error)
{
    const struct {
        const char *name;
        int port;
    } ports[] = {
        {"listenPort", config->listen_port},
        {"listenPort-2", config->listen_port - 2},
        {"namesrvPort", config->enable_embedded_namesrv ? config->namesrv_port : 0},
        {"the port of this member in dLegerPeers", own_port},
    };
    const size_t count = sizeof ports / sizeof ports[0];
    for (size_t i = 0; i < count; i++) {
        for (size_t j = i + 1; j < count; j++) {
            if (ports[i].port > 0 && ports[i].port == ports[j].port)
                return error_set(error, ERROR_INVALID, "%s and %s are both %d: give one of them another port", ports[i].name, ports[j].name,
                                 ports[i].port);
        }
    }
    return 0;
}

static int refuse_unbuilt(const struct broker_config *config, struct error *error)
{
    for (size_t i = 0; i < ROWS; i++) {
        if (strcmp(rows[i].key, "aclEnable") == 0 && strcasecmp(config->texts[i], "true") == 0)
            return error_set(error, ERROR_INVALID, "aclEnable=true: access control is not built yet, and a broker that only looked protected "
                                                   "would be worse than none; take the key out to start without it");
        if (rows[i].reported != NULL && config->given[i] && strcasecmp(config->texts[i], rows[i].reported) != 0)
            LOG_WARN("%s=%s has no effect: %s", rows[i].key, config->texts[i], rows[i].no_effect);
    }
    return 0;
}

int broker_config_finish(struct broker_config *config, struct error *error)
{
    char text[512], host[256];
    size_t host_size = sizeof host;
    int own_port = 0, rv;
    if (strcmp(config->broker_role, "SLAVE") == 0)
        return error_set(error, ERROR_INVALID,
                         "brokerRole=SLAVE: there are no slaves that follow one master; let every broker of the group be a member: "
                         "enableDLegerCommitLog=true, the same dLegerGroup and dLegerPeers, and its own dLegerSelfId");
    rv = refuse_unbuilt(config, error);
    if (rv != 0)
        return rv;

    if (uv_os_gethostname(host, &host_size) != 0 || !topic_or_group_is_legal(slice_of_text(host)) || host[0] == '\0')
        strcpy(host, "DEFAULT_BROKER");
    const char *home = getenv("HOME");
    snprintf(text, sizeof text, "%s/store", home == NULL || home[0] == '\0' ? "." : home);
    if ((rv = set_default(config, "brokerName", host, error)) != 0 || (rv = set_default(config, "storePathRootDir", text, error)) != 0)
        return rv;
    const char *log_dir = getenv("LEDGERMQ_LOG_DIR");
    if (log_dir != NULL && log_dir[0] != '\0')
        snprintf(text, sizeof text, "%s", log_dir);
    else
        snprintf(text, sizeof text, "%s/logs", config->store_path_root_dir);
    if ((rv = set_default(config, "logDir", text, error)) != 0)
        return rv;
    /* What Java's broker has there, and its tools read as the number of CPUs. */
    size_t callback_threads = find_row(SLICE_LITERAL("clientCallbackExecutorThreads"));
    snprintf(text, sizeof text, "%u", uv_available_parallelism());
    if (!config->given[callback_threads] && (rv = set_row(config, callback_threads, slice_of_text(text), error)) != 0)
        return rv;
    char address[64];
    first_address(address);
    if ((rv = set_default(config, "brokerIP1", address, error)) != 0 || (rv = set_default(config, "brokerIP2", config->broker_ip1, error)) != 0 ||
        (rv = set_default(config, "dLegerGroup", config->broker_name, error)) != 0)
        return rv;

    struct error name_error;
    if (topic_validate(slice_of_text(config->broker_name), &name_error) != 0 ||
        topic_validate(slice_of_text(config->broker_cluster_name), &name_error) != 0)
        return error_set(error, ERROR_INVALID, "brokerName=%s, brokerClusterName=%s: each also names a topic: %s", config->broker_name,
                         config->broker_cluster_name, name_error.message);
    if (!valid_id(slice_of_text(config->dleger_self_id)))
        return error_set(error, ERROR_INVALID, "dLegerSelfId=%s: one letter and a number, for example n0", config->dleger_self_id);
    config->group_of_one = !config->enable_dleger_commit_log;
    config->group = config->dleger_group;
    config->self_id = config->dleger_self_id;
    config->slave_id = strtoll(config->dleger_self_id + 1, NULL, 10) + 1;
    config->message_memory_bytes =
        (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE) / 100 * config->access_message_in_memory_max_ratio;
    if (!config->group_of_one && (rv = check_peers(config, &own_port, error)) != 0)
        return rv;
    if ((rv = check_ports(config, own_port, error)) != 0 || (rv = parse_listeners(config, error)) != 0)
        return rv;
    rv = schedule_parse_levels(config->message_delay_level, config->delay_level_ms, &config->delay_levels, error);
    if (rv != 0) {
        error_wrap(error, "messageDelayLevel=%s", config->message_delay_level);
        return rv;
    }
    if (config->heartbeat_ms * 2 > config->election_timeout_ms)
        return error_set(error, ERROR_INVALID, "heartbeatMs=%d: at most half of electionTimeoutMs=%d, or followers stand for election in between",
                         config->heartbeat_ms, config->election_timeout_ms);
    if (config->dledger_index_file_size % 32 != 0)
        return error_set(error, ERROR_INVALID, "mappedFileSizeForEntryIndex=%lld: a multiple of 32 is needed",
                         (long long)config->dledger_index_file_size);
    uint32_t hours;
    if (!retention_parse_hours(config->delete_when, &hours))
        return error_set(error, ERROR_INVALID, "deleteWhen=%s: hours of the day are needed, like 04 or 02;14", config->delete_when);
    config->mapped_file_size_consume_queue = (config->mapped_file_size_consume_queue + 19) / 20 * 20;
    config->sync_flush = strcmp(config->flush_disk_type, "SYNC_FLUSH") == 0;
    return 0;
}

/* ---- showing ---- */

void broker_config_properties(const struct broker_config *config, bool leads, struct buffer *out)
{
    char id[24];
    snprintf(id, sizeof id, "%lld", leads ? 0ll : (long long)config->slave_id);
    for (size_t i = 0; i < ROWS; i++) {
        const char *text = rows[i].reported != NULL ? rows[i].reported : config->texts[i];
        /* As DLedgerRoleChangeHandler sets them. */
        if (strcmp(rows[i].key, "brokerId") == 0)
            text = id;
        else if (strcmp(rows[i].key, "brokerRole") == 0)
            text = leads ? "SYNC_MASTER" : "SLAVE";
        java_properties_append_text(out, rows[i].key, text);
    }
}

void broker_config_print(const struct broker_config *config, struct buffer *out)
{
    for (size_t i = 0; i < ROWS; i++) {
        buffer_append_format(out, "%s=%s", rows[i].key, config->texts[i]);
        if (rows[i].no_effect != NULL)
            buffer_append_format(out, "   # no effect: %s", rows[i].no_effect);
        buffer_append_u8(out, '\n');
    }
}

void broker_config_print_table(struct buffer *out)
{
    static const char *const type_names[] = {
        [CONFIG_TEXT] = "text", [CONFIG_INT] = "number", [CONFIG_LONG] = "number", [CONFIG_BOOL] = "boolean", [CONFIG_CHOICE] = "choice"};
    buffer_append_text(out, "| Key | Type | Default | Allowed | While running | Meaning |\n|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < ROWS; i++) {
        const struct config_row *row = &rows[i];
        if (row->no_effect != NULL)
            continue;
        buffer_append_format(out, "| `%s` | %s | %s%s%s | ", row->key, type_names[row->type], row->fallback[0] == '\0' ? "" : "`",
                             row->fallback, row->fallback[0] == '\0' ? "" : "`");
        if (row->type == CONFIG_CHOICE) {
            for (const char *at = row->choices; *at != '\0'; at++)
                buffer_append_text(out, *at == '|' ? ", " : (const char[]){*at, '\0'});
        } else if (row->type == CONFIG_INT || row->type == CONFIG_LONG) {
            buffer_append_format(out, "%lld to %lld", (long long)row->min, (long long)row->max);
        }
        buffer_append_format(out, " | %s | %s |\n", row->changeable ? "yes" : "", row->doc);
    }
    buffer_append_text(out, "\nAccepted without effect:\n\n| Key | Why |\n|---|---|\n");
    for (size_t i = 0; i < ROWS; i++) {
        if (rows[i].no_effect != NULL)
            buffer_append_format(out, "| `%s` | %s |\n", rows[i].key, rows[i].no_effect);
    }
}
