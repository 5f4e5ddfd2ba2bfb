#include "tests/sim/loop.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static struct loop *loop_of(const uv_loop_t *uv)
{
    return (struct loop *)(uintptr_t)uv;
}

void loop_init(struct loop *loop, uint64_t now_ms)
{
    memset(loop, 0, sizeof *loop);
    loop->now_ms = now_ms;
}

static struct loop_timer *find(struct loop *loop, const uv_timer_t *timer)
{
    for (unsigned i = 0; i < loop->timer_count; i++) {
        if (loop->timers[i].timer == timer)
            return &loop->timers[i];
    }
    return NULL;
}

/* libuv's order: by time, then by when it was started. */
static const struct loop_timer *first(const struct loop *loop)
{
    const struct loop_timer *best = NULL;
    for (unsigned i = 0; i < loop->timer_count; i++) {
        const struct loop_timer *at = &loop->timers[i];
        if (best == NULL || at->due_ms < best->due_ms || (at->due_ms == best->due_ms && at->order < best->order))
            best = at;
    }
    return best;
}

uint64_t loop_due_ms(const struct loop *loop)
{
    const struct loop_timer *timer = first(loop);
    return timer == NULL ? UINT64_MAX : timer->due_ms;
}

bool loop_run_timer(struct loop *loop)
{
    const struct loop_timer *due = first(loop);
    if (due == NULL || due->due_ms > loop->now_ms)
        return false;
    uv_timer_t *timer = due->timer;
    uv_timer_stop(timer);
    if (timer->repeat != 0)
        uv_timer_start(timer, timer->timer_cb, timer->repeat, timer->repeat);
    timer->timer_cb(timer);
    return true;
}

bool loop_run_work(struct loop *loop)
{
    if (loop->work_count == 0)
        return false;
    struct loop_work work = loop->work[0];
    memmove(loop->work, loop->work + 1, --loop->work_count * sizeof work);
    work.run(work.request);
    work.after(work.request, 0);
    return true;
}

void loop_run_closing(struct loop *loop)
{
    for (unsigned i = 0; i < loop->closing_count; i++) {
        if (loop->closing[i].closed != NULL)
            loop->closing[i].closed(loop->closing[i].handle);
    }
    loop->closing_count = 0;
}

/* ---- libuv's names ---- */

int uv_queue_work(uv_loop_t *loop, uv_work_t *request, uv_work_cb run, uv_after_work_cb after)
{
    struct loop *ours = loop_of(loop);
    if (ours->work_count == LOOP_WORK_MAX)
        return UV_ENOMEM;
    request->loop = loop;
    ours->work[ours->work_count++] = (struct loop_work){request, run, after};
    return 0;
}

int uv_timer_init(uv_loop_t *loop, uv_timer_t *timer)
{
    timer->loop = loop;
    timer->type = UV_TIMER;
    timer->timer_cb = NULL;
    timer->repeat = 0;
    return 0;
}

int uv_timer_start(uv_timer_t *timer, uv_timer_cb callback, uint64_t timeout, uint64_t repeat)
{
    struct loop *loop = loop_of(timer->loop);
    struct loop_timer *at = find(loop, timer);
    if (at == NULL) {
        assert(loop->timer_count < LOOP_TIMERS_MAX);
        at = &loop->timers[loop->timer_count++];
    }
    timer->timer_cb = callback;
    timer->repeat = repeat;
    *at = (struct loop_timer){timer, loop->now_ms + timeout, loop->order++};
    return 0;
}

int uv_timer_stop(uv_timer_t *timer)
{
    struct loop *loop = loop_of(timer->loop);
    struct loop_timer *at = find(loop, timer);
    if (at != NULL)
        *at = loop->timers[--loop->timer_count];
    return 0;
}

int uv_is_active(const uv_handle_t *handle)
{
    return handle->type == UV_TIMER && find(loop_of(handle->loop), (const uv_timer_t *)(const void *)handle) != NULL;
}

int uv_is_closing(const uv_handle_t *handle)
{
    const struct loop *loop = loop_of(handle->loop);
    for (unsigned i = 0; i < loop->closing_count; i++) {
        if (loop->closing[i].handle == handle)
            return 1;
    }
    return 0;
}

void uv_close(uv_handle_t *handle, uv_close_cb closed)
{
    struct loop *loop = loop_of(handle->loop);
    assert(handle->type == UV_TIMER && loop->closing_count < LOOP_CLOSING_MAX);
    uv_timer_stop((uv_timer_t *)(void *)handle);
    loop->closing[loop->closing_count++] = (struct loop_closing){handle, closed};
}

void uv_unref(uv_handle_t *handle)
{
    (void)handle; /* this loop does not end by itself */
}

uint64_t uv_now(const uv_loop_t *loop)
{
    return loop_of(loop)->now_ms;
}
