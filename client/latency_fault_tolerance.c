#include "client/latency_fault_tolerance.h"

#include <stdlib.h>
#include <string.h>
#include <uthash.h>

/* A send that took at least latency_ms keeps its broker away for absence_ms. */
static const struct {
    int64_t latency_ms;
    int64_t absence_ms;
} steps[] = {
    {50, 0}, {100, 0}, {550, 30000}, {1000, 60000}, {2000, 120000}, {3000, 180000}, {15000, 600000},
};
#define STEP_COUNT (sizeof steps / sizeof steps[0])

struct latency_fault_item {
    char *name;
    int64_t latency_ms;
    int64_t available_from_ms;
    UT_hash_handle hh;
};

void latency_fault_tolerance_init(struct latency_fault_tolerance *tolerance)
{
    *tolerance = (struct latency_fault_tolerance){0};
}

static void item_free(struct latency_fault_tolerance *tolerance, struct latency_fault_item *item)
{
    HASH_DEL(tolerance->items, item);
    free(item->name);
    free(item);
}

void latency_fault_tolerance_close(struct latency_fault_tolerance *tolerance)
{
    while (tolerance->items != NULL)
        item_free(tolerance, tolerance->items);
}

int64_t latency_fault_absence_ms(int64_t latency_ms)
{
    for (size_t i = STEP_COUNT; i > 0; i--)
        if (latency_ms >= steps[i - 1].latency_ms)
            return steps[i - 1].absence_ms;
    return 0;
}

static struct latency_fault_item *item_find(const struct latency_fault_tolerance *tolerance, const char *broker_name)
{
    struct latency_fault_item *item;
    HASH_FIND_STR(tolerance->items, broker_name, item);
    return item;
}

void latency_fault_tolerance_update(struct latency_fault_tolerance *tolerance, const char *broker_name,
                                    int64_t latency_ms, bool isolate, int64_t now_ms)
{
    struct latency_fault_item *item = item_find(tolerance, broker_name);
    if (item == NULL) {
        if (HASH_COUNT(tolerance->items) >= LATENCY_FAULT_BROKERS_MAX)
            return;
        item = calloc(1, sizeof *item);
        if (item == NULL)
            return;
        item->name = strdup(broker_name);
        if (item->name == NULL) {
            free(item);
            return;
        }
        HASH_ADD_KEYPTR(hh, tolerance->items, item->name, strlen(item->name), item);
    }
    item->latency_ms = latency_ms;
    item->available_from_ms = now_ms + latency_fault_absence_ms(isolate ? LATENCY_FAULT_ISOLATION_MS : latency_ms);
}

bool latency_fault_tolerance_is_available(const struct latency_fault_tolerance *tolerance, const char *broker_name,
                                          int64_t now_ms)
{
    const struct latency_fault_item *item = item_find(tolerance, broker_name);
    return item == NULL || now_ms >= item->available_from_ms;
}

/* True when a is the better choice. */
static bool better(const struct latency_fault_item *a, const struct latency_fault_item *b, int64_t now_ms)
{
    bool a_available = now_ms >= a->available_from_ms, b_available = now_ms >= b->available_from_ms;
    if (a_available != b_available)
        return a_available;
    if (a->latency_ms != b->latency_ms)
        return a->latency_ms < b->latency_ms;
    return a->available_from_ms < b->available_from_ms;
}

const char *latency_fault_tolerance_pick(struct latency_fault_tolerance *tolerance, int64_t now_ms)
{
    uint32_t count = HASH_COUNT(tolerance->items);
    if (count == 0)
        return NULL;
    uint32_t half = count / 2;
    uint32_t wanted = half == 0 ? 0 : tolerance->pick++ % half;
    /* The wanted-th best by counting: the table is small and this runs only when every broker of a topic is in
     * trouble. */
    for (const struct latency_fault_item *item = tolerance->items; item != NULL; item = item->hh.next) {
        uint32_t rank = 0;
        bool after = false;
        for (const struct latency_fault_item *other = tolerance->items; other != NULL; other = other->hh.next) {
            if (other == item)
                after = true;
            else if (better(other, item, now_ms) || (!better(item, other, now_ms) && !after))
                rank++;
        }
        if (rank == wanted)
            return item->name;
    }
    return NULL;
}

void latency_fault_tolerance_remove(struct latency_fault_tolerance *tolerance, const char *broker_name)
{
    struct latency_fault_item *item = item_find(tolerance, broker_name);
    if (item != NULL)
        item_free(tolerance, item);
}
