#include "tests/sim/driver_group.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ELECTION_MS 300u
#define HEARTBEAT_MS 50u
#define INDEX_FILE 8192u
#define FIRST_LEADER_MS 5000u
#define UNSENT_MAX (1u << 20) /* bytes of entries under way from one to another: what is more is dropped, as dledger/peer.c does */
#define DIR_NAME "/member"

struct letter {
    struct letter *next;
    uint64_t arrives;
    int from, to;
    struct peer_message message;
    uint8_t run[];
};

struct driver_group group;

/* ---- rules ---- */

static void note_committed(struct member *member, raft_index index)
{
    uint64_t end;
    uint32_t chain;

    if (!ledger_end_of(&member->ledger, index - 1, &end, &chain))
        return; /* deleted */
    if (index >= group.chain_capacity) {
        raft_index capacity = 2 * index + 1024;
        group.chains = realloc(group.chains, capacity * sizeof *group.chains);
        assert(group.chains != NULL);
        group.chain_capacity = capacity;
    }
    if (index > group.committed) {
        if (index != group.committed + 1)
            violation(member->id, "entry %llu is committed, %llu is not", index, group.committed + 1);
        group.committed = index;
        group.chains[index] = chain;
        world.stats->committed++;
    } else if (group.chains[index] != chain) {
        violation(member->id, "State Machine Safety: another entry %llu was committed before", index);
    }
}

/* After every event of a member. */
void driver_group_look_at(struct member *member)
{
    struct raft_driver *driver = &member->driver;
    struct raft *raft = &driver->raft;
    raft_term term = raft_current_term(raft);

    if (driver->failed)
        violation(member->id, "it has stopped for good");
    if (term >= DRIVER_GROUP_TERMS_MAX)
        violation(member->id, "term %llu: nobody stays leader", term);
    if (raft_voted_for(raft) == (raft_id)member->id)
        group.stood[term] = true;
    if (!group.stood[term])
        violation(member->id, "is in term %llu, in which nobody has stood for election", term);
    if (raft_driver_leads(driver)) {
        if (group.leader_of[term] == 0)
            world.stats->elections++;
        else if (group.leader_of[term] != (uint64_t)member->id && !group.two_may_lead)
            violation(member->id, "Election Safety: n%llu leads in term %llu too", (unsigned long long)group.leader_of[term] - 1, term);
        group.leader_of[term] = (uint64_t)member->id;
    }
    if (driver->leader_tick_ms != member->timer_seen) {
        if (driver->leader_tick_ms < member->timer_seen + HEARTBEAT_MS)
            violation(member->id, "its timer as leader runs twice within %llu ms", driver->leader_tick_ms - member->timer_seen);
        member->timer_seen = driver->leader_tick_ms;
    }
    if (driver->commit < member->commit_seen)
        violation(member->id, "its commit index goes back from %llu to %llu", member->commit_seen, driver->commit);
    while (member->commit_seen < driver->commit && member->commit_seen < raft_driver_last(driver))
        note_committed(member, ++member->commit_seen);
}

/* Configurations of its log. */
static void scan(struct member *member)
{
    raft_index last = raft_driver_last(&member->driver);

    if (member->cut) {
        while (member->change_count > 1 && member->changes[member->change_count - 1] > member->cut_behind)
            member->change_count--;
        if (member->scanned > member->cut_behind)
            member->scanned = member->cut_behind;
        member->cut = false;
    }
    for (; member->scanned < last; member->scanned++) {
        struct ledger_entry entry;
        const uint8_t *bytes = ledger_entry(&member->ledger, member->scanned, &entry);
        if (bytes == NULL)
            violation(member->id, "entry %llu cannot be read", member->scanned + 1);
        if (entry.kind != LEDGER_ENTRY_CONFIGURATION)
            continue;
        assert(member->change_count < DRIVER_GROUP_CHANGES_MAX);
        member->changes[member->change_count++] = member->scanned + 1;
    }
}

static void check_configuration(struct member *member)
{
    struct raft *raft = &member->driver.raft;
    struct raft_buffer is;
    struct slice wanted;
    raft_index newest;

    scan(member);
    newest = member->changes[member->change_count - 1];
    if (newest == member->known_index) {
        wanted = slice_of(member->known, member->known_size);
    } else {
        struct ledger_entry entry;
        const uint8_t *bytes = ledger_entry(&member->ledger, newest - 1, &entry);
        if (bytes == NULL)
            return; /* deleted, and fed back before that */
        wanted = slice_of(bytes + LEDGER_ENTRY_HEADER_SIZE, entry.body_size);
    }
    int rv = raft_configuration_encode(&raft->configuration, &is);
    assert(rv == 0);
    if (is.len != wanted.size || memcmp(is.base, wanted.data, is.len) != 0)
        violation(member->id, "acts by another configuration than that of entry %llu, the newest of its log", newest);
    raft_free(is.base);
}
/* ---- network ---- */

void driver_group_post(int from, int to, const struct peer_message *message, const uint8_t *run, size_t size, uint64_t arrives)
{
    struct letter *letter = malloc(sizeof *letter + size);
    struct letter **at = &group.letters;

    assert(letter != NULL);
    letter->arrives = arrives;
    letter->from = from;
    letter->to = to;
    letter->message = *message;
    letter->message.body_size = (uint32_t)size;
    if (size > 0)
        memcpy(letter->run, run, size);
    while (*at != NULL && (*at)->arrives <= arrives)
        at = &(*at)->next;
    letter->next = *at;
    *at = letter;
    group.unsent[from][to] += size;
}

static void destroy(struct letter *letter)
{
    group.unsent[letter->from][letter->to] -= letter->message.body_size;
    free(letter);
}

static void on_send(void *context, uint64_t to, struct peer_message *message, const uint8_t *run, size_t size)
{
    struct member *member = context;
    raft_index match;

    if (to == 0 || to > (uint64_t)group.count)
        return;
    if (message->type == PEER_APPEND_ENTRIES && raft_driver_leads(&member->driver) && raft_match_index(&member->driver.raft, to, &match) == 0 &&
        message->append.previous_index < match)
        violation(member->id, "asks n%llu for entry %llu, which has acknowledged %llu to it", (unsigned long long)to - 1,
                  (unsigned long long)message->append.previous_index, match);
    world.stats->messages++;
    if (chance_of(group.lost_per_mille) || (size > 0 && group.unsent[member->id][to] > UNSENT_MAX)) {
        world.stats->messages_lost++;
        return;
    }
    for (int copies = chance_of(group.double_per_mille) ? 2 : 1; copies > 0; copies--) {
        uint64_t *last = &group.arrives[member->id][to];
        uint64_t at = world.now + 50 + chance(group.latency_us);
        if (chance_of(group.late_per_mille))
            at += chance_skewed(group.late_us);
        else if (group.late_per_mille == 0 && at < *last)
            at = *last; /* in order, as on a connection */
        *last = at;
        driver_group_post(member->id, (int)to, message, run, size, at);
    }
}

static void on_cut(void *context)
{
    struct member *member = context;
    if (!member->cut || member->driver.commit < member->cut_behind)
        member->cut_behind = member->driver.commit;
    member->cut = true;
    world.stats->cut_entries++;
}

static void on_change(void *context)
{
    (void)context;
}

static void on_failed(void *context, const struct error *error)
{
    violation(((struct member *)context)->id, "has stopped for good: %s", error->message);
}

static void on_behind(void *context, uint64_t to)
{
    /* A result from before the deletion, that comes late, can make a new leader believe it. */
    if (group.late_per_mille == 0)
        violation(((struct member *)context)->id, "n%llu needs entries that are deleted", (unsigned long long)to - 1);
}

static void on_damaged(void *context, raft_index index)
{
    violation(((struct member *)context)->id, "entry %llu cannot be read", index);
}

/* What is under way to a member, or from it, is lost: its process was another one. */
void driver_group_forget_letters(int id)
{
    for (struct letter **at = &group.letters; *at != NULL;) {
        struct letter *letter = *at;
        if (letter->from != id && letter->to != id) {
            at = &letter->next;
            continue;
        }
        *at = letter->next;
        destroy(letter);
    }
}

void driver_group_cut(int a, int b, bool is)
{
    group.cut[a][b] = group.cut[b][a] = is;
}

void driver_group_cut_off(int id, bool is)
{
    for (int i = 1; i <= group.count; i++) {
        if (i != id)
            driver_group_cut(id, i, is);
    }
}

/* ---- members ---- */

static void set_clock(uint64_t now)
{
    world.now = now;
    group.clock.monotonic_us = now;
    group.clock.wall_ms = (int64_t)(now / 1000);
}

/* Only what was never committed, and so nothing that must be remembered. */
static int on_cut_at_start(void *context, struct error *error)
{
    (void)context;
    (void)error;
    return 0;
}

static bool on_save_vote(void *context, struct vote_save *save)
{
    (void)context;
    vote_save_run(save);
    return true;
}

static void open_member(struct member *member)
{
    const struct raft_driver_io io = {member, on_send, on_cut, on_change, on_failed, on_behind, on_damaged, on_save_vote};
    const struct raft_driver_options options = {(uint64_t)member->id, ELECTION_MS, HEARTBEAT_MS, 65536};
    const struct ledger_repairs repairs = {member, on_cut_at_start};
    struct ledger_recovery recovery;
    struct error error;
    struct env *env = &member->disk.env;

    if (ledger_open(&member->ledger, env, DIR_NAME, DRIVER_GROUP_SEGMENT, INDEX_FILE, false, &member->checkpoint, false, &repairs, &recovery, &error) != 0 ||
        vote_file_open(&member->votes, env, DIR_NAME "/vote", &error) != 0 ||
        raft_driver_init(&member->driver, env, &member->ledger, &member->votes, &io, &options, &error) != 0)
        violation(member->id, "does not open: %s", error.message);
}

static void start_member(struct member *member)
{
    raft_index committed = member->checkpoint.present ? (raft_index)member->checkpoint.committed_index + 1 : 1;
    struct error error;

    member->up = true;
    member->syncing = false;
    member->cut = false;
    member->fed = committed;
    member->commit_seen = 0;
    member->timer_seen = 0;
    member->changes[0] = member->known_index;
    member->change_count = 1;
    member->scanned = member->known_index > (raft_index)member->ledger.begin_index ? member->known_index : (raft_index)member->ledger.begin_index;
    if (raft_driver_start(&member->driver, committed, member->known_index, slice_of(member->known, member->known_size), &error) != 0)
        violation(member->id, "does not start: %s", error.message);
    if (group.committed == 0)
        note_committed(member, 1); /* by being founded */
    member->commit_seen = (raft_index)member->ledger.begin_index;
    world.stats->starts++;
    driver_group_look_at(member);
}

static void found_member(struct member *member, int id, const struct raft_buffer *configuration)
{
    uint8_t run[LEDGER_ENTRY_HEADER_SIZE + DRIVER_GROUP_CONFIGURATION_SIZE];
    struct ledger_entry entry = {.term = 1, .kind = LEDGER_ENTRY_CONFIGURATION, .body_size = (uint32_t)configuration->len};
    struct error error;

    memset(member, 0, sizeof *member);
    member->id = id;
    sim_env_init(&member->disk, world.seed * 8 + (uint64_t)id, &group.clock);
    int rv = member->disk.env.ops->make_dir(&member->disk.env, DIR_NAME);
    assert(rv == 0);
    member->checkpoint.committed_index = member->checkpoint.snapshot_index = -1;
    open_member(member);
    memcpy(member->known, configuration->base, configuration->len);
    member->known_size = configuration->len;
    member->known_index = 1;
    memcpy(run + LEDGER_ENTRY_HEADER_SIZE, configuration->base, configuration->len);
    ledger_entry_seal(&entry, run, 0);
    if (ledger_append(&member->ledger, run, LEDGER_ENTRY_HEADER_SIZE + configuration->len, 1) != 0 || vote_file_save(&member->votes, 1, 0, &error) != 0)
        violation(id, "cannot be founded");
    struct ledger_sync sync;
    if (ledger_sync_next(&member->ledger, &sync)) {
        ledger_sync_run(&sync);
        ledger_sync_done(&member->ledger, &sync);
    }
    start_member(member);
}

/* The process is gone. power: with what is not synced. */
void driver_group_stop(struct member *member, bool power, uint64_t for_us)
{
    if (!member->up)
        return;
    /* Of what is committed and synced, as the product's does. */
    ledger_fill_checkpoint(&member->ledger, (int64_t)(member->fed < member->known_index ? member->known_index : member->fed) - 1, &member->checkpoint);
    member->checkpoint.present = member->checkpoint.committed_index >= (int64_t)member->known_index - 1;
    member->up = false;
    member->comes_back = for_us == UINT64_MAX ? UINT64_MAX : world.now + for_us;
    if (power)
        sim_env_power_cut(&member->disk);
    else
        sim_env_kill(&member->disk);
    if (member->syncing) {
        ledger_sync_run(&member->sync);
        ledger_sync_done(&member->ledger, &member->sync);
    }
    raft_driver_close(&member->driver);
    vote_file_close(&member->votes);
    ledger_close(&member->ledger);
    sim_env_restart(&member->disk);
}

void driver_group_restart(struct member *member)
{
    open_member(member);
    start_member(member);
}

/* The one that leads in the newest term. */
struct member *driver_group_leader(void)
{
    struct member *found = NULL;
    for (int i = 1; i <= group.count; i++) {
        struct member *member = &group.members[i];
        if (member->up && raft_driver_leads(&member->driver) &&
            (found == NULL || raft_current_term(&member->driver.raft) > raft_current_term(&found->driver.raft)))
            found = member;
    }
    return found;
}

struct member *driver_group_follower(void)
{
    struct member *leads = driver_group_leader();
    struct member *member;
    if (leads == NULL)
        return NULL;
    do {
        member = &group.members[1 + chance((uint64_t)group.count)];
    } while (member == leads);
    return member;
}

/* ---- what owners of drivers do ---- */

/* count entries of that kind; body NULL: of some bytes. */
int driver_group_submit(struct member *member, unsigned count, uint8_t kind, const void *body, size_t body_size)
{
    static uint8_t run[256 * (LEDGER_ENTRY_HEADER_SIZE + DRIVER_GROUP_BODY_MAX)];
    struct ledger *ledger = &member->ledger;
    uint64_t end = ledger->end_position;
    uint32_t chain = ledger->last_chain;
    size_t size = 0;

    assert(count <= 256);
    if (!raft_driver_leads(&member->driver) || raft_transferee(&member->driver.raft) != 0)
        return ERROR_NOT_LEADER;
    for (unsigned i = 0; i < count; i++) {
        uint32_t length = body != NULL ? (uint32_t)body_size : (uint32_t)chance_between(1, group.body_max);
        struct ledger_entry entry = {
            .index = (uint64_t)(ledger->last_index + 1) + i,
            .term = raft_current_term(&member->driver.raft),
            .position = ledger_place(ledger, end, LEDGER_ENTRY_HEADER_SIZE + length),
            .kind = kind,
            .body_size = length,
        };
        uint8_t *header = run + size;
        if (body != NULL)
            memcpy(header + LEDGER_ENTRY_HEADER_SIZE, body, length);
        else
            memset(header + LEDGER_ENTRY_HEADER_SIZE, (int)chance(256), length);
        entry.uncommitted = (uint32_t)(entry.index + 1 - member->driver.commit);
        chain = ledger_entry_seal(&entry, header, chain);
        end = entry.position + LEDGER_ENTRY_HEADER_SIZE + length;
        size += LEDGER_ENTRY_HEADER_SIZE + length;
    }
    int rv = raft_driver_make_room(&member->driver, end + LEDGER_BLANK_SIZE, count);
    if (rv == 0)
        rv = raft_driver_submit(&member->driver, run, size, count);
    if (rv == 0)
        world.stats->entries += count;
    driver_group_look_at(member);
    return rv;
}

/* Gives that member its vote or takes it. Not the leader's own, and two others keep theirs. */
bool driver_group_change(struct member *leads, int id)
{
    const struct raft_configuration *now = &leads->driver.raft.configuration;
    struct raft_configuration next;
    struct raft_buffer encoded;
    unsigned voters = 0;

    if (leads->id == id || !raft_driver_leads(&leads->driver) || leads->driver.raft.configuration_uncommitted_index != 0)
        return false;
    raft_configuration_init(&next);
    for (unsigned i = 0; i < now->n; i++) {
        const struct raft_server *server = &now->servers[i];
        int role = server->id != (raft_id)id ? server->role : server->role == RAFT_VOTER ? RAFT_STANDBY : RAFT_VOTER;
        int rv = raft_configuration_add(&next, server->id, server->address, role);
        assert(rv == 0);
        voters += role == RAFT_VOTER;
    }
    bool is = voters >= 3 && raft_configuration_encode(&next, &encoded) == 0;
    raft_configuration_close(&next);
    if (!is)
        return false;
    is = driver_group_submit(leads, 1, LEDGER_ENTRY_CONFIGURATION, encoded.base, encoded.len) == 0;
    raft_free(encoded.base);
    world.stats->changes += is;
    return is;
}

/* Committed configurations are fed back. */
static void feed(struct member *member)
{
    scan(member);
    for (unsigned i = 0; i < member->change_count; i++) {
        raft_index index = member->changes[i];
        struct ledger_entry entry;
        if (index <= member->known_index || index > member->driver.commit)
            continue;
        const uint8_t *bytes = ledger_entry(&member->ledger, index - 1, &entry);
        assert(bytes != NULL && entry.body_size <= DRIVER_GROUP_CONFIGURATION_SIZE);
        memcpy(member->known, bytes + LEDGER_ENTRY_HEADER_SIZE, entry.body_size);
        member->known_size = entry.body_size;
        member->known_index = index;
        raft_driver_apply_configuration(&member->driver, index, slice_of(member->known, member->known_size));
    }
    member->fed = member->driver.commit < raft_driver_last(&member->driver) ? member->driver.commit : raft_driver_last(&member->driver);
    driver_group_look_at(member);
}

/* G14, as replica_leadership.c does. */
static void help_stuck(struct member *member)
{
    uint64_t stuck = raft_driver_stuck_follower(&member->driver), best = 0;
    raft_index best_match = 0, match;

    if (stuck == 0 || world.now < member->stuck_due || raft_transferee(&member->driver.raft) != 0)
        return;
    member->stuck_due = world.now + SECOND;
    for (uint64_t i = 1; i <= (uint64_t)group.count; i++) {
        if (i != stuck && i != (uint64_t)member->id && group.members[i].up && raft_driver_is_voter(&member->driver, i) &&
            raft_match_index(&member->driver.raft, i, &match) == 0 && match >= best_match) {
            best = i;
            best_match = match;
        }
    }
    if (best != 0) {
        raft_driver_transfer(&member->driver, best);
    } else {
        group.stood[raft_current_term(&member->driver.raft) + 1] = true;
        raft_driver_step_down(&member->driver, stuck, raft_current_term(&member->driver.raft) + 1);
    }
    driver_group_look_at(member);
}

/* All delete what all have stored. */
void driver_group_trim(void)
{
    raft_index index = UINT64_MAX;
    struct error error;

    for (int i = 1; i <= group.count; i++) {
        struct member *member = &group.members[i];
        raft_index has = !member->up ? 0 : member->driver.raft.last_stored < member->fed ? member->driver.raft.last_stored : member->fed;
        if (has < index)
            index = has;
    }
    for (int i = 1; i <= group.count; i++) {
        struct member *member = &group.members[i];
        uint64_t position, term;
        uint32_t size;
        if (index < 2 || !member->up || !ledger_locate(&member->ledger, index - 1, &position, &size, &term) || member->known_index > index)
            continue;
        if (ledger_trim(&member->ledger, position, &error) != 0)
            violation(member->id, "deletes nothing: %s", error.message);
        member->ledger.trim_position = position;
        raft_driver_move_trail(&member->driver, index, slice_of(member->known, member->known_size), member->known_index);
        world.stats->trims++;
        driver_group_look_at(member);
    }
}

/* ---- time ---- */

static void turn(struct member *member)
{
    if (!member->up && world.now >= member->comes_back)
        driver_group_restart(member);
    if (!member->up)
        return;
    if (member->syncing && world.now >= member->synced_at) {
        member->syncing = false;
        ledger_sync_run(&member->sync);
        raft_driver_persisted(&member->driver, (raft_index)(ledger_sync_done(&member->ledger, &member->sync) + 1));
        driver_group_look_at(member);
    }
    if (!member->syncing && ledger_sync_next(&member->ledger, &member->sync)) {
        member->syncing = true;
        member->synced_at = world.now + chance_skewed(group.sync_us);
    }
    raft_driver_tick(&member->driver);
    driver_group_look_at(member);
    check_configuration(member);
    if (chance_of(500)) /* the end of a turn */
        feed(member);
    help_stuck(member);
}

void driver_group_step_ms(void)
{
    uint64_t until = world.now + MS;

    while (group.letters != NULL && group.letters->arrives <= until) {
        struct letter *letter = group.letters;
        struct member *to = &group.members[letter->to];
        group.letters = letter->next;
        set_clock(letter->arrives > world.now ? letter->arrives : world.now);
        if (to->up && !group.cut[letter->from][letter->to]) {
            raft_driver_receive(&to->driver, (uint64_t)letter->from, &letter->message, letter->run);
            world.stats->steps++;
            driver_group_look_at(to);
        }
        destroy(letter);
    }
    set_clock(until);
    for (int i = 1; i <= group.count; i++)
        turn(&group.members[i]);
    if (group.submits && world.now >= group.submit_at) {
        group.submit_at = world.now + chance(2 * group.submit_gap_us);
        for (int i = 1; i <= group.count; i++) { /* a deposed leader too */
            struct member *member = &group.members[i];
            if (member->up && raft_driver_leads(&member->driver) && raft_driver_last(&member->driver) < member->driver.commit + 4096)
                driver_group_submit(member, (unsigned)chance_between(1, group.submit_max), LEDGER_ENTRY_RAW, NULL, 0);
        }
    }
}

void driver_group_run_for(uint64_t us)
{
    for (uint64_t until = world.now + us; world.now < until;)
        driver_group_step_ms();
}

bool driver_group_run_while_not(bool (*condition)(void), uint64_t ms)
{
    for (uint64_t until = world.now + ms * MS; !condition();) {
        if (world.now >= until)
            return false;
        driver_group_step_ms();
    }
    return true;
}

/* Somebody leads, and a majority hears him. */
bool driver_group_is_led(void)
{
    struct member *leads = driver_group_leader();
    return leads != NULL && leads->driver.commit == raft_driver_last(&leads->driver);
}

static bool is_level(void)
{
    struct member *leads = driver_group_leader();
    for (int i = 1; i <= group.count; i++) {
        struct member *member = &group.members[i];
        if (leads == NULL || !member->up || raft_driver_last(&member->driver) != raft_driver_last(&leads->driver) ||
            member->fed != raft_driver_last(&leads->driver) || member->ledger.last_chain != leads->ledger.last_chain || raft_driver_leader(&member->driver) != (uint64_t)leads->id)
            return false;
    }
    return true;
}

static void be_calm(void)
{
    memset(group.cut, 0, sizeof group.cut);
    memset(group.arrives, 0, sizeof group.arrives);
    group.late_per_mille = group.double_per_mille = group.lost_per_mille = 0;
    for (struct letter *letter = group.letters; letter != NULL; letter = letter->next) {
        if (letter->arrives > world.now + MS)
            letter->arrives = world.now + MS;
        group.arrives[letter->from][letter->to] = letter->arrives;
    }
    for (int i = 1; i <= group.count; i++) {
        if (!group.members[i].up)
            group.members[i].comes_back = world.now;
    }
}

/* Nothing is wrong any more. */
void driver_group_expect_level(uint64_t ms)
{
    bool submits = group.submits;
    be_calm();
    group.submits = false;
    for (uint64_t until = world.now + ms * MS; !driver_group_run_while_not(is_level, 500);) {
        struct member *leads = driver_group_leader();
        if (world.now >= until)
            violation(0, "the members are not alike %llu ms after the faults", (unsigned long long)ms);
        /* What a leader without entries of its own does not hold, others may still. */
        if (leads != NULL && leads->driver.commit == raft_driver_last(&leads->driver))
            driver_group_submit(leads, 1, LEDGER_ENTRY_RAW, NULL, 0);
    }
    group.submits = submits;
}

/* ---- begin and end ---- */

void driver_group_begin(int count)
{
    struct raft_configuration configuration;
    struct raft_buffer encoded;
    char name[16];

    memset(&group, 0, sizeof group);
    group.count = count;
    group.latency_us = chance_between(100, 4000);
    group.sync_us = chance_between(100, 20000);
    group.submit_gap_us = chance_between(1, 40) * MS;
    group.submit_max = (unsigned)chance_between(1, 20);
    group.body_max = DRIVER_GROUP_BODY_MAX;
    set_clock(world.now);

    raft_configuration_init(&configuration);
    for (int i = 1; i <= group.count; i++) {
        snprintf(name, sizeof name, "n%d", i - 1);
        int rv = raft_configuration_add(&configuration, (raft_id)i, name, RAFT_VOTER);
        assert(rv == 0);
    }
    int rv = raft_configuration_encode(&configuration, &encoded);
    assert(rv == 0 && encoded.len <= DRIVER_GROUP_CONFIGURATION_SIZE);
    raft_configuration_close(&configuration);
    group.stood[1] = true; /* of the founders */
    for (int i = 1; i <= group.count; i++)
        found_member(&group.members[i], i, &encoded);
    raft_free(encoded.base);
    if (!driver_group_run_while_not(driver_group_is_led, FIRST_LEADER_MS))
        violation(0, "nobody leads at first");
}

void driver_group_end(void)
{
    for (int i = 1; i <= group.count; i++) {
        driver_group_stop(&group.members[i], false, UINT64_MAX);
        sim_env_close(&group.members[i].disk);
        driver_group_forget_letters(i);
    }
    free(group.chains);
}
