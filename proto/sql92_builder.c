/* What the grammar's actions do: they check operands as the create methods of RocketMQ's expression classes
 * do (ComparisonExpression, UnaryExpression, ConstantExpression 4.9) and append nodes to the program.
 */
#include "proto/sql92_program.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/java_number.h"
#include "proto/sql92_grammar.h"

#define RUNTIME_EXCEPTION "java.lang.RuntimeException: "
#define PARSE_EXCEPTION "org.apache.rocketmq.filter.parser.ParseException: "

#define QUOTED_MAX 120u /* bytes of the expression in an error */

static const struct sql92_part nothing;

static void fail(struct sql92_builder *builder, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void fail(struct sql92_builder *builder, int code, const char *format, ...)
{
    char text[sizeof builder->error->message];
    va_list arguments;

    if (builder->failed)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    builder->failed = error_set(builder->error, code, "%s", text);
}

/* At most QUOTED_MAX bytes, and no half character. */
static struct slice quoted(struct slice text)
{
    if (text.size > QUOTED_MAX) {
        text.size = QUOTED_MAX;
        while (text.size > 0 && (text.data[text.size] & 0xC0) == 0x80)
            text.size--;
    }
    return text;
}

static struct slice source(const struct sql92_builder *builder, struct sql92_token token)
{
    return slice_of(builder->text.data + token.start, token.end - token.start);
}

/* As a literal, quotes doubled again. */
static void encode(struct slice text, char out[QUOTED_MAX + 1])
{
    *out++ = '\'';
    for (size_t i = 0, room = QUOTED_MAX - 2; i < text.size && room >= 2; i++, room--) {
        if ((text.data[i] & 0xC0) != 0x80 && room < 4) /* a whole character may not fit */
            break;
        if (text.data[i] == '\'') {
            *out++ = '\'';
            room--;
        }
        *out++ = (char)text.data[i];
    }
    *out++ = '\'';
    *out = '\0';
}

/* As Java shows an operand, or a constant's bare value. What is more than a constant is shown as it was
 * written. */
static void describe(const struct sql92_builder *builder, struct sql92_part part, bool bare,
                     char out[QUOTED_MAX + 1])
{
    const struct sql92_node *node = &builder->program->nodes[part.node];
    struct slice text = source(builder, part.where);

    if (node->operator== SQL92_CONSTANT) {
        switch (node->constant.kind) {
        case SQL92_IS_NULL:
            text = SLICE_LITERAL("NULL");
            break;
        case SQL92_IS_BOOLEAN:
            text =
                slice_of_text(node->constant.boolean ? (bare ? "true" : "TRUE") : (bare ? "false" : "FALSE"));
            break;
        case SQL92_IS_INTEGER:
        case SQL92_IS_LONG:
            snprintf(out, QUOTED_MAX + 1, "%lld", (long long)node->constant.integer);
            return;
        case SQL92_IS_STRING:
            text = node->constant.string;
            if (!bare) {
                encode(text, out);
                return;
            }
            break;
        case SQL92_IS_DOUBLE:
            break;
        }
    }
    text = quoted(text);
    memcpy(out, text.data, text.size);
    out[text.size] = '\0';
}

static uint32_t add(struct sql92_builder *builder, enum sql92_operator operator, uint32_t slot)
{
    struct sql92 *program = builder->program;

    if (program->node_count == builder->node_capacity) {
        uint32_t capacity = builder->node_capacity == 0 ? 16 : 2 * builder->node_capacity;
        struct sql92_node *nodes = realloc(program->nodes, capacity * sizeof *nodes);
        if (nodes == NULL) {
            fail(builder, ERROR_NO_MEMORY, "SQL92 expression");
            return 0;
        }
        program->nodes = nodes;
        builder->node_capacity = capacity;
    }
    program->nodes[program->node_count] =
        (struct sql92_node){.operator=(uint8_t) operator, .slot =(uint16_t) slot};
    return program->node_count++;
}

static uint32_t add_leaf(struct sql92_builder *builder, enum sql92_operator operator)
{
    if (builder->height == SQL92_DEPTH_MAX) {
        sql92_too_deep(builder);
        return 0;
    }
    return add(builder, operator, builder->height++);
}

/* Over `operands` nodes, which it replaces. The first of them may skip to it. */
static struct sql92_part add_over(struct sql92_builder *builder, enum sql92_operator operator,
                                  uint32_t operands, uint32_t first, enum sql92_skip skip,
                                  struct sql92_token where)
{
    assert(builder->height >= operands);
    builder->height -= operands - 1;
    uint32_t node = add(builder, operator, builder->height - 1);
    if (builder->failed)
        return nothing;
    builder->program->nodes[first].skip = (uint8_t)skip;
    builder->program->nodes[first].parent = node;
    return (struct sql92_part){node, where};
}

static struct sql92_token from_to(struct sql92_token first, struct sql92_token last)
{
    return (struct sql92_token){first.start, last.end};
}

static bool is_constant(const struct sql92_builder *builder, struct sql92_part part, enum sql92_kind kind)
{
    const struct sql92_node *node = &builder->program->nodes[part.node];
    return node->operator== SQL92_CONSTANT && node->constant.kind == kind;
}

/* RocketMQ's BooleanExpression. */
static bool is_condition(const struct sql92_builder *builder, struct sql92_part part)
{
    switch (builder->program->nodes[part.node].operator) {
    case SQL92_CONSTANT:
        return is_constant(builder, part, SQL92_IS_BOOLEAN) || is_constant(builder, part, SQL92_IS_NULL);
    case SQL92_PROPERTY:
    case SQL92_NEGATE:
        return false;
    default:
        return true;
    }
}

/* Makes a condition of what may be one. */
static void to_condition(struct sql92_builder *builder, struct sql92_part part)
{
    char text[QUOTED_MAX + 1];

    if (builder->failed || is_condition(builder, part))
        return;
    struct sql92_node *node = &builder->program->nodes[part.node];
    if (node->operator== SQL92_PROPERTY) {
        node->operator= SQL92_PROPERTY_CAST;
        return;
    }
    describe(builder, part, false, text);
    fail(builder, ERROR_INVALID, PARSE_EXCEPTION "Expression will not result in a boolean value: %s", text);
}

/* The copy of a string literal in the program, without quotes and with '' as ' (in place: it only gets
 * shorter). */
static struct slice decode(struct sql92_builder *builder, struct sql92_token token)
{
    char *from = builder->program->text + token.start + 1;
    char *end = builder->program->text + token.end - 1;
    char *to = from;
    char *start = from;

    while (from < end) {
        *to = *from++;
        if (*to++ == '\'')
            from++;
    }
    return slice_of(start, (size_t)(to - start));
}

static void integer_literal(struct sql92_builder *builder, struct sql92_token token,
                            struct sql92_value *value)
{
    struct slice text = source(builder, token);

    if ((text.data[text.size - 1] | 0x20) == 'l')
        text.size--;
    if (java_integer_parse(text, INT64_MIN, INT64_MAX, &value->integer)) {
        value->kind = value->integer <= INT32_MAX ? SQL92_IS_INTEGER : SQL92_IS_LONG;
        return;
    }
    text = quoted(text);
    fail(builder, ERROR_INVALID, "java.lang.NumberFormatException: For input string: \"%.*s\"",
         (int)text.size, (const char *)text.data);
}

static void float_literal(struct sql92_builder *builder, struct sql92_token token, struct sql92_value *value)
{
    struct slice text = source(builder, token);
    bool parsed = java_double_parse(text, &value->floating);

    value->kind = SQL92_IS_DOUBLE;
    text = quoted(text);
    if (!parsed)
        fail(builder, ERROR_INVALID, "a number of more than %u digits: %.*s", JAVA_DOUBLE_TEXT_MAX,
             (int)text.size, (const char *)text.data);
    else if (value->floating > 0x1.fffffffffffffp1023)
        fail(builder, ERROR_INVALID, RUNTIME_EXCEPTION "%.*s is greater than 1.7976931348623157E308",
             (int)text.size, (const char *)text.data);
    else if (value->floating < 0x1p-1074) /* zero, that is */
        fail(builder, ERROR_INVALID, RUNTIME_EXCEPTION "%.*s is less than 4.9E-324", (int)text.size,
             (const char *)text.data);
}

struct sql92_part sql92_literal(struct sql92_builder *builder, int kind, struct sql92_token token)
{
    struct sql92_value value = {.kind = SQL92_IS_NULL};

    if (builder->failed)
        return nothing;
    if (kind == SQL92_TOKEN_INTEGER) {
        integer_literal(builder, token, &value);
    } else if (kind == SQL92_TOKEN_FLOAT) {
        float_literal(builder, token, &value);
    } else if (kind == SQL92_TOKEN_STRING) {
        value.kind = SQL92_IS_STRING;
        value.string = decode(builder, token);
    } else if (kind != SQL92_TOKEN_NULL) {
        value.kind = SQL92_IS_BOOLEAN;
        value.boolean = kind == SQL92_TOKEN_TRUE;
    }
    uint32_t node = add_leaf(builder, SQL92_CONSTANT);
    if (builder->failed)
        return nothing;
    builder->program->nodes[node].constant = value;
    return (struct sql92_part){node, token};
}

/* The property's number; a new one when the expression did not name it before. */
static uint32_t name_number(struct sql92_builder *builder, struct slice text)
{
    struct sql92 *program = builder->program;
    uint32_t at = 0;

    while (at < program->name_count && sql92_slice_order(program->names[at].text, text) < 0)
        at++;
    if (at < program->name_count && slice_equal(program->names[at].text, text))
        return program->names[at].number;
    if (program->name_count == SQL92_NAMES_MAX) {
        fail(builder, ERROR_INVALID, "SQL92 expression names more than %u properties", SQL92_NAMES_MAX);
        return 0;
    }
    memmove(&program->names[at + 1], &program->names[at],
            (program->name_count - at) * sizeof program->names[0]);
    program->names[at] = (struct sql92_name){text, program->name_count};
    return program->name_count++;
}

struct sql92_part sql92_property(struct sql92_builder *builder, struct sql92_token token)
{
    if (builder->failed)
        return nothing;
    uint32_t name =
        name_number(builder, slice_of(builder->program->text + token.start, token.end - token.start));
    uint32_t node = add_leaf(builder, SQL92_PROPERTY);
    if (builder->failed)
        return nothing;
    builder->program->nodes[node].name = name;
    return (struct sql92_part){node, token};
}

struct sql92_part sql92_group(struct sql92_token open, struct sql92_part inner, struct sql92_token close)
{
    inner.where = from_to(open, close);
    return inner;
}

struct sql92_part sql92_negate(struct sql92_builder *builder, struct sql92_token sign,
                               struct sql92_part operand)
{
    if (builder->failed)
        return nothing;
    return add_over(builder, SQL92_NEGATE, 1, operand.node, SQL92_SKIP_NEVER, from_to(sign, operand.where));
}

struct sql92_part sql92_invert(struct sql92_builder *builder, struct sql92_token word,
                               struct sql92_part operand)
{
    to_condition(builder, operand);
    if (builder->failed)
        return nothing;
    return add_over(builder, SQL92_INVERT, 1, operand.node, SQL92_SKIP_NEVER, from_to(word, operand.where));
}

struct sql92_part sql92_equal(struct sql92_builder *builder, enum sql92_operator operator,
                              struct sql92_part left, struct sql92_part right)
{
    char first[QUOTED_MAX + 1];
    char second[QUOTED_MAX + 1];

    if (builder->failed)
        return nothing;
    if (is_constant(builder, left, SQL92_IS_NULL) || is_constant(builder, right, SQL92_IS_NULL)) {
        fail(builder, ERROR_INVALID, RUNTIME_EXCEPTION "'NULL' cannot be compared.");
    } else if (is_constant(builder, left, SQL92_IS_BOOLEAN) && !is_condition(builder, right) &&
               builder->program->nodes[right.node].operator== SQL92_CONSTANT) {
        describe(builder, left, false, first);
        describe(builder, right, false, second);
        fail(builder, ERROR_INVALID, RUNTIME_EXCEPTION "'%s' cannot be compared with '%s'", first, second);
    }
    if (builder->failed)
        return nothing;
    return add_over(builder, operator, 2, left.node, SQL92_SKIP_NEVER, from_to(left.where, right.where));
}

struct sql92_part sql92_null_test(struct sql92_builder *builder, enum sql92_operator operator,
                                  struct sql92_part left, struct sql92_token end)
{
    if (builder->failed)
        return nothing;
    return add_over(builder, operator, 1, left.node, SQL92_SKIP_NEVER, from_to(left.where, end));
}

/* Only numbers have an order: constants must be some; properties and what a minus stands before are seen when
 * evaluated. */
static void check_ordered(struct sql92_builder *builder, struct sql92_part part)
{
    char text[QUOTED_MAX + 1];

    if (builder->failed)
        return;
    if (!is_condition(builder, part) && !is_constant(builder, part, SQL92_IS_STRING))
        return;
    describe(builder, part, false, text);
    fail(builder, ERROR_INVALID, RUNTIME_EXCEPTION "Value '%s' cannot be compared.", text);
}

struct sql92_part sql92_order(struct sql92_builder *builder, enum sql92_operator operator,
                              struct sql92_part left, struct sql92_part right)
{
    check_ordered(builder, left);
    check_ordered(builder, right);
    if (builder->failed)
        return nothing;
    return add_over(builder, operator, 2, left.node, SQL92_SKIP_IF_NULL, from_to(left.where, right.where));
}

struct sql92_part sql92_low(struct sql92_builder *builder, enum sql92_operator operator,
                            struct sql92_part value, struct sql92_part low)
{
    if (builder->failed)
        return nothing;
    uint32_t node = add(builder, operator, builder->height - 1);
    if (builder->failed)
        return nothing;
    builder->program->nodes[node].value = value;
    /* The lower bound is the node in front of this one. */
    return (struct sql92_part){node, low.where};
}

static void check_bounds(struct sql92_builder *builder, struct sql92_part low, struct sql92_part high)
{
    const struct sql92_node *first = &builder->program->nodes[low.node];
    const struct sql92_node *second = &builder->program->nodes[high.node];
    char low_text[QUOTED_MAX + 1];
    char high_text[QUOTED_MAX + 1];
    int order;

    if (first->operator!= SQL92_CONSTANT || second->operator!= SQL92_CONSTANT)
        return;
    describe(builder, low, true, low_text);
    describe(builder, high, true, high_text);
    if (first->constant.kind == SQL92_IS_NULL || second->constant.kind == SQL92_IS_NULL)
        fail(builder, ERROR_INVALID, RUNTIME_EXCEPTION "Illegal values of between, values can not be null!");
    else if (!sql92_compare(&second->constant, &first->constant, &order) &&
             second->constant.kind == SQL92_IS_BOOLEAN)
        fail(builder, ERROR_INVALID, "java.lang.ClassCastException: %s and '%s'", high_text, low_text);
    else if (!sql92_compare(&second->constant, &first->constant, &order))
        fail(builder, ERROR_INVALID,
             RUNTIME_EXCEPTION "java.lang.NumberFormatException: For input string: \"%s\"",
             first->constant.kind == SQL92_IS_STRING ? low_text : high_text);
    else if (order < 0)
        fail(builder, ERROR_INVALID,
             RUNTIME_EXCEPTION
             "Illegal values of between, left value(%s) must less than or equal to right value(%s)",
             low_text, high_text);
}

struct sql92_part sql92_between(struct sql92_builder *builder, enum sql92_operator operator,
                                struct sql92_part low, struct sql92_part high)
{
    if (builder->failed)
        return nothing;
    struct sql92_part bound = {low.node - 1, low.where};
    struct sql92_part value = builder->program->nodes[low.node].value;
    if (operator== SQL92_BETWEEN)
        check_bounds(builder, bound, high);
    check_ordered(builder, value);
    check_ordered(builder, bound);
    check_ordered(builder, high);
    if (builder->failed)
        return nothing;
    struct sql92_part whole =
        add_over(builder, operator, 3, value.node, SQL92_SKIP_IF_NULL, from_to(value.where, high.where));
    if (builder->failed)
        return nothing;
    struct sql92_node *node = &builder->program->nodes[low.node];
    node->skip = operator== SQL92_BETWEEN ? SQL92_SKIP_IF_FALSE : SQL92_SKIP_IF_TRUE;
    node->parent = whole.node;
    return whole;
}

void sql92_item(struct sql92_builder *builder, bool first, struct sql92_token token)
{
    struct sql92 *program = builder->program;

    if (builder->failed)
        return;
    if (program->item_count == builder->item_capacity) {
        uint32_t capacity = builder->item_capacity == 0 ? 8 : 2 * builder->item_capacity;
        struct slice *items = realloc(program->items, capacity * sizeof *items);
        if (items == NULL) {
            fail(builder, ERROR_NO_MEMORY, "SQL92 expression");
            return;
        }
        program->items = items;
        builder->item_capacity = capacity;
    }
    if (first)
        builder->list_first = program->item_count;
    program->items[program->item_count++] = decode(builder, token);
}

static int item_order(const void *a, const void *b)
{
    return sql92_slice_order(*(const struct slice *)a, *(const struct slice *)b);
}

struct sql92_part sql92_in(struct sql92_builder *builder, enum sql92_operator operator,
                           struct sql92_part left, struct sql92_token end)
{
    struct sql92 *program = builder->program;
    char text[QUOTED_MAX + 1];

    if (builder->failed)
        return nothing;
    if (program->nodes[left.node].operator!= SQL92_PROPERTY) {
        describe(builder, left, false, text);
        fail(builder, ERROR_INVALID, RUNTIME_EXCEPTION "Expected a property for In expression, got: %s",
             text);
        return nothing;
    }
    struct sql92_part whole =
        add_over(builder, operator, 1, left.node, SQL92_SKIP_NEVER, from_to(left.where, end));
    if (builder->failed)
        return nothing;
    struct sql92_node *node = &program->nodes[whole.node];
    node->list.first = builder->list_first;
    node->list.count = program->item_count - builder->list_first;
    qsort(program->items + node->list.first, node->list.count, sizeof *program->items, item_order);
    return whole;
}

struct sql92_part sql92_logic(struct sql92_builder *builder, enum sql92_operator operator,
                              struct sql92_part left, struct sql92_part right)
{
    to_condition(builder, left);
    to_condition(builder, right);
    if (builder->failed)
        return nothing;
    return add_over(builder, operator, 2,
                    left.node, operator== SQL92_CONJUNCTION ? SQL92_SKIP_IF_FALSE : SQL92_SKIP_IF_TRUE,
                    from_to(left.where, right.where));
}

void sql92_finish(struct sql92_builder *builder, struct sql92_part condition)
{
    to_condition(builder, condition);
    assert(builder->failed || (builder->height == 1 && condition.node + 1 == builder->program->node_count));
}

void sql92_plus(struct sql92_builder *builder, struct sql92_token sign)
{
    if (builder->plus_count++ == 0)
        builder->first_plus = sign;
}

/* As JavaCC names tokens. */
static const char *kind_image(int kind, struct slice text, char quoted_text[8])
{
    switch (kind) {
    case SQL92_TOKEN_ID:
        return "<ID>";
    case SQL92_TOKEN_INTEGER:
        return "<DECIMAL_LITERAL>";
    case SQL92_TOKEN_FLOAT:
        return "<FLOATING_POINT_LITERAL>";
    case SQL92_TOKEN_STRING:
        return "<STRING_LITERAL>";
    case SQL92_TOKEN_NOT:
        return "\"NOT\"";
    case SQL92_TOKEN_AND:
        return "\"AND\"";
    case SQL92_TOKEN_OR:
        return "\"OR\"";
    case SQL92_TOKEN_BETWEEN:
        return "\"BETWEEN\"";
    case SQL92_TOKEN_IN:
        return "\"IN\"";
    case SQL92_TOKEN_IS:
        return "\"IS\"";
    case SQL92_TOKEN_TRUE:
        return "\"TRUE\"";
    case SQL92_TOKEN_FALSE:
        return "\"FALSE\"";
    case SQL92_TOKEN_NULL:
        return "\"NULL\"";
    default:
        snprintf(quoted_text, 8, "\"%.*s\"", (int)text.size, (const char *)text.data);
        return quoted_text;
    }
}

static bool ends_operand(int kind)
{
    return kind == SQL92_TOKEN_ID || kind == SQL92_TOKEN_INTEGER || kind == SQL92_TOKEN_FLOAT ||
           kind == SQL92_TOKEN_STRING || kind == SQL92_TOKEN_TRUE || kind == SQL92_TOKEN_FALSE ||
           kind == SQL92_TOKEN_NULL || kind == SQL92_TOKEN_RP;
}

void sql92_syntax_error(struct sql92_builder *builder)
{
    int kind = builder->kinds[0];
    struct sql92_token token = builder->tokens[0];
    uint32_t line;
    uint32_t column;
    char sign[8];
    char text[QUOTED_MAX + 1];

    builder->stray = true;
    if (builder->failed)
        return;
    /* RocketMQ's parser looks ahead at these, and complains of them and not of what follows. */
    if (builder->plus_count > 0) {
        kind = SQL92_TOKEN_PLUS;
        token = builder->first_plus;
    } else if (builder->kinds[1] == SQL92_TOKEN_NOT && ends_operand(builder->kinds[2])) {
        kind = SQL92_TOKEN_NOT;
        token = builder->tokens[1];
    }
    if (kind == 0) {
        sql92_place(builder->text, (uint32_t)builder->text.size, &line, &column);
        error_set(builder->error, ERROR_INVALID,
                  PARSE_EXCEPTION "Encountered \"<EOF>\" at line %u, column %u.", line, column);
        return;
    }
    sql92_place(builder->text, token.start, &line, &column);
    sql92_escape(source(builder, token), text, sizeof text);
    error_set(builder->error, ERROR_INVALID,
              PARSE_EXCEPTION "Encountered \" %s \"%s \"\" at line %u, column %u.",
              kind_image(kind, source(builder, token), sign), text, line, column);
}

void sql92_too_deep(struct sql92_builder *builder)
{
    fail(builder, ERROR_INVALID, "SQL92 expression is nested too deep");
}
