// Appends one ready batch again and again to a log of Apache Kafka's own UnifiedLog, as a produce
// request of a client does. Rounds in one JVM, each in a directory of its own; those that warm up
// come first. Prints JSON: the end offset and the seconds of each round that counts.
//
//   java -cp 'classes:lib/*' Append DIRECTORY BATCH_FILE APPENDS WARM_UP ROUNDS
import java.io.File;
import java.nio.ByteBuffer;
import java.nio.file.*;
import java.util.*;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.*;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public class Append {
    static final int TRANSACTION_TIMEOUT_MS = 900_000, EXPIRATION_CHECK_MS = 600_000;
    static long endOffset;

    static double append(File directory, byte[] batch, int appends, KafkaScheduler scheduler) throws Exception {
        directory.mkdirs();
        UnifiedLog log = UnifiedLog.create(
            directory, new LogConfig(new Properties()), 0L, 0L, scheduler, new BrokerTopicStats(),
            Time.SYSTEM, TRANSACTION_TIMEOUT_MS,
            new ProducerStateManagerConfig(Integer.MAX_VALUE, false), EXPIRATION_CHECK_MS,
            new LogDirFailureChannel(1), true, Optional.empty());
        long start = System.nanoTime();
        for (int n = 0; n < appends; n++) {
            // Kafka writes offsets into the bytes that it is given.
            log.appendAsLeader(MemoryRecords.readableRecords(ByteBuffer.wrap(batch.clone())), 0);
        }
        double seconds = (System.nanoTime() - start) / 1e9;
        endOffset = log.logEndOffset();
        log.close();
        for (File file : directory.listFiles()) file.delete();
        directory.delete();
        return seconds;
    }

    public static void main(String[] args) throws Exception {
        byte[] batch = Files.readAllBytes(Path.of(args[1]));
        int appends = Integer.parseInt(args[2]), warmUp = Integer.parseInt(args[3]);
        int rounds = warmUp + Integer.parseInt(args[4]);
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        List<String> seconds = new ArrayList<>();
        for (int round = 0; round < rounds; round++) {
            double one = append(new File(args[0], "kafka-" + round), batch, appends, scheduler);
            if (round >= warmUp) seconds.add(String.format(Locale.ROOT, "%.6f", one));
        }
        System.out.printf(Locale.ROOT, "{\"end_offset\": %d, \"seconds\": %s}%n", endOffset, seconds);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
