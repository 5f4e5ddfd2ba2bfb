package interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** One scenario's topic, group and clients; close() ends the clients, last one first. */
final class Fixture implements AutoCloseable {
    private static final String RUN = "I" + Long.toString(System.currentTimeMillis(), 36);
    private static final String CLUSTER = "DefaultCluster";
    private static DefaultMQAdminExt sharedAdmin;

    final String topic;
    final String group;
    private final Deque<Runnable> closers = new ArrayDeque<>();
    private int clients;

    Fixture(String scenario) {
        topic = RUN + "-" + scenario;
        group = topic + "-group";
    }

    static synchronized DefaultMQAdminExt admin() throws MQClientException {
        if (sharedAdmin == null) {
            sharedAdmin = new DefaultMQAdminExt(10_000L * Main.SLOWNESS);
            sharedAdmin.setNamesrvAddr(System.getenv("NAMESRV_ADDR"));
            sharedAdmin.setInstanceName(RUN + "-admin");
            sharedAdmin.setPollNameServerInterval(1000);
            sharedAdmin.start();
        }
        return sharedAdmin;
    }

    /** A client id of its own for each client, so that two consumers of a group are two members. */
    <T extends ClientConfig> T attach(T client) {
        client.setNamesrvAddr(System.getenv("NAMESRV_ADDR"));
        client.setInstanceName(topic + "-" + ++clients);
        client.setPollNameServerInterval(1000);
        return client;
    }

    synchronized void onClose(Runnable closer) {
        closers.push(closer);
    }

    @Override
    public synchronized void close() {
        while (!closers.isEmpty()) {
            closers.pop().run();
        }
    }

    void createTopic(int queues) throws Exception {
        // ClusterInfo moved to another package with version 5.
        var brokers = admin().examineBrokerClusterInfo().getBrokerAddrTable().values();
        for (var broker : brokers) {
            admin().createAndUpdateTopicConfig(broker.getBrokerAddrs().get(0L), new TopicConfig(topic, queues, queues, 6));
        }
        Check.becomes(10, true, () -> isRouted(topic), "route of the new topic");
    }

    static boolean isRouted(String topic) throws Exception {
        try {
            return !admin().examineTopicRouteInfo(topic).getQueueDatas().isEmpty();
        } catch (MQClientException e) {
            return false;
        }
    }

    static String brokerName() throws Exception {
        return admin().examineBrokerClusterInfo().getClusterAddrTable().get(CLUSTER).iterator().next();
    }

    MessageQueue queue(int id) throws Exception {
        return new MessageQueue(topic, brokerName(), id);
    }

    Message message(String body) {
        return new Message(topic, "tag", body, body.getBytes(StandardCharsets.UTF_8)); // the body is the key, too
    }

    static String body(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    static List<String> numbered(String prefix, int count) {
        return IntStream.range(0, count).mapToObj(i -> String.format("%s-%04d", prefix, i)).collect(Collectors.toList());
    }

    DefaultMQProducer producer() throws Exception {
        DefaultMQProducer producer = attach(new DefaultMQProducer(topic + "-producer"));
        producer.setSendMsgTimeout(3000 * Main.SLOWNESS);
        producer.start();
        onClose(producer::shutdown);
        return producer;
    }

    List<SendResult> send(DefaultMQProducer producer, List<String> bodies) throws Exception {
        List<SendResult> results = new ArrayList<>();
        for (String body : bodies) {
            SendResult result = producer.send(message(body));
            Check.equal(SendStatus.SEND_OK, result.getSendStatus(), "status of " + body);
            results.add(result);
        }
        return results;
    }

    /** A push consumer from the first offset; the caller subscribes, registers a listener and starts it. */
    DefaultMQPushConsumer push() {
        DefaultMQPushConsumer consumer = attach(new DefaultMQPushConsumer(group));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(2);
        consumer.setConsumeThreadMax(2);
        onClose(consumer::shutdown);
        return consumer;
    }

    static Inbox collect(DefaultMQPushConsumer consumer) {
        Inbox inbox = new Inbox();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(inbox::add);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        return inbox;
    }

    @SuppressWarnings("deprecation") // the class still is what tools and stream processors use
    DefaultMQPullConsumer pull() throws Exception {
        DefaultMQPullConsumer consumer = attach(new DefaultMQPullConsumer(topic + "-reader"));
        consumer.start();
        onClose(consumer::shutdown);
        return consumer;
    }

    /** All of a queue, which must hold so many messages at consecutive offsets from 0. */
    @SuppressWarnings("deprecation")
    static List<MessageExt> readQueue(DefaultMQPullConsumer consumer, MessageQueue queue, int count) throws Exception {
        List<MessageExt> messages = new ArrayList<>();
        for (long next = 0;;) {
            PullResult result = consumer.pull(queue, "*", next, 32);
            if (result.getPullStatus() != PullStatus.FOUND) {
                break;
            }
            messages.addAll(result.getMsgFoundList());
            next = result.getNextBeginOffset();
        }
        Check.equal(count, messages.size(), "messages in " + queue);
        for (int i = 0; i < count; i++) {
            Check.equal((long) i, messages.get(i).getQueueOffset(), "queue offset");
        }
        return messages;
    }
}
