"""Cases of the field, area get (tests/cases.md): what a pull and an offset question answer when something moves, waits or matches nothing."""
import json
import random
import threading
import time

import remoting
from cluster import Cluster, check, wait_for
from e2e import case, rounds

HEART_BEAT, UPDATE_OFFSET, QUERY_OFFSET, SEND_BACK, SEND_BATCH, VIEW_STATS, UPDATE_GROUP = 34, 15, 14, 36, 320, 315, 200


def put(connection, topic, queue=0, body=b"x", properties="", **fields):
    answer = connection.request(remoting.SEND_V2, {**remoting.send_fields(topic, queue, properties), **fields}, body)
    check(answer.code == 0, f"send: {answer}")
    return answer


def fill(connection, topic, count, properties="", body=b"x"):
    """Batches of 500, a few at a time; count is a multiple."""
    data = remoting.batch_body([(body, properties)] * 500)
    for start in range(0, count, 20 * 500):
        opaques = [connection.send(SEND_BATCH, {**remoting.send_fields(topic, 0), "m": True}, data) for _ in range(start, min(start + 20 * 500, count), 500)]
        for opaque in opaques:
            answer = connection.answer(opaque)
            check(answer.code == 0, f"batch: {answer}")


def offset_of(connection, group, topic="T", queue=0):
    answer = connection.request(QUERY_OFFSET, {"consumerGroup": group, "topic": topic, "queueId": queue})
    check(answer.code in (0, 22), f"14: {answer}")
    return int(answer.ext["offset"]) if answer.code == 0 else None


def subscription(topic, expression="*", version=1):
    tags = [] if expression == "*" else [tag.strip() for tag in expression.split("||")]
    return {"topic": topic, "subString": expression, "expressionType": "TAG", "subVersion": version, "classFilterMode": False, "tagsSet": tags, "codeSet": []}


def heart_beat(connection, client, group, *subscriptions):
    consumer = {"groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "unitMode": False, "subscriptionDataSet": list(subscriptions)}
    answer = connection.request(HEART_BEAT, None, json.dumps({"clientID": client, "producerDataSet": [], "consumerDataSet": [consumer]}).encode())
    check(answer.code == 0, f"heart-beat: {answer}")


def pull(connection, topic, offset, subscription_text=None, queue=0, **fields):
    """With a text the pull brings it, without one the heart-beat decides."""
    ext = {**remoting.pull_fields(topic, queue, offset), **fields}
    if subscription_text is None:
        ext.update(subscription="", sysFlag=ext["sysFlag"] & ~4)
    else:
        ext["subscription"] = subscription_text
    return connection.request(remoting.PULL, ext, timeout=20)


@case
def g2_no_read_is_corrected_while_leaders_change():
    """G2: pulls and offset questions at every node, all the time, while leaders are killed and come back: nobody is sent to another offset."""
    with Cluster() as cluster:
        cluster.create_topic("T", 1)
        with remoting.Connection(cluster.broker(cluster.leader())) as connection:
            fill(connection, "T", 2000)
            check(connection.request(UPDATE_OFFSET, {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": 1234}).code == 0, "15")
        stop, errors, counts = threading.Event(), [], [0] * 3

        def ask(node):
            connection, chance = None, random.Random(node)
            while not stop.is_set():
                try:
                    if connection is None:
                        connection = remoting.Connection(cluster.broker(node), 1.0)
                    offset = chance.choice((0, 700, 1999, 2000, 2000, 2005))
                    answer = connection.request(remoting.PULL, remoting.pull_fields("T", 0, offset))
                    if answer.code == 21:  # the leader may say so of what is beyond the end, and sends to the end then
                        check(offset > 2000 and int(answer.ext["nextBeginOffset"]) == 2000, f"a pull at {offset}: {answer}")
                    elif answer.code == 19:
                        check(int(answer.ext["nextBeginOffset"]) == offset, f"a pull at {offset}: {answer}")
                    elif answer.code in (0, 20):
                        check(offset < int(answer.ext["nextBeginOffset"]) <= 2000 and answer.code == 0, f"a pull at {offset}: {answer}")
                    else:
                        check(answer.code in (1, 14), f"a pull at {offset}: {answer}")
                    check(offset_of(connection, "g") == 1234, "the group's offset")
                    answer = connection.request(remoting.MAX_OFFSET, {"topic": "T", "queueId": 0})
                    check(answer.code != 0 or answer.ext["offset"] == "2000", f"30: {answer}")
                    answer = connection.request(29, {"topic": "T", "queueId": 0, "timestamp": 1 << 60})
                    check(answer.code != 0 or answer.ext["offset"] == "1999", f"29: {answer}")
                    counts[node] += 1
                except OSError:
                    if connection is not None:
                        connection.close()
                    connection = None
                    time.sleep(0.005)
                except Exception as error:  # pylint: disable=broad-except
                    errors.append(error)
                    return
        threads = [threading.Thread(target=ask, args=(node,)) for node in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(rounds(2, 3, 20)):
                leader = cluster.leader()
                cluster.kill(leader)
                cluster.leader(but=leader)
                cluster.restart(leader)
                before = counts[leader]
                wait_for("the killed node to answer again", 20, lambda leader=leader, before=before: errors or counts[leader] > before + 2)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        check(not errors, lambda: f"{errors[0]!r}")
        check(min(counts) > 5, f"rounds of questions: {counts}")
        return f"{sum(counts)} rounds of questions"


@case
def g3_a_new_group_misses_nothing_of_a_young_queue():
    """G3: no stored offset and offset 0 still there: the group begins at 0, whatever LAST_OFFSET it asks for."""
    with Cluster() as cluster:
        leader = cluster.leader()
        cluster.create_topic("T", 1)
        for node in (leader, (leader + 1) % 3):
            with remoting.Connection(cluster.broker(node)) as connection:
                check(offset_of(connection, "g") == 0, "an empty queue")
                heart_beat(connection, "c@1", "g", subscription("T"))
                check(offset_of(connection, "g") == 0, "an empty queue, the group is on line")
                if node == leader:
                    put(connection, "T", body=b"first")
                check(offset_of(connection, "g") == 0, "one message")
                answer = pull(connection, "T", 0, "*")
                check([record.body for record in remoting.records(answer.body)] == [b"first"], f"{answer}")
                check(offset_of(connection, "g", "unknown") == 0 and offset_of(connection, "g", "T", 7) == 0, "no such topic, no such queue")
                answer = connection.request(QUERY_OFFSET, {"consumerGroup": "g", "topic": "T", "queueId": 0, "setZeroIfNotFound": False})
                check(answer.code == 22, f"a 5.x client that does not want a 0: {answer}")
        with remoting.Connection(cluster.broker(leader)) as connection:
            fill(connection, "T", 1000)
            check(offset_of(connection, "new") == 0, "a young queue of 1,001 messages")


@case
def g4_a_message_between_check_and_parking():
    """G4: a message that arrives while a pull is being parked wakes it."""
    with Cluster(nodes=1) as cluster:
        cluster.create_topic("T", 1)
        chance, worst = random.Random(4), 0
        with remoting.Connection(cluster.broker(0)) as consumer, remoting.Connection(cluster.broker(0)) as producer:
            for offset in range(rounds(300, 1500, 10000)):
                opaque = consumer.send(remoting.PULL, remoting.pull_fields("T", 0, offset, hold_ms=15000))
                jitter = chance.random() * 0.0005
                begin = time.perf_counter()
                while time.perf_counter() - begin < jitter:
                    pass
                sent = producer.send(remoting.SEND_V2, remoting.send_fields("T", 0), b"%d" % offset)
                begin = time.monotonic()
                answer = consumer.answer(opaque, 2.0)
                worst = max(worst, time.monotonic() - begin)
                check(answer.code == 0 and [record.body for record in remoting.records(answer.body)] == [b"%d" % offset], f"{answer}")
                check(producer.answer(sent).code == 0, "send")
        return f"worst {worst * 1000:.1f} ms"


@case
def g5_a_parked_pull_ends_at_its_hold_time():
    """G5: 19 with all four fields when the hold time is over, at the leader and at a follower, also when nobody leads."""
    with Cluster() as cluster:
        leader = cluster.leader()
        cluster.create_topic("T", 1)
        follower = (leader + 1) % 3

        def held(node, hold_ms):
            with remoting.Connection(cluster.broker(node)) as connection:
                begin = time.monotonic()
                answer = connection.request(remoting.PULL, remoting.pull_fields("T", 0, 0, hold_ms=hold_ms), timeout=10)
                took_ms = (time.monotonic() - begin) * 1000
                check(answer.code == 19 and answer.remark == "NO_MESSAGE_IN_QUEUE", f"{answer}")
                check(answer.ext == {"nextBeginOffset": "0", "minOffset": "0", "maxOffset": "0", "suggestWhichBrokerId": "0"}, f"{answer.ext}")
                check(hold_ms - 20 <= took_ms < hold_ms + 300 * remoting.PATIENCE, f"held for {took_ms:.0f} of {hold_ms} ms")
        held(leader, 3000)
        held(follower, 700)
        cluster.kill((leader + 2) % 3)
        cluster.kill(leader)
        held(follower, 700)


@case
def g6_tags_with_the_same_hash():
    """G6: "Aa" and "BB" have one hash: the client gets what it will drop, but the position moves on."""
    with Cluster(nodes=1) as cluster:
        cluster.create_topic("T", 1)
        with remoting.Connection(cluster.broker(0)) as connection:
            for _ in range(5):
                put(connection, "T", properties="TAGS\x01BB")
            offset, asked = 0, 0
            while offset < 5:
                answer = pull(connection, "T", offset, "Aa")
                check(answer.code in (0, 20) and int(answer.ext["nextBeginOffset"]) > offset, f"at {offset}: {answer}")
                offset, asked = int(answer.ext["nextBeginOffset"]), asked + 1
            check(asked < 5 and pull(connection, "T", offset, "Aa").code == 19, "the end")
            check(pull(connection, "T", 0, "C").ext["nextBeginOffset"] == "5", "another tag")


@case
def g7_a_filter_that_matches_almost_nothing():
    """G7: one pull looks at a bounded number of messages, says how far it came, and does not hold others up."""
    count = rounds(20000, 50000, 1000000)
    with Cluster(nodes=1, settings=["enablePropertyFilter=true"]) as cluster:
        cluster.create_topic("T", 1)
        cluster.create_topic("U", 1)
        address = cluster.broker(0)
        with remoting.Connection(address, 30.0) as connection, remoting.Connection(address, 30.0) as other:
            fill(connection, "T", count, "TAGS\x01A\x02n\x011")
            put(connection, "T", body=b"last", properties="TAGS\x01B\x02n\x012")
            put(connection, "U", body=b"other")
            for fields in ({"subscription_text": "B"}, {"subscription_text": "n = 2", "expressionType": "SQL92"}):
                offset, steps, times = 0, 0, []
                while offset < count:
                    ext = {**remoting.pull_fields("T", 0, offset), "subscription": fields["subscription_text"], "expressionType": fields.get("expressionType", "TAG")}
                    opaque = connection.send(remoting.PULL, ext)
                    begin = time.monotonic()
                    check(pull(other, "U", 0, "*").code == 0, "another pull")
                    times.append(time.monotonic() - begin)
                    answer = connection.answer(opaque)
                    step = int(answer.ext["nextBeginOffset"]) - offset
                    check(0 < step <= 801 and (answer.code == 20 or offset + step > count), f"at {offset}: {answer}")
                    offset, steps = offset + step, steps + 1
                check(answer.code == 0 and [record.body for record in remoting.records(answer.body)] == [b"last"], f"the last: {answer}")
                times.sort()
                check(times[len(times) // 2] < 0.05 and times[-1] < 0.5 * remoting.PATIENCE, f"other pulls took {[int(t * 1000) for t in times]} ms beside {fields}")
        return f"{count} messages, {steps} pulls"


@case
def g9_a_retry_topic_is_not_filtered_by_the_main_topic():
    """G9: a group that reads tag A gets its retries back whatever their tag is, and in both ways to ask."""
    with Cluster(nodes=1, settings=["messageDelayLevel=1s"]) as cluster:
        cluster.create_topic("T", 1)
        with remoting.Connection(cluster.broker(0)) as connection:
            heart_beat(connection, "c@1", "g", subscription("T", "A"), subscription("%RETRY%g"))
            for tag in ("A", "B", None):
                answer = put(connection, "T", body=b"%s" % str(tag).encode(), properties="" if tag is None else f"TAGS\x01{tag}")
                back = {"offset": int(answer.ext["msgId"][-16:], 16), "group": "g", "delayLevel": 1, "originTopic": "T", "originMsgId": "x"}
                check(connection.request(SEND_BACK, back).code == 0, "36")

            def retries(text):
                answer = pull(connection, "%RETRY%g", 0, text, consumerGroup="g", subVersion=1)
                return sorted(record.body for record in remoting.records(answer.body)) if answer.code == 0 else []
            wait_for("the retries", 5, lambda: retries(None) == [b"A", b"B", b"None"])
            check(retries("*") == [b"A", b"B", b"None"], "with a text of its own")
            answer = pull(connection, "T", 0, None, consumerGroup="g", subVersion=1)
            check([record.body for record in remoting.records(answer.body)] == [b"A"], f"the main topic: {answer}")


@case
def g13_a_reader_at_the_end_is_not_behind():
    """G13: who was behind and asks at the end, or reaches it with a filter that matches nothing, is shown without lag."""
    with Cluster(nodes=1) as cluster:
        cluster.create_topic("T", 1)
        with remoting.Connection(cluster.broker(0)) as connection:
            for tag in "AABBBBBBBB":
                put(connection, "T", properties=f"TAGS\x01{tag}", body=b"x" * 100)

            def lag():
                sums = []
                for name in ("GROUP_GET_FALL_SIZE", "GROUP_GET_FALL_TIME"):
                    answer = connection.request(VIEW_STATS, {"statsName": name, "statsKey": "0@T@e2e-consumer"})
                    check(answer.code == 0, f"{answer}")
                    sums.append(json.loads(answer.body)["statsMinute"]["sum"])
                return sums

            def fall_behind():
                check(pull(connection, "T", 0, "*", maxMsgNums=1).code == 0, "pull")
                check(lag()[0] > 0, "a reader that is behind is shown without lag: this case shows nothing")
            fall_behind()
            check(pull(connection, "T", 9, "*").code == 0 and lag() == [0, 0], f"after the last message: {lag()}")
            fall_behind()
            check(pull(connection, "T", 10, "*").code == 19 and lag() == [0, 0], f"at the end: {lag()}")
            fall_behind()
            check(pull(connection, "T", 1, "C").code == 20 and lag() == [0, 0], f"nothing matched up to the end: {lag()}")
            fall_behind()
            check(pull(connection, "T", 11, "*").code == 21 and lag() == [0, 0], f"sent back to the end: {lag()}")


@case
def g14_numbers_that_are_far_apart():
    """G14: parked pulls, opaque numbers and offsets whose distance passes 2^31: each is found and answered, each keeps its value."""
    with Cluster() as cluster:
        leader = cluster.leader()
        cluster.create_topic("T", 1)
        far = (0, 1, 2**31 - 1, 2**31, 2**31 + 1, 2**32 + 7, 2**53 + 1, 2**62)
        opaques = (0, 1, -1, 2**31 - 1, -2**31, 2**30, -2**30)
        with remoting.Connection(cluster.broker((leader + 1) % 3), 10.0) as connection:
            wait_for("the topic", 5, lambda: pull(connection, "T", 0, "*").code == 19)
            for number, offset in enumerate(far):  # on a follower they wait: it may only be behind
                connection.send_raw(remoting.request_frame(remoting.PULL, remoting.pull_fields("T", 0, offset, hold_ms=600 + number % 3 * 100), opaque=100 + number))
            for number, offset in enumerate(far):
                answer = connection.answer(100 + number)
                check(answer.code == 19 and answer.ext["nextBeginOffset"] == str(offset), f"at {offset}: {answer}")
        with remoting.Connection(cluster.broker(leader), 10.0) as connection:
            for opaque in opaques:
                connection.send_raw(remoting.request_frame(remoting.PULL, remoting.pull_fields("T", 0, 0, hold_ms=15000), opaque=opaque))
            with remoting.Connection(cluster.broker(leader)) as producer:
                put(producer, "T", body=b"wake")
            for opaque in opaques:
                check(connection.answer(opaque).code == 0, f"the pull {opaque}")
            for offset in (*far[2:], 5, *reversed(far)):
                check(connection.request(UPDATE_OFFSET, {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": offset}).code == 0, "15")
                check(offset_of(connection, "g") == offset, f"{offset} became {offset_of(connection, 'g')}")
            for offset in far[1:]:
                answer = pull(connection, "T", offset, "*")
                check(answer.code == (19 if offset == 1 else 21) and answer.ext["nextBeginOffset"] == "1", f"a pull at {offset}: {answer}")
            for timestamp, expected in ((0, "0"), (2**31, "0"), (2**62, "0")):
                check(connection.request(29, {"topic": "T", "queueId": 0, "timestamp": timestamp}).ext["offset"] == expected, "29")
