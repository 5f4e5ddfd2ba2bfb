/* What the parts of the SQL92 selector share: tokens, the program that the grammar's actions build, and the
 * errors. Only sql92*.c and the grammar include it.
 *
 * A program is the expression in postfix order, so that a node's operands end right before it:
 *
 *     a > 3 AND b = 'x'       property a | 3 | GREATER | property b | 'x' | EQUAL | AND
 *     slot                         0       1     0          1         2      1      0
 *
 * Each node leaves its value in its slot and finds its operands in its own slot and those behind it. A node
 * that is the first operand of another may end that one early ("skip" to its parent, with its value as the
 * parent's): AND when it is FALSE, OR when it is TRUE, comparisons when it is NULL. That is not only faster:
 * RocketMQ does not evaluate the other operand then, which may be one that fails.
 */
#ifndef LEDGERMQ_PROTO_SQL92_PROGRAM_H
#define LEDGERMQ_PROTO_SQL92_PROGRAM_H

#include "proto/sql92.h"

enum sql92_kind {
    SQL92_IS_NULL,
    SQL92_IS_BOOLEAN,
    SQL92_IS_INTEGER,
    SQL92_IS_LONG,
    SQL92_IS_DOUBLE,
    SQL92_IS_STRING
};

/* Java's Boolean, Integer, Long, Double and String, or null. */
struct sql92_value {
    enum sql92_kind kind;
    union {
        bool boolean;
        int64_t integer; /* INTEGER and LONG */
        double floating;
        struct slice string;
    };
};

/* A piece of the expression, [start, end). */
struct sql92_token {
    uint32_t start;
    uint32_t end;
};

/* An operand while it is parsed. */
struct sql92_part {
    uint32_t node;
    struct sql92_token where;
};

enum sql92_operator {
    SQL92_CONSTANT,
    SQL92_PROPERTY,
    SQL92_PROPERTY_CAST, /* a property where a condition must be: FALSE when there is one, since it is text */
    SQL92_NEGATE,
    SQL92_INVERT,
    SQL92_EQUAL,
    SQL92_NOT_EQUAL,
    SQL92_EQUALS_NULL,
    SQL92_NOT_EQUALS_NULL,
    SQL92_GREATER,
    SQL92_GREATER_OR_EQUAL,
    SQL92_LESS,
    SQL92_LESS_OR_EQUAL,
    SQL92_LOW,         /* of BETWEEN: slot - 1 >= slot */
    SQL92_BETWEEN,     /* slot <= slot + 2, and what LOW found in slot + 1 */
    SQL92_NOT_LOW,     /* slot - 1 < slot */
    SQL92_NOT_BETWEEN, /* slot > slot + 2, or what NOT_LOW found */
    SQL92_ANY_OF,
    SQL92_NONE_OF,
    SQL92_CONJUNCTION,
    SQL92_DISJUNCTION,
};

enum sql92_skip { SQL92_SKIP_NEVER, SQL92_SKIP_IF_NULL, SQL92_SKIP_IF_FALSE, SQL92_SKIP_IF_TRUE };

struct sql92_node {
    uint8_t operator; /* enum sql92_operator */
    uint8_t skip;     /* enum sql92_skip */
    uint16_t slot;
    uint32_t parent; /* where skip leads */
    union {
        struct sql92_value constant;
        uint32_t name;           /* PROPERTY, PROPERTY_CAST: number in names */
        struct sql92_part value; /* LOW, NOT_LOW: what is between, while parsing */
        struct {                 /* ANY_OF, NONE_OF: in items, sorted */
            uint32_t first;
            uint32_t count;
        } list;
    };
};

struct sql92_name {
    struct slice text;
    uint32_t number; /* of the property, as nodes know it */
};

struct sql92 {
    char *text; /* the expression; slices point into it, string literals are decoded in place */
    struct sql92_node *nodes;
    uint32_t node_count;
    uint32_t item_count;
    struct slice *items;
    uint32_t name_count;
    struct sql92_name names[SQL92_NAMES_MAX]; /* sorted */
};

/* Order for looking things up, not one that means anything. */
static inline int sql92_slice_order(struct slice a, struct slice b)
{
    if (a.size != b.size)
        return a.size < b.size ? -1 : 1;
    return a.size == 0 ? 0 : memcmp(a.data, b.data, a.size);
}

/* False when Java throws: text that is no number of the other's kind, or a Boolean on the left of text.
 * *order < 0 also when the two cannot be compared. */
bool sql92_compare(const struct sql92_value *left, const struct sql92_value *right, int *order);

struct sql92_lexer {
    struct slice text;
    uint32_t at;
};

#define SQL92_LEXICAL_ERROR (-1)

/* Kind of the next token (sql92_grammar.h), 0 at the end, SQL92_LEXICAL_ERROR with error filled. */
int sql92_lexer_next(struct sql92_lexer *lexer, struct sql92_token *token, struct error *error);
/* Line and column of the byte at offset `at` as JavaCC counts them: from 1, UTF-16 units, tabs at 8; 0, 0 for
 * an empty text. */
void sql92_place(struct slice text, uint32_t at, uint32_t *line, uint32_t *column);
/* Quotes text as Java's generated parsers do. */
void sql92_escape(struct slice text, char *out, size_t size);

struct sql92_builder {
    struct sql92 *program;
    struct slice text; /* untouched, for errors */
    struct error *error;
    int failed; /* error code */
    bool accepted;
    bool stray; /* the token did not fit; error says so */
    uint32_t node_capacity;
    uint32_t item_capacity;
    uint32_t list_first; /* of the IN list that is being read */
    uint32_t height;     /* slots in use */
    uint32_t plus_count; /* plus signs whose operand is not complete */
    struct sql92_token first_plus;
    int kinds[3]; /* the token that is being parsed and the two in front of it */
    struct sql92_token tokens[2];
};

/* The grammar's actions. Each does nothing once the builder has failed. */
struct sql92_part sql92_literal(struct sql92_builder *builder, int kind, struct sql92_token token);
struct sql92_part sql92_property(struct sql92_builder *builder, struct sql92_token token);
struct sql92_part sql92_group(struct sql92_token open, struct sql92_part inner, struct sql92_token close);
struct sql92_part sql92_negate(struct sql92_builder *builder, struct sql92_token sign,
                               struct sql92_part operand);
struct sql92_part sql92_invert(struct sql92_builder *builder, struct sql92_token word,
                               struct sql92_part operand);
struct sql92_part sql92_equal(struct sql92_builder *builder, enum sql92_operator operator,
                              struct sql92_part left, struct sql92_part right);
struct sql92_part sql92_null_test(struct sql92_builder *builder, enum sql92_operator operator,
                                  struct sql92_part left, struct sql92_token end);
struct sql92_part sql92_order(struct sql92_builder *builder, enum sql92_operator operator,
                              struct sql92_part left, struct sql92_part right);
struct sql92_part sql92_low(struct sql92_builder *builder, enum sql92_operator operator,
                            struct sql92_part value, struct sql92_part low);
struct sql92_part sql92_between(struct sql92_builder *builder, enum sql92_operator operator,
                                struct sql92_part low, struct sql92_part high);
void sql92_item(struct sql92_builder *builder, bool first, struct sql92_token token);
struct sql92_part sql92_in(struct sql92_builder *builder, enum sql92_operator operator,
                           struct sql92_part left, struct sql92_token end);
struct sql92_part sql92_logic(struct sql92_builder *builder, enum sql92_operator operator,
                              struct sql92_part left, struct sql92_part right);
void sql92_finish(struct sql92_builder *builder, struct sql92_part condition);
void sql92_plus(struct sql92_builder *builder, struct sql92_token sign);
void sql92_syntax_error(struct sql92_builder *builder);
void sql92_too_deep(struct sql92_builder *builder);

/* What lemon makes of sql92_grammar.y. */
void *sql92_grammarAlloc(void *(*allocate)(size_t));
void sql92_grammarFree(void *parser, void (*release)(void *));
void sql92_grammar(void *parser, int kind, struct sql92_token token, struct sql92_builder *builder);

#endif
