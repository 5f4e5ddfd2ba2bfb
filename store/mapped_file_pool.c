#include "store/mapped_file_pool.h"

#include "store/mapped_file_queue.h"

/* Files looked at before one more than max is put up with: all may be pinned by a sync job. */
#define LOOKS_MAX 128u

static void unmap(struct mapped_file *file)
{
    struct mapped_file_queue *queue = file->queue;
    mapped_file_pool_remove(file);
    queue->env->ops->unmap(queue->env, file->map, queue->file_size);
    file->map = NULL;
    if (queue->cached != NULL)
        *queue->cached = NULL;
}

/* The second chance of the clock algorithm. */
static void look(struct mapped_file_pool *pool)
{
    struct mapped_file *file = pool->hand;
    pool->hand = file->pool_next;
    if (file->pins > 0)
        return;
    if (file->used)
        file->used = false;
    else
        unmap(file);
}

void mapped_file_pool_add(struct mapped_file_pool *pool, struct mapped_file *file)
{
    for (uint32_t i = 0; i < LOOKS_MAX && pool->mapped >= pool->max; i++)
        look(pool);
    if (pool->hand == NULL) {
        file->pool_next = file->pool_previous = file;
        pool->hand = file;
    } else {
        file->pool_next = pool->hand;
        file->pool_previous = pool->hand->pool_previous;
        file->pool_previous->pool_next = file;
        file->pool_next->pool_previous = file;
    }
    file->pool = pool;
    file->used = true;
    pool->mapped++;
}

void mapped_file_pool_remove(struct mapped_file *file)
{
    struct mapped_file_pool *pool = file->pool;
    if (pool == NULL)
        return;
    if (pool->hand == file)
        pool->hand = file->pool_next == file ? NULL : file->pool_next;
    file->pool_previous->pool_next = file->pool_next;
    file->pool_next->pool_previous = file->pool_previous;
    file->pool = NULL;
    pool->mapped--;
}

void mapped_file_pool_age(struct mapped_file_pool *pool, uint32_t count)
{
    if (count > pool->mapped)
        count = pool->mapped;
    while (count-- > 0 && pool->hand != NULL)
        look(pool);
}
