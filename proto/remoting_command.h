/* A remoting frame: cut it from a stream, read its header (JSON or ROCKETMQ binary), write one.
 *
 * Follows org.apache.rocketmq.remoting.protocol.RemotingCommand and RocketMQSerializable 4.9.8 (spec: remoting.md 1).
 * Nothing here allocates on the reading side: names and values are slices of the frame, and JSON escapes are undone inside the frame's own
 * bytes, which is why the frame is mutable. fastjson's leniency (numbers and booleans as ext values, any key order, white space,
 * quoted numbers, null) is accepted.
 */
#ifndef LEDGERMQ_PROTO_REMOTING_COMMAND_H
#define LEDGERMQ_PROTO_REMOTING_COMMAND_H

#include "proto/buffer.h"
#include "proto/error.h"

#define REMOTING_FRAME_MAX 16777216u /* length field + 4 may not exceed this (NettyDecoder) */
#define REMOTING_EXT_FIELDS_MAX 96u  /* the largest known request has 26 */
#define REMOTING_VERSION 409         /* V4_9_8, in everything we send */
#define REMOTING_LANGUAGE_JAVA 0
#define REMOTING_LANGUAGE_OTHER 7 /* and every word that is not known */

enum remoting_serialize_type { REMOTING_JSON = 0, REMOTING_BINARY = 1 };
enum remoting_flag { REMOTING_FLAG_RESPONSE = 1, REMOTING_FLAG_ONEWAY = 2 };

struct remoting_ext_field {
    struct slice name;
    struct slice value;
};

struct remoting_command {
    int32_t code;
    int32_t version;
    int32_t opaque;
    int32_t flag;
    uint8_t language; /* LanguageCode ordinal; unknown names read as JAVA */
    uint8_t serialize_type;
    bool has_opaque;
    struct slice remark; /* data NULL when absent */
    struct slice body;   /* size 0 when absent */
    uint32_t ext_count;
    struct remoting_ext_field ext[REMOTING_EXT_FIELDS_MAX];
};

/* Bytes of the first frame in `data` (length field included), 0 when more bytes are needed to know, -1 when the length field is
 * illegal (zero, negative, below 4, or above REMOTING_FRAME_MAX): close the connection. */
int64_t remoting_frame_size(struct slice data);

/* Reads one whole frame (length field included). Slices point into frame and live as long as it does.
 * ERROR_MALFORMED: close the connection without an answer. ERROR_TOO_LARGE: more ext fields than we take. */
int remoting_command_decode(uint8_t *frame, size_t size, struct remoting_command *command);

static inline bool remoting_is_response(const struct remoting_command *command)
{
    return (command->flag & REMOTING_FLAG_RESPONSE) != 0;
}
static inline bool remoting_is_oneway(const struct remoting_command *command)
{
    return (command->flag & REMOTING_FLAG_ONEWAY) != 0;
}

/* Last field of that name (a later duplicate wins); data NULL when absent. */
struct slice remoting_ext(const struct remoting_command *command, const char *name);

/* Writing: begin, ext fields, then the body, then end. The frame is appended to `out`; a failed growth shows in out->failed. */
struct remoting_writer {
    struct buffer *out;
    size_t frame_start;
    size_t header_start;
    size_t ext_start; /* binary: where the ext length goes; JSON: unused */
    uint8_t serialize_type;
    uint32_t ext_count;
    int32_t code, opaque, flag;
    const char *remark; /* borrowed until end of header */
    bool header_done;
};

/* remark may be NULL. Responses carry flag 1, language JAVA and REMOTING_VERSION. */
void remoting_writer_begin_response(struct remoting_writer *writer, struct buffer *out, uint8_t serialize_type, int32_t code,
                                    int32_t opaque, const char *remark);
void remoting_writer_begin_request(struct remoting_writer *writer, struct buffer *out, uint8_t serialize_type, int32_t code,
                                   int32_t opaque, int32_t flag);
void remoting_writer_ext(struct remoting_writer *writer, const char *name, struct slice value);
void remoting_writer_ext_text(struct remoting_writer *writer, const char *name, const char *value);
void remoting_writer_ext_i64(struct remoting_writer *writer, const char *name, int64_t value);
void remoting_writer_ext_bool(struct remoting_writer *writer, const char *name, bool value);
/* Ends the header. What is appended to writer->out from here on is the body. Called by _end when it was not called before. */
void remoting_writer_body(struct remoting_writer *writer);
/* Fixes the lengths. external_body_size: body bytes that the caller will send right behind this frame by reference (a pull answer). */
void remoting_writer_end(struct remoting_writer *writer, size_t external_body_size);

#endif
