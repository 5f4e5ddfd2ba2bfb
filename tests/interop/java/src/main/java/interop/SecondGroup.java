package interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;

/**
 * A second group of brokers, broker-b, under the same name servers, with a topic on both: all of it is killed, and no synchronous send fails. CLUSTER is
 * the path of deploy/cluster, SECOND_DIR a folder for the group and SECOND_PORT its first port; without them the scenario is skipped.
 *
 * Client 4.9.8 does not look at a connection that is closed while a request waits on it, and waits until the whole time of the send is up, whatever the
 * brokers do. So with it nothing is under way at the very moment of the kill; with 5.3.3 there is.
 */
final class SecondGroup {
    private static final int NODES = 3;
    private static final int SENDERS = 3;
    private static final int HALF_MS = 3000;

    private SecondGroup() {
    }

    static List<Main.Scenario> scenarios() {
        return List.of(Main.Scenario.alone("second-group-killed", 90, SecondGroup::killed));
    }

    private static void killed(Fixture f) throws Exception {
        String dir = System.getenv("SECOND_DIR");
        String port = System.getenv("SECOND_PORT");
        if (dir == null || port == null || System.getenv("CLUSTER") == null) {
            throw new Main.Skipped("CLUSTER, SECOND_DIR and SECOND_PORT are not set");
        }
        Failover.cluster("start", dir, "--nodes", Integer.toString(NODES), "--port", port, "--group", "broker-b", "--namesrv", System.getenv("NAMESRV_ADDR"));
        f.onClose(() -> {
            try {
                Failover.cluster("stop", dir);
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        });
        Check.becomes(10, 2, () -> Fixture.admin().examineBrokerClusterInfo().getBrokerAddrTable().size(), "groups at the name servers");
        f.createTopic(4);
        Check.becomes(10, 2, () -> Fixture.admin().examineTopicRouteInfo(f.topic).getQueueDatas().size(), "groups in the topic's route");

        // For 30 s, the client's own period, it does not ask which brokers are left.
        DefaultMQProducer producer = f.attach(new DefaultMQProducer(f.topic + "-producer"));
        producer.setPollNameServerInterval(30_000);
        producer.setSendMsgTimeout(3000 * Main.SLOWNESS);
        producer.start();
        f.onClose(producer::shutdown);
        Map<String, Integer> sent = new ConcurrentHashMap<>();
        ReentrantReadWriteLock moment = new ReentrantReadWriteLock(true);
        AtomicBoolean stop = new AtomicBoolean();
        AtomicReference<Throwable> failure = new AtomicReference<>();
        List<Thread> senders = new ArrayList<>();
        for (int i = 0; i < SENDERS; i++) {
            senders.add(new Thread(() -> {
                while (!stop.get()) {
                    moment.readLock().lock();
                    try {
                        SendResult result = producer.send(f.message("m"));
                        Check.equal(SendStatus.SEND_OK, result.getSendStatus(), "status");
                        sent.merge(result.getMessageQueue().getBrokerName(), 1, Integer::sum);
                    } catch (Exception | AssertionError e) {
                        failure.compareAndSet(null, e);
                        return;
                    } finally {
                        moment.readLock().unlock();
                    }
                }
            }, "sender-" + i));
        }
        senders.forEach(Thread::start);
        Thread.sleep(HALF_MS);
        int before = sent.getOrDefault("broker-b", 0);
        if (!Main.isVersion5()) {
            moment.writeLock().lock();
        }
        for (int i = 0; i < NODES; i++) {
            Failover.cluster("kill", dir, Integer.toString(i));
        }
        if (!Main.isVersion5()) {
            moment.writeLock().unlock();
        }
        Thread.sleep(HALF_MS);
        stop.set(true);
        for (Thread sender : senders) {
            sender.join();
        }
        System.out.printf("    second-group-killed: %s, %d to broker-b before%n", sent, before);
        Check.that(failure.get() == null, "a send failed: %s", failure.get());
        Check.that(before > 0 && sent.get("broker-a") > before, "sends went to %s", sent);
    }
}
