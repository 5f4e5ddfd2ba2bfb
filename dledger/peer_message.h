/* What members of one group send each other: a fixed 64-byte header, then a body (a run of entries, a hello, a forwarded frame).
 *
 *     0 body size 4 | 4 type 1 | 5 version 1 | 6 flags 2 | 8 count 4 | 12 CRC32C of the header with this field 0 | 16 six words of 8 bytes
 *
 * Big-endian. A connection opens with PEER_MAGIC from the side that dialled, which no remoting frame can begin with.
 * To change: a next version (peer_version.h) adds message types, flags, words and fields of the hello, and sends them only to those who speak it; the
 * header's layout and checksum stay.
 */
#ifndef LEDGERMQ_DLEDGER_PEER_MESSAGE_H
#define LEDGERMQ_DLEDGER_PEER_MESSAGE_H

#include "proto/buffer.h"
#include "proto/error.h"

#define PEER_MAGIC 0x8C4C4D51u /* 0x8C "LMQ" */
#define PEER_HEADER_SIZE 64u
#define PEER_BODY_MAX (17u << 20)  /* a forwarded client frame is at most 16 MiB */
#define PEER_RUN_MAX (512u << 10)  /* bytes of entries in one message, unless a single entry is larger */

enum peer_message_type {
    PEER_HELLO = 1,
    PEER_APPEND_ENTRIES,
    PEER_APPEND_ENTRIES_RESULT,
    PEER_REQUEST_VOTE,
    PEER_REQUEST_VOTE_RESULT,
    PEER_TIMEOUT_NOW,
    PEER_FORWARD,        /* body: address size 2, address, client frame */
    PEER_FORWARD_ANSWER, /* body: the leader's whole answer frame */
    PEER_FETCH,          /* a mute member asks for entries */
    PEER_FETCH_RESULT,   /* body: run */
    PEER_REPAIR,         /* a member asks for entries that are damaged on its disk */
    PEER_REPAIR_RESULT,  /* body: run, the first of them */
    /* ---- from version PEER_VERSION_BULK on ---- */
    PEER_BEHIND,          /* leader: what the member needs next is deleted here */
    PEER_FORGOT,          /* the member has had more than it says now: its directory is an old copy */
    PEER_MANIFEST,        /* a member asks what it must have to go on from the leader's first entry */
    PEER_MANIFEST_RESULT, /* body: index of the newest configuration 8, CRC32C of both 4, that configuration */
    PEER_BULK,            /* ... and asks for a piece of it */
    PEER_BULK_RESULT,     /* body: bytes of the metadata snapshot, or a run */
    PEER_MESSAGE_TYPES
};

enum peer_message_flag {
    PEER_VOTE_DISRUPT = 1,
    PEER_VOTE_PRE = 2,
    PEER_VOTE_GRANTED = 4,
    PEER_RESULT_DISK_HIGH = 1, /* APPEND_ENTRIES_RESULT */
};

/* Raft indexes (1-based) throughout. Words that a type does not name are 0. */
struct peer_message {
    uint8_t type;
    uint8_t version;    /* 0 = the oldest */
    uint16_t flags;
    uint32_t count;     /* entries in the run; APPEND_ENTRIES_RESULT and HELLO have none and say another thing here */
    uint32_t body_size; /* bytes behind the header */
    union {
        uint64_t word[6];
        struct {
            uint64_t term, previous_index, previous_term, commit, stamp;
        } append; /* APPEND_ENTRIES. stamp: when it was sent, ms of the leader's clock; 0 in its low half = not said */
        struct {
            uint64_t term, rejected, last_index, features, capacity, stored;
        } append_result; /* stored: newest entry on stable storage. count: of the newest message that was taken as the leader's in this term, the stamp's low half */
        struct {
            uint64_t term, last_index, last_term;
        } vote; /* REQUEST_VOTE, TIMEOUT_NOW */
        struct {
            uint64_t term, features, capacity;
        } vote_result;
        struct {
            uint64_t id, timeout_ms;
        } forward;
        struct {
            uint64_t next_index, previous_term, term;
        } fetch; /* first entry wanted; our term of the one before it (0 = none); no leader of an older term can help */
        struct {
            uint64_t previous_index, previous_term, term, commit, match, last_index;
        } fetch_result; /* flags 1: the leader has another entry there, 2: its log begins later; term: the leader's; match: what the leader knows this member acknowledged once */
        struct {
            uint64_t first_index, previous_term, anchor_index, anchor_term;
        } repair; /* ours are the entries up to anchor_index of whoever has that term there (and previous_term before the first) */
        struct {
            uint64_t first_index, anchor_index;
        } repair_result;
        struct {
            uint64_t term, first_index;
        } behind; /* first_index: of the first entry that the leader has */
        struct {
            uint64_t term, last_index;
        } forgot; /* that its sender once saw on this member */
        struct {
            uint64_t next_index, previous_term;
        } manifest; /* the first entry that has not been fetched yet, 0 = none was; term of the one before it */
        struct {
            uint64_t id, first_index, first_position, last_index, end_position, metadata_size;
        } manifest_result; /* count: CRC32C of the first entry's header; all entries up to last_index are committed, the snapshot is of last_index */
        struct {
            uint64_t id, kind, from;
        } bulk, bulk_result; /* id: the manifest's; kind: enum peer_bulk_kind; from: offset or index */
    };
};

enum peer_repair_flag {
    PEER_REPAIR_REFUSED = 1,  /* not here, or damaged here as well */
    PEER_REPAIR_CONFLICT = 2, /* other entries are committed there */
    PEER_REPAIR_GONE = 4,     /* refused, since they are deleted here */
};

/* Of PEER_FETCH and PEER_MANIFEST. All members are there and too few of them run to elect a leader, since the others forgot something: who does not lead
 * answers as well. In a PEER_FETCH_RESULT: its sender did. */
#define PEER_FETCH_LEADERLESS 4u
enum peer_manifest_flag {
    PEER_MANIFEST_CONTINUES = 1, /* what was fetched so far is a part of it */
    PEER_MANIFEST_BUSY = 2,      /* another member is being served: ask again later */
};
enum peer_bulk_kind { PEER_BULK_METADATA, PEER_BULK_ENTRIES };
enum peer_bulk_flag { PEER_BULK_REFUSED = 1 /* that manifest is not served any more: ask for another */ };

/* What a member says of itself when a connection begins, both ways. */
enum peer_mute { PEER_NOT_MUTE = 0, PEER_MUTE_EMPTY = 1, PEER_MUTE_UNCLEAN = 2, PEER_MUTE_DAMAGED = 3 };
#define PEER_HELLO_CONFIGURATION_MAX 2048u
struct peer_hello {
    uint32_t version; /* that it must be understood in */
    uint32_t newest;  /* that its sender speaks */
    char cluster[128];
    char group[128];
    uint64_t from, to; /* Raft ids */
    uint64_t incarnation; /* of the directory */
    uint64_t run;         /* of the process; 0 from a version that did not say it */
    uint64_t segment_size;
    uint64_t term;
    uint64_t last_index, last_term; /* Raft index of the last entry, 0 = empty */
    uint8_t mute;                   /* enum peer_mute */
    bool started;                   /* its Raft instance runs */
    char broker_address[128];
    char self_id[16];                /* "" from a version that did not say it */
    uint64_t configuration_index;    /* Raft index of the newest configuration in its log, 0 = none */
    uint32_t configuration_size;
    uint8_t configuration[PEER_HELLO_CONFIGURATION_MAX];
    uint32_t voters; /* bit n - 1: number n has a vote in the newest configuration of its log, committed or not; 0 = it does not run, or does not say */
};

void peer_message_encode(const struct peer_message *message, uint8_t header[PEER_HEADER_SIZE]);
/* ERROR_MALFORMED: wrong CRC, unknown type, body too large; ERROR_VERSION: whole, but of a version that this program does not speak (only type, version and
 * body_size are filled). Close the connection. */
int peer_message_decode(struct peer_message *message, const uint8_t header[PEER_HEADER_SIZE]);

/* Fills message as well: its count is the CRC32C of the body, since one wrong bit in a term would make a member an old copy of itself. */
void peer_hello_encode(const struct peer_hello *hello, struct peer_message *message, struct buffer *body);
/* ERROR_MALFORMED: no hello, or not what was sent. A count of 0 is of a version that had no sum. */
int peer_hello_decode(struct peer_hello *hello, const struct peer_message *message, struct slice body);

#endif
