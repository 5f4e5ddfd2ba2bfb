"""Cases of the field, areas consume-queue and index (tests/cases.md): files that are damaged, missing or not writable under a node that starts or runs."""
import glob
import os
import shutil
import threading
import time

import remoting
from cluster import Cluster, check, wait_for
from e2e import case, rounds

SEND_BATCH, DELETE_TOPIC, VIEW, SEARCH_OFFSET = 320, 215, 33, 29
COUNT = 3500  # more than the 3,000 units of a queue file
SMALL_INDEX = ["maxHashSlotNum=1000", "maxIndexNum=3000"]


def fill(connection, topic="T", count=COUNT, first=0, queue=0):
    for start in range(first, first + count, 250):
        members = [(b"%d" % i, f"KEYS\x01k{i}\x02UNIQ_KEY\x01u{i}") for i in range(start, min(start + 250, first + count))]
        answer = connection.request(SEND_BATCH, {**remoting.send_fields(topic, queue), "m": True}, remoting.batch_body(members))
        check(answer.code == 0, f"batch: {answer}")


def query(connection, key, unique=False, topic="T", begin=0, end=1 << 62):
    fields = {"topic": topic, "key": key, "maxNum": 64, "beginTimestamp": begin, "endTimestamp": end, "_UNIQUE_KEY_QUERY": unique}
    answer = connection.request(remoting.QUERY, fields)
    check(answer.code in (0, 22), f"12: {answer}")
    return list(remoting.records(answer.body)) if answer.code == 0 else []


def bodies(records):
    return [record.body for record in records]


def is_whole(connection, count, topic="T"):
    """Each message at its place, and found by both of its keys."""
    check(remoting.max_offset(connection, topic) == count, f"max offset {remoting.max_offset(connection, topic)} of {count}")
    check(connection.request(remoting.MIN_OFFSET, {"topic": topic, "queueId": 0}).ext["offset"] == "0", "min offset")
    check(bodies(remoting.read_queue(connection, topic, 0)) == [b"%d" % i for i in range(count)], "messages are missing or moved")
    for i in (0, 1, 2500, 2998, 2999, 3000, 3001, count - 1):
        check(bodies(query(connection, f"k{i}")) == [b"%d" % i] and bodies(query(connection, f"u{i}", True)) == [b"%d" % i], f"key of message {i}")


def damaged_and_started(*damages, kill=True):
    """A node is stopped, its files are damaged, it starts: nothing is missing, and sends go on; for each damage in turn."""
    with Cluster(nodes=1, settings=SMALL_INDEX) as cluster:
        cluster.create_topic("T", 1)
        count = COUNT
        with remoting.Connection(cluster.broker(0), 10.0) as connection:
            fill(connection)
        for damage in damages:
            cluster.kill(0) if kill else cluster.stop()
            damage(os.path.join(cluster.folder, "n0", "store"))
            cluster.restart(0)
            cluster.leader(30)
            with remoting.Connection(cluster.broker(0), 10.0) as connection:
                is_whole(connection, count)
                fill(connection, count=2, first=count)
                count += 2
                is_whole(connection, count)


def queue_files(store):
    return sorted(glob.glob(os.path.join(store, "consumequeue", "T", "0", "*")))


def newest_with_data(files):
    """The file in which the last unit stands, and where it ends."""
    for path in reversed(files):
        with open(path, "rb") as file:
            size = len(file.read().rstrip(b"\0"))
        if size:
            return path, (size + 19) // 20 * 20
    return None


def cut(count):
    def damage(store):
        path, end = newest_with_data(queue_files(store))
        os.truncate(path, end - count)
    return damage


def garbage(units, before=0):
    def damage(store):
        path, end = newest_with_data(queue_files(store))
        with open(path, "r+b") as file:
            file.seek(end - 20 * (units + before))
            file.write(os.urandom(20 * units))
    return damage


def empty_newest(data):
    def damage(store):
        newest = queue_files(store)[-1]
        with open(os.path.join(os.path.dirname(newest), f"{int(os.path.basename(newest)) + 60000:020d}"), "wb") as file:
            file.write(data)
    return damage


def remove(*parts):
    def damage(store):
        for path in glob.glob(os.path.join(store, *parts)):
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
    return damage


@case
def c1_the_tail_of_a_queue_file_is_cut():
    """C1: kill -9, the last 40 or 50 bytes of a queue file are gone: rebuilt from the log, the maximum is the number of messages."""
    damaged_and_started(cut(40), cut(50), cut(7))


@case
def c1_cut_under_load():
    """C1: the same in a group of three under load: kill -9, a tail is cut, the node starts, and leads in the end."""
    with Cluster() as cluster:
        cluster.create_topic("T", 1)
        with remoting.Connection(cluster.broker(cluster.leader()), 10.0) as connection:
            fill(connection)
            opaques = [connection.send(remoting.SEND_V2, remoting.send_fields("T", 0, f"KEYS\x01k{i}\x02UNIQ_KEY\x01u{i}"), b"%d" % i)
                       for i in range(COUNT, COUNT + 500)]
            node = (cluster.leader() + 1) % 3
            cluster.kill(node)
            for opaque in opaques:
                check(connection.answer(opaque).code == 0, "send")
        cut(50)(os.path.join(cluster.folder, f"n{node}", "store"))
        cluster.restart(node)

        def caught_up():
            try:
                return remoting.ask(cluster.broker(node), remoting.PULL, remoting.pull_fields("T", 0, COUNT + 499)).code == 0
            except OSError:
                return False
        wait_for("the node to catch up", 20, caught_up)
        cluster.kill((node + 1) % 3)
        with remoting.Connection(cluster.broker(cluster.leader()), 10.0) as connection:
            is_whole(connection, COUNT + 500)
        offset, found = 0, []
        with remoting.Connection(cluster.broker(node), 10.0) as connection:
            while offset < COUNT + 500:
                answer = connection.request(remoting.PULL, remoting.pull_fields("T", 0, offset))
                check(answer.code == 0, f"{answer}")
                found += bodies(remoting.records(answer.body))
                offset = int(answer.ext["nextBeginOffset"])
        check(found == [b"%d" % i for i in range(COUNT + 500)], "the node's own queue")


@case
def c2_files_that_say_how_far_queues_go_are_lost():
    """C2: kill -9 and no checkpoint, or no queues, or neither: kept or rebuilt."""
    damaged_and_started(remove("dledger-n0", "checkpoint"), remove("consumequeue"), remove("consumequeue", "T", "0", "*0060000"),
                        lambda store: (remove("consumequeue")(store), remove("dledger-n0", "checkpoint")(store)))


@case
def c3_an_empty_newest_queue_file():
    """C3: a newest file of no length, or full of zeros: the node starts, minimum and maximum are right; after a kill and after a clean stop."""
    damages = (empty_newest(b""), empty_newest(bytes(60000)))
    damaged_and_started(*damages)
    damaged_and_started(*damages, kill=False)


@case
def c6_damaged_last_units():
    """C6: the last units are random bytes: cut at the first of them and dispatched again."""
    damaged_and_started(garbage(1), garbage(3), garbage(1, before=1), garbage(400))


@case
def c13_many_small_entries_in_the_last_segment():
    """C13: thousands of the smallest messages, kill -9, a start that walks all of them, with and without help from the checkpoint."""
    with Cluster(nodes=1, settings=SMALL_INDEX) as cluster:
        cluster.create_topic("T", 1)
        total = 0
        for turn in range(3):
            with remoting.Connection(cluster.broker(0), 20.0) as connection:
                data = remoting.batch_body([(b"", "")] * 1000)
                for _ in range(8):
                    check(connection.request(SEND_BATCH, {**remoting.send_fields("T", 0), "m": True}, data).code == 0, "batch")
                    total += 1000
                for size in range(1, 40):
                    check(connection.request(remoting.SEND_V2, remoting.send_fields("T", 0), b"x" * size).code == 0, "send")
                    total += 1
            cluster.kill(0)
            if turn > 0:
                remove("dledger-n0", "checkpoint")(os.path.join(cluster.folder, "n0", "store"))
            if turn == 1:
                index = sorted(glob.glob(os.path.join(cluster.folder, "n0", "store", "dledger-n0", "index", "*")))[-1]
                os.truncate(index, os.path.getsize(index) // 2)
            if turn == 2:
                remove("dledger-n0", "index")(os.path.join(cluster.folder, "n0", "store"))
            cluster.restart(0)
            cluster.leader(30)
            with remoting.Connection(cluster.broker(0), 20.0) as connection:
                check(remoting.max_offset(connection, "T") == total, f"{remoting.max_offset(connection, 'T')} of {total}")
                check([record.offset for record in remoting.read_queue(connection, "T", 0)] == list(range(total)), "walked")


@case
def c7_the_index_cannot_be_written():
    """C7, I7: where the index should be is a file, so that none of its files can be made: sends and reads go on, the log is not flooded, the fault is
    counted in the runtime table, and keys of what is sent after it is mended are found."""
    with Cluster(nodes=1, settings=SMALL_INDEX) as cluster:
        cluster.create_topic("T", 1)
        folder = os.path.join(cluster.folder, "n0", "store", "index")

        def runtime(key):
            return int(cluster.runtime_table(0, 3.0)[key])
        with remoting.Connection(cluster.broker(0), 10.0) as connection:
            fill(connection, count=1000)
            check(runtime("messagesNotIndexed") == 0, "counted before anything happened")
            os.rename(folder, folder + ".away")
            with open(folder, "wb"):
                pass
            lines = len(cluster.output(0).splitlines())
            fill(connection, first=1000, count=3000)
            check(remoting.max_offset(connection, "T") == 4000 and len(remoting.read_queue(connection, "T", 0)) == 4000, "sends or reads stopped")
            check(runtime("messagesNotIndexed") > 0, "no alarm is counted")
            check(len(cluster.output(0).splitlines()) - lines < 20, "a line for each message")
            check(bodies(query(connection, "k5")) == [b"5"], "what was indexed before")
            os.unlink(folder)
            os.rename(folder + ".away", folder)

            def again():
                number = remoting.max_offset(connection, "T")
                fill(connection, first=number, count=1)
                return bodies(query(connection, f"k{number}")) == [b"%d" % number]
            wait_for("the index to go on", 20, again)
        # A start with the fault: clients are served, and a start without it makes the index whole.
        cluster.stop()
        os.rename(folder, folder + ".away")
        cluster.restart(0)
        cluster.leader(30)
        with remoting.Connection(cluster.broker(0), 10.0) as connection:
            check(bodies(query(connection, "k3500")) == [b"3500"], "the index was not rebuilt")
            check(bodies(query(connection, "k5")) == [b"5"], "the index was not rebuilt from the beginning")


def queue_of(cluster, node, topic="T"):
    """(offset, body) of all that the node serves; None when it does not answer."""
    found, offset = [], 0
    try:
        with remoting.Connection(cluster.broker(node)) as connection:
            while True:
                answer = connection.request(remoting.PULL, remoting.pull_fields(topic, 0, offset))
                if answer.code != 0:
                    return found
                found += [(record.offset, record.body) for record in remoting.records(answer.body)]
                offset = int(answer.ext["nextBeginOffset"])
    except OSError:
        return None


@case
def c8_an_uncommitted_tail_never_reaches_a_queue():
    """C8, C9, L10: a leader that lost its followers gets messages, dies and comes back as a follower of others that went on: its queue holds what they hold, at no
    time more, and each offset is one message on all nodes."""
    with Cluster() as cluster:
        cluster.create_topic("T", 1)
        leader = cluster.leader()
        others = [node for node in range(3) if node != leader]
        for i in range(10):
            check(cluster.send("T", 0, b"before %d" % i).code == 0, "send")
        with remoting.Connection(cluster.broker(leader), 10.0) as connection, remoting.Connection(cluster.broker(leader), 10.0) as reader:
            for node in others:
                cluster.kill(node)
            opaques = [connection.send(remoting.SEND_V2, remoting.send_fields("T", 0), b"tail %d" % i) for i in range(30)]
            check(len(queue_of(cluster, leader)) == 10, "an uncommitted message was served")
            answer = reader.request(remoting.PULL, remoting.pull_fields("T", 0, 10, hold_ms=300))
            check(answer.code == 19 and answer.ext["maxOffset"] == "10", f"{answer}")
            for opaque in opaques:
                answer = connection.answer(opaque, 10)
                check(answer.code == 14, f"acknowledged by nobody: {answer}")
        cluster.kill(leader)
        for node in others:
            cluster.restart(node)
        cluster.leader(30)
        for i in range(25):
            check(cluster.send("T", 0, b"after %d" % i).code == 0, "send")
        stop, longest, errors = threading.Event(), [0], []

        def watch():
            while not stop.is_set():
                found = queue_of(cluster, leader)
                if found is None:
                    time.sleep(0.005)
                    continue
                longest[0] = max(longest[0], len(found))
                if any(body.startswith(b"tail") for _, body in found):
                    errors.append(found)
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            cluster.restart(leader)
            expected = [b"before %d" % i for i in range(10)] + [b"after %d" % i for i in range(25)]
            expected = list(enumerate(expected))
            for node in range(3):
                wait_for(f"the queue of node {node}", 20, lambda node=node: queue_of(cluster, node) == expected)
        finally:
            stop.set()
            watcher.join()
        check(not errors and longest[0] <= 35, lambda: f"a queue passed the commit position: {longest[0]} {errors[:1]}")


@case
def c11_search_by_time():
    """C11: below, at, between and above known times, with equal times and over the border of two files; whatever kind of border a 5.x client
    asks for; the same after a restart."""
    with Cluster(nodes=1) as cluster:
        cluster.create_topic("T", 1)
        with remoting.Connection(cluster.broker(0), 10.0) as connection:
            fill(connection, count=2900)
            for start in (2900, 2950, 3000, 3050):
                time.sleep(0.03)
                fill(connection, first=start, count=50)
            times = [record.store_ms for record in remoting.read_queue(connection, "T", 0)]
        check(len(set(times)) >= 5 and len(set(times)) < len(times), "no equal times")

        def nearest(wanted):
            """As 4.9: an entry of that time, else the nearer neighbour."""
            distance = min(abs(time_ms - wanted) for time_ms in times)
            return {i for i, time_ms in enumerate(times) if abs(time_ms - wanted) == distance}
        asked = {0, 1, times[0] - 1, times[-1] + 1, 1 << 62}
        for border in (*range(2890, 3100, 10), 2999, 3000, 3001):
            asked |= {times[border] + delta for delta in (-20, -1, 0, 1, 11)}
        for _ in range(2):
            with remoting.Connection(cluster.broker(0), 10.0) as connection, remoting.Connection(cluster.broker(0), 10.0, version=479) as five:
                for wanted in sorted(asked):
                    found = set()
                    for client, border in ((connection, None), (five, "LOWER"), (five, "UPPER"), (five, None)):
                        answer = client.request(SEARCH_OFFSET, {"topic": "T", "queueId": 0, "timestamp": wanted, "boundaryType": border})
                        check(answer.code == 0, f"{answer}")
                        found.add(int(answer.ext["offset"]))
                    check(len(found) == 1 and found <= nearest(wanted), f"time {wanted}: {found}, nearest are {sorted(nearest(wanted))[:5]}")
                check(int(connection.request(SEARCH_OFFSET, {"topic": "T", "queueId": 0, "timestamp": 1 << 62}).ext["offset"]) == 3099, "beyond the end")
            cluster.kill(0)
            cluster.restart(0)
            cluster.leader(30)


@case
def c14_topics_deleted_under_traffic():
    """C14: a topic is deleted and made again in a loop under producers and consumers: nobody crashes, clients learn that there is no such topic, and
    what is there in the end is a topic that began at 0."""
    with Cluster() as cluster:
        cluster.create_topic("T", 2)
        address, stop, errors, codes = cluster.broker(cluster.leader()), threading.Event(), [], set()

        def client(code, fields):
            try:
                with remoting.Connection(address, 20.0) as connection:
                    while not stop.is_set():
                        for opaque in [connection.send(code, fields(), b"x" * 300 if code == remoting.SEND_V2 else b"") for _ in range(20)]:
                            codes.add((code, connection.answer(opaque).code))
            except Exception as error:  # pylint: disable=broad-except
                errors.append(error)
        threads = [threading.Thread(target=client, args=(remoting.SEND_V2, lambda i=i: remoting.send_fields("T", i % 2, default_topic="NONE"))) for i in range(8)]
        threads += [threading.Thread(target=client, args=(remoting.PULL, lambda i=i: remoting.pull_fields("T", i % 2, 0, hold_ms=20))) for i in range(8)]
        for thread in threads:
            thread.start()
        try:
            with remoting.Connection(address, 20.0) as connection:
                for _ in range(rounds(15, 30, 300)):
                    answer = connection.request(DELETE_TOPIC, {"topic": "T"})
                    check(answer.code == 0, f"215: {answer}")
                    time.sleep(0.01)
                    cluster.create_topic("T", 2)
                    time.sleep(0.02)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        check(not errors, lambda: f"{errors[0]!r}")
        check({code for _, code in codes} <= {0, 17, 19, 20, 21} and (remoting.SEND_V2, 17) in codes and (remoting.SEND_V2, 0) in codes, f"{codes}")
        leader = cluster.leader()
        check(cluster.broker(leader) == address and all(cluster.alive(node) for node in range(3)), "a node ended")
        expected = queue_of(cluster, leader)
        check([offset for offset, _ in expected] == list(range(len(expected))), "the last incarnation does not begin at 0")
        for node in range(3):
            wait_for(f"the queue of node {node}", 20, lambda node=node: queue_of(cluster, node) == expected)
        for node in range(3):
            cluster.kill(node)
        for node in range(3):
            cluster.restart(node)
        cluster.leader(30)
        for node in range(3):
            wait_for(f"the queue of node {node} after a restart", 20, lambda node=node: queue_of(cluster, node) == expected)


@case
def i1_keys_with_the_same_hash():
    """I1: "Aa" and "BB" have one hash, and so have two pairs of topic and key: each query brings its own key's messages alone."""
    with Cluster(nodes=1) as cluster:
        for topic in ("T", "Aa", "BB"):
            cluster.create_topic(topic, 1)
        with remoting.Connection(cluster.broker(0)) as connection:
            for topic in ("T", "Aa", "BB"):
                for key in ("Aa", "BB", "AaBB", "BBAa", "x Aa y", "polygenelubricants"):
                    answer = connection.request(remoting.SEND_V2, remoting.send_fields(topic, 0, f"KEYS\x01{key}\x02UNIQ_KEY\x01u{key.split()[0]}"),
                                                f"{topic} {key}".encode())
                    check(answer.code == 0, f"{answer}")
            for topic in ("T", "Aa", "BB"):
                for key, found in (("Aa", ["Aa", "x Aa y"]), ("BB", ["BB"]), ("AaBB", ["AaBB"]), ("BBAa", ["BBAa"]), ("polygenelubricants",) * 2, ("C", [])):
                    found = [found] if isinstance(found, str) else found
                    got = sorted(bodies(query(connection, key, topic=topic)))
                    check(got == sorted(f"{topic} {name}".encode() for name in found), f"key {key} of {topic}: {got}")
                check(bodies(query(connection, "uAa", True, topic)) == [f"{topic} Aa".encode()], "a unique key")


@case
def i3_look_ups_after_all_nodes_restarted():
    """I3: every node is killed and started again: lookup by unique key, by key and by position."""
    with Cluster(settings=SMALL_INDEX) as cluster:
        cluster.create_topic("T", 1)
        with remoting.Connection(cluster.broker(cluster.leader()), 10.0) as connection:
            fill(connection)
            answer = connection.request(remoting.SEND_V2, remoting.send_fields("T", 0, f"KEYS\x01k{COUNT}\x02UNIQ_KEY\x01u{COUNT}"), b"%d" % COUNT)
            position = int(answer.ext["msgId"][-16:], 16)
        for stop in (cluster.kill, None):
            if stop is None:
                cluster.stop()
            for node in range(3):
                if stop is not None:
                    stop(node)
            for node in range(3):
                cluster.restart(node)
            leader = cluster.leader(30)
            for node in range(3):
                def found(node=node):
                    with remoting.Connection(cluster.broker(node), 10.0) as connection:
                        view = connection.request(VIEW, {"offset": position})
                        return view.code == 0 and bodies(remoting.records(view.body)) == [b"%d" % COUNT] and all(
                            bodies(query(connection, f"k{i}")) == bodies(query(connection, f"u{i}", True)) == [b"%d" % i] for i in (0, 1700, COUNT))
                wait_for(f"look-ups at node {node}", 15, found)
            check(cluster.send("T", 0, b"next", f"KEYS\x01next{stop is None}", node=leader).code == 0, "send")


@case
def i4_a_half_filled_index_file_after_a_kill():
    """I4: kill -9 with a half filled index file, which may also be damaged, cut or lost: old keys and new ones are found."""
    def newest(store):
        return sorted(glob.glob(os.path.join(store, "index", "*")))[-1]

    def overwrite(at, size):
        def damage(store):
            with open(newest(store), "r+b") as file:
                file.seek(at)
                file.write(os.urandom(size))
        return damage
    damaged_and_started(lambda store: None, remove("index"), lambda store: os.unlink(newest(store)), lambda store: os.truncate(newest(store), 0),
                        overwrite(0, 40))


@case
def old_index_files_that_are_damaged_are_made_anew():
    """Damage of every kind to index files that no start looks at, and to the newest: the scrub names the files, and each key leads to its message again."""
    count = 8000
    settings = SMALL_INDEX + ["logScrubIntervalSeconds=1", "logScrubBytesPerSecond=67108864"]
    with Cluster(nodes=1, settings=settings) as cluster:
        cluster.create_topic("T", 1)
        with remoting.Connection(cluster.broker(0), 10.0) as connection:
            fill(connection, count=count)
        wait_for("a pass over what is whole", 30, lambda: cluster.runtime("raftScrubPasses") > 2)
        check(cluster.runtime("indexFilesDamaged") == 0, "whole files are found damaged")
        cluster.stop()
        files = sorted(glob.glob(os.path.join(cluster.folder, "n0", "store", "index", "*")))
        check(len(files) == 6, f"{len(files)} index files")
        entries = 40 + 4 * 1000

        def overwrite(path, at, data):
            with open(path, "r+b") as file:
                file.seek(at)
                file.write(data)
        overwrite(files[0], 8, b"\0" * 8)               # the end time: the file takes part in no search
        overwrite(files[0], 40, b"\0" * 2000)           # slots
        overwrite(files[1], entries + 20 * 1000, os.urandom(4096))
        os.truncate(files[2], 30001)
        os.unlink(files[3])
        with open(files[4], "r+b") as file:             # a stale block
            file.seek(entries + 4096)
            block = file.read(4096)
            file.seek(entries + 5 * 4096)
            file.write(block)
        overwrite(files[5], entries + 20 * 100 + 5, b"\x7f")
        cluster.restart(0)
        cluster.leader(30)
        wait_for("the index to be mended", 60, lambda: cluster.runtime("indexFilesRebuilt") >= 5)
        passes = cluster.runtime("raftScrubPasses")
        wait_for("two more passes", 30, lambda: cluster.runtime("raftScrubPasses") > passes + 2)
        found = cluster.runtime("indexFilesDamaged")
        with remoting.Connection(cluster.broker(0), 10.0) as connection:
            for i in range(count):
                for key, unique in ((f"k{i}", False), (f"u{i}", True)):
                    found_there = bodies(query(connection, key, unique))
                    check(found_there == [b"%d" % i], lambda: f"{key}: {found_there}")
            fill(connection, first=count, count=100)
            check(bodies(query(connection, f"k{count + 99}")) == [b"%d" % (count + 99)], "a new message is not found")
        check(cluster.output(0).count("made anew from the log") >= 4 and os.path.basename(files[1]) in cluster.output(0), "files are not named")
        check(cluster.runtime("indexFilesDamaged") == found == cluster.runtime("indexFilesRebuilt"), "what was made anew is found damaged")
        check(not glob.glob(os.path.join(cluster.folder, "n0", "store", "index", "*.rebuild*")), "files are left over")
        return f"{found} files"


@case
def i5_a_half_filled_index_file_after_a_clean_stop():
    """I5, I8: clean stop, caches dropped where that is allowed, start: found, also when the query asks for the time of the newest messages alone."""
    with Cluster(nodes=1, settings=SMALL_INDEX) as cluster:
        cluster.create_topic("T", 1)
        with remoting.Connection(cluster.broker(0), 10.0) as connection:
            fill(connection, count=3200)
            time.sleep(0.05)
            fill(connection, first=3200, count=300)
            times = [record.store_ms for record in remoting.read_queue(connection, "T", 0)]
        for kill in (False, True):
            cluster.kill(0) if kill else cluster.stop()
            try:
                os.sync()
                with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
                    file.write("1")
            except OSError:
                pass
            cluster.restart(0)
            cluster.leader(30)
            with remoting.Connection(cluster.broker(0), 10.0) as connection:
                is_whole(connection, COUNT)
                for i in (0, 2999, 3199, 3200, COUNT - 1):
                    for begin, end, expected in ((times[i], times[i], True), (times[i] - 5, 1 << 62, True), (times[i] - 1, times[i] + 1, True),
                                                 (times[i] + 1001, 1 << 62, False), (0, times[i] - 1001, False)):
                        check(bool(query(connection, f"k{i}", begin=begin, end=end)) == expected, f"key {i} from {begin - times[i]} to {end - times[i]} ms")


@case
def i6_a_key_that_is_named_twice():
    """I6: a key that a message names twice, also as its unique key, brings the message once."""
    with Cluster(nodes=1) as cluster:
        cluster.create_topic("T", 1)
        with remoting.Connection(cluster.broker(0)) as connection:
            for number, keys in enumerate(("k1 k1", "k1  k1 k2 k1", " k1 ", "u")):
                answer = connection.request(remoting.SEND_V2, remoting.send_fields("T", 0, f"KEYS\x01{keys}\x02UNIQ_KEY\x01u"), b"%d" % number)
                check(answer.code == 0, f"{answer}")
            check(sorted(bodies(query(connection, "k1"))) == [b"0", b"1", b"2"], bodies(query(connection, "k1")))
            check(bodies(query(connection, "k2")) == [b"1"], "k2")
            check(sorted(bodies(query(connection, "u", True))) == [b"0", b"1", b"2", b"3"], bodies(query(connection, "u", True)))
            check(query(connection, "") == [] and query(connection, "k1 k1") == [], "no key")
