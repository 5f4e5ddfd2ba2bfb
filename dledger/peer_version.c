#include "dledger/peer_version.h"

#ifndef LEDGERMQ_PEER_VERSION_NEWEST
#define LEDGERMQ_PEER_VERSION_NEWEST PEER_VERSION_CURRENT
#endif

const uint32_t peer_version_newest = LEDGERMQ_PEER_VERSION_NEWEST;
