import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** Writes its term again and again, and a last word when it is asked to end. */
public class Reports {
    public static void main(String[] arguments) throws Exception {
        Path journal = Path.of(arguments[0]);
        String term = System.getenv("LEADERQ_TERM_NUMBER");
        Runtime.getRuntime().addShutdownHook(new Thread(() -> write(journal, term + " last\n")));
        while (true) {
            write(journal, term + " works\n");
            Thread.sleep(10);
        }
    }

    private static void write(Path journal, String line) {
        try {
            Files.writeString(journal, line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        } catch (java.io.IOException problem) {
            throw new java.io.UncheckedIOException(problem);
        }
    }
}
