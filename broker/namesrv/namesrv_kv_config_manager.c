/* A sorted array: the table holds some tens of keys, is read whole as often as by key, and is written whole at each change. */
#include "broker/namesrv/namesrv_kv_config_manager.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/json.h"
#include "proto/kv_table.h"
#include "store/log_sink.h"
#include "store/state_file.h"

#define FILE_BYTES_MAX (8u * KV_CONFIG_BYTES_MAX) /* a byte escaped takes six, and each item its marks */

struct kv_config_item {
    char *name_space;
    char *key;
    char *value;
};

static size_t item_bytes(const struct kv_config_item *item)
{
    return strlen(item->name_space) + strlen(item->key) + strlen(item->value);
}

static void item_free(struct kv_config_item *item)
{
    free(item->name_space);
    free(item->key);
    free(item->value);
}

static int compare_text(const char *text, struct slice other)
{
    size_t size = strlen(text);
    size_t common = size < other.size ? size : other.size;
    int order = common == 0 ? 0 : memcmp(text, other.data, common);
    return order != 0 ? order : (size > other.size) - (size < other.size);
}

/* Place of (name_space, key), or where it would go. */
static size_t find(const struct kv_config_manager *manager, struct slice name_space, struct slice key, bool *found)
{
    size_t low = 0, high = manager->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = compare_text(manager->items[middle].name_space, name_space);
        if (order == 0)
            order = compare_text(manager->items[middle].key, key);
        if (order == 0) {
            *found = true;
            return middle;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *found = false;
    return low;
}

static int insert(struct kv_config_manager *manager, size_t at, struct kv_config_item item)
{
    if (manager->count == manager->capacity) {
        size_t capacity = manager->capacity == 0 ? 16 : manager->capacity * 2;
        struct kv_config_item *items = realloc(manager->items, capacity * sizeof *items);
        if (items == NULL)
            return ERROR_NO_MEMORY;
        manager->items = items;
        manager->capacity = capacity;
    }
    memmove(&manager->items[at + 1], &manager->items[at], (manager->count - at) * sizeof item);
    manager->items[at] = item;
    manager->count++;
    manager->bytes += item_bytes(&item);
    return 0;
}

static struct kv_config_item take(struct kv_config_manager *manager, size_t at)
{
    struct kv_config_item item = manager->items[at];
    manager->count--;
    manager->bytes -= item_bytes(&item);
    memmove(&manager->items[at], &manager->items[at + 1], (manager->count - at) * sizeof item);
    return item;
}

/* KVConfigSerializeWrapper: {"configTable":{NAMESPACE:{KEY:VALUE}}}. */
static int save(struct kv_config_manager *manager, struct error *error)
{
    if (manager->path[0] == 0)
        return 0;
    struct buffer out;
    buffer_init(&out, 0);
    struct json_writer json;
    json_writer_init(&json, &out);
    json_write_begin_object(&json);
    json_write_key(&json, "configTable");
    json_write_begin_object(&json);
    for (size_t at = 0; at < manager->count;) {
        const char *name_space = manager->items[at].name_space;
        json_write_key(&json, name_space);
        json_write_begin_object(&json);
        for (; at < manager->count && strcmp(manager->items[at].name_space, name_space) == 0; at++)
            json_write_member_text(&json, manager->items[at].key, manager->items[at].value);
        json_write_end_object(&json);
    }
    json_write_end_object(&json);
    json_write_end_object(&json);
    int rv = out.failed ? error_set(error, ERROR_NO_MEMORY, "no memory to write %s", manager->path)
                        : state_file_write(manager->env, manager->path, buffer_slice(&out), error);
    buffer_close(&out);
    return rv;
}

static int put(struct kv_config_manager *manager, struct slice name_space, struct slice key, struct slice value, struct kv_config_item *replaced,
               struct error *error)
{
    *replaced = (struct kv_config_item){0};
    if (name_space.size == 0 || key.size == 0)
        return error_set(error, ERROR_INVALID, "namespace and key must not be empty");
    if (slice_holds(name_space, '\0') || slice_holds(key, '\0') || slice_holds(value, '\0'))
        return error_set(error, ERROR_INVALID, "namespace, key and value must not hold a NUL character");
    struct kv_config_item item = {slice_to_text(name_space), slice_to_text(key), slice_to_text(value)};
    int rv = 0;
    if (item.name_space == NULL || item.key == NULL || item.value == NULL) {
        item_free(&item);
        return error_set(error, ERROR_NO_MEMORY, "no memory for a key");
    }
    bool found;
    size_t at = find(manager, name_space, key, &found);
    if (found)
        *replaced = take(manager, at);
    if (manager->bytes + item_bytes(&item) > KV_CONFIG_BYTES_MAX)
        rv = error_set(error, ERROR_TOO_LARGE, "all keys and values together may have %u bytes", KV_CONFIG_BYTES_MAX);
    else if (insert(manager, at, item) != 0)
        rv = error_set(error, ERROR_NO_MEMORY, "no memory for a key");
    if (rv == 0)
        return 0;
    item_free(&item);
    if (found && insert(manager, at, *replaced) != 0)
        item_free(replaced); /* cannot happen: its place is still allocated */
    *replaced = (struct kv_config_item){0};
    return rv;
}

static int load(struct kv_config_manager *manager, struct slice text, struct error *error)
{
    struct json_document document;
    int rv = json_parse(&document, text, NULL, 0, error);
    if (rv != 0)
        return rv;
    struct json_iterator spaces = json_iterate(json_get(json_root(&document), "configTable"));
    struct json_value name, table, key, value;
    while (rv == 0 && json_next_member(&spaces, &name, &table)) {
        struct json_iterator keys = json_iterate(table);
        while (rv == 0 && json_next_member(&keys, &key, &value)) {
            struct slice name_text, key_text, value_text;
            if (!json_text(name, &name_text) || !json_text(key, &key_text) || !json_text(value, &value_text))
                continue; /* fastjson would have written null for a value that is none */
            struct kv_config_item replaced;
            rv = put(manager, name_text, key_text, value_text, &replaced, error);
            item_free(&replaced);
            if (rv == ERROR_INVALID) { /* it cannot be asked for: no reason not to start */
                LOG_WARN("%s: a key is left out: %s", manager->path, error->message);
                rv = 0;
            }
        }
    }
    json_close(&document);
    return rv;
}

/* For state_file: is this the table, so that the older copy is not needed? */
static int check(void *argument, struct slice content)
{
    (void)argument;
    struct json_document document;
    int rv = json_parse(&document, content, NULL, 0, NULL);
    if (rv != 0)
        return rv;
    rv = json_is_object(json_get(json_root(&document), "configTable")) ? 0 : ERROR_MALFORMED;
    json_close(&document);
    return rv;
}

int kv_config_manager_open(struct kv_config_manager *manager, struct env *env, const char *path, struct error *error)
{
    *manager = (struct kv_config_manager){.env = env};
    assert(strlen(path) < sizeof manager->path);
    strcpy(manager->path, path);
    if (path[0] == 0)
        return 0;
    struct buffer text;
    buffer_init(&text, 0);
    int rv = state_file_read(env, path, FILE_BYTES_MAX, check, NULL, &text, error);
    if (rv == 0)
        rv = load(manager, buffer_slice(&text), error);
    else if (rv == ERROR_NOT_FOUND)
        rv = 0;
    buffer_close(&text);
    if (rv != 0) {
        error_wrap(error, "%s", path);
        kv_config_manager_close(manager);
    }
    return rv;
}

void kv_config_manager_close(struct kv_config_manager *manager)
{
    for (size_t i = 0; i < manager->count; i++)
        item_free(&manager->items[i]);
    free(manager->items);
    *manager = (struct kv_config_manager){0};
}

int kv_config_manager_put(struct kv_config_manager *manager, struct slice name_space, struct slice key, struct slice value, struct error *error)
{
    struct kv_config_item replaced;
    int rv = put(manager, name_space, key, value, &replaced, error);
    if (rv != 0)
        return rv;
    rv = save(manager, error);
    if (rv == 0) {
        item_free(&replaced);
        return 0;
    }
    bool found;
    size_t at = find(manager, name_space, key, &found);
    struct kv_config_item item = take(manager, at);
    item_free(&item);
    if (replaced.key != NULL && insert(manager, at, replaced) != 0)
        item_free(&replaced);
    return rv;
}

int kv_config_manager_delete(struct kv_config_manager *manager, struct slice name_space, struct slice key, struct error *error)
{
    bool found;
    size_t at = find(manager, name_space, key, &found);
    if (!found)
        return 0;
    struct kv_config_item item = take(manager, at);
    int rv = save(manager, error);
    if (rv == 0 || insert(manager, at, item) != 0)
        item_free(&item);
    return rv;
}

bool kv_config_manager_get(const struct kv_config_manager *manager, struct slice name_space, struct slice key, struct slice *value)
{
    bool found;
    size_t at = find(manager, name_space, key, &found);
    if (found)
        *value = slice_of_text(manager->items[at].value);
    return found;
}

bool kv_config_manager_table(const struct kv_config_manager *manager, struct slice name_space, struct buffer *out)
{
    bool found;
    size_t at = find(manager, name_space, (struct slice){0}, &found); /* no key is empty, so this is the first of the name space */
    if (at == manager->count || !slice_equal_text(name_space, manager->items[at].name_space))
        return false;
    kv_table_begin(out);
    for (; at < manager->count && slice_equal_text(name_space, manager->items[at].name_space); at++)
        kv_table_add(out, slice_of_text(manager->items[at].key), slice_of_text(manager->items[at].value));
    kv_table_end(out);
    return true;
}
