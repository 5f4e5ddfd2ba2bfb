/* Dispatching one committed record (org.apache.rocketmq.store.DefaultMessageStore.ReputMessageService), in the order of what can fail:
 *
 * 1. decode, and find the queue;
 * 2. the unit must be the queue's next one, or be there already;
 * 3. reserve: the queue's file and blocks, then the index entries. A full disk is met here, with nothing added;
 * 4. write the unit, then the index entries. Neither can fail.
 */
#include "store/message_store.h"

#include "store/index_keys.h"
#include "store/index_service.h"
#include "store/log_sink.h"
#include "store/queue_table.h"

#include <assert.h>
#include <string.h>

static int64_t delivery_time(const struct message_store *store, const struct message_dispatch *dispatch)
{
    int32_t level;
    if (dispatch->delay.data == NULL || !slice_to_i32(dispatch->delay, &level))
        return -1;
    if (level > store->config.delay_levels)
        level = store->config.delay_levels;
    return level > 0 ? dispatch->store_timestamp_ms + store->config.delay_level_ms[level] : -1;
}

static struct consume_queue_unit unit_of(const struct message_store *store, bool schedule, const struct message_dispatch *dispatch)
{
    struct consume_queue_unit unit = {dispatch->physical_offset, (int32_t)dispatch->size, 0};
    if (schedule) {
        int64_t time = delivery_time(store, dispatch);
        if (time >= 0) {
            unit.tags_code = time;
            return unit;
        }
    }
    unit.tags_code = dispatch->tags.data == NULL ? 0 : message_tags_code(dispatch->tags);
    return unit;
}

/* A hundred years; also the most that a delay level can say. */
#define DELAY_MAX_MS (36500ll * 24 * 3600 * 1000)

bool message_store_unit_fits(const struct message_store *store, const struct message_dispatch *dispatch, const struct consume_queue_unit *unit)
{
    const struct consume_queue_unit right = message_store_unit_of(store, dispatch);
    int64_t delay_ms;

    if (unit->physical_offset != right.physical_offset || unit->size != right.size)
        return false;
    if (unit->tags_code == right.tags_code)
        return true;
    /* When a delayed message is due was said by the levels of that time, which may have been others, of whole seconds: no single bit turns one into another. */
    return slice_equal_text(dispatch->topic, QUEUE_TABLE_SCHEDULE_TOPIC) && delivery_time(store, dispatch) >= 0 &&
           !__builtin_sub_overflow(unit->tags_code, dispatch->store_timestamp_ms, &delay_ms) && delay_ms >= 0 && delay_ms <= DELAY_MAX_MS &&
           delay_ms % 1000 == 0;
}

struct consume_queue_unit message_store_unit_of(const struct message_store *store, const struct message_dispatch *dispatch)
{
    return unit_of(store, slice_equal_text(dispatch->topic, QUEUE_TABLE_SCHEDULE_TOPIC), dispatch);
}

/* All is dispatched from where the log begins, and what the queue lost were units of messages that are no longer in the log too: it begins with this one. */
static bool lost_what_is_expired(const struct message_store *store, const struct consume_queue *queue, const struct message_dispatch *dispatch)
{
    return store->from_beginning && dispatch->queue_offset > queue->max_offset && queue->max_offset == queue->appended_from;
}

/* The log has an earlier message of that number, too. */
static bool is_taken(const struct message_store *store, const struct consume_queue *queue, const struct message_dispatch *dispatch)
{
    struct consume_queue_unit unit;
    return consume_queue_get_any(queue, dispatch->queue_offset, &unit) && unit.physical_offset < dispatch->physical_offset &&
           message_store_unit_names(store, queue, dispatch->queue_offset, &unit);
}

/* The unit must be the next one. Only while dispatching is being repeated after a start may it be the very one that is there, or one of a
 * topic that was deleted later on and made anew: then all that the queue holds lies behind it. Or a damaged unit stands there: that is for the scrub, which
 * knows of which topic a record is. */
static int place_unit(struct message_store *store, struct consume_queue *queue, const struct message_dispatch *dispatch,
                      bool *append)
{
    struct consume_queue_unit unit;
    *append = true;
    if (dispatch->queue_offset == queue->max_offset && dispatch->physical_offset >= queue->max_physical_offset)
        return 0;
    if (queue->files.count == 0)
        return 0;
    if (lost_what_is_expired(store, queue, dispatch))
        return consume_queue_truncate(queue, 0, NULL);
    *append = false;
    if (consume_queue_get_any(queue, dispatch->queue_offset, &unit) && unit.physical_offset == dispatch->physical_offset &&
        unit.size == (int32_t)dispatch->size)
        return 0;
    bool repeated = dispatch->physical_offset < store->recovered_position;
    if (repeated && consume_queue_get(queue, queue->min_offset, &unit) && unit.physical_offset > dispatch->physical_offset)
        return 0;
    if (repeated && dispatch->queue_offset < queue->max_offset && dispatch->queue_offset < queue->appended_from) {
        message_store_distrust(store, dispatch->topic, dispatch->queue_id, dispatch->queue_offset);
        return 0;
    }
    /* The units from where dispatching began again should have been cut, and damaged ones hid them from the halving that looked for the place. They are all
     * made anew by what is dispatched from here on. */
    if (!repeated && dispatch->queue_offset < queue->max_offset && dispatch->queue_offset < queue->appended_from && !is_taken(store, queue, dispatch)) {
        const struct consume_queue_end end = {.offset = dispatch->queue_offset, .last_physical_offset = -1};
        LOG_ERROR("queue %s %d: the unit at offset %lld is damaged, and units from there on are made anew", queue->topic, (int)queue->queue_id,
                  (long long)dispatch->queue_offset);
        if (consume_queue_cut(queue, &end, NULL) != 0)
            return ERROR_IO;
        *append = queue->files.count == 0 || (dispatch->queue_offset == queue->max_offset && dispatch->physical_offset >= queue->max_physical_offset);
        if (*append)
            return 0;
    }
    /* Only the damaged last unit says that the queue reaches further in the log. */
    *append = dispatch->queue_offset == queue->max_offset && !consume_queue_trusts(queue, queue->max_offset - 1) &&
              (queue->max_offset == queue->min_offset || !message_store_unit(store, queue, queue->max_offset - 1, &unit));
    if (*append)
        return 0;
    return ERROR_DAMAGED;
}

static int dispatched(struct message_store *store, const struct message_dispatch *dispatch)
{
    int64_t end = dispatch->physical_offset + dispatch->size;
    if (end > store->dispatched_offset)
        store->dispatched_offset = end;
    return 0;
}

/* Committed, so it is there for good and on every node, but no queue can be named so. Stopping would stop every node at every start. */
static int pass_over(struct message_store *store, const struct message_dispatch *dispatch)
{
    LOG_ERROR("the message at %lld names a topic or queue that cannot be and goes to none: queue %d of \"%.*s\"",
              (long long)dispatch->physical_offset, (int)dispatch->queue_id, dispatch->topic.size > 300 ? 300 : (int)dispatch->topic.size,
              (const char *)dispatch->topic.data);
    return dispatched(store, dispatch);
}

int message_store_dispatch(struct message_store *store, struct slice record, struct message_dispatch *dispatch)
{
    struct queue_node *node = NULL;
    bool add_unit = false;
    struct index_keys keys = {0};
    uint32_t hash;
    int rv = message_dispatch_decode(record, dispatch);
    if (rv != 0)
        return rv;
    int transaction = dispatch->sys_flag & MESSAGE_TRANSACTION_MASK;

    if (transaction == 0 || transaction == MESSAGE_TRANSACTION_COMMIT) {
        node = queue_table_find(store->queues, dispatch->topic, dispatch->queue_id);
        if (node == NULL && (!queue_table_is_safe(dispatch->topic) || dispatch->queue_id < 0))
            return pass_over(store, dispatch);
        if (node == NULL) {
            struct error error = {0};
            node = queue_table_add(store->queues, dispatch->topic, dispatch->queue_id, &error);
            if (node == NULL)
                return error.code;
        }
        rv = place_unit(store, &node->queue, dispatch, &add_unit);
        if (rv != 0)
            return rv;
        if (add_unit) {
            rv = consume_queue_prepare(&node->queue, dispatch->queue_offset);
            if (rv != 0)
                return rv;
        }
    }
    /* A record at or before the newest one in the index has its entries: dispatching is being repeated. */
    if (store->index != NULL && transaction != MESSAGE_TRANSACTION_ROLLBACK && dispatch->physical_offset > index_service_end(store->index)) {
        int32_t seed = node != NULL ? node->key_seed : index_keys_seed(dispatch->topic);
        index_keys_init(&keys, dispatch, seed, store->config.index_entries);
        if (keys.left > 0) {
            rv = index_service_reserve(store->index, keys.left);
            if (rv == ERROR_NO_SPACE)
                return rv;
            if (rv != 0) {
                store->index->not_indexed++;
                keys.left = 0;
            }
        }
    }

    if (add_unit) {
        /* Of a topic that is deleted further on: what was summed knew it without its queue. */
        if (dispatch->physical_offset < store->recovered_position)
            queue_sums_void(&store->sums, store->env, store->queues->dir);
        struct consume_queue_unit unit = unit_of(store, node->schedule, dispatch);
        rv = consume_queue_append(&node->queue, dispatch->queue_offset, &unit);
        assert(rv == 0);
        queue_table_mark(store->queues, node);
    }
    while (index_keys_next(&keys, &hash))
        index_service_put(store->index, hash, dispatch->physical_offset, dispatch->store_timestamp_ms);
    return dispatched(store, dispatch);
}
