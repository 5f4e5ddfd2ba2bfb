/* Three replicas, or five, in one thread, each on a machine in memory, with messages passed by hand and one clock that stands between steps. For Check
 * programs. Faults in numbers are the simulator's business (tests/sim).
 */
#ifndef LEDGERMQ_TESTS_LIB_REPLICA_GROUP_H
#define LEDGERMQ_TESTS_LIB_REPLICA_GROUP_H

#include "dledger/replica.h"
#include "tests/lib/sim_env.h"

#define GROUP_NODES 3 /* unless the test says otherwise before anybody is up */
#define GROUP_NODES_MAX 5
#define GROUP_SEGMENT (1u << 20)

struct group_node {
    struct sim_env sim;
    struct sim_clock clock; /* the group's, or ahead of it: its loop has been held up until then */
    struct replica replica;
    struct message_store store;
    struct log_view view;
    uint64_t id;
    bool up;

    /* ---- the test may set these ---- */
    bool cut;      /* nobody hears it and it hears nobody */
    bool no_turn;  /* takes messages, its loop turn does not end */
    bool no_sync;  /* its sync takes long */
    uint64_t sync_us; /* so long a sync of its log takes */
    bool broken;   /* its disk opens no segment any more */
    bool no_restart; /* it does not get the new start that it asks for */
    bool may_fail; /* it is expected to stop for good */
    uint64_t stall_until_us; /* its process gets no processor until then */
    uint64_t vote_sync_us;   /* so long a sync of its vote file takes; its loop stands still for REPLICA_VOTE_WAIT_MS of it */

    int restarts; /* that it asked for */
    int metadata_applied;
    int snapshots; /* that were asked of it */
    int messages_applied;

    /* ---- private ---- */
    uint64_t vote_started_us;
    bool vote_wanted, sync_wanted, reserve_wanted, save_wanted, greet_wanted, scrub_wanted;
    struct env_ops ops;
    const struct env_ops *sim_ops;
};

struct group_send {
    struct append_entry_request request; /* first */
    bool done;
    int64_t queue_offset;
};

struct group {
    struct sim_clock clock;
    enum durability_class durability;
    uint64_t segment_size; /* GROUP_SEGMENT, unless the test says otherwise before anybody is up */
    int size; /* members */
    struct group_node nodes[GROUP_NODES_MAX + 1]; /* by Raft id */
    uint64_t fetch_bytes_per_second;
    uint64_t scrub_bytes_per_second; /* 0: nobody scrubs */
    bool alone; /* member 1 is a group of one */
    const char *peers; /* dLegerPeers of those that come up, NULL: all members */
    bool keyed; /* each message has a key */
    const char *preferred_leaders;
    /* Set: called for every message on its way; false drops it. */
    bool (*passes)(uint64_t from, uint64_t to, const struct peer_message *message);
    /* Set: may change the bytes behind a message's header. */
    void (*spoils)(const struct peer_message *message, uint8_t *body);
    bool parted[GROUP_NODES_MAX + 1][GROUP_NODES_MAX + 1]; /* these two have no connection: group_part(), group_join() */
    /* Set: how long a message is on its way; else it arrives in the step in which it was sent. Order is kept between two members. */
    uint64_t (*latency_us)(uint64_t from, uint64_t to);
};
extern struct group group;

/* Check fixture: empty machines, nobody up, class B. */
void group_set_up(void);
void group_tear_down(void);

/* Begins a process and greets the others. */
void group_up(struct group_node *node);
void group_all_up(void);
/* Begins a process that dies inside the n-th such call of the disk (enum sim_call bits), in any case before its start is over, or does not: false, and it is
 * up. With power the machine goes down with it. */
bool group_dies_at_start(struct group_node *node, unsigned calls, uint64_t n, bool power);
/* As after kill -9: nothing is said to anybody, jobs that were out are done, files stay as they are. */
void group_kill(struct group_node *node);
/* Its machine loses power: what was not synced may be gone. */
void group_power_cut(struct group_node *node);
/* An empty disk; the node must be down. */
void group_wipe(struct group_node *node);
/* For group.passes: mute members get no entries. */
bool group_without_fetched(uint64_t from, uint64_t to, const struct peer_message *message);

/* One millisecond: timers, turns, all messages. */
void group_step(void);
void group_steps(int count);
struct group_node *group_leader(void); /* that accepts; NULL = none */
/* Fails after so many steps. */
struct group_node *group_wait_leader(int steps);
/* Any other member than these that is up (NULL = no matter). */
struct group_node *group_other(const struct group_node *a, const struct group_node *b);

/* Message n to queue n % 4 of topic T. send NULL: nobody waits for it. 0 or replica_reserve()'s code. */
int group_send(struct group_node *node, struct group_send *send, int n);
/* ... and waits until it is acknowledged. */
void group_must_send(struct group_node *node, int n);
/* Member 1, down again, that was a group of one (group.alone stays) and has messages 0 to count - 1; its checkpoint knows that they are committed. */
struct group_node *group_was_alone(int count);
/* Opens what that member has, as far as its Raft instance can be started with its first entry. The caller closes it. */
void group_open_unstarted(struct group_node *node, struct replica *replica);
/* From now on the node receives the log only. */
void group_take_vote(struct group_node *leader, const struct group_node *node);
/* Where its ledger lies. */
const char *group_dir(const struct group_node *node);
/* No connection between these two, and again one, on which they greet each other. */
void group_part(const struct group_node *a, const struct group_node *b);
void group_join(struct group_node *a, struct group_node *b);
/* A file in there, until the next call. */
const char *group_file(const struct group_node *node, const char *name);
/* What its vote file says from now on; the node must be down. */
void group_save_vote(struct group_node *node, uint64_t term, uint64_t voted_for);
/* All queues of a node hold so many messages together. */
int64_t group_messages(struct group_node *node);

#endif
