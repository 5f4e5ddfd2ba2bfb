#include "dledger/peer_address.h"

#include <check.h>

#include "tests/lib/run_suite.h"

START_TEST(test_split)
{
    char host[16], port[8];
    ck_assert(peer_address_split("127.0.0.1:20911", host, sizeof host, port, sizeof port));
    ck_assert_str_eq(host, "127.0.0.1");
    ck_assert_str_eq(port, "20911");
    ck_assert(peer_address_split("[::1]:20911", host, sizeof host, port, sizeof port));
    ck_assert_str_eq(host, "::1");
    ck_assert(peer_address_split("node-1:1", host, sizeof host, port, sizeof port));
    ck_assert_str_eq(host, "node-1");
    ck_assert(!peer_address_split("node", host, sizeof host, port, sizeof port));
    ck_assert(!peer_address_split(":1", host, sizeof host, port, sizeof port));
    ck_assert(!peer_address_split("a-name-that-is-too-long:1", host, sizeof host, port, sizeof port));
    ck_assert(!peer_address_split("a:123456789", host, sizeof host, port, sizeof port));
}
END_TEST

static struct sockaddr_storage address(const char *host)
{
    struct sockaddr_storage out;
    ck_assert(peer_address_numeric(host, "1", &out));
    return out;
}

static bool same(const char *a, const char *b)
{
    struct sockaddr_storage first = address(a), second = address(b);
    return peer_address_same_host(&first, &second);
}

static bool loopback(const char *host)
{
    struct sockaddr_storage one = address(host);
    return peer_address_is_loopback(&one);
}

START_TEST(test_hosts)
{
    struct sockaddr_storage out;
    ck_assert(!peer_address_numeric("node-1", "1", &out));
    ck_assert(!peer_address_numeric("10.0.0.1", "0", &out));
    ck_assert(!peer_address_numeric("10.0.0.1", "65536", &out));
    ck_assert(!peer_address_numeric("10.0.0.1", "1x", &out));
    ck_assert(same("10.0.0.1", "10.0.0.1"));
    ck_assert(same("10.0.0.1", "::ffff:10.0.0.1"));
    ck_assert(same("fe80::1", "fe80:0::1"));
    ck_assert(!same("10.0.0.1", "10.0.0.2"));
    ck_assert(!same("10.0.0.1", "::10.0.0.1"));
    ck_assert(loopback("127.0.0.1"));
    ck_assert(loopback("127.5.5.5"));
    ck_assert(loopback("::1"));
    ck_assert(loopback("::ffff:127.0.0.1"));
    ck_assert(!loopback("128.0.0.1"));
    ck_assert(!loopback("10.0.0.1"));
    ck_assert(!loopback("::2"));
    ck_assert(!loopback("::ffff:10.0.0.1"));
    out.ss_family = AF_UNIX;
    ck_assert(!peer_address_is_loopback(&out));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("peer_address");
    TCase *tcase = tcase_create("peer_address");
    tcase_add_test(tcase, test_split);
    tcase_add_test(tcase, test_hosts);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
