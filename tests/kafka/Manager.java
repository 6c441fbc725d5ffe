// Starts and shuts down Apache Kafka's own LogManager again and again, each time on other log
// directories, without its background tasks and its cleaner, as a broker of epoch 5 would.
//
//   java -cp 'lib/*' Manager.java     {"roots": [LOG_DIR], "config": {}, "tiered": false,
//                                       "strays": [PARTITION], "expiration_ms": N,
//                                       "work": [OPERATION]}, one a line
//
// Every line is answered with {"logs": {path of a log: its state}, "offline": [LOG_DIR],
// "work": {path of a log: [what came of an operation]}}, or with {"error": ..., "message": ...}
// where the start failed. A stray named * is every partition. The operations are done to each
// current log; offsets count from its end (of `start`, from its start):
//   append HEX    watermark N    start N    truncate N    roll    retain
// The directories are changed: give it copies.
import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.*;
import java.io.*;
import java.nio.ByteBuffer;
import java.util.*;
import java.util.concurrent.CountDownLatch;
import kafka.log.LogManager;
import kafka.server.builders.LogManagerBuilder;
import org.apache.kafka.common.errors.KafkaStorageException;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.metadata.ConfigRepository;
import org.apache.kafka.metadata.properties.MetaPropertiesEnsemble;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.epoch.*;
import org.apache.kafka.storage.internals.log.*;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;
import scala.jdk.javaapi.CollectionConverters;

public class Manager {
    static final ObjectMapper JSON = new ObjectMapper();

    static class Halted extends RuntimeException { }

    static ObjectNode state(UnifiedLog log) {
        ObjectNode out = JSON.createObjectNode()
            .put("partition", log.topicPartition().toString()).put("future", log.isFuture())
            .put("log_start_offset", log.logStartOffset())
            .put("local_log_start_offset", log.localLogStartOffset())
            .put("recovery_point", log.recoveryPoint()).put("log_end_offset", log.logEndOffset())
            .put("last_stable_offset", log.lastStableOffset())
            .put("topic_id", log.topicId().map(Object::toString).orElse(null));
        ArrayNode bases = out.putArray("segments");
        log.logSegments().forEach(segment -> bases.add(segment.baseOffset()));
        ArrayNode epochs = out.putArray("leader_epochs");
        for (EpochEntry e : log.leaderEpochCache().epochEntries())
            epochs.addArray().add(e.epoch()).add(e.startOffset());
        ArrayNode producers = out.putArray("producers");
        for (ProducerStateEntry p : new TreeMap<>(log.producerStateManager().activeProducers()).values())
            producers.addArray().add(p.producerId()).add(p.producerEpoch())
                .add(p.lastDataOffset()).add(p.lastTimestamp()).add(p.coordinatorEpoch())
                .add(p.currentTxnFirstOffset().orElse(-1));
        return out;
    }

    static Object run(LogManager manager, UnifiedLog log, String[] op) throws Exception {
        long offset = op.length < 2 || op[0].equals("append") ? 0 : Long.parseLong(op[1]);
        switch (op[0]) {
            case "append": return log.appendAsLeader(MemoryRecords.readableRecords(ByteBuffer.wrap(
                HexFormat.of().parseHex(op[1]))), log.latestEpoch().orElse(0)).lastOffset();
            case "watermark": return log.updateHighWatermark(log.logEndOffset() + offset);
            case "start": return log.maybeIncrementLogStartOffset(log.logStartOffset() + offset,
                LogStartOffsetIncrementReason.ClientRecordDeletion);
            case "truncate":
                manager.truncateTo(CollectionConverters.asScala(
                    Map.of(log.topicPartition(), (Object) (log.logEndOffset() + offset)))
                    .toMap(scala.$less$colon$less$.MODULE$.refl()), false);
                return log.logEndOffset();
            case "roll": log.roll(); return log.numberOfSegments();
            default: return log.deleteOldSegments();
        }
    }

    static void work(LogManager manager, JsonNode operations, ObjectNode out, KafkaScheduler scheduler)
            throws Exception {
        Map<String, UnifiedLog> logs = new TreeMap<>();
        for (UnifiedLog log : CollectionConverters.asJava(manager.allLogs()))
            if (!log.isFuture()) logs.put(log.dir().getPath(), log);
        for (var entry : logs.entrySet()) {
            ArrayNode answers = out.putArray(entry.getKey());
            for (JsonNode operation : operations) {
                try {
                    answers.add(String.valueOf(
                        run(manager, entry.getValue(), operation.asText().split(" "))));
                } catch (Throwable e) {
                    answers.add(e.getClass().getSimpleName());
                }
                CountDownLatch flushed = new CountDownLatch(1); // a flush is done before it goes on
                scheduler.scheduleOnce("await", flushed::countDown);
                flushed.await();
            }
        }
    }

    /** Loads all, and takes directories offline that failed, as ReplicaManager does. */
    static ObjectNode start(LogManager manager, LogConfig config, LogDirFailureChannel failures,
            Set<String> strays, List<File> dirs) throws IOException {
        manager.loadLogs(config, CollectionConverters.asScala(new HashMap<String, LogConfig>()),
            log -> strays.contains("*") || strays.contains(log.topicPartition().toString()));
        ObjectNode out = JSON.createObjectNode(), logs = out.putObject("logs");
        ArrayNode offline = out.putArray("offline");
        for (UnifiedLog log : CollectionConverters.asJava(manager.allLogs()))
            readHighWatermarks(log.parentDirFile(), failures);
        for (File dir : dirs) {
            if (failures.hasOfflineLogDir(dir.getAbsolutePath())) {
                offline.add(dir.getAbsolutePath());
                manager.handleLogDirFailure(dir.getAbsolutePath());
            }
        }
        for (UnifiedLog log : CollectionConverters.asJava(manager.allLogs()))
            logs.set(log.dir().getPath(), state(log));
        return out;
    }

    /** Compares meta.properties as SharedServer does; the directories that cannot be used. */
    static List<File> unusable(List<File> dirs) throws IOException {
        MetaPropertiesEnsemble.Loader loader = new MetaPropertiesEnsemble.Loader();
        loader.addLogDirs(dirs.stream().map(File::getPath).toList());
        MetaPropertiesEnsemble found = loader.load();
        found.verify(Optional.empty(), OptionalInt.empty(),
            EnumSet.noneOf(MetaPropertiesEnsemble.VerificationFlag.class));
        return found.errorLogDirs().stream().map(File::new).toList();
    }

    /** As ReplicaManager does at the first log of a directory that gets a leader. */
    static void readHighWatermarks(File dir, LogDirFailureChannel failures) throws IOException {
        try {
            File file = new File(dir, "replication-offset-checkpoint");
            new OffsetCheckpointFile(file, failures).read();
        } catch (KafkaStorageException e) { // the directory is offline now
        } catch (IllegalArgumentException e) { } // a negative number of lines; the directory stays
    }

    /** Of a directory that went offline the lock is gone already, and cannot go again. */
    static void shutDown(LogManager manager) throws Exception {
        try {
            manager.shutdown(5L);
        } catch (Exception e) {
            if (!(e instanceof java.nio.channels.ClosedChannelException)) throw e;
        }
    }

    static ObjectNode answer(JsonNode asked) throws Exception {
        List<File> dirs = new ArrayList<>();
        asked.get("roots").forEach(root -> dirs.add(new File(root.asText())));
        Properties props = new Properties();
        asked.get("config").properties().forEach(e -> props.put(e.getKey(), e.getValue().asText()));
        Set<String> strays = new HashSet<>();
        asked.get("strays").forEach(stray -> strays.add(stray.asText()));
        LogConfig config = new LogConfig(props);
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        LogDirFailureChannel failures = new LogDirFailureChannel(dirs.size());
        ConfigRepository none = resource -> new Properties();
        try {
            LogManager manager = new LogManagerBuilder().setLogDirs(dirs)
                .setInitialOfflineDirs(unusable(dirs)).setConfigRepository(none)
                .setInitialDefaultConfig(config).setCleanerConfig(new CleanerConfig(false))
                .setRecoveryThreadsPerDataDir(2).setScheduler(scheduler)
                .setProducerStateManagerConfig(
                    asked.path("expiration_ms").asInt(Integer.MAX_VALUE), false)
                .setBrokerTopicStats(new BrokerTopicStats()).setLogDirFailureChannel(failures)
                .setRemoteStorageSystemEnable(asked.get("tiered").asBoolean()).build();
            try {
                ObjectNode out = start(manager, config, failures, strays, dirs);
                work(manager, asked.path("work"), out.putObject("work"), scheduler);
                return out;
            } finally {
                scheduler.shutdown(); // what it was left to do is done, as at a broker's end
                shutDown(manager);
            }
        } catch (Throwable e) {
            return JSON.createObjectNode().put("error", e.getClass().getSimpleName())
                .put("message", String.valueOf(e.getMessage()));
        }
    }

    public static void main(String[] args) throws Exception {
        Exit.setHaltProcedure((status, message) -> {
            throw new Halted();
        });
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            System.out.println(answer(JSON.readTree(line)));
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
