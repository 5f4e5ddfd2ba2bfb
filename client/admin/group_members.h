/* What the members of the groups say of themselves and of each other, as `mqadmin leader` shows it. */
#ifndef LEDGERMQ_CLIENT_ADMIN_GROUP_MEMBERS_H
#define LEDGERMQ_CLIENT_ADMIN_GROUP_MEMBERS_H

#include "client/admin/admin.h"

struct group_member {
    char id[64];
    char group[LEDGERMQ_NAME_MAX + 1];
    char address[REMOTING_ADDRESS_MAX]; /* broker address; "" unknown */
    char peer_address[REMOTING_ADDRESS_MAX];
    bool reached;   /* it answered itself */
    bool raft;      /* it is one of ours: the raft keys are there */
    bool connected; /* to the leader, as that one sees it; the leader itself */
    char role[16];
    char leader[64];
    char durability[8];
    int64_t term, last_index, commit_index, applied_index, committed_position, up_since_ms;
    int64_t match_index, lag; /* from the leader; -1 unknown */
    char cause[160];          /* why it could not be reached */
    bool named;               /* the leader counts it among its members */
    bool learner;             /* without a vote, as the leader says */
    bool failed, disk_full;
    int64_t forced; /* times that the group was made anew by force */
};

struct group_members {
    size_t count;
    struct group_member all[ADMIN_NODES_MAX];
};

/* Of all groups that the command line names, by group and id. False: printed; *status is the exit status. */
bool group_members_collect(struct admin *admin, struct group_members *members, int *status);
/* Who leads this group: of several the one of the highest term, for a deposed leader may not have noticed yet. NULL: nobody. */
const struct group_member *group_members_leader(const struct group_members *members, const char *group);

#endif
