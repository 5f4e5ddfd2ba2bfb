"""All nodes restarted one after another, with SIGTERM, under load: who leads hands over first."""
import threading
import time

import remoting
from case_membership import in_sync
from cluster import Cluster, body_of, check, sequence_of, wait_for
from e2e import MODE, case, rounds

GAP_MS = 300  # promised, with cores to spare; in a run among others a machine may stand still for longer than that by itself


class Stalls(threading.Thread):
    """How long this machine lets a thread wait that has something to do: what of a gap is not the cluster's."""

    def __init__(self):
        super().__init__(daemon=True)
        self.longest, self.ending = 0.0, threading.Event()

    def run(self):
        while not self.ending.is_set():
            begun = time.monotonic()
            time.sleep(0.005)
            self.longest = max(self.longest, time.monotonic() - begun - 0.005)


class Client(threading.Thread):
    """One message after another, each to any node that takes it: a node that is gone, or does not want it, costs a try at the next one."""

    def __init__(self, cluster, queue):
        super().__init__(daemon=True)
        self.cluster, self.queue = cluster, queue
        self.connections = {}
        self.acknowledged = {}  # sequence -> offset
        self.errors = []
        self.longest_gap, self.tries = 0.0, 0
        self.ending = threading.Event()

    def attempt(self, node, sequence):
        try:
            if node not in self.connections:
                self.connections[node] = remoting.Connection(self.cluster.broker(node), 2.0)
            answer = self.connections[node].request(remoting.SEND_V2, remoting.send_fields("T", self.queue), body_of(sequence, 200))
        except OSError:
            self.connections.pop(node, None)
            return None
        if answer.code not in (0, 14):
            self.errors.append(f"message {sequence} at n{node}: {answer}")
        return int(answer.ext["queueOffset"]) if answer.code == 0 else None

    def run(self):
        node, sequence, last = self.queue % 3, 0, time.monotonic()
        while not self.ending.is_set():
            sequence += 1
            begun = time.monotonic()
            while sequence not in self.acknowledged and not self.ending.is_set():
                offset = self.attempt(node, sequence)
                self.tries += 1
                if offset is not None:
                    self.acknowledged[sequence] = offset
                elif time.monotonic() - begun > 20 * remoting.PATIENCE:
                    self.errors.append(f"message {sequence}: no node takes it")
                    return
                else:
                    node = (node + 1) % 3
                    time.sleep(0.002)
            now = time.monotonic()
            self.longest_gap, last = max(self.longest_gap, now - last), now


def verify(cluster, clients):
    """Each message is where it was acknowledged; one whose acknowledgement got lost may be there twice, in its queue's order."""
    with remoting.Connection(cluster.broker(cluster.leader()), 10.0) as connection:
        for client in clients:
            found = [sequence_of(record.body, 200) for record in remoting.read_queue(connection, "T", client.queue)]
            wrong = [sequence for sequence, offset in client.acknowledged.items() if offset >= len(found) or found[offset] != sequence]
            check(not wrong, f"queue {client.queue}: messages {wrong[:5]} are not where they were acknowledged")
            check(set(found) <= set(range(max(client.acknowledged) + 2)), "messages that were never sent")
    return sum(len(client.acknowledged) for client in clients)


@case
def rolling_restart_without_a_gap():
    with Cluster(durability="B") as cluster:
        cluster.create_topic("T", 4)
        clients = [Client(cluster, queue) for queue in range(4)]
        stalls = Stalls()
        for client in clients:
            client.start()
        try:
            wait_for("acknowledgements", 20, lambda: all(len(client.acknowledged) > 50 for client in clients))
            for client in clients:
                client.longest_gap = 0.0
            stalls.start()
            for _ in range(rounds(1, 1, 5)):
                for node in range(3):
                    cluster.restart(node)
                    wait_for(f"n{node} to be level", 30, lambda: in_sync(cluster) == 3)
        finally:
            stalls.ending.set()
            for client in clients:
                client.ending.set()
            for client in clients:
                client.join(30)
        errors = [error for client in clients for error in client.errors]
        check(not errors, f"{len(errors)} errors: {errors[:3]}")
        gap = max(client.longest_gap for client in clients) * 1000
        stall = stalls.longest * 1000
        # A gap is up to twenty steps of processes that wait for each other.
        limit = (GAP_MS if MODE == "full" else 10 * GAP_MS) + 20 * stall
        check(gap <= limit, f"a gap of {gap:.0f} ms, the machine's own stalls are up to {stall:.0f} ms")
        return f"longest gap {gap:.0f} ms (the machine's own stalls: {stall:.0f} ms), no error, {verify(cluster, clients)} acknowledged in {sum(client.tries for client in clients)} tries"
