"""Clusters for tests, through deploy/cluster, and the load whose every acknowledgement is checked afterwards."""
import collections
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import zlib

import remoting
from e2e import Skipped
from remoting import PATIENCE

TOP = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
SCRIPT = os.path.join(TOP, "deploy", "cluster")
BIN = os.environ.get("LEDGERMQ_BIN") or os.path.join(TOP, "build", "bin")


def sanitizers():
    """What the programs under test are built with, as for -fsanitize=; a list of one, or empty."""
    try:
        with open(os.path.join(os.path.dirname(BIN), "CMakeCache.txt"), encoding="utf-8") as cache:
            return [value for value in (line.partition("=")[2].strip() for line in cache if line.startswith("LEDGERMQ_SANITIZE:STRING=")) if value]
    except FileNotFoundError:
        return []


class Failed(Exception):
    """A test found what must not be."""


def check(condition, text):
    if not condition:
        raise Failed(text() if callable(text) else text)


def wait_for(what, seconds, condition):
    """Polls; returns the first true value, and how long it took. A connection that is refused, reset or silent is "not yet", as NotNow is, and an answer that
    lacks what was looked for (a table while nobody leads): nodes come and go, and a machine that stands still for a second makes them elect."""
    start = time.monotonic()
    while True:
        lost = None
        try:
            value = condition()
        except (ConnectionError, TimeoutError, ValueError, KeyError) as error:
            value, lost = None, error
        if value:
            return value, time.monotonic() - start
        check(time.monotonic() - start < seconds * PATIENCE, lambda error=lost: f"{what}: not within {seconds * PATIENCE:.0f} s"
              + (f"; the last try ended with: {error!r}" if error else ""))
        time.sleep(0.01)


OTHER_HOUR = (time.localtime().tm_hour + 12) % 24  # not now, and not soon


class Ports:
    """A range of ports in which nobody listens, from TEST_PORT on and below those that the kernel hands out. Taken until release()."""

    def __init__(self, span=210):
        for base in range(int(os.environ.get("TEST_PORT", "20400")), 32000, 400):
            lock = socket.socket()
            try:
                lock.bind(("127.0.0.1", base + span + 1))  # another process then takes the next range
            except OSError:
                lock.close()
                continue
            used = [base + i for i in range(9)] + [base + 98 + 10 * i + k for i in range(9) for k in (0, 2)] + [base + 200 + i for i in range(9)]
            if all(self.is_free(port) for port in used):
                self.base, self.lock = base, lock
                return
            lock.close()
        raise Failed("no free range of ports")

    @staticmethod
    def is_free(port):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("0.0.0.0", port))
                return True
            except OSError:
                return False

    def release(self):
        self.lock.close()


class Cluster:
    """A cluster in a temporary folder that is stopped and removed at the end."""

    def __init__(self, nodes=3, durability="A", settings=(), folder=None, stores=None, group="broker-a", namesrv=None, hosts=""):
        """stores: node -> folder that its store is to be in. namesrv: name servers outside, the nodes then are none. hosts: as of deploy/cluster."""
        self.ports = Ports()
        self.base = self.ports.base
        self.nodes = nodes
        self.durability = durability
        self.group = group
        self.outer_namesrv = namesrv
        self.hosts = hosts
        # Small files: a test fills and rolls several of them. And what a test sees must not depend on the hour at which it runs.
        self.settings = ["mappedFileSizeCommitLog=16777216", "mappedFileSizeConsumeQueue=60000", f"deleteWhen={OTHER_HOUR}", *settings]
        self.loads = []
        self.own_folder = folder is None
        self.folder = folder or tempfile.mkdtemp(prefix="ledgermq-e2e-")
        for i, target in (stores or {}).items():
            os.mkdir(os.path.join(self.folder, f"n{i}"))
            os.symlink(target, os.path.join(self.folder, f"n{i}", "store"))

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, kind, *_):
        try:
            # A load that a failed case left would send to the next cluster on these ports.
            for load in self.loads:
                load.end()
            if kind not in (None, Skipped):
                self.last_words()
            self.stop()
        finally:
            self.ports.release()
            if kind is not None and os.environ.get("E2E_KEEP"):
                print(f"   kept: {self.folder}")
            elif self.own_folder:
                shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, *arguments, must=True):
        done = subprocess.run([SCRIPT, arguments[0], self.folder, *map(str, arguments[1:])], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, check=False)
        check(done.returncode == 0 or not must, lambda: f"deploy/cluster {' '.join(map(str, arguments))}: {done.stderr.strip()}")
        return done

    def start(self):
        options = [option for setting in self.settings for option in ("--set", setting)]
        try:
            self.run("start", "--nodes", self.nodes, "--durability", self.durability, "--port", self.base, "--group", self.group, "--namesrv",
                     self.outer_namesrv or "", "--hosts", self.hosts, *options)
        except Failed:
            self.run("stop", must=False)
            raise

    def stop(self):
        self.run("stop")

    def kill(self, node):
        self.run("kill", node)

    def restart(self, node):
        self.run("restart", node)

    @property
    def namesrv_addr(self):
        return self.outer_namesrv or ";".join(self.namesrv(i) for i in range(self.nodes))

    def host(self, node):
        return f"{self.hosts}{node + 1}" if self.hosts else "127.0.0.1"

    def namesrv(self, node):
        return f"{self.host(node)}:{self.base + node}"

    def broker(self, node):
        return f"{self.host(node)}:{self.base + 100 + 10 * node}"

    def peer_port(self, node):
        return self.base + 200 + node

    def pid(self, node):
        with open(os.path.join(self.folder, f"n{node}", "pid"), encoding="ascii") as file:
            return int(file.read())

    def alive(self, node):
        """Until nothing of it is open any more: its first thread may be the first to end."""
        try:
            with open(f"/proc/{self.pid(node)}/stat", encoding="utf-8", errors="replace") as file:
                state = file.read().rsplit(") ", 1)[1].split()
        except OSError:
            return False
        return state[0] not in "ZX" or int(state[17]) > 1

    def output(self, node):
        text = ""
        for name in ("out", "logs/broker.log"):
            try:
                with open(os.path.join(self.folder, f"n{node}", name), encoding="utf-8", errors="replace") as file:
                    text += file.read()
            except OSError:
                pass
        return text

    def last_words(self, lines=25):
        for node in range(self.nodes):
            print(f"   --- node {node}{'' if self.alive(node) else ', which does not run'}")
            print("".join(f"   {line}\n" for line in self.output(node).splitlines()[-lines:]), end="")

    def leader_now(self):
        """Index of the node under id 0, None when no name server knows one."""
        address = remoting.leader_address(self.namesrv_addr, self.group)
        return None if address is None else (remoting.split_address(address)[1] - self.base - 100) // 10

    def leader(self, seconds=15, but=None):
        """Waits for a leader (another one than `but`) that answers."""
        def look():
            node = self.leader_now()
            if node is None or node == but:
                return None
            try:
                answer = remoting.ask(self.broker(node), remoting.MAX_OFFSET, {"topic": "SELF_TEST_TOPIC", "queueId": 0}, timeout=1.0)
            except OSError:
                return None
            return (node,) if answer.code == 0 else None
        return wait_for("a leader", seconds, look)[0][0]

    def runtime_table(self, node=0, timeout=10.0):
        """What a broker says of itself."""
        answer = remoting.ask(self.broker(node), remoting.RUNTIME_INFO, {}, timeout=timeout)
        check(answer.code == 0, lambda: f"runtime info of node {node}: {answer}")
        return json.loads(answer.body)["table"]

    def runtime(self, key, node=0):
        """One number of it."""
        return int(self.runtime_table(node)[key].split()[0])

    def all_applied(self):
        """All nodes have applied what was committed before they were asked. Maximum offsets do not show that: a follower asks the leader for them."""
        committed = max(self.runtime("raftCommitIndex", node) for node in range(self.nodes))
        return all(self.runtime("raftAppliedIndex", node) >= committed for node in range(self.nodes))

    def create_topic(self, topic, queues=4):
        answer = remoting.ask(self.broker(self.leader()), remoting.CREATE_TOPIC, remoting.topic_fields(topic, queues))
        check(answer.code == 0, f"topic {topic}: {answer}")

    def send(self, topic, queue, body, properties="", node=None):
        return remoting.ask(self.broker(self.leader() if node is None else node), remoting.SEND_V2, remoting.send_fields(topic, queue, properties), body)


def body_of(sequence, size):
    """A body that says which message it is and can be recognised as damaged."""
    head = b"%d|" % sequence
    return head + zlib.crc32(head).to_bytes(4, "big") * ((size - len(head)) // 4 + 1)


def sequence_of(body, size):
    sequence = int(body[:body.index(b"|")])
    check(body == body_of(sequence, size), f"body of message {sequence} is damaged")
    return sequence


class Load(threading.Thread):
    """Sends through whatever happens to the cluster, each message once and never again, and remembers what was acknowledged.

    A message without an acknowledgement (connection lost, refused, no answer) may be stored once or not at all.
    """

    def __init__(self, cluster, topic, queues, window=32, size=200, pause=0.0):
        super().__init__(daemon=True)
        self.cluster, self.topic, self.queues, self.window, self.size, self.pause = cluster, topic, queues, window, size, pause
        self.acknowledged = {}  # sequence -> (queue, offset)
        self.unknown = set()
        self.refusals = collections.Counter()
        self.longest_gap = 0.0
        self.sequence = 0
        self.ending = threading.Event()
        self.error = None
        cluster.loads.append(self)

    def end(self):
        self.ending.set()
        if self.ident is not None:
            self.join(30)
        check(not self.is_alive(), "the load does not end")

    def stop(self):
        self.end()
        if self.error:
            raise self.error

    def wait_for_more(self, count=200, seconds=20):
        """More than `count` messages from now on are acknowledged; returns how long that took. A load that has failed is not waited for."""
        before = len(self.acknowledged)
        _, took = wait_for("sends to go on", seconds, lambda: self.error or len(self.acknowledged) > before + count)
        if self.error:
            raise self.error
        return took

    def run(self):
        try:
            connection = None
            pending = {}
            last = time.monotonic()
            while not self.ending.is_set():
                if connection is None:
                    connection = self.connect()
                    continue
                try:
                    while len(pending) < self.window:
                        queue = self.sequence % self.queues
                        # Unknown until it is acknowledged: the send itself may fail half way.
                        sequence, self.sequence = self.sequence, self.sequence + 1
                        self.unknown.add(sequence)
                        opaque = connection.send(remoting.SEND_V2, remoting.send_fields(self.topic, queue), body_of(sequence, self.size))
                        pending[opaque] = sequence, queue
                        if self.pause:
                            time.sleep(self.pause)
                    connection.receive_some(0.2)
                    for answer in connection.frames():
                        sequence, queue = pending.pop(answer.opaque)
                        if answer.code == 0:
                            check(int(answer.ext["queueId"]) == queue, f"message {sequence} went to another queue: {answer}")
                            self.acknowledged[sequence] = queue, int(answer.ext["queueOffset"])
                            self.unknown.discard(sequence)
                            now = time.monotonic()
                            self.longest_gap = max(self.longest_gap, now - last)
                            last = now
                        else:
                            self.refusals[answer.code, answer.remark] += 1
                            if answer.code != 14:
                                raise Failed(f"send was refused with {answer}")
                            connection.close()
                            connection = None
                            pending = {}
                            break
                except OSError:
                    connection.close()
                    connection = None
                    pending = {}
            # What is under way when the load ends is unknown too.
            if connection is not None:
                connection.close()
        except Exception as error:  # pylint: disable=broad-except
            self.error = error

    def connect(self):
        address = remoting.leader_address(self.cluster.namesrv_addr)
        if address is None:
            time.sleep(0.01)
            return None
        try:
            return remoting.Connection(address, 3.0)
        except OSError:
            time.sleep(0.01)
            return None


def begin_load(cluster, first=200, **more):
    """A load on the four queues of a topic T, which is made for it; it has had its first acknowledgements."""
    cluster.create_topic("T", 4)
    load = Load(cluster, "T", 4, **more)
    load.start()
    load.wait_for_more(first)
    return load


def read_load(cluster, load):
    """What the leader has of a load: sequence -> (queue, offset). Each queue without a hole, nothing twice."""
    seen = {}
    with remoting.Connection(cluster.broker(cluster.leader()), 10.0) as connection:
        for queue in range(load.queues):
            for place, record in enumerate(remoting.read_queue(connection, load.topic, queue)):
                check(record.offset == place and record.queue == queue,
                      f"{load.topic}/{queue}: the record at place {place} says queue {record.queue}, offset {record.offset}")
                sequence = sequence_of(record.body, load.size)
                check(sequence not in seen, lambda: f"message {sequence} is there twice: {seen[sequence]} and {(queue, place)}")
                seen[sequence] = queue, place
    return seen


def verify(cluster, loads):
    """Reads everything back from the leader: queues without holes, every acknowledgement at its place, nothing twice."""
    if isinstance(loads, Load):
        loads = [loads]
    for load in loads:
        check(load.acknowledged, "nothing was acknowledged")
        # A leader that goes while it is read from shows nothing: its follower is read from the beginning.
        seen = wait_for(f"the messages of {load.topic}", 60, lambda load=load: (read_load(cluster, load),))[0][0]
        for sequence, where in load.acknowledged.items():
            check(seen.get(sequence) == where,
                  lambda: f"message {sequence} was acknowledged at queue, offset {where} and is now at {seen.get(sequence)}")
        extra = set(seen) - set(load.acknowledged) - load.unknown
        check(not extra, lambda: f"messages that were never sent: {sorted(extra)[:5]}")
    return sum(len(load.acknowledged) for load in loads)
