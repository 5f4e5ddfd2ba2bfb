/* Properties text: what is read is written so that the same pairs are read again. */
#include "proto/java_properties.h"

#include "tests/fuzz/fuzz.h"

/* Returns the number of pairs and leaves them, written, in out; -1 for broken text. */
static int rewrite(struct slice text, struct buffer *out)
{
    struct java_properties_reader reader;
    struct error error;
    struct slice key;
    struct slice value;
    uint32_t line = 0;
    int count = 0;
    int rv;

    java_properties_reader_init(&reader, text);
    while (java_properties_next(&reader, &key, &value, &rv, &error)) {
        CHECK(key.data != NULL && value.data != NULL && reader.line > line);
        line = reader.line;
        java_properties_append(out, key, value);
        count++;
    }
    CHECK(rv == 0 || rv == ERROR_MALFORMED);
    java_properties_reader_close(&reader);
    return rv == 0 ? count : -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buffer first;
    struct buffer second;

    buffer_init(&first, 0);
    buffer_init(&second, 0);
    int count = rewrite(slice_of(data, size), &first);
    /* The pairs in front of a broken one are good. */
    int again = rewrite(buffer_slice(&first), &second);
    CHECK(again >= 0 && (count < 0 || again == count));
    CHECK(slice_equal(buffer_slice(&first), buffer_slice(&second)));
    for (size_t i = 0; i < first.size; i++)
        CHECK(first.data[i] == '\n' || (first.data[i] >= 0x20 && first.data[i] < 0x7F));
    buffer_close(&first);
    buffer_close(&second);
    return 0;
}
