/* Questions about single records: store times, sizes, the offset at a time, and the search by key.
 *
 * Follows DefaultMessageStore.queryMessage, ConsumeQueue.getOffsetInQueueByTime and IndexService.queryOffset 4.9.8 (spec: store.md 3.1, 3.3).
 * Unlike Java the search by key compares the message's own keys, topic and store time, so that equal hashes do not show up in answers.
 */
#include "proto/hash.h"
#include "store/index_service.h"
#include "store/log_sink.h"
#include "store/message_store.h"
#include "store/queue_table.h"

#include <stdlib.h>

enum {
    RECORD_TOTAL_SIZE = 0,
    RECORD_MAGIC = 4,
    RECORD_QUEUE_ID = 12,
    RECORD_QUEUE_OFFSET = 20,
    RECORD_PHYSICAL_OFFSET = 28,
    RECORD_SYS_FLAG = 36,
    RECORD_STORE_TIMESTAMP = 56, /* IPv4 born host */
    RECORD_BODY_LENGTH = 84,     /* both hosts IPv4 */
    IPV6_MORE = 12,
};
#define RECORD_HEAD_SIZE (RECORD_BODY_LENGTH + 4u + 2u * IPV6_MORE)
#define RECORD_SIZE_MIN 91u
/* Reading through one chain must not hold up the loop: 2^18 entries are some 30 ms of cache misses. Only a key shared by more messages than
 * that, searched in a time range far behind its newest ones, is cut short. */
#define CHAIN_STEPS_MAX (1u << 18)
/* Messages around one whose unit is damaged that are asked for their time instead. */
#define NEAR_MAX 256
/* Records that had to be read and then did not hold the key. */
#define MISSES_MAX 1024u

/* Lengths and times of the record at an offset, all checked against what is committed. */
struct record_head {
    int32_t queue_id;
    int64_t queue_offset;
    uint32_t total_size;
    int64_t store_timestamp_ms;
    uint32_t tail_offset; /* where the topic's length stands */
    uint32_t topic_length_size;
};

static bool read_head(const struct message_store *store, int64_t physical_offset, struct record_head *head)
{
    const struct log_view *log = &store->log;
    uint8_t bytes[RECORD_HEAD_SIZE];
    if (physical_offset < 0 || physical_offset < log->min_offset(log->context))
        return false;
    uint32_t left = log->message_at(log->context, physical_offset);
    if (left < RECORD_SIZE_MIN)
        return false;
    memset(bytes, 0, sizeof bytes);
    if (log->read(log->context, physical_offset, bytes, left < sizeof bytes ? left : sizeof bytes) != 0)
        return false;
    uint32_t magic = load_u32(bytes + RECORD_MAGIC);
    if (magic != MESSAGE_MAGIC_V1 && magic != MESSAGE_MAGIC_V2)
        return false;
    uint32_t total = load_u32(bytes + RECORD_TOTAL_SIZE);
    if (total < RECORD_SIZE_MIN || total > left || (int64_t)load_u64(bytes + RECORD_PHYSICAL_OFFSET) != physical_offset)
        return false;
    uint32_t flag = load_u32(bytes + RECORD_SYS_FLAG);
    uint32_t born_more = (flag & MESSAGE_BORN_HOST_V6) != 0 ? IPV6_MORE : 0;
    uint32_t store_more = (flag & MESSAGE_STORE_HOST_V6) != 0 ? IPV6_MORE : 0;
    uint32_t body_at = RECORD_BODY_LENGTH + born_more + store_more;
    uint32_t body = load_u32(bytes + body_at);
    head->topic_length_size = magic == MESSAGE_MAGIC_V2 ? 2 : 1;
    uint32_t fixed = body_at + 4 + head->topic_length_size + 2;
    if (total < fixed || body > total - fixed)
        return false;
    head->queue_id = (int32_t)load_u32(bytes + RECORD_QUEUE_ID);
    head->queue_offset = (int64_t)load_u64(bytes + RECORD_QUEUE_OFFSET);
    head->total_size = total;
    head->store_timestamp_ms = (int64_t)load_u64(bytes + RECORD_STORE_TIMESTAMP + born_more);
    head->tail_offset = body_at + 4 + body;
    return true;
}

int64_t message_store_record_time(struct message_store *store, int64_t physical_offset)
{
    struct record_head head;
    return read_head(store, physical_offset, &head) ? head.store_timestamp_ms : -1;
}

uint32_t message_store_record_size(struct message_store *store, int64_t physical_offset)
{
    struct record_head head;
    return read_head(store, physical_offset, &head) ? head.total_size : 0;
}

/* -1: there is none, or its unit is not its own. */
static int64_t time_at(struct message_store *store, const struct consume_queue *queue, int64_t offset)
{
    struct consume_queue_unit unit;
    struct record_head head;
    uint8_t topic[2 + QUEUE_TABLE_TOPIC_MAX];
    size_t size = strlen(queue->topic);
    if (!consume_queue_get(queue, offset, &unit) || !read_head(store, unit.physical_offset, &head) || head.queue_id != queue->queue_id ||
        head.queue_offset != offset || head.total_size != (uint32_t)unit.size || head.topic_length_size + size > head.total_size - head.tail_offset ||
        store->log.read(store->log.context, unit.physical_offset + head.tail_offset, topic, head.topic_length_size + size) != 0)
        return -1;
    size_t named = head.topic_length_size == 2 ? load_u16(topic) : topic[0];
    return named == size && memcmp(topic + head.topic_length_size, queue->topic, size) == 0 ? head.store_timestamp_ms : -1;
}

/* The time of a message near `offset`, of which the unit may be damaged: *found, in [low, high). -1: none can be told. */
static int64_t time_near(struct message_store *store, struct consume_queue *queue, int64_t offset, int64_t low, int64_t high, int64_t *found)
{
    int64_t time_ms = time_at(store, queue, offset);
    *found = offset;
    if (time_ms >= 0)
        return time_ms;
    for (int64_t step = 1; time_ms < 0 && step < NEAR_MAX && (offset - step >= low || offset + step < high); step++) {
        *found = offset - step;
        if (*found >= low)
            time_ms = time_at(store, queue, *found);
        if (time_ms < 0 && offset + step < high) {
            *found = offset + step;
            time_ms = time_at(store, queue, *found);
        }
    }
    if (time_ms < 0)
        *found = offset;
    return time_ms;
}

int64_t message_store_store_time(struct message_store *store, struct slice topic, int32_t queue_id, int64_t offset)
{
    const struct consume_queue *queue = message_store_queue(store, topic, queue_id, false, NULL);
    return queue == NULL ? -1 : time_at(store, queue, offset);
}

int64_t message_store_offset_by_time(struct message_store *store, struct slice topic, int32_t queue_id, int64_t timestamp_ms)
{
    struct consume_queue *queue = message_store_queue(store, topic, queue_id, false, NULL);
    if (queue == NULL)
        return 0;
    int64_t low = queue->min_offset;
    int64_t high = queue->max_offset;
    if (low == high)
        return low;
    /* First record stored at or after the time: of several with the very time, the earliest. Over the whole queue, since a file's time of last
     * change, by which Java picks one, says nothing after a rebuild. */
    while (low < high) {
        int64_t found, time_ms = time_near(store, queue, low + (high - low) / 2, low, high, &found);
        if (time_ms >= 0 && time_ms < timestamp_ms) /* of those that nobody can tell, rather too many messages than too few */
            low = found + 1;
        else
            high = found;
    }
    if (low == queue->min_offset)
        return low;
    if (low == queue->max_offset)
        return low - 1;
    int64_t right = time_at(store, queue, low);
    int64_t left = time_at(store, queue, low - 1);
    if (right == timestamp_ms || left < 0)
        return low;
    return right - timestamp_ms < timestamp_ms - left ? low : low - 1;
}

struct earliest {
    struct message_store *store;
    int64_t position;
    int64_t time_ms;
};

/* Only a unit that would be the earliest has to be looked at, or one that contradicts the next. */
static void keep_earliest(void *argument, struct consume_queue *queue)
{
    struct earliest *earliest = argument;
    struct consume_queue_unit unit, next;
    int64_t min = queue->min_offset, found;
    if (!consume_queue_get(queue, min, &unit))
        return;
    bool disorder = !consume_queue_trusts(queue, min) && consume_queue_get(queue, min + 1, &next) && unit.physical_offset >= next.physical_offset;
    if (unit.physical_offset >= earliest->position && !disorder)
        return;
    /* The next messages are not much younger than one that cannot be told. */
    int64_t time_ms = time_near(earliest->store, queue, min, min, queue->max_offset, &found);
    if (time_ms < 0 || !consume_queue_get(queue, found, &unit) || unit.physical_offset >= earliest->position)
        return;
    earliest->position = unit.physical_offset;
    earliest->time_ms = time_ms;
}

int64_t message_store_earliest_time(struct message_store *store)
{
    int64_t log_min = store->log.min_offset(store->log.context);
    if (store->earliest_time_ms >= 0 && store->earliest_min_offset == log_min)
        return store->earliest_time_ms;
    struct earliest earliest = {store, INT64_MAX, -1};
    message_store_each_queue(store, keep_earliest, &earliest);
    store->earliest_time_ms = earliest.time_ms;
    store->earliest_min_offset = log_min;
    return store->earliest_time_ms;
}

/* ---- by key ---- */

struct search {
    struct message_store *store;
    struct slice topic;
    struct slice key;
    int64_t begin_ms;
    int64_t end_ms;
    uint8_t *tail; /* topic and properties of the record looked at */
    size_t tail_capacity;
};

static bool holds_key(struct slice keys, struct slice key)
{
    struct slice one;
    while ((one = slice_next_part(&keys, ' ')).size > 0) {
        if (slice_equal(one, key))
            return true;
    }
    return false;
}

/* Reads what follows the body and looks whether this is a message that was asked for. */
static bool is_wanted(struct search *search, int64_t physical_offset)
{
    const struct log_view *log = &search->store->log;
    struct record_head head;
    if (!read_head(search->store, physical_offset, &head))
        return false;
    if (head.store_timestamp_ms < search->begin_ms || head.store_timestamp_ms > search->end_ms)
        return false;
    uint32_t size = head.total_size - head.tail_offset;
    if (size > search->tail_capacity || log->read(log->context, physical_offset + head.tail_offset, search->tail, size) != 0)
        return false;
    struct cursor cursor = cursor_of(slice_of(search->tail, size));
    size_t topic_size = head.topic_length_size == 2 ? cursor_u16(&cursor) : cursor_u8(&cursor);
    struct slice topic = cursor_slice(&cursor, topic_size);
    size_t properties_size = cursor_u16(&cursor);
    struct slice properties = cursor_slice(&cursor, properties_size);
    if (cursor.failed || !slice_equal(topic, search->topic))
        return false;
    struct slice unique = message_property(properties, "UNIQ_KEY");
    if (unique.data != NULL && slice_equal(unique, search->key))
        return true;
    struct slice keys = message_property(properties, "KEYS");
    return keys.data != NULL && holds_key(keys, search->key);
}

static bool is_known(const int64_t *physical_offsets, uint32_t count, int64_t physical_offset)
{
    while (count-- > 0) {
        if (physical_offsets[count] == physical_offset)
            return true;
    }
    return false;
}

static int ascending(const void *a, const void *b)
{
    int64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return x < y ? -1 : x > y;
}

uint32_t message_store_query(struct message_store *store, struct slice topic, struct slice key, uint32_t max_count, int64_t begin_ms,
                             int64_t end_ms, int64_t *physical_offsets, int64_t *last_update_timestamp, int64_t *last_update_offset)
{
    const struct index_service *index = store->index;
    *last_update_timestamp = 0;
    *last_update_offset = 0;
    if (index == NULL || index->count == 0)
        return 0;
    *last_update_timestamp = index->files[index->count - 1]->end_timestamp_ms;
    *last_update_offset = index->files[index->count - 1]->end_physical_offset;
    if (key.size == 0 || max_count == 0)
        return 0;
    if (max_count > GET_MESSAGE_BATCH_MAX)
        max_count = GET_MESSAGE_BATCH_MAX; /* maxMsgsNumBatch */
    if (begin_ms < 0)
        begin_ms = 0;

    struct search search = {store, topic, key, begin_ms, end_ms, NULL, 2 + 65535 + 2 + 65535};
    search.tail = malloc(search.tail_capacity);
    if (search.tail == NULL)
        return 0;
    uint32_t hash = index_key_hash(topic, key);
    uint32_t count = 0;
    uint32_t steps = CHAIN_STEPS_MAX;
    uint32_t misses = MISSES_MAX;
    for (size_t i = index->count; i-- > 0 && count < max_count && steps > 0 && misses > 0;) {
        const struct index_file *file = index->files[i];
        if (!index_file_overlaps(file, begin_ms, end_ms))
            continue;
        uint32_t at = 0;
        int64_t physical_offset;
        while (count < max_count && misses > 0 && index_file_next(file, hash, begin_ms, end_ms, &at, &steps, &physical_offset)) {
            /* A record that names a key twice has two entries; damage may lead to one of them from anywhere. */
            if (is_known(physical_offsets, count, physical_offset))
                continue;
            if (is_wanted(&search, physical_offset))
                physical_offsets[count++] = physical_offset;
            else
                misses--;
        }
    }
    if (steps == 0 || misses == 0)
        LOG_WARN("query by key stopped early: too many messages share the key or its hash");
    free(search.tail);
    if (count > 1)
        qsort(physical_offsets, count, sizeof physical_offsets[0], ascending);
    return count;
}
