"""The clusters that are measured: LedgerMQ through deploy/cluster, RocketMQ through the judge's script; and the two load generators."""
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import remoting
from cluster import BIN, Cluster, Failed, Ports, check, wait_for

HERE = os.path.dirname(os.path.abspath(__file__))
STAMP = os.path.join(HERE, "stamp")
JAVA_VERSION = "4.9.7"


class BenchCluster(Cluster):
    """Files of the real sizes, and a folder where the user wants the data."""

    def __init__(self, context, nodes=3, durability="B"):
        super().__init__(nodes, durability, folder=tempfile.mkdtemp(prefix="ledgermq-bench-", dir=context.folder))
        self.context = context
        self.own_folder = True
        self.settings = list(context.settings)  # instead of the small files of tests

    def __enter__(self):
        try:
            return super().__enter__()
        except BaseException:
            self.ports.release()
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def run(self, *arguments, must=True):
        wrap = os.environ.get("LEDGERMQ_WRAP", "")
        os.environ["LEDGERMQ_WRAP"] = f"{self.context.nice_text} {STAMP} {os.path.join(self.folder, 'started')}".strip()
        try:
            return super().run(*arguments, must=must)
        finally:
            os.environ["LEDGERMQ_WRAP"] = wrap

    def started_at(self):
        """When the node that was started last became mqbroker."""
        with open(os.path.join(self.folder, "started"), encoding="ascii") as file:
            return float(file.read())

    @property
    def namesrv_list(self):
        return self.namesrv_addr

    @property
    def pids(self):
        return [self.pid(i) for i in range(self.nodes)]

    @property
    def brokers(self):
        return [self.broker(i) for i in range(self.nodes)]

    def table(self, node, timeout=2.0):
        return self.runtime_table(node, timeout)

    def fdatasyncs(self):
        """Calls of each node since its start."""
        return [int(self.table(i)["raftFdatasyncCount"]) for i in range(self.nodes)]

    def terminate(self, node):
        pid = self.pid(node)
        os.kill(pid, signal.SIGTERM)
        wait_for("a clean stop", 30, lambda: not self.alive(node))

    def in_sync(self, node, leader):
        """The node follows the leader, the leader has its answers, and all that is committed is applied there."""
        own, of_leader = self.table(node, 1.0), self.table(leader, 1.0)
        fields = of_leader.get(f"raftMember_n{node}", "").split(",")
        return (own.get("raftLeader") == f"n{leader}" and len(fields) > 4 and fields[4] == "true" and fields[3] == "0"
                and int(own["raftAppliedIndex"]) >= int(of_leader["raftCommitIndex"]))

    def accepting(self):
        """The node that leads and takes messages, None while there is none; a node that does not run leads nobody."""
        for i in range(self.nodes):
            try:
                if self.table(i).get("raftAccepting") == "true":
                    return i
            except OSError:
                pass
        return None

    def committed(self):
        """How many entries are committed, as the node that knows most says."""
        return max(int(self.table(i)["raftCommitIndex"]) for i in range(self.nodes))

    def all_in_sync(self, seconds=60):
        """Waits, which only ends when nobody sends; returns the leader."""
        def look():
            try:
                leader = self.accepting()
                if leader is None or not all(self.in_sync(i, leader) for i in range(self.nodes) if i != leader):
                    return None
                return (leader,)
            except (OSError, ValueError, KeyError):
                return None
        return wait_for("all members in sync", seconds, look)[0][0]


class JavaCluster:
    """RocketMQ with DLedger. One for many runs: a JVM must be warm before it is timed."""

    def __init__(self, context, nodes):
        self.context = context
        self.nodes = nodes
        self.ports = Ports()
        self.base = self.ports.base
        self.script = os.path.join(context.judge, "rocketmq", "cluster")
        self.folder = tempfile.mkdtemp(prefix="rocketmq-bench-", dir=context.folder)
        self.restarted = []

    def __enter__(self):
        # Until a send is acknowledged, not until the processes are there. A crowded machine makes the broker refuse sends after 200 ms in its queue.
        environment = dict(os.environ, EXTRA="waitTimeMillsInSendQueue=20000")
        try:
            with open(os.path.join(self.folder, "cluster.out"), "wb") as out:
                subprocess.run([*self.context.nice, self.script, "start", JAVA_VERSION, self.folder, str(self.base), str(self.nodes)],
                               stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment, check=True)
            self.wait_ready(120)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        subprocess.run([self.script, "stop", self.folder], stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        for process in self.restarted:
            process.wait(30)
        self.ports.release()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def namesrv_list(self):
        return f"127.0.0.1:{self.base}"

    def broker(self, node):
        return f"127.0.0.1:{self.base + 100 + 10 * node}"

    @property
    def brokers(self):
        return [self.broker(i) for i in range(self.nodes)]

    def pid(self, node):
        with open(os.path.join(self.folder, f"n{node}.pid"), encoding="ascii") as file:
            return int(file.read())

    @property
    def pids(self):
        return [self.pid(i) for i in range(self.nodes)]

    def leader(self):
        """Index of the node under id 0, None when the name server knows none. Its JSON has bare numbers as keys."""
        try:
            body = remoting.ask(self.namesrv_list, remoting.CLUSTER_INFO, timeout=2.0).body.decode()
        except OSError:
            return None
        found = re.search(r'[{,]"?0"?:"127\.0\.0\.1:(\d+)"', body)
        return None if found is None else (int(found.group(1)) - self.base - 100) // 10

    def accepts(self, address):
        try:
            return remoting.ask(address, remoting.SEND_V2, remoting.send_fields("ready", 0), b"x" * 64, timeout=2.0).code == 0
        except OSError:
            return False

    def wait_ready(self, seconds):
        def look():
            leader = self.leader()
            return leader is not None and self.accepts(self.broker(leader))
        wait_for("RocketMQ takes messages", seconds, look)

    def kill(self, node, number=signal.SIGKILL):
        """Returns what is needed to start the node again."""
        pid = self.pid(node)
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            command = file.read().split(b"\0")[:-1]
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = dict(entry.split(b"=", 1) for entry in file.read().split(b"\0") if b"=" in entry)
        os.kill(pid, number)
        own = next((process for process in self.restarted if process.pid == pid), None)
        if own is not None:
            own.wait(60)
        else:
            wait_for("the end of a JVM", 60, lambda: not os.path.exists(f"/proc/{pid}"))
        return command, environment

    def restart(self, node, how):
        command, environment = how
        with open(os.path.join(self.folder, f"n{node}.out"), "ab") as out:
            process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out)  # pylint: disable=consider-using-with
        self.restarted.append(process)
        with open(os.path.join(self.folder, f"n{node}.pid"), "w", encoding="ascii") as file:
            file.write(str(process.pid))


class Poller(threading.Thread):
    """Asks again and again until the answer is yes, and notes when that was. Runs beside the command that starts the node."""

    def __init__(self, question, seconds):
        super().__init__(daemon=True)
        self.question, self.seconds = question, seconds
        self.at = None
        self.start()

    def run(self):
        deadline = time.monotonic() + self.seconds
        while time.monotonic() < deadline:
            try:
                if self.question():
                    self.at = time.time()
                    return
            except (OSError, ValueError, KeyError, Failed):
                pass
            time.sleep(0.001)

    def wait(self):
        self.join(self.seconds + 10)
        check(self.at is not None, f"the node was not back within {self.seconds} s")
        return self.at


def accepts(address, topic):
    """A message sent there now is acknowledged."""
    return remoting.ask(address, remoting.SEND_V2, remoting.send_fields(topic, 0), b"x" * 64, timeout=5.0).code == 0


# ---- generators: both print one line of JSON ----

def _call(context, command, seconds):
    done = subprocess.run([*context.nice, *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=seconds, check=False)
    line = next((line for line in reversed(done.stdout.splitlines()) if line.startswith("{")), None)
    check(line is not None, lambda: f"{' '.join(command)}: status {done.returncode}: {(done.stderr or done.stdout).strip()[-500:]}")
    result = json.loads(line)
    result["status"] = done.returncode
    result["stderr"] = done.stderr.strip()
    return result


def is_measured(run):
    """What is divided by is more than 0: messages were acknowledged while it was measured, one of them was due then, and no node ended."""
    return min(run[key] for key in ("messages", "seconds", "msg_s", "p99_us", "cpu_s_per_million")) > 0


def mqadmin_send(context, cluster, size, window, warmup, duration=None, count=None, rate=None, topic="bench", options=()):
    command = [os.path.join(BIN, "mqadmin"), "bench", "-n", cluster.namesrv_list, "-t", topic, "-s", str(size), "-w", str(window), "--warmup",
               str(warmup), "-p", ",".join(map(str, cluster.pids)), "-j"]
    command += ["--count", str(count)] if count else ["-d", str(duration)]
    command += ["-r", str(rate)] if rate else []
    return _call(context, command + [str(option) for option in options], warmup + (duration or 600) + 60)


def mqadmin_consume(context, cluster, topic, queues, duration, options=()):
    """Everything that the topic holds, at full speed."""
    return _call(context, [os.path.join(BIN, "mqadmin"), "bench", "--consume", "-n", cluster.namesrv_list, "-t", topic, "-q", str(queues), "-d",
                           str(duration), "-p", ",".join(map(str, cluster.pids)), "-j", *map(str, options)], duration + 60)


def mqload_send(context, cluster, size, window, warmup, duration, topic="bench"):
    return _call(context, [context.mqload, "send", "--namesrv", cluster.namesrv_list, "--topic", topic, "--size", str(size), "--window", str(window),
                           "--warmup", str(warmup), "--duration", str(duration), "--pids", ",".join(map(str, cluster.pids)), "--json"],
                 warmup + duration + 60)


def mqadmin_failover(context, cluster, duration, topic, window=16):
    return _call(context, [os.path.join(BIN, "mqadmin"), "bench", "--failover", "-n", cluster.namesrv_list, "-t", topic, "-s", "128", "-w", str(window), "-d",
                           str(duration), "-j"], duration + 60)


def mqload_failover(context, cluster, duration, topic, acks, window=16):
    return _call(context, [context.mqload, "failover", "--namesrv", cluster.namesrv_list, "--brokers", ",".join(cluster.brokers), "--topic", topic,
                           "--size", "128", "--window", str(window), "--duration", str(duration), "--acks", acks, "--json"], duration + 60)


def mqload_verify(context, cluster, topic, acks):
    done = subprocess.run([context.mqload, "verify", "--namesrv", cluster.namesrv_list, "--topic", topic, "--acks", acks], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False)
    return done.returncode, done.stdout.strip()
