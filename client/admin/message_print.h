/* How mqadmin shows a message: on one line, as Java's MessageExt prints itself, and the parts of it. */
#ifndef LEDGERMQ_CLIENT_ADMIN_MESSAGE_PRINT_H
#define LEDGERMQ_CLIENT_ADMIN_MESSAGE_PRINT_H

#include "client/ledgermq.h"

/* Bytes that are no text as \xNN; a long body is cut. */
void message_print_bytes(const void *data, size_t size);
/* {KEYS=k, TAGS=t} */
void message_print_properties(const struct ledgermq_stored_message *message);
/* "MSGID: ... MessageExt [...] BODY: ...": the body only once, at the end. */
void message_print_line(const struct ledgermq_stored_message *message, bool body);

/* "SendResult [sendStatus=SEND_OK, ...]" and the end of the line. */
void message_print_send_result(const struct ledgermq_send_result *result);

#endif
