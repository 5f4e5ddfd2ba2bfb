/* Making queues and index durable beside the loop: what is dirty is noted and pinned, then synced on the pool. */
#include "store/index_service.h"
#include "store/log_sink.h"
#include "store/message_store.h"
#include "store/queue_table.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SYNC_ONE_BY_ONE_MAX 200u
/* Files of which it is asked whether they were used since the last time: unmapping so many takes a millisecond. */
#define AGE_MAX 500u

struct message_store_sync_item {
    struct mapped_file *file; /* pinned; NULL: an index file */
    struct index_file *index; /* pinned */
    uint32_t index_count;
    bool index_whole;
    uint8_t *address;
    uint64_t size;
};

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

static bool syncs_file_system(const struct message_store_sync_job *job)
{
    return job->count + job->dir_count > SYNC_ONE_BY_ONE_MAX && job->env->ops->sync_file_system != NULL;
}

static bool collect_queue(struct message_store_sync_job *job, const struct consume_queue *queue)
{
    const struct mapped_file_queue *files = &queue->files;
    uint64_t end = consume_queue_dirty_end(queue);
    for (uint64_t at = queue->dirty_from; queue->dirty && at < end;) {
        struct mapped_file *file = mapped_file_queue_find(files, at);
        if (file == NULL)
            break;
        uint64_t stop = file->start + files->file_size < end ? file->start + files->file_size : end;
        struct message_store_sync_item *item = add_item(job);
        if (item == NULL)
            return false;
        /* So many are synced by one call for all: what is not mapped need not be. */
        if (file->map == NULL && syncs_file_system(job)) {
            at = stop;
            continue;
        }
        if (mapped_file_queue_map(files, file) != 0)
            return false;
        mapped_file_pin(file);
        item->file = file;
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
        if (item->file != NULL)
            mapped_file_unpin(item->file); /* the queue itself may be gone: its topic was deleted meanwhile */
        else if (item->index != NULL)
            index_file_unpin(item->index);
    }
    for (size_t i = 0; i < job->dir_count; i++)
        free(job->dirs[i]);
    free(job->dirs);
    free(job->items);
    job->items = NULL;
    job->dirs = NULL;
    job->count = job->dir_count = job->capacity = job->dir_capacity = 0;
}

/* Each queue that has another maximum than when it was summed stands in the list of those to be synced. While what was dispatched before is dispatched again
 * they are ahead of where that is. */
static struct queue_sum take_sum(struct message_store *store, bool durable)
{
    struct queue_table *table = store->queues;
    if (!store->sums.counted)
        return (struct queue_sum){0};
    for (struct queue_node *node = table->dirty; node != NULL; node = node->dirty_next)
        queue_table_sum(&store->sums, node, node->queue.max_offset);
    if (store->dispatched_offset < store->recovered_position)
        return (struct queue_sum){0};
    return queue_sums_take(&store->sums, store->env, table->dir, store->dispatched_offset, durable);
}

void message_store_sum_begin(struct message_store *store, struct message_store_sync_job *job)
{
    memset(job, 0, sizeof *job);
    job->env = store->env;
    job->root = store->queues->dir;
    job->sum = take_sum(store, false);
}

void message_store_sum_run(struct message_store_sync_job *job)
{
    job->sum_result = queue_sum_save(&job->sum, job->env, job->root, false);
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
    if (store->index != NULL) {
        struct index_service *index = store->index;
        bool index_names = false;
        for (size_t i = 0; i < index->count && fits; i++) {
            index_names = index_names || index->files[i]->dir_dirty;
            fits = collect_index(job, index->files[i], i + 1 == index->count);
        }
        if (fits && index_names)
            fits = add_dir(job, index->dir, strlen(index->dir));
        new_names = new_names || index_names;
    }
    /* The two directories are as new as the first file in them, which a process before this one may have made without living to sync them. */
    if (fits && new_names)
        fits = add_dir(job, table->dir, (size_t)(strrchr(table->dir, '/') - table->dir));
    if (!fits) {
        release_job(job);
        return ERROR_NO_MEMORY;
    }
    mapped_file_pool_age(&table->pool, AGE_MAX);
    job->sum = take_sum(store, true);
    while ((node = table->dirty) != NULL) {
        table->dirty = node->dirty_next;
        node->listed = false;
        node->queue.dirty = false;
        node->queue.dirty_to = 0;
        node->queue.files.dir_dirty = node->queue.files.removed = false; /* nothing is removed while the job is out */
    }
    table->dir_dirty = false;
    if (store->index != NULL) {
        for (size_t i = 0; i < store->index->count; i++)
            store->index->files[i]->dir_dirty = false;
    }
    return 0;
}

/* A page of each of thousands of queues is most of a broker's memory. What is clean now faults at the next append anyhow, for the kernel has to learn that
 * it becomes dirty. */
static void let_go(const struct message_store_sync_job *job)
{
    for (size_t i = 0; i < job->count && job->env->ops->let_go != NULL; i++) {
        if (job->items[i].file != NULL)
            job->env->ops->let_go(job->env, job->items[i].address, job->items[i].size);
    }
}

static int sync_all(const struct message_store_sync_job *job)
{
    struct env *env = job->env;
    int rv = 0;
    /* Each sync waits for the disk: thousands of queues would take a minute where one call for all of them takes a second. */
    if (syncs_file_system(job))
        return env->ops->sync_file_system(env, job->root);
    for (size_t i = 0; i < job->count && rv == 0; i++)
        if (job->items[i].size > 0)
            rv = env->ops->sync_map(env, job->items[i].address, job->items[i].size);
    /* From the files' names upwards; a directory that was deleted meanwhile has nothing to keep. */
    for (size_t i = 0; i < job->dir_count && rv == 0; i++) {
        rv = env->ops->sync_dir(env, job->dirs[i]);
        if (rv == -ENOENT)
            rv = 0;
    }
    return rv;
}

void message_store_sync_run(struct message_store_sync_job *job)
{
    job->result = sync_all(job) == 0 ? 0 : ERROR_IO;
    job->sum_result = job->result == 0 ? queue_sum_save(&job->sum, job->env, job->root, true) : 0;
    let_go(job);
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
        if (job->sum_result != 0)
            LOG_WARN("%s beside %s: %s; a start compares the ends of queues with what was written before", QUEUE_SUM_FILE, store->queues->dir,
                     strerror(-job->sum_result));
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
