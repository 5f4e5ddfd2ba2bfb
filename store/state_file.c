#include "store/state_file.h"

#include "store/log_sink.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static int fail(struct error *error, int rv, const char *what, const char *path)
{
    int code = rv == -ENOSPC || rv == -EDQUOT ? ERROR_NO_SPACE : rv == -ENOMEM ? ERROR_NO_MEMORY : ERROR_IO;
    return error_set(error, code, "%s %s: %s", what, path, strerror(-rv));
}

static bool with_suffix(const char *path, const char *suffix, char out[PATH_MAX])
{
    int n = snprintf(out, PATH_MAX, "%s%s", path, suffix);
    return n > 0 && n < PATH_MAX;
}

static int write_beside(struct env *env, const char *temporary, struct slice content)
{
    struct env_file *file;
    int rv = env_open(env, temporary, ENV_WRITE | ENV_CREATE, &file);
    if (rv != 0)
        return rv;
    rv = env->ops->truncate(env, file, 0);
    if (rv == 0 && content.size > 0)
        rv = env_write(env, file, content.data, content.size, 0);
    if (rv == 0)
        rv = env_sync(env, file);
    env_close(env, file);
    if (rv != 0)
        env->ops->unlink(env, temporary);
    return rv;
}

int state_file_write(struct env *env, const char *path, struct slice content, struct error *error)
{
    char temporary[PATH_MAX], backup[PATH_MAX], dir[PATH_MAX];
    if (!with_suffix(path, ".tmp", temporary) || !with_suffix(path, ".bak", backup))
        return fail(error, -ENAMETOOLONG, "write", path);
    int rv = env_parent(path, dir);
    if (rv != 0)
        return fail(error, rv, "write", path);
    rv = write_beside(env, temporary, content);
    if (rv == -ENOENT) {
        rv = env->ops->make_dir(env, dir);
        if (rv == 0)
            rv = write_beside(env, temporary, content);
    }
    if (rv != 0)
        return fail(error, rv, "write", temporary);
    /* Between the two renames the content is the .bak: a reader takes that. */
    rv = env->ops->rename(env, path, backup);
    if (rv == 0 || rv == -ENOENT)
        rv = env->ops->rename(env, temporary, path);
    if (rv == 0)
        rv = env->ops->sync_dir(env, dir);
    return rv == 0 ? 0 : fail(error, rv, "replace", path);
}

int state_file_read_whole(struct env *env, const char *path, uint64_t size_max, struct buffer *out, struct error *error)
{
    struct env_file *file;
    uint64_t size;
    buffer_clear(out);
    int rv = env_open(env, path, ENV_READ, &file);
    if (rv == -ENOENT)
        return error_set(error, ERROR_NOT_FOUND, "%s does not exist", path);
    if (rv != 0)
        return fail(error, rv, "open", path);
    int code = 0;
    rv = env->ops->size(env, file, &size);
    if (rv != 0) {
        code = fail(error, rv, "size of", path);
    } else if (size > size_max) {
        code = error_set(error, ERROR_DAMAGED, "%s has %llu bytes, at most %llu are expected", path, (unsigned long long)size,
                         (unsigned long long)size_max);
    } else if (size > 0) {
        uint8_t *room = buffer_reserve(out, (size_t)size);
        ssize_t n = room == NULL ? -ENOMEM : env_read(env, file, room, (size_t)size, 0);
        if (n < 0)
            code = fail(error, (int)n, "read", path);
        else
            out->size += (size_t)n;
    }
    env_close(env, file);
    return code;
}

static int read_one(struct env *env, const char *path, uint64_t size_max, int (*check)(void *argument, struct slice content), void *argument,
                    struct buffer *out, struct error *error)
{
    int code = state_file_read_whole(env, path, size_max, out, error);
    if (code == 0 && check != NULL && check(argument, buffer_slice(out)) != 0)
        code = error_set(error, ERROR_DAMAGED, "%s has wrong content", path);
    return code;
}

int state_file_read(struct env *env, const char *path, uint64_t size_max, int (*check)(void *argument, struct slice content), void *argument,
                    struct buffer *out, struct error *error)
{
    char backup[PATH_MAX];
    struct error first = {0}, second = {0};
    if (!with_suffix(path, ".bak", backup))
        return fail(error, -ENAMETOOLONG, "read", path);
    int rv = read_one(env, path, size_max, check, argument, out, &first);
    if (rv == 0)
        return 0;
    int fallback = read_one(env, backup, size_max, check, argument, out, &second);
    if (fallback == 0) {
        LOG_WARN("%s; %s is used", first.message, backup);
        return 0;
    }
    buffer_clear(out);
    /* The file's own fault says more than that there is no second one. */
    if (rv == ERROR_NOT_FOUND && fallback != ERROR_NOT_FOUND)
        return error_set(error, fallback, "%s", second.message);
    return error_set(error, rv, "%s", first.message);
}

int state_file_remove(struct env *env, const char *path, struct error *error)
{
    static const char *const suffixes[] = {".tmp", ".bak", ""};
    char name[PATH_MAX];
    /* Last of all the file itself, so that a crash in between does not bring an older content back. */
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        if (!with_suffix(path, suffixes[i], name))
            return fail(error, -ENAMETOOLONG, "remove", path);
        int rv = env->ops->unlink(env, name);
        if (rv != 0 && rv != -ENOENT)
            return fail(error, rv, "remove", name);
    }
    int rv = env_parent(path, name);
    if (rv == 0)
        rv = env->ops->sync_dir(env, name);
    return rv == 0 || rv == -ENOENT ? 0 : fail(error, rv, "sync", name);
}
