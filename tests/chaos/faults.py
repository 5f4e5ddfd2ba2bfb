"""The faults of tests/chaos: a row for each. inject(chaos, node) does it to that node, and returns what undoes it (None: nothing to undo).

Skipped is raised where a fault cannot be made here. Whatever a fault does, afterwards every node is brought back and levels up: chaos.settle().
"""
import errno
import os
import resource
import time

from cluster import Failed
from e2e import Skipped
from failover import standing_still
from network import Relay
from odd_machine import CLOCK_MS, SYNC_EIO, SYNC_MS, WRITE_ERROR, WRITE_SHORT
from process import memory_kb
from task import Task

MIB = 1 << 20


class Fault:
    def __init__(self, name, inject, seconds=4.0, full_only=False, may_stop=False):
        """may_stop: the node need not come back by itself."""
        self.name, self.inject, self.seconds, self.full_only, self.may_stop = name, inject, seconds, full_only, may_stop

    def may_stop_of(self, node):
        """The nodes that need not come back by themselves."""
        return {node} if self.may_stop else set()


class Pair:
    """Two faults at a time, each on a node of its own."""

    def __init__(self, first, second):
        self.faults = (first, second)
        self.name = f"{first.name}+{second.name}"
        self.seconds = max(first.seconds, second.seconds)

    def may_stop_of(self, nodes):
        return {node for fault, node in zip(self.faults, nodes) if fault.may_stop}

    def inject(self, chaos, nodes):
        """Returns what undoes both. They begin together, and go on while the other is injected."""
        tasks = [Task(lambda fault=fault, node=node: fault.inject(chaos, node)) for fault, node in zip(self.faults, nodes)]
        for task in tasks:
            task.join(300)
        undo = [task.value for task in tasks]
        # A failure counts, even where the other fault cannot be made here.
        for task in sorted(tasks, key=lambda task: isinstance(task.error, Skipped)):
            if task.is_alive() or task.error is not None:
                undo_all(undo)
                task.result(0)
        return lambda: undo_all(undo)


def undo_all(calls):
    for call in reversed(calls):
        if call is not None:
            call()


def kill(chaos, node):
    chaos.cluster.kill(node)
    time.sleep(1)
    chaos.restart(node)


def pause(seconds):
    def inject(chaos, node):
        with standing_still(chaos.cluster, node):
            time.sleep(seconds)
    return inject


def restart_loop(chaos, node):
    for turn in range(4):
        if turn % 2 == 0:
            chaos.cluster.kill(node)
        chaos.restart(node)
        time.sleep(chaos.chance.uniform(0.1, 1.5))


# ---- network ----

def network_of(chaos):
    if chaos.network is None:
        raise Skipped(chaos.no_network)
    return chaos.network


def cut(chaos, node):
    network = network_of(chaos)
    for other in chaos.others(node):
        network.cut_both(node, other)
    return network.heal


def deaf(chaos, node):
    """Nothing from the others arrives; what it sends does."""
    network = network_of(chaos)
    for other in chaos.others(node):
        network.cut(other, node)
    return network.heal


def mute(chaos, node):
    network = network_of(chaos)
    for other in chaos.others(node):
        network.cut(node, other)
    return network.heal


def bridge(chaos, node):
    """Two nodes do not hear each other, the third hears both; `node` is one of the two."""
    network = network_of(chaos)
    network.cut_both(node, chaos.chance.choice(chaos.others(node)))
    return network.heal


def relay(kind):
    def inject(chaos, node):
        network_of(chaos)
        a, b = sorted((node, chaos.chance.choice(chaos.others(node))))
        try:
            return Relay(a, b, chaos.cluster.peer_port(b), kind, chaos.chance.random()).close
        except (OSError, FileNotFoundError) as error:
            raise Skipped(f"no address translation (iptables): {error}") from error
    return inject


# ---- disk ----

def full_disk(chaos, node):
    if chaos.disk is None:
        raise Skipped(chaos.no_disk)
    del node  # the one on the small disk
    ballast = os.path.join(chaos.disk.folder, "ballast")
    with open(ballast, "wb") as file:
        # Down to nothing: what is left goes in ever smaller pieces.
        size, piece = 0, 256 * MIB
        while piece >= 4096:
            try:
                os.posix_fallocate(file.fileno(), size, piece)
                size += piece
            except OSError:
                piece //= 2
    return lambda: os.unlink(ballast)


def odd(which, value):
    def inject(chaos, node):
        chaos.odd(node, which, value)
        return lambda: chaos.odd(node, which, 0)
    return inject


def clock_jumps(chaos, node):
    for ahead_s in (3600, -3600, 86400 * 30, 0):
        chaos.odd(node, CLOCK_MS, ahead_s * 1000)
        time.sleep(1)


# ---- limits ----

def descriptor_limit(chaos, node):
    pid = chaos.cluster.pid(node)
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")), before[1]))

    def undo():
        if chaos.cluster.alive(node) and chaos.cluster.pid(node) == pid:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    return undo


class Cgroup:
    """A group of one process below ours, of cgroup v1 or v2."""

    def __init__(self, controller, pid, v1, v2):
        """v1, v2: (file, text) that set the limit."""
        parent = os.path.join("/sys/fs/cgroup", controller)
        self.limits = v1 if os.path.isdir(parent) else v2
        if not os.path.isdir(parent):
            parent = "/sys/fs/cgroup"
        self.parent, self.path = parent, os.path.join(parent, f"ledgermq-chaos-{controller}-{pid}")
        try:
            os.mkdir(self.path)
        except OSError as error:
            raise Skipped(f"no control groups: {error}") from error

    def begin(self, pid):
        try:
            for file, text in self.limits:
                with open(os.path.join(self.path, file), "w", encoding="ascii") as out:
                    out.write(text)
            self.move(self.path, pid)
        except OSError as error:
            self.end()
            raise Skipped(f"no control groups: {error}") from error

    @staticmethod
    def move(path, pid):
        with open(os.path.join(path, "cgroup.procs"), "w", encoding="ascii") as out:
            out.write(str(pid))

    def end(self):
        with open(os.path.join(self.path, "cgroup.procs"), encoding="ascii") as file:
            pids = file.read().split()
        for pid in pids:
            try:
                self.move(self.parent, pid)
            except OSError:
                pass
        for _ in range(100):
            try:
                os.rmdir(self.path)
                return
            except OSError:
                time.sleep(0.05)
        raise Failed(f"{self.path} cannot be removed")


def limited(controller, limits):
    """limits(anonymous bytes of the process): what v1's files get, and v2's."""
    def inject(chaos, node):
        pid = chaos.cluster.pid(node)
        group = Cgroup(controller, pid, *limits(memory_kb(pid) * 1024))
        group.begin(pid)
        return group.end
    return inject


def memory_limits(anonymous):
    # Room for what it has and little for the cache of its files.
    size = str(anonymous + 32 * MIB)
    return [("memory.limit_in_bytes", size)], [("memory.max", size)]


def cpu_limits(_):
    return [("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "10000")], [("cpu.max", "10000 100000")]


FAULTS = [
    Fault("kill", kill, 0),
    Fault("restart-loop", restart_loop, 0),
    Fault("pause-1s", pause(1), 0),
    Fault("pause-5s", pause(5), 0),
    Fault("pause-30s", pause(30), 0, full_only=True),
    Fault("cut", cut),
    Fault("one-way-deaf", deaf),
    Fault("one-way-mute", mute),
    Fault("bridge", bridge),
    Fault("relay-delay", relay("delay")),
    Fault("relay-half-open", relay("half_open"), 5),
    Fault("relay-reset", relay("reset")),
    Fault("disk-full", full_disk, 8),
    Fault("write-eio", odd(WRITE_ERROR, errno.EIO), may_stop=True),
    Fault("write-short", odd(WRITE_SHORT, 1)),
    Fault("sync-eio", odd(SYNC_EIO, 1), may_stop=True),
    Fault("sync-slow", odd(SYNC_MS, 200)),
    Fault("sync-hung", odd(SYNC_MS, 600000), 6),
    Fault("descriptors", descriptor_limit, 8),
    Fault("memory", limited("memory", memory_limits), may_stop=True),
    Fault("cpu", limited("cpu", cpu_limits)),
    Fault("clock", clock_jumps, 0),
]
