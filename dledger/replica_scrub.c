/* A slow walk over the whole committed log, again and again, for damage that nobody reads. A piece is read and checked on the pool; what is found goes
 * the way of all damage (replica_repair.c). The pieces are so far apart that the rate is kept.
 *
 * Nobody else reads most of it, so the loop must not wait for it: where a piece ends the next one begins, without a look at the log. And it leaves memory
 * as it was: what had to be read from the disk goes again, else a pass would drive out what is in use, and pages near those that were touched would pile
 * up in this process.
 */
#include "dledger/replica_internal.h"

#include <errno.h>
#include <stdlib.h>

#include "store/log_sink.h"

#define PIECE (256u << 10)
#define IDLE_US 1000000u

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

void replica_scrub_run(struct replica_scrub *scrub)
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
        free(bytes);
        want = want < need ? need : 0; /* again only for one entry that is larger than a piece */
    } while (need > PIECE && want > 0);
}

static void rest(struct replica *replica, uint64_t us)
{
    replica->scrub_due_us = replica_now_us(replica) + us;
}

/* Where the entry stands that comes next; false: a pass has ended. */
static bool find_place(struct replica *replica)
{
    struct ledger *ledger = &replica->ledger;
    struct replica_scrub *scrub = &replica->scrub;
    uint64_t position, term;
    uint32_t size;
    const struct ledger_hole *hole;

    if (scrub->index < (uint64_t)ledger->begin_index) {
        scrub->index = (uint64_t)ledger->begin_index;
        scrub->chain_known = scrub->index == 0;
        scrub->chain = 0;
        scrub->placed = false;
    }
    while ((hole = ledger_hole_of(ledger, scrub->index)) != NULL) {
        scrub->index = hole->last + 1;
        scrub->chain_known = false;
        scrub->placed = false;
    }
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

void replica_scrub_tick(struct replica *replica, uint64_t now)
{
    struct replica_scrub *scrub = &replica->scrub;

    if (replica->phase != REPLICA_RUNNING || scrub->out || now < replica->scrub_due_us)
        return;
    if (scrub->index == 0)
        replica->scrub_pass_us = now;
    if (!find_place(replica)) {
        uint64_t next = replica->scrub_pass_us + replica->options.scrub_interval_s * 1000000ull;
        if (scrub->index > 0)
            replica->scrub_passes++;
        scrub->index = 0;
        scrub->chain = 0;
        scrub->chain_known = true;
        scrub->placed = false;
        rest(replica, next > now + IDLE_US ? next - now : IDLE_US);
        return;
    }
    scrub->env = replica->env;
    scrub->file_size = replica->ledger.data.file_size;
    scrub->last = replica->applied - 1;
    scrub->damaged = false;
    scrub->at_filler = false;
    scrub->out = true;
    mapped_file_pin(scrub->file);
    replica->io.scrub(replica->io.context, scrub);
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

void replica_scrubbed(struct replica *replica)
{
    struct replica_scrub *scrub = &replica->scrub;
    struct ledger *ledger = &replica->ledger;
    uint64_t end = scrub->file->start + (scrub->at_filler ? scrub->file_size : scrub->offset);

    mapped_file_unpin(scrub->file);
    scrub->out = false;
    scrub->placed = scrub->result == 0 && !scrub->damaged;
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
    rest(replica, (uint64_t)scrub->bytes * 1000000ull / replica->options.scrub_bytes_per_second + 1000);
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
