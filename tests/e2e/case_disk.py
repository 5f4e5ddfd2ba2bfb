"""A full disk, and damaged files."""
import fcntl
import glob
import os
import subprocess
import tempfile
import time

import remoting
from cluster import BIN, Cluster, Failed, Load, check, verify, wait_for
from e2e import Skipped, case

MIB = 1 << 20
# An index file of RocketMQ's size alone, 400 MiB, would fill the small disk.
SMALL_FILES = ["mappedFileSizeCommitLog=67108864", "maxHashSlotNum=5000", "maxIndexNum=20000", "mappedFileSizeForEntryIndex=1048576",
               "diskSpaceWarningLevelRatio=100"]


class SmallDisk:
    """A file system of its own: an image on a loop device, or tmpfs where there are no loop devices."""

    def __init__(self, size_mib):
        self.folder = tempfile.mkdtemp(prefix="ledgermq-disk-")
        self.mounted = False
        self.size = size_mib
        self.image = self.folder + ".img"

    def __enter__(self):
        if os.geteuid() != 0:
            raise Skipped("mounting needs root")
        with open(self.image, "wb") as file:
            file.truncate(self.size * MIB)
        made = subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", self.image], stderr=subprocess.PIPE, text=True, check=False)
        done = made
        if made.returncode == 0:
            done = subprocess.run(["mount", "-o", "loop", self.image, self.folder], stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            first = done.stderr.strip()
            done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self.size}m", "tmpfs", self.folder], stderr=subprocess.PIPE, text=True, check=False)
            if done.returncode != 0:
                raise Skipped(f"nothing can be mounted here: {first}; {done.stderr.strip()}")
        self.mounted = True
        return self

    def __exit__(self, *_):
        if self.mounted:
            for _ in range(50):
                if subprocess.run(["umount", self.folder], stderr=subprocess.DEVNULL, check=False).returncode == 0:
                    break
                time.sleep(0.1)
        if os.path.exists(self.image):
            os.unlink(self.image)
        os.rmdir(self.folder)


def send_until_refused(cluster, seconds=90):
    deadline = time.monotonic() + seconds
    count = 0
    with remoting.Connection(cluster.broker(cluster.leader()), 10.0) as connection:
        while time.monotonic() < deadline:
            opaques = [connection.send(remoting.SEND_V2, remoting.send_fields("T", 0), b"x" * 60000) for _ in range(16)]
            for opaque in opaques:
                answer = connection.answer(opaque)
                if answer.code != 0:
                    return answer, count
                count += 1
    return None, count


@case
def full_disk_refuses_and_recovers():
    with SmallDisk(300) as disk, Cluster(nodes=1, settings=SMALL_FILES, stores={0: disk.folder}) as cluster:
        cluster.create_topic("T", 1)
        ballast = os.path.join(disk.folder, "ballast")
        space = os.statvfs(disk.folder)
        left = space.f_bavail * space.f_frsize
        with open(ballast, "wb") as file:  # leaves some 40 MiB
            os.posix_fallocate(file.fileno(), 0, max(MIB, left - 40 * MIB))
        answer, count = send_until_refused(cluster)
        check(answer is not None, f"{count} sends of 60 KB went onto a full disk")
        check(answer.code == 14 and any(word in (answer.remark or "") for word in ("disk", "space")), f"refusal: {answer}")
        check(cluster.alive(0), "the node ended")
        with remoting.Connection(cluster.broker(0), 10.0) as connection:
            check(len(remoting.read_queue(connection, "T", 0)) == count, "consumers do not go on")
        os.unlink(ballast)
        wait_for("sends to go on when room returns", 30, lambda: cluster.send("T", 0, b"again").code == 0)
        return f"{count} before the disk was full"


@case
def full_leader_hands_over():
    with SmallDisk(300) as disk:
        cluster = Cluster(settings=SMALL_FILES, stores={0: disk.folder})
        with cluster:
            cluster.create_topic("T", 4)
            # Make node 0 the leader: the others step aside until it is.
            for _ in range(20):
                leader = cluster.leader()
                if leader == 0:
                    break
                cluster.restart(leader)
                cluster.leader()
            else:
                raise Skipped("node 0 did not become the leader in 20 restarts of the others")
            ballast = os.path.join(disk.folder, "ballast")
            space = os.statvfs(disk.folder)
            with open(ballast, "wb") as file:
                os.posix_fallocate(file.fileno(), 0, max(MIB, space.f_bavail * space.f_frsize - 20 * MIB))
            load = Load(cluster, "T", 4, size=20000)
            load.start()
            wait_for("another leader", 90, lambda: cluster.leader_now() not in (0, None))
            load.wait_for_more(100, seconds=15)
            os.unlink(ballast)
            load.stop()
            return f"{verify(cluster, load)} acknowledged"


def damage(cluster, text):
    """Overwrites the first place of `text` in node 0's segments; returns the segment."""
    for path in sorted(glob.glob(os.path.join(cluster.folder, "n0", "store", "dledger-n0", "data", "*"))):
        with open(path, "r+b") as file:
            place = file.read().find(text)
            if place >= 0:
                file.seek(place)
                file.write(b"XX")
                return path
    raise Failed(f"{text!r} is in no segment")


def refuses_damage(cluster, path):
    command = ["timeout", "10", os.path.join(BIN, "mqbroker"), "-c", os.path.join(cluster.folder, "n0", "broker.conf")]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    check(done.returncode not in (0, 124, 143), "it starts on damaged data")
    check(done.returncode == 4, f"it ended with status {done.returncode}: {done.stdout[-1500:]}")
    check(os.path.basename(path) in done.stdout, f"the file is not named: {done.stdout[-1500:]}")


@case
def damage_after_kill_refuses_to_start():
    with Cluster(nodes=1) as cluster:
        cluster.create_topic("T", 1)
        for i in range(50):
            check(cluster.send("T", 0, b"%d " % i * 100).code == 0, "send")
        cluster.kill(0)
        refuses_damage(cluster, damage(cluster, b"25 25 25"))


@case
def damage_after_clean_stop_refuses_to_start():
    with Cluster(nodes=1) as cluster:
        cluster.create_topic("T", 1)
        for i in range(50):
            check(cluster.send("T", 0, b"%d " % i * 100).code == 0, "send")
        cluster.stop()
        refuses_damage(cluster, damage(cluster, b"25 25 25"))


@case
def torn_tail_is_cut():
    """The last entry of a node that was killed is half there: it was never acknowledged by a majority, or a peer has it."""
    with Cluster() as cluster:
        cluster.create_topic("T", 1)
        load = Load(cluster, "T", 1)
        load.start()
        wait_for("acknowledgements", 20, lambda: len(load.acknowledged) > 500)
        node = (cluster.leader() + 1) % 3
        cluster.kill(node)
        load.stop()
        for data in sorted(glob.glob(os.path.join(cluster.folder, f"n{node}", "store", f"dledger-n{node}", "data", "*")), reverse=True):
            with open(data, "r+b") as file:
                end = len(file.read().rstrip(b"\0"))
                if end != 0:  # the file after it is made ahead and empty
                    file.seek(end - 20)
                    file.write(b"\0" * 20)
                    break
        cluster.restart(node)
        # The restarted node must hold everything in the end: let it be one of two.
        other = (node + 1) % 3
        wait_for("the node to catch up", 20, lambda: remoting_max(cluster, node) == remoting_max(cluster, cluster.leader()))
        cluster.kill(other)
        return f"{verify(cluster, load)} acknowledged"


def remoting_max(cluster, node):
    try:
        return remoting.ask(cluster.broker(node), remoting.MAX_OFFSET, {"topic": "T", "queueId": 0}).ext.get("offset")
    except OSError:
        return None


@case
def lock_of_a_killed_process():
    """The kernel takes its time to end a process that has much mapped; its successor waits for the lock, but not for one that lives."""
    with Cluster(nodes=1) as cluster:
        cluster.leader()
        cluster.kill(0)
        with open(os.path.join(cluster.folder, "n0", "store", "lock"), "r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            cluster.restart(0)
            time.sleep(0.5)
            check(cluster.alive(0), "a start did not wait for the lock")
        cluster.leader()
        started = time.monotonic()
        done = subprocess.run([os.path.join(BIN, "mqbroker"), "-c", os.path.join(cluster.folder, "n0", "broker.conf")], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
        check(done.returncode != 0 and "MQ already started" in done.stdout, lambda: f"a second broker in one directory: {done.returncode} {done.stdout}")
        return f"a second broker was refused after {time.monotonic() - started:.1f} s"
