"""mqadmin backup of a group under load, and a fresh group that starts with the copy."""
import contextlib
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time

import mqload
import odd_machine
import remoting
from case_disk import SmallDisk
from case_membership import Grown
from case_new_group import force
from case_retention import MIN_OFFSET, SEGMENT, UPDATE_OFFSET, check_queue, configure, fill, first_file, info, offset_of, wait_trimmed
from case_schedule import send as send_delayed
from case_transaction import COMMIT, END, Half, end_fields, half_fields
from cluster import BIN, Cluster, Load, check, sequence_of, wait_for
from e2e import Skipped, case, rounds
from members import Members

HERE = os.path.dirname(os.path.abspath(__file__))
TRIMMED = [f"mappedFileSizeCommitLog={SEGMENT}", f"logBytesMax={4 * SEGMENT}", "cleanResourceInterval=100", "mappedFileSizeConsumeQueue=2000"]


def mqadmin(cluster, *arguments):
    return subprocess.run([os.path.join(BIN, "mqadmin"), *arguments, "-n", cluster.namesrv_addr], capture_output=True, text=True, timeout=60 * remoting.PATIENCE,
                          check=False)


def back_up(cluster, name="copy"):
    """A whole backup; returns its folder."""
    folder = os.path.join(cluster.folder, name)
    done = mqadmin(cluster, "backup", "-f", folder)
    check(done.returncode == 0 and "all checked" in done.stdout, f"{done.stdout}{done.stderr}")
    return folder


def check_backup(folder):
    return subprocess.run([os.path.join(BIN, "mqadmin"), "checkBackup", "-f", folder], capture_output=True, text=True, timeout=60 * remoting.PATIENCE, check=False)


def put(folder, fresh, node):
    """The copy, where a member restores it from."""
    store = os.path.join(fresh.folder, f"n{node}", "store")
    os.makedirs(store, exist_ok=True)
    return shutil.copytree(folder, os.path.join(store, "restore"))


def restored(folder, durability, nodes=3, kind=Cluster, settings=(), copies=None):
    """A fresh group, not started yet, each of whose members has the copy, or the first `copies` of them; the others are empty."""
    fresh = kind(nodes=nodes, durability=durability, settings=settings)
    for node in range(nodes if copies is None else copies):
        put(folder, fresh, node)
    return fresh


def commit_offset(cluster, offset, topic="T"):
    answer = remoting.ask(cluster.broker(cluster.leader()), UPDATE_OFFSET, {"consumerGroup": "g", "topic": topic, "queueId": 0, "commitOffset": offset})
    check(answer.code == 0, f"commit: {answer}")


def group_offset(cluster, topic="T"):
    answer = remoting.ask(cluster.broker(cluster.leader()), 14, {"consumerGroup": "g", "topic": topic, "queueId": 0})
    check(answer.code == 0, f"the group's position: {answer}")
    return int(answer.ext["offset"])


@case
def backup_of_a_running_group_and_restore():
    """Everything that was acknowledged before the backup began is in the restored group at its offset, the group's own position too, and it takes messages."""
    notes = []
    for durability in rounds("B", "AB"):
        with Cluster(durability=durability) as cluster:
            cluster.create_topic("T", 4)
            load = Load(cluster, "T", 4, window=64, size=3000)
            load.start()
            # More than one file of the log, which has 16 MiB here.
            wait_for("messages", 60, lambda load=load: len(load.acknowledged) > 8000)
            commit_offset(cluster, 77)
            before = dict(load.acknowledged)
            folder = back_up(cluster)
            check(len(load.acknowledged) > len(before), "the load stood still meanwhile")
            load.stop()
            check(len(os.listdir(os.path.join(folder, "data"))) >= 2, "one file only")
            again = mqadmin(cluster, "backup", "-f", folder)
            check(again.returncode == 1 and "new folder" in again.stderr, f"over an old copy: {again.stderr}")
            check(check_backup(folder).returncode == 0, "the old copy was touched")
            fresh = restored(folder, durability)
        with fresh:
            leader = fresh.leader(30)
            seen = {}
            with remoting.Connection(fresh.broker(leader), 10.0) as connection:
                for queue in range(4):
                    for place, record in enumerate(remoting.read_queue(connection, "T", queue)):
                        check(record.offset == place, f"the record at place {place} of queue {queue} says {record.offset}")
                        seen[sequence_of(record.body, 3000)] = queue, place
            check(group_offset(fresh) == 77, "the group's position")
            for sequence, where in before.items():
                check(seen.get(sequence) == where, f"message {sequence} was acknowledged at {where} and is at {seen.get(sequence)}")
            check(set(seen) <= set(load.acknowledged) | load.unknown, "messages that nobody sent")
            ends = max(place for queue, place in seen.values() if queue == 0)
            check(int(fresh.send("T", 0, b"new").ext["queueOffset"]) == ends + 1, "offsets do not go on")
            new = fresh.leader(but=None)
            fresh.kill(new)
            check(fresh.send("T", 0, b"after", node=fresh.leader(but=new)).code == 0, "a restored follower cannot lead")
            notes.append(f"class {durability}: {len(before)} acknowledged before, {len(seen)} in the copy")
    return "; ".join(notes)


# ---- a log whose beginning is deleted ----

QUEUES = [("T", 0), ("T", 1), ("E", 0), ("S", 0)]
HOUR_MS = 3600 * 1000


def edges(cluster, node):
    return {where: tuple(offset_of(cluster, node, code, where[1], where[0]) for code in (MIN_OFFSET, remoting.MAX_OFFSET)) for where in QUEUES}


def same_edges(cluster, wanted=None):
    """On every node; as the leader's when nothing else is said."""
    for node in range(cluster.nodes):
        wait_for(f"the queues of n{node}", 30, lambda node=node: edges(cluster, node) == (wanted or edges(cluster, cluster.leader())))


def nothing_more_goes(cluster):
    leader = cluster.leader()
    before = cluster.runtime("retentionLooks", leader)
    wait_for("looks", 30, lambda: cluster.runtime("retentionLooks", leader) > before + 5)


class Trimmed:
    """What a group holds whose first messages are gone: T/0 in part, E/0 all, of S/0 those that expired by themselves; a position of a group in two; a delayed
    message and a half one for T/1."""

    def __init__(self, cluster, machine, files):
        """files: those of what is gone are too."""
        cluster.create_topic("T", 2)
        cluster.create_topic("E", 1)
        self.admin(cluster, "updateTopic", "-c", "DefaultCluster", "-t", "S", "-r", "1", "-w", "1", "-a", "+reserve.time=1")
        self.admin(cluster, "updateSubGroup", "-c", "DefaultCluster", "-g", "g", "-r", "7")
        for i in range(5):
            check(cluster.send("E", 0, b"gone %d" % i).code == 0, "send")
        check(cluster.send("T", 1, b"gone too").code == 0, "send")
        commit_offset(cluster, 3, "E")
        self.end = fill(cluster, 7)
        commit_offset(cluster, self.end - 10)
        with remoting.Connection(cluster.broker(cluster.leader()), 10.0) as connection:
            self.half = Half(connection.request(remoting.SEND_V2, half_fields(1, "half"), b"half"))
            send_delayed(connection, b"late", 2, queue=1)
        for i in range(3):
            check(cluster.send("S", 0, b"short %d" % i).code == 0, "send")
        machine.set(odd_machine.CLOCK_MS, 2 * HOUR_MS)
        check(cluster.send("S", 0, b"shorter").code == 0, "send")
        wait_for("S to expire", 30, lambda: offset_of(cluster, cluster.leader(), MIN_OFFSET, topic="S") == 3)
        wait_trimmed(cluster, 2 * SEGMENT, files=False)
        nothing_more_goes(cluster)
        wait_trimmed(cluster, 2 * SEGMENT, files)
        self.edges = edges(cluster, cluster.leader())
        check(self.edges["E", 0] == (5, 5) and self.edges["T", 1] == (1, 1) and self.edges["S", 0] == (3, 4) and 0 < self.edges["T", 0][0] < self.end,
              f"{self.edges}")

    @staticmethod
    def admin(cluster, *arguments):
        done = mqadmin(cluster, *arguments)
        check(done.returncode == 0, lambda: f"{done.stdout}{done.stderr}")

    def check(self, fresh, machine):
        """All of it is in a restored group, which goes on from there."""
        same_edges(fresh, self.edges)
        leader = fresh.leader()
        low, _ = check_queue(fresh, leader, self.end)
        check(low == self.edges["T", 0][0], f"the first message is {low}")
        check(group_offset(fresh) == self.end - 10 and group_offset(fresh, "E") == 3, "the group's positions")
        groups = mqadmin(fresh, "getConsumerConfig", "-g", "g")
        check("retryMaxTimes" in groups.stdout and "7" in groups.stdout, f"{groups.stdout}{groups.stderr}")
        check(int(fresh.send("E", 0, b"new").ext["queueOffset"]) == 5, "an offset of E was used again")
        check(int(fresh.send("T", 0, b"%08d" % self.end).ext["queueOffset"]) == self.end, "an offset of T was used again")
        with remoting.Connection(fresh.broker(leader), 10.0) as connection:
            def bodies():
                return sorted(record.body for record in remoting.read_queue(connection, "T", 1, 1))
            check(connection.request(END, end_fields(self.half, COMMIT)).code == 0, "the half message cannot be decided")
            wait_for("the decided message", 30, lambda: bodies() == [b"half"])
            machine.set(odd_machine.CLOCK_MS, 26 * HOUR_MS)
            wait_for("the delayed message", 30, lambda: bodies() == [b"half", b"late"])
        wait_for("the rest of S to expire", 30, lambda: offset_of(fresh, leader, MIN_OFFSET, topic="S") == 4)
        with Members(fresh.namesrv_addr) as members:
            member = members.start("g", "T")

            def places():
                return sorted(message.offset for message in member.messages if message.queue == 0)
            wait_for("the group to go on", 30, lambda: len(places()) >= 11)
            check(places() == list(range(self.end - 10, self.end + 1)), lambda: f"the group, which stood at {self.end - 10}, got {places()}")


def without_limit(settings):
    """For a restored group: what it holds is looked at before more of it goes."""
    return [setting for setting in settings if not setting.startswith("logBytesMax")]


@contextlib.contextmanager
def trimmed_group(nodes, durability, files):
    """The machine, what was in the group, and its backup; the group has ended, its folder is there yet."""
    settings = [*TRIMMED, "messageDelayLevel=1s 1d", "transactionCheckInterval=3600000"]
    with odd_machine.OddMachine() as machine, tempfile.TemporaryDirectory(prefix="ledgermq-backup-") as kept:
        with Cluster(nodes=nodes, durability=durability, settings=settings) as cluster:
            was = Trimmed(cluster, machine, files)
            folder = shutil.move(back_up(cluster), os.path.join(kept, "copy"))
        files = sorted(os.listdir(os.path.join(folder, "data")))
        check(int(files[0]) >= 2 * SEGMENT, f"the copy begins with {files[0]}")
        done = check_backup(folder)
        check(done.returncode == 0 and "is whole" in done.stdout, f"{done.stdout}{done.stderr}")
        yield machine, was, folder, without_limit(settings)


def grow_in_bulk(cluster):
    """A new member, which is level in the end; it is returned."""
    new = cluster.add_node()
    cluster.add(new)
    check("the log is fetched from member" in cluster.output(new), "the new member got the log in another way")
    wait_for("the new member to be level", 30, cluster.all_applied)
    same_edges(cluster)
    return new


@case
def backup_of_a_trimmed_log_into_three_nodes():
    """Queues, positions, groups, delayed and half messages of a group of three whose log begins behind 0; a new member of the restored group catches up in
    bulk, and retention goes on. Then the same copy makes a group of one, by force, which grows."""
    with trimmed_group(3, "B", files=True) as (machine, was, folder, settings):
        with restored(folder, "B", kind=Grown, settings=settings) as fresh:
            was.check(fresh, machine)
            new = grow_in_bulk(fresh)
            begun = info(fresh, new)["raftTrimPosition"]
            end = fill(fresh, 2, start=was.end + 1)
            configure(fresh, f"logBytesMax={4 * SEGMENT}")
            wait_trimmed(fresh, int(begun) + SEGMENT, files=False)
            check_queue(fresh, new, end)
        machine.set(odd_machine.CLOCK_MS, 2 * HOUR_MS)
        one = Grown(durability="B", settings=settings)
        one.start()
        one.stop()
        shutil.rmtree(os.path.join(one.folder, "n0", "store"))
        put(folder, one, 0)
        done = force(one, 0)
        check(done.returncode == 0 and "n0 is its only member" in done.stdout, f"{done.stdout}")
        with one:
            was.check(one, machine)
            grow_in_bulk(one)


@case
def backup_of_a_trimmed_log_of_one_node():
    """Class A, in which the newest entries need not be on the disk of the node that is copied."""
    with trimmed_group(1, "A", files=False) as (machine, was, folder, settings):
        with restored(folder, "A", nodes=1, settings=settings) as fresh:
            was.check(fresh, machine)
            now = edges(fresh, 0)
            fresh.kill(0)
            fresh.restart(0)
            fresh.leader()
            same_edges(fresh, now)


class SlowBackup:
    """mqadmin backup on a disk of its own that is slow, or stands, until the test says otherwise."""

    def __init__(self, cluster, folder):
        self.cluster, self.folder = cluster, folder
        self.machine = os.path.join(cluster.folder, "machine")
        odd_machine.write_all_off(self.machine)
        self.environment = dict(os.environ, LD_PRELOAD=odd_machine.preload(odd_machine.build(cluster.folder)), ODD_MACHINE=self.machine)

    def begin(self, sync_ms, until):
        """until: a file of the copy that is there then."""
        odd_machine.put(self.machine, odd_machine.SYNC_MS, sync_ms)
        self.process = subprocess.Popen([os.path.join(BIN, "mqadmin"), "backup", "-f", self.folder, "-n", self.cluster.namesrv_addr], text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=self.environment)
        wait_for(until, 30, lambda: self.process.poll() is not None or os.path.exists(os.path.join(self.folder, until)))
        check(self.process.poll() is None, lambda: f"it ended: {self.process.communicate()[0]}")

    def end(self):
        odd_machine.put(self.machine, odd_machine.SYNC_MS, 0)
        said = self.process.communicate(timeout=60 * remoting.PATIENCE)[0]
        return self.process.returncode, said

    def failed(self, word):
        """It says so, and leaves nothing."""
        code, said = self.end()
        check(code == 1 and word in said, f"exit status {code}: {said}")
        check(not os.path.exists(self.folder), f"left behind: {said}")


@case
def backup_while_retention_deletes():
    """What is deleted while it is copied is in the copy all the same, and leaves the disk then. When the node that is copied forgot this by a restart, the
    backup fails, says why, leaves nothing, and the same command does it the next time."""
    with Cluster(nodes=1, durability="A", settings=[*TRIMMED, f"logBytesMax={2 * SEGMENT}"]) as cluster:
        cluster.create_topic("T", 1)
        end = fill(cluster, 3)
        wait_trimmed(cluster, SEGMENT, files=False)
        nothing_more_goes(cluster)
        low, first = offset_of(cluster, 0, MIN_OFFSET), int(info(cluster, 0)["raftTrimPosition"])
        folder = os.path.join(cluster.folder, "copy")
        backup = SlowBackup(cluster, folder)
        backup.begin(12000, "checkpoint")  # two syncs before the log is read, each well within the time after which a backup is given up
        fill(cluster, 3, start=end)
        wait_for("more to be deleted", 30, lambda: int(info(cluster, 0)["raftTrimPosition"]) >= first + 2 * SEGMENT)
        # Files go one a second, when two snapshots and the queues have been saved since, which is in the third second.
        wait_for("saves", 30, lambda begun=time.monotonic(): time.monotonic() > begun + 5)
        gone = first_file(cluster, 0) > first
        check(not gone or os.path.exists(os.path.join(folder, f"data/{first:020}")), "a file went that was not read yet")
        check(offset_of(cluster, 0, MIN_OFFSET) > low, "minimums stay")
        code, said = backup.end()
        check(code == 0, said)
        wait_trimmed(cluster, first + 2 * SEGMENT)
        with restored(folder, "A", nodes=1, settings=[f"mappedFileSizeCommitLog={SEGMENT}"]) as fresh:
            check(offset_of(fresh, 0, MIN_OFFSET) == low and offset_of(fresh, 0, remoting.MAX_OFFSET) == end, "other messages than when it began")
            check_queue(fresh, 0, end)

        end = offset_of(cluster, 0, remoting.MAX_OFFSET)
        shutil.rmtree(folder)
        first = first_file(cluster, 0)
        backup.begin(1500, f"data/{first:020}")
        backup.process.send_signal(signal.SIGSTOP)
        cluster.kill(0)
        cluster.restart(0)
        cluster.leader()
        fill(cluster, 4, start=end)
        wait_trimmed(cluster, first + 3 * SEGMENT)
        backup.process.send_signal(signal.SIGCONT)
        backup.failed("was removed by retention before it was read: begin the backup again")
        check(check_backup(back_up(cluster)).returncode == 0, "the next one")


@case
def backup_to_a_full_disk():
    """Before it begins and in its middle: exit status 1, the reason, and nothing is left that could be taken for a backup."""
    with SmallDisk(24) as disk, Cluster(nodes=1, durability="A", settings=[f"mappedFileSizeCommitLog={SEGMENT}"]) as cluster:
        cluster.create_topic("T", 1)
        fill(cluster, 4)
        folder, ballast = os.path.join(disk.folder, "copy"), os.path.join(disk.folder, "ballast")

        def leave(mebibytes):
            space = os.statvfs(disk.folder)
            with open(ballast, "wb") as file:
                os.posix_fallocate(file.fileno(), 0, space.f_bavail * space.f_frsize - int(mebibytes * SEGMENT))
        leave(3)
        done = mqadmin(cluster, "backup", "-f", folder)
        check(done.returncode == 1 and "are needed and" in done.stderr and not os.path.exists(folder), f"{done.returncode} {done.stderr}")
        os.unlink(ballast)
        backup = SlowBackup(cluster, folder)
        backup.begin(10 ** 6, "checkpoint")
        leave(2.5)
        backup.failed("No space left on device")
        os.unlink(ballast)
        done = mqadmin(cluster, "backup", "-f", folder)
        check(done.returncode == 0 and check_backup(folder).returncode == 0, f"{done.stdout}{done.stderr}")
        # Killed in its middle it leaves what is no backup, and says so the next time.
        shutil.rmtree(folder)
        backup.begin(10 ** 6, "checkpoint")
        backup.process.kill()
        backup.end()
        done = mqadmin(cluster, "backup", "-f", folder)
        check(done.returncode == 1 and "holds no whole backup" in done.stderr, f"{done.stderr}")
        check(check_backup(folder).returncode == 1, "what is left passes for a backup")


# ---- what is not a backup ----

def try_start(cluster):
    """Of node 0, which refuses: what it says."""
    done = subprocess.run([os.path.join(BIN, "mqbroker"), "-c", os.path.join(cluster.folder, "n0", "broker.conf")], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=30 * remoting.PATIENCE, check=False)
    check(done.returncode != 0, f"it started: {done.stdout}")
    return done.stdout


def damage(path, how):
    size = os.path.getsize(path)
    if how == "missing":
        os.unlink(path)
    elif how == "truncated":
        os.truncate(path, size - 1)
    elif how == "longer":
        with open(path, "ab") as file:
            file.write(b"\0")
    else:
        with open(path, "r+b") as file:
            file.seek(size // 3)
            byte = file.read(1)
            file.seek(size // 3)
            file.write(bytes([byte[0] ^ 4]))


@case
def a_restored_backup_is_whole_or_refused():
    """A bit, a byte, a file: the start names the file that is not as it was, changes nothing, and takes the whole copy afterwards; so does mqadmin checkBackup."""
    with Cluster(nodes=1, durability="A", settings=TRIMMED) as cluster:
        cluster.create_topic("T", 1)
        end = fill(cluster, 6)
        wait_trimmed(cluster, 2 * SEGMENT)
        folder = back_up(cluster)
        fresh = Cluster(nodes=1, durability="A", settings=TRIMMED)
        fresh.start()
        fresh.stop()
        store = os.path.join(fresh.folder, "n0", "store")
        shutil.rmtree(store)
        segments = sorted(os.listdir(os.path.join(folder, "data")))
        names = ["backup", "checkpoint", "metadata.0", f"data/{segments[0]}", f"data/{segments[-1]}"]
        tried = 0
        for name in names:
            for how in ("bit", "truncated", "missing", "longer"):
                copy = put(folder, fresh, 0)
                damage(os.path.join(copy, name), how)
                before = sorted(os.listdir(copy))
                said = try_start(fresh)
                check(f"restore/{name}: " in said and "Nothing was changed" in said, f"{name}, {how}: {said}")
                check(sorted(os.listdir(copy)) == before and not os.listdir(os.path.join(store, "dledger-n0")), f"{name}, {how}: something was changed")
                found = check_backup(copy)
                check(found.returncode == 1 and name in found.stderr, f"checkBackup, {name}, {how}: {found.stdout}{found.stderr}")
                shutil.rmtree(store)
                tried += 1
        copy = put(folder, fresh, 0)
        shutil.copy(os.path.join(copy, "data", segments[0]), os.path.join(copy, "data", f"{int(segments[-1]) + SEGMENT:020}"))
        said = try_start(fresh)
        check(f"{int(segments[-1]) + SEGMENT:020}: it is no part of the backup" in said, said)
        os.unlink(os.path.join(copy, "data", f"{int(segments[-1]) + SEGMENT:020}"))
        # In the place of a log instead of beside it.
        os.rmdir(os.path.join(store, "dledger-n0"))
        os.rename(copy, os.path.join(store, "dledger-n0"))
        said = try_start(fresh)
        check("this is a backup as it was written: move" in said, said)
        os.rename(os.path.join(store, "dledger-n0"), copy)
        # As a kill right after the folder was moved leaves it.
        os.makedirs(os.path.join(store, "dledger-n0"))
        os.rename(copy, os.path.join(store, "dledger-n0", "install"))
        with fresh:
            check_queue(fresh, 0, end)
            fresh.stop()
            put(folder, fresh, 0)
            said = try_start(fresh)
            check("a backup goes to a member that has nothing" in said, said)
            shutil.rmtree(copy)
            fresh.start()
            check_queue(fresh, 0, end)
        return f"{tried} kinds of damage"


@case
def a_restored_backup_of_version_1():
    """As mqadmin wrote it before backups had a manifest: it goes to where the log is to be."""
    with tempfile.TemporaryDirectory(prefix="ledgermq-backup-") as folder:
        with tarfile.open(os.path.join(HERE, "backup_version_1.tar.gz")) as archive:
            archive.extractall(folder)
        fresh = Cluster(nodes=1, durability="B", settings=[f"mappedFileSizeCommitLog={SEGMENT}"])
        store = os.path.join(fresh.folder, "n0", "store")
        os.makedirs(store)
        shutil.copytree(folder, os.path.join(store, "dledger-n0"))
    with fresh:
        with remoting.Connection(fresh.broker(fresh.leader()), 10.0) as connection:
            for queue in range(2):
                bodies = [record.body for record in remoting.read_queue(connection, "T", queue)]
                check(bodies == [b"message %d" % i for i in range(queue, 40, 2)], f"queue {queue}: {bodies}")
        check(group_offset(fresh) == 7, "the group's position")
        check(int(fresh.send("T", 0, b"new").ext["queueOffset"]) == 20, "offsets do not go on")


@case
def a_restored_backup_of_a_gibibyte():
    """How long it takes (32 MiB but for --full)."""
    mebibytes = rounds(32, 32, 1024)
    settings = [f"mappedFileSizeCommitLog={rounds(8, 8, 128) * SEGMENT}"]
    with Cluster(nodes=1, durability="A", settings=settings) as cluster:
        cluster.create_topic("T", 1)
        end = fill(cluster, mebibytes)
        began = time.monotonic()
        folder = back_up(cluster)
        copied = time.monotonic() - began
        fresh = restored(folder, "A", nodes=1, settings=settings)
        began = time.monotonic()
        with fresh:
            wait_for("its last message", 30, lambda: offset_of(fresh, fresh.leader(), remoting.MAX_OFFSET) == end)
            started = time.monotonic() - began
            with remoting.Connection(fresh.broker(0), 10.0) as connection:
                for place in (0, end // 2, end - 1):
                    answer = connection.request(remoting.PULL, remoting.pull_fields("T", 0, place, count=1))
                    check(answer.code == 0 and next(remoting.records(answer.body)).body.startswith(b"%08d" % place), f"message {place}: {answer}")
    return f"{mebibytes} MiB: copied and checked in {copied:.1f} s, restored and started in {started:.1f} s"


# ---- the judges' checker ----

def judged(settings, size, seconds, pause=0.0):
    """The judges' checker reads a restored group: what its generator had acknowledged before the backup began, and what is still in the log, is there, where it
    was said to be. Another load goes on over the backup. The checker is not blind: the group holds a message more at its end, which it must find."""
    with Cluster(durability="B", settings=settings) as cluster:
        program = mqload.build(os.environ.get("JUDGE_DIR", ""), os.path.join(cluster.folder, "mqload"))
        if program is None:
            raise Skipped("JUDGE_DIR, with the load generator, is not there")
        acks = os.path.join(cluster.folder, "acks")

        def run(*arguments):
            return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=(60 + seconds) * remoting.PATIENCE)
        cluster.create_topic("Beside", 2)
        load = Load(cluster, "Beside", 2, size=size, pause=pause)
        load.start()
        said = run("failover", "--namesrv", cluster.namesrv_addr, "--brokers", ",".join(cluster.broker(i) for i in range(3)), "--topic", "Judged",
                   "--queues", 4, "--window", 16, "--duration", seconds, "--acks", acks)
        check(said.returncode == 0, f"mqload failover: {said.stdout}{said.stderr}")
        if settings:
            wait_for("the first messages to be deleted", 60, lambda: sum(offset_of(cluster, cluster.leader(), MIN_OFFSET, queue, "Judged") for queue in range(4)))
        folder = back_up(cluster)
        load.stop()
        with restored(folder, "B", settings=without_limit(settings), copies=1 if settings else 3) as fresh:
            leader = fresh.leader(30)
            low = [offset_of(fresh, leader, MIN_OFFSET, queue, "Judged") for queue in range(4)]
            with open(acks, encoding="ascii") as file:
                title, *lines = file.readlines()
            kept = [line for line in lines if int(line.split()[2]) >= low[int(line.split()[1])]]
            with open(acks, "w", encoding="ascii") as file:
                file.writelines([title, *kept])

            def verify():
                return run("verify", "--namesrv", fresh.namesrv_addr, "--topic", "Judged", "--queues", 4, "--acks", acks)
            said = verify()
            check(said.returncode == 0, f"mqload verify: {said.stdout}{said.stderr}")
            check(fresh.send("Judged", 0, b"nobody acknowledged this").code == 0, "send")
            wait_for("all members to have all of it", 60, fresh.all_applied)
            for node in range(3):
                at = [offset_of(fresh, node, MIN_OFFSET, queue, "Judged") for queue in range(4)]
                check(at == low and first_file(fresh, node) == first_file(fresh, leader), f"n{node} begins at {at}, n{leader} at {low}")
            blind = verify()
            check(blind.returncode != 0, f"the checker passes a message that is none of its own: {blind.stdout}{blind.stderr}")
        return len(lines), len(kept), said.stdout.strip().replace("\n", "; ")[:200]


@case
def a_restored_backup_is_what_was_acknowledged():
    return judged((), 200, rounds(2, 2, 60))[2]


@case
def a_restored_trimmed_backup_is_what_was_acknowledged():
    """The same while retention deletes: what is still in the log is what counts. The load is held back so that some of it is left. One
    member has the copy, the others are empty and fetch it."""
    sent, kept, note = judged([f"mappedFileSizeCommitLog={SEGMENT}", f"logBytesMax={6 * SEGMENT}", "cleanResourceInterval=100"], 4000, rounds(2, 2, 60), pause=0.0005)
    check(0 < kept < sent, f"{kept} of {sent} messages are still in the log: all, or none")
    return f"of {sent} messages {kept} are left; {note}"
