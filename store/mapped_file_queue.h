/* A row of equal-sized files in one directory, named by their 20-digit start position, each mapped into memory.
 *
 * Follows org.apache.rocketmq.store.MappedFileQueue. Two ways of use: the ledger's data files are written with env_writev() and read
 * through a read-only mapping; consume queues and DLedger index files are written through a writable mapping.
 * A file of the wrong size makes open fail and nothing is deleted.
 */
#ifndef LEDGERMQ_STORE_MAPPED_FILE_QUEUE_H
#define LEDGERMQ_STORE_MAPPED_FILE_QUEUE_H

#include <limits.h>

#include "proto/error.h"
#include "store/env.h"
#include "store/mapped_file_pool.h"

struct mapped_file_queue;

struct mapped_file {
    struct env *env;
    uint64_t start;        /* position of its first byte */
    uint64_t size;         /* its queue's file_size */
    struct env_file *file; /* NULL for writable-mapped files: closed once mapped, so that open files stay bounded */
    uint8_t *map;          /* size bytes; NULL where it is not mapped now: see mapped_file_queue_map() */
    uint32_t pins;         /* readers that must not lose the mapping (answers not yet written) */
    bool dropped;          /* deleted while pinned: unmapped by the last unpin */
    bool used;             /* since its pool last looked */
    struct mapped_file_queue *queue; /* while it is one of its files */
    struct mapped_file_pool *pool;   /* NULL: in none */
    struct mapped_file *pool_next, *pool_previous;
};

struct mapped_file_queue {
    struct env *env;
    char *dir;
    uint64_t file_size;
    bool writable_map;
    struct mapped_file **files; /* by start, contiguous */
    size_t count;
    size_t capacity;
    int add_result; /* of the add that failed last: -errno */
    bool removed;   /* a file was removed and the directory has not been synced since */
    size_t unborn;  /* read-only maps: how many files of no bytes stand behind the last one */
    bool dir_dirty; /* writable maps: a file was added or removed and the directory is not synced yet */
    struct mapped_file_pool *pool;
    uint8_t **cached; /* the user's pointer into a mapping: set to NULL when one is unmapped */
};

/* Makes dir if missing (with writable maps: at the first add, so that an empty queue costs nothing) and maps what is there. ERROR_DAMAGED: a file of another size, a gap between files, a name that is no number
 * (other names are ignored). Writable maps: an empty file
 * is a creation that a power cut undid; it is removed with all behind it; a newest file that is too short gets zeros at its end. Read-only maps: newest files that
 * are empty, but for the very first one, are counted as unborn and left where they are. ERROR_IO with the errno's text. Nothing to close after a failure. */
int mapped_file_queue_open(struct mapped_file_queue *queue, struct env *env, const char *dir, uint64_t file_size, bool writable_map,
                           struct error *error);
/* Removes the unborn files: nothing was ever in them. Directory synced. ERROR_IO. */
int mapped_file_queue_remove_unborn(struct mapped_file_queue *queue, struct error *error);
void mapped_file_queue_close(struct mapped_file_queue *queue);

/* A page of one file at a time, read instead of mapped: of each of thousands of files a start looks at a page or two, and a mapping of it costs several
 * times as much. handle, size and result are zero before its first use. */
#define MAPPED_FILE_WINDOW_SIZE 4096u
struct mapped_file_window {
    struct env_file *handle; /* NULL: none is open */
    uint64_t start;          /* of the file that handle is of */
    uint64_t from;           /* where bytes lie in it */
    size_t size;
    int result; /* negative errno of the first read that failed */
    uint8_t bytes[MAPPED_FILE_WINDOW_SIZE];
};
/* Like mapped_file_queue_open() with writable maps, but files are mapped when mapped_file_queue_map() asks for it, and one between others that is missing, empty
 * or too short is completed with zeros. The newest stays open in the window. */
int mapped_file_queue_open_unmapped(struct mapped_file_queue *queue, struct env *env, const char *dir, uint64_t file_size,
                                    struct mapped_file_window *window, struct error *error);
/* size bytes at position when they lie in one file, else NULL: of the mapping if there is one, otherwise read, valid until the next peek. NULL with
 * window->result set: they cannot be read. */
const uint8_t *mapped_file_queue_peek(const struct mapped_file_queue *queue, struct mapped_file_window *window, uint64_t position, size_t size);
void mapped_file_window_close(struct mapped_file_window *window, struct env *env);

/* Writable maps: files may be unmapped while nobody uses them. cached may be NULL. The queue stays at its address from now on. */
void mapped_file_queue_use_pool(struct mapped_file_queue *queue, struct mapped_file_pool *pool, uint8_t **cached);
/* Makes sure that file->map is there, until control returns to the loop or another file is mapped; a pin keeps it longer. 0 or a negative errno. */
int mapped_file_queue_map(const struct mapped_file_queue *queue, struct mapped_file *file);

static inline uint64_t mapped_file_queue_begin(const struct mapped_file_queue *queue)
{
    return queue->count == 0 ? 0 : queue->files[0]->start;
}
/* End of the last file. */
static inline uint64_t mapped_file_queue_end(const struct mapped_file_queue *queue)
{
    return queue->count == 0 ? 0 : queue->files[queue->count - 1]->start + queue->file_size;
}
/* The file that holds position, NULL when there is none. O(1). */
struct mapped_file *mapped_file_queue_find(const struct mapped_file_queue *queue, uint64_t position);
/* size bytes at position when they lie in one file; else NULL. Mapped as by mapped_file_queue_map(). */
uint8_t *mapped_file_queue_at(const struct mapped_file_queue *queue, uint64_t position, size_t size);
/* Writable maps: makes the names of added and removed files durable, if there are any. Safe on a pool thread while nobody adds or removes. */
int mapped_file_queue_sync_dir(struct mapped_file_queue *queue);
/* Creates (full length, sparse, directory synced: with writable maps that is left to mapped_file_queue_sync_dir) and maps the file that holds position; it must be the next one, or the first of an empty queue. */
int mapped_file_queue_add(struct mapped_file_queue *queue, uint64_t position, struct mapped_file **file, struct error *error);

/* The same in parts, of which the two that wait for the disk may run on any thread. Not with writable maps. One that is given up has its handle closed and
 * its file removed by mapped_file_creation_drop(), between any two parts. */
struct mapped_file_creation {
    struct env *env;
    uint64_t start, size;
    char dir[PATH_MAX], path[PATH_MAX], unfinished[PATH_MAX];
    struct env_file *handle; /* NULL: it is not there, or has been adopted */
    bool durable; /* _make syncs it */
    bool named;
};
/* 0 or -ENAMETOOLONG. */
int mapped_file_creation_begin(struct mapped_file_creation *creation, const struct mapped_file_queue *queue, uint64_t position);
/* The three return 0 or a negative errno. _make: any thread; a file of its full length under another name, durable. _name: it gets its own. _settle: any
 * thread; the name is durable. */
int mapped_file_creation_make(struct mapped_file_creation *creation);
int mapped_file_creation_name(struct mapped_file_creation *creation);
int mapped_file_creation_settle(struct mapped_file_creation *creation);
/* Maps it as the last one, which it must be. */
int mapped_file_queue_adopt(struct mapped_file_queue *queue, struct mapped_file_creation *creation, struct error *error);
/* 0 or a negative errno: it could not be removed. */
int mapped_file_creation_drop(struct mapped_file_creation *creation);

/* Reserves disk blocks for size bytes at position, which lie in that file, so that a write through the mapping cannot meet a full disk (it would
 * raise SIGBUS). 0 or a negative errno. */
int mapped_file_queue_reserve(struct mapped_file_queue *queue, struct mapped_file *file, uint64_t position, uint64_t size);
/* Removes all files that begin at or behind position (the file that holds position stays). Directory synced. */
int mapped_file_queue_cut(struct mapped_file_queue *queue, uint64_t position, struct error *error);
/* Removes whole files that end at or before position, never the last one. One whose name is gone already is only forgotten: nothing waits for the disk then. */
int mapped_file_queue_trim(struct mapped_file_queue *queue, uint64_t position, struct error *error);
/* Removes all files and the directory. */
int mapped_file_queue_destroy(struct mapped_file_queue *queue, struct error *error);

/* It must be mapped. */
void mapped_file_pin(struct mapped_file *file);
/* Its queue may be gone by then. */
void mapped_file_unpin(struct mapped_file *file);

/* "00000000001073741824" */
void mapped_file_name(uint64_t start, char out[21]);

#endif
