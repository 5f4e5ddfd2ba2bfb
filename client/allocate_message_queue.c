#include "client/allocate_message_queue.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/error.h"
#include "proto/md5.h"

static int compare_members(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void allocate_sort_members(const char **members, size_t count)
{
    if (count > 1)
        qsort(members, count, sizeof *members, compare_members);
}

static void averagely(size_t count, size_t member_count, size_t self, uint8_t *mine)
{
    size_t rest = count % member_count;
    bool one_more = rest > 0 && self < rest;
    size_t average = count <= member_count ? 1 : count / member_count + one_more;
    size_t start = one_more ? self * average : self * average + rest;
    for (size_t i = start; i < count && i < start + average; i++)
        mine[i] = 1;
}

static void by_circle(size_t count, size_t member_count, size_t self, uint8_t *mine)
{
    for (size_t i = self; i < count; i += member_count)
        mine[i] = 1;
}

/* --- consistent hash ---- */

struct virtual_node {
    uint32_t hash;
    uint32_t member;
    uint32_t order; /* of insertion: of two with the same hash the later one holds the place */
};

/* ConsistentHashRouter.MD5Hash: the first four bytes. */
static uint32_t md5_hash(const char *text)
{
    uint8_t digest[MD5_SIZE];
    md5(slice_of_text(text), digest);
    return load_u32(digest);
}

static int compare_nodes(const void *a, const void *b)
{
    const struct virtual_node *left = a, *right = b;
    if (left->hash != right->hash)
        return left->hash < right->hash ? -1 : 1;
    return left->order > right->order ? -1 : 1;
}

static uint32_t route(const struct virtual_node *ring, size_t size, uint32_t hash)
{
    size_t low = 0, high = size;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ring[middle].hash < hash)
            low = middle + 1;
        else
            high = middle;
    }
    return ring[low == size ? 0 : low].member;
}

static int consistent_hash(const struct ledgermq_queue *queues, size_t count, const char *const *members,
                           size_t member_count, size_t self, uint8_t *mine)
{
    size_t size = member_count * ALLOCATE_VIRTUAL_NODES;
    struct virtual_node *ring = malloc(size * sizeof *ring);
    if (ring == NULL)
        return ERROR_NO_MEMORY;
    for (size_t i = 0; i < size; i++) {
        char key[400];
        snprintf(key, sizeof key, "%.380s-%zu", members[i / ALLOCATE_VIRTUAL_NODES], i % ALLOCATE_VIRTUAL_NODES);
        ring[i] = (struct virtual_node){md5_hash(key), (uint32_t)(i / ALLOCATE_VIRTUAL_NODES), (uint32_t)i};
    }
    qsort(ring, size, sizeof *ring, compare_nodes);
    for (size_t i = 0; i < count; i++) {
        char text[LEDGERMQ_TOPIC_MAX + LEDGERMQ_NAME_MAX + 80];
        snprintf(text, sizeof text, "MessageQueue [topic=%s, brokerName=%s, queueId=%d]", queues[i].topic,
                 queues[i].broker_name, queues[i].queue_id);
        mine[i] = route(ring, size, md5_hash(text)) == self;
    }
    free(ring);
    return 0;
}

int allocate_message_queue(enum ledgermq_allocate strategy, const struct ledgermq_queue *queues, size_t count,
                           const char *const *members, size_t member_count, size_t self, uint8_t *mine)
{
    assert(self < member_count);
    memset(mine, 0, count);
    switch (strategy) {
    case LEDGERMQ_ALLOCATE_AVERAGELY:
        averagely(count, member_count, self, mine);
        return 0;
    case LEDGERMQ_ALLOCATE_AVERAGELY_BY_CIRCLE:
        by_circle(count, member_count, self, mine);
        return 0;
    case LEDGERMQ_ALLOCATE_CONSISTENT_HASH:
        return consistent_hash(queues, count, members, member_count, self, mine);
    }
    return ERROR_INVALID;
}
