/* A channel (one client of one group on one connection) hangs on two lists: its group's and its connection's, so that a closed connection is
 * taken out of all its groups without a search.
 *
 * A change marks the group; one timer sends the notices of all marked groups, at once when the last round is some ms ago. A client that rebalances on
 * a notice asks for the member list (38), which is already the new one.
 */
#include "broker/remoting/client_registry.h"

#include <assert.h>
#include <stdlib.h>
#include <uv.h>

#include "broker/broker.h"
#include "broker/broker_stats.h"
#include "broker/log.h"
#include "broker/metadata/metadata.h"
#include "broker/metadata/subscription_group.h"
#include "broker/metadata/topic_config.h"
#include "broker/processor/processor.h"
#include "broker/remoting/connection.h"
#include "broker/remoting/listener.h"
#include "proto/request_code.h"
#include "proto/topic_validator.h"
#include "store/log_sink.h"

#define CLIENT_ID_MAX 1024u
#define SUBSCRIPTION_BYTES_MAX (1u << 20)
#define SQL_ERRORS_PER_SECOND 10
#define CONFLICT_LOG_MS 60000 /* from one line about a group and topic to the next */

struct client_registry_connection {
    uint64_t id;
    struct client_channel *channels;
    UT_hash_handle hh;
};

/* The producer channels of one client id: several groups, and old connections that are not seen to be gone yet. */
struct client_producer {
    char *client_id;
    struct client_channel *channels; /* walk with producer_next */
    UT_hash_handle hh;
};

struct client_registry_timers {
    struct broker *broker; /* NULL when closed */
    uv_timer_t scan;
    uv_timer_t notify;
    uv_timer_t again;
    int open;
};

static const char *const languages[] = {"JAVA",  "CPP",  "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY",
                                        "OTHER", "HTTP", "GO",     "PHP",    "OMS",    "RUST",   "NODE_JS"};

const char *client_channel_language(const struct client_channel *channel)
{
    return channel->language < sizeof languages / sizeof languages[0] ? languages[channel->language] : "OTHER";
}

/* ---- groups and subscriptions ---- */

static struct client_group *group_find(struct client_group *table, struct slice name)
{
    struct client_group *group;
    if (name.size == 0)
        return NULL;
    HASH_FIND(hh, table, name.data, name.size, group);
    return group;
}

struct client_group *client_registry_consumer_group(struct client_registry *registry, struct slice group)
{
    return group_find(registry->consumers, group);
}

struct client_group *client_registry_producer_group(struct client_registry *registry, struct slice group)
{
    return group_find(registry->producers, group);
}

struct client_subscription *client_registry_subscription(struct client_group *group, struct slice topic)
{
    struct client_subscription *subscription;
    if (topic.size == 0)
        return NULL;
    HASH_FIND(hh, group->subscriptions, topic.data, topic.size, subscription);
    return subscription;
}

struct client_channel *client_registry_channel(struct client_group *group, struct slice client_id)
{
    struct client_channel *channel = group->channels;
    while (channel != NULL && !slice_equal_text(client_id, channel->client_id))
        channel = channel->group_next;
    return channel;
}

struct client_channel *client_registry_producer(struct client_registry *registry, struct slice client_id)
{
    struct client_producer *producer = NULL;
    struct client_channel *newest = NULL;
    if (client_id.size > 0)
        HASH_FIND(hh, registry->producer_clients, client_id.data, client_id.size, producer);
    for (struct client_channel *channel = producer == NULL ? NULL : producer->channels; channel != NULL; channel = channel->producer_next) {
        if (newest == NULL || channel->last_update_us > newest->last_update_us)
            newest = channel;
    }
    return newest;
}

/* False: no memory; the client's replies then find no channel. */
static bool producer_add(struct client_registry *registry, struct client_channel *channel)
{
    struct client_producer *producer;
    size_t size = strlen(channel->client_id);
    HASH_FIND(hh, registry->producer_clients, channel->client_id, size, producer);
    if (producer == NULL) {
        producer = calloc(1, sizeof *producer);
        if (producer == NULL || (producer->client_id = strdup(channel->client_id)) == NULL) {
            free(producer);
            return false;
        }
        HASH_ADD_KEYPTR(hh, registry->producer_clients, producer->client_id, size, producer);
    }
    channel->producer = producer;
    channel->producer_previous = NULL;
    channel->producer_next = producer->channels;
    if (producer->channels != NULL)
        producer->channels->producer_previous = channel;
    producer->channels = channel;
    return true;
}

static void producer_remove(struct client_registry *registry, struct client_channel *channel)
{
    struct client_producer *producer = channel->producer;
    if (producer == NULL)
        return;
    if (channel->producer_previous != NULL)
        channel->producer_previous->producer_next = channel->producer_next;
    else
        producer->channels = channel->producer_next;
    if (channel->producer_next != NULL)
        channel->producer_next->producer_previous = channel->producer_previous;
    channel->producer = NULL;
    if (producer->channels == NULL) {
        HASH_DEL(registry->producer_clients, producer);
        free(producer->client_id);
        free(producer);
    }
}

static struct client_group *group_make(struct client_registry *registry, bool consumer, struct slice name)
{
    uint32_t *count = consumer ? &registry->consumer_group_count : &registry->producer_group_count;
    struct client_group *group = *count >= CLIENT_REGISTRY_GROUPS_MAX ? NULL : calloc(1, sizeof *group);
    if (group == NULL || (group->name = slice_to_text(name)) == NULL) {
        free(group);
        return NULL;
    }
    group->consumer = consumer;
    if (consumer)
        HASH_ADD_KEYPTR(hh, registry->consumers, group->name, name.size, group);
    else
        HASH_ADD_KEYPTR(hh, registry->producers, group->name, name.size, group);
    (*count)++;
    return group;
}

static void subscription_drop(struct client_group *group, struct client_subscription *subscription)
{
    HASH_DEL(group->subscriptions, subscription);
    group->subscription_count--;
    sql_program_release(subscription->program);
    arena_close(&subscription->arena);
    free(subscription);
}

static void notify_forget(struct client_registry *registry, struct client_group *group)
{
    struct client_group **at = &registry->notify_first;
    while (*at != NULL && *at != group)
        at = &(*at)->notify_next;
    if (*at != NULL)
        *at = group->notify_next;
}

static void group_drop(struct client_registry *registry, struct client_group *group)
{
    assert(group->channels == NULL);
    if (group->notify)
        notify_forget(registry, group);
    if (group->consumer) {
        HASH_DEL(registry->consumers, group);
        registry->consumer_group_count--;
    } else {
        HASH_DEL(registry->producers, group);
        registry->producer_group_count--;
    }
    struct client_subscription *subscription, *next;
    HASH_ITER (hh, group->subscriptions, subscription, next)
        subscription_drop(group, subscription);
    free(group->name);
    free(group);
}

/* ---- notices ---- */

static void notify_fired(uv_timer_t *timer)
{
    struct client_registry_timers *timers = timer->data;
    if (timers->broker != NULL)
        client_registry_notify_due(timers->broker);
}

static void group_changed(struct broker *broker, struct client_group *group)
{
    struct client_registry *registry = broker->clients;
    if (broker->groups == NULL)
        return; /* the broker is closing */
    const struct subscription_group_config *config = subscription_group_find(broker->groups, slice_of_text(group->name));
    if (group->notify || !broker->config.notify_consumer_ids_changed_enable || (config != NULL && !config->notify_consumer_ids_changed_enable))
        return;
    group->notify = true;
    group->notify_next = registry->notify_first;
    registry->notify_first = group;
    if (registry->timers == NULL || uv_is_active((uv_handle_t *)&registry->timers->notify))
        return;
    uint64_t since_ms = (env_monotonic_us(&broker->env) - registry->notified_us) / 1000;
    uint64_t wait_ms = since_ms >= CLIENT_REGISTRY_NOTIFY_MS ? 0 : CLIENT_REGISTRY_NOTIFY_MS - since_ms;
    uv_timer_start(&registry->timers->notify, notify_fired, wait_ms, 0);
}

static void again_fired(uv_timer_t *timer)
{
    struct client_registry_timers *timers = timer->data;
    if (timers->broker != NULL)
        client_registry_notify_again_due(timers->broker);
}

static void again_start(struct client_registry *registry)
{
    if (registry->timers != NULL && !uv_is_active((uv_handle_t *)&registry->timers->again))
        uv_timer_start(&registry->timers->again, again_fired, CLIENT_REGISTRY_NOTIFY_AGAIN_MS, 0);
}

void client_registry_notify_again(struct broker *broker, struct slice name)
{
    struct client_group *group = client_registry_consumer_group(broker->clients, name);
    if (group == NULL)
        return;
    group->notify_again_us = env_monotonic_us(&broker->env) + CLIENT_REGISTRY_NOTIFY_AGAIN_MS * 1000ull;
    again_start(broker->clients);
}

void client_registry_notify_again_due(struct broker *broker)
{
    uint64_t now_us = env_monotonic_us(&broker->env);
    bool more = false;
    for (struct client_group *group = broker->clients->consumers; group != NULL; group = group->hh.next) {
        if (group->notify_again_us == 0)
            continue;
        if (group->notify_again_us > now_us) {
            more = true;
            continue;
        }
        group->notify_again_us = 0;
        group_changed(broker, group);
    }
    if (more)
        again_start(broker->clients);
}

void client_registry_notify_due(struct broker *broker)
{
    struct client_registry *registry = broker->clients;
    registry->notified_us = env_monotonic_us(&broker->env);
    while (registry->notify_first != NULL) {
        struct client_group *group = registry->notify_first;
        registry->notify_first = group->notify_next;
        group->notify = false;
        /* Writing may cut a client off, and with it the group: work on a copy. */
        uint64_t *ids = malloc((group->channel_count + 1) * sizeof *ids);
        char *name = strdup(group->name);
        uint32_t count = 0;
        for (struct client_channel *channel = group->channels; ids != NULL && channel != NULL; channel = channel->group_next)
            ids[count++] = channel->connection_id;
        for (uint32_t i = 0; name != NULL && i < count; i++)
            registry->notify(broker, ids[i], name);
        free(ids);
        free(name);
    }
}

static void push_notice(struct broker *broker, uint64_t connection_id, const char *group)
{
    struct remoting_writer writer;
    if (!push_begin(broker, connection_id, &writer, REQUEST_NOTIFY_CONSUMER_IDS_CHANGED))
        return;
    remoting_writer_ext_text(&writer, "consumerGroup", group);
    push_end(broker, connection_id, &writer);
}

static void close_connection(struct broker *broker, uint64_t connection_id)
{
    struct connection *connection = remoting_server_find(broker->server, connection_id);
    if (connection != NULL)
        connection_close(connection);
}

/* ---- channels ---- */

static struct client_registry_connection *connection_find(struct client_registry *registry, uint64_t id)
{
    struct client_registry_connection *connection;
    HASH_FIND(hh, registry->connections, &id, sizeof id, connection);
    return connection;
}

static struct client_channel *channel_on(struct client_registry_connection *connection, const struct client_group *group)
{
    struct client_channel *channel = connection == NULL ? NULL : connection->channels;
    while (channel != NULL && channel->group != group)
        channel = channel->connection_next;
    return channel;
}

/* NULL at a limit. */
static struct client_channel *channel_make(struct client_registry *registry, struct client_group *group, const struct request *request,
                                           struct slice client_id)
{
    uint64_t id = request->reply_to.connection_id;
    struct client_registry_connection *connection = connection_find(registry, id);
    struct client_channel *channel = registry->channel_count >= CLIENT_REGISTRY_CHANNELS_MAX ? NULL : calloc(1, sizeof *channel);
    if (channel == NULL || (channel->client_id = slice_to_text(client_id)) == NULL) {
        free(channel);
        return NULL;
    }
    if (connection == NULL) {
        connection = calloc(1, sizeof *connection);
        if (connection == NULL) {
            free(channel->client_id);
            free(channel);
            return NULL;
        }
        connection->id = id;
        HASH_ADD(hh, registry->connections, id, sizeof connection->id, connection);
    }
    channel->connection_id = id;
    channel->group = group;
    message_host_format(&request->peer, channel->address, sizeof channel->address);
    channel->group_next = group->channels;
    if (group->channels != NULL)
        group->channels->group_previous = channel;
    group->channels = channel;
    channel->connection_next = connection->channels;
    if (connection->channels != NULL)
        connection->channels->connection_previous = channel;
    connection->channels = channel;
    group->channel_count++;
    registry->channel_count++;
    if (!group->consumer)
        (void)producer_add(registry, channel);
    return channel;
}

/* The group goes with its last channel. Its remaining members are told. */
static void channel_drop(struct broker *broker, struct client_channel *channel)
{
    struct client_registry *registry = broker->clients;
    struct client_group *group = channel->group;
    struct client_registry_connection *connection = connection_find(registry, channel->connection_id);
    assert(connection != NULL);
    if (channel->group_previous != NULL)
        channel->group_previous->group_next = channel->group_next;
    else
        group->channels = channel->group_next;
    if (channel->group_next != NULL)
        channel->group_next->group_previous = channel->group_previous;
    if (channel->connection_previous != NULL)
        channel->connection_previous->connection_next = channel->connection_next;
    else
        connection->channels = channel->connection_next;
    if (channel->connection_next != NULL)
        channel->connection_next->connection_previous = channel->connection_previous;
    group->channel_count--;
    registry->channel_count--;
    producer_remove(registry, channel);
    free(channel->client_id);
    free(channel);
    if (connection->channels == NULL) {
        HASH_DEL(registry->connections, connection);
        free(connection);
    }
    if (group->channels == NULL)
        group_drop(registry, group);
    else if (group->consumer)
        group_changed(broker, group);
}

void client_registry_connection_closed(struct broker *broker, uint64_t connection_id)
{
    if (broker->clients == NULL)
        return;
    struct client_registry_connection *connection;
    /* The connection's entry goes with its last channel. */
    while ((connection = connection_find(broker->clients, connection_id)) != NULL)
        channel_drop(broker, connection->channels);
}

/* ---- heart-beats ---- */

/* A text that stays is not compiled again: clients raise their version whenever their queues change. */
static void take_program(struct broker *broker, const struct client_group *group, struct client_subscription *subscription,
                         struct client_subscription *old)
{
    static struct log_limiter limiter = {.burst = SQL_ERRORS_PER_SECOND};
    struct error error = {0};
    uint64_t suppressed;
    if (old != NULL)
        subscription->program_version = old->program_version;
    if (!subscription_data_is_sql(&subscription->data))
        return;
    if (old != NULL && old->program != NULL && slice_equal(old->data.sub_string, subscription->data.sub_string)) {
        subscription->program = old->program;
        old->program = NULL;
    } else {
        subscription->program = sql_program_new(subscription->data.sub_string, &error);
        if (subscription->program == NULL && error.code == ERROR_BUSY)
            (void)broker_stats_refuse(broker->stats, LIMIT_HIT_SQL_BYTES); /* pulls are told */
    }
    if (subscription->program != NULL)
        subscription->program_version = subscription->data.sub_version;
    else if (log_limiter_pass(&limiter, env_now_ms(&broker->env), &suppressed))
        LOG_WARN("group %s gets nothing of topic %.*s: %s (%llu such lines left out)", group->name, (int)subscription->data.topic.size,
                 (const char *)subscription->data.topic.data, error.message, (unsigned long long)suppressed);
}

static bool says_the_same(const struct subscription_data *a, const struct subscription_data *b)
{
    return slice_equal(a->sub_string, b->sub_string) && subscription_data_is_tag(a) == subscription_data_is_tag(b) &&
           a->class_filter_mode == b->class_filter_mode;
}

/* given: what another member says about that topic, NULL when it does not subscribe to it. */
static void note_conflict(struct broker *broker, const struct client_group *group, struct client_subscription *old,
                          const struct subscription_data *given, struct slice client_id)
{
    int64_t now_ms = env_now_ms(&broker->env);
    broker->clients->subscription_conflicts++;
    if (old->conflict_ms != 0 && now_ms - old->conflict_ms < CONFLICT_LOG_MS)
        return;
    old->conflict_ms = now_ms;
    struct slice texts[2] = {old->data.sub_string, given == NULL ? SLICE_LITERAL("nothing") : given->sub_string};
    for (int i = 0; i < 2; i++)
        texts[i].size = texts[i].size > 200 ? 200 : texts[i].size;
    LOG_WARN("group %s, topic %.*s: %.*s subscribes to %.*s, but %.*s to %.*s; the %s counts for all, so messages may be lost: members of a group must "
             "subscribe alike",
             group->name, (int)old->data.topic.size, (const char *)old->data.topic.data, (int)old->client_id.size, (const char *)old->client_id.data,
             (int)texts[0].size, (const char *)texts[0].data, (int)client_id.size, (const char *)client_id.data, (int)texts[1].size,
             (const char *)texts[1].data, given != NULL && given->sub_version > old->data.sub_version ? "second" : "first");
}

/* Versions are clocks of clients, so they order only what different members say: what a member says later is newer, also when its clock was set back,
 * and the word of one that has gone counts only until somebody else speaks. */
static bool replaces(struct broker *broker, struct client_group *group, struct client_subscription *old, const struct subscription_data *given,
                     struct slice client_id)
{
    if (slice_equal(old->client_id, client_id))
        return given->sub_version != old->data.sub_version || !says_the_same(&old->data, given);
    bool same = says_the_same(&old->data, given);
    if (client_registry_channel(group, old->client_id) == NULL)
        return given->sub_version > old->data.sub_version || !same;
    if (!same)
        note_conflict(broker, group, old, given, client_id);
    return given->sub_version > old->data.sub_version;
}

/* ConsumerGroupInfo#updateSubscription: what is newer replaces the entry; topics that are not named any more go, but not while another member that is
 * connected subscribes to them: they would go and come with every heart-beat. True when the set of topics changed. */
static bool update_subscriptions(struct broker *broker, struct client_group *group, const struct consumer_data *data, struct slice client_id,
                                 int *code)
{
    bool changed = false;
    for (size_t i = 0; i < data->subscription_count; i++) {
        const struct subscription_data *given = &data->subscriptions[i];
        struct client_subscription *old = client_registry_subscription(group, given->topic);
        if (old != NULL && !replaces(broker, group, old, given, client_id))
            continue;
        struct client_subscription *subscription = NULL;
        if (old != NULL || group->subscription_count < CLIENT_REGISTRY_SUBSCRIPTIONS_MAX)
            subscription = calloc(1, sizeof *subscription);
        if (subscription != NULL) {
            arena_init(&subscription->arena, SUBSCRIPTION_BYTES_MAX);
            subscription->client_id = arena_copy(&subscription->arena, client_id);
            subscription->conflict_ms = old == NULL ? 0 : old->conflict_ms;
            if (subscription_data_copy(&subscription->data, &subscription->arena, given) != 0) {
                arena_close(&subscription->arena);
                free(subscription);
                subscription = NULL;
            }
        }
        if (subscription == NULL) {
            *code = broker_stats_busy(broker->stats, LIMIT_HIT_CLIENTS);
            continue;
        }
        take_program(broker, group, subscription, old);
        if (old != NULL)
            subscription_drop(group, old);
        else
            changed = true;
        HASH_ADD_KEYPTR(hh, group->subscriptions, subscription->data.topic.data, subscription->data.topic.size, subscription);
        group->subscription_count++;
    }
    struct client_subscription *subscription, *next;
    HASH_ITER (hh, group->subscriptions, subscription, next) {
        size_t i = 0;
        while (i < data->subscription_count && !slice_equal(data->subscriptions[i].topic, subscription->data.topic))
            i++;
        if (i < data->subscription_count)
            continue;
        if (!slice_equal(subscription->client_id, client_id) && client_registry_channel(group, subscription->client_id) != NULL) {
            note_conflict(broker, group, subscription, NULL, client_id);
            continue;
        }
        subscription_drop(group, subscription);
        changed = true;
    }
    return changed;
}

/* Binds the connection to the group. NULL at a limit; *is_new when it was not bound before. */
static struct client_channel *bind_channel(struct broker *broker, const struct request *request, bool consumer, struct slice name,
                                           struct slice client_id, bool *is_new)
{
    struct client_registry *registry = broker->clients;
    struct client_group *group = group_find(consumer ? registry->consumers : registry->producers, name);
    if (group == NULL)
        group = group_make(registry, consumer, name);
    if (group == NULL)
        return NULL;
    struct client_channel *channel = channel_on(connection_find(registry, request->reply_to.connection_id), group);
    *is_new = channel == NULL;
    if (channel == NULL)
        channel = channel_make(registry, group, request, client_id);
    if (channel == NULL) {
        if (group->channels == NULL)
            group_drop(registry, group);
        return NULL;
    }
    if (!slice_equal_text(client_id, channel->client_id)) {
        char *text = slice_to_text(client_id);
        if (text != NULL) {
            free(channel->client_id);
            channel->client_id = text;
            if (!consumer) {
                producer_remove(registry, channel);
                (void)producer_add(registry, channel);
            }
        }
    }
    channel->language = request->command->language;
    channel->version = request->command->version;
    channel->last_update_ms = env_now_ms(&broker->env);
    channel->last_update_us = env_monotonic_us(&broker->env);
    return channel;
}

int client_registry_heart_beat(struct broker *broker, const struct request *request, const struct heartbeat_data *data)
{
    int code = 0;
    bool is_new;
    if (data->client_id.size == 0 || data->client_id.size > CLIENT_ID_MAX)
        return ERROR_INVALID;
    for (size_t i = 0; i < data->producer_count; i++) {
        struct slice name = data->producers[i].group_name;
        if (name.size == 0 || name.size > SUBSCRIPTION_GROUP_NAME_MAX)
            code = ERROR_INVALID;
        else if (bind_channel(broker, request, false, name, data->client_id, &is_new) == NULL)
            code = broker_stats_busy(broker->stats, LIMIT_HIT_CLIENTS);
    }
    for (size_t i = 0; i < data->consumer_count; i++) {
        const struct consumer_data *consumer = &data->consumers[i];
        struct slice name = consumer->group_name;
        if (name.size == 0 || name.size > SUBSCRIPTION_GROUP_NAME_MAX) {
            code = ERROR_INVALID;
            continue;
        }
        struct client_channel *channel = bind_channel(broker, request, true, name, data->client_id, &is_new);
        if (channel == NULL) {
            code = broker_stats_busy(broker->stats, LIMIT_HIT_CLIENTS);
            continue;
        }
        struct client_group *group = channel->group;
        group->consume_type = consumer->consume_type;
        group->message_model = consumer->message_model;
        group->consume_from_where = consumer->consume_from_where;
        bool changed = !data->without_sub && update_subscriptions(broker, group, consumer, data->client_id, &code);
        if (is_new || changed)
            group_changed(broker, group);
    }
    return code;
}

bool client_registry_unregister(struct broker *broker, uint64_t connection_id, struct slice producer_group, struct slice consumer_group)
{
    struct client_registry *registry = broker->clients;
    struct client_group *group = group_find(registry->producers, producer_group);
    struct client_channel *channel = group == NULL ? NULL : channel_on(connection_find(registry, connection_id), group);
    if (channel != NULL)
        channel_drop(broker, channel);
    group = group_find(registry->consumers, consumer_group);
    channel = group == NULL ? NULL : channel_on(connection_find(registry, connection_id), group);
    if (channel != NULL)
        channel_drop(broker, channel);
    return channel != NULL;
}

/* ---- expiry ---- */

void client_registry_expire(struct broker *broker)
{
    struct client_registry *registry = broker->clients;
    uint64_t now_us = env_monotonic_us(&broker->env);
    struct client_registry_connection *connection, *next;
    HASH_ITER (hh, registry->connections, connection, next) {
        uint64_t id = connection->id;
        bool alive = false;
        struct client_channel *channel = connection->channels;
        while (channel != NULL) {
            struct client_channel *following = channel->connection_next;
            if (now_us - channel->last_update_us > CLIENT_REGISTRY_EXPIRE_MS * 1000ull)
                channel_drop(broker, channel); /* and with the last one, the connection's entry */
            else
                alive = true;
            channel = following;
        }
        /* One that still sends heart-beats for other groups has merely left this one. */
        if (!alive) {
            LOG_INFO("client on connection %llu sent no heart-beat for %d s, closing it", (unsigned long long)id,
                     CLIENT_REGISTRY_EXPIRE_MS / 1000);
            registry->disconnect(broker, id);
        }
    }
}

void client_registry_ensure_groups(struct broker *broker)
{
    if (!metadata_leads(broker))
        return;
    for (struct client_group *group = broker->clients->consumers; group != NULL; group = group->hh.next) {
        struct slice name = slice_of_text(group->name);
        const struct subscription_group_config *config = subscription_group_need(broker, name);
        char topic[MESSAGE_TOPIC_MAX + 1];
        if (config == NULL || (size_t)snprintf(topic, sizeof topic, "%s%s", TOPIC_RETRY_PREFIX, group->name) >= sizeof topic)
            continue;
        topic_config_create_in_send_back(broker, slice_of_text(topic), config->retry_queue_nums, PERM_READ | PERM_WRITE, 0, NULL, NULL);
    }
}

static void scan_fired(uv_timer_t *timer)
{
    struct client_registry_timers *timers = timer->data;
    if (timers->broker == NULL)
        return;
    client_registry_expire(timers->broker);
    client_registry_ensure_groups(timers->broker);
}

/* ---- life ---- */

int client_registry_open(struct broker *broker, struct error *error)
{
    struct client_registry *registry = calloc(1, sizeof *registry);
    struct client_registry_timers *timers = registry == NULL || broker->loop == NULL ? NULL : calloc(1, sizeof *timers);
    if (registry == NULL || (timers == NULL && broker->loop != NULL)) {
        free(registry);
        return error_set(error, ERROR_NO_MEMORY, "client registry: out of memory");
    }
    registry->notify = push_notice;
    registry->disconnect = close_connection;
    registry->timers = timers;
    broker->clients = registry;
    if (timers == NULL)
        return 0;
    timers->broker = broker;
    timers->open = 3;
    uv_timer_init(broker->loop, &timers->scan);
    uv_timer_init(broker->loop, &timers->notify);
    uv_timer_init(broker->loop, &timers->again);
    timers->scan.data = timers;
    timers->notify.data = timers;
    timers->again.data = timers;
    return 0;
}

int client_registry_start(struct broker *broker, struct error *error)
{
    int rv = uv_timer_start(&broker->clients->timers->scan, scan_fired, CLIENT_REGISTRY_SCAN_MS, CLIENT_REGISTRY_SCAN_MS);
    return rv == 0 ? 0 : error_set(error, ERROR_INVALID, "client registry: %s", uv_strerror(rv));
}

static void timer_closed(uv_handle_t *handle)
{
    struct client_registry_timers *timers = handle->data;
    if (--timers->open == 0)
        free(timers);
}

void client_registry_close(struct broker *broker)
{
    struct client_registry *registry = broker->clients;
    if (registry == NULL)
        return;
    if (registry->timers != NULL) {
        registry->timers->broker = NULL;
        uv_close((uv_handle_t *)&registry->timers->scan, timer_closed);
        uv_close((uv_handle_t *)&registry->timers->notify, timer_closed);
        uv_close((uv_handle_t *)&registry->timers->again, timer_closed);
        registry->timers = NULL;
    }
    while (registry->connections != NULL)
        channel_drop(broker, registry->connections->channels);
    free(registry);
    broker->clients = NULL;
}
