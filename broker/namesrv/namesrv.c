/* One server on all its ports: which one was asked is a matter of the connection (connection->local_port). */
#include "broker/namesrv/namesrv.h"

#include <stdio.h>
#include <stdlib.h>

#include "broker/broker.h"
#include "broker/limits.h"
#include "broker/namesrv/namesrv_default_request_processor.h"
#include "broker/remoting/connection.h"
#include "broker/remoting/listener.h"
#include "store/log_sink.h"
#include "store/state_file.h"

#define CONFIG_BYTES_MAX 65536u

int64_t namesrv_now_ms(const struct namesrv *namesrv)
{
    return (int64_t)(env_monotonic_us(namesrv->env) / 1000);
}

static void on_frame(void *context, struct connection *connection, uint8_t *frame, size_t size)
{
    namesrv_default_request_processor(context, connection, frame, size);
}

static void on_closed(void *context, struct connection *connection)
{
    struct namesrv *namesrv = context;
    route_info_connection_closed(&namesrv->routes, connection->id);
}

static void close_silent(void *argument, uint64_t connection_id)
{
    struct namesrv *namesrv = argument;
    struct connection *connection = remoting_server_find(namesrv->server, connection_id);
    if (connection != NULL)
        connection_close(connection);
}

static void on_scan(uv_timer_t *timer)
{
    struct namesrv *namesrv = timer->data;
    route_info_scan(&namesrv->routes, namesrv_now_ms(namesrv), close_silent, namesrv);
}

_Static_assert(NAMESRV_LISTENERS_MAX + 1 <= LIMIT_LISTENERS, "a server has this many ports at most");

/* What 318 changed before the last stop. */
static int restore_config(struct namesrv *namesrv, struct error *error)
{
    const char *path = namesrv->config.config_store_path;
    if (path[0] == 0)
        return 0;
    struct buffer text;
    buffer_init(&text, 0);
    int rv = state_file_read(namesrv->env, path, CONFIG_BYTES_MAX, NULL, NULL, &text, error);
    if (rv == 0)
        rv = namesrv_config_restore(&namesrv->config, buffer_slice(&text), error);
    else if (rv == ERROR_NOT_FOUND)
        rv = 0;
    buffer_close(&text);
    if (rv != 0)
        error_wrap(error, "%s", path);
    return rv;
}

static int listen_on_all(struct namesrv *namesrv, struct error *error)
{
    const struct namesrv_config *config = &namesrv->config;
    int rv = remoting_server_listen(namesrv->server, config->bind_address, config->listen_port, error);
    for (int i = 0; i < config->listener_count && rv == 0; i++) {
        if (config->listeners[i].port != config->listen_port)
            rv = remoting_server_listen(namesrv->server, config->bind_address, config->listeners[i].port, error);
    }
    return rv;
}

static void finish(struct namesrv *namesrv)
{
    void (*stopped)(void *) = namesrv->stopped;
    void *argument = namesrv->stopped_argument;
    remoting_server_free(namesrv->server);
    route_info_manager_close(&namesrv->routes);
    kv_config_manager_close(&namesrv->kv);
    free(namesrv);
    if (stopped != NULL)
        stopped(argument);
}

static void on_server_closed(void *argument)
{
    struct namesrv *namesrv = argument;
    if (--namesrv->open_handles == 0)
        finish(namesrv);
}

static void on_timer_closed(uv_handle_t *handle)
{
    on_server_closed(handle->data);
}

int namesrv_start(struct namesrv **result, uv_loop_t *loop, struct env *env, const struct namesrv_config *config, struct error *error)
{
    struct namesrv *namesrv = calloc(1, sizeof *namesrv);
    if (namesrv == NULL)
        return error_set(error, ERROR_NO_MEMORY, "no memory for the name server");
    namesrv->loop = loop;
    namesrv->env = env;
    namesrv->config = *config;
    namesrv->started_ms = namesrv_now_ms(namesrv);
    route_info_manager_init(&namesrv->routes);
    int rv = restore_config(namesrv, error);
    if (rv != 0)
        goto free_it;
    rv = kv_config_manager_open(&namesrv->kv, env, config->kv_config_path, error);
    if (rv != 0)
        goto free_it;
    struct remoting_server_options options = {
        .loop = loop,
        .name = "namesrv",
        .idle_ms = (uint32_t)config->max_idle_seconds * 1000,
        .context = namesrv,
        .on_frame = on_frame,
        .on_closed = on_closed,
    };
    namesrv->server = remoting_server_new(&options, error);
    if (namesrv->server == NULL) {
        rv = ERROR_NO_MEMORY;
        goto close_tables;
    }
    uv_timer_init(loop, &namesrv->scan);
    namesrv->scan.data = namesrv;
    uv_timer_start(&namesrv->scan, on_scan, NAMESRV_SCAN_MS, NAMESRV_SCAN_MS);
    rv = listen_on_all(namesrv, error);
    if (rv != 0) {
        error_wrap(error, "name server");
        namesrv_stop(namesrv, NULL, NULL); /* frees it once the loop has closed what is open */
        return rv;
    }
    *result = namesrv;
    return 0;

close_tables:
    kv_config_manager_close(&namesrv->kv);
    route_info_manager_close(&namesrv->routes);
free_it:
    free(namesrv);
    return rv;
}

void namesrv_stop(struct namesrv *namesrv, void (*stopped)(void *argument), void *argument)
{
    namesrv->stopped = stopped;
    namesrv->stopped_argument = argument;
    namesrv->open_handles = 2;
    uv_close((uv_handle_t *)&namesrv->scan, on_timer_closed);
    remoting_server_close(namesrv->server, on_server_closed, namesrv);
}

int namesrv_start_embedded(struct broker *broker, struct error *error)
{
    const struct broker_config *from = &broker->config;
    struct namesrv_config config;
    namesrv_config_init(&config);
    config.listen_port = from->namesrv_port;
    config.max_idle_seconds = from->server_channel_max_idle_time_seconds;
    if ((size_t)snprintf(config.kv_config_path, sizeof config.kv_config_path, "%s/namesrv/kvConfig.json", from->store_path_root_dir) >=
            sizeof config.kv_config_path ||
        (size_t)snprintf(config.config_store_path, sizeof config.config_store_path, "%s/namesrv/namesrv.properties", from->store_path_root_dir) >=
            sizeof config.config_store_path ||
        (size_t)snprintf(config.rocketmq_home, sizeof config.rocketmq_home, "%s", from->rocketmq_home) >= sizeof config.rocketmq_home ||
        (size_t)snprintf(config.bind_address, sizeof config.bind_address, "%s", from->bind_address) >= sizeof config.bind_address)
        return error_set(error, ERROR_INVALID, "storePathRootDir, rocketmqHome or bindAddress is too long");
    int rv = namesrv_config_parse_listeners(&config, slice_of_text(from->namesrv_listeners), error);
    return rv != 0 ? rv : namesrv_start(&broker->namesrv, broker->loop, &broker->env, &config, error);
}
