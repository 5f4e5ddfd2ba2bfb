/* Term and vote: two slots with sequence and CRC, synced before any message that depends on them leaves (Raft 5.2; spec: raft-step.md 2).
 * Room for both slots exists from creation on, so that a vote can be stored on a full disk.
 */
#ifndef LEDGERMQ_DLEDGER_VOTE_FILE_H
#define LEDGERMQ_DLEDGER_VOTE_FILE_H

#include "proto/buffer.h"
#include "proto/error.h"
#include "store/env.h"

struct vote_file {
    struct env *env;
    struct env_file *file;
    uint64_t sequence;
    uint64_t term;
    uint64_t voted_for; /* Raft id, 0 = none */
    bool existed;       /* something had been saved before this open */
    bool doubtful;      /* a slot is damaged, or both were: a newer vote than this may have been given */
    bool saving;        /* a vote_save is out: until its end the file says what it said before */
};

/* A vote on its way to the disk. */
struct vote_save {
    struct vote_file *file;
    uint64_t sequence, term, voted_for;
    int result; /* 0 or -errno */
};

/* Damage is no failure: see doubtful. A file without a good slot is kept as <path>.damaged, and a new one is made. The next save makes both slots good. */
int vote_file_open(struct vote_file *file, struct env *env, const char *path, struct error *error);
/* Durable on return. ERROR_IO is final for the node. */
int vote_file_save(struct vote_file *file, uint64_t term, uint64_t voted_for, struct error *error);
/* The same in three pieces, one save at a time. A process that dies before the end finds the one vote or the other. */
void vote_save_begin(struct vote_save *save, struct vote_file *file, uint64_t term, uint64_t voted_for);
void vote_save_run(struct vote_save *save); /* any thread; waits for the disk */
int vote_save_end(struct vote_save *save, struct error *error);
/* A save that is out must not be run any more. */
void vote_file_close(struct vote_file *file);

#endif
