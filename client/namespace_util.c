#include "client/namespace_util.h"

#include <stdio.h>
#include <string.h>

#include "proto/topic_validator.h"

int namespace_validate(const char *name_space, struct error *error)
{
    struct slice name = slice_of_text(name_space);
    if (name.size > NAMESPACE_MAX || memchr(name.data == NULL ? (const uint8_t *)"" : name.data, '%', name.size) ||
        !topic_or_group_is_legal(name))
        return error_set(error, ERROR_INVALID, "namespace '%.80s': at most %u letters, digits, '-' and '_'",
                         name_space, NAMESPACE_MAX);
    return 0;
}

static bool is_exempt(const char *name)
{
    static const char reply[] = TOPIC_REPLY_POSTFIX;
    size_t size = strlen(name);
    return topic_is_system(slice_of_text(name)) || group_is_system(slice_of_text(name)) ||
           (size >= sizeof reply - 1 && strcmp(name + size - (sizeof reply - 1), reply) == 0);
}

/* Bytes of %RETRY% or %DLQ% in front. */
static size_t prefix_size(const char *name)
{
    struct slice text = slice_of_text(name);
    return topic_is_retry(text)         ? strlen(TOPIC_RETRY_PREFIX)
           : topic_is_dead_letter(text) ? strlen(TOPIC_DLQ_PREFIX)
                                        : 0;
}

static bool has_namespace(const char *name_space, const char *rest)
{
    size_t size = strlen(name_space);
    return strncmp(rest, name_space, size) == 0 && rest[size] == '%';
}

void namespace_wrap(const char *name_space, const char *name, char out[NAMESPACED_NAME_MAX])
{
    size_t prefix = prefix_size(name);
    if (name_space == NULL || name_space[0] == '\0' || name[0] == '\0' || is_exempt(name) ||
        has_namespace(name_space, name + prefix))
        snprintf(out, NAMESPACED_NAME_MAX, "%s", name);
    else
        snprintf(out, NAMESPACED_NAME_MAX, "%.*s%s%%%s", (int)prefix, name, name_space, name + prefix);
}

void namespace_unwrap(const char *name_space, const char *name, char out[NAMESPACED_NAME_MAX])
{
    size_t prefix = prefix_size(name);
    if (name_space == NULL || name_space[0] == '\0' || !has_namespace(name_space, name + prefix))
        snprintf(out, NAMESPACED_NAME_MAX, "%s", name);
    else
        snprintf(out, NAMESPACED_NAME_MAX, "%.*s%s", (int)prefix, name, name + prefix + strlen(name_space) + 1);
}
