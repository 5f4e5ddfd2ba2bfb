/* The 48-byte entry header against DLedger's golden bytes (spec: store.md 8.1, 8.2), its checksums, and what it refuses. */
#include "proto/ledger_entry.h"

#include <check.h>
#include <stdlib.h>

#include "proto/error.h"
#include "tests/lib/hex.h"
#include "tests/lib/run_suite.h"

/* store.md 1.13 */
static const char golden_message[] =
    "000000ce daa320a7 248c774f 00000003 00000000 0000000000000005 0000000000000418 00000000 0000018bcfe56800 c0a8010a 0000d431"
    "0000018bcfe5687b c0a80114 00002a9f 00000000 0000000000000000 00000010 48656c6c6f20526f636b65744d512030 09 546f70696354657374"
    "005a 4b455953014f72646572494430303102554e49515f4b455901433041383031304131413242313842344141433234374237363030303030303002"
    "434c55535445520144656661756c74436c757374657202544147530154616741";

/* Entry (index 7, term 2, position 1000) with the message as body, sealed. Caller frees. */
static uint8_t *golden_entry(struct ledger_entry *entry, uint32_t previous)
{
    struct slice body = hex_bytes(golden_message);
    ck_assert_uint_eq(body.size, 206);
    uint8_t *bytes = malloc(LEDGER_ENTRY_HEADER_SIZE + body.size);
    ck_assert_ptr_nonnull(bytes);
    memcpy(bytes + LEDGER_ENTRY_HEADER_SIZE, body.data, body.size);
    *entry = (struct ledger_entry){.index = 7, .term = 2, .position = 1000, .kind = LEDGER_ENTRY_MESSAGE, .body_size = (uint32_t)body.size};
    ledger_entry_seal(entry, bytes, previous);
    hex_free(body);
    return bytes;
}

START_TEST(test_golden)
{
    struct ledger_entry entry;
    uint8_t *bytes = golden_entry(&entry, 0);
    /* The two checksums are ours; Java leaves them 0. All else is as in DLedger. */
    struct slice before = hex_bytes("00000001 000000fe 0000000000000007 0000000000000002 00000000000003e8 00000000");
    struct slice after = hex_bytes("000000ce 000000ce daa320a7");
    ck_assert(slice_equal(slice_of(bytes, 36), before));
    ck_assert(slice_equal(slice_of(bytes + 44, 12), after));
    ck_assert_uint_eq(ledger_entry_size(&entry), 254);
    ck_assert_uint_eq(load_u32(bytes + 40), crc32c(0, bytes + 48, 206));
    hex_free(before);
    hex_free(after);
    free(bytes);
}
END_TEST

START_TEST(test_crc32c)
{
    ck_assert_uint_eq(crc32c(0, "123456789", 9), 0xE3069283u);
    ck_assert_uint_eq(crc32c(0, "", 0), 0);
    /* In two parts. */
    ck_assert_uint_eq(crc32c(crc32c(0, "1234", 4), "56789", 5), 0xE3069283u);
    uint8_t zeros[32] = {0};
    ck_assert_uint_eq(crc32c(0, zeros, sizeof zeros), 0x8A9136AAu); /* RFC 3720, B.4 */
}
END_TEST

/* Short runs take another way than long ones: bit by bit it must be the same, at any size and place, in one piece and in two. */
START_TEST(test_crc32c_of_any_size)
{
    uint8_t bytes[700];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 167 + (i >> 3));
    for (size_t from = 0; from < 9; from++) {
        uint32_t crc = 0xFFFFFFFFu;
        for (size_t size = 0; from + size < sizeof bytes; size++) {
            ck_assert_uint_eq(crc32c(0, bytes + from, size), ~crc);
            ck_assert_uint_eq(crc32c(crc32c(0, bytes + from, size / 3), bytes + from + size / 3, size - size / 3), ~crc);
            crc ^= bytes[from + size];
            for (int bit = 0; bit < 8; bit++)
                crc = crc >> 1 ^ (0x82F63B78u & (0u - (crc & 1)));
        }
    }
}
END_TEST

START_TEST(test_round_trip)
{
    struct ledger_entry entry;
    struct ledger_entry read;
    uint8_t *bytes = golden_entry(&entry, 0xCAFE);
    entry.kind = LEDGER_ENTRY_METADATA;
    entry.uncommitted = 12345;
    ledger_entry_seal(&entry, bytes, 0xCAFE);
    ck_assert_int_eq(ledger_entry_decode(&read, bytes), 0);
    ck_assert(read.index == 7 && read.term == 2 && read.position == 1000);
    ck_assert_uint_eq(read.kind, LEDGER_ENTRY_METADATA);
    ck_assert_uint_eq(read.uncommitted, 12345);
    ck_assert_uint_eq(read.body_size, 206);
    ck_assert_uint_eq(read.chain_crc, ledger_entry_chain(bytes, 0xCAFE));
    ck_assert(ledger_entry_body_ok(&read, bytes + 48));
    entry.uncommitted = LEDGER_UNCOMMITTED_MAX + 1;
    ledger_entry_seal(&entry, bytes, 0xCAFE);
    ck_assert_int_eq(ledger_entry_decode(&read, bytes), 0);
    ck_assert_uint_eq(read.uncommitted, LEDGER_UNCOMMITTED_MAX);
    ck_assert_uint_eq(read.kind, LEDGER_ENTRY_METADATA);
    free(bytes);
}
END_TEST

/* One flipped bit anywhere is seen by one of: decode, the chain, the body's checksum. */
START_TEST(test_every_bit_counts)
{
    struct ledger_entry entry;
    uint8_t *bytes = golden_entry(&entry, 99);
    size_t size = ledger_entry_size(&entry);
    for (size_t bit = 0; bit < size * 8; bit++) {
        struct ledger_entry read;
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        bool seen = ledger_entry_decode(&read, bytes) != 0 || ledger_entry_chain(bytes, 99) != read.chain_crc ||
                    !ledger_entry_body_ok(&read, bytes + 48);
        ck_assert_msg(seen, "bit %zu", bit);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    ck_assert_uint_ne(ledger_entry_chain(bytes, 98), entry.chain_crc);
    free(bytes);
}
END_TEST

START_TEST(test_refused)
{
    struct ledger_entry entry;
    struct ledger_entry read;
    uint8_t *bytes = golden_entry(&entry, 0);
    static const struct {
        size_t at;
        uint32_t value;
    } wrong[] = {
        {0, 0}, {0, 2}, {0, LEDGER_BLANK_MAGIC}, {4, 0}, {4, 47}, {4, 253}, {4, 255}, {4, UINT32_MAX}, {44, 205}, {44, 207},
        {44, UINT32_MAX}, {32, LEDGER_ENTRY_KINDS}, {32, 0xFF},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        uint32_t kept = load_u32(bytes + wrong[i].at);
        store_u32(bytes + wrong[i].at, wrong[i].value);
        ck_assert_int_eq(ledger_entry_decode(&read, bytes), ERROR_MALFORMED);
        store_u32(bytes + wrong[i].at, kept);
    }
    /* Size and body size agree but are more than an entry may have. */
    store_u32(bytes + 4, LEDGER_ENTRY_SIZE_MAX + 1);
    store_u32(bytes + 44, LEDGER_ENTRY_SIZE_MAX + 1 - 48);
    ck_assert_int_eq(ledger_entry_decode(&read, bytes), ERROR_MALFORMED);
    store_u32(bytes + 4, LEDGER_ENTRY_SIZE_MAX);
    store_u32(bytes + 44, LEDGER_ENTRY_SIZE_MAX - 48);
    ck_assert_int_eq(ledger_entry_decode(&read, bytes), 0);
    free(bytes);
}
END_TEST

START_TEST(test_blank)
{
    uint8_t bytes[LEDGER_BLANK_SIZE];
    struct slice expected = hex_bytes("ffffffff 0000007c");
    ledger_blank_encode(bytes, 124);
    ck_assert(slice_equal(slice_of(bytes, sizeof bytes), expected));
    ck_assert(ledger_is_blank(bytes));
    store_u32(bytes, LEDGER_ENTRY_MAGIC);
    ck_assert(!ledger_is_blank(bytes));
    hex_free(expected);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ledger_entry");
    TCase *tcase = tcase_create("ledger_entry");
    tcase_add_test(tcase, test_golden);
    tcase_add_test(tcase, test_crc32c);
    tcase_add_test(tcase, test_crc32c_of_any_size);
    tcase_add_test(tcase, test_round_trip);
    tcase_add_test(tcase, test_every_bit_counts);
    tcase_add_test(tcase, test_refused);
    tcase_add_test(tcase, test_blank);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
