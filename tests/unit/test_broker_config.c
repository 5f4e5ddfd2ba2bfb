/* Settings: defaults, what a file says, what is refused and how it is said, what keys say together, how they are shown. */
#include <check.h>
#include <stdlib.h>
#include <unistd.h>

#include "broker/broker_config.h"
#include "store/log_sink.h"
#include "tests/lib/run_suite.h"

static struct broker_config config;
static struct error error;
static char warnings[4096];

static void collect(void *context, enum log_level level, const char *text)
{
    (void)context;
    (void)level;
    strncat(warnings, text, sizeof warnings - strlen(warnings) - 2);
    strcat(warnings, "\n");
}

static void set_up(void)
{
    warnings[0] = '\0';
    log_sink_set(collect, NULL);
    ck_assert_int_eq(broker_config_init(&config, &error), 0);
}

static void tear_down(void)
{
    broker_config_close(&config);
    log_sink_set(NULL, NULL);
}

static int take(const char *text)
{
    return broker_config_read(&config, slice_of_text(text), "broker.conf", &error);
}

static void check_refused(const char *text, int code, const char *part)
{
    memset(&error, 0, sizeof error);
    int rv = take(text);
    if (rv == 0)
        rv = broker_config_finish(&config, &error);
    ck_assert_msg(rv == code, "%s gave %d: %s", text, rv, error.message);
    ck_assert_msg(strstr(error.message, part) != NULL, "\"%s\" is not in: %s", part, error.message);
}

START_TEST(defaults)
{
    ck_assert_int_eq(broker_config_finish(&config, &error), 0);
    ck_assert_int_eq(config.listen_port, 10911);
    ck_assert_int_eq(config.namesrv_port, 9876);
    ck_assert(config.sync_flush);
    ck_assert(config.group_of_one);
    ck_assert(config.auto_create_topic_enable);
    ck_assert(config.enable_embedded_namesrv);
    ck_assert_int_eq(config.broker_permission, 6);
    ck_assert_int_eq(config.max_message_size, 4194304);
    ck_assert_int_eq(config.mapped_file_size_commit_log, 1073741824);
    ck_assert_int_eq(config.election_timeout_ms, 500);
    ck_assert_int_eq(config.max_wait_ms, 2500);
    ck_assert_int_eq(config.delay_levels, 18);
    ck_assert_int_eq(config.delay_level_ms[1], 1000);
    ck_assert_int_eq(config.delay_level_ms[18], 7200000);
    ck_assert_str_eq(config.broker_cluster_name, "DefaultCluster");
    ck_assert_str_eq(config.self_id, "n0");
    ck_assert_str_eq(config.group, config.broker_name);
    ck_assert_int_eq(config.slave_id, 1);
    ck_assert_int_gt((int)strlen(config.broker_ip1), 0);
    ck_assert(strstr(config.store_path_root_dir, "/store") != NULL);
}
END_TEST

START_TEST(file_of_a_java_broker)
{
    ck_assert_int_eq(take("# a sample\nbrokerClusterName = RaftCluster\nbrokerName=RaftNode00\nlistenPort=30911\n"
                          "namesrvAddr=127.0.0.1:9876\nstorePathRootDir=/tmp/rmqstore/node00\nstorePathCommitLog=/tmp/x\n"
                          "enableDLegerCommitLog=true\ndLegerGroup=RaftNode00\n"
                          "dLegerPeers=n0-127.0.0.1:40911;n1-127.0.0.1:40912;n2-127.0.0.1:40913\n## must be unique\ndLegerSelfId=n1\n"
                          "sendMessageThreadPoolNums=16\nflushDiskType=ASYNC_FLUSH\nbrokerRole=ASYNC_MASTER  \n"),
                     0);
    ck_assert_int_eq(broker_config_finish(&config, &error), 0);
    ck_assert_str_eq(config.broker_name, "RaftNode00");
    ck_assert_int_eq(config.listen_port, 30911);
    ck_assert(!config.group_of_one);
    ck_assert(!config.sync_flush);
    ck_assert_int_eq(config.slave_id, 2);
    ck_assert_str_eq(config.log_dir, "/tmp/rmqstore/node00/logs");
    ck_assert_str_eq(warnings, "");
}
END_TEST

START_TEST(unknown_key_names_the_nearest)
{
    ck_assert_int_eq(take("a=1\nlistenport=1\nautoCreateTopicEnabel=true\nzzzzzzzzzzzzzzzzzz=1\n"), 0);
    ck_assert(strstr(warnings, "line 3: unknown key autoCreateTopicEnabel is ignored, did you mean autoCreateTopicEnable?") != NULL);
    ck_assert(strstr(warnings, "unknown key listenport is ignored, did you mean listenPort?") != NULL);
    ck_assert(strstr(warnings, "unknown key zzzzzzzzzzzzzzzzzz is ignored\n") != NULL);
    ck_assert_int_eq(config.listen_port, 10911);
    ck_assert_ptr_null(broker_config_nearest(SLICE_LITERAL("completelyDifferentThing")));
}
END_TEST

START_TEST(wrong_values_are_refused)
{
    check_refused("listenPort=abc\n", ERROR_INVALID, "listenPort=abc: a number");
    check_refused("listenPort=70000\n", ERROR_INVALID, "listenPort=70000: allowed is 1 to 65535");
    check_refused("\n\ntraceOn=yes\n", ERROR_INVALID, "broker.conf line 3: traceOn=yes: allowed is true or false");
    check_refused("flushDiskType=sync\n", ERROR_INVALID, "SYNC_FLUSH|ASYNC_FLUSH");
    check_refused("electionTimeoutMs=99999999999999999999\n", ERROR_INVALID, "a number");
    check_refused("sendMessageThreadPoolNums=many\n", ERROR_INVALID, "a number");
    check_refused("brokerName=\\u12\n", ERROR_MALFORMED, "broker.conf");
    ck_assert_int_eq(broker_config_set(&config, "noSuchKey", SLICE_LITERAL("1"), &error), ERROR_NOT_FOUND);
}
END_TEST

START_TEST(what_keys_say_together)
{
    check_refused("brokerRole=SLAVE\n", ERROR_INVALID, "enableDLegerCommitLog=true");
    take("brokerRole=ASYNC_MASTER\n");
    check_refused("enableDLegerCommitLog=true\n", ERROR_INVALID, "needs dLegerPeers");
    check_refused("dLegerPeers=n0-a:1;n1-b:2\ndLegerSelfId=n2\n", ERROR_INVALID, "dLegerSelfId=n2 is not among");
    check_refused("dLegerPeers=n0-a:1;n0-b:2\ndLegerSelfId=n0\n", ERROR_INVALID, "id n0 is there twice");
    check_refused("dLegerPeers=n0-a:1;n1-b\n", ERROR_INVALID, "\"n1-b\" is no member");
    check_refused("dLegerPeers=node-a:1\n", ERROR_INVALID, "is no member");
    check_refused("dLegerPeers=n0-a:9876\n", ERROR_INVALID, "namesrvPort");
    check_refused("dLegerPeers=n0-a:10909\n", ERROR_INVALID, "listenPort-2");
    take("dLegerPeers=n0-a:20911\n");
    ck_assert_int_eq(broker_config_finish(&config, &error), 0);
    check_refused("aclEnable=true\n", ERROR_INVALID, "not built yet");
    take("aclEnable=false\n");
    check_refused("heartbeatMs=400\n", ERROR_INVALID, "electionTimeoutMs");
    take("heartbeatMs=100\n");
    check_refused("messageDelayLevel=1s 5x\n", ERROR_INVALID, "\"5x\"");
    take("messageDelayLevel=1s\n");
    check_refused("brokerName=a b\n", ERROR_INVALID, "names a topic");
}
END_TEST

START_TEST(advertised_listeners)
{
    ck_assert_int_eq(take("advertisedListeners=HOST:127.0.0.1:10921, NET:broker-a1:10911,V6:[::1]:10911\n"), 0);
    ck_assert_int_eq(broker_config_finish(&config, &error), 0);
    ck_assert_int_eq(config.listener_count, 3);
    ck_assert_str_eq(config.listeners[0].name, "HOST");
    ck_assert_str_eq(config.listeners[0].host, "127.0.0.1");
    ck_assert_int_eq(config.listeners[0].port, 10921);
    ck_assert_str_eq(config.listeners[1].name, "NET");
    ck_assert_str_eq(config.listeners[1].host, "broker-a1");
    ck_assert_str_eq(config.listeners[2].host, "[::1]");
    check_refused("advertisedListeners=HOST:127.0.0.1\n", ERROR_INVALID, "NAME:HOST:PORT");
    check_refused("advertisedListeners=HOST:a:99999\n", ERROR_INVALID, "NAME:HOST:PORT");
    check_refused("advertisedListeners=:a:1\n", ERROR_INVALID, "NAME:HOST:PORT");
}
END_TEST

static void properties_of_leader(const struct broker_config *shown, struct buffer *out)
{
    broker_config_properties(shown, true, out);
}

static bool shows(void (*show)(const struct broker_config *, struct buffer *), const char *line)
{
    struct buffer out;
    buffer_init(&out, 0);
    show(&config, &out);
    buffer_append_u8(&out, 0);
    bool found = strstr((const char *)out.data, line) != NULL;
    buffer_close(&out);
    return found;
}

START_TEST(shown)
{
    ck_assert_int_eq(take("enableConsumeQueueExt=true\nlistenPort=12345\nwarmMapedFileEnable=true\n"), 0);
    ck_assert_int_eq(broker_config_finish(&config, &error), 0);
    ck_assert(strstr(warnings, "enableConsumeQueueExt=true has no effect") != NULL);
    ck_assert(shows(properties_of_leader, "listenPort=12345\n"));
    ck_assert_msg(shows(properties_of_leader, "enableConsumeQueueExt=false\n"), "what is not built is reported as off");
    ck_assert(shows(properties_of_leader, "rejectTransactionMessage=false\n"));
    ck_assert(shows(properties_of_leader, "storeReplyMessageEnable=true\n"));
    ck_assert(shows(broker_config_print, "warmMapedFileEnable=true   # no effect: "));
    ck_assert(shows(broker_config_print, "listenPort=12345\n"));
    struct buffer table;
    buffer_init(&table, 0);
    broker_config_print_table(&table);
    buffer_append_u8(&table, 0);
    ck_assert(strstr((const char *)table.data, "| `listenPort` | number | `10911` | 1 to 65535 |") != NULL);
    ck_assert(strstr((const char *)table.data, "| `warmMapedFileEnable` | ") != NULL);
    buffer_close(&table);
}
END_TEST

START_TEST(changes_while_running)
{
    ck_assert_int_eq(broker_config_finish(&config, &error), 0);
    ck_assert_int_eq(broker_config_change(&config, SLICE_LITERAL("autoCreateTopicEnable"), SLICE_LITERAL("false"), &error), 0);
    ck_assert(!config.auto_create_topic_enable);
    ck_assert(shows(properties_of_leader, "autoCreateTopicEnable=false\n"));
    ck_assert_int_eq(broker_config_change(&config, SLICE_LITERAL("brokerPermission"), SLICE_LITERAL("9"), &error), ERROR_INVALID);
    ck_assert_int_eq(config.broker_permission, 6);
    ck_assert_int_eq(broker_config_change(&config, SLICE_LITERAL("listenPort"), SLICE_LITERAL("1"), &error), ERROR_INVALID);
    ck_assert(strstr(error.message, "restart") != NULL);
    ck_assert_int_eq(broker_config_may_change(SLICE_LITERAL("brokerPermission"), SLICE_LITERAL("9"), &error), ERROR_INVALID);
    ck_assert_int_eq(broker_config_may_change(SLICE_LITERAL("brokerPermission"), SLICE_LITERAL("4"), &error), 0);
    ck_assert_int_eq(config.broker_permission, 6); /* only asked */
    ck_assert_int_eq(broker_config_may_change(SLICE_LITERAL("logDir"), SLICE_LITERAL("/x"), &error), ERROR_INVALID);
    ck_assert_int_eq(broker_config_change(&config, SLICE_LITERAL("nothing"), SLICE_LITERAL("1"), &error), ERROR_NOT_FOUND);
    ck_assert_int_eq(broker_config_change(&config, SLICE_LITERAL("haListenPort"), SLICE_LITERAL("1"), &error), ERROR_INVALID);
}
END_TEST

START_TEST(files)
{
    char path[] = "/tmp/ledgermq-config-XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, "listenPort=77\n", 14), 14);
    close(fd);
    ck_assert_int_eq(broker_config_read_file(&config, path, &error), 0);
    ck_assert_int_eq(config.listen_port, 77);
    unlink(path);
    ck_assert_int_eq(broker_config_read_file(&config, path, &error), ERROR_IO);
    ck_assert(strstr(error.message, path) != NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("broker_config");
    TCase *tcase = tcase_create("broker_config");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, defaults);
    tcase_add_test(tcase, file_of_a_java_broker);
    tcase_add_test(tcase, unknown_key_names_the_nearest);
    tcase_add_test(tcase, wrong_values_are_refused);
    tcase_add_test(tcase, what_keys_say_together);
    tcase_add_test(tcase, advertised_listeners);
    tcase_add_test(tcase, shown);
    tcase_add_test(tcase, changes_while_running);
    tcase_add_test(tcase, files);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
