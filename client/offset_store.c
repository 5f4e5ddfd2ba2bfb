#include "client/offset_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/reset_offset_body.h"

void queue_key(const struct ledgermq_queue *queue, char key[QUEUE_KEY_MAX])
{
    snprintf(key, QUEUE_KEY_MAX, "%s %s %d", queue->topic, queue->broker_name, queue->queue_id);
}

struct message_queue message_queue_of(const struct ledgermq_queue *queue)
{
    return (struct message_queue){slice_of_text(queue->broker_name), slice_of_text(queue->topic), queue->queue_id};
}

void offset_store_init(struct offset_store *store)
{
    *store = (struct offset_store){0};
}

void offset_store_close(struct offset_store *store)
{
    struct offset_entry *entry, *next;
    HASH_ITER(hh, store->entries, entry, next)
    {
        HASH_DEL(store->entries, entry);
        free(entry);
    }
    free(store->file);
    offset_store_init(store);
}

struct offset_entry *offset_store_find(const struct offset_store *store, const struct ledgermq_queue *queue)
{
    struct offset_entry *entry;
    char key[QUEUE_KEY_MAX];
    queue_key(queue, key);
    HASH_FIND_STR(store->entries, key, entry);
    return entry;
}

bool offset_store_update(struct offset_store *store, const struct ledgermq_queue *queue, int64_t offset,
                         bool increase_only)
{
    struct offset_entry *entry = offset_store_find(store, queue);
    if (entry == NULL) {
        char key[QUEUE_KEY_MAX];
        queue_key(queue, key);
        size_t size = strlen(key) + 1;
        entry = calloc(1, sizeof *entry + size);
        if (entry == NULL)
            return false;
        entry->queue = *queue;
        entry->offset = -1;
        memcpy(entry->key, key, size);
        HASH_ADD_STR(store->entries, key, entry);
    }
    if (increase_only ? offset > entry->offset : offset != entry->offset) {
        entry->offset = offset;
        entry->dirty = true;
    }
    return true;
}

int64_t offset_store_read(const struct offset_store *store, const struct ledgermq_queue *queue)
{
    const struct offset_entry *entry = offset_store_find(store, queue);
    return entry == NULL ? -1 : entry->offset;
}

void offset_store_remove(struct offset_store *store, const struct ledgermq_queue *queue)
{
    struct offset_entry *entry = offset_store_find(store, queue);
    if (entry == NULL)
        return;
    HASH_DEL(store->entries, entry);
    free(entry);
}

/* --- the file ---- */

/* Makes every folder on the way to the file. */
static int make_folders(char *file, struct error *error)
{
    for (char *at = strchr(file + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
        *at = '\0';
        int rv = mkdir(file, 0777);
        if (rv != 0 && errno != EEXIST) {
            rv = error_set(error, ERROR_IO, "cannot make the folder %s: %s", file, strerror(errno));
            *at = '/';
            return rv;
        }
        *at = '/';
    }
    return 0;
}

static int read_all(int descriptor, struct buffer *out)
{
    for (;;) {
        uint8_t *at = buffer_reserve(out, 65536);
        ssize_t n = at == NULL ? -1 : read(descriptor, at, 65536);
        if (n <= 0)
            return n == 0 ? 0 : at == NULL ? ERROR_NO_MEMORY : ERROR_IO;
        out->size += (size_t)n;
    }
}

static int take_file(struct offset_store *store, struct slice text, struct error *error)
{
    struct reset_offset_body body;
    int rv = reset_offset_body_decode(&body, text, error);
    if (rv != 0)
        return rv == ERROR_NO_MEMORY ? rv : ERROR_DAMAGED;
    for (size_t i = 0; i < body.offset_count && rv == 0; i++) {
        struct ledgermq_queue queue = {.queue_id = body.offsets[i].queue.queue_id};
        struct slice topic = body.offsets[i].queue.topic, broker = body.offsets[i].queue.broker_name;
        if (topic.size > LEDGERMQ_TOPIC_MAX || broker.size > LEDGERMQ_NAME_MAX) {
            rv = error_set(error, ERROR_DAMAGED, "a name is longer than %d bytes", LEDGERMQ_TOPIC_MAX);
            break;
        }
        if (topic.size > 0)
            memcpy(queue.topic, topic.data, topic.size);
        if (broker.size > 0)
            memcpy(queue.broker_name, broker.data, broker.size);
        if (!offset_store_update(store, &queue, body.offsets[i].offset, false))
            rv = error_set(error, ERROR_NO_MEMORY, "out of memory");
        else
            offset_store_find(store, &queue)->dirty = false;
    }
    reset_offset_body_close(&body);
    return rv;
}

int offset_store_open_file(struct offset_store *store, const char *directory, const char *client_id, const char *group,
                           struct error *error)
{
    struct buffer text;
    size_t size = strlen(directory) + strlen(client_id) + strlen(group) + sizeof "///offsets.json";
    store->file = malloc(size);
    if (store->file == NULL)
        return error_set(error, ERROR_NO_MEMORY, "out of memory");
    snprintf(store->file, size, "%s/%s/%s/offsets.json", directory, client_id, group);
    int rv = make_folders(store->file, error);
    if (rv != 0)
        return rv;
    int descriptor = open(store->file, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0 && errno == ENOENT)
        return 0;
    if (descriptor < 0)
        return error_set(error, ERROR_IO, "cannot open %s: %s", store->file, strerror(errno));
    buffer_init(&text, OFFSET_FILE_MAX);
    rv = read_all(descriptor, &text);
    if (rv != 0)
        error_set(error, rv, "cannot read %s: %s", store->file, rv == ERROR_IO ? strerror(errno) : error_text(rv));
    else if (text.size > 0)
        rv = take_file(store, buffer_slice(&text), error);
    if (rv == ERROR_DAMAGED)
        error_wrap(error, "%s holds no offsets; mend it, or remove it to begin where the consumer's options say",
                   store->file);
    close(descriptor);
    buffer_close(&text);
    return rv;
}

static bool write_all(int descriptor, struct slice bytes)
{
    while (bytes.size > 0) {
        ssize_t n = write(descriptor, bytes.data, bytes.size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        bytes.data += n;
        bytes.size -= (size_t)n;
    }
    return true;
}

int offset_store_save(struct offset_store *store, struct error *error)
{
    struct buffer text;
    struct offset_entry *entry;
    bool dirty = false;
    for (entry = store->entries; entry != NULL; entry = entry->hh.next)
        dirty = dirty || entry->dirty;
    if (!dirty || store->file == NULL)
        return 0;
    buffer_init(&text, OFFSET_FILE_MAX);
    reset_offset_body_begin(&text, RESET_OFFSET_MAP);
    for (entry = store->entries; entry != NULL; entry = entry->hh.next) {
        struct reset_offset offset = {message_queue_of(&entry->queue), entry->offset};
        reset_offset_body_add(&text, RESET_OFFSET_MAP, &offset);
    }
    reset_offset_body_end(&text, RESET_OFFSET_MAP);
    size_t size = strlen(store->file) + sizeof ".tmp";
    char *beside = text.failed ? NULL : malloc(size);
    int rv = ERROR_NO_MEMORY, descriptor = -1;
    if (beside == NULL) {
        error_set(error, rv, "no memory for the offsets");
        goto close_text;
    }
    snprintf(beside, size, "%s.tmp", store->file);
    descriptor = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    rv = descriptor >= 0 && write_all(descriptor, buffer_slice(&text)) ? 0 : ERROR_IO;
    if (descriptor >= 0 && close(descriptor) != 0)
        rv = ERROR_IO;
    if (rv == 0 && rename(beside, store->file) != 0)
        rv = ERROR_IO;
    if (rv != 0)
        error_set(error, rv, "cannot write %s: %s", store->file, strerror(errno));
    for (entry = store->entries; rv == 0 && entry != NULL; entry = entry->hh.next)
        entry->dirty = false;
    free(beside);
close_text:
    buffer_close(&text);
    return rv;
}
