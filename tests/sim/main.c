/* ledgermq_sim: runs seeds in processes of their own, some at a time, and sums up. A seed that fails is named with the command that plays it again. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "store/log_sink.h"
#include "tests/sim/machine.h"
#include "tests/sim/world.h"

#define JOBS_MAX 64
#define RUN_SECONDS_MAX 120u /* of real time: more is a hang */

static const char usage[] =
    "ledgermq_sim: members of a group in virtual time, with faults, and a checker\n"
    "\n"
    "    ledgermq_sim --seed N [--runs R] [--seconds S] [--nodes 1|3|5] [--durability A|B] [--guards MASK] [--verbose]\n"
    "    ledgermq_sim --prove\n"
    "\n"
    "    --seed N        first seed (1); the same seed and options always give the same run\n"
    "    --runs R        how many seeds from there on (1)\n"
    "    --seconds S     of faults, in virtual time (10)\n"
    "    --nodes N       1, 3 or 5; else the seed decides between 3 and 5\n"
    "    --durability C  A or B; else the seed decides\n"
    "    --guards MASK   which guards of raft_driver.h are on (0xffff)\n"
    "    --bug NAME      puts a fault of ours in, to see that the checker finds it (list: --bug help)\n"
    "    --jobs J        runs at a time (number of processors)\n"
    "    --limit T       begin no further run after so many seconds of real time\n"
    "    --prove         shows that the checker finds each fault of a list within some seeds\n"
    "    --verbose       what happens, on standard error; twice: more\n"
    "\n"
    "Exit status 0 when nothing was violated.\n";

struct settings {
    uint64_t seed;
    uint64_t runs;
    unsigned jobs;
    unsigned limit;
    struct world_options options;
};

static void log_to_trace(void *context, enum log_level level, const char *text)
{
    (void)context;
    (void)level;
    TRACE(2, 0, "    %s", text);
}

static void add_stats(struct world_stats *sum, const struct world_stats *stats)
{
    const uint64_t *from = (const uint64_t *)(const void *)stats;
    uint64_t *to = (uint64_t *)(void *)sum;
    for (size_t i = 0; i < sizeof *sum / sizeof *to; i++)
        to[i] += from[i];
}

static void print_replay(uint64_t seed, const struct world_options *options)
{
    printf("seed %llu failed; again with: ledgermq_sim --seed %llu --seconds %u", (unsigned long long)seed, (unsigned long long)seed,
           options->seconds);
    if (options->nodes != 0)
        printf(" --nodes %d", options->nodes);
    if (options->durability != 0)
        printf(" --durability %c", options->durability);
    if (options->guards != GUARD_ALL)
        printf(" --guards 0x%x", options->guards);
    if (options->bug != BUG_NONE)
        printf(" --bug %s", world_bug_names[options->bug]);
    printf(" --verbose\n");
    fflush(stdout);
}

struct child {
    pid_t pid;
    uint64_t seed;
    FILE *output;
};

static void start_child(struct child *child, uint64_t seed, const struct settings *settings, struct world_stats *stats)
{
    memset(stats, 0, sizeof *stats);
    child->seed = seed;
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
    alarm(RUN_SECONDS_MAX);
    log_sink_set(log_to_trace, NULL);
    world_run(seed, &settings->options, stats);
    exit(0);
}

/* Prints what the child said. */
static void print_output(struct child *child)
{
    char line[1024];
    if (child->output == NULL)
        return;
    rewind(child->output);
    for (int i = 0; i < 100 && fgets(line, sizeof line, child->output) != NULL; i++)
        fputs(line, stdout);
}

/* First line of what it said. */
static void first_line(struct child *child, char *line, size_t size)
{
    line[0] = '\0';
    if (child->output == NULL)
        return;
    rewind(child->output);
    while (fgets(line, (int)size, child->output) != NULL && strstr(line, "VIOLATION") == NULL && strstr(line, "Assertion") == NULL)
        ;
    line[strcspn(line, "\n")] = '\0';
}

/* Runs seeds. Stops at the first failure when first_failure is given: its seed and what was said. Returns the number of failures. */
static uint64_t run_seeds(const struct settings *settings, struct world_stats *sum, uint64_t *first_failure, char *said, size_t said_size)
{
    unsigned jobs = settings->jobs;
    struct world_stats *stats = mmap(NULL, jobs * sizeof *stats, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct child children[JOBS_MAX] = {{0}};
    uint64_t started = 0, failed = 0;
    unsigned running = 0;
    time_t began = time(NULL);

    if (stats == MAP_FAILED) {
        perror("mmap");
        exit(2);
    }
    for (;;) {
        bool more = started < settings->runs && (first_failure == NULL || failed == 0) &&
                    (settings->limit == 0 || time(NULL) - began < (time_t)settings->limit);
        if (more && running < jobs) {
            unsigned free_slot = 0;
            while (children[free_slot].pid != 0)
                free_slot++;
            start_child(&children[free_slot], settings->seed + started, settings, &stats[free_slot]);
            started++;
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
            add_stats(sum, &stats[i]);
            if (status != 0) {
                failed++;
                if (first_failure != NULL) {
                    if (failed == 1 || child->seed < *first_failure) {
                        *first_failure = child->seed;
                        first_line(child, said, said_size);
                        if (said[0] == '\0')
                            snprintf(said, said_size, "ended with status 0x%x", (unsigned)status);
                    }
                } else {
                    print_output(child);
                    if (WIFSIGNALED(status))
                        printf("seed %llu: ended by signal %d%s\n", (unsigned long long)child->seed, WTERMSIG(status),
                               WTERMSIG(status) == SIGALRM ? ": it hangs" : "");
                    print_replay(child->seed, &settings->options);
                }
            }
            if (child->output != NULL)
                fclose(child->output);
            *child = (struct child){0};
            running--;
        }
    }
    munmap(stats, jobs * sizeof *stats);
    return failed;
}

static void print_stats(const struct world_stats *s)
{
#define U(x) ((unsigned long long)(x))
    printf("%llu runs, %.0f s of virtual time, %llu events, %llu steps of members\n", U(s->runs), (double)s->virtual_us / 1e6, U(s->events),
           U(s->steps));
    printf("calls %llu: acknowledged %llu, unknown %llu; refused %llu (%llu for want of room); metadata records %llu, raw entries %llu\n", U(s->sends),
           U(s->acknowledged), U(s->unknown), U(s->refused), U(s->full_disk_refusals), U(s->metadata), U(s->raw));
    printf("entries %llu, committed %llu, cut %llu; elections %llu; starts %llu (%llu failed); caught up again %llu; stopped for good %llu\n",
           U(s->entries), U(s->committed), U(s->cut_entries), U(s->elections), U(s->starts), U(s->start_failures), U(s->caught_up),
           U(s->failed_members));
    printf("messages %llu, lost %llu, with a flipped bit %llu; connections %llu; power cuts %llu\n", U(s->messages), U(s->messages_lost),
           U(s->bits_flipped), U(s->connections), U(s->power_cuts));
    printf("class A: a majority without power %llu times, acknowledged and lost thereby %llu; runs without a bare majority %llu\n", U(s->losses),
           U(s->excused), U(s->runs_without_bare_majority));
    for (int i = 0; i < CHAOS_KINDS; i++)
        printf("%s%s %llu", i == 0 ? "faults: " : ", ", chaos_names[i], U(s->chaos[i]));
    printf("\n");
#undef U
}

/* ---- proving the checker ---- */

struct proof {
    const char *name;
    enum world_bug bug;
    unsigned guards; /* those that are off */
    int durability;
    int nodes;
    uint64_t seeds; /* within which it must be found */
};

static const struct proof proofs[] = {
    {"a vote is not synced", BUG_VOTE_NOT_SYNCED, 0, 0, 0, 20},
    {"the log is not synced", BUG_LOG_NOT_SYNCED, 0, 'B', 0, 20},
    {"entries are reported durable before they are", BUG_PERSISTED_EARLY, 0, 'B', 0, 20},
    {"a member that forgot something votes at once", BUG_NEVER_MUTE, 0, 0, 0, 200},
    {"term and vote are forgotten over a restart", BUG_TERM_IGNORED, 0, 0, 0, 100},
    {"a leader skips a queue offset", BUG_QUEUE_SHIFT, 0, 0, 0, 20},
    {"a send is answered before it has committed", BUG_EARLY_ANSWER, 0, 0, 0, 50},
    {"a metadata record is applied twice", BUG_APPLY_TWICE, 0, 0, 0, 20},
    {"guard G1 is off: a sole voter leads twice in a term", BUG_NONE, GUARD_SOLE_VOTER, 0, 1, 50},
    {"guard G9 is off: the commit index goes back", BUG_NONE, GUARD_COMMIT_MONOTONIC, 0, 0, 50},
};

static int prove(struct settings *settings)
{
    int failed = 0;
    for (size_t i = 0; i < sizeof proofs / sizeof proofs[0]; i++) {
        const struct proof *proof = &proofs[i];
        struct world_stats sum = {0};
        char said[400] = "";
        uint64_t seed = 0;
        settings->runs = proof->seeds;
        settings->options.bug = proof->bug;
        settings->options.guards = GUARD_ALL & ~proof->guards;
        settings->options.durability = proof->durability;
        settings->options.nodes = proof->nodes;
        if (run_seeds(settings, &sum, &seed, said, sizeof said) > 0) {
            printf("ok %s: found by seed %llu\n    %s\n", proof->name, (unsigned long long)seed, said);
        } else {
            printf("not ok %s: not found within %llu seeds\n", proof->name, (unsigned long long)proof->seeds);
            failed++;
        }
        fflush(stdout);
    }
    return failed;
}

/* ---- options ---- */

static uint64_t number(const char *text, const char *name, uint64_t max)
{
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 0);
    if (errno != 0 || *text == '\0' || *text == '-' || *end != '\0' || value > max) {
        fprintf(stderr, "--%s %s: not a number up to %llu\n", name, text, (unsigned long long)max);
        exit(2);
    }
    return value;
}

static enum world_bug bug_of(const char *name)
{
    for (int i = 0; i < BUGS; i++) {
        if (strcmp(name, world_bug_names[i]) == 0)
            return (enum world_bug)i;
    }
    for (int i = 0; i < BUGS; i++)
        fprintf(stderr, "%s\n", world_bug_names[i]);
    exit(2);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"seed", 1, NULL, 's'},   {"runs", 1, NULL, 'r'},  {"seconds", 1, NULL, 't'}, {"nodes", 1, NULL, 'n'},   {"durability", 1, NULL, 'd'},
        {"guards", 1, NULL, 'g'}, {"bug", 1, NULL, 'b'},   {"jobs", 1, NULL, 'j'},    {"limit", 1, NULL, 'l'},   {"prove", 0, NULL, 'p'},
        {"verbose", 0, NULL, 'v'}, {"help", 0, NULL, 'h'}, {NULL, 0, NULL, 0},
    };
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    struct settings settings = {
        .seed = 1,
        .runs = 1,
        .jobs = processors < 1 ? 1 : processors > JOBS_MAX ? JOBS_MAX : (unsigned)processors,
        .options = {.guards = GUARD_ALL, .seconds = 10},
    };
    bool proving = false;
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 's':
            settings.seed = number(optarg, "seed", UINT64_MAX);
            break;
        case 'r':
            settings.runs = number(optarg, "runs", UINT64_MAX);
            break;
        case 't':
            settings.options.seconds = (unsigned)number(optarg, "seconds", 100000);
            break;
        case 'n':
            settings.options.nodes = (int)number(optarg, "nodes", WORLD_NODES_MAX);
            if (settings.options.nodes != 1 && settings.options.nodes != 3 && settings.options.nodes != 5) {
                fprintf(stderr, "--nodes: 1, 3 or 5\n");
                return 2;
            }
            break;
        case 'd':
            settings.options.durability = optarg[0];
            if (strcmp(optarg, "A") != 0 && strcmp(optarg, "B") != 0) {
                fprintf(stderr, "--durability: A or B\n");
                return 2;
            }
            break;
        case 'g':
            settings.options.guards = (unsigned)number(optarg, "guards", GUARD_ALL);
            break;
        case 'b':
            settings.options.bug = bug_of(optarg);
            break;
        case 'j':
            settings.jobs = (unsigned)number(optarg, "jobs", JOBS_MAX);
            if (settings.jobs == 0)
                settings.jobs = 1;
            break;
        case 'l':
            settings.limit = (unsigned)number(optarg, "limit", 1000000);
            break;
        case 'p':
            proving = true;
            break;
        case 'v':
            settings.options.verbose++;
            break;
        case 'h':
            fputs(usage, stdout);
            return 0;
        default:
            fputs("ledgermq_sim --help tells the options\n", stderr);
            return 2;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "%s: not an option\n", argv[optind]);
        return 2;
    }
    if (proving)
        return prove(&settings) == 0 ? 0 : 1;
    struct world_stats sum = {0};
    uint64_t failed = run_seeds(&settings, &sum, NULL, NULL, 0);
    print_stats(&sum);
    printf("%llu runs passed, %llu failed\n", (unsigned long long)sum.runs, (unsigned long long)failed);
    return failed == 0 ? 0 : 1;
}
