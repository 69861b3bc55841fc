// Runs scenarios of one theme: `Main <theme> <endpoints.json> <at a time> <scenario> [...]`.
// Prints for each `PASS <scenario>`, or `FAIL <scenario>` and, indented, what was wrong.

import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

final class Main {
    private static final long ALL_SCENARIOS_S = 400;

    private final Object theme;

    private Main(Object theme) {
        this.theme = theme;
    }

    public static void main(String[] words) throws Exception {
        Cluster cluster = new Cluster(Path.of(words[1]));
        Object theme = Class.forName(words[0]).getDeclaredConstructor(Cluster.class).newInstance(cluster);
        List<String> scenarios = Arrays.asList(words).subList(3, words.length);
        new Main(theme).runAll(scenarios, Integer.parseInt(words[2]));
        System.exit(0); // whatever threads still run
    }

    private void runAll(List<String> scenarios, int atATime) throws InterruptedException {
        ExecutorService threads = Executors.newFixedThreadPool(atATime);
        scenarios.forEach(scenario -> threads.execute(() -> run(scenario)));
        threads.shutdown();
        // What has not ended by then printed nothing, and so did not pass.
        if (!threads.awaitTermination(ALL_SCENARIOS_S, TimeUnit.SECONDS)) {
            Thread.getAllStackTraces().forEach(Main::printWhereItWaits);
        }
    }

    private void run(String scenario) {
        Thread.currentThread().setName(scenario);
        try {
            Method method = theme.getClass().getDeclaredMethod(scenario);
            method.invoke(theme);
            print("PASS " + scenario);
        } catch (InvocationTargetException failed) {
            print("FAIL " + scenario + indented(failed.getCause()));
        } catch (ReflectiveOperationException error) {
            print("FAIL " + scenario + indented(error));
        }
    }

    /** The error and where it came from, without Java's and our own machinery. */
    private static String indented(Throwable error) {
        StringWriter text = new StringWriter();
        error.printStackTrace(new PrintWriter(text));
        return text.toString().lines()
                .filter(line -> !line.contains("at java.base/") && !line.contains("at Main."))
                .map(line -> "\n    " + line.stripTrailing()).collect(Collectors.joining());
    }

    private static void printWhereItWaits(Thread thread, StackTraceElement[] stack) {
        if (Arrays.stream(stack).anyMatch(call -> call.getClassName().equals("Main"))) {
            print("still running: " + thread.getName() + "\n    " + String.join("\n    ",
                    Arrays.stream(stack).map(Object::toString).toList()));
        }
    }

    private static synchronized void print(String lines) {
        System.out.println(lines);
    }
}
