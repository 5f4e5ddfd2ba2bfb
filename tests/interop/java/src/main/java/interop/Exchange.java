package interop;

import java.io.File;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.trace.TraceBean;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.client.trace.TraceType;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * What libledgermq sent is read by the Java client, and the other way round. LIBLEDGERMQ_SUITE is the path of the program at the other end; without
 * it the scenarios are skipped. A message's key is its name, and its body the name and a bar as often as they fit into the size in property `size`.
 */
final class Exchange {
    private static final String TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC";
    private static final String COMPRESSION = "rocketmq.message.compressType";

    private Exchange() {
    }

    static List<Main.Scenario> scenarios() {
        return List.of(
            Main.Scenario.quick("exchange-from-c", 40, Exchange::fromC),
            Main.Scenario.quick("exchange-to-c", 40, Exchange::toC),
            Main.Scenario.quick("request-from-c", 40, Exchange::requestFromC),
            Main.Scenario.quick("request-to-c", 40, Exchange::requestToC));
    }

    private static Process start(String... arguments) throws Exception {
        List<String> command = new ArrayList<>();
        command.add(System.getenv("LIBLEDGERMQ_SUITE"));
        if (command.get(0) == null || !new File(command.get(0)).canExecute()) {
            throw new Main.Skipped("LIBLEDGERMQ_SUITE names no program (it is built with the tests)");
        }
        command.addAll(List.of(arguments));
        return new ProcessBuilder(command).redirectErrorStream(true).start();
    }

    private static String run(String... arguments) throws Exception {
        Process process = start(arguments);
        String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8).strip();
        Check.equal(0, process.waitFor(), String.join(" ", arguments) + " (" + output + "): exit status");
        return output;
    }

    private static byte[] letter(String name, int size) {
        return (name + "|").repeat(size / (name.length() + 1) + 1).substring(0, size).getBytes(StandardCharsets.UTF_8);
    }

    private static Message message(Fixture f, String name, int size) {
        Message message = new Message(f.topic, "letter", name, letter(name, size));
        message.putUserProperty("size", Integer.toString(size));
        return message;
    }

    private static void fromC(Fixture f) throws Exception {
        f.createTopic(4);
        DefaultMQPushConsumer consumer = f.push();
        consumer.subscribe(f.topic, "letter");
        Inbox inbox = Fixture.collect(consumer);
        run("send", f.topic);
        consumer.start();
        inbox.awaitExactly(8, 20);
        Map<String, Integer> sizes = new TreeMap<>();
        for (MessageExt message : inbox.messages()) {
            int size = Integer.parseInt(message.getUserProperty("size"));
            Check.equal(new String(letter(message.getKeys(), size), StandardCharsets.UTF_8), Fixture.body(message), message.getKeys());
            Check.equal("committed".equals(message.getKeys()) ? 8 : 0, message.getSysFlag() & 12, message.getKeys() + ": transaction bits");
            sizes.put(message.getKeys(), size);
        }
        Check.equal(Map.of("batch-0", 200, "batch-1", 200, "batch-2", 200, "committed", 5000, "lz4", 30000, "plain", 100, "zlib", 30000, "zstd", 30000),
            sizes, "names and sizes");
        MessageExt plain = inbox.messages().stream().filter(message -> "plain".equals(message.getKeys())).findFirst().orElseThrow();
        // A message's id is a key of its trace.
        Check.becomes(10, true, () -> traced(plain, TraceType.Pub, 100), "trace of " + plain.getMsgId());
        MessageExt committed = inbox.messages().stream().filter(message -> "committed".equals(message.getKeys())).findFirst().orElseThrow();
        Check.becomes(10, true, () -> traced(committed, TraceType.EndTransaction, 0), "trace of the end of " + committed.getMsgId());
    }

    /** size: 0 for the end of a transaction, whose trace does not say it. */
    private static boolean traced(MessageExt message, TraceType type, int size) throws Exception {
        QueryResult found;
        try {
            found = Fixture.admin().queryMessage(TRACE_TOPIC, message.getMsgId(), 10, 0, System.currentTimeMillis() + 60_000);
        } catch (MQClientException notYet) {
            return false;
        }
        for (MessageExt trace : found.getMessageList()) {
            for (TraceContext context : TraceDataEncoder.decoderFromTraceDataString(Fixture.body(trace))) {
                TraceBean bean = context.getTraceBeans().get(0);
                if (context.getTraceType() == type && bean.getMsgId().equals(message.getMsgId()) && bean.getTopic().equals(message.getTopic())
                    && bean.getKeys().equals(message.getKeys()) && bean.getTags().equals("letter") && bean.getBodyLength() == size
                    && (type == TraceType.Pub ? context.isSuccess() : bean.getTransactionState() == LocalTransactionState.COMMIT_MESSAGE)) {
                    return true;
                }
            }
        }
        return false;
    }

    private static void toC(Fixture f) throws Exception {
        f.createTopic(4);
        for (String type : List.of("LZ4", "ZSTD", "ZLIB")) {
            System.setProperty(COMPRESSION, type); // read when a producer is made
            f.producer().send(message(f, type, 30000));
        }
        DefaultMQProducer producer = f.producer();
        producer.send(message(f, "plain", 100));
        producer.send(List.of(message(f, "batch-0", 200), message(f, "batch-1", 200), message(f, "batch-2", 5000)));
        TransactionMQProducer transactions = f.attach(new TransactionMQProducer(f.topic + "-transactions"));
        transactions.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object state) {
                return (LocalTransactionState) state;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.UNKNOW;
            }
        });
        transactions.start();
        f.onClose(transactions::shutdown);
        transactions.sendMessageInTransaction(message(f, "committed", 300), LocalTransactionState.COMMIT_MESSAGE);
        transactions.sendMessageInTransaction(message(f, "rolled-back", 300), LocalTransactionState.ROLLBACK_MESSAGE);
        // Name, compression bits of sysFlag.
        Check.equal("LZ4 101\nZLIB 301\nZSTD 201\nbatch-0 0\nbatch-1 0\nbatch-2 0\ncommitted 0\nplain 0", run("read", f.topic, "8"), "what C reads");
    }

    private static void requestFromC(Fixture f) throws Exception {
        f.createTopic(4);
        DefaultMQProducer producer = f.producer();
        DefaultMQPushConsumer consumer = f.push();
        consumer.subscribe(f.topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    producer.send(MessageUtil.createReplyMessage(message, ("java: " + Fixture.body(message)).getBytes(StandardCharsets.UTF_8)), 5000L * Main.SLOWNESS);
                } catch (Exception e) {
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        for (String text : List.of("one", "two")) {
            Check.equal("java: " + text, run("ask", f.topic, text), "reply");
        }
    }

    private static void requestToC(Fixture f) throws Exception {
        if (Main.isVersion5()) {
            throw new Main.Skipped("the requester of client 5.3.3 stops waiting when its send is answered");
        }
        f.createTopic(4);
        DefaultMQProducer producer = f.producer();
        Process replier = start("reply", f.topic, "3");
        try {
            Check.equal((int) 'r', replier.getInputStream().read(), "the replier is ready");
            for (int i = 0; i < 3; i++) {
                Message reply = producer.request(new Message(f.topic, ("java " + i).getBytes(StandardCharsets.UTF_8)), 5000L * Main.SLOWNESS);
                Check.equal("re: java " + i, Fixture.body(reply), "reply");
            }
            Check.equal(0, replier.waitFor(), "exit status of the replier");
        } finally {
            replier.destroy();
        }
    }
}
