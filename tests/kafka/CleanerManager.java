// Drives Kafka's own LogCleanerManager over the logs of a data directory, under a clock that stands
// still.
//
//   java -cp 'lib/*' CleanerManager.java LOG_DIR NOW_MS [partition:key=value,...] ...
//
// Loads each partition that is named with its settings, sets its high watermark to the log's end,
// and reads commands from standard input, one a line:
//
//   grab                          the filthiest log: its partition, range, bytes, ratio; or none
//   done PARTITION OFFSET         the round is over
//   pause PARTITION, resume PARTITION, mark PARTITION (uncleanable), truncate PARTITION OFFSET
//   start PARTITION OFFSET        moves the log's start
//   now MS                        moves the clock
//   points                        the checkpoint
import java.io.*;
import java.lang.reflect.*;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.*;
import org.apache.kafka.server.util.*;
import org.apache.kafka.storage.internals.log.*;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public class CleanerManager {
    public static void main(String[] args) throws Exception {
        File dir = new File(args[0]).getAbsoluteFile();
        long[] now = {Long.parseLong(args[1])};
        Time time = new Time() {
            public long milliseconds() { return now[0]; }
            public long nanoseconds() { return now[0] * 1_000_000; }
            public void sleep(long ms) { now[0] += ms; }
            public void waitObject(Object o, java.util.function.Supplier<Boolean> c, long d) { }
            public org.apache.kafka.common.utils.Timer timer(long ms) { return Time.SYSTEM.timer(ms); }
        };
        KafkaScheduler scheduler = new KafkaScheduler(1);
        LogDirFailureChannel channel = new LogDirFailureChannel(1);
        ConcurrentMap<TopicPartition, UnifiedLog> logs = new ConcurrentHashMap<>();
        for (int i = 2; i < args.length; i++) {
            String[] named = args[i].split(":", 2);
            Properties props = new Properties();
            for (String setting : named[1].split(","))
                props.put(setting.split("=", 2)[0], setting.split("=", 2)[1].replace('+', ','));
            UnifiedLog log = UnifiedLog.create(
                new File(dir, named[0]), new LogConfig(props), 0, 0, scheduler,
                new BrokerTopicStats(), time, 900000,
                new ProducerStateManagerConfig(Integer.MAX_VALUE, false), 600000, channel, true,
                Optional.empty());
            log.updateHighWatermark(log.logEndOffset());
            logs.put(log.topicPartition(), log);
        }
        LogCleanerManager manager = new LogCleanerManager(List.of(dir), logs, channel);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ");
            String answer;
            try {
                answer = answer(manager, logs, dir, time, now, words);
            } catch (Throwable e) {
                answer = e.getClass().getSimpleName() + ": " + e.getMessage();
            }
            System.out.println(answer);
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    static String answer(LogCleanerManager manager, Map<TopicPartition, UnifiedLog> logs, File dir,
                         Time time, long[] now, String[] words) throws Exception {
        TopicPartition key = words.length > 1 && !words[0].equals("now")
            ? UnifiedLog.parseTopicPartitionName(new File(dir, words[1])) : null;
        long offset = words.length > 2 ? Long.parseLong(words[2]) : 0;
        switch (words[0]) {
            case "grab":
                PreCleanStats stats = new PreCleanStats();
                Optional<LogToClean> found = manager.grabFilthiestCompactedLog(time, stats);
                String counts = stats.cleanablePartitions() + " " + stats.delayedPartitions() + " "
                    + stats.maxCompactionDelayMs();
                if (found.isEmpty()) return "none " + counts;
                LogToClean one = found.get();
                return one.topicPartition() + " " + one.firstDirtyOffset() + " "
                    + one.firstUncleanableOffset() + " " + one.cleanBytes() + " "
                    + one.cleanableBytes() + " " + one.cleanableRatio() + " " + counts;
            case "done": manager.doneCleaning(key, dir, offset); return "ok";
            case "pause": manager.abortAndPauseCleaning(key); return "ok";
            case "resume": manager.resumeCleaning(Set.of(key)); return "ok";
            case "mark": manager.markPartitionUncleanable(dir.toString(), key); return "ok";
            case "truncate": manager.maybeTruncateCheckpoint(dir, key, offset); return "ok";
            case "start":
                logs.get(key).maybeIncrementLogStartOffset(
                    offset, LogStartOffsetIncrementReason.ClientRecordDeletion);
                return "ok";
            case "now": now[0] = Long.parseLong(words[1]); return "ok";
            case "points": return new TreeMap<>(toNames(manager.allCleanerCheckpoints())).toString();
            default: return "?";
        }
    }

    static Map<String, Long> toNames(Map<TopicPartition, Long> offsets) {
        Map<String, Long> named = new HashMap<>();
        offsets.forEach((key, offset) -> named.put(key.toString(), offset));
        return named;
    }
}
