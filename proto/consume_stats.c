#include "proto/consume_stats.h"

#include "proto/json_body.h"

void consume_stats_begin(struct buffer *out, double consume_tps)
{
    struct json_writer writer;
    json_writer_init(&writer, out);
    json_write_begin_object(&writer);
    json_write_member_double(&writer, "consumeTps", consume_tps);
    json_write_key(&writer, "offsetTable");
    json_write_begin_object(&writer);
}

void consume_stats_add(struct buffer *out, const struct consume_offset *offset)
{
    struct json_writer writer = json_body_resume(out);
    json_body_write_queue_key(&writer, &offset->queue);
    json_write_begin_object(&writer);
    json_write_member_i64(&writer, "brokerOffset", offset->broker_offset);
    json_write_member_i64(&writer, "consumerOffset", offset->consumer_offset);
    json_write_member_i64(&writer, "lastTimestamp", offset->last_timestamp_ms);
    json_write_end_object(&writer);
}

void consume_stats_end(struct buffer *out)
{
    buffer_append_text(out, "}}");
}

static int read_offset(struct consume_offset *offset, struct arena *arena, struct json_value key,
                       struct json_value value, struct error *error)
{
    int rv = json_body_queue_key(arena, key, &offset->queue, error);
    if (rv == 0)
        rv = json_read_i64(value, "brokerOffset", &offset->broker_offset, error);
    if (rv == 0)
        rv = json_read_i64(value, "consumerOffset", &offset->consumer_offset, error);
    if (rv == 0)
        rv = json_read_i64(value, "lastTimestamp", &offset->last_timestamp_ms, error);
    return rv;
}

int consume_stats_decode(struct consume_stats *stats, struct slice body, struct error *error)
{
    struct json_document document;
    struct json_iterator iterator;
    struct json_value key;
    struct json_value value;

    *stats = (struct consume_stats){0};
    int rv = json_body_open(&document, &stats->arena, body, error);
    if (rv != 0)
        return rv;
    struct json_value root = json_root(&document);
    struct json_value tps = json_get(root, "consumeTps");
    if (!json_is_null(tps) && !json_double(tps, &stats->consume_tps))
        rv = error_set(error, ERROR_INVALID, "consumeTps is no number");
    if (rv == 0)
        rv = json_body_map(&stats->arena, root, "offsetTable", sizeof *stats->offsets, &stats->offsets, &iterator,
                           error);
    while (rv == 0 && json_next_member(&iterator, &key, &value))
        if (!json_is_null(value))
            rv = read_offset(&stats->offsets[stats->offset_count++], &stats->arena, key, value, error);
    json_close(&document);
    if (rv != 0)
        consume_stats_close(stats);
    return rv;
}

void consume_stats_close(struct consume_stats *stats)
{
    arena_close(&stats->arena);
    *stats = (struct consume_stats){0};
}
