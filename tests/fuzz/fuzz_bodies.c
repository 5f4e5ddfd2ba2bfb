/* The smaller JSON bodies: the first byte chooses one. Any text gives an answer; an error says what is wrong; nothing leaks. */
#include "proto/check_client_config.h"
#include "proto/cluster_info.h"
#include "proto/consume_stats.h"
#include "proto/consumer_connection.h"
#include "proto/consumer_id_list.h"
#include "proto/consumer_offset_serialize_wrapper.h"
#include "proto/delay_offset_serialize_wrapper.h"
#include "proto/dledger_json.h"
#include "proto/group_list.h"
#include "proto/kv_table.h"
#include "proto/lock_batch.h"
#include "proto/producer_connection.h"
#include "proto/reset_offset_body.h"
#include "proto/subscription_group_wrapper.h"
#include "proto/topic_config_serialize_wrapper.h"
#include "proto/topic_list.h"
#include "proto/topic_stats_table.h"

#include "tests/fuzz/fuzz.h"

/* New ones go to the end: seeds name a row by its place. */
#define BODIES(X)                                                                                            \
    X(check_client_config)                                                                                   \
    X(cluster_info)                                                                                          \
    X(consume_stats)                                                                                         \
    X(consumer_connection)                                                                                   \
    X(consumer_id_list)                                                                                      \
    X(consumer_offset_serialize_wrapper)                                                                     \
    X(delay_offset_serialize_wrapper)                                                                        \
    X(dledger_request)                                                                                       \
    X(group_list)                                                                                            \
    X(kv_table)                                                                                              \
    X(lock_batch_request)                                                                                    \
    X(lock_batch_response)                                                                                   \
    X(producer_connection)                                                                                   \
    X(reset_offset_body)                                                                                     \
    X(subscription_group_wrapper)                                                                            \
    X(topic_config_serialize_wrapper)                                                                        \
    X(topic_list)                                                                                            \
    X(topic_stats_table)

#define X(name)                                                                                              \
    static int name##_try(struct slice body, struct error *error)                                            \
    {                                                                                                        \
        struct name what;                                                                                    \
        int rv = name##_decode(&what, body, error);                                                          \
        if (rv == 0)                                                                                         \
            name##_close(&what);                                                                             \
        return rv;                                                                                           \
    }
BODIES(X)
#undef X

static int (*const rows[])(struct slice body, struct error *error) = {
#define X(name) name##_try,
    BODIES(X)
#undef X
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error error = {0};
    if (size == 0)
        return 0;
    int rv = rows[data[0] % (sizeof rows / sizeof rows[0])](slice_of(data + 1, size - 1), &error);
    CHECK(rv == 0 || (rv == error.code && error.message[0] != '\0'));
    return 0;
}
