// Drives the producer state of Apache Kafka's UnifiedLog through sequences of operations, and prints what each of them
// answered and what is known of the producers after it.
//
//   java -cp 'lib/*' Producers.java WORK_DIR < sequences.jsonl > results.jsonl
//
// A line in: {"name": "s1", "expiration_ms": 1000, "verification": true, "ops": [...]}; it runs in WORK_DIR/NAME/t-0.
// A line out: {"name": ..., "results": [...], "files": {name: BASE64}}. Ops:
//   {"op":"append","origin":"CLIENT","records":BASE64,"base":N,"position":N,"txn_version":0,"guard":I}  I: of the I-th "verify"
//   {"op":"verify","id":N,"sequence":N,"epoch":N,"bump":true,"now":N} {"op":"high_watermark","offset":N} {"op":"start_offset","offset":N}
//   {"op":"expire","now":N} {"op":"late","now":N} {"op":"snapshot","sync":true} {"op":"reload","start":N,"end":N,"now":N}
//   {"op":"truncate_fully","offset":N} {"op":"delete_before","offset":N} {"op":"stray","bases":[N]} {"op":"mark_deleted","offset":N}
//   {"op":"damage"}   the last byte of the newest snapshot
import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.*;
import java.io.*;
import java.lang.reflect.*;
import java.nio.ByteBuffer;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.*;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public class Producers {
    static final ObjectMapper JSON = new ObjectMapper();
    static final KafkaScheduler SCHEDULER = new KafkaScheduler(1);
    static Method analyze;

    /** A clock that only an op moves. */
    static class StillTime implements Time {
        volatile long now;
        public long milliseconds() { return now; }
        public long nanoseconds() { return now * 1_000_000L; }
        public void sleep(long ms) { now += ms; }
        public void waitObject(Object o, Supplier<Boolean> condition, long deadlineMs) { throw new UnsupportedOperationException(); }
        public <T> T waitForFuture(CompletableFuture<T> future, long deadlineNanos) { throw new UnsupportedOperationException(); }
    }

    final StillTime time = new StillTime();
    final File dir;
    final UnifiedLog log;
    final ProducerStateManager producers;
    final List<VerificationGuard> guards = new ArrayList<>();
    final Set<Long> ids = new TreeSet<>();

    Producers(File dir, JsonNode sequence) throws Exception {
        this.dir = dir;
        Files.createDirectories(dir.toPath());
        log = UnifiedLog.create(dir, new LogConfig(new Properties()), 0L, 0L, SCHEDULER, new BrokerTopicStats(), time, 900_000,
            new ProducerStateManagerConfig(sequence.get("expiration_ms").asInt(), sequence.get("verification").asBoolean()), 600_000,
            new LogDirFailureChannel(1), true, Optional.empty());
        producers = log.producerStateManager();
    }

    static Object component(Object record, String name) throws Exception {
        Method accessor = record.getClass().getDeclaredMethod(name);
        accessor.setAccessible(true);
        return accessor.invoke(record);
    }

    void append(JsonNode op, ObjectNode out) throws Throwable {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(Base64.getDecoder().decode(op.get("records").asText())));
        records.batches().forEach(batch -> ids.add(batch.producerId()));
        LogOffsetMetadata where = new LogOffsetMetadata(records.batches().iterator().next().baseOffset(), op.get("base").asLong(), op.get("position").asInt());
        VerificationGuard guard = op.has("guard") ? guards.get(op.get("guard").asInt()) : VerificationGuard.SENTINEL;
        Object analysis;
        try {
            analysis = analyze.invoke(log, where, records, AppendOrigin.valueOf(op.get("origin").asText()), guard, (short) op.get("txn_version").asInt());
        } catch (InvocationTargetException e) {
            throw e.getCause();
        }
        Optional<?> duplicate = (Optional<?>) component(analysis, "maybeDuplicate");
        if (duplicate.isPresent()) {
            out.put("duplicate", duplicate.get().toString());
            return;
        }
        for (Object info : ((Map<?, ?>) component(analysis, "updatedProducers")).values()) producers.update((ProducerAppendInfo) info);
        ArrayNode completed = out.putArray("completed");
        for (Object txn : (List<?>) component(analysis, "completedTxns")) {
            completed.add(txn + " " + producers.lastStableOffset((CompletedTxn) txn));
            producers.completeTxn((CompletedTxn) txn);
        }
        long last = 0;
        for (RecordBatch batch : records.batches()) last = batch.lastOffset();
        producers.updateMapEndOffset(last + 1);
    }

    void run(JsonNode op, ObjectNode out) throws Throwable {
        switch (op.get("op").asText()) {
            case "append" -> append(op, out);
            case "verify" -> {
                ids.add(op.get("id").asLong());
                time.now = op.get("now").asLong();
                guards.add(VerificationGuard.SENTINEL);
                VerificationGuard guard = log.maybeStartTransactionVerification(op.get("id").asLong(), op.get("sequence").asInt(),
                    (short) op.get("epoch").asInt(), op.get("bump").asBoolean());
                guards.set(guards.size() - 1, guard);
                out.put("same_as", guards.indexOf(guard));
            }
            case "high_watermark" -> producers.onHighWatermarkUpdated(op.get("offset").asLong());
            case "start_offset" -> producers.onLogStartOffsetIncremented(op.get("offset").asLong());
            case "expire" -> producers.removeExpiredProducers(op.get("now").asLong());
            case "late" -> out.put("late", producers.hasLateTransaction(op.get("now").asLong()));
            case "snapshot" -> out.put("taken", producers.takeSnapshot(op.get("sync").asBoolean()).map(File::getName).orElse(null));
            case "reload" -> producers.truncateAndReload(op.get("start").asLong(), op.get("end").asLong(), op.get("now").asLong());
            case "truncate_fully" -> producers.truncateFullyAndStartAt(op.get("offset").asLong());
            case "delete_before" -> producers.deleteSnapshotsBefore(op.get("offset").asLong());
            case "stray" -> {
                List<Long> bases = new ArrayList<>();
                op.get("bases").forEach(base -> bases.add(base.asLong()));
                producers.removeStraySnapshots(bases);
            }
            case "mark_deleted" -> out.put("marked", producers.removeAndMarkSnapshotForDeletion(op.get("offset").asLong()).isPresent());
            case "damage" -> {
                OptionalLong newest = producers.latestSnapshotOffset();
                if (newest.isPresent()) {
                    Path file = producers.fetchSnapshot(newest.getAsLong()).get().toPath();
                    byte[] bytes = Files.readAllBytes(file);
                    bytes[bytes.length - 1] ^= 1;
                    Files.write(file, bytes);
                }
            }
            default -> throw new IllegalStateException("unknown op " + op);
        }
    }

    void state(ObjectNode out) {
        out.put("end", producers.mapEndOffset()).put("unstable", producers.firstUnstableOffset().map(Object::toString).orElse(null))
            .put("count", producers.producerIdCount()).put("is_empty", producers.isEmpty());
        out.put("newest", producers.latestSnapshotOffset().orElse(-1)).put("oldest", producers.oldestSnapshotOffset().orElse(-1));
        ArrayNode entries = out.putArray("producers");
        for (ProducerStateEntry entry : new TreeMap<>(producers.activeProducers()).values()) entries.add(entry.toString());
        ArrayNode verified = out.putArray("verified");
        for (long id : ids) {
            VerificationStateEntry entry = producers.verificationStateEntry(id);
            if (entry != null) {
                verified.add(id + " " + guards.indexOf(entry.verificationGuard()) + " " + entry.lowestSequence() + " " + entry.epoch() + " " + entry.supportsEpochBump());
            }
        }
    }

    public static void main(String[] args) throws Exception {
        SCHEDULER.startup();
        for (Method method : UnifiedLog.class.getDeclaredMethods()) if (method.getName().equals("analyzeAndValidateProducerState")) analyze = method;
        analyze.setAccessible(true);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode sequence = JSON.readTree(line);
            String name = sequence.get("name").asText();
            Producers driver = new Producers(new File(new File(args[0], name), "t-0"), sequence);
            ObjectNode out = JSON.createObjectNode().put("name", name);
            ArrayNode results = out.putArray("results");
            for (JsonNode op : sequence.get("ops")) {
                ObjectNode result = results.addObject();
                try {
                    driver.run(op, result);
                } catch (Throwable e) {
                    result.put("error", e.getClass().getSimpleName()).put("message", String.valueOf(e.getMessage()));
                }
                driver.state(result);
            }
            ObjectNode files = out.putObject("files");
            for (File file : driver.dir.listFiles()) {
                if (file.getName().contains(".snapshot")) files.put(file.getName(), Base64.getEncoder().encodeToString(Files.readAllBytes(file.toPath())));
            }
            driver.log.closeHandlers();
            System.out.println(JSON.writeValueAsString(out));
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
