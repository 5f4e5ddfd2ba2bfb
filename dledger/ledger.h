/* Entries over segments: append, read, cut, recover. One copy of every entry, written with pwritev into reserved room, read through
 * read-only mappings. Knows nothing of Raft but index and term.
 *
 * Follows io.openmessaging.storage.dledger.store.file.DLedgerMmapFileStore. On disk, under dledger-<selfId>/:
 *     data/<20 digits>    segments; entries never straddle, a filler ends a file (spec: store.md 8.2)
 *     index/<20 digits>   32-byte units {magic 4, position 8, size 4, index 8, term 8} at index x 32; rebuilt from data, never synced
 *
 * A *run* is a row of sealed entries that stand densely one behind the other in memory (no filler between them, whatever their positions): the
 * form in which they are gathered, sent and received. Indexes here are DLedger indexes (Raft index - 1).
 */
#ifndef LEDGERMQ_DLEDGER_LEDGER_H
#define LEDGERMQ_DLEDGER_LEDGER_H

#include <pthread.h>

#include "proto/ledger_entry.h"
#include "store/checkpoint.h"
#include "store/mapped_file_queue.h"

#define LEDGER_RESERVE_AHEAD (64u << 20) /* room reserved (and zeroed in class B) ahead of the end; at most one segment */
#define LEDGER_RESERVE_STEP (16u << 20)  /* one job of the pool */
#define LEDGER_RESERVE_FIRST (4u << 20)  /* reserved while opening, so that a new node starts at once */
#define LEDGER_SYNC_FILES 4
#define LEDGER_HOLES_MAX 64u /* a further one is taken into the nearest: good entries between are written again too */

struct ledger_term {
    uint64_t term;
    uint64_t first_index; /* first retained index of that term */
};

/* One row per retained term, ascending. */
struct ledger_terms {
    struct ledger_term *rows;
    size_t count, capacity;
};

/* Entries that are known to be damaged here. They are not served, and written again with what the other members have. */
struct ledger_hole {
    uint64_t first, last; /* indexes */
    uint64_t position;    /* behind the entry before `first` */
    uint64_t end;         /* where the next good entry begins, or the log ends */
    uint64_t doubt;       /* entries from here on to `first` are whole and in a chain, but only what fills the hole proves that it is the right one */
    uint32_t refused;     /* the owner's: members that cannot help, a bit each */
    bool gone;            /* the owner's: some of them have deleted it */
    bool narrow;          /* its last entry is its own anchor, of the term that it most likely has; the chain behind it is the proof */
};

struct ledger {
    struct env *env;
    char *dir; /* .../dledger-n0 */
    struct mapped_file_queue data;
    struct mapped_file_queue index;
    bool zero_ahead; /* class B: reserved room is written with zeros */

    uint64_t trim_position; /* the owner's: the log begins here, whatever is still on the disk before it */
    int64_t begin_index; /* first retained; last_index + 1 when empty */
    int64_t last_index;  /* -1 when empty */
    uint64_t last_term;
    uint32_t last_chain; /* chainCrc of the last entry, 0 when empty */
    uint64_t end_position; /* behind the last entry */
    uint64_t reserved_end; /* appends up to here cannot run out of room */
    bool reserving;        /* a reservation job is out */

    struct ledger_terms terms;
    uint64_t terms_from; /* an entry before it tells its term itself: the table there was made from the entries */

    struct ledger_hole holes[LEDGER_HOLES_MAX]; /* ascending */
    uint32_t hole_count;

    bool failed; /* a write or sync failed in reserved room: final */
    struct error failure; /* names the file and the errno */
    int reserve_result;   /* how the last reservation ended: 0 or -errno, for the remark of a refused send */

    /* ---- private: making durable ---- */
    int64_t synced_index;     /* durable up to here ... */
    uint64_t synced_position; /* ... which ends here */
    bool sync_out;            /* a ledger_sync has not come back */
    struct mapped_file *sync_files[LEDGER_SYNC_FILES]; /* pinned for it: they may be removed meanwhile */
    int sync_count;
    int64_t sync_cap_index; /* a cut while the sync is out lowers what it proves */
    uint64_t sync_cap_position;
    /* ---- private: reserving ---- */
    struct mapped_file *reserve_file; /* pinned for the job that is out, NULL for one of the index and one that creates a segment */
    struct mapped_file_creation *reserve_creation; /* of the job that is out and creates a segment, else NULL */
    uint64_t reserve_retry_us;        /* not before: a full disk is not asked every turn */
    pthread_mutex_t reserve_lock;     /* held by the pool's job while it writes a piece of zeros or names a segment, by the loop while it calls the job off */
    bool reserve_cancelled;           /* under reserve_lock */
    /* ---- private: index files ---- */
    uint64_t index_reserved_end;  /* bytes of the index files that have disk blocks */
    int64_t index_verified_from;  /* units from here on were checked or written in this run: where an entry is damaged they tell its place */
    /* ---- private: the entry that was found last by walking over headers, for whoever asks for the next one: where it was. A hint: its header is looked at ---- */
    bool walked;
    uint64_t walked_index, walked_position;
    /* ---- private: the checkpoint's entry, behind which this run began to look, -1 = none. Its unit may be lost, and damage before it hide its place ---- */
    int64_t known_index;
    uint64_t known_end;
    uint32_t known_chain;
};

/* There are other members, from whom an opening has what is damaged here. */
struct ledger_repairs {
    void *context;
    /* Before anything is cut, or written, from which a later opening would see that entries are lost: the owner makes durable that they are. Not 0: nothing is
     * changed, and the opening fails with that. */
    int (*before_cut)(void *context, struct error *error);
};

/* How an opening ended, for the log and for tests. */
struct ledger_recovery {
    uint64_t entries_checked;
    uint64_t bytes_cut;   /* torn tail that was cut */
    bool cut;
    int64_t proved_index; /* newest commit claim of the checkpoint and of entries that are left: these are the committed ones up to there */
    int64_t claim_index;  /* newest commit claim found (checkpoint, or channel bits, also of entries behind a cut). Above last_index after a
                           * reboot: entries that were committed are gone from here; treat the node as one that forgot (design 14) */
    uint64_t index_units_rewritten;
    bool lost; /* the log ended before what the checkpoint says is committed, and others have the rest */
};

/* Opens and recovers: verifies all entries behind the checkpoint's committed index, finds the newest commit claim, decides torn tail or damage by
 * design 14 (checkpoint may be empty: a new directory, or one that lost it: then everything is verified). same_boot: the machine has not
 * rebooted since the last run; a checkpoint with the new boot id must not be saved before this has returned. In class B everything found is
 * durable on return. ERROR_DAMAGED names file, offset and remedy and changes nothing on disk. Nothing to close after a failure.
 * repairs: NULL when there are no other members. Damage becomes holes, a segment that is missing or too short is filled up with zeros, and a log that
 * ends too early is cut where it ends. */
int ledger_open(struct ledger *ledger, struct env *env, const char *dir, uint64_t segment_size, uint64_t index_file_size, bool zero_ahead,
                const struct checkpoint *checkpoint, bool same_boot, const struct ledger_repairs *repairs, struct ledger_recovery *recovery,
                struct error *error);
/* No job and no sync may be out. */
void ledger_close(struct ledger *ledger);

/* Where an entry of `size` bytes (header included) goes if the one before it ends at end_position: there, or at the next file's start. */
uint64_t ledger_place(const struct ledger *ledger, uint64_t end_position, uint32_t size);

/* Checks a run before it is believed: headers, sizes, indexes (first_index, +1 each), terms (not decreasing, not above term_max, not below
 * previous_term), positions (as ledger_place from previous_end), body CRCs, chain from previous_chain. count entries, exactly size bytes.
 * ERROR_MALFORMED/ERROR_DAMAGED with the reason. */
int ledger_check_run(const struct ledger *ledger, const uint8_t *run, size_t size, uint32_t count, uint64_t first_index, uint64_t previous_term,
                     uint64_t previous_end, uint32_t previous_chain, uint64_t term_max, struct error *error);
/* An empty ledger will hold entries from `index` on, at `position`, the begin of a segment: what was before them is not here. ERROR_IO. */
int ledger_begin_at(struct ledger *ledger, uint64_t index, uint64_t position, struct error *error);
/* Appends a run whose first index is last_index + 1: one pwritev per segment it touches, fillers and index units included. Grows reserved room
 * itself if the run passes reserved_end (followers). ERROR_NO_SPACE: nothing changed, may be tried again. ERROR_IO: final (failed is set). */
int ledger_append(struct ledger *ledger, const uint8_t *run, size_t size, uint32_t count);
/* Removes all entries from first_removed on. Writes a zero header at the cut and syncs. ERROR_IO: final. */
int ledger_truncate(struct ledger *ledger, uint64_t first_removed);

/* False when index is not retained, or damaged and its place unknown. Reads the index unit and the header it points to. */
bool ledger_locate(const struct ledger *ledger, uint64_t index, uint64_t *position, uint32_t *size, uint64_t *term);
/* The whole entry through the mapping (valid until the segment is removed), NULL when not retained. */
const uint8_t *ledger_entry(const struct ledger *ledger, uint64_t index, struct ledger_entry *entry);
/* Term of an index from the term table, 0 when not retained. */
uint64_t ledger_term_of(const struct ledger *ledger, uint64_t index);
/* End position and chain of the entry at index (0 and 0 for "before the first entry": index == UINT64_MAX). False when not retained. */
bool ledger_end_of(const struct ledger *ledger, uint64_t index, uint64_t *end_position, uint32_t *chain);
/* Longest run of entries from first_index that lie densely in one segment: at most max_count entries and max_bytes bytes, but at least one.
 * Returns the count (0 = not retained); *run points into the mapping. */
uint32_t ledger_run(const struct ledger *ledger, uint64_t first_index, uint32_t max_count, size_t max_bytes, const uint8_t **run, size_t *size);

/* Fills what a checkpoint says about the log: committed_*, terms (the newest CHECKPOINT_TERMS_MAX up to committed_index), begin_*; leaves the other
 * fields alone. committed_index (-1 = none) is lowered to what is durable here: a checkpoint that promises entries which a power cut can
 * still take would make the next start refuse a log that is only shorter. */
void ledger_fill_checkpoint(const struct ledger *ledger, int64_t committed_index, struct checkpoint *checkpoint);
/* The same, not lowered: for a copy that is durable as a whole before it counts. */
void ledger_fill_checkpoint_of_copy(const struct ledger *ledger, int64_t committed_index, struct checkpoint *checkpoint);

/* ---- damage (ledger_repair.c) ---- */
/* Checks entries from `index` on, against the chain and their own checksums, until max_bytes have been read or behind `last`; damage becomes holes.
 * The index behind what was checked. Known holes are passed over. */
uint64_t ledger_verify(struct ledger *ledger, uint64_t index, uint64_t last, uint64_t max_bytes);
/* NULL: it is not in a hole. */
const struct ledger_hole *ledger_hole_of(const struct ledger *ledger, uint64_t index);
/* The first one that has to be mended: what is before trim_position goes anyhow, and others may have deleted it. */
const struct ledger_hole *ledger_first_hole(const struct ledger *ledger);
/* Count of entries, from the first one ever, up to which everything is whole and on stable storage here. */
uint64_t ledger_whole_until(const struct ledger *ledger);
static inline bool ledger_hole_is_trimmed(const struct ledger *ledger, const struct ledger_hole *hole)
{
    return hole->end <= ledger->trim_position;
}
/* Do these bytes touch a hole? */
bool ledger_is_damaged(const struct ledger *ledger, uint64_t position, uint64_t size);
/* The entry whose term another member must have too, for its entries of the hole to be ours (Raft's log matching): the one behind the hole, or the
 * last of the log; the last in it when it is narrow. */
uint64_t ledger_hole_anchor(const struct ledger *ledger, const struct ledger_hole *hole, uint64_t *term);
/* As ledger_run, but its bytes have been checked. The first entry must not be damaged. */
uint32_t ledger_checked_run(const struct ledger *ledger, uint64_t first_index, uint32_t max_count, size_t max_bytes, const uint8_t **run, size_t *size);
/* Writes the first entries of a hole, which other members hold too, and makes them durable; when the run goes beyond the hole, that is written as well.
 * 0; ERROR_BUSY: more is damaged than was known, ask again; ERROR_MALFORMED or ERROR_DAMAGED (does not fit); ERROR_IO: final. */
int ledger_repair(struct ledger *ledger, uint64_t first, const uint8_t *run, size_t size, uint32_t count, struct error *error);
/* Nobody holds the entry behind the hole that begins at `first`: who holds the last one in it may have our entries too. They are taken all at once, when the
 * checksum chain goes from what stands before them to what stands behind. False: it is so already, or nothing stands there. */
bool ledger_narrow_anchor(struct ledger *ledger, uint64_t first);
/* Nobody holds what stands before the hole and what stands behind it: some of what is in doubt before it belongs to it. False: nothing is in doubt. */
bool ledger_widen_into_doubt(struct ledger *ledger, uint64_t first);
/* The entry behind the hole that begins at `first` is damaged too. */
void ledger_distrust_anchor(struct ledger *ledger, uint64_t first);
/* Where an entry lies, for messages: "<file> at offset <n>". */
void ledger_describe(const struct ledger *ledger, uint64_t position, char *out, size_t size);

/* ---- reserving room ahead (pool) ---- */
struct ledger_reservation {
    struct env *env;
    struct ledger *ledger; /* only its reserve_lock and reserve_cancelled */
    struct env_file *file;
    uint64_t offset; /* in the file */
    uint64_t size;
    uint64_t end_position;
    bool zero;
    bool index; /* room for index units, not for entries */
    bool creates; /* the next segment, nothing else */
    struct mapped_file_creation creation;
    int result; /* 0 or -errno, set by _run */
};
/* True: there is a job (room ahead is below LEDGER_RESERVE_AHEAD and none is out). After a failure for want of room it says false for a while. */
bool ledger_reservation_next(struct ledger *ledger, struct ledger_reservation *job);
void ledger_reservation_run(struct ledger_reservation *job);                            /* any thread */
void ledger_reservation_done(struct ledger *ledger, struct ledger_reservation *job); /* loop; on failure reserved_end stays */

/* Entries up to `end` need a segment that such a job is creating: who can wait for it does, since a disk that hangs keeps it away for long. */
bool ledger_awaits_segment(const struct ledger *ledger, uint64_t end);

uint64_t ledger_entries_ahead(const struct ledger *ledger); /* more than the log has now, for which the index has room */

/* ---- making it durable (flush thread) ---- */
struct ledger_sync {
    struct env *env;
    struct env_file *files[LEDGER_SYNC_FILES]; /* segments with unsynced bytes */
    int count;
    int64_t index;    /* everything up to here is durable when it succeeds */
    uint64_t position; /* which ends here */
    int result;       /* 0 or -errno */
    int failed_at;    /* the file it failed on */
};
/* False: nothing to sync, or one is out. Its files stay open, even when a cut removes them, until ledger_sync_done(). */
bool ledger_sync_next(struct ledger *ledger, struct ledger_sync *sync);
void ledger_sync_run(struct ledger_sync *sync); /* any thread */
/* Loop, once for each sync_next. A failure is final: sets failed. Returns the index up to which the log is durable (cuts made meanwhile heeded). */
int64_t ledger_sync_done(struct ledger *ledger, const struct ledger_sync *sync);

/* Removes whole segments before position (retention); begin_index and terms follow. */
int ledger_trim(struct ledger *ledger, uint64_t position, struct error *error);

#endif
