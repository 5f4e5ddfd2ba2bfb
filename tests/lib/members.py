"""Members of consumer groups as processes of their own (tests/e2e/consumer_member.c), and a real RocketMQ to run them against."""
import collections
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import remoting
from cluster import BIN, Failed, Ports, check, wait_for
from e2e import Skipped

Message = collections.namedtuple("Message", "ms topic broker queue offset reconsumed thread body")


class Member:
    """One consumer_member. Its lines are read in the background."""

    def __init__(self, namesrv_addr, group, topic, *options):
        command = [os.path.join(BIN, "consumer_member"), "--group", group, "--topic", topic, *map(str, options)]
        self.messages, self.done, self.queues, self.errors = [], [], [], []
        self.closed = False
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(os.environ, NAMESRV_ADDR=namesrv_addr))
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            kind, *words = line.decode(errors="replace").rstrip("\n").split(" ", 8)
            if kind == "M":
                ms, topic, broker, queue, offset, reconsumed, thread, body = words
                self.messages.append(Message(int(ms), topic, broker, int(queue), int(offset), int(reconsumed), thread, body))
            elif kind == "D":
                self.done.append((int(words[0]), int(words[2]), int(words[3]), int(words[4])))
            elif kind == "Q":
                self.queues.append((int(words[0]), set(" ".join(words[1:]).split())))
            elif kind == "C":
                self.closed = True
            else:
                self.errors.append(line.decode(errors="replace").strip())

    def bodies(self):
        return [message.body for message in self.messages]

    def now_has(self):
        return self.queues[-1][1] if self.queues else set()

    def end(self):
        """Cleanly."""
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(20 * remoting.PATIENCE)
            except subprocess.TimeoutExpired:
                self.kill()
                raise Failed("a member does not end") from None
            self.reader.join(5)
            self.queues.append((time.monotonic_ns() // 1000000, set()))
            check(self.closed and self.process.returncode == 0, f"a member ended with {self.process.returncode}: {self.errors}")

    def kill(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.queues.append((time.monotonic_ns() // 1000000, set()))
        self.reader.join(5)


class Members:
    """Members that are gone at the end, whatever happens."""

    def __init__(self, namesrv_addr):
        if not os.path.exists(os.path.join(BIN, "consumer_member")):
            raise Skipped("consumer_member is not built (LEDGERMQ_TESTS=OFF)")
        self.namesrv_addr, self.members = namesrv_addr, []

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        for member in self.members:
            if kind is None:
                member.end()
            else:
                member.kill()

    def start(self, group, topic, *options):
        member = Member(self.namesrv_addr, group, topic, *options)
        self.members.append(member)
        return member

    def all(self):
        """What all got, by time."""
        return sorted(message for member in self.members for message in member.messages)

    def all_bodies(self):
        return [message.body for member in self.members for message in member.messages]

    def overlap_ms(self):
        """The longest time that two members said they had the same queue."""
        spans = collections.defaultdict(list)
        now = time.monotonic_ns() // 1000000
        for member in self.members:
            begun = {}
            for ms, queues in [*member.queues, (now, set())]:
                for queue in set(begun) - queues:
                    spans[queue].append((begun.pop(queue), ms))
                for queue in queues - set(begun):
                    begun[queue] = ms
        longest = 0
        for of_queue in spans.values():
            of_queue.sort()
            for (_, end), (begin, later_end) in zip(of_queue, of_queue[1:]):
                longest = max(longest, min(end, later_end) - begin)
        return longest


class JavaBroker:
    """A plain RocketMQ master of the judges, with its name server. Skips where they are not there."""

    def __init__(self, version="4.9.7", extra=""):
        judge = os.environ.get("JUDGE_DIR", "")
        self.script = os.path.join(judge, "rocketmq", "cluster")
        if not judge or not os.path.exists(self.script):
            raise Skipped("JUDGE_DIR, with a RocketMQ to run against, is not there")
        if not shutil.which("java") or not shutil.which("mvn"):
            raise Skipped("no JDK or no Maven (deploy/setup interop)")
        self.version, self.ports = version, Ports()
        self.folder = tempfile.mkdtemp(prefix="ledgermq-java-")
        self.namesrv_addr = f"127.0.0.1:{self.ports.base}"
        self.environment = dict(os.environ, HEAP="384m", EXTRA=extra)

    def broker(self, _node=0):
        return f"127.0.0.1:{self.ports.base + 100}"

    def leader(self):
        return 0

    def __enter__(self):
        started = subprocess.run([self.script, "start", self.version, self.folder, str(self.ports.base), "0"], env=self.environment, check=False,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if started.returncode != 0:
            self.__exit__()
            raise Skipped(f"RocketMQ does not start: {started.stdout.strip()[-200:]}")
        try:
            wait_for("a RocketMQ broker", 60, lambda: remoting.leader_address(self.namesrv_addr) is not None)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        subprocess.run([self.script, "stop", self.folder], env=self.environment, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.ports.release()
        shutil.rmtree(self.folder, ignore_errors=True)

    def create_topic(self, topic, queues=4):
        answer = remoting.ask(self.broker(), remoting.CREATE_TOPIC, remoting.topic_fields(topic, queues))
        check(answer.code == 0, f"topic {topic}: {answer}")
        wait_for("the topic's route", 15, lambda: remoting.ask(self.namesrv_addr, remoting.ROUTE, {"topic": topic}).code == 0)

    def send(self, topic, queue, body, properties="", node=None):
        del node
        return remoting.ask(self.broker(), remoting.SEND_V2, remoting.send_fields(topic, queue, properties), body)
