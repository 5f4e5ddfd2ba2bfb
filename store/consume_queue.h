/* One queue of a topic: 20-byte units {physical offset 8, record size 4, tags code 8}, unit n at byte 20 n.
 *
 * Follows org.apache.rocketmq.store.ConsumeQueue (spec: store.md 3.1), except where Java drops or shifts silently: an append must be at
 * the queue's maximum (asserted by the caller, message_store_dispatch).
 */
#ifndef LEDGERMQ_STORE_CONSUME_QUEUE_H
#define LEDGERMQ_STORE_CONSUME_QUEUE_H

#include "store/mapped_file_queue.h"

#define CONSUME_QUEUE_UNIT_SIZE 20u
#define CONSUME_QUEUE_FILE_SIZE 6000000u

struct consume_queue_unit {
    int64_t physical_offset;
    int32_t size;
    int64_t tags_code;
};

struct consume_queue {
    /* What an append touches stands together: with thousands of queues each line of it comes from memory. */
    int32_t queue_id;
    uint32_t tail_units; /* private: how many units fit at tail before anything has to be looked at again */
    uint8_t *tail;       /* private: where the next unit goes */
    int64_t max_offset; /* next unit to be written; only committed entries get here */
    int64_t max_physical_offset; /* end of the last record: offset + size */
    /* Leader only: next queue offset to hand out (>= max_offset). Owned by the append path; reset when leadership begins. */
    int64_t append_offset;
    bool dirty; /* units not synced since the last consume_queue_sync */

    int64_t min_offset; /* first unit whose record is still retained; where damaged units leave that open, one in front of it, until the log was read */
    int64_t min_sure;   /* private: what lies before it is not retained whatever the units say that this process found on the disk */
    int64_t retained_from; /* records before this physical offset are not retained, as far as was told in this run */
    int64_t min_known;  /* private: 1 + the offset that min_physical is of, 0 = none */
    int64_t min_physical;
    /* What is believed without a look at the record (consume_queue_trusts): units that this process wrote or compared with the log. Those that it found
     * on the disk may say anything. */
    int64_t compared_to;   /* [min_offset, compared_to) */
    int64_t appended_from; /* [appended_from, max_offset) */
    int64_t believed;      /* 1 + a unit in between that was compared by itself, 0 = none */
    struct mapped_file_queue files;
    char *topic;

    /* Private. */
    uint64_t reserved_end; /* byte up to which the last file has disk blocks for sure */
    uint64_t dirty_from;   /* first byte not synced, when dirty */
    uint64_t dirty_to;     /* bytes behind the end that were cleared up to here and not synced, 0 = none */
    struct mapped_file_window *window; /* NULL but for a start: what is not mapped is read through it */
};

int consume_queue_open(struct consume_queue *queue, struct env *env, const char *dir, const char *topic, int32_t queue_id,
                       uint64_t file_size, struct error *error);
void consume_queue_close(struct consume_queue *queue);
/* From here to consume_queue_end_look() what is not mapped is read page by page and stays unmapped: for a start, which looks at a little of every queue.
 * The window is the caller's; the end says if something could not be read: then what was found since counts for nothing. 0, ERROR_IO. */
void consume_queue_begin_look(struct consume_queue *queue, struct mapped_file_window *window);
int consume_queue_end_look(struct consume_queue *queue, struct error *error);
/* Makes sure that the append at queue_offset cannot fail any more: file, padding and disk blocks are there. 0, ERROR_NO_SPACE, ERROR_IO. */
int consume_queue_prepare(struct consume_queue *queue, int64_t queue_offset);
/* Writes unit number max_offset. The first append of an empty queue may be at any queue offset (pads the file in front). 0, ERROR_NO_SPACE, ERROR_IO. */
int consume_queue_append(struct consume_queue *queue, int64_t queue_offset, const struct consume_queue_unit *unit);
/* False when outside [min_offset, max_offset). */
bool consume_queue_get(const struct consume_queue *queue, int64_t queue_offset, struct consume_queue_unit *unit);
/* Like consume_queue_get, also for units whose record is no longer retained (their file still is). */
bool consume_queue_get_any(const struct consume_queue *queue, int64_t queue_offset, struct consume_queue_unit *unit);
/* The unit is what the log says, as far as this process can know without a look at the record. */
static inline bool consume_queue_trusts(const struct consume_queue *queue, int64_t queue_offset)
{
    return queue_offset >= queue->appended_from || queue_offset < queue->compared_to || queue_offset + 1 == queue->believed;
}
/* The unit was found right. */
void consume_queue_compared(struct consume_queue *queue, int64_t queue_offset);
/* ... or wrong. */
void consume_queue_distrust(struct consume_queue *queue, int64_t queue_offset);
/* Writes the unit of a record anew where another one, or nothing, stands in [min_offset, max_offset). 0, ERROR_NO_SPACE, ERROR_IO, ERROR_INVALID. */
int consume_queue_mend(struct consume_queue *queue, int64_t queue_offset, const struct consume_queue_unit *unit);
/* The 20 bytes of a unit. */
void consume_queue_encode(uint8_t out[CONSUME_QUEUE_UNIT_SIZE], const struct consume_queue_unit *unit);
void consume_queue_decode(const uint8_t bytes[CONSUME_QUEUE_UNIT_SIZE], struct consume_queue_unit *unit);
/* Where a unit stands, for a message to people: file and byte in it. */
void consume_queue_describe(const struct consume_queue *queue, int64_t queue_offset, char *out, size_t size);
/* Where the units [queue_offset, queue_offset + count) lie, as far as they are there and in one file. False: nowhere, or at the end that appends have
 * in memory anyhow. */
bool consume_queue_bytes(const struct consume_queue *queue, int64_t queue_offset, int64_t count, struct mapped_file **file, uint8_t **bytes,
                         size_t *size);
/* First unit in [min_offset, max_offset) whose record is at or behind physical_offset; max_offset when there is none. Where units that may say anything
 * contradict each other, one in front of it. */
int64_t consume_queue_lower_bound(const struct consume_queue *queue, int64_t physical_offset);
/* Where a queue that was found after a start has to end, so that it holds no record at or behind a position. */
struct consume_queue_end {
    int64_t offset;
    int64_t last_physical_offset; /* of the unit in front, -1 = there is none */
    bool damaged; /* a unit around the end is broken: the end lies before it, and the queue then lacks records before the position */
};
/* Where it ended when records up to that position had been appended: 0 = it was not there. What was cut off in front since must lie before that position. */
int64_t consume_queue_end_at(const struct consume_queue *queue, int64_t physical_offset);
/* After a start: finds that end, changes nothing. */
int consume_queue_look(const struct consume_queue *queue, int64_t physical_offset, struct consume_queue_end *end, struct error *error);
/* ... and cuts the queue there. */
int consume_queue_cut(struct consume_queue *queue, const struct consume_queue_end *end, struct error *error);
/* After a start that cannot trust what lies behind the end (units of records that no longer exist, which a power cut let through): zeroes it. Reads
 * the rest of the last file. */
int consume_queue_clear_tail(struct consume_queue *queue, struct error *error);
/* First unit in front of `end` whose record is at or behind physical_offset; `end`: none is. Halves, so that damaged units may hide it. */
int64_t consume_queue_border(const struct consume_queue *queue, int64_t end, int64_t physical_offset);
/* Drops all units whose record is at or behind physical_offset; remembers the new maximum. */
int consume_queue_truncate(struct consume_queue *queue, int64_t physical_offset, struct error *error);
/* Physical offset of the first message, INT64_MAX = there is none, -1 = it is not remembered. */
int64_t consume_queue_first_physical(const struct consume_queue *queue);
/* It was found right: to be remembered. */
void consume_queue_note_first(struct consume_queue *queue, int64_t physical_offset);
/* Advances min_offset over units before physical_offset. */
int consume_queue_advance_min(struct consume_queue *queue, int64_t physical_offset, struct error *error);
/* ... and removes files that only hold such units, for sure. */
int consume_queue_correct_min(struct consume_queue *queue, int64_t physical_offset, struct error *error);
/* The log was read: the first message that is retained has this number. Moves min_offset there, back too. True: it was another one. */
bool consume_queue_settle_min(struct consume_queue *queue, int64_t queue_offset);
/* There is a file that consume_queue_correct_min() would remove. */
bool consume_queue_has_files_to_go(const struct consume_queue *queue);
int consume_queue_sync(struct consume_queue *queue);
/* End of what is dirty, which begins at dirty_from. */
static inline uint64_t consume_queue_dirty_end(const struct consume_queue *queue)
{
    uint64_t end = (uint64_t)queue->max_offset * CONSUME_QUEUE_UNIT_SIZE;
    return queue->dirty_to > end ? queue->dirty_to : end;
}

#endif
