#include "proto/dledger_json.h"

#include "proto/json_body.h"

static const char base64_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static int base64_digit(uint8_t c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Undoes Base64 with padding, into arena. False when text is not that. */
static bool base64_decode(struct arena *arena, struct slice text, struct slice *out)
{
    size_t padding = 0;
    while (padding < 2 && padding < text.size && text.data[text.size - 1 - padding] == '=')
        padding++;
    if (text.size % 4 != 0)
        return false;
    uint8_t *to = arena_alloc(arena, text.size / 4 * 3 + 1);
    if (to == NULL)
        return false;
    size_t size = 0;
    uint32_t bits = 0;
    for (size_t i = 0; i < text.size; i++) {
        int digit = i >= text.size - padding ? 0 : base64_digit(text.data[i]);
        if (digit < 0)
            return false;
        bits = bits << 6 | (uint32_t)digit;
        if (i % 4 == 3) {
            to[size++] = (uint8_t)(bits >> 16);
            to[size++] = (uint8_t)(bits >> 8);
            to[size++] = (uint8_t)bits;
            bits = 0;
        }
    }
    *out = slice_of(to, size - padding);
    return true;
}

static void base64_append(struct buffer *out, const uint8_t *data, size_t size)
{
    uint8_t *to = buffer_reserve(out, (size + 2) / 3 * 4);
    if (to == NULL)
        return;
    for (size_t i = 0; i < size; i += 3) {
        size_t left = size - i;
        uint32_t bits =
            (uint32_t)data[i] << 16 | (left > 1 ? (uint32_t)data[i + 1] << 8 : 0) | (left > 2 ? data[i + 2] : 0u);
        *to++ = (uint8_t)base64_digits[bits >> 18];
        *to++ = (uint8_t)base64_digits[bits >> 12 & 63];
        *to++ = left > 1 ? (uint8_t)base64_digits[bits >> 6 & 63] : '=';
        *to++ = left > 2 ? (uint8_t)base64_digits[bits & 63] : '=';
    }
    out->size += (size + 2) / 3 * 4;
}

static int read_body(struct dledger_request *request, struct json_value root, struct error *error)
{
    struct json_value value = json_get(root, "body");
    struct slice text;

    if (json_is_null(value))
        return 0;
    if (!json_text(value, &text) || !base64_decode(&request->arena, text, &request->body)) {
        int rv = arena_error(&request->arena, error);
        return rv != 0 ? rv : error_set(error, ERROR_INVALID, "body is no Base64 text");
    }
    return 0;
}

static int read_members(struct dledger_request *request, struct json_value root, struct error *error)
{
    struct arena *arena = &request->arena;
    int rv = json_body_text(arena, root, "group", &request->group, error);
    if (rv == 0)
        rv = json_body_text(arena, root, "remoteId", &request->remote_id, error);
    if (rv == 0)
        rv = json_body_text(arena, root, "localId", &request->local_id, error);
    if (rv == 0)
        rv = json_body_text(arena, root, "leaderId", &request->leader_id, error);
    if (rv == 0)
        rv = json_read_i64(root, "term", &request->term, error);
    if (rv == 0)
        rv = read_body(request, root, error);
    if (rv == 0)
        rv = json_read_i64(root, "beginIndex", &request->begin_index, error);
    if (rv == 0)
        rv = json_body_text(arena, root, "transferId", &request->transfer_id, error);
    if (rv == 0)
        rv = json_body_text(arena, root, "transfereeId", &request->transferee_id, error);
    if (rv == 0)
        rv = json_read_i64(root, "takeLeadershipLedgerIndex", &request->take_leadership_ledger_index, error);
    return rv;
}

int dledger_request_decode(struct dledger_request *request, struct slice body, struct error *error)
{
    struct json_document document;

    *request = (struct dledger_request){.term = -1, .begin_index = -1, .take_leadership_ledger_index = -1};
    int rv = json_body_open(&document, &request->arena, body, error);
    if (rv != 0)
        return rv;
    rv = read_members(request, json_root(&document), error);
    json_close(&document);
    if (rv != 0)
        dledger_request_close(request);
    return rv;
}

void dledger_request_close(struct dledger_request *request)
{
    arena_close(&request->arena);
    *request = (struct dledger_request){0};
}

/* Keys are alphabetical: those of the answer's own kind stand between these two groups or among them. */
static void write_code_and_group(struct json_writer *writer, const struct dledger_response *response)
{
    json_write_member_i64(writer, "code", response->code);
    json_write_member_slice(writer, "group", response->group);
}

static void write_leader_and_local(struct json_writer *writer, const struct dledger_response *response)
{
    json_write_member_slice(writer, "leaderId", response->leader_id);
    json_write_member_slice(writer, "localId", response->local_id);
}

static void write_remote_and_term(struct json_writer *writer, const struct dledger_response *response)
{
    json_write_member_slice(writer, "remoteId", response->remote_id);
    json_write_member_i64(writer, "term", response->term);
}

void dledger_metadata_response_encode(const struct dledger_response *response, const struct dledger_peer *peers,
                                      size_t peer_count, struct buffer *out)
{
    struct json_writer writer;
    json_writer_init(&writer, out);
    json_write_begin_object(&writer);
    write_code_and_group(&writer, response);
    write_leader_and_local(&writer, response);
    json_write_key(&writer, "peers");
    json_write_begin_object(&writer);
    for (size_t i = 0; i < peer_count; i++) {
        json_write_key_slice(&writer, peers[i].id);
        json_write_slice(&writer, peers[i].address);
    }
    json_write_end_object(&writer);
    write_remote_and_term(&writer, response);
    json_write_end_object(&writer);
}

void dledger_append_response_encode(const struct dledger_response *response, int64_t index, int64_t position,
                                    struct buffer *out)
{
    struct json_writer writer;
    json_writer_init(&writer, out);
    json_write_begin_object(&writer);
    write_code_and_group(&writer, response);
    json_write_member_i64(&writer, "index", index);
    write_leader_and_local(&writer, response);
    json_write_member_i64(&writer, "pos", position);
    write_remote_and_term(&writer, response);
    json_write_end_object(&writer);
}

static void write_entry(struct json_writer *writer, const struct ledger_entry *entry, const uint8_t *body)
{
    json_write_begin_object(writer);
    json_write_key(writer, "body");
    buffer_append_text(writer->out, "\"");
    base64_append(writer->out, body, entry->body_size);
    buffer_append_text(writer->out, "\"");
    writer->comma = true;
    /* Java's fields are signed 32-bit numbers. */
    json_write_member_i64(writer, "bodyCrc", (int32_t)entry->body_crc);
    json_write_member_i64(writer, "chainCrc", (int32_t)entry->chain_crc);
    json_write_member_i64(writer, "channel", entry->kind);
    json_write_member_i64(writer, "index", (int64_t)entry->index);
    json_write_member_i64(writer, "magic", LEDGER_ENTRY_MAGIC);
    json_write_member_i64(writer, "pos", (int64_t)entry->position);
    json_write_member_i64(writer, "size", ledger_entry_size(entry));
    json_write_member_i64(writer, "term", (int64_t)entry->term);
    json_write_end_object(writer);
}

void dledger_get_response_encode(const struct dledger_response *response, const struct ledger_entry *entry,
                                 const uint8_t *body, struct buffer *out)
{
    struct json_writer writer;
    json_writer_init(&writer, out);
    json_write_begin_object(&writer);
    json_write_member_i64(&writer, "code", response->code);
    json_write_key(&writer, "entries");
    json_write_begin_array(&writer);
    if (entry != NULL)
        write_entry(&writer, entry, body);
    json_write_end_array(&writer);
    json_write_member_slice(&writer, "group", response->group);
    write_leader_and_local(&writer, response);
    write_remote_and_term(&writer, response);
    json_write_end_object(&writer);
}

void dledger_transfer_response_encode(const struct dledger_response *response, struct buffer *out)
{
    struct json_writer writer;
    json_writer_init(&writer, out);
    json_write_begin_object(&writer);
    write_code_and_group(&writer, response);
    write_leader_and_local(&writer, response);
    write_remote_and_term(&writer, response);
    json_write_end_object(&writer);
}
