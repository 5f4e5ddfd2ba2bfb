/* Bounds how many files of how many queues are mapped at a time: the kernel gives a process some 65,000 mappings (vm.max_map_count) and page tables for
 * each, and of thousands of queues most are idle.
 *
 * What was not used for longest is unmapped, and mapped again when somebody looks. Dirty pages stay in the page cache. Loop thread only.
 */
#ifndef LEDGERMQ_STORE_MAPPED_FILE_POOL_H
#define LEDGERMQ_STORE_MAPPED_FILE_POOL_H

#include <stdbool.h>
#include <stdint.h>

struct mapped_file;

struct mapped_file_pool {
    uint32_t max;
    uint32_t mapped;
    struct mapped_file *hand; /* a ring; the file that is looked at next */
};

/* A file that was mapped joins; others may go. Pinned ones stay, so there may be more than max for a while. */
void mapped_file_pool_add(struct mapped_file_pool *pool, struct mapped_file *file);
/* It is about to be unmapped. */
void mapped_file_pool_remove(struct mapped_file *file);
/* Looks at so many files: unmaps those that were not used since the last look. */
void mapped_file_pool_age(struct mapped_file_pool *pool, uint32_t count);

#endif
