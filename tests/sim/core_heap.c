#include "tests/sim/core_heap.h"

#include <assert.h>
#include <raft.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PIECES 8192u
#define PIECE_SIZE 16u
#define PIECE_GAP 65536u

static uint8_t *pieces;
static uint32_t free_pieces[PIECES], free_piece_count;

static void *piece_malloc(void *data, size_t size)
{
    (void)data;
    if (size > PIECE_SIZE || free_piece_count == 0)
        return malloc(size);
    uint32_t piece = free_pieces[--free_piece_count];
    return pieces + (size_t)(piece / 16) * PIECE_GAP + (piece % 16) * PIECE_SIZE;
}

static bool is_piece(const void *address)
{
    return pieces != NULL && (const uint8_t *)address >= pieces && (const uint8_t *)address < pieces + (size_t)(PIECES / 16) * PIECE_GAP;
}

static void piece_free(void *data, void *address)
{
    (void)data;
    if (!is_piece(address)) {
        free(address);
        return;
    }
    size_t offset = (size_t)((uint8_t *)address - pieces);
    free_pieces[free_piece_count++] = (uint32_t)(offset / PIECE_GAP * 16 + offset % PIECE_GAP / PIECE_SIZE);
}

static void *piece_calloc(void *data, size_t count, size_t size)
{
    (void)data;
    return calloc(count, size);
}

static void *piece_realloc(void *data, void *address, size_t size)
{
    if (!is_piece(address))
        return realloc(address, size);
    void *other = malloc(size);
    if (other != NULL) {
        memcpy(other, address, size < PIECE_SIZE ? size : PIECE_SIZE);
        piece_free(data, address);
    }
    return other;
}

static void *piece_aligned_alloc(void *data, size_t alignment, size_t size)
{
    (void)data;
    return aligned_alloc(alignment, size);
}

static void piece_aligned_free(void *data, size_t alignment, void *address)
{
    (void)data;
    (void)alignment;
    free(address);
}

void core_heap_begin(void)
{
    static struct raft_heap heap = {NULL, piece_malloc, piece_free, piece_calloc, piece_realloc, piece_aligned_alloc, piece_aligned_free};
    if (pieces != NULL)
        return;
    uint8_t *room = mmap(NULL, (size_t)(PIECES / 16 + 1) * PIECE_GAP, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    assert(room != MAP_FAILED);
    pieces = room + (PIECE_GAP - (uintptr_t)room % PIECE_GAP) % PIECE_GAP;
    for (free_piece_count = 0; free_piece_count < PIECES; free_piece_count++)
        free_pieces[free_piece_count] = PIECES - 1 - free_piece_count;
    raft_heap_set(&heap);
}
