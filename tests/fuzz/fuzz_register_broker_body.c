/* Registrations: the first byte says whether the rest is compressed, or what would be compressed (so that the fuzzer
 * need not find zlib's checksum). */
#include "proto/register_broker_body.h"

#include <zlib.h>

#include "tests/fuzz/fuzz.h"

static void decode_compressed(struct slice plain)
{
    struct register_broker_body body;
    uLongf size = compressBound(plain.size);
    uint8_t *packed = malloc(size);
    if (packed != NULL && compress2(packed, &size, plain.data, plain.size, Z_BEST_SPEED) == Z_OK &&
        register_broker_body_decode(&body, slice_of(packed, size), true, NULL) == 0)
        register_broker_body_close(&body);
    free(packed);
}

static void decode_plain(struct slice text)
{
    struct register_broker_body body;
    struct buffer first;
    struct buffer second;

    if (register_broker_body_decode(&body, text, false, NULL) != 0)
        return;
    buffer_init(&first, 0);
    buffer_init(&second, 0);
    register_broker_body_encode(&body, false, &first);
    register_broker_body_close(&body);
    CHECK(register_broker_body_decode(&body, buffer_slice(&first), false, NULL) == 0);
    register_broker_body_encode(&body, false, &second);
    CHECK(slice_equal(buffer_slice(&first), buffer_slice(&second)));
    buffer_clear(&second);
    register_broker_body_encode(&body, true, &second);
    register_broker_body_close(&body);
    CHECK(!second.failed);
    /* Names with blanks do not survive the compressed form, so the answer may be an error. */
    if (register_broker_body_decode(&body, buffer_slice(&second), true, NULL) == 0)
        register_broker_body_close(&body);
    buffer_close(&first);
    buffer_close(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct register_broker_body body;

    if (size == 0)
        return 0;
    struct slice rest = slice_of(data + 1, size - 1);
    if (data[0] == 'z') {
        if (register_broker_body_decode(&body, rest, true, NULL) == 0)
            register_broker_body_close(&body);
    } else if (data[0] == 'p') {
        decode_compressed(rest);
    } else {
        decode_plain(rest);
    }
    return 0;
}
