/* Addresses of peer ports: "host:port" and "[v6]:port" taken apart, and which machines may use DLedger's own protocol. */
#ifndef LEDGERMQ_DLEDGER_PEER_ADDRESS_H
#define LEDGERMQ_DLEDGER_PEER_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

/* False when it is not HOST:PORT or does not fit. */
bool peer_address_split(const char *address, char *host, size_t host_size, char *port, size_t port_size);
/* False when host is a name or port is no port. */
bool peer_address_numeric(const char *host, const char *port, struct sockaddr_storage *address);
/* The same machine's address, whatever the ports; an IPv4 address mapped into IPv6 is that address. */
bool peer_address_same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b);
bool peer_address_is_loopback(const struct sockaddr_storage *address);

#endif
