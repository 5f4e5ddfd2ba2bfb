#include "client/admin/admin.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LETTER_NONE 256 /* + place: long-only options */

static const struct admin_command *const families[] = {
    topic_commands,   route_commands,   group_commands,  offset_commands, client_commands, broker_commands,
    message_commands, print_commands,  probe_commands,  monitor_commands, export_commands, namesrv_commands,
    leader_commands,  member_commands,  backup_commands, bench_commands,
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

const char *admin_time_seconds(int64_t ms, char out[32])
{
    admin_time(ms, out);
    out[strcspn(out, ",")] = '\0';
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
    /* Commands of two words: "member add". */
    char two_words[64];
    int first = asks_help ? 2 : 1;
    if (argc > first + 1 && argv[first + 1][0] != '-') {
        snprintf(two_words, sizeof two_words, "%.30s %.30s", argv[first], argv[first + 1]);
        if (find_command(two_words) != NULL) {
            argv[first + 1] = two_words;
            argc--;
            argv++;
            if (asks_help)
                argv[1] = argv[0];
            else
                name = argv[1];
        }
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
