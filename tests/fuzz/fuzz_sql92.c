/* Selectors: an expression, 0xFF (which is in no UTF-8 text), properties. It compiles or says why not, and
 * always matches alike. */
#include "proto/sql92.h"

#include "tests/fuzz/fuzz.h"

/* Heap memory of exactly that size. */
static struct slice copy(const uint8_t *data, size_t size)
{
    uint8_t *bytes = malloc(size == 0 ? 1 : size);
    CHECK(bytes != NULL);
    if (size > 0)
        memcpy(bytes, data, size);
    return slice_of(bytes, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *split = size == 0 ? NULL : memchr(data, 0xFF, size);
    size_t expression_size = split == NULL ? size : (size_t)(split - data);
    struct slice expression = copy(data, expression_size);
    struct slice properties =
        copy(data + expression_size + (split != NULL), size - expression_size - (split != NULL));
    struct sql92 *program;
    struct error error;

    int rv = sql92_compile(expression, &program, &error);
    free((void *)expression.data);
    if (rv == 0) {
        bool matches = sql92_match(program, properties);
        CHECK(sql92_match(program, properties) == matches);
        sql92_match(program, slice_of(NULL, 0));
        sql92_free(program);
    } else {
        CHECK(rv == ERROR_INVALID && error.code == rv && program == NULL);
        CHECK(error.message[0] != '\0' && memchr(error.message, '\0', sizeof error.message) != NULL);
    }
    free((void *)properties.data);
    return 0;
}
