#include "client/admin/admin.h"

#include <getopt.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "proto/consume_stats.h"
#include "proto/request_code.h"
#include "proto/response_code.h"
#include "proto/topic_route_data.h"

#define LETTER_NONE 256 /* + place: long-only options */

static const struct admin_command *const families[] = {
    topic_commands,   group_commands,  offset_commands, client_commands, broker_commands,
    message_commands, print_commands,  namesrv_commands, leader_commands, bench_commands,
};
#define FAMILY_COUNT (sizeof families / sizeof families[0])

static const struct admin_option common_options[] = {
    {'n', "namesrvAddr", "ADDRESSES", false, "name servers, host:port with ';' between (else from NAMESRV_ADDR)"},
    {'h', "help", NULL, false, "this text"},
    {0, "timeout", "MS", false, "for one request: 5000"},
    {0, NULL, NULL, false, NULL},
};

/* --- options ---- */

static int place_of(const struct admin *admin, const char *name)
{
    for (int i = 0; admin->command->options[i].name != NULL; i++)
        if (strcmp(admin->command->options[i].name, name) == 0)
            return i;
    return -1;
}

const char *admin_text(const struct admin *admin, const char *name)
{
    int place = place_of(admin, name);
    return place < 0 ? NULL : admin->values[place];
}

bool admin_has(const struct admin *admin, const char *name)
{
    return admin_text(admin, name) != NULL;
}

bool admin_number(const struct admin *admin, const char *name, int64_t absent, int64_t min, int64_t max,
                  int64_t *value)
{
    const char *text = admin_text(admin, name);
    *value = absent;
    if (text == NULL)
        return true;
    if (slice_to_i64(slice_of_text(text), value) && *value >= min && *value <= max)
        return true;
    admin_usage(admin, "--%s takes a number from %lld to %lld, not '%s'", name, (long long)min, (long long)max, text);
    return false;
}

bool admin_bool(const struct admin *admin, const char *name, bool absent, bool *value)
{
    const char *text = admin_text(admin, name);
    *value = absent;
    if (text == NULL || slice_to_bool(slice_of_text(text), value))
        return true;
    admin_usage(admin, "--%s takes true or false, not '%s'", name, text);
    return false;
}

bool admin_time_option(struct admin *admin, const char *name, int64_t *ms)
{
    const char *text = admin_text(admin, name);
    struct tm local = {.tm_isdst = -1};
    *ms = 0;
    if (text == NULL || slice_to_i64(slice_of_text(text), ms))
        return true;
    if (strcmp(text, "now") == 0) {
        *ms = client_clock_ms();
        return true;
    }
    const char *rest = strptime(text, "%Y-%m-%d#%H:%M:%S", &local);
    if (rest == NULL || (*rest != '\0' && *rest != ':')) {
        admin_usage(admin, "--%s takes milliseconds or yyyy-MM-dd#HH:mm:ss:SSS, not '%s'", name, text);
        return false;
    }
    *ms = (int64_t)mktime(&local) * 1000 + (*rest == ':' ? strtol(rest + 1, NULL, 10) : 0);
    return true;
}

/* --- telling ---- */

int admin_fail(const struct admin *admin, const char *format, ...)
{
    va_list arguments;
    fflush(stdout);
    fprintf(stderr, "mqadmin %s: ", admin->command->name);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    return ADMIN_FAILED;
}

int admin_usage(const struct admin *admin, const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "mqadmin %s: ", admin->command->name);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "; see mqadmin help %s\n", admin->command->name);
    return ADMIN_USAGE;
}

static void print_options(const struct admin_option *options)
{
    for (; options->name != NULL; options++) {
        char left[64];
        snprintf(left, sizeof left, "%c%c%s --%s%s%s", options->letter != 0 ? '-' : ' ',
                 options->letter != 0 ? options->letter : ' ', options->letter != 0 ? "," : " ", options->name,
                 options->argument != NULL ? " " : "", options->argument != NULL ? options->argument : "");
        printf("  %-38s %s%s\n", left, options->help, options->required ? " (required)" : "");
    }
}

static void print_command_help(FILE *out, const struct admin_command *command)
{
    fprintf(out, "usage: mqadmin %s", command->name);
    for (const struct admin_option *option = command->options; option->name != NULL; option++) {
        if (!option->required)
            continue;
        if (option->letter != 0)
            fprintf(out, " -%c %s", option->letter, option->argument);
        else
            fprintf(out, " --%s %s", option->name, option->argument);
    }
    fprintf(out, " [OPTIONS]\n%s\n\n", command->summary);
    fflush(out);
    print_options(command->options);
    print_options(common_options);
    if (command->notes != NULL)
        printf("\n%s\n", command->notes);
}

static void print_help(void)
{
    printf("usage: mqadmin COMMAND [OPTIONS]\n\n");
    for (size_t i = 0; i < FAMILY_COUNT; i++) {
        for (const struct admin_command *command = families[i]; command->name != NULL; command++)
            printf("  %-22s %s\n", command->name, command->summary);
        putchar('\n');
    }
    printf("'mqadmin help COMMAND' shows a command's options. Exit status: 0 done, 1 failed, 2 wrong usage.\n");
}

/* --- talking ---- */

static bool need_name_servers(struct admin *admin)
{
    struct error error = {0};
    if (admin->name_server_count > 0)
        return true;
    admin->name_servers = calloc(ROUTE_NAME_SERVERS_MAX, sizeof *admin->name_servers);
    if (admin->name_servers == NULL)
        abort();
    admin->name_server_count = route_split_name_servers(admin->name_server_text, admin->name_servers, &error);
    if (admin->name_server_count > 0)
        return true;
    admin_fail(admin, "%s; option -n does that too", error.message);
    free(admin->name_servers);
    admin->name_servers = NULL;
    return false;
}

bool admin_connect(struct admin *admin)
{
    struct ledgermq_client_options options;
    struct ledgermq_error error;
    if (admin->client != NULL)
        return true;
    ledgermq_client_options_init(&options);
    options.name_servers = admin->name_server_text;
    options.call_timeout_ms = admin->timeout_ms;
    /* A command that is told a broker's address needs no name server, the client always wants one. */
    if (options.name_servers == NULL || options.name_servers[0] == '\0')
        options.name_servers = "127.0.0.1:9876";
    if (ledgermq_client_new(&options, &admin->client, &error) == LEDGERMQ_OK)
        return true;
    admin_fail(admin, "%s", error.message);
    return false;
}

int admin_try(struct admin *admin, const char *address, int32_t code, const struct remoting_field *fields,
              struct slice body, struct remoting_response *response, struct error *error)
{
    if (!admin_connect(admin))
        return error_set(error, ERROR_INVALID, "no client");
    int rv = remoting_client_invoke(admin->client->remoting, address, code, fields, body, admin->timeout_ms, response,
                                    error);
    if (rv != 0 || response->command.code == RESPONSE_SUCCESS)
        return rv;
    const char *name = response_code_name(response->command.code);
    error_set(error, ERROR_NOT_LEADER, "CODE: %d %s DESC: %.*s BROKER: %s", response->command.code,
              name == NULL ? "" : name,
              (int)(response->command.remark.size < 300 ? response->command.remark.size : 300),
              (const char *)response->command.remark.data, address);
    remoting_response_close(response);
    return ERROR_NOT_LEADER;
}

bool admin_call(struct admin *admin, const char *address, int32_t code, const struct remoting_field *fields,
                struct slice body, struct remoting_response *response)
{
    struct error error = {0};
    if (admin_try(admin, address, code, fields, body, response, &error) == 0)
        return true;
    admin_fail(admin, "%s", error.message);
    return false;
}

bool admin_name_server_call(struct admin *admin, int32_t code, const struct remoting_field *fields, struct slice body,
                            struct remoting_response *response)
{
    struct error error = {0};
    if (!need_name_servers(admin))
        return false;
    for (uint32_t i = 0; i < admin->name_server_count; i++)
        if (admin_try(admin, admin->name_servers[i], code, fields, body, response, &error) == 0) {
            /* The one that answers is asked first from now on. */
            char first[REMOTING_ADDRESS_MAX];
            memcpy(first, admin->name_servers[0], sizeof first);
            memmove(admin->name_servers[0], admin->name_servers[i], sizeof first);
            if (i > 0)
                memcpy(admin->name_servers[i], first, sizeof first);
            return true;
        }
    admin_fail(admin, "name server %s", error.message);
    return false;
}

bool admin_each_name_server(struct admin *admin, int32_t code, const struct remoting_field *fields, struct slice body,
                            void (*done)(const char *address, const struct remoting_command *answer))
{
    bool all = true;
    if (!need_name_servers(admin))
        return false;
    for (uint32_t i = 0; i < admin->name_server_count; i++) {
        struct remoting_response response;
        if (!admin_call(admin, admin->name_servers[i], code, fields, body, &response)) {
            all = false;
            continue;
        }
        if (done != NULL)
            done(admin->name_servers[i], &response.command);
        remoting_response_close(&response);
    }
    return all;
}

bool admin_clusters(struct admin *admin, struct cluster_info *info)
{
    struct remoting_response response;
    struct error error = {0};
    if (!admin_name_server_call(admin, REQUEST_GET_BROKER_CLUSTER_INFO, NULL, slice_of(NULL, 0), &response))
        return false;
    int rv = cluster_info_decode(info, response.command.body, &error);
    remoting_response_close(&response);
    if (rv == 0)
        return true;
    admin_fail(admin, "cluster information: %s", error.message);
    return false;
}

static bool leads(const struct cluster_info *info)
{
    for (size_t i = 0; i < info->broker_count; i++)
        for (size_t k = 0; k < info->brokers[i].address_count; k++)
            if (info->brokers[i].addresses[k].id == 0)
                return true;
    return false;
}

/* True when some name server answers and none of those that answer knows a leader. */
static bool starting(struct admin *admin)
{
    bool answered = false;
    for (uint32_t i = 0; i < admin->name_server_count; i++) {
        struct remoting_response response;
        struct cluster_info info;
        struct error error = {0};
        if (admin_try(admin, admin->name_servers[i], REQUEST_GET_BROKER_CLUSTER_INFO, NULL, slice_of(NULL, 0),
                      &response, &error) != 0)
            continue;
        int rv = cluster_info_decode(&info, response.command.body, &error);
        remoting_response_close(&response);
        if (rv != 0)
            return false;
        bool led = leads(&info);
        cluster_info_close(&info);
        if (led)
            return false;
        answered = true;
    }
    return answered;
}

void admin_await_leader(struct admin *admin)
{
    const struct timespec pause = {.tv_nsec = 100 * 1000000};
    if (!need_name_servers(admin))
        return;
    int64_t until = client_clock_ms() + ADMIN_START_SECONDS * 1000;
    for (bool told = false; starting(admin) && client_clock_ms() < until; told = true) {
        if (!told)
            fprintf(stderr, "mqadmin %s: no broker leads yet; waiting up to %d s\n", admin->command->name,
                    ADMIN_START_SECONDS);
        nanosleep(&pause, NULL);
    }
}

static bool add_target(struct admin_targets *targets, struct slice address, struct slice name, struct slice cluster,
                       int64_t id)
{
    if (targets->count == ADMIN_NODES_MAX || address.size >= REMOTING_ADDRESS_MAX)
        return false;
    struct admin_target *target = &targets->all[targets->count++];
    snprintf(target->address, sizeof target->address, "%.*s", ADMIN_SLICE(address));
    snprintf(target->broker_name, sizeof target->broker_name, "%.*s", ADMIN_SLICE(name));
    snprintf(target->cluster, sizeof target->cluster, "%.*s", ADMIN_SLICE(cluster));
    target->broker_id = id;
    return true;
}

static bool in_cluster(const struct cluster_info *info, struct slice broker_name, const char *cluster)
{
    for (size_t i = 0; i < info->cluster_count; i++) {
        if (!slice_equal_text(info->clusters[i].name, cluster))
            continue;
        for (size_t k = 0; k < info->clusters[i].broker_name_count; k++)
            if (slice_equal(info->clusters[i].broker_names[k], broker_name))
                return true;
    }
    return false;
}

static int compare_targets(const void *a, const void *b)
{
    const struct admin_target *left = a, *right = b;
    int order = strcmp(left->broker_name, right->broker_name);
    return order != 0 ? order : (left->broker_id > right->broker_id) - (left->broker_id < right->broker_id);
}

bool admin_targets(struct admin *admin, bool everyone, bool any_cluster, struct admin_targets *targets, int *status)
{
    const char *address = admin_text(admin, "brokerAddr"), *cluster = admin_text(admin, "clusterName");
    *targets = (struct admin_targets){.all = calloc(ADMIN_NODES_MAX, sizeof *targets->all)};
    *status = ADMIN_FAILED;
    if (targets->all == NULL)
        abort();
    if (address != NULL)
        return add_target(targets, slice_of_text(address), slice_of(NULL, 0), slice_of(NULL, 0), 0);
    if (cluster == NULL && !any_cluster) {
        *status = admin_usage(admin, "say for which brokers: -b ADDRESS or -c CLUSTER");
        admin_targets_free(targets);
        return false;
    }
    struct cluster_info info;
    if (!admin_clusters(admin, &info)) {
        admin_targets_free(targets);
        return false;
    }
    for (size_t i = 0; i < info.broker_count; i++) {
        const struct broker_data *broker = &info.brokers[i];
        if (cluster != NULL && !in_cluster(&info, broker->broker_name, cluster))
            continue;
        for (size_t k = 0; k < broker->address_count; k++)
            if (everyone || broker->addresses[k].id == 0)
                add_target(targets, broker->addresses[k].address, broker->broker_name, broker->cluster,
                           broker->addresses[k].id);
    }
    cluster_info_close(&info);
    if (targets->count > 0) {
        qsort(targets->all, targets->count, sizeof *targets->all, compare_targets);
        return true;
    }
    if (cluster != NULL)
        admin_fail(admin, "cluster %s has no broker%s: see mqadmin clusterList", cluster,
                   everyone ? "" : " with a leader");
    else
        admin_fail(admin, "the name server knows no broker%s", everyone ? "" : " with a leader");
    admin_targets_free(targets);
    return false;
}

void admin_targets_free(struct admin_targets *targets)
{
    free(targets->all);
    *targets = (struct admin_targets){0};
}

struct parallel_call {
    pthread_t thread;
    bool started;
    struct admin *admin;
    const char *address;
    int32_t code;
    int timeout_ms;
    struct admin_answer *answer;
};

static void *parallel_main(void *argument)
{
    struct parallel_call *call = argument;
    struct admin_answer *answer = call->answer;
    int rv = remoting_client_invoke(call->admin->client->remoting, call->address, call->code, NULL, slice_of(NULL, 0),
                                    call->timeout_ms, &answer->response, &answer->error);
    answer->ok = rv == 0 && answer->response.command.code == RESPONSE_SUCCESS;
    if (rv == 0 && !answer->ok) {
        error_set(&answer->error, ERROR_INVALID, "CODE: %d DESC: %.*s", answer->response.command.code,
                  (int)(answer->response.command.remark.size < 200 ? answer->response.command.remark.size : 200),
                  (const char *)answer->response.command.remark.data);
        remoting_response_close(&answer->response);
    }
    return NULL;
}

void admin_call_all(struct admin *admin, const struct admin_targets *targets, int32_t code, int timeout_ms,
                    struct admin_answer *answers)
{
    struct parallel_call calls[ADMIN_NODES_MAX];
    if (!admin_connect(admin)) {
        for (size_t i = 0; i < targets->count; i++)
            answers[i] = (struct admin_answer){.error = {.message = "no client"}};
        return;
    }
    for (size_t i = 0; i < targets->count; i++) {
        answers[i] = (struct admin_answer){0};
        calls[i] = (struct parallel_call){.admin = admin,
                                          .address = targets->all[i].address,
                                          .code = code,
                                          .timeout_ms = timeout_ms,
                                          .answer = &answers[i]};
        calls[i].started = pthread_create(&calls[i].thread, NULL, parallel_main, &calls[i]) == 0;
        if (!calls[i].started)
            parallel_main(&calls[i]);
    }
    for (size_t i = 0; i < targets->count; i++)
        if (calls[i].started)
            pthread_join(calls[i].thread, NULL);
}

bool admin_topic_leaders(struct admin *admin, const char *topic, struct admin_targets *targets, bool silent)
{
    struct remoting_response response;
    struct topic_route_data route;
    struct error error = {0};
    const struct remoting_field fields[] = {{"topic", topic}, {NULL, NULL}};
    *targets = (struct admin_targets){0};
    if (silent) {
        if (admin_try(admin, admin->name_servers[0], REQUEST_GET_ROUTEINFO_BY_TOPIC, fields, slice_of(NULL, 0), &response,
                      &error) != 0)
            return false;
    } else if (!admin_name_server_call(admin, REQUEST_GET_ROUTEINFO_BY_TOPIC, fields, slice_of(NULL, 0), &response)) {
        return false;
    }
    int rv = topic_route_data_decode(&route, response.command.body, &error);
    remoting_response_close(&response);
    if (rv != 0)
        return false;
    targets->all = calloc(route.broker_count + 1, sizeof *targets->all);
    for (size_t i = 0; targets->all != NULL && i < route.broker_count; i++) {
        struct slice address = broker_data_address(&route.brokers[i], 0);
        if (address.data == NULL && route.brokers[i].address_count > 0)
            address = route.brokers[i].addresses[0].address;
        struct admin_target *target = &targets->all[targets->count++];
        snprintf(target->address, sizeof target->address, "%.*s", ADMIN_SLICE(address));
        snprintf(target->broker_name, sizeof target->broker_name, "%.*s", ADMIN_SLICE(route.brokers[i].broker_name));
    }
    topic_route_data_close(&route);
    return targets->count > 0;
}

bool admin_consume_stats(struct admin *admin, const char *address, const char *group, const char *topic,
                             struct consume_stats *stats, bool silent)
{
    struct remoting_response response;
    struct error error = {0};
    const struct remoting_field fields[] = {{"consumerGroup", group}, {"topic", topic}, {NULL, NULL}};
    int rv = admin_try(admin, address, REQUEST_GET_CONSUME_STATS, fields, slice_of(NULL, 0), &response, &error);
    if (rv == 0) {
        rv = consume_stats_decode(stats, response.command.body, &error);
        remoting_response_close(&response);
    }
    if (rv != 0 && !silent)
        admin_fail(admin, "%s", error.message);
    return rv == 0;
}

/* --- printing ---- */

const char *admin_time(int64_t ms, char out[32])
{
    if (ms <= 0) {
        memcpy(out, "N/A", 4);
        return out;
    }
    time_t seconds = (time_t)(ms / 1000);
    struct tm local;
    localtime_r(&seconds, &local);
    size_t size = strftime(out, 28, "%Y-%m-%d %H:%M:%S", &local);
    snprintf(out + size, 32 - size, ",%03d", (int)(ms % 1000));
    return out;
}

const char *admin_version(int32_t version, char out[16])
{
    /* Ordinals of MQVersion.Version: every release is preceded by its snapshot. */
    if (version >= 393 && version <= 411 && version % 2 == 1)
        snprintf(out, 16, "V4_9_%d", (version - 393) / 2);
    else if (version == 413)
        snprintf(out, 16, "V5_0_0");
    else if (version >= 473 && version <= 479 && version % 2 == 1)
        snprintf(out, 16, "V5_3_%d", (version - 473) / 2);
    else
        snprintf(out, 16, "%d", version);
    return out;
}

/* --- the command line ---- */

static const struct admin_command *find_command(const char *name)
{
    for (size_t i = 0; i < FAMILY_COUNT; i++)
        for (const struct admin_command *command = families[i]; command->name != NULL; command++)
            if (strcmp(command->name, name) == 0)
                return command;
    return NULL;
}

/* Letters that both say common to the two words, for a hint; the longest common beginning decides. */
static const struct admin_command *nearest_command(const char *name)
{
    const struct admin_command *best = NULL;
    size_t best_size = 2;
    for (size_t i = 0; i < FAMILY_COUNT; i++)
        for (const struct admin_command *command = families[i]; command->name != NULL; command++) {
            size_t same = 0;
            while (name[same] != '\0' && (name[same] | 32) == (command->name[same] | 32))
                same++;
            if (same > best_size) {
                best_size = same;
                best = command;
            }
        }
    return best;
}

static int unknown_command(const char *name)
{
    const struct admin_command *nearest = nearest_command(name);
    fprintf(stderr, "mqadmin: no command '%s'%s%s%s; 'mqadmin help' lists them\n", name,
            nearest != NULL ? ", did you mean '" : "", nearest != NULL ? nearest->name : "",
            nearest != NULL ? "'?" : "");
    return ADMIN_USAGE;
}

/* Fills admin from the options. Returns ADMIN_OK, or the status to exit with; *help is set when only help is wanted.
 */
static int parse_options(struct admin *admin, int argc, char **argv, bool *help)
{
    const struct admin_option *options = admin->command->options;
    struct option table[ADMIN_OPTIONS_MAX + 4] = {0};
    char letters[3 * ADMIN_OPTIONS_MAX] = ":";
    int count = 0, total, letter;
    while (options[count].name != NULL && count < ADMIN_OPTIONS_MAX)
        count++;
    total = count;
    for (const struct admin_option *common = common_options; common->name != NULL; common++)
        total++;
    for (int i = 0; i < total; i++) {
        const struct admin_option *option = i < count ? &options[i] : &common_options[i - count];
        table[i] = (struct option){option->name, option->argument != NULL ? required_argument : no_argument, NULL,
                                   LETTER_NONE + i};
        if (option->letter != 0)
            snprintf(letters + strlen(letters), sizeof letters - strlen(letters), "%c%s", option->letter,
                     option->argument != NULL ? ":" : "");
    }
    opterr = 0;
    optind = 1;
    while ((letter = getopt_long(argc, argv, letters, table, NULL)) != -1) {
        int place = -1;
        if (letter == '?')
            return admin_usage(admin, "there is no option '%s'", argv[optind - 1]);
        if (letter == ':')
            return admin_usage(admin, "'%s' needs a value", argv[optind - 1]);
        if (letter >= LETTER_NONE)
            place = letter - LETTER_NONE;
        for (int i = 0; place < 0 && i < total; i++)
            if ((i < count ? options[i].letter : common_options[i - count].letter) == letter)
                place = i;
        const char *value = optarg == NULL ? "" : optarg;
        if (place < count) {
            admin->values[place] = value;
        } else if (strcmp(common_options[place - count].name, "help") == 0) {
            *help = true;
        } else if (strcmp(common_options[place - count].name, "namesrvAddr") == 0) {
            admin->name_server_text = value;
        } else {
            int32_t timeout;
            if (!slice_to_i32(slice_of_text(value), &timeout) || timeout < 1 || timeout > 600000)
                return admin_usage(admin, "--timeout takes milliseconds from 1 to 600000, not '%s'", value);
            admin->timeout_ms = timeout;
        }
    }
    if (*help)
        return ADMIN_OK;
    if (optind < argc)
        return admin_usage(admin, "'%s' is no option", argv[optind]);
    for (int i = 0; i < count; i++)
        if (options[i].required && admin->values[i] == NULL)
            return options[i].letter != 0
                       ? admin_usage(admin, "-%c (--%s) is missing", options[i].letter, options[i].name)
                       : admin_usage(admin, "--%s is missing", options[i].name);
    return ADMIN_OK;
}

int admin_main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOFBF, 65536);
    if (argc < 2) {
        print_help();
        return ADMIN_USAGE;
    }
    const char *name = argv[1];
    bool asks_help = strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0;
    if (asks_help && argc == 2) {
        print_help();
        return ADMIN_OK;
    }
    if (strcmp(name, "--version") == 0) {
        printf("mqadmin %s\n", ledgermq_version());
        return ADMIN_OK;
    }
    const struct admin_command *command = find_command(asks_help ? argv[2] : name);
    if (command == NULL)
        return unknown_command(asks_help ? argv[2] : name);
    bool help = asks_help;
    struct admin admin = {.command = command, .name_server_text = getenv("NAMESRV_ADDR"), .timeout_ms = 5000};
    if (!help) {
        int status = parse_options(&admin, argc - 1, argv + 1, &help);
        if (status != ADMIN_OK)
            return status;
    }
    if (help) {
        print_command_help(stdout, command);
        return ADMIN_OK;
    }
    int status = command->run(&admin);
    ledgermq_client_free(admin.client);
    free(admin.name_servers);
    if (fflush(stdout) != 0 && status == ADMIN_OK) {
        perror("mqadmin: standard output");
        status = ADMIN_FAILED;
    }
    return status;
}
