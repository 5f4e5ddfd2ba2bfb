package interop;

import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.rocketmq.common.message.MessageExt;

/** What a consumer got, in the order of its listener's calls, with the time of each. */
final class Inbox {
    private final List<MessageExt> messages = new ArrayList<>();
    private final List<Long> times = new ArrayList<>();

    synchronized void add(MessageExt message) {
        messages.add(message);
        times.add(System.currentTimeMillis());
    }

    synchronized int size() {
        return messages.size();
    }

    synchronized List<MessageExt> messages() {
        return new ArrayList<>(messages);
    }

    synchronized long time(int i) {
        return times.get(i);
    }

    List<String> bodies() {
        return messages().stream().map(Fixture::body).collect(Collectors.toList());
    }

    List<String> sortedBodies() {
        return bodies().stream().sorted().collect(Collectors.toList());
    }

    /** Waits for so many, then a moment for what would be too much. */
    void awaitExactly(int count, int seconds) throws Exception {
        Check.becomes(seconds, true, () -> size() >= count, "at least " + count + " messages (" + size() + " before)");
        Thread.sleep(500);
        Check.equal(count, size(), "messages");
    }
}
