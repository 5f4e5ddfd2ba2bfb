"""A full disk, and damaged files."""
import glob
import os
import subprocess
import tempfile
import time

import remoting
from cluster import Cluster, Load, check, verify, wait_for
from e2e import Skipped, case

MIB = 1 << 20


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
    with SmallDisk(300) as disk, Cluster(nodes=1, settings=["mappedFileSizeCommitLog=67108864"], node_folders={0: disk.folder}) as cluster:
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
        cluster = Cluster(settings=["mappedFileSizeCommitLog=67108864"], node_folders={0: disk.folder})
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
            before = len(load.acknowledged)
            wait_for("sends to go on", 15, lambda: len(load.acknowledged) > before + 100)
            os.unlink(ballast)
            load.stop()
            return f"{verify(cluster, load)} acknowledged"


@case
def damage_before_the_committed_end_refuses_to_start():
    with Cluster(nodes=1) as cluster:
        cluster.create_topic("T", 1)
        for i in range(50):
            check(cluster.send("T", 0, b"%d " % i * 100).code == 0, "send")
        cluster.stop()
        segments = sorted(glob.glob(os.path.join(cluster.folder, "n0", "store", "dledger-n0", "data", "*")))
        check(segments, "no segment")
        with open(segments[0], "r+b") as file:
            content = file.read()
            place = content.index(b"25 25 25")
            file.seek(place)
            file.write(b"XX")
        # Away with what would let it skip the look at this part.
        done = cluster.run("start", "--nodes", 1, "--durability", cluster.durability, "--port", cluster.base,
                           *[option for setting in cluster.settings for option in ("--set", setting)], must=False)
        if done.returncode == 0:
            # A clean stop vouches for what is before the checkpoint; the read must find it then.
            answer = remoting.ask(cluster.broker(0), remoting.PULL, remoting.pull_fields("T", 0, 25))
            bodies = [record for record in [answer.body] if b"XX 25" in record]
            check(answer.code != 0 or not bodies, f"a damaged body was given out: {answer}")
            return "found when it was read"
        said = done.stderr + cluster.output(0)
        check(os.path.basename(segments[0]) in said, f"the file is not named: {said[-1500:]}")
        return "found at start"
