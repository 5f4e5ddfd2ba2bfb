#include "client/admin/backup_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static int result(int rv)
{
    return rv == 0 ? 0 : -errno;
}

static int real_make_dir(void *context, const char *path)
{
    (void)context;
    return result(mkdir(path, 0755));
}

static int real_remove_dir(void *context, const char *path)
{
    (void)context;
    return result(rmdir(path));
}

static int real_open(void *context, const char *path, bool create, intptr_t *file)
{
    (void)context;
    int fd = create ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644) : open(path, O_RDONLY | O_CLOEXEC);
    *file = fd;
    return fd >= 0 ? 0 : -errno;
}

static void real_close(void *context, intptr_t file)
{
    (void)context;
    close((int)file);
}

static int real_write(void *context, intptr_t file, const void *bytes, size_t size, uint64_t offset)
{
    (void)context;
    for (size_t done = 0; done < size;) {
        ssize_t written = pwrite((int)file, (const uint8_t *)bytes + done, size - done, (off_t)(offset + done));
        if (written < 0 && errno != EINTR)
            return -errno;
        done += written > 0 ? (size_t)written : 0;
    }
    return 0;
}

static ssize_t real_read(void *context, intptr_t file, void *out, size_t size, uint64_t offset)
{
    size_t done = 0;
    (void)context;
    while (done < size) {
        ssize_t got = pread((int)file, (uint8_t *)out + done, size - done, (off_t)(offset + done));
        if (got < 0 && errno != EINTR)
            return -errno;
        if (got == 0)
            break;
        done += got > 0 ? (size_t)got : 0;
    }
    return (ssize_t)done;
}

static int real_sync(void *context, intptr_t file)
{
    (void)context;
    return result(fdatasync((int)file));
}

static int real_rename(void *context, const char *from, const char *to)
{
    (void)context;
    return result(rename(from, to));
}

static int real_unlink(void *context, const char *path)
{
    (void)context;
    return result(unlink(path));
}

static int real_sync_dir(void *context, const char *path)
{
    (void)context;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rv = fd < 0 ? -errno : result(fsync(fd));
    if (fd >= 0)
        close(fd);
    return rv;
}

static int real_room(void *context, const char *path, uint64_t *free_bytes)
{
    struct statvfs space;
    (void)context;
    if (statvfs(path, &space) != 0)
        return -errno;
    *free_bytes = (uint64_t)space.f_bavail * space.f_frsize;
    return 0;
}

const struct backup_files backup_files_real = {
    .make_dir = real_make_dir,
    .remove_dir = real_remove_dir,
    .open = real_open,
    .close = real_close,
    .write = real_write,
    .read = real_read,
    .sync = real_sync,
    .rename = real_rename,
    .unlink = real_unlink,
    .sync_dir = real_sync_dir,
    .room = real_room,
};
