#include "proto/register_broker_body.h"

#include <inttypes.h>
#include <zlib.h>

#include "proto/json_body.h"
#include "proto/message.h"
#include "proto/topic_config_serialize_wrapper.h"

/* "a 0 0 0 MULTI_TAG" and its length: a body says how many topics it has, and this tells whether it can. */
#define TOPIC_LINE_MIN 21u
#define INFLATE_STEP 65536u

bool register_broker_body_crc_ok(struct slice body, int32_t body_crc32)
{
    return body_crc32 == 0 || body_crc32 == register_broker_body_crc(body);
}

int32_t register_broker_body_crc(struct slice body)
{
    /* The same masked CRC-32 as that of a message's body. */
    return (int32_t)message_body_crc(body);
}

void register_broker_body_begin(struct buffer *out, const struct data_version *version)
{
    buffer_append_text(out, "{\"filterServerList\":[],\"topicConfigSerializeWrapper\":");
    topic_config_serialize_wrapper_begin(out, version);
}

void register_broker_body_add(struct buffer *out, const struct topic_config *config)
{
    topic_config_serialize_wrapper_add(out, config);
}

void register_broker_body_end(struct buffer *out)
{
    topic_config_serialize_wrapper_end(out);
    buffer_append_text(out, "}");
}

static void write_json(const struct register_broker_body *body, struct buffer *out)
{
    struct json_writer writer;
    json_writer_init(&writer, out);
    json_write_begin_object(&writer);
    json_body_write_names(&writer, "filterServerList", body->filter_servers, body->filter_server_count);
    json_write_key(&writer, "topicConfigSerializeWrapper");
    topic_config_serialize_wrapper_begin(out, &body->version);
    for (size_t i = 0; i < body->topic_count; i++)
        topic_config_serialize_wrapper_add(out, &body->topics[i]);
    topic_config_serialize_wrapper_end(out);
    buffer_append_text(out, "}");
}

/* Room for a length that is known once the part behind it is written. */
static size_t begin_part(struct buffer *out)
{
    size_t at = out->size;
    buffer_append_u32(out, 0);
    return at;
}

static void end_part(struct buffer *out, size_t at)
{
    if (!out->failed)
        store_u32(out->data + at, (uint32_t)(out->size - at - 4));
}

/* The compressed form before it is compressed. */
static void write_parts(const struct register_broker_body *body, struct buffer *out)
{
    size_t at = begin_part(out);
    data_version_encode(&body->version, out);
    end_part(out, at);

    buffer_append_u32(out, (uint32_t)body->topic_count);
    for (size_t i = 0; i < body->topic_count; i++) {
        const struct topic_config *topic = &body->topics[i];
        at = begin_part(out);
        buffer_append_slice(out, topic->name);
        buffer_append_format(out, " %" PRId32 " %" PRId32 " %" PRId32 " %s", topic->read_queue_nums,
                             topic->write_queue_nums, topic->perm, topic->multi_tag ? "MULTI_TAG" : "SINGLE_TAG");
        end_part(out, at);
    }

    at = begin_part(out);
    struct json_writer writer;
    json_writer_init(&writer, out);
    json_write_begin_array(&writer);
    for (size_t i = 0; i < body->filter_server_count; i++)
        json_write_slice(&writer, body->filter_servers[i]);
    json_write_end_array(&writer);
    end_part(out, at);
}

static void write_compressed(const struct register_broker_body *body, struct buffer *out)
{
    struct buffer plain;
    buffer_init(&plain, 0);
    write_parts(body, &plain);
    uLongf size = compressBound(plain.size);
    uint8_t *to = plain.failed ? NULL : buffer_reserve(out, size);
    if (to != NULL && compress2(to, &size, plain.data, plain.size, Z_BEST_SPEED) == Z_OK)
        out->size += size;
    else
        out->failed = true;
    buffer_close(&plain);
}

void register_broker_body_encode(const struct register_broker_body *body, bool compressed, struct buffer *out)
{
    if (compressed)
        write_compressed(body, out);
    else
        write_json(body, out);
}

static int read_json(struct register_broker_body *body, struct slice bytes, struct error *error)
{
    struct json_document document;
    struct topic_config_serialize_wrapper wrapper = {0};

    int rv = json_body_open(&document, &wrapper.arena, bytes, error);
    if (rv != 0)
        return rv;
    struct json_value root = json_root(&document);
    rv = json_body_names(&wrapper.arena, root, "filterServerList", &body->filter_servers, &body->filter_server_count,
                         error);
    if (rv == 0)
        rv = topic_config_serialize_wrapper_read(&wrapper, json_get(root, "topicConfigSerializeWrapper"), error);
    json_close(&document);
    body->arena = wrapper.arena;
    body->version = wrapper.version;
    body->topics = wrapper.topics;
    body->topic_count = wrapper.topic_count;
    return rv;
}

static int inflate_all(z_stream *stream, struct buffer *plain, struct error *error)
{
    int rv = Z_OK;
    while (rv != Z_STREAM_END) {
        uint8_t *to = buffer_reserve(plain, INFLATE_STEP);
        if (to == NULL)
            return plain->size + INFLATE_STEP > plain->limit
                       ? error_set(error, ERROR_TOO_LARGE, "the body inflates to more than %zu bytes", plain->limit)
                       : error_set(error, ERROR_NO_MEMORY, "out of memory");
        stream->next_out = to;
        stream->avail_out = INFLATE_STEP;
        rv = inflate(stream, Z_NO_FLUSH);
        plain->size += INFLATE_STEP - stream->avail_out;
        /* Nothing left to read and yet no end: the stream was cut. */
        if (rv == Z_BUF_ERROR || (rv == Z_OK && stream->avail_in == 0 && stream->avail_out > 0))
            return error_set(error, ERROR_MALFORMED, "the compressed body ends early");
        if (rv == Z_MEM_ERROR)
            return error_set(error, ERROR_NO_MEMORY, "out of memory");
        if (rv != Z_OK && rv != Z_STREAM_END)
            return error_set(error, ERROR_MALFORMED, "the compressed body is no zlib stream");
    }
    return 0;
}

static int inflate_body(struct slice bytes, struct buffer *plain, struct error *error)
{
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)bytes.data, .avail_in = (uInt)bytes.size};
    if (bytes.size > UINT32_MAX)
        return error_set(error, ERROR_TOO_LARGE, "a compressed body of %zu bytes", bytes.size);
    if (inflateInit(&stream) != Z_OK)
        return error_set(error, ERROR_NO_MEMORY, "zlib cannot start");
    int rv = inflate_all(&stream, plain, error);
    inflateEnd(&stream);
    return rv;
}

/* The next word of a line; size 0 at its end. */
static struct slice next_word(struct slice *line)
{
    const uint8_t *stop = line->size == 0 ? NULL : memchr(line->data, ' ', line->size);
    size_t size = stop == NULL ? line->size : (size_t)(stop - line->data);
    struct slice word = slice_of(line->data, size);
    size_t skip = stop == NULL ? size : size + 1;

    *line = slice_of(line->data + skip, line->size - skip);
    return word;
}

/* "name readNums writeNums perm SINGLE_TAG", maybe with attributes behind it. */
static bool read_line(struct topic_config *topic, struct arena *arena, struct slice line)
{
    topic_config_init(topic, arena_copy(arena, next_word(&line)));
    bool ok = slice_to_i32(next_word(&line), &topic->read_queue_nums) &&
              slice_to_i32(next_word(&line), &topic->write_queue_nums) && slice_to_i32(next_word(&line), &topic->perm);
    struct slice filter_type = next_word(&line);
    topic->multi_tag = slice_equal_text(filter_type, "MULTI_TAG");
    return ok && topic->name.size > 0 && (topic->multi_tag || slice_equal_text(filter_type, "SINGLE_TAG"));
}

static int read_filter_servers(struct register_broker_body *body, struct slice text, struct error *error)
{
    struct json_document document;
    struct json_value element;

    if (text.size == 0)
        return 0;
    int rv = json_parse(&document, text, NULL, 0, error);
    if (rv != 0)
        return rv;
    struct json_value root = json_root(&document);
    struct json_iterator iterator = json_iterate(root);
    if (!json_is_null(root) && !json_is_array(root))
        rv = error_set(error, ERROR_INVALID, "filterServerList is no list");
    body->filter_servers = arena_array(&body->arena, json_size(root), sizeof *body->filter_servers);
    if (rv == 0)
        rv = arena_error(&body->arena, error);
    while (rv == 0 && json_next_element(&iterator, &element))
        rv = json_body_copy(&body->arena, element, "filterServerList",
                            &body->filter_servers[body->filter_server_count++], error);
    json_close(&document);
    return rv;
}

static int read_parts(struct register_broker_body *body, struct slice plain, struct error *error)
{
    struct cursor cursor = cursor_of(plain);

    arena_init(&body->arena, INFLATE_STEP + 16u * plain.size);
    struct slice version = cursor_slice(&cursor, cursor_u32(&cursor));
    uint32_t count = cursor_u32(&cursor);
    if (cursor.failed || count > cursor_left(&cursor) / TOPIC_LINE_MIN)
        return error_set(error, ERROR_MALFORMED, "the body ends before its topics do");
    int rv = data_version_decode(&body->version, version, error);
    if (rv != 0)
        return rv;
    body->topics = arena_array(&body->arena, count, sizeof *body->topics);
    if (body->topics == NULL)
        return arena_error(&body->arena, error);
    while (body->topic_count < count) {
        struct slice line = cursor_slice(&cursor, cursor_u32(&cursor));
        if (cursor.failed || !read_line(&body->topics[body->topic_count], &body->arena, line))
            return error_set(error, ERROR_MALFORMED, "topic %zu of the body is malformed", body->topic_count + 1);
        body->topic_count++;
    }
    /* What 5.x appends behind it (static topics) is of no use here. */
    struct slice filter_servers = cursor_slice(&cursor, cursor_u32(&cursor));
    if (cursor.failed)
        return error_set(error, ERROR_MALFORMED, "the body ends before its filter servers do");
    rv = read_filter_servers(body, filter_servers, error);
    return rv != 0 ? rv : arena_error(&body->arena, error);
}

static int read_compressed(struct register_broker_body *body, struct slice bytes, struct error *error)
{
    struct buffer plain;
    buffer_init(&plain, REGISTER_BROKER_BODY_INFLATED_MAX);
    int rv = inflate_body(bytes, &plain, error);
    if (rv == 0)
        rv = read_parts(body, buffer_slice(&plain), error);
    buffer_close(&plain);
    return rv;
}

int register_broker_body_decode(struct register_broker_body *body, struct slice bytes, bool compressed,
                                struct error *error)
{
    *body = (struct register_broker_body){0};
    int rv = compressed ? read_compressed(body, bytes, error) : read_json(body, bytes, error);
    if (rv != 0)
        register_broker_body_close(body);
    return rv;
}

void register_broker_body_close(struct register_broker_body *body)
{
    arena_close(&body->arena);
    *body = (struct register_broker_body){0};
}
