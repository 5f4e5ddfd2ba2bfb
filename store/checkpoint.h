/* What a start needs to know without reading the whole log. Two slots, sequence number and CRC; the newest good one counts.
 *
 * Everything here is a hint about what is already in the log (the log and the vote file are the truth), so a lost checkpoint costs time, not data.
 * To change: bump CHECKPOINT_VERSION, keep the reader of the old form, add a golden file.
 */
#ifndef LEDGERMQ_STORE_CHECKPOINT_H
#define LEDGERMQ_STORE_CHECKPOINT_H

#include "proto/buffer.h"
#include "proto/error.h"
#include "store/env.h"

#define CHECKPOINT_VERSION 1u
#define CHECKPOINT_TERMS_MAX 4096u
#define CHECKPOINT_CONFIGURATION_MAX 4096u

struct checkpoint_term {
    uint64_t term;
    uint64_t first_index;
};

struct checkpoint {
    bool present; /* false: no good slot */
    uint64_t sequence;
    int64_t committed_index; /* DLedger index, -1 = none */
    uint64_t committed_term;
    uint64_t committed_end_position; /* behind that entry */
    uint32_t committed_chain;        /* its chainCrc */
    uint64_t configuration_index;    /* DLedger index of the newest committed configuration entry */
    uint8_t configuration[CHECKPOINT_CONFIGURATION_MAX]; /* its encoded form */
    uint32_t configuration_size;
    uint32_t term_count;
    uint64_t dispatched_position;        /* queues are written up to here: valid for the same boot */
    uint64_t synced_dispatched_position; /* queues are durable up to here: valid for any boot */
    int64_t snapshot_index;  /* metadata snapshot, -1 = none */
    int64_t begin_index;     /* of the first retained entry, which is at begin_position; 0: also not known */
    uint64_t begin_position;
    uint64_t boot_id;
    uint64_t incarnation;    /* of this directory: random, made at its first start */
    bool clean;              /* written by a clean stop */
    uint8_t durability;      /* enum durability_class of the run that wrote it */
    bool forgot;             /* lost acknowledged entries and has not caught up with a leader since: mute, whatever else it says */
    struct checkpoint_term terms[CHECKPOINT_TERMS_MAX]; /* first retained index of each retained term up to committed_index; last, so that a copy can end early */
};

/* Only the terms that are there. */
void checkpoint_copy(struct checkpoint *to, const struct checkpoint *from);

/* Reads the file (missing file or no good slot: present = false, 0). ERROR_IO. */
int checkpoint_load(struct checkpoint *checkpoint, struct env *env, const char *path, struct error *error);
/* Writes the older slot with sequence + 1 and syncs. Safe on a pool thread (works on the copy given). */
int checkpoint_save(struct checkpoint *checkpoint, struct env *env, const char *path, struct error *error);
/* A whole file that holds this checkpoint, for a copy of the log. ERROR_NO_MEMORY. */
int checkpoint_image(const struct checkpoint *checkpoint, struct buffer *file);

#endif
