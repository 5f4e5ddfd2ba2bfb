/* The log file of a process: one line per event, rolled by size, with RocketMQ's names (broker.log, otherdays/broker.1.log). Installs itself as store's log sink.
 *
 * Lines are written with one write(2) each, so that they survive the process; levels below the configured one cost a comparison.
 */
#ifndef LEDGERMQ_BROKER_LOG_H
#define LEDGERMQ_BROKER_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/error.h"
#include "store/log_sink.h"

struct log_options {
    const char *dir;       /* made when missing */
    const char *name;      /* "broker.log", "namesrv.log" */
    uint64_t file_bytes;   /* then it is renamed to otherdays/NAME.1.log, ... */
    unsigned file_count;   /* rolled files that are kept */
    enum log_level level;
    bool echo;             /* WARN and above also to standard error */
};

/* ERROR_IO naming the path. Until then, and after log_close, the lines go to standard error. */
int log_open(const struct log_options *options, struct error *error);
void log_close(void);
/* "debug", "info", "warn", "error" in any case; false when it is none. */
bool log_level_parse(const char *text, enum log_level *level);

/* Keeps a flood out of the log: at most `burst` lines a second, and how many were left out is said in the next one. */
struct log_limiter {
    uint32_t burst; /* 0 = 1 */
    int64_t second;
    uint32_t lines;
    uint64_t suppressed;
};
/* True = write it. *suppressed: lines left out since the last one that was written. */
bool log_limiter_pass(struct log_limiter *limiter, int64_t now_ms, uint64_t *suppressed);

#endif
