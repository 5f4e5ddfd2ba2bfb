"""A group whose members are of two versions, and files of a version that this program does not know."""
import contextlib
import os
import shutil
import struct
import tempfile

import remoting
from case_cluster import ended
from cluster import BIN, Cluster, Load, check, verify, wait_for
from e2e import Skipped, case

CRC_TABLE = []
for value in range(256):
    for _ in range(8):
        value = value >> 1 ^ 0x82F63B78 if value & 1 else value >> 1
    CRC_TABLE.append(value)


def crc32c(data, seed=0):
    crc = ~seed & 0xFFFFFFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return ~crc & 0xFFFFFFFF


@contextlib.contextmanager
def next_version():
    """Nodes that start meanwhile are of the next version."""
    program = os.path.join(BIN, "mqbroker_next")
    if not os.path.exists(program):
        raise Skipped("mqbroker_next is not built (LEDGERMQ_TESTS)")
    before = os.environ.get("LEDGERMQ_BIN")
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(program, os.path.join(folder, "mqbroker"))
        os.symlink(os.path.join(BIN, "mqadmin"), os.path.join(folder, "mqadmin"))
        os.environ["LEDGERMQ_BIN"] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ["LEDGERMQ_BIN"]
            else:
                os.environ["LEDGERMQ_BIN"] = before


def spoken(cluster, node):
    try:
        return {key[-2:]: int(value) for key, value in cluster.runtime_table(node).items() if key.startswith("raftPeerVersion_")}
    except OSError:  # it is about to start
        return {"n?": 0}


@case
def versions_a_next_one_joins_and_leaves():
    """L3: one member after the other becomes one of the next version, leads, and becomes what it was: under load, nothing is lost, each two speak the newest
    version that both know."""
    with Cluster(durability="B") as cluster:
        cluster.create_topic("T", 4)
        load = Load(cluster, "T", 4, window=16)
        load.start()

        def replace(node):
            cluster.kill(node)
            cluster.restart(node)
            wait_for(f"node {node} to be heard", 15, lambda: all(version > 0 for version in spoken(cluster, node).values()))
            cluster.leader()
        with next_version():
            replace(2)
            check(spoken(cluster, 2) == {"n0": 2, "n1": 2, "n2": 3}, f"node 2 speaks {spoken(cluster, 2)}")
            replace(1)
            wait_for("nodes 1 and 2 to speak the next version", 5, lambda: spoken(cluster, 1) == {"n0": 2, "n1": 3, "n2": 3} == spoken(cluster, 2))
            led = cluster.leader()
            if led == 0:
                cluster.kill(0)
                led = cluster.leader(but=0)
                cluster.restart(0)
            with_next = len(load.acknowledged)
            wait_for("a leader of the next version to acknowledge", 10, lambda: len(load.acknowledged) > with_next + 100)
        # Restarted by now with the program that it was, though the leader is newer.
        replace(0)
        for node in (1, 2):
            replace(node)
        for node in range(3):
            wait_for("all to be what they were", 5, lambda node=node: set(spoken(cluster, node).values()) == {2})
        load.stop()
        return f"{verify(cluster, load)} acknowledged"


def patched(path, change):
    with open(path, "r+b") as file:
        data = bytearray(file.read())
        change(data)
        file.seek(0)
        file.write(data)


def vote(data):
    for slot in (0, 4096):
        if any(data[slot:slot + 36]):
            struct.pack_into(">I", data, slot + 4, 7)
            struct.pack_into(">I", data, slot + 32, crc32c(data[slot:slot + 32]))


def checkpoint(data):
    """From version 2 on the checksum is over the head too."""
    for slot in (0, 73728):
        struct.pack_into(">I", data, slot + 4, 7)
        (size,) = struct.unpack_from(">I", data, slot + 8)
        struct.pack_into(">I", data, slot + 12, crc32c(data[slot + 16:slot + 16 + size], crc32c(data[slot:slot + 12])))


def entry(data):
    """The first entry of the log becomes one of version 2: with the chain that belongs to it."""
    struct.pack_into(">I", data, 0, 7)
    struct.pack_into(">I", data, 36, crc32c(struct.pack(">I", 0) + data[:36] + data[40:48]))


def snapshot(data):
    (size,) = struct.unpack_from(">Q", data, 16)
    struct.pack_into(">I", data, 4, 7)
    struct.pack_into(">I", data, 24, crc32c(data[28:28 + size], crc32c(data[:24])))


@case
def versions_that_are_unknown_refuse():
    """Each file with a version that is not known: the start is refused with file, found and known version, and nothing is changed."""
    with Cluster(nodes=1, durability="B") as cluster:
        cluster.create_topic("T", 1)
        for _ in range(20):
            check(cluster.send("T", 0, b"x" * (4 << 20)).code == 0, "send")
        wait_for("a snapshot", 10, lambda: os.path.exists(os.path.join(cluster.folder, "n0", "store", "dledger-n0", "metadata.0")))
        cluster.run("stop")
        conf, root = os.path.join(cluster.folder, "n0", "broker.conf"), os.path.join(cluster.folder, "n0", "store")
        log = os.path.join(root, "dledger-n0")
        snapshots = [os.path.join(log, name) for name in ("metadata.0", "metadata.1") if os.path.exists(os.path.join(log, name))]
        check(snapshots, "a clean stop left no metadata snapshot")

        def new_format(data):
            data[:] = data.replace(b" 1\n", b" 7\n")
        files = [(os.path.join(log, "vote"), vote), (os.path.join(log, "checkpoint"), checkpoint), (os.path.join(root, "format"), new_format)]
        files += [(path, snapshot) for path in snapshots[:1]]
        for path, change in files:
            shutil.copy(path, path + ".kept")
            patched(path, change)
            with open(path, "rb") as file:
                before = file.read()
            status, text = ended(conf)
            check(status == 1 and path in text and "version 7" in text and "up to 1" in text, f"{path}: status {status}, {text}")
            with open(path, "rb") as file:
                check(file.read() == before, f"{path} was changed")
            os.replace(path + ".kept", path)
        # An entry: without the checkpoint that says that it was verified before.
        data = os.path.join(log, "data", "0" * 20)
        for path in (data, os.path.join(log, "checkpoint")):
            shutil.copy(path, path + ".kept")
        os.unlink(os.path.join(log, "checkpoint"))
        patched(data, entry)
        status, text = ended(conf)
        check(status == 1 and data in text and "offset 0" in text and "version 7" in text, f"an entry: status {status}, {text}")
        for path in (data, os.path.join(log, "checkpoint")):
            os.replace(path + ".kept", path)
        cluster.start()
        with remoting.Connection(cluster.broker(cluster.leader())) as connection:
            check(connection.request(remoting.MAX_OFFSET, {"topic": "T", "queueId": 0}).ext["offset"] == "20", "messages are missing")
            check(connection.request(remoting.PULL, remoting.pull_fields("T", 0, 19)).code == 0, "the last message")
