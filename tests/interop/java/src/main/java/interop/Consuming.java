package interop;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Push (concurrent, ordered, broadcast), pull and lite pull consumers; filters, retries, dead letters, delays, stored offsets. */
final class Consuming {
    private Consuming() {
    }

    static List<Main.Scenario> scenarios() {
        return List.of(
            Main.Scenario.slow("dead-letter", 90, Consuming::deadLetter),
            Main.Scenario.quick("retry", 60, Consuming::retry),
            Main.Scenario.slow("delay", 45, Consuming::delay),
            Main.Scenario.quick("offsets-resume", 60, Consuming::resume),
            Main.Scenario.slow("push-shared", 60, Consuming::shared),
            Main.Scenario.quick("push-tags", 45, Consuming::tags),
            Main.Scenario.quick("push-orderly", 60, Consuming::orderly),
            Main.Scenario.quick("push-broadcast", 45, Consuming::broadcast),
            Main.Scenario.quick("pull", 30, Consuming::pull),
            Main.Scenario.quick("lite-pull", 60, Consuming::litePull));
    }

    private static void tags(Fixture f) throws Exception {
        f.createTopic(2);
        DefaultMQPushConsumer consumer = f.push();
        consumer.subscribe(f.topic, "A || C");
        Inbox inbox = Fixture.collect(consumer);
        consumer.start();
        DefaultMQProducer producer = f.producer();
        for (int i = 0; i < 60; i++) {
            String tag = "ABC".substring(i % 3, i % 3 + 1);
            producer.send(new Message(f.topic, tag, (tag + i).getBytes()));
        }
        producer.send(new Message(f.topic, "untagged".getBytes()));
        inbox.awaitExactly(40, 30);
        Set<String> found = inbox.messages().stream().map(MessageExt::getTags).collect(Collectors.toSet());
        Check.equal(Set.of("A", "C"), found, "tags");
        Check.equal(40, new HashSet<>(inbox.bodies()).size(), "different messages");
    }

    /** Two members of a group: the second is noticed at once, each message goes to one of them. */
    private static void shared(Fixture f) throws Exception {
        f.createTopic(8);
        List<Inbox> inboxes = new ArrayList<>();
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            DefaultMQPushConsumer consumer = f.push();
            consumer.subscribe(f.topic, "*");
            inboxes.add(Fixture.collect(consumer));
            consumer.start();
            consumers.add(consumer);
        }
        for (DefaultMQPushConsumer consumer : consumers) {
            Check.becomes(15, 4L, () -> consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream()
                .filter(queue -> queue.getTopic().equals(f.topic)).count(), "queues of each member");
        }
        f.send(f.producer(), Fixture.numbered("m", 80));
        Check.becomes(20, 80, () -> inboxes.get(0).size() + inboxes.get(1).size(), "messages");
        Check.equal(40, inboxes.get(0).size(), "messages of the first member");
        Set<String> bodies = new HashSet<>(inboxes.get(0).bodies());
        bodies.addAll(inboxes.get(1).bodies());
        Check.equal(80, bodies.size(), "different messages");
    }

    /** The order of each key holds, also behind a message whose queue was suspended once. */
    private static void orderly(Fixture f) throws Exception {
        f.createTopic(4);
        DefaultMQPushConsumer consumer = f.push();
        consumer.subscribe(f.topic, "*");
        Inbox inbox = new Inbox();
        AtomicBoolean suspended = new AtomicBoolean();
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            if (Fixture.body(messages.get(0)).equals("key3-0005") && suspended.compareAndSet(false, true)) {
                context.setSuspendCurrentQueueTimeMillis(500);
                return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            }
            messages.forEach(inbox::add);
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = f.producer();
        for (int i = 0; i < 20; i++) {
            for (int key = 0; key < 8; key++) {
                producer.send(f.message(String.format("key%d-%04d", key, i)), (queues, message, of) -> queues.get((int) of % queues.size()), key);
            }
        }
        inbox.awaitExactly(160, 40);
        Check.that(suspended.get(), "no queue was suspended");
        for (int key = 0; key < 8; key++) {
            String prefix = "key" + key;
            Check.equal(Fixture.numbered(prefix, 20), inbox.bodies().stream().filter(body -> body.startsWith(prefix)).collect(Collectors.toList()),
                "order of " + prefix);
        }
    }

    private static void broadcast(Fixture f) throws Exception {
        f.createTopic(2);
        List<Inbox> inboxes = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            DefaultMQPushConsumer consumer = f.push();
            // MessageModel moved to another package with version 5.
            consumer.setMessageModel(Enum.valueOf(consumer.getMessageModel().getDeclaringClass(), "BROADCASTING"));
            consumer.subscribe(f.topic, "*");
            inboxes.add(Fixture.collect(consumer));
            consumer.start();
        }
        f.send(f.producer(), Fixture.numbered("m", 40));
        for (Inbox inbox : inboxes) {
            inbox.awaitExactly(40, 20);
            Check.equal(Fixture.numbered("m", 40), inbox.sortedBodies(), "bodies");
        }
    }

    @SuppressWarnings("deprecation")
    private static void pull(Fixture f) throws Exception {
        f.createTopic(1);
        MessageQueue queue = f.queue(0);
        DefaultMQPullConsumer consumer = f.pull();
        f.send(f.producer(), Fixture.numbered("m", 40));
        Check.equal(Set.of(queue), consumer.fetchSubscribeMessageQueues(f.topic), "queues");
        PullResult first = consumer.pull(queue, "*", 0, 16);
        Check.equal(PullStatus.FOUND, first.getPullStatus(), "status");
        Check.equal(Fixture.numbered("m", 16), first.getMsgFoundList().stream().map(Fixture::body).collect(Collectors.toList()), "first 16");
        Check.equal(16L, first.getNextBeginOffset(), "next offset");
        Check.equal(40L, first.getMaxOffset(), "max offset");
        Check.equal(PullStatus.NO_MATCHED_MSG, consumer.pull(queue, "other", 0, 16).getPullStatus(), "status with another tag");
        Check.equal(PullStatus.NO_NEW_MSG, consumer.pull(queue, "*", 40, 16).getPullStatus(), "status at the end");
        PullResult beyond = consumer.pull(queue, "*", 1000, 16);
        Check.equal(PullStatus.OFFSET_ILLEGAL, beyond.getPullStatus(), "status beyond the end");
        Check.equal(40L, beyond.getNextBeginOffset(), "next offset from beyond the end");
        consumer.updateConsumeOffset(queue, 25);
        consumer.getDefaultMQPullConsumerImpl().getOffsetStore().updateConsumeOffsetToBroker(queue, 25, false);
        Check.equal(25L, consumer.fetchConsumeOffset(queue, true), "stored offset");
        Check.equal(0L, consumer.searchOffset(queue, 0), "offset of the beginning of time");
        Check.equal(40L, consumer.maxOffset(queue), "max offset asked for");
        Check.equal(0L, consumer.minOffset(queue), "min offset asked for");
    }

    private static DefaultLitePullConsumer lite(Fixture f) throws Exception {
        DefaultLitePullConsumer consumer = f.attach(new DefaultLitePullConsumer(f.group));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        consumer.subscribe(f.topic, "*");
        consumer.start();
        f.onClose(consumer::shutdown);
        return consumer;
    }

    private static List<String> poll(DefaultLitePullConsumer consumer, int count) {
        List<String> bodies = new ArrayList<>();
        long deadline = System.nanoTime() + 20_000_000_000L * Main.SLOWNESS;
        while (bodies.size() < count && System.nanoTime() < deadline) {
            consumer.poll(500).forEach(message -> bodies.add(Fixture.body(message)));
        }
        consumer.poll(500).forEach(message -> bodies.add(Fixture.body(message)));
        return bodies.stream().sorted().collect(Collectors.toList());
    }

    @SuppressWarnings("deprecation") // commitSync
    private static void litePull(Fixture f) throws Exception {
        f.createTopic(2);
        DefaultMQProducer producer = f.producer();
        f.send(producer, Fixture.numbered("first", 30));
        DefaultLitePullConsumer consumer = lite(f);
        Check.equal(Fixture.numbered("first", 30), poll(consumer, 30), "what the first consumer polled");
        consumer.commitSync();
        consumer.shutdown();
        f.send(producer, Fixture.numbered("second", 10));
        Check.equal(Fixture.numbered("second", 10), poll(lite(f), 10), "what its successor polled");
    }

    private static void resume(Fixture f) throws Exception {
        f.createTopic(4);
        DefaultMQProducer producer = f.producer();
        f.send(producer, Fixture.numbered("first", 40));
        DefaultMQPushConsumer consumer = f.push();
        consumer.subscribe(f.topic, "*");
        Inbox before = Fixture.collect(consumer);
        consumer.start();
        before.awaitExactly(40, 20);
        consumer.shutdown(); // stores the offsets
        f.send(producer, Fixture.numbered("second", 20));
        DefaultMQPushConsumer successor = f.push();
        successor.subscribe(f.topic, "*");
        Inbox after = Fixture.collect(successor);
        successor.start();
        after.awaitExactly(20, 30);
        Check.equal(Fixture.numbered("second", 20), after.sortedBodies(), "what its successor got");
    }

    /** Fails twice, one second each, then succeeds. */
    private static void retry(Fixture f) throws Exception {
        f.createTopic(1);
        DefaultMQPushConsumer consumer = f.push();
        consumer.subscribe(f.topic, "*");
        Inbox inbox = new Inbox();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(inbox::add);
            context.setDelayLevelWhenNextConsume(1);
            return messages.get(0).getReconsumeTimes() < 2 ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        String id = f.send(f.producer(), List.of("stubborn")).get(0).getMsgId();
        inbox.awaitExactly(3, 50);
        for (int i = 0; i < 3; i++) {
            MessageExt message = inbox.messages().get(i);
            Check.equal("stubborn", Fixture.body(message), "body");
            Check.equal(i, message.getReconsumeTimes(), "reconsumeTimes");
            Check.equal(id, message.getMsgId(), "message id");
            Check.equal(f.topic, message.getTopic(), "topic that the listener sees");
            Check.that(i == 0 || inbox.time(i) - inbox.time(i - 1) >= 950, "attempt %d came %d ms after the one before", i,
                i == 0 ? 0 : inbox.time(i) - inbox.time(i - 1));
        }
    }

    /** One retry is allowed; then the message stands in %DLQ% of the group, and nobody gets it again. */
    private static void deadLetter(Fixture f) throws Exception {
        f.createTopic(1);
        DefaultMQPushConsumer consumer = f.push();
        consumer.subscribe(f.topic, "*");
        consumer.setMaxReconsumeTimes(1);
        Inbox inbox = new Inbox();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(inbox::add);
            context.setDelayLevelWhenNextConsume(1);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        String id = f.send(f.producer(), List.of("hopeless")).get(0).getMsgId();
        String dead = "%DLQ%" + f.group;
        Check.becomes(50, true, () -> Fixture.isRouted(dead), "route of " + dead);
        MessageQueue queue = new MessageQueue(dead, Fixture.brokerName(), 0);
        Check.becomes(10, 1L, () -> Fixture.admin().maxOffset(queue), "dead letters");
        MessageExt letter = Fixture.readQueue(f.pull(), queue, 1).get(0);
        Check.equal("hopeless", Fixture.body(letter), "body");
        Check.equal(id, letter.getMsgId(), "message id");
        Check.equal(f.topic, letter.getProperty("RETRY_TOPIC"), "property RETRY_TOPIC");
        Check.equal(id == null, letter.getProperty("ORIGIN_MESSAGE_ID") == null, "property ORIGIN_MESSAGE_ID");
        inbox.awaitExactly(2, 5);
    }

    private static void delay(Fixture f) throws Exception {
        f.createTopic(1);
        DefaultMQPushConsumer consumer = f.push();
        consumer.setConsumeThreadMin(1); // in the order of the queue
        consumer.setConsumeThreadMax(1);
        consumer.subscribe(f.topic, "*");
        Inbox inbox = Fixture.collect(consumer);
        consumer.start();
        DefaultMQProducer producer = f.producer();
        f.send(producer, List.of("first")); // from here on the consumer waits for messages
        inbox.awaitExactly(1, 20);
        Map<String, Long> due = new HashMap<>();
        int[] seconds = {0, 1, 5};
        for (int level = 2; level >= 0; level--) {
            Message message = f.message("level" + level);
            if (level > 0) {
                message.setDelayTimeLevel(level);
            }
            due.put("level" + level, System.currentTimeMillis() + seconds[level] * 1000L);
            producer.send(message);
        }
        boolean quick = System.currentTimeMillis() < due.get("level1"); // else level 1 may be there before what was sent last
        inbox.awaitExactly(4, 30);
        List<String> expected = List.of("first", "level0", "level1", "level2"); // also when sorted
        Check.equal(expected, quick ? inbox.bodies() : inbox.sortedBodies(), "order");
        for (int level = 0; level < 3; level++) {
            long late = inbox.time(inbox.bodies().indexOf("level" + level)) - due.get("level" + level);
            Check.that(late > -50 && late < 3000L * Main.SLOWNESS, "level %d came %d ms after it was due", level, late);
        }
    }
}
