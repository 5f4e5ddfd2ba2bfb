/* 1. A registration finds or makes its broker name, refuses an older leader, and drops the same address under other ids.
 * 2. The address takes the id's place; an id 0 then lays its topic table over what is known of that broker name.
 * 3. Addresses go when their connection closes, when they are silent too long, or by 104; with the last one the broker name and its queues go.
 *
 * A leader that says its term always sends its whole table, which a majority agreed on: what is not in it any more is taken off that broker name, so a
 * topic that was deleted on one group only is not routed there. RocketMQ's brokers also send tables of one topic, and nothing tells the two apart:
 * their topics stay until 216 removes them.
 */
#include "broker/namesrv/namesrv_route_info_manager.h"

#include <assert.h>
#include <stdlib.h>

#include "store/log_sink.h"

#define EXPIRED_PER_SCAN 64 /* the rest is found by the next scan */

void route_info_manager_init(struct route_info_manager *manager)
{
    *manager = (struct route_info_manager){0};
}

static void address_free(struct route_address *address)
{
    free(address->address);
    free(address->ha_address);
    free(address->listeners);
}

static void broker_free(struct route_info_manager *manager, struct route_broker *broker)
{
    HASH_DEL(manager->brokers, broker);
    for (uint32_t i = 0; i < broker->address_count; i++)
        address_free(&broker->addresses[i]);
    free(broker->addresses);
    free(broker->name);
    free(broker->cluster);
    free(broker);
}

static void topic_free(struct route_info_manager *manager, struct route_topic *topic)
{
    HASH_DEL(manager->topics, topic);
    free(topic->queues);
    free(topic);
}

void route_info_manager_close(struct route_info_manager *manager)
{
    struct route_topic *topic, *next_topic;
    HASH_ITER (hh, manager->topics, topic, next_topic)
        topic_free(manager, topic);
    struct route_broker *broker, *next_broker;
    HASH_ITER (hh, manager->brokers, broker, next_broker)
        broker_free(manager, broker);
    *manager = (struct route_info_manager){0};
}

static struct route_broker *broker_find(const struct route_info_manager *manager, struct slice name)
{
    struct route_broker *broker = NULL;
    if (name.size != 0)
        HASH_FIND(hh, manager->brokers, name.data, name.size, broker);
    return broker;
}

struct route_topic *route_info_find_topic(const struct route_info_manager *manager, struct slice name)
{
    struct route_topic *topic = NULL;
    if (name.size != 0)
        HASH_FIND(hh, manager->topics, name.data, name.size, topic);
    return topic;
}

static struct route_address *address_by_id(struct route_broker *broker, int64_t id)
{
    for (uint32_t i = 0; i < broker->address_count; i++) {
        if (broker->addresses[i].id == id)
            return &broker->addresses[i];
    }
    return NULL;
}

static struct route_address *address_by_text(struct route_broker *broker, struct slice text)
{
    for (uint32_t i = 0; i < broker->address_count; i++) {
        if (slice_equal_text(text, broker->addresses[i].address))
            return &broker->addresses[i];
    }
    return NULL;
}

static void address_remove(struct route_broker *broker, struct route_address *address)
{
    address_free(address);
    size_t at = (size_t)(address - broker->addresses);
    broker->address_count--;
    memmove(address, address + 1, (broker->address_count - at) * sizeof *address);
}

/* The topic goes with its last queue. */
static void queue_drop(struct route_info_manager *manager, struct route_topic *topic, struct route_queue *queue)
{
    size_t at = (size_t)(queue - topic->queues);
    topic->queue_count--;
    memmove(queue, queue + 1, (topic->queue_count - at) * sizeof *queue);
    if (topic->queue_count == 0)
        topic_free(manager, topic);
}

static struct route_queue *topic_queue(struct route_topic *topic, const struct route_broker *broker)
{
    for (uint32_t i = 0; i < topic->queue_count; i++) {
        if (topic->queues[i].broker == broker)
            return &topic->queues[i];
    }
    return NULL;
}

/* Takes the queues of a broker name off all topics, or (stale_only) off those that its last table did not hold. */
static void topics_drop(struct route_info_manager *manager, const struct route_broker *broker, bool stale_only)
{
    struct route_topic *topic, *next;
    HASH_ITER (hh, manager->topics, topic, next) {
        struct route_queue *queue = topic_queue(topic, broker);
        if (queue != NULL && (!stale_only || queue->table != broker->tables))
            queue_drop(manager, topic, queue);
    }
}

/* A broker name without an address is forgotten whole, its leader term too: a cluster that was wiped and starts at term 1 again must be taken. */
static void broker_drop_if_empty(struct route_info_manager *manager, struct route_broker *broker)
{
    if (broker->address_count != 0)
        return;
    topics_drop(manager, broker, false);
    LOG_INFO("name server: broker %s has no address left", broker->name);
    broker_free(manager, broker);
}

static struct route_broker *broker_add(struct route_info_manager *manager, struct slice name, struct slice cluster, struct error *error)
{
    if (HASH_COUNT(manager->brokers) >= ROUTE_BROKER_NAMES_MAX) {
        manager->limit_hits++;
        error_set(error, ERROR_TOO_LARGE, "the name server knows %u broker names already, the most it takes", ROUTE_BROKER_NAMES_MAX);
        return NULL;
    }
    struct route_broker *broker = calloc(1, sizeof *broker);
    if (broker == NULL)
        goto no_memory;
    broker->leader_term = -1;
    broker->name = slice_to_text(name);
    broker->cluster = slice_to_text(cluster);
    if (broker->name == NULL || broker->cluster == NULL)
        goto no_memory;
    HASH_ADD_KEYPTR(hh, manager->brokers, broker->name, name.size, broker);
    return broker;

no_memory:
    if (broker != NULL) {
        free(broker->name);
        free(broker->cluster);
        free(broker);
    }
    error_set(error, ERROR_NO_MEMORY, "no memory for a broker name");
    return NULL;
}

/* Opens a place for an id that is not there yet, keeping the order. */
static struct route_address *address_insert(struct route_info_manager *manager, struct route_broker *broker, int64_t id, struct error *error)
{
    if (broker->address_count == ROUTE_ADDRESSES_MAX) {
        manager->limit_hits++;
        error_set(error, ERROR_TOO_LARGE, "broker %s has %u ids already, the most the name server takes", broker->name, ROUTE_ADDRESSES_MAX);
        return NULL;
    }
    if (broker->address_count == broker->address_capacity) {
        uint32_t capacity = broker->address_capacity == 0 ? 4 : broker->address_capacity * 2;
        struct route_address *addresses = realloc(broker->addresses, capacity * sizeof *addresses);
        if (addresses == NULL) {
            error_set(error, ERROR_NO_MEMORY, "no memory for an address");
            return NULL;
        }
        broker->addresses = addresses;
        broker->address_capacity = capacity;
    }
    uint32_t at = 0;
    while (at < broker->address_count && broker->addresses[at].id < id)
        at++;
    memmove(&broker->addresses[at + 1], &broker->addresses[at], (broker->address_count - at) * sizeof broker->addresses[0]);
    broker->address_count++;
    broker->addresses[at] = (struct route_address){.id = id};
    return &broker->addresses[at];
}

static int text_replace(char **text, struct slice value)
{
    if (*text != NULL && slice_equal_text(value, *text))
        return 0;
    char *copy = slice_to_text(value);
    if (copy == NULL)
        return ERROR_NO_MEMORY;
    free(*text);
    *text = copy;
    return 0;
}

static int check_name(struct slice text, const char *what, struct error *error)
{
    if (text.size == 0)
        return error_set(error, ERROR_INVALID, "%s is empty", what);
    if (text.size > ROUTE_NAME_BYTES_MAX)
        return error_set(error, ERROR_INVALID, "%s is longer than %u bytes", what, ROUTE_NAME_BYTES_MAX);
    if (memchr(text.data, 0, text.size) != NULL)
        return error_set(error, ERROR_INVALID, "%s holds a zero byte", what);
    return 0;
}

static struct route_queue *topic_queue_add(struct route_info_manager *manager, struct slice name, struct route_broker *broker)
{
    struct route_topic *topic = route_info_find_topic(manager, name);
    if (topic == NULL) {
        if (HASH_COUNT(manager->topics) >= ROUTE_TOPICS_MAX) {
            manager->limit_hits++;
            return NULL;
        }
        topic = malloc(sizeof *topic + name.size + 1);
        if (topic == NULL)
            return NULL;
        memset(topic, 0, sizeof *topic);
        memcpy(topic->name, name.data, name.size);
        topic->name[name.size] = 0;
        HASH_ADD_KEYPTR(hh, manager->topics, topic->name, name.size, topic);
    }
    if (topic->queue_count == topic->queue_capacity) {
        uint32_t capacity = topic->queue_capacity == 0 ? 1 : topic->queue_capacity * 2;
        struct route_queue *queues = realloc(topic->queues, capacity * sizeof *queues);
        if (queues == NULL) {
            if (topic->queue_count == 0)
                topic_free(manager, topic);
            return NULL;
        }
        topic->queues = queues;
        topic->queue_capacity = capacity;
    }
    uint32_t at = 0;
    while (at < topic->queue_count && strcmp(topic->queues[at].broker->name, broker->name) < 0)
        at++;
    memmove(&topic->queues[at + 1], &topic->queues[at], (topic->queue_count - at) * sizeof topic->queues[0]);
    topic->queue_count++;
    topic->queues[at] = (struct route_queue){.broker = broker};
    return &topic->queues[at];
}

/* Whatever its version: a registration of one topic carries the version of the whole table that follows it (seen with RocketMQ 4.9.7, where the
 * full one was then skipped). So every topic is compared. */
static int topics_apply(struct route_info_manager *manager, struct route_broker *broker, const struct route_registration *registration,
                        struct error *error)
{
    broker->tables++;
    for (size_t i = 0; i < registration->topic_count; i++) {
        const struct topic_config *config = &registration->topics[i];
        if (check_name(config->name, "a topic name", error) != 0)
            return ERROR_INVALID;
        struct route_topic *topic = route_info_find_topic(manager, config->name);
        struct route_queue *queue = topic == NULL ? NULL : topic_queue(topic, broker);
        if (queue == NULL)
            queue = topic_queue_add(manager, config->name, broker);
        if (queue == NULL)
            return error_set(error, ERROR_TOO_LARGE, "the name server has no room for topic %.*s (it takes %u)", (int)config->name.size,
                             (const char *)config->name.data, ROUTE_TOPICS_MAX);
        queue->read_queue_nums = config->read_queue_nums;
        queue->write_queue_nums = config->write_queue_nums;
        queue->sys_flag = config->topic_sys_flag;
        queue->perm = config->perm;
        queue->table = broker->tables;
    }
    if (registration->leader_term >= 0)
        topics_drop(manager, broker, true);
    return 0;
}

static void fill_master(struct route_broker *broker, struct route_register_result *result)
{
    struct route_address *master = address_by_id(broker, 0);
    if (master == NULL)
        return;
    result->master_address = slice_of_text(master->address);
    result->master_ha_address = slice_of_text(master->ha_address);
}

int route_info_register(struct route_info_manager *manager, const struct route_registration *registration, int64_t now_ms,
                        struct route_register_result *result, struct error *error)
{
    *result = (struct route_register_result){0};
    if (check_name(registration->broker_name, "brokerName", error) != 0 || check_name(registration->broker_address, "brokerAddr", error) != 0 ||
        check_name(registration->cluster_name, "clusterName", error) != 0)
        return ERROR_INVALID;
    if (registration->ha_server_address.size > ROUTE_NAME_BYTES_MAX || registration->listeners.size > ROUTE_LISTENERS_BYTES_MAX)
        return error_set(error, ERROR_INVALID, "haServerAddr or listeners is too long");

    struct route_broker *broker = broker_find(manager, registration->broker_name);
    bool leads = registration->broker_id == 0;
    if (broker != NULL && leads && registration->leader_term >= 0 && registration->leader_term < broker->leader_term) {
        manager->refused_terms++;
        LOG_WARN("name server: %.*s says it leads %s in term %lld, but term %lld is known: not taken", (int)registration->broker_address.size,
                 (const char *)registration->broker_address.data, broker->name, (long long)registration->leader_term,
                 (long long)broker->leader_term);
        fill_master(broker, result);
        return 0;
    }
    if (broker == NULL) {
        broker = broker_add(manager, registration->broker_name, registration->cluster_name, error);
        if (broker == NULL)
            return ERROR_TOO_LARGE;
    }
    int rv = text_replace(&broker->cluster, registration->cluster_name);
    if (rv != 0)
        goto out;

    struct route_address *address = address_by_text(broker, registration->broker_address);
    if (address != NULL && address->id != registration->broker_id)
        address_remove(broker, address);
    address = address_by_id(broker, registration->broker_id);
    if (address == NULL) {
        address = address_insert(manager, broker, registration->broker_id, error);
        if (address == NULL) {
            rv = ERROR_TOO_LARGE;
            goto out;
        }
    }
    if (text_replace(&address->address, registration->broker_address) != 0 || text_replace(&address->ha_address, registration->ha_server_address) != 0 ||
        text_replace(&address->listeners, registration->listeners) != 0) {
        address_remove(broker, address);
        rv = error_set(error, ERROR_NO_MEMORY, "no memory for an address");
        goto out;
    }
    address->connection_id = registration->connection_id;
    address->updated_ms = now_ms;
    address->timeout_ms = registration->timeout_ms > 0 ? registration->timeout_ms : ROUTE_BROKER_EXPIRED_MS;
    address->version = registration->version;
    result->taken = true;
    if (leads) {
        if (registration->leader_term >= 0)
            broker->leader_term = registration->leader_term;
        manager->leader_seen = true;
        rv = topics_apply(manager, broker, registration, error);
    }
    fill_master(broker, result);
out:
    broker_drop_if_empty(manager, broker);
    return rv;
}

void route_info_unregister(struct route_info_manager *manager, struct slice broker_name, struct slice broker_address)
{
    struct route_broker *broker = broker_find(manager, broker_name);
    struct route_address *address = broker == NULL ? NULL : address_by_text(broker, broker_address);
    if (address == NULL)
        return;
    address_remove(broker, address);
    broker_drop_if_empty(manager, broker);
}

bool route_info_query_version(struct route_info_manager *manager, struct slice broker_name, struct slice broker_address,
                              const struct data_version *version, int64_t now_ms, struct data_version *stored, bool *known)
{
    struct route_broker *broker = broker_find(manager, broker_name);
    struct route_address *address = broker == NULL ? NULL : address_by_text(broker, broker_address);
    *known = address != NULL;
    if (address == NULL)
        return false;
    *stored = address->version;
    if (!data_version_equal(&address->version, version))
        return false;
    address->updated_ms = now_ms;
    return true;
}

size_t route_info_connection_closed(struct route_info_manager *manager, uint64_t connection_id)
{
    size_t gone = 0;
    struct route_broker *broker, *next;
    HASH_ITER (hh, manager->brokers, broker, next) {
        for (uint32_t i = broker->address_count; i-- > 0;) {
            if (broker->addresses[i].connection_id != connection_id)
                continue;
            LOG_INFO("name server: connection of %s (%s id %lld) closed", broker->addresses[i].address, broker->name,
                     (long long)broker->addresses[i].id);
            address_remove(broker, &broker->addresses[i]);
            gone++;
        }
        broker_drop_if_empty(manager, broker);
    }
    return gone;
}

void route_info_scan(struct route_info_manager *manager, int64_t now_ms, void (*expired)(void *argument, uint64_t connection_id), void *argument)
{
    /* Told after the walk: closing a connection comes back to route_info_connection_closed, which changes what is walked. */
    uint64_t silent[EXPIRED_PER_SCAN];
    size_t count = 0;
    struct route_broker *broker, *next;
    HASH_ITER (hh, manager->brokers, broker, next) {
        for (uint32_t i = broker->address_count; i-- > 0 && count < EXPIRED_PER_SCAN;) {
            struct route_address *address = &broker->addresses[i];
            if (now_ms - address->updated_ms <= address->timeout_ms)
                continue;
            LOG_WARN("name server: %s (%s id %lld) was silent for %lld ms", address->address, broker->name, (long long)address->id,
                     (long long)(now_ms - address->updated_ms));
            silent[count++] = address->connection_id;
            address_remove(broker, address);
        }
        broker_drop_if_empty(manager, broker);
    }
    for (size_t i = 0; i < count && expired != NULL; i++)
        expired(argument, silent[i]);
}

int32_t route_queue_perm(const struct route_queue *queue)
{
    return queue->broker->write_wiped ? queue->perm & ~PERM_WRITE : queue->perm;
}

/* A mark on the broker name, not a change of each topic: it holds for topics that are made meanwhile, over every later table and over a change of
 * leader, and taking it away gives each topic what its broker says. The count is RocketMQ's: the topics of the broker name. */
static int32_t wipe(struct route_info_manager *manager, struct slice broker_name, bool wiped)
{
    struct route_broker *broker = broker_find(manager, broker_name);
    int32_t touched = 0;
    if (broker == NULL)
        return 0;
    broker->write_wiped = wiped;
    for (struct route_topic *topic = manager->topics; topic != NULL; topic = topic->hh.next)
        touched += topic_queue(topic, broker) != NULL;
    return touched;
}

int32_t route_info_wipe_write_perm(struct route_info_manager *manager, struct slice broker_name)
{
    return wipe(manager, broker_name, true);
}

int32_t route_info_add_write_perm(struct route_info_manager *manager, struct slice broker_name)
{
    return wipe(manager, broker_name, false);
}

void route_info_delete_topic(struct route_info_manager *manager, struct slice topic_name, struct slice cluster_name)
{
    struct route_topic *topic = route_info_find_topic(manager, topic_name);
    if (topic == NULL)
        return;
    if (cluster_name.size == 0) {
        topic_free(manager, topic);
        return;
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < topic->queue_count; i++) {
        if (!slice_equal_text(cluster_name, topic->queues[i].broker->cluster))
            topic->queues[kept++] = topic->queues[i];
    }
    topic->queue_count = kept;
    if (kept == 0)
        topic_free(manager, topic);
}
