package interop;

import java.util.Objects;
import java.util.concurrent.Callable;

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

    /** Waits until the value is the expected one; seconds is stretched by SLOWNESS. */
    static void becomes(int seconds, Object expected, Callable<?> value, String what) throws Exception {
        long deadline = System.nanoTime() + seconds * 1_000_000_000L * Main.SLOWNESS;
        while (!Objects.equals(expected, value.call())) {
            if (System.nanoTime() > deadline) {
                equal(expected, value.call(), what);
                return;
            }
            Thread.sleep(20);
        }
    }

    private Check() {
    }
}
