/* What the commands of mqadmin share: options, the client, asking brokers and name servers, and how a failure is
 * told.
 *
 * Follows org.apache.rocketmq.tools.command.MQAdminStartup and SubCommand 4.9.8, with their command and option names.
 * Unlike there, the exit status tells: 0 done, 1 failed, 2 wrong usage. Results go to standard output, all else to
 * standard error.
 *
 * A command is a row {name, summary, options, run} in the table of its family's file.
 */
#ifndef LEDGERMQ_CLIENT_ADMIN_ADMIN_H
#define LEDGERMQ_CLIENT_ADMIN_ADMIN_H

#include "client/client.h"

#define ADMIN_OPTIONS_MAX 40
#define ADMIN_NODES_MAX 256
#define ADMIN_START_SECONDS 10
#define NO_BODY slice_of(NULL, 0)

enum admin_status { ADMIN_OK = 0, ADMIN_FAILED = 1, ADMIN_USAGE = 2 };

struct admin_option {
    char letter;          /* 0: long form only */
    const char *name;     /* long form, and the name for admin_text() */
    const char *argument; /* what the help calls its value; NULL: a switch */
    bool required;
    const char *help;
};

struct admin;

struct admin_command {
    const char *name;
    const char *summary;
    const struct admin_option *options; /* ends with name NULL */
    int (*run)(struct admin *admin);    /* returns the exit status */
    const char *notes;                  /* more for `help COMMAND`; may be NULL */
};

/* One table per family, ended by a row with name NULL. */
extern const struct admin_command topic_commands[];
extern const struct admin_command route_commands[];
extern const struct admin_command group_commands[];
extern const struct admin_command offset_commands[];
extern const struct admin_command client_commands[];
extern const struct admin_command print_commands[];
extern const struct admin_command broker_commands[];
extern const struct admin_command message_commands[];
extern const struct admin_command probe_commands[];
extern const struct admin_command monitor_commands[];
extern const struct admin_command export_commands[];
extern const struct admin_command namesrv_commands[];
extern const struct admin_command leader_commands[];
extern const struct admin_command member_commands[];
extern const struct admin_command backup_commands[];
extern const struct admin_command bench_commands[];

struct admin {
    const struct admin_command *command;
    const char *values[ADMIN_OPTIONS_MAX]; /* by place in the command's options; NULL: not given */
    const char *name_server_text;          /* -n, or NAMESRV_ADDR */
    char (*name_servers)[REMOTING_ADDRESS_MAX];
    uint32_t name_server_count;
    struct ledgermq_client *client; /* made when first needed */
    int timeout_ms;
};

/* Parses the command line and runs the command. */
int admin_main(int argc, char **argv);

/* --- options ---- */

/* NULL when not given; "" for a switch that is. */
const char *admin_text(const struct admin *admin, const char *name);
bool admin_has(const struct admin *admin, const char *name);
/* False (a message has been printed: return ADMIN_USAGE) when the value is no number from min to max. absent: when
 * not given. */
bool admin_number(const struct admin *admin, const char *name, int64_t absent, int64_t min, int64_t max,
                  int64_t *value);
/* "true"/"false"; a switch without value counts as true where an option takes one. */
bool admin_bool(const struct admin *admin, const char *name, bool absent, bool *value);

/* Milliseconds, "yyyy-MM-dd#HH:mm:ss:SSS" or "now"; 0 when not given. False (told) when it is none of these. */
bool admin_time_option(struct admin *admin, const char *name, int64_t *ms);

/* --- talking ---- */

/* Prints "mqadmin COMMAND: ..." and returns ADMIN_FAILED. */
int admin_fail(const struct admin *admin, const char *format, ...) __attribute__((format(printf, 2, 3)));
int admin_usage(const struct admin *admin, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The library's client. False: a message has been printed. */
bool admin_connect(struct admin *admin);
/* One request. True: an answer with code 0, to be closed by remoting_response_close(). False: printed. */
bool admin_call(struct admin *admin, const char *address, int32_t code, const struct remoting_field *fields,
                struct slice body, struct remoting_response *response);
/* The same, silent: 0 with an answer of any code; error says what the code or the failure is. response is open only
 * on 0 and ok. */
int admin_try(struct admin *admin, const char *address, int32_t code, const struct remoting_field *fields,
              struct slice body, struct remoting_response *response, struct error *error);
/* To the first name server that answers. */
bool admin_name_server_call(struct admin *admin, int32_t code, const struct remoting_field *fields, struct slice body,
                            struct remoting_response *response);
/* To every name server; each that fails is told. True when all succeeded. done may be NULL. */
bool admin_each_name_server(struct admin *admin, int32_t code, const struct remoting_field *fields, struct slice body,
                            void (*done)(const char *address, const struct remoting_command *answer));
/* Right after a cluster's start its brokers are not registered yet. Waits, ADMIN_START_SECONDS at most, while a name
 * server answers but no broker leads anywhere, and says so. What the command does next tells what else is wrong. */
void admin_await_leader(struct admin *admin);

/* Brokers that a command is for. */
struct admin_target {
    char address[REMOTING_ADDRESS_MAX];
    char broker_name[LEDGERMQ_NAME_MAX + 1];
    char cluster[LEDGERMQ_NAME_MAX + 1];
    int64_t broker_id;
};
struct admin_targets {
    size_t count;
    struct admin_target *all; /* freed by admin_targets_free */
};
/* brokerAddr if given, else the brokers of clusterName, else (any_cluster) of all clusters: each leader, or with
 * `everyone` each address. False: printed; *status is the exit status. */
bool admin_targets(struct admin *admin, bool everyone, bool any_cluster, struct admin_targets *targets, int *status);
void admin_targets_free(struct admin_targets *targets);
/* To each of them; each that fails is told. done (may be NULL) is called for each that succeeds. True when all did. */
bool admin_each_target(struct admin *admin, const struct admin_targets *targets, int32_t code,
                       const struct remoting_field *fields, struct slice body,
                       void (*done)(struct admin *admin, const struct admin_target *target));
/* The leaders that have a topic (of a broker without a leader: any address), or the group's retry topic. False: none,
 * told unless silent. */
bool admin_topic_leaders(struct admin *admin, const char *topic, struct admin_targets *targets, bool silent);
bool admin_group_leaders(struct admin *admin, const char *group, struct admin_targets *targets, bool silent);
/* Whom to ask about a group's clients: brokerAddr if given, else a leader. */
bool admin_group_broker(struct admin *admin, const char *group, char address[REMOTING_ADDRESS_MAX]);
/* At these brokers (of one cluster) and all name servers; says so. */
bool admin_delete_topic(struct admin *admin, const struct admin_targets *targets, const char *topic);
/* Asks all at once; answers[i].ok tells whether it holds an open response, else why not. */
struct admin_answer {
    bool ok;
    struct remoting_response response;
    struct error error;
};
void admin_call_all(struct admin *admin, const struct admin_targets *targets, int32_t code, int timeout_ms,
                    struct admin_answer *answers);

/* --- printing ---- */

static inline const char *admin_word(bool value)
{
    return value ? "true" : "false";
}
/* Slices are printed with "%.*s". */
#define ADMIN_SLICE(slice) (int)(slice).size, (slice).data == NULL ? "" : (const char *)(slice).data
/* "2024-05-01 12:00:00,123"; "N/A" for 0 and below. */
const char *admin_time(int64_t ms, char out[32]);
/* The same to the second. */
const char *admin_time_seconds(int64_t ms, char out[32]);
/* "V4_9_8" for 409; the number for versions whose name is not known. */
const char *admin_version(int32_t version, char out[16]);

#endif
