/* Frames of `mqadmin bench`: made once, then copied and stamped. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/admin/bench.h"
#include "proto/headers.h"
#include "proto/message.h"
#include "proto/request_code.h"
#include "proto/topic_validator.h"

#define OPAQUE_BASE (1u << 30) /* with 30 bits of ours always ten digits */
#define BORN_PATTERN 1111111111111LL
#define BINARY_OPAQUE_AT 13 /* length 4, header word 4, code 2, language 1, version 2 */
#define KEY_DIGITS 16

static const char key_name[] = "UNIQ_KEY\001";

struct template
{
    struct buffer frame;
    size_t opaque_at, born_at, body_at;
    size_t key_at; /* of the digits that change, in the header; 0: in the members */
};

struct bench_frames {
    const struct bench_options *options;
    uint64_t run;
    struct template *templates;
    uint64_t count;
    /* members of a batch */
    size_t stride, member_body_at, member_key_at;
};

static void hex16(uint8_t *at, uint64_t value)
{
    for (int i = KEY_DIGITS - 1; i >= 0; i--, value >>= 4)
        at[i] = (uint8_t) "0123456789ABCDEF"[value & 15];
}

static void decimal(uint8_t *at, int width, uint64_t value)
{
    while (width > 0) {
        at[--width] = (uint8_t)('0' + value % 10);
        value /= 10;
    }
}

static void key_of(const struct bench_frames *frames, uint64_t number, uint8_t key[2 * KEY_DIGITS])
{
    hex16(key, frames->run);
    hex16(key + KEY_DIGITS, number);
}

/* A stock client's properties; the last 16 digits of the key are the message's number. */
static void put_properties(const struct bench_frames *frames, int variant, struct buffer *out)
{
    const struct bench_options *options = frames->options;
    uint8_t key[2 * KEY_DIGITS];
    char text[16];
    key_of(frames, 0, key);
    size_t start = out->size;
    message_property_append(out, start, SLICE_LITERAL("UNIQ_KEY"), slice_of(key, sizeof key));
    message_property_append(out, start, SLICE_LITERAL("WAIT"), SLICE_LITERAL("true"));
    if (options->variants > 0) {
        snprintf(text, sizeof text, "T%d", variant);
        message_property_append(out, start, SLICE_LITERAL("TAGS"), slice_of_text(text));
        message_property_append(out, start, SLICE_LITERAL("a"), slice_of_text(text + 1));
    }
    if (options->delay_level > 0) {
        snprintf(text, sizeof text, "%d", options->delay_level);
        message_property_append(out, start, SLICE_LITERAL("DELAY"), slice_of_text(text));
    }
    if (options->transaction) {
        message_property_append(out, start, SLICE_LITERAL("TRAN_MSG"), SLICE_LITERAL("true"));
        message_property_append(out, start, SLICE_LITERAL("PGROUP"), slice_of_text(options->group));
    }
}

void bench_topic_name(const struct bench_options *options, int topic, char out[LEDGERMQ_NAME_MAX + 1])
{
    if (options->topics > 1)
        snprintf(out, LEDGERMQ_NAME_MAX + 1, "%s-%05d", options->topic, topic);
    else
        snprintf(out, LEDGERMQ_NAME_MAX + 1, "%s", options->topic);
}

/* Letters that neither repeat nor compress well, the same in every run. */
static void put_filler(struct buffer *out, size_t size)
{
    uint64_t state = 0x9E3779B97F4A7C15u;
    uint8_t *at = buffer_reserve(out, size);
    if (at == NULL)
        return;
    for (size_t i = 0; i < size; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        at[i] = (uint8_t)(' ' + (state >> 33) % 95);
    }
    out->size += size;
}

static size_t find_in(const struct buffer *buffer, const void *what, size_t size)
{
    const uint8_t *at = memmem(buffer->data, buffer->size, what, size);
    return at == NULL ? 0 : (size_t)(at - buffer->data);
}

static bool make_body(struct bench_frames *frames, int variant, struct buffer *out)
{
    const struct bench_options *options = frames->options;
    struct buffer body, properties;
    buffer_init(&body, 0);
    buffer_init(&properties, 0);
    put_filler(&body, (size_t)options->size);
    put_properties(frames, variant, &properties);
    struct message_batch_member member = {.body = buffer_slice(&body), .properties = buffer_slice(&properties)};
    size_t start = out->size;
    for (int i = 0; i < options->batch; i++) {
        if (options->batch == 1)
            buffer_append_slice(out, member.body);
        else
            message_batch_append(out, &member);
        if (i == 0)
            frames->stride = out->size - start;
    }
    if (options->batch > 1) {
        struct buffer first = *out;
        first.data += start;
        first.size = frames->stride;
        frames->member_body_at = find_in(&first, member.body.data, member.body.size);
        frames->member_key_at = find_in(&first, key_name, sizeof key_name - 1) + sizeof key_name - 1 + KEY_DIGITS;
    }
    bool ok = !body.failed && !properties.failed && !out->failed;
    buffer_close(&body);
    buffer_close(&properties);
    return ok;
}

static bool make_template(struct bench_frames *frames, uint64_t place, struct template *template)
{
    const struct bench_options *options = frames->options;
    int queue = (int)(place % (uint64_t)options->queues);
    int topic = (int)(place / (uint64_t)options->queues % (uint64_t)options->topics);
    int variant = (int)(place / (uint64_t)options->queues / (uint64_t)options->topics);
    char name[LEDGERMQ_NAME_MAX + 1];
    struct remoting_writer writer;
    struct buffer properties;
    bool batch = options->batch > 1;
    bench_topic_name(options, topic, name);
    buffer_init(&template->frame, REMOTING_FRAME_MAX);
    buffer_init(&properties, 0);
    if (batch)
        message_property_append(&properties, 0, SLICE_LITERAL("WAIT"), SLICE_LITERAL("true"));
    else
        put_properties(frames, variant, &properties);
    struct send_message_request_header header = {
        .producer_group = slice_of_text(options->group),
        .topic = slice_of_text(name),
        .default_topic = SLICE_LITERAL(TOPIC_AUTO_CREATE),
        .default_topic_queue_nums = options->queues,
        .queue_id = queue,
        .sys_flag = options->transaction ? MESSAGE_TRANSACTION_PREPARED : 0,
        .born_timestamp_ms = BORN_PATTERN,
        .properties = buffer_slice(&properties),
        .has_reconsume_times = true,
        .has_unit_mode = true,
        .has_batch = true,
        .batch = batch,
    };
    remoting_writer_begin_request(&writer, &template->frame, (uint8_t)options->serialize_type,
                                  batch ? REQUEST_SEND_BATCH_MESSAGE : REQUEST_SEND_MESSAGE_V2, (int32_t)OPAQUE_BASE,
                                  0);
    send_message_request_header_encode_v2(&header, &writer);
    remoting_writer_body(&writer);
    template->body_at = template->frame.size;
    bool ok = make_body(frames, variant, &template->frame);
    remoting_writer_end(&writer, 0);
    buffer_close(&properties);
    uint8_t pattern[32];
    decimal(pattern, 13, (uint64_t)BORN_PATTERN);
    template->born_at = find_in(&template->frame, pattern, 13);
    decimal(pattern, 10, OPAQUE_BASE);
    template->opaque_at =
        options->serialize_type == REMOTING_BINARY ? BINARY_OPAQUE_AT : find_in(&template->frame, pattern, 10);
    if (!batch) {
        hex16(pattern, frames->run);
        hex16(pattern + KEY_DIGITS, 0);
        template->key_at = find_in(&template->frame, pattern, 2 * KEY_DIGITS) + KEY_DIGITS;
    }
    return ok && !template->frame.failed && template->born_at > 0 && template->opaque_at > 0 &&
           (batch || template->key_at > KEY_DIGITS);
}

struct bench_frames *bench_frames_new(const struct bench_options *options)
{
    struct bench_frames *frames = calloc(1, sizeof *frames);
    if (frames == NULL)
        return NULL;
    frames->options = options;
    frames->run = ((uint64_t)(bench_now_ns() + bench_wall_offset_ns()) << 8) ^ ((uint64_t)getpid() << 40);
    frames->count = (uint64_t)options->queues * (uint64_t)options->topics *
                    (uint64_t)(options->variants > 0 ? options->variants : 1);
    frames->templates = calloc(frames->count, sizeof *frames->templates);
    for (uint64_t i = 0; frames->templates != NULL && i < frames->count; i++)
        if (!make_template(frames, i, &frames->templates[i])) {
            bench_frames_free(frames);
            return NULL;
        }
    if (frames->templates == NULL) {
        free(frames);
        return NULL;
    }
    return frames;
}

void bench_frames_free(struct bench_frames *frames)
{
    for (uint64_t i = 0; i < frames->count; i++)
        buffer_close(&frames->templates[i].frame);
    free(frames->templates);
    free(frames);
}

bool bench_frames_append(struct bench_frames *frames, struct buffer *out, uint32_t opaque, uint64_t number,
                         int64_t wall_ns)
{
    const struct bench_options *options = frames->options;
    const struct template *template = &frames->templates[number % frames->count];
    uint8_t *frame = buffer_reserve(out, template->frame.size);
    if (frame == NULL)
        return false;
    memcpy(frame, template->frame.data, template->frame.size);
    out->size += template->frame.size;
    if (options->serialize_type == REMOTING_BINARY)
        store_u32(frame + template->opaque_at, OPAQUE_BASE | opaque);
    else
        decimal(frame + template->opaque_at, 10, OPAQUE_BASE | opaque);
    decimal(frame + template->born_at, 13, (uint64_t)(wall_ns / 1000000));
    if (template->key_at > 0)
        hex16(frame + template->key_at, number);
    uint8_t *member = frame + template->body_at;
    for (int i = 0; i < options->batch; i++, member += frames->stride) {
        /* Messages of batches are numbered through. */
        uint64_t message = number * (uint64_t)options->batch + (uint64_t)i;
        uint8_t *body = member + frames->member_body_at;
        store_u64(body, frames->run);
        store_u64(body + 8, message);
        store_u64(body + 16, (uint64_t)wall_ns);
        if (options->batch > 1)
            hex16(member + frames->member_key_at, message);
    }
    return true;
}

bool bench_frames_commit(struct bench_frames *frames, struct buffer *out, uint32_t opaque, uint64_t number,
                         uint8_t *frame, size_t size)
{
    struct remoting_command command;
    struct send_message_response_header answer;
    struct message_host host;
    struct remoting_writer writer;
    struct error error;
    int64_t physical_offset;
    uint8_t key[2 * KEY_DIGITS];
    if (remoting_command_decode(frame, size, &command) != 0 ||
        send_message_response_header_decode(&command, &answer, &error) != 0 ||
        !message_id_parse(answer.msg_id, &host, &physical_offset))
        return false;
    key_of(frames, number, key);
    struct end_transaction_request_header header = {
        .producer_group = slice_of_text(frames->options->group),
        .tran_state_table_offset = answer.queue_offset,
        .commit_log_offset = physical_offset,
        .commit_or_rollback = MESSAGE_TRANSACTION_COMMIT,
        .has_from_transaction_check = true,
        .msg_id = slice_of(key, sizeof key),
        .transaction_id = slice_of(key, sizeof key),
    };
    remoting_writer_begin_request(&writer, out, (uint8_t)frames->options->serialize_type, REQUEST_END_TRANSACTION,
                                  (int32_t)(OPAQUE_BASE | opaque), 0);
    end_transaction_request_header_encode(&header, &writer);
    remoting_writer_end(&writer, 0);
    return !out->failed;
}

/* Finds "code" and "opaque" at the top level of a JSON header, stepping over strings and inner objects. */
static bool scan_json(const uint8_t *at, const uint8_t *end, int64_t *code, int64_t *opaque)
{
    int depth = 0;
    *code = 0;
    *opaque = -1;
    while (at < end) {
        if (*at == '{' || *at == '[') {
            depth++;
            at++;
        } else if (*at == '}' || *at == ']') {
            depth--;
            at++;
        } else if (*at == '"') {
            const uint8_t *start = ++at;
            while (at < end && *at != '"')
                at += *at == '\\' ? 2 : 1;
            if (at >= end)
                return false;
            size_t size = (size_t)(at - start);
            at++;
            bool is_code = size == 4 && memcmp(start, "code", 4) == 0,
                 is_opaque = size == 6 && memcmp(start, "opaque", 6) == 0;
            if (depth != 1 || (!is_code && !is_opaque) || at >= end || *at != ':')
                continue;
            int64_t value = 0;
            for (at++; at < end && *at >= '0' && *at <= '9'; at++)
                value = (value * 10 + (*at - '0')) & 0x7FFFFFFFFFFF;
            *(is_code ? code : opaque) = value;
        } else {
            at++;
        }
    }
    return *opaque >= 0;
}

/* The same for headers with keys in alphabetical order, as Java and LedgerMQ write them: `code` is the first key, and
 * between `opaque` and the end there is no inner object. A quote inside a text is escaped, so what looks like a key
 * is one. False: not that form. */
static bool scan_sorted_json(const uint8_t *start, const uint8_t *end, int64_t *code, int64_t *opaque)
{
    static const char first[] = "{\"code\":", key[] = "\"opaque\":";
    const uint8_t *at = start + sizeof first - 1;
    if ((size_t)(end - start) < sizeof first + sizeof key || memcmp(start, first, sizeof first - 1) != 0)
        return false;
    for (*code = 0; at < end && *at >= '0' && *at <= '9'; at++)
        *code = (*code * 10 + (*at - '0')) & 0x7FFFFFFFFFFF;
    const uint8_t *low = at;
    for (at = end - sizeof key; at > low; at--) {
        if (*at == '{')
            return false;
        if (*at == '"' && at[1] == 'o' && memcmp(at, key, sizeof key - 1) == 0)
            break;
    }
    if (at <= low)
        return false;
    at += sizeof key - 1;
    for (*opaque = 0; at < end && *at >= '0' && *at <= '9'; at++)
        *opaque = (*opaque * 10 + (*at - '0')) & 0x7FFFFFFFFFFF;
    return true;
}

bool bench_answer(const uint8_t *frame, size_t size, int32_t *code, uint32_t *opaque)
{
    if (size < 8)
        return false;
    uint32_t word = load_u32(frame + 4), header = word & 0xFFFFFF;
    int64_t wide_code, wide_opaque;
    if (header > size - 8)
        return false;
    if (word >> 24 == REMOTING_BINARY) {
        if (header < 13 || !(frame[8 + 12] & REMOTING_FLAG_RESPONSE))
            return false;
        wide_code = (int16_t)load_u16(frame + 8);
        wide_opaque = load_u32(frame + 8 + 5);
    } else if (!scan_sorted_json(frame + 8, frame + 8 + header, &wide_code, &wide_opaque) &&
               !scan_json(frame + 8, frame + 8 + header, &wide_code, &wide_opaque)) {
        return false;
    }
    /* A broker's own requests have small opaque values. */
    if (wide_opaque < OPAQUE_BASE || wide_opaque >= 2 * (int64_t)OPAQUE_BASE)
        return false;
    *code = (int32_t)wide_code;
    *opaque = (uint32_t)wide_opaque & (OPAQUE_BASE - 1);
    return true;
}
