"""Cases of the field, area wire (tests/cases.md): frames that are none, bytes of two connections, and who gets which answer."""
import random
import struct
import threading
import time
import zlib

import remoting
from cluster import Cluster, check, wait_for
from e2e import case, rounds
from process import cpu_seconds, memory_kb

TLS_HELLO = bytes.fromhex("160301020001000 1fc0303".replace(" ", "")) + bytes(509)


def lines_about(cluster, words):
    return sum(any(word in line for word in words) for line in cluster.output(0).splitlines())


@case
def w1_frames_too_short_and_unknown_types():
    """W1: a total length below the header word, with as many bytes behind it, and every serialise type that is none."""
    with Cluster(nodes=1) as cluster:
        cluster.create_topic("T", 1)
        address = cluster.broker(0)
        fast = f"127.0.0.1:{int(address.rsplit(':', 1)[1]) - 2}"
        with remoting.Connection(address) as other:
            frames = [struct.pack(">i", length) + b"\0" * length for length in (0, 1, 2, 3)]
            frames += [struct.pack(">iI", 6, kind << 24 | 2) + b"{}" for kind in range(2, 256)]
            for target in (address, fast, cluster.namesrv(0)):
                for data in frames:
                    with remoting.Connection(target) as connection:
                        connection.send_raw(data)
                        check(connection.closed_by_peer(), f"{target} keeps a connection that sent {data!r}")
                        check(not connection.buffer, f"{target} answered {data!r}")
                check(other.request(remoting.SEND_V2, remoting.send_fields("T", 0), b"x").code == 0, "another connection was disturbed")
        before = cpu_seconds(cluster.pid(0))
        time.sleep(0.5)
        check(cpu_seconds(cluster.pid(0)) - before < 0.25, "the broker is busy with nothing")
        check(lines_about(cluster, ("malformed", "no frame")) < 60, "a line for every bad frame")


@case
def w6_bodies_of_many_connections_stay_apart():
    """W6: pipelined sends of bodies that carry their own checksum, pulls at the same time: every stored body is one that was sent."""
    seconds = rounds(2, 4, 60)
    with Cluster(nodes=1) as cluster:
        cluster.create_topic("T", 4)
        address, end, errors, sent = cluster.broker(0), time.monotonic() + seconds, [], {}

        def body_of(chance, name, number):
            head = b"%s|%d|" % (name, number)
            body = head + chance.randbytes(chance.choice((0, 1, 100, 3000, 70000)))
            return struct.pack(">I", zlib.crc32(body)) + body

        def produce(index):
            chance, number, mine = random.Random(index), 0, {}
            sent[index] = mine
            with remoting.Connection(address, 20.0) as connection:
                while time.monotonic() < end:
                    opaques = []
                    for _ in range(chance.randrange(1, 24)):
                        body = body_of(chance, b"%d" % index, number)
                        opaques.append((connection.send(remoting.SEND_V2, remoting.send_fields("T", index % 4), body), number, zlib.crc32(body)))
                        number += 1
                    for opaque, which, crc in opaques:
                        answer = connection.answer(opaque)
                        check(answer.code == 0, f"{answer}")
                        mine[which] = crc, int(answer.ext["queueOffset"])

        def consume(queue):
            offset = 0
            with remoting.Connection(address, 20.0) as connection:
                while time.monotonic() < end:
                    answer = connection.request(remoting.PULL, remoting.pull_fields("T", queue, offset, hold_ms=100))
                    if answer.code != 0:
                        continue
                    for record in remoting.records(answer.body):
                        check(struct.unpack(">I", record.body[:4])[0] == zlib.crc32(record.body[4:]), f"a foreign body at {record.offset}")
                    offset = int(answer.ext["nextBeginOffset"])

        def guarded(function, argument):
            try:
                function(argument)
            except Exception as error:  # pylint: disable=broad-except
                errors.append(error)
        threads = [threading.Thread(target=guarded, args=(produce, i)) for i in range(8)]
        threads += [threading.Thread(target=guarded, args=(consume, i)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        check(not errors, lambda: f"{errors[0]!r}")
        stored = {}
        with remoting.Connection(address, 20.0) as connection:
            for queue in range(4):
                for record in remoting.read_queue(connection, "T", queue):
                    stored[queue, record.offset] = zlib.crc32(record.body)
        for index, mine in sent.items():
            for which, (crc, offset) in mine.items():
                check(stored.get((index % 4, offset)) == crc, f"message {which} of connection {index} is not what was sent")
        return f"{sum(len(mine) for mine in sent.values())} bodies"


@case
def w7_bytes_of_other_protocols():
    """W7: HTTP, TLS and SSH at the plain ports, again and again: closed at once, few lines, no memory by the length that they seem to claim."""
    openings = {"HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "TLS": TLS_HELLO, "SSH": b"SSH-2.0-OpenSSH_9.2\r\n"}
    times = rounds(100, 200, 1000)
    with Cluster(nodes=1) as cluster:
        cluster.create_topic("T", 1)
        before = memory_kb(cluster.pid(0))
        for _ in range(times):
            for name, data in openings.items():
                for address in (cluster.broker(0), cluster.namesrv(0)):
                    with remoting.Connection(address) as connection:
                        connection.send_raw(data)
                        check(connection.closed_by_peer(1.0), f"{name} is not closed at once by {address}")
        check(memory_kb(cluster.pid(0)) - before < 8192, "memory grew")
        check(lines_about(cluster, ("malformed", "no frame", "frame of")) < 100, f"the log grows with each of {times * 6} connections")
        check(cluster.send("T", 0, b"still here").code == 0, "after all that")


@case
def w8_more_topics_than_a_plain_registration_holds():
    """W8: so many topics with long names that a plain registration would not fit a frame; after a restart all are routed again, at the broker's own name
    server."""
    count = rounds(45000, 45000, 70000)
    with Cluster(nodes=1) as cluster:
        def name(number):
            return f"{number:06d}" + "T" * 121

        def routed(number):
            try:
                return remoting.ask(cluster.namesrv(0), remoting.ROUTE, {"topic": name(number)}, timeout=20.0).code == 0
            except OSError:
                return False
        with remoting.Connection(cluster.broker(0), 60.0) as connection:
            for start in range(0, count, 1500):
                numbers = range(start, min(start + 1500, count))
                fields = {"defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG", "order": False}
                connection.send_raw(b"".join(remoting.request_frame(remoting.CREATE_TOPIC, {**fields, "topic": name(i)}, opaque=i + 1) for i in numbers))
                for i in numbers:
                    check(connection.answer(i + 1).code == 0, f"topic {i}")
            wait_for("the last route", 30, lambda: routed(count - 1))
            answer = connection.request(21, {})
            check(answer.code == 1 and answer.remark, f"a table that fits no frame: {answer.code} {answer.remark}")
            check(connection.request(remoting.SEND_V2, remoting.send_fields(name(count - 1), 0)).code == 0, "send")
        cluster.kill(0)
        cluster.restart(0)
        wait_for("the routes", 60, lambda: routed(count - 1))
        for i in range(0, count, count // 50):
            check(routed(i), f"topic {i} has no route")


@case
def w9_answers_of_relayed_requests_are_not_swapped():
    """W9: two clients of one follower use the same opaque numbers at the same time; the follower relays all over one connection."""
    with Cluster() as cluster:
        leader = cluster.leader()
        cluster.create_topic("T", 2)
        follower = cluster.broker((leader + 1) % 3)
        with remoting.Connection(follower, 10.0) as one, remoting.Connection(follower, 10.0) as two:
            clients, places = ((one, 0), (two, 1)), {0: [], 1: []}
            for _ in range(rounds(5, 10, 100)):
                asked = []
                for _ in range(40):
                    for client, queue in clients:
                        asked.append((client, queue, client.send(remoting.SEND_V2, remoting.send_fields("T", queue), b"of %d" % queue)))
                check([opaque for client, _, opaque in asked if client is one] == [opaque for client, _, opaque in asked if client is two], "opaques")
                for client, queue, opaque in asked:
                    answer = client.answer(opaque)
                    check(answer.code == 0 and answer.ext["queueId"] == str(queue), f"the client of queue {queue} got {answer}")
                    places[queue].append(int(answer.ext["queueOffset"]))
            for queue in (0, 1):
                check(places[queue] == list(range(len(places[queue]))), f"offsets of queue {queue} are {places[queue][:50]}")
                with remoting.Connection(cluster.broker(leader)) as reader:
                    check(all(record.body == b"of %d" % queue for record in remoting.read_queue(reader, "T", queue)), f"bodies of queue {queue}")


@case
def w10_one_answer_for_each_send():
    """W10: as many answers as two-way requests, none for a one-way one; at the leader and through a follower, refused or not."""
    with Cluster() as cluster:
        leader = cluster.leader()
        cluster.create_topic("T", 1)
        count = 1000
        for node in (leader, (leader + 1) % 3):
            with remoting.Connection(cluster.broker(node), 10.0) as connection:
                start = remoting.max_offset(connection, "T")

                def answers(frames, oneway, connection=connection):
                    seen = []
                    connection.send_raw(b"".join(remoting.request_frame(remoting.SEND_V2, fields, b"x", opaque=100000 + i, flag=2 if oneway else 0)
                                                 for i, fields in enumerate(frames)))
                    fence = connection.send(12345)
                    deadline = time.monotonic() + 10 * remoting.PATIENCE
                    wanted = (0 if oneway else len(frames)) + 1
                    while len(seen) < wanted and time.monotonic() < deadline:
                        connection.receive_some(0.5)
                        seen += [answer.opaque for answer in connection.frames()]
                    while connection.receive_some(0.2):
                        seen += [answer.opaque for answer in connection.frames()]
                    seen.remove(fence)
                    return seen

                good, bad = remoting.send_fields("T", 0), remoting.send_fields("T", 9)
                seen = answers([good] * count, False)
                check(sorted(seen) == list(range(100000, 100000 + count)), f"{len(seen)} answers to {count} sends")
                seen = answers([bad] * 20, False)
                check(sorted(seen) == list(range(100000, 100020)), f"{len(seen)} answers to 20 refused sends")
                check(answers([good, bad] * (count // 2), True) == [], "a one-way send was answered")
                wait_for("the one-way sends", 10,
                         lambda connection=connection, start=start: remoting.max_offset(connection, "T") == start + count + count // 2)
