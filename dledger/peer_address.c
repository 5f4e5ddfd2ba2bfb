#include "dledger/peer_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

bool peer_address_split(const char *address, char *host, size_t host_size, char *port, size_t port_size)
{
    const char *colon = strrchr(address, ':');
    size_t size;

    if (colon == NULL || colon == address)
        return false;
    size = (size_t)(colon - address);
    if (address[0] == '[' && address[size - 1] == ']') {
        address++;
        size -= 2;
    }
    if (size >= host_size || strlen(colon + 1) >= port_size)
        return false;
    memcpy(host, address, size);
    host[size] = '\0';
    strcpy(port, colon + 1);
    return true;
}

bool peer_address_numeric(const char *host, const char *port, struct sockaddr_storage *address)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)address;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)address;
    char *end;
    long number = strtol(port, &end, 10);

    if (*end != '\0' || number <= 0 || number > 65535)
        return false;
    memset(address, 0, sizeof *address);
    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)number);
        return true;
    }
    if (inet_pton(AF_INET6, host, &v6->sin6_addr) != 1)
        return false;
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons((uint16_t)number);
    return true;
}

/* All addresses as IPv6, so that one comparison does. */
static bool host_of(const struct sockaddr_storage *address, struct in6_addr *host)
{
    memset(host, 0, sizeof *host);
    if (address->ss_family == AF_INET6) {
        *host = ((const struct sockaddr_in6 *)address)->sin6_addr;
        return true;
    }
    if (address->ss_family != AF_INET)
        return false;
    host->s6_addr[10] = host->s6_addr[11] = 0xff;
    memcpy(host->s6_addr + 12, &((const struct sockaddr_in *)address)->sin_addr, 4);
    return true;
}

bool peer_address_same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    struct in6_addr host_a, host_b;
    return host_of(a, &host_a) && host_of(b, &host_b) && memcmp(&host_a, &host_b, sizeof host_a) == 0;
}

bool peer_address_is_loopback(const struct sockaddr_storage *address)
{
    struct in6_addr host;
    if (!host_of(address, &host))
        return false;
    return IN6_IS_ADDR_LOOPBACK(&host) || (IN6_IS_ADDR_V4MAPPED(&host) && host.s6_addr[12] == 127);
}
