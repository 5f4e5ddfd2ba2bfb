/* Which records a pull gets: status and next offset by the table of org.apache.rocketmq.store.DefaultMessageStore.getMessage 4.9.8 on a master
 * (spec: store.md 5.1).
 *
 * Unlike Java there is no smaller batch for "messages on disk": what is not resident is read by the pool and cannot stall others.
 */
#include "store/message_store.h"

#define SCAN_BYTES_MIN 16000
#define READ_AHEAD_UNITS 13107 /* 256 KiB: 400 pulls of 32 messages */

const char *get_message_status_name(enum get_message_status status)
{
    static const char *const names[] = {
        [GET_MESSAGE_FOUND] = "FOUND",
        [GET_MESSAGE_NO_MATCHED_MESSAGE] = "NO_MATCHED_MESSAGE",
        [GET_MESSAGE_WAS_REMOVING] = "MESSAGE_WAS_REMOVING",
        [GET_MESSAGE_OFFSET_FOUND_NULL] = "OFFSET_FOUND_NULL",
        [GET_MESSAGE_OFFSET_OVERFLOW_BADLY] = "OFFSET_OVERFLOW_BADLY",
        [GET_MESSAGE_OFFSET_OVERFLOW_ONE] = "OFFSET_OVERFLOW_ONE",
        [GET_MESSAGE_OFFSET_TOO_SMALL] = "OFFSET_TOO_SMALL",
        [GET_MESSAGE_NO_MATCHED_LOGIC_QUEUE] = "NO_MATCHED_LOGIC_QUEUE",
        [GET_MESSAGE_NO_MESSAGE_IN_QUEUE] = "NO_MESSAGE_IN_QUEUE",
        [GET_MESSAGE_DAMAGED] = "MESSAGE_DAMAGED",
    };
    return (size_t)status < sizeof names / sizeof names[0] ? names[status] : "UNKNOWN";
}

static void answer(struct get_message_result *result, enum get_message_status status, int64_t next_begin_offset)
{
    result->status = status;
    result->next_begin_offset = next_begin_offset;
}

static bool is_full(const struct message_store *store, const struct get_message_result *result, int32_t max_count, int32_t size)
{
    /* The first message goes out whatever its size is. */
    if (result->count == 0)
        return false;
    return result->count >= (uint32_t)max_count || result->count >= store->config.transfer_count_max ||
           result->total_size + (uint64_t)size > store->config.transfer_bytes_max;
}

static void scan(struct message_store *store, const struct consume_queue *queue, int64_t offset, int32_t max_count,
                 const struct message_filter *filter, struct get_message_result *result)
{
    const struct log_view *log = &store->log;
    int64_t log_min = log->min_offset(log->context);
    int64_t committed = log->committed_offset(log->context);
    int64_t bytes = (int64_t)max_count * CONSUME_QUEUE_UNIT_SIZE;
    if (bytes < SCAN_BYTES_MIN)
        bytes = SCAN_BYTES_MIN;
    int64_t units_per_file = (int64_t)(queue->files.file_size / CONSUME_QUEUE_UNIT_SIZE);
    int64_t next_file = offset + units_per_file - offset % units_per_file;
    int64_t end = offset + bytes / CONSUME_QUEUE_UNIT_SIZE;
    if (end > next_file)
        end = next_file;
    if (end > queue->max_offset)
        end = queue->max_offset;

    struct consume_queue_unit unit;
    if (!consume_queue_get(queue, offset, &unit)) {
        answer(result, GET_MESSAGE_OFFSET_FOUND_NULL, next_file);
        return;
    }
    int64_t at = offset;
    uint32_t records = 0;
    result->status = GET_MESSAGE_NO_MATCHED_MESSAGE;
    for (; at < end; at++) {
        if (!consume_queue_get(queue, at, &unit))
            break;
        if (unit.physical_offset + unit.size > committed) {
            /* Cannot be while queues hold committed records only; a reader must not depend on it. */
            if (at == offset)
                result->status = GET_MESSAGE_OFFSET_OVERFLOW_ONE;
            break;
        }
        result->last_physical_offset = unit.physical_offset;
        if (is_full(store, result, max_count, unit.size))
            break;
        if (filter != NULL && filter->match_tags != NULL && !filter->match_tags(filter->context, unit.tags_code)) {
            if (result->count == 0)
                result->status = GET_MESSAGE_NO_MATCHED_MESSAGE;
            continue;
        }
        if (unit.physical_offset < log_min) {
            if (result->count == 0)
                result->status = GET_MESSAGE_WAS_REMOVING;
            continue;
        }
        if (log->damaged != NULL && log->damaged(log->context, unit.physical_offset, (size_t)unit.size)) {
            /* What is before it is answered, and then this reader waits here: it is never passed over. */
            if (at == offset)
                result->status = GET_MESSAGE_DAMAGED;
            break;
        }
        if (filter != NULL && filter->match_record != NULL) {
            if (filter->records_max != 0 && records++ == filter->records_max)
                break;
            const uint8_t *record = log->at(log->context, unit.physical_offset, (size_t)unit.size);
            if (record != NULL && !filter->match_record(filter->context, slice_of(record, (size_t)unit.size))) {
                if (result->count == 0)
                    result->status = GET_MESSAGE_NO_MATCHED_MESSAGE;
                continue;
            }
            /* Not readable here and now: a message too many is what clients must expect, one too few is a loss. */
        }
        result->items[result->count].physical_offset = unit.physical_offset;
        result->items[result->count].size = (uint32_t)unit.size;
        result->count++;
        result->total_size += (uint64_t)unit.size;
        result->status = GET_MESSAGE_FOUND;
    }
    result->next_begin_offset = at;
}

void message_store_get_message(struct message_store *store, struct slice topic, int32_t queue_id, int64_t offset, int32_t max_count,
                               const struct message_filter *filter, struct get_message_result *result)
{
    result->count = 0;
    result->total_size = 0;
    result->min_offset = 0;
    result->max_offset = 0;
    result->last_physical_offset = 0;
    if (topic.size == 0 || queue_id < 0) {
        answer(result, GET_MESSAGE_NO_MATCHED_LOGIC_QUEUE, 0);
        return;
    }
    const struct consume_queue *queue = message_store_queue(store, topic, queue_id, false, NULL);
    if (queue == NULL) {
        /* Java makes an empty queue on the way and then finds no message in it: clients see this status. */
        answer(result, GET_MESSAGE_NO_MESSAGE_IN_QUEUE, 0);
        return;
    }
    result->min_offset = queue->min_offset;
    result->max_offset = queue->max_offset;
    if (max_count < 1)
        max_count = 1;
    if (queue->max_offset == 0)
        answer(result, GET_MESSAGE_NO_MESSAGE_IN_QUEUE, 0);
    else if (offset < queue->min_offset)
        answer(result, GET_MESSAGE_OFFSET_TOO_SMALL, queue->min_offset);
    else if (offset == queue->max_offset)
        answer(result, GET_MESSAGE_OFFSET_OVERFLOW_ONE, offset);
    else if (offset > queue->max_offset)
        answer(result, GET_MESSAGE_OFFSET_OVERFLOW_BADLY, queue->max_offset);
    else
        scan(store, queue, offset, max_count, filter, result);
}

/* ---- queues whose pages have left memory ---- */

bool message_store_is_cold(struct message_store *store, struct slice topic, int32_t queue_id, int64_t offset, struct message_store_pages *pages)
{
    const struct consume_queue *queue = message_store_queue(store, topic, queue_id, false, NULL);
    const struct env_ops *ops = store->env->ops;
    struct mapped_file *file;
    uint8_t *address;
    size_t size;
    if (queue == NULL || ops->resident == NULL || ops->populate == NULL ||
        !consume_queue_bytes(queue, offset, SCAN_BYTES_MIN / CONSUME_QUEUE_UNIT_SIZE, &file, &address, &size) ||
        ops->resident(store->env, address, size))
        return false;
    consume_queue_bytes(queue, offset, READ_AHEAD_UNITS, &file, &address, &size);
    mapped_file_pin(file);
    *pages = (struct message_store_pages){file, address, size};
    return true;
}

void message_store_read_pages(const struct message_store_pages *pages)
{
    pages->file->env->ops->populate(pages->file->env, pages->address, pages->size);
}

void message_store_release_pages(struct message_store_pages *pages)
{
    mapped_file_unpin(pages->file); /* the queue itself may be gone: its topic was deleted meanwhile */
    pages->file = NULL;
}
