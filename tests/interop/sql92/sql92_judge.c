/* Reads lines "HEX-EXPRESSION HEX-PROPERTIES" from standard input and answers each with a line: "1" when the
 * properties match, "0" when they do not, "E " and the first line of the error when the expression does not
 * compile. Sql92.java does the same with RocketMQ's filter.
 *
 *     sql92_judge --time     says instead how long a match takes
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "proto/sql92.h"

#define TIMED_MATCHES 2000000u

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes in place up to a blank or the line's end. */
static struct slice decode(char **at)
{
    uint8_t *out = (uint8_t *)*at;
    size_t size = 0;

    for (; digit((*at)[0]) >= 0 && digit((*at)[1]) >= 0; *at += 2)
        out[size++] = (uint8_t)(digit((*at)[0]) << 4 | digit((*at)[1]));
    *at += **at == ' ';
    return slice_of(out, size);
}

static void answer(struct slice expression, struct slice properties)
{
    struct sql92 *program;
    struct error error;

    if (sql92_compile(expression, &program, &error) != 0) {
        printf("E %.*s\n", (int)strcspn(error.message, "\r\n"), error.message);
        return;
    }
    puts(sql92_match(program, properties) ? "1" : "0");
    sql92_free(program);
}

static void take_time(const char *expression, struct slice properties)
{
    struct sql92 *program;
    struct error error;
    struct timespec start;
    struct timespec end;
    uint64_t matches = 0;

    if (sql92_compile(slice_of_text(expression), &program, &error) != 0) {
        printf("%s: %s\n", expression, error.message);
        exit(1);
    }
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (uint32_t i = 0; i < TIMED_MATCHES; i++)
        matches += sql92_match(program, properties);
    clock_gettime(CLOCK_MONOTONIC, &end);
    double spent_ns = (double)(end.tv_sec - start.tv_sec) * 1e9 + (double)(end.tv_nsec - start.tv_nsec);
    printf("%6.1f ns  %s%s\n", spent_ns / TIMED_MATCHES, expression, matches == 0 ? "  (no match)" : "");
    sql92_free(program);
}

int main(int argc, char **argv)
{
    static const char *const timed[] = {
        "a > 3",
        "a = '5'",
        "a > 3.5",
        "a BETWEEN 1 AND 9 AND b IN ('x', 'y', 'z')",
        "region = 'eu' OR a > 100 OR (b IS NOT NULL AND TAGS = 'TagA')",
    };
    char *line = NULL;
    size_t capacity = 0;

    if (argc > 1 && strcmp(argv[1], "--time") == 0) {
        struct slice properties =
            SLICE_LITERAL("KEYS\1Order-4711\2UNIQ_KEY\1"
                          "7F00000100002A9F0000000000000001\2WAIT\1true\2TAGS\1TagA\2a\1"
                          "5\2b\1y");
        for (size_t i = 0; i < sizeof timed / sizeof timed[0]; i++)
            take_time(timed[i], properties);
        return 0;
    }
    while (getline(&line, &capacity, stdin) > 0) {
        char *at = line;
        struct slice expression = decode(&at);
        struct slice properties = decode(&at);
        answer(expression, properties);
    }
    free(line);
    return ferror(stdout) != 0;
}
