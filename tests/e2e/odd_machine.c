/* LD_PRELOAD for a process under test: a disk that takes its time, and a clock that is set.
 *
 * ODD_MACHINE names a file that holds three 64-bit integers, which the test changes while the process runs: milliseconds that each fdatasync takes more,
 * milliseconds that each pread takes more, and milliseconds that the wall clock is ahead. ODD_HOSTS names a file of lines "NAME ADDRESS": what these names
 * resolve to, as long as it says so.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *settings;

__attribute__((constructor)) static void open_settings(void)
{
    const char *path = getenv("ODD_MACHINE");
    int fd = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    void *at = fd < 0 ? MAP_FAILED : mmap(NULL, 3 * sizeof *settings, PROT_READ, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED)
        settings = at;
    if (fd >= 0)
        close(fd);
}

static void wait_ms(int which)
{
    int64_t ms = settings == NULL ? 0 : settings[which];
    if (ms > 0)
        nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

int fdatasync(int fd)
{
    static int (*real)(int);
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "fdatasync");
    wait_ms(0);
    return real(fd);
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
