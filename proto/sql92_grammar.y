/* The grammar of SQL92 selectors, as that of org.apache.rocketmq.filter.parser.SelectorParser 4.9.
 *
 * NOT, + and - bind tightest, so that NOT a = 1 is (NOT a) = 1. Input that cannot continue an expression is a syntax error here;
 * sql92.c then looks whether the expression in front of it is complete, since RocketMQ's parser stops there.
 */
%name sql92_grammar
%token_prefix SQL92_TOKEN_
%token_type {struct sql92_token}
%default_type {struct sql92_part}
%extra_argument {struct sql92_builder *builder}
%stack_size 1000

%include {
#include <assert.h>

#include "proto/sql92_program.h"
}
%syntax_error {
    (void)yymajor;
    (void)TOKEN;
    sql92_syntax_error(builder);
}
%stack_overflow {
    sql92_too_deep(builder);
}
%parse_accept {
    builder->accepted = true;
}

selector ::= disjunction(A). {
    sql92_finish(builder, A);
}

disjunction(X) ::= conjunction(A). {
    X = A;
}
disjunction(X) ::= disjunction(A) OR conjunction(B). {
    X = sql92_logic(builder, SQL92_DISJUNCTION, A, B);
}

conjunction(X) ::= equality(A). {
    X = A;
}
conjunction(X) ::= conjunction(A) AND equality(B). {
    X = sql92_logic(builder, SQL92_CONJUNCTION, A, B);
}

equality(X) ::= comparison(A). {
    X = A;
}
equality(X) ::= equality(A) EQ comparison(B). {
    X = sql92_equal(builder, SQL92_EQUAL, A, B);
}
equality(X) ::= equality(A) NE comparison(B). {
    X = sql92_equal(builder, SQL92_NOT_EQUAL, A, B);
}
equality(X) ::= equality(A) IS NULL(E). {
    X = sql92_null_test(builder, SQL92_EQUALS_NULL, A, E);
}
equality(X) ::= equality(A) IS NOT NULL(E). {
    X = sql92_null_test(builder, SQL92_NOT_EQUALS_NULL, A, E);
}

comparison(X) ::= unary(A). {
    X = A;
}
comparison(X) ::= comparison(A) GT unary(B). {
    X = sql92_order(builder, SQL92_GREATER, A, B);
}
comparison(X) ::= comparison(A) GE unary(B). {
    X = sql92_order(builder, SQL92_GREATER_OR_EQUAL, A, B);
}
comparison(X) ::= comparison(A) LT unary(B). {
    X = sql92_order(builder, SQL92_LESS, A, B);
}
comparison(X) ::= comparison(A) LE unary(B). {
    X = sql92_order(builder, SQL92_LESS_OR_EQUAL, A, B);
}
comparison(X) ::= low(A) AND unary(B). {
    X = sql92_between(builder, SQL92_BETWEEN, A, B);
}
comparison(X) ::= not_low(A) AND unary(B). {
    X = sql92_between(builder, SQL92_NOT_BETWEEN, A, B);
}
comparison(X) ::= comparison(A) IN LP list RP(E). {
    X = sql92_in(builder, SQL92_ANY_OF, A, E);
}
comparison(X) ::= comparison(A) NOT IN LP list RP(E). {
    X = sql92_in(builder, SQL92_NONE_OF, A, E);
}

/* The lower bound is compared before the upper one is evaluated. */
low(X) ::= comparison(A) BETWEEN unary(B). {
    X = sql92_low(builder, SQL92_LOW, A, B);
}
not_low(X) ::= comparison(A) NOT BETWEEN unary(B). {
    X = sql92_low(builder, SQL92_NOT_LOW, A, B);
}

list ::= STRING(A). {
    sql92_item(builder, true, A);
}
list ::= list COMMA STRING(A). {
    sql92_item(builder, false, A);
}

unary(X) ::= primary(A). {
    X = A;
}
unary(X) ::= plus unary(A). {
    builder->plus_count--;
    X = A;
}
unary(X) ::= MINUS(S) unary(A). {
    X = sql92_negate(builder, S, A);
}
unary(X) ::= NOT(S) unary(A). {
    X = sql92_invert(builder, S, A);
}
plus ::= PLUS(S). {
    sql92_plus(builder, S);
}

primary(X) ::= INTEGER(A). {
    X = sql92_literal(builder, SQL92_TOKEN_INTEGER, A);
}
primary(X) ::= FLOAT(A). {
    X = sql92_literal(builder, SQL92_TOKEN_FLOAT, A);
}
primary(X) ::= STRING(A). {
    X = sql92_literal(builder, SQL92_TOKEN_STRING, A);
}
primary(X) ::= TRUE(A). {
    X = sql92_literal(builder, SQL92_TOKEN_TRUE, A);
}
primary(X) ::= FALSE(A). {
    X = sql92_literal(builder, SQL92_TOKEN_FALSE, A);
}
primary(X) ::= NULL(A). {
    X = sql92_literal(builder, SQL92_TOKEN_NULL, A);
}
primary(X) ::= ID(A). {
    X = sql92_property(builder, A);
}
primary(X) ::= LP(S) disjunction(A) RP(E). {
    X = sql92_group(S, A, E);
}
