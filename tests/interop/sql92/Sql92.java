import java.io.BufferedReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;

/** What sql92_judge.c does, with RocketMQ's filter: reads lines "HEX-EXPRESSION HEX-PROPERTIES", answers each with "1", "0" or "E " and an error's first line. */
public class Sql92 {
    private record Properties(Map<String, String> map) implements EvaluationContext {
        @Override
        public Object get(String name) {
            return map.get(name);
        }

        @Override
        public Map<String, Object> keyValues() {
            return Map.copyOf(map);
        }
    }

    /** As the broker's ExpressionMessageFilter uses it: whatever is not Boolean TRUE, exceptions included, does not match. */
    private static boolean matches(Expression expression, String properties) {
        try {
            return Boolean.TRUE.equals(expression.evaluate(new Properties(MessageDecoder.string2messageProperties(properties))));
        } catch (Exception failed) {
            return false;
        }
    }

    private static String text(String hex) {
        return new String(HexFormat.of().parseHex(hex), StandardCharsets.UTF_8);
    }

    public static void main(String[] arguments) throws Exception {
        try (BufferedReader cases = Files.newBufferedReader(Path.of(arguments[0]));
             PrintStream out = new PrintStream(arguments[1], StandardCharsets.UTF_8)) {
            for (String line; (line = cases.readLine()) != null;) {
                String[] parts = line.split(" ", -1);
                try {
                    out.println(matches(FilterFactory.INSTANCE.get("SQL92").compile(text(parts[0])), text(parts[1])) ? "1" : "0");
                } catch (Exception failed) {
                    out.println("E " + failed.getMessage().lines().findFirst().orElse(""));
                }
            }
        }
    }
}
