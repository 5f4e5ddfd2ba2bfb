#include "store/consume_queue.h"

#include "proto/buffer.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 4096u
/* Blocks are reserved ahead by as much as the file holds already, within these bounds: a queue of few messages costs one block, a busy
 * one a system call every 13,000 messages. */
#define RESERVE_STEP_MIN 4096u
#define RESERVE_STEP_MAX 262144u
/* Of a queue that takes messages so much in front of the end is taken to be in memory. */
#define APPENDED_BYTES 4096u
/* So many units before a border that was found by halving have to be in order: more than two pages, in which old ones may stand. */
#define ORDERED_UNITS (2 * PAGE / CONSUME_QUEUE_UNIT_SIZE + 2)
/* So often the border is looked for again in front of units that are out of order. */
#define BORDERS_MAX 64
/* In front of a queue whose first unit is not number 0. */
#define PAD_SIZE INT32_MAX

void consume_queue_decode(const uint8_t p[CONSUME_QUEUE_UNIT_SIZE], struct consume_queue_unit *unit)
{
    unit->physical_offset = (int64_t)load_u64(p);
    unit->size = (int32_t)load_u32(p + 8);
    unit->tags_code = (int64_t)load_u64(p + 12);
}

void consume_queue_encode(uint8_t out[CONSUME_QUEUE_UNIT_SIZE], const struct consume_queue_unit *unit)
{
    store_u64(out, (uint64_t)unit->physical_offset);
    store_u32(out + 8, (uint32_t)unit->size);
    store_u64(out + 12, (uint64_t)unit->tags_code);
}

static uint64_t byte_of(int64_t queue_offset)
{
    return (uint64_t)queue_offset * CONSUME_QUEUE_UNIT_SIZE;
}

static bool read_unit(const struct consume_queue *queue, int64_t queue_offset, struct consume_queue_unit *unit)
{
    if (queue_offset < 0 || queue_offset > INT64_MAX / (int64_t)CONSUME_QUEUE_UNIT_SIZE)
        return false;
    const uint8_t *p = queue->window == NULL
                           ? mapped_file_queue_at(&queue->files, byte_of(queue_offset), CONSUME_QUEUE_UNIT_SIZE)
                           : mapped_file_queue_peek(&queue->files, queue->window, byte_of(queue_offset), CONSUME_QUEUE_UNIT_SIZE);
    if (p == NULL)
        return false;
    consume_queue_decode(p, unit);
    return true;
}

static bool is_pad(const struct consume_queue_unit *unit)
{
    return unit->physical_offset == 0 && unit->size == PAD_SIZE;
}

/* Where its record ends. Bytes of a damaged file may say anything. */
static int64_t end_of(const struct consume_queue_unit *unit)
{
    int64_t end;
    return __builtin_add_overflow(unit->physical_offset, (int64_t)unit->size, &end) ? INT64_MAX : end;
}

/* Padding, or it could be a unit: no record lies at 0. */
static bool is_written(const struct consume_queue_unit *unit)
{
    return unit->size > 0 && (unit->physical_offset > 0 || is_pad(unit));
}

/* Written, and its record lies before the limit. */
static bool holds(const struct consume_queue *queue, int64_t queue_offset, int64_t physical_limit)
{
    struct consume_queue_unit unit;
    return read_unit(queue, queue_offset, &unit) && is_written(&unit) && unit.physical_offset < physical_limit;
}

/* One behind the last unit whose record lies before the limit. The units of a queue are in log order and zeros follow, so halving finds the
 * border; it starts from the front of the last file with doubled steps, so that a short queue is judged by its first page alone. */
static int64_t find_end(const struct consume_queue *queue, int64_t physical_limit)
{
    for (size_t i = queue->files.count; i-- > 0;) {
        int64_t base = (int64_t)(queue->files.files[i]->start / CONSUME_QUEUE_UNIT_SIZE);
        int64_t total = (int64_t)(queue->files.file_size / CONSUME_QUEUE_UNIT_SIZE);
        if (!holds(queue, base, physical_limit))
            continue;
        int64_t good = 0;
        int64_t bad = 1;
        while (bad < total && holds(queue, base + bad, physical_limit)) {
            good = bad;
            bad = bad * 2 + 1;
        }
        if (bad > total)
            bad = total;
        while (bad - good > 1) {
            int64_t middle = good + (bad - good) / 2;
            if (holds(queue, base + middle, physical_limit))
                good = middle;
            else
                bad = middle;
        }
        return base + bad;
    }
    return (int64_t)(mapped_file_queue_begin(&queue->files) / CONSUME_QUEUE_UNIT_SIZE);
}

static int64_t first_in_files(const struct consume_queue *queue)
{
    return (int64_t)(mapped_file_queue_begin(&queue->files) / CONSUME_QUEUE_UNIT_SIZE);
}

static void set_end(struct consume_queue *queue, int64_t end)
{
    struct consume_queue_unit last;
    queue->min_known = 0;
    queue->max_offset = end;
    queue->tail = NULL;
    queue->tail_units = 0;
    queue->max_physical_offset = 0;
    if (end > first_in_files(queue) && read_unit(queue, end - 1, &last) && !is_pad(&last))
        queue->max_physical_offset = end_of(&last);
    if (queue->min_offset > end)
        queue->min_offset = end;
    if (queue->min_sure > end)
        queue->min_sure = end;
    if (queue->appended_from > end)
        queue->appended_from = end;
    if (queue->compared_to > end)
        queue->compared_to = end;
    queue->believed = 0;
}

/* First unit in [from, to) whose record lies at or behind physical_offset. */
static int64_t lower_bound(const struct consume_queue *queue, int64_t from, int64_t to, int64_t physical_offset)
{
    int64_t step = 1;
    /* Mostly the answer is near the front: look there before halving the whole queue. */
    while (from < to) {
        int64_t probe = from + step - 1 < to ? from + step - 1 : to - 1;
        if (!holds(queue, probe, physical_offset)) {
            to = probe;
            break;
        }
        from = probe + 1;
        step *= 2;
    }
    while (from < to) {
        int64_t middle = from + (to - from) / 2;
        if (holds(queue, middle, physical_offset))
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

/* The lowest place in front of `border` that speaks against it: two units there are not in order, so that one of them is damaged, and nobody can tell which.
 * `border` itself: none does. */
static int64_t find_disorder(const struct consume_queue *queue, int64_t from, int64_t border, int64_t physical_offset)
{
    int64_t lowest = border, stop = border - from > ORDERED_UNITS ? border - ORDERED_UNITS : from;
    struct consume_queue_unit behind, unit;
    bool any = border < queue->max_offset && read_unit(queue, border, &behind) && is_written(&behind);

    for (int64_t at = border - 1; at >= stop; at--) {
        if (!read_unit(queue, at, &unit) || !is_written(&unit))
            continue; /* it says nothing */
        if (any && (is_pad(&unit) ? 0 : end_of(&unit)) > behind.physical_offset)
            lowest = unit.physical_offset >= physical_offset || at + 1 == border ? at : at + 1;
        if (consume_queue_trusts(queue, at))
            break;
        behind = unit;
        any = true;
    }
    return lowest;
}

/* The same, for units of which some may say anything. The border is wrong when one of the two units at it is. The one behind makes it too early, which
 * harms nobody; the one in front makes it too late, which passes over messages, and then mostly is not in order with those before. */
static int64_t careful_lower_bound(const struct consume_queue *queue, int64_t from, int64_t to, int64_t physical_offset)
{
    int64_t border = lower_bound(queue, from, to, physical_offset);

    for (int i = 0; border > from && !consume_queue_trusts(queue, border - 1); i++) {
        int64_t before = find_disorder(queue, from, border, physical_offset);
        if (before == border)
            break;
        border = i < BORDERS_MAX ? lower_bound(queue, from, before, physical_offset) : from;
    }
    return border;
}

int consume_queue_open(struct consume_queue *queue, struct env *env, const char *dir, const char *topic, int32_t queue_id,
                       uint64_t file_size, struct error *error)
{
    memset(queue, 0, sizeof *queue);
    assert(file_size % CONSUME_QUEUE_UNIT_SIZE == 0);
    queue->queue_id = queue_id;
    queue->topic = strdup(topic);
    if (queue->topic == NULL)
        return error_set(error, ERROR_NO_MEMORY, "queue %s %d: out of memory", topic, (int)queue_id);
    struct mapped_file_window window;
    consume_queue_begin_look(queue, &window);
    int rv = mapped_file_queue_open_unmapped(&queue->files, env, dir, file_size, &window, error);
    if (rv != 0) {
        free(queue->topic);
        queue->topic = NULL;
        return rv;
    }
    set_end(queue, find_end(queue, INT64_MAX));
    queue->append_offset = queue->max_offset;
    queue->appended_from = queue->max_offset;
    queue->min_sure = first_in_files(queue);
    queue->min_offset = careful_lower_bound(queue, queue->min_sure, queue->max_offset, 1);
    rv = consume_queue_end_look(queue, error);
    if (rv != 0)
        consume_queue_close(queue);
    return rv;
}

void consume_queue_begin_look(struct consume_queue *queue, struct mapped_file_window *window)
{
    window->handle = NULL; /* not the bytes: they are read before anybody sees them */
    window->size = 0;
    window->result = 0;
    queue->window = window;
}

int consume_queue_end_look(struct consume_queue *queue, struct error *error)
{
    int rv = queue->window->result;
    mapped_file_window_close(queue->window, queue->files.env);
    queue->window = NULL;
    return rv == 0 ? 0
                   : error_set(error, ERROR_IO, "queue %s %d: its files cannot be read: %s", queue->topic, (int)queue->queue_id, strerror(-rv));
}

void consume_queue_close(struct consume_queue *queue)
{
    mapped_file_queue_close(&queue->files);
    free(queue->topic);
    queue->topic = NULL;
}

static int code_of(int rv)
{
    return rv == -ENOSPC || rv == -EDQUOT || env_is_short(rv) ? ERROR_NO_SPACE : ERROR_IO;
}

/* Gives the bytes up to need_end disk blocks, and some more ahead if there is room. */
static int reserve(struct consume_queue *queue, struct mapped_file *file, uint64_t byte, uint64_t need_end)
{
    uint64_t file_end = file->start + queue->files.file_size;
    if (queue->reserved_end >= need_end && queue->reserved_end > file->start && queue->reserved_end <= file_end)
        return 0;
    uint64_t used = byte - file->start;
    uint64_t from = file->start + used / PAGE * PAGE;
    if (queue->reserved_end > from && queue->reserved_end <= file_end)
        from = queue->reserved_end;
    uint64_t step = used < RESERVE_STEP_MIN ? RESERVE_STEP_MIN : used > RESERVE_STEP_MAX ? RESERVE_STEP_MAX : used;
    uint64_t least = file->start + (need_end - file->start + PAGE - 1) / PAGE * PAGE;
    uint64_t want = file->start + (need_end - file->start + step - PAGE + PAGE - 1) / PAGE * PAGE;
    if (least > file_end)
        least = file_end;
    if (want > file_end)
        want = file_end;
    int rv = mapped_file_queue_reserve(&queue->files, file, from, want - from);
    if (rv == -ENOSPC && want > least) {
        want = least;
        rv = mapped_file_queue_reserve(&queue->files, file, from, want - from);
    }
    if (rv != 0)
        return code_of(rv);
    queue->reserved_end = want;
    return 0;
}

/* No memory or descriptor for a mapping is met like no room on the disk: later again. */
static int later(int rv)
{
    return env_is_short(rv) || rv == ERROR_NO_MEMORY ? ERROR_NO_SPACE : rv < 0 ? ERROR_IO : rv;
}

static int prepare_first(struct consume_queue *queue, int64_t queue_offset)
{
    struct mapped_file *file;
    if (queue_offset < 0 || queue_offset >= INT64_MAX / (int64_t)CONSUME_QUEUE_UNIT_SIZE)
        return ERROR_INVALID;
    uint64_t byte = byte_of(queue_offset);
    int rv = mapped_file_queue_add(&queue->files, byte, &file, NULL);
    if (rv != 0)
        return later(rv);
    queue->reserved_end = 0;
    rv = reserve(queue, file, file->start, byte + CONSUME_QUEUE_UNIT_SIZE);
    if (rv != 0) {
        mapped_file_queue_cut(&queue->files, file->start, NULL);
        return rv;
    }
    /* What lies in front was never here or is no longer retained. */
    const struct consume_queue_unit pad = {0, PAD_SIZE, 0};
    for (uint64_t at = file->start; at < byte; at += CONSUME_QUEUE_UNIT_SIZE)
        consume_queue_encode(file->map + (at - file->start), &pad);
    queue->dirty = true;
    queue->dirty_from = file->start;
    queue->min_offset = queue->min_sure = queue_offset;
    queue->max_offset = queue_offset;
    queue->max_physical_offset = 0;
    return 0;
}

int consume_queue_prepare(struct consume_queue *queue, int64_t queue_offset)
{
    if (queue->tail != NULL && queue->tail_units > 0 && queue_offset == queue->max_offset)
        return 0;
    int rv;
    if (queue->files.count == 0) {
        rv = prepare_first(queue, queue_offset);
        if (rv != 0)
            return rv;
    }
    if (queue_offset != queue->max_offset)
        return ERROR_DAMAGED;
    uint64_t byte = byte_of(queue_offset);
    struct mapped_file *file = mapped_file_queue_find(&queue->files, byte);
    if (file == NULL) {
        rv = mapped_file_queue_add(&queue->files, byte, &file, NULL);
        if (rv != 0)
            return later(rv);
    }
    rv = mapped_file_queue_map(&queue->files, file);
    if (rv != 0)
        return later(rv);
    rv = reserve(queue, file, byte, byte + CONSUME_QUEUE_UNIT_SIZE);
    if (rv != 0)
        return rv;
    queue->tail = file->map + (byte - file->start);
    queue->tail_units = (uint32_t)((queue->reserved_end - byte) / CONSUME_QUEUE_UNIT_SIZE);
    return 0;
}

int consume_queue_append(struct consume_queue *queue, int64_t queue_offset, const struct consume_queue_unit *unit)
{
    if (queue->tail == NULL || queue->tail_units == 0 || queue_offset != queue->max_offset) {
        int rv = consume_queue_prepare(queue, queue_offset);
        if (rv != 0)
            return rv;
    }
    consume_queue_encode(queue->tail, unit);
    queue->tail += CONSUME_QUEUE_UNIT_SIZE;
    queue->tail_units--;
    if (!queue->dirty) {
        queue->dirty = true;
        queue->dirty_from = byte_of(queue_offset);
    }
    queue->max_offset = queue_offset + 1;
    queue->max_physical_offset = end_of(unit);
    return 0;
}

bool consume_queue_get_any(const struct consume_queue *queue, int64_t queue_offset, struct consume_queue_unit *unit)
{
    return queue_offset < queue->max_offset && read_unit(queue, queue_offset, unit) && !is_pad(unit);
}

bool consume_queue_get(const struct consume_queue *queue, int64_t queue_offset, struct consume_queue_unit *unit)
{
    return queue_offset >= queue->min_offset && queue_offset < queue->max_offset && read_unit(queue, queue_offset, unit);
}

bool consume_queue_bytes(const struct consume_queue *queue, int64_t queue_offset, int64_t count, struct mapped_file **file, uint8_t **bytes,
                         size_t *size)
{
    if (queue_offset < queue->min_offset || queue_offset >= queue->max_offset)
        return false;
    uint64_t end = byte_of(queue->max_offset);
    uint64_t from = byte_of(queue_offset);
    if (queue->tail != NULL && end - from <= APPENDED_BYTES)
        return false;
    *file = mapped_file_queue_find(&queue->files, from);
    if (*file == NULL || mapped_file_queue_map(&queue->files, *file) != 0)
        return false;
    uint64_t file_end = (*file)->start + queue->files.file_size;
    uint64_t want = (uint64_t)count * CONSUME_QUEUE_UNIT_SIZE;
    end = end < file_end ? end : file_end;
    *bytes = (*file)->map + (from - (*file)->start);
    *size = (size_t)(want < end - from ? want : end - from);
    return true;
}

/* To be synced, behind the end too: or a power cut brings back what was there before zeros. */
static void note_written(struct consume_queue *queue, uint64_t from, uint64_t to)
{
    /* An append to a dirty queue takes itself for covered. */
    if (from > byte_of(queue->max_offset))
        from = byte_of(queue->max_offset);
    if (!queue->dirty || queue->dirty_from > from)
        queue->dirty_from = from;
    queue->dirty = true;
    if (queue->dirty_to < to)
        queue->dirty_to = to;
}

void consume_queue_compared(struct consume_queue *queue, int64_t queue_offset)
{
    if (queue->compared_to < queue->min_offset)
        queue->compared_to = queue->min_offset;
    if (queue_offset == queue->compared_to)
        queue->compared_to++;
    else if (queue_offset > queue->compared_to)
        queue->believed = queue_offset + 1;
}

void consume_queue_distrust(struct consume_queue *queue, int64_t queue_offset)
{
    if (queue_offset < queue->compared_to)
        queue->compared_to = queue_offset;
    if (queue_offset >= queue->appended_from && queue_offset < queue->max_offset)
        queue->appended_from = queue_offset + 1;
    if (queue->min_known == queue_offset + 1)
        queue->min_known = 0;
    queue->believed = 0;
}

int consume_queue_mend(struct consume_queue *queue, int64_t queue_offset, const struct consume_queue_unit *unit)
{
    if (queue_offset < queue->min_offset || queue_offset >= queue->max_offset)
        return ERROR_INVALID;
    uint64_t from = byte_of(queue_offset), to = from + CONSUME_QUEUE_UNIT_SIZE;
    struct mapped_file *file = mapped_file_queue_find(&queue->files, from);
    if (file == NULL)
        return ERROR_INVALID;
    int rv = mapped_file_queue_map(&queue->files, file);
    if (rv != 0)
        return later(rv);
    /* Where a file was lost there are no blocks. */
    uint64_t page = from / PAGE * PAGE, end = (to + PAGE - 1) / PAGE * PAGE;
    if (page < file->start)
        page = file->start;
    if (end > file->start + queue->files.file_size)
        end = file->start + queue->files.file_size;
    rv = mapped_file_queue_reserve(&queue->files, file, page, end - page);
    if (rv != 0)
        return code_of(rv);
    consume_queue_encode(file->map + (from - file->start), unit);
    note_written(queue, from, to);
    if (queue_offset == queue->min_offset)
        queue->min_known = 0;
    if (queue_offset + 1 == queue->max_offset)
        queue->max_physical_offset = end_of(unit);
    return 0;
}

void consume_queue_describe(const struct consume_queue *queue, int64_t queue_offset, char *out, size_t size)
{
    uint64_t byte = byte_of(queue_offset);
    char name[21];
    mapped_file_name(byte - byte % queue->files.file_size, name);
    snprintf(out, size, "%s/%s at byte %llu", queue->files.dir, name, (unsigned long long)(byte % queue->files.file_size));
}

int64_t consume_queue_border(const struct consume_queue *queue, int64_t end, int64_t physical_offset)
{
    int64_t first = first_in_files(queue);
    return end <= first || holds(queue, end - 1, physical_offset) ? end : lower_bound(queue, first, end, physical_offset);
}

int64_t consume_queue_lower_bound(const struct consume_queue *queue, int64_t physical_offset)
{
    return careful_lower_bound(queue, queue->min_offset, queue->max_offset, physical_offset);
}

/* The queue ends at `end` from now on. */
static int cut_at(struct consume_queue *queue, int64_t end, struct error *error)
{
    struct consume_queue_unit last;
    int64_t old_end = queue->max_offset;
    int64_t first = first_in_files(queue);
    /* Padding alone is no queue: the next record says anew where it begins. */
    if (queue->files.count > 0 && (end <= first || !read_unit(queue, end - 1, &last) || is_pad(&last)))
        end = first;
    int rv = mapped_file_queue_cut(&queue->files, byte_of(end), error);
    if (rv != 0)
        return rv;
    if (queue->files.count == 0) {
        queue->min_offset = queue->min_sure = 0;
        queue->reserved_end = 0;
        set_end(queue, 0);
        return 0;
    }
    uint64_t files_end = mapped_file_queue_end(&queue->files);
    uint64_t from = byte_of(end);
    uint64_t to = byte_of(old_end) < files_end ? byte_of(old_end) : files_end;
    if (from < to) {
        /* Room behind the end reads as zeros, now and after any crash: these bytes have blocks, they were written before. */
        uint8_t *bytes = mapped_file_queue_at(&queue->files, from, 1);
        if (bytes == NULL)
            return error_set(error, ERROR_IO, "queue %s %d: its file cannot be mapped", queue->topic, (int)queue->queue_id);
        memset(bytes, 0, to - from);
        note_written(queue, from, to);
    }
    set_end(queue, end);
    return 0;
}

int consume_queue_truncate(struct consume_queue *queue, int64_t physical_offset, struct error *error)
{
    if (queue->files.count == 0)
        return 0;
    int64_t end = find_end(queue, physical_offset);
    if (end == queue->max_offset)
        return 0;
    return cut_at(queue, end, error);
}

/* A unit that cannot stand behind `previous`. */
static bool breaks_order(const struct consume_queue_unit *previous, const struct consume_queue_unit *unit)
{
    if (!is_written(unit))
        return true;
    if (is_pad(unit))
        return !is_pad(previous);
    return !is_pad(previous) && unit->physical_offset < end_of(previous);
}

static int64_t first_unit_from(uint64_t byte)
{
    return (int64_t)((byte + CONSUME_QUEUE_UNIT_SIZE - 1) / CONSUME_QUEUE_UNIT_SIZE);
}

/* Where the unit stands its bytes name a record before the limit. Not asked for its tags code: the last unit of a page has it on the next one, which is
 * a hole in most queues. */
static bool is_record_before(const uint8_t *unit, int64_t physical_limit)
{
    int64_t physical_offset = (int64_t)load_u64(unit);
    return (int32_t)load_u32(unit + 8) > 0 && physical_offset > 0 && physical_offset < physical_limit;
}

static bool has_record_before(const struct consume_queue *queue, int64_t from, int64_t to, int64_t physical_limit)
{
    const size_t looked_at = 12; /* bytes of a unit */
    while (from < to) {
        /* All whose beginnings lie in one page of a file at once: most of them are zeros. */
        uint64_t byte = byte_of(from), in_file = byte % queue->files.file_size, left = PAGE - in_file % PAGE;
        if (left > queue->files.file_size - in_file)
            left = queue->files.file_size - in_file;
        int64_t count = left < looked_at ? 1 : (int64_t)((left - looked_at) / CONSUME_QUEUE_UNIT_SIZE + 1);
        if (count > to - from)
            count = to - from;
        size_t size = (size_t)(count - 1) * CONSUME_QUEUE_UNIT_SIZE + looked_at;
        const uint8_t *unit = queue->window == NULL ? mapped_file_queue_at(&queue->files, byte, size)
                                                    : mapped_file_queue_peek(&queue->files, queue->window, byte, size);
        for (int64_t i = 0; unit != NULL && i < count; i++) {
            if (is_record_before(unit + i * CONSUME_QUEUE_UNIT_SIZE, physical_limit))
                return true;
        }
        from += count;
    }
    return false;
}

/* Looks at the page in which the queue ends. Halving sees a few units only; a broken one in between shows as a unit out of order, or as an end
 * behind which units of older records follow. Returns where the queue has to end, which is `end` itself in the second case. */
static int64_t check_tail(const struct consume_queue *queue, int64_t end, int64_t physical_limit, bool *damaged)
{
    int64_t first = first_in_files(queue);
    /* A queue that ends where a file begins, and the file is there: it has lost its first unit, so its page is the one to look at. */
    bool at_file = byte_of(end) % queue->files.file_size == 0 && mapped_file_queue_find(&queue->files, byte_of(end)) != NULL;
    const uint64_t last_byte = byte_of(end > first && !at_file ? end - 1 : end);
    uint64_t page = last_byte / PAGE * PAGE;
    struct consume_queue_unit previous = {0, PAD_SIZE, 0};
    struct consume_queue_unit unit;
    int64_t from = first_unit_from(page);
    if (from < first)
        from = first;
    else if (from > first && !read_unit(queue, from - 1, &previous))
        return end;
    for (int64_t at = from; at < end; at++) {
        if (!read_unit(queue, at, &unit) || breaks_order(&previous, &unit) || unit.physical_offset >= physical_limit) {
            *damaged = true;
            return at;
        }
        previous = unit;
    }
    *damaged = has_record_before(queue, end + 1, first_unit_from(page + PAGE), physical_limit);
    /* The rest of the page may have been lost, and more: some pages further on tell, which mostly are a hole, and in files behind. */
    uint64_t file_end = last_byte - last_byte % queue->files.file_size + queue->files.file_size;
    for (uint64_t step = PAGE; !*damaged && page + step < file_end; step *= 4)
        *damaged = has_record_before(queue, first_unit_from(page + step), first_unit_from(page + step + PAGE), physical_limit);
    for (; !*damaged && mapped_file_queue_find(&queue->files, file_end) != NULL; file_end += queue->files.file_size) {
        for (uint64_t step = 0; !*damaged && step < queue->files.file_size; step = step == 0 ? PAGE : step * 4)
            *damaged = has_record_before(queue, first_unit_from(file_end + step), first_unit_from(file_end + step + PAGE), physical_limit);
    }
    return end;
}

int64_t consume_queue_end_at(const struct consume_queue *queue, int64_t physical_offset)
{
    struct consume_queue_unit last;
    if (queue->max_physical_offset <= physical_offset)
        return queue->max_offset;
    int64_t end = find_end(queue, physical_offset);
    return end > first_in_files(queue) && read_unit(queue, end - 1, &last) && !is_pad(&last) ? end : 0;
}

int consume_queue_look(const struct consume_queue *queue, int64_t physical_offset, struct consume_queue_end *end, struct error *error)
{
    struct consume_queue_unit last;
    *end = (struct consume_queue_end){.last_physical_offset = -1};
    if (queue->files.count == 0)
        return 0;
    end->offset = check_tail(queue, find_end(queue, physical_offset), physical_offset, &end->damaged);
    if (end->offset > first_in_files(queue) && read_unit(queue, end->offset - 1, &last) && !is_pad(&last))
        end->last_physical_offset = last.physical_offset;
    if (queue->window != NULL && queue->window->result != 0)
        return error_set(error, ERROR_IO, "queue %s %d: its files cannot be read: %s", queue->topic, (int)queue->queue_id,
                         strerror(-queue->window->result)); /* nothing is cut for that */
    return 0;
}

int consume_queue_cut(struct consume_queue *queue, const struct consume_queue_end *end, struct error *error)
{
    if (queue->files.count == 0)
        return 0;
    if (end->damaged) {
        /* Units may stand behind the end that was found at open: clear the whole page. It has blocks, something was written in it. */
        int64_t page_end = (int64_t)((byte_of(end->offset) / PAGE * PAGE + PAGE) / CONSUME_QUEUE_UNIT_SIZE);
        if (queue->max_offset < page_end)
            queue->max_offset = page_end;
    }
    return end->offset == queue->max_offset && !end->damaged && queue->max_offset > first_in_files(queue) ? 0 : cut_at(queue, end->offset, error);
}

int consume_queue_clear_tail(struct consume_queue *queue, struct error *error)
{
    uint64_t from = byte_of(queue->max_offset);
    int rv = mapped_file_queue_cut(&queue->files, from, error);
    struct mapped_file *file = rv == 0 ? mapped_file_queue_find(&queue->files, from) : NULL;
    if (file == NULL)
        return rv;
    rv = mapped_file_queue_map(&queue->files, file);
    if (rv != 0)
        return error_set(error, ERROR_IO, "queue %s %d: its file cannot be mapped: %s", queue->topic, (int)queue->queue_id, strerror(-rv));
    for (uint64_t at = from - file->start, to; at < queue->files.file_size; at = to) {
        static const uint8_t zeros[PAGE];
        to = at / PAGE * PAGE + PAGE;
        if (to > queue->files.file_size)
            to = queue->files.file_size;
        if (memcmp(file->map + at, zeros, to - at) == 0)
            continue;
        memset(file->map + at, 0, to - at); /* it has a block: something was written there */
        note_written(queue, file->start + at, file->start + to);
    }
    return 0;
}

int64_t consume_queue_first_physical(const struct consume_queue *queue)
{
    if (queue->min_offset >= queue->max_offset)
        return INT64_MAX;
    return queue->min_known == queue->min_offset + 1 ? queue->min_physical : -1;
}

void consume_queue_note_first(struct consume_queue *queue, int64_t physical_offset)
{
    queue->min_physical = physical_offset;
    queue->min_known = queue->min_offset + 1;
}

int consume_queue_advance_min(struct consume_queue *queue, int64_t physical_offset, struct error *error)
{
    if (queue->retained_from < physical_offset)
        queue->retained_from = physical_offset;
    if (queue->files.count == 0)
        return 0;
    int64_t from = queue->min_offset > first_in_files(queue) ? queue->min_offset : first_in_files(queue);
    if (from == queue->min_offset && from < queue->max_offset && consume_queue_first_physical(queue) >= physical_offset)
        return 0;
    struct mapped_file_window window;
    consume_queue_begin_look(queue, &window);
    /* A pad is before everything. */
    int64_t min_offset = careful_lower_bound(queue, from, queue->max_offset, physical_offset > 1 ? physical_offset : 1);
    int rv = consume_queue_end_look(queue, error);
    if (rv != 0)
        return rv;
    if (min_offset > from && consume_queue_trusts(queue, min_offset - 1))
        queue->min_sure = min_offset;
    queue->min_offset = min_offset;
    return 0;
}

bool consume_queue_has_files_to_go(const struct consume_queue *queue)
{
    return queue->files.count > 1 && queue->files.files[0]->start + queue->files.file_size <= byte_of(queue->min_sure);
}

int consume_queue_correct_min(struct consume_queue *queue, int64_t physical_offset, struct error *error)
{
    int rv = consume_queue_advance_min(queue, physical_offset, error);
    if (rv != 0 || queue->files.count == 0)
        return rv;
    rv = mapped_file_queue_trim(&queue->files, byte_of(queue->min_sure), error);
    if (queue->dirty && queue->dirty_from < mapped_file_queue_begin(&queue->files))
        queue->dirty_from = mapped_file_queue_begin(&queue->files);
    return rv;
}

bool consume_queue_settle_min(struct consume_queue *queue, int64_t queue_offset)
{
    if (queue_offset < first_in_files(queue) || queue_offset > queue->max_offset)
        return false; /* its file was lost, or its end: it cannot be a minimum */
    queue->min_sure = queue_offset;
    if (queue->min_offset == queue_offset)
        return false;
    if (queue->min_offset > queue_offset && queue->compared_to > queue_offset)
        queue->compared_to = queue_offset; /* some behind it were not */
    queue->min_offset = queue_offset;
    return true;
}

int consume_queue_sync(struct consume_queue *queue)
{
    struct env *env = queue->files.env;
    int rv = 0;
    if (queue->dirty) {
        uint64_t end = consume_queue_dirty_end(queue);
        for (uint64_t at = queue->dirty_from; rv == 0 && at < end;) {
            struct mapped_file *file = mapped_file_queue_find(&queue->files, at);
            if (file == NULL)
                break;
            uint64_t stop = file->start + queue->files.file_size < end ? file->start + queue->files.file_size : end;
            rv = mapped_file_queue_map(&queue->files, file);
            if (rv != 0)
                break;
            rv = env->ops->sync_map(env, file->map + (at - file->start), stop - at);
            at = stop;
        }
        if (rv != 0)
            return ERROR_IO;
        queue->dirty = false;
        queue->dirty_from = end;
        queue->dirty_to = 0;
    }
    return mapped_file_queue_sync_dir(&queue->files) == 0 ? 0 : ERROR_IO;
}
