/* malloc() and its like for this program, which has one thread and takes and gives back small pieces by the million: a list of free pieces for each class of
 * sizes; no piece is cut or joined, and no memory given back to the kernel. Sanitizers bring their own (tests.cmake leaves this file out then).
 */
#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ROOM ((size_t)32 << 30) /* of addresses; memory is what was touched */
#define CHUNK ((size_t)64 << 10)
#define FINE 64u     /* classes of 16, 32 .. 1024 bytes */
#define CLASSES 160u /* behind them four for each power of two */

struct piece {
    struct piece *next;
};

static struct piece *free_pieces[CLASSES];
static uint8_t *room, *fresh, *room_end;
static uint8_t class_of_chunk[ROOM / CHUNK]; /* by the first chunk for pieces larger than one */

static unsigned class_of(size_t size)
{
    if (size <= FINE * 16)
        return size == 0 ? 0 : (unsigned)((size - 1) / 16);
    unsigned bits = 63 - (unsigned)__builtin_clzll(size - 1); /* size - 1 is in [1 << bits, 2 << bits) */
    return FINE + (bits - 10) * 4 + (unsigned)((size - 1) >> (bits - 2) & 3);
}

static size_t size_of_class(unsigned class)
{
    if (class < FINE)
        return (class + 1) * 16;
    unsigned bits = 10 + (class - FINE) / 4;
    return ((size_t)1 << bits) + (((class - FINE) % 4 + 1) << (bits - 2));
}

static bool begin_room(void)
{
    void *memory = mmap(NULL, ROOM + 2 * CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    room = fresh = (uint8_t *)memory + (CHUNK - (uintptr_t)memory % CHUNK);
    room_end = room + ROOM;
    madvise(room, ROOM, MADV_HUGEPAGE); /* if there are any */
    return true;
}

static void *no_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

static void *fresh_chunks(unsigned class, size_t size)
{
    size_t bytes = (size + CHUNK - 1) / CHUNK * CHUNK;
    if ((room == NULL && !begin_room()) || (size_t)(room_end - fresh) < bytes)
        return no_memory();
    uint8_t *chunk = fresh;
    fresh += bytes;
    class_of_chunk[(size_t)(chunk - room) / CHUNK] = (uint8_t)class;
    return chunk;
}

static void *new_piece(unsigned class)
{
    size_t size = size_of_class(class);
    uint8_t *chunk = fresh_chunks(class, size);
    if (chunk == NULL)
        return NULL;
    for (size_t at = size; at + size <= CHUNK; at += size) {
        struct piece *piece = (struct piece *)(void *)(chunk + at);
        piece->next = free_pieces[class];
        free_pieces[class] = piece;
    }
    return chunk;
}

static void *take(size_t size)
{
    unsigned class = class_of(size);
    struct piece *piece = class < CLASSES ? free_pieces[class] : NULL;
    if (piece == NULL)
        return class < CLASSES ? new_piece(class) : no_memory();
    free_pieces[class] = piece->next;
    return piece;
}

void *malloc(size_t size)
{
    return take(size);
}

static unsigned class_at(const void *address)
{
    return class_of_chunk[(size_t)((const uint8_t *)address - room) / CHUNK];
}

void free(void *address)
{
    if (address == NULL)
        return;
    struct piece *piece = address;
    unsigned class = class_at(address);
    piece->next = free_pieces[class];
    free_pieces[class] = piece;
}

void *calloc(size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        return no_memory();
    void *piece = take(bytes);
    return piece == NULL ? NULL : memset(piece, 0, bytes);
}

void *realloc(void *old, size_t size)
{
    size_t had = old == NULL ? 0 : size_of_class(class_at(old));
    if (old != NULL && size <= had)
        return old;
    void *piece = take(size);
    if (piece != NULL && old != NULL) {
        memcpy(piece, old, had);
        free(old);
    }
    return piece;
}

/* Pieces of a power of two stand at multiples of it. */
static void *take_aligned(size_t alignment, size_t size)
{
    size_t bytes = alignment < 16 ? 16 : alignment;
    if (alignment > CHUNK || (alignment & (alignment - 1)) != 0)
        return no_memory();
    while (bytes < size && bytes < SIZE_MAX / 2)
        bytes *= 2;
    return take(bytes);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return take_aligned(alignment, size);
}

void *memalign(size_t alignment, size_t size)
{
    return take_aligned(alignment, size);
}

int posix_memalign(void **piece, size_t alignment, size_t size)
{
    *piece = take_aligned(alignment, size);
    return *piece == NULL ? ENOMEM : 0;
}

size_t malloc_usable_size(void *address)
{
    return address == NULL ? 0 : size_of_class(class_at(address));
}
