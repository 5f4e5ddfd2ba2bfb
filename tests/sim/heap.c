/* malloc() and its like for this program, which has one thread and takes and gives back small pieces by the million: a list of free pieces for each class of
 * sizes; no piece is cut or joined, and no memory given back to the kernel. Seeded bugs make libraft write behind what it took: a small piece has a mark behind
 * it, and a run ends when that is gone, or when a piece is given back twice. Sanitizers bring their own (tests.cmake leaves this file out then).
 */
#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ROOM ((size_t)32 << 30) /* of addresses; memory is what was touched */
#define CHUNK ((size_t)64 << 10)
#define FINE 64u     /* classes of 16, 32 .. 1024 bytes, the mark among them */
#define FINE_MAX ((size_t)FINE * 16)
#define CLASSES 160u /* behind them four for each power of two */

#define FREE_MARK 0x9B1C5F3E77A2D84Du
#define END_MARK 0xC3D27B91E64F0A58u

struct piece { /* that is free */
    struct piece *next;
    uint64_t mark; /* it was given back */
};

static struct piece *free_pieces[CLASSES];
static uint8_t *room, *fresh, *room_end;
static uint8_t class_of_chunk[ROOM / CHUNK]; /* by the first chunk for pieces larger than one */

static unsigned class_of(size_t size)
{
    if (size <= FINE_MAX - sizeof (uint64_t))
        return (unsigned)((size + sizeof (uint64_t) - 1) / 16);
    if (size <= FINE_MAX)
        return FINE;
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

static uint64_t *end_mark(struct piece *piece, unsigned class)
{
    return (uint64_t *)(void *)((uint8_t *)piece + size_of_class(class) - sizeof (uint64_t));
}

/* What its user may have of a piece. */
static size_t room_in_class(unsigned class)
{
    return size_of_class(class) - (class < FINE ? sizeof (uint64_t) : 0);
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
    if (class >= CLASSES)
        return no_memory();
    struct piece *piece = free_pieces[class];
    if (piece == NULL)
        piece = new_piece(class);
    else
        free_pieces[class] = piece->next;
    if (piece == NULL)
        return NULL;
    piece->mark = 0;
    if (class < FINE)
        *end_mark(piece, class) = END_MARK;
    return piece;
}

void *malloc(size_t size)
{
    return take(size);
}

static bool is_in_room(const void *address)
{
    return room != NULL && (const uint8_t *)address >= room && (const uint8_t *)address < fresh && (uintptr_t)address % 16 == 0;
}

static unsigned class_at(const void *address)
{
    return class_of_chunk[(size_t)((const uint8_t *)address - room) / CHUNK];
}

static void is_spoilt(void)
{
    static const char said[] = "Assertion: a piece of memory was written behind, is given back twice, or was never taken\n";
    (void)!write(STDERR_FILENO, said, sizeof said - 1);
    abort();
}

void free(void *address)
{
    if (address == NULL)
        return;
    struct piece *piece = address;
    if (!is_in_room(address) || piece->mark == FREE_MARK)
        is_spoilt();
    unsigned class = class_at(address);
    if (class < FINE && *end_mark(piece, class) != END_MARK)
        is_spoilt();
    piece->mark = FREE_MARK;
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
    size_t had = old == NULL ? 0 : room_in_class(class_at(old));
    if (old != NULL && size <= had)
        return old;
    void *piece = take(size);
    if (piece != NULL && old != NULL) {
        memcpy(piece, old, had);
        free(old);
    }
    return piece;
}

/* Pieces of a power of two stand at multiples of it, but for the small ones, which are smaller than they look. */
static void *take_aligned(size_t alignment, size_t size)
{
    size_t bytes = alignment < 2 * FINE_MAX ? 2 * FINE_MAX : alignment;
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
    return address == NULL ? 0 : room_in_class(class_at(address));
}
