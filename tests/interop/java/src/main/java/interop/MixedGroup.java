package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;

/**
 * One group with a member of the Java client and one of libledgermq: whatever the strategy, each queue has exactly one of them. CONSUMER_MEMBER is the
 * path of the program that is libledgermq's member; without it the scenario is skipped.
 */
final class MixedGroup {
    private static final int QUEUES = 12;
    private static final int MESSAGES = 60;

    private MixedGroup() {
    }

    static List<Main.Scenario> scenarios() {
        return List.of(Main.Scenario.quick("mixed-group", 90, MixedGroup::mixed));
    }

    /** A process that prints its queues (Q lines) and messages (M lines). */
    private static final class Member implements AutoCloseable {
        private final Process process;
        private Set<String> queues = new HashSet<>();
        private final List<String> bodies = new ArrayList<>();

        Member(String... options) throws Exception {
            List<String> command = new ArrayList<>();
            command.add(System.getenv("CONSUMER_MEMBER"));
            if (command.get(0) == null) {
                throw new Main.Skipped("CONSUMER_MEMBER is not set");
            }
            command.addAll(List.of(options));
            process = new ProcessBuilder(command).redirectErrorStream(true).start();
            Thread reader = new Thread(this::read);
            reader.setDaemon(true);
            reader.start();
        }

        private void read() {
            try (BufferedReader lines = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8))) {
                for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                    String[] words = line.split(" ", 9);
                    synchronized (this) {
                        if ("Q".equals(words[0])) {
                            queues = new HashSet<>(List.of(line.split(" ")).subList(2, line.split(" ").length));
                        } else if ("M".equals(words[0])) {
                            bodies.add(words[8]);
                        }
                    }
                }
            } catch (java.io.IOException ended) {
                // The test finds out by what is missing.
            }
        }

        synchronized Set<String> queues() {
            return new HashSet<>(queues);
        }

        synchronized List<String> bodies() {
            return new ArrayList<>(bodies);
        }

        @Override
        public void close() throws Exception {
            process.getOutputStream().close();
            Check.equal(0, process.waitFor(), "exit status of libledgermq's member");
        }
    }

    private static Set<String> queuesOf(DefaultMQPushConsumer consumer, String topic) {
        return consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream()
            .filter(queue -> queue.getTopic().equals(topic)).map(queue -> queue.getBrokerName() + "/" + queue.getQueueId()).collect(Collectors.toSet());
    }

    private static boolean isShared(Set<String> java, Set<String> ours) {
        Set<String> all = new HashSet<>(java);
        all.addAll(ours);
        return all.size() == QUEUES && java.size() + ours.size() == QUEUES && !ours.isEmpty(); // the first member has all of them for a while
    }

    private static void mixed(Fixture f) throws Exception {
        f.createTopic(QUEUES);
        Map<String, AllocateMessageQueueStrategy> strategies = new TreeMap<>(Map.of("average", new AllocateMessageQueueAveragely(),
            "circle", new AllocateMessageQueueAveragelyByCircle(), "hash", new AllocateMessageQueueConsistentHash()));
        for (Map.Entry<String, AllocateMessageQueueStrategy> strategy : strategies.entrySet()) {
            String name = strategy.getKey();
            DefaultMQPushConsumer consumer = f.push();
            consumer.setConsumerGroup(f.group + "-" + name);
            consumer.setAllocateMessageQueueStrategy(strategy.getValue());
            consumer.subscribe(f.topic, name);
            Inbox inbox = Fixture.collect(consumer);
            consumer.start();
            try (Member member = new Member("--group", f.group + "-" + name, "--topic", f.topic, "--expression", name, "--allocate", name)) {
                Check.becomes(30, true, () -> isShared(queuesOf(consumer, f.topic), member.queues()), name + ": each queue has one member");
                if (!name.equals("hash")) {
                    Check.equal(QUEUES / 2, member.queues().size(), name + ": queues of libledgermq's member");
                }
                var producer = f.producer();
                for (int i = 0; i < MESSAGES; i++) {
                    producer.send(new org.apache.rocketmq.common.message.Message(f.topic, name, (name + i).getBytes(StandardCharsets.UTF_8)));
                }
                Check.becomes(20, MESSAGES, () -> inbox.size() + member.bodies().size(), name + ": messages");
                Set<String> bodies = new HashSet<>(inbox.bodies());
                bodies.addAll(member.bodies());
                Check.equal(MESSAGES, bodies.size(), name + ": different messages");
            }
            // The one that is left gets all.
            Check.becomes(20, QUEUES, () -> queuesOf(consumer, f.topic).size(), name + ": queues of the last member");
            consumer.shutdown();
        }
    }
}
