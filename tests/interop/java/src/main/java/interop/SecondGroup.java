package interop;

import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import org.apache.rocketmq.client.hook.SendMessageContext;
import org.apache.rocketmq.client.hook.SendMessageHook;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;

/**
 * A second group of brokers, broker-b, under the same name servers, with a topic on both: all of it is killed, and no synchronous send fails. CLUSTER is
 * the path of deploy/cluster, SECOND_DIR a folder for the group and SECOND_PORT its first port; without them the scenario is skipped.
 *
 * A client may lose a request whose connection ends, and wait for the answer until its time is up, whatever the brokers do:
 * - 4.9.8 looks at no request when a connection ends; so does one that it writes before its network thread has seen the end, on a busy machine long after
 *   the kill. A request has the whole time of the send. So nothing is under way when the brokers are killed, and sends go on when the client knows that
 *   its connections are closed.
 * - 5.3.3 fails what waits on a connection that ends, unless another thread asked for a new one in between. So sends go on during the kill, and no
 *   request may take the whole time of its send.
 */
final class SecondGroup {
    private static final int NODES = 3;
    private static final int SENDERS = 3;
    private static final int HALF_MS = 3000;
    private static final int MESSAGES = 20;
    private static final int REQUEST_MS = 3000 * Main.SLOWNESS;

    private SecondGroup() {
    }

    static List<Main.Scenario> scenarios() {
        return List.of(Main.Scenario.alone("second-group-killed", 90, SecondGroup::killed));
    }

    /** What became of each thread's last requests: a send that failed is explained by them. */
    private static final class Requests implements SendMessageHook {
        private static final int KEPT = 4;
        private final Map<Thread, Deque<String>> last = new ConcurrentHashMap<>();

        @Override
        public String hookName() {
            return "requests";
        }

        @Override
        public void sendMessageBefore(SendMessageContext context) {
            context.setMqTraceContext(System.nanoTime());
        }

        @Override
        public void sendMessageAfter(SendMessageContext context) {
            Deque<String> mine = last.computeIfAbsent(Thread.currentThread(), thread -> new ArrayDeque<>());
            if (mine.size() == KEPT) {
                mine.remove();
            }
            mine.add(String.format("%s %s after %d ms", context.getBrokerAddr(), context.getException() == null ? "answered" : context.getException(),
                (System.nanoTime() - (Long) context.getMqTraceContext()) / 1_000_000));
        }

        String ofThisThread() {
            return String.join("; ", last.getOrDefault(Thread.currentThread(), new ArrayDeque<>()));
        }
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
        Check.becomes(10, NODES, () -> addresses("broker-b").size(), "nodes of broker-b at the name servers");
        Collection<String> addresses = addresses("broker-b");

        // For 30 s, the client's own period, it does not ask which brokers are left.
        DefaultMQProducer producer = f.attach(new DefaultMQProducer(f.topic + "-producer"));
        producer.setPollNameServerInterval(30_000);
        producer.setSendMsgTimeout(REQUEST_MS);
        if (Main.isVersion5()) {
            producer.setSendMsgTimeout(3 * REQUEST_MS);
            DefaultMQProducer.class.getMethod("setSendMsgMaxTimeoutPerRequest", int.class).invoke(producer, REQUEST_MS); // 4.9.8 has none
        }
        Requests requests = new Requests();
        producer.getDefaultMQProducerImpl().registerSendMessageHook(requests);
        producer.start();
        f.onClose(producer::shutdown);
        Map<String, Integer> sent = new ConcurrentHashMap<>();
        ReentrantReadWriteLock moment = new ReentrantReadWriteLock(true);
        AtomicBoolean stop = new AtomicBoolean();
        AtomicReference<String> failure = new AtomicReference<>();
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
                        failure.compareAndSet(null, e + " (last requests: " + requests.ofThisThread() + ")");
                        return;
                    } finally {
                        moment.readLock().unlock();
                    }
                }
            }, "sender-" + i));
        }
        boolean quiet = !Main.isVersion5();
        senders.forEach(Thread::start);
        try {
            Thread.sleep(HALF_MS);
            Check.becomes(20, true, () -> failure.get() != null || sent.getOrDefault("broker-b", 0) >= MESSAGES, "sends to broker-b are answered");
            if (quiet) {
                moment.writeLock().lock();
            }
            try {
                for (int i = 0; i < NODES; i++) {
                    Failover.cluster("kill", dir, Integer.toString(i));
                }
                if (quiet) {
                    Check.becomes(20, List.of(), () -> connected(producer, addresses), "what the client believes to be connected");
                }
            } finally {
                if (quiet) {
                    moment.writeLock().unlock();
                }
            }
            int before = sent.getOrDefault("broker-a", 0);
            Thread.sleep(HALF_MS);
            Check.becomes(20, true, () -> failure.get() != null || sent.getOrDefault("broker-a", 0) >= before + MESSAGES, "broker-a answers afterwards");
        } finally {
            stop.set(true);
            for (Thread sender : senders) {
                sender.join();
            }
        }
        System.out.printf("    second-group-killed: %s%n", sent);
        Check.that(failure.get() == null, "a send failed: %s", failure.get());
    }

    private static Collection<String> addresses(String brokerName) throws Exception {
        var broker = Fixture.admin().examineBrokerClusterInfo().getBrokerAddrTable().get(brokerName);
        return broker == null ? List.of() : List.copyOf(broker.getBrokerAddrs().values());
    }

    /** The addresses to which the client believes to have a connection, by a table of its own. */
    private static List<String> connected(DefaultMQProducer producer, Collection<String> addresses) throws ReflectiveOperationException {
        Object remoting = producer.getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl().getRemotingClient();
        Field table = remoting.getClass().getDeclaredField("channelTables");
        table.setAccessible(true);
        List<String> connected = new ArrayList<>();
        for (String address : addresses) {
            Object connection = ((Map<?, ?>) table.get(remoting)).get(address);
            if (connection != null) {
                Method isOK = connection.getClass().getMethod("isOK");
                isOK.setAccessible(true);
                if ((boolean) isOK.invoke(connection)) {
                    connected.add(address);
                }
            }
        }
        return connected;
    }
}
