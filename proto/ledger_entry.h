/* The 48-byte header of a DLedger entry, the filler at a file's end, and their checksums.
 *
 * Follows io.openmessaging.storage.dledger.entry.DLedgerEntryCoder, with the three fields that Java leaves 0 in use:
 *
 *     0 magic 1 | 4 size = 48 + body | 8 index | 16 term | 24 position | 32 channel | 36 chainCrc | 40 bodyCrc | 44 body size | 48 body
 *
 * channel: bits 0-7 kind, bits 8-31 "index minus the leader's commit index at append", saturated. chainCrc: CRC32C over the previous
 * entry's chainCrc (big-endian) and bytes 0-35, 40-47 of this header. bodyCrc: CRC32C of the body.
 * `index` is the DLedger index, 0-based = Raft index - 1.
 *
 * To change this: bump LEDGER_ENTRY_MAGIC, keep a reader of the old form, add a golden file to tests/golden.
 */
#ifndef LEDGERMQ_PROTO_LEDGER_ENTRY_H
#define LEDGERMQ_PROTO_LEDGER_ENTRY_H

#include "proto/buffer.h"

#define LEDGER_ENTRY_HEADER_SIZE 48u
#define LEDGER_ENTRY_MAGIC 1u
#define LEDGER_BLANK_MAGIC 0xFFFFFFFFu
#define LEDGER_BLANK_SIZE 8u
/* A message body of 4 MiB must fit whatever its topic and properties are (spec: ours accepts what Java refuses). */
#define LEDGER_ENTRY_SIZE_MAX (4u * 1024 * 1024 + 64 * 1024 + LEDGER_ENTRY_HEADER_SIZE)

enum ledger_entry_kind {
    LEDGER_ENTRY_MESSAGE = 0,       /* body: message record, maybe followed by a `consumed` trailer (metadata.proto) */
    LEDGER_ENTRY_METADATA = 1,      /* body: metadata_record (metadata.proto) */
    LEDGER_ENTRY_BARRIER = 2,       /* body: 8 zero bytes, made by Raft on election */
    LEDGER_ENTRY_CONFIGURATION = 3, /* body: encoded Raft configuration */
    LEDGER_ENTRY_RAW = 4,           /* body: opaque, appended by DLedger's own client */
    LEDGER_ENTRY_TRIM = 5,          /* body: where the log begins from now on (dledger/replica_trim.c) */
    LEDGER_ENTRY_KINDS
};

struct ledger_entry {
    uint64_t index; /* DLedger index: Raft index - 1 */
    uint64_t term;
    uint64_t position; /* of the header's first byte, absolute */
    uint8_t kind;      /* enum ledger_entry_kind */
    uint32_t uncommitted; /* index minus commit index at append, saturated at LEDGER_UNCOMMITTED_MAX (24 bits) */
    uint32_t chain_crc;
    uint32_t body_crc;
    uint32_t body_size;
};
#define LEDGER_UNCOMMITTED_MAX 0xFFFFFFu

/* Writes the header in front of a body that already stands at header + 48: computes body_crc and chain_crc (also into
 * entry) and writes all 48 bytes. entry: index, term, position, kind, uncommitted, body_size in. Returns chain_crc. */
uint32_t ledger_entry_seal(struct ledger_entry *entry, uint8_t *header, uint32_t previous_chain_crc);
/* Reads a header. 0; ERROR_MALFORMED when magic, sizes (size = 48 + body, at most LEDGER_ENTRY_SIZE_MAX) or kind are wrong. No CRC. */
int ledger_entry_decode(struct ledger_entry *entry, const uint8_t header[LEDGER_ENTRY_HEADER_SIZE]);
/* chain_crc of a header as it should be. */
uint32_t ledger_entry_chain(const uint8_t header[LEDGER_ENTRY_HEADER_SIZE], uint32_t previous_chain_crc);
bool ledger_entry_body_ok(const struct ledger_entry *entry, const uint8_t *body);
static inline uint32_t ledger_entry_size(const struct ledger_entry *entry)
{
    return LEDGER_ENTRY_HEADER_SIZE + entry->body_size;
}

/* Filler: magic -1, bytes left in the file including these 8, zeros behind. */
void ledger_blank_encode(uint8_t out[LEDGER_BLANK_SIZE], uint32_t left);
static inline bool ledger_is_blank(const uint8_t *bytes)
{
    return load_u32(bytes) == LEDGER_BLANK_MAGIC;
}

uint32_t crc32c(uint32_t seed, const void *data, size_t size);

#endif
