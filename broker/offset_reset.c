#include "broker/offset_reset.h"

#include <stdlib.h>

#include "broker/group_queue_key.h"
#include "broker/hash_table.h"

struct offset_reset {
    int64_t from, to;
    uint64_t end_us;
    UT_hash_handle hh;
    char key[]; /* group, 0, topic, 0, queue id */
};

static struct offset_reset *find(struct offset_reset *resets, struct slice group, struct slice topic, int32_t queue_id)
{
    char key[GROUP_QUEUE_KEY_MAX];
    struct offset_reset *reset;
    size_t size = group_queue_key(key, group, topic, queue_id);
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

static void drop_ended(struct offset_reset **resets, uint64_t now_us)
{
    struct offset_reset *reset, *next;
    HASH_ITER (hh, *resets, reset, next) {
        if (now_us >= reset->end_us)
            drop(resets, reset);
    }
}

int offset_reset_put(struct offset_reset **resets, struct slice group, struct slice topic, int32_t queue_id, int64_t from, int64_t to, uint64_t now_us)
{
    char key[GROUP_QUEUE_KEY_MAX];
    size_t size = group_queue_key(key, group, topic, queue_id);
    offset_reset_drop(resets, group, topic, queue_id);
    if (from < 0 || from == to || size == 0)
        return 0;
    if (HASH_COUNT(*resets) >= OFFSET_RESETS_MAX)
        drop_ended(resets, now_us);
    if (HASH_COUNT(*resets) >= OFFSET_RESETS_MAX)
        return ERROR_BUSY;
    struct offset_reset *reset = malloc(sizeof *reset + size);
    if (reset == NULL)
        return ERROR_NO_MEMORY;
    reset->from = from;
    reset->to = to;
    reset->end_us = now_us + OFFSET_RESET_HOLD_MS * 1000ull;
    memcpy(reset->key, key, size);
    HASH_ADD_KEYPTR(hh, *resets, reset->key, size, reset);
    return 0;
}

void offset_reset_drop(struct offset_reset **resets, struct slice group, struct slice topic, int32_t queue_id)
{
    struct offset_reset *reset = find(*resets, group, topic, queue_id);
    if (reset != NULL)
        drop(resets, reset);
}

bool offset_reset_overrules(struct offset_reset **resets, struct slice group, struct slice topic, int32_t queue_id, int64_t offset, uint64_t now_us)
{
    struct offset_reset *reset = *resets == NULL ? NULL : find(*resets, group, topic, queue_id);
    if (reset == NULL)
        return false;
    /* Clients commit in ascending order: what is old lies at or behind the place the reset went back from, or before the one it went ahead to. */
    bool old = reset->to < reset->from ? offset >= reset->from : offset < reset->to;
    if (old && now_us < reset->end_us)
        return true;
    drop(resets, reset);
    return false;
}

void offset_reset_clear(struct offset_reset **resets)
{
    struct offset_reset *reset, *next;
    HASH_ITER (hh, *resets, reset, next)
        drop(resets, reset);
}
