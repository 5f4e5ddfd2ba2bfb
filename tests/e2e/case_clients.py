"""What the broker asks of its clients, and what it counts of them: request-reply, running info, messages handed over at once, offsets reset."""
import json
import os
import re
import shutil
import threading
import time

import remoting
from cluster import Cluster, check, wait_for
from e2e import case
from failover import alone

HEART_BEAT, UPDATE_OFFSET, QUERY_OFFSET, ALL_OFFSETS, CREATE_TOPIC = 34, 15, 14, 43, 17
RESET, ASK_STATUS, INVOKE_RESET, INVOKE_STATUS = 220, 221, 222, 223
RUNNING_INFO, CONSUME_DIRECTLY, VIEW_STATS, CLEAN_QUEUES, CLEAN_TOPICS, DELETE_EXPIRED = 307, 309, 315, 306, 316, 329
SEND_REPLY, SEND_REPLY_V2, PUSH_REPLY, SEND_BACK = 324, 325, 326, 36
CONSUME_STATS, BROKER_CONSUME_STATS = 208, 317


def heart_beat(connection, client, producers=(), consumers=(), topic="T"):
    subscription = {"classFilterMode": False, "codeSet": [], "expressionType": "TAG", "subString": "*", "subVersion": 1, "tagsSet": [], "topic": topic}
    body = {"clientID": client, "producerDataSet": [{"groupName": name} for name in producers],
            "consumerDataSet": [{"consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "consumeType": "CONSUME_PASSIVELY", "groupName": name,
                                 "messageModel": "CLUSTERING", "subscriptionDataSet": [subscription], "unitMode": False} for name in consumers]}
    answer = connection.request(HEART_BEAT, None, json.dumps(body).encode())
    check(answer.code == 0, f"heart-beat: {answer}")


def reply_fields(client, topic="DefaultCluster_REPLY_TOPIC", correlation="c1"):
    properties = f"MSG_TYPE\x01reply\x02CORRELATION_ID\x01{correlation}"
    if client is not None:
        properties += f"\x02REPLY_TO_CLIENT\x01{client}"
    return remoting.send_fields(topic, 0, properties, group="replier")


def offsets_of(answer):
    """{queue: offset} of a map-shaped body."""
    found = re.findall(rb'\{"brokerName":"broker-a","queueId":(\d+),"topic":"T"\}:(\d+)', answer.body)
    return {int(queue): int(offset) for queue, offset in found}


@case
def a_reply_reaches_the_requester_and_is_stored():
    with Cluster(nodes=1) as cluster:
        address = cluster.broker(0)
        with remoting.Connection(address) as requester, remoting.Connection(address) as replier:
            heart_beat(requester, "asker@1", producers=["p", "q"])
            for number, (code, accept) in enumerate(((SEND_REPLY_V2, 0), (SEND_REPLY_V2, 1))):
                opaque = replier.send(code, reply_fields("asker@1", correlation=f"c{number}"), b"the reply")
                pushed = requester.next_request(PUSH_REPLY)
                check(pushed.body == b"the reply" and pushed.flag == 0, f"pushed {pushed}")
                check(f"CORRELATION_ID\x01c{number}" in pushed.ext["properties"] and "PUSH_REPLY_TIME\x01" in pushed.ext["properties"], pushed.ext)
                check(re.fullmatch(r"127\.0\.0\.1:\d+", pushed.ext["bornHost"]) and pushed.ext["storeHost"] == address
                      and pushed.ext["producerGroup"] == "replier" and int(pushed.ext["storeTimestamp"]) > 0, pushed.ext)
                requester.respond(pushed, accept)
                answer = replier.answer(opaque)
                check(answer.code == accept, f"{answer}")
                check(answer.ext["queueOffset"] == str(number) and len(answer.ext["msgId"]) == 32 and answer.ext["queueId"] == "0", answer.ext)
                check(answer.ext["MSG_REGION"] == "DefaultRegion" and answer.ext["TRACE_ON"] == "true", answer.ext)
                check(accept == 0 or answer.remark == "push reply message to asker@1fail.", answer.remark)
            # The short keys are 325's, the long ones 324's; nobody is there, yet it is stored.
            long = {"producerGroup": "replier", "topic": "DefaultCluster_REPLY_TOPIC", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 0,
                    "sysFlag": 0, "bornTimestamp": 1, "flag": 0, "properties": "REPLY_TO_CLIENT\x01nobody"}
            answer = replier.request(SEND_REPLY, long, b"x")
            check(answer.code == 1 and answer.remark == "push reply message fail, channel of <nobody> not found.", f"{answer}")
            check(answer.ext["queueOffset"] == "2", answer.ext)
            answer = replier.request(SEND_REPLY_V2, reply_fields(None), b"x")
            check(answer.code == 1 and answer.remark == "reply message properties[REPLY_TO_CLIENT] is null", f"{answer}")
            stored = remoting.read_queue(replier, "DefaultCluster_REPLY_TOPIC", 0)
            check([record.body for record in stored] == [b"the reply", b"the reply", b"x", b"x"], stored)
            check("PUSH_REPLY_TIME" not in stored[0].properties and "REPLY_TO_CLIENT\x01asker@1" in stored[0].properties, stored[0].properties)
            # The checks of a send come first.
            check(replier.request(SEND_REPLY_V2, reply_fields("asker@1", topic="a b"), b"x").code == 1, "bad topic")
            answer = replier.request(SEND_REPLY_V2, reply_fields("nobody", topic="made_for_it"), b"x")
            check(answer.code == 1 and remoting.max_offset(replier, "made_for_it") == 1, f"an auto-created topic: {answer}")
            check(replier.request(25, None, b"storeReplyMessageEnable=false\n").code == 0, "25")
            before = remoting.max_offset(replier, "DefaultCluster_REPLY_TOPIC")
            answer = replier.request(SEND_REPLY_V2, reply_fields("nobody"), b"x")
            check(answer.code == 1 and "msgId" not in answer.ext and remoting.max_offset(replier, "DefaultCluster_REPLY_TOPIC") == before, f"{answer}")


@case
def a_requester_that_is_silent_or_gone():
    with Cluster(nodes=1) as cluster:
        address = cluster.broker(0)
        with remoting.Connection(address) as replier:
            requester = remoting.Connection(address)
            heart_beat(requester, "asker@1", producers=["p"])
            opaque = replier.send(SEND_REPLY_V2, reply_fields("asker@1"), b"x")
            requester.next_request(PUSH_REPLY)
            requester.close()
            answer = replier.answer(opaque, 2)
            check(answer.code == 1 and answer.remark == "push reply message to asker@1fail.", f"{answer}")
            with remoting.Connection(address) as silent:
                heart_beat(silent, "asker@2", producers=["p"])
                start = time.monotonic()
                opaque = replier.send(SEND_REPLY_V2, reply_fields("asker@2"), b"x")
                answer = replier.answer(opaque, 15)
                took = time.monotonic() - start
                check(answer.code == 1 and 9.9 < took < 12 * remoting.PATIENCE, f"{answer} after {took:.1f} s")
                # What comes too late is nobody's answer, and harms nothing.
                silent.respond(silent.next_request(PUSH_REPLY))
                check(silent.request(38, {"consumerGroup": "none"}).code == 1, "still served")


@case
def running_info_and_one_message_at_once():
    with Cluster(nodes=1) as cluster:
        address = cluster.broker(0)
        cluster.create_topic("T", 2)
        with remoting.Connection(address, timeout=15) as tool, remoting.Connection(address) as consumer:
            heart_beat(consumer, "c@1", consumers=["g"])
            fields = {"consumerGroup": "g", "clientId": "c@1", "jstackEnable": True, "AccessKey": "secret", "Signature": "s"}
            opaque = tool.send(RUNNING_INFO, fields)
            asked = consumer.next_request(RUNNING_INFO)
            check(asked.ext == {"consumerGroup": "g", "clientId": "c@1", "jstackEnable": "true"}, asked.ext)
            consumer.respond(asked, 0, b'{"properties":{}}', "fine")
            answer = tool.answer(opaque)
            check(answer.code == 0 and answer.body == b'{"properties":{}}' and answer.remark == "fine", f"{answer}")
            sent = tool.request(remoting.SEND_V2, remoting.send_fields("T", 1, "KEYS\x01k"), b"the body")
            opaque = tool.send(CONSUME_DIRECTLY, {"consumerGroup": "g", "clientId": "c@1", "msgId": sent.ext["msgId"], "topic": "T"})
            asked = consumer.next_request(CONSUME_DIRECTLY)
            check([record.body for record in remoting.records(asked.body)] == [b"the body"] and asked.ext["brokerName"] == "broker-a", f"{asked}")
            consumer.respond(asked, 0, b'{"consumeResult":"CR_SUCCESS"}')
            check(tool.answer(opaque).body == b'{"consumeResult":"CR_SUCCESS"}', "309")

            for fields, text in (({"consumerGroup": "g", "clientId": "x"}, "The Consumer <g> <x> not online"),
                                 ({"consumerGroup": "none", "clientId": "c@1"}, "The Consumer <none> <c@1> not online"),
                                 ({"consumerGroup": "g"}, "field clientId is missing")):
                answer = tool.request(RUNNING_INFO, fields)
                check(answer.code == 1 and answer.remark == text, f"{answer}")
            for message in ("7F0000010000", sent.ext["msgId"][:-4] + "0001", ""):
                answer = tool.request(CONSUME_DIRECTLY, {"consumerGroup": "g", "clientId": "c@1", "msgId": message})
                check(answer.code == 1 and "can not find message" in answer.remark, f"{message}: {answer}")
            with remoting.Connection(address, version=61) as old:
                heart_beat(old, "old@1", consumers=["h"])
                answer = tool.request(RUNNING_INFO, {"consumerGroup": "h", "clientId": "old@1"})
                check(answer.code == 1 and "too low to finish" in answer.remark, f"{answer}")
            # A client that does not answer, and one that goes.
            opaque = tool.send(RUNNING_INFO, {"consumerGroup": "g", "clientId": "c@1"})
            start = time.monotonic()
            answer = tool.answer(opaque)
            check(answer.code == 207 and answer.remark.startswith("consumer <g> <c@1> Timeout:") and time.monotonic() - start > 9.9, f"{answer}")
            opaque = tool.send(RUNNING_INFO, {"consumerGroup": "g", "clientId": "c@1"})
            wait_for("the call to be out", 5, lambda: tool.request(28, {}).body.count(b'"clientCalls":"1"'))
            consumer.close()
            answer = tool.answer(opaque)
            check(answer.code == 1 and answer.remark.startswith("invoke consumer <g> <c@1> Exception"), f"{answer}")


@case
def offsets_are_reset_on_line_and_off_line():
    with Cluster() as cluster:
        leader = cluster.leader()
        address = cluster.broker(leader)
        cluster.create_topic("T", 2)
        fields = {"topic": "T", "group": "g", "timestamp": -1, "isForce": True}
        with remoting.Connection(address) as tool, remoting.Connection(address, version=479) as five:
            for queue in (0, 1):
                for number in range(5 + queue):
                    check(tool.request(remoting.SEND_V2, remoting.send_fields("T", queue), b"m%d" % number).code == 0, "send")
            answer = tool.request(INVOKE_RESET, dict(fields, topic="none"))
            check(answer.code == 1 and answer.remark == "[reset-offset] reset offset failed, no topic in this broker. topic=none", f"{answer}")
            answer = tool.request(INVOKE_RESET, fields)
            check(answer.code == 1 and answer.remark == "THe consumer group <g> not exist", f"{answer}")
            for queue in (0, 1):
                check(tool.request(UPDATE_OFFSET, {"consumerGroup": "g", "topic": "T", "queueId": queue, "commitOffset": 2}).code == 0, "15")
            answer = tool.request(INVOKE_RESET, fields)
            check(answer.code == 206 and answer.remark == "Consumer not online, so can not reset offset, Group: g Topic: T Timestamp: -1", f"{answer}")

            java, cpp = remoting.Connection(address), remoting.Connection(address, language="CPP")
            heart_beat(java, "java@1", consumers=["g"])
            heart_beat(cpp, "cpp@1", consumers=["g"])
            # Asked of a follower: the leader's clients are told.
            answer = remoting.ask(cluster.broker((leader + 1) % 3), INVOKE_RESET, fields)
            check(answer.code == 0 and offsets_of(answer) == {0: 5, 1: 6}, f"{answer}")
            pushed = java.next_request(RESET)
            check(pushed.flag == 2 and offsets_of(pushed) == {0: 5, 1: 6} and pushed.ext == {"topic": "T", "group": "g", "timestamp": "-1", "isForce": "false"},
                  f"{pushed}")
            table = json.loads(cpp.next_request(RESET).body)["offsetTable"]
            check([(row["queueId"], row["offset"], row["topic"]) for row in table] == [(0, 5, "T"), (1, 6, "T")], table)
            # Without force only backwards.
            answer = tool.request(INVOKE_RESET, dict(fields, isForce=False))
            check(offsets_of(answer) == {0: 2, 1: 2} and offsets_of(java.next_request(RESET)) == {0: 2, 1: 2}, f"{answer}")
            answer = tool.request(INVOKE_RESET, dict(fields, isForce=False, timestamp=1))
            check(offsets_of(answer) == {0: 0, 1: 0} and offsets_of(java.next_request(RESET)) == {0: 0, 1: 0}, f"{answer}")

            # 223: who answers is shown.
            heart_beat(java, "java@1", consumers=["g"])
            opaque = tool.send(INVOKE_STATUS, {"topic": "T", "group": "g"})
            asked = java.next_request(ASK_STATUS)
            check(asked.ext == {"topic": "T", "group": "g"}, asked.ext)
            java.respond(asked, 0, b'{"consumerTable":{},"messageQueueTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:3}}')
            cpp.respond(cpp.next_request(ASK_STATUS), 1)
            answer = tool.answer(opaque)
            check(answer.body == b'{"consumerTable":{"java@1":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:3}}}', f"{answer}")
            answer = tool.request(INVOKE_STATUS, {"topic": "T", "group": "g", "clientAddr": "nobody"})
            check(answer.code == 0 and answer.body == b'{"consumerTable":{}}', f"{answer}")
            answer = tool.request(INVOKE_STATUS, {"topic": "T", "group": "none"})
            check(answer.code == 1 and answer.remark == "No Any Consumer online in the consumer group: [none]", f"{answer}")
            java.close()
            cpp.close()

            # 5.3.3 sets them itself, on line or not, for one queue or all.
            wait_for("the group to be gone", 5, lambda: tool.request(38, {"consumerGroup": "g"}).code == 1)
            answer = five.request(INVOKE_RESET, fields)
            check(answer.code == 0 and offsets_of(answer) == {0: 5, 1: 6}, f"{answer}")
            answer = five.request(INVOKE_RESET, dict(fields, queueId=1, offset=4))
            check(answer.code == 0 and offsets_of(answer) == {1: 4}, f"{answer}")
            check(five.request(INVOKE_RESET, dict(fields, queueId=1, offset=99)).code == 1, "beyond the end")
            check(five.request(INVOKE_RESET, dict(fields, queueId=7, offset=1)).code == 1, "no such queue")
            check(five.request(INVOKE_RESET, dict(fields, topic="none")).code == 17, "no such topic")
            check(five.request(INVOKE_RESET, dict(fields, group="none")).code == 26, "no such group")
        cluster.kill(leader)
        cluster.leader(but=leader)
        with remoting.Connection(cluster.broker(cluster.leader())) as tool:
            found = [tool.request(QUERY_OFFSET, {"consumerGroup": "g", "topic": "T", "queueId": queue}).ext.get("offset") for queue in (0, 1)]
            check(found == ["5", "4"], f"after the failover: {found}")


@case
def every_count_is_that_of_the_traffic():
    with Cluster(nodes=1) as cluster:
        address = cluster.broker(0)
        cluster.create_topic("T", 2)

        def stats(name, key):
            answer = client.request(VIEW_STATS, {"statsName": name, "statsKey": key})
            check(answer.code == 0, f"{name} {key}: {answer}")
            return json.loads(answer.body)

        with remoting.Connection(address) as client:
            answer = client.request(VIEW_STATS, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "U"})
            check(answer.code == 1 and answer.remark == "The stats <TOPIC_PUT_NUMS> <U> not exist", f"{answer}")
            check(stats("TOPIC_PUT_NUMS", "T")["statsDay"]["sum"] == 0, "what is there counts 0")
            size = 0
            for number in range(20):
                answer = client.request(remoting.SEND_V2, remoting.send_fields("T", number % 2), b"x" * 100)
                check(answer.code == 0, f"{answer}")
            heart_beat(client, "c@1", consumers=["g"])
            for queue in (0, 1):
                found = remoting.read_queue(client, "T", queue)
                size += sum(record.size for record in found)
                check(client.request(remoting.PULL, remoting.pull_fields("T", queue, 0, group="g")).code == 0, "pull")
                check(client.request(UPDATE_OFFSET, {"consumerGroup": "g", "topic": "T", "queueId": queue, "commitOffset": 10}).code == 0, "15")
            # A delayed message: stored for a second, delivered, counted in both topics.
            check(client.request(remoting.SEND_V2, remoting.send_fields("T", 0, "DELAY\x011"), b"late").code == 0, "delayed")
            back = {"offset": found[0].position, "group": "g", "delayLevel": 1, "originTopic": "T", "originMsgId": "x"}
            check(client.request(SEND_BACK, back).code == 0, "36")
            wait_for("the delivery", 5, lambda: remoting.max_offset(client, "T", 0) == 11)
            wait_for("the retry", 5, lambda: remoting.max_offset(client, "%RETRY%g", 0) == 1)

            item = stats("TOPIC_PUT_NUMS", "T")
            check(item["statsMinute"]["sum"] == item["statsDay"]["sum"] == 21 and item["statsMinute"]["tps"] > 0 and item["statsMinute"]["avgpt"] == 1.0, item)
            check(stats("TOPIC_PUT_SIZE", "T")["statsHour"]["sum"] > size, "bytes of the topic")
            check(stats("GROUP_GET_NUMS", "T@g")["statsMinute"]["sum"] == 20, "pulled")
            check(stats("GROUP_GET_SIZE", "T@g")["statsMinute"]["sum"] == size, "bytes pulled")
            check(stats("GROUP_GET_NUMS", "T@e2e-consumer")["statsMinute"]["sum"] == 20, "pulled by another")
            check(stats("GROUP_GET_LATENCY", "1@T@g")["statsMinute"]["sum"] < 1000, "latency")
            check(stats("GROUP_GET_FALL_SIZE", "1@T@g")["statsMinute"]["sum"] == 0, "behind")
            check(stats("SNDBCK_PUT_NUMS", "T@g")["statsMinute"]["sum"] == 1, "sent back")
            check(stats("TOPIC_PUT_NUMS", "SCHEDULE_TOPIC_XXXX")["statsMinute"]["sum"] == 2, "delayed")
            check(stats("QUEUE_PUT_NUMS", "SCHEDULE_TOPIC_XXXX@0")["statsMinute"]["sum"] == 2, "delayed, by queue")
            check(stats("QUEUE_GET_NUMS", "SCHEDULE_TOPIC_XXXX@0@SCHEDULE_CONSUMER")["statsMinute"]["sum"] == 2, "delivered, by queue")
            check(stats("QUEUE_GET_SIZE", "SCHEDULE_TOPIC_XXXX@0@SCHEDULE_CONSUMER")["statsMinute"]["sum"] > 0, "bytes delivered")
            check(stats("BROKER_PUT_NUMS", "DefaultCluster")["statsMinute"]["sum"] == 23, "all puts")
            check(stats("BROKER_GET_NUMS", "DefaultCluster")["statsMinute"]["sum"] >= 40, "all gets")
            answer = client.request(CONSUME_STATS, {"consumerGroup": "g", "topic": "T"})
            tps = float(re.search(rb'"consumeTps":([0-9.E-]+)', answer.body).group(1))
            check(0.2 < tps < 2.1, f"consumeTps {tps}")
            check(re.search(rb'"consumeTps":0\.0,', client.request(CONSUME_STATS, {"consumerGroup": "none"}).body), "nobody's tps")
            check(re.search(rb'"consumeTps":[1-9]', client.request(BROKER_CONSUME_STATS, {"isOrder": False}).body)
                  or re.search(rb'"consumeTps":0\.[0-9]*[1-9]', client.request(BROKER_CONSUME_STATS, {"isOrder": False}).body), "317")

            # A follower of nothing: what is there is cleaned.
            check(client.request(CLEAN_QUEUES, {}).code == 0 and client.request(CLEAN_TOPICS, {}).code == 0, "306, 316")
            check(remoting.max_offset(client, "T", 0) == 11, "a topic in use is left alone")
            check(client.request(DELETE_EXPIRED, {}).code == 0, "329: nothing has expired")


@case
def a_slow_send_is_logged_and_seen_waiting():
    with Cluster(settings=("electionTimeoutMs=4000", "heartbeatMs=100")) as cluster:
        leader = cluster.leader()
        cluster.create_topic("T", 1)
        with remoting.Connection(cluster.broker(leader), timeout=10) as client, remoting.Connection(cluster.broker(leader)) as other:
            def runtime(key):
                return float(json.loads(other.request(28, {}).body)["table"][key].split()[0])
            check(client.request(remoting.SEND_V2, remoting.send_fields("T", 0), b"x").code == 0, "send")
            with alone(cluster, leader):
                opaque = client.send(remoting.SEND_V2, remoting.send_fields("T", 0), b"slow")
                wait_for("the send to be seen waiting", 5, lambda: runtime("sendThreadPoolQueueSize") == 1
                         and runtime("sendThreadPoolQueueHeadWaitTimeMills") >= 100)
                time.sleep(0.6)
            answer = client.answer(opaque)
        check(answer.code == 0, f"{answer}")
        check(re.search(r"a send to T took (6|7|8|9|\d\d)\d\d ms, 1 messages", cluster.output(leader)), "no line in the log")


@case
def a_reply_through_a_follower():
    with Cluster() as cluster:
        leader = cluster.leader()
        with remoting.Connection(cluster.broker(leader)) as requester, remoting.Connection(cluster.broker((leader + 1) % 3)) as replier:
            heart_beat(requester, "asker@1", producers=["p"])
            opaque = replier.send(SEND_REPLY_V2, reply_fields("asker@1"), b"the reply")
            requester.respond(requester.next_request(PUSH_REPLY))
            answer = replier.answer(opaque)
            check(answer.code == 0 and answer.ext["queueOffset"] == "0", f"{answer}")


@case
def queues_of_no_topic_are_cleaned():
    """Files of a topic that the log knows nothing of: a deletion that is in the log is done again at every start."""
    with Cluster(nodes=1) as cluster:
        cluster.create_topic("T", 2)
        with remoting.Connection(cluster.broker(0)) as client:
            check(client.request(remoting.SEND_V2, remoting.send_fields("T", 1), b"x").code == 0, "send")
        folder = os.path.join(cluster.folder, "n0", "store", "consumequeue")
        cluster.stop()
        shutil.copytree(os.path.join(folder, "T"), os.path.join(folder, "STRANGE"))
        cluster.restart(0)
        cluster.leader()
        with remoting.Connection(cluster.broker(0)) as client:
            check(os.path.exists(os.path.join(folder, "STRANGE", "1")), "the start has removed it: this case shows nothing")
            check(client.request(CLEAN_TOPICS, {}).code == 0, "316")
            check(not os.path.exists(os.path.join(folder, "STRANGE", "1")), "the queue is still there")
            check(remoting.max_offset(client, "T", 1) == 1, "another topic's is not")
            cluster.create_topic("STRANGE", 2)
            answer = client.request(remoting.SEND_V2, remoting.send_fields("STRANGE", 1), b"anew")
            check(answer.code == 0 and answer.ext["queueOffset"] == "0", f"{answer}")


@case
def many_calls_at_once():
    """More requesters than the table holds: the ones beyond are refused at once, and none is forgotten."""
    with Cluster(nodes=1) as cluster:
        address = cluster.broker(0)
        with remoting.Connection(address, timeout=30) as replier, remoting.Connection(address) as silent:
            heart_beat(silent, "asker@1", producers=["p"])
            stop = threading.Event()

            def drain():
                while not stop.is_set():
                    try:
                        silent.receive_some(0.1)
                    except OSError:
                        return
                    silent.buffer.clear()
            thread = threading.Thread(target=drain)
            thread.start()
            opaques = [replier.send(SEND_REPLY_V2, reply_fields("asker@1"), b"x") for _ in range(5000)]
            answers = [replier.answer(opaque) for opaque in opaques]
            stop.set()
            thread.join()
            check(all(answer.code == 1 for answer in answers), "a push that nobody took was answered as done")
            check(remoting.max_offset(replier, "DefaultCluster_REPLY_TOPIC") == 5000, "all are stored")
            check(b'"clientCalls":"0"' in replier.request(28, {}).body, "calls are left")
