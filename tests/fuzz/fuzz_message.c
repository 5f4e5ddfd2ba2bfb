/* Message records, properties, ids and batch bodies: what decodes is inside its bytes and encodes to them again. */
#include "proto/message.h"

#include "tests/fuzz/fuzz.h"

static void check_properties(struct slice properties)
{
    struct buffer copy;
    struct slice name;
    struct slice value;
    size_t at = 0;

    buffer_init(&copy, 0);
    message_properties_copy(&copy, 0, properties, NULL);
    while (message_property_next(properties, &at, &name, &value))
        CHECK(name.size > 0 && value.size > 0);
    CHECK(slice_equal(message_property(properties, "TAGS"), message_property(buffer_slice(&copy), "TAGS")));
    buffer_close(&copy);
}

static void check_record(struct slice bytes)
{
    struct message_record record;
    struct message_dispatch dispatch;
    int rv = message_record_decode(bytes, false, &record);

    CHECK(rv == message_dispatch_decode(bytes, &dispatch));
    if (rv != 0)
        return;
    CHECK(record.total_size <= bytes.size && dispatch.size == record.total_size);
    CHECK(slice_equal(dispatch.topic, record.topic) && slice_equal(dispatch.properties, record.properties));
    CHECK(slice_equal(dispatch.tags, message_property(record.properties, "TAGS")));
    CHECK(slice_equal(dispatch.keys, message_property(record.properties, "KEYS")));
    CHECK(slice_equal(dispatch.uniq_key, message_property(record.properties, "UNIQ_KEY")));
    CHECK(slice_equal(dispatch.delay, message_property(record.properties, "DELAY")));
    CHECK(dispatch.store_timestamp_ms == record.store_timestamp_ms);
    check_properties(record.properties);
    if (record.magic != MESSAGE_MAGIC_V1)
        return;

    uint32_t stored_crc = record.body_crc;
    uint8_t *again = malloc(record.total_size);
    CHECK(message_record_size(&record) == record.total_size);
    CHECK(message_record_encode(&record, (struct slice){0}, again) == load_u32(bytes.data));
    store_u32(again + 8, stored_crc); /* the decoder was told not to look at it */
    CHECK(memcmp(again, bytes.data, record.total_size) == 0);
    free(again);

    char id[MESSAGE_ID_TEXT_MAX];
    struct message_host host;
    int64_t offset;
    size_t length = message_id_format(&record.store_host, record.physical_offset, id);
    CHECK(message_id_parse(slice_of(id, length), &host, &offset) && offset == record.physical_offset);
}

static void check_batch(struct slice bytes)
{
    struct cursor cursor = cursor_of(bytes);
    struct message_batch_member member;
    size_t total = 0;
    int rv;

    while ((rv = message_batch_next(&cursor, &member)) == 1)
        total += 22 + member.body.size + member.properties.size;
    CHECK(rv != 0 || total == bytes.size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct message_host host;
    int64_t offset;

    check_record(slice_of(data, size));
    check_batch(slice_of(data, size));
    check_properties(slice_of(data, size));
    message_id_parse(slice_of(data, size), &host, &offset);
    if (message_host_parse(slice_of(data, size), &host)) {
        char text[64];
        struct message_host again;
        message_host_format(&host, text, sizeof text);
        CHECK(message_host_parse(slice_of_text(text), &again) && memcmp(&host, &again, sizeof host) == 0);
    }
    return 0;
}
