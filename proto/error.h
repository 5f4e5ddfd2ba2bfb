/* The one list of error codes, and an error that gathers where it happened on its way up.
 *
 * Functions return 0 or one of these codes. Cold paths also fill a struct error (may be NULL); each level adds
 * where it was with error_wrap(). Hot paths return the code alone.
 */
#ifndef LEDGERMQ_PROTO_ERROR_H
#define LEDGERMQ_PROTO_ERROR_H

#include <stdbool.h>

/* name, text, RocketMQ response code, a client may retry */
#define ERROR_CODES(X)                                                                                       \
    X(OK, "success", 0, false)                                                                               \
    X(INVALID, "invalid input", 1, false)                                                                    \
    X(MALFORMED, "malformed bytes", 1, false)                                                                \
    X(MISSING, "missing field", 1, false)                                                                    \
    X(TOO_LARGE, "too large", 13, false)                                                                     \
    X(NO_MEMORY, "out of memory", 14, true)                                                                  \
    X(IO, "input/output error", 14, true)                                                                    \
    X(NO_SPACE, "no space left on device", 14, true)                                                         \
    X(NOT_FOUND, "not found", 22, false)                                                                     \
    X(EXISTS, "already exists", 18, false)                                                                   \
    X(DAMAGED, "damaged data", 14, true)                                                                     \
    X(NOT_LEADER, "not the leader", 14, true)                                                                \
    X(NO_LEADER, "no leader", 14, true)                                                                      \
    X(LEADERSHIP_LOST, "leadership lost, outcome unknown", 14, true)                                         \
    X(QUORUM_TIMEOUT, "no quorum in time, outcome unknown", 14, true)                                        \
    X(DISK_STALLED, "the broker's disk is full: no room for queue files, outcome unknown", 14, true)          \
    X(BUSY, "limit reached", 14, true)                                                                       \
    X(STOPPED, "stopped", 14, true)                                                                          \
    X(LOCKED, "locked by another process", 1, false)                                                         \
    X(VERSION, "unknown version", 1, false)                                                                  \
    X(TIMEOUT, "timed out", 14, true)                                                                        \
    X(CONNECTION, "connection failed", 14, true)

enum error_code {
#define X(name, text, response, retry) ERROR_##name,
    ERROR_CODES(X)
#undef X
};

struct error {
    int code; /* enum error_code */
    char message[480];
};

/* Fills error (may be NULL) and returns code, so that callers can write `return error_set(...)`. */
int error_set(struct error *error, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Prepends "where: " to the message. Does nothing when error is NULL. */
void error_wrap(struct error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

const char *error_text(int code);
int error_response_code(int code);
bool error_may_retry(int code);

#endif
