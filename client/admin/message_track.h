/* Which consumer groups have had a message (DefaultMQAdminExtImpl#messageTrackDetail), and giving it to one client or
 * sending it again. */
#ifndef LEDGERMQ_CLIENT_ADMIN_MESSAGE_TRACK_H
#define LEDGERMQ_CLIENT_ADMIN_MESSAGE_TRACK_H

#include "client/admin/admin.h"

/* A line for each group of its topic. */
void message_track_print(struct admin *admin, const struct ledgermq_stored_message *message);
/* Options consumerGroup and clientId. Exit status: failed unless the client says that it consumed it. */
int message_track_consume(struct admin *admin, const struct ledgermq_stored_message *message);
/* As a new message with the same body, tags, keys and properties. */
int message_track_resend(struct admin *admin, const struct ledgermq_stored_message *message);

#endif
