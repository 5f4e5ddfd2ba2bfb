/* Settings of a broker, in RocketMQ's words: one table of rows gives parsing, checks, `-p`, the README's table and the answer of request 26.
 *
 * Follows BrokerConfig, MessageStoreConfig, NettyServerConfig and NettyClientConfig 4.9.8. A field has its key's name in snake case. Keys that only
 * make sense for the Java broker are accepted, kept and shown with the reason why they have no effect.
 */
#ifndef LEDGERMQ_BROKER_BROKER_CONFIG_H
#define LEDGERMQ_BROKER_BROKER_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "broker/limits.h"
#include "proto/buffer.h"
#include "proto/error.h"

#define BROKER_CONFIG_KEYS_MAX 256
#define BROKER_CONFIG_VALUE_MAX 4096 /* characters of one value */
#define BROKER_CONFIG_FILE_MAX (1u << 20)
#define BROKER_LISTENERS_MAX 16

#define BROKER_PERM_READ 4
#define BROKER_PERM_WRITE 2

/* advertisedListeners=NAME:HOST:PORT,...: another address of this broker, for clients of another network. */
struct broker_listener {
    char name[32];
    char host[128];
    int port;
};

struct broker_config {
    /* ---- who and where; text is never NULL, empty = not set ---- */
    const char *rocketmq_home;
    const char *namesrv_addr; /* empty: all peers' hosts, port 9876 */
    const char *broker_ip1;   /* resolved at start */
    const char *broker_ip2;
    const char *broker_name;
    const char *broker_cluster_name;
    const char *broker_role;
    const char *region_id;
    const char *bind_address;
    int32_t listen_port;
    const char *advertised_listeners; /* text; parsed below */
    const char *namesrv_listeners;    /* text, for namesrv_config_parse_listeners() */
    bool enable_embedded_namesrv;
    int32_t namesrv_port;
    const char *log_dir;
    int32_t log_file_size;  /* bytes, then rolled */
    int32_t log_file_count;
    const char *log_level;

    /* ---- topics and groups ---- */
    int32_t default_topic_queue_nums;
    bool auto_create_topic_enable;
    bool cluster_topic_enable;
    bool broker_topic_enable;
    bool trace_topic_enable;
    const char *msg_trace_topic_name;
    bool auto_create_subscription_group;
    bool notify_consumer_ids_changed_enable;
    int32_t broker_permission; /* BROKER_PERM_* */

    /* ---- sends ---- */
    int32_t max_message_size;
    int64_t start_accept_send_request_time_stamp;
    bool trace_on;
    bool store_reply_message_enable;
    const char *message_delay_level; /* text; parsed below */

    /* ---- transactions ---- */
    bool reject_transaction_message;
    int64_t transaction_time_out;       /* ms */
    int32_t transaction_check_max;
    int64_t transaction_check_interval; /* ms */
    int32_t file_reserved_time;         /* hours */
    const char *delete_when;
    int32_t disk_max_used_space_ratio;
    int32_t disk_space_clean_forcibly_ratio;
    int32_t disk_space_warning_level_ratio;
    bool clean_file_forcibly_enable;
    int32_t clean_resource_interval;    /* ms */
    int64_t log_bytes_max;              /* 0 = no limit */

    /* ---- pulls ---- */
    bool long_polling_enable;
    int32_t short_polling_time_mills;
    bool slave_read_enable;
    bool compressed_register;
    int32_t access_message_in_memory_max_ratio;
    bool enable_property_filter;
    int32_t max_transfer_bytes_on_message_in_memory;
    int32_t max_transfer_count_on_message_in_memory;
    int32_t default_query_max_num;
    int32_t max_msgs_num_batch;

    /* ---- name servers ---- */
    int32_t register_name_server_period;
    int32_t register_broker_timeout_mills;
    bool force_register;

    /* ---- store and group ---- */
    const char *store_path_root_dir;
    int64_t mapped_file_size_commit_log;
    int64_t mapped_file_size_consume_queue;
    int64_t dledger_index_file_size;
    int32_t max_hash_slot_num;
    int32_t max_index_num;
    bool message_index_enable;
    const char *flush_disk_type;
    bool enable_dleger_commit_log;
    const char *dleger_group;
    const char *dleger_peers;
    const char *dleger_self_id;
    const char *preferred_leader_ids;
    const char *preferred_leader_id;
    int32_t election_timeout_ms;
    int32_t heartbeat_ms;
    int32_t max_wait_ms;
    int64_t log_scrub_bytes_per_second;
    int64_t bulk_fetch_bytes_per_second;
    int64_t follower_lag_bytes_max;
    int64_t log_scrub_interval_seconds;
    bool force_start;

    /* ---- connections ---- */
    int32_t server_channel_max_idle_time_seconds;
    int32_t connections_max;
    int32_t held_pulls_max;
    int32_t client_frame_timeout_ms;
    int64_t buffer_memory_max;

    /* ---- made by broker_config_finish() from the above ---- */
    bool sync_flush;      /* flushDiskType: class B */
    bool group_of_one;    /* no peers */
    const char *group;    /* dLegerGroup, else brokerName */
    const char *self_id;  /* dLegerSelfId */
    int64_t slave_id;     /* brokerId of this node as follower: number in self_id + 1 */
    int64_t message_memory_bytes; /* who reads further behind than this is slow: accessMessageInMemoryMaxRatio of the machine's memory */
    int64_t delay_level_ms[LIMIT_DELAY_LEVELS + 1]; /* [1..delay_levels] */
    int delay_levels;
    struct broker_listener listeners[BROKER_LISTENERS_MAX];
    int listener_count;

    char *texts[BROKER_CONFIG_KEYS_MAX]; /* private: every row's value as text, by row */
    bool given[BROKER_CONFIG_KEYS_MAX];  /* private: set by the file or the command line */
};

/* All defaults (host name, first address of this machine, $HOME). ERROR_NO_MEMORY. */
int broker_config_init(struct broker_config *config, struct error *error);
void broker_config_close(struct broker_config *config);
/* Java properties. Unknown keys warn and name the nearest known one; a wrong value is ERROR_INVALID naming file, line, key, value and what is allowed. */
int broker_config_read_file(struct broker_config *config, const char *path, struct error *error);
int broker_config_read(struct broker_config *config, struct slice text, const char *origin, struct error *error);
/* ERROR_NOT_FOUND: no such key. */
int broker_config_set(struct broker_config *config, const char *key, struct slice value, struct error *error);
/* After the last set: what keys say together (peers and own id, role, ports), and the derived fields. ERROR_INVALID with the remedy. */
int broker_config_finish(struct broker_config *config, struct error *error);
/* "host:port" for brokerIP1 and the like; an IPv6 address gets its brackets. */
static inline void broker_config_address(const char *host, int port, char *out, size_t size)
{
    bool bare_v6 = host[0] != '[' && strchr(host, ':') != NULL;
    snprintf(out, size, bare_v6 ? "[%s]:%d" : "%s:%d", host, port);
}
/* Whether broker_config_change would do it: one request changes all that it names, or nothing. */
int broker_config_may_change(struct slice key, struct slice value, struct error *error);
/* UPDATE_BROKER_CONFIG: a change while running. ERROR_NOT_FOUND, ERROR_INVALID (also for a key that needs a restart, saying so). */
int broker_config_change(struct broker_config *config, struct slice key, struct slice value, struct error *error);

/* Body of request 26: `key=value` lines of all keys; what is not built is reported as off, brokerId and brokerRole as they are at the moment. */
void broker_config_properties(const struct broker_config *config, bool leads, struct buffer *out);
/* `-p`: the same for people, with "no effect" and why. */
void broker_config_print(const struct broker_config *config, struct buffer *out);
/* The README's table. */
void broker_config_print_table(struct buffer *out);
/* Known key nearest to `key` by edit distance, NULL when none is near. */
const char *broker_config_nearest(struct slice key);

#endif
