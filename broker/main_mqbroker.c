/* mqbroker: one node of a replica group, name server included (org.apache.rocketmq.broker.BrokerStartup). */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "broker/broker.h"
#include "broker/log.h"

#define STOP_MS 9500u /* a container gets 10 s */

enum exit_status {
    EXIT_STOPPED = 0,
    EXIT_START = 1,
    EXIT_USAGE = 2,
    EXIT_LOCKED = 3,
    EXIT_DAMAGED = 4,
    EXIT_NOT_CLEAN = 5,
};

static const char help[] =
    "mqbroker - one node of LedgerMQ, a message broker that speaks RocketMQ's protocol and keeps every message in a Raft-replicated log\n"
    "\n"
    "usage: mqbroker [-c FILE] [-n ADDRESSES] [--set KEY=VALUE]... [-p | --force-new-group]\n"
    "  -c, --configFile FILE        broker.conf: RocketMQ's keys (brokerName, listenPort, dLegerPeers, flushDiskType, ...)\n"
    "  -n, --namesrvAddr ADDRESSES  name servers, host:port;host:port (goes before FILE)\n"
    "      --set KEY=VALUE          a key of broker.conf (goes before FILE)\n"
    "  -p, --printConfigItem        print every key with its value and whether it has an effect, and end\n"
    "      --print-config-table     the same as documentation, in Markdown\n"
    "      --force-new-group        after the loss of a majority for good: make this member, which must not run, the only one of its group, and end.\n"
    "                               May lose acknowledged messages; read docs/group.md first\n"
    "  -h, --help                   this text\n"
    "      --version                version\n"
    "It ends cleanly, within 10 s, on SIGTERM and SIGINT.\n"
    "Exit status: 0 ended cleanly; 1 could not start (the reason is on standard error); 2 wrong command line or configuration;\n"
    "3 another process has the directory; 4 the data is damaged (file, offset and remedy are named); 5 could not end cleanly in time.\n";

/* Static, so that all of it is zero before broker_open. */
static struct program {
    uv_loop_t loop;
    uv_signal_t term, interrupt;
    uv_timer_t stop_timer;
    struct broker broker;
    char **arguments;
    bool restarts; /* begins anew when it has stopped */
} program;

/* The same program with the same arguments in the same process: no handle is inherited, and whoever watches over the process need not know. */
static void begin_anew(void)
{
    execv("/proc/self/exe", program.arguments);
    fprintf(stderr, "mqbroker: it could not begin anew: %s\n", strerror(errno));
}

static void on_stop_timeout(uv_timer_t *timer)
{
    (void)timer;
    if (program.restarts)
        begin_anew();
    LOG_ERROR("the broker could not end cleanly within %u ms; the next start recovers", STOP_MS);
    log_close();
    _exit(EXIT_NOT_CLEAN);
}

static void on_stopped(void *argument)
{
    (void)argument;
    uv_close((uv_handle_t *)&program.term, NULL);
    uv_close((uv_handle_t *)&program.interrupt, NULL);
    uv_close((uv_handle_t *)&program.stop_timer, NULL);
}

static void stop(void)
{
    uv_timer_start(&program.stop_timer, on_stop_timeout, STOP_MS, 0);
    broker_stop(&program.broker, on_stopped, NULL);
}

static void on_signal(uv_signal_t *handle, int number)
{
    (void)handle;
    program.restarts = false;
    /* Whoever stops services may say it twice. Without a handler the second signal would end the process at once, and the next start would have to do
     * what the stop had not done. */
    if (program.broker.stopping)
        return;
    LOG_INFO("signal %d: the broker stops", number);
    stop();
}

static void on_restart(void *argument)
{
    (void)argument;
    if (program.broker.stopping)
        return;
    LOG_INFO("the broker begins anew");
    program.restarts = true;
    stop();
}

static int exit_status_of(int code)
{
    switch (code) {
    case ERROR_LOCKED:
        return EXIT_LOCKED;
    case ERROR_DAMAGED:
        return EXIT_DAMAGED;
    case ERROR_INVALID:
    case ERROR_MALFORMED:
        return EXIT_USAGE;
    default:
        return EXIT_START;
    }
}

static int fail(const struct error *error)
{
    LOG_ERROR("mqbroker: %s", error->message);
    return exit_status_of(error->code);
}

static void print_and_free(struct buffer *out)
{
    fwrite(out->data, 1, out->size, stdout);
    buffer_close(out);
}

static int open_log_file(const struct broker_config *config, struct error *error)
{
    enum log_level level = LOG_LEVEL_INFO;
    (void)log_level_parse(config->log_level, &level);
    const struct log_options options = {
        .dir = config->log_dir,
        .name = "broker.log",
        .file_bytes = (uint64_t)config->log_file_size,
        .file_count = (unsigned)config->log_file_count,
        .level = level,
        .echo = true,
    };
    return log_open(&options, error);
}

static int run(struct error *error)
{
    struct broker *broker = &program.broker;
    uv_loop_init(&program.loop);
    int rv = broker_open(broker, &program.loop, error);
    if (rv != 0)
        return fail(error);
    uv_signal_init(&program.loop, &program.term);
    uv_signal_init(&program.loop, &program.interrupt);
    uv_timer_init(&program.loop, &program.stop_timer);
    uv_signal_start(&program.term, on_signal, SIGTERM);
    uv_signal_start(&program.interrupt, on_signal, SIGINT);
    broker->restart = on_restart;
    printf("The broker[%s, %s] boot success. serializeType=JSON\n", broker->config.broker_name, broker->address);
    fflush(stdout);
    uv_run(&program.loop, UV_RUN_DEFAULT);
    broker_free(broker);
    uv_loop_close(&program.loop);
    broker_config_close(&broker->config);
    log_close();
    if (!program.restarts)
        return EXIT_STOPPED;
    begin_anew();
    return EXIT_START;
}

static int force(struct error *error)
{
    struct buffer told;
    buffer_init(&told, 0);
    int rv = broker_force_new_group(&program.broker, &told, error);
    if (rv != 0)
        return fail(error);
    struct cursor lines = cursor_of(buffer_slice(&told));
    while (cursor_left(&lines) > 0) {
        const uint8_t *end = memchr(lines.at, '\n', cursor_left(&lines));
        struct slice line = cursor_slice(&lines, end == NULL ? cursor_left(&lines) : (size_t)(end - lines.at));
        cursor_slice(&lines, end == NULL ? 0 : 1);
        LOG_WARN("%.*s", (int)line.size, (const char *)line.data);
    }
    buffer_close(&told);
    broker_config_close(&program.broker.config);
    log_close();
    return EXIT_STOPPED;
}

int main(int argc, char **argv)
{
    enum { OPTION_VERSION = 256, OPTION_SET, OPTION_TABLE, OPTION_FORCE };
    static const struct option options[] = {
        {"configFile", required_argument, NULL, 'c'},
        {"namesrvAddr", required_argument, NULL, 'n'},
        {"printConfigItem", no_argument, NULL, 'p'},
        {"print-config-table", no_argument, NULL, OPTION_TABLE},
        {"force-new-group", no_argument, NULL, OPTION_FORCE},
        {"set", required_argument, NULL, OPTION_SET},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, OPTION_VERSION},
        {NULL, 0, NULL, 0},
    };
    struct broker_config *config = &program.broker.config;
    struct error error;
    struct buffer out;
    bool print = false, force_new_group = false;
    program.arguments = argv;
    int rv = broker_config_init(config, &error);
    if (rv != 0)
        return fail(&error);
    buffer_init(&out, 0);
    /* The command line goes before the file wherever it stands, so the file is read first. */
    for (int option; (option = getopt_long(argc, argv, "c:n:ph", options, NULL)) != -1;) {
        if (option == 'c' && (rv = broker_config_read_file(config, optarg, &error)) != 0) {
            LOG_ERROR("mqbroker: %s", error.message);
            return EXIT_USAGE;
        }
    }
    optind = 1;
    for (int option; (option = getopt_long(argc, argv, "c:n:ph", options, NULL)) != -1;) {
        switch (option) {
        case 'c':
            break;
        case 'n':
            rv = broker_config_set(config, "namesrvAddr", slice_of_text(optarg), &error);
            break;
        case 'p':
            print = true;
            break;
        case OPTION_SET: {
            char *equals = strchr(optarg, '=');
            if (equals == NULL) {
                fprintf(stderr, "mqbroker: --set %s: KEY=VALUE is needed\n", optarg);
                return EXIT_USAGE;
            }
            *equals = '\0';
            rv = broker_config_set(config, optarg, slice_of_text(equals + 1), &error);
            *equals = '='; /* begin_anew() hands it on */
            break;
        }
        case OPTION_TABLE:
            broker_config_print_table(&out);
            print_and_free(&out);
            broker_config_close(config);
            return EXIT_STOPPED;
        case OPTION_FORCE:
            force_new_group = true;
            break;
        case 'h':
            fputs(help, stdout);
            broker_config_close(config);
            return EXIT_STOPPED;
        case OPTION_VERSION:
            puts("mqbroker (LedgerMQ) " LEDGERMQ_VERSION);
            broker_config_close(config);
            return EXIT_STOPPED;
        default:
            fputs(help, stderr);
            return EXIT_USAGE;
        }
        if (rv != 0) {
            LOG_ERROR("mqbroker: %s", error.message);
            return EXIT_USAGE;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "mqbroker: unexpected argument %s\n", argv[optind]);
        return EXIT_USAGE;
    }
    rv = broker_config_finish(config, &error);
    if (rv != 0)
        return fail(&error);
    if (print) {
        broker_config_print(config, &out);
        print_and_free(&out);
        broker_config_close(config);
        return EXIT_STOPPED;
    }

    signal(SIGPIPE, SIG_IGN);
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    if (broker_take_directory(&program.broker, &error) != 0 || open_log_file(config, &error) != 0)
        return fail(&error);
    return force_new_group ? force(&error) : run(&error);
}
