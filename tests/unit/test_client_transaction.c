/* Transactions of a producer: half message, decision, what a change of leader does to it, and the broker's
 * questions. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/transaction_check.h"
#include "proto/request_code.h"
#include "proto/response_code.h"
#include "tests/lib/fake_cluster.h"
#include "tests/lib/run_suite.h"

static struct fake_cluster cluster;
static struct ledgermq_client *client;
static struct ledgermq_producer *producer;
static struct ledgermq_producer_options options;
static struct ledgermq_error error;

static struct {
    int half_code;                 /* answers to half messages */
    int end_codes[4];              /* answers to decisions, in turn; the last goes on */
    atomic_int halves, ends, acks; /* acks: our answers to the broker's questions */
    int sys_flag, decision, from_check;
    int64_t table_offset, log_offset;
    char properties[512], group[64], message_id[64], transaction_id[64];
    bool ask;          /* the next heart-beat or half is followed by a question */
    const char *asked; /* its group */
} world;

static struct {
    atomic_int executed, checked;
    int state, check_state;
    char body[32], topic[64], id[64];
    atomic_bool block;
} local;

static void append_question(struct buffer *out, const char *group, int flag)
{
    struct remoting_writer writer;
    struct buffer properties;
    struct message_record record = {.queue_id = 1, .queue_offset = 55, .physical_offset = 7777, .sys_flag = 0};
    buffer_init(&properties, 0);
    message_property_append(&properties, 0, SLICE_LITERAL("PGROUP"), slice_of_text(group));
    message_property_append(&properties, 0, SLICE_LITERAL("TRAN_MSG"), SLICE_LITERAL("true"));
    message_property_append(&properties, 0, SLICE_LITERAL("UNIQ_KEY"), SLICE_LITERAL("THEKEY"));
    record.topic = SLICE_LITERAL("Orders");
    record.body = SLICE_LITERAL("half");
    record.properties = buffer_slice(&properties);
    message_host_parse(SLICE_LITERAL("127.0.0.1:1"), &record.born_host);
    record.store_host = record.born_host;
    remoting_writer_begin_request(&writer, out, REMOTING_JSON, REQUEST_CHECK_TRANSACTION_STATE, 1, flag);
    remoting_writer_ext_i64(&writer, "tranStateTableOffset", 55);
    remoting_writer_ext_i64(&writer, "commitLogOffset", 7777);
    remoting_writer_ext_text(&writer, "msgId", "THEKEY");
    remoting_writer_ext_text(&writer, "transactionId", "THETRANSACTION");
    remoting_writer_body(&writer);
    size_t size = message_record_size(&record);
    uint8_t *at = buffer_reserve(out, size);
    ck_assert_ptr_nonnull(at);
    out->size += message_record_encode(&record, slice_of(NULL, 0), at);
    remoting_writer_end(&writer, 0);
    buffer_close(&properties);
}

static enum fake_reaction script(struct fake_cluster *its, int index, struct remoting_command *request,
                                 struct buffer *out)
{
    (void)its;
    (void)index;
    if (request->code == REQUEST_END_TRANSACTION) {
        int turn = world.ends < 3 ? world.ends : 3;
        world.table_offset = fake_number(request, "tranStateTableOffset");
        world.log_offset = fake_number(request, "commitLogOffset");
        world.decision = (int)fake_number(request, "commitOrRollback");
        world.from_check = slice_equal_text(remoting_ext(request, "fromTransactionCheck"), "true");
        fake_keep_text(world.group, sizeof world.group, remoting_ext(request, "producerGroup"));
        fake_keep_text(world.message_id, sizeof world.message_id, remoting_ext(request, "msgId"));
        fake_keep_text(world.transaction_id, sizeof world.transaction_id, remoting_ext(request, "transactionId"));
        world.ends++;
        fake_answer(out, request, world.end_codes[turn], "as told", slice_of(NULL, 0));
        return world.end_codes[turn] == -1 ? FAKE_RESET : FAKE_ANSWER;
    }
    ck_assert_int_eq(request->code, REQUEST_SEND_MESSAGE_V2);
    world.halves++;
    world.sys_flag = (int)fake_number(request, "f");
    fake_keep_text(world.properties, sizeof world.properties, remoting_ext(request, "i"));
    fake_answer_send(out, request, world.half_code, 12);
    if (world.ask)
        append_question(out, world.asked, REMOTING_FLAG_ONEWAY);
    return FAKE_ANSWER;
}

static int execute(void *context, const struct ledgermq_message *message, const char *transaction_id, void *argument)
{
    ck_assert_ptr_eq(context, &local);
    ck_assert_ptr_eq(argument, &world);
    ck_assert_int_eq(world.halves, 1); /* the half message is stored by now */
    ck_assert_uint_eq(message->body_size, 5);
    snprintf(local.id, sizeof local.id, "%s", transaction_id);
    local.executed++;
    return local.state;
}

static int check_state(void *context, const struct ledgermq_stored_message *message)
{
    (void)context;
    snprintf(local.body, sizeof local.body, "%.*s", (int)message->body_size, (const char *)message->body);
    snprintf(local.topic, sizeof local.topic, "%s", message->topic);
    local.checked++;
    while (local.block)
        usleep(1000);
    return local.check_state;
}

static const struct ledgermq_transaction_listener listener = {execute, check_state, &local};
static struct ledgermq_message plain = {.topic = "Orders", .body = "hello", .body_size = 5};

static void set_up(void)
{
    fake_cluster_start(&cluster, 1, script);
    client = fake_cluster_client(&cluster, NULL);
    ledgermq_producer_options_init(&options);
    options.group = "TestProducer";
    options.transaction_listener = &listener;
    ck_assert_int_eq(ledgermq_producer_new(client, &options, &producer, &error), LEDGERMQ_OK);
    world.asked = "TestProducer";
}

static void tear_down(void)
{
    ledgermq_client_free(client);
    fake_cluster_stop(&cluster);
}

static void send_it(struct ledgermq_transaction_result *result)
{
    ck_assert_msg(ledgermq_send_transaction(producer, &plain, &world, result, &error) == LEDGERMQ_OK, "%s",
                  error.message);
}

START_TEST(test_decisions)
{
    static const int decisions[] = {0, 8, 12};
    struct ledgermq_transaction_result result;
    local.state = _i;
    send_it(&result);
    ck_assert_int_eq(world.sys_flag, 4);
    ck_assert_ptr_nonnull(strstr(world.properties, "TRAN_MSG\001true"));
    ck_assert_ptr_nonnull(strstr(world.properties, "PGROUP\001TestProducer"));
    ck_assert_int_eq(local.executed, 1);
    ck_assert_str_eq(local.id, result.send.message_id);
    ck_assert_int_eq(result.state, _i);
    if (_i == LEDGERMQ_TRANSACTION_UNKNOWN) {
        ck_assert(!result.settled);
        ck_assert_int_eq(world.ends, 0);
        return;
    }
    ck_assert(result.settled);
    ck_assert_int_eq(world.ends, 1);
    ck_assert_int_eq(world.decision, decisions[_i]);
    ck_assert_int_eq(world.table_offset, 12);
    ck_assert_int_eq(world.log_offset, 0x3302); /* out of the id that the broker gave */
    ck_assert(!world.from_check);
    ck_assert_str_eq(world.group, "TestProducer");
    ck_assert_str_eq(world.message_id, result.send.message_id);
}
END_TEST

/* What is not stored as safely as asked is not executed. */
START_TEST(test_not_store_ok)
{
    static const int codes[] = {RESPONSE_FLUSH_DISK_TIMEOUT, RESPONSE_FLUSH_SLAVE_TIMEOUT,
                                RESPONSE_SLAVE_NOT_AVAILABLE};
    struct ledgermq_transaction_result result;
    local.state = LEDGERMQ_TRANSACTION_COMMIT;
    world.half_code = codes[_i];
    send_it(&result);
    ck_assert_int_eq(local.executed, 0);
    ck_assert_int_eq(result.state, LEDGERMQ_TRANSACTION_ROLLBACK);
    ck_assert_int_eq(world.decision, 12);
}
END_TEST

START_TEST(test_half_refused)
{
    world.half_code = RESPONSE_MESSAGE_ILLEGAL;
    ck_assert_int_eq(ledgermq_send_transaction(producer, &plain, &world, NULL, &error), LEDGERMQ_REFUSED);
    ck_assert_int_eq(local.executed, 0);
    ck_assert_int_eq(world.ends, 0);
}
END_TEST

/* The leader changes between half message and decision: asked again until there is one. */
START_TEST(test_new_leader)
{
    struct ledgermq_transaction_result result;
    local.state = LEDGERMQ_TRANSACTION_COMMIT;
    world.end_codes[0] = -1; /* a reset */
    world.end_codes[1] = RESPONSE_SERVICE_NOT_AVAILABLE;
    world.end_codes[2] = RESPONSE_SYSTEM_BUSY;
    send_it(&result);
    ck_assert(result.settled);
    ck_assert_int_eq(world.ends, 4);
}
END_TEST

START_TEST(test_decision_refused)
{
    struct ledgermq_transaction_result result;
    local.state = LEDGERMQ_TRANSACTION_COMMIT;
    for (int i = 0; i < 4; i++)
        world.end_codes[i] = RESPONSE_SYSTEM_ERROR;
    send_it(&result);
    ck_assert(!result.settled);
    ck_assert_int_eq(result.state, LEDGERMQ_TRANSACTION_COMMIT);
    ck_assert_int_eq(world.ends, 1);
}
END_TEST

START_TEST(test_check)
{
    static const int decisions[] = {0, 8, 12};
    local.check_state = _i;
    world.ask = true;
    ck_assert_int_eq(ledgermq_send(producer, &plain, NULL, &error), LEDGERMQ_OK);
    ck_assert(fake_cluster_wait(&local.checked, 1));
    ck_assert_str_eq(local.body, "half");
    ck_assert_str_eq(local.topic, "Orders");
    if (_i == LEDGERMQ_TRANSACTION_UNKNOWN) {
        ledgermq_producer_free(producer);
        ck_assert_int_eq(world.ends, 0);
        return;
    }
    ck_assert(fake_cluster_wait(&world.ends, 1));
    ck_assert_int_eq(world.decision, decisions[_i]);
    ck_assert_int_eq(world.table_offset, 55);
    ck_assert_int_eq(world.log_offset, 7777);
    ck_assert(world.from_check);
    ck_assert_str_eq(world.message_id, "THEKEY");
    ck_assert_str_eq(world.transaction_id, "THETRANSACTION");
}
END_TEST

START_TEST(test_check_of_another_group)
{
    world.ask = true;
    world.asked = "Others";
    ck_assert_int_eq(ledgermq_send(producer, &plain, NULL, &error), LEDGERMQ_OK);
    world.ask = false;
    ck_assert_int_eq(ledgermq_send(producer, &plain, NULL, &error), LEDGERMQ_OK);
    ck_assert_int_eq(local.checked, 0);
}
END_TEST

/* A listener that hangs holds up neither sends nor the connection; the rest is asked again by the broker. */
START_TEST(test_slow_listener)
{
    local.block = true;
    local.check_state = LEDGERMQ_TRANSACTION_COMMIT;
    world.ask = true;
    for (unsigned i = 0; i < TRANSACTION_CHECKS_MAX + 10; i++)
        ck_assert_int_eq(ledgermq_send(producer, &plain, NULL, &error), LEDGERMQ_OK);
    ck_assert(fake_cluster_wait(&local.checked, 1));
    ck_assert_int_eq(local.checked, 1);
    local.block = false;
    ledgermq_producer_free(producer); /* waits for the one under way only */
    ck_assert_int_lt(local.checked, 2000);
}
END_TEST

START_TEST(test_invalid)
{
    struct ledgermq_message delayed = plain;
    struct ledgermq_producer *without;
    delayed.delay_level = 3;
    ck_assert_int_eq(ledgermq_send_transaction(producer, &delayed, &world, NULL, &error), LEDGERMQ_INVALID);
    ck_assert_ptr_nonnull(strstr(error.message, "delayed"));
    options.transaction_listener = NULL;
    ck_assert_int_eq(ledgermq_producer_new(client, &options, &without, &error), LEDGERMQ_OK);
    ck_assert_int_eq(ledgermq_send_transaction(without, &plain, &world, NULL, &error), LEDGERMQ_INVALID);
    ck_assert_ptr_nonnull(strstr(error.message, "transaction_listener"));
    ck_assert_int_eq(world.halves, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_transaction");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 30);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, test_decisions, 0, 3);
    tcase_add_loop_test(tcase, test_not_store_ok, 0, 3);
    tcase_add_test(tcase, test_half_refused);
    tcase_add_test(tcase, test_new_leader);
    tcase_add_test(tcase, test_decision_refused);
    tcase_add_loop_test(tcase, test_check, 0, 3);
    tcase_add_test(tcase, test_check_of_another_group);
    tcase_add_test(tcase, test_slow_listener);
    tcase_add_test(tcase, test_invalid);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
