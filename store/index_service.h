/* The key index of a broker: a row of index files, the newest of which takes new keys.
 *
 * Follows org.apache.rocketmq.store.index.IndexService 4.9.8. Files are ordered by the log offset at which they begin, not by their names, which are
 * local times and run backwards when the clock is put back.
 */
#ifndef LEDGERMQ_STORE_INDEX_SERVICE_H
#define LEDGERMQ_STORE_INDEX_SERVICE_H

#include "proto/buffer.h"
#include "store/index_file.h"

/* One file of 420 MB holds 20 million keys: this many are 10 billion. The oldest goes when it is reached. */
#define INDEX_FILES_MAX 512u
/* Behind the name of a file that is being made anew (index_compare.h); a start removes what is left of it. */
#define INDEX_REBUILD_SUFFIX ".rebuild"

struct index_service {
    struct env *env;
    char *dir;
    uint32_t slots;
    uint32_t entries;
    bool was_missing; /* the directory did not exist: everything in the log has to be indexed again */

    struct index_file *files[INDEX_FILES_MAX]; /* oldest first */
    size_t count;
    const char *promised;     /* path of a file that is being made anew, borrowed: no other gets that name */
    struct index_file *spare; /* made ahead for a record whose keys do not all fit into the newest one */

    uint64_t retry_us;  /* after a failure other than a full disk: no new file before this time */
    uint64_t not_indexed; /* records that got no entry meanwhile */
};

int index_service_open(struct index_service *service, struct env *env, const char *dir, uint32_t slots, uint32_t entries, struct error *error);
void index_service_close(struct index_service *service);

/* Cuts the index back to physical_offset. *resume: lowered to the offset from which records have to be indexed again, when that is earlier. Nothing is
 * cut in front of physical_offset for that, so that a process which dies here leaves it to be found again: call again with what *resume became. */
int index_service_recover(struct index_service *service, int64_t physical_offset, int64_t log_min_offset,
                          int64_t (*time_of)(void *argument, int64_t physical_offset), void *argument, int64_t *resume, struct error *error);

/* End of the newest indexed record: one at or before it has its entries already. */
static inline int64_t index_service_end(const struct index_service *service)
{
    if (service->count == 0)
        return -1;
    const struct index_file *newest = service->files[service->count - 1];
    return newest->end_physical_offset > 0 ? newest->end_physical_offset : -1;
}

/* Makes room for `count` entries (at most the capacity of one file). 0: put them. ERROR_NO_SPACE: nothing changed, later again. ERROR_IO: no file can
 * be made (said once in the log, tried again after some seconds): go on without an index entry. */
int index_service_reserve(struct index_service *service, uint32_t count);
void index_service_put(struct index_service *service, uint32_t key_hash, int64_t physical_offset, int64_t store_timestamp_ms);

/* A file that was made anew, under its final name, takes the place of a damaged one or, with NULL, its place between the others. False: there is none for
 * it any more, nothing was changed. */
bool index_service_take_over(struct index_service *service, struct index_file *file, struct index_file *instead_of);
/* A file without anything in it that is right goes. */
void index_service_leave_out(struct index_service *service, struct index_file *file);
/* The final name of a file that is being made: that of the damaged one or, with NULL, one that is free. 0, -ENAMETOOLONG, -EEXIST. */
int index_service_rebuild_path(struct index_service *service, const struct index_file *instead_of, char path[PATH_MAX]);

/* Drops files that end before physical_offset, never the newest. */
int index_service_trim(struct index_service *service, int64_t physical_offset);

#endif
