/* SQL92 selectors: what compiles, what matches, and what users are told. tests/interop/sql92 compares with
 * RocketMQ's own filter. */
#include "proto/sql92.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/java_number.h"
#include "tests/lib/run_suite.h"

/* "a=3.5;b=x" as a record holds it. */
static size_t to_properties(const char *text, uint8_t out[256])
{
    size_t size = strlen(text);
    ck_assert_uint_le(size, 256);
    for (size_t i = 0; i < size; i++)
        out[i] = text[i] == '=' ? 1 : text[i] == ';' ? 2 : (uint8_t)text[i];
    return size;
}

static bool match(const char *expression, const char *properties)
{
    struct sql92 *program;
    struct error error = {.message = ""};
    uint8_t bytes[256];

    int rv = sql92_compile(slice_of_text(expression), &program, &error);
    ck_assert_msg(rv == 0, "%s: %s", expression, error.message);
    /* Memory of exactly that size, so that a read beyond it is seen. */
    size_t size = to_properties(properties, bytes);
    uint8_t *copy = malloc(size + 1);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, bytes, size);
    bool matches = sql92_match(program, slice_of(copy, size));
    free(copy);
    sql92_free(program);
    return matches;
}

#define check_match(expression, properties)                                                                  \
    ck_assert_msg(match(expression, properties), "%s does not match %s", expression, properties)
#define check_no_match(expression, properties)                                                               \
    ck_assert_msg(!match(expression, properties), "%s matches %s", expression, properties)

static void check_invalid(const char *expression, const char *text)
{
    struct sql92 *program = (struct sql92 *)&program;
    struct error error = {.message = ""};

    ck_assert_int_eq(sql92_compile(slice_of_text(expression), &program, &error), ERROR_INVALID);
    ck_assert_ptr_null(program);
    ck_assert_int_eq(error.code, ERROR_INVALID);
    ck_assert_str_eq(error.message, text);
    ck_assert_int_eq(sql92_compile(slice_of_text(expression), &program, NULL), ERROR_INVALID);
}

#define PARSE "org.apache.rocketmq.filter.parser.ParseException: "
#define LEXICAL "org.apache.rocketmq.filter.parser.TokenMgrError: "
#define RUNTIME "java.lang.RuntimeException: "

/* spec: store.md 10 (35) */
START_TEST(test_vectors)
{
    check_no_match("a > 3", "a=3.5");
    check_match("a > 3.0", "a=3.5");
    check_match("b IS NULL", "a=3.5");
    check_no_match("b <> 'x'", "a=3.5");
    check_no_match("NOT (b = 'x')", "a=3.5");
    check_invalid("a = 0.0", RUNTIME "0.0 is less than 4.9E-324");
    check_match("a IN ('3.5')", "a=3.5");
}
END_TEST

START_TEST(test_comparisons)
{
    check_match("a > 3", "a=4");
    check_no_match("a > 3", "a=3");
    check_match("a >= 3", "a=3");
    check_match("a < 3", "a=-7");
    check_no_match("a < 3", "a=3");
    check_match("a <= 3", "a=3");
    check_match("3 < a", "a=4");
    check_match("a = 3", "a=3");
    check_match("a = 3", "a=+03");
    check_match("a <> 3", "a=4");
    check_match("a = -3", "a=-3");
    check_match("a = - - +3", "a=3");
    check_match("a = 'x'", "a=x");
    check_no_match("a = 'x'", "a=X");
    check_match("a = 'it''s'", "a=it's");
    check_match("a <> 'x'", "a=y");
    check_match("a = b", "a=x;b=x");
    check_no_match("a = b", "a=1;b=1.0");
    check_match("a > b", "a=10;b=9");
    check_match("a >= b", "a=1;b= 1.0f ");
    check_no_match("a > b", "a=x;b=1");
    check_match("a BETWEEN 1 AND 3", "a=1");
    check_match("a BETWEEN 1 AND 3", "a=3");
    check_no_match("a BETWEEN 1 AND 3", "a=4");
    check_match("a NOT BETWEEN 1 AND 3", "a=0");
    check_match("a NOT BETWEEN 1 AND 3", "a=4");
    check_no_match("a NOT BETWEEN 1 AND 3", "a=3");
    check_match("a BETWEEN b AND c", "a=2;b=1.5;c=3");
    check_match("a NOT BETWEEN 5 AND 1", "a=3");
    check_match("2 BETWEEN a AND 3 AND TRUE", "a=1");
    check_match("a IN ('x', 'y')", "a=y");
    check_no_match("a IN ('x', 'y')", "a=z");
    check_match("a NOT IN ('x', 'y')", "a=z");
    check_match("a IN ('f', 'e', 'd', 'cc', 'b', 'a', '')", "a=cc");
    check_no_match("a IN ('f', 'e', 'd', 'cc', 'b', 'a', '')", "a=c");
    check_match("+(a) IN ('x')", "a=x");
    check_match("TAGS = 'TagA' AND KEYS IS NOT NULL", "KEYS=k;TAGS=TagA");
    check_match("a = '\xE4\xB8\xAD'", "a=\xE4\xB8\xAD");
}
END_TEST

START_TEST(test_three_values)
{
    check_match("NULL IS NULL", "");
    check_match("a IS NULL", "");
    check_no_match("a IS NULL", "a=x");
    check_match("a IS NOT NULL", "a=x");
    check_no_match("a IS NOT NULL", "");
    check_no_match("a = 1", "");
    check_no_match("NOT (a = 1)", "");
    check_no_match("NOT NULL", "");
    /* Only the left side's absence is "not known". */
    check_match("NOT (a = b)", "a=x");
    check_no_match("NOT (a = b)", "b=x");
    check_match("a = b", "");
    check_no_match("a > b", "a=1");
    check_no_match("a <= b", "b=1");
    check_match("a = 1 OR b = 1", "b=1");
    check_match("a = 1 OR b = 1", "a=1");
    check_no_match("a = 1 AND b = 1", "b=1");
    check_match("(a = 1 AND b = 1) IS NULL", "b=1");
    check_match("(a = 1 AND b = 2) = FALSE", "b=1");
    check_match("(b = 2 AND a = 1) = FALSE", "b=1");
    check_match("(a = 1 OR b = 2) IS NULL", "b=1");
    check_match("(b = 2 OR a = 1) IS NULL", "b=1");
    check_match("(a BETWEEN 1 AND 2) IS NULL", "");
    check_match("(b BETWEEN a AND 2) IS NULL", "b=1");
    check_match("(b BETWEEN a AND 2) = FALSE", "b=3");
    check_match("(b BETWEEN 2 AND a) = FALSE", "b=1");
    check_match("(b NOT BETWEEN a AND 2) = TRUE", "b=3");
    check_match("(b NOT BETWEEN a AND 2) IS NULL", "b=1");
    check_match("(a IN ('x')) IS NULL", "");
    check_match("(a NOT IN ('x')) IS NULL", "");
    check_match("(- a) IS NULL", "a=1");
    check_match("-'x' IS NULL", "");
}
END_TEST

/* What Java throws on, the whole expression does not survive - unless that side is not evaluated. */
START_TEST(test_failing)
{
    check_no_match("a > 3", "a=x");
    check_no_match("a = 3", "a=");
    check_no_match("a = 3", "a= 3");
    check_no_match("NOT (a = 3)", "a=3.0");
    check_no_match("a > 3 OR b = 1", "a=x;b=1");
    check_match("b = 1 OR a > 3", "a=x;b=1");
    check_no_match("NOT (b = 2 AND a > 3) AND a > 3", "a=x;b=1");
    check_match("NOT (b = 2 AND a > 3)", "a=x;b=1");
    check_match("(c > -(a = 3)) IS NULL", "a=x");
    check_no_match("(c > -(a = 3)) IS NULL", "a=x;c=1");
    check_no_match("a < 2147483647", "a=2147483648");
    check_match("a < 2147483648", "a=2147483647");
    check_no_match("a < 2147483648", "a=9223372036854775808");
    check_match("a < 9223372036854775807", "a=9223372036854775806");
    check_match("a > -9223372036854775807", "a=9223372036854775807");
    /* 3L is an int all the same */
    check_no_match("a = 3L", "a=2147483648");
    /* A Boolean on the left of text is a bad cast. */
    check_match("a = TRUE", "a=true");
    check_match("a = TRUE", "a=TRUE");
    check_match("a = FALSE", "a=no");
    check_no_match("TRUE = a", "a=true");
    check_no_match("NOT (TRUE = a)", "a=true");
    check_no_match("NOT ((a = 'x') = a)", "a=x");
    check_match("NOT (1 = TRUE)", "");
}
END_TEST

START_TEST(test_conditions)
{
    check_match("TRUE", "");
    check_no_match("FALSE", "");
    check_no_match("NULL", "");
    check_no_match("a", "a=true");
    check_match("NOT a", "a=true");
    check_no_match("NOT a", "");
    check_match("NOT a AND NOT b", "a=1;b=1");
    check_match("NOT a = TRUE", "a=x"); /* (NOT a) = TRUE */
    check_match("a = 1 = TRUE", "a=1");
    check_match("a = 1 OR b = 1 AND c = 1", "a=1");
    check_no_match("(a = 1 OR b = 1) AND c = 1", "a=1");
    check_match("a IS NULL IS NOT NULL", "");
    check_match("((((a))) = ((1)))", "a=1");
    check_match("a between 1 and 3 and B iN ('x') oR not True", "a=1;B=x");
    check_no_match("A = 1", "a=1");
    check_match("$a_1 = 1 AND _ = 2", "$a_1=1;_=2");
}
END_TEST

START_TEST(test_lexical)
{
    check_match("a/**/=/* * / ** */1", "a=1");
    check_match("a --=\n = --\r 1", "a=1");
    check_match("a = 1 -- no line end, so these are two minus signs", "a=1");
    check_match("\ta\n=\r\n\f1 ", "a=1");
    check_match("a>=1 AND a<=1 AND a<>2", "a=1");
    check_match("a = .5 AND a = 5e-1 AND a = 5.E-1 AND a = 00.5", "a=0.5");
    check_match("a = 1.", "a=1");
    check_match("a = 10l AND a = 10L AND a = 1e1", "a=10");
    check_match("a = ''''", "a='");
    check_match("a = '--/*'", "a=--/*");
    check_match("isnull = 1 AND nota = 2", "isnull=1;nota=2");
    /* Complete in front of what does not continue it: the rest is not even read. */
    check_match("a = 1 b", "a=1");
    check_match("a = 1)", "a=1");
    check_match("a = 1 b ~", "a=1");
    check_match("a = 1 'x''", "a=1");
    check_match("a = 0L", "a=0");
    check_match("a = 01", "a=0");
    check_match("a IS NULL > 3", "");
    check_match("a IS NULL NOT 3", "");
    check_match("a = 5f", "a=5");
}
END_TEST

START_TEST(test_properties)
{
    check_match("a = 1", "b=2;a=1;c=3");
    check_match("a = 1", "a=2;a=1");
    check_no_match("a = 1", "a=1;a=2");
    check_match("a = 1", "a=1;");
    check_match("a = 1", ";;a=1");
    check_match("a IS NULL", "a=");
    check_match("a IS NULL", "a");
    check_match("a IS NULL", "=a");
    check_match("a IS NULL", "aa=1;A=1");
    check_match("a = 1", "a=1;a=");
    check_match("a = 'b\1c'", "a=b=c");
}
END_TEST

START_TEST(test_errors)
{
    check_invalid("", PARSE "Encountered \"<EOF>\" at line 0, column 0.");
    check_invalid("a =", PARSE "Encountered \"<EOF>\" at line 1, column 3.");
    check_invalid("(a", PARSE "Encountered \"<EOF>\" at line 1, column 2.");
    check_invalid("a = )", PARSE "Encountered \" \")\" \") \"\" at line 1, column 5.");
    check_invalid("a IS x", PARSE "Encountered \" <ID> \"x \"\" at line 1, column 6.");
    check_invalid("a NOT x", PARSE "Encountered \" \"NOT\" \"NOT \"\" at line 1, column 3.");
    check_invalid("a\n IN (1)", PARSE "Encountered \" <DECIMAL_LITERAL> \"1 \"\" at line 2, column 6.");
    check_invalid("a IN ('it''s' 'x')",
                  PARSE "Encountered \" <STRING_LITERAL> \"\\'x\\' \"\" at line 1, column 15.");
    check_invalid("a IN ()", PARSE "Encountered \" \")\" \") \"\" at line 1, column 7.");
    check_invalid("a BETWEEN 1 OR 2", PARSE "Encountered \" \"OR\" \"OR \"\" at line 1, column 13.");
    check_invalid("+(a b)", PARSE "Encountered \" \"+\" \"+ \"\" at line 1, column 1.");
    check_invalid("3", PARSE "Expression will not result in a boolean value: 3");
    check_invalid("a AND 'it''s'", PARSE "Expression will not result in a boolean value: 'it''s'");
    check_invalid("NOT 5000000000L", PARSE "Expression will not result in a boolean value: 5000000000");
    check_invalid("-a", PARSE "Expression will not result in a boolean value: -a");
    check_invalid("a ~ 1",
                  LEXICAL "Lexical error at line 1, column 3.  Encountered: \"~\" (126), after : \"\"");
    check_invalid("a = 1 ~", LEXICAL "Lexical error at line 1, column 8.  Encountered: <EOF> after : \"\"");
    check_invalid("a = 'x",
                  LEXICAL "Lexical error at line 1, column 7.  Encountered: <EOF> after : \"\\'x\"");
    check_invalid("a = '", LEXICAL "Lexical error at line 1, column 6.  Encountered: <EOF> after : \"\"");
    check_invalid("a /* x",
                  LEXICAL "Lexical error at line 1, column 7.  Encountered: <EOF> after : \"/* x\"");
    check_invalid("a= /xy",
                  LEXICAL "Lexical error at line 1, column 5.  Encountered: \"x\" (120), after : \"/\"");
    check_invalid("a..b",
                  LEXICAL "Lexical error at line 1, column 3.  Encountered: \".\" (46), after : \".\"");
    check_invalid("a='\t'\t~ ",
                  LEXICAL "Lexical error at line 1, column 17.  Encountered: \"~\" (126), after : \"\"");
    check_invalid("a = \xE4\xB8\xAD b", LEXICAL
                  "Lexical error at line 1, column 5.  Encountered: \"\\u4e2d\" (20013), after : \"\"");
    check_invalid("a = NULL", RUNTIME "'NULL' cannot be compared.");
    check_invalid("TRUE = 3", RUNTIME "'TRUE' cannot be compared with '3'");
    check_invalid("a > 'x'", RUNTIME "Value ''x'' cannot be compared.");
    check_invalid("false < a", RUNTIME "Value 'FALSE' cannot be compared.");
    check_invalid("a > NULL", RUNTIME "Value 'NULL' cannot be compared.");
    check_invalid("a > 1 > 2", RUNTIME "Value 'a > 1' cannot be compared.");
    check_invalid("NOT a > 1", RUNTIME "Value 'NOT a' cannot be compared.");
    check_invalid("a BETWEEN 3 AND 1", RUNTIME
                  "Illegal values of between, left value(3) must less than or equal to right value(1)");
    check_invalid("a BETWEEN NULL AND 1", RUNTIME "Illegal values of between, values can not be null!");
    check_invalid("a BETWEEN 'a' AND 'b'", RUNTIME "Value ''a'' cannot be compared.");
    check_invalid("a BETWEEN 'b' AND 'a'", RUNTIME
                  "Illegal values of between, left value(b) must less than or equal to right value(a)");
    check_invalid("a BETWEEN 'x' AND 3", RUNTIME "java.lang.NumberFormatException: For input string: \"x\"");
    check_invalid("'x' BETWEEN 1 AND 3", RUNTIME "Value ''x'' cannot be compared.");
    check_invalid("NOT a IN ('x')", RUNTIME "Expected a property for In expression, got: NOT a");
    check_invalid("'x' NOT IN ('x')", RUNTIME "Expected a property for In expression, got: 'x'");
    check_invalid("a = 9223372036854775808",
                  "java.lang.NumberFormatException: For input string: \"9223372036854775808\"");
    check_invalid("a = 1e400", RUNTIME "1e400 is greater than 1.7976931348623157E308");
    check_invalid("a = 1e-400", RUNTIME "1e-400 is less than 4.9E-324");
}
END_TEST

/* word, that often; then end. */
static char *repeat(const char *word, size_t times, const char *end)
{
    size_t size = strlen(word);
    char *text = malloc(size * times + strlen(end) + 1);
    ck_assert_ptr_nonnull(text);
    for (size_t i = 0; i < times; i++)
        memcpy(text + i * size, word, size);
    strcpy(text + size * times, end);
    return text;
}

static int compile(const char *text)
{
    struct sql92 *program;
    struct error error = {.message = ""};
    int rv = sql92_compile(slice_of_text(text), &program, &error);
    ck_assert(rv == 0 || error.message[0] != '\0');
    sql92_free(program);
    return rv;
}

START_TEST(test_limits)
{
    char *text = repeat("a=1 OR ", SQL92_EXPRESSION_MAX / 7 - 1, "a  =  '24'");
    ck_assert_uint_eq(strlen(text), SQL92_EXPRESSION_MAX - 1);
    check_match(text, "a=24");
    check_match(text, "a=1");
    free(text);
    text = repeat("a=1 OR ", SQL92_EXPRESSION_MAX / 7 - 1, "a  =  '1234'");
    check_invalid(text, "SQL92 expression of 16385 bytes, at most 16384 are possible");
    free(text);

    text = repeat("NOT ", 901, "a");
    check_match(text, "a=1");
    free(text);
    text = repeat("NOT ", 1100, "a");
    check_invalid(text, "SQL92 expression is nested too deep");
    free(text);
    text = repeat("(", 1100, "a");
    check_invalid(text, "SQL92 expression is nested too deep");
    free(text);
    text = repeat("a = 1 OR (", SQL92_DEPTH_MAX - 1, "a");
    check_invalid(
        text,
        "org.apache.rocketmq.filter.parser.ParseException: Encountered \"<EOF>\" at line 1, column 1271.");
    free(text);
    text = repeat("a = 1 OR (", SQL92_DEPTH_MAX, "a");
    check_invalid(text, "SQL92 expression is nested too deep");
    free(text);

    text = malloc(SQL92_NAMES_MAX * 16);
    ck_assert_ptr_nonnull(text);
    for (int over = 0; over < 2; over++) {
        size_t size = 0;
        for (size_t i = 0; i < SQL92_NAMES_MAX + (size_t)over; i++)
            size += (size_t)sprintf(text + size, "%sn%zu = 1", i == 0 ? "" : " OR ", i * 37 % 1009);
        if (over)
            check_invalid(text, "SQL92 expression names more than 128 properties");
        else
            check_match(text, "n0=0;n37=0;n74=1"); /* 0 = 1 is FALSE, the others NULL */
    }
    free(text);

    text = repeat("0", JAVA_DOUBLE_TEXT_MAX, "");
    char *long_number = malloc(2 * JAVA_DOUBLE_TEXT_MAX);
    ck_assert_ptr_nonnull(long_number);
    sprintf(long_number, "a = %s.5", text + 2);
    ck_assert_int_eq(compile(long_number), 0);
    sprintf(long_number, "a = %s.5", text);
    ck_assert_int_eq(compile(long_number), ERROR_INVALID);
    free(long_number);
    free(text);
}
END_TEST

/* Errors quote long pieces up to a whole character. */
START_TEST(test_long_quotes)
{
    struct sql92 *program;
    struct error error;
    char text[3000];

    for (int shift = 0; shift < 4; shift++) {
        strcpy(text, "a > '");
        memset(text + 5, 'x', 100);
        text[105 + shift] = '\0';
        memset(text + 105, 'x', (size_t)shift);
        for (int i = 0; i < 200; i++)
            strcat(text, "\xE4\xB8\xAD");
        strcat(text, "'");
        ck_assert_int_eq(sql92_compile(slice_of_text(text), &program, &error), ERROR_INVALID);
        ck_assert_msg(strstr(error.message, "\xAD' cannot") != NULL ||
                          strstr(error.message, "\xAD'' cannot") != NULL,
                      "%s", error.message);
        memmove(text + 2, "  ", 2);
        ck_assert_int_eq(sql92_compile(slice_of_text(text), &program, NULL), 0);
        sql92_free(program);
    }
}
END_TEST

static bool is_integer(const char *text, int64_t expected)
{
    int64_t value = 0;
    return java_integer_parse(slice_of_text(text), INT64_MIN, INT64_MAX, &value) && value == expected;
}

START_TEST(test_integers)
{
    int64_t value;
    static const char *const bad[] = {"",
                                      "-",
                                      "+",
                                      " 1",
                                      "1 ",
                                      "1.0",
                                      "0x1",
                                      "1L",
                                      "--1",
                                      "1-",
                                      "9223372036854775808",
                                      "-9223372036854775809",
                                      "99999999999999999999999",
                                      "\xD9",
                                      "\xF0\x9D\x9F\x9B"};

    ck_assert(is_integer("0", 0) && is_integer("-0", 0) && is_integer("+7", 7) &&
              is_integer("0000000000000000000000012", 12));
    ck_assert(is_integer("9223372036854775807", INT64_MAX) && is_integer("-9223372036854775808", INT64_MIN));
    ck_assert(is_integer("\xD9\xA3"
                         "0\xEF\xBC\x91",
                         301)); /* Arabic-Indic 3, fullwidth 1 */
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_msg(!java_integer_parse(slice_of_text(bad[i]), INT64_MIN, INT64_MAX, &value), "%s", bad[i]);
    ck_assert(java_integer_parse(SLICE_LITERAL("-2147483648"), INT32_MIN, INT32_MAX, &value) &&
              value == INT32_MIN);
    ck_assert(!java_integer_parse(SLICE_LITERAL("2147483648"), INT32_MIN, INT32_MAX, &value));
    ck_assert(!java_integer_parse(SLICE_LITERAL("-2147483649"), INT32_MIN, INT32_MAX, &value));
}
END_TEST

static bool is_double(const char *text, double expected)
{
    double value = 0;
    return java_double_parse(slice_of_text(text), &value) && java_double_compare(value, expected) == 0;
}

START_TEST(test_doubles)
{
    double value;
    static const char *const bad[] = {"",     " ",        ".",     "-",    "e1",     ".e1", "1e",
                                      "1e+",  "1.2.3",    "1ff",   "1 f",  "nan",    "inf", "INFINITY",
                                      "0x1",  "0x",       "0x.p1", "0x1p", "0x1p1x", "1_0", "1,5",
                                      "NaNf", "\xD9\xA3", "1e1.5", "+-1"};

    ck_assert(is_double("3.5", 3.5) && is_double(" \t-3.5\n", -3.5) && is_double("1e3", 1000) &&
              is_double("1.5E-3f", 0.0015));
    ck_assert(is_double("1d", 1) && is_double("1F", 1) && is_double(".5D", 0.5) && is_double("5.", 5) &&
              is_double("+007.25", 7.25));
    ck_assert(is_double("-0", -0.0) && !is_double("-0", 0.0) && is_double("0e99999999999", 0.0));
    ck_assert(is_double("NaN", __builtin_nan("")) && is_double("-Infinity", -__builtin_inf()));
    ck_assert(is_double("1e99999999999", __builtin_inf()) && is_double("1e-99999999999", 0));
    ck_assert(is_double("0x1.8p1", 3) && is_double("-0X.8P+4d", -8) && is_double("0x1.p-1", 0.5) &&
              is_double("0x10p0", 16));
    ck_assert(is_double("9007199254740993", 9007199254740992.0) &&
              is_double("9007199254740993.0000000001", 9007199254740994.0));
    ck_assert(is_double("1.7976931348623157e308", 0x1.fffffffffffffp1023) &&
              is_double("1.7976931348623159e308", __builtin_inf()));
    ck_assert(is_double("4.9e-324", 0x1p-1074) && is_double("2.4703282292062327e-324", 0));
    ck_assert(is_double("571467629886647948e-3", 571467629886648.0)); /* no product of rounded factors */
    ck_assert(is_double("0.1", 0.1) &&
              is_double("123456789012345678901234567890e-10", 12345678901234567890.1234567890));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_msg(!java_double_parse(slice_of_text(bad[i]), &value), "%s", bad[i]);
    ck_assert_int_lt(java_double_compare(-0.0, 0.0), 0);
    ck_assert_int_gt(java_double_compare(__builtin_nan(""), __builtin_inf()), 0);
    ck_assert_int_eq(java_double_compare(1, 1), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sql92");
    TCase *tcase = tcase_create("sql92");

    tcase_add_test(tcase, test_vectors);
    tcase_add_test(tcase, test_comparisons);
    tcase_add_test(tcase, test_three_values);
    tcase_add_test(tcase, test_failing);
    tcase_add_test(tcase, test_conditions);
    tcase_add_test(tcase, test_lexical);
    tcase_add_test(tcase, test_properties);
    tcase_add_test(tcase, test_errors);
    tcase_add_test(tcase, test_limits);
    tcase_add_test(tcase, test_long_quotes);
    tcase_add_test(tcase, test_integers);
    tcase_add_test(tcase, test_doubles);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
