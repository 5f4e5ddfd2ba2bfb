#include "dledger/flush.h"

static void *flush_main(void *argument)
{
    struct flush *flush = argument;

    pthread_mutex_lock(&flush->mutex);
    for (;;) {
        while (flush->job == NULL && !flush->quit)
            pthread_cond_wait(&flush->wake, &flush->mutex);
        if (flush->job == NULL)
            break;
        struct ledger_sync *job = flush->job;
        pthread_mutex_unlock(&flush->mutex);
        ledger_sync_run(job);
        pthread_mutex_lock(&flush->mutex);
        flush->job = NULL;
        uv_async_send(&flush->async);
    }
    pthread_mutex_unlock(&flush->mutex);
    return NULL;
}

static void on_async(uv_async_t *async)
{
    struct flush *flush = async->data;
    flush->done(flush);
}

int flush_open(struct flush *flush, uv_loop_t *loop, void (*done)(struct flush *flush), void *context)
{
    *flush = (struct flush){.done = done, .context = context};
    pthread_mutex_init(&flush->mutex, NULL);
    pthread_cond_init(&flush->wake, NULL);
    if (uv_async_init(loop, &flush->async, on_async) != 0)
        return ERROR_NO_MEMORY;
    flush->async.data = flush;
    uv_unref((uv_handle_t *)&flush->async);
    if (pthread_create(&flush->thread, NULL, flush_main, flush) != 0) {
        uv_close((uv_handle_t *)&flush->async, NULL);
        return ERROR_NO_MEMORY;
    }
    return 0;
}

void flush_submit(struct flush *flush, struct ledger_sync *job)
{
    pthread_mutex_lock(&flush->mutex);
    flush->job = job;
    pthread_cond_signal(&flush->wake);
    pthread_mutex_unlock(&flush->mutex);
}

void flush_close(struct flush *flush, uv_close_cb closed)
{
    pthread_mutex_lock(&flush->mutex);
    flush->quit = true;
    pthread_cond_signal(&flush->wake);
    pthread_mutex_unlock(&flush->mutex);
    pthread_join(flush->thread, NULL);
    pthread_cond_destroy(&flush->wake);
    pthread_mutex_destroy(&flush->mutex);
    uv_close((uv_handle_t *)&flush->async, closed);
}
