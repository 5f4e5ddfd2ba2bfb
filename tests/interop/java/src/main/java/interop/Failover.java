package interop;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * The leader is killed with -9 while a producer sends and a push consumer reads. CLUSTER is the path of deploy/cluster, CLUSTER_DIR its folder;
 * without them the scenario is skipped.
 */
final class Failover {
    private static final int QUEUES = 4;
    private static final int BEFORE_MS = 3000;
    private static final int AFTER_MS = 6000;

    private Failover() {
    }

    static List<Main.Scenario> scenarios() {
        return List.of(Main.Scenario.alone("leader-killed", 120, Failover::leaderKilled));
    }

    static String cluster(String... arguments) throws Exception {
        String[] command = new String[arguments.length + 1];
        command[0] = System.getenv("CLUSTER");
        System.arraycopy(arguments, 0, command, 1, arguments.length);
        Process process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8).strip();
        if (process.waitFor() != 0) {
            throw new IOException(String.join(" ", command) + " failed");
        }
        return output;
    }

    /** A machine that stands still for a while makes the nodes elect: then there is none for a moment. */
    private static String leader(String dir) throws Exception {
        for (long deadline = System.nanoTime() + 30_000_000_000L * Main.SLOWNESS;;) {
            try {
                return cluster("leader", dir);
            } catch (IOException e) {
                if (System.nanoTime() > deadline) {
                    throw e;
                }
            }
        }
    }

    /** Every acknowledged message is consumed, and stands at the place that the acknowledgement named. What failed may be there twice or not at all. */
    private static void leaderKilled(Fixture f) throws Exception {
        String dir = System.getenv("CLUSTER_DIR");
        if (dir == null || System.getenv("CLUSTER") == null) {
            throw new Main.Skipped("CLUSTER and CLUSTER_DIR are not set");
        }
        f.createTopic(QUEUES);
        Set<String> consumed = Collections.newSetFromMap(new ConcurrentHashMap<>());
        DefaultMQPushConsumer consumer = f.push();
        consumer.subscribe(f.topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> consumed.add(Fixture.body(message)));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = f.producer();

        Map<String, String> acknowledged = new ConcurrentHashMap<>(); // queue/offset -> body
        AtomicBoolean stop = new AtomicBoolean();
        AtomicReference<Throwable> broken = new AtomicReference<>();
        AtomicReference<Long> lastAcknowledged = new AtomicReference<>(System.currentTimeMillis());
        long[] longestGap = {0};
        Thread sender = new Thread(() -> {
            for (int i = 0; !stop.get(); i++) {
                String body = String.format("m-%06d", i);
                while (!stop.get()) { // the client's own retries end within milliseconds when the connection is refused
                    try {
                        SendResult result = producer.send(f.message(body));
                        Check.equal(SendStatus.SEND_OK, result.getSendStatus(), "status of " + body);
                        String place = result.getMessageQueue().getQueueId() + "/" + result.getQueueOffset();
                        Check.equal(null, acknowledged.put(place, body), "earlier message at " + place);
                        long now = System.currentTimeMillis();
                        longestGap[0] = Math.max(longestGap[0], now - lastAcknowledged.getAndSet(now));
                        break;
                    } catch (InterruptedException | AssertionError e) {
                        broken.compareAndSet(null, e);
                        return;
                    } catch (Exception retryable) {
                        pause(50);
                    }
                }
                pause(2);
            }
        }, "sender");
        sender.start();
        Thread.sleep(BEFORE_MS);
        String leader = leader(dir);
        int before = acknowledged.size();
        cluster("kill", dir, leader);
        try {
            Thread.sleep(AFTER_MS);
            // 4.9.8 does not notice a connection that ends between two requests and waits for the time-out of the next.
            Check.becomes(30, true, () -> acknowledged.size() >= before + 100, "100 sends are acknowledged afterwards");
            stop.set(true);
            sender.join();
        } finally {
            stop.set(true);
            cluster("restart", dir, leader);
        }
        Check.that(broken.get() == null, "%s", broken.get());
        Set<String> wanted = new HashSet<>(acknowledged.values());
        System.out.printf("    leader-killed: %d acknowledged before, %d after; longest gap %d ms%n", before, acknowledged.size() - before, longestGap[0]);
        Check.becomes(60, true, () -> consumed.containsAll(wanted), "every acknowledged message was consumed");
        DefaultMQPullConsumer reader = f.pull();
        // The node that came back is a name server too, and knows no leader until that one has registered there: a client that asks it first has to
        // ask again.
        List<MessageExt> stored = new ArrayList<>();
        Check.becomes(30, true, () -> readAll(f, reader, stored), "a new client reads all queues");
        Set<String> places = new HashSet<>();
        for (MessageExt message : stored) {
            String place = message.getQueueId() + "/" + message.getQueueOffset();
            places.add(place);
            Check.that(!acknowledged.containsKey(place) || acknowledged.get(place).equals(Fixture.body(message)), "%s holds %s, acknowledged was %s",
                place, Fixture.body(message), acknowledged.get(place));
        }
        Check.that(places.containsAll(acknowledged.keySet()), "places that were acknowledged are empty");
    }

    private static void pause(int milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private static boolean readAll(Fixture f, DefaultMQPullConsumer reader, List<MessageExt> messages) {
        messages.clear();
        try {
            for (int queue = 0; queue < QUEUES; queue++) {
                int count = (int) Fixture.admin().maxOffset(f.queue(queue));
                messages.addAll(Fixture.readQueue(reader, f.queue(queue), count));
            }
            return true;
        } catch (Exception notYet) {
            return false;
        }
    }
}
