"""Send-backs and dead letters: what the stored record says, where it goes, and which send-backs are refused."""
import re
import time
import zlib

import remoting
from case_clients import CONSUME_DIRECTLY, SEND_BACK, heart_beat
from case_metadata import UPDATE_GROUP
from case_transaction import COMMIT, END, Half, end_fields, half_fields
from cluster import Cluster, check, wait_for
from e2e import case


def back_fields(position, group="g", **more):
    return {"offset": position, "group": group, "delayLevel": 0, "originMsgId": "x", "originTopic": "T", **more}


def property_of(record, name):
    found = dict(pair.split("\x01", 1) for pair in record.properties.split("\x02") if pair)
    return found.get(name)


def make_group(client, group, retry_max_times=16):
    answer = client.request(UPDATE_GROUP, None, b'{"groupName":"%s","retryMaxTimes":%d,"retryQueueNums":1}' % (group.encode(), retry_max_times))
    check(answer.code == 0, f"200: {answer}")


@case
def send_backs_and_dead_letters():
    """R2: the dead letter keeps the original id. R3: the last failure is a dead letter at once. R4: an ordered consumer's message at exactly the limit too.
    R5: a message of the greatest size goes back. R7: a record that is not here is an error."""
    with Cluster(nodes=1, settings=["messageDelayLevel=1s 1s 1s 2s 3s"]) as cluster:
        cluster.create_topic("T", 1)
        with remoting.Connection(cluster.broker(0), timeout=10) as client:
            make_group(client, "g", 2)

            def send(body, properties=""):
                answer = client.request(remoting.SEND_V2, remoting.send_fields("T", 0, properties), body)
                check(answer.code == 0, f"send: {answer}")
                return int(answer.ext["msgId"][-16:], 16), answer.ext["msgId"]

            def back(position, group="g", **more):
                answer = client.request(SEND_BACK, back_fields(position, group, **more))
                check(answer.code == 0, f"send-back: {answer}")

            # R2
            position, message_id = send(b"one", "KEYS\x01k")
            back(position, maxReconsumeTimes=0)
            dead = remoting.read_queue(client, "%DLQ%g", 0)
            check([r.body for r in dead] == [b"one"] and property_of(dead[0], "ORIGIN_MESSAGE_ID") == message_id, "R2: the original id")
            check(property_of(dead[0], "RETRY_TOPIC") == "T" and property_of(dead[0], "DELAY") is None and property_of(dead[0], "KEYS") == "k", "R2")

            # R3: level 3, level 4, then no delay any more.
            position, message_id = send(b"two")
            for times, delay_ms in ((1, 1000), (2, 2000)):
                begin = time.time() * 1000
                back(position)
                wait_for(f"retry {times}", 10, lambda: remoting.max_offset(client, "%RETRY%g") == times)  # pylint: disable=cell-var-from-loop
                record = remoting.read_queue(client, "%RETRY%g", 0)[-1]
                check(record.body == b"two" and record.reconsume_times == times and record.topic == "%RETRY%g", f"retry {times}")
                check(record.store_ms >= begin + delay_ms - 1, f"retry {times} came after {record.store_ms - begin:.0f} ms")
                check(property_of(record, "ORIGIN_MESSAGE_ID") == message_id, f"retry {times}: the original id")
                position = record.position
            back(position)
            dead = remoting.read_queue(client, "%DLQ%g", 0)
            check(dead[-1].body == b"two" and dead[-1].reconsume_times == 3, "R3: it was not there when the answer was")
            check(property_of(dead[-1], "DELAY") is None and property_of(dead[-1], "ORIGIN_MESSAGE_ID") == message_id, dead[-1].properties)
            # Asked for with a negative level.
            position, _ = send(b"three")
            back(position, delayLevel=-1)
            check(remoting.read_queue(client, "%DLQ%g", 0)[-1].body == b"three", "a negative level")

            # R4: as ConsumeMessageOrderlyService sends it, with a delay that must not count.
            for times, limit, expected in ((2, None, "%DLQ%g"), (5, 5, "%DLQ%g"), (1, None, "SCHEDULE")):
                fields = {**remoting.send_fields("%RETRY%g", 0, "DELAY\x013\x02RETRY_TOPIC\x01T"), "j": times}
                if limit is not None:
                    fields["l"] = limit
                before = remoting.max_offset(client, "%DLQ%g")
                check(client.request(remoting.SEND_V2, fields, b"ordered").code == 0, "send to the retry topic")
                check(remoting.max_offset(client, "%DLQ%g") == before + (expected == "%DLQ%g"), f"R4: {times} of {limit} went elsewhere than to {expected}")
                if expected == "%DLQ%g":
                    check(property_of(remoting.read_queue(client, "%DLQ%g", 0)[-1], "DELAY") is None, "R4: delayed")

            # R5
            wait_for("the one of R4 that is not dead", 10, lambda: remoting.max_offset(client, "%RETRY%g") == 3)
            limit = 4 * 1024 * 1024
            body = b"x" * limit
            position, _ = send(body, "K\x01" + "v" * 32000)
            before = remoting.max_offset(client, "%RETRY%g")
            back(position, delayLevel=1)
            wait_for("the greatest message again", 10, lambda: remoting.max_offset(client, "%RETRY%g") == before + 1)
            check(remoting.read_queue(client, "%RETRY%g", 0, before)[0].body == body, "R5")

            # R7
            for wrong in (position + 1, position - 1, 0, 1 << 50, -5):
                answer = client.request(SEND_BACK, back_fields(wrong))
                check(answer.code == 1 and answer.remark == f"look message by offset failed, {wrong}", f"R7: {wrong}: {answer}")
            position, _ = send(b"small")
            # No retry queues: dropped, and said to be done.
            check(client.request(UPDATE_GROUP, None, b'{"groupName":"none","retryQueueNums":0}').code == 0, "200")
            back(position, "none")
            # More retry queues than the retry topic, which was made before, has: none goes where nobody reads.
            check(client.request(UPDATE_GROUP, None, b'{"groupName":"g","retryQueueNums":16}').code == 0, "200")
            before = remoting.max_offset(client, "%RETRY%g")
            for _ in range(20):
                back(position, delayLevel=1)
            wait_for("all in the one queue", 5, lambda: remoting.max_offset(client, "%RETRY%g") == before + 20)
            # As many as the group says, when it is the first to say so.
            check(client.request(UPDATE_GROUP, None, b'{"groupName":"many","retryQueueNums":4}').code == 0, "200")
            for _ in range(20):
                back(position, "many", delayLevel=1)

            def spread():
                return [remoting.max_offset(client, "%RETRY%many", queue) for queue in range(5)]
            wait_for("the queues of the other group", 5, lambda: sum(spread()) == 20)
            check(spread()[4] == 0 and sum(count > 0 for count in spread()) > 1, f"{spread()}")
            answer = client.request(SEND_BACK, {k: v for k, v in back_fields(position).items() if k != "offset"})
            check(answer.code == 1 and "offset" in answer.remark, f"{answer}")


@case
def send_back_of_committed_and_compressed_messages():
    """R6: a committed transactional message goes back as a normal one. Its body, compressed or not, stays as it is."""
    with Cluster(nodes=1, settings=["messageDelayLevel=1s"]) as cluster:
        cluster.create_topic("T", 1)
        with remoting.Connection(cluster.broker(0), timeout=10) as client:
            make_group(client, "g")
            body = zlib.compress(b"text " * 2000)
            half = Half(client.request(remoting.SEND_V2, {**half_fields(0, "k"), "f": 4 | 1}, body))
            check(client.request(END, end_fields(half, COMMIT)).code == 0, "commit")
            committed = remoting.read_queue(client, "T", 0)[0]
            check(committed.sys_flag & 0xF == 8 | 1, f"flags {committed.sys_flag}")
            check(client.request(SEND_BACK, back_fields(committed.position, delayLevel=1)).code == 0, "send-back")
            wait_for("the retry", 10, lambda: remoting.max_offset(client, "%RETRY%g") == 1)
            record = remoting.read_queue(client, "%RETRY%g", 0)[0]
            check(record.body == body and record.sys_flag & 1 == 1, "R6: body and flag")
            check(remoting.max_offset(client, "RMQ_SYS_TRANS_HALF_TOPIC") == 1, "R6: it went to the half topic")
            # An old client's way: the message sent again, TRAN_MSG and all.
            fields = {**remoting.send_fields("%RETRY%g", 0, "TRAN_MSG\x01true\x02PGROUP\x01p\x02DELAY\x011\x02RETRY_TOPIC\x01T"), "j": 1}
            check(client.request(remoting.SEND_V2, fields, b"again").code == 0, "send")
            wait_for("the second retry", 10, lambda: remoting.max_offset(client, "%RETRY%g") == 2)
            check(remoting.max_offset(client, "RMQ_SYS_TRANS_HALF_TOPIC") == 1, "R6: a retry went to the half topic")


@case
def dead_letter_handed_to_a_consumer():
    """R8: by the node that holds the consumer's connection, whichever node was asked to store it; an unknown client is named."""
    with Cluster() as cluster:
        cluster.create_topic("T", 1)
        leader = cluster.leader()
        for node in (leader, (leader + 1) % 3):
            with remoting.Connection(cluster.broker(node), timeout=10) as client, remoting.Connection(cluster.broker(node)) as consumer:
                heart_beat(consumer, "c@1", consumers=["g"])
                if node == leader:
                    make_group(client, "g", 0)
                    sent = client.request(remoting.SEND_V2, remoting.send_fields("T", 0), b"bad")
                    check(client.request(SEND_BACK, back_fields(int(sent.ext["msgId"][-16:], 16))).code == 0, "send-back")
                wait_for("the dead letter on this node", 5,
                         lambda client=client: client.request(202, {"topic": "%DLQ%g"}).body.count(b'"maxOffset":1'))
                with remoting.Connection(cluster.broker(leader)) as reader:
                    dead = remoting.read_queue(reader, "%DLQ%g", 0)[0]
                message_id = sent.ext["msgId"][:-16] + f"{dead.position:016X}"
                opaque = client.send(CONSUME_DIRECTLY, {"consumerGroup": "g", "clientId": "c@1", "msgId": message_id})
                asked = consumer.next_request(CONSUME_DIRECTLY)
                record = next(remoting.records(asked.body))
                check(record.body == b"bad" and record.topic == "%DLQ%g" and record.position == dead.position, f"R8: {asked}")
                consumer.respond(asked, 0, b'{"consumeResult":"CR_SUCCESS"}')
                check(client.answer(opaque).body == b'{"consumeResult":"CR_SUCCESS"}', "R8: the client's answer")
                answer = client.request(CONSUME_DIRECTLY, {"consumerGroup": "g", "clientId": "stranger", "msgId": message_id})
                check(answer.code == 1 and re.search("<g> <stranger> not online", answer.remark), f"R8: {answer}")
