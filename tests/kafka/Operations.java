// Operations on logs by Apache Kafka's own LogManager, without its background tasks and its cleaner.
//
//   java -cp 'lib/*' Operations.java LOG_DIR ... [key=value ...] < lines
//
// One operation a line, its words separated by blanks; a partition is TOPIC-N, bytes are hexadecimal:
//   create P [DIR]    append P HEX    watermark P OFFSET    start P OFFSET    truncate P OFFSET
//   empty P OFFSET    move P DIR      delete P              stray P           roll P    retain P
//   restart P: all logs are closed and opened again       crash P: without a clean shutdown marker
//   fail P DIR: the data directory goes offline, until a restart
// Each answers with a line: what came of it, or the exception. The directories are closed at the end.
import java.io.*;
import java.nio.ByteBuffer;
import java.util.*;
import java.util.concurrent.CountDownLatch;
import kafka.log.LogManager;
import kafka.server.builders.LogManagerBuilder;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.metadata.ConfigRepository;
import org.apache.kafka.server.storage.log.*;
import org.apache.kafka.server.util.*;
import org.apache.kafka.storage.internals.log.*;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

public class Operations {
    static LogManager manager;
    static final List<File> dirs = new ArrayList<>();
    static final KafkaScheduler scheduler = new KafkaScheduler(1);
    static LogConfig config;
    static LogDirFailureChannel failures;

    static boolean isWhole() {
        return manager.liveLogDirs().size() == dirs.size();
    }

    /** Of a directory that went offline the lock is gone already, and cannot go again. */
    static void shutDown() throws Exception {
        boolean whole = isWhole();
        try {
            manager.shutdown(5L);
        } catch (Exception e) {
            if (whole) throw e;
            for (var lock : CollectionConverters.asJava(manager.dirLocks())) {
                try {
                    lock.destroy();
                } catch (Exception gone) { }
            }
        }
    }

    static void start() throws Exception {
        ConfigRepository none = resource -> new Properties();
        manager = new LogManagerBuilder().setLogDirs(dirs).setConfigRepository(none)
            .setInitialDefaultConfig(config).setCleanerConfig(new CleanerConfig(false))
            .setRecoveryThreadsPerDataDir(1).setScheduler(scheduler)
            .setProducerStateManagerConfig(Integer.MAX_VALUE, false)
            .setBrokerTopicStats(new BrokerTopicStats())
            .setLogDirFailureChannel(failures = new LogDirFailureChannel(dirs.size())).build();
        manager.loadLogs(config, CollectionConverters.asScala(new HashMap<String, LogConfig>()), log -> false);
    }

    static UnifiedLog log(TopicPartition key) {
        return manager.getLog(key, false).get();
    }

    static MemoryRecords bytes(Records records) throws Exception {
        ByteBuffer buffer = ByteBuffer.allocate(records.sizeInBytes());
        if (records instanceof FileRecords file) file.readInto(buffer, 0);
        else buffer = ((MemoryRecords) records).buffer();
        return MemoryRecords.readableRecords(buffer);
    }

    static Object move(TopicPartition key, String dir) throws Exception {
        manager.maybeUpdatePreferredLogDir(key, dir);
        UnifiedLog from = log(key), to = manager.getOrCreateLog(key, false, true, Optional.empty(), Option.empty());
        if (to.logEndOffset() < from.logStartOffset()) to.truncateFullyAndStartAt(from.logStartOffset(), Optional.empty());
        while (to.logEndOffset() < from.logEndOffset()) {
            MemoryRecords found = bytes(from.read(to.logEndOffset(), 1 << 20, FetchIsolation.LOG_END, true).records);
            if (found.sizeInBytes() == 0) break;
            try {
                to.appendAsFollower(found, Integer.MAX_VALUE);
            } catch (UnexpectedAppendOffsetException e) { // as Partition does
                if (to.logEndOffset() != to.logStartOffset() || e.firstOffset >= to.logEndOffset()
                    || e.lastOffset < to.logEndOffset()) throw e;
                manager.truncateFullyAndStartAt(key, e.firstOffset, true, Optional.empty());
                to.appendAsFollower(found, Integer.MAX_VALUE);
            }
            to.updateHighWatermark(from.highWatermark());
            to.maybeIncrementLogStartOffset(from.logStartOffset(), LogStartOffsetIncrementReason.LeaderOffsetIncremented);
        }
        to.flush(true); // as here: what was durable stays so
        manager.replaceCurrentWithFutureLog(key);
        return log(key).logEndOffset();
    }

    static Object run(String[] op) throws Exception {
        int dash = op[1].lastIndexOf('-');
        TopicPartition key = new TopicPartition(op[1].substring(0, dash), Integer.parseInt(op[1].substring(dash + 1)));
        switch (op[0]) {
            case "create":
                if (op.length > 2) manager.maybeUpdatePreferredLogDir(key, op[2]);
                return manager.getOrCreateLog(key, isWhole(), false, Optional.empty(), Option.empty()).parentDir();
            case "append":
                return log(key).appendAsLeader(MemoryRecords.readableRecords(ByteBuffer.wrap(HexFormat.of().parseHex(op[2]))), 0).lastOffset();
            case "watermark": return log(key).updateHighWatermark(Long.parseLong(op[2]));
            case "start": return log(key).maybeIncrementLogStartOffset(Long.parseLong(op[2]), LogStartOffsetIncrementReason.ClientRecordDeletion);
            case "truncate":
                manager.truncateTo(CollectionConverters.asScala(Map.of(key, (Object) Long.parseLong(op[2])))
                    .toMap(scala.$less$colon$less$.MODULE$.refl()), false);
                return log(key).logEndOffset();
            case "empty":
                manager.truncateFullyAndStartAt(key, Long.parseLong(op[2]), false, Optional.empty());
                return log(key).logEndOffset();
            case "move": return move(key, op[2]);
            case "delete": return manager.asyncDelete(key, false, true, false).isDefined();
            case "stray": return manager.asyncDelete(key, false, true, true).isDefined();
            case "roll": log(key).roll(); return log(key).numberOfSegments();
            case "restart": case "crash":
                shutDown();
                for (File dir : dirs)
                    if (op[0].equals("crash")) new File(dir, ".kafka_cleanshutdown").delete();
                start();
                return true;
            case "fail":
                if (!isWhole()) return "failed";
                manager.checkpointLogStartOffsets();
                manager.checkpointLogRecoveryOffsets();
                failures.maybeAddOfflineLogDir(op[2], "fail", new IOException());
                manager.handleLogDirFailure(op[2]);
                return manager.liveLogDirs().size();
            case "retain": return log(key).deleteOldSegments();
            default: throw new IllegalArgumentException(op[0]);
        }
    }

    public static void main(String[] args) throws Exception {
        Properties props = new Properties();
        for (String arg : args) {
            String[] kv = arg.split("=", 2);
            if (kv.length == 2) props.put(kv[0], kv[1]); else dirs.add(new File(arg));
        }
        config = new LogConfig(props);
        scheduler.startup();
        start();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            try {
                System.out.println(run(line.split(" ")));
            } catch (Throwable e) {
                System.out.println(e.getClass().getSimpleName());
            }
            CountDownLatch flushed = new CountDownLatch(1); // a log's flush is done before it goes on
            scheduler.scheduleOnce("await", flushed::countDown);
            flushed.await();
        }
        scheduler.shutdown();
        shutDown();
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
