#include "store/message_store.h"

#include "proto/ledger_entry.h"
#include "store/index_compare.h"
#include "store/index_service.h"
#include "store/log_sink.h"
#include "store/queue_table.h"
#include "store/seeded_bug.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONSUME_QUEUE_DIR "consumequeue"
#define INDEX_DIR "index"

struct consume_queue *message_store_queue(struct message_store *store, struct slice topic, int32_t queue_id, bool create,
                                          struct error *error)
{
    struct queue_node *node = queue_table_find(store->queues, topic, queue_id);
    if (node == NULL && create)
        node = queue_table_add(store->queues, topic, queue_id, error);
    return node == NULL ? NULL : &node->queue;
}

uint64_t message_store_list_size(const struct message_store *store, uint32_t each)
{
    return store->queues->names_size + (uint64_t)store->queues->count * each;
}

void message_store_each_queue(struct message_store *store, void (*each)(void *argument, struct consume_queue *queue), void *argument)
{
    for (struct queue_node *node = store->queues->head, *next; node != NULL; node = next) {
        next = node->next;
        each(argument, &node->queue);
    }
}

void message_store_reset_append_offsets(struct message_store *store)
{
    for (struct queue_node *node = store->queues->head; node != NULL; node = node->next)
        node->queue.append_offset = node->queue.max_offset;
}

/* ---- open and close ---- */

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
    struct error inner = {0};
    if (snprintf(path, sizeof path, "%s/%s", config->root, CONSUME_QUEUE_DIR) >= (int)sizeof path)
        return error_set(error, ERROR_INVALID, "%s: path too long", config->root);
    store->queues = queue_table_new(env, path, store->config.consume_queue_file_size, &inner);
    if (store->queues == NULL)
        return error_set(error, inner.code, "%s", inner.message);
    queue_sums_load(&store->sums, env, path);
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
        store->index_compare = index_compare_new(env, store->index, &store->dispatched_offset, &store->recovered_position);
        if (store->index_compare == NULL) {
            code = error_set(error, ERROR_NO_MEMORY, "message store in %s: out of memory", config->root);
            goto fail;
        }
    }
    return 0;

fail:
    message_store_close(store);
    return code;
}

void message_store_close(struct message_store *store)
{
    queue_table_free(store->queues);
    store->queues = NULL;
    index_compare_free(store->index_compare);
    store->index_compare = NULL;
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

/* Looks at a queue and cuts what lies at or behind the position; a damaged one only with `damage_too`. */
static int look_and_cut(struct consume_queue *queue, int64_t position, bool damage_too, struct consume_queue_end *end, struct error *error)
{
    struct mapped_file_window window;

    consume_queue_begin_look(queue, &window);
    int rv = consume_queue_look(queue, position, end, error);
    if (rv == 0 && (damage_too || !end->damaged))
        rv = consume_queue_cut(queue, end, error);
    int looked = consume_queue_end_look(queue, rv == 0 ? error : NULL);
    return rv != 0 ? rv : looked;
}

/* A damaged one is left as it is, with the mark that says so; *resume is lowered. */
static int recover_queue(struct queue_node *node, int64_t position, int64_t log_min, int64_t *resume, struct error *error)
{
    struct consume_queue *queue = &node->queue;
    struct consume_queue_end end;

    int rv = look_and_cut(queue, position, false, &end, error);
    if (rv != 0)
        return rv;
    node->damaged = end.damaged;
    if (!end.damaged)
        return 0;
    int64_t from = end.last_physical_offset < 0 ? log_min : entry_position(end.last_physical_offset);
    if (from < log_min)
        from = log_min;
    LOG_ERROR("queue %s %d is damaged behind offset %lld, dispatching again from %lld on", queue->topic, (int)queue->queue_id, (long long)end.offset,
              (long long)from);
    if (from < *resume)
        *resume = from;
    return 0;
}

static int cut_damaged(struct queue_node *node, int64_t position, int64_t log_min, struct error *error)
{
    struct consume_queue *queue = &node->queue;
    struct consume_queue_end end;

    int rv = look_and_cut(queue, position, true, &end, error);
    if (rv != 0)
        return rv;
    node->damaged = false;
    /* What it lost is gone from the log too: it is made anew from the first record that remains. */
    return end.last_physical_offset >= 0 && entry_position(end.last_physical_offset) < log_min ? consume_queue_truncate(queue, 0, error) : 0;
}

/* Where each queue has to end so that it holds nothing at or behind `cut`: changes nothing yet. *sure is false when damaged units may hide that place: it is right
 * for certain where the log has the message of that number, behind `cut`. One that is too far behind is met by what is dispatched from there on. */
static int find_cuts(struct message_store *store, int64_t position, int64_t cut, bool *sure, struct error *error)
{
    *sure = true;
    for (struct queue_node *node = store->queues->head; node != NULL; node = node->next) {
        struct consume_queue *queue = &node->queue;
        struct consume_queue_end end = {.offset = queue->max_offset};
        struct consume_queue_unit unit;
        struct mapped_file_window window;

        consume_queue_begin_look(queue, &window);
        int rv = node->damaged ? consume_queue_look(queue, position, &end, error) : 0;
        node->cut_at = consume_queue_border(queue, end.offset, cut);
        bool stays = node->cut_at == end.offset, named = !stays && consume_queue_get_any(queue, node->cut_at, &unit) && unit.physical_offset >= cut;
        int looked = consume_queue_end_look(queue, rv == 0 ? error : NULL);
        if (rv != 0 || looked != 0)
            return rv != 0 ? rv : looked;
        if (stays ? node->damaged : !named || !message_store_unit_names(store, queue, node->cut_at, &unit))
            *sure = false;
    }
    return 0;
}

/* Cuts them there, and what is damaged. */
static int cut_queues(struct message_store *store, int64_t position, int64_t log_min, struct error *error)
{
    for (struct queue_node *node = store->queues->head; node != NULL; node = node->next) {
        const struct consume_queue_end end = {.offset = node->cut_at};
        int rv = node->damaged ? cut_damaged(node, position, log_min, error) : 0;
        if (rv == 0)
            rv = consume_queue_cut(&node->queue, &end, error);
        if (rv != 0)
            return rv;
    }
    return 0;
}

/* Where a damaged queue ended is not known, but the others held the rest of the sum: is there an end, in the two files at which it is looked for, that makes it
 * whole? */
static bool is_the_rest(const struct queue_node *node, uint64_t count, uint64_t sum)
{
    const struct mapped_file_queue *files = &node->queue.files;
    const int64_t to = (int64_t)(mapped_file_queue_end(files) / CONSUME_QUEUE_UNIT_SIZE), of_file = (int64_t)(files->file_size / CONSUME_QUEUE_UNIT_SIZE);

    if (count == 0)
        return sum == 0;
    for (int64_t end = to > 2 * of_file ? to - 2 * of_file : 1; count == 1 && end <= to; end++) {
        if (queue_sum_term(slice_of(node->topic, node->topic_size), node->queue.queue_id, end) == sum)
            return true;
    }
    return false;
}

/* Do the queues hold what they held then? */
static int compare_sums(struct message_store *store, int64_t position, int64_t log_min, bool *differ, struct error *error)
{
    const struct queue_node *damaged = NULL;
    const struct queue_sum *then = queue_sums_newest(&store->sums, log_min, position);
    struct queue_sums now = {0};

    *differ = false;
    if (then == NULL || SEEDED_BUG(SUMS_NOT_COMPARED))
        return 0;
    for (struct queue_node *node = store->queues->head; node != NULL; node = node->next) {
        struct mapped_file_window window;
        if (node->damaged) {
            damaged = node;
            continue;
        }
        consume_queue_begin_look(&node->queue, &window);
        queue_table_sum(&now, node, consume_queue_end_at(&node->queue, then->position));
        node->summed = 0;
        int rv = consume_queue_end_look(&node->queue, error);
        if (rv != 0)
            return rv;
    }
    *differ = damaged != NULL ? !is_the_rest(damaged, then->count - now.count, then->sum - now.sum) : now.count != then->count || now.sum != then->sum;
    if (*differ && damaged != NULL)
        LOG_ERROR("%s: others than queue %s %d are damaged or lost messages, too: all queues are made anew from the log", store->queues->dir,
                  damaged->queue.topic, (int)damaged->queue.queue_id);
    else if (now.count < then->count)
        LOG_ERROR("%s: at log position %lld there were %llu queues with messages, %llu of them are lost: all queues are made anew from the log",
                  store->queues->dir, (long long)then->position, (unsigned long long)then->count, (unsigned long long)(then->count - now.count));
    else if (*differ)
        LOG_ERROR("%s: the queues do not end where they ended at log position %lld, one of them lost messages: all queues are made anew from the log",
                  store->queues->dir, (long long)then->position);
    return 0;
}

/* The index back to the position; *resume is lowered to where records have to be indexed again. */
static int recover_index(struct message_store *store, int64_t position, int64_t log_min, int64_t *resume, struct error *error)
{
    int64_t from = position;
    int rv = index_service_recover(store->index, position, log_min, time_of, store, &from, error);
    if (rv != 0)
        return rv;
    if (from != log_min && from < position)
        from = entry_position(from);
    if (from < *resume)
        *resume = from;
    return 0;
}

int message_store_recover(struct message_store *store, int64_t position, struct error *error)
{
    struct queue_table *table = store->queues;
    struct queue_node *node;
    int64_t log_min = store->log.min_offset(store->log.context);
    int64_t resume = position;
    bool any = false, damaged = false, differ;
    int rv;

    for (node = table->head; node != NULL; node = node->next) {
        any = any || node->queue.files.count > 0;
        rv = recover_queue(node, position, log_min, &resume, error);
        if (rv != 0)
            return rv;
        damaged = damaged || node->damaged;
    }
    rv = compare_sums(store, position, log_min, &differ, error);
    if (rv != 0)
        return rv;
    store->lost_ends = differ;
    if (!any || differ)
        resume = log_min;
    if (store->index != NULL) {
        rv = recover_index(store, position, log_min, &resume, error);
        if (rv != 0)
            return rv;
    }
    if (resume < log_min)
        resume = log_min;
    for (int64_t cut = position; resume < cut || damaged;) {
        /* Nothing may be ahead of where dispatching begins: between there and here a topic may have been deleted and made anew, and its
         * later units would be in the way of the earlier ones. */
        bool sure;
        rv = find_cuts(store, position, resume, &sure, error);
        if (rv == 0 && !sure && resume > log_min) {
            LOG_ERROR("%s: damaged units hide where queues ended at log position %lld: all queues are made anew from the log", table->dir, (long long)resume);
            resume = log_min;
            rv = find_cuts(store, position, resume, &sure, error);
        }
        if (rv != 0)
            return rv;
        if (resume < cut)
            LOG_WARN("queues and index are completed from log position %lld on (%lld bytes)", (long long)resume, (long long)(position - resume));
        cut = resume;
        damaged = false;
        rv = store->before_cut == NULL ? 0 : store->before_cut(store->before_cut_context, cut, error);
        if (rv == 0)
            rv = cut_queues(store, position, log_min, error);
        /* It may be found damaged in front of this cut only. */
        if (rv == 0 && store->index != NULL)
            rv = recover_index(store, cut, log_min, &resume, error);
        if (rv != 0)
            return rv;
        if (resume < log_min)
            resume = log_min;
    }
    for (node = table->head; node != NULL; node = node->next) {
        struct consume_queue *queue = &node->queue;
        if (store->records_lost) {
            rv = consume_queue_clear_tail(queue, error);
            if (rv != 0)
                return rv;
        }
        rv = consume_queue_correct_min(queue, log_min, error);
        if (rv != 0)
            return rv;
        queue->append_offset = queue->max_offset;
        /* What the process before this one wrote and nobody synced. */
        if (queue->files.count > 0 && queue->max_physical_offset > store->synced_position) {
            struct mapped_file_window window;
            consume_queue_begin_look(queue, &window);
            int64_t from = consume_queue_lower_bound(queue, store->synced_position);
            rv = consume_queue_end_look(queue, error);
            if (rv != 0)
                return rv;
            uint64_t byte = (uint64_t)from * CONSUME_QUEUE_UNIT_SIZE;
            if (from == queue->min_offset)
                byte = mapped_file_queue_begin(&queue->files);
            if (!queue->dirty || queue->dirty_from > byte)
                queue->dirty_from = byte;
            queue->dirty = true;
            queue->files.dir_dirty = true;
        }
        if (queue->dirty || queue->files.dir_dirty)
            queue_table_mark(table, node);
        queue_table_sum(&store->sums, node, queue->max_offset);
    }
    table->dir_dirty = true; /* the process before this one may have deleted a topic, and died before that was durable */
    /* Before anything is cut they are needed, in case the process dies; what is made anew from here on they know nothing of. */
    queue_sums_forget(&store->sums, store->env, table->dir, resume);
    store->sums.counted = true;
    store->recovered_position = resume;
    store->from_beginning = resume <= log_min;
    store->dispatched_offset = resume;
    store->earliest_time_ms = -1;
    /* Now and not with the next sync: should this process die before it, the next one would see the zeros, but not that only the page cache has
     * them. */
    if (store->records_lost && message_store_sync(store) != 0)
        return error_set(error, ERROR_IO, "%s: queues that were cut after a power cut cannot be synced", table->dir);
    return 0;
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
    if (!queue_table_is_safe(topic))
        return ERROR_INVALID;
    for (node = table->head; node != NULL; node = next) {
        next = node->next;
        if (node->topic_size != topic.size || memcmp(node->topic, topic.data, topic.size) != 0)
            continue;
        if (!any)
            queue_sums_void(&store->sums, store->env, table->dir);
        any = true;
        int rv = mapped_file_queue_destroy(&node->queue.files, &error);
        if (rv != 0) {
            /* Reput repeats the deletion after a restart; units that stay would meet those of a topic of the same name. */
            LOG_ERROR("delete queue %s %d: %s", node->queue.topic, (int)node->queue.queue_id, error.message);
            result = rv;
            continue;
        }
        queue_table_sum(&store->sums, node, 0);
        queue_table_remove(table, node);
    }
    if (!any || result != 0)
        return result;
    table->dir_dirty = true;
    store->earliest_time_ms = -1;
    message_store_drop_doubt(store);
    int size = snprintf(path, sizeof path, "%s/%.*s", table->dir, (int)topic.size, (const char *)topic.data);
    if (size > 0 && size < (int)sizeof path)
        store->env->ops->remove_dir(store->env, path); /* stays when a stranger's file is in it */
    return 0;
}

uint64_t message_store_not_indexed(const struct message_store *store)
{
    return store->index == NULL ? 0 : store->index->not_indexed;
}

int message_store_reached(struct message_store *store, struct slice topic, int32_t queue_id, int64_t max_offset)
{
    /* Stands for the last message: before everything that is retained, so the minimum never lies on it. */
    static const struct consume_queue_unit last = {.physical_offset = 1, .size = 1};
    struct queue_node *node = queue_table_find(store->queues, topic, queue_id);
    struct error error = {0};

    if (max_offset <= 0 || (node != NULL && node->queue.max_offset >= max_offset))
        return 0;
    if (!queue_table_is_safe(topic))
        return ERROR_INVALID;
    if (node == NULL)
        node = queue_table_add(store->queues, topic, queue_id, &error);
    if (node == NULL)
        return error.code;
    struct consume_queue *queue = &node->queue;
    queue_sums_void(&store->sums, store->env, store->queues->dir);
    int rv = consume_queue_truncate(queue, 0, &error);
    if (rv == 0)
        rv = consume_queue_prepare(queue, max_offset - 1);
    if (rv == 0)
        rv = consume_queue_append(queue, max_offset - 1, &last);
    if (rv != 0)
        return rv;
    queue->min_offset = queue->min_sure = queue->max_offset;
    if (queue->append_offset < queue->max_offset)
        queue->append_offset = queue->max_offset;
    queue_table_mark(store->queues, node);
    return 0;
}

int message_store_trim(struct message_store *store, int64_t physical_offset)
{
    struct queue_table *table = store->queues;
    int result = 0;
    for (struct queue_node *node = table->head; node != NULL; node = node->next) {
        struct error error = {0};
        int rv = consume_queue_correct_min(&node->queue, physical_offset, &error);
        if (rv != 0) {
            LOG_WARN("queue %s %d: %s", node->queue.topic, (int)node->queue.queue_id, error.message);
            result = rv;
        }
        if (node->queue.files.dir_dirty)
            queue_table_mark(table, node);
    }
    if (store->index != NULL) {
        int rv = index_service_trim(store->index, physical_offset);
        if (rv != 0)
            result = rv;
    }
    store->earliest_time_ms = -1;
    message_store_drop_doubt(store);
    return result;
}

int message_store_trim_topic(struct message_store *store, struct slice topic, int64_t physical_offset, bool *emptied)
{
    int result = 0;

    for (struct queue_node *node = store->queues->head; node != NULL; node = node->next) {
        struct error error = {0};
        if (node->topic_size != topic.size || memcmp(node->topic, topic.data, topic.size) != 0)
            continue;
        int rv = consume_queue_advance_min(&node->queue, physical_offset, &error);
        if (rv != 0) {
            LOG_WARN("queue %s %d: %s", node->queue.topic, (int)node->queue.queue_id, error.message);
            result = rv;
        }
        *emptied = *emptied || consume_queue_has_files_to_go(&node->queue);
    }
    store->earliest_time_ms = -1;
    message_store_drop_doubt(store);
    return result;
}

int64_t message_store_min_offset(struct message_store *store, struct slice topic, int32_t queue_id)
{
    const struct queue_node *node = queue_table_find(store->queues, topic, queue_id);
    return node == NULL ? 0 : node->queue.min_offset;
}

int64_t message_store_max_offset(struct message_store *store, struct slice topic, int32_t queue_id)
{
    const struct queue_node *node = queue_table_find(store->queues, topic, queue_id);
    return node == NULL ? 0 : node->queue.max_offset;
}
