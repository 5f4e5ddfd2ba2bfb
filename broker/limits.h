/* Every bound of the broker, with its arithmetic. The defaults fit a container of 256 MiB.
 *
 * A bound that is hit is counted (struct broker_stats, key `limit_<name>` of the runtime table) and the answer names cause and limit.
 */
#ifndef LEDGERMQ_BROKER_LIMITS_H
#define LEDGERMQ_BROKER_LIMITS_H

#include "proto/remoting_command.h"

/* ---- connections ---- */
#define LIMIT_CONNECTIONS 10000u /* accepted at a time per server; x some 800 bytes idle = 8 MiB */
#define LIMIT_LISTENERS 8u       /* ports of one server */
/* New connections of one port in one turn of the loop, some 15 us each: the rest stays in the kernel's backlog until the next turn. */
#define LIMIT_ACCEPTS_TURN 64u
/* When all places are taken, a connection that has said nothing for so long since it came gives its place to a new one. */
#define LIMIT_SILENT_MS 1000u
/* Time of one turn that goes to clients' requests before the sockets that are left wait for the next turn. Peers' sockets are read in every turn,
 * so a flood of requests delays Raft by no more than this and one request. */
#define LIMIT_TURN_US 10000u
/* For a second after such a turn the port is crowded, and goes on to be while somebody has more to say than its share and somebody else speaks, too: a turn
 * is shorter, and a connection is read once in one. So each step of a request on its way to the quorum, of which a send has three, waits for 0.25 ms of the
 * others' requests, not for all that they have sent. Who asks for less than its share is read in every turn, however many ask for more. */
#define LIMIT_CROWDED_US 1000000u
#define LIMIT_CROWDED_TURN_US 250u
/* ... and so long when nobody asked for less than its share in the last LIMIT_CROWDED_LIGHT_US: short turns, which cost a fifth of the rate, help nobody then. */
#define LIMIT_CROWDED_HEAVY_TURN_US 2000u
#define LIMIT_CROWDED_LIGHT_US 100000u
/* The share: a turn's time by the number of those that asked for more in the last round. A read and a write of a socket, some 5 us, are a sixth of it. */
#define LIMIT_CROWDED_SHARE_MIN_US 30u
/* What the first read brings; what one has cost decides about the next. */
#define LIMIT_CROWDED_READ_FIRST_BYTES (32u * 1024)
#define LIMIT_CROWDED_READ_MIN_BYTES 512u
/* A frame has clientFrameTimeoutMs (30 s) and a millisecond for each so many bytes that have come: 16 KiB/s is fast enough. */
#define LIMIT_FRAME_BYTES_PER_MS 16u
#define LIMIT_IDLE_MS 120000u    /* serverChannelMaxIdleTimeSeconds */
#define LIMIT_STALLED_WRITE_MS 30000u
/* Unsent bytes of one client: a client is cut when an answer is to be queued behind this much, so at most this plus one answer (16 MiB). */
#define LIMIT_UNSENT_BYTES (16u * 1024 * 1024)
/* Above this a client's next requests wait in its socket until it has read some: a fast reader with 100 queues x 256 KiB is not cut. */
#define LIMIT_UNSENT_PAUSE_BYTES (4u * 1024 * 1024)
#define LIMIT_UNSENT_TOTAL_BYTES (64u * 1024 * 1024) /* of owned bytes over all clients: then the one that is asked to take more is cut */
#define LIMIT_READ_BYTES (256u * 1024) /* shared by all connections: one read; window 64 x (1 KiB + 0.3 KiB header) = 83 KiB fits */
#define LIMIT_INPUT_KEEP_BYTES (16u * 1024) /* input buffer a connection keeps between frames */
#define LIMIT_OUTPUT_KEEP_BYTES (16u * 1024)   /* output buffer an idle connection keeps */
#define LIMIT_OUTPUT_BUSY_BYTES (1024u * 1024) /* and a busy one between two turns */
/* Partial frames of all connections together; 4 clients may send 16 MiB frames at the same time. Who needs more takes it from the one whose frame is
 * the oldest unfinished of the large ones: those that hold memory are slow by nature. */
#define LIMIT_INPUT_TOTAL_BYTES (64u * 1024 * 1024)

/* ---- sends ---- */
/* Sends that wait for the quorum: x some 160 bytes = 10 MiB. Java refuses at 10,000 (maxPendingRequestsNum), too few for window 1024 x 64
 * clients. Their bytes are bounded by dledger. */
#define LIMIT_PENDING_SENDS 65536u
#define LIMIT_PENDING_SENDS_CONNECTION 16384u /* of one connection: 4 of them fill the table, a client's window is some 1,000 */
#define LIMIT_BATCH_MEMBERS 32768u /* of one 320 request: 4 MiB / 24 bytes of an empty member is far above what clients make */

/* ---- pulls ---- */
#define LIMIT_HELD_PULLS 100000u /* x some 300 bytes = 30 MiB at the worst; 10,000 connections with 10 queues each */
#define LIMIT_HELD_BYTES (32u * 1024 * 1024) /* their topics, groups and expressions */
#define LIMIT_HOLD_MS 60000u     /* longest hold, whatever the client asks */
#define LIMIT_COLD_READS 16u     /* jobs at the pool at a time; x 256 KiB = 4 MiB, but one large record each at the worst: 64 MiB */
#define LIMIT_COLD_GAP_BYTES (64u * 1024) /* old records that are closer together are read from the disk as one piece */
#define LIMIT_COLD_BLOCK_BYTES (256u * 1024) /* which ends at a multiple of this: 0.5 ms of a disk that reads 500 MB/s, for which a sync may have to wait */
#define LIMIT_COLD_WAITING 1024u /* jobs that wait for a place; x 1.2 KiB */
#define LIMIT_FILTER_COLD_RECORDS 32u /* old records that one pull with a filter looks at, each maybe a read of 100 us and more */
#define LIMIT_FILTER_HOT_RECORDS 4096u /* ... and young ones, which are in memory: some 2 ms */
#define LIMIT_HOT_BYTES (64u * 1024 * 1024) /* this much behind the commit position is read through the mapping */
#define LIMIT_COPY_RECORD_BYTES 1024u /* shorter records are copied into the answer: an iovec costs more than the copy */

/* ---- our requests to clients ---- */
/* That wait for an answer (request-reply, 307, 309, 221), for at most LIMIT_CLIENT_CALL_MS: x some 150 bytes = 600 KiB, and what their callers keep. */
#define LIMIT_CLIENT_CALLS 4096u
#define LIMIT_CLIENT_CALL_MS 10000u /* Broker2Client */

/* ---- statistics ---- */
#define LIMIT_STATS_ITEMS 16384u /* topics, (group, topic) pairs and their queues that are counted: x 1.2 KiB = 19 MiB at the worst */

/* ---- forwarding ---- */
#define LIMIT_PARKED_REQUESTS 1024u
#define LIMIT_PARKED_BYTES (16u * 1024 * 1024)
#define LIMIT_PARKED_MS 1000u
#define LIMIT_FORWARDED_REQUESTS 4096u /* out at the leader, and taken from followers */
#define LIMIT_FORWARD_MS 1000u

/* ---- delayed messages ---- */
#define LIMIT_DELAY_LEVELS 64u
#define LIMIT_DELAY_IN_FLIGHT 1024u /* delivered entries that have not committed yet, all levels */
#define LIMIT_DELAY_READ_BYTES (1024u * 1024) /* records read ahead by one delivery turn */

/* ---- transactions ---- */
/* Half messages without a decision: x 24 bytes, twice that while the table grows = 25 MiB at the worst, on every node. At 10,000 a second and the
 * default time-out of 6 s some 60,000 wait. */
#define LIMIT_UNSETTLED_HALVES 524288u
#define LIMIT_ENDS_IN_FLIGHT 65536u /* 37s that wait for the quorum: x some 500 bytes = 32 MiB at the worst */
#define LIMIT_CHECKS_IN_FLIGHT 64u  /* check-backs that are read or noted: x 1.3 KiB, and one old record each */

#endif
