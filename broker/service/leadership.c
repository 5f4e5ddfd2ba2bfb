#include "broker/service/leadership.h"

bool leadership_changed(struct leadership *leadership, const struct dledger_commit_log *log)
{
    struct dledger_state state;
    dledger_commit_log_state(log, &state);
    bool leads = state.role == DLEDGER_LEADER;
    if (leads && leadership->leading && state.term == leadership->term && state.accept_count == leadership->accept_count)
        return false;
    leadership->epoch++;
    /* Not state.accepting: a disk that takes nothing just now only makes those who append wait. */
    leadership->leading = leads && dledger_commit_log_accepting(log);
    leadership->term = state.term;
    leadership->accept_count = state.accept_count;
    return true;
}

bool leadership_lasts(const struct leadership *leadership, uint64_t epoch)
{
    return leadership->leading && leadership->epoch == epoch;
}

void leadership_end(struct leadership *leadership)
{
    leadership->leading = false;
    leadership->epoch++;
}
