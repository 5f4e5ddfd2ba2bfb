#include "store/queue_table.h"

#include "proto/hash.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define SLOTS_MIN 64u

static unsigned hash_of(struct slice topic, int32_t queue_id)
{
    uint64_t h = XXH3_64bits_withSeed(topic.data, topic.size, (uint32_t)queue_id);
    return (unsigned)(h ^ (h >> 32));
}

static bool is_key(const struct queue_node *node, struct slice topic, int32_t queue_id)
{
    return node->queue.queue_id == queue_id && node->topic_size == topic.size && memcmp(node->topic, topic.data, topic.size) == 0;
}

/* ---- slots ---- */

static void put_slot(struct queue_slot *slots, size_t count, struct queue_node *node)
{
    size_t at = node->hash & (count - 1);
    while (slots[at].node != NULL)
        at = (at + 1) & (count - 1);
    slots[at] = (struct queue_slot){node->hash, node};
}

/* Room for one more. */
static bool grow(struct queue_table *table)
{
    if (table->count < table->slot_count / 2)
        return true;
    size_t count = table->slot_count == 0 ? SLOTS_MIN : table->slot_count * 2;
    struct queue_slot *slots = calloc(count, sizeof *slots);
    if (slots == NULL)
        return false;
    for (struct queue_node *node = table->head; node != NULL; node = node->next)
        put_slot(slots, count, node);
    free(table->slots);
    table->slots = slots;
    table->slot_count = count;
    return true;
}

/* No gap may come between a queue and the slot of its hash: what stands behind the one that goes moves up. */
static void clear_slot(struct queue_table *table, const struct queue_node *node)
{
    size_t mask = table->slot_count - 1;
    size_t gap = node->hash & mask;
    while (table->slots[gap].node != node)
        gap = (gap + 1) & mask;
    for (size_t at = (gap + 1) & mask; table->slots[at].node != NULL; at = (at + 1) & mask) {
        size_t home = table->slots[at].hash & mask;
        if (((at - home) & mask) >= ((at - gap) & mask)) {
            table->slots[gap] = table->slots[at];
            gap = at;
        }
    }
    table->slots[gap] = (struct queue_slot){0};
}

/* ---- queues ---- */

struct queue_node *queue_table_find(struct queue_table *table, struct slice topic, int32_t queue_id)
{
    if (topic.size == 0 || topic.size > QUEUE_TABLE_TOPIC_MAX || table->slot_count == 0)
        return NULL;
    unsigned hash = hash_of(topic, queue_id);
    size_t mask = table->slot_count - 1;
    for (size_t at = hash & mask; table->slots[at].node != NULL; at = (at + 1) & mask) {
        if (table->slots[at].hash == hash && is_key(table->slots[at].node, topic, queue_id))
            return table->slots[at].node;
    }
    return NULL;
}

bool queue_table_is_safe(struct slice topic)
{
    if (topic.size == 0 || topic.size > QUEUE_TABLE_TOPIC_MAX)
        return false;
    if (slice_equal_text(topic, ".") || slice_equal_text(topic, ".."))
        return false;
    return !slice_holds(topic, '/') && !slice_holds(topic, '\0');
}

struct queue_node *queue_table_add(struct queue_table *table, struct slice topic, int32_t queue_id, struct error *error)
{
    char dir[PATH_MAX], name[QUEUE_TABLE_TOPIC_MAX + 1];
    if (!queue_table_is_safe(topic) || queue_id < 0) {
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
    struct queue_node *node = grow(table) ? calloc(1, sizeof *node + topic.size) : NULL;
    if (node == NULL) {
        error_set(error, ERROR_NO_MEMORY, "queue %s %d: out of memory", name, (int)queue_id);
        return NULL;
    }
    node->hash = hash_of(topic, queue_id);
    node->topic_size = (uint16_t)topic.size;
    node->schedule = slice_equal_text(topic, QUEUE_TABLE_SCHEDULE_TOPIC);
    node->key_seed = java_string_hash_continue(java_string_hash(topic), SLICE_LITERAL("#"));
    memcpy(node->topic, topic.data, topic.size);
    if (consume_queue_open(&node->queue, table->env, dir, name, queue_id, table->file_size, error) != 0) {
        free(node);
        return NULL;
    }
    mapped_file_queue_use_pool(&node->queue.files, &table->pool, &node->queue.tail);
    put_slot(table->slots, table->slot_count, node);
    table->count++;
    table->names_size += topic.size;
    node->previous = table->last;
    *(table->last == NULL ? &table->head : &table->last->next) = node;
    table->last = node;
    return node;
}

static uint64_t term_of(const struct queue_node *node, int64_t max_offset)
{
    return queue_sum_term(slice_of(node->topic, node->topic_size), node->queue.queue_id, max_offset);
}

void queue_table_sum(struct queue_sums *sums, struct queue_node *node, int64_t max_offset)
{
    if (node->summed == max_offset)
        return;
    if (node->summed > 0) {
        sums->count--;
        sums->sum -= term_of(node, node->summed);
    }
    if (max_offset > 0) {
        sums->count++;
        sums->sum += term_of(node, max_offset);
    }
    node->summed = max_offset;
}

void queue_table_mark(struct queue_table *table, struct queue_node *node)
{
    if (node->listed)
        return;
    node->listed = true;
    node->dirty_next = table->dirty;
    table->dirty = node;
}

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

static int open_topic(struct queue_table *table, const char *topic, struct error *error)
{
    char dir[PATH_MAX];
    struct names ids = {0};
    if (snprintf(dir, sizeof dir, "%s/%s", table->dir, topic) >= (int)sizeof dir)
        return error_set(error, ERROR_IO, "%s/%s: path too long", table->dir, topic);
    int rv = table->env->ops->list(table->env, dir, each_dir, &ids);
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
        if (queue_table_add(table, slice_of_text(topic), queue_id, &inner) == NULL) {
            code = inner.code;
            error_set(error, code, "queue %s %d: %s", topic, (int)queue_id, inner.message);
        }
    }
    names_close(&ids);
    return code;
}

static int open_queues(struct queue_table *table, struct error *error)
{
    struct names topics = {0};
    int rv = table->env->ops->list(table->env, table->dir, each_dir, &topics);
    if (rv == -ENOENT) {
        table->dir_dirty = true;
        rv = table->env->ops->make_dir(table->env, table->dir);
    }
    int code = rv == 0 ? 0 : list_error(error, table->dir, rv);
    for (size_t i = 0; code == 0 && i < topics.count; i++)
        code = open_topic(table, topics.names[i], error);
    names_close(&topics);
    return code;
}

struct queue_table *queue_table_new(struct env *env, const char *dir, uint64_t file_size, struct error *error)
{
    struct queue_table *table = calloc(1, sizeof *table);
    if (table != NULL)
        table->dir = strdup(dir);
    if (table == NULL || table->dir == NULL) {
        free(table);
        error_set(error, ERROR_NO_MEMORY, "open %s: out of memory", dir);
        return NULL;
    }
    table->env = env;
    table->file_size = file_size;
    table->pool.max = QUEUE_TABLE_MAPPED_MAX;
    if (open_queues(table, error) != 0) {
        queue_table_free(table);
        return NULL;
    }
    return table;
}

void queue_table_remove(struct queue_table *table, struct queue_node *node)
{
    for (struct queue_node **link = &table->dirty; node->listed && *link != NULL; link = &(*link)->dirty_next) {
        if (*link == node) {
            *link = node->dirty_next;
            break;
        }
    }
    clear_slot(table, node);
    table->count--;
    table->names_size -= node->topic_size;
    *(node->previous == NULL ? &table->head : &node->previous->next) = node->next;
    *(node->next == NULL ? &table->last : &node->next->previous) = node->previous;
    consume_queue_close(&node->queue);
    free(node);
}

void queue_table_free(struct queue_table *table)
{
    if (table == NULL)
        return;
    table->dirty = NULL;
    for (struct queue_node *node = table->head, *next; node != NULL; node = next) {
        next = node->next;
        node->listed = false;
        queue_table_remove(table, node);
    }
    free(table->slots);
    free(table->dir);
    free(table);
}
