/* Reads records that may not be in memory, on libuv's pool, so that a consumer of last week's messages cannot stall the loop.
 *
 * At most LIMIT_COLD_READS jobs are at the pool, LIMIT_COLD_WAITING wait. Loop thread only.
 */
#ifndef LEDGERMQ_BROKER_PROCESSOR_COLD_READ_H
#define LEDGERMQ_BROKER_PROCESSOR_COLD_READ_H

#include <bsd/sys/queue.h>
#include <uv.h>

#include "store/message_store.h"

struct broker;
struct cold_reader;

/* For whom a record is read: what waits is counted apart. */
enum cold_read_kind { COLD_READ_INTERNAL, COLD_READ_PULL, COLD_READ_QUERY };

/* Embedded in the caller's object, which must live until done. */
struct cold_read {
    /* in */
    enum cold_read_kind kind;
    bool raw; /* items are bytes of the log wherever entries begin: whoever asks checks them */
    uint32_t count;
    struct {
        int64_t physical_offset;
        uint32_t size;
        struct mapped_file *pinned; /* private */
    } items[GET_MESSAGE_BATCH_MAX];
    struct message_store_pages pages; /* file not NULL: of a queue, read before the items (of which there may be none); released before done */
    /* Called once, from the loop, never inside cold_read_start. code 0: bytes[0, size) hold the items back to back; ERROR_NOT_FOUND: no longer
     * retained; ERROR_DAMAGED, ERROR_IO, ERROR_NO_MEMORY, ERROR_STOPPED. The caller frees with cold_read_free. */
    void (*done)(struct broker *broker, struct cold_read *read, int code);
    void *context; /* the caller's */

    /* out */
    uint8_t *bytes;
    size_t size;
    uint32_t bad; /* with a code: the item that cannot be read */

    /* private */
    struct cold_reader *reader;
    uint64_t queued_us;
    int code;
    uv_work_t work;
    STAILQ_ENTRY(cold_read) next;
};

struct cold_reader *cold_reader_new(struct broker *broker);
/* 0; ERROR_BUSY, which is counted; ERROR_STOPPED. */
int cold_read_start(struct cold_reader *reader, struct cold_read *read);
/* The same for one record. */
int cold_read_start_one(struct cold_reader *reader, struct cold_read *read, int64_t physical_offset, uint32_t size,
                        void (*done)(struct broker *broker, struct cold_read *read, int code));
void cold_read_free(struct cold_read *read);
/* A record so far behind the commit position that its pages may be gone from memory. */
bool cold_read_needed(struct broker *broker, int64_t physical_offset);
/* The record where it lies in memory, checked against its checksum, valid until this turn ends: for what is stored again under a new one, or decided upon.
 * NULL: it must be read by cold_read_start(), and says there what is wrong with it, if anything is. */
const uint8_t *cold_read_at_hand(struct broker *broker, int64_t physical_offset, size_t size);
/* Jobs that were taken since the start, and those of them that read a queue's pages. */
void cold_reader_counts(const struct cold_reader *reader, uint64_t *jobs, uint64_t *of_queues);
/* Of jobs at the pool; those that wait have none yet. */
size_t cold_reader_bytes(const struct cold_reader *reader);
/* Jobs of a kind that wait or are at the pool, and how long the first of them has been there, in ms. */
uint32_t cold_reader_jobs(const struct cold_reader *reader, enum cold_read_kind kind, uint64_t *head_wait_ms);
/* Waiting jobs end with ERROR_STOPPED; those at the pool are waited for: `idle` is called from the loop, or at once. */
void cold_reader_stop(struct cold_reader *reader, void (*idle)(void *argument), void *argument);
void cold_reader_free(struct cold_reader *reader);

#endif
