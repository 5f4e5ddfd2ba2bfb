"""The name server alone: mqnamesrv, its table of requests, and what it keeps over a restart."""
import json
import os
import signal
import subprocess
import tempfile
import time
import zlib

import remoting
from cluster import BIN, Ports, check, wait_for
from e2e import case


class NameServer:
    def __init__(self, folder, *lines):
        self.folder = folder
        self.ports = Ports()
        self.port = self.ports.base
        self.address = f"127.0.0.1:{self.port}"
        os.makedirs(folder, exist_ok=True)
        self.conf = os.path.join(folder, "namesrv.conf")
        with open(self.conf, "w", encoding="ascii") as file:
            file.write("\n".join([f"listenPort={self.port}", f"kvConfigPath={folder}/kv/kvConfig.json",
                                  f"configStorePath={folder}/kv/namesrv.properties", *lines]) + "\n")
        self.process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.ports.release()

    def start(self):
        self.process = subprocess.Popen([os.path.join(BIN, "mqnamesrv"), "-c", self.conf], stdout=subprocess.DEVNULL,  # pylint: disable=consider-using-with
                                        stderr=subprocess.PIPE)
        wait_for("the name server listens", 5, self.listens)

    def listens(self):
        check(self.process.poll() is None, lambda: f"mqnamesrv ended: {self.process.stderr.read().decode()}")
        try:
            remoting.Connection(self.address, 0.5).close()
            return True
        except OSError:
            return False

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        check(self.process.wait(5 * remoting.PATIENCE) == 0, f"mqnamesrv ended with status {self.process.returncode}")


def registration(topics, counter=1):
    table = {name: {"order": False, "perm": 6, "readQueueNums": queues, "topicFilterType": "SINGLE_TAG", "topicName": name, "topicSysFlag": 0,
                    "writeQueueNums": queues} for name, queues in topics.items()}
    return json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": {
        "dataVersion": {"counter": counter, "timestamp": 1700000000000}, "topicConfigTable": table}}).encode()


def register(connection, topics, broker_id=0, address="127.0.0.1:1", name="broker-x", **more):
    body = registration(topics)
    return connection.request(remoting.REGISTER, {
        "brokerName": name, "brokerAddr": address, "clusterName": "C", "haServerAddr": "127.0.0.1:2", "brokerId": broker_id, "compressed": False,
        "bodyCrc32": zlib.crc32(body) & 0x7FFFFFFF, **more}, body)


def route(address, topic):
    answer = remoting.ask(address, remoting.ROUTE, {"topic": topic})
    return answer.code, json.loads(answer.body) if answer.code == 0 else answer.remark


@case
def namesrv_routes():
    with tempfile.TemporaryDirectory(prefix="ledgermq-e2e-") as folder, NameServer(folder) as server:
        code, remark = route(server.address, "T")
        check((code, remark) == (1, "name server not ready"), f"a fresh name server answers {code} {remark}")
        with remoting.Connection(server.address) as first, remoting.Connection(server.address) as second:
            answer = register(first, {"T": 4}, leaderTerm=5)
            check(answer.code == 0 and answer.body == b"", f"registration: {answer}")
            answer = register(second, {}, broker_id=2, address="127.0.0.1:3")
            check(answer.ext.get("masterAddr") == "127.0.0.1:1" and answer.ext.get("haServerAddr") == "127.0.0.1:2", f"registration of a follower: {answer}")
            code, found = route(server.address, "T")
            check(code == 0 and found["brokerDatas"] == [{"brokerAddrs": {"0": "127.0.0.1:1", "2": "127.0.0.1:3"}, "brokerName": "broker-x", "cluster": "C"}],
                  f"route: {code} {found}")
            check(found["queueDatas"] == [{"brokerName": "broker-x", "perm": 6, "readQueueNums": 4, "topicSysFlag": 0, "writeQueueNums": 4}], f"route: {found}")
            wait_for("the name server is ready", 3, lambda: route(server.address, "Unknown")[0] == 17)
            code, remark = route(server.address, "Unknown")
            check(code == 17 and remark.startswith("No topic route info in name server for the topic: Unknown\n"), f"unknown topic: {code} {remark}")
            # A leader that was cut off comes back with its old term: answered, not taken.
            answer = register(second, {"Old": 1}, broker_id=0, address="127.0.0.1:3", leaderTerm=4)
            check(answer.code == 0, f"old leader: {answer}")
            check(route(server.address, "Old")[0] == 17, "the table of an old leader was taken")
            answer = register(second, {"T": 4}, broker_id=0, address="127.0.0.1:3", leaderTerm=6)
            code, found = route(server.address, "T")
            check(found["brokerDatas"][0]["brokerAddrs"] == {"0": "127.0.0.1:3"}, f"after a change of leader: {found}")
        wait_for("the broker is forgotten when its connection closes", 2, lambda: route(server.address, "T")[0] == 17)


@case
def namesrv_not_ready_ends():
    with tempfile.TemporaryDirectory(prefix="ledgermq-e2e-") as folder, NameServer(folder) as server:
        start = time.monotonic()
        wait_for("17 for an unknown topic", 5, lambda: route(server.address, "T")[0] == 17)
        check(time.monotonic() - start > 2, "17 was answered before 3 s had passed")


@case
def namesrv_bad_requests():
    with tempfile.TemporaryDirectory(prefix="ledgermq-e2e-") as folder, NameServer(folder) as server, remoting.Connection(server.address) as connection:
        rows = [
            (9999, None, b"", 3, " request type 9999 not supported"),
            (105, {}, b"", 1, "topic"), (105, None, b"", 1, "topic"),
            (103, {"brokerName": "b"}, b"", 1, "brokerAddr"),
            (103, {"brokerName": "b", "brokerAddr": "a:1", "clusterName": "c", "haServerAddr": "h", "brokerId": "zero"}, b"", 1, "brokerId"),
            (103, {"brokerName": "b", "brokerAddr": "a:1", "clusterName": "c", "haServerAddr": "h", "brokerId": 0, "bodyCrc32": 7}, b"{}", 1, "crc32 not match"),
            (103, {"brokerName": "b", "brokerAddr": "a:1", "clusterName": "c", "haServerAddr": "h", "brokerId": 0}, b"{nonsense", 1, "Exception: "),
            (103, {"brokerName": "b", "brokerAddr": "a:1", "clusterName": "c", "haServerAddr": "h", "brokerId": 0, "compressed": True}, b"xx", 1, "Exception: "),
            (103, {"brokerName": "", "brokerAddr": "a:1", "clusterName": "c", "haServerAddr": "h", "brokerId": 0}, b"", 1, "brokerName"),
            (322, {"brokerName": "b", "brokerAddr": "a:1", "clusterName": "c", "brokerId": 0}, b"[", 1, ""),
            (101, {"namespace": "n", "key": "k"}, b"", 22, "No config item, Namespace: n Key: k"),
            (219, {"namespace": "n"}, b"", 22, "No config item, Namespace: n"),
            (100, {"namespace": "n", "key": "k"}, b"", 1, "value"),
            (318, None, b"kvConfigPath=/x\n", 16, "Can not update config path"),
            (318, None, b"listenPort=1\n", 16, "listenPort"),
            (318, None, b"orderMessageEnable=maybe\n", 1, "orderMessageEnable"),
            (205, {}, b"", 1, "brokerName"), (224, {}, b"", 1, "cluster"), (216, {}, b"", 1, "topic"),
        ]
        for code, ext, body, wanted, part in rows:
            answer = connection.request(code, ext, body)
            check(answer.code == wanted and part in (answer.remark or ""), f"request {code} {ext} {body!r}: {answer}")
        check(connection.request(224, {"cluster": "none"}).body == b'{"topicList":[]}', "topics of an unknown cluster")


@case
def namesrv_keeps_kv_and_config():
    with tempfile.TemporaryDirectory(prefix="ledgermq-e2e-") as folder, NameServer(folder) as server:
        def must(code, ext=None, body=b""):
            answer = remoting.ask(server.address, code, ext, body)
            check(answer.code == 0, f"request {code} {ext}: {answer}")
            return answer
        must(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-x:4"})
        must(100, {"namespace": "n", "key": "gone", "value": "v"})
        must(102, {"namespace": "n", "key": "gone"})
        must(318, None, b"orderMessageEnable=true\n")
        server.stop()
        server.start()
        check(must(101, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T"}).ext == {"value": "broker-x:4"}, "the key was lost")
        check(remoting.ask(server.address, 101, {"namespace": "n", "key": "gone"}).code == 22, "a deleted key came back")
        check(b"orderMessageEnable=true\n" in must(319).body, "the setting was lost")
        with remoting.Connection(server.address) as connection:
            answer = register(connection, {"T": 4})
            check(answer.body == b'{"table":{"T":"broker-x:4"}}', f"order table of a registration: {answer}")
            check(route(server.address, "T")[1]["orderTopicConf"] == "broker-x:4", "route without orderTopicConf")
        server.process.kill()
        server.process.wait()
        server.start()
        check(must(101, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T"}).ext == {"value": "broker-x:4"}, "the key was lost by kill -9")


@case
def namesrv_usage():
    def run(*arguments):
        return subprocess.run([os.path.join(BIN, "mqnamesrv"), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=10, check=False)
    check(run("--help").returncode == 0 and "usage: mqnamesrv" in run("--help").stdout, "--help")
    check(run("--version").stdout.startswith("mqnamesrv (LedgerMQ) "), "--version")
    check(run("--nonsense").returncode == 2 and run("more").returncode == 2, "wrong usage")
    with tempfile.TemporaryDirectory(prefix="ledgermq-e2e-") as folder:
        conf = os.path.join(folder, "n.conf")
        with open(conf, "w", encoding="ascii") as file:
            file.write("listenPort=1234\nlistenPrt=1\n")
        done = run("-c", conf, "-p")
        check(done.returncode == 0 and "listenPort=1234\n" in done.stdout, f"-p: {done}")
        check("listenPrt" in done.stderr and "did you mean listenPort?" in done.stderr, f"unknown key: {done.stderr}")
        with open(conf, "w", encoding="ascii") as file:
            file.write("\nlistenPort=many\n")
        done = run("-c", conf)
        check(done.returncode == 1 and f"{conf}:2: listenPort=many: must be a port" in done.stderr, f"wrong value: {done.stderr}")
        check(run("-c", conf + ".none").returncode == 1, "missing file")
