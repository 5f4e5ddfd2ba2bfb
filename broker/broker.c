/* One node, put together: who is made before whom, and the way down (broker_parts.c makes most of it).
 *
 * Start: directory lock -> tables -> log and store (recovery) -> timers -> name server, registration -> ports.
 * Stop: unregister -> no more reads from the pool -> the log (leadership over, waiting sends answered, sync) -> clients -> name server -> files.
 *
 * Follows org.apache.rocketmq.broker.BrokerController.
 */
#include "broker/broker.h"
#include "broker/limits.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "broker/broker_parts.h"
#include "broker/log.h"
#include "broker/metadata/consumer_offset.h"
#include "broker/metadata/metadata.h"
#include "broker/metadata/topic_config.h"
#include "broker/namesrv/namesrv.h"
#include "broker/namesrv/registrar.h"
#include "broker/processor/cold_read.h"
#include "broker/processor/processor_table.h"
#include "broker/processor/pull_hold.h"
#include "broker/remoting/client_call.h"
#include "broker/remoting/client_registry.h"
#include "broker/remoting/connection.h"
#include "broker/remoting/listener.h"
#include "dledger/new_group.h"
#include "store/format_version.h"

/* ---- server's callbacks ---- */

static void on_connection_closed(void *context, struct connection *connection)
{
    struct broker *broker = context;
    pull_hold_connection_closed(broker->holds, connection->id);
    client_call_connection_closed(broker->calls, connection->id);
    client_registry_connection_closed(broker, connection->id);
}

static void on_unpin(void *context, struct mapped_file *pinned)
{
    struct broker *broker = context;
    dledger_commit_log_unpin(broker->log, pinned);
}

/* ---- start ---- */

/* brokerIP1 stands in every message (store host) and must be an address then. */
static int resolve_store_host(struct broker *broker, struct error *error)
{
    struct broker_config *config = &broker->config;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    uv_getaddrinfo_t request;
    char host[256];
    size_t size = strlen(config->broker_ip1);
    if (size >= 2 && config->broker_ip1[0] == '[' && config->broker_ip1[size - 1] == ']')
        snprintf(host, sizeof host, "%.*s", (int)size - 2, config->broker_ip1 + 1);
    else
        snprintf(host, sizeof host, "%s", config->broker_ip1);
    int rv = uv_getaddrinfo(broker->loop, &request, NULL, host, NULL, &hints);
    if (rv != 0)
        return error_set(error, ERROR_INVALID, "brokerIP1=%s cannot be resolved: %s", config->broker_ip1, uv_strerror(rv));
    const struct addrinfo *best = NULL;
    for (const struct addrinfo *at = request.addrinfo; at != NULL; at = at->ai_next) {
        if (best == NULL || (best->ai_family != AF_INET && at->ai_family == AF_INET))
            best = at;
    }
    if (best != NULL && best->ai_family == AF_INET) {
        broker->store_host.address_size = 4;
        memcpy(broker->store_host.address, &((const struct sockaddr_in *)(const void *)best->ai_addr)->sin_addr, 4);
    } else if (best != NULL && best->ai_family == AF_INET6) {
        broker->store_host.address_size = 16;
        memcpy(broker->store_host.address, &((const struct sockaddr_in6 *)(const void *)best->ai_addr)->sin6_addr, 16);
    }
    uv_freeaddrinfo(request.addrinfo);
    if (broker->store_host.address_size == 0)
        return error_set(error, ERROR_INVALID, "brokerIP1=%s has no address", config->broker_ip1);
    broker->store_host.port = config->listen_port;
    /* The name is what clients are told: in a container network it outlives the address. */
    broker_config_address(config->broker_ip1, config->listen_port, broker->address, sizeof broker->address);
    return 0;
}

static void root_path(const struct broker *broker, const char *name, char out[1024])
{
    snprintf(out, 1024, "%s/%s", broker->config.store_path_root_dir, name);
}

#define LOCK_WAIT_MS 2000
#define LOCK_STEP_MS 10

int broker_take_directory(struct broker *broker, struct error *error)
{
    char path[1024];
    struct env *env = &broker->env;
    env_real_init(env);
    const char *root = broker->config.store_path_root_dir;
    int rv = env->ops->make_dir(env, root);
    if (rv != 0)
        return error_set(error, ERROR_IO, "storePathRootDir=%s: %s", root, strerror(-rv));
    root_path(broker, "lock", path);
    /* A process that was killed keeps its lock until the kernel has taken its memory back: with thousands of queue files mapped that takes longer than
     * its successor to get here. */
    for (int waited_ms = 0;; waited_ms += LOCK_STEP_MS) {
        rv = env_open(env, path, ENV_WRITE | ENV_CREATE | ENV_LOCK, &broker->lock_file);
        if (rv != -EWOULDBLOCK || waited_ms >= LOCK_WAIT_MS)
            break;
        uv_sleep(LOCK_STEP_MS);
    }
    if (rv == -EWOULDBLOCK)
        return error_set(error, ERROR_LOCKED, "Lock failed, MQ already started: another process works in %s", root);
    if (rv == 0)
        rv = env_write(env, broker->lock_file, "lock", 4, 0);
    if (rv == 0)
        rv = env_sync(env, broker->lock_file);
    if (rv != 0)
        return error_set(error, ERROR_IO, "%s: %s", path, strerror(-rv));
    return format_version_check(env, root, error);
}

/* Exists while the broker runs; left behind by a kill. Says so to people, recovery looks at the log itself. */
static void mark_running(struct broker *broker, bool running)
{
    char path[1024];
    struct env_file *file;
    root_path(broker, "abort", path);
    if (!running)
        (void)broker->env.ops->unlink(&broker->env, path);
    else if (env_open(&broker->env, path, ENV_WRITE | ENV_CREATE, &file) == 0)
        env_close(&broker->env, file);
}

static int open_parts(struct broker *broker, struct error *error)
{
    const struct broker_config *config = &broker->config;
    const struct remoting_server_options options = {
        .loop = broker->loop,
        .name = "broker",
        .connections_max = (uint32_t)config->connections_max,
        .frame_timeout_ms = (uint32_t)config->client_frame_timeout_ms,
        .idle_ms = (uint32_t)config->server_channel_max_idle_time_seconds * 1000,
        .context = broker,
        .on_frame = processor_on_frame,
        .on_closed = on_connection_closed,
        .unpin = on_unpin,
    };
    /* First, so that its write hook runs behind the log's (listener.h). */
    broker->server = remoting_server_new(&options, error);
    return broker->server == NULL ? (error == NULL ? ERROR_NO_MEMORY : error->code) : broker_parts_open(broker, error);
}

static struct dledger_options log_options(const struct broker_config *config)
{
    return (struct dledger_options){
        .cluster = config->broker_cluster_name,
        .group = config->group,
        .self_id = config->self_id,
        .peers = config->group_of_one ? NULL : config->dleger_peers,
        .dir = config->store_path_root_dir,
        .segment_size = (uint64_t)config->mapped_file_size_commit_log,
        .index_file_size = (uint64_t)config->dledger_index_file_size,
        .durability = config->sync_flush ? DURABILITY_B : DURABILITY_A,
        .election_timeout_ms = (uint32_t)config->election_timeout_ms,
        .heartbeat_ms = (uint32_t)config->heartbeat_ms,
        .max_wait_ms = (uint32_t)config->max_wait_ms,
        .scrub_bytes_per_second = (uint64_t)config->log_scrub_bytes_per_second,
        .follower_lag_bytes_max = (uint64_t)config->follower_lag_bytes_max,
        .fetch_bytes_per_second = (uint64_t)config->bulk_fetch_bytes_per_second,
        .scrub_interval_s = (uint64_t)config->log_scrub_interval_seconds,
        .preferred_leaders = config->preferred_leader_ids[0] != '\0' ? config->preferred_leader_ids : config->preferred_leader_id,
        .force_start = config->force_start,
    };
}

int broker_force_new_group(struct broker *broker, struct buffer *told, struct error *error)
{
    const struct dledger_options options = log_options(&broker->config);
    if (options.peers == NULL)
        return error_set(error, ERROR_INVALID, "this broker is no member of a group: enableDLegerCommitLog is false");
    return new_group_force(&broker->env, &options, told, error);
}

static int open_log(struct broker *broker, struct error *error)
{
    const struct broker_config *config = &broker->config;
    const struct dledger_options options = log_options(config);
    struct dledger_callbacks callbacks;
    const struct message_store_config store_config = {
        .root = config->store_path_root_dir,
        .consume_queue_file_size = (uint64_t)config->mapped_file_size_consume_queue,
        .index_slots = (uint32_t)config->max_hash_slot_num,
        .index_entries = (uint32_t)config->max_index_num,
        .index_enable = config->message_index_enable,
        .delay_level_ms = config->delay_level_ms,
        .delay_levels = config->delay_levels,
        .transfer_bytes_max = (uint32_t)config->max_transfer_bytes_on_message_in_memory,
        .transfer_count_max = (uint32_t)config->max_transfer_count_on_message_in_memory,
        .hot_bytes = LIMIT_HOT_BYTES,
    };
    struct log_view view;
    broker_parts_callbacks(broker, &callbacks);
    broker->log = dledger_commit_log_new(broker->loop, &broker->env, &options, &callbacks, broker->address, &view, error);
    if (broker->log == NULL)
        return error == NULL ? ERROR_IO : error->code;
    int rv = message_store_open(&broker->store, &broker->env, &store_config, &view, error);
    broker->store.topic_since = topic_config_since;
    broker->store.topic_since_context = broker;
    if (rv == 0)
        rv = dledger_commit_log_start(broker->log, &broker->store, error);
    if (rv == 0)
        metadata_trim_expired(broker);
    return rv;
}

static int listen_ports(struct broker *broker, struct error *error)
{
    const struct broker_config *config = &broker->config;
    struct error fast_error;
    int rv = remoting_server_listen(broker->server, config->bind_address, config->listen_port, error);
    if (rv != 0)
        return rv;
    /* Old clients send to the fast port; one that is taken costs only them. */
    if (config->listen_port > 2 && remoting_server_listen(broker->server, config->bind_address, config->listen_port - 2, &fast_error) != 0)
        LOG_WARN("fast port: %s; clients that use it will not reach this broker", fast_error.message);
    return 0;
}

int broker_open(struct broker *broker, uv_loop_t *loop, struct error *error)
{
    int rv;
    broker->loop = loop;
    broker->boot_ms = env_now_ms(&broker->env);
    if ((rv = resolve_store_host(broker, error)) != 0 || (rv = open_parts(broker, error)) != 0 ||
        (rv = open_log(broker, error)) != 0 || (rv = metadata_start(broker, error)) != 0)
        return rv;
    mark_running(broker, true);
    if (broker->config.enable_embedded_namesrv && (rv = namesrv_start_embedded(broker, error)) != 0)
        return rv;
    if ((rv = listen_ports(broker, error)) != 0)
        return rv;
    rv = registrar_start(broker, error);
    if (rv == 0)
        LOG_INFO("broker %s of cluster %s listens on %s, group %s member %s, class %s, data in %s", broker->config.broker_name,
                 broker->config.broker_cluster_name, broker->address, broker->config.group, broker->config.self_id,
                 broker->config.sync_flush ? "B" : "A", broker->config.store_path_root_dir);
    return rv;
}

/* ---- stop ---- */

static void finish_stop(struct broker *broker)
{
    LOG_INFO("the broker has stopped");
    if (broker->stopped != NULL)
        broker->stopped(broker->stopped_argument);
}

static void on_namesrv_stopped(void *argument)
{
    finish_stop(argument);
}

static void on_server_closed(void *argument)
{
    struct broker *broker = argument;
    struct namesrv *namesrv = broker->namesrv;
    broker_parts_close(broker);
    broker->namesrv = NULL;
    if (namesrv != NULL)
        namesrv_stop(namesrv, on_namesrv_stopped, broker);
    else
        finish_stop(broker);
}

static void on_log_closed(void *argument)
{
    struct broker *broker = argument;
    remoting_server_close(broker->server, on_server_closed, broker);
}

static void on_reads_done(void *argument)
{
    struct broker *broker = argument;
    dledger_commit_log_stop(broker->log, on_log_closed, broker);
}

static void on_unregistered(void *argument)
{
    struct broker *broker = argument;
    cold_reader_stop(broker->cold_reads, on_reads_done, broker);
}

void broker_stop(struct broker *broker, void (*stopped)(void *argument), void *argument)
{
    if (broker->stopping)
        return;
    broker->stopping = true;
    broker->stopped = stopped;
    broker->stopped_argument = argument;
    consumer_offset_flush(broker);
    if (broker->registrar != NULL)
        registrar_stop(broker, on_unregistered, broker);
    else
        on_unregistered(broker);
}

void broker_free(struct broker *broker)
{
    remoting_server_free(broker->server);
    dledger_commit_log_free(broker->log);
    message_store_close(&broker->store);
    broker_parts_free(broker);
    mark_running(broker, false);
    env_close(&broker->env, broker->lock_file);
}
