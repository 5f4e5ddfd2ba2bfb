/* Who follows this leader, and since when it is known.
 *
 * Each AppendEntries carries the time at which it was sent, and each answer the time of the newest one that was taken. A member that took a message of its
 * leader gives no vote to another one for an election time-out. So when a majority took what was sent at a time s, no other member leads before s plus that
 * time-out: until then a leader may answer from its tables without asking. What breaks the promise is looked at as well: a connection that broke (a process
 * that begins anew votes at once), and a member that we told to take over. The core alone would notice a lost majority after up to two time-outs.
 */
#include "dledger/raft_driver_internal.h"

#include <string.h>

#include "store/seeded_bug.h"

#define SLOTS 64u

void raft_driver_forget_contacts(struct raft_driver *driver)
{
    memset(driver->contact_ms, 0, sizeof driver->contact_ms);
    memset(driver->promised_ms, 0, sizeof driver->promised_ms);
    memset(driver->sent_from, 0, sizeof driver->sent_from);
    driver->handed_over_ms = 0;
    driver->led_since_ms = raft_driver_now(driver);
    driver->look_due_ms = raft_driver_leads(driver) ? driver->led_since_ms + driver->options.heartbeat_ms : 0;
    driver->judge_from_ms = 0;
}

uint64_t raft_driver_stamp(struct raft_driver *driver)
{
    raft_time now = raft_driver_now(driver);
    return (uint32_t)now == 0 ? now - 1 : now;
}

void raft_driver_note_contact(struct raft_driver *driver, uint64_t from, uint64_t term, uint32_t stamp)
{
    raft_time now = raft_driver_now(driver);
    raft_time *contact = &driver->contact_ms[from % SLOTS];
    uint32_t age = stamp == 0 ? 0 : (uint32_t)now - stamp; /* 0: from a version that does not say it */

    if (raft_driver_leads(driver) && term == raft_current_term(&driver->raft) && age < now && now - age > *contact)
        *contact = now - age;
}

/* When the newest message was sent that a majority took, 0 = none. promise: only what is still one counts. */
static raft_time majority_contact(const struct raft_driver *driver, bool promise)
{
    const struct raft_configuration *configuration = &driver->raft.configuration;
    raft_time contacts[SLOTS];
    unsigned count = 0, voters = 0, needed;
    bool self = false;

    for (unsigned i = 0; i < configuration->n; i++) {
        const struct raft_server *server = &configuration->servers[i];
        if (server->role != RAFT_VOTER)
            continue;
        voters++;
        if (server->id == driver->options.id) {
            self = true;
            continue;
        }
        raft_time contact = driver->contact_ms[server->id % SLOTS];
        if (promise && contact <= driver->promised_ms[server->id % SLOTS])
            contact = 0;
        unsigned place = count < SLOTS ? count++ : SLOTS - 1;
        for (; place > 0 && contacts[place - 1] < contact; place--) /* the newest first */
            contacts[place] = contacts[place - 1];
        contacts[place] = contact;
    }
    needed = voters / 2 + (self ? 0 : 1);
    if (needed == 0)
        return UINT64_MAX;
    return needed <= count ? contacts[needed - 1] : 0;
}

bool raft_driver_has_followers(struct raft_driver *driver)
{
    return raft_driver_leads(driver) && majority_contact(driver, false) != 0;
}

/* Whoever is told to take over is voted for all the same. What he took after that shows that he did not; and so does an election time-out after his
 * connection broke, since what we told him went with it. */
static bool may_take_over(const struct raft_driver *driver, raft_time now)
{
    uint64_t slot = driver->handed_over_to % SLOTS;
    if (driver->handed_over_ms == 0 || driver->contact_ms[slot] > driver->handed_over_ms)
        return false;
    return driver->promised_ms[slot] <= driver->handed_over_ms || now < driver->promised_ms[slot] + driver->options.election_timeout_ms;
}

bool raft_driver_is_certain(struct raft_driver *driver)
{
    raft_time now = raft_driver_now(driver);
    raft_time contact;

    if (!raft_driver_leads(driver))
        return false;
    contact = majority_contact(driver, true);
    if (contact == UINT64_MAX)
        return true;
    if (contact == 0 || may_take_over(driver, now))
        return false;
    /* An eighth less, for clocks of different rates. */
    return now < contact + driver->options.election_timeout_ms - driver->options.election_timeout_ms / 8;
}

void raft_driver_peer_lost(struct raft_driver *driver, uint64_t id)
{
    driver->promised_ms[id % SLOTS] = raft_driver_now(driver);
    if (driver->patient_with == id)
        driver->patient_ms = 0;
}

void raft_driver_look_for_majority(struct raft_driver *driver)
{
    struct raft_event event = {.type = RAFT_TIMEOUT};
    raft_time now = raft_driver_now(driver);
    raft_time contact = majority_contact(driver, false);

    if (SEEDED_BUG(NO_DOUBT))
        return;
    if (now > driver->look_due_ms + driver->options.heartbeat_ms)
        driver->judge_from_ms = now + 2ull * driver->options.heartbeat_ms; /* answers may wait in our sockets */
    driver->look_due_ms = now + driver->options.heartbeat_ms;
    if (contact < driver->led_since_ms)
        contact = driver->led_since_ms;
    if (contact == UINT64_MAX || now < driver->judge_from_ms || now <= contact + driver->options.election_timeout_ms + driver->options.heartbeat_ms)
        return;
    /* The core judges by who has answered since it judged last: it is made to do it twice. */
    for (int i = 0; i < 2 && raft_driver_leads(driver); i++) {
        driver->raft.election_timer_start = now - driver->options.election_timeout_ms - 1;
        raft_driver_step(driver, &event);
    }
}
