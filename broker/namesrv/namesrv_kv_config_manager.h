/* The name server's key-value table (namespace, key, value), kept in kvConfig.json.
 *
 * Follows org.apache.rocketmq.namesrv.kvconfig.KVConfigManager. The one namespace in real use is ORDER_TOPIC_CONFIG. Loop thread only.
 */
#ifndef LEDGERMQ_BROKER_NAMESRV_NAMESRV_KV_CONFIG_MANAGER_H
#define LEDGERMQ_BROKER_NAMESRV_NAMESRV_KV_CONFIG_MANAGER_H

#include <stdbool.h>

#include "proto/buffer.h"
#include "proto/error.h"
#include "store/env.h"

#define KV_NAMESPACE_ORDER_TOPIC_CONFIG "ORDER_TOPIC_CONFIG"
/* Bytes of all names and values together: the whole table is rewritten at each change, and is answered in one frame. */
#define KV_CONFIG_BYTES_MAX (1u << 20)

struct kv_config_item;

struct kv_config_manager {
    struct env *env;
    char path[512]; /* empty = memory only */
    struct kv_config_item *items; /* sorted by namespace, then key */
    size_t count;
    size_t capacity;
    size_t bytes;
};

/* Reads the file when there is one. ERROR_MALFORMED names the file. */
int kv_config_manager_open(struct kv_config_manager *manager, struct env *env, const char *path, struct error *error);
void kv_config_manager_close(struct kv_config_manager *manager);
/* ERROR_TOO_LARGE, ERROR_IO (the change is taken back). */
int kv_config_manager_put(struct kv_config_manager *manager, struct slice name_space, struct slice key, struct slice value, struct error *error);
/* An unknown key is fine. */
int kv_config_manager_delete(struct kv_config_manager *manager, struct slice name_space, struct slice key, struct error *error);
/* False when there is none. *value is valid until the next change. */
bool kv_config_manager_get(const struct kv_config_manager *manager, struct slice name_space, struct slice key, struct slice *value);
/* Appends {"table":{...}} of a namespace; false when it has no key. */
bool kv_config_manager_table(const struct kv_config_manager *manager, struct slice name_space, struct buffer *out);

#endif
