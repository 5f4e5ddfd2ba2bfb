"""A pull whose subscription version is newer than the heart-beat's."""
import json

import remoting
from cluster import Cluster, check
from e2e import case

HEART_BEAT = 34


@case
def newer_subscription_version_does_not_stop_a_consumer():
    """Java clients raise the version when their queues change and may not tell it for 30 s; they filter tags themselves, so they get everything meanwhile."""
    with Cluster(nodes=1) as cluster:
        cluster.create_topic("T", 1)
        for tag in (b"A", b"B"):
            check(cluster.send("T", 0, tag, f"TAGS\x01{tag.decode()}").code == 0, "send")
        subscription = {"classFilterMode": False, "codeSet": [65], "expressionType": "TAG", "subString": "A", "subVersion": 10, "tagsSet": ["A"], "topic": "T"}
        consumer = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "consumeType": "CONSUME_PASSIVELY", "groupName": "g", "messageModel": "CLUSTERING",
                    "subscriptionDataSet": [subscription], "unitMode": False}
        with remoting.Connection(cluster.broker(0)) as connection:
            answer = connection.request(HEART_BEAT, {}, json.dumps({"clientID": "c@1", "consumerDataSet": [consumer], "producerDataSet": []}).encode())
            check(answer.code == 0, f"heart-beat: {answer}")

            def pull(version, **changes):
                fields = {**remoting.pull_fields("T", 0, 0, group="g"), "sysFlag": 0, "subVersion": version, **changes}
                return connection.request(remoting.PULL, {name: value for name, value in fields.items() if value is not None})

            def bodies(answer):
                check(answer.code == 0, f"pull: {answer}")
                return [record.body for record in remoting.records(answer.body)]

            check(bodies(pull(10, subscription=None)) == [b"A"], "the version of the heart-beat: its tags")
            check(bodies(pull(11, subscription=None)) == [b"A", b"B"], "a newer version: everything, the client filters")
            check(pull(11).code == 25, "a newer version and a text that the flags do not announce")
            check(pull(11, subscription=None, expressionType="SQL92").code == 25, "a newer version of an expression that clients cannot evaluate")
