#include "store/log_sink.h"

#include <stdarg.h>
#include <stdio.h>

static log_sink_fn current_sink;
static void *current_context;

void log_sink_set(log_sink_fn sink, void *context)
{
    current_sink = sink;
    current_context = context;
}

void log_sink_write(enum log_level level, const char *format, ...)
{
    char text[1024];
    va_list args;
    if (current_sink == NULL && level < LOG_LEVEL_WARN)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (current_sink != NULL)
        current_sink(current_context, level, text);
    else
        fprintf(stderr, "%s\n", text);
}
