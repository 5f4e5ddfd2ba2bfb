#include "broker/processor/sql_program.h"

#include <assert.h>
#include <stdlib.h>

/* Its table of names; then the densest expressions have an operator or constant for every second byte of text. */
#define BYTES_AT_LEAST 4096u
#define BYTES_PER_BYTE 32u

static size_t bytes_in_use;

struct sql_program *sql_program_new(struct slice expression, struct error *error)
{
    size_t bytes = BYTES_AT_LEAST + BYTES_PER_BYTE * expression.size;
    if (bytes > SQL_PROGRAM_BYTES_MAX - bytes_in_use && expression.size <= SQL92_EXPRESSION_MAX) {
        error_set(error, ERROR_BUSY, "compiled SQL92 expressions take %u MiB, which is the limit", SQL_PROGRAM_BYTES_MAX >> 20);
        return NULL;
    }
    struct sql_program *program = calloc(1, sizeof *program);
    if (program == NULL) {
        error_set(error, ERROR_NO_MEMORY, "SQL92 expression");
        return NULL;
    }
    if (sql92_compile(expression, &program->code, error) != 0) {
        free(program);
        return NULL;
    }
    program->owners = 1;
    program->bytes = bytes;
    bytes_in_use += bytes;
    return program;
}

void sql_program_hold(struct sql_program *program)
{
    if (program != NULL)
        program->owners++;
}

void sql_program_release(struct sql_program *program)
{
    if (program == NULL)
        return;
    assert(program->owners > 0);
    if (--program->owners > 0)
        return;
    bytes_in_use -= program->bytes;
    sql92_free(program->code);
    free(program);
}
