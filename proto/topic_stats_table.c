#include "proto/topic_stats_table.h"

#include "proto/json_body.h"

void topic_stats_table_begin(struct buffer *out)
{
    buffer_append_text(out, "{\"offsetTable\":{");
}

void topic_stats_table_add(struct buffer *out, const struct topic_offset *offset)
{
    struct json_writer writer = json_body_resume(out);
    json_body_write_queue_key(&writer, &offset->queue);
    json_write_begin_object(&writer);
    json_write_member_i64(&writer, "lastUpdateTimestamp", offset->last_update_timestamp_ms);
    json_write_member_i64(&writer, "maxOffset", offset->max_offset);
    json_write_member_i64(&writer, "minOffset", offset->min_offset);
    json_write_end_object(&writer);
}

void topic_stats_table_end(struct buffer *out)
{
    buffer_append_text(out, "}}");
}

static int read_offset(struct topic_offset *offset, struct arena *arena, struct json_value key, struct json_value value,
                       struct error *error)
{
    int rv = json_body_queue_key(arena, key, &offset->queue, error);
    if (rv == 0)
        rv = json_read_i64(value, "lastUpdateTimestamp", &offset->last_update_timestamp_ms, error);
    if (rv == 0)
        rv = json_read_i64(value, "maxOffset", &offset->max_offset, error);
    if (rv == 0)
        rv = json_read_i64(value, "minOffset", &offset->min_offset, error);
    return rv;
}

int topic_stats_table_decode(struct topic_stats_table *table, struct slice body, struct error *error)
{
    struct json_document document;
    struct json_iterator iterator;
    struct json_value key;
    struct json_value value;

    *table = (struct topic_stats_table){0};
    int rv = json_body_open(&document, &table->arena, body, error);
    if (rv != 0)
        return rv;
    rv = json_body_map(&table->arena, json_root(&document), "offsetTable", sizeof *table->offsets, &table->offsets,
                       &iterator, error);
    while (rv == 0 && json_next_member(&iterator, &key, &value))
        if (!json_is_null(value))
            rv = read_offset(&table->offsets[table->offset_count++], &table->arena, key, value, error);
    json_close(&document);
    if (rv != 0)
        topic_stats_table_close(table);
    return rv;
}

void topic_stats_table_close(struct topic_stats_table *table)
{
    arena_close(&table->arena);
    *table = (struct topic_stats_table){0};
}
