"""Delay levels over kills of the leader: never early, nothing lost, nothing twice. And pulls that wait or read old messages."""
import os
import time

import remoting
from cluster import Cluster, check, wait_for
from e2e import case, rounds

LEVEL_MS = {1: 1000, 2: 2000}


def send_delayed(cluster, sent, acknowledged, rate, seconds):
    """Each message once and never again, levels in turn; through whichever node takes it."""
    node, connection = 0, None
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        body = b"%d" % len(sent)
        sent.append(body)
        try:
            if connection is None:
                connection = remoting.Connection(cluster.broker(node), timeout=4.0)
            level = 1 + len(sent) % 2
            fields = remoting.send_fields("T", len(sent) % 4, f"DELAY\x01{level}\x02LEVEL\x01{level}")
            if connection.request(remoting.SEND_V2, fields, body).code == 0:
                acknowledged.append(body)
        except OSError:
            if connection is not None:
                connection.close()
            connection = None
            node = (node + 1) % cluster.nodes
        time.sleep(1 / rate)
    if connection is not None:
        connection.close()


def delivered(cluster):
    found = []
    with remoting.Connection(cluster.broker(cluster.leader())) as connection:
        for queue in range(4):
            found += remoting.read_queue(connection, "T", queue)
    return found


@case
def delayed_once_over_failover():
    with Cluster(settings=["messageDelayLevel=1s 2s"]) as cluster:
        cluster.create_topic("T", 4)
        sent, acknowledged = [], []
        for _ in range(rounds(1, 3, 6)):
            send_delayed(cluster, sent, acknowledged, 150, 2.5)  # deliveries are under way when the leader dies
            leader = cluster.leader()
            cluster.kill(leader)
            send_delayed(cluster, sent, acknowledged, 150, 2.5)
            cluster.restart(leader)
        check(len(acknowledged) > len(sent) / 2, f"only {len(acknowledged)} of {len(sent)} were taken")
        found, _ = wait_for("all acknowledged messages to be delivered", 20,
                            lambda: (lambda f: f if {r.body for r in f} >= set(acknowledged) else None)(delivered(cluster)))
        time.sleep(0.5)
        found = delivered(cluster)
        bodies = [record.body for record in found]
        check(len(bodies) == len(set(bodies)), lambda: f"delivered twice: {sorted({b for b in bodies if bodies.count(b) > 1})[:5]}")
        for record in found:
            level = int(record.properties.split("LEVEL\x01")[1].split("\x02")[0])
            wait_ms = record.store_ms - record.born_ms
            check(wait_ms >= LEVEL_MS[level], f"{record.body} of level {level} came after {wait_ms} ms")
            check("REAL_TOPIC\x01T" in record.properties, record.properties)
        return f"{len(found)} delivered, {len(acknowledged)} acknowledged"


@case
def held_pull_is_woken_by_its_queue():
    with Cluster(nodes=1) as cluster:
        cluster.create_topic("T", 2)
        with remoting.Connection(cluster.broker(0)) as consumer:
            opaque = consumer.send(remoting.PULL, remoting.pull_fields("T", 0, 0, hold_ms=5000))
            cluster.send("T", 1, b"other queue")
            time.sleep(0.2)
            begin = time.monotonic()
            cluster.send("T", 0, b"mine")
            answer = consumer.answer(opaque, 3.0)
            check(answer.code == 0 and [r.body for r in remoting.records(answer.body)] == [b"mine"], f"{answer}")
            check(time.monotonic() - begin < 1.0 * remoting.PATIENCE, "woken late")
            begin = time.monotonic()
            answer = consumer.request(remoting.PULL, remoting.pull_fields("T", 0, 1, hold_ms=700), timeout=5.0)
            check(answer.code == 19 and answer.ext["nextBeginOffset"] == "1", f"{answer}")
            check(0.6 < time.monotonic() - begin < 4.0 * remoting.PATIENCE, "not held as long as asked")


@case
def old_messages_come_from_the_pool():
    """More than the 64 MiB that count as recent: read from the start, every record whole, while new ones are sent."""
    count, size = 1700, 60000
    with Cluster(nodes=1) as cluster:
        cluster.create_topic("T", 1)
        with remoting.Connection(cluster.broker(0)) as producer:
            for i in range(count):
                answer = producer.request(remoting.SEND_V2, remoting.send_fields("T", 0), b"%08d" % i + os.urandom(size - 8))
                check(answer.code == 0, f"send {i}: {answer}")
        with remoting.Connection(cluster.broker(0)) as consumer:
            found = remoting.read_queue(consumer, "T", 0)
        check([r.body[:8] for r in found] == [b"%08d" % i for i in range(count)], "records are missing or out of order")
        check(all(len(r.body) == size for r in found), "a record is cut")
