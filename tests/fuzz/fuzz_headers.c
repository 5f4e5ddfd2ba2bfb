/* Typed headers: bytes 0-1 choose the header, the rest is a frame's header. What is taken is written and taken again;
 * an error names a field. */
#include "proto/headers.h"

#include "tests/fuzz/fuzz.h"

typedef int (*decoder)(const struct remoting_command *command, void *header, struct error *error);
typedef void (*encoder)(const void *header, struct remoting_writer *writer);

#define X(name, FIELDS)                                                                                      \
    static int name##_from(const struct remoting_command *command, void *header, struct error *error)        \
    {                                                                                                        \
        return name##_decode(command, header, error);                                                        \
    }                                                                                                        \
    static void name##_to(const void *header, struct remoting_writer *writer)                                \
    {                                                                                                        \
        name##_encode(header, writer);                                                                       \
    }
HEADERS(X)
HOT_HEADERS(X)
#undef X

static void send_v2_to(const void *header, struct remoting_writer *writer)
{
    send_message_request_header_encode_v2(header, writer);
}

static const struct {
    decoder decode;
    encoder encode;
    size_t size;
    int32_t code; /* 0: leave it */
} rows[] = {
#define X(name, FIELDS) {name##_from, name##_to, sizeof(struct name), 0},
    HEADERS(X)
#undef X
    {pull_message_request_header_from, pull_message_request_header_to, sizeof(struct pull_message_request_header), 11},
    {send_message_request_header_from, send_message_request_header_to, sizeof(struct send_message_request_header), 10},
    {send_message_request_header_from, send_v2_to, sizeof(struct send_message_request_header), 310},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct remoting_command command;
    union {
        max_align_t align;
        uint8_t bytes[512];
    } header, back;
    struct remoting_writer writer;
    struct buffer first;
    struct buffer second;
    struct error error;
    size_t frame_size;

    if (size < 2)
        return 0;
    size_t row = data[0] % (sizeof rows / sizeof rows[0]);
    CHECK(rows[row].size <= sizeof header);
    uint8_t *frame = frame_around(data + 1, size - 1, &frame_size);
    buffer_init(&first, 0);
    buffer_init(&second, 0);
    if (remoting_command_decode(frame, frame_size, &command) != 0)
        goto out;
    if (rows[row].code != 0)
        command.code = rows[row].code;
    int rv = rows[row].decode(&command, &header, &error);
    if (rv != 0) {
        CHECK((rv == ERROR_MISSING || rv == ERROR_INVALID) && rv == error.code);
        CHECK(memcmp(error.message, "field ", 6) == 0);
        goto out;
    }
    remoting_writer_begin_request(&writer, &first, REMOTING_JSON, command.code, 1, 0);
    rows[row].encode(&header, &writer);
    remoting_writer_end(&writer, 0);
    uint8_t *copy = malloc(first.size);
    CHECK(copy != NULL && !first.failed);
    memcpy(copy, first.data, first.size);
    CHECK(remoting_command_decode(copy, first.size, &command) == 0);
    CHECK(rows[row].decode(&command, &back, &error) == 0);
    remoting_writer_begin_request(&writer, &second, REMOTING_JSON, command.code, 1, 0);
    rows[row].encode(&back, &writer);
    remoting_writer_end(&writer, 0);
    CHECK(slice_equal(buffer_slice(&first), buffer_slice(&second)));
    free(copy);
out:
    buffer_close(&first);
    buffer_close(&second);
    free(frame);
    return 0;
}
