"""A cluster whose clients come over IPv6: 20-byte hosts in records, ids of 56 digits, and everything that reads them."""
import ipaddress
import struct

import remoting
from cluster import Cluster, check, wait_for
from e2e import case

VIEW_BY_ID, SEND_BATCH, SEND_BACK = 33, 320, 36
BORN_V6, STORE_V6 = 0x10, 0x20


def v6(cluster, node):
    return f"[::1]:{cluster.base + 100 + 10 * node}"


def hosts(data):
    """Addresses and ports of born and store host, read from a record's bytes alone."""
    (sys_flag,) = struct.unpack_from(">i", data, 36)
    at, found = 48, []
    for bit in (BORN_V6, STORE_V6):
        size = 16 if sys_flag & bit else 4
        found.append((ipaddress.ip_address(bytes(data[at:at + size])), struct.unpack_from(">i", data, at + size)[0]))
        at += size + 4 + 8
    return sys_flag, found


def id_parts(text):
    check(len(text) == 56, f"id {text} has {len(text)} digits")
    raw = bytes.fromhex(text)
    return ipaddress.ip_address(raw[:16]), *struct.unpack(">iq", raw[16:])


def inner(topic_body):
    """One message of a batch's body."""
    properties = b"TAGS\x01a"
    return struct.pack(">iIiii", 4 * 5 + len(topic_body) + 2 + len(properties), 0, 0, 0, len(topic_body)) + topic_body + \
        struct.pack(">h", len(properties)) + properties


def check_record(cluster, node, data, position, born):
    sys_flag, ((born_host, _), (store_host, store_port)) = hosts(data)
    check(sys_flag & STORE_V6 and bool(sys_flag & BORN_V6) == (born.version == 6), f"sysFlag {sys_flag:#x}")
    check((born_host, store_host) == (born, ipaddress.ip_address("::1")), f"hosts {born_host}, {store_host}")
    check(store_port == cluster.base + 100 + 10 * node, f"store port {store_port}")
    record = next(remoting.records(data))
    check(record.position == position, f"record of {position} says {record.position}")
    return record


@case
def ipv6():
    cluster = Cluster(nodes=3, settings=["bindAddress=::", "brokerIP1=::1"])
    # The peers too, and with them the name servers.
    cluster.settings += ["dLegerPeers=" + ";".join(f"n{i}-[::1]:{cluster.peer_port(i)}" for i in range(3)),
                         "namesrvAddr=" + ";".join(f"[::1]:{cluster.base + i}" for i in range(3))]
    with cluster:
        address = remoting.leader_address(f"[::1]:{cluster.base}")
        node = cluster.leader()
        check(address == v6(cluster, node), f"the route says {address}")
        cluster.create_topic("T6", 4)
        sent = {}  # id -> (position, body, born)
        for host, born in ((address, "::1"), (cluster.broker(node), "127.0.0.1")):
            with remoting.Connection(host) as connection:
                for i in range(5):
                    body = f"{born} {i}".encode()
                    answer = connection.request(remoting.SEND_V2, remoting.send_fields("T6", i % 4, f"KEYS\x01k{i}"), body)
                    check(answer.code == 0, f"send: {answer}")
                    store_host, port, position = id_parts(answer.ext["msgId"])
                    check((store_host, port) == (ipaddress.ip_address("::1"), cluster.base + 100 + 10 * node), f"id {answer.ext['msgId']}")
                    sent[answer.ext["msgId"]] = position, body, ipaddress.ip_address(born)
        with remoting.Connection(address) as connection:
            fields = remoting.send_fields("T6", 0)
            fields["m"] = True
            answer = connection.request(SEND_BATCH, fields, b"".join(inner(b"member %d" % i) for i in range(3)))
            check(answer.code == 0, f"batch: {answer}")
            ids = answer.ext["msgId"].split(",")
            check(len(ids) == 3, f"ids of the batch: {ids}")
            for i, text in enumerate(ids):
                sent[text] = id_parts(text)[2], b"member %d" % i, ipaddress.ip_address("::1")
        look_at_all(cluster, node, sent)
        # Another leader has its own address; records keep the one that took them.
        cluster.kill(node)
        other = cluster.leader(but=node)
        cluster.restart(node)
        answer = remoting.ask(v6(cluster, other), remoting.SEND_V2, remoting.send_fields("T6", 0), b"after")
        check(answer.code == 0 and id_parts(answer.ext["msgId"])[1] == cluster.base + 100 + 10 * other, f"after: {answer}")
        look_at_all(cluster, node, sent, at=other)
        send_back(cluster, other, next(iter(sent)), sent)


def look_at_all(cluster, node, sent, at=None):
    at = node if at is None else at
    with remoting.Connection(v6(cluster, at)) as connection:
        for position, body, born in sent.values():
            answer = connection.request(VIEW_BY_ID, {"offset": position})
            check(answer.code == 0, f"view of {position}: {answer}")
            check(check_record(cluster, node, answer.body, position, born).body == body, f"body at {position}")
        found = {record.body: record.position for queue in range(4) for record in remoting.read_queue(connection, "T6", queue)}
        for position, body, _ in sent.values():
            check(found.get(body) == position, f"{body} is pulled at {found.get(body)}, was stored at {position}")
        answer = connection.request(remoting.QUERY, {"topic": "T6", "key": "k3", "maxNum": 10, "beginTimestamp": 0, "endTimestamp": 1 << 62})
        check(answer.code == 0, f"query: {answer}")
        bodies = sorted(record.body for record in remoting.records(answer.body))
        check(bodies == [b"127.0.0.1 3", b"::1 3"], f"key k3 finds {bodies}")


def send_back(cluster, node, text, sent):
    """The retry keeps the id of the message that it began with."""
    group = "g6"
    with remoting.Connection(v6(cluster, node)) as connection:
        remoting_fields = {"group": group, "offset": sent[text][0], "delayLevel": 0, "originMsgId": text, "originTopic": "T6", "unitMode": False,
                           "maxReconsumeTimes": 16}
        created = connection.request(200, {}, ('{"groupName":"%s","consumeEnable":true,"retryQueueNums":1,"retryMaxTimes":16}' % group).encode())
        check(created.code == 0, f"group: {created}")
        answer = connection.request(SEND_BACK, {**remoting_fields, "delayLevel": 1})
        check(answer.code == 0, f"send back: {answer}")

        def retried():
            return [record for record in remoting.read_queue(connection, f"%RETRY%{group}", 0)]
        record = wait_for("the retry", 5, retried)[0][0]
        check(record.sys_flag & (BORN_V6 | STORE_V6) == BORN_V6 | STORE_V6, f"sysFlag of the retry {record.sys_flag:#x}")
        check(f"ORIGIN_MESSAGE_ID\x01{text}" in record.properties, f"properties {record.properties!r}")
