"""What a stop leaves behind for the next start."""
import os
import signal
import time

import remoting
from cluster import Cluster, check, wait_for
from e2e import case, rounds


@case
def a_clean_stop_leaves_nothing_to_do():
    """Whoever stops a service may say so twice: that is one clean stop, behind which a start applies nothing again."""
    with Cluster(nodes=1) as cluster:
        cluster.create_topic("T", 1)
        for turn in range(rounds(6, 10, 50)):
            check(cluster.send("T", 0, b"%d" % turn).code == 0, "send")
            pid = cluster.pid(0)
            for _ in range(4):
                try:
                    os.kill(pid, signal.SIGTERM)
                except ProcessLookupError:
                    pass
                time.sleep(0.001)
            wait_for("the end", 20, lambda: not cluster.alive(0))
            check(cluster.output(0).count("the broker has stopped") == turn + 1, "the stop was not clean")
            cluster.restart(0)
            cluster.leader(30)
            with remoting.Connection(cluster.broker(0)) as connection:
                check(remoting.max_offset(connection, "T") == turn + 1, "max offset")
        check("applying index" not in cluster.output(0), "a start had something to apply again")
