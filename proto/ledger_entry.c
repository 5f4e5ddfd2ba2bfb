#include "proto/ledger_entry.h"

#include <isa-l/crc.h>

#include "proto/error.h"

#if defined(__x86_64__)
#include <nmmintrin.h>

/* Headers and small bodies: ISA-L, made for long runs, takes twice as long below this. */
#define SHORT_SIZE 256u

__attribute__((target("sse4.2"))) static uint32_t crc32c_short(uint32_t crc, const uint8_t *bytes, size_t size)
{
    uint64_t state = crc, eight;
    for (; size >= sizeof eight; bytes += sizeof eight, size -= sizeof eight) {
        memcpy(&eight, bytes, sizeof eight);
        state = _mm_crc32_u64(state, eight);
    }
    crc = (uint32_t)state;
    for (; size > 0; bytes++, size--)
        crc = _mm_crc32_u8(crc, *bytes);
    return crc;
}
#endif

uint32_t crc32c(uint32_t seed, const void *data, size_t size)
{
#if defined(__x86_64__)
    if (size < SHORT_SIZE && __builtin_cpu_supports("sse4.2"))
        return ~crc32c_short(~seed, data, size);
#endif
    /* ISA-L takes a plain pointer but does not write through it. */
    return ~crc32_iscsi((unsigned char *)(uintptr_t)data, (int)size, ~seed);
}

uint32_t ledger_entry_chain(const uint8_t header[LEDGER_ENTRY_HEADER_SIZE], uint32_t previous_chain_crc)
{
    uint8_t bytes[4 + 36 + 8];
    store_u32(bytes, previous_chain_crc);
    memcpy(bytes + 4, header, 36);
    memcpy(bytes + 40, header + 40, 8);
    return crc32c(0, bytes, sizeof bytes);
}

uint32_t ledger_entry_seal(struct ledger_entry *entry, uint8_t *header, uint32_t previous_chain_crc)
{
    uint32_t uncommitted = entry->uncommitted < LEDGER_UNCOMMITTED_MAX ? entry->uncommitted : LEDGER_UNCOMMITTED_MAX;
    entry->body_crc = crc32c(0, header + LEDGER_ENTRY_HEADER_SIZE, entry->body_size);
    store_u32(header, LEDGER_ENTRY_MAGIC);
    store_u32(header + 4, ledger_entry_size(entry));
    store_u64(header + 8, entry->index);
    store_u64(header + 16, entry->term);
    store_u64(header + 24, entry->position);
    store_u32(header + 32, uncommitted << 8 | entry->kind);
    store_u32(header + 40, entry->body_crc);
    store_u32(header + 44, entry->body_size);
    entry->chain_crc = ledger_entry_chain(header, previous_chain_crc);
    store_u32(header + 36, entry->chain_crc);
    return entry->chain_crc;
}

int ledger_entry_decode(struct ledger_entry *entry, const uint8_t header[LEDGER_ENTRY_HEADER_SIZE])
{
    uint32_t size = load_u32(header + 4);
    uint32_t channel = load_u32(header + 32);

    entry->index = load_u64(header + 8);
    entry->term = load_u64(header + 16);
    entry->position = load_u64(header + 24);
    entry->kind = (uint8_t)channel;
    entry->uncommitted = channel >> 8;
    entry->chain_crc = load_u32(header + 36);
    entry->body_crc = load_u32(header + 40);
    entry->body_size = load_u32(header + 44);
    if (load_u32(header) != LEDGER_ENTRY_MAGIC || size > LEDGER_ENTRY_SIZE_MAX || size < LEDGER_ENTRY_HEADER_SIZE ||
        entry->body_size != size - LEDGER_ENTRY_HEADER_SIZE || entry->kind >= LEDGER_ENTRY_KINDS)
        return ERROR_MALFORMED;
    return 0;
}

bool ledger_entry_body_ok(const struct ledger_entry *entry, const uint8_t *body)
{
    return crc32c(0, body, entry->body_size) == entry->body_crc;
}

void ledger_blank_encode(uint8_t out[LEDGER_BLANK_SIZE], uint32_t left)
{
    store_u32(out, LEDGER_BLANK_MAGIC);
    store_u32(out + 4, left);
}
