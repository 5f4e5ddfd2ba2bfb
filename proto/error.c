#include "proto/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *text;
    int response;
    bool retry;
} rows[] = {
#define X(name, text, response, retry) [ERROR_##name] = {text, response, retry},
    ERROR_CODES(X)
#undef X
};

int error_set(struct error *error, int code, const char *format, ...)
{
    if (error != NULL) {
        va_list args;
        error->code = code;
        va_start(args, format);
        vsnprintf(error->message, sizeof error->message, format, args);
        va_end(args);
    }
    return code;
}

void error_wrap(struct error *error, const char *format, ...)
{
    if (error == NULL)
        return;
    char where[sizeof error->message];
    char inner[sizeof error->message];
    va_list args;
    va_start(args, format);
    vsnprintf(where, sizeof where, format, args);
    va_end(args);
    memcpy(inner, error->message, sizeof inner);
    /* The cause matters more than the path to it: cut the path when both do not fit. */
    size_t room = sizeof error->message - strnlen(inner, sizeof inner - 1) - 3;
    if (room < sizeof where && strlen(where) > room)
        where[room] = '\0';
    size_t at = strlen(where);
    memcpy(error->message, where, at);
    memcpy(error->message + at, ": ", 2);
    size_t left = sizeof error->message - at - 3;
    size_t size = strnlen(inner, left);
    memcpy(error->message + at + 2, inner, size);
    error->message[at + 2 + size] = '\0';
}

const char *error_text(int code)
{
    if (code < 0 || (size_t)code >= sizeof rows / sizeof rows[0])
        return "unknown error";
    return rows[code].text;
}

int error_response_code(int code)
{
    if (code < 0 || (size_t)code >= sizeof rows / sizeof rows[0])
        return 1;
    return rows[code].response;
}

bool error_may_retry(int code)
{
    return code >= 0 && (size_t)code < sizeof rows / sizeof rows[0] && rows[code].retry;
}
