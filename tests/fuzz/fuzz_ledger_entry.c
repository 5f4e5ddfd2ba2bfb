/* Entry headers: what decodes has lengths that hold, and sealing it again gives the same bytes but for the checksums,
 * which then fit. */
#include "proto/ledger_entry.h"

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ledger_entry entry;
    struct ledger_entry again;

    if (size < LEDGER_ENTRY_HEADER_SIZE)
        return 0;
    if (ledger_entry_decode(&entry, data) != 0)
        return 0;
    CHECK(!ledger_is_blank(data));
    CHECK(ledger_entry_size(&entry) <= LEDGER_ENTRY_SIZE_MAX && ledger_entry_size(&entry) == load_u32(data + 4));
    CHECK(entry.kind < LEDGER_ENTRY_KINDS && entry.uncommitted <= LEDGER_UNCOMMITTED_MAX);
    (void)ledger_entry_chain(data, 7);
    /* The caller's duty: the body is there before its checksum is asked for. */
    if (ledger_entry_size(&entry) > size)
        return 0;
    bool fits = ledger_entry_body_ok(&entry, data + LEDGER_ENTRY_HEADER_SIZE);
    uint8_t *copy = malloc(ledger_entry_size(&entry));
    CHECK(copy != NULL);
    memcpy(copy, data, ledger_entry_size(&entry));
    uint32_t chain = ledger_entry_seal(&entry, copy, 7);
    CHECK(memcmp(copy, data, 36) == 0 && memcmp(copy + 44, data + 44, ledger_entry_size(&entry) - 44) == 0);
    CHECK(fits == (memcmp(copy + 40, data + 40, 4) == 0));
    CHECK(ledger_entry_decode(&again, copy) == 0);
    CHECK(again.index == entry.index && again.term == entry.term && again.position == entry.position);
    CHECK(again.kind == entry.kind && again.uncommitted == entry.uncommitted && again.body_size == entry.body_size);
    CHECK(again.chain_crc == chain && ledger_entry_chain(copy, 7) == chain);
    CHECK(ledger_entry_body_ok(&again, copy + LEDGER_ENTRY_HEADER_SIZE));
    free(copy);
    return 0;
}
