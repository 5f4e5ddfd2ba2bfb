#include "proto/subscription_data.h"

#include "proto/hash.h"
#include "proto/json_body.h"

/* Tags of one expression; each costs a comparison per queue unit that is scanned. */
#define TAGS_MAX 4096u

static bool is_all(struct slice expression)
{
    return expression.size == 0 || slice_equal_text(expression, SUBSCRIPTION_ALL);
}

/* As Java's String.trim: everything up to the space goes. */
static struct slice trim(struct slice text)
{
    while (text.size > 0 && text.data[0] <= ' ') {
        text.data++;
        text.size--;
    }
    while (text.size > 0 && text.data[text.size - 1] <= ' ')
        text.size--;
    return text;
}

/* Cuts the next piece off `left`; the last one has no "||" behind it. */
static struct slice cut_piece(struct slice *left)
{
    const uint8_t *stop = left->size == 0 ? NULL : memmem(left->data, left->size, "||", 2);
    struct slice piece = *left;

    if (stop == NULL) {
        *left = (struct slice){0};
        return piece;
    }
    piece.size = (size_t)(stop - left->data);
    left->data += piece.size + 2;
    left->size -= piece.size + 2;
    return piece;
}

/* Codes first: they lie side by side, and a heart-beat of 16 MiB may be made of nothing but tags. */
static bool has_tag(const struct subscription_data *data, struct slice tag, int32_t code)
{
    for (size_t i = 0; i < data->tag_count; i++)
        if (data->codes[i] == code && slice_equal(data->tags[i], tag))
            return true;
    return false;
}

/* Fills tags and codes from the text of a TAG expression that is not "all". The tags are slices of it. */
static int split_tags(struct subscription_data *data, struct arena *arena, struct slice expression, struct error *error)
{
    size_t pieces = 0;
    bool found = false;
    for (struct slice left = expression; left.size > 0; pieces++)
        found |= cut_piece(&left).size > 0;
    /* Java's split gives no piece at all for "||": an error, while blanks between bars are a filter that nothing
     * passes. */
    if (!found)
        return error_set(error, ERROR_INVALID, "subString split error");
    if (pieces > TAGS_MAX)
        return error_set(error, ERROR_TOO_LARGE, "an expression has more than %u tags", TAGS_MAX);

    data->tags = arena_array(arena, pieces, sizeof *data->tags);
    data->codes = arena_array(arena, pieces, sizeof *data->codes);
    if (arena->failed)
        return arena_error(arena, error);
    for (struct slice left = expression; left.size > 0;) {
        struct slice tag = trim(cut_piece(&left));
        int32_t code = java_string_hash(tag);
        if (tag.size == 0 || has_tag(data, tag, code))
            continue;
        data->tags[data->tag_count++] = tag;
        data->codes[data->code_count++] = code;
    }
    return 0;
}

int subscription_data_build(struct subscription_data *data, struct arena *arena, struct slice topic,
                            struct slice expression, struct slice expression_type, struct error *error)
{
    *data = (struct subscription_data){0};
    if (expression_type.size == 0)
        expression_type = SLICE_LITERAL(EXPRESSION_TYPE_TAG);
    data->topic = arena_copy(arena, topic.data == NULL ? SLICE_LITERAL("") : topic);
    data->expression_type = arena_copy(arena, expression_type);
    bool is_tag = subscription_data_is_tag(data);
    if (is_tag && is_all(expression))
        expression = SLICE_LITERAL(SUBSCRIPTION_ALL);
    else if (expression.size == 0)
        return error_set(error, ERROR_INVALID, "Expression can't be null! %.*s",
                         (int)(expression_type.size < 64 ? expression_type.size : 64),
                         (const char *)expression_type.data);
    data->sub_string = arena_copy(arena, expression);
    if (arena->failed)
        return arena_error(arena, error);
    return is_tag && !is_all(data->sub_string) ? split_tags(data, arena, data->sub_string, error) : 0;
}

int subscription_data_copy(struct subscription_data *copy, struct arena *arena, const struct subscription_data *data)
{
    *copy = *data;
    copy->topic = arena_copy(arena, data->topic);
    copy->sub_string = arena_copy(arena, data->sub_string);
    copy->expression_type = arena_copy(arena, data->expression_type);
    copy->filter_class_source = arena_copy(arena, data->filter_class_source);
    copy->tags = arena_array(arena, data->tag_count, sizeof *copy->tags);
    copy->codes = arena_array(arena, data->code_count, sizeof *copy->codes);
    if (arena->failed)
        return arena_error(arena, NULL);
    for (size_t i = 0; i < data->tag_count; i++)
        copy->tags[i] = arena_copy(arena, data->tags[i]);
    if (data->code_count > 0)
        memcpy(copy->codes, data->codes, data->code_count * sizeof *copy->codes);
    return arena_error(arena, NULL);
}

bool subscription_data_match(const struct subscription_data *data, int64_t tags_code)
{
    if (!subscription_data_is_tag(data) || data->class_filter_mode || is_all(data->sub_string))
        return true;
    for (size_t i = 0; i < data->code_count; i++)
        if (data->codes[i] == (int32_t)tags_code)
            return true;
    return false;
}

void subscription_data_write(struct json_writer *writer, const struct subscription_data *data)
{
    json_write_begin_object(writer);
    json_write_member_bool(writer, "classFilterMode", data->class_filter_mode);
    json_write_key(writer, "codeSet");
    json_write_begin_array(writer);
    for (size_t i = 0; i < data->code_count; i++)
        json_write_i64(writer, data->codes[i]);
    json_write_end_array(writer);
    json_write_member_slice(writer, "expressionType", data->expression_type);
    json_write_member_slice(writer, "filterClassSource", data->filter_class_source);
    json_write_member_slice(writer, "subString", data->sub_string);
    json_write_member_i64(writer, "subVersion", data->sub_version);
    json_body_write_names(writer, "tagsSet", data->tags, data->tag_count);
    json_write_member_slice(writer, "topic", data->topic);
    json_write_end_object(writer);
}

void subscription_data_encode(const struct subscription_data *data, struct buffer *out)
{
    struct json_writer writer;
    json_writer_init(&writer, out);
    subscription_data_write(&writer, data);
}

static int read_codes(struct subscription_data *data, struct arena *arena, struct json_value object,
                      struct error *error)
{
    struct json_iterator iterator;
    struct json_value element;
    int rv = json_body_array(arena, object, "codeSet", sizeof *data->codes, &data->codes, &iterator, error);

    while (rv == 0 && json_next_element(&iterator, &element))
        if (!json_i32(element, &data->codes[data->code_count++]))
            rv = error_set(error, ERROR_INVALID, "codeSet holds something that is no 32-bit number");
    return rv;
}

/* C++ leaves the sets out: codes come from the tags, and tags from the text. */
static int complete_tags(struct subscription_data *data, struct arena *arena, struct error *error)
{
    if (!subscription_data_is_tag(data) || data->class_filter_mode || is_all(data->sub_string) || data->code_count > 0)
        return 0;
    if (data->tag_count == 0) {
        int rv = split_tags(data, arena, data->sub_string, error);
        /* A heart-beat with a filter that nobody can pass is no reason to refuse all its groups. */
        return rv == ERROR_INVALID ? 0 : rv;
    }
    data->codes = arena_array(arena, data->tag_count, sizeof *data->codes);
    if (data->codes == NULL)
        return arena_error(arena, error);
    for (size_t i = 0; i < data->tag_count; i++)
        data->codes[data->code_count++] = java_string_hash(data->tags[i]);
    return 0;
}

int subscription_data_read(struct subscription_data *data, struct arena *arena, struct json_value object,
                           struct error *error)
{
    *data = (struct subscription_data){
        .expression_type = SLICE_LITERAL(EXPRESSION_TYPE_TAG),
        .sub_string = SLICE_LITERAL(SUBSCRIPTION_ALL),
    };
    if (!json_is_object(object))
        return error_set(error, ERROR_INVALID, "a subscription is no object");
    int rv = json_body_required_text(arena, object, "topic", &data->topic, error);
    if (rv == 0)
        rv = json_body_text(arena, object, "subString", &data->sub_string, error);
    if (rv == 0)
        rv = json_body_text(arena, object, "expressionType", &data->expression_type, error);
    if (rv == 0)
        rv = json_body_text(arena, object, "filterClassSource", &data->filter_class_source, error);
    if (rv == 0)
        rv = json_read_bool(object, "classFilterMode", &data->class_filter_mode, error);
    if (rv == 0)
        rv = json_read_i64(object, "subVersion", &data->sub_version, error);
    if (rv == 0)
        rv = json_body_names(arena, object, "tagsSet", &data->tags, &data->tag_count, error);
    if (rv == 0)
        rv = read_codes(data, arena, object, error);
    if (rv != 0)
        return rv;
    if (data->expression_type.size == 0)
        data->expression_type = SLICE_LITERAL(EXPRESSION_TYPE_TAG);
    if (data->sub_string.size == 0)
        data->sub_string = SLICE_LITERAL(SUBSCRIPTION_ALL);
    return complete_tags(data, arena, error);
}

int subscription_data_decode(struct subscription_data *data, struct arena *arena, struct slice body,
                             struct error *error)
{
    struct json_document document;
    int rv = json_body_open(&document, NULL, body, error);
    if (rv != 0)
        return rv;
    rv = subscription_data_read(data, arena, json_root(&document), error);
    json_close(&document);
    return rv;
}
