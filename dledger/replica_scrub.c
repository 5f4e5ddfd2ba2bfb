/* A slow walk over the whole committed log, again and again, for damage that nobody reads. A piece is read and checked on the pool; what is found goes
 * the way of all damage (replica_repair.c). Then the messages in it are compared, on the pool too, with the queues, which are mended (store/compare.h), and
 * with the key index (store/index_compare.h), which may send the walk back to where a file begins that it has to make anew. The pieces are so far apart
 * that the rate is kept, or eight times the rate while an index file is made; but where a reader met a damaged unit, and around damaged ones, they come one
 * right behind the other. Such a walk to what a reader needs leaves the index out and comes back to where it was: the index sees one piece behind the other.
 *
 * Nobody else reads most of it, so the loop must not wait for it: where a piece ends the next one begins, without a look at the log. And it leaves memory
 * as it was: what had to be read from the disk goes again, else a pass would drive out what is in use, and pages near those that were touched would pile
 * up in this process.
 */
#include "dledger/replica_internal.h"

#include <errno.h>
#include <stdlib.h>

#include "store/index_compare.h"
#include "store/log_sink.h"

#define PIECE (256u << 10)
#define IDLE_US 1000000u
#define HURRY_PIECES 64u /* 16 MiB */
#define MISSING_US 300000000u
#define TURN_PIECES 16u
#define REBUILD_HURRY 8u /* so many times the rate while an index file is made anew */

static void add_to_compare(struct replica_scrub *scrub, struct slice record)
{
    const struct message_dispatch *dispatch = message_store_compare_add(&scrub->compare, scrub->index, record);

    /* A piece of which a record is missing is not for the index. */
    if (scrub->index_compare != NULL && (dispatch == NULL || index_compare_add(scrub->index_compare, dispatch) != 0))
        scrub->index_compare = NULL;
}

/* Whole entries at the front of the piece; *need: how much of the one behind them has to be read. */
static void check_piece(struct replica_scrub *scrub, const uint8_t *bytes, size_t size, size_t *need)
{
    size_t at = 0;

    *need = 0;
    while (scrub->index <= scrub->last && !scrub->damaged) {
        uint64_t left = scrub->file_size - scrub->offset - at;
        struct ledger_entry entry;
        if (left < LEDGER_BLANK_SIZE || (size - at >= LEDGER_BLANK_SIZE && ledger_is_blank(bytes + at))) {
            scrub->damaged = at == 0; /* there is an entry where the piece begins */
            scrub->at_filler = !scrub->damaged;
            break;
        }
        if (size - at < LEDGER_ENTRY_HEADER_SIZE && size - at < left) {
            *need = LEDGER_ENTRY_HEADER_SIZE;
            break;
        }
        if (size - at < LEDGER_ENTRY_HEADER_SIZE || ledger_entry_decode(&entry, bytes + at) != 0 || entry.index != scrub->index ||
            entry.position != scrub->file->start + scrub->offset + at || ledger_entry_size(&entry) > left ||
            (scrub->chain_known && ledger_entry_chain(bytes + at, scrub->chain) != entry.chain_crc)) {
            scrub->damaged = true;
            break;
        }
        if (ledger_entry_size(&entry) > size - at) {
            *need = ledger_entry_size(&entry);
            break;
        }
        if (!ledger_entry_body_ok(&entry, bytes + at + LEDGER_ENTRY_HEADER_SIZE)) {
            scrub->damaged = true;
            break;
        }
        if (entry.kind == LEDGER_ENTRY_MESSAGE)
            add_to_compare(scrub, slice_of(bytes + at + LEDGER_ENTRY_HEADER_SIZE, entry.body_size));
        scrub->chain = entry.chain_crc;
        scrub->chain_known = true;
        scrub->index++;
        at += ledger_entry_size(&entry);
    }
    scrub->offset += at;
}

static ssize_t read_piece(struct replica_scrub *scrub, uint8_t *bytes, size_t size)
{
    const struct env_ops *ops = scrub->env->ops;
    uint8_t *pages = scrub->file->map + scrub->offset;
    bool stays = ops->resident == NULL || ops->resident(scrub->env, pages, size);

    env_prefetch(scrub->env, scrub->file->file, scrub->offset, size);
    ssize_t got = env_read(scrub->env, scrub->file->file, bytes, size, scrub->offset);
    if (!stays && ops->let_go != NULL && ops->forget != NULL) {
        ops->let_go(scrub->env, pages, size);
        ops->forget(scrub->env, scrub->file->file, scrub->offset, size);
    }
    return got;
}

static void read_and_check(struct replica_scrub *scrub)
{
    size_t want = PIECE, need = 0;

    scrub->result = 0;
    scrub->bytes = 0;
    do {
        uint64_t left = scrub->file_size - scrub->offset;
        size_t size = left < want ? (size_t)left : want;
        uint8_t *bytes = malloc(size == 0 ? 1 : size);
        ssize_t got = bytes == NULL ? -ENOMEM : read_piece(scrub, bytes, size);
        if (got < 0 || (size_t)got != size) {
            scrub->result = got < 0 ? (int)got : -EIO;
            need = 0;
        } else {
            scrub->bytes += size;
            check_piece(scrub, bytes, size, &need);
        }
        if (scrub->compare.count > 0)
            scrub->kept = bytes;
        else
            free(bytes);
        want = want < need ? need : 0; /* again only for one entry that is larger than a piece */
    } while (need > PIECE && want > 0 && scrub->kept == NULL);
}

void replica_scrub_run(struct replica_scrub *scrub)
{
    if (!scrub->comparing) {
        read_and_check(scrub);
        return;
    }
    message_store_compare_run(scrub->env, &scrub->compare);
    if (scrub->index_comparing)
        index_compare_run(scrub->index_compare);
}

void replica_scrub_close(struct replica_scrub *scrub)
{
    message_store_compare_free(&scrub->compare);
    free(scrub->kept);
    scrub->kept = NULL;
}

static void rest(struct replica *replica, uint64_t us)
{
    replica->scrub_due_us = replica_now_us(replica) + us;
}

static void go_to(struct replica_scrub *scrub, uint64_t index)
{
    scrub->index = index;
    scrub->chain_known = index == 0;
    scrub->chain = 0;
    scrub->placed = false;
}

/* The key index, if the scrub is on: a doubt alone does not read all that a rebuild needs. */
static struct index_compare *index_of(const struct replica *replica)
{
    return replica->options.scrub_bytes_per_second > 0 ? replica->store->index_compare : NULL;
}

/* A reader met a damaged unit: what it needs is read now. */
static void heed_doubt(struct replica *replica)
{
    struct message_store_doubt *doubt = &replica->store->doubt;
    struct replica_scrub *scrub = &replica->scrub;

    if (!doubt->any || doubt->heeded)
        return;
    replica->scrub_due_us = 0;
    if (scrub->turn > 0)
        return;
    doubt->heeded = true;
    if (!scrub->away)
        scrub->back = scrub->index;
    scrub->away = true;
    go_to(scrub, (uint64_t)replica_index_at(replica, (uint64_t)doubt->position) - 1);
}

/* What a reader needed, and damage around it, is right again. A few pieces have their turn in front of the next doubt, for there may always be one. */
static bool come_back(struct replica *replica)
{
    struct replica_scrub *scrub = &replica->scrub;

    if (!scrub->away || message_store_doubt_is_searched(&replica->store->doubt) || scrub->hurry > 0)
        return false;
    scrub->away = false;
    scrub->turn = replica->options.scrub_bytes_per_second > 0 ? TURN_PIECES : 0;
    go_to(scrub, scrub->back);
    return true;
}

static void rest_after_piece(struct replica *replica)
{
    struct replica_scrub *scrub = &replica->scrub;
    uint64_t rate = replica->options.scrub_bytes_per_second;

    if (index_of(replica) != NULL && index_compare_hurries(replica->store->index_compare))
        rate *= REBUILD_HURRY;
    if (message_store_doubt_is_searched(&replica->store->doubt) || scrub->hurry > 0)
        rest(replica, 0);
    else
        rest(replica, rate == 0 ? IDLE_US : (uint64_t)scrub->bytes * 1000000ull / rate + 1000);
    if (scrub->hurry > 0)
        scrub->hurry--;
    if (scrub->turn > 0)
        scrub->turn--;
    come_back(replica);
}

/* The end of the log is reached and the damaged unit's record was not met: from the begin on then. If it is not there readers go on to wait for it, but the log is not
 * read again and again for them: everything else that was damaged is right now. */
static bool ends_in_doubt(struct replica *replica)
{
    struct message_store_doubt *doubt = &replica->store->doubt;

    if (!message_store_doubt_is_searched(doubt) || !doubt->heeded)
        return false;
    if (doubt->everything) {
        LOG_ERROR("queue %s %d: no record of message %lld was found in the log", doubt->topic, (int)doubt->queue_id, (long long)doubt->queue_offset);
        doubt->missing_until_us = replica_now_us(replica) + MISSING_US;
        return false;
    }
    doubt->everything = true;
    go_to(&replica->scrub, 0);
    return true;
}

/* The pieces that come one behind the other from where the log begins tell where queues begin (store/compare.h). */
static void go_on_walking(struct replica *replica)
{
    struct replica_scrub *scrub = &replica->scrub;

    if (scrub->index == (uint64_t)replica->ledger.begin_index)
        message_store_walk_begin(replica->store);
    else if (scrub->index != scrub->walked_to)
        message_store_walk_break(replica->store);
}

static void end_walk(struct replica *replica)
{
    struct replica_scrub *scrub = &replica->scrub;

    if (scrub->index >= replica->applied && scrub->index == scrub->walked_to && !scrub->compare.gap)
        message_store_walk_end(replica->store);
    scrub->walked_to = UINT64_MAX;
}

/* Minimums moved further than units could tell before. */
static void let_files_go(struct replica *replica)
{
    if (!replica->store->files_to_go)
        return;
    replica->store->files_to_go = false;
    replica->trim_queues = true;
    replica_trim_queues(replica);
}

bool replica_scrub_wanted(const struct replica *replica)
{
    return replica->store != NULL && (replica->options.scrub_bytes_per_second > 0 || message_store_doubt_is_searched(&replica->store->doubt) || replica->scrub.hurry > 0);
}

/* Where the entry stands that comes next; false: a pass has ended. */
static bool find_place(struct replica *replica)
{
    struct ledger *ledger = &replica->ledger;
    struct replica_scrub *scrub = &replica->scrub;
    uint64_t position, term;
    uint32_t size;
    const struct ledger_hole *hole;

    if (scrub->index < (uint64_t)ledger->begin_index)
        go_to(scrub, (uint64_t)ledger->begin_index);
    while ((hole = ledger_hole_of(ledger, scrub->index)) != NULL)
        go_to(scrub, hole->last + 1);
    if (scrub->index >= replica->applied)
        return false;
    scrub->file = scrub->placed ? mapped_file_queue_find(&ledger->data, scrub->position) : NULL;
    if (scrub->file != NULL) {
        scrub->offset = scrub->position - scrub->file->start;
        return true;
    }
    if (!ledger_locate(ledger, scrub->index, &position, &size, &term)) {
        ledger_verify(ledger, scrub->index, scrub->index, 1);
        return ledger_hole_of(ledger, scrub->index) != NULL && find_place(replica);
    }
    scrub->file = mapped_file_queue_find(&ledger->data, position);
    scrub->offset = position - scrub->file->start;
    scrub->position = position;
    return true;
}

/* The entry is looked at; true: it is damaged, and will be repaired. */
static bool find_damage(struct replica *replica, uint64_t index)
{
    ledger_verify(&replica->ledger, index, index, 1);
    if (ledger_hole_of(&replica->ledger, index) == NULL)
        return false;
    replica->damage_found++;
    replica_repair_start(replica);
    return true;
}

/* No chain proves the term in the header where a log begins whose beginning was deleted: the table of terms does, which the job does not see. */
static bool begins_in_damage(struct replica *replica)
{
    const struct ledger *ledger = &replica->ledger;
    uint64_t index = replica->scrub.index, position, term;
    uint32_t size;

    return ledger->begin_index > 0 && (int64_t)index == ledger->begin_index && ledger_locate(ledger, index, &position, &size, &term) &&
           term != ledger_term_of(ledger, index) && find_damage(replica, index);
}

void replica_scrub_tick(struct replica *replica, uint64_t now)
{
    struct replica_scrub *scrub = &replica->scrub;

    if (replica->phase != REPLICA_RUNNING || replica->stopping || scrub->out)
        return;
    heed_doubt(replica);
    if (now < replica->scrub_due_us)
        return;
    if (scrub->index == 0 && !scrub->away)
        replica->scrub_pass_us = now;
    if (!find_place(replica)) {
        scrub->turn = 0;
        end_walk(replica);
        let_files_go(replica);
        if (ends_in_doubt(replica)) {
            rest(replica, 1000);
            return;
        }
        scrub->hurry = 0;
        if (come_back(replica)) {
            rest(replica, 1000);
            return;
        }
        uint64_t next = replica->scrub_pass_us + replica->options.scrub_interval_s * 1000000ull;
        if (scrub->index > 0)
            replica->scrub_passes++;
        rest(replica, next > now + IDLE_US ? next - now : IDLE_US);
        go_to(scrub, 0);
        return;
    }
    if (begins_in_damage(replica)) {
        scrub->placed = scrub->chain_known = false;
        return;
    }
    go_on_walking(replica);
    scrub->env = replica->env;
    scrub->file_size = replica->ledger.data.file_size;
    scrub->last = replica->applied - 1;
    scrub->damaged = false;
    scrub->at_filler = false;
    scrub->index_compare = scrub->away ? NULL : index_of(replica);
    if (scrub->index_compare != NULL)
        index_compare_clear(scrub->index_compare);
    scrub->out = true;
    mapped_file_pin(scrub->file);
    replica->io.scrub(replica->io.context, scrub);
}

/* The piece's messages, with what was made of them: queues, and keys of the index when all records in [from, to) are there. */
static void begin_compare(struct replica *replica, uint64_t from, uint64_t to)
{
    struct replica_scrub *scrub = &replica->scrub;
    const struct ledger *ledger = &replica->ledger;
    uint64_t log_min = mapped_file_queue_begin(&ledger->data);

    message_store_compare_begin(replica->store, &scrub->compare);
    if (scrub->index_comparing)
        index_compare_begin(scrub->index_compare, from, to, log_min < ledger->trim_position ? ledger->trim_position : log_min);
    scrub->comparing = true;
    scrub->out = true;
    replica->io.scrub(replica->io.context, scrub);
}

static void end_compare(struct replica *replica)
{
    struct replica_scrub *scrub = &replica->scrub;
    uint64_t wanted;

    if (message_store_compare_end(replica->store, &scrub->compare) > 0) {
        scrub->hurry = HURRY_PIECES;
        replica->checkpoint_dirty = true; /* with a sync of queues */
    }
    let_files_go(replica);
    free(scrub->kept);
    scrub->kept = NULL;
    scrub->comparing = false;
    scrub->out = false;
    if (scrub->index_comparing && index_compare_end(scrub->index_compare, &wanted))
        go_to(scrub, (uint64_t)replica_index_at(replica, wanted) - 1);
    rest_after_piece(replica);
}

void replica_scrubbed(struct replica *replica)
{
    if (replica->scrub.comparing) {
        end_compare(replica);
        return;
    }
    struct replica_scrub *scrub = &replica->scrub;
    struct ledger *ledger = &replica->ledger;
    uint64_t begin = scrub->position, end = scrub->file->start + (scrub->at_filler ? scrub->file_size : scrub->offset);

    mapped_file_unpin(scrub->file);
    scrub->out = false;
    scrub->placed = scrub->result == 0 && !scrub->damaged;
    scrub->walked_to = scrub->index;
    if (!scrub->placed) {
        if (scrub->result != 0) {
            char where[512];
            ledger_describe(ledger, scrub->position, where, sizeof where);
            LOG_ERROR("%s: the scrub cannot read: %s", where, strerror(-scrub->result));
        }
        if (!find_damage(replica, scrub->index))
            scrub->index++; /* it was about to be written again, or the disk did not answer */
        scrub->chain_known = false;
    }
    scrub->position = end;
    scrub->index_comparing = scrub->index_compare != NULL && scrub->result == 0 && end > begin;
    if ((scrub->compare.count > 0 || scrub->index_comparing) && replica->phase == REPLICA_RUNNING && !replica->stopping) {
        begin_compare(replica, begin, end);
        return;
    }
    if (scrub->compare.count > 0)
        scrub->walked_to = UINT64_MAX;
    scrub->compare.count = 0;
    free(scrub->kept);
    scrub->kept = NULL;
    rest_after_piece(replica);
}

void replica_look_at_entry(struct replica *replica, raft_index index)
{
    if (index > 0 && index <= replica->applied && ledger_hole_of(&replica->ledger, index - 1) == NULL)
        find_damage(replica, index - 1);
}

void replica_note_damage(struct replica *replica, uint64_t position)
{
    if (replica_group_size(replica) > 1) /* else there is nobody to fetch it from */
        replica_look_at_entry(replica, replica_index_at(replica, position));
}
