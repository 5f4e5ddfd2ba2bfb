#include "tests/lib/ledger_model.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ledger_model_init(struct ledger_model *model, uint64_t segment_size)
{
    memset(model, 0, sizeof *model);
    model->segment_size = segment_size;
}

void ledger_model_close(struct ledger_model *model)
{
    free(model->entries);
    free(model->bytes);
    memset(model, 0, sizeof *model);
}

static uint64_t end_of(const struct ledger_model *model, size_t count)
{
    return count == 0 ? 0 : model->entries[count - 1].position + model->entries[count - 1].size;
}

void ledger_model_add(struct ledger_model *model, uint64_t term, uint32_t body_size, int64_t committed, uint32_t salt)
{
    uint32_t size = LEDGER_ENTRY_HEADER_SIZE + body_size;
    if (model->count == model->capacity) {
        model->capacity = model->capacity == 0 ? 64 : model->capacity * 2;
        model->entries = realloc(model->entries, model->capacity * sizeof *model->entries);
    }
    while (model->size + size > model->bytes_capacity) {
        model->bytes_capacity = model->bytes_capacity == 0 ? 65536 : model->bytes_capacity * 2;
        model->bytes = realloc(model->bytes, model->bytes_capacity);
    }
    assert(model->entries != NULL && model->bytes != NULL && size + LEDGER_BLANK_SIZE <= model->segment_size);
    /* Independent of ledger_place(). */
    uint64_t position = end_of(model, model->count);
    uint64_t offset = position % model->segment_size;
    if (offset + size + LEDGER_BLANK_SIZE > model->segment_size)
        position += model->segment_size - offset;
    uint8_t *header = model->bytes + model->size;
    uint32_t x = salt * 2654435761u + (uint32_t)model->count * 40503u + (uint32_t)term;
    for (uint32_t i = 0; i < body_size; i++) {
        x = x * 1664525u + 1013904223u;
        header[LEDGER_ENTRY_HEADER_SIZE + i] = (uint8_t)(x >> 24);
    }
    uint64_t uncommitted = (uint64_t)((int64_t)model->count - committed);
    struct ledger_entry entry = {
        .index = model->count,
        .term = term,
        .position = position,
        .kind = LEDGER_ENTRY_MESSAGE,
        .uncommitted = uncommitted > LEDGER_UNCOMMITTED_MAX ? LEDGER_UNCOMMITTED_MAX : (uint32_t)uncommitted,
        .body_size = body_size,
    };
    uint32_t chain = ledger_entry_seal(&entry, header, model->count == 0 ? 0 : model->entries[model->count - 1].chain);
    model->entries[model->count++] = (struct model_entry){term, position, size, chain, model->size};
    model->size += size;
}

const uint8_t *ledger_model_run(const struct ledger_model *model, size_t first, size_t count, size_t *size)
{
    assert(count > 0 && first + count <= model->count);
    size_t end = first + count == model->count ? model->size : model->entries[first + count].at;
    *size = end - model->entries[first].at;
    return model->bytes + model->entries[first].at;
}

void ledger_model_cut(struct ledger_model *model, size_t count)
{
    if (count >= model->count)
        return;
    model->size = model->entries[count].at;
    model->count = count;
}

static char text[200];

#define DIFFERS(...) (snprintf(text, sizeof text, __VA_ARGS__), text)

static const char *image_difference(const struct ledger_model *model, const struct ledger *ledger)
{
    uint8_t *want = malloc(model->segment_size);
    const char *difference = NULL;
    assert(want != NULL);
    size_t i = 0;
    for (size_t n = 0; n < ledger->data.count && difference == NULL; n++) {
        const struct mapped_file *file = ledger->data.files[n];
        uint64_t file_end = file->start + model->segment_size;
        uint64_t end = 0;
        memset(want, 0, model->segment_size);
        while (i < model->count && model->entries[i].position < file->start)
            i++;
        for (; i < model->count && model->entries[i].position < file_end; i++) {
            memcpy(want + (model->entries[i].position - file->start), model->bytes + model->entries[i].at, model->entries[i].size);
            end = model->entries[i].position + model->entries[i].size - file->start;
        }
        if (i < model->count) {
            store_u32(want + end, 0xFFFFFFFFu);
            store_u32(want + end + 4, (uint32_t)(model->segment_size - end));
        }
        for (uint64_t at = 0; at < model->segment_size && difference == NULL; at += 512) {
            size_t size = model->segment_size - at < 512 ? (size_t)(model->segment_size - at) : 512;
            for (size_t k = 0; memcmp(want + at, file->map + at, size) != 0; k++) {
                if (want[at + k] != file->map[at + k]) {
                    difference = DIFFERS("segment %llu, offset %llu: %02x instead of %02x", (unsigned long long)file->start,
                                         (unsigned long long)(at + k), file->map[at + k], want[at + k]);
                    break;
                }
            }
        }
    }
    free(want);
    if (difference == NULL && i < model->count)
        difference = DIFFERS("no segment holds entry %zu", i);
    return difference;
}

const char *ledger_model_difference(const struct ledger_model *model, const struct ledger *ledger)
{
    size_t begin = (size_t)ledger->begin_index;
    uint64_t position, term;
    uint32_t size, chain;
    if (ledger->last_index != (int64_t)model->count - 1)
        return DIFFERS("last index %lld instead of %lld", (long long)ledger->last_index, (long long)model->count - 1);
    if (ledger->end_position != end_of(model, model->count))
        return DIFFERS("end %llu", (unsigned long long)ledger->end_position);
    if (ledger->last_term != (model->count == 0 ? 0 : model->entries[model->count - 1].term))
        return DIFFERS("last term %llu", (unsigned long long)ledger->last_term);
    if (ledger->last_chain != (model->count == 0 ? 0 : model->entries[model->count - 1].chain))
        return DIFFERS("last chain %08x", ledger->last_chain);
    for (size_t i = begin; i < model->count; i++) {
        const struct model_entry *want = &model->entries[i];
        struct ledger_entry entry;
        if (!ledger_locate(ledger, i, &position, &size, &term) || position != want->position || size != want->size || term != want->term)
            return DIFFERS("locate %zu", i);
        const uint8_t *bytes = ledger_entry(ledger, i, &entry);
        if (bytes == NULL || entry.index != i || memcmp(bytes, model->bytes + want->at, want->size) != 0)
            return DIFFERS("entry %zu", i);
        if (ledger_term_of(ledger, i) != want->term)
            return DIFFERS("term of %zu is %llu instead of %llu", i, (unsigned long long)ledger_term_of(ledger, i), (unsigned long long)want->term);
        if (!ledger_end_of(ledger, i, &position, &chain) || position != want->position + want->size || chain != want->chain)
            return DIFFERS("end of %zu", i);
    }
    if (ledger_locate(ledger, model->count, &position, &size, &term) || ledger_term_of(ledger, model->count) != 0 ||
        ledger_end_of(ledger, model->count, &position, &chain) || (begin > 0 && ledger_locate(ledger, begin - 1, &position, &size, &term)))
        return DIFFERS("an entry outside of the log is found");
    for (size_t i = begin; i < model->count;) {
        const uint8_t *run;
        size_t run_size, want_size;
        uint32_t count = ledger_run(ledger, i, 7, 3000, &run, &run_size);
        if (count == 0 || count > 7 || (count > 1 && run_size > 3000) || i + count > model->count)
            return DIFFERS("run at %zu has %u entries, %zu bytes", i, count, run_size);
        const uint8_t *want = ledger_model_run(model, i, count, &want_size);
        if (want_size != run_size || memcmp(want, run, run_size) != 0)
            return DIFFERS("bytes of the run at %zu", i);
        /* As long as it may be. */
        if (count < 7 && i + count < model->count && model->entries[i + count].position == model->entries[i + count - 1].position +
            model->entries[i + count - 1].size && run_size + model->entries[i + count].size <= 3000)
            return DIFFERS("run at %zu is short", i);
        i += count;
    }
    return image_difference(model, ledger);
}
