// Recovers one partition with Apache Kafka's own UnifiedLog, as a start after an unclean shutdown
// does: every segment from offset 0 on, every index rebuilt. Once to warm up the JVM, then ROUNDS
// times; the log is sound, so that each round finds the same work. Prints JSON: the end offset and
// the best seconds of one load.
//
//   java -cp 'classes:lib/*' Recover PARTITION_DIRECTORY ROUNDS
import java.io.File;
import java.util.*;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.*;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public class Recover {
    static final int TRANSACTION_TIMEOUT_MS = 900_000, EXPIRATION_CHECK_MS = 600_000;
    static long endOffset;

    static double recover(File directory, KafkaScheduler scheduler) throws Exception {
        long start = System.nanoTime();
        UnifiedLog log = UnifiedLog.create(
            directory, new LogConfig(new Properties()), 0L, 0L, scheduler, new BrokerTopicStats(),
            Time.SYSTEM, TRANSACTION_TIMEOUT_MS,
            new ProducerStateManagerConfig(Integer.MAX_VALUE, false), EXPIRATION_CHECK_MS,
            new LogDirFailureChannel(1), false, Optional.empty());
        double seconds = (System.nanoTime() - start) / 1e9;
        endOffset = log.logEndOffset();
        log.close();
        return seconds;
    }

    public static void main(String[] args) throws Exception {
        File directory = new File(args[0]);
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        double best = Double.POSITIVE_INFINITY;
        recover(directory, scheduler);
        for (int round = 0; round < Integer.parseInt(args[1]); round++) {
            best = Math.min(best, recover(directory, scheduler));
        }
        System.out.printf(Locale.ROOT, "{\"end_offset\": %d, \"seconds\": %.6f}%n", endOffset, best);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
