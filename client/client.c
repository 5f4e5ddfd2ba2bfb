#include "client/consumer.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "client/request_reply.h"
#include "client/transaction_check.h"
#include "proto/request_code.h"

/* --- errors ---- */

static const struct {
    int code;
    const char *text;
} code_texts[] = {
    [LEDGERMQ_OK] = {LEDGERMQ_OK, "success"},
    [LEDGERMQ_INVALID] = {LEDGERMQ_INVALID, "invalid argument"},
    [LEDGERMQ_NO_MEMORY] = {LEDGERMQ_NO_MEMORY, "out of memory"},
    [LEDGERMQ_NO_ROUTE] = {LEDGERMQ_NO_ROUTE, "no route to the topic"},
    [LEDGERMQ_CONNECTION] = {LEDGERMQ_CONNECTION, "connection failed"},
    [LEDGERMQ_TIMEOUT] = {LEDGERMQ_TIMEOUT, "timed out"},
    [LEDGERMQ_REFUSED] = {LEDGERMQ_REFUSED, "refused by the broker"},
    [LEDGERMQ_MALFORMED] = {LEDGERMQ_MALFORMED, "malformed answer"},
    [LEDGERMQ_BUSY] = {LEDGERMQ_BUSY, "limit reached"},
    [LEDGERMQ_STOPPED] = {LEDGERMQ_STOPPED, "stopped"},
    [LEDGERMQ_NOT_FOUND] = {LEDGERMQ_NOT_FOUND, "not found"},
    [LEDGERMQ_FORBIDDEN] = {LEDGERMQ_FORBIDDEN, "forbidden by a hook"},
};

const char *ledgermq_code_text(int code)
{
    if (code < 0 || (size_t)code >= sizeof code_texts / sizeof code_texts[0])
        return "unknown code";
    return code_texts[code].text;
}

const char *ledgermq_version(void)
{
    return "0.1.0";
}

static int public_code(int rv)
{
    switch (rv) {
    case ERROR_OK:
        return LEDGERMQ_OK;
    case ERROR_NO_MEMORY:
        return LEDGERMQ_NO_MEMORY;
    case ERROR_CONNECTION:
        return LEDGERMQ_CONNECTION;
    case ERROR_TIMEOUT:
        return LEDGERMQ_TIMEOUT;
    case ERROR_BUSY:
        return LEDGERMQ_BUSY;
    case ERROR_STOPPED:
        return LEDGERMQ_STOPPED;
    case ERROR_NOT_FOUND:
        return LEDGERMQ_NOT_FOUND;
    case ERROR_NO_LEADER:
        return LEDGERMQ_NO_ROUTE;
    case ERROR_MALFORMED:
    case ERROR_MISSING:
    case ERROR_DAMAGED:
        return LEDGERMQ_MALFORMED;
    case ERROR_NOT_LEADER:
        return LEDGERMQ_REFUSED;
    default:
        return LEDGERMQ_INVALID;
    }
}

int client_error_text(struct ledgermq_error *out, int code, int response_code, const char *format, ...)
{
    if (out == NULL)
        return code;
    va_list arguments;
    out->code = code;
    out->response_code = response_code;
    va_start(arguments, format);
    vsnprintf(out->message, sizeof out->message, format, arguments);
    va_end(arguments);
    return code;
}

int client_error(struct ledgermq_error *out, int rv, int response_code, const struct error *error)
{
    return client_error_text(out, public_code(rv), response_code, "%s",
                             error->message[0] != '\0' ? error->message : error_text(rv));
}

int64_t client_clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t client_monotonic_ms(void)
{
    return (int64_t)(uv_hrtime() / 1000000);
}

/* --- the instance ---- */

/* The first address of an interface that is up, IPv4 before IPv6, loopback only when there is nothing else. Returns
 * its size. */
static size_t local_address(uint8_t out[16])
{
    static const uint8_t loopback[4] = {127, 0, 0, 1};
    struct ifaddrs *all;
    size_t size = 4;
    memcpy(out, loopback, 4);
    if (getifaddrs(&all) != 0)
        return size;
    for (const struct ifaddrs *at = all; at != NULL; at = at->ifa_next) {
        if (at->ifa_addr == NULL || !(at->ifa_flags & IFF_UP) || at->ifa_flags & IFF_LOOPBACK)
            continue;
        if (at->ifa_addr->sa_family == AF_INET) {
            size = 4;
            memcpy(out, &((const struct sockaddr_in *)(const void *)at->ifa_addr)->sin_addr, 4);
            break;
        }
        const struct sockaddr_in6 *v6 = (const void *)at->ifa_addr;
        if (at->ifa_addr->sa_family == AF_INET6 && size == 4 && !IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) {
            size = 16;
            memcpy(out, &v6->sin6_addr, 16);
        }
    }
    freeifaddrs(all);
    return size;
}

static void make_ids(struct ledgermq_client *client, const char *instance_name)
{
    uint8_t address[16];
    char ip[INET6_ADDRSTRLEN], instance[64];
    uint32_t number = 0;
    size_t size = local_address(address);
    inet_ntop(size == 4 ? AF_INET : AF_INET6, address, ip, sizeof ip);
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number)
        number = (uint32_t)uv_hrtime();
    message_client_id_setter_init(&client->ids, address, size, (int)getpid(), number);
    if (instance_name == NULL) {
        snprintf(instance, sizeof instance, "%d#%llu", (int)getpid(), (unsigned long long)uv_hrtime());
        instance_name = instance;
    }
    snprintf(client->id, sizeof client->id, "%s@%.255s", ip, instance_name);
}

void ledgermq_client_options_init(struct ledgermq_client_options *options)
{
    *options = (struct ledgermq_client_options){
        .call_timeout_ms = 3000, .connect_timeout_ms = 3000, .route_poll_ms = 30000, .heartbeat_ms = 30000};
}

/* A broker hears of this client before consumers ask it anything. */
static void routes_changed(void *context)
{
    struct ledgermq_client *client = context;
    client_group_greet(client);
    for (struct consumer *consumer = client->active_consumers; consumer != NULL; consumer = consumer->next)
        consumer_route_changed(consumer);
}

static int or_default(int value, int otherwise)
{
    return value > 0 ? value : otherwise;
}

int ledgermq_client_new(const struct ledgermq_client_options *given, struct ledgermq_client **out,
                        struct ledgermq_error *public_error)
{
    struct ledgermq_client_options defaults;
    struct error error = {0};
    ledgermq_client_options_init(&defaults);
    const struct ledgermq_client_options *options = given == NULL ? &defaults : given;
    char(*servers)[REMOTING_ADDRESS_MAX] = calloc(ROUTE_NAME_SERVERS_MAX, sizeof *servers);
    struct ledgermq_client *client = calloc(1, sizeof *client);
    int rv = ERROR_NO_MEMORY;
    if (servers == NULL || client == NULL)
        goto free_client;
    const char *list = options->name_servers != NULL ? options->name_servers : getenv("NAMESRV_ADDR");
    uint32_t count = route_split_name_servers(list, servers, &error);
    rv = ERROR_INVALID;
    if (count == 0)
        goto free_client;
    if (namespace_validate(options->name_space, &error) != 0)
        goto free_client;
    snprintf(client->name_space, sizeof client->name_space, "%s",
             options->name_space == NULL ? "" : options->name_space);
    client->call_timeout_ms = or_default(options->call_timeout_ms, defaults.call_timeout_ms);
    client->heartbeat_ms = or_default(options->heartbeat_ms, defaults.heartbeat_ms);
    client->heartbeat.run = client_group_heartbeat;
    make_ids(client, options->instance_name);
    rv = ERROR_NO_MEMORY;
    client->name_servers = strdup(list);
    if (client->name_servers == NULL || uv_mutex_init(&client->lock) != 0)
        goto free_client;
    rv = remoting_client_new(or_default(options->connect_timeout_ms, defaults.connect_timeout_ms), &client->remoting,
                             &error);
    if (rv != 0)
        goto destroy_lock;
    remoting_client_handle(client->remoting, REQUEST_CHECK_TRANSACTION_STATE, transaction_check_take, client);
    remoting_client_handle(client->remoting, REQUEST_PUSH_REPLY_MESSAGE_TO_CLIENT, request_reply_take, client);
    remoting_client_watch(client->remoting, client_group_greet_again, client);
    consumer_requests_handle(client);
    struct route_table_options routes = {
        .name_servers = servers,
        .name_server_count = count,
        .call_timeout_ms = client->call_timeout_ms,
        .poll_ms = or_default(options->route_poll_ms, defaults.route_poll_ms),
        .changed = routes_changed,
        .context = client,
    };
    rv = route_table_new(client->remoting, &routes, &client->routes, &error);
    if (rv != 0)
        goto free_remoting;
    free(servers);
    *out = client;
    return LEDGERMQ_OK;

free_remoting:
    remoting_client_free(client->remoting);
destroy_lock:
    uv_mutex_destroy(&client->lock);
free_client:
    if (client != NULL)
        free(client->name_servers);
    free(client);
    free(servers);
    return client_error(public_error, rv, 0, &error);
}

struct stop_task {
    struct remoting_task task;
    struct ledgermq_client *client;
    uv_sem_t done;
};

static void stop_run(struct remoting_task *base)
{
    struct stop_task *stop = (struct stop_task *)base;
    stop->client->stopping = true;
    remoting_client_delay_cancel(&stop->client->heartbeat);
    route_table_stop(stop->client->routes);
    uv_sem_post(&stop->done);
}

void ledgermq_client_free(struct ledgermq_client *client)
{
    if (client == NULL)
        return;
    while (client->producers != NULL)
        ledgermq_producer_free(client->producers);
    while (client->pull_consumers != NULL)
        ledgermq_pull_consumer_free(client->pull_consumers);
    while (client->consumers != NULL)
        consumer_free(client->consumers);
    struct stop_task stop = {.task.run = stop_run, .client = client};
    remoting_client_post_and_wait(client->remoting, &stop.task, &stop.done);
    remoting_client_free(client->remoting);
    route_table_free(client->routes);
    client_groups_free(client);
    uv_mutex_destroy(&client->lock);
    free(client->name_servers);
    free(client);
}

const char *ledgermq_client_id(const struct ledgermq_client *client)
{
    return client->id;
}
