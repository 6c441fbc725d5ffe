// Runs Kafka's own LogCleaner, threads and all, over the logs of a data directory, under a clock
// that stands still, until its checkpoints say what is expected.
//
//   java -cp 'lib/*' Cleaning.java LOG_DIR NOW_MS THREADS MAP_BYTES SETTINGS PARTITION=OFFSET ...
//
// SETTINGS (key=value,...) are those of all logs. Prints the checkpoints, and the partitions that
// are uncleanable.
import java.io.*;
import java.lang.reflect.*;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.*;
import org.apache.kafka.server.util.*;
import org.apache.kafka.storage.internals.log.*;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public class Cleaning {
    static final long PATIENCE_MS = 60_000;

    public static void main(String[] args) throws Exception {
        File dir = new File(args[0]).getAbsoluteFile();
        long now = Long.parseLong(args[1]);
        Time time = new Time() {
            public long milliseconds() { return now; }
            public long nanoseconds() { return System.nanoTime(); }
            public void sleep(long ms) { Time.SYSTEM.sleep(ms); }
            public void waitObject(Object o, java.util.function.Supplier<Boolean> c, long d) { }
            public org.apache.kafka.common.utils.Timer timer(long ms) { return Time.SYSTEM.timer(ms); }
        };
        Properties props = new Properties();
        for (String setting : args[4].split(","))
            props.put(setting.split("=", 2)[0], setting.split("=", 2)[1]);
        KafkaScheduler scheduler = new KafkaScheduler(1);
        LogDirFailureChannel channel = new LogDirFailureChannel(1);
        ConcurrentMap<TopicPartition, UnifiedLog> logs = new ConcurrentHashMap<>();
        Map<TopicPartition, Long> wanted = new HashMap<>();
        for (int i = 5; i < args.length; i++) {
            String[] named = args[i].split("=", 2);
            UnifiedLog log = UnifiedLog.create(
                new File(dir, named[0]), new LogConfig(props), 0, 0, scheduler,
                new BrokerTopicStats(), time, 900000,
                new ProducerStateManagerConfig(Integer.MAX_VALUE, false), 600000, channel, true,
                Optional.empty());
            log.updateHighWatermark(log.logEndOffset());
            logs.put(log.topicPartition(), log);
            wanted.put(log.topicPartition(), Long.parseLong(named[1]));
        }
        LogCleaner cleaner = new LogCleaner(
            new CleanerConfig(Integer.parseInt(args[2]), Long.parseLong(args[3]), 0.9, 64 << 10,
                1 << 20, Double.MAX_VALUE, 5, true), List.of(dir), logs, channel, time);
        cleaner.startup();
        long end = System.currentTimeMillis() + PATIENCE_MS;
        while (!cleaner.cleanerManager().allCleanerCheckpoints().equals(wanted)
                && System.currentTimeMillis() < end)
            Thread.sleep(5);
        cleaner.shutdown();
        Map<String, Long> points = new TreeMap<>();
        cleaner.cleanerManager().allCleanerCheckpoints().forEach((key, offset) -> points.put(key.toString(), offset));
        Field field = LogCleanerManager.class.getDeclaredField("uncleanablePartitions");
        field.setAccessible(true);
        Set<String> bad = new TreeSet<>();
        ((Map<?, ?>) field.get(cleaner.cleanerManager())).values().forEach(
            set -> ((Set<?>) set).forEach(key -> bad.add(key.toString())));
        System.out.println(points + " " + bad);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
