/* DLedger's own requests, answer by answer, and what a raw entry is: an index and its room in the log, and no message. */
#include "dledger/dledger_rpc_service.h"

#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/dledger_json.h"
#include "proto/remoting_command.h"
#include "tests/lib/replica_group.h"
#include "tests/lib/run_suite.h"

#define CONNECTION 7u

static struct dledger_rpc_service services[GROUP_NODES + 1];
static char answers[16][2048]; /* bodies, by opaque */
static int answered[16];

static void take_answer(struct slice frame)
{
    struct remoting_command command;
    ck_assert_int_eq(remoting_frame_size(frame), (int64_t)frame.size);
    ck_assert_int_eq(remoting_command_decode((uint8_t *)(uintptr_t)frame.data, frame.size, &command), 0);
    ck_assert(remoting_is_response(&command));
    ck_assert_int_lt(command.opaque, 16);
    answered[command.opaque]++;
    if (command.code == DLEDGER_SUCCESS)
        snprintf(answers[command.opaque], sizeof answers[0], "%.*s", (int)command.body.size, (const char *)command.body.data);
    else
        snprintf(answers[command.opaque], sizeof answers[0], "%d%.*s", command.code, (int)command.remark.size, (const char *)command.remark.data);
}

static void on_answer(void *context, uint64_t connection, struct slice frame)
{
    (void)context;
    ck_assert_uint_eq(connection, CONNECTION);
    take_answer(frame);
}

static void set_up(void)
{
    group_set_up();
    memset(answers, 0, sizeof answers);
    memset(answered, 0, sizeof answered);
    for (int i = 1; i <= GROUP_NODES; i++)
        dledger_rpc_service_init(&services[i], &group.nodes[i].replica, NULL, on_answer);
}

static void tear_down(void)
{
    for (int i = 1; i <= GROUP_NODES; i++)
        dledger_rpc_service_close(&services[i]);
    group_tear_down();
}

static void steps(int count)
{
    while (count-- > 0) {
        group_step();
        for (int i = 1; i <= GROUP_NODES; i++) {
            if (group.nodes[i].up)
                dledger_rpc_service_turn(&services[i]);
        }
    }
}

/* Sends a request; an answer that comes at once is in answers[opaque]. */
static void ask(struct group_node *node, int code, int opaque, const char *json)
{
    struct remoting_writer writer;
    struct buffer frame, out;

    answered[opaque] = 0;
    buffer_init(&frame, 0);
    buffer_init(&out, REMOTING_FRAME_MAX);
    remoting_writer_begin_request(&writer, &frame, 0, code, opaque, 0);
    remoting_writer_body(&writer);
    buffer_append_text(&frame, json);
    remoting_writer_end(&writer, 0);
    ck_assert(dledger_rpc_service_request(&services[node->id], CONNECTION, frame.data, frame.size, &out));
    if (out.size > 0)
        take_answer(buffer_slice(&out));
    buffer_close(&frame);
    buffer_close(&out);
}

static const char *answer(int opaque)
{
    for (int i = 0; i < 3000 && answered[opaque] == 0; i++)
        steps(1);
    ck_assert_int_eq(answered[opaque], 1);
    return answers[opaque];
}

#define EXPECT(opaque, ...)                                                                                                                         \
    do {                                                                                                                                            \
        char expected[2048];                                                                                                                        \
        snprintf(expected, sizeof expected, __VA_ARGS__);                                                                                           \
        ck_assert_str_eq(answer(opaque), expected);                                                                                                 \
    } while (0)

/* As text. */
static const char *id_of(const struct group_node *node)
{
    return node->replica.options.self_id;
}

static unsigned long long term_of(struct group_node *node)
{
    return raft_current_term(&node->replica.driver.raft);
}

static void ask_text(struct group_node *node, int code, int opaque, const char *format, ...)
{
    char json[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(json, sizeof json, format, arguments);
    va_end(arguments);
    ask(node, code, opaque, json);
}

static struct group_node *start_group(void)
{
    struct group_node *leader;
    group_all_up();
    leader = group_wait_leader(2000);
    steps(50);
    return leader;
}

START_TEST(test_metadata)
{
    struct group_node *leader = start_group();
    for (int i = 1; i <= GROUP_NODES; i++) {
        struct group_node *node = &group.nodes[i];
        ask_text(node, DLEDGER_METADATA, 1, "{\"group\":\"g\",\"remoteId\":\"%s\"}", id_of(node));
        EXPECT(1, "{\"code\":200,\"group\":\"g\",\"leaderId\":\"%s\",\"peers\":{\"n0\":\"127.0.0.1:1\",\"n1\":\"127.0.0.1:2\",\"n2\":\"127.0.0.1:3\"},\"term\":-1}",
               id_of(leader));
    }
    /* What is asked of the wrong one comes back, with the code. */
    ask_text(leader, DLEDGER_METADATA, 2, "{\"group\":\"g\",\"remoteId\":\"n9\",\"localId\":\"me\",\"term\":5}");
    EXPECT(2, "{\"code\":401,\"group\":\"g\",\"leaderId\":\"%s\",\"localId\":\"me\",\"peers\":{},\"remoteId\":\"n9\",\"term\":5}", id_of(leader));
    ask_text(leader, DLEDGER_METADATA, 3, "{\"group\":\"h\",\"remoteId\":\"%s\"}", id_of(leader));
    EXPECT(3, "{\"code\":400,\"group\":\"h\",\"leaderId\":\"%s\",\"peers\":{},\"remoteId\":\"%s\",\"term\":-1}", id_of(leader), id_of(leader));
    ask_text(leader, DLEDGER_METADATA, 4, "{\"group\":\"g\"}");
    ck_assert_ptr_nonnull(strstr(answer(4), "\"code\":401"));
    ask(leader, DLEDGER_METADATA, 5, "{");
    ck_assert_int_eq(answer(5)[0], '1'); /* no JSON: the remoting code says so */
    ask(leader, 51001, 6, "{}");
    ck_assert_str_eq(answer(6), "3 request type 51001 not supported");
}
END_TEST

START_TEST(test_append_and_get)
{
    struct group_node *leader = start_group();
    struct group_node *follower = group_other(leader, NULL);
    int64_t index = leader->replica.ledger.last_index + 1;
    uint64_t position = leader->replica.ledger.end_position;
    unsigned long long term = term_of(leader);

    ask_text(leader, DLEDGER_APPEND, 1, "{\"group\":\"g\",\"remoteId\":\"%s\",\"body\":\"SGVsbG8=\"}", id_of(leader));
    ck_assert_int_eq(answered[1], 0); /* only when a majority has it */
    ask_text(leader, DLEDGER_GET, 2, "{\"group\":\"g\",\"remoteId\":\"%s\",\"beginIndex\":%lld}", id_of(leader), (long long)index);
    ck_assert_ptr_nonnull(strstr(answer(2), "\"code\":410")); /* nor is it given before */
    EXPECT(1, "{\"code\":200,\"group\":\"g\",\"index\":%lld,\"leaderId\":\"%s\",\"pos\":%llu,\"term\":%llu}", (long long)index, id_of(leader),
           (unsigned long long)position, term);
    ask_text(leader, DLEDGER_GET, 3, "{\"group\":\"g\",\"remoteId\":\"%s\",\"beginIndex\":%lld}", id_of(leader), (long long)index);
    ck_assert_ptr_nonnull(strstr(answer(3), "\"body\":\"SGVsbG8=\""));
    ck_assert_ptr_nonnull(strstr(answer(3), "\"channel\":4,"));
    ck_assert_ptr_nonnull(strstr(answer(3), "\"size\":53,"));
    ck_assert_int_eq(strncmp(answer(3), "{\"code\":200,", 12), 0);

    ask_text(leader, DLEDGER_GET, 4, "{\"group\":\"g\",\"remoteId\":\"%s\",\"beginIndex\":-5}", id_of(leader));
    ck_assert_ptr_nonnull(strstr(answer(4), "\"code\":410"));
    ask_text(leader, DLEDGER_GET, 5, "{\"group\":\"g\",\"remoteId\":\"%s\",\"beginIndex\":%lld}", id_of(leader), (long long)index + 1);
    ck_assert_ptr_nonnull(strstr(answer(5), "\"code\":410"));
    ask_text(leader, DLEDGER_GET, 6, "{\"group\":\"g\",\"remoteId\":\"%s\",\"beginIndex\":9223372036854775807}", id_of(leader));
    ck_assert_ptr_nonnull(strstr(answer(6), "\"code\":410"));
    ask_text(follower, DLEDGER_GET, 7, "{\"group\":\"g\",\"remoteId\":\"%s\",\"beginIndex\":0}", id_of(follower));
    ck_assert_ptr_nonnull(strstr(answer(7), "\"code\":404"));
    ck_assert_ptr_nonnull(strstr(answer(7), id_of(leader)));
    ask_text(follower, DLEDGER_APPEND, 8, "{\"group\":\"g\",\"remoteId\":\"%s\",\"body\":\"SGVsbG8=\"}", id_of(follower));
    EXPECT(8, "{\"code\":404,\"group\":\"g\",\"index\":-1,\"leaderId\":\"%s\",\"pos\":-1,\"remoteId\":\"%s\",\"term\":-1}", id_of(leader), id_of(follower));
    ask_text(leader, DLEDGER_APPEND, 9, "{\"group\":\"g\",\"remoteId\":\"%s\",\"body\":\"\"}", id_of(leader));
    ck_assert_ptr_nonnull(strstr(answer(9), "\"code\":420"));
    ask_text(leader, DLEDGER_APPEND, 10, "{\"group\":\"g\",\"remoteId\":\"%s\",\"body\":\"?\"}", id_of(leader));
    ck_assert_int_eq(answer(10)[0], '1');
    ck_assert_int_eq(leader->replica.ledger.last_index, index);
}
END_TEST

/* No quorum: the outcome is unknown, and said so. */
START_TEST(test_append_without_quorum)
{
    struct group_node *leader = start_group();
    struct group_node *follower = group_other(leader, NULL);

    group_kill(group_other(leader, follower));
    group_kill(follower);
    ask_text(leader, DLEDGER_APPEND, 1, "{\"group\":\"g\",\"remoteId\":\"%s\",\"body\":\"SGVsbG8=\"}", id_of(leader));
    ck_assert(strstr(answer(1), "\"code\":501") != NULL || strstr(answer(1), "\"code\":502") != NULL);
    ask_text(leader, DLEDGER_APPEND, 2, "{\"group\":\"g\",\"remoteId\":\"%s\",\"body\":\"SGVsbG8=\"}", id_of(leader));
    ck_assert_ptr_nonnull(strstr(answer(2), "\"code\":404"));
}
END_TEST

START_TEST(test_appends_are_bounded)
{
    struct group_node *leader = start_group();

    for (unsigned i = 0; i < DLEDGER_RPC_APPENDS_MAX; i++)
        ask_text(leader, DLEDGER_APPEND, 1, "{\"group\":\"g\",\"remoteId\":\"%s\",\"body\":\"SGVsbG8=\"}", id_of(leader));
    ask_text(leader, DLEDGER_APPEND, 2, "{\"group\":\"g\",\"remoteId\":\"%s\",\"body\":\"SGVsbG8=\"}", id_of(leader));
    ck_assert_ptr_nonnull(strstr(answer(2), "\"code\":503"));
    steps(20);
    ck_assert_int_eq(answered[1], (int)DLEDGER_RPC_APPENDS_MAX);
    ask_text(leader, DLEDGER_APPEND, 3, "{\"group\":\"g\",\"remoteId\":\"%s\",\"body\":\"SGVsbG8=\"}", id_of(leader));
    ck_assert_ptr_nonnull(strstr(answer(3), "\"code\":200"));
}
END_TEST

/* ---- raw entries ---- */

static void append_raw(struct group_node *leader, struct slice body, struct append_entry_request *request)
{
    int64_t offset;
    int code;
    uint8_t *room = replica_reserve(&leader->replica, body.size, &offset, &code);
    ck_assert_ptr_nonnull(room);
    memcpy(room, body.data, body.size);
    replica_append(&leader->replica, LEDGER_ENTRY_RAW, request);
}

static int64_t offset_of(struct group_node *node, int n)
{
    struct consume_queue_unit unit;
    struct consume_queue *queue = message_store_queue(&node->store, SLICE_LITERAL("T"), n % 4, false, NULL);
    ck_assert_ptr_nonnull(queue);
    ck_assert(consume_queue_get(queue, n / 4, &unit));
    return unit.physical_offset;
}

/* Physical offsets, queue offsets, dispatching and reading on every node, for messages 0 .. count - 1 between raw entries. */
static void check_raw(int count, const int64_t *expected, int64_t imitation)
{
    for (int i = 1; i <= GROUP_NODES; i++) {
        struct group_node *node = &group.nodes[i];
        struct log_view *log = &node->store.log;
        ck_assert_int_eq(group_messages(node), count);
        for (int n = 0; n < count; n++) {
            ck_assert_int_eq(offset_of(node, n), expected[n]);
            ck_assert_uint_gt(message_store_record_size(&node->store, expected[n]), 0);
        }
        ck_assert_int_eq(log->committed_offset(log->context), (int64_t)node->replica.ledger.end_position);
        ck_assert_int_eq(node->store.dispatched_offset, log->committed_offset(log->context));
        /* Its bytes are those of a message that lies where it lies: it is none all the same. */
        ck_assert_uint_eq(message_store_record_size(&node->store, imitation), 0);
        ck_assert_int_eq(message_store_record_time(&node->store, imitation), -1);
        /* Nor is what stands inside a message. */
        ck_assert_uint_eq(message_store_record_size(&node->store, expected[0] + 4), 0);
    }
}

START_TEST(test_raw_entries)
{
    enum { COUNT = 12 };
    struct group_node *leader = start_group();
    struct append_entry_request *none = NULL;
    int64_t expected[COUNT];
    int64_t imitation = 0;
    uint64_t digests[GROUP_NODES + 1];

    for (int n = 0; n < COUNT; n++) {
        uint64_t end = leader->replica.ledger.end_position;
        uint8_t record[256];
        struct message_record fake = {.queue_id = 0, .topic = SLICE_LITERAL("T"), .store_timestamp_ms = 1700000000000, .queue_offset = n / 4};
        size_t size = message_record_size(&fake);

        ck_assert_uint_le(size, sizeof record);
        fake.physical_offset = imitation = (int64_t)(end + LEDGER_ENTRY_HEADER_SIZE);
        message_host_parse(SLICE_LITERAL("127.0.0.1:1"), &fake.born_host);
        message_host_parse(SLICE_LITERAL("127.0.0.1:2"), &fake.store_host);
        size = message_record_size(&fake);
        message_record_encode(&fake, slice_of(NULL, 0), record);
        append_raw(leader, slice_of(record, size), none);
        expected[n] = (int64_t)(end + LEDGER_ENTRY_HEADER_SIZE + size + LEDGER_ENTRY_HEADER_SIZE);
        group_must_send(leader, n);
    }
    append_raw(leader, SLICE_LITERAL("the end of the log"), none);
    steps(50);
    check_raw(COUNT, expected, imitation);

    /* Another leader, starts from what was kept, and queues built anew from the log alone. */
    group_kill(leader);
    group_wait_leader(3000);
    group_up(leader);
    steps(1500);
    check_raw(COUNT, expected, imitation);
    for (int i = 1; i <= GROUP_NODES; i++) {
        digests[i] = sim_env_digest(&group.nodes[i].sim, "/store/consumequeue");
        group_kill(&group.nodes[i]);
    }
    for (int i = 1; i <= GROUP_NODES; i++) {
        for (int q = 0; q < 4; q++) {
            char path[64];
            snprintf(path, sizeof path, "/store/consumequeue/T/%d/00000000000000000000", q);
            sim_env_remove(&group.nodes[i].sim, path);
        }
    }
    group_all_up();
    group_wait_leader(3000);
    steps(100);
    check_raw(COUNT, expected, imitation);
    for (int i = 1; i <= GROUP_NODES; i++)
        ck_assert_uint_eq(sim_env_digest(&group.nodes[i].sim, "/store/consumequeue"), digests[i]);
    group_must_send(group_leader(), COUNT);
    ck_assert_int_eq(group_messages(group_leader()), COUNT + 1);
}
END_TEST

/* ---- transfer ---- */

static void ask_transfer(struct group_node *node, int opaque, const char *from, const char *to, long long index, long long term)
{
    ask_text(node, DLEDGER_LEADERSHIP_TRANSFER, opaque,
             "{\"group\":\"g\",\"remoteId\":\"%s\",\"transferId\":\"%s\",\"transfereeId\":\"%s\",\"takeLeadershipLedgerIndex\":%lld,\"term\":%lld}", id_of(node), from, to,
             index, term);
}

static void expect_code(int opaque, int code)
{
    char text[32];
    snprintf(text, sizeof text, "{\"code\":%d,", code);
    if (strncmp(answer(opaque), text, strlen(text)) != 0)
        ck_abort_msg("answer %d is %s, not %d", opaque, answer(opaque), code);
}

START_TEST(test_transfer_refused)
{
    struct group_node *leader = start_group();
    struct group_node *a = group_other(leader, NULL);
    struct group_node *b = group_other(leader, a);
    long long term = (long long)term_of(leader);
    char own_term[32];

    snprintf(own_term, sizeof own_term, "\"term\":%lld}", term);
    ask_transfer(leader, 1, id_of(leader), "n9", 0, term);
    expect_code(1, 401);
    ask_transfer(leader, 2, id_of(leader), id_of(a), 0, term + 1);
    expect_code(2, 407);
    ask_transfer(a, 3, id_of(a), id_of(leader), 0, term);
    expect_code(3, 404);
    ask_transfer(a, 4, id_of(b), id_of(a), 0, term);
    expect_code(4, 409);
    ask_transfer(a, 5, id_of(leader), id_of(b), 0, term);
    expect_code(5, 411);
    ask_transfer(a, 6, id_of(leader), id_of(a), 0, -1);
    expect_code(6, 407);
    ck_assert_ptr_nonnull(strstr(answer(6), own_term));
    ask_transfer(leader, 7, id_of(leader), id_of(leader), 0, term);
    expect_code(7, 411);
    ck_assert_ptr_eq(group_leader(), leader);
    ck_assert_int_eq((long long)term_of(leader), term);

    /* Too far behind: no leader for a long time. */
    struct group_send *sends = calloc(DLEDGER_RPC_FALL_BEHIND_MAX, sizeof *sends);
    b->cut = true;
    for (unsigned i = 0; i < DLEDGER_RPC_FALL_BEHIND_MAX; i++) {
        ck_assert_int_eq(group_send(leader, &sends[i], 0), 0);
        if (i % 100 == 0)
            steps(1);
    }
    steps(20);
    ask_transfer(leader, 8, id_of(leader), id_of(b), 0, term);
    expect_code(8, 417);
    free(sends);
}
END_TEST

/* Asked of the leader (0), of the target (1), of the target with an index that it does not get (2). */
START_TEST(test_transfer)
{
    struct group_node *leader = start_group();
    struct group_node *target = group_other(leader, NULL);
    long long term = (long long)term_of(leader);

    group_must_send(leader, 0);
    steps(20);
    ask_transfer(_i == 0 ? leader : target, 1, id_of(leader), id_of(target), _i == 2 ? 1000000 : 0, term);
    ck_assert_int_eq(answered[1], 0);
    if (_i == 2) {
        expect_code(1, 418);
        ck_assert_ptr_eq(group_leader(), leader);
        return;
    }
    expect_code(1, 200);
    steps(50);
    ck_assert_ptr_eq(group_leader(), target);
    ck_assert_int_gt((long long)term_of(target), term);
    group_must_send(target, 1);
    steps(20);
    for (int i = 1; i <= GROUP_NODES; i++)
        ck_assert_int_eq(group_messages(&group.nodes[i]), 2);
}
END_TEST

static bool no_timeout_now(uint64_t from, uint64_t to, const struct peer_message *message)
{
    (void)from;
    (void)to;
    return message->type != PEER_TIMEOUT_NOW;
}

/* The target never takes over: said so, and the old leader goes on. */
START_TEST(test_transfer_fails)
{
    struct group_node *leader = start_group();
    struct group_node *target = group_other(leader, NULL);

    group.passes = no_timeout_now;
    ask_transfer(leader, 1, id_of(leader), id_of(target), 0, (long long)term_of(leader));
    steps(5);
    ask_text(leader, DLEDGER_APPEND, 2, "{\"group\":\"g\",\"remoteId\":\"%s\",\"body\":\"SGVsbG8=\"}", id_of(leader));
    expect_code(2, 506);
    ask_transfer(leader, 3, id_of(leader), id_of(target), 0, (long long)term_of(leader));
    expect_code(3, 506);
    expect_code(1, 418);
    steps(400);
    ck_assert_ptr_eq(group_leader(), leader);
    group_must_send(leader, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("dledger_rpc_service");
    TCase *tcase = tcase_create("dledger_rpc_service");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, test_metadata);
    tcase_add_test(tcase, test_append_and_get);
    tcase_add_test(tcase, test_append_without_quorum);
    tcase_add_test(tcase, test_appends_are_bounded);
    tcase_add_test(tcase, test_raw_entries);
    tcase_add_test(tcase, test_transfer_refused);
    tcase_add_loop_test(tcase, test_transfer, 0, 3);
    tcase_add_test(tcase, test_transfer_fails);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
