"""Every command of mqadmin once against a live cluster, and what each must print."""
import json
import os
import re
import subprocess
import tempfile
import threading
import time

import remoting
from case_admin import Admin
from case_clients import CONSUME_DIRECTLY, RUNNING_INFO, UPDATE_OFFSET, heart_beat
from cluster import BIN, Cluster, check, wait_for
from e2e import case

TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
TIME_MS = TIME + r",\d{3}"
ID = r"[0-9A-F]{32}"
RATE = r"\d+\.\d\d"

# What RocketMQ's mqadmin 4.9.8 lists (the four commands for access control left out), and what is ours alone.
ROCKETMQ = set("""
    addWritePerm allocateMQ brokerConsumeStats brokerStatus checkMsgSendRT cleanExpiredCQ cleanUnusedTopic cloneGroupOffset clusterList clusterRT
    consumeMessage consumerConnection consumerProgress consumerStatus deleteExpiredCommitLog deleteKvConfig deleteSubGroup deleteTopic exportConfigs
    exportMetadata exportMetrics getBrokerConfig getConsumerConfig getNamesrvConfig printMsg printMsgByQueue producer producerConnection queryCq
    queryMsgById queryMsgByKey queryMsgByOffset queryMsgByUniqueKey queryMsgTraceById resetOffsetByTime sendMessage sendMsgStatus
    skipAccumulatedMessage startMonitoring statsAll topicClusterList topicList topicRoute topicStatus updateBrokerConfig updateKvConfig
    updateNamesrvConfig updateOrderConf updateSubGroup updateTopic updateTopicPerm wipeWritePerm
""".split())
OURS = {"DecodeMessageId", "backup", "bench", "checkBackup", "leader", "member", "resumeCheckHalfMessage", "transfer"}


def commands():
    text = subprocess.run([os.path.join(BIN, "mqadmin"), "help"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"^  (\w+) ", text, re.M))


class World:
    """T with two queues and four messages, group g on line and done, group lag off line and behind, producer group p."""

    def __init__(self, cluster, folder):
        self.cluster, self.folder = cluster, folder
        self.admin = Admin(cluster, folder)
        self.node = cluster.leader()
        # One that has just started says "not ready" where it would say that a topic is not there.
        wait_for("name servers that are sure", 10, lambda: all(remoting.ask(cluster.namesrv(i), remoting.ROUTE, {"topic": "none"}).code == 17 for i in range(3)))
        self.leader = cluster.broker(self.node)
        self.followers = [cluster.broker(i) for i in range(3) if i != self.node]
        self.client = remoting.Connection(self.leader, 5.0)
        self.consumer = remoting.Connection(self.leader, 5.0)
        self.ids, self.keys, self.sizes = [], [], []
        cluster.create_topic("T", 2)
        for number in range(4):
            key = f"7F000001{os.getpid() & 0xffff:04X}{number:020X}"
            properties = f"UNIQ_KEY\x01{key}\x02KEYS\x01k{number}\x02TAGS\x01{'AB'[number % 2]}"
            answer = self.client.request(remoting.SEND_V2, remoting.send_fields("T", number % 2, properties), b"body%d" % number)
            check(answer.code == 0, f"{answer}")
            self.ids.append(answer.ext["msgId"])
            self.keys.append(key)
        heart_beat(self.consumer, "c@1", producers=["p"], consumers=["g"])
        with remoting.Connection(self.leader, 5.0) as gone:
            heart_beat(gone, "d@2", consumers=["lag"])
        self.commit("g", 2)
        self.commit("lag", 1)
        self.admin.run("updateSubGroup", "-c", "DefaultCluster", "-g", "lag")
        wait_for("the retry topics", 10, lambda: all(remoting.ask(cluster.namesrv(0), remoting.ROUTE, {"topic": "%RETRY%" + group}).code == 0
                                                      for group in ("g", "lag")))
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def commit(self, group, offset):
        for queue in (0, 1):
            answer = self.client.request(UPDATE_OFFSET, {"consumerGroup": group, "topic": "T", "queueId": queue, "commitOffset": offset})
            check(answer.code == 0, f"{answer}")

    def serve(self):
        """The consumer: says what it does, and consumes what it is given."""
        queue = b'"mqTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:{"commitOffset":2,"locked":false,"droped":false,"cachedMsgCount":0}},'
        info = {"properties": {"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY", "PROP_CONSUMEORDERLY": "false"},
                "statusTable": {}, "subscriptionSet": [{"topic": "T", "classFilterMode": False, "subString": "*"}]}
        running = b"{" + queue + json.dumps(info, separators=(",", ":")).encode()[1:]
        consumed = json.dumps({"autoCommit": True, "consumeResult": "CR_SUCCESS", "order": False, "spentTimeMills": 3}).encode()
        while not self.stop.is_set():
            try:
                self.consumer.receive_some(0.1)
            except OSError:
                return
            for request in self.consumer.frames():
                if request.flag & 1 == 0 and request.code in (RUNNING_INFO, CONSUME_DIRECTLY):
                    self.consumer.respond(request, 0, running if request.code == RUNNING_INFO else consumed)

    def close(self):
        self.stop.set()
        self.thread.join()
        self.client.close()
        self.consumer.close()


def expect(lines, *patterns):
    """All lines, in order."""
    for number, pattern in enumerate(patterns):
        check(number < len(lines) and re.fullmatch(pattern, lines[number]), lambda: f"line {number + 1}: {pattern!r} is not in {lines}")
    check(len(lines) == len(patterns), lambda: f"more than expected: {lines[len(patterns):]}")


def has(lines, *patterns):
    for pattern in patterns:
        check(any(re.fullmatch(pattern, line) for line in lines), lambda: f"{pattern!r} is not in {lines}")


def says(words, text):
    check(words in text, f"{words!r} is not in {text!r}")


def message_lines(world, number, offset_id=True):
    head = [f"OffsetID: {world.ids[number]}"] if offset_id else []
    return head + ["Topic: T", rf"Tags: \[{'AB'[number % 2]}\]", rf"Keys: \[k{number}\]", f"Queue ID: {number % 2}", f"Queue Offset: {number // 2}",
                   rf"CommitLog Offset: {int(world.ids[number][16:], 16)}", "Reconsume Times: 0", f"Born Timestamp: {TIME_MS}",
                   f"Store Timestamp: {TIME_MS}", r"Born Host: 127\.0\.0\.1:\d+", f"Store Host: {re.escape(world.leader)}", "System Flag: 0",
                   rf"Properties: \{{.*UNIQ_KEY={world.keys[number]}.*\}}", f"Message Body: body{number}", "", ""]


TRACKS = [r"MessageTrack \[consumerGroup=g, trackType=CONSUMED, exceptionDesc=null\]",
          r"MessageTrack \[consumerGroup=lag, trackType=NOT_ONLINE, exceptionDesc=CODE:206 DESC:the consumer group\[lag\] not online\]"]


def topics(world):
    run, fails, leader = world.admin.run, world.admin.fails, world.leader
    expect(run("updateTopic", "-c", "DefaultCluster", "-t", "U", "-r", "3", "-w", "2", "-p", "6", "-o", "true"),
           f"create topic to {leader} success.", r"set cluster orderConf. isOrder=true, orderConf=\[broker-a:2\]",
           r"TopicConfig \[topicName=U, readQueueNums=3, writeQueueNums=2, perm=RW-, topicFilterType=SINGLE_TAG, topicSysFlag=0, order=true\]")
    check("'T T'" in world.admin.usage("updateTopic", "-b", leader, "-t", "T T"), "a bad name")
    expect(run("updateTopicPerm", "-c", "DefaultCluster", "-t", "U", "-p", "4"), f"update topic perm from 6 to 4 in {leader} success.",
           r"TopicConfig \[topicName=U, readQueueNums=3, writeQueueNums=2, perm=R--, topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false\]\.")
    expect(run("updateTopicPerm", "-b", leader, "-t", "U", "-p", "4"), "new perm equals to the old one!")
    expect(run("updateOrderConf", "-t", "U", "-m", "get"), r"get orderConf success. topic=\[U\], orderConf=\[broker-a:2\]")
    expect(run("updateOrderConf", "-t", "U", "-m", "put", "-v", "broker-a:9"), r"update orderConf success. topic=\[U\], orderConf=\[broker-a:9\]")
    expect(run("updateOrderConf", "-t", "U", "-m", "delete"), r"delete orderConf success. topic=\[U\]")
    says("CODE: 22", fails("updateOrderConf", "-t", "U", "-m", "get"))
    expect(run("topicRoute", "-t", "U", "-l"), "#ClusterName #BrokerName #BrokerAddrs #ReadQueue #WriteQueue #Perm",
           rf"DefaultCluster broker-a \{{0={leader}, \d={world.followers[0]}, \d={world.followers[1]}\}} 3 2 4", "-{158}", "Total: 1 3 2")
    route = json.loads("".join(run("topicRoute", "-t", "T")))
    check(route["queueDatas"] == [{"brokerName": "broker-a", "perm": 6, "readQueueNums": 2, "topicSysFlag": 0, "writeQueueNums": 2}], route)
    check(route["brokerDatas"][0]["brokerAddrs"]["0"] == leader and len(route["brokerDatas"][0]["brokerAddrs"]) == 3, route)
    # A name server that has just started asks to come again instead.
    wait_for("no such topic", 5, lambda: "CODE: 17" in fails("topicRoute", "-t", "none"))
    expect(run("topicStatus", "-t", "T"), "#Broker Name #QID #Min Offset #Max Offset #Last Updated", f"broker-a 0 0 2 {TIME_MS}",
           f"broker-a 1 0 2 {TIME_MS}")
    expect(run("topicClusterList", "-t", "T"), "DefaultCluster")
    has(run("topicList"), "T", "U", "%RETRY%g", "broker-a", "DefaultCluster", "TBW102")
    has(run("topicList", "-c"), "DefaultCluster T g", "DefaultCluster T lag", "DefaultCluster U")
    expect(run("allocateMQ", "-t", "T", "-i", "10.0.0.1,10.0.0.2,10.0.0.3"),
           re.escape('{"result":{"10.0.0.1":[{"brokerName":"broker-a","queueId":0,"topic":"T"}],"10.0.0.2":[{"brokerName":"broker-a","queueId":1,"topic":"T"}],'
                     '"10.0.0.3":[]}}'))
    expect(run("deleteTopic", "-c", "DefaultCluster", "-t", "U"), r"delete topic \[U\] from cluster \[DefaultCluster\] success\.",
           r"delete topic \[U\] from NameServer success\.")
    says("CODE: 17", fails("topicRoute", "-t", "U"))


def groups(world):
    run, fails, leader = world.admin.run, world.admin.fails, world.leader
    expect(run("updateSubGroup", "-b", leader, "-g", "G", "-s", "true", "-m", "true", "-d", "true", "-q", "2", "-r", "5", "-i", "0", "-w", "1", "-a", "false"),
           f"create subscription group to {leader} success.",
           r"SubscriptionGroupConfig \[groupName=G, consumeEnable=true, consumeFromMinEnable=true, consumeBroadcastEnable=true, retryQueueNums=2, "
           r"retryMaxTimes=5, brokerId=0, whichBrokerWhenConsumeSlowly=1, notifyConsumerIdsChangedEnable=false\]")
    expect(run("getConsumerConfig", "-g", "G"), "=+DefaultCluster:broker-a=+", "groupName = G", "consumeEnable = true", "consumeFromMinEnable = true",
           "consumeBroadcastEnable = true", "retryQueueNums = 2", "retryMaxTimes = 5", "brokerId = 0", "whichBrokerWhenConsumeSlowly = 1",
           "notifyConsumerIdsChangedEnable = false")
    expect(run("deleteSubGroup", "-c", "DefaultCluster", "-g", "G", "-r", "true"),
           rf"delete subscription group \[G\] from broker \[{leader}\] in cluster \[DefaultCluster\] success\.",
           r"delete topic \[%RETRY%G\] from cluster \[DefaultCluster\] success\.", r"delete topic \[%RETRY%G\] from NameServer success\.",
           r"delete topic \[%DLQ%G\] from cluster \[DefaultCluster\] success\.", r"delete topic \[%DLQ%G\] from NameServer success\.")
    says("no broker has a group G", fails("getConsumerConfig", "-g", "G"))
    head = "#Topic #Broker Name #QID #Broker Offset #Consumer Offset "
    expect(run("consumerProgress", "-g", "g", "-t", "T", "-s", "true"), head + "#Client IP #Diff #LastTime", rf"T broker-a 0 2 2 c 0 {TIME}",
           f"T broker-a 1 2 2 N/A 0 {TIME}", "", f"Consume TPS: {RATE}", "Diff Total: 0")
    has(run("consumerProgress"), "#Group #Count #Version #Type #Model #TPS #Diff Total", "g 1 V4_9_8 PUSH CLUSTERING 0 0")
    says("CODE: 17", fails("consumerProgress", "-g", "none"))
    expect(run("consumerConnection", "-g", "g"), "#ClientId #ClientAddr #Language #Version", r"c@1 127\.0\.0\.1:\d+ JAVA V4_9_8", "",
           "Below is subscription:", "#Topic #SubExpression", r"T \*", "", "ConsumeType: CONSUME_PASSIVELY", "MessageModel: CLUSTERING",
           "ConsumeFromWhere: CONSUME_FROM_LAST_OFFSET")
    says("CODE: 206", fails("consumerConnection", "-g", "lag", "-b", leader))
    has(run("consumerStatus", "-g", "g"), "#Index #ClientId #Version #ConsumerRunningInfoFile", r"1 c@1 V4_9_8 \d+/c@1", "Rebalance OK")
    has(run("consumerStatus", "-g", "g", "-i", "c@1"), "001 Topic: T ClassFilter: false SubExpression: .*", "T broker-a 0 2")
    expect(run("producerConnection", "-g", "p", "-t", "T"), r"0001 c@1 127\.0\.0\.1:\d+ JAVA V4_9_8")
    says("CODE: 1", fails("producerConnection", "-g", "none", "-t", "T"))
    expect(run("producer", "-b", leader),
           r"producer group \(p\) instance : clientId=c@1,remoteIP=/127\.0\.0\.1:\d+, language=JAVA, version=409, lastUpdateTimestamp=\d{13}")
    lines = run("startMonitoring", "--rounds", "1")
    expect(lines, r"\[MONITOR\] =+beginRound", r"\[MONITOR\] reportUndoneMsgs: UndoneMsgs \[consumerGroup=g, topic=T, undoneMsgsTotal=0, undoneMsgsSingleMQ=0, "
           r"undoneMsgsDelayTimeMills=\d+\]", r"\[MONITOR\] =+endRound")


def offsets(world):
    run, leader = world.admin.run, world.leader
    rows = [line.split(" 20")[0] for line in run("brokerConsumeStats", "-b", leader)]
    expect(sorted(row for row in rows if row.startswith("T lag")), "T lag broker-a 0 2 1 1", "T lag broker-a 1 2 1 1")
    has(rows, "Diff Total: 2", "#Topic #Group #Broker Name #QID #Broker Offset #Consumer Offset #Diff #LastTime")
    expect(run("cloneGroupOffset", "-s", "lag", "-d", "h", "-t", "T"), r"clone group offset success. srcGroup\[lag\], destGroup=\[h\], topic\[T\]")
    head = "#brokerName #queueId #brokerOffset #consumerOffset #timestampOffset #rollbackOffset"
    expect(run("skipAccumulatedMessage", "-g", "h", "-t", "T"), head, "broker-a 0 2 1 2 2", "broker-a 1 2 1 2 2")
    expect(run("resetOffsetByTime", "-g", "h", "-t", "T", "-s", "0"),
           r"rollback consumer offset by specified consumerGroup\[h\], topic\[T\], force\[true\], timestamp\(string\)\[0\], timestamp\(long\)\[0\]", head,
           "broker-a 0 2 2 0 0", "broker-a 1 2 2 0 0")
    lines = run("statsAll", "-t", "T")
    check(lines[0] == "#Topic #Consumer Group #Accumulation #InTPS #OutTPS #InMsg24Hour #OutMsg24Hour", lines)
    expect(sorted(lines[1:]), rf"T g 0 {RATE} {RATE} 4 0", rf"T h 4 {RATE} {RATE} 4 0", rf"T lag 2 {RATE} {RATE} 4 0")


def messages(world):
    run, fails = world.admin.run, world.admin.fails
    lines = run("queryMsgById", "-i", world.ids[2])
    expect(lines[:-2], *message_lines(world, 2))
    expect(sorted(lines[-2:]), *TRACKS)
    lines = run("queryMsgByUniqueKey", "-t", "T", "-i", world.keys[1])
    expect(lines[:-2], *message_lines(world, 1, False))
    lines = run("queryMsgByOffset", "-t", "T", "-b", "broker-a", "-i", "1", "-o", "1")
    expect(lines[:-2], *message_lines(world, 3))
    direct = r"ConsumeMessageDirectlyResult \[order=false, autoCommit=true, consumeResult=CR_SUCCESS, remark=null, spentTimeMills=3\]"
    expect(run("queryMsgById", "-i", world.ids[0], "-g", "g", "-d", "c@1"), direct)
    expect(run("queryMsgByUniqueKey", "-t", "T", "-i", world.keys[0], "-g", "g", "-d", "c@1"), direct)
    says("not online", fails("queryMsgById", "-i", world.ids[0], "-g", "g", "-d", "c@2"))
    run("updateTopic", "-c", "DefaultCluster", "-t", "Again", "-r", "1", "-w", "1")
    sent = world.client.request(remoting.SEND_V2, remoting.send_fields("Again", 0, f"UNIQ_KEY\x01{'A' * 32}\x02KEYS\x01k\x02TAGS\x01t\x02own\x01v"), b"again")
    expect(run("queryMsgById", "-i", sent.ext["msgId"], "-s", "true"), f"prepare resend msg. originalMsgId={sent.ext['msgId']}",
           rf"SendResult \[sendStatus=SEND_OK, msgId={ID}, offsetMsgId={ID}, messageQueue=MessageQueue \[topic=Again, brokerName=broker-a, queueId=0\], "
           r"queueOffset=1\]")
    lines = run("printMsg", "-t", "Again")
    check(len([line for line in lines if line.endswith("BODY: again") and "KEYS=k" in line and "TAGS=t" in line and "own=v" in line]) == 2, lines)
    says("CODE: 1", fails("queryMsgById", "-i", world.ids[0][:16] + "00007FFFFFFFFFF0"))
    expect(run("queryMsgByKey", "-t", "T", "-k", "k3"), "#Message ID #QID #Offset", f"{world.keys[3]} 1 1")
    says("208", fails("queryMsgByKey", "-t", "T", "-k", "none"))
    says("no message at offset 9", fails("queryMsgByOffset", "-t", "T", "-b", "broker-a", "-i", "1", "-o", "9"))
    expect(run("DecodeMessageId", "-i", world.ids[0]), rf"as an offset id: {world.leader}, commit log offset \d+", r"as a UNIQ_KEY: made .*")
    lines = run("printMsg", "-t", "T", "-s", "A")
    check([line.split("BODY: ")[1] for line in lines if line.startswith("MSGID: ")] == ["body0", "body2"], lines)
    expect(run("printMsgByQueue", "-t", "T", "-a", "broker-a", "-i", "1", "-f", "true"), "Tag: B Count: 2")
    lines = run("consumeMessage", "-t", "T")
    check(sorted(line.split("BODY: ")[1] for line in lines if line.startswith("MSGID: ")) == [f"body{i}" for i in range(4)] and "Consume ok" in lines, lines)
    has(run("queryCq", "-t", "T", "-q", "1", "-i", "1", "-c", "1"), "max: 2, min: 0", "idx: 1", rf"ConsumeQueueData\{{physicOffset={int(world.ids[3][16:], 16)}, .*")


def sends(world):
    run, fails = world.admin.run, world.admin.fails
    run("updateTopic", "-c", "DefaultCluster", "-t", "S", "-r", "2", "-w", "2")
    head = "#Broker Name #QID #Send Result #MsgId"
    lines = run("sendMessage", "-t", "S", "-p", "words", "-k", "key", "-c", "tag", "-b", "broker-a", "-i", "1", "-m", "true")
    expect(lines, head, f"broker-a 1 SEND_OK {ID}")
    expect(run("queryMsgTraceById", "-i", lines[1].split()[-1]), "#Type #ProducerGroup #ClientHost #SendTime #CostTimes #Status",
           rf"Pub CLIENT_INNER_PRODUCER 127\.0\.0\.1 {TIME} \d+ms success", "")
    says("no trace", fails("queryMsgTraceById", "-i", "A" * 32))
    row = (rf"rt=\d+ms, SendResult=SendResult \[sendStatus=SEND_OK, msgId={ID}, offsetMsgId={ID}, messageQueue=MessageQueue \[topic=broker-a, "
           r"brokerName=broker-a, queueId=0\], queueOffset=%d\]")
    expect(run("sendMsgStatus", "-b", "broker-a", "-s", "64", "-c", "3"), *(row % (number + 1) for number in range(3)))
    expect(run("checkMsgSendRT", "-t", "S", "-a", "4", "-s", "100"), "#Broker Name #QID #Send Result #RT", r"broker-a 0 true \d+", r"broker-a 1 true \d+",
           r"broker-a 0 true \d+", r"broker-a 1 true \d+", f"Avg RT: {RATE}")
    expect(run("topicStatus", "-t", "S")[1:], f"broker-a 0 0 2 {TIME_MS}", f"broker-a 1 0 3 {TIME_MS}")
    expect(run("clusterRT", "-c", "DefaultCluster", "-a", "3", "-s", "64", "-i", "1", "--rounds", "2"),
           "#Cluster Name #Broker Name #RT #successCount #failCount", *[rf"DefaultCluster broker-a {RATE} 3 0"] * 2)
    says("cluster [none] not exist", fails("clusterRT", "-c", "none", "-s", "64"))
    says("illegal", fails("checkMsgSendRT", "-t", "no topic", "-s", "1"))


def brokers(world):
    run, fails, leader = world.admin.run, world.admin.fails, world.leader
    lines = run("clusterList")
    load = r"\d+\.\d\d\(\d+,\d+ms\)"
    check(lines[0] == "#Cluster Name #Broker Name #BID #Addr #Version #InTPS(LOAD) #OutTPS(LOAD) #PCWait(ms) #Hour #SPACE", lines)
    has(lines, rf"DefaultCluster broker-a 0 {leader} V4_9_8 {load} {load} \d+ 0\.\d\d 0\.\d{{4}}",
        *(rf"DefaultCluster broker-a [123] {follower} V4_9_8 {load} {load} \d+ 0\.\d\d 0\.\d{{4}}" for follower in world.followers))
    has(run("clusterList", "-m"), "#Cluster Name #Broker Name #InTotalYest #OutTotalYest #InTotalToday #OutTotalToday", r"DefaultCluster broker-a 0 0 [1-9]\d* \d+")
    has(run("brokerStatus", "-b", leader), r"msgPutTotalTodayNow : [1-9]\d*", "brokerVersionDesc : V4_9_8")
    has(run("brokerStatus", "-c", "DefaultCluster"), *(f"{address} brokerVersion : 409" for address in [leader, *world.followers]))
    expect(run("updateBrokerConfig", "-c", "DefaultCluster", "-k", "fileReservedTime", "-v", "71"), f"update broker config success, {leader}")
    has(run("getBrokerConfig", "-b", leader), f"=+{leader}=+", "fileReservedTime = 71", "brokerName = broker-a")
    has(run("getBrokerConfig", "-c", "DefaultCluster"), f"=+Master: {leader}=+", *(f"=+Slave: {follower}=+" for follower in world.followers))
    says("CODE: 16", fails("updateBrokerConfig", "-b", leader, "-k", "rocketmqHome", "-v", "/tmp"))
    for command in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        expect(run(command, "-c", "DefaultCluster"), "success")
        expect(run(command, "-b", world.followers[0]), "success")
        fails(command, "-b", "127.0.0.1:1")
    has(run("leader"), ".*LEADER.*")
    figures = json.loads("".join(run("bench", "-t", "Bench", "--count", "1000", "--json")))
    check(figures["acknowledged"] == 1000 and figures["errors"] == {} and figures["unanswered"] == 0, figures)
    expect(run("transfer", "-i", f"n{world.node}"), f"n{world.node} leads group broker-a already.")
    says("n7 is no member of group broker-a", fails("transfer", "-i", "n7"))
    has(run("backup", "-f", os.path.join(world.cluster.folder, "copy")), r"\d+ entries, \d+ bytes, all checked, are in .*copy\.")
    has(run("checkBackup", "-f", os.path.join(world.cluster.folder, "copy")), r".*copy is whole: group \S+ of n0;n1;n2, entries 0 to \d+\.")
    expect(run("member", "promote", "-i", "n0"), "n0 has a vote.")
    says("is no member", fails("member", "promote", "-i", "n7"))
    says("no message of this id", fails("resumeCheckHalfMessage", "-b", leader, "-i", "0" * 32))


def name_servers(world):
    run, fails = world.admin.run, world.admin.fails
    expect(run("updateKvConfig", "-s", "N", "-k", "K", "-v", "V=1;x"), "create or update kv config to namespace success.")
    check(remoting.ask(world.cluster.namesrv(2), 101, {"namespace": "N", "key": "K"}).ext["value"] == "V=1;x", "on every name server")
    expect(run("deleteKvConfig", "-s", "N", "-k", "K"), "delete kv config from namespace success.")
    check(remoting.ask(world.cluster.namesrv(1), 101, {"namespace": "N", "key": "K"}).code == 22, "it is gone")
    for verb, perm in (("wipe", 4), ("add", 6)):
        expect(sorted(run(f"{verb}WritePerm", "-b", "broker-a")),
               *(rf"{verb} write perm of broker\[broker-a\] in name server\[{world.cluster.namesrv(i)}\] OK, [1-9]\d*" for i in range(3)))
        check(json.loads("".join(run("topicRoute", "-t", "T")))["queueDatas"][0]["perm"] == perm, verb)
    has(run("getNamesrvConfig"), "orderMessageEnable = .*", *(f"=+{world.cluster.namesrv(i)}=+" for i in range(3)))
    expect(run("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true"), "update name server config success!", "orderMessageEnable : true")
    says("CODE: 16", fails("updateNamesrvConfig", "-k", "kvConfigPath", "-v", "x"))


def exports(world):
    run, folder = world.admin.run, os.path.join(world.folder, "export", "here")

    def export(name, *arguments):
        expect(run(*arguments, "-f", folder), f"export {folder}/{name} success")
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            return json.load(file)
    data = export("metadata.json", "exportMetadata", "-c", "DefaultCluster")
    check(data["topicConfigTable"]["T"] == {"order": False, "perm": 6, "readQueueNums": 2, "topicFilterType": "SINGLE_TAG", "topicName": "T",
                                            "topicSysFlag": 0, "writeQueueNums": 2}, data)
    check("lag" in data["subscriptionGroupTable"] and "CID_ONSAPI_PULL" not in data["subscriptionGroupTable"], data)
    check("TBW102" not in data["topicConfigTable"] and "%RETRY%g" not in data["topicConfigTable"] and data["exportTime"] > 1e12, data)
    check("%RETRY%g" in export("topic.json", "exportMetadata", "-b", world.leader, "-t", "-s")["topicConfigTable"], "special topics")
    data = export("subscriptionGroup.json", "exportMetadata", "-b", world.leader, "-g")
    check(set(data) == {"dataVersion", "subscriptionGroupTable"}, data)
    data = export("configs.json", "exportConfigs", "-c", "DefaultCluster")
    check(data["clusterScale"] == {"masterBrokerSize": 1, "namesrvSize": 3, "slaveBrokerSize": 2}, data)
    check(data["brokerConfigs"]["broker-a"]["brokerClusterName"] == "DefaultCluster" and len(data["brokerConfigs"]["broker-a"]) == 16, data)
    data = export("metrics.json", "exportMetrics", "-c", "DefaultCluster")
    report = data["evaluateReport"]["broker-a"]
    check(report["runtimeEnv"] == {"cpuNum": str(os.cpu_count())} and report["runtimeVersion"] == {"clientInfo": ["JAVA%V4_9_8"], "rocketmqVersion": "V4_9_8"},
          report)
    check(report["runtimeQuota"]["topicSize"] >= 3 and report["runtimeQuota"]["groupSize"] >= 2 and set(data["totalData"]) == {"totalOneDayNum", "totalTps"}, data)


@case
def mqadmin_every_command():
    """A2: among them cleanUnusedTopic by cluster."""
    names = commands()
    check(names == ROCKETMQ | OURS, f"missing {(ROCKETMQ | OURS) - names}, unknown here {names - ROCKETMQ - OURS}")
    with Cluster(settings=("traceTopicEnable=true",)) as cluster, tempfile.TemporaryDirectory() as folder:
        world = World(cluster, folder)
        try:
            for part in (topics, groups, messages, offsets, sends, brokers, name_servers, exports):
                part(world)
        finally:
            world.close()
        left = names - world.admin.used
        check(not left, f"never run: {left}")


@case
def mqadmin_monitor_reports_moved_offsets():
    with Cluster(nodes=1) as cluster:
        cluster.create_topic("T", 1)
        with subprocess.Popen([os.path.join(BIN, "mqadmin"), "startMonitoring", "--interval", "1"], env=Admin(cluster).environment, stdout=subprocess.PIPE,
                              text=True) as monitor, remoting.Connection(cluster.broker(0)) as client:
            try:
                check("beginRound" in monitor.stdout.readline(), "a round")
                check(client.request(remoting.SEND_V2, remoting.send_fields("T", 0), b"x").code == 0, "send")
                check(client.request(remoting.PULL, remoting.pull_fields("T", 0, 1000)).code == 21, "a pull behind the end")
                end = time.monotonic() + 20
                line = ""
                while "DeleteMsgs" not in line and time.monotonic() < end:
                    line = monitor.stdout.readline()
                check("OffsetMovedEvent [consumerGroup=e2e-consumer, messageQueue=MessageQueue [topic=T, brokerName=broker-a, queueId=0], offsetRequest=1000, "
                      "offsetNew=1]" in line, line)
            finally:
                monitor.kill()
