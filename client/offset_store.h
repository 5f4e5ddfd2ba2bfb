/* How far a consumer has come in each of its queues, and what of that others do not know yet.
 *
 * Follows org.apache.rocketmq.client.consumer.store.RemoteBrokerOffsetStore and LocalFileOffsetStore 4.9.8. A clustered
 * group's offsets belong to the brokers: pull_queue.c asks for them and consumer_offset.c sends them. A broadcast
 * consumer's belong to this machine: they are read from and written to a file of RocketMQ's form and place,
 * DIRECTORY/CLIENT_ID/GROUP/offsets.json. Not thread safe: the loop thread's.
 */
#ifndef LEDGERMQ_CLIENT_OFFSET_STORE_H
#define LEDGERMQ_CLIENT_OFFSET_STORE_H

#include <uthash.h>

#include "client/ledgermq.h"
#include "proto/error.h"
#include "proto/message_queue.h"

#define QUEUE_KEY_MAX (LEDGERMQ_TOPIC_MAX + LEDGERMQ_NAME_MAX + 16)
#define OFFSET_FILE_MAX (16u * 1024 * 1024)

struct offset_entry {
    struct ledgermq_queue queue;
    int64_t offset;
    bool dirty; /* changed since it was last committed */
    const void *teller; /* whoever tells it to the broker now, NULL = nobody */
    UT_hash_handle hh;
    char key[];
};

struct offset_store {
    struct offset_entry *entries; /* uthash by key */
    char *file;                   /* NULL: brokers keep the offsets */
};

/* "topic broker id": none of the names holds a blank. */
void queue_key(const struct ledgermq_queue *queue, char key[QUEUE_KEY_MAX]);
/* As bodies name it. Its texts are the queue's. */
struct message_queue message_queue_of(const struct ledgermq_queue *queue);

void offset_store_init(struct offset_store *store);
void offset_store_close(struct offset_store *store);
/* Makes the folders and reads what is there. A file that cannot be read as one is ERROR_DAMAGED and stays as it is.
 * ERROR_IO, ERROR_NO_MEMORY. */
int offset_store_open_file(struct offset_store *store, const char *directory, const char *client_id, const char *group,
                           struct error *error);
/* increase_only: an offset below the present one is ignored. Returns false when memory is short. */
bool offset_store_update(struct offset_store *store, const struct ledgermq_queue *queue, int64_t offset,
                         bool increase_only);
/* -1 when there is none. */
int64_t offset_store_read(const struct offset_store *store, const struct ledgermq_queue *queue);
struct offset_entry *offset_store_find(const struct offset_store *store, const struct ledgermq_queue *queue);
void offset_store_remove(struct offset_store *store, const struct ledgermq_queue *queue);
/* Writes all offsets to the file if one of them is dirty: beside it, then in its place. ERROR_IO, ERROR_NO_MEMORY. */
int offset_store_save(struct offset_store *store, struct error *error);

#endif
