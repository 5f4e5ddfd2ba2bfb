#include "broker/metadata/half_set.h"

#include <stdlib.h>

#define ENTRIES_MIN 64u
#define BITS_BYTES (HALF_SET_REMEMBERED / 8)

void half_set_init(struct half_set *set)
{
    memset(set, 0, sizeof *set);
}

void half_set_close(struct half_set *set)
{
    free(set->entries);
    free(set->rolled_back);
    half_set_init(set);
}

/* ---- places ---- */

/* Place of the first entry at or behind offset. */
static uint32_t lower_bound(const struct half_set *set, int64_t offset)
{
    uint32_t low = set->first, high = set->end;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (set->entries[middle].offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Settled entries go, the rest moves to the front. Each call is paid for by as many settlements. */
static void compact(struct half_set *set)
{
    uint32_t to = 0;
    for (uint32_t from = set->first; from < set->end; from++) {
        if (!set->entries[from].settled)
            set->entries[to++] = set->entries[from];
    }
    set->first = 0;
    set->end = to;
    if (set->capacity > ENTRIES_MIN && to < set->capacity / 8) {
        uint32_t capacity = set->capacity / 4 < ENTRIES_MIN ? ENTRIES_MIN : set->capacity / 4;
        struct half *entries = realloc(set->entries, capacity * sizeof *entries);
        if (entries != NULL) {
            set->entries = entries;
            set->capacity = capacity;
        }
    }
}

static int make_room(struct half_set *set)
{
    if (set->end < set->capacity)
        return 0;
    if (set->unsettled < set->capacity / 2) {
        compact(set);
        return 0;
    }
    uint32_t capacity = set->capacity == 0 ? ENTRIES_MIN : set->capacity * 2;
    struct half *entries = capacity > UINT32_MAX / 4 ? NULL : realloc(set->entries, capacity * sizeof *entries);
    if (entries == NULL)
        return ERROR_NO_MEMORY;
    set->entries = entries;
    set->capacity = capacity;
    return 0;
}

static void mark(struct half_set *set, int64_t offset, bool rolled_back)
{
    size_t bit = (size_t)(offset % HALF_SET_REMEMBERED);
    uint8_t mask = (uint8_t)(1u << (bit % 8));
    set->rolled_back[bit / 8] = (uint8_t)(rolled_back ? set->rolled_back[bit / 8] | mask : set->rolled_back[bit / 8] & ~mask);
}

static size_t bytes_until(int64_t next)
{
    return next >= HALF_SET_REMEMBERED ? BITS_BYTES : (size_t)(next + 7) / 8;
}

static int make_bits(struct half_set *set, int64_t next)
{
    size_t size = set->rolled_back_size == 0 ? 1024 : set->rolled_back_size;
    while (size < bytes_until(next))
        size *= 2;
    if (size > BITS_BYTES)
        size = BITS_BYTES;
    if (size <= set->rolled_back_size)
        return 0;
    uint8_t *bits = realloc(set->rolled_back, size);
    if (bits == NULL)
        return ERROR_NO_MEMORY;
    memset(bits + set->rolled_back_size, 0, size - set->rolled_back_size);
    set->rolled_back = bits;
    set->rolled_back_size = size;
    return 0;
}

/* ---- apply ---- */

int half_set_arrived(struct half_set *set, int64_t offset, int64_t store_ms, struct slice immunity)
{
    int64_t seconds;
    if (offset < set->next)
        return 0;
    if (make_bits(set, offset + 1) != 0 || make_room(set) != 0)
        return ERROR_NO_MEMORY;
    if (immunity.data == NULL || !slice_to_i64(immunity, &seconds) || seconds < 0)
        seconds = -1;
    if (seconds > INT32_MAX)
        seconds = INT32_MAX;
    set->entries[set->end++] = (struct half){.offset = offset, .store_ms = store_ms, .immunity_s = (int32_t)seconds};
    set->unsettled++;
    set->next = offset + 1;
    mark(set, offset, false);
    return 0;
}

bool half_set_settle(struct half_set *set, int64_t offset, bool rolled_back)
{
    struct half *half = half_set_find(set, offset);
    if (half == NULL)
        return false;
    half->settled = true;
    half->settling = false;
    set->unsettled--;
    if (offset >= set->next - HALF_SET_REMEMBERED)
        mark(set, offset, rolled_back);
    while (set->first < set->end && set->entries[set->first].settled)
        set->first++;
    if (set->first == set->end)
        set->first = set->end = 0;
    return true;
}

void half_set_checked(struct half_set *set, int64_t offset)
{
    struct half *half = half_set_find(set, offset);
    if (half != NULL && half->checks < HALF_SET_CHECKS_MAX)
        half->checks++;
}

void half_set_resumed(struct half_set *set, int64_t offset)
{
    struct half *half = half_set_find(set, offset);
    if (half != NULL)
        half->checks = 0;
}

/* ---- snapshot ---- */

int half_set_snapshot(const struct half_set *set, struct half_set_snapshot *snapshot)
{
    size_t count = set->unsettled;
    Ledgermq__HalfSet *message = &snapshot->message;
    ledgermq__half_set__init(message);
    snapshot->memory = calloc(count + 1, 2 * sizeof(uint64_t) + sizeof(uint32_t) + sizeof(int32_t));
    if (snapshot->memory == NULL)
        return ERROR_NO_MEMORY;
    message->offset_deltas = snapshot->memory;
    message->store_ms_deltas = (int64_t *)(message->offset_deltas + count);
    message->checks = (uint32_t *)(message->store_ms_deltas + count);
    message->immunity_s = (int32_t *)(message->checks + count);
    message->n_offset_deltas = message->n_store_ms_deltas = message->n_checks = message->n_immunity_s = count;
    message->next = set->next;
    int64_t offset = 0, store_ms = 0;
    size_t n = 0;
    for (uint32_t i = set->first; i < set->end; i++) {
        const struct half *half = &set->entries[i];
        if (half->settled)
            continue;
        message->offset_deltas[n] = (uint64_t)(half->offset - offset);
        message->store_ms_deltas[n] = half->store_ms - store_ms;
        message->checks[n] = half->checks;
        message->immunity_s[n++] = half->immunity_s;
        offset = half->offset;
        store_ms = half->store_ms;
    }
    if (set->rolled_back != NULL) {
        message->rolled_back.data = set->rolled_back;
        message->rolled_back.len = bytes_until(set->next);
    }
    return 0;
}

void half_set_snapshot_free(struct half_set_snapshot *snapshot)
{
    free(snapshot->memory);
    snapshot->memory = NULL;
}

int half_set_restore(struct half_set *set, const Ledgermq__HalfSet *message)
{
    struct half_set fresh;
    half_set_init(&fresh);
    int rv = ERROR_MALFORMED;
    if (message != NULL && message->next != 0) {
        size_t count = message->n_offset_deltas;
        size_t bytes = bytes_until(message->next);
        if (message->next < 0 || message->n_store_ms_deltas != count || message->n_checks != count || message->n_immunity_s != count ||
            count > UINT32_MAX / 4 || message->rolled_back.len != bytes)
            return ERROR_MALFORMED;
        fresh.capacity = count < ENTRIES_MIN ? ENTRIES_MIN : (uint32_t)count;
        fresh.entries = malloc(fresh.capacity * sizeof *fresh.entries);
        if (fresh.entries == NULL || make_bits(&fresh, message->next) != 0) {
            rv = ERROR_NO_MEMORY;
            goto refuse;
        }
        memcpy(fresh.rolled_back, message->rolled_back.data, bytes);
        fresh.next = message->next;
        int64_t offset = 0, store_ms = 0;
        for (size_t i = 0; i < count; i++) {
            uint64_t delta = message->offset_deltas[i];
            if (delta > (uint64_t)(message->next - 1 - offset) || (delta == 0 && i > 0) || message->checks[i] > HALF_SET_CHECKS_MAX ||
                message->immunity_s[i] < -1 || __builtin_add_overflow(store_ms, message->store_ms_deltas[i], &store_ms))
                goto refuse;
            offset += (int64_t)delta;
            fresh.entries[i] = (struct half){
                .offset = offset, .store_ms = store_ms, .immunity_s = message->immunity_s[i], .checks = (uint16_t)message->checks[i]};
        }
        fresh.unsettled = fresh.end = (uint32_t)count;
    }
    half_set_close(set);
    *set = fresh;
    return 0;

refuse:
    half_set_close(&fresh);
    return rv;
}

/* ---- the leader's questions ---- */

struct half *half_set_find(const struct half_set *set, int64_t offset)
{
    uint32_t place = lower_bound(set, offset);
    if (place == set->end || set->entries[place].offset != offset || set->entries[place].settled)
        return NULL;
    return &set->entries[place];
}

struct half *half_set_from(const struct half_set *set, int64_t offset)
{
    for (uint32_t place = lower_bound(set, offset); place < set->end; place++) {
        if (!set->entries[place].settled)
            return &set->entries[place];
    }
    return NULL;
}

enum half_state half_set_state(const struct half_set *set, int64_t offset)
{
    if (offset < 0 || offset >= set->next)
        return HALF_NOT_SEEN;
    if (half_set_find(set, offset) != NULL)
        return HALF_UNSETTLED;
    if (offset < set->next - HALF_SET_REMEMBERED)
        return HALF_FORGOTTEN;
    size_t bit = (size_t)(offset % HALF_SET_REMEMBERED);
    return set->rolled_back[bit / 8] >> (bit % 8) & 1 ? HALF_ROLLED_BACK : HALF_COMMITTED;
}

void half_set_forget_settling(struct half_set *set)
{
    for (uint32_t i = set->first; i < set->end; i++)
        set->entries[i].settling = false;
}
