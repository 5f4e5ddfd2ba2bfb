"""DLedger's own protocol on the peer port, and what raw entries are for everybody else: room in the log, and nothing more."""
import base64
import json

import remoting
from cluster import Cluster, check, wait_for
from e2e import case

METADATA, APPEND, GET, TRANSFER = 50000, 50001, 50002, 51005
VIEW_BY_ID = 33


class Peer:
    def __init__(self, cluster, node):
        self.id = f"n{node}"
        self.connection = remoting.Connection(f"127.0.0.1:{cluster.peer_port(node)}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()

    def ask(self, code, **fields):
        body = json.dumps({"group": "broker-a", "remoteId": self.id, **fields}).encode()
        answer = self.connection.request(code, None, body)
        check(answer.code == 200, f"request {code}: {answer}")
        return json.loads(answer.body)

    def append(self, data):
        return self.ask(APPEND, body=base64.b64encode(data).decode())


@case
def dledger():
    # Nobody asks again for a raw append, so the leader must not change on a busy machine.
    with Cluster(nodes=3, durability="B", settings=["electionTimeoutMs=1500", "heartbeatMs=150"]) as cluster:
        cluster.create_topic("T", 1)
        leader = cluster.leader()
        places = {}
        with Peer(cluster, leader) as peer:
            first = cluster.send("T", 0, b"message 0")
            check(first.code == 0, f"send: {first}")
            record = view(cluster, leader, int(first.ext["msgId"][16:], 16)).body
            for i in range(1, 4):
                # Not just any bytes: a record that says it lies where it lies.
                last = peer.append(b"where does the log end?")
                offset = last["pos"] + 48 + 23 + 48
                raw = peer.append(record[:28] + offset.to_bytes(8, "big") + record[36:])
                check(raw["code"] == 200 and raw["pos"] + 48 == offset and raw["index"] == last["index"] + 1, f"append: {raw}, before it {last}")
                answer = cluster.send("T", 0, b"message %d" % i)
                check(int(answer.ext["queueOffset"]) == i, f"send: {answer}")
                check(int(answer.ext["msgId"][16:], 16) == offset + len(record) + 48, f"message {i} lies at {answer.ext['msgId']}, raw entry at {offset}")
                places[raw["index"]] = offset
            biggest = peer.append(bytes(4 << 20))
            check(biggest["code"] == 200, f"4 MiB: {biggest}")
        look(cluster, leader, places)
        with Peer(cluster, leader) as peer:
            target = f"n{(leader + 1) % 3}"
            with Peer(cluster, (leader + 1) % 3) as other:
                term = other.ask(TRANSFER, transferId=f"n{leader}", transfereeId=target, term=-1)["term"]
            answer = peer.ask(TRANSFER, transferId=f"n{leader}", transfereeId=target, takeLeadershipLedgerIndex=0, term=term)
            check(answer["code"] == 200 and answer["leaderId"] == target, f"transfer: {answer}")
        look(cluster, (leader + 1) % 3, places)
        for node in range(3):
            cluster.kill(node)
        for node in range(3):
            cluster.restart(node)
        node = cluster.leader()
        look(cluster, node, places)
        check(int(cluster.send("T", 0, b"message 4").ext["queueOffset"]) == 4, "the queue goes on")


def view(cluster, node, offset):
    return remoting.ask(cluster.broker(node), VIEW_BY_ID, {"offset": offset})


def look(cluster, node, places):
    wait_for("the leader's own log", 5, lambda: remoting.ask(cluster.broker(node), remoting.MAX_OFFSET, {"topic": "T", "queueId": 0}).ext.get("offset") == "4")
    with remoting.Connection(cluster.broker(node)) as connection:
        bodies = [record.body for record in remoting.read_queue(connection, "T", 0)]
    check(bodies == [b"message %d" % i for i in range(4)], f"queue: {bodies}")
    with Peer(cluster, node) as peer:
        for index, offset in places.items():
            answer = peer.ask(GET, beginIndex=index)
            check(answer["code"] == 200 and answer["entries"][0]["channel"] == 4 and answer["entries"][0]["pos"] + 48 == offset, f"get {index}: {answer}")
            answer = view(cluster, node, offset)
            check(answer.code == 1, f"view of the raw entry at {offset}: {answer}")
