// Loads a data directory with Apache Kafka's own LogManager, as a broker's start does: six times
// in one JVM, with a clean shutdown in between, and prints the best of the last five as JSON.
//
//   java -cp 'lib/*' LoadManager.java DATA_DIRECTORY RECOVERY_THREADS
import java.io.File;
import java.util.*;
import kafka.log.LogManager;
import kafka.server.builders.LogManagerBuilder;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.*;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;
import scala.jdk.javaapi.CollectionConverters;

public class LoadManager {
    static int segments;

    static double load(File root, int threads) throws Exception {
        LogConfig config = new LogConfig(new Properties());
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        LogManager manager = new LogManagerBuilder()
            .setLogDirs(List.of(root))
            .setConfigRepository(resource -> new Properties())
            .setInitialDefaultConfig(config)
            .setCleanerConfig(new CleanerConfig(false))
            .setRecoveryThreadsPerDataDir(threads)
            .setScheduler(scheduler)
            .setBrokerTopicStats(new BrokerTopicStats())
            .setLogDirFailureChannel(new LogDirFailureChannel(1))
            .build();
        long start = System.nanoTime();
        manager.loadLogs(config, CollectionConverters.asScala(new HashMap<String, LogConfig>()),
            log -> false);
        double seconds = (System.nanoTime() - start) / 1e9;
        segments = 0;
        for (UnifiedLog log : CollectionConverters.asJava(manager.allLogs())) {
            segments += log.numberOfSegments();
        }
        manager.shutdown(-1L);
        scheduler.shutdown();
        return seconds;
    }

    public static void main(String[] args) throws Exception {
        File root = new File(args[0]);
        int threads = Integer.parseInt(args[1]);
        double best = Double.POSITIVE_INFINITY;
        load(root, threads);
        for (int round = 0; round < 5; round++) {
            best = Math.min(best, load(root, threads));
        }
        System.out.printf(Locale.ROOT, "{\"segments\": %d, \"seconds\": %.6f}%n", segments, best);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
