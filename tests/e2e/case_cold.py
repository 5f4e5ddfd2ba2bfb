"""Pulls of what has left memory: the pool reads the queue's pages first, and the records that an SQL92 filter has to see."""
import glob
import json
import os
import signal

import remoting
from cluster import Cluster, check, wait_for
from e2e import Skipped, case

COUNT = 3000
TERM_SECONDS = 20


def evict(folder):
    for path in glob.glob(os.path.join(folder, "**", "[0-9]*"), recursive=True):
        if os.path.isfile(path):
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def on_tmpfs(folder):
    """The kind of file system of the longest mount point above the folder."""
    with open("/proc/mounts", encoding="utf-8") as file:
        mounts = [line.split()[1:3] for line in file]
    folder = os.path.realpath(folder)
    above = [(len(point), kind) for point, kind in mounts if (folder + "/").startswith(point.rstrip("/") + "/")]
    return max(above)[1] in ("tmpfs", "ramfs")


def read_all(connection, expression, kind):
    """Numbers of all messages that pass."""
    offset, found = 0, []
    while offset < COUNT:
        answer = connection.request(remoting.PULL, {**remoting.pull_fields("T", 0, offset), "subscription": expression, "expressionType": kind})
        check(answer.code in (0, 20), lambda at=offset, outcome=answer: f"pull of {expression} at {at}: {outcome}")
        found += [int(record.body) for record in remoting.records(answer.body)]
        following = int(answer.ext["nextBeginOffset"])
        check(following > offset, lambda at=offset, outcome=answer: f"pull of {expression} at {at} does not move: {outcome}")
        offset = following
    return found


@case
def cold_queues():
    with Cluster(nodes=1, settings=["enablePropertyFilter=true"]) as cluster:
        cluster.create_topic("T", 1)
        with remoting.Connection(cluster.broker(cluster.leader()), 10.0) as connection:
            opaques = [connection.send(remoting.SEND_V2, remoting.send_fields("T", 0, f"TAGS\x01{'AB'[n % 2]}\x02n\x01{n % 5}"), b"%d" % n)
                       for n in range(COUNT)]
            for opaque in opaques:
                answer = connection.answer(opaque)
                check(answer.code == 0, lambda outcome=answer: f"send: {outcome}")
        os.kill(cluster.pid(0), signal.SIGTERM)
        wait_for("a clean stop", TERM_SECONDS, lambda: not cluster.alive(0))
        cluster.restart(0)
        with remoting.Connection(cluster.broker(cluster.leader()), 10.0) as connection:
            # A start reads a page or two of a queue, and the kernel reads ahead of that; it maps none, so that all of them can go now.
            evict(os.path.join(cluster.folder, "n0", "store"))
            check(read_all(connection, "B", "TAG") == list(range(1, COUNT, 2)), "pulls by tag")
            check(read_all(connection, "n = 3 AND TAGS = 'B'", "SQL92") == list(range(3, COUNT, 10)), "pulls by SQL92")
            check(read_all(connection, "*", "TAG") == list(range(COUNT)), "pulls of everything")
            table = json.loads(connection.request(remoting.RUNTIME_INFO).body)["table"]
        if on_tmpfs(cluster.folder):
            raise Skipped("the folder for temporary files is a tmpfs: its pages are nowhere else")
        check(table["coldQueueReads"] != "0", "no page of the queue was read by the pool")
        return f"{table['coldQueueReads']} times pages of the queue were read by the pool"
