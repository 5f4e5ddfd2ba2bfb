#include "client/compression.h"

#include <lz4frame.h>
#include <stdlib.h>
#include <zlib.h>
#include <zstd.h>

#include "proto/message.h"

#define EXPAND_STEP 65536u /* room for output that is asked for at a time */

static enum compression_type type_of(int sys_flag)
{
    int type = sys_flag & MESSAGE_COMPRESSION_TYPE_MASK;
    return type == COMPRESSION_NONE_SAID ? COMPRESSION_ZLIB : (enum compression_type)type;
}

bool compression_is_known(int sys_flag)
{
    return (sys_flag & MESSAGE_COMPRESSION_TYPE_MASK) <= COMPRESSION_ZLIB;
}

/* Java's reader of LZ4 frames takes independent blocks only. */
static const LZ4F_preferences_t lz4_preferences = {
    .frameInfo = {.blockSizeID = LZ4F_max4MB, .blockMode = LZ4F_blockIndependent}};

void *compression_compress(enum compression_type type, int level, const void *body, size_t *size)
{
    size_t room = type == COMPRESSION_LZ4    ? LZ4F_compressFrameBound(*size, &lz4_preferences)
                  : type == COMPRESSION_ZSTD ? ZSTD_compressBound(*size)
                                             : compressBound((uLong)*size);
    uint8_t *out = malloc(room);
    if (out == NULL)
        return NULL;
    bool good;
    if (type == COMPRESSION_LZ4) {
        room = LZ4F_compressFrame(out, room, body, *size, &lz4_preferences);
        good = !LZ4F_isError(room);
    } else if (type == COMPRESSION_ZSTD) {
        room = ZSTD_compress(out, room, body, *size, level);
        good = !ZSTD_isError(room);
    } else {
        uLongf written = (uLongf)room;
        good = compress2(out, &written, body, (uLong)*size, level) == Z_OK;
        room = written;
    }
    if (!good || room >= *size) {
        free(out);
        return NULL;
    }
    *size = room;
    return out;
}

/* Room for the next piece, at most the buffer's limit; NULL when there is none left. */
static uint8_t *next_room(struct buffer *out, size_t *room)
{
    size_t left = out->limit == 0 ? EXPAND_STEP : out->limit - out->size;
    *room = left < EXPAND_STEP ? left : EXPAND_STEP;
    return *room == 0 ? NULL : buffer_reserve(out, *room);
}

static int expand_zlib(struct slice body, struct buffer *out)
{
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)body.data, .avail_in = (uInt)body.size};
    int status = inflateInit(&stream), rv = ERROR_MALFORMED;
    if (status != Z_OK)
        return ERROR_NO_MEMORY;
    do {
        size_t room;
        stream.next_out = next_room(out, &room);
        if (stream.next_out == NULL) {
            rv = ERROR_NO_MEMORY;
            break;
        }
        stream.avail_out = (uInt)room;
        status = inflate(&stream, Z_NO_FLUSH);
        out->size += room - stream.avail_out;
    } while (status == Z_OK && stream.avail_out == 0);
    inflateEnd(&stream);
    return status == Z_STREAM_END ? 0 : rv;
}

static int expand_lz4(struct slice body, struct buffer *out)
{
    LZ4F_dctx *context;
    size_t hint = 1;
    int rv = 0;
    if (LZ4F_isError(LZ4F_createDecompressionContext(&context, LZ4F_VERSION)))
        return ERROR_NO_MEMORY;
    /* A hint of 0 ends a frame; Java's writer may put several behind each other. */
    while (rv == 0 && (body.size > 0 || hint != 0)) {
        size_t taken = body.size, room;
        uint8_t *at = next_room(out, &room);
        if (at == NULL) {
            rv = ERROR_NO_MEMORY;
            break;
        }
        hint = LZ4F_decompress(context, at, &room, body.data, &taken, NULL);
        if (LZ4F_isError(hint) || (taken == 0 && room == 0))
            rv = ERROR_MALFORMED;
        else
            out->size += room;
        body.data += taken;
        body.size -= taken;
    }
    LZ4F_freeDecompressionContext(context);
    return rv;
}

static int expand_zstd(struct slice body, struct buffer *out)
{
    ZSTD_DStream *stream = ZSTD_createDStream();
    ZSTD_inBuffer in = {body.data, body.size, 0};
    size_t hint = 1;
    int rv = 0;
    if (stream == NULL)
        return ERROR_NO_MEMORY;
    while (rv == 0 && (in.pos < in.size || hint != 0)) {
        size_t room, before = in.pos;
        uint8_t *at = next_room(out, &room);
        if (at == NULL) {
            rv = ERROR_NO_MEMORY;
            break;
        }
        ZSTD_outBuffer piece = {at, room, 0};
        hint = ZSTD_decompressStream(stream, &piece, &in);
        if (ZSTD_isError(hint) || (in.pos == before && piece.pos == 0))
            rv = ERROR_MALFORMED;
        else
            out->size += piece.pos;
    }
    ZSTD_freeDStream(stream);
    return rv;
}

int compression_expand(int sys_flag, struct slice body, struct buffer *out)
{
    switch (type_of(sys_flag)) {
    case COMPRESSION_LZ4:
        return expand_lz4(body, out);
    case COMPRESSION_ZSTD:
        return expand_zstd(body, out);
    default:
        return expand_zlib(body, out);
    }
}
