/* Frames and both header forms against bytes captured from RocketMQ 4.9.8 (spec: remoting.md 10), what fastjson lets pass, and what closes a
 * connection. */
#include "proto/remoting_command.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/utf8.h"
#include "tests/lib/hex.h"
#include "tests/lib/run_suite.h"

static struct remoting_command command;
static uint8_t *frame; /* of exactly the frame's size, so that ASan sees a byte too far */

static void set_frame(struct slice bytes)
{
    free(frame);
    frame = malloc(bytes.size == 0 ? 1 : bytes.size);
    ck_assert_ptr_nonnull(frame);
    memcpy(frame, bytes.data, bytes.size);
}

static int decode(struct slice bytes)
{
    set_frame(bytes);
    memset(&command, 0xAA, sizeof command);
    return remoting_command_decode(frame, bytes.size, &command);
}

static int decode_header(uint8_t type, struct slice header, const char *body)
{
    struct buffer buffer;
    buffer_init(&buffer, 0);
    buffer_append_u32(&buffer, (uint32_t)(4 + header.size + strlen(body)));
    buffer_append_u32(&buffer, (uint32_t)type << 24 | (uint32_t)header.size);
    buffer_append_slice(&buffer, header);
    buffer_append_text(&buffer, body);
    int rv = decode(buffer_slice(&buffer));
    buffer_close(&buffer);
    return rv;
}

static int decode_text(const char *header)
{
    return decode_header(REMOTING_JSON, slice_of_text(header), "");
}

static int decode_hex(const char *text)
{
    struct slice bytes = hex_bytes(text);
    int rv = decode(bytes);
    hex_free(bytes);
    return rv;
}

static void tear_down(void)
{
    free(frame);
    frame = NULL;
}

#define VEC_JSON                                                                                             \
    "000000820000007e 7b22636f6465223a3130352c226578744669656c6473223a7b22746f706963223a2256656354227d2c22666c6167223a302c226c616e67" \
    "75616765223a224a415641222c226f7061717565223a372c2273657269616c697a655479706543757272656e74525043223a224a534f4e222c227665727369" \
    "6f6e223a3430397d"
#define VEC_BINARY "00000028 01000024 0069 00 0199 00000007 00000000 00000000 0000000f 0005 746f706963 00000004 56656354"

START_TEST(test_captured_json)
{
    ck_assert_int_eq(decode_hex(VEC_JSON), 0);
    ck_assert_int_eq(command.code, 105);
    ck_assert_int_eq(command.version, 409);
    ck_assert_int_eq(command.opaque, 7);
    ck_assert(command.has_opaque);
    ck_assert_int_eq(command.flag, 0);
    ck_assert_uint_eq(command.language, REMOTING_LANGUAGE_JAVA);
    ck_assert_uint_eq(command.serialize_type, REMOTING_JSON);
    ck_assert_ptr_null(command.remark.data);
    ck_assert_uint_eq(command.body.size, 0);
    ck_assert_uint_eq(command.ext_count, 1);
    ck_assert_slice_eq(remoting_ext(&command, "topic"), "VecT");
    ck_assert_ptr_null(remoting_ext(&command, "topi").data);
    ck_assert(!remoting_is_response(&command));
    ck_assert(!remoting_is_oneway(&command));
}
END_TEST

START_TEST(test_captured_binary)
{
    ck_assert_int_eq(decode_hex(VEC_BINARY), 0);
    ck_assert_int_eq(command.code, 105);
    ck_assert_int_eq(command.version, 409);
    ck_assert_int_eq(command.opaque, 7);
    ck_assert_int_eq(command.flag, 0);
    ck_assert_uint_eq(command.serialize_type, REMOTING_BINARY);
    ck_assert_ptr_null(command.remark.data);
    ck_assert_uint_eq(command.ext_count, 1);
    ck_assert_slice_eq(remoting_ext(&command, "topic"), "VecT");
}
END_TEST

START_TEST(test_captured_answers)
{
    ck_assert_int_eq(decode_text("{\"code\":17,\"flag\":1,\"language\":\"JAVA\",\"opaque\":7,\"remark\":\"No topic route info in name server for "
                                 "the topic: VecT\\nSee http://rocketmq.apache.org/docs/faq/ for further details.\","
                                 "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":409}"), 0);
    ck_assert_int_eq(command.code, 17);
    ck_assert(remoting_is_response(&command));
    ck_assert_slice_eq(command.remark, "No topic route info in name server for the topic: VecT\nSee http://rocketmq.apache.org/docs/faq/ for "
                                       "further details.");
    ck_assert_int_eq(decode_text("{\"code\":0,\"extFields\":{\"queueId\":\"0\",\"TRACE_ON\":\"true\",\"MSG_REGION\":\"DefaultRegion\",\"msgId\":"
                                 "\"7F00000100002A9F0000000000003302\",\"queueOffset\":\"0\"},\"flag\":1,\"language\":\"JAVA\",\"opaque\":3,"
                                 "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":409}"), 0);
    ck_assert_uint_eq(command.ext_count, 5);
    ck_assert_slice_eq(remoting_ext(&command, "msgId"), "7F00000100002A9F0000000000003302");
    ck_assert_slice_eq(remoting_ext(&command, "TRACE_ON"), "true");
    ck_assert_int_eq(command.opaque, 3);
    /* Binary, with a remark and no ext fields. */
    ck_assert_int_eq(decode_hex("00000021 0100001d 0011 00 0199 00000007 00000001 00000008 4e6f20746f706963 00000000"), 0);
    ck_assert_int_eq(command.code, 17);
    ck_assert_int_eq(command.flag, 1);
    ck_assert_slice_eq(command.remark, "No topic");
    ck_assert_uint_eq(command.ext_count, 0);
}
END_TEST

START_TEST(test_body)
{
    ck_assert_int_eq(decode_header(REMOTING_JSON, SLICE_LITERAL("{\"code\":34}"), "hello"), 0);
    ck_assert_slice_eq(command.body, "hello");
    ck_assert_int_eq(command.code, 34);
    ck_assert(!command.has_opaque);
    ck_assert_int_eq(command.version, 0);
}
END_TEST

/* Where the first escape stands relative to the scanner's steps of eight must not matter, nor how far the string is from the header's end. */
START_TEST(test_escapes)
{
    for (int lead = 0; lead < 20; lead++) {
        for (int tail = 0; tail < 20; tail++) {
            char header[400];
            char expected[200];
            snprintf(header, sizeof header,
                     "{\"code\":310,\"extFields\":{\"i\":\"%.*s\\u0001k1\\u0002TAGS\\u0001\\u4E2d\\n\\\"\\\\\\/\\uD83D\\uDE00\\ud800\\b\\f\\r\\t%.*s\"}}",
                     lead, "abcdefghijklmnopqrstuvwxyz", tail, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
            snprintf(expected, sizeof expected, "%.*s\001k1\002TAGS\001中\n\"\\/\xF0\x9F\x98\x80?\b\f\r\t%.*s", lead, "abcdefghijklmnopqrstuvwxyz",
                     tail, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
            ck_assert_int_eq(decode_text(header), 0);
            ck_assert_slice_eq(remoting_ext(&command, "i"), expected);
        }
    }
    ck_assert_int_eq(decode_text("{\"c\\u006fde\":5,\"extFields\":{\"t\\u006Fpic\":\"\\x41\\0\\7\\v\\'\"}}"), 0);
    ck_assert_int_eq(command.code, 5);
    ck_assert(slice_equal(remoting_ext(&command, "topic"), slice_of("A\0\7\v'", 5)));
    /* Two high halves, a low half alone, a pair of which the second is broken. */
    ck_assert_int_eq(decode_text("{\"remark\":\"\\ud83d\\ud83d\\ude00\\ude00x\"}"), 0);
    ck_assert_slice_eq(command.remark, "?\xF0\x9F\x98\x80?x");
    ck_assert_int_eq(decode_text("{\"remark\":\"\\ud7ff\\u0041\"}"), 0);
    ck_assert_slice_eq(command.remark, "\xED\x9F\xBF" "A");
    static const char *const bad[] = {
        "{\"remark\":\"\\q\"}",   "{\"remark\":\"\\u12\"}",         "{\"remark\":\"\\u12g4\"}", "{\"remark\":\"\\ud83d\\u12\"}",
        "{\"remark\":\"\\",       "{\"remark\":\"\\\"}",            "{\"remark\":\"\\x4\"}",    "{\"remark\":\"a\\8\"}",
        "{\"remark\":\"\\ud83d\\u\"}", "{\"remark\":\"\\u",         "{\"remark\":\"\\x",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_msg(decode_text(bad[i]) == ERROR_MALFORMED, "%s", bad[i]);
}
END_TEST

START_TEST(test_every_escape_of_a_unit)
{
    for (uint32_t unit = 0; unit < 0x10000; unit += unit < 0x300 ? 1 : 97) {
        char header[64];
        uint8_t expected[5] = {0};
        size_t size = utf8_put(unit >= 0xD800 && unit < 0xE000 ? '?' : unit, expected);
        snprintf(header, sizeof header, "{\"remark\":\"\\u%04x\"}", unit);
        ck_assert_int_eq(decode_text(header), 0);
        ck_assert(slice_equal(command.remark, slice_of(expected, size)));
    }
}
END_TEST

START_TEST(test_lenient_forms)
{
    /* Any order, white space, unknown keys with any value, a line feed behind (C++). */
    ck_assert_int_eq(decode_text(" { \"opaque\" : -5 ,\r\n\t\"new\":{\"a\":[1,{\"b\":\"}\"}],\"c\":null}, \"list\":[[],{}], \"version\":331,"
                                 "\"code\":11 }\n"), 0);
    ck_assert_int_eq(command.opaque, -5);
    ck_assert_int_eq(command.code, 11);
    ck_assert_int_eq(command.version, 331);
    /* Numbers and booleans as ext values; null is absent; the last of equal keys counts; a container keeps its text. */
    ck_assert_int_eq(decode_text("{\"code\":11,\"extFields\":{\"n\":12,\"neg\":-3,\"b\":true,\"f\":false,\"d\":1.50,\"none\":null,\"x\":\"1\",\"x\":\"2\","
                                 "\"e\":\"\",\"o\":{\"k\":\"v\"},\"l\":[1, 2]}}"), 0);
    ck_assert_slice_eq(remoting_ext(&command, "n"), "12");
    ck_assert_slice_eq(remoting_ext(&command, "neg"), "-3");
    ck_assert_slice_eq(remoting_ext(&command, "b"), "true");
    ck_assert_slice_eq(remoting_ext(&command, "f"), "false");
    ck_assert_slice_eq(remoting_ext(&command, "d"), "1.50");
    ck_assert_ptr_null(remoting_ext(&command, "none").data);
    ck_assert_slice_eq(remoting_ext(&command, "x"), "2");
    ck_assert_ptr_nonnull(remoting_ext(&command, "e").data);
    ck_assert_slice_eq(remoting_ext(&command, "o"), "{\"k\":\"v\"}");
    ck_assert_slice_eq(remoting_ext(&command, "l"), "[1, 2]");
    /* Quoted numbers, null numbers, null objects. */
    ck_assert_int_eq(decode_text("{\"code\":\"310\",\"flag\":null,\"opaque\":\"2147483647\",\"version\":\"\",\"remark\":null,\"extFields\":null}"), 0);
    ck_assert_int_eq(command.code, 310);
    ck_assert_int_eq(command.flag, 0);
    ck_assert_int_eq(command.opaque, INT32_MAX);
    ck_assert(command.has_opaque);
    ck_assert_ptr_null(command.remark.data);
    ck_assert_uint_eq(command.ext_count, 0);
    ck_assert_int_eq(decode_text("{\"opaque\":-2147483648,\"code\":1}"), 0);
    ck_assert_int_eq(command.opaque, INT32_MIN);
    ck_assert_int_eq(decode_text("{\"opaque\":null,\"code\":2147483647}"), 0);
    ck_assert(!command.has_opaque);
    ck_assert_int_eq(command.code, INT32_MAX);
    /* Equal keys at the top. */
    ck_assert_int_eq(decode_text("{\"code\":1,\"code\":2,\"extFields\":{\"a\":\"1\"},\"extFields\":{\"b\":\"2\"}}"), 0);
    ck_assert_int_eq(command.code, 2);
    ck_assert_ptr_null(remoting_ext(&command, "a").data);
    ck_assert_slice_eq(remoting_ext(&command, "b"), "2");
    /* Single quotes, bare keys, trailing commas, comments. */
    ck_assert_int_eq(decode_text("/* c */{code:105,'extFields':{'to\"pic':'a\\'b',bare:1,},//x\n\"flag\":2,}"), 0);
    ck_assert_int_eq(command.code, 105);
    ck_assert_int_eq(command.flag, 2);
    ck_assert(remoting_is_oneway(&command));
    ck_assert_slice_eq(remoting_ext(&command, "to\"pic"), "a'b");
    ck_assert_slice_eq(remoting_ext(&command, "bare"), "1");
    ck_assert_int_eq(decode_text("{}"), 0);
    ck_assert_int_eq(command.code, 0);
    ck_assert_int_eq(decode_text("{\"extFields\":{}}"), 0);
    ck_assert_int_eq(decode_text("{\"remark\":\"\"}"), 0);
    ck_assert_ptr_nonnull(command.remark.data);
    ck_assert_uint_eq(command.remark.size, 0);
}
END_TEST

/* Z4: what is not known counts as OTHER. */
START_TEST(test_language)
{
    static const struct {
        const char *text;
        int language; /* -1: refused */
    } rows[] = {
        {"\"JAVA\"", 0}, {"\"CPP\"", 1}, {"\"GO\"", 9}, {"\"RUST\"", 12}, {"\"NODE_JS\"", 13}, {"\"COBOL\"", 7}, {"\"\"", 0},
        {"null", 0}, {"9", 9}, {"13", 13}, {"14", 7}, {"-1", 7}, {"{}", -1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char header[64];
        snprintf(header, sizeof header, "{\"language\":%s}", rows[i].text);
        int rv = decode_text(header);
        ck_assert_msg(rv == (rows[i].language < 0 ? ERROR_MALFORMED : 0), "%s: %d", header, rv);
        if (rv == 0)
            ck_assert_int_eq(command.language, rows[i].language);
    }
}
END_TEST

START_TEST(test_malformed_json)
{
    static const char *const bad[] = {
        "null",             " null ",          "[]",              "1",                  "\"x\"",           "{",
        "}",                "{\"code\"",       "{\"code\":",      "{\"code\":1",        "{\"code\":1,",    "{\"code\":1}}",
        "{\"code\":1}x",    "{\"code\":1}{}",  "{\"code\" 1}",    "{\"code\":1 \"flag\":2}", "{code}",     "{:1}",
        "{,}",              "{\"code\":1,,}",  "{\"code\":abc}",  "{\"code\":\"abc\"}", "{\"code\":1.5}",  "{\"code\":true}",
        "{\"code\":2147483648}", "{\"code\":99999999999}", "{\"code\":{}}", "{\"code\":[}", "{\"a\":[1}}", "{\"a\":{]}",
        "{\"a\":tru}",      "{\"a\":}",        "{\"a\":'x}",      "{\"extFields\":[]}", "{\"extFields\":1}", "{\"extFields\":\"\"}",
        "{\"extFields\":{\"a\"}}", "{\"extFields\":{\"a\":1", "{\"extFields\":{\"a\":b}}", "{\"extFields\":{\"a\":\"b\"\"c\":\"d\"}}",
        "{\"extFields\":{\"a\":\"b}", "{\"remark\":\"abc", "{\"remark\":\"abcdefgh", "/", "/*", "/*/", "{/}", "{\"a\":-}x", "",
        "GET / HTTP/1.1\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_msg(decode_text(bad[i]) == ERROR_MALFORMED, "%s", bad[i]);
    struct buffer deep;
    buffer_init(&deep, 0);
    buffer_append_text(&deep, "{\"a\":");
    for (int i = 0; i < 100000; i++)
        buffer_append_u8(&deep, '[');
    ck_assert_int_eq(decode_header(REMOTING_JSON, buffer_slice(&deep), ""), ERROR_MALFORMED);
    buffer_close(&deep);
}
END_TEST

/* Every prefix of a good header is refused, whatever the body behind it says. */
START_TEST(test_cut_short)
{
    static const char header[] = "{\"code\":310,\"extFields\":{\"a\":\"g\\u0001\",\"n\":1,\"x\":null,\"y\":{\"z\":[1]}},\"flag\":0,\"language\":\"JAVA\","
                                 "\"opaque\":7,\"remark\":\"r\",\"version\":409}";
    for (size_t size = 1; size < sizeof header - 1; size++)
        ck_assert_int_eq(decode_header(REMOTING_JSON, slice_of(header, size), header + size), ERROR_MALFORMED);
    ck_assert_int_eq(decode_header(REMOTING_JSON, slice_of(header, sizeof header - 1), ""), 0);
    struct slice binary = hex_bytes("0069 00 0199 00000007 00000000 00000002 6162 0000000f 0005 746f706963 00000004 56656354");
    for (size_t size = 1; size < binary.size; size++)
        ck_assert_int_eq(decode_header(REMOTING_BINARY, slice_of(binary.data, size), "0123456789abcdef0123456789abcdef"), ERROR_MALFORMED);
    ck_assert_int_eq(decode_header(REMOTING_BINARY, binary, ""), 0);
    hex_free(binary);
}
END_TEST

START_TEST(test_malformed_frames)
{
    static const char *const bad[] = {
        "",
        "00000004",
        "00000004 00000000",               /* empty header */
        "00000006 00000003 7b7d",          /* header longer than the frame */
        "00000006 02000002 7b7d",          /* unknown serialize type */
        "00000006 ff000002 7b7d",
        "00000007 00000002 7b7d",          /* length says more than there is */
        "00000005 00000002 7b7d",          /* and less */
        "00000028 01000024 0069 00 0199 00000007 00000000 00000001 0000000f 0005 746f706963 00000004 56656354", /* remark eats the ext length */
        "00000028 01000024 0069 00 0199 00000007 00000000 ffffffff 0000000f 0005 746f706963 00000004 56656354",
        "00000028 01000024 0069 00 0199 00000007 00000000 00000000 0000000e 0005 746f706963 00000004 56656354",
        "00000028 01000024 0069 00 0199 00000007 00000000 00000000 00000010 0005 746f706963 00000004 56656354",
        "00000028 01000024 0069 00 0199 00000007 00000000 00000000 ffffffff 0005 746f706963 00000004 56656354",
        "00000028 01000024 0069 00 0199 00000007 00000000 00000000 0000000f ffff 746f706963 00000004 56656354",
        "00000028 01000024 0069 00 0199 00000007 00000000 00000000 0000000f 0005 746f706963 00000005 56656354",
        "00000028 01000024 0069 00 0199 00000007 00000000 00000000 0000000f 0005 746f706963 fffffffb 56656354",
        "00000028 01000024 0069 00 0199 00000007 00000000 00000000 0000000f 0005 746f706963 00000003 56656354",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_msg(decode_hex(bad[i]) == ERROR_MALFORMED, "%s", bad[i]);
}
END_TEST

START_TEST(test_binary_forms)
{
    /* Empty value: absent, as null in Java; a key twice: the later one. Negative version, unknown language. */
    ck_assert_int_eq(decode_hex("0000002b 01000027 ffff 63 ffff ffffffff 00000002 00000000 00000012 0001 61 00000000 0001 62 00000001 31 0001"), ERROR_MALFORMED);
    ck_assert_int_eq(decode_hex("00000030 0100002c ffff 63 ffff ffffffff 00000002 00000000 00000017 0001 61 00000000 0001 62 00000001 31"
                                "0001 62 00000001 32"), 0);
    ck_assert_int_eq(command.code, -1);
    ck_assert_uint_eq(command.language, 0x63);
    ck_assert_int_eq(command.version, -1);
    ck_assert_int_eq(command.opaque, -1);
    ck_assert(remoting_is_oneway(&command));
    ck_assert_ptr_null(remoting_ext(&command, "a").data);
    ck_assert_slice_eq(remoting_ext(&command, "b"), "2");
}
END_TEST

START_TEST(test_too_many_ext_fields)
{
    for (uint32_t count = REMOTING_EXT_FIELDS_MAX; count <= REMOTING_EXT_FIELDS_MAX + 1; count++) {
        for (uint8_t type = REMOTING_JSON; type <= REMOTING_BINARY; type++) {
            struct buffer buffer;
            struct remoting_writer writer;
            buffer_init(&buffer, 0);
            remoting_writer_begin_request(&writer, &buffer, type, 10, 1, 0);
            for (uint32_t i = 0; i < count; i++) {
                char name[16];
                snprintf(name, sizeof name, "key%u", i);
                remoting_writer_ext_i64(&writer, name, i);
            }
            remoting_writer_end(&writer, 0);
            int rv = decode(buffer_slice(&buffer));
            ck_assert_int_eq(rv, count <= REMOTING_EXT_FIELDS_MAX ? 0 : ERROR_TOO_LARGE);
            if (rv == 0)
                ck_assert_slice_eq(remoting_ext(&command, "key95"), "95");
            buffer_close(&buffer);
        }
    }
}
END_TEST

START_TEST(test_frame_size)
{
    uint8_t bytes[4];
    ck_assert_int_eq(remoting_frame_size(slice_of(bytes, 0)), 0);
    ck_assert_int_eq(remoting_frame_size(slice_of("\0\0\0", 3)), 0);
    static const struct {
        uint32_t length;
        int64_t size;
    } rows[] = {
        {0, -1}, {3, -1}, {4, 8}, {130, 134}, {REMOTING_FRAME_MAX - 4, REMOTING_FRAME_MAX}, {REMOTING_FRAME_MAX - 3, -1}, {0x7FFFFFFF, -1},
        {0x80000000u, -1}, {0xFFFFFFFFu, -1}, {0x47455420, -1}, /* "GET " */
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        store_u32(bytes, rows[i].length);
        ck_assert_int_eq(remoting_frame_size(slice_of(bytes, 4)), rows[i].size);
    }
}
END_TEST

static struct buffer out;
static struct remoting_writer writer;

static struct slice written_header(void)
{
    return slice_of(out.data + 8, load_u32(out.data + 4) & 0xFFFFFF);
}

START_TEST(test_write_captured)
{
    struct slice expected = hex_bytes(VEC_JSON);
    buffer_init(&out, 0);
    remoting_writer_begin_request(&writer, &out, REMOTING_JSON, 105, 7, 0);
    remoting_writer_ext_text(&writer, "topic", "VecT");
    remoting_writer_end(&writer, 0);
    ck_assert(slice_equal(buffer_slice(&out), expected));
    hex_free(expected);
    expected = hex_bytes(VEC_BINARY);
    buffer_clear(&out);
    remoting_writer_begin_request(&writer, &out, REMOTING_BINARY, 105, 7, 0);
    remoting_writer_ext_text(&writer, "topic", "VecT");
    remoting_writer_end(&writer, 0);
    ck_assert(slice_equal(buffer_slice(&out), expected));
    hex_free(expected);
    /* 10.1 and 10.3, answers */
    buffer_clear(&out);
    remoting_writer_begin_response(&writer, &out, REMOTING_JSON, 17, 7, "No topic route info in name server for the topic: VecT\nSee "
                                   "http://rocketmq.apache.org/docs/faq/ for further details.");
    remoting_writer_end(&writer, 0);
    ck_assert_slice_eq(written_header(), "{\"code\":17,\"flag\":1,\"language\":\"JAVA\",\"opaque\":7,\"remark\":\"No topic route info in name server "
                       "for the topic: VecT\\nSee http://rocketmq.apache.org/docs/faq/ for further details.\",\"serializeTypeCurrentRPC\":\"JSON\","
                       "\"version\":409}");
    buffer_clear(&out);
    remoting_writer_begin_response(&writer, &out, REMOTING_JSON, 0, 3, NULL);
    remoting_writer_ext_i64(&writer, "queueId", 0);
    remoting_writer_ext_bool(&writer, "TRACE_ON", true);
    remoting_writer_ext_text(&writer, "MSG_REGION", "DefaultRegion");
    remoting_writer_ext_text(&writer, "transactionId", NULL);
    remoting_writer_ext(&writer, "msgId", SLICE_LITERAL("7F00000100002A9F0000000000003302"));
    remoting_writer_ext_i64(&writer, "queueOffset", 0);
    remoting_writer_end(&writer, 0);
    ck_assert_slice_eq(written_header(), "{\"code\":0,\"extFields\":{\"queueId\":\"0\",\"TRACE_ON\":\"true\",\"MSG_REGION\":\"DefaultRegion\",\"msgId\":"
                       "\"7F00000100002A9F0000000000003302\",\"queueOffset\":\"0\"},\"flag\":1,\"language\":\"JAVA\",\"opaque\":3,"
                       "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":409}");
    buffer_close(&out);
}
END_TEST

START_TEST(test_write_two_frames_with_bodies)
{
    for (uint8_t type = REMOTING_JSON; type <= REMOTING_BINARY; type++) {
        buffer_init(&out, 0);
        remoting_writer_begin_response(&writer, &out, type, 22, -9, "can not find message, \"maybe\" \002 中文 time range not correct");
        remoting_writer_ext_i64(&writer, "indexLastUpdateTimestamp", INT64_MIN);
        remoting_writer_end(&writer, 0);
        size_t first = out.size;
        remoting_writer_begin_response(&writer, &out, type, 0, INT32_MAX, "FOUND");
        remoting_writer_ext_bool(&writer, "x", false);
        remoting_writer_body(&writer);
        buffer_append_text(&out, "in frame|");
        remoting_writer_end(&writer, 7);
        ck_assert_int_eq(remoting_frame_size(buffer_slice(&out)), (int64_t)first);
        ck_assert_int_eq(remoting_frame_size(slice_of(out.data + first, out.size - first)), (int64_t)(out.size - first + 7));
        buffer_append_text(&out, "outside");
        ck_assert_int_eq(decode(slice_of(out.data, first)), 0);
        ck_assert_int_eq(command.code, 22);
        ck_assert_int_eq(command.opaque, -9);
        ck_assert_int_eq(command.flag, REMOTING_FLAG_RESPONSE);
        ck_assert_int_eq(command.version, REMOTING_VERSION);
        ck_assert_slice_eq(command.remark, "can not find message, \"maybe\" \002 中文 time range not correct");
        ck_assert_slice_eq(remoting_ext(&command, "indexLastUpdateTimestamp"), "-9223372036854775808");
        ck_assert_int_eq(decode(slice_of(out.data + first, out.size - first)), 0);
        ck_assert_slice_eq(command.body, "in frame|outside");
        ck_assert_slice_eq(remoting_ext(&command, "x"), "false");
        ck_assert_int_eq(command.opaque, INT32_MAX);
        buffer_close(&out);
    }
}
END_TEST

/* Any bytes as ext value come back as they were, at every length around the steps of eight. */
START_TEST(test_write_any_bytes)
{
    uint8_t value[40];
    for (unsigned seed = 0; seed < 4000; seed++) {
        size_t size = 1 + seed % (sizeof value - 1);
        for (size_t i = 0; i < size; i++)
            value[i] = seed % 3 == 0 ? (uint8_t)((seed * 2654435761u + i * 40503u) >> 9) : (uint8_t)('a' + i % 26);
        if (seed % 3 == 1)
            value[seed / 3 % size] = (uint8_t)(seed / 5);
        for (uint8_t type = REMOTING_JSON; type <= REMOTING_BINARY; type++) {
            buffer_init(&out, 0);
            remoting_writer_begin_request(&writer, &out, type, 310, 1, 2);
            remoting_writer_ext(&writer, "i", slice_of(value, size));
            remoting_writer_ext_text(&writer, "b", "t");
            remoting_writer_end(&writer, 0);
            ck_assert_int_eq(decode(buffer_slice(&out)), 0);
            ck_assert(slice_equal(remoting_ext(&command, "i"), slice_of(value, size)));
            ck_assert_slice_eq(remoting_ext(&command, "b"), "t");
            buffer_close(&out);
        }
    }
}
END_TEST

/* Whatever runs out where, only whole frames stay in the buffer. */
START_TEST(test_write_limits)
{
    for (uint8_t type = REMOTING_JSON; type <= REMOTING_BINARY; type++) {
        for (size_t limit = 300; limit < 900; limit++) {
            size_t size = 0;
            buffer_init(&out, limit);
            while (!out.failed) {
                size = out.size;
                remoting_writer_begin_response(&writer, &out, type, 0, 3, "remark \001");
                remoting_writer_ext_text(&writer, "plain", "some value that is plain");
                remoting_writer_ext_text(&writer, "other", "\001\002");
                remoting_writer_body(&writer);
                buffer_append_text(&out, "body");
                remoting_writer_end(&writer, 0);
            }
            ck_assert_uint_eq(out.size, size);
            buffer_close(&out);
        }
        buffer_init(&out, 0);
        remoting_writer_begin_response(&writer, &out, type, 0, 3, NULL);
        remoting_writer_end(&writer, REMOTING_FRAME_MAX - 20);
        ck_assert(out.failed);
        ck_assert_uint_eq(out.size, 0);
        buffer_clear(&out);
        remoting_writer_begin_response(&writer, &out, type, 0, 3, NULL);
        remoting_writer_body(&writer);
        size_t head = out.size;
        remoting_writer_end(&writer, REMOTING_FRAME_MAX - head);
        ck_assert(!out.failed);
        ck_assert_int_eq(remoting_frame_size(buffer_slice(&out)), REMOTING_FRAME_MAX);
        buffer_close(&out);
    }
}
END_TEST

START_TEST(test_binary_code_is_cut)
{
    buffer_init(&out, 0);
    remoting_writer_begin_request(&writer, &out, REMOTING_BINARY, 200050, 1, 0);
    remoting_writer_end(&writer, 0);
    ck_assert_int_eq(decode(buffer_slice(&out)), 0);
    ck_assert_int_eq(command.code, 3442);
    buffer_close(&out);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("remoting_command");
    TCase *tcase = tcase_create("remoting_command");
    tcase_add_checked_fixture(tcase, NULL, tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, test_captured_json);
    tcase_add_test(tcase, test_captured_binary);
    tcase_add_test(tcase, test_captured_answers);
    tcase_add_test(tcase, test_body);
    tcase_add_test(tcase, test_escapes);
    tcase_add_test(tcase, test_every_escape_of_a_unit);
    tcase_add_test(tcase, test_lenient_forms);
    tcase_add_test(tcase, test_language);
    tcase_add_test(tcase, test_malformed_json);
    tcase_add_test(tcase, test_cut_short);
    tcase_add_test(tcase, test_malformed_frames);
    tcase_add_test(tcase, test_binary_forms);
    tcase_add_test(tcase, test_too_many_ext_fields);
    tcase_add_test(tcase, test_frame_size);
    tcase_add_test(tcase, test_write_captured);
    tcase_add_test(tcase, test_write_two_frames_with_bodies);
    tcase_add_test(tcase, test_write_any_bytes);
    tcase_add_test(tcase, test_write_limits);
    tcase_add_test(tcase, test_binary_code_is_cut);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
