/* Runs have processes to themselves: a violation ends one, and a crash or a hang of the product is found the same way. A process makes some runs, one after
 * the other, since a fresh one spends its time on page faults; a seed that fails is tried alone again, so that what it says can be played again. */
#include "tests/sim/runs.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "store/log_sink.h"

#define FAILURES_MAX 20u     /* then no further run begins */
#define SHORTEN_TRIES 60u
#define RUN_SECONDS_MAX 120u /* of real time: more is a hang */
#define RUNS_A_PROCESS 256u
#define RUNS_TO_PROVE 2u     /* most bugs are found by the first seeds */

/* What a child writes and its parent reads. */
struct report {
    struct world_stats stats;
    uint64_t done; /* runs; the seed behind them is under way */
    struct world_schedule schedule;
};

struct child {
    pid_t pid;
    uint64_t seed; /* its first; when it has ended in a failure: the one that failed */
    uint64_t runs;
    FILE *output;
    struct report *report;
};

static void log_to_trace(void *context, enum log_level level, const char *text)
{
    (void)context;
    (void)level;
    TRACE(2, 0, "    %s", text);
}

static struct report *new_reports(unsigned count)
{
    struct report *reports = mmap(NULL, count * sizeof *reports, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (reports == MAP_FAILED) {
        perror("mmap");
        exit(2);
    }
    return reports;
}

static void add_stats(struct world_stats *sum, const struct world_stats *stats)
{
    const uint64_t *from = (const uint64_t *)(const void *)stats;
    uint64_t *to = (uint64_t *)(void *)sum;
    for (size_t i = 0; i < sizeof *sum / sizeof *to; i++)
        to[i] += from[i];
}

static void start_child(struct child *child, uint64_t seed, uint64_t runs, time_t until, const struct settings *settings)
{
    struct report *report = child->report;
    memset(&report->stats, 0, sizeof report->stats);
    report->schedule.count = 0;
    report->done = 0;
    child->seed = seed;
    child->runs = runs;
    child->output = tmpfile();
    fflush(stdout);
    fflush(stderr);
    child->pid = fork();
    if (child->pid < 0) {
        perror("fork");
        exit(2);
    }
    if (child->pid > 0)
        return;
    if (child->output != NULL && settings->options.verbose == 0)
        dup2(fileno(child->output), STDERR_FILENO);
    log_sink_set(log_to_trace, NULL);
    while (report->done < runs && (until == 0 || report->done == 0 || time(NULL) < until)) {
        alarm(RUN_SECONDS_MAX);
        world_run(seed + report->done, &settings->options, &report->stats, &report->schedule);
        report->done++;
    }
    exit(0);
}

static int wait_for(const struct child *child)
{
    int status;
    if (waitpid(child->pid, &status, 0) != child->pid) {
        perror("waitpid");
        exit(2);
    }
    return status;
}

static void print_output(struct child *child)
{
    char line[1024];
    if (child->output == NULL)
        return;
    rewind(child->output);
    for (int i = 0; i < 100 && fgets(line, sizeof line, child->output) != NULL; i++)
        fputs(line, stdout);
}

static void note_failure(struct child *child, int status, struct runs_failure *failure)
{
    char *line = failure->said;
    failure->seed = child->seed;
    line[0] = '\0';
    if (child->output != NULL) {
        rewind(child->output);
        do {
            line[0] = '\0';
        } while (fgets(line, sizeof failure->said, child->output) != NULL && strstr(line, "VIOLATION") == NULL &&
                 strstr(line, "Assertion") == NULL && strstr(line, "ERROR: AddressSanitizer") == NULL && strstr(line, "runtime error") == NULL);
    }
    line[strcspn(line, "\n")] = '\0';
    if (line[0] != '\0')
        return;
    if (WIFSIGNALED(status))
        snprintf(line, sizeof failure->said, "ended by signal %d%s", WTERMSIG(status), WTERMSIG(status) == SIGALRM ? ": it hangs" : "");
    else
        snprintf(line, sizeof failure->said, "ended with status %d", WEXITSTATUS(status));
}

static void end_child(struct child *child)
{
    struct report *report = child->report;
    if (child->output != NULL)
        fclose(child->output);
    *child = (struct child){.report = report};
}

bool runs_one(const struct settings *settings, struct world_schedule *schedule, struct runs_failure *failure)
{
    struct report *report = new_reports(1);
    struct child child = {.report = report};

    start_child(&child, settings->seed, 1, 0, settings);
    int status = wait_for(&child);
    if (status != 0)
        note_failure(&child, status, failure);
    *schedule = report->schedule;
    end_child(&child);
    munmap(report, sizeof *report);
    return status == 0;
}

static void tell_failure(struct child *child, int status, const struct settings *settings)
{
    struct runs_failure failure;
    note_failure(child, status, &failure);
    print_output(child);
    if (WIFSIGNALED(status))
        printf("seed %llu: %s\n", (unsigned long long)child->seed, failure.said);
    printf("seed %llu failed; again with: ", (unsigned long long)child->seed);
    print_command(settings, child->seed);
    printf(" --verbose\n");
    fflush(stdout);
}

/* The seed behind those that a process has done failed: by itself too? What it says alone is what counts. */
static bool fails_alone(struct child *child, int *status, const struct settings *settings)
{
    uint64_t seed = child->seed + child->report->done;
    bool alone = child->report->done == 0;

    child->seed = seed;
    if (alone || (WIFSIGNALED(*status) && WTERMSIG(*status) == SIGALRM))
        return true;
    FILE *said = child->output;
    int first_status = *status;
    start_child(child, seed, 1, 0, settings);
    *status = wait_for(child);
    if (*status != 0) {
        if (said != NULL)
            fclose(said);
        return true;
    }
    if (child->output != NULL)
        fclose(child->output);
    child->output = said;
    *status = first_status;
    return false;
}

uint64_t runs_of_seeds(const struct settings *settings, struct world_stats *sum, struct runs_failure *first)
{
    unsigned jobs = settings->jobs;
    struct report *reports = new_reports(jobs);
    struct child children[RUNS_JOBS_MAX] = {{0}};
    struct rest { /* of a process that ended in a failure */
        uint64_t seed, runs;
    } rests[RUNS_JOBS_MAX + FAILURES_MAX];
    uint64_t started = 0, failed = 0, to_shorten = 0;
    uint64_t at_a_time = first == NULL ? RUNS_A_PROCESS : RUNS_TO_PROVE;
    bool shortens = false;
    unsigned running = 0, rest_count = 0;
    time_t until = settings->limit == 0 ? 0 : time(NULL) + (time_t)settings->limit;

    for (unsigned i = 0; i < jobs; i++)
        children[i].report = &reports[i];
    for (;;) {
        bool more = (settings->runs == 0 || started < settings->runs || rest_count > 0) && failed < (first == NULL ? FAILURES_MAX : 1) &&
                    (until == 0 || time(NULL) < until);
        if (more && running < jobs) {
            unsigned place = 0;
            struct rest next = {settings->seed + started, at_a_time};
            while (children[place].pid != 0)
                place++;
            if (rest_count > 0) {
                next = rests[--rest_count];
            } else {
                /* Near the end each process takes less, so that none is left alone with many. */
                while (settings->runs != 0 && next.runs > 1 && started + next.runs * jobs > settings->runs)
                    next.runs /= 2;
                started += next.runs;
            }
            start_child(&children[place], next.seed, next.runs, until, settings);
            running++;
            continue;
        }
        if (running == 0)
            break;
        int status;
        pid_t pid = wait(&status);
        for (unsigned i = 0; i < jobs; i++) {
            struct child *child = &children[i];
            if (child->pid == 0 || child->pid != pid)
                continue;
            add_stats(sum, &child->report->stats);
            if (status != 0) {
                uint64_t left = child->runs - child->report->done - 1;
                bool alone = fails_alone(child, &status, settings);
                failed++;
                if (left > 0 && first == NULL)
                    rests[rest_count++] = (struct rest){child->seed + 1, left};
                if (first == NULL) {
                    tell_failure(child, status, settings);
                    if (!alone)
                        printf("seed %llu does not fail alone: something of the seeds before it is left in the process\n",
                               (unsigned long long)child->seed);
                    if (alone && !shortens && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)) {
                        shortens = true;
                        to_shorten = child->seed;
                    }
                } else if (failed == 1 || child->seed < first->seed)
                    note_failure(child, status, first);
            }
            end_child(child);
            running--;
        }
    }
    munmap(reports, jobs * sizeof *reports);
    if (shortens)
        shorten(settings, to_shorten, SHORTEN_TRIES);
    return failed;
}
