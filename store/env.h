/* The seams: files, clocks, randomness, and the sync thread, reached through one table so that the simulator can stand in for all of them.
 *
 * env_real_init() gives the real ones. File errors come back as negative errno.
 */
#ifndef LEDGERMQ_STORE_ENV_H
#define LEDGERMQ_STORE_ENV_H

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct env_file; /* opaque */
struct env;

enum env_open_flag {
    ENV_READ = 0,
    ENV_WRITE = 1,  /* read and write */
    ENV_CREATE = 2, /* with ENV_WRITE: make it when missing */
    ENV_EXCLUSIVE = 4,
    ENV_LOCK = 8, /* take an exclusive advisory lock for the life of the file; -EWOULDBLOCK when another process has it */
};

struct env_ops {
    int (*open)(struct env *env, const char *path, unsigned flags, struct env_file **file);
    void (*close)(struct env *env, struct env_file *file);
    /* Whole count or a negative errno; a short write is completed or reported as -EIO/-ENOSPC. */
    int (*write)(struct env *env, struct env_file *file, const struct iovec *iov, int count, uint64_t offset);
    /* Bytes read (short only at end of file) or negative errno. */
    ssize_t (*read)(struct env *env, struct env_file *file, void *out, size_t size, uint64_t offset);
    /* May be NULL. Starts to bring a range into memory, for reads of it that follow. Of that file the kernel reads nothing ahead by itself from then on: its
     * windows grow to the disk's read_ahead_kb, which may be 8 MiB, and every sync waits behind one. */
    void (*prefetch)(struct env *env, struct env_file *file, uint64_t offset, uint64_t size);
    /* May be NULL. The pages that a range touches leave the page cache, but for dirty ones and those that a process has mapped. */
    void (*forget)(struct env *env, struct env_file *file, uint64_t offset, uint64_t size);
    int (*sync)(struct env *env, struct env_file *file); /* fdatasync */
    int (*size)(struct env *env, struct env_file *file, uint64_t *size);
    int (*truncate)(struct env *env, struct env_file *file, uint64_t size);
    /* Reserves disk blocks without changing what is read (zeros in new space); extends the size if needed. */
    int (*allocate)(struct env *env, struct env_file *file, uint64_t offset, uint64_t size);
    /* MAP_SHARED. NULL + *error_number on failure. Stays valid after close of the file. */
    void *(*map)(struct env *env, struct env_file *file, size_t size, bool writable, int *error_number);
    void (*unmap)(struct env *env, void *address, size_t size);
    int (*sync_map)(struct env *env, void *address, size_t size); /* msync(MS_SYNC) */
    /* Both may be NULL: everything is in memory. True when touching the bytes of a mapping does not wait for the disk; and brings them into memory. */
    bool (*resident)(struct env *env, void *address, size_t size);
    void (*populate)(struct env *env, void *address, size_t size);
    /* May be NULL. The process lets go of the pages of a mapping; they stay in the page cache, and nothing is lost. */
    void (*let_go)(struct env *env, void *address, size_t size);
    int (*rename)(struct env *env, const char *from, const char *to);
    int (*unlink)(struct env *env, const char *path);
    int (*make_dir)(struct env *env, const char *path); /* like mkdir -p; existing is fine */
    int (*remove_dir)(struct env *env, const char *path); /* must be empty */
    int (*sync_dir)(struct env *env, const char *path);
    /* May be NULL. Makes everything on the file system of path durable, mappings included: cheaper than one sync each when very many files are dirty. */
    int (*sync_file_system)(struct env *env, const char *path);
    /* Calls `each` with every name but . and .. (order undefined); stops when it returns non-zero and returns that. */
    int (*list)(struct env *env, const char *path, int (*each)(void *argument, const char *name, bool is_dir), void *argument);
    /* Bytes free to us, and these with those in use, on the file system of path; what is kept for root counts as neither, as in df. */
    int (*space)(struct env *env, const char *path, uint64_t *free_bytes, uint64_t *total_bytes);

    int64_t (*now_ms)(struct env *env);       /* wall clock, Unix milliseconds */
    uint64_t (*monotonic_us)(struct env *env); /* never goes backwards */
    uint64_t (*random)(struct env *env);
    /* Identity of this boot of the machine (a hash of /proc/sys/kernel/random/boot_id). */
    uint64_t (*boot_id)(struct env *env);
};

struct env {
    const struct env_ops *ops;
    void *context;
};

void env_real_init(struct env *env);

/* Thin callers, so that users write env_open(env, ...). */
static inline int env_open(struct env *env, const char *path, unsigned flags, struct env_file **file)
{
    return env->ops->open(env, path, flags, file);
}
static inline void env_close(struct env *env, struct env_file *file)
{
    env->ops->close(env, file);
}
static inline int env_write(struct env *env, struct env_file *file, const void *data, size_t size, uint64_t offset)
{
    struct iovec iov = {(void *)(uintptr_t)data, size};
    return env->ops->write(env, file, &iov, 1, offset);
}
static inline int env_writev(struct env *env, struct env_file *file, const struct iovec *iov, int count, uint64_t offset)
{
    return env->ops->write(env, file, iov, count, offset);
}
static inline ssize_t env_read(struct env *env, struct env_file *file, void *out, size_t size, uint64_t offset)
{
    return env->ops->read(env, file, out, size, offset);
}
static inline void env_prefetch(struct env *env, struct env_file *file, uint64_t offset, uint64_t size)
{
    if (env->ops->prefetch != NULL)
        env->ops->prefetch(env, file, offset, size);
}
static inline int env_sync(struct env *env, struct env_file *file)
{
    return env->ops->sync(env, file);
}
static inline int64_t env_now_ms(struct env *env)
{
    return env->ops->now_ms(env);
}
static inline uint64_t env_monotonic_us(struct env *env)
{
    return env->ops->monotonic_us(env);
}
static inline uint64_t env_random(struct env *env)
{
    return env->ops->random(env);
}

/* The directory that a path is in, "." when it names none. 0 or -ENAMETOOLONG. */
int env_parent(const char *path, char dir[PATH_MAX]);
/* Makes the name of a file durable: syncs the directory that it is in. */
int env_sync_parent(struct env *env, const char *path);

/* The process lacks memory or descriptors: no fault of a file, and over when it has some again. */
static inline bool env_is_short(int rv)
{
    return rv == -ENOMEM || rv == -EMFILE || rv == -ENFILE;
}

#endif
