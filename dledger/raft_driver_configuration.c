/* Configurations of the group: checking, making, finding and feeding them back to the core. */
#include "dledger/raft_driver_internal.h"

#include <string.h>

bool raft_driver_configuration_at(struct raft_driver *driver, raft_index index, struct raft_buffer *buffer)
{
    struct ledger_entry entry;
    const uint8_t *bytes = index == 0 ? NULL : ledger_entry(driver->ledger, index - 1, &entry);
    if (bytes == NULL || entry.kind != LEDGER_ENTRY_CONFIGURATION)
        return false;
    buffer->base = (void *)(uintptr_t)(bytes + LEDGER_ENTRY_HEADER_SIZE);
    buffer->len = entry.body_size;
    return true;
}

bool raft_driver_configuration_valid(struct slice configuration, uint64_t id, unsigned *voters, bool *is_voter)
{
    const uint8_t *at = configuration.data;
    const uint8_t *end = at + configuration.size;
    uint64_t count;

    *voters = 0;
    *is_voter = false;
    if (configuration.size < 9 || configuration.size > CHECKPOINT_CONFIGURATION_MAX || at[0] != 1)
        return false;
    memcpy(&count, at + 1, sizeof count); /* libraft writes little-endian, we run on it only */
    if (count == 0 || count > 64)
        return false;
    at += 9;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t server;
        if (end - at < 10)
            return false;
        memcpy(&server, at, sizeof server);
        at += 8;
        const uint8_t *zero = memchr(at, 0, (size_t)(end - at));
        if (server == 0 || zero == NULL || zero + 1 >= end || zero[1] > RAFT_VOTER)
            return false;
        *voters += zero[1] == RAFT_VOTER;
        if (server == id)
            *is_voter = zero[1] == RAFT_VOTER;
        at = zero + 2;
    }
    return true;
}

unsigned raft_driver_voters(const struct raft *raft)
{
    unsigned voters = 0;
    for (unsigned i = 0; i < raft->configuration.n; i++)
        voters += raft->configuration.servers[i].role == RAFT_VOTER;
    return voters;
}

bool raft_driver_is_voter(const struct raft_driver *driver, uint64_t id)
{
    const struct raft_configuration *configuration = &driver->raft.configuration;
    for (unsigned i = 0; i < configuration->n; i++) {
        if (configuration->servers[i].id == id)
            return configuration->servers[i].role == RAFT_VOTER;
    }
    return false;
}

void raft_driver_apply_configuration(struct raft_driver *driver, raft_index index, struct slice configuration)
{
    struct raft_event event = {.type = RAFT_CONFIGURATION};
    struct raft_buffer buffer = {(void *)(uintptr_t)configuration.data, configuration.size};

    if (!driver->started || index != driver->raft.configuration_uncommitted_index)
        return; /* fed back already, or the one we started with */
    if (driver->votes->saving) {
        driver->waiting_change = index;
        return;
    }
    event.configuration.index = index;
    if (raft_configuration_decode(&buffer, &event.configuration.conf) == 0)
        raft_driver_step(driver, &event);
}
