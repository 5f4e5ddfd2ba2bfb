#include "proto/kv_table.h"

#include "proto/json_body.h"

#include <inttypes.h>
#include <stdio.h>

void kv_table_begin(struct buffer *out)
{
    buffer_append_text(out, "{\"table\":{");
}

void kv_table_add(struct buffer *out, struct slice name, struct slice value)
{
    struct json_writer writer = json_body_resume(out);
    json_write_key_slice(&writer, name);
    json_write_slice(&writer, value.data == NULL ? SLICE_LITERAL("") : value);
}

void kv_table_add_text(struct buffer *out, const char *name, const char *value)
{
    kv_table_add(out, slice_of_text(name), slice_of_text(value));
}

void kv_table_add_i64(struct buffer *out, const char *name, int64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, value);
    kv_table_add_text(out, name, text);
}

void kv_table_end(struct buffer *out)
{
    buffer_append_text(out, "}}");
}

int kv_table_decode(struct kv_table *table, struct slice body, struct error *error)
{
    struct json_document document;
    struct json_iterator iterator;
    struct json_value key;
    struct json_value value;

    *table = (struct kv_table){0};
    int rv = json_body_open(&document, &table->arena, body, error);
    if (rv != 0)
        return rv;
    rv = json_body_map(&table->arena, json_root(&document), "table", sizeof *table->pairs, &table->pairs, &iterator,
                       error);
    while (rv == 0 && json_next_member(&iterator, &key, &value)) {
        struct kv_pair *pair = &table->pairs[table->pair_count];
        if (json_is_null(value))
            continue;
        rv = json_body_copy(&table->arena, key, "table", &pair->name, error);
        if (rv == 0)
            rv = json_body_copy(&table->arena, value, "table", &pair->value, error);
        table->pair_count++;
    }
    json_close(&document);
    if (rv != 0)
        kv_table_close(table);
    return rv;
}

void kv_table_close(struct kv_table *table)
{
    arena_close(&table->arena);
    *table = (struct kv_table){0};
}

struct slice kv_table_get(const struct kv_table *table, const char *name)
{
    for (size_t i = table->pair_count; i > 0; i--)
        if (slice_equal_text(table->pairs[i - 1].name, name))
            return table->pairs[i - 1].value;
    return (struct slice){0};
}
