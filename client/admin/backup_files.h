/* The files that a backup is written to and read from, as functions, so that the simulator's disk can stand in for the real one. */
#ifndef LEDGERMQ_CLIENT_ADMIN_BACKUP_FILES_H
#define LEDGERMQ_CLIENT_ADMIN_BACKUP_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define BACKUP_PATH_MAX 4096

/* All give 0 or, where they can fail, a negative errno. */
struct backup_files {
    void *context;
    int (*make_dir)(void *context, const char *path); /* -EEXIST when something is there */
    int (*remove_dir)(void *context, const char *path);
    int (*open)(void *context, const char *path, bool create, intptr_t *file); /* create: a new one, for writing; else for reading */
    void (*close)(void *context, intptr_t file);
    int (*write)(void *context, intptr_t file, const void *bytes, size_t size, uint64_t offset); /* all of it */
    ssize_t (*read)(void *context, intptr_t file, void *out, size_t size, uint64_t offset);      /* short only at the end */
    int (*sync)(void *context, intptr_t file);
    int (*rename)(void *context, const char *from, const char *to);
    int (*unlink)(void *context, const char *path);
    int (*sync_dir)(void *context, const char *path);
    int (*room)(void *context, const char *path, uint64_t *free_bytes);
};

extern const struct backup_files backup_files_real;

#endif
