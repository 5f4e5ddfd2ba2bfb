/* `mqadmin bench`: how fast a cluster takes messages, in a closed loop with a window of unanswered requests, or in an
 * open one with a rate. */
#include "client/admin/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>

#include "proto/cluster_info.h"
#include "proto/kv_table.h"
#include "proto/request_code.h"
#include "proto/topic_validator.h"

#define SILENCE_NS 10000000000LL /* no answer for so long ends the run */
#define WAIT_NS_MAX 20000000LL
#define LEADER_WAIT_S 30
#define FRAMES_MAX 65536 /* kept ready; of 1 KiB 90 MB */
#define TOPIC_DIGITS 6   /* "-00000" */

struct run {
    struct admin *admin;
    const struct bench_options *options;
    const char *address;
    struct bench_frames *frames;
    struct bench_connection connections[BENCH_CONNECTIONS_MAX];
    int windows[BENCH_CONNECTIONS_MAX];
    int epoll;
    int outstanding;
    int64_t begin_ns, warm_ns, start_ns, end_ns; /* start, end: of what is measured; 0 not yet */
    double cpu_start, cpu_end, own_start, own_end; /* cpu: of the watched processes */
    uint64_t messages, acknowledged; /* measured; all */
    int64_t last_answer_ns;
    struct bench_histogram latency;
    struct bench_codes errors;
    char first_error[300];
    int64_t fdatasync_start, fdatasync_end; /* over all nodes; -1 unknown */
};

/* Sum of raftFdatasyncCount over all nodes; -1 when some node does not tell. */
static int64_t fdatasync_count(struct admin *admin)
{
    struct error ignored = {0};
    struct remoting_response response;
    struct cluster_info info;
    struct admin_targets targets = {.all = calloc(ADMIN_NODES_MAX, sizeof *targets.all)};
    int64_t sum = -1;
    if (targets.all == NULL || admin->name_server_text == NULL || admin->name_server_text[0] == '\0' ||
        admin->name_server_count == 0 ||
        admin_try(admin, admin->name_servers[0], REQUEST_GET_BROKER_CLUSTER_INFO, NULL, NO_BODY, &response,
                  &ignored) != 0) {
        admin_targets_free(&targets);
        return -1;
    }
    if (cluster_info_decode(&info, response.command.body, &ignored) == 0) {
        for (size_t i = 0; i < info.broker_count; i++)
            for (size_t k = 0; k < info.brokers[i].address_count && targets.count < ADMIN_NODES_MAX; k++)
                snprintf(targets.all[targets.count++].address, REMOTING_ADDRESS_MAX, "%.*s",
                         ADMIN_SLICE(info.brokers[i].addresses[k].address));
        cluster_info_close(&info);
    }
    remoting_response_close(&response);
    struct admin_answer *answers = calloc(targets.count + 1, sizeof *answers);
    if (answers != NULL && targets.count > 0) {
        sum = 0;
        admin_call_all(admin, &targets, REQUEST_GET_BROKER_RUNTIME_INFO, 1000, answers);
    }
    for (size_t i = 0; answers != NULL && i < targets.count; i++) {
        struct kv_table table;
        int64_t count = -1;
        if (answers[i].ok) {
            if (kv_table_decode(&table, answers[i].response.command.body, &ignored) == 0) {
                slice_to_i64(kv_table_get(&table, "raftFdatasyncCount"), &count);
                kv_table_close(&table);
            }
            remoting_response_close(&answers[i].response);
        }
        sum = sum < 0 || count < 0 ? -1 : sum + count;
    }
    free(answers);
    admin_targets_free(&targets);
    return sum;
}

static void measure_start(struct run *run, int64_t now)
{
    run->start_ns = now;
    run->cpu_start = bench_cpu_of_watched(run->options);
    run->own_start = bench_own_cpu_seconds();
}

static void measure_stop(struct run *run, int64_t now)
{
    run->end_ns = now;
    run->cpu_end = bench_cpu_of_watched(run->options);
    run->own_end = bench_own_cpu_seconds();
}

/* Keeps what the first refusal said. */
static void note_error(struct run *run, uint8_t *frame, size_t size)
{
    struct remoting_command command;
    if (run->first_error[0] != '\0' || remoting_command_decode(frame, size, &command) != 0)
        return;
    snprintf(run->first_error, sizeof run->first_error, "code %d %.*s", command.code,
             (int)(command.remark.size < 250 ? command.remark.size : 250), (const char *)command.remark.data);
}

/* Counts the answers that one read brought. Rate is counted by arrival, latency for the requests that were due
 * inside. False: the run must end. */
static bool take_answers(struct run *run, struct bench_connection *connection)
{
    int64_t now = bench_now_ns();
    uint8_t *frame;
    size_t size;
    int rv;
    bool open = run->start_ns != 0 && run->end_ns == 0;
    while ((rv = bench_next(connection, &frame, &size)) > 0) {
        int32_t code;
        uint32_t opaque;
        if (!bench_answer(frame, size, &code, &opaque))
            continue;
        struct bench_slot *slot =
            opaque < BENCH_SLOTS && connection->slots != NULL ? &connection->slots[opaque] : NULL;
        if (slot == NULL || slot->due_ns == 0) {
            admin_fail(run->admin, "%s answers what was not asked (opaque %u)", run->address, opaque);
            return false;
        }
        bool due_inside =
            run->start_ns != 0 && slot->due_ns >= run->start_ns && (run->end_ns == 0 || slot->due_ns < run->end_ns);
        if (code == 0 && run->options->transaction && !slot->committing) {
            if (!bench_frames_commit(run->frames, &connection->out, opaque, slot->number, frame, size)) {
                admin_fail(run->admin, "%s acknowledges a half message without saying where it is", run->address);
                return false;
            }
            slot->committing = true;
            run->last_answer_ns = now;
            continue;
        }
        if (code != 0) {
            note_error(run, frame, size);
            if (run->start_ns != 0)
                bench_codes_add(&run->errors, code);
        } else {
            run->acknowledged += (uint64_t)run->options->batch;
            if (open)
                run->messages += (uint64_t)run->options->batch;
            if (due_inside)
                bench_histogram_add(&run->latency, now - slot->due_ns);
        }
        slot->due_ns = 0;
        connection->outstanding--;
        run->outstanding--;
        run->last_answer_ns = now;
    }
    if (rv < 0)
        admin_fail(run->admin, "%s sends what is no frame", run->address);
    return rv == 0;
}

static bool flush_all(struct run *run)
{
    for (int i = 0; i < run->options->connections; i++)
        if (run->connections[i].out.size > 0 && !bench_flush(&run->connections[i])) {
            admin_fail(run->admin, "the connection to %s is lost with %d requests unanswered", run->address,
                       run->outstanding);
            return false;
        }
    return true;
}

static bool read_ready(struct run *run, int64_t wait_ns)
{
    struct epoll_event events[BENCH_CONNECTIONS_MAX];
    int n = epoll_pwait2(run->epoll, events, BENCH_CONNECTIONS_MAX, &(struct timespec){0, wait_ns}, NULL);
    for (int i = 0; i < n; i++) {
        struct bench_connection *connection = &run->connections[events[i].data.u32];
        if (!connection->connected && !bench_flush(connection)) {
            admin_fail(run->admin, "no connection to %s", run->address);
            return false;
        }
        if (!(events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
            continue;
        if (!bench_read(connection)) {
            admin_fail(run->admin, "%s closed the connection with %d requests unanswered%s%s", run->address,
                       run->outstanding, run->first_error[0] != '\0' ? "; first error: " : "", run->first_error);
            return false;
        }
        if (!take_answers(run, connection))
            return false;
    }
    return true;
}

/* Puts into the buffers what the windows (or the rate) allow. */
static bool fill(struct run *run, uint64_t *number, uint64_t limit, int *turn, int64_t *due_ns, int64_t gap_ns,
                 int64_t now, int64_t wall_ns)
{
    const struct bench_options *options = run->options;
    for (int full = 0; full < options->connections && *number < limit && (gap_ns == 0 || *due_ns <= now);) {
        int i = (*turn)++ % options->connections;
        if (run->connections[i].outstanding >= run->windows[i]) {
            full++;
            continue;
        }
        full = 0;
        if (!bench_send(&run->connections[i], run->frames, *number, gap_ns > 0 ? *due_ns : now, wall_ns)) {
            admin_fail(run->admin, "no memory for the requests that wait");
            return false;
        }
        (*number)++;
        *due_ns += gap_ns;
        run->outstanding++;
    }
    return true;
}

static int64_t loop(struct run *run, bool *ok)
{
    const struct bench_options *options = run->options;
    int64_t gap_ns = options->rate > 0 ? (int64_t)(1e9 / options->rate) : 0, wall_offset = bench_wall_offset_ns(),
            now = bench_now_ns();
    int64_t due_ns = now, stop_ns;
    uint64_t number = 0, limit = options->count > 0 ? (uint64_t)options->count : UINT64_MAX;
    int turn = 0;
    run->begin_ns = run->last_answer_ns = now;
    run->warm_ns = now + (int64_t)(options->warmup_s * 1e9);
    stop_ns = options->count > 0 ? INT64_MAX : run->warm_ns + (int64_t)(options->duration_s * 1e9);
    for (;;) {
        bool sending = now < stop_ns && number < limit;
        if (run->start_ns == 0 && now >= run->warm_ns)
            measure_start(run, now);
        if (run->start_ns != 0 && run->end_ns == 0 && (now >= stop_ns || (number >= limit && run->outstanding == 0)))
            measure_stop(run, now);
        if (run->end_ns != 0 && run->outstanding == 0)
            break;
        if (run->outstanding > 0 && now - run->last_answer_ns > SILENCE_NS) {
            if (run->end_ns == 0)
                measure_stop(run, now);
            break;
        }
        if (sending && !fill(run, &number, limit, &turn, &due_ns, gap_ns, now, now + wall_offset))
            return 0;
        int64_t wait = gap_ns > 0 && sending ? due_ns - bench_now_ns() : WAIT_NS_MAX;
        wait = wait < 0 ? 0 : wait > WAIT_NS_MAX ? WAIT_NS_MAX : wait;
        if (!flush_all(run) || !read_ready(run, wait))
            return 0;
        now = bench_now_ns();
    }
    *ok = true;
    return gap_ns > 0 && due_ns < run->end_ns ? (run->end_ns - due_ns) / gap_ns : 0;
}

static void print_processes(const struct run *run, const char *name)
{
    for (int i = 0; i < run->options->pid_count; i++)
        printf("%s%.1f", i > 0 ? "," : "", bench_memory_mib(run->options->pids[i], name));
}

static void report(const struct run *run, int64_t never_sent)
{
    const struct bench_options *options = run->options;
    const struct bench_histogram *latency = &run->latency;
    double seconds = (double)(run->end_ns - run->start_ns) / 1e9;
    double rate = seconds > 0 ? (double)run->messages / seconds : 0, megabytes = rate * options->size / 1e6;
    double cpu = bench_per_million(run->cpu_start, run->cpu_end, run->messages);
    double own = bench_per_million(run->own_start, run->own_end, run->messages);
    int64_t syncs =
        run->fdatasync_start >= 0 && run->fdatasync_end >= 0 ? run->fdatasync_end - run->fdatasync_start : -1;
    double per_sync = syncs > 0 ? (double)run->acknowledged / (double)syncs : 0;
    if (!options->json) {
        printf("%d B, window %d, %d connection%s, %d queue%s%s: %.0f messages/s, %.1f MB/s in %.3f s\n",
               options->size, options->window, options->connections, options->connections > 1 ? "s" : "",
               options->queues, options->queues > 1 ? "s" : "",
               options->serialize_type == REMOTING_BINARY ? ", binary headers" : "", rate, megabytes, seconds);
        printf("latency us: p50 %.0f  p90 %.0f  p99 %.0f  p99.9 %.0f  max %.0f\n", bench_histogram_us(latency, 50),
               bench_histogram_us(latency, 90), bench_histogram_us(latency, 99), bench_histogram_us(latency, 99.9),
               (double)latency->max_ns / 1e3);
        printf("CPU seconds per million: %s%.2f, this program %.2f\n",
               options->pid_count > 0 ? "watched processes " : "nothing watched ", cpu, own);
        if (options->pid_count > 0) {
            printf("memory MiB: RSS ");
            print_processes(run, "VmRSS");
            printf("  anonymous ");
            print_processes(run, "RssAnon");
            printf("  peak RSS ");
            print_processes(run, "VmHWM");
            putchar('\n');
        }
        if (syncs >= 0)
            printf("fdatasync calls of all nodes: %lld, acknowledgements per call %.1f\n", (long long)syncs,
                   per_sync);
        printf("errors ");
        bench_codes_print(&run->errors);
        printf(", unanswered %d%s\n", run->outstanding, never_sent > 0 ? ", rate not reached" : "");
        return;
    }
    printf("{\"mode\":\"send\",\"size\":%d,\"window\":%d,\"conns\":%d,\"queues\":%d,\"batch\":%d,\"rate\":%.0f,"
           "\"header\":\"%s\",\"seconds\":%.6f,"
           "\"messages\":%llu,\"msg_s\":%.1f,\"mb_s\":%.3f,\"p50_us\":%.1f,\"p90_us\":%.1f,\"p99_us\":%.1f,\"p999_"
           "us\":%.1f,\"max_us\":%.1f,"
           "\"cpu_s_per_million\":%.2f,\"own_cpu_s_per_million\":%.2f,\"rss_mib\":[",
           options->size, options->window, options->connections, options->queues, options->batch, options->rate,
           options->serialize_type == REMOTING_BINARY ? "binary" : "json", seconds, (unsigned long long)run->messages,
           rate, megabytes, bench_histogram_us(latency, 50), bench_histogram_us(latency, 90),
           bench_histogram_us(latency, 99), bench_histogram_us(latency, 99.9), (double)latency->max_ns / 1e3, cpu,
           own);
    print_processes(run, "VmRSS");
    printf("],\"rss_anon_mib\":[");
    print_processes(run, "RssAnon");
    printf("],\"peak_rss_mib\":[");
    print_processes(run, "VmHWM");
    printf("],\"acknowledged\":%llu,\"fdatasync\":%lld,\"acks_per_fdatasync\":%.2f,\"errors\":",
           (unsigned long long)run->acknowledged, (long long)syncs, per_sync);
    bench_codes_print(&run->errors);
    printf(",\"unanswered\":%d,\"never_sent\":%lld}\n", run->outstanding, (long long)never_sent);
}

int bench_load(struct admin *admin, const struct bench_options *options, const char *address)
{
    struct run *run = calloc(1, sizeof *run);
    if (run == NULL)
        return admin_fail(admin, "out of memory");
    int status = ADMIN_FAILED;
    bool ok = false;
    run->admin = admin;
    run->options = options;
    run->address = address;
    run->frames = bench_frames_new(options);
    run->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (run->frames == NULL || run->epoll < 0) {
        admin_fail(admin, "no memory for the frames: --size times --batch must stay below 16 MiB");
        goto free_run;
    }
    for (int i = 0; i < options->connections; i++) {
        run->windows[i] = options->rate > 0
                              ? (int)BENCH_SLOTS / 2
                              : options->window / options->connections + (i < options->window % options->connections);
        run->connections[i].descriptor = -1;
    }
    for (int i = 0; i < options->connections; i++)
        if (!bench_connect(&run->connections[i], run->epoll, address, (uint32_t)i)) {
            admin_fail(admin, "no connection to %s", address);
            goto close_connections;
        }
    run->fdatasync_start = fdatasync_count(admin);
    int64_t never_sent = loop(run, &ok);
    if (!ok)
        goto close_connections;
    run->fdatasync_end = fdatasync_count(admin);
    report(run, never_sent);
    status = run->outstanding > 0 || bench_codes_total(&run->errors) > 0 ? ADMIN_FAILED : ADMIN_OK;
    if (run->first_error[0] != '\0')
        admin_fail(admin, "first error: %s", run->first_error);
close_connections:
    for (int i = 0; i < options->connections; i++)
        bench_connection_close(&run->connections[i]);
free_run:
    if (run->epoll >= 0)
        close(run->epoll);
    if (run->frames != NULL)
        bench_frames_free(run->frames);
    free(run);
    return status;
}

/* --- the command ---- */

static bool seconds_option(struct admin *admin, const char *name, double absent, double *value)
{
    const char *text = admin_text(admin, name);
    char *end;
    *value = absent;
    if (text == NULL)
        return true;
    *value = strtod(text, &end);
    if (end != text && *end == '\0' && *value >= 0 && *value <= 1e9)
        return true;
    admin_usage(admin, "--%s takes a number, not '%s'", name, text);
    return false;
}

static bool pids_option(struct admin *admin, struct bench_options *options)
{
    const char *text = admin_text(admin, "pids");
    char copy[512], *rest = copy, *word;
    snprintf(copy, sizeof copy, "%s", text == NULL ? "" : text);
    while ((word = strsep(&rest, ", ")) != NULL) {
        int32_t pid;
        if (word[0] == '\0')
            continue;
        if (!slice_to_i32(slice_of_text(word), &pid) || pid <= 0 || options->pid_count == BENCH_PIDS_MAX ||
            bench_cpu_seconds(pid) < 0) {
            admin_usage(admin, "--pids takes up to %d ids of living processes, '%s' is none", BENCH_PIDS_MAX, word);
            return false;
        }
        options->pids[options->pid_count++] = pid;
    }
    return true;
}

static bool read_options(struct admin *admin, struct bench_options *options)
{
    int64_t topics, queues, variants, delay_level, window, connections, size, batch;
    const char *header = admin_text(admin, "header");
    struct error error = {0};
    options->topic = admin_has(admin, "topic") ? admin_text(admin, "topic") : "mqadmin-bench";
    options->group = "mqadmin-bench";
    if (!admin_number(admin, "topics", 1, 1, 65536, &topics) ||
        !admin_number(admin, "queues", 1, 1, 65536, &queues) ||
        !admin_number(admin, "variants", 0, 1, 1000, &variants) ||
        !admin_number(admin, "delay", 0, 1, 64, &delay_level) ||
        !admin_number(admin, "conns", 1, 1, BENCH_CONNECTIONS_MAX, &connections) ||
        !admin_number(admin, "window", 64, 1, BENCH_CONNECTIONS_MAX * 1024, &window) ||
        !admin_number(admin, "size", 1024, BENCH_STAMP, 4 * 1024 * 1024, &size) ||
        !admin_number(admin, "batch", 1, 1, 65536, &batch) ||
        !admin_number(admin, "count", 0, 1, INT64_MAX, &options->count) ||
        !seconds_option(admin, "rate", 0, &options->rate) ||
        !seconds_option(admin, "duration", 10, &options->duration_s) ||
        !seconds_option(admin, "warmup", options->count > 0 ? 0 : 2, &options->warmup_s) ||
        !pids_option(admin, options))
        return false;
    if (topic_validate(slice_of_text(options->topic), &error) != 0) {
        admin_usage(admin, "topic '%.140s': %s", options->topic, error.message);
        return false;
    }
    if (window < connections || (header != NULL && strcmp(header, "json") != 0 && strcmp(header, "binary") != 0)) {
        admin_usage(admin,
                    window < connections ? "--window must not be below --conns" : "--header takes json or binary");
        return false;
    }
    if (topics * queues * (variants > 0 ? variants : 1) > FRAMES_MAX) {
        admin_usage(admin, "--topics times --queues times --variants must stay below %d", FRAMES_MAX);
        return false;
    }
    if (strlen(options->topic) > LEDGERMQ_NAME_MAX - TOPIC_DIGITS) {
        admin_usage(admin, "topic '%.140s' is too long", options->topic);
        return false;
    }
    if (size * batch > 15 * 1024 * 1024) {
        admin_usage(admin, "--size times --batch must stay below 15 MiB");
        return false;
    }
    options->topics = (int)topics;
    options->queues = (int)queues;
    options->variants = (int)variants;
    options->delay_level = (int)delay_level;
    options->window = (int)window;
    options->connections = (int)connections;
    options->size = (int)size;
    options->batch = (int)batch;
    options->serialize_type = header != NULL && strcmp(header, "binary") == 0 ? REMOTING_BINARY : REMOTING_JSON;
    options->json = admin_has(admin, "json");
    options->failover = admin_has(admin, "failover");
    options->transaction = admin_has(admin, "transaction");
    options->consume = admin_has(admin, "consume");
    options->expression = admin_has(admin, "expression") ? admin_text(admin, "expression") : "*";
    options->expression_type = admin_has(admin, "expressionType") ? admin_text(admin, "expressionType") : "TAG";
    if (options->transaction && (batch > 1 || options->failover || options->consume)) {
        admin_usage(admin, "--transaction goes with none of --batch, --failover and --consume");
        return false;
    }
    if (options->consume && topics > 1) {
        admin_usage(admin, "--consume reads one topic");
        return false;
    }
    return true;
}

/* The other topics, at the leader that made the first one. */
static bool make_more_topics(struct admin *admin, const struct bench_options *options, struct remoting_field *fields,
                             const char *address)
{
    char name[LEDGERMQ_NAME_MAX + 1];
    for (int i = 1; i < options->topics; i++) {
        struct remoting_response response;
        bench_topic_name(options, i, name);
        fields[0].value = name;
        if (!admin_call(admin, address, REQUEST_UPDATE_AND_CREATE_TOPIC, fields, NO_BODY, &response))
            return false;
        remoting_response_close(&response);
    }
    return true;
}

/* The leader's address, once it has made the topics. A cluster that just started may still be electing. */
static bool make_topic(struct admin *admin, const struct bench_options *options, struct admin_targets *brokers,
                       char address[REMOTING_ADDRESS_MAX])
{
    char queues[16], name[LEDGERMQ_NAME_MAX + 1];
    struct error error = {0};
    int status;
    bench_topic_name(options, 0, name);
    snprintf(queues, sizeof queues, "%d", options->queues);
    struct remoting_field fields[] = {{"topic", name},
                                      {"defaultTopic", TOPIC_AUTO_CREATE},
                                      {"readQueueNums", queues},
                                      {"writeQueueNums", queues},
                                      {"perm", "6"},
                                      {"topicFilterType", "SINGLE_TAG"},
                                      {"topicSysFlag", "0"},
                                      {"order", "false"},
                                      {NULL, NULL}};
    for (int64_t give_up = bench_now_ns() + LEADER_WAIT_S * 1000000000LL;;) {
        if (!admin_targets(admin, true, true, brokers, &status))
            return false;
        for (size_t i = 0; i < brokers->count; i++) {
            struct remoting_response response;
            if (brokers->all[i].broker_id != 0)
                continue;
            if (admin_has(admin, "existing")) {
                memcpy(address, brokers->all[i].address, REMOTING_ADDRESS_MAX);
                return true;
            }
            if (admin_try(admin, brokers->all[i].address, REQUEST_UPDATE_AND_CREATE_TOPIC, fields, NO_BODY, &response,
                          &error) == 0) {
                remoting_response_close(&response);
                memcpy(address, brokers->all[i].address, REMOTING_ADDRESS_MAX);
                if (make_more_topics(admin, options, fields, address))
                    return true;
                admin_targets_free(brokers);
                return false;
            }
        }
        if (bench_now_ns() > give_up)
            break;
        admin_targets_free(brokers);
        uv_sleep(100);
    }
    admin_targets_free(brokers);
    admin_fail(admin, "no leader made topic %s within %d s: %s", options->topic, LEADER_WAIT_S,
               error.message[0] != '\0' ? error.message : "no broker has id 0, see mqadmin leader");
    return false;
}

static int bench(struct admin *admin)
{
    struct bench_options options = {0};
    struct admin_targets brokers;
    char address[REMOTING_ADDRESS_MAX];
    if (!read_options(admin, &options))
        return ADMIN_USAGE;
    int status;
    if (options.consume) {
        if (!admin_topic_leaders(admin, options.topic, &brokers, false))
            return ADMIN_FAILED;
        status = bench_consume(admin, &options, brokers.all[0].address);
        admin_targets_free(&brokers);
        return status;
    }
    if (!make_topic(admin, &options, &brokers, address))
        return ADMIN_FAILED;
    status = options.failover ? bench_failover(admin, &options, &brokers) : bench_load(admin, &options, address);
    admin_targets_free(&brokers);
    return status;
}

static const struct admin_option bench_option_rows[] = {
    {'b', "brokerAddr", "ADDRESS", false, "this broker instead of the leader the name server names"},
    {'c', "clusterName", "CLUSTER", false, "this cluster"},
    {'t', "topic", "TOPIC", false, "made if need be: mqadmin-bench"},
    {'s', "size", "BYTES", false, "of a body, at least 24: 1024"},
    {'w', "window", "N", false, "unanswered requests, over all connections: 64"},
    {0, "conns", "N", false, "connections: 1"},
    {'q', "queues", "N", false, "queues, used in turn: 1"},
    {0, "topics", "N", false, "so many topics with that many queues each, TOPIC-00000 and so on: 1"},
    {0, "existing", NULL, false, "the topics are there and are left as they are"},
    {0, "variants", "N", false, "messages have tags T0, T1, ... and a property a=0, 1, ... in turn"},
    {0, "delay", "LEVEL", false, "messages are delayed"},
    {0, "transaction", NULL, false, "half messages, each committed when it is acknowledged; the commit's answer counts"},
    {0, "consume", NULL, false, "read all that the topic holds instead of sending, at most --duration seconds"},
    {0, "expression", "TEXT", false, "what --consume wants, as a consumer subscribes: *"},
    {0, "expressionType", "TAG|SQL92", false, "TAG"},
    {0, "batch", "N", false, "messages in one request (SEND_BATCH_MESSAGE): 1"},
    {'r', "rate", "N", false, "open loop: so many requests a second; latency counts from the time each was due"},
    {'d', "duration", "SECONDS", false, "measured time: 10"},
    {0, "warmup", "SECONDS", false, "before it: 2"},
    {0, "count", "N", false, "so many requests instead of a time"},
    {0, "header", "json|binary", false, "form of the headers: json"},
    {'p', "pids", "PID,...", false, "processes whose CPU time and memory are reported"},
    {'f', "failover", NULL, false,
     "go on over a change of leader, trying all brokers; report the longest time without an acknowledgement"},
    {'j', "json", NULL, false, "one line of JSON"},
    {0, NULL, NULL, false, NULL},
};

const struct admin_command bench_commands[] = {
    {"bench", "Measure how fast a cluster takes messages", bench_option_rows, bench,
     "One thread, frames made in advance, properties of a stock client (UNIQ_KEY, WAIT). Rate counts "
     "acknowledgements that arrived in the measured\n"
     "time; percentiles come from buckets 1.6 % wide. Exit status 0: no error code, nothing unanswered (--failover: "
     "acknowledged again at the end)."},
    {NULL, NULL, NULL, NULL, NULL},
};
