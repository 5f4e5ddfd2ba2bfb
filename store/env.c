/* The real files, clocks and chance behind struct env: plain POSIX calls, each restarted when a signal cuts it short. */
#include "store/env.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* More than any caller gathers at once is copied in rounds of this many parts. */
#define WRITE_PARTS_MAX 64

struct env_file {
    int fd;
    atomic_bool exact; /* the kernel was told to read nothing ahead */
};

static int real_open(struct env *env, const char *path, unsigned flags, struct env_file **out)
{
    (void)env;
    int mode = (flags & ENV_WRITE) != 0 ? O_RDWR : O_RDONLY;
    if ((flags & ENV_CREATE) != 0)
        mode |= O_CREAT;
    if ((flags & ENV_EXCLUSIVE) != 0)
        mode |= O_EXCL;
    struct env_file *file = malloc(sizeof *file);
    if (file == NULL)
        return -ENOMEM;
    atomic_init(&file->exact, false);
    do {
        file->fd = open(path, mode | O_CLOEXEC, 0644);
    } while (file->fd < 0 && errno == EINTR);
    if (file->fd < 0)
        goto fail;
    if ((flags & ENV_LOCK) != 0 && flock(file->fd, LOCK_EX | LOCK_NB) != 0)
        goto fail;
    *out = file;
    return 0;

fail:;
    int rv = -errno;
    if (file->fd >= 0)
        close(file->fd);
    free(file);
    return rv;
}

static void real_close(struct env *env, struct env_file *file)
{
    (void)env;
    if (file == NULL)
        return;
    close(file->fd);
    free(file);
}

/* Writes parts[0..count) whole; the parts are used up. */
static int write_parts(int fd, struct iovec *parts, int count, uint64_t *offset)
{
    int at = 0;
    while (at < count) {
        if (parts[at].iov_len == 0) {
            at++;
            continue;
        }
        ssize_t n = pwritev(fd, parts + at, count - at, (off_t)*offset);
        if (n < 0) {
            if (errno == EINTR)
                continue;
            return -errno;
        }
        /* The kernel writes what fits before it reports a full disk: the next round gets the reason, zero bytes is none. */
        if (n == 0)
            return -EIO;
        *offset += (uint64_t)n;
        size_t left = (size_t)n;
        while (left > 0) {
            size_t step = left < parts[at].iov_len ? left : parts[at].iov_len;
            parts[at].iov_base = (uint8_t *)parts[at].iov_base + step;
            parts[at].iov_len -= step;
            left -= step;
            if (parts[at].iov_len == 0)
                at++;
        }
    }
    return 0;
}

static int real_write(struct env *env, struct env_file *file, const struct iovec *iov, int count, uint64_t offset)
{
    (void)env;
    if (offset > INT64_MAX)
        return -EINVAL;
    struct iovec parts[WRITE_PARTS_MAX];
    for (int done = 0; done < count;) {
        int round = count - done < WRITE_PARTS_MAX ? count - done : WRITE_PARTS_MAX;
        memcpy(parts, iov + done, (size_t)round * sizeof parts[0]);
        int rv = write_parts(file->fd, parts, round, &offset);
        if (rv != 0)
            return rv;
        done += round;
    }
    return 0;
}

static ssize_t real_read(struct env *env, struct env_file *file, void *out, size_t size, uint64_t offset)
{
    (void)env;
    if (offset > INT64_MAX || size > SSIZE_MAX)
        return -EINVAL;
    size_t done = 0;
    while (done < size) {
        ssize_t n = pread(file->fd, (uint8_t *)out + done, size - done, (off_t)(offset + done));
        if (n < 0) {
            if (errno == EINTR)
                continue;
            return -errno;
        }
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

static size_t page_size(void)
{
    static _Atomic size_t known; /* the loop and the pool ask */
    size_t size = atomic_load_explicit(&known, memory_order_relaxed);
    if (size == 0) {
        size = (size_t)sysconf(_SC_PAGESIZE);
        atomic_store_explicit(&known, size, memory_order_relaxed);
    }
    return size;
}

static void real_prefetch(struct env *env, struct env_file *file, uint64_t offset, uint64_t size)
{
    (void)env;
    if (offset > INT64_MAX || size > INT64_MAX - offset || size == 0)
        return;
    if (!atomic_exchange(&file->exact, true))
        posix_fadvise(file->fd, 0, 0, POSIX_FADV_RANDOM);
    posix_fadvise(file->fd, (off_t)offset, (off_t)size, POSIX_FADV_WILLNEED);
}

static void real_forget(struct env *env, struct env_file *file, uint64_t offset, uint64_t size)
{
    (void)env;
    if (offset > INT64_MAX || size > INT64_MAX - offset || size == 0)
        return;
    uint64_t end = offset + size, page = page_size();
    /* The kernel keeps pages of which the range has a part only, and takes 0 for all of the file. */
    offset -= offset % page;
    end += (page - end % page) % page;
    posix_fadvise(file->fd, (off_t)offset, (off_t)(end - offset), POSIX_FADV_DONTNEED);
}

static int real_sync(struct env *env, struct env_file *file)
{
    (void)env;
    /* Not restarted on any error: after a failed fdatasync the kernel forgets the pages, a second success would be a lie. */
    return fdatasync(file->fd) == 0 ? 0 : -errno;
}

static int real_size(struct env *env, struct env_file *file, uint64_t *size)
{
    (void)env;
    struct stat st;
    if (fstat(file->fd, &st) != 0)
        return -errno;
    *size = (uint64_t)st.st_size;
    return 0;
}

static int real_truncate(struct env *env, struct env_file *file, uint64_t size)
{
    (void)env;
    if (size > INT64_MAX)
        return -EINVAL;
    int rv;
    do {
        rv = ftruncate(file->fd, (off_t)size);
    } while (rv != 0 && errno == EINTR);
    return rv == 0 ? 0 : -errno;
}

static int real_allocate(struct env *env, struct env_file *file, uint64_t offset, uint64_t size)
{
    (void)env;
    if (offset > INT64_MAX || size > INT64_MAX - offset)
        return -EINVAL;
    if (size == 0)
        return 0;
    int rv;
    /* glibc falls back to touching each block where the file system cannot reserve. */
    do {
        rv = posix_fallocate(file->fd, (off_t)offset, (off_t)size);
    } while (rv == EINTR);
    return -rv;
}

static void *real_map(struct env *env, struct env_file *file, size_t size, bool writable, int *error_number)
{
    (void)env;
    void *address = mmap(NULL, size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, file->fd, 0);
    if (address == MAP_FAILED) {
        if (error_number != NULL)
            *error_number = errno;
        return NULL;
    }
    /* Queues and indexes: a fault must bring in the one page that is touched. Read-around would fill 31 more with zeros at each new file's
     * first write, which for thousands of short queues is most of the memory and most of the time. */
    if (writable)
        madvise(address, size, MADV_RANDOM);
    return address;
}

static void real_unmap(struct env *env, void *address, size_t size)
{
    (void)env;
    munmap(address, size);
}

static int real_sync_map(struct env *env, void *address, size_t size)
{
    (void)env;
    uintptr_t begin = (uintptr_t)address & ~(uintptr_t)(page_size() - 1);
    return msync((void *)begin, (uintptr_t)address + size - begin, MS_SYNC) == 0 ? 0 : -errno;
}

static bool real_resident(struct env *env, void *address, size_t size)
{
    (void)env;
    unsigned char pages[64];
    uint8_t *begin = (uint8_t *)((uintptr_t)address & ~(uintptr_t)(page_size() - 1));
    uint8_t *end = (uint8_t *)address + size;
    while (begin < end) {
        size_t part = (size_t)(end - begin) < sizeof pages * page_size() ? (size_t)(end - begin) : sizeof pages * page_size();
        size_t count = (part + page_size() - 1) / page_size();
        if (mincore(begin, part, pages) != 0)
            return true; /* nothing is known: as if this did not exist */
        for (size_t i = 0; i < count; i++) {
            if ((pages[i] & 1) == 0)
                return false;
        }
        begin += count * page_size();
    }
    return true;
}

static void real_populate(struct env *env, void *address, size_t size)
{
    (void)env;
    uint8_t *begin = (uint8_t *)((uintptr_t)address & ~(uintptr_t)(page_size() - 1));
    size_t whole = (size_t)((uint8_t *)address + size - begin);
    /* One read of all of it; page by page, as MADV_RANDOM wants it, each would be a wait. */
    madvise(begin, whole, MADV_WILLNEED);
    if (madvise(begin, whole, MADV_POPULATE_READ) == 0)
        return;
    for (size_t at = 0; at < whole; at += page_size())
        (void)*(volatile uint8_t *)(begin + at); /* before Linux 5.14 */
}

static void real_let_go(struct env *env, void *address, size_t size)
{
    (void)env;
    uint8_t *begin = (uint8_t *)((uintptr_t)address & ~(uintptr_t)(page_size() - 1));
    madvise(begin, (size_t)((uint8_t *)address + size - begin), MADV_DONTNEED); /* MAP_SHARED: dirty pages stay dirty in the cache */
}

static int real_rename(struct env *env, const char *from, const char *to)
{
    (void)env;
    return rename(from, to) == 0 ? 0 : -errno;
}

static int real_unlink(struct env *env, const char *path)
{
    (void)env;
    return unlink(path) == 0 ? 0 : -errno;
}

static int make_one_dir(const char *path)
{
    if (mkdir(path, 0755) == 0)
        return 0;
    if (errno != EEXIST)
        return -errno;
    struct stat st;
    if (stat(path, &st) != 0)
        return -errno;
    return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}

static int real_make_dir(struct env *env, const char *path)
{
    (void)env;
    char part[PATH_MAX];
    size_t size = strlen(path);
    if (size == 0 || size >= sizeof part)
        return size == 0 ? -ENOENT : -ENAMETOOLONG;
    /* Mostly only the last name is missing. */
    int rv = make_one_dir(path);
    if (rv != -ENOENT)
        return rv;
    memcpy(part, path, size + 1);
    for (size_t i = 1; i < size; i++) {
        if (part[i] != '/')
            continue;
        part[i] = '\0';
        rv = make_one_dir(part);
        if (rv != 0)
            return rv;
        part[i] = '/';
    }
    return make_one_dir(path);
}

static int real_remove_dir(struct env *env, const char *path)
{
    (void)env;
    return rmdir(path) == 0 ? 0 : -errno;
}

static int real_sync_dir(struct env *env, const char *path)
{
    (void)env;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int rv = fsync(fd) == 0 ? 0 : -errno;
    close(fd);
    return rv;
}

static int real_sync_file_system(struct env *env, const char *path)
{
    (void)env;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int rv = syncfs(fd) == 0 ? 0 : -errno;
    close(fd);
    return rv;
}

static int real_list(struct env *env, const char *path, int (*each)(void *argument, const char *name, bool is_dir), void *argument)
{
    (void)env;
    DIR *dir = opendir(path);
    if (dir == NULL)
        return -errno;
    int rv = 0;
    while (rv == 0) {
        errno = 0;
        struct dirent *entry = readdir(dir);
        if (entry == NULL) {
            rv = -errno;
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        bool is_dir = entry->d_type == DT_DIR;
        if (entry->d_type == DT_UNKNOWN || entry->d_type == DT_LNK) {
            struct stat st;
            is_dir = fstatat(dirfd(dir), entry->d_name, &st, 0) == 0 && S_ISDIR(st.st_mode);
        }
        rv = each(argument, entry->d_name, is_dir);
    }
    closedir(dir);
    return rv;
}

static int real_space(struct env *env, const char *path, uint64_t *free_bytes, uint64_t *total_bytes)
{
    (void)env;
    struct statvfs st;
    if (statvfs(path, &st) != 0)
        return -errno;
    *free_bytes = (uint64_t)st.f_bavail * st.f_frsize;
    *total_bytes = (uint64_t)(st.f_blocks - st.f_bfree + st.f_bavail) * st.f_frsize;
    return 0;
}

static int64_t real_now_ms(struct env *env)
{
    (void)env;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static uint64_t real_monotonic_us(struct env *env)
{
    (void)env;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

static uint64_t real_random(struct env *env)
{
    uint64_t value;
    if (getrandom(&value, sizeof value, 0) == (ssize_t)sizeof value)
        return value;
    /* Only before the kernel's pool is ready, which a broker does not see: still no two processes alike. */
    uint64_t seed[2] = {real_monotonic_us(env), (uint64_t)getpid()};
    return XXH3_64bits(seed, sizeof seed);
}

static uint64_t real_boot_id(struct env *env)
{
    (void)env;
    static uint64_t cached;
    if (cached != 0)
        return cached;
    char text[64];
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0; /* unknown: callers take it for another boot, which is the careful side */
    ssize_t n = read(fd, text, sizeof text);
    close(fd);
    if (n <= 0)
        return 0;
    cached = XXH3_64bits(text, (size_t)n);
    return cached;
}

void env_real_init(struct env *env)
{
    static const struct env_ops ops = {
        .open = real_open,
        .close = real_close,
        .write = real_write,
        .read = real_read,
        .prefetch = real_prefetch,
        .forget = real_forget,
        .sync = real_sync,
        .size = real_size,
        .truncate = real_truncate,
        .allocate = real_allocate,
        .map = real_map,
        .unmap = real_unmap,
        .sync_map = real_sync_map,
        .resident = real_resident,
        .populate = real_populate,
        .let_go = real_let_go,
        .rename = real_rename,
        .unlink = real_unlink,
        .make_dir = real_make_dir,
        .remove_dir = real_remove_dir,
        .sync_dir = real_sync_dir,
        .sync_file_system = real_sync_file_system,
        .list = real_list,
        .space = real_space,
        .now_ms = real_now_ms,
        .monotonic_us = real_monotonic_us,
        .random = real_random,
        .boot_id = real_boot_id,
    };
    env->ops = &ops;
    env->context = NULL;
}

int env_parent(const char *path, char dir[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    size_t size = slash == NULL ? 0 : slash == path ? 1 : (size_t)(slash - path);
    if (size >= PATH_MAX)
        return -ENAMETOOLONG;
    memcpy(dir, path, size);
    if (size == 0)
        dir[size++] = '.';
    dir[size] = '\0';
    return 0;
}

int env_sync_parent(struct env *env, const char *path)
{
    char dir[PATH_MAX];
    int rv = env_parent(path, dir);
    return rv == 0 ? env->ops->sync_dir(env, dir) : rv;
}
