/* DLedger's own protocol, with the examples of store.md 8.8. */
#include "proto/dledger_json.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#define assert_slice(slice, text)                                                                                      \
    ck_assert_msg(slice_equal_text(slice, text), "is '%.*s'", (int)(slice).size, (const char *)(slice).data)

static struct buffer out;
static struct dledger_request request;
static struct error error;
static const struct dledger_response ok = {
    .code = DLEDGER_SUCCESS, .group = SLICE_LITERAL("default"), .leader_id = SLICE_LITERAL("n0"), .term = 1};

static void set_up(void)
{
    buffer_init(&out, 0);
}

static void tear_down(void)
{
    buffer_close(&out);
}

static void decode(const char *text)
{
    ck_assert_msg(dledger_request_decode(&request, slice_of_text(text), &error) == 0, "%s", error.message);
}

START_TEST(requests)
{
    decode("{\"body\":\"SGVsbG8=\",\"code\":200,\"group\":\"default\",\"remoteId\":\"n0\",\"term\":-1}");
    assert_slice(request.body, "Hello");
    assert_slice(request.group, "default");
    assert_slice(request.remote_id, "n0");
    ck_assert_int_eq(request.term, -1);
    ck_assert_ptr_null(request.local_id.data);
    dledger_request_close(&request);

    decode("{\"beginIndex\":7,\"code\":200,\"group\":\"default\",\"maxSize\":0,\"remoteId\":\"n0\",\"term\":-1,"
           "\"indexList\":[]}");
    ck_assert_int_eq(request.begin_index, 7);
    ck_assert_ptr_null(request.body.data);
    dledger_request_close(&request);

    decode("{\"code\":200,\"group\":\"default\",\"remoteId\":\"n1\",\"term\":3,\"transferId\":\"n0\",\"transfereeId\":"
           "\"n2\",\"takeLeadershipLedgerIndex\":9}");
    ck_assert_int_eq(request.term, 3);
    assert_slice(request.transfer_id, "n0");
    assert_slice(request.transferee_id, "n2");
    ck_assert_int_eq(request.take_leadership_ledger_index, 9);
    dledger_request_close(&request);

    decode("{}");
    ck_assert_int_eq(request.term, -1);
    ck_assert_int_eq(request.begin_index, -1);
    dledger_request_close(&request);
}
END_TEST

START_TEST(base64)
{
    static const struct {
        const char *text;
        const char *plain;
    } rows[] = {{"", ""},
                {"Zg==", "f"},
                {"Zm8=", "fo"},
                {"Zm9v", "foo"},
                {"Zm9vYg==", "foob"},
                {"Zm9vYmE=", "fooba"},
                {"Zm9vYmFy", "foobar"}};
    static const char *const bad[] = {"Z", "Zg=", "Zg", "Z===", "====", "Zm9v=", "Zm 9", "Zg==Zg==", "=m9v", "Zm-v"};
    char text[64];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(text, sizeof text, "{\"body\":\"%s\"}", rows[i].text);
        decode(text);
        assert_slice(request.body, rows[i].plain);
        ck_assert_ptr_nonnull(request.body.data);
        dledger_request_close(&request);

        struct ledger_entry entry = {.body_size = (uint32_t)strlen(rows[i].plain)};
        buffer_clear(&out);
        dledger_get_response_encode(&ok, &entry, (const uint8_t *)rows[i].plain, &out);
        snprintf(text, sizeof text, "[{\"body\":\"%s\",", rows[i].text);
        ck_assert_ptr_nonnull(memmem(out.data, out.size, text, strlen(text)));
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(text, sizeof text, "{\"body\":\"%s\"}", bad[i]);
        ck_assert_msg(dledger_request_decode(&request, slice_of_text(text), &error) == ERROR_INVALID, "'%s' was taken",
                      bad[i]);
    }
}
END_TEST

START_TEST(answers)
{
    static const struct dledger_peer peers[] = {{SLICE_LITERAL("n0"), SLICE_LITERAL("h0:20911")},
                                                {SLICE_LITERAL("n1"), SLICE_LITERAL("h1:20911")}};
    struct dledger_response response = ok;
    response.term = -1;
    dledger_metadata_response_encode(&response, peers, 2, &out);
    assert_slice(buffer_slice(&out), "{\"code\":200,\"group\":\"default\",\"leaderId\":\"n0\",\"peers\":{\"n0\":\"h0:"
                                     "20911\",\"n1\":\"h1:20911\"},\"term\":-1}");

    buffer_clear(&out);
    dledger_append_response_encode(&ok, 0, 0, &out);
    assert_slice(buffer_slice(&out),
                 "{\"code\":200,\"group\":\"default\",\"index\":0,\"leaderId\":\"n0\",\"pos\":0,\"term\":1}");

    struct ledger_entry entry = {.index = 4,
                                 .term = 1,
                                 .position = 53,
                                 .kind = LEDGER_ENTRY_RAW,
                                 .chain_crc = 0x80000000,
                                 .body_crc = 1,
                                 .body_size = 5};
    buffer_clear(&out);
    dledger_get_response_encode(&ok, &entry, (const uint8_t *)"Hello", &out);
    assert_slice(
        buffer_slice(&out),
        "{\"code\":200,\"entries\":[{\"body\":\"SGVsbG8=\",\"bodyCrc\":1,\"chainCrc\":-2147483648,\"channel\":4,"
        "\"index\":4,"
        "\"magic\":1,\"pos\":53,\"size\":53,\"term\":1}],\"group\":\"default\",\"leaderId\":\"n0\",\"term\":1}");
    buffer_clear(&out);
    dledger_get_response_encode(&(struct dledger_response){.code = DLEDGER_INDEX_OUT_OF_RANGE, .term = 2}, NULL, NULL,
                                &out);
    assert_slice(buffer_slice(&out), "{\"code\":410,\"entries\":[],\"term\":2}");

    response = ok;
    response.local_id = SLICE_LITERAL("n1");
    response.remote_id = SLICE_LITERAL("n2");
    buffer_clear(&out);
    dledger_transfer_response_encode(&response, &out);
    assert_slice(
        buffer_slice(&out),
        "{\"code\":200,\"group\":\"default\",\"leaderId\":\"n0\",\"localId\":\"n1\",\"remoteId\":\"n2\",\"term\":1}");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("dledger_json");
    TCase *tcase = tcase_create("all");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, requests);
    tcase_add_test(tcase, base64);
    tcase_add_test(tcase, answers);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
