package interop;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Sends of all kinds, each read back from its queue; messages found by id and by key. */
final class Producing {
    private Producing() {
    }

    static List<Main.Scenario> scenarios() {
        return List.of(
            Main.Scenario.quick("send-sync", 30, Producing::sync),
            Main.Scenario.quick("send-async", 30, Producing::async),
            Main.Scenario.quick("send-oneway", 30, Producing::oneWay),
            Main.Scenario.quick("send-batch", 30, Producing::batch),
            Main.Scenario.quick("send-large", 30, Producing::large),
            Main.Scenario.quick("vip-channel", 60, Producing::vipChannel),
            Main.Scenario.quick("view-and-query", 30, Producing::viewAndQuery));
    }

    /** Z8: all that a client sends to the port two below: messages of each kind, and what its consumer could not handle. */
    private static void vipChannel(Fixture f) throws Exception {
        f.createTopic(2);
        DefaultMQProducer producer = f.attach(new DefaultMQProducer(f.topic + "-producer"));
        producer.setVipChannelEnabled(true);
        producer.setSendMsgTimeout(3000 * Main.SLOWNESS);
        producer.start();
        f.onClose(producer::shutdown);
        DefaultMQPushConsumer consumer = f.push();
        consumer.setVipChannelEnabled(true);
        consumer.subscribe(f.topic, "*");
        Inbox inbox = new Inbox();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(inbox::add);
            context.setDelayLevelWhenNextConsume(1);
            return messages.get(0).getReconsumeTimes() == 0 ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        List<String> bodies = Fixture.numbered("v", 10);
        f.send(producer, bodies);
        producer.sendOneway(f.message("v-oneway"));
        Check.equal(SendStatus.SEND_OK, producer.send(List.of(f.message("v-batch"))).getSendStatus(), "status of a batch");
        inbox.awaitExactly(24, 40); // each twice
        Set<String> wanted = new HashSet<>(bodies);
        wanted.addAll(List.of("v-oneway", "v-batch"));
        Check.equal(wanted, new HashSet<>(inbox.bodies()), "bodies");
    }

    private static void sync(Fixture f) throws Exception {
        f.createTopic(4);
        DefaultMQProducer producer = f.producer();
        Map<Integer, List<SendResult>> sent = new HashMap<>();
        for (String body : Fixture.numbered("m", 100)) {
            Message message = f.message(body);
            message.putUserProperty("colour", "grün \"{}\\");
            message.setFlag(7);
            SendResult result = producer.send(message);
            Check.equal(SendStatus.SEND_OK, result.getSendStatus(), "status of " + body);
            List<SendResult> ofQueue = sent.computeIfAbsent(result.getMessageQueue().getQueueId(), id -> new ArrayList<>());
            Check.equal((long) ofQueue.size(), result.getQueueOffset(), "queue offset of " + body);
            ofQueue.add(result);
        }
        Check.equal(Set.of(0, 1, 2, 3), sent.keySet(), "queues that got messages");
        Set<String> bodies = new HashSet<>();
        DefaultMQPullConsumer reader = f.pull();
        for (var queue : sent.entrySet()) {
            List<MessageExt> messages = Fixture.readQueue(reader, f.queue(queue.getKey()), queue.getValue().size());
            for (int i = 0; i < messages.size(); i++) {
                MessageExt message = messages.get(i);
                bodies.add(Fixture.body(message));
                Check.equal(queue.getValue().get(i).getMsgId(), message.getMsgId(), "message id");
                Check.equal(Fixture.body(message), message.getKeys(), "keys");
                Check.equal("tag", message.getTags(), "tags");
                Check.equal("grün \"{}\\", message.getUserProperty("colour"), "user property");
                Check.equal(7, message.getFlag(), "flag");
                Check.equal(f.topic, message.getTopic(), "topic");
            }
        }
        Check.equal(new HashSet<>(Fixture.numbered("m", 100)), bodies, "bodies");
    }

    private static void async(Fixture f) throws Exception {
        f.createTopic(4);
        DefaultMQProducer producer = f.producer();
        Map<String, CompletableFuture<SendResult>> results = new HashMap<>();
        for (String body : Fixture.numbered("m", 200)) {
            CompletableFuture<SendResult> future = new CompletableFuture<>();
            results.put(body, future);
            producer.send(f.message(body), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    future.complete(result);
                }

                @Override
                public void onException(Throwable failure) {
                    future.completeExceptionally(failure);
                }
            });
        }
        Map<String, String> places = new HashMap<>();
        Map<Integer, Integer> counts = new HashMap<>();
        for (var entry : results.entrySet()) {
            SendResult result = entry.getValue().get(20L * Main.SLOWNESS, TimeUnit.SECONDS);
            int queueId = result.getMessageQueue().getQueueId();
            places.put(queueId + "/" + result.getQueueOffset(), entry.getKey());
            counts.merge(queueId, 1, Integer::sum);
        }
        Check.equal(200, places.size(), "different places");
        DefaultMQPullConsumer reader = f.pull();
        for (var count : counts.entrySet()) {
            for (MessageExt message : Fixture.readQueue(reader, f.queue(count.getKey()), count.getValue())) {
                Check.equal(places.get(message.getQueueId() + "/" + message.getQueueOffset()), Fixture.body(message), "message at its place");
            }
        }
    }

    private static void oneWay(Fixture f) throws Exception {
        f.createTopic(1);
        DefaultMQProducer producer = f.producer();
        for (String body : Fixture.numbered("m", 50)) {
            producer.sendOneway(f.message(body));
        }
        Check.becomes(15, 50L, () -> Fixture.admin().maxOffset(f.queue(0)), "messages in the queue");
        List<String> bodies = Fixture.readQueue(f.pull(), f.queue(0), 50).stream().map(Fixture::body).sorted().collect(Collectors.toList());
        Check.equal(Fixture.numbered("m", 50), bodies, "bodies");
    }

    private static void batch(Fixture f) throws Exception {
        f.createTopic(1);
        DefaultMQProducer producer = f.producer();
        f.send(producer, List.of("before"));
        SendResult result = producer.send(Fixture.numbered("b", 10).stream().map(f::message).collect(Collectors.toList()));
        Check.equal(SendStatus.SEND_OK, result.getSendStatus(), "status");
        Check.equal(1L, result.getQueueOffset(), "queue offset of the first");
        Check.equal(10, result.getMsgId().split(",").length, "message ids");
        Check.equal(10, result.getOffsetMsgId().split(",").length, "offset ids");
        List<MessageExt> messages = Fixture.readQueue(f.pull(), f.queue(0), 11);
        Check.equal(Fixture.numbered("b", 10), messages.subList(1, 11).stream().map(Fixture::body).collect(Collectors.toList()), "members");
        Check.equal("b-0009", messages.get(10).getKeys(), "keys of the last");
    }

    /** The client compresses from 4 KiB on; 3 MiB of noise stay large. */
    private static void large(Fixture f) throws Exception {
        f.createTopic(1);
        DefaultMQProducer producer = f.producer();
        producer.setMaxMessageSize(4 * 1024 * 1024);
        byte[] noise = new byte[3 * 1024 * 1024];
        new java.util.Random(1).nextBytes(noise);
        byte[] even = "0123456789abcdef".repeat(8192).getBytes();
        producer.send(new Message(f.topic, noise));
        producer.send(new Message(f.topic, even));
        List<MessageExt> messages = Fixture.readQueue(f.pull(), f.queue(0), 2);
        Check.that(java.util.Arrays.equals(noise, messages.get(0).getBody()), "the large body came back changed");
        Check.that(java.util.Arrays.equals(even, messages.get(1).getBody()), "the compressed body came back changed");
        Check.that(messages.get(1).getStoreSize() < even.length / 4, "stored size of the compressed body: %d", messages.get(1).getStoreSize());
    }

    private static void viewAndQuery(Fixture f) throws Exception {
        f.createTopic(2);
        long begin = System.currentTimeMillis() - 60_000;
        List<SendResult> sent = f.send(f.producer(), Fixture.numbered("m", 20));
        DefaultMQAdminExt admin = Fixture.admin();
        for (int i = 0; i < sent.size(); i++) {
            SendResult result = sent.get(i);
            String body = String.format("m-%04d", i);
            for (String id : List.of(result.getOffsetMsgId(), result.getMsgId())) {
                MessageExt message = admin.viewMessage(f.topic, id);
                Check.equal(body, Fixture.body(message), "body of " + id);
                Check.equal(result.getQueueOffset(), message.getQueueOffset(), "queue offset of " + id);
                Check.equal(result.getMessageQueue().getQueueId(), message.getQueueId(), "queue of " + id);
            }
            QueryResult found = admin.queryMessage(f.topic, body, 32, begin, System.currentTimeMillis() + 60_000);
            Check.equal(List.of(body), found.getMessageList().stream().map(Fixture::body).collect(Collectors.toList()), "found by key " + body);
        }
    }
}
