/* Dispatching one committed record (reput), in the order of what can fail:
 *
 * 1. decode, and find the queue;
 * 2. the unit must be the queue's next one, or be there already;
 * 3. reserve: the queue's file and blocks, then the index entries. A full disk is met here, with nothing added;
 * 4. write the unit, then the index entries. Neither can fail.
 */
#include "store/message_store.h"

#include "proto/hash.h"
#include "proto/ledger_entry.h"
#include "store/index_service.h"
#include "store/log_sink.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static bool hash_out_of_memory;
#define HASH_NONFATAL_OOM 1
#define uthash_nonfatal_oom(element) (hash_out_of_memory = true)
#include <uthash.h>

#define TOPIC_SIZE_MAX 255u /* a directory's name; RocketMQ 5's %RETRY% topics may be that long */
#define RECENT_QUEUES 256u
#define SYNC_ONE_BY_ONE_MAX 200u
#define DISPATCH_KEYS_MAX (MESSAGE_PROPERTIES_MAX / 2 + 2)
#define SCHEDULE_TOPIC "SCHEDULE_TOPIC_XXXX"
#define CONSUME_QUEUE_DIR "consumequeue"
#define INDEX_DIR "index"

struct queue_node {
    struct consume_queue queue;
    UT_hash_handle hh;
    struct queue_node *dirty_next;
    bool listed; /* stands in the dirty list */
    bool schedule;
    int32_t key_seed; /* Java hash of topic + "#" */
    unsigned hash;
    uint32_t topic_size;
    uint8_t key[]; /* topic, then the queue id */
};

struct queue_table {
    struct queue_node *head;
    /* Most records go to a queue that was used a moment ago. */
    struct queue_node *recent[RECENT_QUEUES];
    struct queue_node *dirty;
    char *dir; /* .../consumequeue */
    bool dir_dirty;
};

struct message_store_sync_item {
    struct mapped_file *file; /* pinned; NULL: an index file */
    uint64_t file_size;
    struct index_file *index; /* pinned */
    uint32_t index_count;
    bool index_whole;
    uint8_t *address;
    uint64_t size;
};

/* ---- the table of queues ---- */

static unsigned hash_of(struct slice topic, int32_t queue_id)
{
    uint64_t h = XXH3_64bits_withSeed(topic.data, topic.size, (uint32_t)queue_id);
    return (unsigned)(h ^ (h >> 32));
}

static bool is_key(const struct queue_node *node, struct slice topic, int32_t queue_id)
{
    return node->queue.queue_id == queue_id && node->topic_size == topic.size && memcmp(node->key, topic.data, topic.size) == 0;
}

static struct queue_node *find_queue(struct queue_table *table, struct slice topic, int32_t queue_id)
{
    if (topic.size == 0 || topic.size > TOPIC_SIZE_MAX)
        return NULL;
    unsigned hash = hash_of(topic, queue_id);
    struct queue_node **recent = &table->recent[hash % RECENT_QUEUES];
    if (*recent != NULL && (*recent)->hash == hash && is_key(*recent, topic, queue_id))
        return *recent;
    uint8_t key[TOPIC_SIZE_MAX + sizeof queue_id];
    struct queue_node *node;
    memcpy(key, topic.data, topic.size);
    memcpy(key + topic.size, &queue_id, sizeof queue_id);
    HASH_FIND_BYHASHVALUE(hh, table->head, key, topic.size + sizeof queue_id, hash, node);
    if (node != NULL)
        *recent = node;
    return node;
}

/* A topic is a directory's name: nothing that leads elsewhere. */
static bool is_safe_topic(struct slice topic)
{
    if (topic.size == 0 || topic.size > TOPIC_SIZE_MAX)
        return false;
    if (slice_equal_text(topic, ".") || slice_equal_text(topic, ".."))
        return false;
    return memchr(topic.data, '/', topic.size) == NULL && memchr(topic.data, '\0', topic.size) == NULL;
}

static struct queue_node *open_queue(struct message_store *store, struct slice topic, int32_t queue_id, struct error *error)
{
    char dir[PATH_MAX], name[TOPIC_SIZE_MAX + 1];
    struct queue_table *table = store->queues;
    if (!is_safe_topic(topic) || queue_id < 0) {
        error_set(error, ERROR_INVALID, "no queue can be named %.*s %d", topic.size > 300 ? 300 : (int)topic.size, (const char *)topic.data,
                  (int)queue_id);
        return NULL;
    }
    memcpy(name, topic.data, topic.size);
    name[topic.size] = '\0';
    if (snprintf(dir, sizeof dir, "%s/%s/%d", table->dir, name, (int)queue_id) >= (int)sizeof dir) {
        error_set(error, ERROR_INVALID, "queue %s %d: path too long", name, (int)queue_id);
        return NULL;
    }
    size_t key_size = topic.size + sizeof queue_id;
    struct queue_node *node = calloc(1, sizeof *node + key_size);
    if (node == NULL) {
        error_set(error, ERROR_NO_MEMORY, "queue %s %d: out of memory", name, (int)queue_id);
        return NULL;
    }
    node->hash = hash_of(topic, queue_id);
    node->topic_size = (uint32_t)topic.size;
    node->schedule = slice_equal_text(topic, SCHEDULE_TOPIC);
    node->key_seed = java_string_hash_continue(java_string_hash(topic), SLICE_LITERAL("#"));
    memcpy(node->key, topic.data, topic.size);
    memcpy(node->key + topic.size, &queue_id, sizeof queue_id);
    if (consume_queue_open(&node->queue, store->env, dir, name, queue_id, store->config.consume_queue_file_size, error) != 0) {
        free(node);
        return NULL;
    }
    hash_out_of_memory = false;
    HASH_ADD_KEYPTR_BYHASHVALUE(hh, table->head, node->key, key_size, node->hash, node);
    if (hash_out_of_memory) {
        consume_queue_close(&node->queue);
        free(node);
        error_set(error, ERROR_NO_MEMORY, "queue %s %d: out of memory", name, (int)queue_id);
        return NULL;
    }
    return node;
}

struct consume_queue *message_store_queue(struct message_store *store, struct slice topic, int32_t queue_id, bool create,
                                          struct error *error)
{
    struct queue_node *node = find_queue(store->queues, topic, queue_id);
    if (node == NULL && create)
        node = open_queue(store, topic, queue_id, error);
    return node == NULL ? NULL : &node->queue;
}

void message_store_each_queue(struct message_store *store, void (*each)(void *argument, struct consume_queue *queue), void *argument)
{
    struct queue_node *node, *next;
    HASH_ITER(hh, store->queues->head, node, next)
        each(argument, &node->queue);
}

void message_store_reset_append_offsets(struct message_store *store)
{
    for (struct queue_node *node = store->queues->head; node != NULL; node = node->hh.next)
        node->queue.append_offset = node->queue.max_offset;
}

static void list_dirty(struct queue_table *table, struct queue_node *node)
{
    if (node->listed)
        return;
    node->listed = true;
    node->dirty_next = table->dirty;
    table->dirty = node;
}

/* ---- open and close ---- */

struct names {
    char **names;
    size_t count;
    size_t capacity;
};

static int each_dir(void *argument, const char *name, bool is_dir)
{
    struct names *names = argument;
    if (!is_dir)
        return 0;
    if (names->count == names->capacity) {
        size_t capacity = names->capacity == 0 ? 64 : names->capacity * 2;
        char **grown = realloc(names->names, capacity * sizeof *grown);
        if (grown == NULL)
            return -ENOMEM;
        names->names = grown;
        names->capacity = capacity;
    }
    names->names[names->count] = strdup(name);
    return names->names[names->count++] == NULL ? -ENOMEM : 0;
}

static void names_close(struct names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->names[i]);
    free(names->names);
}

static int list_error(struct error *error, const char *dir, int rv)
{
    return error_set(error, rv == -ENOMEM ? ERROR_NO_MEMORY : ERROR_IO, "list %s: %s", dir, strerror(-rv));
}

static int open_topic(struct message_store *store, const char *topic, struct error *error)
{
    char dir[PATH_MAX];
    struct names ids = {0};
    if (snprintf(dir, sizeof dir, "%s/%s", store->queues->dir, topic) >= (int)sizeof dir)
        return error_set(error, ERROR_IO, "%s/%s: path too long", store->queues->dir, topic);
    int rv = store->env->ops->list(store->env, dir, each_dir, &ids);
    int code = rv == 0 ? 0 : list_error(error, dir, rv);
    for (size_t i = 0; code == 0 && i < ids.count; i++) {
        int32_t queue_id;
        char text[16];
        if (!slice_to_i32(slice_of_text(ids.names[i]), &queue_id) || queue_id < 0)
            continue;
        snprintf(text, sizeof text, "%d", (int)queue_id);
        if (strcmp(text, ids.names[i]) != 0)
            continue; /* "007" is none of ours */
        struct error inner = {0};
        if (open_queue(store, slice_of_text(topic), queue_id, &inner) == NULL) {
            code = inner.code;
            error_set(error, code, "queue %s %d: %s", topic, (int)queue_id, inner.message);
        }
    }
    names_close(&ids);
    return code;
}

static int open_queues(struct message_store *store, struct error *error)
{
    struct names topics = {0};
    int rv = store->env->ops->list(store->env, store->queues->dir, each_dir, &topics);
    if (rv == -ENOENT) {
        store->queues->dir_dirty = true;
        rv = store->env->ops->make_dir(store->env, store->queues->dir);
    }
    int code = rv == 0 ? 0 : list_error(error, store->queues->dir, rv);
    for (size_t i = 0; code == 0 && i < topics.count; i++)
        code = open_topic(store, topics.names[i], error);
    names_close(&topics);
    return code;
}

static void apply_defaults(struct message_store_config *config)
{
    uint64_t size = config->consume_queue_file_size == 0 ? CONSUME_QUEUE_FILE_SIZE : config->consume_queue_file_size;
    config->consume_queue_file_size = (size + CONSUME_QUEUE_UNIT_SIZE - 1) / CONSUME_QUEUE_UNIT_SIZE * CONSUME_QUEUE_UNIT_SIZE;
    if (config->index_slots == 0)
        config->index_slots = 5000000;
    if (config->index_entries == 0)
        config->index_entries = 20000000;
    if (config->index_entries < 2)
        config->index_entries = 2;
    if (config->transfer_bytes_max == 0)
        config->transfer_bytes_max = 262144;
    if (config->transfer_count_max == 0)
        config->transfer_count_max = 32;
    if (config->transfer_count_max > GET_MESSAGE_BATCH_MAX)
        config->transfer_count_max = GET_MESSAGE_BATCH_MAX;
}

int message_store_open(struct message_store *store, struct env *env, const struct message_store_config *config,
                       const struct log_view *log, struct error *error)
{
    char path[PATH_MAX];
    int code;
    memset(store, 0, sizeof *store);
    store->env = env;
    store->config = *config;
    store->config.root = NULL; /* borrowed for this call only */
    store->log = *log;
    store->earliest_time_ms = -1;
    apply_defaults(&store->config);
    store->queues = calloc(1, sizeof *store->queues);
    if (store->queues == NULL)
        return error_set(error, ERROR_NO_MEMORY, "message store in %s: out of memory", config->root);
    if (snprintf(path, sizeof path, "%s/%s", config->root, CONSUME_QUEUE_DIR) >= (int)sizeof path) {
        code = error_set(error, ERROR_INVALID, "%s: path too long", config->root);
        goto fail;
    }
    store->queues->dir = strdup(path);
    if (store->queues->dir == NULL) {
        code = error_set(error, ERROR_NO_MEMORY, "message store in %s: out of memory", config->root);
        goto fail;
    }
    code = open_queues(store, error);
    if (code != 0)
        goto fail;
    if (store->config.index_enable) {
        snprintf(path, sizeof path, "%s/%s", config->root, INDEX_DIR); /* shorter than the one above */
        store->index = malloc(sizeof *store->index);
        if (store->index == NULL) {
            code = error_set(error, ERROR_NO_MEMORY, "message store in %s: out of memory", config->root);
            goto fail;
        }
        code = index_service_open(store->index, env, path, store->config.index_slots, store->config.index_entries, error);
        if (code != 0) {
            free(store->index);
            store->index = NULL;
            goto fail;
        }
    }
    return 0;

fail:
    message_store_close(store);
    return code;
}

static void free_node(struct queue_table *table, struct queue_node *node)
{
    HASH_DELETE(hh, table->head, node);
    consume_queue_close(&node->queue);
    free(node);
}

void message_store_close(struct message_store *store)
{
    struct queue_node *node, *next;
    struct queue_table *table = store->queues;
    if (table != NULL) {
        HASH_ITER(hh, table->head, node, next)
            free_node(table, node);
        free(table->dir);
        free(table);
        store->queues = NULL;
    }
    if (store->index != NULL) {
        struct index_service *index = store->index;
        struct index_file *newest = index->count == 0 ? NULL : index->files[index->count - 1];
        /* After a last sync: the slots too, so that the next start need not build them anew even if the machine stops now. */
        if (newest != NULL && newest->synced == newest->count && !newest->whole && !store->sync_broken)
            index_file_sync_whole(newest);
        index_service_close(index);
        free(index);
        store->index = NULL;
    }
}

/* ---- recovery ---- */

static int64_t time_of(void *argument, int64_t physical_offset)
{
    return message_store_record_time(argument, physical_offset);
}

/* Where the entry of a record begins. */
static int64_t entry_position(int64_t physical_offset)
{
    return physical_offset - (int64_t)LEDGER_ENTRY_HEADER_SIZE;
}

int message_store_recover(struct message_store *store, int64_t position, struct error *error)
{
    struct queue_table *table = store->queues;
    struct queue_node *node;
    int64_t log_min = store->log.min_offset(store->log.context);
    int64_t resume = position;
    bool any = false;
    int rv;

    for (node = table->head; node != NULL; node = node->hh.next) {
        bool damaged;
        any = any || node->queue.files.count > 0;
        rv = consume_queue_recover(&node->queue, position, &damaged, error);
        if (rv != 0)
            return rv;
        if (damaged) {
            int64_t from = node->queue.max_physical_offset;
            struct consume_queue_unit unit;
            if (from > 0 && consume_queue_get_any(&node->queue, node->queue.max_offset - 1, &unit))
                from = entry_position(unit.physical_offset);
            else
                from = log_min;
            LOG_ERROR("queue %s %d is damaged behind offset %lld, dispatching again from %lld on", node->queue.topic,
                      (int)node->queue.queue_id, (long long)node->queue.max_offset, (long long)from);
            if (from < resume)
                resume = from;
        }
    }
    if (!any)
        resume = log_min;
    if (store->index != NULL) {
        int64_t from = position;
        rv = index_service_recover(store->index, position, log_min, time_of, store, &from, error);
        if (rv != 0)
            return rv;
        if (from != log_min && from < position)
            from = entry_position(from);
        if (from < resume)
            resume = from;
    }
    if (resume < log_min)
        resume = log_min;
    if (resume < position) {
        /* Nothing may be ahead of where dispatching begins: between there and here a topic may have been deleted and made anew, and its
         * later units would be in the way of the earlier ones. */
        LOG_WARN("queues and index are completed from log position %lld on (%lld bytes)", (long long)resume, (long long)(position - resume));
        for (node = table->head; node != NULL; node = node->hh.next) {
            rv = consume_queue_truncate(&node->queue, resume, error);
            if (rv != 0)
                return rv;
        }
        if (store->index != NULL) {
            int64_t ignored = resume;
            rv = index_service_recover(store->index, resume, log_min, time_of, store, &ignored, error);
            if (rv != 0)
                return rv;
        }
    }
    for (node = table->head; node != NULL; node = node->hh.next) {
        struct consume_queue *queue = &node->queue;
        rv = consume_queue_correct_min(queue, log_min, error);
        if (rv != 0)
            return rv;
        queue->append_offset = queue->max_offset;
        /* What the process before this one wrote and nobody synced. */
        if (queue->files.count > 0 && queue->max_physical_offset > store->synced_position) {
            int64_t from = consume_queue_lower_bound(queue, store->synced_position);
            uint64_t byte = (uint64_t)from * CONSUME_QUEUE_UNIT_SIZE;
            if (from == queue->min_offset)
                byte = mapped_file_queue_begin(&queue->files);
            if (!queue->dirty || queue->dirty_from > byte)
                queue->dirty_from = byte;
            queue->dirty = true;
            queue->files.dir_dirty = true;
        }
        if (queue->dirty || queue->files.dir_dirty)
            list_dirty(table, node);
    }
    store->recovered_position = resume;
    store->dispatched_offset = resume;
    store->earliest_time_ms = -1;
    return 0;
}

/* ---- dispatching ---- */

static int64_t delivery_time(const struct message_store *store, const struct message_dispatch *dispatch)
{
    int32_t level;
    if (dispatch->delay.data == NULL || !slice_to_i32(dispatch->delay, &level))
        return -1;
    if (level > store->config.delay_levels)
        level = store->config.delay_levels;
    return level > 0 ? dispatch->store_timestamp_ms + store->config.delay_level_ms[level] : -1;
}

static int64_t tags_code_of(const struct message_store *store, const struct queue_node *node, const struct message_dispatch *dispatch)
{
    if (node->schedule) {
        int64_t time = delivery_time(store, dispatch);
        if (time >= 0)
            return time;
    }
    return dispatch->tags.data == NULL ? 0 : message_tags_code(dispatch->tags);
}

/* Next token of KEYS; an empty slice at the end. */
static struct slice next_key(struct slice *rest)
{
    while (rest->size > 0) {
        const uint8_t *space = memchr(rest->data, ' ', rest->size);
        size_t size = space == NULL ? rest->size : (size_t)(space - rest->data);
        struct slice key = slice_of(rest->data, size);
        size_t step = space == NULL ? size : size + 1;
        rest->data += step;
        rest->size -= step;
        if (size > 0)
            return key;
    }
    return slice_of(NULL, 0);
}

static uint32_t count_keys(const struct message_dispatch *dispatch)
{
    uint32_t count = dispatch->uniq_key.size > 0 ? 1 : 0;
    struct slice rest = dispatch->keys;
    if (rest.data != NULL)
        while (next_key(&rest).size > 0)
            count++;
    return count;
}

static void put_key(struct index_service *index, int32_t seed, struct slice key, const struct message_dispatch *dispatch)
{
    int32_t hash = java_string_hash_continue(seed, key);
    uint32_t positive = hash == INT32_MIN ? 0 : (uint32_t)(hash < 0 ? -hash : hash);
    index_service_put(index, positive, dispatch->physical_offset, dispatch->store_timestamp_ms);
}

static void put_keys(struct index_service *index, int32_t seed, const struct message_dispatch *dispatch, uint32_t count)
{
    if (count > 0 && dispatch->uniq_key.size > 0) {
        put_key(index, seed, dispatch->uniq_key, dispatch);
        count--;
    }
    struct slice rest = dispatch->keys;
    for (; count > 0; count--)
        put_key(index, seed, next_key(&rest), dispatch);
}

/* The unit must be the next one. Only while dispatching is being repeated after a start may it be the very one that is there, or one of a
 * topic that was deleted later on and made anew: then all that the queue holds lies behind it. */
static int place_unit(const struct message_store *store, const struct consume_queue *queue, const struct message_dispatch *dispatch,
                      bool *append)
{
    struct consume_queue_unit unit;
    *append = true;
    if (queue->files.count == 0)
        return 0;
    if (dispatch->queue_offset == queue->max_offset && dispatch->physical_offset >= queue->max_physical_offset)
        return 0;
    *append = false;
    if (consume_queue_get_any(queue, dispatch->queue_offset, &unit) && unit.physical_offset == dispatch->physical_offset &&
        unit.size == (int32_t)dispatch->size)
        return 0;
    bool repeated = dispatch->physical_offset < store->recovered_position;
    if (repeated && consume_queue_get(queue, queue->min_offset, &unit) && unit.physical_offset > dispatch->physical_offset)
        return 0;
    return ERROR_DAMAGED;
}

int message_store_dispatch(struct message_store *store, struct slice record, struct message_dispatch *dispatch)
{
    struct queue_node *node = NULL;
    bool add_unit = false;
    uint32_t keys = 0;
    int rv = message_dispatch_decode(record, dispatch);
    if (rv != 0)
        return rv;
    int transaction = dispatch->sys_flag & MESSAGE_TRANSACTION_MASK;

    if (transaction == 0 || transaction == MESSAGE_TRANSACTION_COMMIT) {
        node = find_queue(store->queues, dispatch->topic, dispatch->queue_id);
        if (node == NULL) {
            struct error error = {0};
            node = open_queue(store, dispatch->topic, dispatch->queue_id, &error);
            if (node == NULL)
                return error.code;
        }
        rv = place_unit(store, &node->queue, dispatch, &add_unit);
        if (rv != 0)
            return rv;
        if (add_unit) {
            rv = consume_queue_prepare(&node->queue, dispatch->queue_offset);
            if (rv != 0)
                return rv;
        }
    }
    /* A record at or before the newest one in the index has its entries: dispatching is being repeated. */
    if (store->index != NULL && transaction != MESSAGE_TRANSACTION_ROLLBACK && dispatch->physical_offset > index_service_end(store->index)) {
        keys = count_keys(dispatch);
        if (keys >= store->config.index_entries)
            keys = store->config.index_entries - 1;
        if (keys > 0) {
            rv = index_service_reserve(store->index, keys);
            if (rv == ERROR_NO_SPACE)
                return rv;
            if (rv != 0) {
                store->index->not_indexed++;
                keys = 0;
            }
        }
    }

    if (add_unit) {
        struct consume_queue_unit unit = {dispatch->physical_offset, (int32_t)dispatch->size, tags_code_of(store, node, dispatch)};
        rv = consume_queue_append(&node->queue, dispatch->queue_offset, &unit);
        assert(rv == 0);
        list_dirty(store->queues, node);
    }
    if (keys > 0) {
        int32_t seed = node != NULL ? node->key_seed : java_string_hash_continue(java_string_hash(dispatch->topic), SLICE_LITERAL("#"));
        put_keys(store->index, seed, dispatch, keys);
    }
    int64_t end = dispatch->physical_offset + dispatch->size;
    if (end > store->dispatched_offset)
        store->dispatched_offset = end;
    return 0;
}

/* ---- making it durable ---- */

/* NULL-safe room for one more. */
static void *next_item(void **items, size_t *count, size_t *capacity, size_t size)
{
    if (*count == *capacity) {
        size_t grown = *capacity == 0 ? 16 : *capacity * 2;
        void *p = realloc(*items, grown * size);
        if (p == NULL)
            return NULL;
        *items = p;
        *capacity = grown;
    }
    return (uint8_t *)*items + (*count)++ * size;
}

static struct message_store_sync_item *add_item(struct message_store_sync_job *job)
{
    void *items = job->items;
    struct message_store_sync_item *item = next_item(&items, &job->count, &job->capacity, sizeof *item);
    job->items = items;
    if (item != NULL)
        memset(item, 0, sizeof *item);
    return item;
}

static bool add_dir(struct message_store_sync_job *job, const char *dir, size_t size)
{
    void *dirs = job->dirs;
    char *copy = strndup(dir, size);
    if (copy == NULL)
        return false;
    char **place = next_item(&dirs, &job->dir_count, &job->dir_capacity, sizeof *place);
    job->dirs = dirs;
    if (place == NULL) {
        free(copy);
        return false;
    }
    *place = copy;
    return true;
}

static bool collect_queue(struct message_store_sync_job *job, const struct consume_queue *queue)
{
    const struct mapped_file_queue *files = &queue->files;
    uint64_t end = (uint64_t)queue->max_offset * CONSUME_QUEUE_UNIT_SIZE;
    for (uint64_t at = queue->dirty_from; queue->dirty && at < end;) {
        struct mapped_file *file = mapped_file_queue_find(files, at);
        if (file == NULL)
            break;
        uint64_t stop = file->start + files->file_size < end ? file->start + files->file_size : end;
        struct message_store_sync_item *item = add_item(job);
        if (item == NULL)
            return false;
        mapped_file_pin(file);
        item->file = file;
        item->file_size = files->file_size;
        item->address = file->map + (at - file->start);
        item->size = stop - at;
        at = stop;
    }
    if (!files->dir_dirty)
        return true;
    /* The file's name, the queue's and the topic's. */
    const char *slash = strrchr(files->dir, '/');
    assert(slash != NULL);
    return add_dir(job, files->dir, strlen(files->dir)) && add_dir(job, files->dir, (size_t)(slash - files->dir));
}

static bool collect_index(struct message_store_sync_job *job, struct index_file *file, bool newest)
{
    bool whole = !newest || index_file_is_full(file);
    if (file->synced >= file->count && !(whole && file->slots_dirty))
        return true;
    struct message_store_sync_item *item = add_item(job);
    if (item == NULL)
        return false;
    file->pins++;
    item->index = file;
    item->index_count = file->count;
    item->index_whole = whole;
    item->address = file->map;
    /* Slots change all over at random, and recovery builds them anew from the entries: only the header and the new entries of the newest
     * file have to reach the disk. */
    item->size = whole ? index_file_used(file, file->count) : INDEX_HEADER_SIZE;
    if (whole)
        return true;
    item = add_item(job);
    if (item == NULL)
        return false;
    file->pins++;
    item->index = file;
    item->index_count = file->count;
    uint64_t from = index_file_used(file, file->synced);
    item->address = file->map + from;
    item->size = index_file_used(file, file->count) - from;
    return true;
}

static void release_job(struct message_store_sync_job *job)
{
    for (size_t i = 0; i < job->count; i++) {
        struct message_store_sync_item *item = &job->items[i];
        if (item->file != NULL) {
            /* The queue itself may be gone: its topic was deleted meanwhile. */
            struct mapped_file_queue stub = {.env = job->env, .file_size = item->file_size, .writable_map = true};
            mapped_file_unpin(&stub, item->file);
        } else if (item->index != NULL) {
            index_file_unpin(item->index);
        }
    }
    for (size_t i = 0; i < job->dir_count; i++)
        free(job->dirs[i]);
    free(job->dirs);
    free(job->items);
    job->items = NULL;
    job->dirs = NULL;
    job->count = job->dir_count = job->capacity = job->dir_capacity = 0;
}

int message_store_sync_begin(struct message_store *store, struct message_store_sync_job *job)
{
    struct queue_table *table = store->queues;
    struct queue_node *node;
    bool fits = true;
    bool new_names = table->dir_dirty;
    memset(job, 0, sizeof *job);
    if (store->sync_broken)
        return ERROR_IO;
    job->env = store->env;
    job->root = table->dir;
    job->dispatched_offset = store->dispatched_offset;

    for (node = table->dirty; node != NULL && fits; node = node->dirty_next) {
        new_names = new_names || node->queue.files.dir_dirty;
        fits = collect_queue(job, &node->queue);
    }
    if (fits && new_names)
        fits = add_dir(job, table->dir, strlen(table->dir));
    if (fits && table->dir_dirty)
        fits = add_dir(job, table->dir, (size_t)(strrchr(table->dir, '/') - table->dir));
    if (store->index != NULL) {
        struct index_service *index = store->index;
        bool index_names = false;
        for (size_t i = 0; i < index->count && fits; i++) {
            index_names = index_names || index->files[i]->dir_dirty;
            fits = collect_index(job, index->files[i], i + 1 == index->count);
        }
        if (fits && index_names)
            fits = add_dir(job, index->dir, strlen(index->dir));
        if (fits && index->was_missing)
            fits = add_dir(job, table->dir, (size_t)(strrchr(table->dir, '/') - table->dir));
    }
    if (!fits) {
        release_job(job);
        return ERROR_NO_MEMORY;
    }
    while ((node = table->dirty) != NULL) {
        table->dirty = node->dirty_next;
        node->listed = false;
        node->queue.dirty = false;
        node->queue.files.dir_dirty = false;
    }
    table->dir_dirty = false;
    if (store->index != NULL) {
        for (size_t i = 0; i < store->index->count; i++)
            store->index->files[i]->dir_dirty = false;
    }
    return 0;
}

void message_store_sync_run(struct message_store_sync_job *job)
{
    struct env *env = job->env;
    int rv = 0;
    /* Each sync waits for the disk: thousands of queues would take a minute where one call for all of them takes a second. */
    if (job->count + job->dir_count > SYNC_ONE_BY_ONE_MAX && env->ops->sync_file_system != NULL) {
        job->result = env->ops->sync_file_system(env, job->root) == 0 ? 0 : ERROR_IO;
        return;
    }
    for (size_t i = 0; i < job->count && rv == 0; i++)
        if (job->items[i].size > 0)
            rv = env->ops->sync_map(env, job->items[i].address, job->items[i].size);
    /* From the files' names upwards; a directory that was deleted meanwhile has nothing to keep. */
    for (size_t i = 0; i < job->dir_count && rv == 0; i++) {
        rv = env->ops->sync_dir(env, job->dirs[i]);
        if (rv == -ENOENT)
            rv = 0;
    }
    job->result = rv == 0 ? 0 : ERROR_IO;
}

void message_store_sync_end(struct message_store *store, struct message_store_sync_job *job)
{
    if (job->result != 0) {
        /* The kernel may have dropped the dirty pages: a later success would prove nothing. */
        LOG_ERROR("queues and index could not be synced: a start after a power cut will build them anew from the last good sync");
        store->sync_broken = true;
    } else {
        for (size_t i = 0; i < job->count; i++) {
            struct message_store_sync_item *item = &job->items[i];
            if (item->index == NULL)
                continue;
            if (item->index->synced < item->index_count)
                item->index->synced = item->index_count;
            if (item->index_whole)
                item->index->slots_dirty = false;
        }
        if (store->index != NULL)
            store->index->was_missing = false;
    }
    release_job(job);
}

int message_store_sync(struct message_store *store)
{
    struct message_store_sync_job job;
    int rv = message_store_sync_begin(store, &job);
    if (rv != 0)
        return rv;
    message_store_sync_run(&job);
    rv = job.result;
    message_store_sync_end(store, &job);
    return rv;
}

/* ---- deletion ---- */

int message_store_delete_topic(struct message_store *store, struct slice topic)
{
    struct queue_table *table = store->queues;
    struct queue_node *node, *next;
    char path[PATH_MAX];
    struct error error = {0};
    int result = 0;
    bool any = false;
    if (!is_safe_topic(topic))
        return ERROR_INVALID;
    HASH_ITER(hh, table->head, node, next) {
        if (node->topic_size != topic.size || memcmp(node->key, topic.data, topic.size) != 0)
            continue;
        any = true;
        int rv = mapped_file_queue_destroy(&node->queue.files, &error);
        if (rv != 0) {
            /* Reput repeats the deletion after a restart; units that stay would meet those of a topic of the same name. */
            LOG_ERROR("delete queue %s %d: %s", node->queue.topic, (int)node->queue.queue_id, error.message);
            result = rv;
            continue;
        }
        for (struct queue_node **link = &table->dirty; node->listed && *link != NULL; link = &(*link)->dirty_next) {
            if (*link == node) {
                *link = node->dirty_next;
                break;
            }
        }
        if (table->recent[node->hash % RECENT_QUEUES] == node)
            table->recent[node->hash % RECENT_QUEUES] = NULL;
        free_node(table, node);
    }
    if (!any || result != 0)
        return result;
    table->dir_dirty = true;
    store->earliest_time_ms = -1;
    int size = snprintf(path, sizeof path, "%s/%.*s", table->dir, (int)topic.size, (const char *)topic.data);
    if (size > 0 && size < (int)sizeof path)
        store->env->ops->remove_dir(store->env, path); /* stays when a stranger's file is in it */
    return 0;
}

int message_store_trim(struct message_store *store, int64_t physical_offset)
{
    struct queue_table *table = store->queues;
    int result = 0;
    for (struct queue_node *node = table->head; node != NULL; node = node->hh.next) {
        struct error error = {0};
        int rv = consume_queue_correct_min(&node->queue, physical_offset, &error);
        if (rv != 0) {
            LOG_WARN("queue %s %d: %s", node->queue.topic, (int)node->queue.queue_id, error.message);
            result = rv;
        }
        if (node->queue.files.dir_dirty)
            list_dirty(table, node);
    }
    if (store->index != NULL) {
        int rv = index_service_trim(store->index, physical_offset);
        if (rv != 0)
            result = rv;
    }
    return result;
}

int64_t message_store_min_offset(struct message_store *store, struct slice topic, int32_t queue_id)
{
    const struct queue_node *node = find_queue(store->queues, topic, queue_id);
    return node == NULL ? 0 : node->queue.min_offset;
}

int64_t message_store_max_offset(struct message_store *store, struct slice topic, int32_t queue_id)
{
    const struct queue_node *node = find_queue(store->queues, topic, queue_id);
    return node == NULL ? 0 : node->queue.max_offset;
}
