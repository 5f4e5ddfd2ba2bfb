/* A list of consumer groups (org.apache.rocketmq.common.protocol.body.GroupList): {"groupList":["g"]}. */
#ifndef LEDGERMQ_PROTO_GROUP_LIST_H
#define LEDGERMQ_PROTO_GROUP_LIST_H

#include "proto/arena.h"
#include "proto/buffer.h"
#include "proto/error.h"

struct group_list {
    struct arena arena; /* of a decoded one */
    struct slice *groups;
    size_t group_count;
};

void group_list_begin(struct buffer *out);
void group_list_add(struct buffer *out, struct slice group);
void group_list_end(struct buffer *out);

/* Errors of json_body.h; then nothing is left to close. */
int group_list_decode(struct group_list *list, struct slice body, struct error *error);
void group_list_close(struct group_list *list);

#endif
