// Loads every partition directory under a log directory with Apache Kafka's own UnifiedLog, as a
// starting broker would (clean-shutdown marker, checkpoints), and prints the state it arrives at.
//
//   java -cp 'lib/*' Oracle.java LOG_DIR ... [key=value ...]
//   java -cp 'lib/*' Oracle.java -          {"root": LOG_DIR, "config": {key: value}}, one a line
//
// One log directory prints {partition: state}, several print {log directory name: {partition:
// state}}. key=value pairs are log configs. The directories are changed, as a broker would change
// them: give it copies. A partition that fails to load is reported with its exception.
//
// With "-" every line is answered with {partition: state} on one line. A log that loaded is then
// never reported as failed: what could not be told of a segment is {"error": ..., "message": ...}
// in its place, and a failing close is "close_error" and "close_message".
import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.*;
import java.io.*;
import java.nio.file.*;
import java.security.MessageDigest;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.utils.*;
import org.apache.kafka.server.util.*;
import org.apache.kafka.storage.internals.checkpoint.*;
import org.apache.kafka.storage.internals.epoch.*;
import org.apache.kafka.storage.internals.log.*;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public class Oracle {
    static final ObjectMapper JSON = new ObjectMapper();
    static boolean lines;

    static ObjectNode files(File dir) throws Exception {
        ObjectNode out = JSON.createObjectNode();
        File[] all = dir.listFiles();
        Arrays.sort(all);
        for (File f : all) {
            if (!f.isFile()) continue;
            byte[] bytes = Files.readAllBytes(f.toPath());
            byte[] hash = MessageDigest.getInstance("SHA-256").digest(bytes);
            out.putObject(f.getName()).put("size", bytes.length)
                .put("sha256", HexFormat.of().formatHex(hash));
        }
        return out;
    }

    interface Question { JsonNode answer() throws Exception; }

    /** What a loaded log says of itself; of one that is corrupt that may be an exception. */
    static JsonNode ask(File root, Question question) throws Exception {
        try {
            return question.answer();
        } catch (Throwable e) {
            if (!lines) throw e;
            return failure(root, e);
        }
    }

    static ObjectNode failure(File root, Throwable e) {
        String message = String.valueOf(e.getMessage()).replace(root.getAbsolutePath(), "")
            .replace(root.getPath() + "/", "/");
        return JSON.createObjectNode().put("error", e.getClass().getSimpleName())
            .put("message", message);
    }

    /** As a starting broker reads it: one that cannot be read counts as empty. */
    static Map<TopicPartition, Long> checkpoint(File root, String name, LogDirFailureChannel dead) {
        try {
            return new OffsetCheckpointFile(new File(root, name), dead).read();
        } catch (Exception e) {
            return Map.of();
        }
    }

    /** Waits for what the load left to the background: the epoch checkpoint is written there. */
    static void awaitTasks(KafkaScheduler scheduler) throws Exception {
        CountDownLatch done = new CountDownLatch(1);
        scheduler.scheduleOnce("await", done::countDown);
        done.await();
    }

    static ObjectNode state(File root, UnifiedLog log) throws Exception {
        ObjectNode out = JSON.createObjectNode();
        out.put("log_start_offset", log.logStartOffset()).put("recovery_point", log.recoveryPoint())
            .put("log_end_offset", log.logEndOffset())
            .put("last_stable_offset", log.lastStableOffset())
            .put("producer_state_end_offset", log.latestProducerStateEndOffset());
        ArrayNode segments = out.putArray("segments");
        for (LogSegment s : log.logSegments()) {
            ObjectNode one = segments.addObject();
            one.set("time_index_last", ask(root, () -> {
                TimestampOffset last = s.timeIndex().lastEntry();
                return JSON.createArrayNode().add(last.timestamp()).add(last.offset());
            }));
            one.put("base_offset", s.baseOffset()).put("size", s.size());
            one.set("offset_index_entries",
                ask(root, () -> IntNode.valueOf(s.offsetIndex().entries())));
            one.set("time_index_entries",
                ask(root, () -> IntNode.valueOf(s.timeIndex().entries())));
            one.set("aborted_txns",
                ask(root, () -> IntNode.valueOf(s.txnIndex().allAbortedTxns().size())));
            one.set("max_timestamp", ask(root, () -> LongNode.valueOf(s.maxTimestampSoFar())));
            one.set("next_offset", ask(root, () -> LongNode.valueOf(s.readNextOffset())));
        }
        ArrayNode producers = out.putArray("producers");
        var active = new TreeMap<>(log.producerStateManager().activeProducers());
        for (ProducerStateEntry p : active.values()) {
            var batches = new ArrayList<>(p.batchMetadata());
            ObjectNode one = producers.addObject();
            one.put("producer_id", p.producerId()).put("epoch", p.producerEpoch())
                .put("coordinator_epoch", p.coordinatorEpoch())
                .put("first_data_offset", p.firstDataOffset())
                .put("last_data_offset", p.lastDataOffset())
                .put("last_seq", batches.isEmpty() ? -1 : batches.get(batches.size() - 1).lastSeq())
                .put("last_timestamp", p.lastTimestamp()).put("batches", batches.size());
            OptionalLong first = p.currentTxnFirstOffset();
            if (first.isPresent()) one.put("current_txn_first_offset", first.getAsLong());
            else one.putNull("current_txn_first_offset");
        }
        ArrayNode epochs = out.putArray("leader_epochs");
        for (EpochEntry e : log.leaderEpochCache().epochEntries()) {
            epochs.addArray().add(e.epoch()).add(e.startOffset());
        }
        return out;
    }

    static ObjectNode loadOne(File root, File dir, Properties props, boolean clean,
            KafkaScheduler scheduler, LogDirFailureChannel failures,
            Map<TopicPartition, Long> recoveryPoints, Map<TopicPartition, Long> startOffsets)
            throws Exception {
        try {
            TopicPartition tp = UnifiedLog.parseTopicPartitionName(dir);
            UnifiedLog log = UnifiedLog.create(dir, new LogConfig(props),
                startOffsets.getOrDefault(tp, 0L), recoveryPoints.getOrDefault(tp, 0L), scheduler,
                new BrokerTopicStats(), Time.SYSTEM, 900000,
                new ProducerStateManagerConfig(Integer.MAX_VALUE, false), 600000, failures, clean,
                Optional.empty());
            ObjectNode out = state(root, log);
            awaitTasks(scheduler);
            out.set("files_loaded", files(dir));
            JsonNode closed = ask(root, () -> {
                log.close();
                return NullNode.getInstance();
            });
            if (!closed.isNull()) {
                out.set("close_error", closed.get("error"));
                out.set("close_message", closed.get("message"));
            }
            awaitTasks(scheduler);
            out.set("files_closed", files(dir));
            return out;
        } catch (Throwable e) {
            awaitTasks(scheduler);
            ObjectNode out = failure(root, e);
            out.set("files_closed", files(dir));
            return out;
        }
    }

    static ObjectNode load(File root, Properties props) throws Exception {
        boolean clean = new File(root, ".kafka_cleanshutdown").exists();
        LogDirFailureChannel dead = new LogDirFailureChannel(1);
        var recoveryPoints = checkpoint(root, "recovery-point-offset-checkpoint", dead);
        var startOffsets = checkpoint(root, "log-start-offset-checkpoint", dead);
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        ObjectNode out = JSON.createObjectNode();
        File[] dirs = root.listFiles(File::isDirectory);
        Arrays.sort(dirs);
        SAID.reset();
        for (File dir : dirs) {
            ObjectNode state = loadOne(root, dir, props, clean, scheduler,
                // One failure takes a directory offline, and then no log of it could be closed.
                lines ? new LogDirFailureChannel(1) : dead,
                recoveryPoints, startOffsets);
            if (lines) state.set("said", said());
            out.set(dir.getName(), state);
        }
        scheduler.shutdown();
        return out;
    }

    static final ByteArrayOutputStream SAID = new ByteArrayOutputStream();

    /** The lines that were logged since the last call. */
    static ArrayNode said() {
        ArrayNode found = JSON.createArrayNode();
        for (String line : SAID.toString(java.nio.charset.StandardCharsets.UTF_8).split("\n"))
            if (line.matches("(DEBUG|INFO|WARN|ERROR) .*")) found.add(line);
        SAID.reset();
        return found;
    }

    static void answerLines() throws Exception {
        lines = true;
        System.setErr(new PrintStream(SAID, true, "UTF-8"));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            JsonNode asked = JSON.readTree(line);
            Properties props = new Properties();
            asked.get("config").properties().forEach(
                e -> props.put(e.getKey(), e.getValue().asText()));
            System.out.println(load(new File(asked.get("root").asText()), props));
            System.out.flush();
        }
    }

    public static void main(String[] args) throws Exception {
        if (args.length == 1 && args[0].equals("-")) {
            answerLines();
            Runtime.getRuntime().halt(0);
        }
        List<File> roots = new ArrayList<>();
        Properties props = new Properties();
        for (String arg : args) {
            String[] kv = arg.split("=", 2);
            if (kv.length == 2) props.put(kv[0], kv[1]); else roots.add(new File(arg));
        }
        ObjectNode out = JSON.createObjectNode();
        if (roots.size() == 1) {
            out = load(roots.get(0), props);
        } else {
            for (File root : roots) out.set(root.getName(), load(root, props));
        }
        System.out.println(JSON.writerWithDefaultPrettyPrinter().writeValueAsString(out));
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
