package interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Tags and SQL92 expressions by each kind of consumer: what is there already, and what arrives while its pull waits. */
final class Filtering {
    private static final int COUNT = 40;
    private static final String SQL = "n BETWEEN 10 AND 29 AND color IN ('red', 'blue') AND missing IS NULL";

    private Filtering() {
    }

    static List<Main.Scenario> scenarios() {
        return List.of(
            Main.Scenario.quick("filter-push", 60, Filtering::push),
            Main.Scenario.quick("filter-pull", 45, Filtering::pull),
            Main.Scenario.quick("filter-lite-pull", 60, Filtering::litePull),
            Main.Scenario.slow("filter-refused", 45, Filtering::refused));
    }

    private static void enable() throws Exception {
        Properties properties = new Properties();
        properties.setProperty("enablePropertyFilter", "true");
        for (var broker : Fixture.admin().examineBrokerClusterInfo().getBrokerAddrTable().values()) {
            for (String address : broker.getBrokerAddrs().values()) {
                Fixture.admin().updateBrokerConfig(address, properties);
            }
        }
    }

    private static String color(int i) {
        return List.of("red", "green", "blue").get(i % 3);
    }

    private static void send(Fixture f, DefaultMQProducer producer, String prefix) throws Exception {
        for (int i = 0; i < COUNT; i++) {
            Message message = new Message(f.topic, color(i), (prefix + i).getBytes());
            message.putUserProperty("n", Integer.toString(i));
            message.putUserProperty("color", color(i));
            producer.send(message);
        }
    }

    private static List<String> expected(String... prefixes) {
        List<String> bodies = new ArrayList<>();
        for (String prefix : prefixes) {
            for (int i = 10; i < 30; i++) {
                if (i % 3 != 1) {
                    bodies.add(prefix + i);
                }
            }
        }
        return bodies.stream().sorted().collect(Collectors.toList());
    }

    private static List<String> expectedByTag(String... prefixes) {
        List<String> bodies = new ArrayList<>();
        for (String prefix : prefixes) {
            for (int i = 0; i < COUNT; i++) {
                if (i % 3 != 1) {
                    bodies.add(prefix + i);
                }
            }
        }
        return bodies.stream().sorted().collect(Collectors.toList());
    }

    /** Two groups of one topic, one by tags and one by SQL92. */
    private static void push(Fixture f) throws Exception {
        enable();
        f.createTopic(2);
        DefaultMQProducer producer = f.producer();
        send(f, producer, "early");
        DefaultMQPushConsumer bySql = f.push();
        bySql.subscribe(f.topic, MessageSelector.bySql(SQL));
        Inbox sql = Fixture.collect(bySql);
        DefaultMQPushConsumer byTags = f.push();
        byTags.setConsumerGroup(f.group + "-tags");
        byTags.subscribe(f.topic, "red || blue || none");
        Inbox tags = Fixture.collect(byTags);
        bySql.start();
        byTags.start();
        Check.becomes(30, expected("early"), sql::sortedBodies, "early messages by SQL92");
        Check.becomes(30, expectedByTag("early"), tags::sortedBodies, "early messages by tags");
        Thread.sleep(1000); // its pulls wait by now
        long begin = System.currentTimeMillis();
        send(f, producer, "late");
        Check.becomes(10, expected("early", "late"), sql::sortedBodies, "late messages by SQL92");
        Check.becomes(10, expectedByTag("early", "late"), tags::sortedBodies, "late messages by tags");
        Check.that(System.currentTimeMillis() - begin < 5000L * Main.SLOWNESS, "waiting pulls were woken late");
    }

    @SuppressWarnings("deprecation") // see Fixture
    private static void pull(Fixture f) throws Exception {
        enable();
        f.createTopic(1);
        send(f, f.producer(), "m");
        DefaultMQPullConsumer consumer = f.pull();
        MessageQueue queue = f.queue(0);
        // It learns of the brokers with its first pull, and of their version with the heart-beat behind that, up to 30 s later.
        Check.equal(PullStatus.FOUND, consumer.pull(queue, "*", 0, 1).getPullStatus(), "status of a pull without a filter");
        Check.becomes(35, true, () -> {
            consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory().sendHeartbeatToAllBrokerWithLock();
            try {
                return consumer.pull(queue, MessageSelector.bySql(SQL), 0, 1) != null;
            } catch (MQClientException e) {
                return false;
            }
        }, "a first pull by SQL92");
        for (boolean bySql : new boolean[] {true, false}) {
            List<String> bodies = new ArrayList<>();
            for (long next = 0; next < COUNT;) {
                PullResult result = bySql ? consumer.pull(queue, MessageSelector.bySql(SQL), next, 7) : consumer.pull(queue, "red || blue", next, 7);
                if (result.getPullStatus() == PullStatus.FOUND) {
                    result.getMsgFoundList().forEach(message -> bodies.add(Fixture.body(message)));
                }
                Check.that(result.getNextBeginOffset() > next, "a pull at " + next + " goes on at " + result.getNextBeginOffset());
                next = result.getNextBeginOffset();
            }
            Check.equal(bySql ? expected("m") : expectedByTag("m"), bodies.stream().sorted().collect(Collectors.toList()), "bodies");
        }
        PullResult nothing = consumer.pull(queue, MessageSelector.bySql("n > 1000"), 0, 32);
        Check.equal(PullStatus.NO_MATCHED_MSG, nothing.getPullStatus(), "status where nothing matches");
        Check.equal((long) COUNT, nothing.getNextBeginOffset(), "next offset where nothing matches");
        Check.equal(PullStatus.NO_NEW_MSG, consumer.pull(queue, MessageSelector.bySql(SQL), COUNT, 32).getPullStatus(), "status at the end");
    }

    private static void litePull(Fixture f) throws Exception {
        enable();
        f.createTopic(2);
        DefaultLitePullConsumer consumer = f.attach(new DefaultLitePullConsumer(f.group));
        consumer.subscribe(f.topic, MessageSelector.bySql(SQL));
        consumer.start();
        f.onClose(consumer::shutdown);
        send(f, f.producer(), "m");
        List<String> bodies = new ArrayList<>();
        Check.becomes(30, expected("m"), () -> {
            for (MessageExt message : consumer.poll(500)) {
                bodies.add(Fixture.body(message));
            }
            return bodies.stream().sorted().collect(Collectors.toList());
        }, "bodies");
        Check.equal(0, consumer.poll(1000).size(), "more messages");
    }

    /** The client asks before it starts, and says what the broker says. */
    private static void refused(Fixture f) throws Exception {
        enable();
        f.createTopic(1);
        DefaultMQPushConsumer consumer = f.push();
        consumer.subscribe(f.topic, MessageSelector.bySql("n >"));
        Fixture.collect(consumer);
        try {
            consumer.start();
        } catch (MQClientException e) {
            Check.that(String.valueOf(e.getMessage()).contains("23") || e.getResponseCode() == 23, "refused with " + e.getMessage());
            return;
        }
        throw new AssertionError("a consumer with an expression that is none started");
    }
}
