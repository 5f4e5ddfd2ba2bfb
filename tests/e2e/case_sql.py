"""SQL92 filters: the request's own expression, the group's from its heart-beat, what a waiting pull is woken by, and every refusal."""
import json
import time

import remoting
from cluster import Cluster, check
from e2e import case

HEART_BEAT, CHECK_CONFIG, UPDATE_CONFIG = 34, 46, 25
NOT_SUPPORTED = "The broker does not support consumer to filter message by SQL92"


def subscription(expression, version, kind="SQL92"):
    return {"topic": "T", "subString": expression, "expressionType": kind, "subVersion": version, "classFilterMode": False, "tagsSet": [],
            "codeSet": []}


def beat(connection, group, expression, version):
    body = {"clientID": f"client-{group}", "producerDataSet": [],
            "consumerDataSet": [{"groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
                                 "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": False,
                                 "subscriptionDataSet": [subscription(expression, version)]}]}
    answer = connection.request(HEART_BEAT, {}, json.dumps(body).encode())
    check(answer.code == 0, f"heart-beat: {answer}")


def own(offset, expression, group="own", hold_ms=0):
    """A pull that brings its expression."""
    return {**remoting.pull_fields("T", 0, offset, group, hold_ms), "subscription": expression, "expressionType": "SQL92"}


def stored(offset, group, version=0, hold_ms=0):
    """A push pull as Go's: it says TAG, has no expression, and the heart-beat decides."""
    fields = {**remoting.pull_fields("T", 0, offset, group, hold_ms), "subscription": "", "subVersion": version}
    return {**fields, "sysFlag": fields["sysFlag"] & ~4}


def check_config(connection, expression):
    return connection.request(CHECK_CONFIG, {}, json.dumps({"clientId": "c", "group": "g", "subscriptionData": subscription(expression, 1)}).encode())


def expect(answer, code, what, remark=""):
    check(answer.code == code and remark in (answer.remark or ""), f"{what}: {code} {remark!r} was expected: {answer}")


def bodies(answer):
    return [record.body for record in remoting.records(answer.body)]


@case
def sql_filters():
    with Cluster(settings=["enablePropertyFilter=true"]) as cluster:
        cluster.create_topic("T", 1)
        address = cluster.broker(cluster.leader())
        with remoting.Connection(address, 5.0) as connection, remoting.Connection(address, 5.0) as client:
            def send(n, color):
                answer = connection.request(remoting.SEND_V2, remoting.send_fields("T", 0, f"n\x01{n}\x02color\x01{color}\x02TAGS\x01A"), b"%d" % n)
                check(answer.code == 0, f"send: {answer}")

            def pull(fields):
                return client.request(remoting.PULL, fields)

            def pulled(fields, *expected):
                answer = pull(fields)
                expect(answer, 0 if expected else 20, f"pull {fields}")
                check(bodies(answer) == [b"%d" % n for n in expected], f"pull {fields}: {bodies(answer)}")
                check(answer.ext["nextBeginOffset"] == "20", f"pull {fields}: {answer.ext}")

            for n in range(20):
                send(n, ("red", "green")[n % 2])

            pulled(own(0, "n > 16"), 17, 18, 19)
            pulled(own(0, "n BETWEEN 3 AND 6 AND color = 'red'"), 4, 6)
            pulled(own(0, "TAGS = 'A' AND nosuch IS NULL AND n < 2"), 0, 1)
            pulled(own(0, "nosuch = 1"))
            expect(pull(own(0, "n >")), 23, "a bad expression", "parse the consumer's subscription failed")
            expect(pull(own(0, "n = 0.0")), 23, "a literal that RocketMQ refuses")
            expect(pull({**own(0, "n > 1"), "expressionType": "XPATH"}), 1, "an unknown type", "filter message by XPATH")
            expect(check_config(client, "n > 1"), 0, "46")
            expect(check_config(client, "n >"), 23, "46 of a bad expression", "ParseException")

            expect(pull(stored(0, "g")), 24, "nobody of that group is here")
            beat(client, "g", "n >", 10)
            expect(pull(stored(0, "g", 10)), 27, "nothing that compiles was registered", "filter data not exist")
            beat(client, "g", "n > 17", 11)
            pulled(stored(0, "g"), 18, 19)
            pulled(stored(0, "g", 11), 18, 19)
            pulled(own(0, "n > 17", "g"), 18, 19)
            expect(pull(stored(0, "g", 12)), 25, "a newer version than the heart-beat's")
            beat(client, "g", "n > ", 12)
            expect(pull(stored(0, "g", 12)), 28, "what compiled is older", "filter data not latest")
            beat(client, "g", "n > 99", 13)
            pulled(stored(0, "g", 13))

            # Waiting pulls: only what passes wakes them, although what they wait with is replaced or its client leaves.
            with remoting.Connection(address, 5.0) as other:
                beat(other, "h", "n > 500", 1)
                waiting = {"own": client.send(remoting.PULL, own(20, "n > 500", hold_ms=15000)),
                           "stored": client.send(remoting.PULL, stored(20, "g", hold_ms=15000)),
                           "short": client.send(remoting.PULL, own(20, "n > 5000", hold_ms=1000)),
                           "gone": client.send(remoting.PULL, stored(20, "h", hold_ms=15000))}
                other.send(remoting.PULL, own(20, "n > 501", hold_ms=15000))
                beat(client, "g", "n > 600 OR n = 7", 14)
                expect(check_config(other, "n > 1"), 0, "46")
            send(7, "blue")
            send(99, "blue")
            answer = client.answer(waiting["short"])
            check(answer.code in (19, 20) and answer.body == b"", f"at its deadline: {answer}")
            check(client.answers == {}, f"woken by what does not pass: {client.answers}")
            start = time.monotonic()
            send(1000, "blue")
            check(bodies(client.answer(waiting["own"])) == [b"1000"], "the request's own expression")
            check(bodies(client.answer(waiting["stored"])) == [b"7", b"1000"], "the expression that the group has by now")
            expect(client.answer(waiting["gone"]), 24, "its group has left meanwhile")
            check(time.monotonic() - start < 5 * remoting.PATIENCE, "answered by the deadline, not by the message")

            # The key is looked at for each request.
            expect(client.request(UPDATE_CONFIG, {}, b"enablePropertyFilter=false\n"), 0, "25")
            expect(pull(own(0, "n > 1")), 1, "pull", NOT_SUPPORTED)
            expect(pull(stored(0, "g")), 1, "pull", NOT_SUPPORTED)
            expect(check_config(client, "n > 1"), 1, "46", NOT_SUPPORTED)
            expect(pull(remoting.pull_fields("T", 0, 0)), 0, "tags need no key")


@case
def sql_filters_on_old_messages():
    """A pull that would read many records from the disk stops early and says where to go on."""
    with Cluster(nodes=1, settings=["enablePropertyFilter=true"]) as cluster:
        cluster.create_topic("T", 2)
        with remoting.Connection(cluster.broker(0), 5.0) as connection:
            def send(queue, properties, body):
                answer = connection.request(remoting.SEND_V2, remoting.send_fields("T", queue, properties), body)
                check(answer.code == 0, f"send: {answer}")

            for n in range(100):
                send(0, f"n\x01{n}", b"%d" % n)
            for _ in range(70):
                send(1, "", bytes(1 << 20))
            offset, found, pulls = 0, [], 0
            while offset < 100:
                answer = connection.request(remoting.PULL, own(offset, "n = 5 OR n >= 97"))
                check(answer.code in (0, 20) and offset < int(answer.ext["nextBeginOffset"]) <= offset + 32, f"pull at {offset}: {answer}")
                found += bodies(answer)
                offset, pulls = int(answer.ext["nextBeginOffset"]), pulls + 1
            check(found == [b"5", b"97", b"98", b"99"] and pulls == 4, f"{found} in {pulls} pulls")
