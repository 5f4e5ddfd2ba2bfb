/* Which records a pull gets: status and next offset by the table of org.apache.rocketmq.store.DefaultMessageStore.getMessage 4.9.8 on a master
 * (spec: store.md 5.1).
 *
 * Unlike Java there is no smaller batch for "messages on disk": what is not resident is read by the pool and cannot stall others.
 */
#include "store/message_store.h"

#include "proto/ledger_entry.h"
#include "store/log_sink.h"
#include "store/seeded_bug.h"

#include <stdio.h>
#include <string.h>

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

/* ---- what units say ---- */

/* The whole entry, when the unit says where one is, of that message, and it is in memory or may be waited for. */
static struct slice record_at(const struct message_store *store, const struct consume_queue *queue, int64_t offset, const struct consume_queue_unit *unit,
                              bool *wrong)
{
    const struct log_view *log = &store->log;
    struct ledger_entry entry;
    int64_t position = unit->physical_offset - (int64_t)LEDGER_ENTRY_HEADER_SIZE;
    const uint8_t *bytes = log->at(log->context, position, LEDGER_ENTRY_HEADER_SIZE + (size_t)unit->size);
    struct slice none = {0};

    *wrong = false;
    if (bytes == NULL)
        return none;
    struct slice record = slice_of(bytes + LEDGER_ENTRY_HEADER_SIZE, (size_t)unit->size);
    *wrong = ledger_entry_decode(&entry, bytes) != 0 || entry.kind != LEDGER_ENTRY_MESSAGE || entry.position != (uint64_t)position ||
             entry.body_size < record.size || !message_record_is(record, slice_of_text(queue->topic), queue->queue_id, offset, unit->physical_offset);
    return *wrong ? none : record;
}

/* It points into a part of the log that cannot be read now. */
static bool is_damaged(const struct message_store *store, const struct consume_queue_unit *unit)
{
    const struct log_view *log = &store->log;
    return log->damaged != NULL && log->damaged(log->context, unit->physical_offset, (size_t)unit->size);
}

/* The unit's tags code is that of the record too. */
static bool is_unit_of(const struct message_store *store, const struct consume_queue_unit *unit, struct slice record)
{
    struct message_dispatch dispatch;
    return message_dispatch_decode(record, &dispatch) == 0 && message_store_unit_fits(store, &dispatch, unit);
}

/* Could stand behind a record that ends at `before`; its end in *end. */
static bool is_possible(const struct consume_queue_unit *unit, int64_t before, int64_t *end)
{
    return unit->size > 0 && (uint32_t)unit->size <= LEDGER_ENTRY_SIZE_MAX - LEDGER_ENTRY_HEADER_SIZE && unit->physical_offset >= (int64_t)LEDGER_ENTRY_HEADER_SIZE && unit->physical_offset >= before &&
           !__builtin_add_overflow(unit->physical_offset, (int64_t)unit->size, end);
}

void message_store_distrust(struct message_store *store, struct slice topic, int32_t queue_id, int64_t offset)
{
    struct message_store_doubt *doubt = &store->doubt;
    struct consume_queue *queue = message_store_queue(store, topic, queue_id, false, NULL);
    int64_t log_min = store->log.min_offset(store->log.context);
    struct consume_queue_unit unit;
    char where[512];

    if (queue == NULL || offset < queue->min_offset || offset >= queue->max_offset)
        return;
    consume_queue_distrust(queue, offset);
    if (doubt->any && (doubt->missing_until_us == 0 || env_monotonic_us(store->env) < doubt->missing_until_us))
        return;
    *doubt = (struct message_store_doubt){.any = true, .position = log_min, .queue_id = queue_id, .queue_offset = offset};
    snprintf(doubt->topic, sizeof doubt->topic, "%s", queue->topic);
    /* Records of a queue lie in its order: this one is behind that of the unit before, if that can be believed. */
    if (offset > queue->min_offset && consume_queue_trusts(queue, offset - 1) && consume_queue_get(queue, offset - 1, &unit) && unit.physical_offset > log_min)
        doubt->position = unit.physical_offset;
    doubt->everything = doubt->position == log_min;
    consume_queue_describe(queue, offset, where, sizeof where);
    LOG_ERROR("queue %s %d is damaged: its unit of message %lld (%s) is not that of the message's record. It is not served; the log is read from %lld on to "
              "make it again",
              queue->topic, (int)queue_id, (long long)offset, where, (long long)doubt->position);
}

void message_store_drop_doubt(struct message_store *store)
{
    struct message_store_doubt *doubt = &store->doubt;
    const struct consume_queue *queue;

    if (!doubt->any)
        return;
    queue = message_store_queue(store, slice_of_text(doubt->topic), doubt->queue_id, false, NULL);
    if (queue == NULL || doubt->queue_offset < queue->min_offset)
        doubt->any = false;
}

int64_t message_store_first_physical(struct message_store *store, struct consume_queue *queue, bool look)
{
    struct consume_queue_unit unit;
    int64_t first = consume_queue_first_physical(queue);

    if (first >= 0 || !look)
        return first;
    if (!message_store_unit(store, queue, queue->min_offset, &unit))
        return -1;
    consume_queue_note_first(queue, unit.physical_offset);
    return unit.physical_offset;
}

bool message_store_unit(struct message_store *store, struct consume_queue *queue, int64_t offset, struct consume_queue_unit *unit)
{
    int64_t end;
    bool wrong;

    if (!consume_queue_get(queue, offset, unit))
        return false;
    if (consume_queue_trusts(queue, offset))
        return unit->size > 0;
    struct slice record = {0};
    if (is_possible(unit, 0, &end)) {
        if (is_damaged(store, unit))
            return false; /* first the log has to be repaired */
        record = record_at(store, queue, offset, unit, &wrong);
    }
    return message_store_unit_is_of(store, queue, offset, record);
}

bool message_store_unit_names(const struct message_store *store, const struct consume_queue *queue, int64_t offset, const struct consume_queue_unit *unit)
{
    int64_t end;
    bool wrong;
    return is_possible(unit, 0, &end) && record_at(store, queue, offset, unit, &wrong).data != NULL;
}

bool message_store_unit_is_of(struct message_store *store, struct consume_queue *queue, int64_t offset, struct slice record)
{
    struct consume_queue_unit unit;

    if (!consume_queue_get(queue, offset, &unit))
        return false;
    if (record.data == NULL || record.size != (size_t)unit.size ||
        !message_record_is(record, slice_of_text(queue->topic), queue->queue_id, offset, unit.physical_offset) || !is_unit_of(store, &unit, record)) {
        message_store_distrust(store, slice_of_text(queue->topic), queue->queue_id, offset);
        return false;
    }
    if (!consume_queue_trusts(queue, offset))
        consume_queue_compared(queue, offset);
    return true;
}

/* It was found wrong, and is not made again yet. */
static bool is_doubted(const struct message_store *store, const struct consume_queue *queue, int64_t offset)
{
    const struct message_store_doubt *doubt = &store->doubt;
    return doubt->any && doubt->queue_offset == offset && doubt->queue_id == queue->queue_id && strcmp(doubt->topic, queue->topic) == 0;
}

/* ---- which records a pull gets ---- */

struct scan {
    struct message_store *store;
    struct consume_queue *queue;
    const struct message_filter *filter;
    int64_t log_min, committed;
    int64_t before;   /* end of the record before */
    uint32_t records; /* that were read */
    bool began_trusted;
};

enum sight {
    SIGHT_TAKE,
    SIGHT_PASS,    /* the filter does not want it */
    SIGHT_GONE,    /* no longer retained */
    SIGHT_AHEAD,   /* not committed */
    SIGHT_ENOUGH,  /* records were read */
    SIGHT_WRONG,   /* not this message's unit */
    SIGHT_DAMAGED, /* the message cannot be read now */
};

static enum sight look(struct scan *scan, int64_t at, const struct consume_queue_unit *unit)
{
    const struct message_filter *filter = scan->filter;
    bool trusted = consume_queue_trusts(scan->queue, at);
    bool tags = filter != NULL && filter->match_tags != NULL;
    int64_t end;

    if (!is_possible(unit, scan->before, &end))
        return SIGHT_WRONG;
    bool damaged = is_damaged(scan->store, unit);
    if (!trusted && !damaged && is_doubted(scan->store, scan->queue, at))
        return SIGHT_WRONG;
    scan->before = end;
    bool hot = scan->store->config.hot_bytes == 0 || scan->committed - unit->physical_offset <= (int64_t)scan->store->config.hot_bytes;
    /* After a start the log is applied again from before where the queues end. */
    if (end > scan->committed)
        return (trusted || end <= scan->store->recovered_position) && scan->queue->max_physical_offset > scan->committed ? SIGHT_AHEAD : SIGHT_WRONG;
    if (tags && trusted && !filter->match_tags(filter->context, unit->tags_code))
        return SIGHT_PASS;
    if (unit->physical_offset < scan->log_min)
        return trusted ? SIGHT_GONE : SIGHT_WRONG;
    if (damaged)
        return SIGHT_DAMAGED;
    bool reads = (filter != NULL && filter->match_record != NULL) || (tags && !trusted);
    if (reads && filter->records_max != 0 && scan->records++ == filter->records_max)
        return SIGHT_ENOUGH;
    /* Nobody has read ahead for a pull that began where units are believed. */
    if (tags && !trusted && !hot && scan->began_trusted)
        return SIGHT_ENOUGH;
    if (!reads && !hot)
        return SIGHT_TAKE; /* looked at when it is read */
    bool wrong;
    struct slice record = record_at(scan->store, scan->queue, at, unit, &wrong);
    if (wrong)
        return SIGHT_WRONG;
    if (record.data == NULL && !trusted) /* it is no damaged record: where the unit points there is none */
        return SIGHT_WRONG;
    if (record.data == NULL)
        return SIGHT_TAKE; /* not readable here and now: a message too many is what clients must expect, one too few is a loss */
    if (tags && !trusted) {
        if (!is_unit_of(scan->store, unit, record))
            return SIGHT_WRONG;
        consume_queue_compared(scan->queue, at);
        if (!filter->match_tags(filter->context, unit->tags_code))
            return SIGHT_PASS;
    }
    return filter != NULL && filter->match_record != NULL && !filter->match_record(filter->context, record) ? SIGHT_PASS : SIGHT_TAKE;
}

static void scan(struct message_store *store, struct consume_queue *queue, int64_t offset, int32_t max_count, const struct message_filter *filter,
                 struct get_message_result *result)
{
    const struct log_view *log = &store->log;
    struct scan scan = {store, queue, filter, log->min_offset(log->context), log->committed_offset(log->context), 0, 0,
                        consume_queue_trusts(queue, offset)};
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
    int64_t at = offset;
    result->status = GET_MESSAGE_NO_MATCHED_MESSAGE;
    for (; at < end; at++) {
        /* Its file may be one that cannot be mapped now: whoever asks waits. */
        if (!consume_queue_get(queue, at, &unit)) {
            if (at == offset)
                result->status = GET_MESSAGE_DAMAGED;
            break;
        }
        if (is_full(store, result, max_count, unit.size)) {
            if (unit.physical_offset > result->last_physical_offset) /* damaged ones may say anything */
                result->last_physical_offset = unit.physical_offset;
            break;
        }
        enum sight sight = look(&scan, at, &unit);
        if (sight == SIGHT_AHEAD && at == offset)
            result->status = GET_MESSAGE_OFFSET_OVERFLOW_ONE; /* cannot be while queues hold committed records only; a reader must not depend on it */
        /* What is before it is answered, and then this reader waits here: it is never passed over. */
        if ((sight == SIGHT_DAMAGED || sight == SIGHT_WRONG) && at == offset)
            result->status = GET_MESSAGE_DAMAGED;
        if (sight == SIGHT_WRONG)
            message_store_distrust(store, slice_of_text(queue->topic), queue->queue_id, at);
        if (sight >= SIGHT_AHEAD && !(sight == SIGHT_DAMAGED && SEEDED_BUG(PULL_PASSES)))
            break;
        result->last_physical_offset = unit.physical_offset;
        if (sight != SIGHT_TAKE) {
            if (result->count == 0)
                result->status = sight == SIGHT_GONE ? GET_MESSAGE_WAS_REMOVING : GET_MESSAGE_NO_MATCHED_MESSAGE;
            continue;
        }
        result->items[result->count].physical_offset = unit.physical_offset;
        result->items[result->count].queue_offset = at;
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
    struct consume_queue *queue = message_store_queue(store, topic, queue_id, false, NULL);
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
