/* An item has a ring of samples for each of its three windows. Every second a tenth of all items takes its sample of the minute, so that no tick has to walk
 * them all; those of the hour and the day fall to the same ticks.
 */
#include "broker/broker_stats_manager.h"

#include <assert.h>
#include <stdlib.h>

#include "broker/hash_table.h"
#include "broker/limits.h"
#include "store/env.h"

#define KEY_MAX 600u /* kind, topic, queue id, group; longer names are not counted */

enum { MINUTE, HOUR, DAY, WINDOWS };

static const struct {
    uint32_t seconds; /* between samples */
    uint8_t first;    /* in the item's arrays */
    uint8_t samples;
} windows[WINDOWS] = {
    [MINUTE] = {10, 0, STATS_MINUTE_SAMPLES},
    [HOUR] = {600, STATS_MINUTE_SAMPLES, STATS_HOUR_SAMPLES},
    [DAY] = {3600, STATS_MINUTE_SAMPLES + STATS_HOUR_SAMPLES, STATS_DAY_SAMPLES},
};

enum part { PART_END, PART_TOPIC, PART_QUEUE, PART_GROUP };

static const struct {
    enum part parts[4];
    bool has_size;
} kinds[STATS_KIND_COUNT] = {
    [STATS_TOPIC_PUT] = {{PART_TOPIC}, true},
    [STATS_GROUP_GET] = {{PART_TOPIC, PART_GROUP}, true},
    [STATS_GROUP_QUEUE] = {{PART_QUEUE, PART_TOPIC, PART_GROUP}, false},
    [STATS_SNDBCK_PUT] = {{PART_TOPIC, PART_GROUP}, false},
    [STATS_QUEUE_PUT] = {{PART_TOPIC, PART_QUEUE}, true},
    [STATS_QUEUE_GET] = {{PART_TOPIC, PART_QUEUE, PART_GROUP}, true},
    [STATS_BROKER_PUT] = {{PART_TOPIC}, false},
    [STATS_BROKER_GET] = {{PART_TOPIC}, false},
};

enum field { FIELD_NUMS, FIELD_SIZE, FIELD_FALL_SIZE, FIELD_FALL_TIME };

static const struct {
    const char *name;
    enum stats_kind kind;
    enum field field;
} names[] = {
    {"TOPIC_PUT_NUMS", STATS_TOPIC_PUT, FIELD_NUMS},
    {"TOPIC_PUT_SIZE", STATS_TOPIC_PUT, FIELD_SIZE},
    {"GROUP_GET_NUMS", STATS_GROUP_GET, FIELD_NUMS},
    {"GROUP_GET_SIZE", STATS_GROUP_GET, FIELD_SIZE},
    {"GROUP_GET_LATENCY", STATS_GROUP_QUEUE, FIELD_NUMS},
    {"GROUP_GET_FALL_SIZE", STATS_GROUP_QUEUE, FIELD_FALL_SIZE},
    {"GROUP_GET_FALL_TIME", STATS_GROUP_QUEUE, FIELD_FALL_TIME},
    {"SNDBCK_PUT_NUMS", STATS_SNDBCK_PUT, FIELD_NUMS},
    {"QUEUE_PUT_NUMS", STATS_QUEUE_PUT, FIELD_NUMS},
    {"QUEUE_PUT_SIZE", STATS_QUEUE_PUT, FIELD_SIZE},
    {"QUEUE_GET_NUMS", STATS_QUEUE_GET, FIELD_NUMS},
    {"QUEUE_GET_SIZE", STATS_QUEUE_GET, FIELD_SIZE},
    {"BROKER_PUT_NUMS", STATS_BROKER_PUT, FIELD_NUMS},
    {"BROKER_GET_NUMS", STATS_BROKER_GET, FIELD_NUMS},
};

struct stats_item {
    char *key; /* kind as one character, then the key and NUL */
    uint32_t key_size;
    enum stats_kind kind;
    uint32_t held;
    uint32_t slot;
    uint64_t nums, size, times;
    uint64_t fall_bytes, fall_ms;
    uint8_t count[WINDOWS]; /* samples that are there */
    uint8_t next[WINDOWS];  /* place of the next one, the oldest when the ring is full */
    uint32_t at[STATS_SAMPLES]; /* hundredths of a second; differences count, so it may run over */
    uint64_t sampled_nums[STATS_SAMPLES];
    uint64_t sampled_times[STATS_SAMPLES];
    UT_hash_handle hh;
    uint64_t sampled_size[]; /* of kinds that have one */
};

struct broker_stats_manager {
    struct env *env;
    struct stats_item *items; /* uthash by key */
    struct stats_item **slots;
    uint32_t count, capacity; /* slots[0, count) are taken */
    uint32_t tick;
    uint64_t refused;
};

struct broker_stats_manager *broker_stats_manager_new(struct env *env)
{
    struct broker_stats_manager *manager = calloc(1, sizeof *manager);
    if (manager != NULL)
        manager->env = env;
    return manager;
}

static uint32_t now_of(const struct broker_stats_manager *manager)
{
    return (uint32_t)(env_monotonic_us(manager->env) / 10000);
}

static void drop(struct broker_stats_manager *manager, struct stats_item *item)
{
    HASH_DEL(manager->items, item);
    struct stats_item *last = manager->slots[--manager->count];
    manager->slots[item->slot] = last;
    last->slot = item->slot;
    free(item->key);
    free(item);
}

void broker_stats_manager_free(struct broker_stats_manager *manager)
{
    if (manager == NULL)
        return;
    while (manager->count > 0)
        drop(manager, manager->slots[manager->count - 1]);
    free(manager->slots);
    free(manager);
}

uint32_t broker_stats_manager_count(const struct broker_stats_manager *manager)
{
    return manager->count;
}

uint64_t broker_stats_manager_refused(const struct broker_stats_manager *manager)
{
    return manager->refused;
}

/* ---- keys ---- */

static size_t put_number(char *out, int32_t number)
{
    char digits[12];
    size_t size = 0, at = 0;
    uint32_t rest = number < 0 ? 0u - (uint32_t)number : (uint32_t)number;
    do {
        digits[size++] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    if (number < 0)
        out[at++] = '-';
    while (size > 0)
        out[at++] = digits[--size];
    return at;
}

/* 0: too long. */
static size_t make_key(char key[KEY_MAX], enum stats_kind kind, struct slice topic, int32_t queue_id, struct slice group)
{
    size_t size = 0;
    if (topic.size + group.size + 16 > KEY_MAX)
        return 0;
    key[size++] = (char)('a' + kind);
    for (const enum part *part = kinds[kind].parts; *part != PART_END; part++) {
        if (size > 1)
            key[size++] = '@';
        if (*part == PART_QUEUE) {
            size += put_number(key + size, queue_id);
            continue;
        }
        struct slice text = *part == PART_TOPIC ? topic : group;
        if (text.size > 0)
            memcpy(key + size, text.data, text.size);
        size += text.size;
    }
    return size;
}

static struct stats_item *find(struct broker_stats_manager *manager, const char *key, size_t size)
{
    struct stats_item *item;
    HASH_FIND(hh, manager->items, key, size, item);
    return item;
}

/* ---- samples ---- */

static void sample(struct stats_item *item, int window, uint32_t at, uint64_t nums, uint64_t times, uint64_t size)
{
    unsigned place = windows[window].first + item->next[window];
    item->at[place] = at;
    item->sampled_nums[place] = nums;
    item->sampled_times[place] = times;
    if (kinds[item->kind].has_size)
        item->sampled_size[place] = size;
    item->next[window] = (uint8_t)((item->next[window] + 1) % windows[window].samples);
    if (item->count[window] < windows[window].samples)
        item->count[window]++;
}

static unsigned oldest(const struct stats_item *item, int window)
{
    return windows[window].first + (item->count[window] < windows[window].samples ? 0u : item->next[window]);
}

static bool has_slot(struct broker_stats_manager *manager)
{
    if (manager->count < manager->capacity)
        return true;
    uint32_t capacity = manager->capacity == 0 ? 64 : manager->capacity * 2;
    struct stats_item **slots = capacity > LIMIT_STATS_ITEMS ? NULL : realloc(manager->slots, capacity * sizeof *slots);
    if (slots == NULL)
        return false;
    manager->slots = slots;
    manager->capacity = capacity;
    return true;
}

static struct stats_item *make(struct broker_stats_manager *manager, enum stats_kind kind, const char *key, size_t size)
{
    static_assert((LIMIT_STATS_ITEMS & (LIMIT_STATS_ITEMS - 1)) == 0, "slots are doubled");
    size_t samples = kinds[kind].has_size ? STATS_SAMPLES * sizeof(uint64_t) : 0;
    struct stats_item *item = has_slot(manager) ? calloc(1, sizeof *item + samples) : NULL;
    if (item == NULL || (item->key = malloc(size + 1)) == NULL) {
        free(item);
        manager->refused++;
        return NULL;
    }
    memcpy(item->key, key, size);
    item->key[size] = 0;
    item->key_size = (uint32_t)size;
    item->kind = kind;
    item->slot = manager->count;
    manager->slots[manager->count++] = item;
    HASH_ADD_KEYPTR(hh, manager->items, item->key, size, item);
    /* What counted nothing yet did so one interval ago too. */
    for (int window = 0; window < WINDOWS; window++)
        sample(item, window, now_of(manager) - windows[window].seconds * 100, 0, 0, 0);
    return item;
}

struct stats_item *broker_stats_manager_item(struct broker_stats_manager *manager, enum stats_kind kind, struct slice topic, int32_t queue_id,
                                             struct slice group)
{
    char key[KEY_MAX];
    size_t size = make_key(key, kind, topic, queue_id, group);
    if (size == 0)
        return NULL;
    struct stats_item *item = find(manager, key, size);
    return item != NULL ? item : make(manager, kind, key, size);
}

struct stats_item *broker_stats_manager_find(struct broker_stats_manager *manager, enum stats_kind kind, struct slice topic, int32_t queue_id,
                                             struct slice group)
{
    char key[KEY_MAX];
    size_t size = make_key(key, kind, topic, queue_id, group);
    return size == 0 ? NULL : find(manager, key, size);
}

void broker_stats_manager_tick(struct broker_stats_manager *manager)
{
    uint32_t now = now_of(manager);
    uint32_t tick = manager->tick++;
    /* Backwards: dropping fills the place with an item from behind, which has had its turn or comes with a later tick. */
    for (uint32_t i = manager->count; i-- > 0;) {
        if (i % windows[MINUTE].seconds != tick % windows[MINUTE].seconds)
            continue;
        struct stats_item *item = manager->slots[i];
        bool idle = false;
        for (int window = 0; window < WINDOWS; window++) {
            if (i % windows[window].seconds != tick % windows[window].seconds)
                continue;
            idle = window == DAY && item->count[DAY] == STATS_DAY_SAMPLES && item->sampled_times[oldest(item, DAY)] == item->times;
            sample(item, window, now, item->nums, item->times, item->size);
        }
        if (idle && item->held == 0)
            drop(manager, item);
    }
}

/* ---- counting ---- */

void stats_item_hold(struct stats_item *item)
{
    if (item != NULL)
        item->held++;
}

void stats_item_release(struct stats_item *item)
{
    if (item == NULL)
        return;
    assert(item->held > 0);
    item->held--;
}

void stats_item_add(struct stats_item *item, uint64_t nums, uint64_t size)
{
    if (item == NULL)
        return;
    item->nums += nums;
    item->size += size;
    item->times++;
}

void stats_item_set_fall(struct stats_item *item, uint64_t bytes, uint64_t ms)
{
    if (item == NULL)
        return;
    item->fall_bytes = bytes;
    item->fall_ms = ms;
}

struct slice stats_item_key(const struct stats_item *item)
{
    return slice_of(item->key + 1, item->key_size - 1);
}

/* ---- asking ---- */

static struct broker_stats_item view(const struct stats_item *item, enum field field, int window, uint32_t now)
{
    struct broker_stats_item out = {0};
    if (field == FIELD_FALL_SIZE || field == FIELD_FALL_TIME) { /* MomentStatsItem: a level, not a flow */
        out.sum = (int64_t)(field == FIELD_FALL_SIZE ? item->fall_bytes : item->fall_ms);
        return out;
    }
    unsigned first = oldest(item, window);
    uint64_t sum = field == FIELD_SIZE ? item->size - item->sampled_size[first] : item->nums - item->sampled_nums[first];
    uint64_t times = item->times - item->sampled_times[first];
    uint32_t passed = now - item->at[first];
    out.sum = (int64_t)sum;
    out.tps = passed == 0 ? 0 : (double)sum * 100 / passed;
    out.avgpt = times == 0 ? 0 : (double)sum / (double)times;
    return out;
}

bool broker_stats_manager_view(struct broker_stats_manager *manager, struct slice name, struct slice key, struct broker_stats_data *data)
{
    char text[KEY_MAX];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (!slice_equal_text(name, names[i].name) || key.size == 0 || key.size + 1 > sizeof text)
            continue;
        text[0] = (char)('a' + names[i].kind);
        memcpy(text + 1, key.data, key.size);
        const struct stats_item *item = find(manager, text, key.size + 1);
        if (item == NULL)
            return false;
        uint32_t now = now_of(manager);
        data->minute = view(item, names[i].field, MINUTE, now);
        data->hour = view(item, names[i].field, HOUR, now);
        data->day = view(item, names[i].field, DAY, now);
        return true;
    }
    return false;
}

bool broker_stats_manager_has_name(struct slice name)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (slice_equal_text(name, names[i].name))
            return true;
    }
    return false;
}

double broker_stats_manager_get_tps(struct broker_stats_manager *manager, struct slice group, struct slice topic)
{
    char key[KEY_MAX];
    size_t size = make_key(key, STATS_GROUP_GET, topic, 0, group);
    const struct stats_item *item = size == 0 ? NULL : find(manager, key, size);
    return item == NULL ? 0 : view(item, FIELD_NUMS, MINUTE, now_of(manager)).tps;
}
