"""Topics, groups, consumer offsets and queue locks are in the log: alike on all nodes, over kills of the leader and of everything."""
import glob
import json
import os
import re
import shutil
import time

import remoting
from cluster import Cluster, check, wait_for
from e2e import MODE, Skipped, case, rounds

QUERY_OFFSET, UPDATE_OFFSET, ALL_TOPICS, HEART_BEAT, UNREGISTER, CONSUMER_LIST, NOTIFY, LOCK, UNLOCK, ALL_OFFSETS = 14, 15, 21, 34, 35, 38, 40, 41, 42, 43
UPDATE_GROUP, ALL_GROUPS, TOPIC_STATS, DELETE_GROUP, CONSUME_STATS, DELETE_TOPIC = 200, 201, 202, 207, 208, 215


def offset_fields(group, topic, queue, offset=None):
    return {"consumerGroup": group, "topic": topic, "queueId": queue, "commitOffset": offset}


def loads(body):
    """JSON of fastjson: integer keys stand without quotes."""
    return json.loads(re.sub(rb"([{,])(\d+):", rb'\1"\2":', body))


def tables(cluster, node):
    def body(code):
        answer = remoting.ask(cluster.broker(node), code, {})
        check(answer.code == 0, f"{code} of node {node}: {answer}")
        return loads(answer.body)
    return {"topics": body(ALL_TOPICS), "groups": body(ALL_GROUPS), "offsets": body(ALL_OFFSETS)}


def alike(cluster):
    """The tables, when all nodes have the same."""
    try:
        all_tables = [tables(cluster, node) for node in range(cluster.nodes)]
    except OSError:
        return None
    return all_tables[0] if all(other == all_tables[0] for other in all_tables) else None


def ask_leader(cluster, code, ext, body=b"", seconds=15):
    """Asks until somebody answers 0 (or 22): in between a leader may be missing, and connections of questions are closed then."""
    def attempt():
        try:
            answer = remoting.ask(cluster.broker(cluster.leader()), code, ext, body)
        except OSError:
            return None
        check(code != QUERY_OFFSET or answer.code in (0, 22), f"an offset question was answered {answer}")
        return answer if answer.code in (0, 22) else None
    return wait_for(f"an answer to {code}", seconds, attempt)[0]


def heart_beat(connection, client, group, topic="T", model="CLUSTERING"):
    subscription = {"classFilterMode": False, "codeSet": [], "expressionType": "TAG", "subString": "*", "subVersion": 1, "tagsSet": [], "topic": topic}
    body = {"clientID": client, "producerDataSet": [],
            "consumerDataSet": [{"consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "consumeType": "CONSUME_PASSIVELY", "groupName": group,
                                 "messageModel": model, "subscriptionDataSet": [subscription], "unitMode": False}]}
    answer = connection.request(HEART_BEAT, None, json.dumps(body).encode())
    check(answer.code == 0, f"heart-beat: {answer}")


def lock_body(client, group, queues, topic="T"):
    return json.dumps({"clientId": client, "consumerGroup": group,
                       "mqSet": [{"brokerName": "broker-a", "queueId": queue, "topic": topic} for queue in queues]}).encode()


def locked(answer):
    check(answer.code == 0, f"lock: {answer}")
    return sorted(queue["queueId"] for queue in json.loads(answer.body)["lockOKMQSet"])


@case
def changes_through_followers_are_alike_everywhere():
    with Cluster() as cluster:
        leader = cluster.leader()
        follower, other = [node for node in range(3) if node != leader]
        with remoting.Connection(cluster.broker(follower)) as client:
            answer = client.request(remoting.CREATE_TOPIC, {"topic": "T", "defaultTopic": "TBW102", "readQueueNums": 3, "writeQueueNums": 5, "perm": 6,
                                                            "topicFilterType": "MULTI_TAG", "topicSysFlag": 0, "order": False})
            check(answer.code == 0, f"topic: {answer}")
            check(remoting.ask(cluster.broker(leader), TOPIC_STATS, {"topic": "T"}).body.count(b"maxOffset") == 5, "202 at the leader")
            answer = client.request(UPDATE_GROUP, None, b'{"groupName":"g","retryMaxTimes":3,"consumeBroadcastEnable":false}')
            check(answer.code == 0, f"group: {answer}")
            for queue in range(3):
                answer = client.request(UPDATE_OFFSET, offset_fields("g", "T", queue, 10 + queue))
                check(answer.code == 0, f"offset: {answer}")
            # Nobody waits for these; a question right behind them sees the newest.
            for offset in range(20, 30):
                client.send(UPDATE_OFFSET, offset_fields("g", "T", 1, offset), oneway=True)
            answer = client.request(QUERY_OFFSET, offset_fields("g", "T", 1))
            check(answer.ext.get("offset") == "29", f"{answer}")
        found, _ = wait_for("equal tables", 5, lambda: alike(cluster))
        check(found["offsets"]["offsetTable"]["T@g"] == {"0": 10, "1": 29, "2": 12}, found["offsets"])
        check(found["topics"]["topicConfigTable"]["T"]["topicFilterType"] == "MULTI_TAG", "filter type")
        check(found["groups"]["subscriptionGroupTable"]["g"]["retryMaxTimes"] == 3, "retries")
        # Backwards, beyond the end, and what is no offset.
        for offset, expected in ((5, "5"), (1000000, "1000000"), (-1, "1000000")):
            answer = remoting.ask(cluster.broker(other), UPDATE_OFFSET, offset_fields("g", "T", 0, offset))
            check(answer.code == 0, f"{answer}")
            check(remoting.ask(cluster.broker(other), QUERY_OFFSET, offset_fields("g", "T", 0)).ext.get("offset") == expected, f"after {offset}")
        check(remoting.ask(cluster.broker(follower), DELETE_GROUP, {"groupName": "g", "removeOffset": True}).code == 0, "207")
        wait_for("the group to be gone everywhere", 5, lambda: "T@g" not in ((alike(cluster) or {}).get("offsets") or {"offsetTable": "T@g"})["offsetTable"])


@case
def acknowledged_offsets_survive_kills():
    with Cluster(durability="B") as cluster:
        cluster.create_topic("T", 4)
        value = 0
        stored = {}
        for turn in range(rounds(2, 4, 8)):
            leader = cluster.leader()
            with remoting.Connection(cluster.broker(leader)) as client:
                for _ in range(25):
                    value += 1
                    check(client.request(UPDATE_OFFSET, offset_fields("g", "T", value % 4, value)).code == 0, "15")
                    stored[value % 4] = value
            if turn % 2 == 0:
                cluster.kill(leader)
                successor = cluster.leader(but=leader)
                check(successor != leader, "the killed node leads")
            else:
                for node in range(3):
                    cluster.kill(node)
                for node in range(3):
                    cluster.restart(node)
            for queue, offset in stored.items():
                answer = ask_leader(cluster, QUERY_OFFSET, offset_fields("g", "T", queue))
                check(answer.ext.get("offset") == str(offset), f"queue {queue}: {offset} was acknowledged, {answer}")
            if turn % 2 == 0:
                cluster.restart(leader)
        wait_for("equal tables", 15, lambda: alike(cluster))
        return f"{value} commits"


@case
def offset_questions_are_never_answered_wrongly_without_a_leader():
    """O6: the connection is closed; any answer but 0 and 22 would be read as "no offset"."""
    with Cluster() as cluster:
        cluster.create_topic("T", 1)
        leader = cluster.leader()
        check(remoting.ask(cluster.broker(leader), UPDATE_OFFSET, offset_fields("g", "T", 0, 7)).code == 0, "15")
        left = (leader + 1) % 3
        # The follower first: the two that are left after a leader's death have a new one within some tens of milliseconds.
        cluster.kill((leader + 2) % 3)
        cluster.kill(leader)
        for code, ext in ((QUERY_OFFSET, offset_fields("g", "T", 0)), (remoting.MAX_OFFSET, {"topic": "T", "queueId": 0}),
                          (29, {"topic": "T", "queueId": 0, "timestamp": 0})):
            try:
                answer = remoting.ask(cluster.broker(left), code, ext)
                check(False, f"{code} without a leader: {answer}")
            except ConnectionError:
                pass
        for node in ((leader + 2) % 3, leader):
            cluster.restart(node)
        answer = ask_leader(cluster, QUERY_OFFSET, offset_fields("g", "T", 0))
        check(answer.ext.get("offset") == "7", f"{answer}")


@case
def a_deleted_topic_begins_anew():
    """C12: no file, offset or message of the old topic remains on any node."""
    with Cluster() as cluster:
        cluster.create_topic("T", 2)
        for i in range(6):
            check(cluster.send("T", i % 2, b"old %d" % i).code == 0, "send")
        leader = cluster.leader()
        check(remoting.ask(cluster.broker(leader), UPDATE_OFFSET, offset_fields("g", "T", 0, 2)).code == 0, "15")
        check(remoting.ask(cluster.broker((leader + 1) % 3), DELETE_TOPIC, {"topic": "T"}).code == 0, "215")
        check(remoting.ask(cluster.broker(leader), TOPIC_STATS, {"topic": "T"}).code == 17, "202 of a deleted topic")
        cluster.create_topic("T", 2)
        check(cluster.send("T", 0, b"new").code == 0, "send")

        def begins_anew(node):
            answer = remoting.ask(cluster.broker(node), TOPIC_STATS, {"topic": "T"})
            return answer.code == 0 and re.findall(rb'"maxOffset":(\d+)', answer.body) == [b"1", b"0"]
        for node in range(3):
            wait_for(f"node {node} to begin anew", 5, lambda node=node: begins_anew(node))
        for node in range(3):
            cluster.kill(node)
        for node in range(3):
            cluster.restart(node)
        with remoting.Connection(cluster.broker(cluster.leader())) as client:
            found = [record.body for queue in range(2) for record in remoting.read_queue(client, "T", queue)]
            check(found == [b"new"], f"after a restart: {found}")
            answer = client.request(QUERY_OFFSET, offset_fields("g", "T", 0))
            check(answer.ext.get("offset") == "0", f"an offset of the old topic: {answer}")
        for node in range(3):
            wait_for(f"node {node} after the restart", 5, lambda node=node: begins_anew(node))


@case
def a_heart_beat_makes_group_and_retry_topic():
    with Cluster() as cluster:
        cluster.create_topic("T", 2)
        with remoting.Connection(cluster.broker(cluster.leader())) as first, remoting.Connection(cluster.broker(cluster.leader())) as second:
            heart_beat(first, "1.1.1.1@1", "g")
            # Answered when it is there: the client asks for the route right behind.
            found = tables(cluster, cluster.leader())
            check("g" in found["groups"]["subscriptionGroupTable"] and "%RETRY%g" in found["topics"]["topicConfigTable"], "group and retry topic")
            wait_for("the route of the retry topic", 2, lambda: remoting.ask(cluster.namesrv(0), remoting.ROUTE, {"topic": "%RETRY%g"}).code == 0)
            first.frames()
            begin = time.monotonic()
            heart_beat(second, "2.2.2.2@2", "g")
            notices = []
            while not notices and time.monotonic() - begin < 5:
                first.receive_some(1.0)
                notices = [notice for notice in raw_requests(first) if notice == (NOTIFY, "g")]
            took_ms = (time.monotonic() - begin) * 1000
            check(notices, "the first member was not told of the second")
            check(took_ms < 1000 * remoting.PATIENCE, f"told after {took_ms:.0f} ms")
            answer = first.request(CONSUMER_LIST, {"consumerGroup": "g"})
            check(sorted(json.loads(answer.body)["consumerIdList"]) == ["1.1.1.1@1", "2.2.2.2@2"], f"{answer}")
            second.close()
            wait_for("the closed one to be gone", 2, lambda: json.loads(first.request(CONSUMER_LIST, {"consumerGroup": "g"}).body)["consumerIdList"]
                     == ["1.1.1.1@1"])
        return f"told after {took_ms:.0f} ms"


def raw_requests(connection):
    """(code, group) of requests that the broker sent us; Answer keeps no code of requests, so they are read from the buffer."""
    found = []
    while len(connection.buffer) >= 8:
        length = int.from_bytes(connection.buffer[:4], "big")
        if len(connection.buffer) < 4 + length:
            break
        size = int.from_bytes(connection.buffer[5:8], "big")
        header = json.loads(bytes(connection.buffer[8:8 + size]))
        del connection.buffer[:4 + length]
        if header.get("flag", 0) & 1 == 0:
            found.append((header["code"], (header.get("extFields") or {}).get("consumerGroup")))
    return found


@case
def a_queue_lock_outlives_the_leader():
    """G12: a new leader knows every owner and grants what is free."""
    with Cluster() as cluster:
        cluster.create_topic("T", 4)
        leader = cluster.leader()
        with remoting.Connection(cluster.broker(leader)) as client:
            check(locked(client.request(LOCK, None, lock_body("A", "g", [0, 1, 2, 3]))) == [0, 1, 2, 3], "A locks")
            check(locked(client.request(LOCK, None, lock_body("B", "g", [2, 3]))) == [], "B must wait")
            check(locked(client.request(LOCK, None, lock_body("B", "h", [2, 3]))) == [2, 3], "another group")
            check(client.request(UNLOCK, None, lock_body("B", "g", [0])).code == 0, "not the owner")
            check(client.request(UNLOCK, None, lock_body("A", "g", [3])).code == 0, "the owner")
        cluster.kill(leader)
        cluster.leader(but=leader)
        check(locked(ask_leader(cluster, LOCK, None, lock_body("B", "g", [0, 1, 2, 3]))) == [3], "B gets what A gave back")
        check(locked(ask_leader(cluster, LOCK, None, lock_body("A", "g", [0, 1, 2, 3]))) == [0, 1, 2], "A keeps the rest")
        # A leaves: what it holds is free at once.
        with remoting.Connection(cluster.broker(cluster.leader())) as client:
            heart_beat(client, "A", "g")
            check(client.request(UNREGISTER, {"clientID": "A", "consumerGroup": "g"}).code == 0, "35")
            check(locked(client.request(LOCK, None, lock_body("B", "g", [0, 1, 2, 3]))) == [0, 1, 2, 3], "free after 35")
            # B leaves before its first heart-beat to this leader.
            check(client.request(UNREGISTER, {"clientID": "B", "consumerGroup": "g"}).code == 0, "35")
            check(locked(client.request(LOCK, None, lock_body("C", "g", [0, 1, 2, 3]))) == [0, 1, 2, 3], "free after 35 without a heart-beat")


@case
def missing_fields_are_named():
    with Cluster(nodes=1) as cluster:
        with remoting.Connection(cluster.broker(0)) as client:
            for code, ext, field in ((QUERY_OFFSET, {"topic": "T", "queueId": 0}, "consumerGroup"),
                                     (UPDATE_OFFSET, {"consumerGroup": "g", "topic": "T", "queueId": 0}, "commitOffset"),
                                     (remoting.CREATE_TOPIC, {"topic": "T"}, "defaultTopic"), (TOPIC_STATS, {}, "topic"),
                                     (CONSUME_STATS, {}, "consumerGroup"), (CONSUMER_LIST, {}, "consumerGroup"), (UNREGISTER, {}, "clientID"),
                                     (29, {"topic": "T", "queueId": 0}, "timestamp"), (12, {"topic": "T"}, "key"), (33, {}, "offset"),
                                     (DELETE_GROUP, {}, "groupName"), (317, {}, "isOrder"), (321, {"topic": "T"}, "queueId"), (352, {}, "group")):
                answer = client.request(code, ext)
                check(answer.code == 1 and field in (answer.remark or ""), f"{code} without {field}: {answer}")
            answer = client.request(QUERY_OFFSET, offset_fields("g", "T", "x"))
            check(answer.code == 1 and "queueId" in answer.remark, f"{answer}")
            for code in (HEART_BEAT, LOCK, UNLOCK, UPDATE_GROUP):
                check(client.request(code, None, b"{nonsense").code == 1, f"{code} with nonsense")
            for topic, text in (("", "blank"), ("a b", "illegal characters"), ("T" * 128, "longer"), ("TBW102", "conflict with system topic"),
                                ("broker-a", "conflict with system topic"), ("DefaultCluster_REPLY_TOPIC", "conflict with system topic")):
                ext = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG",
                       "order": False}
                answer = client.request(remoting.CREATE_TOPIC, ext)
                check(answer.code == 1 and text in answer.remark, f"17 of {topic!r}: {answer}")


@case
def tables_come_back_from_the_snapshot():
    """More than the 64 MiB of log between two snapshots, then a restart of all, then a node that has lost its disk."""
    with Cluster() as cluster:
        for i in range(20):
            cluster.create_topic(f"T{i}", 2)
        leader = cluster.leader()
        with remoting.Connection(cluster.broker(leader)) as client:
            for i in range(20):
                check(client.request(UPDATE_GROUP, None, b'{"groupName":"g%d"}' % i).code == 0, "200")
                check(client.request(UPDATE_OFFSET, offset_fields(f"g{i}", f"T{i}", 1, i)).code == 0, "15")
            check(locked(client.request(LOCK, None, lock_body("A", "g0", [0, 1], "T0"))) == [0, 1], "41")
            for i in range(1200):
                answer = client.request(remoting.SEND_V2, remoting.send_fields(f"T{i % 20}", 0), b"x" * 60000)
                check(answer.code == 0, f"send {i}: {answer}")
            wait_for("a snapshot on every node", 20, lambda: all(
                glob.glob(os.path.join(cluster.folder, f"n{node}", "store", f"dledger-n{node}", "metadata.?")) for node in range(3)))
            # Behind the snapshot, and to be applied again over it.
            check(client.request(DELETE_TOPIC, {"topic": "T19"}).code == 0, "215")
            check(client.request(UPDATE_OFFSET, offset_fields("g0", "T0", 0, 77)).code == 0, "15")
            cluster.create_topic("T19", 2)
            check(client.request(remoting.SEND_V2, remoting.send_fields("T19", 0), b"anew").code == 0, "send")
        before, _ = wait_for("equal tables", 10, lambda: alike(cluster))
        for node in range(3):
            cluster.kill(node)
        for node in range(3):
            cluster.restart(node)
        cluster.leader()
        after, _ = wait_for("equal tables after the restart", 20, lambda: alike(cluster))
        check(after == before, "the tables changed over a restart")
        leader = cluster.leader()
        check(locked(ask_leader(cluster, LOCK, None, lock_body("B", "g0", [0, 1], "T0"))) == [], "the lock is lost")
        wiped = (leader + 1) % 3
        cluster.kill(wiped)
        shutil.rmtree(os.path.join(cluster.folder, f"n{wiped}", "store"))
        cluster.restart(wiped)
        wait_for("the wiped node to have the tables", 60, lambda: alike(cluster) == before)
        wait_for("its queues", 60, lambda: remoting.ask(cluster.broker(wiped), TOPIC_STATS, {"topic": "T19"}).body
                 == remoting.ask(cluster.broker(leader), TOPIC_STATS, {"topic": "T19"}).body)


def queue_files(cluster, node):
    """Path below the store -> bytes of every consume queue file, zeros at its end left out."""
    root = os.path.join(cluster.folder, f"n{node}", "store", "consumequeue")
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                content = file.read().rstrip(b"\0")
            if content:
                found[os.path.relpath(os.path.join(folder, name), root)] = content
    return found


@case
def nothing_of_a_deleted_topic_remains():
    """C12: no file, offset (gathered ones too), lock, delayed or half message, on any node; and the queues are rebuilt byte for byte."""
    half = "TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01k"
    with Cluster(settings=["messageDelayLevel=2s", "transactionTimeOut=300", "transactionCheckInterval=300"]) as cluster:
        cluster.create_topic("T", 2)
        cluster.create_topic("Other", 2)
        leader = cluster.leader()
        with remoting.Connection(cluster.broker(leader)) as client:
            for number in range(40):
                check(client.request(remoting.SEND_V2, remoting.send_fields(("T", "Other")[number % 2], number // 2 % 2), b"old %d" % number).code == 0, "send")
            check(client.request(UPDATE_OFFSET, offset_fields("g", "T", 0, 10)).code == 0, "15")
            check(locked(client.request(LOCK, None, lock_body("A", "g", [0, 1]))) == [0, 1], "41")
            for topic in ("T", "Other"):
                check(client.request(remoting.SEND_V2, remoting.send_fields(topic, 0, "DELAY\x011"), b"late of " + topic.encode()).code == 0, "delayed")
                check(client.request(remoting.SEND_V2, {**remoting.send_fields(topic, 0, half), "f": 4}, b"half").code == 0, "half")
            # Gathered when the deletion is applied: it would come behind it.
            client.send(UPDATE_OFFSET, offset_fields("g", "T", 1, 9), oneway=True)
            check(client.request(DELETE_TOPIC, {"topic": "T"}).code == 0, "215")
            for node in range(3):
                folder = os.path.join(cluster.folder, f"n{node}", "store", "consumequeue", "T")
                wait_for(f"the files of node {node} to go", 5, lambda folder=folder: not os.path.exists(folder))
            cluster.create_topic("T", 2)
            answer = client.request(remoting.SEND_V2, remoting.send_fields("T", 1), b"new")
            check(answer.code == 0 and answer.ext["queueOffset"] == "0", f"the first of the new topic: {answer}")
            check(locked(client.request(LOCK, None, lock_body("B", "g", [0, 1]))) == [0, 1], "a lock of the old topic")
            wait_for("the delayed message of the other topic", 10, lambda: b"late of Other" in [
                record.body for record in remoting.read_queue(client, "Other", 0)])
            time.sleep(0.5)
            found = [record.body for queue in range(2) for record in remoting.read_queue(client, "T", queue)]
            check(found == [b"new"], f"in the new topic: {found}")
            check(remoting.max_offset(client, "T") == 0, "queue 0 of the new topic")
        table, _ = wait_for("equal tables", 5, lambda: alike(cluster))
        check("T@g" not in table["offsets"]["offsetTable"], f"offsets of the old topic: {table['offsets']}")
        log = cluster.output(leader)
        check("delay level 1: message at offset 0 is discarded: its topic is gone" in log, "the delayed message was not discarded")
        cluster.stop()
        files = [queue_files(cluster, node) for node in range(3)]
        check(files[0] == files[1] == files[2], "the nodes' queues differ")
        check(files[0] and [path for path in files[0] if path.startswith("T/")] == [path for path in files[0] if path.startswith("T/1/")],
              f"{sorted(files[0])}")
        for node in range(3):
            shutil.rmtree(os.path.join(cluster.folder, f"n{node}", "store", "consumequeue"))
        cluster.start()
        for node in range(3):
            wait_for("the queues to be there again", 20, lambda node=node: b'"maxOffset":1' in remoting.ask(cluster.broker(node), TOPIC_STATS,
                                                                                                      {"topic": "T"}).body)
        cluster.stop()
        again = [queue_files(cluster, node) for node in range(3)]
        for node in range(3):
            different = sorted(path for path in set(again[node]) | set(files[node]) if again[node].get(path) != files[node].get(path))
            check(not different, f"node {node}: rebuilt otherwise than they were: {different}")
        cluster.start()


@case
def members_are_told_of_changes_at_once():
    """NOTIFY_CONSUMER_IDS_CHANGED after a member came, went, left, or changed its topics; not where a group does not want it."""
    with Cluster(nodes=1) as cluster:
        cluster.create_topic("T", 2)
        cluster.create_topic("U", 2)
        address = cluster.broker(0)
        took = []
        with remoting.Connection(address) as first:
            heart_beat(first, "1.1.1.1@1", "g")
            time.sleep(0.7)  # the notice that follows the retry topic

            def told(what, change):
                first.receive_some(0.05)
                raw_requests(first)
                begin = time.monotonic()
                change()
                while (NOTIFY, "g") not in raw_requests(first):
                    check(time.monotonic() - begin < 5, f"nobody was told: {what}")
                    first.receive_some(1.0)
                took.append((time.monotonic() - begin) * 1000)
                time.sleep(0.05)
            for _ in range(5):
                second = remoting.Connection(address)
                told("a member came", lambda: heart_beat(second, "2.2.2.2@2", "g"))  # pylint: disable=cell-var-from-loop
                told("other topics", lambda: heart_beat(second, "2.2.2.2@2", "g", topic="U"))  # pylint: disable=cell-var-from-loop
                told("its topics again", lambda: heart_beat(second, "2.2.2.2@2", "g", topic="T"))  # pylint: disable=cell-var-from-loop
                told("a member left", lambda: second.request(UNREGISTER, {"clientID": "2.2.2.2@2", "consumerGroup": "g"}))  # pylint: disable=cell-var-from-loop
                told("it came back", lambda: heart_beat(second, "2.2.2.2@2", "g"))  # pylint: disable=cell-var-from-loop
                told("its connection closed", second.close)
            took.sort()
            check(took[len(took) // 2] < 100 and took[len(took) * 9 // 10] < 100 * remoting.PATIENCE, f"told after {[round(ms) for ms in took]} ms")
            check(first.request(UPDATE_GROUP, None, b'{"groupName":"g","notifyConsumerIdsChangedEnable":false}').code == 0, "200")
            raw_requests(first)
            with remoting.Connection(address) as second:
                heart_beat(second, "2.2.2.2@2", "g")
                first.receive_some(0.4)
                check((NOTIFY, "g") not in raw_requests(first), "told though the group does not want it")
        return f"{len(took)} changes, told after {took[-1]:.0f} ms at most"


@case
def group_switches_take_effect():
    """consumeEnable and consumeBroadcastEnable, changed by an operator while consumers pull."""
    with Cluster() as cluster:
        cluster.create_topic("T", 1)
        check(cluster.send("T", 0, b"m").code == 0, "send")
        leader = cluster.leader()
        follower = (leader + 1) % 3
        with remoting.Connection(cluster.broker(leader)) as client, remoting.Connection(cluster.broker(follower)) as admin:
            heart_beat(client, "1.1.1.1@1", "g", model="BROADCASTING")
            by_text = remoting.pull_fields("T", 0, 0, group="g")
            by_heart_beat = {**by_text, "sysFlag": 0, "subscription": None, "subVersion": 0}

            def pull(fields=by_text):
                return client.request(remoting.PULL, fields)

            def switch(**settings):
                answer = admin.request(UPDATE_GROUP, None, json.dumps({"groupName": "g", **settings}).encode())
                check(answer.code == 0, f"200: {answer}")
            check(pull().code == 0 and pull(by_heart_beat).code == 0, "pull")
            switch(consumeEnable=False)
            answer = pull()
            check(answer.code == 16 and answer.remark == "subscription group no permission, g", f"consumeEnable=false: {answer}")
            switch(consumeEnable=True, consumeBroadcastEnable=False)
            answer = pull(by_heart_beat)
            check(answer.code == 16 and "can not consume by broadcast way" in answer.remark, f"consumeBroadcastEnable=false: {answer}")
            check(admin.request(UPDATE_GROUP, None, b'{"groupName":"g"}').code == 0, "200")
            check(pull(by_heart_beat).code == 0, "the defaults again")
            switch(consumeEnable=False)
        # The switch is in the log.
        cluster.kill(leader)
        cluster.leader(but=leader)
        answer = ask_any(cluster, remoting.PULL, by_text)
        check(answer.code == 16, f"after the failover: {answer}")


def ask_any(cluster, code, ext):
    with remoting.Connection(cluster.broker(cluster.leader())) as client:
        return client.request(code, ext)


@case
def a_lock_of_a_client_that_is_gone():
    """Free 30 s after its last renewal, and not before: the client trusts it that long."""
    if MODE != "full":
        raise Skipped("takes half a minute: --full")
    with Cluster() as cluster:
        cluster.create_topic("T", 1)
        address = cluster.broker(cluster.leader())
        with remoting.Connection(address) as other:
            with remoting.Connection(address) as owner:
                heart_beat(owner, "A", "g")
                check(locked(owner.request(LOCK, None, lock_body("A", "g", [0]))) == [0], "A locks")
                time.sleep(2)
                check(locked(owner.request(LOCK, None, lock_body("A", "g", [0]))) == [0], "A renews")
                renewed = time.monotonic()
            while locked(other.request(LOCK, None, lock_body("B", "g", [0]))) == []:
                check(time.monotonic() - renewed < 40, "never free")
                time.sleep(0.1)
            took = time.monotonic() - renewed
            check(29.9 < took < 31.5, f"free after {took:.1f} s")
        return f"free after {took:.1f} s"
