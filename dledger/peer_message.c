#include "dledger/peer_message.h"

#include "dledger/peer_version.h"
#include "proto/ledger_entry.h"
#include "proto/peer.pb-c.h"

void peer_message_encode(const struct peer_message *message, uint8_t header[PEER_HEADER_SIZE])
{
    store_u32(header, message->body_size);
    header[4] = message->type;
    header[5] = message->version == 0 ? PEER_VERSION_OLDEST : message->version;
    store_u16(header + 6, message->flags);
    store_u32(header + 8, message->count);
    store_u32(header + 12, 0);
    for (int i = 0; i < 6; i++)
        store_u64(header + 16 + 8 * i, message->word[i]);
    store_u32(header + 12, crc32c(0, header, PEER_HEADER_SIZE));
}

int peer_message_decode(struct peer_message *message, const uint8_t header[PEER_HEADER_SIZE])
{
    uint8_t copy[PEER_HEADER_SIZE];

    memcpy(copy, header, sizeof copy);
    store_u32(copy + 12, 0);
    if (crc32c(0, copy, sizeof copy) != load_u32(header + 12))
        return ERROR_MALFORMED;
    message->body_size = load_u32(header);
    message->type = header[4];
    message->version = header[5];
    if (header[5] < PEER_VERSION_OLDEST || header[5] > peer_version_newest)
        return ERROR_VERSION;
    if (header[4] == 0 || header[4] >= PEER_MESSAGE_TYPES)
        return ERROR_MALFORMED;
    message->flags = load_u16(header + 6);
    message->count = load_u32(header + 8);
    for (int i = 0; i < 6; i++)
        message->word[i] = load_u64(header + 16 + 8 * i);
    return message->body_size > PEER_BODY_MAX ? ERROR_MALFORMED : 0;
}

static uint32_t hello_sum(struct slice body)
{
    uint32_t sum = crc32c(0, body.data, body.size);
    return sum == 0 ? 1 : sum;
}

void peer_hello_encode(const struct peer_hello *hello, struct peer_message *message, struct buffer *body)
{
    Ledgermq__PeerHello packed = LEDGERMQ__PEER_HELLO__INIT;

    packed.version = hello->version;
    packed.newest_version = hello->newest;
    packed.cluster = (char *)(uintptr_t)hello->cluster;
    packed.group = (char *)(uintptr_t)hello->group;
    packed.from = hello->from;
    packed.to = hello->to;
    packed.incarnation = hello->incarnation;
    packed.run = hello->run;
    packed.segment_size = hello->segment_size;
    packed.term = hello->term;
    packed.last_index = hello->last_index;
    packed.last_term = hello->last_term;
    packed.mute = hello->mute;
    packed.started = hello->started;
    packed.broker_address = (char *)(uintptr_t)hello->broker_address;
    packed.self_id = (char *)(uintptr_t)hello->self_id;
    packed.configuration.data = (uint8_t *)(uintptr_t)hello->configuration;
    packed.configuration.len = hello->configuration_size;
    packed.configuration_index = hello->configuration_index;
    packed.voters = hello->voters;
    size_t size = ledgermq__peer_hello__get_packed_size(&packed);
    uint8_t *to = buffer_reserve(body, size);
    if (to != NULL) {
        ledgermq__peer_hello__pack(&packed, to);
        body->size += size;
    }
    *message = (struct peer_message){.type = PEER_HELLO, .body_size = (uint32_t)body->size, .count = hello_sum(buffer_slice(body))};
}

static bool copy_text(char *to, size_t room, const char *from)
{
    size_t size = strlen(from);
    if (size >= room)
        return false;
    memcpy(to, from, size + 1);
    return true;
}

int peer_hello_decode(struct peer_hello *hello, const struct peer_message *message, struct slice body)
{
    if (message->count != 0 && message->count != hello_sum(body))
        return ERROR_MALFORMED;
    Ledgermq__PeerHello *packed = ledgermq__peer_hello__unpack(NULL, body.size, body.data);
    int rv = 0;

    if (packed == NULL)
        return ERROR_MALFORMED;
    *hello = (struct peer_hello){
        .version = packed->version,
        .newest = packed->newest_version,
        .from = packed->from,
        .to = packed->to,
        .incarnation = packed->incarnation,
        .run = packed->run,
        .segment_size = packed->segment_size,
        .term = packed->term,
        .last_index = packed->last_index,
        .last_term = packed->last_term,
        .mute = packed->mute > PEER_MUTE_DAMAGED ? PEER_MUTE_EMPTY : (uint8_t)packed->mute,
        .started = packed->started,
        .configuration_index = packed->configuration_index,
        .voters = packed->voters,
    };
    if (!copy_text(hello->cluster, sizeof hello->cluster, packed->cluster) ||
        !copy_text(hello->group, sizeof hello->group, packed->group) ||
        !copy_text(hello->broker_address, sizeof hello->broker_address, packed->broker_address) ||
        !copy_text(hello->self_id, sizeof hello->self_id, packed->self_id) || packed->configuration.len > sizeof hello->configuration) {
        rv = ERROR_MALFORMED;
    } else if (packed->configuration.len > 0) {
        hello->configuration_size = (uint32_t)packed->configuration.len;
        memcpy(hello->configuration, packed->configuration.data, packed->configuration.len);
    }
    ledgermq__peer_hello__free_unpacked(packed, NULL);
    return rv;
}
