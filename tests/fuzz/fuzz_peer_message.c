/* A header and what stands behind it, as a hello with a sum that fits: what is read, written again, reads the same. */
#include "dledger/peer_message.h"

#include "proto/ledger_entry.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct peer_message message, again;
    struct peer_hello hello, back;
    struct buffer body;
    uint8_t header[PEER_HEADER_SIZE];

    if (size < PEER_HEADER_SIZE)
        return 0;
    memcpy(header, data, sizeof header);
    store_u32(header + 12, 0);
    store_u32(header + 12, crc32c(0, header, sizeof header));
    if (peer_message_decode(&message, header) == 0) {
        CHECK(message.type < PEER_MESSAGE_TYPES && message.body_size <= PEER_BODY_MAX);
        peer_message_encode(&message, header);
        CHECK(peer_message_decode(&again, header) == 0 && again.type == message.type && again.body_size == message.body_size);
    }
    message.count = 0;
    if (peer_hello_decode(&hello, &message, slice_of(data + PEER_HEADER_SIZE, size - PEER_HEADER_SIZE)) != 0)
        return 0;
    CHECK(hello.configuration_size <= sizeof hello.configuration);
    CHECK(memchr(hello.self_id, '\0', sizeof hello.self_id) != NULL && memchr(hello.cluster, '\0', sizeof hello.cluster) != NULL);
    buffer_init(&body, 0);
    peer_hello_encode(&hello, &message, &body);
    CHECK(!body.failed && message.count != 0 && peer_hello_decode(&back, &message, buffer_slice(&body)) == 0);
    CHECK(back.term == hello.term && back.run == hello.run && back.mute == hello.mute && strcmp(back.self_id, hello.self_id) == 0);
    CHECK(back.configuration_size == hello.configuration_size && memcmp(back.configuration, hello.configuration, hello.configuration_size) == 0);
    buffer_close(&body);
    return 0;
}
