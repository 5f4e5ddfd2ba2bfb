/* What nodes pack for each other: the first byte chooses metadata record, snapshot, consumed trailer or peer hello;
 * what unpacks packs again. */
#include "proto/metadata.pb-c.h"
#include "proto/peer.pb-c.h"

#include "tests/fuzz/fuzz.h"

static const ProtobufCMessageDescriptor *const kinds[] = {
    &ledgermq__metadata_record__descriptor,
    &ledgermq__metadata_snapshot__descriptor,
    &ledgermq__consumed__descriptor,
    &ledgermq__peer_hello__descriptor,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const ProtobufCMessageDescriptor *kind = kinds[data[0] % (sizeof kinds / sizeof kinds[0])];
    ProtobufCMessage *message = protobuf_c_message_unpack(kind, NULL, size - 1, data + 1);
    if (message == NULL)
        return 0;
    if (protobuf_c_message_check(message)) {
        size_t packed_size = protobuf_c_message_get_packed_size(message);
        uint8_t *packed = malloc(packed_size + 1);
        CHECK(packed != NULL);
        CHECK(protobuf_c_message_pack(message, packed) == packed_size);
        /* May be refused: the library keeps unknown fields, and takes number 0 in two bytes but not as it packs it,
         * in one. */
        ProtobufCMessage *again = protobuf_c_message_unpack(kind, NULL, packed_size, packed);
        if (again != NULL) {
            CHECK(protobuf_c_message_get_packed_size(again) == packed_size);
            protobuf_c_message_free_unpacked(again, NULL);
        }
        free(packed);
    }
    protobuf_c_message_free_unpacked(message, NULL);
    return 0;
}
