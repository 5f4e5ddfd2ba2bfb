"""Nodes that stand still, kills of the leader, where in the life of a message each one fell, and clients that outlive all that."""
import collections
import contextlib
import os
import signal
import time

import remoting
from cluster import check, wait_for
from task import Task


class Death:
    """One kill -9: when the followers stopped (if they did) and when the leader died, in Unix ms; the latter on the monotonic clock too."""

    def __init__(self, node):
        self.node = node
        self.stopped_ms = self.died_ms = self.died = 0.0

    def caught(self, due_ms, stored_ms):
        """Due before the kill and not committed then: what was stored while the followers stood still lay with the leader alone."""
        return due_ms < self.died_ms and stored_ms >= self.stopped_ms


@contextlib.contextmanager
def standing_still(cluster, *nodes):
    """Meanwhile these nodes neither hear nor say anything, and their connections stay."""
    pids = [cluster.pid(node) for node in nodes]
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def alone(cluster, node):
    """All others stand still."""
    return standing_still(cluster, *(other for other in range(cluster.nodes) if other != node))


def kill_leader(cluster, node, frozen=None):
    """frozen: seconds for which its followers stand still before, so that what falls due or is decided lies with the leader alone when it dies."""
    death, pid = Death(node), cluster.pid(node)
    with contextlib.nullcontext() if frozen is None else alone(cluster, node):
        death.stopped_ms = time.time() * 1000
        if frozen is not None:
            time.sleep(frozen)
        os.kill(pid, signal.SIGKILL)
        death.died_ms, death.died = time.time() * 1000, time.monotonic()
    return death


def kill_while(cluster, node, after, frozen, run):
    """Kills in `after` seconds; run() goes on meanwhile and must last longer."""
    def kill():
        time.sleep(after)
        return kill_leader(cluster, node, frozen)
    killer = Task(kill)
    run()
    return killer.result(60)


def answers(cluster, node):
    """The node takes part: it answers a question that only the leader can answer."""
    try:
        return remoting.ask(cluster.broker(node), remoting.MAX_OFFSET, {"topic": "SELF_TEST_TOPIC", "queueId": 0}, timeout=1.0).code == 0
    except OSError:
        return False


def bring_back(cluster, node):
    cluster.restart(node)
    wait_for(f"node {node} to be back", 15, lambda: answers(cluster, node))


def leader_connection(cluster, timeout=3.0):
    """To the leader, as soon as there is one. It has answered on this connection: the kernel accepts for a process that was killed until it is torn down,
    and a name server has not heard of its death then."""
    def attempt():
        address = remoting.leader_address(cluster.namesrv_addr)
        connection = None
        try:
            connection = None if address is None else remoting.Connection(address, timeout)
            if connection is not None and connection.request(remoting.MAX_OFFSET, {"topic": "SELF_TEST_TOPIC", "queueId": 0}, timeout=1.0).code == 0:
                return connection
        except OSError:
            pass
        if connection is not None:
            connection.close()
        return None
    return wait_for("a connection to the leader", 15, attempt)[0]


def send_until(cluster, count, body, properties, unknown, topic="T", queue=0, seconds=30):
    """Sends body(0), body(1) and so on until `count` are acknowledged, each once and never again; returns those. Whether one that got no answer, or
    a "not now", is stored nobody knows: it is added to `unknown`."""
    acknowledged, number, connection = [], 0, None

    def attempt():
        nonlocal number, connection
        connection = connection or leader_connection(cluster)
        while len(acknowledged) < count:
            data, number = body(number), number + 1
            unknown.add(data)
            try:
                answer = connection.request(remoting.SEND_V2, remoting.send_fields(topic, queue, properties), data)
            except OSError:
                answer = None
            if answer is None or answer.code == 14:
                connection.close()
                connection = None
                return False
            check(answer.code == 0, f"send: {answer}")
            unknown.discard(data)
            acknowledged.append(data)
        connection.close()
        return True
    wait_for(f"{count} acknowledgements", seconds, attempt)
    return acknowledged


def send_all(cluster, count, body, topic="T", queue=0, window=64, not_now=(14,), seconds=60):
    """Sends body(0) to body(count - 1) in their order, `window` under way at a time, until all are acknowledged, as a client that tries again does: from the
    first on that was not acknowledged all are sent once more, so that some may be stored twice."""
    done = 0

    def attempt():
        nonlocal done
        with leader_connection(cluster, 20.0) as connection:
            pending = collections.deque()
            while done < count:
                while len(pending) < min(window, count - done):
                    pending.append(connection.send(remoting.SEND_V2, remoting.send_fields(topic, queue), body(done + len(pending))))
                answer = connection.answer(pending.popleft())
                if answer.code != 0:
                    check(answer.code in not_now, lambda: f"send: {answer}")
                    return False
                done += 1
        return True
    wait_for(f"{count} acknowledgements", seconds, attempt)


def read_back(cluster, topic, queues=1, seconds=30):
    """All records of the queues 0 to queues - 1, from whoever leads by then."""
    def attempt():
        try:
            with leader_connection(cluster, 10.0) as connection:
                return [[record for queue in range(queues) for record in remoting.read_queue(connection, topic, queue)]]
        except (OSError, remoting.NotNow):
            return None
    return wait_for(f"the messages of {topic}", seconds, attempt)[0][0]


def insist(cluster, code, ext, body=b"", seconds=15):
    """The leader's answer, whoever leads by now: asked again while there is none, or while the answer is "not now"."""
    def attempt():
        try:
            with leader_connection(cluster) as connection:
                answer = connection.request(code, ext, body, timeout=1.0)
        except OSError:
            return None
        return None if answer.code == 14 else answer
    return wait_for(f"an answer to request {code}", seconds, attempt)[0]


def enough(count, kills, what):
    """A test of this kind counts only when at least half of its kills fell into the window that it is about."""
    check(count * 2 >= kills, f"only {count} of {kills} kills fell {what}: this run shows nothing")
