"""Cases of the field, areas recovery and replication (tests/cases.md): what a stopped node's files look like when it starts."""
import glob
import os
import random
import signal
import time
import zlib

import remoting
from cluster import Cluster, Load, check, verify, wait_for
from e2e import case, rounds
from case_field_store import fill, is_whole, remove
from case_metadata import loads

UPDATE_OFFSET, QUERY_OFFSET = 15, 14
SMALL = ["mappedFileSizeCommitLog=4194304", "maxHashSlotNum=1000", "maxIndexNum=3000"]


SEGMENT = 4 << 20


def log_files(cluster, node):
    return sorted(glob.glob(os.path.join(store(cluster, node), f"dledger-n{node}", "data", "?" * 20)))


def store(cluster, node=0):
    return os.path.join(cluster.folder, f"n{node}", "store")


def overwrite(path, place, data):
    with open(path, "r+b") as file:
        file.seek(place)
        file.write(data)


def committed(connection, group):
    answer = connection.request(QUERY_OFFSET, {"consumerGroup": group, "topic": "T", "queueId": 0})
    check(answer.code == 0, f"14: {answer}")
    return int(answer.ext["offset"])


@case
def v1_an_empty_last_file_of_the_log():
    """V1: a newest file of the log that has its name and no bytes, on the only node and on all three: the start goes on, nothing is lost, and the log grows
    through it; after kill -9 and after a clean stop."""
    notes = []
    for nodes in (1, 3):
        with Cluster(nodes=nodes, settings=SMALL) as cluster:
            cluster.create_topic("T", 1)
            bodies = []

            def send(count, cluster=cluster, bodies=bodies):
                for _ in range(count):
                    bodies.append(b"%d " % len(bodies) + bytes(20000))
                    check(cluster.send("T", 0, bodies[-1]).code == 0, "send")

            send(50)
            for kill in (True, False):
                if kill:
                    for node in range(nodes):
                        cluster.kill(node)
                else:
                    cluster.stop()
                for node in range(nodes):
                    names = log_files(cluster, node)
                    with open(os.path.join(os.path.dirname(names[-1]), f"{int(os.path.basename(names[-1])) + SEGMENT:020}"), "xb") as file:
                        path = file.name
                began = time.monotonic()
                for node in range(nodes):
                    cluster.restart(node)
                cluster.leader(30)
                send(1)
                check(all(os.path.basename(path) + " had no bytes, and was removed" in cluster.output(node) for node in range(nodes)), "it is not named")
                notes.append(f"{time.monotonic() - began:.1f}")
                with remoting.Connection(cluster.broker(cluster.leader()), 20.0) as connection:
                    check([record.body for record in remoting.read_queue(connection, "T", 0)] == bodies, "bodies are missing")
    return f"{' '.join(notes)} s from the start to the next message"


@case
def v4_state_files_that_are_damaged():
    """V4: topics.json, consumerOffset.json, delayOffset.json cut, zeroed, with foreign bytes behind, or gone: two starts, nothing is lost, and they are whole
    again after a stop. They are copies for people: the snapshot and the log have it."""
    with Cluster(nodes=1) as cluster:
        cluster.create_topic("T", 1)
        with remoting.Connection(cluster.broker(0), 10.0) as connection:
            fill(connection, count=500)
            check(connection.request(UPDATE_OFFSET, {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": 123}).code == 0, "15")
        names = ("topics.json", "consumerOffset.json", "delayOffset.json", "subscriptionGroup.json")

        def cut(path):
            os.truncate(path, os.path.getsize(path) // 2)

        def zero(path):
            overwrite(path, 0, bytes(os.path.getsize(path)))

        def grow(path):
            with open(path, "ab") as file:
                file.write(b'}{"x":\xff\xfe')
        for damage in (cut, zero, grow, os.unlink):
            cluster.stop()
            for name in names:
                damage(os.path.join(store(cluster), "config", name))
            for _ in range(2):
                cluster.restart(0)
                cluster.leader(30)
                with remoting.Connection(cluster.broker(0), 10.0) as connection:
                    check(committed(connection, "g") == 123 and remoting.max_offset(connection, "T") == 500, f"after {damage.__name__}")
                    check(connection.request(remoting.SEND_V2, remoting.send_fields("U", 0, default_topic="NONE"), b"").code == 17, "a topic came from nowhere")
            cluster.stop()
            for name in names:
                with open(os.path.join(store(cluster), "config", name), "rb") as file:
                    check(isinstance(loads(file.read()), dict), f"{name} is not whole after {damage.__name__}")
            cluster.restart(0)
            cluster.leader(30)


@case
def v7_checkpoints_that_are_wrong():
    """V7: a checkpoint of zeros before many segments, one that is older than the data, one that is missing: everything is there, within seconds."""
    with Cluster(nodes=1, settings=SMALL) as cluster:
        cluster.create_topic("T", 1)
        checkpoint = os.path.join(store(cluster), "dledger-n0", "checkpoint")
        with remoting.Connection(cluster.broker(0), 20.0) as connection:
            fill(connection, count=1000)
            time.sleep(1.2)  # the checkpoint of now
            with open(checkpoint, "rb") as file:
                old = file.read()
            for start in range(1000, 3500, 10):
                members = [(b"%d" % i, f"KEYS\x01k{i}\x02UNIQ_KEY\x01u{i}\x02filler\x01{'x' * 8000}") for i in range(start, start + 10)]
                check(connection.request(320, {**remoting.send_fields("T", 0), "m": True}, remoting.batch_body(members)).code == 0, "batch")
        check(len(glob.glob(os.path.join(store(cluster), "dledger-n0", "data", "?" * 20))) >= 5, "segments")
        damages = (lambda: overwrite(checkpoint, 0, bytes(os.path.getsize(checkpoint))), lambda: overwrite(checkpoint, 0, old), lambda: os.unlink(checkpoint))
        for number, damage in enumerate(damages):
            cluster.kill(0) if number != 1 else cluster.stop()
            damage()
            begin = time.monotonic()
            cluster.restart(0)
            cluster.leader(30)
            took = time.monotonic() - begin
            with remoting.Connection(cluster.broker(0), 20.0) as connection:
                is_whole(connection, 3500)
            check(took < 25, f"the start took {took:.1f} s")


@case
def v9_killed_at_any_moment_it_starts():
    """V9: kill -9 in a loop under load, between segments, and inside of stops, which write a snapshot: the node always starts, with all that it acknowledged."""
    dice = random.Random(9)
    with Cluster(nodes=1, settings=SMALL, durability="B") as cluster:
        cluster.create_topic("T", 4)
        load = Load(cluster, "T", 4, size=20000)
        load.start()
        for turn in range(rounds(5, 12, 100)):
            have = len(load.acknowledged)
            wait_for("acknowledgements", 30, lambda have=have: len(load.acknowledged) > have + 150)
            time.sleep(dice.random() * 0.1)
            pid = cluster.pid(0)
            if turn % 2 == 1:
                os.kill(pid, signal.SIGTERM)
                time.sleep(dice.random() * 0.03)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            wait_for("the end", 10, lambda: not cluster.alive(0))
            cluster.restart(0)
            cluster.leader(30)
        load.stop()
        check(len(glob.glob(os.path.join(store(cluster), "dledger-n0", "data", "?" * 20))) >= 3, "no segment was rolled")
        return f"{verify(cluster, load)} acknowledged"


def body_with_crc(wanted, start):
    """start and four bytes that make the CRC-32 of all what is wanted."""
    table = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0xEDB88320 if n & 1 else 0)
        table.append(n)
    high = {value >> 24: index for index, value in enumerate(table)}
    state, indexes = wanted ^ 0xFFFFFFFF, []
    for _ in range(4):  # backwards: which rows of the table lead to the wanted end
        indexes.append(high[state >> 24])
        state = (state ^ table[indexes[-1]]) << 8 & 0xFFFFFFFF
    state, tail = zlib.crc32(start) ^ 0xFFFFFFFF, bytearray()
    for index in reversed(indexes):
        tail.append(state & 0xFF ^ index)
        state = state >> 8 ^ table[index]
    return start + bytes(tail)


@case
def v11_bodies_whose_checksum_is_0():
    """V11: bodies whose CRC-32 is 0, and one whose lower 31 bits are, among others: after kill -9 and without any hint all of them are there."""
    bodies = [body_with_crc(crc, b"body %d " % n) if n % 3 == 1 else b"body %d" % n for n, crc in enumerate([0, 0, 0x80000000] * 20)]
    check(zlib.crc32(bodies[1]) == 0 and zlib.crc32(bodies[4]) == 0, "the test's own arithmetic")
    bodies += [body_with_crc(0x80000000, b"the other one"), b""]
    check(zlib.crc32(bodies[-2]) == 0x80000000, "the test's own arithmetic")
    with Cluster(nodes=1) as cluster:
        cluster.create_topic("T", 1)
        with remoting.Connection(cluster.broker(0), 10.0) as connection:
            for body in bodies:
                check(connection.request(remoting.SEND_V2, remoting.send_fields("T", 0), body).code == 0, "send")
        for damage in (lambda folder: None, remove("dledger-n0", "checkpoint"), remove("consumequeue")):
            cluster.kill(0)
            damage(store(cluster))
            cluster.restart(0)
            cluster.leader(30)
            with remoting.Connection(cluster.broker(0), 10.0) as connection:
                check([record.body for record in remoting.read_queue(connection, "T", 0)] == bodies, "bodies are missing")


def queue_bytes(cluster, node):
    result = {}
    base = os.path.join(store(cluster, node), "consumequeue")
    for path in glob.glob(os.path.join(base, "*", "*", "*")):
        with open(path, "rb") as file:
            data = file.read().rstrip(b"\0")
        if data:
            result[os.path.relpath(path, base)] = data
    return result


def exported(cluster, node):
    result = {}
    for name in ("consumerOffset.json", "delayOffset.json", "topics.json"):
        with open(os.path.join(store(cluster, node), "config", name), "rb") as file:
            table = loads(file.read())
        table.pop("dataVersion", None)
        result[name] = table
    return result


@case
def v12_nodes_are_equal_after_kills():
    """V12: kill -9 of any node in a loop under sends, delayed ones and commits of offsets: in the end queues, delay progress, topics and offsets of all nodes are
    the same."""
    dice = random.Random(12)
    with Cluster(settings=["messageDelayLevel=1s"]) as cluster:
        cluster.create_topic("T", 4)
        cluster.create_topic("D", 4)
        load = Load(cluster, "T", 4, size=300)
        load.start()
        for turn in range(rounds(3, 4, 40)):
            leader = cluster.leader(30)
            for n in range(10):
                with remoting.Connection(cluster.broker(leader), 10.0) as connection:
                    connection.request(remoting.SEND_V2, remoting.send_fields("D", n % 4, "DELAY\x011"), b"late %d" % n)
                    connection.request(UPDATE_OFFSET, {"consumerGroup": f"g{n % 3}", "topic": "T", "queueId": n % 4, "commitOffset": turn * 10 + n})
            node = dice.randrange(3)
            cluster.kill(node)
            time.sleep(dice.random() * 0.2)
            cluster.restart(node)
        load.stop()
        leader = cluster.leader(30)

        def same():
            ends = []
            for node in range(3):
                with remoting.Connection(cluster.broker(node), 10.0) as connection:
                    ends.append([remoting.max_offset(connection, topic, queue) for queue in range(4) for topic in "TD"])
            return ends[0] == ends[1] == ends[2] and cluster.all_applied()
        wait_for("equal ends", 30, same)
        time.sleep(1.5)  # what is late comes
        wait_for("equal ends", 30, same)
        count = verify(cluster, load)
        cluster.stop()
        queues = [queue_bytes(cluster, node) for node in range(3)]
        check(queues[0] and queues[0] == queues[1] == queues[2], lambda: f"queues differ: {[sorted(q) for q in queues]}")
        tables = [exported(cluster, node) for node in range(3)]
        check(tables[0] == tables[1] == tables[2], lambda: f"{tables}")
        return f"{count} acknowledged"
