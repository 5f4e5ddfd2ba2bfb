/* What the scenarios of the libledgermq suite share. Only ledgermq.h and the shared library, as an
 * application. */
#ifndef LEDGERMQ_TESTS_INTEROP_C_SUITE_H
#define LEDGERMQ_TESTS_INTEROP_C_SUITE_H

#include <ledgermq.h>

/* Ends the scenario as failed, from its main thread. */
void fail_at(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4), noreturn));
#define FAIL(...) fail_at(__FILE__, __LINE__, __VA_ARGS__)
#define CHECK(condition)                                                                                            \
    do {                                                                                                            \
        if (!(condition))                                                                                           \
            FAIL("%s", #condition);                                                                                 \
    } while (0)
/* A call that must succeed; `error` is the caller's. */
#define MUST(call)                                                                                                  \
    do {                                                                                                            \
        if ((call) != LEDGERMQ_OK)                                                                                  \
            FAIL("%s: %s", #call, error.message);                                                                   \
    } while (0)

struct inbox {
    struct ledgermq_pull_result **results;
    size_t result_count;
    const struct ledgermq_stored_message **messages; /* in order of queue, offset */
    size_t count;
};

int64_t now_ms(void);
/* SLOWNESS times as long as on an idle machine. */
int stretched_ms(int ms);
/* A topic name of this run. */
const char *fresh_topic(const char *scenario, char out[64]);
struct ledgermq_client *new_client(const char *name_space);
/* options: NULL for the standard ones. Sends have the standard time, stretched. */
struct ledgermq_producer *new_producer(struct ledgermq_client *client,
                                       const struct ledgermq_producer_options *options);
/* Reads the whole topic until it holds at least `wanted` messages; fails when it does not in time. */
void read_topic(struct ledgermq_client *client, const char *topic, size_t wanted, int timeout_ms,
                struct inbox *inbox);
const struct ledgermq_stored_message *inbox_find(const struct inbox *inbox, const char *body);
void inbox_close(struct inbox *inbox);

struct scenario {
    const char *name;
    void (*run)(void);
};
extern const struct scenario producing_scenarios[], asking_scenarios[]; /* end with a name of NULL */

/* The other ends of programs in other languages. */
int exchange_send(const char *topic);
int exchange_read(const char *topic, size_t count);
int exchange_reply(const char *topic, int count);
int exchange_ask(const char *topic, const char *text);
int steady_sends(const char *topic);
int steady_transactions(const char *topic, int seconds);

#endif
