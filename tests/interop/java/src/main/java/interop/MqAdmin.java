package interop;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.commons.cli.Option;
import org.apache.commons.cli.Options;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.SubCommand;

/**
 * RocketMQ's mqadmin, many commands in one JVM. Each line of standard input is a command with TABs between its words; what it prints follows, and
 * then a line with a NUL. The line "options" lists all commands: name, option, long name, argument (0 or 1), required (0 or 1).
 */
public final class MqAdmin {
    private static final PrintStream OUT = System.out;
    private static final int LIMIT_MS = 60_000;

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            OUT.print(line.equals("options") ? options() : run(line.split("\t")));
            OUT.print("\n\0\n");
            OUT.flush();
        }
        System.exit(0);     // commands leave threads behind
    }

    /** The list of commands has another name in each version. */
    @SuppressWarnings("unchecked")
    private static List<SubCommand> commands() throws ReflectiveOperationException {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (List.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                return (List<SubCommand>) field.get(null);
            }
        }
        throw new NoSuchFieldException("no list of commands");
    }

    private static String options() throws ReflectiveOperationException {
        StringBuilder text = new StringBuilder();
        commands().clear();
        Method init = MQAdminStartup.class.getDeclaredMethod("initCommand");
        init.setAccessible(true);
        init.invoke(null);
        for (SubCommand command : commands()) {
            text.append(command.commandName()).append('\n');
            for (Object each : command.buildCommandlineOptions(new Options()).getOptions()) {   // a raw collection in old versions
                Option option = (Option) each;
                text.append(String.join("\t", command.commandName(), option.getOpt(), option.getLongOpt(), option.hasArg() ? "1" : "0",
                    option.isRequired() ? "1" : "0")).append('\n');
            }
        }
        return text.toString();
    }

    private static String run(String[] words) throws Exception {
        ByteArrayOutputStream buffer = new ByteArrayOutputStream();
        PrintStream stream = new PrintStream(buffer, true, StandardCharsets.UTF_8);
        commands().clear();         // commands keep clients in fields
        System.setOut(stream);
        System.setErr(stream);
        try {
            Thread thread = new Thread(() -> MQAdminStartup.main0(words, null), words[0]);
            thread.setDaemon(true);
            thread.start();
            thread.join(LIMIT_MS);
            if (thread.isAlive()) {
                thread.interrupt();
                thread.join(5_000);
                stream.println("did not end within " + LIMIT_MS / 1000 + " s");
            }
        } finally {
            System.setOut(OUT);
        }
        return buffer.toString(StandardCharsets.UTF_8);
    }
}
