#include "broker/metadata/offset_reset.h"

#include <stdlib.h>

#include "broker/metadata/group_queue_key.h"

static struct offset_reset *find(struct offset_reset *resets, struct slice group, struct slice topic, int32_t queue_id)
{
    char key[GROUP_QUEUE_KEY_MAX];
    struct offset_reset *reset;
    size_t size = resets == NULL ? 0 : group_queue_key(key, group, topic, queue_id);
    if (size == 0)
        return NULL;
    HASH_FIND(hh, resets, key, size, reset);
    return reset;
}

static void drop(struct offset_reset **resets, struct offset_reset *reset)
{
    HASH_DEL(*resets, reset);
    free(reset);
}

static void drop_if_empty(struct offset_reset **resets, struct offset_reset *reset)
{
    if (!reset->proposed.set && !reset->logged.set)
        drop(resets, reset);
}

static int find_or_make(struct offset_reset **resets, struct slice group, struct slice topic, int32_t queue_id, struct offset_reset **found)
{
    char key[GROUP_QUEUE_KEY_MAX];
    size_t size = group_queue_key(key, group, topic, queue_id);
    *found = find(*resets, group, topic, queue_id);
    if (*found != NULL)
        return 0;
    if (size == 0)
        return ERROR_INVALID;
    struct offset_reset *reset = calloc(1, sizeof *reset + size);
    if (reset == NULL)
        return ERROR_NO_MEMORY;
    memcpy(reset->key, key, size);
    reset->group = slice_of(reset->key, group.size);
    reset->topic = slice_of(reset->key + group.size + 1, topic.size);
    reset->queue_id = queue_id;
    HASH_ADD_KEYPTR(hh, *resets, reset->key, size, reset);
    *found = reset;
    return 0;
}

static struct offset_hold hold_of(int64_t from, int64_t to, uint64_t now_us)
{
    return (struct offset_hold){.set = true, .from = from, .to = to, .end_us = now_us + OFFSET_RESET_HOLD_MS * 1000ull};
}

int offset_reset_propose(struct offset_reset **resets, struct slice group, struct slice topic, int32_t queue_id, int64_t from, int64_t to, uint64_t now_us)
{
    struct offset_reset *reset;
    if (HASH_COUNT(*resets) >= 2 * OFFSET_RESETS_MAX)
        return ERROR_BUSY;
    int rv = find_or_make(resets, group, topic, queue_id, &reset);
    if (rv == 0)
        reset->proposed = hold_of(from, to, now_us);
    return rv;
}

void offset_reset_forget_proposals(struct offset_reset **resets)
{
    struct offset_reset *reset, *next;
    HASH_ITER (hh, *resets, reset, next) {
        reset->proposed.set = false;
        drop_if_empty(resets, reset);
    }
}

/* Those that have run out by the time of the newest record: alike on every node. */
static uint32_t drop_old(struct offset_reset **resets, int64_t time_ms)
{
    struct offset_reset *reset, *next;
    uint32_t count = 0;
    HASH_ITER (hh, *resets, reset, next) {
        if (reset->logged.set && time_ms - reset->logged_ms >= (int64_t)OFFSET_RESET_HOLD_MS) {
            reset->logged.set = false;
            drop_if_empty(resets, reset);
        } else {
            count += reset->logged.set;
        }
    }
    return count;
}

int offset_reset_put(struct offset_reset **resets, struct slice group, struct slice topic, int32_t queue_id, int64_t from, int64_t to, int64_t time_ms,
                     uint64_t now_us)
{
    struct offset_reset *reset;
    if (HASH_COUNT(*resets) >= OFFSET_RESETS_MAX && drop_old(resets, time_ms) >= OFFSET_RESETS_MAX) {
        offset_reset_end(resets, group, topic, queue_id);
        return ERROR_BUSY;
    }
    int rv = find_or_make(resets, group, topic, queue_id, &reset);
    if (rv != 0)
        return rv;
    reset->logged = hold_of(from, to, now_us);
    reset->logged_ms = time_ms;
    if (reset->proposed.set && reset->proposed.to == to && reset->proposed.from == from)
        reset->proposed.set = false;
    return 0;
}

void offset_reset_end(struct offset_reset **resets, struct slice group, struct slice topic, int32_t queue_id)
{
    struct offset_reset *reset = find(*resets, group, topic, queue_id);
    if (reset == NULL)
        return;
    reset->logged.set = false;
    drop_if_empty(resets, reset);
}

/* Clients commit in ascending order: what is old lies at or behind the place the reset went back from, or before the one it went ahead to. */
static bool is_old(const struct offset_hold *hold, int64_t offset, uint64_t now_us)
{
    return now_us < hold->end_us && (hold->to < hold->from ? offset >= hold->from : offset < hold->to);
}

bool offset_reset_overrules(struct offset_reset **resets, struct slice group, struct slice topic, int32_t queue_id, int64_t offset, uint64_t now_us)
{
    struct offset_reset *reset = find(*resets, group, topic, queue_id);
    if (reset == NULL)
        return false;
    if (!reset->proposed.set)
        return is_old(&reset->logged, offset, now_us);
    if (is_old(&reset->proposed, offset, now_us))
        return true;
    reset->proposed.set = false;
    drop_if_empty(resets, reset);
    return false;
}

const struct offset_reset *offset_reset_logged(struct offset_reset *resets, struct slice group, struct slice topic, int32_t queue_id)
{
    const struct offset_reset *reset = find(resets, group, topic, queue_id);
    return reset != NULL && reset->logged.set ? reset : NULL;
}

void offset_reset_remove(struct offset_reset **resets, struct slice group, struct slice topic)
{
    struct offset_reset *reset, *next;
    HASH_ITER (hh, *resets, reset, next) {
        if ((group.size == 0 || slice_equal(reset->group, group)) && (topic.size == 0 || slice_equal(reset->topic, topic)))
            drop(resets, reset);
    }
}

void offset_reset_clear(struct offset_reset **resets)
{
    offset_reset_remove(resets, slice_of(NULL, 0), slice_of(NULL, 0));
}
