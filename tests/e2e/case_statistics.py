"""Every name of the runtime table (28) after traffic that is known: each value equals the count, or lies in a stated range and moves."""
import json
import re
import time

import remoting
from case_clients import heart_beat
from case_transaction import COMMIT, END, Half, end_fields, half_fields
from cluster import Cluster, check, wait_for
from e2e import MODE, Skipped, case
from failover import alone
from odd_machine import CLOCK_MS, READ_MS, SYNC_MS, OddMachine

KEY_QUERY, UPDATE_CONFIG, RUNTIME = 12, 25, 28

# What RocketMQ's tools read (the names of ours are not here).
NAMES = set("""
    brokerVersionDesc brokerVersion bootTimestamp runtime startAcceptSendRequestTimeStamp msgPutTotalYesterdayMorning msgPutTotalTodayMorning
    msgPutTotalTodayNow msgGetTotalYesterdayMorning msgGetTotalTodayMorning msgGetTotalTodayNow putTps getTotalTps getFoundTps getMissTps
    getTransferedTps getTransferredTps putMessageTimesTotal putMessageFailedTimes putMessageSizeTotal putMessageAverageSize putMessageEntireTimeMax
    getMessageEntireTimeMax putMessageDistributeTime putLatency99 putLatency999 commitLogMinOffset commitLogMaxOffset dispatchMaxBuffer
    dispatchBehindBytes commitLogDirCapacity commitLogDiskRatio consumeQueueDiskRatio earliestMessageTimeStamp pageCacheLockTimeMills
    sendThreadPoolQueueSize sendThreadPoolQueueCapacity sendThreadPoolQueueHeadWaitTimeMills pullThreadPoolQueueSize pullThreadPoolQueueCapacity
    pullThreadPoolQueueHeadWaitTimeMills queryThreadPoolQueueSize queryThreadPoolQueueCapacity queryThreadPoolQueueHeadWaitTimeMills
    EndTransactionQueueSize EndTransactionThreadPoolQueueCapacity remainHowManyDataToFlush remainTransientStoreBufferNumbs
""".split()) | {f"scheduleMessageOffset_{level}" for level in range(1, 19)}


def table(connection):
    return json.loads(connection.request(RUNTIME, {}).body)["table"]


def known_traffic(client, begin_ms):
    """20 messages, all pulled once, 3 pulls of nothing; then what must be in the table."""
    for number in range(20):
        check(client.request(remoting.SEND_V2, remoting.send_fields("T", number % 2, f"KEYS\x01k{number}"), b"x" * 100).code == 0, "send")
    size = 0
    for queue in (0, 1):
        answer = client.request(remoting.PULL, remoting.pull_fields("T", queue, 0))
        found = list(remoting.records(answer.body))
        check(len(found) == 10, f"{answer}")
        size += sum(record.size for record in found)
    for _ in range(3):
        check(client.request(remoting.PULL, remoting.pull_fields("T", 0, 10)).code == 19, "nothing new")
    check(client.request(UPDATE_CONFIG, {}, b"startAcceptSendRequestTimeStamp=123\n").code == 0, "25")
    found = table(client)
    check(NAMES <= set(found), f"missing: {NAMES - set(found)}")
    now = time.time() * 1000
    exact = {"brokerVersionDesc": "V4_9_8", "brokerVersion": "409", "startAcceptSendRequestTimeStamp": "123", "msgPutTotalYesterdayMorning": "0",
             "msgPutTotalTodayMorning": "0", "msgGetTotalYesterdayMorning": "0", "msgGetTotalTodayMorning": "0", "msgPutTotalTodayNow": "20",
             "msgGetTotalTodayNow": "20", "putMessageTimesTotal": "20", "putMessageFailedTimes": "0", "putMessageSizeTotal": str(size),
             "putMessageAverageSize": f"{size / 20:.2f}", "commitLogMinOffset": "0", "dispatchMaxBuffer": "0", "remainTransientStoreBufferNumbs": "2147483647"}
    wrong = {name: (found[name], value) for name, value in exact.items() if found[name] != value}
    check(not wrong, f"found and expected: {wrong}")
    check(begin_ms - 60000 < int(found["bootTimestamp"]) < now and begin_ms - 1000 < int(found["earliestMessageTimeStamp"]) < now, found)
    check(re.fullmatch(r"\[ 0 days, 0 hours, 0 minutes, \d+ seconds \]", found["runtime"]), found["runtime"])
    check(size < int(found["commitLogMaxOffset"]) < size + 20000, found["commitLogMaxOffset"])
    buckets = [int(count) for count in re.findall(r"\]:(\d+)", found["putMessageDistributeTime"])]
    check(len(buckets) == 13 and sum(buckets) == 20, found["putMessageDistributeTime"])
    check(0 < float(found["putLatency99"]) <= float(found["putLatency999"]), found)
    check(0 < float(found["commitLogDiskRatio"]) <= 1 and found["commitLogDiskRatio"] == found["consumeQueueDiskRatio"], found)
    check(re.fullmatch(r"Total : [\d.]+ \wiB, Free : [\d.]+ \w+\.", found["commitLogDirCapacity"]), found["commitLogDirCapacity"])
    for name in ("send", "pull", "query"):
        check(int(found[f"{name}ThreadPoolQueueCapacity"]) > 0, name)
    check(int(found["EndTransactionThreadPoolQueueCapacity"]) > 0 and int(found["putMessageEntireTimeMax"]) < 60000, found)


def rates(client):
    """The first of the three numbers, of 10 s, after 11 s."""
    begin = time.monotonic()
    sent = pulled = missed = 0
    while time.monotonic() - begin < 11.5:
        check(client.request(remoting.SEND_V2, remoting.send_fields("T", 0), b"rate").code == 0, "send")
        check(client.request(remoting.PULL, remoting.pull_fields("T", 0, 0, count=2)).code == 0, "pull")
        check(client.request(remoting.PULL, remoting.pull_fields("T", 1, 10)).code == 19, "nothing new")
        sent, pulled, missed = sent + 1, pulled + 1, missed + 1
        time.sleep(0.1)
    each = sent / 11.5
    found = table(client)
    for name, expected in (("putTps", each), ("getFoundTps", each), ("getMissTps", each), ("getTotalTps", 2 * each), ("getTransferedTps", 2 * each),
                           ("getTransferredTps", 2 * each)):
        value = float(found[name].split(" ")[0])
        check(0.6 * expected < value < 1.7 * expected, f"{name} is {found[name]}, expected about {expected}")


@case
def every_runtime_figure_moves():
    """Each name of code 28: counts exact, and what waits is seen waiting: for the quorum, for the disk, for old records."""
    with OddMachine() as machine, Cluster(durability="B", settings=("electionTimeoutMs=3500", "heartbeatMs=100", "maxWaitMs=1000")) as cluster:
        leader = cluster.leader()
        cluster.create_topic("T", 2)
        begin_ms = time.time() * 1000
        with remoting.Connection(cluster.broker(leader), timeout=10) as client, remoting.Connection(cluster.broker(leader), timeout=10) as other:
            known_traffic(client, begin_ms)
            if MODE != "quick":
                rates(client)

            def seen(what, **conditions):
                """All at once."""
                wait_for(what, 6, lambda: all(holds(table(other)[name]) for name, holds in conditions.items()))

            # The quorum is away: a send, and the end of a transaction.
            half = Half(client.request(remoting.SEND_V2, half_fields(0, "K"), b"half"))
            with alone(cluster, leader):
                send = client.send(remoting.SEND_V2, remoting.send_fields("T", 0), b"y" * 1000)
                end = client.send(END, end_fields(half, COMMIT))
                seen("what waits for the quorum", sendThreadPoolQueueSize=lambda text: text == "1", EndTransactionQueueSize=lambda text: text == "1",
                     sendThreadPoolQueueHeadWaitTimeMills=lambda text: int(text) > 50, dispatchBehindBytes=lambda text: int(text) > 1000)
                answers = [client.answer(send), client.answer(end)]
            check([answer.code for answer in answers] == [14, 14], f"{answers}")
            check(table(other)["putMessageFailedTimes"] == "1", "the send that got no quorum")
            seen("all is done", EndTransactionQueueSize=lambda text: text == "0", sendThreadPoolQueueSize=lambda text: text == "0",
                 dispatchBehindBytes=lambda text: text == "0")

            # The disk is slow.
            machine.set(SYNC_MS, 400)
            send = client.send(remoting.SEND_V2, remoting.send_fields("T", 0), b"z" * 5000)
            seen("what waits for the disk", pageCacheLockTimeMills=lambda text: 10 < int(text) < 5000,
                 remainHowManyDataToFlush=lambda text: re.fullmatch(r"[\d.]+ KiB", text))
            check(client.answer(send).code == 0, "a slow disk is no failure")
            machine.set(SYNC_MS, 0)
            seen("it was slow", putMessageEntireTimeMax=lambda text: 400 <= int(text) < 60000, pageCacheLockTimeMills=lambda text: text == "0",
                 remainHowManyDataToFlush=lambda text: text == "0 B")

            # Old records: a pull and a query wait for them.
            heart_beat(client, "c@1", consumers=["g"])
            for _ in range(36):
                check(client.request(remoting.SEND_V2, remoting.send_fields("T", 1), b"o" * (2 << 20)).code == 0, "send")
            machine.set(READ_MS, 400)
            pull = client.send(remoting.PULL, remoting.pull_fields("T", 0, 0, count=1))
            seen("a pull of old records", pullThreadPoolQueueSize=lambda text: text == "1", pullThreadPoolQueueHeadWaitTimeMills=lambda text: int(text) > 10,
                 queryThreadPoolQueueSize=lambda text: text == "0")
            check(client.answer(pull).code == 0, "pull")
            query = client.send(KEY_QUERY, {"topic": "T", "key": "k0", "maxNum": 1, "beginTimestamp": 0, "endTimestamp": 1 << 60})
            seen("a query of old records", queryThreadPoolQueueSize=lambda text: text == "1", queryThreadPoolQueueHeadWaitTimeMills=lambda text: int(text) > 10)
            check(client.answer(query).code == 0, "query")
            machine.set(READ_MS, 0)
            seen("it took its time", getMessageEntireTimeMax=lambda text: 400 <= int(text) < 60000, pullThreadPoolQueueSize=lambda text: text == "0")

            # Delay levels say how far they are.
            check(client.request(remoting.SEND_V2, remoting.send_fields("T", 0, "DELAY\x011"), b"late").code == 0, "delayed")
            seen("a delayed message", scheduleMessageOffset_1=lambda text: text == "1,1", scheduleMessageOffset_18=lambda text: text == "0,0")


@case
def counts_of_yesterday_and_today():
    """The counts as they were at the last two midnights, to the minute."""
    if MODE != "full":
        raise Skipped("waits for two minutes; with --full")
    with OddMachine() as machine, Cluster(nodes=1) as cluster:
        cluster.create_topic("T", 1)
        with remoting.Connection(cluster.broker(0), timeout=10) as client:
            names = ("msgPutTotalYesterdayMorning", "msgPutTotalTodayMorning", "msgPutTotalTodayNow", "msgGetTotalYesterdayMorning", "msgGetTotalTodayMorning",
                     "msgGetTotalTodayNow")
            for day in range(3):
                if day > 0:
                    machine.set(CLOCK_MS, day * 86400000)
                    wait_for(f"morning of day {day}", 70, lambda want=5 * day: int(table(client)["msgPutTotalTodayMorning"]) == want)
                for _ in range(5):
                    check(client.request(remoting.SEND_V2, remoting.send_fields("T", 0), b"x").code == 0, "send")
                check(client.request(remoting.PULL, remoting.pull_fields("T", 0, 0, count=4)).code == 0, "pull")
                found = [int(table(client)[name]) for name in names]
                check(found == [max(0, 5 * (day - 1)), 5 * day, 5 * day + 5, max(0, 4 * (day - 1)), 4 * day, 4 * day + 4], f"day {day}: {found}")
