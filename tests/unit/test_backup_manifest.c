/* The manifest of a backup: what is written is read, and nothing else passes for one. */
#include "proto/backup_manifest.h"

#include <check.h>
#include <stdlib.h>

#include "proto/error.h"
#include "proto/ledger_entry.h"
#include "tests/lib/run_suite.h"

static const struct backup_manifest example = {
    .group = {(const uint8_t *)"broker-a", 8},
    .members = {(const uint8_t *)"n0;n1", 5},
    .segment_size = 1000,
    .first_index = 7,
    .last_index = 99,
    .first_position = 2000,
    .end_position = 3500,
    .first_header_crc = 0xFEDCBA98,
    .term = 12,
};

static void write_example(struct buffer *out, const struct backup_manifest *manifest)
{
    buffer_init(out, 0);
    backup_manifest_begin(out, manifest);
    backup_manifest_file(out, "data/00000000000000002000", 1000, 0xABCDEF01);
    backup_manifest_file(out, "metadata.0", 12, 0);
    backup_manifest_end(out);
    ck_assert(!out->failed);
}

/* As a later version might write it, or a hand: with a checksum that fits. */
static int read_lines(const char *lines, uint32_t *version)
{
    struct backup_manifest manifest;
    struct buffer text;
    buffer_init(&text, 0);
    buffer_append_text(&text, lines);
    backup_manifest_end(&text);
    int rv = backup_manifest_read(buffer_slice(&text), &manifest, version);
    buffer_close(&text);
    return rv;
}

START_TEST(it_is_read_as_it_was_written)
{
    struct backup_manifest read;
    struct backup_file file;
    struct buffer text;
    uint32_t version;

    write_example(&text, &example);
    ck_assert_int_eq(backup_manifest_read(buffer_slice(&text), &read, &version), 0);
    ck_assert_uint_eq(version, BACKUP_VERSION);
    ck_assert(slice_equal(read.group, example.group) && slice_equal(read.members, example.members));
    ck_assert_int_eq(read.segment_size, 1000);
    ck_assert_int_eq(read.first_index, 7);
    ck_assert_int_eq(read.last_index, 99);
    ck_assert_int_eq(read.first_position, 2000);
    ck_assert_int_eq(read.end_position, 3500);
    ck_assert_int_eq(read.first_header_crc, 0xFEDCBA98);
    ck_assert_int_eq(read.term, 12);
    ck_assert(backup_manifest_next_file(&read, &file));
    ck_assert(slice_equal_text(file.name, "data/00000000000000002000") && file.size == 1000 && file.crc == 0xABCDEF01);
    ck_assert(backup_manifest_next_file(&read, &file));
    ck_assert(slice_equal_text(file.name, "metadata.0") && file.size == 12 && file.crc == 0);
    ck_assert(!backup_manifest_next_file(&read, &file));
    ck_assert_int_eq(backup_manifest_segment_bytes(&read, 2000), 1000);
    ck_assert_int_eq(backup_manifest_segment_bytes(&read, 3000), 500);
    buffer_close(&text);
}
END_TEST

START_TEST(every_bit_and_every_byte_counts)
{
    struct backup_manifest read;
    struct buffer text;
    uint32_t version;

    write_example(&text, &example);
    for (size_t i = 0; i < text.size * 8; i++) {
        text.data[i / 8] ^= (uint8_t)(1u << i % 8);
        ck_assert_int_eq(backup_manifest_read(buffer_slice(&text), &read, &version), ERROR_DAMAGED);
        text.data[i / 8] ^= (uint8_t)(1u << i % 8);
    }
    for (size_t i = 0; i < text.size; i++) {
        uint8_t *part = malloc(i == 0 ? 1 : i); /* exactly as long: what is read behind it is found */
        memcpy(part, text.data, i);
        ck_assert_int_eq(backup_manifest_read(slice_of(part, i), &read, &version), ERROR_DAMAGED);
        free(part);
    }
    buffer_append_u8(&text, '\n');
    ck_assert_int_eq(backup_manifest_read(buffer_slice(&text), &read, &version), ERROR_DAMAGED);
    buffer_close(&text);
}
END_TEST

START_TEST(another_version_is_told_from_damage)
{
    uint32_t version;

    ck_assert_int_eq(read_lines("ledgermq-backup 3\nwhatever it holds\n", &version), ERROR_VERSION);
    ck_assert_uint_eq(version, 3);
    ck_assert_int_eq(read_lines("ledgermq-backup 0\n", &version), ERROR_DAMAGED);
    ck_assert_int_eq(read_lines("ledgermq-backup x\n", &version), ERROR_DAMAGED);
    ck_assert_int_eq(read_lines("another file\n", &version), ERROR_DAMAGED);
    ck_assert_int_eq(read_lines("", &version), ERROR_DAMAGED);
    ck_assert_int_eq(read_lines("ledgermq-backup 2\n", &version), ERROR_DAMAGED);
    ck_assert_int_eq(read_lines("ledgermq-backup 2\ngroup a\nmembers n0\nsegmentSize 0\n", &version), ERROR_DAMAGED);
}
END_TEST

START_TEST(what_cannot_be_is_refused)
{
    struct backup_manifest wrong[6], read;
    uint32_t version;

    for (int i = 0; i < 6; i++)
        wrong[i] = example;
    wrong[0].segment_size = 0;
    wrong[1].first_position = 2001;
    wrong[2].end_position = 2000;
    wrong[3].last_index = 6;
    wrong[4].term = -1;
    wrong[5].end_position = INT64_MAX;
    for (int i = 0; i < 6; i++) {
        struct buffer text;
        write_example(&text, &wrong[i]);
        ck_assert_int_eq(backup_manifest_read(buffer_slice(&text), &read, &version), ERROR_DAMAGED);
        buffer_close(&text);
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *suite = suite_create("backup_manifest");
    TCase *test = tcase_create("backup_manifest");
    tcase_add_test(test, it_is_read_as_it_was_written);
    tcase_add_test(test, every_bit_and_every_byte_counts);
    tcase_add_test(test, another_version_is_told_from_damage);
    tcase_add_test(test, what_cannot_be_is_refused);
    suite_add_tcase(suite, test);
    return suite;
}

int main(void)
{
    return run_suite(suite());
}
