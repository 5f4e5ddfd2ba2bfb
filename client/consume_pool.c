#include "client/consume_pool.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <uv.h>

struct pool_thread {
    struct consume_pool *pool;
    uv_thread_t thread;
    uint64_t begun_ns; /* under the lock; 0: idle */
};

struct consume_pool {
    uv_mutex_t lock;
    uv_cond_t some;
    bool stopping;
    size_t waiting;
    struct pool_job *jobs, **jobs_end;
    unsigned count;
    struct pool_thread threads[];
};

/* A job that finds others waiting wakes nobody: whoever takes one of them wakes the next thread if some are left. So a
 * pull's messages do not wake all threads at once for work that one does in no time. */
static void thread_main(void *argument)
{
    struct pool_thread *thread = argument;
    struct consume_pool *pool = thread->pool;
    uv_mutex_lock(&pool->lock);
    for (;;) {
        while (pool->jobs == NULL && !pool->stopping)
            uv_cond_wait(&pool->some, &pool->lock);
        struct pool_job *job = pool->jobs;
        if (job == NULL)
            break;
        pool->jobs = job->next;
        if (pool->jobs == NULL)
            pool->jobs_end = &pool->jobs;
        pool->waiting--;
        if (pool->jobs != NULL)
            uv_cond_signal(&pool->some);
        thread->begun_ns = uv_hrtime();
        uv_mutex_unlock(&pool->lock);
        job->run(job);
        uv_mutex_lock(&pool->lock);
        thread->begun_ns = 0;
    }
    uv_mutex_unlock(&pool->lock);
}

static void stop_threads(struct consume_pool *pool)
{
    uv_mutex_lock(&pool->lock);
    pool->stopping = true;
    uv_cond_broadcast(&pool->some);
    uv_mutex_unlock(&pool->lock);
    for (unsigned i = 0; i < pool->count; i++)
        uv_thread_join(&pool->threads[i].thread);
}

int consume_pool_new(unsigned threads, struct consume_pool **out, struct error *error)
{
    struct consume_pool *pool = calloc(1, sizeof *pool + threads * sizeof pool->threads[0]);
    if (pool == NULL)
        return error_set(error, ERROR_NO_MEMORY, "out of memory");
    pool->jobs_end = &pool->jobs;
    if (uv_mutex_init(&pool->lock) != 0)
        goto free_pool;
    if (uv_cond_init(&pool->some) != 0)
        goto destroy_lock;
    /* Signals are the application's own threads' business. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int status = 0;
    while (status == 0 && pool->count < threads) {
        struct pool_thread *thread = &pool->threads[pool->count];
        thread->pool = pool;
        status = uv_thread_create(&thread->thread, thread_main, thread);
        pool->count += status == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (status != 0) {
        unsigned made = pool->count;
        consume_pool_free(pool);
        return error_set(error, ERROR_NO_MEMORY, "only %u of %u threads could be started: %s", made, threads,
                         uv_strerror(status));
    }
    *out = pool;
    return 0;

destroy_lock:
    uv_mutex_destroy(&pool->lock);
free_pool:
    free(pool);
    return error_set(error, ERROR_NO_MEMORY, "out of memory");
}

void consume_pool_submit(struct consume_pool *pool, struct pool_job *job)
{
    job->next = NULL;
    uv_mutex_lock(&pool->lock);
    *pool->jobs_end = job;
    pool->jobs_end = &job->next;
    if (pool->waiting++ == 0)
        uv_cond_signal(&pool->some);
    uv_mutex_unlock(&pool->lock);
}

bool consume_pool_on_thread(const struct consume_pool *pool)
{
    uv_thread_t self = uv_thread_self();
    for (unsigned i = 0; i < pool->count; i++)
        if (uv_thread_equal(&self, &pool->threads[i].thread))
            return true;
    return false;
}

void consume_pool_describe(struct consume_pool *pool, struct buffer *out)
{
    uint64_t now = uv_hrtime();
    uv_mutex_lock(&pool->lock);
    buffer_append_format(out, "%zu jobs wait for %u threads\n", pool->waiting, pool->count);
    for (unsigned i = 0; i < pool->count; i++) {
        uint64_t begun = pool->threads[i].begun_ns;
        if (begun == 0)
            buffer_append_format(out, "thread %u: idle\n", i);
        else
            buffer_append_format(out, "thread %u: in the consume function for %llu ms\n", i,
                                 (unsigned long long)((now - begun) / 1000000));
    }
    uv_mutex_unlock(&pool->lock);
}

void consume_pool_free(struct consume_pool *pool)
{
    if (pool == NULL)
        return;
    stop_threads(pool);
    assert(pool->jobs == NULL);
    uv_cond_destroy(&pool->some);
    uv_mutex_destroy(&pool->lock);
    free(pool);
}
