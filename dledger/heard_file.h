/* What a member that forgot has heard of its group: kept, so that after another start it does not take members of yesterday for all that there are.
 * It is no vote, and never more than somebody else had on its disk when it was heard.
 */
#ifndef LEDGERMQ_DLEDGER_HEARD_FILE_H
#define LEDGERMQ_DLEDGER_HEARD_FILE_H

#include "proto/error.h"
#include "store/env.h"

struct heard_group {
    uint64_t term;          /* highest; 0 = nothing was heard, UINT64_MAX = the file is damaged: it may have been any */
    uint64_t configuration; /* Raft index of the newest committed configuration, of the generation of that term */
};

/* A missing file is nothing heard, a damaged one is said in the log. ERROR_VERSION, ERROR_IO, ERROR_NO_MEMORY. */
int heard_file_load(struct heard_group *heard, struct env *env, const char *path, struct error *error);
/* Durable on return; blocks. ERROR_IO, ERROR_NO_SPACE: what was there before still is. */
int heard_file_save(const struct heard_group *heard, struct env *env, const char *path, struct error *error);

#endif
