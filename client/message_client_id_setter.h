/* Makes the unique ids that producers give their messages (UNIQ_KEY).
 *
 * Follows org.apache.rocketmq.common.message.MessageClientIDSetter 4.9.8: local address, process id, a number that
 * tells instances of this code in one process apart (there the class loader's hash), milliseconds since the month
 * began (local time), and a counter; upper-case hex.
 */
#ifndef LEDGERMQ_CLIENT_MESSAGE_CLIENT_ID_SETTER_H
#define LEDGERMQ_CLIENT_MESSAGE_CLIENT_ID_SETTER_H

#include <stdatomic.h>
#include <stdint.h>

#include "proto/message.h"

struct message_client_id_setter {
    uint8_t fixed[22]; /* address, pid, instance */
    size_t fixed_size; /* 10 or 22 */
    atomic_uint counter;
    _Atomic int64_t month_start_ms;
    _Atomic int64_t month_end_ms;
};

/* address: 4 or 16 bytes. */
void message_client_id_setter_init(struct message_client_id_setter *setter, const uint8_t *address,
                                   size_t address_size, int pid, uint32_t instance);
/* Writes 32 or 56 characters and a NUL. Any thread. */
void message_client_id_setter_make(struct message_client_id_setter *setter, int64_t now_ms,
                                   char out[MESSAGE_ID_TEXT_MAX]);
/* About when an id was made (the month is taken to be this or the last one), 0 when the text is no such id. */
int64_t message_client_id_time_ms(const char *id, int64_t now_ms);

#endif
