/* A member whose next entry is deleted in the group, or damaged here and deleted on the others, is brought level: it fetches a metadata snapshot of the leader
 * and all entries from the leader's first one up to the snapshot's, beside its own log, and takes them in its place with the next start, which it asks for.
 *
 * Below dledger-<selfId>/install/ lie data/ and index/ (a ledger, so what is there after a kill is checked and gone on with), and once all is whole and
 * durable metadata.0, checkpoint and the mark `complete`. Until that mark is there nothing of it is believed, after it nothing else is: a start then
 * clears what the member had but its vote, and moves the new files to their places. Only committed entries are fetched, so they are part of the log of
 * every leader to come. Term and vote stay: who forgot nothing goes on voting while it fetches and afterwards, who forgot something stays mute. When nobody
 * leads, and this member's damage may be the reason, it fetches from one that has all that it has itself.
 */
#ifndef LEDGERMQ_DLEDGER_BULK_FETCH_H
#define LEDGERMQ_DLEDGER_BULK_FETCH_H

#include "dledger/ledger.h"
#include "dledger/peer_message.h"

struct replica;

/* Work for another thread; at most one of each owner is out. */
struct replica_job {
    bool out;
    void (*run)(struct replica_job *job);  /* any thread */
    void (*done)(struct replica_job *job); /* loop */
};

enum bulk_state {
    BULK_IDLE,
    BULK_OPENING,  /* what an earlier try left is looked through (job) */
    BULK_ASKING,   /* for a manifest */
    BULK_METADATA, /* its snapshot comes in */
    BULK_ENTRIES,  /* its entries come in */
    BULK_SYNCING,  /* all are there, and become durable (job) */
    BULK_FINISHING, /* the mark is written (job); the member takes no entries any more */
    BULK_COMPLETE, /* waits for the start that it asked for */
    BULK_STATES
};

struct bulk_fetch {
    struct replica *replica;
    enum bulk_state state;
    struct replica_job job;

    /* ---- the manifest ---- */
    uint64_t peer; /* whose it is, Raft id */
    uint64_t id;
    uint64_t first, last; /* DLedger indexes */
    uint64_t first_position, end_position;
    uint32_t first_crc;   /* of the first entry's header */
    uint64_t metadata_size;
    uint64_t configuration_index; /* Raft index */
    struct buffer configuration;

    /* ---- what is here ---- */
    bool opened; /* staging is a ledger */
    bool wipe;   /* the next opening begins with nothing */
    bool frozen; /* the mark may be on the disk: what the member's own log gets now would be lost */
    struct ledger staging;
    struct ledger_sync sync;
    struct buffer metadata;
    struct checkpoint checkpoint; /* of the finishing job */
    char dir[440], checkpoint_path[480], metadata_path[480], mark_path[480];
    struct error error;  /* of a job */
    int result;

    uint64_t due_us;   /* when to ask (again) */
    uint64_t asked_us; /* when the piece that is out was asked for, 0 = none is */
    uint32_t unanswered;
    uint64_t told_us; /* when progress was logged last */
    uint64_t begun_us;
    bool said_waits;
    int64_t leftover_at;    /* install/ lay there at the start, with so much log: a longer log does not need it. -2 = no */
};

/* ---- dledger/bulk_fetch.c: a member that fetches ---- */
void bulk_fetch_init(struct bulk_fetch *fetch, struct replica *replica); /* all zeros before */
void bulk_fetch_close(struct bulk_fetch *fetch);
/* What comes next here is deleted in the group. */
void bulk_fetch_begin(struct bulk_fetch *fetch);
void bulk_fetch_tick(struct bulk_fetch *fetch, uint64_t now);
uint64_t bulk_fetch_deadline_us(const struct bulk_fetch *fetch); /* UINT64_MAX = never */
void bulk_fetch_manifest(struct bulk_fetch *fetch, uint64_t from, const struct peer_message *in, const uint8_t *body);
void bulk_fetch_piece(struct bulk_fetch *fetch, uint64_t from, const struct peer_message *in, const uint8_t *body);
/* Bytes of the log that are here and that are wanted; 0 and 0 when nothing is fetched. */
void bulk_fetch_progress(const struct bulk_fetch *fetch, uint64_t *bytes, uint64_t *of);
const char *bulk_state_name(enum bulk_state state);

/* ---- dledger/bulk_install.c: before a start ---- */
/* Puts a complete fetch in the place of what the member had. store_dir: storePathRootDir. dir: .../dledger-<selfId>. *installed: it did. *leftover: an
 * incomplete one lies there. ERROR_IO: call again, any number of times. */
int bulk_install(struct env *env, const char *store_dir, const char *dir, bool *installed, bool *leftover, struct error *error);
/* Removes an incomplete one. Any thread. */
int bulk_install_discard(struct env *env, const char *dir, struct error *error);
/* Is the mark there, and whole? install: .../dledger-<selfId>/install. */
bool bulk_install_is_complete(struct env *env, const char *install);
/* Makes the marks that are there durable: who made one may have died before. Without it the old files would be removed once more, or new ones that are in
 * their place already be taken for half of a fetch. 0 or a negative errno. */
int bulk_install_keep_marks(struct env *env, const char *install);
/* Writes the mark. Any thread. */
int bulk_install_mark(struct env *env, const char *path, struct error *error);

#endif
