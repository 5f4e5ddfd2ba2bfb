/* Where diagnostics of the lower folders go. The broker installs its logger; tests see standard error or nothing. */
#ifndef LEDGERMQ_STORE_LOG_SINK_H
#define LEDGERMQ_STORE_LOG_SINK_H

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR };

typedef void (*log_sink_fn)(void *context, enum log_level level, const char *text);
/* One sink per process; NULL = standard error from WARN on. */
void log_sink_set(log_sink_fn sink, void *context);
void log_sink_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define LOG_INFO(...) log_sink_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define LOG_WARN(...) log_sink_write(LOG_LEVEL_WARN, __VA_ARGS__)
#define LOG_ERROR(...) log_sink_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define LOG_DEBUG(...) log_sink_write(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
