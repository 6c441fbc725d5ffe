import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.kafka.tools.DumpLogSegments;

/**
 * kafka-dump-log many times in one JVM: each line of stdin holds the arguments of one run, separated
 * by tabs. Run N writes DIR/N.out and DIR/N.err, and DIR/N.died when the tool ended with an exception.
 */
public class Dump {
    public static void main(String[] args) throws Exception {
        Path dir = Path.of(args[0]);
        BufferedReader in = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = System.out;
        PrintStream err = System.err;
        String line;
        for (int n = 0; (line = in.readLine()) != null; n++) {
            try (PrintStream runOut = stream(dir.resolve(n + ".out"));
                 PrintStream runErr = stream(dir.resolve(n + ".err"))) {
                System.setOut(runOut);
                System.setErr(runErr);
                DumpLogSegments.main(line.split("\t"));
            } catch (Throwable error) {
                Files.writeString(dir.resolve(n + ".died"), error.toString());
            } finally {
                System.setOut(out);
                System.setErr(err);
            }
        }
    }

    private static PrintStream stream(Path path) throws Exception {
        return new PrintStream(new java.io.BufferedOutputStream(Files.newOutputStream(path)), false,
                               StandardCharsets.UTF_8);
    }
}
