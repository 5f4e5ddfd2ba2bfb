/* This node's leadership as those parts see it that append by themselves (delay, transactions): when to begin anew from what the log says.
 *
 * Loop thread only.
 */
#ifndef LEDGERMQ_BROKER_SERVICE_LEADERSHIP_H
#define LEDGERMQ_BROKER_SERVICE_LEADERSHIP_H

#include "dledger/dledger_commit_log.h"

struct leadership {
    bool leading;          /* also while the disk takes nothing for now */
    uint64_t term;
    uint64_t accept_count; /* the log's, when this leadership began */
    uint64_t epoch;        /* counts leaderships: what comes back late is recognised */
};

/* After a change of role. True: another leadership has begun, or none is left, so what was under way counts no more. A leader that begins to accept once
 * more in its term is a new one: what it had gathered is lost. */
bool leadership_changed(struct leadership *leadership, const struct dledger_commit_log *log);
/* Does what was begun in that epoch still count? */
bool leadership_lasts(const struct leadership *leadership, uint64_t epoch);
/* The part stops: what is under way counts no more. */
void leadership_end(struct leadership *leadership);

#endif
