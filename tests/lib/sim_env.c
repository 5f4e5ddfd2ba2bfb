#include "tests/lib/sim_env.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define XXH_INLINE_ALL
#include <xxhash.h>
#define HASH_FUNCTION(key, size, hash) (hash) = (unsigned)XXH3_64bits(key, size) /* names are long */
#include <uthash.h>

#define REGION_MIN ((uint64_t)1 << 14)
#define WORD_BITS 64u

/* A file's bytes twice: as the process sees them, and as they are on the medium. Both are sparse anonymous memory; pages that differ because of a
 * write are marked dirty, those stored to through a mapping are found by comparing. */
struct sim_node {
    uint8_t *current;
    uint8_t *durable;
    uint64_t capacity;
    uint64_t high; /* no byte behind it was ever touched */
    uint64_t durable_pages; /* nor those of the medium behind so many */
    uint64_t size;
    uint64_t durable_size;
    uint64_t *dirty;     /* the three are one piece of memory */
    uint64_t *allocated; /* pages with blocks on the disk */
    uint64_t *present;   /* pages that may hold something but zeros */
    uint64_t dirty_low, dirty_high; /* pages [low, high) */
    uint32_t refs;       /* names, handles, mappings, journal */
    uint32_t maps;
    bool mapped_writable;
    bool locked;
    struct sim_node *next, *previous;
};

struct sim_name {
    char *path;
    size_t parent_size; /* of the part of the path that names the directory it is in */
    struct sim_node *node; /* NULL: a directory */
    UT_hash_handle hh;
};

enum change { CHANGE_CREATE, CHANGE_RENAME, CHANGE_RENAME_DIR, CHANGE_UNLINK };

struct sim_journal {
    enum change change;
    char *dir;
    char *gone_from; /* NULL, or the directory was removed since, from this one: made again it is another one */
    char *path; /* created, renamed to, unlinked */
    char *from;
    struct sim_node *node;
    struct sim_node *replaced;
};

struct sim_mapping {
    uint8_t *address;
    struct sim_node *node;
    struct sim_mapping *next;
};

struct env_file {
    struct sim_node *node;
    bool writable;
    bool holds_lock;
};

static const uint8_t zero_page[SIM_PAGE];

/* ---- chance ---- */

static uint64_t splitmix(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

uint64_t sim_env_chance(struct sim_env *sim, uint64_t below)
{
    return below == 0 ? 0 : splitmix(&sim->chance) % below;
}

/* ---- pages ---- */

static bool bit_get(const uint64_t *bits, uint64_t i)
{
    return (bits[i / WORD_BITS] >> i % WORD_BITS & 1) != 0;
}

static void bit_set(uint64_t *bits, uint64_t i)
{
    bits[i / WORD_BITS] |= (uint64_t)1 << i % WORD_BITS;
}

static void bit_clear(uint64_t *bits, uint64_t i)
{
    bits[i / WORD_BITS] &= ~((uint64_t)1 << i % WORD_BITS);
}

static void *check_memory(void *p)
{
    if (p == NULL || p == MAP_FAILED) {
        fprintf(stderr, "sim_env: out of memory\n");
        abort();
    }
    return p;
}

static uint8_t *new_region(uint64_t size)
{
    return check_memory(mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
}

/* Files come and go by the thousand. Regions up to REGION_MAX are cut from large pieces of memory, and are all zeros when they are given back, to be taken
 * again: that spares the kernel mapping, faults and unmapping. One list for each power of two. */
#define REGION_MAX ((uint64_t)1 << 21)
#define REGION_CLASSES 8 /* REGION_MIN << 0 .. REGION_MAX */
#define PIECE_OF_REGIONS ((uint64_t)64 << 20)
struct free_region { /* stands in the region itself */
    struct free_region *next;
};
static struct free_region *free_regions[REGION_CLASSES];
static uint8_t *regions_at;
static uint64_t regions_left;

static int region_class(uint64_t size)
{
    return __builtin_ctzll(size) - __builtin_ctzll(REGION_MIN);
}

static uint8_t *take_region(uint64_t size)
{
    if (size > REGION_MAX)
        return new_region(size);
    struct free_region *region = free_regions[region_class(size)];
    if (region != NULL) {
        free_regions[region_class(size)] = region->next;
        region->next = NULL;
        return (uint8_t *)region;
    }
    if (regions_left < size) {
        regions_at = new_region(PIECE_OF_REGIONS + REGION_MAX);
        regions_at += REGION_MAX - (uintptr_t)regions_at % REGION_MAX;
        regions_left = PIECE_OF_REGIONS;
        madvise(regions_at, regions_left, MADV_HUGEPAGE); /* if there are any */
    }
    uint8_t *taken = regions_at;
    regions_at += size;
    regions_left -= size;
    return taken;
}

/* It is all zeros, or too large to be kept. */
static void give_region(uint8_t *bytes, uint64_t size)
{
    if (size > REGION_MAX) {
        munmap(bytes, size);
        return;
    }
    struct free_region *region = (struct free_region *)(void *)bytes;
    region->next = free_regions[region_class(size)];
    free_regions[region_class(size)] = region;
}

static bool may_hold_something(const struct sim_node *node, uint64_t page)
{
    return node->mapped_writable || bit_get(node->present, page);
}

static uint64_t words_of(uint64_t capacity)
{
    return (capacity / SIM_PAGE + WORD_BITS - 1) / WORD_BITS;
}

static void set_capacity(struct sim_node *node, uint64_t capacity)
{
    uint64_t words = words_of(capacity);
    node->capacity = capacity;
    node->current = take_region(capacity);
    node->durable = take_region(capacity);
    node->dirty = check_memory(calloc(3 * words, sizeof *node->dirty));
    node->allocated = node->dirty + words;
    node->present = node->allocated + words;
}

static void give_capacity(struct sim_node *node)
{
    if (node->capacity == 0)
        return;
    for (uint64_t at = 0; at < node->high && node->capacity <= REGION_MAX; at += SIM_PAGE) {
        if (may_hold_something(node, at / SIM_PAGE)) {
            memset(node->current + at, 0, SIM_PAGE);
            if (at / SIM_PAGE < node->durable_pages)
                memset(node->durable + at, 0, SIM_PAGE);
        }
    }
    give_region(node->current, node->capacity);
    give_region(node->durable, node->capacity);
    free(node->dirty);
}

static void ensure_capacity(struct sim_node *node, uint64_t size)
{
    uint64_t capacity = node->capacity == 0 ? REGION_MIN : node->capacity;
    while (capacity < size)
        capacity *= 2;
    if (capacity != node->capacity) {
        /* A mapping is the memory itself: it cannot move. Files get their size before they are mapped. */
        assert(node->maps == 0);
        struct sim_node old = *node;
        uint64_t words = old.capacity == 0 ? 0 : words_of(old.capacity);
        set_capacity(node, capacity);
        for (uint64_t word = 0; word < words; word++) {
            node->dirty[word] = old.dirty[word];
            node->allocated[word] = old.allocated[word];
            node->present[word] = old.present[word];
        }
        for (uint64_t at = 0; at < old.high; at += SIM_PAGE) {
            if (may_hold_something(&old, at / SIM_PAGE)) {
                memcpy(node->current + at, old.current + at, SIM_PAGE);
                if (at / SIM_PAGE < old.durable_pages)
                    memcpy(node->durable + at, old.durable + at, SIM_PAGE);
            }
        }
        give_capacity(&old);
    }
    if (size > node->high)
        node->high = size;
}

static struct sim_node *node_new(struct sim_env *sim)
{
    struct sim_node *node = check_memory(calloc(1, sizeof *node));
    node->dirty_low = UINT64_MAX;
    node->next = sim->nodes;
    if (sim->nodes != NULL)
        sim->nodes->previous = node;
    sim->nodes = node;
    return node;
}

static void release_page(struct sim_env *sim, struct sim_node *node, uint64_t page)
{
    if (bit_get(node->allocated, page)) {
        bit_clear(node->allocated, page);
        sim->used_bytes -= SIM_PAGE;
    }
}

static void node_unref(struct sim_env *sim, struct sim_node *node)
{
    if (node == NULL || --node->refs > 0)
        return;
    for (uint64_t word = 0; word < words_of(node->capacity); word++)
        sim->used_bytes -= (uint64_t)__builtin_popcountll(node->allocated[word]) * SIM_PAGE;
    give_capacity(node);
    if (node->previous != NULL)
        node->previous->next = node->next;
    else
        sim->nodes = node->next;
    if (node->next != NULL)
        node->next->previous = node->previous;
    free(node);
}

static struct sim_node *node_ref(struct sim_node *node)
{
    if (node != NULL)
        node->refs++;
    return node;
}

static void mark_dirty(struct sim_node *node, uint64_t page)
{
    bit_set(node->dirty, page);
    if (page < node->dirty_low)
        node->dirty_low = page;
    if (page >= node->dirty_high)
        node->dirty_high = page + 1;
}

static bool take_block(struct sim_env *sim, struct sim_node *node, uint64_t page)
{
    if (bit_get(node->allocated, page))
        return true;
    if (sim->disk_bytes != 0 && sim->used_bytes + SIM_PAGE > sim->disk_bytes)
        return false;
    bit_set(node->allocated, page);
    sim->used_bytes += SIM_PAGE;
    return true;
}

/* Puts bytes into the page cache as far as there are blocks. Returns how many. */
static uint64_t put_bytes(struct sim_env *sim, struct sim_node *node, const uint8_t *data, uint64_t size, uint64_t offset)
{
    uint64_t done = 0;
    ensure_capacity(node, offset + size);
    while (done < size) {
        uint64_t page = (offset + done) / SIM_PAGE;
        uint64_t n = SIM_PAGE - (offset + done) % SIM_PAGE;
        if (n > size - done)
            n = size - done;
        if (!take_block(sim, node, page))
            break;
        /* Zeros over a page that never held anything else: most of what preparing room ahead does. */
        bool nothing_new = !bit_get(node->present, page) && !node->mapped_writable && memcmp(data + done, zero_page, n) == 0;
        if (!nothing_new) {
            memcpy(node->current + offset + done, data + done, n);
            bit_set(node->present, page);
            mark_dirty(node, page);
        }
        done += n;
    }
    if (offset + done > node->size && done > 0)
        node->size = offset + done;
    return done;
}

/* Much of what is read through is room that nothing was written to: it is not touched. */
static void get_bytes(const struct sim_node *node, uint8_t *out, uint64_t size, uint64_t offset)
{
    if (node->mapped_writable) {
        memcpy(out, node->current + offset, size);
        return;
    }
    for (uint64_t n; size > 0; out += n, offset += n, size -= n) {
        n = SIM_PAGE - offset % SIM_PAGE;
        if (n > size)
            n = size;
        if (bit_get(node->present, offset / SIM_PAGE))
            memcpy(out, node->current + offset, n);
        else
            memset(out, 0, n);
    }
}

static uint64_t pages_of(uint64_t size)
{
    return (size + SIM_PAGE - 1) / SIM_PAGE;
}

static void touch_medium(struct sim_node *node, uint64_t page)
{
    if (page >= node->durable_pages)
        node->durable_pages = page + 1;
}

static void make_page_durable(struct sim_node *node, uint64_t page)
{
    touch_medium(node, page);
    memcpy(node->durable + page * SIM_PAGE, node->current + page * SIM_PAGE, SIM_PAGE);
    bit_clear(node->dirty, page);
}

static bool differs(const struct sim_node *node, uint64_t page)
{
    return memcmp(node->durable + page * SIM_PAGE, node->current + page * SIM_PAGE, SIM_PAGE) != 0;
}

/* Stores through a mapping leave no mark: they are marked when it matters. */
static void mark_stored(struct sim_node *node)
{
    if (!node->mapped_writable)
        return;
    for (uint64_t page = 0; page < pages_of(node->size); page++) {
        if (differs(node, page)) {
            bit_set(node->present, page);
            mark_dirty(node, page);
        }
    }
}

static void make_durable(struct sim_node *node)
{
    mark_stored(node);
    for (uint64_t page = node->dirty_low; page < node->dirty_high; page++) {
        if (bit_get(node->dirty, page))
            make_page_durable(node, page);
    }
    node->dirty_low = UINT64_MAX;
    node->dirty_high = 0;
    node->durable_size = node->size;
}

static void shrink(struct sim_env *sim, struct sim_node *node, uint64_t size)
{
    for (uint64_t page = pages_of(size); page < pages_of(node->size); page++) {
        release_page(sim, node, page);
        if (bit_get(node->present, page) || node->mapped_writable) {
            memset(node->current + page * SIM_PAGE, 0, SIM_PAGE);
            mark_dirty(node, page);
        }
    }
    if (size % SIM_PAGE != 0 && size < node->size) {
        uint64_t end = pages_of(size) * SIM_PAGE;
        memset(node->current + size, 0, end - size);
        mark_dirty(node, size / SIM_PAGE);
    }
    node->size = size;
}

/* ---- names ---- */

static struct sim_name *find_name(const struct sim_env *sim, const char *path)
{
    struct sim_name *name;
    HASH_FIND_STR(sim->names, path, name);
    return name;
}

static struct sim_name *add_name(struct sim_env *sim, const char *path, struct sim_node *node)
{
    struct sim_name *name = check_memory(calloc(1, sizeof *name));
    name->path = check_memory(strdup(path));
    const char *slash = strrchr(name->path, '/');
    name->parent_size = slash == NULL ? SIZE_MAX : (size_t)(slash - name->path);
    name->node = node_ref(node);
    HASH_ADD_KEYPTR(hh, sim->names, name->path, strlen(name->path), name);
    return name;
}

static void delete_name(struct sim_env *sim, struct sim_name *name)
{
    HASH_DEL(sim->names, name);
    node_unref(sim, name->node);
    free(name->path);
    free(name);
}

static void set_name(struct sim_env *sim, const char *path, struct sim_node *node)
{
    struct sim_name *old = find_name(sim, path);
    node_ref(node);
    if (old != NULL)
        delete_name(sim, old);
    if (node != NULL) {
        add_name(sim, path, node);
        node_unref(sim, node);
    }
}

static char *parent_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL)
        return check_memory(strdup("."));
    return check_memory(strndup(path, slash == path ? 1 : (size_t)(slash - path)));
}

static bool is_root(const char *path)
{
    return strcmp(path, "/") == 0 || strcmp(path, ".") == 0;
}

static bool is_dir(const struct sim_env *sim, const char *path)
{
    struct sim_name *name = find_name(sim, path);
    return is_root(path) || (name != NULL && name->node == NULL);
}

static bool parent_exists(const struct sim_env *sim, const char *path)
{
    char *parent = parent_of(path);
    bool exists = is_dir(sim, parent);
    free(parent);
    return exists;
}

static void note_change(struct sim_env *sim, enum change change, const char *path, const char *from, struct sim_node *node,
                        struct sim_node *replaced)
{
    if (sim->journal_count == sim->journal_capacity) {
        sim->journal_capacity = sim->journal_capacity == 0 ? 16 : sim->journal_capacity * 2;
        sim->journal = check_memory(realloc(sim->journal, sim->journal_capacity * sizeof *sim->journal));
    }
    sim->journal[sim->journal_count++] = (struct sim_journal){
        .change = change,
        .dir = parent_of(path),
        .path = check_memory(strdup(path)),
        .from = from == NULL ? NULL : check_memory(strdup(from)),
        .node = node_ref(node),
        .replaced = node_ref(replaced),
    };
}

static void forget_change(struct sim_env *sim, struct sim_journal *entry)
{
    free(entry->dir);
    free(entry->gone_from);
    free(entry->path);
    free(entry->from);
    node_unref(sim, entry->node);
    node_unref(sim, entry->replaced);
}

/* A directory that was removed comes back with what was in it. */
static void put_name_back(struct sim_env *sim, const char *path, struct sim_node *node)
{
    for (const char *at = path + 1; node != NULL && (at = strchr(at, '/')) != NULL; at++) {
        char *part = check_memory(strndup(path, (size_t)(at - path)));
        if (find_name(sim, part) == NULL)
            add_name(sim, part, NULL);
        free(part);
    }
    set_name(sim, path, node);
}

/* What is below `from`, or that itself, is below `to` from now on. */
static void move_path(char **path, const char *from, const char *to)
{
    size_t size = strlen(from);
    if (*path == NULL || strncmp(*path, from, size) != 0 || ((*path)[size] != '/' && (*path)[size] != '\0'))
        return;
    char *moved = check_memory(malloc(strlen(to) + strlen(*path) - size + 1));
    strcpy(moved, to);
    strcat(moved, *path + size);
    free(*path);
    *path = moved;
}

/* A directory with all that is in it; what of that is not durable stays so under its new name. */
static void move_dir(struct sim_env *sim, const char *from, const char *to)
{
    size_t count = 0;
    struct sim_name **moved = check_memory(calloc(HASH_COUNT(sim->names) + 1u, sizeof *moved));
    for (struct sim_name *name = sim->names; name != NULL; name = name->hh.next) {
        size_t size = strlen(from);
        if (strncmp(name->path, from, size) == 0 && (name->path[size] == '/' || name->path[size] == '\0'))
            moved[count++] = name;
    }
    for (size_t i = 0; i < count; i++) {
        char *path = check_memory(strdup(moved[i]->path));
        struct sim_node *node = node_ref(moved[i]->node);
        delete_name(sim, moved[i]);
        move_path(&path, from, to);
        add_name(sim, path, node);
        node_unref(sim, node);
        free(path);
    }
    free(moved);
    for (size_t i = 0; i < sim->journal_count; i++) {
        struct sim_journal *entry = &sim->journal[i];
        if (entry->change == CHANGE_RENAME_DIR)
            continue; /* its own paths are of directories that stay */
        move_path(&entry->dir, from, to);
        move_path(&entry->gone_from, from, to);
        move_path(&entry->path, from, to);
        move_path(&entry->from, from, to);
    }
}

static void undo_change(struct sim_env *sim, const struct sim_journal *entry)
{
    switch (entry->change) {
    case CHANGE_CREATE:
        set_name(sim, entry->path, NULL);
        break;
    case CHANGE_UNLINK:
        put_name_back(sim, entry->path, entry->node);
        break;
    case CHANGE_RENAME:
        put_name_back(sim, entry->from, entry->node);
        put_name_back(sim, entry->path, entry->replaced);
        break;
    case CHANGE_RENAME_DIR:
        move_dir(sim, entry->path, entry->from);
        break;
    }
}

/* ---- every call passes here ---- */

/* What the kernel writes back by itself. */
static void write_back(struct sim_env *sim)
{
    for (struct sim_node *node = sim->nodes; node != NULL; node = node->next) {
        if (node->dirty_low >= node->dirty_high)
            continue;
        for (int i = 0; i < 4; i++) {
            uint64_t page = node->dirty_low + sim_env_chance(sim, node->dirty_high - node->dirty_low);
            if (bit_get(node->dirty, page)) {
                make_page_durable(node, page);
                if (node->durable_size < node->size)
                    node->durable_size = node->size;
            }
        }
    }
}

/* 0: carry the call out and end with finish(). */
static int begin(struct sim_env *sim, enum sim_call call, bool *dying)
{
    *dying = false;
    if (sim->dead)
        return -EIO;
    sim->counts[__builtin_ctz((unsigned)call)]++;
    if (sim->writeback_per_mille != 0 && sim_env_chance(sim, 1000) < sim->writeback_per_mille)
        write_back(sim);
    struct sim_fault *fault = &sim->fault;
    if ((fault->calls & call) == 0)
        return 0;
    if (fault->countdown > 0)
        fault->countdown--;
    if (fault->countdown > 0)
        return 0;
    if (!fault->sticky)
        fault->calls = 0;
    if (!fault->kill)
        return -fault->error;
    *dying = true;
    if (call != SIM_WRITE && sim_env_chance(sim, 2) == 0) {
        sim->dead = true;
        return -EIO;
    }
    return 0;
}

static int finish(struct sim_env *sim, bool dying, int rv)
{
    if (!dying)
        return rv;
    sim->dead = true;
    return -EIO;
}

static struct sim_env *sim_of(struct env *env)
{
    return env->context;
}

/* ---- the calls ---- */

static int sim_open(struct env *env, const char *path, unsigned flags, struct env_file **file)
{
    struct sim_env *sim = sim_of(env);
    bool dying;
    int rv = begin(sim, SIM_OPEN, &dying);
    if (rv != 0)
        return rv;
    struct sim_name *name = find_name(sim, path);
    if (name == NULL) {
        if ((flags & ENV_CREATE) == 0 || !parent_exists(sim, path))
            return finish(sim, dying, -ENOENT);
        struct sim_node *node = node_new(sim);
        name = add_name(sim, path, node);
        note_change(sim, CHANGE_CREATE, path, NULL, node, NULL);
    } else if (name->node == NULL) {
        return finish(sim, dying, -EISDIR);
    } else if ((flags & ENV_EXCLUSIVE) != 0) {
        return finish(sim, dying, -EEXIST);
    }
    if ((flags & ENV_LOCK) != 0 && name->node->locked)
        return finish(sim, dying, -EWOULDBLOCK);
    if (dying)
        return finish(sim, dying, 0);
    struct env_file *opened = check_memory(calloc(1, sizeof *opened));
    opened->node = node_ref(name->node);
    opened->writable = (flags & ENV_WRITE) != 0;
    opened->holds_lock = (flags & ENV_LOCK) != 0;
    if (opened->holds_lock)
        opened->node->locked = true;
    sim->open_files++;
    *file = opened;
    return 0;
}

static void sim_close(struct env *env, struct env_file *file)
{
    struct sim_env *sim = sim_of(env);
    if (file == NULL)
        return;
    if (file->holds_lock)
        file->node->locked = false;
    node_unref(sim, file->node);
    free(file);
    assert(sim->open_files > 0);
    sim->open_files--;
}

static int sim_write(struct env *env, struct env_file *file, const struct iovec *iov, int count, uint64_t offset)
{
    struct sim_env *sim = sim_of(env);
    bool dying;
    int rv = begin(sim, SIM_WRITE, &dying);
    if (rv != 0)
        return rv;
    if (!file->writable)
        return finish(sim, dying, -EBADF);
    uint64_t left = 0;
    for (int i = 0; i < count; i++)
        left += iov[i].iov_len;
    if (dying) {
        /* The kernel looks for a fatal signal between pages. */
        uint64_t pages = left == 0 ? 0 : (offset + left - 1) / SIM_PAGE - offset / SIM_PAGE + 1;
        uint64_t whole = sim_env_chance(sim, pages + 1);
        if (whole < pages)
            left = whole == 0 ? 0 : (offset / SIM_PAGE + whole) * SIM_PAGE - offset;
    }
    for (int i = 0; i < count && left > 0; i++) {
        uint64_t size = iov[i].iov_len < left ? iov[i].iov_len : left;
        uint64_t done = put_bytes(sim, file->node, iov[i].iov_base, size, offset);
        if (done < size)
            return finish(sim, dying, -ENOSPC);
        offset += size;
        left -= size;
    }
    return finish(sim, dying, 0);
}

static ssize_t sim_read(struct env *env, struct env_file *file, void *out, size_t size, uint64_t offset)
{
    struct sim_env *sim = sim_of(env);
    bool dying;
    int rv = begin(sim, SIM_READ, &dying);
    if (rv == 0)
        rv = finish(sim, dying, 0);
    if (rv != 0)
        return rv;
    if (offset >= file->node->size)
        return 0;
    if (size > file->node->size - offset)
        size = (size_t)(file->node->size - offset);
    get_bytes(file->node, out, size, offset);
    return (ssize_t)size;
}

static int sim_sync(struct env *env, struct env_file *file)
{
    struct sim_env *sim = sim_of(env);
    bool dying;
    int rv = begin(sim, SIM_SYNC, &dying);
    if (rv != 0)
        return rv;
    make_durable(file->node);
    return finish(sim, dying, 0);
}

static int sim_size(struct env *env, struct env_file *file, uint64_t *size)
{
    if (sim_of(env)->dead)
        return -EIO;
    *size = file->node->size;
    return 0;
}

static int sim_truncate(struct env *env, struct env_file *file, uint64_t size)
{
    struct sim_env *sim = sim_of(env);
    bool dying;
    int rv = begin(sim, SIM_TRUNCATE, &dying);
    if (rv != 0)
        return rv;
    if (!file->writable)
        return finish(sim, dying, -EBADF);
    ensure_capacity(file->node, size);
    if (size < file->node->size)
        shrink(sim, file->node, size);
    file->node->size = size;
    return finish(sim, dying, 0);
}

static int sim_allocate(struct env *env, struct env_file *file, uint64_t offset, uint64_t size)
{
    struct sim_env *sim = sim_of(env);
    bool dying;
    int rv = begin(sim, SIM_ALLOCATE, &dying);
    if (rv != 0)
        return rv;
    ensure_capacity(file->node, offset + size);
    uint64_t first = offset / SIM_PAGE, end = pages_of(offset + size);
    if (sim->disk_bytes != 0) {
        uint64_t needed = 0;
        for (uint64_t page = first; page < end; page++)
            needed += bit_get(file->node->allocated, page) ? 0 : SIM_PAGE;
        if (sim->used_bytes + needed > sim->disk_bytes)
            return finish(sim, dying, -ENOSPC);
    }
    for (uint64_t page = first; page < end; page++)
        take_block(sim, file->node, page);
    if (offset + size > file->node->size)
        file->node->size = offset + size;
    return finish(sim, dying, 0);
}

static void *sim_map(struct env *env, struct env_file *file, size_t size, bool writable, int *error_number)
{
    struct sim_env *sim = sim_of(env);
    bool dying;
    int rv = begin(sim, SIM_MAP, &dying);
    if (rv == 0)
        rv = finish(sim, dying, 0);
    if (rv == 0 && writable && !file->writable)
        rv = -EACCES;
    if (rv != 0) {
        if (error_number != NULL)
            *error_number = -rv;
        return NULL;
    }
    struct sim_node *node = file->node;
    ensure_capacity(node, size);
    if (writable)
        node->mapped_writable = true;
    struct sim_mapping *mapping = check_memory(calloc(1, sizeof *mapping));
    mapping->address = node->current;
    mapping->node = node_ref(node);
    mapping->next = sim->mappings;
    sim->mappings = mapping;
    node->maps++;
    sim->open_maps++;
    return mapping->address;
}

static struct sim_mapping **find_mapping(struct sim_env *sim, const uint8_t *address)
{
    struct sim_mapping **at = &sim->mappings;
    while (*at != NULL && !(address >= (*at)->address && address < (*at)->address + (*at)->node->capacity))
        at = &(*at)->next;
    return at;
}

static void sim_unmap(struct env *env, void *address, size_t size)
{
    struct sim_env *sim = sim_of(env);
    (void)size;
    struct sim_mapping **at = find_mapping(sim, address);
    struct sim_mapping *mapping = *at;
    assert(mapping != NULL);
    *at = mapping->next;
    mapping->node->maps--;
    node_unref(sim, mapping->node);
    free(mapping);
    sim->open_maps--;
}

static int sim_sync_map(struct env *env, void *address, size_t size)
{
    struct sim_env *sim = sim_of(env);
    bool dying;
    int rv = begin(sim, SIM_SYNC, &dying);
    if (rv != 0)
        return rv;
    struct sim_mapping *mapping = *find_mapping(sim, address);
    assert(mapping != NULL);
    struct sim_node *node = mapping->node;
    uint64_t from = (uint64_t)((uint8_t *)address - node->current);
    mark_stored(node);
    for (uint64_t page = from / SIM_PAGE; page < pages_of(from + size); page++)
        make_page_durable(node, page);
    if (node->durable_size < node->size)
        node->durable_size = node->size;
    return finish(sim, dying, 0);
}

/* The part of a path below a directory: NULL when it is not below; *deeper when there is a slash in it. */
static const char *below(const char *dir, size_t size, const char *path, bool *deeper)
{
    if (size == 1 && dir[0] == '/')
        size = 0;
    if (strncmp(path, dir, size) != 0 || path[size] != '/')
        return NULL;
    *deeper = strchr(path + size + 1, '/') != NULL;
    return path + size + 1;
}

static int rename_dir(struct sim_env *sim, const char *from, const char *to)
{
    struct sim_name *old = find_name(sim, to);
    bool deeper;
    if (old != NULL && old->node != NULL)
        return -ENOTDIR;
    for (struct sim_name *other = sim->names; other != NULL && old != NULL; other = other->hh.next) {
        if (below(to, strlen(to), other->path, &deeper) != NULL)
            return -ENOTEMPTY;
    }
    if (old != NULL)
        delete_name(sim, old);
    move_dir(sim, from, to);
    note_change(sim, CHANGE_RENAME_DIR, to, from, NULL, NULL);
    return 0;
}

static int sim_rename(struct env *env, const char *from, const char *to)
{
    struct sim_env *sim = sim_of(env);
    bool dying;
    int rv = begin(sim, SIM_RENAME, &dying);
    if (rv != 0)
        return rv;
    struct sim_name *name = find_name(sim, from);
    struct sim_name *old = find_name(sim, to);
    if (name == NULL || !parent_exists(sim, to))
        return finish(sim, dying, -ENOENT);
    if (name->node == NULL)
        return finish(sim, dying, rename_dir(sim, from, to));
    if (old != NULL && old->node == NULL)
        return finish(sim, dying, -EISDIR);
    struct sim_node *node = node_ref(name->node);
    note_change(sim, CHANGE_RENAME, to, from, node, old == NULL ? NULL : old->node);
    delete_name(sim, name);
    set_name(sim, to, node);
    node_unref(sim, node);
    return finish(sim, dying, 0);
}

static int sim_unlink(struct env *env, const char *path)
{
    struct sim_env *sim = sim_of(env);
    bool dying;
    int rv = begin(sim, SIM_UNLINK, &dying);
    if (rv != 0)
        return rv;
    struct sim_name *name = find_name(sim, path);
    if (name == NULL)
        return finish(sim, dying, -ENOENT);
    if (name->node == NULL)
        return finish(sim, dying, -EISDIR);
    note_change(sim, CHANGE_UNLINK, path, NULL, name->node, NULL);
    delete_name(sim, name);
    return finish(sim, dying, 0);
}

static int sim_make_dir(struct env *env, const char *path)
{
    struct sim_env *sim = sim_of(env);
    bool dying;
    int rv = begin(sim, SIM_MAKE_DIR, &dying);
    if (rv != 0)
        return rv;
    char part[PATH_MAX];
    size_t size = strlen(path);
    if (size == 0 || size >= sizeof part)
        return finish(sim, dying, -ENAMETOOLONG);
    for (size_t i = 1; i <= size; i++) {
        if (i < size && path[i] != '/')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (is_root(part))
            continue;
        struct sim_name *name = find_name(sim, part);
        if (name != NULL && name->node != NULL)
            return finish(sim, dying, -ENOTDIR);
        if (name == NULL)
            add_name(sim, part, NULL);
    }
    return finish(sim, dying, 0);
}

static int sim_remove_dir(struct env *env, const char *path)
{
    struct sim_env *sim = sim_of(env);
    bool dying, deeper;
    int rv = begin(sim, SIM_UNLINK, &dying);
    if (rv != 0)
        return rv;
    struct sim_name *name = find_name(sim, path);
    if (name == NULL || name->node != NULL)
        return finish(sim, dying, name == NULL ? -ENOENT : -ENOTDIR);
    size_t size = strlen(path);
    for (struct sim_name *other = sim->names; other != NULL; other = other->hh.next) {
        if (below(path, size, other->path, &deeper) != NULL)
            return finish(sim, dying, -ENOTEMPTY);
    }
    delete_name(sim, name);
    for (size_t i = 0; i < sim->journal_count; i++) {
        struct sim_journal *entry = &sim->journal[i];
        if (strcmp(entry->gone_from != NULL ? entry->gone_from : entry->dir, path) != 0)
            continue;
        free(entry->gone_from);
        entry->gone_from = parent_of(path);
    }
    return finish(sim, dying, 0);
}

static int sim_sync_dir(struct env *env, const char *path)
{
    struct sim_env *sim = sim_of(env);
    bool dying;
    int rv = begin(sim, SIM_SYNC_DIR, &dying);
    if (rv != 0)
        return rv;
    if (!is_dir(sim, path))
        return finish(sim, dying, -ENOENT);
    size_t kept = 0;
    for (size_t i = 0; i < sim->journal_count; i++) {
        /* What was in a directory that was removed went with it. */
        const char *dir = sim->journal[i].gone_from != NULL ? sim->journal[i].gone_from : sim->journal[i].dir;
        if (strcmp(dir, path) == 0)
            forget_change(sim, &sim->journal[i]);
        else
            sim->journal[kept++] = sim->journal[i];
    }
    sim->journal_count = kept;
    return finish(sim, dying, 0);
}

static int sim_list(struct env *env, const char *path, int (*each)(void *argument, const char *name, bool is_dir), void *argument)
{
    struct sim_env *sim = sim_of(env);
    bool dying;
    int rv = begin(sim, SIM_LIST, &dying);
    if (rv == 0)
        rv = finish(sim, dying, 0);
    if (rv != 0)
        return rv;
    if (!is_dir(sim, path))
        return -ENOENT;
    /* The callback may remove what it is told about. */
    size_t count = 0, size = strcmp(path, "/") == 0 ? 0 : strlen(path);
    struct child {
        char *name;
        bool is_dir;
    } *children = check_memory(calloc(HASH_COUNT(sim->names) + 1u, sizeof *children));
    for (struct sim_name *name = sim->names; name != NULL; name = name->hh.next) {
        if (name->parent_size == size && memcmp(name->path, path, size) == 0)
            children[count++] = (struct child){check_memory(strdup(name->path + size + 1)), name->node == NULL};
    }
    for (size_t i = 0; i < count; i++) {
        if (rv == 0)
            rv = each(argument, children[i].name, children[i].is_dir);
        free(children[i].name);
    }
    free(children);
    return rv;
}

static int sim_space(struct env *env, const char *path, uint64_t *free_bytes, uint64_t *total_bytes)
{
    struct sim_env *sim = sim_of(env);
    (void)path;
    if (sim->dead)
        return -EIO;
    *total_bytes = sim->disk_bytes != 0 ? sim->disk_bytes : (uint64_t)1 << 40;
    *free_bytes = *total_bytes > sim->used_bytes ? *total_bytes - sim->used_bytes : 0;
    return 0;
}

static int64_t sim_now_ms(struct env *env)
{
    return sim_of(env)->clock->wall_ms;
}

static uint64_t sim_monotonic_us(struct env *env)
{
    return sim_of(env)->clock->monotonic_us;
}

static uint64_t sim_random(struct env *env)
{
    return splitmix(&sim_of(env)->chance_of_node);
}

static uint64_t sim_boot_id(struct env *env)
{
    return sim_of(env)->boot_id;
}

/* ---- life ---- */

void sim_env_init(struct sim_env *sim, uint64_t seed, struct sim_clock *clock)
{
    static const struct env_ops ops = {
        .open = sim_open,
        .close = sim_close,
        .write = sim_write,
        .read = sim_read,
        .sync = sim_sync,
        .size = sim_size,
        .truncate = sim_truncate,
        .allocate = sim_allocate,
        .map = sim_map,
        .unmap = sim_unmap,
        .sync_map = sim_sync_map,
        .rename = sim_rename,
        .unlink = sim_unlink,
        .make_dir = sim_make_dir,
        .remove_dir = sim_remove_dir,
        .sync_dir = sim_sync_dir,
        .list = sim_list,
        .space = sim_space,
        .now_ms = sim_now_ms,
        .monotonic_us = sim_monotonic_us,
        .random = sim_random,
        .boot_id = sim_boot_id,
    };
    memset(sim, 0, sizeof *sim);
    sim->env.ops = &ops;
    sim->env.context = sim;
    sim->chance = seed;
    sim->chance_of_node = seed ^ 0x6E6F6465u;
    splitmix(&sim->chance_of_node);
    sim->own_clock = (struct sim_clock){1600000000000, 1000000};
    sim->clock = clock != NULL ? clock : &sim->own_clock;
    sim->boot_id = splitmix(&sim->chance) | 1;
}

void sim_env_close(struct sim_env *sim)
{
    assert(sim->open_files == 0 && sim->open_maps == 0);
    for (size_t i = 0; i < sim->journal_count; i++)
        forget_change(sim, &sim->journal[i]);
    free(sim->journal);
    struct sim_name *name, *next;
    HASH_ITER(hh, sim->names, name, next)
    {
        delete_name(sim, name);
    }
    assert(sim->nodes == NULL);
    memset(sim, 0, sizeof *sim);
}

void sim_env_kill(struct sim_env *sim)
{
    sim->dead = true;
}

/* keep: chance in percent that an unsynced page reaches the medium whole. */
static void settle_node(struct sim_env *sim, struct sim_node *node, uint64_t keep)
{
    mark_stored(node);
    if (node->size != node->durable_size && sim_env_chance(sim, 100) >= keep) {
        if (node->durable_size < node->size) {
            shrink(sim, node, node->durable_size);
        } else {
            ensure_capacity(node, node->durable_size);
            node->size = node->durable_size;
        }
    }
    for (uint64_t page = node->dirty_low; page < node->dirty_high; page++) {
        if (!bit_get(node->dirty, page))
            continue;
        uint8_t *current = node->current + page * SIM_PAGE;
        uint8_t *durable = node->durable + page * SIM_PAGE;
        if (sim_env_chance(sim, 8) == 0) {
            sim->torn_pages++;
            for (uint64_t at = 0; at < SIM_PAGE; at += SIM_SECTOR) {
                if (sim_env_chance(sim, 2) == 0)
                    memcpy(current + at, durable + at, SIM_SECTOR);
            }
        } else if (sim_env_chance(sim, 100) >= keep) {
            memcpy(current, durable, SIM_PAGE);
        }
        if (page * SIM_PAGE >= node->size)
            memset(current, 0, SIM_PAGE);
        else if (node->size - page * SIM_PAGE < SIM_PAGE)
            memset(current + node->size % SIM_PAGE, 0, SIM_PAGE - node->size % SIM_PAGE);
    }
    make_durable(node);
}

static bool same_name(const char *a, const char *b)
{
    return a != NULL && b != NULL && strcmp(a, b) == 0;
}

/* An earlier change of a name of this one is undone. */
static bool builds_on_lost(const struct sim_env *sim, const bool *undo, size_t at)
{
    const struct sim_journal *entry = &sim->journal[at];
    for (size_t i = 0; i < at; i++) {
        const struct sim_journal *before = &sim->journal[i];
        if (undo[i] && (entry->change == CHANGE_RENAME_DIR || before->change == CHANGE_RENAME_DIR || same_name(before->path, entry->path) ||
                        same_name(before->path, entry->from) || same_name(before->from, entry->path) || same_name(before->from, entry->from)))
            return true;
    }
    return false;
}

void sim_env_power_cut(struct sim_env *sim)
{
    static const uint64_t keeps[] = {0, 20, 50, 80, 100};
    uint64_t keep = keeps[sim_env_chance(sim, sizeof keeps / sizeof keeps[0])];
    sim->dead = true;
    for (struct sim_node *node = sim->nodes; node != NULL; node = node->next)
        settle_node(sim, node, keep);

    bool *undo = check_memory(calloc(sim->journal_count + 1, sizeof *undo));
    for (size_t i = 0; i < sim->journal_count; i++) {
        bool seen = false;
        for (size_t j = 0; j < i && !seen; j++)
            seen = strcmp(sim->journal[j].dir, sim->journal[i].dir) == 0;
        if (seen)
            continue;
        bool lost = false;
        for (size_t j = i; j < sim->journal_count; j++) {
            if (strcmp(sim->journal[j].dir, sim->journal[i].dir) != 0)
                continue;
            lost = sim->names_in_any_order ? builds_on_lost(sim, undo, j) : lost;
            lost = lost || sim_env_chance(sim, 3) == 0;
            undo[j] = lost;
        }
    }
    for (size_t i = sim->journal_count; i-- > 0;) {
        sim->lost_names += undo[i];
        if (undo[i])
            undo_change(sim, &sim->journal[i]);
    }
    free(undo);
    for (size_t i = 0; i < sim->journal_count; i++)
        forget_change(sim, &sim->journal[i]);
    sim->journal_count = 0;
    sim->boot_id = splitmix(&sim->chance) | 1;
}

void sim_env_restart(struct sim_env *sim)
{
    assert(sim->open_files == 0 && sim->open_maps == 0);
    sim->dead = false;
    memset(&sim->fault, 0, sizeof sim->fault);
}

void sim_env_fail_at(struct sim_env *sim, unsigned calls, uint64_t n, int error_number, bool sticky)
{
    sim->fault = (struct sim_fault){.calls = calls, .countdown = n, .error = error_number, .sticky = sticky};
}

void sim_env_kill_at(struct sim_env *sim, unsigned calls, uint64_t n)
{
    sim->fault = (struct sim_fault){.calls = calls, .countdown = n, .kill = true};
}

uint64_t sim_env_calls(const struct sim_env *sim, unsigned calls)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < SIM_CALLS; i++)
        sum += (calls >> i & 1) != 0 ? sim->counts[i] : 0;
    return sum;
}

/* ---- from outside ---- */

bool sim_env_exists(const struct sim_env *sim, const char *path)
{
    return find_name(sim, path) != NULL;
}

uint8_t *sim_env_bytes(struct sim_env *sim, const char *path, uint64_t *size)
{
    struct sim_name *name = find_name(sim, path);
    if (name == NULL || name->node == NULL)
        return NULL;
    ensure_capacity(name->node, 1);
    *size = name->node->size;
    return name->node->current;
}

const uint8_t *sim_env_durable_bytes(const struct sim_env *sim, const char *path, uint64_t *size)
{
    struct sim_name *name = find_name(sim, path);
    if (name == NULL || name->node == NULL || name->node->capacity == 0)
        return NULL;
    *size = name->node->durable_size;
    return name->node->durable;
}

/* What is on the disk has a block, however it came there. */
static void set_present(struct sim_env *sim, struct sim_node *node, uint64_t page)
{
    bit_set(node->present, page);
    touch_medium(node, page);
    if (bit_get(node->allocated, page))
        return;
    bit_set(node->allocated, page);
    sim->used_bytes += SIM_PAGE;
}

void sim_env_corrupt(struct sim_env *sim, const char *path, uint64_t offset, uint8_t bits)
{
    struct sim_name *name = find_name(sim, path);
    assert(name != NULL && name->node != NULL && offset < name->node->size);
    name->node->current[offset] ^= bits;
    name->node->durable[offset] ^= bits;
    set_present(sim, name->node, offset / SIM_PAGE);
}

bool sim_env_at_rest(const struct sim_env *sim, const char *path, uint64_t offset, uint64_t size)
{
    struct sim_name *name = find_name(sim, path);
    if (name == NULL || name->node == NULL || size == 0 || offset + size > name->node->size || offset + size > name->node->durable_size)
        return false;
    for (uint64_t page = offset / SIM_PAGE; page < pages_of(offset + size); page++) {
        if (bit_get(name->node->dirty, page) || differs(name->node, page))
            return false;
    }
    return true;
}

void sim_env_put(struct sim_env *sim, const char *path, uint64_t offset, const void *bytes, uint64_t size)
{
    struct sim_name *name = find_name(sim, path);
    assert(name != NULL && name->node != NULL && offset + size <= name->node->size);
    memcpy(name->node->current + offset, bytes, size);
    memcpy(name->node->durable + offset, bytes, size);
    for (uint64_t page = offset / SIM_PAGE; page < pages_of(offset + size); page++)
        set_present(sim, name->node, page);
}

const char *sim_env_file(const struct sim_env *sim, const char *prefix, uint64_t n)
{
    size_t size = strlen(prefix);
    for (const struct sim_name *name = sim->names; name != NULL; name = name->hh.next) {
        if (name->node != NULL && strncmp(name->path, prefix, size) == 0 && n-- == 0)
            return name->path;
    }
    return NULL;
}

struct sim_copy {
    size_t count;
    struct sim_copied {
        char *path;
        uint8_t *bytes; /* NULL: a directory */
        uint64_t size;
    } items[];
};

struct sim_copy *sim_env_copy(struct sim_env *sim)
{
    struct sim_copy *copy = check_memory(calloc(1, sizeof *copy + HASH_COUNT(sim->names) * sizeof copy->items[0]));
    for (struct sim_name *name = sim->names; name != NULL; name = name->hh.next) {
        struct sim_copied *item = &copy->items[copy->count++];
        item->path = check_memory(strdup(name->path));
        if (name->node == NULL)
            continue;
        item->size = name->node->size;
        item->bytes = check_memory(malloc(item->size + 1));
        if (item->size > 0)
            memcpy(item->bytes, name->node->current, item->size);
    }
    return copy;
}

void sim_env_copy_free(struct sim_copy *copy)
{
    for (size_t i = 0; copy != NULL && i < copy->count; i++) {
        free(copy->items[i].path);
        free(copy->items[i].bytes);
    }
    free(copy);
}

void sim_env_put_back(struct sim_env *sim, const struct sim_copy *copy)
{
    struct sim_name *name, *next;
    assert(sim->open_files == 0 && sim->open_maps == 0);
    for (size_t i = 0; i < sim->journal_count; i++)
        forget_change(sim, &sim->journal[i]);
    sim->journal_count = 0;
    HASH_ITER(hh, sim->names, name, next)
    {
        delete_name(sim, name);
    }
    for (size_t i = 0; i < copy->count; i++) {
        const struct sim_copied *item = &copy->items[i];
        struct sim_node *node = item->bytes == NULL ? NULL : node_new(sim);
        add_name(sim, item->path, node);
        if (node == NULL)
            continue;
        put_bytes(sim, node, item->bytes, item->size, 0);
        node->size = item->size;
        ensure_capacity(node, item->size + 1);
        make_durable(node);
    }
}

void sim_env_remove(struct sim_env *sim, const char *path)
{
    struct sim_name *name = find_name(sim, path);
    assert(name != NULL);
    delete_name(sim, name);
}

uint64_t sim_env_unreserved_pages(struct sim_env *sim)
{
    uint64_t count = 0;
    for (struct sim_node *node = sim->nodes; node != NULL; node = node->next) {
        for (uint64_t page = 0; node->mapped_writable && page < pages_of(node->size); page++) {
            if (!bit_get(node->allocated, page) && memcmp(node->current + page * SIM_PAGE, zero_page, SIM_PAGE) != 0)
                count++;
        }
    }
    return count;
}

uint64_t sim_env_digest(struct sim_env *sim, const char *prefix)
{
    uint64_t sum = 0;
    for (struct sim_name *name = sim->names; name != NULL; name = name->hh.next) {
        if (strncmp(name->path, prefix, strlen(prefix)) != 0)
            continue;
        uint64_t hash = XXH3_64bits(name->path, strlen(name->path));
        struct sim_node *node = name->node;
        if (node != NULL) {
            hash = hash * 31 + node->size;
            for (uint64_t page = 0; page < pages_of(node->size); page++) {
                const uint8_t *bytes = node->current + page * SIM_PAGE;
                if ((bit_get(node->present, page) || node->mapped_writable) && memcmp(bytes, zero_page, SIM_PAGE) != 0)
                    hash = XXH3_64bits_withSeed(bytes, SIM_PAGE, hash ^ page);
            }
        }
        sum += hash;
    }
    return sum;
}
