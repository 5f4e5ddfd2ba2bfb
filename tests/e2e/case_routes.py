"""What name servers say of a group: how soon after any start or change, and never an old leader, a deleted topic or a topic that is said to be gone."""
import contextlib
import json
import os
import signal
import socket
import tempfile
import threading
import time

import remoting
from case_namesrv import NameServer, register, route
from cluster import Cluster, check, wait_for
from e2e import case, rounds

WIPE, ADD, DELETE_TOPIC, UPDATE_CONFIG = 205, 327, 215, 25


@contextlib.contextmanager
def name_servers(count):
    with tempfile.TemporaryDirectory(prefix="ledgermq-e2e-") as folder, contextlib.ExitStack() as stack:
        servers = []
        for i in range(count):
            servers.append(stack.enter_context(NameServer(f"{folder}/{i}")))
        yield servers


def addresses(servers):
    return ";".join(server.address for server in servers)


def restart(server):
    """kill -9, then a new process; when the new one listens."""
    server.process.kill()
    server.process.wait()
    server.start()
    return time.monotonic()


def role(cluster, node):
    try:
        return cluster.runtime_table(node, 0.5)["raftRole"]
    except OSError:
        return None


def names_leader(server, cluster, node):
    return remoting.leader_address(server.address, cluster.group) == cluster.broker(node)


def until_elected(cluster, but=None):
    """Asks the nodes themselves. Returns the leader and the moment."""
    def look():
        leaders = [node for node in range(cluster.nodes) if node != but and role(cluster, node) == "LEADER"]
        return leaders or None
    found, _ = wait_for("a leader", 15, look)
    return found[0], time.monotonic()


@contextlib.contextmanager
def two_groups(servers, *settings):
    """A group of one each, broker-a and broker-b, with topic T on both."""
    with Cluster(nodes=1, namesrv=addresses(servers), settings=settings) as a, \
            Cluster(nodes=1, namesrv=addresses(servers), group="broker-b", settings=settings) as b:
        for cluster in (a, b):
            cluster.create_topic("T", 2)
        for server in servers:
            wait_for("both groups in the route", 5, lambda: broker_names(server, "T") == ["broker-a", "broker-b"])  # pylint: disable=cell-var-from-loop
        yield a, b


def broker_names(server, topic):
    """In the order of the route, None when there is none."""
    code, found = route(server.address, topic)
    return [queue["brokerName"] for queue in found["queueDatas"]] if code == 0 else None


@case
def a_route_is_there_soon():
    """N10, and whichever of the two starts first: within 50 ms of a role change, within 1 s of a name server that is there (again). One of three is down."""
    with name_servers(3) as servers:
        down, others = servers[2], servers[:2]
        down.process.kill()
        down.process.wait()
        late = {}
        with Cluster(namesrv=addresses(servers)) as cluster:
            # Name servers first. Elections: the leader in the route of both that run, counted from when the node itself says that it leads.
            changes = []
            for _ in range(rounds(2, 4)):
                old, _ = until_elected(cluster)
                for server in others:
                    wait_for("the leader's route", 5, lambda: names_leader(server, cluster, old))  # pylint: disable=cell-var-from-loop
                cluster.kill(old)
                new, since = until_elected(cluster, but=old)
                for server in others:
                    wait_for("the new leader's route", 5, lambda: names_leader(server, cluster, new))  # pylint: disable=cell-var-from-loop
                changes.append(time.monotonic() - since)
                cluster.restart(old)
            late["role change"] = min(changes)
            check(min(changes) < 0.05 and max(changes) < 1 * remoting.PATIENCE, f"the route named the new leader after {changes}")

            leader, _ = until_elected(cluster)
            down.start()
            since = time.monotonic()
            wait_for("the name server that was down knows the leader", 5, lambda: names_leader(down, cluster, leader))
            late["the one that was down"] = time.monotonic() - since

            again = []
            for _ in range(2):
                since = restart(others[0])
                wait_for("the restarted name server knows the leader", 5, lambda: names_leader(others[0], cluster, leader))
                again.append(time.monotonic() - since)
            late["restarted"] = min(again)

            # Brokers first: they run and have a leader before any name server does.
            for server in servers:
                server.process.kill()
            for node in range(3):
                cluster.kill(node)
            for node in range(3):
                cluster.restart(node)
            leader, _ = until_elected(cluster)
            for server in servers:
                server.process.wait()
                server.start()
            since = time.monotonic()
            wait_for("all name servers know the leader", 5, lambda: all(names_leader(server, cluster, leader) for server in servers))
            late["brokers first"] = time.monotonic() - since
        check(all(seconds < 1.0 * max(1, remoting.PATIENCE / 2) for seconds in late.values()), f"a route came late: {late}")
        return ", ".join(f"{name} {seconds * 1000:.0f} ms" for name, seconds in late.items())


@case
def a_connection_that_nobody_remembers():
    """A name server's machine that lost its power forgets its connections without a word; the broker finds out within two seconds, not at its next round."""
    tcp_repair = 19
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        listener.settimeout(10 * remoting.PATIENCE)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with name_servers(1) as servers, Cluster(nodes=1, namesrv=f"{servers[0].address};{address}"):
            connection, _ = listener.accept()
            connection.settimeout(5 * remoting.PATIENCE)
            data = b""
            while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
                data += connection.recv(65536)
            header = json.loads(data[8:8 + (int.from_bytes(data[4:8], "big") & 0xFFFFFF)])
            connection.sendall(remoting.frame({"code": 0, "flag": 1, "language": "JAVA", "opaque": header["opaque"], "version": 409}))
            try:
                connection.setsockopt(socket.IPPROTO_TCP, tcp_repair, 1)  # close() then sends nothing
            except OSError:
                return "not tried: needs CAP_NET_ADMIN"
            connection.close()
            since = time.monotonic()
            listener.accept()[0].close()
            took = time.monotonic() - since
            check(took < 3 * remoting.PATIENCE, f"the broker connected again after {took:.1f} s")
            return f"{took:.1f} s"


class Watch(threading.Thread):
    """Asks name servers again and again; notes what `look` finds wrong."""

    def __init__(self, look):
        super().__init__(daemon=True)
        self.look, self.ending, self.wrong, self.asked = look, threading.Event(), [], 0

    def run(self):
        while not self.ending.is_set():
            try:
                found = self.look()
            except OSError:
                continue
            self.asked += 1
            if found:
                self.wrong.append(found)
            time.sleep(0.002)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ending.set()
        self.join(30)


@case
def id_0_is_always_the_leaders():
    """N3: a follower that starts again and again never registers as id 0, at no name server and at no moment."""
    with name_servers(1) as servers, Cluster(namesrv=servers[0].address) as cluster:
        leader, _ = until_elected(cluster)
        wait_for("the route", 5, lambda: names_leader(servers[0], cluster, leader))

        def look():
            answer = remoting.ask(servers[0].address, remoting.CLUSTER_INFO)
            found = json.loads(answer.body)["brokerAddrTable"].get("broker-a", {}).get("brokerAddrs", {})
            return None if found.get("0") == cluster.broker(leader) else found

        def routed(node):
            table = json.loads(remoting.ask(servers[0].address, remoting.CLUSTER_INFO).body)["brokerAddrTable"]
            return cluster.broker(node) in table["broker-a"]["brokerAddrs"].values()
        with Watch(look) as watch:
            for i in range(rounds(4, 8, 40)):
                node = [node for node in range(3) if node != leader][i % 2]
                cluster.kill(node)
                wait_for("the dead follower to be off the route", 10, lambda node=node: not routed(node))
                cluster.restart(node)
                wait_for("the follower in the route", 10, lambda node=node: routed(node))
            wait_for("enough answers", 10, lambda: watch.asked > 50)
        check(role(cluster, leader) == "LEADER", "the leader changed: this case shows nothing")
        check(watch.asked > 50 and not watch.wrong, f"of {watch.asked} answers {len(watch.wrong)} were wrong, as {watch.wrong[:2]}")
        return f"{watch.asked} answers"


@case
def a_late_unregister_takes_nothing_away():
    """N4: the old leader says goodbye after the new one has registered; also under the same id and from another connection."""
    with name_servers(1) as servers, remoting.Connection(servers[0].address) as old, remoting.Connection(servers[0].address) as new:
        register(old, {"T": 4}, address="127.0.0.1:1", leaderTerm=5)
        register(new, {"T": 4}, address="127.0.0.1:2", leaderTerm=6)

        def goodbye(**changes):
            fields = {"brokerName": "broker-x", "brokerAddr": "127.0.0.1:1", "clusterName": "C", "brokerId": 0, **changes}
            check(old.request(remoting.UNREGISTER, fields).code == 0, "104")
            code, found = route(servers[0].address, "T")
            check(code == 0 and found["brokerDatas"][0]["brokerAddrs"] == {"0": "127.0.0.1:2"}, f"after {changes}: {code} {found}")
        goodbye()
        goodbye(brokerId=1)
        goodbye(brokerName="broker-y", brokerAddr="127.0.0.1:2")
        old.close()
        time.sleep(0.2)
        code, found = route(servers[0].address, "T")
        check(code == 0 and found["brokerDatas"][0]["brokerAddrs"] == {"0": "127.0.0.1:2"}, f"after the old connection's end: {code} {found}")
        check(new.request(remoting.UNREGISTER, {"brokerName": "broker-x", "brokerAddr": "127.0.0.1:2", "clusterName": "C", "brokerId": 0}).code == 0, "104")
        wait_for("the leader that unregistered itself is gone", 2, lambda: route(servers[0].address, "T")[0] == 17)


@case
def permission_after_a_time_without_a_leader():
    """N5: while only followers are registered topics keep their permission, and they have it when a leader is there again."""
    with name_servers(1) as servers, Cluster(namesrv=servers[0].address) as cluster:
        cluster.create_topic("T", 2)

        def found():
            code, answer = route(servers[0].address, "T")
            return (answer["queueDatas"][0]["perm"], "0" in answer["brokerDatas"][0]["brokerAddrs"]) if code == 0 else None
        wait_for("the route of T", 5, lambda: found() == (6, True))
        leader, _ = until_elected(cluster)
        rest = [node for node in range(3) if node != leader]
        cluster.kill(leader)
        cluster.kill(rest[0])
        wait_for("a route without a leader", 10, lambda: found() == (6, False))
        cluster.restart(rest[0])
        wait_for("a leader's route", 15, lambda: found() == (6, True))
        restart(servers[0])
        wait_for("the route after a name server's restart", 10, lambda: found() == (6, True))


@case
def a_topic_deleted_in_one_group():
    """N6: it is routed to the other group only, and to nobody once it is deleted there as well."""
    with name_servers(2) as servers, two_groups(servers) as (a, b):
        for cluster, rest in ((a, ["broker-b"]), (b, None)):
            answer = remoting.ask(cluster.broker(0), DELETE_TOPIC, {"topic": "T"})
            check(answer.code == 0, f"215: {answer}")
            for server in servers:
                wait_for("the topic is off the route", 2, lambda: broker_names(server, "T") == rest)  # pylint: disable=cell-var-from-loop
        wait_for("17 for the topic that is deleted everywhere", 2, lambda: route(servers[0].address, "T")[0] == 17)
        a.create_topic("T", 4)
        wait_for("the topic is back on one", 2, lambda: broker_names(servers[1], "T") == ["broker-a"])


@case
def wiped_stays_wiped():
    """N7: the write permission that was wiped at a name server stays so over registrations of every kind, until it is added."""
    with name_servers(1) as servers, two_groups(servers) as (a, _):
        def perms(topic):
            code, found = route(servers[0].address, topic)
            return {queue["brokerName"]: queue["perm"] for queue in found["queueDatas"]} if code == 0 else None
        answer = remoting.ask(servers[0].address, WIPE, {"brokerName": "broker-a"})
        check(answer.code == 0 and int(answer.ext["wipeTopicCount"]) > 1, f"205: {answer}")
        check(perms("T") == {"broker-a": 4, "broker-b": 6}, perms("T"))
        a.create_topic("New", 1)  # a whole table with a newer version
        wait_for("the new topic", 3, lambda: perms("New") is not None)
        check(perms("T") == {"broker-a": 4, "broker-b": 6} and perms("New") == {"broker-a": 4}, f"{perms('T')} {perms('New')}")
        check(remoting.ask(a.broker(0), UPDATE_CONFIG, None, b"brokerPermission=4\n").code == 0, "25")
        check(remoting.ask(a.broker(0), UPDATE_CONFIG, None, b"brokerPermission=6\n").code == 0, "25")
        a.create_topic("Newer", 1)
        wait_for("the newer topic", 3, lambda: perms("Newer") is not None)
        check(perms("T") == {"broker-a": 4, "broker-b": 6} and perms("Newer") == {"broker-a": 4}, f"{perms('T')} {perms('Newer')}")
        check(remoting.ask(servers[0].address, ADD, {"brokerName": "broker-a"}).code == 0, "327")
        check(perms("T") == {"broker-a": 6, "broker-b": 6} and perms("Newer") == {"broker-a": 6}, f"{perms('T')} {perms('Newer')}")


@case
def permission_of_topic_and_broker():
    """N12: what the route allows is what both allow, and it follows a change of either at once."""
    with name_servers(1) as servers, Cluster(nodes=1, namesrv=servers[0].address) as cluster:
        def topic(name, perm):
            answer = remoting.ask(cluster.broker(0), remoting.CREATE_TOPIC, remoting.topic_fields(name, perm=perm))
            check(answer.code == 0, f"topic {name}: {answer}")

        def perm(name):
            code, found = route(servers[0].address, name)
            return found["queueDatas"][0]["perm"] if code == 0 else None
        wait_for("the broker in the route", 5, lambda: perm("SELF_TEST_TOPIC") == 6)
        for given in (2, 4, 6):
            topic(f"P{given}", given)
        for broker in (6, 4, 2, 6):
            answer = remoting.ask(cluster.broker(0), UPDATE_CONFIG, None, b"brokerPermission=%d\n" % broker)
            check(answer.code == 0, f"25: {answer}")
            for given in (2, 4, 6):
                wait_for(f"topic {given} and broker {broker}", 2, lambda: perm(f"P{given}") == given & broker)  # pylint: disable=cell-var-from-loop


@case
def waits_for_service():
    """N8: with needWaitForService no route is answered until the time has passed, and then it is; other requests are not held up."""
    with tempfile.TemporaryDirectory(prefix="ledgermq-e2e-") as folder, \
            NameServer(folder, "needWaitForService=true", "waitSecondsForService=2") as server, remoting.Connection(server.address) as connection:
        since = time.monotonic()
        check(register(connection, {"T": 4}, leaderTerm=5).code == 0, "103")
        check(remoting.leader_address(server.address, "broker-x") == "127.0.0.1:1", "106 does not wait")
        for topic in ("T", "Unknown"):
            check(route(server.address, topic) == (1, "name server not ready"), f"{topic}: {route(server.address, topic)}")
        wait_for("the route", 4, lambda: route(server.address, "T")[0] == 0)
        took = time.monotonic() - since
        check(1.5 < took < 2 + remoting.PATIENCE, f"after {took:.1f} s")
        check(route(server.address, "Unknown")[0] == 17, "an unknown topic afterwards")


@case
def model_topic_without_auto_creation():
    """N9: with auto-creation off, at a restart or while running, TBW102 has no route and a send to an unknown topic is refused; on again, both are back."""
    with name_servers(1) as servers, Cluster(nodes=1, namesrv=servers[0].address, settings=["autoCreateTopicEnable=true"]) as cluster:
        def model():
            return route(servers[0].address, "TBW102")[0]

        def send(topic):
            return cluster.send(topic, 0, b"x", node=0).code
        wait_for("the model's route", 5, lambda: model() == 0)
        check(send("First") == 0, "auto-creation is on")
        cluster.stop()
        cluster.settings = [setting for setting in cluster.settings if not setting.startswith("autoCreate")] + ["autoCreateTopicEnable=false"]
        cluster.start()
        wait_for("the broker in the route", 5, lambda: route(servers[0].address, "First")[0] == 0)
        wait_for("17 for the model", 2, lambda: model() == 17)
        check(send("Second") == 17, f"off at the start: {send('Second')}")
        for value, code in ((b"true", 0), (b"false", 17), (b"true", 0)):
            check(remoting.ask(cluster.broker(0), UPDATE_CONFIG, None, b"autoCreateTopicEnable=%s\n" % value).code == 0, "25")
            wait_for(f"the model's route with {value}", 2, lambda: model() == code)  # pylint: disable=cell-var-from-loop
            check(send("Third" if code else f"On{time.monotonic_ns()}") == code, f"a send with {value}")


@case
def a_restarted_name_server_knows_that_it_does_not_know():
    """N11: two groups, of which the second comes half a second late: it never says that a topic is not there which one of them has, and sends go on."""
    with name_servers(2) as servers, two_groups(servers) as (a, b):
        a.create_topic("OnA", 1)
        b.create_topic("OnB", 1)
        for topic in ("OnA", "OnB"):
            wait_for("the routes", 3, lambda: route(servers[0].address, topic)[0] == 0)  # pylint: disable=cell-var-from-loop
        turn = [0]

        def look():
            turn[0] += 1
            topic = ("OnA", "OnB", "T")[turn[0] % 3]
            code, found = route(servers[0].address, topic)
            return None if code == 0 or (code, found) == (1, "name server not ready") else (topic, code, found)
        with Watch(look) as watch, remoting.Connection(a.broker(0)) as producer:
            for _ in range(rounds(2, 3)):
                os.kill(b.pid(0), signal.SIGSTOP)
                since = restart(servers[0])
                stopped = True
                while (late := time.monotonic() - since) < 1.5:
                    if stopped and late > 0.5:
                        os.kill(b.pid(0), signal.SIGCONT)
                        stopped = False
                    check(producer.request(remoting.SEND_V2, remoting.send_fields("OnA", 0), b"x").code == 0, "a send meanwhile")
                wait_for("all topics again", 3, lambda: all(route(servers[0].address, topic)[0] == 0 for topic in ("OnA", "OnB")))
        check(watch.asked > 100 and not watch.wrong, f"of {watch.asked} answers {len(watch.wrong)} were wrong, as {watch.wrong[:2]}")
        return f"{watch.asked} answers"


@case
def a_whole_table_after_one_topic():
    """N2: the first registration after a name server's start is of one topic, the whole table that follows has the same version."""
    with name_servers(1) as servers, remoting.Connection(servers[0].address) as broker:
        register(broker, {"New": 4})
        check(route(servers[0].address, "Old")[0] != 0, "known already")
        register(broker, {"New": 4, "Old": 2, "Older": 1})
        for topic, queues in (("New", 4), ("Old", 2), ("Older", 1)):
            code, found = route(servers[0].address, topic)
            check(code == 0 and found["queueDatas"][0]["readQueueNums"] == queues, f"{topic}: {code} {found}")


@case
def a_route_has_a_stable_order():
    """Z14: asked 100 times, at two name servers where the groups came in different orders, while one of them leaves and comes back."""
    with name_servers(2) as servers:
        topics = {"T": 4}

        def come(server, name):
            connection = remoting.Connection(server.address)
            register(connection, topics, address=f"127.0.0.1:{ord(name[-1])}", name=name)
            return connection
        first = {name: come(servers[0], name) for name in ("broker-a", "broker-b", "broker-c")}
        second = {name: come(servers[1], name) for name in ("broker-c", "broker-a", "broker-b")}

        def raw(server):
            answer = remoting.ask(server.address, remoting.ROUTE, {"topic": "T"})
            return answer.body if answer.code == 0 else answer.remark
        before = raw(servers[0])
        for i in range(100):
            if i % 20 == 10:
                first["broker-a"].close()
                wait_for("broker-a has gone", 2, lambda: b'"broker-a"' not in raw(servers[0]))
                first["broker-a"] = come(servers[0], "broker-a")
            for server in servers:
                check(raw(server) == before, lambda: f"time {i}: {raw(server)}, first {before}")  # pylint: disable=cell-var-from-loop
        for connection in (*first.values(), *second.values()):
            connection.close()


@case
def a_new_topic_is_routed_at_once():
    """A client that sent to a new topic asks for its route next, at any name server, and does not ask again for 30 s when it is not there yet."""
    with Cluster() as cluster:
        with remoting.Connection(cluster.broker(cluster.leader())) as client, contextlib.ExitStack() as stack:
            servers = [stack.enter_context(remoting.Connection(cluster.namesrv(node))) for node in range(3)]
            missing = []
            for number in range(rounds(150, 150, 1000)):
                topic = f"a-topic-that-is-made-by-the-first-send-{number:05d}"
                answer = client.request(remoting.SEND_V2, remoting.send_fields(topic, 0), b"x")
                check(answer.code == 0, f"send: {answer}")
                time.sleep(0.005)
                if any(server.request(remoting.ROUTE, {"topic": topic}).code != 0 for server in servers):
                    missing.append(number)
        # A busy machine may be late now and then.
        check(len(missing) <= 10, f"{len(missing)} topics had no route right after the send: {missing[:10]}")
        return f"{len(missing)} of {number + 1} were not routed within 5 ms"
