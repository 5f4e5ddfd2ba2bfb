/* Code tables: names and numbers as RocketMQ has them (spec: remoting.md 2). */
#include "proto/request_code.h"
#include "proto/response_code.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

struct row {
    int number;
    const char *name;
};

#define X(name, number) {number, #name},
static const struct row requests[] = {REQUEST_CODES(X)};
static const struct row responses[] = {RESPONSE_CODES(X)};
#undef X
#define COUNT(table) (sizeof(table) / sizeof(table)[0])

static void check_table(const struct row *rows, size_t count, const char *(*name)(int))
{
    for (size_t i = 0; i < count; i++) {
        ck_assert_str_eq(name(rows[i].number), rows[i].name);
        for (size_t j = 0; j < i; j++) {
            ck_assert_int_ne(rows[i].number, rows[j].number);
            ck_assert_str_ne(rows[i].name, rows[j].name);
        }
    }
}

START_TEST(test_tables)
{
    check_table(requests, COUNT(requests), request_code_name);
    check_table(responses, COUNT(responses), response_code_name);
    ck_assert_ptr_null(request_code_name(0));
    ck_assert_ptr_null(request_code_name(-1));
    ck_assert_ptr_null(request_code_name(3442)); /* 200050 cut to 16 bits */
    ck_assert_ptr_null(response_code_name(5));
    ck_assert_ptr_null(response_code_name(-1));
}
END_TEST

START_TEST(test_numbers)
{
    static const struct row known[] = {
        {10, "SEND_MESSAGE"}, {11, "PULL_MESSAGE"}, {12, "QUERY_MESSAGE"}, {14, "QUERY_CONSUMER_OFFSET"},
        {15, "UPDATE_CONSUMER_OFFSET"}, {17, "UPDATE_AND_CREATE_TOPIC"}, {28, "GET_BROKER_RUNTIME_INFO"},
        {34, "HEART_BEAT"}, {36, "CONSUMER_SEND_MSG_BACK"}, {37, "END_TRANSACTION"}, {41, "LOCK_BATCH_MQ"},
        {46, "CHECK_CLIENT_CONFIG"}, {54, "GET_BROKER_CLUSTER_ACL_CONFIG"}, {103, "REGISTER_BROKER"},
        {105, "GET_ROUTEINFO_BY_TOPIC"}, {206, "GET_ALL_TOPIC_LIST_FROM_NAMESERVER"},
        {222, "INVOKE_BROKER_TO_RESET_OFFSET"}, {310, "SEND_MESSAGE_V2"},
        {313, "GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST"}, {320, "SEND_BATCH_MESSAGE"}, {329, "DELETE_EXPIRED_COMMITLOG"},
        {351, "GET_TOPIC_CONFIG"}, {361, "LITE_PULL_MESSAGE"}, {370, "RECALL_MESSAGE"}, {400, "QUERY_ASSIGNMENT"},
        {904, "BROKER_HEARTBEAT"}, {1018, "RAFT_BROKER_HEART_BEAT_EVENT_REQUEST"}, {3010, "AUTH_LIST_ACL"},
        {200050, "POP_MESSAGE"}, {200056, "POP_ROLLBACK"}, {200151, "BATCH_ACK_MESSAGE"},
    };
    static const struct row known_responses[] = {
        {0, "SUCCESS"}, {3, "REQUEST_CODE_NOT_SUPPORTED"}, {14, "SERVICE_NOT_AVAILABLE"}, {17, "TOPIC_NOT_EXIST"},
        {21, "PULL_OFFSET_MOVED"}, {26, "SUBSCRIPTION_GROUP_NOT_EXIST"}, {29, "INVALID_PARAMETER"},
        {207, "CONSUME_MSG_TIMEOUT"}, {209, "UPDATE_AND_CREATE_ACL_CONFIG_FAILED"}, {215, "FLOW_CONTROL"},
        {1500, "GO_AWAY"}, {2016, "CONTROLLER_BROKER_LIVE_INFO_NOT_EXISTS"}, {3002, "POLICY_NOT_EXIST"},
    };
    for (size_t i = 0; i < COUNT(known); i++)
        ck_assert_str_eq(request_code_name(known[i].number), known[i].name);
    for (size_t i = 0; i < COUNT(known_responses); i++)
        ck_assert_str_eq(response_code_name(known_responses[i].number), known_responses[i].name);
    ck_assert_int_eq(RESPONSE_POLLING_FULL, 209);
    ck_assert_int_eq(REQUEST_SEND_REPLY_MESSAGE_V2, 325);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("codes");
    TCase *tcase = tcase_create("codes");
    tcase_add_test(tcase, test_tables);
    tcase_add_test(tcase, test_numbers);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
