import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Java Curator as another process tells it: one request a line on stdin, answers and events a line each on stdout, fields parted by tabs.
 *
 * <pre>
 * request   number verb argument...
 * answer    number "ok" value...       or   number "error" what
 * event     "-" handle kind nanoseconds value...
 * </pre>
 *
 * Requests run side by side, each on a thread of its own; bytes are hexadecimal; times are of the clock that all processes of a host
 * share. The process ends with its stdin.
 */
final class Peer {
    /** What a request does; gives the values of the answer. */
    interface Verb {
        List<?> run(List<String> arguments) throws Exception;
    }

    /** What a request does that has no values to answer. */
    interface Act {
        void run(List<String> arguments) throws Exception;
    }

    private static final HexFormat HEX = HexFormat.of();
    private final Map<String, Verb> verbs = new ConcurrentHashMap<>();
    private final Map<String, Object> handles = new ConcurrentHashMap<>();
    private final ExecutorService threads = Executors.newCachedThreadPool();
    private final PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    static Peer withAllVerbs() {
        Peer peer = new Peer();
        Clients.teach(peer);
        Queues.teach(peer);
        Sharders.teach(peer);
        Latches.teach(peer);
        peer.act("close", arguments -> peer.close(arguments.get(0)));
        return peer;
    }

    public static void main(String[] arguments) throws IOException {
        withAllVerbs().serve();
    }

    void verb(String name, Verb verb) {
        verbs.put(name, verb);
    }

    void act(String name, Act act) {
        verb(name, arguments -> {
            act.run(arguments);
            return List.of();
        });
    }

    void remember(String handle, Object thing) {
        handles.put(handle, thing);
    }

    <T> T find(String handle, Class<T> type) {
        Object thing = handles.get(handle);
        if (!type.isInstance(thing)) {
            throw new IllegalArgumentException("no " + type.getSimpleName() + " is called " + handle);
        }
        return type.cast(thing);
    }

    /** Whoever has what is closed knows from {@code closing} on that it is over. */
    private void close(String handle) throws Exception {
        AutoCloseable thing = find(handle, AutoCloseable.class);
        handles.remove(handle);
        event(handle, "closing", "");
        thing.close();
    }

    void event(String handle, String kind, String value) {
        say("-\t" + handle + "\t" + kind + "\t" + System.nanoTime() + "\t" + value);
    }

    static String hex(byte[] bytes) {
        return HEX.formatHex(bytes);
    }

    static byte[] bytes(String hex) {
        return HEX.parseHex(hex);
    }

    /** The value of {@code name=value} among the arguments, else what stands instead. */
    static String option(List<String> arguments, String name, String otherwise) {
        return arguments.stream()
                .filter(argument -> argument.startsWith(name + "="))
                .map(argument -> argument.substring(name.length() + 1))
                .findFirst()
                .orElse(otherwise);
    }

    static int number(List<String> arguments, String name, int otherwise) {
        return Integer.parseInt(option(arguments, name, Integer.toString(otherwise)));
    }

    static boolean says(List<String> arguments, String name) {
        return option(arguments, name, "false").equals("true");
    }

    void serve() throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        event("peer", "ready", "");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t", -1);
            threads.execute(() -> answer(words));
        }
        Runtime.getRuntime().halt(0); // whoever drove this is gone: sessions are to be ended by then, or to expire
    }

    private void answer(String[] words) {
        try {
            Verb verb = verbs.get(words[1]);
            if (verb == null) {
                throw new IllegalArgumentException("no verb is called " + words[1]);
            }
            List<?> values = verb.run(Arrays.asList(words).subList(2, words.length));
            StringBuilder answer = new StringBuilder(words[0]).append("\tok");
            values.forEach(value -> answer.append('\t').append(value));
            say(answer.toString());
        } catch (Throwable problem) {
            say(words[0] + "\terror\t" + problem.toString().replaceAll("\\s", " "));
        }
    }

    private void say(String line) {
        synchronized (out) {
            out.print(line + "\n");
            out.flush();
        }
    }
}
