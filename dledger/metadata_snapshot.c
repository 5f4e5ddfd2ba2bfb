#include "dledger/metadata_snapshot.h"

#include <errno.h>
#include <stdio.h>

#include "proto/ledger_entry.h"
#include "store/format_version.h"

#define MAGIC 0x4C4D5153u /* "LMQS" */
#define HEADER_SIZE 28u
#define BODY_MAX (1u << 30)

static const char *const names[2] = {"metadata.0", "metadata.1"};

int metadata_snapshot_begin(struct buffer *file, int64_t index)
{
    buffer_append_u32(file, MAGIC);
    buffer_append_u32(file, METADATA_SNAPSHOT_VERSION);
    buffer_append_u64(file, (uint64_t)index);
    buffer_append_u64(file, 0);
    buffer_append_u32(file, 0);
    return file->failed ? ERROR_NO_MEMORY : 0;
}

static uint32_t file_crc(const uint8_t *file, size_t body_size)
{
    return crc32c(crc32c(0, file, 24), file + HEADER_SIZE, body_size);
}

int metadata_snapshot_end(struct buffer *file)
{
    if (file->failed || file->size - HEADER_SIZE > BODY_MAX)
        return ERROR_NO_MEMORY;
    store_u64(file->data + 16, file->size - HEADER_SIZE);
    store_u32(file->data + 24, file_crc(file->data, file->size - HEADER_SIZE));
    return 0;
}

bool metadata_snapshot_is_good(struct slice file, int64_t index)
{
    return file.size >= HEADER_SIZE && load_u32(file.data) == MAGIC && load_u32(file.data + 4) == METADATA_SNAPSHOT_VERSION &&
           (int64_t)load_u64(file.data + 8) == index && load_u64(file.data + 16) == file.size - HEADER_SIZE &&
           load_u32(file.data + 24) == file_crc(file.data, file.size - HEADER_SIZE);
}

/* Index of a good file, -1 when it is missing, bad or of another version, which *version tells (0: missing or bad). The body is appended to `body` when it is not NULL. */
static int load_file(struct env *env, const char *path, int64_t *index, uint32_t *version, struct buffer *body)
{
    struct env_file *handle;
    uint8_t header[HEADER_SIZE];
    struct buffer content;
    uint64_t size;
    int rv = env_open(env, path, ENV_READ, &handle);

    *index = -1;
    *version = 0;
    if (rv == -ENOENT)
        return 0;
    if (rv != 0)
        return rv;
    buffer_init(&content, 0);
    rv = env->ops->size(env, handle, &size);
    if (rv == 0 && size >= HEADER_SIZE && size <= HEADER_SIZE + (uint64_t)BODY_MAX &&
        env_read(env, handle, header, sizeof header, 0) == (ssize_t)sizeof header && load_u32(header) == MAGIC &&
        load_u64(header + 16) <= size - HEADER_SIZE) {
        size = HEADER_SIZE + load_u64(header + 16);
        if (buffer_reserve(&content, size) == NULL)
            rv = -ENOMEM;
        else if (env_read(env, handle, content.data, size, 0) == (ssize_t)size &&
                 file_crc(content.data, size - HEADER_SIZE) == load_u32(header + 24)) {
            *version = load_u32(header + 4);
        }
        if (rv == 0 && *version == METADATA_SNAPSHOT_VERSION) {
            *index = (int64_t)load_u64(header + 8);
            if (body != NULL) {
                buffer_append(body, content.data + HEADER_SIZE, size - HEADER_SIZE);
                rv = env_sync(env, handle); /* its writer may have died before it could: from now on the log behind it may go */
            }
        }
    }
    buffer_close(&content);
    env_close(env, handle);
    return rv;
}

/* Indexes of both files, -1 for one that is missing or bad, or that the disk does not give. */
static void read_both(struct env *env, const char *dir, int64_t found[2])
{
    char path[512];
    uint32_t version;

    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        if (load_file(env, path, &found[i], &version, NULL) != 0)
            found[i] = -1;
    }
}

void metadata_snapshot_path(struct env *env, const char *dir, int64_t current_index, char *out, size_t size)
{
    int64_t found[2];

    read_both(env, dir, found);
    snprintf(out, size, "%s/%s", dir, names[found[0] >= 0 && (found[1] < 0 || found[0] == current_index)]);
}

bool metadata_snapshot_both_reach(struct env *env, const char *dir, int64_t index)
{
    int64_t found[2];

    read_both(env, dir, found);
    return found[0] >= index && found[1] >= index;
}

int metadata_snapshot_write(struct env *env, const char *path, struct slice file, struct error *error)
{
    struct env_file *handle;
    int rv = env_open(env, path, ENV_WRITE | ENV_CREATE, &handle);

    if (rv == 0) {
        rv = env_write(env, handle, file.data, file.size, 0);
        if (rv >= 0)
            rv = env->ops->truncate(env, handle, file.size);
        if (rv == 0)
            rv = env_sync(env, handle);
        env_close(env, handle);
    }
    /* Its name too: the checkpoint that is saved next speaks of it. */
    if (rv == 0)
        rv = env_sync_parent(env, path);
    return rv == 0 ? 0 : error_set(error, ERROR_IO, "%s: %s", path, strerror(-rv));
}

int metadata_snapshot_forget(struct env *env, const char *dir, int64_t index_max, struct error *error)
{
    bool removed = false;
    int rv = 0;

    for (int i = 0; i < 2 && rv == 0; i++) {
        char path[512];
        int64_t index;
        uint32_t version;
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        rv = load_file(env, path, &index, &version, NULL);
        if (rv == 0 && index > index_max) {
            rv = env->ops->unlink(env, path);
            removed = true;
        }
    }
    if (rv == 0 && removed)
        rv = env->ops->sync_dir(env, dir);
    return rv == 0 ? 0 : error_set(error, ERROR_IO, "remove metadata snapshots in %s: %s", dir, strerror(-rv));
}

int metadata_snapshot_load(struct env *env, const char *dir, int64_t index_max, struct buffer *body, int64_t *index, struct error *error)
{
    char path[2][512];
    int64_t found[2];
    uint32_t version;
    int best = -1;

    *index = -1;
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/%s", dir, names[i]);
        int rv = load_file(env, path[i], &found[i], &version, NULL);
        if (rv != 0)
            return error_set(error, ERROR_IO, "%s: %s", path[i], strerror(-rv));
        if (version > METADATA_SNAPSHOT_VERSION)
            return format_version_unknown(error, path[i], version, METADATA_SNAPSHOT_VERSION);
        if (found[i] >= 0 && found[i] <= index_max && (best < 0 || found[i] > found[best]))
            best = i;
    }
    if (best < 0)
        return 0;
    if (load_file(env, path[best], index, &version, body) != 0)
        return error_set(error, ERROR_IO, "%s cannot be read again", path[best]);
    return 0;
}
