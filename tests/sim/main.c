/* ledgermq_sim: the command line of the simulator. */
#include <errno.h>
#include <getopt.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/sim/bugs.h"
#include "tests/sim/drivers.h"
#include "tests/sim/runs.h"

static const char usage[] =
    "ledgermq_sim: members of a group in virtual time, with faults, and a checker\n"
    "\n"
    "    ledgermq_sim --seconds S --seed N [--nodes 1|3|5] [--bug NAME] [--json]\n"
    "    ledgermq_sim --seed N [--runs R] [--length L] [--faults LIST] [--verbose]\n"
    "    ledgermq_sim --prove [--bug NAME]\n"
    "\n"
    "    --seconds S     seeds from N on, one after the other, for so many seconds of real time; then the runs that began are ended\n"
    "    --seed N        first seed (1); the same seed and options always give the same run\n"
    "    --runs R        how many seeds at most (1 without --seconds)\n"
    "    --length L      seconds of faults in each run, in virtual time (20)\n"
    "    --nodes N       1, 3 or 5; else the seed decides between 3 and 5\n"
    "    --durability C  A or B; else the seed decides\n"
    "    --bug NAME      puts a fault of ours in, to see that the checker finds it (list: --bug help)\n"
    "    --backup        a backup is made and restored in each run; else in one of twelve\n"
    "    --drivers[=PLAY]  the drivers of Raft alone, on a network that reorders and doubles messages; else the seed decides between the plays\n"
    "    --faults LIST   of the faults of this seed only those with these numbers, \"3,17\" or \"none\" (as a shortened schedule says)\n"
    "    --json          the last line is {\"runs\",\"hours\",\"client_ops\",\"violations\",\"cpu_seconds\",\"times_real_time\",\"faults\"}; hours: virtual\n"
    "    --jobs J        runs at a time (number of processors)\n"
    "    --prove         bug by bug of the list (or that one): the seeds until it was found, what it violated\n"
    "    --verbose       what happens, on standard error; twice: more\n"
    "\n"
    "A seed that fails is printed with the command that plays it again, the first one with a shortened schedule too.\n"
    "Exit status 0 when nothing was violated.\n";

static void print_stats(const struct world_stats *s)
{
#define U(x) ((unsigned long long)(x))
    printf("%llu runs, %.0f s of virtual time, %llu events, %llu steps of members\n", U(s->runs), (double)s->virtual_us / 1e6, U(s->events),
           U(s->steps));
    printf("calls %llu: acknowledged %llu, unknown %llu; refused %llu; metadata records %llu, raw entries %llu; pulls %llu, messages served %llu, damaged ones refused %llu\n",
           U(s->sends), U(s->acknowledged), U(s->unknown), U(s->refused), U(s->metadata), U(s->raw), U(s->pulls), U(s->pulled), U(s->pulls_damaged));
    printf("topics deleted in use %llu times, %llu messages in them, %llu delayed ones for them; sends refused thereby %llu\n", U(s->deletions),
           U(s->deleted_messages), U(s->dropped_messages), U(s->refused_sends));
    printf("decisions to delete the log's beginning %llu, segments deleted by all members %llu; bulk fetches %llu, old copies %llu\n", U(s->trims), U(s->trimmed),
           U(s->bulk_fetches), U(s->old_copies));
    printf("entries %llu, committed %llu, cut %llu; elections %llu, late votes %llu (%llu lost); starts %llu (%llu failed); caught up again %llu; stopped for good %llu\n",
           U(s->entries), U(s->committed), U(s->cut_entries), U(s->elections), U(s->late_votes), U(s->late_votes_lost), U(s->starts), U(s->start_failures), U(s->caught_up),
           U(s->failed_members));
    printf("messages %llu, lost %llu, with a flipped bit %llu; connections %llu; power cuts %llu (torn pages %llu, lost names %llu)\n", U(s->messages), U(s->messages_lost),
           U(s->bits_flipped), U(s->connections), U(s->power_cuts), U(s->torn_pages), U(s->lost_names));
    printf("class A: a majority without power %llu times, acknowledged and lost thereby %llu; runs without a bare majority %llu, that wait for a person %llu\n",
           U(s->losses), U(s->excused), U(s->runs_without_bare_majority), U(s->runs_that_wait_for_a_person));
    printf("changes of the group %llu: members come %llu, go %llu; who is no member is refused %llu times\n", U(s->changes), U(s->members_come),
           U(s->members_go), U(s->greetings_refused));
    printf("backups begun %llu, made %llu; members restored %llu, interrupted %llu, refused %llu\n", U(s->backups_begun), U(s->backups), U(s->restores),
           U(s->restores_interrupted), U(s->restores_refused));
    printf("progress after faults, every half second:");
    for (int i = 0; i < WORLD_PROGRESS_STEPS; i++)
        printf(" %llu", U(s->progress[i]));
    printf("\n");
    for (int i = 0; i < CHAOS_KINDS; i++)
        printf("%s%s %llu", i == 0 ? "faults: " : ", ", chaos_names[i], U(s->chaos[i]));
    printf("\n");
#undef U
}

/* Of this process and those that made the runs, user and system. */
static double cpu_seconds(void)
{
    static const int whose[] = {RUSAGE_SELF, RUSAGE_CHILDREN};
    double sum = 0;
    for (int i = 0; i < 2; i++) {
        struct rusage used;
        if (getrusage(whose[i], &used) == 0)
            sum += (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    }
    return sum;
}

static double times_real_time(const struct world_stats *s, double cpu)
{
    return cpu > 0 ? (double)s->virtual_us / 1e6 / cpu : 0;
}

static void print_json(const struct world_stats *s, uint64_t failed, double cpu)
{
    printf("{\"runs\":%llu,\"hours\":%.3f,\"client_ops\":%llu,\"violations\":%llu,\"cpu_seconds\":%.3f,\"times_real_time\":%.0f,\"faults\":{",
           (unsigned long long)(s->runs + failed), (double)s->virtual_us / 3.6e9, (unsigned long long)s->sends, (unsigned long long)failed, cpu,
           times_real_time(s, cpu));
    for (int i = 0; i < CHAOS_KINDS; i++)
        printf("%s\"%s\":%llu", i == 0 ? "" : ",", chaos_names[i], (unsigned long long)s->chaos[i]);
    printf("}}\n");
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

static enum seeded_bug bug_of(const char *name)
{
    for (int i = 0; i < SEEDED_BUGS; i++) {
        if (strcmp(name, seeded_bug_names[i]) == 0)
            return (enum seeded_bug)i;
    }
    for (int i = 0; i < SEEDED_BUGS; i++)
        fprintf(stderr, "%-20s %s\n", seeded_bug_names[i], seeded_bug_texts[i]);
    exit(2);
}

static int play_of(const char *name)
{
    for (int i = 0; i < PLAYS; i++) {
        if (strcmp(name, drivers_play_names[i]) == 0)
            return i;
    }
    fprintf(stderr, "--drivers=%s: the plays are", name);
    for (int i = PLAY_NONE + 1; i < PLAYS; i++)
        fprintf(stderr, " %s", drivers_play_names[i]);
    fprintf(stderr, "\n");
    exit(2);
}

/* "3,17": all others are left out. */
static const bool *faults_but(const char *list)
{
    static bool left_out[WORLD_FAULTS_MAX];
    memset(left_out, 1, sizeof left_out);
    if (strcmp(list, "none") == 0)
        return left_out;
    for (const char *at = list;;) {
        char *end;
        unsigned long number = strtoul(at, &end, 10);
        if (end == at || *at == '-' || number >= WORLD_FAULTS_MAX || (*end != ',' && *end != '\0')) {
            fprintf(stderr, "--faults %s: not a list of numbers below %u\n", list, WORLD_FAULTS_MAX);
            exit(2);
        }
        left_out[number] = false;
        if (*end == '\0')
            return left_out;
        at = end + 1;
    }
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"seed", 1, NULL, 's'},   {"runs", 1, NULL, 'r'},  {"length", 1, NULL, 't'}, {"nodes", 1, NULL, 'n'},   {"durability", 1, NULL, 'd'},
        {"bug", 1, NULL, 'b'},     {"drivers", 2, NULL, 'D'},    {"jobs", 1, NULL, 'j'},    {"prove", 0, NULL, 'p'},
        {"seconds", 1, NULL, 'S'}, {"json", 0, NULL, 'J'},   {"faults", 1, NULL, 'f'}, {"verbose", 0, NULL, 'v'}, {"backup", 0, NULL, 'B'}, {"help", 0, NULL, 'h'}, {NULL, 0, NULL, 0},
    };
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    struct settings settings = {
        .seed = 1,
        .jobs = processors < 1 ? 1 : processors > RUNS_JOBS_MAX ? RUNS_JOBS_MAX : (unsigned)processors,
        .options = {.seconds = 20},
    };
    bool proving = false, json = false;
    int option;

    /* Members that come and go take and give back the same large pieces all the time (glibc's malloc; mimalloc does by itself). */
    mallopt(M_MMAP_THRESHOLD, 64 << 20);
    mallopt(M_TRIM_THRESHOLD, 512 << 20);

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 's':
            settings.seed = number(optarg, "seed", UINT64_MAX);
            break;
        case 'r':
            settings.runs = number(optarg, "runs", UINT64_MAX);
            break;
        case 't':
            settings.options.seconds = (unsigned)number(optarg, "length", 100000);
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
        case 'b':
            settings.options.bug = bug_of(optarg);
            break;
        case 'j':
            settings.jobs = (unsigned)number(optarg, "jobs", RUNS_JOBS_MAX);
            if (settings.jobs == 0)
                settings.jobs = 1;
            break;
        case 'B':
            settings.options.backup = true;
            break;
        case 'D':
            settings.options.drivers = true;
            settings.options.play = optarg == NULL ? PLAY_NONE : play_of(optarg);
            break;
        case 'S':
            settings.limit = (unsigned)number(optarg, "seconds", 1000000);
            break;
        case 'J':
            json = true;
            break;
        case 'f':
            settings.options.left_out = faults_but(optarg);
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
    if (settings.runs == 0 && settings.limit == 0)
        settings.runs = 1;
    struct world_stats sum = {0};
    uint64_t failed = runs_of_seeds(&settings, &sum, NULL);
    double cpu = cpu_seconds();
    print_stats(&sum);
    printf("%.1f s of CPU time: one core simulates %.0f times real time\n", cpu, times_real_time(&sum, cpu));
    printf("%llu runs passed, %llu failed\n", (unsigned long long)sum.runs, (unsigned long long)failed);
    if (json)
        print_json(&sum, failed, cpu);
    return failed == 0 ? 0 : 1;
}
