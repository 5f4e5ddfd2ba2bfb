/* The message record, its properties, ids and batch bodies, with the vectors of store.md 1 and remoting.md 10. */
#include "proto/message.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const char golden_hex[] =
    "000000ce daa320a7 248c774f 00000003 00000000 0000000000000005 0000000000000418 00000000 0000018bcfe56800"
    "c0a8010a 0000d431 0000018bcfe5687b c0a80114 00002a9f 00000000 0000000000000000"
    "00000010 48656c6c6f20526f636b65744d512030 09 546f70696354657374 005a"
    "4b45595301 4f726465724944303031 02 554e49515f4b455901"
    "4330413830313041314132423138423441414332343742373630303030303030 02"
    "434c55535445520144656661756c74436c757374657202 5441475301 54616741";

/* remoting.md 10.4: what a real broker stored and a pull returned. */
static const char pulled_hex[] =
    "000000b6 daa320a7 3610a686 00000000 00000000 0000000000000000 0000000000003302 00000000"
    "0000018bcfe56800 7f000001 0000802a 000001a2271af4b8 7f000001 00002a9f 00000000 0000000000000000"
    "00000005 68656c6c6f 04 56656354 0052"
    "4b45595301 6b3102 554e49515f4b455901 3746303030303031303030303241313339413535393044384333453130303031 02"
    "434c555354455201 44656661756c74436c7573746572 02 5441475301 54616741";

static const char batch_hex[] = "00000022 00000000 00000000 00000000 00000001 41 000b 554e49515f4b4559 01 4b31"
                                "00000018 00000000 00000000 00000009 00000002 4243 0000";

/* Heap, and of exactly the size, so that a read outside is seen by the sanitizer. */
static uint8_t *from_hex(const char *hex, size_t *size)
{
    uint8_t *bytes = malloc(strlen(hex) / 2 + 1);
    size_t count = 0;
    for (; *hex != '\0'; hex++) {
        unsigned value;
        if (*hex == ' ')
            continue;
        ck_assert_int_eq(sscanf(hex, "%2x", &value), 1);
        bytes[count++] = (uint8_t)value;
        hex++;
    }
    *size = count;
    return realloc(bytes, count);
}

static struct message_host host(const char *text)
{
    struct message_host host;
    ck_assert(message_host_parse(slice_of_text(text), &host));
    return host;
}

static struct message_record golden_record(void)
{
    return (struct message_record){
        .queue_id = 3,
        .queue_offset = 5,
        .physical_offset = 1048,
        .born_timestamp_ms = 1700000000000,
        .born_host = host("192.168.1.10:54321"),
        .store_timestamp_ms = 1700000000123,
        .store_host = host("192.168.1.20:10911"),
        .body = SLICE_LITERAL("Hello RocketMQ 0"),
        .topic = SLICE_LITERAL("TopicTest"),
        .properties = SLICE_LITERAL("KEYS\001OrderID001\002UNIQ_KEY\001C0A8010A1A2B18B4AAC247B760000000"
                                    "\002CLUSTER\001DefaultCluster\002TAGS\001TagA"),
    };
}

#define assert_slice(slice, text)                                                                                      \
    ck_assert_msg(slice_equal_text(slice, text), "is '%.*s'", (int)(slice).size, (const char *)(slice).data)

START_TEST(encodes_the_golden_message)
{
    size_t size;
    uint8_t *golden = from_hex(golden_hex, &size);
    struct message_record record = golden_record();
    ck_assert_uint_eq(size, 206);
    ck_assert_uint_eq(message_record_size(&record), 206);
    uint8_t *out = malloc(size);
    ck_assert_uint_eq(message_record_encode(&record, (struct slice){0}, out), size);
    ck_assert_mem_eq(out, golden, size);
    ck_assert_uint_eq(record.body_crc, 0x248C774F);
    ck_assert_uint_eq(record.total_size, 206);
    free(out);
    free(golden);
}
END_TEST

START_TEST(properties_may_come_in_two_parts)
{
    size_t size;
    uint8_t *golden = from_hex(golden_hex, &size);
    struct message_record record = golden_record();
    size_t cut = 17;
    struct slice tail = slice_of(record.properties.data + cut, record.properties.size - cut);
    record.properties.size = cut;
    uint8_t *out = malloc(size);
    ck_assert_uint_eq(message_record_encode(&record, tail, out), size);
    ck_assert_mem_eq(out, golden, size);
    free(out);
    free(golden);
}
END_TEST

START_TEST(decodes_the_golden_message)
{
    size_t size;
    uint8_t *golden = from_hex(golden_hex, &size);
    struct message_record record;
    char text[64];
    ck_assert_int_eq(message_record_decode(slice_of(golden, size), true, &record), 0);
    ck_assert_uint_eq(record.total_size, 206);
    ck_assert_uint_eq(record.magic, MESSAGE_MAGIC_V1);
    ck_assert_int_eq(record.queue_id, 3);
    ck_assert_int_eq(record.flag, 0);
    ck_assert_int_eq(record.queue_offset, 5);
    ck_assert_int_eq(record.physical_offset, 1048);
    ck_assert_int_eq(record.sys_flag, 0);
    ck_assert_int_eq(record.born_timestamp_ms, 1700000000000);
    ck_assert_int_eq(record.store_timestamp_ms, 1700000000123);
    ck_assert_int_eq(record.reconsume_times, 0);
    ck_assert_int_eq(record.prepared_transaction_offset, 0);
    assert_slice(record.body, "Hello RocketMQ 0");
    assert_slice(record.topic, "TopicTest");
    message_host_format(&record.born_host, text, sizeof text);
    ck_assert_str_eq(text, "192.168.1.10:54321");
    message_host_format(&record.store_host, text, sizeof text);
    ck_assert_str_eq(text, "192.168.1.20:10911");
    assert_slice(message_property(record.properties, "KEYS"), "OrderID001");
    assert_slice(message_property(record.properties, "TAGS"), "TagA");
    char id[MESSAGE_ID_TEXT_MAX];
    ck_assert_uint_eq(message_id_format(&record.store_host, record.physical_offset, id), 32);
    ck_assert_str_eq(id, "C0A8011400002A9F0000000000000418");
    free(golden);
}
END_TEST

START_TEST(decodes_what_a_real_broker_stored)
{
    size_t size;
    uint8_t *pulled = from_hex(pulled_hex, &size);
    struct message_record record;
    ck_assert_uint_eq(size, 182);
    ck_assert_int_eq(message_record_decode(slice_of(pulled, size), true, &record), 0);
    ck_assert_uint_eq(record.body_crc, 907060870);
    ck_assert_int_eq(record.physical_offset, 13058);
    ck_assert_int_eq(record.born_host.port, 32810);
    assert_slice(record.topic, "VecT");
    assert_slice(record.body, "hello");
    assert_slice(message_property(record.properties, "CLUSTER"), "DefaultCluster");

    uint8_t *again = malloc(size);
    ck_assert_uint_eq(message_record_encode(&record, (struct slice){0}, again), size);
    ck_assert_mem_eq(again, pulled, size);
    free(again);

    struct message_dispatch dispatch;
    ck_assert_int_eq(message_dispatch_decode(slice_of(pulled, size), &dispatch), 0);
    assert_slice(dispatch.keys, "k1");
    assert_slice(dispatch.uniq_key, "7F00000100002A139A5590D8C3E10001");
    free(pulled);
}
END_TEST

START_TEST(dispatch_sees_what_it_needs)
{
    struct message_record record = golden_record();
    record.properties = SLICE_LITERAL(
        "DELAY\0013\002TAGS\001old\002KEYS\001a b\002UNIQ_KEY\001U\002TAGS\001TagA\002KEYSX\001no\002TAG\001no"
        "\002DELAYED\001no\002UNIQ_KEX\001no\002KEYS\001\002TAGS\002\001x\002");
    record.sys_flag = MESSAGE_TRANSACTION_COMMIT;
    size_t size = message_record_size(&record);
    uint8_t *out = malloc(size);
    message_record_encode(&record, (struct slice){0}, out);
    struct message_dispatch dispatch;
    ck_assert_int_eq(message_dispatch_decode(slice_of(out, size), &dispatch), 0);
    ck_assert_int_eq(dispatch.physical_offset, 1048);
    ck_assert_uint_eq(dispatch.size, size);
    ck_assert_int_eq(dispatch.queue_id, 3);
    ck_assert_int_eq(dispatch.queue_offset, 5);
    ck_assert_int_eq(dispatch.store_timestamp_ms, 1700000000123);
    ck_assert_int_eq(dispatch.sys_flag, MESSAGE_TRANSACTION_COMMIT);
    assert_slice(dispatch.topic, "TopicTest");
    assert_slice(dispatch.keys, "a b");
    assert_slice(dispatch.uniq_key, "U");
    assert_slice(dispatch.tags, "TagA");
    assert_slice(dispatch.delay, "3");
    ck_assert(slice_equal(dispatch.properties, record.properties));
    free(out);
}
END_TEST

START_TEST(dispatch_without_properties)
{
    struct message_record record = golden_record();
    record.properties = (struct slice){0};
    size_t size = message_record_size(&record);
    uint8_t *out = malloc(size);
    message_record_encode(&record, (struct slice){0}, out);
    struct message_dispatch dispatch;
    ck_assert_int_eq(message_dispatch_decode(slice_of(out, size), &dispatch), 0);
    ck_assert_ptr_null(dispatch.keys.data);
    ck_assert_ptr_null(dispatch.uniq_key.data);
    ck_assert_ptr_null(dispatch.tags.data);
    ck_assert_ptr_null(dispatch.delay.data);
    free(out);
}
END_TEST

/* Bits: 1 born host IPv6, 2 store host IPv6. */
START_TEST(hosts_of_both_families)
{
    static const size_t sizes[] = {206, 218, 218, 230};
    struct message_record record = golden_record();
    struct message_record again;
    struct message_dispatch dispatch;
    if (_i & 1)
        record.born_host = host("[2001:db8::2]:54321");
    if (_i & 2)
        record.store_host = host("[2001:db8::1]:10911");
    record.sys_flag = MESSAGE_COMPRESSED | MESSAGE_BORN_HOST_V6 | MESSAGE_STORE_HOST_V6;
    record.reconsume_times = 7;
    record.prepared_transaction_offset = 77;
    size_t size = message_record_size(&record);
    ck_assert_uint_eq(size, sizes[_i]);
    uint8_t *out = malloc(size);
    ck_assert_uint_eq(message_record_encode(&record, (struct slice){0}, out), size);
    ck_assert_int_eq(record.sys_flag, MESSAGE_COMPRESSED | (_i & 1 ? 0x10 : 0) | (_i & 2 ? 0x20 : 0));
    ck_assert_int_eq(message_record_decode(slice_of(out, size), true, &again), 0);
    ck_assert_int_eq(again.sys_flag, record.sys_flag);
    ck_assert_mem_eq(&again.born_host, &record.born_host, sizeof again.born_host);
    ck_assert_mem_eq(&again.store_host, &record.store_host, sizeof again.store_host);
    ck_assert_int_eq(again.store_timestamp_ms, 1700000000123);
    ck_assert_int_eq(again.reconsume_times, 7);
    ck_assert_int_eq(again.prepared_transaction_offset, 77);
    assert_slice(again.body, "Hello RocketMQ 0");
    ck_assert_int_eq(message_dispatch_decode(slice_of(out, size), &dispatch), 0);
    ck_assert_int_eq(dispatch.store_timestamp_ms, 1700000000123);
    assert_slice(dispatch.tags, "TagA");
    for (size_t cut = 0; cut < size; cut++) {
        uint8_t *part = malloc(cut == 0 ? 1 : cut);
        memcpy(part, out, cut);
        ck_assert_int_eq(message_record_decode(slice_of(part, cut), true, &again), ERROR_MALFORMED);
        ck_assert_int_eq(message_dispatch_decode(slice_of(part, cut), &dispatch), ERROR_MALFORMED);
        free(part);
    }
    free(out);
}
END_TEST

/* A version 2 record of the golden message: another magic, a topic length of two bytes. */
static uint8_t *version_2(size_t topic_size, size_t *size)
{
    struct message_record record = golden_record();
    uint8_t *v1 = malloc(message_record_size(&record));
    message_record_encode(&record, (struct slice){0}, v1);
    size_t before_topic = 88 + record.body.size;
    *size = before_topic + 2 + topic_size + 2 + record.properties.size;
    uint8_t *v2 = malloc(*size);
    memcpy(v2, v1, before_topic);
    store_u32(v2, (uint32_t)*size);
    store_u32(v2 + 4, MESSAGE_MAGIC_V2);
    store_u16(v2 + before_topic, (uint16_t)topic_size);
    memset(v2 + before_topic + 2, 't', topic_size);
    store_u16(v2 + before_topic + 2 + topic_size, (uint16_t)record.properties.size);
    memcpy(v2 + before_topic + 2 + topic_size + 2, record.properties.data, record.properties.size);
    free(v1);
    return v2;
}

START_TEST(reads_version_2)
{
    static const size_t topic_sizes[] = {9, 200};
    size_t size;
    uint8_t *v2 = version_2(topic_sizes[_i], &size);
    struct message_record record;
    struct message_dispatch dispatch;
    ck_assert_uint_eq(size, 206 - 9 + 1 + topic_sizes[_i]);
    ck_assert_int_eq(message_record_decode(slice_of(v2, size), true, &record), 0);
    ck_assert_uint_eq(record.magic, MESSAGE_MAGIC_V2);
    ck_assert_uint_eq(record.topic.size, topic_sizes[_i]);
    ck_assert_int_eq(message_dispatch_decode(slice_of(v2, size), &dispatch), 0);
    ck_assert_uint_eq(dispatch.topic.size, topic_sizes[_i]);
    assert_slice(dispatch.tags, "TagA");
    for (size_t cut = 0; cut < size; cut++) {
        uint8_t *part = malloc(cut == 0 ? 1 : cut);
        memcpy(part, v2, cut);
        ck_assert_int_eq(message_record_decode(slice_of(part, cut), false, &record), ERROR_MALFORMED);
        /* Also when it claims to be no longer than what is there. */
        if (cut >= 4) {
            store_u32(part, (uint32_t)cut);
            ck_assert_int_eq(message_record_decode(slice_of(part, cut), false, &record), ERROR_MALFORMED);
        }
        free(part);
    }
    free(v2);
}
END_TEST

START_TEST(every_prefix_is_malformed)
{
    size_t size;
    uint8_t *golden = from_hex(golden_hex, &size);
    struct message_record record;
    struct message_dispatch dispatch;
    for (size_t cut = 0; cut < size; cut++) {
        uint8_t *part = malloc(cut == 0 ? 1 : cut);
        memcpy(part, golden, cut);
        ck_assert_int_eq(message_record_decode(slice_of(part, cut), true, &record), ERROR_MALFORMED);
        ck_assert_int_eq(message_dispatch_decode(slice_of(part, cut), &dispatch), ERROR_MALFORMED);
        if (cut >= 4) {
            store_u32(part, (uint32_t)cut);
            ck_assert_int_eq(message_record_decode(slice_of(part, cut), true, &record), ERROR_MALFORMED);
            ck_assert_int_eq(message_dispatch_decode(slice_of(part, cut), &dispatch), ERROR_MALFORMED);
        }
        free(part);
    }
    free(golden);
}
END_TEST

/* Every byte set to each of some values: an answer, whatever it is, and no read outside. */
START_TEST(any_byte_may_be_wrong)
{
    static const uint8_t values[] = {0x00, 0x01, 0x7F, 0x80, 0xFF};
    size_t size;
    uint8_t *golden = from_hex(golden_hex, &size);
    struct message_record record;
    struct message_dispatch dispatch;
    for (size_t at = 0; at < size; at++) {
        uint8_t was = golden[at];
        for (size_t i = 0; i < sizeof values; i++) {
            golden[at] = values[i];
            int rv = message_record_decode(slice_of(golden, size), true, &record);
            int light = message_dispatch_decode(slice_of(golden, size), &dispatch);
            ck_assert(rv == 0 || rv == ERROR_MALFORMED || rv == ERROR_DAMAGED);
            ck_assert_int_eq(light, rv == ERROR_DAMAGED ? 0 : rv);
        }
        golden[at] = was;
    }
    free(golden);
}
END_TEST

START_TEST(a_record_may_be_followed_by_another)
{
    size_t size;
    uint8_t *golden = from_hex(golden_hex, &size);
    uint8_t *two = malloc(2 * size);
    struct message_record record;
    memcpy(two, golden, size);
    memcpy(two + size, golden, size);
    ck_assert_int_eq(message_record_decode(slice_of(two, 2 * size), true, &record), 0);
    ck_assert_uint_eq(record.total_size, size);
    ck_assert_int_eq(message_record_decode(slice_of(two + record.total_size, size), true, &record), 0);
    free(two);
    free(golden);
}
END_TEST

START_TEST(body_crc_is_checked_on_request)
{
    size_t size;
    uint8_t *golden = from_hex(golden_hex, &size);
    struct message_record record;
    struct message_dispatch dispatch;
    golden[90] ^= 1;
    ck_assert_int_eq(message_record_decode(slice_of(golden, size), true, &record), ERROR_DAMAGED);
    ck_assert_int_eq(message_record_decode(slice_of(golden, size), false, &record), 0);
    ck_assert_int_eq(message_dispatch_decode(slice_of(golden, size), &dispatch), 0);
    golden[90] ^= 1;
    golden[size - 1] ^= 1; /* a property is not covered */
    ck_assert_int_eq(message_record_decode(slice_of(golden, size), true, &record), 0);
    free(golden);
}
END_TEST

START_TEST(body_crc_vectors)
{
    ck_assert_uint_eq(message_body_crc(SLICE_LITERAL("123456789")), 0x4BF43926);
    ck_assert_uint_eq(message_body_crc(SLICE_LITERAL("a")), 0x68B7BE43);
    ck_assert_uint_eq(message_body_crc(SLICE_LITERAL("Hello")), 0x77D18982);
    ck_assert_uint_eq(message_body_crc(SLICE_LITERAL("")), 0);
    ck_assert_uint_eq(message_body_crc((struct slice){0}), 0);
}
END_TEST

START_TEST(largest_topic_and_properties)
{
    static char topic[MESSAGE_TOPIC_MAX];
    static char properties[MESSAGE_PROPERTIES_MAX];
    struct message_record record = golden_record();
    struct message_record again;
    memset(topic, 't', sizeof topic);
    memset(properties, 'p', sizeof properties);
    properties[1] = MESSAGE_PROPERTY_NAME_SEPARATOR;
    record.topic = slice_of(topic, sizeof topic);
    record.properties = slice_of(properties, sizeof properties);
    size_t size = message_record_size(&record);
    uint8_t *out = malloc(size);
    ck_assert_uint_eq(message_record_encode(&record, (struct slice){0}, out), size);
    ck_assert_int_eq(message_record_decode(slice_of(out, size), true, &again), 0);
    ck_assert_uint_eq(again.topic.size, 127);
    ck_assert_uint_eq(again.properties.size, 32767);
    ck_assert_uint_eq(message_property(again.properties, "p").size, 32765);
    free(out);
}
END_TEST

/* Records that are whole but whose lengths Java reads as negative, or with a byte that belongs to no field. */
START_TEST(lengths_that_no_reader_takes)
{
    static char topic[MESSAGE_TOPIC_MAX + 1];
    static char properties[MESSAGE_PROPERTIES_MAX + 1];
    struct message_record record = golden_record();
    struct message_record again;
    memset(topic, 't', sizeof topic);
    memset(properties, 'p', sizeof properties);
    if (_i == 0)
        record.topic = slice_of(topic, sizeof topic);
    else if (_i == 1)
        record.properties = slice_of(properties, sizeof properties);
    size_t size = message_record_size(&record);
    uint8_t *out = calloc(1, size + 1);
    message_record_encode(&record, (struct slice){0}, out);
    if (_i == 2)
        store_u32(out, (uint32_t)++size);
    ck_assert_int_eq(message_record_decode(slice_of(out, size), true, &again), ERROR_MALFORMED);
    free(out);
}
END_TEST

START_TEST(hosts_as_text)
{
    static const char *const good[] = {"1.2.3.4:0", "0.0.0.0:65535", "[::1]:10911", "[2001:db8::1]:10911"};
    static const char *const bad[] = {"",           "1.2.3.4",    "1.2.3.4:",        "1.2.3.4:65536", "1.2.3.4:-1",
                                      "1.2.3.4:+1", "1.2.3:1",    ":10911",          "::1:10911",     "[::1]10911",
                                      "[::1:10911", "host:1",     "[1.2.3.4]:1",     "1.2.3.4:1x",    "[]:1",
                                      "[:1",        "1.2.3.4 :1", "[fe80::1%eth0]:1"};
    char text[64];
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct message_host one = host(good[i]);
        message_host_format(&one, text, sizeof text);
        ck_assert_str_eq(text, good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct message_host one;
        ck_assert_msg(!message_host_parse(slice_of_text(bad[i]), &one), "%s was taken", bad[i]);
    }
    struct message_host mapped = host("[::ffff:10.0.0.1]:80");
    message_host_format(&mapped, text, sizeof text);
    ck_assert_str_eq(text, "10.0.0.1:80");
    uint8_t port[206];
    struct message_record record = golden_record();
    record.born_host = host("192.168.1.10:65535");
    message_record_encode(&record, (struct slice){0}, port);
    ck_assert_uint_eq(load_u32(port + 52), 0xFFFF);
}
END_TEST

START_TEST(ids)
{
    char id[MESSAGE_ID_TEXT_MAX];
    struct message_host v6 = host("[2001:db8::1]:10911");
    struct message_host store_host;
    int64_t offset;
    ck_assert_uint_eq(message_id_format(&v6, 1048, id), 56);
    ck_assert_str_eq(id, "20010DB800000000000000000000000100002A9F0000000000000418");
    ck_assert(message_id_parse(slice_of_text(id), &store_host, &offset));
    ck_assert_mem_eq(&store_host, &v6, sizeof v6);
    ck_assert_int_eq(offset, 1048);
    ck_assert(message_id_parse(SLICE_LITERAL("7f00000100002a9f0000000000003302"), &store_host, &offset));
    ck_assert_int_eq(offset, 13058);
    ck_assert_int_eq(store_host.port, 10911);
    ck_assert_uint_eq(store_host.address_size, 4);
    ck_assert(!message_id_parse(SLICE_LITERAL(""), &store_host, &offset));
    ck_assert(!message_id_parse(SLICE_LITERAL("7F00000100002A9F000000000000330"), &store_host, &offset));
    ck_assert(!message_id_parse(SLICE_LITERAL("7F00000100002A9F00000000000033022"), &store_host, &offset));
    ck_assert(!message_id_parse(SLICE_LITERAL("7F00000100002A9F000000000000330G"), &store_host, &offset));
}
END_TEST

START_TEST(properties_are_read_as_java_reads_them)
{
    assert_slice(message_property(SLICE_LITERAL("a\001b\002c\001d"), "c"), "d");
    assert_slice(message_property(SLICE_LITERAL("a\001b\002c\001d\002"), "c"), "d");
    assert_slice(message_property(SLICE_LITERAL("k\001v\001w"), "k"), "v\001w");
    assert_slice(message_property(SLICE_LITERAL("k\0011\002k\0012"), "k"), "2");
    assert_slice(message_property(SLICE_LITERAL("k\0011\002k\001"), "k"), "1");
    ck_assert_ptr_null(message_property(SLICE_LITERAL("k\001"), "k").data);
    ck_assert_ptr_null(message_property(SLICE_LITERAL("\001v"), "").data);
    ck_assert_ptr_null(message_property(SLICE_LITERAL("kv"), "kv").data);
    ck_assert_ptr_null(message_property((struct slice){0}, "k").data);

    struct slice name;
    struct slice value;
    size_t at = 0;
    struct slice odd = SLICE_LITERAL("\002\002k\001\002\001v\002nothing\002a\001b\002\002");
    ck_assert(message_property_next(odd, &at, &name, &value));
    assert_slice(name, "a");
    assert_slice(value, "b");
    ck_assert(!message_property_next(odd, &at, &name, &value));
    ck_assert(!message_property_next(odd, &at, &name, &value));
}
END_TEST

START_TEST(properties_are_written_without_a_separator_behind)
{
    struct buffer out;
    buffer_init(&out, 0);
    buffer_append_text(&out, "xx");
    size_t start = out.size;
    message_property_append(&out, start, SLICE_LITERAL("a"), SLICE_LITERAL("b"));
    message_property_append(&out, start, SLICE_LITERAL("c"), SLICE_LITERAL("d"));
    assert_slice(buffer_slice(&out), "xxa\001b\002c\001d");

    static const char *const without[] = {"WAIT", "c", NULL};
    buffer_clear(&out);
    message_properties_copy(&out, 0, SLICE_LITERAL("WAIT\001true\002a\001b\002broken\002c\001d\002e\001f\002"),
                            without);
    assert_slice(buffer_slice(&out), "a\001b\002e\001f");
    message_properties_copy(&out, 0, SLICE_LITERAL("g\001h"), NULL);
    assert_slice(buffer_slice(&out), "a\001b\002e\001f\002g\001h");

    buffer_clear(&out);
    buffer_append_text(&out, "a\001b\002");
    message_property_append(&out, 0, SLICE_LITERAL("c"), SLICE_LITERAL("d"));
    assert_slice(buffer_slice(&out), "a\001b\002c\001d");
    buffer_close(&out);
}
END_TEST

START_TEST(batch_bytes)
{
    size_t size;
    uint8_t *golden = from_hex(batch_hex, &size);
    struct message_batch_member member;
    struct cursor cursor = cursor_of(slice_of(golden, size));
    ck_assert_uint_eq(size, 58);
    ck_assert_int_eq(message_batch_next(&cursor, &member), 1);
    ck_assert_int_eq(member.flag, 0);
    assert_slice(member.body, "A");
    assert_slice(member.properties, "UNIQ_KEY\001K1");
    ck_assert_int_eq(message_batch_next(&cursor, &member), 1);
    ck_assert_int_eq(member.flag, 9);
    assert_slice(member.body, "BC");
    ck_assert_uint_eq(member.properties.size, 0);
    ck_assert_int_eq(message_batch_next(&cursor, &member), 0);

    struct buffer out;
    buffer_init(&out, 0);
    message_batch_append(&out, &(struct message_batch_member){0, SLICE_LITERAL("A"), SLICE_LITERAL("UNIQ_KEY\001K1")});
    message_batch_append(&out, &(struct message_batch_member){9, SLICE_LITERAL("BC"), {0}});
    ck_assert_uint_eq(out.size, size);
    ck_assert_mem_eq(out.data, golden, size);
    buffer_close(&out);

    for (size_t cut = 0; cut < size; cut++) {
        uint8_t *part = malloc(cut == 0 ? 1 : cut);
        memcpy(part, golden, cut);
        cursor = cursor_of(slice_of(part, cut));
        int rv;
        do
            rv = message_batch_next(&cursor, &member);
        while (rv == 1);
        ck_assert_int_eq(rv, cut == 0 || cut == 34 ? 0 : -1);
        ck_assert(rv == 0 || message_batch_next(&cursor, &member) == -1);
        free(part);
    }
    golden[3]++; /* sizes no longer add up */
    cursor = cursor_of(slice_of(golden, size));
    ck_assert_int_eq(message_batch_next(&cursor, &member), -1);
    golden[3]--;
    store_u32(golden + 16, 0xFFFFFFF0);
    cursor = cursor_of(slice_of(golden, size));
    ck_assert_int_eq(message_batch_next(&cursor, &member), -1);
    free(golden);
}
END_TEST

/* Not a measurement: the bound is an order of magnitude above what is expected, for sanitizers and busy machines.
 * Prints the real value. */
START_TEST(dispatch_is_fast)
{
    enum { ROUNDS = 200000 };
    struct message_record record = golden_record();
    static char body[128];
    record.body = slice_of(body, sizeof body);
    size_t size = message_record_size(&record);
    uint8_t *out = malloc(size);
    message_record_encode(&record, (struct slice){0}, out);
    struct message_dispatch dispatch;
    struct timespec from;
    struct timespec to;
    size_t sum = 0;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < ROUNDS; i++) {
        if (message_dispatch_decode(slice_of(out, size), &dispatch) ==
            0) /* an assertion here would cost more than the call */
            sum += dispatch.tags.size;
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    double each = ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / ROUNDS;
    printf("message_dispatch_decode: %.0f ns for a record of %zu bytes\n", each, size);
    ck_assert_uint_eq(sum, 4 * ROUNDS);
    ck_assert_double_lt(each, 5000);
    free(out);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("message");
    TCase *tcase = tcase_create("record");
    tcase_add_test(tcase, encodes_the_golden_message);
    tcase_add_test(tcase, properties_may_come_in_two_parts);
    tcase_add_test(tcase, decodes_the_golden_message);
    tcase_add_test(tcase, decodes_what_a_real_broker_stored);
    tcase_add_test(tcase, dispatch_sees_what_it_needs);
    tcase_add_test(tcase, dispatch_without_properties);
    tcase_add_loop_test(tcase, hosts_of_both_families, 0, 4);
    tcase_add_loop_test(tcase, reads_version_2, 0, 2);
    tcase_add_test(tcase, every_prefix_is_malformed);
    tcase_add_test(tcase, any_byte_may_be_wrong);
    tcase_add_test(tcase, a_record_may_be_followed_by_another);
    tcase_add_test(tcase, body_crc_is_checked_on_request);
    tcase_add_test(tcase, body_crc_vectors);
    tcase_add_test(tcase, largest_topic_and_properties);
    tcase_add_loop_test(tcase, lengths_that_no_reader_takes, 0, 3);
    tcase_add_test(tcase, dispatch_is_fast);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("parts");
    tcase_add_test(tcase, hosts_as_text);
    tcase_add_test(tcase, ids);
    tcase_add_test(tcase, properties_are_read_as_java_reads_them);
    tcase_add_test(tcase, properties_are_written_without_a_separator_behind);
    tcase_add_test(tcase, batch_bytes);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
