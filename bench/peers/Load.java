// Loads a data directory with Apache Kafka's own classes, in a JVM that is warm, and prints JSON.
//
//   java -cp 'classes:lib/*' Load manager DATA_DIRECTORY THREADS [WARM_UP_DIRECTORY]
//   java -cp 'classes:lib/*' Load shutdown DATA_DIRECTORY THREADS [WARM_UP_DIRECTORY]
//   java -cp 'classes:lib/*' Load segments DATA_DIRECTORY THREADS [WARM_UP_DIRECTORY]
//   java -cp 'classes:lib/*' Load crashed DATA_DIRECTORY THREADS
//
// manager is a broker's start: LogManager with that many recovery threads, and a clean shutdown
// after each round; shutdown counts the seconds of that shutdown instead. segments is phase one as KIP-1346 describes it: each partition's segments are
// opened and checked by that many threads. crashed is a start of a copy of DATA_DIRECTORY-image. The seconds are the best of five rounds that follow one
// to warm up; with a WARM_UP_DIRECTORY those six are done there, and the best of three loads of
// DATA_DIRECTORY counts, the page cache dropped before each (as root).
import java.io.File;
import java.io.IOException;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;
import kafka.log.LogManager;
import kafka.server.builders.LogManagerBuilder;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.*;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;
import scala.jdk.javaapi.CollectionConverters;

public class Load {
    record Told(int segments, double seconds) { }

    interface Loading {
        Told load(File root, int threads) throws Exception;
    }

    static final LogConfig CONFIG = new LogConfig(new Properties());
    static final int ROUNDS = 5, COLD_ROUNDS = 3, CHUNKS_PER_THREAD = 8, NUMBER_DIGITS = 20;

    static double secondsSince(long start) {
        return (System.nanoTime() - start) / 1e9;
    }

    static Told manager(File root, int threads) throws Exception {
        return managed(root, threads, false);
    }

    static Told shutdown(File root, int threads) throws Exception {
        return managed(root, threads, true);
    }

    static Told managed(File root, int threads, boolean countsShutdown) throws Exception {
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        LogManager manager = new LogManagerBuilder()
            .setLogDirs(List.of(root))
            .setConfigRepository(resource -> new Properties())
            .setInitialDefaultConfig(CONFIG)
            .setCleanerConfig(new CleanerConfig(false))
            .setRecoveryThreadsPerDataDir(threads)
            .setScheduler(scheduler)
            .setBrokerTopicStats(new BrokerTopicStats())
            .setLogDirFailureChannel(new LogDirFailureChannel(1))
            .build();
        long start = System.nanoTime();
        manager.loadLogs(CONFIG, CollectionConverters.asScala(new HashMap<String, LogConfig>()),
            log -> false);
        double seconds = secondsSince(start);
        int segments = 0;
        for (UnifiedLog log : CollectionConverters.asJava(manager.allLogs())) {
            segments += log.numberOfSegments();
        }
        start = System.nanoTime();
        manager.shutdown(-1L);
        double shutdownSeconds = secondsSince(start);
        scheduler.shutdown();
        return new Told(segments, countsShutdown ? shutdownSeconds : seconds);
    }

    /** A start after a crash, from a copy of what the crash left. */
    static Told crashed(File root, int threads) throws Exception {
        for (List<String> command : List.of(List.of("rm", "-rf", root.getPath()),
                List.of("cp", "-r", "--sparse=auto", root + "-image", root.getPath()))) {
            if (new ProcessBuilder(command).inheritIO().start().waitFor() != 0) {
                throw new IOException(String.join(" ", command));
            }
        }
        return managed(root, threads, false);
    }

    static long[] baseOffsets(File partition) {
        return Arrays.stream(partition.list()).filter(name -> name.endsWith(".log"))
            .mapToLong(name -> Long.parseLong(name.substring(0, NUMBER_DIGITS))).sorted().toArray();
    }

    static List<LogSegment> open(File partition, long[] bases, int from, int to)
            throws IOException {
        List<LogSegment> opened = new ArrayList<>(to - from);
        for (int row = from; row < to; row++) {
            LogSegment segment = LogSegment.open(partition, bases[row], CONFIG, Time.SYSTEM, true,
                0, false, "");
            segment.sanityCheck(false);
            opened.add(segment);
        }
        return opened;
    }

    static Told segments(File root, int threads) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        List<LogSegment> opened = new ArrayList<>();
        long start = System.nanoTime();
        for (File partition : root.listFiles(File::isDirectory)) {
            long[] bases = baseOffsets(partition);
            int chunk = Math.max(1, bases.length / (threads * CHUNKS_PER_THREAD));
            List<Future<List<LogSegment>>> parts = new ArrayList<>();
            for (int row = 0; row < bases.length; row += chunk) {
                int from = row, to = Math.min(bases.length, row + chunk);
                parts.add(pool.submit(() -> open(partition, bases, from, to)));
            }
            for (Future<List<LogSegment>> part : parts) {
                opened.addAll(part.get());
            }
        }
        double seconds = secondsSince(start);
        for (LogSegment segment : opened) {
            segment.close();
        }
        pool.shutdown();
        return new Told(opened.size(), seconds);
    }

    static void dropCaches() throws Exception {
        new ProcessBuilder("sync").start().waitFor();
        Files.writeString(Path.of("/proc/sys/vm/drop_caches"), "3\n");
    }

    static Told best(Loading loading, File root, int threads, int rounds, boolean cold)
            throws Exception {
        Told best = null;
        for (int round = 0; round < rounds; round++) {
            if (cold) {
                dropCaches();
            }
            Told told = loading.load(root, threads);
            best = best == null || told.seconds < best.seconds ? told : best;
        }
        return best;
    }

    /** Rounds that warm up, in a directory of their own or the same; then those that count. */
    static Told warmedUp(Loading loading, File root, File warmUp, int threads) throws Exception {
        boolean cold = !root.equals(warmUp);
        best(loading, warmUp, threads, cold ? ROUNDS + 1 : 1, false);
        return best(loading, root, threads, cold ? COLD_ROUNDS : ROUNDS, cold);
    }

    public static void main(String[] args) throws Exception {
        Loading loading = switch (args[0]) {
            case "manager" -> Load::manager;
            case "shutdown" -> Load::shutdown;
            case "segments" -> Load::segments;
            case "crashed" -> Load::crashed;
            default -> throw new IllegalArgumentException(args[0]);
        };
        int threads = Integer.parseInt(args[2]);
        Told told = warmedUp(loading, new File(args[1]), new File(args[args.length > 3 ? 3 : 1]),
            threads);
        System.out.printf(Locale.ROOT, "{\"segments\": %d, \"seconds\": %.6f}%n", told.segments,
            told.seconds);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
