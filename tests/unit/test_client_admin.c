/* mqadmin: exit statuses, the leader table, and the frames and figures of bench. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/admin/bench.h"
#include "client/admin/message_trace.h"
#include "proto/headers.h"
#include "proto/json.h"
#include "proto/kv_table.h"
#include "proto/message.h"
#include "proto/request_code.h"
#include "proto/response_code.h"
#include "tests/lib/fake_server.h"
#include "tests/lib/run_suite.h"

/* Runs mqadmin with output into `out`. */
static int run(char *out, size_t size, const char *const *arguments)
{
    char *argv[32] = {(char *)(uintptr_t) "mqadmin"};
    char path[] = "/tmp/ledgermq-test-admin-XXXXXX";
    int argc = 1, file = mkstemp(path), kept = dup(STDOUT_FILENO), kept_error = dup(STDERR_FILENO);
    ck_assert_int_ge(file, 0);
    for (; arguments[argc - 1] != NULL; argc++)
        argv[argc] = (char *)(uintptr_t)arguments[argc - 1];
    fflush(stdout);
    dup2(file, STDOUT_FILENO);
    dup2(file, STDERR_FILENO);
    int status = admin_main(argc, argv);
    fflush(stdout);
    dup2(kept, STDOUT_FILENO);
    dup2(kept_error, STDERR_FILENO);
    close(kept);
    close(kept_error);
    ssize_t n = pread(file, out, size - 1, 0);
    out[n > 0 ? n : 0] = '\0';
    close(file);
    unlink(path);
    return status;
}
#define RUN(out, ...) run(out, sizeof out, (const char *const[]){__VA_ARGS__, NULL})

START_TEST(test_usage)
{
    char out[16384];
    ck_assert_int_eq(RUN(out, "help"), ADMIN_OK);
    ck_assert_ptr_nonnull(strstr(out, "updateTopic"));
    ck_assert_ptr_nonnull(strstr(out, "leader"));
    ck_assert_int_eq(RUN(out, "help", "updateTopic"), ADMIN_OK);
    ck_assert_ptr_nonnull(strstr(out, "--readQueueNums"));
    ck_assert_int_eq(RUN(out, "topicRoute", "--help"), ADMIN_OK);
    ck_assert_ptr_nonnull(strstr(out, "-t, --topic"));
    ck_assert_int_eq(RUN(out, "--version"), ADMIN_OK);
    ck_assert_int_eq(RUN(out, "updateTopicc"), ADMIN_USAGE);
    ck_assert_ptr_nonnull(strstr(out, "did you mean 'updateTopic"));
    ck_assert_int_eq(RUN(out, "topicRoute"), ADMIN_USAGE);
    ck_assert_ptr_nonnull(strstr(out, "-t (--topic) is missing"));
    ck_assert_int_eq(RUN(out, "topicRoute", "-t"), ADMIN_USAGE);
    ck_assert_int_eq(RUN(out, "topicRoute", "-t", "T", "-Z"), ADMIN_USAGE);
    ck_assert_int_eq(RUN(out, "topicRoute", "-t", "T", "more"), ADMIN_USAGE);
    ck_assert_int_eq(RUN(out, "updateTopic", "-t", "T", "-c", "C", "-r", "many"), ADMIN_USAGE);
    ck_assert_ptr_nonnull(strstr(out, "--readQueueNums takes a number"));
    ck_assert_int_eq(RUN(out, "updateTopic", "-t", "T"), ADMIN_USAGE);
    ck_assert_int_eq(RUN(out, "updateTopic", "-t", "a b", "-b", "127.0.0.1:1"), ADMIN_USAGE);
    ck_assert_int_eq(RUN(out, "resetOffsetByTime", "-g", "g", "-t", "T", "-s", "yesterday"), ADMIN_USAGE);
    ck_assert_ptr_nonnull(strstr(out, "--timestamp takes milliseconds"));
    ck_assert_int_eq(RUN(out, "resetOffsetByTime", "-g", "g", "-t", "T", "-s", "2026-01-01#00:00:00:000", "-f", "maybe"), ADMIN_USAGE);
    ck_assert_int_eq(RUN(out, "skipAccumulatedMessage", "-g", "g"), ADMIN_USAGE);
    ck_assert_int_eq(RUN(out, "cloneGroupOffset", "-s", "g", "-d", "h"), ADMIN_USAGE);
    ck_assert_int_eq(RUN(out, "queryCq", "-t", "T", "-q", "x", "-i", "0"), ADMIN_USAGE);
    ck_assert_int_eq(RUN(out, "queryCq", "-t", "T", "-q", "0", "-i", "0", "-c", "5000"), ADMIN_USAGE);
    ck_assert_int_eq(RUN(out, "printMsgByQueue", "-t", "T", "-i", "0"), ADMIN_USAGE);
    ck_assert_int_eq(RUN(out, "brokerConsumeStats", "-b", "127.0.0.1:1", "-l", "-5"), ADMIN_USAGE);
    ck_assert_int_eq(RUN(out, "bench", "--window", "1", "--conns", "2"), ADMIN_USAGE);
    ck_assert_int_eq(RUN(out, "bench", "--pids", "999999999"), ADMIN_USAGE);
}
END_TEST

START_TEST(test_nobody_there)
{
    char out[4096], dead[32];
    snprintf(dead, sizeof dead, "127.0.0.1:%d", fake_server_free_port());
    unsetenv("NAMESRV_ADDR");
    ck_assert_int_eq(RUN(out, "topicList"), ADMIN_FAILED);
    ck_assert_ptr_nonnull(strstr(out, "NAMESRV_ADDR"));
    ck_assert_int_eq(RUN(out, "topicList", "-n", dead), ADMIN_FAILED);
    ck_assert_ptr_nonnull(strstr(out, dead));
    ck_assert_int_eq(RUN(out, "leader", "-n", dead), ADMIN_FAILED);
    ck_assert_int_eq(RUN(out, "producer", "-b", dead), ADMIN_FAILED);
    ck_assert_int_eq(RUN(out, "statsAll", "-n", dead), ADMIN_FAILED);
    ck_assert_int_eq(RUN(out, "consumerStatus", "-g", "g", "-b", dead), ADMIN_FAILED);
    ck_assert_int_eq(RUN(out, "resetOffsetByTime", "-g", "g", "-t", "T", "-s", "now", "-n", dead), ADMIN_FAILED);
    ck_assert_int_eq(RUN(out, "printMsg", "-t", "T", "-n", dead), ADMIN_FAILED);
    ck_assert_int_eq(RUN(out, "queryCq", "-t", "T", "-q", "0", "-i", "0", "-b", dead), ADMIN_FAILED);
    ck_assert_int_eq(RUN(out, "brokerStatus", "-b", dead), ADMIN_FAILED);
    ck_assert_int_eq(RUN(out, "sendMessage", "-n", dead, "-t", "T", "-p", "x"), ADMIN_FAILED);
}
END_TEST

/* --- leader ---- */

static struct {
    struct fake_server name_server, leader, follower;
    char dead[32];
    bool follower_connected;
    bool silent_leader; /* the leader process runs but knows it does not lead */
    bool hands_over, handed_over; /* asked for a transfer, it says that the follower leads already, and so it is from then on */
} world;

static enum fake_reaction cluster_script(struct fake_server *server, struct remoting_command *request,
                                         struct buffer *out)
{
    char body[600];
    (void)server;
    ck_assert_int_eq(request->code, REQUEST_GET_BROKER_CLUSTER_INFO);
    /* The follower is not registered: only the leader's member rows name it. */
    snprintf(body, sizeof body,
             "{\"brokerAddrTable\":{\"broker-a\":{\"brokerAddrs\":{0:\"%s\",3:\"%s\"},\"brokerName\":\"broker-a\","
             "\"cluster\":\"C\"}},"
             "\"clusterAddrTable\":{\"C\":[\"broker-a\"]}}",
             world.leader.address, world.dead);
    fake_answer(out, request, 0, NULL, slice_of_text(body));
    return FAKE_ANSWER;
}

static void add_member(struct buffer *body, const char *id, const char *role, int match, int lag, bool connected,
                       const char *address)
{
    char name[32], value[160];
    snprintf(name, sizeof name, "raftMember_%s", id);
    snprintf(value, sizeof value, "127.0.0.1:999,%s,%d,%d,%s,%s", role, match, lag, connected ? "true" : "false",
             address);
    kv_table_add_text(body, name, value);
}

static enum fake_reaction raft_script(struct fake_server *server, struct remoting_command *request,
                                      struct buffer *out)
{
    struct buffer body;
    bool leads = server == (world.handed_over ? &world.follower : &world.leader) && !world.silent_leader;
    if (request->code == REQUEST_TRANSFER_LEADERSHIP) {
        world.handed_over = world.hands_over;
        fake_answer(out, request, RESPONSE_SYSTEM_ERROR, world.hands_over ? "n1 leads already" : "n1 is no member", slice_of(NULL, 0));
        return FAKE_ANSWER;
    }
    ck_assert_int_eq(request->code, REQUEST_GET_BROKER_RUNTIME_INFO);
    buffer_init(&body, 0);
    kv_table_begin(&body);
    kv_table_add_text(&body, "raftSelf", server == &world.leader ? "n0" : "n1");
    kv_table_add_text(&body, "raftGroup", "broker-a");
    kv_table_add_text(&body, "raftRole", leads ? "LEADER" : "FOLLOWER");
    kv_table_add_text(&body, "raftLeader", world.silent_leader ? "" : world.handed_over ? "n1" : "n0");
    kv_table_add_text(&body, "raftDurability", "B");
    kv_table_add_i64(&body, "raftTerm", world.handed_over ? 8 : 7);
    kv_table_add_i64(&body, "raftLastIndex", 1000);
    kv_table_add_i64(&body, "raftCommitIndex", 990);
    kv_table_add_i64(&body, "raftAppliedIndex", 990);
    kv_table_add_i64(&body, "raftCommittedPosition", 123456);
    kv_table_add_i64(&body, "raftUpSince", 1700000000000);
    add_member(&body, "n0", "LEADER", leads ? 1000 : -1, leads ? 0 : -1, true, world.leader.address);
    add_member(&body, "n1", "FOLLOWER", leads ? 998 : 1000, leads ? 2 : -1, world.follower_connected,
               world.follower.address);
    add_member(&body, "n2", "UNKNOWN", leads ? 400 : -1, leads ? 600 : -1, false, world.dead);
    kv_table_end(&body);
    fake_answer(out, request, 0, NULL, buffer_slice(&body));
    buffer_close(&body);
    return FAKE_ANSWER;
}

static void leader_set_up(void)
{
    snprintf(world.dead, sizeof world.dead, "127.0.0.1:%d", fake_server_free_port());
    world.follower_connected = true;
    fake_server_start(&world.name_server, 0, cluster_script, NULL);
    fake_server_start(&world.leader, 0, raft_script, NULL);
    fake_server_start(&world.follower, 0, raft_script, NULL);
}

static void leader_tear_down(void)
{
    fake_server_stop(&world.name_server);
    fake_server_stop(&world.leader);
    fake_server_stop(&world.follower);
}

START_TEST(test_leader_table)
{
    char out[8192];
    ck_assert_msg(RUN(out, "leader", "-n", world.name_server.address) == ADMIN_OK, "%s", out);
    ck_assert_ptr_nonnull(strstr(out, "Leader n0, 2 of 3 members in sync."));
    ck_assert_ptr_nonnull(strstr(out, "UNREACHABLE"));
    ck_assert_ptr_nonnull(strstr(out, world.dead));
    ck_assert_ptr_nonnull(strstr(out, world.follower.address));
    /* The same from one node alone. */
    ck_assert_msg(RUN(out, "leader", "-b", world.follower.address) == ADMIN_OK, "%s", out);
    ck_assert_ptr_nonnull(strstr(out, "Leader n0, 2 of 3 members in sync."));
}
END_TEST

START_TEST(test_leader_json)
{
    char out[8192];
    struct json_document document;
    struct error error = {0};
    int64_t number = 0;
    bool reachable = true;
    struct slice text;
    ck_assert_int_eq(RUN(out, "leader", "-n", world.name_server.address, "--json"), ADMIN_OK);
    ck_assert_msg(json_parse(&document, slice_of_text(out), NULL, 0, &error) == 0, "%s: %s", error.message, out);
    struct json_iterator groups = json_iterate(json_root(&document));
    struct json_value group, member;
    ck_assert(json_next_element(&groups, &group));
    ck_assert(json_text(json_get(group, "leader"), &text) && slice_equal_text(text, "n0"));
    struct json_iterator members = json_iterate(json_get(group, "members"));
    static const char *const ids[] = {"n0", "n1", "n2"};
    static const int64_t last[] = {1000, 1000, 400}, lag[] = {0, 2, 600};
    for (int i = 0; i < 3; i++) {
        ck_assert(json_next_element(&members, &member));
        ck_assert(json_text(json_get(member, "id"), &text) && slice_equal_text(text, ids[i]));
        ck_assert(json_i64(json_get(member, "lastIndex"), &number));
        ck_assert_int_eq(number, last[i]);
        ck_assert(json_i64(json_get(member, "lag"), &number));
        ck_assert_int_eq(number, lag[i]);
        ck_assert(json_bool(json_get(member, "reachable"), &reachable));
        ck_assert(reachable == (i < 2));
        ck_assert(json_i64(json_get(member, "term"), &number) == (i < 2));
        ck_assert(json_i64(json_get(member, "committedPosition"), &number) == (i < 2));
    }
    ck_assert(!json_next_element(&members, &member));
    json_close(&document);
}
END_TEST

START_TEST(test_leader_without_majority)
{
    char out[8192];
    world.follower_connected = false;
    ck_assert_int_eq(RUN(out, "leader", "-n", world.name_server.address), ADMIN_FAILED);
    ck_assert_ptr_nonnull(strstr(out, "1 of 3 members in sync: no majority"));
    world.silent_leader = true;
    ck_assert_int_eq(RUN(out, "leader", "-n", world.name_server.address), ADMIN_FAILED);
    ck_assert_ptr_nonnull(strstr(out, "No leader."));
}
END_TEST

/* The leader that was looked up has handed over when it is asked to. */
START_TEST(test_transfer_that_is_done_already)
{
    char out[8192];
    ck_assert_int_eq(RUN(out, "transfer", "-i", "n1", "-n", world.name_server.address), ADMIN_FAILED);
    ck_assert_ptr_nonnull(strstr(out, "n1 is no member"));
    world.hands_over = true;
    ck_assert_msg(RUN(out, "transfer", "-i", "n1", "-n", world.name_server.address) == ADMIN_OK, "%s", out);
    ck_assert_ptr_nonnull(strstr(out, "went from n0 to n1, term 8"));
}
END_TEST

/* --- bench ---- */

static struct bench_options options_of(int batch, int serialize_type)
{
    return (struct bench_options){.topic = "T",
                                  .group = "g",
                                  .queues = 3,
                                  .size = 100,
                                  .batch = batch,
                                  .serialize_type = serialize_type,
                                  .window = 1,
                                  .connections = 1,
                                  .topics = 1};
}

START_TEST(test_bench_frames)
{
    static const int rows[][2] = {{1, REMOTING_JSON}, {1, REMOTING_BINARY}, {4, REMOTING_JSON}, {4, REMOTING_BINARY}};
    struct bench_options options = options_of(rows[_i][0], rows[_i][1]);
    struct bench_frames *frames = bench_frames_new(&options);
    struct buffer out;
    char keys[16][40];
    int key_count = 0;
    ck_assert_ptr_nonnull(frames);
    buffer_init(&out, 0);
    for (uint64_t number = 0; number < 4; number++)
        ck_assert(bench_frames_append(frames, &out, (uint32_t)number + 5, number, 1700000000123456789));
    size_t at = 0;
    for (uint64_t number = 0; number < 4; number++) {
        struct remoting_command command;
        struct send_message_request_header header;
        struct error error;
        int64_t size = remoting_frame_size(slice_of(out.data + at, out.size - at));
        ck_assert_int_gt(size, 0);
        ck_assert_int_eq(remoting_command_decode(out.data + at, (size_t)size, &command), 0);
        at += (size_t)size;
        ck_assert_int_eq(command.code, options.batch > 1 ? REQUEST_SEND_BATCH_MESSAGE : REQUEST_SEND_MESSAGE_V2);
        ck_assert_int_eq(command.opaque, (1 << 30) + (int)number + 5);
        ck_assert_msg(send_message_request_header_decode(&command, &header, &error) == 0, "%s", error.message);
        ck_assert_int_eq(header.queue_id, (int)(number % 3));
        ck_assert_int_eq(header.born_timestamp_ms, 1700000000123);
        ck_assert_int_eq(header.batch, options.batch > 1);
        ck_assert(slice_equal_text(message_property(header.properties, "WAIT"), "true"));
        struct cursor cursor = cursor_of(command.body);
        struct message_batch_member member = {.body = command.body, .properties = header.properties};
        for (int i = 0; i < options.batch; i++) {
            if (options.batch > 1)
                ck_assert_int_eq(message_batch_next(&cursor, &member), 1);
            ck_assert_uint_eq(member.body.size, 100);
            ck_assert_uint_eq(load_u64(member.body.data + 8), number * (uint64_t)options.batch + (uint64_t)i);
            struct slice key = message_property(member.properties, "UNIQ_KEY");
            ck_assert_uint_eq(key.size, 32);
            snprintf(keys[key_count++], sizeof keys[0], "%.*s", (int)key.size, (const char *)key.data);
        }
        if (options.batch > 1)
            ck_assert_int_eq(message_batch_next(&cursor, &member), 0);
    }
    ck_assert_uint_eq(at, out.size);
    for (int i = 1; i < key_count; i++)
        ck_assert_int_lt(strcmp(keys[i - 1], keys[i]), 0); /* all different, counting up */
    buffer_close(&out);
    bench_frames_free(frames);
}
END_TEST

static bool scan(const char *header, int32_t *code, uint32_t *opaque)
{
    uint8_t frame[512];
    size_t size = strlen(header);
    store_u32(frame, (uint32_t)size + 4);
    store_u32(frame + 4, (uint32_t)size);
    memcpy(frame + 8, header, size);
    return bench_answer(frame, size + 8, code, opaque);
}

START_TEST(test_bench_answers)
{
    int32_t code = -1;
    uint32_t opaque = 0;
    ck_assert(scan("{\"code\":0,\"extFields\":{\"queueId\":\"0\",\"msgId\":\"7F\"},\"flag\":1,\"language\":\"JAVA\","
                   "\"opaque\":1073741829,\"version\":409}",
                   &code, &opaque));
    ck_assert_int_eq(code, 0);
    ck_assert_uint_eq(opaque, 5);
    /* Texts and inner members of the same names do not count. */
    ck_assert(scan("{\"remark\":\"\\\"opaque\\\":1,\\\\\",\"extFields\":{\"code\":\"9\",\"opaque\":7},\"opaque\":"
                   "1073741824,\"code\":14,\"flag\":1}",
                   &code, &opaque));
    ck_assert_int_eq(code, 14);
    ck_assert_uint_eq(opaque, 0);
    ck_assert(!scan("{\"code\":40,\"flag\":2,\"opaque\":3}", &code, &opaque)); /* a broker's request */
    ck_assert(!scan("{\"code\":0}", &code, &opaque));
    ck_assert(!scan("{\"code\":0,\"opaque", &code, &opaque));
    ck_assert(!scan("", &code, &opaque));
    struct buffer out;
    struct remoting_writer writer;
    buffer_init(&out, 0);
    remoting_writer_begin_response(&writer, &out, REMOTING_BINARY, 14, (1 << 30) + 77, "no leader");
    remoting_writer_end(&writer, 0);
    ck_assert(bench_answer(out.data, out.size, &code, &opaque));
    ck_assert_int_eq(code, 14);
    ck_assert_uint_eq(opaque, 77);
    ck_assert(!bench_answer(out.data, 7, &code, &opaque));
    ck_assert(!bench_answer(out.data, 20, &code, &opaque));
    buffer_close(&out);
}
END_TEST

START_TEST(test_bench_histogram)
{
    static struct bench_histogram histogram;
    ck_assert_double_eq(bench_histogram_us(&histogram, 50), 0);
    for (int i = 1; i <= 100000; i++)
        bench_histogram_add(&histogram, i * 1000LL);
    ck_assert_double_eq_tol(bench_histogram_us(&histogram, 50), 50000, 50000 * 0.016);
    ck_assert_double_eq_tol(bench_histogram_us(&histogram, 99), 99000, 99000 * 0.016);
    ck_assert_double_eq_tol(bench_histogram_us(&histogram, 99.9), 99900, 99900 * 0.016);
    ck_assert_double_le(bench_histogram_us(&histogram, 100), 100000);
    bench_histogram_add(&histogram, INT64_MAX);
    bench_histogram_add(&histogram, -5);
    ck_assert_uint_eq(histogram.total, 100002);
    struct bench_codes codes = {0};
    for (int i = 0; i < 40; i++)
        bench_codes_add(&codes, i / 2);
    ck_assert_uint_eq(bench_codes_total(&codes), 40);
}
END_TEST

START_TEST(test_bench_processes)
{
    ck_assert_double_ge(bench_cpu_seconds((int)getpid()), 0);
    ck_assert_double_gt(bench_memory_mib((int)getpid(), "VmRSS"), 1);
    double before = bench_cpu_seconds((int)getpid());
    for (int64_t end = bench_now_ns() + 2000000; bench_now_ns() < end;)
        ;
    ck_assert_double_gt(bench_cpu_seconds((int)getpid()), before); /* less than a tick of the kernel */
    ck_assert_double_lt(bench_cpu_seconds(999999999), 0);
    struct bench_options watched = {.pids = {(int)getpid(), 999999999}, .pid_count = 2};
    ck_assert_double_lt(bench_cpu_of_watched(&watched), 0);
    ck_assert_double_lt(bench_per_million(1, -1, 5), 0);
    ck_assert_double_eq(bench_per_million(1, 2, 0), 0);
    ck_assert_double_eq(bench_per_million(1, 2, 500000), 2);
    ck_assert_double_lt(bench_memory_mib(999999999, "VmRSS"), 0);
}
END_TEST

/* One message in one queue. */
static enum fake_reaction one_message_script(struct fake_server *server, struct remoting_command *request, struct buffer *out)
{
    static const uint8_t record[] = {0, 0, 0, 8, 0, 0, 0, 0};
    struct remoting_writer writer;
    if (request->code == REQUEST_GET_ROUTEINFO_BY_TOPIC) {
        char broker[64];
        snprintf(broker, sizeof broker, "broker-a=%s", server->address);
        fake_answer_route(out, request, (const char *const[]){broker, NULL}, 1, 6);
        return FAKE_ANSWER;
    }
    remoting_writer_begin_response(&writer, out, request->serialize_type, 0, request->opaque, NULL);
    if (request->code == REQUEST_PULL_MESSAGE) {
        remoting_writer_ext_i64(&writer, "suggestWhichBrokerId", 0);
        remoting_writer_ext_i64(&writer, "nextBeginOffset", 1);
        remoting_writer_ext_i64(&writer, "minOffset", 0);
        remoting_writer_ext_i64(&writer, "maxOffset", 1);
        remoting_writer_body(&writer);
        buffer_append_slice(out, slice_of(record, sizeof record));
    } else {
        remoting_writer_ext_i64(&writer, "offset", request->code == REQUEST_GET_MAX_OFFSET);
    }
    remoting_writer_end(&writer, 0);
    return FAKE_ANSWER;
}

static double figure(const char *json, const char *name)
{
    const char *at = strstr(json, name);
    ck_assert_msg(at != NULL, "no %s in %s", name, json);
    return strtod(at + strlen(name), NULL);
}

/* A read that takes some microseconds has its time too: who reads the figures divides by it. */
START_TEST(test_bench_of_one_message)
{
    struct fake_server server;
    char out[4096];
    fake_server_start(&server, 0, one_message_script, NULL);
    ck_assert_msg(RUN(out, "bench", "--consume", "-n", server.address, "-t", "T", "-j") == ADMIN_OK, "%s", out);
    double seconds = figure(out, "\"seconds\":");
    ck_assert_msg(seconds > 0, "%s", out);
    ck_assert_msg(figure(out, "\"messages\":") == 1 && figure(out, "\"looked_at\":") == 1, "%s", out);
    ck_assert_double_eq_tol(figure(out, "\"msg_s\":") * seconds, 1, 0.2);
    fake_server_stop(&server);
}
END_TEST

/* As the Java clients write them: 4.9.8, one without offsetMsgId, a consumer's two, and what is none. */
START_TEST(test_message_trace)
{
    static const char text[] = "Pub\0011700000000000\001R\001pg\001T\001ID1\001tag\001keys\001127.0.0.1:10911\0015\00112\0010\001OFFSET\001true\002"
                               "Pub\0011700000000001\001R\001pg\001T\001ID2\001\001\001h\0015\0013\0010\001false\002"
                               "nonsense\001x\002"
                               "SubBefore\0011700000000002\001R\001cg\001REQ\001ID1\0010\001keys\002"
                               "SubAfter\001REQ\001ID1\0017\001true\001keys\0010\0011700000000003\001cg\002"
                               "SubAfter\001REQ\001ID1\0019\001false\002Pub\001cut";
    struct slice rest = slice_of_text(text);
    struct message_trace trace;
    ck_assert(message_trace_next(&rest, &trace));
    ck_assert(trace.type == TRACE_PUB && trace.success && trace.time_ms == 1700000000000 && trace.cost_ms == 12);
    ck_assert(slice_equal_text(trace.group, "pg") && slice_equal_text(trace.message_id, "ID1"));
    ck_assert(message_trace_next(&rest, &trace));
    ck_assert(trace.type == TRACE_PUB && !trace.success && slice_equal_text(trace.message_id, "ID2"));
    ck_assert(message_trace_next(&rest, &trace));
    ck_assert(trace.type == TRACE_SUB_BEFORE && slice_equal_text(trace.group, "cg"));
    ck_assert(message_trace_next(&rest, &trace));
    ck_assert(trace.type == TRACE_SUB_AFTER && trace.success && trace.cost_ms == 7 && trace.time_ms == 1700000000003 && slice_equal_text(trace.group, "cg"));
    ck_assert(message_trace_next(&rest, &trace));
    ck_assert(trace.type == TRACE_SUB_AFTER && !trace.success && trace.group.size == 0);
    ck_assert(!message_trace_next(&rest, &trace));
    rest = slice_of(NULL, 0);
    ck_assert(!message_trace_next(&rest, &trace));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_admin");
    TCase *tcase = tcase_create("usage");
    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, test_usage);
    tcase_add_test(tcase, test_nobody_there);
    suite_add_tcase(suite, tcase);
    TCase *leader = tcase_create("leader");
    tcase_set_timeout(leader, 30);
    tcase_add_checked_fixture(leader, leader_set_up, leader_tear_down);
    tcase_add_test(leader, test_leader_table);
    tcase_add_test(leader, test_leader_json);
    tcase_add_test(leader, test_leader_without_majority);
    tcase_add_test(leader, test_transfer_that_is_done_already);
    suite_add_tcase(suite, leader);
    TCase *bench = tcase_create("bench");
    tcase_add_loop_test(bench, test_bench_frames, 0, 4);
    tcase_add_test(bench, test_bench_answers);
    tcase_add_test(bench, test_bench_histogram);
    tcase_add_test(bench, test_bench_processes);
    tcase_add_test(bench, test_bench_of_one_message);
    suite_add_tcase(suite, bench);
    TCase *trace = tcase_create("trace");
    tcase_add_test(trace, test_message_trace);
    suite_add_tcase(suite, trace);
    return run_suite(suite);
}
