/* What the members know of each other: hellos, whether one that waits or is mute may go on, what to do when the leader's process is gone.
 */
#include "dledger/replica_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "dledger/peer_version.h"
#include "store/log_sink.h"
#include "store/seeded_bug.h"
#include "store/state_file.h"

/* In a set of members. */
static uint32_t bit_of(int place)
{
    return 1u << place;
}

void replica_hello(struct replica *replica, uint64_t to, struct peer_hello *hello)
{
    *hello = (struct peer_hello){
        .version = PEER_VERSION_OLDEST,
        .newest = peer_version_newest,
        .from = replica->id,
        .to = to,
        .incarnation = replica->checkpoint.incarnation,
        .run = replica->run,
        .segment_size = replica->options.segment_size,
        .term = replica->votes.term,
        .last_index = raft_driver_last(&replica->driver),
        .last_term = replica->ledger.last_term,
        .mute = (uint8_t)replica->mute_reason,
        .started = replica->phase == REPLICA_RUNNING,
    };
    snprintf(hello->cluster, sizeof hello->cluster, "%s", replica->options.cluster);
    snprintf(hello->group, sizeof hello->group, "%s", replica->options.group);
    snprintf(hello->broker_address, sizeof hello->broker_address, "%s", replica->broker_address);
    snprintf(hello->self_id, sizeof hello->self_id, "%s", replica->options.self_id);
    struct buffer encoded;
    bool told = false;
    buffer_init(&encoded, sizeof hello->configuration);
    if (hello->started && !replica->driver.failed) {
        told = replica_encode_members(replica, &encoded);
        hello->configuration_index = told ? replica->driver.raft.configuration_committed_index : 0;
        for (unsigned i = 0; i < replica->driver.raft.configuration.n; i++) {
            const struct raft_server *server = &replica->driver.raft.configuration.servers[i];
            if (server->role == RAFT_VOTER && server->id <= DLEDGER_MEMBERS_MAX)
                hello->voters |= bit_of((int)server->id - 1);
        }
    } else if (replica->phase == REPLICA_MUTE && replica->ledger.last_index > 0) {
        told = replica_encode_members(replica, &encoded);
        hello->configuration_index = told ? replica->configuration_index : 0;
    } else if (!hello->started && replica->ledger.last_index <= 0) {
        told = replica_first_configuration(replica, &encoded) == 0; /* of no index: nobody has it yet */
    }
    if (told) {
        hello->configuration_size = (uint32_t)encoded.size;
        memcpy(hello->configuration, encoded.data, encoded.size);
    }
    buffer_close(&encoded);
}

/* The number under which we know the sender; 0 = not at all. */
static uint64_t number_of(const struct replica *replica, const struct peer_hello *hello)
{
    if (hello->self_id[0] != '\0')
        return (uint64_t)(replica_place_of(replica, slice_of_text(hello->self_id)) + 1);
    return hello->from <= (uint64_t)replica->member_count && replica->members[hello->from - 1].raft_id != 0 ? hello->from : 0;
}

const char *replica_check_hello(struct replica *replica, struct peer_hello *hello)
{
    char *why = replica->why_not;
    size_t size = sizeof replica->why_not;
    uint64_t number = hello->from == 0 ? 0 : number_of(replica, hello);
    /* Who is empty has its numbers from dLegerPeers only, and is told better. */
    bool stranger = !hello->started && hello->last_index == 0;

    if (hello->version < PEER_VERSION_OLDEST || hello->version > peer_version_newest)
        snprintf(why, size, "it speaks version %u of the peer protocol and none before, this program %u to %u", hello->version, PEER_VERSION_OLDEST,
                 peer_version_newest);
    else if (strcmp(hello->cluster, replica->options.cluster) != 0)
        snprintf(why, size, "cluster \"%.64s\", ours is \"%.64s\"", hello->cluster, replica->options.cluster);
    else if (strcmp(hello->group, replica->options.group) != 0)
        snprintf(why, size, "group \"%.64s\", ours is \"%.64s\"", hello->group, replica->options.group);
    else if (replica->phase == REPLICA_REMOVED)
        snprintf(why, size, "this node was removed from the group");
    else if (replica->not_added && replica_is_stranger(replica))
        snprintf(why, size, "this node is no member of the group yet: mqadmin member add -i %s -a %s", replica->options.self_id,
                 replica->self_listed.address);
    else if (number == replica->id)
        snprintf(why, size, "the same id as ours (%s): dLegerSelfId is given twice", replica->options.self_id);
    else if (number == 0)
        snprintf(why, size, "%s (member number %llu) is no member of the group%s", hello->self_id[0] == '\0' ? "?" : hello->self_id,
                 (unsigned long long)hello->from, replica->driver.started ? ": mqadmin member add" : " in our dLegerPeers");
    else if (number != hello->from && !stranger)
        snprintf(why, size, "%s takes itself for member number %llu, it is %llu: its directory is of another group, or dLegerPeers differ",
                 hello->self_id, (unsigned long long)hello->from, (unsigned long long)number);
    else if (hello->to != replica->id && !stranger && !replica_is_stranger(replica))
        snprintf(why, size, "looks for member number %llu, this is %llu: dLegerPeers differ", (unsigned long long)hello->to,
                 (unsigned long long)replica->id);
    else if (hello->segment_size != replica->options.segment_size)
        snprintf(why, size, "mappedFileSizeCommitLog %llu, ours is %llu: all members need the same", (unsigned long long)hello->segment_size,
                 (unsigned long long)replica->options.segment_size);
    else {
        hello->from = number;
        return NULL;
    }
    return why;
}

static bool better_log(const struct peer_hello *a, uint64_t last_term, raft_index last, uint64_t id)
{
    if (a->last_term != last_term || a->last_index != last)
        return a->last_term > last_term || (a->last_term == last_term && a->last_index > last);
    return a->from < id;
}

/* Nothing is to be decided without this member: it may know more than it says, or than we have heard. */
static bool is_missing(const struct replica_peer *peer)
{
    return !peer->connected ||
           (!peer->hello.started && peer->hello.mute == PEER_NOT_MUTE) || /* stopped for good: what it holds is there again when a person restarts it */
           peer->hello.mute == PEER_MUTE_DAMAGED;                         /* it will know more when its log is whole again */
}

/* What has been heard of the others while too few of those who vote may run. Who has no vote, as one that joins, is not missed in an election, but may hold
 * what the others forgot. */
struct heard {
    int others;
    int missing;   /* of them */
    int young;     /* empty, or holding no more than the first entry of the first term, and that is ours as well: never took part in an election */
    int at_odds;   /* of them: would begin, or have begun, with other members than we */
    uint32_t voters;  /* a bit for each, as below */
    uint32_t running; /* with a vote or without */
    uint32_t better;  /* mute ones that vote and hold more than we do */
    uint64_t most; /* of those that run, with a vote or without: who holds the most; 0 = nobody runs */
};

static const struct peer_hello *hello_of(const struct replica *replica, uint64_t id)
{
    return &replica->peers[id - 1].hello;
}

static struct heard hear_others(const struct replica *replica)
{
    struct heard heard = {0};

    for (int i = 0; i < replica->member_count; i++) {
        const struct peer_hello *hello = &replica->peers[i].hello;
        bool votes = replica->members[i].raft_id != 0 && replica->members[i].voter;
        heard.voters |= votes ? bit_of(i) : 0;
        if (!replica_is_other(replica, i))
            continue;
        heard.others++;
        /* An empty one that does not count us in, as its list is another one, agrees to nothing. */
        if (is_missing(&replica->peers[i]) || (!hello->started && hello->last_index == 0 && hello->to != replica->id)) {
            heard.missing++;
            continue;
        }
        if (hello->last_index <= 1 && hello->term <= 1) {
            bool agrees = replica_agrees_on_first(replica, hello);
            heard.young += agrees || !hello->started;
            heard.at_odds += !agrees;
        }
        if (!hello->started) {
            if (votes && hello->last_index > 1 && better_log(hello, replica->ledger.last_term, raft_driver_last(&replica->driver), replica->id))
                heard.better |= bit_of(i);
            continue;
        }
        heard.running |= bit_of(i);
        if (heard.most == 0 || better_log(hello, hello_of(replica, heard.most)->last_term, hello_of(replica, heard.most)->last_index, heard.most))
            heard.most = (uint64_t)i + 1;
    }
    heard.missing += replica_named_elsewhere(replica) != NULL;
    return heard;
}

static uint64_t generation_of(uint64_t term)
{
    return term >> REPLICA_GENERATION_SHIFT;
}

static void add_heard(struct heard_group *heard, uint64_t term, raft_index configuration)
{
    /* In a group made anew by force indexes begin again behind that log's end. */
    if (generation_of(term) > generation_of(heard->term))
        heard->configuration = 0;
    if (generation_of(term) >= generation_of(heard->term) && configuration > heard->configuration)
        heard->configuration = configuration;
    if (term > heard->term)
        heard->term = term;
}

/* Adds what the others say who are here. */
static void add_others(const struct replica *replica, struct heard_group *heard)
{
    for (int i = 0; i < replica->member_count; i++) {
        const struct replica_peer *peer = &replica->peers[i];
        if (replica_is_other(replica, i) && peer->connected)
            add_heard(heard, peer->hello.term > peer->hello.last_term ? peer->hello.term : peer->hello.last_term, peer->hello.configuration_index);
    }
}

bool replica_misses_somebody(const struct replica *replica)
{
    const struct heard_group *heard = &replica->heard;
    struct heard_group here = {0};

    if (heard->term == 0 || replica->options.force_start)
        return false;
    add_others(replica, &here);
    add_heard(&here, replica->votes.term > replica->ledger.last_term ? replica->votes.term : replica->ledger.last_term, replica->configuration_index);
    if (here.term < heard->term)
        return true;
    /* Of a configuration that was committed in class A a power cut may have left nothing. */
    return replica->options.durability != DURABILITY_A && generation_of(here.term) == generation_of(heard->term) && here.configuration < heard->configuration;
}

bool replica_remember_heard(struct replica *replica)
{
    struct heard_group heard = replica->heard;
    char path[512];
    struct error error;

    /* Whoever lost no more than its vote has a log that tells. */
    if (replica->mute_reason != PEER_MUTE_EMPTY || replica->only_vote_lost)
        return true;
    add_others(replica, &heard);
    if (heard.term == replica->heard.term && heard.configuration == replica->heard.configuration)
        return true;
    replica_path(replica, "heard", path, sizeof path);
    if (heard_file_save(&heard, replica->env, path, &error) != 0) {
        LOG_ERROR("%s", error.message);
        return false;
    }
    replica->heard = heard;
    return true;
}

void replica_forget_heard(struct replica *replica)
{
    char path[512];
    struct error error;

    if (replica->heard.term == 0)
        return;
    replica_path(replica, "heard", path, sizeof path);
    if (state_file_remove(replica->env, path, &error) != 0)
        LOG_WARN("%s", error.message);
    replica->heard = (struct heard_group){0};
}

static bool is_majority(uint32_t some, uint32_t voters)
{
    return __builtin_popcount(some & voters) > __builtin_popcount(voters) / 2;
}

/* Can one of those who run be elected, if these vote? They must be a majority as far as we know, and each of those who run goes by the newest configuration of its
 * own log: with one in it that is not committed, which we may not have, it may need a vote more. */
static bool can_elect(const struct replica *replica, const struct heard *heard, uint32_t some)
{
    if (!is_majority(some, heard->voters))
        return false;
    if ((heard->running & heard->voters) == 0)
        return true;
    for (int i = 0; i < replica->member_count; i++) {
        uint32_t voters = replica->peers[i].hello.voters == 0 ? heard->voters : replica->peers[i].hello.voters;
        if ((heard->running & (heard->voters | voters) & bit_of(i)) != 0 && is_majority(some, voters))
            return true;
    }
    return false;
}

uint64_t replica_leaderless(const struct replica *replica)
{
    bool unclean = replica->mute_reason == PEER_MUTE_UNCLEAN;
    const struct peer_hello *most;
    struct heard heard;

    if (replica->phase != REPLICA_MUTE || (replica->mute_reason != PEER_MUTE_EMPTY && !unclean))
        return 0;
    heard = hear_others(replica);
    /* What a power cut left is enough to vote with, but no more of us do than a majority needs, those with most of the log first: so the leader has the most
     * of what is left, and the others catch up with it. */
    uint32_t some = heard.running | (unclean ? heard.better : 0);
    if (heard.missing > 0 || can_elect(replica, &heard, some) || replica_misses_somebody(replica))
        return 0;
    /* They wait for a vote that their change needs, and it is not given with less than they have: by our log others may vote than do today, or we alone. So
     * it is where our log ends before the others came. */
    unclean = unclean && !is_majority(some, heard.voters) && !replica->ends_early;
    most = heard.most == 0 ? NULL : hello_of(replica, heard.most);
    /* In class A whoever runs and votes can be elected by us, if we have our votes, however much more it holds. In class B what we lack may be committed with our
     * acknowledgement, and would be lost when the one that holds it went down and we voted for somebody else: we take it first, and who holds more and is mute
     * goes on before us. */
    bool is_enough = unclean && replica->options.durability == DURABILITY_A;
    /* What we have ourselves counts as well, and must not be cut for the sake of one that has less. One that runs may have got more since its hello. In a group of
     * three it is needed for the majority that we make with it, and votes for no shorter log, so what it has stays. */
    bool ours = replica->ledger.last_index > 0 &&
                (most == NULL || !better_log(most, replica->ledger.last_term, raft_driver_last(&replica->driver), is_enough ? 0 : UINT64_MAX));
    ours = ours || (unclean && most == NULL) || (is_enough && replica->members[heard.most - 1].voter);
    if (!ours && most == NULL)
        return 0;
    uint64_t last_term = ours ? replica->ledger.last_term : most->last_term;
    raft_index last = ours ? raft_driver_last(&replica->driver) : most->last_index;
    for (int i = 0; i < replica->member_count; i++) {
        const struct peer_hello *hello = &replica->peers[i].hello;
        if (replica_is_other(replica, i) && !hello->started && !(is_enough && replica->members[i].voter) &&
            better_log(hello, last_term, last, ours ? replica->id : 0))
            return 0; /* that one comes first */
    }
    return ours ? replica->id : heard.most;
}

uint64_t replica_unheard_term(const struct replica *replica, uint64_t least)
{
    uint64_t term = least;

    if (term < replica->heard_term)
        term = replica->heard_term;
    if (term < replica->votes.term)
        term = replica->votes.term;
    if (term < replica->ledger.last_term)
        term = replica->ledger.last_term;
    return term + 1;
}

/* With what is here. */
static int vote_again(struct replica *replica, struct error *error)
{
    int rv = vote_file_save(&replica->votes, replica_unheard_term(replica, 0), 0, error);
    return rv == 0 ? replica_start_driver(replica, replica->applied, error) : rv;
}

/* Without its vote file it is one of those that ask everybody before they vote again. But first the disk must say that it forgot more than its vote. */
static void go_on_anew(struct replica *replica)
{
    char path[512];
    struct error error;
    int rv;

    if (replica->restart_wanted)
        return;
    if (!replica_save_forgot(replica)) {
        replica->review_due_us = replica_now_us(replica) + REPLICA_REVIEW_RETRY_MS * 1000ull;
        return;
    }
    replica_path(replica, "vote", path, sizeof path);
    rv = replica->env->ops->unlink(replica->env, path);
    if (rv == 0)
        rv = env_sync_parent(replica->env, path);
    if (rv != 0 && rv != -ENOENT) {
        error_set(&error, ERROR_IO, "%s, which is of an old copy, cannot be removed: %s", path, strerror(-rv));
        replica_fail(replica, &error);
        return;
    }
    replica->restart_wanted = true;
}

void replica_review_members(struct replica *replica)
{
    struct error error;
    struct heard heard;
    int rv = 0;

    if (replica->phase == REPLICA_RUNNING && replica->begins_anew)
        go_on_anew(replica);
    if ((replica->phase != REPLICA_WAITING && replica->phase != REPLICA_MUTE) || replica->mute_reason == PEER_MUTE_DAMAGED)
        return;
    heard = hear_others(replica);
    bool old_group = heard.young + heard.missing < heard.others;
    if ((replica->phase == REPLICA_MUTE || old_group) && !replica_remember_heard(replica)) {
        replica->review_due_us = replica_now_us(replica) + REPLICA_REVIEW_RETRY_MS * 1000ull;
        return;
    }
    if (replica->phase == REPLICA_WAITING && old_group) {
        replica->checkpoint.forgot = true; /* a restart on the way must not take what was fetched so far for all that was acknowledged */
        if (!replica_save_forgot(replica)) {
            replica->review_due_us = replica_now_us(replica) + REPLICA_REVIEW_RETRY_MS * 1000ull; /* nothing is fetched before */
            return;
        }
        replica->phase = REPLICA_MUTE;
        LOG_WARN("this directory is empty among members that are not: mute until it has caught up with a leader");
    }
    if (heard.missing > 0 && !SEEDED_BUG(EMPTY_ELECTS))
        return; /* whoever is missing may know more */
    if (replica_misses_somebody(replica) && !SEEDED_BUG(EMPTY_ELECTS)) {
        if (!replica->said_later)
            LOG_WARN("%s", replica_why_not(replica));
        replica->said_later = true;
        return;
    }
    if (replica->phase == REPLICA_WAITING && heard.at_odds > 0 && !replica->said_at_odds) {
        replica->said_at_odds = true;
        LOG_WARN("all members are empty, and their dLegerPeers name different ones: there is no first start before they name the same");
    }
    if (replica->mute_reason == PEER_MUTE_EMPTY && replica->ledger.last_index <= 0 &&
        ((heard.young == heard.others && heard.at_odds == 0) || SEEDED_BUG(EMPTY_ELECTS))) {
        rv = replica_bootstrap(replica, &error); /* also when a first start was interrupted between the first entry and the vote file */
    } else if (replica->mute_reason == PEER_MUTE_EMPTY && replica->only_vote_lost && !can_elect(replica, &heard, heard.running | heard.better)) {
        /* Too few run to elect a leader, so there is none. */
        LOG_WARN("votes that are needed were lost, and all members have been heard: voting again from term %llu on",
                 (unsigned long long)replica_unheard_term(replica, 0));
        rv = vote_again(replica, &error);
    } else if (replica_leaderless(replica) != replica->id) {
        return; /* somebody leads, or holds more than we do */
    } else if (replica->mute_reason == PEER_MUTE_UNCLEAN) {
        LOG_ERROR("a majority lost what tells how it went down (or, in durability class A, went down uncleanly), so what was acknowledged last may be lost; electing from what is left");
        rv = replica_start_driver(replica, replica->applied, &error);
    } else {
        LOG_ERROR("members whose votes are needed forgot what they had, and all have been heard: what was acknowledged by those alone is lost; voting again with what "
                  "is here");
        rv = vote_again(replica, &error);
    }
    if (rv == ERROR_NO_SPACE)
        replica->review_due_us = replica_now_us(replica) + REPLICA_REVIEW_RETRY_MS * 1000ull; /* nothing was written */
    else if (rv != 0)
        replica_fail(replica, &error);
}

/* A vote file never goes back to an earlier term, nor a log to before what was committed with its help: whoever says so has another directory than it had,
 * an old copy of it. It would vote on what it forgot, so it is told. */
static void compare_hello(struct replica *replica, uint64_t id, bool first)
{
    struct replica_peer *peer = replica_peer_of(replica, id);
    const struct peer_hello *hello = &peer->hello;
    struct peer_message message = {.type = PEER_FORGOT};

    if (!hello->started && hello->mute != PEER_NOT_MUTE) {
        peer->seen_run = peer->seen_term = peer->seen_index = 0; /* it knows that it forgot, and will not start before it has what it needs */
        return;
    }
    if (!hello->started || (hello->run == 0 && !first))
        return; /* between two hellos on one connection it did not begin anew */
    if (hello->run != 0 && hello->run == peer->seen_run) {
        peer->seen_term = hello->term; /* one run is of one directory, whoever said another thing of it meanwhile */
        return;
    }
    /* In class A members may begin with less after a power cut of a majority. */
    if (hello->term >= peer->seen_term && (hello->last_index >= peer->seen_index || replica->options.durability == DURABILITY_A)) {
        peer->seen_run = hello->run;
        peer->seen_term = hello->term;
        return;
    }
    if (peer_version_common(hello->newest) < PEER_VERSION_BULK)
        return;
    message.forgot.term = peer->seen_term;
    message.forgot.last_index = peer->seen_index;
    LOG_WARN("member %s says term %llu and entry %lld, and had term %llu and entry %lld: its directory is an old copy", replica->members[id - 1].id,
             (unsigned long long)hello->term, (long long)hello->last_index - 1, (unsigned long long)peer->seen_term, (long long)peer->seen_index - 1);
    replica->io.send(replica->io.context, id, &message, NULL, 0);
}

/* Staggered by place, so that two who hurry do not split the vote. */
static uint32_t place_delay_ms(const struct replica *replica)
{
    return (uint32_t)(5 + 15 * (replica->id - 1));
}

void replica_peer_connected(struct replica *replica, uint64_t id, const struct peer_hello *hello)
{
    struct replica_peer *peer = replica_peer_of(replica, id);

    if (peer == NULL)
        return;
    bool first = !peer->connected, again = first && peer->heard;
    peer->connected = true;
    peer->heard = true;
    peer->stored = 0;
    peer->hello = *hello;
    compare_hello(replica, id, first);
    if (hello->term > replica->heard_term)
        replica->heard_term = hello->term;
    replica->members[id - 1].connected = true;
    replica->members[id - 1].peer_version = peer_version_common(hello->newest);
    snprintf(replica->members[id - 1].broker_address, sizeof replica->members[id - 1].broker_address, "%s", hello->broker_address);
    /* A leader whose log failed says so, and nobody need wait until it has been silent for an election time-out. */
    if (!hello->started && raft_driver_leader(&replica->driver) == id)
        replica_peer_gone(replica, id);
    /* After a cut the vote that was missing may be here. A leader that there is would be heard first, and an election that is under way goes on. */
    if (again && hello->started && replica->phase == REPLICA_RUNNING && raft_driver_leader(&replica->driver) == 0) {
        uint32_t heartbeat_ms = replica->options.heartbeat_ms;
        raft_driver_hurry(&replica->driver, place_delay_ms(replica) + (heartbeat_ms < RAFT_DRIVER_VOTE_PATIENCE_MS ? RAFT_DRIVER_VOTE_PATIENCE_MS : heartbeat_ms));
    }
    replica_review_members(replica);
}

void replica_note_seen_of(struct replica *replica, int place)
{
    struct replica_peer *peer = &replica->peers[place];
    raft_index match;

    if (!raft_driver_leads(&replica->driver) || replica->members[place].raft_id == 0 ||
        raft_match_index(&replica->driver.raft, (raft_id)place + 1, &match) != 0)
        return;
    if (match > replica->driver.commit)
        match = replica->driver.commit; /* what is beyond may be cut under another leader */
    if (match > peer->seen_index)
        peer->seen_index = match;
}

void replica_note_seen(struct replica *replica)
{
    for (int i = 0; i < replica->member_count; i++)
        replica_note_seen_of(replica, i);
}

bool replica_may_begin_anew(const struct replica *replica)
{
    return replica->phase == REPLICA_RUNNING && !replica->begins_anew && !replica->restart_wanted && !replica->fetch.frozen && replica_group_size(replica) > 1 &&
           !replica->options.force_start;
}

void replica_begin_anew(struct replica *replica)
{
    replica->driver.failed = true; /* not a vote more */
    replica->begins_anew = true;
    replica->checkpoint.forgot = true;
    go_on_anew(replica);
}

void replica_told_forgot(struct replica *replica, uint64_t from, const struct peer_message *in)
{
    if (!replica_may_begin_anew(replica) ||
        (in->forgot.term <= replica->votes.term && in->forgot.last_index <= raft_driver_last(&replica->driver)))
        return;
    LOG_ERROR("member %s knew this member with term %llu and entry %lld, here are term %llu and entry %lld: this directory is an old copy. The member takes no "
              "part until it has caught up with a leader",
              replica->members[from - 1].id, (unsigned long long)in->forgot.term, (long long)in->forgot.last_index - 1, (unsigned long long)replica->votes.term,
              (long long)replica->ledger.last_index);
    replica_begin_anew(replica);
}

void replica_peer_lost(struct replica *replica, uint64_t id)
{
    struct replica_peer *peer = replica_peer_of(replica, id);

    if (peer == NULL)
        return;
    peer->connected = false;
    peer->slow = false;
    replica->members[id - 1].connected = false;
    raft_driver_peer_lost(&replica->driver, id);
}

void replica_hurry(struct replica *replica)
{
    /* Repeated, since the one asked first may still believe in the old leader. */
    raft_driver_hurry(&replica->driver, place_delay_ms(replica));
    replica->hurry_next_us = replica_now_us(replica) + 60000 + 10000 * replica->id;
}

void replica_peer_gone(struct replica *replica, uint64_t id)
{
    if (replica->phase != REPLICA_RUNNING || (raft_driver_leader(&replica->driver) != id && replica->hurry_until_us == 0))
        return;
    if (raft_driver_leader(&replica->driver) == id) {
        replica->hurry_until_us = replica_now_us(replica) + 2000000;
        replica->gone_leader = id;
        replica->gone_term = replica_term(replica);
    }
    replica_hurry(replica);
}
