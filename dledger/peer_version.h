/* Which versions of the peer protocol this program speaks: what members say to each other, and with it what they may write into the log and files.
 *
 * A hello is always of the oldest version, and says which is the newest that its sender speaks; the rest of the connection is of the newest that
 * both do. So a group is upgraded one member at a time, and back. What a next version may do is in docs/architecture.md.
 */
#ifndef LEDGERMQ_DLEDGER_PEER_VERSION_H
#define LEDGERMQ_DLEDGER_PEER_VERSION_H

#include <stdint.h>

#define PEER_VERSION_OLDEST 1u
#define PEER_VERSION_BULK 2u /* knows the messages of a bulk fetch */
#define PEER_VERSION_CURRENT 2u
/* In a file of its own: mqbroker_next (tests) is the same program with another number here. */
extern const uint32_t peer_version_newest;

/* newest: that the other end announced, 0 = it says nothing of it and speaks the oldest. */
static inline uint32_t peer_version_common(uint32_t newest)
{
    uint32_t theirs = newest < PEER_VERSION_OLDEST ? PEER_VERSION_OLDEST : newest;
    return theirs < peer_version_newest ? theirs : peer_version_newest;
}

#endif
