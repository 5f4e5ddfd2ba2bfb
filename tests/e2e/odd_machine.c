/* LD_PRELOAD for a process under test: a disk that takes its time or fails, and a clock that is set.
 *
 * ODD_MACHINE names a file that holds 64-bit integers, which the test changes while the process runs; those at its end may be missing, which means 0:
 *
 *     0  milliseconds that each fdatasync takes more; a wait that goes on ends when this becomes less
 *     1  milliseconds that each pread takes more
 *     2  milliseconds that the wall clock is ahead
 *     3  not 0: the errno with which each pwritev fails
 *     4  not 0: each pwritev of more than one byte writes half
 *     5  not 0: each fdatasync fails with EIO
 *     6  not 0: percent of the disk that statvfs tells are in use
 *     7  milliseconds that each unlink of a segment (20 digits) takes more
 *     8  not 0: each unlink of a segment fails with EIO
 *     9  not 0: each unlink of a file of a consume queue fails with EIO
 *
 * ODD_HOSTS names a file of lines "NAME ADDRESS": what these names resolve to, as long as it says so.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define SETTINGS 10

static volatile int64_t *settings;

__attribute__((constructor)) static void open_settings(void)
{
    const char *path = getenv("ODD_MACHINE");
    int fd = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    void *at = fd < 0 ? MAP_FAILED : mmap(NULL, SETTINGS * sizeof *settings, PROT_READ, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED)
        settings = at;
    if (fd >= 0)
        close(fd);
}

static void wait_ms(int which)
{
    for (int64_t waited = 0; settings != NULL && waited < settings[which];) {
        int64_t left = settings[which] - waited, ms = left < 10 ? left : 10;
        if (ms > 0)
            nanosleep(&(struct timespec){0, ms * 1000000}, NULL);
        waited += ms > 0 ? ms : 1;
    }
}

static bool is_set(int which)
{
    return settings != NULL && settings[which] != 0;
}

int fdatasync(int fd)
{
    static int (*real)(int);
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "fdatasync");
    wait_ms(0);
    if (is_set(5)) {
        errno = EIO;
        return -1;
    }
    return real(fd);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset)
{
    static ssize_t (*real)(int, const struct iovec *, int, off64_t);
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "pwritev64");
    if (is_set(3)) {
        errno = (int)settings[3];
        return -1;
    }
    if (is_set(4) && count > 0 && parts[0].iov_len > 1) {
        struct iovec half = {parts[0].iov_base, parts[0].iov_len / 2};
        return real(fd, &half, 1, offset);
    }
    return real(fd, parts, count, offset);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset)
{
    return pwritev64(fd, parts, count, offset);
}

ssize_t pread64(int fd, void *data, size_t size, off64_t offset)
{
    static ssize_t (*real)(int, void *, size_t, off64_t);
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "pread64");
    wait_ms(1);
    return real(fd, data, size, offset);
}

ssize_t pread(int fd, void *data, size_t size, off_t offset)
{
    return pread64(fd, data, size, offset);
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    static int (*real)(clockid_t, struct timespec *);
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    int rv = real(clock, time);
    if (rv == 0 && clock == CLOCK_REALTIME && settings != NULL)
        time->tv_sec += settings[2] / 1000;
    return rv;
}

int statvfs(const char *path, struct statvfs *found)
{
    static int (*real)(const char *, struct statvfs *);
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "statvfs");
    int rv = real(path, found);
    if (rv == 0 && is_set(6)) { /* a tenth is kept for root, and counts as neither */
        found->f_blocks = 1100000;
        found->f_bavail = 1000000 - (fsblkcnt_t)settings[6] * 10000;
        found->f_bfree = found->f_bavail + 100000;
    }
    return rv;
}

int unlink(const char *path)
{
    static int (*real)(const char *);
    const char *name = strrchr(path, '/');
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "unlink");
    if (name != NULL && strstr(path, "/data/") != NULL && strspn(name + 1, "0123456789") == 20) {
        wait_ms(7);
        if (is_set(8)) {
            errno = EIO;
            return -1;
        }
    }
    if (strstr(path, "/consumequeue/") != NULL && is_set(9)) {
        errno = EIO;
        return -1;
    }
    return real(path);
}

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **result)
{
    static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    const char *path = getenv("ODD_HOSTS");
    FILE *file = path == NULL || node == NULL ? NULL : fopen(path, "r");
    char name[128], address[128];
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    while (file != NULL && fscanf(file, "%127s %127s", name, address) == 2) {
        if (strcmp(name, node) == 0) {
            node = address;
            break;
        }
    }
    if (file != NULL)
        fclose(file);
    return real(node, service, hints, result);
}
