"""What operators do that once went wrong elsewhere; ids of the cases are in tests/cases.md."""
import json
import os
import re
import subprocess
import time

import remoting
from case_admin import Admin
from case_clients import UPDATE_OFFSET, heart_beat
from case_namesrv import register
from case_transaction import CHECK, COMMIT, END, GIVEN_UP, Half, bodies, end_fields, half_fields, heart_beat as producer_heart_beat
from cluster import BIN, Cluster, check, wait_for
from e2e import case

GET_CONFIG, UPDATE_CONFIG, GET_NAMESRV_CONFIG, UPDATE_NAMESRV_CONFIG = 26, 25, 319, 318
DELETE_TOPIC, TOPIC_CONFIG, VIEW, EARLIEST, RUNTIME, RESUME = 215, 351, 33, 32, 28, 323


def config(text):
    """Of a body of properties."""
    return dict(line.split("=", 1) for line in text.decode().splitlines())


def changeable():
    table = subprocess.run([os.path.join(BIN, "mqbroker"), "--print-config-table"], capture_output=True, text=True, check=True).stdout
    return {key for key, running in re.findall(r"^\| `(\w+)` \|[^|]*\|[^|]*\|[^|]*\| (yes)? \|", table, re.M) if running}


@case
def requests_change_only_what_may_change():
    """S1: no key that names a path, an address or a command, and nothing of a request with one that is refused."""
    with Cluster(nodes=1) as cluster:
        live = changeable()
        check("fileReservedTime" in live and "storePathRootDir" not in live, live)
        with remoting.Connection(cluster.broker(0)) as broker, remoting.Connection(cluster.namesrv(0)) as namesrv:
            before = config(broker.request(GET_CONFIG).body)
            for key, value in before.items():
                answer = broker.request(UPDATE_CONFIG, {}, f"{key}={value}\n".encode())
                check((answer.code == 0) == (key in live), f"{key}: {answer}")
                check(answer.code in (0, 1, 16), f"{key}: {answer}")
            folder = cluster.folder
            for text in (f"storePathRootDir={folder}/evil", f"logDir={folder}/evil", "rocketmqHome=$(touch evil)", "configBlackList=", f"brokerConfigPath={folder}/evil",
                         f"fileReservedTime=71\nlogDir={folder}/evil", f"fileReservedTime=71\\nlogDir={folder}/evil", "fileReservedTime=`touch evil`",
                         "fileReservedTime=$(id)", "fileReservedTime=-1", "longPollingEnable=perhaps", "namesrvAddr=10.0.0.1:9876;$(id)",
                         "transactionCheckMax=5\nrocketmqHome=/x"):
                answer = broker.request(UPDATE_CONFIG, {}, text.encode())
                check(answer.code in (1, 16) and answer.remark, f"{text!r}: {answer}")
                check(config(broker.request(GET_CONFIG).body) == before, f"{text!r} changed something")
            names = config(namesrv.request(GET_NAMESRV_CONFIG).body)
            for key, value in names.items():
                answer = namesrv.request(UPDATE_NAMESRV_CONFIG, {}, f"{key}={value}\n".encode())
                check(answer.code == (0 if key == "orderMessageEnable" else 16), f"{key}: {answer}")
            for text in (f"configStorePath={folder}/evil", f"orderMessageEnable=true\nkvConfigPath={folder}/evil", "configStorePathName=configStorePath",
                         f"orderMessageEnable=true\nconfigStorePath={folder}/evil", f"logDir={folder}/evil", "rocketmqHome=$(touch evil)", "orderMessageEnable=$(id)"):
                answer = namesrv.request(UPDATE_NAMESRV_CONFIG, {}, text.encode())
                check(answer.code in (1, 16) and answer.remark, f"{text!r}: {answer}")
                check(config(namesrv.request(GET_NAMESRV_CONFIG).body) == names, f"{text!r} changed something")
            check(broker.request(UPDATE_CONFIG, {}, b"fileReservedTime=71\ntransactionCheckMax=5\n").code == 0, "both may change")
            after = config(broker.request(GET_CONFIG).body)
            check((after["fileReservedTime"], after["transactionCheckMax"]) == ("71", "5"), after)
        found = [name for place, _, files in os.walk(cluster.folder) for name in files if "evil" in name or "evil" in place]
        check(not found, found)


@case
def every_request_of_the_tools_is_served():
    """By the leader and by followers, by every name server: whatever mqadmin 4.9.8, Dashboard and exporter send. Without fields the answer names one that is
    missing or tells what it was asked; it is never "not supported", and never none."""
    of_brokers = (10, 310, 11, 12, 14, 15, 17, 21, 25, 26, 28, 29, 30, 31, 32, 33, 35, 43, 45, 200, 201, 202, 203, 204, 207, 208, 215, 222, 223, 300, 303, 305, 306,
                  307, 308, 309, 314, 315, 316, 317, 321, 323, 328, 329, 351)
    of_name_servers = (100, 101, 102, 105, 106, 205, 206, 216, 219, 224, 304, 311, 312, 313, 318, 319, 327)
    with Cluster() as cluster:
        cluster.create_topic("T", 1)
        cluster.leader()
        for codes, addresses in ((of_brokers, [cluster.broker(i) for i in range(3)]), (of_name_servers, [cluster.namesrv(i) for i in range(3)])):
            for address in addresses:
                with remoting.Connection(address, 5.0) as client:
                    for code in codes:
                        answer = client.request(code, {})
                        check(answer.code != 3, f"{address} {code}: {answer}")
                        check(answer.code == 0 or answer.remark, f"{address} {code}: no reason in {answer}")
                        if code in (21, 26, 28, 43, 45, 201, 305, 306, 316, 328, 329, 106, 206, 304, 311, 312, 313, 319):
                            check(answer.code == 0, f"{address} {code}: {answer}")


@case
def a_topic_is_deleted_through_any_node():
    """A1: a follower hands it to the leader, and no node has it afterwards."""
    with Cluster() as cluster:
        cluster.create_topic("T")
        leader = cluster.leader()
        follower = (leader + 1) % 3
        wait_for("the topic everywhere", 10, lambda: all(remoting.ask(cluster.broker(i), TOPIC_CONFIG, {"topic": "T"}).code == 0 for i in range(3)))
        answer = remoting.ask(cluster.broker(follower), DELETE_TOPIC, {"topic": "T"})
        check(answer.code == 0, f"{answer}")
        wait_for("the deletion everywhere", 10, lambda: all(remoting.ask(cluster.broker(i), TOPIC_CONFIG, {"topic": "T"}).code == 17 for i in range(3)))
        answer = remoting.ask(cluster.broker(follower), DELETE_TOPIC, {"topic": "TBW102"})
        check(answer.code == 1 and "conflict with system topic" in answer.remark, f"{answer}")


@case
def values_with_blanks_stay_whole():
    """A4: messageDelayLevel is several words."""
    with Cluster(nodes=1, settings=("messageDelayLevel=1s 2s 7h",)) as cluster:
        lines = Admin(cluster).run("getBrokerConfig", "-b", cluster.broker(0))
        check("messageDelayLevel = 1s 2s 7h" in lines, lines)
        cluster.create_topic("T", 1)
        with remoting.Connection(cluster.broker(0)) as client:
            check(client.request(remoting.SEND_V2, remoting.send_fields("T", 0, "DELAY\x012"), b"x").code == 0, "level 2")
            sent = time.monotonic()
            wait_for("the second level", 6, lambda: client.request(remoting.MAX_OFFSET, {"topic": "T", "queueId": 0}).ext["offset"] == "1")
            check(time.monotonic() - sent > 1.9, "too early")
        # One that may not be changed is refused with all of it named or none.
        check("messageDelayLevel" in Admin(cluster).fails("updateBrokerConfig", "-b", cluster.broker(0), "-k", "messageDelayLevel", "-v", "1s 5s"), "it is fixed")


@case
def the_age_of_the_log_is_right():
    """A5: of an empty store there is none; later it is that of the first message."""
    with Cluster() as cluster:
        leader = cluster.broker(cluster.leader())
        table = json.loads(remoting.ask(leader, RUNTIME).body)["table"]
        check(table["earliestMessageTimeStamp"] == "-1", table["earliestMessageTimeStamp"])
        hours = [line.split()[-2] for line in Admin(cluster).run("clusterList")[1:]]
        check(all(hour == "0" for hour in hours) or len(hours) == 3, hours)
        cluster.create_topic("T", 1)
        before = int(time.time() * 1000)
        check(cluster.send("T", 0, b"first").code == 0, "send")
        after = int(time.time() * 1000)
        answer = remoting.ask(leader, EARLIEST, {"topic": "T", "queueId": 0})
        check(before <= int(answer.ext["timestamp"]) <= after, f"{answer}")
        for node in range(3):
            def earliest(address=cluster.broker(node)):
                return int(json.loads(remoting.ask(address, RUNTIME).body)["table"]["earliestMessageTimeStamp"])
            wait_for("the time on every node", 5, lambda ask=earliest: before <= ask() <= after)
        rows = Admin(cluster).run("clusterList")[1:]
        check(len(rows) == 3 and all(row.split()[-2] == "0.00" for row in rows), rows)


@case
def a_change_of_a_topic_keeps_the_rest():
    """A7: numbers of queues that are not named stay; another cluster's topic of the same name stays. A12: 0 queues to write drain a topic."""
    with Cluster(nodes=1) as cluster, remoting.Connection(cluster.namesrv(0)) as namesrv:
        admin, address = Admin(cluster), cluster.broker(0)
        check(register(namesrv, {"T": 4}, name="broker-x").code == 0, "another broker, of another cluster")

        def settings():
            data = json.loads(remoting.ask(address, TOPIC_CONFIG, {"topic": "T"}).body)
            return data["readQueueNums"], data["writeQueueNums"], data["perm"]
        admin.run("updateTopic", "-b", address, "-t", "T", "-r", "8", "-w", "6")
        check(settings() == (8, 6, 6), settings())
        wait_for("the route", 5, lambda: b'"broker-a"' in remoting.ask(cluster.namesrv(0), remoting.ROUTE, {"topic": "T"}).body)
        admin.run("updateTopicPerm", "-b", address, "-t", "T", "-p", "4")
        check(settings() == (8, 6, 4), settings())
        admin.run("updateTopic", "-b", address, "-t", "T", "-p", "6")
        check(settings() == (8, 6, 6), settings())
        check(cluster.send("T", 5, b"before", node=0).code == 0, "send")
        admin.run("updateTopic", "-b", address, "-t", "T", "-w", "0")
        check(settings() == (8, 0, 6), settings())
        answer = cluster.send("T", 0, b"drained", node=0)
        check(answer.code == 16 and "is being drained" in answer.remark, f"{answer}")
        with remoting.Connection(address) as client:
            check([record.body for record in remoting.read_queue(client, "T", 5)] == [b"before"], "reads go on")
        route = re.search(rb'\{"brokerName":"broker-a",[^}]*\}', remoting.ask(cluster.namesrv(0), remoting.ROUTE, {"topic": "T"}).body)
        check(route is not None and b'"writeQueueNums":0' in route.group(0) and b'"readQueueNums":8' in route.group(0), route)
        admin.run("deleteTopic", "-c", "DefaultCluster", "-t", "T")
        answer = remoting.ask(cluster.namesrv(0), remoting.ROUTE, {"topic": "T"})
        check(answer.code == 0 and b"broker-x" in answer.body and b"broker-a" not in answer.body, f"{answer.body}")


@case
def a_message_id_outlives_a_change_of_address():
    """A9: ids carry the advertised address, and a position is found whatever the address was."""
    with Cluster(nodes=1) as cluster:
        cluster.create_topic("T", 1)
        old = cluster.send("T", 0, b"old").ext["msgId"]
        check(old.startswith("7F000001"), old)
        with open(os.path.join(cluster.folder, "n0", "broker.conf"), "a", encoding="ascii") as file:
            file.write("brokerIP1=127.0.0.2\n")
        cluster.restart(0)
        cluster.leader()
        new = cluster.send("T", 0, b"new").ext["msgId"]
        check(new.startswith("7F000002"), new)
        for message_id, body in ((old, b"old"), (new, b"new")):
            answer = remoting.ask(cluster.broker(0), VIEW, {"offset": int(message_id[16:], 16)})
            check(answer.code == 0 and next(remoting.records(answer.body)).body == body, f"{message_id}: {answer}")
        lines = Admin(cluster).run("queryMsgById", "-i", new)
        check("Message Body: new" in lines, lines)


@case
def a_deleted_group_lags_no_more():
    """A10: neither with its offsets nor without."""
    with Cluster(nodes=1) as cluster:
        admin, address = Admin(cluster), cluster.broker(0)
        cluster.create_topic("T", 1)
        with remoting.Connection(address) as client:
            for remove in ("true", "false"):
                heart_beat(client, "c@1", consumers=["g"])
                check(client.request(remoting.SEND_V2, remoting.send_fields("T", 0), b"x").code == 0, "send")
                check(client.request(UPDATE_OFFSET, {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": 0}).code == 0, "15")
                check(any(line.startswith("T g ") for line in admin.run("brokerConsumeStats", "-b", address)), "it lags")
                check(client.request(35, {"clientID": "c@1", "consumerGroup": "g"}).code == 0, "it goes off line")
                admin.run("deleteSubGroup", "-c", "DefaultCluster", "-g", "g", "-r", remove)
                check(not any(" g " in line for line in admin.run("brokerConsumeStats", "-b", address)), "it still lags")
                check(not any(line.startswith("g ") for line in admin.run("consumerProgress")), "it is still listed")


@case
def offsets_of_an_off_line_group_by_time():
    """A11: to the past and to the future, right in every queue, and also forward."""
    with Cluster() as cluster:
        admin = Admin(cluster)
        cluster.create_topic("T", 4)
        with remoting.Connection(cluster.broker(cluster.leader())) as client:
            def fill(counts):
                for queue, count in enumerate(counts):
                    for _ in range(count):
                        check(client.request(remoting.SEND_V2, remoting.send_fields("T", queue), b"x").code == 0, "send")

            def stored():
                return [int(client.request(14, {"consumerGroup": "g", "topic": "T", "queueId": queue}).ext["offset"]) for queue in range(4)]
            fill([1, 2, 3, 4])
            time.sleep(0.5)  # what is stored nearest to a time counts
            middle = int(time.time() * 1000)
            fill([4, 3, 2, 1])
            for queue in range(4):
                check(client.request(UPDATE_OFFSET, {"consumerGroup": "g", "topic": "T", "queueId": queue, "commitOffset": 5}).code == 0, "15")
            admin.run("resetOffsetByTime", "-g", "g", "-t", "T", "-s", str(middle))
            check(stored() == [1, 2, 3, 4], stored())
            admin.run("resetOffsetByTime", "-g", "g", "-t", "T", "-s", "0")
            check(stored() == [0, 0, 0, 0], stored())
            admin.run("resetOffsetByTime", "-g", "g", "-t", "T", "-s", str(middle))
            check(stored() == [1, 2, 3, 4], "forward")
            admin.run("resetOffsetByTime", "-g", "g", "-t", "T", "-s", str(int(time.time() * 1000) + 3600000))
            check(stored() == [4, 4, 4, 4], f"the last message is the nearest to the future, as in Java: {stored()}")
            admin.run("skipAccumulatedMessage", "-g", "g", "-t", "T")
            check(stored() == [5, 5, 5, 5], stored())


@case
def a_transaction_is_resumed():
    """323: one that waits is counted anew and keeps its place; one that was given up becomes a half message again."""
    with Cluster(nodes=1, settings=("transactionTimeOut=0", "transactionCheckInterval=200", "transactionCheckMax=3")) as cluster:
        admin, address = Admin(cluster), cluster.broker(0)
        cluster.create_topic("T", 2)
        with remoting.Connection(address) as client:
            producer_heart_beat(client, "app@1")
            answer = client.request(remoting.SEND_V2, half_fields(0, "K"), b"resumed")
            half = Half(answer)
            times = [int(re.search(rb"TRANSACTION_CHECK_TIMES\x01(\d+)", client.next_request(CHECK, 10).body).group(1)) for _ in range(2)]
            check(times == [1, 2], times)
            admin.run("resumeCheckHalfMessage", "-b", address, "-i", answer.ext["msgId"])
            wait_for("a check that counts anew", 10, lambda: re.search(rb"TRANSACTION_CHECK_TIMES\x01(\d+)", client.next_request(CHECK, 10).body).group(1) == b"1")
            wait_for("that it is given up", 15, lambda: client.request(remoting.MAX_OFFSET, {"topic": GIVEN_UP, "queueId": 0}).ext["offset"] == "1")
            check("is settled" in admin.fails("resumeCheckHalfMessage", "-b", address, "-i", answer.ext["msgId"]), "the half itself is settled")
            record = remoting.read_queue(client, GIVEN_UP, 0)[0]
            admin.run("resumeCheckHalfMessage", "-b", address, "-i", answer.ext["msgId"][:16] + f"{record.position:016X}")
            check_back = client.next_request(CHECK, 10)
            while int(check_back.ext["tranStateTableOffset"]) == half.offset:
                check_back = client.next_request(CHECK, 10)
            half.offset, half.position = int(check_back.ext["tranStateTableOffset"]), int(check_back.ext["commitLogOffset"])
            check(client.request(END, end_fields(half, COMMIT, check_answer=True)).code == 0, "the decision")
            check([record.body for record in bodies(client)] == [b"resumed"], "it is delivered, once")
            check("no message of a transaction" in admin.fails("resumeCheckHalfMessage", "-b", address, "-i",
                                                                 client.request(remoting.SEND_V2, remoting.send_fields("T", 0), b"x").ext["msgId"]), "a plain message")
            check(client.request(RESUME, {"msgId": "nonsense"}).code == 1, "no id at all")


@case
def the_log_rolls_with_rocketmqs_names():
    """By size and by number: broker.log, otherdays/broker.1.log, ... in the folder that the environment names."""
    with Cluster(nodes=1) as cluster:
        conf = os.path.join(cluster.folder, "n0", "broker.conf")
        with open(conf, encoding="ascii") as file:
            lines = [line for line in file if not line.startswith("logDir=")]
        with open(conf, "w", encoding="ascii") as file:
            file.writelines(lines + ["logFileSize=65536\n", "logFileCount=2\n"])
        folder = os.path.join(cluster.folder, "elsewhere")
        os.environ["LEDGERMQ_LOG_DIR"] = folder
        try:
            cluster.restart(0)
        finally:
            del os.environ["LEDGERMQ_LOG_DIR"]
        cluster.leader()
        check(sorted(os.listdir(folder)) == ["broker.log", "otherdays"], os.listdir(folder))
        with remoting.Connection(cluster.broker(0)) as client:
            number = 0
            while number < 6000 and sorted(os.listdir(os.path.join(folder, "otherdays"))) != ["broker.1.log", "broker.2.log"]:
                for _ in range(100):  # each is a line
                    check(client.request(UPDATE_CONFIG, {}, f"fileReservedTime={number % 70 + 1}\n".encode()).code == 0, "25")
                    number += 1
            rolled = os.path.getsize(os.path.join(folder, "otherdays", "broker.2.log"))
            first = open(os.path.join(folder, "otherdays", "broker.2.log"), encoding="utf-8").read().count("fileReservedTime")
            check(60000 < rolled <= 65536 and first > 100, (rolled, first))
            for _ in range(1500):
                check(client.request(UPDATE_CONFIG, {}, b"fileReservedTime=72\n").code == 0, "25")
        check(sorted(os.listdir(os.path.join(folder, "otherdays"))) == ["broker.1.log", "broker.2.log"], "two are kept")
        newest = open(os.path.join(folder, "otherdays", "broker.1.log"), encoding="utf-8").read()
        check("fileReservedTime = 72" in newest, "number 1 is the newest")
