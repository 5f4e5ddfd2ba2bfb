/* Figures of `mqadmin bench`: latencies, error codes, what processes cost. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "client/admin/bench.h"

static int bucket_of(uint64_t value)
{
    if (value < 128)
        return (int)value;
    int shift = 57 - __builtin_clzll(value); /* keeps 7 bits, the highest of them set */
    int bucket = 64 * shift + (int)(value >> shift);
    return bucket < BENCH_BUCKETS ? bucket : BENCH_BUCKETS - 1;
}

/* The largest value that falls into a bucket. */
static double bucket_end(int bucket)
{
    if (bucket < 128)
        return (double)bucket;
    int shift = bucket / 64 - 1;
    return (double)(((uint64_t)(bucket - 64 * shift) + 1) << shift) - 1;
}

void bench_histogram_add(struct bench_histogram *histogram, int64_t ns)
{
    histogram->counts[bucket_of(ns < 0 ? 0 : (uint64_t)ns)]++;
    histogram->total++;
    if (ns > histogram->max_ns)
        histogram->max_ns = ns;
}

double bench_histogram_us(const struct bench_histogram *histogram, double percentile)
{
    uint64_t rank = (uint64_t)((double)histogram->total * percentile / 100.0), seen = 0;
    rank = rank < histogram->total ? rank + 1 : histogram->total;
    for (int i = 0; i < BENCH_BUCKETS && histogram->total > 0; i++) {
        seen += histogram->counts[i];
        if (seen < rank)
            continue;
        double end = bucket_end(i);
        return (end < (double)histogram->max_ns ? end : (double)histogram->max_ns) / 1000.0;
    }
    return 0;
}

void bench_codes_add(struct bench_codes *codes, int32_t code)
{
    int i = 0;
    while (i < codes->count && codes->codes[i] != code)
        i++;
    if (i == BENCH_CODES_MAX)
        i--; /* the last row takes what has no room */
    if (i == codes->count)
        codes->codes[codes->count++] = code;
    codes->counts[i]++;
}

uint64_t bench_codes_total(const struct bench_codes *codes)
{
    uint64_t total = 0;
    for (int i = 0; i < codes->count; i++)
        total += codes->counts[i];
    return total;
}

void bench_codes_print(const struct bench_codes *codes)
{
    putchar('{');
    for (int i = 0; i < codes->count; i++)
        printf("%s\"%d\":%llu", i > 0 ? "," : "", codes->codes[i], (unsigned long long)codes->counts[i]);
    putchar('}');
}

static int64_t clock_ns(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t bench_now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

int64_t bench_wall_offset_ns(void)
{
    return clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC);
}

double bench_own_cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

double bench_cpu_seconds(int pid)
{
    /* /proc/PID/stat counts in ticks of 10 ms, which is longer than many a run. */
    clockid_t id;
    struct timespec used;
    if (clock_getcpuclockid(pid, &id) != 0 || clock_gettime(id, &used) != 0)
        return -1;
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

double bench_cpu_of_watched(const struct bench_options *options)
{
    double sum = 0;
    for (int i = 0; i < options->pid_count; i++) {
        double used = bench_cpu_seconds(options->pids[i]);
        if (used < 0)
            return -1;
        sum += used;
    }
    return sum;
}

double bench_per_million(double start, double end, uint64_t count)
{
    if (start < 0 || end < 0)
        return -1;
    return count > 0 ? (end - start) / (double)count * 1e6 : 0;
}

double bench_memory_mib(int pid, const char *name)
{
    char path[64], line[256];
    double kib = -1024;
    size_t size = strlen(name);
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, name, size) == 0 && line[size] == ':')
            kib = strtod(line + size + 1, NULL);
    if (file != NULL)
        fclose(file);
    return kib / 1024;
}
