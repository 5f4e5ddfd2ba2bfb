package interop;

import java.util.Objects;
import java.util.concurrent.Callable;
import org.apache.rocketmq.remoting.exception.RemotingException;

/** What a scenario demands. */
final class Check {
    static void that(boolean condition, String format, Object... arguments) {
        if (!condition) {
            throw new AssertionError(String.format(format, arguments));
        }
    }

    static void equal(Object expected, Object found, String what) {
        that(Objects.equals(expected, found), "%s: %s, expected %s", what, found, expected);
    }

    /** Waits until the value is the expected one; seconds is stretched by SLOWNESS. Who is not reached, or does not answer in time, is asked again. */
    static void becomes(int seconds, Object expected, Callable<?> value, String what) throws Exception {
        long deadline = System.nanoTime() + seconds * 1_000_000_000L * Main.SLOWNESS;
        for (;;) {
            boolean last = System.nanoTime() > deadline;
            Object found;
            try {
                found = value.call();
            } catch (RemotingException e) {
                found = e;
            }
            if (Objects.equals(expected, found)) {
                return;
            }
            if (last) {
                equal(expected, found, what);
            }
            Thread.sleep(20);
        }
    }

    private Check() {
    }
}
