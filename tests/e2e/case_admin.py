"""mqadmin's commands about offsets, clients and queues, against what was put in."""
import json
import os
import re
import subprocess
import tempfile
import threading

import remoting
from case_clients import heart_beat, UPDATE_OFFSET, QUERY_OFFSET, RUNNING_INFO, RESET
from cluster import BIN, Cluster, check, wait_for
from e2e import case


class Admin:
    """Runs mqadmin; remembers which commands."""

    def __init__(self, cluster, folder=None):
        self.environment = dict(os.environ, NAMESRV_ADDR=cluster.namesrv_addr)
        self.folder = folder
        self.used = set()

    def ended(self, status, *arguments):
        self.used.add(arguments[0])
        done = subprocess.run([os.path.join(BIN, "mqadmin"), *arguments], env=self.environment, capture_output=True, text=True, timeout=60,
                              cwd=self.folder, check=False)
        check(done.returncode == status, f"{arguments} ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done

    def fails(self, *arguments):
        """What it says on standard error; the exit status must tell."""
        return self.ended(1, *arguments).stderr

    def usage(self, *arguments):
        return self.ended(2, *arguments).stderr

    def run(self, *arguments):
        """Its lines, blanks shortened to one."""
        return [re.sub(r" +", " ", line.rstrip()) for line in self.ended(0, *arguments).stdout.splitlines()]


def stored(client, group, queue):
    return client.request(QUERY_OFFSET, {"consumerGroup": group, "topic": "T", "queueId": queue}).ext.get("offset")


@case
def mqadmin_moves_offsets():
    with Cluster(nodes=1) as cluster:
        admin = Admin(cluster)
        cluster.create_topic("T", 2)
        with remoting.Connection(cluster.broker(cluster.leader())) as client:
            for number in range(10):
                check(client.request(remoting.SEND_V2, remoting.send_fields("T", number % 2, "TAGS\x01A"), b"m%d" % number).code == 0, "send")
            for queue in (0, 1):
                check(client.request(UPDATE_OFFSET, {"consumerGroup": "g", "topic": "T", "queueId": queue, "commitOffset": 3}).code == 0, "15")
            lines = admin.run("cloneGroupOffset", "-s", "g", "-d", "h", "-t", "T", "-o", "true")
            check(lines == ["clone group offset success. srcGroup[g], destGroup=[h], topic[T]"], lines)
            check([stored(client, "h", queue) for queue in (0, 1)] == ["3", "3"], "cloned")
            check("has no offsets" in admin.fails("cloneGroupOffset", "-s", "none", "-d", "h", "-t", "T"), "clone of nothing")
            check(stored(client, "h", 0) == "3", "clone of nothing moves nothing")

            header = "#brokerName #queueId #brokerOffset #consumerOffset #timestampOffset #rollbackOffset"
            lines = admin.run("skipAccumulatedMessage", "-g", "h", "-t", "T")
            check(lines == [header, "broker-a 0 5 3 5 5", "broker-a 1 5 3 5 5"], lines)
            lines = admin.run("resetOffsetByTime", "-g", "h", "-t", "T", "-s", "0")
            check(lines == ["rollback consumer offset by specified consumerGroup[h], topic[T], force[true], timestamp(string)[0], timestamp(long)[0]", header,
                            "broker-a 0 5 5 0 0", "broker-a 1 5 5 0 0"], lines)
            lines = admin.run("skipAccumulatedMessage", "-g", "h", "-t", "T", "-f", "false")
            check(lines == [header, "broker-a 0 5 0 5 0", "broker-a 1 5 0 5 0"], lines)
            check([stored(client, "h", queue) for queue in (0, 1)] == ["0", "0"], "only forward, not forced")
            check("THe consumer group <none> not exist" in admin.fails("resetOffsetByTime", "-g", "none", "-t", "T", "-s", "now"), "no group")
            # With a consumer that is connected the broker tells it.
            heart_beat(client, "c@1", consumers=["g"])
            lines = admin.run("skipAccumulatedMessage", "-g", "g", "-t", "T")
            check(lines == ["#brokerName #queueId #offset", "broker-a 0 5", "broker-a 1 5"], lines)
            check(client.next_request(RESET).ext["timestamp"] == "-1", "220")

            address = cluster.broker(cluster.leader())
            admin.run("updateSubGroup", "-b", address, "-g", "h")  # 317 lists groups that have settings
            lines = admin.run("brokerConsumeStats", "-b", address, "-l", "5")
            check([line.split(" N/A")[0] for line in lines[1:3]] == ["T h broker-a 0 5 0 5", "T h broker-a 1 5 0 5"], lines)
            check(lines[-1] == "Diff Total: 10", lines)
            check(client.request(remoting.PULL, remoting.pull_fields("T", 0, 0, group="h")).code == 0, "pull")
            lines = admin.run("statsAll", "-t", "T")
            check(re.fullmatch(r"T h 10 \d\.\d\d \d\.\d\d 10 5", sorted(lines)[-1]), lines)
            check(len(admin.run("statsAll", "-a")) == 3, "only T has traffic: two groups")
            check("no topic none" in admin.fails("statsAll", "-t", "none"), "no topic")


@case
def mqadmin_shows_clients():
    with Cluster(nodes=1) as cluster, tempfile.TemporaryDirectory() as folder:
        admin = Admin(cluster, folder)
        address = cluster.broker(0)
        cluster.create_topic("T", 1)
        info = {"properties": {"PROP_CLIENT_VERSION": "V4_9_8", "consumerGroup": "g"},
                "statusTable": {"T": {"pullRT": 1.5, "pullTPS": 2.25, "consumeRT": 3, "consumeOKTPS": 4, "consumeFailedTPS": 5, "consumeFailedMsgs": 6}},
                "subscriptionSet": [{"topic": "T", "classFilterMode": False, "subString": "A || B"}], "jstack": "the stacks"}
        queue = b'"mqTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:{"commitOffset":7,"locked":true,"droped":false}},'
        body = b"{" + queue + json.dumps(info, separators=(",", ":")).encode()[1:]
        with remoting.Connection(address) as consumer:
            heart_beat(consumer, "../c@1", producers=["p"], consumers=["g"])
            wait_for("the retry topic's route", 10, lambda: remoting.ask(cluster.namesrv(0), remoting.ROUTE, {"topic": "%RETRY%g"}).code == 0)
            stop = threading.Event()

            def serve():
                while not stop.is_set():
                    try:
                        request = consumer.next_request(RUNNING_INFO, 0.2)
                    except TimeoutError:
                        continue
                    consumer.respond(request, 0, body)
            thread = threading.Thread(target=serve)
            thread.start()
            try:
                lines = admin.run("consumerStatus", "-g", "g", "-i", "../c@1", "-s")
                for line in ("#Consumer Properties#", "consumerGroup : g", "001 Topic: T ClassFilter: false SubExpression: A || B", "T broker-a 0 7",
                             "T 1.50 2.25 3.00 4.00 5.00 6", "#Consumer jstack#", "the stacks"):
                    check(line in lines, f"{line!r} is missing in {lines}")
                check(any(line.startswith("T broker-a 0 ProcessQueueInfo [commitOffset=7,") and "locked=true" in line for line in lines), lines)
                lines = admin.run("consumerStatus", "-g", "g")
                check(re.fullmatch(r"1 \.\./c@1 V4_9_8 \d+/_\._c@1", lines[1]), lines)
                check("Same subscription in the same group of consumer" in lines and "Rebalance OK" in lines, lines)
                with open(os.path.join(folder, lines[1].split()[-1]), encoding="utf-8") as file:
                    check("the stacks" in file.read(), "the file of the client")
                check("not online" in admin.fails("consumerStatus", "-g", "g", "-i", "x"), "another client")
            finally:
                stop.set()
                thread.join()
            lines = admin.run("producer", "-b", address)
            check(re.fullmatch(r"producer group \(p\) instance : clientId=\.\./c@1,remoteIP=/127\.0\.0\.1:\d+, language=JAVA, version=409, "
                               r"lastUpdateTimestamp=\d+", lines[0]), lines)


@case
def mqadmin_prints_messages_and_units():
    """A6: also units from the middle on."""
    with Cluster(nodes=1) as cluster:
        admin = Admin(cluster)
        cluster.create_topic("T", 2)
        with remoting.Connection(cluster.broker(0)) as client:
            for number in range(40):
                tag = "A" if number < 30 else "B"
                check(client.request(remoting.SEND_V2, remoting.send_fields("T", 0, f"TAGS\x01{tag}"), b"body%d" % number).code == 0, "send")
            check(client.request(remoting.SEND_V2, remoting.send_fields("T", 1), b"untagged").code == 0, "send")
            heart_beat(client, "c@1", consumers=["g"])
            lines = admin.run("printMsg", "-t", "T")
            messages = [line for line in lines if line.startswith("MSGID: ")]
            check(len(messages) == 41 and messages[39].endswith("BODY: body39") and messages[40].endswith("BODY: untagged"), messages[-2:])
            check("minOffset=0, maxOffset=40, MessageQueue [topic=T, brokerName=broker-a, queueId=0]" in lines, lines[0])
            lines = admin.run("printMsg", "-t", "T", "-s", "B", "-d", "false")
            check(sum(line.endswith("BODY: NOT PRINT BODY") for line in lines) == 10, lines)
            check("MessageQueue [topic=T, brokerName=broker-a, queueId=1] no matched msg. status=NO_MATCHED_MSG, offset=1" in lines, lines)
            lines = admin.run("printMsgByQueue", "-t", "T", "-a", "broker-a", "-i", "0", "-f", "true")
            check(lines == ["Tag: A Count: 30", "Tag: B Count: 10"], lines)
            lines = admin.run("printMsgByQueue", "-t", "T", "-a", "broker-a", "-i", "1", "-p", "true", "-d", "true", "-f", "true")
            check(len(lines) == 1 and lines[0].endswith("BODY: untagged"), lines)
            check(admin.fails("printMsgByQueue", "-t", "T", "-a", "none", "-i", "0"), "no such broker")
            lines = admin.run("queryCq", "-t", "T", "-q", "0", "-i", "29", "-c", "2", "-g", "g")
            check(lines[0] == "Subscription data:" and "Queue data:" in lines and "max: 40, min: 0" in lines, lines)
            units = [line for line in lines if line.startswith("ConsumeQueueData{")]
            check(len(units) == 2 and "tagsCode=65," in units[0] and "tagsCode=66," in units[1] and "idx: 30" in lines, lines)
            check("Index 99 of 0@T is not exist!" in admin.fails("queryCq", "-t", "T", "-q", "0", "-i", "99"), "no such unit")
