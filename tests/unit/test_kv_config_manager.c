/* broker/namesrv_kv_config_manager and namesrv_config: what is kept, and what comes back from disk. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "broker/namesrv/namesrv_config.h"
#include "broker/namesrv/namesrv_kv_config_manager.h"
#include "tests/lib/run_suite.h"

static char dir[64];
static char path[128];
static struct env env;
static struct kv_config_manager manager;
static struct error error;

static void set_up(void)
{
    strcpy(dir, "/tmp/ledgermq-kv-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/namesrv/kvConfig.json", dir);
    env_real_init(&env);
    ck_assert_msg(kv_config_manager_open(&manager, &env, path, &error) == 0, "%s", error.message);
}

static void tear_down(void)
{
    kv_config_manager_close(&manager);
    char command[160];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    ck_assert_int_eq(system(command), 0);
}

static void put(const char *name_space, const char *key, const char *value)
{
    ck_assert_msg(kv_config_manager_put(&manager, slice_of_text(name_space), slice_of_text(key), slice_of_text(value), &error) == 0, "%s",
                  error.message);
}

static void ck_value(const char *name_space, const char *key, const char *expected)
{
    struct slice value;
    bool found = kv_config_manager_get(&manager, slice_of_text(name_space), slice_of_text(key), &value);
    ck_assert(found == (expected != NULL));
    if (found)
        ck_assert(slice_equal_text(value, expected));
}

static void ck_table(const char *name_space, const char *expected)
{
    struct buffer out;
    buffer_init(&out, 0);
    bool found = kv_config_manager_table(&manager, slice_of_text(name_space), &out);
    ck_assert(found == (expected != NULL));
    if (found) {
        buffer_append_u8(&out, 0);
        ck_assert_str_eq((const char *)out.data, expected);
    }
    buffer_close(&out);
}

START_TEST(test_put_get_delete)
{
    put("N", "b", "2");
    put("N", "a", "v 值\n\"");
    put("M", "b", "other");
    put("NN", "a", "x");
    ck_value("N", "a", "v 值\n\"");
    ck_value("M", "b", "other");
    ck_value("N", "c", NULL);
    ck_value("X", "a", NULL);
    put("N", "b", "3");
    ck_value("N", "b", "3");
    ck_table("N", "{\"table\":{\"a\":\"v 值\\n\\\"\",\"b\":\"3\"}}");
    ck_table("X", NULL);
    ck_table("", NULL);
    ck_assert_int_eq(kv_config_manager_delete(&manager, SLICE_LITERAL("N"), SLICE_LITERAL("a"), &error), 0);
    ck_assert_int_eq(kv_config_manager_delete(&manager, SLICE_LITERAL("N"), SLICE_LITERAL("a"), &error), 0);
    ck_value("N", "a", NULL);
    ck_assert_int_eq(kv_config_manager_put(&manager, SLICE_LITERAL("N"), SLICE_LITERAL(""), SLICE_LITERAL("v"), &error), ERROR_INVALID);
}
END_TEST

/* Whatever bytes a request brings: what is taken is there again after a restart, which is not refused for it. */
START_TEST(test_any_bytes)
{
    static const uint8_t odd_bytes[] = {0, 1, '\n', ' ', '"', ':', '\\', '{', 0x7f, 0x80, 0xc3, 0xff};
    size_t kinds = sizeof odd_bytes;

    for (size_t i = 0; i < kinds; i++) {
        for (int where = 0; where < 3; where++) {
            uint8_t bytes[] = {odd_bytes[i], 'x'};
            struct slice odd = slice_of(bytes, where == 1 ? 1 : 2), plain = SLICE_LITERAL("plain");
            struct slice name_space = where == 0 ? odd : plain, key = where == 1 ? odd : plain, text = where == 2 ? odd : plain;
            ck_assert_int_eq(kv_config_manager_put(&manager, name_space, key, text, &error), odd_bytes[i] == 0 ? ERROR_INVALID : 0);
        }
    }
    ck_assert_uint_eq(manager.count, 2 * (kinds - 1) + 1);
    kv_config_manager_close(&manager);
    ck_assert_msg(kv_config_manager_open(&manager, &env, path, &error) == 0, "%s", error.message);
    for (size_t i = 1; i < kinds && odd_bytes[i] < 0x80; i++) { /* what is no UTF-8 need not come back alike */
        uint8_t bytes[] = {odd_bytes[i], 'x'};
        struct slice found;
        ck_assert(kv_config_manager_get(&manager, slice_of(bytes, 2), SLICE_LITERAL("plain"), &found));
        ck_assert(kv_config_manager_get(&manager, SLICE_LITERAL("plain"), slice_of(bytes, 1), &found));
    }
}
END_TEST

/* An empty key that an earlier version wrote costs that key. */
START_TEST(test_empty_key_in_the_file)
{
    static const char text[] = "{\"configTable\":{\"\":{\"a\":\"b\"},\"N\":{\"\":\"v\",\"k\":\"w\"}}}";
    put("N", "k", "v");
    kv_config_manager_close(&manager);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fputs(text, file) >= 0 && fclose(file) == 0, 1);
    ck_assert_msg(kv_config_manager_open(&manager, &env, path, &error) == 0, "%s", error.message);
    ck_assert_uint_eq(manager.count, 1);
    ck_value("N", "k", "w");
}
END_TEST

START_TEST(test_survives_a_restart)
{
    put("ORDER_TOPIC_CONFIG", "T", "broker-a:4;broker-b:4");
    put("N", "k\\\"", "\x01 \xe2\x80\xa8");
    kv_config_manager_close(&manager);
    ck_assert_int_eq(kv_config_manager_open(&manager, &env, path, &error), 0);
    ck_assert_uint_eq(manager.count, 2);
    ck_value("ORDER_TOPIC_CONFIG", "T", "broker-a:4;broker-b:4");
    ck_value("N", "k\\\"", "\x01 \xe2\x80\xa8");
}
END_TEST

START_TEST(test_reads_javas_file_and_refuses_garbage)
{
    char file_path[160];
    snprintf(file_path, sizeof file_path, "%s/java.json", dir);
    FILE *file = fopen(file_path, "w");
    fputs("{\"configTable\":{\"ORDER_TOPIC_CONFIG\":{\"T\":\"broker-a:4\",\"U\":\"broker-a:8\"}}}", file);
    fclose(file);
    kv_config_manager_close(&manager);
    ck_assert_int_eq(kv_config_manager_open(&manager, &env, file_path, &error), 0);
    ck_value("ORDER_TOPIC_CONFIG", "U", "broker-a:8");
    kv_config_manager_close(&manager);
    file = fopen(file_path, "w");
    fputs("{\"configTable\":{\"ORDER", file);
    fclose(file);
    ck_assert_int_ne(kv_config_manager_open(&manager, &env, file_path, &error), 0);
    ck_assert_ptr_nonnull(strstr(error.message, "java.json"));
    ck_assert_int_eq(kv_config_manager_open(&manager, &env, "", &error), 0);
}
END_TEST

static struct env_ops failing_ops;
static bool fail_write;
static int failing_write(struct env *e, struct env_file *file, const struct iovec *iov, int count, uint64_t offset)
{
    return fail_write ? -ENOSPC : env.ops->write(e, file, iov, count, offset);
}

START_TEST(test_a_change_that_cannot_be_kept_is_taken_back)
{
    failing_ops = *env.ops;
    failing_ops.write = failing_write;
    struct env failing = {.ops = &failing_ops, .context = env.context};
    put("N", "k", "old");
    manager.env = &failing;
    fail_write = true;
    ck_assert_int_eq(kv_config_manager_put(&manager, SLICE_LITERAL("N"), SLICE_LITERAL("k"), SLICE_LITERAL("new"), &error), ERROR_NO_SPACE);
    ck_value("N", "k", "old");
    ck_assert_int_eq(kv_config_manager_put(&manager, SLICE_LITERAL("N"), SLICE_LITERAL("l"), SLICE_LITERAL("new"), &error), ERROR_NO_SPACE);
    ck_value("N", "l", NULL);
    ck_assert_int_eq(kv_config_manager_delete(&manager, SLICE_LITERAL("N"), SLICE_LITERAL("k"), &error), ERROR_NO_SPACE);
    ck_value("N", "k", "old");
    fail_write = false;
    put("N", "k", "new");
    ck_value("N", "k", "new");
}
END_TEST

START_TEST(test_limit)
{
    char *large = malloc(KV_CONFIG_BYTES_MAX);
    memset(large, 'x', KV_CONFIG_BYTES_MAX);
    put("N", "k", "v");
    ck_assert_int_eq(kv_config_manager_put(&manager, SLICE_LITERAL("N"), SLICE_LITERAL("big"), slice_of(large, KV_CONFIG_BYTES_MAX), &error),
                     ERROR_TOO_LARGE);
    ck_assert_int_eq(kv_config_manager_put(&manager, SLICE_LITERAL("N"), SLICE_LITERAL("k"), slice_of(large, KV_CONFIG_BYTES_MAX), &error),
                     ERROR_TOO_LARGE);
    ck_value("N", "k", "v");
    ck_assert_int_eq(kv_config_manager_put(&manager, SLICE_LITERAL("N"), SLICE_LITERAL("k"), slice_of(large, KV_CONFIG_BYTES_MAX - 2), &error), 0);
    free(large);
}
END_TEST

/* ---- settings ---- */

static struct namesrv_config config;

static int read_config(const char *text)
{
    namesrv_config_init(&config);
    return namesrv_config_read(&config, slice_of_text(text), "namesrv.conf", &error);
}

START_TEST(test_config_reads_javas_file)
{
    ck_assert_msg(read_config("rocketmqHome=/opt/rocketmq\nkvConfigPath=/data/kv.json\nlistenPort = 9999\norderMessageEnable=TRUE\n"
                              "serverWorkerThreads=16\nunheardOf=1\nnamesrvListeners=host:19876,lan:29876\n") == 0,
                  "%s", error.message);
    ck_assert_int_eq(config.listen_port, 9999);
    ck_assert_str_eq(config.kv_config_path, "/data/kv.json");
    ck_assert(config.order_message_enable);
    ck_assert_int_eq(config.listener_count, 2);
    ck_assert_str_eq(namesrv_config_listener_name(&config, 29876), "lan");
    ck_assert_ptr_null(namesrv_config_listener_name(&config, 9999));
}
END_TEST

START_TEST(test_config_refuses_wrong_values)
{
    static const char *const wrong[] = {"listenPort=0",         "listenPort=65536",        "listenPort=abc",     "orderMessageEnable=perhaps",
                                        "logLevel=loud",        "namesrvListeners=host",   "namesrvListeners=:1", "namesrvListeners=host:0",
                                        "namesrvListeners=a:1,", "serverChannelMaxIdleTimeSeconds=-1"};
    /* A trailing comma is forgiven; everything else names file, line and key. */
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        int rv = read_config(wrong[i]);
        if (strcmp(wrong[i], "namesrvListeners=a:1,") == 0) {
            ck_assert_int_eq(rv, 0);
            continue;
        }
        ck_assert_msg(rv == ERROR_INVALID, "%s was taken", wrong[i]);
        ck_assert_ptr_nonnull(strstr(error.message, "namesrv.conf:1"));
        ck_assert_msg(memcmp(strstr(error.message, ": ") + 2, wrong[i], 8) == 0, "%s", error.message);
    }
}
END_TEST

START_TEST(test_config_update_is_all_or_nothing)
{
    ck_assert_int_eq(read_config(""), 0);
    ck_assert_int_eq(namesrv_config_update(&config, SLICE_LITERAL("orderMessageEnable=true\nkvConfigPath=/x\n"), &error), ERROR_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(error.message, "Can not update config path"));
    ck_assert(!config.order_message_enable);
    ck_assert_int_eq(namesrv_config_update(&config, SLICE_LITERAL("listenPort=1\n"), &error), ERROR_NOT_FOUND);
    ck_assert_int_eq(namesrv_config_update(&config, SLICE_LITERAL("nothing=1\n"), &error), ERROR_NOT_FOUND);
    ck_assert_int_eq(namesrv_config_update(&config, SLICE_LITERAL("orderMessageEnable=maybe\n"), &error), ERROR_INVALID);
    ck_assert_int_eq(namesrv_config_update(&config, SLICE_LITERAL("orderMessageEnable=true\n"), &error), 0);
    ck_assert(config.order_message_enable);

    struct buffer out;
    buffer_init(&out, 0);
    namesrv_config_write(&config, &out);
    struct namesrv_config restored;
    namesrv_config_init(&restored);
    restored.listen_port = 1234;
    ck_assert_int_eq(namesrv_config_restore(&restored, buffer_slice(&out), &error), 0);
    ck_assert(restored.order_message_enable);
    ck_assert_int_eq(restored.listen_port, 1234); /* what the file said last time does not count */
    struct namesrv_config again;
    namesrv_config_init(&again);
    ck_assert_int_eq(namesrv_config_read(&again, buffer_slice(&out), "written", &error), 0);
    ck_assert_int_eq(memcmp(&again, &config, sizeof again), 0);
    buffer_close(&out);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kv_config_manager");
    TCase *kv = tcase_create("kv_config_manager");
    tcase_add_checked_fixture(kv, set_up, tear_down);
    tcase_add_test(kv, test_put_get_delete);
    tcase_add_test(kv, test_any_bytes);
    tcase_add_test(kv, test_empty_key_in_the_file);
    tcase_add_test(kv, test_survives_a_restart);
    tcase_add_test(kv, test_reads_javas_file_and_refuses_garbage);
    tcase_add_test(kv, test_a_change_that_cannot_be_kept_is_taken_back);
    tcase_add_test(kv, test_limit);
    suite_add_tcase(suite, kv);
    TCase *settings = tcase_create("namesrv_config");
    tcase_add_test(settings, test_config_reads_javas_file);
    tcase_add_test(settings, test_config_refuses_wrong_values);
    tcase_add_test(settings, test_config_update_is_all_or_nothing);
    suite_add_tcase(suite, settings);
    return run_suite(suite);
}
