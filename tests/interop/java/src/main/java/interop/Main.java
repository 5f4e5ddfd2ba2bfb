package interop;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.rocketmq.common.MQVersion;

/**
 * Runs the scenarios against the cluster at NAMESRV_ADDR, some at a time: a line for each and the sums at the end.
 * Arguments: --quick, and scenario names. Environment: SLOWNESS (factor on all time limits), and what Failover, SecondGroup, Exchange and MixedGroup name.
 */
public final class Main {
    static final int SLOWNESS = Integer.parseInt(System.getenv().getOrDefault("SLOWNESS", "1"));
    private static final int JOBS = 4;

    interface Body {
        void run(Fixture fixture) throws Exception;
    }

    static final class Skipped extends Exception {
        Skipped(String reason) {
            super(reason);
        }
    }

    /** quick: also with --quick. Those that are alone run after the others. */
    record Scenario(String name, int seconds, boolean quick, boolean alone, Body body) {
        static Scenario quick(String name, int seconds, Body body) {
            return new Scenario(name, seconds, true, false, body);
        }

        static Scenario slow(String name, int seconds, Body body) {
            return new Scenario(name, seconds, false, false, body);
        }

        static Scenario alone(String name, int seconds, Body body) {
            return new Scenario(name, seconds, true, true, body);
        }
    }

    private int passed;
    private int failed;
    private int skipped;

    public static void main(String[] arguments) throws Exception {
        List<String> names = new ArrayList<>(List.of(arguments));
        boolean quick = names.remove("--quick");
        List<Scenario> all = new ArrayList<>();
        all.addAll(Consuming.scenarios()); // these wait most, so they start first
        all.addAll(Filtering.scenarios());
        all.addAll(Producing.scenarios());
        all.addAll(Exchange.scenarios());
        all.addAll(MixedGroup.scenarios());
        all.addAll(Failover.scenarios());
        all.addAll(SecondGroup.scenarios()); // last: whoever makes a topic afterwards finds another group there
        all.removeIf(scenario -> quick && !scenario.quick || !names.isEmpty() && !names.contains(scenario.name));

        Main main = new Main();
        ExecutorService pool = Executors.newFixedThreadPool(JOBS);
        all.stream().filter(scenario -> !scenario.alone).forEach(scenario -> pool.execute(() -> main.run(scenario)));
        pool.shutdown();
        pool.awaitTermination(1, TimeUnit.HOURS); // each scenario has a deadline of its own
        all.stream().filter(Scenario::alone).forEach(main::run);
        System.out.printf("%d passed, %d failed, %d skipped%n", main.passed, main.failed, main.skipped);
        System.exit(main.failed == 0 && main.passed > 0 ? 0 : 1);
    }

    private void run(Scenario scenario) {
        long start = System.nanoTime();
        ExecutorService thread = Executors.newSingleThreadExecutor(body -> {
            Thread daemon = new Thread(body, scenario.name);
            daemon.setDaemon(true);
            return daemon;
        });
        Throwable failure = null;
        try (Fixture fixture = new Fixture(scenario.name)) {
            Future<?> future = thread.submit(() -> {
                scenario.body.run(fixture);
                return null;
            });
            try {
                future.get((long) scenario.seconds * SLOWNESS, TimeUnit.SECONDS);
            } catch (TimeoutException e) {
                failure = new AssertionError("no end within " + scenario.seconds * SLOWNESS + " s");
            } catch (ExecutionException e) {
                failure = e.getCause();
            } finally {
                thread.shutdownNow();
            }
        } catch (Exception e) {
            failure = e;
        }
        report(scenario.name, failure, (System.nanoTime() - start) / 1e9);
    }

    private synchronized void report(String name, Throwable failure, double seconds) {
        if (failure == null) {
            passed++;
            System.out.printf("ok %s (%.1f s)%n", name, seconds);
        } else if (failure instanceof Skipped) {
            skipped++;
            System.out.println("skip " + name + ": " + failure.getMessage());
        } else {
            failed++;
            System.out.println("not ok " + name + ": " + (failure instanceof AssertionError ? failure.getMessage() : failure.toString()));
            for (StackTraceElement element : failure.getStackTrace()) {
                if (element.getClassName().startsWith("interop.")) {
                    System.out.println("    at " + element);
                }
            }
        }
    }

    static boolean isVersion5() {
        return MQVersion.CURRENT_VERSION >= MQVersion.Version.V5_0_0_SNAPSHOT.ordinal();
    }

    private Main() {
    }
}
