// Times rounds of Apache Kafka's own log cleaner (Cleaner.doClean) over copies of one log, in one JVM. The last round counts; those
// before it warm up. Then a record is appended, and the log is cleaned again: nothing goes, all is copied. Prints JSON: the seconds of
// the round, of its offset map and of the copy, the messages and bytes of both, and a hash of the log files after the first.
//
//   java -cp 'classes:lib/*' Clean LOG_DIRECTORY FOLDER_FOR_COPIES ROUNDS
import java.io.File;
import java.nio.file.*;
import java.security.MessageDigest;
import java.util.*;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.*;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public class Clean {
    static final int TRANSACTION_TIMEOUT_MS = 900_000, EXPIRATION_CHECK_MS = 600_000, MAX_MESSAGE_BYTES = 10 << 20;

    static String hash(File directory) throws Exception {
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        File[] files = directory.listFiles((d, name) -> name.endsWith(".log"));
        Arrays.sort(files);
        for (File file : files)
            digest.update(Files.readAllBytes(file.toPath()));
        return HexFormat.of().formatHex(digest.digest());
    }

    static void delete(File directory) throws Exception {
        for (File file : directory.listFiles())
            Files.delete(file.toPath());
        Files.delete(directory.toPath());
    }

    public static void main(String[] args) throws Exception {
        Properties props = new Properties();
        props.put("cleanup.policy", "compact");
        props.put("segment.bytes", "67108864");
        props.put("max.message.bytes", String.valueOf(MAX_MESSAGE_BYTES));
        props.put("file.delete.delay.ms", "0");
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        CleanerStats stats = null, again = null;
        String hash = "";
        for (int round = 0; round < Integer.parseInt(args[2]); round++) {
            File directory = new File(args[1], "kafka" + round + "-0");
            directory.mkdirs();
            for (File file : new File(args[0]).listFiles())
                Files.copy(file.toPath(), directory.toPath().resolve(file.getName()), StandardCopyOption.COPY_ATTRIBUTES);
            UnifiedLog log = UnifiedLog.create(directory, new LogConfig(props), 0, 0, scheduler, new BrokerTopicStats(), Time.SYSTEM,
                TRANSACTION_TIMEOUT_MS, new ProducerStateManagerConfig(86_400_000, false), EXPIRATION_CHECK_MS,
                new LogDirFailureChannel(1), true, Optional.empty());
            log.updateHighWatermark(log.logEndOffset());
            Throttler free = new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", Time.SYSTEM);
            Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(128 << 20), 512 * 1024, MAX_MESSAGE_BYTES, 0.9, free, Time.SYSTEM, p -> { });
            var done = cleaner.clean(new LogToClean(log, 0, log.activeSegment().baseOffset(), false));
            stats = done.getValue();
            hash = hash(directory);
            log.appendAsLeader(MemoryRecords.withRecords(Compression.NONE,
                new SimpleRecord(1_700_000_000_000L, "one-more".getBytes(), new byte[1])), 0);
            log.updateHighWatermark(log.logEndOffset());
            log.roll();
            again = cleaner.clean(new LogToClean(log, done.getKey(), log.activeSegment().baseOffset(), false)).getValue();
            log.close();
            Thread.sleep(200); // the scheduler deletes what was replaced
            delete(directory);
        }
        System.out.printf(Locale.ROOT, "{\"seconds\": %.4f, \"map_seconds\": %.4f, \"messages_read\": %d, \"messages_written\": %d, "
            + "\"bytes_written\": %d, \"copy_seconds\": %.4f, \"copy_bytes\": %d, \"sha256\": \"%s\"}%n", stats.elapsedSecs(),
            stats.elapsedIndexSecs(), stats.messagesRead(), stats.messagesWritten(), stats.bytesWritten(), again.elapsedSecs(),
            again.bytesRead(), hash);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
