/* mqnamesrv: the name server alone (org.apache.rocketmq.namesrv.NamesrvStartup). */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/log.h"
#include "broker/namesrv/namesrv.h"

#define CONFIG_FILE_MAX (1u << 20)
#define LOG_FILE_BYTES (64u << 20)
#define LOG_FILES 5

static const char help[] = "mqnamesrv - LedgerMQ's name server, which RocketMQ clients and brokers use like their own\n"
                           "\n"
                           "usage: mqnamesrv [-c FILE] [-p]\n"
                           "  -c, --configFile FILE   namesrv.conf: RocketMQ's keys (listenPort, kvConfigPath, orderMessageEnable, ...)\n"
                           "  -p, --printConfigItem   print the configuration that would be used, and end\n"
                           "  -h, --help              this text\n"
                           "      --version           version\n"
                           "It ends cleanly on SIGTERM and SIGINT. Exit status: 0 ended cleanly, 1 could not start, 2 wrong usage.\n";

struct program {
    uv_loop_t loop;
    uv_signal_t term, interrupt;
    struct namesrv *namesrv;
};

static int read_config(struct namesrv_config *config, const char *path, struct error *error)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return error_set(error, ERROR_IO, "%s: %s", path, strerror(errno));
    struct buffer text;
    buffer_init(&text, CONFIG_FILE_MAX + 1);
    int rv = 0;
    size_t got = 0;
    do {
        uint8_t *at = buffer_reserve(&text, 4096);
        if (at == NULL) {
            rv = error_set(error, ERROR_TOO_LARGE, "%s: larger than %u bytes", path, CONFIG_FILE_MAX);
            break;
        }
        got = fread(at, 1, 4096, file);
        text.size += got;
    } while (got != 0);
    if (rv == 0 && ferror(file))
        rv = error_set(error, ERROR_IO, "%s: cannot be read", path);
    fclose(file);
    if (rv == 0)
        rv = namesrv_config_read(config, buffer_slice(&text), path, error);
    buffer_close(&text);
    return rv;
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct program *program = handle->data;
    LOG_INFO("signal %d: the name server ends", number);
    uv_close((uv_handle_t *)&program->term, NULL);
    uv_close((uv_handle_t *)&program->interrupt, NULL);
    namesrv_stop(program->namesrv, NULL, NULL);
}

static int run(const struct namesrv_config *config, struct error *error)
{
    struct program program = {0};
    struct env env;
    env_real_init(&env);
    uv_loop_init(&program.loop);
    int rv = namesrv_start(&program.namesrv, &program.loop, &env, config, error);
    if (rv == 0) {
        uv_signal_init(&program.loop, &program.term);
        uv_signal_init(&program.loop, &program.interrupt);
        program.term.data = program.interrupt.data = &program;
        uv_signal_start(&program.term, on_signal, SIGTERM);
        uv_signal_start(&program.interrupt, on_signal, SIGINT);
        LOG_INFO("the name server listens on port %d", config->listen_port);
        printf("The Name Server boot success. serializeType=JSON\n");
        fflush(stdout);
    }
    uv_run(&program.loop, UV_RUN_DEFAULT); /* also after a failed start: closes what was open */
    uv_loop_close(&program.loop);
    return rv;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"configFile", required_argument, NULL, 'c'}, {"printConfigItem", no_argument, NULL, 'p'}, {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'v'},          {NULL, 0, NULL, 0},
    };
    struct namesrv_config config;
    struct error error;
    namesrv_config_init(&config);
    const char *home = getenv("HOME");
    snprintf(config.kv_config_path, sizeof config.kv_config_path, "%s/namesrv/kvConfig.json", home == NULL ? "." : home);
    snprintf(config.config_store_path, sizeof config.config_store_path, "%s/namesrv/namesrv.properties", home == NULL ? "." : home);
    const char *log_dir = getenv("LEDGERMQ_LOG_DIR");
    if (log_dir != NULL)
        snprintf(config.log_dir, sizeof config.log_dir, "%s", log_dir);
    bool print = false;
    for (int option; (option = getopt_long(argc, argv, "c:ph", options, NULL)) != -1;) {
        switch (option) {
        case 'c':
            if (read_config(&config, optarg, &error) != 0) {
                fprintf(stderr, "mqnamesrv: %s\n", error.message);
                return 1;
            }
            break;
        case 'p':
            print = true;
            break;
        case 'h':
            fputs(help, stdout);
            return 0;
        case 'v':
            puts("mqnamesrv (LedgerMQ) " LEDGERMQ_VERSION);
            return 0;
        default:
            fputs(help, stderr);
            return 2;
        }
    }
    if (optind != argc) {
        fprintf(stderr, "mqnamesrv: unexpected argument %s\n", argv[optind]);
        return 2;
    }
    if (print) {
        struct buffer out;
        buffer_init(&out, 0);
        namesrv_config_print(&config, &out);
        fwrite(out.data, 1, out.size, stdout);
        buffer_close(&out);
        return 0;
    }
    signal(SIGPIPE, SIG_IGN);
    if (config.log_dir[0] != 0) {
        enum log_level level = LOG_LEVEL_INFO;
        log_level_parse(config.log_level, &level);
        struct log_options log = {config.log_dir, "namesrv.log", LOG_FILE_BYTES, LOG_FILES, level, true};
        if (log_open(&log, &error) != 0) {
            fprintf(stderr, "mqnamesrv: %s\n", error.message);
            return 1;
        }
    }
    if (run(&config, &error) != 0) {
        fprintf(stderr, "mqnamesrv: cannot start: %s\n", error.message);
        return 1;
    }
    return 0;
}
