/* Part of ledgermq.h, which is the header to include: errors, the client, and what a message is.
 */
#ifndef LEDGERMQ_COMMON_H
#define LEDGERMQ_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LEDGERMQ_API __attribute__((visibility("default")))

#define LEDGERMQ_TOPIC_MAX 255     /* bytes of a topic or group name */
#define LEDGERMQ_NAME_MAX 255      /* bytes of a broker name */
#define LEDGERMQ_MESSAGE_ID_MAX 56 /* characters of a message id (IPv6) */
#define LEDGERMQ_DELAY_LEVELS 18   /* 1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h */

enum ledgermq_code {
    LEDGERMQ_OK = 0,
    LEDGERMQ_INVALID, /* an argument is wrong: correct the call */
    LEDGERMQ_NO_MEMORY,
    LEDGERMQ_NO_ROUTE,   /* the name servers know no broker for the topic */
    LEDGERMQ_CONNECTION, /* a broker or name server cannot be reached, or hung up */
    LEDGERMQ_TIMEOUT,    /* no answer in time; a message may have been stored all the same */
    LEDGERMQ_REFUSED,    /* the broker answered with an error: response_code and message hold it */
    LEDGERMQ_MALFORMED,  /* the answer makes no sense */
    LEDGERMQ_BUSY,       /* a limit of this library is reached: wait for call backs, then go on */
    LEDGERMQ_STOPPED,    /* the client or producer is being freed */
    LEDGERMQ_NOT_FOUND,  /* no such message, offset or group */
    LEDGERMQ_FORBIDDEN,  /* a hook of this program forbade the send */
};

struct ledgermq_error {
    int code;          /* enum ledgermq_code */
    int response_code; /* RocketMQ response code for LEDGERMQ_REFUSED, LEDGERMQ_NO_ROUTE and
                          LEDGERMQ_NOT_FOUND, else
                          0 */
    char message[480];
};

/* "timed out", "refused by the broker", ...; never NULL, never to be freed. */
LEDGERMQ_API const char *ledgermq_code_text(int code);
/* Of this library: "0.1.0". */
LEDGERMQ_API const char *ledgermq_version(void);

/* ---------------------------------------------------------------- client ---- */

struct ledgermq_client;

struct ledgermq_client_options {
    /* "host:port" with ';' between; NULL takes the environment's NAMESRV_ADDR. Any of them serves; the others
     * are asked when it fails. */
    const char *name_servers;
    const char *instance_name; /* makes the client id IP@instance; NULL: pid and a clock value, as RocketMQ */
    int call_timeout_ms;       /* route, offset and query requests: 3000 */
    int connect_timeout_ms;    /* 3000 */
    int route_poll_ms;         /* 30000 */
    int heartbeat_ms;          /* 30000 */
    /* Tenants that share a cluster: topics and groups of this client are called NAMESPACE%name at the
     * brokers, and the application sees them without it. NULL or "": none. At most 64 letters, digits, '-'
     * and '_'. */
    const char *name_space;
};

/* Fills in the defaults that are named above; to be called before members are set. */
LEDGERMQ_API void ledgermq_client_options_init(struct ledgermq_client_options *options);
/* Starts the background thread. Connects to nobody yet. options may be NULL, its texts are copied. LEDGERMQ_INVALID when
 * there is no name server or an address has no port, LEDGERMQ_NO_MEMORY when the system gives no thread or descriptor.
 * The client must outlive what is made from it, or be freed with it. */
LEDGERMQ_API int ledgermq_client_new(const struct ledgermq_client_options *options, struct ledgermq_client **client,
                                     struct ledgermq_error *error);
/* Frees its producers and consumers first if that has not been done, unregisters at the brokers, closes
 * everything. Nobody may be in a function of the client or of what was made from it. Not to be called from a call
 * back. NULL is fine. */
LEDGERMQ_API void ledgermq_client_free(struct ledgermq_client *client);
/* IP@instance, as brokers and mqadmin show it. Lives as long as the client. */
LEDGERMQ_API const char *ledgermq_client_id(const struct ledgermq_client *client);

/* -------------------------------------------------------------- messages ---- */

struct ledgermq_property {
    const char *name; /* not one of RocketMQ's own names (KEYS, TAGS, UNIQ_KEY, ...) */
    const char *value;
};

/* What is sent. Zero-initialise, then fill; only topic and body must be set. Borrowed during the call, copied
 * where it lasts longer. */
struct ledgermq_message {
    const char *topic;
    const void *body;
    size_t body_size;
    const char *tags; /* one tag, for filters */
    const char *keys; /* index keys with one space between, for queries */
    int delay_level;  /* 1..18, 0 none */
    int32_t flag;     /* yours; stored */
    bool no_wait;     /* property WAIT=false; LedgerMQ acknowledges as safely all the same */
    const struct ledgermq_property *properties;
    size_t property_count;
};

struct ledgermq_queue {
    char topic[LEDGERMQ_TOPIC_MAX + 1];
    char broker_name[LEDGERMQ_NAME_MAX + 1];
    int32_t queue_id;
};

/* What is read. All pointers live as long as the result that holds the message. */
struct ledgermq_stored_message {
    const char *topic;
    const void *body; /* uncompressed */
    size_t body_size;
    const char *tags; /* NULL when there is none; keys likewise */
    const char *keys;
    const char *message_id; /* UNIQ_KEY, the id that the producer made; the offset id when there is none */
    const char *offset_message_id;
    const char *broker_name; /* NULL from a query */
    int32_t queue_id;
    int32_t flag;
    int32_t sys_flag;
    int32_t reconsume_times;
    uint32_t body_crc;   /* of the stored body */
    uint32_t store_size; /* bytes of the stored record */
    int64_t queue_offset;
    int64_t physical_offset; /* in the commit log */
    int64_t born_timestamp_ms;
    int64_t store_timestamp_ms;
    int64_t prepared_transaction_offset;
    const char *born_host; /* ip:port */
    const char *store_host;
    const struct ledgermq_property *properties;
    size_t property_count;
};

/* Value of a property, NULL when absent. */
LEDGERMQ_API const char *ledgermq_message_property(const struct ledgermq_stored_message *message, const char *name);

#ifdef __cplusplus
}
#endif

#endif
