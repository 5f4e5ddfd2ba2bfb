#include "dledger/flush.h"

#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "proto/error.h"

static void *flush_main(void *argument)
{
    struct flush *flush = argument;
    const uint64_t one = 1;

    pthread_mutex_lock(&flush->mutex);
    for (;;) {
        while (flush->job == NULL && !flush->quit)
            pthread_cond_wait(&flush->wake, &flush->mutex);
        if (flush->job == NULL)
            break;
        void *job = flush->job;
        pthread_mutex_unlock(&flush->mutex);
        flush->run(job);
        pthread_mutex_lock(&flush->mutex);
        flush->job = NULL;
        flush->untold = true;
        pthread_cond_signal(&flush->ended);
        pthread_mutex_unlock(&flush->mutex);
        /* Told without the lock, since the loop may hand over the next job at once. A counter that is full has been told already. */
        ssize_t told = write(flush->done_fd, &one, sizeof one);
        (void)told;
        pthread_mutex_lock(&flush->mutex);
    }
    pthread_mutex_unlock(&flush->mutex);
    return NULL;
}

/* Takes note that a job has been run; false: it is known. */
static bool take(struct flush *flush)
{
    pthread_mutex_lock(&flush->mutex);
    bool untold = flush->untold;
    flush->untold = false;
    pthread_mutex_unlock(&flush->mutex);
    return untold;
}

static void on_done(uv_poll_t *poll, int status, int events)
{
    struct flush *flush = poll->data;
    uint64_t count;

    (void)status;
    (void)events;
    if (read(flush->done_fd, &count, sizeof count) == (ssize_t)sizeof count && take(flush))
        flush->done(flush);
}

int flush_open(struct flush *flush, uv_loop_t *loop, void (*run)(void *job), void (*done)(struct flush *flush), void *context)
{
    pthread_condattr_t monotonic;

    *flush = (struct flush){.run = run, .done = done, .context = context};
    flush->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (flush->done_fd < 0)
        return ERROR_NO_MEMORY;
    if (uv_poll_init(loop, &flush->poll, flush->done_fd) != 0) {
        close(flush->done_fd);
        return ERROR_NO_MEMORY;
    }
    flush->poll.data = flush;
    pthread_mutex_init(&flush->mutex, NULL);
    pthread_cond_init(&flush->wake, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&flush->ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (uv_poll_start(&flush->poll, UV_READABLE, on_done) != 0 || pthread_create(&flush->thread, NULL, flush_main, flush) != 0) {
        pthread_cond_destroy(&flush->ended);
        pthread_cond_destroy(&flush->wake);
        pthread_mutex_destroy(&flush->mutex);
        uv_close((uv_handle_t *)&flush->poll, NULL);
        close(flush->done_fd);
        return ERROR_NO_MEMORY;
    }
    uv_unref((uv_handle_t *)&flush->poll);
    return 0;
}

bool flush_wait(struct flush *flush, unsigned ms)
{
    struct timespec until;
    bool ended;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&flush->mutex);
    while (flush->job != NULL && pthread_cond_timedwait(&flush->ended, &flush->mutex, &until) == 0)
        ;
    ended = flush->job == NULL;
    if (ended)
        flush->untold = false;
    pthread_mutex_unlock(&flush->mutex);
    return ended;
}

void flush_submit(struct flush *flush, void *job)
{
    pthread_mutex_lock(&flush->mutex);
    flush->job = job;
    pthread_mutex_unlock(&flush->mutex);
    pthread_cond_signal(&flush->wake);
}

void flush_close(struct flush *flush, uv_close_cb closed)
{
    pthread_mutex_lock(&flush->mutex);
    flush->quit = true;
    pthread_cond_signal(&flush->wake);
    pthread_mutex_unlock(&flush->mutex);
    pthread_join(flush->thread, NULL);
    pthread_cond_destroy(&flush->ended);
    pthread_cond_destroy(&flush->wake);
    pthread_mutex_destroy(&flush->mutex);
    uv_poll_stop(&flush->poll);
    close(flush->done_fd);
    uv_close((uv_handle_t *)&flush->poll, closed);
}
