"""Messages that come out of the broker later than they went in: delayed ones and halves of transactions, a few a second beside the load of tests/chaos.

Each delayed message whose send was acknowledged comes once, and not before its time; each half that was acknowledged is committed or rolled back, repeated until
that is acknowledged, and comes once, or never. Of a send without an acknowledgement there may be one message, of a half without one there is none.
"""
import collections
import threading
import time

import remoting
from cluster import Failed, wait_for

PER_SECOND = 20  # of each kind
DELAYS = {1: 1.0, 2: 5.0}  # level -> seconds
DELAYED, DECIDED = "delayed", "decided"  # topics of one queue
END_TRANSACTION, COMMIT, ROLLBACK = 37, 8, 12
NOT_EARLIER = 0.02  # clocks are read at different times
CLOCK_LASTS = 10.0  # what was stored while a clock was wrong


class Late(threading.Thread):
    """Sends, decides and reads until finish()."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster = cluster
        self.delayed = {}  # number -> when its send began
        self.acknowledged = set()  # of these
        self.undecided = {}  # number of a half -> (offset, position): acknowledged
        self.settled = {}  # number -> COMMIT or ROLLBACK, acknowledged
        self.halves = 0
        self.seen = {DELAYED: collections.defaultdict(list), DECIDED: collections.defaultdict(list)}  # number -> times
        self.next = {DELAYED: 0, DECIDED: 0}
        self.wrong_clocks = []  # [begin, end]
        self.sending, self.ending = True, False
        self.refused = collections.Counter()
        self.error = None
        for topic in self.seen:
            cluster.create_topic(topic, 1)

    def run(self):
        connection, due = None, time.monotonic()
        try:
            while not self.ending:
                try:
                    if connection is None:
                        connection = remoting.Connection(remoting.leader_address(self.cluster.namesrv_addr) or self.cluster.broker(0), 1.5)
                    now = time.monotonic()
                    if self.sending and now >= due:
                        due = max(due + 1 / PER_SECOND, now - 1)
                        self.send_delayed(connection)
                        self.send_half(connection)
                    for number in list(self.undecided):
                        self.decide(connection, number)
                    for topic in self.seen:
                        self.read(connection, topic)
                    time.sleep(0.01)
                except (OSError, remoting.NotNow):
                    if connection is not None:
                        connection.close()
                    connection = None
                    time.sleep(0.05)
        except Exception as error:  # pylint: disable=broad-except
            self.error = error
        finally:
            if connection is not None:
                connection.close()

    def ask(self, connection, code, fields, body=b""):
        answer = connection.request(code, fields, body, timeout=1.5)
        if answer.code != 0:
            self.refused[code, answer.code, answer.remark] += 1
            raise remoting.NotNow(f"{answer}")
        return answer

    def send_delayed(self, connection):
        number = len(self.delayed)
        self.delayed[number] = time.monotonic()
        self.ask(connection, remoting.SEND_V2, remoting.send_fields(DELAYED, 0, f"DELAY\x01{self.level(number)}"), b"%d" % number)
        self.acknowledged.add(number)

    @staticmethod
    def level(number):
        return 1 + number % 2

    def send_half(self, connection):
        number, self.halves = self.halves, self.halves + 1
        fields = {**remoting.send_fields(DECIDED, 0, "TRAN_MSG\x01true\x02PGROUP\x01late", group="late"), "f": 4}
        answer = self.ask(connection, remoting.SEND_V2, fields, b"%d" % number)
        self.undecided[number] = int(answer.ext["queueOffset"]), int(answer.ext["msgId"][-16:], 16)

    @staticmethod
    def decision(number):
        return COMMIT if number % 3 else ROLLBACK

    def decide(self, connection, number):
        """Again and again until it is acknowledged: what is settled is not settled twice."""
        offset, position = self.undecided[number]
        self.ask(connection, END_TRANSACTION, {"producerGroup": "late", "tranStateTableOffset": offset, "commitLogOffset": position,
                                               "commitOrRollback": self.decision(number), "fromTransactionCheck": False, "msgId": "m", "transactionId": "t"})
        del self.undecided[number]
        self.settled[number] = self.decision(number)

    def read(self, connection, topic):
        answer = connection.request(remoting.PULL, remoting.pull_fields(topic, 0, self.next[topic]), timeout=1.5)
        now = time.monotonic()
        for record in remoting.records(answer.body) if answer.code == 0 else ():
            if record.offset != self.next[topic]:
                raise Failed(f"{topic}: place {self.next[topic]} says {record.offset}")
            self.next[topic] += 1
            self.seen[topic][int(record.body)].append(now)

    # ---- what the faults tell ----

    def clock_is_wrong(self):
        self.wrong_clocks.append([time.monotonic() - CLOCK_LASTS, float("inf")])

    def clock_is_right(self):
        if self.wrong_clocks and self.wrong_clocks[-1][1] == float("inf"):
            self.wrong_clocks[-1][1] = time.monotonic() + CLOCK_LASTS

    # ---- the check ----

    def all_there(self):
        return self.error or (not self.undecided and self.acknowledged <= set(self.seen[DELAYED]) and
                              {number for number, how in self.settled.items() if how == COMMIT} <= set(self.seen[DECIDED]))

    def finish(self):
        """No more is sent; all has come, or does not come. Returns what is wrong."""
        self.sending = False
        try:
            wait_for("delayed messages and decisions", 30, self.all_there)
        except Failed:
            pass  # problems() says what is missing
        self.ending = True
        self.join(30)
        if self.error is not None:
            return [f"delayed messages and transactions: {self.error!r}"]
        found = self.problems(self.seen)
        wait_for("all nodes to have applied the last of them", 30, self.cluster.all_applied)
        for node in range(self.cluster.nodes):
            with remoting.Connection(self.cluster.broker(node), 10.0) as connection:
                for topic, seen in self.seen.items():
                    have = collections.Counter(int(record.body) for record in remoting.read_queue(connection, topic, 0))
                    if have != collections.Counter({number: len(times) for number, times in seen.items()}):
                        found.append(f"node {node} has other messages of {topic} than were read while it went on")
        return found

    def problems(self, seen):
        found = []
        for number, times in seen[DELAYED].items():
            began = self.delayed.get(number)
            if began is None or len(times) > 1:
                found.append(f"delayed message {number} was never sent" if began is None else f"delayed message {number} came {len(times)} times")
            elif times[0] - began < DELAYS[self.level(number)] - NOT_EARLIER and not any(begin < times[0] and began < end for begin, end in self.wrong_clocks):
                found.append(f"delayed message {number} of level {self.level(number)} came {times[0] - began:.3f} s after it was sent")
        found += [f"delayed message {number} is lost" for number in sorted(self.acknowledged - set(seen[DELAYED]))]
        for number, times in seen[DECIDED].items():
            if self.settled.get(number) != COMMIT:
                found.append(f"half message {number}, which nobody committed, came")
            elif len(times) > 1:
                found.append(f"transaction {number} came {len(times)} times")
        found += [f"transaction {number}, which was committed, is lost" for number, how in self.settled.items() if how == COMMIT and number not in seen[DECIDED]]
        found += [f"half message {number} cannot be settled: {self.refused.most_common(5)}" for number in self.undecided]
        return found

    def prove(self):
        """The check must be able to fail: five errors, of which it does not find all. In a round of clocks that jump none can be early."""
        delayed, decided = ({number: list(times) for number, times in self.seen[topic].items()} for topic in (DELAYED, DECIDED))
        numbers = sorted(self.acknowledged)
        delayed[numbers[0]] *= 2
        del delayed[numbers[1]]
        early = next((number for number in numbers[2:] if not any(begin < self.delayed[number] + 1 and self.delayed[number] < end
                                                                  for begin, end in self.wrong_clocks)), None)
        if early is not None:
            delayed[early] = [self.delayed[early] + 0.5]
        spoiled = 4 + (early is not None)
        committed = next(number for number, how in self.settled.items() if how == COMMIT)
        del decided[committed]
        decided[next(number for number, how in self.settled.items() if how == ROLLBACK)] = [0.0]
        found = self.problems({DELAYED: delayed, DECIDED: decided})
        return [] if len(found) == spoiled else [f"the check of delayed messages and transactions found {len(found)} of {spoiled} errors: {found}"]

    def figures(self):
        committed = sum(how == COMMIT for how in self.settled.values())
        return (f"{len(self.acknowledged)} of {len(self.delayed)} delayed messages acknowledged and delivered once, of {self.halves} halves {committed} committed and "
                f"{len(self.settled) - committed} rolled back")
