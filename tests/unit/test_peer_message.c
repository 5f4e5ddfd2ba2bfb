#include "dledger/peer_message.h"

#include <check.h>
#include <string.h>

#include "dledger/peer_version.h"
#include "tests/lib/run_suite.h"

static struct peer_hello a_hello(void)
{
    struct peer_hello hello = {.version = PEER_VERSION_OLDEST, .newest = PEER_VERSION_CURRENT, .cluster = "C", .group = "broker-a", .from = 1, .to = 2,
                               .incarnation = 0x1122334455667788u, .run = 0x8877665544332211u, .segment_size = 1u << 30, .term = 7, .last_index = 1000, .last_term = 6,
                               .started = true, .broker_address = "127.0.0.1:10911", .self_id = "n0", .configuration_index = 3, .configuration_size = 4,
                               .configuration = {1, 2, 3, 4}, .voters = 5};
    return hello;
}

START_TEST(test_hello)
{
    struct peer_hello hello = a_hello(), back;
    struct peer_message message;
    struct buffer body;

    buffer_init(&body, 0);
    peer_hello_encode(&hello, &message, &body);
    ck_assert_int_eq(message.type, PEER_HELLO);
    ck_assert_uint_eq(message.body_size, body.size);
    ck_assert_int_eq(peer_hello_decode(&back, &message, buffer_slice(&body)), 0);
    ck_assert_uint_eq(back.run, hello.run);
    ck_assert_uint_eq(back.incarnation, hello.incarnation);
    ck_assert_uint_eq(back.term, 7);
    ck_assert_uint_eq(back.last_index, 1000);
    ck_assert(back.started);
    ck_assert_str_eq(back.self_id, "n0");
    ck_assert_mem_eq(back.configuration, hello.configuration, 4);
    ck_assert_uint_eq(back.voters, 5);
    /* From a version that had no sum. */
    message.count = 0;
    ck_assert_int_eq(peer_hello_decode(&back, &message, buffer_slice(&body)), 0);
    buffer_close(&body);
}
END_TEST

/* One wrong bit, in the header or behind it, is found. */
START_TEST(test_bit_flips)
{
    struct peer_hello hello = a_hello(), back;
    struct peer_message message, read;
    struct buffer body;
    uint8_t header[PEER_HEADER_SIZE];

    buffer_init(&body, 0);
    peer_hello_encode(&hello, &message, &body);
    peer_message_encode(&message, header);
    for (size_t bit = 0; bit < 8 * sizeof header; bit++) {
        header[bit / 8] ^= (uint8_t)(1u << bit % 8);
        ck_assert_int_eq(peer_message_decode(&read, header), ERROR_MALFORMED);
        header[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    ck_assert_int_eq(peer_message_decode(&read, header), 0);
    for (size_t bit = 0; bit < 8 * body.size; bit++) {
        body.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        ck_assert_int_eq(peer_hello_decode(&back, &read, buffer_slice(&body)), ERROR_MALFORMED);
        body.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t size = 0; size < body.size; size++)
        ck_assert_int_eq(peer_hello_decode(&back, &read, slice_of(body.data, size)), ERROR_MALFORMED);
    ck_assert_int_eq(peer_hello_decode(&back, &read, buffer_slice(&body)), 0);
    buffer_close(&body);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("peer_message");
    TCase *tcase = tcase_create("peer_message");
    tcase_add_test(tcase, test_hello);
    tcase_add_test(tcase, test_bit_flips);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
