#include "store/format_version.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "store/state_file.h"

#define PREFIX "ledgermq-store "
#define FILE_BYTES_MAX 64u

int format_version_unknown(struct error *error, const char *what, uint32_t found, uint32_t newest)
{
    return error_set(error, ERROR_VERSION, "%s is of version %u, this program knows up to %u: start the version that wrote it, or a newer one. Nothing was "
                     "changed", what, found, newest);
}

static int is_format(void *argument, struct slice content)
{
    (void)argument;
    return content.size > sizeof PREFIX - 1 && memcmp(content.data, PREFIX, sizeof PREFIX - 1) == 0 ? 0 : ERROR_MALFORMED;
}

int format_version_check(struct env *env, const char *root, struct error *error)
{
    char path[PATH_MAX], text[FILE_BYTES_MAX];
    struct buffer content;
    int32_t found = 0;
    if ((size_t)snprintf(path, sizeof path, "%s/format", root) >= sizeof path)
        return error_set(error, ERROR_INVALID, "%s: the path is too long", root);
    buffer_init(&content, 0);
    int rv = state_file_read(env, path, FILE_BYTES_MAX, is_format, NULL, &content, error);
    if (rv == 0) {
        struct slice number = slice_of(content.data + sizeof PREFIX - 1, content.size - (sizeof PREFIX - 1));
        while (number.size > 0 && number.data[number.size - 1] == '\n')
            number.size--;
        if (!slice_to_i32(number, &found) || found <= 0)
            rv = error_set(error, ERROR_DAMAGED, "%s does not hold a version: write \"%s%u\" if this program wrote the files beside it", path, PREFIX,
                           STORE_FORMAT_VERSION);
        else if ((uint32_t)found > STORE_FORMAT_VERSION)
            rv = format_version_unknown(error, path, (uint32_t)found, STORE_FORMAT_VERSION);
    } else if (rv == ERROR_NOT_FOUND) {
        int size = snprintf(text, sizeof text, PREFIX "%u\n", STORE_FORMAT_VERSION);
        rv = state_file_write(env, path, slice_of(text, (size_t)size), error);
    }
    buffer_close(&content);
    return rv;
}
