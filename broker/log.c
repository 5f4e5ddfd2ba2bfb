#include "broker/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "store/env.h"

#define LINE_MAX_BYTES 2048
#define PATH_BYTES 1024
#define ROLLED_DIR "otherdays" /* as in RocketMQ's logback_broker.xml */

/* One sink per process (log_sink.h), so its state is the process's too. Lines may come from pool threads only in the form of a final message
 * before an abort; the loop thread writes all others. */
static struct {
    struct env env;
    struct env_file *file;
    char path[PATH_BYTES];
    uint64_t size, file_bytes;
    unsigned file_count;
    enum log_level level;
    bool echo;
} sink;

static const char *const level_names[] = {
    [LOG_LEVEL_DEBUG] = "DEBUG", [LOG_LEVEL_INFO] = "INFO", [LOG_LEVEL_WARN] = "WARN", [LOG_LEVEL_ERROR] = "ERROR"};

bool log_level_parse(const char *text, enum log_level *level)
{
    for (size_t i = 0; i < sizeof level_names / sizeof level_names[0]; i++) {
        if (strcasecmp(text, level_names[i]) == 0) {
            *level = (enum log_level)i;
            return true;
        }
    }
    return false;
}

static int open_file(struct error *error)
{
    int rv = env_open(&sink.env, sink.path, ENV_WRITE | ENV_CREATE, &sink.file);
    if (rv != 0) {
        sink.file = NULL;
        return error_set(error, ERROR_IO, "log file %s: %s", sink.path, strerror(-rv));
    }
    if (sink.env.ops->size(&sink.env, sink.file, &sink.size) != 0)
        sink.size = 0;
    return 0;
}

/* DIR/otherdays/broker.1.log */
static void rolled_path(unsigned number, char out[PATH_BYTES + 32])
{
    const char *name = strrchr(sink.path, '/') + 1, *dot = strrchr(name, '.');
    int stem = dot == NULL ? (int)strlen(name) : (int)(dot - name);
    snprintf(out, PATH_BYTES + 32, "%.*s" ROLLED_DIR "/%.*s.%u%s", (int)(name - sink.path), sink.path, stem, name, number, dot == NULL ? "" : dot);
}

/* Number 1 is the newest rolled file. A failed rename costs old lines, never the broker. */
static void roll(void)
{
    char from[PATH_BYTES + 32], to[PATH_BYTES + 32];
    env_close(&sink.env, sink.file);
    sink.file = NULL;
    for (unsigned i = sink.file_count; i >= 1; i--) {
        if (i == 1)
            snprintf(from, sizeof from, "%s", sink.path);
        else
            rolled_path(i - 1, from);
        rolled_path(i, to);
        (void)sink.env.ops->rename(&sink.env, from, to);
    }
    if (sink.file_count == 0)
        (void)sink.env.ops->unlink(&sink.env, sink.path);
    (void)open_file(NULL);
}

static void write_line(void *context, enum log_level level, const char *text)
{
    (void)context;
    if (level < sink.level)
        return;
    char line[LINE_MAX_BYTES];
    int64_t now_ms = env_now_ms(&sink.env);
    time_t seconds = (time_t)(now_ms / 1000);
    struct tm tm;
    localtime_r(&seconds, &tm);
    size_t size = strftime(line, sizeof line, "%Y-%m-%d %H:%M:%S", &tm);
    int rest = snprintf(line + size, sizeof line - size, ",%03d %s - %s\n", (int)(now_ms % 1000), level_names[level], text);
    size += rest < 0 ? 0 : (size_t)rest;
    if (size >= sizeof line) { /* cut, but still one line */
        size = sizeof line - 1;
        line[size - 1] = '\n';
    }
    for (size_t i = 0; i + 1 < size; i++) { /* what a peer sent may be in it: no line of its own making */
        if ((unsigned char)line[i] < 0x20 && line[i] != '\t')
            line[i] = ' ';
    }
    if (sink.file != NULL && sink.size > 0 && sink.size + size > sink.file_bytes)
        roll();
    if (sink.file != NULL && env_write(&sink.env, sink.file, line, size, sink.size) == 0)
        sink.size += size;
    if (sink.file == NULL || (sink.echo && level >= LOG_LEVEL_WARN))
        (void)!write(STDERR_FILENO, line, size);
}

int log_open(const struct log_options *options, struct error *error)
{
    log_close();
    memset(&sink, 0, sizeof sink);
    env_real_init(&sink.env);
    int need = snprintf(sink.path, sizeof sink.path, "%s/%s", options->dir, options->name);
    if (need < 0 || (size_t)need >= sizeof sink.path)
        return error_set(error, ERROR_INVALID, "log path %s/%s is too long", options->dir, options->name);
    char rolled[PATH_BYTES + 32];
    snprintf(rolled, sizeof rolled, "%s/" ROLLED_DIR, options->dir);
    int rv = sink.env.ops->make_dir(&sink.env, options->dir);
    if (rv == 0 && options->file_count > 0)
        rv = sink.env.ops->make_dir(&sink.env, rolled);
    if (rv != 0)
        return error_set(error, ERROR_IO, "log directory %s: %s", options->dir, strerror(-rv));
    sink.file_bytes = options->file_bytes;
    sink.file_count = options->file_count;
    sink.level = options->level;
    sink.echo = options->echo;
    rv = open_file(error);
    if (rv == 0)
        log_sink_set(write_line, NULL);
    return rv;
}

void log_close(void)
{
    log_sink_set(NULL, NULL);
    if (sink.file != NULL)
        env_close(&sink.env, sink.file);
    sink.file = NULL;
}

bool log_limiter_pass(struct log_limiter *limiter, int64_t now_ms, uint64_t *suppressed)
{
    int64_t second = now_ms / 1000;
    if (second != limiter->second) {
        limiter->second = second;
        limiter->lines = 0;
    }
    if (limiter->lines >= (limiter->burst == 0 ? 1 : limiter->burst)) {
        limiter->suppressed++;
        return false;
    }
    limiter->lines++;
    *suppressed = limiter->suppressed;
    limiter->suppressed = 0;
    return true;
}
