#include "store/index_service.h"

#include "store/log_sink.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NAME_DIGITS 17
#define RETRY_US (10u * 1000 * 1000)

struct found {
    char (*names)[NAME_DIGITS + 1];
    size_t count;
    size_t capacity;
    char (*left_over)[NAME_DIGITS + sizeof ".rebuild.new"];
    size_t left_over_count;
};

static int each_name(void *argument, const char *name, bool is_dir)
{
    struct found *found = argument;
    size_t size = strlen(name);
    size_t digits = strspn(name, "0123456789");
    if (is_dir || digits != NAME_DIGITS)
        return 0;
    const char *suffix = name + NAME_DIGITS;
    if (strcmp(suffix, ".new") == 0 || strcmp(suffix, INDEX_REBUILD_SUFFIX) == 0 || strcmp(suffix, INDEX_REBUILD_SUFFIX ".new") == 0) {
        void *grown = realloc(found->left_over, (found->left_over_count + 1) * sizeof found->left_over[0]);
        if (grown == NULL)
            return -ENOMEM;
        found->left_over = grown;
        memcpy(found->left_over[found->left_over_count++], name, size + 1);
        return 0;
    }
    if (size != NAME_DIGITS)
        return 0;
    if (found->count == INDEX_FILES_MAX)
        return -EFBIG;
    void *grown = realloc(found->names, (found->count + 1) * sizeof found->names[0]);
    if (grown == NULL)
        return -ENOMEM;
    found->names = grown;
    memcpy(found->names[found->count++], name, size + 1);
    return 0;
}

static int by_begin(const void *a, const void *b)
{
    const struct index_file *x = *(struct index_file *const *)a;
    const struct index_file *y = *(struct index_file *const *)b;
    if (x->begin_physical_offset != y->begin_physical_offset)
        return x->begin_physical_offset < y->begin_physical_offset ? -1 : 1;
    /* The keys of one record may fill a file and go on in the next. */
    if (x->end_physical_offset != y->end_physical_offset)
        return x->end_physical_offset < y->end_physical_offset ? -1 : 1;
    return strcmp(x->path, y->path);
}

static int size_of(struct env *env, const char *path, uint64_t *size)
{
    struct env_file *handle;
    int rv = env_open(env, path, ENV_READ, &handle);
    if (rv != 0)
        return rv;
    rv = env->ops->size(env, handle, size);
    env_close(env, handle);
    return rv;
}

/* A size that files have with another number of slots or of entries. */
static bool other_setting(const struct index_service *service, uint64_t size)
{
    uint64_t slots = INDEX_HEADER_SIZE + (uint64_t)service->slots * INDEX_SLOT_SIZE, entries = (uint64_t)service->entries * INDEX_ENTRY_SIZE;
    return (size > slots && (size - slots) % INDEX_ENTRY_SIZE == 0) ||
           (size > INDEX_HEADER_SIZE + entries && (size - INDEX_HEADER_SIZE - entries) % INDEX_SLOT_SIZE == 0);
}

/* A file that has lost its end, or whatever else gave it a length that no file has, goes: the scrub makes it anew. Empty is one that was made right before a
 * power cut which kept the name and lost the length. When all files have the length of other settings they are not damaged. */
static int remove_broken(struct index_service *service, struct found *found, struct error *error)
{
    uint64_t right = index_file_size(service->slots, service->entries), size;
    bool all_other = true;
    char path[PATH_MAX];
    for (int look = 0; look < 2; look++) {
        for (size_t i = 0; i < found->count; i++) {
            if (snprintf(path, sizeof path, "%s/%s", service->dir, found->names[i]) >= (int)sizeof path)
                return error_set(error, ERROR_IO, "%s: name too long", service->dir);
            int rv = size_of(service->env, path, &size);
            if (rv != 0)
                return error_set(error, ERROR_IO, "open %s: %s", path, strerror(-rv));
            if (look == 0) {
                all_other = all_other && (size == 0 || (size != right && other_setting(service, size)));
                continue;
            }
            if (size == right || (size != 0 && all_other))
                continue;
            if (size != 0)
                LOG_ERROR("index file %s has %llu bytes, not %llu: it is removed, and made anew from the log", path, (unsigned long long)size,
                          (unsigned long long)right);
            rv = service->env->ops->unlink(service->env, path);
            if (rv != 0)
                return error_set(error, ERROR_IO, "remove %s: %s", path, strerror(-rv));
            found->count--;
            memmove(found->names + i, found->names + i + 1, (found->count - i) * sizeof found->names[0]);
            i--;
        }
    }
    return 0;
}

int index_service_open(struct index_service *service, struct env *env, const char *dir, uint32_t slots, uint32_t entries, struct error *error)
{
    struct found found = {0};
    char path[PATH_MAX];
    memset(service, 0, sizeof *service);
    service->env = env;
    service->slots = slots;
    service->entries = entries;
    service->dir = strdup(dir);
    if (service->dir == NULL)
        return error_set(error, ERROR_NO_MEMORY, "open %s: out of memory", dir);
    int code = 0;
    int rv = env->ops->list(env, dir, each_name, &found);
    service->was_missing = rv == -ENOENT;
    if (rv != 0 && !service->was_missing)
        code = error_set(error, ERROR_IO, "list %s: %s", dir, strerror(-rv));
    /* The directory that is missing tells this to the next start too, should this one die: index_service_recover() makes it. */
    for (size_t i = 0; code == 0 && i < found.left_over_count; i++) {
        if (snprintf(path, sizeof path, "%s/%s", dir, found.left_over[i]) < (int)sizeof path)
            env->ops->unlink(env, path);
    }
    if (code == 0)
        code = remove_broken(service, &found, error);
    for (size_t i = 0; code == 0 && i < found.count; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, found.names[i]);
        code = index_file_open(&service->files[service->count], env, path, slots, entries, error);
        if (code != 0)
            break;
        struct index_file *file = service->files[service->count];
        if (file->count > 1)
            service->count++;
        else
            code = index_file_remove(file, error); /* made, and never written to */
    }
    free(found.names);
    free(found.left_over);
    if (code != 0) {
        index_service_close(service);
        return code;
    }
    if (service->count > 1)
        qsort(service->files, service->count, sizeof service->files[0], by_begin);
    return 0;
}

void index_service_close(struct index_service *service)
{
    for (size_t i = 0; i < service->count; i++)
        index_file_close(service->files[i]);
    service->count = 0;
    /* A file that holds nothing says nothing to the next start. */
    if (service->spare != NULL)
        index_file_remove(service->spare, NULL);
    service->spare = NULL;
    free(service->dir);
    service->dir = NULL;
}

static struct index_file *newest(const struct index_service *service)
{
    return service->count == 0 ? NULL : service->files[service->count - 1];
}

int index_service_recover(struct index_service *service, int64_t physical_offset, int64_t log_min_offset,
                          int64_t (*time_of)(void *argument, int64_t physical_offset), void *argument, int64_t *resume, struct error *error)
{
    const bool all = physical_offset <= log_min_offset; /* that is retained is indexed anew */
    if (service->was_missing && log_min_offset < *resume)
        *resume = log_min_offset;
    if (service->was_missing && all) {
        int rv = service->env->ops->make_dir(service->env, service->dir);
        if (rv != 0)
            return error_set(error, ERROR_IO, "make %s: %s", service->dir, strerror(-rv));
    }
    for (size_t i = 0; i + 1 < service->count; i++)
        index_file_check_header(service->files[i], time_of, argument);
    while (service->count > 0) {
        struct index_file *file = newest(service);
        /* Without a first entry a file may carry the end of the one before as its begin: it is cut by the rules of a file, not dropped. */
        bool behind = file->count > 1 && file->begin_physical_offset >= physical_offset;
        if (!behind) {
            bool damaged;
            int64_t last;
            int rv = index_file_recover(file, physical_offset, time_of, argument, all, &damaged, &last, error);
            if (rv != 0)
                return rv;
            if (damaged) {
                /* The last record left may lack some of its keys, so it is indexed again too. */
                if (last < 0)
                    last = log_min_offset;
                LOG_ERROR("index file %s is damaged, records from %lld on are indexed again", file->path, (long long)last);
                if (last < *resume)
                    *resume = last;
                return 0;
            }
            if (file->count > 1)
                return 0;
        }
        int rv = index_file_remove(file, error);
        service->count--;
        if (rv != 0)
            return rv;
    }
    return 0;
}

/* "20240131235959999" of this place's clock; RocketMQ names files by local time. */
static void file_name(int64_t time_ms, char out[NAME_DIGITS + 1])
{
    struct tm tm;
    time_t seconds = (time_t)(time_ms / 1000);
    char text[64];
    localtime_r(&seconds, &tm);
    snprintf(text, sizeof text, "%04d%02d%02d%02d%02d%02d%03d", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min,
             tm.tm_sec, (int)(time_ms % 1000));
    memcpy(out, text, NAME_DIGITS);
    out[NAME_DIGITS] = '\0';
}

static int create_file(struct index_service *service, struct index_file **file)
{
    struct error error;
    char name[NAME_DIGITS + 1], path[PATH_MAX];
    struct env *env = service->env;
    if (service->retry_us != 0 && env_monotonic_us(env) < service->retry_us)
        return ERROR_IO;
    int64_t now = env_now_ms(env);
    int rv = ERROR_EXISTS;
    /* Two files of one millisecond happen in tests; a clock put back by an hour can meet an old name. */
    for (int i = 0; i < 1000 && rv == ERROR_EXISTS; i++) {
        file_name(now + i, name);
        if (snprintf(path, sizeof path, "%s/%s", service->dir, name) >= (int)sizeof path)
            rv = error_set(&error, ERROR_IO, "%s: name too long", service->dir);
        else if (service->promised == NULL || strcmp(path, service->promised) != 0)
            rv = index_file_create(file, env, path, service->slots, service->entries, &error);
    }
    if (rv == 0) {
        if (service->retry_us != 0)
            LOG_WARN("the key index goes on; %llu records were not indexed (remove %s and start again to index all)",
                     (unsigned long long)service->not_indexed, service->dir);
        service->retry_us = 0;
        return 0;
    }
    if (rv == ERROR_NO_SPACE)
        return rv;
    if (service->retry_us == 0)
        LOG_ERROR("no key index until it can be made again: %s", error.message);
    service->retry_us = env_monotonic_us(env) + RETRY_US;
    return ERROR_IO;
}

int index_service_reserve(struct index_service *service, uint32_t count)
{
    struct index_file *file = newest(service);
    int rv;
    if (file != NULL && !index_file_is_full(file)) {
        uint32_t left = file->entries - file->count;
        rv = index_file_reserve(file, count < left ? count : left);
        if (rv != 0 || count <= left)
            return rv;
        count -= left;
    }
    if (service->spare == NULL) {
        rv = create_file(service, &service->spare);
        if (rv != 0)
            return rv;
    }
    return index_file_reserve(service->spare, count);
}

static void drop_oldest(struct index_service *service)
{
    struct error error;
    LOG_WARN("index file %s goes: there are %u files", service->files[0]->path, INDEX_FILES_MAX);
    if (index_file_remove(service->files[0], &error) != 0)
        LOG_WARN("%s", error.message);
    service->count--;
    memmove(service->files, service->files + 1, service->count * sizeof service->files[0]);
}

void index_service_put(struct index_service *service, uint32_t key_hash, int64_t physical_offset, int64_t store_timestamp_ms)
{
    struct index_file *file = newest(service);
    if (file == NULL || index_file_is_full(file)) {
        assert(service->spare != NULL);
        if (service->count == INDEX_FILES_MAX)
            drop_oldest(service);
        if (file != NULL)
            index_file_inherit(service->spare, file);
        file = service->spare;
        service->spare = NULL;
        service->files[service->count++] = file;
    }
    index_file_put(file, key_hash, physical_offset, store_timestamp_ms);
}

int index_service_trim(struct index_service *service, int64_t physical_offset)
{
    size_t gone = 0;
    int rv = 0;
    while (gone + 1 < service->count && service->files[gone]->end_physical_offset < physical_offset) {
        struct error error;
        if (index_file_remove(service->files[gone], &error) != 0) {
            LOG_WARN("%s", error.message);
            rv = ERROR_IO;
        }
        gone++;
    }
    service->count -= gone;
    memmove(service->files, service->files + gone, service->count * sizeof service->files[0]);
    return rv;
}

bool index_service_take_over(struct index_service *service, struct index_file *file, struct index_file *instead_of)
{
    size_t at = 0;
    if (instead_of != NULL) {
        while (at < service->count && service->files[at] != instead_of)
            at++;
        if (at == service->count)
            return false;
        service->files[at] = file;
        index_file_drop(instead_of);
        return true;
    }
    while (at < service->count && service->files[at]->begin_physical_offset < file->end_physical_offset)
        at++;
    if (service->count == INDEX_FILES_MAX) {
        if (at == 0)
            return false;
        drop_oldest(service);
        at--;
    }
    memmove(service->files + at + 1, service->files + at, (service->count - at) * sizeof service->files[0]);
    service->files[at] = file;
    service->count++;
    return true;
}

void index_service_leave_out(struct index_service *service, struct index_file *file)
{
    struct error error;
    for (size_t i = 0; i < service->count; i++) {
        if (service->files[i] != file)
            continue;
        service->count--;
        memmove(service->files + i, service->files + i + 1, (service->count - i) * sizeof service->files[0]);
        if (index_file_remove(file, &error) != 0)
            LOG_WARN("%s", error.message);
        return;
    }
}

int index_service_rebuild_path(struct index_service *service, const struct index_file *instead_of, char path[PATH_MAX])
{
    char name[NAME_DIGITS + 1];
    int64_t now = env_now_ms(service->env);
    uint64_t size;
    for (int i = 0; i < 1000; i++) {
        file_name(now + i, name);
        int length = instead_of != NULL ? snprintf(path, PATH_MAX, "%s", instead_of->path) : snprintf(path, PATH_MAX, "%s/%s", service->dir, name);
        if (length + sizeof INDEX_REBUILD_SUFFIX >= PATH_MAX)
            return -ENAMETOOLONG;
        if (instead_of != NULL || size_of(service->env, path, &size) == -ENOENT)
            return 0;
    }
    return -EEXIST;
}
