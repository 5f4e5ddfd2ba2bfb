/* JSON texts: every value can be asked anything, and what is read is written and read again alike. */
#include "proto/json.h"

#include "tests/fuzz/fuzz.h"

static struct slice text; /* of the document that is walked */

static void rewrite(struct json_writer *writer, struct json_value value);

static void rewrite_key(struct json_writer *writer, struct json_value key)
{
    struct slice name;
    int64_t number;
    if (json_is_object(key)) {
        struct json_iterator iterator = json_iterate(key);
        struct json_value inner_key;
        struct json_value inner;
        json_write_begin_key_object(writer);
        while (json_next_member(&iterator, &inner_key, &inner)) {
            rewrite_key(writer, inner_key);
            rewrite(writer, inner);
        }
        json_write_end_key_object(writer);
    } else if (!json_is_string(key) && json_i64(key, &number)) {
        json_write_key_i64(writer, number);
    } else if (json_text(key, &name)) {
        json_write_key_slice(writer, name);
    } else {
        json_write_key(writer, "other");
    }
}

static void rewrite(struct json_writer *writer, struct json_value value)
{
    struct slice string;
    int64_t number;
    int32_t small;
    double real;
    bool flag;
    static const char *const names[] = {"A", "B"};
    int ordinal = 0;

    check_inside(json_raw(value), text.data, text.size);
    (void)json_i32(value, &small);
    CHECK(!json_enum(value, names, 2, &ordinal) || ordinal == 0 || ordinal == 1);
    if (json_is_object(value)) {
        struct json_iterator iterator = json_iterate(value);
        struct json_value key;
        struct json_value member;
        uint32_t count = 0;
        json_write_begin_object(writer);
        while (json_next_member(&iterator, &key, &member)) {
            rewrite_key(writer, key);
            rewrite(writer, member);
            bool named = json_text(key, &string) && string.size > 0 && string.size < 64;
            if (named && memchr(string.data, 0, string.size) == NULL) {
                char name[64];
                memcpy(name, string.data, string.size);
                name[string.size] = '\0';
                CHECK(json_get(value, name).document != NULL);
            }
            count++;
        }
        CHECK(count == json_size(value));
        json_write_end_object(writer);
    } else if (json_is_array(value)) {
        struct json_iterator iterator = json_iterate(value);
        struct json_value element;
        json_write_begin_array(writer);
        while (json_next_element(&iterator, &element))
            rewrite(writer, element);
        json_write_end_array(writer);
    } else if (json_is_null(value)) {
        CHECK(!json_text(value, &string));
        json_write_null(writer);
    } else if (json_is_string(value)) {
        /* jsmn has looked at the escapes, so a string can always be had. */
        CHECK(json_text(value, &string));
        json_write_slice(writer, string);
    } else if (json_i64(value, &number)) {
        json_write_i64(writer, number);
    } else if (json_double(value, &real)) {
        json_write_double(writer, real);
    } else if (json_bool(value, &flag)) {
        json_write_bool(writer, flag);
    } else {
        CHECK(json_text(value, &string));
        json_write_slice(writer, string);
    }
}

static void walk(struct slice from, struct buffer *out, bool must)
{
    struct json_document document;
    struct json_writer writer;
    struct error error;

    int rv = json_parse(&document, from, NULL, 0, &error);
    CHECK(!must || rv == 0);
    CHECK(rv == 0 || (rv == error.code && error.message[0] != '\0'));
    if (rv != 0)
        return;
    text = from;
    json_writer_init(&writer, out);
    rewrite(&writer, json_root(&document));
    json_close(&document);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json_token tokens[16];
    struct json_document document;
    struct buffer first;
    struct buffer second;

    buffer_init(&first, 0);
    buffer_init(&second, 0);
    walk(slice_of(data, size), &first, false);
    if (first.size > 0) {
        walk(buffer_slice(&first), &second, true);
        CHECK(slice_equal(buffer_slice(&first), buffer_slice(&second)));
    }
    if (json_parse(&document, slice_of(data, size), tokens, 16, NULL) == 0) {
        CHECK(first.size > 0 && document.count <= 16);
        json_close(&document);
    }
    buffer_close(&first);
    buffer_close(&second);
    return 0;
}
