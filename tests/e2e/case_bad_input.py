"""Frames that are none, requests that lack something, clients that do not read: answered or cut off, and nobody else notices."""
import random
import struct
import threading
import time

import remoting
from cluster import Cluster, check
from e2e import case
from process import memory_kb

MALFORMED = {
    "length zero": struct.pack(">i", 0),
    "length negative": struct.pack(">i", -5) + b"x" * 20,
    "length below four": struct.pack(">i", 3) + b"abc",
    "length over 16 MiB": struct.pack(">iI", 16777213, 0),
    "length huge": b"\x7f\xff\xff\xff" + b"x" * 64,
    "header longer than the frame": struct.pack(">iI", 10, 100) + b"{}{}{}",
    "header of 16 MiB": struct.pack(">iI", 10, 0xFFFFFF) + b"{}{}{}",
    "unknown serialize type": struct.pack(">iI", 6, 2 << 24 | 2) + b"{}",
    "serialize type 255": struct.pack(">iI", 6, 255 << 24 | 2) + b"{}",
    "empty header": struct.pack(">iI", 4, 0),
    "header null": remoting.frame(b"null"),
    "broken JSON": remoting.frame(b'{"code":105,"opaque":1'),
    "no JSON at all": remoting.frame(b"\x00\x01\x02\x03"),
    "JSON array": remoting.frame(b"[1,2,3]"),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "binary header cut short": struct.pack(">iI", 4 + 10, 1 << 24 | 10) + b"\x00" * 10,
    "binary header with a long remark": struct.pack(">iI", 4 + 21, 1 << 24 | 21) + struct.pack(">hbhiii", 105, 0, 409, 7, 0, 1 << 30) + b"\x00" * 4,
    "binary ext fields longer than the header": struct.pack(">iI", 4 + 21, 1 << 24 | 21) + struct.pack(">hbhiiii", 105, 0, 409, 7, 0, 0, 1000),
}


def closes_without_answer(address, name, data):
    with remoting.Connection(address) as connection:
        connection.send_raw(data)
        check(connection.closed_by_peer(), f"{name}: {address} keeps the connection")
        check(not connection.buffer, f"{name}: {address} answered {bytes(connection.buffer[:200])!r}")


@case
def malformed_frames():
    with Cluster() as cluster:
        cluster.create_topic("T", 1)
        leader = cluster.leader()
        with remoting.Connection(cluster.broker(leader)) as other:
            for address in (cluster.broker(leader), cluster.broker((leader + 1) % 3), cluster.namesrv(0)):
                for name, data in MALFORMED.items():
                    closes_without_answer(address, name, data)
            answer = other.request(remoting.SEND_V2, remoting.send_fields("T", 0), b"still here")
            check(answer.code == 0, f"another connection was disturbed: {answer}")
        for node in range(3):
            check(cluster.alive(node), f"node {node} ended")
            lines = sum("malformed" in line or "no frame" in line for line in cluster.output(node).splitlines())
            check(lines < 40, f"node {node} wrote {lines} lines about {len(MALFORMED)} bad frames: no limit")


@case
def malformed_bytes_at_random():
    seed = int(time.time())
    chance = random.Random(seed)
    valid = remoting.request_frame(remoting.SEND_V2, remoting.send_fields("T", 0), b"body")
    with Cluster(nodes=1) as cluster:
        cluster.create_topic("T", 1)
        for i in range(300):
            data = bytearray(valid * chance.randrange(1, 3))
            for _ in range(chance.randrange(1, 6)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            address = chance.choice([cluster.broker(0), cluster.namesrv(0)])
            with remoting.Connection(address) as connection:
                connection.send_raw(bytes(data[:chance.randrange(1, len(data) + 1)]))
            check(cluster.alive(0), f"node 0 ended (seed {seed}, round {i})")
        answer = cluster.send("T", 0, b"still here")
        check(answer.code == 0, f"seed {seed}: {answer}")
        return f"seed {seed}"


@case
def frames_in_pieces():
    """A frame byte by byte, and many frames in one segment."""
    with Cluster(nodes=1) as cluster:
        cluster.create_topic("T", 1)
        with remoting.Connection(cluster.broker(0)) as connection:
            for byte in remoting.request_frame(remoting.SEND_V2, remoting.send_fields("T", 0), b"slow", opaque=1):
                connection.send_raw(bytes([byte]))
            check(connection.answer(1).code == 0, "byte by byte")
            connection.send_raw(b"".join(remoting.request_frame(remoting.SEND_V2, remoting.send_fields("T", 0), b"%d" % i, opaque=i)
                                         for i in range(2, 500)))
            offsets = [int(connection.answer(i).ext["queueOffset"]) for i in range(2, 500)]
            check(offsets == list(range(1, 499)), "answers to many frames at once")


@case
def missing_and_wrong_fields():
    with Cluster() as cluster:
        cluster.create_topic("T", 1)
        fields = {
            remoting.SEND_V2: (remoting.send_fields("T", 0), ["a", "b", "c", "d", "e", "f", "g", "h"], ["d", "e", "f", "g", "h"]),
            remoting.PULL: (remoting.pull_fields("T", 0, 0), ["consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums", "sysFlag", "commitOffset"],
                            ["queueId", "queueOffset", "maxMsgNums", "sysFlag"]),
            remoting.MAX_OFFSET: ({"topic": "T", "queueId": 0}, ["topic", "queueId"], ["queueId"]),
            remoting.CREATE_TOPIC: ({"topic": "N", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
                                     "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False},
                                    ["topic", "readQueueNums", "writeQueueNums", "perm"], ["readQueueNums", "perm"]),
        }
        names = {"a": "producerGroup", "b": "topic", "c": "defaultTopic", "d": "defaultTopicQueueNums", "e": "queueId", "f": "sysFlag",
                 "g": "bornTimestamp", "h": "flag"}
        leader = cluster.leader()
        for node in (leader, (leader + 1) % 3):
            with remoting.Connection(cluster.broker(node)) as connection:
                for code, (good, required, numbers) in fields.items():
                    bad = [(name, {key: value for key, value in good.items() if key != name}) for name in required]
                    bad += [(name, {**good, name: "many"}) for name in numbers] + [(name, {**good, name: "99999999999999999999"}) for name in numbers]
                    for name, ext in bad:
                        answer = connection.request(code, ext, b"body")
                        remark = answer.remark or ""
                        check(answer.code == 1 and (name in remark or names.get(name, name) in remark),
                              f"request {code} to node {node} with bad {name} ({ext.get(name)}): {answer}")
                answer = connection.request(123456, {})
                check(answer.code == 3, f"unknown code: {answer}")


@case
def limits_of_a_message():
    with Cluster(nodes=1) as cluster:
        cluster.create_topic("T", 1)
        check(cluster.send("T", 0, b"x" * (4 << 20)).code == 0, "a body of exactly 4 MiB")
        check(cluster.send("T", 0, b"x" * ((4 << 20) + 1)).code == 13, "a body over 4 MiB")
        check(cluster.send("T", 0, b"x", "k\x01" + "v" * 32800).code == 13, "properties over 32 KiB")
        check(cluster.send("T" * 128, 0, b"x").code == 1, "a topic of 128 letters")
        check(cluster.send("T T", 0, b"x").code == 1, "a topic with a space")
        check(cluster.send("SCHEDULE_TOPIC_XXXX", 0, b"x").code == 16, "a topic nobody may send to")
        check(cluster.send("T", 99, b"x").code == 1, "a queue that is not there")
        check(cluster.send("T", 0, b"last").code == 0, "after all that")


@case
def client_that_does_not_read_is_cut():
    with Cluster(nodes=1) as cluster:
        cluster.create_topic("T", 1)
        for _ in range(8):
            check(cluster.send("T", 0, b"x" * 200000).code == 0, "send")
        before = memory_kb(cluster.pid(0))
        greedy = remoting.Connection(cluster.broker(0))
        cut = threading.Event()

        def ask_without_reading():
            try:
                for i in range(20000):
                    greedy.send_raw(remoting.request_frame(remoting.PULL, remoting.pull_fields("T", 0, 0), opaque=i))
            except OSError:
                cut.set()
        asker = threading.Thread(target=ask_without_reading, daemon=True)
        asker.start()
        deadline = time.monotonic() + 45
        worst = 0
        while time.monotonic() < deadline and not cut.is_set():
            answer = cluster.send("T", 0, b"others go on")
            check(answer.code == 0, f"others are disturbed: {answer}")
            worst = max(worst, memory_kb(cluster.pid(0)))
            time.sleep(0.1)
        greedy.close()
        asker.join(5)
        check(worst - before < 100 * 1024, f"memory grew by {worst - before} kB for one client that does not read")
        check(cut.is_set(), "a client that does not read was kept for 45 s")
