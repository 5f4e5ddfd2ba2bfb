/* Each save overwrites the older slot, as found on the disk, so a save that is interrupted leaves the one before it. Room for both slots is written
 * when the file is made: a checkpoint can be saved on a full disk. */
#include "store/checkpoint.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/ledger_entry.h" /* crc32c */
#include "store/format_version.h"

/* A slot: magic 4 | version 4 | size of what follows 4 | crc32c of what follows 4 | fields in the order of encode().
 * From version 2 on the checksum begins with the 12 bytes before it, so that a damaged version is not taken for a later one. */
#define FORGOT_BIT 0x80u /* in the byte of the durability class */
#define CHECKPOINT_MAGIC 0x4C4D5143u /* "LMQC" */
#define HEAD_SIZE 16u
#define FIXED_SIZE 110u
#define BODY_MAX (FIXED_SIZE + CHECKPOINT_CONFIGURATION_MAX + CHECKPOINT_TERMS_MAX * 16u)
#define SLOT_SIZE 73728u /* BODY_MAX + HEAD_SIZE, rounded up to pages */
_Static_assert(BODY_MAX + HEAD_SIZE <= SLOT_SIZE && SLOT_SIZE % 4096u == 0, "slot size");

static uint8_t *put32(uint8_t *at, uint32_t value)
{
    store_u32(at, value);
    return at + 4;
}

static uint8_t *put64(uint8_t *at, uint64_t value)
{
    store_u64(at, value);
    return at + 8;
}

void checkpoint_copy(struct checkpoint *to, const struct checkpoint *from)
{
    assert(from->term_count <= CHECKPOINT_TERMS_MAX);
    memcpy(to, from, offsetof(struct checkpoint, terms) + from->term_count * sizeof from->terms[0]);
}

static void nothing_known(struct checkpoint *checkpoint)
{
    memset(checkpoint, 0, offsetof(struct checkpoint, terms));
    checkpoint->committed_index = -1;
    checkpoint->snapshot_index = -1;
}

/* Returns the size of the slot's used part. */
static size_t encode(const struct checkpoint *c, uint64_t sequence, uint8_t *slot)
{
    uint8_t *at = slot + HEAD_SIZE;
    at = put64(at, sequence);
    at = put64(at, (uint64_t)c->committed_index);
    at = put64(at, c->committed_term);
    at = put64(at, c->committed_end_position);
    at = put32(at, c->committed_chain);
    at = put64(at, c->configuration_index);
    at = put64(at, c->dispatched_position);
    at = put64(at, c->synced_dispatched_position);
    at = put64(at, (uint64_t)c->snapshot_index);
    at = put64(at, (uint64_t)c->begin_index);
    at = put64(at, c->begin_position);
    at = put64(at, c->boot_id);
    at = put64(at, c->incarnation);
    *at++ = c->clean ? 1 : 0;
    *at++ = (uint8_t)(c->durability | (c->forgot ? FORGOT_BIT : 0));
    at = put32(at, c->configuration_size);
    at = put32(at, c->term_count);
    memcpy(at, c->configuration, c->configuration_size);
    at += c->configuration_size;
    for (uint32_t i = 0; i < c->term_count; i++) {
        at = put64(at, c->terms[i].term);
        at = put64(at, c->terms[i].first_index);
    }
    uint32_t body = (uint32_t)(at - slot) - HEAD_SIZE;
    store_u32(slot, CHECKPOINT_MAGIC);
    store_u32(slot + 4, CHECKPOINT_VERSION);
    store_u32(slot + 8, body);
    store_u32(slot + 12, crc32c(0, slot + HEAD_SIZE, body));
    return HEAD_SIZE + body;
}

/* Sequence of a good slot, 0 for any other. */
static uint64_t slot_sequence(const uint8_t *slot)
{
    uint32_t body = load_u32(slot + 8);
    if (load_u32(slot) != CHECKPOINT_MAGIC || load_u32(slot + 4) != CHECKPOINT_VERSION || body < FIXED_SIZE || body > BODY_MAX ||
        load_u32(slot + 12) != crc32c(0, slot + HEAD_SIZE, body))
        return 0;
    return load_u64(slot + HEAD_SIZE);
}

/* Of a slot that a later version wrote, 0 for any other. It is no hint to be ignored: it may say that this member forgot what it acknowledged. */
static uint32_t later_version(const uint8_t *slot)
{
    uint32_t body = load_u32(slot + 8);
    bool whole = load_u32(slot) == CHECKPOINT_MAGIC && body <= SLOT_SIZE - HEAD_SIZE &&
                 load_u32(slot + 12) == crc32c(crc32c(0, slot, 12), slot + HEAD_SIZE, body);
    return whole && load_u32(slot + 4) > CHECKPOINT_VERSION ? load_u32(slot + 4) : 0;
}

static bool decode(const uint8_t *slot, struct checkpoint *c)
{
    struct cursor cursor = cursor_of(slice_of(slot + HEAD_SIZE, load_u32(slot + 8)));
    c->sequence = cursor_u64(&cursor);
    c->committed_index = (int64_t)cursor_u64(&cursor);
    c->committed_term = cursor_u64(&cursor);
    c->committed_end_position = cursor_u64(&cursor);
    c->committed_chain = cursor_u32(&cursor);
    c->configuration_index = cursor_u64(&cursor);
    c->dispatched_position = cursor_u64(&cursor);
    c->synced_dispatched_position = cursor_u64(&cursor);
    c->snapshot_index = (int64_t)cursor_u64(&cursor);
    c->begin_index = (int64_t)cursor_u64(&cursor);
    c->begin_position = cursor_u64(&cursor);
    c->boot_id = cursor_u64(&cursor);
    c->incarnation = cursor_u64(&cursor);
    c->clean = cursor_u8(&cursor) != 0;
    c->durability = cursor_u8(&cursor);
    c->forgot = (c->durability & FORGOT_BIT) != 0;
    c->durability &= (uint8_t)~FORGOT_BIT;
    c->configuration_size = cursor_u32(&cursor);
    c->term_count = cursor_u32(&cursor);
    if (c->configuration_size > CHECKPOINT_CONFIGURATION_MAX || c->term_count > CHECKPOINT_TERMS_MAX)
        return false;
    struct slice configuration = cursor_slice(&cursor, c->configuration_size);
    if (!cursor.failed)
        memcpy(c->configuration, configuration.data, configuration.size);
    for (uint32_t i = 0; i < c->term_count && !cursor.failed; i++) {
        c->terms[i].term = cursor_u64(&cursor);
        c->terms[i].first_index = cursor_u64(&cursor);
    }
    return !cursor.failed && cursor_left(&cursor) == 0;
}

/* Reads what is used of a slot; what a short file lacks reads as zeros. */
static int read_slot(struct env *env, struct env_file *file, uint8_t *slot, uint64_t offset)
{
    memset(slot, 0, HEAD_SIZE);
    ssize_t n = env_read(env, file, slot, HEAD_SIZE, offset);
    uint32_t body = load_u32(slot + 8);
    if (n < 0)
        return (int)n;
    if (load_u32(slot) != CHECKPOINT_MAGIC || body > SLOT_SIZE - HEAD_SIZE)
        return 0;
    memset(slot + HEAD_SIZE, 0, body);
    n = env_read(env, file, slot + HEAD_SIZE, body, offset + HEAD_SIZE);
    return n < 0 ? (int)n : 0;
}

/* Both of them, as far as each says that it is used. The caller frees. */
static uint8_t *read_slots(struct env *env, struct env_file *file, int *rv)
{
    uint8_t *slots = malloc((size_t)2 * SLOT_SIZE);
    if (slots == NULL) {
        *rv = -ENOMEM;
        return NULL;
    }
    *rv = read_slot(env, file, slots, 0);
    if (*rv == 0)
        *rv = read_slot(env, file, slots + SLOT_SIZE, SLOT_SIZE);
    if (*rv != 0) {
        free(slots);
        return NULL;
    }
    return slots;
}

static int io_error(struct error *error, int rv, const char *what, const char *path)
{
    int code = rv == -ENOSPC || rv == -EDQUOT ? ERROR_NO_SPACE : rv == -ENOMEM ? ERROR_NO_MEMORY : ERROR_IO;
    return error_set(error, code, "%s checkpoint %s: %s", what, path, strerror(-rv));
}

int checkpoint_load(struct checkpoint *checkpoint, struct env *env, const char *path, struct error *error)
{
    struct env_file *file;
    nothing_known(checkpoint);
    int rv = env_open(env, path, ENV_READ, &file);
    if (rv == -ENOENT)
        return 0;
    if (rv != 0)
        return io_error(error, rv, "open", path);
    uint8_t *slots = read_slots(env, file, &rv);
    env_close(env, file);
    if (slots == NULL)
        return io_error(error, rv, "read", path);
    uint32_t later = later_version(slots) != 0 ? later_version(slots) : later_version(slots + SLOT_SIZE);
    if (later != 0) {
        free(slots);
        return format_version_unknown(error, path, later, CHECKPOINT_VERSION);
    }
    uint64_t first = slot_sequence(slots), second = slot_sequence(slots + SLOT_SIZE);
    if (first != 0 || second != 0)
        checkpoint->present = decode(slots + (second > first ? SLOT_SIZE : 0), checkpoint);
    free(slots);
    if (!checkpoint->present)
        nothing_known(checkpoint);
    return 0;
}

int checkpoint_save(struct checkpoint *checkpoint, struct env *env, const char *path, struct error *error)
{
    struct env_file *file;
    if (checkpoint->term_count > CHECKPOINT_TERMS_MAX || checkpoint->configuration_size > CHECKPOINT_CONFIGURATION_MAX)
        return error_set(error, ERROR_INVALID, "checkpoint %s: too many terms or too large a configuration", path);
    int rv = env_open(env, path, ENV_WRITE | ENV_CREATE, &file);
    if (rv != 0)
        return io_error(error, rv, "open", path);
    uint64_t size = 0;
    uint8_t *slots = NULL;
    rv = env->ops->size(env, file, &size);
    if (rv == 0)
        slots = read_slots(env, file, &rv);
    if (slots == NULL)
        goto close_file;
    uint64_t first = slot_sequence(slots), second = slot_sequence(slots + SLOT_SIZE);
    uint64_t sequence = first > second ? first : second;
    if (checkpoint->sequence > sequence)
        sequence = checkpoint->sequence;
    bool whole = size >= 2u * SLOT_SIZE;
    if (!whole) {
        static const uint8_t zeros[4096];
        for (uint64_t at = size; at < 2u * SLOT_SIZE && rv == 0; at += sizeof zeros - at % sizeof zeros)
            rv = env_write(env, file, zeros, sizeof zeros - at % sizeof zeros, at);
        if (rv != 0)
            goto free_slots;
    }
    uint8_t *older = second < first ? slots + SLOT_SIZE : slots;
    size_t used = encode(checkpoint, sequence + 1, older);
    rv = env_write(env, file, older, used, older == slots ? 0 : SLOT_SIZE);
    if (rv == 0)
        rv = env_sync(env, file);
    if (rv == 0 && !whole)
        rv = env_sync_parent(env, path);
    if (rv == 0)
        checkpoint->sequence = sequence + 1;

free_slots:
    free(slots);
close_file:
    env_close(env, file);
    return rv == 0 ? 0 : io_error(error, rv, "save", path);
}

int checkpoint_image(const struct checkpoint *checkpoint, struct buffer *file)
{
    uint8_t *slot = buffer_reserve(file, SLOT_SIZE);
    if (slot == NULL)
        return ERROR_NO_MEMORY;
    file->size += encode(checkpoint, 1, slot);
    return 0;
}
