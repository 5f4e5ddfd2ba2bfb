#include "proto/sql92.h"

#include <stdlib.h>

#include "proto/java_number.h"
#include "proto/message.h"
#include "proto/sql92_program.h"

static int parse(struct sql92_builder *builder)
{
    struct sql92_lexer lexer = {.text = builder->text};
    void *parser = sql92_grammarAlloc(malloc);

    if (parser == NULL)
        return error_set(builder->error, ERROR_NO_MEMORY, "SQL92 expression");
    while (!builder->accepted && builder->failed == 0) {
        struct sql92_token token;
        int kind = sql92_lexer_next(&lexer, &token, builder->error);
        if (kind == SQL92_LEXICAL_ERROR) {
            builder->failed = ERROR_INVALID;
            break;
        }
        builder->kinds[2] = builder->kinds[1];
        builder->kinds[1] = builder->kinds[0];
        builder->kinds[0] = kind;
        builder->tokens[1] = builder->tokens[0];
        builder->tokens[0] = token;
        sql92_grammar(parser, kind, token, builder);
        /* RocketMQ stops in front of what does not continue a complete expression, and reads no further. */
        if (builder->stray && kind != 0)
            sql92_grammar(parser, 0, token, builder);
        if (builder->stray && !builder->accepted && builder->failed == 0)
            builder->failed = ERROR_INVALID;
    }
    sql92_grammarFree(parser, free);
    return builder->failed;
}

int sql92_compile(struct slice expression, struct sql92 **program, struct error *error)
{
    struct error cause;
    struct sql92_builder builder = {.text = expression, .error = &cause};

    *program = NULL;
    if (expression.size > SQL92_EXPRESSION_MAX)
        return error_set(error, ERROR_INVALID, "SQL92 expression of %zu bytes, at most %u are possible",
                         expression.size, SQL92_EXPRESSION_MAX);
    builder.program = calloc(1, sizeof *builder.program);
    if (builder.program == NULL)
        return error_set(error, ERROR_NO_MEMORY, "SQL92 expression");
    builder.program->text = slice_to_text(expression);
    int rv = builder.program->text == NULL ? error_set(&cause, ERROR_NO_MEMORY, "SQL92 expression")
                                           : parse(&builder);
    if (rv != 0) {
        sql92_free(builder.program);
        return error_set(error, rv, "%s", cause.message);
    }
    *program = builder.program;
    return 0;
}

void sql92_free(struct sql92 *program)
{
    if (program == NULL)
        return;
    free(program->text);
    free(program->nodes);
    free(program->items);
    free(program);
}

/* Makes a number of text, of the type of `other`. */
static bool convert(struct sql92_value *text, const struct sql92_value *other)
{
    struct slice string = text->string;

    text->kind = other->kind;
    if (other->kind == SQL92_IS_DOUBLE)
        return java_double_parse(string, &text->floating);
    if (other->kind == SQL92_IS_INTEGER)
        return java_integer_parse(string, INT32_MIN, INT32_MAX, &text->integer);
    return java_integer_parse(string, INT64_MIN, INT64_MAX, &text->integer);
}

static bool is_true_text(struct slice text)
{
    return text.size == 4 && strncasecmp((const char *)text.data, "true", 4) == 0;
}

static double as_double(const struct sql92_value *value)
{
    return value->kind == SQL92_IS_DOUBLE ? value->floating : (double)value->integer;
}

static int string_order(struct slice a, struct slice b)
{
    size_t size = a.size < b.size ? a.size : b.size;
    int order = size == 0 ? 0 : memcmp(a.data, b.data, size);
    return order != 0 ? order : (a.size > b.size) - (a.size < b.size);
}

/* ComparisonExpression.__compare. */
bool sql92_compare(const struct sql92_value *left, const struct sql92_value *right, int *order)
{
    struct sql92_value converted;

    if (left->kind == SQL92_IS_STRING && right->kind == SQL92_IS_STRING) {
        *order = string_order(left->string, right->string);
        return true;
    }
    if (left->kind == SQL92_IS_BOOLEAN || right->kind == SQL92_IS_BOOLEAN) {
        bool left_is_true;
        *order = -1;
        if (right->kind != SQL92_IS_BOOLEAN)
            /* Java casts the Boolean to a String here. */
            return right->kind != SQL92_IS_STRING;
        if (left->kind == SQL92_IS_STRING)
            left_is_true = is_true_text(left->string);
        else if (left->kind == SQL92_IS_BOOLEAN)
            left_is_true = left->boolean;
        else
            return true;
        *order = (int)left_is_true - (int)right->boolean;
        return true;
    }
    if (left->kind == SQL92_IS_STRING || right->kind == SQL92_IS_STRING) {
        converted = left->kind == SQL92_IS_STRING ? *left : *right;
        if (!convert(&converted, left->kind == SQL92_IS_STRING ? right : left))
            return false;
        if (left->kind == SQL92_IS_STRING)
            left = &converted;
        else
            right = &converted;
    }
    if (left->kind == SQL92_IS_DOUBLE || right->kind == SQL92_IS_DOUBLE)
        *order = java_double_compare(as_double(left), as_double(right));
    else
        *order = (left->integer > right->integer) - (left->integer < right->integer);
    return true;
}

/* For <, <=, >, >= two texts are compared as floating point numbers. */
static bool compare_ordered(const struct sql92_value *left, const struct sql92_value *right, int *order)
{
    double first;
    double second;

    if (left->kind != SQL92_IS_STRING || right->kind != SQL92_IS_STRING)
        return sql92_compare(left, right, order);
    if (!java_double_parse(left->string, &first) || !java_double_parse(right->string, &second))
        return false;
    *order = java_double_compare(first, second);
    return true;
}

static struct sql92_value boolean(bool value)
{
    return (struct sql92_value){.kind = SQL92_IS_BOOLEAN, .boolean = value};
}

/* operator is one of the four, or what BETWEEN makes of them. */
static bool evaluate_order(enum sql92_operator operator, const struct sql92_value * left,
                           const struct sql92_value *right, struct sql92_value *result)
{
    int order;

    if (left->kind == SQL92_IS_NULL || right->kind == SQL92_IS_NULL) {
        *result = (struct sql92_value){.kind = SQL92_IS_NULL};
        return true;
    }
    if (!compare_ordered(left, right, &order))
        return false;
    switch (operator) {
    case SQL92_GREATER:
        *result = boolean(order > 0);
        break;
    case SQL92_GREATER_OR_EQUAL:
        *result = boolean(order >= 0);
        break;
    case SQL92_LESS:
        *result = boolean(order < 0);
        break;
    default:
        *result = boolean(order <= 0);
    }
    return true;
}

/* A missing right side is different from anything, a missing left side is not known to be. Two missing ones
 * are equal. */
static bool evaluate_equal(bool inverted, struct sql92_value *left, const struct sql92_value *right)
{
    int order;

    if (left->kind == SQL92_IS_NULL || right->kind == SQL92_IS_NULL) {
        if (left->kind != SQL92_IS_NULL || right->kind == SQL92_IS_NULL)
            *left = boolean((left->kind == right->kind) != inverted);
        return true;
    }
    if (!sql92_compare(left, right, &order))
        return false;
    *left = boolean((order == 0) != inverted);
    return true;
}

/* Both operands were needed: with `decisive` (FALSE for AND, TRUE for OR) on neither side, NULL on one makes
 * it NULL. */
static void evaluate_logic(bool decisive, struct sql92_value *left, const struct sql92_value *right)
{
    if (right->kind == SQL92_IS_BOOLEAN && right->boolean == decisive)
        *left = boolean(decisive);
    else if (left->kind == SQL92_IS_BOOLEAN)
        *left = *right;
}

static void negate(struct sql92_value *value)
{
    switch (value->kind) {
    case SQL92_IS_INTEGER:
        value->integer = (int32_t)(0 - (uint32_t)value->integer);
        break;
    case SQL92_IS_LONG:
        value->integer = (int64_t)(0 - (uint64_t)value->integer);
        break;
    case SQL92_IS_DOUBLE:
        value->floating = -value->floating;
        break;
    default:
        value->kind = SQL92_IS_NULL;
    }
}

static bool contains(const struct slice *items, uint32_t count, struct slice text)
{
    while (count > 0) {
        uint32_t middle = count / 2;
        int order = sql92_slice_order(items[middle], text);
        if (order == 0)
            return true;
        if (order < 0) {
            items += middle + 1;
            count -= middle + 1;
        } else {
            count = middle;
        }
    }
    return false;
}

/* Leaves the node's value in slot[0]; its operands are there and behind it. False when Java throws. */
static bool evaluate(const struct sql92 *program, const struct sql92_node *node,
                     const struct slice *properties, struct sql92_value *slot)
{
    switch ((enum sql92_operator)node->operator) {
    case SQL92_CONSTANT:
        *slot = node->constant;
        return true;
    case SQL92_PROPERTY:
        slot->kind = properties[node->name].data == NULL ? SQL92_IS_NULL : SQL92_IS_STRING;
        slot->string = properties[node->name];
        return true;
    case SQL92_PROPERTY_CAST:
        slot->kind = properties[node->name].data == NULL ? SQL92_IS_NULL : SQL92_IS_BOOLEAN;
        slot->boolean = false;
        return true;
    case SQL92_NEGATE:
        negate(slot);
        return true;
    case SQL92_INVERT:
        if (slot->kind == SQL92_IS_BOOLEAN)
            slot->boolean = !slot->boolean;
        return true;
    case SQL92_EQUAL:
    case SQL92_NOT_EQUAL:
        return evaluate_equal(node->operator== SQL92_NOT_EQUAL, slot, slot + 1);
    case SQL92_EQUALS_NULL:
    case SQL92_NOT_EQUALS_NULL:
        *slot = boolean((slot->kind == SQL92_IS_NULL) == (node->operator== SQL92_EQUALS_NULL));
        return true;
    case SQL92_GREATER:
    case SQL92_GREATER_OR_EQUAL:
    case SQL92_LESS:
    case SQL92_LESS_OR_EQUAL:
        return evaluate_order(node->operator, slot, slot + 1, slot);
    case SQL92_LOW:
        return evaluate_order(SQL92_GREATER_OR_EQUAL, slot - 1, slot, slot);
    case SQL92_NOT_LOW:
        return evaluate_order(SQL92_LESS, slot - 1, slot, slot);
    case SQL92_BETWEEN:
    case SQL92_NOT_BETWEEN:
        if (!evaluate_order(node->operator== SQL92_BETWEEN ? SQL92_LESS_OR_EQUAL : SQL92_GREATER, slot,
                            slot + 2, slot + 2))
            return false;
        *slot = slot[1];
        evaluate_logic(node->operator== SQL92_NOT_BETWEEN, slot, slot + 2);
        return true;
    case SQL92_ANY_OF:
    case SQL92_NONE_OF:
        if (slot->kind == SQL92_IS_STRING)
            *slot = boolean(contains(program->items + node->list.first, node->list.count, slot->string) ==
                            (node->operator== SQL92_ANY_OF));
        return true;
    case SQL92_CONJUNCTION:
    case SQL92_DISJUNCTION:
        evaluate_logic(node->operator== SQL92_DISJUNCTION, slot, slot + 1);
        return true;
    }
    return false;
}

static bool skips(const struct sql92_node *node, const struct sql92_value *value)
{
    switch ((enum sql92_skip)node->skip) {
    case SQL92_SKIP_NEVER:
        return false;
    case SQL92_SKIP_IF_NULL:
        return value->kind == SQL92_IS_NULL;
    case SQL92_SKIP_IF_FALSE:
        return value->kind == SQL92_IS_BOOLEAN && !value->boolean;
    case SQL92_SKIP_IF_TRUE:
        return value->kind == SQL92_IS_BOOLEAN && value->boolean;
    }
    return false;
}

/* One walk for all names; of several properties with the same name the last one counts. */
static void find_properties(const struct sql92 *program, struct slice properties, struct slice *found)
{
    struct slice name;
    struct slice value;
    size_t at = 0;

    memset(found, 0, program->name_count * sizeof *found);
    while (message_property_next(properties, &at, &name, &value)) {
        uint32_t first = 0;
        uint32_t count = program->name_count;
        while (count > 0) {
            const struct sql92_name *middle = &program->names[first + count / 2];
            int order = sql92_slice_order(middle->text, name);
            if (order == 0) {
                found[middle->number] = value;
                break;
            }
            if (order < 0) {
                first += count / 2 + 1;
                count -= count / 2 + 1;
            } else {
                count /= 2;
            }
        }
    }
}

bool sql92_match(const struct sql92 *program, struct slice properties)
{
    struct sql92_value slots[SQL92_DEPTH_MAX];
    struct slice found[SQL92_NAMES_MAX];
    uint32_t at = 0;

    find_properties(program, properties, found);
    while (at < program->node_count) {
        const struct sql92_node *node = &program->nodes[at];
        struct sql92_value *slot = &slots[node->slot];
        if (!evaluate(program, node, found, slot))
            return false;
        while (skips(node, slot)) {
            at = node->parent;
            node = &program->nodes[at];
            slots[node->slot] = *slot;
            slot = &slots[node->slot];
        }
        at++;
    }
    return slots[0].kind == SQL92_IS_BOOLEAN && slots[0].boolean;
}
