#include "store/mapped_file_queue.h"

#include "store/log_sink.h"
#include "store/seeded_bug.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_DIGITS 20
/* What is being created, by the loop and by a job: a file that the loop needs at once must not wait for a job that was called off. */
#define NEW_SUFFIX ".new"
#define AHEAD_SUFFIX ".add"
/* Files of one queue: 2^20 files of 6 MB are 314 billion messages. */
#define FILES_MAX (1u << 20)
#define MISSING_MAX 4096u

void mapped_file_name(uint64_t start, char out[21])
{
    for (int i = NAME_DIGITS - 1; i >= 0; i--) {
        out[i] = (char)('0' + start % 10);
        start /= 10;
    }
    out[NAME_DIGITS] = '\0';
}

static int file_path(const struct mapped_file_queue *queue, uint64_t start, const char *suffix, char path[PATH_MAX])
{
    size_t dir_size = strlen(queue->dir), suffix_size = strlen(suffix);
    if (dir_size + 1 + NAME_DIGITS + suffix_size >= PATH_MAX)
        return -ENAMETOOLONG;
    memcpy(path, queue->dir, dir_size);
    path[dir_size] = '/';
    mapped_file_name(start, path + dir_size + 1);
    memcpy(path + dir_size + 1 + NAME_DIGITS, suffix, suffix_size + 1);
    return 0;
}

static int io_error(struct error *error, int rv, const char *what, const char *path)
{
    int code = rv == -ENOSPC || rv == -EDQUOT ? ERROR_NO_SPACE : env_is_short(rv) ? ERROR_NO_MEMORY : ERROR_IO;
    return error_set(error, code, "%s %s: %s", what, path, strerror(-rv));
}

static int add_failed(struct mapped_file_queue *queue, struct error *error, int rv, const char *what, const char *path)
{
    queue->add_result = rv;
    return io_error(error, rv, what, path);
}

static int grow(struct mapped_file_queue *queue)
{
    if (queue->count < queue->capacity)
        return 0;
    size_t capacity = queue->capacity == 0 ? 2 : queue->capacity * 2;
    struct mapped_file **files = realloc(queue->files, capacity * sizeof *files);
    if (files == NULL)
        return -ENOMEM;
    queue->files = files;
    queue->capacity = capacity;
    return 0;
}

static struct mapped_file *file_new(struct mapped_file_queue *queue, uint64_t start)
{
    struct mapped_file *file = calloc(1, sizeof *file);
    if (file == NULL)
        return NULL;
    file->env = queue->env;
    file->start = start;
    file->size = queue->file_size;
    file->queue = queue;
    return file;
}

static void release(struct mapped_file *file)
{
    mapped_file_pool_remove(file);
    if (file->map != NULL)
        file->env->ops->unmap(file->env, file->map, file->size);
    if (file->file != NULL)
        env_close(file->env, file->file);
    free(file);
}

/* Takes `handle` in any case. */
static int map_file(struct mapped_file_queue *queue, uint64_t start, struct env_file *handle, struct mapped_file **out)
{
    int error_number = ENOMEM;
    struct mapped_file *file = file_new(queue, start);
    if (file == NULL)
        goto fail;
    file->map = queue->env->ops->map(queue->env, handle, queue->file_size, queue->writable_map, &error_number);
    if (file->map == NULL)
        goto fail;
    if (queue->writable_map)
        env_close(queue->env, handle);
    else
        file->file = handle;
    if (queue->pool != NULL)
        mapped_file_pool_add(queue->pool, file);
    *out = file;
    return 0;

fail:
    free(file);
    env_close(queue->env, handle);
    return -error_number;
}

static void close_all(struct mapped_file_queue *queue)
{
    for (size_t i = 0; i < queue->count; i++)
        release(queue->files[i]);
    free(queue->files);
    free(queue->dir);
    memset(queue, 0, sizeof *queue);
}

struct names {
    uint64_t *starts;
    size_t count;
    size_t capacity;
    bool left_over; /* a file that was being created when the process died */
    char strange[NAME_MAX + 1]; /* 20 characters that are no number */
    char unfinished[NAME_DIGITS + sizeof NEW_SUFFIX];
};

static bool number_of(const char *name, uint64_t *value)
{
    uint64_t v = 0;
    for (int i = 0; i < NAME_DIGITS; i++) {
        if (name[i] < '0' || name[i] > '9')
            return false;
        unsigned digit = (unsigned)(name[i] - '0');
        if (v > (UINT64_MAX - digit) / 10)
            return false;
        v = v * 10 + digit;
    }
    *value = v;
    return true;
}

static int each_name(void *argument, const char *name, bool is_dir)
{
    struct names *names = argument;
    size_t size = strlen(name);
    uint64_t start;
    if (is_dir || size < NAME_DIGITS)
        return 0;
    if ((strcmp(name + NAME_DIGITS, NEW_SUFFIX) == 0 || strcmp(name + NAME_DIGITS, AHEAD_SUFFIX) == 0) && number_of(name, &start)) {
        memcpy(names->unfinished, name, size + 1);
        names->left_over = true;
        return 0;
    }
    if (size != NAME_DIGITS)
        return 0;
    if (!number_of(name, &start)) {
        memcpy(names->strange, name, size + 1);
        return 0;
    }
    if (names->count == names->capacity) {
        size_t capacity = names->capacity == 0 ? 16 : names->capacity * 2;
        if (capacity > FILES_MAX)
            return -EFBIG;
        uint64_t *starts = realloc(names->starts, capacity * sizeof *starts);
        if (starts == NULL)
            return -ENOMEM;
        names->starts = starts;
        names->capacity = capacity;
    }
    names->starts[names->count++] = start;
    return 0;
}

static int by_start(const void *a, const void *b)
{
    uint64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return x < y ? -1 : x > y;
}

/* The file is there and is mapped when somebody uses it. Takes `handle` in any case. */
static int map_later(struct mapped_file_queue *queue, uint64_t start, bool last, struct env_file *handle, struct mapped_file_window *window,
                     struct mapped_file **out)
{
    struct mapped_file *file = file_new(queue, start);
    if (file == NULL || !last)
        env_close(queue->env, handle);
    if (file == NULL)
        return -ENOMEM;
    if (last) {
        window->handle = handle;
        window->start = start;
    }
    *out = file;
    return 0;
}

/* last: nothing lies behind it. *empty: the file has no bytes (writable maps only) and was not opened. window: NULL, or it is mapped later. */
static int open_one(struct mapped_file_queue *queue, uint64_t start, bool last, struct mapped_file_window *window, bool *empty,
                    struct error *error)
{
    char path[PATH_MAX];
    struct env_file *handle;
    uint64_t size;
    int rv = file_path(queue, start, "", path);
    if (rv == 0)
        rv = env_open(queue->env, path, ENV_WRITE, &handle);
    if (rv != 0)
        return io_error(error, rv, "open", path);
    rv = queue->env->ops->size(queue->env, handle, &size);
    if (rv != 0) {
        env_close(queue->env, handle);
        return io_error(error, rv, "size of", path);
    }
    /* Of a queue: one that others follow has lost what was in it. */
    *empty = size == 0 && queue->writable_map && (window == NULL || last);
    if (*empty) {
        env_close(queue->env, handle);
        return 0;
    }
    /* A file of what can be made again from the log has lost its tail: zeros say so, and the owner completes it. */
    if (size < queue->file_size && (last || window != NULL) && queue->writable_map) {
        LOG_WARN("%s has %llu of %llu bytes: its tail was cut off", path, (unsigned long long)size, (unsigned long long)queue->file_size);
        rv = queue->env->ops->truncate(queue->env, handle, queue->file_size);
        if (rv != 0) {
            env_close(queue->env, handle);
            return io_error(error, rv, "extend", path);
        }
        size = queue->file_size;
    }
    if (size != queue->file_size) {
        env_close(queue->env, handle);
        return error_set(error, ERROR_DAMAGED, "%s has %llu bytes, expected %llu: was the file size setting changed?", path,
                         (unsigned long long)size, (unsigned long long)queue->file_size);
    }
    struct mapped_file *file;
    rv = grow(queue);
    if (rv != 0) {
        env_close(queue->env, handle);
        return io_error(error, rv, "map", path);
    }
    rv = window != NULL ? map_later(queue, start, last, handle, window, &file) : map_file(queue, start, handle, &file);
    if (rv != 0)
        return io_error(error, rv, "map", path);
    queue->files[queue->count++] = file;
    return 0;
}

/* A file was made right before a power cut that kept the name and lost the length: nothing in it, nor in those behind it, was ever durable. */
static int remove_unborn(struct mapped_file_queue *queue, const struct names *names, size_t from, struct error *error)
{
    char path[PATH_MAX];
    for (size_t i = names->count; i-- > from;) {
        int rv = file_path(queue, names->starts[i], "", path);
        if (rv == 0)
            rv = queue->env->ops->unlink(queue->env, path);
        if (rv != 0 && rv != -ENOENT)
            return io_error(error, rv, "remove", path);
    }
    queue->dir_dirty = true;
    return 0;
}

/* How many of the newest files have no bytes; the very first one does not count. */
static int count_unborn(struct mapped_file_queue *queue, const struct names *names, struct error *error)
{
    for (queue->unborn = 0; queue->unborn + 1 < names->count; queue->unborn++) {
        char path[PATH_MAX];
        struct env_file *handle;
        uint64_t size = 0;
        int rv = file_path(queue, names->starts[names->count - 1 - queue->unborn], "", path);
        if (rv == 0)
            rv = env_open(queue->env, path, ENV_READ, &handle);
        if (rv == 0) {
            rv = queue->env->ops->size(queue->env, handle, &size);
            env_close(queue->env, handle);
        }
        if (rv != 0)
            return io_error(error, rv, "size of", path);
        if (size > 0)
            break;
    }
    return 0;
}

/* Files of a queue that others follow are gone: zeros in their place, which the owner knows to be no units. */
static int open_missing(struct mapped_file_queue *queue, uint64_t start, uint64_t stop, struct mapped_file_window *window, struct error *error)
{
    if ((stop - start) / queue->file_size > MISSING_MAX)
        return error_set(error, ERROR_DAMAGED, "%s: %llu files are missing in front of %020llu", queue->dir,
                         (unsigned long long)((stop - start) / queue->file_size), (unsigned long long)stop);
    for (; start < stop; start += queue->file_size) {
        char path[PATH_MAX];
        struct env_file *handle;
        bool empty = false;
        int rv = file_path(queue, start, "", path);
        if (rv == 0)
            rv = env_open(queue->env, path, ENV_WRITE | ENV_CREATE, &handle);
        if (rv != 0)
            return io_error(error, rv, "make", path);
        rv = queue->env->ops->truncate(queue->env, handle, queue->file_size);
        env_close(queue->env, handle);
        if (rv != 0)
            return io_error(error, rv, "extend", path);
        LOG_WARN("%s is missing: made again, empty, to be filled from the log", path);
        queue->dir_dirty = true;
        rv = open_one(queue, start, false, window, &empty, error);
        if (rv != 0)
            return rv;
    }
    return 0;
}

static int open_all(struct mapped_file_queue *queue, struct env *env, const char *dir, uint64_t file_size, bool writable_map,
                    struct mapped_file_window *window, struct error *error)
{
    assert(file_size > 0 && file_size <= SIZE_MAX / 2);
    memset(queue, 0, sizeof *queue);
    queue->env = env;
    queue->file_size = file_size;
    queue->writable_map = writable_map;
    queue->dir = strdup(dir);
    if (queue->dir == NULL)
        return error_set(error, ERROR_NO_MEMORY, "open %s: out of memory", dir);

    struct names names = {0};
    int code = 0;
    int rv = 0;
    if (!writable_map)
        rv = env->ops->make_dir(env, dir);
    if (rv == 0)
        rv = env->ops->list(env, dir, each_name, &names);
    if (rv == -ENOENT && writable_map)
        rv = 0;
    if (rv != 0) {
        code = io_error(error, rv, "list", dir);
        goto done;
    }
    if (names.strange[0] != '\0') {
        code = error_set(error, ERROR_DAMAGED, "%s/%s: the name is not a position", dir, names.strange);
        goto done;
    }
    if (names.count > 0)
        qsort(names.starts, names.count, sizeof names.starts[0], by_start);
    if (!writable_map)
        code = count_unborn(queue, &names, error);
    for (size_t i = 0; i < names.count && code == 0; i++) {
        uint64_t start = names.starts[i];
        bool empty = false;
        if (start % file_size != 0)
            code = error_set(error, ERROR_DAMAGED, "%s/%020llu does not begin at a multiple of %llu: was the file size setting changed?", dir,
                             (unsigned long long)start, (unsigned long long)file_size);
        else if (i > 0 && start - names.starts[i - 1] != file_size && window != NULL)
            code = open_missing(queue, names.starts[i - 1] + file_size, start, window, error);
        else if (i > 0 && start - names.starts[i - 1] != file_size)
            code = error_set(error, ERROR_DAMAGED, "%s: a file is missing between %020llu and %020llu", dir,
                             (unsigned long long)names.starts[i - 1], (unsigned long long)start);
        if (code == 0 && i + queue->unborn < names.count)
            code = open_one(queue, start, i + 1 == names.count, window, &empty, error);
        if (empty) {
            code = remove_unborn(queue, &names, i, error);
            break;
        }
    }
    if (code == 0 && names.left_over) {
        char path[PATH_MAX];
        if (snprintf(path, sizeof path, "%s/%s", dir, names.unfinished) < (int)sizeof path)
            env->ops->unlink(env, path);
    }

done:
    free(names.starts);
    if (code != 0)
        close_all(queue);
    return code;
}

int mapped_file_queue_open(struct mapped_file_queue *queue, struct env *env, const char *dir, uint64_t file_size, bool writable_map,
                           struct error *error)
{
    return open_all(queue, env, dir, file_size, writable_map, NULL, error);
}

int mapped_file_queue_open_unmapped(struct mapped_file_queue *queue, struct env *env, const char *dir, uint64_t file_size,
                                    struct mapped_file_window *window, struct error *error)
{
    assert(window->handle == NULL);
    int rv = open_all(queue, env, dir, file_size, true, window, error);
    if (rv != 0)
        mapped_file_window_close(window, env);
    return rv;
}

void mapped_file_window_close(struct mapped_file_window *window, struct env *env)
{
    if (window->handle != NULL)
        env_close(env, window->handle);
    window->handle = NULL;
    window->size = 0;
}

static int fill_window(const struct mapped_file_queue *queue, struct mapped_file_window *window, uint64_t start, uint64_t from, size_t size)
{
    if (window->handle != NULL && window->start != start)
        mapped_file_window_close(window, queue->env);
    if (window->handle == NULL) {
        char path[PATH_MAX];
        int rv = file_path(queue, start, "", path);
        if (rv == 0)
            rv = env_open(queue->env, path, ENV_READ, &window->handle);
        if (rv != 0) {
            window->handle = NULL;
            return rv;
        }
        window->start = start;
    }
    window->size = 0;
    ssize_t got = env_read(queue->env, window->handle, window->bytes, size, from);
    if (got < 0 || (size_t)got != size)
        return got < 0 ? (int)got : -EIO;
    window->from = from;
    window->size = size;
    return 0;
}

const uint8_t *mapped_file_queue_peek(const struct mapped_file_queue *queue, struct mapped_file_window *window, uint64_t position, size_t size)
{
    const struct mapped_file *file = mapped_file_queue_find(queue, position);
    assert(size <= MAPPED_FILE_WINDOW_SIZE);
    if (file == NULL || size > queue->file_size - (position - file->start))
        return NULL;
    uint64_t at = position - file->start;
    if (file->map != NULL)
        return file->map + at;
    if (window->handle == NULL || window->start != file->start || at < window->from || at + size > window->from + window->size) {
        /* One page: what lies behind it is mostly a hole, and the kernel would fill pages with zeros for it. */
        uint64_t from = at / MAPPED_FILE_WINDOW_SIZE * MAPPED_FILE_WINDOW_SIZE;
        uint64_t end = from + MAPPED_FILE_WINDOW_SIZE;
        if (at + size > end) {
            from = at;
            end = at + size;
        }
        if (end > queue->file_size)
            end = queue->file_size;
        int rv = fill_window(queue, window, file->start, from, (size_t)(end - from));
        if (rv != 0) {
            if (window->result == 0)
                window->result = rv;
            return NULL;
        }
    }
    return window->bytes + (at - window->from);
}

void mapped_file_queue_close(struct mapped_file_queue *queue)
{
    close_all(queue);
}

struct mapped_file *mapped_file_queue_find(const struct mapped_file_queue *queue, uint64_t position)
{
    if (queue->count == 0 || position < queue->files[0]->start)
        return NULL;
    /* The last one is wanted most, and a division costs more than all the rest. */
    struct mapped_file *last = queue->files[queue->count - 1];
    if (position >= last->start)
        return position - last->start < queue->file_size ? last : NULL;
    return queue->files[(position - queue->files[0]->start) / queue->file_size];
}

uint8_t *mapped_file_queue_at(const struct mapped_file_queue *queue, uint64_t position, size_t size)
{
    struct mapped_file *file = mapped_file_queue_find(queue, position);
    if (file == NULL)
        return NULL;
    uint64_t at = position - file->start;
    return size <= queue->file_size - at && mapped_file_queue_map(queue, file) == 0 ? file->map + at : NULL;
}

int mapped_file_queue_sync_dir(struct mapped_file_queue *queue)
{
    if (!queue->dir_dirty)
        return 0;
    int rv = queue->env->ops->sync_dir(queue->env, queue->dir);
    if (rv != 0)
        return rv;
    queue->dir_dirty = queue->removed = false;
    return 0;
}

void mapped_file_queue_use_pool(struct mapped_file_queue *queue, struct mapped_file_pool *pool, uint8_t **cached)
{
    assert(queue->writable_map);
    queue->pool = pool;
    queue->cached = cached;
    for (size_t i = 0; i < queue->count; i++) {
        if (queue->files[i]->map != NULL)
            mapped_file_pool_add(pool, queue->files[i]);
    }
}

static int map_again(const struct mapped_file_queue *queue, struct mapped_file *file)
{
    struct env *env = queue->env;
    char path[PATH_MAX];
    struct env_file *handle;
    int error_number = ENOMEM;
    int rv = file_path(queue, file->start, "", path);
    if (rv == 0)
        rv = env_open(env, path, ENV_WRITE, &handle);
    if (rv != 0)
        return rv;
    file->map = env->ops->map(env, handle, queue->file_size, true, &error_number);
    env_close(env, handle);
    if (file->map == NULL)
        return -error_number;
    if (queue->pool != NULL)
        mapped_file_pool_add(queue->pool, file);
    return 0;
}

int mapped_file_queue_map(const struct mapped_file_queue *queue, struct mapped_file *file)
{
    file->used = true;
    return file->map != NULL ? 0 : map_again(queue, file);
}

static int sync_names(struct env *env, const char *dir)
{
    return SEEDED_BUG(DIR_NOT_SYNCED) ? 0 : env->ops->sync_dir(env, dir);
}

/* Names appeared or went. */
static int dir_changed(struct mapped_file_queue *queue)
{
    if (queue->writable_map) {
        queue->dir_dirty = true;
        return 0;
    }
    int rv = sync_names(queue->env, queue->dir);
    if (rv == 0)
        queue->removed = false;
    return rv;
}

static int creation_begin(struct mapped_file_creation *creation, const struct mapped_file_queue *queue, uint64_t position, const char *suffix)
{
    creation->env = queue->env;
    creation->start = position - position % queue->file_size;
    creation->size = queue->file_size;
    creation->durable = !queue->writable_map;
    creation->handle = NULL;
    creation->named = false;
    int n = snprintf(creation->dir, sizeof creation->dir, "%s", queue->dir);
    int rv = n < 0 || n >= (int)sizeof creation->dir ? -ENAMETOOLONG : file_path(queue, creation->start, "", creation->path);
    return rv == 0 ? file_path(queue, creation->start, suffix, creation->unfinished) : rv;
}

int mapped_file_creation_begin(struct mapped_file_creation *creation, const struct mapped_file_queue *queue, uint64_t position)
{
    assert(!queue->writable_map);
    return creation_begin(creation, queue, position, AHEAD_SUFFIX);
}

/* The name appears only when the length is right: a crash in between must not leave a file that open refuses. */
int mapped_file_creation_make(struct mapped_file_creation *creation)
{
    struct env *env = creation->env;
    int rv = env_open(env, creation->unfinished, ENV_WRITE | ENV_CREATE, &creation->handle);
    if (rv != 0) {
        creation->handle = NULL;
        return rv;
    }
    rv = env->ops->truncate(env, creation->handle, creation->size);
    return rv == 0 && creation->durable ? env_sync(env, creation->handle) : rv;
}

int mapped_file_creation_name(struct mapped_file_creation *creation)
{
    int rv = creation->env->ops->rename(creation->env, creation->unfinished, creation->path);
    creation->named = rv == 0;
    return rv;
}

int mapped_file_creation_settle(struct mapped_file_creation *creation)
{
    return sync_names(creation->env, creation->dir);
}

int mapped_file_queue_adopt(struct mapped_file_queue *queue, struct mapped_file_creation *creation, struct error *error)
{
    struct mapped_file *file = NULL;
    assert(creation->named && creation->size == queue->file_size && (queue->count == 0 || creation->start == mapped_file_queue_end(queue)));
    int rv = grow(queue);
    if (rv == 0) {
        struct env_file *handle = creation->handle;
        creation->handle = NULL;
        rv = map_file(queue, creation->start, handle, &file);
    }
    if (rv != 0)
        return add_failed(queue, error, rv, "map", creation->path);
    queue->files[queue->count++] = file;
    return 0;
}

int mapped_file_creation_drop(struct mapped_file_creation *creation)
{
    if (creation->handle != NULL)
        env_close(creation->env, creation->handle);
    creation->handle = NULL;
    int rv = creation->env->ops->unlink(creation->env, creation->named ? creation->path : creation->unfinished);
    creation->named = false;
    return rv == -ENOENT ? 0 : rv;
}

int mapped_file_queue_add(struct mapped_file_queue *queue, uint64_t position, struct mapped_file **out, struct error *error)
{
    struct mapped_file_creation creation;
    int rv = creation_begin(&creation, queue, position, NEW_SUFFIX);
    if (rv == 0 && queue->count == 0 && queue->writable_map)
        rv = queue->env->ops->make_dir(queue->env, queue->dir);
    if (rv != 0)
        return add_failed(queue, error, rv, "create", queue->dir);
    rv = mapped_file_creation_make(&creation);
    if (rv == 0)
        rv = mapped_file_creation_name(&creation);
    if (rv == 0)
        rv = dir_changed(queue);
    int code = rv == 0 ? mapped_file_queue_adopt(queue, &creation, error) : add_failed(queue, error, rv, "create", creation.path);
    if (code != 0)
        mapped_file_creation_drop(&creation);
    else if (out != NULL)
        *out = queue->files[queue->count - 1];
    return code;
}

int mapped_file_queue_reserve(struct mapped_file_queue *queue, struct mapped_file *file, uint64_t position, uint64_t size)
{
    struct env *env = queue->env;
    assert(position >= file->start && position - file->start <= queue->file_size && size <= queue->file_size - (position - file->start));
    if (file->file != NULL)
        return env->ops->allocate(env, file->file, position - file->start, size);
    char path[PATH_MAX];
    struct env_file *handle;
    int rv = file_path(queue, file->start, "", path);
    if (rv == 0)
        rv = env_open(env, path, ENV_WRITE, &handle);
    if (rv != 0)
        return rv;
    rv = env->ops->allocate(env, handle, position - file->start, size);
    env_close(env, handle);
    return rv;
}

/* Unlinks the file; its mapping goes now, or with the last pin. *removed: set when there was one. */
static int drop(struct mapped_file_queue *queue, struct mapped_file *file, bool *removed, struct error *error)
{
    char path[PATH_MAX];
    int rv = file_path(queue, file->start, "", path);
    if (rv == 0)
        rv = queue->env->ops->unlink(queue->env, path);
    if (rv != 0 && rv != -ENOENT)
        return io_error(error, rv, "remove", path);
    *removed = *removed || rv == 0;
    file->dropped = true;
    mapped_file_pool_remove(file); /* the queue may go before the last pin does */
    if (file->pins == 0)
        release(file);
    return 0;
}

/* The first so many files are dropped. */
static void forget_oldest(struct mapped_file_queue *queue, size_t gone)
{
    queue->count -= gone;
    if (gone > 0 && queue->count > 0)
        memmove(queue->files, queue->files + gone, queue->count * sizeof queue->files[0]);
}

static int finish_removal(struct mapped_file_queue *queue, bool removed, struct error *error)
{
    int rv = removed ? dir_changed(queue) : 0;
    return rv == 0 ? 0 : io_error(error, rv, "sync", queue->dir);
}

int mapped_file_queue_cut(struct mapped_file_queue *queue, uint64_t position, struct error *error)
{
    bool removed = false;
    /* From the back, so that what a crash leaves is a row without a gap. */
    while (queue->count > 0 && queue->files[queue->count - 1]->start >= position) {
        int rv = drop(queue, queue->files[queue->count - 1], &removed, error);
        if (rv != 0)
            return rv;
        queue->count--;
    }
    return finish_removal(queue, removed, error);
}

int mapped_file_queue_remove_unborn(struct mapped_file_queue *queue, struct error *error)
{
    bool removed = queue->unborn > 0;
    for (; queue->unborn > 0; queue->unborn--) {
        char path[PATH_MAX];
        int rv = file_path(queue, mapped_file_queue_end(queue) + (queue->unborn - 1) * queue->file_size, "", path);
        if (rv == 0)
            rv = queue->env->ops->unlink(queue->env, path);
        if (rv != 0)
            return io_error(error, rv, "remove", path);
        LOG_WARN("%s had no bytes, and was removed", path);
    }
    return finish_removal(queue, removed, error);
}

int mapped_file_queue_trim(struct mapped_file_queue *queue, uint64_t position, struct error *error)
{
    size_t gone = 0;
    bool removed = false;
    int rv = 0;
    while (gone + 1 < queue->count && queue->files[gone]->start + queue->file_size <= position) {
        /* One name at a time: a power cut may take removals back in any order, and must not leave a gap. */
        if (queue->removed) {
            int synced = queue->env->ops->sync_dir(queue->env, queue->dir);
            if (synced != 0) {
                rv = io_error(error, synced, "sync", queue->dir);
                break;
            }
            queue->removed = false;
        }
        rv = drop(queue, queue->files[gone], &queue->removed, error);
        if (rv != 0)
            break;
        removed = removed || queue->removed;
        gone++;
    }
    forget_oldest(queue, gone);
    int synced = finish_removal(queue, removed, rv == 0 ? error : NULL);
    return rv != 0 ? rv : synced;
}

int mapped_file_queue_destroy(struct mapped_file_queue *queue, struct error *error)
{
    /* The oldest first: what is left when the process dies on the way must reach as far as it did, or what comes next does not fit behind it. */
    size_t gone = 0;
    bool removed = false; /* the directory goes as well */
    int rv = 0;
    while (rv == 0 && gone < queue->count) {
        rv = drop(queue, queue->files[gone], &removed, error);
        gone += rv == 0;
    }
    forget_oldest(queue, gone);
    if (rv != 0)
        return rv;
    rv = queue->env->ops->remove_dir(queue->env, queue->dir);
    if (rv == -ENOTEMPTY || rv == -EEXIST) {
        LOG_WARN("%s holds files that are not ours and stays", queue->dir);
        rv = 0;
    }
    int code = rv == 0 || rv == -ENOENT ? 0 : io_error(error, rv, "remove", queue->dir);
    if (code == 0)
        close_all(queue);
    return code;
}

void mapped_file_pin(struct mapped_file *file)
{
    file->pins++;
}

void mapped_file_unpin(struct mapped_file *file)
{
    assert(file->pins > 0);
    file->pins--;
    if (file->pins == 0 && file->dropped)
        release(file);
}
